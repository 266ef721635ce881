/* Schemas made of schemas: references, allOf, and what is said beside anyOf. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

bool schema_is_annotation(const char *key)
{
    static const char *const keys[] = {
        "title",    "description", "default", "examples", "example",     "$schema",
        "$id",      "$comment",    "$defs",   "$anchor",  "definitions", "deprecated",
        "readOnly", "writeOnly",   "id",      "strict",
    };
    if (strncmp(key, "x-", 2) == 0) return true;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

bool schema_says_nothing(const json_t *s, const char *but)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        if (!schema_is_annotation(key) && !(but && strcmp(key, but) == 0)) return false;
    }
    return true;
}

static json_t *keep(struct schemac *c, json_t *made)
{
    c->n_made += 1 + json_object_size(made);
    bool kept = made && json_array_append_new(c->made, made) == 0;
    if (!kept)
        schema_nomem(c);
    else if (c->n_made > SCHEMA_MAX_MADE)
        schema_fail(c, FLETCH_E_LIMIT, "references and allOf make it too large");
    return kept && !c->rc ? made : NULL;
}

const json_t *schema_without(struct schemac *c, const json_t *s, const char *key)
{
    json_t *copy = keep(c, json_copy((json_t *)s));
    if (copy) json_object_del(copy, key);
    return copy;
}

/* ---- references ---- */

/* One step of a JSON pointer. */
static const json_t *descend(const json_t *s, const char *step, size_t n)
{
    char name[256];
    size_t used = 0;
    if (n >= sizeof name) return NULL;
    for (size_t i = 0; i < n; i++) {
        char ch = step[i];
        if (ch == '~' && i + 1 < n) ch = step[++i] == '1' ? '/' : '~';
        name[used++] = ch;
    }
    name[used] = 0;
    if (json_is_array(s)) return json_array_get(s, (size_t)strtoul(name, NULL, 10));
    return json_object_get(s, name);
}

const json_t *schema_resolve(struct schemac *c, const json_t *ref)
{
    const char *text = json_string_value(ref);
    const json_t *at = c->root;
    if (!text || text[0] != '#' || (text[1] && text[1] != '/')) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "$ref %s: only places in the same schema (#/...) are "
                    "supported",
                    text ? QUOTE(str_of(text)) : "without a text");
        return NULL;
    }
    for (const char *p = text + 1; *p && at;) {
        size_t n = strcspn(p + 1, "/");
        at = descend(at, p + 1, n);
        p += 1 + n;
    }
    if (!at) schema_fail(c, FLETCH_E_ARG, "$ref %s: there is no such place", QUOTE(str_of(text)));
    return at;
}

static const json_t *checked(struct schemac *c, const json_t *s)
{
    if (json_is_boolean(s)) /* true says nothing; false is caught where it is used */
        return keep(c, json_is_true(s) ? json_object() : json_pack("{s:[]}", "enum"));
    if (json_is_object(s)) return s;
    schema_fail(c, FLETCH_E_ARG, "a schema is neither an object nor true or false");
    return NULL;
}

const json_t *schema_flatten(struct schemac *c, const json_t *s)
{
    size_t i;
    json_t *part;
    if (c->rc || !(s = checked(c, s))) return NULL;
    const json_t *ref = json_object_get(s, "$ref"), *all = json_object_get(s, "allOf");
    if (!ref && !all) return s;
    if (++c->depth > SCHEMA_MAX_DEPTH) {
        schema_fail(c, FLETCH_E_LIMIT, "references or allOf go deeper than %d", SCHEMA_MAX_DEPTH);
        return NULL;
    }
    const json_t *flat = schema_without(c, s, ref ? "$ref" : "allOf");
    if (ref) {
        const json_t *target = schema_resolve(c, ref);
        const json_t *rest = flat ? schema_flatten(c, flat) : NULL;
        flat = target && rest ? schema_merge(c, rest, schema_flatten(c, target)) : NULL;
    } else {
        if (!json_is_array(all) || !json_array_size(all))
            schema_fail(c, FLETCH_E_ARG, "allOf is not a list of schemas");
        json_array_foreach((json_t *)all, i, part)
        {
            if (flat && !c->rc) flat = schema_merge(c, flat, schema_flatten(c, part));
        }
    }
    c->depth--;
    return c->rc ? NULL : flat;
}

/* ---- merging ---- */

static bool holds(const json_t *list, const json_t *value)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v)
    {
        if (json_equal(v, value)) return true;
    }
    return false;
}

