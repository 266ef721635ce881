/* Methods of strings. A safe string stays safe, so what is put into it is escaped. */
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

#define METHOD(name)                                                                   \
    static struct tmpl_value method_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

static struct tmpl_value strip(struct tmpl_rt *rt, struct tmpl_value self, struct tmpl_value chars,
                               int sides)
{
    bool spaces = arg_missing(chars) || chars.kind == V_NONE;
    return str_strip(rt, self.s, spaces ? NULL : arg_str(rt, chars), sides);
}

METHOD(strip)
{
    (void)all;
    return strip(rt, self, arg[0], STRIP_LEFT | STRIP_RIGHT);
}

METHOD(lstrip)
{
    (void)all;
    return strip(rt, self, arg[0], STRIP_LEFT);
}

METHOD(rstrip)
{
    (void)all;
    return strip(rt, self, arg[0], STRIP_RIGHT);
}

#define METHOD_CASE(name, how)            \
    METHOD(name)                          \
    {                                     \
        (void)arg, (void)all;             \
        return str_case(rt, self.s, how); \
    }
METHOD_CASE(upper, CASE_UPPER)
METHOD_CASE(lower, CASE_LOWER)
METHOD_CASE(title, CASE_TITLE_METHOD)
METHOD_CASE(capitalize, CASE_CAPITALIZE)
METHOD_CASE(swapcase, CASE_SWAP)

static bool byte_range(struct tmpl_rt *rt, const struct tmpl_str *s, const struct tmpl_value *arg,
                       size_t *from, size_t *to);

/* Whether the string, or its characters arg[1]..arg[2], begins (or ends) with arg[0], or with one
 * of a tuple. */
static struct tmpl_value has_affix(struct tmpl_rt *rt, struct tmpl_value self,
                                   const struct tmpl_value *arg, bool at_end)
{
    struct tmpl_value affix = arg[0];
    struct tmpl_seq one = {.n = 1, .v = &affix};
    size_t from = 0, to = 0;
    bool reaches = byte_range(rt, self.s, arg + 1, &from, &to);
    struct str s = {str_bytes(self.s).p + from, to - from};
    bool several = affix.kind == V_SEQ && affix.seq->kind == SEQ_TUPLE;
    const struct tmpl_seq *any = several ? affix.seq : &one;
    for (size_t i = 0; i < any->n; i++) {
        struct str a = str_bytes(arg_str(rt, any->v[i]));
        rt_spend(rt, 1 + a.n / 64);
        if (!reaches || a.n > s.n) continue;
        if (memcmp(at_end ? s.p + s.n - a.n : s.p, a.p, a.n) == 0) return val_bool(true);
    }
    return val_bool(false);
}

METHOD(startswith)
{
    (void)all;
    return has_affix(rt, self, arg, false);
}

METHOD(endswith)
{
    (void)all;
    return has_affix(rt, self, arg, true);
}

METHOD(removeprefix)
{
    (void)all;
    struct tmpl_value affix[] = {arg[0], val_none(), val_none()};
    bool has = has_affix(rt, self, affix, false).b;
    return str_slice(rt, self.s, has ? arg_str(rt, arg[0])->n : 0, self.s->n);
}

METHOD(removesuffix)
{
    (void)all;
    struct tmpl_value affix[] = {arg[0], val_none(), val_none()};
    bool has = has_affix(rt, self, affix, true).b;
    return str_slice(rt, self.s, 0, self.s->n - (has ? arg_str(rt, arg[0])->n : 0));
}

METHOD(replace)
{
    (void)all;
    const struct tmpl_str *old = arg_str(rt, arg[0]), *new = arg_str(rt, arg[1]);
    if (self.s->safe) new = str_escape(rt, new);
    return str_replace(rt, self.s, old, new, arg_int(rt, arg[2], -1));
}

/* The next piece at *from, up to the separator or (sep NULL) to whitespace; false at the end. */
static bool next_piece(const struct tmpl_str *s, const struct tmpl_str *sep, bool last,
                       size_t *from, size_t *begin, size_t *end)
{
    struct str all = str_bytes(s);
    size_t n;
    *begin = *from;
    if (sep) {
        if (*from > all.n) return false;
        if (last || !str_find(all, str_bytes(sep), *from, end)) *end = all.n;
        *from = *end + sep->n;
        return true;
    }
    while (*begin < all.n && tmpl_is_space(tmpl_char(all, *begin, &n))) *begin += n;
    *end = *begin;
    while (*end < all.n && (last || !tmpl_is_space(tmpl_char(all, *end, &n)))) *end += last ? 1 : n;
    *from = *end;
    return *begin < *end;
}

