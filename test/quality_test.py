#!/usr/bin/env python3
"""What the numbers of the cpu backend cost: its perplexity on every zoo model, in the profile that
it prefers, is within 0.5 % of the reference in f32 on the same text. test/quality_test.py BUILD"""

import json
import os
import subprocess
import sys
import tempfile

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
MODELS = "guide glm rwkv7 qwen3 guide-draft".split()
TINY = "llama qwen2 qwen3 qwen3moe deepseek2 rwkv7".split()
BYTES = {True: 3000, False: 1200}  # of held-out text; f32 on the reference is slow


def perplexity(model, text, *args):
    run = [os.path.join(BUILD, "fletch"), "eval", model, "-f", text, "--json", "-q", *args]
    p = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return json.loads(p.stdout)["perplexity"]


def check(model, tiny, folder):
    text = os.path.join(folder, "text")
    with open("zoo/heldout/stories.txt", "rb") as f, open(text, "wb") as out:
        out.write(f.read(BYTES[tiny]))
    f32 = perplexity(model, text, "--backend", "ref", "--act-type", "f32", "--kv-type", "f32")
    cpu = perplexity(model, text, "--backend", "cpu", "--kv-type", "f16")
    change = cpu / f32 - 1
    print(f"{'ok' if abs(change) <= 0.005 else 'not ok'} {model}: {f32:.4f} in f32, {100 * change:+.3f} %")
    return abs(change) <= 0.005


def main():
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        for name in TINY:
            fine &= check(f"zoo/tiny/{name}.gguf", True, folder)
        if "san" not in BUILD:  # sanitizers make the larger ones too slow
            for name in MODELS:
                fine &= check(f"zoo/{name}.gguf", False, folder)
    return not fine


if __name__ == "__main__":
    sys.exit(main())
