/* Many requests at once give token for token what each gives alone: on a small model of every
 * family, with prompts that share beginnings and others, arriving in between, read in pieces (rows
 * of the answers' steps, or beside them), with fewer cache blocks than they would like, with tokens
 * that are guessed, and with steps that are queued ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "opened.h"

enum { N_REQUESTS = 64, MAX_PROMPT = 150, MAX_ANSWER = 90, N_SHARED = 3 };

struct want {
    i32 prompt[MAX_PROMPT], answer[MAX_ANSWER], got[MAX_ANSWER];
    u32 n_prompt, n_answer, n_got, n_done;
    u64 id;
    float logit; /* of some token behind it */
    struct fletch_sampling sampling;
    struct fletch_result result;
};

struct fixture {
    struct opened o;
    struct fletch_batch *b;
    struct want want[N_REQUESTS];
    u32 n_requests;
    u64 random;
    const char *act; /* how activations are rounded; NULL: as the machine prefers */
};

static u32 below(struct fixture *f, u32 n)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (u32)(f->random >> 33) % n;
}

static const char *const models[] = {
    "llama", "qwen2", "qwen3", "qwen3moe", "deepseek2", "rwkv7", "test/golden/models/qwen3_5"};

static void open_guessing(struct fixture *f, const char *model, u64 kv_tokens,
                          const struct fletch_speculation *how)
{
    char path[64];
    struct fletch_model_params params = {.n_ctx = 256,
                                         .n_sessions = 12,
                                         .kv_tokens = kv_tokens,
                                         .n_snapshots = 16,
                                         .max_rows = 48,
                                         .act_type = f->act};
    if (how) params.speculation = *how;
    bool is_path = strchr(model, '/');
    snprintf(path, sizeof path, "%s%s%s", is_path ? "" : "zoo/tiny/", model,
             is_path ? "" : ".gguf");
    opened_path(&f->o, "cpu", path, &params);
}

static void open_model(struct fixture *f, const char *model, u64 kv_tokens)
{
    *f = (struct fixture){.random = 5, .n_requests = N_REQUESTS, .act = f->act};
    open_guessing(f, model, kv_tokens, NULL);
}

static void open_batch(struct fixture *f, const struct fletch_batch_params *params)
{
    fletch_session_close(f->o.s); /* its slot is for requests too */
    f->o.s = NULL;
    if (fletch_batch_open(&f->b, f->o.m, params)) fail_msg("%s", fletch_model_error(f->o.m));
}

static void close_all(struct fixture *f)
{
    fletch_batch_close(f->b);
    opened_close(&f->o);
    free(f);
}

/* Half of the prompts begin like others. */
static void make_prompts(struct fixture *f)
{
    static i32 shared[N_SHARED][100];
    u32 n_ids = MIN(f->o.m->m->hp.n_vocab, 200u);
    for (u32 i = 0; i < N_SHARED; i++)
        for (u32 j = 0; j < 100; j++) shared[i][j] = (i32)below(f, n_ids);
    for (u32 i = 0; i < N_REQUESTS; i++) {
        struct want *w = &f->want[i];
        w->n_prompt = 1 + below(f, MAX_PROMPT);
        w->n_answer = 1 + below(f, MAX_ANSWER);
        for (u32 j = 0; j < w->n_prompt; j++) w->prompt[j] = (i32)below(f, n_ids);
        if (i % 2 == 0)
            memcpy(w->prompt, shared[below(f, N_SHARED)], MIN(w->n_prompt, 100u) * sizeof(i32));
        w->sampling = (struct fletch_sampling){.temperature = i % 4 < 2 ? 0 : 0.8f,
                                               .top_p = i % 3 ? 1 : 0.9f,
                                               .repeat_penalty = i % 16 ? 1 : 1.2f,
                                               .penalty_window = 32,
                                               .seed = i};
    }
}

static int keep_alone(void *ctx, int32_t token, const char *text, size_t n)
{
    (void)text;
    (void)n;
    struct want *w = ctx;
    if (token >= 0) w->answer[w->n_got++] = token;
    return 0;
}

