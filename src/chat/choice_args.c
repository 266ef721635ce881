/* Arguments of calls in grammars. Where a format's arguments are JSON, schemas apply as they are.
 * Elsewhere strings stand without quotes, and what can't be kept is refused by name. */
#include <stdlib.h>
#include <string.h>

#include "chat/choice_internal.h"

enum { MAX_SCHEMA_DEPTH = 24, MAX_VALUES = 20000 };

static const json_t *schema_of(const json_t *tool)
{
    return json_object_get(json_object_get(tool, "function"), "parameters");
}

static void put_schema(struct maker *m, const json_t *schema)
{
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    fprintf(m->out, "%%json %s ", text ? text : "");
    m->failed |= !text;
    free(text);
}

static bool is_type(const json_t *schema, const char *name)
{
    const json_t *type = json_object_get(schema, "type");
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

/* ---- keywords ---- */

static bool is_one_of(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0) keys++;
    return *keys != NULL;
}

static bool is_silent(const char *key)
{
    static const char *const keys[] = {
        "title",      "description", "default",   "examples", "$schema", "$id",         "$comment",
        "deprecated", "readOnly",    "writeOnly", "strict",   "$defs",   "definitions", NULL};
    return is_one_of(key, keys) || strncmp(key, "x-", 2) == 0;
}

/* Whether a schema says no more than that. */
static bool is_only(const json_t *schema, const char *type)
{
    const char *key;
    json_t *v;
    bool only = is_type(schema, type);
    json_object_foreach((json_t *)schema, key, v) only =
        only && (is_silent(key) || strcmp(key, "type") == 0);
    return only;
}

/* A keyword that nothing here keeps is refused. */
static void check_keywords(struct maker *m, const json_t *tool, const json_t *schema,
                           const char *where, const char *const *known)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v)
    {
        if (!is_silent(key) && !is_one_of(key, known))
            maker_fail(m, tool,
                       "%s: %s cannot be enforced, because this model's tool calls are not JSON",
                       where, key);
    }
}

/* A keyword's count; false: it is none. */
static bool read_count(const json_t *schema, const char *key, size_t *n)
{
    const json_t *v = json_object_get(schema, key);
    double d = json_number_value(v);
    if (!v) return true;
    if (!json_is_number(v) || d < 0 || d > 10000 || d != (double)(size_t)d) return false;
    *n = (size_t)d;
    return true;
}

static bool is_required(const json_t *schema, const char *key)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(schema, "required"), i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), key) == 0) return true;
    }
    return false;
}

/* ---- strings without quotes ---- */

/* What ends a string, and so must not be part of one. */
static const char *const *string_ends(const struct maker *m, const char *ends[3])
{
    const struct chat_format *row = m->ask->format.row;
    ends[0] = row->quote ? row->quote : row->value_end;
    ends[1] = row->quote ? NULL : row->call_end;
    ends[2] = NULL;
    return ends;
}

static bool may_stand(const struct maker *m, const char *text, size_t n)
{
    const char *ends[3];
    bool may = strlen(text) == n;
    for (const char *const *end = string_ends(m, ends); *end; end++) may &= !strstr(text, *end);
    return may;
}

static size_t n_characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_lengths(struct maker *m, size_t min, size_t max)
{
    const char *ends[3];
    if (max != SIZE_MAX) {
        fprintf(m->out, "[^<]{%zu,%zu} ", min, max);
        return;
    }
    if (min) fprintf(m->out, "[^<]{%zu} ", min);
    maker_put_without(m, string_ends(m, ends));
}

static void put_string(struct maker *m, const json_t *tool, const char *where, const json_t *schema)
{
    static const char *const known[] = {"type", "enum", "const", "minLength", "maxLength", NULL};
    const json_t *values = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const");
    size_t min = 0, max = SIZE_MAX, i, n = 0;
    json_t *v;
    check_keywords(m, tool, schema, where, known);
    if (!read_count(schema, "minLength", &min) || !read_count(schema, "maxLength", &max) ||
        min > max || (values && !json_is_array(values)))
        maker_fail(m, tool, "%s: invalid enum, minLength or maxLength", where);
    json_t *list = values ? json_copy((json_t *)values) : json_array();
    if (only && !values) json_array_append(list, (json_t *)only);
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        if (!text || (only && !json_equal(only, v)) || !may_stand(m, text, json_string_length(v)) ||
            n_characters(text) < min || n_characters(text) > max)
            continue;
        fputs(n++ ? "| " : "(", m->out);
        maker_put_text(m, text, strlen(text));
    }
    if (n) fputs(") ", m->out);
    if (!n && (values || only)) maker_fail(m, tool, "%s: no value matches", where);
    json_decref(list);
    if (!values && !only) put_lengths(m, min, max);
}

