/* Steps that are queued before the tokens of those before them are read: the same tokens as step by
 * step, and a session that goes on as if no step had been queued that then was not wanted. On the
 * emulator, which does work when it is waited for, and on the CPU, which does it when it is
 * submitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "opened.h"

enum { N_ASKED = 6, MAX_ANSWER = 14, N_PROMPT = 12 };

struct answer {
    i32 ids[MAX_ANSWER];
    u32 n, most; /* most: it is asked to stop there */
    struct fletch_result result;
};

/* Activations are rounded alike, so that prompts are rows of answers' steps; or not (bf16). */
struct world {
    const char *backend, *model, *act;
    bool mtp; /* tokens are guessed, so that no step is queued ahead */
};

static const struct world worlds[] = {
    {"emu", "rwkv7", "int8", false}, {"emu", "llama", "int8", false},
    {"cpu", "llama", "int8", false}, {"cpu", "deepseek2", "int8", false},
    {"cpu", "rwkv7", "int8", false}, {"ref", "qwen2", "f32", false},
};

static const struct world beside[] = {
    {"emu", "rwkv7", "bf16", false},
    {"emu", "llama", "bf16", false},
    {"emu", "deepseek2", "bf16", true},
    {"cpu", "deepseek2", "bf16", false},
};

static void open_world(struct opened *o, const struct world *w, enum fletch_ahead ahead)
{
    char path[64];
    const struct fletch_model_params params = {.n_ctx = 128,
                                               .n_sessions = 4,
                                               .n_snapshots = 2,
                                               .max_rows = 16,
                                               .ahead = ahead,
                                               .act_type = w->act,
                                               .speculation = {.mtp = w->mtp, .n_tokens = 2}};
    snprintf(path, sizeof path, "zoo/tiny/%s.gguf", w->model);
    opened_path(o, w->backend, path, &params);
}

static void make_prompt(i32 *tokens, u32 which)
{
    for (u32 i = 0; i < N_PROMPT; i++) tokens[i] = (i32)(1 + (which * 37 + i * 11) % 200);
}

static struct fletch_sampling sampling_of(u32 which)
{
    return (struct fletch_sampling){
        .temperature = which % 2 ? 0.8f : 0, .top_p = 1, .repeat_penalty = 1, .seed = which};
}

static int keep(void *ctx, int32_t id, const char *text, size_t n)
{
    (void)text;
    (void)n;
    struct answer *a = ctx;
    if (id >= 0) a->ids[a->n++] = id;
    return a->n == a->most;
}

static void generate(struct opened *o, struct answer *a, u32 which, u32 max_tokens)
{
    const struct fletch_generate g = {.max_tokens = max_tokens,
                                      .sampling = sampling_of(which),
                                      .ignore_end = true,
                                      .on_text = keep,
                                      .ctx = a};
    struct fletch_generated made;
    u32 before = a->n;
    if (fletch_session_generate(o->s, &g, &made)) fail_msg("%s", fletch_session_error(o->s));
    assert_int_equal(made.n_tokens, a->n - before);
}

/* A turn that is stopped, one that goes on from there, one after a further prompt; then the logits
 * behind it all. */
static void run_turns(struct opened *o, struct answer turns[3], float *logits)
{
    i32 prompt[N_PROMPT];
    memset(turns, 0, 3 * sizeof *turns);
    turns[0].most = 5;
    make_prompt(prompt, 0);
    assert_int_equal(fletch_session_append(o->s, prompt, N_PROMPT, NULL), 0);
    for (u32 i = 0; i < 3; i++) {
        generate(o, &turns[i], i, 8);
        if (i == 1) assert_int_equal(fletch_session_append(o->s, prompt, 5, NULL), 0);
    }
    turns[2].most = turns[2].n + 3;
    generate(o, &turns[2], 2, 10);
    memcpy(logits, fletch_session_logits(o->s), 100 * sizeof *logits);
}

