/* The scheduler on an executor of its own: "computing" a token means to write it, with its class,
 * where the block table says, and the next token is a hash of all that stands there. Whatever goes
 * wrong with blocks, states, classes or positions changes tokens. It does so in each of two layers,
 * so that a step which rests between them is seen. Memory can be made to fail. All tests run
 * plainly, with steps that are queued ahead, and with prompts that are read beside answers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int fails_at = -1; /* the allocation that fails, counted down; -1: none */

static void *faulty_calloc(size_t n, size_t size)
{
    return fails_at >= 0 && fails_at-- == 0 ? NULL : calloc(n, size);
}
static void *faulty_malloc(size_t n)
{
    return fails_at >= 0 && fails_at-- == 0 ? NULL : malloc(n);
}
static void *faulty_realloc(void *p, size_t n)
{
    return fails_at >= 0 && fails_at-- == 0 ? NULL : realloc(p, n);
}

/* The module itself, so that its allocations are ours. */
#include "core/step.h"
#define calloc  faulty_calloc
#define malloc  faulty_malloc
#define realloc faulty_realloc
#define submit  lane_submit
#include "core/lane.c"
#include "serve/batch.c"
#include "serve/batch_deliver.c"
#include "serve/batch_rows.c"
#define find kv_find
#define hold kv_hold
#define NONE KV_NONE
#define take kv_take
#include "serve/kv.c"
#undef find
#undef hold
#undef take
#include "serve/queue.c"
#include "serve/snap.c"
#define learn reading_learn
#include "serve/reading.c"
#undef learn
#undef calloc
#undef malloc
#undef realloc

enum { VOCAB = 500, N_SLOTS = 10, N_SNAPS = 3, BLOCK = 8, N_BLOCKS = 60, MAX_POS = 200 };

enum { LAYERS = 6, N_OPS = LAYERS + 2 }; /* what comes first, the layers, what gives tokens */

struct stub {
    struct exec base;
    bool recurrent, fails;
    bool loses; /* it fails while a step is on its way */
    i32 kv[LAYERS][N_BLOCKS * BLOCK];
    u64 state[LAYERS][N_SLOTS + N_SNAPS];
    struct {
        i32 ids[2][64];      /* of step i at i % 2 */
        u32 n_begun, n_done; /* steps */
        u32 next_op;         /* that its step goes on with */
        u64 rows;            /* a hash of them, while it rests */
    } program[2];            /* of answers, and of prompts where there is a reader */
    u32 away[2];             /* programs of what is on its way, the older first; + 2: to its end */
    u32 n_submits, n_waits, n_chosen; /* chosen: rows whose token the host did not know */
    u32 most_prompt_rows;             /* beside answers */
};

static bool ahead; /* steps are queued ahead */
static bool reads; /* there is a reader */

