/* Engines, models and sessions through fletch.h. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "opened.h"

#define GOLDEN(name)  "test/golden/models/" name
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static struct fletch_model_info info_of(const struct fletch_model *m)
{
    struct fletch_model_info info;
    fletch_model_info(m, &info);
    return info;
}

/* n tokens that depend on seed only. */
static void some_tokens(int32_t *tokens, size_t n, uint32_t n_vocab, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((seed >> 33) % n_vocab);
    }
}

static void append(struct fletch_session *s, const int32_t *tokens, size_t n, float *logits)
{
    if (fletch_session_append(s, tokens, n, &(struct fletch_append){.all_logits = logits}))
        fail_msg("%s", fletch_session_error(s));
}

/* ---- engines ---- */

static void test_backends_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *isa;
        int rc;
        const char *part; /* of the error, or of the backend's name and why */
    } cases[] = {
        {NULL, NULL, 0, "cpu"},
        {"auto", NULL, 0, "cpu ("},
        {"auto", "generic", 0, "cpu (generic): "},
        {"ref", NULL, 0, "ref: asked for"},
        {"cpu", NULL, 0, "): asked for"},
        {"cpu", "generic", 0, "cpu (generic): asked for"},
        {"cpu", "mmx\n", FLETCH_E_ARG, "instruction set 'mmx\\n'"},
        {"ref", "generic", FLETCH_E_ARG, "backend ref cannot use instruction set 'generic'"},
        {"cuda", NULL, FLETCH_E_BACKEND, "cuda"},
        {"metal", NULL, FLETCH_E_BACKEND, "use --backend cpu"},
        {"emu", NULL, 0, "emu: asked for"},
        {"", NULL, FLETCH_E_ARG, "unknown backend ''"},
        {"REF\n\x1b[31m", NULL, FLETCH_E_ARG,
         "'REF\\n\\x1b[31m' (auto, metal, cuda, cpu, ref or emu)"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct fletch_engine *e;
        int rc = fletch_engine_open(&e, &(struct fletch_engine_params){.backend = cases[i].name,
                                                                       .n_threads = 1,
                                                                       .isa = cases[i].isa});
        assert_int_equal(rc, cases[i].rc);
        if (rc)
            expect_error(rc, cases[i].rc, fletch_engine_error(e), cases[i].part);
        else
            assert_non_null(strstr(fletch_engine_backend(e), cases[i].part));
        fletch_engine_close(e);
    }
    struct fletch_engine *e;
    assert_int_equal(fletch_engine_open(&e, NULL), 0);
    fletch_engine_close(e);
}

static void test_every_code_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int a = 1; a >= -14; a--)
        for (int b = a - 1; b >= -13; b--)
            assert_string_not_equal(fletch_strerror(a), fletch_strerror(b));
    assert_string_equal(fletch_strerror(-1000), "unknown error");
    assert_non_null(strstr(fletch_version(), FLETCH_VERSION));
    fletch_free(NULL);
    fletch_engine_close(NULL);
    fletch_model_close(NULL);
    fletch_session_close(NULL);
}

/* ---- models ---- */

static void write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static void test_bad_models_are_refused_in_one_line(void **state)
{
    (void)state;
    struct fletch_engine *e;
    struct fletch_model *m;
    char dir[] = "/tmp/fletch-api-XXXXXX", path[64];
    size_t n;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(fletch_engine_open(&e, NULL), 0);
    int rc = fletch_model_open(&m, e, "no/such\nfile.gguf", NULL);
    expect_error(rc, FLETCH_E_IO, fletch_engine_error(e), "no/such\\nfile.gguf");
    assert_null(m);
    rc = fletch_model_open(&m, e, dir, NULL);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(e), "has no config.json");
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    char *whole = read_file(GOLDEN("llama-gguf/model.gguf"), &n);
    const struct {
        const void *p;
        size_t n;
        const char *part;
    } files[] = {
        {"", 0, "not a GGUF file"},
        {"just some text that is no model at all", 38, "not a GGUF file"},
        {whole, 3, "not a GGUF file"},
        {whole, 2000, "ends inside"},
        {whole, n - 1, "beyond"},
    };
    for (size_t i = 0; i < LENGTH(files); i++) {
        write_file(path, files[i].p, files[i].n);
        rc = fletch_model_open(&m, e, path, NULL);
        expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(e), files[i].part);
        assert_non_null(strstr(fletch_engine_error(e), "x.gguf"));
        assert_null(m);
    }
    /* the engine lives on */
    write_file(path, whole, n);
    assert_int_equal(fletch_model_open(&m, e, path, NULL), 0);
    fletch_model_close(m);
    free(whole);
    unlink(path);
    rmdir(dir);
    fletch_engine_close(e);
}

