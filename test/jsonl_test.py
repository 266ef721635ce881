#!/usr/bin/env python3
"""End-to-end tests of fletch batch: test/jsonl_test.py BUILD. Python's standard library only."""

import json
import os
import signal
import subprocess
import time

from suite import FLETCH, fletch, run_tests

PROMPTS = ["Once upon a time", "27+48=", "The little dog", "Hello", "Once upon a time there was"]


def start(*args, **kw):
    return subprocess.Popen(
        [FLETCH, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw
    )


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def write(d, name, requests):
    path = os.path.join(d, name)
    with open(path, "w") as f:
        for r in requests:
            f.write((r if isinstance(r, str) else json.dumps(r)) + "\n")
    return path


def requests(n, **more):
    return [
        {"id": f"r{i}", "prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 12, "seed": i, **more}
        for i in range(n)
    ]


def test_every_request_gets_what_run_says(d):
    path = write(d, "a.jsonl", requests(10, temperature=0.8))
    answers = {a["id"]: a for a in lines(fletch("batch", path, "--parallel", 4).text)}
    assert len(answers) == 10
    for i in range(0, 10, 3):
        alone = json.loads(
            fletch("run", "-p", PROMPTS[i % len(PROMPTS)], "-n", 12, "--seed", i, "--temp", 0.8,
                   "--json").out
        )
        a = answers[f"r{i}"]
        assert (a["text"], a["tokens"]) == (alone["text"], alone["tokens"]), (a, alone)
        assert a["finish_reason"] == alone["finish"]


def test_chat_ids_stops_and_logprobs(d):
    chat = [{"role": "user", "content": "How do I make a model smaller?"}]
    path = write(d, "a.jsonl", [
        {"id": 1, "messages": chat, "max_tokens": 40},
        {"id": 2, "tokens": [44, 317, 257], "max_tokens": 3, "logprobs": 2},
        {"prompt": "Once upon a time", "stop": [" a ", "zzz"], "max_tokens": 50},
        {"id": "b", "prompt": "Hello", "max_tokens": 4, "logit_bias": {"44": 100}},
    ])
    a = {x["id"]: x for x in lines(fletch("batch", path).text)}
    assert a[1]["text"].startswith("Convert it") and a[1]["finish_reason"] == "end"
    assert len(a[2]["logprobs"]) == 3 and len(a[2]["logprobs"][0]["top"]) == 2
    assert a[2]["logprobs"][0]["top"][0][1] == a[2]["logprobs"][0]["logprob"] < 0
    assert a[3]["finish_reason"] == "stop" and " a " not in a[3]["text"]
    assert a["b"]["tokens"] == [44] * 4


def test_answers_of_chats_are_split_as_the_server_splits_them(d):
    weather = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    path = write(d, "a.jsonl", [
        {"id": 1, "messages": [{"role": "user", "content": "What is the weather in Riga?"}],
         "tools": [{"type": "function", "function": weather}]},
        {"id": 2, "messages": [{"role": "user", "content": "What is 17+25?"}]},
    ])
    a = {x["id"]: x for x in lines(fletch("batch", path, "--template-arg", "enable_thinking=true").text)}
    for x in a.values():
        assert x["reasoning"] and "think>" not in x["reasoning"] + x["text"], x
    calls = a[1]["tool_calls"]
    assert [c["function"]["name"] for c in calls] == ["get_weather"] and not a[1]["text"], a[1]
    assert json.loads(calls[0]["function"]["arguments"]) == {"city": "Riga"}, calls
    assert "42" in a[2]["text"] and "tool_calls" not in a[2], a[2]


def test_bad_lines_are_answered_with_what_is_wrong(d):
    bad = ["nonsense", "[1]", {"id": "k", "prompt": "a", "tempratur": 1}, {"id": "n"},
           {"id": "two", "prompt": "a", "tokens": [1]}, {"id": "t", "tokens": [-1]},
           {"id": "h", "tokens": [99999999]}, {"id": "m", "prompt": 5}, {"id": [], "prompt": "a"},
           {"id": "s", "prompt": "a", "stop": 3}, {"id": "e", "prompt": "a", "stop": ["b", ""]},
           {"id": "x", "prompt": "a", "temperature": -1},
           {"id": "l", "prompt": "a", "logprobs": 99}, {"id": "z", "prompt": "a", "max_tokens": -4},
           {"id": "o", "prompt": "a", "max_tokens": 0}, {"id": "p", "prompt": "a", "seed": "x"},
           {"id": "c", "messages": [{"role": "user", "content": "a"}], "tools": 5},
           {"id": "0s", "prompt": "a", "stop": "b\0"}, {"id": "0g", "prompt": "a", "grammar": "root ::= \"a\"\0"},
           {"id": "0j", "prompt": "a", "json_schema": "{}\0"}, {"id": "2", "prompt": "a", "max_tokens": 1, "n_predict": 1},
           {"id": "good", "prompt": "a\0b", "max_tokens": 1}, {"id": "good", "prompt": "b"}]
    a = lines(fletch("batch", write(d, "a.jsonl", bad), code=1).text)
    assert len(a) == len(bad)
    assert sum("error" in x for x in a) == len(bad) - 1
    errors = {str(x["id"]): x["error"] for x in a if "error" in x}
    assert "tempratur" in errors["k"] and "one of" in errors["n"] and "one of" in errors["two"]
    assert "used by an earlier request" in errors["good"] and "temperature" in errors["x"]
    assert "seed must be" in errors["p"] and "tools" in errors["c"] and "max_tokens" in errors["o"]
    assert errors["2"] == "n_predict is another name for max_tokens; give only one of them", errors["2"]
    assert all("NUL" in errors[x] for x in ["0s", "0g", "0j"]), errors
    assert [x["n_prompt"] for x in a if "error" not in x] == [3]
    assert all("\n" not in e and e for e in errors.values())


def test_a_killed_run_goes_on(d):
    path, out = write(d, "a.jsonl", requests(40)), os.path.join(d, "out.jsonl")
    want = {a["id"]: a["tokens"] for a in lines(fletch("batch", path).text)}
    p = start("batch", path, "-o", out, "--parallel", 2)
    deadline = time.time() + 60
    while time.time() < deadline and not (os.path.exists(out) and os.path.getsize(out) > 3000):
        time.sleep(0.01)
    p.send_signal(signal.SIGKILL)
    p.wait()
    p.stdout.close(), p.stderr.close()
    before = open(out).read()
    n_before = before.count("\n")
    assert 3 < n_before < 40
    with open(out, "a") as f:
        f.write('{"id":"r39","text":"cut o')  # as a kill in the middle of a write leaves it
    assert f"{n_before} already answered" in fletch("batch", path, "-o", out).err
    answers = lines(open(out).read())
    assert len(answers) == 40 and {a["id"]: a["tokens"] for a in answers} == want
    assert open(out).read().startswith(before[: before.rindex("\n") + 1])
    assert "0 answered" in fletch("batch", path, "-o", out).err


def test_a_second_run_keeps_off_the_first_ones_file(d):
    path, out = write(d, "a.jsonl", requests(200, max_tokens=200)), os.path.join(d, "out.jsonl")
    p = start("batch", path, "-o", out)
    deadline = time.time() + 60
    while time.time() < deadline and not (os.path.exists(out) and os.path.getsize(out)):
        time.sleep(0.01)
    r = fletch("batch", path, "-o", out, code=1)
    assert "in use by another fletch batch" in r.err and out in r.err, r.err
    p.send_signal(signal.SIGKILL)
    p.wait()
    p.stdout.close(), p.stderr.close()
    few = write(d, "few.jsonl", [{"id": "one more", "prompt": "Hello", "max_tokens": 1}])
    assert "1 answered" in fletch("batch", few, "-o", out).err  # the lock went with the process


def test_what_failed_is_tried_again_and_its_line_replaced(d):
    asks = [{"id": "good", "prompt": "a", "max_tokens": 1}, {"id": "bad", "prompt": 5},
            {"id": "long", "prompt": "Once upon a time " * 40, "max_tokens": 1}]
    path, out = write(d, "a.jsonl", asks), os.path.join(d, "out.jsonl")
    for _ in range(3):
        r = fletch("batch", path, "-o", out, "-c", 64, code=1)
        answers = lines(open(out).read())
        assert sorted(a["id"] for a in answers) == ["bad", "good", "long"], answers
    assert "0 answered, 2 failed, 1 already answered" in r.err, r.err
    r = fletch("batch", path, "-o", out, "-c", 512, code=1)  # now one has room
    answers = {a["id"]: a for a in lines(open(out).read())}
    assert len(answers) == 3 and "error" not in answers["long"] and "error" in answers["bad"]
    assert sorted(os.listdir(d)) == ["a.jsonl", "out.jsonl"]


def test_a_line_without_an_id_never_takes_anothers(d):
    hello = {"prompt": "Hello", "max_tokens": 2}
    asks = [{"id": 2, **hello}, {"prompt": "Once upon a time", "max_tokens": 3}, hello,
            {"id": "line 2", **hello}, {"id": 1, **hello}]
    path, out = write(d, "a.jsonl", asks), os.path.join(d, "out.jsonl")
    for _ in range(2):
        fletch("batch", path, "-o", out)
        answers = {a["id"]: a for a in lines(open(out).read())}
        assert list(sorted(map(str, answers))) == ["1", "2", "3", "line 2", "line 2'"], answers
        assert len(answers["line 2'"]["tokens"]) == 3 and len(answers[2]["tokens"]) == 2
    first = json.dumps(asks[0]) + "\n" + json.dumps(asks[1]) + "\n"
    piped = {a["id"] for a in lines(fletch("batch", "-", stdin=first.encode()).text)}
    assert piped == {2, "line 2"}


def test_interrupt_ends_it_cleanly(d):
    path, out = write(d, "a.jsonl", requests(200, max_tokens=200)), os.path.join(d, "out.jsonl")
    p = start("batch", path, "-o", out)
    deadline = time.time() + 60
    while time.time() < deadline and not (os.path.exists(out) and os.path.getsize(out) > 0):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=60)[1].decode()
    assert p.returncode == 1 and "interrupted" in err, err
    assert all("error" not in a for a in lines(open(out).read()))


def test_files_that_do_not_work(d):
    path = write(d, "a.jsonl", requests(2))
    assert "No such file" in fletch("batch", os.path.join(d, "none"), code=1).err
    assert "No such file" in fletch("batch", path, "-o", os.path.join(d, "no/dir"), code=1).err
    if os.path.exists("/dev/full"):
        assert "No space" in fletch("batch", path, "-o", "/dev/full", code=1).err
    assert fletch("batch", "-", stdin=b"").text == ""
    r = fletch("batch", path, "--template", os.path.join(d, "none"), code=1)
    assert "No such file" in r.err and not r.out, "said once, and nothing is answered"


def test_only_files_of_answers_are_added_to(d):
    path = write(d, "a.jsonl", requests(2))
    one_line = os.path.join(d, "b.jsonl")
    with open(one_line, "w") as f:
        f.write('{"id":"a","prompt":"x"}')
    text = write(d, "notes.txt", ["some notes"])
    for out in [path, one_line, text]:
        before = open(out).read()
        assert "lines that are not answers" in fletch("batch", path, "-o", out, code=1).err
        assert open(out).read() == before


def test_little_room_is_shared(d):
    path = write(d, "a.jsonl", requests(12, max_tokens=60, ignore_end=True))
    plenty = {a["id"]: a["tokens"] for a in lines(fletch("batch", path, "-c", 256).text)}
    p = fletch("batch", path, "-c", 256, "--cache-tokens", 256, "-v")
    assert {a["id"]: a["tokens"] for a in lines(p.out)} == plenty
    assert " 0 times a request made room" not in p.err
    path = write(d, "b.jsonl", [{"id": "big", "prompt": "a " * 100, "max_tokens": 200}])
    a = lines(fletch("batch", path, "-c", 512, "--cache-tokens", 64, code=1).text)[0]
    assert "more than the cache's 64" in a["error"], a


run_tests(globals())
