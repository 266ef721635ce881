/* The filters of texts and numbers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

#define FILTER(name)                                                                   \
    static struct tmpl_value filter_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

static struct tmpl_value text_value(struct tmpl_rt *rt, struct tmpl_value v)
{
    return (struct tmpl_value){V_STR, .s = val_to_str(rt, v)};
}

enum { JSON_BYTES_A_BYTE = 96 }; /* what a parsed text takes outside the arena, at most */

/* ---- text ---- */

static const struct tmpl_str space = {.p = " ", .n = 1};

#define FILTER_CASE(name, how)                          \
    FILTER(name)                                        \
    {                                                   \
        (void)arg, (void)all;                           \
        return str_case(rt, val_to_str(rt, self), how); \
    }
FILTER_CASE(upper, CASE_UPPER)
FILTER_CASE(lower, CASE_LOWER)
FILTER_CASE(capitalize, CASE_CAPITALIZE)

FILTER(title)
{
    (void)arg, (void)all;
    return str_case(rt, str_marked(rt, val_to_str(rt, self), false).s, CASE_TITLE_FILTER);
}

FILTER(string)
{
    (void)arg, (void)all;
    return text_value(rt, self);
}

FILTER(trim)
{
    (void)all;
    const struct tmpl_str *chars = arg_absent(arg[0]) ? NULL : arg_str(rt, arg[0]);
    return str_strip(rt, val_to_str(rt, self), chars, STRIP_LEFT | STRIP_RIGHT);
}

FILTER(replace)
{
    (void)all;
    i64 count = arg_absent(arg[2]) ? -1 : arg_int(rt, arg[2], -1);
    const struct tmpl_str *plain = str_marked(rt, val_to_str(rt, self), false).s;
    return str_replace(rt, plain, val_to_str(rt, arg[0]), val_to_str(rt, arg[1]), count);
}

FILTER(indent)
{
    (void)all;
    struct tmpl_sbuf pad = {.rt = rt}, sb = {.rt = rt, .safe = arg_str(rt, self)->safe};
    if (arg[0].kind == V_STR) {
        sbuf_put_str(&pad, arg[0].s);
    } else {
        sbuf_put_times(&pad, &space, (u64)MAX(arg_int(rt, arg[0], 4), 0));
    }
    const struct tmpl_str *indent = sbuf_value(&pad).s;
    bool first = val_truth(arg[1]), blank = val_truth(arg[2]);
    const struct tmpl_seq *lines = str_lines(rt, arg_str(rt, self), false);
    size_t n = lines->n;
    /* Jinja2 splits the text with a line feed added: a text that ends in one has an empty last
     * line, and the empty text has one line. */
    struct str s = str_bytes(self.s);
    bool open_end =
        !n || str_lines(rt, str_slice(rt, self.s, s.n - 1, s.n).s, false)->v[0].s->n == 0;
    for (size_t i = 0; i < n + open_end; i++) {
        const struct tmpl_str *line = i < n ? lines->v[i].s : NULL;
        if (i) sbuf_put(&sb, "\n", 1, false);
        if (i ? blank || (line && line->n) : first) sbuf_put_str(&sb, indent);
        if (line) sbuf_put_str(&sb, line);
    }
    return sbuf_value(&sb);
}

