/* Every op on a GPU executor against the reference (test/op_cases.c): `op_test` runs them on the
 * emulator, `op_test cuda` on another, `op_test cuda attention` only those with that in their name.
 * The checked emulator (emu_checked; emu_metal with lists as Metal has them) looks at every access
 * on top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/op_cases.h"
#include "gpu/gpu.h"

static const struct exec_class *class;
static const char *wanted = ""; /* in the name of a case */
#ifdef __APPLE__
static const bool on_apple = true;
#else
static const bool on_apple = false;
#endif

/* Shapes that no kernel is made for; everything else must run. */
static const char *const refused[] = {
    "matmul F32 ragged",
    "matmul F16 ragged",
    "matmul BF16 ragged",
    "norm rms, ragged",
    "norm layer",
    "norm of one column",
    "attention, heads of 7",
    "kv_store, ragged",
    "rope+kv_store neox",
    "latent_attention, ragged",
    "token_shift, ragged",
    "wkv7, heads of 20",
    "recurrence, keys of 20",
    "wkv7+head+tail, heads of 20",
};

static bool may_refuse(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (strcmp(name, refused[i]) == 0) return true;
    return false;
}

/* Is a row of a prompt another one where those are rounded to bf16: a product, or attention, which
 * matrix units then do? */
static bool tells_classes_apart(u32 kind)
{
    switch (kind) {
    case OP_ATTENTION:
    case OP_LATENT_ATTENTION:
    case CASE_NORM_QKV_ATTENTION:
    case OP_MATMUL:
    case OP_MATMUL_HEADS:
    case OP_MATMUL_EXPERTS:
    case CASE_NORM_MATMUL:
    case CASE_NORM_MATMUL_ACT:
    case CASE_GATE_UP_GLU:
    case CASE_NORM_GATE_UP_GLU:
    case CASE_MATMUL_ADD:
    case CASE_MATMULS:
    case CASE_SHIFT_MATMULS:
    case CASE_LOW_TIME_MIX:
    case CASE_MLA_QUERY:
    case CASE_MLA_ATTENTION:
    case CASE_EXPERTS_GLU:
    case CASE_ROUTE_EXPERTS_GLU:
    case CASE_NORM_ROUTER:
    case CASE_NORM_ROUTER_GLU:
    case CASE_EXPERTS_SUM:
    case CASE_EXPERTS_SUM_ADD: return true;
    default: return false;
    }
}

static void check_all(enum op_form form, bool bf16)
{
    u32 n_ran = 0, n_odd = 0;
    struct exec_class with = *class;
    with.bf16 = bf16;
    for (u32 i = 0; i < op_case_count; i++) {
        if (!strstr(op_cases[i].name, wanted)) continue;
        if (bf16 && !tells_classes_apart(op_cases[i].kind)) continue;
        enum op_result r = op_case_check(&op_cases[i], &with, form, 2);
        bool odd = r != OP_NOTHING && may_refuse(op_cases[i].name) != (r == OP_REFUSED);
        if (odd)
            print_error("%s %s\n", op_cases[i].name, r == OP_REFUSED ? "refused" : "not refused");
        n_ran += r == OP_RAN;
        n_odd += odd;
    }
    print_message("%u cases on %s\n", n_ran, class->name);
    assert_int_equal(n_odd, 0);
    if (!wanted[0]) assert_true(n_ran > 0);
}

static void ops_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_UNFUSED, false);
}

static void fused_ops_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_FUSED, false);
}

static void ops_that_round_prompts_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_UNFUSED, true);
}

static void fused_ops_that_round_prompts_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_FUSED, true);
}

/* Caches of blocks (KV types q8 and q4), where heads are a multiple of 32. The emulator is slow: it
 * does the rest when asked for by name; kv_type_test.py has models. */
static void attention_over_blocks_is_near_the_reference(void **state)
{
    static const enum cache_type types[] = {CACHE_Q8, CACHE_Q4};
    static const char *const names[] = {"kv_store", "attention, groups of 7",
                                        "attention, heads of 256", "latent_attention"};
    bool few = strncmp(class->name, "emu", 3) == 0 && !wanted[0];
    u32 n_ran = 0;
    (void)state;
    for (u32 i = 0; i < op_case_count * ARRAY_LEN(types); i++) {
        const struct op_case *c = &op_cases[i % op_case_count];
        struct exec_class with = *class;
        with.kv = types[i / op_case_count];
        for (size_t j = 0; j < (few ? 1 : ARRAY_LEN(names)); j++)
            if (strcmp(c->name, names[j]) == 0 && strstr(c->name, wanted))
                n_ran += op_case_check(c, &with, OP_UNFUSED, 2) == OP_RAN;
    }
    print_message("%u cases on %s\n", n_ran, class->name);
    if (!wanted[0]) assert_int_equal(n_ran, ARRAY_LEN(types) * (few ? 1 : ARRAY_LEN(names)));
}

/* Both executors' one row in every bit. */
static u32 compare_rows(const struct op_case *c, const struct exec_class *other, enum op_form form)
{
    struct op_lab l;
    struct op_side sides[2];
    const struct exec_class *classes[2] = {class, other};
    bool open[2];
    op_lab_open_for(&l, c, class);
    for (u32 i = 0; i < 2; i++) open[i] = op_side_open(&sides[i], &l, classes[i], form, 2);
    assert_int_equal(open[0], open[1]);
    u32 width = op_lab_width(&l);
    float *y = calloc(2 * (size_t)OP_ROWS * width, sizeof *y), *z = y + (size_t)OP_ROWS * width;
    assert_non_null(y);
    if (open[0]) {
        op_side_run(&sides[0], 1, ROW_D, false, y);
        op_side_run(&sides[1], 1, ROW_D, false, z);
        if (memcmp(y, z, width * sizeof *y))
            fail_msg("%s: other bits on %s than on %s", c->name, other->name, class->name);
    }
    free(y);
    for (u32 i = 0; i < 2; i++) op_side_close(&sides[i]);
    op_lab_close(&l);
    return open[0];
}

/* Lists as Metal has them, where products of one row stage nothing; and Metal's own text on its
 * stand-in, where dots are floats. (A Mac's bits are its own.) */
static void launch_shapes_change_no_bit(void **state)
{
    static const char *const others[] = {"emu_metal", "metal"};
    u32 n = 0;
    (void)state;
    if (strcmp(class->name, "emu") != 0) skip();
    for (u32 i = 0; i < op_case_count * ARRAY_LEN(others); i++) {
        const struct op_case *c = &op_cases[i % op_case_count];
        const char *other = others[i / op_case_count];
        if (!strstr(c->name, wanted) || !tells_classes_apart(c->kind)) continue;
        if (gpu_absent(other) || (strcmp(other, "metal") == 0 && on_apple)) continue;
        n += compare_rows(c, gpu_class(other), OP_FUSED);
        if (!op_case_is_rule_of(c, class)) n += compare_rows(c, gpu_class(other), OP_UNFUSED);
    }
    print_message("%u cases\n", n);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "emu";
    class = gpu_class(name);
    if (!class || gpu_absent(name)) {
        print_error("%s: %s\n", name, class ? gpu_absent(name) : "no such executor");
        return 1;
    }
    if (argc > 2) wanted = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_near_the_reference),
        cmocka_unit_test(fused_ops_are_near_the_reference),
        cmocka_unit_test(ops_that_round_prompts_are_near_the_reference),
        cmocka_unit_test(fused_ops_that_round_prompts_are_near_the_reference),
        cmocka_unit_test(attention_over_blocks_is_near_the_reference),
        cmocka_unit_test(launch_shapes_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
