/* What a schema forbids, as a schema: for `not`, `if` and overlapping alternatives of oneOf. The
 * result may forbid more than it must, never less, so it is made of schemas as they were written,
 * not of results. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_internal.h"

enum { MAX_NUMBERS = 64, N_TYPES = 7 };

static const char *const type_names[N_TYPES] = {"null",   "boolean", "integer", "number",
                                                "string", "array",   "object"};

struct opposite {
    struct schemac *c;
    json_t *any; /* alternatives: a value that fits one of them breaks the schema */
    bool named;  /* members that are not named may not come anyway */
    bool failed; /* some keyword has no opposite that can be said */
    bool lost;   /* numbers that are not whole, for which there is no keyword */
};

static json_t *opposite_of(struct schemac *c, const json_t *s, enum schema_extent extent,
                           bool named);

/* Takes the reference; false, as a schema, adds nothing. */
static void add(struct opposite *o, json_t *s)
{
    if (!s)
        o->failed = true;
    else if (json_is_false(s))
        json_decref(s);
    else
        json_array_append_new(o->any, s);
}

/* ---- types and values ---- */

static void add_types(struct opposite *o, u32 without)
{
    json_t *types = json_array();
    if (without & SCHEMA_NUMBER) without |= SCHEMA_INTEGER;
    if (without & SCHEMA_INTEGER) {
        o->lost |= !(without & SCHEMA_NUMBER);
        without |= SCHEMA_NUMBER;
    }
    for (u32 i = 0; i < N_TYPES; i++)
        if (!(without & 1u << i) && 1u << i != SCHEMA_INTEGER)
            json_array_append_new(types, json_string(type_names[i]));
    if (json_array_size(types))
        add(o, json_pack("{s:o}", "type", types));
    else
        json_decref(types);
}

static void put_literal(struct buf *b, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        u8 ch = (u8)text.p[i];
        if (ch < 0x20)
            buf_printf(b, "\\x%02x", ch);
        else if (strchr("^$\\.*+?()[]{}|/-", ch))
            buf_printf(b, "\\%c", ch);
        else
            buf_putc(b, (char)ch);
    }
}

static void add_strings(struct opposite *o, const json_t *values)
{
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    size_t i;
    json_t *v;
    bool any = false;
    buf_puts(&b, "^(?!(?:");
    json_array_foreach((json_t *)values, i, v)
    {
        if (!json_is_string(v)) continue;
        if (any) buf_putc(&b, '|');
        put_literal(&b, (struct str){json_string_value(v), json_string_length(v)});
        any = true;
    }
    buf_puts(&b, ")$)");
    if (any && !b.failed) add(o, json_pack("{s:s, s:s}", "type", "string", "pattern", b.p));
    o->failed |= b.failed;
    buf_free(&b);
}

static int by_value(const void *a, const void *b)
{
    return schema_compare(*(json_t *const *)a, *(json_t *const *)b);
}

/* The numbers between those listed. */
static void add_numbers(struct opposite *o, const json_t *values)
{
    json_t *numbers[MAX_NUMBERS], *v;
    size_t i, n = 0;
    json_array_foreach((json_t *)values, i, v)
    {
        if (!json_is_number(v)) continue;
        if (n == MAX_NUMBERS) {
            o->failed = true;
            return;
        }
        numbers[n++] = v;
    }
    if (n) qsort(numbers, n, sizeof *numbers, by_value);
    for (i = 0; n && i <= n; i++) {
        json_t *between = json_pack("{s:s}", "type", "number");
        if (i > 0) json_object_set(between, "exclusiveMinimum", numbers[i - 1]);
        if (i < n) json_object_set(between, "exclusiveMaximum", numbers[i]);
        add(o, between);
    }
}

/* Values other than these; of arrays and objects only where the empty one is listed. */
static void add_other_values(struct opposite *o, const json_t *values)
{
    u32 types = 0;
    size_t i;
    json_t *v;
    bool yes = false, no = false, arrays = false, objects = false;
    json_array_foreach((json_t *)values, i, v)
    {
        types |= schema_type_of(v);
        yes |= json_is_true(v);
        no |= json_is_false(v);
        arrays |= json_array_size(v) > 0;
        objects |= json_object_size(v) > 0;
    }
    add_types(o, types);
    add_strings(o, values);
    add_numbers(o, values);
    if (yes != no) add(o, json_pack("{s:b}", "const", no));
    if (types & SCHEMA_ARRAY && !arrays)
        add(o, json_pack("{s:s, s:i}", "type", "array", "minItems", 1));
    if (types & SCHEMA_OBJECT && !objects)
        add(o, json_pack("{s:s, s:i}", "type", "object", "minProperties", 1));
    o->failed |= arrays || objects;
}

