#include "format/json.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"

/* jansson reads integers as i64 and fails on larger ones, but Hugging Face writes "no limit" as
 * 1e30 spelled out in digits. Such a number is passed on as a real, by putting ".0" behind it. */
enum { INT_DIGITS = 18 };

struct scan {
    const char *what;
    struct str text;
    struct buf copy; /* used only once a long integer was met */
    size_t copied;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_string(struct str t, size_t i)
{
    for (i++; i < t.n && t.p[i] != '"'; i++)
        if (t.p[i] == '\\') i++;
    return i + 1;
}

/* t.p[i] is a digit outside a string, where a number's integer part starts. */
static size_t skip_number(struct scan *s, size_t i)
{
    struct str t = s->text;
    size_t start = i;
    while (i < t.n && is_digit(t.p[i])) i++;
    bool integer = i == t.n || (t.p[i] != '.' && t.p[i] != 'e' && t.p[i] != 'E');
    if (integer && i - start > INT_DIGITS) {
        buf_put(&s->copy, t.p + s->copied, i - s->copied);
        buf_puts(&s->copy, ".0");
        s->copied = i;
    }
    while (i < t.n && (is_digit(t.p[i]) || t.p[i] == '.' || t.p[i] == 'e' || t.p[i] == 'E' ||
                       t.p[i] == '+' || t.p[i] == '-'))
        i++;
    return i;
}

/* Bounds the depth before a recursive parser sees the text. */
static int scan_text(struct scan *s, struct err *err)
{
    struct str t = s->text;
    int depth = 0, line = 1;
    for (size_t i = 0; i < t.n;) {
        char c = t.p[i];
        if (c == '"') {
            i = skip_string(t, i);
            continue;
        }
        if (is_digit(c)) {
            i = skip_number(s, i);
            continue;
        }
        if (c == '\n') line++;
        if (c == '}' || c == ']') depth--;
        if ((c == '{' || c == '[') && ++depth > JSON_MAX_DEPTH)
            return err_set(err, FLETCH_E_LIMIT, "%s:%d: nested deeper than %d levels", s->what,
                           line, JSON_MAX_DEPTH);
        i++;
    }
    if (s->copied) buf_put(&s->copy, t.p + s->copied, t.n - s->copied);
    return s->copy.failed ? err_nomem(err, s->what) : 0;
}

int json_parse(json_t **out, struct str text, const char *what, struct err *err)
{
    struct scan s = {.what = what, .text = text};
    json_error_t e;
    *out = NULL;
    int rc = scan_text(&s, err);
    if (rc == 0) {
        struct str t = s.copied ? buf_str(&s.copy) : text;
        *out = json_loadb(t.p ? t.p : "", t.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
        if (!*out)
            rc = err_set(err, FLETCH_E_FORMAT, "%s:%d: bad JSON: %s", what, e.line,
                         QUOTE(str_of(e.text)));
    }
    buf_free(&s.copy);
    return rc;
}

int json_read(json_t **out, const char *path, size_t max, struct err *err)
{
    char *text;
    size_t n;
    *out = NULL;
    int rc = file_read(&text, &n, path, max, err);
    if (rc) return rc;
    rc = json_parse(out, (struct str){text, n}, path, err);
    free(text);
    return rc;
}
