/* The parser keeps what it can't pass on yet in one buffer, whose front its states take. While it
 * reads a call, the buffer begins with the blanks and the marker before it, and `at` is how far the
 * call was read. Searches remember where they were, so that an answer costs time by its length
 * however it is cut. */
#include "chat/tools.h"

#include <stdlib.h>
#include <string.h>

#include "chat/tools_internal.h"

enum { ID_CHARS = 9, /* Mistral's templates want ids of nine */ MAX_NAME = 256, MAX_HEADER = 512 };

enum state {
    START,    /* thinking may begin */
    THINKING, /* until its end marker */
    SAYING,   /* content */
    FRAME,    /* a marker of calls was seen: `open`, then `call` */
    NAME,     /* of the tool */
    JSON,     /* arguments, or objects that name tools */
    SPAN,     /* what has brackets and is no JSON */
    TAIL,     /* markers after arguments that were read */
    PAIR,     /* the name of an argument, or the end of the call */
    VALUE,    /* of an argument */
    HEADER,   /* of a message in a channel */
    BODY,     /* of that message, which is content or thinking */
};

struct tools {
    struct tools_params p;
    const struct chat_format *row;
    enum state state;
    char *held;
    size_t n, cap, from; /* held[from..n) is what has not been passed on */
    bool trim;           /* blanks at the front go with the marker before them */
    bool bare;           /* a call may begin here without a marker */
    bool marked;         /* the call that is being read began with a marker */
    bool after_call;     /* nothing but blanks came since a call */
    /* of the call that is being read; places count from `from` */
    size_t lead, at, seen; /* blanks before it; read; searched */
    size_t args, n_args;   /* where its arguments are, once they were read */
    struct span span;
    const json_t *tool; /* NULL: its objects name tools */
    json_t *arguments;  /* pairs: those that were read */
    char *key;          /* pairs: of the value that is being read */
    enum value_form form;
    bool may_be_json;     /* that value */
    bool texts;           /* a value began like JSON and was none: later ones are read as texts */
    enum tools_part part; /* of a channel's message */
    uint32_t n_calls, n_malformed;
};

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

static void pass_call(void *ctx, const char *name, struct text arguments)
{
    struct tools *t = ctx;
    char id[ID_CHARS + 1];
    make_id(id, t->p.seed, t->n_calls);
    struct tools_piece piece = {TOOLS_CALL, arguments.p, arguments.n, t->n_calls++, id, name};
    t->p.on_piece(t->p.ctx, &piece);
}

/* ---- thinking ---- */

enum progress { WAIT, GO };

static struct text front(const struct tools *t)
{
    return (struct text){t->held + t->from, t->n - t->from};
}

/* What the call was not read of yet. */
static struct text ahead(const struct tools *t)
{
    return text_skip(front(t), t->at);
}

static enum progress go(struct tools *t, enum state state)
{
    t->state = state;
    return GO;
}

static enum progress start(struct tools *t, bool end)
{
    struct text s = front(t), rest = text_skip_blanks(s);
    if (!end && (!rest.n || text_may_become(rest, t->row->think))) return WAIT;
    if (!text_starts(rest, t->row->think)) return go(t, SAYING);
    pass(t, TOOLS_MARKUP, s.n - rest.n + strlen(t->row->think));
    t->trim = true;
    return go(t, THINKING);
}

/* Drops the blanks after a marker; false when nothing else is there yet. */
static bool trimmed(struct tools *t)
{
    struct text s = front(t);
    if (t->trim) pass(t, TOOLS_MARKUP, s.n - text_skip_blanks(s).n);
    if (t->from < t->n) t->trim = false;
    return t->from < t->n;
}

static enum progress thinking(struct tools *t, bool end)
{
    if (!trimmed(t)) return WAIT;
    struct text s = front(t);
    size_t at = text_find(s, t->row->think_end), n = text_rtrim((struct text){s.p, at});
    bool found = text_starts(text_skip(s, at), t->row->think_end);
    pass(t, TOOLS_REASONING, end && !found ? s.n : n);
    if (!found) return WAIT;
    pass(t, TOOLS_MARKUP, at - n + strlen(t->row->think_end));
    t->trim = true;
    return go(t, SAYING);
}

