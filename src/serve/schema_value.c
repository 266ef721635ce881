/* Values: compared as JSON Schema does, and tried on a schema. What can't be tried is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

u32 schema_type_of(const json_t *v)
{
    double d = json_real_value(v);
    switch (json_typeof(v)) {
    case JSON_OBJECT: return SCHEMA_OBJECT;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_INTEGER: return SCHEMA_INTEGER | SCHEMA_NUMBER;
    case JSON_REAL: return SCHEMA_NUMBER | (d == floor(d) ? SCHEMA_INTEGER : 0u);
    case JSON_TRUE:
    case JSON_FALSE: return SCHEMA_BOOLEAN;
    case JSON_NULL: return SCHEMA_NULL;
    }
    return 0;
}

/* ---- comparing ---- */

static bool is_i64(double d)
{
    return d >= -0x1p63 && d < 0x1p63;
}

static int compare_real(i64 a, double b)
{
    if (!is_i64(b)) return b < 0 ? 1 : -1;
    i64 whole = (i64)floor(b);
    return a != whole ? (a < whole ? -1 : 1) : (double)whole < b ? -1 : 0;
}

int schema_compare(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        i64 x = json_integer_value(a), y = json_integer_value(b);
        return x < y ? -1 : x > y;
    }
    if (json_is_integer(a)) return compare_real(json_integer_value(a), json_real_value(b));
    if (json_is_integer(b)) return -compare_real(json_integer_value(b), json_real_value(a));
    double x = json_real_value(a), y = json_real_value(b);
    return x < y ? -1 : x > y;
}

/* A copy in which whole numbers are integers where they fit. */
static json_t *with_whole_numbers(const json_t *v)
{
    const char *key;
    size_t i;
    json_t *part, *out;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        out = json_object();
        json_object_foreach((json_t *)v, key, part)
            json_object_set_new_nocheck(out, key, with_whole_numbers(part));
        return out;
    case JSON_ARRAY:
        out = json_array();
        json_array_foreach((json_t *)v, i, part)
            json_array_append_new(out, with_whole_numbers(part));
        return out;
    case JSON_REAL: {
        double d = json_real_value(v);
        return d == floor(d) && is_i64(d) ? json_integer((i64)d) : json_real(d);
    }
    default: return json_incref((json_t *)v);
    }
}