static void run_alone(struct fixture *f, struct want *w)
{
    struct fletch_generated made;
    fletch_session_reset(f->o.s);
    if (fletch_session_append(f->o.s, w->prompt, w->n_prompt, NULL) ||
        fletch_session_generate(f->o.s,
                                &(struct fletch_generate){.max_tokens = w->n_answer,
                                                          .sampling = w->sampling,
                                                          .ignore_end = true,
                                                          .on_text = keep_alone,
                                                          .ctx = w},
                                &made))
        fail_msg("%s", fletch_session_error(f->o.s));
    assert_int_equal(made.n_tokens, w->n_answer);
    w->n_got = 0;
}

static int stop_when_full(void *ctx, int32_t token, const char *text, size_t n)
{
    struct want *w = ctx;
    keep_alone(ctx, token, text, n);
    return w->n_got == w->n_answer;
}

static int keep(void *ctx, const struct fletch_token *t)
{
    struct want *w = ctx;
    if (t->id < 0) return 0;
    assert_true(w->n_got < w->n_answer && !w->n_done);
    w->got[w->n_got++] = t->id;
    return 0;
}

static void done(void *ctx, const struct fletch_result *r)
{
    struct want *w = ctx;
    w->n_done++;
    w->result = *r;
}

static void submit(struct fixture *f, struct want *w, u32 client)
{
    struct fletch_request r = {.tokens = w->prompt,
                               .n_tokens = w->n_prompt,
                               .max_tokens = w->n_answer,
                               .sampling = w->sampling,
                               .ignore_end = true,
                               .client = client,
                               .on_token = keep,
                               .on_done = done,
                               .ctx = w};
    if (fletch_batch_submit(f->b, &r, &w->id)) fail_msg("%s", fletch_batch_error(f->b));
}

static void expect_alone(const struct want *w)
{
    assert_int_equal(w->n_done, 1);
    assert_int_equal(w->result.finish, FLETCH_FINISH_LENGTH);
    assert_int_equal(w->result.n_generated, w->n_answer);
    assert_int_equal(w->n_got, w->n_answer);
    assert_memory_equal(w->got, w->answer, w->n_got * sizeof *w->got);
}

static void run_all(struct fixture *f)
{
    u32 n_sent = 0;
    while (n_sent < f->n_requests || fletch_batch_step(f->b, 0)) {
        for (u32 n = below(f, 4); n && n_sent < f->n_requests; n--, n_sent++)
            submit(f, &f->want[n_sent], n_sent % 5);
        if (n_sent < f->n_requests) fletch_batch_step(f->b, 0);
        engine_batch_check(f->b);
    }
}

static void together_as_alone(const char *model, const char *act)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->act = act;
    struct fletch_batch_stats s;
    u32 n_preempted = 0, n_reused = 0;
    open_model(f, model, 700);
    make_prompts(f);
    for (u32 i = 0; i < N_REQUESTS; i++) run_alone(f, &f->want[i]);
    f->o.m->queue.ahead = true;
    open_batch(f, NULL);
    run_all(f);
    for (u32 i = 0; i < N_REQUESTS; i++) {
        expect_alone(&f->want[i]);
        n_preempted += f->want[i].result.n_preempted;
        n_reused += f->want[i].result.n_reused;
    }
    /* it was no easy run */
    fletch_batch_stats(f->b, &s);
    bool recurrent = strcmp(model, "rwkv7") == 0;
    assert_true(s.most_running > 6 && s.n_mixed > 10 && s.n_done == N_REQUESTS && !s.n_failed);
    assert_true(s.n_reused > 100 && s.n_reused == n_reused);
    assert_true(recurrent ? !s.n_blocks : s.n_preemptions > 0 && s.n_evicted > 0);
    assert_int_equal(s.n_preemptions, n_preempted);
    bool beside = f->o.m->reader.step != NULL;
    assert_true(beside == (strcmp(act, "bf16") == 0));
    assert_true(beside || (s.n_ahead > s.n_steps / 4 && s.n_ahead < s.n_steps));
    assert_int_equal(s.n_free + s.n_idle, s.n_blocks);
    close_all(f);
}

static void test_together_as_alone(void **state)
{
    together_as_alone(*state, "int8");
}

static void test_together_as_alone_with_prompts_beside(void **state)
{
    together_as_alone(*state, "bf16");
}

/* ---- guesses ---- */

#define HYBRID "test/golden/models/qwen3_5" /* cache, recurrent state and an MTP block */

