/* Schemas: each with texts that must be possible, beginning by beginning, and texts that must not;
 * and schemas that can't be kept, with the word that says why. */
#include "serve/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "serve/automaton.h"

#define TEST(f) cmocka_unit_test(f)

static const struct str no_tokens[1];
static struct trie *trie;

static int setup(void **state)
{
    (void)state;
    return trie_open(&trie, no_tokens, 0, NULL, 0, NULL);
}

static int teardown(void **state)
{
    (void)state;
    trie_close(trie);
    return 0;
}

static int open_schema(struct automaton **a, const char *text, struct err *err)
{
    struct buf rules = {0};
    struct grammar *g = NULL;
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!j) fail_msg("not JSON: %s", text);
    int rc = schema_to_grammar(&rules, j, err);
    if (!rc) rc = grammar_parse(&g, buf_str(&rules), err);
    if (!rc) rc = automaton_open(a, g, trie, err);
    buf_free(&rules);
    json_decref(j);
    return rc;
}

static bool allows(struct automaton *a, const char *text)
{
    struct constraint *c;
    assert_int_equal(constraint_open(&c, a, NULL), 0);
    size_t n = constraint_feed(c, str_of(text));
    bool whole = n == strlen(text) && constraint_may_end(c);
    constraint_close(c);
    return whole;
}

struct schema_case {
    const char *schema;
    const char *yes[9], *no[12];
};

