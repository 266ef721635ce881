"""Models of transformers' own classes: llama, mistral, qwen2, qwen3, qwen3_moe, glm4_moe_lite (with
an MTP block of own_models.py's), the same weights in other spellings, and the llama as GGUF."""

import json
import math
import os
import re

import numpy as np
import torch

import gguf_write
import own_models as own
from common import F64, T, V, Random, entry, fresh, load_tensors, read_config
from common import save_tensors, write_config, write_f32, write_golden

ROPE = lambda theta: dict(rope_type="default", rope_theta=theta)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=48,
)
# An expert is chosen the same in any sane arithmetic when its score leads by this much.
MARGIN = 3e-4

# name: (class prefix, seed, config)
HF = {
    "llama": (
        "Llama",
        11,
        dict(
            hidden_size=60,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=10,
            intermediate_size=52,
            rms_norm_eps=1e-3,
            rope_parameters=LLAMA3,
            max_position_embeddings=384,
            tie_word_embeddings=True,
        ),
    ),
    "llama-untied": (
        "Llama",
        12,
        dict(
            hidden_size=56,
            num_hidden_layers=2,
            num_attention_heads=7,
            num_key_value_heads=1,
            intermediate_size=74,
            rms_norm_eps=1e-5,
            rope_parameters=ROPE(1e4),
            max_position_embeddings=256,
            attention_bias=True,
        ),
    ),
    "mistral": (
        "Mistral",
        13,
        dict(
            hidden_size=52,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=70,
            rms_norm_eps=1e-5,
            rope_parameters=ROPE(1e4),
            max_position_embeddings=256,
            sliding_window=None,
        ),
    ),
    "qwen2": (
        "Qwen2",
        14,
        dict(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=62,
            rms_norm_eps=1e-6,
            rope_parameters=ROPE(1e3),
            max_position_embeddings=256,
        ),
    ),
    "qwen3": (
        "Qwen3",
        15,
        dict(
            hidden_size=44,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=14,
            intermediate_size=66,
            rms_norm_eps=1e-6,
            rope_parameters=ROPE(1e3),
            max_position_embeddings=256,
        ),
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        100,
        dict(
            hidden_size=42,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            intermediate_size=64,
            moe_intermediate_size=22,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            rms_norm_eps=1e-6,
            rope_parameters=ROPE(1e3),
            max_position_embeddings=256,
        ),
    ),
    "glm4_moe_lite": (
        "Glm4MoeLite",
        200,
        dict(
            hidden_size=36,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=20,
            kv_lora_rank=32,
            qk_nope_head_dim=24,
            qk_rope_head_dim=8,
            v_head_dim=16,
            intermediate_size=60,
            moe_intermediate_size=14,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            routed_scaling_factor=1.8,
            n_group=1,
            topk_group=1,
            rms_norm_eps=1e-5,
            rope_parameters=ROPE(1e3),
            max_position_embeddings=256,
        ),
    ),
}

# First match wins. Small embeddings and latents make the norms' epsilons visible.
GAINS = [
    (r"lm_head|shared_head\.head", 3.0),
    (r"[qk]_proj", 1.8),
    (r"q_b_proj", 2.2),
    (r"q_a_proj", 0.02),
    (r"kv_b_proj", 1.8),
    (r"mlp\.gate\.", 2.0),
    (r"down_proj", 1.0),
    (r"gate_up_proj|gate_proj|up_proj", 1.4),
    (r"eh_proj", 0.7),
    (r"", 1.0),
]


def random_tensor(rnd, name, shape, tied):
    if name.endswith("e_score_correction_bias"):
        return rnd.vector(math.prod(shape), 0.25).reshape(shape)
    if name.endswith("sinks"):
        return rnd.vector(shape[0], 1.5)
    if name.endswith("_bias"):
        return rnd.vector(math.prod(shape), 0.4).reshape(shape)
    if re.search(r"[qk]_norm\.weight", name):
        return rnd.around(*shape, centre=1.7, spread=0.5)
    if name.endswith("bias"):
        return rnd.vector(shape[0], 0.4)
    if len(shape) == 1:
        return rnd.around(*shape)
    if "embed_tokens" in name:
        return rnd.f16(rnd.normal(*shape) * math.sqrt(shape[-1]) * (0.35 if tied else 0.02))
    t = rnd.normal(*shape, gain=next(g for r, g in GAINS if re.search(r, name)))
    if "kv_a_proj_with_mqa" in name:
        t[:-8] = rnd.f16(t[:-8] * 0.02)
        t[-8:] = rnd.f16(t[-8:] * 1.8)
    return t


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=F64)


