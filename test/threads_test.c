/* Sessions and batches of one model in several threads: each gives what it gives alone. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opened.h"

enum { N_PROMPT = 9, N_TOKENS = 7, N_ROUNDS = 2, N_REQUESTS = 3 };

static const struct {
    const char *backend, *model;
    bool ngram;
    enum fletch_ahead ahead;
} kinds[] = {
    {"cpu", "test/golden/models/llama-gguf/model.gguf", false, FLETCH_AHEAD_ALWAYS},
    {"cpu", "test/golden/models/llama-gguf/model.gguf", true, FLETCH_AHEAD_AUTO},
    {"cpu", "test/golden/models/rwkv7", true, FLETCH_AHEAD_AUTO},
    {"ref", "test/golden/models/llama-gguf/model.gguf", false, FLETCH_AHEAD_ALWAYS},
    {"emu", "zoo/tiny/llama.gguf", false, FLETCH_AHEAD_AUTO},
};

static struct fletch_model *model;
static uint32_t n_vocab;

struct answer {
    int32_t tokens[N_TOKENS];
    float *logits; /* [n_vocab] after the last one */
};

struct job {
    int32_t prompt[N_PROMPT];
    struct answer alone;
    const char *wrong; /* NULL: nothing */
};

static int on_text(void *ctx, int32_t token, const char *text, size_t n)
{
    (void)ctx, (void)token, (void)text, (void)n;
    sched_yield(); /* others come in here */
    return 0;
}

/* A whole life of a session; gives what failed. */
static const char *run(const struct job *j, struct answer *a)
{
    struct fletch_session *s;
    struct fletch_model_info info;
    const char *wrong = NULL;
    fletch_model_info(model, &info);
    struct fletch_generate how = {
        .max_tokens = N_TOKENS, .sampling = info.sampling, .ignore_end = true, .on_text = on_text};
    how.sampling.temperature = 0.7f;
    if (fletch_session_open(&s, model)) return "open";
    if (fletch_session_append(s, j->prompt, N_PROMPT, NULL)) wrong = "append";
    if (!wrong && fletch_session_generate(s, &how, NULL)) wrong = "generate";
    const float *logits = wrong ? NULL : fletch_session_logits(s);
    if (logits) {
        memcpy(a->tokens, fletch_session_tokens(s) + N_PROMPT, sizeof a->tokens);
        memcpy(a->logits, logits, n_vocab * sizeof *logits);
    } else if (!wrong) {
        wrong = "logits";
    }
    fletch_session_close(s);
    return wrong;
}

static void *run_rounds(void *ctx)
{
    struct job *j = ctx;
    struct answer a = {.logits = malloc(n_vocab * sizeof(float))};
    for (int i = 0; i < N_ROUNDS && !j->wrong; i++) {
        j->wrong = a.logits ? run(j, &a) : "memory";
        if (j->wrong) break;
        if (memcmp(a.tokens, j->alone.tokens, sizeof a.tokens) != 0) j->wrong = "other tokens";
        if (memcmp(a.logits, j->alone.logits, n_vocab * sizeof(float)) != 0)
            j->wrong = "other logits";
    }
    free(a.logits);
    return NULL;
}

/* ---- a batch beside them ---- */

struct asked {
    const struct job *j;
    int32_t tokens[N_TOKENS];
    size_t n;
    int code;
};

static int on_token(void *ctx, const struct fletch_token *token)
{
    struct asked *a = ctx;
    if (token->id >= 0 && a->n < N_TOKENS) a->tokens[a->n++] = token->id;
    return 0;
}

static void on_done(void *ctx, const struct fletch_result *result)
{
    ((struct asked *)ctx)->code = result->code;
}

struct batch_job {
    struct job *jobs;
    const char *wrong;
};

static void *run_batch(void *ctx)
{
    struct batch_job *bj = ctx;
    struct fletch_batch *b;
    struct fletch_batch_stats stats;
    struct fletch_model_info info;
    struct asked asked[N_REQUESTS];
    fletch_model_info(model, &info);
    if (fletch_batch_open(&b, model, NULL)) {
        bj->wrong = "batch_open";
        return NULL;
    }
    for (size_t i = 0; i < N_REQUESTS; i++) {
        asked[i] = (struct asked){.j = &bj->jobs[i % 2]};
        struct fletch_request r = {.tokens = asked[i].j->prompt,
                                   .n_tokens = N_PROMPT,
                                   .max_tokens = N_TOKENS,
                                   .sampling = info.sampling,
                                   .ignore_end = true,
                                   .on_token = on_token,
                                   .on_done = on_done,
                                   .ctx = &asked[i]};
        r.sampling.temperature = 0.7f;
        if (fletch_batch_submit(b, &r, NULL)) bj->wrong = "submit";
    }
    while (fletch_batch_step(b, 0.01)) fletch_batch_stats(b, &stats);
    fletch_batch_close(b);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        if (asked[i].code || asked[i].n != N_TOKENS)
            bj->wrong = "a request failed";
        else if (memcmp(asked[i].tokens, asked[i].j->alone.tokens, sizeof asked[i].tokens) != 0)
            bj->wrong = "a request got other tokens";
    }
    return NULL;
}

