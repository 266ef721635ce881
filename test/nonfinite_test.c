/* Weights that are NaN, infinite or too large, in each kind of tensor of every family, on every
 * executor: a step ends, writes nothing beyond its buffers (the sanitizer builds and the checked
 * kernels see to that), and gives tokens only where the logits are numbers. With the argument `all`
 * every tensor meets every executor; without it each meets the reference and some others in turn.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "gpu/gpu.h"
#include "retyped.h"

enum { N_PROMPT = 6, N_TOKENS = 2, MAX_ENGINES = 16 };

static const i32 prompt[N_PROMPT] = {0, 5, 17, 3, 42, 8};
static bool all; /* the argument */

/* ---- executors ---- */

struct engines {
    struct fletch_engine *ref, *e[MAX_ENGINES];
    const char *name[MAX_ENGINES];
    u32 n, turn;
};

static bool open_engine(struct fletch_engine **e, const char *backend, const char *isa)
{
    const struct fletch_engine_params params = {.backend = backend, .n_threads = 1, .isa = isa};
    if (fletch_engine_open(e, &params) == 0) return true;
    fletch_engine_close(*e);
    return false;
}

static int open_engines(void **state)
{
    static const char *const isas[] = {"amx",  "avx512bf16", "avx512", "avxvnni", "avx2",
                                       "i8mm", "dotprod",    "neon",   "generic"};
    struct engines *e = calloc(1, sizeof *e);
    assert_non_null(e);
    assert_true(open_engine(&e->ref, "ref", NULL));
    for (u32 i = 0; i < ARRAY_LEN(isas); i++)
        if (open_engine(&e->e[e->n], "cpu", isas[i])) e->name[e->n++] = isas[i];
    if (all && open_engine(&e->e[e->n], "emu", NULL)) e->name[e->n++] = "emu";
    assert_true(open_engine(&e->e[e->n], "emu", NULL));
    e->e[e->n]->class = gpu_class("emu_checked");
    assert_non_null(e->e[e->n]->class);
    e->name[e->n++] = "emu_checked";
    *state = e;
    return 0;
}

static int close_engines(void **state)
{
    struct engines *e = *state;
    for (u32 i = 0; i < e->n; i++) fletch_engine_close(e->e[i]);
    fletch_engine_close(e->ref);
    free(e);
    return 0;
}

/* ---- a model that is bad somewhere ---- */

struct verdict {
    int rc; /* of opening, then of generating */
    u32 n_tokens;
};

struct told {
    u32 n, n_vocab;
};

static int hear(void *ctx, i32 token, const char *text, size_t n)
{
    struct told *t = ctx;
    (void)text;
    (void)n;
    if (token < 0) return 0;
    assert_in_range(token, 0, t->n_vocab - 1);
    t->n++;
    return 0;
}

static void expect_line(const char *text, const char *part)
{
    if (!*text || strchr(text, '\n') || !strstr(text, part)) fail_msg("error text '%s'", text);
}

static bool all_finite(const float *z, u32 n)
{
    for (u32 i = 0; i < n; i++)
        if (!isfinite(z[i])) return false;
    return true;
}

static struct verdict run_session(struct fletch_model *m)
{
    struct verdict v = {0};
    struct fletch_session *s;
    struct fletch_generated r;
    struct fletch_model_info info;
    fletch_model_info(m, &info);
    struct told told = {.n_vocab = info.n_vocab};
    const struct fletch_generate g = {.max_tokens = N_TOKENS,
                                      .sampling = {.top_p = 1, .repeat_penalty = 1},
                                      .ignore_end = true,
                                      .on_text = hear,
                                      .ctx = &told};
    assert_int_equal(fletch_session_open(&s, m), 0);
    assert_int_equal(fletch_session_append(s, prompt, N_PROMPT, NULL), 0);
    bool finite = all_finite(fletch_session_logits(s), info.n_vocab);
    i32 token = -7;
    int rc = fletch_session_sample(s, &g.sampling, &token);
    assert_int_equal(rc, finite ? 0 : FLETCH_E_FORMAT);
    assert_true(finite ? token >= 0 && (u32)token < info.n_vocab : token == -7);
    v.rc = fletch_session_generate(s, &g, &r);
    v.n_tokens = r.n_tokens;
    assert_int_equal(told.n, r.n_tokens);
    if (v.rc) {
        assert_int_equal(v.rc, FLETCH_E_FORMAT);
        expect_line(fletch_session_error(s), "NaN");
        assert_true(r.n_tokens < N_TOKENS && (finite || r.n_tokens == 0));
    } else {
        assert_true(finite && r.n_tokens == N_TOKENS);
    }
    fletch_session_close(s);
    return v;
}

