/* The two ceilings of a roofline, measured now and here: reading memory, and multiplying. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

#include "base/os.h"
#include "base/pool.h"
#include "core/hostmem.h"
#include "cpu/cpu.h"
#include "engine/bench.h"
#include "gpu/bandwidth.h"
#include "gpu/gpu.h"

enum { REPS = 9, CHUNK = 1 << 20 };

u64 bench_llc_bytes(void)
{
    u64 n = os_last_cache_bytes();
    return n ? n : 32u << 20;
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

/* GB/s of n_bytes, the best of n_reps times; 0 without memory. The first read is from memory also
 * where a cache will hold them. */
static double measure_reading(struct pool *pool, u64 n_bytes, int n_reps)
{
    u64 n = MAX(n_bytes / CHUNK, pool_threads(pool));
    double best = 0;
    struct reading r = {read_plain, hostmem_alloc(n * CHUNK), calloc(n + 1, sizeof *r.sums)};
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        r.read = read_512;
    else if (__builtin_cpu_supports("avx2"))
        r.read = read_256;
#endif
    if (r.p && r.sums) pool_run(pool, touch_chunks, &r, n);
    for (int i = 0; r.p && r.sums && i < n_reps; i++) {
        double began = base_now();
        pool_run(pool, read_chunks, &r, n);
        best = MAX(best, (double)(n * CHUNK) / (base_now() - began) * 1e-9);
    }
    free(r.p);
    free(r.sums);
    return best;
}

double bench_read_quickly(u32 n_threads, struct err *err)
{
    enum { FEW = 3 };
    struct pool *pool;
    u64 n_bytes = MIN(MAX(2 * os_last_cache_bytes(), (u64)128 << 20), (u64)1 << 30);
    if (pool_open(&pool, n_threads, err)) return 0;
    double gbs = measure_reading(pool, MIN(n_bytes, plan_available() / 4), FEW);
    pool_close(pool);
    return gbs;
}

/* ---- multiplying ---- */

/* Ten sums at once hide the latency of these instructions on every processor there is; none of
 * their results is the same in the next round, so a compiler can't leave one out. */
#define TEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define UNIT_LOOP(attribute, name, type, start, step, sum, last)                       \
    attribute static float name(u64 n)                                                 \
    {                                                                                  \
        type TEN_START(start);                                                         \
        for (u64 i = 0; i < n; i++) {                                                  \
            a0 = step(a0), a1 = step(a1), a2 = step(a2), a3 = step(a3), a4 = step(a4); \
            a5 = step(a5), a6 = step(a6), a7 = step(a7), a8 = step(a8), a9 = step(a9); \
        }                                                                              \
        a0 = sum(sum(sum(a0, a1), sum(a2, a3)), sum(sum(a4, a5), sum(a6, a7)));        \
        return (float)last(sum(a0, sum(a8, a9)));                                      \
    }
#define TEN_START(start)                                                                      \
    a0 = start(0), a1 = start(1), a2 = start(2), a3 = start(3), a4 = start(4), a5 = start(5), \
    a6 = start(6), a7 = start(7), a8 = start(8), a9 = start(9)

#define SCALAR_STEP(a)   __builtin_fmaf(a, 0.999f, 0.001f)
#define SCALAR_SUM(a, b) ((a) + (b))
#define SAME(a)          (a)
UNIT_LOOP(, fma_scalar, float, SAME, SCALAR_STEP, SCALAR_SUM, SAME)

#if defined __x86_64__
#define TARGET(set) __attribute__((target(set)))

#define STEP_256(a) _mm256_fmadd_ps(a, _mm256_set1_ps(0.999f), _mm256_set1_ps(0.001f))
#define STEP_512(a) _mm512_fmadd_ps(a, _mm512_set1_ps(0.999f), _mm512_set1_ps(0.001f))
UNIT_LOOP(TARGET("avx2,fma"), fma_256, __m256, _mm256_set1_ps, STEP_256, _mm256_add_ps,
          _mm256_cvtss_f32)
UNIT_LOOP(TARGET("avx512f"), fma_512, __m512, _mm512_set1_ps, STEP_512, _mm512_add_ps,
          _mm512_cvtss_f32)

#define DOT_256(a)    \
    _mm256_add_epi32( \
        a, _mm256_madd_epi16(_mm256_maddubs_epi16(a, _mm256_set1_epi8(3)), _mm256_set1_epi16(1)))
#define DOT_VNNI(a)     _mm256_dpbusd_avx_epi32(a, a, _mm256_set1_epi8(3))
#define DOT_512(a)      _mm512_dpbusd_epi32(a, a, _mm512_set1_epi8(3))
#define FIRST_OF_512(a) _mm_cvtsi128_si32(_mm512_castsi512_si128(a))
UNIT_LOOP(TARGET("avx2"), dot_avx2, __m256i, _mm256_set1_epi8, DOT_256, _mm256_add_epi32,
          _mm256_cvtsi256_si32)
