/* What the operators of a template mean, after Python: truth, equality, order, membership, members
 * and slices, arithmetic. Integers have 64 bits; more is an error, never a wrong number. */
#include <math.h>
#include <string.h>

#include "text/tmpl_internal.h"

/* ---- making ---- */

struct tmpl_value val_undef(const struct tmpl_str *name)
{
    return (struct tmpl_value){V_UNDEF, .s = name};
}

struct tmpl_value val_none(void)
{
    return (struct tmpl_value){V_NONE, .i = 0};
}

struct tmpl_value val_bool(bool b)
{
    return (struct tmpl_value){V_BOOL, .b = b};
}

struct tmpl_value val_int(i64 i)
{
    return (struct tmpl_value){V_INT, .i = i};
}

struct tmpl_value val_float(double f)
{
    return (struct tmpl_value){V_FLOAT, .f = f};
}

struct tmpl_value val_str(struct tmpl_rt *rt, struct tmpl_str s)
{
    struct tmpl_str *p = rt_alloc(rt, 1, sizeof *p);
    *p = s;
    return (struct tmpl_value){V_STR, .s = p};
}

struct tmpl_value val_seq(struct tmpl_seq *seq)
{
    return (struct tmpl_value){V_SEQ, .seq = seq};
}

struct tmpl_seq *seq_new(struct tmpl_rt *rt, enum tmpl_seq_kind kind, size_t n)
{
    struct tmpl_seq *seq = rt_alloc(rt, 1, sizeof *seq);
    rt_spend(rt, n / 8);
    seq->kind = kind;
    seq->n = n;
    if (n) seq->v = rt_alloc(rt, n, sizeof *seq->v);
    return seq;
}

struct tmpl_seq *seq_range(struct tmpl_rt *rt, i64 start, i64 stop, i64 step)
{
    if (step == 0) RT_FAIL(rt, "range: the step cannot be 0");
    u64 span = step > 0 ? (stop > start ? (u64)stop - (u64)start : 0)
                        : (start > stop ? (u64)start - (u64)stop : 0);
    u64 stride = step > 0 ? (u64)step : 0 - (u64)step;
    u64 n = span / stride + (span % stride != 0);
    if (n > TMPL_MAX_RANGE) {
        tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "range has more than %d items", TMPL_MAX_RANGE);
    }
    struct tmpl_seq *seq = seq_new(rt, SEQ_RANGE, (size_t)n);
    seq->start = start;
    seq->stop = stop;
    seq->step = step;
    for (u64 i = 0; i < n; i++) seq->v[i] = val_int((i64)((u64)start + i * (u64)step));
    return seq;
}

struct tmpl_dict *dict_new(struct tmpl_rt *rt, size_t cap)
{
    struct tmpl_dict *d = rt_alloc(rt, 1, sizeof *d);
    d->cap = cap;
    if (cap) d->e = rt_alloc(rt, cap, sizeof *d->e);
    return d;
}

struct tmpl_value *dict_get(struct tmpl_rt *rt, const struct tmpl_dict *d, struct tmpl_value key)
{
    rt_spend(rt, d->n / 8);
    for (size_t i = 0; i < d->n; i++) {
        if (val_eq(rt, d->e[i].key, key)) return &d->e[i].value;
    }
    return NULL;
}

void dict_set(struct tmpl_rt *rt, struct tmpl_dict *d, struct tmpl_value key,
              struct tmpl_value value)
{
    if (!val_hashable(key)) RT_FAIL(rt, "a %s cannot be a key", val_type(key));
    struct tmpl_value *old = dict_get(rt, d, key);
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct tmpl_pair *e = rt_alloc(rt, cap, sizeof *e);
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
    }
    d->e[d->n++] = (struct tmpl_pair){key, value};
}

static struct tmpl_str json_str(const char *p, size_t n, bool user)
{
    return (struct tmpl_str){.p = p, .n = n, .user = user};
}

