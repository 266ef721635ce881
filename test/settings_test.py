"""Sampling settings mean the same wherever they can be given: every row of FLETCH_SAMPLING_SETTINGS is an
option of the command line, a field of files of requests and of the server's bodies, and refused by each
out of its range."""
import ast
import json
import os
import re

from serving import ASK, Server
from suite import fletch, run_tests

PROMPT = "Once upon a time"
USUAL = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.2, "repeat_penalty": 1.5, "presence_penalty": 30,
         "frequency_penalty": 30, "penalty_window": 9, "no_repeat_ngram": 1}  # values that change the answer, with what OTHERS says
OTHERS = {"penalty_window": {"presence_penalty": 30}}


def rows():
    text = open("include/fletch.h").read().replace("\\\n", " ")
    table = re.search(r"#define FLETCH_SAMPLING_SETTINGS\(X\)(.*)", text)[1]
    for kind, name, rest in re.findall(r'X\((real|count), (\w+), (.*?"\s*)\)(?=\s*X\(|\s*$)', table):
        yield (kind, name, *ast.literal_eval(f"[{rest.replace('INT32_MAX', '2147483647')}]"))


ROWS = {row[1]: row for row in rows()}
SERVER = None


def server():
    global SERVER
    SERVER = SERVER or Server("-c", 512)
    return SERVER


def option(name):
    return "--" + ROWS[name][2]


def by_command(settings, code=0):
    args = [x for name, v in settings.items() for x in (option(name), v)]
    r = fletch("run", "-q", "-p", PROMPT, "-n", 12, "--seed", 5, "--json", *args, code=code)
    return r.err if code else r.json["text"]


def by_batch(folder, settings):
    path = os.path.join(folder, "a.jsonl")
    with open(path, "w") as f:
        f.write(json.dumps({"prompt": PROMPT, "max_tokens": 12, "seed": 5, **settings}))
    return fletch("batch", "-q", path).json["text"]


def by_server(settings):
    return server().complete(PROMPT, **{"max_tokens": 12, **settings, "seed": 5})["choices"][0]["text"]


def test_the_table_is_found():
    assert set(USUAL) == set(ROWS), ROWS


def test_a_setting_gives_the_same_answer_wherever_it_is_given(folder):
    plain = by_command({"temperature": 1})
    for name, value in USUAL.items():
        settings = {"temperature": 1, **OTHERS.get(name, {}), name: value}
        text = by_command(settings)
        assert by_batch(folder, settings) == text == by_server(settings), name
        assert text != plain, f"{name} has no effect"
        alias = ROWS[name][8]
        if alias:
            settings[alias] = settings.pop(name)
            assert by_batch(folder, settings) == text == by_server(settings), alias


def test_values_out_of_range_are_refused_by_name(folder):
    path = os.path.join(folder, "a.jsonl")
    for kind, name, opt, _, low, high, *_ in ROWS.values():
        for value in [low - 1, high * 1.01 + 1, "x"]:
            value = int(value) if kind == "count" and value != "x" else value
            assert f"--{opt}" in by_command({name: value}, code=2), (name, value)
            with open(path, "w") as f:
                f.write(json.dumps({"prompt": PROMPT, name: value}))
            assert name in fletch("batch", "-q", path, code=1).json["error"], (name, value)
            e = server().complete(PROMPT, 400, **{name: value})["error"]
            assert e["param"] == name and name in e["message"], (name, value, e)


def test_fields_of_both_have_one_meaning(folder):
    schema = {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"], "additionalProperties": False}
    for settings in [{"json_schema": schema}, {"json_schema": json.dumps(schema)}, {"grammar": 'root ::= "{}"'},
                     {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
                     {"stop": [" a "], "ignore_eos": True}, {"max_tokens": 3, "ignore_end": True}, {"seed": None}]:
        assert by_batch(folder, settings) == by_server(settings), settings
    forms = {"grammar": 'root ::= "a"', "json_schema": schema}
    wrong = [{"stop": ["a"] * 17}, {"stop": ""}, {"max_tokens": -2}, {"max_tokens": 0}, {"seed": 1.5}, {"ignore_end": 1}, forms]
    path = os.path.join(folder, "a.jsonl")
    for settings in wrong:
        with open(path, "w") as f:
            f.write(json.dumps({"messages": ASK, **settings}))
        name = [*settings][-1]
        assert name in fletch("batch", "-q", path, code=1).json["error"], settings
        assert server().chat(400, **settings)["error"]["param"] == name, settings
    assert server().complete("2+3=", max_tokens=-1, stop="\n")["choices"][0]["finish_reason"] == "stop"


def test_one_bound_of_logit_biases(folder):
    path = os.path.join(folder, "a.jsonl")
    for bias, good in [(1e9, True), (-1e9, True), (2e9, False), (-2e9, False)]:
        fletch("run", "-q", "-p", PROMPT, "-n", 1, "--logit-bias", f"17={bias:f}", code=0 if good else 2)
        with open(path, "w") as f:
            f.write(json.dumps({"prompt": PROMPT, "max_tokens": 1, "logit_bias": {"17": bias}}))
        fletch("batch", "-q", path, code=0 if good else 1)
        server().complete(PROMPT, 200 if good else 400, max_tokens=1, logit_bias={"17": bias})


def test_the_status_of_a_model_has_every_setting():
    assert set(server().status()["models"][0]["sampling"]) == set(ROWS)


run_tests(globals())