/* Comparing every entry with every other is no work for hostile lists. */
static bool are_short(const json_t *a, const json_t *b)
{
    return json_array_size(a) <= SCHEMA_MAX_LIST && json_array_size(b) <= SCHEMA_MAX_LIST;
}

/* Lists: those in both, or those in either. */
static json_t *join_lists(const json_t *a, const json_t *b, bool both)
{
    json_t *out = json_array(), *v;
    size_t i;
    json_array_foreach((json_t *)a, i, v)
    {
        if (!both || holds(b, v)) json_array_append(out, v);
    }
    json_array_foreach((json_t *)b, i, v)
    {
        if (!both && !holds(a, v)) json_array_append(out, v);
    }
    return out;
}

static json_t *join_types(struct schemac *c, const json_t *a, const json_t *b)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    u32 x = 0, y = 0;
    const json_t *one[] = {a, b};
    for (int k = 0; k < 2; k++) {
        json_t *s = json_pack("{s:O}", "type", (json_t *)one[k]);
        u32 types = s ? schema_types(c, s) : 0;
        if (types & SCHEMA_NUMBER) types |= SCHEMA_INTEGER;
        *(k ? &y : &x) = types;
        json_decref(s);
    }
    json_t *out = json_array();
    for (u32 i = 0; i < ARRAY_LEN(names); i++)
        if (x & y & 1u << i) json_array_append_new(out, json_string(names[i]));
    return out;
}

static json_t *join_properties(const json_t *a, const json_t *b)
{
    json_t *out = json_copy((json_t *)a), *value;
    const char *key;
    json_object_foreach((json_t *)b, key, value)
    {
        json_t *mine = json_object_get(out, key);
        if (!mine)
            json_object_set(out, key, value);
        else if (!json_equal(mine, value))
            json_object_set_new(out, key, json_pack("{s:[O, O]}", "allOf", mine, value));
    }
    return out;
}

/* What two schemas say together under one key; NULL: it can't be said in one. */
static json_t *join(struct schemac *c, const char *key, const json_t *a, const json_t *b)
{
    if (json_equal(a, b)) return json_incref((json_t *)a);
    bool lists = json_is_array(a) && json_is_array(b);
    if (lists && !are_short(a, b)) {
        schema_fail(c, FLETCH_E_LIMIT, "lists of more than %d are too long to be joined",
                    SCHEMA_MAX_LIST);
        return NULL;
    }
    if (strcmp(key, "required") == 0 && lists) return join_lists(a, b, false);
    if (strcmp(key, "enum") == 0 && lists) return join_lists(a, b, true);
    if (strcmp(key, "type") == 0) return join_types(c, a, b);
    if (strcmp(key, "properties") == 0 && json_is_object(a) && json_is_object(b))
        return join_properties(a, b);
    if (!json_is_number(a) || !json_is_number(b)) return NULL;
    bool less = json_number_value(a) < json_number_value(b);
    if (strncmp(key, "min", 3) == 0) return json_incref((json_t *)(less ? b : a));
    if (strncmp(key, "max", 3) == 0) return json_incref((json_t *)(less ? a : b));
    return NULL;
}

/* additionalProperties is about the properties beside it, so others must not join them. */
static bool closes_out(const json_t *closed, const json_t *other)
{
    const json_t *more = json_object_get(closed, "additionalProperties");
    const char *key;
    json_t *value;
    if (!more || json_is_true(more)) return false;
    json_object_foreach(json_object_get(other, "properties"), key, value)
    {
        if (!json_object_get(json_object_get(closed, "properties"), key)) return true;
    }
    return false;
}

const json_t *schema_merge(struct schemac *c, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (!a || !b || c->rc) return NULL;
    if (closes_out(a, b) || closes_out(b, a)) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "additionalProperties beside another part's properties can't be kept");
        return NULL;
    }
    json_t *out = keep(c, json_copy((json_t *)a));
    json_object_foreach((json_t *)b, key, value)
    {
        if (!out || c->rc) return NULL;
        if (schema_is_annotation(key)) continue;
        json_t *mine = json_object_get(out, key);
        json_t *both = mine ? join(c, key, mine, value) : json_incref(value);
        if (!both && !c->rc)
            schema_fail(c, FLETCH_E_UNSUPPORTED,
                        "%s is said twice, differently, and can't be "
                        "joined",
                        QUOTE(str_of(key)));
        if (both && json_object_set_new(out, key, both)) schema_nomem(c);
    }
    return c->rc ? NULL : out;
}

