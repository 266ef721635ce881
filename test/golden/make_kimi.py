"""Kimi Linear, which transformers has no class for: the published equations in float64, token by
token, over tensors with the published names."""

import math
import os

import torch

import make_hf
from common import F64, T, V, Random, entry, fresh, save_tensors, write_config, write_f32
from common import write_golden
from make_hf import MARGIN

D, H, KDA, LATENT, NOPE, ROPE, VALUE, TAPS = 48, 3, 16, 32, 16, 8, 16, 4
N_EXPERTS, USED, FF, DENSE_FF, SCALE, EPS, EPS_LATENT = 6, 3, 20, 60, 2.4, 1e-5, 1e-6
FULL = [2, 4]  # counted from 1
N_LAYERS = 4


def shapes():
    out = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for l in range(N_LAYERS):
        s, m = f"model.layers.{l}.self_attn.", f"model.layers.{l}.block_sparse_moe."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"model.layers.{l}.{norm}.weight"] = (D,)
        if l + 1 in FULL:
            out[s + "q_proj.weight"] = (H * (NOPE + ROPE), D)
            out[s + "kv_a_proj_with_mqa.weight"] = (LATENT + ROPE, D)
            out[s + "kv_a_layernorm.weight"] = (LATENT,)
            out[s + "kv_b_proj.weight"] = (H * (NOPE + VALUE), LATENT)
            out[s + "o_proj.weight"] = (D, H * VALUE)
        else:
            for p in "qkv":
                out[f"{s}{p}_proj.weight"] = (H * KDA, D)
                out[f"{s}{p}_conv1d.weight"] = (H * KDA, 1, TAPS)
            for p in "fg":
                out[f"{s}{p}_a_proj.weight"] = (KDA, D)
                out[f"{s}{p}_b_proj.weight"] = (H * KDA, KDA)
            out[s + "b_proj.weight"] = (H, D)
            out[s + "A_log"] = (1, 1, H, 1)
            out[s + "dt_bias"] = (H * KDA,)
            out[s + "o_norm.weight"] = (KDA,)
            out[s + "o_proj.weight"] = (D, H * KDA)
        if l == 0:
            for p, shape in (("gate", (DENSE_FF, D)), ("up", (DENSE_FF, D)), ("down", (D, DENSE_FF))):
                out[f"model.layers.{l}.mlp.{p}_proj.weight"] = shape
            continue
        out[m + "gate.weight"] = (N_EXPERTS, D)
        out[m + "gate.e_score_correction_bias"] = (N_EXPERTS,)
        for e in range(N_EXPERTS):
            for w, shape in (("w1", (FF, D)), ("w2", (D, FF)), ("w3", (FF, D))):
                out[f"{m}experts.{e}.{w}.weight"] = shape
        for p, shape in (("gate", (FF, D)), ("up", (FF, D)), ("down", (D, FF))):
            out[f"{m}shared_experts.{p}_proj.weight"] = shape
    return out


def random_tensor(rnd, name, shape):
    if name.endswith("A_log"):
        return rnd.around(*shape, centre=-1.2, spread=1.0)
    if "conv1d" in name:
        return rnd.normal(*shape, gain=1.3)
    if "kv_a_proj" in name:
        return rnd.normal(*shape)
    if name.endswith("gate.weight"):
        return rnd.normal(*shape, gain=2.0)
    return make_hf.random_tensor(rnd, name, shape, False)


