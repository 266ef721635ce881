/* The parser keeps what it can't pass on yet in one buffer. Its states take bytes from the front:
 * start (may be <think>), thinking, saying, and calling, where the buffer begins with the blanks
 * and the marker of what looks like a call. Searches remember where they were, so that an answer
 * costs time by its length however it is cut. */
#include "chat/tools.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 256, ID_CHARS = 9 }; /* Mistral's templates want ids of nine */

static const char think_open[] = "<think>", think_close[] = "</think>";
static const char call_open[] = "<tool_call>", call_close[] = "</tool_call>";
static const char value_open[] = "<arg_value>", value_close[] = "</arg_value>";
static const char args_mark[] = "[ARGS]", id_mark[] = "[CALL_ID]";

static const char *const markers[] = {
    [TOOLS_TAGGED] = call_open,
    [TOOLS_PAIRS] = call_open,
    [TOOLS_BARE] = "<|python_tag|>",
    [TOOLS_LISTED] = "[TOOL_CALLS]",
};

struct text {
    const char *p;
    size_t n;
};

/* A JSON value of which the beginning is there: how far it was read. An object, array or string. */
struct span {
    size_t at;
    uint32_t depth;
    bool quoted, escaped;
};

/* A call of GLM's of which the beginning is there. Places count from `from`. */
struct pairs {
    size_t at;          /* what stands before it was taken: the name, and whole pairs */
    size_t value;       /* where the value begins that is being read; 0: none is */
    bool may_be_json;   /* that value */
    bool named, bad;    /* the name was taken; what was taken is no call */
    const json_t *tool; /* NULL: unknown */
    json_t *key, *arguments;
};

enum state { START, THINKING, SAYING, CALLING };

struct tools {
    struct tools_params p;
    enum state state;
    char *held;
    size_t n, cap, from; /* held[from..n) is what has not been passed on */
    bool trim;           /* blanks at the front go with the marker before them */
    bool bare;           /* a call may begin here without a marker */
    size_t body, seen;   /* calling: where the call's text begins, what was searched; from `from` */
    struct span span;
    struct pairs pairs;
    bool texts; /* a value began like JSON and was none: all are taken for texts from there on */
    uint32_t n_calls;
};

/* ---- text ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static struct text skip_blanks(struct text s)
{
    while (s.n && is_blank(*s.p)) s.p++, s.n--;
    return s;
}

static struct text skip(struct text s, size_t n)
{
    return (struct text){s.p + n, s.n - n};
}

static bool starts(struct text s, const char *with)
{
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p, with, n) == 0;
}

/* Whether s is a beginning of a longer `whole`. */
static bool may_become(struct text s, const char *whole)
{
    return s.n < strlen(whole) && memcmp(s.p, whole, s.n) == 0;
}

/* Where a marker begins, or could begin at the end of s; s.n when nowhere. */
static size_t find(struct text s, const char *marker)
{
    const char *hit = memmem(s.p, s.n, marker, strlen(marker));
    if (hit) return (size_t)(hit - s.p);
    size_t i = s.n - (s.n < strlen(marker) ? s.n : strlen(marker) - 1);
    while (i < s.n && !may_become(skip(s, i), marker)) i++;
    return i;
}

/* The length of s without blanks at its end. */
static size_t rtrim(struct text s)
{
    while (s.n && is_blank(s.p[s.n - 1])) s.n--;
    return s.n;
}

/* ---- JSON as it is written ---- */

/* Goes on reading an object, array or string that begins at s.p; true when its end was found, at
 * span->at. Says nothing about what is inside. */
static bool span_read(struct span *span, struct text s)
{
    if (span->at && !span->depth && !span->quoted) return true;
    for (; span->at < s.n; span->at++) {
        char c = s.p[span->at];
        if (span->escaped)
            span->escaped = false;
        else if (span->quoted && c == '\\')
            span->escaped = true;
        else if (c == '"')
            span->quoted = !span->quoted;
        else if (span->quoted)
            continue;
        else if (c == '{' || c == '[')
            span->depth++;
        else if (c == '}' || c == ']')
            span->depth--;
        if (!span->depth && !span->quoted) {
            span->at++;
            return true;
        }
    }
    return false;
}

