/* Steps: rows in order, room that ends, links between rows of one slot, angles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/step.h"

static double freq[3] = {1, 0.25, 0.001};
static struct net net = {.rope = {{.n_rot = 6, .freq = freq, .mscale = 1.5}}};
static const struct exec_limits limits = {.max_rows = 6,
                                          .max_out = 3,
                                          .n_slots = 3,
                                          .n_blocks = 8,
                                          .block_tokens = 16,
                                          .max_pos = 100000};
static struct step *s;

static int setup(void **state)
{
    (void)state;
    return step_open(&s, &net, &limits, NULL);
}

static int teardown(void **state)
{
    (void)state;
    step_close(s);
    return 0;
}

static bool add(u32 slot, u32 pos, bool out)
{
    return step_add(s, (struct row){7, slot, pos, ROW_P}, out);
}

static void rows_stay_in_order(void **state)
{
    (void)state;
    assert_true(add(2, 5, false) && add(0, 9, true) && add(2, 6, true));
    assert_int_equal(s->n_rows, 3);
    assert_int_equal(s->rows[1].pos, 9);
    assert_int_equal(s->n_out, 2);
    assert_int_equal(s->out_rows[0], 1);
    assert_int_equal(s->out_rows[1], 2);
}

static void a_full_step_takes_no_more(void **state)
{
    (void)state;
    for (u32 i = 0; i < 3; i++) assert_true(add(0, i, true));
    assert_false(add(0, 3, true)); /* max_out */
    for (u32 i = 3; i < 6; i++) assert_true(add(0, i, false));
    assert_false(add(0, 6, false)); /* max_rows */
    assert_int_equal(s->n_rows, 6);
    assert_int_equal(s->n_out, 3);
    for (u32 i = 0; i < 9; i++) assert_true(step_edit(s, EDIT_COPY_BLOCK, i, i + 1));
    assert_false(step_edit(s, EDIT_ZERO_STATE, 0, 0)); /* max_rows + n_slots */
    assert_int_equal(s->edits[8].dst, 8);
    assert_int_equal(s->edits[8].src, 9);
}

static void reset_empties_all(void **state)
{
    (void)state;
    const float hidden = 0;
    add(1, 0, true);
    step_edit(s, EDIT_ZERO_STATE, 1, 0);
    s->hidden = &hidden;
    s->group_begin = 3;
    s->group_end = 4;
    step_reset(s);
    assert_int_equal(s->n_rows + s->n_out + s->n_edits + s->group_begin, 0);
    assert_null(s->hidden);
    assert_true(s->group_end == UINT32_MAX);
}

static void rows_link_to_the_one_before_in_their_slot(void **state)
{
    (void)state;
    static const i32 want[6] = {-1, -1, 0, -1, 2, 1};
    assert_true(add(0, 10, false) && add(2, 0, false) && add(0, 11, false));
    assert_true(add(1, 3, false) && add(0, 12, false) && add(2, 1, false));
    step_prepare(s);
    assert_memory_equal(s->prev, want, sizeof want);
    step_reset(s); /* links don't reach into the step before */
    add(0, 13, false);
    step_prepare(s);
    assert_int_equal(s->prev[0], -1);
}

static void check_angles(const u32 pos[3])
{
    step_reset(s);
    for (u32 i = 0; i < 3; i++) add(i, pos[i], false);
    step_prepare(s);
    for (u32 t = 0; t < 3; t++)
        for (u32 i = 0; i < 3; i++) {
            double a = pos[t] * freq[i];
            assert_true(fabsf(s->cos[t * 3 + i] - (float)(1.5 * cos(a))) < 2e-7f);
            assert_true(fabsf(s->sin[t * 3 + i] - (float)(1.5 * sin(a))) < 2e-7f);
        }
}

static void angles_are_position_times_frequency(void **state)
{
    (void)state;
    check_angles((const u32[3]){255, 256, 70001});
    check_angles((const u32[3]){0, 3, 99999});
    assert_true(s->cos[0] == 1.5f && s->sin[0] == 0);
}

static void tables_cover_the_longest_sequence(void **state)
{
    (void)state;
    assert_true((u64)s->table_len * limits.block_tokens >= limits.max_pos);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(rows_stay_in_order),
        TEST(a_full_step_takes_no_more),
        TEST(reset_empties_all),
        TEST(rows_link_to_the_one_before_in_their_slot),
        TEST(angles_are_position_times_frequency),
        TEST(tables_cover_the_longest_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
