/* Reads a subset of ECMA-262's regular expressions, in unicode mode. */
#include "serve/schema_regex.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANGES = 512, MAX_NESTING = 48, N_CONTROLS = 0x20 };

struct class
{
    struct regex_range r[MAX_RANGES];
    u32 n;
    u32 controls; /* named ones, as bits */
    bool partial; /* a part of what was asked for */
};

struct reader {
    struct schemac *c;
    struct arena *arena;
    struct str text;
    size_t at;
    u32 nesting;
};

static void *fail(struct reader *x, const char *what)
{
    schema_fail(x->c, FLETCH_E_UNSUPPORTED, "pattern %s, at %zu: %s", QUOTE(x->text), x->at, what);
    return NULL;
}

static bool failed(const struct reader *x)
{
    return x->c->rc != 0;
}

static void *alloc(struct reader *x, size_t n, size_t size)
{
    void *got = arena_alloc(x->arena, n, size);
    if (!got) schema_nomem(x->c);
    return got;
}

static struct regex *node(struct reader *x, enum regex_kind kind)
{
    struct regex *r = alloc(x, 1, sizeof *r);
    if (r) r->kind = kind;
    return r;
}

static void add_part(struct regex *r, struct regex *part)
{
    if (!r || !part) return;
    if (r->last)
        r->last->next = part;
    else
        r->first = part;
    r->last = part;
}

/* ---- classes of characters ---- */

static char peek(const struct reader *x)
{
    return x->at < x->text.n ? x->text.p[x->at] : 0;
}

static bool take(struct reader *x, const char *what)
{
    size_t n = strlen(what);
    if (x->text.n - x->at < n || memcmp(x->text.p + x->at, what, n) != 0) return false;
    x->at += n;
    return true;
}

static void add_range(struct reader *x, struct class *s, u32 lo, u32 hi)
{
    if (s->n == MAX_RANGES)
        fail(x, "too many ranges in a class");
    else
        s->r[s->n++] = (struct regex_range){lo, hi};
}

/* The same for characters that were named. */
static void add(struct reader *x, struct class *s, u32 lo, u32 hi)
{
    for (u32 ch = lo; ch <= hi && ch < N_CONTROLS; ch++) s->controls |= 1u << ch;
    add_range(x, s, lo, hi);
}

