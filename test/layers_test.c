/* Which layers become one launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "gpu/emit.h"
#include "gpu/gpu.h"
#include "gpu/gpu_lists.h"
#include "model/synth.h"

static const struct list_kind h200 = {.n_d = 1,
                                      .resident = true,
                                      .caps = {.native = true,
                                               .bulk = true,
                                               .clusters = true,
                                               .joins = true,
                                               .walks = true,
                                               .n_units = 132}};

/* The launches of one row. */
struct list {
    struct model *m;
    struct program *p;
    struct exec_limits limits;
    struct emit e;
    const struct launch *merged; /* the one that stands for several layers; NULL: there is none */
};

/* What groups exchange is in the plan of a machine with that device. */
static void exchanged_is_planned(const struct list *t, struct list_kind kind)
{
    struct err err = {0};
    struct gpu_sizes size;
    struct exec_limits limits = t->limits;
    assert_int_equal(gpu_measure(&size, t->p, &limits, &driver_cuda, &kind, &err), 0);
    assert_int_equal(size.passed, t->e.passed);
    limits.found = (struct exec_device){.known = true, .caps = kind.caps};
    u64 planned = gpu_bytes(gpu_class("cuda"), t->p, &limits);
    limits.found.caps.n_units = 0; /* groups can't be counted */
    assert_int_equal(planned - gpu_bytes(gpu_class("cuda"), t->p, &limits), t->e.passed);
}

static void list_open(struct list *t, const struct synth_shape *shape, const char *type,
                      struct list_kind kind)
{
    const struct exec_class *class = gpu_class("emu");
    struct fletch_model_params params = {.n_ctx = 1024, .max_rows = 64};
    struct err err = {0};
    struct profile profile;
    struct source *s;
    t->merged = NULL;
    assert_int_equal(engine_profile(&profile, class, &params, &err), 0);
    assert_int_equal(synth_source(&s, shape, type, 0, &err), 0);
    assert_int_equal(model_open(&t->m, s, profile, &err), 0);
    assert_int_equal(engine_limits(&t->limits, t->m, class, &params, &err), 0);
    assert_int_equal(engine_program(&t->p, t->m->trunk, class, false, &err), 0);
    assert_int_equal(emit_program(&t->e, t->p, &t->limits, kind, &err), 0);
    if (kind.resident && kind.n_d == 1) exchanged_is_planned(t, kind);
    for (u32 i = 0; i < t->e.n; i++) {
        const struct launch *l = &t->e.list[i];
        if (strncmp(l->kernel, "k_rwkv7_", 8) && strcmp(l->kernel, "k_mla_layers_i8")) continue;
        assert_null(t->merged);
        assert_int_equal(l->groups[0], kind.caps.n_units);
        assert_true(l->after && i + 1 < t->e.n && l[1].after);
        assert_true(t->e.passed > 0);
        t->merged = l;
    }
}

static void list_close(struct list *t)
{
    free(t->e.list);
    prog_close(t->p);
    model_close(t->m);
}

/* How many there are, and the arguments of the one that stands for several layers (all zeros: there
 * is none). */
static u32 launches_of(const struct synth_shape *shape, const char *type, struct list_kind kind,
                       void *args, u32 n_args)
{
    struct list t;
    list_open(&t, shape, type, kind);
    u32 n = t.e.n;
    memset(args, 0, n_args);
    if (t.merged) {
        assert_int_equal(t.merged->n_args, n_args);
        memcpy(args, t.merged->args, n_args);
    }
    list_close(&t);
    return n;
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
        assert_int_equal(launches_of(synth_find(cases[i].shape), cases[i].type, h200, &a, sizeof a),
                         14);
        assert_int_equal(a.n_layers, cases[i].n_layers);
        assert_int_equal(a.n, cases[i].n);
        assert_int_equal(a.n_between, 4 * cases[i].n);
        assert_int_equal(a.n_heads, cases[i].n_heads);
        assert_int_equal(a.part[0].first, 0);
        for (u32 j = 1; j < LAYERS_PARTS; j++) assert_true(a.part[j].first > a.part[j - 1].first);
        assert_true(a.part[LAYERS_PARTS - 1].first < h200.caps.n_units);
    }
}

static u32 rwkv7_layers(const char *shape, const char *type, struct list_kind kind)
{
    struct layers_args a;
    launches_of(synth_find(shape), type, kind, &a, sizeof a);
    return a.n_layers;
}

