/* Every function of fletch.h takes NULL for every pointer: it works, or says FLETCH_E_ARG. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "opened.h"

enum { MAX_NAMES = 128 };

static struct opened o;
static char kept[64]; /* a session file */
static int32_t ids[4] = {5, 6, 7, 8};
static const char *seen[MAX_NAMES];
static size_t n_seen;

static int open_all(void **state)
{
    (void)state;
    struct fletch_model_params params = {.n_ctx = 32, .n_sessions = 2};
    opened_tiny(&o, "cpu", &(struct tiny_model){0}, &params);
    snprintf(kept, sizeof kept, "/tmp/fletch-null-%d", (int)getpid());
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    opened_close(&o);
    unlink(kept);
    return 0;
}

/* Marks a function as tried. */
static void tries(const char *name)
{
    assert_true(n_seen < MAX_NAMES);
    seen[n_seen++] = name;
}

#define REFUSED(call) assert_int_equal(call, FLETCH_E_ARG)
#define WORKS(call)   assert_int_equal(call, 0)
/* With a text that says what was missing. */
#define TELLS(call, error, part) expect_error(call, FLETCH_E_ARG, error, part)

static void engines(void **state)
{
    (void)state;
    struct fletch_engine *e;
    const struct fletch_engine_params nothing = {0};
    tries("strerror"), tries("version"), tries("free");
    fletch_free(NULL);
    tries("engine_open"), tries("engine_close"), tries("engine_error"), tries("engine_backend");
    REFUSED(fletch_engine_open(NULL, &nothing));
    WORKS(fletch_engine_open(&e, NULL));
    fletch_engine_close(e);
    fletch_engine_close(NULL);
    assert_non_null(fletch_engine_error(NULL));
    assert_string_equal(fletch_engine_backend(NULL), "");
}

static void models(void **state)
{
    (void)state;
    struct fletch_model *m;
    struct fletch_engine *failed;
    struct fletch_model_info info;
    const char *error = fletch_engine_error(o.e);
    tries("model_open"), tries("model_open_image"), tries("model_close");
    tries("model_error"), tries("model_info"), tries("model_gpu_memory");
    TELLS(fletch_model_open(NULL, o.e, "x", NULL), error, "model");
    TELLS(fletch_model_open(&m, o.e, NULL, NULL), error, "path of the model is NULL");
    REFUSED(fletch_model_open(&m, NULL, "x", NULL));
    TELLS(fletch_model_open_image(NULL, o.e, "x", 1, NULL), error, "model");
    TELLS(fletch_model_open_image(&m, o.e, NULL, 1, NULL), error, "image");
    REFUSED(fletch_model_open_image(&m, NULL, "x", 1, NULL));
    assert_null(m);
    fletch_model_close(NULL);
    assert_non_null(fletch_model_error(NULL));
    fletch_model_info(NULL, &info);
    assert_string_equal(info.arch, "");
    fletch_model_info(o.m, NULL);
    fletch_model_info(NULL, NULL);
    uint64_t allocated = 1, recommended = 1;
    assert_false(fletch_model_gpu_memory(NULL, &allocated, &recommended));
    assert_true(allocated == 0 && recommended == 0);
    fletch_model_gpu_memory(o.m, NULL, NULL);

    /* an engine that did not open keeps its reason */
    assert_int_not_equal(
        fletch_engine_open(&failed, &(struct fletch_engine_params){.backend = "none"}), 0);
    TELLS(fletch_model_open(&m, failed, "x", NULL), fletch_engine_error(failed), "'none'");
    fletch_engine_close(failed);
}

