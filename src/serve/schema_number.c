/* Numbers between bounds, and multiples of a step, as alternatives of digits. Bounds are decimal:
 * 0.1 means the text 0.1. Numbers are told apart from an exclusive bound by no more digits than
 * every reader keeps. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

enum {
    WHOLE = 18,  /* digits of a whole number: fits every 64-bit reader */
    BEHIND = 16, /* digits behind the point */
    ALL = WHOLE + BEHIND,
    EXACT = 15, /* digits that a double keeps */
    MAX_STEP_RULES = 4096,
};
static const u64 MAX_STEP = 1000000000;

/* ---- decimals ---- */

bool schema_read_decimal(const json_t *v, struct schema_decimal *d)
{
    char text[40];
    if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, json_real_value(v));
            if (strtod(text, NULL) == json_real_value(v)) break;
        }
    }
    *d = (struct schema_decimal){.below = text[0] == '-'};
    bool point = false;
    const char *p = text + d->below;
    for (; *p && *p != 'e'; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9') return false;
        if (d->n || *p != '0') d->digits[d->n++] = *p;
        d->exponent -= point;
    }
    if (*p == 'e') d->exponent += atoi(p + 1);
    while (d->n && d->digits[d->n - 1] == '0') {
        d->n--;
        d->exponent++;
    }
    return true;
}

static u64 greatest_divisor(u64 a, u64 b)
{
    while (b) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A multipleOf as units / 10^behind. False: it has too many digits. */
static bool read_step(const json_t *step, u64 *units, u32 *behind)
{
    struct schema_decimal d;
    if (!schema_read_decimal(step, &d) || d.below || !d.n || d.exponent < -BEHIND) return false;
    *units = 0;
    for (int i = 0; i < d.n; i++) {
        *units = *units * 10 + (u64)(d.digits[i] - '0');
        if (*units > MAX_STEP) return false;
    }
    for (int i = 0; i < d.exponent; i++)
        if ((*units *= 10) > MAX_STEP) return false;
    *behind = d.exponent < 0 ? (u32)-d.exponent : 0;
    return true;
}

bool schema_is_multiple(struct schemac *c, const json_t *v, const json_t *step)
{
    struct schema_decimal d;
    u64 units, rest = 0;
    u32 behind;
    if (json_number_value(step) <= 0) {
        schema_fail(c, FLETCH_E_ARG, "multipleOf must be greater than 0");
        return false;
    }
    if (!read_step(step, &units, &behind) || !schema_read_decimal(v, &d) || d.exponent > 400) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "multipleOf %g has too many digits; use at most 9 digits, 16 of them after "
                    "the point",
                    json_number_value(step));
        return false;
    }
    if (d.n && d.exponent < -(int)behind) return false; /* digits that no multiple has */
    for (int i = 0; i < d.n; i++) rest = (rest * 10 + (u64)(d.digits[i] - '0')) % units;
    for (int i = 0; d.n && i < d.exponent + (int)behind; i++) rest = rest * 10 % units;
    return rest == 0;
}

/* ---- bounds ---- */

/* WHOLE digits, then BEHIND. */
struct fixed {
    char d[ALL];
};

/* Numbers that are not below 0, from lo to hi. */
struct range {
    struct fixed lo, hi;
    bool lo_open, hi_open; /* the bound itself is not in it */
    bool empty;
};

static bool all_are(const char *s, size_t n, char digit)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != digit) return false;
    return true;
}

/* False: too large. Digits for which there is no room are dropped; `cut` says that one was not 0.
 */
static bool to_fixed(const struct schema_decimal *d, struct fixed *f, bool *cut)
{
    *cut = false;
    memset(f->d, '0', ALL);
    for (int i = 0; i < d->n; i++) {
        long at = WHOLE - 1 - ((long)d->n - 1 - i + d->exponent);
        if (at < 0) return false;
        if (at < ALL)
            f->d[at] = d->digits[i];
        else
            *cut |= d->digits[i] != '0';
    }
    return true;
}

