/* Schemas made of schemas: references, allOf, and what is said beside anyOf. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

json_t *schema_keep(struct schemac *c, json_t *made)
{
    c->n_made += 1 + json_object_size(made);
    bool kept = made && json_array_append_new(c->made, made) == 0;
    if (!kept)
        schema_nomem(c);
    else if (c->n_made > SCHEMA_MAX_MADE)
        schema_fail(c, FLETCH_E_LIMIT, "references and allOf make the schema too large");
    return kept && !c->rc ? made : NULL;
}

const json_t *schema_without(struct schemac *c, const json_t *s, const char *key)
{
    json_t *copy = schema_keep(c, json_copy((json_t *)s));
    if (copy) json_object_del(copy, key);
    return copy;
}

json_t *schema_both(const json_t *a, const json_t *b)
{
    if (!a || json_is_true(a) || json_is_false(b)) return json_incref((json_t *)(b ? b : a));
    if (!b || json_is_true(b) || json_is_false(a) || json_equal(a, b))
        return json_incref((json_t *)a);
    return json_pack("{s:[O, O]}", "allOf", (json_t *)a, (json_t *)b);
}

/* ---- references ---- */

static int hex_digit(char ch)
{
    const char *digits = "0123456789abcdef", *at = ch ? strchr(digits, ch | 0x20) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* A reference is part of an address: %25 stands for %. False: it is none, or too long. */
static bool decode_percent(const char *text, char *to, size_t room)
{
    size_t n = 0;
    for (; *text; text++) {
        int high = *text == '%' ? hex_digit(text[1]) : 0;
        int low = *text == '%' && high >= 0 ? hex_digit(text[2]) : 0;
        if (n + 1 >= room || high < 0 || low < 0) return false;
        to[n++] = *text == '%' ? (char)(high * 16 + low) : *text;
        if (*text == '%') text += 2;
        if (!to[n - 1]) return false;
    }
    to[n] = 0;
    return true;
}

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
    if (!json_is_array(s)) return json_object_get(s, name);
    bool number = used > 0 && used < 8 && strspn(name, "0123456789") == used;
    return number ? json_array_get(s, (size_t)strtoul(name, NULL, 10)) : NULL;
}

/* Does it say that references inside it are relative to itself? An old $id "#name" does not. */
static bool has_base(const json_t *s)
{
    const char *id = json_string_value(json_object_get(s, "$id"));
    return id && id[0] != '#';
}

/* The schema with an $anchor; looks through everything, values included, so one that is found
 * twice is none. */
static void find_anchor(struct schemac *c, const json_t *s, const char *name, const json_t **found,
                        u32 *n)
{
    const char *key;
    json_t *value;
    size_t i;
    if (!schema_work(c, 1)) return;
    if (json_is_object(s)) {
        static const char *const keys[] = {"$anchor", "$dynamicAnchor", "$id"};
        for (i = 0; i < ARRAY_LEN(keys); i++) {
            const char *its = json_string_value(json_object_get(s, keys[i]));
            if (its && i == 2 && *its++ != '#') its = NULL;
            if (!its || strcmp(its, name) != 0) continue;
            *found = s;
            ++*n;
        }
    }
    json_object_foreach((json_t *)s, key, value) find_anchor(c, value, name, found, n);
    json_array_foreach((json_t *)s, i, value) find_anchor(c, value, name, found, n);
}

/* Some schema below the root that has a base of its own. */
static bool has_inner_base(struct schemac *c, const json_t *s)
{
    const char *key;
    json_t *value;
    size_t i;
    if (!schema_work(c, 1)) return false;
    if (s != c->root && has_base(s)) return true;
    json_object_foreach((json_t *)s, key, value)
    {
        if (has_inner_base(c, value)) return true;
    }
    json_array_foreach((json_t *)s, i, value)
    {
        if (has_inner_base(c, value)) return true;
    }
    return false;
}