/* Prompts are read beside answers with bf16, and always so by what guesses. */
static const struct guessing {
    const char *label, *model, *act;
    struct fletch_speculation how;
} guessings[] = {
    {"llama guessed by qwen2", "llama", "int8", {.draft = "zoo/tiny/qwen2.gguf", .n_tokens = 4}},
    {"llama guessed by rwkv7", "llama", "bf16", {.draft = "zoo/tiny/rwkv7.gguf", .n_tokens = 3}},
    {"llama guessed from its text", "llama", "int8", {.ngram = true, .n_tokens = 40}},
    {"rwkv7 guessed by llama", "rwkv7", "bf16", {.draft = "zoo/tiny/llama.gguf", .n_tokens = 3}},
    {"rwkv7 guessed from its text", "rwkv7", "int8", {.ngram = true, .n_tokens = 5}},
    {"deepseek2 guessed by its MTP block", "deepseek2", "int8", {.mtp = true, .n_tokens = 2}},
    {"deepseek2 so, beside answers", "deepseek2", "bf16", {.mtp = true, .n_tokens = 2}},
    {"qwen35 guessed by its MTP block", HYBRID, "int8", {.mtp = true, .n_tokens = 2}},
    {"qwen35 so, beside answers", HYBRID, "bf16", {.mtp = true, .n_tokens = 2}},
    {"qwen35moe guessed by its MTP block", HYBRID "_moe", "int8", {.mtp = true, .n_tokens = 3}},
    {"qwen35 guessed by itself", HYBRID, "bf16", {.draft = HYBRID, .n_tokens = 3}},
    {"qwen3 guessed by llama, as pays", "qwen3", "int8", {.draft = "zoo/tiny/llama.gguf"}},
};

/* Prompts that say things twice, so that there is something to look up. */
static void make_repetitive(struct fixture *f)
{
    f->n_requests = 24;
    make_prompts(f);
    for (u32 i = 0; i < f->n_requests; i += 2)
        for (u32 j = 40; j < f->want[i].n_prompt; j++)
            f->want[i].prompt[j] = f->want[i].prompt[j - 20];
}

/* A request twice, which finds its own prompt the second time; how many guesses were right. */
static u32 repeat(struct fixture *f)
{
    u32 i = 0, n_accepted = 0;
    while (f->want[i].n_prompt < 70) i++;
    for (u32 pass = 0; pass < 2; pass++) {
        struct want again = f->want[i];
        again.n_got = again.n_done = 0;
        submit(f, &again, 0);
        while (fletch_batch_step(f->b, 0)) engine_batch_check(f->b);
        expect_alone(&again);
        n_accepted += again.result.n_accepted;
        assert_true(!pass || again.result.n_reused >= 32);
    }
    return n_accepted;
}

static void test_guesses_change_no_token(void **state)
{
    const struct guessing *g = *state;
    struct fixture *f = calloc(1, sizeof *f);
    struct fletch_batch_stats s;
    u32 n_accepted = 0;
    f->act = g->act;
    open_model(f, g->model, 350);
    make_repetitive(f);
    for (u32 i = 0; i < f->n_requests; i++) run_alone(f, &f->want[i]);
    opened_close(&f->o);
    open_guessing(f, g->model, 350, &g->how);
    f->o.m->queue.ahead = true;   /* where nothing is drafted */
    for (u32 i = 0; i < 4; i++) { /* sessions too */
        struct want again = f->want[i];
        run_alone(f, &again);
        assert_memory_equal(again.answer, f->want[i].answer, again.n_answer * sizeof(i32));
    }
    open_batch(f, NULL);
    run_all(f);
    for (u32 i = 0; i < f->n_requests; i++) {
        expect_alone(&f->want[i]);
        n_accepted += f->want[i].result.n_accepted;
    }
    n_accepted += repeat(f);
    fletch_batch_stats(f->b, &s);
    const struct fletch_model *m = f->o.m;
    if (g->how.n_tokens) assert_true(s.n_accepted > 5);
    bool itself = g->how.draft && strcmp(g->how.draft, g->model) == 0;
    if (g->how.n_tokens && !itself) assert_true(s.n_drafted > s.n_accepted);
    assert_int_equal(s.n_accepted, n_accepted);
    assert_true(g->how.mtp || g->how.draft || s.n_ahead > 10);
    assert_true(s.n_mixed > 0 && (!s.n_blocks || s.n_preemptions > 0));
    assert_true(!m->reader.step || m->reader.n_steps > 20);
    assert_true(!m->draft || m->draft->reader.n_steps > 20);
    assert_true((m->reader.step != NULL) == (strcmp(g->act, "bf16") == 0));
    assert_int_equal(s.n_free + s.n_idle, s.n_blocks);
    close_all(f);
}

