#include "serve/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/grammar.h"
#include "serve/schema_internal.h"

/* Spaces only behind : and , and numbers of bounded length, so that an answer can't ramble. */
static const char PRELUDE[] =
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" (pair (comma pair)*)? \"}\"\n"
    "pair ::= string colon value\n"
    "array ::= \"[\" (value (comma value)*)? \"]\"\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "char ::= plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" code)\n"
    "plain ::= [^\"\\\\\\x00-\\x1f]\n"
    "code ::= [0-9a-cefA-CEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) fraction? ([eE] [-+]? [0-9]{1,2})?\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,17})\n"
    "fraction ::= \".\" [0-9]{1,16}\n"
    "colon ::= \":\" \" \"?\n"
    "comma ::= \",\" \" \"?\n";

static const struct {
    const char *name, *pattern;
} FORMATS[] = {
#define MONTHS                                                          \
    "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]" \
    "\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define LEAP "((\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define DATE "(\\d{4}-" MONTHS "|" LEAP ")"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[-+]([01]\\d|2[0-3]):[0-5]\\d)"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
};

/* ---- errors ---- */

int schema_fail(struct schemac *c, int code, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    if (c->rc) return c->rc;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct str where = buf_str(&c->where);
    size_t n = MIN(where.n, (size_t)120);
    return c->rc = err_set(c->err, code, "JSON schema, at #%.*s: %s", (int)n,
                           where.p ? where.p : "", text);
}

int schema_nomem(struct schemac *c)
{
    if (!c->rc) c->rc = err_nomem(c->err, "the schema");
    return c->rc;
}

static u32 rule_of(struct schemac *c, const json_t *s);

/* The rule of a schema that is found under a name. */
static u32 rule_at(struct schemac *c, const json_t *s, const char *name)
{
    size_t n = c->where.n;
    struct err_quoted safe = err_quote(str_of(name));
    buf_printf(&c->where, "/%.*s", (int)strlen(safe.text) - 2, safe.text + 1);
    u32 rule = rule_of(c, s);
    if (!c->where.failed) c->where.p[c->where.n = n] = 0;
    return rule;
}

/* ---- values ---- */

/* Numbers in the fewest digits that give them back. */
static char *write_json(const json_t *v)
{
    for (size_t digits = 15;; digits++) {
        char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        bool same = again && json_equal(again, v);
        json_decref(again);
        if (same || !text || digits == 17) return text;
        free(text);
    }
}

static void put_value(struct schemac *c, struct buf *b, const json_t *v)
{
    char *text = write_json(v);
    if (text)
        schema_put_text(b, str_of(text));
    else
        schema_nomem(c);
    free(text);
}

static void put_key(struct schemac *c, struct buf *b, const char *key)
{
    json_t *v = json_string(key);
    put_value(c, b, v);
    json_decref(v);
}

static void put_enum(struct schemac *c, struct buf *b, const json_t *s, const json_t *values)
{
    u32 types = schema_types(c, s);
    size_t i;
    json_t *v;
    bool any = false;
    if (types & SCHEMA_NUMBER) types |= SCHEMA_INTEGER;
    json_array_foreach((json_t *)values, i, v)
    {
        if (!(schema_type_of(v) & types)) continue;
        if (any) buf_puts(b, "| ");
        put_value(c, b, v);
        any = true;
    }
    if (!any) schema_fail(c, FLETCH_E_ARG, "no value is possible");
}

/* A count such as minItems; false after an error. */
static bool read_count(struct schemac *c, const json_t *s, const char *key, u32 *n)
{
    const json_t *v = json_object_get(s, key);
    if (!v) return true;
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (d < 0 || d != floor(d))
        schema_fail(c, FLETCH_E_ARG, "%s is not a count", key);
    else if (d > GRAMMAR_MAX_REPEAT)
        schema_fail(c, FLETCH_E_LIMIT, "%s is more than %d", key, GRAMMAR_MAX_REPEAT);
    else
        *n = (u32)d;
    return !c->rc;
}

static bool read_counts(struct schemac *c, const json_t *s, const char *min, const char *max,
                        u32 *lo, u32 *hi)
{
    *lo = 0;
    *hi = UINT32_MAX;
    if (!read_count(c, s, min, lo) || !read_count(c, s, max, hi)) return false;
    if (*lo > *hi) schema_fail(c, FLETCH_E_ARG, "%s is more than %s", min, max);
    return !c->rc;
}

static void put_times(struct buf *b, u32 lo, u32 hi)
{
    if (hi == UINT32_MAX)
        buf_printf(b, "{%u,} ", lo);
    else
        buf_printf(b, "{%u,%u} ", lo, hi);
}

static void put_string(struct schemac *c, struct buf *b, const json_t *s)
{
    const json_t *pattern = json_object_get(s, "pattern"), *format = json_object_get(s, "format");
    const char *text = json_string_value(pattern);
    bool counted = json_object_get(s, "minLength") || json_object_get(s, "maxLength");
    u32 lo, hi;
    if (!read_counts(c, s, "minLength", "maxLength", &lo, &hi)) return;
    if ((pattern != NULL) + (format != NULL) + counted > 1) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "only one of pattern, format and minLength/maxLength can be kept at once");
        return;
    }
    if (format) {
        const char *name = json_string_value(format);
        for (size_t i = 0; name && i < ARRAY_LEN(FORMATS); i++)
            if (strcmp(name, FORMATS[i].name) == 0) text = FORMATS[i].pattern;
        if (!text)
            schema_fail(c, FLETCH_E_UNSUPPORTED,
                        "format %s can't be kept (date, time, date-time and uuid can)",
                        name ? QUOTE(str_of(name)) : "without a name");
    } else if (pattern && !text) {
        schema_fail(c, FLETCH_E_ARG, "pattern is not a text");
    }
    if (c->rc) return;
    buf_puts(b, "\"\\\"\" ");
    if (text) {
        schema_put_pattern(c, b, str_of(text));
    } else {
        buf_puts(b, "char ");
        put_times(b, lo, hi);
    }
    buf_puts(b, "\"\\\"\" ");
}

