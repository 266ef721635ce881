#ifndef FLETCH_CPU_INTERNAL_H
#define FLETCH_CPU_INTERNAL_H

#include <stdatomic.h>

#include "core/group.h"
#include "core/hostmem.h"
#include "cpu/blas.h"
#include "cpu/kernels.h"
#include "cpu/pace.h"
#include "cpu/team.h"

enum {
    CPU_MAX_ROWS = 512,
    CPU_MAX_HEAD = 2048,
    CPU_MAX_TAPS = 16,
    CPU_MAX_SLICES = 1024, /* heads or experts of a weight */
    CPU_UP_TILES = 8,      /* of a gate that are worked on at once */
    CPU_PACES = 10,        /* of a program: steps of so different sizes have paces of their own */
};

/* A row of activations: a row of the step, and which of its heads or choices. */
struct cpu_place {
    u32 row, part;
};

/* Places that meet the same matrix in the same way. */
struct cpu_batch {
    u32 slice, begin, end;
    bool prompt, bf16;                /* rows of prompts that are multiplied apart, and as bf16 */
    u32 group;                        /* of bf16 rows, where its first is */
    u32 product, n_products, n_tiles; /* what it meets */
};

/* What a member notes down about the product that it works on. */
struct cpu_lists {
    struct cpu_place *places;
    struct cpu_batch *batches;
    float *up;   /* [max_rows][CPU_UP_TILES][16] */
    float *blas; /* what a BLAS library multiplies and makes (ops_matmul.c), where there is one */
    u32 n_places, n_batches;
};

/* bf16 values in a group of 16 rows. */
static inline size_t cpu_group_values(u32 n)
{
    return (size_t)(n + BLOCK - 1) / BLOCK * BLOCK * TILE;
}

struct cpu {
    struct hostmem host;
    const struct cpu_kernels *k;
    struct team *team;
    u32 n_processors;      /* more members than these take no part: they would only wait for one */
    struct packed *packed; /* [n_weights] matrices */
    float **vectors;       /* [n_weights] vectors as f32, NULL for matrices */
    atomic_uint *next[HOSTMEM_MAX_PROGRAMS];            /* [n_groups] work handed out */
    struct cpu_act act;                                 /* activations of the product that runs */
    struct cpu_lists *lists;                            /* [team] */
    bool has_blas;                                      /* a library multiplies floats of prompts */
    u8 *attention;                                      /* cpu_attention_bytes of scratch */
    struct pace paces[HOSTMEM_MAX_PROGRAMS][CPU_PACES]; /* of steps of 1, 2, 4 … rows */
};

/* One group of ops, on one member of the team. */
struct cpu_run {
    struct cpu *x;
    const struct program *p;
    u32 handle;
    const struct step *s;
    u32 member, n_members;
};

/* What runs as one, in order of preference, and the functions of ops.c and others that do it. */
#define CPU_RULE_TABLE(X)               \
    X(TIME_MIX, cpu_op_time_mix)        \
    X(NORM_GATE_UP_GLU, cpu_op_product) \
    X(GATE_UP_GLU, cpu_op_product)      \
    X(NORM_MATMUL_ACT, cpu_op_product)  \
    X(NORM_MATMUL, cpu_op_product)      \
    X(EXPERTS_GLU, cpu_op_product)      \
    X(MATMUL_ADD, cpu_op_product)       \
    X(ROPE_STORE, op_rope_store)        \
    X(MATMULS, cpu_op_matmuls)
#define CPU_ONE_RULE(id, function) +1
enum { CPU_RULES = 0 CPU_RULE_TABLE(CPU_ONE_RULE) };
/* ops.c: group i of the program. */
extern const struct rule cpu_rules[CPU_RULES];
void cpu_group(const struct cpu_run *run, u32 i);

/* ops_matmul.c: i is the group's place in the program, for the counter of its work. */
void cpu_op_product(const struct cpu_run *run, const struct group *g, u32 i);
void cpu_op_matmuls(const struct cpu_run *run, const struct group *g, u32 i);
/* ops_recurrent.c */
void cpu_op_token_shift(const struct cpu_run *run, const struct op *op);
void cpu_op_conv(const struct cpu_run *run, const struct op *op);
void cpu_op_recurrence(const struct cpu_run *run, const struct op *op);
void cpu_op_rk_bonus(const struct cpu_run *run, const struct op *op);
void cpu_op_time_mix(const struct cpu_run *run, const struct group *g, u32 i);
/* ops_attention.c */
void cpu_op_kv_store(const struct cpu_run *run, const struct op *op);
void cpu_op_attention(const struct cpu_run *run, const struct op *op, u32 i);
u64 cpu_attention_bytes(const struct program *p, u32 n_members);
/* ops.c: one row of OP_NORM. */
void cpu_norm_row(const struct cpu_run *run, const struct op *op, const float *x, float *y);

/* ---- what ops are written with ---- */

static inline float *at(const struct cpu_run *run, struct operand o, u32 t)
{
    return hostmem_row(&run->x->host, run->handle, o, t);
}

static inline u32 rows_of(const struct cpu_run *run, struct operand o)
{
    return run->p->bufs[o.buf].rows == ROWS_T ? run->s->n_rows : run->s->n_out;
}

static inline size_t pitch_of(const struct cpu_run *run, struct operand o)
{
    return run->p->bufs[o.buf].width;
}

static inline const float *vector_of(const struct cpu_run *run, u32 w)
{
    return w == NO_WEIGHT ? NULL : run->x->vectors[w];
}

static inline void barrier(const struct cpu_run *run)
{
    team_barrier(run->x->team);
}

/* This member's part of n items, in one piece. */
static inline void share(const struct cpu_run *run, u32 n, u32 *begin, u32 *end)
{
    *begin = (u32)((u64)n * run->member / run->n_members);
    *end = (u32)((u64)n * (run->member + 1) / run->n_members);
}

/* The next piece of n items from group i's counter; false when none are left. */
static inline bool take(const struct cpu_run *run, u32 i, u32 n, u32 piece, u32 *begin, u32 *end)
{
    u32 from =
        atomic_fetch_add_explicit(&run->x->next[run->handle][i], piece, memory_order_relaxed);
    if (from >= n) return false;
    *begin = from;
    *end = MIN(n, from + piece);
    return true;
}

/* The same in pieces that shrink towards the end to `least`: few, because reading memory is at its
 * best in one long stretch, and yet the members end together. Pieces are multiples of `least`. */
static inline bool take_less(const struct cpu_run *run, u32 i, u32 n, u32 least, u32 *begin,
                             u32 *end)
{
    atomic_uint *next = &run->x->next[run->handle][i];
    *begin = atomic_load_explicit(next, memory_order_relaxed);
    do {
        if (*begin >= n) return false;
        u32 piece = (n - *begin) / (2 * run->n_members) / least * least;
        *end = MIN(n, *begin + MAX(least, piece));
    } while (!atomic_compare_exchange_weak_explicit(next, begin, *end, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

#endif
