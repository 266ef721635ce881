/* Answers that must call tools, in every style, over several vocabularies, with markers that are
 * control tokens and with markers that are text: whatever way through the grammar is taken, the
 * parser reads calls that obey their schemas, and the tokens that a tokenizer makes of a call as
 * templates write it are such a way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/automaton.h"
#include "text/tok.h"
#include "chat/tools.h"

enum { MAX_ANSWER = 1 << 16, N_MARKERS = 96 };

/* Those that may be control tokens; the rest of the array are texts that nothing names. */
static const char *markers[N_MARKERS];

static bool is_token(const char *s)
{
    size_t n = strlen(s);
    bool ends = (*s == '<' && s[n - 1] == '>') || (*s == '[' && s[n - 1] == ']');
    return ends && !strchr(s + 1, *s) && strcmp(s, "<|call|>") != 0 && strcmp(s, "<|return|>") != 0;
}

static void collect_markers(void)
{
    u32 n = 0;
    for (size_t f = 0; f < N_CHAT_FORMATS; f++) {
        const char *own[CHAT_MAX_MARKERS];
        size_t n_own = chat_markers(&chat_formats[f], own);
        for (size_t i = 0; i < n_own; i++) {
            u32 k = 0;
            while (k < n && strcmp(markers[k], own[i]) != 0) k++;
            if (k < n || !is_token(own[i])) continue;
            assert_true(n < N_MARKERS);
            markers[n++] = own[i];
        }
    }
    while (n < N_MARKERS) markers[n++] = "(none)";
}

/* ---- vocabularies ---- */

struct vocabulary {
    struct arena arena;
    struct tok *tok; /* NULL: bytes and a few texts */
    struct str *pieces;
    u8 marks[N_MARKERS][GRAMMAR_TOKEN_BYTES];
    u32 n;        /* texts; after them the markers, and the end */
    bool control; /* markers are control tokens */
    struct trie *trie;
    i32 end;
};

/* Tokens that span what belongs to a call's frame and what belongs to its arguments. */
static const char *const spanning[] = {
    "{\"",   " {\"",  "\": \"", "\", \"", "\"}",   "\"}}", "\"}}\n", "}\n</", "><", "\n\n",
    "}}</t", "\n{\"", "</",     "</arg",  "call>", ">\n",  ", ",     " [{\"", "}]", "; {",
};

static void load_tok(struct vocabulary *v, const char *name)
{
    struct tok_spec spec;
    struct err err = {0};
    char path[256];
    snprintf(path, sizeof path, "test/golden/tok/%s/tokenizer.json", name);
    json_t *tokenizer = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, "test/golden/tok/%s/tokenizer_config.json", name);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(tokenizer);
    if (tok_spec_from_json(&spec, &v->arena, tokenizer, config, (struct str){0}, &err))
        fail_msg("%s: %s", name, err.text);
    if (tok_open(&v->tok, &spec, &err)) fail_msg("%s: %s", name, err.text);
    json_decref(tokenizer);
    json_decref(config);
}

/* name NULL: no tokenizer. */
static void vocabulary_open(struct vocabulary *v, const char *name, bool control)
{
    static char bytes[256];
    *v = (struct vocabulary){.control = control};
    if (name) load_tok(v, name);
    v->n = name ? tok_size(v->tok) : 256 + (u32)ARRAY_LEN(spanning);
    v->pieces = calloc(v->n + N_MARKERS + 1, sizeof *v->pieces);
    assert_non_null(v->pieces);
    for (u32 i = 0; i < v->n; i++) {
        bytes[i % 256] = (char)i;
        if (!name)
            v->pieces[i] = i < 256 ? (struct str){&bytes[i], 1} : str_of(spanning[i - 256]);
        else if (tok_type(v->tok, (i32)i) != TOK_CONTROL && !tok_is_eog(v->tok, (i32)i))
            v->pieces[i] = tok_piece(v->tok, (i32)i, false);
    }
    for (u32 i = 0; i < v->n; i++) {
        struct str s = v->pieces[i];
        if (s.n && memchr(s.p, GRAMMAR_TOKEN_MARK, s.n)) v->pieces[i] = (struct str){0};
    }
    for (u32 i = 0; i < N_MARKERS; i++) {
        grammar_token_bytes(v->marks[i], v->n + i);
        if (control)
            v->pieces[v->n + i] = (struct str){(const char *)v->marks[i], GRAMMAR_TOKEN_BYTES};
    }
    v->end = (i32)(v->n + N_MARKERS);
    assert_int_equal(trie_open(&v->trie, v->pieces, v->n + N_MARKERS + 1, &v->end, 1, NULL), 0);
}

