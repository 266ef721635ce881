/* Llama 2 and 3, Mistral, SmolLM2: the plain decoder, rotation in neighbouring pairs. */
#include "model/arch/dense.h"

int arch_llama(struct build *b)
{
    return dense_record(b, (struct attention_spec){.rope = ROPE_NORM}, dense_ffn);
}
