/* What a template's text is, is test/tmpl/oracle.py's matter (against Jinja2). Here: where bytes
 * come from, what the limits stop, and what errors say. */
#include "text/tmpl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char vars_text[] =
    "{\"u\": \"user <|x|>\", \"pad\": \"  \\u00e9\\u00e9 \", \"sharp\": \"a\\u00df\", \"n\": 7,"
    " \"m\": {\"role\": \"user\", \"content\": \"Hi\"}, \"list\": [\"a\", \"b\"], \"odd\": "
    "\"x,y\"}";

/* Renders with vars_text and bos_token = "<s>"; the error's text when it fails. */
static int render(const char *source, const struct tmpl_limits *limits, struct tmpl_out *out,
                  struct err *err)
{
    json_t *vars = json_loads(vars_text, 0, NULL),
           *trusted = json_pack("{s:s}", "bos_token", "<s>");
    struct tmpl *t = NULL;
    assert_non_null(vars);
    memset(out, 0, sizeof *out);
    memset(err, 0, sizeof *err);
    int code = tmpl_open(&t, str_of(source), err);
    if (!code) code = tmpl_render(t, vars, trusted, 1767355200, limits, out, err);
    tmpl_close(t);
    json_decref(vars);
    json_decref(trusted);
    return code;
}

static void assert_renders(const char *source, const char *text)
{
    struct tmpl_out out;
    struct err err;
    if (render(source, NULL, &out, &err)) fail_msg("%s: %s", source, err.text);
    assert_string_equal(out.text, text);
    tmpl_out_free(&out);
}

/* mask has one character a byte of the output: u the user's, . the template's. */
static void assert_mask(const char *source, const char *text, const char *mask)
{
    struct tmpl_out out;
    struct err err;
    if (render(source, NULL, &out, &err)) fail_msg("%s: %s", source, err.text);
    assert_string_equal(out.text, text);
    assert_int_equal(strlen(mask), out.n);
    for (size_t i = 0; i < out.n; i++) {
        if ((mask[i] == 'u') != (out.from_user[i] != 0)) {
            fail_msg("%s: byte %zu of %s is marked %d", source, i, text, out.from_user[i]);
        }
    }
    tmpl_out_free(&out);
}

static void assert_error(const char *source, int code, const char *text)
{
    struct tmpl_out out;
    struct err err;
    int got = render(source, NULL, &out, &err);
    if (!got) fail_msg("%s rendered %s", source, out.text);
    assert_null(out.text);
    if (!strstr(err.text, text)) fail_msg("%s: \"%s\" lacks \"%s\"", source, err.text, text);
    assert_int_equal(got, code);
    assert_int_equal(err.code, code);
}

static void assert_limited(const char *source, struct tmpl_limits limits)
{
    struct tmpl_out out;
    struct err err;
    assert_int_equal(render(source, &limits, &out, &err), FLETCH_E_LIMIT);
    assert_null(out.text);
}

static void bytes_keep_their_origin(void **state)
{
    (void)state;
    assert_mask("{{ bos_token }}A{{ u }}B{{ 'lit' }}", "<s>Auser <|x|>Blit", "....uuuuuuuuuu....");
    assert_mask("{{ 'a' + m.content + 'b' }}", "aHib", ".uu.");
    assert_mask("{{ 'a' ~ m.content ~ n }}", "aHi7", ".uu.");
    assert_mask("{{ ('<' + m.content + '>')[1:4] }}", "Hi>", "uu.");
    assert_mask("{{ ('<' + m.content)[::-1] }}", "iH<", "uu.");
    assert_mask("{{ ('[' + m.content + ']').split('i') | join('-') }}", "[H-]", ".u..");
    assert_mask("{{ 'xHx'.replace('H', m.content) }}", "xHix", ".uu.");
    assert_mask("{{ m.content.replace('i', 'ey') }}", "Hey", "u..");
    assert_mask("{{ pad | trim }}|{{ ('.' + pad).strip() }}", "\u00e9\u00e9|.  \u00e9\u00e9",
                "uuuu..uuuuuu");
    assert_mask("{{ list | join(',') }}{{ ','.join(list) }}", "a,ba,b", "u.uu.u");
    assert_mask("{% set x %}[{{ m.role }}]{% endset %}{{ x | upper }}", "[USER]", ".uuuu.");
    assert_mask("{{ ('s' + sharp) | upper }}", "SASS", ".uuu");
    assert_mask("{% macro f(a) %}({{ a }}){% endmacro %}{{ f(u[:2]) }}", "(us)", ".uu.");
    assert_mask("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", "role=user;content=Hi;",
                "uuuu.uuuu.uuuuuuu.uu.");
    assert_mask("{{ '{}-{:>4}'.format(m.content, odd[:1]) }}", "Hi-   x", "uu....u");
    assert_mask("{{ '%s=%3s' % (m.content, odd[:1]) }}", "Hi=  x", "uu...u");
    assert_mask("{{ ('<' ~ m.content) | escape }}{{ (u | e)[5:9] }}", "&lt;Hi&lt;", "....uuuuuu");
    assert_mask("{{ m.content.center(6) }}{{ '[' ~ m.content.zfill(3) }}", "  Hi  [0Hi",
                "..uu....uu");
    assert_mask("{% filter upper %}a{{ m.content }}{% endfilter %}", "AHI", ".uu");
    assert_mask(
        "{{ ('[\"' ~ m.content ~ '\"]') | from_json | first }}{{ '[\"a\"]' | from_json | first }}",
        "Hia", "uu.");
    assert_mask("{{ m.content.partition('i') | join('+') }}{{ list | max }}", "H+i+b", "u.u.u");
    assert_mask("{{ u[:4] | indent(1, true) }}{{ odd.split(',')[1] * 2 }}", " useryy", ".uuuuuu");
}