static void test_bad_parameters_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct fletch_model_params p;
        int code;
        const char *part;
    } cases[] = {
        {{.kv_type = "q8_0"}, FLETCH_E_ARG, "KV type 'q8_0' is not one of " FLETCH_KV_TYPES},
        {{.kv_type = ""}, FLETCH_E_ARG, "KV type ''"},
        {{.n_ctx = UINT32_MAX}, FLETCH_E_ARG, "context of 4294967295"},
        {{.n_sessions = UINT32_MAX}, FLETCH_E_ARG, "1024 sessions"},
        {{.n_ctx = 1 << 24, .n_sessions = 1024}, FLETCH_E_ARG, "too many"},
        {{.max_rows = 1 << 20}, FLETCH_E_ARG, "1048576 rows per step"},
        {{.max_memory = 1000}, FLETCH_E_FIT, "does not fit: a context of "},
    };
    struct fletch_engine *e;
    assert_int_equal(
        fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "ref", .n_threads = 1}),
        0);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct fletch_model *m;
        int rc = fletch_model_open(&m, e, GOLDEN("llama"), &cases[i].p);
        expect_error(rc, cases[i].code, fletch_engine_error(e), cases[i].part);
        assert_null(m);
    }
    fletch_engine_close(e);
}

static int count_progress(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;
    assert_true(done > *last && done <= total);
    *last = done;
    return 0;
}

static int end_it(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    return done < total;
}

static void test_progress_may_end_the_work(void **state)
{
    (void)state;
    struct fletch_engine *e;
    struct fletch_model *m;
    struct fletch_model_params p = {.progress = end_it};
    char folder[] = "/tmp/fletch-api-test-XXXXXX", path[64];
    assert_int_equal(fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "ref"}), 0);
    int rc = fletch_model_open(&m, e, GOLDEN("llama"), &p);
    expect_error(rc, FLETCH_E_CANCELLED, fletch_engine_error(e), "cancelled");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    assert_int_equal(fletch_convert(e, GOLDEN("llama"), path, "f16", end_it, NULL),
                     FLETCH_E_CANCELLED);
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
    fletch_engine_close(e);
}

static void test_info_and_progress_tell_about_the_model(void **state)
{
    (void)state;
    struct opened o;
    uint64_t done = 0;
    opened_tiny(&o, "ref", &(struct tiny_model){.n_ctx = 300},
                &(struct fletch_model_params){
                    .n_ctx = 40, .progress = count_progress, .progress_ctx = &done});
    struct fletch_model_info info = info_of(o.m);
    assert_string_equal(info.arch, "llama");
    assert_non_null(strstr(info.name, "tiny"));
    assert_true(info.n_ctx == 40 && info.n_ctx_trained == 300 && info.n_vocab == 646);
    assert_true(info.n_embd == 32 && info.n_layers == 2 && info.has_vocab && info.has_template);
    assert_true(info.weight_bytes > 646 * 32 * 2 * 4 && info.weight_bytes == done);
    assert_true(info.sampling.temperature == 0 && info.sampling.top_p == 1);
    opened_close(&o);
    opened_tiny(&o, "ref", &(struct tiny_model){.chat_template = ""}, NULL);
    assert_false(info_of(o.m).has_template);
    assert_int_equal(info_of(o.m).n_ctx, 256);
    opened_close(&o);
    opened_path(&o, "ref", GOLDEN("llama"), NULL);
    assert_false(info_of(o.m).has_vocab || info_of(o.m).has_template);
    opened_close(&o);
}

