/* The gates: backends that are right pass all of them, and one that is wrong in one way fails the
 * gate that is there for it. The wrong ones are the reference executor, given a step that was
 * tampered with. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/engine.h"
#include "ref/ref.h"

static const i32 prompt[] = {5, 17, 3, 99, 42, 8, 61};
static const struct fletch_verify how = {
    .tokens = prompt, .n_prompt = ARRAY_LEN(prompt), .n_tokens = 24};

/* The gates that failed, as in "P1 P4 ". */
static void run(char failed[64], struct fletch_engine *e, const char *path)
{
    char *text;
    if (fletch_gates(e, path, NULL, &how, &text)) fail_msg("%s: %s", path, e->err.text);
    json_t *doc = json_loads(text, 0, NULL), *gates = json_object_get(doc, "gates"), *g;
    size_t i;
    failed[0] = 0;
    json_array_foreach(gates, i, g)
    {
        if (json_is_true(json_object_get(g, "passed"))) continue;
        const char *name = json_string_value(json_object_get(g, "gate"));
        if (strstr(failed, name)) continue;
        strcat(strcat(failed, name), " ");
    }
    assert_int_equal(i, 6); /* P1 greedy and drawn, P2, P3, P4, P6 */
    assert_int_equal(json_is_true(json_object_get(doc, "passed")), failed[0] == 0);
    json_decref(doc);
    fletch_free(text);
}

/* Sanitizers see the same code with any model. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { N_MODELS = 1 };
#else
enum { N_MODELS = 6 };
#endif

static void test_backends_that_are_right_pass(void **state)
{
    static const char *const models[6] = {"zoo/tiny/qwen3moe.gguf",  "zoo/tiny/llama.gguf",
                                          "zoo/tiny/qwen2.gguf",     "zoo/tiny/qwen3.gguf",
                                          "zoo/tiny/deepseek2.gguf", "zoo/tiny/rwkv7.gguf"};
    struct fletch_engine *e;
    char failed[64];
    (void)state;
    assert_int_equal(
        fletch_engine_open(&e, &(struct fletch_engine_params){.backend = "cpu", .n_threads = 2}),
        0);
    for (size_t i = 0; i < N_MODELS; i++) {
        run(failed, e, models[i]);
        if (failed[0]) fail_msg("%s: %s", models[i], failed);
    }
    fletch_engine_close(e);
}

/* One field of the step is another while the reference runs it. */
static int run_with_token(struct exec *x, u32 handle, const struct step *s, struct err *err,
                          u32 row)
{
    i32 was = s->rows[row].token;
    s->rows[row].token = was ^ 1;
    int rc = ref_exec.submit(x, handle, s, err);
    s->rows[row].token = was;
    return rc;
}

static int mistake_at_nine(struct exec *x, u32 handle, const struct step *s, struct err *err)
{
    for (u32 i = 0; i < s->n_rows; i++)
        if (s->rows[i].pos == 9) return run_with_token(x, handle, s, err, i);
    return ref_exec.submit(x, handle, s, err);
}

static int mistake_when_an_answer_is_read(struct exec *x, u32 handle, const struct step *s,
                                          struct err *err)
{
    for (u32 i = 0; i < s->n_rows; i++)
        if (s->rows[i].pos == 35 && s->rows[i].cls == ROW_P)
            return run_with_token(x, handle, s, err, i);
    return ref_exec.submit(x, handle, s, err);
}

static int deaf_to_top_k(struct exec *x, u32 handle, const struct step *s, struct err *err)
{
    u32 was = s->n_out ? s->sample[0].top_k : 0;
    if (s->n_out) s->sample[0].top_k = 0;
    int rc = ref_exec.submit(x, handle, s, err);
    if (s->n_out) s->sample[0].top_k = was;
    return rc;
}

static struct exec_class wrong_class;

static void test_each_mistake_fails_its_gate(void **state)
{
    static const struct {
        int (*submit)(struct exec *, u32, const struct step *, struct err *);
        const char *failed;
    } wrong[] = {
        {mistake_at_nine, "P1 P2 P4 "},
        {mistake_when_an_answer_is_read, "P6 "},
        {deaf_to_top_k, "P4 "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct fletch_engine e = {.class = &wrong_class, .n_threads = 1};
        char failed[64];
        wrong_class = ref_exec;
        wrong_class.name = "wrong";
        wrong_class.submit = wrong[i].submit;
        run(failed, &e, "test/golden/models/llama");
        assert_string_equal(failed, wrong[i].failed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends_that_are_right_pass),
        cmocka_unit_test(test_each_mistake_fails_its_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
