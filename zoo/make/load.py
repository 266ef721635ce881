"""Weights of a GGUF file that `fletch convert` made of one of our llama models, to train them further."""
import struct

import numpy
import torch

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
F32, Q8_0 = 0, 8
BLOCK = numpy.dtype([("scale", "<f2"), ("q", "i1", 32)])


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 4

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self):
        (size,) = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def skip(self, kind):
        """Passes over a value of the metadata."""
        if kind == 8:
            (size,) = self.take("Q")
            self.at += size
        elif kind == 9:
            item, count = self.take("IQ")
            for _ in range(count):
                self.skip(item)
        else:
            self.at += SIZES[kind]


def gguf(path):
    """{name: float32 array} of a file in F32 and Q8_0."""
    r = Reader(path.read_bytes())
    _, tensors, entries = r.take("IQQ")
    for _ in range(entries):
        r.text()
        r.skip(*r.take("I"))
    heads = []
    for _ in range(tensors):
        name, (rank,) = r.text(), r.take("I")
        heads.append((name, r.take(f"{rank}Q")[::-1], *r.take("IQ")))
    start, out = -(-r.at // 32) * 32, {}
    for name, shape, kind, offset in heads:
        assert kind in (F32, Q8_0), name
        count = int(numpy.prod(shape))
        if kind == F32:
            x = numpy.frombuffer(r.data, "<f4", count, start + offset)
        else:
            x = numpy.frombuffer(r.data, BLOCK, count // 32, start + offset)
            x = x["scale"].astype("f4")[:, None] * x["q"].astype("f4")
        out[name] = x.reshape(shape).copy()
    return out


def state(path, head_dim):
    """The same under the names of models.py, with the halves of each rotary head side by side again."""
    out = {}
    for name, x in gguf(path).items():
        x = torch.from_numpy(x)
        if not name.startswith("blk."):
            out["model.norm.weight" if "norm" in name else "model.embed_tokens.weight"] = x
            continue
        _, layer, kind, _ = name.split(".")
        if kind in ("attn_q", "attn_k"):
            pairs = x.reshape(x.shape[0] // head_dim, head_dim // 2, 2, -1)
            x = pairs.transpose(1, 2).reshape(x.shape)
        out[f"model.layers.{layer}.{NAMES[kind]}.weight"] = x
    return out
