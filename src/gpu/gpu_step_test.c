/* The order of rows on the device, and the tiles of prompts that attention takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/args.h"
#include "gpu/gpu_step.h"

static const struct exec_limits limits = {.max_rows = 400,
                                          .max_out = 8,
                                          .n_slots = 4,
                                          .n_blocks = 64,
                                          .block_tokens = 32,
                                          .max_pos = 400};

struct lab {
    struct net *net;
    struct program *p;
    struct step *s;
    struct step_order order;
    u8 *bytes;
    struct step_layout layout;
};

static void open_lab(struct lab *l, bool bf16)
{
    struct err err = {0};
    *l = (struct lab){0};
    assert_int_equal(net_open(&l->net, &err), 0);
    l->net->profile.bf16 = bf16;
    assert_int_equal(prog_open(&l->p, l->net, "test", &err), 0);
    assert_int_equal(step_open(&l->s, l->net, &limits, &err), 0);
    assert_int_equal(step_order_open(&l->order, &limits, &err), 0);
    step_layout(&l->layout, l->p, &limits, limits.max_rows);
    l->bytes = calloc(1, l->layout.bytes[1]);
    assert_non_null(l->bytes);
}

static void close_lab(struct lab *l)
{
    free(l->bytes);
    step_order_close(&l->order);
    step_close(l->s);
    prog_close(l->p);
    net_close(l->net);
}

static void add(struct lab *l, u32 slot, u32 pos, enum row_class cls, bool out)
{
    assert_true(step_add(l->s, (struct row){(i32)pos, slot, pos, cls}, out));
}

static void write_step(struct lab *l)
{
    struct step_tables none = {0};
    bool extra;
    step_prepare(l->s);
    step_order(&l->order, l->s);
    assert_true(step_write(&l->layout, l->s, &l->order, &none, l->bytes, &extra));
}

static const u32 *part(const struct lab *l, enum step_part p)
{
    return (const u32 *)(const void *)(l->bytes + l->layout.at[p]);
}

/* Sequences 0 and 1 read their prompts in turn, 2 answers between them, and then 0 does. */
static void rows_of_class_d_come_first_then_prompts_one_by_one(void **state)
{
    struct lab l;
    (void)state;
    open_lab(&l, true);
    add(&l, 0, 5, ROW_P, false);
    add(&l, 1, 0, ROW_P, false);
    add(&l, 2, 9, ROW_D, true);
    add(&l, 0, 6, ROW_P, true);
    add(&l, 1, 1, ROW_P, true);
    add(&l, 0, 7, ROW_D, true);
    write_step(&l);
    static const u32 order[] = {2, 5, 0, 3, 1, 4}, out[] = {0, 3, 5, 1}, tiles[] = {2, 2, 4, 2};
    static const i32 prev[] = {-1, 3, -1, 2, -1, 4}, next[] = {-1, -1, 3, 1, 5, -1};
    assert_true(l.order.moved);
    assert_memory_equal(l.order.row, order, sizeof order);
    for (u32 i = 0; i < 6; i++)
        assert_int_equal(part(&l, STEP_ROWS)[4 * i], l.s->rows[order[i]].pos);
    assert_memory_equal(part(&l, STEP_OUT), out, sizeof out);
    assert_memory_equal(part(&l, STEP_PREV), prev, sizeof prev);
    assert_memory_equal(part(&l, STEP_NEXT), next, sizeof next);
    assert_int_equal(part(&l, STEP_HEAD)[HEAD_N_D], 2);
    assert_int_equal(part(&l, STEP_HEAD)[HEAD_N_TILES], 2);
    assert_memory_equal(part(&l, STEP_TILES), tiles, sizeof tiles);
    close_lab(&l);
}

static void order_is_kept_where_classes_are_the_same(void **state)
{
    struct lab l;
    (void)state;
    open_lab(&l, false);
    add(&l, 0, 0, ROW_P, false);
    add(&l, 1, 3, ROW_D, true);
    add(&l, 0, 1, ROW_P, false);
    write_step(&l);
    assert_false(l.order.moved);
    assert_int_equal(part(&l, STEP_HEAD)[HEAD_N_D], 3);
    assert_int_equal(part(&l, STEP_HEAD)[HEAD_N_TILES], 0);
    close_lab(&l);
}

static void tiles_end_with_a_sequence_or_full(void **state)
{
    struct lab l;
    (void)state;
    open_lab(&l, true);
    for (u32 i = 0; i < FLASH_TILE + 3; i++) add(&l, 1, i, ROW_P, false);
    for (u32 i = 0; i < 4; i++) add(&l, 3, 20 + i, ROW_P, false);
    write_step(&l);
    static const u32 tiles[] = {0, FLASH_TILE, FLASH_TILE, 3, FLASH_TILE + 3, 4};
    assert_int_equal(part(&l, STEP_HEAD)[HEAD_N_TILES], 3);
    assert_memory_equal(part(&l, STEP_TILES), tiles, sizeof tiles);
    close_lab(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_class_d_come_first_then_prompts_one_by_one),
        cmocka_unit_test(order_is_kept_where_classes_are_the_same),
        cmocka_unit_test(tiles_end_with_a_sequence_or_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
