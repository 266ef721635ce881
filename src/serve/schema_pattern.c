/* A subset of ECMA-262's regular expressions, in unicode mode, as the inside of a JSON string.
 * Characters are spelled the way JSON writers do: as themselves, or with the shortest escape where
 * they need one. */
#include <stdlib.h>
#include <string.h>

#include "serve/automaton.h"
#include "serve/schema_internal.h"

enum {
    LAST_CHAR = 0x10ffff,
    MAX_RANGES = 256,
    MAX_NESTING = 32,
    MAX_PATTERNS = 32,
    COMPILE_WORK = 1 << 14
};

struct range {
    u32 lo, hi;
};

struct class
{
    struct range r[MAX_RANGES];
    u32 n;
};

struct regex {
    struct schemac *c;
    struct buf *b;
    struct str text;
    size_t at;
    u32 nesting;
    enum schema_controls controls;
};

static void fail(struct regex *x, const char *what)
{
    schema_fail(x->c, FLETCH_E_UNSUPPORTED, "pattern %s, at %zu: %s", QUOTE(x->text), x->at, what);
}

static bool failed(const struct regex *x)
{
    return x->c->rc != 0;
}

void schema_put_text(struct buf *b, struct str text)
{
    buf_putc(b, '"');
    for (size_t i = 0; i < text.n; i++) {
        u8 ch = (u8)text.p[i];
        if (ch < 0x20 || ch == '"' || ch == '\\')
            buf_printf(b, "\\x%02x", ch);
        else
            buf_putc(b, (char)ch);
    }
    buf_puts(b, "\" ");
}

/* ---- classes of characters ---- */

static char peek(const struct regex *x)
{
    return x->at < x->text.n ? x->text.p[x->at] : 0;
}

static bool take(struct regex *x, const char *what)
{
    size_t n = strlen(what);
    if (x->text.n - x->at < n || memcmp(x->text.p + x->at, what, n) != 0) return false;
    x->at += n;
    return true;
}

static void add(struct regex *x, struct class *s, u32 lo, u32 hi)
{
    if (s->n == MAX_RANGES)
        fail(x, "too many ranges in a class");
    else
        s->r[s->n++] = (struct range){lo, hi};
}

