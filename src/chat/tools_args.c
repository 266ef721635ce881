/* Arguments of calls, as the formats write them, become JSON. */
#include <stdlib.h>
#include <string.h>

#include "chat/tools_internal.h"

enum { MAX_DEPTH = 64 };

/* ---- text ---- */

bool text_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

struct text text_skip_blanks(struct text s)
{
    while (s.n && text_is_blank(*s.p)) s.p++, s.n--;
    return s;
}

struct text text_skip(struct text s, size_t n)
{
    return (struct text){s.p + n, s.n - n};
}

bool text_starts(struct text s, const char *with)
{
    size_t n = with ? strlen(with) : 0;
    return n && s.n >= n && memcmp(s.p, with, n) == 0;
}

bool text_may_become(struct text s, const char *whole)
{
    return whole && s.n < strlen(whole) && (!s.n || memcmp(s.p, whole, s.n) == 0);
}

size_t text_find(struct text s, const char *marker)
{
    const char *hit = s.n ? memmem(s.p, s.n, marker, strlen(marker)) : NULL;
    if (hit) return (size_t)(hit - s.p);
    size_t i = s.n - (s.n < strlen(marker) ? s.n : strlen(marker) - 1);
    while (i < s.n && !text_may_become(text_skip(s, i), marker)) i++;
    return i;
}

size_t text_rtrim(struct text s)
{
    while (s.n && text_is_blank(s.p[s.n - 1])) s.n--;
    return s.n;
}

/* ---- spans ---- */

/* The length of a mark at the front; 0: none is there; *cut: it may be one when more comes. */
static size_t mark_at(struct text s, const char *mark, bool *cut)
{
    *cut = text_may_become(s, mark);
    return text_starts(s, mark) ? strlen(mark) : 0;
}

static bool is_quote(char c, enum span_kind kind)
{
    return kind != SPAN_QUOTED && (c == '"' || (c == '\'' && kind == SPAN_PYTHON));
}

bool span_read(struct span *span, enum span_kind kind, const char *mark, struct text s)
{
    if (span->at && !span->depth && !span->quote) return true;
    while (span->at < s.n) {
        char c = s.p[span->at];
        bool cut = false;
        size_t n = kind == SPAN_QUOTED ? mark_at(text_skip(s, span->at), mark, &cut) : 0;
        if (cut) return false;
        span->at += n ? n : 1;
        if (n)
            span->quote = span->quote ? 0 : '"';
        else if (span->escaped)
            span->escaped = false;
        else if (span->quote && c == '\\' && kind != SPAN_QUOTED)
            span->escaped = true;
        else if (span->quote && c == span->quote && kind != SPAN_QUOTED)
            span->quote = 0;
        else if (span->quote)
            continue;
        else if (is_quote(c, kind))
            span->quote = c;
        else if (strchr("{[(", c) && (c != '(' || kind == SPAN_PYTHON))
            span->depth++;
        else if (strchr("}])", c) && (c != ')' || kind == SPAN_PYTHON) && span->depth)
            span->depth--;
        if (!span->depth && !span->quote) return true;
    }
    return false;
}

bool span_begins(struct text s)
{
    return s.n && (*s.p == '{' || *s.p == '[' || *s.p == '"');
}

/* ---- JSON as it is written ---- */

json_t *read_json(struct text s)
{
    return json_loadb(
        s.p, s.n,
        JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

char *write_json(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
}

/* Splits the value at the front of valid JSON off. */
static struct text value_split(struct text *s)
{
    *s = text_skip_blanks(*s);
    size_t n = 0;
    if (span_begins(*s)) {
        struct span span = {0};
        span_read(&span, SPAN_JSON, NULL, *s);
        n = span.at;
    } else
        while (n < s->n && !text_is_blank(s->p[n]) && !strchr(",:]}", s->p[n])) n++;
    struct text value = {s->p, n};
    *s = text_skip_blanks(text_skip(*s, n));
    return value;
}

/* The value of a key in a valid object, or n = 0. */
static struct text member(struct text object, const char *key)
{
    struct text s = text_skip_blanks(text_skip(object, 1));
    while (s.n && *s.p == '"') {
        struct text name = value_split(&s);
        s = text_skip(s, s.n > 0); /* : */
        struct text value = value_split(&s);
        if (name.n == strlen(key) + 2 && memcmp(name.p + 1, key, name.n - 2) == 0) return value;
        s = text_skip_blanks(text_skip(s, s.n > 0)); /* , */
    }
    return (struct text){NULL, 0};
}

const json_t *tool_find(const json_t *tools, struct text name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_object_get(json_array_get(tools, i), "function");
        const json_t *its = json_object_get(tool, "name");
        if (its && json_string_length(its) == name.n &&
            memcmp(json_string_value(its), name.p, name.n) == 0)
            return tool;
    }
    return NULL;
}

const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(tool, "name"));
}

