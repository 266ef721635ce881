#!/usr/bin/env python3
"""Answers that follow schemas and grammars, end to end: test/grammar_test.py BUILD. What models say
at a high temperature is parsed by Python's json and checked by a validator of our own that shares
nothing with the C code. Python's standard library only."""

import json
import os
import re

from suite import fletch, run_tests

TINY = ["zoo/tiny/" + name for name in sorted(os.listdir("zoo/tiny")) if name.endswith(".gguf")]


def batch(requests, *args, code=0):
    text = "".join(json.dumps(r) + "\n" for r in requests)
    answers = fletch("batch", *args, "-", "-q", stdin=text.encode(), code=code).text
    return {a["id"]: a for a in map(json.loads, answers.splitlines())}


def is_type(v, name):
    return {
        "null": v is None,
        "boolean": isinstance(v, bool),
        "integer": isinstance(v, int) and not isinstance(v, bool),
        "number": isinstance(v, (int, float)) and not isinstance(v, bool),
        "string": isinstance(v, str),
        "array": isinstance(v, list),
        "object": isinstance(v, dict),
    }[name]


def check(v, s, root):
    """Raises where v is not what s allows."""
    if s is True:
        return
    assert s is not False
    if "$ref" in s:
        target = root
        for step in s["$ref"].split("/")[1:]:
            target = target[step]
        check(v, target, root)
    types = s.get("type", [])
    assert not types or any(is_type(v, t) for t in ([types] if isinstance(types, str) else types))
    assert "const" not in s or v == s["const"]
    assert "enum" not in s or v in s["enum"]
    for part in s.get("allOf", []):
        check(v, part, root)
    for key in ("anyOf", "oneOf"):
        n = sum(fits(v, part, root) for part in s.get(key, []))
        assert key not in s or (n >= 1 if key == "anyOf" else n == 1), (key, n)
    if is_type(v, "number"):
        assert s.get("minimum", v) <= v <= s.get("maximum", v)
    if isinstance(v, str):
        assert s.get("minLength", 0) <= len(v) <= s.get("maxLength", 1 << 30)
        assert "pattern" not in s or re.search(s["pattern"], v)
    if isinstance(v, list):
        assert s.get("minItems", 0) <= len(v) <= s.get("maxItems", 1 << 30)
        first = s.get("prefixItems", [])
        for i, item in enumerate(v):
            check(item, first[i] if i < len(first) else s.get("items", True), root)
    if isinstance(v, dict):
        assert set(s.get("required", [])) <= set(v)
        for key, item in v.items():
            named = s.get("properties", {})
            check(item, named[key] if key in named else s.get("additionalProperties", True), root)


def fits(v, s, root):
    try:
        check(v, s, root)
        return True
    except AssertionError:
        return False


STRING = {"type": "string", "maxLength": 12}
SCHEMAS = [
    {"type": "object", "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 10},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "mail": {"type": "string", "pattern": r"^[a-z]{1,8}@[a-z]{1,8}\.(com|org)$"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", None]}, "maxItems": 4}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "number", "minimum": -2,
                                                            "maximum": 3}],
     "items": STRING, "minItems": 2, "maxItems": 5},
    {"$defs": {"tree": {"type": "object", "properties": {
        "value": {"type": ["integer", "null"]},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "required": ["value"]}}, "$ref": "#/$defs/tree"},
    {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
         "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"enum": ["square", "box"]},
                                          "side": {"type": "integer", "minimum": 1}},
         "required": ["kind", "side"]}]},
    {"anyOf": [{"type": "integer", "minimum": -1000, "maximum": -7}, {"type": "null"}, STRING]},
    {"allOf": [{"type": "object", "properties": {"a": STRING}, "required": ["a"]},
               {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]},
    {"type": "object", "properties": {"known": {"const": 1}},
     "additionalProperties": {"type": "integer", "maximum": 9}},
]


def requests(n_seeds):
    return [{"id": f"{i}.{seed}", "prompt": "Once upon a time", "max_tokens": 200,
             "temperature": 1.5, "seed": seed, "json_schema": schema}
            for i, schema in enumerate(SCHEMAS) for seed in range(n_seeds)]


def test_what_ends_parses_and_validates():
    for model in TINY:
        asked = requests(3)
        answers = batch(asked, model, "--parallel", 8)
        n_ended = 0
        for r in asked:
            a = answers[r["id"]]
            assert "error" not in a and a["finish_reason"] in ("end", "length"), (model, a)
            if a["finish_reason"] == "length":
                continue
            n_ended += 1
            try:
                check(json.loads(a["text"]), r["json_schema"], r["json_schema"])
            except Exception as e:
                raise AssertionError(f"{model}: {r}: {a['text']!r}: {e!r}")
        assert n_ended > len(asked) * 0.6, (model, n_ended, len(asked))


