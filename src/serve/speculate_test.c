/* How drafts are looked up, how many tokens are drafted, and how they are judged. */
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
    struct spec_env env = {.target = {.queue = &queue},
                           .uses = {[DRAFTER_NGRAM] = true},
                           .n_slots = 1,
                           .n_tokens = n_tokens};
    assert_int_equal(spec_open(&s, &env, &err), 0);
    return s;
}

/* What is drafted after n tokens. */
static u32 drafts(const i32 *known, u32 n, i32 *out)
{
    struct spec *s = open_lookup(4);
    struct spec_record record = {0};
    i32 tokens[64];
    struct err err;
    for (u32 i = 0; i < n; i++) tokens[i] = known[i];
    struct spec_seq q = {.tokens = tokens, .n = n, .room = 8, .record = &record};
    assert_int_equal(spec_draft(s, &q, 1, 1, &err), 0);
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
    assert_int_equal(drafts(text, ARRAY_LEN(text), out), 4);
    for (i32 i = 0; i < 4; i++) assert_int_equal(out[i], 50 + i);
    /* of equal ones the last */
    const i32 twice[] = {2, 3, 4, 50, 7, 2, 3, 4, 60, 61, 62, 63, 2, 3, 4};
    assert_int_equal(drafts(twice, ARRAY_LEN(twice), out), 4);
    assert_int_equal(out[0], 60);
    /* a loop goes on as a loop */
    const i32 loop[] = {1, 5, 6, 7, 5, 6, 7, 5, 6};
    assert_int_equal(drafts(loop, ARRAY_LEN(loop), out), 4);
    assert_true(out[0] == 7 && out[1] == 5 && out[2] == 6 && out[3] == 7);
    /* nothing to go by */
    const i32 other[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_int_equal(drafts(other, ARRAY_LEN(other), out), 0);
    assert_int_equal(drafts(other, 2, out), 0);
}

/* ---- what it costs and gives ---- */

/* Seconds of a step by rows, as they were recorded; between those of the table. */
static const struct machine {
    const char *name;
    struct {
        u32 n_rows;
        double ms;
    } at[8];
} machines[] = {
    {"zoo/guide.gguf, two cores",
     {{1, 0.2}, {2, 0.31}, {4, 0.4}, {8, 0.63}, {16, 1.15}, {32, 2.2}, {64, 4.4}}},
    {"8B on an H200", {{1, 2.4}, {8, 2.6}, {16, 3.1}, {32, 3.9}, {64, 6.1}}},
    {"rows cost what steps do", {{1, 1}, {64, 64}}},
    {"rows are free", {{1, 1}, {64, 1.01}}},
    {"few rows are dear, many are not", {{1, 1}, {2, 2}, {8, 4}, {64, 5}}},
};

static double seconds_of(const struct machine *m, u32 n_rows)
{
    u32 i = 1;
    while (m->at[i].n_rows < n_rows) i++;
    double share = (double)(n_rows - m->at[i - 1].n_rows) / (m->at[i].n_rows - m->at[i - 1].n_rows);
    return 1e-3 * (m->at[i - 1].ms + share * (m->at[i].ms - m->at[i - 1].ms));
}

enum { TEXT = 6000, COPY = 600 };

struct text {
    const char *name;
    /* token n of a text that knows what was drafted after the first n: -1 nothing */
    i32 (*token)(const i32 *tokens, u32 n, i32 draft);
};

static i32 hash(u32 n)
{
    return (i32)((n * 2654435761u ^ n >> 3) % 90);
}

static i32 never_again(const i32 *tokens, u32 n, i32 draft)
{
    (void)tokens;
    (void)draft;
    return (i32)n + 1000;
}

/* As much alike as can be, and every draft token is wrong. */
static i32 against_drafts(const i32 *tokens, u32 n, i32 draft)
{
    (void)tokens;
    i32 next = (i32)(n % 5);
    return next == draft ? 7 : next;
}

static i32 few_words(const i32 *tokens, u32 n, i32 draft)
{
    (void)tokens;
    (void)draft;
    return hash(n) % 3;
}

/* Wrong after it was right for long. */
static i32 turns(const i32 *tokens, u32 n, i32 draft)
{
    bool good = n / 500 % 2 == 0;
    return good ? (i32)(n % 40) : against_drafts(tokens, n, draft);
}

static i32 copy_with_edits(const i32 *tokens, u32 n, i32 draft)
{
    (void)tokens;
    (void)draft;
    if (n >= COPY && n % 29 == 0) return 1000 + (i32)n;
    return hash(n % COPY) + 1;
}

static const struct text texts[] = {{"a text that never repeats itself", never_again},
                                    {"a text against its drafts", against_drafts},
                                    {"three words at random", few_words},
                                    {"good and bad in turns", turns},
                                    {"a copy with edits", copy_with_edits}};

/* Seconds of tokens from..to with drafts over those without, on a machine where every `disturbed`th
 * step seems to take ten times as long. */
static double ratio(const struct machine *m, const struct text *text, u32 from, u32 to,
                    u32 disturbed)
{
    static i32 tokens[TEXT + SPEC_MAX + 1];
    struct spec *s = open_lookup(0);
    struct spec_record record = {0};
    struct err err;
    double with = 0;
    u32 n = 0, n_steps = 0, begun = 0;
    while (n < to) {
        struct spec_seq q = {.tokens = tokens, .n = n, .room = 63, .record = &record};
        assert_int_equal(spec_draft(s, &q, 1, 1, &err), 0);
        u32 n_right = 0, n_rows = q.n_draft + 1;
        i32 next;
        for (;; n_right++) {
            i32 draft = n_right < q.n_draft ? tokens[n + n_right] : -1;
            next = text->token(tokens, n + n_right, draft);
            if (n_right == q.n_draft || next != draft) break;
        }
        tokens[n + n_right] = next;
        double t = seconds_of(m, n_rows);
        if (n >= from && !begun) begun = n + 1;
        if (begun) with += t;
        n += n_right + 1;
        if (disturbed && ++n_steps % disturbed == 0) t *= 10;
        spec_measure(s, (struct spec_step){1, n_rows}, t);
        spec_count(s, &record, (struct spec_step){1, n_rows}, n_rows, q.n_draft, n_right);
    }
    spec_close(s);
    return with / (seconds_of(m, 1) * (n + 1 - begun));
}

/* At most 2 % slower than off on any text of 256 tokens or more, whatever rows cost. */
static void test_drafting_never_costs_more_than_two_percent(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines) * ARRAY_LEN(texts) * 4; i++) {
        const struct machine *m = &machines[i % ARRAY_LEN(machines)];
        const struct text *t = &texts[i / ARRAY_LEN(machines) % ARRAY_LEN(texts)];
        u32 n = i / ARRAY_LEN(machines) / ARRAY_LEN(texts) % 2 ? 256 : TEXT;
        u32 disturbed = i / ARRAY_LEN(machines) / ARRAY_LEN(texts) / 2 ? 3 : 0;
        double r = ratio(m, t, 0, n, disturbed);
        if (!disturbed)
            printf("%-34s %-33s %4u tokens: %.3f of the time\n", m->name, t->name, n, r);
        assert_true(r <= 1.02);
    }
}

