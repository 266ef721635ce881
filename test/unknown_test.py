#!/usr/bin/env python3
"""What a file says and fletch does not support: every command that opens a model refuses it in one
line, goes on with --ignore-unknown and tells what it ignored; inspect shows it."""

import json
import os
import shutil
import struct
import subprocess

import suite
from serving import Server
from suite import FLETCH, fletch

TINY = "zoo/tiny/llama.gguf"
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def edited(path, out, keys=(), tensors=()):
    """A copy of a GGUF file that says more: keys of (name, type, packed value), which replace those
    of that name, and vectors of ones of (name, length)."""
    data = open(path, "rb").read()
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", data, 4)
    at = 24
    kept = []
    new = {name for name, _, _ in keys}

    def skip_string():
        nonlocal at
        n, = struct.unpack_from("<Q", data, at)
        at += 8 + n
        return data[at - n:at].decode("utf-8", "replace")

    for _ in range(n_keys):
        begin = at
        name = skip_string()
        kind, = struct.unpack_from("<I", data, at)
        at += 4
        n = 1
        if kind == ARRAY:
            kind, n = struct.unpack_from("<IQ", data, at)
            at += 12
        if kind == STRING:
            for _ in range(n):
                skip_string()
        else:
            at += SIZES[kind] * n
        if name not in new:
            kept.append(data[begin:at])
    infos_begin, end = at, 0
    for _ in range(n_tensors):
        skip_string()
        n_dims, = struct.unpack_from("<I", data, at)
        at += 4 + 8 * n_dims + 12
    infos = data[infos_begin:at]
    body = data[(at + 31) // 32 * 32:]
    for name, n in tensors:
        body += bytes(-len(body) % 32)
        infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, n, 0, len(body))
        body += struct.pack("<f", 1) * n
    added = [struct.pack("<Q", len(k)) + k.encode() + struct.pack("<I", t) + v for k, t, v in keys]
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors + len(tensors), len(kept) + len(added))
    head += b"".join(kept + added) + infos
    with open(out, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + body)
    return out


def u32(v):
    return struct.pack("<I", v)


def f32(v):
    return struct.pack("<f", v)


def refused(r, *parts):
    lines = r.err.splitlines()
    assert len(lines) == 1, r.err
    for part in parts:
        assert part in lines[0], r.err


def test_every_command_refuses_by_name_or_ignores_and_tells(folder):
    m = edited(TINY, f"{folder}/m.gguf", [("llama.logit_scale", F32, f32(0.5))],
               [("blk.0.attn_sinks.weight", 2)])
    text, lines = f"{folder}/t.txt", f"{folder}/q.jsonl"
    with open(text, "w") as f:
        f.write("Once upon a time there was a dog. " * 9)
    with open(lines, "w") as f:
        f.write('{"prompt": "Once", "max_tokens": 2}\n')
    with open(f"{folder}/m.json", "w") as f:
        json.dump([{"role": "user", "content": "hi"}], f)
    ref = ["--backend", "ref"]
    commands = [
        ["run", m, "-p", "Once", "-n", "2", *ref],
        ["batch", m, lines, "-o", f"{folder}/a.jsonl", *ref],
        ["eval", m, "-f", text, *ref],
        ["verify", m, "-p", "Once", "-n", "2", *ref, "--against", "ref"],
        ["plan", m],
        ["explain", m],
        ["convert", m, "-o", f"{folder}/c.gguf", "--type", "f16"],
        ["bench", m, "--mode", "decode", "-n", "2", "-d", "0", "-r", "1", *ref],
    ]
    for args in commands:
        refused(fletch(*args, code=4), "'llama.logit_scale' = 0.5", "'blk.0.attn_sinks.weight'",
                "--ignore-unknown")
        r = fletch(*args, "--ignore-unknown")
        told = [x for x in r.err.splitlines() if "ignored, at your own risk" in x]
        assert any("llama.logit_scale" in x for x in told), (args, r.err)
    assert fletch("tokenize", m, "Once").err == "", "tokenizing needs none of it"
    words = edited(TINY, f"{folder}/words.gguf", [("tokenizer.ggml.no_such_key", F32, f32(0.5))])
    refused(fletch("tokenize", words, "Once", code=4), "'tokenizer.ggml.no_such_key' = 0.5")
    p = subprocess.run([FLETCH, "serve", m, "--port", "0", "--cache-disk", "0", *ref], stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True, timeout=60)
    assert p.returncode == 4 and "'llama.logit_scale' = 0.5" in p.stderr, p.stderr
    s = Server(m, "--ignore-unknown", *ref)
    try:
        assert s.complete("Once", max_tokens=2)
        assert any("ignored, at your own risk" in x for x in s.lines), s.lines
    finally:
        s.p.terminate()
        s.p.wait()


def test_inspect_shows_what_would_be_refused(folder):
    m = edited(TINY, f"{folder}/m.gguf",
               [("llama.logit_scale", F32, f32(0.5)), ("llama.attention.clamp_kqv", F32, f32(9))])
    assert fletch("inspect", TINY, "--json").json["refused"] == []
    told = fletch("inspect", m, "--json").json["refused"]
    assert told[0] == "metadata key 'llama.logit_scale' = 0.5" and "clamp_kqv" in told[1], told
    assert "metadata key 'llama.logit_scale' = 0.5" in fletch("inspect", m).text
    broken = edited(TINY, f"{folder}/b.gguf", [("llama.block_count", U32, u32(7))])
    assert "'blk.2.attn_norm.weight' is missing" in fletch("inspect", broken, "--json").json["refused"][0]


