"""Families that are a plain decoder with other parameters, from transformers' own classes: sizes
that every executor has kernels for, and as few layers as show what is special."""

import os

import torch

import make_hf
from common import F64, T, V, entry, fresh, load_tensors, read_config, save_tensors
from common import write_config, write_f32, write_golden
from make_hf import MARGIN, ROPE, forward, routing

SIZES = dict(
    hidden_size=40,
    num_hidden_layers=2,
    num_attention_heads=5,
    num_key_value_heads=1,
    intermediate_size=52,
    rms_norm_eps=1e-5,
    rope_parameters=ROPE(1e3),
    max_position_embeddings=256,
)



def phi3_longrope(original):
    return dict(
        hidden_size=48,
        num_attention_heads=6,
        num_key_value_heads=2,
        original_max_position_embeddings=original,
        tie_word_embeddings=True,
        rope_parameters=dict(
            rope_type="longrope",
            rope_theta=1e3,
            partial_rotary_factor=0.75,
            original_max_position_embeddings=original,
            short_factor=[1.0, 1.25, 1.5],
            long_factor=[1.5, 3.25, 8.0],
        ),
    )


GEMMA4 = dict(
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_global_key_value_heads=1,
    head_dim=16,
    global_head_dim=32,
    sliding_window=10,
    attention_k_eq_v=True,
    hidden_size_per_layer_input=0,
    final_logit_softcapping=15.0,
    tie_word_embeddings=True,
    rope_parameters=dict(
        full_attention=dict(rope_type="proportional", rope_theta=1e3, partial_rotary_factor=0.5),
        sliding_attention=dict(rope_type="default", rope_theta=1e2),
    ),
)

LAGUNA = dict(
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_attention_heads_per_layer=[4, 2, 6],
    head_dim=16,
    sliding_window=10,
    layer_types=["full_attention", "sliding_attention", "sliding_attention"],
    mlp_layer_types=["dense", "sparse", "sparse"],
    moe_intermediate_size=20,
    shared_expert_intermediate_size=24,
    num_experts=6,
    num_experts_per_tok=2,
    moe_routed_scaling_factor=1.7,
    rope_parameters=dict(
        full_attention=dict(
            rope_type="yarn",
            rope_theta=1e3,
            factor=4.0,
            original_max_position_embeddings=40,
            partial_rotary_factor=0.5,
        ),
        sliding_attention=dict(rope_type="default", rope_theta=1e2, partial_rotary_factor=1.0),
    ),
)

