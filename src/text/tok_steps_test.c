/* Every step of tokenizer.json as the tokenizers library does it: test/golden/steps.json. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

static struct str base64_decode(struct arena *arena, const json_t *v)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *in = json_string_value(v);
    char *out = arena_alloc(arena, strlen(in) + 1, 1);
    u32 bits = 0, have = 0;
    size_t n = 0;
    for (; *in && *in != '='; in++) {
        bits = bits << 6 | (u32)(strchr(digits, *in) - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have);
        }
    }
    return (struct str){out, n};
}

static json_t *golden;

/* One pipeline with its model, as a tokenizer.json would have them. */
static struct tok *open_case(struct arena *arena, const json_t *c)
{
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder",
                                        "added_tokens"};
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *model = json_string_value(json_object_get(c, "model"));
    json_t *root = json_object();
    struct tok_spec spec;
    struct tok *t = NULL;
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (json_object_get(c, parts[i]))
            json_object_set(root, parts[i], json_object_get(c, parts[i]));
    json_object_set(root, "model", json_object_get(json_object_get(golden, "models"), model));
    if (tok_spec_from_json(&spec, arena, root, NULL, (struct str){0}, &err) ||
        tok_open(&t, &spec, &err))
        fail_msg("%s on %s: %s", name, model, err.text);
    json_decref(root);
    return t;
}

static void print_ids(const char *what, const struct tok *t, const i32 *ids, size_t n)
{
    fprintf(stderr, "  %s", what);
    for (size_t i = 0; i < n && i < 60; i++)
        fprintf(stderr, " %d=%s", ids[i], QUOTE(tok_text(t, ids[i])));
    fprintf(stderr, "\n");
}

/* Whether the ids of a text, and the text of the ids, are the library's. */
static bool check_text(const struct tok *t, const json_t *c, size_t i, struct str text,
                       struct arena *arena)
{
    const json_t *ids = json_array_get(json_object_get(c, "ids"), i);
    const json_t *decoded = json_array_get(json_object_get(c, "decoded"), i);
    struct tok_ids got = {0};
    struct err err = {0};
    size_t n = json_array_size(ids);
    i32 *want = arena_alloc(arena, n, sizeof *want);
    for (size_t k = 0; k < n; k++) want[k] = (i32)json_integer_value(json_array_get(ids, k));
    if (tok_encode(t, text, NULL, TOK_ADD_BOS | TOK_SPECIAL, &got, &err)) fail_msg("%s", err.text);
    bool same = got.n == n && (n == 0 || memcmp(got.p, want, n * sizeof *want) == 0);
    if (!same) {
        fprintf(stderr, "%s on %s: %s\n", json_string_value(json_object_get(c, "name")),
                json_string_value(json_object_get(c, "model")), QUOTE(text));
        print_ids("got ", t, got.p, got.n);
        print_ids("want", t, want, n);
    } else if (decoded) {
        struct buf back = {0};
        struct str old = base64_decode(arena, decoded);
        tok_decode(t, got.p, got.n, true, &back);
        same = str_eq(buf_str(&back), old);
        if (!same)
            fprintf(stderr, "%s: decoded as %s, not %s\n",
                    json_string_value(json_object_get(c, "name")), QUOTE(buf_str(&back)),
                    QUOTE(old));
        buf_free(&back);
    }
    tok_ids_free(&got);
    return same;
}

static void test_every_step_is_done_as_the_library_does_it(void **state)
{
    (void)state;
    const json_t *list = json_object_get(golden, "cases"),
                 *texts = json_object_get(golden, "texts");
    size_t n_bad = 0, n = 0;
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *c = json_array_get(list, k);
        struct arena arena = {0};
        struct tok *t = open_case(&arena, c);
        for (size_t i = 0; i < json_array_size(texts); i++, n++)
            n_bad += !check_text(t, c, i, base64_decode(&arena, json_array_get(texts, i)), &arena);
        tok_close(t);
        arena_free(&arena);
    }
    assert_true(n > 2000);
    if (n_bad) fail_msg("%zu of %zu differ", n_bad, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_is_done_as_the_library_does_it),
    };
    golden = json_load_file("test/golden/steps.json", 0, NULL);
    if (!golden) {
        fprintf(stderr, "test/golden/steps.json can't be read\n");
        return 1;
    }
    int rc = cmocka_run_group_tests_name("tok_steps", tests, NULL, NULL);
    json_decref(golden);
    return rc;
}
