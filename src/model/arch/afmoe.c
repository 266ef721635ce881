/* Trinity (afmoe): columns of attention's output are multiplied by the sigmoid of a gate, norms lie
 * behind both halves of a block too, layers without a window do not rotate; experts are routed by
 * sigmoid beside shared ones, after the first dense blocks. */
#include "model/arch/dense.h"

int arch_afmoe(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = QK_NORM_HEADS,
                                                               .gated = true,
                                                               .gate_act = ACT_SIGMOID,
                                                               .post_norm = "post_attention_norm"},
                                                 .ffn = dense_sigmoid_experts,
                                                 .post_norm = "post_ffw_norm"});
}
