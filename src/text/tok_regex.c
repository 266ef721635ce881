#include "text/tok_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

enum {
    MAX_REGEX = 1 << 14, /* bytes; the longest published one has about 1,500 */
    /* Enough for any text within tok_encode's limit and a published regex; what runs past them is
     * an error, not a hang. */
    MATCH_LIMIT = 1 << 30,
    DEPTH_LIMIT = 1 << 20,
};

/* deepseek-llm's. Translated as it stands it would be tried at every blank of a run, in quadratic
 * time; it can only match where a run begins. */
#define TAIL_BLANKS "\\s+$"

#define NOT_WHITE                                                                                \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"     \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{" \
    "10ffff}"
/* Oniguruma's word characters. Outside sets it counts more numbers below U+0100. */
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD     WORD_SET "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

struct regex {
    struct buf *out;
    struct str s;
    size_t at;
    struct err *err;
};

static struct str regex_rest(const struct regex *r)
{
    return (struct str){r->s.p + r->at, r->s.n - r->at};
}

static bool regex_take(struct regex *r, const char *z)
{
    if (!str_starts(regex_rest(r), z)) return false;
    r->at += strlen(z);
    return true;
}

/* n bytes from `from` are the culprit. */
static int regex_refuse(struct regex *r, size_t from, size_t n)
{
    struct str what = {r->s.p + from, MIN(n, r->s.n - from)};
    return err_set(r->err, FLETCH_E_UNSUPPORTED, "%s in the regex %s is not supported", QUOTE(what),
                   QUOTE(r->s));
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* \p{...}: the name goes to PCRE2, which refuses what it doesn't know. */
static int regex_property(struct regex *r, size_t start)
{
    size_t end = r->at;
    if (end == r->s.n || r->s.p[end] != '{') return regex_refuse(r, start, 2);
    while (++end < r->s.n && (is_alnum(r->s.p[end]) || strchr("^_ -", r->s.p[end]))) {
    }
    if (end == r->s.n || r->s.p[end] != '}') return regex_refuse(r, start, end - start);
    r->at = end + 1;
    buf_put(r->out, r->s.p + start, r->at - start);
    return 0;
}

/* \xHH, \x{H...} and \uHHHH. Bytes above 0x7f would be parts of characters. */
static int regex_code(struct regex *r, size_t start, char kind)
{
    bool braces = kind == 'x' && regex_take(r, "{");
    size_t first = r->at, max = braces ? 6 : kind == 'x' ? 2 : 4;
    while (r->at < r->s.n && r->at - first < max && r->s.p[r->at] &&
           strchr("0123456789abcdefABCDEF", r->s.p[r->at]))
        r->at++;
    size_t n = r->at - first;
    bool whole = braces ? n > 0 && regex_take(r, "}") : n == max;
    if (!whole || (kind == 'x' && !braces && r->s.p[first] > '7'))
        return regex_refuse(r, start, r->at - start);
    buf_printf(r->out, "\\x{%.*s}", (int)n, r->s.p + first);
    return 0;
}

/* r->at is at a backslash. */
static int regex_escape(struct regex *r, bool in_class)
{
    static const struct {
        char c;
        const char *outside, *inside; /* NULL: refused there */
    } escapes[] = {
        {'s', "[" TOK_WHITE "]", TOK_WHITE},
        {'S', "[^" TOK_WHITE "]", NOT_WHITE},
        {'d', "\\p{Nd}", "\\p{Nd}"},
        {'D', "\\P{Nd}", "\\P{Nd}"},
        {'w', "[" WORD "]", WORD_SET},
        {'W', "[^" WORD "]", NULL},
        {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
        {'H', "[^0-9A-Fa-f]", NULL},
        {'b', "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))", "\\x08"},
        {'B', "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))", NULL},
        {'A', "\\A", NULL},
        {'z', "\\z", NULL},
        {'Z', "(?=\\n?\\z)", NULL},
        {'n', "\\n", "\\n"},
        {'r', "\\r", "\\r"},
        {'t', "\\t", "\\t"},
        {'f', "\\f", "\\f"},
        {'v', "\\x0b", "\\x0b"},
        {'a', "\\x07", "\\x07"},
        {'e', "\\x1b", "\\x1b"},
    };
    size_t start = r->at++;
    if (r->at == r->s.n) return regex_refuse(r, start, 1);
    char c = r->s.p[r->at++];
    if (c == 'p' || c == 'P') return regex_property(r, start);
    if (c == 'x' || c == 'u') return regex_code(r, start, c);
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        if (escapes[i].c != c) continue;
        const char *text = in_class ? escapes[i].inside : escapes[i].outside;
        if (!text) break;
        buf_puts(r->out, text);
        return 0;
    }
    if (is_alnum(c)) return regex_refuse(r, start, 2);
    /* Anything else stands for itself; only ASCII may be escaped in PCRE2. */
    if ((u8)c < 0x80) buf_putc(r->out, '\\');
    buf_putc(r->out, c);
    return 0;
}

static bool regex_named_set(struct regex *r)
{
    static const char *const sets[][2] = {
        {"[:alpha:]", "\\p{Alphabetic}"},
        {"[:punct:]", "\\p{P}\\p{S}"},
        {"[:space:]", TOK_WHITE},
        {"[:digit:]", "\\p{Nd}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        if (!regex_take(r, sets[i][0])) continue;
        buf_puts(r->out, sets[i][1]);
        return true;
    }
    return false;
}

/* r->at is after [. Sets inside sets and their intersections have no words in PCRE2. */
static int regex_class(struct regex *r)
{
    size_t start = r->at - 1;
    buf_puts(r->out, regex_take(r, "^") ? "[^" : "[");
    if (regex_take(r, "]")) return regex_refuse(r, start, r->at - start);
    while (r->at < r->s.n) {
        char c = r->s.p[r->at];
        if (regex_named_set(r)) continue;
        if (c == '[' || str_starts(regex_rest(r), "&&"))
            return regex_refuse(r, start, r->at + 2 - start);
        if (c == '\\') {
            int rc = regex_escape(r, true);
            if (rc) return rc;
            continue;
        }
        buf_putc(r->out, c);
        r->at++;
        if (c == ']') return 0;
    }
    return regex_refuse(r, start, r->s.n - start);
}

/* r->at is after (. Groups capture nothing: nothing refers to them. */
static int regex_group(struct regex *r)
{
    static const char *const kinds[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"};
    size_t start = r->at - 1;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!regex_take(r, kinds[i])) continue;
        buf_printf(r->out, "(%s", kinds[i]);
        return 0;
    }
    /* Elsewhere Ruby would take the alternatives that follow into the group. */
    if (start == 0 && regex_take(r, "?i)")) {
        buf_puts(r->out, "(?i)");
        return 0;
    }
    if (r->at < r->s.n && (r->s.p[r->at] == '?' || r->s.p[r->at] == '*'))
        return regex_refuse(r, start, 3);
    buf_puts(r->out, "(?:");
    return 0;
}

/* A number of at most five digits; its end, or `at` where there is none. */
static size_t regex_digits(const struct regex *r, size_t at)
{
    size_t i = at;
    while (i < r->s.n && i - at < 5 && r->s.p[i] >= '0' && r->s.p[i] <= '9') i++;
    return i;
}

/* r->at is after {: an interval, or a brace that stands for itself. */
static int regex_interval(struct regex *r)
{
    size_t start = r->at - 1, low = regex_digits(r, r->at), high = low;
    bool comma = low < r->s.n && r->s.p[low] == ',';
    if (comma) high = regex_digits(r, low + 1);
    bool some = low > r->at || high > low + 1;
    if (!some || high == r->s.n || r->s.p[high] != '}') {
        buf_puts(r->out, "\\{");
        return 0;
    }
    buf_puts(r->out, low == r->at ? "{0" : "{");
    buf_put(r->out, r->s.p + r->at, high + 1 - r->at);
    r->at = high + 1;
    /* Ruby reads these as a repetition of the repetition. */
    char next = r->at < r->s.n ? r->s.p[r->at] : 0;
    if (next == '+' || (next == '?' && !comma)) return regex_refuse(r, start, r->at + 1 - start);
    return 0;
}

static int regex_one(struct regex *r)
{
    if (regex_take(r, TOK_CONTRACTION)) {
        buf_puts(r->out, "(?:'(?:[sStTmMdD]|[rRvV][eE]|[lL][lL]))");
        return 0;
    }
    char c = r->s.p[r->at];
    if (c == '\\') return regex_escape(r, false);
    r->at++;
    switch (c) {
    case '[': return regex_class(r);
    case '(': return regex_group(r);
    case '{': return regex_interval(r);
    /* Lines end at \n, and ^ and $ always mean lines. */
    case '.': buf_puts(r->out, "[^\\n]"); return 0;
    case '^': buf_puts(r->out, "(?:\\A|(?<=\\n)(?!\\z))"); return 0;
    case '$': buf_puts(r->out, "(?=\\n|\\z)"); return 0;
    default: buf_putc(r->out, c); return 0;
    }
}

int tok_regex_translate(struct buf *out, struct str regex, struct err *err)
{
    struct regex r = {.out = out, .s = regex, .err = err};
    int rc = 0;
    if (regex.n > MAX_REGEX)
        return err_set(err, FLETCH_E_LIMIT, "a regex of %zu bytes; at most %d are supported",
                       regex.n, MAX_REGEX);
    if (regex.n && memchr(regex.p, 0, regex.n))
        return err_set(err, FLETCH_E_UNSUPPORTED, "the regex %s contains a NUL", QUOTE(regex));
    while (r.at < regex.n && rc == 0) rc = regex_one(&r);
    if (rc == 0 && out->failed) rc = err_nomem(err, "a regex");
    return rc;
}

void tok_regex_quote(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if ((u8)c < 0x80 && !is_alnum(c) && c != '\n') buf_putc(out, '\\');
        buf_putc(out, c);
    }
}