static u64 fold(u64 h, i32 token, enum row_class cls)
{
    h = (h ^ (u64)(token * 2 + (i32)cls)) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static i32 token_of(u64 h)
{
    return (i32)(h % VOCAB);
}

/* What row t leaves in a layer. */
static void compute(struct stub *e, const struct step *s, u32 layer, u32 t, i32 token)
{
    const struct row *r = &s->rows[t];
    const u32 *table = s->tables + (size_t)r->slot * s->table_len;
    u64 *state = &e->state[layer][r->slot];
    *state = fold(r->pos ? *state : 0, token, r->cls);
    if (!e->recurrent)
        e->kv[layer][table[r->pos / BLOCK] * BLOCK + r->pos % BLOCK] = token * 2 + (i32)r->cls;
}

/* The token behind row r by what a layer has of it and all before it. */
static i32 result(const struct stub *e, const struct step *s, u32 layer, const struct row *r)
{
    const u32 *table = s->tables + (size_t)r->slot * s->table_len;
    u64 h = e->recurrent ? e->state[layer][r->slot] : 0;
    for (u32 i = 0; i <= r->pos && !e->recurrent; i++) {
        i32 v = e->kv[layer][table[i / BLOCK] * BLOCK + i % BLOCK];
        h = fold(h, v / 2, (enum row_class)(v & 1));
    }
    return token_of(h);
}

/* Out rows give what all layers agree upon. */
static void choose(const struct stub *e, const struct step *s, i32 *ids)
{
    for (u32 i = 0; i < s->n_out; i++) {
        const struct row *r = &s->rows[s->out_rows[i]];
        ids[i] = result(e, s, 0, r);
        for (u32 j = 1; j < LAYERS; j++) assert_int_equal(ids[i], result(e, s, j, r));
    }
}

static int stub_submit(struct exec *x, u32 handle, const struct step *s, struct err *err)
{
    struct stub *e = (struct stub *)x;
    u32 n_p = 0, n_d = 0, end = MIN(s->op_end, (u32)N_OPS);
    u64 rows = 0;
    if (e->fails) return err_set(err, FLETCH_E_BACKEND, "the device is gone");
    u32 n_away = e->n_submits++ - e->n_waits, nth = e->program[handle].n_begun;
    assert_true(n_away < 2);
    for (u32 t = 0; t < s->n_rows; t++) {
        rows = fold(rows, s->rows[t].token + (i32)s->rows[t].pos, s->rows[t].cls);
        n_p += s->rows[t].cls == ROW_P;
        n_d += s->rows[t].cls == ROW_D;
        e->n_chosen += s->rows[t].token < 0;
    }
    if (s->op_begin) assert_true(e->program[handle].rows == rows);
    assert_true(s->op_begin == 0 || s->op_begin == e->program[handle].next_op);
    for (u32 op = s->op_begin; op < end; op++) {
        for (u32 i = 0; op == 0 && i < s->n_edits; i++)
            for (u32 j = 0; j < LAYERS; j++)
                e->state[j][s->edits[i].dst] =
                    s->edits[i].kind == EDIT_ZERO_STATE ? 0 : e->state[j][s->edits[i].src];
        for (u32 t = 0; op > 0 && op <= LAYERS && t < s->n_rows; t++) {
            i32 token = s->rows[t].token;
            if (token < 0) token = e->program[handle].ids[(nth + 1) % 2][~token];
            compute(e, s, op - 1, t, token);
        }
        if (op == N_OPS - 1) choose(e, s, e->program[handle].ids[nth % 2]);
    }
    e->away[n_away] = handle + (end == N_OPS ? 2 : 0);
    e->program[handle].n_begun += end == N_OPS;
    e->program[handle].next_op = end;
    e->program[handle].rows = rows;
    if (n_d) e->most_prompt_rows = MAX(e->most_prompt_rows, n_p);
    return 0;
}

static int stub_wait(struct exec *x, struct err *err)
{
    struct stub *e = (struct stub *)x;
    assert_true(e->n_waits++ < e->n_submits);
    e->program[e->away[0] % 2].n_done += e->away[0] / 2;
    e->away[0] = e->away[1];
    return e->loses ? err_set(err, FLETCH_E_BACKEND, "the device is gone") : 0;
}

static int stub_read(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                     float *dst, struct err *err)
{
    (void)err;
    struct stub *e = (struct stub *)x;
    const i32 *ids = e->program[handle].ids[(e->program[handle].n_done + 1) % 2];
    if (what.buf == 0) memcpy(dst, ids + row, n_rows * sizeof(i32));
    if (what.buf) assert_int_equal(e->n_submits, e->n_waits); /* the next step writes there */
    for (u32 i = 0; what.buf && i < n_rows * what.width; i++) dst[i] = (float)what.buf;
    return 0;
}

static const struct exec_class stub_class = {
    .name = "stub", .queues = true, .submit = stub_submit, .wait = stub_wait, .read = stub_read};

struct fixture {
    struct stub x;
    struct net net;
    struct program p;
    struct op ops[N_OPS];
    struct step *step, *read_step;
    struct lane lane, reader;
    struct kv_pool kv;
    bool slot_used[N_SLOTS];
    struct batch *b;
    struct err err;
    u64 random;
};

static u32 below(struct fixture *f, u32 n)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (u32)(f->random >> 33) % n;
}

static int open_batch(struct fixture *f, const struct fletch_batch_params *params)
{
    struct batch_env env = {
        .lane = &f->lane, .kv = &f->kv, .slot_used = f->slot_used, .n_slots = N_SLOTS};
    if (reads) env.reader = &f->reader;
    return batch_open(&f->b, &env, params, &f->err);
}

static struct fixture *open_world(bool recurrent)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct exec_limits limits = {.max_rows = 24,
                                 .max_out = 16,
                                 .n_slots = N_SLOTS + N_SNAPS,
                                 .n_blocks = N_BLOCKS,
                                 .block_tokens = BLOCK,
                                 .max_pos = MAX_POS};
    fails_at = -1;
    f->random = 1;
    f->x.base.class = &stub_class;
    f->x.recurrent = recurrent;
    f->net.n_vocab = VOCAB;
    f->net.n_kv = !recurrent;
    f->net.n_states = recurrent;
    for (u32 i = 0; i < N_OPS; i++) f->ops[i].layer = i > LAYERS ? -1 : (int)i - 1;
    f->p = (struct program){
        .net = &f->net, .ops = f->ops, .n_ops = N_OPS, .sampled = 0, .logprobs = 1, .top = 2};
    assert_int_equal(step_open(&f->step, &f->net, &limits, &f->err), 0);
    assert_int_equal(step_open_beside(&f->read_step, f->step, &f->err), 0);
    f->reader = (struct lane){.x = &f->x.base, .p = &f->p, .step = f->read_step, .handle = 1};
    f->lane = (struct lane){.x = &f->x.base, .p = &f->p, .step = f->step, .ahead = ahead};
    assert_int_equal(kv_open(&f->kv, recurrent ? 0 : N_BLOCKS, BLOCK, &f->err), 0);
    return f;
}

