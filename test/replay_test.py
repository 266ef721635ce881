#!/usr/bin/env python3
"""Conversations of agents (tools/agent-replay), a tenth as long, with models of every kind of cache: no turn prefills
more than what is new in it, also after a restart of the server and after its model made room for another."""

import json
import os
import shutil
import struct
import subprocess
import sys

from suite import BUILD, fletch, run_tests

SCALE, TURNS = "0.1", {"dense": "30", "others": "9"}


def replay(model, *options):
    """A line of figures; the turns where it fails."""
    p = subprocess.run([sys.executable, "tools/agent-replay", "--build", BUILD, "--model", model, "--scale", SCALE,
                        *options], capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stdout + p.stderr
    print("#", p.stdout.splitlines()[-1])


def with_tokenizer(golden, folder):
    """A model of the goldens, which know no text, with the zoo's vocabulary: rows of its embeddings repeat."""
    source, made = f"test/golden/models/{golden}", f"{folder}/{golden}"
    shutil.copytree("zoo/tokenizer", made)
    with open("zoo/tokenizer/tokenizer.json") as f:
        t = json.load(f)
    n_vocab = 1 + max([*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])])
    with open(f"{source}/config.json") as f:
        config = json.load(f)
    text = config.get("text_config", config)
    n_before = text["vocab_size"]
    text.update(vocab_size=n_vocab, max_position_embeddings=32768, eos_token_id=0, bos_token_id=0)
    text.pop("mtp_num_hidden_layers", None)
    with open(f"{made}/config.json", "w") as f:
        json.dump(config, f)
    with open(f"{source}/model.safetensors", "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    head.pop("__metadata__", None)
    out = b""
    for name, x in list(head.items()):
        if "mtp" in name:
            del head[name]
            continue
        begin, end = x["data_offsets"]
        bytes_of = data[begin:end]
        if name.split(".")[-2] in ("embed_tokens", "lm_head"):
            bytes_of = (bytes_of * (n_vocab // n_before + 1))[:len(bytes_of) // n_before * n_vocab]
            x["shape"][0] = n_vocab
        x["data_offsets"] = [len(out), len(out) + len(bytes_of)]
        out += bytes_of
    text = json.dumps(head).encode()
    with open(f"{made}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + out)
    fletch("convert", made, "-o", f"{made}.gguf", "--type", "f16")
    return f"{made}.gguf"


def test_turns_prefill_what_is_new_in_them(_):
    replay("zoo/guide.gguf", "--turns", TURNS["dense"])


def test_the_same_with_latent_attention(_):
    replay("zoo/glm.gguf", "--turns", TURNS["others"])


def test_the_same_with_a_recurrent_state(_):
    replay("zoo/rwkv7.gguf", "--turns", TURNS["others"], "--api", "anthropic")


def test_the_same_with_a_window(folder):
    replay(with_tokenizer("mistral_window", folder), "--turns", TURNS["others"])


def test_the_same_with_cache_and_state(folder):
    replay(with_tokenizer("qwen3_5", folder), "--turns", TURNS["others"])


if __name__ == "__main__":
    run_tests(globals())