static void others_are_launched_as_before(void **state)
{
    (void)state;
    struct layers_args a;
    struct list_kind kind = h200;
    assert_int_equal(rwkv7_layers("RWKV-7-0.4B", "q8_0", h200), 0); /* too narrow */
    assert_int_equal(rwkv7_layers("RWKV-7-2.9B", "q8_0", h200), 0); /* too wide */
    assert_int_equal(rwkv7_layers("RWKV-7-1.5B", "q6_k", h200), 0);
    assert_int_equal(rwkv7_layers("Llama-3.2-1B", "q8_0", h200), 0);
    kind.resident = false;
    u32 n = launches_of(synth_find("RWKV-7-1.5B"), "q8_0", kind, &a, sizeof a);
    assert_int_equal(a.n_layers, 0);
    assert_int_equal(n, 14 - 1 + 5 * 23);
    kind = h200;
    kind.n_d = 2;
    assert_int_equal(rwkv7_layers("RWKV-7-1.5B", "q8_0", kind), 0);
    kind = h200;
    kind.caps.n_units = 100; /* more rows than simdgroups */
    assert_int_equal(rwkv7_layers("RWKV-7-1.5B", "q8_0", kind), 0);
}

/* ---- MLA and experts ---- */

static const struct {
    const char *name;
    size_t at;
    bool is_vector;
} weights[] = {
#define VECTOR(name, field)                                 \
    {                                                       \
        name, offsetof(struct mla_layers_args, field), true \
    }
#define MATRIX(name, field)                                  \
    {                                                        \
        name, offsetof(struct mla_layers_args, field), false \
    }
    VECTOR("attn_norm", norm[0]),      VECTOR("ffn_norm", norm[1]),
    VECTOR("attn_q_a_norm", q_norm),   VECTOR("attn_kv_a_norm", c_norm),
    MATRIX("attn_q_a", q_a),           MATRIX("attn_kv_a_mqa", kv_a),
    MATRIX("attn_q_b", q_b),           MATRIX("attn_k_b", k_b),
    MATRIX("attn_v_b", v_b),           MATRIX("attn_output", o),
    MATRIX("ffn_gate_exps", gate),     MATRIX("ffn_up_exps", up),
    MATRIX("ffn_down_exps", down),     MATRIX("ffn_gate_shexp", shared_gate),
    MATRIX("ffn_up_shexp", shared_up), MATRIX("ffn_down_shexp", shared_down),
    VECTOR("ffn_gate_inp", router),    VECTOR("exp_probs_b", bias),
};

/* The weight of that name without its end; its place in *at. */
static const struct weight *weight_of(const struct net *net, const char *name, u64 *at)
{
    struct weight_place *places = calloc(net->n_weights, sizeof *places);
    const struct weight *found = NULL;
    assert_non_null(places);
    assert_int_equal(planes_place(net, planes_limit(true, 0), places, NULL), 1);
    for (u32 i = 0; i < net->n_weights; i++) {
        size_t n = strlen(name);
        if (strncmp(net->weights[i].name, name, n) || net->weights[i].name[n] != '.') continue;
        found = &net->weights[i];
        *at = places[i].at;
    }
    free(places);
    assert_non_null(found);
    return found;
}

/* Does the launch find all weights of a layer? */
static void weights_are_there(const struct net *net, const struct mla_layers_args *a, u32 layer)
{
    for (u32 i = 0; i < ARRAY_LEN(weights); i++) {
        char name[64];
        u32 places[2];
        u64 at = 0;
        struct planes p;
        snprintf(name, sizeof name, "blk.%u.%s", layer, weights[i].name);
        planes_plan(&p, weight_of(net, name, &at));
        memcpy(places, (const u8 *)a + weights[i].at, weights[i].is_vector ? 4 : 8);
        u64 move = (layer - 1) * 16ull * a->stride;
        assert_int_equal(places[0] * 16ull + move, at);
        if (!weights[i].is_vector) assert_int_equal(places[1] * 16ull + move, at + p.bytes[0]);
    }
}

/* Do pairs that groups pass have places of their own? */
static void passed_are_there(const struct mla_layers_args *a, u64 passed)
{
    assert_true(a->pass[0] >= LAYERS_HEADER);
    for (u32 i = 0; i < MLA_PASS_COUNT; i++) {
        u64 end = i + 1 < MLA_PASS_COUNT ? a->pass[i + 1] : passed / sizeof(u64);
        assert_int_equal(a->pass[i] % 2, 0);
        assert_true(end > a->pass[i]);
    }
    assert_true(a->pass[MLA_PASS_MIDDLE] - a->pass[MLA_PASS_IN] >= a->n);
    assert_true(passed / sizeof(u64) - a->pass[MLA_PASS_HALF] >= h200.caps.n_units);
}