const json_t *schema_resolve(struct schemac *c, const json_t *ref)
{
    char text[512];
    const char *given = json_string_value(ref), *at_root;
    const char *id = json_string_value(json_object_get(c->root, "$id"));
    const json_t *at = c->root;
    u32 n = 0;
    if (!given || !decode_percent(given, text, sizeof text)) {
        schema_fail(c, FLETCH_E_ARG, "$ref is not a reference");
        return NULL;
    }
    size_t n_id = id ? strcspn(id, "#") : 0;
    at_root = n_id && strncmp(text, id, n_id) == 0 ? text + n_id : text;
    if (at_root[0] != '#' && (at_root[0] || at_root == text)) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "$ref %s is not supported (only #/... in the same schema is)",
                    QUOTE(str_of(given)));
        return NULL;
    }
    if (!c->n_refs++) c->inner_base = has_inner_base(c, c->root);
    if (c->inner_base) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "$ref %s is not supported, because an inner schema has an $id",
                    QUOTE(str_of(given)));
        return NULL;
    }
    if (at_root[0] && at_root[1] && at_root[1] != '/') {
        at = NULL;
        find_anchor(c, c->root, at_root + 1, &at, &n);
        if (n > 1) at = NULL;
    } else if (at_root[0]) {
        for (const char *p = at_root + 1; *p && at;) {
            size_t length = strcspn(p + 1, "/");
            at = descend(at, p + 1, length);
            p += 1 + length;
        }
    }
    if (!at) schema_fail(c, FLETCH_E_ARG, "unresolved $ref %s", QUOTE(str_of(given)));
    return c->rc ? NULL : at;
}

static const json_t *checked(struct schemac *c, const json_t *s)
{
    if (json_is_boolean(s))
        return schema_keep(c, json_is_true(s) ? json_object() : json_pack("{s:[]}", "enum"));
    if (json_is_object(s)) return schema_normalise(c, s);
    schema_fail(c, FLETCH_E_ARG, "a schema must be an object, true or false");
    return NULL;
}

static const json_t *merge(struct schemac *c, const json_t *a, const json_t *b);

/* What `unevaluated...` says beside $ref and allOf: it is about parts that no schema says anything
 * about, so where they are merged it is what its older relative is. Stays, to be refused, where
 * other schemas beside it decide that. */
static const json_t *flatten_unevaluated(struct schemac *c, const json_t *s)
{
    static const char *const keys[][2] = {{"unevaluatedProperties", "additionalProperties"},
                                          {"unevaluatedItems", "items"}};
    static const char *const others[] = {"anyOf", "oneOf", "not", "if", "contains"};
    json_t *rest = schema_keep(c, json_copy((json_t *)s)), *out;
    bool decided = true;
    for (size_t i = 0; rest && i < 2; i++) json_object_del(rest, keys[i][0]);
    const json_t *flat = rest ? schema_flatten(c, rest) : NULL;
    if (!flat || !(out = schema_keep(c, json_copy((json_t *)flat)))) return NULL;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) decided &= !json_object_get(flat, others[i]);
    for (size_t i = 0; i < 2; i++) {
        json_t *value = json_object_get(s, keys[i][0]);
        const char *key = keys[i][decided];
        if (value && !json_object_get(out, key)) json_object_set(out, key, value);
    }
    return out;
}

const json_t *schema_flatten(struct schemac *c, const json_t *s)
{
    size_t i;
    json_t *part;
    if (c->rc || !(s = checked(c, s))) return NULL;
    const json_t *ref = json_object_get(s, "$ref"), *all = json_object_get(s, "allOf");
    if (!ref && !all) return s;
    if (json_object_get(s, "unevaluatedProperties") || json_object_get(s, "unevaluatedItems"))
        return flatten_unevaluated(c, s);
    if (++c->depth > SCHEMA_MAX_DEPTH) {
        schema_fail(c, FLETCH_E_LIMIT, "references or allOf nested deeper than %d levels",
                    SCHEMA_MAX_DEPTH);
        return NULL;
    }
    const json_t *flat = schema_without(c, s, ref ? "$ref" : "allOf");
    if (ref) {
        const json_t *target = schema_resolve(c, ref);
        const json_t *rest = flat ? schema_flatten(c, flat) : NULL;
        flat = target && rest ? merge(c, rest, schema_flatten(c, target)) : NULL;
    } else {
        if (!json_is_array(all) || !json_array_size(all))
            schema_fail(c, FLETCH_E_ARG, "allOf is not a list of schemas");
        json_array_foreach((json_t *)all, i, part)
        {
            if (flat && !c->rc) flat = merge(c, flat, schema_flatten(c, part));
        }
    }
    c->depth--;
    return c->rc ? NULL : flat;
}

