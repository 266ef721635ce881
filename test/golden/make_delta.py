"""Models with a gated delta net, from transformers' own classes, whose delta rule is replaced by a
float64 loop over tokens; how far their own chunked form is from it is among the checks. The MTP
block, which transformers leaves out, is the model's last layer."""

import os

import torch

import make_families
import make_hf
from common import F64, T, V, entry, fresh, load_tensors, read_config, save_tensors
from common import write_config, write_f32, write_golden
from make_hf import MARGIN, ROPE, routing

PARTLY = dict(ROPE(1e2), partial_rotary_factor=0.5)
SIZES = dict(
    hidden_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_parameters=PARTLY,
    max_position_embeddings=256,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
)
SECTIONS = dict(PARTLY, mrope_section=[2, 1, 1], mrope_interleaved=True)
LINEAR, FULL = "linear_attention", "full_attention"
EXPERTS = dict(
    moe_intermediate_size=12,
    shared_expert_intermediate_size=20,
    num_experts=7,
    num_experts_per_tok=3,
    norm_topk_prob=True,
)

# name: (class prefix, prefix of the configuration, seed, config)
DELTA = {
    "qwen3_5": (
        "Qwen3_5",
        "Qwen3_5Text",
        501,
        dict(
            num_hidden_layers=5,
            layer_types=[LINEAR, LINEAR, LINEAR, FULL, FULL],
            intermediate_size=52,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            rope_parameters=SECTIONS,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        "Qwen3_5MoeText",
        502,
        dict(
            EXPERTS,
            num_hidden_layers=4,
            layer_types=[FULL, LINEAR, LINEAR, FULL],
            linear_num_key_heads=3,
            linear_num_value_heads=6,
            rope_parameters=SECTIONS,
        ),
    ),
    "qwen3_next": (
        "Qwen3Next",
        "Qwen3Next",
        503,
        dict(
            EXPERTS,
            num_hidden_layers=3,
            layer_types=[LINEAR, LINEAR, FULL],
            intermediate_size=52,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_value_head_dim=12,
        ),
    ),
}
WITH_MTP = {"qwen3_5", "qwen3_5_moe"}
WRAPPED = {"qwen3_5"}  # as its published files are


def delta_rule(q, k, v, g, beta, **kwargs):
    """S = exp(g)·S + beta·(v - exp(g)·S·k)·kᵀ, y = S·q/√n, token by token."""
    dtype = v.dtype
    q, k, v, g, beta = (x.to(F64) for x in (q, k, v, g, beta))
    unit = lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)
    q, k = unit(q) / q.shape[-1] ** 0.5, unit(k)
    y = torch.empty_like(v)
    for h in range(v.shape[2]):
        S = torch.zeros(v.shape[-1], k.shape[-1], dtype=F64)
        for t in range(v.shape[1]):
            S = S * torch.exp(g[0, t, h])
            learned = beta[0, t, h] * (v[0, t, h] - S @ k[0, t, h])
            S = S + torch.outer(learned, k[0, t, h])
            y[0, t, h] = S @ q[0, t, h]
    return y.to(dtype), None


def nets(layers):
    return [m.linear_attn for m in layers if hasattr(m, "linear_attn")]


def random_tensor(rnd, name, shape, tied):
    if name.endswith("A_log"):
        return rnd.around(*shape, centre=-1.5, spread=1.0)
    if "norm" in name and not name.endswith("linear_attn.norm.weight"):
        return rnd.around(*shape, centre=0.3, spread=0.4)  # less 1
    if "conv1d" in name:
        return rnd.normal(*shape, gain=1.5)
    return plain_tensor(rnd, name, shape, tied)


plain_tensor = make_hf.random_tensor


def build(name, seed):
    """As make_hf.build, with other values and the loop."""
    import transformers

    prefix, of_config, _, cfg = DELTA[name]
    config = getattr(transformers, of_config + "Config")(
        vocab_size=V, bos_token_id=1, eos_token_id=2, pad_token_id=None,
        **{"tie_word_embeddings": False, **SIZES, **cfg},
    )
    config._experts_implementation = "eager"
    model = getattr(transformers, prefix + "ForCausalLM")(config).double().eval()
    model.set_attn_implementation("eager")
    rnd = make_hf.Random(seed)
    named = dict(model.named_parameters())
    with torch.no_grad():
        for key in sorted(named):
            named[key].copy_(random_tensor(rnd, key, named[key].shape, config.tie_word_embeddings))
    own = [net.chunk_gated_delta_rule for net in nets(model.model.layers)]
    for net in nets(model.model.layers):
        net.chunk_gated_delta_rule = delta_rule
    return model, rnd, own


