#include "cpu/blas.h"

#if defined BLAS_OPENBLAS
#include <cblas.h>
#elif defined BLAS_ACCELERATE
#include <Accelerate/Accelerate.h>
#endif

const char *blas_name(void)
{
#if defined BLAS_OPENBLAS
    return openblas_get_config(); /* with the processor that it takes this one for */
#elif defined BLAS_ACCELERATE
    return "Accelerate";
#else
    return NULL;
#endif
}

void blas_start(void)
{
#if defined BLAS_OPENBLAS
    openblas_set_num_threads(1);
#endif
}

#if defined BLAS_OPENBLAS || defined BLAS_ACCELERATE

void blas_multiply(float *y, const float *x, const float *w, u32 n_out, u32 n)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BLAS_ROWS, (int)n_out, (int)n, 1, x,
                (int)n, w, (int)n_out, 0, y, (int)n_out);
}

#else

void blas_multiply(float *y, const float *x, const float *w, u32 n_out, u32 n)
{
    (void)y, (void)x, (void)w, (void)n_out, (void)n;
    CHECK(blas_name() != NULL);
}

#endif