static struct fixture *open_fixture(bool recurrent, const struct fletch_batch_params *params)
{
    struct fixture *f = open_world(recurrent);
    assert_int_equal(open_batch(f, params), 0);
    return f;
}

static void close_fixture(struct fixture *f)
{
    batch_close(f->b);
    assert_int_equal(f->x.n_submits, f->x.n_waits);
    kv_check(&f->kv, NULL, NULL, 0);
    for (u32 i = 0; i < N_SLOTS; i++) assert_false(f->slot_used[i]);
    kv_close(&f->kv);
    step_close(f->read_step);
    step_close(f->step);
    free(f);
}

/* One request, and what became of it. */
struct asked {
    i32 tokens[MAX_POS];
    u32 n_prompt, max_tokens, n_got, n_done, stop_at;
    u32 n_told, first_told, last_told; /* how much of its prompt was read */
    u64 id;
    struct fletch_result result;
    char error[128];
};

static bool on_token(void *ctx, i32 token, const struct batch_logprobs *logprobs)
{
    struct asked *a = ctx;
    (void)logprobs;
    u64 h = 0;
    u32 n = a->n_prompt + a->n_got;
    assert_false(a->n_done);
    for (u32 i = 0; i < n; i++) h = fold(h, a->tokens[i], i < a->n_prompt ? ROW_P : ROW_D);
    assert_int_equal(token, token_of(h));
    a->tokens[n] = token;
    return ++a->n_got == a->stop_at;
}

static void on_reading(void *ctx, const struct fletch_reading *r)
{
    struct asked *a = ctx;
    if (!a->n_told++) a->first_told = r->n_done;
    assert_in_range(r->n_done, a->last_told, a->n_prompt);
    a->last_told = r->n_done;
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct asked *a = ctx;
    a->n_done++;
    a->result = *r;
    snprintf(a->error, sizeof a->error, "%s", r->error);
    a->result.error = a->error;
}

static struct batch_request request_of(struct asked *a)
{
    return (struct batch_request){.tokens = a->tokens,
                                  .n_tokens = a->n_prompt,
                                  .max_tokens = a->max_tokens,
                                  .sampling = {.top_p = 1, .repeat_penalty = 1},
                                  .on_reading = on_reading,
                                  .on_token = on_token,
                                  .on_done = on_done,
                                  .ctx = a};
}

static struct asked ask(u32 n_prompt, u32 max_tokens)
{
    struct asked a = {.n_prompt = n_prompt, .max_tokens = max_tokens};
    for (u32 i = 0; i < n_prompt; i++) a.tokens[i] = (i32)(i * i % VOCAB);
    return a;
}

static void submit(struct fixture *f, struct asked *a, struct batch_request r)
{
    if (batch_submit(f->b, &r, &a->id, &f->err)) fail_msg("%s", f->err.text);
}

static void drain(struct fixture *f)
{
    while (batch_step(f->b, 0)) batch_check(f->b);
    batch_check(f->b);
}

/* ---- traffic ---- */

enum { N_TRAFFIC = 10000, AT_ONCE = 40 };

static void start_random(struct fixture *f, struct asked *a)
{
    *a = (struct asked){.n_prompt = 1 + below(f, below(f, 4) ? 40 : 150)};
    a->max_tokens = 1 + below(f, MIN(60u, MAX_POS - a->n_prompt));
    a->stop_at = below(f, 3) ? 0 : 1 + below(f, a->max_tokens);
    u32 theme = below(f, 12); /* prompts of a theme begin alike, and go on alike for a while */
    for (u32 i = 0; i < a->n_prompt; i++)
        a->tokens[i] = theme < 8 && i < 20 + 10 * theme ? (i32)((theme * 31 + i * 7) % VOCAB)
                                                        : (i32)below(f, VOCAB);
    struct batch_request r = request_of(a);
    r.client = below(f, 5);
    r.priority = (i32)below(f, 3);
    submit(f, a, r);
}

static void check_end(const struct asked *a, bool cancelled)
{
    assert_int_equal(a->n_done, 1);
    assert_int_equal(a->result.n_generated, a->n_got);
    if (cancelled && a->result.finish == FLETCH_FINISH_CANCELLED) return;
    if (a->stop_at)
        assert_int_equal(a->n_got, a->stop_at);
    else
        assert_int_equal(a->n_got, a->max_tokens);
    assert_int_equal(a->result.finish, a->stop_at ? FLETCH_FINISH_ASKED : FLETCH_FINISH_LENGTH);
}

