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

static u32 rule_of(struct schemac *c, const json_t *s);

/* The rule of a schema that is found under a keyword, and a name or an index there. */
static u32 rule_at(struct schemac *c, const json_t *s, const char *keyword, const char *name)
{
    size_t place = schema_enter(c, keyword, name);
    u32 rule = rule_of(c, s);
    schema_leave(c, place);
    return rule;
}

/* The same for what is a part of the value: something comes before it. */
static u32 part_at(struct schemac *c, const json_t *s, const char *keyword, const char *name)
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

static void put_key(struct schemac *c, struct buf *b, const char *key)
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

/* Bounds such as minItems and maxItems; false after an error. */
static bool read_counts(struct schemac *c, const json_t *s, const char *min, const char *max,
                        u32 *lo, u32 *hi)
{
    const json_t *least = json_object_get(s, min), *most = json_object_get(s, max);
    *lo = 0;
    *hi = UINT32_MAX;
    if (least && json_number_value(least) > (double)GRAMMAR_MAX_REPEAT)
        schema_fail(c, FLETCH_E_LIMIT, "%s is more than %d", min, GRAMMAR_MAX_REPEAT);
    else if (least)
        *lo = (u32)json_number_value(least);
    if (most && json_number_value(most) > (double)GRAMMAR_MAX_REPEAT)
        schema_fail(c, FLETCH_E_LIMIT, "%s is more than %d", max, GRAMMAR_MAX_REPEAT);
    else if (most)
        *hi = (u32)json_number_value(most);
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
    const char *text = json_string_value(pattern), *name = json_string_value(format);
    bool counted = json_object_get(s, "minLength") || json_object_get(s, "maxLength");
    u32 lo, hi;
    if (!read_counts(c, s, "minLength", "maxLength", &lo, &hi)) return;
    counted &= lo > 0 || hi < UINT32_MAX;
    if ((pattern != NULL) + (format != NULL) + counted > 1) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "pattern, format and minLength/maxLength cannot be combined");
        return;
    }
    if (format) text = schema_format(name);
    if (format && !text)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "format %s is not supported (date, date-time, email, hostname, ipv4, time and "
                    "uuid are)",
                    QUOTE(str_of(name)));
    if (c->rc) return;
    buf_puts(b, "\"\\\"\" ");
    if (text) {
        struct str regex = format ? str_of(text) : (struct str){text, json_string_length(pattern)};
        schema_put_pattern(c, b, regex, SCHEMA_WITHOUT_CONTROLS);
    } else if (lo > hi) {
        buf_puts(b, "[] ");
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
    char text[24], rule[16];
    if (!read_counts(c, s, "minItems", "maxItems", &lo, &hi)) return;
    if (json_is_false(rest)) hi = MIN(hi, n_first);
    if (json_is_true(json_object_get(s, "uniqueItems")) && hi > 1) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'uniqueItems' is supported only together with enum, const or maxItems 1");
        return;
    }
    if (lo > hi) {
        buf_puts(b, "[] ");
        return;
    }
    buf_printf(b, "\"[\" s%u-0 \"]\" ", name);
    for (u32 i = 0; i < MIN(n_first, hi) && !c->rc; i++) {
        u32 its = part_at(c, json_array_get(first, i), "prefixItems", index_text(i, text));
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
        snprintf(rule, sizeof rule, "s%u", part_at(c, rest, "items", NULL));
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
            schema_fail(
                c, FLETCH_E_LIMIT,
                "names of more than %d bytes are not supported together with additionalProperties",
                SCHEMA_MAX_NAME);
        else if (!needs_escape(key))
            names.p[names.n++] = key;
    }
    qsort(names.p, names.n, sizeof *names.p, by_text);
    if (!c->rc) put_other_keys(c, name, names, 0, &id);
    free(names.p);
    u32 rule = c->rc ? 0 : part_at(c, more, "additionalProperties", NULL);
    buf_printf(&c->out, "s%u-x ::= \"\\\"\" s%u-k0 \"\\\"\" colon s%u\n", name, name, rule);
}

/* An object's members: those with names, whether others may follow, and how many. */
struct object {
    json_t *named;    /* schemas by name */
    json_t *required; /* a key for each that is */
    const json_t *more;
    bool open; /* others may follow, as rule NAME-x says */
    u32 lo, hi;
};

/* Properties, then those that are only required; each with what patternProperties say about it, and
 * false where propertyNames forbid it. */
