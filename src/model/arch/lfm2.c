/* LFM2: Qwen3's attention in some blocks, in the others a short convolution between two gates;
 * dense, or experts routed by sigmoid with a selection bias behind leading dense blocks. */
#include "model/arch/dense.h"

/* Wout·(c ⊙ conv(g ⊙ x)), with g, c and x of Win·h */
static struct operand short_conv(struct build *b, struct operand h, u32 l)
{
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = b->hp->d_model, n = b->hp->n_taps;
    u32 w = bind_matrix(bind, d, 3 * d, "blk.%u.shortconv.in_proj", l);
    struct operand all = prog_matmul(p, "conv_in", h, w, NO_WEIGHT);
    struct operand x =
        prog_mul(p, "conv_gated", prog_cols(p, all, 2 * d, d), prog_cols(p, all, 0, d));
    u32 taps = bind_vector(bind, d * n, "blk.%u.shortconv.conv", l);
    x = prog_conv(p, "conv", x, net_state(p->net, (n - 1) * d), taps, NO_WEIGHT);
    x = prog_mul(p, "conv_out_gated", x, prog_cols(p, all, d, d));
    w = bind_matrix(bind, d, d, "blk.%u.shortconv.out_proj", l);
    return prog_matmul(p, "conv_out", x, w, NO_WEIGHT);
}

int arch_lfm2(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS},
                                 .ffn = b->hp->n_experts ? dense_sigmoid_experts : dense_ffn,
                                 .mixer = short_conv,
                                 .output_norm = "token_embd_norm"}); /* what its files call it */
}