static void vocabulary_close(struct vocabulary *v)
{
    trie_close(v->trie);
    tok_close(v->tok);
    free(v->pieces);
    arena_free(&v->arena);
}

static int32_t find_control(void *ctx, const char *text)
{
    const struct vocabulary *v = ctx;
    for (u32 i = 0; i < N_MARKERS && v->control; i++)
        if (strcmp(markers[i], text) == 0) return (int32_t)(v->n + i);
    return -1;
}

static struct str text_of(const struct vocabulary *v, i32 id)
{
    return (u32)id >= v->n ? str_of(markers[(u32)id - v->n]) : v->pieces[id];
}

/* ---- tools ---- */

static const char offered_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {"
    "\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 9},"
    "\"unit\": {\"type\": \"string\", \"enum\": [\"C\", \"a \\\"b\\\" \\\\n\"]}, \"days\": {"
    "\"type\": \"integer\", \"minimum\": 1, \"maximum\": 40}, \"where\": {\"$ref\": "
    "\"#/$defs/place\"}, \"tag\": {\"type\": [\"string\", \"null\"], \"maxLength\": 4}}, "
    "\"required\": [\"city\", \"where\"], \"additionalProperties\": false, \"$defs\": {\"place\":"
    " {\"enum\": [\"here\", [1, {\"x\": null}], 2.5]}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

static json_t *offered(void)
{
    json_t *j = json_loads(offered_text, 0, NULL);
    assert_non_null(j);
    return j;
}

/* ---- what an answer says ---- */

struct calls {
    u32 n;
    bool said; /* something besides calls */
    char all[MAX_ANSWER];
    size_t n_all;
};

static void check_weather(const json_t *args)
{
    const json_t *city = json_object_get(args, "city"), *unit = json_object_get(args, "unit");
    const json_t *days = json_object_get(args, "days"), *where = json_object_get(args, "where");
    assert_true(json_is_string(city) && where);
    assert_true(!unit || strcmp(json_string_value(unit), "C") == 0 ||
                strcmp(json_string_value(unit), "a \"b\" \\n") == 0);
    assert_true(!days || (json_is_integer(days) && json_integer_value(days) >= 1 &&
                          json_integer_value(days) <= 40));
    assert_true(json_is_array(where) || json_is_real(where) ||
                strcmp(json_string_value(where), "here") == 0);
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    struct calls *c = ctx;
    if (p->part != TOOLS_CALL) {
        c->said |= p->part != TOOLS_MARKUP;
        return;
    }
    json_t *args = json_loadb(p->text, p->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(args)) fail_msg("arguments: %.*s", (int)p->n, p->text);
    if (strcmp(p->name, "now") == 0)
        assert_int_equal(json_object_size(args), 0);
    else
        check_weather(args);
    json_decref(args);
    c->n++;
    int n = snprintf(c->all + c->n_all, sizeof c->all - c->n_all, "%s %.*s\n", p->name, (int)p->n,
                     p->text);
    c->n_all += (size_t)n;
}

/* step 0: the answer comes at once. */
static void parse(struct calls *c, struct tools_format format, const json_t *tools,
                  const struct buf *answer, size_t step)
{
    struct tools *t;
    *c = (struct calls){0};
    struct tools_params p = {.format = format, .tools = tools, .on_piece = on_piece, .ctx = c};
    assert_int_equal(tools_open(&t, &p), 0);
    for (size_t i = 0; i < answer->n; i += step ? step : answer->n) {
        size_t n = step && step < answer->n - i ? step : answer->n - i;
        assert_int_equal(tools_feed(t, answer->p + i, n), 0);
    }
    tools_end(t);
    tools_close(t);
}

/* ---- ways through a grammar ---- */

static struct automaton *open_grammar(struct vocabulary *v, struct tools_format format,
                                      const json_t *tools, bool many)
{
    char why[200];
    struct err err = {0};
    struct grammar *g;
    struct automaton *a;
    struct tools_ask ask = {.format = format,
                            .what = TOOLS_MUST,
                            .tools = tools,
                            .many = many,
                            .control = find_control,
                            .ctx = v};
    char *text = tools_grammar(&ask, why, sizeof why);
    if (!text) fail_msg("%s", why);
    if (grammar_parse(&g, str_of(text), &err)) fail_msg("%s\n%s", err.text, text);
    assert_int_equal(automaton_open(&a, g, v->trie, &err), 0);
    free(text);
    return a;
}

static i32 choose(const u32 *mask, u32 n, u64 *random)
{
    u32 count = 0;
    i32 chosen = -1;
    for (u32 i = 0; i < n; i++) {
        if (!(mask[i / 32] >> i % 32 & 1)) continue;
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        if ((*random >> 33) % ++count == 0) chosen = (i32)i;
    }
    return chosen;
}

static void walk(struct vocabulary *v, struct automaton *a, u64 seed, struct buf *answer)
{
    struct constraint *c;
    u64 random = seed * 0x9e3779b97f4a7c15u + 1;
    assert_int_equal(constraint_open(&c, a, NULL), 0);
    for (;;) {
        const u32 *mask = constraint_mask(c);
        assert_non_null(mask);
        i32 id = choose(mask, v->n + N_MARKERS + 1, &random);
        assert_true(id >= 0 && answer->n < MAX_ANSWER);
        if (id == v->end) break;
        struct str s = text_of(v, id);
        buf_put(answer, s.p, s.n);
        assert_true(constraint_advance(c, id));
    }
    constraint_close(c);
}

/* Those of the calls that templates write, below. */
static const enum chat_format_id formats[] = {CHAT_HERMES,  CHAT_GLM,          CHAT_LLAMA,
                                              CHAT_MISTRAL, CHAT_MISTRAL_ARGS, CHAT_MISTRAL_ID};

/* How many answers made several calls. */
static u32 check_ways(struct vocabulary *v, struct tools_format format, bool many)
{
    static struct calls whole, streamed;
    json_t *tools = offered();
    struct automaton *a = open_grammar(v, format, tools, many);
    u32 n_several = 0;
    for (u64 seed = 0; seed < 6; seed++) {
        struct buf answer = {0};
        walk(v, a, seed, &answer);
        parse(&whole, format, tools, &answer, 0);
        parse(&streamed, format, tools, &answer, 1);
        if (!whole.n || whole.said || (!many && whole.n != 1) || whole.n > 8)
            fail_msg("%s: %u calls of: %s", format.row->name, whole.n, answer.p);
        assert_string_equal(whole.all, streamed.all);
        assert_true(streamed.n == whole.n && !streamed.said);
        n_several += whole.n > 1;
        buf_free(&answer);
    }
    automaton_close(a);
    json_decref(tools);
    return n_several;
}

static const char *const names[] = {NULL, "qwen2", "llama-bpe", "tekken", "llama2", "gpt-4o"};

static void every_way_through_the_grammar_is_a_call(void **state)
{
    u32 n_several = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int control = 0; control < 2; control++) {
            struct vocabulary v;
            vocabulary_open(&v, names[i], control);
            for (size_t k = 0; k < N_CHAT_FORMATS; k++) {
                struct tools_format format = {.row = &chat_formats[k], .knows_tools = true};
                /* every format with bytes and one tokenizer, some with the others */
                if (i > 1 && (i + k) % 4) continue;
                n_several += check_ways(&v, format, (i + k + (size_t)control) % 2);
            }
            vocabulary_close(&v);
        }
    assert_true(n_several > 20);
}