static int by_lo(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* All other characters. In answers less control characters: nobody means those by "anything but",
 * and what is generated may be less than what matches. */
static void negate(struct regex *x, struct class *s)
{
    struct class others = {.n = 0};
    u32 from = x->controls == SCHEMA_WITH_CONTROLS ? 0 : 0x20;
    qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (u32 i = 0; i < s->n; i++) {
        if (s->r[i].lo > from) add(x, &others, from, s->r[i].lo - 1);
        from = MAX(from, s->r[i].hi + 1);
    }
    if (from <= LAST_CHAR) add(x, &others, from, LAST_CHAR);
    *s = others;
}

/* The text is valid UTF-8: it comes from a JSON document. */
static u32 take_utf8(struct regex *x)
{
    u32 ch = (u8)x->text.p[x->at++];
    u32 n = ch < 0x80 ? 0 : ch < 0xe0 ? 1 : ch < 0xf0 ? 2 : 3;
    if (n) ch &= 0x3fu >> n;
    for (; n && x->at < x->text.n; n--) ch = ch << 6 | ((u8)x->text.p[x->at++] & 0x3f);
    return ch;
}

static u32 take_hex(struct regex *x, u32 n)
{
    u32 v = 0;
    for (u32 i = 0; i < n; i++) {
        char digit[2] = {peek(x), 0};
        if (!digit[0] || !strchr("0123456789abcdefABCDEF", digit[0])) {
            fail(x, "a hexadecimal digit is missing");
            return 0;
        }
        v = v << 4 | (u32)strtoul(digit, NULL, 16);
        x->at++;
    }
    return v;
}

/* After the u of an escape: HHHH, a pair of surrogates, or {H..}. */
static u32 take_unicode(struct regex *x)
{
    u32 n = 0;
    if (take(x, "{")) {
        while (x->at + n < x->text.n && x->text.p[x->at + n] != '}') n++;
        u32 v = n && n <= 6 ? take_hex(x, n) : LAST_CHAR + 1;
        if (!take(x, "}") || v > LAST_CHAR) fail(x, "braces without a code point");
        return v;
    }
    u32 v = take_hex(x, 4);
    if (v < 0xd800 || v >= 0xdc00 || !take(x, "\\u")) return v;
    u32 low = take_hex(x, 4);
    if (low < 0xdc00 || low >= 0xe000) fail(x, "a high surrogate without a low one");
    return 0x10000 + ((v - 0xd800) << 10) + ((low - 0xdc00) & 0x3ff);
}

static void add_all(struct regex *x, struct class *s, const struct range *r, size_t n)
{
    for (size_t i = 0; i < n; i++) add(x, s, r[i].lo, r[i].hi);
}

/* What ends a line, and what \\s stands for. */
static const struct range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
static const struct range spaces[] = {
    {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

/* After a backslash: adds what it stands for. */
static void add_escape(struct regex *x, struct class *s)
{
    static const char named[] = "tnrfv", meant[] = "\t\n\r\f\v";
    struct class set = {.n = 0};
    char ch = peek(x);
    const char *is = ch ? strchr(named, ch) : NULL;
    if (ch) x->at++;
    if (is) {
        add(x, s, (u32)meant[is - named], (u32)meant[is - named]);
    } else if (ch == 'd' || ch == 'D') {
        add(x, &set, '0', '9');
    } else if (ch == 'w' || ch == 'W') {
        add(x, &set, '0', '9');
        add(x, &set, 'A', 'Z');
        add(x, &set, '_', '_');
        add(x, &set, 'a', 'z');
    } else if (ch == 's' || ch == 'S') {
        add_all(x, &set, spaces, ARRAY_LEN(spaces));
    } else if (ch == 'x' || ch == 'u') {
        u32 v = ch == 'x' ? take_hex(x, 2) : take_unicode(x);
        if (v >= 0xd800 && v < 0xe000) fail(x, "a surrogate is not a character");
        add(x, s, v, v);
    } else if (ch == '0' && !(peek(x) >= '0' && peek(x) <= '9')) {
        add(x, s, 0, 0);
    } else if (ch == 'c' && ((peek(x) | 0x20) >= 'a' && (peek(x) | 0x20) <= 'z')) {
        u32 v = (u32)x->text.p[x->at++] & 31;
        add(x, s, v, v);
    } else if (ch && strchr("^$\\.*+?()[]{}|/-\"'#&@,:;<>=!~%` _", ch)) {
        add(x, s, (u32)ch, (u32)ch);
    } else {
        fail(x, "this escape is not supported");
    }
    if (ch == 'D' || ch == 'W' || ch == 'S') negate(x, &set);
    for (u32 i = 0; i < set.n; i++) add(x, s, set.r[i].lo, set.r[i].hi);
}

/* One character, or what an escape stands for. */
static void add_one(struct regex *x, struct class *s)
{
    if (take(x, "\\")) {
        add_escape(x, s);
        return;
    }
    u32 ch = take_utf8(x);
    add(x, s, ch, ch);
}

static void take_class(struct regex *x, struct class *s)
{
    bool negated = take(x, "^");
    while (!failed(x) && !take(x, "]")) {
        if (!peek(x)) {
            fail(x, "a ] is missing");
            return;
        }
        u32 first = s->n;
        if (take(x, "\\b"))
            add(x, s, '\b', '\b');
        else
            add_one(x, s);
        bool single = s->n == first + 1 && s->r[first].lo == s->r[first].hi;
        if (!single || peek(x) != '-' || x->at + 1 >= x->text.n || x->text.p[x->at + 1] == ']')
            continue;
        x->at++;
        struct class end = {.n = 0};
        add_one(x, &end);
        if (failed(x)) return;
        if (end.n != 1 || end.r[0].lo != end.r[0].hi || end.r[0].lo < s->r[first].lo) {
            fail(x, "a range has no start or no end");
            return;
        }
        s->r[first].hi = end.r[0].hi;
    }
    if (negated) negate(x, s);
}

/* What JSON writes for a character that can't stand for itself; "": it can. */
static const char *spelled(u32 ch, char text[8])
{
    static const char named[] = "\b\t\n\f\r\"\\", as[] = "btnfr\"\\";
    const char *is = ch && ch < 0x80 ? strchr(named, (int)ch) : NULL;
    text[0] = 0;
    if (is)
        snprintf(text, 8, "\\%c", as[is - named]);
    else if (ch < 0x20)
        snprintf(text, 8, "\\u%04x", ch);
    return text;
}

static bool has(const struct class *s, u32 ch)
{
    for (u32 i = 0; i < s->n; i++)
        if (s->r[i].lo <= ch && ch <= s->r[i].hi) return true;
    return false;
}

static void put_class(struct regex *x, const struct class *s)
{
    char text[8];
    bool any = false;
    buf_puts(x->b, "( ");
    for (u32 i = 0; i < s->n; i++) {
        /* pieces between the characters that need an escape */
        static const struct range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, LAST_CHAR}};
        for (size_t k = 0; k < ARRAY_LEN(plain); k++) {
            u32 lo = MAX(s->r[i].lo, plain[k].lo), hi = MIN(s->r[i].hi, plain[k].hi);
            if (lo > hi || (lo >= 0xd800 && hi < 0xe000)) continue;
            if (lo >= 0xd800 && lo < 0xe000) lo = 0xe000;
            if (hi >= 0xd800 && hi < 0xe000) hi = 0xd7ff;
            buf_printf(x->b, any ? "\\U%08x-\\U%08x" : "[\\U%08x-\\U%08x", lo, hi);
            any = true;
        }
    }
    if (any) buf_puts(x->b, "] ");
    for (u32 ch = 0; ch < 0x60; ch++) {
        if (!has(s, ch) || !*spelled(ch, text)) continue;
        if (any) buf_puts(x->b, "| ");
        schema_put_text(x->b, str_of(text));
        any = true;
    }
    buf_puts(x->b, any ? ") " : "[]) ");
}

/* ---- structure ---- */

static void put_choice(struct regex *x);

static bool is_name(char ch)
{
    return (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || ch == '_' ||
           ch == '$';
}

/* The name of a group that is spelled ?<name>; false: it is none. */
static bool take_group_name(struct regex *x)
{
    size_t n = 2;
    if (x->text.n - x->at < 4 || memcmp(x->text.p + x->at, "?<", 2) != 0) return false;
    while (x->at + n < x->text.n && is_name(x->text.p[x->at + n])) n++;
    if (n == 2 || x->at + n >= x->text.n || x->text.p[x->at + n] != '>') return false;
    x->at += n + 1;
    return true;
}

static void put_group(struct regex *x)
{
    if (peek(x) == '?' && !take(x, "?:") && !take_group_name(x)) {
        fail(x, "only (...), (?:...) and (?<name>...) are supported as groups");
        return;
    }
    if (++x->nesting > MAX_NESTING) fail(x, "groups are nested too deep");
    buf_puts(x->b, "( ");
    if (!failed(x)) put_choice(x);
    if (!failed(x) && !take(x, ")")) fail(x, "a ) is missing");
    buf_puts(x->b, ") ");
    x->nesting--;
}

static void put_atom(struct regex *x)
{
    struct class s = {.n = 0};
    char ch = peek(x);
    if (take(x, "(")) {
        put_group(x);
        return;
    }
    if (ch == '^' || ch == '$')
        fail(x, "^ and $ are supported at the ends only");
    else if (ch == '*' || ch == '+' || ch == '?' || ch == '{' || ch == '}')
        fail(x, "nothing to repeat; to match this character itself, put a backslash before it");
    else if (take(x, "["))
        take_class(x, &s);
    else if (take(x, ".")) {
        add_all(x, &s, line_ends, ARRAY_LEN(line_ends));
        negate(x, &s);
    } else
        add_one(x, &s);
    if (!failed(x)) put_class(x, &s);
}

static size_t digits_at(struct str text, size_t at)
{
    size_t n = 0;
    while (at + n < text.n && text.p[at + n] >= '0' && text.p[at + n] <= '9') n++;
    return n;
}

/* Bytes of {m}, {m,} or {m,n} at the beginning of text; 0: it is none of them. */
static size_t repetition(struct str text)
{
    size_t n = 1, first = digits_at(text, n);
    n += first;
    if (first && n < text.n && text.p[n] == ',') n += 1 + digits_at(text, n + 1);
    return first && n < text.n && text.p[n] == '}' ? n + 1 : 0;
}

static void put_times(struct regex *x)
{
    size_t n = 1;
    char ch = peek(x);
    if (!ch || !strchr("*+?{", ch)) return;
    if (ch == '{') {
        n = repetition((struct str){x->text.p + x->at, x->text.n - x->at});
        if (!n) {
            fail(x, "{ must be followed by m} or m,n}");
            return;
        }
    }
    buf_put(x->b, x->text.p + x->at, n);
    buf_putc(x->b, ' ');
    x->at += n;
    take(x, "?"); /* lazy or not: the same texts */
    if (peek(x) && strchr("*+{", peek(x))) fail(x, "this repetition is not supported");
}

static bool at_end(const struct regex *x)
{
    char ch = peek(x);
    return !ch || ch == '|' || ch == ')' ||
           (ch == '$' && !x->nesting && (x->at + 1 == x->text.n || x->text.p[x->at + 1] == '|'));
}

/* Where a whole pattern is not tied to an end of the text, anything may stand there. */
static void put_choice(struct regex *x)
{
    bool outer = x->nesting == 0;
    do {
        if (outer && !take(x, "^")) buf_puts(x->b, "char* ");
        buf_puts(x->b, "\"\" ");
        while (!failed(x) && !at_end(x)) {
            put_atom(x);
            if (!failed(x)) put_times(x);
        }
        if (outer && !take(x, "$")) buf_puts(x->b, "char* ");
        if (peek(x) == '|') buf_puts(x->b, "| ");
    } while (!failed(x) && take(x, "|"));
}

void schema_put_pattern(struct schemac *c, struct buf *b, struct str pattern,
                        enum schema_controls controls)
{
    struct regex x = {.c = c, .b = b, .text = pattern, .controls = controls};
    if (memchr(pattern.p, 0, pattern.n)) {
        fail(&x, "NUL is not supported");
        return;
    }
    buf_puts(b, "( ");
    put_choice(&x);
    if (!failed(&x) && x.at < pattern.n) fail(&x, "unmatched )");
    buf_puts(b, ") ");
}

/* ---- formats ---- */

static const struct {
    const char *name, *pattern;
} formats[] = {
#define MONTHS                                                          \
    "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]" \
    "\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define LEAP "((\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define YEAR "(\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)" /* 0000 is none to many readers */
#define DATE "(" YEAR "-" MONTHS "|" LEAP ")"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[-+]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define NAME "[a-z0-9]{1,12}(-[a-z0-9]{1,12}){0,3}"
#define HOST NAME "(\\." NAME "){0,3}"
    {"date", "^" DATE "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"email", "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@" HOST "$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"time", "^" TIME "$"},
    {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
};

const char *schema_format(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(name, formats[i].name) == 0) return formats[i].pattern;
    return NULL;
}

/* ---- trying strings ---- */

/* Patterns as automatons over JSON's spelling of strings. */
struct schema_patterns {
    struct trie *trie; /* of no tokens: only bytes are followed */
    struct {
        char *pattern;
        struct automaton *a;
    } entries[MAX_PATTERNS];
    u32 n, oldest;
};

void schema_patterns_free(struct schema_patterns *p)
{
    if (!p) return;
    for (u32 i = 0; i < p->n; i++) {
        free(p->entries[i].pattern);
        automaton_close(p->entries[i].a);
    }
    trie_close(p->trie);
    free(p);
}

static struct schema_patterns *need_patterns(struct schemac *c)
{
    static const struct str no_tokens[1];
    if (c->patterns) return c->patterns;
    c->patterns = calloc(1, sizeof *c->patterns);
    if (!c->patterns || trie_open(&c->patterns->trie, no_tokens, 0, NULL, 0, NULL)) {
        free(c->patterns);
        c->patterns = NULL;
        schema_nomem(c);
    }
    return c->patterns;
}

static struct automaton *compile_pattern(struct schemac *c, struct str pattern)
{
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    struct err err = {0};
    buf_puts(&b, "root ::= ");
    schema_put_pattern(c, &b, pattern, SCHEMA_WITH_CONTROLS);
    buf_printf(&b, "\n%s", schema_prelude);
    if (!c->rc && (b.failed || !schema_work(c, COMPILE_WORK + 16 * b.n) ||
                   grammar_parse_pruned(&g, buf_str(&b), &err) ||
                   automaton_open(&a, g, c->patterns->trie, &err)))
        schema_fail(c, FLETCH_E_LIMIT, "pattern %s is too complex together with enum or const",
                    QUOTE(pattern));
    buf_free(&b);
    return a;
}

static struct automaton *find_pattern(struct schemac *c, struct str pattern)
{
    struct schema_patterns *p = need_patterns(c);
    u32 i = 0;
    if (!p) return NULL;
    for (; i < p->n; i++)
        if (strlen(p->entries[i].pattern) == pattern.n &&
            memcmp(p->entries[i].pattern, pattern.p, pattern.n) == 0)
            return p->entries[i].a;
    struct automaton *a = compile_pattern(c, pattern);
    char *copy = a ? strndup(pattern.p, pattern.n) : NULL;
    if (!copy) {
        automaton_close(a);
        if (a) schema_nomem(c);
        return NULL;
    }
    if (p->n < MAX_PATTERNS) {
        i = p->n++;
    } else {
        i = p->oldest++ % MAX_PATTERNS;
        free(p->entries[i].pattern);
        automaton_close(p->entries[i].a);
    }
    p->entries[i].pattern = copy;
    p->entries[i].a = a;
    return a;
}

/* The string as patterns see it: each character spelled as put_class does. */
static void spell(struct buf *b, struct str text)
{
    char escape[8];
    for (size_t i = 0; i < text.n; i++) {
        if (*spelled((u8)text.p[i], escape))
            buf_puts(b, escape);
        else
            buf_putc(b, text.p[i]);
    }
}

bool schema_matches(struct schemac *c, struct str pattern, struct str text)
{
    struct automaton *a = c->rc ? NULL : find_pattern(c, pattern);
    struct constraint *k;
    struct buf b = {0};
    if (!a || !schema_work(c, 16 + text.n)) return false;
    spell(&b, text);
    if (b.failed || constraint_open(&k, a, NULL)) {
        buf_free(&b);
        return schema_nomem(c), false;
    }
    bool match = constraint_feed(k, buf_str(&b)) == b.n && constraint_may_end(k);
    if (!match && !constraint_mask(k))
        schema_fail(c, FLETCH_E_LIMIT, "pattern %s is too ambiguous together with enum or const",
                    QUOTE(pattern));
    constraint_close(k);
    buf_free(&b);
    return match;
}
