#include "serve/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/grammar.h"
#include "serve/schema_internal.h"

/* Spaces only behind : and , and numbers of bounded length, so that an answer can't ramble. */
const char schema_prelude[] =
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
    if (!where.n) return c->rc = err_set(c->err, code, "schema: %s at the top level", text);
    return c->rc = err_set(c->err, code, "schema: %s at #%.*s", text,
                           (int)MIN(where.n, (size_t)120), where.p);
}

int schema_nomem(struct schemac *c)
{
    if (!c->rc) c->rc = err_nomem(c->err, "the schema");
    return c->rc;
}

bool schema_work(struct schemac *c, u64 n)
{
    c->work += n;
    if (c->work > SCHEMA_MAX_WORK)
        schema_fail(c, FLETCH_E_LIMIT, "too many values and references to try");
    return !c->rc;
}

size_t schema_enter(struct schemac *c, const char *keyword, const char *name)
{
    size_t n = c->where.n;
    if (keyword) buf_printf(&c->where, "/%s", keyword);
    if (name) {
        struct err_quoted safe = err_quote(str_of(name));
        buf_putc(&c->where, '/');
        for (size_t i = 1; safe.text[i] && safe.text[i + 1]; i++) {
            if (safe.text[i] == '/' || safe.text[i] == '~')
                buf_puts(&c->where, safe.text[i] == '/' ? "~1" : "~0");
            else
                buf_putc(&c->where, safe.text[i]);
        }
    }
    return n;
}

void schema_leave(struct schemac *c, size_t place)
{
    if (c->where.p && !c->where.failed) c->where.p[c->where.n = place] = 0;
}

enum { MAX_ANY_ORDER = 6 }; /* different values of an array that may come in any order */

static u32 rule_of(struct schemac *c, const json_t *s);

/* The rule of a schema that is found under a keyword, and a name or an index there. */
static u32 rule_at(struct schemac *c, const json_t *s, const char *keyword, const char *name)
{
    size_t place = schema_enter(c, keyword, name);
    u32 rule = rule_of(c, s);
    schema_leave(c, place);
    return rule;
}

u32 schema_inner_rule(struct schemac *c, const json_t *s, const char *keyword, const char *name)
{
    c->level++;
    u32 rule = rule_at(c, s, keyword, name);
    c->level--;
    return rule;
}

static const char *index_text(size_t i, char text[24])
{
    snprintf(text, 24, "%zu", i);
    return text;
}

/* ---- values ---- */

/* Longer whole numbers than the reader of JSON keeps were rounded. */
static bool has_rounded_numbers(const json_t *v)
{
    const char *key;
    size_t i;
    json_t *part;
    double d = json_real_value(v);
    if (json_is_real(v)) return d == floor(d) && fabs(d) >= 1e18;
    json_object_foreach((json_t *)v, key, part)
    {
        if (has_rounded_numbers(part)) return true;
    }
    json_array_foreach((json_t *)v, i, part)
    {
        if (has_rounded_numbers(part)) return true;
    }
    return false;
}

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
    if (has_rounded_numbers(v)) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "a number of more than 18 digits in enum or const "
                    "is not supported");
        return;
    }
    char *text = write_json(v);
    if (text)
        schema_put_text(b, str_of(text));
    else
        schema_nomem(c);
    free(text);
}

void schema_put_name(struct schemac *c, struct buf *b, const char *key)
{
    json_t *v = json_string(key);
    put_value(c, b, v);
    json_decref(v);
}

/* Of a list of values those that fit the whole schema. */
static void put_values(struct schemac *c, struct buf *b, const json_t *s, json_t *values)
{
    size_t i;
    json_t *v;
    bool any = false;
    if (!json_object_get(s, "const")) c->candidates = json_object_get(s, "enum");
    json_array_foreach(values, i, v)
    {
        c->candidate = v;
        if (c->rc || !schema_fits(c, v, s)) continue;
        if (any) buf_puts(b, "| ");
        put_value(c, b, v);
        any = true;
    }
    c->candidates = c->candidate = NULL;
    if (!any) buf_puts(b, "[] ");
}