static void raise_lo(struct range *r, const struct fixed *lo, bool open)
{
    int order = memcmp(lo->d, r->lo.d, ALL);
    if (order > 0) r->lo = *lo;
    if (order >= 0) r->lo_open = order > 0 ? open : r->lo_open || open;
}

static void lower_hi(struct range *r, const struct fixed *hi, bool open)
{
    int order = memcmp(hi->d, r->hi.d, ALL);
    if (order < 0) r->hi = *hi;
    if (order <= 0) r->hi_open = order < 0 ? open : r->hi_open || open;
}

/* Numbers from 0 on, and those below, without their sign. */
struct bounds {
    struct range above, below;
    bool given;
    int exact; /* digits before the point of the longest exclusive bound */
};

static void apply(struct bounds *b, const json_t *v, bool low, bool open)
{
    struct schema_decimal d;
    struct fixed f;
    bool cut = false, fits = schema_read_decimal(v, &d) && to_fixed(&d, &f, &cut);
    bool least = low != d.below; /* of sizes: the bound is the least of them */
    struct range *mine = d.below ? &b->below : &b->above;
    struct range *other = d.below ? &b->above : &b->below;
    b->given = true;
    other->empty |= least;
    if (!fits) {
        mine->empty |= least;
        return;
    }
    if (open) b->exact = MAX(b->exact, d.n + d.exponent);
    if (least)
        raise_lo(mine, &f, open || cut);
    else
        lower_hi(mine, &f, open && !cut);
}

/* What OpenAPI's formats of numbers say about their size. */
static void apply_format(struct bounds *b, const char *format)
{
    static const struct {
        const char *name;
        double lo, hi;
    } formats[] = {
        {"float", -3.4e38, 3.4e38}, {"int16", -32768, 32767}, {"int32", -0x1p31, 0x1p31 - 1},
        {"int8", -128, 127},        {"uint16", 0, 65535},     {"uint32", 0, 0x1p32 - 1},
        {"uint64", 0, 0x1p64},      {"uint8", 0, 255},
    };
    for (size_t i = 0; format && i < ARRAY_LEN(formats); i++) {
        if (strcmp(format, formats[i].name) != 0) continue;
        json_t *lo = json_real(formats[i].lo), *hi = json_real(formats[i].hi);
        if (lo) apply(b, lo, true, false);
        if (hi) apply(b, hi, false, false);
        json_decref(lo);
        json_decref(hi);
    }
}

/* Whole numbers of a range; its digits behind the point stay only where they say "less than". */
static void make_whole(struct range *r)
{
    if (!all_are(r->lo.d + WHOLE, BEHIND, '0')) {
        memset(r->lo.d + WHOLE, '0', BEHIND);
        r->lo_open = true;
    }
    if (r->hi_open && all_are(r->hi.d + WHOLE, BEHIND, '0')) return;
    memset(r->hi.d + WHOLE, '9', BEHIND);
    r->hi_open = false;
}

static bool is_empty(const struct range *r)
{
    int order = memcmp(r->lo.d, r->hi.d, ALL);
    return r->empty || order > 0 || (order == 0 && (r->lo_open || r->hi_open));
}

/* ---- digits ---- */

/* Digits from `at` on such that all of them together, without the point, are a multiple. */
struct step_rule {
    u32 at, unused;
    u64 need; /* what they must be, of the rest of a division by the step */
};

struct digits {
    struct schemac *c;
    struct range r;
    u32 behind; /* digits behind the point at most */
    u64 step;   /* that the number without its point is a multiple of; 1: any number is */
    u32 name;
    struct step_rule *rules; /* [MAX_STEP_RULES] */
    u32 n_rules;
    struct strmap known;
};

/* Where in the number we are, and whether all digits before are those of a bound. */
struct place {
    u32 at;
    bool lo, hi;
    u64 need;
};