/* Does an object, array or string begin here? */
static bool is_spanned(struct text s)
{
    return s.n && (*s.p == '{' || *s.p == '[' || *s.p == '"');
}

/* Splits the value at the front of valid JSON off. */
static struct text value_split(struct text *s)
{
    *s = skip_blanks(*s);
    size_t n = 0;
    if (is_spanned(*s)) {
        struct span span = {0};
        span_read(&span, *s);
        n = span.at;
    } else
        while (n < s->n && !is_blank(s->p[n]) && !strchr(",:]}", s->p[n])) n++;
    struct text value = {s->p, n};
    *s = skip_blanks(skip(*s, n));
    return value;
}

/* The value of a key in a valid object, or n = 0. */
static struct text member(struct text object, const char *key)
{
    struct text s = skip_blanks(skip(object, 1));
    while (s.n && *s.p == '"') {
        struct text name = value_split(&s);
        s = skip(s, s.n > 0); /* : */
        struct text value = value_split(&s);
        if (name.n == strlen(key) + 2 && memcmp(name.p + 1, key, name.n - 2) == 0) return value;
        s = skip_blanks(skip(s, s.n > 0)); /* , */
    }
    return (struct text){NULL, 0};
}

static json_t *parse(struct text s)
{
    return json_loadb(
        s.p, s.n,
        JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

/* ---- pieces ---- */

static void pass(struct tools *t, enum tools_part part, size_t n)
{
    struct tools_piece piece = {.part = part, .text = t->held + t->from, .n = n};
    if (n) t->p.on_piece(t->p.ctx, &piece);
    t->from += n;
}

/* The same calls of the same request have the same ids. */
static void make_id(char id[ID_CHARS + 1], uint64_t seed, uint32_t index)
{
    static const char chars[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    for (int i = 0; i < ID_CHARS; i++, x /= 62) id[i] = chars[x % 62];
    id[ID_CHARS] = 0;
}

static void pass_call(struct tools *t, const char *name, struct text arguments)
{
    char id[ID_CHARS + 1];
    make_id(id, t->p.seed, t->n_calls);
    struct tools_piece piece = {TOOLS_CALL, arguments.p, arguments.n, t->n_calls++, id, name};
    t->p.on_piece(t->p.ctx, &piece);
}

/* ---- calls ---- */

static const json_t *find_tool(const json_t *tools, struct text name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_object_get(json_array_get(tools, i), "function");
        const json_t *its = json_object_get(tool, "name");
        if (json_string_length(its) == name.n && its &&
            memcmp(json_string_value(its), name.p, name.n) == 0)
            return tool;
    }
    return NULL;
}

/* The name of the tool and the arguments as they are written, of one object; or NULL. own: frees
 * the arguments where they were a text that holds JSON. */
static const char *read_call(const struct tools *t, struct text raw, const json_t *call,
                             struct text *arguments, json_t **own)
{
    const json_t *inner = json_object_get(call, "function");
    if (json_is_object(inner)) {
        raw = member(raw, "function");
        call = inner;
    }
    const json_t *name = json_object_get(call, "name"), *args = json_object_get(call, "arguments");
    const char *key = args ? "arguments" : "parameters";
    args = json_object_get(call, key);
    if (!json_is_string(name)) return NULL;
    const json_t *tool =
        find_tool(t->p.tools, (struct text){json_string_value(name), json_string_length(name)});
    if (!tool) return NULL;
    *arguments = (struct text){"{}", 2};
    if (json_is_object(args))
        *arguments = member(raw, key);
    else if (json_is_string(args)) {
        *arguments = (struct text){json_string_value(args), json_string_length(args)};
        *own = parse(*arguments);
        if (!json_is_object(*own)) return NULL;
    } else if (args)
        return NULL;
    return arguments->n ? json_string_value(json_object_get(tool, "name")) : NULL;
}

/* One object or an array of them: all are good, or none is passed on. */
static bool take_json(struct tools *t, struct text raw)
{
    json_t *j = parse(raw);
    size_t n = json_is_array(j) ? json_array_size(j) : json_is_object(j);
    bool good = n > 0;
    for (int passing = 0; passing < 2 && good; passing++) {
        struct text rest = json_is_array(j) ? skip(raw, 1) : raw;
        for (size_t i = 0; i < n && good; i++) {
            struct text arguments, object = value_split(&rest);
            json_t *own = NULL;
            const char *name =
                read_call(t, object, json_is_array(j) ? json_array_get(j, i) : j, &arguments, &own);
            good = name != NULL;
            if (good && passing) pass_call(t, name, arguments);
            json_decref(own);
            rest = skip(rest, rest.n > 0); /* , */
        }
    }
    json_decref(j);
    return good;
}

static bool take_named(struct tools *t, struct text name, struct text raw)
{
    const json_t *tool = find_tool(t->p.tools, name);
    json_t *j = parse(raw);
    bool good = tool && json_is_object(j);
    if (good) pass_call(t, json_string_value(json_object_get(tool, "name")), raw);
    json_decref(j);
    return good;
}

/* ---- GLM's pairs ---- */

/* Splits s at the marker; false when there is none. */
static bool cut(struct text *s, const char *marker, struct text *before)
{
    const char *hit = memmem(s->p, s->n, marker, strlen(marker));
    if (!hit) return false;
    *before = (struct text){s->p, (size_t)(hit - s->p)};
    *s = skip(*s, before->n + strlen(marker));
    return true;
}

/* The template writes texts as they are and everything else as JSON. */
static bool is_text(const json_t *tool, const json_t *key)
{
    const json_t *type = json_object_get(
        json_object_get(json_object_get(json_object_get(tool, "parameters"), "properties"),
                        json_string_value(key)),
        "type");
    return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
}

static json_t *pair_value(const json_t *tool, const json_t *key, struct text s)
{
    json_t *v = NULL;
    if (!is_text(tool, key))
        v = json_loadb(s.p, s.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return v ? v : json_stringn(s.p, s.n);
}

static void drop_pairs(struct tools *t)
{
    json_decref(t->pairs.key);
    json_decref(t->pairs.arguments);
    t->pairs = (struct pairs){0};
}

/* Takes the name from the front of what stands before a key or the end. */
static void take_name(struct tools *t, struct text *s)
{
    struct text name = *s;
    if (t->pairs.named) return;
    t->pairs.named = true;
    if (cut(s, "<arg_key>", &name))
        *s = (struct text){name.p + name.n, s->n + strlen("<arg_key>")};
    else
        *s = skip(*s, s->n);
    name = skip_blanks(name);
    name.n = rtrim(name);
    t->pairs.tool = find_tool(t->p.tools, name);
    t->pairs.arguments = json_object();
    t->pairs.bad = !t->pairs.tool || !t->pairs.arguments;
}

/* The value of a key begins, n bytes further on. */
static void begin_value(struct tools *t, struct text before, size_t n)
{
    struct pairs *p = &t->pairs;
    struct text key = {0}, gap;
    take_name(t, &before);
    before = skip_blanks(before);
    bool good = cut(&before, "<arg_key>", &gap) && !gap.n && cut(&before, "</arg_key>", &key) &&
                !rtrim(before);
    json_decref(p->key);
    p->key = good ? json_stringn(key.p, key.n) : NULL;
    if (!p->key || strlen(json_string_value(p->key)) != key.n) p->bad = true;
    p->may_be_json = !p->bad && !t->texts && !is_text(p->tool, p->key);
    p->value = t->seen = n;
    t->span = (struct span){0};
}

/* The value ends before `at`, and its marker before t->seen. */
static void end_value(struct tools *t, size_t at)
{
    struct pairs *p = &t->pairs;
    struct text s = {t->held + t->from + p->value, at - p->value};
    if (!p->bad && json_object_set_new(p->arguments, json_string_value(p->key),
                                       pair_value(p->tool, p->key, s)))
        p->bad = true;
    p->value = 0;
    p->at = t->seen;
}

/* The call ends after `before`; false: it is none. */
static bool end_pairs(struct tools *t, struct text before)
{
    struct pairs *p = &t->pairs;
    take_name(t, &before);
    bool good = !p->bad && !p->value && !rtrim(before);
    char *text = good ? json_dumps(p->arguments, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (text)
        pass_call(t, json_string_value(json_object_get(p->tool, "name")),
                  (struct text){text, strlen(text)});
    free(text);
    return text != NULL;
}

/* ---- states ---- */

enum progress { WAIT, GO };

static struct text front(const struct tools *t)
{
    return (struct text){t->held + t->from, t->n - t->from};
}

static enum progress start(struct tools *t, bool end)
{
    struct text s = front(t), rest = skip_blanks(s);
    if (!end && (!rest.n || may_become(rest, think_open))) return WAIT;
    t->state = SAYING;
    if (starts(rest, think_open)) {
        t->state = THINKING;
        t->from += s.n - rest.n + strlen(think_open);
        t->trim = true;
    }
    return GO;
}

/* Drops the blanks behind a marker; false when nothing else is there yet. */
static bool trimmed(struct tools *t)
{
    if (t->trim) t->from = t->n - skip_blanks(front(t)).n;
    if (t->from < t->n) t->trim = false;
    return t->from < t->n;
}

static enum progress thinking(struct tools *t, bool end)
{
    if (!trimmed(t)) return WAIT;
    struct text s = front(t);
    size_t at = find(s, think_close), n = rtrim((struct text){s.p, at});
    bool found = starts(skip(s, at), think_close);
    pass(t, TOOLS_REASONING, end && !found ? s.n : n);
    if (!found) return WAIT;
    t->from += at - n + strlen(think_close);
    t->state = SAYING;
    t->trim = true;
    return GO;
}

static enum progress begin_call(struct tools *t, size_t lead, size_t marker)
{
    t->body = t->seen = lead + marker;
    t->span = (struct span){0};
    drop_pairs(t);
    t->pairs.at = t->body;
    t->state = CALLING;
    return GO;
}

/* Between two calls of Llama there may be a semicolon. */
static bool bare_begins(struct tools *t, struct text *rest)
{
    *rest = skip_blanks(front(t));
    if (t->n_calls && rest->n && *rest->p == ';') *rest = skip_blanks(skip(*rest, 1));
    return rest->n && *rest->p == '{';
}

static enum progress saying(struct tools *t, bool end)
{
    struct text s, rest;
    if (!trimmed(t)) return WAIT;
    s = front(t);
    if (t->bare) {
        if (bare_begins(t, &rest)) return begin_call(t, s.n - rest.n, 0);
        if (!rest.n && !end) return WAIT;
        t->bare = false;
    }
    if (!t->p.tools) {
        pass(t, TOOLS_CONTENT, s.n);
        return WAIT;
    }
    const char *marker = markers[t->p.format.style];
    size_t at = find(s, marker), lead = at - rtrim((struct text){s.p, at});
    bool found = starts(skip(s, at), marker);
    pass(t, TOOLS_CONTENT, end && !found ? s.n : at - lead);
    return found ? begin_call(t, lead, strlen(marker)) : WAIT;
}

/* What looked like a call, up to where that was seen, is content. */
static enum progress malformed(struct tools *t, size_t n)
{
    pass(t, TOOLS_CONTENT, n);
    t->state = SAYING;
    t->bare = t->trim = false;
    return GO;
}

static enum progress called(struct tools *t, size_t n)
{
    t->from += n;
    t->state = SAYING;
    t->trim = true;
    t->bare = t->p.format.style == TOOLS_BARE;
    return GO;
}

/* Where one of two markers begins, or could begin at the end of s; s.n when nowhere. */
static size_t find_either(struct text s, const char *a, const char *b)
{
    for (size_t i = 0; i < s.n; i++) {
        const char *hit = memchr(s.p + i, '<', s.n - i);
        if (!hit) break;
        i = (size_t)(hit - s.p);
        struct text rest = skip(s, i);
        if (starts(rest, a) || starts(rest, b) || may_become(rest, a) || may_become(rest, b))
            return i;
    }
    return s.n;
}

/* Reads on in a value that may be JSON, in whose strings markers mean nothing. */
static enum progress reading_json(struct tools *t, struct text s, bool end)
{
    struct text value = skip_blanks(skip(s, t->pairs.value));
    if (!value.n && !end) return WAIT;
    t->pairs.may_be_json = false;
    if (!is_spanned(value)) return GO;
    bool whole = span_read(&t->span, value);
    struct text tail = skip_blanks(skip(value, t->span.at));
    if (whole && starts(tail, value_close)) {
        t->seen = s.n - tail.n + strlen(value_close);
        end_value(t, s.n - tail.n);
        return GO;
    }
    if (end || (whole && !may_become(tail, value_close))) {
        t->texts = true;
        return GO;
    }
    t->pairs.may_be_json = true;
    return WAIT;
}

static enum progress calling_pairs(struct tools *t, bool end)
{
    struct text s = front(t);
    if (t->pairs.may_be_json) return reading_json(t, s, end);
    const char *marker = t->pairs.value ? value_close : value_open;
    size_t at = t->seen + find_either(skip(s, t->seen), marker, call_close);
    struct text rest = skip(s, at), before = {s.p + t->pairs.at, at - t->pairs.at};
    t->seen = at;
    if (starts(rest, call_close)) {
        size_t n = at + strlen(call_close);
        return end_pairs(t, before) ? called(t, n) : malformed(t, n);
    }
    if (!starts(rest, marker)) return end ? malformed(t, s.n) : WAIT;
    t->seen += strlen(marker);
    if (t->pairs.value)
        end_value(t, at);
    else
        begin_value(t, before, t->seen);
    return GO;
}

/* Whether the text before a call's JSON may be that: nothing, or name[ARGS] in Mistral's style.
 * Gives where the JSON begins; n when that is not known yet. */
static bool head(const struct tools *t, struct text body, struct text *name, size_t *at)
{
    struct text s = skip_blanks(body);
    *name = (struct text){s.p, 0};
    *at = body.n - s.n;
    if (!s.n || *s.p == '{') return true;
    if (t->p.format.style != TOOLS_LISTED) return false;
    if (*s.p == '[' && !may_become(s, args_mark) && !starts(s, args_mark)) return true;
    size_t mark = find(s, args_mark);
    if (mark > NAME_MAX_BYTES) return false;
    size_t id = find((struct text){s.p, mark}, id_mark);
    *name = (struct text){s.p, starts(skip((struct text){s.p, mark}, id), id_mark) ? id : mark};
    if (!starts(skip(s, mark), args_mark)) {
        *at = body.n;
        return true;
    }
    s = skip_blanks(skip(s, mark + strlen(args_mark)));
    *at = body.n - s.n;
    return !s.n || *s.p == '{';
}

/* An answer of Llama that begins with an object is a call only if its first key is one of a call's:
 * other JSON need not wait for its end. */
static bool bare_may_call(struct text object)
{
    static const char *const keys[] = {"\"name\"", "\"type\"", "\"function\"", "\"parameters\""};
    struct text s = skip_blanks(skip(object, 1));
    bool may = !s.n;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        may |= starts(s, keys[i]) || may_become(s, keys[i]);
    return may;
}

static enum progress calling_json(struct tools *t, bool end)
{
    struct text s = front(t), body = skip(s, t->body), name;
    enum tools_style style = t->p.format.style;
    size_t at;
    if (!head(t, body, &name, &at)) return malformed(t, t->body + at);
    struct text json = skip(body, at);
    if (style == TOOLS_BARE && json.n && !bare_may_call(json)) return malformed(t, t->body + at);
    bool whole = json.n && span_read(&t->span, json);
    if (!whole) return end ? malformed(t, s.n) : WAIT;
    struct text tail = skip_blanks(skip(json, t->span.at));
    if (style == TOOLS_TAGGED && !starts(tail, call_close)) {
        if (may_become(tail, call_close) && !end) return WAIT;
        if (tail.n) return malformed(t, s.n - tail.n);
    }
    json.n = t->span.at;
    size_t n = (size_t)(json.p - s.p) + json.n;
    if (style == TOOLS_TAGGED) n = s.n - tail.n + (tail.n ? strlen(call_close) : 0);
    bool good = name.n ? take_named(t, name, json) : take_json(t, json);
    return good ? called(t, n) : malformed(t, n);
}

static void advance(struct tools *t, bool end)
{
    enum progress progress = GO;
    while (progress == GO && t->from < t->n) {
        if (t->state == START)
            progress = start(t, end);
        else if (t->state == THINKING)
            progress = thinking(t, end);
        else if (t->state == SAYING)
            progress = saying(t, end);
        else if (t->p.format.style == TOOLS_PAIRS)
            progress = calling_pairs(t, end);
        else
            progress = calling_json(t, end);
    }
    if (t->from) memmove(t->held, t->held + t->from, t->n - t->from);
    t->n -= t->from;
    t->from = 0;
}

/* ---- the interface ---- */

static bool has(struct text s, const char *word)
{
    return s.n && memmem(s.p, s.n, word, strlen(word));
}

struct tools_format tools_detect(const char *template_text, size_t n)
{
    struct text s = {template_text, n};
    struct tools_format f = {.knows_tools = has(s, "tools"), .thinks = has(s, think_close)};
    if (has(s, markers[TOOLS_LISTED]))
        f.style = TOOLS_LISTED;
    else if (has(s, "<arg_key>"))
        f.style = TOOLS_PAIRS;
    else if (!has(s, call_open) && has(s, "\"parameters\": ") && f.knows_tools)
        f.style = TOOLS_BARE;
    f.names_args = f.style == TOOLS_LISTED && has(s, args_mark);
    f.names_ids = f.names_args && has(s, id_mark);
    return f;
}

bool tools_prompt_thinks(const char *prompt, size_t n)
{
    size_t mark = strlen(think_open);
    n = rtrim((struct text){prompt, n});
    return n >= mark && memcmp(prompt + n - mark, think_open, mark) == 0;
}

int tools_open(struct tools **out, const struct tools_params *params)
{
    struct tools *t = *out = calloc(1, sizeof *t);
    if (!t) return -1;
    t->p = *params;
    t->state = params->thinking ? THINKING : params->format.thinks ? START : SAYING;
    t->trim = params->thinking;
    t->bare = params->tools && params->format.style == TOOLS_BARE;
    return 0;
}

int tools_feed(struct tools *t, const char *text, size_t n)
{
    if (t->cap - t->n < n) {
        size_t cap = 2 * t->n + n + 64;
        char *p = realloc(t->held, cap);
        if (!p) return -1;
        t->held = p;
        t->cap = cap;
    }
    if (n) memcpy(t->held + t->n, text, n);
    t->n += n;
    advance(t, false);
    return 0;
}

void tools_end(struct tools *t)
{
    advance(t, true);
}

uint32_t tools_n_calls(const struct tools *t)
{
    return t->n_calls;
}

void tools_close(struct tools *t)
{
    if (!t) return;
    drop_pairs(t);
    free(t->held);
    free(t);
}
