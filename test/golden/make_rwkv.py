"""RWKV-7 as an HF directory in the naming of its published checkpoints, and arwkv7 as GGUF files,
computed by own_models.py."""

import math
import os

import torch

import gguf_write
import own_models as own
from common import T, V, Random, entry, fresh, save_tensors, write_config, write_f32, write_golden

C, HEAD, RANK = 48, 16, dict(w=10, a=6, v=5, g=14)


def random_mixer(rnd, first, gate, norm):
    b = {"x_" + m: rnd.around(C, centre=0.5, spread=0.5) for m in ("rwkvag" if gate else "rwkva")}
    b.update(
        receptance=rnd.normal(C, C),
        key=rnd.normal(C, C),
        value=rnd.normal(C, C),
        output=rnd.normal(C, C),
        k_k=rnd.around(C, centre=0.85, spread=0.4),
        k_a=rnd.around(C, spread=0.5),
        r_k=rnd.vector(C, 0.3),
        w0=rnd.around(C, centre=-1.5, spread=3.0),
        w1=rnd.normal(RANK["w"], C, gain=1.5),
        w2=rnd.normal(C, RANK["w"], gain=1.5),
    )
    for m in "a" if first else "av":
        b.update(
            {
                m + "0": rnd.vector(C, 0.7),
                m + "1": rnd.normal(RANK[m], C, gain=1.2),
                m + "2": rnd.normal(C, RANK[m], gain=1.2),
            }
        )
    if gate:
        b.update(g1=rnd.normal(RANK["g"], C, gain=1.5), g2=rnd.normal(C, RANK["g"], gain=2.0))
    if norm:
        b.update(ln_w=rnd.around(C), ln_b=rnd.vector(C, 0.2))
    return b


def check_rwkv(name, m, tokens, logits, states):
    spread = float(logits.max() - logits.min())
    biggest = max(float(s.abs().max()) for st in states for s in st["wkv"])
    other = own.rwkv7(dict(m, eps=10 * m["eps"]), tokens)[0]
    checks = dict(
        logit_range=spread,
        largest_state=biggest,
        moved_by_eps=float((other - logits).abs().max()) / spread,
    )
    if "ln_w" in m["blocks"][0]:
        other = own.rwkv7(dict(m, group_eps=HEAD * 1e-5), tokens)[0]
        checks["moved_by_group_eps"] = float((other - logits).abs().max()) / spread
        assert checks["moved_by_group_eps"] > 1e-3, (name, checks)
    assert spread > 6 and 0.1 < biggest < 100 and checks["moved_by_eps"] > 1e-3, (name, checks)
    return checks


def save_rwkv(folder, name, tokens, m, **more):
    with torch.no_grad():
        logits, layers, states = own.rwkv7(m, tokens.tolist())
    shifts = ["att", "ffn"] if "ln0_w" in m else ["att"]
    wkv = torch.stack([torch.stack(st["wkv"]) for st in states])
    shift = torch.stack([torch.stack([st[k] for k in shifts]) for st in states])
    write_f32(os.path.join(folder, "logits.f32"), logits)
    write_f32(os.path.join(folder, "layers.f32"), layers)
    write_f32(os.path.join(folder, "state.f32"), torch.cat([wkv.flatten(), shift.flatten()]))
    n = len(m["blocks"])
    files = dict(
        logits=entry("logits.f32", T, V),
        layers=entry("layers.f32", n, T, C),
        state=dict(
            path="state.f32",
            parts=[
                dict(name="wkv", shape=list(wkv.shape)),
                dict(name="shift", shape=list(shift.shape)),
            ],
        ),
    )
    checks = check_rwkv(name, m, tokens.tolist(), logits, states)
    write_golden(folder, tokens, C, n, files, source="own_models.py", checks=checks, **more)
    print(name, checks)


