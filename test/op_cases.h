/* Every op of core/op.h in several shapes, each a small program with random weights and inputs,
 * run on any executor and compared with the reference at the same profile. src/cpu/op_test.c and
 * the tests of other executors go through the same table; a new op gets its cases here. Failures
 * end the test through cmocka.
 *
 *     for (u32 i = 0; i < op_case_count; i++)
 *         op_case_check(&op_cases[i], class, OP_FUSED, 2);
 *
 * A step holds up to 64 rows of three sequences, taking turns, two of which have a past that was
 * fed before. What a row brings depends on its sequence and position only. */
#ifndef FLETCH_OP_CASES_H
#define FLETCH_OP_CASES_H

#include "core/exec.h"

struct op_shape {
    u32 n, m;                          /* columns in, columns out */
    u32 heads, kv_heads, head, v_head; /* v_head: width of a value where it is not head */
    u32 experts, used, groups;
    u32 window; /* of attention; chunked: see op.h */
    bool chunked, capped, sinks;
    bool scales; /* of experts */
    u32 kind;    /* of the norm, act, rope or route; outputs of norm+matmul */
    u32 gap;     /* columns between heads */
    enum qtype type;
    bool bias, weight, per_slot;
    bool odd; /* scores of experts that are NaN, infinite, huge, or equal */
};

/* Rules of executors (core/group.h) that have cases. X(ID, its name) */
#define OP_CASE_RULES(X)                                                      \
    X(NORM_MATMUL_ACT, "norm+matmul+act")                                     \
    X(NORM_MATMUL, "norm+matmul")                                             \
    X(NORM_QKV_ATTENTION, "norm+qkv+rope+kv_store+attention")                 \
    X(NORM_GATE_UP_GLU, "norm+gate+up+glu")                                   \
    X(GATE_UP_GLU, "gate+up+glu")                                             \
    X(MATMUL_ADD, "matmul+add")                                               \
    X(MATMULS, "lerp+matmul+act")                                             \
    X(MLA_QUERY, "norm+matmul+matmul_heads")                                  \
    X(MLA_ATTENTION, "rope+norm+rope+kv_store+latent_attention+matmul_heads") \
    X(SHIFT_MATMULS, "norm+token_shift+lerp+matmul+act")                      \
    X(ROPE_STORE, "rope+kv_store")                                            \
    X(ROUTE_EXPERTS_GLU, "route+experts gate+up+glu")                         \
    X(NORM_ROUTER, "norm+router")                                             \
    X(NORM_ROUTER_GLU, "norm+router+gate+up+glu")                             \
    X(EXPERTS_GLU, "experts gate+up+glu")                                     \
    X(EXPERTS_SUM, "experts down+combine")                                    \
    X(EXPERTS_SUM_ADD, "experts down+combine+matmul+add")                     \
    X(TIME_MIX, "wkv7+head+tail")                                             \
    X(LOW_TIME_MIX, "matmul+act+wkv7+head+tail")

/* What a case is about: an op, or a rule. */
enum op_case_kind {
    CASE_OPS = OP_COUNT - 1,
#define CASE_ENUM(id, name) CASE_##id,
    OP_CASE_RULES(CASE_ENUM)
#undef CASE_ENUM
};

struct op_lab;
struct op_case {
    u32 kind; /* of the op, or enum op_case_kind; recorded with what it needs around it */
    const char *name;
    void (*record)(struct op_lab *l, const struct op_shape *s);
    struct op_shape s;
};
extern const struct op_case op_cases[];
extern const u32 op_case_count;
/* The rule that it is about, or NULL; is that one of the class? */
const char *op_case_rule(const struct op_case *c);
bool op_case_is_rule_of(const struct op_case *c, const struct exec_class *class);
/* Largest difference from the reference over the largest value. */
double op_tolerance(const struct op_lab *l);

/* COLS: that a row may bring. */
enum { OP_ROWS = 64, OP_SLOTS = 3, OP_VOCAB = 37, OP_COLS = 4096 };
static const u32 op_row_counts[] = {1, 2, 7, OP_ROWS};

/* A case with its weights. */
struct op_lab {
    const struct op_case *c;
    struct net *net;
    struct program *p; /* as recorded */
    struct operand in; /* the rows that a step brings */
    u32 used;          /* columns of them given away */
    u32 align;         /* what their first column is a multiple of */
    u32 odd_at, n_odd; /* columns that bring odd values: then NaN may come out */
    u32 n_out;
    struct operand out[OP_MAX_OUT]; /* what is compared */
    u64 seed;
};
void op_lab_open(struct op_lab *l, const struct op_case *c, struct profile profile);
/* With the profile and the alignment that an executor wants. */
void op_lab_open_for(struct op_lab *l, const struct op_case *c, const struct exec_class *class);
void op_lab_close(struct op_lab *l);
u32 op_lab_width(const struct op_lab *l); /* of all that is compared */

enum op_form { OP_UNFUSED, OP_FUSED };

/* A case on an executor, every buffer between guards. */
struct op_side {
    const struct op_lab *l;
    const struct exec_class *class;
    struct program *p;
    struct exec *x;
    u32 handle, n_real; /* buffers from n_real on are guards */
    struct step *s;
    float *hidden, *buf;
};
/* False when the executor refuses the program: it has no kernel for such a shape. */
bool op_side_open(struct op_side *o, const struct op_lab *l, const struct exec_class *class,
                  enum op_form form, u32 n_threads);
void op_side_close(struct op_side *o);
/* The first n rows behind the past, in one step or alone (op_case_check); y: [n][width]. Fails
 * where a guard, a row that is not in the step or a column that is nobody's was written. */
void op_side_run(struct op_side *o, u32 n, enum row_class cls, bool alone, float *y);

/* Fails unless got is want within the op's tolerance, and finite (or NaN too, of odd values). */
void op_compare(const struct op_lab *l, u32 n, const float *got, const float *want,
                const char *who);

enum op_result {
    OP_NOTHING, /* it fuses nothing here */
    OP_REFUSED, /* it has no kernel for such a shape, and says so */
    OP_RAN,
};

/* One case on an executor: near the reference for 1, 2, 7 and 64 rows of either class (of P
 * only 7 where the profile makes no difference), and every
 * row the same bits the second time, alone in its step (of 64 the first and last ones; those in
 * between in a smaller one). */
enum op_result op_case_check(const struct op_case *c, const struct exec_class *class,
                             enum op_form form, u32 n_threads);

#endif