static const struct schema_case cases[] = {
    {"{}",
     {"1", "null", "{\"a\":[1, {}]}", "\"\\u00e9\\n\xc3\xa9\""},
     {"", "01", "{a:1}", "[1,]", "\"\\ud800\"", "\"\n\"", "1 "}},
    {"true", {"[]", "-0.5e-7"}, {"nul", "+1", "1.", ".5"}},
    {"{\"type\":\"object\"}", {"{}", "{\"a\": 1,\"b\":{}}"}, {"[]", "1", "{\"a\"}", "{ }"}},
    {"{\"type\":\"null\"}", {"null"}, {"0", "\"null\""}},
    {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"0"}},
    {"{\"type\":\"integer\"}",
     {"0", "-7", "999999999999999999"},
     {"1.0", "01", "1000000000000000000", "--1"}},
    {"{\"type\":\"integer\",\"minimum\":0}", {"0", "5", "120"}, {"-1", "-0"}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
     {"-12", "-1", "0", "9", "99", "100", "105"},
     {"-13", "106", "110", "-0", "-20", "007"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":8,\"exclusiveMaximum\":13}",
     {"9", "10", "11", "12"},
     {"8", "13", "1", "90"}},
    {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5,\"multipleOf\":1}",
     {"2", "3"},
     {"1", "4"}},
    {"{\"type\":\"integer\",\"minimum\":-30,\"maximum\":-7}",
     {"-7", "-10", "-30"},
     {"-6", "-31", "7", "0"}},
    {"{\"type\":\"integer\",\"minimum\":1234,\"maximum\":56789}",
     {"1234", "1999", "9999", "10000", "56789", "55555"},
     {"1233", "56790", "60000", "999"}},
    {"{\"type\":\"integer\",\"maximum\":1e300}", {"5"}, {"x"}},
    {"{\"type\":\"number\"}", {"0", "-1.5", "2e10", "3.25E-2"}, {"1.", "e5", "Infinity", "NaN"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "0.5", "1", "1.000"},
     {"1.01", "-0.5", "2", "1e5"}},
    {"{\"type\":\"number\",\"minimum\":-2,\"maximum\":3}",
     {"-2", "-1.99", "-0.5", "2.999", "3.0"},
     {"-2.5", "3.1", "4"}},
    {"{\"type\":\"number\",\"maximum\":-5}", {"-5", "-5.5", "-100"}, {"-4.9", "5", "0"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\\\"b\"", "\"\\ud7ff\""},
     {"a", "\"", "\"\\x\"", "\"\t\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa9\xf0\x9f\x98\x80\\n\""},
     {"\"a\"", "\"abcd\"", "\"\""}},
    {"{\"minLength\":1}", {"\"a\""}, {"\"\""}},
    {"{\"enum\":[\"a\",1,null,true,0.1,{\"k\":[1,2]}]}",
     {"\"a\"", "1", "null", "true", "0.1", "{\"k\":[1,2]}"},
     {"\"b\"", "2", "{}"}},
    {"{\"const\":\"x\\n\\\"\\u0001\"}", {"\"x\\n\\\"\\u0001\""}, {"\"x\"", "null"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",3]}", {"\"a\""}, {"3"}},
    {"{\"type\":\"array\"}", {"[]", "[1, \"a\",[]]"}, {"[1", "{}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1,2]", "[1, 2, 3]"},
     {"[]", "[1,2,3,4]", "[\"a\"]"}},
    {"{\"items\":{\"type\":\"boolean\"},\"minItems\":2}",
     {"[true,false]", "[true,true,true,true]"},
     {"[true]", "[]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":1},\"maxItems\":1}", {"[]", "[1]"}, {"[1,1]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,\"minItems\":1}",
     {"[1]", "[1,2]"},
     {"[]", "[2]", "[1,2,3]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},\"minItems\":3,"
     "\"maxItems\":4}",
     {"[1,2,3]", "[1,2,3,3]"},
     {"[1,2]", "[1,2,3,3,3]", "[1,2,2]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
     "\"const\":3}},\"required\":[\"b\"]}",
     {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\": 2, \"c\": 3}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"b\":2,\"a\":1}", "{\"b\":2,\"b\":2}", "{\"b\":2,}", "{,\"b\":2}",
      "{\"b\":2,\"d\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":2,\"a\":1}", "{,\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"ac\":{\"const\":1},\"\xc3\xa9\":{"
     "\"const\":1}},\"additionalProperties\":{\"const\":9}}",
     {"{}", "{\"ab\":1}", "{\"ab\":1,\"x\":9}", "{\"a\":9}", "{\"abc\":9,\"\":9}",
      "{\"\xc3\xa9\":1}", "{\"\xc3\xa8\":9}"},
     {"{\"ab\":9}", "{\"ac\":9}", "{\"\xc3\xa9\":9}", "{\"x\":1}", "{\"x\":9,\"ab\":1}",
      "{\"\\u0061b\":9}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}}",
     {"{}", "{\"a\":null,\"b\":null}"},
     {"{\"a\":1}"}},
    {"{\"required\":[\"k\"]}", {"{\"k\":1}", "{\"k\":1,\"z\":2}"}, {"{}", "{\"z\":2}"}},
    {"{\"properties\":{\"a]-^\":{\"const\":1}},\"additionalProperties\":true}",
     {"{\"a]-^\":1}", "{\"a]-\":2}", "{\"]\":2}"},
     {"{\"a]-^\":2}"}},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"maximum\":3}]}",
     {"\"a\"", "3"},
     {"4", "null"}},
    {"{\"type\":\"integer\",\"anyOf\":[{\"minimum\":5},{\"maximum\":-5}]}",
     {"5", "-5"},
     {"0", "4"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", {"\"\"", "null"}, {"1"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":"
     "\"null\"}},\"required\":[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"b\","
     "\"c\"]}},\"required\":[\"k\"]}]}",
     {"{\"k\":\"a\",\"v\":null}", "{\"k\":\"c\"}"},
     {"{\"k\":\"b\",\"v\":null}", "{}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{"
     "\"properties\":{\"b\":{\"const\":2},\"a\":{\"maximum\":5}},\"required\":[\"b\"]}]}",
     {"{\"a\":5,\"b\":2}"},
     {"{\"a\":6,\"b\":2}", "{\"a\":5}", "{\"b\":2}", "{}"}},
    {"{\"allOf\":[{\"type\":[\"integer\",\"string\"]},{\"type\":\"number\"},{\"minimum\":2},{"
     "\"minimum\":4},{\"maximum\":9},{\"maximum\":6}]}",
     {"4", "6"},
     {"3", "7", "\"a\"", "4.5"}},
    {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}]}", {"2", "3"}, {"1", "4"}},
    {"{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
     "n\"},\"b\":{\"$ref\":\"#/properties/a\"}}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":\"x\"}"}},
    {"{\"definitions\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"kids\":{"
     "\"type\":\"array\",\"items\":{\"$ref\":\"#/definitions/"
     "t\"}}},\"required\":[\"v\"]}},\"$ref\":\"#/definitions/t\"}",
     {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":1,\"kids\":[]},{\"v\":1}]}"},
     {"{\"v\":1,\"kids\":[1]}", "{\"kids\":[]}"}},
    {"{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
     "\"null\"}]}},\"required\":[\"next\"]}",
     {"{\"next\":{\"next\":null}}"},
     {"{}", "{\"next\":1}"}},
    {"{\"$defs\":{\"a~/b\":{\"const\":1}},\"$ref\":\"#/$defs/"
     "a~0~1b\",\"description\":\"x\",\"x-more\":1}",
     {"1"},
     {"2"}},
    {"{\"$defs\":{\"s\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/s\",\"maxLength\":1}",
     {"\"a\""},
     {"\"ab\""}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"$ref\":\"#/prefixItems/0\"}}",
     {"[1,1]"},
     {"[1,2]"}},
    {"{\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
     {"\"2023-02-29\"", "\"2023-13-01\"", "\"2023-04-31\"", "\"1900-02-29\"", "\"23-1-1\""}},
    {"{\"format\":\"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.123+02:00\""},
     {"\"24:00:00Z\"", "\"10:60:00Z\"", "\"10:00:00\""}},
    {"{\"format\":\"date-time\"}", {"\"2024-02-29T10:00:00Z\""}, {"\"2024-02-29 10:00:00Z\""}},
    {"{\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567-e89b-12d3-a456-42661417400\"", "\"\""}},
    {"{\"pattern\":\"^[A-Z]{2}-\\\\d+$\"}",
     {"\"AB-1\"", "\"ZZ-0099\""},
     {"\"A-1\"", "\"AB-\"", "\"AB-1x\""}},
    {"{\"pattern\":\"b\"}", {"\"b\"", "\"abc\\n\""}, {"\"a\"", "\"\""}},
    {"{\"pattern\":\"^a|b$\"}", {"\"a\"", "\"axx\"", "\"xxb\""}, {"\"xa\"", "\"bx\""}},
    {"{\"pattern\":\"^(?:ab?|[^a-z\\\"])*?$\"}",
     {"\"\"", "\"abaA\"", "\"\xc3\xa9\"", "\"\\\\\""},
     {"\"b\"", "\"\\\"\""}},
    {"{\"pattern\":\"^\\\\w\\\\s\\\\S\\\\.\\\\x41\\\\u00e9.\\\\/\\\\-$\"}",
     {"\"a !.A\xc3\xa9?/-\"", "\"_\\n!.A\xc3\xa9?/-\""},
     {"\"a!.A\xc3\xa9?/-\"", "\"a  .A\xc3\xa9?/-\""}},
    {"{\"pattern\":\"^[\\\\d\\\\-x]{1,2}[\\\\D]\\\\t{2,}(\\\"|\\\\\\\\)?\\\\W$\"}",
     {"\"1-a\\t\\t\\\"!\"", "\"xx\\t\\t\\t\\\\!\""},
     {"\"a\"", "\"1-a\\t!\""}},
    {"{\"pattern\":\"\"}", {"\"\"", "\"abc\""}, {"1"}},
};

static void test_every_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *a;
        struct err err;
        if (open_schema(&a, cases[i].schema, &err)) fail_msg("%s: %s", cases[i].schema, err.text);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].yes) && cases[i].yes[k]; k++)
            if (!allows(a, cases[i].yes[k]))
                fail_msg("%s: not %s", cases[i].schema, cases[i].yes[k]);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].no) && cases[i].no[k]; k++)
            if (allows(a, cases[i].no[k]))
                fail_msg("%s: allows %s", cases[i].schema, cases[i].no[k]);
        automaton_close(a);
    }
}

