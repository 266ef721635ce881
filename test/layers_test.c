/* Which layers become one launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "gpu/emit.h"
#include "gpu/gpu.h"
#include "model/synth.h"

static const struct list_kind h200 = {.n_d = 1,
                                      .native = true,
                                      .bulk = true,
                                      .resident = true,
                                      .clusters = true,
                                      .joins = true,
                                      .walks = true,
                                      .n_units = 132};

/* Launches of one row, and the arguments of the one that stands for several layers (n_layers 0:
 * there is none). */
static u32 launches_of(const char *shape, const char *type, struct list_kind kind,
                       struct layers_args *a)
{
    const struct exec_class *class = gpu_class("emu");
    struct fletch_model_params params = {.n_ctx = 1024, .max_rows = 64};
    struct err err = {0};
    struct profile profile;
    struct exec_limits limits;
    struct source *s;
    struct model *m;
    struct program *p;
    struct emit e;
    memset(a, 0, sizeof *a);
    assert_int_equal(engine_profile(&profile, class, &params, &err), 0);
    assert_int_equal(synth_source(&s, synth_find(shape), type, 0, &err), 0);
    assert_int_equal(model_open(&m, s, profile, &err), 0);
    assert_int_equal(engine_limits(&limits, m, class, &params, &err), 0);
    assert_int_equal(engine_program(&p, m->trunk, class, false, &err), 0);
    assert_int_equal(emit_program(&e, p, &limits, kind, &err), 0);
    for (u32 i = 0; i < e.n; i++) {
        if (strncmp(e.list[i].kernel, "k_rwkv7_", 8)) continue;
        assert_int_equal(a->n_layers, 0);
        assert_int_equal(e.list[i].n_args, sizeof *a);
        assert_int_equal(e.list[i].groups[0], kind.n_units);
        assert_true(e.passed > 0);
        memcpy(a, e.list[i].args, sizeof *a);
    }
    free(e.list);
    prog_close(p);
    model_close(m);
    return e.n;
}

/* All but the first, which has no mixture of v; 11 launches are before and behind them, 5 its own.
 */
static void layers_that_are_alike_are_one_launch(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *type;
        u32 n_layers, n, n_heads;
    } cases[] = {{"RWKV-7-1.5B", "q8_0", 23, 2048, 32},
                 {"RWKV-7-1.5B", "q4_k", 23, 2048, 32},
                 {"RWKV-7-2.9B", "q4_k", 31, 2560, 40}};
    for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
        struct layers_args a;
        assert_int_equal(launches_of(cases[i].shape, cases[i].type, h200, &a), 14);
        assert_int_equal(a.n_layers, cases[i].n_layers);
        assert_int_equal(a.n, cases[i].n);
        assert_int_equal(a.n_between, 4 * cases[i].n);
        assert_int_equal(a.n_heads, cases[i].n_heads);
        assert_int_equal(a.part[0].first, 0);
        for (u32 j = 1; j < LAYERS_PARTS; j++) assert_true(a.part[j].first > a.part[j - 1].first);
        assert_true(a.part[LAYERS_PARTS - 1].first < h200.n_units);
    }
}

static void others_are_launched_as_before(void **state)
{
    (void)state;
    struct layers_args a;
    struct list_kind kind = h200;
    launches_of("RWKV-7-0.4B", "q8_0", h200, &a); /* too narrow */
    assert_int_equal(a.n_layers, 0);
    launches_of("RWKV-7-2.9B", "q8_0", h200, &a); /* too wide */
    assert_int_equal(a.n_layers, 0);
    launches_of("RWKV-7-1.5B", "q6_k", h200, &a);
    assert_int_equal(a.n_layers, 0);
    launches_of("Llama-3.2-1B", "q8_0", h200, &a);
    assert_int_equal(a.n_layers, 0);
    kind.resident = false;
    u32 n = launches_of("RWKV-7-1.5B", "q8_0", kind, &a);
    assert_int_equal(a.n_layers, 0);
    assert_int_equal(n, 14 - 1 + 5 * 23);
    kind = h200;
    kind.n_d = 2;
    launches_of("RWKV-7-1.5B", "q8_0", kind, &a);
    assert_int_equal(a.n_layers, 0);
    kind = h200;
    kind.n_units = 100; /* more rows than simdgroups */
    launches_of("RWKV-7-1.5B", "q8_0", kind, &a);
    assert_int_equal(a.n_layers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_are_alike_are_one_launch),
        cmocka_unit_test(others_are_launched_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