static int by_lo(const void *a, const void *b)
{
    const struct regex_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* All other characters. */
static void negate(struct reader *x, struct class *s)
{
    struct class others = {.n = 0};
    u32 from = 0;
    if (s->partial) fail(x, "a Unicode property cannot be negated; list the characters in [...]");
    if (s->n) qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (u32 i = 0; i < s->n; i++) {
        if (s->r[i].lo > from) add_range(x, &others, from, s->r[i].lo - 1);
        from = MAX(from, s->r[i].hi + 1);
    }
    if (from <= REGEX_LAST_CHAR) add_range(x, &others, from, REGEX_LAST_CHAR);
    *s = others;
}

/* The text is valid UTF-8: it comes from a JSON document. */
static u32 take_utf8(struct reader *x)
{
    u32 ch = (u8)x->text.p[x->at++];
    u32 n = ch < 0x80 ? 0 : ch < 0xe0 ? 1 : ch < 0xf0 ? 2 : 3;
    if (n) ch &= 0x3fu >> n;
    for (; n && x->at < x->text.n; n--) ch = ch << 6 | ((u8)x->text.p[x->at++] & 0x3f);
    return ch;
}

static u32 take_hex(struct reader *x, u32 n)
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
static u32 take_unicode(struct reader *x)
{
    u32 n = 0;
    if (take(x, "{")) {
        while (x->at + n < x->text.n && x->text.p[x->at + n] != '}') n++;
        u32 v = n && n <= 6 ? take_hex(x, n) : REGEX_LAST_CHAR + 1;
        if (!take(x, "}") || v > REGEX_LAST_CHAR) fail(x, "braces without a code point");
        return v;
    }
    u32 v = take_hex(x, 4);
    if (v < 0xd800 || v >= 0xdc00 || !take(x, "\\u")) return v;
    u32 low = take_hex(x, 4);
    if (low < 0xdc00 || low >= 0xe000) fail(x, "a high surrogate without a low one");
    return 0x10000 + ((v - 0xd800) << 10) + ((low - 0xdc00) & 0x3ff);
}

static void add_all(struct reader *x, struct class *s, const struct regex_range *r, size_t n)
{
    for (size_t i = 0; i < n; i++) add(x, s, r[i].lo, r[i].hi);
}

/* What ends a line, and what \\s stands for. */
static const struct regex_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
static const struct regex_range spaces[] = {
    {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

/* Characters that have a property of Unicode: those of the scripts and blocks that are used most,
 * all of which had it in Unicode 15 and keep it. */
static const struct {
    const char *name;
    struct regex_range ranges[24];
} properties[] = {
    {"Emoji",
     {{0x23, 0x23},
      {0x2a, 0x2a},
      {0x30, 0x39},
      {0x231a, 0x231b},
      {0x2600, 0x2604},
      {0x1f300, 0x1f321},
      {0x1f337, 0x1f37c},
      {0x1f400, 0x1f4fd},
      {0x1f5fb, 0x1f64f},
      {0x1f680, 0x1f6c5},
      {0x1f90c, 0x1f93a},
      {0x1f93c, 0x1f945},
      {0x1f947, 0x1f9ff}}},
    {"Emoji_Component",
     {{0x23, 0x23},
      {0x2a, 0x2a},
      {0x30, 0x39},
      {0x200d, 0x200d},
      {0xfe0f, 0xfe0f},
      {0x1f1e6, 0x1f1ff},
      {0x1f3fb, 0x1f3ff}}},
    {"Emoji_Presentation",
     {{0x231a, 0x231b},
      {0x1f300, 0x1f320},
      {0x1f337, 0x1f37c},
      {0x1f3f8, 0x1f3fa},
      {0x1f400, 0x1f43e},
      {0x1f442, 0x1f4fc},
      {0x1f5fb, 0x1f64f},
      {0x1f680, 0x1f6c5},
      {0x1f90c, 0x1f93a},
      {0x1f93c, 0x1f945},
      {0x1f947, 0x1f9ff}}},
    {"Extended_Pictographic",
     {{0xa9, 0xa9},
      {0xae, 0xae},
      {0x203c, 0x203c},
      {0x231a, 0x231b},
      {0x2600, 0x2604},
      {0x2764, 0x2764},
      {0x1f300, 0x1f321},
      {0x1f324, 0x1f393},
      {0x1f400, 0x1f4fd},
      {0x1f5fb, 0x1f64f},
      {0x1f680, 0x1f6c5},
      {0x1f90c, 0x1f93a},
      {0x1f93c, 0x1f945},
      {0x1f947, 0x1f9ff}}},
    {"L", {{0x41, 0x5a},     {0x61, 0x7a},     {0xc0, 0xd6},     {0xd8, 0xf6},     {0xf8, 0x2af},
           {0x391, 0x3a1},   {0x3a3, 0x3e1},   {0x400, 0x481},   {0x48a, 0x52f},   {0x531, 0x556},
           {0x561, 0x587},   {0x5d0, 0x5ea},   {0x620, 0x64a},   {0x904, 0x939},   {0xe01, 0xe30},
           {0x10d0, 0x10fa}, {0x1e00, 0x1f15}, {0x3041, 0x3096}, {0x30a1, 0x30fa}, {0x4e00, 0x9fff},
           {0xac00, 0xd7a3}}},
    {"Ll",
     {{0x61, 0x7a}, {0xdf, 0xf6}, {0xf8, 0xff}, {0x3b1, 0x3ce}, {0x430, 0x45f}, {0x561, 0x587}}},
    {"Lu",
     {{0x41, 0x5a},
      {0xc0, 0xd6},
      {0xd8, 0xde},
      {0x391, 0x3a1},
      {0x3a3, 0x3ab},
      {0x400, 0x42f},
      {0x531, 0x556}}},
    {"M", {{0x300, 0x36f}, {0x64b, 0x65f}, {0x93e, 0x94f}}},
    {"N",
     {{0x30, 0x39},
      {0xb2, 0xb3},
      {0xb9, 0xb9},
      {0xbc, 0xbe},
      {0x660, 0x669},
      {0x966, 0x96f},
      {0x2150, 0x2182}}},
    {"Nd", {{0x30, 0x39}, {0x660, 0x669}, {0x966, 0x96f}}},
    {"P",
     {{0x21, 0x23},
      {0x25, 0x2a},
      {0x2c, 0x2f},
      {0x3a, 0x3b},
      {0x3f, 0x40},
      {0x5b, 0x5d},
      {0x5f, 0x5f},
      {0x7b, 0x7b},
      {0x7d, 0x7d},
      {0xa1, 0xa1},
      {0xab, 0xab},
      {0xbb, 0xbb},
      {0xbf, 0xbf},
      {0x2010, 0x2027},
      {0x2030, 0x2043},
      {0x3001, 0x3003},
      {0x3008, 0x3011}}},
    {"S",
     {{0x24, 0x24},
      {0x2b, 0x2b},
      {0x3c, 0x3e},
      {0x5e, 0x5e},
      {0x60, 0x60},
      {0x7c, 0x7c},
      {0x7e, 0x7e},
      {0xa2, 0xa6},
      {0xa8, 0xa9},
      {0xac, 0xac},
      {0xae, 0xb1},
      {0x20a0, 0x20bf},
      {0x2190, 0x2307}}},
    {"Zs", {{0x20, 0x20}, {0xa0, 0xa0}, {0x3000, 0x3000}}},
};

/* After \p: adds what {NAME} stands for. Only some of it, so nothing may be made of its opposite.
 */
static void add_property(struct reader *x, struct class *s)
{
    static const char *const long_names[][2] = {
        {"Alphabetic", "L"}, {"Decimal_Number", "Nd"},   {"Letter", "L"},
        {"Lowercase", "Ll"}, {"Lowercase_Letter", "Ll"}, {"Mark", "M"},
        {"Number", "N"},     {"Punctuation", "P"},       {"Space_Separator", "Zs"},
        {"Symbol", "S"},     {"Uppercase", "Lu"},        {"Uppercase_Letter", "Lu"},
    };
    size_t n = 0;
    if (!take(x, "{")) {
        fail(x, "\\p must be followed by {NAME}");
        return;
    }
    while (x->at + n < x->text.n && x->text.p[x->at + n] != '}') n++;
    struct str name = {x->text.p + x->at, n};
    for (size_t i = 0; i < ARRAY_LEN(long_names); i++)
        if (str_is(name, long_names[i][0])) {
            name = str_of(long_names[i][1]);
            break;
        }
    x->at += n;
    if (!take(x, "}")) fail(x, "a } is missing");
    s->partial = true;
    for (size_t i = 0; i < ARRAY_LEN(properties); i++) {
        if (strlen(properties[i].name) != name.n || memcmp(properties[i].name, name.p, name.n) != 0)
            continue;
        for (const struct regex_range *r = properties[i].ranges; r->hi; r++)
            add(x, s, r->lo, r->hi);
        return;
    }
    fail(x, "this Unicode property is not supported; list the characters in [...]");
}

/* After a backslash: adds what it stands for. */
static void add_escape(struct reader *x, struct class *s)
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
    } else if (ch == 'p') {
        add_property(x, s);
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
    s->controls |= set.controls;
    for (u32 i = 0; i < set.n; i++) add_range(x, s, set.r[i].lo, set.r[i].hi);
}

/* One character, or what an escape stands for. */
static void add_one(struct reader *x, struct class *s)
{
    if (take(x, "\\")) {
        add_escape(x, s);
        return;
    }
    u32 ch = take_utf8(x);
    add(x, s, ch, ch);
}

static void take_class(struct reader *x, struct class *s)
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
        s->n = first;
        add(x, s, s->r[first].lo, end.r[0].hi);
    }
    if (negated) negate(x, s);
}