static void random_traffic(bool recurrent)
{
    struct fixture *f = open_fixture(recurrent, NULL);
    struct asked *asked = calloc(AT_ONCE, sizeof *asked);
    bool cancelled[AT_ONCE] = {false};
    u32 n_started = 0, n_cancelled = 0;
    while (n_started < N_TRAFFIC) {
        u32 i = below(f, AT_ONCE);
        if (!asked[i].n_prompt || asked[i].n_done) {
            if (asked[i].n_prompt) check_end(&asked[i], cancelled[i]);
            start_random(f, &asked[i]);
            cancelled[i] = false;
            n_started++;
        } else if (below(f, 30) == 0) {
            assert_int_equal(batch_cancel(f->b, asked[i].id, &f->err), 0);
            cancelled[i] = true;
            n_cancelled++;
        }
        if (below(f, 2)) batch_step(f->b, 0);
        if (n_started % 16 == 0) batch_check(f->b);
    }
    drain(f);
    for (u32 i = 0; i < AT_ONCE; i++) check_end(&asked[i], cancelled[i]);
    struct fletch_batch_stats s;
    batch_stats(f->b, &s);
    assert_int_equal(s.n_done, N_TRAFFIC);
    assert_true(s.n_failed == 0 && n_cancelled > 100 && s.n_mixed > 1000);
    assert_true(s.n_reused > (recurrent ? 1000u : 20000u));
    assert_int_equal(s.n_free + s.n_idle, s.n_blocks); /* all came back */
    if (!recurrent) assert_true(s.n_preemptions > 50 && s.n_evicted > 1000);
    assert_int_equal(s.most_running, N_SLOTS);
    if (!ahead) assert_int_equal(f->x.n_chosen, 0);
    if (ahead &&
        !reads) /* none is queued ahead of a prompt that is read, and there always is one */
        assert_true(s.n_ahead > s.n_steps / 2 && f->x.n_chosen > 20000);
    close_fixture(f);
    free(asked);
}

static void test_ten_thousand_requests_with_blocks(void **state)
{
    (void)state;
    random_traffic(false);
}

static void test_ten_thousand_requests_with_states(void **state)
{
    (void)state;
    random_traffic(true);
}

/* ---- ends ---- */

static void test_cancel_works_at_the_next_step(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(150, 40), b[N_SLOTS + 3];
    submit(f, &a, request_of(&a));
    batch_step(f->b, 0); /* 24 of its 150 tokens are read, the next may be on their way */
    assert_int_equal(f->b->running[0]->n_fed, ahead && !reads ? 48 : 24);
    batch_cancel(f->b, a.id, &f->err);
    assert_int_equal(batch_step(f->b, 0), 0);
    assert_true(a.n_done == 1 && a.result.finish == FLETCH_FINISH_CANCELLED && a.n_got == 0);
    for (u32 i = 0; i < ARRAY_LEN(b); i++) {
        b[i] = ask(2, 30);
        submit(f, &b[i], request_of(&b[i]));
    }
    for (u32 i = 0; i < 3; i++) batch_step(f->b, 0);
    u64 late = b[N_SLOTS + 2].id; /* it waits */
    batch_cancel(f->b, late, &f->err);
    batch_cancel(f->b, b[0].id, &f->err);
    batch_cancel(f->b, 12345, &f->err); /* nobody's */
    batch_step(f->b, 0);
    assert_true(b[0].n_done && b[N_SLOTS + 2].n_done && !b[N_SLOTS + 2].n_got);
    drain(f);
    for (u32 i = 1; i < N_SLOTS + 2; i++) assert_int_equal(b[i].n_got, 30);
    batch_cancel(f->b, b[1].id, &f->err); /* done already */
    batch_step(f->b, 0);
    assert_int_equal(b[1].n_done, 1);
    close_fixture(f);
}

static void test_time_runs_out(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(3, 0), b = ask(3, 5);
    struct batch_request r = request_of(&a);
    r.timeout = 1e-9;
    submit(f, &a, r);
    submit(f, &b, request_of(&b));
    drain(f);
    assert_int_equal(a.result.finish, FLETCH_FINISH_TIMEOUT);
    assert_int_equal(b.result.finish, FLETCH_FINISH_LENGTH);
    close_fixture(f);
}

static void test_the_context_ends_an_answer_without_limit(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(7, 0);
    submit(f, &a, request_of(&a));
    drain(f);
    assert_int_equal(a.result.finish, FLETCH_FINISH_CONTEXT);
    assert_int_equal(a.n_got, MAX_POS - 7);
    close_fixture(f);
}

static void test_closing_cancels_what_is_not_done(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a[N_SLOTS + 2];
    for (u32 i = 0; i < ARRAY_LEN(a); i++) {
        a[i] = ask(5, 50);
        submit(f, &a[i], request_of(&a[i]));
        if (i != N_SLOTS + 1) batch_step(f->b, 0); /* one was never seen by a step */
    }
    close_fixture(f);
    for (u32 i = 0; i < ARRAY_LEN(a); i++)
        assert_true(a[i].n_done == 1 && a[i].result.finish == FLETCH_FINISH_CANCELLED);
}

