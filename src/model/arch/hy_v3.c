/* Hy3, Ling 2: heads normed before they rotate, leading dense blocks, then experts routed by
 * sigmoid with a selection bias, beside a shared one. */
#include "model/arch/dense.h"

int arch_hy_v3(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS},
                                 .ffn = dense_sigmoid_experts});
}
