/* Methods of strings, mappings, lists and loops. The tables also name what Python's types have and
 * we don't: such a name hides a key of a mapping as it does in Jinja2, and calling it is an error.
 */
#include <string.h>

#include "text/tmpl_internal.h"

#define METHOD(name)                                                                   \
    static struct tmpl_value method_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

/* ---- strings ---- */

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

/* Whether the string begins (or ends) with the argument, or with one of a tuple. */
static struct tmpl_value has_affix(struct tmpl_rt *rt, struct tmpl_value self,
                                   struct tmpl_value affix, bool at_end)
{
    struct tmpl_seq one = {.n = 1, .v = &affix};
    bool several = affix.kind == V_SEQ && affix.seq->kind == SEQ_TUPLE;
    const struct tmpl_seq *any = several ? affix.seq : &one;
    for (size_t i = 0; i < any->n; i++) {
        struct str a = str_bytes(arg_str(rt, any->v[i])), s = str_bytes(self.s);
        rt_spend(rt, 1 + a.n / 64);
        if (a.n > s.n) continue;
        if (memcmp(at_end ? s.p + s.n - a.n : s.p, a.p, a.n) == 0) return val_bool(true);
    }
    return val_bool(false);
}

METHOD(startswith)
{
    (void)all;
    return has_affix(rt, self, arg[0], false);
}

METHOD(endswith)
{
    (void)all;
    return has_affix(rt, self, arg[0], true);
}

METHOD(removeprefix)
{
    (void)all;
    bool has = has_affix(rt, self, arg[0], false).b;
    return str_slice(rt, self.s, has ? arg_str(rt, arg[0])->n : 0, self.s->n);
}

METHOD(removesuffix)
{
    (void)all;
    bool has = has_affix(rt, self, arg[0], true).b;
    return str_slice(rt, self.s, 0, self.s->n - (has ? arg_str(rt, arg[0])->n : 0));
}

