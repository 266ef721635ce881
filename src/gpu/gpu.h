/* The executor for GPUs, over any driver of driver.h.
 *
 *   program ──► emit.h: launches (symbolic, no device needed) ──► gpu.c: one recorded list per T
 *
 * gpu.c       owns the device: memory, recorded lists, submit, wait, read
 * gpu_lists.h which lists there are, and what a program needs
 * gpu_memory.h what an executor allocates when it is opened; gpu_kept.h: cache and states
 * gpu_pack.h  weights as planes
 * gpu_step.h  a step as bytes
 * emit.h      how an op becomes launches: emit.c has the table, emit_….c one function per op
 * args.h      what host and kernels share; kernels/ the kernels, in the dialect of simt.h;
 *             native/ those for CUDA's matrix units
 *
 * Lists exist for 0, 1, 2, 4 .. 64 and then multiples of 64 rows of either class up to max_rows,
 * recorded when first needed, and dropped when there are too many (gpu_lists.h); a step takes the
 * smallest list that holds its rows. No launch depends on anything but these: fixed numbers of
 * groups stride over the work, rows beyond HEAD_N_ROWS idle. */
#ifndef FLETCH_GPU_H
#define FLETCH_GPU_H

#include "core/exec.h"
#include "gpu/driver.h"
#include "gpu/layout.h"

/* "cuda", "metal", "emu", "emu_checked" or "emu_metal". */
const struct exec_class *gpu_class(const char *name);
/* Why it can't be used here, in a sentence; NULL when it can. */
const char *gpu_absent(const char *name);
/* Its driver; NULL when it is no class of these. */
const struct gpu_driver *gpu_driver_of(const struct exec_class *class);
/* What it says of a device; false when that can't be opened. */
bool gpu_look(const struct gpu_driver *d, u32 device, struct gpu_info *out);

/* Of an open executor of one of these classes. Its layouts may be changed between steps, by whoever
 * then makes it forget the lists that were recorded by them. */
struct layouts *gpu_layouts(struct exec *x);
void gpu_forget_lists(struct exec *x);
void gpu_device(struct exec *x, struct gpu_info *out);
/* From here on attention over halves ends behind its scores, or behind their softmax: for bench,
 * between steps. */
void gpu_ablate(struct exec *x, bool softmax);
/* What a step's launches may choose from, each site once (free *out), and how the first launch
 * there lies now. */
struct gpu_site {
    struct choice choice;
    u32 first_group, last_group, n_launches;
    u32 groups[3], threads;
};
int gpu_sites(struct exec *x, u32 handle, const struct step *s, struct gpu_site **out, u32 *n,
              struct err *err);

#endif
