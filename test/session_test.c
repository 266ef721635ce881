/* Sessions in files: one that is saved and loaded goes on as if it had never stopped, on every kind
 * of executor and memory; whatever else a file holds is refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/life_refused.h"
#include "engine/session.h"
#include "opened.h"

enum { N_PROMPT = 40, N_ANSWER = 12 };

struct heard {
    i32 ids[2 * N_ANSWER + 4];
    u32 n;
};

static int hear(void *ctx, int32_t token, const char *text, size_t n)
{
    (void)text;
    (void)n;
    struct heard *h = ctx;
    if (token >= 0) h->ids[h->n++] = token;
    return 0;
}

/* A model of the zoo, or one with cache and state of the golden data. */
static void path_of(char *path, size_t n, const char *model)
{
    static const char *const zoo[] = {"llama", "deepseek2", "rwkv7"};
    bool hybrid = true;
    for (size_t i = 0; i < ARRAY_LEN(zoo); i++) hybrid &= strcmp(model, zoo[i]) != 0;
    snprintf(path, n, "%s%s%s", hybrid ? "test/golden/models/" : "zoo/tiny/", model,
             hybrid ? "" : ".gguf");
}

static const char *scratch_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/fletch-session-%d", (int)getpid());
    return path;
}

static void turn(struct opened *o, i32 first, struct heard *h)
{
    i32 prompt[N_PROMPT];
    struct fletch_generated made;
    struct fletch_generate g = {
        .max_tokens = N_ANSWER,
        .sampling = {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1, .seed = 3},
        .ignore_end = true,
        .on_text = hear,
        .ctx = h};
    for (i32 i = 0; i < N_PROMPT; i++) prompt[i] = (first + i * i) % 100;
    if (fletch_session_append(o->s, prompt, N_PROMPT, NULL) ||
        fletch_session_generate(o->s, &g, &made))
        fail_msg("%s", fletch_session_error(o->s));
}

static void open_model(struct opened *o, const char *backend, const char *model, bool guesses)
{
    char path[64];
    struct fletch_model_params params = {.n_ctx = 160, .speculation = {.ngram = guesses}};
    if (guesses) params.speculation.n_tokens = 3;
    path_of(path, sizeof path, model);
    opened_path(o, backend, path, &params);
}

static void save(struct opened *o, const char *note)
{
    if (fletch_session_save(o->s, scratch_path(), note, strlen(note)))
        fail_msg("%s", fletch_session_error(o->s));
}

/* Two turns in one go, then the same with a file in between. */
static void check_resumed(const char *backend, const char *model, bool guesses)
{
    struct opened o;
    struct heard whole = {.n = 0}, parts = {.n = 0};
    char *note;
    size_t n_note;
    open_model(&o, backend, model, false);
    turn(&o, 5, &whole);
    turn(&o, 9, &whole);
    opened_close(&o);
    open_model(&o, backend, model, guesses);
    turn(&o, 5, &parts);
    save(&o, "a note");
    u32 n = fletch_session_length(o.s);
    opened_close(&o);
    open_model(&o, backend, model, guesses);
    if (fletch_session_load(o.s, scratch_path(), &note, &n_note))
        fail_msg("%s", fletch_session_error(o.s));
    assert_int_equal(n_note, 6);
    assert_string_equal(note, "a note");
    assert_int_equal(fletch_session_length(o.s), n);
    assert_memory_equal(fletch_session_tokens(o.s) + N_PROMPT, whole.ids,
                        (n - N_PROMPT) * sizeof(i32));
    turn(&o, 9, &parts);
    assert_int_equal(parts.n, whole.n);
    assert_memory_equal(parts.ids, whole.ids, whole.n * sizeof *whole.ids);
    fletch_free(note);
    opened_close(&o);
    unlink(scratch_path());
}

static void test_a_loaded_session_goes_on(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "deepseek2", "rwkv7"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        check_resumed("ref", models[i], false);
        check_resumed("cpu", models[i], false);
        check_resumed("cpu", models[i], true);
    }
    check_resumed("ref", "qwen3_5", false);
    check_resumed("cpu", "qwen3_5", false);
    check_resumed("emu", "qwen3_5", false);
    check_resumed("cpu", "lfm2_moe", false);
    check_resumed("cpu", "falcon_h1", false);
    check_resumed("cpu", "nemotron_h_moe", false);
    check_resumed("emu", "llama", false);
    check_resumed("emu", "rwkv7", false);
}

