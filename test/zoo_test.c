/* The zoo models say what test/zoo/expected.json fixes, on every executor. An answer is fed behind
 * its prompt, and every position must choose the token that comes next: greedy decoding, checked in
 * one pass. Where the reference itself found two tokens nearly equal, another choice is counted and
 * printed instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "fletch.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SLOW_BUILD = 1 };
#else
enum { SLOW_BUILD = 0 };
#endif

/* A backend, the profile it computes in, and the lead of the reference's choice (in nats) below
 * which another one is a close call; with routed experts a near tie of the router may exchange an
 * expert, which moves logits further. The reference made the file and may not differ at all. */
struct check {
    const char *backend, *profile;
    double close, close_routed;
};

enum { MAX_TOKENS = 512 };

struct counts {
    size_t n_tokens, n_equal, n_close;
};

static size_t load_ids(const json_t *array, int32_t *ids)
{
    size_t n = json_array_size(array);
    assert_true(n <= MAX_TOKENS / 2);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n;
}

/* Does this row of logits choose `token` (any end token when -1)? */
static void check_row(const struct fletch_model *m, const float *row, uint32_t n_vocab,
                      int32_t token, bool is_close, struct counts *c)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (row[i] > row[best]) best = i;
    c->n_tokens++;
    if (token < 0 ? fletch_is_end(m, (int32_t)best) : (uint32_t)token == best)
        c->n_equal++;
    else if (is_close)
        c->n_close++;
    else
        fail_msg("token %u instead of %d, which is no close call", best, token);
}

static void check_case(struct fletch_model *m, const json_t *kase, double close, struct counts *c)
{
    struct fletch_model_info info;
    struct fletch_session *s;
    int32_t ids[MAX_TOKENS];
    fletch_model_info(m, &info);
    size_t n_prompt = load_ids(json_object_get(kase, "prompt"), ids);
    size_t n_answer = load_ids(json_object_get(kase, "answer"), ids + n_prompt);
    size_t n = n_prompt + n_answer;
    float *logits = malloc(n * info.n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(fletch_session_open(&s, m), 0);
    assert_int_equal(
        fletch_session_append(s, ids, n, &(struct fletch_append){.all_logits = logits}), 0);
    bool ends = json_is_true(json_object_get(kase, "ends"));
    const json_t *leads = json_object_get(kase, "leads");
    assert_int_equal(json_array_size(leads), n_answer + 1);
    for (size_t i = 0; i < n_answer + ends; i++)
        check_row(m, logits + (n_prompt + i - 1) * info.n_vocab, info.n_vocab,
                  i < n_answer ? ids[n_prompt + i] : -1,
                  json_number_value(json_array_get(leads, i)) < close, c);
    fletch_session_close(s);
    free(logits);
}

static void check_model(const json_t *doc, const struct check *check)
{
    const char *path = json_string_value(json_object_get(doc, "model"));
    struct fletch_engine *e;
    struct fletch_model *m;
    struct counts c = {0};
    size_t i;
    json_t *kase, *cases = json_object_get(doc, "cases");
    assert_int_equal(json_array_size(cases), 20);
    assert_int_equal(
        fletch_engine_open(
            &e, &(struct fletch_engine_params){.backend = check->backend, .n_threads = 0}),
        0);
    /* Not the profile that a processor may prefer for prompts: what is fixed knows only these two.
     */
    bool int8 = strcmp(check->profile, "int8") == 0;
    struct fletch_model_params params = {.act_type = int8 ? "int8" : NULL};
    if (fletch_model_open(&m, e, path, &params)) fail_msg("%s", fletch_engine_error(e));
    struct fletch_model_info info;
    fletch_model_info(m, &info);
    bool routed = strcmp(info.arch, "deepseek2") == 0 || strcmp(info.arch, "qwen3moe") == 0;
    json_array_foreach(cases, i, kase)
        check_case(m, kase, routed ? check->close_routed : check->close, &c);
    print_message("%-5s %-22s %zu tokens, %zu equal, %zu close calls\n", check->backend, path,
                  c.n_tokens, c.n_equal, c.n_close);
    assert_true(c.n_tokens > 0 && c.n_close * 50 <= c.n_tokens);
    fletch_model_close(m);
    fletch_engine_close(e);
}

/* Sanitizers make everything slow: there, the tiny models have to do. */
static void check_all(const struct check *check)
{
    size_t i, n = 0;
    json_t *doc, *all = json_load_file("test/zoo/expected.json", 0, NULL);
    assert_non_null(all);
    json_array_foreach(all, i, doc)
    {
        if (strcmp(json_string_value(json_object_get(doc, "profile")), check->profile)) continue;
        bool tiny = strstr(json_string_value(json_object_get(doc, "model")), "tiny") != NULL;
        if (SLOW_BUILD && !tiny) continue;
        check_model(doc, check);
        n++;
    }
    assert_true(n >= 6);
    json_decref(all);
}

static void test_the_reference_says_exactly_what_is_fixed(void **state)
{
    (void)state;
    check_all(&(struct check){"ref", "f32", 0, 0});
}

static void test_the_cpu_says_the_same_but_for_close_calls(void **state)
{
    (void)state;
    check_all(&(struct check){"cpu", "int8", 0.05, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reference_says_exactly_what_is_fixed),
        cmocka_unit_test(test_the_cpu_says_the_same_but_for_close_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
