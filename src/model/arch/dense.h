#ifndef FLETCH_DENSE_H
#define FLETCH_DENSE_H

#include "model/arch/parts.h"

/* A decoder whose blocks are attention, then ffn(h) of the normed stream. */
struct decoder_spec {
    struct attention_spec attention;
    const char *ffn_norm; /* the tensor's name in the block; NULL: ffn_norm */
    struct operand (*ffn)(struct build *b, struct operand h, u32 l);
    /* of recurrent blocks, instead of attention, for the normed stream; NULL: there are none */
    struct operand (*mixer)(struct build *b, struct operand h, u32 l);
};
int dense_record(struct build *b, struct decoder_spec spec);
/* Block l of it, for stream x. */
struct operand dense_block(struct build *b, struct operand x, u32 l, struct decoder_spec spec);
/* The SwiGLU feed-forward of width n_ff. */
struct operand dense_ffn(struct build *b, struct operand h, u32 l);
/* Experts routed by softmax, in every block. */
struct operand dense_experts(struct build *b, struct operand h, u32 l);
/* Leading blocks with the feed-forward, the others with experts routed by sigmoid, whose selection
 * bias is blk.l.exp_probs_b.bias. */
struct operand dense_sigmoid_experts(struct build *b, struct operand h, u32 l);
/* The same, routed as expert_gating_func says, with a bias where the file has one. */
struct operand dense_gated_experts(struct build *b, struct operand h, u32 l);

#endif