/* ---- prompts in a folder ---- */

enum { N_LONG = 80 };

struct folder {
    struct fletch_model_params params;
    u32 n_notices;
};

static void count_notice(void *ctx, const char *text)
{
    (void)text;
    ((struct folder *)ctx)->n_notices++;
}

static void remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", scratch_path());
    assert_int_equal(system(command), 0);
}

static void open_with_folder(struct opened *o, struct folder *f, const char *backend,
                             const char *model)
{
    char path[64];
    *f = (struct folder){.params = {.n_ctx = 160,
                                    .n_sessions = 2,
                                    .n_snapshots = 2,
                                    .cache_dir = scratch_path(),
                                    .notice = count_notice,
                                    .notice_ctx = f}};
    path_of(path, sizeof path, model);
    opened_path(o, backend, path, &f->params);
}

static void long_prompt(i32 *prompt)
{
    for (i32 i = 0; i < N_LONG; i++) prompt[i] = (3 + i * i) % 100;
}

/* The answer to the long prompt, and how much of that came from the folder. */
static u32 answer(struct opened *o, struct heard *h)
{
    i32 prompt[N_LONG];
    struct fletch_generated made;
    struct fletch_generate g = {.max_tokens = N_ANSWER,
                                .sampling = {.temperature = 0.8f, .top_p = 1, .seed = 3},
                                .ignore_end = true,
                                .on_text = hear,
                                .ctx = h};
    g.sampling.repeat_penalty = 1;
    long_prompt(prompt);
    size_t n = fletch_session_recall(o->s, prompt, N_LONG);
    if (fletch_session_append(o->s, prompt + n, N_LONG - n, NULL) ||
        fletch_session_generate(o->s, &g, &made))
        fail_msg("%s", fletch_session_error(o->s));
    return (u32)n;
}

struct batched {
    struct heard heard;
    u32 n_reused;
};

static int hear_token(void *ctx, const struct fletch_token *t)
{
    return hear(&((struct batched *)ctx)->heard, t->id, t->text, t->n_text);
}

static void note_end(void *ctx, const struct fletch_result *r)
{
    ((struct batched *)ctx)->n_reused = r->n_reused;
}

/* The same as a request of a batch. */
static void answer_in_batch(struct opened *o, struct batched *got)
{
    i32 prompt[N_LONG];
    struct fletch_batch *b;
    struct fletch_request r = {.tokens = prompt,
                               .n_tokens = N_LONG,
                               .max_tokens = N_ANSWER,
                               .sampling = {.temperature = 0.8f, .top_p = 1, .seed = 3},
                               .ignore_end = true,
                               .on_token = hear_token,
                               .on_done = note_end,
                               .ctx = got};
    r.sampling.repeat_penalty = 1;
    *got = (struct batched){.n_reused = 0};
    long_prompt(prompt);
    assert_int_equal(fletch_batch_open(&b, o->m, NULL), 0);
    assert_int_equal(fletch_batch_submit(b, &r, NULL), 0);
    while (fletch_batch_step(b, 0)) continue;
    fletch_batch_close(b);
}

static void check_folder(const char *backend, const char *model)
{
    struct opened o;
    struct folder f;
    struct heard first = {.n = 0}, again = {.n = 0};
    struct batched batched;
    const u32 n_kept = (N_LONG - 1) / 32 * 32;
    open_with_folder(&o, &f, backend, model);
    assert_int_equal(answer(&o, &first), 0);
    opened_close(&o);
    open_with_folder(&o, &f, backend, model);
    assert_int_equal(answer(&o, &again), n_kept);
    answer_in_batch(&o, &batched);
    assert_int_equal(batched.n_reused, n_kept);
    opened_close(&o);
    assert_memory_equal(again.ids, first.ids, sizeof first.ids);
    assert_memory_equal(batched.heard.ids, first.ids, N_ANSWER * sizeof *first.ids);
    remove_folder();
    open_with_folder(&o, &f, backend, model);
    answer_in_batch(&o, &batched);
    assert_int_equal(batched.n_reused, 0);
    opened_close(&o);
    open_with_folder(&o, &f, backend, model);
    again.n = 0;
    assert_int_equal(answer(&o, &again), n_kept); /* a batch keeps it too */
    assert_memory_equal(again.ids, first.ids, sizeof first.ids);
    opened_close(&o);
    assert_int_equal(f.n_notices, 0);
    remove_folder();
}