/* A property's schema may name places in the definitions of the whole. */
static void put_json_value(struct maker *m, const json_t *tool, const json_t *schema)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *own = json_copy((json_t *)schema);
    for (size_t i = 0; json_is_object(own) && i < sizeof shared / sizeof *shared; i++) {
        json_t *defs = json_object_get(schema_of(tool), shared[i]);
        if (defs && !json_object_get(own, shared[i])) json_object_set(own, shared[i], defs);
    }
    put_schema(m, own);
    json_decref(own);
}

/* Templates print them as JSON does or as Python does. */
static void put_boolean(struct maker *m)
{
    fputs("(\"true\" | \"false\" | \"True\" | \"False\") ", m->out);
}

/* ---- pairs ---- */

static void put_pair(struct maker *m, const json_t *tool, const char *key, const json_t *schema,
                     bool required)
{
    const struct chat_format *row = m->ask->format.row;
    char where[160];
    bool is_text = is_type(schema, "string");
    const char *line = row->lines ? "\"\\n\" " : "";
    snprintf(where, sizeof where, "#/properties/%.100s", key);
    if (!may_stand(m, key, strlen(key)) || strstr(key, row->key_end) || strchr(key, '>'))
        maker_fail(m, tool, "%s: this name cannot be written in a tool call of this model", where);
    fputs("(", m->out);
    maker_put_mark(m, row->key);
    maker_put_text(m, key, strlen(key));
    maker_put_mark(m, row->key_end);
    if (row->value && !row->json_value) fputs("\"\\n\"? ", m->out);
    if (row->value) maker_put_mark(m, row->json_value && !is_text ? row->json_value : row->value);
    fputs(line, m->out);
    if (is_text)
        put_string(m, tool, where, schema);
    else if (is_only(schema, "boolean") && !row->json_value)
        put_boolean(m);
    else
        put_json_value(m, tool, schema);
    fputs(line, m->out);
    maker_put_mark(m, row->value_end);
    fprintf(m->out, "\"\\n\"?)%s ", required ? "" : "?");
}

/* ---- members with commas between them: Python's, and Gemma's ---- */

static void put_value(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                      int depth);

static bool is_plain_name(const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return *key && strspn(key, letters) == strlen(key);
}

struct members {
    const char *keys[256];
    const json_t *schemas[256];
    bool required[256];
    size_t n;
};

static void collect(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                    struct members *all)
{
    static const json_t *any;
    const json_t *properties = json_object_get(schema, "properties");
    json_t *more = json_object_get(schema, "additionalProperties"), *v;
    const char *key;
    size_t i;
    if (!any) any = json_true();
    all->n = 0;
    json_object_foreach((json_t *)properties, key, v)
    {
        bool required = is_required(schema, key);
        if ((json_is_false(v) && !required) || all->n == 256) continue;
        all->keys[all->n] = key;
        all->schemas[all->n] = v;
        all->required[all->n++] = required;
    }
    json_array_foreach(json_object_get(schema, "required"), i, v)
    {
        key = json_string_value(v);
        if (!key || json_object_get(properties, key)) continue;
        if (json_is_false(more)) maker_fail(m, tool, "%s/required: no value can match", where);
        if (all->n == 256) continue;
        all->keys[all->n] = key;
        all->schemas[all->n] = more ? more : any;
        all->required[all->n++] = true;
    }
    if (all->n == 256) maker_fail(m, tool, "%s: more than 255 properties", where);
}

/* Rules that are written while another is: each is put into m->parts when it ends. */
struct part {
    FILE *outer;
    char *text;
    size_t n;
};

