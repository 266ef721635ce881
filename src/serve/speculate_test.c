/* How guesses are looked up, how many are made, and how they are judged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/sample.h"
#include "serve/reject.h"
#include "serve/speculate.h"

static struct net net = {.n_vocab = 100};
static const struct program program = {.net = &net};
static struct step_queue queue = {.p = &program};

static struct spec *open_lookup(u32 n_tokens)
{
    struct spec *s;
    struct err err;
    struct spec_env env = {.target = {.queue = &queue}, .n_slots = 1, .n_tokens = n_tokens};
    assert_int_equal(spec_open(&s, &env, &err), 0);
    return s;
}

/* What is guessed behind n tokens. */
static u32 guesses(const i32 *known, u32 n, i32 *out)
{
    struct spec *s = open_lookup(4);
    struct spec_record record = {0};
    i32 tokens[64];
    struct err err;
    for (u32 i = 0; i < n; i++) tokens[i] = known[i];
    struct spec_seq q = {.tokens = tokens, .n = n, .record = &record};
    spec_choose(s, &q, 1, false);
    assert_int_equal(spec_draft(s, &q, 1, &err), 0);
    for (u32 i = 0; i < q.n_draft; i++) out[i] = tokens[n + i];
    spec_close(s);
    return q.n_draft;
}

