/* The filters of sequences. Those that Jinja2 makes lazy give a sequence that can be read once
 * (SEQ_ITER): like there, it has no length and no index until |list makes a list of it. */
#include <string.h>

#include "text/tmpl_internal.h"

#define FILTER(name)                                                                   \
    static struct tmpl_value filter_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

/* item.a.b.0 for the path "a.b.0", or item[path] for an integer. */
static struct tmpl_value get_path(struct tmpl_rt *rt, struct tmpl_value item,
                                  struct tmpl_value path)
{
    if (arg_absent(path)) return item;
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

struct tmpl_seq *dict_pairs(struct tmpl_rt *rt, struct tmpl_value dict)
{
    const struct tmpl_args none = {0};
    return tmpl_call_builtin(rt, tmpl_find_method(dict, STR("items")), dict, &none).seq;
}

FILTER(dictsort)
{
    (void)all;
    struct str by = arg_missing(arg[1]) ? STR("key") : str_bytes(arg_str(rt, arg[1]));
    if (self.kind != V_DICT) RT_FAIL(rt, "dictsort: a %s is not a mapping", val_type(self));
    if (!str_is(by, "key") && !str_is(by, "value"))
        RT_FAIL(rt, "dictsort: by must be 'key' or 'value'");
    return sort_items(rt, dict_pairs(rt, self), val_truth(arg[2]), val_truth(arg[0]),
                      val_int(str_is(by, "value")));
}

FILTER(items)
{
    (void)arg, (void)all;
    if (self.kind == V_UNDEF) return val_seq(seq_new(rt, SEQ_ITER, 0));
    if (self.kind != V_DICT) RT_FAIL(rt, "items: a %s is not a mapping", val_type(self));
    struct tmpl_seq *pairs = dict_pairs(rt, self);
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
            RT_FAIL(rt, "unique: cannot compare items of type %s", val_type(key));
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

/* The least or greatest item, the first of several equal ones. */
static struct tmpl_value pick_extreme(struct tmpl_rt *rt, struct tmpl_value self,
                                      const struct tmpl_value *arg, bool greatest)
{
    const struct tmpl_seq *items = val_items(rt, self);
    if (!items->n) return val_undef(NULL);
    struct tmpl_value best = val_none();
    size_t at = 0;
    for (size_t i = 0; i < items->n; i++) {
        struct tmpl_value key = get_path(rt, items->v[i], arg[1]);
        if (!val_truth(arg[0])) key = ignore_case(rt, key);
        if (i && !(greatest ? val_less(rt, best, key) : val_less(rt, key, best))) continue;
        best = key;
        at = i;
    }
    return items->v[at];
}

FILTER(max)
{
    (void)all;
    return pick_extreme(rt, self, arg, true);
}

FILTER(min)
{
    (void)all;
    return pick_extreme(rt, self, arg, false);
}

FILTER(sum)
{
    (void)all;
    struct tmpl_value sum = arg_missing(arg[1]) ? val_int(0) : arg[1];
    if (sum.kind == V_STR) RT_FAIL(rt, "sum: cannot add strings; use |join");
    const struct tmpl_seq *items = val_items(rt, self);
    for (size_t i = 0; i < items->n; i++) {
        sum = val_binary(rt, OP_ADD, sum, get_path(rt, items->v[i], arg[0]));
    }
    return sum;
}

/* Pairs of a value and the items that have it, in the order of the values. */
FILTER(groupby)
{
    (void)all;
    bool case_sensitive = val_truth(arg[2]);
    const struct tmpl_seq *items = val_items(rt, self);
    struct tmpl_pair *e = rt_alloc(rt, items->n, sizeof *e);
    for (size_t i = 0; i < items->n; i++) {
        struct tmpl_value key = get_path(rt, items->v[i], arg[0]);
        if (key.kind == V_UNDEF && !arg_absent(arg[1])) key = arg[1];
        e[i] = (struct tmpl_pair){case_sensitive ? key : ignore_case(rt, key), items->v[i]};
    }
    sort_pairs(rt, e, items->n, false);
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, items->n);
    out->n = 0;
    for (size_t i = 0, end; i < items->n; i = end) {
        for (end = i + 1; end < items->n && val_eq(rt, e[end].key, e[i].key);) end++;
        struct tmpl_seq *pair = seq_new(rt, SEQ_TUPLE, 2), *group = seq_new(rt, SEQ_LIST, end - i);
        for (size_t k = i; k < end; k++) group->v[k - i] = e[k].value;
        struct tmpl_value key = get_path(rt, e[i].value, arg[0]); /* as its first item writes it */
        if (key.kind == V_UNDEF && !arg_absent(arg[1])) key = arg[1];
        pair->v[0] = key;
        pair->v[1] = val_seq(group);
        pair->group = true;
        out->v[out->n++] = val_seq(pair);
    }
    return val_seq(out);
}

/* items[from:to] as a list, followed by `fill` items of a kind. */
static struct tmpl_value part_of(struct tmpl_rt *rt, const struct tmpl_seq *items, size_t from,
                                 size_t to, size_t fill, struct tmpl_value with)
{
    size_t n;
    if (!CK_ADD(to - from, fill, &n)) n = SIZE_MAX; /* seq_new refuses it */
    struct tmpl_seq *out = seq_new(rt, SEQ_LIST, n);
    out->user = items->user;
    for (size_t i = 0; i < n; i++) out->v[i] = i < to - from ? items->v[from + i] : with;
    return val_seq(out);
}

/* Lists of `linecount` items; with 0 or less Jinja2 never ends the one it has begun. */
FILTER(batch)
{
    (void)all;
    const struct tmpl_seq *items = val_items(rt, self);
    i64 size = arg_int(rt, arg[0], 0);
    size_t n_empty = items->n && size == 0, from = 0,
           step = size > 0 ? (size_t)size : MAX(items->n, (size_t)1);
    struct tmpl_seq *out =
        seq_new(rt, SEQ_ITER, n_empty + items->n / step + (items->n % step != 0));
    if (n_empty) out->v[0] = val_seq(seq_new(rt, SEQ_LIST, 0));
    for (size_t i = n_empty; i < out->n; i++, from += step) {
        size_t to = items->n - from > step ? from + step : items->n;
        size_t fill = arg_absent(arg[1]) || size <= 0 ? 0 : step - (to - from);
        out->v[i] = part_of(rt, items, from, to, fill, arg[1]);
    }
    return val_seq(out);
}

/* n lists, n given, whose lengths differ by at most one. */
FILTER(slice)
{
    (void)all;
    const struct tmpl_seq *items = val_items(rt, self);
    i64 count = arg_int(rt, arg[0], 0);
    if (count == 0) RT_FAIL(rt, "slice: division by zero");
    size_t n = count > 0 ? (size_t)count : 0, from = 0;
    struct tmpl_seq *out = seq_new(rt, SEQ_ITER, n);
    for (size_t i = 0; i < n; i++) {
        bool longer = i < items->n % n;
        size_t to = from + items->n / n + longer;
        out->v[i] = part_of(rt, items, from, to, !longer && !arg_absent(arg[1]), arg[1]);
        from = to;
    }
    return val_seq(out);
}

/* A member that Python has itself, never a key. */
FILTER(attr)
{
    (void)all;
    const struct tmpl_str *name = val_to_str(rt, arg[0]);
    return self.kind == V_UNDEF ? val_attr(rt, self, name) : val_own_attr(rt, self, name);
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
        RT_FAIL(rt, "last: a lazy sequence has no end; apply |list first");
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
    struct tmpl_sbuf sb = {.rt = rt, .safe = self.s->safe};
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
    if (all->n || all->n_kw) return arg[0];
    return (struct tmpl_value){V_STR, .s = val_to_str(rt, val_undef(NULL))};
}

/* map(attribute=PATH, default=X) or map(FILTER, arguments). */
FILTER(map)
{
    (void)arg;
    struct tmpl_value path = val_none(), otherwise = val_none();
    if (!val_truth(self)) return val_seq(seq_new(rt, SEQ_ITER, 0));
    for (u32 i = 0; !all->n && i < all->n_kw; i++) {
        struct str name = all->kw[i];
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
    {"attr", "name", filter_attr},
    {"batch", "linecount fill_with?", filter_batch},
    {"count", "", filter_length},
    {"d", "default_value? boolean?", filter_default},
    {"default", "default_value? boolean?", filter_default},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"first", "", filter_first},
    {"groupby", "attribute default? case_sensitive?", filter_groupby},
    {"items", "", filter_items},
    {"join", "d? attribute?", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"map", NULL, filter_map},
    {"max", "case_sensitive? attribute?", filter_max},
    {"min", "case_sensitive? attribute?", filter_min},
    {"reject", NULL, filter_reject},
    {"rejectattr", NULL, filter_rejectattr},
    {"reverse", "", filter_reverse},
    {"select", NULL, filter_select},
    {"selectattr", NULL, filter_selectattr},
    {"slice", "slices fill_with?", filter_slice},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"sum", "attribute? start?", filter_sum},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"pprint", "filter", NULL},
    {"random", "filter", NULL},
    {"striptags", "filter", NULL},
    {"urlize", "filter", NULL},
    {"wordwrap", "filter", NULL},
};

const struct tmpl_builtin *tmpl_find_items_filter(struct str name)
{
    return tmpl_find_in(filters, ARRAY_LEN(filters), name);
}