/* tojson(ensure_ascii, indent, separators, sort_keys), as the library of the templates has it. */
FILTER(tojson)
{
    (void)all;
    struct tmpl_sbuf sb = {.rt = rt};
    struct tmpl_json_style style = {.ensure_ascii = val_truth(arg[0]),
                                    .pretty = !arg_absent(arg[1]),
                                    .sort_keys = val_truth(arg[3])};
    style.item_sep = &(struct tmpl_str){.p = ", ", .n = style.pretty ? 1 : 2};
    style.key_sep = &(struct tmpl_str){.p = ": ", .n = 2};
    if (arg[1].kind == V_STR) {
        style.indent = arg[1].s;
    } else if (style.pretty) {
        struct tmpl_sbuf pad = {.rt = rt};
        sbuf_put_times(&pad, &space, (u64)MAX(arg_int(rt, arg[1], 0), 0));
        style.indent = sbuf_value(&pad).s;
    }
    if (!arg_absent(arg[2])) {
        const struct tmpl_seq *seps = val_items(rt, arg[2]);
        if (seps->n != 2) RT_FAIL(rt, "tojson: expected two separators");
        style.item_sep = arg_str(rt, seps->v[0]);
        style.key_sep = arg_str(rt, seps->v[1]);
    }
    print_json(&sb, self, &style);
    return sbuf_value(&sb);
}

FILTER(safe)
{
    (void)arg, (void)all;
    return str_marked(rt, val_to_str(rt, self), true);
}

FILTER(escape)
{
    (void)arg, (void)all;
    return (struct tmpl_value){V_STR, .s = str_escape(rt, val_to_str(rt, self))};
}

FILTER(forceescape)
{
    (void)arg, (void)all;
    const struct tmpl_str *plain = str_marked(rt, val_to_str(rt, self), false).s;
    return (struct tmpl_value){V_STR, .s = str_escape(rt, plain)};
}

FILTER(center)
{
    (void)all;
    return str_pad(rt, val_to_str(rt, self), arg_int(rt, arg[0], 80), &space, 'c');
}

/* '%' with the arguments of the filter, positional or named. */
FILTER(format)
{
    (void)arg;
    const struct tmpl_str *form = val_to_str(rt, self);
    if (all->n && all->n_kw) RT_FAIL(rt, "format takes positional or named arguments, not both");
    struct tmpl_seq *values = seq_new(rt, SEQ_TUPLE, all->n);
    struct tmpl_dict *names = dict_new(rt, all->n_kw);
    for (u32 i = 0; i < all->n; i++) values->v[i] = all->v[i];
    for (u32 i = 0; i < all->n_kw; i++) {
        struct tmpl_str name = {.p = all->kw[i].p, .n = all->kw[i].n};
        dict_set(rt, names, val_str(rt, name), all->v[all->n + i]);
    }
    return format_percent(rt, form,
                          all->n_kw ? (struct tmpl_value){V_DICT, .dict = names} : val_seq(values));
}

FILTER(truncate)
{
    (void)all;
    const struct tmpl_str *end =
        arg_missing(arg[2]) ? &(struct tmpl_str){.p = "...", .n = 3} : arg_str(rt, arg[2]);
    i64 length = arg_int(rt, arg[0], 255), leeway = arg_absent(arg[3]) ? 5 : arg_int(rt, arg[3], 5);
    i64 n_end = (i64)str_count_chars(str_bytes(end));
    if (length < n_end || leeway < 0)
        RT_FAIL(rt, "truncate: the length or the leeway is too small");
    if (val_length(rt, self) - length <= leeway) return self;
    const struct tmpl_str *s = arg_str(rt, self);
    struct tmpl_sbuf sb = {.rt = rt, .safe = s->safe};
    size_t to = str_char_offset(str_bytes(s), (size_t)(length - n_end)), at;
    if (!val_truth(arg[1]) && str_rfind(str_bytes(s), STR(" "), to, &at)) to = at;
    sbuf_put_slice(&sb, s, 0, to);
    sbuf_put_str(&sb, s->safe ? str_escape(rt, end) : end);
    return sbuf_value(&sb);
}

