/* The scheduler on an executor of its own (batch_stub.h), with memory that can be made to fail. All
 * tests run plainly, with steps that are queued ahead, and with prompts that are read beside
 * answers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
#include "core/step_queue.c"
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
#include "serve/batch_stub.h"

/* ---- traffic ---- */

enum { N_TRAFFIC = 10000 };

static void random_traffic(bool recurrent)
{
    struct fixture *f = open_fixture(recurrent, NULL);
    struct fletch_batch_stats s;
    send_traffic(f, N_TRAFFIC);
    batch_stats(f->b, &s);
    assert_int_equal(s.n_done, N_TRAFFIC);
    assert_true(s.n_failed == 0 && s.n_mixed > 1000);
    assert_true(s.n_reused > (recurrent ? 1000u : 20000u));
    assert_int_equal(s.n_free + s.n_idle, s.n_blocks); /* all came back */
    if (!recurrent) assert_true(s.n_preemptions > 50 && s.n_evicted > 1000);
    assert_in_range(s.most_running, N_SLOTS - 2, N_SLOTS); /* by the time that steps take */
    if (!ahead) assert_int_equal(f->w.x.n_chosen, 0);
    if (ahead &&
        !reads) /* none is queued ahead of a prompt that is read, and there always is one */
        assert_true(s.n_ahead > s.n_steps / 2 && f->w.x.n_chosen > 20000);
    close_fixture(f);
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
    assert_true(a.result.n_prompt == 150 &&
                a.result.n_read == 24); /* the step on its way is lost */
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
    assert_true(!b[N_SLOTS + 2].result.n_read && b[0].result.n_read == 2);
    drain(f);
    assert_int_equal(b[1].result.n_read, 2);
    for (u32 i = 1; i < N_SLOTS + 2; i++) assert_int_equal(b[i].n_got, 30);
    batch_cancel(f->b, b[1].id, &f->err); /* done already */
    batch_step(f->b, 0);
    assert_int_equal(b[1].n_done, 1);
    close_fixture(f);
}

static void *wake_later(void *ctx)
{
    usleep(20000);
    batch_wake(((struct fixture *)ctx)->b);
    return NULL;
}

static void test_a_wait_can_be_ended(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    pthread_t thread;
    double began = base_now();
    batch_wake(f->b); /* before it */
    batch_wait(f->b, 60);
    assert_int_equal(pthread_create(&thread, NULL, wake_later, f), 0);
    batch_wait(f->b, 60); /* or during it; once each */
    pthread_join(thread, NULL);
    assert_true(base_now() - began < 50);
    began = base_now();
    batch_wait(f->b, 0.02);
    assert_true(base_now() - began >= 0.02);
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
    assert_int_equal(f->w.x.most_prompt_rows, 5);
    drain(f);
    close_fixture(f);
}

static void test_the_budget_follows_the_time_steps_take(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct pending_step v = {.batch.n_decode = 1};
    for (u32 i = 0; i < 50; i++) learn(f->b, &v, 0.010);
    assert_true(f->b->usual > 0.0099 && f->b->usual < 0.0101);
    /* 5 ms and 0.5 ms more for every row: 30 rows are twice 10 ms */
    for (u32 i = 0; i < 100; i++) {
        v.batch.n_prefill = (u32)f->b->budget;
        learn(f->b, &v, 0.005 + 0.0005 * v.batch.n_prefill);
    }
    assert_in_range((u32)f->b->budget, 14, 24); /* max_rows is 24 */
    for (u32 i = 0; i < 100; i++) learn(f->b, &v, 1);
    assert_int_equal((u32)f->b->budget, MIN_BUDGET);
    f->w.step->limits.max_rows = 256; /* few rows of many: no fewer than pay */
    f->w.net.profile.bf16 = true;
    for (u32 i = 0; i < 100; i++) learn(f->b, &v, 1);
    assert_int_equal((u32)f->b->budget, 256 / 16);
    close_fixture(f);
}

/* ---- prompts that rest between layers ---- */

static void learn_steps(struct batch *b, u32 n_answers, double seconds, bool did_read)
{
    struct pending_step v = {.batch.n_decode = n_answers};
    b->did_read = did_read;
    for (u32 i = 0; i < 60; i++) learn(b, &v, seconds);
}

