"""How well a model recalls notes from far back in its context, by KV type, as a Markdown table.

    python3 zoo/make/recall.py build/fletch [MODEL.gguf [TOKENS [COUNT]]]

COUNT (100) prompts of TOKENS (3000) to 1.1 TOKENS tokens, notes and one question about them; an answer
counts when greedy decoding gives it in full. The same prompts as in evaluate.py.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import skills
from grammar import Rng

ZOO = pathlib.Path(__file__).resolve().parent.parent
TYPES = "f16 q8 k8v4 q4".split()


def count_tokens(fletch, model, prompt):
    run = [fletch, "tokenize", model, "--ids", "-q"]
    out = subprocess.run(run, input=prompt, check=True, stdout=subprocess.PIPE, text=True).stdout
    return len(out.split())


def questions(fletch, model, tokens, count):
    rng, out = Rng(77), []
    while len(out) < count:
        notes, pairs = skills.recall_document(rng, tokens * rng.uniform(0.75, 1.1), held=True, ask=1)
        prompt = f"Notes:\n{notes}\n\nQuestion: {pairs[0][0]}\nAnswer:"
        if tokens <= count_tokens(fletch, model, prompt) <= 1.1 * tokens:
            out.append((prompt, f" {pairs[0][1]}\n"))
    return out


def share_right(fletch, model, kind, pairs, folder):
    path = folder / "requests.jsonl"
    path.write_text("".join(
        json.dumps({"id": str(i), "prompt": p, "max_tokens": 24, "temperature": 0, "stop": ["\n"]}) + "\n"
        for i, (p, _) in enumerate(pairs)))
    run = [fletch, "batch", model, path, "--parallel", "4", "--kv-type", kind, "--backend", "cpu", "-q"]
    lines = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    got = {r["id"]: r["text"] for r in map(json.loads, lines)}
    return sum(got[str(i)] == a.rstrip("\n") for i, (_, a) in enumerate(pairs)) / len(pairs)


def main():
    fletch, *rest = sys.argv[1:]
    model = rest[0] if rest else ZOO / "guide.gguf"
    tokens, count = (int(rest[i]) if len(rest) > i else n for i, n in [(1, 3000), (2, 100)])
    pairs = questions(fletch, model, tokens, count)
    print(f"| KV type | recalled of {count}, {tokens} tokens back |\n|---|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            right = share_right(fletch, model, kind, pairs, pathlib.Path(folder))
            print(f"| {kind} | {100 * right:.0f} % |", flush=True)


main()