bool schema_read_counts(struct schemac *c, const json_t *s, const char *min, const char *max,
                        u32 *lo, u32 *hi)
{
    const json_t *least = json_object_get(s, min), *most = json_object_get(s, max);
    *lo = 0;
    *hi = UINT32_MAX;
    if (least && json_number_value(least) > (double)GRAMMAR_MAX_REPEAT)
        schema_fail(c, FLETCH_E_LIMIT, "%s is more than %d", min, GRAMMAR_MAX_REPEAT);
    else if (least)
        *lo = (u32)json_number_value(least);
    if (most) *hi = (u32)MIN(json_number_value(most), (double)GRAMMAR_MAX_REPEAT);
    return !c->rc;
}

void schema_put_times(struct buf *b, u32 lo, u32 hi)
{
    if (hi == UINT32_MAX)
        buf_printf(b, "{%u,} ", lo);
    else
        buf_printf(b, "{%u,%u} ", lo, hi);
}

/* ---- parts that schemas share ---- */

bool schema_find_part(struct schemac *c, const char *kind, const json_t *s, const char *const *keys,
                      size_t n, u32 *number)
{
    json_t *said = json_pack("{s:s}", "", kind);
    for (size_t i = 0; i < n; i++) json_object_set(said, keys[i], json_object_get(s, keys[i]));
    char *key = said ? json_dumps(said, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const json_t *known = key ? json_object_get(c->parts, key) : NULL;
    *number = known ? (u32)json_integer_value(known) : (u32)json_object_size(c->parts);
    if (!key || (!known && json_object_set_new(c->parts, key, json_integer(*number))))
        schema_nomem(c);
    json_decref(said);
    free(key);
    return known != NULL;
}

u32 schema_new_part(struct schemac *c)
{
    char key[24];
    u32 number = (u32)json_object_size(c->parts);
    snprintf(key, sizeof key, "#%u", number);
    if (json_object_set_new(c->parts, key, json_integer(number))) schema_nomem(c);
    return number;
}

void schema_put_part(struct schemac *c, const struct buf *rule, u32 number)
{
    if (rule->failed) schema_fail(c, FLETCH_E_LIMIT, "a part of the grammar is too large");
    buf_printf(&c->out, "p%u ::= %s\n", number, rule->p && !rule->failed ? rule->p : "");
}

/* ---- arrays ---- */

/* All values that fit, where they are few; NULL: they are not. A new reference. */
static json_t *find_few(struct schemac *c, const json_t *s)
{
    json_t *few = json_array(), *values, *v, *seen = json_object();
    size_t i;
    bool known = json_is_object(s) && schema_check_shapes(c, s);
    if (known && !(values = schema_values(c, s))) {
        const json_t *flat = schema_flatten(c, s), *type = json_object_get(flat, "type");
        const char *name = json_string_value(type);
        values = name && strcmp(name, "boolean") == 0 ? json_pack("[b, b]", 0, 1) : NULL;
        known = values != NULL;
        s = flat;
    }
    if (known && json_array_size(values) <= SCHEMA_MAX_LIST) {
        json_array_foreach(values, i, v)
        {
            char *key = c->rc ? NULL : schema_value_key(v);
            bool first = key && !json_object_get(seen, key);
            if (first && schema_fits(c, v, s)) json_array_append(few, v);
            if (first) json_object_set_new(seen, key, json_true());
            free(key);
        }
        json_decref(values);
    } else {
        if (known) json_decref(values);
        json_decref(few);
        few = NULL;
    }
    json_decref(seen);
    return few;
}

/* Rules NAME-uSET: what may follow when the values of a set are there. */
static void put_any_order(struct schemac *c, u32 n, u32 lo, u32 hi, u32 name)
{
    for (u32 set = 0; set < 1u << n; set++) {
        u32 count = 0;
        bool any = false;
        for (u32 i = 0; i < n; i++) count += set >> i & 1;
        if (count > hi) continue;
        buf_printf(&c->out, "s%u-u%u ::= %s", name, set, count >= lo ? "\"\" " : "");
        any = count >= lo;
        for (u32 i = 0; i < n && count < hi; i++) {
            if (set >> i & 1) continue;
            buf_printf(&c->out, "%s%ss%u-p%u s%u-u%u ", any ? "| " : "", count ? "comma " : "",
                       name, i, name, set | 1u << i);
            any = true;
        }
        buf_puts(&c->out, any ? "\n" : "[]\n");
    }
}

/* Different values, out of few: in any order, or in that of the list where it is longer. */
static void put_unique(struct schemac *c, struct buf *b, const json_t *s, u32 name, u32 lo, u32 hi)
{
    const json_t *items = json_object_get(s, "items");
    json_t *few = json_object_get(s, "prefixItems") ? NULL : find_few(c, items), *v;
    size_t i;
    u32 n = (u32)json_array_size(few);
    if (!few)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'uniqueItems' is supported only for items that are listed (enum, const, "
                    "boolean); list them, set maxItems to 1, or leave it out");
    json_array_foreach(few, i, v)
    {
        struct buf text = {0};
        put_value(c, &text, v);
        buf_printf(&c->out, "s%u-p%zu ::= %s\n", name, i, text.p ? text.p : "");
        buf_free(&text);
    }
    bool in_any_order = n <= MAX_ANY_ORDER;
    struct schema_row row = {.name = name, .n = n, .lo = lo, .hi = hi < n ? hi : UINT32_MAX};
    buf_printf(b, in_any_order ? "\"[\" s%u-u0 \"]\" " : "\"[\" s%u-m0-0 \"]\" ", name);
    if (!c->rc && in_any_order) put_any_order(c, n, lo, hi, name);
    if (!c->rc && !in_any_order) schema_put_row(c, &row);
    json_decref(few);
}

/* Rules NAME-i: the elements from the i-th on, each with the comma before it. */
static void put_array(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    const json_t *rest = json_object_get(s, "items"), *first = json_object_get(s, "prefixItems");
    u32 lo, hi, n_first = (u32)json_array_size(first);
    char text[24], rule[16];
    if (!schema_read_counts(c, s, "minItems", "maxItems", &lo, &hi)) return;
    if (json_is_false(rest)) hi = MIN(hi, n_first);
    if (lo > hi) {
        buf_puts(b, "[] ");
        return;
    }
    if (json_is_true(json_object_get(s, "uniqueItems")) && hi > 1) {
        put_unique(c, b, s, name, lo, hi);
        return;
    }
    buf_printf(b, "\"[\" s%u-0 \"]\" ", name);
    for (u32 i = 0; i < MIN(n_first, hi) && !c->rc; i++) {
        u32 its =
            schema_inner_rule(c, json_array_get(first, i), "prefixItems", index_text(i, text));
        buf_printf(&c->out, "s%u-%u ::= (%s s%u s%u-%u)%s\n", name, i, i ? "comma" : "", its, name,
                   i + 1, i < lo ? "" : "?");
    }
    if (n_first >= hi) {
        buf_printf(&c->out, "s%u-%u ::= \"\"\n", name, hi);
        return;
    }
    u32 more_lo = lo > n_first ? lo - n_first : 0, more_hi = hi - (hi < UINT32_MAX ? n_first : 0);
    const char *element = "value";
    if (rest) {
        snprintf(rule, sizeof rule, "s%u", schema_inner_rule(c, rest, "items", NULL));
        element = rule;
    }
    buf_printf(&c->out, "s%u-%u ::= ", name, n_first);
    if (n_first == 0) buf_printf(&c->out, "(%s ", element);
    buf_printf(&c->out, "(comma %s)", element);
    u32 one = n_first == 0; /* the first element has no comma */
    schema_put_times(&c->out, more_lo > one ? more_lo - one : 0,
                     more_hi == UINT32_MAX ? UINT32_MAX : more_hi - one);
    if (n_first == 0) buf_puts(&c->out, more_lo ? ")" : ")?");
    buf_putc(&c->out, '\n');
}

/* ---- schemas ---- */

/* The schema without a keyword, and all of another one. Borrowed. */
static const json_t *with_part(struct schemac *c, const json_t *rest, const json_t *part)
{
    return rest ? schema_keep(c, schema_both(rest, part)) : part;
}

static void put_any(struct schemac *c, struct buf *b, const json_t *s)
{
    const json_t *list = json_object_get(s, "anyOf");
    const json_t *rest = schema_says_nothing(s, "anyOf") ? NULL : schema_without(c, s, "anyOf");
    char text[24];
    size_t i;
    json_t *one;
    if (json_array_size(list) > SCHEMA_MAX_ANY)
        schema_fail(c, FLETCH_E_LIMIT, "anyOf has more than %d schemas", SCHEMA_MAX_ANY);
    json_array_foreach((json_t *)list, i, one)
    {
        const json_t *part = c->rc ? NULL : with_part(c, rest, one);
        if (!part) return;
        buf_printf(b, i ? "| s%u " : "s%u ", rule_at(c, part, "anyOf", index_text(i, text)));
    }
}

/* Lists of values: those that are in one only, and fit. False: they are no such lists. */
static bool put_one_of_values(struct schemac *c, struct buf *b, const json_t *s)
{
    const json_t *list = json_object_get(s, "oneOf"), *rest = schema_without(c, s, "oneOf");
    size_t n = json_array_size(list), i, k;
    json_t **values = calloc(n + 1, sizeof *values), *times = json_object(), *v;
    bool all = values && times && rest, any = false;
    if (!all) schema_nomem(c);
    for (i = 0; all && i < n; i++) all = (values[i] = schema_values(c, json_array_get(list, i)));
    for (int pass = 0; all && pass < 2; pass++) {
        for (i = 0; i < n; i++) {
            json_array_foreach(values[i], k, v)
            {
                char *key = c->rc ? NULL : schema_value_key(v);
                const json_t *met = key ? json_object_get(times, key) : NULL;
                if (!pass && key) /* where it was met, or false */
                    json_object_set_new(times, key,
                                        !met || json_integer_value(met) == (json_int_t)i
                                            ? json_integer((json_int_t)i)
                                            : json_false());
                free(key);
                if (!pass || !json_is_integer(met)) continue;
                if (!schema_fits(c, v, json_array_get(list, i)) || !schema_fits(c, v, rest))
                    continue;
                if (any) buf_puts(b, "| ");
                put_value(c, b, v);
                any = true;
            }
        }
    }
    for (i = 0; values && i < n; i++) json_decref(values[i]);
    free(values);
    json_decref(times);
    if (all && !any) buf_puts(b, "[] ");
    return all;
}

/* Alternatives of oneOf, flattened, and the list they are from. */
struct parts {
    const json_t **p;
    size_t n;
    const json_t *list;
};

/* Does no value that is generated of part i fit part k? */
static bool is_apart(struct schemac *c, const struct parts *parts, size_t i, size_t k)
{
    return schema_disjoint(c, parts->p[i], parts->p[k]) ||
           schema_lacks_member(c, parts->p[i], parts->p[k]);
}

static bool are_apart(struct schemac *c, const struct parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        for (size_t k = 0; k < parts->n; k++)
            if (i != k && (c->rc || !is_apart(c, parts, i, k))) return false;
    return true;
}

/* A property whose values tell all parts apart, and that some of them do not require, as models
 * with a default do: all must have it. */
static bool require_tag(struct schemac *c, struct parts *parts)
{
    const char *key, *found = NULL;
    json_t *value;
    json_object_foreach(json_object_get(parts->p[0], "properties"), key, value)
    {
        bool good = !found;
        for (size_t i = 0; i < parts->n && good; i++)
            for (size_t k = i + 1; k < parts->n && good; k++)
                good = schema_told_apart_by(c, parts->p[i], parts->p[k], key);
        if (good) found = key;
    }
    for (size_t i = 0; found && i < parts->n; i++) {
        json_t *must = json_pack("{s:[s]}", "required", found);
        const json_t *part = schema_keep(c, schema_both(parts->p[i], must));
        json_decref(must);
        parts->p[i] = part ? schema_flatten(c, part) : NULL;
    }
    return found && !c->rc;
}

/* Leaves out of each part what another one, as it was written, allows. */
static void exclude_others(struct schemac *c, const struct parts *all, struct parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        bool named = json_object_get(parts->p[i], "properties") != NULL;
        for (size_t k = 0; k < parts->n && !c->rc; k++) {
            if (i == k || is_apart(c, all, i, k)) continue;
            json_t *rest = schema_opposite(c, json_array_get(parts->list, k), SCHEMA_PARTLY, named);
            if (!rest) {
                schema_fail(c, FLETCH_E_UNSUPPORTED,
                            "oneOf (unlike anyOf) is not supported if a value might match both "
                            "schema %zu and schema %zu",
                            MIN(i, k), MAX(i, k));
                return;
            }
            const json_t *part = schema_keep(c, schema_both(parts->p[i], rest));
            json_decref(rest);
            parts->p[i] = part ? schema_flatten(c, part) : NULL;
        }
    }
}

