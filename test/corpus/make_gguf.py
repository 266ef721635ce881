#!/usr/bin/env python3
"""Makes test/corpus/gguf: small GGUF files, good ones and one for every way to be bad.

They seed the fuzzer, and src/format/gguf_test.c says for each what the reader must answer.
Deterministic; run it from anywhere: python3 test/corpus/make_gguf.py
"""
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "gguf"
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
CODE = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
        U64: "Q", I64: "q", F64: "d"}
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
         10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
         16: (256, 66), 20: (32, 18), 23: (256, 136), 30: (1, 2), 39: (32, 17), 40: (64, 36)}
MAX64 = 2**64 - 1


def string(s, length=None):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s) if length is None else length) + s


def value(kind, v):
    return string(v) if kind == STR else struct.pack("<" + CODE[kind], v)


def kv(key, kind, v, **how):
    return string(key, **how) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, values, count=None):
    n = len(values) if count is None else count
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, n)
            + b"".join(value(kind, v) for v in values))


def info(name, dims, kind=0, offset=0, n_dims=None, **how):
    n = len(dims) if n_dims is None else n_dims
    return (string(name, **how) + struct.pack("<I", n)
            + b"".join(struct.pack("<Q", d & MAX64) for d in dims)
            + struct.pack("<IQ", kind, offset & MAX64))


def pad(b, align=32):
    return b + bytes(-len(b) % align)


def gguf(kvs=(), infos=(), data=b"", version=3, n_kvs=None, n_tensors=None, align=32):
    head = (b"GGUF" + struct.pack("<I", version)
            + struct.pack("<Q", (len(infos) if n_tensors is None else n_tensors) & MAX64)
            + struct.pack("<Q", (len(kvs) if n_kvs is None else n_kvs) & MAX64)
            + b"".join(kvs) + b"".join(infos))
    return pad(head, align) + data if infos else head


def noise(n):
    x, out = 12345, bytearray()
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(x >> 16 & 255)
    return bytes(out)


ARCH = kv("general.architecture", STR, "llama")
ONE = info("a", [8])  # 32 bytes
SCALARS = [
    kv("k.u8", U8, 200), kv("k.i8", I8, -100), kv("k.u16", U16, 60000), kv("k.i16", I16, -30000),
    kv("k.u32", U32, 4000000000), kv("k.i32", I32, -2000000000), kv("k.f32", F32, 0.5),
    kv("k.bool", BOOL, 1), kv("k.str", STR, "text"), kv("k.u64", U64, MAX64),
    kv("k.i64", I64, -2**63), kv("k.f64", F64, 1e300),
]
ARRAYS = [
    array("k.tokens", STR, ["<s>", "", b"a\0b\xff"]), array("k.scores", F32, [0.0, -1.5, 2.5]),
    array("k.types", I32, [1, -2, 3]), array("k.empty", STR, []), array("k.bools", BOOL, [0, 1]),
]


