/* The executor for GPUs, over any driver of driver.h.
 *
 *   program ──► emit.h: launches (symbolic, no device needed) ──► gpu.c: one recorded list per T
 *
 * gpu.c       owns the device: memory, recorded lists, submit, wait, read
 * gpu_pack.h  weights as planes
 * gpu_step.h  a step as bytes
 * emit.h      how an op becomes launches: emit.c has the table, emit_….c one function per op
 * args.h      what host and kernels share; kernels/ the kernels, in the dialect of simt.h;
 *             native/ those for CUDA's matrix units
 *
 * Lists exist for 0, 1, 2, 4 .. 64 and then multiples of 64 rows of either class up to max_rows,
 * recorded when first needed; a step takes the smallest list that holds its rows. No launch depends
 * on anything but these: fixed numbers of groups stride over the work, rows beyond HEAD_N_ROWS
 * idle. */
#ifndef FLETCH_GPU_H
#define FLETCH_GPU_H

#include "core/exec.h"
#include "gpu/driver.h"

/* "cuda", "metal", "emu" or "emu_checked". */
const struct exec_class *gpu_class(const char *name);
/* Why it can't be used here, in a sentence; NULL when it can. */
const char *gpu_absent(const char *name);
/* Its driver; NULL when it is no class of these. */
const struct gpu_driver *gpu_driver_of(const struct exec_class *class);

#endif
