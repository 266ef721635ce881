/* Llama 2 and 3, Mistral, SmolLM2: the plain decoder, rotation in neighbouring pairs. Mixtral: its
 * feed-forward is a mixture of experts. */
#include "model/arch/dense.h"

int arch_llama(struct build *b)
{
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NORM},
                                              .ffn = b->hp->n_experts ? dense_experts : dense_ffn});
}