/* The golden llama with a generation_config.json of our own. */
static void test_sampling_defaults_come_from_the_model(void **state)
{
    (void)state;
    char dir[] = "/tmp/fletch-api-XXXXXX", config[64], weights[64], generation[64], cwd[512];
    char target[640];
    static const char good[] = "{\"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95,"
                               " \"min_p\": 0.05, \"repetition_penalty\": 1.1}";
    static const char bad[] = "{\"temperature\": 1000}";
    assert_non_null(mkdtemp(dir));
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(config, sizeof config, "%s/config.json", dir);
    snprintf(weights, sizeof weights, "%s/model.safetensors", dir);
    snprintf(generation, sizeof generation, "%s/generation_config.json", dir);
    snprintf(target, sizeof target, "%s/" GOLDEN("llama/config.json"), cwd);
    assert_int_equal(symlink(target, config), 0);
    snprintf(target, sizeof target, "%s/" GOLDEN("llama/model.safetensors"), cwd);
    assert_int_equal(symlink(target, weights), 0);
    write_file(generation, good, strlen(good));
    struct opened o;
    opened_path(&o, "ref", dir, NULL);
    struct fletch_sampling s = info_of(o.m).sampling;
    assert_true(s.temperature == 0.6f && s.top_k == 20 && s.top_p == 0.95f);
    assert_true(s.min_p == 0.05f && s.repeat_penalty == 1.1f && s.presence_penalty == 0);
    write_file(generation, bad, strlen(bad));
    struct fletch_model *m;
    int rc = fletch_model_open(&m, o.e, dir, NULL);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(o.e), "temperature must be between");
    opened_close(&o);
    unlink(config);
    unlink(weights);
    unlink(generation);
    rmdir(dir);
}

/* Logits after 40 tokens of a model opened in some way. */
static float *logits_of(struct opened *o)
{
    struct fletch_model_info info = info_of(o->m);
    int32_t tokens[40];
    some_tokens(tokens, LENGTH(tokens), info.n_vocab, 5);
    append(o->s, tokens, LENGTH(tokens), NULL);
    float *copy = malloc(info.n_vocab * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, fletch_session_logits(o->s), info.n_vocab * sizeof *copy);
    return copy;
}

static void expect_same(struct opened *o, const float *expected)
{
    float *got = logits_of(o);
    assert_memory_equal(got, expected, info_of(o->m).n_vocab * sizeof *got);
    free(got);
}

/* Chunks, threads, fusion and an image in memory leave every bit as it is. */
static void expect_same_bits(const char *backend)
{
    static const char path[] = GOLDEN("llama-gguf/model.gguf");
    static const struct fletch_model_params ways[] = {
        {.max_rows = 1}, {.max_rows = 7}, {.max_rows = 512}, {.no_fuse = true}, {.n_sessions = 3}};
    struct opened o;
    opened_path(&o, backend, path, NULL);
    float *expected = logits_of(&o);
    opened_close(&o);
    for (size_t i = 0; i < LENGTH(ways); i++) {
        opened_path(&o, backend, path, &ways[i]);
        expect_same(&o, expected);
        opened_close(&o);
    }
    for (uint32_t n_threads = 0; n_threads < 4; n_threads++) {
        o = (struct opened){0};
        assert_int_equal(
            fletch_engine_open(
                &o.e, &(struct fletch_engine_params){.backend = backend, .n_threads = n_threads}),
            0);
        assert_int_equal(fletch_model_open(&o.m, o.e, path, NULL), 0);
        assert_int_equal(fletch_session_open(&o.s, o.m), 0);
        expect_same(&o, expected);
        opened_close(&o);
    }
    size_t n;
    void *image = read_file(path, &n);
    o = (struct opened){0};
    assert_int_equal(fletch_engine_open(
                         &o.e, &(struct fletch_engine_params){.backend = backend, .n_threads = 1}),
                     0);
    int rc = fletch_model_open_image(&o.m, o.e, image, n / 2, NULL);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(o.e), "beyond");
    assert_int_equal(fletch_model_open_image(&o.m, o.e, image, n, NULL), 0);
    assert_int_equal(fletch_session_open(&o.s, o.m), 0);
    expect_same(&o, expected);
    opened_close(&o);
    free(image);
    free(expected);
}

