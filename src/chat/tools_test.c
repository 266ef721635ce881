#include "chat/tools.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- answers written down ---- */

/* What came, as one text: `say(..)`, `think(..)`, `call(name {..})`; runs of one kind are joined.
 */
struct record {
    char text[8192];
    size_t n;
    int last; /* part, or -1 */
    char ids[8][16];
    char wrote[8192]; /* all pieces but calls: what the model wrote */
    size_t n_wrote;
};

static void put(struct record *r, const char *p, size_t n)
{
    assert_true(r->n + n < sizeof r->text);
    memcpy(r->text + r->n, p, n);
    r->text[r->n += n] = 0;
}

static void close_last(struct record *r)
{
    if (r->last >= 0) put(r, ")", 1);
    r->last = -1;
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    static const char *const open[] = {"say(", "think(", "call("};
    struct record *r = ctx;
    assert_true(p->n > 0);
    if (p->part != TOOLS_CALL) {
        assert_true(r->n_wrote + p->n < sizeof r->wrote);
        memcpy(r->wrote + r->n_wrote, p->text, p->n);
        r->n_wrote += p->n;
    }
    if (p->part == TOOLS_MARKUP) return;
    if (r->last != (int)p->part || p->part == TOOLS_CALL) {
        close_last(r);
        put(r, open[p->part], strlen(open[p->part]));
        r->last = (int)p->part;
    }
    if (p->part == TOOLS_CALL) {
        put(r, p->name, strlen(p->name));
        put(r, " ", 1);
        snprintf(r->ids[p->index % 8], sizeof *r->ids, "%s", p->id);
    }
    put(r, p->text, p->n);
}

static json_t *offered(void)
{
    return json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\":"
                      " {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"},"
                      " \"s\": {\"type\": \"string\"}}}}},"
                      " {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]",
                      0, NULL);
}

static void feed_whole(struct record *r, const struct tools_params *params, const char *answer,
                       size_t n, size_t first, size_t second)
{
    struct tools_params p = *params;
    struct tools *t;
    *r = (struct record){.last = -1};
    p.on_piece = on_piece;
    p.ctx = r;
    assert_int_equal(tools_open(&t, &p), 0);
    assert_int_equal(tools_feed(t, answer, first), 0);
    assert_int_equal(tools_feed(t, answer + first, second - first), 0);
    assert_int_equal(tools_feed(t, answer + second, n - second), 0);
    tools_end(t);
    close_last(r);
    tools_close(t);
    assert_int_equal(r->n_wrote, n);
    assert_memory_equal(r->wrote, answer, n);
}

/* The answer gives the record: fed at once, byte by byte, and cut at every two places. */
static void expect(struct tools_params params, const char *answer, const char *wanted)
{
    static struct record r;
    size_t n = strlen(answer);
    struct tools *t;
    feed_whole(&r, &params, answer, n, 0, 0);
    assert_string_equal(r.text, wanted);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++) {
            feed_whole(&r, &params, answer, n, i, j);
            assert_string_equal(r.text, wanted);
        }
    r = (struct record){.last = -1};
    params.on_piece = on_piece;
    params.ctx = &r;
    assert_int_equal(tools_open(&t, &params), 0);
    for (size_t i = 0; i < n; i++) assert_int_equal(tools_feed(t, answer + i, 1), 0);
    tools_end(t);
    close_last(&r);
    tools_close(t);
    assert_string_equal(r.text, wanted);
}

static void expect_style(enum chat_format_id id, const char *answer, const char *wanted)
{
    json_t *tools = offered();
    expect(
        (struct tools_params){.format = {.row = &chat_formats[id], .thinks = true}, .tools = tools},
        answer, wanted);
    json_decref(tools);
}

/* ---- tests ---- */

