#include "lab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ref/ref.h"

struct lab lab;

static const struct exec_limits limits = {.max_rows = LAB_ROWS,
                                          .max_out = LAB_ROWS,
                                          .n_slots = LAB_SLOTS,
                                          .n_blocks = 4 * LAB_SLOTS,
                                          .block_tokens = LAB_BLOCK,
                                          .max_pos = 3 * LAB_BLOCK};

int lab_setup(void **state)
{
    (void)state;
    lab = (struct lab){.seed = 1};
    lab.in = calloc((size_t)LAB_ROWS * LAB_COLS, sizeof(float));
    lab.out = calloc((size_t)4 * LAB_COLS, sizeof(float));
    if (!lab.in || !lab.out || net_open(&lab.net, NULL) || prog_open(&lab.p, lab.net, "lab", NULL))
        return -1;
    lab.net->profile.kv = CACHE_F32;
    lab.all = prog_import_hidden(lab.p, LAB_COLS);
    return 0;
}

int lab_teardown(void **state)
{
    (void)state;
    ref_exec.close(lab.x);
    step_close(lab.s);
    prog_close(lab.p);
    net_close(lab.net);
    free(lab.in);
    free(lab.out);
    return 0;
}

float lab_random(void)
{
    lab.seed = lab.seed * 1664525 + 1013904223;
    return (float)(lab.seed >> 8) / 8388608.0f - 1;
}

struct operand lab_in(u32 width)
{
    lab.used += width;
    return prog_cols(lab.p, lab.all, lab.used - width, width);
}

float *lab_at(struct operand x, u32 row)
{
    assert_true(x.buf == lab.all.buf && row < LAB_ROWS);
    return lab.in + (size_t)row * LAB_COLS + x.col;
}

void lab_fill(u32 n)
{
    for (u32 t = 0; t < n; t++)
        for (u32 i = 0; i < lab.used; i++) lab_at(lab.all, t)[i] = lab_random();
}

u32 lab_weight(enum qtype type, u32 n_in, u32 n_out, u32 n_slices, const float *values,
               const float **back)
{
    struct weight w = weight_packed("w", type, n_in, n_out, n_slices);
    u64 n = (u64)n_in * n_out * n_slices;
    u8 *data = arena_alloc(&lab.net->arena, w.n_bytes, 1);
    float *decoded = arena_alloc(&lab.net->arena, n, sizeof *decoded);
    assert_non_null(data);
    assert_non_null(decoded);
    if (!quant_encode(type, values, data, n))
        assert_int_equal(type, QT_F32); /* any of it is there */
    quant_decode(type, data, decoded, n);
    if (back) *back = decoded;
    w.data = data;
    return net_weight(lab.net, &w);
}

u32 lab_random_weight(enum qtype type, u32 n_in, u32 n_out, u32 n_slices, const float **back)
{
    u64 n = (u64)n_in * n_out * n_slices;
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (u64 i = 0; i < n; i++) values[i] = lab_random();
    u32 w = lab_weight(type, n_in, n_out, n_slices, values, back);
    free(values);
    return w;
}

u32 lab_vector(u32 n, const float *values)
{
    return lab_weight(QT_F32, n, 1, 1, values, NULL);
}

static void open_all(struct operand a, struct operand b)
{
    struct err err = {0};
    assert_int_equal(prog_finish(lab.p, a, b, &err), 0);
    assert_int_equal(ref_exec.open(&lab.x, &ref_exec, lab.net, &limits, 2, &err), 0);
    assert_int_equal(ref_exec.load(lab.x, lab.p, &lab.handle, &err), 0);
}

static struct step *the_step(void)
{
    if (lab.s) return lab.s;
    assert_int_equal(step_open(&lab.s, lab.net, &limits, NULL), 0);
    for (u32 slot = 0; slot < LAB_SLOTS; slot++) /* scattered, backwards */
        for (u32 i = 0; i < 4; i++)
            lab.s->tables[slot * lab.s->table_len + i] = (3 - i) * LAB_SLOTS + slot;
    return lab.s;
}

void lab_row(u32 slot, u32 pos)
{
    assert_true(step_add(the_step(), (struct row){(i32)(10 * slot + pos), slot, pos, ROW_P}, true));
}

void lab_run(struct operand a, struct operand b)
{
    struct err err = {0};
    struct step *s = the_step();
    if (!lab.x) open_all(a, b);
    s->hidden = lab.in;
    step_prepare(s);
    assert_int_equal(ref_exec.submit(lab.x, lab.handle, s, &err), 0);
    assert_int_equal(ref_exec.wait(lab.x, &err), 0);
    step_reset(s);
}

const float *lab_out(struct operand y, u32 row)
{
    static u32 next;
    float *dst = lab.out + (size_t)(next++ % 4) * LAB_COLS;
    assert_true(y.width <= LAB_COLS);
    assert_int_equal(ref_exec.read(lab.x, lab.handle, y, row, 1, dst, NULL), 0);
    return dst;
}

void lab_close_to(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("%.9g instead of %.9g", (double)got, want);
}
