/* Lockstep: equal executors are equal on every architecture, and one that is wrong in one op is
 * caught at that op. The wrong ones are the reference executor with an op spoiled, or the CPU's
 * with a group. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "engine/verify.h"
#include "ref/ref.h"
#include "core/hostmem.h"

static const char *golden(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "test/golden/models/%s", name);
    return path;
}

static const i32 prompt[] = {5, 17, 3, 99, 42, 8, 61};
enum { N_TOKENS = 5 };

static json_t *run(const char *name, struct verify_side a, struct verify_side b)
{
    struct err err = {0};
    json_t *doc;
    struct verify_side side[2] = {a, b};
    struct fletch_verify how = {
        .tokens = prompt, .n_prompt = ARRAY_LEN(prompt), .n_tokens = N_TOKENS};
    if (verify_run(&doc, golden(name), NULL, side, 1, &how, &err))
        fail_msg("%s: %s", name, err.text);
    assert_non_null(doc);
    return doc;
}

static json_int_t field(const json_t *doc, const char *a, const char *b)
{
    const json_t *v = json_object_get(doc, a);
    if (b) v = json_object_get(v, b);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static bool is_equal(const json_t *doc)
{
    assert_true(json_is_boolean(json_object_get(doc, "equal")));
    return json_is_true(json_object_get(doc, "equal"));
}

static const char *const models[] = {"llama", "qwen3_moe", "glm4_moe_lite", "rwkv7"};

static void expect_all_equal(const char *name)
{
    json_t *doc =
        run(name, (struct verify_side){&ref_exec, true}, (struct verify_side){&ref_exec, true});
    assert_true(is_equal(doc));
    assert_true(json_is_null(json_object_get(doc, "first_difference")));
    assert_int_equal(field(doc, "n_steps", NULL), 1 + N_TOKENS);
    assert_int_equal(field(doc, "tokens", "compared"), 1 + N_TOKENS);
    assert_int_equal(field(doc, "tokens", "equal"), 1 + N_TOKENS);
    assert_int_equal(field(doc, "routing", "different"), 0);
    assert_int_equal(field(doc, "bad_values", NULL), 0);
    bool routes = strstr(name, "moe") != NULL;
    assert_int_equal(field(doc, "routing", "compared") > 0, routes);
    assert_true(field(doc, "n_ops", NULL) > 20 * (1 + N_TOKENS));
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(doc, "tolerances"), i, t)
    {
        assert_true(json_real_value(json_object_get(t, "worst")) == 0);
        assert_true(field(t, "n", NULL) > 0);
    }
    assert_true(i > 5);
    json_decref(doc);
}

static void test_the_reference_equals_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) expect_all_equal(models[i]);
}

/* Groups of one side are compared with the same ops of the other, one by one. */
static void test_groups_equal_their_ops(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        json_t *doc = run(models[i], (struct verify_side){cpu_class("generic"), false},
                          (struct verify_side){&ref_exec, true}),
               *t;
        size_t k, n_groups = 0;
        assert_true(is_equal(doc));
        json_array_foreach(json_object_get(doc, "tolerances"), k, t) n_groups +=
            strchr(json_string_value(json_object_get(t, "op")), '+') != NULL;
        assert_true(n_groups > 0);
        json_decref(doc);
    }
}

/* What is spoiled: the output called name of the op or group in that layer, when it runs. */
struct spoil {
    const char *op;
    int layer;
    const char *name;
    u32 column;
    float add; /* NaN: the value becomes NaN */
    u32 from;  /* position of the first row that is spoiled */
};

static void spoil_op(struct hostmem *x, const struct spoil *how, u32 handle, const struct step *s)
{
    const struct hostmem_program *prog = &x->programs[handle];
    const struct group *g = &prog->p->groups[s->group_begin];
    struct operand out[32];
    u32 n_out = group_outputs(prog->p, g, out, ARRAY_LEN(out));
    if (s->group_end != s->group_begin + 1) return; /* running freely */
    if (strcmp(group_name(g), how->op) || g->ops[0]->layer != how->layer) return;
    for (u32 j = 0; j < n_out; j++) {
        const struct buffer *b = &prog->p->bufs[out[j].buf];
        if (strcmp(b->name, how->name) != 0) continue;
        u32 last = (b->rows == ROWS_T ? s->n_rows : s->n_out) - 1;
        u32 pitch = b->rows == ROWS_T ? x->limits.max_rows : x->limits.max_out;
        if (s->rows[s->n_rows - 1].pos < how->from) return;
        float *at = prog->mem[b->rows] + b->place * pitch + (size_t)last * b->width + how->column;
        if (b->is_int)
            *(i32 *)(void *)at ^= 1;
        else
            *at += how->add;
    }
}

