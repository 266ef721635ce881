/* Phi-3 and Phi-4: Llama with q, k and v in one tensor, gate and up in another, and rotation of
 * half-split pairs, in newer ones of a part of each head; in some by one of two tables (longrope).
 */
#include "model/arch/dense.h"

int arch_phi3(struct build *b)
{
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NEOX}, .ffn = dense_ffn});
}
