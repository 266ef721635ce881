/* Reading GBNF: name ::= alternatives of sequences of "text", [classes], ., names, groups, <[ID]>
 * (a control token), %json SCHEMA, %gbnf "a grammar" and %bytes, each with *, +, ?, {m}, {m,} or
 * {m,n}; # begins a comment. A rule ends with its line unless a parenthesis is open or the line
 * ends after ::= or |. */
#include "serve/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "serve/grammar_tree.h"
#include "serve/schema.h"

enum { LAST_CHAR = 0x10ffff, SURROGATES = 0xd800, BEHIND_SURROGATES = 0xe000 };

enum { MAX_INNER = 4 };

struct parser {
    struct arena arena;
    struct str text;
    size_t at;
    u32 line, nesting;
    struct tree_rule *rules; /* [GRAMMAR_MAX_RULES] */
    u32 n_rules;
    struct strmap names;
    struct tree_range *ranges; /* scratch of the class that is being read */
    u32 n_ranges, cap_ranges;
    u32 rule;      /* that is being read */
    size_t n_made; /* bytes of the rules that schemas became */
    u32 tokens[GRAMMAR_MAX_TOKENS], n_tokens;
    u32 n_inner; /* grammars around the one that is being read */
    u32 budget;
    i32 budget_begin, budget_end;
    struct err *err;
    bool failed, pruned;
};

static void *fail(struct parser *p, const char *what)
{
    if (p->failed) return NULL;
    p->failed = true;
    err_set(p->err, FLETCH_E_ARG, "grammar, line %u: %s", p->line, what);
    return NULL;
}

static void *alloc(struct parser *p, size_t n, size_t size)
{
    void *got = arena_alloc(&p->arena, n, size);
    if (!got && !p->failed) {
        p->failed = true;
        err_nomem(p->err, "the grammar");
    }
    return got;
}

/* ---- characters ---- */

/* 0 at the end; the text holds no NUL. */
static char peek(const struct parser *p)
{
    return p->at < p->text.n ? p->text.p[p->at] : 0;
}

static bool take(struct parser *p, char c)
{
    if (peek(p) != c) return false;
    p->at++;
    return true;
}

static void skip_space(struct parser *p, bool lines)
{
    for (;; p->at++) {
        char c = peek(p);
        if (c == '#') {
            while (peek(p) && peek(p) != '\n' && peek(p) != '\r') p->at++;
            c = peek(p);
        }
        if (c == '\n' && lines)
            p->line++;
        else if (c != ' ' && c != '\t' && !(c == '\r' && lines))
            return;
    }
}

static u32 take_utf8(struct parser *p)
{
    const u8 *s = (const u8 *)p->text.p + p->at;
    size_t left = p->text.n - p->at, n = 1;
    u32 c = s[0];
    if (c >= 0xc2 && c <= 0xf4) {
        n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        c &= 0xffu >> (n + 1);
        for (size_t i = 1; i < n; i++) {
            if (i >= left || (s[i] & 0xc0) != 0x80) return fail(p, "invalid UTF-8"), 0;
            c = c << 6 | (s[i] & 0x3f);
        }
    } else if (c >= 0x80) {
        return fail(p, "invalid UTF-8"), 0;
    }
    static const u32 least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[n] || c > LAST_CHAR || (c >= SURROGATES && c < BEHIND_SURROGATES))
        return fail(p, "invalid UTF-8"), 0;
    p->at += n;
    return c;
}

static u32 take_hex(struct parser *p, u32 digits)
{
    u32 v = 0;
    for (u32 i = 0; i < digits; i++, p->at++) {
        char c = peek(p);
        u32 d = c >= '0' && c <= '9'   ? (u32)(c - '0')
                : c >= 'a' && c <= 'f' ? (u32)(c - 'a' + 10)
                : c >= 'A' && c <= 'F' ? (u32)(c - 'A' + 10)
                                       : 16;
        if (d == 16) return fail(p, "a hexadecimal digit is missing after the backslash"), 0;
        v = v << 4 | d;
    }
    if (v > LAST_CHAR || (v >= SURROGATES && v < BEHIND_SURROGATES))
        fail(p, "this escape is not a valid character");
    return v;
}

