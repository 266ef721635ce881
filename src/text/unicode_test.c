#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/unicode.h"

static int check(const char *z)
{
    return utf8_check(z, strlen(z));
}

static void test_whole_characters_have_their_length(void **state)
{
    (void)state;
    assert_int_equal(utf8_check("\0", 1), 1);
    assert_int_equal(check("a"), 1);
    assert_int_equal(check("\xc2\x80"), 2);
    assert_int_equal(check("\xe0\xa0\x80"), 3);
    assert_int_equal(check("\xed\x9f\xbf"), 3);
    assert_int_equal(check("\xf0\x90\x80\x80"), 4);
    assert_int_equal(check("\xf4\x8f\xbf\xbf"), 4);
}

static void test_beginnings_of_characters_are_pending(void **state)
{
    (void)state;
    assert_int_equal(check("\xc2"), 0);
    assert_int_equal(check("\xe0\xa0"), 0);
    assert_int_equal(check("\xf0\x90\x80"), 0);
    assert_int_equal(check("\xf4"), 0);
}

static void test_what_begins_no_character_is_invalid(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",     "\xbf",         "\xc0\x80",         "\xc1\xbf",     "\xc2z",
        "\xe0\x9f", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80", "\xf5\x80",
        "\xff",     "\xe2\x82z",    "\xf0\x9f\x99z",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(check(bad[i]), -1);
}

static void test_a_run_ends_before_the_first_bad_or_cut_character(void **state)
{
    (void)state;
    assert_int_equal(utf8_run(STR("a\xc3\xa9\xff"), 0), 3);
    assert_int_equal(utf8_run(STR("\xff"), 0), 0);
    assert_int_equal(utf8_run(STR("ab\xe2\x82"), 1), 2);
}

static void assert_normal(const char *in, enum unicode_form form, const char *want)
{
    struct buf out = {0};
    assert_true(unicode_normalise(&out, str_of(in), form));
    assert_string_equal(out.p, want);
    buf_free(&out);
}

static void test_the_four_normal_forms(void **state)
{
    (void)state;
    assert_normal("e\u0301\ufb01", UNICODE_NFC, "\u00e9\ufb01");
    assert_normal("\u00e9\ufb01", UNICODE_NFD, "e\u0301\ufb01");
    assert_normal("e\u0301\ufb01", UNICODE_NFKC, "\u00e9fi");
    assert_normal("\u00e9\ufb01", UNICODE_NFKD, "e\u0301fi");
    assert_normal("\u1100\u1161", UNICODE_NFC, "\uac00");
    assert_normal("a\u0301\u0316", UNICODE_NFD, "a\u0316\u0301");
}

static void test_invalid_bytes_stay_and_nothing_composes_across_them(void **state)
{
    (void)state;
    assert_normal("e\xff\u0301\xe2\x82", UNICODE_NFC, "e\xff\u0301\xe2\x82");
}

/* utf8proc alone takes minutes for this. */
static void test_a_megabyte_of_unsorted_marks_takes_linear_time(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = "\u0301\u0316"[i % 4];
    struct buf out = {0};
    clock_t start = clock();
    assert_true(unicode_normalise(&out, (struct str){p, n}, UNICODE_NFC));
    assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
    assert_int_equal(out.n, n);
    buf_free(&out);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_characters_have_their_length),
        cmocka_unit_test(test_beginnings_of_characters_are_pending),
        cmocka_unit_test(test_what_begins_no_character_is_invalid),
        cmocka_unit_test(test_a_run_ends_before_the_first_bad_or_cut_character),
        cmocka_unit_test(test_the_four_normal_forms),
        cmocka_unit_test(test_invalid_bytes_stay_and_nothing_composes_across_them),
        cmocka_unit_test(test_a_megabyte_of_unsorted_marks_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