/* Strings are borrowed from j. */
struct tmpl_value val_from_json(struct tmpl_rt *rt, const json_t *j, bool user)
{
    struct tmpl_value v = val_none();
    rt_enter(rt);
    rt_spend(rt, 1);
    switch (json_typeof(j)) {
    case JSON_TRUE:
    case JSON_FALSE: v = val_bool(json_is_true(j)); break;
    case JSON_INTEGER: v = val_int(json_integer_value(j)); break;
    case JSON_REAL: v = val_float(json_real_value(j)); break;
    case JSON_STRING:
        v = val_str(rt, json_str(json_string_value(j), json_string_length(j), user));
        break;
    case JSON_ARRAY: {
        struct tmpl_seq *seq = seq_new(rt, SEQ_LIST, json_array_size(j));
        seq->user = user;
        for (size_t i = 0; i < seq->n; i++) {
            seq->v[i] = val_from_json(rt, json_array_get(j, i), user);
        }
        v = val_seq(seq);
        break;
    }
    case JSON_OBJECT: {
        struct tmpl_dict *d = dict_new(rt, json_object_size(j));
        d->user = user;
        for (void *it = json_object_iter((json_t *)j); it;
             it = json_object_iter_next((json_t *)j, it)) {
            const char *key = json_object_iter_key(it);
            size_t n = json_object_iter_key_len(it);
            d->e[d->n++] = (struct tmpl_pair){val_str(rt, json_str(key, n, user)),
                                              val_from_json(rt, json_object_iter_value(it), user)};
        }
        v = (struct tmpl_value){V_DICT, .dict = d};
        break;
    }
    case JSON_NULL: break;
    }
    rt_leave(rt);
    return v;
}

/* ---- asking ---- */

const char *val_type(struct tmpl_value v)
{
    static const char *const kinds[] = {
        [V_UNDEF] = "undefined value", [V_NONE] = "none",       [V_BOOL] = "boolean",
        [V_INT] = "integer",           [V_FLOAT] = "float",     [V_STR] = "string",
        [V_DICT] = "mapping",          [V_SPACE] = "namespace", [V_LOOP] = "loop",
        [V_MACRO] = "macro",           [V_FUNC] = "function",   [V_METHOD] = "method",
        [V_CYCLER] = "cycler",         [V_JOINER] = "joiner",
    };
    static const char *const seqs[] = {"list", "tuple", "range",        "view",
                                       "view", "view",  "lazy sequence"};
    return v.kind == V_SEQ ? seqs[v.seq->kind] : kinds[v.kind];
}

bool val_truth(struct tmpl_value v)
{
    switch (v.kind) {
    case V_UNDEF:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STR: return v.s->n > 0;
    case V_SEQ: return v.seq->kind == SEQ_ITER || v.seq->n > 0;
    case V_DICT: return v.dict->n > 0;
    default: return true;
    }
}

bool val_integer(struct tmpl_value v, i64 *i)
{
    *i = v.kind == V_INT ? v.i : v.kind == V_BOOL ? v.b : 0;
    return v.kind == V_INT || v.kind == V_BOOL;
}

bool val_number(struct tmpl_value v, double *f)
{
    i64 i;
    bool whole = val_integer(v, &i);
    *f = whole ? (double)i : v.kind == V_FLOAT ? v.f : 0;
    return whole || v.kind == V_FLOAT;
}

bool val_hashable(struct tmpl_value v)
{
    if (v.kind == V_SEQ && v.seq->kind == SEQ_TUPLE) {
        for (size_t i = 0; i < v.seq->n; i++) {
            struct tmpl_value item = v.seq->v[i];
            bool nested = item.kind == V_SEQ && item.seq->kind == SEQ_TUPLE;
            if (nested || !val_hashable(item)) return false;
        }
        return true;
    }
    return v.kind != V_DICT && !(v.kind == V_SEQ && v.seq->kind != SEQ_RANGE);
}

static bool seq_eq(struct tmpl_rt *rt, const struct tmpl_seq *a, const struct tmpl_seq *b)
{
    bool by_value = a->kind == SEQ_LIST || a->kind == SEQ_TUPLE || a->kind == SEQ_RANGE;
    if (a == b || !by_value || a->kind != b->kind || a->n != b->n) return a == b;
    for (size_t i = 0; i < a->n; i++) {
        if (!val_eq(rt, a->v[i], b->v[i])) return false;
    }
    return true;
}