static void put_one_of(struct schemac *c, struct buf *b, const json_t *s)
{
    struct parts parts = {.list = json_object_get(s, "oneOf")};
    const json_t *rest = schema_says_nothing(s, "oneOf") ? NULL : schema_without(c, s, "oneOf");
    char text[24];
    if (put_one_of_values(c, b, s) || c->rc) return;
    parts.n = json_array_size(parts.list);
    if (parts.n > SCHEMA_MAX_LIST) {
        schema_fail(c, FLETCH_E_LIMIT, "oneOf has more than %d schemas", SCHEMA_MAX_LIST);
        return;
    }
    parts.p = calloc(parts.n + 1, sizeof *parts.p);
    if (!parts.p) schema_nomem(c);
    for (size_t i = 0; i < parts.n && !c->rc; i++) {
        size_t place = schema_enter(c, "oneOf", index_text(i, text));
        const json_t *part = with_part(c, rest, json_array_get(parts.list, i));
        if (part) parts.p[i] = schema_flatten(c, part);
        schema_leave(c, place);
    }
    if (!c->rc && !are_apart(c, &parts) && !require_tag(c, &parts)) {
        struct parts all = parts;
        all.p = calloc(parts.n + 1, sizeof *all.p);
        if (all.p) memcpy(all.p, parts.p, parts.n * sizeof *all.p);
        if (all.p)
            exclude_others(c, &all, &parts);
        else
            schema_nomem(c);
        free(all.p);
    }
    for (size_t i = 0; i < parts.n && !c->rc; i++)
        buf_printf(b, i ? "| s%u " : "s%u ", rule_at(c, parts.p[i], "oneOf", index_text(i, text)));
    free(parts.p);
}