/* ---- merging ---- */

/* Entries of both lists, or of either, in order and once each. */
static json_t *join_lists(struct schemac *c, const json_t *a, const json_t *b, bool both)
{
    json_t *out = json_array(), *seen = json_object(), *v;
    const json_t *lists[] = {a, b};
    size_t i;
    for (int k = 0; k < 2; k++) {
        json_array_foreach((json_t *)lists[k], i, v)
        {
            char *key = schema_value_key(v);
            bool before = key && json_object_get(seen, key), first = k == 0;
            if (!key) schema_nomem(c);
            if (key && !before && (first || !both)) json_object_set_new(seen, key, json_true());
            if (both ? before && !first : !before) json_array_append(out, v);
            if (both && before && !first) json_object_del(seen, key);
            free(key);
        }
    }
    json_decref(seen);
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

/* Every choice of one with every choice of the other. */
static json_t *join_choices(struct schemac *c, const json_t *a, const json_t *b)
{
    json_t *out = json_array(), *x, *y;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > SCHEMA_MAX_LIST)
        schema_fail(c, FLETCH_E_LIMIT, "anyOf or oneOf have more than %d combinations",
                    SCHEMA_MAX_LIST);
    json_array_foreach((json_t *)a, i, x)
    {
        json_array_foreach((json_t *)b, k, y)
        {
            if (!c->rc) json_array_append_new(out, schema_both(x, y));
        }
    }
    return out;
}

static i64 greatest_divisor(i64 a, i64 b)
{
    while (b) {
        i64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least common multiple; NULL: it is not found. */
static json_t *join_multiples(const json_t *a, const json_t *b)
{
    i64 x = json_integer_value(a), y = json_integer_value(b), all;
    if (!json_is_integer(a) || !json_is_integer(b) || x <= 0 || y <= 0) return NULL;
    return CK_MUL(x / greatest_divisor(x, y), y, &all) ? json_integer(all) : NULL;
}

/* A pattern that matches what both match: each is looked for from the beginning on. */
static json_t *join_patterns(const json_t *a, const json_t *b)
{
    if (!json_is_string(a) || !json_is_string(b)) return NULL;
    return json_sprintf("^(?=[^]*(?:%s))(?=[^]*(?:%s))", json_string_value(a),
                        json_string_value(b));
}

/* What two schemas say together under one key; NULL: it can't be said in one. Keywords that depend
 * on others beside them are joined elsewhere, or not at all. */
static json_t *join(struct schemac *c, const char *key, const json_t *a, const json_t *b)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                       "maxProperties"};
    bool lists = json_is_array(a) && json_is_array(b);
    if (strcmp(key, "const") == 0) return schema_equal(a, b) ? json_incref((json_t *)a) : NULL;
    if (strcmp(key, "enum") == 0 && lists) return join_lists(c, a, b, true);
    if ((strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) && lists)
        return join_choices(c, a, b);
    if (json_equal(a, b)) return json_incref((json_t *)a);
    if (strcmp(key, "required") == 0 && lists) return join_lists(c, a, b, false);
    if (strcmp(key, "type") == 0) return join_types(c, a, b);
    if (strcmp(key, "propertyNames") == 0) return schema_both(a, b);
    if (strcmp(key, "uniqueItems") == 0 && json_is_boolean(a) && json_is_boolean(b))
        return json_boolean(json_is_true(a) || json_is_true(b));
    if (strcmp(key, "multipleOf") == 0) return join_multiples(a, b);
    if (strcmp(key, "pattern") == 0) return join_patterns(a, b);
    if (!json_is_number(a) || !json_is_number(b)) return NULL;
    for (size_t i = 0; i < ARRAY_LEN(least); i++) {
        if (strcmp(key, least[i]) == 0)
            return json_incref((json_t *)(schema_compare(a, b) < 0 ? b : a));
        if (strcmp(key, most[i]) == 0)
            return json_incref((json_t *)(schema_compare(a, b) < 0 ? a : b));
    }
    return NULL;
}

