/* Generation through fletch.h: how it ends, and what text comes out when. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opened.h"

enum { MAX_TOKENS = 60, MAX_TEXT = 4096 };

/* All that a generation told its callback. */
struct heard {
    uint32_t n;
    int32_t tokens[MAX_TOKENS + 1];
    size_t end[MAX_TOKENS + 1]; /* of the text, after each call */
    char text[MAX_TEXT];
    uint32_t ask_at; /* the call that ends it; 0: none */
};

static int hear(void *ctx, int32_t token, const char *text, size_t n)
{
    struct heard *h = ctx;
    size_t at = h->n ? h->end[h->n - 1] : 0;
    assert_true(h->n <= MAX_TOKENS && at + n < MAX_TEXT);
    memcpy(h->text + at, text, n);
    h->text[at + n] = 0;
    h->end[h->n] = at + n;
    h->tokens[h->n++] = token;
    return h->ask_at && h->n == h->ask_at;
}

static struct fletch_generate settings(struct heard *h)
{
    *h = (struct heard){0};
    return (struct fletch_generate){
        .max_tokens = 24,
        .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 11},
        .ignore_end = true,
        .on_text = hear,
        .ctx = h,
    };
}

static void prompt(struct opened *o)
{
    static const int32_t tokens[] = {70, 71, 72, 73};
    fletch_session_reset(o->s);
    if (fletch_session_append(o->s, tokens, 4, NULL)) fail_msg("%s", fletch_session_error(o->s));
}

static struct fletch_generated generate(struct opened *o, const struct fletch_generate *g)
{
    struct fletch_generated result;
    prompt(o);
    if (fletch_session_generate(o->s, g, &result)) fail_msg("%s", fletch_session_error(o->s));
    return result;
}

/* The state of a test is its backend. */
static int open_tiny(void **state)
{
    struct opened *o = malloc(sizeof *o);
    assert_non_null(o);
    opened_tiny(o, *state, &(struct tiny_model){.seed = 1, .n_ctx = 4096}, NULL);
    *state = o;
    return 0;
}

static int close_tiny(void **state)
{
    opened_close(*state);
    free(*state);
    return 0;
}

/* What the settings generate when nothing stops them. */
static void plain(struct opened *o, struct heard *h)
{
    struct fletch_generate g = settings(h);
    struct fletch_generated r = generate(o, &g);
    assert_int_equal(r.finish, FLETCH_FINISH_LENGTH);
    assert_true(r.n_tokens == 24 && strlen(h->text) > 30);
}

static void test_max_tokens_are_appended(void **state)
{
    struct opened *o = *state;
    struct heard h;
    plain(o, &h);
    assert_int_equal(fletch_session_length(o->s), 4 + 24);
    /* sampling and appending by hand gives the same tokens */
    struct fletch_generate g = settings(&(struct heard){0});
    prompt(o);
    for (uint32_t i = 0; i < 24; i++) {
        int32_t token;
        assert_int_equal(fletch_session_sample(o->s, &g.sampling, &token), 0);
        assert_int_equal(token, h.tokens[i]);
        assert_int_equal(fletch_session_append(o->s, &token, 1, NULL), 0);
    }
}

static void test_the_text_is_that_of_the_tokens(void **state)
{
    struct opened *o = *state;
    struct heard h;
    char *text;
    size_t n;
    struct fletch_generate g = settings(&h);
    g.sampling.n_bias = 1; /* much of one word, so that all bytes are whole characters */
    g.sampling.bias_tokens = (const int32_t[]){300};
    g.sampling.bias_values = (const float[]){100};
    generate(o, &g);
    assert_int_equal(fletch_detokenize(o->m, h.tokens, 24, 0, &text, &n), 0);
    assert_int_equal(n, h.end[h.n - 1]);
    assert_memory_equal(text, h.text, n);
    fletch_free(text);
}

static void test_seeds_decide(void **state)
{
    struct opened *o = *state;
    struct heard a, b;
    plain(o, &a);
    plain(o, &b);
    assert_string_equal(a.text, b.text);
    struct fletch_generate g = settings(&b);
    g.sampling.seed = 12;
    generate(o, &g);
    assert_string_not_equal(a.text, b.text);
    g = settings(&b);
    g.sampling.choice = 1;
    generate(o, &g);
    assert_string_not_equal(a.text, b.text);
}

