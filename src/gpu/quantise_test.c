/* Rounded rows lie where native/matmul_mma.cu looks for them: k_quantise on the checked emulator,
 * in pieces and plain. The products themselves run on Hopper only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/args.h"
#include "gpu/driver.h"

enum { ROWS = 37, SLICES = 2, N = 4096 + 416, PIECES = (N + PIECE_COLUMNS - 1) / PIECE_COLUMNS };

struct lab {
    const struct gpu_driver *d;
    struct gpu *g;
    struct gpu_buf *head, *x, *q, *scales;
    struct err err;
};

static struct gpu_buf *buffer(struct lab *lab, u64 n, const void *from)
{
    struct gpu_buf *b;
    assert_int_equal(lab->d->alloc(lab->g, &b, n, GPU_DEVICE, &lab->err), 0);
    if (from) assert_int_equal(lab->d->write(lab->g, b, 0, from, n, &lab->err), 0);
    return b;
}

/* What it leaves in q, n bytes; with pieces scales are there too. */
static u8 *quantise(struct lab *lab, u32 tile, u32 shares, u64 n)
{
    struct quantise_args a = {.n = N,
                              .x_pitch = N * SLICES,
                              .stride = N,
                              .n_slices = SLICES,
                              .tile = tile,
                              .norm = NORM_KIND_NONE};
    struct gpu_command c = {.kind = GPU_LAUNCH,
                            .groups = {ROWS, SLICES, shares},
                            .threads = NORM_THREADS,
                            .n_bufs = 6,
                            .bufs = {{lab->head, 0},
                                     {lab->x, 0},
                                     {lab->x, 0},
                                     {lab->x, 0},
                                     {lab->q, 0},
                                     {tile ? lab->q : lab->scales, 0}},
                            .n_args = sizeof a};
    struct gpu_list *list;
    memcpy(c.args, &a, sizeof a);
    assert_int_equal(lab->d->kernel(lab->g, "k_quantise", &c.kernel, &lab->err), 0);
    assert_int_equal(lab->d->record(lab->g, &list, &c, 1, &lab->err), 0);
    assert_int_equal(lab->d->submit(lab->g, list, &lab->err), 0);
    assert_int_equal(lab->d->wait(lab->g, &lab->err), 0);
    lab->d->drop(lab->g, list);
    u8 *out = malloc(n);
    assert_non_null(out);
    assert_int_equal(lab->d->read(lab->g, lab->q, 0, out, n, &lab->err), 0);
    return out;
}

/* Of sixteen rows those 4i and 4i + 1 come first, in order, then 4i + 2 and 4i + 3. */
static u32 place_of(u32 row)
{
    static const u8 place[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    return row / 16 * 16 + place[row % 16];
}

static void check_pieces(const u8 *got, const u8 *plain, const float *scales, u32 tile)
{
    for (u32 t = 0; t < ROWS; t++)
        for (u32 s = 0; s < SLICES; s++)
            for (u32 c = 0; c < N; c++) {
                u64 piece = (u64)(t / tile * SLICES + s) * PIECES + c / PIECE_COLUMNS;
                const u8 *p = got + piece * PIECE_BYTES(tile);
                u32 row = place_of(t % tile), unit = c / 16 % 8, at = (t * SLICES + s) * N + c;
                assert_int_equal(p[row * 128 + (unit ^ row % 8) * 16 + c % 16], plain[at]);
                float scale;
                memcpy(&scale, p + tile * 128 + (c / 32 % 4 * tile + t % tile) * 4, 4);
                assert_true(scale == scales[at / 32]);
            }
}

static void rows_lie_in_pieces(void **state)
{
    (void)state;
    enum { VALUES = ROWS * SLICES * N };
    const u64 most = 64ull * SLICES * PIECES * PIECE_BYTES(1);
    struct lab lab = {.d = &driver_emu_checked};
    u32 head[HEAD_WORDS] = {ROWS, ROWS, 0, 0, ROWS};
    float *x = malloc(VALUES * sizeof *x), *scales = malloc(VALUES / 32 * sizeof *scales);
    assert_true(x && scales);
    for (u32 i = 0; i < VALUES; i++) x[i] = (float)(i32)(i * 2654435761u) / 1e6f;
    assert_int_equal(lab.d->open(&lab.g, 0, &lab.err), 0);
    lab.head = buffer(&lab, sizeof head, head);
    lab.x = buffer(&lab, VALUES * sizeof *x, x);
    lab.q = buffer(&lab, most, NULL);
    lab.scales = buffer(&lab, VALUES / 32 * sizeof *scales, NULL);

    u8 *plain = quantise(&lab, 0, 1, VALUES);
    assert_int_equal(
        lab.d->read(lab.g, lab.scales, 0, scales, VALUES / 32 * sizeof *scales, &lab.err), 0);
    for (u32 tile = 16; tile <= 64; tile *= 2) {
        u8 *got = quantise(&lab, tile, tile / 16, most);
        check_pieces(got, plain, scales, tile);
        free(got);
    }
    free(plain);
    free(x);
    free(scales);
    lab.d->free(lab.g, lab.head);
    lab.d->free(lab.g, lab.x);
    lab.d->free(lab.g, lab.q);
    lab.d->free(lab.g, lab.scales);
    lab.d->close(lab.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_lie_in_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