/* What s says about element i. */
static const json_t *element(const json_t *s, size_t i)
{
    const json_t *first = json_object_get(s, "prefixItems");
    return i < json_array_size(first) ? json_array_get(first, i) : json_object_get(s, "items");
}

/* `items` is about the elements after its own prefixItems, so both are joined element by element.
 */
static void join_elements(json_t *out, const json_t *a, const json_t *b)
{
    size_t n_a = json_array_size(json_object_get(a, "prefixItems"));
    size_t n_b = json_array_size(json_object_get(b, "prefixItems")), n = MAX(n_a, n_b);
    json_t *rest = schema_both(element(a, n), element(b, n));
    if (n) {
        json_t *first = json_array();
        for (size_t i = 0; i < n; i++) {
            json_t *both = schema_both(element(a, i), element(b, i));
            json_array_append_new(first, both ? both : json_true());
        }
        json_object_set_new(out, "prefixItems", first);
    }
    if (rest) json_object_set_new(out, "items", rest);
}

/* What s says about a member. */
static const json_t *member(const json_t *s, const char *key)
{
    const json_t *named = json_object_get(json_object_get(s, "properties"), key);
    return named ? named : json_object_get(s, "additionalProperties");
}

/* `additionalProperties` is about members that its own `properties` do not name. */
static void join_members(json_t *out, const json_t *a, const json_t *b)
{
    const json_t *both[] = {a, b};
    json_t *value, *all = NULL;
    const char *key;
    for (int k = 0; k < 2; k++) {
        const json_t *named = json_object_get(both[k], "properties");
        if (named && !all) all = json_object();
        json_object_foreach((json_t *)named, key, value)
        {
            if (json_object_get(all, key)) continue;
            json_t *joined = schema_both(member(a, key), member(b, key));
            json_object_set_new(all, key, joined);
        }
    }
    if (all) json_object_set_new(out, "properties", all);
    json_t *rest = schema_both(json_object_get(a, "additionalProperties"),
                               json_object_get(b, "additionalProperties"));
    if (rest) json_object_set_new(out, "additionalProperties", rest);
}

/* Do both have keywords of which each changes what the others mean? */
static bool are_entangled(const json_t *a, const json_t *b)
{
    static const char *const groups[][4] = {{"contains", "minContains", "maxContains"},
                                            {"if", "then", "else"},
                                            {"patternProperties", "additionalProperties"}};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        bool in_a = false, in_b = false, same = true, leader = false;
        for (size_t k = 0; groups[i][k]; k++) {
            const json_t *x = json_object_get(a, groups[i][k]);
            const json_t *y = json_object_get(b, groups[i][k]);
            in_a |= x != NULL;
            in_b |= y != NULL;
            leader |= k == 0 && (x || y);
            same &= (!x && !y) || (x && y && json_equal(x, y));
        }
        if (leader && in_a && in_b && !same) return true;
    }
    return false;
}

static bool is_joined_elsewhere(const char *key)
{
    static const char *const keys[] = {"items", "prefixItems", "properties",
                                       "additionalProperties"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* One object that says what both say. Borrowed. */
static const json_t *merge(struct schemac *c, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (!a || !b || c->rc) return NULL;
    if (!json_object_size(a)) return b;
    if (json_object_get(a, "unevaluatedProperties") || json_object_get(a, "unevaluatedItems") ||
        json_object_get(b, "unevaluatedProperties") || json_object_get(b, "unevaluatedItems"))
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'unevaluatedProperties' and 'unevaluatedItems' are not supported together "
                    "with anyOf, oneOf, not and if; use additionalProperties in each alternative");
    if (are_entangled(a, b))
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "contains, if or patternProperties of several parts of a schema cannot "
                    "be merged");
    json_t *out = schema_keep(c, json_copy((json_t *)a));
    json_object_foreach((json_t *)b, key, value)
    {
        if (!out || c->rc) return NULL;
        if (schema_is_annotation(key) || is_joined_elsewhere(key)) continue;
        json_t *mine = json_object_get(out, key);
        json_t *both = mine ? join(c, key, mine, value) : json_incref(value);
        if (!both && !c->rc)
            schema_fail(c, FLETCH_E_UNSUPPORTED,
                        "two different values of %s apply and cannot be merged",
                        QUOTE(str_of(key)));
        if (both && json_object_set_new(out, key, both)) schema_nomem(c);
    }
    if (!out || c->rc) return NULL;
    join_elements(out, a, b);
    join_members(out, a, b);
    return out;
}

