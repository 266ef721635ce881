#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "engine/bench_lab.h"
#include "ref/ref.h"

static const struct bench_machine machine = {.read_gbs = 10, .peak_gflops = 100};

static json_t *run(const struct exec_class *class, const char *name, const char *shape)
{
    struct err err = {0};
    json_t *list = NULL;
    int rc = bench_kernel_run(&list, class, &ref_exec, 2, name, shape, 1, &machine, &err);
    if (rc) print_error("%s: %s\n", name, err.text);
    assert_int_equal(rc, 0);
    return list;
}

/* Small enough for sanitizers; more than one row where rows are handled in groups. */
static const char *const small[][2] = {
    {"matvec", "n=256,m=64"},
    {"matmul", "n=256,m=48,t=9,type=q4_k"},
    {"matmul+add", "n=256,m=64"},
    {"norm+matmul", "n=256,m=64"},
    {"norm+qkv+rope+kv_store+attention", "n=256,heads=4,kv_heads=2,head=32,t=2,depth=40"},
    {"gate+up+glu", "n=256,m=64"},
    {"norm+gate+up+glu", "n=256,m=64"},
    {"lerp+matmul+act", "n=256,m=64,t=2"},
    {"attention", "t=3,heads=4,kv_heads=2,head=32,depth=40"},
    {"latent_attention", "t=2,heads=3,head=64,rope=32,depth=40"},
    {"norm", "n=100"},
    {"rope", "t=2,heads=3,head=32"},
    {"route", "t=3,experts=16,used=3"},
    {"experts", "t=3,n=256,m=32,experts=8,used=2"},
    {"experts+glu", "t=3,n=256,m=32,experts=8,used=2"},
    {"experts+combine", "t=3,n=256,m=32,experts=8,used=2"},
    {"wkv7", "n=128,t=5"},
    {"wkv7+head+tail", "n=128,t=5"},
    {"sample", "n=1000,t=3"},
};

static void test_every_kernel_is_tested_here(void **state)
{
    (void)state;
    size_t n = 0;
    while (lab_kernels[n].name) n++;
    assert_int_equal(ARRAY_LEN(small), n);
    for (size_t i = 0; i < n; i++) assert_string_equal(small[i][0], lab_kernels[i].name);
}

static void test_every_kernel_of_the_cpu_is_right_and_has_a_speed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        json_t *list = run(cpu_class(NULL), small[i][0], small[i][1]), *row;
        size_t k;
        const struct lab_kernel *kernel = lab_kernels;
        while (strcmp(kernel->name, small[i][0]) != 0) kernel++;
        /* both forms of what it fuses */
        bool groups = false;
        for (u32 r = 0; r < cpu_class(NULL)->n_rules && kernel->rule; r++)
            groups |= strcmp(cpu_class(NULL)->rules[r].name, kernel->rule) == 0;
        assert_int_equal(json_array_size(list), groups ? 2 : 1);
        json_array_foreach(list, k, row)
        {
            assert_true(json_is_true(json_object_get(row, "ok")));
            assert_true(json_number_value(json_object_get(row, "us")) > 0);
        }
        json_decref(list);
    }
}

/* The reference with one value of what it computes a little off. */
static int read_wrong(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                      float *dst, struct err *err)
{
    int rc = ref_exec.read(x, handle, what, row, n_rows, dst, err);
    dst[(size_t)what.width * n_rows - 1] += 0.01f;
    return rc;
}

static void test_wrong_kernel_prints_no_speed(void **state)
{
    struct exec_class wrong = ref_exec;
    (void)state;
    wrong.read = read_wrong;
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        if (strncmp(small[i][0], "norm+", 5) == 0) continue; /* their tolerance is wider */
        json_t *list = run(&wrong, small[i][0], small[i][1]), *row = json_array_get(list, 0);
        assert_true(json_is_false(json_object_get(row, "ok")));
        assert_null(json_object_get(row, "us"));
        assert_null(json_object_get(row, "gb_s"));
        json_decref(list);
    }
}

