/* The filters. Those that Jinja2 makes lazy give a sequence that can be read once (SEQ_ITER): like
 * there, it has no length and no index until |list makes a list of it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_internal.h"

#define FILTER(name)                                                                   \
    static struct tmpl_value filter_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

static struct tmpl_value text_value(struct tmpl_rt *rt, struct tmpl_value v)
{
    return (struct tmpl_value){V_STR, .s = val_to_str(rt, v)};
}

static bool is_absent(struct tmpl_value v)
{
    return arg_missing(v) || v.kind == V_NONE;
}

/* ---- text ---- */

#define FILTER_CASE(name, how)                          \
    FILTER(name)                                        \
    {                                                   \
        (void)arg, (void)all;                           \
        return str_case(rt, val_to_str(rt, self), how); \
    }
FILTER_CASE(upper, CASE_UPPER)
FILTER_CASE(lower, CASE_LOWER)
FILTER_CASE(title, CASE_TITLE_FILTER)
FILTER_CASE(capitalize, CASE_CAPITALIZE)

FILTER(string)
{
    (void)arg, (void)all;
    return text_value(rt, self);
}

FILTER(trim)
{
    (void)all;
    const struct tmpl_str *chars = is_absent(arg[0]) ? NULL : arg_str(rt, arg[0]);
    return str_strip(rt, val_to_str(rt, self), chars, STRIP_LEFT | STRIP_RIGHT);
}

FILTER(replace)
{
    (void)all;
    i64 count = is_absent(arg[2]) ? -1 : arg_int(rt, arg[2], -1);
    return str_replace(rt, val_to_str(rt, self), val_to_str(rt, arg[0]), val_to_str(rt, arg[1]),
                       count);
}