/* One character of a text or class, escapes resolved. */
static u32 take_char(struct parser *p)
{
    if (!peek(p) || peek(p) == '\n') return fail(p, "a quotation mark or ] is missing"), 0;
    if (!take(p, '\\')) return take_utf8(p);
    char c = peek(p);
    if (c) p->at++;
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'x': return take_hex(p, 2);
    case 'u': return take_hex(p, 4);
    case 'U': return take_hex(p, 8);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-': return (u32)c;
    default:
        return fail(p, "unknown escape; the escapes are \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH"), 0;
    }
}

static size_t put_utf8(char *to, u32 c)
{
    if (c < 0x80) return to[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(0xff00u >> n | c);
    return n;
}

/* ---- nodes ---- */

static struct tree *node(struct parser *p, enum tree_kind kind)
{
    struct tree *t = alloc(p, 1, sizeof *t);
    if (t) t->kind = kind;
    return t;
}

static void add_part(struct tree *t, struct tree *part)
{
    if (t->last)
        t->last->next = part;
    else
        t->first = part;
    t->last = part;
}

static struct tree *read_text(struct parser *p)
{
    struct tree *t = node(p, TREE_TEXT);
    size_t end = ++p->at;
    while (end < p->text.n && p->text.p[end] != '"') end += p->text.p[end] == '\\' ? 2 : 1;
    char *to = alloc(p, end - p->at + 4, 1); /* no escape is shorter than what it stands for */
    if (!t || !to) return NULL;
    t->text.p = to;
    while (!p->failed && !take(p, '"')) t->text.n += put_utf8(to + t->text.n, take_char(p));
    return p->failed ? NULL : t;
}

static void add_range(struct parser *p, u32 lo, u32 hi)
{
    if (p->n_ranges == p->cap_ranges) {
        u32 cap = p->cap_ranges * 2 + 16;
        struct tree_range *more = alloc(p, cap, sizeof *more);
        if (!more) return;
        if (p->n_ranges) memcpy(more, p->ranges, p->n_ranges * sizeof *more);
        p->ranges = more;
        p->cap_ranges = cap;
    }
    p->ranges[p->n_ranges++] = (struct tree_range){lo, hi};
}

static int by_lo(const void *a, const void *b)
{
    const struct tree_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void merge_ranges(struct parser *p)
{
    u32 n = 0;
    if (p->n_ranges) qsort(p->ranges, p->n_ranges, sizeof *p->ranges, by_lo);
    for (u32 i = 0; i < p->n_ranges; i++) {
        struct tree_range r = p->ranges[i];
        if (n && r.lo <= p->ranges[n - 1].hi + 1)
            p->ranges[n - 1].hi = MAX(p->ranges[n - 1].hi, r.hi);
        else
            p->ranges[n++] = r;
    }
    p->n_ranges = n;
}

static void negate_ranges(struct parser *p)
{
    u32 n = p->n_ranges, from = 0;
    struct tree_range *old = p->ranges;
    p->ranges = NULL;
    p->n_ranges = p->cap_ranges = 0;
    for (u32 i = 0; i < n; i++) {
        if (old[i].lo > from) add_range(p, from, old[i].lo - 1);
        from = old[i].hi + 1;
    }
    if (from <= LAST_CHAR) add_range(p, from, LAST_CHAR);
}

/* The ranges that were collected, less what UTF-8 has no bytes for. */
static struct tree *class_node(struct parser *p)
{
    struct tree *t = node(p, TREE_CLASS);
    struct tree_range *to = alloc(p, p->n_ranges + 1, sizeof *to);
    if (!t || !to) return NULL;
    for (u32 i = 0; i < p->n_ranges; i++) {
        struct tree_range r = p->ranges[i];
        if (r.lo < SURROGATES && r.hi >= SURROGATES) {
            to[t->n_ranges++] = (struct tree_range){r.lo, SURROGATES - 1};
            r.lo = SURROGATES;
        }
        if (r.lo >= SURROGATES && r.lo < BEHIND_SURROGATES) r.lo = BEHIND_SURROGATES;
        if (r.lo <= r.hi) to[t->n_ranges++] = r;
    }
    t->ranges = to;
    return t->n_ranges || p->pruned ? t : fail(p, "an empty class");
}

static struct tree *read_class(struct parser *p)
{
    p->n_ranges = 0;
    p->at++;
    bool negated = take(p, '^');
    while (!p->failed && !take(p, ']')) {
        u32 lo = take_char(p), hi = lo;
        bool range = peek(p) == '-' && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']';
        if (range) {
            p->at++;
            hi = take_char(p);
        }
        if (hi < lo) fail(p, "the end of a range comes before its start");
        add_range(p, lo, hi);
    }
    if (p->failed) return NULL;
    merge_ranges(p);
    if (negated) negate_ranges(p);
    return p->failed ? NULL : class_node(p);
}

static struct tree *read_any(struct parser *p)
{
    p->n_ranges = 0;
    p->at++;
    add_range(p, 0, LAST_CHAR);
    return p->failed ? NULL : class_node(p);
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static u32 read_name(struct parser *p)
{
    size_t from = p->at;
    while (is_name(peek(p))) p->at++;
    struct str name = {p->text.p + from, p->at - from};
    u32 rule;
    if (!name.n) return fail(p, "the name of a rule is missing"), 0;
    if (strmap_get(&p->names, name, &rule)) return rule;
    if (p->n_rules == GRAMMAR_MAX_RULES) return fail(p, "too many rules"), 0;
    strmap_add(&p->names, name, p->n_rules);
    if (!strmap_ok(&p->names)) return fail(p, "out of memory"), 0;
    p->rules[p->n_rules] = (struct tree_rule){.name = name, .line = p->line, .pruned = p->pruned};
    return p->n_rules++;
}

static struct tree *read_choice(struct parser *p, bool lines);
static void read_rule(struct parser *p);

/* ---- control tokens ---- */

static bool take_text(struct parser *p, const char *text)
{
    size_t n = strlen(text);
    if (p->text.n - p->at < n || memcmp(p->text.p + p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

static struct tree *read_token(struct parser *p)
{
    u32 id = 0, n_digits = 0, i = 0;
    if (!take_text(p, "<[")) return fail(p, "a control token must be written as <[ID]>");
    for (char c; (c = peek(p)) >= '0' && c <= '9' && n_digits < 9; p->at++, n_digits++)
        id = id * 10 + (u32)(c - '0');
    if (!n_digits || id > GRAMMAR_MAX_TOKEN_ID || !take_text(p, "]>"))
        return fail(p, "a control token must be written as <[ID]>");
    while (i < p->n_tokens && p->tokens[i] != id) i++;
    if (i == GRAMMAR_MAX_TOKENS) return fail(p, "too many different control tokens");
    if (i == p->n_tokens) p->tokens[p->n_tokens++] = id;
    struct tree *t = node(p, TREE_TEXT);
    u8 *to = alloc(p, GRAMMAR_TOKEN_BYTES, 1);
    if (!t || !to) return NULL;
    grammar_token_bytes(to, id);
    t->text = (struct str){(const char *)to, GRAMMAR_TOKEN_BYTES};
    return t;
}

/* ---- schemas ---- */

/* Reads rules that have names of their own; what the one named root became, or -1. */
static i64 read_apart(struct parser *p, struct str text, bool pruned)
{
    struct parser outer = *p;
    u32 root = 0;
    p->text = text;
    p->at = 0;
    p->line = 1;
    p->nesting = 0;
    p->pruned = pruned;
    p->names = (struct strmap){0};
    while (!p->failed && p->at < text.n) {
        read_rule(p);
        skip_space(p, true);
    }
    bool found = !p->failed && strmap_get(&p->names, STR("root"), &root);
    strmap_free(&p->names);
    p->names = outer.names;
    p->text = outer.text;
    p->at = outer.at;
    p->line = outer.line;
    p->nesting = outer.nesting;
    p->pruned = outer.pruned;
    p->rule = outer.rule;
    return found ? (i64)root : -1;
}

static void fail_in_rule(struct parser *p)
{
    struct str name = p->rules[p->rule].name;
    p->failed = true;
    err_prefix(p->err, "grammar, rule %.*s", (int)MIN(name.n, (size_t)80), name.p);
}

/* The rules of a schema, as a text in the arena. */
static struct str make_rules(struct parser *p, const json_t *schema)
{
    struct buf made = {.max = GRAMMAR_MAX_TEXT - p->n_made};
    struct str text = {0};
    if (schema_to_grammar(&made, schema, p->err))
        fail_in_rule(p);
    else if (made.failed)
        fail(p, "the schemas are too large");
    char *to = p->failed ? NULL : alloc(p, made.n + 1, 1);
    if (to) {
        memcpy(to, made.p, made.n);
        text = (struct str){to, made.n};
        p->n_made += made.n;
    }
    buf_free(&made);
    return text;
}

/* A grammar in a grammar: its rules have names of their own. */
static struct tree *read_inner(struct parser *p)
{
    skip_space(p, false);
    struct tree *text =
        peek(p) == '"' ? read_text(p) : fail(p, "%gbnf must be followed by a quoted grammar");
    if (!text) return NULL;
    if (++p->n_inner > MAX_INNER) return fail(p, "grammars are nested too deeply");
    bool pruned = p->pruned;
    i64 root = read_apart(p, text->text, pruned);
    p->n_inner--;
    if (root < 0 && !p->failed) fail(p, "a grammar in %gbnf has no rule root");
    struct tree *t = root < 0 ? NULL : node(p, TREE_RULE);
    if (t) t->rule = (u32)root;
    return t;
}

static struct tree *read_schema(struct parser *p)
{
    json_error_t e;
    if (take_text(p, "%gbnf")) return read_inner(p);
    if (take_text(p, "%bytes")) return node(p, TREE_BYTE);
    if (!take_text(p, "%json")) return fail(p, "% must be followed by json SCHEMA");
    skip_space(p, false);
    json_t *schema = json_loadb(
        p->text.p + p->at, p->text.n - p->at,
        JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &e);
    if (!schema) return fail(p, "%json must be followed by JSON");
    for (int i = 0; i < e.position; i++) p->line += p->text.p[p->at + (size_t)i] == '\n';
    p->at += (size_t)e.position;
    struct str text = make_rules(p, schema);
    json_decref(schema);
    i64 root = p->failed ? -1 : read_apart(p, text, true);
    struct tree *t = root < 0 ? NULL : node(p, TREE_RULE);
    if (t) t->rule = (u32)root;
    return t;
}

static struct tree *read_group(struct parser *p)
{
    if (p->nesting == GRAMMAR_MAX_NESTING) return fail(p, "parentheses are nested too deeply");
    p->nesting++;
    p->at++;
    struct tree *t = read_choice(p, true);
    if (t && !take(p, ')')) return fail(p, "a ) is missing");
    p->nesting--;
    return t;
}

static struct tree *read_item(struct parser *p)
{
    switch (peek(p)) {
    case '"': return read_text(p);
    case '[': return read_class(p);
    case '.': return read_any(p);
    case '(': return read_group(p);
    case '<': return read_token(p);
    case '%': return read_schema(p);
    default: break;
    }
    u32 rule = read_name(p);
    struct tree *t = p->failed ? NULL : node(p, TREE_RULE);
    if (t) t->rule = rule;
    return t;
}

static u32 read_number(struct parser *p)
{
    u32 v = 0;
    if (peek(p) < '0' || peek(p) > '9') return fail(p, "a number is missing in {}"), 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        v = v * 10 + (u32)(peek(p) - '0');
        if (v > GRAMMAR_MAX_REPEAT) return fail(p, "more than 10000 repetitions"), 0;
    }
    return v;
}

/* The * + ? {m,n} behind an item; false: there is none. */
static bool read_times(struct parser *p, u32 *min, u32 *max)
{
    *min = 0;
    *max = TREE_NO_MAX;
    if (take(p, '*')) return true;
    if (take(p, '+')) return *min = 1, true;
    if (take(p, '?')) return *max = 1, true;
    if (!take(p, '{')) return false;
    *min = *max = read_number(p);
    if (take(p, ',')) *max = peek(p) == '}' ? TREE_NO_MAX : read_number(p);
    if (!p->failed && !take(p, '}')) fail(p, "a } is missing");
    if (*max < *min) fail(p, "the maximum of a repetition is less than its minimum");
    return true;
}

static struct tree *read_sequence(struct parser *p, bool lines)
{
    struct tree *t = node(p, TREE_SEQUENCE);
    u32 min, max;
    skip_space(p, lines);
    while (t && !p->failed && peek(p) && !strchr("|)\r\n", peek(p))) {
        struct tree *item = read_item(p);
        skip_space(p, lines);
        while (item && read_times(p, &min, &max)) {
            struct tree *repeat = node(p, TREE_REPEAT);
            if (!repeat) return NULL;
            repeat->min = min;
            repeat->max = max;
            add_part(repeat, item);
            item = repeat;
            skip_space(p, lines);
        }
        if (item) add_part(t, item);
    }
    return p->failed ? NULL : t;
}

/* Goes on to a | at the beginning of a later line. */
static void skip_to_choice(struct parser *p)
{
    size_t at = p->at;
    u32 line = p->line;
    skip_space(p, true);
    if (peek(p) == '|') return;
    p->at = at;
    p->line = line;
}

static struct tree *read_choice(struct parser *p, bool lines)
{
    struct tree *t = node(p, TREE_CHOICE);
    struct tree *part = t ? read_sequence(p, lines) : NULL;
    while (part) {
        add_part(t, part);
        skip_to_choice(p);
        if (!take(p, '|')) return t;
        skip_space(p, true);
        part = read_sequence(p, lines);
    }
    return NULL;
}

static void read_rule(struct parser *p)
{
    u32 rule = read_name(p);
    skip_space(p, false);
    if (p->failed) return;
    if (p->text.n - p->at < 3 || memcmp(p->text.p + p->at, "::=", 3) != 0) {
        fail(p, "::= is missing after the name of a rule");
        return;
    }
    p->at += 3;
    if (p->rules[rule].body) {
        fail(p, "this rule is defined twice");
        return;
    }
    skip_space(p, true);
    p->rule = rule;
    p->rules[rule].body = read_choice(p, false);
    if (!p->failed && peek(p) && !strchr("\r\n", peek(p))) fail(p, "unmatched )");
}

/* Of a token by its id, without making it part of the answer. */
static bool read_id(struct parser *p, i32 *id)
{
    u32 n = 0, n_digits = 0;
    if (!take_text(p, "<[")) return false;
    for (char c; (c = peek(p)) >= '0' && c <= '9' && n_digits < 9; p->at++, n_digits++)
        n = n * 10 + (u32)(c - '0');
    *id = (i32)n;
    return n_digits && n <= GRAMMAR_MAX_TOKEN_ID && take_text(p, "]>");
}

/* %budget N <[END]> or %budget N <[END]> <[BEGIN]>. */
static void read_budget(struct parser *p)
{
    u64 n = 0;
    bool good = take_text(p, "%budget") && p->budget_end < 0;
    skip_space(p, false);
    good = good && peek(p) >= '0' && peek(p) <= '9';
    for (; good && peek(p) >= '0' && peek(p) <= '9'; p->at++)
        n = MIN(n * 10 + (u64)(peek(p) - '0'), (u64)UINT32_MAX);
    skip_space(p, false);
    good = good && read_id(p, &p->budget_end);
    skip_space(p, false);
    if (good && peek(p) == '<') good = read_id(p, &p->budget_begin);
    p->budget = (u32)n;
    if (!good) fail(p, "expected one line %budget N <[ID]> or %budget N <[ID]> <[ID]>");
}

static int parse(struct grammar **out, struct str text, bool pruned, struct err *err)
{
    struct parser p = {.text = text,
                       .line = 1,
                       .pruned = pruned,
                       .budget_end = -1,
                       .budget_begin = -1,
                       .err = err};
    u32 root;
    int rc = 0;
    *out = NULL;
    if (text.n > GRAMMAR_MAX_TEXT)
        return err_set(err, FLETCH_E_LIMIT, "a grammar of more than %d bytes", GRAMMAR_MAX_TEXT);
    p.rules = alloc(&p, GRAMMAR_MAX_RULES, sizeof *p.rules);
    if (memchr(text.p, 0, text.n)) fail(&p, "a NUL byte");
    skip_space(&p, true);
    while (!p.failed && p.at < p.text.n) {
        if (peek(&p) == '%')
            read_budget(&p);
        else
            read_rule(&p);
        skip_space(&p, true);
    }
    if (p.failed)
        rc = err->code;
    else if (!strmap_get(&p.names, STR("root"), &root))
        rc = err_set(err, FLETCH_E_ARG, "grammar: missing rule root");
    else if (!(rc = grammar_compile(out, p.rules, p.n_rules, root, err))) {
        memcpy((*out)->tokens, p.tokens, sizeof p.tokens);
        (*out)->n_tokens = p.n_tokens;
        (*out)->budget = p.budget;
        (*out)->budget_begin = p.budget_begin;
        (*out)->budget_end = p.budget_end;
    }
    strmap_free(&p.names);
    arena_free(&p.arena);
    return rc;
}

int grammar_parse(struct grammar **out, struct str text, struct err *err)
{
    return parse(out, text, false, err);
}

int grammar_parse_pruned(struct grammar **out, struct str text, struct err *err)
{
    return parse(out, text, true, err);
}
