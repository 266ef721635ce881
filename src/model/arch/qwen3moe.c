/* Qwen3 mixture of experts: Qwen3's attention; every feed-forward is routed by softmax, top k. */
#include "model/arch/dense.h"

static struct operand moe_ffn(struct build *b, struct operand h, u32 l)
{
    return part_experts(b, h, l, ROUTE_SOFTMAX, NO_WEIGHT, 0);
}

int arch_qwen3moe(struct build *b)
{
    return dense_record(b, (struct attention_spec){.rope = ROPE_NEOX, .qk_norm = true}, moe_ffn);
}