static void test_prompts_come_back_from_a_folder(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "deepseek2", "rwkv7"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        for (size_t k = 0; k < ARRAY_LEN(opened_backends); k++)
            check_folder(opened_backends[k], models[i]);
    check_folder("emu", "llama");
    check_folder("ref", "qwen3_next");
    check_folder("cpu", "qwen3_next");
    check_folder("cpu", "lfm2");
    check_folder("cpu", "granite_h");
    check_folder("cpu", "kimi_linear");
}

static void write_file(const char *p, size_t n)
{
    FILE *f = fopen(scratch_path(), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void expect_refusal(struct opened *o, const char *part)
{
    char *note;
    size_t n;
    expect_error(fletch_session_load(o->s, scratch_path(), &note, &n), FLETCH_E_FORMAT,
                 fletch_session_error(o->s), part);
    assert_null(note);
    assert_int_equal(fletch_session_length(o->s), 0);
}

static void fix_checksum(char *p, size_t n)
{
    u64 sum = XXH3_64bits(p, n - sizeof sum);
    memcpy(p + n - sizeof sum, &sum, sizeof sum);
}

static void test_damaged_and_foreign_files_are_refused(void **state)
{
    (void)state;
    struct opened o, other;
    struct heard h = {.n = 0};
    struct err err;
    char *p, *note;
    size_t n, n_note;
    open_model(&o, "cpu", "llama", false);
    turn(&o, 5, &h);
    save(&o, "");
    assert_int_equal(file_read(&p, &n, scratch_path(), 1 << 24, &err), 0);
    for (size_t cut = 0; cut < n; cut += cut < 64 ? 1 : 997) { /* cut short */
        write_file(p, cut);
        expect_refusal(&o, "");
    }
    for (size_t i = 0; i < n; i += i < 64 ? 1 : 997) { /* one bit wrong */
        p[i] ^= 4;
        write_file(p, n);
        expect_refusal(&o, "");
        p[i] ^= 4;
    }
    i32 token = 1 << 20, was;
    memcpy(&was, p + 40, sizeof was); /* the first token */
    memcpy(p + 40, &token, sizeof token);
    fix_checksum(p, n);
    write_file(p, n);
    expect_refusal(&o, "token id 1048576");
    memcpy(p + 40, &was, sizeof was);
    p[12]--; /* a token less, and so the note begins earlier */
    p[24] += 4;
    fix_checksum(p, n);
    write_file(p, n);
    assert_int_equal(fletch_session_load(o.s, scratch_path(), &note, &n_note), 0); /* is as good */
    assert_int_equal(n_note, 4);
    fletch_free(note);
    p[12]++;
    p[24] -= 4;
    fix_checksum(p, n);
    write_file(p, n);
    open_model(&other, "cpu", "qwen2", false);
    expect_refusal(&other, "another model");
    opened_close(&other);
    open_model(&other, "ref", "llama", false); /* rounds differently */
    expect_refusal(&other, "another model");
    opened_close(&other);
    assert_int_equal(fletch_session_load(o.s, scratch_path(), &note, &n_note), 0);
    fletch_free(note);
    assert_int_equal(fletch_session_load(o.s, "/nowhere/at/all", &note, &n_note), FLETCH_E_IO);
    assert_int_equal(fletch_session_save(o.s, "/nowhere/at/all", "", 0), FLETCH_E_IO);
    free(p);
    opened_close(&o);
    unlink(scratch_path());
}

/* With longrope, the length of the context decides how positions are rotated. */
static void test_contexts_that_rotate_otherwise_are_refused(void **state)
{
    (void)state;
    struct fletch_model_params params = {.n_ctx = 64};
    const i32 tokens[] = {1, 2, 3};
    struct opened o;
    char *note;
    size_t n_note;
    opened_path(&o, "ref", "test/golden/models/phi3_long", &params);
    assert_int_equal(fletch_session_append(o.s, tokens, ARRAY_LEN(tokens), NULL), 0);
    save(&o, "");
    opened_close(&o);
    params.n_ctx = 80;
    opened_path(&o, "ref", "test/golden/models/phi3_long", &params);
    assert_int_equal(fletch_session_load(o.s, scratch_path(), &note, &n_note), 0);
    fletch_free(note);
    opened_close(&o);
    params.n_ctx = 48;
    opened_path(&o, "ref", "test/golden/models/phi3_long", &params);
    expect_refusal(&o, "another model");
    opened_close(&o);
    unlink(scratch_path());
}

/* ---- what follows the last token ---- */

enum { N_LOOP = 24 };

static const char *const drawing[] = {"ref", "cpu", "emu"};

struct stopped {
    struct heard heard;
    u32 stop_at;
};

static int hear_until(void *ctx, int32_t token, const char *text, size_t n)
{
    struct stopped *s = ctx;
    hear(&s->heard, token, text, n);
    return s->heard.n == s->stop_at;
}

/* An answer of N_LOOP tokens that repeat themselves, which its callback ends after each stop_at
 * tokens; 0: never. The token at which it ended is drawn again, or appended. Leaves the logits
 * after it, and gives how many draft tokens were accepted. */
static u32 answer_in_parts(struct opened *o, u32 stop_at, bool appends, float *logits)
{
    i32 prompt[N_PROMPT];
    u32 n = 0, n_accepted = 0;
    for (i32 i = 0; i < N_PROMPT; i++) prompt[i] = 5 + i % 4;
    fletch_session_reset(o->s);
    assert_int_equal(fletch_session_append(o->s, prompt, N_PROMPT, NULL), 0);
    while (n < N_LOOP) {
        struct stopped s = {.stop_at = stop_at};
        struct fletch_generated made;
        struct fletch_generate g = {.max_tokens = N_LOOP - n,
                                    .sampling = {.top_p = 1,
                                                 .repeat_penalty = 1,
                                                 .n_bias = 2,
                                                 .bias_tokens = (const i32[]){5, 6},
                                                 .bias_values = (const float[]){1000, 1000}},
                                    .ignore_end = true,
                                    .on_text = hear_until,
                                    .ctx = &s};
        assert_int_equal(fletch_session_generate(o->s, &g, &made), 0);
        n += made.n_tokens - (made.finish == FLETCH_FINISH_ASKED);
        n_accepted += made.n_accepted;
        if (appends && made.finish == FLETCH_FINISH_ASKED) {
            i32 last = s.heard.ids[s.heard.n - 1];
            assert_int_equal(fletch_session_append(o->s, &last, 1, NULL), 0);
            n++;
        }
        assert_int_equal(fletch_session_length(o->s), N_PROMPT + n);
    }
    struct fletch_model_info info;
    fletch_model_info(o->m, &info);
    memcpy(logits, fletch_session_logits(o->s), info.n_vocab * sizeof *logits);
    return n_accepted;
}

static void check_parts(const char *backend, const char *model, bool drafts)
{
    struct opened o;
    struct fletch_model_info info;
    open_model(&o, backend, model, drafts);
    fletch_model_info(o.m, &info);
    float *whole = calloc(info.n_vocab, sizeof *whole),
          *parts = calloc(info.n_vocab, sizeof *parts);
    assert_true(whole && parts);
    u32 n_accepted = answer_in_parts(&o, 0, false, whole);
    /* On ref it makes no difference whether a token is appended or generated. */
    const u32 n_ways = strcmp(backend, "ref") == 0 ? 2 : 1;
    for (u32 stop_at = 2; stop_at < 6; stop_at++)
        for (u32 appends = 0; appends < n_ways; appends++) {
            n_accepted += answer_in_parts(&o, stop_at, appends, parts);
            assert_memory_equal(whole, parts, info.n_vocab * sizeof *whole);
        }
    assert_true(!drafts || n_accepted > 20);
    free(whole);
    free(parts);
    opened_close(&o);
}

static void test_an_answer_goes_on_where_its_callback_ended_it(void **state)
{
    (void)state;
    for (u32 drafts = 0; drafts < 2; drafts++) {
        check_parts("ref", "llama", drafts);
        check_parts("ref", "rwkv7", drafts);
        check_parts("cpu", "deepseek2", drafts);
    }
    check_parts("ref", "qwen3_5", false);
    check_parts("cpu", "qwen3_5", false);
    check_parts("emu", "rwkv7", true);
}

static bool same_token(struct opened *o, const struct fletch_sampling *how)
{
    struct batched batched = {.n_reused = 0};
    struct stopped first = {.stop_at = 1};
    struct fletch_generated made;
    struct fletch_batch *b;
    i32 drawn, again;
    u32 n = fletch_session_length(o->s);
    struct fletch_generate g = {
        .sampling = *how, .ignore_end = true, .on_text = hear_until, .ctx = &first};
    struct fletch_request r = {.tokens = fletch_session_tokens(o->s),
                               .n_tokens = n,
                               .max_tokens = 1,
                               .sampling = *how,
                               .ignore_end = true,
                               .on_token = hear_token,
                               .on_done = note_end,
                               .ctx = &batched};
    assert_int_equal(fletch_session_sample(o->s, how, &drawn), 0);
    assert_int_equal(fletch_session_generate(o->s, &g, &made), 0);
    assert_int_equal(fletch_session_sample(o->s, how, &again), 0);
    assert_int_equal(fletch_session_length(o->s), n);
    assert_int_equal(fletch_batch_open(&b, o->m, NULL), 0);
    assert_int_equal(fletch_batch_submit(b, &r, NULL), 0);
    while (fletch_batch_step(b, 0)) continue;
    fletch_batch_close(b);
    return drawn == again && first.heard.n == 1 && first.heard.ids[0] == drawn &&
           batched.heard.n == 1 && batched.heard.ids[0] == drawn;
}

/* Alone, in a generation and in a batch; and it is the one that the logits give. */
static void test_the_first_token_is_drawn_as_all_others(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "deepseek2", "rwkv7", "qwen3_5"};
    for (size_t i = 0; i < ARRAY_LEN(models) * ARRAY_LEN(drawing); i++) {
        struct opened o;
        struct fletch_model_info info;
        struct fletch_model_params params = {.n_ctx = 160, .n_sessions = 2};
        char path[64];
        path_of(path, sizeof path, models[i / 3]);
        opened_path(&o, drawing[i % 3], path, &params);
        fletch_model_info(o.m, &info);
        i32 prompt[N_PROMPT], greedy, best = 0;
        for (i32 k = 0; k < N_PROMPT; k++) prompt[k] = k * k % 100;
        assert_int_equal(fletch_session_append(o.s, prompt, N_PROMPT, NULL), 0);
        for (u32 k = 0; k < 6; k++) {
            const struct fletch_sampling how = {.temperature = 0.5f * (float)k,
                                                .top_p = k % 3 ? 1 : 0.8f,
                                                .top_k = k % 2 * 5,
                                                .repeat_penalty = 1.1f,
                                                .penalty_window = 16,
                                                .seed = k};
            if (!same_token(&o, &how))
                fail_msg("%s %s: settings %u give other tokens", drawing[i % 3], path, k);
        }
        const struct fletch_sampling likeliest = {.top_p = 1, .repeat_penalty = 1};
        assert_int_equal(fletch_session_sample(o.s, &likeliest, &greedy), 0);
        const float *z = fletch_session_logits(o.s);
        assert_non_null(z);
        for (i32 k = 1; k < (i32)info.n_vocab; k++)
            if (z[k] > z[best]) best = k;
        assert_int_equal(greedy, best);
        opened_close(&o);
    }
}

static int use_itself(void *ctx, int32_t token, const char *text, size_t n)
{
    struct opened *o = ctx;
    i32 drawn;
    (void)text, (void)n;
    expect_error(fletch_session_append(o->s, &token, 1, NULL), FLETCH_E_ARG,
                 fletch_session_error(o->s), "is busy");
    expect_error(fletch_session_sample(o->s, NULL, &drawn), FLETCH_E_ARG,
                 fletch_session_error(o->s), "is busy");
    expect_error(fletch_session_generate(o->s, NULL, NULL), FLETCH_E_ARG,
                 fletch_session_error(o->s), "is busy");
    assert_null(fletch_session_logits(o->s));
    fletch_session_reset(o->s);
    return 0;
}

static void test_a_callback_cannot_use_its_own_session(void **state)
{
    (void)state;
    struct opened o;
    i32 prompt[N_PROMPT] = {0};
    struct fletch_generate g = {.max_tokens = 3, .on_text = use_itself, .ctx = &o};
    g.sampling = (struct fletch_sampling){.top_p = 1, .repeat_penalty = 1};
    g.ignore_end = true;
    open_model(&o, "cpu", "llama", false);
    assert_int_equal(fletch_session_append(o.s, prompt, N_PROMPT, NULL), 0);
    assert_int_equal(fletch_session_generate(o.s, &g, NULL), 0);
    assert_int_equal(fletch_session_length(o.s), N_PROMPT + 3);
    opened_close(&o);
}

struct told {
    u64 n, done, total, end_at;
};

static int tell_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct told *t = ctx;
    assert_true(done > t->done && done <= total);
    t->n++;
    t->done = done;
    t->total = total;
    return t->done >= t->end_at;
}