static void try_kind(const char *backend, const char *path, bool ngram, enum fletch_ahead ahead)
{
    struct opened o;
    struct fletch_model_info info;
    struct job jobs[2] = {0};
    struct batch_job beside = {jobs, NULL};
    pthread_t threads[3];
    opened_path(&o, backend, path,
                &(struct fletch_model_params){.n_ctx = 64,
                                              .n_sessions = 8,
                                              /* one more than are used at once */ .ahead = ahead,
                                              .speculation = {.ngram = ngram}});
    model = o.m;
    fletch_model_info(model, &info);
    n_vocab = info.n_vocab;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N_PROMPT; i++) jobs[k].prompt[i] = 3 + (i * (5 + k)) % 7;
        jobs[k].alone.logits = malloc(n_vocab * sizeof(float));
        assert_non_null(jobs[k].alone.logits);
        assert_null(run(&jobs[k], &jobs[k].alone));
    }
    assert_memory_not_equal(jobs[0].alone.logits, jobs[1].alone.logits, n_vocab * sizeof(float));
    for (int k = 0; k < 2; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, run_rounds, &jobs[k]), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, run_batch, &beside), 0);
    for (int k = 0; k < 3; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < 2; k++) {
        if (jobs[k].wrong) fail_msg("%s %s: session %d: %s", backend, path, k, jobs[k].wrong);
        free(jobs[k].alone.logits);
    }
    if (beside.wrong) fail_msg("%s %s: %s", backend, path, beside.wrong);
    opened_close(&o);
}

static void two_sessions_and_a_batch_take_turns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        try_kind(kinds[i].backend, kinds[i].model, kinds[i].ngram, kinds[i].ahead);
}

/* ---- a callback that uses the model itself ---- */

struct nested {
    struct job *j;
    struct answer *a;
    const char *wrong;
    int n;
};

/* Ends the answer after another session's steps have overwritten what the last one left. */
static int use_the_model_and_stop(void *ctx, int32_t token, const char *text, size_t n)
{
    struct nested *u = ctx;
    (void)token, (void)text, (void)n;
    if (++u->n < 4) return 0;
    if (u->j) u->wrong = run(u->j, u->a);
    return 1;
}

static int use_the_model(void *ctx, int32_t token, const char *text, size_t n)
{
    struct nested *u = ctx;
    (void)token, (void)text, (void)n;
    if (u->n++ % 4 == 0 && !u->wrong) u->wrong = run(u->j, u->a);
    return 0;
}

