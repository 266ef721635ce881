/* Schemas: each with texts that must be possible, beginning by beginning, and texts that must not;
 * and schemas that can't be kept, with the word that says why. */
#include "serve/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "format/json.h"
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
    struct grammar *g;
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!j) json_parse(&j, str_of(text), "schema", err); /* keys with NUL */
    if (!j) fail_msg("not JSON: %s", text);
    int rc = schema_compile(&g, j, err);
    if (!rc) rc = automaton_open(a, g, trie, err);
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
     {"\"2023-02-29\"", "\"2023-13-01\"", "\"2023-04-31\"", "\"1900-02-29\"", "\"0000-01-01\"",
      "\"23-1-1\""}},
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
    /* keywords beside enum and const */
    {"{\"enum\":[1,5,9,12],\"minimum\":9}", {"9", "12"}, {"1", "5"}},
    {"{\"enum\":[1,2,3],\"const\":2}", {"2"}, {"1", "3"}},
    {"{\"enum\":[\"a\",\"ab\",\"b\",3],\"minLength\":2}", {"\"ab\"", "3"}, {"\"a\"", "\"b\""}},
    {"{\"enum\":[\"ab\",\"b\\u0001\",\"a\\u00a0\"],\"pattern\":\"^.\\\\S$\"}",
     {"\"ab\"", "\"b\\u0001\""},
     {"\"a\xc2\xa0\""}},
    {"{\"enum\":[1,\"a\",null,[1],{\"k\":2}],\"not\":{\"type\":[\"string\",\"null\"]}}",
     {"1", "[1]", "{\"k\":2}"},
     {"\"a\"", "null"}},
    {"{\"enum\":[1,2,3,4],\"if\":{\"minimum\":3},\"then\":{\"const\":4},\"else\":{\"multipleOf\":2}"
     "}",
     {"2", "4"},
     {"1", "3"}},
    {"{\"enum\":[[1,1],[1,1.0],[1,2],[3,4,5]],\"uniqueItems\":true,\"contains\":{\"const\":1.0}}",
     {"[1,2]"},
     {"[1,1]", "[1,1.0]", "[3,4,5]"}},
    {"{\"enum\":[[1],[2],[1,\"x\"]],\"items\":[{\"const\":1}],\"additionalItems\":false}",
     {"[1]"},
     {"[2]", "[1,\"x\"]"}},
    {"{\"enum\":[{\"a\":1},{\"ab\":1},{\"a\":1,\"b\":2},{}],\"minProperties\":1,\"propertyNames\":{"
     "\"maxLength\":1},\"dependentRequired\":{\"b\":[\"c\"]}}",
     {"{\"a\":1}"},
     {"{\"ab\":1}", "{\"a\":1,\"b\":2}", "{}"}},
    {"{\"enum\":[{\"a\":1,\"x\":2},{\"a\":1},{\"xx\":\"s\"}],\"properties\":{\"a\":{}},"
     "\"patternProperties\":{\"x\":{\"type\":\"string\"}},\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"xx\":\"s\"}"},
     {"{\"a\":1,\"x\":2}"}},
    {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2.0,3]},{\"not\":{\"const\":3}}]}",
     {"2"},
     {"3", "1"}},
    {"{\"minimum\":3,\"anyOf\":[{\"const\":1},{\"const\":4},{\"enum\":[2,7]}]}",
     {"4", "7"},
     {"1", "2", "3"}},
    {"{\"items\":{\"$ref\":\"#\"},\"enum\":[[[]],[]]}", {"[]", "[[]]"}, {"[[[]]]"}},
    {"{\"items\":{\"$ref\":\"#\"},\"enum\":[[[1]],1]}", {"1"}, {"[[1]]"}},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2},{\"enum\":[2.0,3]}]}", {"1", "3"}, {"2"}},
    {"{\"$defs\":{\"e\":{\"enum\":[1,9]}},\"$ref\":\"#/$defs/e\",\"maximum\":5}", {"1"}, {"9"}},
    /* types that are listed in full do not hide what is said about some */
    {"{\"type\":[\"null\",\"boolean\",\"integer\",\"number\",\"string\",\"array\",\"object\"],"
     "\"minimum\":5}",
     {"5", "null", "{}"},
     {"4", "-1"}},
    /* parts that are joined */
    {"{\"allOf\":[{\"prefixItems\":[{\"minimum\":3}]}],\"items\":{\"minimum\":5}}",
     {"[5,5]", "[]"},
     {"[3,5]", "[5,3]"}},
    {"{\"$defs\":{\"p\":{\"prefixItems\":[true,{\"const\":2}],\"items\":false}},\"$ref\":\"#/$defs/"
     "p\","
     "\"items\":{\"type\":\"integer\"},\"minItems\":1}",
     {"[1]", "[1,2]"},
     {"[]", "[\"a\"]", "[1,3]", "[1,2,3]"}},
    {"{\"items\":{\"maximum\":5},\"anyOf\":[{\"prefixItems\":[{\"minimum\":4}]},{\"maxItems\":0}]}",
     {"[4,1]", "[5]", "[]"},
     {"[6]", "[3]", "[4,6]"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false},{"
     "\"properties\":{\"b\":{\"const\":2}}}]}",
     {"{\"a\":1}", "{}"},
     {"{\"b\":2}", "{\"a\":1,\"b\":2}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":1}}},{\"additionalProperties\":{\"maximum\":"
     "3}}]}",
     {"{\"a\":2}", "{\"a\":3,\"b\":0}"},
     {"{\"a\":0}", "{\"a\":4}", "{\"a\":1,\"b\":4}"}},
    {"{\"anyOf\":[{\"minimum\":5},{\"maximum\":1}],\"allOf\":[{\"anyOf\":[{\"maximum\":6},{"
     "\"const\":-1}]}]}",
     {"5", "6", "-1", "1"},
     {"3", "7"}},
    {"{\"properties\":{\"a\":false,\"b\":{\"const\":1}},\"additionalProperties\":{\"type\":"
     "\"null\"}}",
     {"{}", "{\"b\":1}", "{\"c\":null}"},
     {"{\"a\":null}", "{\"a\":1}"}},
    {"{\"anyOf\":[{\"type\":\"integer\",\"minLength\":3,\"minimum\":2},{\"type\":\"string\","
     "\"maxLength\":"
     "1,\"minLength\":2}]}",
     {"2"},
     {"\"a\"", "\"ab\""}},
    /* what ECMA-262 calls white space, the end of a line and a character */
    {"{\"pattern\":\"^\\\\S$\"}",
     {"\"a\"", "\"\xe2\x80\x8b\""},
     {"\"\xc2\xa0\"", "\"\xef\xbb\xbf\"", "\"\xe2\x80\xa9\"", "\"\xe2\x80\x83\"",
      "\"\xe3\x80\x80\""}},
    {"{\"pattern\":\"^\\\\s$\"}",
     {"\" \"", "\"\xc2\xa0\"", "\"\xef\xbb\xbf\""},
     {"\"\xe2\x80\x8b\""}},
    {"{\"pattern\":\"^.$\"}", {"\"a\"", "\"\xc2\x85\""}, {"\"\xe2\x80\xa8\"", "\"\xe2\x80\xa9\""}},
    {"{\"pattern\":\"^(?<y>\\\\u{1F600}|\\\\ud83d\\\\ude01|[\\\\b]|\\\\cA|\\\\0)$\"}",
     {"\"\xf0\x9f\x98\x80\"", "\"\xf0\x9f\x98\x81\"", "\"\\b\"", "\"\\u0001\"", "\"\\u0000\""},
     {"\"b\""}},
    /* spellings of draft 7, and what asks for other members */
    {"{\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
     {"[]", "[1,2,2]"},
     {"[2]", "[1,1]"}},
    {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"dependencies\":{\"a\":[\"b\"]}}",
     {"{}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{"
     "\"const\":3}}"
     "}}}",
     {"{\"b\":4}", "{\"a\":1,\"b\":3}"},
     {"{\"a\":1,\"b\":4}"}},
    {"{\"properties\":{\"a\":{}},\"unevaluatedProperties\":false}", {"{\"a\":1}"}, {"{\"b\":1}"}},
    {"{\"prefixItems\":[{}],\"unevaluatedItems\":{\"const\":1}}", {"[5,1]"}, {"[5,2]"}},
    /* how many members, and of which names */
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":1}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}"}},
    {"{\"patternProperties\":{\"^x\":{\"const\":1}},\"additionalProperties\":false}",
     {"{}", "{\"x\":1,\"xy\":1}"},
     {"{\"x\":2}", "{\"y\":1}"}},
    {"{\"propertyNames\":{\"maxLength\":1},\"additionalProperties\":{\"const\":1}}",
     {"{\"a\":1}"},
     {"{\"ab\":1}", "{\"a\":2}"}},
    {"{\"properties\":{\"a\":{},\"bb\":{}},\"propertyNames\":{\"maxLength\":1}}",
     {"{\"a\":1}"},
     {"{\"bb\":1}"}},
    {"{\"$defs\":{\"a%\":{\"$anchor\":\"n\",\"const\":1},\"b\":{\"$ref\":\"#n\"}},\"anyOf\":[{\"$"
     "ref\":"
     "\"#/$defs/a%25\"},{\"$ref\":\"#/$defs/b\"}]}",
     {"1"},
     {"2"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"properties\":{\"a\":{\"$ref\":\"#/anyOf/"
     "1\"}},\"required\":[\"a\"]}]}",
     {"null"},
     {"{}", "{\"a\":null}"}},
    /* bounds of any number */
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":99.95}",
     {"0.01", "0.000000000000001", "99.95", "99.949", "7", "12.50"},
     {"0", "0.0", "-0", "99.951", "99.96", "100", "-1", "1e1"}},
    {"{\"type\":\"number\",\"minimum\":-273.15,\"exclusiveMaximum\":-0.5}",
     {"-273.15", "-1", "-0.51", "-0.5000000000001", "-273.1"},
     {"-273.16", "-0.5", "-0.50", "0", "1", "-274"}},
    {"{\"type\":\"number\",\"minimum\":0.5}", {"0.5", "0.50", "1", "123456.75"}, {"0.4999", "0"}},
    {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":0.10}", {"0.1", "0.100"}, {"0.11", "0.09"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":1.5}",
     {"-1.5", "0", "0.25", "-0.25", "1.5"},
     {"-1.6", "1.51", "-2"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":1.5,\"exclusiveMaximum\":4.0}",
     {"2", "3"},
     {"1", "4", "2.0"}},
    {"{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true}", {"1"}, {"0", "-1"}},
    {"{\"type\":\"integer\",\"maximum\":3,\"exclusiveMaximum\":false}", {"3"}, {"4"}},
    {"{\"enum\":[1,2,3],\"minimum\":1,\"exclusiveMinimum\":true}", {"2", "3"}, {"1"}},
    {"{\"type\":\"integer\",\"format\":\"int32\"}",
     {"2147483647", "-2147483648", "0"},
     {"2147483648", "-2147483649"}},
    {"{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":-10,\"maximum\":105}",
     {"-10", "-5", "0", "100", "105"},
     {"-15", "1", "104", "110", "-0"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}",
     {"0", "7", "-14", "700", "777777777777"},
     {"1", "8", "100"}},
    {"{\"type\":\"integer\",\"multipleOf\":86413}",
     {"0", "86413", "-86413", "864130", "9937495"},
     {"1", "86414", "9937496", "86413000"}},
    {"{\"type\":\"integer\",\"multipleOf\":1000}",
     {"0", "1000", "-123456789012000"},
     {"100", "1001", "10", "0000"}},
    {"{\"type\":\"integer\",\"multipleOf\":2.5}", {"5", "0", "-10"}, {"2", "7", "2.5"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}",
     {"0.07", "12.5", "12.50", "3", "-1.99"},
     {"0.001", "12.505", "1e2"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25,\"exclusiveMinimum\":0,\"maximum\":2}",
     {"0.25", "0.5", "0.50", "1.75", "2", "2.00"},
     {"0", "0.00", "0.3", "2.25", "0.05"}},
    {"{\"enum\":[0.5,0.25,0.07,1],\"multipleOf\":0.1}", {"0.5", "1"}, {"0.25", "0.07"}},
    /* several conditions on one string */
    {"{\"pattern\":\"^[a-z-]+$\",\"minLength\":2,\"maxLength\":4}",
     {"\"ab\"", "\"a-b-\""},
     {"\"a\"", "\"abcde\"", "\"A-\""}},
    {"{\"pattern\":\"^\\\\S+@\\\\S+$\",\"format\":\"email\",\"maxLength\":9}",
     {"\"a@b.c\"", "\"abc@d.com\""},
     {"\"abcd@e.com\"", "\"a@b \"", "\"ab\""}},
    {"{\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"b$\"},{\"pattern\":\"c\"}]}",
     {"\"acb\"", "\"axcxb\""},
     {"\"ab\"", "\"cab\"", "\"acbd\""}},
    {"{\"pattern\":\"^(?=.*[A-Z])(?=.*\\\\d)(?!.*[ x]).{3,}$\"}",
     {"\"aB1\"", "\"1BC\""},
     {"\"ab1\"", "\"B1\"", "\"a B1\"", "\"aBx1\""}},
    {"{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
     {"\"1.5\"", "\"-0\"", "\"+.5\"", "\"7.\""},
     {"\"\"", "\"-\"", "\".\"", "\"1.5.2\"", "\"a\""}},
    {"{\"pattern\":\"^(?:\\\\d{0,2}|(?=[\\\\d.]{1,4}0*$)\\\\d{0,2}\\\\.\\\\d{0,2}0*$)$\"}",
     {"\"12\"", "\"1.25\"", "\"\""},
     {"\"123\"", "\"1.255\""}},
    {"{\"pattern\":\"(?:^|,)a(?:,|$)\"}", {"\"a\"", "\"b,a\"", "\"a,b\""}, {"\"ba\"", "\"ab\""}},
    {"{\"pattern\":\"x?(?:^|,)a\"}", {"\"a\"", "\"x,a\"", "\",a\""}, {"\"xa\"", "\"ba\""}},
    {"{\"pattern\":\"^$|^[a-c]{3}$\",\"maxLength\":5}",
     {"\"\"", "\"abc\""},
     {"\"ab\"", "\"abcd\""}},
    {"{\"pattern\":\"^\\\\p{Lu}[\\\\p{L} '-]*$\",\"maxLength\":12}",
     {"\"\xc3\x85se\"", "\"D'Arcy\"", "\"\xd0\x98\xd0\xb2\xd0\xb0\xd0\xbd\""},
     {"\"ada\"", "\"Ada1\""}},
    {"{\"format\":\"base64\",\"minLength\":1}", {"\"aGk=\""}, {"\"\"", "\"a\""}},
    {"{\"format\":\"time\",\"pattern\":\"^\\\\d\\\\d:\\\\d\\\\d(:\\\\d\\\\d)?$\"}",
     {"\"10:00\"", "\"23:59:59\""},
     {"\"24:00\"", "\"10:00:00Z\""}},
    {"{\"format\":\"house-number\",\"pattern\":\"^\\\\d+$\"}", {"\"12\""}, {"\"a\""}},
    {"{\"format\":\"ipv6\"}",
     {"\"::\"", "\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"1::\""},
     {"\"1:2\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\"", "\":1\""}},
    {"{\"format\":\"uri\"}",
     {"\"https://example.com/a/b?c=d#e\"", "\"http://localhost:8080\"", "\"mailto:a@b.c\""},
     {"\"example.com\"", "\"https://\"", "\"http://a b\"", "\"https://a/%zz\""}},
    {"{\"format\":\"duration\"}",
     {"\"P1D\"", "\"PT5M\"", "\"P1Y2M3DT4H5M6S\"", "\"P3W\""},
     {"\"P\"", "\"PT\"", "\"1D\"", "\"P1S\"", "\"P1DT\""}},
    /* names of members */
    {"{\"properties\":{\"id\":{\"const\":1}},\"patternProperties\":{\"^x-\":{\"const\":2},\"z$\":{"
     "\"type\":\"integer\"}},\"additionalProperties\":false}",
     {"{}", "{\"id\":1,\"x-a\":2}", "{\"z\":5,\"az\":6}", "{\"x-z\":2}"},
     {"{\"x-a\":3}", "{\"y\":1}", "{\"x-z\":3}", "{\"id\":2}", "{\"x-\\u0061\":2}"}},
    {"{\"patternProperties\":{\"^a\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}",
     {"{\"a\":1,\"b\":2}", "{\"ab\":1,\"\":2}"},
     {"{\"a\":2}", "{\"b\":1}"}},
    {"{\"propertyNames\":{\"enum\":[\"a\",\"b\\\"\",\"c\"]},\"additionalProperties\":{\"const\":1},"
     "\"minProperties\":2}",
     {"{\"a\":1,\"c\":1}", "{\"a\":1,\"b\\\"\":1,\"c\":1}"},
     {"{\"a\":1}", "{}", "{\"a\":1,\"d\":1}", "{\"a\":2,\"c\":1}"}},
    {"{\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":2},\"required\":[\"k\"],"
     "\"additionalProperties\":{\"const\":1}}",
     {"{\"k\":1}", "{\"k\":1,\"ab\":1}"},
     {"{\"ab\":1}", "{\"k\":1,\"abc\":1}", "{\"k\":1,\"A\":1}", "{\"k\":1,\"k\":1}"}},
    {"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,\"maxProperties\":2}",
     {"{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"},
     {"{\"a\":1}", "{}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    {"{\"properties\":{\"a\":{}},\"additionalProperties\":true,\"minProperties\":2,"
     "\"maxProperties\":3}",
     {"{\"a\":1,\"c\":1}", "{\"a\":1,\"c\":1,\"d\":1}"},
     {"{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"}},
    /* different elements */
    {"{\"items\":{\"enum\":[\"a\",\"b\",1,1.0]},\"uniqueItems\":true,\"minItems\":1}",
     {"[\"a\"]", "[\"b\",\"a\"]", "[1, \"b\",\"a\"]"},
     {"[]", "[\"a\",\"a\"]", "[1,1.0]", "[\"c\"]"}},
    {"{\"items\":{\"enum\":[1,2,3,4,5,6,7,8]},\"uniqueItems\":true,\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[2,5,8]"},
     {"[1]", "[1,1]", "[1,2,3,4]", "[]"}},
    {"{\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}",
     {"[]", "[true,false]", "[false]"},
     {"[true,true]", "[1]"}},
    /* what must not be */
    {"{\"type\":[\"string\",\"integer\"],\"not\":{\"enum\":[\"a\",\"b.\",3]}}",
     {"\"ab\"", "\"b,\"", "\"\"", "2", "4"},
     {"\"a\"", "\"b.\"", "3"}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a|z$\"},\"minLength\":1}",
     {"\"b\"", "\"ba\""},
     {"\"a\"", "\"ab\"", "\"bz\"", "\"\""}},
    {"{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "null", "[]"}, {"\"a\"", "{}"}},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},\"not\":{"
     "\"required\":[\"a\",\"b\"]}}",
     {"{\"a\":1}", "{\"b\":1}", "{}"},
     {"{\"a\":1,\"b\":1}", "{\"c\":1}"}},
    {"{\"properties\":{\"a\":{\"enum\":[1,2]},\"b\":{\"const\":5}},\"required\":[\"a\"],\"if\":{"
     "\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":[\"b\"]},\"else\":{"
     "\"properties\":{\"b\":false}}}",
     {"{\"a\":1,\"b\":5}", "{\"a\":2}"},
     {"{\"a\":1}", "{\"a\":2,\"b\":5}", "{}"}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":3},{\"type\":\"integer\",\"maximum\":5}]}",
     {"2", "6"},
     {"3", "4", "5"}},
    {"{\"type\":[\"object\",\"string\"],\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},"
     "\"required\":[\"k\"]},{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}]}",
     {"{\"k\":1}", "{\"k\":2}"},
     {"\"a\"", "{}", "{\"k\":3}"}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"const\":1}},\"type\":"
     "\"object\"},{\"properties\":{\"k\":{\"const\":\"b\"}},\"type\":\"object\"}]}",
     {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
     {"{}", "{\"v\":1}", "{\"k\":\"c\"}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"b\":{\"const\":2}}}],"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1,\"b\":2}", "{}"},
     {"{\"c\":1}", "{\"a\":2}"}},
    {"{\"type\":\"string\",\"nullable\":true}", {"\"a\"", "null"}, {"1"}},
    {"{\"type\":\"string\",\"maxLength\":65535}", {"\"a\""}, {"1"}},
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

static const struct {
    const char *schema, *says;
} refused[] = {
    {"5", "must be an object, true or false"},
    {"false", "no value can match"},
    {"{\"not\":{}}", "no value can match"},
    {"{\"not\":{\"items\":{}}}", "'not' is supported in this form only together with enum"},
    {"{\"type\":\"objectt\"}", "schema: unknown type 'objectt' at the top level"},
    {"{\"properties\":{\"a/b\":{\"type\":5}}}", "at #/properties/a~1b"},
    {"{\"anyOf\":[{},{\"items\":{\"tpye\":5}}]}", "at #/anyOf/1"},
    {"{\"unevaluatedItems\":false,\"anyOf\":[{}]}", "'unevaluatedItems' is not supported"},
    {"{\"$dynamicRef\":\"#\"}", "'$dynamicRef'"},
    {"{\"enum\":[1],\"$recursiveRef\":\"#\"}", "'$recursiveRef'"},
    {"{\"enum\":[1],\"unevaluatedItems\":false}", "'unevaluatedItems'"},
    {"{\"enum\":[1],\"minimun\":2}", "'minimun'"},
    {"{\"enum\":[\"a\"],\"not\":{\"format\":\"date\"}}", "format 'date'"},
    {"{\"enum\":[0.5],\"multipleOf\":1e-30}", "multipleOf"},
    {"{\"const\":1e18}", "more than 18 digits"},
    {"{\"enum\":5}", "enum must be a list"},
    {"{\"properties\":{\"a\\u0000b\":{}}}", "contains NUL"},
    {"{\"required\":[\"a\\u0000b\"]}", "without NUL"},
    {"{\"type\":\"null\\u0000x\"}", "unknown type"},
    {"{\"properties\":{\"a\":{\"$id\":\"http://x/y\"},\"b\":{\"$ref\":\"#/properties/a\"}}}",
     "inner schema has an $id"},
    {"{\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}", "cannot be merged"},
    {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"const\":1}},{\"type\":\"array\",\"items\":"
     "{\"const\":1.0}}]}",
     "match both"},
    {"{\"properties\":{\"a\":{\"if\":{\"format\":\"date\"},\"then\":{\"minimum\":1}}}}",
     "'if' is supported in this form only together with enum or const at #/properties/a"},
    {"{\"uniqueItems\":true}", "'uniqueItems'"},
    {"{\"patternProperties\":{\"a\":1}}", "a schema must be"},
    {"{\"minProperties\":2}", "'minProperties'"},
    {"{\"contains\":{}}", "'contains'"},
    {"{\"type\":\"strnig\"}", "'strnig'"},
    {"{\"type\":[]}", "no value can match"},
    {"{\"type\":5}", "type is not a string"},
    {"{\"type\":\"string\",\"format\":\"json-string\"}",
     "unknown format 'json-string'; use pattern instead"},
    {"{\"format\":5}", "format must be a string"},
    {"{\"pattern\":5}", "pattern must be a string without NUL"},
    {"{\"pattern\":\"^a+$\",\"minLength\":5000}", "require too many states"},
    {"{\"pattern\":\"(?<=a)b\"}", "as groups"},
    {"{\"pattern\":\"(?:(?!b).)*\"}", "inside a repetition"},
    {"{\"pattern\":\"(?=a)*\"}", "cannot be repeated"},
    {"{\"pattern\":\"a\\\\b\"}", "this escape"},
    {"{\"pattern\":\"\\\\p{Katakana}\"}", "this Unicode property"},
    {"{\"pattern\":\"[^\\\\p{L}]\"}", "cannot be negated"},
    {"{\"enum\":[\"a\"],\"pattern\":\"\\\\p{L}\"}", "with \\p cannot be negated or tested"},
    {"{\"pattern\":\"(a\"}", ") is missing"},
    {"{\"pattern\":\"a)\"}", "unmatched )"},
    {"{\"pattern\":\"[a\"}", "] is missing"},
    {"{\"pattern\":\"[b-a]\"}", "range"},
    {"{\"pattern\":\"[^\\\\x00-\\\\uffff\\ud800\\udc00-\\udbff\\udfff]\"}", "no value can match"},
    {"{\"pattern\":\"*\"}", "nothing to repeat"},
    {"{\"pattern\":\"a**\"}", "repetition"},
    {"{\"pattern\":\"a{,3}\"}", "{ must be followed by m"},
    {"{\"pattern\":\"a{1,,}\"}", "{ must be followed by m"},
    {"{\"pattern\":\"a^b\"}", "no value can match"},
    {"{\"pattern\":\"\\\\xzz\"}", "hexadecimal"},
    {"{\"pattern\":\"\\\\ud800\"}", "a surrogate is not a character"},
    {"{\"pattern\":\"a{20000}\"}", "10000"},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no value can match"},
    {"{\"type\":\"integer\",\"minimum\":1e30}", "no value can match"},
    {"{\"type\":\"integer\",\"maximum\":-1e30}", "no value can match"},
    {"{\"type\":\"integer\",\"minimum\":\"5\"}", "minimum must be a number"},
    {"{\"type\":\"integer\",\"multipleOf\":86413,\"minimum\":1e12}", "supported up to 7 digits"},
    {"{\"type\":\"integer\",\"multipleOf\":1e20}", "multipleOf 1e+20 has too many digits"},
    {"{\"type\":\"integer\",\"multipleOf\":0}", "multipleOf must be greater than 0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.5,\"exclusiveMaximum\":0.5}",
     "no value can match"},
    {"{\"minLength\":-1}", "minLength must be a non-negative integer"},
    {"{\"minLength\":1e9}", "minLength is more than"},
    {"{\"minLength\":1e99}", "minLength is more than"},
    {"{\"minLength\":3,\"maxLength\":2}", "no value can match"},
    {"{\"prefixItems\":[{}],\"items\":false,\"minItems\":2}", "no value can match"},
    {"{\"items\":[{}],\"prefixItems\":[{}]}", "prefixItems cannot be combined"},
    {"{\"required\":[\"a\"],\"additionalProperties\":false}", "no value can match"},
    {"{\"required\":[5]}", "required must be a list of strings"},
    {"{\"properties\":[]}", "properties must be an object"},
    {"{\"enum\":[]}", "no value can match"},
    {"{\"type\":\"string\",\"enum\":[1]}", "no value can match"},
    {"{\"anyOf\":[]}", "anyOf must be a list"},
    {"{\"allOf\":5}", "allOf must be a list"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     "match both schema 0 and schema 1"},
    {"{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}", "no value can match"},
    {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"string\"}]}", "match both"},
    {"{\"allOf\":[{\"format\":\"date\"},{\"format\":\"uri\"}]}",
     "two different values of 'format'"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}",
     "'uniqueItems' is supported only for items that are listed"},
    {"{\"propertyNames\":{\"not\":{\"items\":{}}},\"additionalProperties\":true}",
     "'not' is not supported in propertyNames"},
    {"{\"patternProperties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{}}}",
     "more than 4 patternProperties"},
    {"{\"unevaluatedProperties\":false,\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     "'unevaluatedProperties'"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no value can match"},
    {"{\"$ref\":\"http://x/y\"}", "only #/... in the same schema"},
    {"{\"$ref\":5}", "$ref must be a string"},
    {"{\"$ref\":\"#/nowhere\"}", "unresolved $ref '#/nowhere' at the top level"},
    {"{\"$ref\":\"#\",\"type\":\"object\"}", "deeper"},
    {"{\"$ref\":\"#\"}", "leads back to itself"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no value can match"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads back to itself"},
};

static void test_what_cannot_be_kept_is_refused_by_name(void **state)
{
    (void)state;
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
    for (int i = 0; i < 9000; i++) buf_printf(&b, ",\"p%d\":{}", i);
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
        {"{\"anyOf\":[", "{}", "]}"},
        {"{\"anyOf\":[{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{"
         "\"const\":0},"
         "{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{"
         "\"const\":0},"
         "{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{"
         "\"const\":0},"
         "{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{"
         "\"const\":0},"
         "{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0},{\"const\":0}],\"enum\":[",
         "1", "]}"},
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

/* Thousands of alternatives share their beginnings, so that following them stays cheap. */
static void test_large_choices_can_be_followed(void **state)
{
    (void)state;
    static const char *const forms[][3] = {
        {"{\"enum\":[", "%s\"value %x\"", "]}"},
        {"{\"enum\":[", "%s%u", "]}"},
        {"{\"minimum\":5,\"anyOf\":[", "%s{\"const\":\"value %x\"}", "]}"},
        {"{\"oneOf\":[", "%s{\"title\":\"?\",\"const\":\"value %x\"}", "]}"},
        {"{\"anyOf\":[",
         "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"value %x\"},\"k\":{\"type\":"
         "\"integer\"}},\"required\":[\"name\"]}",
         "]}"},
        {"{\"type\":\"object\",\"properties\":{\"first\":{}", "%s\"value %x\":{\"const\":1}", "}}"},
    };
    static const char *const answers[] = {
        "\"value %x\"",    "%u", "\"value %x\"", "\"value %x\"", "{\"name\":\"value %x\", \"k\":3}",
        "{\"value %x\":1}"};
    for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
        struct buf b = {0};
        struct automaton *a;
        struct err err;
        u32 n = k == 4 ? 400 : k == 5 ? 500 : 2000;
        char text[64];
        buf_puts(&b, forms[k][0]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        for (u32 i = 0; i < n; i++)
            buf_printf(&b, forms[k][1], i || k == 5 ? "," : "", i * 2654435761u);
        buf_puts(&b, forms[k][2]);
        if (open_schema(&a, b.p, &err)) fail_msg("%zu: %s", k, err.text);
        for (u32 i = 0; i <= n; i += n / 4) {
            snprintf(text, sizeof text, answers[k], i * 2654435761u);
            if (allows(a, text) != (i < n)) fail_msg("%zu: %s", k, text);
        }
#pragma GCC diagnostic pop
        automaton_close(a);
        buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_case),
        TEST(test_what_cannot_be_kept_is_refused_by_name),
        TEST(test_depth_and_number_are_bounded),
        TEST(test_large_choices_can_be_followed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