def make_rwkv7(out):
    rnd, n, eps = Random(31), 3, 1e-5
    ff = 4 * C
    m = dict(
        embed=rnd.f16(rnd.normal(V, C) * math.sqrt(C) * 0.02),
        ln0_w=rnd.around(C),
        ln0_b=rnd.vector(C, 0.2),
        norm_w=rnd.around(C),
        norm_b=rnd.vector(C, 0.2),
        head=rnd.normal(V, C, gain=3.0),
        head_size=HEAD,
        eps=eps,
        blocks=[],
    )
    for l in range(n):
        b = random_mixer(rnd, l == 0, True, True)
        b.update(
            ln1_w=rnd.around(C),
            ln1_b=rnd.vector(C, 0.2),
            ln2_w=rnd.around(C),
            ln2_b=rnd.vector(C, 0.2),
            ffn_x_k=rnd.around(C, centre=0.5, spread=0.5),
            ffn_key=rnd.normal(ff, C),
            ffn_value=rnd.normal(C, ff),
        )
        m["blocks"].append(b)
    folder = fresh(out, "rwkv7")
    save_rwkv(
        folder, "rwkv7", rnd.tokens(), m, ln_eps=eps, group_norm_eps=own.GROUP_EPS, l2_eps=1e-12
    )

    t = {
        "model.embeddings.weight": m["embed"],
        "lm_head.weight": m["head"],
        "model.norm.weight": m["norm_w"],
        "model.norm.bias": m["norm_b"],
        "model.layers.0.pre_norm.weight": m["ln0_w"],
        "model.layers.0.pre_norm.bias": m["ln0_b"],
    }
    for l, b in enumerate(m["blocks"]):
        p = f"model.layers.{l}."
        t.update(
            {
                p + "attn_norm.weight": b["ln1_w"],
                p + "attn_norm.bias": b["ln1_b"],
                p + "ffn_norm.weight": b["ln2_w"],
                p + "ffn_norm.bias": b["ln2_b"],
                p + "attn.k_k": b["k_k"],
                p + "attn.k_a": b["k_a"],
                p + "attn.r_k": b["r_k"].view(-1, HEAD),
                p + "attn.g_norm.weight": b["ln_w"],
                p + "attn.g_norm.bias": b["ln_b"],
                p + "attn.r_proj.weight": b["receptance"],
                p + "attn.k_proj.weight": b["key"],
                p + "attn.v_proj.weight": b["value"],
                p + "attn.o_proj.weight": b["output"],
                p + "ffn.x_k": b["ffn_x_k"],
                p + "ffn.key.weight": b["ffn_key"],
                p + "ffn.value.weight": b["ffn_value"],
            }
        )
        t.update({p + "attn.x_" + k: b["x_" + k].view(1, 1, C) for k in "rwkvag"})
        for k in "wavg":
            if k + "1" in b:
                t[f"{p}attn.{k}_lora.lora.0.weight"] = b[k + "1"]
                t[f"{p}attn.{k}_lora.lora.2.weight"] = b[k + "2"]
            if k + "0" in b:
                t[f"{p}attn.{k}_lora.lora.2.bias"] = b[k + "0"]
    save_tensors(os.path.join(folder, "model.safetensors"), {k: x.half() for k, x in t.items()})
    write_config(
        folder,
        dict(
            architectures=["RWKV7ForCausalLM"],
            attn=None,
            attn_mode="chunk",
            model_type="rwkv7",
            hidden_size=C,
            hidden_ratio=4.0,
            intermediate_size=None,
            num_hidden_layers=n,
            head_dim=HEAD,
            num_heads=C // HEAD,
            decay_low_rank_dim=RANK["w"],
            a_low_rank_dim=RANK["a"],
            v_low_rank_dim=RANK["v"],
            gate_low_rank_dim=RANK["g"],
            hidden_act="sqrelu",
            max_position_embeddings=2048,
            norm_first=True,
            norm_bias=True,
            norm_eps=eps,
            bos_token_id=0,
            eos_token_id=0,
            tie_word_embeddings=False,
            use_cache=True,
            vocab_size=V,
            torch_dtype="float16",
        ),
    )


