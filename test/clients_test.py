#!/usr/bin/env python3
"""What clients of other servers send: names of models, fields, pages of other origins, and what the
server's own options say for all requests: test/clients_test.py BUILD. Python's standard library
only."""

import json

from suite import fletch, run_tests
from serving import ASK, Server

CHAT = "/v1/chat/completions"
STORY = {"messages": [{"role": "user", "content": "Tell me a story."}]}
BODIES = {
    CHAT: {"messages": ASK, "max_tokens": 2},
    "/v1/completions": {"prompt": "Once", "max_tokens": 2},
    "/v1/responses": {"input": "Hello!", "max_output_tokens": 2},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 2},
    "/v1/embeddings": {"input": "Hello!"},
}
TEXT = "/v1/completions"


def serve(*args):
    return Server("-c", 2048, *args)


def send(s, path, body, status=200):
    r = s.request("POST", path, json.dumps(body))
    assert r.status == status, (path, body, r.status, r.text[:300])
    return r


def said(s, status=200, **fields):
    """The text of a story with these fields, or what is wrong."""
    r = send(s, CHAT, {**STORY, "seed": 1, **fields}, status).json
    return r["error"]["message"] if status != 200 else r["choices"][0]["message"]["content"]


def notice(r):
    return r.getheader("X-Fletch-Notice")


def test_a_lone_model_answers_to_every_name_and_says_so():
    s = serve()
    for path, body in BODIES.items():
        assert notice(send(s, path, {**body, "model": "guide"})) is None, path
        r = send(s, path, {**body, "model": "gpt-4o"})
        assert notice(r) == "model 'gpt-4o' is not available; guide answers instead", (path, notice(r))
        assert r.json.get("model") == "guide", (path, r.text)
        if path != "/v1/embeddings":
            r = send(s, path, {**body, "model": "gpt-4o", "stream": True})
            assert "guide answers" in notice(r) and '"model":"gpt-4o"' not in r.text.replace(" ", ""), (path, r.text)
    assert "guide answers" in notice(send(s, CHAT, {"model": "x", "messages": 1}, 400)), "errors say so too"
    for name in "a\r\nX-Evil: 1\r\n\r\nbody", "Modèle", "x" * 5000:
        r = send(s, CHAT, {**BODIES[CHAT], "model": name})
        assert r.getheader("X-Evil") is None and 10 < len(notice(r)) <= 512, (name, notice(r))
        assert all(" " <= c <= "~" for c in notice(r)), notice(r)
    assert s.get("/v1/models/gpt-4o").status == 404
    s.end()


def test_names_are_refused_where_they_must_be_right():
    wrong = "model 'gpt-4o' is not available on this server; GET /v1/models lists those that are"
    for args in ["--strict-model"], ["--model-dir", "zoo/tiny"]:
        s = serve(*args)
        e = send(s, CHAT, {**BODIES[CHAT], "model": "gpt-4o"}, 404).json["error"]
        assert e["code"] == "model_not_found" and e["message"] == wrong, e
        s.end()


def test_other_names_of_fields_mean_the_same():
    s = serve()
    for name, alias, value in [("max_tokens", "n_predict", 7), ("repeat_penalty", "repetition_penalty", 1.7),
                               ("penalty_window", "repeat_last_n", 1), ("ignore_end", "ignore_eos", True)]:
        more = {"max_tokens": 40} if name != "max_tokens" else {}
        if name == "penalty_window":
            more["repeat_penalty"] = 5
        if name == "ignore_end":
            more = {"max_tokens": 300}
        want = said(s, **more, **{name: value})
        assert said(s, **more, **{alias: value}) == want != said(s, **more), (alias, want)
        e = said(s, 400, **more, **{name: value, alias: value})
        assert e == f"{alias} is another name for {name}; give only one of them", e
        said(s, **more, **{name: None, alias: value})
    off = send(s, "/apply-template", {**STORY, "chat_template_kwargs": {"enable_thinking": False}}).json
    on = send(s, "/apply-template", {**STORY, "enable_thinking": True}).json
    assert send(s, "/apply-template", {**STORY, "enable_thinking": False}).json == off != on
    e = send(s, CHAT, {**STORY, "enable_thinking": 1}, 400).json["error"]
    assert e["param"] == "enable_thinking", e
    s.end()