/* ---- values that a schema allows ---- */

json_t *schema_values(struct schemac *c, const json_t *s)
{
    const json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    const json_t *ref = json_object_get(s, "$ref"), *all = json_object_get(s, "allOf");
    size_t i;
    json_t *part, *found = NULL;
    if (c->rc || !json_is_object(s) || !schema_work(c, 1)) return NULL;
    if (one) return json_pack("[O]", (json_t *)one);
    if (list && !json_is_array(list)) schema_fail(c, FLETCH_E_ARG, "enum is not a list");
    if (list) return json_incref((json_t *)list);
    if (++c->depth > SCHEMA_MAX_DEPTH) {
        schema_fail(c, FLETCH_E_LIMIT, "references or allOf nested deeper than %d levels",
                    SCHEMA_MAX_DEPTH);
        return NULL;
    }
    if (ref) {
        const json_t *target = schema_resolve(c, ref);
        if (target) found = schema_values(c, target);
    }
    json_array_foreach((json_t *)all, i, part)
    {
        if (!found) found = schema_values(c, part);
    }
    c->depth--;
    return found;
}

/* ---- what can't overlap ---- */

/* Comparing every entry with every other is no work for hostile lists. */
static bool are_short(const json_t *a, const json_t *b)
{
    return json_array_size(a) <= SCHEMA_MAX_LIST && json_array_size(b) <= SCHEMA_MAX_LIST;
}

static bool values_disjoint(struct schemac *c, const json_t *a, const json_t *b)
{
    json_t *x = schema_values(c, a), *y = schema_values(c, b);
    bool apart = x && y && are_short(x, y);
    if (apart) {
        json_t *common = join_lists(c, x, y, true);
        apart = schema_work(c, json_array_size(x) + json_array_size(y)) && !json_array_size(common);
        json_decref(common);
    }
    json_decref(x);
    json_decref(y);
    return apart;
}

/* A property that both must have, with values that can't be the same. */
static bool told_apart_by_property(struct schemac *c, const json_t *a, const json_t *b)
{
    const json_t *mine = json_object_get(a, "required"), *theirs = json_object_get(b, "required");
    size_t i, k;
    json_t *name, *other;
    if (!are_short(mine, theirs)) return false;
    json_array_foreach((json_t *)mine, i, name)
    {
        const char *key = json_string_value(name);
        const json_t *x = key ? json_object_get(json_object_get(a, "properties"), key) : NULL;
        const json_t *y = key ? json_object_get(json_object_get(b, "properties"), key) : NULL;
        bool both = false;
        if (!x || !y) continue;
        json_array_foreach((json_t *)theirs, k, other) both |= json_equal(other, name);
        if (!both || !schema_work(c, json_array_size(theirs))) continue;
        x = schema_flatten(c, x);
        y = schema_flatten(c, y);
        if (x && y && schema_disjoint(c, x, y)) return true;
    }
    return false;
}

/* Of the values that it lists, or of "type"; `typed` says that no other type is allowed. */
static u32 types_of(struct schemac *c, const json_t *s, bool *typed)
{
    json_t *values = schema_values(c, s), *v;
    u32 types = values ? 0 : schema_types(c, s);
    size_t i;
    json_array_foreach(values, i, v) types |= schema_type_of(v);
    *typed = values || json_object_get(s, "type");
    if (!values && types & SCHEMA_NUMBER) types |= SCHEMA_INTEGER;
    json_decref(values);
    return types;
}