FILTER(indent)
{
    (void)all;
    struct tmpl_sbuf pad = {.rt = rt}, sb = {.rt = rt};
    if (arg[0].kind == V_STR) {
        sbuf_put_str(&pad, arg[0].s);
    } else {
        for (i64 i = arg_int(rt, arg[0], 4); i > 0; i--) sbuf_put(&pad, " ", 1, false);
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
                                    .pretty = !is_absent(arg[1]),
                                    .sort_keys = val_truth(arg[3])};
    style.item_sep = &(struct tmpl_str){.p = ", ", .n = style.pretty ? 1 : 2};
    style.key_sep = &(struct tmpl_str){.p = ": ", .n = 2};
    if (arg[1].kind == V_STR) {
        style.indent = arg[1].s;
    } else if (style.pretty) {
        struct tmpl_sbuf pad = {.rt = rt};
        for (i64 i = arg_int(rt, arg[1], 0); i > 0; i--) sbuf_put(&pad, " ", 1, false);
        style.indent = sbuf_value(&pad).s;
    }
    if (!is_absent(arg[2])) {
        const struct tmpl_seq *seps = val_items(rt, arg[2]);
        if (seps->n != 2) RT_FAIL(rt, "tojson: two separators expected");
        style.item_sep = arg_str(rt, seps->v[0]);
        style.key_sep = arg_str(rt, seps->v[1]);
    }
    print_json(&sb, self, &style);
    return sbuf_value(&sb);
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

FILTER(int)
{
    (void)all;
    char text[400], *end;
    struct tmpl_value otherwise = arg_missing(arg[0]) ? val_int(0) : arg[0];
    double f;
    i64 i;
    if (val_integer(self, &i)) return val_int(i);
    if (self.kind == V_STR && number_text(rt, self, text, sizeof text)) {
        errno = 0;
        i = strtoll(text, &end, 10);
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
    if (!val_number(self, &f)) RT_FAIL(rt, "abs: a %s is no number", val_type(self));
    return val_sign(rt, f < 0 || (f == 0 && signbit(f)) ? '-' : '+', self);
}

FILTER(round)
{
    (void)all;
    i64 precision = arg_int(rt, arg[0], 0), i;
    struct str method = arg_missing(arg[1]) ? STR("common") : str_bytes(arg_str(rt, arg[1]));
    char text[400];
    double f;
    if (!val_number(self, &f)) RT_FAIL(rt, "round: a %s is no number", val_type(self));
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

/* ---- sequences ---- */

/* item.a.b.0 for the path "a.b.0", or item[path] for an integer. */
static struct tmpl_value get_path(struct tmpl_rt *rt, struct tmpl_value item,
                                  struct tmpl_value path)
{
    if (is_absent(path)) return item;
    if (path.kind != V_STR) return val_item(rt, item, path);
    struct str s = str_bytes(path.s);
    for (size_t from = 0, end; from <= s.n; from = end + 1) {
        end = from;
        bool digits = true;
        i64 i = 0;
        for (; end < s.n && s.p[end] != '.'; end++) {
            digits = digits && s.p[end] >= '0' && s.p[end] <= '9' && i < INT32_MAX;
            if (digits) i = i * 10 + (s.p[end] - '0');
        }
        rt_spend(rt, 1);
        item = val_item(rt, item,
                        digits && end > from ? val_int(i) : str_slice(rt, path.s, from, end));
    }
    return item;
}

static struct tmpl_value ignore_case(struct tmpl_rt *rt, struct tmpl_value v)
{
    return v.kind == V_STR ? str_case(rt, v.s, CASE_LOWER) : v;
}

/* What an item is sorted by: its values at each of the paths, which commas separate. */
static struct tmpl_value sort_key(struct tmpl_rt *rt, struct tmpl_value item,
                                  struct tmpl_value paths, bool case_sensitive)
{
    size_t n = 1, from = 0, at;
    if (paths.kind == V_STR) {
        for (size_t i = 0; i < paths.s->n; i++) n += paths.s->p[i] == ',';
    }
    struct tmpl_seq *key = seq_new(rt, SEQ_LIST, n);
    for (size_t i = 0; i < n; i++) {
        struct tmpl_value path = paths;
        if (paths.kind == V_STR) {
            if (!str_find(str_bytes(paths.s), STR(","), from, &at)) at = paths.s->n;
            path = str_slice(rt, paths.s, from, at);
            from = at + 1;
        }
        key->v[i] = get_path(rt, item, path);
        if (!case_sensitive) key->v[i] = ignore_case(rt, key->v[i]);
    }
    return val_seq(key);
}

/* Sorts pairs by key, stable in both directions. */
static void sort_pairs(struct tmpl_rt *rt, struct tmpl_pair *e, size_t n, bool reverse)
{
    struct tmpl_pair *from = e, *to = rt_alloc(rt, n, sizeof *to), *tmp;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = MIN(lo + width, n), hi = MIN(lo + 2 * width, n), a = lo, b = mid;
            for (size_t k = lo; k < hi; k++) {
                bool right =
                    a == mid || (b < hi && (reverse ? val_less(rt, from[a].key, from[b].key)
                                                    : val_less(rt, from[b].key, from[a].key)));
                to[k] = from[right ? b++ : a++];
            }
        }
        tmp = from;
        from = to;
        to = tmp;
    }
    if (from != e) memcpy(e, from, n * sizeof *e);
}

static struct tmpl_value sort_items(struct tmpl_rt *rt, const struct tmpl_seq *items, bool reverse,
                                    bool case_sensitive, struct tmpl_value path)
{
    struct tmpl_pair *e = rt_alloc(rt, items->n, sizeof *e);
    for (size_t i = 0; i < items->n; i++) {
        e[i].key = sort_key(rt, items->v[i], path, case_sensitive);
        e[i].value = items->v[i];
    }
    sort_pairs(rt, e, items->n, reverse);
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, items->n);
    out->user = items->user;
    for (size_t i = 0; i < items->n; i++) out->v[i] = e[i].value;
    return val_seq(out);
}

FILTER(sort)
{
    (void)all;
    return sort_items(rt, val_items(rt, self), val_truth(arg[0]), val_truth(arg[1]), arg[2]);
}

static struct tmpl_seq *pairs_of(struct tmpl_rt *rt, struct tmpl_value dict)
{
    const struct tmpl_args none = {0};
    return tmpl_call_builtin(rt, tmpl_find_method(dict, STR("items")), dict, &none).seq;
}