static bool dict_eq(struct tmpl_rt *rt, const struct tmpl_dict *a, const struct tmpl_dict *b)
{
    if (a == b || a->n != b->n) return a == b;
    for (size_t i = 0; i < a->n; i++) {
        struct tmpl_value *other = dict_get(rt, b, a->e[i].key);
        if (!other || !val_eq(rt, a->e[i].value, *other)) return false;
    }
    return true;
}

bool val_eq(struct tmpl_rt *rt, struct tmpl_value a, struct tmpl_value b)
{
    double x, y;
    i64 i, k;
    bool eq;
    if (val_integer(a, &i) && val_integer(b, &k)) return i == k;
    if (val_number(a, &x) && val_number(b, &y)) return x == y;
    if (a.kind != b.kind) return false;
    rt_spend(rt, 1);
    rt_enter(rt);
    switch (a.kind) {
    case V_UNDEF:
    case V_NONE: eq = true; break;
    case V_STR: eq = str_eq(str_bytes(a.s), str_bytes(b.s)); break;
    case V_SEQ: eq = seq_eq(rt, a.seq, b.seq); break;
    case V_DICT: eq = dict_eq(rt, a.dict, b.dict); break;
    case V_METHOD:
        eq = a.method->fn == b.method->fn && val_eq(rt, a.method->self, b.method->self);
        break;
    default: eq = a.dict == b.dict;
    }
    rt_leave(rt);
    return eq;
}

_Noreturn static void fail_undef(struct tmpl_rt *rt, struct tmpl_value v)
{
    if (!v.s) RT_FAIL(rt, "value is undefined");
    RT_FAIL(rt, "%s is undefined", QUOTE(str_bytes(v.s)));
}

_Noreturn static void fail_types(struct tmpl_rt *rt, const char *op, struct tmpl_value a,
                                 struct tmpl_value b)
{
    if (a.kind == V_UNDEF) fail_undef(rt, a);
    if (b.kind == V_UNDEF) fail_undef(rt, b);
    RT_FAIL(rt, "cannot use %s between %s and %s", op, val_type(a), val_type(b));
}

bool val_less(struct tmpl_rt *rt, struct tmpl_value a, struct tmpl_value b)
{
    double x, y;
    i64 i, k;
    bool less = false;
    rt_spend(rt, 1);
    if (val_integer(a, &i) && val_integer(b, &k)) return i < k;
    if (val_number(a, &x) && val_number(b, &y)) return x < y;
    if (a.kind == V_STR && b.kind == V_STR) { /* bytes of UTF-8 order like characters */
        int c = memcmp(str_bytes(a.s).p, str_bytes(b.s).p, MIN(a.s->n, b.s->n));
        return c < 0 || (c == 0 && a.s->n < b.s->n);
    }
    if (a.kind != V_SEQ || b.kind != V_SEQ || a.seq->kind != b.seq->kind ||
        a.seq->kind > SEQ_TUPLE) {
        fail_types(rt, "<", a, b);
    }
    rt_enter(rt);
    size_t at = 0, n = MIN(a.seq->n, b.seq->n);
    while (at < n && val_eq(rt, a.seq->v[at], b.seq->v[at])) at++;
    less = at < n ? val_less(rt, a.seq->v[at], b.seq->v[at]) : a.seq->n < b.seq->n;
    rt_leave(rt);
    return less;
}

bool val_contains(struct tmpl_rt *rt, struct tmpl_value all, struct tmpl_value x)
{
    size_t at;
    if (all.kind == V_DICT) {
        if (!val_hashable(x)) RT_FAIL(rt, "a %s cannot be a key", val_type(x));
        return dict_get(rt, all.dict, x) != NULL;
    }
    if (all.kind == V_STR) {
        if (x.kind != V_STR) fail_types(rt, "in", x, all);
        rt_spend(rt, all.s->n / 64);
        return str_find(str_bytes(all.s), str_bytes(x.s), 0, &at);
    }
    const struct tmpl_seq *items = val_items(rt, all);
    for (size_t i = 0; i < items->n; i++) {
        rt_spend(rt, 1);
        if (val_eq(rt, items->v[i], x)) return true;
    }
    return false;
}

