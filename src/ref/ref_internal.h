#ifndef FLETCH_REF_INTERNAL_H
#define FLETCH_REF_INTERNAL_H

#include "base/pool.h"
#include "core/exec.h"

enum {
    REF_MAX_ROWS = 512,  /* T: sums of all rows of a column are kept on the stack */
    REF_MAX_HEAD = 2048, /* widest head of attention and wkv7, likewise */
    REF_MAX_EXPERTS = 1024,
};

struct ref_program {
    const struct program *p;
    float *mem[2];  /* buffers with T and with R rows */
    float *scratch; /* what fused ops keep to themselves */
};

struct ref {
    struct exec base;
    const struct net *net;
    struct exec_limits limits;
    struct pool *pool;
    u32 n_programs;
    struct ref_program programs[4];
    u8 **kv;       /* [n_kv] [n_blocks · block_tokens] rows of k then v, in the profile's type */
    float **state; /* [n_states] [n_slots][width] */
    float *vec[3]; /* decoded weight rows, as wide as the widest weight */
    float *act;    /* [max_rows][widest] activations rounded by the profile */
};

/* One op over the rows of a step. */
struct ref_run {
    struct ref *x;
    const struct program *p;
    const struct ref_program *prog;
    const struct step *s;
};

void ref_op(const struct ref_run *run, const struct op *op);

#endif
