/* Calling what is built in, with positional and named arguments; the tests and functions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/tmpl_internal.h"

enum { MAX_PARAMS = 4 };

static const struct tmpl_str missing = {.p = "missing argument", .n = 16};

bool arg_missing(struct tmpl_value v)
{
    return v.kind == V_UNDEF && v.s == &missing;
}

bool arg_absent(struct tmpl_value v)
{
    return arg_missing(v) || v.kind == V_NONE;
}

const struct tmpl_builtin *tmpl_find_in(const struct tmpl_builtin *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_is(name, table[i].name)) return &table[i];
    }
    return NULL;
}

/* The parameter that starts at sig: its name; moves sig after it. */
static struct str next_param(const char **sig, bool *optional)
{
    struct str name = {*sig, strcspn(*sig, " ?")};
    *sig += name.n;
    *optional = **sig == '?';
    *sig += strspn(*sig, "? ");
    return name;
}

static void bind_args(struct tmpl_rt *rt, const struct tmpl_builtin *fn,
                      const struct tmpl_args *args, struct tmpl_value *bound)
{
    u32 n = 0, used = 0;
    for (const char *sig = fn->sig; *sig; n++) {
        bool optional;
        struct str name = next_param(&sig, &optional);
        u32 kw = 0;
        CHECK(n < MAX_PARAMS);
        while (kw < args->n_kw && !str_eq(args->kw[kw], name)) kw++;
        if (n < args->n) {
            bound[n] = args->v[n];
        } else if (kw < args->n_kw) {
            bound[n] = args->v[args->n + kw];
            used++;
        } else if (!optional) {
            RT_FAIL(rt, "'%s' needs the argument %s", fn->name, QUOTE(name));
        } else {
            bound[n] = val_undef(&missing);
        }
    }
    if (args->n > n) RT_FAIL(rt, "'%s' takes %u arguments, got %u", fn->name, n, args->n);
    if (used < args->n_kw) {
        RT_FAIL(rt, "'%s' got an unknown or repeated named argument", fn->name);
    }
}

struct tmpl_value tmpl_call_builtin(struct tmpl_rt *rt, const struct tmpl_builtin *fn,
                                    struct tmpl_value self, const struct tmpl_args *args)
{
    struct tmpl_value bound[MAX_PARAMS];
    if (!fn->fn) {
        if (fn->sig) {
            tmpl_fail(&rt->fault, FLETCH_E_UNSUPPORTED, "%s '%s' is not supported", fn->sig,
                      fn->name);
        }
        tmpl_fail(&rt->fault, FLETCH_E_UNSUPPORTED, "method '%s' of a %s is not supported",
                  fn->name, val_type(self));
    }
    rt_spend(rt, 1);
    rt_enter(rt);
    if (fn->sig) bind_args(rt, fn, args, bound);
    struct tmpl_value v = fn->fn(rt, self, bound, args);
    rt_leave(rt);
    return v;
}

struct tmpl_value tmpl_call_named(struct tmpl_rt *rt, bool is_test, struct tmpl_value self,
                                  const struct tmpl_args *args, u32 skip)
{
    struct tmpl_args rest = {args->n - skip - 1, args->n_kw, args->v + skip + 1, args->kw};
    struct str name = str_bytes(arg_str(rt, args->v[skip]));
    const struct tmpl_builtin *fn = is_test ? tmpl_find_test(name) : tmpl_find_filter(name);
    if (!fn) {
        tmpl_fail(&rt->fault, FLETCH_E_UNSUPPORTED, "%s %s is not supported",
                  is_test ? "test" : "filter", QUOTE(name));
    }
    return tmpl_call_builtin(rt, fn, self, &rest);
}

const struct tmpl_str *arg_str(struct tmpl_rt *rt, struct tmpl_value v)
{
    if (v.kind != V_STR) RT_FAIL(rt, "an argument is a %s instead of a string", val_type(v));
    return v.s;
}