static struct regex *class_node(struct reader *x, struct class *s)
{
    struct regex *r = node(x, REGEX_CLASS);
    u32 n = 0;
    if (!r || failed(x)) return NULL;
    if (s->n) qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (u32 i = 0; i < s->n; i++) {
        if (n && s->r[i].lo <= s->r[n - 1].hi + 1)
            s->r[n - 1].hi = MAX(s->r[n - 1].hi, s->r[i].hi);
        else
            s->r[n++] = s->r[i];
    }
    r->ranges = alloc(x, n + 1, sizeof *r->ranges);
    if (!r->ranges) return NULL;
    memcpy(r->ranges, s->r, n * sizeof *r->ranges);
    r->n_ranges = n;
    r->controls = s->controls;
    r->partial = s->partial;
    return r;
}

u32 regex_drop_controls(const struct regex *x, struct regex_range *to)
{
    u32 n = 0;
    for (u32 i = 0; i < x->n_ranges; i++) {
        struct regex_range r = x->ranges[i];
        for (; r.lo < N_CONTROLS && r.lo <= r.hi; r.lo++)
            if (x->controls >> r.lo & 1) to[n++] = (struct regex_range){r.lo, r.lo};
        if (r.lo <= r.hi) to[n++] = r;
    }
    return n;
}

bool regex_looks_around(const struct regex *x)
{
    if (x->kind >= REGEX_LOOK) return true;
    for (const struct regex *part = x->first; part; part = part->next)
        if (regex_looks_around(part)) return true;
    return false;
}

/* ---- structure ---- */

static struct regex *read_choice(struct reader *x);