METHOD(replace)
{
    (void)all;
    const struct tmpl_str *old = arg_str(rt, arg[0]), *new = arg_str(rt, arg[1]);
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

METHOD(splitlines)
{
    (void)all;
    return val_seq(str_lines(rt, self.s, val_truth(arg[0])));
}

METHOD(find)
{
    (void)all;
    struct str s = str_bytes(self.s);
    size_t at;
    rt_spend(rt, 1 + s.n / 64);
    if (!str_find(s, str_bytes(arg_str(rt, arg[0])), 0, &at)) return val_int(-1);
    return val_int((i64)str_count_chars((struct str){s.p, at}));
}

METHOD(str_count)
{
    (void)all;
    struct str s = str_bytes(self.s), what = str_bytes(arg_str(rt, arg[0]));
    i64 count = 0;
    rt_spend(rt, 1 + s.n / 8);
    if (!what.n) return val_int((i64)str_count_chars(s) + 1);
    for (size_t from = 0, at; str_find(s, what, from, &at); from = at + what.n) count++;
    return val_int(count);
}

METHOD(join)
{
    (void)all;
    struct tmpl_sbuf sb = {.rt = rt};
    const struct tmpl_seq *items = val_items(rt, arg[0]);
    for (size_t i = 0; i < items->n; i++) {
        if (i) sbuf_put_str(&sb, self.s);
        sbuf_put_str(&sb, arg_str(rt, items->v[i]));
    }
    return sbuf_value(&sb);
}

static const struct tmpl_builtin str_methods[] = {
    {"strip", "chars?", method_strip},
    {"lstrip", "chars?", method_lstrip},
    {"rstrip", "chars?", method_rstrip},
    {"upper", "", method_upper},
    {"lower", "", method_lower},
    {"title", "", method_title},
    {"capitalize", "", method_capitalize},
    {"startswith", "prefix", method_startswith},
    {"endswith", "suffix", method_endswith},
    {"removeprefix", "prefix", method_removeprefix},
    {"removesuffix", "suffix", method_removesuffix},
    {"replace", "old new count?", method_replace},
    {"split", "sep? maxsplit?", method_split},
    {"splitlines", "keepends?", method_splitlines},
    {"find", "sub", method_find},
    {"count", "sub", method_str_count},
    {"join", "iterable", method_join},
    {"casefold", NULL, NULL},
    {"center", NULL, NULL},
    {"encode", NULL, NULL},
    {"expandtabs", NULL, NULL},
    {"format", NULL, NULL},
    {"format_map", NULL, NULL},
    {"index", NULL, NULL},
    {"isalnum", NULL, NULL},
    {"isalpha", NULL, NULL},
    {"isascii", NULL, NULL},
    {"isdecimal", NULL, NULL},
    {"isdigit", NULL, NULL},
    {"isidentifier", NULL, NULL},
    {"islower", NULL, NULL},
    {"isnumeric", NULL, NULL},
    {"isprintable", NULL, NULL},
    {"isspace", NULL, NULL},
    {"istitle", NULL, NULL},
    {"isupper", NULL, NULL},
    {"ljust", NULL, NULL},
    {"maketrans", NULL, NULL},
    {"partition", NULL, NULL},
    {"rfind", NULL, NULL},
    {"rindex", NULL, NULL},
    {"rjust", NULL, NULL},
    {"rpartition", NULL, NULL},
    {"rsplit", NULL, NULL},
    {"swapcase", NULL, NULL},
    {"translate", NULL, NULL},
    {"zfill", NULL, NULL},
};

/* ---- mappings ---- */

static struct tmpl_value dict_view(struct tmpl_rt *rt, const struct tmpl_dict *d,
                                   enum tmpl_seq_kind kind)
{
    struct tmpl_seq *view = seq_new(rt, kind, d->n);
    view->user = d->user;
    for (size_t i = 0; i < d->n; i++) {
        if (kind == SEQ_ITEMS) {
            struct tmpl_seq *pair = seq_new(rt, SEQ_TUPLE, 2);
            pair->user = d->user;
            pair->v[0] = d->e[i].key;
            pair->v[1] = d->e[i].value;
            view->v[i] = val_seq(pair);
        } else {
            view->v[i] = kind == SEQ_KEYS ? d->e[i].key : d->e[i].value;
        }
    }
    return val_seq(view);
}

METHOD(keys)
{
    (void)arg, (void)all;
    return dict_view(rt, self.dict, SEQ_KEYS);
}

METHOD(values)
{
    (void)arg, (void)all;
    return dict_view(rt, self.dict, SEQ_VALUES);
}

METHOD(items)
{
    (void)arg, (void)all;
    return dict_view(rt, self.dict, SEQ_ITEMS);
}

METHOD(get)
{
    if (!val_hashable(arg[0])) RT_FAIL(rt, "a %s can't be a key", val_type(arg[0]));
    struct tmpl_value *found = dict_get(rt, self.dict, arg[0]);
    return found ? *found : all->n > 1 ? arg[1] : val_none();
}

static const struct tmpl_builtin dict_methods[] = {
    {"get", "key default?", method_get},
    {"items", "", method_items},
    {"keys", "", method_keys},
    {"values", "", method_values},
    {"clear", NULL, NULL},
    {"copy", NULL, NULL},
    {"fromkeys", NULL, NULL},
    {"pop", NULL, NULL},
    {"popitem", NULL, NULL},
    {"setdefault", NULL, NULL},
    {"update", NULL, NULL},
};

/* ---- lists ---- */

METHOD(seq_count)
{
    (void)all;
    i64 count = 0;
    for (size_t i = 0; i < self.seq->n; i++) count += val_eq(rt, self.seq->v[i], arg[0]);
    return val_int(count);
}

METHOD(index)
{
    (void)all;
    for (size_t i = 0; i < self.seq->n; i++) {
        if (val_eq(rt, self.seq->v[i], arg[0])) return val_int((i64)i);
    }
    RT_FAIL(rt, "index: no such item");
}

/* The first two are a tuple's as well; what would change a list is refused, as in the sandbox. */
static const struct tmpl_builtin list_methods[] = {
    {"count", "value", method_seq_count},
    {"index", "value", method_index},
    {"append", NULL, NULL},
    {"clear", NULL, NULL},
    {"copy", NULL, NULL},
    {"extend", NULL, NULL},
    {"insert", NULL, NULL},
    {"pop", NULL, NULL},
    {"remove", NULL, NULL},
    {"reverse", NULL, NULL},
    {"sort", NULL, NULL},
};

/* ---- loops ---- */

METHOD(cycle)
{
    (void)arg;
    if (!all->n || all->n_kw) RT_FAIL(rt, "loop.cycle takes positional arguments");
    return all->v[(u64)self.loop->index0 % all->n];
}

METHOD(changed)
{
    (void)arg;
    struct tmpl_loop *loop = self.loop;
    struct tmpl_seq *now = seq_new(rt, SEQ_TUPLE, all->n);
    if (all->n_kw) RT_FAIL(rt, "loop.changed takes positional arguments");
    for (u32 i = 0; i < all->n; i++) now->v[i] = all->v[i];
    bool same = loop->changed && val_eq(rt, val_seq(loop->changed), val_seq(now));
    loop->changed = now;
    return val_bool(!same);
}

static const struct tmpl_builtin loop_methods[] = {
    {"cycle", NULL, method_cycle},
    {"changed", NULL, method_changed},
};

const struct tmpl_builtin *tmpl_find_method(struct tmpl_value self, struct str name)
{
    if (self.kind == V_STR) return tmpl_find_in(str_methods, ARRAY_LEN(str_methods), name);
    if (self.kind == V_DICT) return tmpl_find_in(dict_methods, ARRAY_LEN(dict_methods), name);
    if (self.kind == V_LOOP) return tmpl_find_in(loop_methods, ARRAY_LEN(loop_methods), name);
    if (self.kind != V_SEQ || self.seq->kind > SEQ_RANGE) return NULL;
    return tmpl_find_in(list_methods, self.seq->kind == SEQ_LIST ? ARRAY_LEN(list_methods) : 2,
                        name);
}