/* ---- content ---- */

static enum progress begin_call(struct tools *t, size_t lead, enum state state)
{
    t->lead = t->at = lead;
    t->seen = 0;
    t->span = (struct span){0};
    t->tool = NULL;
    t->marked = state != JSON;
    return go(t, state);
}

/* What looked like a call, up to where that was seen, is content. */
static enum progress malformed(struct tools *t, size_t n)
{
    t->n_malformed += t->marked;
    pass(t, TOOLS_CONTENT, n);
    t->part = TOOLS_CONTENT;
    t->bare = t->trim = t->after_call = false;
    return go(t, t->row->syntax == CHAT_CHANNELS ? BODY : SAYING);
}

/* The call was passed on; its text is n bytes. */
static enum progress called(struct tools *t, size_t n)
{
    pass(t, TOOLS_MARKUP, n);
    t->trim = t->after_call = true;
    t->bare = t->row->bare;
    return go(t, t->row->syntax == CHAT_CHANNELS ? HEADER : SAYING);
}

/* A call without a marker may begin here, or after what may stand between two calls. */
static bool bare_begins(struct tools *t, struct text *rest)
{
    *rest = text_skip_blanks(front(t));
    if (t->n_calls && text_starts(*rest, t->row->between))
        *rest = text_skip_blanks(text_skip(*rest, strlen(t->row->between)));
    return rest->n && *rest->p == '{';
}

/* After a call, the end of all calls belongs to it. */
static enum progress closing(struct tools *t, bool end)
{
    struct text s = front(t);
    if (!end && text_may_become(s, t->row->close)) return WAIT;
    t->after_call = false;
    if (!text_starts(s, t->row->close)) return GO;
    pass(t, TOOLS_MARKUP, strlen(t->row->close));
    t->trim = true;
    return GO;
}

/* Which marker comes first; s.n and NULL when none does, or where one may begin. */
static size_t find_first(struct text s, const char *const *markers, size_t n, const char **found)
{
    size_t first = s.n;
    *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t at = markers[i] ? text_find(s, markers[i]) : s.n;
        if (at >= first) continue;
        first = at;
        *found = text_starts(text_skip(s, at), markers[i]) ? markers[i] : NULL;
    }
    return first;
}

static enum progress saying(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    struct text s, rest;
    if (!trimmed(t)) return WAIT;
    if (t->after_call) {
        enum progress progress = closing(t, end);
        if (progress == WAIT || t->trim) return progress;
    }
    s = front(t);
    if (t->bare) {
        if (bare_begins(t, &rest)) return begin_call(t, s.n - rest.n, JSON);
        if (!rest.n && !end) return WAIT;
        t->bare = false;
    }
    bool thinks = t->p.format.thinks && row->thinks_anywhere;
    const char *const markers[] = {t->p.tools ? row->open : NULL,
                                   t->p.tools ? row->call : NULL,
                                   thinks ? row->think : NULL,
                                   row->drop[0],
                                   row->drop[1],
                                   row->drop[2],
                                   row->drop[3]};
    const char *found;
    size_t at = find_first(s, markers, sizeof markers / sizeof *markers, &found);
    size_t lead = at - text_rtrim((struct text){s.p, at});
    pass(t, TOOLS_CONTENT, end && !found ? s.n : at - lead);
    if (!found) return WAIT;
    if (found == row->open || found == row->call) return begin_call(t, lead, FRAME);
    t->trim = found == row->think;
    if (!t->trim) pass(t, TOOLS_CONTENT, lead), lead = 0;
    pass(t, TOOLS_MARKUP, lead + strlen(found));
    return go(t, t->trim ? THINKING : row->headers ? HEADER : SAYING);
}

/* ---- calls ---- */

