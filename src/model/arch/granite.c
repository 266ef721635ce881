/* Granite: Llama with scales of the embedding, the residuals, attention and the logits; in some no
 * layer rotates. Granite 4 H has Mamba-2 in most blocks, and experts beside a shared one. */
#include "model/arch/dense.h"

static struct operand experts(struct build *b, struct operand h, u32 l)
{
    return part_experts(b, h, l,
                        (struct expert_spec){.kind = ROUTE_SOFTMAX,
                                             .bias = NO_WEIGHT,
                                             .scales = NO_WEIGHT,
                                             .n_shared = b->hp->n_ff_shared});
}

static struct decoder_spec spec_of(const struct build *b)
{
    return (struct decoder_spec){
        .attention = {.rope = ROPE_NORM, .plain_every = b->hp->no_rope ? 1 : 0},
        .ffn = b->hp->n_experts ? experts : dense_ffn};
}

int arch_granite(struct build *b)
{
    return dense_record(b, spec_of(b));
}

int arch_granite_hybrid(struct build *b)
{
    struct decoder_spec spec = spec_of(b);
    spec.mixer = part_mamba;
    return dense_record(b, spec);
}
