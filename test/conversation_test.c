/* Twenty turns fed as they come, answers generated in between, equal a fresh run of the whole
 * transcript in every bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opened.h"

enum { N_TURNS = 20, N_CTX = 512, N_VOCAB = 101 };

struct transcript {
    uint32_t n;
    int32_t tokens[N_CTX];
    uint32_t turn_end[N_TURNS];
    float logits[N_TURNS][N_VOCAB]; /* after each turn */
};

static int keep_token(void *ctx, int32_t token, const char *text, size_t n)
{
    struct transcript *t = ctx;
    (void)text;
    assert_int_equal(n, 0); /* a model without a vocabulary */
    t->tokens[t->n++] = token;
    return 0;
}

/* Turns of 1 to 23 tokens, answers of 1 to 13. */
static void talk(struct transcript *t, struct fletch_session *s)
{
    uint64_t r = 3;
    for (uint32_t turn = 0; turn < N_TURNS; turn++) {
        uint32_t n = 1 + turn * 7 % 23, first = t->n;
        for (uint32_t i = 0; i < n; i++) {
            r = r * 6364136223846793005u + 1442695040888963407u;
            t->tokens[t->n++] = (int32_t)((r >> 33) % N_VOCAB);
        }
        if (fletch_session_append(s, t->tokens + first, n, NULL))
            fail_msg("%s", fletch_session_error(s));
        struct fletch_generated result;
        struct fletch_generate g = {
            .max_tokens = 1 + turn * 5 % 13,
            .sampling = {.temperature = turn % 2 ? 0 : 1, .top_p = 1, .repeat_penalty = 1},
            .on_text = keep_token,
            .ctx = t,
        };
        if (fletch_session_generate(s, &g, &result)) fail_msg("%s", fletch_session_error(s));
        assert_int_equal(result.n_tokens, g.max_tokens);
        assert_int_equal(fletch_session_length(s), t->n);
        memcpy(t->logits[turn], fletch_session_logits(s), sizeof t->logits[turn]);
        t->turn_end[turn] = t->n;
    }
}

static void expect_same_as_fresh(const char *backend, const char *model)
{
    struct transcript *t = calloc(1, sizeof *t);
    float(*all)[N_VOCAB] = calloc(N_CTX, sizeof *all);
    struct opened o;
    assert_true(t && all);
    /* A profile in which a token is the same whether it was read or generated. */
    const char *act = strcmp(backend, "cpu") == 0 ? "int8" : NULL;
    opened_path(&o, backend, model, &(struct fletch_model_params){.n_ctx = N_CTX, .act_type = act});
    talk(t, o.s);
    opened_close(&o);
    assert_true(t->n > 200 && t->n <= N_CTX);
    static const uint32_t chunks[] = {13, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        opened_path(
            &o, backend, model,
            &(struct fletch_model_params){.n_ctx = N_CTX, .max_rows = chunks[i], .act_type = act});
        assert_int_equal(fletch_session_append(o.s, t->tokens, t->n, all[0]), 0);
        for (uint32_t turn = 0; turn < N_TURNS; turn++)
            assert_memory_equal(all[t->turn_end[turn] - 1], t->logits[turn], sizeof *all);
        opened_close(&o);
    }
    assert_memory_not_equal(t->logits[0], t->logits[1], sizeof *all);
    free(all);
    free(t);
}

static void test_llama(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        expect_same_as_fresh(opened_backends[i], "test/golden/models/llama");
}

static void test_glm(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        expect_same_as_fresh(opened_backends[i], "test/golden/models/glm4_moe_lite");
}

static void test_rwkv7(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        expect_same_as_fresh(opened_backends[i], "test/golden/models/rwkv7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_glm),
        cmocka_unit_test(test_rwkv7),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