def rms(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def unit(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def conv(x, w):
    """The output of each token from the TAPS latest of its column."""
    past = torch.cat([x.new_zeros(TAPS - 1, x.shape[1]), x])
    return torch.nn.functional.silu(sum(past[i : i + len(x)] * w[:, 0, i] for i in range(TAPS)))


def delta(w, s, h):
    q, k, v = (conv(h @ w[f"{s}{p}_proj.weight"].T, w[f"{s}{p}_conv1d.weight"]) for p in "qkv")
    q, k, v = (x.view(-1, H, KDA) for x in (q, k, v))
    q, k = unit(q) / math.sqrt(KDA), unit(k)
    low = lambda p: h @ w[f"{s}{p}_a_proj.weight"].T @ w[f"{s}{p}_b_proj.weight"].T
    g = torch.nn.functional.softplus(low("f") + w[s + "dt_bias"]).view(-1, H, KDA)
    g = torch.exp(-torch.exp(w[s + "A_log"].view(H, 1)) * g)
    beta = torch.sigmoid(h @ w[s + "b_proj.weight"].T)
    y = torch.empty_like(v)
    for i in range(H):
        S = h.new_zeros(KDA, KDA)  # [key][value]
        for t in range(len(h)):
            S = S * g[t, i][:, None]
            S = S + torch.outer(k[t, i], beta[t, i] * (v[t, i] - k[t, i] @ S))
            y[t, i] = q[t, i] @ S
    y = rms(y, w[s + "o_norm.weight"], EPS) * torch.sigmoid(low("g").view(-1, H, KDA))
    return y.reshape(len(h), -1) @ w[s + "o_proj.weight"].T


def latent(w, s, h):
    """In expanded form, and without rotation."""
    n = len(h)
    q = (h @ w[s + "q_proj.weight"].T).view(n, H, NOPE + ROPE)
    kv = h @ w[s + "kv_a_proj_with_mqa.weight"].T
    c = rms(kv[:, :LATENT], w[s + "kv_a_layernorm.weight"], EPS_LATENT)
    kb = (c @ w[s + "kv_b_proj.weight"].T).view(n, H, NOPE + VALUE)
    k = torch.cat([kb[..., :NOPE], kv[:, None, LATENT:].expand(n, H, ROPE)], -1)
    z = torch.einsum("thd,uhd->htu", q, k) / math.sqrt(NOPE + ROPE)
    p = torch.softmax(z + torch.full((n, n), -math.inf, dtype=h.dtype).triu(1), -1)
    return torch.einsum("htu,uhd->thd", p, kb[..., NOPE:]).reshape(n, -1) @ w[s + "o_proj.weight"].T


def swiglu(h, gate, up, down):
    return (torch.nn.functional.silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(w, m, h, leads):
    score = torch.sigmoid(h @ w[m + "gate.weight"].T)
    top = torch.sort(score + w[m + "gate.e_score_correction_bias"], descending=True)
    leads.append(float((top.values[:, USED - 1] - top.values[:, USED]).min()))
    y = swiglu(h, *(w[f"{m}shared_experts.{p}_proj.weight"] for p in ("gate", "up", "down")))
    for t in range(len(h)):
        ids = top.indices[t, :USED]
        part = score[t, ids] / score[t, ids].sum() * SCALE
        for e, f in zip(ids.tolist(), part):
            y[t] = y[t] + f * swiglu(h[t], *(w[f"{m}experts.{e}.{k}.weight"] for k in ("w1", "w3", "w2")))
    return y


def forward(w, tokens):
    leads, x = [], w["model.embed_tokens.weight"][tokens]
    for l in range(N_LAYERS):
        p = f"model.layers.{l}."
        h = rms(x, w[p + "input_layernorm.weight"], EPS)
        x = x + (latent if l + 1 in FULL else delta)(w, p + "self_attn.", h)
        h = rms(x, w[p + "post_attention_layernorm.weight"], EPS)
        if l == 0:
            x = x + swiglu(h, *(w[f"{p}mlp.{k}_proj.weight"] for k in ("gate", "up", "down")))
        else:
            x = x + experts(w, p + "block_sparse_moe.", h, leads)
    return rms(x, w["model.norm.weight"], EPS) @ w["lm_head.weight"].T, min(leads)


CONFIG = dict(
    architectures=["KimiLinearForCausalLM"],
    model_type="kimi_linear",
    bos_token_id=1,
    eos_token_id=2,
    first_k_dense_replace=1,
    head_dim=NOPE,
    hidden_act="silu",
    hidden_size=D,
    initializer_range=0.02,
    intermediate_size=DENSE_FF,
    kv_lora_rank=LATENT,
    linear_attn_config=dict(
        full_attn_layers=FULL,
        head_dim=KDA,
        kda_layers=[l + 1 for l in range(N_LAYERS) if l + 1 not in FULL],
        num_heads=H,
        short_conv_kernel_size=TAPS,
    ),
    mla_use_nope=True,
    model_max_length=256,
    moe_intermediate_size=FF,
    moe_layer_freq=1,
    moe_renormalize=True,
    moe_router_activation_func="sigmoid",
    num_attention_heads=H,
    num_expert_group=1,
    num_experts=N_EXPERTS,
    num_experts_per_token=USED,
    num_hidden_layers=N_LAYERS,
    num_key_value_heads=H,
    num_nextn_predict_layers=0,
    num_shared_experts=1,
    q_lora_rank=None,
    qk_nope_head_dim=NOPE,
    qk_rope_head_dim=ROPE,
    rms_norm_eps=EPS,
    rope_scaling=None,
    rope_theta=10000.0,
    routed_scaling_factor=SCALE,
    tie_word_embeddings=False,
    topk_group=1,
    use_cache=True,
    use_grouped_topk=True,
    v_head_dim=VALUE,
    vocab_size=V,
)


@torch.no_grad()
def make_all(out):
    seed = 620
    while True:
        rnd = Random(seed)
        w = {k: random_tensor(rnd, k, s) for k, s in sorted(shapes().items())}
        tokens = rnd.tokens()
        logits, lead = forward(w, tokens)
        if lead > MARGIN:
            break
        seed += 1
    spread = float(logits.max() - logits.min())
    assert spread > 4, spread
    folder = fresh(out, "kimi_linear")
    halves = {k: t.to(torch.float32 if k.endswith("correction_bias") else torch.float16) for k, t in w.items()}
    save_tensors(os.path.join(folder, "model.safetensors"), halves)
    write_config(folder, CONFIG)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    write_golden(
        folder,
        tokens,
        D,
        N_LAYERS,
        dict(logits=entry("logits.f32", T, V)),
        source="published equations",
        seed=seed,
        rms_eps=EPS,
        checks=dict(logit_range=spread, router_lead=lead),
    )
    print("kimi_linear seed", seed, spread, lead)