static enum progress frame(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    struct text s = front(t), rest = text_skip(s, t->lead);
    if (text_starts(rest, row->open)) rest = text_skip_blanks(text_skip(rest, strlen(row->open)));
    t->at = s.n - rest.n;
    if (!text_starts(rest, row->call)) {
        if (!end && text_may_become(rest, row->call)) return WAIT;
        return malformed(t, end && !rest.n ? s.n : t->at);
    }
    t->at += strlen(row->call);
    if (row->syntax == CHAT_PYTHON) return go(t, SPAN);
    return go(t, row->syntax == CHAT_OBJECT && !row->name_end ? JSON : NAME);
}

/* Takes what may stand before and after the name off. */
static struct text clean_name(const struct chat_format *row, struct text s)
{
    s = text_skip_blanks(s);
    if (row->before_name) {
        size_t n = text_find(s, row->before_name);
        if (text_starts(text_skip(s, n), row->before_name))
            s = text_skip_blanks(text_skip(s, n + strlen(row->before_name)));
    }
    if (row->after_name) {
        size_t n = text_find(s, row->after_name);
        if (text_starts(text_skip(s, n), row->after_name)) s.n = n;
    }
    s.n = text_rtrim(s);
    return s;
}

/* Instead of a tool's name there is the word for content. */
static enum progress said(struct tools *t)
{
    pass(t, TOOLS_MARKUP, t->at + strlen(t->row->say));
    return go(t, SAYING);
}

static enum progress name(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    struct text s = ahead(t), begin = text_skip_blanks(s);
    if (row->named && text_starts(s, row->say)) return said(t);
    const char *found, *const ends[] = {row->name_end ? row->name_end : row->key,
                                        row->name_end ? NULL : row->call_end};
    if (row->syntax != CHAT_PAIRS && begin.n && strchr("{[", *begin.p) && row->name_end[0] != '{')
        return go(t, JSON);
    size_t n = find_first(s, ends, 2, &found);
    if (n > MAX_NAME) return malformed(t, t->at);
    if (!found) return end ? malformed(t, front(t).n) : WAIT;
    t->tool = tool_find(t->p.tools, clean_name(row, (struct text){s.p, n}));
    if (!t->tool) return malformed(t, t->at);
    t->at += n + (row->name_end && row->syntax != CHAT_QUOTED ? strlen(found) : 0);
    if (row->syntax == CHAT_QUOTED) return go(t, SPAN);
    if (row->syntax != CHAT_PAIRS) return go(t, JSON);
    json_decref(t->arguments);
    t->arguments = json_object();
    return go(t, PAIR);
}

/* An answer of Llama that begins with an object is a call only if its first key is one of a call's:
 * other JSON need not wait for its end. */
static bool bare_may_call(struct text object)
{
    static const char *const keys[] = {"\"name\"", "\"type\"", "\"function\"", "\"parameters\""};
    struct text s = text_skip_blanks(text_skip(object, 1));
    bool may = !s.n;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        may |= text_starts(s, keys[i]) || text_may_become(s, keys[i]);
    return may;
}

static enum progress span(struct tools *t, bool end)
{
    static const enum span_kind kinds[] = {
        [CHAT_PYTHON] = SPAN_PYTHON, [CHAT_QUOTED] = SPAN_QUOTED};
    const struct chat_format *row = t->row;
    bool is_json = t->state == JSON;
    struct text s = ahead(t), value = text_skip_blanks(s);
    if (value.n && *value.p != '{' && (t->tool || *value.p != '[')) return malformed(t, t->at);
    if (is_json && row->bare && value.n && !bare_may_call(value)) return malformed(t, t->at);
    bool whole =
        value.n && span_read(&t->span, is_json ? SPAN_JSON : kinds[row->syntax], row->quote, value);
    if (!whole) return end ? malformed(t, front(t).n) : WAIT;
    t->args = t->at + s.n - value.n;
    t->n_args = t->span.at;
    t->at = t->args + t->n_args;
    return go(t, TAIL);
}