static void test_lookups_go_on_as_the_text_did(void **state)
{
    (void)state;
    i32 out[8];
    /* the longest match counts, not the last one */
    const i32 text[] = {9, 1, 2, 3, 4, 50, 51, 52, 53, 7, 2, 3, 4, 60, 8, 9, 1, 2, 3, 4};
    assert_int_equal(guesses(text, ARRAY_LEN(text), out), 4);
    for (i32 i = 0; i < 4; i++) assert_int_equal(out[i], 50 + i);
    /* of equal ones the last */
    const i32 twice[] = {2, 3, 4, 50, 7, 2, 3, 4, 60, 61, 62, 63, 2, 3, 4};
    assert_int_equal(guesses(twice, ARRAY_LEN(twice), out), 4);
    assert_int_equal(out[0], 60);
    /* a loop goes on as a loop */
    const i32 loop[] = {1, 5, 6, 7, 5, 6, 7, 5, 6};
    assert_int_equal(guesses(loop, ARRAY_LEN(loop), out), 4);
    assert_true(out[0] == 7 && out[1] == 5 && out[2] == 6 && out[3] == 7);
    /* nothing to go by */
    const i32 other[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_int_equal(guesses(other, ARRAY_LEN(other), out), 0);
    assert_int_equal(guesses(other, 2, out), 0);
}

/* How many guesses are thought to pay after steps of these costs; every `disturbed`th took ten
 * times as long. */
static u32 chosen(double first, double more, float trust, u32 disturbed)
{
    struct spec *s = open_lookup(0);
    struct spec_record record = {.trust = trust};
    struct spec_seq q = {.record = &record};
    for (u32 i = 0; i < 40; i++) {
        u32 n_rows = 1 + i % 4;
        double seconds = first + more * n_rows;
        spec_measure(s, n_rows, disturbed && i / 4 % disturbed ? seconds * 10 : seconds);
    }
    for (u32 i = 0; i < 3; i++) spec_choose(s, &q, 1, false);
    spec_close(s);
    return q.most;
}

static void test_as_many_as_pay(void **state)
{
    (void)state;
    assert_int_equal(chosen(1, 0.01, 1, 0), SPEC_MAX);
    assert_int_equal(chosen(1, 0.01, 0.01f, 0), 0); /* hardly ever right */
    assert_int_equal(chosen(0, 1, 0.9f, 0), 0);     /* rows cost what steps do */
    u32 some = chosen(1, 0.2, 0.8f, 0);
    assert_true(some > 0 && some < SPEC_MAX);
    assert_true(chosen(1, 0.2, 0.95f, 0) > some && chosen(1, 0.05, 0.8f, 0) > some);
}

static void test_others_on_the_machine_do_not_change_what_pays(void **state)
{
    (void)state;
    assert_int_equal(chosen(1, 0.2, 0.8f, 4), chosen(1, 0.2, 0.8f, 0));
    assert_int_equal(chosen(1, 0.01, 1, 4), SPEC_MAX);
}

/* Steps whose first times were bad: guesses are tried again, and found to pay. */
static void test_a_bad_start_is_forgotten(void **state)
{
    (void)state;
    struct spec *s = open_lookup(0);
    struct spec_record record = {.trust = 0.9f};
    struct spec_seq q = {.record = &record};
    u32 n_drafted = 0;
    for (u32 i = 0; i < 8; i++) spec_measure(s, 1 + i % 4, i % 4 ? 50 : 1);
    for (u32 i = 0; i < 2000; i++) {
        spec_choose(s, &q, 1, false);
        spec_measure(s, 1 + q.most, 1 + 0.1 * q.most);
        if (i >= 1000) n_drafted += q.most;
    }
    assert_true(n_drafted > 3 * 1000);
    spec_close(s);
}

/* Choices of 2,048 that try a guess which does not pay. */
static u32 trials(bool rarely)
{
    struct spec *s = open_lookup(0);
    struct spec_record record = {.trust = 0.5f};
    struct spec_seq q = {.record = &record};
    u32 n = 0;
    for (u32 i = 0; i < 8; i++) spec_measure(s, 1 + i % 2, i % 2 ? 50 : 1);
    for (u32 i = 0; i < 2048; i++) {
        spec_choose(s, &q, 1, rarely);
        n += q.most > 0;
    }
    spec_close(s);
    return n;
}

static void test_what_does_not_pay_is_tried_less_beside_a_prompt(void **state)
{
    (void)state;
    assert_int_equal(trials(false), 2048 / 64);
    assert_int_equal(trials(true), 2048 / 64 / 16);
}

static void test_trust_follows_what_came_true(void **state)
{
    (void)state;
    struct spec_record r = {.trust = 0.8f, .kind = {1, 1, 1, 1}};
    for (u32 i = 0; i < 200; i++) spec_count(&r, 4, i % 2 ? 4 : 0); /* 4 of 5 that count */
    assert_true(r.trust > 0.65f && r.trust < 0.95f);
    assert_true(r.n_drafted == 800 && r.n_accepted == 400);
    for (u32 i = 0; i < 200; i++) spec_count(&r, 1, 0);
    assert_true(r.trust < 0.05f && r.rate[1] < 0.05f);
    /* what one kind does says nothing of another */
    r = (struct spec_record){.trust = 0.5f};
    for (u32 i = 0; i < 400; i++) {
        r.kind[0] = i % 2 ? 7 : 2;
        spec_count(&r, 1, i % 2);
    }
    assert_true(r.rate[7] > 0.95f && r.rate[2] < 0.05f && r.trust > 0.3f && r.trust < 0.7f);
}

/* ---- rejection ---- */

enum { N = 8, N_DRAWS = 1000000 };

static const float model[N] = {0.30f, 0.22f, 0.16f, 0.12f, 0.09f, 0.06f, 0.04f, 0.01f};
static const float guesser[N] = {0.10f, 0.30f, 0.05f, 0.25f, 0.09f, 0.01f, 0.20f, 0};

/* χ² of tokens over many positions, whose guesses are drawn from q (NULL: always token 1), against
 * the model's odds. bias: share of draws that are moved to token 0. */
static double chi_square(const float *q, double bias)
{
    u32 seen[N] = {0};
    double sum = 0;
    for (u32 i = 0; i < N_DRAWS; i++) {
        i32 guess = 1;
        float best = -INFINITY;
        for (u32 t = 0; q && t < N; t++) {
            float z = q[t] > 0 ? num_log(q[t]) + sample_gumbel(5, 0, i, t) : -INFINITY;
            if (z > best) {
                best = z;
                guess = (i32)t;
            }
        }
        i32 token = reject_judge(model, q, N, guess, (struct reject_key){5, 0, i});
        if (bias > 0 && i % (u32)(1 / bias) == 0) token = 0;
        seen[token]++;
    }
    for (u32 t = 0; t < N; t++) {
        double want = (double)model[t] * (double)N_DRAWS, d = seen[t] - want;
        sum += d * d / want;
    }
    return sum;
}

static void test_rejection_draws_as_the_model_would(void **state)
{
    (void)state;
    const double p01 = 18.475; /* χ² with 7 degrees of freedom is above this once in a hundred */
    double with = chi_square(guesser, 0), certain = chi_square(NULL, 0);
    printf("chi-square %.1f with odds, %.1f with certain guesses, limit %.1f\n", with, certain,
           p01);
    assert_true(with < p01 && certain < p01);
    assert_true(chi_square(guesser, 0.01) > p01 && chi_square(NULL, 0.01) > p01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookups_go_on_as_the_text_did),
        cmocka_unit_test(test_as_many_as_pay),
        cmocka_unit_test(test_others_on_the_machine_do_not_change_what_pays),
        cmocka_unit_test(test_a_bad_start_is_forgotten),
        cmocka_unit_test(test_what_does_not_pay_is_tried_less_beside_a_prompt),
        cmocka_unit_test(test_trust_follows_what_came_true),
        cmocka_unit_test(test_rejection_draws_as_the_model_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
