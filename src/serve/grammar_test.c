/* Grammars: what they accept, what is refused, and that masks are exactly the tokens whose bytes
 * the grammar allows. */
#include "serve/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "serve/automaton.h"

#define TEST(f) cmocka_unit_test(f)

/* All single bytes, then words; the last two end an answer. */
static const char *const words[] = {
    "{\"", "\": ", "\", \"", "true",     "false",    "nul", "null", " ",
    "  ",  "a",    "ab",     "abc",      "b",        "ba",  "aaaa", "12",
    "3.5", "-1",   "\xc3",   "\xc3\xa9", "\xf0\x9f", "}",   "]}",   "x\"}",
};
enum { N_WORDS = ARRAY_LEN(words), N_TOKENS = 256 + N_WORDS + 2 };

struct fixture {
    char bytes[256];
    struct str pieces[N_TOKENS];
    i32 ends[2];
    struct trie *trie;
};

static struct fixture f;

static int setup(void **state)
{
    (void)state;
    for (u32 i = 0; i < 256; i++) {
        f.bytes[i] = (char)i;
        f.pieces[i] = (struct str){&f.bytes[i], 1};
    }
    for (u32 i = 0; i < N_WORDS; i++) f.pieces[256 + i] = str_of(words[i]);
    f.ends[0] = N_TOKENS - 2;
    f.ends[1] = N_TOKENS - 1;
    return trie_open(&f.trie, f.pieces, N_TOKENS, f.ends, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    trie_close(f.trie);
    return 0;
}

static struct automaton *automaton_of(const char *text)
{
    struct grammar *g;
    struct automaton *a;
    struct err err;
    if (grammar_parse(&g, str_of(text), &err)) fail_msg("%s: %s", text, err.text);
    assert_int_equal(automaton_open(&a, g, f.trie, &err), 0);
    return a;
}

static struct constraint *constraint_of(struct automaton *a)
{
    struct constraint *c;
    assert_int_equal(constraint_open(&c, a, NULL), 0);
    return c;
}

/* How many bytes of text are a beginning; *whole: and may it end there? */
static size_t matched(struct automaton *a, struct str text, bool *whole)
{
    struct constraint *c = constraint_of(a);
    size_t n = constraint_feed(c, text);
    *whole = n == text.n && constraint_may_end(c);
    constraint_close(c);
    return n;
}

static void check_texts(const char *grammar, const char *const *texts, bool accepted)
{
    struct automaton *a = automaton_of(grammar);
    for (; *texts; texts++) {
        bool whole;
        size_t n = matched(a, str_of(*texts), &whole);
        if (whole != accepted) fail_msg("%s: %s %zu", grammar, *texts, n);
    }
    automaton_close(a);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_texts_of_grammars(void **state)
{
    (void)state;
    static const struct {
        const char *grammar;
        const char *yes[6], *no[6];
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno", "nope"}},
        {"root ::= [a-c]+ [^a-c]?", {"a", "abcc", "ab\xc3\xa9"}, {"", "d", "ab\xc3", "add"}},
        {"root ::= .",
         {"a", "\n", "\xe2\x82\xac", "\xf0\x9f\x98\x80"},
         {"", "\xed\xa0\x80", "\xc0\x80"}},
        {"root ::= [\xc3\xa4-\xe2\x82\xac]",
         {"\xc3\xa4", "\xc3\xbf", "\xe2\x82\xac"},
         {"\xc3\xa3", "\xe2\x82\xad", "z"}},
        {"root ::= \"a\"{2,4} \"b\"{2} \"c\"{1,}",
         {"aabbc", "aaaabbccc"},
         {"abbc", "aaaaabbc", "aabc", "aabb"}},
        {"root ::= (\"ab\" | \"abc\") \"d\"?", {"ab", "abc", "abd", "abcd"}, {"abb", "d"}},
        {"root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"",
         {"[]", "[[],[[]]]"},
         {"[", "[,]", "[]]"}},
        {"root ::= (\"a\"?)* \"b\"", {"b", "aaab"}, {"", "ba"}},
        {"root ::= \"\\x41\\u00e9\\U0001f600\\\"\\\\\\n\"",
         {"A\xc3\xa9\xf0\x9f\x98\x80\"\\\n"},
         {"A"}},
        {"# first\nroot ::= # what\n  \"a\" |\n  \"b\" # end\n\n\nx ::= \"y\"", {"a", "b"}, {"y"}},
        {"root ::= (\n \"a\"\n \"b\"\n)\r\n", {"ab"}, {"a"}},
        {"root ::= [-a] [\\]^] [a-]", {"-]-", "a^a"}, {"b]a", "-]b"}},
        {"root ::= x{0,3}\nx ::= \"ab\" | \"cd\" \"e\"?",
         {"", "abcde", "cdcdeab"},
         {"abababab", "a"}},
        {"root ::= \"\" | \"a\" | ", {"", "a"}, {"b"}},
        {"root ::= (\"ab\" | \"abc\" | x | \"ab\" | \"\" | \"b\" | [0-9] | y) \"!\"\nx ::= "
         "\"abd\"\ny ::= x x",
         {"ab!", "abc!", "abd!", "7!", "abdabd!"},
         {"a!", "abcd!", "ab", "abdab!"}},
        {"root ::= \"a\"{0}", {""}, {"a"}},
        {"root ::= \"a\" # first\n  | \"b\"\n\n | x\nx ::= \"c\"", {"a", "b", "c"}, {"ab"}},
        {"root ::= \"x\" %json {\"enum\": [1,\n\"}\"]} value # end\nvalue ::= \"y\"",
         {"x1y", "x\"}\"y"},
         {"x1", "xy", "x1true"}},
        {"root ::= (%json {\"type\": \"integer\"} | %json true)+ \".\"",
         {"1.", "1[null].", "{}-2."},
         {".", "1"}},
        {"root ::= \"<\" %gbnf \"root ::= x+\\nx ::= \\\"a\\\"\" x\nx ::= \">\"",
         {"<a>", "<aaa>"},
         {"<>", "<aa", "<a>a"}},
        {"root ::= %bytes{2} \"a\"", {"\xff\1a", "aaa"}, {"aa", "aab"}},
        {"root ::= \"a\" <[66051]>? \"b\" | <[66051]>",
         {"ab",
          "a\xff\1\2\3"
          "b",
          "\xff\1\2\3"},
         {"a\xff\1\2\4"
          "b",
          "a\1\2\3"
          "b",
          "a\xff"
          "b"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_texts(cases[i].grammar, cases[i].yes, true);
        check_texts(cases[i].grammar, cases[i].no, false);
    }
}

static void test_what_is_refused_and_why(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *says;
    } cases[] = {
        {"", "missing rule root"},
        {"root ::= %gbnf \"a ::= [b]\"", "no rule root"},
        {"root ::= %gbnf root", "followed by a quoted grammar"},
        {"%budget 3\nroot ::= \"a\"", "%budget N"},
        {"%budget 3 <[1]>\n%budget 3 <[1]>\nroot ::= \"a\"", "%budget N"},
        {"a ::= \"b\"", "missing rule root"},
        {"root ::= x", "unknown rule 'x'"},
        {"root ::= \"a", "missing"},
        {"root ::= [a", "missing"},
        {"root ::= [b-a]", "the end of a range"},
        {"root ::= [^\\x00-\\U0010ffff]", "empty class"},
        {"root ::= (\"a\"", ") is missing"},
        {"root ::= \"a\")", "unmatched )"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\xg0\"", "hexadecimal"},
        {"root ::= \"\\ud800\"", "not a valid character"},
        {"root ::= \"\xff\"", "invalid UTF-8"},
        {"root ::= \"\xed\xa0\x80\"", "invalid UTF-8"},
        {"root ::= \"\xc3", "invalid UTF-8"},
        {"root ::= \"a\"{", "number is missing"},
        {"root ::= \"a\"{2", "} is missing"},
        {"root ::= \"a\"{3,2}", "less than its minimum"},
        {"root ::= \"a\"{10001}", "more than 10000"},
        {"root = \"a\"", "::= is missing"},
        {"root ::= \"a\"\n = ", "name of a rule is missing"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: this rule is defined twice"},
        {"root ::= root \"a\" | \"b\"", "'root' (line 1) can begin with itself"},
        {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a | \"y\"", "can begin with itself"},
        {"root ::= \"a\" root", "'root' (line 1) can never end"},
        {"root ::= \"a\" | b\nb ::= \"b\" b", "'b' (line 1) can never end"},
        {"root ::= <[a]>", "<[ID]>"},
        {"root ::= <[]>", "<[ID]>"},
        {"root ::= <[1]", "<[ID]>"},
        {"root ::= <[16777216]>", "<[ID]>"},
        {"root ::= <[99999999999999999999]>", "<[ID]>"},
        {"root ::= %other", "json SCHEMA"},
        {"root ::= %json", "followed by JSON"},
        {"root ::= %json {\"a\" 1}", "followed by JSON"},
        {"root ::= a\na ::= \"x\" %json {\"not\": {\"items\": {}}}",
         "grammar, rule a: schema: 'not' is supported in this form only"},
        {"root ::= a\na ::= \"x\" %json {\"not\": {}}", "'root' (line 1) can never end"},
        {"root ::= %json {\n\n} \"", "line 3: a quotation mark"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        struct err err = {0};
        if (!grammar_parse(&g, str_of(cases[i].grammar), &err)) fail_msg("%s", cases[i].grammar);
        if (!strstr(err.text, cases[i].says) || strchr(err.text, '\n'))
            fail_msg("%s: %s", cases[i].grammar, err.text);
        assert_null(g);
    }
}

static void refuse_big(struct buf *b, const char *says)
{
    struct grammar *g;
    struct err err;
    assert_false(b->failed);
    assert_int_not_equal(grammar_parse(&g, buf_str(b), &err), 0);
    assert_non_null(strstr(err.text, says));
    buf_free(b);
}

static void test_sizes_have_limits(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_puts(&b, "root ::= \"a\"\n");
    for (u32 i = 0; i < GRAMMAR_MAX_RULES; i++) buf_printf(&b, "r%u ::= \"a\"\n", i);
    refuse_big(&b, "too many rules");
    buf_puts(&b, "root ::= ");
    for (u32 i = 0; i < 100; i++) buf_putc(&b, '(');
    refuse_big(&b, "too deeply");
    for (u32 i = 0; i < GRAMMAR_MAX_TEXT + 1; i++) buf_putc(&b, ' ');
    refuse_big(&b, "bytes");
    buf_puts(&b, "root ::= ");
    for (u32 i = 0; i < 1100; i++) buf_printf(&b, "[\\U%08x] ", 0x10000 + i * 64 * 3);
    for (u32 i = 0; i < 1100; i++) buf_printf(&b, "[\\x%02x\\x%02x] ", 1 + i % 100, 10 + i / 11);
    refuse_big(&b, "too many different classes");
    buf_puts(&b, "root ::= ");
    for (u32 i = 0; i < GRAMMAR_MAX_INSTRS / 9999 + 1; i++) buf_puts(&b, "\"c\"{9999} ");
    refuse_big(&b, "too large");
    buf_puts(&b, "root ::= \"x\" ");
    for (u32 i = 0; i < 300; i++) buf_printf(&b, "r%u \"y\"\nr%u ::= ", i, i);
    buf_puts(&b, "\"z\"\n");
    refuse_big(&b, "nested too deeply");
}

/* Deeper than the limit nothing opens that could not be closed again. */
static void test_nesting_ends_where_it_can_be_closed(void **state)
{
    (void)state;
    struct automaton *a =
        automaton_of("root ::= item\nitem ::= \"(\" item \")\" | \"x\" pair | \"y\"\n"
                     "pair ::= \"[\" item \"]\"");
    struct constraint *c = constraint_of(a);
    size_t depth = 0;
    while (constraint_feed(c, STR("("))) depth++;
    assert_in_range(depth, GRAMMAR_MAX_DEPTH - 2, GRAMMAR_MAX_DEPTH);
    if (constraint_feed(c, STR("x")))
        assert_int_equal(constraint_feed(c, STR("[y]")), 3);
    else
        assert_int_equal(constraint_feed(c, STR("y")), 1);
    for (size_t i = 0; i < depth; i++) assert_int_equal(constraint_feed(c, STR(")")), 1);
    assert_true(constraint_is_over(c));
    constraint_close(c);
    automaton_close(a);
}

/* ---- tokens ---- */

static bool has(const u32 *mask, u32 id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* Every token tried on its own, byte by byte. */
static void check_mask(struct constraint *c)
{
    const u32 *mask = constraint_mask(c);
    u32 copy[N_TOKENS / 32 + 1];
    assert_non_null(mask);
    memcpy(copy, mask, sizeof copy);
    for (u32 id = 0; id < N_TOKENS; id++) {
        struct str s = f.pieces[id];
        bool end = (i32)id >= f.ends[0], may;
        if (end) {
            may = constraint_may_end(c);
        } else {
            may = constraint_feed(c, s) == s.n;
            constraint_back(c, 1);
        }
        if (may != has(copy, id)) fail_msg("token %u: %d", id, may);
    }
}

static u64 next_random(u64 *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static const char json[] =
    "root ::= value\nvalue ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= string \":\" \" \"? value\n"
    "array ::= \"[\" (value (\",\" value)*)? \"]\"\nstring ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* "
    "\"\\\"\"\n"
    "number ::= \"-\"? [0-9]{1,5} (\".\" [0-9]{1,3})?\n";

static void test_masks_are_what_each_token_would_do(void **state)
{
    (void)state;
    struct automaton *a = automaton_of(json);
    u64 random = 1;
    for (int run = 0; run < 30; run++) {
        struct constraint *c = constraint_of(a);
        for (int i = 0; i < 25 && !constraint_is_over(c); i++) {
            check_mask(c);
            const u32 *mask = constraint_mask(c);
            u32 id = (u32)(next_random(&random) % N_TOKENS);
            while (!has(mask, id)) id = (id + 1) % N_TOKENS;
            if ((i32)id >= f.ends[0]) break;
            assert_true(constraint_advance(c, (i32)id));
        }
        constraint_close(c);
    }
    struct automaton_stats stats;
    automaton_stats(a, &stats);
    assert_true(stats.n_hits > stats.n_masks / 3 && stats.n_flushes == 0);
    automaton_close(a);
}

static void test_going_back_is_as_if_nothing_happened(void **state)
{
    (void)state;
    struct automaton *a = automaton_of(json);
    struct constraint *c = constraint_of(a);
    u32 before[N_TOKENS / 32 + 1];
    assert_true(constraint_advance(c, 256)); /* {" */
    memcpy(before, constraint_mask(c), sizeof before);
    assert_false(constraint_advance(c, f.ends[0]));
    assert_false(constraint_advance(c, '\n'));
    assert_false(constraint_advance(c, -1));
    assert_false(constraint_advance(c, N_TOKENS));
    assert_memory_equal(before, constraint_mask(c), sizeof before);
    for (i32 i = 0; i < CONSTRAINT_BACK; i++) assert_true(constraint_advance(c, 'a' + i % 26));
    assert_true(constraint_advance(c, '"'));
    assert_memory_not_equal(before, constraint_mask(c), sizeof before);
    constraint_back(c, CONSTRAINT_BACK);
    assert_memory_equal(before, constraint_mask(c), sizeof before);
    constraint_close(c);
    automaton_close(a);
}

static u32 n_allowed(struct constraint *c)
{
    const u32 *mask = constraint_mask(c);
    u32 n = 0;
    for (u32 i = 0; i < N_TOKENS; i++) n += mask[i / 32] >> i % 32 & 1;
    return n;
}

/* Token 'x' ends what token '<' began, or the beginning of the text. */
static void test_a_budget_leaves_one_token(void **state)
{
    (void)state;
    struct automaton *a = automaton_of("%budget 2 <[120]>\nroot ::= [a-z]*");
    struct constraint *c = constraint_of(a);
    assert_true(n_allowed(c) > 26 && constraint_advance(c, 'a') && n_allowed(c) > 26);
    assert_true(constraint_advance(c, 'b') && n_allowed(c) == 1);
    constraint_back(c, 1);
    assert_true(n_allowed(c) > 26 && constraint_advance(c, 'c') && n_allowed(c) == 1);
    assert_true(constraint_advance(c, 'x') && n_allowed(c) > 26);
    constraint_back(c, 1);
    assert_int_equal(n_allowed(c), 1);
    constraint_close(c);
    automaton_close(a);
    a = automaton_of("%budget 1 <[120]> <[60]>\nroot ::= ([a-z] | \"<\" | \"\xc3\xa9\")*");
    c = constraint_of(a);
    for (int i = 0; i < 5; i++) assert_true(constraint_advance(c, 'x') && n_allowed(c) > 26);
    assert_true(constraint_advance(c, '<') && n_allowed(c) > 26);
    assert_true(constraint_advance(c, 0xc3)); /* the character must end first */
    assert_true(constraint_advance(c, 0xa9) && n_allowed(c) == 1);
    assert_true(constraint_advance(c, 'x') && constraint_advance(c, 'a') && n_allowed(c) > 26);
    constraint_close(c);
    automaton_close(a);
}

static void test_the_end_is_allowed_exactly_where_the_text_may_end(void **state)
{
    (void)state;
    struct automaton *a = automaton_of("root ::= \"ab\" \"c\"?");
    struct constraint *c = constraint_of(a);
    const char *text = "abc";
    for (u32 i = 0; i <= 3; i++) {
        assert_int_equal(has(constraint_mask(c), (u32)f.ends[0]), i >= 2);
        assert_int_equal(has(constraint_mask(c), (u32)f.ends[1]), i >= 2);
        assert_int_equal(constraint_is_over(c), i == 3);
        if (i < 3) assert_true(constraint_advance(c, text[i]));
    }
    assert_true(constraint_advance(c, f.ends[1]));
    constraint_back(c, 1);
    constraint_close(c);
    automaton_close(a);
}

/* More states than there is room for: old ones go, what is in use stays. */
static void test_states_are_forgotten_when_there_are_too_many(void **state)
{
    (void)state;
    struct automaton *a = automaton_of("root ::= [a-z]{0,9999} \"!\"");
    struct constraint *c = constraint_of(a), *other = constraint_of(a);
    assert_true(constraint_advance(other, 'q'));
    for (u32 i = 0; i < 9999; i++) {
        assert_true(constraint_advance(c, 'a' + (i32)(i % 26)));
        if (i % 1000 == 0) check_mask(c);
    }
    assert_false(constraint_advance(c, 'a'));
    assert_true(constraint_advance(c, '!') && constraint_is_over(c));
    check_mask(other);
    struct automaton_stats stats;
    automaton_stats(a, &stats);
    assert_true(stats.n_flushes > 0);
    constraint_close(c);
    constraint_close(other);
    automaton_close(a);
}

static void test_too_much_ambiguity_is_an_error(void **state)
{
    (void)state;
    struct automaton *a = automaton_of("root ::= s\ns ::= \"a\" s s | \"a\" t s s | \"a\"\nt ::= "
                                       "\"a\" s | \"a\" t t \"a\" | \"a\"");
    struct constraint *c = constraint_of(a), *other = constraint_of(a);
    struct err err;
    u32 n = 0;
    while (n < 300 && constraint_mask(c) && constraint_advance(c, 'a')) n++;
    assert_true(n < 300);
    assert_null(constraint_mask(c));
    assert_int_equal(constraint_error(c, &err), FLETCH_E_LIMIT);
    assert_non_null(constraint_mask(other));
    constraint_close(c);
    constraint_close(other);
    automaton_close(a);
}

/* Seconds, the least of three times, for n rules of which each ends with the one before it. Their
 * order is that of their names in the first rule: one after the other, or from the middle to both
 * sides in turns, which passes over all rules learn little from. */
static double time_chain(u32 n, bool zigzag)
{
    struct buf text = {.max = GRAMMAR_MAX_TEXT};
    struct err err = {0};
    double least = 1e9;
    buf_printf(&text, "z ::=");
    for (u32 i = 0; i < n; i++) {
        u32 middle = n / 2, turn = i <= middle ? 2 * (middle - i) : 2 * (i - middle) - 1;
        buf_printf(&text, " r%u", zigzag ? turn : i);
    }
    for (u32 i = 0; i < n; i++)
        buf_printf(&text, i ? "\nr%u ::= [a]{16} r%u" : "\nr%u ::= [b]", i, i - 1);
    buf_printf(&text, "\nroot ::= r%u", n - 1);
    for (int i = 0; i < 3; i++) {
        struct grammar *g;
        double began = base_now();
        assert_int_equal(grammar_parse(&g, buf_str(&text), &err), 0);
        least = MIN(least, base_now() - began);
        grammar_close(g);
    }
    buf_free(&text);
    return least;
}

/* It may come with a request, and everybody waits while it is compiled. */
static void test_the_order_of_rules_costs_no_time(void **state)
{
    (void)state;
    double straight = time_chain(2501, false), zigzag = time_chain(2501, true);
    assert_true(zigzag < 5 * straight + 0.01);
}

/* What is forced, as the words that spell it; it ends where there is a choice, or the end. */
static void test_forced_bytes_are_the_longest_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *before, *tokens[6];
    } cases[] = {
        {"root ::= \"{\\\"abc\\\": \" [0-9] \"x\\\"}\"", "", {"{\"", "abc", "\": "}},
        {"root ::= \"{\\\"abc\\\": \" [0-9] \"x\\\"}\"", "{\"abc\": 1", {"x\"}"}},
        {"root ::= \"aaaaaa\" | \"aaab\"", "", {"a", "a", "a"}},
        {"root ::= \"null\" \"z\"?", "", {"null"}},
        {"root ::= \"true\" | \"false\"", "t", {"r", "u", "e"}},
        {"root ::= [ab]", "", {NULL}},
        {"root ::= \"ab\"", "ab", {NULL}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *a = automaton_of(cases[i].grammar);
        struct constraint *c = constraint_of(a);
        i32 got[16];
        u32 n = 0;
        assert_int_equal(constraint_feed(c, str_of(cases[i].before)), strlen(cases[i].before));
        u32 n_got = constraint_forced(c, got, ARRAY_LEN(got));
        for (; cases[i].tokens[n]; n++) {
            assert_true(n < n_got);
            if (!str_eq(f.pieces[got[n]], str_of(cases[i].tokens[n])))
                fail_msg("%s: token %u is %d", cases[i].grammar, n, (int)got[n]);
            assert_true(constraint_advance(c, got[n]));
        }
        assert_int_equal(n_got, n);
        constraint_close(c);
        automaton_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_forced_bytes_are_the_longest_tokens),
        TEST(test_texts_of_grammars),
        TEST(test_what_is_refused_and_why),
        TEST(test_sizes_have_limits),
        TEST(test_nesting_ends_where_it_can_be_closed),
        TEST(test_masks_are_what_each_token_would_do),
        TEST(test_going_back_is_as_if_nothing_happened),
        TEST(test_a_budget_leaves_one_token),
        TEST(test_the_end_is_allowed_exactly_where_the_text_may_end),
        TEST(test_states_are_forgotten_when_there_are_too_many),
        TEST(test_too_much_ambiguity_is_an_error),
        TEST(test_the_order_of_rules_costs_no_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
