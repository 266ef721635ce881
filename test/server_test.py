#!/usr/bin/env python3
"""End-to-end tests of fletch serve: test/server_test.py BUILD. Python's standard library only."""

import http.client
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from serving import ASK, Server, raw_post, wait_for
from suite import FLETCH, fletch


def run(prompt, *args):
    return fletch("run", "-p", prompt, "--json", "-q", *args).json


# ---- one server as it starts by itself ----


def test_chat_answers_what_run_answers(s):
    a = s.chat(max_tokens=24, temperature=0.8, seed=7)
    want = run(ASK[0]["content"], "--chat", "-n", 24, "--temp", 0.8, "--seed", 7)["text"]
    choice = a["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": want}, (choice, want)
    assert a["object"] == "chat.completion" and a["model"] == "guide" and a["id"].startswith("chatcmpl-")
    u = a["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"], u


def test_a_stream_says_the_same_as_a_whole_answer(s):
    whole = s.chat(max_tokens=24, temperature=0.8, logprobs=True, top_logprobs=3)
    chunks = s.stream(max_tokens=24, temperature=0.8, logprobs=True, top_logprobs=3,
                      stream_options={"include_usage": True})
    deltas = [c["choices"][0] for c in chunks if c["choices"]]
    message = whole["choices"][0]["message"]
    assert "".join(d["delta"].get("content", "") for d in deltas) == message["content"]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert [d["finish_reason"] for d in deltas] == [None] * (len(deltas) - 1) + ["length"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24
    told = [e for d in deltas if d["logprobs"] for e in d["logprobs"]["content"]]
    assert told == whole["choices"][0]["logprobs"]["content"] and len(told) == 24
    for e in told:
        assert len(e["top_logprobs"]) == 3 and bytes(e["bytes"]).decode() == e["token"]
        assert e["top_logprobs"][0]["logprob"] >= e["logprob"]


def test_a_response_that_was_cut_says_so(s):
    for stream in False, True:
        r = s.post("/v1/responses", {"input": "Tell me a story.", "max_output_tokens": 4, "stream": stream})
        if stream:
            r = json.loads(r.split("event: response.incomplete\ndata: ")[1])["response"]
        assert r["status"] == r["output"][-1]["status"] == "incomplete", r
    r = s.post("/v1/responses", {"input": "27+48=", "temperature": 0})
    assert r["status"] == r["output"][-1]["status"] == "completed", r


def test_a_stream_tells_progress_and_timings_when_asked(s):
    words = " ".join(f"word{i}" for i in range(300))
    chunks = s.stream(messages=[{"role": "user", "content": words}], max_tokens=3,
                      stream_options={"include_progress": True})
    told = [c["fletch"] for c in chunks if "prompt_done" in c.get("fletch", {})]
    done = [p["prompt_done"] for p in told if not p["queue_position"]]
    assert len(done) > 2 and done == sorted(done) and done[-1] == told[-1]["prompt_total"], told
    last = chunks[-1]["fletch"]
    assert last["prefill_ms"] > 0 and last["decode_ms"] > 0 and last["reuse_end"], last
    assert not any("fletch" in c for c in s.stream(max_tokens=2))


def test_a_prompt_that_was_there_is_reused(s):
    words = " ".join(f"again{i}" for i in range(100))
    ask = {"messages": [{"role": "user", "content": words}], "max_tokens": 2}
    s.chat(**ask)
    a = s.chat(**ask)["usage"]
    assert a["prompt_tokens_details"]["cached_tokens"] > a["prompt_tokens"] / 2, a


def test_several_answers_are_those_of_their_seeds_and_differ(s):
    a = s.chat(n=3, max_tokens=12, temperature=1.0, messages=[{"role": "user", "content": "Tell me a story."}])
    texts = [c["message"]["content"] for c in a["choices"]]
    assert [c["index"] for c in a["choices"]] == [0, 1, 2] and len(set(texts)) == 3, texts
    b = s.chat(n=1, max_tokens=12, temperature=1.0, messages=[{"role": "user", "content": "Tell me a story."}])
    assert b["choices"][0]["message"]["content"] == texts[0]


def test_stop_texts_end_an_answer_before_them(s):
    whole = s.chat(max_tokens=30, temperature=0)["choices"][0]["message"]["content"]
    stop = whole[10:14]
    a = s.chat(max_tokens=30, temperature=0, stop=["never there", stop])["choices"][0]
    assert a["message"]["content"] == whole[: whole.index(stop)] and a["finish_reason"] == "stop", a
    assert s.chat(max_tokens=30, temperature=0, stop=stop)["choices"][0] == a


def test_logit_bias_and_penalties_are_heard(s):
    id = s.post("/tokenize", {"content": " cat"})["tokens"][-1]
    bias = {"max_tokens": 4, "temperature": 0, "logit_bias": {str(id): 60}}
    a = s.complete("The", **bias)["choices"][0]["text"]
    assert a == " cat" * 4, a
    a = s.complete("The", **bias, presence_penalty=100)["choices"][0]["text"]
    assert a.startswith(" cat") and a.count(" cat") == 1, a


def test_answers_follow_a_schema_or_a_grammar(s):
    schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}, "n": {"type": "integer"}},
              "required": ["size", "n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in False, True:
        a = s.stream(response_format=form, max_tokens=60) if stream else s.chat(response_format=form, max_tokens=60)
        text = ("".join(c["choices"][0]["delta"].get("content", "") for c in a) if stream
                else a["choices"][0]["message"]["content"])
        j = json.loads(text)
        assert set(j) == {"size", "n"} and j["size"] in ("small", "large") and isinstance(j["n"], int), text
    a = s.complete("27+48=", grammar='root ::= "yes" | "no"', max_tokens=8)["choices"][0]
    assert a["text"] in ("yes", "no") and a["finish_reason"] == "stop", a
    assert s.chat(response_format={"type": "json_object"}, max_tokens=1)["choices"][0]["message"]["content"][0] == "{"
    for wrong in [{"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {"type": 3}}},
                  {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70000]}}}]:
        s.chat(400, response_format=wrong)
    s.chat(400, grammar="root ::= (")
    many = [f"value number {i}" for i in range(2500)]
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": many}}}
    a = s.chat(response_format=form, max_tokens=40)["choices"][0]
    assert json.loads(a["message"]["content"]) in many and a["finish_reason"] == "stop", a
    e = s.chat(400, grammar="root ::= ([a-z]?){9999}")["error"]  # found out with the first token
    assert "ambiguous" in e["message"] and e["type"] == "invalid_request_error", e


def test_completions_take_texts_and_ids(s):
    prompts = ["Once upon a time", "27+48="]
    ids = [s.post("/tokenize", {"content": p, "add_special": True})["tokens"] for p in prompts]
    a = s.complete(prompts, max_tokens=6, temperature=0)
    assert s.complete(ids, max_tokens=6, temperature=0)["choices"] == a["choices"]
    assert [c["index"] for c in a["choices"]] == [0, 1]
    for i, p in enumerate(prompts):
        assert s.complete(ids[i], max_tokens=6, temperature=0)["choices"][0]["text"] == a["choices"][i]["text"]
        assert run(p, "-n", 6, "--temp", 0)["text"] == a["choices"][i]["text"]
    assert s.complete("Once", n=2)["usage"]["completion_tokens"] <= 32, "16 tokens are the default"
    chunks = s.stream("/v1/completions", prompt=prompts[0], max_tokens=6, temperature=0, echo=True)
    assert "".join(c["choices"][0]["text"] for c in chunks) == prompts[0] + a["choices"][0]["text"]


def test_echo_scores_the_prompt_as_generation_would(s):
    prompt = "Once upon a time there was a little"
    a = s.complete(prompt, max_tokens=4, temperature=0, logprobs=2, echo=True)["choices"][0]
    l, n = a["logprobs"], len(s.post("/tokenize", {"content": prompt, "add_special": True})["tokens"])
    assert a["text"].startswith(prompt) and len(l["tokens"]) == n + 4
    assert l["token_logprobs"][0] is None and all(x <= 0 for x in l["token_logprobs"][1:])
    for token, at in zip(l["tokens"], l["text_offset"]):
        assert a["text"][at:].startswith(token) or at == 0, (token, at)
    # each token alone, generated behind those before it and forced: the same probabilities
    for i in range(2, n):
        b = s.complete(l["token_ids"][:i], max_tokens=1, logprobs=2,
                       logit_bias={str(l["token_ids"][i]): 1000})["choices"][0]["logprobs"]
        assert abs(b["token_logprobs"][0] - l["token_logprobs"][i]) < 0.02, (i, b, l)
        assert set(b["top_logprobs"][0]) == set(l["top_logprobs"][i]), (i, b, l["top_logprobs"][i])
    only = s.complete(prompt, max_tokens=0, logprobs=2, echo=True)
    assert only["choices"][0]["text"] == prompt and only["usage"]["completion_tokens"] == 0
    assert only["choices"][0]["logprobs"]["token_logprobs"] == l["token_logprobs"][:n]
    chat = s.post("/apply-template", {"messages": ASK})["tokens"]  # control tokens are part of this text
    a = s.complete(chat, max_tokens=2, temperature=0, logprobs=0, echo=True)["choices"][0]
    for token, at in zip(a["logprobs"]["tokens"], a["logprobs"]["text_offset"]):
        assert a["text"][at:].startswith(token), (token, at)


