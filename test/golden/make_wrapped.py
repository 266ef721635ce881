"""Text models inside wrappers with a vision tower, from transformers' own classes, which run them on
text alone. The tower is as small as its class allows; fletch leaves it out."""

import os

import torch

from common import F64, T, V, Random, entry, fresh, load_tensors, save_tensors
from common import write_f32, write_golden
from make_hf import LLAMA3, MARGIN, ROPE, random_tensor, routing

TEXT = dict(
    vocab_size=V,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=52,
    rms_norm_eps=1e-5,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
MROPE = dict(ROPE(1e3), mrope_section=[4, 2, 2])
QWEN_TOKENS = dict(
    image_token_id=90, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93
)
QWEN_VISION = dict(depth=1, hidden_size=8, num_heads=1, patch_size=2, spatial_merge_size=1)

# name: (class, seed, text, vision, the rest)
WRAPPED = {
    "mistral3": (
        "Mistral3",
        401,
        dict(TEXT, model_type="mistral", sliding_window=None, rope_parameters=ROPE(1e3)),
        dict(
            model_type="pixtral",
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            image_size=4,
            patch_size=2,
        ),
        dict(image_token_index=90, spatial_merge_size=1),
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VL",
        402,
        dict(TEXT, model_type="qwen2_5_vl_text", rope_parameters=MROPE, use_sliding_window=False),
        dict(QWEN_VISION, intermediate_size=8, out_hidden_size=48, fullatt_block_indexes=[0]),
        QWEN_TOKENS,
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoe",
        403,
        dict(
            TEXT,
            model_type="qwen3_vl_moe_text",
            rope_parameters=dict(MROPE, mrope_interleaved=True),
            num_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=20,
            norm_topk_prob=True,
        ),
        dict(
            QWEN_VISION,
            intermediate_size=8,
            out_hidden_size=48,
            num_position_embeddings=4,
            deepstack_visual_indexes=[0],
        ),
        QWEN_TOKENS,
    ),
    "muse_glimmer": (
        "MuseGlimmer",
        404,
        dict(
            TEXT,
            model_type="muse_glimmer_text",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_hidden_layers=3,
            sliding_window=10,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            layer_rope_theta=[1e3, 0, 1e3],
            rope_parameters=ROPE(1e3),
            final_logit_softcapping=8.0,
            rms_norm_eps=1e-2,  # far from that of post-norms
            qk_scale_factor=2.5,
            output_multiplier=0.4,
        ),
        dict(
            patch_size=2,
            pos_emb_height=2,
            pos_emb_width=2,
            num_attention_heads=2,
            num_hidden_layers=1,
            hidden_size=8,
            intermediate_size=8,
        ),
        dict(image_token_id=90, video_token_id=91, out_hidden_size=32, projector_hidden_size=8),
    ),
    "step35": (
        "Step3p7",
        405,
        dict(
            TEXT,
            model_type="step3p5",
            pad_token_id=1,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_sliding_attention_heads=6,
            sliding_window=10,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            mlp_layer_types=["dense", "sparse", "sparse"],
            moe_intermediate_size=20,
            n_routed_experts=6,
            num_experts_per_tok=2,
            share_expert_dim=24,
            moe_router_scaling_factor=1.7,
            swiglu_limits=[None, None, 0.4],
            swiglu_limits_shared=[0, 0.3, 0],
            rope_parameters=dict(
                full_attention=dict(LLAMA3, partial_rotary_factor=0.5),
                sliding_attention=dict(ROPE(1e2), partial_rotary_factor=1.0),
            ),
        ),
        dict(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            patch_size=2,
            image_size=4,
        ),
        dict(image_token_id=90),
    ),
}


def build(name, seed):
    import transformers

    prefix, _, text, vision, rest = WRAPPED[name]
    config = getattr(transformers, prefix + "Config")(
        text_config=text, vision_config=vision, tie_word_embeddings=False, **rest
    )
    config._experts_implementation = config.text_config._experts_implementation = "eager"
    model = getattr(transformers, prefix + "ForConditionalGeneration")(config).double().eval()
    model.set_attn_implementation("eager")
    rnd = Random(seed)
    named = dict(model.named_parameters())
    with torch.no_grad():
        for key in sorted(named):
            named[key].copy_(random_tensor(rnd, key, named[key].shape, False))
            one = dict(MuseGlimmer="layernorm.weight", Step3p7="norm.weight").get(prefix)
            if one and key.endswith(one) and "language_model" in key:  # added to 1
                named[key].sub_(1)
    return model, rnd


@torch.no_grad()
def forward(model, tokens):
    """Logits, and the routers with their inputs."""
    routed, hooks = [], []
    for layer in model.model.language_model.layers:
        gate = getattr(layer.mlp, "gate", None)
        if gate is not None:
            hooks.append(
                gate.register_forward_hook(
                    lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
                )
            )
    logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return logits, routed


def make_wrapped(out, name):
    seed = WRAPPED[name][1]
    while True:
        model, rnd = build(name, seed)
        tokens = torch.randint(0, 90, (T,), generator=rnd.g)  # the ids above stand for images
        logits, routed = forward(model, tokens)
        text = model.model.language_model
        lead, _ = routing(text, routed)
        if lead > MARGIN:
            break
        seed += 1
    logits32 = forward(model.float(), tokens)[0]
    spread = float(logits.max() - logits.min())
    noise = float((logits32.to(F64) - logits).abs().max()) / spread
    checks = dict(logit_range=spread, f32_noise=noise)
    if routed:
        checks["router_lead"] = lead
    assert spread > 4 and noise < 1e-5, (name, checks)
    folder = fresh(out, name)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    model.half().save_pretrained(folder)
    if name == "qwen3_vl_moe":  # as its published files have them
        tensors = load_tensors(folder)
        for key in tensors:
            if "mlp.experts." in key:
                tensors[key] = tensors[key].transpose(1, 2)
        save_tensors(os.path.join(folder, "model.safetensors"), tensors)
    write_golden(
        folder,
        tokens,
        text.config.hidden_size,
        text.config.num_hidden_layers,
        dict(logits=entry("logits.f32", T, V)),
        source="transformers",
        seed=seed,
        rms_eps=text.config.rms_norm_eps,
        checks=checks,
    )
    print(name, "seed", seed, checks)


def make_all(out, names=None):
    for name in names or WRAPPED:
        make_wrapped(out, name)
