/* The GPU executor on the emulator, over the tiny models of the zoo: the same tokens as the
 * reference at the same profile, one submission and one wait a token, nothing made once it runs,
 * and no more memory read than the model needs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/bench.h"
#include "gpu/gpu.h"
#include "gpu/gpu_lists.h"
#include "opened.h"

static const char *const models[] = {"zoo/tiny/llama.gguf",     "zoo/tiny/qwen2.gguf",
                                     "zoo/tiny/qwen3.gguf",     "zoo/tiny/qwen3moe.gguf",
                                     "zoo/tiny/deepseek2.gguf", "zoo/tiny/rwkv7.gguf"};
enum { N_PROMPT = 13, N_TOKENS = 32, LONG = 150 };

static const struct fletch_model_params same = {.n_ctx = 256, .kv_type = "f16", .act_type = "int8"};

/* Prompts are rounded to bf16: their rows are of a class of their own. */
static const struct fletch_model_params apart = {
    .n_ctx = 256, .n_sessions = 2, .kv_type = "f16", .act_type = "bf16"};

static void prompt_of(i32 *tokens, u32 n_vocab)
{
    for (u32 i = 0; i < N_PROMPT; i++) tokens[i] = (i32)((i * 7919 + 17) % n_vocab);
}

/* Whether z[a] and z[b] lie so close that rounding may turn them round. */
static bool close_call(const float *z, u32 n, i32 a, i32 b)
{
    float top = 0;
    for (u32 i = 0; i < n; i++) top = fmaxf(top, fabsf(z[i]));
    return fabsf(z[a] - z[b]) <= 0.05f * top;
}

/* Both sides choose greedily and at a temperature, then both are fed what the reference chose. */
static void chooses_the_tokens_of_the_reference(void **state)
{
    struct opened gpu, ref;
    struct fletch_model_info info;
    u32 n_greedy = 0, n_drawn = 0;
    opened_path(&gpu, "emu", *state, &same);
    opened_path(&ref, "ref", *state, &same);
    fletch_model_info(ref.m, &info);
    struct fletch_sampling greedy = info.sampling, drawn = info.sampling;
    greedy.temperature = 0;
    drawn.temperature = 0.8f;
    drawn.seed = 42;
    i32 prompt[N_PROMPT], a, b;
    prompt_of(prompt, info.n_vocab);
    assert_int_equal(fletch_session_append(gpu.s, prompt, N_PROMPT, NULL), 0);
    assert_int_equal(fletch_session_append(ref.s, prompt, N_PROMPT, NULL), 0);
    for (u32 i = 0; i < N_TOKENS; i++) {
        assert_int_equal(fletch_session_sample(gpu.s, &greedy, &a), 0);
        assert_int_equal(fletch_session_sample(ref.s, &greedy, &b), 0);
        n_greedy += a != b;
        if (a != b && !close_call(fletch_session_logits(ref.s), info.n_vocab, a, b))
            fail_msg("%s: token %u is %d, not %d", (const char *)*state, i, (int)a, (int)b);
        assert_int_equal(fletch_session_sample(gpu.s, &drawn, &a), 0);
        assert_int_equal(fletch_session_sample(ref.s, &drawn, &b), 0);
        n_drawn += a != b;
        assert_int_equal(fletch_session_append(gpu.s, &b, 1, NULL), 0);
        assert_int_equal(fletch_session_append(ref.s, &b, 1, NULL), 0);
    }
    assert_true(n_greedy <= 1 && n_drawn <= 2);
    opened_close(&gpu);
    opened_close(&ref);
}

static struct exec_counters counters_of(const struct fletch_model *m)
{
    struct exec_counters c;
    m->x->class->counters(m->x, &c);
    return c;
}

/* Launches of one row that a layer may take (docs/gpu.md says which). */
static u32 budget_of(const char *model)
{
    return strstr(model, "deepseek2") ? 8 : strstr(model, "moe") ? 6 : 5;
}

static int layer_of(const struct program *p, u32 group)
{
    return p->groups[group].ops[0]->layer;
}