static void test_ways_of_running_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(opened_backends); i++) expect_same_bits(opened_backends[i]);
}

static void test_a_half_precision_cache_is_near(void **state)
{
    (void)state;
    struct opened o;
    opened_path(&o, "ref", GOLDEN("llama"), NULL);
    float *full = logits_of(&o);
    uint32_t n = info_of(o.m).n_vocab;
    opened_close(&o);
    opened_path(&o, "ref", GOLDEN("llama"), &(struct fletch_model_params){.kv_type = "f16"});
    float *half = logits_of(&o), worst = 0, range = 0;
    opened_close(&o);
    for (uint32_t i = 0; i < n; i++) {
        worst = fmaxf(worst, fabsf(full[i] - half[i]));
        range = fmaxf(range, fabsf(full[i]));
    }
    assert_true(worst > 0 && worst < 0.01f * range);
    free(full);
    free(half);
}

/* ---- sessions ---- */

static void test_sessions_are_limited_and_reusable(void **state)
{
    (void)state;
    struct opened o;
    struct fletch_session *second, *third;
    opened_path(&o, "ref", GOLDEN("llama"),
                &(struct fletch_model_params){.n_sessions = 2, .n_ctx = 64});
    assert_int_equal(fletch_session_open(&second, o.m), 0);
    int rc = fletch_session_open(&third, o.m);
    expect_error(rc, FLETCH_E_LIMIT, fletch_model_error(o.m), "all 2 sessions");
    assert_null(third);
    int32_t tokens[64];
    some_tokens(tokens, 64, 101, 1);
    append(second, tokens, 64, NULL); /* all of its share of the cache */
    fletch_session_close(second);
    assert_int_equal(fletch_session_open(&second, o.m), 0);
    assert_int_equal(fletch_session_length(second), 0);
    assert_null(fletch_session_logits(second));
    append(second, tokens, 64, NULL);
    append(o.s, tokens, 64, NULL);
    assert_memory_equal(fletch_session_logits(o.s), fletch_session_logits(second), 101 * 4);
    fletch_session_close(second);
    opened_close(&o);
}

/* Two timelines fed in turns are each what they are alone; also with recurrent state. */
static void test_sessions_do_not_touch_each_other(void **state)
{
    (void)state;
    static const char *const models[] = {GOLDEN("llama"), GOLDEN("rwkv7"), GOLDEN("glm4_moe_lite")};
    int32_t a[30], b[30];
    some_tokens(a, 30, 101, 2);
    some_tokens(b, 30, 101, 3);
    for (size_t k = 0; k < 2 * LENGTH(models); k++) {
        struct opened o;
        struct fletch_session *t;
        float alone[2][101];
        opened_path(&o, opened_backends[k % 2], models[k / 2],
                    &(struct fletch_model_params){.n_sessions = 2, .n_ctx = 64});
        append(o.s, a, 30, NULL);
        memcpy(alone[0], fletch_session_logits(o.s), sizeof alone[0]);
        fletch_session_reset(o.s);
        assert_int_equal(fletch_session_length(o.s), 0);
        append(o.s, b, 30, NULL);
        memcpy(alone[1], fletch_session_logits(o.s), sizeof alone[1]);
        fletch_session_reset(o.s);
        assert_int_equal(fletch_session_open(&t, o.m), 0);
        for (size_t i = 0; i < 30; i += 5) {
            append(o.s, a + i, 5, NULL);
            append(t, b + i, 5, NULL);
        }
        assert_memory_equal(fletch_session_logits(o.s), alone[0], sizeof alone[0]);
        assert_memory_equal(fletch_session_logits(t), alone[1], sizeof alone[1]);
        assert_memory_not_equal(alone[0], alone[1], sizeof alone[0]);
        fletch_session_close(t);
        opened_close(&o);
    }
}

