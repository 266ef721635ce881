#!/usr/bin/env python3
"""Fixes what the zoo models say: test/zoo/expected.json, greedy on the reference executor.

    test/zoo/make.py build/fletch [MODEL...]

Once in plain f32, and once with the rounding of the CPU executor (int8 activations, f16 cache).
"leads" says how far, in nats, each chosen token was ahead of the second. Run it again only when a
model changes, with the names of those that did (such as guide; without names: all); every executor
is then held to the same tokens."""
import array
import json
import subprocess
import sys
import tempfile

MODELS = ["guide", "glm", "rwkv7", "qwen3", "tiny/llama", "tiny/qwen2", "tiny/qwen3",
          "tiny/qwen3moe", "tiny/deepseek2", "tiny/rwkv7"]
EXPECTED = "test/zoo/expected.json"
PROFILES = {"f32": ["--act-type", "f32", "--kv-type", "f32"],
            "int8": ["--act-type", "int8", "--kv-type", "f16"]}


def fletch(*args):
    run = subprocess.run([sys.argv[1], *args], check=True, capture_output=True, text=True)
    return run.stdout


def leads_of(path, profile, ids, n_prompt):
    with tempfile.NamedTemporaryFile() as f:
        fletch("eval", path, "--backend", "ref", "-q", *profile, "--tokens",
               ",".join(map(str, ids)), "--logits", f.name)
        logits = array.array("f", f.read())
    n_vocab = len(logits) // len(ids)
    leads = []
    for i in range(n_prompt - 1, len(ids)):
        best = sorted(logits[i * n_vocab:(i + 1) * n_vocab])[-2:]
        leads.append(round(best[1] - best[0], 4))
    return leads


def case_of(path, profile, prompt):
    ids = [int(i) for i in fletch("tokenize", path, "--ids", "--special", prompt).split()]
    said = json.loads(fletch("run", path, "--backend", "ref", "-q", "--json", "--special",
                             *profile, "--temp", "0", "-n", "128", "-p", prompt))
    return {"prompt": ids, "answer": said["tokens"], "ends": said["finish"] == "end",
            "leads": leads_of(path, profile, ids + said["tokens"], len(ids)),
            "text": said["text"]}


def main():
    prompts = [line.rstrip("\n").replace("\\n", "\n") for line in open("test/zoo/prompts.txt")]
    changed = sys.argv[2:] or MODELS
    kept = {}
    if sys.argv[2:]:
        kept = {(e["model"], e["profile"]): e for e in json.load(open(EXPECTED))}
    lines = []
    for name in MODELS:
        path = f"zoo/{name}.gguf"
        for profile, flags in PROFILES.items():
            entry = kept.get((path, profile))
            if name in changed:
                print(f"{path}, {profile}", file=sys.stderr)
                cases = [case_of(path, flags, prompt) for prompt in prompts]
                entry = {"model": path, "profile": profile, "cases": cases}
            lines.append(json.dumps(entry))
    with open(EXPECTED, "w") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")


main()
