/* Qwen3 mixture of experts: Qwen3's attention; every feed-forward is routed by softmax, top k. */
#include "model/arch/dense.h"

int arch_qwen3moe(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS},
                                 .ffn = dense_experts});
}