METHOD(split)
{
    (void)all;
    bool spaces = arg_missing(arg[0]) || arg[0].kind == V_NONE;
    const struct tmpl_str *sep = spaces ? NULL : arg_str(rt, arg[0]);
    i64 max = arg_int(rt, arg[1], -1);
    if (sep && !sep->n) RT_FAIL(rt, "split: the separator is empty");
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, 0);
    out->user = self.s->user;
    size_t count = 0;
    rt_spend(rt, 1 + self.s->n / 64);
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        size_t from = 0, begin, end, k = 0;
        if (pass) out->v = rt_alloc(rt, count, sizeof *out->v);
        while (next_piece(self.s, sep, max >= 0 && k == (u64)max, &from, &begin, &end)) {
            if (pass) out->v[k] = str_slice(rt, self.s, begin, end);
            k++;
        }
        rt_spend(rt, k);
        count = k;
    }
    out->n = count;
    return val_seq(out);
}

/* The character that ends at s[to], and where it begins; a byte that is no UTF-8 is one, -1. */
static i32 char_before(struct str s, size_t to, size_t *from)
{
    size_t n;
    *from = to - 1;
    while (*from > 0 && to - *from < 4 && ((u8)s.p[*from] & 0xc0) == 0x80) (*from)--;
    i32 c = tmpl_char((struct str){s.p, to}, *from, &n);
    if (*from + n == to) return c;
    *from = to - 1;
    return -1;
}

/* As split, but `max` counts from the end. */
METHOD(rsplit)
{
    (void)all;
    bool spaces = arg_absent(arg[0]);
    const struct tmpl_str *sep = spaces ? NULL : arg_str(rt, arg[0]);
    struct str s = str_bytes(self.s);
    i64 max = arg_int(rt, arg[1], -1);
    if (sep && !sep->n) RT_FAIL(rt, "rsplit: the separator is empty");
    if (max < 0) return method_split(rt, self, arg, all);
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, (size_t)MIN(max, (i64)s.n) + 1);
    size_t n = 0, to = s.n, at;
    out->user = self.s->user;
    rt_spend(rt, 1 + s.n / 4);
    while (sep && n < (u64)max && str_rfind(s, str_bytes(sep), to, &at)) {
        rt_spend(rt, 1 + (to - at) / 64 * (1 + sep->n / 8));
        out->v[n++] = str_slice(rt, self.s, at + sep->n, to);
        to = at;
    }
    if (sep) out->v[n++] = str_slice(rt, self.s, 0, to);
    while (!sep) { /* words, the last one first */
        while (to > 0 && tmpl_is_space(char_before(s, to, &at))) to = at;
        if (!to) break;
        size_t word = to;
        if (n == (u64)max) word = 0;
        while (word > 0 && !tmpl_is_space(char_before(s, word, &at))) word = at;
        rt_spend(rt, 1);
        out->v[n++] = str_slice(rt, self.s, word, to);
        to = word;
    }
    out->n = n;
    for (size_t i = 0; i < n / 2; i++) {
        struct tmpl_value v = out->v[i];
        out->v[i] = out->v[n - 1 - i];
        out->v[n - 1 - i] = v;
    }
    return val_seq(out);
}

static struct tmpl_value partition(struct tmpl_rt *rt, const struct tmpl_str *s,
                                   struct tmpl_value sep, bool last)
{
    const struct tmpl_str *what = arg_str(rt, sep);
    struct tmpl_seq *out = seq_new(rt, SEQ_TUPLE, 3);
    size_t at;
    if (!what->n) RT_FAIL(rt, "partition: the separator is empty");
    rt_spend(rt, 1 + s->n / 64 * (last ? 1 + what->n / 8 : 1));
    bool found = last ? str_rfind(str_bytes(s), str_bytes(what), s->n, &at)
                      : str_find(str_bytes(s), str_bytes(what), 0, &at);
    size_t end = found ? at + what->n : last ? 0 : s->n;
    if (!found) at = end;
    out->v[0] = str_slice(rt, s, 0, at);
    out->v[1] = str_slice(rt, s, at, end);
    out->v[2] = str_slice(rt, s, end, s->n);
    return val_seq(out);
}

