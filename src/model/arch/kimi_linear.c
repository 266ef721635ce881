/* Kimi Linear: three blocks of Kimi's delta attention, then one of latent attention that does not
 * rotate; experts as in DeepSeek V3. Its delta rule forgets each column of a key at a pace of its
 * own, and a convolution comes before each of queries, keys and values. */
#include <math.h>

#include "model/arch/dense.h"

/* silu(conv(W·h)) */
static struct operand convolved(struct build *b, struct operand h, u32 l, char part)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    u32 n = hp->recur_heads * hp->recur_head_k;
    u32 w = bind_matrix(bind, hp->d_model, n, "blk.%u.attn_%c", l, part);
    u32 taps = bind_vector(bind, n * hp->n_taps, "blk.%u.ssm_conv1d_%c", l, part);
    u32 past = net_state(b->p->net, (hp->n_taps - 1) * n);
    struct operand x = prog_matmul(b->p, "kda_in", h, w, NO_WEIGHT);
    x = prog_conv(b->p, "conv", x, past, taps, NO_WEIGHT);
    return prog_act(b->p, "conv_silu", ACT_SILU, x);
}

/* Wb·Wa·h of n columns, through as many as a head has */
static struct operand low_rank(struct build *b, struct operand h, u32 l, char part, u32 bias)
{
    u32 n = b->hp->recur_head_k, d = b->hp->d_model;
    u32 wa = bind_matrix(&b->bind, d, n, "blk.%u.ssm_%c_a", l, part);
    u32 wb = bind_matrix(&b->bind, n, b->hp->recur_heads * n, "blk.%u.ssm_%c_b", l, part);
    return prog_matmul(b->p, "low_b", prog_matmul(b->p, "low_a", h, wa, NO_WEIGHT), wb, bias);
}

static struct operand delta(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 n = hp->recur_head_k, heads = hp->recur_heads, d = hp->d_model;
    struct recurrence_spec spec = {.kind = RECURRENCE_DELTA, .head = n, .n_heads = heads};
    spec.r = part_l2_norm(b, "q_l2", convolved(b, h, l, 'q'), 1 / sqrtf((float)n));
    spec.k = part_l2_norm(b, "k_l2", convolved(b, h, l, 'k'), 1);
    spec.v = convolved(b, h, l, 'v');
    u32 bias = bind_vector(bind, heads * n, "blk.%u.ssm_dt.bias", l);
    struct operand g = prog_act(p, "pace", ACT_SOFTPLUS, low_rank(b, h, l, 'f', bias));
    g = prog_mul_heads_weight(p, "log_decay", g, bind_vector(bind, heads, "blk.%u.ssm_a", l));
    spec.w = prog_act(p, "decay", ACT_EXP, g);
    u32 wb = bind_matrix(bind, d, heads, "blk.%u.ssm_beta", l);
    spec.b = prog_act(p, "strength", ACT_SIGMOID, prog_matmul(p, "beta", h, wb, NO_WEIGHT));
    spec.state = net_state(p->net, heads * n * n);
    struct operand y = prog_recurrence(p, "kda", spec);
    y = prog_norm(p, "kda_norm", y,
                  (struct norm_spec){.kind = NORM_RMS,
                                     .group = n,
                                     .eps = hp->eps,
                                     .w = bind_vector(bind, n, "blk.%u.ssm_norm", l),
                                     .b = NO_WEIGHT});
    struct operand gate = prog_act(p, "kda_gate", ACT_SIGMOID, low_rank(b, h, l, 'g', NO_WEIGHT));
    u32 wo = bind_matrix(bind, heads * n, d, "blk.%u.attn_output", l);
    return prog_matmul(p, "kda_out", prog_mul(p, "kda_gated", y, gate), wo, NO_WEIGHT);
}

int arch_kimi_linear(struct build *b)
{
    return dense_record(b, (struct decoder_spec){
                               .ffn = dense_gated_experts, .attend = part_latent, .mixer = delta});
}
