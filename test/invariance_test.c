/* What must not change a result: how rows are fed, what else is in the step, fusing, threads, where
 * cache blocks lie, and how the file stores the same weights. Over every golden model, bit for bit
 * on the reference executor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness.h"
#include "model/convert.h"

enum { N = 64 };

static struct golden g;   /* the model that is looked at now */
static float *base, *got; /* [N][V] its logits, all rows in one step; and another run's */
static size_t n_logits;

static const struct harness_options plain = {.kv = CACHE_F32};

static int open_model(void **state)
{
    struct harness h;
    golden_open(&g, *state);
    n_logits = (size_t)N * g.n_vocab;
    base = calloc(2 * n_logits, sizeof *base); /* room for a second sequence */
    got = calloc(2 * n_logits, sizeof *got);
    harness_open(&h, g.model, plain);
    harness_feed(&h, g.tokens, N, N, base);
    harness_close(&h);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    golden_close(&g);
    free(base);
    free(got);
    return 0;
}

static void assert_same(void)
{
    assert_memory_equal(got, base, n_logits * sizeof *got);
    memset(got, 0, n_logits * sizeof *got);
}

static void chunks_of_any_size(void **state)
{
    (void)state;
    static const u32 chunks[] = {7, 1};
    struct harness h;
    harness_open(&h, g.model, plain);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        harness_feed(&h, g.tokens, N, chunks[i], got); /* over what the run before left behind */
        assert_same();
    }
    harness_close(&h);
}

static void two_sequences_in_one_step(void **state)
{
    (void)state;
    struct harness h;
    struct harness_options two = plain;
    float *mixed = calloc(2 * n_logits, sizeof *mixed);
    i32 other[N];
    for (u32 i = 0; i < N; i++) other[i] = g.tokens[N - 1 - i];
    harness_open(&h, g.model, plain);
    harness_feed(&h, other, N, N, got);
    harness_close(&h);
    two.n_slots = 2;
    harness_open(&h, g.model, two);
    for (u32 i = 0; i < N; i++) {
        harness_row(&h, g.tokens[i], 1, i);
        harness_row(&h, other[i], 0, i);
    }
    harness_run(&h, mixed);
    size_t bytes = g.n_vocab * sizeof *mixed;
    for (u32 i = 0; i < N; i++) {
        assert_memory_equal(mixed + (size_t)(2 * i) * g.n_vocab, base + i * g.n_vocab, bytes);
        assert_memory_equal(mixed + (size_t)(2 * i + 1) * g.n_vocab, got + i * g.n_vocab, bytes);
    }
    harness_close(&h);
    free(mixed);
}

static void threads_and_paging(void **state)
{
    (void)state;
    static const struct harness_options options[] = {
        {.kv = CACHE_F32, .n_threads = 2},
        {.kv = CACHE_F32, .n_threads = 3},
        {.kv = CACHE_F32, .in_order = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        struct harness h;
        harness_open(&h, g.model, options[i]);
        harness_feed(&h, g.tokens, N, 16, got);
        assert_same();
        harness_close(&h);
    }
}

static void an_f16_cache_is_near(void **state)
{
    (void)state;
    struct harness h;
    harness_open(&h, g.model, (struct harness_options){.kv = CACHE_F16});
    harness_feed(&h, g.tokens, N, N, got);
    double error = range_error(got, base, n_logits);
    assert_true(h.m->net->n_kv ? error > 0 && error < 5e-3 : error == 0);
    harness_close(&h);
}

static i32 best(const float *logits)
{
    u32 b = 0;
    for (u32 i = 1; i < g.n_vocab; i++)
        if (logits[i] > logits[b]) b = i;
    return (i32)b;
}

/* Each turn three given tokens at once, then three of the model's own, one by one. */
static void twenty_turns_equal_their_transcript(void **state)
{
    (void)state;
    enum { TURNS = 20, GIVEN = 3, MADE = 3, ALL = TURNS * (GIVEN + MADE) };
    struct harness h;
    i32 tokens[ALL];
    float *turns = calloc(ALL, g.n_vocab * sizeof *turns);
    float *fresh = calloc(ALL, g.n_vocab * sizeof *fresh);
    harness_open(&h, g.model, plain);
    for (u32 at = 0; at < ALL;) {
        u32 n = at % (GIVEN + MADE) == 0 ? GIVEN : 1;
        for (u32 i = at; i < at + n; i++) {
            tokens[i] = n == 1 ? best(turns + (size_t)(i - 1) * g.n_vocab) : g.tokens[i % N];
            harness_row(&h, tokens[i], 0, i);
        }
        harness_run(&h, turns + (size_t)at * g.n_vocab);
        at += n;
    }
    harness_feed(&h, tokens, ALL, ALL, fresh);
    assert_memory_equal(turns, fresh, ALL * g.n_vocab * sizeof *turns);
    harness_close(&h);
    free(turns);
    free(fresh);
}

/* Converts to type in a folder of its own, and runs what came out. */
static void run_converted(const char *type)
{
    char dir[] = "/tmp/fletch-invariance-XXXXXX", path[64];
    struct err err = {0};
    struct harness h;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    if (convert_run(g.model, path, type, 1, NULL, &err)) fail_msg("%s", err.text);
    harness_open(&h, path, plain);
    assert_int_equal(h.m->mtp != NULL,
                     json_object_get(json_object_get(g.doc, "files"), "mtp_logits") != NULL);
    harness_feed(&h, g.tokens, N, N, got);
    harness_close(&h);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void f32_and_f16_files_hold_the_same_model(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f16"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        run_converted(types[i]);
        for (u32 t = 0; t < N; t++)
            assert_int_equal(best(got + t * g.n_vocab), best(base + t * g.n_vocab));
        assert_same();
    }
}

static void quantised_files_run(void **state)
{
    (void)state;
    static const char *const types[] = {"q8_0", "q4_k_m"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        run_converted(types[i]);
        for (size_t j = 0; j < n_logits; j++) assert_true(isfinite(got[j]));
    }
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void **state);
    } what[] = {
        {"chunks of any size", chunks_of_any_size},
        {"two sequences in one step", two_sequences_in_one_step},
        {"fusing, threads and paging", threads_and_paging},
        {"an f16 cache is near", an_f16_cache_is_near},
        {"twenty turns equal their transcript", twenty_turns_equal_their_transcript},
        {"f32 and f16 files hold the same model", f32_and_f16_files_hold_the_same_model},
        {"quantised files run", quantised_files_run},
    };
    enum { WHAT = ARRAY_LEN(what) };
    struct CMUnitTest tests[(GOLDEN_MAX + 1) * WHAT] = {0};
    static char labels[(GOLDEN_MAX + 1) * WHAT][128];
    char **names = golden_list();
    size_t n = 0;
    for (char **name = names; *name; name++)
        for (size_t i = 0; i < WHAT; i++, n++) {
            snprintf(labels[n], sizeof labels[n], "%s: %s", *name, what[i].name);
            tests[n] = (struct CMUnitTest){labels[n], what[i].run, open_model, close_model, *name};
        }
    int failed = _cmocka_run_group_tests("invariance", tests, n, NULL, NULL);
    golden_list_free(names);
    return failed;
}