static void test_formats_are_seen_in_templates(void **state)
{
    static const struct {
        const char *file;
        enum chat_format_id id;
        bool knows_tools, thinks;
    } rows[] = {
        {"qwen25", CHAT_HERMES, true, false},
        {"qwen3", CHAT_HERMES, true, true},
        {"glm47", CHAT_GLM, true, true},
        {"llama31", CHAT_LLAMA, true, false},
        {"llama32", CHAT_HERMES, false, false},
        {"nemo", CHAT_MISTRAL, true, false},
        {"small3", CHAT_MISTRAL_ARGS, false, false},
        {"rwkv", CHAT_HERMES, false, true},
        {"chatml", CHAT_HERMES, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[64], text[8192];
        snprintf(path, sizeof path, "test/tmpl/%s.jinja", rows[i].file);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        struct tools_format got = tools_detect(text, n);
        print_message("%s\n", path);
        assert_ptr_equal(got.row, &chat_formats[rows[i].id]);
        assert_int_equal(got.thinks, rows[i].thinks);
        assert_int_equal(got.knows_tools, rows[i].knows_tools);
    }
    assert_ptr_equal(tools_detect(NULL, 0).row, &chat_formats[CHAT_HERMES]);
}

static void test_reasoning_is_split_off(void **state)
{
    struct tools_params p = {.format = {.row = &chat_formats[CHAT_HERMES], .thinks = true}};
    (void)state;
    expect(p, "<think>\na < b\n</think>\n\nYes.\n", "think(a < b)say(Yes.\n)");
    expect(p, " \n<think></think>Yes", "say(Yes)");
    expect(p, "No <think>x</think>", "say(No <think>x</think>)");
    expect(p, "  <thi", "say(  <thi)");
    expect(p, "<think>cut </thin", "think(cut </thin)");
    p.thinking = true;
    expect(p, "hm</think> Yes", "think(hm)say(Yes)");
    p = (struct tools_params){.format.row = &chat_formats[CHAT_HERMES]};
    expect(p, "<think>a</think><tool_call>", "say(<think>a</think><tool_call>)");
}

static void test_tagged_calls(void **state)
{
    enum chat_format_id s = CHAT_HERMES;
    (void)state;
    expect_style(s, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1.50}}\n</tool_call>",
                 "call(add {\"a\": 1.50})");
    expect_style(s,
                 "<think>t</think>\nSo:\n\n<tool_call>{\"name\":\"now\"}</tool_call> \n"
                 "<tool_call>{\"arguments\":{\"a\":\"}</tool_call>\\\"\"},\"name\":\"add\"}"
                 "</tool_call>\n",
                 "think(t)say(So:)call(now {})call(add {\"a\":\"}</tool_call>\\\"\"})");
    expect_style(s, "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\":2}\"}</tool_call>x",
                 "call(now {\"a\":2})say(x)");
    expect_style(s, "<tool_call>{\"name\":\"now\"}", "call(now {})");
    expect_style(s, "<tool_call>{\"function\":{\"name\":\"now\",\"parameters\":{}}}</tool_call>",
                 "call(now {})");
}

static void test_malformed_calls_are_content(void **state)
{
    static const char *const tagged[] = {
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>", /* not offered */
        "a <tool_call> b",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": }}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"[1]\"}</tool_call>",
        "<tool_call>{\"name\": 1}</tool_call>",
        "<tool_call>{\"name\": \"now\"} and then </tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\"",
        "x \n <tool_call>\n",
        "<tool_call>{\"name\": \"now\"}</tool",
        "<tool_call>{\"n\\u0061me\": \"add\", \"\\u0061rguments\": {\"a\": 1}}</tool_call>",
        "<tool_call>{\"a\":1]</tool_call>",
        "1 < 2 <tool <tool_call",
    };
    static const char *const pairs[] = {
        "<tool_call>rm<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>add<arg_key>a<arg_value>1</arg_value></tool_call>",
        "<tool_call>add<arg_key>a</arg_key>?<arg_value>1</arg_value></tool_call>",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>?</tool_call>",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1",
        "<tool_call>add<arg_key>\xff</arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>add<arg_key>s</arg_key><arg_value>\xff</arg_value></tool_call>",
    };
    static const char *const listed[] = {
        "[TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"rm\"}]", /* all or none */
        "[TOOL_CALLS][]",
        "[TOOL_CALLS]add[ARGS][1]",
        "[TOOL_CALLS]rm[ARGS]{}",
        "[TOOL_CALLS][ARGS",
        "[TOOL_CALLS]add",
        "[TOOL_CALLS][{\"name\": \"now\"}",
        "see [TOOL_",
    };
    static const char *const bare[] = {
        "{\"answer\": {\"name\": \"now\"}}",
        "{\"name\": \"rm\"}",
        " {\"name\": \"now\"",
        "<|python_tag|>print(1)",
        "Say {\"name\":\"now\"}",
        "{",
        "{\"name\": \"now\"]",
    };
    static const struct {
        enum chat_format_id id;
        const char *const *rows;
        size_t n;
    } all[] = {{CHAT_HERMES, tagged, sizeof tagged / sizeof *tagged},
               {CHAT_GLM, pairs, sizeof pairs / sizeof *pairs},
               {CHAT_MISTRAL, listed, sizeof listed / sizeof *listed},
               {CHAT_LLAMA, bare, sizeof bare / sizeof *bare}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t j = 0; j < all[i].n; j++) {
            char wanted[512];
            snprintf(wanted, sizeof wanted, "say(%s)", all[i].rows[j]);
            expect_style(all[i].id, all[i].rows[j], wanted);
        }
}