bool val_compare(struct tmpl_rt *rt, enum tmpl_cmp op, struct tmpl_value a, struct tmpl_value b)
{
    switch (op) {
    case CMP_EQ: return val_eq(rt, a, b);
    case CMP_NE: return !val_eq(rt, a, b);
    case CMP_LT: return val_less(rt, a, b);
    case CMP_GT: return val_less(rt, b, a);
    case CMP_LE: return val_less(rt, a, b) || val_eq(rt, a, b);
    case CMP_GE: return val_less(rt, b, a) || val_eq(rt, a, b);
    case CMP_IN: return val_contains(rt, b, a);
    default: return !val_contains(rt, b, a);
    }
}

bool val_iterable(struct tmpl_value v)
{
    return v.kind == V_UNDEF || v.kind == V_STR || v.kind == V_SEQ || v.kind == V_DICT;
}

struct tmpl_seq *val_items(struct tmpl_rt *rt, struct tmpl_value v)
{
    if (!val_iterable(v)) RT_FAIL(rt, "cannot iterate over a value of type %s", val_type(v));
    if (v.kind == V_SEQ) {
        struct tmpl_seq all = *v.seq;
        if (v.seq->kind != SEQ_ITER) return v.seq;
        v.seq->n = 0;
        struct tmpl_seq *rest = seq_new(rt, SEQ_LIST, 0);
        rest->v = all.v;
        rest->n = all.n;
        return rest;
    }
    if (v.kind == V_DICT) {
        struct tmpl_seq *keys = seq_new(rt, SEQ_LIST, v.dict->n);
        keys->user = v.dict->user;
        for (size_t i = 0; i < keys->n; i++) keys->v[i] = v.dict->e[i].key;
        return keys;
    }
    struct str s = v.kind == V_STR ? str_bytes(v.s) : STR("");
    struct tmpl_seq *chars = seq_new(rt, SEQ_LIST, str_count_chars(s));
    rt_spend(rt, chars->n);
    for (size_t i = 0, at = 0, n; i < chars->n; i++, at += n) {
        tmpl_char(s, at, &n);
        struct tmpl_str c = *str_slice(rt, v.s, at, at + n).s;
        c.safe = false;
        chars->v[i] = val_str(rt, c);
    }
    return chars;
}

i64 val_length(struct tmpl_rt *rt, struct tmpl_value v)
{
    if (!val_iterable(v) || (v.kind == V_SEQ && v.seq->kind == SEQ_ITER)) {
        RT_FAIL(rt, "a %s has no length", val_type(v));
    }
    if (v.kind == V_STR) {
        rt_spend(rt, v.s->n / 64);
        return (i64)str_count_chars(str_bytes(v.s));
    }
    return v.kind == V_SEQ ? (i64)v.seq->n : v.kind == V_DICT ? (i64)v.dict->n : 0;
}

/* ---- members ---- */

static struct tmpl_value loop_attr(struct tmpl_rt *rt, struct tmpl_loop *l,
                                   const struct tmpl_str *name)
{
    struct str n = str_bytes(name);
    if (str_is(n, "index0")) return val_int(l->index0);
    if (str_is(n, "index")) return val_int(l->index0 + 1);
    if (str_is(n, "first")) return val_bool(l->index0 == 0);
    if (str_is(n, "last")) return val_bool(!loop_peek(rt, l));
    if (str_is(n, "length")) return val_int(loop_length(rt, l));
    if (str_is(n, "revindex")) return val_int(loop_length(rt, l) - l->index0);
    if (str_is(n, "revindex0")) return val_int(loop_length(rt, l) - l->index0 - 1);
    if (str_is(n, "previtem")) return l->index0 ? l->before : val_undef(name);
    if (str_is(n, "nextitem")) return loop_peek(rt, l) ? l->after : val_undef(name);
    if (str_is(n, "depth")) return val_int(l->depth);
    if (str_is(n, "depth0")) return val_int((i64)l->depth - 1);
    return val_undef(name);
}