static u64 power10(u32 n, u64 below)
{
    u64 v = 1;
    while (n-- && v < below) v *= 10;
    return v;
}

static u32 step_rule(struct digits *g, u32 at, u64 need)
{
    u32 i = g->n_rules;
    if (i == MAX_STEP_RULES) {
        schema_fail(g->c, FLETCH_E_UNSUPPORTED,
                    "multipleOf has too many digits for a grammar; list the values in enum");
        return 0;
    }
    g->rules[i] = (struct step_rule){at, 0, need};
    struct str key = {(const char *)&g->rules[i], sizeof *g->rules};
    if (strmap_get(&g->known, key, &i)) return i;
    if (!strmap_add(&g->known, key, i)) schema_nomem(g->c);
    return g->n_rules++;
}

/* Digits that no bound limits any more. */
static void put_loose(struct digits *g, struct buf *b, u32 at, u64 need)
{
    if (g->step > 1) {
        buf_printf(b, "p%u-%u ", g->name, step_rule(g, at, need));
        return;
    }
    if (at < WHOLE) buf_printf(b, "[0-9]{%u} ", WHOLE - at);
    if (at <= WHOLE && g->behind) buf_printf(b, "( \".\" [0-9]{1,%u} )? ", g->behind);
    if (at > WHOLE) buf_printf(b, "[0-9]{0,%u} ", WHOLE + g->behind - at);
}

static bool may_end(const struct digits *g, struct place p)
{
    size_t left = ALL - p.at;
    if (p.lo && (g->r.lo_open || !all_are(g->r.lo.d + p.at, left, '0'))) return false;
    if (p.hi && g->r.hi_open && all_are(g->r.hi.d + p.at, left, '0')) return false;
    return p.need == 0;
}

/* After one more digit; false: nothing can follow. */
static bool next_place(const struct digits *g, struct place p, char digit, struct place *to)
{
    size_t left = ALL - p.at - 1;
    u32 n = WHOLE + g->behind - p.at - 1; /* digits that follow at most */
    const char *lo = g->r.lo.d + p.at, *hi = g->r.hi.d + p.at;
    *to = (struct place){.at = p.at + 1};
    to->lo = p.lo && digit == *lo && (g->r.lo_open || !all_are(lo + 1, left, '0'));
    to->hi = p.hi && digit == *hi && (g->r.hi_open || !all_are(hi + 1, left, '9'));
    if (g->step == 1) return true;
    u64 weight = 1;
    for (u32 i = 0; i < n; i++) weight = weight * 10 % g->step;
    to->need = (p.need + g->step - (u64)(digit - '0') * weight % g->step) % g->step;
    return to->need < power10(n, g->step);
}

static bool same_place(struct place a, struct place b)
{
    return a.lo == b.lo && a.hi == b.hi && a.need == b.need;
}

static void put_rest(struct digits *g, struct buf *b, struct place p);

/* The alternatives of one digit, each with what follows. */
static void put_digit(struct digits *g, struct buf *b, struct place p)
{
    char from = p.lo ? g->r.lo.d[p.at] : '0', to = p.hi ? g->r.hi.d[p.at] : '9';
    bool any = false;
    for (char digit = from, last; digit <= to && !g->c->rc; digit = (char)(last + 1)) {
        struct place next, other;
        last = digit;
        if (!next_place(g, p, digit, &next)) continue;
        while (last < to && next_place(g, p, (char)(last + 1), &other) && same_place(next, other))
            last++;
        if (any) buf_puts(b, "| ");
        buf_printf(b, digit == last ? "\"%c\" " : "[%c-%c] ", digit, last);
        put_rest(g, b, next);
        any = true;
    }
    if (!any) buf_puts(b, "[] ");
}

