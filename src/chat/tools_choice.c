/* What is asked of the model: that it calls a tool, and what tools there are where its template
 * doesn't say. Names were checked to be plain words when they came. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/tools.h"

enum { MAX_CALLS = 8 };

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static const json_t *schema_of(const json_t *tool)
{
    return json_object_get(json_object_get(tool, "function"), "parameters");
}

/* ---- writing grammars ---- */

struct maker {
    const struct tools_must *must;
    FILE *out;
    char *why;
    size_t why_cap;
    bool failed;
};

static void fail(struct maker *m, const json_t *tool, const char *fmt, ...)
{
    va_list args;
    if (m->failed) return;
    m->failed = true;
    int n = snprintf(m->why, m->why_cap, "tool %s: ", name_of(tool));
    va_start(args, fmt);
    if (n > 0 && (size_t)n < m->why_cap) vsnprintf(m->why + n, m->why_cap - (size_t)n, fmt, args);
    va_end(args);
}

static void put_text(struct maker *m, const char *text, size_t n)
{
    fputc('"', m->out);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            fprintf(m->out, "\\x%02x", c);
        else
            fprintf(m->out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputs("\" ", m->out);
}

/* A marker is the control token that it names, where the vocabulary has one, or else its text. */
static void put_marker(struct maker *m, const char *marker)
{
    int32_t id = m->must->control ? m->must->control(m->must->ctx, marker) : -1;
    if (id >= 0)
        fprintf(m->out, "<[%d]> ", id);
    else
        put_text(m, marker, strlen(marker));
}

static void put_schema(struct maker *m, const json_t *schema)
{
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    fprintf(m->out, "%%json %s ", text ? text : "");
    m->failed |= !text;
    free(text);
}

/* ---- calls as JSON ---- */

static void put_arguments(struct maker *m, const json_t *tool)
{
    fprintf(m->out, "arguments-of-%s ::= ", name_of(tool));
    if (schema_of(tool))
        put_schema(m, schema_of(tool));
    else
        fputs("\"{}\"", m->out); /* as OpenAI has it: no parameters */
    fputs("\n", m->out);
}

/* What stands after {"name": of each tool. */
static void put_objects(struct maker *m, const char *key)
{
    size_t i;
    json_t *tool;
    fputs("object ::= \"{\\\"name\\\":\" \" \"? (", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool)
    {
        fprintf(m->out, "%s\"\\\"%s\\\",\" \" \"? \"\\\"%s\\\":\" \" \"? arguments-of-%s",
                i ? " | " : "", name_of(tool), key, name_of(tool));
    }
    fputs(") \"}\"\n", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool) put_arguments(m, tool);
}

static void put_tagged(struct maker *m)
{
    fputs("call ::= ", m->out);
    put_marker(m, "<tool_call>");
    fputs("gap object gap ", m->out);
    put_marker(m, "</tool_call>");
    fputs("\n", m->out);
    put_objects(m, "arguments");
}

/* ---- GLM's pairs ---- */

/* Texts stand there as they are, so these must not be part of one. Each begins with < and has no
 * other. */
static const char *const pair_ends[] = {"</arg_value>", "</tool_call>"};
enum { N_PAIR_ENDS = sizeof pair_ends / sizeof *pair_ends };

static bool may_stand(const char *text, size_t n)
{
    bool may = strlen(text) == n;
    for (size_t i = 0; i < N_PAIR_ENDS; i++) may &= !strstr(text, pair_ends[i]);
    return may;
}

static bool is_pair_end(const char *text, size_t n)
{
    bool is = false;
    for (size_t i = 0; i < N_PAIR_ENDS; i++)
        is |= strlen(pair_ends[i]) == n && memcmp(pair_ends[i], text, n) == 0;
    return is;
}

/* Of the ends that begin with the n bytes of `begun`, every next byte, once; how many. */
static size_t next_bytes(const char *begun, size_t n, char next[N_PAIR_ENDS + 1])
{
    size_t count = 0;
    for (size_t i = 0; i < N_PAIR_ENDS; i++) {
        char c = pair_ends[i][n];
        if (memcmp(pair_ends[i], begun, n) != 0 || memchr(next, c, count)) continue;
        next[count++] = c;
    }
    next[count] = 0;
    return count;
}

/* What may follow n bytes of an end that goes on as none: with stops, any other character; else
 * every further beginning of one. */
static void put_unended(struct maker *m, const char *begun, size_t n, bool stops)
{
    char next[N_PAIR_ENDS + 1], longer[32];
    size_t count = next_bytes(begun, n, next), n_put = 0;
    if (stops) {
        fprintf(m->out, "([^<%s]", next);
        n_put++;
    }
    memcpy(longer, begun, n);
    for (size_t i = 0; i < count; i++) {
        longer[n] = next[i];
        if (is_pair_end(longer, n + 1)) continue;
        fprintf(m->out, "%s\"%c\" ", n_put++ ? " | " : "(", next[i]);
        put_unended(m, longer, n + 1, stops);
    }
    if (n_put) fputs(stops ? ")" : ")?", m->out);
}

/* Any text without an end in it: beginnings of ends, each given up, and characters. */
static void put_free_text(struct maker *m)
{
    fputs("begun ::= \"<\" ", m->out);
    put_unended(m, "<", 1, false);
    fputs("\nunended ::= \"<\" ", m->out);
    put_unended(m, "<", 1, true);
    fputs("\nfree-text ::= [^<]* (begun* unended [^<]*)* begun*\n", m->out);
}

static size_t n_characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
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

/* A keyword that nothing here keeps is refused. */
static void check_keywords(struct maker *m, const json_t *tool, const json_t *schema,
                           const char *where, const char *const *known)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v)
    {
        if (!is_silent(key) && !is_one_of(key, known))
            fail(m, tool, "%s: %s cannot be enforced, because this model's tool calls are not JSON",
                 where, key);
    }
}