/* All layers but the first, which has no experts: of 8 launches each. */
static void layers_with_experts_are_one_launch(void **state)
{
    (void)state;
    struct list t;
    struct mla_layers_args a;
    struct kv_plane kv[3][KV_PLANES];
    list_open(&t, synth_find("GLM-4.7-Flash"), "q8_0", h200);
    assert_int_equal(t.e.n, 15);
    assert_non_null(t.merged);
    assert_int_equal(t.merged->n_args, sizeof a);
    assert_int_equal(t.merged->threads, MLA_SIMDS * 32 + LAYERS_HELPERS);
    memcpy(&a, t.merged->args, sizeof a);
    assert_int_equal(a.n_layers, 46);
    assert_int_equal(a.n, 2048);
    assert_int_equal(a.n_q, 768);
    assert_int_equal(a.n_head, 256);
    assert_int_equal(a.n_k, 192);
    assert_int_equal(a.n_v, 256);
    assert_int_equal(a.n_between, 1536);
    assert_int_equal(a.n_shared, 1536);
    assert_int_equal(a.route.n_experts, 64);
    assert_int_equal(a.route.n_used, 4);
    assert_int_equal(a.store.n_heads, 20);
    assert_int_equal(a.store.n, 512);
    assert_int_equal(a.store.n_rot, 64);
    assert_int_equal(a.attn.k_units, 72);
    assert_int_equal((a.n_q + a.q_groups - 1) / a.q_groups, 11); /* of 1344 rows, 132 groups */
    assert_in_range(576, 1, 11 * (132 - a.q_groups));
    passed_are_there(&a, t.e.passed);
    weights_are_there(t.m->net, &a, 1);
    weights_are_there(t.m->net, &a, 46);
    for (u32 i = 0; i < 3; i++)
        assert_int_equal(emit_kv_planes(t.m->net, &t.limits, 1 + i, kv[i]), 1);
    const struct binding *b = &t.merged->bufs[6];
    assert_true(b->space == SPACE_KV && b->write);
    assert_int_equal(b->offset, kv[0][0].at);
    assert_int_equal(a.kv_stride * 16ull, kv[1][0].at - kv[0][0].at);
    assert_true(b->n > 45 * 16ull * a.kv_stride && b->n <= 46 * 16ull * a.kv_stride);
    list_close(&t);
}

static u32 mla_layers(const char *type, struct list_kind kind, u32 *n)
{
    struct mla_layers_args a;
    *n = launches_of(synth_find("GLM-4.7-Flash"), type, kind, &a, sizeof a);
    return a.n_layers;
}

static void others_with_experts_are_launched_as_before(void **state)
{
    (void)state;
    struct list_kind kind = h200;
    u32 n;
    kind.resident = false;
    assert_int_equal(mla_layers("q8_0", kind, &n), 0);
    assert_int_equal(n, 15 - 1 + 8 * 46);
    kind = h200;
    kind.caps.clusters = false; /* its launches are others */
    assert_int_equal(mla_layers("q8_0", kind, &n), 0);
    kind = h200;
    kind.caps.n_units = 127; /* 17 rows of a group for 16 simdgroups */
    assert_int_equal(mla_layers("q8_0", kind, &n), 0);
    assert_int_equal(mla_layers("q4_k", h200, &n), 0);
    kind = h200;
    kind.n_d = 2;
    assert_int_equal(mla_layers("q8_0", kind, &n), 0);
}

static void models_that_groups_cannot_share_are_launched_as_before(void **state)
{
    (void)state;
    static const struct {
        u32 d_model, n_ff_expert, q_lora, n_heads, n_units, n_layers;
    } cases[] = {
        {2048, 1536, 768, 20, 132, 46}, {2048, 768, 768, 20, 132, 46},
        {1792, 1536, 768, 20, 132, 0}, /* the router takes 512 columns at a time */
        {2048, 1280, 768, 20, 132, 0}, /* an expert's outputs are no blocks of 96 */
        {1536, 1536, 512, 18, 128, 46}, {1536, 1536, 512, 18, 120, 0}, /* 128 parts of experts */
        {2048, 1536, 512, 20, 132, 46}, {2048, 1536, 512, 22, 132, 0}, /* 88 columns of all heads */
    };
    for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
        struct synth_shape shape = *synth_find("GLM-4.7-Flash");
        struct list_kind kind = h200;
        struct mla_layers_args a;
        shape.d_model = cases[i].d_model, shape.n_ff_expert = cases[i].n_ff_expert;
        shape.q_lora = cases[i].q_lora, shape.n_heads = cases[i].n_heads;
        kind.caps.n_units = cases[i].n_units;
        launches_of(&shape, "q8_0", kind, &a, sizeof a);
        assert_int_equal(a.n_layers, cases[i].n_layers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_are_alike_are_one_launch),
        cmocka_unit_test(others_are_launched_as_before),
        cmocka_unit_test(layers_with_experts_are_one_launch),
        cmocka_unit_test(others_with_experts_are_launched_as_before),
        cmocka_unit_test(models_that_groups_cannot_share_are_launched_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