i64 arg_int(struct tmpl_rt *rt, struct tmpl_value v, i64 otherwise)
{
    i64 i;
    if (arg_missing(v)) return otherwise;
    if (!val_integer(v, &i)) {
        RT_FAIL(rt, "an argument is a %s instead of an integer", val_type(v));
    }
    return i;
}

/* ---- tests ---- */

#define TEST(name)                                                                   \
    static struct tmpl_value test_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                         const struct tmpl_value *arg,               \
                                         const struct tmpl_args *all)
/* One that looks at nothing but the value. */
#define TEST_KIND(name, condition)      \
    TEST(name)                          \
    {                                   \
        (void)rt, (void)arg, (void)all; \
        return val_bool(condition);     \
    }
#define TEST_COMPARE(name, op)                              \
    TEST(name)                                              \
    {                                                       \
        (void)all;                                          \
        return val_bool(val_compare(rt, op, self, arg[0])); \
    }

TEST_KIND(defined, self.kind != V_UNDEF)
TEST_KIND(undefined, self.kind == V_UNDEF)
TEST_KIND(none, self.kind == V_NONE)
TEST_KIND(boolean, self.kind == V_BOOL)
TEST_KIND(is_true, self.kind == V_BOOL && self.b)
TEST_KIND(is_false, self.kind == V_BOOL && !self.b)
TEST_KIND(integer, self.kind == V_INT)
TEST_KIND(float, self.kind == V_FLOAT)
TEST_KIND(number, self.kind == V_INT || self.kind == V_FLOAT || self.kind == V_BOOL)
TEST_KIND(string, self.kind == V_STR)
TEST_KIND(mapping, self.kind == V_DICT)
TEST_KIND(iterable, val_iterable(self) || self.kind == V_LOOP)
TEST_KIND(sequence, self.kind == V_STR || self.kind == V_DICT || self.kind == V_UNDEF ||
                        (self.kind == V_SEQ && self.seq->kind <= SEQ_RANGE))
TEST_KIND(callable, self.kind == V_MACRO || self.kind == V_FUNC || self.kind == V_METHOD ||
                        self.kind == V_UNDEF || self.kind == V_LOOP || self.kind == V_JOINER)
TEST_KIND(escaped, self.kind == V_STR && self.s->safe)
TEST_COMPARE(eq, CMP_EQ)
TEST_COMPARE(ne, CMP_NE)
TEST_COMPARE(lt, CMP_LT)
TEST_COMPARE(le, CMP_LE)
TEST_COMPARE(gt, CMP_GT)
TEST_COMPARE(ge, CMP_GE)
TEST_COMPARE(in, CMP_IN)

static struct tmpl_value remainder_is(struct tmpl_rt *rt, struct tmpl_value v, struct tmpl_value by,
                                      i64 wanted)
{
    return val_bool(val_eq(rt, val_binary(rt, OP_MOD, v, by), val_int(wanted)));
}

TEST(odd)
{
    (void)arg, (void)all;
    return remainder_is(rt, self, val_int(2), 1);
}

TEST(even)
{
    (void)arg, (void)all;
    return remainder_is(rt, self, val_int(2), 0);
}

TEST(divisibleby)
{
    (void)all;
    return remainder_is(rt, self, arg[0], 0);
}

/* Identity, as far as it can be told from equality. */
TEST(sameas)
{
    (void)all;
    bool by_place = self.kind >= V_SEQ && self.kind == arg[0].kind;
    return val_bool(by_place ? self.seq == arg[0].seq
                             : self.kind == arg[0].kind && val_eq(rt, self, arg[0]));
}

static struct tmpl_value has_case(struct tmpl_rt *rt, struct tmpl_value v, const char *method)
{
    const struct tmpl_args none = {0};
    struct tmpl_value s = {V_STR, .s = val_to_str(rt, v)};
    return tmpl_call_builtin(rt, tmpl_find_str_method(str_of(method)), s, &none);
}

TEST(lower)
{
    (void)arg, (void)all;
    return has_case(rt, self, "islower");
}

TEST(upper)
{
    (void)arg, (void)all;
    return has_case(rt, self, "isupper");
}

