/* Laguna: heads, or columns, of attention's output are multiplied by the softplus of a gate; layers
 * with a window rotate other columns by another table; experts as in Trinity (afmoe.c). */
#include "model/arch/dense.h"

static struct operand ffn(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    u32 bias = bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    return part_experts(
        b, h, l,
        (struct expert_spec){
            .kind = ROUTE_SIGMOID, .bias = bias, .scales = NO_WEIGHT, .n_shared = hp->n_ff_shared});
}

int arch_laguna(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = QK_NORM_HEADS,
                                                               .gated = true,
                                                               .gate_act = ACT_SOFTPLUS},
                                                 .ffn = ffn});
}
