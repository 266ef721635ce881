/* Granite: Llama with scales of the embedding, the residuals, attention and the logits. */
#include "model/arch/dense.h"

int arch_granite(struct build *b)
{
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NORM}, .ffn = dense_ffn});
}