UNIT_LOOP(TARGET("avx2,avxvnni"), dot_avxvnni, __m256i, _mm256_set1_epi8, DOT_VNNI,
          _mm256_add_epi32, _mm256_cvtsi256_si32)
UNIT_LOOP(TARGET("avx512f,avx512bw,avx512vnni"), dot_avx512, __m512i, _mm512_set1_epi8, DOT_512,
          _mm512_add_epi32, FIRST_OF_512)

#define DOT_BF16(a) _mm512_dpbf16_ps(a, (__m512bh)a, (__m512bh)a)
UNIT_LOOP(TARGET("avx512f,avx512bf16"), dot_bf16, __m512, _mm512_set1_ps, DOT_BF16, _mm512_add_ps,
          _mm512_cvtss_f32)

/* Four sums of tiles, as the kernels have. The permission for tiles came with the backend. */
#define TILE_LOOP(name, set, dot)                               \
    TARGET("amx-tile," set) static float name(u64 n)            \
    {                                                           \
        static const struct {                                   \
            u8 palette, start_row, reserved[14];                \
            u16 row_bytes[16];                                  \
            u8 rows[16];                                        \
        } cfg = {.palette = 1,                                  \
                 .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, \
                 .rows = {16, 16, 16, 16, 16, 16, 16, 16}};     \
        __asm__ volatile("ldtilecfg %0" ::"m"(cfg));            \
        _tile_zero(0);                                          \
        _tile_zero(1);                                          \
        _tile_zero(2);                                          \
        _tile_zero(3);                                          \
        _tile_zero(4);                                          \
        _tile_zero(5);                                          \
        _tile_zero(6);                                          \
        _tile_zero(7);                                          \
        for (u64 i = 0; i < n; i++) {                           \
            dot(0, 4, 6);                                       \
            dot(1, 4, 7);                                       \
            dot(2, 5, 6);                                       \
            dot(3, 5, 7);                                       \
        }                                                       \
        _tile_release();                                        \
        return (float)n;                                        \
    }
TILE_LOOP(tile_bf16, "amx-bf16", _tile_dpbf16ps)
TILE_LOOP(tile_int8, "amx-int8", _tile_dpbssd)
#elif defined __aarch64__
#define STEP_NEON(a) vfmaq_f32(vdupq_n_f32(0.001f), a, vdupq_n_f32(0.999f))
UNIT_LOOP(, fma_neon, float32x4_t, vdupq_n_f32, STEP_NEON, vaddq_f32, vaddvq_f32)

/* sdot and smmla of v18 and v19 into ten registers, as words: assemblers that were not told of the
 * extension refuse their names. */
