/* Qwen2 and 2.5: biases on q, k and v; rotation of half-split pairs. */
#include "model/arch/dense.h"

int arch_qwen2(struct build *b)
{
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NEOX}, .ffn = dense_ffn});
}
