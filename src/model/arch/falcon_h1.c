/* Falcon-H1: attention and Mamba-2 read the same norm, and both are added to the stream. Its
 * multipliers are part of the matrices. */
#include "model/arch/dense.h"

static struct operand both(struct build *b, struct operand h, u32 l)
{
    struct operand a = part_attend(b, h, l, (struct attention_spec){.rope = ROPE_NEOX});
    return prog_add(b->p, "mixed", a, part_mamba(b, h, l));
}

int arch_falcon_h1(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.ffn = dense_ffn, .mixer = both});
}