/* Sixteen tokens that are about as likely: noise decides, and every position has its own. */
static void test_every_position_draws_anew(void **state)
{
    struct opened *o = *state;
    struct heard h;
    int32_t tokens[16];
    float bias[16];
    uint32_t seen = 0, n_seen = 0;
    for (int32_t i = 0; i < 16; i++) {
        tokens[i] = 300 + i;
        bias[i] = 3000;
    }
    struct fletch_generate g = settings(&h);
    g.sampling.temperature = 100;
    g.sampling.n_bias = 16;
    g.sampling.bias_tokens = tokens;
    g.sampling.bias_values = bias;
    generate(o, &g);
    for (uint32_t i = 0; i < 24; i++) {
        assert_in_range(h.tokens[i], 300, 315);
        seen |= 1u << (h.tokens[i] - 300);
    }
    for (; seen; seen &= seen - 1) n_seen++;
    assert_true(n_seen >= 8);
}

/* Generates with stops and expects exactly the first n bytes of what comes without. */
static void expect_stopped(struct opened *o, const struct heard *all, size_t n_stops,
                           const char *const *stops, size_t n)
{
    struct heard h;
    struct fletch_generate g = settings(&h);
    g.n_stops = n_stops;
    g.stops = stops;
    struct fletch_generated r = generate(o, &g);
    bool whole = n == strlen(all->text);
    assert_int_equal(r.finish, whole ? FLETCH_FINISH_LENGTH : FLETCH_FINISH_STOP);
    assert_int_equal(h.end[h.n - 1], n);
    assert_memory_equal(h.text, all->text, n);
    /* the token that completed it was counted, not appended */
    assert_int_equal(fletch_session_length(o->s), 4 + r.n_tokens - !whole);
    for (uint32_t i = 0; i < r.n_tokens; i++) assert_int_equal(h.tokens[i], all->tokens[i]);
}

static size_t first_at(const struct heard *all, const char *stop)
{
    const char *hit = strstr(all->text, stop);
    assert_non_null(hit);
    return (size_t)(hit - all->text);
}

/* Every stop text of one to seven bytes, wherever tokens end inside it. */
static void test_stops_anywhere_in_the_text(void **state)
{
    struct opened *o = *state;
    struct heard all;
    uint32_t n_across = 0;
    plain(o, &all);
    size_t n = strlen(all.text);
    for (size_t at = 5; at + 7 < n; at += 3) {
        char stop[8] = {0};
        const char *stops[] = {stop};
        memcpy(stop, all.text + at, 1 + at % 7);
        size_t first = first_at(&all, stop);
        for (uint32_t i = 0; i < all.n; i++)
            n_across += all.end[i] > first && all.end[i] < first + strlen(stop);
        expect_stopped(o, &all, 1, stops, first);
    }
    assert_true(n_across > 3);
}

static void test_the_earliest_of_several_stops_wins(void **state)
{
    struct opened *o = *state;
    struct heard all;
    char early[6] = {0}, late[6] = {0};
    plain(o, &all);
    memcpy(early, all.text + 8, 5);
    memcpy(late, all.text + 20, 5);
    size_t first = first_at(&all, early);
    const char *a[] = {"never to be seen", late, early}, *b[] = {early, late};
    if (first_at(&all, late) < first) first = first_at(&all, late);
    expect_stopped(o, &all, 3, a, first);
    expect_stopped(o, &all, 2, b, first);
}

/* Also when one token completes both of them. */
static void test_the_earliest_of_two_stops_in_one_token_wins(void **state)
{
    struct opened *o = *state;
    struct heard all;
    uint32_t n_tried = 0;
    plain(o, &all);
    for (uint32_t i = 1; i < all.n; i++) {
        size_t at = all.end[i - 1];
        char early[3] = {0}, late[3] = {0};
        if (all.end[i] < at + 4) continue;
        memcpy(early, all.text + at, 2);
        memcpy(late, all.text + at + 2, 2);
        if (first_at(&all, early) != at || first_at(&all, late) != at + 2) continue;
        expect_stopped(o, &all, 2, (const char *const[]){early, late}, at);
        expect_stopped(o, &all, 2, (const char *const[]){late, early}, at);
        n_tried++;
    }
    assert_true(n_tried > 0);
}