static const char *first_key(const json_t *object, const char *const *keys)
{
    while (*keys && !json_object_get(object, *keys)) keys++;
    return *keys;
}

/* The name of the tool and the arguments as they are written, of one object; or NULL. own: frees
 * the arguments where they were a text that holds JSON. */
static const char *read_object(const json_t *tools, struct text raw, const json_t *call,
                               struct text *arguments, json_t **own)
{
    static const char *const name_keys[] = {"name", "tool_name", NULL};
    static const char *const args_keys[] = {"arguments", "parameters", NULL};
    const json_t *inner = json_object_get(call, "function");
    if (json_is_object(inner)) {
        raw = member(raw, "function");
        call = inner;
    }
    const char *name_key = first_key(call, name_keys), *args_key = first_key(call, args_keys);
    const json_t *name = name_key ? json_object_get(call, name_key) : NULL;
    const json_t *args = args_key ? json_object_get(call, args_key) : NULL;
    if (!json_is_string(name)) return NULL;
    const json_t *tool =
        tool_find(tools, (struct text){json_string_value(name), json_string_length(name)});
    if (!tool) return NULL;
    *arguments = (struct text){"{}", 2};
    if (json_is_object(args))
        *arguments = member(raw, args_key);
    else if (json_is_string(args)) {
        *arguments = (struct text){json_string_value(args), json_string_length(args)};
        *own = read_json(*arguments);
        if (!json_is_object(*own)) return NULL;
    } else if (args)
        return NULL;
    return arguments->n ? tool_name(tool) : NULL;
}

/* The same of {"NAME": {arguments}}. */
static const char *read_keyed(const json_t *tools, struct text raw, const json_t *call,
                              struct text *arguments)
{
    const char *key = json_object_iter_key(json_object_iter((json_t *)call));
    const json_t *tool = key ? tool_find(tools, (struct text){key, strlen(key)}) : NULL;
    if (!tool || json_object_size(call) != 1 || !json_is_object(json_object_get(call, key)))
        return NULL;
    *arguments = member(raw, key);
    return arguments->n ? tool_name(tool) : NULL;
}

bool read_objects(const json_t *tools, bool name_is_key, struct text raw, take_call *take,
                  void *ctx)
{
    json_t *j = read_json(raw);
    size_t n = json_is_array(j) ? json_array_size(j) : json_is_object(j);
    bool good = n > 0;
    for (int taking = 0; taking < 2 && good; taking++) {
        struct text rest = json_is_array(j) ? text_skip(raw, 1) : raw;
        for (size_t i = 0; i < n && good; i++) {
            struct text arguments, object = value_split(&rest);
            json_t *own = NULL, *one = json_is_array(j) ? json_array_get(j, i) : j;
            const char *name = name_is_key ? read_keyed(tools, object, one, &arguments)
                                           : read_object(tools, object, one, &arguments, &own);
            good = name != NULL;
            if (good && taking) take(ctx, name, arguments);
            json_decref(own);
            rest = text_skip(rest, rest.n > 0); /* , */
        }
    }
    json_decref(j);
    return good;
}

/* ---- values without quotes ---- */

enum {
    KIND_STRING = 1,
    KIND_NUMBER = 2,
    KIND_BOOLEAN = 4,
    KIND_NULL = 8,
    KIND_ARRAY = 16,
    KIND_OBJECT = 32,
    KIND_ANY = 63,
};