static void expect_all_logits(const char *backend)
{
    enum { N = 90 }; /* more than the rows a step gives logits for */
    static float all[N][101];
    int32_t tokens[N];
    struct opened o;
    some_tokens(tokens, N, 101, 4);
    opened_path(&o, backend, GOLDEN("llama"), NULL);
    append(o.s, tokens, N, all[0]);
    assert_memory_equal(fletch_session_logits(o.s), all[N - 1], sizeof all[0]);
    fletch_session_reset(o.s);
    for (size_t i = 0; i < N; i++) {
        append(o.s, &tokens[i], 1, NULL);
        assert_memory_equal(fletch_session_logits(o.s), all[i], sizeof all[0]);
    }
    assert_int_equal(fletch_session_length(o.s), N);
    append(o.s, NULL, 0, NULL);
    assert_memory_equal(fletch_session_logits(o.s), all[N - 1], sizeof all[0]);
    opened_close(&o);
}

static void test_all_logits_equal_those_step_by_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(opened_backends); i++) expect_all_logits(opened_backends[i]);
}

static void test_what_does_not_fit_the_context_is_not_appended(void **state)
{
    (void)state;
    struct opened o;
    int32_t tokens[51];
    some_tokens(tokens, 51, 101, 6);
    opened_path(&o, "ref", GOLDEN("llama"), &(struct fletch_model_params){.n_ctx = 50});
    int rc = fletch_session_append(o.s, tokens, 51, NULL);
    expect_error(rc, FLETCH_E_CONTEXT, fletch_session_error(o.s), "51 tokens do not fit");
    expect_error(rc, FLETCH_E_CONTEXT, fletch_session_error(o.s), "0 of 50 tokens of the context");
    assert_int_equal(fletch_session_length(o.s), 0);
    append(o.s, tokens, 40, NULL);
    float before[101];
    memcpy(before, fletch_session_logits(o.s), sizeof before);
    rc = fletch_session_append(o.s, tokens, 11, NULL);
    expect_error(rc, FLETCH_E_CONTEXT, fletch_session_error(o.s), "40 of 50 tokens of the context");
    assert_int_equal(fletch_session_length(o.s), 40);
    assert_memory_equal(fletch_session_logits(o.s), before, sizeof before);
    append(o.s, tokens, 10, NULL);
    opened_close(&o);
}

static void test_tokens_that_are_none_are_refused(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 101, INT32_MAX, INT32_MIN};
    struct opened o;
    opened_path(&o, "ref", GOLDEN("llama"), NULL);
    for (size_t i = 0; i < LENGTH(bad); i++) {
        float out[101];
        int32_t tokens[] = {1, 2, bad[i]};
        int rc = fletch_session_append(o.s, tokens, 3, NULL);
        expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s),
                     "outside the model's vocabulary (0 to 100)");
        rc = fletch_session_embed(o.s, tokens, 3, out);
        expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s),
                     "outside the model's vocabulary (0 to 100)");
    }
    assert_int_equal(fletch_session_length(o.s), 0);
    opened_close(&o);
}