static void test_an_empty_stop_stops_nothing(void **state)
{
    struct opened *o = *state;
    struct heard all;
    plain(o, &all);
    expect_stopped(o, &all, 1, (const char *const[]){""}, strlen(all.text));
}

/* The end of the text could have been the beginning of a stop text. */
static void test_text_held_back_comes_out_at_the_end(void **state)
{
    struct opened *o = *state;
    struct heard all, h;
    char stop[32];
    plain(o, &all);
    size_t n = strlen(all.text);
    snprintf(stop, sizeof stop, "%s and more", all.text + n - 5);
    const char *stops[] = {stop};
    expect_stopped(o, &all, 1, stops, n);
    struct fletch_generate g = settings(&h);
    g.n_stops = 1;
    g.stops = stops;
    generate(o, &g);
    assert_int_equal(h.n, 25); /* 24 tokens, then what was held back */
    assert_true(h.end[23] <= n - 5 && h.end[24] == n);
}

static void test_the_callback_can_end_it(void **state)
{
    struct opened *o = *state;
    struct heard all, h;
    plain(o, &all);
    struct fletch_generate g = settings(&h);
    h.ask_at = 7;
    struct fletch_generated r = generate(o, &g);
    assert_true(r.finish == FLETCH_FINISH_ASKED && r.n_tokens == 7 && h.n == 7);
    assert_int_equal(fletch_session_length(o->s), 4 + 6);
    assert_int_equal(h.end[6], all.end[6]);
}

static void test_an_end_token_ends_it(void **state)
{
    struct opened *o = *state;
    struct heard h;
    struct fletch_generate g = settings(&h);
    g.sampling.n_bias = 1;
    g.sampling.bias_tokens = (const int32_t[]){642}; /* <|im_end|> */
    g.sampling.bias_values = (const float[]){1000};
    assert_true(fletch_is_end(o->m, 642));
    assert_false(fletch_is_end(o->m, 300) || fletch_is_end(o->m, -1));
    g.ignore_end = false;
    struct fletch_generated r = generate(o, &g);
    assert_true(r.finish == FLETCH_FINISH_END && r.n_tokens == 0 && h.n == 0);
    assert_int_equal(fletch_session_length(o->s), 4);
    g.ignore_end = true;
    r = generate(o, &g);
    assert_true(r.finish == FLETCH_FINISH_LENGTH && r.n_tokens == 24);
    assert_int_equal(h.end[h.n - 1], 0); /* control tokens have no text */
}

static void test_a_full_context_ends_it(void **state)
{
    struct opened o;
    struct heard h;
    opened_tiny(&o, *state, &(struct tiny_model){.seed = 1},
                &(struct fletch_model_params){.n_ctx = 33});
    struct fletch_generate g = settings(&h);
    g.max_tokens = 0;
    struct fletch_generated r = generate(&o, &g);
    assert_true(r.finish == FLETCH_FINISH_CONTEXT && r.n_tokens == 33 - 4);
    assert_int_equal(fletch_session_length(o.s), 33);
    assert_int_equal(fletch_session_generate(o.s, &g, &r), 0);
    assert_true(r.finish == FLETCH_FINISH_CONTEXT && r.n_tokens == 0);
    opened_close(&o);
}

struct racer {
    struct fletch_session *s;
    atomic_uint n_tokens;
};

static int count_tokens(void *ctx, int32_t token, const char *text, size_t n)
{
    struct racer *r = ctx;
    (void)token, (void)text, (void)n;
    atomic_fetch_add(&r->n_tokens, 1);
    return 0;
}

static void *cancel_at_three(void *ctx)
{
    struct racer *r = ctx;
    while (atomic_load(&r->n_tokens) < 3) continue;
    fletch_session_cancel(r->s);
    return NULL;
}

