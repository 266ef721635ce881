/* The keywords of JSON Schema, one table: which only describe, which a grammar is made for, which
 * types of values each is about. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

enum role {
    ANNOTATION, /* says nothing about values */
    GRAMMAR,    /* a grammar keeps it */
    CHECKED,    /* kept beside enum and const only, where each value can be tried */
    REFUSED,
};

enum shape {
    ANYTHING,
    SCHEMA,
    SCHEMAS,
    ITEMS,
    MEMBERS,
    LIST,
    COUNT,
    NUMBER,
    BOUND,
    STRING,
    STRINGS,
    BOOLEAN
};

#define NUMBERS (SCHEMA_INTEGER | SCHEMA_NUMBER)

static const struct keyword {
    const char *name;
    enum role role;
    u32 about; /* types; 0: all, or none */
    enum shape shape;
} keywords[] = {
    {"$anchor", ANNOTATION, 0, ANYTHING},
    {"$comment", ANNOTATION, 0, ANYTHING},
    {"$defs", ANNOTATION, 0, ANYTHING},
    {"$dynamicAnchor", ANNOTATION, 0, ANYTHING},
    {"$dynamicRef", REFUSED, 0, ANYTHING},
    {"$id", ANNOTATION, 0, ANYTHING}, /* schema_resolve refuses references that it would change */
    {"$recursiveRef", REFUSED, 0, ANYTHING},
    {"$ref", GRAMMAR, 0, STRING},
    {"$schema", ANNOTATION, 0, ANYTHING},
    {"additionalItems", CHECKED, SCHEMA_ARRAY, SCHEMA},
    {"additionalProperties", GRAMMAR, SCHEMA_OBJECT, SCHEMA},
    {"allOf", GRAMMAR, 0, SCHEMAS},
    {"anyOf", GRAMMAR, 0, SCHEMAS},
    {"components", ANNOTATION, 0, ANYTHING}, /* of OpenAPI: schemas, as in $defs */
    {"const", GRAMMAR, 0, ANYTHING},
    {"contains", CHECKED, SCHEMA_ARRAY, SCHEMA},
    {"contentEncoding", ANNOTATION, 0, ANYTHING},
    {"contentMediaType", ANNOTATION, 0, ANYTHING},
    {"contentSchema", ANNOTATION, 0, ANYTHING},
    {"default", ANNOTATION, 0, ANYTHING},
    {"definitions", ANNOTATION, 0, ANYTHING},
    {"dependencies", CHECKED, SCHEMA_OBJECT, MEMBERS},
    {"dependentRequired", CHECKED, SCHEMA_OBJECT, MEMBERS},
    {"dependentSchemas", CHECKED, SCHEMA_OBJECT, MEMBERS},
    {"deprecated", ANNOTATION, 0, ANYTHING},
    {"description", ANNOTATION, 0, ANYTHING},
    {"discriminator", ANNOTATION, 0, ANYTHING}, /* oneOf is told apart without its help */
    {"else", CHECKED, 0, SCHEMA},
    {"enum", GRAMMAR, 0, LIST},
    {"enumDescriptions", ANNOTATION, 0, ANYTHING},
    {"errorMessage", ANNOTATION, 0, ANYTHING},
    {"example", ANNOTATION, 0, ANYTHING},
    {"examples", ANNOTATION, 0, ANYTHING},
    {"exclusiveMaximum", GRAMMAR, NUMBERS, BOUND},
    {"exclusiveMinimum", GRAMMAR, NUMBERS, BOUND},
    {"externalDocs", ANNOTATION, 0, ANYTHING},
    {"format", GRAMMAR, SCHEMA_STRING, STRING},
    {"id", ANNOTATION, 0, ANYTHING},
    {"if", CHECKED, 0, SCHEMA},
    {"items", GRAMMAR, SCHEMA_ARRAY, ITEMS},
    {"markdownDescription", ANNOTATION, 0, ANYTHING},
    {"maxContains", CHECKED, SCHEMA_ARRAY, COUNT},
    {"maxItems", GRAMMAR, SCHEMA_ARRAY, COUNT},
    {"maxLength", GRAMMAR, SCHEMA_STRING, COUNT},
    {"maxProperties", GRAMMAR, SCHEMA_OBJECT, COUNT},
    {"maximum", GRAMMAR, NUMBERS, NUMBER},
    {"minContains", CHECKED, SCHEMA_ARRAY, COUNT},
    {"minItems", GRAMMAR, SCHEMA_ARRAY, COUNT},
    {"minLength", GRAMMAR, SCHEMA_STRING, COUNT},
    {"minProperties", GRAMMAR, SCHEMA_OBJECT, COUNT},
    {"minimum", GRAMMAR, NUMBERS, NUMBER},
    {"multipleOf", GRAMMAR, NUMBERS, NUMBER},
    {"not", CHECKED, 0, SCHEMA},
    {"nullable", ANNOTATION, 0, BOOLEAN}, /* of OpenAPI: schema_types obeys it */
    {"oneOf", GRAMMAR, 0, SCHEMAS},
    {"pattern", GRAMMAR, SCHEMA_STRING, STRING},
    {"patternProperties", GRAMMAR, SCHEMA_OBJECT, MEMBERS},
    {"prefixItems", GRAMMAR, SCHEMA_ARRAY, SCHEMAS},
    {"properties", GRAMMAR, SCHEMA_OBJECT, MEMBERS},
    {"propertyNames", GRAMMAR, SCHEMA_OBJECT, SCHEMA},
    {"propertyOrdering", ANNOTATION, 0, ANYTHING},
    {"readOnly", ANNOTATION, 0, ANYTHING},
    {"required", GRAMMAR, SCHEMA_OBJECT, STRINGS},
    {"strict", ANNOTATION, 0, ANYTHING},
    {"then", CHECKED, 0, SCHEMA},
    {"title", ANNOTATION, 0, ANYTHING},
    {"type", GRAMMAR, 0, ANYTHING},
    {"unevaluatedItems", REFUSED, SCHEMA_ARRAY, SCHEMA},
    {"unevaluatedProperties", REFUSED, SCHEMA_OBJECT, SCHEMA},
    {"uniqueItems", GRAMMAR, SCHEMA_ARRAY, BOOLEAN},
    {"writeOnly", ANNOTATION, 0, ANYTHING},
    {"xml", ANNOTATION, 0, ANYTHING},
};