/* ---- who comes first ---- */

static void test_clients_take_turns(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked many[60], one = ask(5, 5);
    for (u32 i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = ask(20, 20);
        submit(f, &many[i], request_of(&many[i]));
    }
    for (u32 i = 0; i < 40; i++) batch_step(f->b, 0);
    struct batch_request r = request_of(&one);
    r.client = 7;
    submit(f, &one, r);
    drain(f);
    u32 later = 0;
    for (u32 i = 0; i < ARRAY_LEN(many); i++)
        later += many[i].result.queue_seconds + (double)0 > one.result.queue_seconds;
    assert_true(later > 30); /* it passed most of those who came before it */
    close_fixture(f);
}

static void test_priorities_go_first_and_nobody_starves(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked low = ask(4, 4), *high = calloc(2000, sizeof *high);
    u32 n = 0;
    for (; n < 30; n++) {
        high[n] = ask(4, 8);
        struct batch_request r = request_of(&high[n]);
        r.priority = 2;
        submit(f, &high[n], r);
    }
    submit(f, &low, request_of(&low));
    u32 n_steps = 0;
    for (; !low.n_done; n_steps++) { /* more important ones keep coming */
        batch_step(f->b, 0);
        for (; f->b->n_live < 30 && n < 2000; n++) {
            high[n] = ask(4, 8);
            struct batch_request r = request_of(&high[n]);
            r.priority = 2;
            submit(f, &high[n], r);
        }
    }
    assert_in_range(n_steps, QUEUE_AGE, 3 * QUEUE_AGE);
    drain(f);
    free(high);
    close_fixture(f);
}

static void test_prompts_leave_room_for_answers(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(3, 100), b = ask(150, 10);
    f->b->budget = 5;
    submit(f, &a, request_of(&a));
    for (u32 i = 0; i < 3; i++) batch_step(f->b, 0);
    submit(f, &b, request_of(&b));
    u32 before = a.n_got;
    f->b->usual = 0; /* nothing was learnt: the budget stays */
    for (u32 i = 0; i < 10; i++) {
        batch_step(f->b, 0);
        f->b->usual = 0;
    }
    assert_int_equal(a.n_got, before + 10); /* one each step, whatever else is read */
    assert_int_equal(f->x.most_prompt_rows, 5);
    drain(f);
    close_fixture(f);
}

static void test_the_budget_follows_the_time_steps_take(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct voyage v = {.n_answers = 1};
    for (u32 i = 0; i < 50; i++) learn(f->b, &v, 0.010);
    assert_true(f->b->usual > 0.0099 && f->b->usual < 0.0101);
    /* 5 ms and 0.5 ms more for every row: 30 rows are twice 10 ms */
    for (u32 i = 0; i < 100; i++) {
        v.n_prompts = (u32)f->b->budget;
        learn(f->b, &v, 0.005 + 0.0005 * v.n_prompts);
    }
    assert_in_range((u32)f->b->budget, 14, 24); /* max_rows is 24 */
    for (u32 i = 0; i < 100; i++) learn(f->b, &v, 1);
    assert_int_equal((u32)f->b->budget, MIN_BUDGET);
    f->step->limits.max_rows = 256; /* few rows of many: no fewer than pay */
    f->net.profile.bf16 = true;
    for (u32 i = 0; i < 100; i++) learn(f->b, &v, 1);
    assert_int_equal((u32)f->b->budget, 256 / 16);
    close_fixture(f);
}

/* ---- prompts that rest between layers ---- */

static void test_answers_go_on_while_a_prompt_is_read(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(3, 100), b = ask(150, 10);
    submit(f, &a, request_of(&a));
    while (a.n_got < 3) batch_step(f->b, 0);
    submit(f, &b, request_of(&b));
    u32 n_rests = 0;
    while (!b.n_got) {
        u32 before = a.n_got;
        batch_step(f->b, 0);
        batch_check(f->b);
        n_rests += f->b->reading.at > 0;
        const struct request *reader = f->b->running[1];
        if (f->b->reading.at) assert_true(n_landed(f->b, reader) < reader->n_fed);
        assert_in_range(a.n_got, before + 1, before + 2); /* the last one that was queued ahead */
    }
    assert_true(ahead == (f->x.n_chosen > 0));
    assert_true(n_rests > 6); /* 150 rows in steps of at most 24, each of at least two pieces */
    assert_int_equal(f->x.most_prompt_rows, 0);
    drain(f);
    close_fixture(f);
}