static struct tmpl_value macro_attr(struct tmpl_rt *rt, const struct tmpl_macro *m,
                                    const struct tmpl_str *name)
{
    const struct tmpl_node *def = m->node;
    struct str n = str_bytes(name), own = rt->t->names[def->id];
    if (str_is(n, "name") && def->n_pos == MACRO_ANONYMOUS) return val_none();
    if (str_is(n, "name")) return val_str(rt, (struct tmpl_str){.p = own.p, .n = own.n});
    if (str_is(n, "caller")) return val_bool(def->op & USE_CALLER);
    if (str_is(n, "catch_varargs")) return val_bool(def->op & USE_VARARGS);
    if (str_is(n, "catch_kwargs")) return val_bool(def->op & USE_KWARGS);
    if (!str_is(n, "arguments")) return val_undef(name);
    struct tmpl_seq *params = seq_new(rt, SEQ_TUPLE, def->n - 1);
    for (size_t i = 0; i < params->n; i++) {
        own = rt->t->names[def->ids[i]];
        params->v[i] = val_str(rt, (struct tmpl_str){.p = own.p, .n = own.n});
    }
    return val_seq(params);
}

struct tmpl_value val_own_attr(struct tmpl_rt *rt, struct tmpl_value v, const struct tmpl_str *name)
{
    if (v.kind == V_SEQ && v.seq->group && str_is(str_bytes(name), "grouper")) return v.seq->v[0];
    if (v.kind == V_SEQ && v.seq->group && str_is(str_bytes(name), "list")) return v.seq->v[1];
    if (v.kind == V_MACRO) return macro_attr(rt, v.macro, name);
    if (v.kind == V_CYCLER && str_is(str_bytes(name), "current")) return v.seq->v[v.seq->start];

    if (v.kind == V_SPACE) {
        struct tmpl_value *found = dict_get(rt, v.dict, (struct tmpl_value){V_STR, .s = name});
        return found ? *found : val_undef(name);
    }
    const struct tmpl_builtin *fn = tmpl_find_method(v, str_bytes(name));
    if (fn) {
        struct tmpl_method *m = rt_alloc(rt, 1, sizeof *m);
        *m = (struct tmpl_method){v, fn};
        return (struct tmpl_value){V_METHOD, .method = m};
    }
    return v.kind == V_LOOP ? loop_attr(rt, v.loop, name) : val_undef(name);
}

struct tmpl_value val_attr(struct tmpl_rt *rt, struct tmpl_value v, const struct tmpl_str *name)
{
    if (v.kind == V_UNDEF) fail_undef(rt, v);
    struct tmpl_value found = val_own_attr(rt, v, name);
    if (found.kind != V_UNDEF || v.kind != V_DICT) return found;
    struct tmpl_value *item = dict_get(rt, v.dict, (struct tmpl_value){V_STR, .s = name});
    return item ? *item : val_undef(name);
}

struct tmpl_value val_item(struct tmpl_rt *rt, struct tmpl_value v, struct tmpl_value index)
{
    i64 i;
    if (v.kind == V_UNDEF) fail_undef(rt, v);
    if (v.kind == V_DICT && val_hashable(index)) {
        struct tmpl_value *found = dict_get(rt, v.dict, index);
        if (found) return *found;
    }
    if (index.kind == V_STR) return val_own_attr(rt, v, index.s);
    bool indexed = v.kind == V_STR || (v.kind == V_SEQ && v.seq->kind <= SEQ_RANGE);
    if (!indexed || !val_integer(index, &i)) return val_undef(NULL);
    i64 n = val_length(rt, v);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return val_undef(NULL);
    if (v.kind == V_SEQ) return v.seq->v[i];
    struct str s = str_bytes(v.s);
    size_t at = str_char_offset(s, (size_t)i), len;
    tmpl_char(s, at, &len);
    return str_slice(rt, v.s, at, at + len);
}

/* Python's slice.indices(): start and step made exact, returns how many items. */
static i64 slice_indices(i64 n, const i64 *part, const bool *given, i64 *start, i64 *step)
{
    *step = given[2] ? part[2] : 1;
    bool down = *step < 0;
    i64 low = down ? -1 : 0, high = down ? n - 1 : n, bound[2];
    for (int k = 0; k < 2; k++) {
        if (!given[k]) {
            bound[k] = (k == 0) == down ? high : low;
            continue;
        }
        i64 at = part[k] < 0 ? part[k] + n : part[k];
        bound[k] = MAX(low, MIN(high, at));
    }
    *start = bound[0];
    i64 span = down ? bound[0] - bound[1] : bound[1] - bound[0];
    u64 stride = down ? 0 - (u64)*step : (u64)*step;
    return span > 0 ? (i64)(((u64)span - 1) / stride) + 1 : 0;
}