static void test_bad_kernels_and_shapes_are_named(void **state)
{
    static const char *const bad[][3] = {
        {"matvek", NULL, "unknown kernel 'matvek'"},
        {"matvec", "n=33", "inconsistent"},
        {"matvec", "n=", "not a number"},
        {"matvec", "q=3", "unknown key 'q'"},
        {"matvec", "n", "KEY=VALUE"},
        {"matvec", "type=q9", "storage type"},
        {"matvec", "m=0", "needs m"},
        {"norm", "heads=3", "has no heads"},
        {"matvec", "t=4096", "takes at most"},
        {"all", "n=256", "a single kernel"},
        {"attention", "heads=5", "inconsistent"},
        {"route", "used=65", "inconsistent"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = {0};
        json_t *list;
        int rc = bench_kernel_run(&list, cpu_class(NULL), &ref_exec, 1, bad[i][0], bad[i][1], 1,
                                  &machine, &err);
        assert_int_equal(rc, FLETCH_E_ARG);
        if (!strstr(err.text, bad[i][2])) fail_msg("%s says: %s", bad[i][1], err.text);
    }
}

/* One table for short and long contexts. */
static void test_attention_is_measured_in_three_contexts(void **state)
{
    static const json_int_t depths[] = {256, 2048, 8192};
    struct err err = {0};
    json_t *list, *row;
    size_t i;
    (void)state;
    if (bench_kernel_run(&list, cpu_class(NULL), &ref_exec, 2, "attention", NULL, 1, &machine,
                         &err))
        fail_msg("%s", err.text);
    assert_int_equal(json_array_size(list), ARRAY_LEN(depths));
    json_array_foreach(list, i, row)
    {
        const json_t *shape = json_object_get(row, "shape");
        assert_int_equal(json_integer_value(json_object_get(shape, "depth")), depths[i]);
        assert_true(json_is_true(json_object_get(row, "ok")));
    }
    json_decref(list);
}

static void test_machine_is_measured(void **state)
{
    struct bench_machine m;
    struct err err;
    (void)state;
    assert_int_equal(bench_measure_machine(&m, 1, &(struct bench_use){0}, &err), 0);
    assert_true(m.read_gbs > 0.1 && m.peak_gflops > 0.01);
    assert_true(m.read_bytes >= 4 * m.llc_bytes || m.read_bytes >= plan_available() / 8);
    assert_int_equal(m.n_threads, 1);
}

#define GOLDEN "test/golden/models/llama-gguf/model.gguf"

static json_t *bench_golden(const struct fletch_bench *b)
{
    struct fletch_engine *e;
    char *text;
    assert_int_equal(
        fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "cpu", .n_threads = 2}),
        0);
    int rc = fletch_bench(e, GOLDEN, NULL, b, &text);
    if (rc) print_error("%s\n", fletch_engine_error(e));
    assert_int_equal(rc, 0);
    json_t *doc = json_loads(text, 0, NULL);
    fletch_free(text);
    fletch_engine_close(e);
    assert_non_null(doc);
    return doc;
}

static void test_cases_are_all_combinations(void **state)
{
    static const u32 prompts[] = {70, 3}, gens[] = {2}, depths[] = {0, 40}, batches[] = {1, 3};
    struct fletch_bench b = {.prompts = {prompts, 2},
                             .gens = {gens, 1},
                             .depths = {depths, 2},
                             .batches = {batches, 2},
                             .n_reps = 1};
    json_t *doc = bench_golden(&b), *row;
    size_t i, n[3] = {0};
    (void)state;
    json_array_foreach(json_object_get(doc, "results"), i, row)
    {
        const char *mode = json_string_value(json_object_get(row, "mode"));
        for (u32 k = 0; k < 3; k++) n[k] += strcmp(mode, bench_mode_names[k]) == 0;
        assert_true(json_number_value(json_object_get(row, "tokens_per_s")) > 0);
        assert_true(json_number_value(json_object_get(row, "active_bytes")) > 0);
    }
    assert_int_equal(n[0], 8);
    assert_int_equal(n[1], 4);
    assert_int_equal(n[2], 4);
    json_decref(doc);
}