static void test_who_leaves_while_he_reads_keeps_his_room_till_it_is_read(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(3, 100), b = ask(100, 10), c = ask(90, 4);
    submit(f, &a, request_of(&a));
    while (a.n_got < 3) batch_step(f->b, 0);
    submit(f, &b, request_of(&b));
    while (!f->b->reading.at) batch_step(f->b, 0);
    assert_int_equal(batch_cancel(f->b, b.id, &f->err), 0);
    c.tokens[0] = 77; /* it shares nothing with b */
    submit(f, &c, request_of(&c));
    batch_step(f->b, 0);
    assert_int_equal(b.n_done, 1);
    assert_int_equal(b.result.finish, FLETCH_FINISH_CANCELLED);
    drain(f);
    assert_int_equal(f->b->n_remains, 0);
    assert_int_equal(a.n_got, 100);
    assert_int_equal(c.n_got, 4);
    close_fixture(f);
}

static void test_pieces_fit_into_the_time_there_is(void **state)
{
    (void)state;
    struct reading r = {.n_cuts = 33, .layer = 0}; /* 32 layers */
    assert_int_equal(piece(&r, 1), 1);             /* nothing is known yet */
    r.layer = 0.010;
    assert_int_equal(piece(&r, 0.001), 1); /* one at least */
    r.at = 4;
    assert_int_equal(piece(&r, 0.039), 2);
    assert_int_equal(piece(&r, 0.041), 4);
    assert_int_equal(piece(&r, 1), 4); /* 8 begin at 0, 8, 16, 24 */
    r.at = 16;
    assert_int_equal(piece(&r, 1), 16);
    r.at = 32; /* what follows the layers */
    assert_int_equal(piece(&r, 1), 1);
}

/* A layer of n rows takes 1 ms and 0.01 ms for each; there are 4 ms. */
static void test_a_step_has_the_rows_that_let_a_layer_fit(void **state)
{
    (void)state;
    struct step s = {.limits.max_rows = 2048};
    struct lane lane = {.step = &s};
    struct reading r = {.lane = &lane, .rows = 16};
    for (u32 i = 0; i < 40; i++) {
        u32 n = reading_rows(&r);
        r.layer = 0.001 + 0.00001 * n;
        reading_learn(&r, n, 0.004);
    }
    assert_in_range(reading_rows(&r), 250, 310);
    r.layer = 0.0012;
    reading_learn(&r, 20, 0.004); /* a short prompt says nothing about long ones */
    assert_in_range(reading_rows(&r), 250, 310);
    for (u32 i = 0; i < 40; i++) {
        r.layer = 1;
        reading_learn(&r, reading_rows(&r), 0.004);
    }
    assert_int_equal(reading_rows(&r), LEAST_ROWS);
}

/* ---- what is refused ---- */

static void expect_refused(struct fixture *f, struct batch_request r, int code, const char *part)
{
    u64 id;
    assert_int_equal(batch_submit(f->b, &r, &id, &f->err), code);
    if (!strstr(f->err.text, part)) fail_msg("%s", f->err.text);
}

static void test_what_can_not_run_is_refused_at_once(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, &(struct fletch_batch_params){.max_waiting = 3});
    struct asked a = ask(4, 4);
    struct batch_request good = request_of(&a), r = good;
    r.n_tokens = 0;
    expect_refused(f, r, FLETCH_E_ARG, "empty");
    r.n_tokens = MAX_POS;
    expect_refused(f, r, FLETCH_E_CONTEXT, "context of 200");
    r = good;
    r.tokens = (const i32[]){1, VOCAB, 2, 3};
    expect_refused(f, r, FLETCH_E_ARG, "token 500");
    r.tokens = (const i32[]){1, 2, 3, -1};
    expect_refused(f, r, FLETCH_E_ARG, "token -1");
    r = good;
    r.n_logprobs = 22;
    expect_refused(f, r, FLETCH_E_ARG, "logprobs");
    r = good;
    r.sampling.temperature = -1;
    expect_refused(f, r, FLETCH_E_ARG, "temperature");
    struct asked many[N_SLOTS + 3];
    for (u32 i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = ask(4, 4);
        submit(f, &many[i], request_of(&many[i]));
    }
    expect_refused(f, good, FLETCH_E_LIMIT, "try again");
    drain(f);
    submit(f, &a, good);
    drain(f);
    assert_int_equal(a.n_got, 4);
    close_fixture(f);
}

static void test_a_cache_smaller_than_a_request_refuses_it(void **state)
{
    (void)state;
    struct fixture *f = open_world(false);
    kv_close(&f->kv);
    assert_int_equal(kv_open(&f->kv, 10, BLOCK, &f->err), 0);
    assert_int_equal(open_batch(f, NULL), 0);
    struct asked a = ask(40, 41), b = ask(40, 40);
    expect_refused(f, request_of(&a), FLETCH_E_CONTEXT, "81 tokens");
    submit(f, &b, request_of(&b));
    drain(f);
    assert_int_equal(b.n_got, 40);
    close_fixture(f);
}

/* ---- faults ---- */

