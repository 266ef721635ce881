/* Llama 4: three of four layers rotate and attend within chunks, with norms of rotated heads that
 * have no weights; the others do neither, and their queries grow with their position. The router's
 * weight goes into the one expert that it chooses, beside a shared one, in every block or every
 * second. */
#include "model/arch/dense.h"

static struct operand ffn(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if ((l + 1) % hp->expert_every) return dense_ffn(b, h, l);
    return part_experts(b, h, l,
                        (struct expert_spec){.kind = ROUTE_SIGMOID,
                                             .bias = NO_WEIGHT,
                                             .scales = NO_WEIGHT,
                                             .on_input = true,
                                             .n_shared = hp->n_ff_expert});
}

int arch_llama4(struct build *b)
{
    if (b->hp->n_experts_used != 1)
        return err_set(b->err, FLETCH_E_UNSUPPORTED,
                       "metadata key 'llama4.expert_used_count' is %u, only 1 is supported",
                       b->hp->n_experts_used);
    enum qk_norm norm = b->hp->qk_norm ? QK_NORM_BARE : QK_NORM_NONE;
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NORM, .qk_norm = norm}, .ffn = ffn});
}