FILTER(dictsort)
{
    (void)all;
    struct str by = arg_missing(arg[1]) ? STR("key") : str_bytes(arg_str(rt, arg[1]));
    if (self.kind != V_DICT) RT_FAIL(rt, "dictsort: a %s is no mapping", val_type(self));
    if (!str_is(by, "key") && !str_is(by, "value")) RT_FAIL(rt, "dictsort: by 'key' or 'value'");
    return sort_items(rt, pairs_of(rt, self), val_truth(arg[2]), val_truth(arg[0]),
                      val_int(str_is(by, "value")));
}

FILTER(items)
{
    (void)arg, (void)all;
    if (self.kind == V_UNDEF) return val_seq(seq_new(rt, SEQ_ITER, 0));
    if (self.kind != V_DICT) RT_FAIL(rt, "items: a %s is no mapping", val_type(self));
    struct tmpl_seq *pairs = pairs_of(rt, self);
    pairs->kind = SEQ_ITER;
    return val_seq(pairs);
}

FILTER(unique)
{
    (void)all;
    const struct tmpl_seq *items = val_items(rt, self);
    struct tmpl_seq *out = seq_new(rt, SEQ_ITER, items->n), *keys = seq_new(rt, SEQ_LIST, items->n);
    out->n = 0;
    for (size_t i = 0; i < items->n; i++) {
        struct tmpl_value key = get_path(rt, items->v[i], arg[1]);
        bool seen = false;
        if (!val_truth(arg[0])) key = ignore_case(rt, key);
        if (!val_hashable(key))
            RT_FAIL(rt, "unique: can't compare items of kind %s", val_type(key));
        for (size_t k = 0; k < out->n && !seen; k++) {
            rt_spend(rt, 1);
            seen = val_eq(rt, keys->v[k], key);
        }
        if (seen) continue;
        keys->v[out->n] = key;
        out->v[out->n++] = items->v[i];
    }
    return val_seq(out);
}

FILTER(list)
{
    (void)arg, (void)all;
    const struct tmpl_seq *items = val_items(rt, self);
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, items->n);
    if (items->n) memcpy(out->v, items->v, items->n * sizeof *out->v);
    out->user = items->user;
    return val_seq(out);
}

FILTER(first)
{
    (void)arg, (void)all;
    if (self.kind == V_SEQ && self.seq->kind == SEQ_ITER && self.seq->n) {
        self.seq->n--;
        return *self.seq->v++;
    }
    const struct tmpl_seq *items = val_items(rt, self);
    return items->n ? items->v[0] : val_undef(NULL);
}

FILTER(last)
{
    (void)arg, (void)all;
    if (self.kind == V_SEQ && self.seq->kind == SEQ_ITER) {
        RT_FAIL(rt, "last: a lazy sequence has no end yet; put |list before it");
    }
    const struct tmpl_seq *items = val_items(rt, self);
    return items->n ? items->v[items->n - 1] : val_undef(NULL);
}

FILTER(reverse)
{
    (void)arg, (void)all;
    const struct tmpl_seq *items = val_items(rt, self);
    bool lazy = self.kind == V_SEQ && self.seq->kind == SEQ_ITER; /* only these become lists */
    struct tmpl_seq *out = seq_new(rt, lazy ? SEQ_LIST : SEQ_ITER, items->n);
    for (size_t i = 0; i < items->n; i++) out->v[i] = items->v[items->n - 1 - i];
    if (self.kind != V_STR) return val_seq(out);
    struct tmpl_sbuf sb = {.rt = rt};
    for (size_t i = 0; i < out->n; i++) sbuf_put_str(&sb, out->v[i].s);
    return sbuf_value(&sb);
}

FILTER(length)
{
    (void)arg, (void)all;
    return val_int(val_length(rt, self));
}

FILTER(join)
{
    (void)all;
    struct tmpl_sbuf sb = {.rt = rt};
    const struct tmpl_str *sep = val_to_str(rt, arg[0]);
    const struct tmpl_seq *items = val_items(rt, self);
    for (size_t i = 0; i < items->n; i++) {
        if (i) sbuf_put_str(&sb, sep);
        print_str(&sb, get_path(rt, items->v[i], arg[1]));
    }
    return sbuf_value(&sb);
}