static void test_a_piece_gets_what_slower_steps_leave(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    learn_steps(f->b, 2, 0.010, false);
    assert_in_range((u32)(share(f->b) * 1e6), 5900, 6100);
    learn_steps(f->b, 2, 0.012, true);
    assert_in_range((u32)(share(f->b) * 1e6), 4000, 4300);
    learn_steps(f->b, 2, 0.030, true);
    assert_in_range((u32)(share(f->b) * 1e6), 2000, 2500); /* a fifth at least, of 10 to 12 ms */
    struct pending_step v = {.batch.n_decode =
                                 8}; /* more answers: nothing is known of them alone */
    learn(f->b, &v, 0.100);
    assert_true(share(f->b) <= 0.6 * f->b->usual + 1e-9);
    learn_steps(f->b, 8, 0.100, true);
    assert_in_range((u32)(share(f->b) * 1e6), 55000, 61000);
    close_fixture(f);
}

static void test_answers_go_on_while_a_prompt_is_read(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked a = ask(3, 190), b = ask(150, 10);
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
    assert_true(ahead == (f->w.x.n_chosen > 0));
    assert_true(n_rests > 6); /* 150 rows in steps of at most 24, each of at least two pieces */
    assert_int_equal(f->w.x.n_unready, 0);
    assert_int_equal(f->w.x.most_prompt_rows, 0);
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
    struct step_queue queue = {.step = &s};
    struct reading r = {.queue = &queue, .rows = 16};
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
    expect_refused(f, r, FLETCH_E_ARG, "token id 500");
    r.tokens = (const i32[]){1, 2, 3, -1};
    expect_refused(f, r, FLETCH_E_ARG, "token id -1");
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
    struct fixture *f = open_worlds(false);
    kv_close(&f->w.kv);
    assert_int_equal(kv_open(&f->w.kv, 10, BLOCK, &f->err), 0);
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
    lose_device(&f->w.x.fails, f);
    f = open_fixture(false, NULL);
    lose_device(&f->w.x.loses, f);
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
        step_reset(f->w.step); /* of a slot that nobody else has */
        step_add(f->w.step, (struct row){7, N_SLOTS, 0, ROW_P}, true);
        u32 *table = f->w.step->tables + (size_t)N_SLOTS * f->w.step->table_len, n = 0;
        assert_true(kv_cover(&f->w.kv, table, &n, 1));
        assert_int_equal(step_queue_run(&f->w.queue, &f->err), 0);
        kv_release(&f->w.kv, table, &n);
    }
    assert_true(a.n_got == 40 && b.n_got == 40); /* on_token compares them */
    close_fixture(f);
}

/* Every allocation of the module fails once: requests are refused or complete, nothing leaks. */
static void with_faults(bool recurrent)
{
    bool reached_end = false;
    for (int k = 0; !reached_end; k++) {
        struct fixture *f = open_worlds(recurrent);
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
        assert_non_null(strstr(a.result.reuse_end, "no cached prompt"));
        submit(f, &b, request_of(&b));
        drain(f);
        assert_int_equal(b.result.n_reused, 64); /* its last token is computed in any case */
        assert_true(a.first_told == 0 && b.first_told == 64); /* as soon as their turn came */
        assert_true(a.last_told == 67 && b.last_told == 67);
        assert_non_null(strstr(b.result.reuse_end, "shorter than a cache block"));
        c.tokens[33]++; /* the fifth block is another */
        submit(f, &c, request_of(&c));
        d.tokens[0]++;
        submit(f, &d, request_of(&d));
        drain(f);
        assert_int_equal(c.result.n_reused, recurrent ? 0 : 32);
        assert_non_null(strstr(c.result.reuse_end, recurrent ? "no cached" : "tokens differ"));
        struct asked e = ask(130, 3);
        submit(f, &e, request_of(&e));
        drain(f);
        assert_int_equal(e.result.n_reused, 64);
        assert_non_null(strstr(e.result.reuse_end, recurrent ? "snapshot" : "not been computed"));
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
        cmocka_unit_test(test_a_wait_can_be_ended),
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
        cmocka_unit_test(test_a_piece_gets_what_slower_steps_leave),
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
