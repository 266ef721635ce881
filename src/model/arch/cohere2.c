/* Cohere 2, dense and mixture of experts: attention and the feed-forward read the same norm, a
 * layer norm without a bias; layers without a window do not rotate. */
#include "model/arch/dense.h"

/* Blocks with experts give the mean of what they and shared ones say. */
static struct operand experts(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    u32 n_shared = hp->n_ff_expert * hp->n_shared_experts;
    enum route_kind kind = hp->expert_gating == 1 ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    struct operand y = part_experts(
        b, h, l,
        (struct expert_spec){
            .kind = kind, .bias = NO_WEIGHT, .scales = NO_WEIGHT, .n_shared = n_shared});
    return n_shared ? part_scale(b, "moe_mean", y, 0.5f) : y;
}

int arch_cohere2_moe(struct build *b)
{
    return dense_record(b, (struct decoder_spec){
                               .attention = {.rope = ROPE_NORM}, .parallel = true, .ffn = experts});
}

int arch_cohere2(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NORM},
                                                 .parallel = true,
                                                 .ffn = dense_ffn});
}
