/* Qwen3: no biases, but an RMS norm on every head of q and k. */
#include "model/arch/dense.h"

int arch_qwen3(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .qk_norm = QK_NORM_HEADS},
                                 .ffn = dense_ffn});
}
