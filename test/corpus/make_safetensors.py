#!/usr/bin/env python3
"""Makes test/corpus/safetensors: small files, good ones and one for every way to be bad.

They seed the fuzzer. Deterministic; run it from anywhere: python3 test/corpus/make_safetensors.py
"""
import json
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "safetensors"


def image(header, n_data=8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(range(n_data))


def one(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"t": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def two(first, second):
    return {"a": one("F16", first[0], first[1])["t"], "b": one("F16", second[0], second[1])["t"]}


FILES = {
    "empty": image({}),
    "three": image({"__metadata__": {"format": "pt"}, "b": one("F16", (2, 3), (8, 20))["t"],
                    "a": one("F32", (), (0, 4))["t"], "c": one("BF16", (2,), (4, 8))["t"]}, 20),
    "short": b"\x02\0\0",
    "length": image({}, length=2**64 - 8),
    "cut": image(one(), n_data=7),
    "json": image(b"{\"t\":"),
    "deep": image(b"[" * 70),
    "array": image([]),
    "number": image({"t": 1}),
    "no_dtype": image({"t": {}}),
    "no_shape": image({"t": {"dtype": "F32"}}),
    "no_offsets": image({"t": {"dtype": "F32", "shape": [1]}}),
    "no_name": image({"": {}}),
    "control_name": image({"a\x01": {}}),
    "long_name": image({"n" * 256: {}}),
    "twice": image(b"{\"t\":{},\"t\":{}}"),
    "fp8": image(one("F8_E4M3", (8,))),
    "dims9": image(one(shape=[1] * 9)),
    "dim0": image(one(shape=[0], offsets=(0, 0))),
    "dim_negative": image(one(shape=[-2])),
    "dim_float": image(one(shape=[2.0])),
    "dim_huge": image(one(shape=[10**20])),
    "product": image(one(shape=[2**32, 2**32])),
    "bytes": image(one(shape=[2**32, 2**30], offsets=(0, 0))),
    "offsets3": image(one(offsets=(0, 8, 8))),
    "offsets_back": image(one(offsets=(8, 0))),
    "offsets_negative": image(one(offsets=(-8, 0))),
    "size": image(one(offsets=(0, 4))),
    "overlap": image(two(((2,), (0, 4)), ((2,), (2, 6)))),
    "inside": image(two(((4,), (0, 8)), ((1,), (2, 4)))),
    "hole": image(two(((1,), (0, 2)), ((1,), (6, 8)))),
}

OUT.mkdir(exist_ok=True)
for name, data in FILES.items():
    (OUT / name).write_bytes(data)