static void text_of_values_keeps_its_origin(void **state)
{
    (void)state;
    assert_mask("{{ m | tojson }}", "{\"role\": \"user\", \"content\": \"Hi\"}",
                "uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu");
    assert_mask("{{ {'k': m.content} | tojson }}", "{\"k\": \"Hi\"}", ".......uu..");
    assert_mask("{{ list }}{{ [m.content] }}", "['a', 'b']['Hi']", "uuuuuuuuuu..uu..");
    assert_mask("{{ n }}{{ strftime_now('%Y') }}", "72026", ".....");
    assert_mask("{{ odd | tojson }}", "\"x,y\"", ".uuu.");
}

static void variables_win_over_trusted_ones_and_functions(void **state)
{
    (void)state;
    json_t *vars = json_pack("{s:s, s:i}", "bos_token", "mine", "range", 3);
    json_t *trusted = json_pack("{s:s}", "bos_token", "<s>");
    struct tmpl *t;
    struct tmpl_out out;
    assert_int_equal(tmpl_open(&t, STR("{{ bos_token }}{{ range }}"), NULL), 0);
    assert_int_equal(tmpl_render(t, vars, trusted, 0, NULL, &out, NULL), 0);
    assert_string_equal(out.text, "mine3");
    assert_int_equal(out.from_user[0], 1);
    tmpl_out_free(&out);
    assert_int_equal(tmpl_render(t, NULL, NULL, 0, NULL, &out, NULL), FLETCH_E_TEMPLATE);
    tmpl_close(t);
    json_decref(vars);
    json_decref(trusted);
}

