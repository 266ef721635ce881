/* Unigram against a table of all ways to cut a text, and the memory that it takes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

enum { N_TOKENS = 25, MAX_BYTES = 400 };

struct words {
    char texts[N_TOKENS][8];
    struct str tokens[N_TOKENS];
    float scores[N_TOKENS];
    u8 types[N_TOKENS];
};

static u32 next_random(u32 *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Token 0 is the unknown one; the others are texts of a and b, and spaces before some. */
static struct tok *open_words(struct words *w, u32 seed)
{
    struct tok_spec spec;
    struct tok *t;
    struct err err = {0};
    memset(w, 0, sizeof *w);
    for (u32 i = 1; i < N_TOKENS;) {
        size_t n = next_random(&seed) % 4 + 1, at = 0;
        bool there = false;
        memset(w->texts[i], 0, sizeof w->texts[i]);
        if (i % 5 == 0) at = strlen(strcpy(w->texts[i], TOK_SPACE));
        while (n--) w->texts[i][at++] = (char)('a' + next_random(&seed) % 2);
        for (u32 k = 1; k < i; k++) there |= !strcmp(w->texts[k], w->texts[i]);
        if (there) continue;
        w->scores[i] = -(float)(next_random(&seed) % 64) / 8;
        i++;
    }
    strcpy(w->texts[0], "<unk>");
    for (u32 i = 0; i < N_TOKENS; i++) {
        w->tokens[i] = str_of(w->texts[i]);
        w->types[i] = i ? TOK_NORMAL : TOK_UNKNOWN;
    }
    tok_spec_init(&spec);
    spec.kind = TOK_UNIGRAM;
    spec.n_tokens = N_TOKENS;
    spec.tokens = w->tokens;
    spec.types = w->types;
    spec.scores = w->scores;
    spec.unk = 0;
    spec.fuse_unk = 0;
    if (tok_open(&t, &spec, &err)) fail_msg("%s", err.text);
    return t;
}

/* The best sum of scores for s, by trying every token at every place. */
static double best_score(const struct tok *t, const struct words *w, struct str s)
{
    double best[MAX_BYTES + 1] = {0};
    for (size_t end = 1; end <= s.n; end++) {
        best[end] = -INFINITY;
        for (u32 i = 1; i < N_TOKENS; i++) {
            struct str token = w->tokens[i];
            if (token.n > end || memcmp(s.p + end - token.n, token.p, token.n) != 0) continue;
            best[end] = fmax(best[end], best[end - token.n] + (double)w->scores[i]);
        }
        size_t one = end >= 3 && !memcmp(s.p + end - 3, TOK_SPACE, 3) ? 3 : 1;
        if (one == 1 && (u8)s.p[end - 1] >= 0x80) continue;
        best[end] = fmax(best[end], best[end - one] + t->unknown_score);
    }
    return best[s.n];
}

static struct str random_text(char *text, u32 *state)
{
    static const char *const parts[] = {"a", "b", "a", "b", "ab", "c", TOK_SPACE};
    size_t n = 0;
    while (n + 3 < MAX_BYTES && next_random(state) % 100)
        n += strlen(strcpy(text + n, parts[next_random(state) % ARRAY_LEN(parts)]));
    return (struct str){text, n};
}

static void test_the_best_cut_is_found_in_windows_of_every_size(void **state)
{
    (void)state;
    static const size_t windows[] = {1, 2, 7, 50, SIZE_MAX};
    u32 random = 7;
    for (u32 seed = 1; seed <= 40; seed++) {
        struct words w;
        struct tok *t = open_words(&w, seed);
        struct tok_merger m = {0};
        for (u32 k = 0; k < 20; k++) {
            char text[MAX_BYTES + 4];
            struct str s = random_text(text, &random);
            struct tok_ids whole = {0};
            double sum = 0;
            assert_int_equal(tok_unigram(t, &m, s, &whole, NULL), 0);
            for (size_t i = 0; i < whole.n; i++)
                sum += whole.p[i] ? (double)w.scores[whole.p[i]] : t->unknown_score;
            assert_true(sum == best_score(t, &w, s)); /* eighths: sums are exact */
            for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
                struct tok_ids ids = {0};
                assert_int_equal(tok_unigram_windows(t, &m, s, windows[i], &ids, NULL), 0);
                assert_int_equal(ids.n, whole.n);
                if (ids.n) assert_memory_equal(ids.p, whole.p, ids.n * sizeof *ids.p);
                tok_ids_free(&ids);
            }
            tok_ids_free(&whole);
        }
        tok_merger_free(&m);
        tok_close(t);
    }
}

/* Words of a text part it; a text without any is still only two bytes a byte. */
static void test_a_long_text_takes_the_memory_of_a_window(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static char words[N], letters[N];
    struct words w;
    struct tok *t = open_words(&w, 1);
    for (size_t i = 0; i < N; i++) {
        words[i] = i % 16 == 0 ? 'c' : i % 3 ? 'a' : 'b'; /* no token has a c in it */
        letters[i] = 'a';
    }
    const char *const texts[] = {words, letters};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tok_merger m = {0};
        struct tok_ids ids = {0};
        assert_int_equal(tok_unigram(t, &m, (struct str){texts[i], N}, &ids, NULL), 0);
        assert_in_range(m.cap_lens, 1, i ? 2 * N : 1 << 17);
        tok_ids_free(&ids);
        tok_merger_free(&m);
    }
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_cut_is_found_in_windows_of_every_size),
        cmocka_unit_test(test_a_long_text_takes_the_memory_of_a_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