static bool is_word_char(i32 c)
{
    if (c < 0) return false;
    utf8proc_category_t k = utf8proc_category(c);
    return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

FILTER(wordcount)
{
    (void)arg, (void)all;
    struct str s = str_bytes(val_to_str(rt, self));
    i64 count = 0;
    size_t n;
    bool inside = false;
    rt_spend(rt, 1 + s.n / 16);
    for (size_t i = 0; i < s.n; i += n) {
        bool word = is_word_char(tmpl_char(s, i, &n));
        count += word && !inside;
        inside = word;
    }
    return val_int(count);
}

/* Percent-encodes; in a query '/' too, and a blank becomes '+'. */
static void put_url(struct tmpl_sbuf *sb, const struct tmpl_str *s, bool in_query)
{
    rt_spend(sb->rt, 1 + s->n / 16);
    for (size_t i = 0; i < s->n; i++) {
        unsigned c = (u8)s->p[i];
        bool user = str_user_at(s, i), word = (c | 32) >= 'a' && (c | 32) <= 'z';
        char esc[4];
        if (word || (c >= '0' && c <= '9') || (c && strchr(in_query ? "_.-~" : "_.-~/", (int)c))) {
            sbuf_put_slice(sb, s, i, i + 1);
        } else if (in_query && c == ' ') {
            sbuf_put(sb, "+", 1, user);
        } else {
            snprintf(esc, sizeof esc, "%%%02X", c);
            sbuf_put(sb, esc, 3, user);
        }
    }
}

FILTER(urlencode)
{
    (void)arg, (void)all;
    struct tmpl_sbuf sb = {.rt = rt};
    if (self.kind == V_STR || !val_iterable(self)) {
        put_url(&sb, val_to_str(rt, self), false);
        return sbuf_value(&sb);
    }
    const struct tmpl_seq *pairs = self.kind == V_DICT ? dict_pairs(rt, self) : val_items(rt, self);
    for (size_t i = 0; i < pairs->n; i++) {
        const struct tmpl_seq *pair = val_items(rt, pairs->v[i]);
        if (pair->n != 2) RT_FAIL(rt, "urlencode: expected pairs, got %zu values", pair->n);
        if (i) sbuf_puts(&sb, "&", false);
        put_url(&sb, val_to_str(rt, pair->v[0]), true);
        sbuf_puts(&sb, "=", false);
        put_url(&sb, val_to_str(rt, pair->v[1]), true);
    }
    return sbuf_value(&sb);
}

/* name="value" for each pair that has one. */
FILTER(xmlattr)
{
    (void)all;
    struct tmpl_sbuf sb = {.rt = rt};
    if (self.kind != V_DICT) RT_FAIL(rt, "xmlattr: a %s is not a mapping", val_type(self));
    bool any = false, space_before = arg_missing(arg[0]) || val_truth(arg[0]);
    for (size_t i = 0; i < self.dict->n; i++) {
        const struct tmpl_pair *e = &self.dict->e[i];
        if (e->value.kind == V_NONE || e->value.kind == V_UNDEF) continue;
        struct str name = str_bytes(arg_str(rt, e->key));
        for (size_t k = 0, n; k < name.n; k += n) {
            i32 c = tmpl_char(name, k, &n);
            if (tmpl_is_space(c) || c == '/' || c == '>' || c == '=')
                RT_FAIL(rt, "xmlattr: %s is not an attribute name", QUOTE(name));
        }
        if (any || space_before) sbuf_put_str(&sb, &space);
        any = true;
        sbuf_put_str(&sb, str_escape(rt, e->key.s));
        sbuf_puts(&sb, "=\"", false);
        sbuf_put_str(&sb, str_escape(rt, val_to_str(rt, e->value)));
        sbuf_puts(&sb, "\"", false);
    }
    return sbuf_value(&sb);
}

/* What the text says as JSON. Its strings are the user's if any byte of the text is. */
FILTER(from_json)
{
    (void)arg, (void)all;
    const struct tmpl_str *s = arg_str(rt, self);
    bool user = s->user;
    for (size_t i = 0; s->mask && i < s->n; i++) user = user || s->mask[i];
    rt_spend(rt, 1 + s->n / 4);
    json_error_t why;
    size_t cost;
    if (!CK_MUL(s->n, (size_t)JSON_BYTES_A_BYTE, &cost) || cost > rt->fault.n_left) {
        tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "the template uses too much memory");
    }
    rt->fault.n_left -= cost;
    json_t *j = json_loadb(str_bytes(s).p, s->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!j) RT_FAIL(rt, "from_json: invalid JSON: %s", QUOTE(str_of(why.text)));
    if (!rt->json) rt->json = json_array();
    if (!rt->json || json_array_append_new(rt->json, j)) {
        tmpl_fail(&rt->fault, FLETCH_E_NOMEM, "out of memory");
    }
    return val_from_json(rt, j, user);
}