static void put_rest(struct digits *g, struct buf *b, struct place p)
{
    bool end = p.at >= WHOLE && may_end(g, p), more = p.at < WHOLE + g->behind;
    if (!p.lo && !p.hi) {
        put_loose(g, b, p.at, p.need);
    } else if (more) {
        buf_puts(b, p.at == WHOLE ? "( \".\" ( " : "( ");
        put_digit(g, b, p);
        buf_puts(b, p.at == WHOLE ? ") ) " : ") ");
        if (end) buf_puts(b, "? ");
    } else if (!end) {
        buf_puts(b, "[] ");
    }
}

/* The same for places without bounds, a rule each. */
static void put_step_rules(struct digits *g)
{
    for (u32 i = 0; i < g->n_rules && !g->c->rc; i++) {
        struct place p = {.at = g->rules[i].at, .need = g->rules[i].need};
        struct buf b = {.max = GRAMMAR_MAX_TEXT};
        bool end = p.at >= WHOLE && may_end(g, p), more = p.at < WHOLE + g->behind;
        if (p.at == WHOLE && more) buf_puts(&b, "\".\" ( ");
        if (more) put_digit(g, &b, p);
        if (p.at == WHOLE && more) buf_puts(&b, ") ");
        if (end) buf_puts(&b, more ? "| \"\"" : "\"\"");
        if (!end && !more) buf_puts(&b, "[]");
        buf_printf(&g->c->out, "p%u-%u ::= %s\n", g->name, i, b.p ? b.p : "");
        buf_free(&b);
    }
}

/* All numbers of n digits before the point that the range has; false: it has none. */
static bool clip(const struct range *all, u32 n, struct range *r)
{
    struct fixed first = {{0}}, last = {{0}};
    memset(first.d, '0', ALL);
    memset(last.d, '9', ALL);
    memset(last.d, '0', WHOLE - n);
    if (n > 1) first.d[WHOLE - n] = '1';
    *r = *all;
    if (n > 1) raise_lo(r, &first, false);
    lower_hi(r, &last, false);
    return !is_empty(r);
}

static bool is_full(const struct range *r, u32 n)
{
    return !r->lo_open && !r->hi_open && r->lo.d[WHOLE - n] == '1' &&
           all_are(r->lo.d + WHOLE - n + 1, ALL - WHOLE + n - 1, '0') &&
           all_are(r->hi.d + WHOLE - n, ALL - WHOLE + n, '9');
}

/* The numbers of a range, as alternatives by their lengths. */
static bool put_range(struct digits *g, struct buf *b, const char *sign, const struct range *all)
{
    bool any = false;
    for (u32 n = 1; n <= WHOLE && !g->c->rc; n++) {
        u32 last = n;
        if (!clip(all, n, &g->r)) continue;
        buf_printf(b, "%s%s ", any ? "| " : "", sign);
        any = true;
        if (g->step == 1 && n > 1 && is_full(&g->r, n)) {
            while (last < WHOLE && clip(all, last + 1, &g->r) && is_full(&g->r, last + 1)) last++;
            buf_printf(b, "[1-9] [0-9]{%u,%u} ", n - 1, last - 1);
            put_loose(g, b, WHOLE, 0);
            n = last;
            continue;
        }
        put_rest(g, b, (struct place){.at = WHOLE - n, .lo = true, .hi = true});
    }
    return any;
}

/* ---- the keyword group ---- */

static void put_numbers(struct schemac *c, struct buf *b, struct bounds *bounds, u64 step,
                        u32 behind, u32 name)
{
    struct digits g = {.c = c, .behind = behind, .step = step, .name = name};
    bool any = false;
    if (step > 1) g.rules = calloc(MAX_STEP_RULES, sizeof *g.rules);
    if (step > 1 && !g.rules) schema_nomem(c);
    if (!behind) make_whole(&bounds->above);
    if (!behind) make_whole(&bounds->below);
    if (!bounds->below.empty) any = put_range(&g, b, "\"-\"", &bounds->below);
    size_t before = b->n;
    if (any) buf_puts(b, "| ");
    bool more = !bounds->above.empty && put_range(&g, b, "", &bounds->above);
    if (any && !more && b->p && !b->failed) b->p[b->n = before] = 0;
    if (!any && !more) buf_puts(b, "[] ");
    put_step_rules(&g);
    strmap_free(&g.known);
    free(g.rules);
}