static void text(void **state)
{
    (void)state;
    int32_t *tokens;
    char *got;
    size_t n;
    const char *error = fletch_model_error(o.m);
    const struct fletch_chat chat = {.messages = "[{\"role\": \"user\", \"content\": \"a\"}]"};
    const struct fletch_chat silent = {0};
    tries("tokenize"), tries("detokenize"), tries("is_end");
    TELLS(fletch_tokenize(o.m, NULL, 3, 0, &tokens, &n), error, "text");
    TELLS(fletch_tokenize(o.m, "a", 1, 0, NULL, &n), error, "result");
    TELLS(fletch_tokenize(o.m, "a", 1, 0, &tokens, NULL), error, "length");
    REFUSED(fletch_tokenize(NULL, "a", 1, 0, &tokens, &n));
    WORKS(fletch_tokenize(o.m, NULL, 0, 0, &tokens, &n));
    fletch_free(tokens);
    TELLS(fletch_detokenize(o.m, NULL, 3, 0, &got, &n), error, "ids");
    TELLS(fletch_detokenize(o.m, ids, 3, 0, NULL, &n), error, "result");
    TELLS(fletch_detokenize(o.m, ids, 3, 0, &got, NULL), error, "length");
    REFUSED(fletch_detokenize(NULL, ids, 3, 0, &got, &n));
    WORKS(fletch_detokenize(o.m, NULL, 0, 0, &got, &n));
    fletch_free(got);
    assert_false(fletch_is_end(NULL, 0));

    tries("rank_tokenize");
    const struct fletch_pair pair = {"a", 1, NULL, 1};
    TELLS(fletch_rank_tokenize(o.m, NULL, &tokens, &n), error, "query");
    TELLS(fletch_rank_tokenize(o.m, &pair, &tokens, &n), error, "document");
    TELLS(fletch_rank_tokenize(o.m, &pair, NULL, &n), error, "result");
    TELLS(fletch_rank_tokenize(o.m, &pair, &tokens, NULL), error, "length");
    REFUSED(fletch_rank_tokenize(NULL, &pair, &tokens, &n));

    tries("chat_reads");
    assert_false(fletch_chat_reads(NULL, "tools"));
    assert_false(fletch_chat_reads(o.m, NULL));
    tries("chat_render"), tries("chat_tokenize");
    TELLS(fletch_chat_render(o.m, NULL, &got, &n), error, "chat");
    TELLS(fletch_chat_render(o.m, &silent, &got, &n), error, "message");
    TELLS(fletch_chat_render(o.m, &chat, NULL, &n), error, "result");
    TELLS(fletch_chat_render(o.m, &chat, &got, NULL), error, "length");
    REFUSED(fletch_chat_render(NULL, &chat, &got, &n));
    TELLS(fletch_chat_tokenize(o.m, NULL, &tokens, &n), error, "chat");
    TELLS(fletch_chat_tokenize(o.m, &chat, NULL, &n), error, "result");
    TELLS(fletch_chat_tokenize(o.m, &chat, &tokens, NULL), error, "length");
    REFUSED(fletch_chat_tokenize(NULL, &chat, &tokens, &n));
}

static void sessions(void **state)
{
    (void)state;
    struct fletch_session *s;
    char *note;
    size_t n;
    float *row = malloc(sizeof(float) << 18);
    const char *error = fletch_session_error(o.s);
    assert_non_null(row);
    tries("session_open"), tries("session_close"), tries("session_error");
    tries("session_length"), tries("session_tokens"), tries("session_reset");
    REFUSED(fletch_session_open(&s, NULL));
    TELLS(fletch_session_open(NULL, o.m), fletch_model_error(o.m), "session");
    fletch_session_close(NULL);
    fletch_session_reset(NULL);
    assert_non_null(fletch_session_error(NULL));
    assert_int_equal(fletch_session_length(NULL), 0);
    assert_null(fletch_session_tokens(NULL));

    tries("session_append"), tries("session_recall"), tries("session_cancel");
    tries("session_logits"), tries("session_embed");
    REFUSED(fletch_session_append(NULL, ids, 3, NULL));
    TELLS(fletch_session_append(o.s, NULL, 3, NULL), error, "tokens");
    WORKS(fletch_session_append(o.s, NULL, 0, NULL));
    WORKS(fletch_session_append(o.s, ids, 3, NULL));
    assert_int_equal(fletch_session_recall(NULL, ids, 3), 0);
    assert_int_equal(fletch_session_recall(o.s, NULL, 3), 0);
    fletch_session_cancel(NULL);
    assert_null(fletch_session_logits(NULL));
    REFUSED(fletch_session_embed(NULL, ids, 3, row));
    TELLS(fletch_session_embed(o.s, NULL, 3, row), error, "tokens");
    TELLS(fletch_session_embed(o.s, ids, 3, NULL), error, "embedding");
    tries("session_rank"), tries("normalise");
    REFUSED(fletch_session_rank(NULL, ids, 3, row));
    TELLS(fletch_session_rank(o.s, ids, 3, NULL), error, "score");
    fletch_normalise(NULL, 3);

    tries("session_save"), tries("session_load");
    REFUSED(fletch_session_save(NULL, kept, "n", 1));
    TELLS(fletch_session_save(o.s, NULL, "n", 1), error, "path");
    TELLS(fletch_session_save(o.s, kept, NULL, 1), error, "note");
    WORKS(fletch_session_save(o.s, kept, NULL, 0));
    WORKS(fletch_session_save(o.s, kept, "note", 4));
    REFUSED(fletch_session_load(NULL, kept, &note, &n));
    TELLS(fletch_session_load(o.s, NULL, &note, &n), error, "path");
    assert_int_equal(fletch_session_length(o.s), 3);
    WORKS(fletch_session_load(o.s, kept, NULL, &n));
    WORKS(fletch_session_load(o.s, kept, NULL, NULL));
    WORKS(fletch_session_load(o.s, kept, &note, NULL));
    assert_string_equal(note, "note");
    fletch_free(note);
    assert_int_equal(fletch_session_length(o.s), 3);
    free(row);
}

