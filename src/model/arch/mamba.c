/* Mamba-2. A state of [value][key] for each head forgets a part of itself with every token, the
 * more the longer its step is, and learns the token's key and value times the step. */
#include "model/arch/parts.h"

/* Softplus of the step of every head, and what it leaves of the state: exp(a·step), a below 0. */
static void record_step(struct build *b, struct operand dt, u32 l, struct operand *step,
                        struct operand *decay)
{
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    dt = prog_add_weight(p, "step_in", dt, bind_vector(bind, dt.width, "blk.%u.ssm_dt.bias", l));
    *step = prog_act(p, "step", ACT_SOFTPLUS, dt);
    u32 a = bind_vector(bind, dt.width, "blk.%u.ssm_a", l);
    struct operand log_decay = prog_mul_weight(p, "log_decay", *step, a);
    *decay = prog_act(p, "decay", ACT_EXP, log_decay);
}

struct operand part_mamba(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 n = hp->recur_heads, values = n * hp->recur_head_v, d = hp->d_model;
    u32 keys = hp->recur_keys * hp->recur_head_k, width = values + 2 * keys;
    struct recurrence_spec spec = {
        .kind = RECURRENCE_PLAIN, .head = hp->recur_head_k, .n_heads = n};
    u32 w = bind_matrix(bind, d, values + width + n, "blk.%u.ssm_in", l);
    struct operand all = prog_matmul(p, "mamba_in", h, w, NO_WEIGHT);
    struct operand z = prog_cols(p, all, 0, values);
    struct operand x = prog_cols(p, all, values, width);
    record_step(b, prog_cols(p, all, values + width, n), l, &spec.b, &spec.w);
    u32 taps = bind_vector(bind, width * hp->n_taps, "blk.%u.ssm_conv1d", l);
    u32 bias = bind_vector_opt(bind, width, "blk.%u.ssm_conv1d.bias", l);
    u32 past = net_state(p->net, (hp->n_taps - 1) * width);
    x = prog_act(p, "conv_silu", ACT_SILU, prog_conv(p, "conv", x, past, taps, bias));
    spec.v = prog_cols(p, x, 0, values);
    spec.k = prog_cols(p, x, values, keys);
    spec.r = prog_cols(p, x, values + keys, keys);
    spec.state = net_state(p->net, values * hp->recur_head_k);
    struct operand y = prog_recurrence(p, "mamba", spec);
    struct operand skip =
        prog_mul_heads_weight(p, "mamba_skip", spec.v, bind_vector(bind, n, "blk.%u.ssm_d", l));
    y = prog_glu(p, "mamba_gated", z, prog_add(p, "mamba_sum", y, skip));
    if (bind_has(bind, "blk.%u.ssm_norm", l))
        y = prog_norm(p, "mamba_norm", y,
                      (struct norm_spec){.kind = NORM_RMS,
                                         .group = values / hp->recur_keys,
                                         .eps = hp->eps,
                                         .w = bind_vector(bind, values, "blk.%u.ssm_norm", l),
                                         .b = NO_WEIGHT});
    return prog_matmul(p, "mamba_out", y, bind_matrix(bind, values, d, "blk.%u.ssm_out", l),
                       NO_WEIGHT);
}