def mxfp4(w):
    """[experts][in][out] rounded: nibbles [experts][out][in / 32][32], scales, and the values."""
    b = w.transpose(1, 2).reshape(w.shape[0], w.shape[2], -1, 32)
    e = torch.floor(torch.log2(b.abs().amax(-1).clamp_min(1e-9))) - 2
    n = (b[..., None] / 2 ** e[..., None, None] - FP4).abs().argmin(-1)
    back = (FP4[n] * 2 ** e[..., None]).reshape(w.shape[0], w.shape[2], -1).transpose(1, 2)
    return n, (e + 127).to(torch.uint8), back


# ---- transformers' models -------------------------------------------------------------------


def build(name, seed):
    import transformers

    prefix, _, cfg = HF[name]
    config_class = {"Gemma3": "Gemma3Text", "Gemma4": "Gemma4Text", "Llama4": "Llama4Text"}.get(prefix, prefix) + "Config"
    config = getattr(transformers, config_class)(
        vocab_size=V,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        **{"tie_word_embeddings": False, **cfg},
    )
    config._experts_implementation = "eager"
    model = getattr(transformers, prefix + "ForCausalLM")(config).double().eval()
    model.set_attn_implementation("eager")
    rnd = Random(seed)
    named = dict(model.named_parameters())
    kept = ("e_score_correction_bias", "layer_scalar")
    named.update({k: b for k, b in model.named_buffers() if k.endswith(kept)})
    with torch.no_grad():
        for key in sorted(named):
            named[key].copy_(random_tensor(rnd, key, named[key].shape, config.tie_word_embeddings))
            if prefix in ("Gemma2", "Gemma3") and "norm" in key:  # they are added to 1
                named[key].sub_(1)
            if prefix == "GptOss" and key.endswith("gate_up_proj"):  # past the limit of 7
                named[key].mul_(3)
            if prefix == "GptOss" and "experts" in key and named[key].dim() == 3:
                named[key].copy_(mxfp4(named[key])[2])
    return model, rnd


def feed_forward(layer):
    return layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp


def forward(model, tokens):
    """Logits, hidden states after each layer, the final norm's output, attention, router inputs."""
    layers, normed, routed, hooks = [], [], [], []
    for layer in model.model.layers:
        hooks.append(
            layer.register_forward_hook(
                lambda m, i, o: layers.append((o[0] if isinstance(o, tuple) else o)[0])
            )
        )
        mlp = feed_forward(layer)
        gate = getattr(mlp, "gate", getattr(mlp, "router", None))
        gate = layer.router.proj if hasattr(layer, "router") else gate
        if gate is not None:
            hooks.append(
                gate.register_forward_hook(
                    lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
                )
            )
    hooks.append(model.model.norm.register_forward_hook(lambda m, i, o: normed.append(o[0])))
    with torch.no_grad():
        out = model(tokens[None], output_attentions=True, use_cache=False)
    for h in hooks:
        h.remove()
    return out.logits[0], torch.stack(layers), normed[0], out.attentions, routed


def peakedness(attentions):
    """Mean attention entropy over that of uniform attention, rows 16 and later."""
    ratios = []
    for a in attentions:
        p = a[0, :, 16:].double()
        entropy = -(p * torch.log(p.clamp_min(1e-300))).sum(-1)
        ratios.append(float((entropy / torch.log(torch.arange(17, T + 1, dtype=F64))).mean()))
    return max(ratios)