/* A text is written without quotes, so it is no matter of JSON schemas. */
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
        fail(m, tool, "%s: invalid enum, minLength or maxLength", where);
    json_t *list = values ? json_copy((json_t *)values) : json_array();
    if (only && !values) json_array_append(list, (json_t *)only);
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        if (!text || (only && !json_equal(only, v)) || !may_stand(text, json_string_length(v)) ||
            n_characters(text) < min || n_characters(text) > max)
            continue;
        fputs(n++ ? "| " : "(", m->out);
        put_text(m, text, strlen(text));
    }
    if (n) fputs(") ", m->out);
    if (!n && (values || only)) fail(m, tool, "%s: no value matches", where);
    json_decref(list);
    if (values || only) return;
    if (max != SIZE_MAX)
        fprintf(m->out, "[^<]{%zu,%zu} ", min, max);
    else if (min)
        fprintf(m->out, "[^<]{%zu} free-text ", min);
    else
        fputs("free-text ", m->out);
}

/* A property's schema may name places in the definitions of the whole. */
static void put_value(struct maker *m, const json_t *tool, const char *where, const json_t *schema)
{
    static const char *const shared[] = {"$defs", "definitions"};
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type) && strcmp(json_string_value(type), "string") == 0) {
        put_string(m, tool, where, schema);
        return;
    }
    json_t *own = json_copy((json_t *)schema);
    for (size_t i = 0; json_is_object(own) && i < sizeof shared / sizeof *shared; i++) {
        json_t *defs = json_object_get(schema_of(tool), shared[i]);
        if (defs && !json_object_get(own, shared[i])) json_object_set(own, shared[i], defs);
    }
    put_schema(m, own);
    json_decref(own);
}

static void put_pair(struct maker *m, const json_t *tool, const char *key, const json_t *schema,
                     bool required)
{
    char where[160];
    snprintf(where, sizeof where, "#/properties/%.100s", key);
    if (!may_stand(key, strlen(key)) || strstr(key, "</arg_key>"))
        fail(m, tool, "%s: this name cannot be written in a tool call of this model", where);
    fputs("(", m->out);
    put_marker(m, "<arg_key>");
    put_text(m, key, strlen(key));
    put_marker(m, "</arg_key>");
    fputs("\"\\n\"? ", m->out);
    put_marker(m, "<arg_value>");
    put_value(m, tool, where, schema);
    put_marker(m, "</arg_value>");
    fprintf(m->out, "\"\\n\"?)%s ", required ? "" : "?");
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

static void put_pairs_of(struct maker *m, const json_t *tool)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties",
                                        NULL};
    const json_t *schema = schema_of(tool), *properties = json_object_get(schema, "properties");
    const json_t *type = json_object_get(schema, "type");
    json_t *more = json_object_get(schema, "additionalProperties"), *v, *any = json_true();
    const char *key;
    size_t i;
    if (schema) check_keywords(m, tool, schema, "#", known);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0))
        fail(m, tool, "#: the type of the parameters must be object");
    fprintf(m->out, "arguments-of-%s ::= ", name_of(tool));
    json_object_foreach((json_t *)properties, key, v)
    {
        if (!json_is_false(v) || is_required(schema, key))
            put_pair(m, tool, key, v, is_required(schema, key));
    }
    json_array_foreach(json_object_get(schema, "required"), i, v)
    {
        if (!json_is_string(v) || json_object_get(properties, json_string_value(v))) continue;
        if (json_is_false(more)) fail(m, tool, "#/required: no value can match");
        put_pair(m, tool, json_string_value(v), more ? more : any, true);
    }
    fputs("\"\"\n", m->out);
    json_decref(any);
}

