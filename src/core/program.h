/* A program: the flat list of ops that one step of a model is, with every buffer's place decided.
 * Recorded once at load by model/arch/, then only read; core/group.h decides which ops run as one.
 * A net is what the programs of one model share: weights, cache layers, recurrent state, the rotary
 * table. Nothing here runs anything. */
#ifndef FLETCH_PROGRAM_H
#define FLETCH_PROGRAM_H

#include "base/arena.h"
#include "base/err.h"
#include "core/op.h"
#include "quant/quant.h"

struct weight {
    const char *name;
    enum qtype type;
    u32 n_in, n_out, n_slices;  /* [slices][out][in]; vectors have n_out = 1 */
    u64 row_bytes, slice_bytes; /* from one row, one slice to the next */
    u64 n_bytes;                /* of all rows */
    bool plain;                 /* its rows are vectors, used value by value */
    const u8 *data;             /* file layout; an executor that repacks may let it go */
};

struct kv_layer {
    u32 k_width, v_width; /* values per token; v_width 0: the value is part of the key (MLA) */
    u32 head;             /* columns of one key head */
    u32 n_rope;           /* columns at the end of a latent key that are rope's */
};

struct state_layer {
    u32 width; /* f32 per sequence slot */
};

/* Rotary angles: θ_i = position · freq[i], cos and sin times mscale. A frequency of 0 only scales.
 */
struct rope_table {
    u32 n_rot;    /* 0: the model has none */
    double *freq; /* [n_rot/2] */
    double mscale;
    double *freq_long; /* [n_rot/2] used instead in contexts of more than n_short; NULL: none */
    u32 n_short;
    /* cos and sin are scaled by 1 + grow·log(1 + ⌊(position + grow_from)/grow_every⌋) too */
    double grow;
    u32 grow_every, grow_from;
};
enum { NET_ROPES = 4 };
/* The frequencies in a context of max_pos tokens. */
static inline const double *rope_freq(const struct rope_table *r, u32 max_pos)
{
    return r->freq_long && max_pos > r->n_short ? r->freq_long : r->freq;
}

/* Types of the KV cache: X(ID, name, storage type of keys, of values). Where a layer stores keys
 * and values together, exec_kv_row chooses both. */
#define CACHE_TABLE(X)    \
    X(F32, f32, F32, F32) \
    X(F16, f16, F16, F16) \
    X(Q8, q8, Q8_0, Q8_0) \
    X(Q4, q4, Q4_0, Q4_0) \
    X(K8V4, k8v4, Q8_0, Q4_0)
enum cache_type {
#define CACHE_ENUM(id, ...) CACHE_##id,
    CACHE_TABLE(CACHE_ENUM)
#undef CACHE_ENUM
        CACHE_COUNT
};
struct cache_info {
    const char *name;
    enum qtype key, value;
};
extern const struct cache_info cache_info[CACHE_COUNT];

/* Which products of prompts' rows are rounded to bf16, both sides: those of all weights but F32, or
 * only where a weight is F16 or BF16 (there is an instruction for bf16, but int8 is faster). */
enum bf16_use { BF16_NOWHERE, BF16_EVERYWHERE, BF16_FLOATS };

/* The rounding points that belong to the program. */
struct profile {
    enum cache_type kv;
    bool int8; /* activations that meet block-quantised weights are rounded (quant/act.h) */
    enum bf16_use bf16; /* in rows of prompts, instead */
    bool int8_experts;  /* but not where routed experts are met: few rows, as when generating */
};

static inline bool profile_rounds_to_bf16(const struct profile *p, enum qtype type)
{
    bool halves = type == QT_F16 || type == QT_BF16;
    return p->bf16 == BF16_FLOATS ? halves : p->bf16 && type != QT_F32;
}

struct net {
    struct arena arena;
    u32 n_weights, cap_weights;
    struct weight *weights;
    u32 n_kv, n_states;
    struct kv_layer kv[512];
    struct state_layer *states;
    u32 cap_states;
    struct rope_table rope[NET_ROPES];
    struct profile profile;
    u32 n_vocab, d_model;
    bool failed; /* recording gave up (a missing weight, no memory): recorders do nothing more */
};

int net_open(struct net **out, struct err *err);
void net_close(struct net *net);
u32 net_weight(struct net *net, const struct weight *w);
/* One whose rows and slices lie one behind the other, without data. */
struct weight weight_packed(const char *name, enum qtype type, u32 n_in, u32 n_out, u32 n_slices);
u32 net_kv(struct net *net, u32 k_width, u32 v_width);
u32 net_state(struct net *net, u32 width);

