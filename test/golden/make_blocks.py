"""A llama as GGUF whose blocks differ in heads, key heads and widths, with the logits of
own_models.py: no class of transformers has such a model without more that is special."""

import math
import os

import gguf_write
import own_models as own
from common import T, V, Random, entry, fresh, write_f32, write_golden

HEADS, KV_HEADS, WIDTHS = [4, 2, 6], [2, 1, 3], [40, 24, 56]
D, HEAD, EPS, BASE = 40, 16, 1e-5, 1e3


def make_all(out):
    rnd = Random(501)
    t = {
        "token_embd.weight": rnd.f16(rnd.normal(V, D) * math.sqrt(D) * 0.35),
        "output_norm.weight": rnd.around(D),
    }
    for l, (h, kv, ff) in enumerate(zip(HEADS, KV_HEADS, WIDTHS)):
        shapes = dict(
            attn_norm=(D,),
            attn_q=(h * HEAD, D),
            attn_k=(kv * HEAD, D),
            attn_v=(kv * HEAD, D),
            attn_output=(D, h * HEAD),
            ffn_norm=(D,),
            ffn_gate=(ff, D),
            ffn_up=(ff, D),
            ffn_down=(D, ff),
        )
        for name, shape in shapes.items():
            gain = 1.8 if name in ("attn_q", "attn_k") else 1.2
            w = rnd.around(*shape) if len(shape) == 1 else rnd.normal(*shape, gain=gain)
            t[f"blk.{l}.{name}.weight"] = w
    tokens = rnd.tokens()
    logits = own.llama_gguf(t, len(HEADS), HEADS, KV_HEADS, EPS, BASE, tokens)
    spread = float(logits.max() - logits.min())
    assert spread > 4, spread
    folder = fresh(out, "llama-blocks")
    meta = {
        "general.architecture": "llama",
        "general.name": "golden llama with blocks that differ",
        "general.file_type": 0,
        "llama.block_count": len(HEADS),
        "llama.context_length": 256,
        "llama.embedding_length": D,
        "llama.feed_forward_length": WIDTHS,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.key_length": HEAD,
        "llama.attention.value_length": HEAD,
        "llama.attention.layer_norm_rms_epsilon": EPS,
        "llama.rope.freq_base": BASE,
        "llama.rope.dimension_count": HEAD,
        "llama.vocab_size": V,
        "tokenizer.ggml.model": "no_vocab",
    }
    gguf_write.write(
        os.path.join(folder, "model.gguf"), meta, {k: w.numpy().astype("<f4") for k, w in t.items()}
    )
    write_f32(os.path.join(folder, "logits.f32"), logits)
    files = dict(logits=entry("logits.f32", T, V))
    write_golden(
        folder, tokens, D, len(HEADS), files, source="own", seed=501, rms_eps=EPS,
        checks=dict(logit_range=spread),
    )
    print("llama-blocks", spread)
