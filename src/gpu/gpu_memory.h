/* What an executor allocates when it is opened: how much of each, for itself and for the plan. */
#ifndef FLETCH_GPU_MEMORY_H
#define FLETCH_GPU_MEMORY_H

#include "gpu/driver.h"
#include "gpu/emit.h"

/* The stretches of memory that a slot's state or a cache block consists of: where that of the first
 * slot or block lies, its bytes, and the number of the buffer that has those of all. Gives how many
 * there are; out may be NULL. */
struct stretch {
    u64 at, item;
    u32 buf;
};
u32 gpu_stretches(const struct net *net, const struct exec_limits *limits, bool blocks,
                  struct stretch *out, u32 *n_bufs);

/* Bytes of all cache blocks, or of all states, in all buffers. */
u64 gpu_kept_bytes(const struct net *net, const struct exec_limits *limits, bool blocks);
u64 gpu_layers_bytes(u32 n_stretches);
u64 gpu_edit_bytes(const struct exec_limits *limits);
u64 gpu_tables_bytes(const struct exec_limits *limits);

/* Weights are packed in pieces of at most GPU_STAGING bytes: smaller ones need less. */
enum { GPU_STAGING = 64 << 20 };
u64 gpu_staging_bytes(const struct net *net);

/* For struct exec_class: all but weights, and what the plan counts as caches and states. */
u64 gpu_open_bytes(const struct exec_class *class, const struct net *net,
                   const struct exec_limits *limits);

#endif