static void generation(void **state)
{
    (void)state;
    int32_t token, first;
    struct fletch_model_info info;
    struct fletch_generated done;
    const char *error = fletch_session_error(o.s);
    fletch_model_info(o.m, &info);
    tries("session_sample"), tries("session_generate");
    fletch_session_reset(o.s);
    WORKS(fletch_session_append(o.s, ids, 3, NULL));
    REFUSED(fletch_session_sample(NULL, NULL, &token));
    TELLS(fletch_session_sample(o.s, NULL, NULL), error, "token");
    WORKS(fletch_session_sample(o.s, NULL, &token));
    WORKS(fletch_session_sample(o.s, &info.sampling, &first));
    assert_int_equal(token, first); /* the model's own settings */

    struct fletch_sampling sampling = info.sampling;
    sampling.n_bias = 2;
    TELLS(fletch_session_sample(o.s, &sampling, &token), error, "bias_tokens");
    sampling.bias_tokens = ids;
    TELLS(fletch_session_sample(o.s, &sampling, &token), error, "bias_values");
    struct fletch_generate how = {.max_tokens = 2, .sampling = sampling};
    TELLS(fletch_session_generate(o.s, &how, NULL), error, "bias_values");
    how.sampling = info.sampling;
    how.n_stops = 1;
    TELLS(fletch_session_generate(o.s, &how, &done), error, "stops");
    how.stops = &(const char *){NULL};
    TELLS(fletch_session_generate(o.s, &how, &done), error, "stop");

    REFUSED(fletch_session_generate(NULL, NULL, NULL));
    how.n_stops = 0;
    WORKS(fletch_session_generate(o.s, &how, NULL));
    assert_int_equal(fletch_session_tokens(o.s)[3], first);
    WORKS(fletch_session_generate(o.s, NULL, &done)); /* until the model or the context ends */
    assert_true(done.finish == FLETCH_FINISH_END || done.finish == FLETCH_FINISH_CONTEXT);
    WORKS(fletch_session_generate(o.s, NULL, NULL));
}