/* ---- types and values ---- */

u32 schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return SCHEMA_OBJECT;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_INTEGER: return SCHEMA_INTEGER | SCHEMA_NUMBER;
    case JSON_REAL: return SCHEMA_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return SCHEMA_BOOLEAN;
    case JSON_NULL: return SCHEMA_NULL;
    }
    return 0;
}

static const struct {
    const char *name;
    u32 type;
    const char *about[10]; /* keywords that are about values of this type */
} TYPES[] = {
    {"null", SCHEMA_NULL, {NULL}},
    {"boolean", SCHEMA_BOOLEAN, {NULL}},
    {"integer", SCHEMA_INTEGER, {NULL}},
    {"number",
     SCHEMA_NUMBER,
     {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"string", SCHEMA_STRING, {"minLength", "maxLength", "pattern", "format"}},
    {"array", SCHEMA_ARRAY, {"items", "prefixItems", "minItems", "maxItems"}},
    {"object", SCHEMA_OBJECT, {"properties", "required", "additionalProperties"}},
};

static u32 type_named(struct schemac *c, const json_t *name)
{
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < ARRAY_LEN(TYPES); i++)
        if (strcmp(text, TYPES[i].name) == 0) return TYPES[i].type;
    schema_fail(c, FLETCH_E_ARG, "type %s is none of JSON's",
                text ? QUOTE(str_of(text)) : "without a name");
    return 0;
}

u32 schema_types(struct schemac *c, const json_t *s)
{
    const json_t *type = json_object_get(s, "type");
    u32 types = 0;
    size_t i;
    json_t *one;
    if (json_is_array(type)) {
        json_array_foreach((json_t *)type, i, one) types |= type_named(c, one);
        if (!types && !c->rc) schema_fail(c, FLETCH_E_ARG, "no type is left");
        return c->rc ? 0 : types;
    }
    if (type) return type_named(c, type);
    for (i = 0; i < ARRAY_LEN(TYPES); i++)
        for (size_t k = 0; TYPES[i].about[k]; k++)
            if (json_object_get(s, TYPES[i].about[k])) types |= TYPES[i].type;
    return types ? types : SCHEMA_ANY;
}

/* A list of all values that it allows, where it says so; a new reference, or NULL. */
static json_t *values_of(const json_t *s)
{
    json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    if (one) return json_pack("[O]", one);
    return json_incref(list);
}

static bool values_disjoint(const json_t *a, const json_t *b)
{
    json_t *x = values_of(a), *y = values_of(b), *v;
    bool apart = json_is_array(x) && json_is_array(y) && are_short(x, y);
    size_t i;
    json_array_foreach(x, i, v)
    {
        if (!apart) break;
        apart = !holds(y, v);
    }
    json_decref(x);
    json_decref(y);
    return apart;
}

/* A property that both must have, with different values. */
static bool told_apart_by_property(struct schemac *c, const json_t *a, const json_t *b)
{
    const json_t *mine = json_object_get(a, "required"), *theirs = json_object_get(b, "required");
    size_t i;
    json_t *name;
    if (!are_short(mine, theirs)) return false;
    json_array_foreach((json_t *)mine, i, name)
    {
        const char *key = json_string_value(name);
        const json_t *x = key ? json_object_get(json_object_get(a, "properties"), key) : NULL;
        const json_t *y = key ? json_object_get(json_object_get(b, "properties"), key) : NULL;
        if (!x || !y || !holds(theirs, name)) continue;
        x = schema_flatten(c, x);
        y = schema_flatten(c, y);
        if (x && y && values_disjoint(x, y)) return true;
    }
    return false;
}

bool schema_disjoint(struct schemac *c, const json_t *a, const json_t *b)
{
    a = schema_flatten(c, a);
    b = schema_flatten(c, b);
    if (!a || !b) return false;
    if (values_disjoint(a, b)) return true;
    u32 x = schema_types(c, a), y = schema_types(c, b);
    if (x & SCHEMA_NUMBER) x |= SCHEMA_INTEGER;
    if (y & SCHEMA_NUMBER) y |= SCHEMA_INTEGER;
    if (!(x & y)) return json_object_get(a, "type") && json_object_get(b, "type");
    return x == SCHEMA_OBJECT && y == SCHEMA_OBJECT && told_apart_by_property(c, a, b);
}
