"""Models of attention beside short convolutions or Mamba-2, from transformers' own classes. Mamba's
scan is replaced by a float64 loop over tokens; how far their own chunked form is from it is among
the checks."""

import json
import math
import os
import re
import sys

import torch

import make_hf
from common import F64, T, V, Random, entry, fresh, load_tensors, read_config, save_tensors
from common import write_f32, write_golden
from make_hf import MARGIN, ROPE

CONV, FULL, MAMBA, MOE, MLP = "conv", "full_attention", "linear_attention", "moe", "mlp"
LFM2 = dict(
    hidden_size=48,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=60,
    norm_eps=1e-3,
    rope_parameters=ROPE(1e2),
    max_position_embeddings=256,
)
NEMOTRON = dict(
    hidden_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=52,
    layer_norm_epsilon=1e-3,
    ssm_state_size=32,
    mamba_num_heads=6,
    mamba_head_dim=12,
    n_groups=2,
    conv_kernel=4,
    max_position_embeddings=256,
)
MAMBA2 = dict(
    mamba_n_heads=6,
    mamba_d_head=16,
    mamba_d_state=16,
    mamba_n_groups=2,
    mamba_d_conv=4,
)

# name: (class prefix, seed, config)
HYBRID = {
    "lfm2": (
        "Lfm2",
        601,
        dict(
            LFM2,
            num_hidden_layers=4,
            layer_types=[CONV, FULL, CONV, CONV],
            block_multiple_of=16,
            block_ffn_dim_multiplier=1.3,
        ),
    ),
    "lfm2_moe": (
        "Lfm2Moe",
        602,
        dict(
            LFM2,
            num_hidden_layers=4,
            layer_types=[CONV, CONV, FULL, CONV],
            conv_L_cache=4,
            moe_intermediate_size=20,
            num_dense_layers=1,
            num_experts=8,
            num_experts_per_tok=3,
            routed_scaling_factor=1.7,
        ),
    ),
    "nemotron_h": (
        "NemotronH",
        603,
        dict(NEMOTRON, layers_block_type=[MAMBA, MLP, FULL, MAMBA, MLP]),
    ),
    "nemotron_h_moe": (
        "NemotronH",
        604,
        dict(
            NEMOTRON,
            layers_block_type=[MAMBA, MOE, FULL, MOE, MAMBA],
            moe_intermediate_size=20,
            moe_shared_expert_intermediate_size=36,
            n_routed_experts=8,
            num_experts_per_tok=3,
            routed_scaling_factor=1.8,
        ),
    ),
    "nemotron_h_latent": (
        "NemotronH",
        605,
        dict(
            NEMOTRON,
            layers_block_type=[MAMBA, FULL, MOE],
            moe_intermediate_size=20,
            moe_shared_expert_intermediate_size=36,
            moe_latent_size=28,
            n_routed_experts=6,
            num_experts_per_tok=2,
        ),
    ),
    "granite_h": (
        "GraniteMoeHybrid",
        606,
        dict(
            MAMBA2,
            mamba_n_groups=1,  # of more its norm is not by group, as Mamba's is elsewhere
            hidden_size=48,
            num_hidden_layers=3,
            layer_types=[MAMBA, FULL, MAMBA],
            num_attention_heads=3,
            num_key_value_heads=1,
            intermediate_size=20,
            shared_intermediate_size=36,
            num_local_experts=6,
            num_experts_per_tok=3,
            rms_norm_eps=1e-3,
            embedding_multiplier=3.0,
            residual_multiplier=0.7,
            attention_multiplier=0.3,
            logits_scaling=0.3,
            tie_word_embeddings=True,
            max_position_embeddings=256,
        ),
    ),
    "granite_h_dense": (
        "GraniteMoeHybrid",
        607,
        dict(
            MAMBA2,
            mamba_n_groups=1,  # of more its norm is not by group, as Mamba's is elsewhere
            hidden_size=48,
            num_hidden_layers=3,
            layer_types=[MAMBA, FULL, MAMBA],
            num_attention_heads=3,
            num_key_value_heads=1,
            shared_intermediate_size=60,
            num_local_experts=0,
            position_embedding_type="rope",
            rope_parameters=ROPE(1e2),
            attention_multiplier=0.4,
            max_position_embeddings=256,
        ),
    ),
    # no block of Mamba: the architecture is Granite's
    "granite_4": (
        "GraniteMoeHybrid",
        610,
        dict(
            hidden_size=48,
            num_hidden_layers=2,
            layer_types=[FULL, FULL],
            num_attention_heads=3,
            num_key_value_heads=1,
            shared_intermediate_size=60,
            num_local_experts=0,
            position_embedding_type="rope",
            rope_parameters=ROPE(1e2),
            mamba_n_heads=6,
            attention_multiplier=0.4,
            embedding_multiplier=2.0,
            tie_word_embeddings=True,
            max_position_embeddings=256,
        ),
    ),
    # powers of two, so that matrices times them are exact in F16
    "falcon_h1": (
        "FalconH1",
        608,
        dict(
            MAMBA2,
            mamba_d_ssm=96,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            intermediate_size=60,
            rms_norm_eps=1e-3,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            rope_parameters=ROPE(1e2),
            embedding_multiplier=4.0,
            lm_head_multiplier=0.5,
            key_multiplier=0.5,
            attention_in_multiplier=2.0,
            attention_out_multiplier=0.5,
            mlp_multipliers=[2.0, 0.25],
            ssm_multipliers=[0.5, 2.0, 0.25, 4.0, 0.5],
            ssm_in_multiplier=2.0,
            ssm_out_multiplier=0.5,
            max_position_embeddings=256,
        ),
    ),
    "falcon_h1_plain": (
        "FalconH1",
        609,
        dict(
            MAMBA2,
            mamba_d_ssm=96,
            hidden_size=40,
            num_hidden_layers=2,
            num_attention_heads=5,
            num_key_value_heads=1,
            intermediate_size=52,
            rope_parameters=ROPE(1e2),
            tie_word_embeddings=True,
            max_position_embeddings=256,
        ),
    ),
}


