/* Matrix products by a BLAS library, for rows of prompts with float weights, in programs that are
 * built with one (make BLAS=openblas, BLAS=accelerate on macOS). blas.c alone knows which. */
#ifndef FLETCH_BLAS_H
#define FLETCH_BLAS_H

#include "base/base.h"

/* Every call has this many rows, however many there are, and the same outputs of a matrix, whoever
 * asks: libraries choose the order of sums by the shape, and a row's bits must not depend on others
 * or on the number of threads. */
enum { BLAS_ROWS = 64, BLAS_TILES = 8 };

/* What the library calls itself, NULL: there is none. */
const char *blas_name(void);
/* Before the first product: the library gets no threads beside the team's. Returns whether it may
 * be used: some libraries sum a row in another order at another place of the block (OpenBLAS's
 * kernels for Haswell and Zen do), and a row's bits must not depend on which rows are beside it. */
bool blas_start(void);
/* y [BLAS_ROWS][n_out] = x [BLAS_ROWS][n] · w [n][n_out]. */
void blas_multiply(float *y, const float *x, const float *w, u32 n_out, u32 n);

#endif
