/* GLM-4.5 to 4.7: Qwen3's attention, rotated in a part of each head, with biases (the Air versions
 * lack the norms of q and k); DeepSeek's mixture of experts; one MTP block. */
#include "model/arch/dense.h"

static struct decoder_spec spec_of(const struct build *b)
{
    bool normed = bind_has(&b->bind, "blk.0.attn_q_norm");
    return (struct decoder_spec){
        .attention = {.rope = ROPE_NEOX, .qk_norm = normed ? QK_NORM_HEADS : QK_NORM_NONE},
        .ffn_norm = "post_attention_norm",
        .ffn = dense_sigmoid_experts};
}

static struct operand block(struct build *b, struct operand x, u32 l)
{
    return dense_block(b, x, l, spec_of(b));
}

int arch_glm4moe(struct build *b)
{
    if (b->hp->n_mtp > 1)
        return err_set(b->err, FLETCH_E_UNSUPPORTED, "more than one MTP block is not supported");
    int rc = dense_record(b, spec_of(b));
    return rc || !b->mtp ? rc : part_mtp(b, b->hp->n_layers, block);
}