static void find_members(struct schemac *c, struct object *o, const json_t *s)
{
    const json_t *properties = json_object_get(s, "properties");
    const json_t *patterns = json_object_get(s, "patternProperties");
    const json_t *names = json_object_get(s, "propertyNames");
    const char *key, *pattern;
    json_t *value, *name;
    size_t i;
    o->named = properties ? json_copy((json_t *)properties) : json_object();
    json_array_foreach(json_object_get(s, "required"), i, name)
    {
        key = json_string_value(name);
        json_object_set(o->required, key, json_true());
        if (!json_object_get(o->named, key))
            json_object_set(o->named, key, o->more ? (json_t *)o->more : json_true());
    }
    json_object_foreach(o->named, key, value)
    {
        json_t *its = json_incref(value), *text = json_string_nocheck(key);
        bool from_more = !json_object_get(properties, key), matched = false;
        json_object_foreach((json_t *)patterns, pattern, name)
        {
            if (!schema_matches(c, str_of(pattern), str_of(key))) continue;
            json_t *both = schema_both(from_more && !matched ? NULL : its, name);
            json_decref(its);
            its = both;
            matched = true;
        }
        if (names && !schema_fits(c, text, names)) {
            json_decref(its);
            its = json_false();
        }
        json_decref(text);
        json_object_set_new(o->named, key, its);
    }
    if (json_object_size(o->named) > SCHEMA_MAX_RULES)
        schema_fail(c, FLETCH_E_LIMIT, "more than %d members are not supported", SCHEMA_MAX_RULES);
}

/* Rule NAME-x for members whose names match the one pattern, or fit propertyNames. */
static void put_member_by_name(struct schemac *c, const json_t *s, u32 name)
{
    const json_t *patterns = json_object_get(s, "patternProperties");
    const json_t *names = json_object_get(s, "propertyNames");
    const char *pattern;
    json_t *value;
    json_object_foreach((json_t *)patterns, pattern, value)
    {
        struct buf b = {.max = GRAMMAR_MAX_TEXT};
        size_t place = schema_enter(c, "patternProperties", pattern);
        u32 rule = part_at(c, value, NULL, NULL);
        schema_put_pattern(c, &b, str_of(pattern), SCHEMA_WITHOUT_CONTROLS);
        schema_leave(c, place);
        buf_printf(&c->out, "s%u-x ::= \"\\\"\" %s \"\\\"\" colon s%u\n", name, b.p ? b.p : "",
                   rule);
        if (b.failed) schema_fail(c, FLETCH_E_LIMIT, "a pattern is too large");
        buf_free(&b);
    }
    if (!names) return;
    const json_t *more = json_object_get(s, "additionalProperties");
    json_t *text = json_pack("{s:s}", "type", "string"), *both = schema_both(names, text);
    json_decref(text);
    if (!(both = schema_keep(c, both))) return;
    u32 key = part_at(c, both, "propertyNames", NULL);
    u32 rule = part_at(c, more ? more : json_true(), "additionalProperties", NULL);
    buf_printf(&c->out, "s%u-x ::= s%u colon s%u\n", name, key, rule);
}

/* Rule NAME-x: a member without a name. Members with names come only, where there are any, beside
 * patterns and propertyNames: telling both apart is not attempted. */
static void put_others(struct schemac *c, struct object *o, const json_t *s, u32 name)
{
    const json_t *patterns = json_object_get(s, "patternProperties");
    const json_t *names = json_object_get(s, "propertyNames");
    bool has_names = json_object_size(o->named) > 0;
    const char *also = patterns ? "patternProperties" : "propertyNames";
    o->open = o->more ? !json_is_false(o->more) : !json_object_get(s, "properties");
    if (!patterns && !names) {
        if (o->open && !c->rc) put_other_member(c, o->named, o->more ? o->more : json_true(), name);
        return;
    }
    if (has_names && o->more && o->open)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'%s' together with named members requires additionalProperties to be false",
                    also);
    else if (patterns && (names || json_object_size(patterns) > 1) && !has_names)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'patternProperties' is supported with one pattern and without propertyNames");
    o->open = !has_names && (patterns || o->open);
    if (o->open && !c->rc) put_member_by_name(c, s, name);
}

/* How many other members there may be at least (0 or 1) and at most; what would have to count
 * members with names is refused. */
static void count_others(struct schemac *c, struct object *o, const json_t *s)
{
    u32 n_named = (u32)json_object_size(o->named), n_must = (u32)json_object_size(o->required);
    if (!read_counts(c, s, "minProperties", "maxProperties", &o->lo, &o->hi)) return;
    o->lo = o->lo > n_must ? o->lo - n_must : 0;
    if (o->hi < n_must || (o->lo > 0 && !o->open && n_must == n_named)) {
        o->lo = 1;
        o->hi = 0;
        return;
    }
    o->hi = o->hi == UINT32_MAX ? UINT32_MAX : o->hi - n_must;
    if (o->lo > 1 || (o->lo == 1 && n_must > 0))
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'minProperties' is supported only up to 1 or the number of required members");
    else if (o->hi == 0 || n_must == n_named)
        return;
    else if (o->hi < UINT32_MAX && (o->open || o->hi < n_named - n_must))
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'maxProperties' is supported only if no named member is optional");
    else
        o->hi = UINT32_MAX;
}