static bool is_name(char ch)
{
    return (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || ch == '_' ||
           ch == '$';
}

/* The name of a group that is spelled ?<name>; false: it is none. */
static bool take_group_name(struct reader *x)
{
    size_t n = 2;
    if (x->text.n - x->at < 4 || memcmp(x->text.p + x->at, "?<", 2) != 0) return false;
    while (x->at + n < x->text.n && is_name(x->text.p[x->at + n])) n++;
    if (n == 2 || x->at + n >= x->text.n || x->text.p[x->at + n] != '>') return false;
    x->at += n + 1;
    return true;
}

static struct regex *read_group(struct reader *x)
{
    bool must = take(x, "?="), look = must || take(x, "?!");
    if (!look && peek(x) == '?' && !take(x, "?:") && !take_group_name(x))
        return fail(x, "only (...), (?:...), (?<name>...), (?=...) and (?!...) are supported as "
                       "groups");
    if (++x->nesting > MAX_NESTING) return fail(x, "groups are nested too deeply");
    struct regex *inside = read_choice(x), *r = look ? node(x, REGEX_LOOK) : inside;
    if (!failed(x) && !take(x, ")")) fail(x, "a ) is missing");
    x->nesting--;
    if (look && r) {
        r->negated = !must;
        add_part(r, inside);
    }
    return failed(x) ? NULL : r;
}

static struct regex *read_atom(struct reader *x)
{
    struct class s = {.n = 0};
    char ch = peek(x);
    if (take(x, "(")) return read_group(x);
    if (take(x, "^")) return node(x, REGEX_BEGIN);
    if (take(x, "$")) return node(x, REGEX_END);
    if (strchr("*+?{}", ch))
        return fail(x, "nothing to repeat; to match this character itself, put a backslash "
                       "before it");
    if (take(x, "[")) {
        take_class(x, &s);
    } else if (take(x, ".")) {
        add_all(x, &s, line_ends, ARRAY_LEN(line_ends));
        negate(x, &s);
    } else {
        add_one(x, &s);
    }
    return failed(x) ? NULL : class_node(x, &s);
}

/* A number of times; more than a grammar may repeat is refused there. */
static u32 take_count(struct reader *x)
{
    u32 v = 0;
    for (; peek(x) >= '0' && peek(x) <= '9'; x->at++)
        v = MIN(v * 10 + (u32)(peek(x) - '0'), GRAMMAR_MAX_REPEAT + 1u);
    return v;
}

/* {m}, {m,} or {m,n}; false: it is none of them. */
static bool take_braces(struct reader *x, u32 *min, u32 *max)
{
    size_t from = x->at + 1;
    if (!take(x, "{") || x->at >= x->text.n) return false;
    *min = *max = take_count(x);
    bool given = x->at > from;
    if (take(x, ",")) {
        from = x->at;
        *max = take_count(x);
        if (x->at == from) *max = REGEX_NO_MAX;
    }
    return take(x, "}") && given;
}

static struct regex *read_times(struct reader *x, struct regex *part)
{
    char ch = peek(x);
    if (!ch || !strchr("*+?{", ch)) return part;
    struct regex *r = node(x, REGEX_REPEAT);
    if (!r) return NULL;
    r->min = ch == '+';
    r->max = ch == '?' ? 1 : REGEX_NO_MAX;
    if (part->kind >= REGEX_LOOK) return fail(x, "^, $ and look-aheads cannot be repeated");
    if (ch != '{')
        x->at++;
    else if (!take_braces(x, &r->min, &r->max))
        return fail(x, "{ must be followed by m} or m,n}");
    if (r->min > GRAMMAR_MAX_REPEAT || (r->max > GRAMMAR_MAX_REPEAT && r->max != REGEX_NO_MAX))
        return fail(x, "more than 10000 repetitions");
    if (r->max < r->min) return fail(x, "the maximum of a repetition is less than its minimum");
    take(x, "?"); /* lazy or not: the same texts */
    if (peek(x) && strchr("*+{", peek(x))) return fail(x, "this repetition is not supported");
    add_part(r, part);
    return r;
}

static struct regex *read_choice(struct reader *x)
{
    struct regex *r = node(x, REGEX_CHOICE);
    do {
        struct regex *sequence = node(x, REGEX_SEQUENCE);
        while (!failed(x) && peek(x) && peek(x) != '|' && peek(x) != ')') {
            struct regex *part = read_atom(x);
            if (part) part = read_times(x, part);
            add_part(sequence, part);
        }
        add_part(r, sequence);
    } while (!failed(x) && take(x, "|"));
    return failed(x) ? NULL : r;
}

struct regex *schema_read_regex(struct schemac *c, struct arena *arena, struct str pattern)
{
    struct reader x = {.c = c, .arena = arena, .text = pattern};
    if (memchr(pattern.p, 0, pattern.n)) return fail(&x, "NUL is not supported");
    struct regex *r = read_choice(&x);
    if (!failed(&x) && x.at < pattern.n) return fail(&x, "unmatched )");
    return failed(&x) ? NULL : r;
}