/* Bytes of the cache that the first tokens of a slot have, of all layers and the MTP block. */
static u8 *cache_of(struct fixture *f, u32 slot, u32 n_blocks)
{
    const struct fletch_model *m = f->o.m;
    size_t each = exec_part_bytes(m->m->net, &m->limits, PART_BLOCK);
    u8 *bytes = malloc(n_blocks * each);
    for (u32 i = 0; i < n_blocks; i++) {
        u32 block = m->step->tables[(size_t)slot * m->step->table_len + i];
        int rc = step_queue_move(&f->o.m->queue, PART_BLOCK, block, bytes + i * each, NULL,
                                 &f->o.m->err);
        assert_int_equal(rc, 0);
    }
    return bytes;
}

/* What it does not have yet would only make guesses worse, which no token tells. */
static void test_the_mtp_block_reads_all_of_a_prompt_beside_answers(void **state)
{
    (void)state;
    static const struct fletch_speculation how = {.mtp = true, .n_tokens = 2};
    enum { N_WHOLE = 4 }; /* blocks of the longer prompt */
    struct fixture *f = calloc(1, sizeof *f);
    struct want *answers = &f->want[0], *reads = &f->want[1];
    f->act = "bf16";
    f->random = 5;
    open_guessing(f, "deepseek2", 0, &how);
    make_prompts(f);
    answers->n_prompt = 8;
    reads->n_prompt = MAX_PROMPT;
    answers->n_answer = reads->n_answer = MAX_ANSWER;
    run_alone(f, reads);
    u8 *alone = cache_of(f, 0, N_WHOLE);
    open_batch(f, NULL);
    submit(f, answers, 0);
    while (answers->n_got < 2) fletch_batch_step(f->b, 0);
    submit(f, reads, 0);
    while (reads->n_got < 5) fletch_batch_step(f->b, 0);
    struct fletch_batch_stats s;
    fletch_batch_stats(f->b, &s);
    assert_true(f->o.m->reader.n_steps > 4 && s.n_mixed > 4);
    u8 *beside = cache_of(f, 1, N_WHOLE);
    size_t n = N_WHOLE * exec_part_bytes(f->o.m->m->net, &f->o.m->limits, PART_BLOCK);
    assert_memory_equal(beside, alone, n);
    free(beside);
    free(alone);
    close_all(f);
}

/* A session goes on from where it was stopped, whatever was guessed beyond that. */
static void test_a_stopped_session_goes_on_as_if_nothing_was_guessed(void **state)
{
    const struct guessing *g = *state;
    struct fixture *f = calloc(1, sizeof *f);
    struct want parts[2][4];
    for (u32 pass = 0; pass < 2; pass++) {
        open_model(f, g->model, 0);
        opened_close(&f->o);
        open_guessing(f, g->model, 0, pass ? &g->how : NULL);
        make_repetitive(f);
        for (u32 i = 0; i < 4; i++) { /* four turns on one timeline, each ended by the callback */
            struct want *w = &parts[pass][i];
            struct fletch_generated made;
            *w = f->want[2 * i];
            w->n_answer = 11 + i;
            struct fletch_generate how = {.max_tokens = 60,
                                          .sampling = w->sampling,
                                          .ignore_end = true,
                                          .on_text = stop_when_full,
                                          .ctx = w};
            assert_int_equal(fletch_session_append(f->o.s, w->prompt, MIN(w->n_prompt, 50), NULL),
                             0);
            assert_int_equal(fletch_session_generate(f->o.s, &how, &made), 0);
            assert_int_equal(made.finish, FLETCH_FINISH_ASKED);
            assert_int_equal(made.n_tokens, w->n_answer);
            w->logit = fletch_session_logits(f->o.s)[7];
            w->n_done = fletch_session_length(f->o.s);
        }
        opened_close(&f->o);
    }
    for (u32 i = 0; i < 4; i++) {
        assert_int_equal(parts[0][i].n_done, parts[1][i].n_done);
        assert_memory_equal(parts[0][i].answer, parts[1][i].answer,
                            parts[0][i].n_answer * sizeof(i32));
        assert_true(parts[0][i].logit == parts[1][i].logit);
    }
    free(f);
}