static void test_what_cannot_be_kept_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *says;
    } refused[] = {
        {"5", "neither an object"},
        {"false", "no value is possible"},
        {"{\"not\":{}}", "'not'"},
        {"{\"properties\":{\"a\":{\"if\":{}}}}", "#/a: 'if'"},
        {"{\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"patternProperties\":{}}", "'patternProperties'"},
        {"{\"minProperties\":1}", "'minProperties'"},
        {"{\"contains\":{}}", "'contains'"},
        {"{\"type\":\"strnig\"}", "'strnig'"},
        {"{\"type\":[]}", "no type"},
        {"{\"type\":5}", "without a name"},
        {"{\"type\":\"string\",\"format\":\"email\"}", "'email'"},
        {"{\"format\":5}", "without a name"},
        {"{\"pattern\":5}", "pattern is not a text"},
        {"{\"pattern\":\"a\",\"maxLength\":5}", "only one of"},
        {"{\"pattern\":\"(?=a)\"}", "plain groups"},
        {"{\"pattern\":\"a\\\\b\"}", "this escape"},
        {"{\"pattern\":\"(a\"}", ") is missing"},
        {"{\"pattern\":\"a)\"}", ") without"},
        {"{\"pattern\":\"[a\"}", "] is missing"},
        {"{\"pattern\":\"[b-a]\"}", "range"},
        {"{\"pattern\":\"[^\\\\x00-\\\\uffff\\ud800\\udc00-\\udbff\\udfff]\"}", "no characters"},
        {"{\"pattern\":\"*\"}", "nothing to repeat"},
        {"{\"pattern\":\"a**\"}", "repetition"},
        {"{\"pattern\":\"a{,3}\"}", "without m"},
        {"{\"pattern\":\"a{1,,}\"}", "without m"},
        {"{\"pattern\":\"a^b\"}", "ends only"},
        {"{\"pattern\":\"\\\\xzz\"}", "hexadecimal"},
        {"{\"pattern\":\"\\\\ud800\"}", "surrogates"},
        {"{\"pattern\":\"a{20000}\"}", "10000"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "between the bounds"},
        {"{\"type\":\"integer\",\"minimum\":1e30}", "between the bounds"},
        {"{\"type\":\"integer\",\"maximum\":-1e30}", "between the bounds"},
        {"{\"type\":\"integer\",\"minimum\":\"5\"}", "minimum is not a number"},
        {"{\"type\":\"integer\",\"multipleOf\":5}", "multipleOf"},
        {"{\"type\":\"number\",\"minimum\":0.5}", "minimum"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "exclusiveMinimum"},
        {"{\"minLength\":-1}", "minLength is not a count"},
        {"{\"maxLength\":1e9}", "maxLength is more than"},
        {"{\"maxLength\":1e99}", "maxLength is more than"},
        {"{\"minLength\":3,\"maxLength\":2}", "minLength is more"},
        {"{\"prefixItems\":[{}],\"items\":false,\"minItems\":2}", "minItems"},
        {"{\"items\":[{}]}", "prefixItems"},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", "required"},
        {"{\"required\":[5]}", "required"},
        {"{\"properties\":[]}", "properties is no object"},
        {"{\"enum\":[]}", "no value"},
        {"{\"type\":\"string\",\"enum\":[1]}", "no value"},
        {"{\"anyOf\":[]}", "anyOf is not a list"},
        {"{\"allOf\":5}", "allOf is not a list"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "fit both 0 and 1"},
        {"{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}", "fit both"},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "'pattern' is said twice"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no type is left"},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{"
         "\"b\":{}}}]}",
         "additionalProperties"},
        {"{\"$ref\":\"http://x/y\"}", "only places in the same"},
        {"{\"$ref\":5}", "without a text"},
        {"{\"$ref\":\"#/nowhere\"}", "no such place"},
        {"{\"$ref\":\"#\",\"type\":\"object\"}", "deeper"},
        {"{\"$ref\":\"#\"}", "can never end"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "can never end"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "can begin with itself"},
    };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct automaton *a;
        struct err err = {0};
        if (!open_schema(&a, refused[i].schema, &err)) fail_msg("%s", refused[i].schema);
        if (!strstr(err.text, refused[i].says) || strchr(err.text, '\n') || !err.code)
            fail_msg("%s: %s", refused[i].schema, err.text);
    }
}

