/* The gated delta net of Qwen3-Next and Qwen3.5. A state of [value][key] for each head forgets a
 * part of itself with every token and learns what it does not yet answer to the token's key. */
#include <math.h>

#include "model/arch/parts.h"

struct operand part_l2_norm(struct build *b, const char *label, struct operand x, float scale)
{
    u32 n = b->hp->recur_head_k;
    return prog_norm(b->p, label, x,
                     (struct norm_spec){.kind = NORM_RMS,
                                        .group = n,
                                        .eps = 1e-6f / (float)n,
                                        .w = bind_constant(&b->bind, n, scale / sqrtf((float)n)),
                                        .b = NO_WEIGHT});
}

/* Rows of ssm_ba: for every key head one for each of its heads' beta, then for their alpha. */
static struct operand from_both(struct build *b, const char *label, struct operand h, u32 l,
                                bool alpha)
{
    u32 keys = b->hp->recur_keys, n = b->hp->recur_heads / keys;
    u32 w = bind_rows(&b->bind, b->hp->d_model, 2 * n, alpha ? n : 0, n, keys, "blk.%u.ssm_ba", l);
    struct operand y = prog_buf(b->p, label, b->hp->recur_heads);
    prog_matmul_heads_to(b->p, y, n, h, 0, w);
    return y;
}

/* What is learned: σ(beta). What is left of the state: exp(a·softplus(alpha + bias)), a below 0. */
static void record_gates(struct build *b, struct operand h, u32 l, struct operand *strength,
                         struct operand *decay)
{
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = b->hp->d_model, n = b->hp->recur_heads;
    u32 bias = bind_vector(bind, n, "blk.%u.ssm_dt.bias", l);
    struct operand beta, alpha;
    if (bind_has(bind, "blk.%u.ssm_ba", l)) {
        beta = from_both(b, "beta", h, l, false);
        alpha = prog_add_weight(p, "alpha", from_both(b, "alpha", h, l, true), bias);
    } else {
        beta = prog_matmul(p, "beta", h, bind_matrix(bind, d, n, "blk.%u.ssm_beta", l), NO_WEIGHT);
        alpha = prog_matmul(p, "alpha", h, bind_matrix(bind, d, n, "blk.%u.ssm_alpha", l), bias);
    }
    *strength = prog_act(p, "strength", ACT_SIGMOID, beta);
    alpha = prog_act(p, "alpha_softplus", ACT_SOFTPLUS, alpha);
    alpha = prog_mul_weight(p, "log_decay", alpha, bind_vector(bind, n, "blk.%u.ssm_a", l));
    *decay = prog_act(p, "decay", ACT_EXP, alpha);
}

struct operand part_delta_net(struct build *b, struct operand h, u32 l, bool in_turns)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 n = hp->recur_head_k, keys = hp->recur_keys * n,
        values = hp->recur_heads * hp->recur_head_v;
    u32 width = 2 * keys + values, d = hp->d_model;
    struct recurrence_spec spec = {
        .kind = RECURRENCE_DELTA, .head = n, .n_heads = hp->recur_heads, .tiled = in_turns};
    struct operand qkv =
        prog_matmul(p, "qkv", h, bind_matrix(bind, d, width, "blk.%u.attn_qkv", l), NO_WEIGHT);
    struct operand z =
        prog_matmul(p, "z", h, bind_matrix(bind, d, values, "blk.%u.attn_gate", l), NO_WEIGHT);
    record_gates(b, h, l, &spec.b, &spec.w);
    u32 taps = bind_vector(bind, width * hp->n_taps, "blk.%u.ssm_conv1d", l);
    u32 past = net_state(p->net, (hp->n_taps - 1) * width);
    qkv = prog_act(p, "conv_silu", ACT_SILU, prog_conv(p, "conv", qkv, past, taps, NO_WEIGHT));
    spec.r = part_l2_norm(b, "q_l2", prog_cols(p, qkv, 0, keys), 1 / sqrtf((float)n));
    spec.k = part_l2_norm(b, "k_l2", prog_cols(p, qkv, keys, keys), 1);
    spec.v = prog_cols(p, qkv, 2 * keys, values);
    spec.state = net_state(p->net, values * n);
    struct operand y = prog_recurrence(p, "delta", spec);
    y = prog_norm(p, "delta_norm", y,
                  (struct norm_spec){.kind = NORM_RMS,
                                     .group = hp->recur_head_v,
                                     .eps = hp->eps,
                                     .w = bind_vector(bind, hp->recur_head_v, "blk.%u.ssm_norm", l),
                                     .b = NO_WEIGHT});
    y = prog_glu(p, "delta_gated", z, y);
    return prog_matmul(p, "delta_out", y, bind_matrix(bind, values, d, "blk.%u.ssm_out", l),
                       NO_WEIGHT);
}