/* Rejected tokens leave no trace in the state or the cache of a hybrid, on any kind of executor. */
static void test_hybrids_guess_the_same_tokens_on_every_backend(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu", "emu"};
    static const i32 often[] = {3, 4, 5}; /* an answer that says things twice */
    static const float by[] = {50, 50, 50};
    static const struct fletch_speculation hows[] = {
        {0}, {.mtp = true, .n_tokens = 2}, {.ngram = true, .n_tokens = 20}};
    for (size_t i = 0; i < ARRAY_LEN(backends) * ARRAY_LEN(hows); i++) {
        const struct fletch_speculation *how = &hows[i % ARRAY_LEN(hows)];
        static struct want want[2];
        struct fletch_model_params params = {
            .n_ctx = 96, .max_rows = 32, .speculation = *how, .n_sessions = 2};
        struct fletch_generated made = {0};
        struct opened o;
        opened_path(&o, backends[i / ARRAY_LEN(hows)], HYBRID, &params);
        for (u32 k = 0; k < 2; k++) {
            struct want w = {.n_prompt = 30};
            const struct fletch_generate g = {.max_tokens = 24,
                                              .sampling = {.temperature = k ? 0.8f : 0,
                                                           .top_p = 1,
                                                           .repeat_penalty = 1,
                                                           .bias_tokens = often,
                                                           .bias_values = by,
                                                           .n_bias = ARRAY_LEN(often)},
                                              .ignore_end = true,
                                              .on_text = keep_alone,
                                              .ctx = &w};
            for (u32 j = 0; j < w.n_prompt; j++) w.prompt[j] = (i32)(3 + j % 7);
            fletch_session_reset(o.s);
            assert_int_equal(fletch_session_append(o.s, w.prompt, w.n_prompt, NULL), 0);
            assert_int_equal(fletch_session_generate(o.s, &g, &made), 0);
            assert_int_equal(w.n_got, 24);
            w.logit = fletch_session_logits(o.s)[7];
            assert_true(i % ARRAY_LEN(hows) == 0 ||
                        (made.n_accepted > 0 && made.n_drafted > made.n_accepted));
            if (i % ARRAY_LEN(hows) == 0) want[k] = w;
            assert_memory_equal(w.answer, want[k].answer, sizeof w.answer);
            assert_true(w.logit == want[k].logit);
        }
        opened_close(&o);
    }
}

static void test_what_can_not_guess_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct fletch_speculation how;
        const char *why;
    } wrong[] = {
        {{.draft = "zoo/tiny/nothing.gguf"}, "draft model: cannot open 'zoo/tiny/nothing.gguf'"},
        {{.draft = "test/golden/models/llama-gguf/model.gguf"}, "a different vocabulary"},
        {{.mtp = true}, "no MTP block"},
        {{.draft = "zoo/tiny/llama.gguf", .mtp = true}, "cannot be combined"},
    };
    struct fletch_engine *e;
    struct fletch_model *m;
    assert_int_equal(fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "ref"}), 0);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct fletch_model_params params = {.speculation = wrong[i].how};
        assert_true(fletch_model_open(&m, e, "zoo/tiny/llama.gguf", &params) < 0);
        if (!strstr(fletch_engine_error(e), wrong[i].why)) fail_msg("%s", fletch_engine_error(e));
    }
    fletch_engine_close(e);
}

/* ---- text ---- */

struct heard {
    char text[4096];
    size_t n;
    i32 ids[64];
    float logprob[64];
    u32 n_ids, n_top;
    struct fletch_result result;
};

static int hear_alone(void *ctx, int32_t token, const char *text, size_t n)
{
    struct heard *h = ctx;
    memcpy(h->text + h->n, text, n);
    h->n += n;
    if (token >= 0) h->ids[h->n_ids++] = token;
    return 0;
}

