"""Checks that need a GPU or the tokenizers library: run before a long training.

    python3 zoo/make/check.py
"""
import time

import tokenizers
import torch

import bpe
import data
import skills
import wkv7


def tokenizer():
    """Our encoder and the tokenizers library must agree on the corpus and on odd text."""
    theirs, ours = tokenizers.Tokenizer.from_file(str(bpe.HOME / "tokenizer.json")), bpe.load()
    texts = data.sample(seed=99, documents=300) + [
        "",
        " ",
        "  a\n\n b",
        "It's 1234+56=\t\tX_y--z  \n",
        "don't STOP 'S",
        "\x00\x7f~",
    ]
    for text in texts:
        text = text.replace(skills.QUIET, "")
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text), text
        assert ours.decode(ours.encode(text)) == text
    print(f"tokenizer: {len(texts)} texts agree")


def recurrence():
    errors = wkv7.check()
    print("wkv7 relative errors (y, dr, dw, dk, dv, da, db):", " ".join(f"{e:.1e}" for e in errors))
    assert max(errors) < 1e-4
    shape = (32, 1024, 4, 64)
    x = [
        torch.rand(shape, device="cuda").mul_(0.1).add_(0.8).requires_grad_()
        if i == 1
        else (torch.randn(shape, device="cuda") * 0.1).requires_grad_()
        for i in range(6)
    ]
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.time()
        y = wkv7.wkv(*x)
        torch.cuda.synchronize()
        middle = time.time()
        y.sum().backward()
        torch.cuda.synchronize()
    print(
        f"wkv7 on {shape}: forward {(middle - start) * 1e3:.2f} ms, backward {(time.time() - middle) * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    tokenizer()
    recurrence()
