/* Every op on every instruction set that runs here: near the reference, and the same bits as plain
 * C for generated tokens, fused or not, on any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/op_cases.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "engine/engine.h"
#include "gpu/gpu.h"
#include "ref/ref.h"

#define ISA_NAME(isa) #isa,
static const char *const isas[] = {CPU_ISAS(ISA_NAME)};

static void every_op_has_a_case(void **state)
{
    (void)state;
    for (u32 kind = 0; kind < OP_COUNT; kind++) {
        u32 i = 0;
        while (i < op_case_count && op_cases[i].kind != kind) i++;
        if (i == op_case_count) fail_msg("no case for %s in test/op_cases.c", op_info[kind].name);
    }
}

/* Sanitizers make everything slow: there, the best one has to do. */
static bool is_tried(const char *isa)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return cpu_class(isa) && cpu_class(isa) == cpu_class(NULL);
#else
    return cpu_class(isa) != NULL;
#endif
}

static void check_all(enum op_form form)
{
    for (size_t k = 0; k < ARRAY_LEN(isas); k++)
        for (u32 i = 0; is_tried(isas[k]) && i < op_case_count; i++)
            assert_int_not_equal(op_case_check(&op_cases[i], cpu_class(isas[k]), form, 1),
                                 OP_REFUSED);
}

static void ops_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_UNFUSED);
}

static void fused_ops_are_near_the_reference(void **state)
{
    (void)state;
    check_all(OP_FUSED);
}

/* The profile of processors that have an instruction for bf16, on those too that have none. */
static void prompts_meet_floats_in_bf16(void **state)
{
    (void)state;
    struct exec_class floats = *cpu_class("generic");
    u32 n = 0;
    floats.bf16 = BF16_FLOATS;
    for (u32 i = 0; i < op_case_count; i++)
        if (op_cases[i].kind == OP_MATMUL)
            for (enum op_form form = OP_UNFUSED; form <= OP_FUSED; form++)
                n += op_case_check(&op_cases[i], &floats, form, 1) == OP_RAN;
    assert_true(n > 0);
}

static float *run(const struct op_lab *l, const char *isa, enum op_form form, u32 n_threads, u32 n)
{
    struct op_side side;
    float *y = calloc((size_t)n * op_lab_width(l), sizeof *y);
    assert_non_null(y);
    assert_true(op_side_open(&side, l, cpu_class(isa), form, n_threads));
    op_side_run(&side, n, ROW_D, false, y);
    op_side_close(&side);
    return y;
}

static void bits_depend_on_nothing_but_the_rows(void **state)
{
    (void)state;
    for (u32 i = 0; i < op_case_count; i++) {
        struct op_lab l;
        struct profile profile;
        struct err err = {0};
        assert_int_equal(engine_profile(&profile, cpu_class("generic"), NULL, &err), 0);
        op_lab_open(&l, &op_cases[i], profile);
        for (size_t r = 0; r < ARRAY_LEN(op_row_counts); r++) {
            u32 n = op_row_counts[r];
            size_t size = (size_t)n * op_lab_width(&l) * sizeof(float);
            float *want = run(&l, "generic", OP_UNFUSED, 1, n);
            for (size_t k = 0; k < ARRAY_LEN(isas); k++)
                for (u32 threads = 1; is_tried(isas[k]) && threads <= 3; threads++) {
                    float *got = run(&l, isas[k], threads % 2 ? OP_UNFUSED : OP_FUSED, threads, n);
                    if (memcmp(got, want, size) != 0)
                        fail_msg("%s of %u rows with %s on %u threads differs from plain C",
                                 op_cases[i].name, n, isas[k], threads);
                    free(got);
                }
            free(want);
        }
        op_lab_close(&l);
    }
}

/* Of every class: an op with a parameter that its kernel does not list is refused by name. */
static void check_refusals(const struct exec_class *class, const struct op_lab *l, bool *seen)
{
    u64 kernels[OP_COUNT];
    struct exec_class less = *class;
    less.kernels = kernels;
    for (u32 i = 0; i < l->p->n_ops; i++)
        for (u32 f = 0; f < FEATURE_COUNT; f++) {
            const struct op *op = &l->p->ops[i];
            struct err err = {0};
            char want[160];
            if (!(op_features(op) >> f & 1)) continue;
            seen[f] = true;
            memcpy(kernels, class->kernels, sizeof kernels);
            assert_int_equal(exec_check(&less, l->p, &err), 0);
            kernels[op->kind] &= ~(1ull << f);
            assert_int_equal(exec_check(&less, l->p, &err), FLETCH_E_UNSUPPORTED);
            snprintf(want, sizeof want, "op '%s' of layer -1: %s has no kernel for %s",
                     op_info[op->kind].name, class->name, feature_name(f));
            assert_string_equal(err.text, want);
        }
}

static void what_no_kernel_lists_is_refused(void **state)
{
    (void)state;
    bool seen[FEATURE_COUNT] = {false};
    const struct exec_class *classes[] = {&ref_exec, cpu_class(NULL), gpu_class("emu")};
    for (u32 i = 0; i < op_case_count; i++)
        for (size_t k = 0; k < ARRAY_LEN(classes); k++) {
            struct op_lab l;
            op_lab_open_for(&l, &op_cases[i], classes[k]);
            check_refusals(classes[k], &l, seen);
            op_lab_close(&l);
        }
    for (u32 f = 0; f < FEATURE_COUNT; f++)
        if (!seen[f]) fail_msg("no case in test/op_cases.c has %s", feature_name(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_case),
        cmocka_unit_test(ops_are_near_the_reference),
        cmocka_unit_test(fused_ops_are_near_the_reference),
        cmocka_unit_test(prompts_meet_floats_in_bf16),
        cmocka_unit_test(what_no_kernel_lists_is_refused),
        cmocka_unit_test(bits_depend_on_nothing_but_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