def make_arwkv7(out, name, seed, gate, norm):
    rnd, n, ff, eps = Random(seed), 2, 70, 1e-6
    m = dict(
        embed=rnd.f16(rnd.normal(V, C) * math.sqrt(C) * 0.02),
        norm_w=rnd.around(C),
        head=rnd.normal(V, C, gain=3.0),
        head_size=HEAD,
        eps=eps,
        blocks=[],
    )
    for l in range(n):
        b = random_mixer(rnd, l == 0, gate, norm)
        b.update(
            ln1_w=rnd.around(C),
            ln2_w=rnd.around(C),
            ffn_gate=rnd.normal(ff, C, gain=1.4),
            ffn_up=rnd.normal(ff, C, gain=1.4),
            ffn_down=rnd.normal(C, ff),
        )
        m["blocks"].append(b)
    folder = fresh(out, name)
    save_rwkv(
        folder,
        name,
        rnd.tokens(),
        m,
        rms_eps=eps,
        group_norm_eps=own.GROUP_EPS if norm else None,
        l2_eps=1e-12,
    )

    f32 = lambda x: x.numpy().astype("<f4")
    f16 = lambda x: x.numpy().astype("<f2")
    t = {
        "token_embd.weight": f16(m["embed"]),
        "output_norm.weight": f32(m["norm_w"]),
        "output.weight": f16(m["head"]),
    }
    for l, b in enumerate(m["blocks"]):
        p, mix = f"blk.{l}.", f"blk.{l}.time_mix_"
        order = "rwkvag" if gate else "rwkva"
        t[p + "attn_norm.weight"] = f32(b["ln1_w"])
        t[mix + "lerp_fused.weight"] = f32(
            torch.stack([b["x_" + k] for k in order]).view(len(order), 1, 1, C)
        )
        # Block 0 has no value mix; converters fill the place with copies of the a tensors.
        v = "v" if "v0" in b else "a"
        t.update(
            {
                mix + "w0.weight": f32(b["w0"]),
                mix + "w1.weight": f32(b["w1"]),
                mix + "w2.weight": f32(b["w2"]),
                mix + "a0.weight": f32(b["a0"]),
                mix + "a1.weight": f16(b["a1"]),
                mix + "a2.weight": f16(b["a2"]),
                mix + "v0.weight": f32(b[v + "0"]),
                mix + "v1.weight": f16(b[v + "1"]),
                mix + "v2.weight": f16(b[v + "2"]),
            }
        )
        if gate:
            t.update({mix + "g1.weight": f16(b["g1"]), mix + "g2.weight": f16(b["g2"])})
        t.update({mix + k + ".weight": f32(b[k]) for k in ("k_k", "k_a", "r_k")})
        t.update({mix + k + ".weight": f16(b[k]) for k in ("receptance", "key", "value", "output")})
        if norm:
            t.update({mix + "ln.weight": f32(b["ln_w"]), mix + "ln.bias": f32(b["ln_b"])})
        t[p + "ffn_norm.weight"] = f32(b["ln2_w"])
        t.update({p + k + ".weight": f16(b[k]) for k in ("ffn_gate", "ffn_up", "ffn_down")})
    meta = {
        "general.architecture": "arwkv7",
        "general.name": "golden " + name,
        "general.file_type": 1,
        "arwkv7.block_count": n,
        "arwkv7.context_length": 1048576,
        "arwkv7.embedding_length": C,
        "arwkv7.feed_forward_length": ff,
        "arwkv7.attention.head_count": 0,
        "arwkv7.attention.layer_norm_rms_epsilon": eps,
        "arwkv7.wkv.head_size": HEAD,
        "arwkv7.attention.decay_lora_rank": RANK["w"],
        "arwkv7.attention.iclr_lora_rank": RANK["a"],
        "arwkv7.attention.value_residual_mix_lora_rank": RANK["v"],
        "arwkv7.attention.gate_lora_rank": RANK["g"] if gate else 0,
        "arwkv7.token_shift_count": 1,
        "arwkv7.vocab_size": V,
        "tokenizer.ggml.model": "no_vocab",
    }
    gguf_write.write(os.path.join(folder, "model.gguf"), meta, t)


def make_all(out):
    make_rwkv7(out)
    make_arwkv7(out, "arwkv7-gate", 41, gate=True, norm=False)
    make_arwkv7(out, "arwkv7-nogate", 42, gate=False, norm=True)