/* The units that the number without its point is a multiple of, and how many digits are behind the
 * point; false after an error. */
static bool find_step(struct schemac *c, const json_t *step, bool integer, u64 *units, u32 *behind)
{
    if (!step) return *units = 1, true;
    if (json_number_value(step) <= 0) {
        schema_fail(c, FLETCH_E_ARG, "multipleOf must be greater than 0");
        return false;
    }
    if (!read_step(step, units, behind)) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "multipleOf %g has too many digits; use at most 9 digits, 16 of them after "
                    "the point",
                    json_number_value(step));
        return false;
    }
    if (integer) {
        *units /= greatest_divisor(*units, power10(*behind, UINT64_MAX / 10));
        *behind = 0;
    }
    return true;
}

/* Digits that multiples of a step may have, so that every reader keeps them and rules are few: one
 * for each rest that the digits before leave and those that are left can make up for. */
static u32 step_digits(u64 step)
{
    for (u32 digits = EXACT;; digits--) {
        u64 n = 0;
        for (u32 left = 0; left <= digits; left++) {
            u64 rests = step / greatest_divisor(power10(left, UINT64_MAX / 10), step);
            n += MIN(rests, MIN(power10(left, step), power10(digits - left, step)));
        }
        if (n <= MAX_STEP_RULES) return digits;
    }
}

/* False, with an error: nothing is left. */
static bool lower_to_digits(struct schemac *c, struct bounds *b, u32 digits, u32 behind)
{
    bool any = !is_empty(&b->above) || !is_empty(&b->below);
    struct fixed most;
    memset(most.d, '9', ALL);
    memset(most.d, '0', WHOLE - (digits > behind ? digits - behind : 1));
    lower_hi(&b->above, &most, false);
    lower_hi(&b->below, &most, false);
    if (any && is_empty(&b->above) && is_empty(&b->below))
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "multiples of multipleOf are supported up to %u digits; lower the bounds",
                    digits);
    return !c->rc;
}

void schema_put_number(struct schemac *c, struct buf *b, const json_t *s, u32 type)
{
    static const char *const keys[] = {"minimum",          "exclusiveMinimum", "maximum",
                                       "exclusiveMaximum", "multipleOf",       "format"};
    const json_t *step = json_object_get(s, "multipleOf");
    struct bounds bounds = {.exact = 0};
    bool integer = type == SCHEMA_INTEGER;
    u64 units = 1;
    u32 behind = 0, name;
    memset(&bounds.above.lo, '0', ALL);
    memset(&bounds.above.hi, '9', ALL);
    bounds.below = bounds.above;
    bounds.below.lo_open = true; /* no -0 */
    for (size_t i = 0; i < 4; i++) {
        const json_t *v = json_object_get(s, keys[i]);
        if (v) apply(&bounds, v, i < 2, i % 2);
    }
    apply_format(&bounds, json_string_value(json_object_get(s, "format")));
    if (!find_step(c, step, integer, &units, &behind)) return;
    if (!bounds.given && (!step || (integer && units == 1))) {
        buf_puts(b, integer ? "integer " : "number ");
        return;
    }
    if (!integer && !step) behind = (u32)MAX(0, MIN((int)BEHIND, EXACT - bounds.exact));
    if (step && !lower_to_digits(c, &bounds, step_digits(units), behind)) return;
    if (!schema_find_part(c, integer ? "integer" : "number", s, keys, ARRAY_LEN(keys), &name)) {
        struct buf rule = {.max = GRAMMAR_MAX_TEXT};
        put_numbers(c, &rule, &bounds, units, behind, name);
        schema_put_part(c, &rule, name);
        buf_free(&rule);
    }
    buf_printf(b, "p%u ", name);
}
