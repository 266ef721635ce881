/* The two ceilings of a roofline, measured now and here: reading memory, and multiplying. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#include "base/pool.h"
#include "core/hostmem.h"
#include "engine/bench.h"

enum { REPS = 7, CHUNK = 1 << 20 };

u64 bench_llc_bytes(void)
{
    long n = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    n = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (n <= 0) n = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return n > 0 ? (u64)n : 32u << 20;
}

/* ---- reading ---- */

/* Wide loads of two streams, prefetched, in huge pages: without any of these a core reads less. */
typedef u64 lane __attribute__((vector_size(64)));
#define READ_LOOP(attribute, name)                                    \
    attribute static u64 name(const u8 *from)                         \
    {                                                                 \
        enum { AHEAD = 8192, HALF = CHUNK / 2 };                      \
        const lane *p = (const lane *)(const void *)from;             \
        lane a = {0}, b = {0}, c = {0}, d = {0};                      \
        for (u64 i = 0; i < HALF; i += 2 * sizeof(lane)) {            \
            for (u64 k = 0; k < 2 * sizeof(lane); k += 64) {          \
                __builtin_prefetch(from + i + k + AHEAD);             \
                __builtin_prefetch(from + i + k + HALF + AHEAD);      \
            }                                                         \
            a += p[i / sizeof(lane)];                                 \
            b += p[i / sizeof(lane) + 1];                             \
            c += p[(i + HALF) / sizeof(lane)];                        \
            d += p[(i + HALF) / sizeof(lane) + 1];                    \
        }                                                             \
        a += b + c + d;                                               \
        return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7]; \
    }
READ_LOOP(, read_plain)
#if defined __x86_64__
READ_LOOP(__attribute__((target("avx2"))), read_256)
READ_LOOP(__attribute__((target("avx512f"))), read_512)
#endif

struct reading {
    u64 (*read)(const u8 *chunk);
    u8 *p;
    u64 *sums; /* [chunks] so that the reads have a use */
};

static void read_chunks(void *ctx, u64 begin, u64 end)
{
    const struct reading *r = ctx;
    for (u64 c = begin; c < end; c++) r->sums[c] = r->read(r->p + c * CHUNK);
}

static void touch_chunks(void *ctx, u64 begin, u64 end)
{
    const struct reading *r = ctx;
    memset(r->p + begin * CHUNK, 1, (end - begin) * CHUNK);
}

static int measure_reading(struct bench_machine *m, struct pool *pool, struct err *err)
{
    u64 most = plan_available() / 4, n = 4 * m->llc_bytes;
    n = MIN(MAX(n, 256u << 20), most) / CHUNK;
    struct reading r = {read_plain, hostmem_alloc(n * CHUNK), calloc(n + 1, sizeof *r.sums)};
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        r.read = read_512;
    else if (__builtin_cpu_supports("avx2"))
        r.read = read_256;
#endif
    if (r.p && r.sums) pool_run(pool, touch_chunks, &r, n);
    for (int i = 0; r.p && r.sums && i < REPS; i++) {
        double began = base_now();
        pool_run(pool, read_chunks, &r, n);
        double gbs = (double)(n * CHUNK) / (base_now() - began) * 1e-9;
        if (gbs > m->read_gbs) m->read_gbs = gbs;
    }
    m->read_bytes = n * CHUNK;
    bool ok = r.p && r.sums;
    free(r.p);
    free(r.sums);
    return ok ? 0 : err_nomem(err, "measuring memory");
}

/* ---- multiplying ---- */

/* Ten sums at once hide the latency of an fma on every processor there is. */
#define TEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define FMA_LOOP(attribute, name, type, set, fma)                                  \
    attribute static type name(u64 n)                                              \
    {                                                                              \
        type m = set(0.999f), c = set(0.001f);                                     \
        TEN(FMA_DECLARE_##type)                                                    \
        for (u64 i = 0; i < n; i++) {                                              \
            TEN(FMA_STEP_##type)                                                   \
        }                                                                          \
        return fma(fma(fma(a0, a1, a2), fma(a3, a4, a5), fma(a6, a7, a8)), a9, c); \
    }
#define FMA_DECLARE_float(i) float a##i = (float)(i);
#define FMA_STEP_float(i)    a##i = __builtin_fmaf(a##i, m, c);
#define SAME(x)              (x)

#if defined __x86_64__
#define FMA_DECLARE___m256(i) __m256 a##i = _mm256_set1_ps(i);
#define FMA_STEP___m256(i)    a##i = _mm256_fmadd_ps(a##i, m, c);
#define FMA_DECLARE___m512(i) __m512 a##i = _mm512_set1_ps(i);
#define FMA_STEP___m512(i)    a##i = _mm512_fmadd_ps(a##i, m, c);
FMA_LOOP(__attribute__((target("avx2,fma"))), fma_256, __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_LOOP(__attribute__((target("avx512f"))), fma_512, __m512, _mm512_set1_ps, _mm512_fmadd_ps)

__attribute__((target("avx2,fma"))) static float run_256(u64 n)
{
    return _mm256_cvtss_f32(fma_256(n));
}

__attribute__((target("avx512f"))) static float run_512(u64 n)
{
    return _mm512_cvtss_f32(fma_512(n));
}
#endif
FMA_LOOP(, fma_1, float, SAME, __builtin_fmaf)

struct multiplying {
    float (*run)(u64 n);
    u64 n;
    float *sink; /* [threads] */
};

static void multiply(void *ctx, u64 begin, u64 end)
{
    const struct multiplying *f = ctx;
    for (u64 i = begin; i < end; i++) f->sink[i] = f->run(f->n);
}

static int measure_multiplying(struct bench_machine *m, struct pool *pool, struct err *err)
{
    struct multiplying f = {fma_1, 1u << 22, calloc(m->n_threads, sizeof *f.sink)};
    u32 lanes = 1;
    m->fma = "scalar f32";
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        f.run = run_512;
        lanes = 16;
        m->fma = "AVX-512 f32";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        f.run = run_256;
        lanes = 8;
        m->fma = "AVX2 f32";
    }
#endif
    if (!f.sink) return err_nomem(err, "measuring the processor");
    for (int i = 0; i < REPS; i++) {
        double began = base_now();
        pool_run(pool, multiply, &f, m->n_threads);
        double flops = 2.0 * 10 * lanes * (double)f.n * m->n_threads;
        double gflops = flops / (base_now() - began) * 1e-9;
        if (gflops > m->fma_gflops) m->fma_gflops = gflops;
    }
    free(f.sink);
    return 0;
}

int bench_measure_machine(struct bench_machine *m, u32 n_threads, struct err *err)
{
    struct pool *pool;
    int rc = pool_open(&pool, n_threads, err);
    if (rc) return rc;
    *m = (struct bench_machine){.llc_bytes = bench_llc_bytes(), .n_threads = pool_threads(pool)};
    rc = measure_reading(m, pool, err);
    if (!rc) rc = measure_multiplying(m, pool, err);
    pool_close(pool);
    return rc;
}
