#ifndef FLETCH_REF_INTERNAL_H
#define FLETCH_REF_INTERNAL_H

#include "base/pool.h"
#include "core/hostmem.h"

enum {
    REF_MAX_ROWS = 512,  /* T: sums of all rows of a column are kept on the stack */
    REF_MAX_HEAD = 2048, /* widest head of attention and wkv7, likewise */
};

struct ref {
    struct hostmem host;
    struct pool *pool;
    float *vec[3]; /* decoded weight rows, as wide as the widest weight */
    float *act;    /* [max_rows][widest] activations rounded by the profile */
};

/* One op over the rows of a step. */
struct ref_run {
    struct ref *x;
    const struct program *p;
    u32 handle;
    const struct step *s;
};

void ref_op(const struct ref_run *run, const struct op *op);

#endif