METHOD(partition)
{
    (void)all;
    return partition(rt, self.s, arg[0], false);
}

METHOD(rpartition)
{
    (void)all;
    return partition(rt, self.s, arg[0], true);
}

METHOD(splitlines)
{
    (void)all;
    return val_seq(str_lines(rt, self.s, val_truth(arg[0])));
}

/* The characters from..to of a string as its methods count them, in bytes; false: there are none,
 * not even for an empty string to be found in. */
static bool byte_range(struct tmpl_rt *rt, const struct tmpl_str *s, const struct tmpl_value *arg,
                       size_t *from, size_t *to)
{
    struct str all = str_bytes(s);
    *from = 0;
    *to = all.n;
    rt_spend(rt, 1 + all.n / 64);
    if (arg_absent(arg[0]) && arg_absent(arg[1])) return true;
    i64 n = (i64)str_count_chars(all), at[2] = {0, n};
    for (int i = 0; i < 2; i++) {
        if (arg_absent(arg[i])) continue;
        i64 x = arg_int(rt, arg[i], 0);
        at[i] = x < 0 ? MAX(x + n, 0) : x;
    }
    if (at[0] > n || at[0] > at[1]) return false;
    *from = str_char_offset(all, (size_t)at[0]);
    *to = str_char_offset(all, (size_t)MIN(at[1], n));
    return true;
}

/* The first or last place of arg[0] between arg[1] and arg[2], in characters; -1: none. */
static i64 find_chars(struct tmpl_rt *rt, const struct tmpl_str *s, const struct tmpl_value *arg,
                      bool last)
{
    struct str what = str_bytes(arg_str(rt, arg[0]));
    size_t from, to, at;
    if (!byte_range(rt, s, arg + 1, &from, &to)) return -1;
    struct str part = {str_bytes(s).p + from, to - from};
    if (last) rt_spend(rt, 1 + part.n / 64 * (1 + MIN(what.n, part.n) / 8));
    if (!(last ? str_rfind(part, what, part.n, &at) : str_find(part, what, 0, &at))) return -1;
    return (i64)str_count_chars((struct str){str_bytes(s).p, from + at});
}

METHOD(find)
{
    (void)all;
    return val_int(find_chars(rt, self.s, arg, false));
}

METHOD(rfind)
{
    (void)all;
    return val_int(find_chars(rt, self.s, arg, true));
}

METHOD(index)
{
    (void)all;
    i64 at = find_chars(rt, self.s, arg, false);
    if (at < 0) RT_FAIL(rt, "index: the string was not found");
    return val_int(at);
}

METHOD(rindex)
{
    (void)all;
    i64 at = find_chars(rt, self.s, arg, true);
    if (at < 0) RT_FAIL(rt, "rindex: the string was not found");
    return val_int(at);
}

METHOD(count)
{
    (void)all;
    struct str what = str_bytes(arg_str(rt, arg[0]));
    size_t from, to;
    i64 count = 0;
    if (!byte_range(rt, self.s, arg + 1, &from, &to)) return val_int(0);
    struct str s = {str_bytes(self.s).p + from, to - from};
    rt_spend(rt, 1 + s.n / 8);
    if (!what.n) return val_int((i64)str_count_chars(s) + 1);
    for (size_t i = 0, at; str_find(s, what, i, &at); i = at + what.n) count++;
    return val_int(count);
}

METHOD(join)
{
    (void)all;
    bool safe = self.s->safe;
    struct tmpl_sbuf sb = {.rt = rt, .safe = safe};
    const struct tmpl_seq *items = val_items(rt, arg[0]);
    for (size_t i = 0; i < items->n; i++) {
        if (i) sbuf_put_str(&sb, self.s);
        sbuf_put_str(&sb,
                     safe ? str_escape(rt, val_to_str(rt, items->v[i])) : arg_str(rt, items->v[i]));
    }
    return sbuf_value(&sb);
}