/* ---- arrays ---- */

/* Rules NAME-i: the elements from the i-th on, each with the comma before it. */
static void put_array(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    const json_t *rest = json_object_get(s, "items"), *first = json_object_get(s, "prefixItems");
    u32 lo, hi, n_first = (u32)json_array_size(first);
    if (!read_counts(c, s, "minItems", "maxItems", &lo, &hi)) return;
    if ((first && !json_is_array(first)) || json_is_array(rest)) {
        schema_fail(c, FLETCH_E_UNSUPPORTED, "a list of schemas belongs into prefixItems");
        return;
    }
    if (json_is_false(rest)) hi = MIN(hi, n_first);
    if (lo > hi) {
        schema_fail(c, FLETCH_E_ARG, "minItems is more than there are items");
        return;
    }
    buf_printf(b, "\"[\" s%u-0 \"]\" ", name);
    for (u32 i = 0; i < MIN(n_first, hi) && !c->rc; i++) {
        u32 rule = rule_at(c, json_array_get(first, i), "prefixItems");
        buf_printf(&c->out, "s%u-%u ::= (%s s%u s%u-%u)%s\n", name, i, i ? "comma" : "", rule, name,
                   i + 1, i < lo ? "" : "?");
    }
    if (n_first >= hi) {
        buf_printf(&c->out, "s%u-%u ::= \"\"\n", name, hi);
        return;
    }
    u32 more_lo = lo > n_first ? lo - n_first : 0, more_hi = hi - (hi < UINT32_MAX ? n_first : 0);
    const char *element = "value";
    char rule[16];
    if (rest) {
        snprintf(rule, sizeof rule, "s%u", rule_at(c, rest, "items"));
        element = rule;
    }
    buf_printf(&c->out, "s%u-%u ::= ", name, n_first);
    if (n_first == 0) buf_printf(&c->out, "(%s ", element);
    buf_printf(&c->out, "(comma %s)", element);
    u32 one = n_first == 0; /* the first element has no comma */
    put_times(&c->out, more_lo > one ? more_lo - one : 0,
              more_hi == UINT32_MAX ? UINT32_MAX : more_hi - one);
    if (n_first == 0) buf_puts(&c->out, more_lo ? ")" : ")?");
    buf_putc(&c->out, '\n');
}