def test_thinking_that_a_template_cannot_switch_is_refused_by_its_field(folder):
    with open(f"{folder}/plain.jinja", "w") as f:
        f.write("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    s = serve("--template", f"{folder}/plain.jinja")
    e = send(s, CHAT, {**STORY, "enable_thinking": True}, 400).json["error"]
    assert e["param"] == "enable_thinking" and "no variable 'enable_thinking'" in e["message"], e
    s.end()


# A field, values that change nothing, and one that would.
OFF = [
    ("add_generation_prompt", [True], False),
    ("bad_words", [[]], ["bad"]),
    ("dry_multiplier", [0, 0.0], 0.8),
    ("dynatemp_range", [0], 0.5),
    ("include_stop_str_in_output", [False], True),
    ("length_penalty", [1, 1.0], 1.2),
    ("min_tokens", [0], 4),
    ("mirostat", [0], 2),
    ("n_probs", [0], 3),
    ("return_tokens", [False], True),
    ("skip_special_tokens", [True], False),
    ("stop_token_ids", [[]], [5]),
    ("suffix", [""], "end"),
    ("top_n_sigma", [-1, 0], 2),
    ("typical_p", [1], 0.9),
    ("use_beam_search", [False], True),
    ("xtc_probability", [0], 0.5),
]
HARMLESS = {"cache_prompt": False, "keep_alive": "5m", "cache_control": {"type": "ephemeral"}, "user": "me", "store": True,
            "metadata": {"a": 1}, "service_tier": "auto", "dry_base": 1.75, "mirostat_tau": 5, "id_slot": -1,
            "xtc_threshold": 0.1, "n_keep": 0}


def test_what_changes_nothing_is_accepted_and_what_would_is_refused_by_name():
    s = serve()
    want = said(s, max_tokens=8)
    assert said(s, max_tokens=8, **HARMLESS) == want
    assert said(s, max_tokens=8, **{name: values[0] for name, values, _ in OFF}) == want
    for name, values, other in OFF:
        for value in [*values, None]:
            send(s, CHAT, {**STORY, "max_tokens": 1, name: value})
        for path in CHAT, TEXT:
            if path == TEXT and name == "add_generation_prompt":
                continue
            e = send(s, path, {**BODIES[path], name: other}, 400).json["error"]
            assert e["param"] == name and name in e["message"], e
        e = send(s, CHAT, {**STORY, name: {"x": 1}}, 400).json["error"]
        assert e["param"] == name, e
    last = {"messages": [*STORY["messages"], {"role": "assistant", "content": "Once upon"}], "max_tokens": 2,
            "continue_final_message": True}
    assert (send(s, CHAT, {**last, "add_generation_prompt": False, "seed": 1}).json["choices"]
            == send(s, CHAT, {**last, "seed": 1}).json["choices"])
    send(s, CHAT, {**last, "add_generation_prompt": True}, 400)
    for path, body in BODIES.items():
        e = send(s, path, {**body, "keep_alive": 0, "cache_prompt": True, "unheard_of": 1}, 400).json["error"]
        assert "unheard_of" in e["message"] and "another" not in e["message"], e
    s.end()


def test_a_lenient_server_ignores_what_it_does_not_know_and_names_it():
    s = serve("--lenient")
    assert notice(send(s, CHAT, {**STORY, "max_tokens": 1})) is None
    for path, body in BODIES.items():
        r = send(s, path, {**body, "unheard_of": 1, "more": [2]})
        assert notice(r) == "field 'unheard_of' was ignored; field 'more' was ignored", (path, notice(r))
    r = send(s, CHAT, {**STORY, "seed": 1, "max_tokens": 8, "mirostat": 2, "stream_options": {"a": 1, "include_usage": True},
                       "response_format": {"type": "text", "b": 1}})
    assert notice(r) == "field 'mirostat' was ignored; field 'a' was ignored; field 'b' was ignored", notice(r)
    assert r.json["choices"][0]["message"]["content"] == said(s, max_tokens=8)
    r = send(s, "/v1/responses", {"input": "Hello!", "max_tokens": 1, "max_output_tokens": 2})
    assert notice(r) == "field 'max_tokens' was ignored" and r.json["usage"]["output_tokens"] == 2, r.text
    many = {f"field_number_{i}": 1 for i in range(100)}
    assert notice(send(s, CHAT, {**STORY, "max_tokens": 1, **many})).endswith(" ...")
    assert said(s, 400, max_tokens="many"), "wrong values of known fields are still wrong"
    s.end()


def test_no_limit_is_minus_one():
    s = serve()
    assert said(s, max_tokens=-1) == said(s, n_predict=-1) == said(s)
    long = send(s, TEXT, {"prompt": "Once upon a time", "seed": 1, "n_predict": -1}).json
    assert long["usage"]["completion_tokens"] > 16, long
    s.end()


def test_what_the_command_line_says_holds_for_requests_that_say_nothing():
    plain, s = serve(), serve("--temp", 1.2, "--top-k", 30, "--seed", 5, "--n-predict", 12)
    own = {"temperature": 1.2, "top_k": 30, "seed": 5, "max_tokens": 12}
    for path in CHAT, TEXT:
        body = STORY if path == CHAT else {"prompt": "Once upon a time"}
        want = send(plain, path, {**body, **own}).json["choices"]
        assert send(s, path, body).json["choices"] == want, path
        for name, value in own.items():
            other = {**own, name: value + 3 if isinstance(value, int) else 0}
            assert (send(s, path, {**body, name: other[name]}).json["choices"]
                    == send(plain, path, {**body, **other}).json["choices"]), (path, name)
    id = send(s, "/tokenize", {"content": " cat"}).json["tokens"][-1]
    sampling = s.status()["models"][0]["sampling"]
    assert abs(sampling["temperature"] - 1.2) < 1e-6 and sampling["top_k"] == 30, sampling
    s.end()
    plain.end()
    s = serve("-n", -1)  # no limit, also where 16 tokens are the default
    assert send(s, TEXT, {"prompt": "Once upon a time", "seed": 1}).json["usage"]["completion_tokens"] > 16
    s.end()
    s = serve("--logit-bias", f"{id}=1000")
    text = send(s, TEXT, {"prompt": "The", "max_tokens": 3}).json["choices"][0]["text"]
    assert text == " cat" * 3, text
    s.end()


PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-os",
             "Access-Control-Request-Private-Network": "true"}