def test_tokens_go_there_and_back(s):
    text = "Größe, 27+48 and 🙂"
    a = s.post("/tokenize", {"content": text, "with_pieces": True})
    assert a["n_tokens"] == len(a["tokens"]) == len(a["pieces"])
    assert s.post("/detokenize", {"tokens": a["tokens"]}) == {"content": text}
    # a token that is part of a character: its bytes, everywhere
    pieces = [p.encode() if isinstance(p, str) else bytes(p) for p in a["pieces"]]
    assert b"".join(pieces) == text.encode() and any(isinstance(p, list) for p in a["pieces"])
    at = next(i for i, p in enumerate(a["pieces"]) if isinstance(p, list))
    part = s.post("/detokenize", {"tokens": a["tokens"][at:at + 1]})
    assert bytes(part["bytes"]) == pieces[at], part
    whole = s.complete(text, max_tokens=0, echo=True, logprobs=5)["choices"][0]["logprobs"]
    read = [eval('b"' + t[6:] + '"') if t.startswith("bytes:") else t.encode() for t in whole["tokens"]]
    assert b"".join(read).endswith(text.encode()), read
    assert all(len(top) in (5, 6) for top in whole["top_logprobs"][1:]), "no two are made one"
    assert s.post("/tokenize", {"content": ""}) == {"tokens": [], "n_tokens": 0}


def test_a_template_is_applied_and_the_last_message_continued(s):
    a = s.post("/apply-template", {"messages": ASK})
    assert ASK[0]["content"] in a["prompt"] and a["n_tokens"] == len(a["tokens"])
    whole = s.chat(max_tokens=16, temperature=0)["choices"][0]["message"]["content"]
    half = {"role": "assistant", "content": " ".join(whole.split()[:4])}
    b = s.post("/apply-template", {"messages": [*ASK, half], "continue_final_message": True})
    assert b["prompt"] == a["prompt"] + half["content"], b
    rest = s.chat(messages=[*ASK, half], continue_final_message=True, max_tokens=16, temperature=0)
    assert rest["choices"][0]["message"]["content"].startswith(whole[len(half["content"]) :]), (whole, rest)
    parts = [{"role": "user", "content": [{"type": "text", "text": ASK[0]["content"]}]}]
    assert s.post("/apply-template", {"messages": parts}) == a


def test_what_would_change_nothing_is_refused(s):
    """Variables that the template does not read: the built-in model's has enable_thinking alone."""
    for field, value, param in [("reasoning_effort", "high", "reasoning_effort"),
                                ("chat_template_kwargs", {"enable_thinking": True, "depth": 2}, "chat_template_kwargs.depth"),
                                ("chat_template_kwargs", {"messages": []}, "chat_template_kwargs.messages")]:
        e = s.chat(400, max_tokens=1, **{field: value})["error"]
        assert e["param"] == param, e
    s.chat(max_tokens=1, chat_template_kwargs={"enable_thinking": False})
    e = s.post("/v1/responses", {"input": "a", "reasoning": {"effort": "low"}}, 400)["error"]
    assert e["param"] == "reasoning" and "reasoning_effort" in e["message"], e
    ask = {"model": "guide", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}
    assert "reasoning_effort" in s.post("/v1/messages", {**ask, "output_config": {"effort": "low"}}, 400)["error"]["message"]
    counts = [s.post("/v1/messages", {**ask, "thinking": {"type": kind}})["usage"]["input_tokens"] for kind in ("enabled", "disabled")]
    assert counts[0] != counts[1], counts
    s.post("/v1/messages", {**ask, "thinking": {"type": "much"}}, 400)


def test_messages_go_on_with_the_assistants_last(s):
    whole = s.chat(max_tokens=16, temperature=0)["choices"][0]["message"]["content"]
    half = " ".join(whole.split()[:4])
    for content in half, [{"type": "text", "text": half}]:
        ask = {"model": "guide", "max_tokens": 16, "temperature": 0,
               "messages": [*ASK, {"role": "assistant", "content": content}]}
        rest = s.post("/v1/messages", ask)
        assert (half + rest["content"][0]["text"]).startswith(whole), (half, rest, whole)
        assert s.post("/v1/messages/count_tokens", {k: ask[k] for k in ("model", "messages")})["input_tokens"] == \
            rest["usage"]["input_tokens"] + rest["usage"]["cache_read_input_tokens"]
    for wrong in half + " ", "":
        ask["messages"][-1]["content"] = wrong
        assert "whitespace" in s.post("/v1/messages", ask, 400)["error"]["message"]


def test_errors_name_the_place(s):
    f = {"type": "function", "function": {"name": "f"}}
    for path, body, param in [
            ("completions", {"prompt": ["text", 5]}, "prompt[1]"), ("completions", {"prompt": [5, "text"]}, "prompt[1]"),
            ("completions", {"prompt": ["a", [1, -2]]}, "prompt[1][1]"), ("completions", {"prompt": {}}, "prompt"),
            ("embeddings", {"input": ["a", {}]}, "input[1]"), ("embeddings", {"input": [["a"]]}, "input[0][0]"),
            ("chat/completions", {"messages": ASK, "nope": 1}, "nope"),
            ("chat/completions", {"messages": [*ASK, {"content": ""}]}, "messages[1].role"),
            ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "x"}]}]},
             "messages[0].content[1]"),
            ("chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
            ("chat/completions", {"messages": ASK, "stream_options": {"nope": True, "include_usage": True}}, "stream_options.nope"),
            ("chat/completions", {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"schema": {}, "q": 1}}},
             "response_format.json_schema.q"),
            ("chat/completions", {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
             "response_format"),
            ("chat/completions", {"messages": ASK, "grammar": "root ::= x"}, "grammar"),
            ("chat/completions", {"messages": ASK, "tools": [f, {"type": "function", "function": {"name": "a b"}}]},
             "tools[1].function.name"),
            ("responses", {"input": "a", "max_output_tokens": 1, "nope": 1}, "nope")]:
        e = s.post(f"/v1/{path}", body, 400)["error"]
        assert e["param"] == param, (body, e)


def test_a_template_shows_what_the_model_reads(s):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    called = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for body in [{"messages": [{"role": "developer", "content": "Be brief."}, *ASK]},
                 {"messages": [*ASK, {"role": "assistant", "content": "", "tool_calls": [called]}], "tools": tools},
                 {"messages": ASK, "tools": tools, "tool_choice": "none"},
                 {"messages": ASK, "tools": tools, "tool_choice": "required"}]:
        a = s.post("/apply-template", body)
        assert a["n_tokens"] == s.chat(**body, max_tokens=1)["usage"]["prompt_tokens"], body
    assert a["prompt"].endswith("<|im_start|>assistant\n"), "a call that must be made is no part of the prompt"
    assert s.post("/apply-template", {"messages": ASK, "tools": [{}]}, 400)["error"]["param"] == "tools[0]"


def test_models_are_listed(s):
    a = s.get("/v1/models").json
    assert [m["id"] for m in a["data"]] == ["guide"] and a["data"][0]["ready"]
    assert s.get("/v1/models/guide").json == a["data"][0]
    for other in ["other", "guide%00x", "guide%00"]:
        assert s.get(f"/v1/models/{other}").status == 404, other
    assert s.chat(model="guide", max_tokens=1)


def test_models_show_in_the_status_what_they_run_on(s):
    def guide():
        return s.status()["models"][0]
    m = guide()
    plan = fletch("plan", "zoo/guide.gguf", "-c", 512, "--json").json
    assert m["builtin"] and m["has_template"] and m["backend"].startswith("cpu"), m
    assert m["memory_bytes"] >= plan["total"] > m["weight_bytes"] > 0 and s.status()["resident_bytes"] > 0, m
    assert m["sampling"]["repeat_penalty"] == 1 and 0 <= m["sampling"]["temperature"] <= 2, m
    wait_for(lambda: len(guide()["tokens_last_minute"]) >= 2)
    before = guide()
    s.chat(max_tokens=7, ignore_end=True)
    wait_for(lambda: sum(guide()["tokens_last_minute"]) > 0)
    assert guide()["generated_tokens"] > before["generated_tokens"] and len(guide()["tokens_last_minute"]) <= 60


def test_texts_may_hold_nul(s):
    assert s.post("/tokenize", {"content": "a\0b"})["tokens"] == [97, 0, 98]
    assert s.post("/tokenize", {"content": "\0", "with_pieces": True})["pieces"] == ["\0"]
    assert s.post("/detokenize", {"tokens": [97, 0, 98]})["content"] == "a\0b"
    a = s.complete("a\0b", max_tokens=1, echo=True)
    assert a["choices"][0]["text"].startswith("a\0b") and a["usage"]["prompt_tokens"] == 3
    said = [{"role": "user", "content": "zero\0one"}]
    assert "zero\0one" in s.post("/apply-template", {"messages": said})["prompt"]
    n = s.post("/v1/messages/count_tokens", {"messages": said})["input_tokens"]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "zero\0one"}]}]
    assert s.post("/v1/messages/count_tokens", {"messages": blocks})["input_tokens"] == n
    systems = ["a", "a\0b", [{"type": "text", "text": "a\0b"}]]
    one, text, block = [s.post("/v1/messages/count_tokens", {"system": x, "messages": said})["input_tokens"] for x in systems]
    assert one < text == block, (one, text, block)
    assert s.post("/v1/embeddings", {"input": "a\0b"})["usage"]["prompt_tokens"] == 3
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "zero\0one"}]}]
    assert s.post("/v1/responses", {"input": items, "max_output_tokens": 1})["usage"]["input_tokens"] == n
    for body, name in [({"model": "guide\0x"}, "model"), ({"stop": "a\0"}, "stop"), ({"stop": ["a\0"]}, "stop"),
                       ({"grammar": "root ::= \"a\"\0"}, "grammar"), ({"tool_choice": "none\0"}, "tool_choice"),
                       ({"messages": [{"role": "user\0", "content": "a"}]}, "messages"),
                       ({"response_format": {"type": "text\0"}}, "response_format")]:
        e = s.chat(400, **body)["error"]
        assert e["param"].startswith(name) and "JSON_" not in e["message"], e
    tools = [{"type": "function", "function": {"name": "f\0", "parameters": {}}}]
    assert s.chat(400, tools=tools)["error"]["param"].startswith("tools")