static int hear(void *ctx, const struct fletch_token *t)
{
    struct heard *h = ctx;
    if (t->id >= 0) h->logprob[h->n_ids] = t->logprob;
    if (t->id >= 0 && t->n_top) {
        h->n_top = t->n_top;
        assert_int_equal(t->id, t->top_ids[0]); /* greedy */
        assert_true(t->logprob == t->top_logprobs[0] && t->top_logprobs[1] <= t->logprob);
    }
    return hear_alone(ctx, t->id, t->text, t->n_text);
}

static void heard_done(void *ctx, const struct fletch_result *r)
{
    ((struct heard *)ctx)->result = *r;
}

static void test_texts_end_as_they_do_alone(void **state)
{
    (void)state;
    static const i32 prompt[] = {70, 71, 72, 73};
    struct fixture *f = calloc(1, sizeof *f);
    struct heard alone[8] = {0}, together[8] = {0};
    struct fletch_generated made[8];
    struct fletch_request r[8];
    char stop[3][8] = {""};
    const char *stops[3] = {stop[0], stop[1], stop[2]};
    opened_tiny(&f->o, "cpu", &(struct tiny_model){.seed = 3},
                &(struct fletch_model_params){.n_sessions = 4});
    for (u32 i = 0; i < 8; i++) {
        struct fletch_generate g = {
            .max_tokens = 30,
            .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 100 + i % 4},
            .ignore_end = i % 2,
            .stops = stops,
            .n_stops = i < 4 ? 0 : 3,
            .on_text = hear_alone,
            .ctx = &alone[i]};
        fletch_session_reset(f->o.s);
        assert_int_equal(fletch_session_append(f->o.s, prompt, 4, NULL), 0);
        assert_int_equal(fletch_session_generate(f->o.s, &g, &made[i]), 0);
        if (i < 3) memcpy(stop[i], alone[i].text + alone[i].n / 2, 3); /* what surely comes */
        r[i] = (struct fletch_request){.tokens = prompt,
                                       .n_tokens = 4,
                                       .max_tokens = 30,
                                       .sampling = g.sampling,
                                       .ignore_end = g.ignore_end,
                                       .stops = stops,
                                       .n_stops = g.n_stops,
                                       .on_token = hear,
                                       .on_done = heard_done,
                                       .ctx = &together[i]};
    }
    for (u32 i = 4; i < 7; i++) assert_int_equal(made[i].finish, FLETCH_FINISH_STOP);
    open_batch(f, NULL);
    for (u32 i = 0; i < 8; i++) assert_int_equal(fletch_batch_submit(f->b, &r[i], NULL), 0);
    while (fletch_batch_step(f->b, 0)) engine_batch_check(f->b);
    for (u32 i = 0; i < 8; i++) {
        assert_int_equal(together[i].result.finish, made[i].finish);
        assert_int_equal(together[i].result.n_generated, made[i].n_tokens);
        assert_int_equal(together[i].n, alone[i].n);
        assert_memory_equal(together[i].text, alone[i].text, alone[i].n);
        if (made[i].finish == FLETCH_FINISH_STOP) /* there, without it, was the one that is named */
            assert_memory_equal(alone[i % 4].text + alone[i].n, stops[together[i].result.stop], 3);
    }
    close_all(f);
}

static void test_control_tokens_are_text_when_asked_for(void **state)
{
    (void)state;
    static const char mark[] = "<|im_start|>";
    static const float always = 1e6f;
    struct fixture *f = calloc(1, sizeof *f);
    int32_t *ids;
    size_t n;
    opened_path(&f->o, "cpu", "zoo/guide.gguf", &(struct fletch_model_params){.n_ctx = 64});
    assert_int_equal(fletch_tokenize(f->o.m, mark, strlen(mark), FLETCH_SPECIAL, &ids, &n), 0);
    assert_int_equal(n, 1);
    open_batch(f, NULL);
    for (int show = 0; show < 2; show++) {
        struct heard h = {0};
        struct fletch_request r = {.tokens = ids,
                                   .n_tokens = 1,
                                   .max_tokens = 1,
                                   .sampling = {.top_p = 1,
                                                .repeat_penalty = 1,
                                                .n_bias = 1,
                                                .bias_tokens = ids,
                                                .bias_values = &always},
                                   .show_control = show,
                                   .on_token = hear,
                                   .on_done = heard_done,
                                   .ctx = &h};
        assert_int_equal(fletch_batch_submit(f->b, &r, NULL), 0);
        while (fletch_batch_step(f->b, 0)) {
        }
        assert_int_equal(h.result.n_generated, 1);
        assert_int_equal(h.n, show ? strlen(mark) : 0);
        assert_memory_equal(h.text, mark, h.n);
    }
    fletch_free(ids);
    close_all(f);
}