@torch.no_grad()
def routing(model, routed):
    """Smallest lead of a chosen expert, and how often the bias changes the choice."""
    k = getattr(model.config, "num_experts_per_tok", getattr(model.config, "top_k_experts", 0))
    lead, changed = [], []
    for gate, x in routed:
        score = x.double() @ gate.weight.double().T
        if getattr(gate, "bias", None) is not None:
            score += gate.bias.double()
        bias = getattr(gate, "e_score_correction_bias", None)
        softmax = bias is None or hasattr(gate, "moe_statics")  # ERNIE's has a bias too
        score = torch.softmax(score, -1) if softmax else torch.sigmoid(score)
        biased = score if bias is None else score + bias.double()
        n, used = getattr(model.config, "n_group", 1) or 1, getattr(model.config, "topk_group", 1)
        if n > 1 and not softmax:
            groups = biased.view(len(biased), n, -1)
            best = torch.sort(groups.topk(2).values.sum(-1), descending=True)
            lead.append(float((best.values[:, used - 1] - best.values[:, used]).min()))
            out = torch.ones(len(biased), n, dtype=torch.bool).scatter(1, best.indices[:, :used], False)
            biased = groups.masked_fill(out[..., None], -10).view_as(biased)
        top = torch.sort(biased, descending=True).values
        lead.append(float((top[:, k - 1] - top[:, k]).min()))
        sets = [torch.sort(s.topk(k).indices).values for s in (score, biased)]
        changed.append(float((sets[0] != sets[1]).any(-1).double().mean()))
    return min(lead, default=1.0), min(changed, default=0.0)


def moved_by_eps(model, tokens, logits, names=""):
    """How far ten times the epsilon moves the logits, over their range: small would mean that a
    wrong epsilon goes unseen."""
    norms = [
        m
        for n, m in model.named_modules()
        if hasattr(m, "variance_epsilon") and re.search(names, n)
    ]
    for m in norms:
        m.variance_epsilon *= 10
    moved = float((forward(model, tokens)[0] - logits).abs().max() / (logits.max() - logits.min()))
    for m in norms:
        m.variance_epsilon /= 10
    return moved


def make_hf(out, name):
    _, seed, _ = HF[name]
    while True:
        model, rnd = build(name, seed)
        tokens = rnd.tokens()
        logits, layers, normed, attentions, routed = forward(model, tokens)
        lead, changed = routing(model, routed)
        if lead > MARGIN:
            break
        seed += 1
    logits32 = forward(model.float(), tokens)[0]
    model.double()
    spread = float(logits.max() - logits.min())
    noise = float((logits32.double() - logits).abs().max()) / spread
    entropy = peakedness(attentions)
    assert entropy < 0.7, (name, entropy)
    assert spread > 6 and float(logits.std()) > 1, (name, spread)
    assert noise < 1e-5, (name, noise)
    checks = dict(
        entropy_of_uniform=entropy,
        logit_range=spread,
        f32_noise=noise,
        moved_by_eps=moved_by_eps(model, tokens, logits),
    )
    if routed:
        checks["router_lead"] = lead
    if name == "glm4_moe_lite":
        checks["bias_changes_choice"] = changed
        checks["moved_by_inner_eps"] = moved_by_eps(model, tokens, logits, "_a_layernorm")
        assert changed > 0.25 and checks["moved_by_inner_eps"] > 1e-3, (name, checks)
    assert checks["moved_by_eps"] > 1e-3, (name, checks)

    folder = fresh(out, name)
    d, n_layer = model.config.hidden_size, model.config.num_hidden_layers
    write_f32(os.path.join(folder, "logits.f32"), logits)
    write_f32(os.path.join(folder, "layers.f32"), layers)
    model.half()
    for key, b in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            b.data = b.data.float()
    model.save_pretrained(folder)
    golden = dict(
        source="transformers", seed=seed, rms_eps=model.config.rms_norm_eps, checks=checks
    )
    files = dict(logits=entry("logits.f32", T, V), layers=entry("layers.f32", n_layer, T, d))
    if name == "glm4_moe_lite":
        golden["inner_rms_eps"] = 1e-6
        files["mtp_logits"] = entry("mtp_logits.f32", T - 1, V)
        checks.update(make_mtp(folder, model, rnd, tokens, layers, normed))
    write_golden(folder, tokens, d, n_layer, files, **golden)
    print(name, "seed", seed, checks)
    return model, tokens


# ---- GLM's MTP block ------------------------------------------------------------------------


def layer_weights(tensors, n):
    """float64 tensors of layer n, by their names inside it without '.weight'."""
    prefix = f"model.layers.{n}."
    w = {
        k[len(prefix) :].removesuffix(".weight"): t.double()
        for k, t in tensors.items()
        if k.startswith(prefix)
    }
    w["bias"] = w["mlp.gate.e_score_correction_bias"]
    return w