def test_a_window_is_computed(folder):
    """Answers are those without it while the text is no longer, and others after that."""
    m = edited(TINY, f"{folder}/m.gguf", [("llama.attention.sliding_window", U32, u32(16))])
    run = ["-p", "Once", "-n", "40", "--temp", "0", "--backend", "ref"]
    want, got = fletch("run", TINY, *run).text, fletch("run", m, *run).text
    same = os.path.commonprefix([want, got])
    assert got != want and len(same) > 8, (want, got)
    assert fletch("plan", m, "--json").json["n_ctx"] == fletch("plan", TINY, "--json").json["n_ctx"]
    edited(TINY, m, [("llama.attention.sliding_window", U32, u32(4096))])
    assert fletch("run", m, *run).text == want
    edited(TINY, m, [("llama.attention.sliding_window", U32, u32(16)),
                     ("llama.attention.sliding_window_pattern", U32, u32(1))])
    assert fletch("run", m, *run).text == want  # every layer is one without a window


def test_a_mistral_directory_with_a_window_opens(folder):
    d = f"{folder}/mistral"
    shutil.copytree("test/golden/models/mistral", d)
    with open(f"{d}/config.json") as f:
        config = json.load(f)
    config["sliding_window"] = 8
    with open(f"{d}/config.json", "w") as f:
        json.dump(config, f)
    fletch("explain", d)
    fletch("convert", d, "-o", f"{folder}/m.gguf", "--type", "f16")
    fletch("explain", f"{folder}/m.gguf")
    config["a_later_switch"] = True
    with open(f"{d}/config.json", "w") as f:
        json.dump(config, f)
    refused(fletch("explain", d, code=4), "config.json: 'a_later_switch' = true")
    refused(fletch("convert", d, "-o", f"{folder}/n.gguf", "--type", "f16", code=4), "a_later_switch")
    assert not os.path.exists(f"{folder}/n.gguf")
    assert any("a_later_switch" in x for x in fletch("inspect", d, "--json").json["refused"])



def test_lies_are_refused(folder):
    lies = [
        ("tokenizer.ggml.bos_token_id", U32, u32(4096), "(there are 4096 tokens)"),
        ("tokenizer.ggml.eos_token_id", U32, u32(99999), "'tokenizer.ggml.eos_token_id' = 99999"),
        ("tokenizer.ggml.eos_token_ids", ARRAY, struct.pack("<IQ", 5, 1) + u32(4096), "eos_token_ids"),
        ("llama.vocab_size", U32, u32(4095), "'llama.vocab_size' = 4095"),
        ("llama.block_count", U32, u32(1), "llama.block_count ends before it"),
        ("llama.attention.layer_norm_rms_epsilon", F32, f32(1e30), "layer_norm_rms_epsilon"),
        ("llama.attention.layer_norm_rms_epsilon", F32, f32(0), "layer_norm_rms_epsilon"),
        ("llama.attention.layer_norm_rms_epsilon", F32, f32(float("nan")), "layer_norm_rms_epsilon"),
        ("llama.attention.key_length", U32, u32(31), "attention.key_length"),
        ("split.no", U32, u32(2), "split.no"),
        ("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ", 5, 1) + u32(1), "token_type"),
    ]
    for key, kind, value, part in lies:
        m = edited(TINY, f"{folder}/m.gguf", [(key, kind, value)])
        refused(fletch("plan", m, code=4), part)


def test_ids_that_nothing_uses_may_lie_outside_the_vocabulary(folder):
    for key in ("padding", "unknown"):
        m = edited("zoo/tiny/qwen3.gguf", f"{folder}/m.gguf",
                   [(f"tokenizer.ggml.{key}_token_id", U32, u32(1 << 20))])
        assert fletch("inspect", m, "--json").json["refused"] == []
        fletch("plan", m)


def test_recommended_sampling_may_take_all_tokens(folder):
    m = edited(TINY, f"{folder}/m.gguf", [("general.sampling.top_k", I32, struct.pack("<i", -1))])
    run = ["-p", "Once", "-n", "2", "--temp", "0", "--backend", "ref"]
    assert fletch("run", m, *run).text == fletch("run", TINY, *run).text
    edited(TINY, m, [("general.sampling.top_k", I32, struct.pack("<i", -2))])
    refused(fletch("run", m, *run, code=4), "general.sampling.top_k")


def refuses_embeddings(model, part):
    s = Server(model, "--backend", "ref")
    try:
        message = s.post("/v1/embeddings", {"input": [5, 6, 7]}, 400)["error"]["message"]
        assert part in message, message
        assert s.complete([5, 6, 7], max_tokens=2)
    finally:
        s.p.terminate()
        s.p.wait()


def test_embeddings_of_another_pooling_are_refused_and_text_is_not(folder):
    m = f"{folder}/m"
    shutil.copytree("test/golden/models/qwen3", m)
    os.mkdir(f"{m}/1_Pooling")
    with open(f"{m}/1_Pooling/config.json", "w") as f:
        json.dump({"pooling_mode_max_tokens": True}, f)
    fletch("convert", m, "-o", f"{folder}/m.gguf", "--type", "f32", "-q")
    for model in m, f"{folder}/m.gguf":
        refuses_embeddings(model, "pooling_mode 'max_tokens'")


if __name__ == "__main__":
    suite.run_tests(globals())