/* When a step is queued, or while it runs. */
static void lose_device(bool *how, struct fixture *f)
{
    struct asked a[N_SLOTS], b = ask(4, 4);
    for (u32 i = 0; i < N_SLOTS; i++) {
        a[i] = ask(4, 20);
        submit(f, &a[i], request_of(&a[i]));
    }
    for (u32 i = 0; i < 8; i++) batch_step(f->b, 0);
    *how = true;
    batch_step(f->b, 0);
    batch_check(f->b);
    for (u32 i = 0; i < N_SLOTS; i++) {
        assert_int_equal(a[i].result.finish, FLETCH_FINISH_FAILED);
        assert_int_equal(a[i].result.code, FLETCH_E_BACKEND);
        assert_string_equal(a[i].error, "the device is gone");
    }
    *how = false;
    submit(f, &b, request_of(&b));
    drain(f);
    assert_int_equal(b.n_got, 4);
    close_fixture(f);
}

static void test_a_lost_device_ends_those_who_run(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    lose_device(&f->x.fails, f);
    f = open_fixture(false, NULL);
    lose_device(&f->x.loses, f);
}

/* ---- steps ahead ---- */

/* How many steps were queued ahead for two requests, one of which is as given. */
static u64 n_ahead_with(struct fixture *f, struct batch_request r, struct asked *a)
{
    struct asked b = ask(9, 30);
    u64 before = f->b->stats.n_ahead;
    submit(f, a, r);
    submit(f, &b, request_of(&b));
    drain(f);
    assert_true(a->n_got == 40 && b.n_got == 30);
    return f->b->stats.n_ahead - before;
}

static void test_no_step_overtakes_a_token_that_it_needs(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked any = ask(5, 40), told = ask(5, 40), penalised = ask(5, 40);
    u64 n = n_ahead_with(f, request_of(&any), &any);
    assert_true(ahead ? n >= 38 : n == 0);
    struct batch_request r = request_of(&told);
    r.n_logprobs = 3;
    assert_true(n_ahead_with(f, r, &told) <= 2); /* while it reads its prompt */
    r = request_of(&penalised);
    r.sampling.repeat_penalty = 1.1f;
    r.sampling.penalty_window = 8;
    assert_true(n_ahead_with(f, r, &penalised) <= 2);
    close_fixture(f);
}

static void test_others_may_run_steps_in_between(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(5, 40), b = ask(30, 40);
    submit(f, &a, request_of(&a));
    submit(f, &b, request_of(&b));
    for (u32 i = 0; batch_step(f->b, 0); i++) {
        if (i % 3) continue;
        step_reset(f->step); /* of a slot that nobody else has */
        step_add(f->step, (struct row){7, N_SLOTS, 0, ROW_P}, true);
        u32 *table = f->step->tables + (size_t)N_SLOTS * f->step->table_len, n = 0;
        assert_true(kv_cover(&f->kv, table, &n, 1));
        assert_int_equal(lane_run(&f->lane, &f->err), 0);
        kv_release(&f->kv, table, &n);
    }
    assert_true(a.n_got == 40 && b.n_got == 40); /* on_token compares them */
    close_fixture(f);
}

/* Every allocation of the module fails once: requests are refused or complete, nothing leaks. */
static void with_faults(bool recurrent)
{
    bool reached_end = false;
    for (int k = 0; !reached_end; k++) {
        struct fixture *f = open_world(recurrent);
        struct asked a[4];
        u32 n_accepted = 0;
        fails_at = k;
        if (open_batch(f, NULL) == 0) {
            for (u32 i = 0; i < ARRAY_LEN(a); i++) {
                a[i] = ask(70 + i, 5);
                struct batch_request r = request_of(&a[i]);
                int rc = batch_submit(f->b, &r, &a[i].id, &f->err);
                assert_true(rc == 0 || rc == FLETCH_E_NOMEM);
                if (rc) a[i].n_prompt = 0;
                n_accepted += rc == 0;
                batch_step(f->b, 0);
            }
            int rc = batch_cancel(f->b, a[3].id, &f->err);
            assert_true(rc == 0 || rc == FLETCH_E_NOMEM);
            while (batch_step(f->b, 0)) {
            }
            for (u32 i = 0; i < ARRAY_LEN(a); i++)
                if (a[i].n_prompt) assert_true(a[i].n_done == 1 && (a[i].n_got == 5 || i == 3));
            assert_true(n_accepted >= 3);
        } else {
            assert_null(f->b);
        }
        reached_end = fails_at >= 0; /* fewer allocations than that */
        fails_at = -1;
        close_fixture(f);
    }
}

static void test_no_memory_anywhere(void **state)
{
    (void)state;
    with_faults(false);
    with_faults(true);
}

/* ---- reuse ---- */

