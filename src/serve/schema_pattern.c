/* Strings: patterns, formats and lengths. A pattern that stands alone becomes a grammar as it was
 * written; several conditions become one automaton first (schema_language.c). Characters are
 * spelled the way JSON writers do: as themselves, or with the shortest escape where they need one.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_language.h"
#include "serve/schema_regex.h"

enum { MAX_PATTERNS = 32, INLINE_LENGTH = 8 };

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

/* ---- characters ---- */

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

static bool has(const struct regex_range *r, u32 n, u32 ch)
{
    for (u32 i = 0; i < n; i++)
        if (r[i].lo <= ch && ch <= r[i].hi) return true;
    return false;
}

static void put_code(struct buf *b, u32 ch)
{
    bool plain = (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z');
    if (plain)
        buf_putc(b, (char)ch);
    else
        buf_printf(b, ch < 0x80 ? "\\x%02x" : "\\U%08x", ch);
}

/* The part of a range that needs no escape and has bytes in UTF-8. */
static bool put_range(struct buf *b, struct regex_range r, bool first)
{
    static const struct regex_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, REGEX_LAST_CHAR}};
    bool any = false;
    for (size_t k = 0; k < ARRAY_LEN(plain); k++) {
        u32 lo = MAX(r.lo, plain[k].lo), hi = MIN(r.hi, plain[k].hi);
        if (lo > hi) continue;
        if (first && !any) buf_putc(b, '[');
        put_code(b, lo);
        if (lo < hi) buf_putc(b, '-');
        if (lo < hi) put_code(b, hi);
        any = true;
    }
    return any;
}

void schema_put_ranges(struct buf *b, const struct regex_range *r, u32 n)
{
    char text[8];
    bool any = false;
    buf_puts(b, "( ");
    for (u32 i = 0; i < n; i++) any |= put_range(b, r[i], !any);
    if (any) buf_puts(b, "] ");
    for (u32 ch = 0; ch < 0x60; ch++) {
        if (!*spelled(ch, text) || !has(r, n, ch)) continue;
        if (any) buf_puts(b, "| ");
        schema_put_text(b, str_of(text));
        any = true;
    }
    buf_puts(b, any ? ") " : "[]) ");
}

/* ---- patterns as they are written ---- */

static void put_choice(struct schemac *c, struct buf *b, const struct regex *x);

static void put_class(struct schemac *c, struct buf *b, const struct regex *x)
{
    struct regex_range few[64], *to = few, *more = NULL;
    if (x->n_ranges + 32 > ARRAY_LEN(few)) to = more = calloc(x->n_ranges + 32, sizeof *more);
    if (to)
        schema_put_ranges(b, to, regex_drop_controls(x, to));
    else
        schema_nomem(c);
    free(more);
}

static void put_atom(struct schemac *c, struct buf *b, const struct regex *x)
{
    if (x->kind == REGEX_CLASS) put_class(c, b, x);
    if (x->kind == REGEX_CHOICE) put_choice(c, b, x);
    if (x->kind != REGEX_REPEAT) return;
    put_atom(c, b, x->first);
    if (x->max == REGEX_NO_MAX)
        buf_printf(b, "{%u,} ", x->min);
    else
        buf_printf(b, "{%u,%u} ", x->min, x->max);
}

static void put_choice(struct schemac *c, struct buf *b, const struct regex *x)
{
    buf_puts(b, "( ");
    for (const struct regex *part = x->first; part; part = part->next) {
        if (part != x->first) buf_puts(b, "| ");
        buf_puts(b, "\"\" ");
        for (const struct regex *item = part->first; item; item = item->next) put_atom(c, b, item);
    }
    buf_puts(b, ") ");
}

/* Is it tied to the text's ends only where each of its alternatives begins and ends? */
static bool is_plain(const struct regex *x)
{
    for (const struct regex *part = x->first; part; part = part->next)
        for (const struct regex *item = part->first; item; item = item->next)
            if (!(item->kind == REGEX_BEGIN && item == part->first) &&
                !(item->kind == REGEX_END && item == part->last) && regex_looks_around(item))
                return false;
    return true;
}