static int by_name(const void *key, const void *keyword)
{
    return strcmp(key, ((const struct keyword *)keyword)->name);
}

static const struct keyword *find_keyword(const char *key)
{
    return bsearch(key, keywords, ARRAY_LEN(keywords), sizeof *keywords, by_name);
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool are_all(const json_t *list, bool (*is)(const json_t *))
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v)
    {
        if (!is(v)) return false;
    }
    return json_is_array(list);
}

/* No name that matters holds a NUL, and the functions that compare names would stop at it. */
static bool is_string(const json_t *v)
{
    return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
}

static bool is_count(const json_t *v)
{
    double d = json_is_number(v) ? json_number_value(v) : -1;
    return d >= 0 && d == floor(d);
}

/* NULL: it has the shape. */
static const char *lacks_shape(enum shape shape, const json_t *v)
{
    switch (shape) {
    case ANYTHING: return NULL;
    case SCHEMA: return is_schema(v) ? NULL : "a schema (an object, true or false)";
    case SCHEMAS: return json_array_size(v) && are_all(v, is_schema) ? NULL : "a list of schemas";
    case ITEMS:
        return is_schema(v) || are_all(v, is_schema) ? NULL : "a schema or a list of schemas";
    case MEMBERS: return json_is_object(v) ? NULL : "an object";
    case LIST: return json_is_array(v) ? NULL : "a list";
    case COUNT: return is_count(v) ? NULL : "a non-negative integer";
    case NUMBER: return json_is_number(v) ? NULL : "a number";
    case BOUND: return json_is_number(v) || json_is_boolean(v) ? NULL : "a number";
    case STRING: return is_string(v) ? NULL : "a string without NUL";
    case STRINGS: return are_all(v, is_string) ? NULL : "a list of strings without NUL";
    case BOOLEAN: return json_is_boolean(v) ? NULL : "true or false";
    }
    return NULL;
}

