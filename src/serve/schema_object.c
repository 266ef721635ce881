/* Objects: members with names, in their order, then others; and lists of different values, which
 * are written the same way. */
#include <stdlib.h>
#include <string.h>

#include "serve/schema_language.h"

enum { MAX_ROW_RULES = 1 << 14, MAX_PATTERN_SETS = 4 };

/* ---- rows ---- */

/* Rules NAME-mI-C: what may follow when C of the parts before part I are there; C stays at `cap`
 * where more do not matter. */
static void put_row_end(struct schemac *c, const struct schema_row *r, u32 count)
{
    u32 need = r->lo > count ? r->lo - count : 0;
    u32 left = r->hi == UINT32_MAX ? UINT32_MAX : r->hi - MIN(r->hi, count);
    buf_printf(&c->out, "s%u-m%u-%u ::= ", r->name, r->n, count);
    if (!r->open || left == 0 || need > 1) {
        buf_puts(&c->out, need ? "[]\n" : "\"\"\n");
        return;
    }
    buf_printf(&c->out, "(%s s%u-x (comma s%u-x)", count ? "comma" : "", r->name, r->name);
    schema_put_times(&c->out, 0, left == UINT32_MAX ? left : left - 1);
    buf_puts(&c->out, need ? ")\n" : ")?\n");
}

void schema_put_row(struct schemac *c, const struct schema_row *r)
{
    bool counted = r->lo > 1 || r->hi < UINT32_MAX || (r->lo && r->open);
    u32 cap = !counted ? 1 : r->hi < UINT32_MAX ? MAX(r->hi, 1) : MAX(r->lo, 1);
    if (counted && (u64)(r->n + 1) * MIN(cap + 1, r->n + 1) > MAX_ROW_RULES) {
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "minProperties and maxProperties are not supported with this many optional "
                    "members; drop the bound or make members required");
        return;
    }
    for (u32 i = 0; i < r->n && !c->rc; i++) {
        for (u32 k = 0; k <= MIN(i, cap); k++) {
            bool must = r->must && r->must[i], room = k < r->hi;
            buf_printf(&c->out, "s%u-m%u-%u ::= ", r->name, i, k);
            if (room)
                buf_printf(&c->out, "%s s%u-p%u s%u-m%u-%u ", k ? "comma" : "", r->name, i, r->name,
                           i + 1, MIN(k + 1, cap));
            if (!must) buf_printf(&c->out, "%s s%u-m%u-%u", room ? "|" : "", r->name, i + 1, k);
            buf_puts(&c->out, must && !room ? "[]\n" : "\n");
        }
    }
    for (u32 k = 0; k <= MIN(r->n, cap); k++) put_row_end(c, r, k);
}

/* ---- names that are no others ---- */

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
    u32 rule = c->rc ? 0 : schema_inner_rule(c, more, "additionalProperties", NULL);
    buf_printf(&c->out, "s%u-x ::= \"\\\"\" s%u-k0 \"\\\"\" colon s%u\n", name, name, rule);
}

/* ---- objects ---- */

/* An object's members: those with names, whether others may follow, and how many. */
struct object {
    json_t *named;    /* schemas by name */
    json_t *required; /* a key for each that is */
    const json_t *more, *patterns, *names;
    bool open;      /* others may follow, as rule NAME-x says */
    bool more_open; /* among them such that no pattern is about */
    u32 lo, hi;
};

/* What patternProperties say about a member, and false where propertyNames forbid it. */
static json_t *member_of(struct schemac *c, const struct object *o, const char *key,
                         const json_t *value, bool from_more)
{
    json_t *its = json_incref((json_t *)value), *text = json_string_nocheck(key), *more;
    const char *pattern;
    bool matched = false;
    json_object_foreach((json_t *)o->patterns, pattern, more)
    {
        if (!schema_matches(c, str_of(pattern), str_of(key))) continue;
        json_t *both = schema_both(from_more && !matched ? NULL : its, more);
        json_decref(its);
        its = both;
        matched = true;
    }
    if (o->names && !schema_fits(c, text, o->names)) {
        json_decref(its);
        its = json_false();
    }
    json_decref(text);
    return its;
}

static void add_name(struct object *o, const json_t *name)
{
    const char *key = json_string_value(name);
    if (!key || strlen(key) != json_string_length(name) || json_object_get(o->named, key)) return;
    json_object_set(o->named, key, o->more ? (json_t *)o->more : json_true());
}