/* Where a pattern is not tied to an end of the text, anything may stand there. */
static void put_plain(struct schemac *c, struct buf *b, const struct regex *x)
{
    buf_puts(b, "( ");
    for (const struct regex *part = x->first; part; part = part->next) {
        if (part != x->first) buf_puts(b, "| ");
        buf_puts(b, part->first && part->first->kind == REGEX_BEGIN ? "\"\" " : "char* ");
        for (const struct regex *item = part->first; item; item = item->next) put_atom(c, b, item);
        if (!part->last || part->last->kind != REGEX_END) buf_puts(b, "char* ");
    }
    buf_puts(b, ") ");
}

/* ---- formats ---- */

#define MONTHS                                                          \
    "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]" \
    "\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define LEAP  "((\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define YEAR  "(\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)" /* 0000 is none to many readers */
#define DATE  "(" YEAR "-" MONTHS "|" LEAP ")"
#define ZONE  "(Z|[-+]([01]\\d|2[0-3]):[0-5]\\d)"
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  BYTE "(\\." BYTE "){3}"
#define H     "[0-9a-f]{1,4}"
#define IPV6                                                                                \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H   \
    ":){1,4}(:" H "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H \
    "){1,6}|:(:" H "){1,7}|::)"
#define BITS4     "(3[0-2]|[12]?\\d)"
#define BITS6     "(12[0-8]|1[01]\\d|[1-9]?\\d)"
#define NAME      "[a-z0-9]{1,12}(-[a-z0-9]{1,12}){0,3}"
#define HOST      NAME "(\\." NAME "){0,3}"
#define EMAIL     "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@" HOST
#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})"
#define PATH      "(/" PATH_CHAR "*)*"
#define QUERY     "(\\?(" PATH_CHAR "|[/?])*)?(#(" PATH_CHAR "|[/?])*)?"
#define PORT      "(:[1-9]\\d{0,3})?"
#define URL       "(https?|wss?|ftp)://" HOST PORT PATH QUERY
#define URI       "(" URL "|mailto:" EMAIL "|urn:[a-z0-9]{2,16}:[A-Za-z0-9._~:-]+)"
#define RELATIVE  "((\\.{0,2}/)?[A-Za-z0-9._~-]+" PATH QUERY ")"
#define POINTER   "(/([^~/]|~[01])*)*"
#define N         "\\d{1,4}"
#define TIMES     "T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define DAYS      "(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)"
#define UUID(version) \
    "^[0-9a-f]{8}-[0-9a-f]{4}-" version "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
#define BASE64(set) "^(" set "{4})*(" set "{2}==|" set "{3}=)?$"
/* {"alg":"HS256","typ":"JWT"}, the same of RS256, and {"typ":"JWT","alg":"HS256"} */
#define JWT_HEAD                                                            \
    "(hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9|hbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9|" \
    "0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9)"
#define BASE64_REST "[A-Za-z0-9_-]([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?"
#define REGEX_ATOM \
    "([A-Za-z0-9 " \
    "_@/:,;=-]|\\\\[dwsDWS.*+?()|^$\\\\]|\\.|\\[\\^?([A-Za-z0-9_]|a-z|A-Z|0-9|\\\\[dws])+\\])"

/* Beside other conditions: without parts that have lengths of their own, which would multiply with
 * the length of the whole. */
#define LABELS      "[a-z0-9]+(-[a-z0-9]+)*(\\.[a-z0-9]+(-[a-z0-9]+)*)*"
#define SHORT_EMAIL "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" LABELS "$"
#define SHORT_URL   "^(https?|wss?|ftp)://" LABELS PORT "([/?][A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$"

