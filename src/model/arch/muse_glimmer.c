/* Muse Glimmer: the embedding is normed, columns of attention's output are multiplied by the
 * sigmoid of a gate, norms with an epsilon of their own lie behind both halves of a block too,
 * layers without a window do not rotate. */
#include "model/arch/dense.h"

static struct operand norm_embedding(struct build *b, struct operand x)
{
    return part_heads_norm(b, "embed_norm", x, x.width, NO_WEIGHT);
}

int arch_muse_glimmer(struct build *b)
{
    b->post_eps = 1e-8f;
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NORM,
                                                               .qk_norm = QK_NORM_HEADS,
                                                               .gated = true,
                                                               .gate_act = ACT_SIGMOID,
                                                               .post_norm = "post_attention_norm"},
                                                 .ffn = dense_ffn,
                                                 .post_norm = "post_ffw_norm",
                                                 .begin = norm_embedding});
}
