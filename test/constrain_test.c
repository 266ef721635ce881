/* Grammars behind the public interface: requests from several threads share what was compiled,
 * answers end where their grammar does, and what can't be kept is refused. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "opened.h"

enum { N_THREADS = 3, N_GRAMMARS = 12, N_ROUNDS = 2, N_EACH = N_GRAMMARS * N_ROUNDS };

static const i32 prompt[] = {70, 71, 72, 73};

struct answer {
    u32 which;
    char text[64];
    size_t n;
    enum fletch_finish finish;
    bool done;
};

struct sender {
    struct fletch_batch *b;
    struct answer answers[N_EACH];
    atomic_uint *n_sending;
    u32 n_failed;
};

static int on_token(void *ctx, const struct fletch_token *t)
{
    struct answer *a = ctx;
    if (a->n + t->n_text >= sizeof a->text) return 1;
    memcpy(a->text + a->n, t->text, t->n_text);
    a->n += t->n_text;
    return 0;
}

static void on_done(void *ctx, const struct fletch_result *result)
{
    struct answer *a = ctx;
    a->finish = result->finish;
    a->done = true;
}

/* One of twelve, more than are kept while nobody uses them. */
static void write_grammar(char *to, size_t cap, u32 which)
{
    snprintf(to, cap, "root ::= \"a%02u-\" [0-9]{3}", which);
}

static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (u32 i = 0; i < N_EACH; i++) {
        char grammar[64];
        struct answer *a = &s->answers[i];
        a->which = i % N_GRAMMARS;
        write_grammar(grammar, sizeof grammar, a->which);
        struct fletch_request r = {
            .tokens = prompt,
            .n_tokens = ARRAY_LEN(prompt),
            .max_tokens = 20,
            .sampling = {.temperature = 1.5f, .top_p = 1, .repeat_penalty = 1, .seed = i},
            .grammar = grammar,
            .on_token = on_token,
            .on_done = on_done,
            .ctx = a};
        s->n_failed += fletch_batch_submit(s->b, &r, NULL) != 0;
    }
    atomic_fetch_sub(s->n_sending, 1);
    return NULL;
}

static void expect_form(const struct answer *a)
{
    char begin[8];
    snprintf(begin, sizeof begin, "a%02u-", a->which);
    assert_true(a->done && a->finish == FLETCH_FINISH_END && a->n == 7);
    assert_memory_equal(a->text, begin, 4);
    for (u32 i = 4; i < 7; i++) assert_in_range(a->text[i], '0', '9');
}