static int spoiled_submit(struct exec *x, u32 handle, const struct step *s, struct err *err,
                          const struct spoil *how)
{
    /* x has the class that it was opened with, whose submit is this one */
    const struct exec_class *whole = x->class->n_rules ? cpu_class("generic") : &ref_exec;
    int rc = whole->submit(x, handle, s, err);
    if (!rc) spoil_op((struct hostmem *)x, how, handle, s);
    return rc;
}

/* An executor has no room for arguments, so each way of being wrong is a function. */
#define SPOILED(id, ...)                                                                      \
    static const struct spoil id = {__VA_ARGS__};                                             \
    static int id##_submit(struct exec *x, u32 handle, const struct step *s, struct err *err) \
    {                                                                                         \
        return spoiled_submit(x, handle, s, err, &id);                                        \
    }

SPOILED(spoil_gate, "matmul", 1, "ffn_gate", 7, 10, 0)
SPOILED(spoil_late, "add", 2, "block_out", 3, 10, ARRAY_LEN(prompt) + 1)
SPOILED(spoil_tiny, "matmul", 1, "ffn_gate", 7, 1e-6f, 0)
SPOILED(spoil_group, "norm+matmul", 1, "q", 5, 10, 0)
SPOILED(spoil_nan, "norm", 1, "ffn_norm", 4, NAN, 0)
SPOILED(spoil_embed, "embed", -1, "embed", 0, 1e-6f, 0)
SPOILED(spoil_route, "route", 1, "expert_ids", 0, 0, 0)
SPOILED(spoil_wkv, "recurrence", 1, "wkv", 2, 10, 0)

static struct exec_class with_submit(int (*submit)(struct exec *, u32, const struct step *,
                                                   struct err *))
{
    struct exec_class class = ref_exec;
    class.name = "spoiled";
    class.submit = submit;
    return class;
}

/* Runs the spoiled side against the reference; the difference must be found where it was made. */
static json_t *expect_caught(const char *model, const struct spoil *how, struct exec_class class,
                             u32 step, bool in_groups)
{
    json_t *doc =
        run(model, (struct verify_side){&class, !in_groups}, (struct verify_side){&ref_exec, true});
    assert_false(is_equal(doc));
    const json_t *first = json_object_get(doc, "first_difference");
    assert_true(json_is_object(first));
    assert_string_equal(json_string_value(json_object_get(first, "op")), how->op);
    assert_string_equal(json_string_value(json_object_get(first, "name")), how->name);
    assert_int_equal(field(first, "layer", NULL), how->layer);
    assert_int_equal(field(first, "step", NULL), step);
    assert_int_equal(field(first, "column", NULL), how->column);
    assert_int_equal(field(first, "row", NULL), step ? 0 : ARRAY_LEN(prompt) - 1);
    assert_string_equal(json_string_value(json_object_get(doc, "backend")), "spoiled");
    assert_string_equal(json_string_value(json_object_get(doc, "against")), "ref");
    return doc;
}

static void test_names_the_op_that_went_wrong(void **state)
{
    (void)state;
    struct exec_class class = with_submit(spoil_gate_submit);
    json_t *doc = expect_caught("llama", &spoil_gate, class, 0, false);
    const json_t *first = json_object_get(doc, "first_difference");
    double d =
        json_real_value(json_object_get(first, "a")) - json_real_value(json_object_get(first, "b"));
    assert_true(fabs(d - 10) < 1e-4);
    json_decref(doc);
    json_decref(expect_caught("rwkv7", &spoil_wkv, with_submit(spoil_wkv_submit), 0, false));
}

static void test_names_the_step_that_went_wrong(void **state)
{
    (void)state;
    json_decref(expect_caught("llama", &spoil_late, with_submit(spoil_late_submit), 2, false));
}

