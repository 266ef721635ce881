"""The architectures of the zoo as plain PyTorch modules.

Module and parameter names are those of the Hugging Face checkpoints, so that `state_dict` is almost the
file; `export.py` does the rest. Shapes: B rows, T tokens, d width, H heads, E experts.
"""
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import wkv7


@dataclasses.dataclass
class Config:
    family: str  # llama qwen2 qwen3 qwen3moe glm rwkv7
    d: int
    layers: int
    heads: int
    kv: int = 0  # key/value heads
    hd: int = 0  # head size
    ff: int = 0  # width of a dense feed-forward
    experts: int = 0
    top: int = 2
    expert_ff: int = 0
    q_lora: int = 0  # glm: ranks and head parts of latent attention
    kv_lora: int = 512
    nope: int = 32
    rope: int = 64
    v_hd: int = 96
    ranks: tuple = ()  # rwkv7: w, a, v, g
    vocab: int = 4096
    context: int = 4096
    theta: float = 10000.0
    eps: float = 1e-6
    scale: float = 1.8  # glm: routed_scaling_factor

    @property
    def tied(self):
        return self.family not in ("glm", "rwkv7")


class RMSNorm(nn.Module):
    def __init__(self, d, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        x = x.float()
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


def angles(config, n):
    """cos and sin [context, n/2] of rotary embeddings over n dimensions."""
    rate = config.theta ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
    turn = torch.outer(torch.arange(config.context, dtype=torch.float64), rate)
    return turn.cos().float(), turn.sin().float()


def rotate(x, cos, sin, interleaved=False):
    """x [B, H, T, n]; pairs are (i, i + n/2), or (2i, 2i + 1) when interleaved."""
    x = x.float()
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    a, b = a * cos - b * sin, a * sin + b * cos
    return torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)


def attend(q, k, v):
    """Causal attention in the type of v; q may have more heads than k and v."""
    return F.scaled_dot_product_attention(
        q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
    )


class Attention(nn.Module):
    """Grouped heads; qwen2 adds biases, qwen3 norms on queries and keys."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        bias = c.family == "qwen2"
        self.q_proj = nn.Linear(c.d, c.heads * c.hd, bias=bias)
        self.k_proj = nn.Linear(c.d, c.kv * c.hd, bias=bias)
        self.v_proj = nn.Linear(c.d, c.kv * c.hd, bias=bias)
        self.o_proj = nn.Linear(c.heads * c.hd, c.d, bias=False)
        if c.family.startswith("qwen3"):
            self.q_norm, self.k_norm = RMSNorm(c.hd, c.eps), RMSNorm(c.hd, c.eps)

    def forward(self, x, rope):
        heads = lambda y: y.unflatten(-1, (-1, self.c.hd)).transpose(1, 2)  # [B, H, T, hd]
        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        y = attend(rotate(q, *rope), rotate(k, *rope), v)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class LatentAttention(nn.Module):
    """MLA in its expanded form: keys and values of all heads come from one latent per token."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_a_proj = nn.Linear(c.d, c.q_lora, bias=False)
        self.q_a_layernorm = RMSNorm(c.q_lora, c.eps)
        self.q_b_proj = nn.Linear(c.q_lora, c.heads * (c.nope + c.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(c.d, c.kv_lora + c.rope, bias=False)
        self.kv_a_layernorm = RMSNorm(c.kv_lora, c.eps)
        self.kv_b_proj = nn.Linear(c.kv_lora, c.heads * (c.nope + c.v_hd), bias=False)
        self.o_proj = nn.Linear(c.heads * c.v_hd, c.d, bias=False)

    def forward(self, x, rope):
        c = self.c
        heads = lambda y: y.unflatten(-1, (c.heads, -1)).transpose(1, 2)
        q_nope, q_rope = heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))).split(
            (c.nope, c.rope), -1
        )
        latent, k_rope = self.kv_a_proj_with_mqa(x).split((c.kv_lora, c.rope), -1)
        k_nope, v = heads(self.kv_b_proj(self.kv_a_layernorm(latent))).split((c.nope, c.v_hd), -1)
        k_rope = rotate(k_rope.unsqueeze(1), *rope, interleaved=True).expand(-1, c.heads, -1, -1)
        q = torch.cat((q_nope, rotate(q_rope, *rope, interleaved=True).to(q_nope.dtype)), -1)
        k = torch.cat((k_nope, k_rope.to(k_nope.dtype)), -1)
        y = attend(q, k, F.pad(v, (0, c.nope + c.rope - c.v_hd)))[..., : c.v_hd]
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.gate_proj = nn.Linear(d, ff, bias=False)
        self.up_proj = nn.Linear(d, ff, bias=False)
        self.down_proj = nn.Linear(ff, d, bias=False)

    def forward(self, x, gain=None):
        h = F.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(h if gain is None else h * gain)