static void part_begin(struct maker *m, struct part *p)
{
    *p = (struct part){.outer = m->out};
    FILE *inner = open_memstream(&p->text, &p->n);
    m->failed |= !inner;
    if (inner) m->out = inner;
}

static void part_end(struct maker *m, struct part *p)
{
    if (m->out == p->outer) return;
    fclose(m->out);
    m->out = p->outer;
    if (!m->parts) m->parts = open_memstream(&m->parts_text, &m->n_parts_text);
    if (m->parts && p->text) {
        fwrite(p->text, 1, p->n, m->parts);
        fputs("\n", m->parts);
    } else
        m->failed = true;
    free(p->text);
}

/* Refers to rules for "members i and later": first, where none came before, and rest, where one
 * did. */
static void put_members(struct maker *m, const json_t *tool, const char *where,
                        const json_t *schema, int depth)
{
    const struct chat_format *row = m->ask->format.row;
    const char *between = row->quote ? "\":\"" : "\"=\"";
    const char *comma = row->quote ? "\",\"" : "\",\" \" \"?";
    struct members *all = malloc(sizeof *all);
    unsigned base = m->n_parts;
    if (!all) {
        m->failed = true;
        return;
    }
    collect(m, tool, where, schema, all);
    m->n_parts += (unsigned)all->n + 1;
    for (size_t i = 0; i <= all->n && !m->failed; i++) {
        unsigned id = base + (unsigned)i;
        struct part part;
        part_begin(m, &part);
        if (i == all->n) {
            fprintf(m->out, "first-%u ::= \"\"\nrest-%u ::= \"\"", id, id);
        } else {
            const char *optional = all->required[i] ? "" : "?";
            char at[200];
            snprintf(at, sizeof at, "%.80s/properties/%.100s", where, all->keys[i]);
            if (!is_plain_name(all->keys[i]))
                maker_fail(m, tool, "%s: this name cannot be written in a tool call of this model",
                           at);
            fprintf(m->out, "member-%u ::= ", id);
            maker_put_text(m, all->keys[i], strlen(all->keys[i]));
            fprintf(m->out, "%s ", between);
            put_value(m, tool, at, all->schemas[i], depth + 1);
            fprintf(m->out, "\nfirst-%u ::= member-%u rest-%u", id, id, id + 1);
            if (*optional) fprintf(m->out, " | first-%u", id + 1);
            fprintf(m->out, "\nrest-%u ::= (%s member-%u)%s rest-%u", id, comma, id, optional,
                    id + 1);
        }
        part_end(m, &part);
    }
    fprintf(m->out, "first-%u ", base);
    free(all);
}

/* A constant as it stands in the call; false: it can't. */
static bool put_constant(struct maker *m, const json_t *v)
{
    const char *quote = m->ask->format.row->quote, *key;
    size_t i, n = 0;
    json_t *item;
    bool good = true, is_list = json_is_array(v);
    if (json_is_string(v)) {
        if (!may_stand(m, json_string_value(v), json_string_length(v))) return false;
        maker_put_mark(m, quote);
        maker_put_text(m, json_string_value(v), json_string_length(v));
        maker_put_mark(m, quote);
        return true;
    }
    if (!is_list && !json_is_object(v)) {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        if (text) maker_put_text(m, text, strlen(text));
        free(text);
        return text != NULL;
    }
    fputs(is_list ? "\"[\" " : "\"{\" ", m->out);
    json_array_foreach((json_t *)v, i, item)
    {
        if (i) fputs("\",\" ", m->out);
        good = good && put_constant(m, item);
    }
    json_object_foreach((json_t *)v, key, item)
    {
        if (n++) fputs("\",\" ", m->out);
        maker_put_text(m, key, strlen(key));
        fputs("\":\" ", m->out);
        good = good && is_plain_name(key) && put_constant(m, item);
    }
    fputs(is_list ? "\"]\" " : "\"}\" ", m->out);
    return good;
}

static void put_constants(struct maker *m, const json_t *tool, const char *where,
                          const json_t *values)
{
    size_t i;
    json_t *v;
    fputs("(", m->out);
    json_array_foreach((json_t *)values, i, v)
    {
        if (i) fputs("| ", m->out);
        if (!put_constant(m, v))
            maker_fail(m, tool, "%s: this value cannot be written in a tool call of this model",
                       where);
    }
    fputs(") ", m->out);
    if (!json_array_size(values)) maker_fail(m, tool, "%s: no value matches", where);
}

