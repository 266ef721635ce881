#ifndef FLETCH_DENSE_H
#define FLETCH_DENSE_H

#include "model/arch/parts.h"

/* A decoder whose blocks are attention, then ffn(h) of the normed stream. Its tensors' names are
 * those of GGUF, without "blk.l.". */
struct decoder_spec {
    struct attention_spec attention;
    bool parallel; /* the feed-forward reads what attention reads, and both are added at once */
    bool no_norm;  /* the feed-forward reads the stream as it is */
    const char *ffn_norm;  /* the tensor's name in the block; NULL: ffn_norm */
    const char *post_norm; /* likewise of a norm behind the feed-forward; NULL: none */
    struct operand (*ffn)(struct build *b, struct operand h, u32 l);
    struct operand (*begin)(struct build *b, struct operand x);       /* of the embedded tokens */
    struct operand (*tail)(struct build *b, struct operand x, u32 l); /* of a block's output */
    /* of recurrent blocks, instead of attention, for the normed stream; NULL: there are none */
    struct operand (*mixer)(struct build *b, struct operand h, u32 l);
    /* instead of attention: x plus what it makes of the stream; NULL: as attention says */
    struct operand (*attend)(struct build *b, struct operand x, u32 l);
    /* all of a block, for the normed stream; NULL: attention or mixer, then ffn */
    struct operand (*whole)(struct build *b, struct operand h, u32 l);
    const char *output_norm; /* the tensor's name; NULL: output_norm */
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