bool schema_check_shapes(struct schemac *c, const json_t *s)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        const struct keyword *k = find_keyword(key);
        const char *what = k ? lacks_shape(k->shape, value) : NULL;
        if (what) schema_fail(c, FLETCH_E_ARG, "%s must be %s", key, what);
    }
    return !c->rc;
}

bool schema_is_annotation(const char *key)
{
    const struct keyword *k = find_keyword(key);
    return strncmp(key, "x-", 2) == 0 || (k && k->role == ANNOTATION);
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

void schema_check_keywords(struct schemac *c, const json_t *s)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        const struct keyword *k = find_keyword(key);
        if (schema_is_annotation(key) || (k && k->role == GRAMMAR)) continue;
        schema_fail(c, FLETCH_E_UNSUPPORTED, "%s is %s", QUOTE(str_of(key)),
                    !k                   ? "not a supported keyword of JSON Schema"
                    : k->role == CHECKED ? "supported in this form only together with enum or const"
                                         : "not supported");
    }
}

bool schema_keyword_can_be_tried(const char *key)
{
    const struct keyword *k = find_keyword(key);
    return schema_is_annotation(key) || (k && k->role != REFUSED);
}

/* ---- types ---- */

static const struct {
    const char *name;
    u32 type;
} types[] = {
    {"null", SCHEMA_NULL},     {"boolean", SCHEMA_BOOLEAN}, {"integer", SCHEMA_INTEGER},
    {"number", SCHEMA_NUMBER}, {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
    {"object", SCHEMA_OBJECT},
};

static u32 type_named(struct schemac *c, const json_t *name)
{
    const char *text = json_string_value(name);
    for (size_t i = 0; is_string(name) && i < ARRAY_LEN(types); i++)
        if (strcmp(text, types[i].name) == 0) return types[i].type;
    if (text)
        schema_fail(c, FLETCH_E_ARG, "unknown type %s",
                    QUOTE(((struct str){text, json_string_length(name)})));
    else
        schema_fail(c, FLETCH_E_ARG, "type is not a string");
    return 0;
}

bool schema_keyword_is_about(const char *key, u32 of)
{
    const struct keyword *k = find_keyword(key);
    return k && k->about & of;
}

bool schema_is_choice(const char *key)
{
    const struct keyword *k = find_keyword(key);
    return !k || (k->role != ANNOTATION && !k->about && strcmp(key, "type") != 0);
}

bool schema_is_about(const json_t *s, u32 of)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        const struct keyword *k = find_keyword(key);
        if (k && k->about & of) return true;
    }
    return false;
}

u32 schema_types(struct schemac *c, const json_t *s)
{
    const json_t *type = json_object_get(s, "type");
    u32 found = 0;
    size_t i;
    json_t *one;
    const char *key;
    if (json_is_array(type)) {
        json_array_foreach((json_t *)type, i, one) found |= type_named(c, one);
    } else if (type) {
        found = type_named(c, type);
    }
    if (type && json_is_true(json_object_get(s, "nullable"))) found |= SCHEMA_NULL;
    if (type) return c->rc ? 0 : found;
    json_object_foreach((json_t *)s, key, one)
    {
        const struct keyword *k = find_keyword(key);
        if (k) found |= k->about;
    }
    return found ? found : SCHEMA_ANY;
}

/* ---- one spelling of each thing ---- */

static bool is_empty_object(const json_t *v)
{
    return json_is_object(v) && !json_object_size(v);
}

/* True, or {}: every value fits. */
static bool is_anything(const json_t *s)
{
    return json_is_true(s) || (json_is_object(s) && schema_says_nothing(s, NULL));
}

static bool is_zero(const json_t *v)
{
    return json_is_number(v) && json_number_value(v) == 0;
}

