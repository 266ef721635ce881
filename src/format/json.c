/* A parser of our own that makes jansson's values: jansson's refuses object keys with a NUL, which
 * published tokenizers have, and integers beyond 64 bits, which Hugging Face writes for "no limit"
 * (they become reals here). Keys and strings carry their length. */
#include "format/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

struct json_reader {
    const char *what;
    struct str text;
    size_t at;
    bool python; /* takes Infinity, which Python writes */
    int depth;
    struct buf scratch; /* the string or number being read */
    struct err *err;
};

static int json_line(const struct json_reader *r)
{
    int line = 1;
    for (size_t i = 0; i < r->at && i < r->text.n; i++) line += r->text.p[i] == '\n';
    return line;
}

static int json_bad(struct json_reader *r, const char *why)
{
    return err_set(r->err, FLETCH_E_FORMAT, "%s, line %d: invalid JSON: %s", r->what, json_line(r),
                   why);
}

/* The next character, or 0 at the end: a NUL can't begin anything. */
static char json_peek(const struct json_reader *r)
{
    return r->at < r->text.n ? r->text.p[r->at] : 0;
}

static void json_skip_blanks(struct json_reader *r)
{
    while (r->at < r->text.n && memchr(" \t\n\r", r->text.p[r->at], 4)) r->at++;
}

static bool json_take(struct json_reader *r, char c)
{
    if (json_peek(r) != c) return false;
    r->at++;
    return true;
}

/* Four hexadecimal digits, or -1. */
static int json_hex4(struct json_reader *r)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = json_peek(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
        r->at++;
    }
    return v;
}

static void json_put_char(struct buf *out, u32 c)
{
    if (c >= 0x10000) {
        buf_putc(out, (char)(0xf0 | c >> 18));
        buf_putc(out, (char)(0x80 | (c >> 12 & 0x3f)));
    } else if (c >= 0x800) {
        buf_putc(out, (char)(0xe0 | c >> 12));
    }
    if (c >= 0x800) buf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
    if (c >= 0x80 && c < 0x800) buf_putc(out, (char)(0xc0 | c >> 6));
    buf_putc(out, (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c));
}

/* After "\u". */
static int json_unicode_escape(struct json_reader *r)
{
    int high = json_hex4(r), low = -1;
    if (high < 0) return json_bad(r, "\\u must be followed by four hexadecimal digits");
    if (high >= 0xd800 && high < 0xdc00 && json_take(r, '\\') && json_take(r, 'u'))
        low = json_hex4(r);
    if (high < 0xd800 || high > 0xdfff) {
        json_put_char(&r->scratch, (u32)high);
        return 0;
    }
    if (high >= 0xdc00 || low < 0xdc00 || low > 0xdfff)
        return json_bad(r, "an incomplete surrogate pair");
    json_put_char(&r->scratch, 0x10000 + ((u32)(high - 0xd800) << 10 | (u32)(low - 0xdc00)));
    return 0;
}

static int json_escape(struct json_reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = json_peek(r);
    const char *found = c ? strchr(names, c) : NULL;
    if (c == 'u') {
        r->at++;
        return json_unicode_escape(r);
    }
    if (!found) return json_bad(r, "an unknown escape in a string");
    buf_putc(&r->scratch, values[found - names]);
    r->at++;
    return 0;
}

/* Appends a string to scratch. */
static int json_read_string(struct json_reader *r)
{
    if (!json_take(r, '"')) return json_bad(r, "a string is expected here");
    for (;;) {
        size_t start = r->at;
        while (r->at < r->text.n && (u8)r->text.p[r->at] >= 0x20 && r->text.p[r->at] != '"' &&
               r->text.p[r->at] != '\\')
            r->at++;
        buf_put(&r->scratch, r->text.p + start, r->at - start);
        if (r->at == r->text.n) return json_bad(r, "missing \" at the end");
        char c = r->text.p[r->at];
        if ((u8)c < 0x20) return json_bad(r, "a control character in a string");
        r->at++;
        if (c == '"') return r->scratch.failed ? err_nomem(r->err, r->what) : 0;
        int rc = json_escape(r);
        if (rc) return rc;
    }
}

/* What scratch holds from `start`. */
static struct str json_scratch(const struct json_reader *r, size_t start)
{
    return (struct str){r->scratch.p ? r->scratch.p + start : "", r->scratch.n - start};
}

/* jansson takes well-formed UTF-8 only: names the byte that begins no character. */
static int json_bad_text(struct json_reader *r, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        u8 c = (u8)s.p[i];
        size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        json_t *one = json_stringn(s.p + i, MIN(n, s.n - i));
        if (!one)
            return err_set(r->err, FLETCH_E_FORMAT,
                           "%s, line %d: invalid JSON: byte 0x%02x is not UTF-8", r->what,
                           json_line(r), c);
        json_decref(one);
        i += n;
    }
    return err_nomem(r->err, r->what);
}

static bool json_take_digits(struct json_reader *r)
{
    size_t start = r->at;
    while (json_peek(r) >= '0' && json_peek(r) <= '9') r->at++;
    return r->at > start;
}