static struct verdict run_model(struct fletch_engine *e, const struct retyped *o)
{
    const struct fletch_model_params params = {
        .n_ctx = 64, .max_rows = N_PROMPT, .max_memory = 256 << 20}; /* no room to spare */
    struct verdict v = {0};
    struct fletch_model *m;
    v.rc = fletch_model_open_image(&m, e, o->image, o->n, &params);
    if (v.rc) {
        expect_line(fletch_engine_error(e), "");
        return v;
    }
    v = run_session(m);
    fletch_model_close(m);
    return v;
}

/* The first value of a tensor, or the first scale of one in blocks. */
static void plant(const struct retyped *o, const struct tensor *t, float bad)
{
    u8 *at = o->image + (t->data - o->image);
    u16 half = t->type == QT_BF16 ? bf16_from_float(bad) : half_from_float(bad);
    if (t->type == QT_F32)
        memcpy(at, &bad, sizeof bad);
    else
        memcpy(at, &half, sizeof half);
}

/* False when it was not tried, or the executor has no kernels for widths like the model's. */
static bool expect_same(const struct retyped *o, struct engines *e, u32 i, struct verdict want,
                        const char *model, struct str name, float bad)
{
    bool slow = e->e[i]->class->look; /* the emulator */
    if (slow && !all && (!isnan(bad) || e->turn / e->n % 2)) return false;
    struct verdict got = run_model(e->e[i], o);
    if (got.rc == FLETCH_E_UNSUPPORTED && want.rc != got.rc) return false;
    /* what is too large for f32 sums may fit those of the reference */
    if (isnan(bad) && (got.rc != want.rc || got.n_tokens != want.n_tokens))
        fail_msg("%s of %s is NaN: %s gives %d after %u tokens, the reference %d after %u", name.p,
                 model, e->name[i], got.rc, got.n_tokens, want.rc, want.n_tokens);
    return true;
}

static enum qtype as_it_is(const void *ctx, const struct tensor *t)
{
    (void)ctx;
    return t->type;
}

static void spoil_each(struct engines *e, const char *path, u32 *n_failed, u32 *n_runs)
{
    static const float values[] = {NAN, INFINITY, 3e38f};
    struct retyped o;
    retyped_open(&o, path, as_it_is, NULL);
    for (u32 i = 0; i < o.s->n_tensors; i++) {
        const struct tensor *t = &o.s->tensors[i];
        u8 before[4];
        if (!retyped_is_first_of_kind(o.s, i)) continue;
        memcpy(before, t->data, sizeof before);
        for (u32 k = 0; k < ARRAY_LEN(values); k++) {
            if (!all && k == 1 + i % 2) continue;
            plant(&o, t, values[k]);
            struct verdict want = run_model(e->ref, &o);
            *n_failed += want.rc != 0;
            ++*n_runs;
            for (u32 j = 0, n = 0; j < e->n && n < (all ? e->n : 1); j++)
                n += expect_same(&o, e, e->turn++ % e->n, want, path, t->name, values[k]);
        }
        memcpy(o.image + (t->data - o.image), before, sizeof before);
    }
    retyped_close(&o);
}

/* Floats, then blocks: those meet other kernels, and activations that are rounded to int8. */
static void bad_weights_end_a_request_and_nothing_else(void **state)
{
    static const char *const models[] = {
        "test/golden/models/llama-untied",
        "test/golden/models/mistral",
        "test/golden/models/qwen2",
        "test/golden/models/qwen3",
        "test/golden/models/qwen3_moe",
        "test/golden/models/glm4_moe_lite",
        "test/golden/models/gpt_oss-mxfp4",
        "test/golden/models/gemma2",
        "test/golden/models/rwkv7",
        "test/golden/models/arwkv7-gate/model.gguf",
        "zoo/tiny/llama.gguf",
        "zoo/tiny/qwen3moe.gguf",
        "zoo/tiny/deepseek2.gguf",
        "zoo/tiny/rwkv7.gguf",
    };
    u32 n_failed = 0, n_runs = 0;
    for (u32 i = 0; i < ARRAY_LEN(models); i++) spoil_each(*state, models[i], &n_failed, &n_runs);
    print_message("%u of %u models failed\n", n_failed, n_runs);
    assert_true(n_runs > 400 && n_failed > n_runs / 3 && n_failed < n_runs);
}

/* ---- one of several requests ---- */

struct answer {
    struct told told;
    i32 ids[N_TOKENS];
    int code;
    bool done;
};

static int on_token(void *ctx, const struct fletch_token *t)
{
    struct answer *a = ctx;
    assert_true(a->told.n < N_TOKENS);
    a->ids[a->told.n++] = t->id;
    return 0;
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct answer *a = ctx;
    a->code = r->code;
    a->done = true;
    if (r->code) expect_line(r->error, "NaN");
}

/* Three requests at once, of which the middle one holds token 7. False when the executor has no
 * kernels for widths like the model's. */