static void test_reuse_is_told(void **state)
{
    (void)state;
    for (u32 recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture *f = open_fixture(recurrent, NULL);
        struct asked a = ask(67, 3), b = ask(67, 3), c = ask(67, 3), d = ask(67, 3);
        submit(f, &a, request_of(&a));
        drain(f);
        assert_int_equal(a.result.n_reused, 0);
        assert_non_null(strstr(a.result.reuse_end, "nothing"));
        submit(f, &b, request_of(&b));
        drain(f);
        assert_int_equal(b.result.n_reused, 64); /* its last token is computed in any case */
        assert_true(a.first_told == 0 && b.first_told == 64); /* as soon as their turn came */
        assert_true(a.last_told == 67 && b.last_told == 67);
        assert_non_null(strstr(b.result.reuse_end, "shorter than a block"));
        c.tokens[33]++; /* the fifth block is another */
        submit(f, &c, request_of(&c));
        d.tokens[0]++;
        submit(f, &d, request_of(&d));
        drain(f);
        assert_int_equal(c.result.n_reused, recurrent ? 0 : 32);
        assert_int_equal(d.result.n_reused, 0);
        close_fixture(f);
        f = open_fixture(recurrent, &(struct fletch_batch_params){.no_reuse = true});
        a = ask(67, 3), b = ask(67, 3);
        submit(f, &a, request_of(&a));
        drain(f);
        submit(f, &b, request_of(&b));
        drain(f);
        assert_int_equal(b.result.n_reused, 0);
        assert_non_null(strstr(b.result.reuse_end, "off"));
        close_fixture(f);
    }
}

/* ---- threads ---- */

enum { PER_THREAD = 50 };

struct sender {
    struct fixture *f;
    struct asked asked[PER_THREAD];
};

static void *send_all(void *ctx)
{
    struct sender *s = ctx;
    for (u32 i = 0; i < PER_THREAD; i++) {
        struct err err;
        s->asked[i] = ask(1 + i, 6);
        struct batch_request r = request_of(&s->asked[i]);
        if (batch_submit(s->f->b, &r, &s->asked[i].id, &err)) abort();
        if (i % 7 == 0 && batch_cancel(s->f->b, s->asked[i].id, &err)) abort();
    }
    return NULL;
}

static void test_requests_come_from_other_threads(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct sender *s = calloc(3, sizeof *s);
    pthread_t threads[3];
    for (u32 i = 0; i < 3; i++) {
        s[i].f = f;
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &s[i]), 0);
    }
    struct fletch_batch_stats stats = {0};
    while (stats.n_done < 3 * PER_THREAD) { /* waits where there is nothing to do */
        batch_step(f->b, 0.01);
        batch_stats(f->b, &stats);
    }
    for (u32 i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    drain(f);
    for (u32 i = 0; i < 3; i++)
        for (u32 j = 0; j < PER_THREAD; j++) {
            assert_int_equal(s[i].asked[j].n_done, 1);
            if (j % 7) assert_int_equal(s[i].asked[j].n_got, 6);
        }
    free(s);
    close_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand_requests_with_blocks),
        cmocka_unit_test(test_ten_thousand_requests_with_states),
        cmocka_unit_test(test_cancel_works_at_the_next_step),
        cmocka_unit_test(test_time_runs_out),
        cmocka_unit_test(test_the_context_ends_an_answer_without_limit),
        cmocka_unit_test(test_closing_cancels_what_is_not_done),
        cmocka_unit_test(test_clients_take_turns),
        cmocka_unit_test(test_priorities_go_first_and_nobody_starves),
        cmocka_unit_test(test_what_can_not_run_is_refused_at_once),
        cmocka_unit_test(test_a_cache_smaller_than_a_request_refuses_it),
        cmocka_unit_test(test_a_lost_device_ends_those_who_run),
        cmocka_unit_test(test_no_step_overtakes_a_token_that_it_needs),
        cmocka_unit_test(test_others_may_run_steps_in_between),
        cmocka_unit_test(test_no_memory_anywhere),
        cmocka_unit_test(test_reuse_is_told),
        cmocka_unit_test(test_requests_come_from_other_threads),
    };
    const struct CMUnitTest mixed[] = {
        cmocka_unit_test(test_prompts_leave_room_for_answers),
        cmocka_unit_test(test_the_budget_follows_the_time_steps_take),
    };
    const struct CMUnitTest beside[] = {
        cmocka_unit_test(test_answers_go_on_while_a_prompt_is_read),
        cmocka_unit_test(test_who_leaves_while_he_reads_keeps_his_room_till_it_is_read),
        cmocka_unit_test(test_pieces_fit_into_the_time_there_is),
        cmocka_unit_test(test_a_step_has_the_rows_that_let_a_layer_fit),
    };
    int n_failed = 0;
    for (u32 i = 0; i < 4; i++) {
        ahead = i % 2;
        reads = i / 2;
        n_failed += cmocka_run_group_tests(tests, NULL, NULL);
        n_failed += reads ? cmocka_run_group_tests(beside, NULL, NULL)
                          : cmocka_run_group_tests(mixed, NULL, NULL);
    }
    return n_failed;
}
