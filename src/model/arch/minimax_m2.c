/* MiniMax-M2: Qwen3's mixture of experts whose q and k are normed over all heads at once, rotated
 * in a part of each head, and whose routing is DeepSeek's without shared experts. */
#include "model/arch/dense.h"

int arch_minimax_m2(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_WHOLE},
                                 .ffn = dense_sigmoid_experts});
}
