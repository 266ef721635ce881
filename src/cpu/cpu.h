/* The fast executor for processors: packed weights, a thread team, kernels per instruction set. */
#ifndef FLETCH_CPU_H
#define FLETCH_CPU_H

#include "core/exec.h"

/* The executor with the kernels of one instruction set (class->isa): the best that runs here, or
 * the one named; NULL when that can't run here. */
const struct exec_class *cpu_class(const char *isa);

#endif
