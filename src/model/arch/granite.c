/* Granite: Llama with scales of the embedding, the residuals, attention and the logits; in some no
 * layer rotates. */
#include "model/arch/dense.h"

int arch_granite(struct build *b)
{
    struct attention_spec attention = {.rope = ROPE_NORM, .plain_every = b->hp->no_rope ? 1 : 0};
    return dense_record(b, (struct decoder_spec){.attention = attention, .ffn = dense_ffn});
}