struct tok_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

int tok_regex_open(struct tok_regex **out, struct str regex, struct err *err)
{
    struct tok_regex *re = *out = calloc(1, sizeof *re);
    struct buf b = {0};
    int code = 0, rc;
    size_t at = 0;
    if (!re) return err_nomem(err, "a regex");
    if (str_is(regex, TAIL_BLANKS)) {
        buf_puts(&b, "(?<![" TOK_WHITE "])[" TOK_WHITE "]+(?=\\n|\\z)");
        rc = b.failed ? err_nomem(err, "a regex") : 0;
    } else {
        rc = tok_regex_translate(&b, regex, err);
    }
    if (rc == 0) {
        re->code = pcre2_compile((PCRE2_SPTR)(b.p ? b.p : ""), b.n, PCRE2_UTF | PCRE2_UCP, &code,
                                 &at, NULL);
        re->limits = pcre2_match_context_create(NULL);
        if (!re->code) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(code, why, sizeof why);
            rc = err_set(err, FLETCH_E_UNSUPPORTED, "the regex %s is not supported: %s",
                         QUOTE(regex), (const char *)why);
        } else if (!re->limits) {
            rc = err_nomem(err, "a regex");
        }
    }
    buf_free(&b);
    if (rc) {
        tok_regex_close(re);
        *out = NULL;
        return rc;
    }
    /* Where there is no JIT the interpreter gives the same answer. */
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    pcre2_set_match_limit(re->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(re->limits, DEPTH_LIMIT);
    return 0;
}

void tok_regex_close(struct tok_regex *re)
{
    if (!re) return;
    pcre2_code_free(re->code);
    pcre2_match_context_free(re->limits);
    free(re);
}

void *tok_regex_match(void)
{
    return pcre2_match_data_create(1, NULL);
}

void tok_regex_match_free(void *match)
{
    pcre2_match_data_free(match);
}

int tok_regex_next(struct tok_regex_iter *it, struct err *err)
{
    while (it->at <= it->text.n) {
        int rc = pcre2_match(it->re->code, (PCRE2_SPTR)it->text.p, it->text.n, it->at,
                             PCRE2_NO_UTF_CHECK, it->match, it->re->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return err_set(err, FLETCH_E_LIMIT,
                           "the pre-tokenizer's regex failed on this text (PCRE2 error %d)", rc);
        const size_t *span = pcre2_get_ovector_pointer(it->match);
        if (span[0] < span[1] || !it->matched || span[1] != it->end) {
            it->begin = span[0];
            it->at = it->end = span[1];
            it->matched = true;
            return 1;
        }
        if (it->at == it->text.n) break;
        it->at += (size_t)utf8_check(it->text.p + it->at, it->text.n - it->at);
    }
    it->at = it->text.n + 1;
    return 0;
}
