/* A subset of regular expressions as the inside of a JSON string. Characters are spelled the way
 * JSON writers do: as themselves, or with the shortest escape where they need one. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

enum { LAST_CHAR = 0x10ffff, MAX_RANGES = 256, MAX_NESTING = 32 };

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
        fail(x, "a class of too many ranges");
    else
        s->r[s->n++] = (struct range){lo, hi};
}

static int by_lo(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* All other characters, less control characters: nobody means those by "anything but". */
static void negate(struct regex *x, struct class *s)
{
    struct class others = {.n = 0};
    u32 from = 0x20;
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
    if (v >= 0xd800 && v < 0xe000) fail(x, "surrogates are not supported");
    return v;
}

/* Behind a backslash: adds what it stands for. */
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
        add(x, &set, '\t', '\r');
        add(x, &set, ' ', ' ');
    } else if (ch == 'x' || ch == 'u') {
        u32 v = take_hex(x, ch == 'x' ? 2 : 4);
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
        add_one(x, s);
        bool single = s->n == first + 1 && s->r[first].lo == s->r[first].hi;
        if (!single || peek(x) != '-' || x->at + 1 >= x->text.n || x->text.p[x->at + 1] == ']')
            continue;
        x->at++;
        struct class end = {.n = 0};
        add_one(x, &end);
        if (failed(x)) return;
        if (end.n != 1 || end.r[0].lo != end.r[0].hi || end.r[0].lo < s->r[first].lo) {
            fail(x, "a range without a beginning or an end");
            return;
        }
        s->r[first].hi = end.r[0].hi;
    }
    if (negated) negate(x, s);
    if (!s->n && !failed(x)) fail(x, "a class of no characters");
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
    buf_puts(x->b, ") ");
}

/* ---- structure ---- */

static void put_choice(struct regex *x);

static void put_group(struct regex *x)
{
    if (peek(x) == '?' && !take(x, "?:")) {
        fail(x, "only plain groups and (?: are supported");
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
        fail(x, "nothing to repeat (a backslash makes it a character)");
    else if (take(x, "["))
        take_class(x, &s);
    else if (take(x, "."))
        negate(x, &s);
    else
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
            fail(x, "{ without m} or m,n}");
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

void schema_put_pattern(struct schemac *c, struct buf *b, struct str pattern)
{
    struct regex x = {.c = c, .b = b, .text = pattern};
    if (memchr(pattern.p, 0, pattern.n)) {
        fail(&x, "a NUL character");
        return;
    }
    buf_puts(b, "( ");
    put_choice(&x);
    if (!failed(&x) && x.at < pattern.n) fail(&x, "a ) without its (");
    buf_puts(b, ") ");
}