static void batches(void **state)
{
    (void)state;
    struct fletch_batch *b;
    struct fletch_batch_stats stats;
    struct fletch_model_info info;
    uint64_t id;
    fletch_model_info(o.m, &info);
    struct fletch_request r = {
        .tokens = ids, .n_tokens = 3, .max_tokens = 2, .sampling = info.sampling};
    tries("batch_open"), tries("batch_close"), tries("batch_error"), tries("batch_submit");
    tries("batch_cancel"), tries("batch_step"), tries("batch_stats");
    REFUSED(fletch_batch_open(&b, NULL, NULL));
    TELLS(fletch_batch_open(NULL, o.m, NULL), fletch_model_error(o.m), "batch");
    WORKS(fletch_batch_open(&b, o.m, NULL));
    const char *error = fletch_batch_error(b);
    tries("batch_wake");
    fletch_batch_wake(NULL);
    fletch_batch_close(NULL);
    assert_non_null(fletch_batch_error(NULL));
    REFUSED(fletch_batch_submit(NULL, &r, &id));
    TELLS(fletch_batch_submit(b, NULL, &id), error, "request");
    r.tokens = NULL;
    TELLS(fletch_batch_submit(b, &r, &id), error, "tokens");
    r.tokens = ids;
    r.n_stops = 1;
    TELLS(fletch_batch_submit(b, &r, &id), error, "stops");
    r.stops = &(const char *){NULL};
    TELLS(fletch_batch_submit(b, &r, &id), error, "stop");
    r.n_stops = 0;
    r.sampling.n_bias = 1;
    TELLS(fletch_batch_submit(b, &r, &id), error, "bias_tokens");
    r.sampling.n_bias = 0;
    WORKS(fletch_batch_submit(b, &r, NULL)); /* nobody is told what comes of it */
    while (fletch_batch_step(b, 0)) {
    }
    REFUSED(fletch_batch_cancel(NULL, 1));
    assert_int_equal(fletch_batch_step(NULL, 0), 0);
    fletch_batch_stats(b, NULL);
    fletch_batch_stats(NULL, &stats);
    assert_int_equal(stats.n_done, 0);
    fletch_batch_stats(b, &stats);
    assert_int_equal(stats.n_done, 1);
    fletch_batch_close(b);
}

/* With text about what was missing, in whatever order things are looked at. */
static void refused(int rc)
{
    TELLS(rc, fletch_engine_error(o.e), "is NULL");
}

static void reports(void **state)
{
    (void)state;
    char *json;
    const struct fletch_verify verify = {.tokens = ids, .n_prompt = 2, .n_tokens = 1};
    const struct fletch_verify no_tokens = {.n_prompt = 2};
    const struct fletch_bench one = {.prompts = {NULL, 3}};
    const struct fletch_bench_kernel nameless = {0};
    const struct fletch_tune tune = {.batches = {NULL, 1}};
    struct fletch_engine *e = o.e;
    tries("inspect"), tries("plan"), tries("plan_for"), tries("explain"), tries("doctor");
    REFUSED(fletch_inspect(NULL, o.path, false, &json));
    refused(fletch_inspect(e, NULL, false, &json));
    refused(fletch_inspect(e, o.path, false, NULL));
    REFUSED(fletch_plan(NULL, o.path, NULL, &json));
    refused(fletch_plan(e, NULL, NULL, &json));
    refused(fletch_plan(e, o.path, NULL, NULL));
    WORKS(fletch_plan(e, o.path, NULL, &json));
    fletch_free(json);
    REFUSED(fletch_plan_for(NULL, o.path, NULL, "h100", &json));
    refused(fletch_plan_for(e, NULL, NULL, "h100", &json));
    refused(fletch_plan_for(e, o.path, NULL, NULL, &json));
    refused(fletch_plan_for(e, o.path, NULL, "h100", NULL));
    REFUSED(fletch_explain(NULL, o.path, NULL, &json));
    refused(fletch_explain(e, NULL, NULL, &json));
    refused(fletch_explain(e, o.path, NULL, NULL));
    WORKS(fletch_explain(e, o.path, NULL, &json));
    fletch_free(json);
    REFUSED(fletch_doctor(NULL, &json));
    refused(fletch_doctor(e, NULL));

    tries("verify"), tries("gates"), tries("bench"), tries("bench_drafts"), tries("bench_kernel"),
        tries("tune");
    REFUSED(fletch_verify(NULL, o.path, NULL, &verify, &json));
    refused(fletch_verify(e, NULL, NULL, &verify, &json));
    refused(fletch_verify(e, o.path, NULL, NULL, &json));
    refused(fletch_verify(e, o.path, NULL, &no_tokens, &json));
    refused(fletch_verify(e, o.path, NULL, &verify, NULL));
    REFUSED(fletch_gates(NULL, o.path, NULL, &verify, &json));
    refused(fletch_gates(e, NULL, NULL, &verify, &json));
    refused(fletch_gates(e, o.path, NULL, NULL, &json));
    refused(fletch_gates(e, o.path, NULL, &no_tokens, &json));
    refused(fletch_gates(e, o.path, NULL, &verify, NULL));
    REFUSED(fletch_bench(NULL, o.path, NULL, NULL, &json));
    refused(fletch_bench(e, NULL, NULL, NULL, &json));
    refused(fletch_bench(e, o.path, NULL, &one, &json));
    refused(fletch_bench(e, o.path, NULL, NULL, NULL));
    REFUSED(fletch_bench_drafts(NULL, o.path, NULL, NULL, &json));
    refused(fletch_bench_drafts(e, NULL, NULL, NULL, &json));
    refused(fletch_bench_drafts(e, o.path, NULL, NULL, NULL));
    REFUSED(fletch_bench_kernel(NULL, &nameless, &json));
    refused(fletch_bench_kernel(e, NULL, &json));
    refused(fletch_bench_kernel(e, &nameless, &json));
    refused(fletch_bench_kernel(e, &nameless, NULL));
    REFUSED(fletch_tune(NULL, o.path, NULL, NULL, &json));
    refused(fletch_tune(e, NULL, NULL, NULL, &json));
    refused(fletch_tune(e, o.path, NULL, &tune, &json));
    refused(fletch_tune(e, o.path, NULL, NULL, NULL));
}