static void test_depth_and_number_are_bounded(void **state)
{
    (void)state;
    struct buf b = {0};
    struct automaton *a;
    struct err err;
    for (int i = 0; i < 70; i++) buf_puts(&b, "{\"items\":");
    buf_puts(&b, "{}");
    for (int i = 0; i < 70; i++) buf_puts(&b, "}");
    assert_int_equal(open_schema(&a, b.p, &err), FLETCH_E_LIMIT);
    buf_free(&b);
    buf_puts(&b, "{\"properties\":{\"a\":{}");
    for (int i = 0; i < 2100; i++) buf_printf(&b, ",\"p%d\":{}", i);
    buf_puts(&b, "}}");
    assert_int_equal(open_schema(&a, b.p, &err), FLETCH_E_LIMIT);
    buf_free(&b);
    buf_puts(&b, "{\"properties\":{\"");
    for (int i = 0; i < 200; i++) buf_putc(&b, 'x');
    buf_puts(&b, "\":{}},\"additionalProperties\":true}");
    assert_int_equal(open_schema(&a, b.p, &err), FLETCH_E_LIMIT);
    buf_free(&b);
    static const char *const long_lists[][3] = {
        {"{\"$defs\":{\"x\":{}},\"oneOf\":[", "{\"$ref\":\"#/$defs/x\"}", "]}"},
        {"{\"allOf\":[", "{\"minimum\":1,\"maximum\":9,\"minItems\":1,\"maxItems\":9}", "]}"},
        {"{\"allOf\":[{\"enum\":[1]},{\"enum\":[", "3", "]}]}"},
    };
    for (size_t k = 0; k < ARRAY_LEN(long_lists); k++) {
        buf_puts(&b, long_lists[k][0]);
        for (int i = 0; i < 70000; i++) buf_printf(&b, i ? ",%s" : "%s", long_lists[k][1]);
        buf_puts(&b, long_lists[k][2]);
        assert_int_equal(open_schema(&a, b.p, &err), FLETCH_E_LIMIT);
        buf_free(&b);
    }
    buf_puts(&b, "{\"type\":\"object\",\"properties\":{\"p\":{}");
    for (int i = 0; i < 400; i++) buf_printf(&b, ",\"p%d\":{\"type\":\"integer\"}", i);
    buf_puts(&b, "}}");
    assert_int_equal(open_schema(&a, b.p, &err), 0);
    assert_true(allows(a, "{\"p\":1,\"p7\":2, \"p399\":3}"));
    assert_false(allows(a, "{\"p7\":1,\"p6\":2}"));
    automaton_close(a);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_case),
        TEST(test_what_cannot_be_kept_is_refused_by_name),
        TEST(test_depth_and_number_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