static void put_pairs(struct maker *m)
{
    size_t i;
    json_t *tool;
    fputs("call ::= ", m->out);
    put_marker(m, "<tool_call>");
    fputs("\"\\n\"? (", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool)
    {
        fprintf(m->out, "%s\"%s\" \"\\n\"? arguments-of-%s", i ? " | " : "", name_of(tool),
                name_of(tool));
    }
    fputs(") ", m->out);
    put_marker(m, "</tool_call>");
    fputs("\n", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool) put_pairs_of(m, tool);
    put_free_text(m);
}

/* ---- all styles ---- */

/* Mistral's newer form: the name after the marker, then the arguments. */
static void put_named(struct maker *m)
{
    size_t i;
    json_t *tool;
    fputs("call ::= ", m->out);
    put_marker(m, "[TOOL_CALLS]");
    fputs("gap (", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool)
    {
        fprintf(m->out, "%s\"%s\" args arguments-of-%s", i ? " | " : "", name_of(tool),
                name_of(tool));
    }
    fputs(")\nargs ::= ", m->out);
    if (m->must->format.row == &chat_formats[CHAT_MISTRAL_ID]) {
        put_marker(m, "[CALL_ID]");
        fputs("[a-zA-Z0-9]{9} ", m->out);
    }
    put_marker(m, "[ARGS]");
    fputs("gap\n", m->out);
    json_array_foreach((json_t *)m->must->tools, i, tool) put_arguments(m, tool);
}

/* Blanks before a call and beside markers belong to them: a token may begin with one, and some
 * tokenizers put one after a control token. */
static void put_root(struct maker *m, const char *calls, const char *between)
{
    fprintf(m->out, "gap ::= \" \"? \"\\n\"?\nroot ::= [ \\n]{0,2} %s call", calls);
    if (m->must->many) fprintf(m->out, " (%s call){0,%d}", between, MAX_CALLS - 1);
}

static void put_grammar(struct maker *m)
{
    struct tools_format format = m->must->format;
    if (format.row == &chat_formats[CHAT_MISTRAL]) {
        fputs("list ::= ", m->out);
        put_marker(m, "[TOOL_CALLS]");
        fputs("gap \"[\"\ncall ::= object\n", m->out);
        put_root(m, "list", "\",\" gap");
        fputs(" \"]\"\n", m->out);
        put_objects(m, "arguments");
    } else if (format.row->bare) {
        bool has_marker = m->must->control && m->must->control(m->must->ctx, "<|python_tag|>") >= 0;
        if (has_marker) {
            fputs("tag ::= ", m->out);
            put_marker(m, "<|python_tag|>");
            fputs("\n", m->out);
        }
        put_root(m, has_marker ? "tag?" : "", "\";\" gap");
        fputs("\ncall ::= object\n", m->out);
        put_objects(m, "parameters");
    } else {
        put_root(m, "", "gap");
        fputs("\n", m->out);
        if (format.row->syntax == CHAT_NAMED)
            put_named(m);
        else if (format.row->syntax == CHAT_PAIRS)
            put_pairs(m);
        else
            put_tagged(m);
    }
}

char *tools_grammar(const struct tools_must *must, char *why, size_t why_cap)
{
    char *text = NULL;
    size_t n = 0;
    struct maker m = {
        .must = must, .out = open_memstream(&text, &n), .why = why, .why_cap = why_cap};
    if (why_cap) *why = 0;
    if (!m.out) return NULL;
    enum chat_format_id id = (enum chat_format_id)(must->format.row - chat_formats);
    bool known = id == CHAT_HERMES || id == CHAT_GLM || id == CHAT_LLAMA || id == CHAT_MISTRAL ||
                 id == CHAT_MISTRAL_ARGS || id == CHAT_MISTRAL_ID;
    if (known)
        put_grammar(&m);
    else
        fail(&m, json_array_get(must->tools, 0),
             "a call cannot be required in the format that this model writes (%s)",
             must->format.row->name);
    bool written = !ferror(m.out);
    if (fclose(m.out) == 0 && written && !m.failed) return text;
    free(text);
    return NULL;
}

bool tools_has_control(struct tools_format format, tools_control *control, void *ctx)
{
    const char *markers[CHAT_MAX_MARKERS];
    size_t n = chat_markers(format.row, markers);
    for (size_t i = 0; i < n; i++)
        if (control(ctx, markers[i]) >= 0) return true;
    return false;
}

char *tools_describe(const json_t *tools)
{
    char *list = json_dumps(tools, JSON_COMPACT), *text = NULL;
    if (list && asprintf(&text,
                         "To call a function, write its name and arguments as JSON, like this:\n"
                         "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
                         "The following functions are available: %s",
                         list) < 0)
        text = NULL;
    free(list);
    return text;
}