# name: (class prefix, seed, config)
FAMILIES = {
    "mixtral": ("Mixtral", 301, dict(intermediate_size=28, num_local_experts=5, num_experts_per_tok=2)),
    "seed_oss": (
        "SeedOss",
        302,
        dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, attention_bias=True),
    ),
    "smollm3": ("SmolLM3", 303, dict(num_hidden_layers=4, tie_word_embeddings=True)),
    "phi3": (
        "Phi3",
        304,
        dict(
            hidden_size=48,
            num_attention_heads=6,
            num_key_value_heads=2,
            rope_parameters=dict(ROPE(1e3), partial_rotary_factor=0.75),
        ),
    ),
    # 64 tokens: more than the original context of the one, fewer than that of the other
    "phi3_long": ("Phi3", 315, phi3_longrope(48)),
    "phi3_short": ("Phi3", 316, phi3_longrope(128)),
    "glm4_moe": (
        "Glm4Moe",
        305,
        dict(
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            attention_bias=True,
            use_qk_norm=True,
            moe_intermediate_size=20,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            routed_scaling_factor=1.8,
            norm_topk_prob=True,
            rope_parameters=dict(ROPE(1e3), partial_rotary_factor=0.5),
        ),
    ),
    "minimax_m2": (
        "MiniMaxM2",
        306,
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=20,
            num_local_experts=8,
            num_experts_per_tok=3,
            rope_parameters=dict(ROPE(1e3), partial_rotary_factor=0.5),
        ),
    ),
    "solar_open": (
        "SolarOpen",
        314,
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            moe_intermediate_size=20,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            norm_topk_prob=True,
        ),
    ),
    "granite": (
        "Granite",
        307,
        dict(
            embedding_multiplier=3.0,
            residual_multiplier=0.7,
            attention_multiplier=0.3,
            logits_scaling=0.3,
            tie_word_embeddings=True,
        ),
    ),
    "ernie4_5": ("Ernie4_5", 308, dict(head_dim=16, use_bias=True, num_attention_heads=4)),
    "ernie4_5_moe": (
        "Ernie4_5_Moe",
        309,
        dict(
            num_hidden_layers=3,
            moe_intermediate_size=20,
            moe_k=2,
            moe_num_experts=8,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
        ),
    ),
    "hunyuan_dense": (
        "HunYuanDenseV1",
        310,
        dict(
            head_dim=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            rope_parameters=dict(rope_type="dynamic", rope_theta=1e2, alpha=20.0, factor=1.0),
        ),
    ),
    "hunyuan_moe": (
        "HunYuanMoEV1",
        311,
        dict(
            head_dim=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=24,
            num_experts=6,
            moe_topk=2,
        ),
    ),
    "hy_v3": (
        "HYV3",
        317,
        dict(
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            moe_intermediate_size=20,
            num_experts=8,
            num_shared_experts=2,
            num_experts_per_tok=3,
            router_scaling_factor=1.6,
        ),
    ),
    # Ling 2 has no class there; this one computes the same, and finish_bailing gives it its names
    "bailing_v2": (
        "Glm4Moe",
        318,
        dict(
            hidden_size=64,  # other engines want heads as wide together
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            use_qk_norm=True,
            moe_intermediate_size=20,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            routed_scaling_factor=2.5,
            n_group=4,
            topk_group=2,
            norm_topk_prob=True,
            rope_parameters=dict(ROPE(1e3), partial_rotary_factor=0.5),
        ),
    ),
    # windows are shorter than the 64 tokens
    "gpt_oss": (
        "GptOss",
        320,
        dict(
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=32,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=9,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e3,
                factor=4.0,
                beta_fast=2.0,
                beta_slow=0.25,
                truncate=False,
                original_max_position_embeddings=40,
            ),
        ),
    ),
    "gemma2": (
        "Gemma2",
        321,
        dict(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=11,
            query_pre_attn_scalar=7,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=15.0,
            tie_word_embeddings=True,
        ),
    ),
    "gemma3": (
        "Gemma3",
        322,
        dict(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=10,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            query_pre_attn_scalar=24,
            tie_word_embeddings=True,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e4, factor=4.0),
                sliding_attention=dict(rope_type="default", rope_theta=1e2),
            ),
        ),
    ),
    "gemma4": ("Gemma4", 330, dict(GEMMA4, layer_types=["sliding_attention", "full_attention"])),
    "gemma4_e": (
        "Gemma4",
        331,
        dict(
            GEMMA4,
            num_hidden_layers=5,
            intermediate_size=40,
            layer_types=["sliding_attention"] + ["sliding_attention", "full_attention"] * 2,
            attention_k_eq_v=False,
            num_kv_shared_layers=2,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=20,
            vocab_size_per_layer_input=V,
        ),
    ),
    "gemma4_moe": (
        "Gemma4",
        332,
        dict(
            GEMMA4,
            layer_types=["sliding_attention", "full_attention"],
            enable_moe_block=True,
            num_experts=6,
            top_k_experts=2,
            moe_intermediate_size=20,
        ),
    ),
    "mistral4": (
        "Mistral4",
        333,
        dict(
            hidden_size=48,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=20,
            kv_lora_rank=32,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            moe_intermediate_size=20,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e2,
                factor=8.0,
                original_max_position_embeddings=12,
                beta_fast=4.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.4,
            ),
        ),
    ),
    "cohere2_moe": (
        "Cohere2Moe",
        334,
        dict(
            num_hidden_layers=3,
            head_dim=8,
            sliding_window=12,
            first_k_dense_replace=1,
            prefix_dense_intermediate_size=44,
            sliding_window_pattern=2,
            intermediate_size=20,
            num_experts=6,
            num_experts_per_tok=2,
            num_shared_experts=2,
            expert_selection_fn="sigmoid",
            rms_norm_eps=None,
            layer_norm_eps=1e-3,
            logit_scale=0.7,
            tie_word_embeddings=True,
        ),
    ),
    "afmoe": (
        "Afmoe",
        335,
        dict(
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            num_dense_layers=1,
            moe_intermediate_size=20,
            num_experts=6,
            num_experts_per_tok=2,
            num_shared_experts=1,
            route_scale=1.6,
            mup_enabled=True,
        ),
    ),
    "llama4": (
        "Llama4",
        339,
        dict(
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=20,
            intermediate_size_mlp=44,
            no_rope_layer_interval=2,
            interleave_moe_layer_step=2,
            num_local_experts=4,
            num_experts_per_tok=1,
            attention_chunk_size=14,
            floor_scale=9,
            attn_scale=0.4,
        ),
    ),
    "exaone_moe": (
        "ExaoneMoe",
        340,
        dict(
            num_hidden_layers=3,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            moe_intermediate_size=20,
            num_experts=6,
            num_experts_per_tok=2,
            routed_scaling_factor=1.5,
        ),
    ),
    "laguna": ("Laguna", 336, dict(LAGUNA, gating="per-head")),
    "laguna_columns": ("Laguna", 337, dict(LAGUNA, gating="per-element")),
    "mimo2": (
        "MiMoV2Flash",
        338,
        dict(
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=24,
            v_head_dim=16,
            sliding_window=11,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            mlp_layer_types=["dense", "sparse", "sparse"],
            moe_intermediate_size=20,
            n_routed_experts=6,
            num_experts_per_tok=2,
            attention_value_scale=0.6,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="default", rope_theta=1e4, partial_rotary_factor=0.334
                ),
                sliding_attention=dict(
                    rope_type="default", rope_theta=1e2, partial_rotary_factor=0.334
                ),
            ),
        ),
    ),
    "mistral_window": ("Mistral", 323, dict(sliding_window=13, head_dim=8)),
    "ministral3": (
        "Ministral3",
        324,
        dict(
            head_dim=8,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e3,
                factor=4.0,
                original_max_position_embeddings=12,
                beta_fast=4.0,
                beta_slow=0.5,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.4,
            ),
        ),
    ),
    "olmo2": ("Olmo2", 325, dict(num_attention_heads=10, num_key_value_heads=5, hidden_size=80)),
    "olmo3": (
        "Olmo3",
        326,
        dict(
            num_hidden_layers=3,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    "exaone4": (
        "Exaone4",
        327,
        dict(
            num_hidden_layers=3,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    "cohere2": (
        "Cohere2",
        328,
        dict(
            num_hidden_layers=3,
            sliding_window=12,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            layer_norm_eps=1e-3,
            logit_scale=0.7,
            tie_word_embeddings=True,
        ),
    ),
    "glm4": (
        "Glm4",
        329,
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            attention_bias=True,
            rope_parameters=dict(ROPE(1e3), partial_rotary_factor=0.5),
        ),
    ),
    "deepseek_v2": (
        "DeepseekV2",
        312,
        dict(
            hidden_size=48,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=None,
            kv_lora_rank=32,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            moe_intermediate_size=20,
            n_routed_experts=8,
            n_shared_experts=2,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            routed_scaling_factor=1.0,
            topk_method="greedy",
        ),
    ),
    "deepseek_v3": (
        "DeepseekV3",
        313,
        dict(
            num_hidden_layers=3,
            hidden_size=48,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=20,
            kv_lora_rank=32,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            moe_intermediate_size=16,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            routed_scaling_factor=2.5,
            n_group=4,
            topk_group=2,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e2,
                factor=8.0,
                original_max_position_embeddings=128,
                beta_fast=4.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
            ),
        ),
    ),
}


# So that no choice changes with a cache in F16 either.
MARGINS = {"gpt_oss": 2e-3}

# Those whose last layer is made the MTP block: what transformers' classes leave out is added to it.
WITH_MTP = {"glm4_moe", "deepseek_v3"}


@torch.no_grad()
def mtp_logits(model, block, extra, tokens, normed):
    """Row p: from the trunk's normed state at p and token p+1, the block at position p."""
    rms = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps) * w
    e = rms(extra["embed_tokens.weight"][tokens[1:]], extra["enorm.weight"])
    g = rms(normed[: T - 1], extra["hnorm.weight"])
    x = (torch.cat([e, g], -1) @ extra["eh_proj.weight"].T)[None]
    n = T - 1
    mask = torch.full((n, n), float("-inf"), dtype=F64).triu(1)[None, None]
    angles = model.model.rotary_emb(x, torch.arange(n)[None])
    routed = []
    hook = block.mlp.gate.register_forward_hook(
        lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
    )
    y = block(x, attention_mask=mask, position_embeddings=angles)
    hook.remove()
    y = rms((y[0] if isinstance(y, tuple) else y)[0], extra["shared_head.norm.weight"])
    return y @ extra["shared_head.head.weight"].T, routing(model, routed)[0]