def scan(x, dt, A, B, C, chunk_size, D=None, dt_bias=None, dt_limit=None, **kwargs):
    """S = exp(dt·A)·S + dt·x·Bᵀ, y = S·C + D·x, token by token."""
    dtype = x.dtype
    x, dt, A, B, C, D = (v.to(F64) for v in (x, dt, A, B, C, D))
    dt = torch.nn.functional.softplus(dt + dt_bias.to(F64))
    y, per = torch.empty_like(x), x.shape[2] // B.shape[2]
    for h in range(x.shape[2]):
        S = torch.zeros(x.shape[3], B.shape[3], dtype=F64)
        for t in range(x.shape[1]):
            b, c = B[0, t, h // per], C[0, t, h // per]
            S = S * torch.exp(dt[0, t, h] * A[h]) + torch.outer(dt[0, t, h] * x[0, t, h], b)
            y[0, t, h] = S @ c + D[h] * x[0, t, h]
    return y.to(dtype)


def random_tensor(rnd, name, shape, tied):
    if name.endswith("A_log"):
        return rnd.around(*shape, centre=-1.2, spread=1.0)
    if name.endswith("expert_bias"):
        return rnd.vector(shape[0], 0.25)
    if re.search(r"conv(1d)?\.weight", name):
        return rnd.normal(*shape, gain=1.3)
    if name.endswith("embeddings.weight"):
        return rnd.f16(rnd.normal(*shape) * math.sqrt(shape[-1]) * 0.1)
    if "layernorm.weight" in name and re.search(r"[qk]_layernorm", name):
        return rnd.around(*shape, centre=1.7, spread=0.5)
    if re.search(r"(router\.layer|\.gate)\.weight", name):
        return rnd.normal(*shape, gain=2.0)
    return make_hf.random_tensor(rnd, name, shape, tied)


def build(name, seed):
    import transformers

    prefix, _, cfg = HYBRID[name]
    tied = {} if prefix.startswith("Lfm2") else {"tie_word_embeddings": False}
    config = getattr(transformers, prefix + "Config")(
        vocab_size=V, bos_token_id=1, eos_token_id=2, pad_token_id=None, **{**tied, **cfg}
    )
    config._experts_implementation = "eager"
    model = getattr(transformers, prefix + "ForCausalLM")(config).double().eval()
    model.set_attn_implementation("eager")
    rnd = Random(seed)
    named = dict(model.named_parameters())
    named.update({k: b for k, b in model.named_buffers() if k.endswith("bias")})
    with torch.no_grad():
        for key in sorted(named):
            named[key].copy_(random_tensor(rnd, key, named[key].shape, config.tie_word_embeddings))
    return model, rnd


@torch.no_grad()
def forward(model, tokens):
    """Logits in the precision of the model, and each router with its inputs."""
    routed, heads, hooks = [], [], []
    for key, m in model.named_modules():
        if key.endswith((".gate", ".router")):
            hooks.append(
                m.register_forward_hook(
                    lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
                )
            )
    hooks.append(model.lm_head.register_forward_hook(lambda m, i, o: heads.append(o[0])))
    logits = model(tokens[None], use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return (heads[0] if type(model).__name__.startswith("Nemotron") else logits), routed


@torch.no_grad()
def smallest_lead(model, routed):
    """Of a chosen expert over the next, and how often a bias changes the choice."""
    lead, changed = 1.0, []
    k = getattr(model.config, "num_experts_per_tok", 0)
    biases = {m.gate: m.expert_bias for m in model.modules() if hasattr(m, "expert_bias")}
    for gate, x in routed:
        w = gate.layer.weight if hasattr(gate, "layer") else gate.weight
        score = x.double() @ w.double().T
        bias = biases.get(gate, getattr(gate, "e_score_correction_bias", None))
        score = torch.softmax(score, -1) if bias is None else torch.sigmoid(score)
        biased = score if bias is None else score + bias.double()
        top = torch.sort(biased, descending=True).values
        lead = min(lead, float((top[:, k - 1] - top[:, k]).min()))
        sets = [torch.sort(s.topk(k).indices).values for s in (score, biased)]
        changed.append(float((sets[0] != sets[1]).any(-1).double().mean()))
    return lead, min(changed, default=0.0)


def publish(folder, name):
    """Names and configuration as published files have them."""
    config = read_config(folder)
    config["transformers_version"] = "5"
    types = config.get("layer_types") or config.get("layers_block_type")
    if name.startswith("nemotron"):
        tensors = load_tensors(folder)
        moved = {re.sub(r"^(model|backbone)\.", "backbone.", k): w for k, w in tensors.items()}
        moved = {k.replace(".embedding.", ".embeddings."): w for k, w in moved.items()}
        save_tensors(os.path.join(folder, "model.safetensors"), moved)
        for key in ("layer_types", "layers_block_type"):
            config.pop(key, None)
        letters = {MAMBA: "M", "mamba": "M", FULL: "*", "attention": "*", MLP: "-", MOE: "E"}
        config["hybrid_override_pattern"] = "".join(letters[t] for t in types)
        config["num_hidden_layers"] = len(types)
        config["time_step_limit"] = [0.0, math.inf]  # Infinity, which JSON hasn't
        if "moe" not in name and "latent" not in name:
            for key in [k for k in config if "expert" in k or k.startswith("moe")]:
                del config[key]
    if name.startswith("granite"):
        config["layer_types"] = [{MAMBA: "mamba", FULL: "attention"}.get(t, t) for t in types]
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def make_hybrid(out, name):
    prefix, seed, _ = HYBRID[name]
    model, _ = build(name, seed)
    module = sys.modules[type(model).__module__]
    own = getattr(module, "mamba2_chunk_scan", None)
    while True:
        if own:
            module.mamba2_chunk_scan = scan
        model, rnd = build(name, seed)
        tokens = rnd.tokens()
        logits, routed = forward(model, tokens)
        lead, changed = smallest_lead(model, routed)
        if lead > MARGIN:
            break
        seed += 1
    spread = float(logits.max() - logits.min())
    distance = lambda other: float((other.double() - logits).abs().max()) / spread
    checks = dict(logit_range=spread)
    if own:
        module.mamba2_chunk_scan = own
        checks["chunked_form"] = distance(forward(model, tokens)[0])
        assert name == "granite_4" or 0 < checks["chunked_form"] < 1e-5, (name, checks)
        module.mamba2_chunk_scan = scan
    checks["f32_noise"] = distance(forward(model.float(), tokens)[0])
    model.double()
    if own:
        module.mamba2_chunk_scan = own
    assert spread > 4 and checks["f32_noise"] < 1e-5, (name, checks)
    if routed:
        checks["router_lead"] = lead
        checks["bias_changes_choice"] = changed
    folder = fresh(out, name)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    model.half().save_pretrained(folder)
    publish(folder, name)
    write_golden(
        folder,
        tokens,
        model.config.hidden_size,
        model.config.num_hidden_layers or 0,
        dict(logits=entry("logits.f32", T, V)),
        source="transformers",
        seed=seed,
        rms_eps=getattr(model.config, "rms_norm_eps", None)
        or getattr(model.config, "norm_eps", None)
        or model.config.layer_norm_epsilon,
        checks=checks,
    )
    print(name, "seed", seed, checks)


def make_all(out, names=None):
    for name in names or HYBRID:
        make_hybrid(out, name)