static void put_type(struct schemac *c, struct buf *b, const json_t *s, u32 type, u32 name)
{
    switch (type) {
    case SCHEMA_NULL: buf_puts(b, "\"null\" "); break;
    case SCHEMA_BOOLEAN: buf_puts(b, "( \"true\" | \"false\" ) "); break;
    case SCHEMA_INTEGER:
    case SCHEMA_NUMBER: schema_put_number(c, b, s, type); break;
    case SCHEMA_STRING: schema_put_string(c, b, s); break;
    case SCHEMA_ARRAY: put_array(c, b, s, name); break;
    default: schema_put_object(c, b, s, name); break;
    }
}

static void put_types(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    u32 types = schema_types(c, s), n = 0;
    if (c->rc) return;
    if (types & SCHEMA_NUMBER) types &= ~(u32)SCHEMA_INTEGER;
    if (types == (SCHEMA_ANY & ~(u32)SCHEMA_INTEGER) && !schema_is_about(s, SCHEMA_ANY)) {
        buf_puts(b, "value ");
        return;
    }
    if (!types) buf_puts(b, "[] ");
    for (u32 type = 1; type <= SCHEMA_OBJECT; type <<= 1) {
        if (!(types & type)) continue;
        if (n++) buf_puts(b, "| ");
        put_type(c, b, s, type, name);
    }
}