/* ---- calls as templates write them ---- */

static const struct {
    size_t format;
    const char *text;
} written[] = {
    {0, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Riga\", \"where\": "
        "\"here\"}}\n</tool_call>"},
    {0, "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
        "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
    {1, "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>R<b></arg_va</arg_value>\n"
        "<arg_key>where</arg_key>\n<arg_value>2.5</arg_value>\n</tool_call>"},
    {1, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Riga</arg_value><arg_key>where"
        "</arg_key><arg_value>\"here\"</arg_value></tool_call>"},
    {2, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Riga\", \"where\": 2.5}}"},
    {3, "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": "
        "{}}]"},
    {4, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Riga\", \"where\": 2.5}"},
};

/* The marker at the front of a text, or -1. */
static int marker_at(const char *text)
{
    for (int i = 0; i < N_MARKERS; i++)
        if (strncmp(text, markers[i], strlen(markers[i])) == 0) return i;
    return -1;
}

static bool advance_text(struct vocabulary *v, struct constraint *c, const char *text, size_t n)
{
    struct tok_ids ids = {0};
    bool allowed = true;
    if (!v->tok) return constraint_feed(c, (struct str){text, n}) == n;
    assert_int_equal(tok_encode(v->tok, (struct str){text, n}, NULL, TOK_SPECIAL, &ids, NULL), 0);
    for (size_t i = 0; i < ids.n; i++) allowed = allowed && constraint_advance(c, ids.p[i]);
    tok_ids_free(&ids);
    return allowed;
}

static bool allows(struct vocabulary *v, struct automaton *a, const char *text)
{
    struct constraint *c;
    bool allowed = true;
    assert_int_equal(constraint_open(&c, a, NULL), 0);
    while (*text && allowed) {
        int marker = v->control ? marker_at(text) : -1;
        size_t n = marker < 0 ? 1 : strlen(markers[marker]);
        while (marker < 0 && text[n] && (!v->control || marker_at(text + n) < 0)) n++;
        allowed =
            marker < 0 ? advance_text(v, c, text, n) : constraint_advance(c, (i32)v->n + marker);
        text += n;
    }
    allowed = allowed && constraint_may_end(c);
    constraint_close(c);
    return allowed;
}

/* Tokens span the frame of a call and its arguments, and blanks belong to the tokens after them. */
static void a_tokenizers_own_tokens_are_allowed(void **state)
{
    (void)state;
    json_t *tools = offered();
    json_object_del(
        json_object_get(
            json_object_get(json_object_get(json_object_get(json_array_get(tools, 0), "function"),
                                            "parameters"),
                            "properties"),
            "city"),
        "maxLength");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int control = 0; control < 2; control++) {
            struct vocabulary v;
            vocabulary_open(&v, names[i], control);
            for (size_t k = 0; k < ARRAY_LEN(written); k++) {
                /* its tokenizer puts a blank after control tokens, which would be part of a key */
                bool spm = names[i] && strcmp(names[i], "llama2") == 0;
                if (spm && control && written[k].format == 1) continue;
                struct automaton *a = open_grammar(
                    &v, (struct tools_format){.row = &chat_formats[formats[written[k].format]]},
                    tools, true);
                if (!allows(&v, a, written[k].text))
                    fail_msg("%s, %d: %s", names[i] ? names[i] : "bytes", control, written[k].text);
                automaton_close(a);
            }
            vocabulary_close(&v);
        }
    json_decref(tools);
}

