/* OLMo 2 and 3, EXAONE 4: blocks whose halves are normed behind, not before; OLMo norms all heads
 * of q and of k at once. */
#include "model/arch/dense.h"

static int record(struct build *b, enum qk_norm qk_norm)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = qk_norm,
                                                               .no_norm = true,
                                                               .post_norm = "post_attention_norm"},
                                                 .no_norm = true,
                                                 .ffn = dense_ffn,
                                                 .post_norm = "post_ffw_norm"});
}

int arch_olmo2(struct build *b)
{
    return record(b, QK_NORM_WHOLE);
}

int arch_exaone4(struct build *b)
{
    return record(b, QK_NORM_HEADS);
}
