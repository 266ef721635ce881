/* The reference executor: the definition of every op, in plain C, one loop nest each. It is never
 * optimised; what it computes is what every other executor is compared with. */
#ifndef FLETCH_REF_H
#define FLETCH_REF_H

#include "core/exec.h"

extern const struct exec_class ref_exec;

#endif