def make_mtp(folder, model, rnd, tokens, layers, normed):
    c = model.config
    cfg = dict(
        heads=c.num_attention_heads,
        nope=c.qk_nope_head_dim,
        rope=c.qk_rope_head_dim,
        v=c.v_head_dim,
        kv_lora=c.kv_lora_rank,
        eps=c.rms_norm_eps,
        inner_eps=1e-6,
        theta=c.rope_parameters["rope_theta"],
        top_k=c.num_experts_per_tok,
        scale=c.routed_scaling_factor,
    )
    tensors = load_tensors(folder)
    mine = own.glm_block(layers[0].double(), layer_weights(tensors, 1), cfg, [])
    agreement = float((mine - layers[1]).abs().max() / layers[1].abs().max())
    assert agreement < 1e-5, agreement

    n, d = c.num_hidden_layers, c.hidden_size
    shapes = {
        k.replace("layers.1.", f"layers.{n}.", 1): (t.shape, t.dtype)
        for k, t in tensors.items()
        if k.startswith("model.layers.1.")
    }
    for key, shape in {
        "eh_proj.weight": (d, 2 * d),
        "enorm.weight": (d,),
        "hnorm.weight": (d,),
        "embed_tokens.weight": (V, d),
        "shared_head.norm.weight": (d,),
        "shared_head.head.weight": (V, d),
    }.items():
        shapes[f"model.layers.{n}.{key}"] = (shape, torch.float16)
    while True:
        block = {
            k: random_tensor(rnd, k, shape, False).to(dtype)
            for k, (shape, dtype) in sorted(shapes.items())
        }
        margins = []
        logits = own.glm_mtp(
            normed[: T - 1].double(), tokens[1:], layer_weights(block, n), cfg, margins
        )
        if min(margins) > MARGIN:
            break
    save_tensors(os.path.join(folder, "model.safetensors"), {**tensors, **block})
    write_config(folder, dict(read_config(folder), num_nextn_predict_layers=1))
    write_f32(os.path.join(folder, "mtp_logits.f32"), logits)
    return dict(
        own_block_against_transformers=agreement,
        mtp_router_lead=min(margins),
        mtp_logit_range=float(logits.max() - logits.min()),
    )


# ---- the same weights, spelled otherwise ----------------------------------------------------


def variant(out, name, of, tensors=None, config=None):
    """A directory with another spelling whose logits are those of `of`."""
    folder = fresh(out, name)
    with open(os.path.join(out, of, "golden.json")) as f:
        golden = json.load(f)
    golden["files"] = {
        k: dict(v, path=f"../{of}/{v['path']}")
        for k, v in golden["files"].items()
        if k != "mtp_logits"
    }
    golden["same_as"] = of
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
    if tensors is not None:
        save_tensors(os.path.join(folder, "model.safetensors"), tensors)
    if config is not None:
        write_config(folder, config)
    return folder


