/* Numbers between bounds, as alternatives of digits. */
#include <math.h>
#include <string.h>

#include "serve/schema_internal.h"

enum { DIGITS = 18 }; /* of a whole number: fits every 64-bit reader */
static const i64 MOST = 999999999999999999;

struct bounds {
    i64 lo, hi;
};

static void put_digit(struct buf *b, char lo, char hi)
{
    if (lo == hi)
        buf_printf(b, "\"%c\" ", lo);
    else
        buf_printf(b, "[%c-%c] ", lo, hi);
}

static bool all_are(const char *s, size_t n, char digit)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != digit) return false;
    return true;
}

/* Numbers of n digits from lo to hi, leading zeros included. */
static void put_same_length(struct buf *b, const char *lo, const char *hi, size_t n)
{
    static const char nines[] = "999999999999999999", zeros[] = "000000000000000000";
    if (n == 0) return;
    if (all_are(lo, n, '0') && all_are(hi, n, '9')) {
        buf_printf(b, "[0-9]{%zu} ", n);
        return;
    }
    if (lo[0] == hi[0]) {
        put_digit(b, lo[0], hi[0]);
        put_same_length(b, lo + 1, hi + 1, n - 1);
        return;
    }
    bool whole_lo = all_are(lo + 1, n - 1, '0'), whole_hi = all_are(hi + 1, n - 1, '9');
    char from = (char)(lo[0] + !whole_lo), to = (char)(hi[0] - !whole_hi);
    buf_puts(b, "( ");
    if (!whole_lo) {
        put_digit(b, lo[0], lo[0]);
        put_same_length(b, lo + 1, nines, n - 1);
        buf_puts(b, "| ");
    }
    if (from <= to) {
        put_digit(b, from, to);
        if (n > 1) buf_printf(b, "[0-9]{%zu} ", n - 1);
    }
    if (!whole_hi) {
        if (from <= to) buf_puts(b, "| ");
        put_digit(b, hi[0], hi[0]);
        put_same_length(b, zeros, hi + 1, n - 1);
    }
    buf_puts(b, ") ");
}

/* lo..hi, neither below 0, as one group. */
static void put_range(struct buf *b, i64 lo, i64 hi)
{
    i64 low = 0, high = 9;
    bool any = false;
    buf_puts(b, "( ");
    for (int n = 1; n <= DIGITS; n++) {
        char from[24], to[24];
        i64 first = MAX(lo, low), last = MIN(hi, high);
        low = high + 1;
        high = n < DIGITS ? high * 10 + 9 : high;
        if (first > last) continue;
        snprintf(from, sizeof from, "%lld", (long long)first);
        snprintf(to, sizeof to, "%lld", (long long)last);
        if (any) buf_puts(b, "| ");
        put_same_length(b, from, to, (size_t)n);
        any = true;
    }
    buf_puts(b, ") ");
}

/* Bounds of whole numbers; for others they must be whole and not exclusive. */
static void read_bound(struct schemac *c, const json_t *s, const char *key, bool integer,
                       struct bounds *b)
{
    const json_t *v = json_object_get(s, key);
    bool low = strstr(key, "in") != NULL, exclusive = key[0] == 'e';
    if (!v) return;
    if (!json_is_number(v)) {
        schema_fail(c, FLETCH_E_ARG, "%s is not a number", key);
        return;
    }
    double d = json_number_value(v);
    if (!integer && (exclusive || d != floor(d))) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "%s of a number is supported only as an integer minimum or maximum", key);
        return;
    }
    if (fabs(d) > (double)MOST) { /* out of reach: nothing to keep, or nothing left */
        if (low && d > 0) b->lo = MOST + 1;
        if (!low && d < 0) b->hi = -MOST - 1;
        return;
    }
    i64 whole = json_is_integer(v) ? json_integer_value(v) : (i64)(low ? ceil(d) : floor(d));
    if (exclusive && (json_is_integer(v) || (double)whole == d)) whole += low ? 1 : -1;
    if (low)
        b->lo = MAX(b->lo, whole);
    else
        b->hi = MIN(b->hi, whole);
}

/* False after an error. */
static bool read_bounds(struct schemac *c, const json_t *s, bool integer, struct bounds *b)
{
    static const char *const keys[] = {"minimum", "exclusiveMinimum", "maximum",
                                       "exclusiveMaximum"};
    *b = (struct bounds){-MOST, MOST};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) read_bound(c, s, keys[i], integer, b);
    const json_t *step = json_object_get(s, "multipleOf");
    if (step && !(integer && json_is_integer(step) && json_integer_value(step) == 1))
        schema_fail(c, FLETCH_E_UNSUPPORTED, "this multipleOf is not supported");
    if (!c->rc && b->lo > b->hi)
        schema_fail(c, FLETCH_E_ARG, "no number of at most %d digits is between the bounds",
                    DIGITS);
    return !c->rc;
}

void schema_put_integer(struct schemac *c, struct buf *b, const json_t *s)
{
    struct bounds r;
    if (!read_bounds(c, s, true, &r)) return;
    if (r.lo == -MOST && r.hi == MOST) {
        buf_puts(b, "integer ");
        return;
    }
    buf_puts(b, "( ");
    if (r.lo < 0) {
        buf_puts(b, "\"-\" ");
        put_range(b, MAX(1, -r.hi), -r.lo);
    }
    if (r.lo < 0 && r.hi >= 0) buf_puts(b, "| ");
    if (r.hi >= 0) put_range(b, MAX(0, r.lo), r.hi);
    buf_puts(b, ") ");
}

/* lo..hi, neither below 0, with digits behind the point except behind hi. */
static void put_decimals(struct buf *b, i64 lo, i64 hi)
{
    buf_puts(b, "( ");
    if (lo < hi) {
        put_range(b, lo, hi - 1);
        buf_puts(b, "fraction? | ");
    }
    buf_printf(b, "\"%lld\" (\".\" \"0\"{1,16})? ) ", (long long)hi);
}

void schema_put_number(struct schemac *c, struct buf *b, const json_t *s)
{
    struct bounds r;
    if (!read_bounds(c, s, false, &r)) return;
    if (r.lo == -MOST && r.hi == MOST) {
        buf_puts(b, "number ");
        return;
    }
    buf_puts(b, "( ");
    if (r.lo < 0) {
        buf_puts(b, "\"-\" ");
        put_decimals(b, MAX(0, -r.hi), -r.lo);
    }
    if (r.lo < 0 && r.hi >= 0) buf_puts(b, "| ");
    if (r.hi >= 0) put_decimals(b, MAX(0, r.lo), r.hi);
    buf_puts(b, ") ");
}