def make_mtp(model, block, rnd, tokens, normed):
    """What the block has beside an ordinary layer, its logits, and the smallest lead of a choice."""
    d = model.config.hidden_size
    shapes = {
        "eh_proj.weight": (d, 2 * d),
        "enorm.weight": (d,),
        "hnorm.weight": (d,),
        "embed_tokens.weight": (V, d),
        "shared_head.norm.weight": (d,),
        "shared_head.head.weight": (V, d),
    }
    lead = 0
    while lead < MARGIN:
        extra = {k: make_hf.random_tensor(rnd, k, shape, False) for k, shape in shapes.items()}
        logits, lead = mtp_logits(model, block, extra, tokens, normed)
    return extra, logits, lead


def write_mtp(folder, n, extra, logits):
    """Adds that to the model, which was saved with the block as its last layer."""
    tensors = load_tensors(folder)
    tensors.update({f"model.layers.{n}.{k}": w.to(torch.float16) for k, w in extra.items()})
    save_tensors(os.path.join(folder, "model.safetensors"), tensors)
    config = dict(read_config(folder), num_hidden_layers=n, num_nextn_predict_layers=1)
    write_config(folder, config)
    write_f32(os.path.join(folder, "mtp_logits.f32"), logits)
    return entry("mtp_logits.f32", T - 1, V)


