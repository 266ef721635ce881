/* JSON: limits, duplicate keys, integers beyond 64 bits, and errors that tell the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/json.h"

static json_t *parse_good(const char *text)
{
    json_t *j;
    struct err err = {0};
    if (json_parse(&j, str_of(text), "x.json", &err)) fail_msg("%s", err.text);
    return j;
}

static void expect_error(struct str text, int code, const char *part)
{
    json_t *j;
    struct err err = {0};
    assert_int_equal(json_parse(&j, text, "x.json", &err), code);
    assert_null(j);
    if (!strstr(err.text, part) || strchr(err.text, '\n')) fail_msg("%s; not %s", err.text, part);
}

static void test_errors_tell_the_line(void **state)
{
    (void)state;
    expect_error(STR("{\n \"a\": 1,\n \"b\" 2}"), FLETCH_E_FORMAT, "x.json, line 3: ");
    expect_error(STR("{\"a\": 1,\n\"a\": 2}"), FLETCH_E_FORMAT,
                 "x.json, line 2: invalid JSON: duplicate key 'a'");
    expect_error(STR(""), FLETCH_E_FORMAT, "x.json, line 1: ");
    expect_error(STR("{} x"), FLETCH_E_FORMAT, "x.json, line 1: ");
    expect_error(STR("\"unterminated\\"), FLETCH_E_FORMAT, "x.json, line 1: ");
    expect_error(STR("{\"\x1b[31m\n\": }"), FLETCH_E_FORMAT, "x.json, line 1: ");
    expect_error(STR("{\"a\": \"\xff\"}"), FLETCH_E_FORMAT, "byte 0xff");
}

static void test_depth_is_limited(void **state)
{
    (void)state;
    char text[2 * JSON_MAX_DEPTH + 8] = "";
    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    json_decref(parse_good(text));
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    expect_error(str_of(text), FLETCH_E_LIMIT, "deeper than 64 levels");
    json_decref(parse_good("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                           "\\\"[[[[[[[[[[[[[[[[[[[\"]"));
}

static void test_long_integers_become_reals(void **state)
{
    (void)state;
    json_t *j = parse_good("{\"max\": 1000000000000000019884624838656, \"id\": 123456789012345678,"
                           "\"neg\": -99999999999999999999, \"s\": \"99999999999999999999\","
                           "\"f\": 0.99999999999999999999, \"e\": 1e5}");
    assert_true(json_real_value(json_object_get(j, "max")) == 1e30);
    assert_true(json_integer_value(json_object_get(j, "id")) == 123456789012345678);
    assert_true(json_real_value(json_object_get(j, "neg")) == -1e20);
    assert_string_equal(json_string_value(json_object_get(j, "s")), "99999999999999999999");
    assert_true(json_real_value(json_object_get(j, "f")) == 1);
    assert_true(json_real_value(json_object_get(j, "e")) == 1e5);
    json_decref(j);
}

static void test_strings_may_hold_nul(void **state)
{
    (void)state;
    json_t *j = parse_good("[\"a\\u0000b\"]");
    assert_int_equal(json_string_length(json_array_get(j, 0)), 3);
    json_decref(j);
    j = parse_good("{\"a\\u0000\": 1, \"a\": 2, \"a\\u0000b\": 3, \"\\u0000\": 4, \"\": 5}");
    assert_int_equal(json_object_size(j), 5);
    static const struct str keys[] = {{"a\0", 2}, {"a", 1}, {"a\0b", 3}, {"\0", 1}, {"", 0}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        assert_int_equal(json_integer_value(json_object_getn(j, keys[i].p, keys[i].n)), i + 1);
    json_decref(j);
    expect_error(STR("{\"a\\u0000\": 1, \"a\\u0000\": 2}"), FLETCH_E_FORMAT, "duplicate key");
}

static void test_values_are_json_s(void **state)
{
    (void)state;
    json_t *j = parse_good(
        "[\"\\u00e9\\u20ac\\ud83d\\ude42\\\"\\\\\\/\\b\\f\\n\\r\\t\", -0, 1.5E+2, 0.5e-1,"
        " true, false, null, {}, [], -9223372036854775808]\n");
    assert_string_equal(json_string_value(json_array_get(j, 0)), "é€🙂\"\\/\b\f\n\r\t");
    assert_true(json_is_integer(json_array_get(j, 1)));
    assert_true(json_real_value(json_array_get(j, 2)) == 150);
    assert_true(json_real_value(json_array_get(j, 3)) == 0.05);
    assert_true(json_is_true(json_array_get(j, 4)) && json_is_false(json_array_get(j, 5)));
    assert_true(json_is_null(json_array_get(j, 6)));
    assert_true(json_integer_value(json_array_get(j, 9)) == INT64_MIN);
    json_decref(j);
    static const char *const bad[] = {
        "[01]",
        "[+1]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[-]",
        "[tru]",
        "[nul]",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "[1 2]",
        "[\"\\x\"]",
        "[\"\\u12g4\"]",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\\ud83dx\"]",
        "[\"\t\"]",
        "[1e999]",
        "[\"\\ud83d\\n\"]",
        "[Infinity]",
        "[NaN]",
        "7",
        "\"a\"",
        "null",
        "[",
        "{",
        "{\"a\"",
        "{\"a\":",
        "[]]",
        "{}{}",
        "[\"\xc0\x80\"]",
        "[\"\xed\xa0\x80\"]",
        "{\"\xff\":1}",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        expect_error(str_of(bad[i]), FLETCH_E_FORMAT, "x.json, line 1: invalid JSON: ");
    expect_error(STR("{\"a\": [1, 2"), FLETCH_E_FORMAT, "missing ] at the end");
    expect_error(STR("{\"a\": 1"), FLETCH_E_FORMAT, "missing } at the end");
    expect_error(STR("[\"a"), FLETCH_E_FORMAT, "missing \" at the end");
    expect_error((struct str){"[1\0]", 4}, FLETCH_E_FORMAT, "missing , or ]");
}

static void test_files_are_read_up_to_a_limit(void **state)
{
    (void)state;
    char path[] = "/tmp/fletch-json-test-XXXXXX";
    json_t *j;
    struct err err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "[1, 2, 3]\n", 10), 10);
    close(fd);
    assert_int_equal(json_read(&j, path, 10, &err), 0);
    assert_int_equal(json_array_size(j), 3);
    json_decref(j);
    assert_int_equal(json_read(&j, path, 9, &err), FLETCH_E_LIMIT);
    assert_null(j);
    unlink(path);
    assert_int_equal(json_read(&j, path, 9, &err), FLETCH_E_IO);
    assert_non_null(strstr(err.text, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_tell_the_line),
        cmocka_unit_test(test_depth_is_limited),
        cmocka_unit_test(test_long_integers_become_reals),
        cmocka_unit_test(test_strings_may_hold_nul),
        cmocka_unit_test(test_values_are_json_s),
        cmocka_unit_test(test_files_are_read_up_to_a_limit),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
