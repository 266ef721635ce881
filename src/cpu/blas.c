#include "cpu/blas.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/pack.h"

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

#if defined BLAS_OPENBLAS || defined BLAS_ACCELERATE

/* Multiplies BLAS_ROWS copies of one row: are all results equal? */
static bool places_are_equal(float *memory, u32 n_out, u32 n)
{
    float *x = memory, *w = x + BLAS_ROWS * n, *y = w + n * n_out;
    for (u32 i = 0; i < BLAS_ROWS * n; i++) x[i] = (float)(i % n * 7919 % 1009) / 1009 - 0.5f;
    for (u32 i = 0; i < n * n_out; i++) w[i] = (float)(i * 104729 % 2003) / 2003 - 0.5f;
    blas_multiply(y, x, w, n_out, n);
    for (u32 r = 1; r < BLAS_ROWS; r++)
        if (memcmp(y, y + r * n_out, n_out * sizeof *y) != 0) return false;
    return true;
}

bool blas_start(void)
{
    static const u32 sizes[] = {32, 576};
    enum { MAX_N = 576, MAX_OUT = BLAS_TILES * TILE };
#if defined BLAS_OPENBLAS
    openblas_set_num_threads(1);
#endif
    float *memory = malloc(sizeof *memory * (BLAS_ROWS * (MAX_N + MAX_OUT) + MAX_N * MAX_OUT));
    bool equal = memory;
    for (size_t i = 0; i < ARRAY_LEN(sizes) && equal; i++)
        for (u32 n_out = TILE; n_out <= MAX_OUT && equal; n_out += TILE)
            equal = places_are_equal(memory, n_out, sizes[i]);
    free(memory);
    return equal;
}

void blas_multiply(float *y, const float *x, const float *w, u32 n_out, u32 n)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BLAS_ROWS, (int)n_out, (int)n, 1, x,
                (int)n, w, (int)n_out, 0, y, (int)n_out);
}

#else

bool blas_start(void)
{
    return false;
}

void blas_multiply(float *y, const float *x, const float *w, u32 n_out, u32 n)
{
    (void)y, (void)x, (void)w, (void)n_out, (void)n;
    CHECK(blas_name() != NULL);
}

#endif
