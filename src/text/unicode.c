#include "text/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Sorting marks into canonical order is quadratic in the length of their run. No writing has runs
 * like this; a longer one is normalised in parts, so that hostile text takes linear time. */
enum { MAX_MARKS = 256 };

int utf8_check(const char *p, size_t n)
{
    u8 c = (u8)p[0], low = 0x80, high = 0xbf;
    size_t len;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return -1;
    if (c < 0xe0) {
        len = 2;
    } else if (c < 0xf0) {
        len = 3;
        if (c == 0xe0) low = 0xa0;
        if (c == 0xed) high = 0x9f;
    } else {
        len = 4;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f;
    }
    for (size_t i = 1; i < len; i++) {
        if (i == n) return 0;
        u8 d = (u8)p[i];
        if (d < low || d > high) return -1;
        low = 0x80;
        high = 0xbf;
    }
    return (int)len;
}

size_t utf8_run(struct str s, size_t at)
{
    while (at < s.n) {
        int len = utf8_check(s.p + at, s.n - at);
        if (len <= 0) break;
        at += (size_t)len;
    }
    return at;
}

bool unicode_is_white(i32 c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool unicode_is_word(i32 c)
{
    if (c < 0) return false;
    utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC;
}

/* s is valid and has no long run of marks. */
static bool normalise_part(struct buf *out, struct str s, enum unicode_form form)
{
    static const utf8proc_option_t options[] = {
        [UNICODE_NFC] = UTF8PROC_COMPOSE,
        [UNICODE_NFD] = UTF8PROC_DECOMPOSE,
        [UNICODE_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [UNICODE_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *p = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &p,
                                      UTF8PROC_STABLE | options[form]);
    if (n < 0) return false;
    buf_put(out, p, (size_t)n);
    free(p);
    return !out->failed;
}

static bool normalise_valid(struct buf *out, struct str s, enum unicode_form form)
{
    size_t start = 0, n_marks = 0;
    for (size_t i = 0; i < s.n;) {
        utf8proc_int32_t cp;
        size_t at = i;
        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s.p + i,
                                      (utf8proc_ssize_t)(s.n - i), &cp);
        n_marks = utf8proc_get_property(cp)->combining_class ? n_marks + 1 : 0;
        if (n_marks <= MAX_MARKS) continue;
        if (!normalise_part(out, (struct str){s.p + start, at - start}, form)) return false;
        start = at;
        n_marks = 1;
    }
    return normalise_part(out, (struct str){s.p + start, s.n - start}, form);
}

bool unicode_normalise(struct buf *out, struct str s, enum unicode_form form)
{
    for (size_t at = 0; at < s.n;) {
        size_t end = utf8_run(s, at);
        if (end > at && !normalise_valid(out, (struct str){s.p + at, end - at}, form)) return false;
        if (end < s.n) buf_putc(out, s.p[end++]);
        at = end;
    }
    return !out->failed;
}
