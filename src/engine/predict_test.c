#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/predict.h"
#include "gpu/gpu.h"
#include "model/synth.h"

/* What one token of a shape costs behind depth tokens. */
static struct token_cost cost_of(const char *shape, const char *type, const char *machine,
                                 u32 depth)
{
    const struct machine *on = machine_find(machine, &(struct err){0});
    const struct exec_class *class = gpu_class(on->backend);
    struct fletch_model_params params = {.n_ctx = 16384};
    struct err err = {0};
    struct profile profile;
    struct exec_limits limits;
    struct source *s;
    struct model *m;
    struct program *p;
    struct token_cost c;
    assert_int_equal(engine_profile(&profile, class, &params, &err), 0);
    assert_int_equal(synth_source(&s, synth_find(shape), type, 0, &err), 0);
    assert_int_equal(model_open(&m, s, profile, &err), 0);
    assert_int_equal(engine_limits(&limits, m, class, &params, &err), 0);
    assert_int_equal(engine_program(&p, m->trunk, class, false, &err), 0);
    assert_int_equal(predict_cost(&c, on, p, class, &limits, depth, &err), 0);
    prog_close(p);
    model_close(m);
    return c;
}

/* Decode at batch 1 on an H200, as in docs/gpu.md: 128 tokens behind depth ones, so that half of
 * them count too. */
static const struct measured {
    const char *shape, *type;
    u32 depth;
    double tokens_per_s;
} measured[] = {
    {"Qwen2.5-0.5B", "q8_0", 16 + 64, 2038},   {"Qwen2.5-0.5B", "q8_0", 2048 + 64, 1703},
    {"Llama-3.2-1B", "q8_0", 16 + 64, 1826},   {"Llama-3.2-1B", "f16", 16 + 64, 1174},
    {"Llama-3.1-8B", "q8_0", 16 + 64, 416},    {"Llama-3.1-8B", "q8_0", 8192 + 64, 319},
    {"RWKV-7-1.5B", "q8_0", 16 + 64, 1537},    {"RWKV-7-2.9B", "q4_k", 16 + 64, 999},
    {"GLM-4.7-Flash", "q8_0", 16 + 64, 549},   {"GLM-4.7-Flash", "q8_0", 2048 + 64, 495},
    {"GLM-4.7-Flash", "q8_0", 8192 + 64, 416},
};

static void test_one_set_of_constants_predicts_what_was_measured(void **state)
{
    struct err err;
    const struct machine *h200 = machine_find("h200", &err);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(measured); i++) {
        const struct measured *r = &measured[i];
        struct token_cost c = cost_of(r->shape, r->type, "h200", r->depth);
        double predicted = 1 / predict_token(h200, &c), off = predicted / r->tokens_per_s - 1;
        print_message("%-14s %-5s %5u: predicted %6.0f, measured %6.0f, %+5.1f %%\n", r->shape,
                      r->type, r->depth, predicted, r->tokens_per_s, 100 * off);
        if (fabs(off) > 0.15) fail_msg("%s is off by %.0f %%", r->shape, 100 * off);
    }
}

static void test_costs_are_those_of_the_program(void **state)
{
    struct token_cost dense = cost_of("Llama-3.2-1B", "f16", "h200", 0),
                      deep = cost_of("Llama-3.2-1B", "f16", "h200", 1000),
                      experts = cost_of("Qwen3-30B-A3B", "q8_0", "h200", 0);
    (void)state;
    /* every weight once in two bytes, the embedding as the last matrix */
    assert_true(fabs(dense.streamed / (2 * 1235814400.0) - 1) < 0.001);
    assert_true(dense.routed == 0 && dense.attention == 0);
    assert_true(deep.streamed - dense.streamed == 1000 * 16.0 * 2 * 8 * 64 * 2);
    assert_true(deep.attention == 1000 * 16.0 * 2 * 32 * 2 * 64);
    assert_true(dense.products < 2 * 1235814400.0 && dense.products > 1.99 * 1235814400.0);
    /* eight experts of 3 × 2048 × 768 in each of 48 layers */
    assert_true(fabs(experts.routed / (48 * 8 * 3 * 2048.0 * 768 * 34 / 32) - 1) < 0.01);
    /* Metal: each layer's attention is merged, and its two norms are launches */
    assert_true(cost_of("Llama-3.2-1B", "f16", "m3", 0).n_launches == dense.n_launches + 16 + 32);
}

static void test_machines_have_names_and_sense(void **state)
{
    struct err err = {0};
    (void)state;
    assert_null(machine_find("m9", &err));
    assert_non_null(strstr(err.text, "unknown device 'm9'; known devices: m1, "));
    assert_non_null(strstr(err.text, " h200,"));
    static const char *const others[] = {"", "m", "rtx", "rtx-4060-tis", "m3 prox", "-"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) assert_null(machine_find(others[i], &err));
    static const char *const ways[][2] = {
        {"RTX 4060 Ti", "rtx-4060-ti"}, {"rtx4060", "rtx-4060"}, {"M3_Pro", "m3-pro"},
        {"m3ultra", "m3-ultra"},        {"MI300", "mi300x"},     {"H2", "h200"}};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        assert_string_equal(machine_find(ways[i][0], &err)->name, ways[i][1]);
    for (const struct machine *m = machines; m->name; m++) {
        assert_ptr_equal(machine_find(m->name, &err), m);
        assert_non_null(gpu_class(m->backend));
        assert_true(m->gbs >= 50 && m->gib >= 8);
        assert_true(m->link == LINK_NONE ||
                    (m->n_units >= 8 && m->ghz > 1 && (m->lanes == 64 || m->lanes == 128)));
        assert_true(machine_memory(m) < (u64)(m->gib * (1 << 30)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_set_of_constants_predicts_what_was_measured),
        cmocka_unit_test(test_costs_are_those_of_the_program),
        cmocka_unit_test(test_machines_have_names_and_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