static void test_logprobs_come_with_tokens(void **state)
{
    (void)state;
    static const i32 prompt[] = {70, 71, 72, 73};
    struct fixture *f = calloc(1, sizeof *f);
    struct heard h = {0};
    open_model(f, "llama", 0);
    open_batch(f, NULL);
    struct fletch_request r = {.tokens = prompt,
                               .n_tokens = 4,
                               .max_tokens = 10,
                               .sampling = {.top_p = 1, .repeat_penalty = 1},
                               .ignore_end = true,
                               .n_logprobs = 6,
                               .on_token = hear,
                               .on_done = heard_done,
                               .ctx = &h};
    assert_int_equal(fletch_batch_submit(f->b, &r, NULL), 0);
    while (fletch_batch_step(f->b, 0)) {
    }
    assert_int_equal(h.n_ids, 10);
    assert_int_equal(h.n_top, 5);
    for (u32 i = 0; i < 10; i++) assert_true(h.logprob[i] < 0 && h.logprob[i] > -20);
    close_all(f);
}

static void test_sessions_and_batches_share_the_room(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    struct fletch_session *s[12] = {NULL};
    open_model(f, "llama", 0);
    make_prompts(f);
    f->want[0].n_answer = 3;
    run_alone(f, &f->want[0]);
    if (fletch_batch_open(&f->b, f->o.m, NULL)) fail_msg("%s", fletch_model_error(f->o.m));
    submit(f, &f->want[0], 0);
    while (fletch_batch_step(f->b, 0)) {
    }
    expect_alone(&f->want[0]);
    for (u32 i = 0; i < 11; i++) assert_int_equal(fletch_session_open(&s[i], f->o.m), 0);
    submit(f, &f->want[1], 0); /* sessions have all slots: it is told so, and does not hang */
    while (fletch_batch_step(f->b, 0)) {
    }
    assert_int_equal(f->want[1].result.finish, FLETCH_FINISH_FAILED);
    assert_int_equal(f->want[1].result.code, FLETCH_E_LIMIT);
    for (u32 i = 0; i < 11; i++) fletch_session_close(s[i]);
    close_all(f);
}

int main(void)
{
    struct CMUnitTest tests[48] = {0};
    static char labels[48][80];
    size_t n = 0;
    for (size_t i = 0; i < 2 * ARRAY_LEN(models); i++, n++) {
        bool beside = i % 2;
        const char *model = models[i / 2];
        snprintf(labels[n], sizeof labels[n], "%s: together as alone%s", model,
                 beside ? ", prompts beside answers" : "");
        tests[n] = (struct CMUnitTest){
            labels[n], beside ? test_together_as_alone_with_prompts_beside : test_together_as_alone,
            NULL, NULL, (void *)(uintptr_t)model};
    }
    for (size_t i = 0; i < ARRAY_LEN(guessings); i++, n++)
        tests[n] = (struct CMUnitTest){guessings[i].label, test_guesses_change_no_token, NULL, NULL,
                                       (void *)(uintptr_t)&guessings[i]};
    for (size_t i = 1; i < ARRAY_LEN(guessings); i += 2, n++) {
        snprintf(labels[n], sizeof labels[n], "%s: turns", guessings[i].label);
        tests[n] =
            (struct CMUnitTest){labels[n], test_a_stopped_session_goes_on_as_if_nothing_was_guessed,
                                NULL, NULL, (void *)(uintptr_t)&guessings[i]};
    }
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_the_mtp_block_reads_all_of_a_prompt_beside_answers),
        cmocka_unit_test(test_hybrids_guess_the_same_tokens_on_every_backend),
        cmocka_unit_test(test_what_can_not_guess_is_refused),
        cmocka_unit_test(test_texts_end_as_they_do_alone),
        cmocka_unit_test(test_control_tokens_are_text_when_asked_for),
        cmocka_unit_test(test_logprobs_come_with_tokens),
        cmocka_unit_test(test_sessions_and_batches_share_the_room),
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) tests[n++] = others[i];
    return _cmocka_run_group_tests("batch", tests, n, NULL, NULL);
}
