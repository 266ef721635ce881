#!/usr/bin/env python3
"""Calls that must be made: answers that tool_choice asks for are calls of the tools that were
offered, with arguments that obey their schemas, in every style of calls, whole and streamed. The
built-in model was trained on none of the styles but one, so nothing but the grammar makes them."""

import json
import tempfile

from serving import Server
from suite import run_tests

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "unit": {"enum": ["C", "F"]},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "unit"], "additionalProperties": False}}}
NOW = {"type": "function", "function": {"name": "now"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASK = dict(max_tokens=900, tools=[WEATHER, NOW])


def check(calls, most):
    assert 1 <= len(calls) <= most, calls
    for call in calls:
        name, args = call["function"]["name"], json.loads(call["function"]["arguments"])
        if name == "now":
            assert args == {}, args
            continue
        assert name == "get_weather" and set(args) <= {"city", "unit", "days"}, args
        assert len(args["city"]) <= 9 and args["unit"] in "CF" and 1 <= args.get("days", 1) <= 9, args


def streamed(s, **body):
    calls, said = [], ""
    for chunk in s.stream(**body):
        delta = chunk["choices"][0]["delta"]
        said += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({**call, "function": {**call["function"], "arguments": ""}})
            calls[call["index"]]["function"]["arguments"] += call["function"].get("arguments", "")
    return calls, said


def answers(template, **more):
    """Each way of asking once: several calls or one, streamed or whole, the likeliest tokens or drawn ones."""
    s = Server(*(["--template", f"test/tmpl/{template}.jinja"] if template else []))
    calls, said = streamed(s, **ASK, **more, tool_choice="required", temperature=0)
    check(calls, 8)
    assert not said, said
    one = {"tool_choice": "required", "parallel_tool_calls": False} if template else {"tool_choice": NAMED}
    answer = s.chat(**ASK, **more, **one, temperature=1)["choices"][0]
    assert answer["finish_reason"] == "tool_calls" and not answer["message"]["content"], answer
    check(answer["message"]["tool_calls"], 1)
    return s


def test_tagged():
    s = answers(None)
    ask = {"model": "guide", "max_tokens": 200, "messages": [{"role": "user", "content": "Riga?"}], "temperature": 0,
           "tools": [{"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}],
           "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    answer = s.post("/v1/messages", ask)
    assert [b["type"] for b in answer["content"]] == ["tool_use"] and answer["stop_reason"] == "tool_use", answer
    bad = {"name": "f", "parameters": {"properties": {"u": {"unknown": 1}}}}
    e = s.chat(400, tools=[WEATHER, {"type": "function", "function": bad}], tool_choice="required")["error"]
    assert e["param"] == "tools" and "arguments-of-f" in e["message"] and "#/properties/u" in e["message"], e
    s.end()


def test_a_call_that_is_cut_off_is_content():
    s = Server()
    ask = {"messages": [{"role": "user", "content": "Riga?"}], "tools": [WEATHER], "tool_choice": "required",
           "max_tokens": 6, "temperature": 0}
    r = s.request("POST", "/v1/chat/completions", json.dumps(ask))
    answer = r.json
    choice = answer["choices"][0]
    assert r.status == 200 and choice["finish_reason"] == "length", answer
    assert choice["message"]["content"].startswith("<tool_call>") and "tool_calls" not in choice["message"], answer
    assert "cannot be parsed" in r.headers["X-Fletch-Notice"], r.headers
    assert answer["fletch"]["notice"] == r.headers["X-Fletch-Notice"], answer
    r = s.request("POST", "/v1/chat/completions", json.dumps({**ask, "model": "gpt-4o"}))
    assert r.headers.get_all("X-Fletch-Notice") == [
        f"model 'gpt-4o' is not available; guide answers instead; {answer['fletch']['notice']}"], r.headers
    r = s.request("POST", "/v1/chat/completions", json.dumps({**ask, "max_tokens": 200}))
    answer = r.json
    assert answer["choices"][0]["message"]["tool_calls"] and "X-Fletch-Notice" not in r.headers, answer
    s.end()


def test_pairs():
    s = answers("glm47", chat_template_kwargs={"enable_thinking": False})
    # Calls and forms come after thinking, which a budget ends.
    answer = s.chat(**ASK, tool_choice="required", thinking_budget=7)
    message = answer["choices"][0]["message"]
    check(message["tool_calls"], 8)
    assert not message["content"] and message["reasoning_content"], message
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for budget in (0, 5):
        message = s.chat(max_tokens=99, response_format=form, thinking_budget=budget)["choices"][0]["message"]
        assert set(json.loads(message["content"])) == {"n"}, message
        assert bool(message.get("reasoning_content")) == (budget > 0), message
    message = s.chat(max_tokens=99, grammar='root ::= "yes" | "no"', thinking_budget=4)["choices"][0]["message"]
    assert message["content"] in ("yes", "no") and message["reasoning_content"], message
    message = s.chat(max_tokens=30, thinking_budget=3)["choices"][0]["message"]
    assert message["content"] and len(message["reasoning_content"].split()) <= 3, message
    ask = {"model": "guide", "max_tokens": 40, "messages": [{"role": "user", "content": "Riga?"}],
           "thinking": {"type": "enabled", "budget_tokens": 5}}
    kinds = [b["type"] for b in s.post("/v1/messages", ask)["content"]]
    assert kinds == ["thinking", "text"], kinds
    ask = {"input": "Riga?", "max_output_tokens": 99, "thinking_budget": 5,
           "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}
    out = s.post("/v1/responses", ask)["output"]
    assert [o["type"] for o in out] == ["reasoning", "message"], out
    assert set(json.loads(out[1]["content"][0]["text"])) == {"n"}, out
    assert "thinking_budget" in s.chat(400, thinking_budget=-1)["error"]["message"]
    s.end()


def test_strict_tools_are_called_by_their_schemas_or_not_at_all():
    s = Server()
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    for seed in range(6):  # the model was not trained to call: most of these answers are texts
        answer = s.chat(tools=[strict, NOW], temperature=1.5, seed=seed, max_tokens=60,
                        parallel_tool_calls=False)["choices"][0]
        check(answer["message"].get("tool_calls") or [{"function": {"name": "now", "arguments": "{}"}}], 1)
        assert "<tool_call>" not in (answer["message"]["content"] or "") or answer["finish_reason"] == "length", answer
    # What begins the call is the model's to write: here it can write nothing else.
    bias = {str(t): 100 for t in s.post("/tokenize", {"content": "<tool_call>"})["tokens"]}
    answer = s.chat(tools=[strict], temperature=0, max_tokens=300, logit_bias=bias)["choices"][0]
    check(answer["message"]["tool_calls"], 8)
    bad = {"name": "f", "strict": True, "parameters": {"properties": {"u": {"unknown": 1}}}}
    e = s.chat(400, tools=[{"type": "function", "function": bad}])["error"]
    assert e["param"] == "tools" and "#/properties/u" in e["message"], e
    s.end()
    s = Server("--template", "test/tmpl/chatml.jinja")
    wrong = s.chat(400, thinking_budget=9)["error"]["message"]
    assert "this model's chat template does not support thinking" in wrong
    s.end()


def test_templates_find_thoughts_by_each_name():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{% for m in messages %}{{ m.thinking }}|{{ m.reasoning }}|{{ m.reasoning_content }};{% endfor %}")
        f.flush()
        s = Server("--template", f.name)
        for name in "thinking", "reasoning", "reasoning_content":
            messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", name: "hm"}]
            assert s.post("/apply-template", {"messages": messages})["prompt"] == "||;hm|hm|hm;", name
        s.end()


def test_bare():
    answers("llama31").end()


def test_listed():
    answers("nemo").end()


run_tests(globals())