/* ---- objects ---- */

struct names {
    const char **p; /* sorted */
    size_t n;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t char_length(const char *s)
{
    size_t n = 1;
    while ((s[n] & 0xc0) == 0x80) n++;
    return n;
}

/* Rules NAME-kID: how a key that has `at` bytes in common with all of names goes on so that it is
 * none of them. Only characters that need no escape, so that there is one way to write a key. */
static void put_other_keys(struct schemac *c, u32 name, struct names names, size_t at, u32 *id)
{
    struct buf rule = {.max = GRAMMAR_MAX_TEXT}, except = {0};
    bool taken = false;
    buf_printf(&rule, "s%u-k%u ::= ", name, *id);
    for (size_t i = 0, end; i < names.n && !c->rc; i = end) {
        const char *key = names.p[i] + at;
        end = i + 1;
        if (!*key) {
            taken = true;
            continue;
        }
        size_t n = char_length(key);
        while (end < names.n && strncmp(names.p[end] + at, key, n) == 0) end++;
        if (n == 1)
            buf_printf(&except, "\\x%02x", (u8)key[0]);
        else
            buf_put(&except, key, n);
        schema_put_text(&rule, (struct str){key, n});
        ++*id;
        buf_printf(&rule, "s%u-k%u | ", name, *id);
        put_other_keys(c, name, (struct names){names.p + i, end - i}, at + n, id);
    }
    buf_printf(&rule, "[^\"\\\\\\x00-\\x1f%s] plain* %s\n", except.p ? except.p : "",
               taken ? "" : "| \"\"");
    buf_put(&c->out, rule.p ? rule.p : "", rule.n);
    if (rule.failed || except.failed) schema_nomem(c);
    buf_free(&rule);
    buf_free(&except);
}

static bool needs_escape(const char *key)
{
    for (; *key; key++)
        if ((u8)*key < 0x20 || *key == '"' || *key == '\\') return true;
    return false;
}

/* The rule of a member that is none of the named ones. */
static void put_other_member(struct schemac *c, const json_t *properties, const json_t *more,
                             u32 name)
{
    struct names names = {calloc(json_object_size(properties) + 1, sizeof *names.p), 0};
    const char *key;
    json_t *value;
    u32 id = 0;
    if (!names.p) {
        schema_nomem(c);
        return;
    }
    json_object_foreach((json_t *)properties, key, value)
    {
        if (strlen(key) > SCHEMA_MAX_NAME)
            schema_fail(c, FLETCH_E_LIMIT,
                        "a name of more than %d bytes beside additionalProperties",
                        SCHEMA_MAX_NAME);
        else if (!needs_escape(key))
            names.p[names.n++] = key;
    }
    qsort(names.p, names.n, sizeof *names.p, by_text);
    if (!c->rc) put_other_keys(c, name, names, 0, &id);
    free(names.p);
    u32 rule = c->rc ? 0 : rule_at(c, more, "additionalProperties");
    buf_printf(&c->out, "s%u-x ::= \"\\\"\" s%u-k0 \"\\\"\" colon s%u\n", name, name, rule);
}

/* All members that are named: properties, then those that are only required; *must gets a key for
 * each that is. */
static json_t *all_members(struct schemac *c, const json_t *s, const json_t *more, json_t *must)
{
    const json_t *properties = json_object_get(s, "properties");
    const json_t *required = json_object_get(s, "required");
    json_t *members = properties ? json_copy((json_t *)properties) : json_object(), *name;
    size_t i;
    if ((properties && !json_is_object(properties)) || (required && !json_is_array(required)))
        schema_fail(c, FLETCH_E_ARG, "properties is no object, or required no list");
    json_array_foreach((json_t *)required, i, name)
    {
        const char *key = json_string_value(name);
        if (!key || json_is_false(more)) key = key && json_object_get(members, key) ? key : NULL;
        if (!key)
            schema_fail(c, FLETCH_E_ARG, "required names what can't be there");
        else if (!json_object_get(members, key))
            json_object_set(members, key, more ? (json_t *)more : json_true());
        if (key) json_object_set(must, key, json_true());
    }
    if (json_object_size(members) > SCHEMA_MAX_RULES)
        schema_fail(c, FLETCH_E_LIMIT, "more than %d members", SCHEMA_MAX_RULES);
    return members;
}

/* Rules NAME-pI: the I-th member; NAME-mI: what may follow when members came before it; NAME-fI:
 * the same when none did. */
static void put_object(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    const json_t *more = json_object_get(s, "additionalProperties");
    const char *key;
    json_t *value, *required = json_object(), *members = all_members(c, s, more, required);
    bool open = more ? !json_is_false(more) : !json_object_get(s, "properties");
    u32 i = 0;
    buf_printf(b, "\"{\" s%u-f0 \"}\" ", name);
    json_object_foreach(members, key, value)
    {
        if (c->rc) break;
        struct buf pair = {0};
        put_key(c, &pair, key);
        u32 rule = rule_at(c, value, key);
        bool must = json_object_get(required, key) != NULL;
        buf_printf(&c->out, "s%u-p%u ::= %s colon s%u\n", name, i, pair.p ? pair.p : "", rule);
        buf_printf(&c->out, "s%u-m%u ::= (comma s%u-p%u)%s s%u-m%u\n", name, i, name, i,
                   must ? "" : "?", name, i + 1);
        buf_printf(&c->out, "s%u-f%u ::= s%u-p%u s%u-m%u", name, i, name, i, name, i + 1);
        if (!must) buf_printf(&c->out, " | s%u-f%u", name, i + 1);
        buf_putc(&c->out, '\n');
        buf_free(&pair);
        i++;
    }
    if (open && !c->rc) put_other_member(c, members, more ? more : json_true(), name);
    if (open)
        buf_printf(&c->out, "s%u-m%u ::= (comma s%u-x)*\ns%u-f%u ::= (s%u-x s%u-m%u)?\n", name, i,
                   name, name, i, name, name, i);
    else
        buf_printf(&c->out, "s%u-m%u ::= \"\"\ns%u-f%u ::= \"\"\n", name, i, name, i);
    json_decref(members);
    json_decref(required);
}

/* ---- schemas ---- */

/* Every keyword is known and has a type that it is about. */
static void check_keywords(struct schemac *c, const json_t *s)
{
    static const char *const known[] = {
        "type",       "enum",        "const",
        "anyOf",      "oneOf",       "properties",
        "required",   "items",       "minItems",
        "maxItems",   "pattern",     "additionalProperties",
        "minLength",  "minimum",     "maximum",
        "multipleOf", "format",      "exclusiveMinimum",
        "maxLength",  "prefixItems", "exclusiveMaximum",
    };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s, key, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(key, known[i]) != 0) i++;
        if (i == ARRAY_LEN(known) && !schema_is_annotation(key))
            schema_fail(c, FLETCH_E_UNSUPPORTED, "%s can't be kept", QUOTE(str_of(key)));
    }
}

