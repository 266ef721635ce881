/* Nemotron-H: each block is one of Mamba-2, attention without rotation, and a feed-forward without
 * gates, which is dense or has experts routed by sigmoid; in Super those read a narrower stream. */
#include "model/arch/dense.h"

static struct operand block_part(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (hp->block_recurrent[l]) return part_mamba(b, h, l);
    if (hp->block_kv_heads[l])
        return part_attend(b, h, l, (struct attention_spec){.plain_every = 1});
    if (!hp->n_experts) return dense_ffn(b, h, l);
    u32 bias = bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    return part_experts(
        b, h, l,
        (struct expert_spec){
            .kind = ROUTE_SIGMOID, .bias = bias, .scales = NO_WEIGHT, .n_shared = hp->n_ff_shared});
}

int arch_nemotron_h(struct build *b)
{
    b->ungated = true;
    b->act = ACT_RELU2;
    return dense_record(b, (struct decoder_spec){.whole = block_part});
}
