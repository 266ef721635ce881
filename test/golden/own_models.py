"""Forward passes of our own in float64, written from the models' published equations: RWKV-7, its
arwkv7 relative, GLM's multi-token-prediction block, and a llama over GGUF's tensors. Plain loops
over tokens and heads; nothing here is fast."""

import math

import torch

F64 = torch.float64


def rms(x, w, eps):
    return w * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def layer_norm(x, w, b, eps):
    mean = x.mean()
    return w * (x - mean) / torch.sqrt(((x - mean) ** 2).mean() + eps) + b


def silu(x):
    return x * torch.sigmoid(x)


def swiglu(x, gate, up, down):
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def rope(x, pos, base, pairs, factors=None):
    """x: [..., n]; pairs 'norm' rotates (2i, 2i+1), 'neox' (i, i+n/2)."""
    n = x.shape[-1]
    out = x.clone()
    for i in range(n // 2):
        a, b = (2 * i, 2 * i + 1) if pairs == "norm" else (i, i + n // 2)
        t = pos * base ** (-2.0 * i / n) / (1.0 if factors is None else float(factors[i]))
        out[..., a] = x[..., a] * math.cos(t) - x[..., b] * math.sin(t)
        out[..., b] = x[..., a] * math.sin(t) + x[..., b] * math.cos(t)
    return out


# ---- RWKV-7 ---------------------------------------------------------------------------------

DECAY = math.exp(-0.5)
GROUP_EPS = 64e-5  # the published models' constant, whatever the head size


def time_mix(b, h, st, v_first, head, group_eps):
    """b: the block's tensors; st: its state; h: normed input [C]. Returns (output, v_first)."""
    delta = st["att"] - h
    xr, xw, xk, xv, xa = (h + delta * b["x_" + m] for m in "rwkva")
    st["att"] = h
    r, k, v = b["receptance"] @ xr, b["key"] @ xk, b["value"] @ xv
    w = torch.exp(-DECAY * torch.sigmoid(b["w0"] + b["w2"] @ torch.tanh(b["w1"] @ xw)))
    a = torch.sigmoid(b["a0"] + b["a2"] @ (b["a1"] @ xa))
    if v_first is None:
        v_first = v
    else:
        v = v + (v_first - v) * torch.sigmoid(b["v0"] + b["v2"] @ (b["v1"] @ xv))
    kk = k * b["k_k"]
    k = k * (1 + (a - 1) * b["k_a"])
    out = torch.zeros_like(h)
    for n in range(len(h) // head):
        s = slice(n * head, (n + 1) * head)
        kkh = kk[s] / max(float(kk[s].norm()), 1e-12)
        S = st["wkv"][n]  # [value][key]
        removed = -(S @ kkh)
        S = S * w[s][None, :] + torch.outer(v[s], k[s]) + torch.outer(removed, kkh * a[s])
        st["wkv"][n] = S
        y = S @ r[s]
        if "ln_w" in b:
            mean = y.mean()
            y = (y - mean) / torch.sqrt(((y - mean) ** 2).mean() + group_eps)
            y = y * b["ln_w"][s] + b["ln_b"][s]
        out[s] = y + (r[s] * k[s] * b["r_k"][s]).sum() * v[s]
    if "g1" in b:
        out = out * (b["g2"] @ torch.sigmoid(b["g1"] @ (h + delta * b["x_g"])))
    return b["output"] @ out, v_first


def rwkv7(m, tokens):
    """m: dict(blocks, embed, ln0_w, ln0_b, norm_w, norm_b, head, head_size, eps), or for arwkv7
    without ln0 and with RMS norms. Returns logits [T][V], layers [L][T][C], states."""
    C, L, head = m["embed"].shape[1], len(m["blocks"]), m["head_size"]
    states = [
        dict(
            att=torch.zeros(C, dtype=F64),
            ffn=torch.zeros(C, dtype=F64),
            wkv=[torch.zeros(head, head, dtype=F64) for _ in range(C // head)],
        )
        for _ in range(L)
    ]
    logits, layers = [], [[] for _ in range(L)]
    classic = "ln0_w" in m
    for t in tokens:
        x = m["embed"][t]
        if classic:
            x = layer_norm(x, m["ln0_w"], m["ln0_b"], m["eps"])
        v_first = None
        for l, (b, st) in enumerate(zip(m["blocks"], states)):
            h = (
                layer_norm(x, b["ln1_w"], b["ln1_b"], m["eps"])
                if classic
                else rms(x, b["ln1_w"], m["eps"])
            )
            y, v_first = time_mix(b, h, st, v_first, head, m.get("group_eps", GROUP_EPS))
            x = x + y
            if classic:
                h = layer_norm(x, b["ln2_w"], b["ln2_b"], m["eps"])
                xk = h + (st["ffn"] - h) * b["ffn_x_k"]
                st["ffn"] = h
                x = x + b["ffn_value"] @ torch.relu(b["ffn_key"] @ xk) ** 2
            else:
                x = x + swiglu(
                    rms(x, b["ln2_w"], m["eps"]), b["ffn_gate"], b["ffn_up"], b["ffn_down"]
                )
            layers[l].append(x)
        x = (
            layer_norm(x, m["norm_w"], m["norm_b"], m["eps"])
            if classic
            else rms(x, m["norm_w"], m["eps"])
        )
        logits.append(m["head"] @ x)
    return torch.stack(logits), torch.stack([torch.stack(r) for r in layers]), states


# ---- GLM ------------------------------------------------------------------------------------


def glm_block(x, w, cfg, margins):
    """One block with experts over x [T][d]; w: tensors by their names inside the layer."""
    H, nope, rot, vd = cfg["heads"], cfg["nope"], cfg["rope"], cfg["v"]
    T, rank, eps = len(x), cfg["kv_lora"], cfg["eps"]
    h = rms(x, w["input_layernorm"], eps)
    q = rms(h @ w["self_attn.q_a_proj"].T, w["self_attn.q_a_layernorm"], cfg["inner_eps"])
    q = (q @ w["self_attn.q_b_proj"].T).view(T, H, nope + rot)
    u = h @ w["self_attn.kv_a_proj_with_mqa"].T
    c = rms(u[:, :rank], w["self_attn.kv_a_layernorm"], cfg["inner_eps"])
    kv = (c @ w["self_attn.kv_b_proj"].T).view(T, H, nope + vd)
    kr = torch.stack([rope(u[p, rank:], p, cfg["theta"], "norm") for p in range(T)])
    qr = torch.stack([rope(q[p, :, nope:], p, cfg["theta"], "norm") for p in range(T)])
    out = torch.zeros(T, H * vd, dtype=F64)
    for p in range(T):
        for n in range(H):
            s = kv[: p + 1, n, :nope] @ q[p, n, :nope] + kr[: p + 1] @ qr[p, n]
            a = torch.softmax(s / math.sqrt(nope + rot), 0)
            out[p, n * vd : (n + 1) * vd] = a @ kv[: p + 1, n, nope:]
    x = x + out @ w["self_attn.o_proj"].T
    h = rms(x, w["post_attention_layernorm"], eps)
    y = swiglu(h, *(w[f"mlp.shared_experts.{m}_proj"] for m in ("gate", "up", "down")))
    for p in range(T):
        score = torch.sigmoid(w["mlp.gate"] @ h[p])
        order = torch.argsort(score + w["bias"], descending=True)
        choice, ranked = order[: cfg["top_k"]], (score + w["bias"])[order]
        margins.append(float(ranked[cfg["top_k"] - 1] - ranked[cfg["top_k"]]))
        weight = score[choice] / score[choice].sum() * cfg["scale"]
        for e, we in zip(choice.tolist(), weight):
            y[p] = y[p] + we * swiglu(
                h[p], *(w[f"mlp.experts.{e}.{m}_proj"] for m in ("gate", "up", "down"))
            )
    return x + y


def glm_mtp(hidden, next_tokens, w, cfg, margins):
    """hidden: trunk states after the final norm [T][d]; logits for the token after the next."""
    e = rms(w["embed_tokens"][next_tokens], w["enorm"], cfg["eps"])
    g = rms(hidden, w["hnorm"], cfg["eps"])
    x = glm_block(torch.cat([e, g], -1) @ w["eh_proj"].T, w, cfg, margins)
    return rms(x, w["shared_head.norm"], cfg["eps"]) @ w["shared_head.head"].T


# ---- llama, as GGUF lays it out -------------------------------------------------------------


def llama_gguf(t, n_layer, heads, kv_heads, eps, base, tokens):
    """heads, kv_heads: of every block."""
    x = t["token_embd.weight"][tokens]
    T, hd = len(tokens), t["blk.0.attn_q.weight"].shape[0] // heads[0]
    for l in range(n_layer):
        H, KV = heads[l], kv_heads[l]
        w = {k.split(".")[2]: v for k, v in t.items() if k.startswith(f"blk.{l}.")}
        h = rms(x, w["attn_norm"], eps)
        q, k, v = ((h @ w["attn_" + m].T).view(T, -1, hd) for m in "qkv")
        q, k = (
            torch.stack([rope(z[p], p, base, "norm", t.get("rope_freqs.weight")) for p in range(T)])
            for z in (q, k)
        )
        out = torch.zeros(T, H, hd, dtype=F64)
        for p in range(T):
            for n in range(H):
                g = n // (H // KV)
                out[p, n] = (
                    torch.softmax(k[: p + 1, g] @ q[p, n] / math.sqrt(hd), 0) @ v[: p + 1, g]
                )
        x = x + out.view(T, -1) @ w["attn_output"].T
        x = x + swiglu(rms(x, w["ffn_norm"], eps), w["ffn_gate"], w["ffn_up"], w["ffn_down"])
    return rms(x, t["output_norm.weight"], eps) @ t["token_embd.weight"].T
