"""A GGUF v3 writer, independent of fletch's. Metadata values are Python scalars, strings or lists;
tensors are numpy arrays (float32 or float16) in framework shape."""

import struct

import numpy as np

ALIGN = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_TYPE = {np.dtype("float32"): 0, np.dtype("float16"): 1}


def pack_string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def kind_of(v):
    if isinstance(v, bool):
        return BOOL
    if isinstance(v, int):
        return U32
    if isinstance(v, float):
        return F32
    if isinstance(v, str):
        return STRING
    return ARRAY


def pack_value(v):
    kind = kind_of(v)
    if kind == BOOL:
        return struct.pack("<B", v)
    if kind == U32:
        return struct.pack("<I", v)
    if kind == F32:
        return struct.pack("<f", v)
    if kind == STRING:
        return pack_string(v)
    return struct.pack("<IQ", kind_of(v[0]), len(v)) + b"".join(pack_value(x) for x in v)


def pad(n):
    return b"\0" * (-n % ALIGN)


def write(path, meta, tensors):
    """meta: {key: value}; tensors: {name: array}; both keep their order."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    for key, v in meta.items():
        head += pack_string(key) + struct.pack("<I", kind_of(v)) + pack_value(v)
    blob = b""
    for name, a in tensors.items():
        dims = a.shape[::-1]
        head += (
            pack_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        )
        head += struct.pack("<IQ", TENSOR_TYPE[a.dtype], len(blob))
        data = np.ascontiguousarray(a).tobytes()
        blob += data + pad(len(data))
    with open(path, "wb") as f:
        f.write(head + pad(len(head)) + blob)
