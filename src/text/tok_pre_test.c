#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/tok_pre.h"

static int join(void *ctx, struct str piece)
{
    struct buf *b = ctx;
    if (b->n) buf_putc(b, '|');
    buf_put(b, piece.p, piece.n);
    return 0;
}

static struct tok_pre *open_pre(const char *name)
{
    struct tok_pre *pre;
    struct err err;
    const struct tok_pre_def *def = tok_pre_find(str_of(name));
    assert_non_null(def);
    if (tok_pre_open(&pre, def, &err)) fail_msg("%s: %s", name, err.text);
    return pre;
}

static void assert_split(const char *name, const char *text, const char *want)
{
    struct tok_pre *pre = open_pre(name);
    struct buf b = {0};
    assert_int_equal(tok_pre_split(pre, str_of(text), true, join, &b, NULL), 0);
    assert_string_equal(b.p, want);
    buf_free(&b);
    tok_pre_close(pre);
}

static void test_every_name_of_the_spec_opens(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-bpe",    "llama3",
        "llama-v3",     "falcon3",
        "falcon-h1",    "pixtral",
        "midm-2.0",     "lfm2",
        "glm4",         "chatglm-bpe",
        "dbrx",         "smaug-bpe",
        "qwen2",        "deepseek-r1-qwen",
        "stablelm2",    "megrez",
        "hunyuan",      "solar-open",
        "qwen35",       "gpt-2",
        "phi-2",        "mpt",
        "olmo",         "exaone4",
        "mellum",       "a.x-4.0",
        "smollm",       "starcoder",
        "refact",       "command-r",
        "codeshell",    "exaone",
        "minerva-7b",   "tekken",
        "gpt-4o",       "llama4",
        "deepseek-v3",  "deepseek-coder",
        "deepseek-llm", "falcon",
        "default",      "kimi-k2",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) tok_pre_close(open_pre(names[i]));
    assert_null(tok_pre_find(STR("llama")));
    assert_null(tok_pre_find(STR("")));
    assert_null(tok_pre_find(STR("llama-bpe llama3")));
}

static void test_llama3_and_qwen2_split_as_the_hand_matcher_does(void **state)
{
    (void)state;
    assert_split("llama-bpe", "w048 7tuijk dsdfhu", "w|048| |7|tuijk| dsdfhu");
    assert_split("llama-bpe", "3333", "333|3");
    assert_split("llama-bpe", "   Hello", "  | Hello");
    assert_split("llama-bpe", " this is \U0001f999.cpp", " this| is| \U0001f999.|cpp");
    assert_split("llama-bpe", "\n\n\n", "\n\n\n");
    assert_split("llama-bpe", "a \n \n b", "a| \n \n| b");
    assert_split("llama-bpe", "x!!\n\ny", "x|!!\n\n|y");
    assert_split("llama-bpe", "I'LL we'Re it'sn't", "I|'LL| we|'Re| it|'s|n|'t");
    assert_split("qwen2", "3333", "3|3|3|3");
    assert_split("qwen2", "\t\n", "\t\n");
    assert_split("qwen2", "' era", "'| era");
    assert_split("qwen2", "a\u0301b", "a|\u0301b");
    assert_split("qwen35", "a\u0301b", "a\u0301b");
}

static void test_other_families_split_as_their_regexes_say(void **state)
{
    (void)state;
    assert_split("gpt-2", "33333", "33333");
    assert_split("gpt-2", "  Hello", " | Hello");
    assert_split("gpt-2", "I'LL we've", "I|'|LL| we|'ve");
    assert_split("smollm", "a12 3", "a|1|2| |3");
    assert_split("tekken", "HelloWorld's 12", "Hello|World|'s| |1|2");
    assert_split("gpt-4o", "HelloWORLD's 1234/\n", "Hello|WORLD's| |123|4|/\n");
    assert_split("deepseek-v3", "a1234\u4e2d\u6587b,\n!yes", "a|123|4|\u4e2d\u6587|b|,\n|!yes");
    assert_split("deepseek-coder", "int x1;\n", "int| x|1|;|\n");
    assert_split("deepseek-llm", "\n\n", "\n|\n");
    assert_split("deepseek-llm", "\u043d\u0435\u0449\u043e \u043d\u0430 x12  ",
                 "\u043d\u0435\u0449\u043e| \u043d\u0430| x|12|  ");
    assert_split("kimi-k2", "Hello\u4e2d\u6587World's 1234/\n",
                 "Hello|\u4e2d\u6587|World's| |123|4|/\n");
    assert_split("kimi-k2", " \u4e2dHTTPServer", " |\u4e2d|HTTPServer");
    assert_split("falcon", "a+=`1234", "a|+=`|123|4");
    assert_split("default", "a`+12345", "a|`|+|123|45");
}