class Router(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c.experts, c.d))
        if c.family == "glm":
            self.register_buffer("e_score_correction_bias", torch.zeros(c.experts))


class Experts(nn.Module):
    """A mixture of experts. All experts lie side by side in one wide MLP whose hidden units are weighted by
    the router, zero for those not chosen: the same function as gathering, and faster at this size.
    """

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = Router(c)
        self.experts = MLP(c.d, c.experts * c.expert_ff)
        if c.family == "glm":
            self.shared_experts = MLP(c.d, c.expert_ff)
        self.register_buffer("load", torch.zeros(c.experts), persistent=False)
        self.aux = 0.0

    def forward(self, x):
        c = self.c
        with torch.autocast(x.device.type, enabled=False):
            z = F.linear(x.float(), self.gate.weight)
        p = z.sigmoid() if c.family == "glm" else z.softmax(-1)
        choice = p.detach() + self.gate.e_score_correction_bias if c.family == "glm" else p.detach()
        chosen = torch.zeros_like(p).scatter_(-1, choice.topk(c.top, -1).indices, 1.0)
        w = p * chosen
        w = w / w.sum(-1, keepdim=True)
        count = chosen.sum((0, 1))
        self.load += count
        if c.family == "qwen3moe":
            self.aux = c.experts * (count / count.sum() * p.mean((0, 1))).sum()
        else:
            w = w * c.scale
        y = self.experts(x, w.repeat_interleave(c.expert_ff, -1))
        return y + self.shared_experts(x) if c.family == "glm" else y

    def balance(self, rate=0.002):
        """Moves the selection bias towards equal loads; no gradient is involved."""
        if self.c.family == "glm":
            self.gate.e_score_correction_bias += rate * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class Block(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c.d, c.eps)
        self.self_attn = LatentAttention(c) if c.family == "glm" else Attention(c)
        self.post_attention_layernorm = RMSNorm(c.d, c.eps)
        self.mlp = (
            Experts(c) if c.experts and not (c.family == "glm" and index == 0) else MLP(c.d, c.ff)
        )

    def forward(self, x, rope):
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class MTP(Block):
    """GLM's extra block: from the trunk's last state and the next token, the token after it."""

    def __init__(self, c, index):
        super().__init__(c, index)
        self.eh_proj = nn.Linear(2 * c.d, c.d, bias=False)
        self.enorm, self.hnorm = RMSNorm(c.d, c.eps), RMSNorm(c.d, c.eps)
        self.shared_head = nn.ModuleDict({"norm": RMSNorm(c.d, c.eps)})

    def forward(self, embedded, hidden, rope):
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), -1)).float()
        return self.shared_head["norm"](super().forward(x, rope))


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c.vocab, c.d)
        self.model.layers = nn.ModuleList(Block(c, i) for i in range(c.layers))
        if c.family == "glm":
            self.model.layers.append(MTP(c, c.layers))
        self.model.norm = RMSNorm(c.d, c.eps)
        if not c.tied:
            self.lm_head = nn.Linear(c.d, c.vocab, bias=False)
        cos, sin = angles(c, c.rope if c.family == "glm" else c.hd)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.layers) if out else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def head(self, hidden):
        return F.linear(
            hidden, self.model.embed_tokens.weight if self.c.tied else self.lm_head.weight
        )

    def forward(self, ids):
        """Hidden states after the last norm, [B, T, d]."""
        x, rope = self.model.embed_tokens(ids), (self.cos, self.sin)
        for block in self.model.layers[: self.c.layers]:
            x = block(x, rope)
        return self.model.norm(x)

    def draft(self, ids, hidden):
        """GLM: states that predict token p + 2 from `hidden` at p and token p + 1, for p < T - 1."""
        return self.model.layers[-1](
            self.model.embed_tokens(ids[:, 1:]), hidden[:, :-1], (self.cos, self.sin)
        )