char *schema_value_key(const json_t *v)
{
    json_t *copy = with_whole_numbers(v);
    char *text = copy ? json_dumps(copy, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    json_decref(copy);
    return text;
}

bool schema_equal(const json_t *a, const json_t *b)
{
    const char *key;
    size_t i;
    json_t *v;
    if (json_is_number(a) && json_is_number(b)) return schema_compare(a, b) == 0;
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach((json_t *)a, i, v)
        {
            if (!schema_equal(v, json_array_get(b, i))) return false;
        }
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)a, key, v)
        {
            const json_t *other = json_object_get(b, key);
            if (!other || !schema_equal(v, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

/* ---- trying a value on a schema ---- */

/* One value and one schema object. */
struct trial {
    struct schemac *c;
    const json_t *v, *s;
    bool negated; /* inside not, if, oneOf and such, where what is too strict would be too lax */
};

static bool fits(const struct trial *from, const json_t *v, const json_t *s, bool negated);

static const json_t *said(const struct trial *t, const char *key)
{
    return json_object_get(t->s, key);
}

/* Is a count within the bounds that two keywords give? */
static bool is_within(const struct trial *t, size_t n, const char *min, const char *max)
{
    const json_t *lo = said(t, min), *hi = said(t, max);
    return (!lo || (double)n >= json_number_value(lo)) &&
           (!hi || (double)n <= json_number_value(hi));
}

/* The bounds of one side; true as the exclusive one, of draft 4, says that the other is. */
static bool is_beyond(const struct trial *t, const char *bound, const char *exclusive, int side)
{
    const json_t *at = said(t, bound), *over = said(t, exclusive);
    if (at && schema_compare(t->v, at) * side < json_is_true(over)) return true;
    return json_is_number(over) && schema_compare(t->v, over) * side <= 0;
}

static bool number_fits(const struct trial *t)
{
    const json_t *step = said(t, "multipleOf");
    return !is_beyond(t, "minimum", "exclusiveMinimum", 1) &&
           !is_beyond(t, "maximum", "exclusiveMaximum", -1) &&
           (!step || schema_is_multiple(t->c, t->v, step));
}

static struct str text_of(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

static bool string_fits(const struct trial *t)
{
    const json_t *pattern = said(t, "pattern"), *format = said(t, "format");
    struct str text = text_of(t->v);
    struct schema_format is;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((u8)text.p[i] & 0xc0) != 0x80;
    if (!is_within(t, n, "minLength", "maxLength")) return false;
    if (pattern && !schema_matches(t->c, text_of(pattern), text)) return false;
    if (!format || !schema_find_format(t->c, t->s, &is) || !is.pattern.p) return !t->c->rc;
    if (t->negated) { /* what is left out of a format would be let in by its opposite */
        schema_fail(t->c, FLETCH_E_UNSUPPORTED, "format %s is not supported here",
                    QUOTE(text_of(format)));
        return false;
    }
    return schema_matches(t->c, is.pattern, text);
}

static bool are_different(const struct trial *t)
{
    json_t *seen = json_object(), *item;
    bool same = false;
    size_t i;
    json_array_foreach((json_t *)t->v, i, item)
    {
        char *key = schema_value_key(item);
        if (!key) schema_nomem(t->c);
        same |= key && json_object_get(seen, key);
        if (key) json_object_set_new(seen, key, json_true());
        free(key);
    }
    json_decref(seen);
    return !same;
}

static bool array_fits(const struct trial *t)
{
    const json_t *items = said(t, "items"), *contains = said(t, "contains");
    const json_t *first = json_is_array(items) ? items : said(t, "prefixItems");
    const json_t *rest = json_is_array(items) ? said(t, "additionalItems") : items;
    size_t i, n_first = json_array_size(first), n_contained = 0;
    json_t *item;
    if (!is_within(t, json_array_size(t->v), "minItems", "maxItems")) return false;
    if (json_is_true(said(t, "uniqueItems")) && !are_different(t)) return false;
    json_array_foreach((json_t *)t->v, i, item)
    {
        const json_t *its = i < n_first ? json_array_get(first, i) : rest;
        if (its && !fits(t, item, its, false)) return false;
        n_contained += contains && fits(t, item, contains, true);
    }
    if (contains && !said(t, "minContains") && !n_contained) return false;
    return !contains || is_within(t, n_contained, "minContains", "maxContains");
}

static bool member_fits(const struct trial *t, const char *key, const json_t *v)
{
    const json_t *named = json_object_get(said(t, "properties"), key);
    const json_t *names = said(t, "propertyNames"), *more = said(t, "additionalProperties");
    const char *pattern;
    bool known = named != NULL;
    json_t *s;
    if (named && !fits(t, v, named, false)) return false;
    json_object_foreach((json_t *)said(t, "patternProperties"), pattern, s)
    {
        if (!schema_matches(t->c, str_of(pattern), str_of(key))) continue;
        known = true;
        if (!fits(t, v, s, false)) return false;
    }
    if (more && !known && !fits(t, v, more, false)) return false;
    if (!names) return true;
    json_t *name = json_string_nocheck(key);
    bool good = name && fits(t, name, names, false);
    json_decref(name);
    return good;
}

static bool has_all(const struct trial *t, const json_t *names)
{
    size_t i;
    json_t *name;
    json_array_foreach((json_t *)names, i, name)
    {
        if (!json_object_get(t->v, json_string_value(name))) return false;
    }
    return true;
}

static bool object_fits(const struct trial *t)
{
    static const char *const dependent[] = {"dependencies", "dependentRequired",
                                            "dependentSchemas"};
    const char *key;
    json_t *v, *asked;
    if (!is_within(t, json_object_size(t->v), "minProperties", "maxProperties")) return false;
    if (!has_all(t, said(t, "required"))) return false;
    for (size_t i = 0; i < ARRAY_LEN(dependent); i++) {
        json_object_foreach((json_t *)said(t, dependent[i]), key, asked)
        {
            if (!json_object_get(t->v, key)) continue;
            if (json_is_array(asked) ? !has_all(t, asked) : !fits(t, t->v, asked, false))
                return false;
        }
    }
    json_object_foreach((json_t *)t->v, key, v)
    {
        if (!member_fits(t, key, v)) return false;
    }
    return true;
}

/* How many of a list of schemas fit. */
static size_t count_fits(const struct trial *t, const json_t *list, bool negated)
{
    size_t i, n = 0;
    json_t *s;
    json_array_foreach((json_t *)list, i, s) n += fits(t, t->v, s, negated);
    return n;
}

static bool all_fit(const struct trial *t)
{
    const json_t *ref = said(t, "$ref"), *all = said(t, "allOf"), *any = said(t, "anyOf");
    const json_t *one = said(t, "oneOf"), *no = said(t, "not"), *when = said(t, "if");
    const json_t *target = ref ? schema_resolve(t->c, ref) : NULL;
    if (ref && (!target || !fits(t, t->v, target, false))) return false;
    if (all && count_fits(t, all, false) < json_array_size(all)) return false;
    if (any && !count_fits(t, any, false)) return false;
    if (one && count_fits(t, one, true) != 1) return false;
    if (no && fits(t, t->v, no, true)) return false;
    if (when) {
        const json_t *then = said(t, fits(t, t->v, when, true) ? "then" : "else");
        if (then && !fits(t, t->v, then, false)) return false;
    }
    return true;
}

static bool is_listed(const struct trial *t)
{
    const json_t *one = said(t, "const"), *list = said(t, "enum");
    size_t i;
    json_t *v;
    if (one && !schema_equal(one, t->v)) return false;
    if (!list || (list == t->c->candidates && t->v == t->c->candidate)) return true;
    if (!schema_work(t->c, json_array_size(list) / 16)) return false;
    json_array_foreach((json_t *)list, i, v)
    {
        if (schema_equal(v, t->v)) return true;
    }
    return false;
}

/* Every keyword is one that this file tries. */
static bool is_tried(struct schemac *c, const json_t *s)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        if (schema_keyword_can_be_tried(key)) continue;
        schema_fail(c, FLETCH_E_UNSUPPORTED, "%s is not supported", QUOTE(str_of(key)));
        return false;
    }
    return true;
}

static bool object_schema_fits(const struct trial *t)
{
    u32 type = schema_type_of(t->v);
    if (said(t, "type") && !(schema_types(t->c, t->s) & type)) return false;
    if (!is_listed(t)) return false;
    if (type & SCHEMA_NUMBER && !number_fits(t)) return false;
    if (type & SCHEMA_STRING && !string_fits(t)) return false;
    if (type & SCHEMA_ARRAY && !array_fits(t)) return false;
    if (type & SCHEMA_OBJECT && !object_fits(t)) return false;
    return all_fit(t);
}

static bool fits(const struct trial *from, const json_t *v, const json_t *s, bool negated)
{
    struct schemac *c = from->c;
    struct trial t = {c, v, s, from->negated || negated};
    if (c->rc || !schema_work(c, 1)) return false;
    if (json_is_boolean(s)) return json_is_true(s);
    if (!json_is_object(s)) {
        schema_fail(c, FLETCH_E_ARG, "a schema must be an object, true or false");
        return false;
    }
    if (c->depth >= SCHEMA_MAX_TRIED) {
        schema_fail(c, FLETCH_E_LIMIT,
                    "a value of enum or const needs references nested too deeply");
        return false;
    }
    c->depth++;
    bool good = schema_check_shapes(c, s) && is_tried(c, s) && object_schema_fits(&t);
    c->depth--;
    return good && !c->rc;
}

bool schema_fits(struct schemac *c, const json_t *v, const json_t *s)
{
    struct trial none = {.c = c};
    return fits(&none, v, s, false);
}