static int kind_of(const json_t *v)
{
    static const int kinds[] = {
        [JSON_OBJECT] = KIND_OBJECT,  [JSON_ARRAY] = KIND_ARRAY, [JSON_STRING] = KIND_STRING,
        [JSON_INTEGER] = KIND_NUMBER, [JSON_REAL] = KIND_NUMBER, [JSON_TRUE] = KIND_BOOLEAN,
        [JSON_FALSE] = KIND_BOOLEAN,  [JSON_NULL] = KIND_NULL};
    return kinds[json_typeof(v)];
}

static int kind_named(const json_t *name)
{
    static const struct {
        char name[8];
        int kind;
    } rows[] = {{"string", KIND_STRING},   {"number", KIND_NUMBER}, {"integer", KIND_NUMBER},
                {"boolean", KIND_BOOLEAN}, {"null", KIND_NULL},     {"array", KIND_ARRAY},
                {"object", KIND_OBJECT}};
    for (size_t i = 0; json_is_string(name) && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(json_string_value(name), rows[i].name) == 0) return rows[i].kind;
    return 0;
}

/* The definition in the root that a reference names, or NULL. */
static const json_t *resolve(const json_t *root, const json_t *ref)
{
    const char *at = json_string_value(ref);
    if (!at || strncmp(at, "#/", 2) != 0) return NULL;
    for (at += 2; root && *at;) {
        char key[128];
        size_t n = strcspn(at, "/");
        if (n >= sizeof key) return NULL;
        memcpy(key, at, n);
        key[n] = 0;
        root = json_object_get(root, key);
        at += n + (at[n] == '/');
    }
    return root;
}

/* The kinds of value that a schema allows, as far as is told by its types, values and parts. */
static int schema_kinds(const json_t *root, const json_t *schema, int depth)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const"), *v;
    int kinds = KIND_ANY, some = 0;
    size_t i;
    if (depth > 8) return KIND_ANY;
    if (json_object_get(schema, "$ref"))
        kinds &= schema_kinds(root, resolve(root, json_object_get(schema, "$ref")), depth + 1);
    json_array_foreach((json_t *)type, i, v) some |= kind_named(v);
    some |= kind_named(type);
    if (some) kinds &= some;
    some = only ? kind_of(only) : 0;
    json_array_foreach((json_t *)values, i, v) some |= kind_of(v);
    if (some) kinds &= some;
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        some = 0;
        json_array_foreach(json_object_get(schema, choices[k]), i, v) some |=
            schema_kinds(root, v, depth + 1);
        if (some) kinds &= some;
    }
    return kinds ? kinds : KIND_ANY;
}

static const json_t *member_schema(const json_t *tool, const char *key)
{
    return json_object_get(json_object_get(json_object_get(tool, "parameters"), "properties"), key);
}

bool value_is_text(const json_t *tool, const char *key)
{
    const json_t *type = json_object_get(member_schema(tool, key), "type");
    return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
}

