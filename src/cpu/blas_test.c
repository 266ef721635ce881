/* Rows of prompts with float weights, which a BLAS library multiplies where the program has one
 * (make blas): near the reference, and the same bits in any step and on any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/op_cases.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "engine/engine.h"
#include "ref/ref.h"

/* Outputs: several blocks of a library's, the last of them not whole. */
enum { OUTPUTS = 300 };

static bool is_product(const struct op_case *c)
{
    bool dense = c->kind == OP_MATMUL || c->kind == CASE_NORM_MATMUL ||
                 c->kind == CASE_GATE_UP_GLU || c->kind == CASE_MATMUL_ADD ||
                 c->kind == CASE_MATMULS || c->kind == OP_MATMUL_HEADS;
    return dense && quant_info(c->s.type)->blk == 1;
}

static float *run(const struct op_lab *l, const struct exec_class *class, u32 n_threads, u32 n,
                  enum row_class cls, bool alone)
{
    struct op_side side;
    float *y = calloc((size_t)n * op_lab_width(l), sizeof *y);
    assert_non_null(y);
    bool fused = class != &ref_exec && n_threads > 1;
    assert_true(op_side_open(&side, l, class, fused ? OP_FUSED : OP_UNFUSED, n_threads));
    op_side_run(&side, n, cls, alone, y);
    op_side_close(&side);
    return y;
}

static void check(const struct op_lab *l, const struct exec_class *class, u32 n)
{
    size_t size = (size_t)n * op_lab_width(l) * sizeof(float);
    float *want = run(l, class, 1, n, ROW_P, false), *ref = run(l, &ref_exec, 1, n, ROW_P, false);
    op_compare(l, n, want, ref, class->isa);
    for (u32 threads = 1; threads <= 3; threads++) {
        float *got = run(l, class, threads, n, ROW_P, threads == 1);
        if (memcmp(got, want, size) != 0)
            fail_msg("%s of %u rows, %s: other bits on %u threads", l->c->name, n, class->isa,
                     threads);
        free(got);
    }
    free(ref);
    free(want);
}

/* The best instruction set, and one whose prompts are not rounded to bf16. */
static void rows_of_prompts_depend_on_nothing_else(void **state)
{
    (void)state;
    const struct exec_class *classes[] = {cpu_class(NULL), cpu_class("generic")};
    for (u32 i = 0; i < op_case_count; i++)
        for (size_t k = 0; k < ARRAY_LEN(classes); k++) {
            struct op_case c = op_cases[i];
            struct op_lab l;
            if (!is_product(&c)) continue;
            if (c.kind != OP_MATMUL_HEADS) c.s.m = OUTPUTS;
            op_lab_open_for(&l, &c, classes[k]);
            check(&l, classes[k], 7);
            check(&l, classes[k], OP_ROWS);
            op_lab_close(&l);
        }
}

/* Rows of answers never go there: their sums are ours, in our order. Nor do others where the
 * library gives a row other bits at another place. */
static void a_library_is_used_for_prompts_only(void **state)
{
    (void)state;
    u32 i = 0;
    while (op_cases[i].kind != OP_MATMUL || op_cases[i].s.type != QT_F16) i++;
    struct op_lab l;
    const struct exec_class *class = cpu_class("generic");
    op_lab_open_for(&l, &op_cases[i], class);
    size_t size = (size_t)OP_ROWS * op_lab_width(&l) * sizeof(float);
    float *prompt = run(&l, class, 1, OP_ROWS, ROW_P, false);
    float *answer = run(&l, class, 1, OP_ROWS, ROW_D, false);
    assert_int_equal(memcmp(prompt, answer, size) != 0, blas_start());
    free(prompt);
    free(answer);
    op_lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_prompts_depend_on_nothing_else),
        cmocka_unit_test(a_library_is_used_for_prompts_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