static const struct format {
    const char *name, *pattern; /* NULL: any text */
    const char *beside;         /* the same beside pattern or lengths, where it differs */
    u32 most;                   /* characters of that; 0: any number */
} formats[] = {
    {"base64", BASE64("[A-Za-z0-9+/]"), NULL, 0},
    {"base64url", "^([A-Za-z0-9_-]{4})*$", NULL, 0},
    {"binary", NULL, NULL, 0},
    {"byte", BASE64("[A-Za-z0-9+/]"), NULL, 0},
    {"cidrv4", "^" IPV4 "/" BITS4 "$", NULL, 0},
    {"cidrv6", "^" IPV6 "/" BITS6 "$", NULL, 0},
    {"color", "^#[0-9a-f]{6}$", NULL, 0},
    {"cuid", "^c[a-z0-9]{24}$", NULL, 0},
    {"cuid2", "^[a-z][a-z0-9]{23}$", NULL, 0},
    {"date", "^" DATE "$", NULL, 0},
    {"date-time", "^" DATE "T" CLOCK ZONE "$", NULL, 0},
    {"decimal", "^-?(0|[1-9]\\d{0,15})(\\.\\d{1,12})?$", NULL, 0},
    {"directory-path", NULL, NULL, 0},
    {"duration", "^P(" N "W|" DAYS "(" TIMES ")?|" TIMES ")$", NULL, 0},
    {"e164", "^\\+[1-9]\\d{6,14}$", NULL, 0},
    {"email", "^" EMAIL "$", SHORT_EMAIL, 63},
    {"file-path", NULL, NULL, 0},
    {"guid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", NULL, 0},
    {"hostname", "^" HOST "$", "^" LABELS "$", 63},
    {"idn-email", "^" EMAIL "$", SHORT_EMAIL, 63},
    {"idn-hostname", "^" HOST "$", "^" LABELS "$", 63},
    {"int32", "^-?(0|[1-9]\\d{0,8})$", NULL, 0},
    {"int64", "^-?(0|[1-9]\\d{0,17})$", NULL, 0},
    {"ipv4", "^" IPV4 "$", NULL, 0},
    {"ipv4interface", "^" IPV4 "/" BITS4 "$", NULL, 0},
    {"ipv4network",
     "^(" IPV4 "/32|" BYTE "(\\." BYTE "){2}\\.0/24|" BYTE "\\." BYTE "\\.0\\.0/16|" BYTE
     "\\.0\\.0\\.0/8)$",
     NULL, 0},
    {"ipv6", "^" IPV6 "$", NULL, 0},
    {"ipv6interface", "^" IPV6 "/" BITS6 "$", NULL, 0},
    {"ipv6network", "^(" IPV6 "/128|(" H ":){4}:/64)$", NULL, 0},
    {"ipvanyaddress", "^(" IPV4 "|" IPV6 ")$", NULL, 0},
    {"ipvanyinterface", "^(" IPV4 "/" BITS4 "|" IPV6 "/" BITS6 ")$", NULL, 0},
    {"ipvanynetwork", "^(" IPV4 "/32|" BYTE "(\\." BYTE "){2}\\.0/24|" IPV6 "/128)$", NULL, 0},
    {"iri", "^" URI "$", SHORT_URL, 0},
    {"iri-reference", "^(" URI "|" RELATIVE ")$", SHORT_URL, 0},
    {"json-pointer", "^" POINTER "$", NULL, 0},
    {"jwt",
     "^eyJ" JWT_HEAD "\\.eyJ" BASE64_REST "\\."
     "[A-Za-z0-9_-]([A-Za-z0-9_-]{4})*[A-Za-z0-9_-]{1,2}$",
     NULL, 0},
    {"ksuid", "^[A-Za-z0-9]{27}$", NULL, 0},
    {"multi-host-uri", "^[a-z][a-z0-9+]{1,15}://" HOST PORT "(," HOST PORT ")*" PATH "$", NULL, 0},
    {"name-email", "^" EMAIL "$", SHORT_EMAIL, 63},
    {"nanoid", "^[A-Za-z0-9_-]{21}$", NULL, 0},
    {"new-path", NULL, NULL, 0},
    {"password", NULL, NULL, 0},
    {"path", NULL, NULL, 0},
    {"regex", "^\\^?(" REGEX_ATOM "[*+?]?)*(\\|(" REGEX_ATOM "[*+?]?)+)*\\$?$", NULL, 0},
    {"relative-json-pointer", "^(0|[1-9]\\d{0,3})(#|" POINTER ")$", NULL, 0},
    {"time", "^" CLOCK ZONE "$", "^([01]\\d|2[0-3]):[0-5]\\d(:[0-5]\\d(\\.\\d{1,6})?)?" ZONE "?$",
     0},
    {"ulid", "^[0-7][0-9A-HJKMNP-TV-Z]{25}$", NULL, 0},
    {"uri", "^" URI "$", SHORT_URL, 0},
    {"uri-reference", "^(" URI "|" RELATIVE ")$", SHORT_URL, 0},
    {"uri-template", "^" URI "$", SHORT_URL, 0},
    {"url", "^" URL "$", SHORT_URL, 0},
    {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", NULL, 0},
    {"uuid1", UUID("1"), NULL, 0},
    {"uuid3", UUID("3"), NULL, 0},
    {"uuid4", UUID("4"), NULL, 0},
    {"uuid5", UUID("5"), NULL, 0},
    {"uuid6", UUID("6"), NULL, 0},
    {"uuid7", UUID("7"), NULL, 0},
    {"uuid8", UUID("8"), NULL, 0},
    {"xid", "^[0-9a-v]{20}$", NULL, 0},
};

bool schema_find_format(struct schemac *c, const json_t *s, struct schema_format *found)
{
    const json_t *format = json_object_get(s, "format");
    const char *name = json_string_value(format);
    bool has_pattern = json_object_get(s, "pattern") != NULL;
    bool beside = has_pattern || json_object_get(s, "maxLength") ||
                  json_number_value(json_object_get(s, "minLength")) > 1;
    *found = (struct schema_format){.most = UINT32_MAX};
    for (size_t i = 0; name && i < ARRAY_LEN(formats); i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        const char *text = beside && formats[i].beside ? formats[i].beside : formats[i].pattern;
        if (text) found->pattern = str_of(text);
        if (beside && formats[i].most) found->most = formats[i].most;
        return true;
    }
    if (format && !has_pattern)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "unknown format %s; use pattern instead, or leave it out", QUOTE(str_of(name)));
    return !c->rc;
}