static void test_repeated_text_is_much_faster(void **state)
{
    (void)state;
    for (u32 i = 0; i < 10; i++) {
        double r = ratio(&machines[i / 2], &texts[4], COPY, 2 * COPY, i % 2 ? 4 : 0);
        printf("%-34s copied once: %.3f of the time\n", machines[i / 2].name, r);
        if (i < 2) assert_true(r < 1 / 1.7);
        if (i / 2 == 1 || i / 2 == 3) assert_true(r < 0.15);
    }
}

/* What one sequence lost is not there to be lost by the next one. */
static void test_many_short_sequences_lose_as_little(void **state)
{
    (void)state;
    enum { N_SEQS = 200, EACH = 20 };
    const struct machine *m = &machines[0];
    static i32 tokens[EACH + SPEC_MAX];
    struct spec *s = open_lookup(0);
    struct err err;
    double with = 0;
    for (u32 i = 0; i < N_SEQS; i++) {
        struct spec_record record = {0};
        for (u32 n = 0; n < EACH; n++) {
            struct spec_seq q = {.tokens = tokens, .n = n, .room = 63, .record = &record};
            assert_int_equal(spec_draft(s, &q, 1, 1, &err), 0);
            u32 n_rows = q.n_draft + 1;
            tokens[n] = against_drafts(tokens, n, q.n_draft ? tokens[n] : -1);
            with += seconds_of(m, n_rows);
            spec_measure(s, (struct spec_step){1, n_rows}, seconds_of(m, n_rows));
            spec_count(s, &record, (struct spec_step){1, n_rows}, n_rows, q.n_draft, 0);
        }
        spec_end(s, &record);
    }
    spec_close(s);
    assert_true(with < 1.02 * (N_SEQS * EACH) * seconds_of(m, 1));
}

static void test_trust_follows_what_was_accepted(void **state)
{
    (void)state;
    enum { M = DRAFTER_NGRAM };
    struct spec *s = open_lookup(0);
    const struct spec_step step = {1, 5};
    struct spec_record r = {.trust = {[M] = 0.8f}};
    for (u32 i = 0; i < 4; i++) r.kind[i] = M * SPEC_KINDS + 1;
    for (u32 i = 0; i < 200; i++) spec_count(s, &r, step, 5, 4, i % 2 ? 4 : 0); /* 4 of 5 count */
    assert_true(r.trust[M] > 0.65f && r.trust[M] < 0.95f);
    assert_true(r.n_drafted == 800 && r.n_accepted == 400);
    for (u32 i = 0; i < 200; i++) spec_count(s, &r, step, 5, 1, 0);
    assert_true(r.trust[M] < 0.05f && r.rate[M][1] < 0.05f && r.trust[DRAFTER_MTP] == 0);
    /* what one kind does says nothing of another */
    r = (struct spec_record){.trust = {[M] = 0.5f}};
    for (u32 i = 0; i < 400; i++) {
        r.kind[0] = (u8)(M * SPEC_KINDS + (i % 2 ? 7 : 2));
        spec_count(s, &r, step, 5, 1, i % 2);
    }
    assert_true(r.rate[M][7] > 0.95f && r.rate[M][2] < 0.05f);
    assert_true(r.trust[M] > 0.3f && r.trust[M] < 0.7f);
    spec_close(s);
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
        cmocka_unit_test(test_drafting_never_costs_more_than_two_percent),
        cmocka_unit_test(test_repeated_text_is_much_faster),
        cmocka_unit_test(test_many_short_sequences_lose_as_little),
        cmocka_unit_test(test_trust_follows_what_was_accepted),
        cmocka_unit_test(test_rejection_draws_as_the_model_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