enum rows { ROWS_T, ROWS_R };

struct buffer {
    const char *name;
    u32 width;
    enum rows rows;
    bool is_int;     /* holds i32 (expert ids) */
    bool kept;       /* an output: lives to the end */
    bool inside;     /* only the ops of one group use it: it has no place */
    u32 first, last; /* indices of the groups of first writing and last reading */
    u64 place;       /* in columns from the start of its arena (T or R rows each) */
};

/* Ops of one layer that run as one (group.h). */
enum { GROUP_MAX_ROLES = 20 };
struct rule;
struct group {
    const struct rule *rule; /* NULL: one op by itself */
    u32 n_ops;
    const struct op *const *ops;            /* in an order in which they may run */
    const struct op *role[GROUP_MAX_ROLES]; /* of the rule; NULL where one is absent */
};

struct program {
    const char *name;
    struct net *net;
    u32 n_ops, cap_ops, n_bufs, cap_bufs, n_groups;
    struct op *ops; /* as recorded */
    bool borrows;   /* ops are another program's */
    struct buffer *bufs;
    struct group *groups;       /* in the order in which they run */
    const struct op **members;  /* [n_ops] the ops of all groups */
    u64 n_cols[2];              /* columns needed by ROWS_T and ROWS_R buffers after placement */
    u32 logits, hidden;         /* buffer ids: [R][V] and [T][d] (after the output norm) */
    u32 sampled, logprobs, top; /* what OP_SAMPLE gives; NO_BUF: the program has none */
    bool imports_hidden;
    int layer; /* while recording: the block that new ops belong to */
};

int prog_open(struct program **out, struct net *net, const char *name, struct err *err);
void prog_close(struct program *p);

/* Recorders: one per op, shapes CHECKed (they come from weights already bound by shape). Each
 * returns its output, a new buffer unless a place is given with _to. Failure is sticky: prog_finish
 * reports it. */
struct operand prog_buf(struct program *p, const char *name, u32 width);
struct operand prog_cols(const struct program *p, struct operand x, u32 col, u32 width);
struct operand prog_embed(struct program *p, u32 w);
struct operand prog_import_hidden(struct program *p, u32 width);
struct norm_spec {
    enum norm_kind kind;
    u32 group; /* 0: the whole width */
    float eps;
    u32 w, b; /* NO_WEIGHT: none */
};
struct operand prog_norm(struct program *p, const char *name, struct operand x,
                         struct norm_spec spec);
void prog_norm_to(struct program *p, struct operand out, struct operand x, struct norm_spec spec);
struct operand prog_matmul(struct program *p, const char *name, struct operand x, u32 w, u32 bias);
/* Heads of width n_in every in_stride columns of x to heads every out_stride columns of out;
 * in_stride 0: all read x. */
void prog_matmul_heads_to(struct program *p, struct operand out, u32 out_stride, struct operand x,
                          u32 in_stride, u32 w);
struct operand prog_matmul_experts(struct program *p, const char *name, struct operand x,
                                   struct operand ids, u32 w, bool per_slot);
/* b: [experts][n] */
struct operand prog_add_experts(struct program *p, const char *name, struct operand x,
                                struct operand ids, u32 b);
struct operand prog_add(struct program *p, const char *name, struct operand a, struct operand b);
struct operand prog_mul(struct program *p, const char *name, struct operand a, struct operand b);
struct operand prog_mul_weight(struct program *p, const char *name, struct operand a, u32 w);
struct operand prog_add_weight(struct program *p, const char *name, struct operand a, u32 w);
/* Heads of `group` columns of a times columns of b that begin every `stride`, or times one number
 * for each head of a (b has as many columns as a has heads, or one for all). */
struct operand prog_mul_strided(struct program *p, const char *name, struct operand a,
                                struct operand b, u32 group, u32 stride);
struct operand prog_mul_heads(struct program *p, const char *name, struct operand a,
                              struct operand b);
/* The same numbers for every row: a weight with one for each head. */
struct operand prog_mul_heads_weight(struct program *p, const char *name, struct operand a, u32 w);
struct operand prog_lerp(struct program *p, const char *name, struct operand a, struct operand b,
                         struct operand m);
struct operand prog_lerp_weight(struct program *p, const char *name, struct operand a,
                                struct operand b, u32 w, u32 row);