def test_pages_of_allowed_origins_may_use_the_server():
    app = "https://app.example"
    s = serve("--allow-origin", app, "--allow-origin", "chrome-extension://abc-def")
    body = json.dumps(BODIES[CHAT])
    for origin in app, "chrome-extension://abc-def", "HTTPS://App.example":
        r = s.request("OPTIONS", CHAT, None, {"Origin": origin, **PREFLIGHT})
        assert r.status == 204 and r.getheader("Access-Control-Allow-Origin").lower() == origin.lower(), r.headers
        assert r.getheader("Access-Control-Allow-Headers") == PREFLIGHT["Access-Control-Request-Headers"], r.headers
        assert "POST" in r.getheader("Access-Control-Allow-Methods"), r.headers
        assert r.getheader("Access-Control-Allow-Private-Network") == "true" and r.getheader("Vary") == "Origin", r.headers
        for path, more in (CHAT, {}), (CHAT, {"stream": True}), (CHAT, {"wrong": 1}):
            r = s.request("POST", path, json.dumps({**BODIES[CHAT], **more}), {"Origin": origin})
            assert r.status == (400 if "wrong" in more else 200), r.text
            assert r.getheader("Access-Control-Allow-Origin").lower() == origin.lower(), r.headers
            assert "X-Fletch-Notice" in r.getheader("Access-Control-Expose-Headers"), r.headers
    r = s.request("OPTIONS", CHAT, None, {"Origin": app, **PREFLIGHT, "Access-Control-Request-Headers": "a: b"})
    assert r.status == 204 and r.getheader("Access-Control-Allow-Headers") is None, r.headers
    for origin in "https://app.example.evil", "https://app.example:1", "http://app.example", "null", "":
        for method in "OPTIONS", "POST":
            r = s.request(method, CHAT, body, {"Origin": origin, **PREFLIGHT})
            assert r.status == 403 and r.getheader("Access-Control-Allow-Origin") is None, (origin, r.headers)
    assert s.request("OPTIONS", CHAT).status == 405
    r = s.request("POST", CHAT, body, {"Origin": f"http://127.0.0.1:{s.port}"})
    assert r.status == 200 and r.getheader("Access-Control-Allow-Origin") is None, "its own page needs nothing"
    s.end()


def test_every_origin_may_be_allowed_but_none_is_by_itself(folder):
    s = serve()
    assert s.request("OPTIONS", CHAT, None, {"Origin": "https://a.example", **PREFLIGHT}).status == 403
    s.end()
    with open(f"{folder}/keys", "w") as f:
        f.write("me my-secret-key\n")
    s = serve("--allow-origin", "*", "--api-key", f"{folder}/keys")
    ours = {"Origin": "https://a.example"}
    r = s.request("OPTIONS", CHAT, None, {**ours, **PREFLIGHT})
    assert r.status == 204 and r.getheader("Access-Control-Allow-Origin") == "*", r.headers
    r = s.request("POST", CHAT, json.dumps(BODIES[CHAT]), ours)
    assert r.status == 401 and r.getheader("Access-Control-Allow-Origin") == "*", "a page may read why"
    r = s.request("POST", CHAT, json.dumps(BODIES[CHAT]), {**ours, "Authorization": "Bearer my-secret-key"})
    assert r.status == 200, r.text
    assert s.get("/livez", Host="evil.example", Origin="https://a.example").status == 421
    s.end()
    for wrong in "app.example", "https://", "https://a.example/path", "https://a b", "":
        assert "--allow-origin" in fletch("serve", "--port", 0, "--allow-origin", wrong, code=2).err, wrong


run_tests(globals())