def tensors(kinds, rows=2, align=32):
    infos, data = [], b""
    for k in kinds:
        blk, size = BLOCK[k]
        width = blk if blk > 1 else 8
        infos.append(info("blk.%d.weight" % k, [width, rows], k, len(data)))
        data += pad(noise(width // blk * size * rows), align)
    return infos, data


def good():
    infos, data = tensors([0, 1, 2, 12])
    yield "good-v3", gguf([ARCH] + SCALARS + ARRAYS, infos, data)
    yield "good-v2", gguf([ARCH], infos, data, version=2)
    infos, data = tensors(sorted(BLOCK), rows=1)
    yield "good-all-types", gguf([ARCH], infos, data)
    yield "good-empty", gguf()
    yield "good-no-tensors", gguf([ARCH])
    infos, data = tensors([0, 8], align=64)
    yield "good-align-64", gguf([kv("general.alignment", U32, 64)], infos, data, align=64)
    yield "good-align-1", gguf([kv("general.alignment", U32, 1)], [info("a", [3])], noise(12),
                               align=1)
    yield "good-dims", gguf([], [info("s", []), info("t", [2, 3, 4, 5], 0, 32)],
                            noise(4) + bytes(28) + noise(480))
    yield "good-reordered", gguf([], [info("b", [8], 0, 64), info("a", [8], 0, 0)], noise(96))
    yield "good-not-padded-at-end", gguf([], [info("a", [1])], noise(4))
    yield "good-split-keys", gguf([kv("split.no", U16, 0), kv("split.count", U16, 1),
                                   kv("split.tensors.count", I32, 1)], [ONE], noise(32))


def bad_header():
    ok = gguf([ARCH], [ONE], noise(32))
    yield "magic", b"GGML" + ok[4:]
    yield "magic-only", b"GGUF"
    yield "nothing", b""
    for v in (0, 1, 4, 0x03000000, 0x00020000):
        yield "version-%x" % v, gguf([ARCH], version=v)
    for name, n in (("minus-1", -1), ("2p40", 2**40)):
        yield "kvs-" + name, gguf([ARCH], n_kvs=n)
        yield "tensors-" + name, gguf([ARCH], [ONE], noise(32), n_tensors=n)
    yield "kvs-one-too-many", gguf([ARCH] + SCALARS, n_kvs=len(SCALARS) + 2)


def bad_kv():
    def one(*kvs):
        return gguf(list(kvs), [ONE], noise(32))
    yield "key-empty", one(kv("", U32, 1))
    yield "key-2p64", one(kv("k", U32, 1, length=MAX64))
    yield "key-beyond", one(kv("k", U32, 1, length=200))
    yield "key-257", one(kv("k" * 257, U32, 1))
    yield "key-nul", one(kv("a\0b", U32, 1))
    yield "key-escape", one(kv("\x1b[31m", U32, 1))
    yield "key-twice", one(ARCH, kv("x", U32, 1), ARCH)
    yield "kv-type-13", one(string("k") + struct.pack("<II", 13, 0))
    yield "kv-type-max", one(string("k") + struct.pack("<II", 2**32 - 1, 0))
    yield "array-nested", one(string("k") + struct.pack("<IIQ", ARRAY, ARRAY, 0))
    yield "array-type-13", one(string("k") + struct.pack("<IIQ", ARRAY, 13, 0))
    yield "array-2p61", one(array("k", U64, [1], count=2**61))
    yield "array-beyond", one(array("k", U32, [1], count=100))
    yield "array-strings-beyond", one(array("k", STR, ["a"], count=9))
    yield "value-2p64", one(string("k") + struct.pack("<IQ", STR, MAX64))
    yield "value-beyond", one(string("k") + struct.pack("<IQ", STR, 200))
    key = "general.alignment"
    for v in (0, 3, 2**21, 2**31):
        yield "align-%d" % v, one(kv(key, U32, v))
    yield "align-u64", one(kv(key, U64, 32))
    yield "align-array", one(array(key, U32, [32]))


def bad_tensor():
    def one(*infos, data=32):
        return gguf([ARCH], list(infos), noise(data))
    yield "name-empty", one(info("", [8]))
    yield "name-64", one(info("n" * 64, [8]))
    yield "name-2p64", one(info("n", [8], length=MAX64))
    yield "name-nul", one(info("a", [8]), info("a\0", [8], 0, 32), data=64)
    yield "name-twice", one(info("a", [8]), info("b", [8], 0, 32), info("a", [8], 0, 64), data=96)
    yield "dims-5", one(info("a", [1, 1, 1, 1, 1]))
    yield "dims-2p32", one(info("a", [1], n_dims=2**32 - 1))
    yield "dim-0", one(info("a", [8, 0]))
    yield "dim-minus-1", one(info("a", [-1]))
    yield "dim-2p62", one(info("a", [2**62, 2**62]))
    yield "dim-product-wraps", one(info("a", [2**32, 2**31, 2, 1]))
    yield "bytes-wrap", one(info("a", [2**62, 2]))
    yield "not-whole-blocks", one(info("a", [33], 2))
    for k in (4, 31, 43, 2**32 - 1):
        yield "type-%d" % k, one(info("a", [8], k))
    yield "offset-unaligned", one(info("a", [4], 0, 4))
    yield "offset-beyond", one(info("a", [8], 0, 64))
    yield "offset-wraps", one(info("a", [8], 0, -32))
    yield "overlap", one(info("a", [8], 0, 32), info("b", [16], 0, 0), data=64)
    yield "overlap-same", one(info("a", [8]), info("b", [8]))
    yield "data-one-short", one(ONE, data=31)
    yield "data-missing", one(ONE, data=0)
    whole = one(ONE)
    yield "padding-short", whole[:len(whole) - 33]
    yield "dims-missing", gguf([ARCH], n_tensors=1) + info("name", [2**20] * 4)[:30]
    yield "offset-missing", gguf([ARCH], n_tensors=1) + info("name", [8])[:-2]


def main():
    OUT.mkdir(exist_ok=True)
    files = list(good())
    for part in (bad_header, bad_kv, bad_tensor):
        files += [("bad-" + name, b) for name, b in part()]
    for name, b in files:
        (OUT / (name + ".gguf")).write_bytes(b)
    print("%d files, %d bytes" % (len(files), sum(len(b) for _, b in files)))


main()