static void test_an_append_tells_its_progress_and_can_be_ended(void **state)
{
    (void)state;
    struct opened o;
    struct told told = {.end_at = 200};
    const struct fletch_append how = {.progress = tell_progress, .progress_ctx = &told};
    struct fletch_model_params params = {.n_ctx = 160, .max_rows = 16};
    i32 tokens[130] = {0};
    opened_path(&o, "cpu", "zoo/tiny/llama.gguf", &params);
    for (i32 i = 0; i < 130; i++) tokens[i] = i * i % 100;
    assert_int_equal(fletch_session_append(o.s, tokens, 30, NULL), 0);
    assert_int_equal(fletch_session_append(o.s, tokens + 30, 100, &how), 0);
    assert_true(told.n == 7 && told.done == 100 && told.total == 100);
    fletch_session_reset(o.s);
    told = (struct told){.end_at = 40};
    expect_error(fletch_session_append(o.s, tokens, 130, &how), FLETCH_E_CANCELLED,
                 fletch_session_error(o.s), "cancelled");
    u32 n = fletch_session_length(o.s);
    assert_in_range(n, 40, 80);
    assert_null(fletch_session_logits(o.s));
    expect_error(fletch_session_generate(o.s, NULL, NULL), FLETCH_E_ARG, fletch_session_error(o.s),
                 "not complete");
    assert_int_equal(fletch_session_append(o.s, tokens + n, 130 - n, NULL), 0);
    assert_non_null(fletch_session_logits(o.s));
    opened_close(&o);
}