static void put_list(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                     int depth)
{
    static const char *const known[] = {"type", "items", "minItems", "maxItems", NULL};
    size_t min = 0, max = SIZE_MAX;
    const json_t *items = json_object_get(schema, "items");
    check_keywords(m, tool, schema, where, known);
    if (!read_count(schema, "minItems", &min) || !read_count(schema, "maxItems", &max) || min > max)
        maker_fail(m, tool, "%s: invalid minItems or maxItems", where);
    unsigned id = m->n_parts++;
    struct part part;
    part_begin(m, &part);
    fprintf(m->out, "item-%u ::= ", id);
    put_value(m, tool, where, items, depth + 1);
    part_end(m, &part);
    fputs("\"[\" ", m->out);
    if (max == SIZE_MAX)
        fprintf(m->out, "(item-%u (\",\" item-%u){%zu,})%s ", id, id, min ? min - 1 : 0,
                min ? "" : "?");
    else if (max)
        fprintf(m->out, "(item-%u (\",\" item-%u){%zu,%zu})%s ", id, id, min ? min - 1 : 0, max - 1,
                min ? "" : "?");
    fputs("\"]\" ", m->out);
}

static void put_object_value(struct maker *m, const json_t *tool, const char *where,
                             const json_t *schema, int depth)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties",
                                        NULL};
    check_keywords(m, tool, schema, where, known);
    fputs("\"{\" ", m->out);
    if (json_object_get(schema, "properties") || json_object_get(schema, "required")) {
        put_members(m, tool, where, schema, depth);
    } else {
        m->any_value = true;
        fputs("any-members ", m->out);
    }
    fputs("\"}\" ", m->out);
}

static const json_t *resolve(struct maker *m, const json_t *tool, const char *where,
                             const json_t *schema, int depth)
{
    const json_t *at = schema_of(tool), *ref = json_object_get(schema, "$ref");
    const char *path = json_string_value(ref);
    if (!path || strncmp(path, "#/", 2) != 0 || depth > MAX_SCHEMA_DEPTH) {
        maker_fail(m, tool, "%s: this $ref cannot be enforced in a tool call of this model", where);
        return NULL;
    }
    for (path += 2; at && *path; path += *path == '/') {
        char key[128] = "";
        size_t n = strcspn(path, "/");
        if (n < sizeof key) memcpy(key, path, n);
        at = json_object_get(at, key);
        path += n;
    }
    if (!at) maker_fail(m, tool, "%s: $ref names no definition", where);
    return at;
}

static void put_choices(struct maker *m, const json_t *tool, const char *where,
                        const json_t *schemas, int depth)
{
    size_t i;
    json_t *v;
    fputs("(", m->out);
    json_array_foreach((json_t *)schemas, i, v)
    {
        if (i) fputs("| ", m->out);
        put_value(m, tool, where, v, depth + 1);
    }
    fputs(") ", m->out);
    if (!json_array_size(schemas)) maker_fail(m, tool, "%s: no value matches", where);
}

static void put_types(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                      int depth)
{
    size_t i;
    json_t *type, *one;
    fputs("(", m->out);
    json_array_foreach(json_object_get(schema, "type"), i, type)
    {
        if (i) fputs("| ", m->out);
        one = json_copy((json_t *)schema);
        json_object_set(one, "type", type);
        put_value(m, tool, where, one, depth + 1);
        json_decref(one);
    }
    fputs(") ", m->out);
}

