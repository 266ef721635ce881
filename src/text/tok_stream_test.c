#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "text/tok.h"
#include "text/unicode.h"

/* Every call must end on a character. */
static void whole_only(void *ctx, const char *p, size_t n)
{
    assert_int_equal(utf8_run((struct str){p, n}, 0), n);
    buf_put(ctx, p, n);
}

static void any(void *ctx, const char *p, size_t n)
{
    buf_put(ctx, p, n);
}

/* Feeds text in pieces of n bytes. */
static struct buf stream(struct str text, size_t n, bool raw)
{
    struct tok_stream s = {0};
    struct buf out = {0};
    for (size_t at = 0; at < text.n; at += n) {
        tok_stream_feed(&s, (struct str){text.p + at, MIN(n, text.n - at)}, raw,
                        raw ? any : whole_only, &out);
        assert_true(s.n_tail <= 3);
    }
    tok_stream_flush(&s, raw, raw ? any : whole_only, &out);
    assert_int_equal(s.n_tail, 0);
    return out;
}

static void assert_stream(struct str text, const char *want)
{
    for (size_t n = 1; n <= 5; n++) {
        struct buf out = stream(text, n, false);
        assert_string_equal(out.p, want);
        buf_free(&out);
        out = stream(text, n, true);
        assert_int_equal(out.n, text.n);
        assert_memory_equal(out.p, text.p, text.n);
        buf_free(&out);
    }
}

static void test_characters_come_out_whole_however_they_are_cut(void **state)
{
    (void)state;
    assert_stream(STR("a\u00e9\u4e2d\U0001f642z"), "a\u00e9\u4e2d\U0001f642z");
}

static void test_invalid_bytes_become_one_replacement_each_sequence(void **state)
{
    (void)state;
    assert_stream(STR("a\xff"
                      "b"),
                  "a\ufffd"
                  "b");
    assert_stream(STR("\xe4\xb8z"), "\ufffdz");
    assert_stream(STR("\xe4\xe4\xb8\xad"), "\ufffd\u4e2d");
    assert_stream(STR("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
    assert_stream(STR("\xf0\x9f\x99\xc3\xa9"), "\ufffd\u00e9");
}

static void test_an_incomplete_tail_is_one_replacement_at_the_end(void **state)
{
    (void)state;
    assert_stream(STR("ok\xf0\x9f\x99"), "ok\ufffd");
    assert_stream(STR("ok\xc3"), "ok\ufffd");
}

static void test_text_is_not_held_back_once_it_is_whole(void **state)
{
    (void)state;
    struct tok_stream s = {0};
    struct buf out = {0};
    tok_stream_feed(&s, STR("ab\xe4\xb8"), false, whole_only, &out);
    assert_string_equal(out.p, "ab");
    assert_int_equal(s.n_tail, 2);
    tok_stream_feed(&s, STR("\xad"), false, whole_only, &out);
    assert_string_equal(out.p, "ab\u4e2d");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_come_out_whole_however_they_are_cut),
        cmocka_unit_test(test_invalid_bytes_become_one_replacement_each_sequence),
        cmocka_unit_test(test_an_incomplete_tail_is_one_replacement_at_the_end),
        cmocka_unit_test(test_text_is_not_held_back_once_it_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
