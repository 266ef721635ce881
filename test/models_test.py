#!/usr/bin/env python3
"""Models on this machine: those of other programs' caches, names, list, and what fletch serve makes
of them; and what inspect, plan and eval say of a model: test/models_test.py BUILD. Python's standard
library only."""

import ctypes.util
import hashlib
import json
import os
import re
import shutil
import urllib.error
import urllib.request

import suite
from suite import run_tests
from serving import Server

TINY = "zoo/tiny/llama.gguf"
OTHER = "zoo/tiny/qwen3.gguf"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def environment(d):
    """Nothing of the machine's own caches."""
    other = ("HF_", "HUGGINGFACE", "XDG_", "LLAMA")
    env = {k: v for k, v in os.environ.items() if not k.startswith(other)}
    return dict(env, HOME=d, OLLAMA_MODELS=d + "/.ollama/models")


def fletch(d, *args, code=0, **more):
    return suite.fletch(*args, code=code, env=dict(environment(d), **more))


def put(*parts, data=b"", source=None):
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if source:
        shutil.copy(source, path)
    else:
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
    return path


def hugging_face(root, repo, files, ref="main", commit=COMMIT):
    """A repository as Hugging Face's libraries keep it: links from a snapshot to blobs."""
    folder = os.path.join(root, "models--" + repo.replace("/", "--"))
    put(folder, "refs", ref, data=commit)
    for name, source in files.items():
        blob = put(folder, "blobs", hashlib.sha256(name.encode()).hexdigest(), source=source)
        link = os.path.join(folder, "snapshots", commit, name)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(os.path.relpath(blob, os.path.dirname(link)), link)
    return folder


