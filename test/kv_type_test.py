#!/usr/bin/env python3
"""Cache types end to end: test/kv_type_test.py BUILD. The bars: memory, perplexity, and that the
executors agree. Python's standard library only."""

import json
import os

from suite import BUILD, fletch, run_tests



def cache_bytes(model, kv):
    plan = fletch("plan", model, "--json", "--kv-type", kv).json
    assert plan["kv_type"] == kv
    return next(p["bytes"] for p in plan["parts"] if p["name"] == "kv cache")


def test_memory():
    for model, q4 in [("zoo/guide.gguf", 0.30), ("zoo/qwen3.gguf", 0.30), ("zoo/glm.gguf", 0.32)]:
        f16 = cache_bytes(model, "f16")
        assert cache_bytes(model, "f32") == 2 * f16
        assert cache_bytes(model, "q8") <= 0.54 * f16
        assert cache_bytes(model, "q4") <= q4 * f16
    guide = cache_bytes("zoo/guide.gguf", "f16")
    assert 0.30 * guide < cache_bytes("zoo/guide.gguf", "k8v4") < 0.54 * guide


def test_perplexity():
    for model in ["guide", "qwen3", "glm"]:
        def ppl(kv):
            args = ("-f", "zoo/heldout/stories.txt", "-c", 512, "--json", "--kv-type", kv)
            return fletch("eval", f"zoo/{model}.gguf", *args).json["perplexity"]
        f16 = ppl("f16")
        assert abs(ppl("q8") / f16 - 1) < 0.005, model
        assert abs(ppl("q4") / f16 - 1) < 0.02, model


def test_executors_agree():
    for model in ["llama", "qwen2", "qwen3", "qwen3moe", "deepseek2"]:
        for kv in ["q8", "q4"] if model == "deepseek2" else ["q8", "q4", "k8v4"]:
            text = fletch("verify", f"zoo/tiny/{model}.gguf", "--kv-type", kv, "-n", 4).text
            assert "equal within the tolerances" in text, (model, kv, text)
    for model, kv in [("qwen3", "q8"), ("llama", "k8v4"), ("qwen2", "q4"), ("deepseek2", "q4")]:
        text = fletch("verify", f"zoo/tiny/{model}.gguf", "--backend", "emu", "--kv-type", kv, "-n",
                      2, "--tokens", "1,2,3").text
        assert "equal within the tolerances" in text, (model, kv, text)


def test_together_as_alone():
    path = os.path.join(BUILD, "kv_type.jsonl")
    with open(path, "w") as f:
        for i in range(12):
            f.write(json.dumps({"id": i, "prompt": "Once upon a time " * (1 + 5 * i),
                                "max_tokens": 12, "temperature": 0.8, "seed": i}) + "\n")
    for kv in ["q8", "q4"]:
        def tokens(*args):
            lines = fletch("batch", path, "--kv-type", kv, "-c", 512, *args).text.splitlines()
            return {a["id"]: a["tokens"] for a in map(json.loads, lines)}
        assert tokens("--parallel", 1, "--no-reuse") == tokens("--parallel", 8)


def test_what_does_not_go_is_said():
    assert "stores them together" in fletch("plan", "zoo/glm.gguf", "--kv-type", "k8v4", code=2).err
    assert "multiple of 32" in fletch("plan", "test/golden/models/llama", "--kv-type", "q8", code=2).err
    assert "f32|f16|q8|q4|k8v4" in fletch("plan", "zoo/glm.gguf", "--kv-type", "q5", code=2).err


run_tests(globals())