static void files(void **state)
{
    (void)state;
    char *json;
    const struct fletch_synth shapeless = {.type = "q8_0"}, typeless = {.shape = "Llama-3.2-1B"};
    tries("convert"), tries("synth"), tries("synth_shapes");
    REFUSED(fletch_convert(NULL, o.path, kept, "f32", NULL, NULL));
    refused(fletch_convert(o.e, NULL, kept, "f32", NULL, NULL));
    refused(fletch_convert(o.e, o.path, NULL, "f32", NULL, NULL));
    refused(fletch_convert(o.e, o.path, kept, NULL, NULL, NULL));
    WORKS(fletch_convert(o.e, o.path, kept, "f32", NULL, NULL));
    tries("convert_with");
    REFUSED(fletch_convert_with(NULL, o.path, kept, "f32", NULL));
    refused(fletch_convert_with(o.e, NULL, kept, "f32", NULL));
    refused(fletch_convert_with(o.e, o.path, NULL, "f32", NULL));
    refused(fletch_convert_with(o.e, o.path, kept, NULL, NULL));
    WORKS(fletch_convert_with(o.e, o.path, kept, "f32", NULL));
    REFUSED(fletch_synth(NULL, kept, &typeless, NULL, NULL));
    refused(fletch_synth(o.e, NULL, &typeless, NULL, NULL));
    refused(fletch_synth(o.e, kept, NULL, NULL, NULL));
    refused(fletch_synth(o.e, kept, &shapeless, NULL, NULL));
    refused(fletch_synth(o.e, kept, &typeless, NULL, NULL));
    REFUSED(fletch_synth_shapes(NULL, &json));
    refused(fletch_synth_shapes(o.e, NULL));

    tries("prefix_files");
    REFUSED(fletch_prefix_files(NULL, ".", false, NULL, NULL));
    refused(fletch_prefix_files(o.e, NULL, false, NULL, NULL));
    WORKS(fletch_prefix_files(o.e, ".", false, NULL, NULL));
}

static bool was_seen(const char *name, size_t n)
{
    for (size_t i = 0; i < n_seen; i++)
        if (strlen(seen[i]) == n && memcmp(seen[i], name, n) == 0) return true;
    return false;
}

/* The last test: nothing that the header declares was left out. */
static void every_function_was_tried(void **state)
{
    (void)state;
    static char header[1 << 17];
    FILE *f = fopen("include/fletch.h", "r");
    assert_non_null(f);
    header[fread(header, 1, sizeof header - 1, f)] = 0;
    fclose(f);
    size_t n_declared = 0;
    for (char *at = header; (at = strstr(at, "\nFLETCH_API ")); at++) {
        char *name = strstr(at, "fletch_"), *bracket = strchr(at, '(');
        for (char *next; (next = strstr(name + 1, "fletch_")) && next < bracket;) name = next;
        name += strlen("fletch_");
        n_declared++;
        if (!was_seen(name, (size_t)(bracket - name)))
            fail_msg("%.*s was not tried", (int)(bracket - name), name);
    }
    assert_int_equal(n_declared, n_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines),
        cmocka_unit_test(models),
        cmocka_unit_test(text),
        cmocka_unit_test(sessions),
        cmocka_unit_test(generation),
        cmocka_unit_test(batches),
        cmocka_unit_test(reports),
        cmocka_unit_test(files),
        cmocka_unit_test(every_function_was_tried),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
