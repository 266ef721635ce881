/* GLM-4, dense: Llama, rotated in a part of each head, with norms behind both halves of a block
 * too. */
#include "model/arch/dense.h"

int arch_glm4(struct build *b)
{
    return dense_record(b, (struct decoder_spec){
                               .attention = {.rope = ROPE_NORM, .post_norm = "post_attention_norm"},
                               .ffn = dense_ffn,
                               .post_norm = "post_ffw_norm"});
}