static void test_threads_share_grammars(void **state)
{
    (void)state;
    struct opened o;
    struct fletch_batch *b;
    static struct sender senders[N_THREADS];
    pthread_t threads[N_THREADS];
    atomic_uint n_sending = N_THREADS;
    struct fletch_model_params params = {.n_ctx = 64, .n_sessions = 4};
    opened_path(&o, "cpu", "zoo/tiny/llama.gguf", &params);
    fletch_session_close(o.s);
    o.s = NULL;
    assert_int_equal(fletch_batch_open(&b, o.m, NULL), 0);
    for (u32 i = 0; i < N_THREADS; i++) {
        senders[i] = (struct sender){.b = b, .n_sending = &n_sending};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    while (fletch_batch_step(b, 0.01) || atomic_load(&n_sending)) {
    }
    for (u32 i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(senders[i].n_failed, 0);
    }
    while (fletch_batch_step(b, 0)) {
    }
    for (u32 i = 0; i < N_THREADS; i++)
        for (u32 k = 0; k < N_EACH; k++) expect_form(&senders[i].answers[k]);
    fletch_batch_close(b);
    opened_close(&o);
}

static int keep_text(void *ctx, int32_t token, const char *text, size_t n)
{
    struct answer *a = ctx;
    (void)token;
    memcpy(a->text + a->n, text, n);
    a->n += n;
    return 0;
}

static void test_a_session_answers_in_form_again_and_again(void **state)
{
    (void)state;
    struct opened o;
    struct fletch_generated made;
    struct fletch_model_params params = {.n_ctx = 128};
    opened_path(&o, "cpu", "zoo/tiny/rwkv7.gguf", &params);
    assert_int_equal(fletch_session_append(o.s, prompt, ARRAY_LEN(prompt), NULL), 0);
    for (u32 i = 0; i < 4; i++) {
        struct answer a = {.which = i};
        char grammar[64];
        write_grammar(grammar, sizeof grammar, i);
        struct fletch_generate g = {
            .sampling = {.temperature = 1.5f, .top_p = 1, .repeat_penalty = 1, .seed = i},
            .grammar = grammar,
            .on_text = keep_text,
            .ctx = &a};
        u32 before = fletch_session_length(o.s);
        assert_int_equal(fletch_session_generate(o.s, &g, &made), 0);
        a.done = true;
        a.finish = made.finish;
        expect_form(&a);
        assert_int_equal(fletch_session_length(o.s), before + made.n_tokens);
    }
    opened_close(&o);
}

static void test_what_cannot_be_kept_is_refused(void **state)
{
    (void)state;
    struct opened o;
    struct fletch_generated made;
    opened_path(&o, "cpu", "zoo/tiny/llama.gguf", &(struct fletch_model_params){.n_ctx = 64});
    assert_int_equal(fletch_session_append(o.s, prompt, ARRAY_LEN(prompt), NULL), 0);
    const struct fletch_generate refused[] = {
        {.grammar = "root ::= x"},
        {.grammar = "root ::= \"a\"", .json_schema = "{}"},
        {.grammar = "root ::= \"a\"", .ignore_end = true},
        {.json_schema = "{\"not\":{}}"},
        {.json_schema = "{"},
        {.json_schema = "{\"$ref\":\"#\"}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct fletch_generate g = refused[i];
        g.sampling = (struct fletch_sampling){.top_p = 1, .repeat_penalty = 1};
        assert_int_equal(fletch_session_generate(o.s, &g, &made), FLETCH_E_ARG);
        assert_int_equal(made.n_tokens, 0);
        assert_true(*fletch_session_error(o.s) && !strchr(fletch_session_error(o.s), '\n'));
    }
    opened_close(&o);
}

/* A control token can be in an answer where the grammar names it, and only there: not where it
 * allows the text that the token looks like. */
static void test_a_grammar_names_control_tokens(void **state)
{
    (void)state;
    struct opened o;
    struct fletch_generated made;
    int32_t *ids;
    size_t n;
    char grammar[80];
    opened_tiny(&o, "ref", &(struct tiny_model){.vocab = "qwen2"}, NULL);
    assert_int_equal(fletch_tokenize(o.m, "<|im_start|>", 12, FLETCH_SPECIAL, &ids, &n), 0);
    assert_int_equal(n, 1);
    i32 control = *ids;
    fletch_free(ids);
    assert_int_equal(fletch_session_append(o.s, prompt, ARRAY_LEN(prompt), NULL), 0);
    struct fletch_generate g = {.sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1},
                                .grammar = grammar};
    for (int named = 0; named < 2; named++) {
        u32 before = fletch_session_length(o.s), n_control = 0;
        snprintf(grammar, sizeof grammar,
                 named ? "root ::= \"a\" <[%d]> \"b\"" : "root ::= \"<|im_start|>\"", (int)control);
        assert_int_equal(fletch_session_generate(o.s, &g, &made), 0);
        const int32_t *made_ids = fletch_session_tokens(o.s) + before;
        for (u32 i = 0; i < made.n_tokens; i++) n_control += made_ids[i] == control;
        assert_int_equal(n_control, named);
        assert_true(made.n_tokens >= 3);
    }
    static const struct {
        const char *grammar, *says;
    } refused[] = {
        {"root ::= <[9999999]>", "no token with this id"},
        {"root ::= \"a\" <[70]>", "<[70]>: this is not a control token"},
    };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        g.grammar = refused[i].grammar;
        assert_int_equal(fletch_session_generate(o.s, &g, &made), FLETCH_E_ARG);
        assert_non_null(strstr(fletch_session_error(o.s), refused[i].says));
    }
    opened_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_share_grammars),
        cmocka_unit_test(test_a_session_answers_in_form_again_and_again),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused),
        cmocka_unit_test(test_a_grammar_names_control_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
