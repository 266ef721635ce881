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

enum {
    GPU_BERTHS = 2, /* steps that can be on their way, each with host memory and lists of its own */
    /* A program keeps at most as many bytes of lists as this number of whole steps takes. A step of
     * 600 launches takes 1.6 MB on an H200. A busy server needs a list for each usual number of
     * decode rows and each usual length of a chunk, a single session far fewer. */
    GPU_MAX_LISTS = 256,
    GPU_SLOT_LISTS = 64,
};

/* What gpu_driver says; d: NULL for Metal where it is not built in. */
struct device_caps gpu_least(const struct gpu_driver *d);
u64 gpu_list_bytes(const struct gpu_driver *d, u32 n);
bool gpu_is_unified(const struct gpu_driver *d);

/* What a program's own buffers take, and the most that its recorded lists may take; finds out
 * whether there is a kernel for every op. passed: what groups exchange, where the device can be
 * taken for launches whose groups wait for each other. */
struct gpu_sizes {
    u64 mem[2], scratch, step, sampled, passed, lists;
};
int gpu_measure(struct gpu_sizes *out, const struct program *p, const struct exec_limits *limits,
                const struct gpu_driver *d, const struct list_kind *on, struct err *err);

/* For struct exec_class. */
u64 gpu_bytes(const struct exec_class *class, const struct program *p,
              const struct exec_limits *limits);
int gpu_launches(const struct exec_class *class, const struct program *p,
                 const struct exec_limits *limits, u32 n_rows, u32 n_units, u32 *by_group,
                 u32 *total, struct err *err);
int gpu_scratch(const struct exec_class *class, const struct program *p,
                const struct exec_limits *limits, u64 *by_group, struct err *err);

#endif
