/* Does a device compute as simt.h promises? Compilers have options and defaults that change the
 * bits of results (contraction of a product and a sum, fast maths, rounding of conversions): a
 * wrong one would show as different tokens only. */
#ifndef FLETCH_ARITHMETIC_H
#define FLETCH_ARITHMETIC_H

#include "gpu/driver.h"

/* Runs k_self_test on an open device on which nothing is queued. FLETCH_E_BACKEND: a result has
 * other bits than it must have; the error names the operation, its operands and both results.
 * *flushes: subnormal floats are zeros there, which is allowed; it may be NULL. */
int gpu_check_arithmetic(const struct gpu_driver *d, struct gpu *g, bool *flushes, struct err *err);

#endif