def ollama(root, path, source=None, layers=None, text=None):
    digest = hashlib.sha256(path.encode()).hexdigest()
    if source:
        put(root, "blobs", "sha256-" + digest, source=source)
    if layers is None:
        layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
                  {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": 1}]
    put(root, "manifests", path, data=text or json.dumps({"schemaVersion": 2, "layers": layers}))
    return os.path.join(root, "blobs", "sha256-" + digest)


def names(d, **more):
    return {m["name"]: m for m in fletch(d, "list", "--json", **more).json}


def runs(d, name, **more):
    return fletch(d, "tokenize", name, "a b", "--ids", **more).out


def test_models_of_hugging_faces_cache_are_found(d):
    root = d + "/.cache/huggingface/hub"
    source = "test/golden/models/llama"
    directory = {f: os.path.join(source, f) for f in os.listdir(source)}
    hugging_face(root, "own/mod-GGUF", {"mod-Q8_0.gguf": TINY, "sub/mod-Q4_K_M.gguf": OTHER})
    hugging_face(root, "own/dir", directory)
    hugging_face(root, "own/old", {"m.gguf": TINY}, ref="v1")
    found = names(d)
    assert set(found) == {"own/mod-GGUF:mod-Q8_0.gguf", "own/mod-GGUF:sub/mod-Q4_K_M.gguf", "own/dir",
                          "own/old@v1:m.gguf"}, found
    assert found["own/mod-GGUF:mod-Q8_0.gguf"]["type"] == "Q8_0"
    assert all(m["program"] == "huggingface" for m in found.values())
    assert found["own/dir"]["bytes"] > os.path.getsize(source + "/model.safetensors")
    assert runs(d, "own/mod-GGUF:q8_0") == runs(d, TINY) and runs(d, "own/old@v1") == runs(d, TINY)
    assert "llama" in fletch(d, "inspect", "own/dir").text
    assert "several" in fletch(d, "inspect", "own/mod-GGUF", code=2).err
    text = fletch(d, "list").text
    assert "read-only" in text and "huggingface: " + root in text, text
    os.rename(root, d + "/moved")
    for more in ({"HF_HUB_CACHE": d + "/moved"}, {"HUGGINGFACE_HUB_CACHE": d + "/moved"}):
        assert len(names(d, **more)) == 4, more
    assert names(d) == {}
    os.makedirs(d + "/hf")
    os.rename(d + "/moved", d + "/hf/hub")
    assert len(names(d, HF_HOME=d + "/hf")) == 4


def test_what_is_incomplete_or_strange_in_hugging_faces_cache_is_left_out(d):
    root = d + "/.cache/huggingface/hub"
    folder = hugging_face(root, "own/mod", {"a.gguf": TINY})
    os.unlink(os.path.join(folder, "blobs", os.listdir(folder + "/blobs")[0]))
    hugging_face(root, "own/config-only", {"config.json": "test/golden/models/llama/config.json"})
    for repo, commit in [("own/up", "../../../x"), ("own/short", "abc"), ("own/none", "")]:
        hugging_face(root, repo, {}, commit=COMMIT)
        put(root, "models--" + repo.replace("/", "--"), "refs/main", data=commit)
    put(root, "models----/refs/main", data=COMMIT)
    put(root, "models--own/refs/main", data=COMMIT)
    put(root, "models--" + "o" * 200 + "--m/refs/main", data=COMMIT)
    put(root, "models--own--m\n/refs/main", data=COMMIT)
    put(root, "datasets--own--d/refs/main", data=COMMIT)
    os.symlink("/", os.path.join(folder, "snapshots", COMMIT, "root"))
    assert names(d) == {}


def test_models_of_llama_cpps_folder_are_found(d):
    root = d + "/.cache/llama.cpp"
    put(root, "own_mod_a-Q8_0.gguf", source=TINY)
    put(root, "own_mod_a-Q8_0.gguf.etag", data="x")
    put(root, "manifest=own=mod=latest.json", data="{}")
    put(root, "some_one_else_b.gguf", source=TINY)
    put(root, "manifest=" + "x" * 200 + "=", data="{}")
    found = names(d)
    assert set(found) == {"own/mod:a-Q8_0.gguf", root + "/some_one_else_b.gguf"}, found
    for name in ("own/mod", "own/mod:q8", "some/one_else", "some/one_else:b"):
        assert runs(d, name) == runs(d, TINY), name
    assert "fletch pull some/on" in fletch(d, "inspect", "some/on", code=1).err
    os.rename(root, d + "/elsewhere")
    assert len(names(d, LLAMA_CACHE=d + "/elsewhere")) == 2


def test_models_of_ollama_are_found(d):
    root = d + "/.ollama/models"
    blob = ollama(root, "registry.ollama.ai/library/llama3.2/1b-q4_K_M", TINY)
    ollama(root, "registry.ollama.ai/library/llama3.2/latest", TINY)
    ollama(root, "registry.ollama.ai/own/mod/v1", TINY)
    ollama(root, "hf.co/own/gguf/Q8_0", TINY)
    found = names(d)
    assert set(found) == {"llama3.2:1b-q4_K_M", "llama3.2:latest", "own/mod:v1", "hf.co/own/gguf:Q8_0"}, found
    assert found["llama3.2:1b-q4_K_M"]["path"] == blob and found["llama3.2:1b-q4_K_M"]["type"] == "Q4_K_M"
    for name in ("llama3.2:1b-q4_k_m", "llama3.2", "llama3.2:latest", "own/mod:v1", "hf.co/own/gguf:Q8_0"):
        assert runs(d, name) == runs(d, TINY), name
    for name in ("llama3", "llama3.2:1b", "llama3.2:", ":latest"):
        assert "cannot open" in fletch(d, "inspect", name, code=1).err, name
    os.rename(root, d + "/o")
    assert len(names(d, OLLAMA_MODELS=d + "/o")) == 4


def test_hostile_manifests_are_left_out(d):
    root, at = d + "/.ollama/models", "registry.ollama.ai/library/"
    model = "application/vnd.ollama.image.model"
    for i, digest in enumerate(["sha256:../../../../etc/passwd", "sha256:" + "0" * 63, "md5:" + "0" * 64, "",
                                "sha256:" + "A" * 64, "sha256:" + "0" * 64, 7, None]):
        ollama(root, f"{at}a/{i}", layers=[{"mediaType": model, "digest": digest}])
    for i, text in enumerate(["{", "[]", '{"layers": 1}', '{"layers": [1, {}, []]}', "[" * 5000, " " * 100_000,
                              '{"layers": {"mediaType": "%s"}}' % model]):
        ollama(root, f"{at}b/{i}", text=text)
    ollama(root, at + "c/x y", TINY)
    ollama(root, at + "deep/er/tag", TINY)
    assert names(d) == {}


def test_own_models_come_first_and_partial_ones_are_listed(d):
    own = d + "/.local/share/fletch/models"
    put(own, "own/mod/m-Q8_0.gguf", source=OTHER)
    put(own, "own/half/x-Q4_K_M.gguf.part", data=b"12345")
    hugging_face(d + "/.cache/huggingface/hub", "own/mod", {"m-Q8_0.gguf": TINY})
    assert "qwen3" in fletch(d, "inspect", "own/mod").text
    hugging_face(d + "/.cache/huggingface/hub", "own/theirs", {"m.gguf": TINY})
    assert "belongs to huggingface" in fletch(d, "rm", "own/theirs", code=1).err
    rows = fletch(d, "list", "--json").json
    half = [m for m in rows if m["partial"]]
    assert [m["name"] for m in half] == ["own/half:x-Q4_K_M.gguf"] and half[0]["bytes"] == 5
    assert len(rows) == 4 and rows[1]["program"] == "fletch" and len(rows[1]["modified"]) == 10
    text = fletch(d, "list").text
    assert "incomplete" in text and " Q8_0 " in text and text.count("own/mod:m-Q8_0.gguf") == 2, text
    fletch(d, "inspect", "own/half", code=1)


def ids(s):
    return {m["id"] for m in s.get("/v1/models").json["data"]}


def answers(s, model=None, status=200):
    body = {"prompt": [1, 2], "max_tokens": 1}
    if model is not None:
        body["model"] = model
    return s.post("/v1/completions", body, status=status).get("model")


def test_serve_without_a_model_serves_what_was_pulled(d):
    put(d, "fletch/models/own/mod/m.gguf", source=TINY)
    put(d, "fletch/models/own/half/x.gguf.part", data=b"12345")
    s = Server(waits=False, XDG_DATA_HOME=d)
    try:
        assert ids(s) == {"guide", "own/mod:m.gguf"}
        assert answers(s, "own/mod:m.gguf") == "own/mod:m.gguf"
        assert answers(s) == "guide"
        answers(s, "unknown", status=404)
    finally:
        s.end()


def test_model_dir_descends_and_aliases_name_models(d):
    put(d, "a.gguf", source=TINY)
    put(d, "one/b.gguf", source=TINY)
    put(d, "one/two/three/c.gguf", source=TINY)
    shutil.copytree("test/golden/models/llama", d + "/one/two/three/dir")
    os.symlink(os.path.abspath(TINY), d + "/one/link.gguf")
    s = Server("--model-dir", d, "--alias", "gpt-4o=a", "--alias", "*=one:b.gguf")
    try:
        assert ids(s) == {"a", "one:b.gguf", "one:link.gguf", "one/two:three/c.gguf", "one/two:three/dir"}, ids(s)
        for name in ids(s):
            assert answers(s, name) == name
        assert answers(s, "gpt-4o") == "a" and answers(s, "whatever") == "one:b.gguf" == answers(s)
    finally:
        s.end()
    for wrong in ("x=none", "gpt", "=a", "a b=a"):
        assert "--alias" in fletch(d, "serve", "--model-dir", d, "--alias", wrong, code=2).err, wrong


def test_ps_lists_what_a_server_has_loaded(d):
    if not ctypes.util.find_library("curl"):
        raise suite.Skip("libcurl is not installed")
    keys = put(d, "keys", data=b"# ours\nalice secret-of-alice 60\n")
    s = Server(TINY, "--alias", "tiny", "--api-key", keys)
    try:
        ask = ["ps", "--endpoint", f"http://127.0.0.1:{s.port}/"]
        r = fletch(d, *ask, "--api-key", keys)
        head, row = [line.split() for line in r.text.splitlines()]
        assert head[0] == "model" and row[:2] == ["tiny", "Q8_0"] and "cpu" in row, r.text
        j = json.loads(fletch(d, *ask, "--api-key", keys, "--json").out)
        assert j["models"][0]["model"] == "tiny" and j["running"] == 0, j
        assert "requires an API key (--api-key)" in fletch(d, *ask, code=1).err
        for path in "/v1/status", "/livez", "/nowhere":
            s.get(path, authorization="Bearer secret-of-alice")
    finally:
        s.end()
    log = "".join(s.lines)
    assert "/nowhere" in log and " 401 " in log and "/livez" not in log, log  # polling fills no log
    s = Server()
    try:
        answers(s, "guide")
        rows = [line.split() for line in fletch(d, "ps", "--endpoint", f"http://127.0.0.1:{s.port}").text.splitlines()]
        assert len(rows) == 2 and rows[1][0] == "guide" and re.fullmatch(r"[A-Z]\w+", rows[1][1]), rows
    finally:
        s.end()
    assert "fletch serve" in fletch(d, *ask, code=1).err


def test_a_lone_model_has_a_name_and_further_ones(d):
    s = Server(TINY, "--alias", "first", "--alias", "second", "--alias", "*")
    try:
        assert ids(s) == {"first"}
        assert {answers(s, name) for name in ("first", "second", "gpt-4o")} == {"first"}
    finally:
        s.end()


def test_a_folder_of_gguf_files_names_them(d):
    for name in "abcde":
        put(d, name + ".GGUF", data=b"x")
    r = fletch(d, "inspect", d, code=4)
    assert "'a.GGUF', 'b.GGUF', 'c.GGUF' and 2 more" in r.err and len(r.err.splitlines()) == 1, r.err
    put(d, "none/readme", data=b"x")
    assert "a Hugging Face directory" in fletch(d, "inspect", d + "/none", code=4).err


def test_inspect_begins_with_a_summary(d):
    j = fletch(d, "inspect", "zoo/guide.gguf", "--json").json
    assert j["n_ctx"] == 4096 and j["type"] == "Q8_0" and j["template"] == {"tools": True, "thinking": True}
    epsilon = [kv["value"] for kv in j["metadata"] if "epsilon" in kv["key"]]
    assert epsilon == [1e-05] and "9.99" not in str(epsilon)
    lines = fletch(d, "inspect", "zoo/guide.gguf").text.splitlines()
    head = [line.split()[0] for line in lines[:9]]
    assert head == "file format family parameters type context chat tools thinking".split(), lines[:9]
    assert any("epsilon" in line and line.endswith(("1e-05", "1e-5")) for line in lines)
    bare = fletch(d, "inspect", "test/golden/models/llama-gguf/model.gguf", "--json").json
    assert bare["template"] is None and bare["n_ctx"] > 0
    data = open(TINY, "rb").read()  # an id that a converter wrote as absent
    key = b"tokenizer.ggml.eos_token_id"
    at = data.index(key) + len(key) + 4
    path = put(d, "m.gguf", data=data[:at] + b"\xff" * 4 + data[at + 4:])
    line = [x for x in fletch(d, "inspect", path).text.splitlines() if key.decode() in x]
    assert line and line[0].endswith(" none"), line


def test_plan_knows_machines_types_and_shapes(d):
    def plan(*args, code=0):
        return fletch(d, "plan", *args, code=code)

    j = plan("Llama-3.2-1B", "--device", "M4Pro", "--json").json
    assert j["machine"]["name"] == "m4-pro" and j["machine"]["bandwidth_gbs"] == 273 and j["type"] == "Q8_0"
    assert j["type_assumed"] and "(assumed)" in plan("Llama-3.2-1B", "--device", "RTX 3060").text
    assert not plan("Llama-3.2-1B:f16", "--device", "rtx-5090", "--json").json["type_assumed"]
    chips = [f"m{n}{kind}" for n in range(1, 6) for kind in ("", "-pro", "-max")] + ["m1-ultra", "m2-ultra", "m3-ultra"]
    speed = {c: plan("Llama-3.2-1B", "--device", c, "--json").json["predicted"][0]["tokens_per_s"] for c in chips}
    assert all(speed[f"m{n}"] < speed[f"m{n}-pro"] < speed[f"m{n}-max"] for n in range(1, 6)), speed
    for sizes in [("m1", 16, 2 / 3), ("m1-pro", 32, 2 / 3), ("m3-pro", 36, 3 / 4), ("m3-ultra", 512, 3 / 4)]:
        got = plan("Llama-3.2-1B", "--device", sizes[0], "--json").json["available"] / 2**30
        assert abs(got - sizes[1] * sizes[2]) < 0.01, (sizes, got)
    for name in ("mi300", "arc-a770"):  # nothing runs there
        r = plan("Llama-3.2-1B", "--device", name)
        assert "no backend" in r.text and "tokens/s" not in r.text and " fits" in r.text, r.text
    r = plan("Llama-3.1-8B:f16", "--device", "m1", code=3)
    assert r.text.count("does not fit") == 1 and "tokens/s" not in r.text, r.text
    assert "predicted" not in plan("Llama-3.1-8B:f16", "--device", "m1", "--json", code=3).json
    r = fletch(d, "run", "zoo/guide.gguf", "-p", "a", "--max-memory", "1M", code=3)
    assert r.err.count("does not fit") == 1 and " MB" not in r.err, r.err
    assert "known shapes" in plan("GPT-9", code=1).err and "Llama-3.1-8B" in plan("GPT-9", code=1).err
    assert "known shapes" not in plan("no/such.gguf", code=1).err


def test_eval_says_when_a_text_is_too_short(d):
    short, long = put(d, "s", data="a b c"), put(d, "l", data="a b c d " * 400)
    assert "too few" in fletch(d, "eval", TINY, "-f", short).err
    assert "too few" not in fletch(d, "eval", TINY, "-f", long).err
    assert fletch(d, "eval", TINY, "-f", short, "-q").err == ""


run_tests(globals())