static void expect_mean(const char *backend)
{
    enum { N = 21 };
    int32_t tokens[N];
    float whole[60], chunked[60], one[60], first[60];
    struct opened o;
    some_tokens(tokens, N, 101, 8);
    opened_path(&o, backend, GOLDEN("llama"), NULL);
    assert_int_equal(info_of(o.m).n_embd, 60);
    assert_int_equal(fletch_session_embed(o.s, tokens, N, whole), 0);
    assert_int_equal(fletch_session_length(o.s), N);
    fletch_session_reset(o.s);
    for (size_t i = 0; i < N; i++) { /* of all tokens until then */
        assert_int_equal(fletch_session_embed(o.s, &tokens[i], 1, one), 0);
        if (i == 0) memcpy(first, one, sizeof one);
    }
    for (size_t j = 0; j < 60; j++) {
        assert_true(fabs((double)one[j] - (double)whole[j]) < 1e-5);
        assert_true(isfinite(whole[j]) && whole[j] != first[j]);
    }
    int rc = fletch_session_append(o.s, tokens, 1, NULL);
    assert_int_equal(rc, 0);
    rc = fletch_session_embed(o.s, tokens, 1, one);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s), "not part of the embedding");
    fletch_session_reset(o.s);
    assert_int_equal(fletch_session_append(o.s, tokens, N, NULL), 0); /* as many as were embedded */
    rc = fletch_session_embed(o.s, tokens, 1, one);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s), "not part of the embedding");
    rc = fletch_session_embed(o.s, tokens, 0, one);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s), "nothing to embed");
    opened_close(&o);
    opened_path(&o, backend, GOLDEN("llama"), &(struct fletch_model_params){.max_rows = 4});
    assert_int_equal(fletch_session_embed(o.s, tokens, N, chunked), 0);
    assert_memory_equal(chunked, whole, sizeof whole);
    opened_close(&o);
}

static void test_embeddings_are_the_mean_hidden_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(opened_backends); i++) expect_mean(opened_backends[i]);
}

static void test_sampling_chooses_and_appends_nothing(void **state)
{
    (void)state;
    struct opened o;
    int32_t tokens[5], token, again;
    opened_path(&o, "ref", GOLDEN("llama"), NULL);
    struct fletch_sampling greedy = {.top_p = 1, .repeat_penalty = 1};
    int rc = fletch_session_sample(o.s, &greedy, &token);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s), "the prompt is empty");
    some_tokens(tokens, 5, 101, 9);
    append(o.s, tokens, 5, NULL);
    assert_int_equal(fletch_session_sample(o.s, &greedy, &token), 0);
    const float *logits = fletch_session_logits(o.s);
    for (int i = 0; i < 101; i++) assert_true(logits[i] <= logits[token]);
    assert_int_equal(fletch_session_length(o.s), 5);
    struct fletch_sampling warm = {.top_p = 1, .repeat_penalty = 1, .temperature = 1.5f, .seed = 4};
    assert_int_equal(fletch_session_sample(o.s, &warm, &token), 0);
    assert_int_equal(fletch_session_sample(o.s, &warm, &again), 0);
    assert_int_equal(token, again);
    warm.top_p = 2;
    rc = fletch_session_sample(o.s, &warm, &token);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s), "top_p must be between 0 and 1");
    opened_close(&o);
}

static void *cancel_soon(void *session)
{
    fletch_session_cancel(session);
    return NULL;
}

/* Logits and samples of a prompt that was not fed to its end would be of another prompt. */
static void test_a_broken_off_append_leaves_no_logits(void **state)
{
    (void)state;
    enum { N = 4000 };
    static int32_t tokens[N];
    struct opened o;
    pthread_t thread;
    int32_t token;
    struct fletch_sampling greedy = {.top_p = 1, .repeat_penalty = 1};
    some_tokens(tokens, N, 101, 10);
    opened_path(&o, "ref", GOLDEN("llama"),
                &(struct fletch_model_params){.max_rows = 1, .n_ctx = N});
    append(o.s, tokens, 3, NULL);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, o.s), 0);
    int rc = fletch_session_append(o.s, tokens, N - 3, NULL);
    pthread_join(thread, NULL);
    expect_error(rc, FLETCH_E_CANCELLED, fletch_session_error(o.s), "cancelled");
    assert_in_range(fletch_session_length(o.s), 3, N - 1);
    if (fletch_session_length(o.s) > 3) {
        assert_null(fletch_session_logits(o.s));
        rc = fletch_session_sample(o.s, &greedy, &token);
        expect_error(rc, FLETCH_E_ARG, fletch_session_error(o.s),
                     "the prefill of the prompt is not complete");
    }
    append(o.s, tokens, 2, NULL);
    assert_non_null(fletch_session_logits(o.s));
    fletch_session_cancel(o.s);
    fletch_session_reset(o.s); /* takes a cancel back that met nothing */
    append(o.s, tokens, 2, NULL);
    assert_int_equal(fletch_session_length(o.s), 2);
    opened_close(&o);
}