static const char read_tools[] =
    "[{\"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"},"
    " \"exact\": {\"type\": \"boolean\"}, \"tags\": {\"type\": \"array\"},"
    " \"where\": {\"type\": \"object\"}}}}}, {\"function\": {\"name\": \"now\", \"parameters\":"
    " {\"type\": \"object\", \"properties\": {}}}},"
    " {\"function\": {\"name\": \"write\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"path\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}}}}}]";

/* Of the answers in test/chat that end with calls, those that one grammar allows: thinking, content
 * and calls. */
static u32 count_allowed(struct vocabulary *v, const struct chat_format *row)
{
    static char text[65536];
    char path[96], why[200];
    struct err err = {0};
    struct grammar *g;
    struct automaton *a;
    json_t *tools = json_loads(read_tools, 0, NULL);
    struct tools_ask ask = {.format = {.row = row, .thinks = true},
                            .what = TOOLS_MAY,
                            .tools = tools,
                            .many = true,
                            .control = find_control,
                            .ctx = v};
    char *made = tools_grammar(&ask, why, sizeof why);
    if (!made) fail_msg("%s: %s", row->name, why);
    if (grammar_parse(&g, str_of(made), &err)) fail_msg("%s\n%s", err.text, made);
    assert_int_equal(automaton_open(&a, g, v->trie, &err), 0);
    free(made);
    snprintf(path, sizeof path, "test/chat/%s.txt", row->name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    u32 n = 0;
    for (char *at = text, *end; *at; at = end + 6) {
        char *wanted = strstr(at, "\n=> ");
        end = strstr(at, "\n====\n");
        assert_true(wanted && end);
        *wanted = *end = 0;
        const char *last = strrchr(wanted + 4, '}');
        if (!strstr(wanted + 4, "call(") || !last || last[2]) continue;
        n += allows(v, a, at);
    }
    automaton_close(a);
    json_decref(tools);
    return n;
}

static void what_templates_write_is_allowed_after_thinking(void **state)
{
    (void)state;
    for (int control = 0; control < 2; control++) {
        struct vocabulary v;
        vocabulary_open(&v, control ? "qwen2" : NULL, control);
        for (size_t i = 0; i < N_CHAT_FORMATS; i++) {
            u32 n = count_allowed(&v, &chat_formats[i]);
            if (n < 8) fail_msg("%s: %u", chat_formats[i].name, n);
        }
        vocabulary_close(&v);
    }
}

static void what_cannot_be_kept_is_refused_by_name(void **state)
{
    static const struct {
        const char *parameters, *why;
    } cases[] = {
        {"{\"properties\": {\"u\": {\"type\": \"string\", \"pattern\": \"a\"}}}",
         "tool f: #/properties/u: pattern"},
        {"{\"anyOf\": [{}]}", "tool f: #: anyOf"},
        {"{\"type\": \"array\"}", "tool f: #: the type"},
        {"{\"properties\": {\"u\": {\"type\": \"string\", \"enum\": [\"</arg_value>\", 1]}}}",
         "tool f: #/properties/u: no value"},
        {"{\"properties\": {\"u\": {\"type\": \"string\", \"minLength\": 2, \"const\": \"a\"}}}",
         "tool f: #/properties/u: no value"},
        {"{\"properties\": {\"</arg_key>\": {}}}", "tool f: #/properties/</arg_key>"},
        {"{\"required\": [\"u\"], \"additionalProperties\": false}", "tool f: #/required"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char why[200];
        json_t *tools = json_pack("[{s:s, s:{s:s, s:o}}]", "type", "function", "function", "name",
                                  "f", "parameters", json_loads(cases[i].parameters, 0, NULL));
        struct tools_ask ask = {
            .format.row = &chat_formats[CHAT_GLM], .what = TOOLS_MUST, .tools = tools};
        char *text = tools_grammar(&ask, why, sizeof why);
        if (text || strncmp(why, cases[i].why, strlen(cases[i].why)) != 0)
            fail_msg("%s: %s", cases[i].parameters, text ? "accepted" : why);
        json_decref(tools);
    }
}

int main(void)
{
    collect_markers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_through_the_grammar_is_a_call),
        cmocka_unit_test(a_tokenizers_own_tokens_are_allowed),
        cmocka_unit_test(what_templates_write_is_allowed_after_thinking),
        cmocka_unit_test(what_cannot_be_kept_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