static void test_a_session_goes_on_as_step_by_step(void **state)
{
    struct opened o;
    struct answer turns[2][3];
    float logits[2][100];
    for (u32 i = 0; i < 2; i++) {
        open_world(&o, *state, i ? FLETCH_AHEAD_ALWAYS : FLETCH_AHEAD_NEVER);
        run_turns(&o, turns[i], logits[i]);
        bool goes = i && !o.m->m->net->n_states;
        assert_true(goes ? o.m->queue.n_ahead >= 18 : !o.m->queue.n_ahead);
        assert_int_equal(o.m->queue.n_pending, 0);
        opened_close(&o);
    }
    assert_memory_equal(turns[0], turns[1], sizeof turns[0]);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

/* ---- batches ---- */

static int take(void *ctx, const struct fletch_token *t)
{
    return keep(ctx, t->id, t->text, t->n_text);
}

static void done(void *ctx, const struct fletch_result *r)
{
    ((struct answer *)ctx)->result = *r;
}

static void ask(struct fletch_batch *b, struct answer *a, u32 which, u64 *id)
{
    i32 prompt[N_PROMPT];
    make_prompt(prompt, which);
    const struct fletch_request r = {.tokens = prompt,
                                     .n_tokens = N_PROMPT,
                                     .max_tokens = MAX_ANSWER - which,
                                     .sampling = sampling_of(which),
                                     .ignore_end = true,
                                     .on_token = take,
                                     .on_done = done,
                                     .ctx = a};
    *a = (struct answer){.most = which == 2 ? 5 : 0};
    assert_int_equal(fletch_batch_submit(b, &r, id), 0);
}

/* Six on four slots, one of whom stops early and one of whom is cancelled. */
static void run_batch(const struct world *w, enum fletch_ahead ahead, struct answer *answers)
{
    struct opened o;
    struct fletch_batch *b;
    struct fletch_batch_stats stats;
    struct exec_counters c = {0};
    u64 ids[N_ASKED];
    open_world(&o, w, ahead);
    fletch_session_close(o.s);
    o.s = NULL;
    assert_int_equal(fletch_batch_open(&b, o.m, NULL), 0);
    for (u32 i = 0; i < N_ASKED; i++) ask(b, &answers[i], i, &ids[i]);
    while (answers[1].n < 4) fletch_batch_step(b, 0);
    fletch_batch_cancel(b, ids[1]);
    while (fletch_batch_step(b, 0)) engine_batch_check(b);
    engine_batch_check(b);
    fletch_batch_stats(b, &stats);
    if (o.m->x->class->counters) o.m->x->class->counters(o.m->x, &c);
    assert_int_equal(c.submissions, c.waits);
    assert_int_equal(stats.n_ahead, o.m->queue.n_ahead);
    if (ahead == FLETCH_AHEAD_NEVER || w->mtp)
        assert_int_equal(stats.n_ahead, 0);
    else if (!o.m->reader.step) /* none is queued ahead of a prompt beside it */
        assert_true(stats.n_ahead > stats.n_steps / 2);
    else
        assert_true(stats.n_ahead > 0);
    assert_true(!o.m->reader.step || stats.n_mixed > 4);
    assert_true(!w->mtp || (o.m->reader.n_steps > 4 && stats.n_accepted > 0));
    assert_int_equal(o.m->queue.n_pending, 0);
    fletch_batch_close(b);
    opened_close(&o);
}

static void test_a_batch_gives_what_it_gives_step_by_step(void **state)
{
    struct answer a[2][N_ASKED];
    run_batch(*state, FLETCH_AHEAD_NEVER, a[0]);
    run_batch(*state, FLETCH_AHEAD_ALWAYS, a[1]);
    for (u32 i = 0; i < N_ASKED; i++) {
        assert_int_equal(a[0][i].n, i == 1 ? 4 : i == 2 ? 5 : MAX_ANSWER - i);
        assert_int_equal(a[0][i].n, a[1][i].n);
        assert_memory_equal(a[0][i].ids, a[1][i].ids, a[0][i].n * sizeof(i32));
        assert_int_equal(a[1][i].result.finish, a[0][i].result.finish);
    }
}

/* Prompts that are read beside answers, some layers at a time, on a device that keeps lists of
 * them. */
static void test_prompts_beside_answers_change_no_token(void **state)
{
    struct answer a[N_ASKED], alone;
    i32 prompt[N_PROMPT];
    struct opened o;
    run_batch(*state, FLETCH_AHEAD_ALWAYS, a);
    open_world(&o, *state, FLETCH_AHEAD_NEVER);
    assert_non_null(o.m->reader.step);
    for (u32 i = 0; i < N_ASKED; i++) {
        alone = (struct answer){0};
        make_prompt(prompt, i);
        fletch_session_reset(o.s);
        assert_int_equal(fletch_session_append(o.s, prompt, N_PROMPT, NULL), 0);
        generate(&o, &alone, i, MAX_ANSWER - i);
        assert_int_equal(a[i].n, i == 1 ? 4 : i == 2 ? 5 : MAX_ANSWER - i);
        assert_memory_equal(a[i].ids, alone.ids, a[i].n * sizeof(i32));
    }
    opened_close(&o);
}

/* ---- the default ---- */

static void test_backends_that_queue_go_ahead_unasked(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        bool ahead;
    } expected[] = {{"emu", true}, {"cpu", false}, {"ref", false}};
    for (u32 i = 0; i < ARRAY_LEN(expected); i++) {
        struct opened o;
        open_world(&o, &(struct world){expected[i].backend, "llama", NULL, false},
                   FLETCH_AHEAD_AUTO);
        assert_int_equal(o.m->queue.ahead, expected[i].ahead);
        opened_close(&o);
    }
}

int main(void)
{
    struct CMUnitTest tests[2 * ARRAY_LEN(worlds) + ARRAY_LEN(beside) + 1] = {0};
    static char labels[2 * ARRAY_LEN(worlds) + ARRAY_LEN(beside)][64];
    size_t n = 0;
    for (size_t i = 1; i < 2 * ARRAY_LEN(worlds); i++, n++) { /* sessions of the first never do */
        const struct world *w = &worlds[i / 2];
        snprintf(labels[n], sizeof labels[n], "%s, %s: %s", w->backend, w->model,
                 i % 2 ? "batch" : "session");
        tests[n] = (struct CMUnitTest){labels[n],
                                       i % 2 ? test_a_batch_gives_what_it_gives_step_by_step
                                             : test_a_session_goes_on_as_step_by_step,
                                       NULL, NULL, (void *)(uintptr_t)w};
    }
    for (size_t i = 0; i < ARRAY_LEN(beside); i++, n++) {
        snprintf(labels[n], sizeof labels[n], "%s, %s: prompts beside answers%s", beside[i].backend,
                 beside[i].model, beside[i].mtp ? ", guessed" : "");
        tests[n] = (struct CMUnitTest){labels[n], test_prompts_beside_answers_change_no_token, NULL,
                                       NULL, (void *)(uintptr_t)&beside[i]};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_backends_that_queue_go_ahead_unasked);
    return _cmocka_run_group_tests("ahead", tests, n, NULL, NULL);
}
