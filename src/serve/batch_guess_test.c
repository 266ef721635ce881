/* The scheduler with tokens that are guessed, by a second executor of the kind in batch_stub.h:
 * whatever else goes on, a guess is right if what guesses has read all that it should have read. */
#include "serve/batch_stub.h"
#include "serve/speculate_internal.h"

enum { N_TRAFFIC = 2000 };

/* Tokens are guessed by a draft with blocks, fewer than it would like, or with states. */
static struct fixture *open_guessing(bool recurrent)
{
    struct fixture *f = open_worlds(false);
    open_world(&f->draft, recurrent, 48, N_BLOCKS - 20, 2 * N_SLOTS);
    const struct spec_env env = {
        .target = {&f->w.queue, &f->w.kv, N_SLOTS, &f->w.reader},
        .program = {&f->draft.queue, &f->draft.kv, N_SLOTS, &f->draft.reader},
        .uses = {[DRAFTER_MODEL] = true},
        .n_tokens = 3,
        .n_slots = N_SLOTS};
    assert_int_equal(spec_open(&f->spec, &env, &f->err), 0);
    assert_int_equal(open_batch(f, NULL), 0);
    return f;
}

static void guessed_traffic(bool recurrent)
{
    struct fixture *f = open_guessing(recurrent);
    struct fletch_batch_stats s;
    send_traffic(f, N_TRAFFIC);
    batch_stats(f->b, &s);
    assert_true(s.n_done == N_TRAFFIC && !s.n_failed && (reads || s.n_preemptions > 10));
    assert_true(s.n_drafted > 1000 && s.n_accepted == s.n_drafted);
    assert_true(f->draft.x.n_rests > 500);
    close_fixture(f);
}

static void test_guesses_are_right_whoever_comes_and_goes_with_blocks(void **state)
{
    (void)state;
    guessed_traffic(false);
}

static void test_guesses_are_right_whoever_comes_and_goes_with_states(void **state)
{
    (void)state;
    guessed_traffic(true);
}

static void test_answers_go_on_while_what_guesses_reads(void **state)
{
    (void)state;
    struct fixture *f = open_guessing(false);
    struct asked a = ask(3, 190), b = ask(110, 85);
    const struct reading *reading = &f->spec->reading;
    u32 n_rests = 0, n_ends = 0;
    submit(f, &a, request_of(&a));
    while (a.n_got < 3) batch_step(f->b, 0);
    submit(f, &b, request_of(&b));
    while (!b.n_done) {
        u32 before = a.n_got;
        u64 n_answers = f->w.queue.n_steps;
        u64 n_pieces = f->w.reader.n_steps + f->draft.reader.n_steps;
        bool rested = reading->at;
        batch_step(f->b, 0);
        batch_check(f->b);
        assert_true(a.n_got > before || a.n_done);
        assert_true(a.n_done || f->w.queue.n_steps == n_answers + 1);
        n_rests += reading->at > 0;
        n_ends += rested && !reading->at;
        if (!a.n_done) /* one piece for one step of answers, whoever reads */
            assert_true(f->w.reader.n_steps + f->draft.reader.n_steps <= n_pieces + 1);
    }
    assert_true(n_rests > 6 && n_ends > 1 && f->draft.x.most_rows <= 48);
    assert_true(b.result.n_drafted > 0 && b.result.n_accepted == b.result.n_drafted);
    drain(f);
    close_fixture(f);
}

static void test_a_lost_device_leaves_nothing_of_what_guesses(void **state)
{
    (void)state;
    struct fixture *f = open_guessing(true);
    struct asked a = ask(3, 100), b = ask(150, 10), c = ask(150, 10);
    submit(f, &a, request_of(&a));
    while (a.n_got < 3) batch_step(f->b, 0);
    submit(f, &b, request_of(&b));
    while (!f->spec->reading.at) batch_step(f->b, 0);
    f->w.x.loses = true;
    batch_step(f->b, 0);
    assert_true(a.result.finish == FLETCH_FINISH_FAILED && b.n_done);
    assert_int_equal(f->spec->reading.at, 0);
    f->w.x.loses = false;
    submit(f, &c, request_of(&c));
    drain(f);
    assert_true(c.n_got == 10 && c.result.n_drafted && c.result.n_accepted == c.result.n_drafted);
    close_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses_are_right_whoever_comes_and_goes_with_blocks),
        cmocka_unit_test(test_guesses_are_right_whoever_comes_and_goes_with_states),
        cmocka_unit_test(test_answers_go_on_while_what_guesses_reads),
        cmocka_unit_test(test_a_lost_device_leaves_nothing_of_what_guesses),
    };
    int n_failed = 0;
    guesses = true;
    for (u32 i = 0; i < 2; i++) {
        reads = i;
        n_failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return n_failed;
}