static void limits_stop_bombs(void **state)
{
    (void)state;
    struct tmpl_limits none = {0}, bytes = {.n_bytes = 1 << 20}, fuel = {.fuel = 1000},
                       depth = {.depth = 50};
    assert_limited("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                   none);
    assert_limited("{{ range(10**9) }}", none);
    assert_limited("{% for i in range(200) %}{{ i }}{% endfor %}", fuel);
    assert_limited("{% set ns = namespace(s='x') %}{% for i in range(99) %}"
                   "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                   none);
    assert_limited("{{ 'x' * 1000000000 }}", none);
    assert_limited("{{ [1] * 100000000000 }}", none);
    assert_limited("{{ 'x' * 2000000 }}", bytes);
    assert_limited("{% for i in range(20000) %}{% set a = [1, 2, 3] %}{% endfor %}", bytes);
    assert_limited("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", none);
    assert_limited("{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l] %}"
                   "{% endfor %}{{ ns.l }}",
                   depth);
    assert_limited("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", none);
    assert_limited("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}"
                   "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l[:] + [] }}"
                   "{{ ns.l[0] == [ns.l[0][0], [ns.l[0][0][0], ns.l[0][0][1]]] }}{{ ns.l }}",
                   none);
    assert_limited("{{ ('a' * 3000000).strip('b' * 3000000 + 'a') }}", none);
    static const char *const huge[] = {
        "'a' | center(10**9)",
        "'a'.center(10**15)",
        "'a'.ljust(9223372036854775807, '\u00e9')",
        "'a'.zfill(9223372036854775807)",
        "'\\t'.expandtabs(9223372036854775807)",
        "'a\nb' | indent(9223372036854775807)",
        "[1] | tojson(indent=9223372036854775807)",
        "'a' * 9223372036854775807",
        "'%999999999d' % 1",
        "'%99999999999999999999d' % 1",
        "'%.999999999f' % 1",
        "'%.999999999d' % 1",
        "'%*d' % (2000000000, 1)",
        "'{:999999999}'.format(1)",
        "'{:099999999999,}'.format(1)",
        "'{:{}}'.format(1, 999999999)",
        "'{:.999999999f}'.format(1)",
        "range(10**12)",
        "list | batch(10**12, 0) | list",
        "list | slice(10**12) | list",
        "list | slice(10**12, 0) | list",
        ("(range(90000) | list + range(90000) | list) | groupby(0) | list | length and"
         " (range(99999) | list * 999)"),
        "('[' * 1500 + ']' * 1500) | from_json",
        "('[' + '1,' * 9000000 + '1]') | from_json",
        "('a' * 9000000).rfind('a' * 4000000 + 'b')",
        "('a' * 9000000).rsplit('a' * 4000000 + 'b', 1)",
        "dict(*[[[1, 2]] * 9000000])",
        "namespace(**{'a': 1}) and cycler(*range(99999)) and cycler(*('a' * 200000))",
        "('{' * 9000000).format()",
    };
    for (size_t i = 0; i < ARRAY_LEN(huge); i++) {
        char source[300];
        snprintf(source, sizeof source, "{{ %s }}", huge[i]);
        struct tmpl_out out;
        struct err err;
        int code = render(source, &bytes, &out, &err);
        if (code != FLETCH_E_LIMIT) fail_msg("%s: %d %s", source, code, err.text);
    }
    assert_limited("{% for a in list recursive %}{{ loop(list) }}{% endfor %}", none);
    assert_limited("{% macro f() %}{{ caller() }}{% call f() %}{% endcall %}{% endmacro %}"
                   "{% call f() %}{% endcall %}",
                   none);
}

/* n times open, x, n times close. */
static char *nest(const char *open, const char *x, const char *close, size_t n)
{
    size_t size = n * (strlen(open) + strlen(close)) + strlen(x) + 1;
    char *s = calloc(1, size), *at = s;
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, open);
    at = stpcpy(at, x);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, close);
    return s;
}

