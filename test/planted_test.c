/* The checked emulator finds what it is there to find: each kernel of planted.gpu has one mistake,
 * and must be stopped with words that say which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/emu/emu.h"

enum { N = 128 };

extern const struct emu_kernel emu_checked_planted[], emu_fast_planted[];
/* The Metal text of the same kernels, where there is a clang to compile it; else not there. */
#ifdef __APPLE__
static const struct emu_kernel *const *const emu_metal = NULL;
#else
extern const struct emu_kernel *const emu_metal[] __attribute__((weak));
#endif

struct lab {
    struct emulator *emu;
    struct emu_buffer w, x, y;
    float wv[N], xv[N], yv[N];
};

static struct emu_buffer remembered(float *p)
{
    struct emu_buffer b = {(u8 *)p, N * sizeof *p, emu_shadow_new(N * sizeof *p)};
    assert_non_null(b.shadow);
    return b;
}

static struct lab *open_lab(void)
{
    struct lab *lab = aligned_alloc(64, (sizeof *lab + 63) / 64 * 64);
    assert_non_null(lab);
    assert_int_equal(emu_open(&lab->emu, 1, NULL), 0);
    for (u32 i = 0; i < N; i++) lab->wv[i] = 1, lab->xv[i] = 2, lab->yv[i] = 0;
    lab->w = remembered(lab->wv);
    lab->x = remembered(lab->xv);
    lab->y = remembered(lab->yv);
    return lab;
}

static void close_lab(struct lab *lab)
{
    emu_shadow_free(lab->w.shadow);
    emu_shadow_free(lab->x.shadow);
    emu_shadow_free(lab->y.shadow);
    emu_close(lab->emu);
    free(lab);
}

static int run(struct lab *lab, const struct emu_kernel *table, const char *name, bool after,
               struct err *err)
{
    const struct emu_kernel *const tables[] = {table, NULL};
    u32 n = N, whole[6] = {0};
    struct emu_bind binds[31] = {
        {lab->w, 0}, {lab->x, 0}, {lab->y, 0}, {{(u8 *)&n, sizeof n, NULL}, 0}};
    binds[30].buf = (struct emu_buffer){(u8 *)whole, sizeof whole, NULL}; /* gpu_grid of simt.h */
    struct emu_launch l = {.kernel = emu_find(tables, name),
                           .groups = {2, 1, 1},
                           .threads = 64,
                           .binds = binds,
                           .after = after};
    assert_non_null(l.kernel);
    return emu_run(lab->emu, &l, err);
}

static void a_right_kernel_runs(void **state)
{
    (void)state;
    const struct emu_kernel *tables[] = {emu_checked_planted, emu_fast_planted};
    for (u32 i = 0; i < 2; i++) {
        struct lab *lab = open_lab();
        struct err err = {0};
        if (run(lab, tables[i], "k_right", true, &err) < 0) fail_msg("%s", err.text);
        assert_true(lab->yv[0] == 128 + 128 + 64 && lab->yv[64] == lab->yv[0]);
        assert_true(lab->yv[1] == 128 && lab->yv[127] == 128);
        close_lab(lab);
    }
}

/* Products by matrix, in every expansion, and by shuffles, as CUDA has them. */
static void matrices_multiply(void **state)
{
    (void)state;
    const struct emu_kernel *tables[] = {emu_checked_planted, emu_fast_planted,
                                         emu_metal ? emu_metal[0] : NULL};
    for (u32 i = 0; i < ARRAY_LEN(tables) && tables[i]; i++) {
        struct lab *lab = open_lab();
        struct err err = {0};
        if (run(lab, tables[i], "k_mats", true, &err) < 0) fail_msg("%s", err.text);
        for (u32 j = 0; j < N; j++) assert_true(lab->yv[j] == 0);
        close_lab(lab);
    }
}

static void expect_found(const struct emu_kernel *table, const char *kernel, const char *says)
{
    struct lab *lab = open_lab();
    struct err err = {0};
    if (run(lab, table, kernel, true, &err) != FLETCH_E_INTERNAL)
        fail_msg("%s was not found", kernel);
    if (!strstr(err.text, says) || !strstr(err.text, kernel)) fail_msg("%s", err.text);
    close_lab(lab);
}

/* What the stand-in for Metal's matrices looks at, when it runs the text itself. */
static void mistakes_are_found_in_metal_text(void **state)
{
    (void)state;
    if (!emu_metal) {
        print_message("skip: there is no Metal text without clang\n");
        skip();
    }
    expect_found(emu_metal[0], "k_mat_beyond", "outside of threadgroup memory");
    expect_found(emu_metal[0], "k_mat_rows_overlap", "rows of a matrix overlap");
    expect_found(emu_metal[0], "k_mat_of_some_lanes", "some lanes have left");
    expect_found(emu_metal[0], "k_mat_product_of_some_lanes", "divergent simd op");
    expect_found(emu_metal[0], "k_mat_two_places", "lanes differ");
}

