/* ERNIE 4.5: Llama; its mixture of experts has leading dense blocks, shared experts and a selection
 * bias that is added to softmax's probabilities. */
#include "model/arch/dense.h"

int arch_ernie4_5(struct build *b)
{
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NORM}, .ffn = dense_ffn});
}

int arch_ernie4_5_moe(struct build *b)
{
    return dense_record(
        b, (struct decoder_spec){.attention = {.rope = ROPE_NORM}, .ffn = dense_gated_experts});
}