/* Properties, then those that are only required, then those that propertyNames list. */
static void find_members(struct schemac *c, struct object *o, const json_t *s)
{
    const json_t *properties = json_object_get(s, "properties");
    const char *key;
    json_t *value, *name;
    size_t i;
    o->named = properties ? json_copy((json_t *)properties) : json_object();
    json_array_foreach(json_object_get(s, "required"), i, name)
    {
        json_object_set(o->required, json_string_value(name), json_true());
        add_name(o, name);
    }
    o->more_open = o->more ? !json_is_false(o->more) : !properties && !o->patterns;
    json_t *listed = o->names ? schema_values(c, o->names) : NULL;
    if (listed && (o->more_open || o->patterns)) {
        json_array_foreach(listed, i, name) add_name(o, name);
    }
    o->open = !listed && (o->more_open || json_object_size(o->patterns) > 0);
    json_decref(listed);
    if (json_object_size(o->named) > SCHEMA_MAX_RULES) {
        schema_fail(c, FLETCH_E_LIMIT, "more than %d members are not supported", SCHEMA_MAX_RULES);
        return;
    }
    json_object_foreach(o->named, key, value)
    {
        bool from_more = !json_object_get(properties, key);
        json_object_set_new(o->named, key, member_of(c, o, key, value, from_more));
    }
}

/* The names that a schema allows. */
static u32 names_term(struct schemac *c, struct language *l, const json_t *s)
{
    static const char *const kept[] = {"type",      "pattern",   "format",
                                       "minLength", "maxLength", "anyOf"};
    const char *key;
    json_t *value;
    size_t i;
    u32 lo, hi, any = LANGUAGE_NOTHING;
    if (!(s = schema_flatten(c, s)) || !schema_check_shapes(c, s)) return LANGUAGE_NOTHING;
    json_t *values = schema_values(c, s);
    json_array_foreach(values, i, value)
    {
        struct str text = {json_string_value(value), json_string_length(value)};
        if (text.p && schema_fits(c, value, s))
            any = language_either(l, any, language_text(l, text));
    }
    json_decref(values);
    if (values) return any;
    json_object_foreach((json_t *)s, key, value)
    {
        bool known = schema_is_annotation(key) || !schema_keyword_is_about(key, SCHEMA_STRING);
        for (i = 0; i < ARRAY_LEN(kept); i++) known |= strcmp(key, kept[i]) == 0;
        known &= !schema_is_choice(key) || strcmp(key, "anyOf") == 0;
        if (!known)
            schema_fail(c, FLETCH_E_UNSUPPORTED, "%s is not supported in propertyNames",
                        QUOTE(str_of(key)));
    }
    if (json_object_get(s, "type") && !(schema_types(c, s) & SCHEMA_STRING))
        return LANGUAGE_NOTHING;
    if (!schema_read_counts(c, s, "minLength", "maxLength", &lo, &hi)) return LANGUAGE_NOTHING;
    u32 term = schema_string_term(c, l, s, LANGUAGE_NARROW);
    term = language_both(l, term, language_of_length(l, lo, hi));
    const json_t *parts = json_object_get(s, "anyOf");
    if (!parts) return term;
    if (++c->depth > SCHEMA_MAX_DEPTH)
        schema_fail(c, FLETCH_E_LIMIT, "nested deeper than %d levels", SCHEMA_MAX_DEPTH);
    json_array_foreach((json_t *)parts, i, value) any =
        language_either(l, any, c->rc ? LANGUAGE_NOTHING : names_term(c, l, value));
    c->depth--;
    return language_both(l, term, any);
}

/* A set of the patterns, which a name matches and whose schemas apply; the others it does not. */
struct pattern_set {
    u32 term;
    json_t *schema;
};

static void find_pattern_set(struct language *l, const struct object *o, u32 chosen,
                             struct pattern_set *set)
{
    const char *pattern;
    json_t *value;
    u32 i = 0;
    json_object_foreach((json_t *)o->patterns, pattern, value)
    {
        bool in = chosen >> i++ & 1;
        u32 its = language_pattern(l, str_of(pattern), in ? LANGUAGE_NARROW : LANGUAGE_EXACT);
        set->term = language_both(l, set->term, in ? its : language_not(l, its));
        if (!in) continue;
        json_t *both = schema_both(set->schema, value);
        json_decref(set->schema);
        set->schema = both;
    }
    if (chosen) return;
    if (!o->more_open) set->term = LANGUAGE_NOTHING;
    set->schema = o->more ? json_incref((json_t *)o->more) : json_true();
}

