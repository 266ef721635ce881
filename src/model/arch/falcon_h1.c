/* Falcon-H1: attention and Mamba-2 read the same norm, and both are added to the stream. Its
 * multipliers are part of the matrices. */
#include "model/arch/dense.h"

static struct operand both(struct build *b, struct operand x, u32 l)
{
    struct operand h = part_block_norm(b, "attn_norm", x, l, "attn_norm");
    struct operand a = part_attend(b, h, l, (struct attention_spec){.rope = ROPE_NEOX});
    struct operand y = prog_add(b->p, "mixed", a, part_mamba(b, h, l));
    return part_residual(b, "attn_residual", x, y);
}

int arch_falcon_h1(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.ffn = dense_ffn, .attend = both});
}