static void put_schema(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    const json_t *ref = json_object_get(s, "$ref");
    if (json_is_object(s) && !schema_check_shapes(c, s)) return;
    if (ref && schema_says_nothing(s, "$ref")) { /* the only kind that may go round in circles */
        const json_t *target = schema_resolve(c, ref);
        if (target) buf_printf(b, "s%u ", rule_of(c, target));
        return;
    }
    json_t *values = schema_values(c, s);
    if (values) { /* few enough to be tried one by one, whatever else is said */
        put_values(c, b, s, values);
        json_decref(values);
        return;
    }
    if (c->rc || !(s = schema_flatten(c, s))) return;
    schema_check_keywords(c, s);
    if (c->rc) return;
    if (json_object_get(s, "enum") || json_object_get(s, "const"))
        buf_puts(b, "[] "); /* made of false */
    else if (json_object_get(s, "oneOf"))
        put_one_of(c, b, s);
    else if (json_object_get(s, "anyOf"))
        put_any(c, b, s);
    else
        put_types(c, b, s, name);
}

/* The rule that has this schema; false: there is none yet. */
static bool find_rule(struct schemac *c, const char *key, u32 *rule)
{
    if (!strmap_get(&c->known, str_of(key), rule)) return false;
    if (c->rules[*rule].open && c->rules[*rule].level == c->level)
        schema_fail(c, FLETCH_E_ARG, "$ref leads back to itself");
    return true;
}

