/* Kernels of every instruction set that runs here: the same bits as plain C, whatever the number of
 * rows, and near what the definition says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/kernels.h"

#define ISA_NAME(isa) #isa,
static const char *const isas[] = {CPU_ISAS(ISA_NAME)};

static u64 random_state = 11;

static float next_float(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(i32)(random_state >> 32) * 0x1p-31f;
}

static float *floats(size_t n, float scale)
{
    float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = next_float() * scale;
    return p;
}

enum { IN = 512, OUT = 48, MOST_ROWS = 70, GUARD = 16 };

/* A weight of a type, packed, with rows of activations. */
struct bench {
    struct packed w;
    u8 *data;
    struct cpu_act a;
    float *x;
};

static void bench_open(struct bench *b, enum qtype type)
{
    struct weight w = {.type = type, .n_in = IN, .n_out = OUT, .n_slices = 1};
    float *values = floats((size_t)IN * OUT, 0.1f);
    assert_true(quant_bytes(type, IN, &w.row_bytes));
    w.n_bytes = w.slice_bytes = w.row_bytes * OUT;
    b->data = malloc(w.n_bytes);
    if (quant_info(type)->writable) {
        assert_true(quant_encode(type, values, b->data, (u64)IN * OUT));
    } else { /* IQ4_XS is only read: small numbers in every field are a block */
        for (u64 i = 0; i < w.n_bytes; i++) b->data[i] = (u8)(i * 37 % 48);
    }
    w.data = b->data;
    pack_plan(&b->w, &w);
    b->w.data = aligned_alloc(64, (b->w.slice_bytes + 63) / 64 * 64);
    pack_tiles(&b->w, &w, 0, b->w.n_tiles);
    b->x = floats((size_t)IN * MOST_ROWS, 2);
    b->a = (struct cpu_act){.n = IN,
                            .x = b->x,
                            .q = malloc(IN * MOST_ROWS),
                            .scale = malloc(IN / BLOCK * MOST_ROWS * sizeof(float)),
                            .sum = malloc(IN / 16 * MOST_ROWS * sizeof(i32)),
                            .mins = malloc(IN / BLOCK * 3 * MOST_ROWS * sizeof(float))};
    free(values);
}

static void bench_close(struct bench *b)
{
    free(b->data);
    free(b->w.data);
    free(b->x);
    free(b->a.q);
    free(b->a.scale);
    free(b->a.sum);
    free(b->a.mins);
}

/* All outputs for n_rows rows, n_tiles at a time; what lies behind them must stay untouched. */
static float *run(const struct cpu_kernels *k, struct bench *b, u32 n_rows, u32 n_tiles)
{
    float *y = malloc((size_t)MOST_ROWS * OUT * sizeof *y);
    float *out = malloc(((size_t)n_tiles * n_rows + 1) * TILE * sizeof *out);
    for (u32 t = 0; t < n_rows; t++) k->tiles->quantise(&b->a, t, b->x + (size_t)t * IN);
    for (u32 tile = 0; tile < OUT / TILE; tile += n_tiles) {
        u32 n = MIN(n_tiles, OUT / TILE - tile);
        float *behind = out + n * n_rows * TILE;
        for (u32 i = 0; i < GUARD; i++) behind[i] = 12345;
        k->tiles->tiles(&b->w, b->w.data + tile * b->w.tile_bytes, n, &b->a, 0, n_rows, out);
        for (u32 i = 0; i < GUARD; i++) assert_true(behind[i] == 12345);
        for (u32 i = 0; i < n * n_rows; i++)
            memcpy(y + (size_t)(i % n_rows) * OUT + (tile + i / n_rows) * TILE, out + i * TILE,
                   TILE * sizeof *y);
    }
    free(out);
    return y;
}

static void check_meaning(const struct bench *b, const float *y, u32 n_rows)
{
    float row[IN];
    bool int8 = encoding_is_int8(b->w.enc);
    double worst = 0, scale = 0;
    for (u32 o = 0; o < OUT; o++) {
        pack_row(&b->w, o, row);
        for (u32 t = 0; t < n_rows; t++) {
            double sum = 0;
            for (u32 i = 0; i < IN; i++)
                sum += (double)row[i] * (int8 ? (double)b->a.q[t * IN + i] *
                                                    (double)b->a.scale[t * (IN / BLOCK) + i / BLOCK]
                                              : (double)b->x[t * IN + i]);
            worst = fmax(worst, fabs(sum - (double)y[t * OUT + o]));
            scale = fmax(scale, fabs(sum));
        }
    }
    if (!(worst <= 2e-6 * scale)) fail_msg("off by %g of %g", worst, scale);
}

/* Of three tiles at once: a pair, where there are any, and one. */
static void check_rows(const struct cpu_kernels *k, struct bench *b, const char *type, u32 n,
                       const float *want)
{
    for (u32 n_tiles = 1; n_tiles <= 3; n_tiles++) {
        b->a.one_stream = n_tiles == 2;
        float *got = n_tiles == 1 + n % 3 || n == 1 ? run(k, b, n, n_tiles) : NULL;
        if (got && memcmp(got, want, (size_t)n * OUT * sizeof *got) != 0)
            fail_msg("%s: %s of %u rows differs from plain C", type, k->isa, n);
        free(got);
    }
}