#define DOT_ARM(name, code)                                                                       \
    static float name(u64 n)                                                                      \
    {                                                                                             \
        for (u64 i = 0; i < n; i++)                                                               \
            __asm__ volatile(".long " code ", " code " + 1, " code " + 2, " code " + 3, " code    \
                             " + 4, " code " + 5, " code " + 6, " code " + 7, " code              \
                             " + 16, " code " + 17" ::                                            \
                                 : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17"); \
        return (float)n;                                                                          \
    }
DOT_ARM(dot_dotprod, "0x4e939640")
DOT_ARM(dot_i8mm, "0x4e93a640")
#endif

/* What the kernels of an instruction set multiply with; isa NULL: floats, on whatever has it. */
static const struct unit {
    const char *isa, *what;
    enum bench_numbers numbers;
    float (*run)(u64 n);
    u32 n_sums, ops; /* operations of one instruction */
    u32 shift;       /* 2^shift times as many rounds as of a tile */
} units[] = {
    {"generic", "scalar f32", BENCH_F32, fma_scalar, 10, 2, 6},
#if defined __x86_64__
    {"avx2", "AVX2 f32", BENCH_F32, fma_256, 10, 2 * 8, 6},
    {"avxvnni", "AVX2 f32", BENCH_F32, fma_256, 10, 2 * 8, 6},
    {"avx512", "AVX-512 f32", BENCH_F32, fma_512, 10, 2 * 16, 6},
    {"avx512bf16", "AVX-512 f32", BENCH_F32, fma_512, 10, 2 * 16, 6},
    {"amx", "AVX-512 f32", BENCH_F32, fma_512, 10, 2 * 16, 6},
    {"avx2", "AVX2 int8", BENCH_INT8, dot_avx2, 10, 2 * 32, 6},
    {"avxvnni", "AVX-VNNI int8", BENCH_INT8, dot_avxvnni, 10, 2 * 32, 6},
    {"avx512", "AVX-512 VNNI int8", BENCH_INT8, dot_avx512, 10, 2 * 64, 6},
    {"avx512bf16", "AVX-512 VNNI int8", BENCH_INT8, dot_avx512, 10, 2 * 64, 6},
    {"avx512bf16", "AVX-512 bf16", BENCH_BF16, dot_bf16, 10, 2 * 32, 6},
    {"amx", "AMX int8", BENCH_INT8, tile_int8, 4, 2 * 16 * 16 * 64, 0},
    {"amx", "AMX bf16", BENCH_BF16, tile_bf16, 4, 2 * 16 * 16 * 32, 0},
#elif defined __aarch64__
    {"neon", "NEON f32", BENCH_F32, fma_neon, 10, 2 * 4, 6},
    {"dotprod", "NEON f32", BENCH_F32, fma_neon, 10, 2 * 4, 6},
    {"i8mm", "NEON f32", BENCH_F32, fma_neon, 10, 2 * 4, 6},
    {"dotprod", "dotprod int8", BENCH_INT8, dot_dotprod, 10, 2 * 16, 6},
    {"i8mm", "i8mm int8", BENCH_INT8, dot_i8mm, 10, 2 * 32, 6},
#endif
};

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

/* The best of several times. */
static double measure_unit(const struct unit *u, struct pool *pool, float *sink)
{
    struct multiplying f = {u->run, (u64)1 << (13 + u->shift), sink};
    u32 n_threads = pool_threads(pool);
    double best = 0;
    for (int i = 0; i < REPS; i++) {
        double began = base_now();
        pool_run(pool, multiply, &f, n_threads);
        double ops = (double)u->n_sums * u->ops * (double)f.n * n_threads;
        best = MAX(best, ops / (base_now() - began) * 1e-9);
    }
    return best;
}

static int measure_multiplying(struct bench_machine *m, const struct bench_use *use,
                               struct pool *pool, struct err *err)
{
    float *sink = calloc(m->n_threads, sizeof *sink);
    const char *isa = use->isa ? use->isa : cpu_class(NULL)->isa;
    if (!sink) return err_nomem(err, "measuring the processor");
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const struct unit *u = &units[i];
        if (strcmp(u->isa, isa) != 0 || (u->numbers != BENCH_F32 && u->numbers != use->numbers))
            continue;
        double gops = measure_unit(u, pool, sink);
        if (gops <= m->peak_gflops) continue;
        m->peak_gflops = gops;
        m->peak = u->what;
    }
    free(sink);
    return 0;
}

/* ---- the whole ---- */

int bench_measure_machine(struct bench_machine *m, u32 n_threads, const struct bench_use *use,
                          struct err *err)
{
    struct pool *pool;
    int rc = pool_open(&pool, n_threads, err);
    if (rc) return rc;
    *m = (struct bench_machine){.llc_bytes = bench_llc_bytes(), .n_threads = pool_threads(pool)};
    os_processor_name(m->processor, sizeof m->processor);
    m->read_bytes = MIN(MAX(4 * m->llc_bytes, (u64)256 << 20), plan_available() / 4);
    m->read_gbs = measure_reading(pool, m->read_bytes, REPS);
    if (use->bytes && use->bytes <= m->llc_bytes)
        m->cache_gbs = measure_reading(pool, use->bytes, 8 * REPS);
    if (m->read_gbs <= 0) rc = err_nomem(err, "measuring memory");
    if (!rc) rc = measure_multiplying(m, use, pool, err);
    pool_close(pool);
    return rc;
}

void bench_add_shares(json_t *row, const struct bench_machine *m, double gbs, double gflops)
{
    double read = MAX(m->read_gbs, m->cache_gbs);
    json_object_set_new(row, "bandwidth_share", json_real(gbs / MAX(read, gbs)));
    json_object_set_new(row, "flop_share", json_real(gflops / MAX(m->peak_gflops, gflops)));
}

void bench_add_gpu_share(json_t *row, const struct bench_machine *m, double gbs)
{
    if (m->gpu_read_gbs <= 0) return;
    json_object_set_new(row, "bandwidth_share", json_real(gbs / MAX(m->gpu_read_gbs, gbs)));
}

int bench_measure_gpu(struct bench_machine *m, const struct exec_class *class, u32 device,
                      struct err *err)
{
    const struct gpu_driver *d = gpu_driver_of(class);
    struct gpu_reading r;
    if (!d) return 0;
    int rc = gpu_measure_reading(d, device, &r, err);
    m->gpu_read_gbs = r.gbs;
    m->gpu_read_bytes = r.bytes;
    return rc;
}

json_t *bench_machine_report(const struct bench_machine *m)
{
    json_t *o =
        json_pack("{s:s, s:I, s:f, s:I, s:f, s:I, s:f, s:s}", "processor", m->processor, "threads",
                  (json_int_t)m->n_threads, "read_gb_s", m->read_gbs, "read_bytes",
                  (json_int_t)m->read_bytes, "cache_gb_s", m->cache_gbs, "llc_bytes",
                  (json_int_t)m->llc_bytes, "peak_gflop_s", m->peak_gflops, "peak", m->peak);
    if (m->gpu_read_gbs > 0)
        json_object_update_new(o, json_pack("{s:f, s:I}", "gpu_read_gb_s", m->gpu_read_gbs,
                                            "gpu_read_bytes", (json_int_t)m->gpu_read_bytes));
    return o;
}