static void test_pairs(void **state)
{
    enum chat_format_id s = CHAT_GLM;
    (void)state;
    expect_style(s,
                 "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n"
                 "<arg_key>s</arg_key><arg_value>12</arg_value><arg_key>z</arg_key>"
                 "<arg_value>[1, 0.1]</arg_value></tool_call>",
                 "call(add {\"a\":3,\"s\":\"12\",\"z\":[1,0.1]})");
    expect_style(s, "<think>t</think>ok<tool_call>now</tool_call><tool_call>now\n</tool_call>",
                 "think(t)say(ok)call(now {})call(now {})");
    expect_style(s, "<tool_call>add<arg_key>z</arg_key><arg_value>not JSON</arg_value></tool_call>",
                 "call(add {\"z\":\"not JSON\"})");
}

#define Z_BEGINS "<tool_call>add<arg_key>z</arg_key><arg_value>"
#define Z_ENDS   "</arg_value></tool_call>"

/* In strings of JSON markers mean nothing; in other texts they do. */
static void test_markers_inside_of_pairs(void **state)
{
    enum chat_format_id s = CHAT_GLM;
    (void)state;
    expect_style(s,
                 Z_BEGINS "{\"a\": [\"</arg_value></tool_call>\\\"</arg_value>\"]} \n" Z_ENDS
                          "<tool_call>now</tool_call>",
                 "call(add {\"z\":{\"a\":[\"</arg_value></tool_call>\\\"</arg_value>\"]}})"
                 "call(now {})");
    expect_style(s, Z_BEGINS "\"</arg_value> <arg_key>q\"" Z_ENDS,
                 "call(add {\"z\":\"</arg_value> <arg_key>q\"})");
    expect_style(s, Z_BEGINS " [\"<arg_value>]</tool_call>\"]" Z_ENDS,
                 "call(add {\"z\":[\"<arg_value>]</tool_call>\"]})");
    /* texts that begin like JSON */
    expect_style(s, Z_BEGINS "[1] and more" Z_ENDS "<tool_call>now</tool_call>!",
                 "call(add {\"z\":\"[1] and more\"})call(now {})say(!)");
    expect_style(s, Z_BEGINS "{" Z_ENDS Z_BEGINS "[2]" Z_ENDS,
                 "call(add {\"z\":\"{\"})call(add {\"z\":[2]})");
    expect_style(s, Z_BEGINS "{]" Z_ENDS "say", "call(add {\"z\":\"{]\"})say(say)");
    /* a text by its schema */
    expect_style(s, "<tool_call>add<arg_key>s</arg_key><arg_value>[\"</arg_value></tool_call>\"]",
                 "call(add {\"s\":\"[\\\"\"})say(\"])");
    /* no calls: the first end counts */
    expect_style(s, Z_BEGINS "[1]</tool_call><tool_call>now</tool_call>",
                 "say(" Z_BEGINS "[1]</tool_call>)call(now {})");
    expect_style(s, Z_BEGINS "a</tool_call><tool_call>now</tool_call>",
                 "say(" Z_BEGINS "a</tool_call>)call(now {})");
    expect_style(s, "<tool_call>add</arg_value></tool_call>",
                 "say(<tool_call>add</arg_value></tool_call>)");
}