/* anyOf or oneOf, each with what is said beside it. */
static void put_union(struct schemac *c, struct buf *b, const json_t *s, const char *key)
{
    const json_t *list = json_object_get(s, key);
    bool alone = schema_says_nothing(s, key);
    const json_t *rest = alone ? NULL : schema_without(c, s, key);
    size_t i, k;
    json_t *one, *other;
    if (!json_is_array(list) || !json_array_size(list))
        schema_fail(c, FLETCH_E_ARG, "%s is not a list of schemas", key);
    else if (json_array_size(list) > (key[0] == 'o' ? SCHEMA_MAX_DEPTH : SCHEMA_MAX_LIST))
        schema_fail(c, FLETCH_E_LIMIT, "%s has too many alternatives", key);
    json_array_foreach((json_t *)list, i, one)
    {
        json_array_foreach((json_t *)list, k, other)
        {
            if (c->rc || k <= i || key[0] != 'o' || schema_disjoint(c, one, other)) continue;
            schema_fail(c, FLETCH_E_UNSUPPORTED,
                        "oneOf can't be kept: one value might fit both %zu and %zu; use anyOf", i,
                        k);
        }
        if (c->rc) return;
        const json_t *part = alone ? one : schema_merge(c, schema_flatten(c, one), rest);
        u32 rule = part ? rule_at(c, part, key) : 0;
        buf_printf(b, i ? "| s%u " : "s%u ", rule);
    }
}