/* ---- strings ---- */

static struct str text_of(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

u32 schema_string_term(struct schemac *c, struct language *l, const json_t *s,
                       enum language_mode mode)
{
    const json_t *pattern = json_object_get(s, "pattern");
    struct schema_format format;
    u32 term = LANGUAGE_ALL;
    if (!schema_find_format(c, s, &format)) return LANGUAGE_NOTHING;
    if (pattern) term = language_pattern(l, text_of(pattern), mode);
    if (format.pattern.p) term = language_both(l, term, language_pattern(l, format.pattern, mode));
    return term;
}

/* All conditions on a string at once. */
static void put_language(struct schemac *c, const json_t *s, u32 lo, u32 hi, u32 name)
{
    struct language *l = language_open(c);
    if (l) language_put(l, schema_string_term(c, l, s, LANGUAGE_NARROW), lo, hi, name);
    language_close(l);
}

/* Can "" fit? Where it can't, a minLength of 1 asks for nothing more. */
static bool may_be_empty(struct schemac *c, const json_t *s)
{
    struct language *l = language_open(c);
    bool empty = l && language_has(l, schema_string_term(c, l, s, LANGUAGE_NARROW), STR(""));
    language_close(l);
    return empty;
}

/* The rule pNAME of what is between the quotation marks. */
static void put_inside(struct schemac *c, const json_t *s, u32 lo, u32 hi, u32 name)
{
    const json_t *pattern = json_object_get(s, "pattern");
    struct arena arena = {0};
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    struct schema_format format;
    if (!schema_find_format(c, s, &format)) return;
    struct str regex = pattern ? text_of(pattern) : format.pattern;
    hi = MIN(hi, format.most);
    if (regex.p && lo == 1 && !may_be_empty(c, s)) lo = 0;
    bool counted = lo > 0 || hi < UINT32_MAX, both = pattern && format.pattern.p;
    const struct regex *x = regex.p ? schema_read_regex(c, &arena, regex) : NULL;
    if (x && (counted || both || !is_plain(x))) {
        put_language(c, s, lo, hi, name);
    } else if (!c->rc) {
        if (x) put_plain(c, &b, x);
        if (!x) buf_puts(&b, lo > hi ? "[] " : "char ");
        if (!x && lo <= hi) schema_put_times(&b, lo, hi);
        schema_put_part(c, &b, name);
    }
    buf_free(&b);
    arena_free(&arena);
}

void schema_put_string(struct schemac *c, struct buf *b, const json_t *s)
{
    static const char *const keys[] = {"pattern", "format", "minLength", "maxLength"};
    bool simple = !json_object_get(s, "pattern") && !json_object_get(s, "format");
    u32 lo, hi, name;
    if (!schema_read_counts(c, s, "minLength", "maxLength", &lo, &hi)) return;
    if (simple && lo < INLINE_LENGTH && (hi == UINT32_MAX || hi < INLINE_LENGTH)) {
        buf_puts(b, "\"\\\"\" ");
        buf_puts(b, lo > hi ? "[] " : "char ");
        if (lo <= hi) schema_put_times(b, lo, hi);
        buf_puts(b, "\"\\\"\" ");
        return;
    }
    if (!schema_find_part(c, "string", s, keys, ARRAY_LEN(keys), &name))
        put_inside(c, s, lo, hi, name);
    buf_printf(b, "\"\\\"\" p%u \"\\\"\" ", name);
}

/* ---- trying strings ---- */

struct schema_patterns {
    struct {
        char *pattern;
        struct language *l;
        u32 term;
    } entries[MAX_PATTERNS];
    u32 n, oldest;
};

void schema_patterns_free(struct schema_patterns *p)
{
    if (!p) return;
    for (u32 i = 0; i < p->n; i++) {
        free(p->entries[i].pattern);
        language_close(p->entries[i].l);
    }
    free(p);
}

/* The entry of a pattern, made where it is new; UINT32_MAX after an error. */
static u32 find_pattern(struct schemac *c, struct str pattern)
{
    struct schema_patterns *p = c->patterns;
    if (!p) p = c->patterns = calloc(1, sizeof *p);
    if (!p) return schema_nomem(c), UINT32_MAX;
    for (u32 i = 0; i < p->n; i++)
        if (strlen(p->entries[i].pattern) == pattern.n &&
            memcmp(p->entries[i].pattern, pattern.p, pattern.n) == 0)
            return i;
    struct language *l = language_open(c);
    u32 term = l ? language_pattern(l, pattern, LANGUAGE_EXACT) : 0;
    char *copy = c->rc ? NULL : strndup(pattern.p, pattern.n);
    if (!copy) {
        language_close(l);
        return schema_nomem(c), UINT32_MAX;
    }
    u32 i = p->n < MAX_PATTERNS ? p->n++ : p->oldest++ % MAX_PATTERNS;
    free(p->entries[i].pattern);
    language_close(p->entries[i].l);
    p->entries[i].pattern = copy;
    p->entries[i].l = l;
    p->entries[i].term = term;
    return i;
}

bool schema_matches(struct schemac *c, struct str pattern, struct str text)
{
    if (c->rc || !schema_work(c, 16 + text.n)) return false;
    u32 i = find_pattern(c, pattern);
    return i != UINT32_MAX &&
           language_has(c->patterns->entries[i].l, c->patterns->entries[i].term, text);
}