METHOD(format)
{
    (void)arg;
    return format_braces(rt, self.s, all, NULL);
}

METHOD(format_map)
{
    if (arg[0].kind != V_DICT)
        RT_FAIL(rt, "format_map needs a mapping, not a %s", val_type(arg[0]));
    return format_braces(rt, self.s, all, arg[0].dict);
}

/* ---- padding ---- */

static struct tmpl_value pad(struct tmpl_rt *rt, struct tmpl_value self,
                             const struct tmpl_value *arg, char align)
{
    static const struct tmpl_str space = {.p = " ", .n = 1};
    const struct tmpl_str *fill = arg_missing(arg[1]) ? &space : arg_str(rt, arg[1]);
    if (self.s->safe) fill = str_escape(rt, fill);
    if (str_count_chars(str_bytes(fill)) != 1) RT_FAIL(rt, "the fill must be one character");
    return str_pad(rt, self.s, arg_int(rt, arg[0], 0), fill, align);
}

METHOD(center)
{
    (void)all;
    return pad(rt, self, arg, 'c');
}

METHOD(ljust)
{
    (void)all;
    return pad(rt, self, arg, '<');
}

METHOD(rjust)
{
    (void)all;
    return pad(rt, self, arg, '>');
}

/* Zeros go between a sign and what follows it. */
METHOD(zfill)
{
    (void)all;
    static const struct tmpl_str zero = {.p = "0", .n = 1};
    struct tmpl_sbuf sb = {.rt = rt, .safe = self.s->safe};
    struct str s = str_bytes(self.s);
    bool sign = s.n && (s.p[0] == '-' || s.p[0] == '+');
    i64 width = arg_int(rt, arg[0], 0), n = (i64)str_count_chars(s);
    rt_spend(rt, 1 + s.n / 64);
    sbuf_put_slice(&sb, self.s, 0, sign);
    sbuf_put_times(&sb, &zero, width > n ? (u64)(width - n) : 0);
    sbuf_put_slice(&sb, self.s, sign, s.n);
    return sbuf_value(&sb);
}

METHOD(expandtabs)
{
    (void)all;
    static const struct tmpl_str space = {.p = " ", .n = 1};
    struct tmpl_sbuf sb = {.rt = rt, .safe = self.s->safe};
    struct str s = str_bytes(self.s);
    i64 size = arg_int(rt, arg[0], 8), column = 0;
    size_t n;
    rt_spend(rt, 1 + s.n / 16);
    for (size_t i = 0; i < s.n; i += n) {
        i32 c = tmpl_char(s, i, &n);
        if (c == '\t') {
            i64 fill = size > 0 ? size - column % size : 0;
            sbuf_put_times(&sb, &space, (u64)fill);
            column = size > 0 ? (column + fill) % size : column;
            continue;
        }
        sbuf_put_slice(&sb, self.s, i, i + n);
        column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return sbuf_value(&sb);
}

/* Each character by what the mapping has for its number: a number, a string, or none to drop it. */
METHOD(translate)
{
    (void)all;
    struct tmpl_sbuf sb = {.rt = rt, .safe = self.s->safe};
    struct str s = str_bytes(self.s);
    size_t n;
    i64 c;
    if (arg[0].kind != V_DICT) RT_FAIL(rt, "translate needs a mapping, not a %s", val_type(arg[0]));
    for (size_t i = 0; i < s.n; i += n) {
        struct tmpl_value key = val_int(tmpl_char(s, i, &n)), *to = dict_get(rt, arg[0].dict, key);
        rt_spend(rt, 1);
        if (!to) {
            sbuf_put_slice(&sb, self.s, i, i + n);
        } else if (to->kind == V_STR) {
            sbuf_put_str(&sb, to->s);
        } else if (val_integer(*to, &c) && c >= 0 && c <= 0x10ffff &&
                   utf8proc_codepoint_valid((i32)c)) {
            sbuf_put_char(&sb, (i32)c, str_user_at(self.s, i));
        } else if (to->kind != V_NONE) {
            RT_FAIL(rt, "translate: a %s is not a character", val_type(*to));
        }
    }
    return sbuf_value(&sb);
}

METHOD(casefold)
{
    (void)arg, (void)all;
    struct tmpl_sbuf sb = {.rt = rt, .safe = self.s->safe};
    struct str s = str_bytes(self.s);
    size_t n;
    rt_spend(rt, 1 + s.n / 8);
    for (size_t i = 0; i < s.n; i += n) {
        i32 c = tmpl_char(s, i, &n), folded[8];
        int boundary = 0;
        utf8proc_ssize_t k = 0;
        if (c >= 0) k = utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
        if (k < 1 || k > 8) sbuf_put_slice(&sb, self.s, i, i + n);
        for (utf8proc_ssize_t x = 0; x < k && k <= 8; x++) {
            sbuf_put_char(&sb, folded[x], str_user_at(self.s, i));
        }
    }
    return sbuf_value(&sb);
}

/* ---- kinds of characters ---- */

struct char_range {
    i32 first, last;
};

/* Python's isdigit() beyond the decimal digits. */
static const struct char_range digits[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

/* Letters that are numbers for isnumeric(). */
static const struct char_range numbers[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},
    {0x4e00, 0x4e00},   {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},
    {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},   {0x4e94, 0x4e94},   {0x4e96, 0x4e96},
    {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},   {0x4f0d, 0x4f0d},
    {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534c, 0x534c},   {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},
    {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},   {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},
    {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},   {0x67d2, 0x67d2},
    {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},
    {0x96f6, 0x96f6},   {0xf96b, 0xf96b},   {0xf973, 0xf973},   {0xf978, 0xf978},
    {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},   {0xf9fd, 0xf9fd},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c},
    {0x20aea, 0x20aea}, {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23b1b, 0x23b1b}, {0x2626d, 0x2626d}, {0x2f890, 0x2f890},
};

