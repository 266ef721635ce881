/* Programs of one kernel: bench_build.c builds them, bench_kernel.c runs them. */
#ifndef FLETCH_BENCH_LAB_H
#define FLETCH_BENCH_LAB_H

#include "engine/bench.h"

enum {
    LAB_COPIES = 64, /* of the kernel at most */
    LAB_VARIED = 64, /* rows that take turns as the input */
    LAB_WEIGHTS = 8, /* of a copy at most */
};

struct lab_shape {
    u32 n, m, t;                     /* columns in and out, rows */
    u32 heads, kv_heads, head, rope; /* rope: columns of a latent key after its value */
    u32 depth, experts, used;
    enum qtype type;
};

/* Copies of one kernel, each with weights (or cache) of its own so that together they don't fit
 * into any cache. */
struct lab {
    struct lab_shape s;
    struct net *net;
    struct program *p;
    struct operand x;    /* [t][width] random, the input of everything */
    u32 first, per_copy; /* ops before the copies; ops of one */
    u32 n_copies;
    bool whole;         /* rows depend on each other: all are compared */
    bool varied;        /* what is read depends on the input: other rows every time */
    bool samples;       /* rows want a token */
    struct operand out; /* of the last copy */
    float *hidden;      /* [depth + t][width] */
    u32 n_data;
    u8 *data[LAB_WEIGHTS * LAB_COPIES]; /* weights */
};

struct lab_kernel {
    const char *name;
    void (*build)(struct lab *l);
    struct lab_shape s;
    double tolerance; /* largest difference over the largest value */
    const char *rule; /* that makes a group of it (group.h); NULL: none */
};
extern const struct lab_kernel lab_kernels[]; /* ended by one without a name */

#endif
