/* fletch tune on the emulator and on the stand-ins of Metal and CUDA: no layout that it tries
 * changes a bit, what it keeps is used, and a file that it did not make is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/tune.h"

enum { N_TOKENS = 6 };

static char folder[] = "/tmp/fletch-tune-XXXXXX";
static u32 n_notices;
static const i32 prompt[] = {17, 5, 99, 3};

struct run {
    struct fletch_engine *e;
    struct fletch_model *m;
    i32 tokens[N_TOKENS];
};

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    assert_null(strchr(text, '\n'));
    n_notices++;
}

static void open_model(struct run *r, const char *backend, const char *path, const char *dir)
{
    struct fletch_engine_params params = {.backend = backend, .n_threads = 1, .tune_dir = dir};
    struct fletch_model_params with = {.n_ctx = 64, .notice = hear};
    n_notices = 0;
    assert_int_equal(fletch_engine_open(&r->e, &params), 0);
    if (fletch_model_open(&r->m, r->e, path, &with))
        fail_msg("%s: %s", path, fletch_engine_error(r->e));
}

static void close_model(struct run *r)
{
    fletch_model_close(r->m);
    fletch_engine_close(r->e);
}

/* What the model goes on with, most likely first. */
static void say(struct run *r)
{
    struct fletch_session *s;
    struct fletch_model_info info;
    fletch_model_info(r->m, &info);
    struct fletch_sampling greedy = info.sampling;
    greedy.temperature = 0;
    assert_int_equal(fletch_session_open(&s, r->m), 0);
    assert_int_equal(fletch_session_append(s, prompt, ARRAY_LEN(prompt), NULL), 0);
    for (u32 i = 0; i < N_TOKENS; i++) {
        assert_int_equal(fletch_session_sample(s, &greedy, &r->tokens[i]), 0);
        assert_int_equal(fletch_session_append(s, &r->tokens[i], 1, NULL), 0);
    }
    fletch_session_close(s);
}

/* How launches of one row lie in an open model. */
static u32 sites_of(struct run *r, struct gpu_site **sites)
{
    u32 n;
    struct err err;
    struct step *s = r->m->step;
    step_reset(s);
    assert_true(step_add(s, (struct row){1, 0, 0, ROW_D}, true));
    step_prepare(s);
    assert_int_equal(gpu_sites(r->m->x, r->m->queue.handle, s, sites, &n, &err), 0);
    return n;
}

/* Keeps the same layout for all sites of a model. */
static void keep(const char *backend, const char *path, struct layout l)
{
    struct run r;
    struct gpu_site *sites;
    struct gpu_info info;
    struct tuned t;
    struct err err;
    open_model(&r, backend, path, NULL);
    u32 n = sites_of(&r, &sites);
    gpu_device(r.m->x, &info);
    r.e->tune_dir = strdup(folder);
    const struct gpu_driver *d = gpu_driver_of(r.e->class);
    assert_int_equal(tuned_open(&t, r.e, d, info.name, &err), 0);
    for (u32 i = 0; i < n; i++)
        assert_int_equal(layouts_set(&t.layouts, &sites[i].choice.site, &l, &err), 0);
    assert_int_equal(tuned_save(&t, d, info.name, &err), 0);
    layouts_close(&t.layouts);
    free(sites);
    close_model(&r);
}

static void forget(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

struct subject {
    const char *backend, *path;
    u32 batch;
};

static void no_layout_changes_a_bit(void **state)
{
    const struct subject *s = *state;
    struct run usual, tuned;
    struct fletch_engine *e;
    char *text;
    open_model(&usual, s->backend, s->path, folder);
    say(&usual);
    assert_int_equal(fletch_engine_open(&e, &(struct fletch_engine_params){.backend = s->backend,
                                                                           .tune_dir = folder}),
                     0);
    struct fletch_tune how = {.batches = {&s->batch, 1}, .depth = 3, .n_rounds = 1};
    if (fletch_tune(e, s->path, NULL, &how, &text)) fail_msg("%s", fletch_engine_error(e));
    json_t *j = json_loads(text, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(j, "wrong")), 0);
    assert_true(json_integer_value(json_object_get(j, "tried")) > 5);
    json_decref(j);
    fletch_free(text);
    fletch_engine_close(e);
    open_model(&tuned, s->backend, s->path, folder);
    say(&tuned);
    assert_memory_equal(tuned.tokens, usual.tokens, sizeof usual.tokens);
    assert_int_equal(n_notices, 0);
    close_model(&usual);
    close_model(&tuned);
    forget();
}