static bool run_batch(struct fletch_engine *e, const struct retyped *o, struct answer out[3])
{
    const struct fletch_model_params params = {.n_ctx = 64, .n_sessions = 3};
    struct fletch_model *m;
    struct fletch_batch *b;
    memset(out, 0, 3 * sizeof *out);
    int rc = fletch_model_open_image(&m, e, o->image, o->n, &params);
    if (rc == FLETCH_E_UNSUPPORTED && e->class->look) return false;
    if (rc) fail_msg("%s", fletch_engine_error(e));
    assert_int_equal(fletch_batch_open(&b, m, NULL), 0);
    for (u32 i = 0; i < 3; i++) {
        i32 ids[N_PROMPT];
        u64 id;
        memcpy(ids, prompt, sizeof ids);
        ids[1] += (i32)i * 10;
        if (i == 1) ids[3] = 7;
        const struct fletch_request r = {.tokens = ids,
                                         .n_tokens = N_PROMPT,
                                         .max_tokens = N_TOKENS,
                                         .sampling = {.top_p = 1, .repeat_penalty = 1},
                                         .ignore_end = true,
                                         .on_token = on_token,
                                         .on_done = on_done,
                                         .ctx = &out[i]};
        assert_int_equal(fletch_batch_submit(b, &r, &id), 0);
    }
    while (fletch_batch_step(b, 0) > 0) continue;
    fletch_batch_close(b);
    fletch_model_close(m);
    return true;
}

static const struct tensor *embedding(const struct retyped *o)
{
    const struct tensor *t = source_tensor(o->s, "token_embd.weight");
    assert_true(t && source_tensor(o->s, "output.weight")); /* else logits are bad for all */
    return t;
}

static void a_bad_request_leaves_others_alone(void **state)
{
    static const char *const models[] = {"test/golden/models/llama-untied",
                                         "test/golden/models/qwen3_moe", "zoo/tiny/rwkv7.gguf",
                                         "zoo/tiny/deepseek2.gguf"};
    struct engines *e = *state;
    u32 n_runs = 0;
    for (u32 k = 0; k < ARRAY_LEN(models) * e->n; k++) {
        u32 at = k / ARRAY_LEN(models);
        struct fletch_engine *x = e->e[at];
        struct answer want[3], got[3];
        struct retyped o;
        const u32 nan = 0x7fc07fc0; /* in f32, f16, bf16 and the scale of a block */
        if (!all && k % 3 && !x->class->look) continue;
        retyped_open(&o, models[k % ARRAY_LEN(models)], as_it_is, NULL);
        const struct tensor *t = embedding(&o);
        if (!run_batch(x, &o, want)) {
            retyped_close(&o);
            continue;
        }
        memcpy(o.image + (t->data - o.image) + t->n_bytes / t->ne[1] * 7, &nan, sizeof nan);
        assert_true(run_batch(x, &o, got));
        n_runs++;
        for (u32 i = 0; i < 3; i++) {
            assert_true(got[i].done && want[i].done && want[i].code == 0);
            assert_int_equal(got[i].code, i == 1 ? FLETCH_E_FORMAT : 0);
            assert_int_equal(got[i].told.n, i == 1 ? 0 : N_TOKENS);
            if (i != 1) assert_memory_equal(got[i].ids, want[i].ids, sizeof want[i].ids);
        }
        retyped_close(&o);
    }
    assert_true(n_runs >= 5);
}

/* An embedding is a mean of hidden states, which nobody samples from. */
static void an_embedding_of_bad_values_is_an_error(void **state)
{
    struct engines *e = *state;
    struct retyped o;
    struct fletch_model *m;
    struct fletch_session *s;
    float mean[64];
    const i32 good[2] = {1, 2}, bad[2] = {1, 7};
    const u32 nan = 0x7fc07fc0;
    retyped_open(&o, "test/golden/models/llama-untied", as_it_is, NULL);
    const struct tensor *t = embedding(&o);
    assert_true(t->ne[0] <= ARRAY_LEN(mean));
    memcpy(o.image + (t->data - o.image) + t->n_bytes / t->ne[1] * 7, &nan, sizeof nan);
    assert_int_equal(fletch_model_open_image(&m, e->ref, o.image, o.n, NULL), 0);
    assert_int_equal(fletch_session_open(&s, m), 0);
    assert_int_equal(fletch_session_embed(s, good, 2, mean), 0);
    fletch_session_reset(s);
    assert_int_equal(fletch_session_embed(s, bad, 2, mean), FLETCH_E_FORMAT);
    expect_line(fletch_session_error(s), "NaN");
    fletch_session_close(s);
    fletch_model_close(m);
    retyped_close(&o);
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_weights_end_a_request_and_nothing_else),
        cmocka_unit_test(a_bad_request_leaves_others_alone),
        cmocka_unit_test(an_embedding_of_bad_values_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_engines, close_engines);
}