static void parser_bounds_nesting_and_size(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{% if 1 %}", "x", "{% endif %}"},
        {"{% for i in [1] %}", "x", "{% endfor %}"},
        {"{{ (", "1", ") }}"},
        {"{% set a %}", "", "{% endset %}"},
        {"{% filter upper %}", "", "{% endfilter %}"},
        {"{% call f() %}", "", "{% endcall %}"},
        {"{% with %}", "", "{% endwith %}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *s = nest(cases[i][0], cases[i][1], cases[i][2], 20000);
        struct err err = {0};
        struct tmpl *t;
        assert_true(tmpl_open(&t, str_of(s), &err) < 0);
        free(s);
    }
    static const char *const inner[][3] = {
        {"(", "1", ")"},           {"[", "1", "]"},  {"not ", "1", ""}, {"- ", "1", ""},
        {"1 if 1 else ", "2", ""}, {"f(", "1", ")"}, {"{1:", "1", "}"}, {"a[", "1", "]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(inner); i++) {
        char *s = nest(inner[i][0], inner[i][1], inner[i][2], 50000),
             *tag = nest("{{ ", s, " }}", 1);
        assert_error(tag, FLETCH_E_LIMIT, "nested deeper");
        free(tag);
        free(s);
    }
    char *chain = nest("1+", "1", "", 5000), *tag = nest("{{ ", chain, " }}", 1);
    assert_error(tag, FLETCH_E_LIMIT, "nested too deeply");
    free(tag);
    free(chain);
    char *many = nest("{{1}}", "", "", 150000);
    assert_error(many, FLETCH_E_LIMIT, "more than");
    free(many);
    char *big = nest("x", "", "", (1 << 20) + 1);
    assert_error(big, FLETCH_E_LIMIT, "bytes");
    free(big);
}

static void errors_say_what_and_where(void **state)
{
    (void)state;
    assert_error("\n\n{{ x | nope }}", FLETCH_E_UNSUPPORTED, "template line 3: filter 'nope'");
    assert_error("{{ x is nope }}", FLETCH_E_UNSUPPORTED, "line 1: test 'nope'");
    assert_error("a\n{% include 'x' %}", FLETCH_E_UNSUPPORTED, "line 2: tag 'include'");
    assert_error("{{ [1].append(2) }}", FLETCH_E_UNSUPPORTED, "method 'append' of a list");
    assert_error("{{ u.encode() }}", FLETCH_E_UNSUPPORTED, "method 'encode' of a string");
    assert_error("{{ [1] | random }}", FLETCH_E_UNSUPPORTED, "filter 'random'");
    assert_error("{{ lipsum() }}", FLETCH_E_UNSUPPORTED, "function 'lipsum'");
    assert_error("{% from 'x' import y %}", FLETCH_E_UNSUPPORTED, "tag 'from'");
    assert_error("{% autoescape true %}{% endautoescape %}", FLETCH_E_UNSUPPORTED, "escaping");
    assert_error("{% do 1 %}", FLETCH_E_UNSUPPORTED, "tag 'do'");
    assert_error("{{ dict(**list) }}", FLETCH_E_TEMPLATE, "** needs a mapping, not a list");
    assert_error("{{ dict(n=1, **{'n': 2}) }}", FLETCH_E_TEMPLATE, "'n' is given twice");
    assert_error("{% for a in list %}{{ loop(list) }}{% endfor %}", FLETCH_E_TEMPLATE, "recursive");
    assert_error("{{ '%d' % u }}", FLETCH_E_TEMPLATE, "%d needs an integer, not a string");
    assert_error("{{ '%s' % () }}", FLETCH_E_TEMPLATE, "too few arguments");
    assert_error("{{ '{}{0}'.format(1) }}", FLETCH_E_TEMPLATE, "format: {} and {0}");
    assert_error("{{ '{x}'.format(y=1) }}", FLETCH_E_TEMPLATE, "no argument 'x'");
    assert_error("{{ '{:z}'.format(u) }}", FLETCH_E_TEMPLATE, "not a format for strings");
    assert_error("{{ '[' | from_json }}", FLETCH_E_TEMPLATE, "from_json: invalid JSON");
    assert_error("\n{{ gone.x }}", FLETCH_E_TEMPLATE, "line 2: 'gone' is undefined");
    assert_error("{{ m.gone.x }}", FLETCH_E_TEMPLATE, "'gone' is undefined");
    assert_error("{{ nope() }}", FLETCH_E_TEMPLATE, "unknown function 'nope'");
    assert_error("{{ 'a' + 1 }}", FLETCH_E_TEMPLATE, "+ between string and integer");
    assert_error("{% if x %}", FLETCH_E_TEMPLATE, "missing 'endif'");
    assert_error("{% endif %}", FLETCH_E_TEMPLATE, "does not close anything");
    assert_error("{% break %}", FLETCH_E_TEMPLATE, "outside a loop");
    assert_error("{{ 'abc }}", FLETCH_E_TEMPLATE, "never closed");
    assert_error("{# x", FLETCH_E_TEMPLATE, "never closed");
    assert_error("{% raw %} x", FLETCH_E_TEMPLATE, "never closed");
    assert_error("{{ 1 ? 2 }}", FLETCH_E_TEMPLATE, "unexpected character '?'");
    assert_error("{{ '\\ud800' }}", FLETCH_E_TEMPLATE, "bad escape");
    assert_error("{{ 1 }", FLETCH_E_TEMPLATE, "expected");
    assert_error("{{ 9223372036854775807 + 1 }}", FLETCH_E_TEMPLATE, "integer overflow");
    assert_error("{{ 3 ** 99 }}", FLETCH_E_TEMPLATE, "integer overflow");
    assert_error("{{ 99999999999999999999 }}", FLETCH_E_UNSUPPORTED, "the number");
    assert_error("{{ 1 // 0 }}", FLETCH_E_TEMPLATE, "division by zero");
    assert_error("{{ (-9223372036854775807 - 1) // -1 }}", FLETCH_E_TEMPLATE, "integer overflow");
    assert_renders(
        "{{ (-9223372036854775807 - 1) // 11 }} {{ (-9223372036854775807 - 1) % 11 }} "
        "{{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -8 // 2 }} {{ 5 // -1 }}",
        "-838488366986797801 3 -4 -4 2 -2 -4 -5");
    assert_error("\n{{ raise_exception('no\x1b[2J way') }}", FLETCH_E_TEMPLATE,
                 "template line 2: no?[2J way");
    assert_error("{{ list | map('upper') }}", FLETCH_E_TEMPLATE, "|list");
    assert_error("{{ u.upper }}", FLETCH_E_TEMPLATE, "missing its ()");
    assert_error("{{ u | replace('a') }}", FLETCH_E_TEMPLATE, "needs the argument 'new'");
    assert_error("{{ u | trim(bad=1) }}", FLETCH_E_TEMPLATE, "named argument");
    assert_error("{% set m.x = 1 %}", FLETCH_E_TEMPLATE, "'m' is not a namespace");
}

/* Jinja2 looks these up when it compiles a template, except in branches; here it is always late. */
static void what_is_unknown_matters_only_when_it_is_reached(void **state)
{
    (void)state;
    assert_renders("{% if false %}{{ 1 | nope(2) }}{% endif %}a", "a");
    assert_renders("{{ (1 | nope) if false else 'b' }}{{ (1 is nope) if none }}", "b");
    assert_renders("{% if 'nope' is filter and (1 | nope) %}{% else %}c{% endif %}", "c");
    assert_renders("{{ 'min' is filter }}{{ 'nope' is test }}{{ 'odd' is test }}", "TrueFalseTrue");
    assert_renders("{% if false %}{% include 'x' %}{% import 'x' as y %}{% endif %}d", "d");
    assert_renders("{% macro f() %}{{ u.nope() }}{{ 1 | nope }}{% endmacro %}e", "e");
}

static void strings_may_hold_nuls(void **state)
{
    (void)state;
    json_t *vars =
        json_loads("{\"u\": \"a\\u0000b\", \"d\": {\"k\": \"\\u0000\"}}", JSON_ALLOW_NUL, NULL);
    static const char source[] =
        "{{ u }}{{ u | length }}{{ u.split('\\x00') }}{{ d }}{{ u | tojson }}{{ '\\0' in u }}"
        "{{ '\"a\\\\u0000b\"' | from_json == u }}";
    static const char text[] = "a\0b3['a', 'b']{'k': '\\x00'}\"a\\u0000b\"TrueTrue";
    struct tmpl *t;
    struct tmpl_out out;
    struct err err = {0};
    assert_non_null(vars);
    assert_int_equal(tmpl_open(&t, str_of(source), &err), 0);
    if (tmpl_render(t, vars, NULL, 0, NULL, &out, &err)) fail_msg("%s", err.text);
    assert_int_equal(out.n, sizeof text - 1);
    assert_memory_equal(out.text, text, sizeof text);
    tmpl_out_free(&out);
    tmpl_close(t);
    json_decref(vars);
}

static void time_is_the_callers(void **state)
{
    (void)state;
    assert_renders("{{ strftime_now('%d %b %Y') }}", "02 Jan 2026");
    assert_renders("[{{ strftime_now('') }}]", "[]");
    assert_error("{{ strftime_now('%900Y') }}", FLETCH_E_TEMPLATE, "cannot format");
    assert_error("{{ strftime_now('%Y\\x00%Y') }}", FLETCH_E_TEMPLATE, "cannot format");
}

static void invalid_utf8_passes_through(void **state)
{
    (void)state;
    assert_renders("\xff{{ 'a\xffz' | upper }}{{ '\xc3' | length }}{{ '\xe2\x82x'[::-1] }}",
                   "\xff"
                   "A\xffZ1x\x82\xe2");
    assert_renders("{{ 'a\x80' | trim }}{{ 'b\xf0\x9f' | list | length }}{{ ['\xfe'] }}",
                   "a\x80"
                   "3['\\xfe']");
    assert_renders("{{ '\xff' | tojson }}{{ '\xff' | tojson(true) }}", "\"\xff\"\"\\ufffd\"");
}

static void templates_render_again_and_close_null(void **state)
{
    (void)state;
    struct tmpl *t;
    struct tmpl_out out;
    assert_int_equal(tmpl_open(&t,
                               STR("{% set ns = namespace(a=0) %}{% set ns.a = ns.a + 1 %}"
                                   "{{ ns.a }}"),
                               NULL),
                     0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tmpl_render(t, NULL, NULL, 0, NULL, &out, NULL), 0);
        assert_string_equal(out.text, "1");
        tmpl_out_free(&out);
    }
    tmpl_close(t);
    tmpl_close(NULL);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_keep_their_origin),
        cmocka_unit_test(text_of_values_keeps_its_origin),
        cmocka_unit_test(variables_win_over_trusted_ones_and_functions),
        cmocka_unit_test(limits_stop_bombs),
        cmocka_unit_test(parser_bounds_nesting_and_size),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(what_is_unknown_matters_only_when_it_is_reached),
        cmocka_unit_test(strings_may_hold_nuls),
        cmocka_unit_test(time_is_the_callers),
        cmocka_unit_test(invalid_utf8_passes_through),
        cmocka_unit_test(templates_render_again_and_close_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