/* ---- numbers ---- */

/* The text of v without spaces and underscores between digits, or false when it is not that. */
static bool number_text(struct tmpl_rt *rt, struct tmpl_value v, char *out, size_t size)
{
    struct str s = str_bytes(str_strip(rt, v.s, NULL, STRIP_LEFT | STRIP_RIGHT).s);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool between = i > 0 && i + 1 < s.n && s.p[i - 1] >= '0' && s.p[i - 1] <= '9' &&
                       s.p[i + 1] >= '0' && s.p[i + 1] <= '9';
        if (s.p[i] == '_' && between) continue;
        if (n + 1 >= size || !strchr("0123456789+-.eEinfatyINFATY", s.p[i]) || !s.p[i])
            return false;
        out[n++] = s.p[i];
    }
    out[n] = 0;
    return n > 0;
}

static bool read_float(struct tmpl_rt *rt, struct tmpl_value v, double *f)
{
    char text[400], *end;
    if (v.kind == V_UNDEF) RT_FAIL(rt, "value is undefined");
    if (v.kind != V_STR) return val_number(v, f);
    if (!number_text(rt, v, text, sizeof text) || strpbrk(text, "nN(") == text + 3) return false;
    *f = strtod(text, &end);
    return *end == 0;
}

/* Python's int(text, base) lets a prefix stand before the digits that fits the base. */
static bool int_text(struct tmpl_rt *rt, struct tmpl_value v, i64 base, char *out, size_t size)
{
    struct str s = str_bytes(str_strip(rt, v.s, NULL, STRIP_LEFT | STRIP_RIGHT).s);
    size_t n = 0, i = 0;
    if (base == 10) return number_text(rt, v, out, size);
    if (base < 2 || base > 36) return false;
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) out[n++] = s.p[i++];
    char mark = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0;
    bool prefix = mark && i + 2 < s.n && s.p[i] == '0' && (s.p[i + 1] | 32) == mark;
    if (prefix) i += 2;
    if (prefix && s.p[i] == '_') i++;
    for (bool digit = false; i < s.n; i++) {
        bool word =
            (s.p[i] >= '0' && s.p[i] <= '9') || ((s.p[i] | 32) >= 'a' && (s.p[i] | 32) <= 'z');
        if (s.p[i] == '_' && digit && i + 1 < s.n && s.p[i + 1] != '_') {
            digit = false;
            continue;
        }
        if (!word || n + 1 >= size) return false;
        digit = true;
        out[n++] = s.p[i];
    }
    out[n] = 0;
    return n > 0;
}

FILTER(int)
{
    (void)all;
    char text[400], *end;
    struct tmpl_value otherwise = arg_missing(arg[0]) ? val_int(0) : arg[0];
    i64 base = arg_int(rt, arg[1], 10), i;
    double f;
    if (val_integer(self, &i)) return val_int(i);
    if (self.kind == V_STR && int_text(rt, self, base, text, sizeof text)) {
        errno = 0;
        i = strtoll(text, &end, (int)base);
        if (*end == 0 && errno) RT_FAIL(rt, "integer overflow in int");
        if (*end == 0) return val_int(i);
    }
    if (!read_float(rt, self, &f) || isnan(f)) return otherwise;
    if (isinf(f) && self.kind == V_STR) return otherwise;
    if (!(f >= -0x1p63 && f < 0x1p63)) RT_FAIL(rt, "integer overflow in int");
    return val_int((i64)f);
}