def test_wrong_fields_are_named(s):
    for field, value in [("temperature", "hot"), ("temperature", -1), ("n", 0), ("n", 1.5), ("stop", 3),
                         ("stop", [""]), ("logit_bias", {"x": 1}), ("messages", []), ("messages", [1]),
                         ("stream", 1), ("top_logprobs", 3), ("top_p", 2), ("max_tokens", -2), ("max_tokens", 0), ("seed", "x"),
                         ("messages", [{"role": "user", "content": [{"type": "image_url"}]}]),
                         ("messages", [{"role": "user", "content": 5}]), ("messages", [{"role": "user", "content": {}}]),
                         ("stream_options", {"include_all": True}), ("stream_options", {"include_usage": 1}),
                         ("chat_template_kwargs", 3), ("tools", {})]:
        e = s.chat(400, **{field: value})["error"]
        assert re.split(r"[.\[]", e["param"])[0] == field and e["type"] == "invalid_request_error", (field, value, e)
    assert "'colour'" in s.chat(400, colour="red")["error"]["message"]
    assert s.complete({"a": 1}, 400)["error"]["param"] == "prompt"
    assert "0..4095" in s.complete([5000], 400)["error"]["message"]
    assert "'temperature'" in s.post("/v1/embeddings", {"input": "x", "temperature": 1}, 400)["error"]["message"]
    assert s.post("/v1/embeddings", {"input": "x", "user": "me"})
    assert s.chat(temperature=None, stop=None, max_tokens=1, stream_options={"include_usage": None}), "null is as if it was not there"


def test_unknown_fields_are_named(s):
    for path, body in [("/v1/chat/completions", {"messages": ASK}), ("/v1/completions", {"prompt": "a"}), ("/tokenize", {"content": "a"}),
                       ("/v1/responses", {"input": "a"}), ("/v1/embeddings", {"input": "a"})]:
        e = s.post(path, {**body, "tempratur": 1}, 400)["error"]
        assert e["param"] == "tempratur" and "'tempratur'" in e["message"], e
        assert s.post(path, {**body, "x" * 100000: 1}, 400)["error"]["param"] is None


def test_wrong_fields_of_other_forms_are_named_as_they_were_sent(s):
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "[1"}
    for field, value in [("max_output_tokens", 0), ("max_output_tokens", "x"), ("max_output_tokens", 1 << 40), ("input", []),
                         ("input", [call]), ("text", {"format": {"type": "x"}}), ("text", {"format": {"type": "json_schema"}}),
                         ("tools", 5), ("tool_choice", "x"), ("tool_choice", {"type": "function"})]:
        e = s.post("/v1/responses", {"input": "Hello", field: value}, 400)["error"]
        assert e["param"] == field and e["type"] == "invalid_request_error", (field, value, e)
        assert not any(w in e["message"] for w in ["max_tokens must", "messages", "response_format"]), e
    for field, value in [("stop_sequences", [""]), ("output_config", {"format": {"type": "x"}}), ("max_tokens", 0)]:
        e = s.post("/v1/messages", {"messages": ASK, "max_tokens": 4, field: value}, 400)["error"]
        assert e["message"].startswith(field) or f"of {field}" in e["message"], (field, value, e)
    for field, value, own in [("messages", 5, "input"), ("messages", ASK, "input"), ("max_tokens", 4, "max_output_tokens")]:
        e = s.post("/v1/responses", {field: value, "input": "Hello"}, 400)["error"]
        assert f"'{field}'" in e["message"] and own in e["message"], e


def test_too_long_a_prompt_names_both_numbers(s):
    e = s.complete([5] * 5000, 400)["error"]
    assert e["code"] == "context_length_exceeded", e
    assert e["message"] == "The prompt is 5,000 tokens long; this model's context holds 4,096, including the answer.", e


def test_the_oldest_turns_are_left_out_only_when_asked(s):
    talk = [{"role": "system", "content": "Be brief."}]
    for i in range(30):
        call = {"type": "function_call", "call_id": str(i), "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": str(i), "output": f"result{i}"}
        talk += [{"role": "user", "content": f"question{i}"}, call, output,
                 {"role": "assistant", "content": f"answer{i}"}]
    talk += [{"role": "user", "content": "What is 2+3?"}]
    body = {"input": talk, "max_output_tokens": 8, "temperature": 0}
    e = s.post("/v1/responses", body, 400)["error"]
    assert e["code"] == "context_length_exceeded", e
    cut = s.post("/v1/responses", {**body, "truncation": "auto"})
    n = cut["fletch"]["dropped_messages"]
    assert cut["truncation"] == "auto" and 0 < n < 120 and n % 4 == 0, cut
    # That many, and no fewer: what is left is a conversation of its own.
    left = {"input": talk[:1] + talk[1 + n:], "max_output_tokens": 8, "temperature": 0}
    alone = s.post("/v1/responses", {**left, "truncation": "auto"})
    assert alone["fletch"] == {"dropped_messages": 0}, alone["fletch"]
    texts = [r["output"][0]["content"][0]["text"] for r in (cut, alone)]
    assert texts[0] == texts[1] and cut["usage"]["input_tokens"] == alone["usage"]["input_tokens"] < 512 - 8
    one_more = talk[:1] + talk[1 + n - 4:]
    assert s.post("/v1/responses", {**body, "input": one_more, "truncation": "auto"})["fletch"] == {"dropped_messages": 4}
    last = s.post("/v1/responses", {"input": "word " * 600, "truncation": "auto"}, 400)["error"]
    assert last["code"] == "context_length_exceeded", "a question is never cut"


def test_limits_are_named(s):
    for field, value, limit in [("n", 100, "choices"), ("stop", ["x"] * 99, "stops"), ("stop", "x" * 999, "stop_bytes"),
                                ("messages", ASK * 2000, "messages"), ("tools", [{}] * 200, "tools"),
                                ("logit_bias", {str(i): 1 for i in range(2000)}, "biases"),
                                ("max_tokens", 10**9, "output_tokens"), ("top_logprobs", 21, "logprobs")]:
        e = s.chat(400, **{field: value})["error"]
        assert e["code"] == limit and limit in e["message"], (field, e)
    deep = '{"messages": ' + "[" * 100 + "]" * 100 + "}"
    assert s.post("/v1/chat/completions", deep, 400)["error"]["code"] == "json_depth"
    assert s.complete(["x"] * 1000, 400)["error"]["code"] == "prompts"
    assert s.complete("x", 400, logprobs=21)["error"]["code"] == "logprobs"


def test_paths_and_methods(s):
    assert s.get("/nothing").status == 404
    r = s.get("/v1/chat/completions")
    assert (r.status, r.getheader("allow")) == (405, "POST")
    r = s.get("/v1/messages").json
    assert r["type"] == "error" and r["error"]["type"] == "invalid_request_error", r
    assert s.request("HEAD", "/livez").text == ""
    assert s.get("/livez").json == {"status": "ok"} and s.get("/health").status == 200


def test_the_page_is_served_with_a_strict_policy(s):
    r = s.get("/")
    assert r.status == 200 and r.getheader("content-type").startswith("text/html"), r.status
    assert "default-src 'none'" in r.getheader("content-security-policy")
    again = s.get("/", If_None_Match=r.getheader("etag"))
    assert (again.status, again.text) == (304, "")
    for name in re.findall(r'(?:src|href)="([^":#]+)"', r.text):
        assert s.get("/" + name.lstrip("/")).status == 200, name


def read_metrics(s):
    """{(name, labels): value}"""
    values, types = {}, {}
    for line in s.get("/metrics").text.splitlines():
        if line.startswith("# TYPE "):
            types[line.split()[2]] = line.split()[3]
        elif not line.startswith("#"):
            m = re.fullmatch(r'([a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*",?)*)\})? ([0-9.e+-]+|\+Inf)', line)
            assert m, line
            values[m[1], m[2]] = float(m[3])
            assert re.sub("_(bucket|sum|count)$", "", m[1]) in types or m[1] in types, line
    return values