/* ---- a vocabulary alone ---- */

static void test_a_model_opened_for_text_runs_nothing(void **state)
{
    (void)state;
    static const struct fletch_model_params text = {.text_only = true};
    char *path = tiny_model_path(&(struct tiny_model){0}), *json;
    const struct fletch_verify v = {.tokens = (int32_t[]){1, 2}, .n_prompt = 2, .n_tokens = 1};
    for (size_t i = 0; i < LENGTH(opened_backends); i++) {
        struct opened o = {0};
        struct fletch_batch *b;
        int32_t *ids;
        size_t n;
        const struct fletch_engine_params p = {.backend = opened_backends[i], .n_threads = 1};
        assert_int_equal(fletch_engine_open(&o.e, &p), 0);
        assert_int_equal(fletch_model_open(&o.m, o.e, path, &text), 0);
        assert_int_equal(fletch_tokenize(o.m, "a b", 3, 0, &ids, &n), 0);
        assert_int_equal(n, 2);
        fletch_free(ids);
        assert_false(fletch_is_end(o.m, 0));
        assert_true(info_of(o.m).n_vocab > 500);

        const char *error = fletch_model_error(o.m);
        expect_error(fletch_session_open(&o.s, o.m), FLETCH_E_ARG, error, "text_only");
        assert_null(o.s);
        expect_error(fletch_batch_open(&b, o.m, NULL), FLETCH_E_ARG, error, "text_only");
        assert_null(b);
        error = fletch_engine_error(o.e);
        expect_error(fletch_plan(o.e, path, &text, &json), FLETCH_E_ARG, error, "text_only");
        expect_error(fletch_plan_for(o.e, path, &text, "h100", &json), FLETCH_E_ARG, error,
                     "text_only");
        expect_error(fletch_explain(o.e, path, &text, &json), FLETCH_E_ARG, error, "text_only");
        expect_error(fletch_verify(o.e, path, &text, &v, &json), FLETCH_E_ARG, error, "text_only");
        expect_error(fletch_gates(o.e, path, &text, &v, &json), FLETCH_E_ARG, error, "text_only");
        expect_error(fletch_bench(o.e, path, &text, NULL, &json), FLETCH_E_ARG, error, "text_only");
        expect_error(fletch_tune(o.e, path, &text, NULL, &json), FLETCH_E_ARG, error, "text_only");
        opened_close(&o);
    }
    tiny_model_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends_by_name),
        cmocka_unit_test(test_every_code_has_a_text_of_its_own),
        cmocka_unit_test(test_bad_models_are_refused_in_one_line),
        cmocka_unit_test(test_bad_parameters_are_refused),
        cmocka_unit_test(test_info_and_progress_tell_about_the_model),
        cmocka_unit_test(test_progress_may_end_the_work),
        cmocka_unit_test(test_sampling_defaults_come_from_the_model),
        cmocka_unit_test(test_ways_of_running_give_the_same_bits),
        cmocka_unit_test(test_a_half_precision_cache_is_near),
        cmocka_unit_test(test_sessions_are_limited_and_reusable),
        cmocka_unit_test(test_sessions_do_not_touch_each_other),
        cmocka_unit_test(test_all_logits_equal_those_step_by_step),
        cmocka_unit_test(test_what_does_not_fit_the_context_is_not_appended),
        cmocka_unit_test(test_tokens_that_are_none_are_refused),
        cmocka_unit_test(test_embeddings_are_the_mean_hidden_state),
        cmocka_unit_test(test_sampling_chooses_and_appends_nothing),
        cmocka_unit_test(test_a_broken_off_append_leaves_no_logits),
        cmocka_unit_test(test_a_model_opened_for_text_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