/* Passes on the calls that were read. */
static bool take(struct tools *t)
{
    struct text raw = {t->held + t->from + t->args, t->n_args};
    if (t->row->syntax == CHAT_PYTHON && read_python(t->p.tools, raw, pass_call, t)) return true;
    if (!t->tool) return read_objects(t->p.tools, t->row->name_is_key, raw, pass_call, t);
    json_t *j = t->row->syntax == CHAT_QUOTED ? read_quoted(raw, t->row->quote) : read_json(raw);
    bool good = json_is_object(j);
    char *text = good && t->row->syntax == CHAT_QUOTED ? write_json(j) : NULL;
    if (text) raw = (struct text){text, strlen(text)};
    if (good) pass_call(t, tool_name(t->tool), raw);
    free(text);
    json_decref(j);
    return good;
}

/* The markers after a call may be missing where the answer ends. */
static enum progress tail(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    struct text all = ahead(t), s = text_skip_blanks(all);
    size_t n = t->at;
    if (row->args_end && !end && text_may_become(s, row->args_end)) return WAIT;
    if (text_starts(s, row->args_end)) s = text_skip_blanks(text_skip(s, strlen(row->args_end)));
    if (row->call_end && !end && text_may_become(s, row->call_end)) return WAIT;
    bool closed = text_starts(s, row->call_end);
    if (row->call_end && !closed && s.n && row->syntax != CHAT_CHANNELS)
        return malformed(t, t->at + all.n - s.n);
    if (row->call_end) n = t->at + all.n - s.n + (closed ? strlen(row->call_end) : 0);
    if (row->syntax == CHAT_CHANNELS && !closed) n = t->at;
    return take(t) ? called(t, n) : malformed(t, n);
}

/* ---- pairs ---- */

/* The value begins; what stands before it was read. */
static enum progress begin_value(struct tools *t, enum value_form form)
{
    t->form = form;
    t->seen = t->at;
    t->span = (struct span){0};
    t->may_be_json = form == VALUE_JSON ||
                     (form == VALUE_BY_SCHEMA && !t->texts && !value_is_text(t->tool, t->key));
    return go(t, VALUE);
}

/* The name of an argument ends n bytes ahead. */
static bool take_key(struct tools *t, size_t n)
{
    struct text s = text_skip_blanks((struct text){ahead(t).p, n});
    s.n = text_rtrim(s);
    json_t *key = json_stringn(s.p, s.n);
    const char *text = json_string_value(key);
    bool good = text && strlen(text) == s.n && !json_object_get(t->arguments, text);
    free(t->key);
    t->key = good ? strdup(text) : NULL;
    json_decref(key);
    return t->key != NULL;
}

static enum progress end_pairs(struct tools *t, size_t n)
{
    char *text = write_json(t->arguments);
    if (!text) return malformed(t, n);
    pass_call(t, tool_name(t->tool), (struct text){text, strlen(text)});
    free(text);
    return called(t, n);
}

/* Between arguments: one more begins, or the call ends. */
static enum progress pair(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    struct text all = ahead(t), s = text_skip_blanks(all), rest;
    size_t before = t->at + all.n - s.n, n;
    if (text_starts(s, row->call_end)) return end_pairs(t, before + strlen(row->call_end));
    if (!text_starts(s, row->key)) {
        bool may = text_may_become(s, row->key) || text_may_become(s, row->call_end);
        return end ? malformed(t, front(t).n) : may ? WAIT : malformed(t, before);
    }
    const char *found, *const ends[] = {row->key_end, row->call_end};
    s = text_skip(s, strlen(row->key));
    n = find_first(s, ends, 2, &found);
    if (n > MAX_NAME || found == row->call_end) return malformed(t, before);
    if (!found) return end ? malformed(t, front(t).n) : WAIT;
    rest = text_skip(s, n + strlen(found));
    bool json = false, marked = true;
    if (row->value) {
        rest = text_skip_blanks(rest);
        json = text_starts(rest, row->json_value);
        marked = json || text_starts(rest, row->value);
        bool may = text_may_become(rest, row->value) || text_may_become(rest, row->json_value);
        if (!marked && may && !end) return WAIT;
        if (marked) rest = text_skip(rest, strlen(json ? row->json_value : row->value));
    }
    size_t value = front(t).n - rest.n;
    t->at = before + strlen(row->key);
    if (!marked || !take_key(t, n)) return malformed(t, value);
    t->at = value;
    return begin_value(t, json ? VALUE_JSON : row->json_value ? VALUE_TEXT : VALUE_BY_SCHEMA);
}