static int json_read_number(struct json_reader *r, json_t **out)
{
    size_t start = r->at, old = r->scratch.n;
    bool integer = true, ok;
    json_take(r, '-');
    size_t first = r->at;
    ok = json_take_digits(r) && (r->text.p[first] != '0' || r->at == first + 1);
    if (ok && json_take(r, '.')) {
        integer = false;
        ok = json_take_digits(r);
    }
    if (ok && (json_take(r, 'e') || json_take(r, 'E'))) {
        integer = false;
        if (!json_take(r, '-')) json_take(r, '+');
        ok = json_take_digits(r);
    }
    if (!ok) return json_bad(r, "this is not a JSON value");
    buf_put(&r->scratch, r->text.p + start, r->at - start);
    if (r->scratch.failed) return err_nomem(r->err, r->what);
    const char *digits = json_scratch(r, old).p;
    errno = 0;
    long long whole = integer ? strtoll(digits, NULL, 10) : 0;
    bool exact = integer && errno == 0;
    double d = strtod(digits, NULL);
    r->scratch.n = old;
    if (!isfinite(d)) return json_bad(r, "a number outside the range of a double");
    *out = exact ? json_integer(whole) : json_real(d);
    return *out ? 0 : err_nomem(r->err, r->what);
}

static int json_read_value(struct json_reader *r, json_t **out);

static int json_read_member(struct json_reader *r, json_t *object)
{
    json_t *v = NULL;
    size_t start = r->scratch.n;
    int rc = json_read_string(r);
    if (rc) return rc;
    struct str key = json_scratch(r, start);
    if (json_object_getn(object, key.p, key.n))
        return err_set(r->err, FLETCH_E_FORMAT, "%s, line %d: invalid JSON: duplicate key %s",
                       r->what, json_line(r), QUOTE(key));
    json_skip_blanks(r);
    if (!json_take(r, ':')) return json_bad(r, "missing : after a key");
    if ((rc = json_read_value(r, &v))) return rc;
    key = json_scratch(r, start); /* the value's strings may have moved it */
    if (json_object_setn_new(object, key.p, key.n, v)) rc = json_bad_text(r, key);
    r->scratch.n = start;
    return rc;
}

static int json_read_element(struct json_reader *r, json_t *array)
{
    json_t *v = NULL;
    int rc = json_read_value(r, &v);
    if (rc) return rc;
    return json_array_append_new(array, v) ? err_nomem(r->err, r->what) : 0;
}

/* After [ or {. */
static int json_read_members(struct json_reader *r, json_t *v, char end,
                             int (*member)(struct json_reader *, json_t *))
{
    char why[64];
    int rc = 0;
    json_skip_blanks(r);
    if (json_take(r, end)) return 0;
    while (rc == 0) {
        json_skip_blanks(r);
        rc = member(r, v);
        json_skip_blanks(r);
        if (rc || json_take(r, end)) return rc;
        if (json_take(r, ',')) continue;
        snprintf(why, sizeof why, r->at == r->text.n ? "missing %c at the end" : "missing , or %c",
                 end);
        rc = json_bad(r, why);
    }
    return rc;
}

/* The depth is bounded because this recurses. */
static int json_read_nested(struct json_reader *r, json_t **out)
{
    bool object = r->text.p[r->at++] == '{';
    if (++r->depth > JSON_MAX_DEPTH)
        return err_set(r->err, FLETCH_E_LIMIT, "%s, line %d: nested deeper than %d levels", r->what,
                       json_line(r), JSON_MAX_DEPTH);
    json_t *v = object ? json_object() : json_array();
    if (!v) return err_nomem(r->err, r->what);
    int rc =
        json_read_members(r, v, object ? '}' : ']', object ? json_read_member : json_read_element);
    r->depth--;
    if (rc)
        json_decref(v);
    else
        *out = v;
    return rc;
}

static int json_read_text(struct json_reader *r, json_t **out)
{
    size_t start = r->scratch.n;
    int rc = json_read_string(r);
    if (rc) return rc;
    struct str s = json_scratch(r, start);
    *out = json_stringn(s.p, s.n);
    if (!*out) return json_bad_text(r, s);
    r->scratch.n = start;
    return 0;
}

static int json_read_value(struct json_reader *r, json_t **out)
{
    json_skip_blanks(r);
    struct str rest = {r->text.p + r->at, r->text.n - r->at};
    if (!rest.n) return json_bad(r, "a value is missing at the end");
    if (*rest.p == '{' || *rest.p == '[') return json_read_nested(r, out);
    if (*rest.p == '"') return json_read_text(r, out);
    if (str_starts(rest, "true") || str_starts(rest, "null")) {
        r->at += 4;
        *out = *rest.p == 't' ? json_true() : json_null();
        return 0;
    }
    /* Python's, in files alone: no number of JSON, and "no limit" where models are described */
    if (r->python && str_starts(rest, "Infinity")) {
        r->at += 8;
        *out = json_null();
        return 0;
    }
    if (str_starts(rest, "false")) {
        r->at += 5;
        *out = json_false();
        return 0;
    }
    return json_read_number(r, out);
}

static int parse(json_t **out, struct str text, const char *what, bool python, struct err *err)
{
    struct json_reader r = {.what = what, .text = text, .python = python, .err = err};
    *out = NULL;
    int rc = 0;
    json_skip_blanks(&r);
    if (json_peek(&r) != '{' && json_peek(&r) != '[')
        rc = json_bad(&r, "it must start with { or [");
    if (rc == 0) rc = json_read_nested(&r, out);
    if (rc == 0) {
        json_skip_blanks(&r);
        if (r.at < text.n) rc = json_bad(&r, "unexpected text after the end");
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    buf_free(&r.scratch);
    return rc;
}

int json_parse(json_t **out, struct str text, const char *what, struct err *err)
{
    return parse(out, text, what, false, err);
}

int json_read(json_t **out, const char *path, size_t max, struct err *err)
{
    char *text;
    size_t n;
    *out = NULL;
    int rc = file_read(&text, &n, path, max, err);
    if (rc) return rc;
    rc = parse(out, (struct str){text, n}, path, true, err);
    free(text);
    return rc;
}
