/* The fast executor for processors: packed weights, a thread team, kernels per instruction set. */
#ifndef FLETCH_CPU_H
#define FLETCH_CPU_H

#include "core/exec.h"

extern const struct exec_class cpu_exec;

/* The instruction set it uses on this machine. */
const char *cpu_isa(void);

#endif