static void layers_keep_their_budget(const struct program *p, const u32 *by_group, u32 budget)
{
    for (u32 i = 0, n = 0; i < p->n_groups; i++) {
        n = i > 0 && layer_of(p, i) == layer_of(p, i - 1) ? n + by_group[i] : by_group[i];
        if (layer_of(p, i) >= 0) assert_in_range(n, 1, budget);
    }
}

static void one_submission_and_wait_for_a_token(void **state)
{
    enum { WARM = 2, N = 24 }; /* crosses the border of a cache block */
    struct opened o;
    struct fletch_model_info info;
    i32 prompt[N_PROMPT];
    opened_path(&o, "emu", *state, &same);
    fletch_model_info(o.m, &info);
    prompt_of(prompt, info.n_vocab);
    assert_int_equal(fletch_session_append(o.s, prompt, N_PROMPT, NULL), 0);
    struct fletch_generate g = {.sampling = info.sampling, .max_tokens = WARM, .ignore_end = true};
    struct fletch_generated result;
    g.sampling.temperature = 0;
    assert_int_equal(fletch_session_generate(o.s, &g, &result), 0);
    struct exec_counters before = counters_of(o.m);
    u64 n_ahead = o.m->queue.n_ahead;
    g.max_tokens = N;
    assert_int_equal(fletch_session_generate(o.s, &g, &result), 0);
    assert_int_equal(result.n_tokens, N);
    struct exec_counters after = counters_of(o.m);
    assert_int_equal(after.submissions - before.submissions, N);
    assert_int_equal(after.waits - before.waits, N);
    assert_int_equal(o.m->queue.n_ahead - n_ahead, o.m->m->net->n_states ? 0 : N - 1);
    assert_int_equal(after.buffers_made, before.buffers_made);
    assert_int_equal(after.kernels_made, before.kernels_made);
    assert_int_equal(after.lists_made, before.lists_made);
    u32 total, *by_group = calloc(o.m->trunk->n_groups, sizeof *by_group);
    assert_int_equal(o.m->x->class->launches(o.m->x->class, o.m->trunk, &o.m->limits, 1, 0,
                                             by_group, &total, &o.m->err),
                     0);
    assert_int_equal(after.launches - before.launches, (u64)N * total);
    layers_keep_their_budget(o.m->trunk, by_group, budget_of(*state));
    free(by_group);
    opened_close(&o);
}

/* A row's bits are the same alone, among others, and in chunks of any size. */
static void rows_do_not_depend_on_their_step(void **state)
{
    static const u32 chunks[] = {1, 3};
    struct opened o;
    struct fletch_model_info info;
    i32 prompt[N_PROMPT];
    opened_path(&o, "emu", *state, &apart);
    fletch_model_info(o.m, &info);
    prompt_of(prompt, info.n_vocab);
    size_t row = info.n_vocab * sizeof(float);
    float *want = malloc(row * N_PROMPT), *got = malloc(row * N_PROMPT);
    assert_int_equal(
        fletch_session_append(o.s, prompt, N_PROMPT, &(struct fletch_append){.all_logits = want}),
        0);
    for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
        fletch_session_reset(o.s);
        for (u32 i = 0; i < N_PROMPT; i += chunks[c]) {
            u32 n = MIN(chunks[c], N_PROMPT - i);
            assert_int_equal(
                fletch_session_append(
                    o.s, prompt + i, n,
                    &(struct fletch_append){.all_logits = got + (size_t)i * info.n_vocab}),
                0);
        }
        assert_memory_equal(got, want, row * N_PROMPT);
    }
    free(want);
    free(got);
    opened_close(&o);
}

/* Runs the rows (slot 0 reads, slot 1 answers), all of which want logits; z: [n][V]. */
static void run_rows(struct opened *o, const struct row *rows, u32 n, float *z)
{
    struct step *s = o->m->step;
    struct exec *x = o->m->x;
    struct operand logits = {o->m->trunk->logits, 0, o->m->m->net->n_vocab};
    struct err err = {0};
    step_reset(s);
    for (u32 slot = 0; slot < 2; slot++)
        for (u32 i = 0; i < 4; i++) s->tables[slot * s->table_len + i] = 2 * i + slot;
    for (u32 i = 0; i < n; i++) {
        if (rows[i].pos == 0) assert_true(step_edit(s, EDIT_ZERO_STATE, rows[i].slot, 0));
        assert_true(step_add(s, rows[i], true));
    }
    step_prepare(s);
    assert_int_equal(x->class->submit(x, o->m->queue.handle, s, &err), 0);
    assert_int_equal(x->class->wait(x, &err), 0);
    assert_int_equal(x->class->read(x, o->m->queue.handle, logits, 0, n, z, &err), 0);
}