/* Gemma's values. */
static void put_quoted(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                       int depth)
{
    const char *quote = m->ask->format.row->quote;
    if (depth > MAX_SCHEMA_DEPTH) {
        maker_fail(m, tool,
                   "%s: a schema that is nested too deeply or contains itself cannot be "
                   "enforced in a tool call of this model",
                   where);
        return;
    }
    if (json_object_get(schema, "$ref") && !(schema = resolve(m, tool, where, schema, depth)))
        return;
    const json_t *any_of = json_object_get(schema, "anyOf");
    if (!any_of) any_of = json_object_get(schema, "oneOf");
    if (json_object_get(schema, "const")) {
        put_constant(m, json_object_get(schema, "const"));
    } else if (json_object_get(schema, "enum")) {
        put_constants(m, tool, where, json_object_get(schema, "enum"));
    } else if (any_of) {
        static const char *const known[] = {"anyOf", "oneOf", "type", NULL};
        check_keywords(m, tool, schema, where, known);
        put_choices(m, tool, where, any_of, depth);
    } else if (json_is_array(json_object_get(schema, "type"))) {
        put_types(m, tool, where, schema, depth);
    } else if (is_type(schema, "string")) {
        maker_put_mark(m, quote);
        put_string(m, tool, where, schema);
        maker_put_mark(m, quote);
    } else if (is_type(schema, "array")) {
        put_list(m, tool, where, schema, depth);
    } else if (is_type(schema, "object")) {
        put_object_value(m, tool, where, schema, depth);
    } else if (json_object_get(schema, "type")) {
        put_schema(m, schema);
    } else {
        static const char *const none[] = {NULL};
        check_keywords(m, tool, schema, where, none);
        m->any_value = true;
        fputs("any-value ", m->out);
    }
}

static void put_value(struct maker *m, const json_t *tool, const char *where, const json_t *schema,
                      int depth)
{
    if (++m->n_values > MAX_VALUES)
        maker_fail(m, tool, "the schemas of the tools are too large for this model's tool calls");
    if (m->failed) return;
    if (m->ask->format.row->quote)
        put_quoted(m, tool, where, schema, depth);
    else if (is_only(schema, "boolean"))
        put_boolean(m);
    else if (is_only(schema, "string")) {
        fputs("(\"'\" ([^'\\\\] | \"\\\\\" .)* \"'\" | ", m->out);
        put_schema(m, schema);
        fputs(") ", m->out);
    } else
        put_json_value(m, tool, schema);
}

/* ---- all syntaxes ---- */

static void check_parameters(struct maker *m, const json_t *tool)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties",
                                        NULL};
    const json_t *schema = schema_of(tool);
    if (schema) check_keywords(m, tool, schema, "#", known);
    if (json_object_get(schema, "type") && !is_type(schema, "object"))
        maker_fail(m, tool, "#: the type of the parameters must be object");
}

void maker_put_arguments(struct maker *m, const json_t *tool)
{
    enum chat_syntax syntax = m->ask->format.row->syntax;
    const json_t *schema = schema_of(tool);
    fprintf(m->out, "arguments-of-%s ::= ", maker_tool_name(tool));
    if (syntax == CHAT_PAIRS) {
        struct members *all = malloc(sizeof *all);
        check_parameters(m, tool);
        if (all) collect(m, tool, "#", schema, all);
        for (size_t i = 0; all && i < all->n; i++)
            put_pair(m, tool, all->keys[i], all->schemas[i], all->required[i]);
        m->failed |= !all;
        free(all);
        fputs("\"\"\n", m->out);
    } else if (syntax == CHAT_PYTHON || syntax == CHAT_QUOTED) {
        check_parameters(m, tool);
        put_members(m, tool, "#", schema, 0);
        fputs("\n", m->out);
    } else if (schema) {
        put_schema(m, schema);
        fputs("\n", m->out);
    } else
        fputs("\"{}\"\n", m->out); /* as OpenAI has it: no parameters */
}

void maker_put_any_value(struct maker *m)
{
    const char *quote = m->ask->format.row->quote, *ends[3];
    fputs("any-value ::= any-string | %json {\"type\": [\"number\", \"boolean\", \"null\"]} | "
          "\"[\" (any-value (\",\" any-value)*)? \"]\" | \"{\" any-members \"}\"\n"
          "any-members ::= (any-member (\",\" any-member)*)?\n"
          "any-member ::= [a-zA-Z_] [a-zA-Z0-9_]{0,63} \":\" any-value\nany-string ::= ",
          m->out);
    maker_put_mark(m, quote);
    maker_put_without(m, string_ends(m, ends));
    maker_put_mark(m, quote);
    fputs("\n", m->out);
}
