/* SmolLM3: Llama in which every fourth layer does not rotate. */
#include "model/arch/dense.h"

int arch_smollm3(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NORM, .plain_every = 4},
                                                 .ffn = dense_ffn});
}
