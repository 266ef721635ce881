/* What several architectures are made of. x is the residual stream [T][d]. */
#ifndef FLETCH_PARTS_H
#define FLETCH_PARTS_H

#include "model/arch.h"

/* The norm of x that the model has, by a weight, or by the one of that name in block l; an RMS norm
 * of each `width` columns by one weight of that many (NO_WEIGHT: none). */
struct operand part_norm(struct build *b, const char *label, struct operand x, u32 w);
struct operand part_heads_norm(struct build *b, const char *label, struct operand x, u32 width,
                               u32 w);
struct operand part_block_norm(struct build *b, const char *label, struct operand x, u32 l,
                               const char *name);
/* The norm of that name behind a half of block l. */
struct operand part_post_norm(struct build *b, const char *label, struct operand x, u32 l,
                              const char *name);
/* x times value; x itself for 1 and for 0, which means that there is no such scale. */
struct operand part_scale(struct build *b, const char *label, struct operand x, float value);
/* The embedding of the step's tokens, scaled where the model says so. */
struct operand part_embed(struct build *b);
/* x + y, y scaled where the model says so. */
struct operand part_residual(struct build *b, const char *label, struct operand x,
                             struct operand y);

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEADS, /* RMS norm of every head of q and k, before the rotation */
    QK_NORM_WHOLE, /* RMS norm of all heads of q at once, and of k, before the rotation */
    QK_NORM_LAST,  /* as HEADS, but after the rotation */
    QK_NORM_BARE,  /* as LAST, without weights and in blocks that rotate */
};

/* Blocks that have attn_sinks: all of them, or those whose tensor is there. */
enum sinks { SINKS_NONE, SINKS_ALL, SINKS_SOME };

struct attention_spec {
    enum rope_kind rope;
    u32 plain_every; /* every such layer does not rotate (the 4th, 8th, ... of 4); 0: all do */
    enum qk_norm qk_norm;
    bool q_gate; /* behind the query of each head, q's matrix has as many rows for a gate, whose
                    sigmoid the head's output is multiplied by */
    bool gated;  /* heads, or their columns, are multiplied by gate_act of attn_gate's product */
    enum act_kind gate_act;
    enum sinks sinks;
    bool no_norm; /* it reads the stream as it is */
    bool v_norm;  /* RMS norm of every head of v, without a weight; a block without a matrix for
                     values has keys for them, before their norm */
    float scale;  /* of scores; 0: the model's */
    const char *post_norm; /* the name of a norm behind it; NULL: none */
};
/* Wo·attention(h) of block l; biases are used where the file has them. */
struct operand part_attend(struct build *b, struct operand h, u32 l, struct attention_spec spec);
/* x + Wo·attention(norm(x)) of block l, with the norms that spec says. */
struct operand part_attention(struct build *b, struct operand x, u32 l, struct attention_spec spec);

/* Wdown·glu(Wgate·h, Wup·h), or Wdown·act(Wup·h) where the model has no gates, with tensors
 * blk.l.ffn_{gate,up,down}{suffix}; without a gate of its own, ffn_up has its rows before those of
 * up. */
struct operand part_swiglu(struct build *b, struct operand h, u32 l, u32 n_ff, const char *suffix);

struct expert_spec {
    enum route_kind kind;
    u32 bias, scales;                  /* of the route; NO_WEIGHT: none */
    u32 n_shared;                      /* columns of shared experts; 0: none */
    const struct glu_spec *shared_glu; /* of shared experts; NULL: as the others' */
    bool on_input;                     /* the weight of the one choice goes into the expert */
    struct operand router;             /* what the router reads; of width 0: what experts read */
};
/* The routed experts of block l for h. */
struct operand part_experts(struct build *b, struct operand h, u32 l, struct expert_spec spec);

/* Wo·(norm of the gated delta net of h) of block l: convolution, recurrence, a norm by head, a
 * gate. in_turns: neighbouring heads have different keys. */
struct operand part_delta_net(struct build *b, struct operand h, u32 l, bool in_turns);

/* x + Wo·MLA(norm(x)) of block l. Per head: query [nope | rope], absorbed by k_b into the latent
 * space. */
struct operand part_latent(struct build *b, struct operand x, u32 l);

/* Wo·(gated output of Mamba-2 for h) of block l. */
struct operand part_mamba(struct build *b, struct operand h, u32 l);

/* x/sqrt(Σx² + 1e-6) of each key head, times scale: an RMS norm whose weights are one number. */
struct operand part_l2_norm(struct build *b, const char *label, struct operand x, float scale);

/* Records block l of the net as the MTP program; block: the architecture's own. */
int part_mtp(struct build *b, u32 l,
             struct operand (*block)(struct build *b, struct operand x, u32 l));

/* The end of the trunk: the last hidden rows (after the output norm), and the logits of the rows
 * that are asked for. */
int part_output(struct build *b, struct operand hidden, u32 head, u32 head_bias);
/* output.weight, or the embedding where there is none. */
u32 part_head(struct build *b);

#endif
