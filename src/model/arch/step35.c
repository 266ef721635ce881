/* Step 3.5 and 3.7: heads are multiplied by the sigmoid of a gate, layers with a window have other
 * numbers of heads and rotate whole ones; in some layers the units of the feed-forward are limited,
 * by one number in routed experts and by another in the shared one. */
#include "model/arch/dense.h"

static struct glu_spec limited(float limit)
{
    return (struct glu_spec){.kind = limit > 0 ? GLU_LIMITED : GLU_SILU, .limit = limit};
}

static struct operand ffn(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    struct glu_spec shared = limited(hp->block_limit_shared[l]);
    b->glu = shared;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    b->glu = limited(hp->block_limit[l]);
    u32 bias = bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    return part_experts(b, h, l,
                        (struct expert_spec){.kind = ROUTE_SIGMOID,
                                             .bias = bias,
                                             .scales = NO_WEIGHT,
                                             .n_shared = hp->n_ff_shared,
                                             .shared_glu = &shared});
}

int arch_step35(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = QK_NORM_HEADS,
                                                               .gated = true,
                                                               .gate_act = ACT_SIGMOID},
                                                 .ffn = ffn});
}
