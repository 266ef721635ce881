#ifndef FLETCH_DENSE_H
#define FLETCH_DENSE_H

#include "model/arch/parts.h"

/* A decoder of equal blocks: attention as given, then ffn(h) of the normed stream. */
int dense_record(struct build *b, struct attention_spec attention,
                 struct operand (*ffn)(struct build *b, struct operand h, u32 l));
/* The SwiGLU feed-forward of width n_ff. */
struct operand dense_ffn(struct build *b, struct operand h, u32 l);

#endif