static void each_mistake_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *says;
    } planted[] = {
        {"k_reads_beyond", "of 128 elements"},
        {"k_writes_beyond", "of 128 elements"},
        {"k_misaligned", "misaligned"},
        {"k_no_barrier", "threadgroup byte"},
        {"k_no_barrier_before_reuse", "race on threadgroup"},
        {"k_simd_barrier_too_small", "threadgroup byte"},
        {"k_tg_barrier_for_device", "race on buffer"},
        {"k_groups_race", "another group's write"},
        {"k_reads_other_group", "another group's write"},
        {"k_divergent_sum", "some lanes have left"},
        {"k_divergent_ops", "divergent simd op"},
        {"k_divergent_barrier", "divergent barrier"},
        {"k_simdgroups_at_two_barriers", "divergent barrier"},
        {"k_leaves_before_barrier", "a simdgroup left"},
        {"k_lanes_leave_before_sum", "some lanes have left"},
        {"k_unwritten", "no thread has written"},
        {"k_array_too_small", "of 60 elements"},
        {"k_too_much_memory", "threadgroup memory"},
        {"k_dev_before_wait", "before dep_wait"},
        {"k_never_waits", "without dep_wait"},
        {"k_mat_beyond", "of 64 elements"},
        {"k_mat_rows_overlap", "rows of a matrix overlap"},
        {"k_mat_of_some_lanes", "some lanes have left"},
        {"k_mat_product_of_some_lanes", "divergent simd op"},
        {"k_mat_two_places", "lanes differ"},
        {"k_mat_without_barrier", "race on threadgroup"},
    };
    u32 n = 0;
    for (const struct emu_kernel *k = emu_checked_planted; k->name; k++) n++;
    assert_int_equal(n, ARRAY_LEN(planted) + 6); /* two are right, four overlap */
    for (u32 i = 0; i < ARRAY_LEN(planted); i++)
        expect_found(emu_checked_planted, planted[i].kernel, planted[i].says);
}

/* Two launches that write the same words are fine one behind the other, a race side by side. */
static void launches_that_overlap_may_not_share(void **state)
{
    (void)state;
    struct lab *lab = open_lab();
    struct err err = {0};
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, &err), 0);
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, &err), 0);
    assert_int_equal(run(lab, emu_checked_planted, "k_right", false, &err), FLETCH_E_INTERNAL);
    assert_non_null(strstr(err.text, "another group's"));
    close_lab(lab);
}

/* Where bindings overlap a thread's own load feeds its own store, and nothing else. */
static void bindings_may_overlap_by_one_rule(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *says;
        bool weights; /* not x, but w is y */
    } cases[] = {{"k_adds_in_place", NULL, false},
                 {"k_overlap_behind_barrier", "another thread's through another", false},
                 {"k_overlap_loads_after_store", "a load behind a store", false},
                 {"k_overlap_with_weights", "another thread's through another", true}};
    for (u32 i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        bool apart = i < ARRAY_LEN(cases);
        u32 j = i % ARRAY_LEN(cases);
        struct lab *lab = open_lab();
        struct err err = {0};
        struct emu_buffer w = lab->w, x = lab->x;
        if (!apart) *(cases[j].weights ? &lab->w : &lab->x) = lab->y;
        int rc = run(lab, emu_checked_planted, cases[j].kernel, true, &err);
        if (apart || !cases[j].says) {
            if (rc) fail_msg("%s: %s", cases[j].kernel, err.text);
        } else if (!rc || !strstr(err.text, cases[j].says)) {
            fail_msg("%s: %s", cases[j].kernel, rc ? err.text : "not found");
        }
        lab->w = w;
        lab->x = x;
        close_lab(lab);
    }
}

static void copies_take_part_in_it(void **state)
{
    (void)state;
    struct lab *lab = open_lab();
    struct err err = {0};
    struct emu_bind y = {lab->y, 0}, x = {lab->x, 0};
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, &err), 0);
    assert_int_equal(emu_copy(lab->emu, x, y, N * 4, true, &err), 0);
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, &err), 0);
    assert_int_equal(emu_copy(lab->emu, x, y, N * 4, false, &err), FLETCH_E_INTERNAL);
    close_lab(lab);
}

/* A kernel's reads count once a launch, in sectors of 32 bytes. */
static void bytes_are_counted_once(void **state)
{
    (void)state;
    struct lab *lab = open_lab();
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, NULL), 0);
    u64 one = emu_bytes_read(lab->emu);
    assert_int_equal(one, 2 * N * 4 + 2 * 32); /* w, x, and the first words of y's two halves */
    assert_int_equal(run(lab, emu_checked_planted, "k_right", true, NULL), 0);
    assert_int_equal(emu_bytes_read(lab->emu), 2 * one);
    close_lab(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_kernel_runs),
        cmocka_unit_test(matrices_multiply),
        cmocka_unit_test(each_mistake_is_found),
        cmocka_unit_test(mistakes_are_found_in_metal_text),
        cmocka_unit_test(launches_that_overlap_may_not_share),
        cmocka_unit_test(bindings_may_overlap_by_one_rule),
        cmocka_unit_test(copies_take_part_in_it),
        cmocka_unit_test(bytes_are_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
