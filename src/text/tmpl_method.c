/* Methods of mappings, lists, loops and numbers. The tables also name what Python's types have and
 * we don't: such a name hides a key of a mapping as it does in Jinja2, and calling it is an error.
 */
#include <math.h>
#include <string.h>

#include "text/tmpl_internal.h"

#define METHOD(name)                                                                   \
    static struct tmpl_value method_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                           const struct tmpl_value *arg,               \
                                           const struct tmpl_args *all)

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
    if (!val_hashable(arg[0])) RT_FAIL(rt, "a %s cannot be a key", val_type(arg[0]));
    struct tmpl_value *found = dict_get(rt, self.dict, arg[0]);
    return found ? *found : all->n > 1 ? arg[1] : val_none();
}

METHOD(dict_copy)
{
    (void)arg, (void)all;
    struct tmpl_dict *d = dict_new(rt, self.dict->n);
    d->user = self.dict->user;
    d->n = self.dict->n;
    if (d->n) memcpy(d->e, self.dict->e, d->n * sizeof *d->e);
    return (struct tmpl_value){V_DICT, .dict = d};
}

static const struct tmpl_builtin dict_methods[] = {
    {"get", "key default?", method_get},
    {"items", "", method_items},
    {"keys", "", method_keys},
    {"values", "", method_values},
    {"copy", "", method_dict_copy},
    {"clear", NULL, NULL},
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
    i64 n = (i64)self.seq->n, at[2] = {0, n};
    for (int i = 0; i < 2; i++) {
        if (arg_missing(arg[i + 1])) continue;
        i64 x = arg_int(rt, arg[i + 1], 0);
        at[i] = x < 0 ? MAX(x + n, 0) : MIN(x, n);
    }
    for (i64 i = at[0]; i < at[1]; i++) {
        if (val_eq(rt, self.seq->v[i], arg[0])) return val_int(i);
    }
    RT_FAIL(rt, "index: no such item");
}

METHOD(seq_copy)
{
    (void)arg, (void)all;
    struct tmpl_seq *copy = seq_new(rt, SEQ_LIST, self.seq->n);
    copy->user = self.seq->user;
    if (copy->n) memcpy(copy->v, self.seq->v, copy->n * sizeof *copy->v);
    return val_seq(copy);
}

/* The first two are a tuple's as well; what would change a list is refused, as in the sandbox. */
static const struct tmpl_builtin list_methods[] = {
    {"count", "value", method_seq_count},
    {"index", "value start? stop?", method_index},
    {"copy", "", method_seq_copy},
    {"append", NULL, NULL},
    {"clear", NULL, NULL},
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

/* ---- cyclers and numbers ---- */

METHOD(next)
{
    (void)arg, (void)all;
    struct tmpl_seq *items = self.seq;
    struct tmpl_value v = items->v[items->start];
    rt_spend(rt, 1);
    items->start = (items->start + 1) % (i64)items->n;
    return v;
}

METHOD(reset)
{
    (void)rt, (void)arg, (void)all;
    self.seq->start = 0;
    return val_none();
}

static const struct tmpl_builtin cycler_methods[] = {
    {"next", "", method_next},
    {"reset", "", method_reset},
};

METHOD(bit_length)
{
    (void)rt, (void)arg, (void)all;
    i64 i, n = 0;
    val_integer(self, &i);
    for (u64 left = i < 0 ? 0 - (u64)i : (u64)i; left; left >>= 1) n++;
    return val_int(n);
}

METHOD(is_integer)
{
    (void)rt, (void)arg, (void)all;
    return val_bool(isfinite(self.f) && self.f == floor(self.f));
}

static const struct tmpl_builtin int_methods[] = {{"bit_length", "", method_bit_length}};
static const struct tmpl_builtin float_methods[] = {{"is_integer", "", method_is_integer}};

const struct tmpl_builtin *tmpl_find_method(struct tmpl_value self, struct str name)
{
    switch (self.kind) {
    case V_STR: return tmpl_find_str_method(name);
    case V_DICT: return tmpl_find_in(dict_methods, ARRAY_LEN(dict_methods), name);
    case V_LOOP: return tmpl_find_in(loop_methods, ARRAY_LEN(loop_methods), name);
    case V_CYCLER: return tmpl_find_in(cycler_methods, ARRAY_LEN(cycler_methods), name);
    case V_BOOL:
    case V_INT: return tmpl_find_in(int_methods, ARRAY_LEN(int_methods), name);
    case V_FLOAT: return tmpl_find_in(float_methods, ARRAY_LEN(float_methods), name);
    case V_SEQ: break;
    default: return NULL;
    }
    if (self.seq->kind > SEQ_RANGE) return NULL;
    return tmpl_find_in(list_methods, self.seq->kind == SEQ_LIST ? ARRAY_LEN(list_methods) : 2,
                        name);
}