/* Whether a filter, or a test, is there under that name. */
static struct tmpl_value is_known(struct tmpl_rt *rt, struct tmpl_value name, bool is_test)
{
    if (name.kind != V_STR) {
        if (!val_hashable(name)) RT_FAIL(rt, "a %s cannot be a name", val_type(name));
        return val_bool(false);
    }
    struct str s = str_bytes(name.s);
    return val_bool((is_test ? tmpl_find_test(s) : tmpl_find_filter(s)) != NULL);
}

TEST(filter)
{
    (void)arg, (void)all;
    return is_known(rt, self, false);
}

TEST(test)
{
    (void)arg, (void)all;
    return is_known(rt, self, true);
}

static const struct tmpl_builtin tests[] = {
    {"escaped", "", test_escaped},
    {"lower", "", test_lower},
    {"upper", "", test_upper},
    {"filter", "", test_filter},
    {"test", "", test_test},
    {"defined", "", test_defined},
    {"undefined", "", test_undefined},
    {"none", "", test_none},
    {"boolean", "", test_boolean},
    {"true", "", test_is_true},
    {"false", "", test_is_false},
    {"integer", "", test_integer},
    {"float", "", test_float},
    {"number", "", test_number},
    {"string", "", test_string},
    {"mapping", "", test_mapping},
    {"iterable", "", test_iterable},
    {"sequence", "", test_sequence},
    {"callable", "", test_callable},
    {"odd", "", test_odd},
    {"even", "", test_even},
    {"divisibleby", "num", test_divisibleby},
    {"sameas", "other", test_sameas},
    {"in", "seq", test_in},
    {"eq", "b", test_eq},
    {"equalto", "b", test_eq},
    {"==", "b", test_eq},
    {"ne", "b", test_ne},
    {"!=", "b", test_ne},
    {"lt", "b", test_lt},
    {"lessthan", "b", test_lt},
    {"<", "b", test_lt},
    {"le", "b", test_le},
    {"<=", "b", test_le},
    {"gt", "b", test_gt},
    {"greaterthan", "b", test_gt},
    {">", "b", test_gt},
    {"ge", "b", test_ge},
    {">=", "b", test_ge},
};

const struct tmpl_builtin *tmpl_find_filter(struct str name)
{
    const struct tmpl_builtin *fn = tmpl_find_text_filter(name);
    return fn ? fn : tmpl_find_items_filter(name);
}

const struct tmpl_builtin *tmpl_find_test(struct str name)
{
    return tmpl_find_in(tests, ARRAY_LEN(tests), name);
}

/* ---- functions ---- */

#define FUNCTION(name)                                                             \
    static struct tmpl_value fn_##name(struct tmpl_rt *rt, struct tmpl_value self, \
                                       const struct tmpl_value *arg, const struct tmpl_args *all)

FUNCTION(range)
{
    (void)self;
    i64 a = arg_int(rt, arg[0], 0), b = arg_int(rt, arg[1], 0), step = arg_int(rt, arg[2], 1);
    return val_seq(all->n == 1 ? seq_range(rt, 0, a, 1) : seq_range(rt, a, b, step));
}