static void change(u32 from, u32 to)
{
    struct fletch_session s = {.state = from};
    session_set(&s, to);
}

static void test_a_session_changes_as_listed_only(void **state)
{
    (void)state;
    static const u32 allowed[][2] = {
        {SESSION_EMPTY, SESSION_EMPTY},   {SESSION_EMPTY, SESSION_RUNNING},
        {SESSION_PARTIAL, SESSION_EMPTY}, {SESSION_PARTIAL, SESSION_RUNNING},
        {SESSION_READY, SESSION_EMPTY},   {SESSION_READY, SESSION_RUNNING},
        {SESSION_LOGITS, SESSION_EMPTY},  {SESSION_LOGITS, SESSION_RUNNING},
        {SESSION_RUNNING, SESSION_EMPTY}, {SESSION_RUNNING, SESSION_PARTIAL},
        {SESSION_RUNNING, SESSION_READY}, {SESSION_RUNNING, SESSION_LOGITS},
    };
    life_check(N_SESSION_STATES, change, allowed, ARRAY_LEN(allowed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_goes_on_where_its_callback_ended_it),
        cmocka_unit_test(test_the_first_token_is_drawn_as_all_others),
        cmocka_unit_test(test_a_callback_cannot_use_its_own_session),
        cmocka_unit_test(test_an_append_tells_its_progress_and_can_be_ended),
        cmocka_unit_test(test_a_session_changes_as_listed_only),
        cmocka_unit_test(test_a_loaded_session_goes_on),
        cmocka_unit_test(test_prompts_come_back_from_a_folder),
        cmocka_unit_test(test_damaged_and_foreign_files_are_refused),
        cmocka_unit_test(test_contexts_that_rotate_otherwise_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