static void put_type(struct schemac *c, struct buf *b, const json_t *s, u32 type, u32 name)
{
    switch (type) {
    case SCHEMA_NULL: buf_puts(b, "\"null\" "); break;
    case SCHEMA_BOOLEAN: buf_puts(b, "( \"true\" | \"false\" ) "); break;
    case SCHEMA_INTEGER: schema_put_integer(c, b, s); break;
    case SCHEMA_NUMBER: schema_put_number(c, b, s); break;
    case SCHEMA_STRING: put_string(c, b, s); break;
    case SCHEMA_ARRAY: put_array(c, b, s, name); break;
    default: put_object(c, b, s, name); break;
    }
}

static void put_schema(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    const json_t *ref = json_object_get(s, "$ref");
    if (ref && schema_says_nothing(s, "$ref")) { /* the only kind that may go round in circles */
        const json_t *target = schema_resolve(c, ref);
        if (target) buf_printf(b, "s%u ", rule_of(c, target));
        return;
    }
    if (!(s = schema_flatten(c, s))) return;
    check_keywords(c, s);
    u32 types = c->rc ? 0 : schema_types(c, s), n = 0;
    const json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    const char *any = json_object_get(s, "anyOf")   ? "anyOf"
                      : json_object_get(s, "oneOf") ? "oneOf"
                                                    : NULL;
    if (c->rc) return;
    if (any) {
        put_union(c, b, s, any);
    } else if (one || list) {
        json_t *values = one ? json_pack("[O]", (json_t *)one) : json_incref((json_t *)list);
        put_enum(c, b, s, values);
        json_decref(values);
    } else if (types == SCHEMA_ANY) {
        buf_puts(b, "value ");
    }
    if (any || one || list || types == SCHEMA_ANY) return;
    if (types & SCHEMA_NUMBER) types &= ~(u32)SCHEMA_INTEGER;
    for (u32 type = 1; type <= SCHEMA_OBJECT; type <<= 1) {
        if (!(types & type)) continue;
        if (n++) buf_puts(b, "| ");
        put_type(c, b, s, type, name);
    }
}

static u32 rule_of(struct schemac *c, const json_t *s)
{
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    for (u32 i = 0; i < c->n_rules; i++)
        if (c->rules[i].schema == s && json_is_object(s)) return c->rules[i].rule;
    if (c->rc) return 0;
    if (c->n_rules == SCHEMA_MAX_RULES)
        return schema_fail(c, FLETCH_E_LIMIT, "more than %d schemas", SCHEMA_MAX_RULES), 0;
    if (c->depth == SCHEMA_MAX_DEPTH)
        return schema_fail(c, FLETCH_E_LIMIT, "nested deeper than %d", SCHEMA_MAX_DEPTH), 0;
    c->depth++;
    u32 rule = c->n_rules++;
    c->rules[rule] = (struct schema_rule){s, rule};
    put_schema(c, &b, s, rule);
    buf_printf(&c->out, "s%u ::= %s\n", rule, b.p ? b.p : "");
    if (b.failed || c->out.failed)
        schema_fail(c, FLETCH_E_LIMIT, "as a grammar it has more than %d bytes", GRAMMAR_MAX_TEXT);
    buf_free(&b);
    c->depth--;
    return rule;
}

int schema_to_grammar(struct buf *out, const json_t *schema, struct err *err)
{
    struct schemac c = {.root = schema,
                        .made = json_array(),
                        .out = {.max = GRAMMAR_MAX_TEXT},
                        .rules = calloc(SCHEMA_MAX_RULES, sizeof *c.rules),
                        .err = err};
    if (!c.made || !c.rules) schema_nomem(&c);
    if (!c.rc) rule_of(&c, schema);
    if (!c.rc) {
        buf_puts(out, "root ::= s0\n");
        buf_puts(out, PRELUDE);
        buf_put(out, c.out.p, c.out.n);
        if (out->failed) schema_nomem(&c);
    }
    json_decref(c.made);
    free(c.rules);
    buf_free(&c.out);
    buf_free(&c.where);
    return c.rc;
}