struct operand prog_act(struct program *p, const char *name, enum act_kind kind, struct operand x);
struct operand prog_glu(struct program *p, const char *name, struct operand g, struct operand u);
struct glu_spec {
    enum glu_kind kind;
    float alpha, limit; /* of GLU_CLAMPED; limit of GLU_LIMITED too */
};
struct operand prog_glu_by(struct program *p, const char *name, struct operand g, struct operand u,
                           struct glu_spec spec);
struct operand prog_rope(struct program *p, const char *name, enum rope_kind kind, u32 n_heads,
                         struct operand x);
/* By another than the net's first table. */
struct operand prog_rope_by(struct program *p, const char *name, enum rope_kind kind, u32 table,
                            u32 n_heads, struct operand x);
void prog_rope_to(struct program *p, enum rope_kind kind, u32 n_heads, u32 width,
                  struct operand out, u32 out_stride, struct operand x, u32 in_stride);
void prog_rope_by_to(struct program *p, enum rope_kind kind, u32 table, u32 n_heads, u32 width,
                     struct operand out, u32 out_stride, struct operand x, u32 in_stride);
/* v.buf == NO_BUF for a latent cache. */
void prog_kv_store(struct program *p, u32 kv, struct operand k, struct operand v);
struct operand prog_attention(struct program *p, const char *name, u32 kv, u32 n_heads,
                              u32 n_kv_heads, struct operand q, float scale);
struct attend_spec {
    float scale;
    u32 window;
    bool chunked;
    float softcap;
    u32 sinks; /* [n_heads]; NO_WEIGHT: none */
};
struct operand prog_attention_by(struct program *p, const char *name, u32 kv, u32 n_heads,
                                 u32 n_kv_heads, struct operand q, struct attend_spec spec);
struct operand prog_latent_attention(struct program *p, const char *name, u32 kv, u32 n_heads,
                                     u32 c_width, struct operand q, float scale);
struct route_spec {
    enum route_kind kind;
    u32 n_used, n_groups, n_groups_used;
    bool normalise;
    float floor, scale;
    u32 bias;   /* NO_WEIGHT: none */
    u32 scales; /* of each expert; NO_WEIGHT: none */
};
void prog_route(struct program *p, struct operand z, struct route_spec spec, struct operand *ids,
                struct operand *weights);
struct operand prog_combine_experts(struct program *p, const char *name, struct operand x,
                                    struct operand weights);
struct operand prog_token_shift(struct program *p, const char *name, struct operand x, u32 state);
struct operand prog_k_control(struct program *p, const char *name, struct operand k,
                              struct operand a, u32 k_a);
/* w is [n][K]; the state has (K-1)·n columns. */
struct operand prog_conv(struct program *p, const char *name, struct operand x, u32 state, u32 w,
                         u32 bias);
/* Heads and their widths follow from the operands: head columns of a key, n_heads heads; in: r, w,
 * k, v, then b (opt), or kk and a. */
struct recurrence_spec {
    enum recurrence_kind kind;
    u32 state, head, n_heads;
    bool tiled;
    struct operand r, w, k, v, b; /* b.width 0: none */
    struct operand kk, a;
};
struct operand prog_recurrence(struct program *p, const char *name, struct recurrence_spec spec);
/* The kind that removes, all widths alike. */
struct operand prog_wkv7(struct program *p, const char *name, u32 state, u32 head, struct operand r,
                         struct operand w, struct operand k, struct operand v, struct operand kk,
                         struct operand a);
struct operand prog_rk_bonus(struct program *p, const char *name, u32 head, struct operand y,
                             struct operand r, struct operand k, struct operand v, u32 r_k);
struct operand prog_gather_rows(struct program *p, struct operand x);
/* Sets sampled, logprobs and top, which are kept. */
void prog_sample(struct program *p, struct operand logits);

/* Marks the outputs, makes a group of every op, computes liveness and gives every buffer its place.
 */
int prog_finish(struct program *p, struct operand logits, struct operand hidden, struct err *err);

/* Bytes of weights that op reads in a step of n_rows rows (experts: at most all of them). */
u64 prog_op_bytes(const struct program *p, const struct op *op, u32 n_rows);
/* Floating-point operations of one row: those that don't depend on the context, and per position
 * of context. */
double prog_op_flops(const struct net *net, const struct op *op);
double prog_op_flops_per_position(const struct op *op);

#endif
