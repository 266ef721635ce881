/* gpt-oss: a mixture of experts whose attention has sinks and, in every other layer, a window; all
 * matrices have biases, and gates are clamped. */
#include "model/arch/dense.h"

int arch_gpt_oss(struct build *b)
{
    b->glu = (struct glu_spec){.kind = GLU_CLAMPED, .alpha = 1.702f, .limit = 7};
    return dense_record(b,
                        (struct decoder_spec){.attention = {.rope = ROPE_NEOX, .sinks = SINKS_ALL},
                                              .ffn_norm = "post_attention_norm",
                                              .ffn = dense_experts});
}
