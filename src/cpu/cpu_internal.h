#ifndef FLETCH_CPU_INTERNAL_H
#define FLETCH_CPU_INTERNAL_H

#include <stdatomic.h>

#include "core/exec.h"
#include "cpu/kernels.h"
#include "cpu/team.h"

enum { CPU_MAX_ROWS = 512, CPU_MAX_HEAD = 2048, CPU_MAX_EXPERTS = 1024 };

struct cpu_program {
    const struct program *p;
    float *mem[2];
    atomic_uint *next; /* [n_ops] work handed out */
};

struct cpu {
    struct exec base;
    const struct net *net;
    struct exec_limits limits;
    const struct cpu_kernels *k;
    struct team *team;
    struct packed *packed; /* [n_weights] matrices */
    float **vectors;       /* [n_weights] vectors as f32, NULL for matrices */
    u32 n_programs;
    struct cpu_program programs[4];
    u8 **kv;            /* [n_kv] [n_blocks · block_tokens] rows of k then v */
    float **state;      /* [n_states] [n_slots][width] */
    struct cpu_act act; /* rounded activations of the op that runs */
    float *normed;      /* [max_rows][widest] what a fused norm keeps to itself */
};

/* One op, on one member of the team. */
struct cpu_run {
    struct cpu *x;
    const struct program *p;
    struct cpu_program *prog;
    const struct step *s;
    u32 member, n_members;
};

void cpu_op(const struct cpu_run *run, u32 i);

#endif
