/* EXAONE MoE (K-EXAONE): Qwen3's attention with a window where it rotates; experts routed by
 * sigmoid beside shared ones, after the first dense blocks. */
#include "model/arch/dense.h"

int arch_exaone_moe(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS},
                                 .ffn = dense_sigmoid_experts});
}