struct tmpl_value val_slice(struct tmpl_rt *rt, struct tmpl_value v, const struct tmpl_value *part)
{
    i64 at[3] = {0}, start, step;
    bool given[3];
    if (v.kind == V_UNDEF) fail_undef(rt, v);
    if (v.kind != V_STR && !(v.kind == V_SEQ && v.seq->kind <= SEQ_RANGE)) {
        RT_FAIL(rt, "a %s cannot be sliced", val_type(v));
    }
    for (int k = 0; k < 3; k++) {
        given[k] = part[k].kind != V_NONE;
        if (given[k] && !val_integer(part[k], &at[k])) {
            RT_FAIL(rt, "the parts of a slice must be integers, not %s", val_type(part[k]));
        }
    }
    if (given[2] && at[2] == 0) RT_FAIL(rt, "the step of a slice cannot be 0");
    i64 count = slice_indices(val_length(rt, v), at, given, &start, &step);
    if (v.kind == V_STR && step == 1) {
        struct str s = str_bytes(v.s);
        size_t from = str_char_offset(s, (size_t)start);
        struct str rest = {s.p + from, s.n - from};
        return str_slice(rt, v.s, from, from + str_char_offset(rest, (size_t)count));
    }
    const struct tmpl_seq *all = val_items(rt, v);
    struct tmpl_seq *out = seq_new(rt, v.kind == V_SEQ ? all->kind : SEQ_LIST, (size_t)count);
    out->user = all->user;
    for (i64 i = 0; i < count; i++) out->v[i] = all->v[start + i * step];
    if (out->kind == SEQ_RANGE) {
        out->step = (i64)((u64)all->step * (u64)step);
        out->start = (i64)((u64)all->start + (u64)start * (u64)all->step);
        out->stop = (i64)((u64)out->start + (u64)count * (u64)out->step);
    }
    if (v.kind == V_SEQ) return val_seq(out);
    struct tmpl_sbuf sb = {.rt = rt, .safe = v.s->safe};
    for (size_t i = 0; i < out->n; i++) sbuf_put_str(&sb, out->v[i].s);
    return sbuf_value(&sb);
}

/* ---- arithmetic ---- */

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "**"};

static i64 int_pow(struct tmpl_rt *rt, i64 base, i64 exponent)
{
    i64 result = 1;
    while (exponent) {
        if ((exponent & 1) && !CK_MUL(result, base, &result)) break;
        exponent >>= 1;
        if (exponent && !CK_MUL(base, base, &base)) {
            exponent = 1;
            break;
        }
    }
    if (exponent) RT_FAIL(rt, "integer overflow in **");
    return result;
}

static struct tmpl_value int_binary(struct tmpl_rt *rt, enum tmpl_op op, i64 a, i64 b)
{
    i64 r = 0;
    bool ok = true;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD)) {
        RT_FAIL(rt, "division by zero");
    }
    switch (op) {
    case OP_ADD: ok = CK_ADD(a, b, &r); break;
    case OP_SUB: ok = !__builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: ok = CK_MUL(a, b, &r); break;
    case OP_DIV: return val_float((double)a / (double)b);
    case OP_POW: r = int_pow(rt, a, b); break;
    case OP_FLOORDIV:
    case OP_MOD:
        ok = op == OP_MOD || b != -1 || a != INT64_MIN;
        if (!ok) break;
        r = b == -1 ? 0 : a % b;
        bool below = r && (r < 0) != (b < 0); /* division rounds towards zero */
        if (op == OP_MOD)
            r += below ? b : 0;
        else
            r = (b == -1 ? -a : a / b) - below;
        break;
    }
    if (!ok) RT_FAIL(rt, "integer overflow in %s", op_names[op]);
    return val_int(r);
}