/* Rule NAME-x where patternProperties or propertyNames speak about names. */
static void put_members_by_name(struct schemac *c, const struct object *o, u32 name)
{
    u32 n_sets = 1u << MIN(json_object_size(o->patterns), (size_t)MAX_PATTERN_SETS), base;
    struct pattern_set sets[1 << MAX_PATTERN_SETS] = {{0}};
    struct language *l = language_open(c);
    struct buf b = {.max = GRAMMAR_MAX_TEXT};
    const char *key;
    json_t *value;
    bool any = false;
    if (!l) return;
    if (json_object_size(o->patterns) > MAX_PATTERN_SETS)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "more than %d patternProperties are not supported; join some of them",
                    MAX_PATTERN_SETS);
    base = o->names ? names_term(c, l, o->names) : LANGUAGE_ALL;
    json_object_foreach(o->named, key, value) base =
        language_both(l, base, language_not(l, language_text(l, str_of(key))));
    for (u32 i = 0; i < n_sets && !c->rc; i++) {
        sets[i].term = base;
        find_pattern_set(l, o, i, &sets[i]);
    }
    for (u32 i = 0; i < n_sets && !c->rc; i++) {
        u32 number = schema_new_part(c);
        if (!language_put(l, sets[i].term, 0, UINT32_MAX, number)) continue;
        const json_t *s = schema_keep(c, json_incref(sets[i].schema));
        u32 rule =
            s ? schema_inner_rule(c, s, i ? "patternProperties" : "additionalProperties", NULL) : 0;
        buf_printf(&b, "%s\"\\\"\" p%u \"\\\"\" colon s%u ", any ? "| " : "", number, rule);
        any = true;
    }
    buf_printf(&c->out, "s%u-x ::= %s\n", name, any && b.p ? b.p : "[]");
    for (u32 i = 0; i < n_sets; i++) json_decref(sets[i].schema);
    buf_free(&b);
    language_close(l);
}

static void put_members(struct schemac *c, const struct object *o, u32 name)
{
    u32 n = (u32)json_object_size(o->named), i = 0;
    bool *must = calloc(n + 1, sizeof *must);
    const char *key;
    json_t *value;
    if (!must) schema_nomem(c);
    json_object_foreach(o->named, key, value)
    {
        struct buf pair = {0};
        if (c->rc) break;
        must[i] = json_object_get(o->required, key) != NULL;
        schema_put_name(c, &pair, key);
        u32 rule = schema_inner_rule(c, value, "properties", key);
        buf_printf(&c->out, "s%u-p%u ::= %s colon s%u\n", name, i, pair.p ? pair.p : "", rule);
        buf_free(&pair);
        i++;
    }
    struct schema_row row = {
        .name = name, .n = n, .must = must, .open = o->open, .lo = o->lo, .hi = o->hi};
    if (!c->rc) schema_put_row(c, &row);
    free(must);
}

/* Bounds that say nothing go. Two members without names may have the same one, so that only one can
 * be counted on. */
static void find_counts(struct schemac *c, struct object *o, const json_t *s)
{
    u32 n_named = (u32)json_object_size(o->named), n_must = (u32)json_object_size(o->required);
    if (!schema_read_counts(c, s, "minProperties", "maxProperties", &o->lo, &o->hi)) return;
    if (o->lo <= n_must) o->lo = 0;
    if (!o->open && o->hi >= n_named) o->hi = UINT32_MAX;
    if (o->open && o->lo > n_named + 1)
        schema_fail(c, FLETCH_E_UNSUPPORTED,
                    "'minProperties' is supported only up to the number of named members and one "
                    "more; lower it, or name the members in properties");
}

void schema_put_object(struct schemac *c, struct buf *b, const json_t *s, u32 name)
{
    struct object o = {.required = json_object(),
                       .more = json_object_get(s, "additionalProperties"),
                       .patterns = json_object_get(s, "patternProperties"),
                       .names = json_object_get(s, "propertyNames")};
    find_members(c, &o, s);
    if (!c->rc) find_counts(c, &o, s);
    if (!c->rc && o.open && (o.patterns || o.names))
        put_members_by_name(c, &o, name);
    else if (!c->rc && o.open)
        put_other_member(c, o.named, o.more ? o.more : json_true(), name);
    if (!c->rc && o.lo > o.hi) {
        buf_puts(b, "[] ");
    } else if (!c->rc) {
        buf_printf(b, "\"{\" s%u-m0-0 \"}\" ", name);
        put_members(c, &o, name);
    }
    json_decref(o.named);
    json_decref(o.required);
}