static void test_another_thread_can_cancel(void **state)
{
    struct opened *o = *state;
    struct racer racer = {.s = o->s};
    struct fletch_generated r;
    struct heard h;
    pthread_t thread;
    struct fletch_generate g = settings(&h);
    g.max_tokens = 0;
    g.on_text = count_tokens;
    g.ctx = &racer;
    prompt(o);
    assert_int_equal(pthread_create(&thread, NULL, cancel_at_three, &racer), 0);
    int rc = fletch_session_generate(o->s, &g, &r);
    pthread_join(thread, NULL);
    expect_error(rc, FLETCH_E_CANCELLED, fletch_session_error(o->s), "cancelled");
    assert_in_range(r.n_tokens, 3, 4000);
    /* what was appended stays, and it can go on */
    assert_in_range(fletch_session_length(o->s), 4 + 2, 4000);
    g = settings(&h);
    assert_int_equal(fletch_session_generate(o->s, &g, &r), 0);
    assert_int_equal(r.n_tokens, 24);
}

static void test_bad_settings_are_refused(void **state)
{
    struct opened *o = *state;
    struct heard h;
    struct fletch_generated r;
    struct fletch_generate g = settings(&h);
    fletch_session_reset(o->s);
    int rc = fletch_session_generate(o->s, &g, &r);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o->s), "the prompt is empty");
    prompt(o);
    g.sampling.temperature = -1;
    rc = fletch_session_generate(o->s, &g, &r);
    expect_error(rc, FLETCH_E_ARG, fletch_session_error(o->s), "temperature must be between");
    assert_true(r.n_tokens == 0 && h.n == 0 && fletch_session_length(o->s) == 4);
}

/* A model without a vocabulary gives tokens without text. */
static void test_tokens_without_a_vocabulary(void **state)
{
    struct opened o;
    struct heard h;
    opened_path(&o, *state, "test/golden/models/llama", NULL);
    struct fletch_generate g = settings(&h);
    g.n_stops = 1;
    g.stops = (const char *const[]){"a"};
    struct fletch_generated r = generate(&o, &g);
    assert_true(r.n_tokens == 24 && h.n == 24 && h.end[23] == 0);
    assert_int_equal(r.finish, FLETCH_FINISH_LENGTH);
    g.on_text = NULL;
    assert_int_equal(generate(&o, &g).n_tokens, 24);
    opened_close(&o);
}

/* Weights that are not numbers end in a message, not in some token. */
static void test_nan_weights_are_noticed(void **state)
{
    struct opened o;
    struct heard h;
    struct fletch_generated r;
    opened_tiny(&o, *state, &(struct tiny_model){.plant_nan = true}, NULL);
    struct fletch_generate g = settings(&h);
    prompt(&o);
    int rc = fletch_session_generate(o.s, &g, &r);
    expect_error(rc, FLETCH_E_FORMAT, fletch_session_error(o.s), "inspect --check");
    assert_int_equal(r.n_tokens, 0);
    opened_close(&o);
}

#define ON(backend, name, setup, teardown)    \
    {                                         \
#name, name, setup, teardown, backend \
    }
#define TEST(name) ON(ref, name, open_tiny, close_tiny), ON(cpu, name, open_tiny, close_tiny)
#define BARE(name) ON(ref, name, NULL, NULL), ON(cpu, name, NULL, NULL)

int main(void)
{
    static char ref[] = "ref", cpu[] = "cpu";
    const struct CMUnitTest tests[] = {
        TEST(test_max_tokens_are_appended),
        TEST(test_the_text_is_that_of_the_tokens),
        TEST(test_seeds_decide),
        TEST(test_every_position_draws_anew),
        TEST(test_stops_anywhere_in_the_text),
        TEST(test_the_earliest_of_several_stops_wins),
        TEST(test_the_earliest_of_two_stops_in_one_token_wins),
        TEST(test_an_empty_stop_stops_nothing),
        TEST(test_text_held_back_comes_out_at_the_end),
        TEST(test_the_callback_can_end_it),
        TEST(test_an_end_token_ends_it),
        BARE(test_a_full_context_ends_it),
        TEST(test_another_thread_can_cancel),
        TEST(test_bad_settings_are_refused),
        BARE(test_tokens_without_a_vocabulary),
        BARE(test_nan_weights_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