/* A step of both classes leaves each row the bits that it has in a step of its own. */
static void classes_share_a_step(void **state)
{
    enum { N = 4 };
    struct opened o;
    struct row rows[2 * N];
    opened_path(&o, "emu", *state, &apart);
    u32 n_vocab = o.m->m->net->n_vocab;
    for (u32 i = 0; i < 2 * N; i++) {
        u32 slot = i % 2, pos = i / 2;
        rows[i] = (struct row){(i32)((7 * i + 3) % n_vocab), slot, pos, slot ? ROW_D : ROW_P};
    }
    size_t row = n_vocab * sizeof(float);
    float *together = malloc(2 * N * row), *alone = malloc(row);
    run_rows(&o, rows, 2 * N, together);
    for (u32 i = 0; i < 2 * N; i++) {
        run_rows(&o, &rows[i], 1, alone);
        assert_memory_equal(together + (size_t)i * n_vocab, alone, row);
    }
    free(together);
    free(alone);
    opened_close(&o);
}

/* A step of a shape that was made ready records nothing, whole or in pieces. */
static void prepared_steps_record_nothing(void **state)
{
    enum { N = 5 };
    struct opened o;
    struct row rows[N];
    struct err err = {0};
    opened_path(&o, "emu", *state, &apart);
    struct exec *x = o.m->x;
    u32 n_vocab = o.m->m->net->n_vocab, n_groups = o.m->trunk->n_groups, handle = o.m->queue.handle;
    float *whole = malloc(2 * N * n_vocab * sizeof *whole), *pieces = whole + N * n_vocab;
    struct step_shape shapes[] = {{0, N, 0, UINT32_MAX}, {0, N, 0, 3}, {0, N, 3, n_groups}};
    for (u32 i = 0; i < N; i++) rows[i] = (struct row){(i32)(7 * i + 3), 0, i, ROW_P};
    struct exec_counters before = counters_of(o.m);
    for (u32 i = 0; i < ARRAY_LEN(shapes); i++)
        assert_int_equal(x->class->prepare(x, handle, shapes[i], &err), 0);
    struct exec_counters ready = counters_of(o.m);
    assert_true(ready.lists_made >= before.lists_made + ARRAY_LEN(shapes));
    run_rows(&o, rows, N, whole);
    for (u32 i = 1; i < ARRAY_LEN(shapes); i++) {
        o.m->step->group_begin = shapes[i].group_begin;
        o.m->step->group_end = shapes[i].group_end;
        assert_int_equal(x->class->submit(x, handle, o.m->step, &err), 0);
        assert_int_equal(x->class->wait(x, &err), 0);
    }
    struct operand logits = {o.m->trunk->logits, 0, n_vocab};
    assert_int_equal(x->class->read(x, handle, logits, 0, N, pieces, &err), 0);
    assert_memory_equal(pieces, whole, N * n_vocab * sizeof *whole);
    assert_int_equal(counters_of(o.m).lists_made, ready.lists_made);
    free(whole);
    opened_close(&o);
}

/* What the driver has allocated is what the plan said, but for lists, which it counts with as many
 * as may be kept at once. Then it stays so, whatever is recorded. */