/* The value ends before `to`, and its marker before `next`. */
static enum progress end_value(struct tools *t, size_t to, size_t next)
{
    struct text s = {t->held + t->from + t->at, to - t->at};
    if (t->row->lines && s.n && *s.p == '\n') s = text_skip(s, 1);
    if (t->row->lines && s.n && s.p[s.n - 1] == '\n') s.n--;
    json_t *v = value_read(t->tool, t->key, t->form, s);
    t->at = next;
    if (!v || json_object_set_new(t->arguments, t->key, v)) return malformed(t, next);
    return go(t, PAIR);
}

/* Reads on in a value that may be JSON, in whose strings markers mean nothing. */
static enum progress value_json(struct tools *t, bool end)
{
    const char *mark = t->row->value_end;
    struct text all = ahead(t), s = text_skip_blanks(all);
    if (!s.n && !end) return WAIT;
    t->may_be_json = false;
    if (!span_begins(s)) return GO;
    bool whole = span_read(&t->span, SPAN_JSON, NULL, s);
    struct text rest = text_skip_blanks(text_skip(s, t->span.at));
    size_t to = t->at + all.n - rest.n;
    if (whole && text_starts(rest, mark)) return end_value(t, to, to + strlen(mark));
    if (end || (whole && !text_may_become(rest, mark))) {
        t->texts = true;
        return GO;
    }
    t->may_be_json = true;
    return WAIT;
}

/* A value ends where its marker is followed by another argument or the end of the call: code in it
 * may contain the marker. */
static enum progress value(struct tools *t, bool end)
{
    const struct chat_format *row = t->row;
    if (t->may_be_json) return value_json(t, end);
    const char *found, *const ends[] = {row->value_end, row->call_end};
    struct text s = text_skip(front(t), t->seen);
    size_t n = find_first(s, ends, 2, &found);
    t->seen += n;
    if (!found) return end ? malformed(t, front(t).n) : WAIT;
    size_t to = t->seen, next = to + strlen(found);
    if (found == row->call_end) return malformed(t, next);
    struct text rest = text_skip_blanks(text_skip(s, n + strlen(found)));
    if (text_starts(rest, row->key) || text_starts(rest, row->call_end))
        return end_value(t, to, next);
    bool may = text_may_become(rest, row->key) || text_may_become(rest, row->call_end);
    if (may && !end) return WAIT;
    t->seen = next;
    return GO;
}

/* ---- channels ---- */

static const char message_mark[] = "<|message|>", channel_mark[] = "<|channel|>";

/* The word after the last mark in a header; n = 0: there is none. */
static struct text header_word(struct text header, const char *mark)
{
    struct text s = {header.p, 0};
    for (size_t at; (at = text_find(header, mark)) < header.n;) {
        if (!text_starts(text_skip(header, at), mark)) break;
        header = text_skip(header, at + strlen(mark));
        s = text_skip_blanks(header);
        size_t n = 0;
        while (n < s.n && !text_is_blank(s.p[n]) && s.p[n] != '<') n++;
        s.n = n;
    }
    return s;
}

