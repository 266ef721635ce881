/* Gemma: GeGLU and norms behind both halves of a block too; Gemma 2 caps scores and logits, Gemma 3
 * norms the heads of q and k and rotates layers with a window by a table of their own. */
#include "model/arch/dense.h"

static int record(struct build *b, enum qk_norm qk_norm)
{
    b->glu.kind = GLU_GELU;
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = qk_norm,
                                                               .post_norm = "post_attention_norm"},
                                                 .ffn = dense_ffn,
                                                 .post_norm = "post_ffw_norm"});
}

int arch_gemma2(struct build *b)
{
    return record(b, QK_NORM_NONE);
}

int arch_gemma3(struct build *b)
{
    return record(b, QK_NORM_HEADS);
}