def split_mtp(model):
    """Takes the last layer off."""
    block = model.model.layers[-1]
    model.model.layers = model.model.layers[:-1]
    model.config.num_hidden_layers -= 1
    return block


def finish_bailing(folder):
    """As Ling 2 is published."""
    tensors, out, qkv = load_tensors(folder), {}, {}
    for key, w in tensors.items():
        block, _, part = key.partition(".self_attn.")
        if part in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
            qkv.setdefault(block, {})[part[0]] = w
            continue
        for old, new in (
            ("self_attn.o_proj", "attention.dense"),
            ("self_attn.q_norm", "attention.query_layernorm"),
            ("self_attn.k_norm", "attention.key_layernorm"),
            ("gate.e_score_correction_bias", "gate.expert_bias"),
            ("model.embed_tokens", "model.word_embeddings"),
        ):
            key = key.replace(old, new)
        out[key] = w
    for block, parts in qkv.items():
        out[f"{block}.attention.query_key_value.weight"] = torch.cat([parts[p] for p in "qkv"])
    save_tensors(os.path.join(folder, "model.safetensors"), out)
    config = read_config(folder)
    config.update(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe")
    config["num_experts"] = config.pop("n_routed_experts")
    config["num_shared_experts"] = config.pop("n_shared_experts")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config.update(partial_rotary_factor=0.5, rotary_dim=8, score_function="sigmoid")
    write_config(folder, config)


def make_family(out, name):
    prefix, seed, config = FAMILIES[name]
    make_hf.HF[name] = (prefix, seed, {**SIZES, **config})
    block = None
    while True:
        model, rnd = make_hf.build(name, seed)
        if name in WITH_MTP:
            block = split_mtp(model)
        for layer in model.model.layers:
            mlp = make_hf.feed_forward(layer)
            if hasattr(mlp, "e_score_correction_bias"):  # where routing() looks for it
                mlp.gate.e_score_correction_bias = mlp.e_score_correction_bias
            gate = getattr(mlp, "gate", None)
            if hasattr(gate, "moe_statics"):
                gate.e_score_correction_bias = gate.moe_statics.e_score_correction_bias.data[0]
            router = getattr(mlp, "router", None)
            if hasattr(router, "gate"):  # afmoe
                router.__dict__["weight"] = router.gate.weight
                router.__dict__["e_score_correction_bias"] = mlp.expert_bias
            if hasattr(gate, "wg"):
                gate.__dict__["weight"] = gate.wg.weight
        tokens = rnd.tokens()
        logits, layers, normed, attentions, routed = forward(model, tokens)
        lead, changed = routing(model, routed)
        if lead > MARGINS.get(name, MARGIN):
            break
        seed += 1
    logits32 = forward(model.float(), tokens)[0]
    model.double()
    spread = float(logits.max() - logits.min())
    checks = dict(
        logit_range=spread,
        f32_noise=float((logits32.double() - logits).abs().max()) / spread,
        moved_by_eps=make_hf.moved_by_eps(model, tokens, logits),
    )
    assert spread > 4 and checks["f32_noise"] < 1e-5, (name, checks)
    if routed:
        checks["router_lead"] = lead
        checks["bias_changes_choice"] = changed
    folder = fresh(out, name)
    d, n_layer = model.config.hidden_size, model.config.num_hidden_layers
    write_f32(os.path.join(folder, "logits.f32"), logits)
    if block:
        *mtp, checks["mtp_router_lead"] = make_mtp(model, block, rnd, tokens, normed)
        model.model.layers.append(block)
    model.half()
    for key, b in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            b.data = b.data.float()
    model.save_pretrained(folder)
    spare = {"SolarOpen": "intermediate_size", "Cohere2": "rms_norm_eps"}.get(prefix)
    if spare:  # their classes have no such field
        write_config(folder, {k: v for k, v in read_config(folder).items() if k != spare})
    if name == "bailing_v2":
        finish_bailing(folder)
    files = dict(logits=entry("logits.f32", T, V))
    if block:
        files["mtp_logits"] = write_mtp(folder, n_layer, *mtp)
    write_golden(
        folder,
        tokens,
        d,
        n_layer,
        files,
        source="transformers",
        seed=seed,
        rms_eps=model.config.rms_norm_eps,
        checks=checks,
    )
    print(name, "seed", seed, checks)


def make_mxfp4(out):
    """gpt_oss as it is published: experts as blocks of nibbles and scales."""
    folder = os.path.join(out, "gpt_oss")
    tensors = {}
    for key, w in load_tensors(folder).items():
        if "experts" not in key or w.dim() != 3:
            tensors[key] = w
            continue
        n, scales, back = make_hf.mxfp4(w.double())
        assert torch.equal(back, w.double()), key
        tensors[key + "_blocks"] = (n[..., ::2] | n[..., 1::2] << 4).to(torch.uint8)
        tensors[key + "_scales"] = scales
    config = dict(read_config(folder), quantization_config=dict(quant_method="mxfp4"))
    make_hf.variant(out, "gpt_oss-mxfp4", "gpt_oss", tensors, config)


def make_wrapper(out):
    """gemma4_e as it is published: wrapped, with fields and a tensor of a tower."""
    folder = os.path.join(out, "gemma4_e")
    tensors = {
        k.replace("model.", "model.language_model.", 1): w for k, w in load_tensors(folder).items()
    }
    tensors["model.vision_tower.patch_embedder.input_proj.weight"] = torch.ones(2, 3).half()
    tensors["model.embed_audio.embedding_projection.weight"] = torch.ones(2, 3).half()
    text = read_config(folder)
    config = dict(
        architectures=["Gemma4ForConditionalGeneration"],
        model_type="gemma4",
        text_config=text,
        vision_config=dict(model_type="gemma4_vision"),
        audio_config=dict(model_type="gemma4_audio"),
        image_token_id=90,
        boi_token_id=91,
        eoi_token_id=92,
        boa_token_id=93,
        eoa_token_index=94,
        audio_token_id=95,
        video_token_id=96,
        vision_soft_tokens_per_image=280,
        tie_word_embeddings=True,
    )
    make_hf.variant(out, "gemma4-wrapped", "gemma4_e", tensors, config)


FP8_BLOCK = [16, 32]


def to_fp8(rnd, w):
    """Bytes of e4m3, a scale for each block, and the values in float32."""
    rows, cols = ((n + b - 1) // b for n, b in zip(w.shape, FP8_BLOCK))
    quarters, exponent = (torch.randint(0, n, (rows, cols), generator=rnd.g) for n in (4, 3))
    scales = (1 + quarters / 4) * 2.0 ** (exponent - 9.0)  # so that products are exact in F16
    each = scales.repeat_interleave(FP8_BLOCK[0], 0).repeat_interleave(FP8_BLOCK[1], 1)
    each = each[: w.shape[0], : w.shape[1]]
    b = (w.float() / each).clamp(-448, 448).to(torch.float8_e4m3fn)
    return b, scales, b.float() * each


def make_fp8(out):
    """deepseek_v3 without its MTP block, as it is published: matrices in FP8."""
    import transformers

    name, seed = "deepseek_v3-fp8", 350
    folder = fresh(out, name)
    while True:
        make_hf.HF[name] = ("DeepseekV3", seed, {**SIZES, **FAMILIES["deepseek_v3"][2]})
        model, rnd = make_hf.build(name, seed)
        model.half().save_pretrained(folder)
        plain, packed = load_tensors(folder), {}
        for key, w in list(plain.items()):
            if w.dim() != 2 or not key.endswith("_proj.weight") and "_proj" not in key:
                packed[key] = w
                continue
            packed[key], packed[key + "_scale_inv"], plain[key] = to_fp8(rnd, w)
        save_tensors(os.path.join(folder, "model.safetensors"), plain)
        model = transformers.DeepseekV3ForCausalLM.from_pretrained(folder, dtype=F64).eval()
        model.set_attn_implementation("eager")
        model.config._experts_implementation = "eager"
        tokens = rnd.tokens()
        logits, _, _, _, routed = forward(model, tokens)
        lead, changed = routing(model, routed)
        if lead > MARGIN:
            break
        seed += 1
    spread = float(logits.max() - logits.min())
    assert spread > 4, spread
    save_tensors(os.path.join(folder, "model.safetensors"), packed)
    config = read_config(folder)
    config["quantization_config"] = dict(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=FP8_BLOCK
    )
    config["num_nextn_predict_layers"] = 0
    write_config(folder, config)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    write_golden(
        folder,
        tokens,
        model.config.hidden_size,
        model.config.num_hidden_layers,
        dict(logits=entry("logits.f32", T, V)),
        source="transformers",
        seed=seed,
        rms_eps=model.config.rms_norm_eps,
        checks=dict(logit_range=spread, router_lead=lead, bias_changes_choice=changed),
    )
    print(name, "seed", seed, spread)


def make_all(out, names=None):
    for name in names or FAMILIES:
        if name in FAMILIES:
            make_family(out, name)
    if not names or "gpt_oss" in names:
        make_mxfp4(out)
    if not names or "gemma4_e" in names:
        make_wrapper(out)
    if not names or "deepseek_v3-fp8" in names:
        make_fp8(out)