/* Rules NAME-pI: the I-th member; NAME-mI: what may follow when members came before it; NAME-fI:
 * the same when none did. */
static void put_members(struct schemac *c, const struct object *o, u32 name)
{
    const char *key;
    json_t *value;
    u32 i = 0;
    json_object_foreach(o->named, key, value)
    {
        bool must = json_object_get(o->required, key) != NULL;
        if (c->rc) break;
        if (!must && o->hi == 0) continue;
        struct buf pair = {0};
        put_key(c, &pair, key);
        u32 rule = part_at(c, value, "properties", key);
        buf_printf(&c->out, "s%u-p%u ::= %s colon s%u\n", name, i, pair.p ? pair.p : "", rule);
        buf_printf(&c->out, "s%u-m%u ::= (comma s%u-p%u)%s s%u-m%u\n", name, i, name, i,
                   must ? "" : "?", name, i + 1);
        buf_printf(&c->out, "s%u-f%u ::= s%u-p%u s%u-m%u", name, i, name, i, name, i + 1);
        if (!must) buf_printf(&c->out, " | s%u-f%u", name, i + 1);
        buf_putc(&c->out, '\n');
        buf_free(&pair);
        i++;
    }
    const char *none = o->lo ? "[]" : "\"\"";
    if (!o->open || o->hi == 0) {
        buf_printf(&c->out, "s%u-m%u ::= \"\"\ns%u-f%u ::= %s\n", name, i, name, i, none);
        return;
    }
    buf_printf(&c->out, "s%u-f%u ::= s%u-x (comma s%u-x)", name, i, name, name);
    put_times(&c->out, 0, o->hi == UINT32_MAX ? UINT32_MAX : o->hi - 1);
    buf_printf(&c->out, "| %s\ns%u-m%u ::= (comma s%u-x)", none, name, i, name);
    put_times(&c->out, 0, o->hi);
    buf_putc(&c->out, '\n');
}

static void put_object(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    struct object o = {.required = json_object(),
                       .more = json_object_get(s, "additionalProperties")};
    find_members(c, &o, s);
    if (!c->rc) put_others(c, &o, s, name);
    if (!c->rc) count_others(c, &o, s);
    if (!c->rc && o.lo > o.hi) {
        buf_puts(b, "[] ");
    } else if (!c->rc) {
        buf_printf(b, "\"{\" s%u-f0 \"}\" ", name);
        put_members(c, &o, name);
    }
    json_decref(o.named);
    json_decref(o.required);
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

static void put_one_of(struct schemac *c, struct buf *b, const json_t *s)
{
    const json_t *list = json_object_get(s, "oneOf");
    const json_t *rest = schema_says_nothing(s, "oneOf") ? NULL : schema_without(c, s, "oneOf");
    size_t n = json_array_size(list), i, k;
    char text[24];
    if (put_one_of_values(c, b, s) || c->rc) return;
    if (n > SCHEMA_MAX_LIST) {
        schema_fail(c, FLETCH_E_LIMIT, "oneOf has more than %d schemas", SCHEMA_MAX_LIST);
        return;
    }
    const json_t **parts = calloc(n + 1, sizeof *parts);
    if (!parts) schema_nomem(c);
    for (i = 0; i < n && !c->rc; i++) {
        size_t place = schema_enter(c, "oneOf", index_text(i, text));
        const json_t *part = with_part(c, rest, json_array_get(list, i));
        if (part) parts[i] = schema_flatten(c, part);
        schema_leave(c, place);
    }
    for (i = 0; i < n && !c->rc; i++) {
        for (k = i + 1; k < n && !c->rc; k++)
            if (!schema_disjoint(c, parts[i], parts[k]))
                schema_fail(c, FLETCH_E_UNSUPPORTED,
                            "oneOf (unlike anyOf) is not supported if a value might match both "
                            "schema %zu and schema %zu",
                            i, k);
        if (c->rc) break;
        buf_printf(b, i ? "| s%u " : "s%u ", rule_at(c, parts[i], "oneOf", index_text(i, text)));
    }
    free(parts);
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
                        .out = {.max = GRAMMAR_MAX_TEXT},
                        .rules = calloc(SCHEMA_MAX_RULES, sizeof *c.rules),
                        .err = err};
    if (!c.made || !c.rules) schema_nomem(&c);
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