def test_alone_and_among_others_the_same():
    asked = [dict(r, max_tokens=80) for r in requests(2)]
    many, few = batch(asked, "--parallel", 8), batch(asked, "--parallel", 1, "--no-reuse")
    for r in asked:
        assert many[r["id"]]["tokens"] == few[r["id"]]["tokens"]
    little = fletch("batch", "-", "-c", 256, "--cache-tokens", 256, "--parallel", 6, "-v",
                    stdin="".join(json.dumps(r) + "\n" for r in asked).encode())
    assert " 0 times a request made room" not in little.err, little.err
    for a in map(json.loads, little.text.splitlines()):
        assert a["tokens"] == many[a["id"]]["tokens"]
    r = asked[0]
    p = fletch("run", "-p", r["prompt"], "-n", r["max_tokens"], "--temp", 1.5, "--seed", r["seed"],
               "--json", "--json-schema", json.dumps(r["json_schema"]))
    alone = p.json
    assert (alone["tokens"], alone["text"]) == (many[r["id"]]["tokens"], many[r["id"]]["text"])
    assert alone["finish"] == many[r["id"]]["finish_reason"]


def test_guesses_change_nothing():
    asked = [dict(r, max_tokens=60, temperature=0.3, prompt="red green red green blue. " * 4,
                  grammar='root ::= ("red " | "green " | "blue "){12}') for r in requests(1)]
    for r in asked:
        del r["json_schema"]
    plain, n_drafted, n_accepted = batch(asked), 0, 0
    for how in (["--ngram"], ["--draft", "zoo/guide-draft.gguf"]):
        guessed = batch(asked, *how, "--spec-tokens", 3, "--parallel", 3)
        assert all(guessed[r["id"]]["tokens"] == plain[r["id"]]["tokens"] for r in asked), how
        tried = [a["speculation"] for a in guessed.values()]
        n_drafted += sum(t["n_drafted"] for t in tried)
        n_accepted += sum(t["n_accepted"] for t in tried)
        alone = fletch("run", "-p", asked[0]["prompt"], "-n", 60, "--temp", 0.3, "--seed", 0,
                       "--json", "--grammar", asked[0]["grammar"], *how, "--spec-tokens", 3).json
        assert alone["tokens"] == plain[asked[0]["id"]]["tokens"], how
    assert 0 < n_accepted < n_drafted, (n_accepted, n_drafted)


def test_executors_agree():
    asked = [dict(r, max_tokens=30) for r in requests(1)]
    model = [m for m in TINY if "llama" in m or "qwen" in m][0]
    profile = ["--kv-type", "f16", "--act-type", "int8"]
    ref = batch(asked, model, "--backend", "ref", *profile)
    for backend in ("cpu", "emu"):
        other = batch(asked, model, "--backend", backend, *profile)
        for r in asked:
            b = other[r["id"]]
            assert "error" not in b, b
            if b["finish_reason"] == "end":
                check(json.loads(b["text"]), r["json_schema"], r["json_schema"])
        n_equal = sum(ref[r["id"]]["tokens"] == other[r["id"]]["tokens"] for r in asked)
        assert n_equal >= len(asked) - 1, (backend, n_equal)


def test_grammars(d):
    path = os.path.join(d, "list.gbnf")
    with open(path, "w") as f:
        f.write('root ::= item ("," item){1,3} # a list\nitem ::= [a-z]{2,5}\n')
    for seed in range(6):
        out = fletch("run", "-p", "Hello", "--grammar", path, "--temp", 1.5, "--seed", seed,
                     "-q").text
        assert re.fullmatch(r"[a-z]{2,5}(,[a-z]{2,5}){1,3}\n", out), out
    out = fletch("run", "-p", "2+2=", "--grammar", 'root ::= "four" | "five"', "-q").text
    assert out in ("four\n", "five\n")


def test_what_cannot_be_kept_is_refused_before_the_first_token(d):
    for args, says in [
        (("--json-schema", '{"type":"object","not":{"items":{}}}'), "'not'"),
        (("--json-schema", '{"type": "null"'), "schema, line 1: invalid JSON: missing }"),
        (("--grammar", "root ::= x"), "'x'"),
        (("--grammar", 'root ::= "a"', "--json-schema", "{}"), "combined"),
        (("--grammar", 'root ::= "a"', "--ignore-end"), "end"),
    ]:
        p = fletch("run", "-p", "Hello", *args, "-q", code=2)
        assert says in p.err and p.out == b"" and len(p.err.splitlines()) <= 2, (args, p.err, p.out)
    assert "No such file" in fletch("run", "-p", "a", "--json-schema", "nowhere", code=1).err
    for option, name, text, says in [
        ("--json-schema", "bad.json", '{"type": "objectt"}', "bad.json: unknown type 'objectt' at the top level"),
        ("--json-schema", "half.json", '{"type": "object"', "half.json, line 1: invalid JSON: missing } at the end"),
        ("--grammar", "bad.gbnf", 'root ::= "a', "bad.gbnf, line 1: "),
    ]:
        path = os.path.join(d, name)
        with open(path, "w") as f:
            f.write(text)
        err = fletch("run", "-p", "a", option, path, "-q", code=2).err
        assert err.startswith(f"fletch: {d}/{says}"), err
    a = batch([{"id": 1, "prompt": "a", "json_schema": {"not": {"items": {}}}},
               {"id": 2, "prompt": "a", "grammar": 5},
               {"id": 3, "prompt": "a", "grammar": 'root ::= "ok"'},
               {"id": 4, "prompt": "a", "json_schema": [], "max_tokens": 5}], code=1)
    assert "'not'" in a[1]["error"] and "grammar" in a[2]["error"] and a[3]["text"] == "ok"
    assert "json_schema" in a[4]["error"]


run_tests(globals())