/* Any output of a group is compared, not only that of its last op. */
static void test_names_a_group(void **state)
{
    (void)state;
    struct exec_class class = *cpu_class("generic");
    class.name = "spoiled";
    class.submit = spoil_group_submit;
    json_decref(expect_caught("llama", &spoil_group, class, 0, true));
}

static void test_lookups_must_be_exact_and_sums_need_not(void **state)
{
    (void)state;
    struct exec_class tiny = with_submit(spoil_tiny_submit);
    json_t *doc =
        run("llama", (struct verify_side){&tiny, true}, (struct verify_side){&ref_exec, true});
    assert_true(is_equal(doc));
    double worst = 0;
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(doc, "tolerances"), i, t)
    {
        double w = json_real_value(json_object_get(t, "worst"));
        assert_true(w <= json_real_value(json_object_get(t, "limit")));
        worst = fmax(worst, w);
    }
    assert_true(worst > 1e-9 && worst < 1e-3);
    json_decref(doc);
    json_decref(expect_caught("llama", &spoil_embed, with_submit(spoil_embed_submit), 0, false));
}

static void test_counts_a_changed_routing_choice(void **state)
{
    (void)state;
    struct exec_class class = with_submit(spoil_route_submit);
    json_t *doc = expect_caught("qwen3_moe", &spoil_route, class, 0, false);
    assert_true(field(doc, "routing", "different") >= 1 + N_TOKENS);
    assert_true(field(doc, "routing", "compared") > field(doc, "routing", "different"));
    json_decref(doc);
}

/* JSON has no NaN, and still the report says where the first one was. */
static void test_counts_and_names_nan(void **state)
{
    (void)state;
    struct exec_class class = with_submit(spoil_nan_submit);
    json_t *doc = expect_caught("llama", &spoil_nan, class, 0, false);
    assert_true(field(doc, "bad_values", NULL) > 0);
    const json_t *a = json_object_get(json_object_get(doc, "first_difference"), "a");
    assert_non_null(strstr(json_string_value(a), "nan"));
    size_t i;
    json_t *t;
    bool seen = false;
    json_array_foreach(json_object_get(doc, "tolerances"), i, t)
    {
        if (strcmp(json_string_value(json_object_get(t, "op")), "norm") != 0) continue;
        seen = true;
        assert_true(json_real_value(json_object_get(t, "worst")) > 1e100);
    }
    assert_true(seen);
    json_decref(doc);
}

static void expect_refused(const i32 *tokens, size_t n, u32 n_tokens, const char *part)
{
    struct err err = {0};
    json_t *doc;
    const struct verify_side side[2] = {{&ref_exec, false}, {&ref_exec, true}};
    const struct fletch_verify how = {.tokens = tokens, .n_prompt = n, .n_tokens = n_tokens};
    assert_int_equal(verify_run(&doc, golden("llama"), NULL, side, 1, &how, &err), FLETCH_E_ARG);
    assert_null(doc);
    if (!strstr(err.text, part)) fail_msg("%s", err.text);
}

static void test_refuses_prompts_it_can_not_run(void **state)
{
    (void)state;
    i32 many[65] = {0};
    expect_refused(NULL, 0, 1, "needs a prompt");
    expect_refused((const i32[]){1, 101}, 2, 1,
                   "token id 101 is outside the model's vocabulary (0 to 100)");
    expect_refused((const i32[]){-1}, 1, 1, "token id -1");
    expect_refused(many, ARRAY_LEN(many), 1, "at most 64 tokens");
    expect_refused(prompt, ARRAY_LEN(prompt), UINT32_MAX, "tokens in total");
    expect_refused(prompt, ARRAY_LEN(prompt), 100000, "tokens in total");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reference_equals_itself),
        cmocka_unit_test(test_groups_equal_their_ops),
        cmocka_unit_test(test_names_the_op_that_went_wrong),
        cmocka_unit_test(test_names_the_step_that_went_wrong),
        cmocka_unit_test(test_names_a_group),
        cmocka_unit_test(test_lookups_must_be_exact_and_sums_need_not),
        cmocka_unit_test(test_counts_a_changed_routing_choice),
        cmocka_unit_test(test_counts_and_names_nan),
        cmocka_unit_test(test_refuses_prompts_it_can_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
