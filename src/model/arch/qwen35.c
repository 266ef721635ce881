/* Qwen3-Next, Qwen3.5 and 3.6: three blocks of a gated delta net, then one of Qwen3's attention
 * with gated heads that rotate in a part; dense, or experts routed by softmax beside a gated shared
 * one; one MTP block. GGUF files of Qwen3.5 have the heads of the delta net in turns, those of
 * Qwen3-Next beside those that share their keys. */
#include <string.h>

#include "model/arch/dense.h"

static struct operand delta_in_turns(struct build *b, struct operand h, u32 l)
{
    return part_delta_net(b, h, l, true);
}

static struct operand delta_in_order(struct build *b, struct operand h, u32 l)
{
    return part_delta_net(b, h, l, false);
}

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
    bool next = strcmp(b->hp->arch, "qwen3next") == 0;
    return (struct decoder_spec){
        .attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS, .q_gate = true},
        .ffn_norm = "post_attention_norm",
        .ffn = b->hp->n_experts ? experts : dense_ffn,
        .mixer = next ? delta_in_order : delta_in_turns};
}

static struct operand block(struct build *b, struct operand x, u32 l)
{
    return dense_block(b, x, l, spec_of(b));
}

int arch_qwen35(struct build *b)
{
    if (b->hp->n_mtp > 1)
        return err_set(b->err, FLETCH_E_UNSUPPORTED, "more than one MTP block is not supported");
    int rc = dense_record(b, spec_of(b));
    return rc || !b->mtp ? rc : part_mtp(b, b->hp->n_layers, block);
}