def old_config(cfg):
    """config.json as releases before transformers 5 spelled it."""
    cfg = dict(cfg)
    rope = dict(cfg.pop("rope_parameters"))
    cfg["rope_theta"] = rope.pop("rope_theta")
    cfg["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    cfg["torch_dtype"] = cfg.pop("dtype")
    cfg["transformers_version"] = "4.57.0"
    return cfg


def fuse_experts(tensors):
    """Per-expert matrices to experts.gate_up_proj [E][2f][d] and experts.down_proj [E][d][f]."""
    out, groups = {}, {}
    for k, t in tensors.items():
        m = re.fullmatch(r"(.*\.experts\.)(\d+)\.(gate|up|down)_proj\.weight", k)
        if m:
            groups.setdefault(m[1], {})[int(m[2]), m[3]] = t
        else:
            out[k] = t
    assert groups, "save_pretrained wrote fused experts: write the splitter instead"
    for prefix, g in groups.items():
        n = 1 + max(e for e, _ in g)
        out[prefix + "gate_up_proj"] = torch.stack(
            [torch.cat([g[e, "gate"], g[e, "up"]]) for e in range(n)]
        )
        out[prefix + "down_proj"] = torch.stack([g[e, "down"] for e in range(n)])
    return out


def make_variants(out, llama):
    cfg = old_config(read_config(os.path.join(out, "llama")))
    cfg.pop("head_dim")
    folder = variant(out, "llama-shards", "llama")
    size = sum(p.numel() * 2 for p in llama.parameters())
    llama.save_pretrained(folder, max_shard_size=int(size * 0.6))
    write_config(folder, cfg)
    assert len([f for f in os.listdir(folder) if f.endswith(".safetensors")]) == 2, os.listdir(
        folder
    )

    moe = os.path.join(out, "qwen3_moe")
    cfg = old_config(read_config(moe))
    if "num_local_experts" in cfg:
        cfg["num_experts"] = cfg.pop("num_local_experts")
    variant(out, "qwen3_moe-fused", "qwen3_moe", fuse_experts(load_tensors(moe)), cfg)

    glm = os.path.join(out, "glm4_moe_lite")
    cfg = old_config(read_config(glm))
    cfg.pop("mlp_layer_types", None)
    cfg.update(first_k_dense_replace=1, topk_method="noaux_tc")
    last = f"model.layers.{cfg['num_hidden_layers']}."
    tensors = {k: t for k, t in load_tensors(glm).items() if not k.startswith(last)}
    variant(out, "glm4_moe_lite-fused", "glm4_moe_lite", fuse_experts(tensors), cfg)


def make_llama_gguf(out, model, tokens):
    """The llama as F32 GGUF: rows of q and k permuted, the rope factors as a tensor."""
    c, sd = model.config, {k: t.double() for k, t in model.state_dict().items()}
    H, KV, hd = c.num_attention_heads, c.num_key_value_heads, c.head_dim

    def permute(w, heads):
        order = [
            h * hd + j * (hd // 2) + i for h in range(heads) for i in range(hd // 2) for j in (0, 1)
        ]
        return w[order]

    factors = []
    for i in range(hd // 2):
        wave = 2 * math.pi * LLAMA3["rope_theta"] ** (2 * i / hd)
        turns = LLAMA3["original_max_position_embeddings"] / wave
        s = (turns - 1.0) / (4.0 - 1.0)
        factors.append(1.0 if turns > 4 else 8.0 if turns < 1 else 1 / ((1 - s) / 8.0 + s))
    assert factors[0] == 1 and factors[-1] == 8 and any(1 < f < 8 for f in factors), factors
    t = {
        "token_embd.weight": sd["model.embed_tokens.weight"],
        "output_norm.weight": sd["model.norm.weight"],
        "rope_freqs.weight": torch.tensor(factors, dtype=F64),
    }
    for l in range(c.num_hidden_layers):
        p = {k.removeprefix(f"model.layers.{l}.").removesuffix(".weight"): w for k, w in sd.items()}
        t.update(
            {
                f"blk.{l}.{k}.weight": w
                for k, w in {
                    "attn_norm": p["input_layernorm"],
                    "attn_q": permute(p["self_attn.q_proj"], H),
                    "attn_k": permute(p["self_attn.k_proj"], KV),
                    "attn_v": p["self_attn.v_proj"],
                    "attn_output": p["self_attn.o_proj"],
                    "ffn_norm": p["post_attention_layernorm"],
                    "ffn_gate": p["mlp.gate_proj"],
                    "ffn_up": p["mlp.up_proj"],
                    "ffn_down": p["mlp.down_proj"],
                }.items()
            }
        )
    L = c.num_hidden_layers
    want = torch.from_numpy(
        np.fromfile(os.path.join(out, "llama", "logits.f32"), "<f4").reshape(T, V)
    ).double()
    got = own.llama_gguf(
        t, L, [H] * L, [KV] * L, c.rms_norm_eps, LLAMA3["rope_theta"], tokens
    )
    error = float((got - want).abs().max() / (want.max() - want.min()))
    assert error < 1e-5, error
    folder = variant(out, "llama-gguf", "llama")
    meta = {
        "general.architecture": "llama",
        "general.name": "golden llama",
        "general.file_type": 0,
        "llama.block_count": c.num_hidden_layers,
        "llama.context_length": c.max_position_embeddings,
        "llama.embedding_length": c.hidden_size,
        "llama.feed_forward_length": c.intermediate_size,
        "llama.attention.head_count": H,
        "llama.attention.head_count_kv": KV,
        "llama.attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "llama.rope.freq_base": 500.0,
        "llama.rope.dimension_count": hd,
        "llama.vocab_size": V,
        "tokenizer.ggml.model": "no_vocab",
    }
    gguf_write.write(
        os.path.join(folder, "model.gguf"), meta, {k: w.numpy().astype("<f4") for k, w in t.items()}
    )
    print("llama-gguf error", error)


def make_all(out):
    made = {name: make_hf(out, name) for name in HF}
    make_variants(out, made["llama"][0])
    make_llama_gguf(out, *made["llama"])
