/* Qwen3: no biases, but an RMS norm on every head of q and k. */
#include "model/arch/dense.h"

int arch_qwen3(struct build *b)
{
    return dense_record(b, (struct attention_spec){.rope = ROPE_NEOX, .qk_norm = true}, dense_ffn);
}
