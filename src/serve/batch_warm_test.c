/* The scheduler with requests that only compute prompts for later ones (REQUEST_WARM), on the
 * executor of batch_stub.h: what they leave is right, and they hold nobody up. */
#include "serve/batch_stub.h"

static struct batch_request warm_of(struct asked *a)
{
    struct batch_request r = request_of(a);
    r.kind = REQUEST_WARM;
    r.sampling = (struct fletch_sampling){0};
    r.max_tokens = 1;
    r.on_token = NULL;
    r.on_reading = NULL;
    return r;
}

/* Blocks of 8 tokens, and states at multiples of 32. */
static void find_what_was_computed(bool recurrent)
{
    struct fixture *f = open_fixture(recurrent, NULL);
    struct fletch_batch_stats s;
    struct asked w = ask(120, 0), a = ask(130, 5);
    submit(f, &w, warm_of(&w));
    drain(f);
    assert_true(w.n_done == 1 && !w.n_got && w.result.finish == FLETCH_FINISH_LENGTH);
    submit(f, &a, request_of(&a));
    drain(f);
    check_end(&a, false); /* on_token has compared each token with those of a run by itself */
    assert_int_equal(a.result.n_reused, 96);
    batch_stats(f->b, &s);
    assert_int_equal(s.n_warmed, 97);
    assert_true(s.n_prompt == 130 && s.n_reused == 96); /* of those who asked */
    close_fixture(f);
}

static void test_a_prompt_finds_what_was_computed_for_it(void **state)
{
    (void)state;
    find_what_was_computed(false);
    find_what_was_computed(true);
}

static void test_any_request_goes_before_it_within_a_step(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked w = ask(190, 0), a = ask(3, 20), other = ask(100, 0);
    submit(f, &other, warm_of(&other)); /* one at a time, the older one first */
    submit(f, &w, warm_of(&w));
    f->b->warm_rows = 16;
    while (f->b->stats.n_warmed < 40) batch_step(f->b, 0);
    submit(f, &a, request_of(&a));
    u64 n_before = 0;
    for (u32 i = 0; !a.n_done; i++) {
        if (i == 2) n_before = f->b->stats.n_warmed;
        batch_step(f->b, 0);
        batch_check(f->b);
        assert_true(i < 2 || a.n_got > 0);
        if (i > 2 && !a.n_done) assert_int_equal(f->b->stats.n_warmed, n_before);
    }
    assert_false(w.n_done);
    drain(f);
    assert_true(w.n_done == 1 && other.n_done == 1);
    assert_int_equal(f->b->stats.n_preemptions, 0); /* of requests that somebody waits for */
    struct asked again = ask(195, 3);
    submit(f, &again, request_of(&again));
    drain(f);
    assert_int_equal(again.result.n_reused, 160);
    close_fixture(f);
}

static void test_its_steps_are_short(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(false, NULL);
    struct asked w = ask(190, 0);
    struct pending_step p = {.batch = {.n_prefill = 16}};
    submit(f, &w, warm_of(&w));
    f->b->warm_rows = 16;
    batch_step(f->b, 0);
    f->b->warm_rows = 16;
    batch_learn_warm(f->b, &p, 0.2);
    assert_int_equal(f->b->warm_rows, 16); /* never fewer */
    batch_learn_warm(f->b, &p, 0.001);
    assert_int_equal(f->b->warm_rows, 24); /* the most there are */
    p.batch.n_prefill = 24;
    batch_learn_warm(f->b, &p, 0.06);
    assert_int_equal(f->b->warm_rows, 20);
    drain(f);
    close_fixture(f);
}

/* Near a mark, and at the end. */
static void test_states_are_kept_where_prompts_are_likely_to_branch(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(true, NULL);
    struct asked a = ask(190, 3), b = ask(150, 3), c = ask(150, 3);
    struct batch_request r = request_of(&a);
    r.marks = (struct snap_marks){2, {75, 140}};
    submit(f, &a, r);
    drain(f);
    c.tokens[141]++;
    submit(f, &c, request_of(&c));
    drain(f);
    assert_int_equal(c.result.n_reused, 128);
    b.tokens[80]++;
    submit(f, &b, request_of(&b));
    drain(f);
    assert_int_equal(b.result.n_reused, 64);
    close_fixture(f);
}

/* Whatever else goes on, with room for few. */
static void test_traffic_with_prompts_for_later(void **state)
{
    (void)state;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture *f = open_fixture(recurrent, NULL);
        struct asked *warm = calloc(8, sizeof *warm), *asked = calloc(8, sizeof *asked);
        for (u32 round = 0; round < 60; round++) {
            for (u32 i = 0; i < 8; i++) {
                start_random(f, &asked[i]);
                warm[i] = asked[i];
                submit(f, &warm[i], warm_of(&warm[i]));
                for (u32 n = below(f, 12); n; n--) batch_step(f->b, 0);
            }
            batch_check(f->b);
            if (round % 2) batch_cancel(f->b, warm[below(f, 8)].id, &f->err);
            drain(f);
            for (u32 i = 0; i < 8; i++) {
                check_end(&asked[i], false);
                assert_true(warm[i].n_done == 1 && !warm[i].n_got);
            }
        }
        free(warm);
        free(asked);
        close_fixture(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_finds_what_was_computed_for_it),
        cmocka_unit_test(test_any_request_goes_before_it_within_a_step),
        cmocka_unit_test(test_its_steps_are_short),
        cmocka_unit_test(test_states_are_kept_where_prompts_are_likely_to_branch),
        cmocka_unit_test(test_traffic_with_prompts_for_later),
    };
    int n_failed = 0;
    for (u32 i = 0; i < 4; i++) {
        ahead = i & 1;
        reads = i & 2;
        n_failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return n_failed;
}