static void nest(enum fletch_ahead ahead)
{
    struct opened o;
    struct fletch_model_info info;
    struct job jobs[2] = {0};
    struct answer inner;
    opened_path(&o, "cpu", "test/golden/models/llama-gguf/model.gguf",
                &(struct fletch_model_params){.n_ctx = 64, .n_sessions = 2, .ahead = ahead});
    model = o.m;
    fletch_session_close(o.s);
    o.s = NULL;
    fletch_model_info(model, &info);
    n_vocab = info.n_vocab;
    inner.logits = malloc(n_vocab * sizeof(float));
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N_PROMPT; i++) jobs[k].prompt[i] = 3 + (i * (5 + k)) % 7;
        jobs[k].alone.logits = malloc(n_vocab * sizeof(float));
        assert_true(inner.logits && jobs[k].alone.logits);
        assert_null(run(&jobs[k], &jobs[k].alone));
    }
    struct nested u = {&jobs[1], &inner, NULL, 0};
    struct fletch_generate how = {.max_tokens = N_TOKENS,
                                  .sampling = info.sampling,
                                  .ignore_end = true,
                                  .on_text = use_the_model,
                                  .ctx = &u};
    how.sampling.temperature = 0.7f;
    for (int n_stop = 1; n_stop <= N_TOKENS;
         n_stop += N_TOKENS - 1) { /* ended by length, anywhere */
        struct fletch_session *s;
        how.max_tokens = (uint32_t)n_stop;
        assert_int_equal(fletch_session_open(&s, model), 0);
        assert_int_equal(fletch_session_append(s, jobs[0].prompt, N_PROMPT, NULL), 0);
        assert_int_equal(fletch_session_generate(s, &how, NULL), 0);
        assert_null(u.wrong);
        assert_memory_equal(fletch_session_tokens(s) + N_PROMPT, jobs[0].alone.tokens,
                            (size_t)n_stop * sizeof(int32_t));
        assert_memory_equal(inner.tokens, jobs[1].alone.tokens, sizeof inner.tokens);
        const float *logits = fletch_session_logits(s);
        assert_non_null(logits);
        if (n_stop == N_TOKENS)
            assert_memory_equal(logits, jobs[0].alone.logits, n_vocab * sizeof(float));
        fletch_session_close(s);
    }
    /* the logits after three tokens are those of a session that was left alone */
    float *logits[2];
    how.max_tokens = N_TOKENS;
    how.on_text = use_the_model_and_stop;
    for (int k = 0; k < 2; k++) {
        struct fletch_session *s;
        u = (struct nested){k ? &jobs[1] : NULL, &inner, NULL, 0};
        assert_int_equal(fletch_session_open(&s, model), 0);
        assert_int_equal(fletch_session_append(s, jobs[0].prompt, N_PROMPT, NULL), 0);
        assert_int_equal(fletch_session_generate(s, &how, NULL), 0);
        assert_null(u.wrong);
        assert_int_equal(fletch_session_length(s), N_PROMPT + 3);
        assert_non_null(fletch_session_logits(s));
        assert_non_null(logits[k] = malloc(n_vocab * sizeof(float)));
        memcpy(logits[k], fletch_session_logits(s), n_vocab * sizeof(float));
        fletch_session_close(s);
    }
    assert_memory_equal(logits[0], logits[1], n_vocab * sizeof(float));
    free(logits[0]);
    free(logits[1]);
    for (int k = 0; k < 2; k++) free(jobs[k].alone.logits);
    free(inner.logits);
    opened_close(&o);
}

static void a_callback_may_use_another_session(void **state)
{
    (void)state;
    nest(FLETCH_AHEAD_ALWAYS);
    nest(FLETCH_AHEAD_NEVER);
}

/* A thread that is refused, waits until another one was, and reads why. */
struct refused {
    struct fletch_batch *b;
    atomic_int stage; /* 1: refused, 2: the other thread was refused too */
    char why[128];
};

static int submit_wrong(struct fletch_batch *b, int32_t token)
{
    return fletch_batch_submit(b, &(struct fletch_request){.tokens = &token, .n_tokens = 1}, NULL);
}

static void await_stage(struct refused *u, int stage)
{
    while (atomic_load(&u->stage) < stage) sched_yield();
}

static void *be_refused(void *ctx)
{
    struct refused *u = ctx;
    int rc = submit_wrong(u->b, 1234567);
    atomic_store(&u->stage, 1);
    await_stage(u, 2);
    if (rc) snprintf(u->why, sizeof u->why, "%s", fletch_batch_error(u->b));
    return NULL;
}

static void each_thread_reads_why_its_own_request_was_refused(void **state)
{
    struct opened o;
    struct refused u = {0};
    struct fletch_batch *other;
    pthread_t thread;
    (void)state;
    opened_path(&o, "cpu", "test/golden/models/llama-gguf/model.gguf",
                &(struct fletch_model_params){.n_ctx = 64, .n_sessions = 2});
    assert_int_equal(fletch_batch_open(&u.b, o.m, NULL), 0);
    assert_int_equal(fletch_batch_open(&other, o.m, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, be_refused, &u), 0);
    await_stage(&u, 1);
    assert_string_equal(fletch_batch_error(u.b), "");
    assert_int_equal(submit_wrong(u.b, -5), FLETCH_E_ARG);
    atomic_store(&u.stage, 2);
    pthread_join(thread, NULL);
    assert_non_null(strstr(u.why, "1234567"));
    assert_non_null(strstr(fletch_batch_error(u.b), "-5"));
    assert_string_equal(fletch_batch_error(other), "");
    fletch_batch_close(other);
    fletch_batch_close(u.b);
    opened_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sessions_and_a_batch_take_turns),
        cmocka_unit_test(a_callback_may_use_another_session),
        cmocka_unit_test(each_thread_reads_why_its_own_request_was_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