/* ---- keywords ---- */

/* Bounds: each with the type and the bound that begins where it ends. */
static bool add_bound(struct opposite *o, const char *key, const json_t *value)
{
    static const struct {
        const char *key, *opposite, *type;
        int more; /* added to the bound */
    } bounds[] = {
        {"exclusiveMaximum", "minimum", "number", 0},
        {"exclusiveMinimum", "maximum", "number", 0},
        {"maximum", "exclusiveMinimum", "number", 0},
        {"minimum", "exclusiveMaximum", "number", 0},
        {"maxItems", "minItems", "array", 1},
        {"minItems", "maxItems", "array", -1},
        {"maxLength", "minLength", "string", 1},
        {"minLength", "maxLength", "string", -1},
        {"maxProperties", "minProperties", "object", 1},
        {"minProperties", "maxProperties", "object", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        if (strcmp(key, bounds[i].key) != 0) continue;
        double n = json_number_value(value);
        if (!json_is_number(value) || (bounds[i].more && n > (double)GRAMMAR_MAX_REPEAT))
            o->failed = true; /* true, of draft 4, depends on another keyword */
        else if (!bounds[i].more)
            add(o, json_pack("{s:s, s:O}", "type", bounds[i].type, bounds[i].opposite, value));
        else if (n + bounds[i].more >= 0)
            add(o, json_pack("{s:s, s:I}", "type", bounds[i].type, bounds[i].opposite,
                             (json_int_t)n + bounds[i].more));
        return true;
    }
    return false;
}

static void add_member(struct opposite *o, const char *key, json_t *s, bool required)
{
    if (!s || json_is_false(s)) {
        o->failed |= !s;
        if (required) {
            json_decref(s);
            return;
        }
    }
    json_t *it = json_pack("{s:s, s:{s:o}}", "type", "object", "properties", key, s);
    if (it && required) json_object_set_new(it, "required", json_pack("[s]", key));
    if (it && !o->named) json_object_set_new(it, "additionalProperties", json_true());
    add(o, it);
}

static void add_object(struct opposite *o, const json_t *s, enum schema_extent extent)
{
    const char *key;
    json_t *value;
    size_t i;
    json_array_foreach(json_object_get(s, "required"), i, value)
    {
        if (json_is_string(value)) add_member(o, json_string_value(value), json_false(), false);
    }
    json_object_foreach(json_object_get(s, "properties"), key, value)
    {
        add_member(o, key, opposite_of(o->c, value, extent, false), true);
    }
    const json_t *more = json_object_get(s, "additionalProperties");
    o->failed |=
        more && !json_is_true(more) && !(json_is_object(more) && schema_says_nothing(more, NULL));
}

/* Values that break all parts of a list; NULL: they can't be said. */
static json_t *break_all(struct opposite *o, const json_t *list, enum schema_extent extent)
{
    json_t *all = json_array(), *part;
    size_t i;
    bool never = false, failed = false;
    json_array_foreach((json_t *)list, i, part)
    {
        json_t *its = opposite_of(o->c, part, extent, o->named);
        failed |= !its;
        never |= json_is_false(its);
        if (its) json_array_append_new(all, its);
    }
    if (failed || never || !json_array_size(all)) {
        json_decref(all);
        return failed ? NULL : json_false();
    }
    return json_pack("{s:o}", "allOf", all);
}

static void add_if(struct opposite *o, const json_t *s, enum schema_extent extent)
{
    const json_t *when = json_object_get(s, "if"), *then = json_object_get(s, "then");
    const json_t *other = json_object_get(s, "else");
    json_t *broken = then ? opposite_of(o->c, then, extent, o->named) : json_false();
    add(o,
        json_is_false(broken) || !broken ? broken : json_pack("{s:[O, o]}", "allOf", when, broken));
    broken = other ? opposite_of(o->c, other, extent, o->named) : json_false();
    json_t *unless = other ? opposite_of(o->c, when, extent, o->named) : NULL;
    if (!broken || json_is_false(broken) || !unless) {
        add(o, broken && (json_is_false(broken) || unless) ? json_incref(broken) : NULL);
        json_decref(broken);
        json_decref(unless);
        return;
    }
    add(o, json_pack("{s:[o, o]}", "allOf", unless, broken));
}

/* Choices and references. False: it is none of them. */
static bool add_choice(struct opposite *o, const json_t *s, const char *key, const json_t *value,
                       enum schema_extent extent)
{
    size_t i;
    json_t *part;
    if (strcmp(key, "$ref") == 0) {
        const json_t *target = schema_resolve(o->c, value);
        add(o, target ? opposite_of(o->c, target, extent, o->named) : NULL);
    } else if (strcmp(key, "allOf") == 0) {
        json_array_foreach((json_t *)value, i, part)
            add(o, opposite_of(o->c, part, extent, o->named));
    } else if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) {
        add(o, break_all(o, value, extent));
    } else if (strcmp(key, "not") == 0) {
        add(o, json_incref((json_t *)value));
    } else if (strcmp(key, "if") == 0) {
        add_if(o, s, extent);
    } else {
        return false;
    }
    return true;
}