@torch.no_grad()
def forward(model, tokens):
    """Logits, the final norm's output, router inputs."""
    normed, routed, hooks = [], [], []
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            hooks.append(
                layer.mlp.gate.register_forward_hook(
                    lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
                )
            )
    hooks.append(model.model.norm.register_forward_hook(lambda m, i, o: normed.append(o[0])))
    logits = model(tokens[None], use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return logits, normed[0], routed


def with_own_rule(model, own, tokens):
    """The logits that transformers' own form of the delta rule gives."""
    for net, rule in zip(nets(model.model.layers), own):
        net.chunk_gated_delta_rule = rule
    logits = forward(model, tokens)[0]
    for net in nets(model.model.layers):
        net.chunk_gated_delta_rule = delta_rule
    return logits


@torch.no_grad()
def make_mtp(model, block, rnd, tokens, normed):
    """What the block has beside an ordinary layer, its logits, the smallest lead of a choice."""
    d = model.config.hidden_size
    names = ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight")
    rms = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SIZES["rms_norm_eps"]) * (1 + w)
    lead, n = 0, T - 1
    mask = torch.full((n, n), float("-inf"), dtype=F64).triu(1)[None, None]
    while lead < MARGIN:
        extra = {k: random_tensor(rnd, k, (d,), False) for k in names}
        extra["fc.weight"] = random_tensor(rnd, "eh_proj", (d, 2 * d), False)
        e = rms(model.model.embed_tokens.weight[tokens[1:]], extra[names[0]])
        g = rms(normed[:n], extra[names[1]])
        x = (torch.cat([e, g], -1) @ extra["fc.weight"].T)[None]
        routed, hooks = [], []
        if hasattr(block.mlp, "gate"):
            hooks.append(
                block.mlp.gate.register_forward_hook(
                    lambda m, i, o: routed.append((m, i[0].reshape(-1, i[0].shape[-1])))
                )
            )
        y = block(
            x, position_embeddings=model.model.rotary_emb(x, torch.arange(n)[None]), attention_mask=mask
        )
        for h in hooks:
            h.remove()
        y = rms((y[0] if isinstance(y, tuple) else y)[0], extra[names[2]])
        lead = routing(model, routed)[0]
    return extra, y @ model.lm_head.weight.T, lead


def finish(folder, name, n, extra):
    """Names as the published files have them: the MTP block apart, the text model inside another."""
    tensors = load_tensors(folder)
    last = f"model.layers.{n}."
    if extra:
        tensors = {k.replace(last, "mtp.layers.0."): w for k, w in tensors.items()}
        tensors.update({f"mtp.{k}": w.to(torch.float16) for k, w in extra.items()})
    config = read_config(folder)
    config["num_hidden_layers"] = n
    config["layer_types"] = config["layer_types"][:n]
    config["mtp_num_hidden_layers"] = int(bool(extra))
    if name in WRAPPED:
        tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in tensors.items()}
        tensors["model.visual.patch_embed.proj.weight"] = torch.zeros(2, 2, dtype=torch.float16)
        config = dict(
            architectures=["Qwen3_5ForConditionalGeneration"],
            model_type="qwen3_5",
            image_token_id=90,
            text_config=config,
            tie_word_embeddings=config["tie_word_embeddings"],
            vision_config=dict(model_type="qwen3_5", depth=1),
        )
    save_tensors(os.path.join(folder, "model.safetensors"), tensors)
    write_config(folder, config)


def make_delta(out, name):
    seed = DELTA[name][2]
    while True:
        model, rnd, own = build(name, seed)
        block = make_families.split_mtp(model) if name in WITH_MTP else None
        tokens = rnd.tokens()
        logits, normed, routed = forward(model, tokens)
        lead, _ = routing(model, routed)
        if lead > MARGIN:
            break
        seed += 1
    spread = float(logits.max() - logits.min())
    distance = lambda other: float((other.double() - logits).abs().max()) / spread
    checks = dict(logit_range=spread, chunked_form=distance(with_own_rule(model, own, tokens)))
    checks["f32_noise"] = distance(forward(model.float(), tokens)[0])
    model.double()
    assert spread > 4 and max(checks["f32_noise"], checks["chunked_form"]) < 1e-5, (name, checks)
    if routed:
        checks["router_lead"] = lead
    folder = fresh(out, name)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    n = model.config.num_hidden_layers
    files, extra = dict(logits=entry("logits.f32", T, V)), None
    if block is not None:
        extra, mtp, checks["mtp_router_lead"] = make_mtp(model, block, rnd, tokens, normed)
        write_f32(os.path.join(folder, "mtp_logits.f32"), mtp)
        files["mtp_logits"] = entry("mtp_logits.f32", T - 1, V)
        model.model.layers.append(block)
        model.config.num_hidden_layers = n + 1
    model.half().save_pretrained(folder)
    finish(folder, name, n, extra)
    write_golden(
        folder,
        tokens,
        model.config.hidden_size,
        n,
        files,
        source="transformers",
        seed=seed,
        rms_eps=model.config.rms_norm_eps,
        checks=checks,
    )
    print(name, "seed", seed, checks)


def make_all(out, names=None):
    for name in names or DELTA:
        make_delta(out, name)
