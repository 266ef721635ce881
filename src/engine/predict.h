/* How fast a model would be on a machine that is not at hand: what a decoded token costs, counted
 * from the program as the GPU executor would run it, times what such things take there. Always a
 * prediction: docs/gpu.md says what its constants were fitted to and how far they were off. */
#ifndef FLETCH_PREDICT_H
#define FLETCH_PREDICT_H

#include "core/exec.h"

/* How one kernel of a step waits for the one before it. */
enum link {
    LINK_DEPENDENT, /* CUDA graph with programmatic edges (sm_90 on) */
    LINK_GRAPH,     /* plain CUDA graph */
    LINK_METAL,     /* a barrier in a compute encoder */
    LINK_NONE,      /* no backend runs there, so nothing is predicted */
};

/* machines.c; the table ends with a row without a name. */
struct machine {
    const char *name, *what, *backend;
    enum link link;
    double gbs;  /* memory bandwidth, GB/s */
    double gib;  /* memory of the largest configuration */
    u32 n_units; /* cores or multiprocessors */
    u32 lanes;   /* f32 lanes of each */
    double ghz;
};
extern const struct machine machines[];
/* Takes names as people write them ("RTX 4090", "m3pro") and a beginning that one alone has; else
 * sets an error that lists those there are. */
const struct machine *machine_find(const char *name, struct err *err);
/* What a GPU may take of its memory. */
u64 machine_memory(const struct machine *m);
/* What an executor would find there. */
struct exec_device machine_device(const struct machine *m);

/* One decoded token. */
struct token_cost {
    u32 n_launches, n_ops; /* kernels, and what is done in them one after the other */
    double streamed;       /* bytes of weights, cache and state that a kernel knows it will need */
    double routed;         /* bytes of experts, which the token itself chooses */
    double products;       /* floating-point operations with weights and state */
    double attention;      /* and with the cache */
    double latents;        /* and with a cache of latents */
};
int predict_cost(struct token_cost *out, const struct machine *m, const struct program *p,
                 const struct exec_class *class, const struct exec_limits *limits, u32 depth,
                 struct err *err);
/* Seconds. */
double predict_token(const struct machine *m, const struct token_cost *c);

#endif