FILTER(float)
{
    (void)all;
    double f;
    if (read_float(rt, self, &f)) return val_float(f);
    return arg_missing(arg[0]) ? val_float(0) : arg[0];
}

FILTER(abs)
{
    (void)arg, (void)all;
    double f;
    if (!val_number(self, &f)) RT_FAIL(rt, "abs: a %s is not a number", val_type(self));
    return val_sign(rt, f < 0 || (f == 0 && signbit(f)) ? '-' : '+', self);
}

FILTER(filesizeformat)
{
    (void)all;
    static const char units[] = "kMGTPEZY";
    bool binary = val_truth(arg[0]);
    double f, base = binary ? 1024 : 1000, unit = base;
    char text[400];
    size_t i = 0;
    if (!read_float(rt, self, &f))
        RT_FAIL(rt, "filesizeformat: a %s is not a number", val_type(self));
    if (!isfinite(f)) RT_FAIL(rt, "filesizeformat: the number is not finite");
    if (f == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (f < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(f) + 0.0);
    } else {
        while (unit *= base, f >= unit && units[i + 1]) i++;
        char first = binary && i == 0 ? 'K' : units[i];
        snprintf(text, sizeof text, "%.1f %c%sB", base * f / unit, first, binary ? "i" : "");
    }
    struct tmpl_sbuf sb = {.rt = rt};
    sbuf_puts(&sb, text, false);
    return sbuf_value(&sb);
}

FILTER(round)
{
    (void)all;
    i64 precision = arg_int(rt, arg[0], 0), i;
    struct str method = arg_missing(arg[1]) ? STR("common") : str_bytes(arg_str(rt, arg[1]));
    char text[400];
    double f;
    if (!val_number(self, &f)) RT_FAIL(rt, "round: a %s is not a number", val_type(self));
    if (precision < 0 || precision > 15) RT_FAIL(rt, "round: 0 to 15 digits are supported");
    if (str_is(method, "common")) {
        if (val_integer(self, &i)) return val_int(i);
        if (!isfinite(f)) return val_float(f);
        snprintf(text, sizeof text, "%.*f", (int)precision, f); /* exact, half to even */
        return val_float(strtod(text, NULL));
    }
    double scale = pow(10, (double)precision);
    bool down = str_is(method, "floor");
    if (!down && !str_is(method, "ceil")) {
        RT_FAIL(rt, "round: method %s is not supported", QUOTE(method));
    }
    f = (down ? floor(f * scale) : ceil(f * scale)) / scale;
    return val_float(f == 0 ? 0 : f); /* Python goes through an integer, which has no -0 */
}

static const struct tmpl_builtin filters[] = {
    {"abs", "", filter_abs},
    {"capitalize", "", filter_capitalize},
    {"center", "width?", filter_center},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"filesizeformat", "binary?", filter_filesizeformat},
    {"float", "default?", filter_float},
    {"forceescape", "", filter_forceescape},
    {"format", NULL, filter_format},
    {"from_json", "", filter_from_json},
    {"indent", "width? first? blank?", filter_indent},
    {"int", "default? base?", filter_int},
    {"lower", "", filter_lower},
    {"replace", "old new count?", filter_replace},
    {"round", "precision? method?", filter_round},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"trim", "chars?", filter_trim},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"upper", "", filter_upper},
    {"urlencode", "", filter_urlencode},
    {"wordcount", "", filter_wordcount},
    {"xmlattr", "autospace?", filter_xmlattr},
};

const struct tmpl_builtin *tmpl_find_text_filter(struct str name)
{
    return tmpl_find_in(filters, ARRAY_LEN(filters), name);
}