def test_metrics_can_be_parsed_and_count(s):
    before = read_metrics(s)
    s.chat(max_tokens=5, temperature=0)
    after = read_metrics(s)
    grew = {k[0]: after[k] - before.get(k, 0) for k in after}
    assert grew["fletch_generated_tokens_total"] == 5 and grew["fletch_time_to_first_token_seconds_count"] == 1
    chat = ("fletch_requests_total", 'api="chat",status="200"')
    assert after[chat] - before.get(chat, 0) == 1
    buckets = [v for k, v in after.items() if k[0] == "fletch_inter_token_seconds_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == after["fletch_inter_token_seconds_count", None]


def test_prompts_of_embeddings_are_counted(s):
    def count():
        return read_metrics(s)["fletch_prompt_tokens_total", None]
    before = count()
    n = s.post("/v1/embeddings", {"input": ["a b c", "d e"]})["usage"]["prompt_tokens"]
    assert n > 2 and count() == before + n, (n, before, count())


def test_guesses_and_memory_are_counted(s):
    guide = 'model="guide"'
    id = s.post("/tokenize", {"content": " cat"})["tokens"][-1]
    s.complete("The", max_tokens=24, temperature=0, logit_bias={str(id): 1000})  # easy to guess
    wait_for(lambda: read_metrics(s)["fletch_accepted_tokens_total", guide] > 0)
    m = read_metrics(s)
    assert m["fletch_accepted_tokens_total", guide] <= m["fletch_draft_tokens_total", guide], m
    plan = fletch("plan", "zoo/guide.gguf", "-c", 512, "--json").json  # of one session
    assert m["fletch_gpu_allocated_bytes", guide] == m["fletch_gpu_recommended_bytes", guide] == 0, "it is not on Metal"
    assert m["fletch_device_memory_bytes", guide] >= plan["total"] > os.path.getsize("zoo/guide.gguf"), (plan, m)


def test_foreign_hosts_and_origins_are_refused(s):
    for host, ok in [("localhost", 1), ("LOCALHOST:1", 1), ("127.0.0.1:80", 1), ("[::1]:80", 1), ("192.168.0.7", 1),
                     ("evil.example", 0), ("127.0.0.1.evil.example", 0), ("localhost:80x", 0), ("[::1", 0), ("", 0)]:
        assert s.get("/livez", Host=host).status == (200 if ok else 421), host
    here = f"127.0.0.1:{s.port}"
    for origin, ok in [(f"http://{here}", 1), ("http://evil.example", 0), ("null", 0), (f"ftp://{here}", 0),
                       (f"http://{here}.evil.example", 0)]:
        assert s.get("/livez", Host=here, Origin=origin).status == (200 if ok else 403), origin


def test_bad_http_is_refused_and_hurts_nobody(s):
    for data, status in [(b"\r\n\r\n", 400), (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505), (b"GET /\r\n\r\n", 400),
                         (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
                         (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
                         (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\nb\r\n\r\n", 400),
                         (b"GET / HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n", 400),
                         (b"GET http://a/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
                         (b"GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                         (b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n", 400),
                         (b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2 zz\r\n{}\r\n0\r\n\r\n", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\na: b\n\n", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
                         (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\n\r\n", 417),
                         (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
                         (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431)]:
        c = s.open(data)
        answer = c.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 %d " % status), (data[:80], answer[:80])
        c.close()
    assert s.get("/livez").status == 200


def test_bodies_may_come_in_chunks_and_requests_in_a_row(s):
    chunked = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"5\r\n{\"con\r\n9;x=y\r\ntent\":\"a\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n")
    c = s.open(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + chunked
               + b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = c.makefile("rb").read()
    assert answer.count(b"HTTP/1.1 200 OK") == 3 and answer.count(b'"n_tokens":1') == 1, answer
    c = s.open(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\nExpect: 100-continue\r\n"
               b"Connection: close\r\n\r\n")
    assert c.recv(100).startswith(b"HTTP/1.1 100 ")
    c.sendall(b'{"content":"a"}')
    assert b'"n_tokens":1' in c.makefile("rb").read()
    c = s.open(b"GET /livez HTTP/1.0\r\n\r\n")
    assert b'"ok"' in c.makefile("rb").read(), "HTTP/1.0 needs no Host, and ends the connection"
    c = s.open(b"\r\nGET http://localhost:1/livez?a HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n")
    assert b'"ok"' in c.makefile("rb").read(), "an empty line before it, and the address as proxies get it"


def test_who_ends_only_its_own_side_gets_its_answers(s):
    get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    short = {"messages": ASK, "max_tokens": 4}
    for data, n in [(get, 1), (get + raw_post(short) + get, 3), (raw_post({**short, "stream": True}), 1),
                    (raw_post({**short, "max_tokens": 400, "ignore_end": True}), 1)]:
        c = s.open(data)
        c.shutdown(socket.SHUT_WR)
        answer = c.makefile("rb").read()
        assert answer.count(b"HTTP/1.1 200 OK") == n, answer[:300]
        assert b"event-stream" not in answer or b"data: [DONE]" in answer, answer
    for data in [b"", get[:-2], raw_post(short)[:-1]]:  # half a request is none
        c = s.open(data)
        c.shutdown(socket.SHUT_WR)
        assert c.makefile("rb").read() == b"", data


def test_mutated_requests_get_answers(s):
    """A thousand requests, each with a few bytes changed: an answer each, and never a 500."""
    rng = random.Random(1)
    seeds = [json.dumps({"messages": ASK, "max_tokens": 1, "temperature": 0.5, "stop": ["a", "b"], "n": 1,
                         "logit_bias": {"5": 1.5}, "stream": False, "seed": 3}),
             json.dumps({"prompt": [[1, 2], [3]], "max_tokens": 1, "logprobs": 1, "echo": True}),
             json.dumps({"prompt": "a\u00e9\u0000b", "max_tokens": 1, "n": 2, "stream": True}),
             json.dumps({"messages": [{"role": "system", "content": "x"}, *ASK], "max_tokens": 1,
                         "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"})]
    paths = ["/v1/chat/completions", "/v1/completions", "/v1/completions", "/v1/chat/completions"]
    c, seen = None, {}
    for i in range(1000):
        k = i % len(seeds)
        data = bytearray(seeds[k].encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            what = rng.randrange(4)
            if what == 0:
                data[at] = rng.randrange(256)
            elif what == 1:
                del data[at:at + rng.randint(1, 8)]
            elif what == 2:
                data[at:at] = rng.choice([b"{", b"[", b'"', b"\\", b"1e999", b"null", b"-", b"\xff", b"9" * 30])
            else:
                data[at:at] = data[at:at + rng.randint(1, 20)]
        if c is None:
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", paths[k], bytes(data))
        r = c.getresponse()
        r.read()
        seen[r.status] = seen.get(r.status, 0) + 1
        if r.getheader("connection") == "close":
            c.close()
            c = None
    assert set(seen) <= {200, 400, 404} and seen[400] > 500, seen
    assert s.chat(max_tokens=1)


def test_a_client_that_goes_frees_its_place(s):
    # The whole answers would take longer than anybody waits here.
    long = {"messages": ASK, "max_tokens": 12000, "ignore_end": True, "stream": True}
    clients = [s.open(raw_post(long)) for _ in range(4)]
    for c in clients:
        assert b"200 OK" in c.recv(100)
    wait_for(lambda: s.status()["running"] == 4)
    for c in clients:
        c.close()
    wait_for(lambda: s.status()["running"] == 0 and s.status()["kv"]["used"] == 0)
    # the same while the prompt is read, and while the answer is collected
    words = " ".join(f"w{i}" for i in range(700))
    for more in [{"messages": [{"role": "user", "content": words}]}, {"stream": False}]:
        c = s.open(raw_post({**long, **more}))
        wait_for(lambda: s.status()["running"] == 1)
        c.close()
        wait_for(lambda: s.status()["running"] == 0 and s.status()["calls"] == 0)


def test_twenty_at_once_get_what_each_gets_alone(s):
    def ask(i, to):
        to[i] = s.complete(f"The number {i} is", max_tokens=8, temperature=0.7, seed=i)["choices"]
    alone, together = {}, {}
    for i in range(20):
        ask(i, alone)
    threads = [threading.Thread(target=ask, args=(i, together)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


def test_one_line_is_logged_for_each_request(s):
    s.chat(max_tokens=3, temperature=0)
    wait_for(lambda: any("POST '/v1/chat/completions' 200" in x and " 3 out; queue" in x and re.search(r"\(\d+ cached: \w", x)
                         for x in s.lines[-3:]))
    s.end()


# ---- servers with narrow limits ----


def test_slow_and_silent_clients_are_cut_off(s):
    began = time.monotonic()
    slow = s.open(b"GET / HT")
    body = s.open(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
    silent = s.open(b"")
    idle = s.open(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for i in range(5):  # a byte now and then does not help
        time.sleep(0.2)
        try:
            slow.sendall(b"T")
        except OSError:
            pass
    said = slow.makefile("rb").read()
    assert b" 408 " in said and b"header_seconds" in said, said
    assert b" 408 " in body.makefile("rb").read()
    assert silent.makefile("rb").read() == b"" and b"200 OK" in idle.makefile("rb").read()
    assert time.monotonic() - began < 30


def test_the_queue_is_bounded(s):
    long = {"messages": ASK, "max_tokens": 12000, "ignore_end": True, "stream": True}
    running = [s.open(raw_post(long)) for _ in range(2)]
    wait_for(lambda: (s.status()["running"], s.status()["queue"]) == (2, 0))
    progress = {**long, "stream_options": {"include_progress": True}}
    waiting = [s.open(raw_post(body)) for body in [long, progress]]
    wait_for(lambda: s.status()["queue"] == 2)
    r = s.request("POST", "/v1/chat/completions", json.dumps(long))
    assert r.status == 503 and r.json["error"]["code"] == "queue" and r.getheader("retry-after"), r.text
    e = s.complete(["a", "b", "c"], 400, max_tokens=1)["error"]
    assert e["code"] == "queue" and "queue=2" in e["message"], "alone too much, so trying again would not help"
    said = waiting[0].recv(2000)  # nobody's turn comes in time
    assert b" 503 " in said and b"queue_seconds" in said, said
    said = b""
    while b"error" not in said:  # the same in a stream that had begun to tell of its place
        said = waiting[1].recv(2000)
        assert said
    assert b"queue_seconds" in said, said
    for c in running:
        c.close()
    wait_for(lambda: s.status()["running"] == 0)


def test_bodies_and_connections_are_bounded(s):
    message = s.chat(400, logprobs=True, top_logprobs=3)["error"]["message"]
    assert message == "top_logprobs: 3 exceeds the limit logprobs=2 (alternatives for a token (top_logprobs))", message
    for path, body, code in [("/tokenize", {"content": "a" * 2000, "with_pieces": True}, "pieces_bytes"),
                             ("/detokenize", {"tokens": [5] * 3000}, "json_values"),
                             ("/v1/completions", {"prompt": "a", "metadata": {str(i): 0 for i in range(600)}}, "json_values"),
                             ("/v1/completions", {"prompt": "ab " * 200, "echo": True, "n": 4}, "echo_bytes"),
                             ("/v1/completions", {"prompt": "ab " * 10, "echo": True, "logprobs": 2, "n": 4}, "logprob_entries"),
                             ("/v1/completions", {"prompt": "a", "logprobs": 2, "max_tokens": 40, "ignore_end": True}, "logprob_entries"),
                             ("/v1/chat/completions", {"messages": ASK, "logprobs": True, "top_logprobs": 2, "max_tokens": 40,
                                                       "ignore_end": True}, "logprob_entries")]:
        e = s.post(path, body, 413 if code == "pieces_bytes" else 400)["error"]
        assert e["code"] == code, e
    streamed = s.stream("/v1/completions", prompt="a", logprobs=2, max_tokens=40, ignore_end=True)
    assert len(streamed) > 30, "what is sent at once may be more"
    e = s.post("/tokenize", {"content": "x" * 30000}, 413)["error"]
    want = "the size of the body exceeds the limit body_bytes=20000 (bytes in a request body)"
    assert e["message"] == want, e
    assert e["code"] == "body_bytes", e
    half = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000\r\n\r\n" + b" " * 14000
    halves = [s.open(half) for _ in range(3)]
    whole = json.dumps({"content": "x" * 10000})

    def is_full():
        for c in select.select(halves, [], [], 0)[0]:  # a whole one came before it
            halves.remove(c)
            c.close()
            halves.append(s.open(half))
        return s.request("POST", "/tokenize", whole).status == 503
    wait_for(is_full)
    assert s.post("/tokenize", whole, 503)["error"]["code"] == "all_body_bytes"
    for c in halves:
        c.close()
    wait_for(lambda: s.request("POST", "/tokenize", whole).status == 200)
    many = [s.open(b"") for _ in range(12)]
    refused = select.select(many, [], [], 20)[0]
    said = refused[0].recv(1000) if refused else b""
    assert b" 429 " in said and b"connections_per_address" in said, said
    for c in many:
        c.close()
    wait_for(lambda: s.get("/livez").status == 200)


def stop_listening(s):
    """SIGTERM, until it was heard."""
    def refuses():
        try:
            s.open(b"").close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it came while the socket was being closed
            return False
    s.p.send_signal(signal.SIGTERM)
    wait_for(refuses)


def test_a_server_without_requests_says_only_that_it_shuts_down(_):
    s = Server()
    s.end()
    s.reader.join()
    assert s.lines[-1].endswith(" shutting down\n"), s.lines


def test_sigterm_lets_answers_end(s):
    c = s.open(raw_post({"messages": ASK, "max_tokens": 80, "ignore_end": True, "stream": True}))
    assert b"200 OK" in c.recv(100)
    stop_listening(s)
    assert b"data: [DONE]" in c.makefile("rb").read()
    assert s.p.wait(30) == 0


def test_a_second_signal_ends_at_once(s):
    c = s.open(raw_post({"messages": ASK, "max_tokens": 12000, "ignore_end": True, "stream": True}))
    assert b"200 OK" in c.recv(100)
    stop_listening(s)
    s.end()
    s.reader.join()
    want = " shutting down: waiting up to 100 s for 1 request; Ctrl-C again stops now\n"
    assert any(line.endswith(want) for line in s.lines), s.lines


def test_prompts_are_kept_in_a_folder_for_the_next_server(s):
    with tempfile.TemporaryDirectory() as folder:
        prompt, answers = list(range(300, 400)), []
        for n_cached in [0, 96]:
            server = Server("--cache-dir", folder)  # in its sandbox, which must let it write there
            r = server.complete(prompt, max_tokens=8, temperature=0)
            assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == n_cached, r["usage"]
            answers.append(r["choices"][0]["text"])
            server.end()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "r+b") as f:
                f.seek(-1, os.SEEK_END)
                last = f.read(1)[0]
                f.seek(-1, os.SEEK_END)
                f.write(bytes([last ^ 1]))
        server = Server("--cache-dir", folder, "--log-json")
        r = server.complete(prompt, max_tokens=8, temperature=0)
        assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "from a damaged file"
        server.end()
        server.reader.join()
        assert any(folder in json.loads(x)["message"] for x in server.lines if '"message"' in x), server.lines
        answers.append(r["choices"][0]["text"])
        assert answers[0] == answers[1] == answers[2]


def test_kept_prompts_belong_to_a_key_and_not_to_its_line(s):
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        for order, asks, n_cached in [("ab", "a", 0), ("ba", "b", 0), ("ba", "a", 96)]:
            with open(keys, "w") as f:
                f.writelines(f"{k} {k * 8}\n" for k in order)
            server = Server("--cache-dir", os.path.join(folder, "cache"), "--api-key", keys)
            body = {"prompt": list(range(300, 400)), "max_tokens": 1}
            r = server.post("/v1/completions", body, Authorization=f"Bearer {asks * 8}")
            assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == n_cached, (order, asks, r["usage"])
            server.end()


THINKS = 'root ::= "<think>" [a-z ]{60,90} "</think>" [a-z ]{500,600}'


def talk(s, api):
    """Three turns of a client that sends everything back, each when the server has come to rest: the answers,
    and the prompt tokens of each turn that were not in the cache."""
    messages, answers, fresh = [{"role": "user", "content": "Tell me of the mill. " * 10}], [], []
    for turn in range(3):
        body = {"messages": messages, "temperature": 0, "max_tokens": 600, "grammar": THINKS}
        r = s.post(f"/v1/{api}", body)
        usage = r["usage"]
        if api == "messages":
            answers.append(r["content"])
            fresh.append(usage["input_tokens"])
        else:
            answers.append(r["choices"][0]["message"]["content"])
            fresh.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
        messages += [{"role": "assistant", "content": answers[-1]}, {"role": "user", "content": f"{turn} and then?"}]
        wait_for(lambda: not s.status()["models"][0]["warming"])
    return answers, fresh


def test_answers_come_back_as_prompts(s):
    own = ["zoo/guide.gguf", "--template", "test/tmpl/qwen3.jinja", "-c", "2048"]
    for api in ["chat/completions", "messages"]:
        answers = []
        for option, most in [([], 64), (["--no-warm"], 1000)]:
            s = Server(*own, *option)
            said, fresh = talk(s, api)
            answers.append(said)
            assert max(fresh[1:]) <= most and (not option or min(fresh[1:]) > 64), (option, fresh)
            n = sum(v for (name, _), v in read_metrics(s).items() if name == "fletch_warmed_tokens_total")
            assert (n > 100) == (not option), n
            s.end()
        assert answers[0] == answers[1]


def test_a_system_block_about_billing_is_dropped(s):
    def ask(*system, **more):
        return {"messages": ASK, "max_tokens": 1, "system": [{"type": "text", "text": t} for t in system], **more}

    header, text = "x-anthropic-billing-header: cc_version=2.1; cch={};", "You are an agent. " * 20
    usage = [s.post("/v1/messages", ask(header.format(i), text))["usage"] for i in range(2)]
    assert usage[0]["input_tokens"] + usage[0]["cache_read_input_tokens"] == \
        s.post("/v1/messages/count_tokens", ask(text))["input_tokens"]
    assert usage[1]["cache_read_input_tokens"] > 100, usage
    assert s.post("/v1/messages/count_tokens", ask(header))["input_tokens"] == \
        s.post("/v1/messages/count_tokens", {"messages": ASK, "max_tokens": 1})["input_tokens"]
    assert s.post("/v1/messages/count_tokens", ask(text, header))["input_tokens"] > \
        s.post("/v1/messages/count_tokens", ask(text))["input_tokens"], "only the first block"
    wait_for(lambda: any("x-anthropic-billing-header" in x for x in s.lines))
    assert sum("x-anthropic-billing-header" in x for x in s.lines) == 1, s.lines


def test_prefixes_are_saved_by_default(s):
    with tempfile.TemporaryDirectory() as home:
        folder, body = os.path.join(home, "fletch", "prefixes"), {"max_tokens": 1, "temperature": 0}
        for n_cached in [0, 96]:
            s = Server(XDG_CACHE_HOME=home)
            wait_for(lambda: any(f"saved in {folder}" in x and "--cache-disk 0" in x for x in s.lines))
            assert s.complete(list(range(300, 400)), **body)["usage"]["prompt_tokens_details"]["cached_tokens"] == n_cached
            s.end()
        env = {**os.environ, "XDG_CACHE_HOME": home}
        shown = json.loads(fletch("cache", "--json", env=env).text)
        assert shown["folder"] == folder and shown["files"] > 0 and shown["bytes"] > 0 and not shown["deleted"], shown
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        s = Server("--cache-disk", "0", XDG_CACHE_HOME=home)
        assert s.complete(list(range(300, 400)), **body)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        s.end()
        assert "deleted" in fletch("cache", "clear", env=env).text and os.listdir(folder) == []
        assert json.loads(fletch("cache", "--json", env=env).text)["files"] == 0
        assert "clear" in fletch("cache", "sweep", env=env, code=2).err
        os.rmdir(folder)
        open(folder, "w").close()  # which can't be a folder: nobody has asked for it
        s = Server(XDG_CACHE_HOME=home)
        assert any("prefixes are not saved" in x for x in s.lines), s.lines
        s.end()


# ---- several models ----


FOUR = ["llama", "qwen2", "qwen3", "rwkv7"]


def test_models_of_a_folder_come_when_asked_for_and_go(s):
    names = FOUR
    assert {m["id"] for m in s.get("/v1/models").json["data"]} >= set(names)
    assert read_metrics(s)["fletch_device_memory_bytes", 'model="o-d-d"'] == 0, "it is not loaded"
    assert not any(m["ready"] for m in s.get("/v1/models").json["data"]) and s.get("/readyz").status == 200
    assert s.complete("Hi", 400)["error"]["param"] == "model", "which one?"
    answers = {}

    def ask(name):
        answers[name] = s.complete([5, 6, 7], model=name, max_tokens=3, temperature=0)["choices"]
    for round in range(2):  # more than fit at once, at the same time
        threads = [threading.Thread(target=ask, args=(n,)) for n in names]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert set(answers) == set(names)
        first = dict(answers) if round == 0 else first
        assert answers == first
        answers.clear()
    loaded = [m["id"] for m in s.get("/v1/models").json["data"] if m["ready"]]
    assert 1 <= len(loaded) < len(names), loaded
    wait_for(lambda: any("to free memory" in x for x in s.lines))
    for name in ["llama", "qwen2", "llama", "qwen3"]:  # two of them fit
        ask(name)
    ready = {m["id"] for m in s.get("/v1/models").json["data"] if m["ready"]}
    assert ready == {"llama", "qwen3"}, f"the one unused for longest goes: {ready}"
    busy = s.open(raw_post({"model": "rwkv7", "prompt": [5], "max_tokens": 10**6, "ignore_end": True, "stream": True},
                           "/v1/completions"))
    assert b"200 OK" in busy.recv(100)
    threads = [threading.Thread(target=lambda: s.complete([5], 503, model="large")),
               threading.Thread(target=ask, args=("qwen3",))]
    answers.clear()
    for t in threads:  # both wait for room; that one never fits is not held against the other
        t.start()
        time.sleep(1)
    busy.close()
    for t in threads:
        t.join()
    assert answers["qwen3"] == first["qwen3"], answers
    assert "memory" in s.complete([5], 503, model="large")["error"]["message"]
    assert s.get("/v1/models/qwen3").json["ready"], "nobody leaves for one that never fits"
    assert s.complete([5], 500, model="broken")["error"]["param"] == "model"
    assert s.complete([5], 404, model="none")
    s.end()


# ---- keys ----


def test_wrong_keys_are_slowed(s):
    right, wrong = {"Authorization": "Bearer first-key-1"}, {"X_Api_Key": "wrong-key-1"}
    assert s.get("/v1/models", **right).status == 200
    codes = [s.get("/v1/models", **wrong).status for _ in range(14)]
    assert codes[0] == 401 and codes[-1] == 429, codes
    r = s.get("/v1/models", X_Api_Key="third-key-3")
    assert r.status == 429 and r.json["error"]["code"] == "wrong_keys" and r.getheader("retry-after"), "right, perhaps guessed"
    assert s.get("/v1/models", **right).status == 200, "one that was used from here before goes on working"
    assert s.get("/livez", **wrong).status == 200


def test_wrong_keys_of_one_ipv4_client_do_not_slow_others_of_an_ipv6_socket(_):
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/keys", "w") as f:
            f.write("first first-key-1\n")
        p = subprocess.Popen([FLETCH, "serve", "--port", "0", "--threads", "2", "--host", "::", "--api-key", f"{d}/keys"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = []
        while not (found := re.search(r"listening on \S*:(\d+)", (lines or [""])[-1])):
            lines.append(p.stderr.readline())
            if not lines[-1]:
                print(f"skip an IPv6 socket: {lines}")
                return

        def get(source, key):
            c = http.client.HTTPConnection("127.0.0.1", int(found[1]), source_address=(source, 0), timeout=20)
            c.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}", "Host": "localhost"})
            return c.getresponse().status

        codes = [get("127.0.0.1", "wrong-key-1") for _ in range(14)]
        try:
            other = get("127.0.0.2", "first-key-1")
        except OSError as e:  # macOS has no second address unless it is given one
            print(f"skip a second address: {e}")
            other = 200
        p.terminate()
        p.communicate(timeout=30)
        assert (codes[-1], other) == (429, 200), (codes, other)


def test_keys_open_and_rates_hold(s):
    assert s.get("/livez").status == 200 and s.get("/").status in (200, 404)
    for path in ["/v1/models", "/metrics", "/v1/status"]:
        assert s.get(path).status == 401 and s.get(path, Authorization="Bearer wrong-key-1").status == 401, path
        assert s.get(path, Authorization="Bearer first-key-1").status == 200
    assert s.get("/v1/models", X_Api_Key="second-key-2").status == 200
    e = s.post("/v1/messages", {}, 401)
    assert e["type"] == "error" and e["error"]["type"] == "authentication_error", "in Anthropic's form"
    codes = [s.get("/v1/models", Authorization="Bearer second-key-2").status for _ in range(6)]
    assert codes[0] == 200 and codes[-1] == 429, codes
    assert s.get("/v1/models", Authorization="Bearer first-key-1").status == 200


def test_caches_of_keys_are_apart(s):
    body = {"messages": [{"role": "user", "content": " ".join(f"secret{i}" for i in range(60))}], "max_tokens": 1}

    def cached(key):
        a = s.post("/v1/chat/completions", body, Authorization=f"Bearer {key}")
        return a["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached("first-key-1") == 0 and cached("first-key-1") > 0
    assert cached("third-key-3") == 0 and cached("third-key-3") > 0
    s.end()
    s.reader.join()
    told = [json.loads(line) for line in s.lines if line.startswith("{")]
    chats = [j for j in told if j.get("path") == "/v1/chat/completions"]
    assert [j["key"] for j in chats] == ["first", "first", "third", "third"], s.lines
    assert all(j["status"] == 200 and j["prompt_tokens"] > 0 for j in chats), chats
    assert not any("-key-" in line for line in s.lines)


def test_tls_is_spoken_where_there_is_a_certificate(s):
    context = ssl.create_default_context(cafile=os.path.join(s.folder, "cert"))
    c = http.client.HTTPSConnection("localhost", s.port, context=context, timeout=30)
    for _ in range(2):
        c.request("POST", "/v1/completions", json.dumps({"prompt": "27+48=", "max_tokens": 2, "temperature": 0}))
        assert json.load(c.getresponse())["choices"][0]["text"].startswith("75")
    c.close()
    plain = s.open(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        assert b"200 OK" not in plain.makefile("rb").read(), "and nothing else"
    except ConnectionResetError:
        pass
    s.end()


# ---- without a server ----


def ask_for_much(s, head=b""):
    """A connection of little room on which an answer of some 12 MB begins, and how much of it is left."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    c.settimeout(30)
    c.connect(("127.0.0.1", s.port))
    c.sendall(raw_post({"content": "a b c d e f g h " * 170000, "with_pieces": True}, "/tokenize")
              .replace(b"Host:", head + b"Host:"))
    began = b""
    while b"\r\n\r\n" not in began:
        assert (got := c.recv(1000)), began
        began += got
    return c, int(re.search(rb"Content-Length: (\d+)", began)[1]) - len(began.split(b"\r\n\r\n", 1)[1])


def read_slowly(c, n, seconds):
    """All of n bytes, with rests between them."""
    for i in range(10):
        end = n * (9 - i) // 10
        while n > end:
            got = len(c.recv(min(65536, n - end)))
            assert got, f"{n} bytes are missing"
            n -= got
        time.sleep(seconds / 10)


def test_slow_clients_get_whole_answers(s):
    s = Server("--limit", "stall_seconds=1", "--limit", "idle_seconds=1")
    read_slowly(*ask_for_much(s), 4)
    read_slowly(*ask_for_much(s, b"Connection: close\r\n"), 4)
    s.end()


def test_sigterm_leaves_nobody_with_half_an_answer(s):
    s = Server()
    slow = ask_for_much(s)
    c = s.open(raw_post({"messages": ASK, "max_tokens": 80, "ignore_end": True, "stream": True}))
    assert b"200 OK" in c.recv(100)
    stop_listening(s)
    read_slowly(*slow, 2)
    assert b"data: [DONE]" in c.makefile("rb").read(), "and the connection ends"
    assert s.p.wait(15) == 0, "before --drain"


def test_without_descriptors_it_rests(s):
    if not hasattr(resource, "prlimit"):
        print("skip without_descriptors_it_rests: nothing here takes descriptors from a program that runs")
        return
    s = Server()
    resource.prlimit(s.p.pid, resource.RLIMIT_NOFILE, (60, 60))
    many = [s.open(b"") for _ in range(80)]
    time.sleep(1)
    for c in many:
        c.close()
    wait_for(lambda: s.get("/livez").status == 200)
    told = sum("cannot accept connections" in line for line in s.lines)
    assert told and len(s.lines) < 200, f"{told} of {len(s.lines)} lines"
    s.end()


def test_stopped_prompts_count_as_far_as_they_were_read(s):
    s = Server("-c", 16384, "--limit", "seconds=1")
    prompts = [[5 + i] * 16000 for i in range(8)]
    a = s.complete(prompts, max_tokens=100, ignore_end=True)
    n = a["usage"]["prompt_tokens"]
    assert 0 < n < 128000 and a["fletch"]["prompt_total"] == 16000, a["usage"]
    assert read_metrics(s)["fletch_prompt_tokens_total", None] == n
    wait_for(lambda: any(f"; {n} tokens in" in line for line in s.lines))
    s.end()


def needs_proc(name):
    """True where memory can't be read, which is said."""
    if not os.path.exists("/proc/self/status"):
        print(f"skip {name}: there is no /proc here")
        return True


def memory(s, name):
    with open(f"/proc/{s.p.pid}/status") as f:
        return int(re.search(name + r":\s+(\d+)", f.read())[1]) * 1024


def test_long_texts_take_little_and_hold_nobody_up(s):
    if needs_proc("long_texts_take_little_and_hold_nobody_up"):
        return
    s = Server(asan_options="quarantine_size_mb=1")  # freed memory that a sanitizer keeps is not what is measured
    n, slowest = 3000000, 0
    assert s.chat(max_tokens=1)
    before, begun = memory(s, "VmRSS"), time.monotonic()
    clients = [s.open(raw_post({"content": "a" * n}, "/tokenize")) for _ in range(2)]
    took = [0, 0]
    while min(took) < 3 * n:
        began = time.monotonic()
        s.get("/livez")
        slowest = max(slowest, time.monotonic() - began)
        for c in select.select(clients, [], [], 0.01)[0]:
            took[clients.index(c)] += len(c.recv(1 << 20))
    seconds = time.monotonic() - begun
    for c in clients:
        c.close()
    assert s.post("/tokenize", {"content": "a" * n, "with_pieces": True}, 413)["error"]["code"] == "pieces_bytes"
    grown = memory(s, "VmHWM") - before
    assert grown < 20 * n and slowest < max(seconds / 4, 0.25), (grown, slowest, seconds)  # as one JSON tree: 140 n and half the time
    # a client that takes nothing of a long answer holds up others for seconds, not for minutes
    c = s.open(raw_post({"content": "a" * n}, "/tokenize"))
    assert select.select([c], [], [], 60)[0]
    began = time.monotonic()
    assert s.post("/tokenize", {"content": "a" * 300000})["n_tokens"]
    assert time.monotonic() - began < 30
    c.close()
    # answers that nobody takes
    c = s.open(b"")
    c.settimeout(1)
    try:
        c.sendall(raw_post({"content": "a" * 200000}, "/tokenize") * 200)
        assert False, "it goes on reading"
    except TimeoutError:
        pass
    assert memory(s, "VmHWM") - before < 20 * n, "two hundred answers of 600 KB"
    c.close()
    s.end()


def processor_seconds(s):
    """Of all threads, and of the loop's."""
    used = {}
    for task in os.listdir(f"/proc/{s.p.pid}/task"):
        with open(f"/proc/{s.p.pid}/task/{task}/schedstat") as f:
            used[int(task)] = int(f.read().split()[0]) / 1e9
    return sum(used.values()), used[s.p.pid]


def test_large_bodies_are_parsed_and_freed_by_workers(s):
    if needs_proc("large_bodies_are_parsed_and_freed_by_workers"):
        return
    s = Server()
    many = {f"k{i}": i for i in range(250000)}

    def take(value):
        """Seconds of all threads and of the loop for two large bodies that hold it."""
        before = processor_seconds(s)
        s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "metadata": value})
        s.post("/tokenize", {"content": [value]}, 400)
        return [now - then for now, then in zip(processor_seconds(s), before)]
    received = take("x" * len(json.dumps(many)))[1]  # as long, and one value
    everyone, loop = take(many)
    assert loop - received < everyone / 12, (received, loop, everyone)  # nothing; where the loop frees them 13 %
    s.end()


def test_a_request_without_memory_fails_alone(s):
    if needs_proc("a_request_without_memory_fails_alone"):
        return
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [f"value {i}" for i in range(4000)]}}}
    for more in [2, 8, 12, 20, 36]:
        s = Server("--no-warm")  # another worker's memory comes later
        if memory(s, "VmSize") > 1 << 40:
            print("skip a_request_without_memory_fails_alone: a sanitizer ends the program where memory is missing")
            return s.end()
        assert s.chat(max_tokens=1)
        resource.prlimit(s.p.pid, resource.RLIMIT_AS, (memory(s, "VmSize") + (more << 20), resource.RLIM_INFINITY))
        e = s.post("/tokenize", {"content": "a" * 8000000}, 503)["error"]
        assert e["code"] == "memory", e
        r = s.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 3, "response_format": form}))
        assert r.status == 200 or r.json["error"]["code"] == "memory", (more, r.status, r.text)
        assert s.chat(max_tokens=1)
        s.end()


def test_when_memory_is_gone_only_requests_fail(s):
    """Small allocations too: answers with many log probabilities, messages, values."""
    if needs_proc("when_memory_is_gone_only_requests_fail"):
        return
    s = Server()
    if memory(s, "VmSize") > 1 << 40:
        print("skip when_memory_is_gone_only_requests_fail: a sanitizer ends the program where memory is missing")
        return s.end()
    said = [{"type": "message", "role": "user", "content": "x"}] * 900
    bodies = [("/v1/completions", {"prompt": "Once", "max_tokens": 64, "n": 8, "ignore_end": True, "logprobs": 20}),
              ("/v1/responses", {"input": said, "max_output_tokens": 1, "truncation": "auto"}),
              ("/v1/chat/completions", {"messages": ASK, "max_tokens": 64, "logprobs": True, "top_logprobs": 20}),
              ("/v1/completions", {"prompt": "a", "max_tokens": 1, "metadata": {f"k{i}": i for i in range(20000)}})]
    s.stream(max_tokens=8)
    resource.prlimit(s.p.pid, resource.RLIMIT_AS, (memory(s, "VmSize") + (1 << 20), resource.RLIM_INFINITY))
    seen = []

    def ask(path, body):
        r = s.request("POST", path, json.dumps(body))
        seen.append((r.status, (r.json.get("error") or {}).get("code")))
    for _ in range(3):
        threads = [threading.Thread(target=ask, args=b) for b in bodies * 4]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(seen) == 48 and set(seen) <= {(200, None), (503, "memory")} and (503, "memory") in seen, seen
    assert s.chat(max_tokens=1) and "fletch_" in s.get("/metrics").text and s.status()["ready"]
    s.end()
    s = Server("--model-dir", "zoo/tiny")  # not even a thread that loads a model can be started
    resource.prlimit(s.p.pid, resource.RLIMIT_AS, (memory(s, "VmSize") + (1 << 20), resource.RLIM_INFINITY))
    assert "fit in memory" in s.complete([5], 503, model="llama")["error"]["message"]
    resource.prlimit(s.p.pid, resource.RLIMIT_AS, (memory(s, "VmSize") + (24 << 20), resource.RLIM_INFINITY))
    assert "fit in memory" in s.complete([5], 503, model="llama")["error"]["message"]  # nor its cache
    resource.prlimit(s.p.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert s.complete([5], model="llama", max_tokens=1)
    s.end()


def test_embeddings_and_scores_wait_for_room(s):
    s = Server("-c", 512, "--cache-tokens", 256, "--limit", "queue_seconds=600")
    text, alone = "x y z " * 44, {}

    def embed(key):
        alone[key] = s.post("/v1/embeddings", {"input": text})["data"][0]["embedding"]
    embed("first")
    busy = s.open(raw_post({"prompt": [5] * 150, "max_tokens": 100, "ignore_end": True, "stream": True},
                           "/v1/completions"))
    assert b"200 OK" in busy.recv(100)
    threads = [threading.Thread(target=embed, args=("second",)),
               threading.Thread(target=lambda: alone.update(
                   score=s.complete(text, max_tokens=0, logprobs=0, echo=True)["usage"]["prompt_tokens"]))]
    for t in threads:
        t.start()
    time.sleep(1)  # both find no room, unless the machine is very busy
    busy.close()
    for t in threads:
        t.join()
    assert alone.get("second") == alone["first"] and alone.get("score", 0) > 128, alone.keys()
    # the other way round
    reader = threading.Thread(target=lambda: alone.update(many=s.post("/v1/embeddings", {"input": [text] * 2})["data"]))
    reader.start()
    for i in range(3):
        if reader.is_alive():
            assert s.complete([5 + i] * 190, max_tokens=1)["usage"]["prompt_tokens"] == 190
    reader.join()
    assert len(alone["many"]) == 2
    s.post("/v1/embeddings", {"input": text * 2}, 400)  # more than there will ever be
    s.end()


def test_what_pull_stored_is_served_by_the_names_that_list_prints(_):
    with tempfile.TemporaryDirectory() as d:
        root = os.path.join(d, "fletch", "models")
        shutil.copytree("test/golden/models/llama", f"{root}/acme/dir")
        for path in ["acme/tiny/tiny-q8_0.gguf", "acme/tiny/sub/other.gguf", "acme/best-of-3/best-of-3.gguf", "flat.gguf"]:
            os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
            shutil.copy("zoo/tiny/llama.gguf", f"{root}/{path}")
        os.makedirs(f"{root}/acme/set")
        for i in 1, 2, 3:
            shutil.copy("zoo/tiny/llama.gguf", f"{root}/acme/set/s-0000{i}-of-00003.gguf")
        for path in "acme/tiny/bad.gguf", "acme/tiny/later.gguf.part", "acme/tiny/readme.md":
            open(f"{root}/{path}", "w").write("no model")
        os.symlink("/nowhere", f"{root}/gone.gguf")
        env = {**os.environ, "XDG_DATA_HOME": d}
        listed = json.loads(subprocess.run([FLETCH, "list", "--json"], env=env, capture_output=True).stdout)
        listed = [m for m in listed if m["program"] == "fletch" and not m["partial"]]
        own = Server("--model-dir", root)
        ids = [m["id"] for m in own.get("/v1/models").json["data"]]
        assert sorted(ids) == sorted([m["name"] for m in listed] + ["flat", "gone"]) and len(set(ids)) == 8, ids
        assert own.get("/v1/models/acme/tiny:sub/other.gguf").json["id"] == "acme/tiny:sub/other.gguf"
        for name in "acme/tiny:tiny-q8_0.gguf", "acme/best-of-3:best-of-3.gguf", "flat":
            own.complete([5, 6], model=name, max_tokens=1)
        assert "bad.gguf" in own.complete([5], 500, model="acme/tiny:bad.gguf", max_tokens=1)["error"]["message"]
        own.end()
        own = Server("--model-dir", f"{root}/acme")  # the folder of one owner
        ids = [m["id"] for m in own.get("/v1/models").json["data"]]
        assert sorted(ids) == ["best-of-3:best-of-3.gguf", "dir", "set:s-00001-of-00003.gguf", "tiny/sub:other.gguf",
                               "tiny:bad.gguf", "tiny:tiny-q8_0.gguf"], ids
        own.complete([5, 6], model="tiny:tiny-q8_0.gguf", max_tokens=1)
        own.end()


def test_a_model_is_called_what_it_is_told_to_be(s):
    s = Server("--alias", "maker/Modèle-3")
    assert [m["id"] for m in s.get("/v1/models").json["data"]] == ["maker/Modèle-3"]
    assert s.chat(model="maker/Modèle-3", max_tokens=1)["model"] == "maker/Modèle-3"
    for path in ["maker/Mod%C3%A8le-3", "maker%2fMod%c3%a8le-3"]:
        assert s.get(f"/v1/models/{path}").status == 200, path
    assert s.get("/v1/models/maker%2").status == s.get("/v1/models/%00").status == 404
    s.end()
    for wrong in ["", "a b", 'a"b', "a\nb", b"a\xff"]:
        p = subprocess.run([FLETCH, "serve", "--port", "0", "--alias", wrong], capture_output=True, timeout=20)
        assert p.returncode == 2 and b"--alias" in p.stderr, (wrong, p)
    with tempfile.TemporaryDirectory() as d:
        for name in ["a b.gguf", "a-b.gguf"]:
            os.symlink(os.path.abspath("zoo/tiny/llama.gguf"), os.path.join(d, name))
        assert "both be called 'a-b'" in fletch("serve", "--port", 0, "--model-dir", d, code=1).err


def test_it_does_not_start_unsafe_or_wrong(s):
    assert "--api-key" in fletch("serve", "--host", "0.0.0.0", code=2).err
    assert "queue" in fletch("serve", "--limit", "quee=3", code=2).err
    for line in ["name some-key-1 -5", "name some-key-1 0", "name some-key-1 1e300", "name some-key-1 x", "name some-key-1 5 x"]:
        err = fletch("serve", "--port", 0, "--api-key", "env:KEYS", code=1, env={**os.environ, "KEYS": line}).err
        assert "'name'" in err and "REQUESTS-PER-MINUTE" in err, err
    text = fletch("serve", "--port", 0, "--cert", "nothing.pem", "--key", "nothing.pem", code=1).err
    assert "nothing.pem" in text, text
    for name, says in [("no-such-model.gguf", "No such file"), ("no-such-model", "fletch pull"), ("./no/such", "No such file")]:
        err = fletch("serve", "--port", 0, name, code=1).err
        assert name in err and says in err and "listening" not in err, err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = fletch("serve", "--port", port, code=1).err
        assert err == f"fletch: port {port} is already in use; choose another with --port N\n", err


def test_the_manual_has_every_limit_and_metric(s):
    manual = open("docs/server.md").read()
    limits = re.findall(r'X\((\w+), (\d+), (\d+), "([^"]+)"\)', open("app/server/limits.h").read())
    assert len(limits) > 20
    for name, value, status, what in limits:
        assert f"| `{name}` | {value} | {status if int(status) else '–'} | {what} |" in manual, name
    for name in re.findall(r'"(fletch_\w+|process_\w+)"', open("app/server/metrics.c").read()):
        assert f"`{name}`" in manual, name
    for path in re.findall(r'\{"(?:GET|POST)", "([^"*]+)', open("app/server/route.c").read()):
        assert f" {path}" in manual, path
    words = " ".join(fletch("help", "serve").text.split())
    for says in ["0 picks a free port and prints it", "maximum requests per minute per key (default: unlimited)",
                 "The server listens on localhost only; other addresses require API keys", "Request sizes, queues and times are limited."]:
        assert says in words, says


def test_a_broken_template_is_said_once_and_chats_fail(_):
    with open("zoo/guide.gguf", "rb") as f:
        data = f.read()
    at = data.index(b"tokenizer.chat_template")
    at = data.index(b"{%- if", at)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "broken.gguf")
        with open(path, "wb") as f:
            f.write(data[:at] + b"{%- of" + data[at + 6 :])
        s = Server(path)
        said = [line for line in s.lines if "template cannot be used" in line]
        assert len(said) == 1, s.lines
        for endpoint, body in [("/v1/chat/completions", {}), ("/v1/responses", {"input": "a"}), ("/apply-template", {}),
                               ("/v1/messages", {"model": "broken", "max_tokens": 1}),
                               ("/v1/chat/completions", {"chat_template_kwargs": {"enable_thinking": True}})]:
            if "input" not in body:
                body = {"messages": ASK, **body}
            assert "template" in str(s.post(endpoint, body, 400)["error"]["message"]), endpoint
        assert s.complete("2+3=", max_tokens=1)["usage"]["completion_tokens"] == 1
        s.end()
        template = os.path.join(d, "own.jinja")
        with open(template, "w") as f:
            f.write("{{ messages[0].content }}")
        s = Server(path, "--template", template)
        assert s.post("/apply-template", {"messages": ASK})["prompt"] == ASK[0]["content"]
        s.end()


GROUPS = [
    ([], ["chat_answers", "a_stream_says", "a_stream_tells", "a_response", "a_prompt_that", "several_answers", "stop_texts",
          "logit_bias", "answers_follow", "completions_take", "echo_scores", "tokens_go", "what_would", "messages_go_on", "errors_name", "a_template", "models_are", "models_show", "texts_may", "unknown_fields", "wrong_fields",
          "too_long", "limits_are", "paths_and", "the_page", "metrics_can", "prompts_of", "foreign_hosts", "bad_http",
          "bodies_may", "a_system_block", "who_ends", "mutated", "twenty", "one_line"]),
    (["--limit", "header_seconds=1", "--limit", "body_seconds=1", "--limit", "idle_seconds=1", "--limit",
      "queue=2", "--limit", "queue_seconds=3", "--parallel", 2, "-c", 16384], ["slow_and", "the_queue", "sigterm_lets"]),
    (["--drain", 100, "--limit", "body_bytes=20000", "--limit", "connections_per_address=8", "--limit",
      "all_body_bytes=50000", "--limit", "logprobs=2", "--limit", "logprob_entries=100", "--limit", "echo_bytes=2000", "--limit",
      "json_values=1000", "--limit", "pieces_bytes=1000", "-c", 16384], ["bodies_and", "a_client_that", "a_second_signal"]),
    (["-c", 512, "--ngram", "--spec-tokens", 3], ["the_oldest", "guesses_and"]),
    (["--api-key", "KEYS", "--log-json"], ["keys_open", "caches_of"]),
    (["--api-key", "KEYS"], ["wrong_keys_are"]),
    (["--model-dir", "MODELS", "--max-memory", "TWO_OF_FOUR", "--parallel", 2, "-c", 512], ["models_of_a"]),
    (["--cert", "CERT", "--key", "CERTKEY"], ["tls_is"]),
    (None, ["answers_come", "prompts_are_kept", "prefixes_are", "kept_prompts", "slow_clients", "sigterm_leaves", "without_descriptors", "long_texts", "large_bodies", "a_request_without", "when_memory", "stopped_prompts", "embeddings_and", "a_model_is", "what_pull", "a_broken", "wrong_keys_of_one", "it_does_not", "the_manual", "a_server_without"]),
]


def run_test(name, f, server):
    began = time.monotonic()
    try:
        f(server)
        print(f"ok {name} ({time.monotonic() - began:.1f} s)", flush=True)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print("not ok", name, flush=True)
        return 1
    return 0


def make_certificate(files):
    """One for localhost, by the openssl command where there is one."""
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        files["CERTKEY"], "-out", files["CERT"]], capture_output=True, check=True)
    except FileNotFoundError:
        pass


def two_of_four(folder):
    """Memory that holds any two of the four small models and no three: what they take depends on how the
    processor wants its weights packed."""
    s = Server("--model-dir", folder, "--parallel", 2, "-c", 512)
    for name in FOUR:
        s.complete([5], model=name, max_tokens=1)
    taken = sorted(read_metrics(s)["fletch_device_memory_bytes", f'model="{name}"'] for name in FOUR)
    s.end()
    two, three = sum(taken[2:]), sum(taken[:3])
    assert two < three, f"other models are needed for this test: {taken}"
    return int(two + three) // 2


def main():
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    only = sys.argv[2:] or [""]
    failed, ran = 0, set()
    with tempfile.TemporaryDirectory() as d:
        files = {name: os.path.join(d, name.lower()) for name in ["KEYS", "CERT", "CERTKEY", "MODELS"]}
        with open(files["KEYS"], "w") as f:
            f.write("# names and keys\nfirst first-key-1\nsecond second-key-2 3\nthird third-key-3\n")
        make_certificate(files)
        os.mkdir(files["MODELS"])
        for name in FOUR:
            os.symlink(os.path.abspath(f"zoo/tiny/{name}.gguf"), os.path.join(files["MODELS"], f"{name}.gguf"))
        os.symlink(os.path.abspath("zoo/guide.gguf"), os.path.join(files["MODELS"], "large.gguf"))
        for name in ["broken.gguf", 'o"d\\d.gguf']:
            with open(os.path.join(files["MODELS"], name), "w") as f:
                f.write("GGUF, but not really")
        for args, prefixes in GROUPS:
            chosen = [(n, f) for p in prefixes for n, f in tests.items() if n.startswith(p) and any(o in n for o in only)]
            ran |= {n for n, _ in chosen}
            if not chosen:
                continue
            missing = [a for a in args or [] if a in files and not os.path.exists(files[a])]
            if missing:
                print(f"skip {chosen[0][0]}: there is no openssl to make a certificate")
                continue
            if args and "TWO_OF_FOUR" in args:
                files["TWO_OF_FOUR"] = two_of_four(files["MODELS"])
            server = Server(*[files.get(a, a) for a in args]) if args is not None else None
            if server:
                server.folder = d
            for name, f in chosen:
                failed += run_test(name, f, server)
            if server and server.p.poll() is None:
                server.p.kill()
            if server and server.p.wait() not in (0, -9):
                print(f"not ok the server ended with {server.p.returncode}: {''.join(server.lines[-30:])}")
                failed += 1
    assert only != [""] or ran == set(tests), f"in no group: {set(tests) - ran}"
    sys.exit(failed > 0)


main()