static const char llama[] = "zoo/tiny/llama.gguf";

/* Half a group for each unit instead of one or two. */
static const struct layout few = {{512, 2, 0}};

static void what_is_kept_is_used(void **state)
{
    struct run r, usual;
    struct gpu_site *sites, *before;
    open_model(&usual, *state, llama, NULL);
    say(&usual);
    keep(*state, llama, few);
    open_model(&r, *state, llama, folder);
    say(&r);
    assert_memory_equal(r.tokens, usual.tokens, sizeof usual.tokens);
    u32 n = sites_of(&r, &sites);
    assert_int_equal(sites_of(&usual, &before), n);
    for (u32 i = 0; i < n; i++) {
        assert_true(layout_possible(&sites[i].choice, &few));
        assert_true(sites[i].groups[0] < before[i].groups[0]);
    }
    assert_true(n > 3);
    free(sites);
    free(before);
    close_model(&r);
    close_model(&usual);
    forget();
}

static void what_is_impossible_is_not_used(void **state)
{
    static const struct layout impossible[] = {
        {{1024, 4, 0}}, {{31, 4, 0}}, {{0, 0, 0}}, {{512, 4, 8}}, {{512, UINT32_MAX, 0}}};
    for (u32 i = 0; i < ARRAY_LEN(impossible); i++) {
        struct run r, usual;
        struct gpu_site *sites, *before;
        keep(*state, llama, impossible[i]);
        open_model(&usual, *state, llama, NULL);
        open_model(&r, *state, llama, folder);
        assert_true(gpu_layouts(r.m->x)->n > 0);
        u32 n = sites_of(&r, &sites);
        assert_int_equal(sites_of(&usual, &before), n);
        assert_memory_equal(sites, before, n * sizeof *sites);
        free(sites);
        free(before);
        close_model(&r);
        close_model(&usual);
    }
    forget();
}

static void a_damaged_file_is_told_of_and_ignored(void **state)
{
    struct run r;
    char path[64];
    keep(*state, llama, few);
    snprintf(path, sizeof path, "%s/layouts-emu-emulator", folder);
    assert_int_equal(truncate(path, 200), 0);
    open_model(&r, *state, llama, folder);
    assert_int_equal(n_notices, 1);
    assert_int_equal(gpu_layouts(r.m->x)->n, 0);
    close_model(&r);
    forget();
}

static void other_backends_have_nothing_to_tune(void **state)
{
    (void)state;
    struct fletch_engine *e;
    char *text;
    assert_int_equal(fletch_engine_open(
                         &e, &(struct fletch_engine_params){.backend = "cpu", .tune_dir = folder}),
                     0);
    assert_int_equal(fletch_tune(e, llama, NULL, &(struct fletch_tune){0}, &text),
                     FLETCH_E_BACKEND);
    assert_non_null(strstr(fletch_engine_error(e), "nothing to tune"));
    fletch_engine_close(e);
}

int main(void)
{
    static const struct subject subjects[] = {{"emu", "zoo/tiny/rwkv7.gguf", 1},
                                              {"emu", "zoo/tiny/qwen3moe.gguf", 1},
                                              {"emu", llama, 2},
                                              {"metal", llama, 1},
                                              {"cuda", llama, 1}};
    u32 n = 0;
    struct CMUnitTest tests[ARRAY_LEN(subjects) + 4] = {
        cmocka_unit_test_prestate(what_is_kept_is_used, "emu"),
        cmocka_unit_test_prestate(what_is_impossible_is_not_used, "emu"),
        cmocka_unit_test_prestate(a_damaged_file_is_told_of_and_ignored, "emu"),
        cmocka_unit_test(other_backends_have_nothing_to_tune),
    };
    for (u32 i = 0; i < ARRAY_LEN(subjects); i++) {
        if (gpu_absent(subjects[i].backend))
            printf("skip %s: %s\n", subjects[i].backend, gpu_absent(subjects[i].backend));
        else
            tests[4 + n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
                no_layout_changes_a_bit, (void *)(uintptr_t)&subjects[i]);
    }
    if (!mkdtemp(folder)) return 1;
    int rc = _cmocka_run_group_tests("tune", tests, 4 + n, NULL, NULL);
    rmdir(folder);
    return rc;
}