# --- RWKV-7
class LoRA(nn.Module):
    """The low-rank pair fla stores as lora.0 and lora.2; lora.1 is the activation between."""

    def __init__(self, d, rank, bias, between):
        super().__init__()
        self.lora = nn.Sequential(
            nn.Linear(d, rank, bias=False), between, nn.Linear(rank, d, bias=bias)
        )

    def forward(self, x):
        return self.lora(x)


def shifted(x):
    """The previous token's vector, zero before the first: [B, T, d]."""
    return F.pad(x, (0, 0, 1, -1))


class TimeMix(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.c, self.index = c, index
        for m in "rwkvag":
            self.register_parameter("x_" + m, nn.Parameter(torch.empty(1, 1, c.d)))
        w, a, v, g = c.ranks
        self.w_lora = LoRA(c.d, w, True, nn.Tanh())
        self.a_lora = LoRA(c.d, a, True, nn.Identity())
        if index:
            self.v_lora = LoRA(c.d, v, True, nn.Identity())
        self.g_lora = LoRA(c.d, g, False, nn.Sigmoid())
        self.k_k, self.k_a = nn.Parameter(torch.empty(c.d)), nn.Parameter(torch.empty(c.d))
        self.r_k = nn.Parameter(torch.empty(c.heads, c.hd))
        for name in ("r_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(c.d, c.d, bias=False))
        self.g_norm = nn.GroupNorm(c.heads, c.d, eps=64e-5)

    def before(self, h):
        """All inputs of the recurrence, from h = LN(x)."""
        d = shifted(h) - h
        at = lambda m: h + d * getattr(self, "x_" + m)
        r, k, v = self.r_proj(at("r")), self.k_proj(at("k")), self.v_proj(at("v"))
        w = torch.exp(-math.exp(-0.5) * self.w_lora(at("w")).float().sigmoid())
        a = self.a_lora(at("a")).float().sigmoid()
        mix = self.v_lora(at("v")).float().sigmoid() if self.index else None
        g = self.g_lora(at("g"))
        heads = lambda y: y.float().unflatten(-1, (self.c.heads, self.c.hd))  # [B, T, H, hd]
        kk = F.normalize(heads(k * self.k_k), dim=-1, eps=1e-12)
        k = k.float() * (1 + (a - 1) * self.k_a)
        return heads(r), heads(w), heads(k), v.float(), mix, kk, kk * heads(a), g

    def after(self, y, r, k, v, g):
        y = self.g_norm(y.flatten(2).flatten(0, 1)).view(g.shape)
        bonus = (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.o_proj((y + bonus.flatten(2)) * g)

    def forward(self, h, v_first):
        r, w, k, v, mix, kk, b, g = self.before(h)
        if mix is None:
            v_first = v
        else:
            v = v + (v_first - v) * mix
        v = v.unflatten(-1, (self.c.heads, self.c.hd))
        return self.after(wkv7.wkv(r, w, k, v, -kk, b), r, k, v, g), v_first


class ChannelMix(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.x_k = nn.Parameter(torch.empty(c.d))
        self.key = nn.Linear(c.d, 4 * c.d, bias=False)
        self.value = nn.Linear(4 * c.d, c.d, bias=False)

    def hidden(self, h):
        return F.relu(self.key(h + (shifted(h) - h) * self.x_k))

    def forward(self, h):
        return self.value(self.hidden(h).square())


class RwkvBlock(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        if index == 0:
            self.pre_norm = nn.LayerNorm(c.d, eps=1e-5)
        self.attn_norm, self.ffn_norm = nn.LayerNorm(c.d, eps=1e-5), nn.LayerNorm(c.d, eps=1e-5)
        self.attn, self.ffn = TimeMix(c, index), ChannelMix(c)

    def forward(self, x, v_first):
        if hasattr(self, "pre_norm"):
            x = self.pre_norm(x)
        y, v_first = self.attn(self.attn_norm(x), v_first)
        x = x + y
        return x + self.ffn(self.ffn_norm(x)), v_first


class Rwkv7(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.model = nn.Module()
        self.model.embeddings = nn.Embedding(c.vocab, c.d)
        self.model.layers = nn.ModuleList(RwkvBlock(c, i) for i in range(c.layers))
        self.model.norm = nn.LayerNorm(c.d, eps=1e-5)
        self.lm_head = nn.Linear(c.d, c.vocab, bias=False)
        nn.init.normal_(self.model.embeddings.weight, std=0.02)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        for i, block in enumerate(self.model.layers):
            self._start(block, i)

    @torch.no_grad()
    def _start(self, block, i):
        """Initial values after the RWKV-7 paper: decay spread over the channels, low-rank parts near zero."""
        c, att = self.c, block.attn
        depth, fall = i / max(1, c.layers - 1), 1 - i / c.layers
        ramp = torch.arange(c.d) / c.d
        for m, power in (("r", 0.2), ("w", 0.9), ("k", 0.7), ("v", 0.7), ("a", 0.9), ("g", 0.2)):
            getattr(att, "x_" + m).copy_(1 - ramp ** (power * fall))
        block.ffn.x_k.copy_(1 - ramp ** (fall**4))
        place = torch.arange(c.d) / (c.d - 1)
        for lora, start in (
            (att.w_lora, -6.5 + 5 * place ** (0.85 + depth**0.5)),
            (att.a_lora, 0.0),
            (getattr(att, "v_lora", None), 1.0),
            (att.g_lora, None),
        ):
            if lora is not None:
                nn.init.zeros_(lora.lora[0].weight)
                nn.init.orthogonal_(lora.lora[2].weight, gain=0.1)
                if start is not None:
                    lora.lora[2].bias.copy_(torch.as_tensor(start).expand(c.d))
        att.k_k.fill_(0.85)
        att.k_a.fill_(1.0)
        att.r_k.zero_()
        for name, gain in (("r_proj", 0.5), ("k_proj", 0.05), ("v_proj", 0.5)):
            nn.init.uniform_(getattr(att, name).weight, -gain / c.d**0.5, gain / c.d**0.5)
        att.g_norm.weight.fill_(((1 + i) / c.layers) ** 0.7)
        nn.init.zeros_(att.o_proj.weight)
        nn.init.uniform_(block.ffn.key.weight, -0.5 / c.d**0.5, 0.5 / c.d**0.5)
        nn.init.zeros_(block.ffn.value.weight)

    def head(self, hidden):
        return self.lm_head(hidden)

    def forward(self, ids):
        x, v_first = self.model.embeddings(ids), None
        for block in self.model.layers:
            x, v_first = block(x, v_first)
        return self.model.norm(x)


def build(config):
    return Rwkv7(config) if config.family == "rwkv7" else Transformer(config)


def sequence_loss(model, ids, targets, weights):
    """Mean loss over the tokens whose weight is 1; GLM adds its MTP block's loss at p + 2."""
    hidden = model(ids)
    loss = _mean_loss(model.head(hidden), targets, weights)
    extra = 0.0
    if model.c.family == "glm":
        ahead = model.head(model.draft(ids, hidden))
        extra = 0.3 * _mean_loss(ahead, targets[:, 1:], weights[:, 1:])
    for m in model.modules():
        if isinstance(m, Experts):
            extra = extra + 0.01 * m.aux
    return loss, extra


def _mean_loss(logits, targets, weights):
    each = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum().clamp(min=1.0)