FILTER(default)
{
    if (self.kind != V_UNDEF && !(val_truth(arg[1]) && !val_truth(self))) return self;
    return all->n || all->n_kw ? arg[0] : text_value(rt, val_undef(NULL));
}

/* map(attribute=PATH, default=X) or map(FILTER, arguments). */
FILTER(map)
{
    (void)arg;
    struct tmpl_value path = val_none(), otherwise = val_none();
    if (!val_truth(self)) return val_seq(seq_new(rt, SEQ_ITER, 0));
    for (u32 i = 0; !all->n && i < all->n_kw; i++) {
        struct str name = rt->t->names[all->kw[i]];
        if (str_is(name, "attribute")) {
            path = all->v[i];
        } else if (str_is(name, "default")) {
            otherwise = all->v[i];
        } else {
            RT_FAIL(rt, "map got the unknown argument %s", QUOTE(name));
        }
    }
    if (!all->n && path.kind == V_NONE) RT_FAIL(rt, "map needs a filter or attribute=");
    const struct tmpl_seq *items = val_items(rt, self);
    struct tmpl_seq *out = seq_new(rt, SEQ_ITER, items->n);
    for (size_t i = 0; i < items->n; i++) {
        struct tmpl_value v = all->n ? tmpl_call_named(rt, false, items->v[i], all, 0)
                                     : get_path(rt, items->v[i], path);
        out->v[i] = v.kind == V_UNDEF && !all->n && otherwise.kind != V_NONE ? otherwise : v;
    }
    return val_seq(out);
}

/* The items (or, by their attribute, those) that a test holds for, or does not. */
static struct tmpl_value select_items(struct tmpl_rt *rt, struct tmpl_value self,
                                      const struct tmpl_args *all, bool by_attribute, bool wanted)
{
    if (!val_truth(self)) return val_seq(seq_new(rt, SEQ_ITER, 0));
    if (by_attribute && !all->n) RT_FAIL(rt, "the name of an attribute is missing");
    const struct tmpl_seq *items = val_items(rt, self);
    struct tmpl_seq *out = seq_new(rt, SEQ_ITER, items->n);
    u32 test_at = by_attribute;
    out->n = 0;
    out->user = items->user;
    for (size_t i = 0; i < items->n; i++) {
        struct tmpl_value v = by_attribute ? get_path(rt, items->v[i], all->v[0]) : items->v[i];
        if (all->n > test_at) v = tmpl_call_named(rt, true, v, all, test_at);
        if (val_truth(v) == wanted) out->v[out->n++] = items->v[i];
    }
    return val_seq(out);
}

FILTER(select)
{
    (void)arg;
    return select_items(rt, self, all, false, true);
}

FILTER(reject)
{
    (void)arg;
    return select_items(rt, self, all, false, false);
}

FILTER(selectattr)
{
    (void)arg;
    return select_items(rt, self, all, true, true);
}

FILTER(rejectattr)
{
    (void)arg;
    return select_items(rt, self, all, true, false);
}

static const struct tmpl_builtin filters[] = {
    {"abs", "", filter_abs},
    {"capitalize", "", filter_capitalize},
    {"count", "", filter_length},
    {"d", "default_value? boolean?", filter_default},
    {"default", "default_value? boolean?", filter_default},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"first", "", filter_first},
    {"float", "default?", filter_float},
    {"indent", "width? first? blank?", filter_indent},
    {"int", "default?", filter_int},
    {"items", "", filter_items},
    {"join", "d? attribute?", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"lower", "", filter_lower},
    {"map", NULL, filter_map},
    {"reject", NULL, filter_reject},
    {"rejectattr", NULL, filter_rejectattr},
    {"replace", "old new count?", filter_replace},
    {"reverse", "", filter_reverse},
    {"round", "precision? method?", filter_round},
    {"safe", "", filter_string},
    {"select", NULL, filter_select},
    {"selectattr", NULL, filter_selectattr},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"trim", "chars?", filter_trim},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"upper", "", filter_upper},
};

const struct tmpl_builtin *tmpl_find_filter(struct str name)
{
    return tmpl_find_in(filters, ARRAY_LEN(filters), name);
}