static void memory_is_as_planned(void **state)
{
    static const struct fletch_model_params cases[] = {
        {.n_ctx = 80, .max_rows = 4, .n_sessions = 3, .kv_type = "f16", .act_type = "int8"},
        {.n_ctx = 64, .max_rows = 4, .n_sessions = 2, .kv_type = "f16", .act_type = "bf16"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct opened o;
        struct plan plan;
        struct gpu_sizes size;
        struct err err = {0};
        opened_path(&o, "emu", *state, &cases[i]);
        struct exec *x = o.m->x;
        const struct gpu_driver *d = gpu_driver_of(x->class);
        struct exec_limits *limits = &o.m->limits;
        struct list_kind kind = {.caps = limits->found.caps};
        plan_make(&plan, o.m->m, o.m->trunk, x->class, limits, 0);
        assert_int_equal(gpu_measure(&size, o.m->trunk, limits, d, &kind, &err), 0);
        /* logits are the host's, and so is nothing else */
        u64 logits = (u64)limits->n_slots * o.m->m->hp.n_vocab * sizeof(float);
        u64 lists = size.lists * (limits->twice ? 2 : 1), most = plan.total - logits;
        assert_int_equal(counters_of(o.m).bytes_allocated, most - lists);
        u64 least = UINT64_MAX, peak = 0;
        u32 n_groups = o.m->trunk->n_groups;
        for (u32 round = 0; round < 2; round++)
            for (u32 end = 1; end <= n_groups; end++)
                for (u32 n = 1; n <= limits->max_rows; n *= 2) {
                    struct step_shape shape = {n, 0, n_groups - end, n_groups};
                    assert_int_equal(x->class->prepare(x, o.m->queue.handle, shape, &err), 0);
                    u64 now = counters_of(o.m).bytes_allocated;
                    assert_true(now <= most);
                    if (now < peak) least = MIN(least, now);
                    peak = MAX(peak, now);
                }
        assert_true(peak > most - lists);
        if (i == 0) /* they were dropped, and not before the room was full */
            assert_true(least < peak && most - peak <= most / 50);
        opened_close(&o);
    }
}

/* The last row's logits behind n tokens, fed in chunks. */
static void feed_long(struct opened *o, u32 n, u32 chunk, float *z)
{
    u32 n_vocab = o->m->m->net->n_vocab;
    i32 tokens[LONG];
    for (u32 i = 0; i < n; i++) tokens[i] = (i32)((i * i * 31 + i * 17 + 5) % n_vocab);
    fletch_session_reset(o->s);
    for (u32 i = 0; i < n; i += chunk)
        assert_int_equal(fletch_session_append(o->s, tokens + i, MIN(chunk, n - i), NULL), 0);
    memcpy(z, fletch_session_logits(o->s), n_vocab * sizeof *z);
}

/* A prompt of more rows than a tile of attention has, in one step: near the reference, and the same
 * bits in two. */
static void a_long_prompt_is_that_of_the_reference(void **state)
{
    struct opened gpu, ref;
    struct fletch_model_params params = apart;
    params.max_rows = LONG;
    opened_path(&gpu, "emu", *state, &params);
    opened_path(&ref, "ref", *state, &params);
    u32 n_vocab = gpu.m->m->net->n_vocab;
    float *z = malloc(3 * n_vocab * sizeof *z), *again = z + n_vocab, *want = again + n_vocab;
    float top = 0, off = 0;
    feed_long(&gpu, LONG, LONG, z);
    feed_long(&gpu, LONG, LONG / 2 + 3, again);
    feed_long(&ref, LONG, LONG, want);
    for (u32 i = 0; i < n_vocab; i++) {
        top = fmaxf(top, fabsf(want[i]));
        off = fmaxf(off, fabsf(z[i] - want[i]));
    }
    if (!(off <= 0.02f * top)) fail_msg("%s: logits differ by %g of %g", (char *)*state, off, top);
    assert_memory_equal(z, again, n_vocab * sizeof *z);
    free(z);
    opened_close(&gpu);
    opened_close(&ref);
}

int main(void)
{
    struct CMUnitTest tests[6 * ARRAY_LEN(models) + 2];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
        a_long_prompt_is_that_of_the_reference, (void *)(uintptr_t) "zoo/tiny/llama.gguf");
    tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
        a_long_prompt_is_that_of_the_reference, (void *)(uintptr_t) "zoo/tiny/deepseek2.gguf");
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        void *m = (void *)(uintptr_t)models[i];
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_prestate(chooses_the_tokens_of_the_reference, m);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_prestate(one_submission_and_wait_for_a_token, m);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_prestate(rows_do_not_depend_on_their_step, m);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(classes_share_a_step, m);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(prepared_steps_record_nothing, m);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(memory_is_as_planned, m);
    }
    return _cmocka_run_group_tests("gpu", tests, n, NULL, NULL);
}