static void products_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    static const u32 rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 35, 64, MOST_ROWS};
    const struct cpu_kernels *plain = kernels_find("generic");
    for (u32 type = 0; type < QT_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || !info->readable) continue;
        struct bench b;
        bench_open(&b, type);
        float *want = run(plain, &b, MOST_ROWS, 1);
        check_meaning(&b, want, MOST_ROWS);
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            for (size_t r = 0; kernels_find(isas[i]) && r < ARRAY_LEN(rows); r++)
                check_rows(kernels_find(isas[i]), &b, info->name, rows[r], want);
        free(want);
        bench_close(&b);
    }
}

/* ---- bf16 panels ---- */

enum { GROUP_VALUES = IN * TILE };

/* All outputs for rows [first, first + n_rows), with rows of y in no order that a rectangle has;
 * outputs from OUT - 3 on don't exist and stay untouched. */
static float *run_panels(const struct cpu_kernels *k, struct bench *b, bool by_pairs, u32 first,
                         u32 n_rows)
{
    float *y = malloc((size_t)MOST_ROWS * OUT * sizeof *y), *rows[MOST_ROWS] = {y};
    u16 *x = aligned_alloc(64, (MOST_ROWS / TILE + 1) * GROUP_VALUES * sizeof *x);
    float bias[OUT];
    for (u32 i = 0; i < OUT; i++) bias[i] = (float)i * 0.01f;
    for (u32 i = 0; i < MOST_ROWS * OUT; i++) y[i] = 12345;
    for (u32 t = 0; t < n_rows; t++) {
        rows[t] = y + (size_t)t * OUT;
        k->panels->pack(x + t / TILE * GROUP_VALUES, t % TILE, b->x + (size_t)(first + t) * IN, IN);
    }
    float *last = rows[0];
    for (u32 t = 0; first == 0 && n_rows > 40 && t < 40; t++) rows[t] = t < 39 ? rows[t + 1] : last;
    for (u32 block = 0; block < IN / BLOCK; block += 7)
        for (u32 tile = 0; tile < OUT / TILE; tile += 2) {
            struct cpu_panel p = {.x = x,
                                  .group_values = GROUP_VALUES,
                                  .n_rows = n_rows,
                                  .block = block,
                                  .by_pairs = by_pairs,
                                  .n_blocks = MIN(7u, IN / BLOCK - block),
                                  .n_halves = MIN(2u, OUT / TILE - tile)};
            for (u32 h = 0; h < p.n_halves; h++)
                p.half[h] = (struct cpu_half){.w = &b->w,
                                              .tile = b->w.data + (tile + h) * b->w.tile_bytes,
                                              .bias = bias + (tile + h) * TILE,
                                              .n = MIN(TILE, OUT - 3 - (tile + h) * TILE),
                                              .y = rows,
                                              .pitch = rows[0] == y ? OUT : 0,
                                              .col = (tile + h) * TILE};
            k->panels->multiply(&p);
        }
    free(x);
    return y;
}

static double rounded(float x)
{
    return (double)bf16_to_float(bf16_from_float(x));
}

static void check_panels(const struct bench *b, const float *y, u32 n_rows)
{
    float row[IN];
    double worst = 0, scale = 0;
    for (u32 o = 0; o < OUT; o++) {
        pack_row(&b->w, o, row);
        for (u32 t = 0; t < n_rows; t++) {
            u32 at = t < 40 ? (t + 1) % 40 : t; /* where run_panels put it */
            double sum = (double)(float)o * (double)0.01f, got = (double)y[at * OUT + o];
            for (u32 i = 0; i < IN; i++) sum += rounded(row[i]) * rounded(b->x[t * IN + i]);
            if (o >= OUT - 3) sum = 12345;
            worst = fmax(worst, fabs(sum - got));
            if (o < OUT - 3) scale = fmax(scale, fabs(sum));
        }
    }
    if (!(worst <= 2e-6 * scale)) fail_msg("off by %g of %g", worst, scale);
}

/* Every row alone, and every number of rows; in steps, where another type had them all: how rows
 * are taken together has nothing to do with how weights are decoded. */
static void check_rows_of_panels(const struct cpu_kernels *k, struct bench *b, bool by_pairs,
                                 const float *want, u32 step)
{
    for (u32 n = 1; n <= MOST_ROWS; n += step) {
        float *got = run_panels(k, b, by_pairs, 0, n);
        float *alone = run_panels(k, b, by_pairs, n - 1, 1);
        for (u32 t = 0; t < n; t++) {
            u32 from = t < 40 ? (t + 1) % 40 : t, to = n > 40 ? from : t;
            if (memcmp(got + to * OUT, want + from * OUT, OUT * sizeof *got) != 0)
                fail_msg("%s: row %u of %u differs from plain C", k->isa, t, n);
        }
        u32 from = n <= 40 ? n % 40 : n - 1;
        assert_memory_equal(alone, want + from * OUT, OUT * sizeof *alone);
        free(got);
        free(alone);
    }
}

static void check_panels_of(enum qtype type, bool by_pairs, u32 step)
{
    struct bench b;
    bench_open(&b, type);
    float *want = run_panels(kernels_find("generic"), &b, by_pairs, 0, MOST_ROWS);
    check_panels(&b, want, MOST_ROWS);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        if (kernels_find(isas[i]))
            check_rows_of_panels(kernels_find(isas[i]), &b, by_pairs, want, step);
    free(want);
    bench_close(&b);
}

static void panels_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    for (u32 type = 0; type < QT_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || !info->readable || type == QT_F32) continue;
        check_panels_of(type, false, type == QT_Q8_0 ? 1 : 16);
    }
    check_panels_of(QT_F16, true, 1);
    check_panels_of(QT_BF16, true, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_equal_on_every_instruction_set),
        cmocka_unit_test(panels_are_equal_on_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