static bool is_required(const json_t *s, const char *key)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(s, "required"), i, name)
    {
        const char *text = json_string_value(name);
        if (text && strcmp(text, key) == 0) return true;
    }
    return false;
}

/* Does a require a member that b forbids? */
static bool requires_forbidden(struct schemac *c, const json_t *a, const json_t *b)
{
    const json_t *required = json_object_get(a, "required");
    size_t i;
    json_t *name;
    if (!json_is_false(json_object_get(b, "additionalProperties")) ||
        json_object_get(b, "patternProperties") || json_array_size(required) > SCHEMA_MAX_LIST)
        return false;
    json_array_foreach((json_t *)required, i, name)
    {
        const char *key = json_string_value(name);
        if (!schema_work(c, 1)) return false;
        if (key && !json_object_get(json_object_get(b, "properties"), key)) return true;
    }
    return false;
}

/* Does the range of one end before that of the other begins? */
static bool ranges_disjoint(const json_t *a, const json_t *b)
{
    static const char *const lows[] = {"minimum", "exclusiveMinimum"};
    static const char *const highs[] = {"maximum", "exclusiveMaximum"};
    for (size_t i = 0; i < 4; i++) {
        const json_t *low = json_object_get(b, lows[i / 2]);
        const json_t *high = json_object_get(a, highs[i % 2]);
        if (!json_is_number(low) || !json_is_number(high)) continue;
        int order = schema_compare(high, low);
        if (order < 0 || (order == 0 && i > 0)) return true;
    }
    return false;
}

bool schema_disjoint(struct schemac *c, const json_t *a, const json_t *b)
{
    bool typed_a, typed_b, apart = false;
    if (!schema_work(c, 1) || c->depth >= SCHEMA_MAX_DEPTH) return false;
    if (values_disjoint(c, a, b)) return true;
    u32 x = types_of(c, a, &typed_a), y = types_of(c, b, &typed_b), both = x & y;
    if (c->rc || !both) return !c->rc && typed_a && typed_b;
    bool numbers = typed_a && typed_b && !(both & ~(u32)(SCHEMA_INTEGER | SCHEMA_NUMBER));
    if (numbers && (ranges_disjoint(a, b) || ranges_disjoint(b, a))) return true;
    /* values that are no objects fit both unless a type forbids them */
    bool objects = (x == SCHEMA_OBJECT && typed_a) || (y == SCHEMA_OBJECT && typed_b) ||
                   (typed_a && typed_b && both == SCHEMA_OBJECT);
    if (!objects) return false;
    if (requires_forbidden(c, a, b) || requires_forbidden(c, b, a)) return true;
    c->depth++;
    apart = told_apart_by_property(c, a, b);
    c->depth--;
    return apart;
}

bool schema_lacks_member(struct schemac *c, const json_t *a, const json_t *b)
{
    static const char *const open[] = {"anyOf", "oneOf", "patternProperties", "propertyNames"};
    const json_t *named = json_object_get(a, "properties"), *required;
    const json_t *more = json_object_get(a, "additionalProperties");
    bool typed;
    size_t i;
    json_t *name;
    for (i = 0; i < ARRAY_LEN(open); i++)
        if (json_object_get(a, open[i])) return false;
    if (types_of(c, a, &typed) != SCHEMA_OBJECT || (more ? !json_is_false(more) : !named))
        return false;
    required = json_object_get(b, "required");
    if (json_array_size(required) > SCHEMA_MAX_LIST) return false;
    json_array_foreach((json_t *)required, i, name)
    {
        const char *key = json_string_value(name);
        if (schema_work(c, 1) && key && !json_object_get(named, key) && !is_required(a, key))
            return true;
    }
    return false;
}

bool schema_told_apart_by(struct schemac *c, const json_t *a, const json_t *b, const char *key)
{
    const json_t *x = json_object_get(json_object_get(a, "properties"), key);
    const json_t *y = json_object_get(json_object_get(b, "properties"), key);
    bool typed;
    if (!x || !y || types_of(c, a, &typed) != SCHEMA_OBJECT) return false;
    x = schema_flatten(c, x);
    y = schema_flatten(c, y);
    return x && y && schema_disjoint(c, x, y);
}