/* What a decoded token reads: every weight but the embedding table, and the cache. */
static void test_active_bytes_grow_with_depth_by_the_cache(void **state)
{
    static const u32 gens[] = {1}, depths[] = {31, 63};
    struct fletch_bench b = {
        .modes = FLETCH_BENCH_DECODE, .gens = {gens, 1}, .depths = {depths, 2}, .n_reps = 1};
    struct fletch_engine *e;
    char *text;
    double bytes[2];
    (void)state;
    json_t *doc = bench_golden(&b);
    for (size_t i = 0; i < 2; i++)
        bytes[i] = json_number_value(
            json_object_get(json_array_get(json_object_get(doc, "results"), i), "active_bytes"));
    json_decref(doc);
    assert_int_equal(
        fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "cpu", .n_threads = 1}),
        0);
    assert_int_equal(fletch_explain(e, GOLDEN, NULL, &text), 0);
    doc = json_loads(text, 0, NULL);
    const json_t *program = json_array_get(json_object_get(doc, "programs"), 0);
    json_int_t kv = json_integer_value(json_object_get(program, "kv_bytes_per_token"));
    json_int_t weights = json_integer_value(json_object_get(program, "weight_bytes"));
    assert_true(bytes[1] - bytes[0] == (double)(32 * kv));
    assert_true(bytes[0] == (double)(weights + 32 * kv));
    json_decref(doc);
    fletch_free(text);
    fletch_engine_close(e);
}

static void test_profile_adds_up_and_has_no_tokens_per_second(void **state)
{
    static const u32 prompts[] = {8}, gens[] = {1};
    struct fletch_bench b = {
        .prompts = {prompts, 1}, .gens = {gens, 1}, .n_reps = 2, .profile = true};
    json_t *doc = bench_golden(&b), *profile, *row;
    size_t i, k;
    (void)state;
    assert_null(json_object_get(doc, "results"));
    assert_int_equal(json_array_size(json_object_get(doc, "profiles")), 2);
    json_array_foreach(json_object_get(doc, "profiles"), i, profile)
    {
        double all = json_number_value(json_object_get(profile, "us_per_step")), ops = 0,
               layers = 0;
        assert_null(json_object_get(profile, "tokens_per_s"));
        json_array_foreach(json_object_get(profile, "ops"), k, row) ops +=
            json_number_value(json_object_get(row, "us"));
        json_array_foreach(json_object_get(profile, "layers"), k, row) layers +=
            json_number_value(json_object_get(row, "us"));
        assert_true(ops > 0.999 * all && ops < 1.001 * all);
        assert_true(layers > 0.999 * all && layers < 1.001 * all);
    }
    const json_t *event = json_array_get(json_object_get(doc, "traceEvents"), 0);
    assert_string_equal(json_string_value(json_object_get(event, "ph")), "X");
    assert_true(json_number_value(json_object_get(event, "dur")) > 0);
    json_decref(doc);
}

static void test_impossible_cases_are_refused(void **state)
{
    static const u32 many[] = {2000}, huge[] = {1u << 30}, none[] = {0};
    const struct fletch_bench bad[] = {
        {.batches = {many, 1}},
        {.prompts = {huge, 1}},
        {.batches = {none, 1}},
        {.modes = FLETCH_BENCH_DECODE, .gens = {none, 1}},
        {.prompts = {none, 1}, .gens = {none, 1}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct fletch_engine *e;
        char *text;
        assert_int_equal(fletch_engine_open(
                             &e, &(struct fletch_engine_params){.backend = "cpu", .n_threads = 1}),
                         0);
        assert_int_equal(fletch_bench(e, GOLDEN, NULL, &bad[i], &text), FLETCH_E_ARG);
        assert_null(text);
        fletch_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel_is_tested_here),
        cmocka_unit_test(test_every_kernel_of_the_cpu_is_right_and_has_a_speed),
        cmocka_unit_test(test_wrong_kernel_prints_no_speed),
        cmocka_unit_test(test_bad_kernels_and_shapes_are_named),
        cmocka_unit_test(test_attention_is_measured_in_three_contexts),
        cmocka_unit_test(test_machine_is_measured),
        cmocka_unit_test(test_cases_are_all_combinations),
        cmocka_unit_test(test_active_bytes_grow_with_depth_by_the_cache),
        cmocka_unit_test(test_profile_adds_up_and_has_no_tokens_per_second),
        cmocka_unit_test(test_impossible_cases_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