static bool is_word(struct text s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

/* A header was read, with the message's mark: who is addressed, on which channel. */
static enum progress take_header(struct tools *t, struct text header)
{
    struct text to = header_word(header, " to="), channel = header_word(header, channel_mark);
    bool is_call = t->row->syntax == CHAT_CHANNELS && text_starts(to, t->row->before_name);
    bool thinks = is_word(channel, "analysis") || is_word(to, "self");
    t->part = thinks ? TOOLS_REASONING : TOOLS_CONTENT;
    begin_call(t, 0, BODY);
    t->at = header.n + strlen(message_mark);
    if (is_call && t->p.tools) {
        t->tool = tool_find(t->p.tools, text_skip(to, strlen(t->row->before_name)));
        if (t->tool) return go(t, JSON);
    }
    bool is_reply = thinks || !to.n || is_word(to, "user") || is_word(to, "assistant");
    if (is_call || (!is_reply && t->row->syntax == CHAT_CHANNELS)) return malformed(t, t->at);
    pass(t, TOOLS_MARKUP, t->at);
    return go(t, thinks || t->row->syntax == CHAT_CHANNELS ? BODY : SAYING);
}

static enum progress header(struct tools *t, bool end)
{
    static const char *const begins[] = {"<|start|>", channel_mark, message_mark, "to="};
    struct text s = front(t), rest = text_skip_blanks(s);
    bool begun = false, may = !rest.n;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        begun |= text_starts(rest, begins[i]);
        may |= text_may_become(rest, begins[i]);
    }
    size_t n = text_find(s, message_mark);
    if (begun && n <= MAX_HEADER) {
        if (text_starts(text_skip(s, n), message_mark))
            return take_header(t, (struct text){s.p, n});
        if (!end) return WAIT;
    }
    if (may && !begun && !end) return WAIT;
    t->part = TOOLS_CONTENT;
    t->n_malformed += begun;
    pass(t, TOOLS_CONTENT, begun ? s.n - rest.n + 1 : 0);
    return go(t, t->row->syntax == CHAT_CHANNELS ? BODY : SAYING);
}

static enum progress body(struct tools *t, bool end)
{
    const char *const ends[] = {t->row->drop[0], "<|return|>", "<|call|>", "<|start|>",
                                channel_mark};
    const char *found;
    struct text s = front(t);
    size_t at = find_first(s, ends, sizeof ends / sizeof *ends, &found);
    pass(t, t->part, end && !found ? s.n : at);
    if (!found) return WAIT;
    bool begins = found == ends[3] || found == ends[4];
    if (!begins) pass(t, TOOLS_MARKUP, strlen(found));
    return go(t, HEADER);
}

/* ---- the interface ---- */

static void advance(struct tools *t, bool end)
{
    static enum progress (*const states[])(struct tools *, bool) = {
        [START] = start, [THINKING] = thinking, [SAYING] = saying, [FRAME] = frame,
        [NAME] = name,   [JSON] = span,         [SPAN] = span,     [TAIL] = tail,
        [PAIR] = pair,   [VALUE] = value,       [HEADER] = header, [BODY] = body};
    enum progress progress = GO;
    while (progress == GO && t->from < t->n) progress = states[t->state](t, end);
    if (t->from) memmove(t->held, t->held + t->from, t->n - t->from);
    t->n -= t->from;
    t->from = 0;
}

bool tools_prompt_thinks(const struct chat_format *row, const char *prompt, size_t n)
{
    size_t mark = row->think ? strlen(row->think) : 0;
    n = text_rtrim((struct text){prompt, n});
    return mark && n >= mark && memcmp(prompt + n - mark, row->think, mark) == 0;
}

int tools_open(struct tools **out, const struct tools_params *params)
{
    struct tools *t = *out = calloc(1, sizeof *t);
    if (!t) return -1;
    t->p = *params;
    t->row = params->format.row;
    t->state = params->thinking ? THINKING : params->format.thinks ? START : SAYING;
    t->trim = params->thinking;
    t->bare = params->tools && t->row->bare;
    t->part = params->thinking ? TOOLS_REASONING : TOOLS_CONTENT;
    if (t->row->headers) t->state = params->thinking ? BODY : HEADER;
    if (t->row->named) begin_call(t, 0, NAME);
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

uint32_t tools_n_malformed(const struct tools *t)
{
    return t->n_malformed;
}

void tools_close(struct tools *t)
{
    if (!t) return;
    json_decref(t->arguments);
    free(t->key);
    free(t->held);
    free(t);
}