static void add_keyword(struct opposite *o, const json_t *s, const char *key, const json_t *value,
                        enum schema_extent extent)
{
    if (strcmp(key, "type") == 0) {
        u32 types = schema_types(o->c, s);
        if (types) add_types(o, types);
    } else if (strcmp(key, "const") == 0) {
        json_t *list = json_pack("[O]", value);
        add_other_values(o, list);
        json_decref(list);
    } else if (strcmp(key, "enum") == 0) {
        add_other_values(o, value);
    } else if (strcmp(key, "pattern") == 0) {
        struct buf b = {.max = GRAMMAR_MAX_TEXT};
        buf_printf(&b, "^(?![^]*(?:%s))", json_string_value(value));
        add(o, b.failed ? NULL : json_pack("{s:s, s:s}", "type", "string", "pattern", b.p));
        buf_free(&b);
    } else if (strcmp(key, "required") == 0 || strcmp(key, "properties") == 0 ||
               strcmp(key, "additionalProperties") == 0) {
        bool first = strcmp(key, "required") == 0 || !json_object_get(s, "required");
        if (strcmp(key, "additionalProperties") == 0) first &= !json_object_get(s, "properties");
        if (first) add_object(o, s, extent);
    } else if (strcmp(key, "then") != 0 && strcmp(key, "else") != 0 && !add_bound(o, key, value) &&
               !add_choice(o, s, key, value, extent)) {
        o->failed = true;
    }
}

static json_t *opposite_of(struct schemac *c, const json_t *s, enum schema_extent extent,
                           bool named)
{
    struct opposite o = {.c = c, .any = json_array(), .named = named};
    const char *key;
    json_t *value, *made;
    if (!o.any || json_is_boolean(s) || c->rc || c->depth >= SCHEMA_MAX_DEPTH ||
        !schema_check_shapes(c, s)) {
        json_decref(o.any);
        return json_is_boolean(s) ? json_boolean(json_is_false(s)) : NULL;
    }
    c->depth++;
    json_object_foreach((json_t *)s, key, value)
    {
        if (schema_work(c, 1) && !schema_is_annotation(key)) add_keyword(&o, s, key, value, extent);
    }
    c->depth--;
    size_t n = json_array_size(o.any);
    /* another type alone is little: what asks for less than all has that type itself */
    bool little = n <= (json_object_get(s, "type") ? 1 : 0);
    if (c->rc || (extent == SCHEMA_WHOLLY ? o.failed : (o.failed || o.lost) && little)) {
        json_decref(o.any);
        return NULL;
    }
    made = n == 1 ? json_incref(json_array_get(o.any, 0))
           : n    ? json_pack("{s:O}", "anyOf", o.any)
                  : json_false();
    json_decref(o.any);
    return made;
}

json_t *schema_opposite(struct schemac *c, const json_t *s, enum schema_extent extent, bool named)
{
    return json_is_object(s) || json_is_boolean(s) ? opposite_of(c, s, extent, named) : NULL;
}