/* Can a keyword never make a value wrong? */
static bool is_idle(const json_t *s, const char *key, const json_t *value)
{
    static const struct {
        const char *key, *without;
    } partners[] = {
        {"minContains", "contains"},
        {"maxContains", "contains"},
        {"then", "if"},
        {"else", "if"},
    };
    for (size_t i = 0; i < ARRAY_LEN(partners); i++)
        if (strcmp(key, partners[i].key) == 0) return !json_object_get(s, partners[i].without);
    if (strcmp(key, "additionalItems") == 0) return !json_is_array(json_object_get(s, "items"));
    if (strcmp(key, "if") == 0)
        return !json_object_get(s, "then") && !json_object_get(s, "else") &&
               (json_is_object(value) || json_is_boolean(value));
    if (strcmp(key, "contains") == 0)
        return is_zero(json_object_get(s, "minContains")) && !json_object_get(s, "maxContains");
    if (strcmp(key, "uniqueItems") == 0 || strcmp(key, "not") == 0) return json_is_false(value);
    if (strcmp(key, "minProperties") == 0) return is_zero(value);
    if (strcmp(key, "patternProperties") == 0 || strncmp(key, "depend", 6) == 0)
        return is_empty_object(value);
    if (strcmp(key, "propertyNames") == 0 || strncmp(key, "unevaluated", 11) == 0)
        return is_anything(value);
    return false;
}

/* Are there schemas beside it that are about the same value, and may evaluate its parts? */
static bool has_applicators(const json_t *s)
{
    static const char *const keys[] = {
        "$ref", "$dynamicRef", "$recursiveRef",    "allOf",        "anyOf",   "oneOf",
        "not",  "if",          "dependentSchemas", "dependencies", "contains"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(s, keys[i])) return true;
    return false;
}

static void rename_key(json_t *s, const char *from, const char *to)
{
    json_t *value = json_object_get(s, from);
    if (!value) return;
    if (!json_object_get(s, to)) json_object_set(s, to, value);
    json_object_del(s, from);
}

/* Where nothing else evaluates parts of the value, these are what their older relatives are. */
static void replace_unevaluated(json_t *s)
{
    if (has_applicators(s)) return;
    rename_key(s, "unevaluatedProperties", "additionalProperties");
    rename_key(s, "unevaluatedItems", "items");
}

static void replace_array_items(struct schemac *c, json_t *s)
{
    json_t *items = json_object_get(s, "items");
    if (!json_is_array(items)) return;
    if (json_object_get(s, "prefixItems")) {
        schema_fail(c, FLETCH_E_ARG, "prefixItems cannot be combined with a list in items");
        return;
    }
    json_object_set(s, "prefixItems", items);
    json_object_del(s, "items");
    rename_key(s, "additionalItems", "items");
}

/* {"anyOf": [without the member, with it and what it asks for]} for each member, into allOf. */
static void replace_dependents(struct schemac *c, json_t *s, const char *keyword)
{
    json_t *members = json_object_get(s, keyword), *asked;
    json_t *all = json_object_get(s, "allOf");
    const char *key;
    bool named = json_object_get(s, "properties") != NULL;
    if (!members) return;
    if (!json_is_object(members) || (all && !json_is_array(all))) {
        schema_fail(c, FLETCH_E_ARG, "%s must be an object, and allOf a list", keyword);
        return;
    }
    all = all ? json_copy(all) : json_array();
    json_object_foreach(members, key, asked)
    {
        json_t *absent = json_pack("{s:{s:b}}", "properties", key, 0);
        json_t *then =
            json_is_array(asked) ? json_pack("{s:O}", "required", asked) : json_incref(asked);
        if (absent && !named) json_object_set_new(absent, "additionalProperties", json_true());
        json_array_append_new(all, json_pack("{s:[o, o]}", "anyOf", absent, then));
    }
    json_object_del(s, keyword);
    if (json_object_set_new(s, "allOf", all)) schema_nomem(c);
}

/* Takes the reference. */
static void add_to_all(struct schemac *c, json_t *s, json_t *part)
{
    json_t *all = json_object_get(s, "allOf");
    if (all && !json_is_array(all)) schema_fail(c, FLETCH_E_ARG, "allOf must be a list of schemas");
    all = all ? json_copy(all) : json_array();
    if (json_array_append_new(all, part) || json_object_set_new(s, "allOf", all)) schema_nomem(c);
}

