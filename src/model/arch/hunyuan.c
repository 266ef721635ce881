/* Hunyuan: Qwen3 whose q and k are normed after the rotation; its mixture of experts has a shared
 * expert and is routed by softmax. */
#include "model/arch/dense.h"

int arch_hunyuan_dense(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_LAST},
                                 .ffn = dense_ffn});
}

int arch_hunyuan_moe(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_LAST},
                                 .ffn = dense_gated_experts});
}