/* As Python spells them, which templates written in Jinja2 show the model. */
static json_t *read_word(struct text s)
{
    static const struct {
        char word[6];
        json_type type;
    } words[] = {{"True", JSON_TRUE}, {"False", JSON_FALSE}, {"None", JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (s.n == strlen(words[i].word) && memcmp(s.p, words[i].word, s.n) == 0)
            return words[i].type == JSON_NULL ? json_null()
                                              : json_boolean(words[i].type == JSON_TRUE);
    return NULL;
}

/* ---- Python and Gemma's ---- */

struct reader {
    struct text s;
    const char *quote; /* around strings; NULL: Python's */
    bool failed;
};

static void blanks(struct reader *r)
{
    r->s = text_skip_blanks(r->s);
}

/* Takes a character, if it comes next after blanks. */
static bool accept(struct reader *r, char c)
{
    blanks(r);
    if (!r->s.n || *r->s.p != c) return false;
    r->s = text_skip(r->s, 1);
    return true;
}

static json_t *fail(struct reader *r)
{
    r->failed = true;
    return NULL;
}

static struct text word(struct reader *r, const char *ends)
{
    struct text s = {r->s.p, 0};
    while (s.n < r->s.n && r->s.p[s.n] && !strchr(ends, r->s.p[s.n])) s.n++;
    r->s = text_skip(r->s, s.n);
    return s;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* n digits at p; -1: there are others. */
static long hex(const char *p, size_t n)
{
    long value = 0;
    for (size_t i = 0; i < n; i++) {
        if (hex_digit(p[i]) < 0) return -1;
        value = 16 * value + hex_digit(p[i]);
    }
    return value;
}

static size_t put_utf8(char *to, unsigned long c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) {
        *to = (char)c;
        return 1;
    }
    for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((0xff00u >> n & 0xff) | c);
    return n;
}

/* What a backslash and the text after it mean; how many bytes were read after the backslash, 0
 * when it means itself. */
static size_t unescape(struct text s, char *to, size_t *n_to)
{
    static const char letters[] = "n\nt\tr\rb\bf\f\"\"''\\\\//";
    *n_to = 1;
    if (!s.n) return 0;
    for (const char *l = letters; *l; l += 2)
        if (*l == *s.p) return *to = l[1], 1;
    size_t n = *s.p == 'x' ? 2 : *s.p == 'u' ? 4 : *s.p == 'U' ? 8 : 0;
    if (!n || s.n < n + 1) return 0;
    long c = hex(s.p + 1, n), low;
    size_t used = n + 1;
    if (c >= 0xd800 && c < 0xdc00 && n == 4 && s.n >= 11 && s.p[5] == '\\' && s.p[6] == 'u' &&
        (low = hex(s.p + 7, 4)) >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        used = 11;
    }
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *n_to = put_utf8(to, (unsigned long)c);
    return used;
}

static json_t *python_string(struct reader *r)
{
    char quote = *r->s.p, *text = malloc(r->s.n + 8);
    size_t n = 0;
    bool closed = false;
    r->s = text_skip(r->s, 1);
    while (text && r->s.n && !closed) {
        char c = *r->s.p;
        r->s = text_skip(r->s, 1);
        if (c == quote) {
            closed = true;
        } else if (c != '\\') {
            text[n++] = c;
        } else {
            size_t n_to, used = unescape(r->s, text + n, &n_to);
            if (!used) text[n] = '\\';
            n += n_to;
            r->s = text_skip(r->s, used);
        }
    }
    json_t *v = closed ? json_stringn(text, n) : NULL;
    free(text);
    return v ? v : fail(r);
}

static json_t *marked_string(struct reader *r)
{
    r->s = text_skip(r->s, strlen(r->quote));
    const char *hit = r->s.n ? memmem(r->s.p, r->s.n, r->quote, strlen(r->quote)) : NULL;
    if (!hit) return fail(r);
    size_t n = (size_t)(hit - r->s.p);
    json_t *v = json_stringn(r->s.p, n);
    r->s = text_skip(r->s, n + strlen(r->quote));
    return v ? v : fail(r);
}

static bool at_string(const struct reader *r)
{
    if (r->quote) return text_starts(r->s, r->quote);
    return r->s.n && (*r->s.p == '"' || *r->s.p == '\'');
}

static json_t *read_value(struct reader *r, int depth);

/* After an item: a comma, or the end, which stays. */
static void end_item(struct reader *r, char end)
{
    if (accept(r, ',')) return;
    if (!r->s.n || *r->s.p != end) r->failed = true;
}

static json_t *read_list(struct reader *r, char end, int depth)
{
    json_t *list = json_array();
    while (!r->failed && !accept(r, end)) {
        if (json_array_append_new(list, read_value(r, depth))) r->failed = true;
        end_item(r, end);
    }
    return list;
}

static json_t *read_key(struct reader *r)
{
    blanks(r);
    if (at_string(r)) return r->quote ? marked_string(r) : python_string(r);
    struct text name = word(r, " \n\r\t=:,()[]{}\"'");
    return name.n ? json_stringn(name.p, name.n) : NULL;
}

/* Members until `end`; `between` stands after each key. */
static json_t *read_members(struct reader *r, char between, char end, int depth)
{
    json_t *object = json_object();
    while (!r->failed && !accept(r, end)) {
        json_t *key = read_key(r);
        const char *text = json_string_value(key);
        bool good = text && strlen(text) == json_string_length(key) &&
                    !json_object_get(object, text) && accept(r, between);
        json_t *v = good ? read_value(r, depth) : NULL;
        if (!v || json_object_set_new(object, text, v)) r->failed = true;
        json_decref(key);
        end_item(r, end);
    }
    return object;
}

static json_t *read_value(struct reader *r, int depth)
{
    json_t *v;
    blanks(r);
    if (depth > MAX_DEPTH || !r->s.n) return fail(r);
    if (at_string(r)) return r->quote ? marked_string(r) : python_string(r);
    if (accept(r, '[')) return read_list(r, ']', depth + 1);
    if (!r->quote && accept(r, '(')) return read_list(r, ')', depth + 1);
    if (accept(r, '{')) return read_members(r, ':', '}', depth + 1);
    struct text raw = word(r, r->quote ? ",]}" : ",]})( \n\r\t");
    raw.n = text_rtrim(raw);
    if (!(v = json_loadb(raw.p, raw.n, JSON_DECODE_ANY, NULL)) && !(v = read_json(raw)))
        v = read_word(raw);
    if (!v && r->quote && raw.n) v = json_stringn(raw.p, raw.n); /* a word */
    return v ? v : fail(r);
}

json_t *read_quoted(struct text raw, const char *quote)
{
    struct reader r = {.s = raw, .quote = quote};
    json_t *v = read_value(&r, 0);
    blanks(&r);
    if (!r.failed && !r.s.n && json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

/* As Jinja prints a value that is not made JSON. */
static json_t *read_literal(struct text s)
{
    struct reader r = {.s = s};
    json_t *v = read_value(&r, 0);
    blanks(&r);
    if (!r.failed && !r.s.n) return v;
    json_decref(v);
    return NULL;
}

json_t *value_read(const json_t *tool, const char *key, enum value_form form, struct text s)
{
    int kinds = form == VALUE_JSON ? KIND_ANY
                                   : schema_kinds(json_object_get(tool, "parameters"),
                                                  member_schema(tool, key), 0);
    if (form == VALUE_TEXT || (form == VALUE_BY_SCHEMA && value_is_text(tool, key)))
        return json_stringn(s.p, s.n);
    struct text trimmed = text_skip_blanks(s);
    trimmed.n = text_rtrim(trimmed);
    json_t *v =
        json_loadb(s.p, s.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!v) v = read_json(s); /* numbers beyond 64 bits */
    if (!v && !(kinds & KIND_STRING)) v = read_literal(trimmed);
    if (v && kind_of(v) & kinds) return v;
    /* a text that happens to be JSON of another kind, unless a text is not allowed either */
    if (v && !(kinds & KIND_STRING)) return v;
    json_decref(v);
    return json_stringn(s.p, s.n);
}

/* name(key=value, ..) */
static bool read_python_call(struct reader *r, const json_t *tools, take_call *take, void *ctx)
{
    blanks(r);
    struct text name = word(r, " \n\r\t=:,()[]{}\"'");
    const json_t *tool = tool_find(tools, name);
    if (!tool || !accept(r, '(')) return false;
    json_t *arguments = read_members(r, '=', ')', 0);
    char *text = r->failed ? NULL : write_json(arguments);
    if (text && take) take(ctx, tool_name(tool), (struct text){text, strlen(text)});
    bool good = text != NULL;
    free(text);
    json_decref(arguments);
    return good;
}

bool read_python(const json_t *tools, struct text raw, take_call *take, void *ctx)
{
    bool good = true;
    for (int taking = 0; taking < 2 && good; taking++) {
        struct reader r = {.s = raw};
        good = accept(&r, '[');
        do good = good && read_python_call(&r, tools, taking ? take : NULL, ctx);
        while (good && accept(&r, ','));
        good = good && accept(&r, ']') && !text_skip_blanks(r.s).n;
    }
    return good;
}