/* What has no opposite that can be said stays, to be refused by name. */
static void replace_not(struct schemac *c, json_t *s)
{
    const json_t *no = json_object_get(s, "not");
    bool named = json_object_get(s, "properties") != NULL;
    json_t *opposite = no ? schema_opposite(c, no, SCHEMA_WHOLLY, named) : NULL;
    if (!opposite) return;
    json_object_del(s, "not");
    add_to_all(c, s, opposite);
}

/* {"anyOf": [if and then, not if and else]}, the same way. */
static void replace_if(struct schemac *c, json_t *s)
{
    const json_t *when = json_object_get(s, "if");
    const json_t *then = json_object_get(s, "then"), *other = json_object_get(s, "else");
    bool named = json_object_get(s, "properties") != NULL;
    json_t *unless = when ? schema_opposite(c, when, SCHEMA_WHOLLY, named) : NULL;
    if (!unless) return;
    json_t *one = schema_both(when, then), *two = schema_both(unless, other);
    json_decref(unless);
    add_to_all(c, s, json_pack("{s:[o, o]}", "anyOf", one, two));
    json_object_del(s, "if");
    json_object_del(s, "then");
    json_object_del(s, "else");
}

/* true, of draft 4, says that the bound beside it is exclusive. */
static void replace_exclusive(json_t *s, const char *key, const char *bound)
{
    json_t *value = json_object_get(s, key), *its = json_object_get(s, bound);
    if (!json_is_boolean(value)) return;
    if (json_is_true(value) && its) json_object_set(s, key, its);
    if (json_is_true(value) && its) json_object_del(s, bound);
    if (json_is_boolean(json_object_get(s, key))) json_object_del(s, key);
}

/* "nullable" adds a type to those beside it. */
static void replace_nullable(struct schemac *c, json_t *s)
{
    json_t *type = json_object_get(s, "type"), *null = json_string("null");
    if (type && json_is_true(json_object_get(s, "nullable")) && schema_types(c, s)) {
        json_t *list = json_is_array(type) ? json_copy(type) : json_pack("[O]", type);
        json_array_append(list, null);
        json_object_set_new(s, "type", list);
    }
    json_decref(null);
    json_object_del(s, "nullable");
}

const json_t *schema_normalise(struct schemac *c, const json_t *s)
{
    static const char *const changed[] = {"dependencies",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "not",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "if",
                                          "nullable"};
    const char *key;
    json_t *value;
    bool as_it_is = !json_is_array(json_object_get(s, "items")) &&
                    !json_is_boolean(json_object_get(s, "exclusiveMinimum")) &&
                    !json_is_boolean(json_object_get(s, "exclusiveMaximum"));
    for (size_t i = 0; i < ARRAY_LEN(changed); i++) as_it_is &= !json_object_get(s, changed[i]);
    json_object_foreach((json_t *)s, key, value) as_it_is &= !is_idle(s, key, value);
    if (as_it_is) return s;
    json_t *out = schema_keep(c, json_copy((json_t *)s));
    if (!out) return NULL;
    json_object_foreach((json_t *)s, key, value)
    {
        if (is_idle(s, key, value)) json_object_del(out, key);
    }
    if (!json_object_get(out, "contains")) {
        json_object_del(out, "minContains");
        json_object_del(out, "maxContains");
    }
    replace_unevaluated(out);
    replace_array_items(c, out);
    for (size_t i = 0; i < 3; i++) replace_dependents(c, out, changed[i]);
    replace_exclusive(out, "exclusiveMinimum", "minimum");
    replace_exclusive(out, "exclusiveMaximum", "maximum");
    replace_nullable(c, out);
    if (!json_object_get(out, "unevaluatedProperties") &&
        !json_object_get(out, "unevaluatedItems")) { /* what fits `not` and `if` evaluates less */
        replace_not(c, out);
        replace_if(c, out);
    }
    return c->rc ? NULL : out;
}