/* Lower and upper case beyond the letters of these categories. */
static const struct char_range lower_marks[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
    {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
    {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},
    {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};
static const struct char_range upper_marks[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};

static bool in_ranges(i32 c, const struct char_range *r, size_t n)
{
    for (size_t i = 0; i < n && r[i].first <= c; i++) {
        if (c <= r[i].last) return true;
    }
    return false;
}

static utf8proc_category_t category(i32 c)
{
    return c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
}

static bool is_alpha(i32 c)
{
    return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(i32 c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

static bool is_digit(i32 c)
{
    return is_decimal(c) || in_ranges(c, digits, ARRAY_LEN(digits));
}

static bool is_numeric(i32 c)
{
    return (category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO) ||
           in_ranges(c, numbers, ARRAY_LEN(numbers));
}

static bool is_alnum(i32 c)
{
    return is_alpha(c) || is_numeric(c);
}

static bool is_ascii(i32 c)
{
    return c >= 0 && c < 0x80;
}

static bool is_lower(i32 c)
{
    return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(c, lower_marks, ARRAY_LEN(lower_marks));
}

static bool is_upper(i32 c)
{
    return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(c, upper_marks, ARRAY_LEN(upper_marks));
}

static bool is_title(i32 c)
{
    return category(c) == UTF8PROC_CATEGORY_LT;
}

static bool is_identifier_start(i32 c)
{
    return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

static bool is_identifier_part(i32 c)
{
    utf8proc_category_t k = category(c);
    return is_identifier_start(c) || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
}

/* Whether every character is of a kind; of_empty is the answer for no characters. */
static struct tmpl_value all_are(struct tmpl_rt *rt, const struct tmpl_str *s, bool (*kind)(i32),
                                 bool of_empty)
{
    struct str all = str_bytes(s);
    size_t n;
    rt_spend(rt, 1 + all.n / 16);
    for (size_t i = 0; i < all.n; i += n) {
        if (!kind(tmpl_char(all, i, &n))) return val_bool(false);
    }
    return val_bool(all.n ? true : of_empty);
}

#define METHOD_IS(name, kind, of_empty)             \
    METHOD(name)                                    \
    {                                               \
        (void)arg, (void)all;                       \
        return all_are(rt, self.s, kind, of_empty); \
    }
METHOD_IS(isalnum, is_alnum, false)
METHOD_IS(isalpha, is_alpha, false)
METHOD_IS(isascii, is_ascii, true)
METHOD_IS(isdecimal, is_decimal, false)
METHOD_IS(isdigit, is_digit, false)
METHOD_IS(isnumeric, is_numeric, false)
METHOD_IS(isprintable, tmpl_is_printable, true)
METHOD_IS(isspace, tmpl_is_space, false)

METHOD(isidentifier)
{
    (void)arg, (void)all;
    size_t n;
    if (!self.s->n || !is_identifier_start(tmpl_char(str_bytes(self.s), 0, &n)))
        return val_bool(false);
    return all_are(rt, self.s, is_identifier_part, false);
}

/* No character of the other cases, and one of this at least. */
static struct tmpl_value is_case(struct tmpl_rt *rt, const struct tmpl_str *s, bool upper)
{
    struct str all = str_bytes(s);
    size_t n;
    bool any = false;
    rt_spend(rt, 1 + all.n / 16);
    for (size_t i = 0; i < all.n; i += n) {
        i32 c = tmpl_char(all, i, &n);
        if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return val_bool(false);
        any = any || (upper ? is_upper(c) : is_lower(c));
    }
    return val_bool(any);
}

METHOD(islower)
{
    (void)arg, (void)all;
    return is_case(rt, self.s, false);
}

METHOD(isupper)
{
    (void)arg, (void)all;
    return is_case(rt, self.s, true);
}

/* Upper case begins every run of letters, and only it. */
METHOD(istitle)
{
    (void)arg, (void)all;
    struct str s = str_bytes(self.s);
    size_t n;
    bool any = false, inside = false;
    rt_spend(rt, 1 + s.n / 16);
    for (size_t i = 0; i < s.n; i += n) {
        i32 c = tmpl_char(s, i, &n);
        bool begins = is_upper(c) || is_title(c);
        if (begins ? inside : is_lower(c) && !inside) return val_bool(false);
        inside = begins || is_lower(c);
        any = any || inside;
    }
    return val_bool(any);
}

static const struct tmpl_builtin str_methods[] = {
    {"capitalize", "", method_capitalize},
    {"casefold", "", method_casefold},
    {"center", "width fillchar?", method_center},
    {"count", "sub start? end?", method_count},
    {"endswith", "suffix start? end?", method_endswith},
    {"expandtabs", "tabsize?", method_expandtabs},
    {"find", "sub start? end?", method_find},
    {"format", NULL, method_format},
    {"format_map", "mapping", method_format_map},
    {"index", "sub start? end?", method_index},
    {"isalnum", "", method_isalnum},
    {"isalpha", "", method_isalpha},
    {"isascii", "", method_isascii},
    {"isdecimal", "", method_isdecimal},
    {"isdigit", "", method_isdigit},
    {"isidentifier", "", method_isidentifier},
    {"islower", "", method_islower},
    {"isnumeric", "", method_isnumeric},
    {"isprintable", "", method_isprintable},
    {"isspace", "", method_isspace},
    {"istitle", "", method_istitle},
    {"isupper", "", method_isupper},
    {"join", "iterable", method_join},
    {"ljust", "width fillchar?", method_ljust},
    {"lower", "", method_lower},
    {"lstrip", "chars?", method_lstrip},
    {"partition", "sep", method_partition},
    {"removeprefix", "prefix", method_removeprefix},
    {"removesuffix", "suffix", method_removesuffix},
    {"replace", "old new count?", method_replace},
    {"rfind", "sub start? end?", method_rfind},
    {"rindex", "sub start? end?", method_rindex},
    {"rjust", "width fillchar?", method_rjust},
    {"rpartition", "sep", method_rpartition},
    {"rsplit", "sep? maxsplit?", method_rsplit},
    {"rstrip", "chars?", method_rstrip},
    {"split", "sep? maxsplit?", method_split},
    {"splitlines", "keepends?", method_splitlines},
    {"startswith", "prefix start? end?", method_startswith},
    {"strip", "chars?", method_strip},
    {"swapcase", "", method_swapcase},
    {"title", "", method_title},
    {"translate", "table", method_translate},
    {"upper", "", method_upper},
    {"zfill", "width", method_zfill},
    {"encode", NULL, NULL},
    {"maketrans", NULL, NULL},
};

const struct tmpl_builtin *tmpl_find_str_method(struct str name)
{
    return tmpl_find_in(str_methods, ARRAY_LEN(str_methods), name);
}