static void test_bare(void **state)
{
    enum chat_format_id s = CHAT_LLAMA;
    (void)state;
    expect_style(s, " {\"name\": \"add\", \"parameters\": {\"a\": 1}}\n", "call(add {\"a\": 1})");
    expect_style(s, "{\"name\":\"now\"}; {\"name\":\"now\",\"parameters\":{}};",
                 "call(now {})call(now {})say(;)");
    expect_style(s, "Wait. <|python_tag|>{\"type\": \"function\", \"name\": \"now\"} done",
                 "say(Wait.)call(now {})say(done)");
}

static void test_listed(void **state)
{
    enum chat_format_id s = CHAT_MISTRAL;
    (void)state;
    expect_style(s,
                 "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": [1, {}]}}, "
                 "{\"arguments\": {}, \"name\": \"now\", \"id\": \"abc\"}]",
                 "call(add {\"a\": [1, {}]})call(now {})");
    expect_style(s, "Hm [TOOL_CALLS] add[ARGS]{\"a\": 1}[TOOL_CALLS]now[ARGS] {}",
                 "say(Hm)call(add {\"a\": 1})call(now {})");
    expect_style(s, "[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"a\": 1}", "call(add {\"a\": 1})");
}

static void test_a_long_name_is_no_name(void **state)
{
    static char answer[700], wanted[720];
    static struct record one, two;
    json_t *tools = offered();
    struct tools_params p = {.format.row = &chat_formats[CHAT_MISTRAL], .tools = tools};
    (void)state;
    snprintf(answer, sizeof answer, "[TOOL_CALLS]%0300d[ARGS]{}", 7);
    snprintf(wanted, sizeof wanted, "say(%s)", answer);
    feed_whole(&one, &p, answer, strlen(answer), 0, 0);
    assert_string_equal(one.text, wanted);
    feed_whole(&two, &p, answer, strlen(answer), 100, 290);
    assert_string_equal(two.text, wanted);
    json_decref(tools);
}

static void test_ids_are_of_nine_and_differ(void **state)
{
    static const char answer[] = "<tool_call>{\"name\":\"now\"}</tool_call>"
                                 "<tool_call>{\"name\":\"now\"}</tool_call>";
    static struct record r;
    json_t *tools = offered();
    struct tools_params p = {.format.row = &chat_formats[CHAT_HERMES], .tools = tools, .seed = 7};
    (void)state;
    feed_whole(&r, &p, answer, strlen(answer), 0, 0);
    assert_int_equal(strlen(r.ids[0]), 9);
    assert_int_equal(strlen(r.ids[1]), 9);
    assert_string_not_equal(r.ids[0], r.ids[1]);
    json_decref(tools);
}

static void test_prompts_that_think(void **state)
{
    (void)state;
    const struct chat_format *row = &chat_formats[CHAT_GLM];
    static const char open[] = "<|assistant|><think>\n", shut[] = "<think>\n\n</think>\n\n";
    assert_true(tools_prompt_thinks(row, open, strlen(open)));
    assert_false(tools_prompt_thinks(row, shut, strlen(shut)));
    assert_false(tools_prompt_thinks(row, "", 0));
}

static void test_tools_can_be_described(void **state)
{
    json_t *tools = offered();
    char *text = tools_describe(tools);
    (void)state;
    assert_non_null(strstr(text, "<tool_call>"));
    assert_non_null(strstr(text, "\"name\":\"add\""));
    free(text);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_are_seen_in_templates),
        cmocka_unit_test(test_reasoning_is_split_off),
        cmocka_unit_test(test_tagged_calls),
        cmocka_unit_test(test_malformed_calls_are_content),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_markers_inside_of_pairs),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_a_long_name_is_no_name),
        cmocka_unit_test(test_ids_are_of_nine_and_differ),
        cmocka_unit_test(test_prompts_that_think),
        cmocka_unit_test(test_tools_can_be_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
