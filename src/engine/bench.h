/* Measuring: what a model does in a second, what each op of it takes, and single kernels, each
 * beside what this machine was measured to be capable of. bench.c runs models, bench_profile.c
 * takes them apart, bench_kernel.c builds programs of one kernel, bench_machine.c measures the
 * machine. */
#ifndef FLETCH_BENCH_H
#define FLETCH_BENCH_H

#include <jansson.h>

#include "engine/engine.h"

/* ---- bench_machine.c ---- */

struct bench_machine {
    double read_gbs;  /* best of several reads by all threads of a buffer no cache holds */
    u64 read_bytes;   /* that buffer */
    double cache_gbs; /* the same of what a step reads, where the last-level cache holds that; 0 */
    double
        peak_gflops;  /* best of several loops of independent products in registers, all threads */
    const char *peak; /* by which instructions */
    u64 llc_bytes;    /* the last-level cache as the system tells it, or an assumption */
    u32 n_threads;
    char processor[128]; /* its name, or "" */
    double gpu_read_gbs; /* of a GPU that is measured, by a kernel that only reads; 0: none is */
    u64 gpu_read_bytes;
};
/* Adds what the GPU of a class reads, where it is a GPU's. */
int bench_measure_gpu(struct bench_machine *m, const struct exec_class *class, u32 device,
                      struct err *err);
/* What is to be compared with the machine. */
enum bench_numbers { BENCH_F32, BENCH_INT8, BENCH_BF16 };
struct bench_use {
    const char *isa;            /* of the kernels; NULL: they are no processor's */
    enum bench_numbers numbers; /* that most products are of */
    u64 bytes;                  /* that a step reads; 0: more than caches hold */
};
/* GB/s at which so many threads read memory, measured in less than a second; 0: without memory. */
double bench_read_quickly(u32 n_threads, struct err *err);
int bench_measure_machine(struct bench_machine *m, u32 n_threads, const struct bench_use *use,
                          struct err *err);
/* Adds the shares that rates have of the machine's. A rate beyond what was measured shows that the
 * machine can do more than its measurement reached, and counts instead. */
void bench_add_shares(json_t *row, const struct bench_machine *m, double gbs, double gflops);
/* The same of a GPU, whose arithmetic is not measured. */
void bench_add_gpu_share(json_t *row, const struct bench_machine *m, double gbs);
/* The machine's figures. */
json_t *bench_machine_report(const struct bench_machine *m);
u64 bench_llc_bytes(void);

/* ---- bench.c: sequences that can be rewound ---- */

struct bench_seq {
    u32 pos, filled, n_blocks; /* filled: positions whose cache holds something */
};

struct bench {
    struct fletch_model *model;
    struct bench_seq *seqs; /* [n_slots] */
    struct pending_step steps[2];
    u64 random, n_steps;
    double bytes, placed, flops; /* of the steps since they were zeroed; placed: as packed */
};

int bench_open(struct bench *b, struct fletch_model *m, struct err *err);
void bench_close(struct bench *b);
/* Makes the first n_seqs sequences stand at depth. Not meant to be timed. */
int bench_rewind(struct bench *b, u32 n_seqs, u32 depth, struct err *err);
/* Rows for the next tokens of sequences [*seq, n_seqs), which end at position `end`, as many as a
 * step takes. *seq == n_seqs when all are in. */
int bench_fill_step(struct bench *b, u32 *seq, u32 n_seqs, u32 end, enum row_class cls,
                    struct err *err);
/* Adds what so many steps like the filled one read and compute to b's sums. */
void bench_account(struct bench *b, double n_steps);

/* Bytes that an op reads in a step of n_rows rows, as packed by the executor. */
u64 bench_placed_bytes(const struct exec_class *class, const struct program *p, const struct op *op,
                       u32 n_rows);
/* Bytes of cache and state that an op reads (and for state writes) in the step. */
double bench_memory_bytes(const struct net *net, const struct op *op, const struct step *s);

/* ---- bench_profile.c ---- */

struct bench_case {
    enum bench_mode { BENCH_PREFILL, BENCH_DECODE, BENCH_FULL } mode; /* bits of FLETCH_BENCH_* */
    u32 n_prompt, n_gen, depth, batch;
};
extern const char *const bench_mode_names[3];

/* Appends to a list of profiles and a list of Chrome trace events. */
int bench_profile(struct bench *b, const struct bench_case *c, u32 n_reps, json_t *profiles,
                  json_t *events, struct err *err);

/* ---- bench_kernel.c ---- */

/* The report of fletch_bench_kernel for an executor class, checked against another. */
int bench_kernel_run(json_t **out, const struct exec_class *class, const struct exec_class *against,
                     u32 n_threads, const char *name, const char *shape, u32 n_reps,
                     const struct bench_machine *machine, struct err *err);

#endif