static void test_white_space_is_unicodes_and_contractions_fold_ascii_only(void **state)
{
    (void)state;
    assert_split("llama-bpe",
                 "\xc2\x85\xc2\x85"
                 "b",
                 "\xc2\x85|\xc2\x85"
                 "b");
    assert_split("llama-bpe", "\u3000\u3000b", "\u3000|\u3000b");
    assert_split("llama-bpe", "\u200b\u200bb", "\u200b\u200b|b");
    assert_split("llama-bpe", "'\u017fa", "'\u017fa");
}

static void test_invalid_bytes_are_pieces_of_their_own(void **state)
{
    (void)state;
    assert_split("gpt-2", "a\xff\xfe b\xe2\x82", "a|\xff\xfe| b|\xe2\x82");
    assert_split("gpt-2", " \xff", " |\xff");
}

static int count_then_stop(void *ctx, struct str piece)
{
    (void)piece;
    return ++*(int *)ctx == 2 ? -77 : 0;
}

static void test_splitting_stops_when_the_sink_says_so(void **state)
{
    (void)state;
    struct tok_pre *pre = open_pre("smollm");
    int n = 0;
    assert_int_equal(tok_pre_split(pre, STR("a b c d"), true, count_then_stop, &n, NULL), -77);
    assert_int_equal(n, 2);
    tok_pre_close(pre);
}

static void test_lists_are_recognised_and_whole_piece_lookup_picks_the_name(void **state)
{
    (void)state;
    struct str llama = str_of(tok_pre_find(STR("llama-bpe"))->regex[0]);
    struct str gpt2[] = {STR(TOK_PRE_DIGIT), STR(TOK_PRE_GPT2)};
    struct str lines[] = {STR("[\r\n]"), STR("\\s?\\p{L}+"), STR("\\s?\\p{P}+"),
                          str_of(tok_pre_find(STR("deepseek-coder"))->regex[3]), STR("\\p{N}")};
    assert_true(str_is(tok_pre_name(tok_pre_recognise(&llama, 1, true)), "llama-bpe"));
    assert_true(str_is(tok_pre_name(tok_pre_recognise(&llama, 1, false)), "glm4"));
    assert_true(str_is(tok_pre_name(tok_pre_recognise(gpt2, 2, false)), "smollm"));
    assert_true(str_is(tok_pre_name(tok_pre_recognise(gpt2, 2, true)), "smollm"));
    assert_true(str_is(tok_pre_name(tok_pre_recognise(lines, 5, false)), "deepseek-coder"));
    assert_null(tok_pre_recognise(gpt2, 1, false));
    assert_null(tok_pre_recognise(lines, 4, false));
    assert_null(tok_pre_recognise(NULL, 0, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name_of_the_spec_opens),
        cmocka_unit_test(test_llama3_and_qwen2_split_as_the_hand_matcher_does),
        cmocka_unit_test(test_other_families_split_as_their_regexes_say),
        cmocka_unit_test(test_white_space_is_unicodes_and_contractions_fold_ascii_only),
        cmocka_unit_test(test_invalid_bytes_are_pieces_of_their_own),
        cmocka_unit_test(test_splitting_stops_when_the_sink_says_so),
        cmocka_unit_test(test_lists_are_recognised_and_whole_piece_lookup_picks_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
