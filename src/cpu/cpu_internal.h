#ifndef FLETCH_CPU_INTERNAL_H
#define FLETCH_CPU_INTERNAL_H

#include <stdatomic.h>

#include "core/hostmem.h"
#include "cpu/kernels.h"
#include "cpu/team.h"

enum { CPU_MAX_ROWS = 512, CPU_MAX_HEAD = 2048 };

struct cpu {
    struct hostmem host;
    const struct cpu_kernels *k;
    struct team *team;
    struct packed *packed;                   /* [n_weights] matrices */
    float **vectors;                         /* [n_weights] vectors as f32, NULL for matrices */
    atomic_uint *next[HOSTMEM_MAX_PROGRAMS]; /* [n_ops] work handed out */
    struct cpu_act act;                      /* rounded activations of the op that runs */
    float *normed; /* [max_rows][widest] what a fused norm keeps to itself */
};

/* One op, on one member of the team. */
struct cpu_run {
    struct cpu *x;
    const struct program *p;
    u32 handle;
    const struct step *s;
    u32 member, n_members;
};

void cpu_op(const struct cpu_run *run, u32 i);

#endif