static struct tmpl_value float_binary(struct tmpl_rt *rt, enum tmpl_op op, double a, double b)
{
    double r;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD)) {
        RT_FAIL(rt, "division by zero");
    }
    switch (op) {
    case OP_ADD: return val_float(a + b);
    case OP_SUB: return val_float(a - b);
    case OP_MUL: return val_float(a * b);
    case OP_DIV: return val_float(a / b);
    case OP_POW:
        r = pow(a, b);
        if (!isfinite(r) && isfinite(a) && isfinite(b)) {
            RT_FAIL(rt, "the result of ** is out of range");
        }
        return val_float(r);
    default:
        r = fmod(a, b);
        double q = (a - r) / b;
        if (r == 0) {
            r = copysign(0, b);
        } else if ((r < 0) != (b < 0)) {
            r += b;
            q -= 1;
        }
        if (op == OP_MOD) return val_float(r);
        return val_float(q == 0 ? copysign(0, a / b) : floor(q) + (q - floor(q) > 0.5));
    }
}

static struct tmpl_value repeat(struct tmpl_rt *rt, struct tmpl_value v, i64 times)
{
    if (times < 0) times = 0;
    if (v.kind == V_STR) {
        struct tmpl_sbuf sb = {.rt = rt, .safe = v.s->safe};
        sbuf_put_times(&sb, v.s, (u64)times);
        return sbuf_value(&sb);
    }
    size_t n;
    if (!CK_MUL(v.seq->n, (size_t)times, &n)) RT_FAIL(rt, "list is too long");
    struct tmpl_seq *out = seq_new(rt, v.seq->kind, n);
    out->user = v.seq->user;
    for (size_t i = 0; i < n; i++) out->v[i] = v.seq->v[i % v.seq->n];
    return val_seq(out);
}

static bool is_plain_seq(struct tmpl_value v)
{
    return v.kind == V_SEQ && v.seq->kind <= SEQ_TUPLE;
}

struct tmpl_value val_binary(struct tmpl_rt *rt, enum tmpl_op op, struct tmpl_value a,
                             struct tmpl_value b)
{
    i64 i, k;
    double x, y;
    bool whole = val_integer(a, &i), whole_b = val_integer(b, &k);
    if (whole && whole_b && !(op == OP_POW && k < 0)) return int_binary(rt, op, i, k);
    if (val_number(a, &x) && val_number(b, &y)) return float_binary(rt, op, x, y);
    if (op == OP_ADD && a.kind == V_STR && b.kind == V_STR) {
        bool safe = a.s->safe || b.s->safe;
        struct tmpl_sbuf sb = {.rt = rt, .safe = safe};
        sbuf_put_str(&sb, safe ? str_escape(rt, a.s) : a.s);
        sbuf_put_str(&sb, safe ? str_escape(rt, b.s) : b.s);
        return sbuf_value(&sb);
    }
    if (op == OP_MOD && a.kind == V_STR) return format_percent(rt, a.s, b);
    if (op == OP_ADD && is_plain_seq(a) && is_plain_seq(b) && a.seq->kind == b.seq->kind) {
        struct tmpl_seq *out = seq_new(rt, a.seq->kind, a.seq->n + b.seq->n);
        if (a.seq->n) memcpy(out->v, a.seq->v, a.seq->n * sizeof *out->v);
        if (b.seq->n) memcpy(out->v + a.seq->n, b.seq->v, b.seq->n * sizeof *out->v);
        out->user = a.seq->user && b.seq->user;
        return val_seq(out);
    }
    if (op == OP_MUL && whole_b && (a.kind == V_STR || is_plain_seq(a))) return repeat(rt, a, k);
    if (op == OP_MUL && whole && (b.kind == V_STR || is_plain_seq(b))) return repeat(rt, b, i);
    fail_types(rt, op_names[op], a, b);
}

struct tmpl_value val_sign(struct tmpl_rt *rt, u32 op, struct tmpl_value v)
{
    i64 i;
    if (val_integer(v, &i)) {
        if (op == '-' && i == INT64_MIN) RT_FAIL(rt, "integer overflow in -");
        return val_int(op == '-' ? -i : i);
    }
    if (v.kind == V_UNDEF) fail_undef(rt, v);
    if (v.kind != V_FLOAT) RT_FAIL(rt, "cannot negate a %s", val_type(v));
    return val_float(op == '-' ? -v.f : v.f);
}