static u32 rule_of(struct schemac *c, const json_t *s)
{
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    char *key = c->rc ? NULL : json_dumps(s, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    u32 rule = 0;
    if (!key) {
        if (!c->rc) schema_nomem(c);
        return 0;
    }
    if (find_rule(c, key, &rule)) return free(key), rule;
    if (c->n_rules == SCHEMA_MAX_RULES)
        schema_fail(c, FLETCH_E_LIMIT, "more than %d schemas are not supported", SCHEMA_MAX_RULES);
    else if (c->depth == SCHEMA_MAX_DEPTH)
        schema_fail(c, FLETCH_E_LIMIT, "nested deeper than %d levels", SCHEMA_MAX_DEPTH);
    if (c->rc) return free(key), 0;
    c->depth++;
    rule = c->n_rules++;
    c->rules[rule] = (struct schema_rule){key, c->level, true};
    if (!strmap_add(&c->known, str_of(key), rule)) schema_nomem(c);
    put_schema(c, &b, s, rule);
    c->rules[rule].open = false;
    buf_printf(&c->out, "s%u ::= %s\n", rule, b.p ? b.p : "");
    if (b.failed || c->out.failed)
        schema_fail(c, FLETCH_E_LIMIT, "the schema's grammar has more than %d bytes",
                    GRAMMAR_MAX_TEXT);
    buf_free(&b);
    c->depth--;
    return rule;
}

/* Names are compared as texts that end with NUL, so none may hold one. */
static void check_names(struct schemac *c, const json_t *s)
{
    void *at = json_object_iter((json_t *)s);
    size_t i;
    json_t *v;
    for (; at && !c->rc; at = json_object_iter_next((json_t *)s, at)) {
        struct str name = {json_object_iter_key(at), json_object_iter_key_len(at)};
        if (memchr(name.p, 0, name.n))
            schema_fail(c, FLETCH_E_UNSUPPORTED, "name %s contains NUL, which is not supported",
                        QUOTE(name));
        check_names(c, json_object_iter_value(at));
    }
    json_array_foreach((json_t *)s, i, v) check_names(c, v);
}

int schema_to_grammar(struct buf *out, const json_t *schema, struct err *err)
{
    struct schemac c = {.root = schema,
                        .made = json_array(),
                        .parts = json_object(),
                        .out = {.max = GRAMMAR_MAX_TEXT},
                        .rules = calloc(SCHEMA_MAX_RULES, sizeof *c.rules),
                        .err = err};
    if (!c.made || !c.parts || !c.rules) schema_nomem(&c);
    check_names(&c, schema);
    if (!c.rc) rule_of(&c, schema);
    if (!c.rc) {
        buf_puts(out, "root ::= s0\n");
        buf_puts(out, schema_prelude);
        buf_put(out, c.out.p, c.out.n);
        if (out->failed) schema_nomem(&c);
    }
    for (u32 i = 0; i < c.n_rules; i++) free(c.rules[i].key);
    strmap_free(&c.known);
    schema_patterns_free(c.patterns);
    json_decref(c.made);
    json_decref(c.parts);
    free(c.rules);
    buf_free(&c.out);
    buf_free(&c.where);
    return c.rc;
}

int schema_compile(struct grammar **out, const json_t *schema, struct err *err)
{
    struct buf rules = {.max = GRAMMAR_MAX_TEXT};
    *out = NULL;
    int rc = schema_to_grammar(&rules, schema, err);
    if (!rc && (rc = grammar_parse_pruned(out, buf_str(&rules), err))) {
        if (strstr(err->text, "can never end"))
            rc = err_set(err, FLETCH_E_ARG, "schema: no value can match it");
        else
            err_prefix(err, "schema, as a grammar");
    }
    buf_free(&rules);
    return rc;
}
