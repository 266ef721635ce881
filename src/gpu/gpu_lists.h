/* The lists of launches that a program may have, by rows, and what they need. */
#ifndef FLETCH_GPU_LISTS_H
#define FLETCH_GPU_LISTS_H

#include "gpu/driver.h"
#include "gpu/emit.h"

/* Of a class, lists are for no rows, 1, 2, 4 .. 64, then for multiples of 64, and none for more
 * than max_rows. */
u32 gpu_list_rows(const struct exec_limits *limits, u32 list);
/* The smallest that holds so many. */
u32 gpu_list_for(const struct exec_limits *limits, u32 n_rows);

/* Of steps that are run piece by piece every range of ops is recorded by itself: so fewer numbers
 * of rows are told apart, 0, 2^n and 3 · 2^n. */
u32 gpu_list_coarse(const struct exec_limits *limits, u32 n_rows);

/* What a program's own buffers take; finds out whether there is a kernel for every op. */
struct gpu_sizes {
    u64 mem[2], scratch, step;
};
int gpu_measure(struct gpu_sizes *out, const struct program *p, const struct exec_limits *limits,
                struct list_kind kind, struct err *err);

/* For struct exec_class. */
u64 gpu_bytes(const struct program *p, const struct exec_limits *limits);
int gpu_launches(const struct gpu_driver *d, const struct program *p,
                 const struct exec_limits *limits, u32 n_rows, u32 n_units, u32 *by_op, u32 *total,
                 struct err *err);
int gpu_scratch(const struct gpu_driver *d, const struct program *p,
                const struct exec_limits *limits, u64 *by_op, struct err *err);

#endif
