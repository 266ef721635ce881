/* MiMo V2: heads whose values are narrower than their keys, sinks in layers with a window, a scale
 * of what attention gives; blocks without a router have the dense feed-forward. */
#include "model/arch/dense.h"

static struct operand ffn(struct build *b, struct operand h, u32 l)
{
    if (!bind_has(&b->bind, "blk.%u.ffn_gate_inp", l)) return dense_ffn(b, h, l);
    return dense_sigmoid_experts(b, h, l);
}

int arch_mimo2(struct build *b)
{
    return dense_record(b, (struct decoder_spec){
                               .attention = {.rope = ROPE_NEOX, .sinks = SINKS_SOME}, .ffn = ffn});
}