/* A mapping from another one or from pairs (at most one positional argument) and named values. */
static struct tmpl_dict *make_dict(struct tmpl_rt *rt, const struct tmpl_args *all)
{
    struct tmpl_dict *d = dict_new(rt, all->n_kw);
    if (all->n > 1) RT_FAIL(rt, "expected one mapping, got %u arguments", all->n);
    if (all->n && all->v[0].kind == V_DICT) {
        const struct tmpl_dict *from = all->v[0].dict;
        for (size_t i = 0; i < from->n; i++) dict_set(rt, d, from->e[i].key, from->e[i].value);
    } else if (all->n) {
        if (all->v[0].kind == V_UNDEF) RT_FAIL(rt, "a mapping is undefined");
        const struct tmpl_seq *pairs = val_items(rt, all->v[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const struct tmpl_seq *pair = val_items(rt, pairs->v[i]);
            if (pair->n != 2) RT_FAIL(rt, "expected pairs, got %zu values", pair->n);
            dict_set(rt, d, pair->v[0], pair->v[1]);
        }
    }
    for (u32 i = 0; i < all->n_kw; i++) {
        struct str name = all->kw[i];
        dict_set(rt, d, val_str(rt, (struct tmpl_str){.p = name.p, .n = name.n}),
                 all->v[all->n + i]);
    }
    return d;
}

FUNCTION(dict)
{
    (void)self, (void)arg;
    return (struct tmpl_value){V_DICT, .dict = make_dict(rt, all)};
}

FUNCTION(namespace)
{
    (void)self, (void)arg;
    return (struct tmpl_value){V_SPACE, .dict = make_dict(rt, all)};
}

FUNCTION(raise_exception)
{
    (void)self, (void)all;
    struct str s = str_bytes(val_to_str(rt, arg[0]));
    char text[360];
    size_t n = MIN(s.n, sizeof text - 1);
    for (size_t i = 0; i < n; i++) text[i] = s.p[i] >= ' ' && s.p[i] < 0x7f ? s.p[i] : '?';
    text[n] = 0;
    RT_FAIL(rt, "%s", text);
}

FUNCTION(strftime_now)
{
    (void)self, (void)all;
    struct str format = str_bytes(arg_str(rt, arg[0]));
    char form[128], text[512];
    struct tm tm;
    if (format.n + 2 > sizeof form || !localtime_r(&rt->now, &tm)) {
        RT_FAIL(rt, "strftime_now: cannot format %s", QUOTE(format));
    }
    /* A last character of our own tells an empty result from one that has no room. */
    int n_form = snprintf(form, sizeof form, "%.*s.", (int)format.n, format.p);
    size_t n = strftime(text, sizeof text, form, &tm);
    if (!n || (size_t)n_form != format.n + 1) {
        RT_FAIL(rt, "strftime_now: cannot format %s", QUOTE(format));
    }
    struct tmpl_sbuf sb = {.rt = rt};
    sbuf_put(&sb, text, n - 1, false);
    return sbuf_value(&sb);
}

FUNCTION(cycler)
{
    (void)self, (void)arg;
    if (!all->n || all->n_kw) RT_FAIL(rt, "cycler takes positional arguments");
    struct tmpl_seq *items = seq_new(rt, SEQ_LIST, all->n);
    for (u32 i = 0; i < all->n; i++) items->v[i] = all->v[i];
    return (struct tmpl_value){V_CYCLER, .seq = items};
}

FUNCTION(joiner)
{
    (void)self, (void)all;
    struct tmpl_seq *sep = seq_new(rt, SEQ_LIST, 1);
    sep->v[0] = arg[0];
    if (arg_missing(arg[0])) sep->v[0] = val_str(rt, (struct tmpl_str){.p = ", ", .n = 2});
    return (struct tmpl_value){V_JOINER, .seq = sep};
}

struct tmpl_value tmpl_call_joiner(struct tmpl_rt *rt, struct tmpl_seq *joiner,
                                   const struct tmpl_args *args)
{
    if (args->n || args->n_kw) RT_FAIL(rt, "a joiner takes no arguments");
    bool first = joiner->start == 0;
    joiner->start = 1;
    return first ? val_str(rt, (struct tmpl_str){.p = "", .n = 0}) : joiner->v[0];
}

static const struct tmpl_builtin functions[] = {
    {"cycler", NULL, fn_cycler},
    {"joiner", "sep?", fn_joiner},
    {"lipsum", "function", NULL},
    {"range", "start stop? step?", fn_range},
    {"dict", NULL, fn_dict},
    {"namespace", NULL, fn_namespace},
    {"raise_exception", "message", fn_raise_exception},
    {"strftime_now", "format", fn_strftime_now},
};

const struct tmpl_builtin *tmpl_find_function(struct str name)
{
    return tmpl_find_in(functions, ARRAY_LEN(functions), name);
}
