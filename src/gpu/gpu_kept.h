/* What an executor keeps from step to step: the states of slots, or cache blocks. It lies in
 * buffers of at most gpu_info.buffer bytes (or of one stretch that is larger), because the system
 * may have to make a buffer's memory ready as a whole (gpu/metal.h). */
#ifndef FLETCH_GPU_KEPT_H
#define FLETCH_GPU_KEPT_H

#include "gpu/gpu_memory.h"

struct kept {
    bool blocks;
    u32 n_stretches, n_bufs;
    struct stretch *stretches;
    struct kept_buf {
        struct gpu_buf *buf;
        u64 begin; /* among all bytes */
        u32 first; /* stretch */
    } * bufs;
    struct gpu_buf *layers; /* the stretches on the device, as k_edit wants them */
};

int kept_open(struct kept *k, const struct gpu_driver *d, struct gpu *g, const struct net *net,
              const struct exec_limits *limits, bool blocks, struct err *err);
void kept_close(struct kept *k, const struct gpu_driver *d, struct gpu *g);

/* Where byte `at` of all lies. */
struct gpu_ref kept_ref(const struct kept *k, u64 at);
/* Launches of kernel k_edit that carry out `edits`, one for each buffer; c has room for n_bufs.
 * Gives how many. */
u32 kept_edits(const struct kept *k, struct gpu_buf *edits, u32 kernel, struct gpu_command *c);
/* Reads a slot's state or a block to dst, or writes it from src. */
int kept_move(const struct kept *k, const struct gpu_driver *d, struct gpu *g, u32 index, u8 *dst,
              const u8 *src, struct err *err);

#endif
