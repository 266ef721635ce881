/* /v1/completions, as OpenAI has it: texts or token ids are continued. echo with logprobs scores
 * the prompt itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

enum { DEFAULT_TOKENS = 16 }; /* OpenAI's */

/* The four lists of OpenAI's logprobs, and the ids. */
struct lists {
    json_t *tokens, *logprobs, *tops, *offsets, *ids;
    size_t offset; /* in characters */
};

struct said {
    struct words text;
    struct lists lists;
};

/* ---- the request ---- */

static int take_logprobs(struct call *c, const struct field *f, json_t *v)
{
    c->ask.logprobs = true;
    return field_top(c, f, v);
}

static int take_best_of(struct call *c, const struct field *f, json_t *v)
{
    json_t *n = json_object_get(c->body, "n");
    if (json_integer_value(v) == (json_is_integer(n) ? json_integer_value(n) : 1)) return 0;
    return call_wrong(c, 400, f->name, "best_of must equal n");
}

static const struct field own[] = {
    {"prompt", field_any, FIELD_AT(ask.prompt), 0, 0},
    {"echo", field_flag, FIELD_AT(ask.echo), 0, 0},
    {"logprobs", take_logprobs, FIELD_AT(ask.n_top), 0, 20},
    {"best_of", take_best_of, 0, 0, 0},
};
static const struct field_table own_table = FIELD_TABLE(own);
static const struct field_table *const tables[] = {&own_table, &fields_common, &fields_others,
                                                   NULL};

/* path: where it stands in the body. */
static int take_prompt(struct call *c, const char *path, const json_t *p)
{
    if (json_is_string(p))
        return prompt_text(c, json_string_value(p), json_string_length(p), FLETCH_BOS);
    if (json_is_array(p) && json_is_integer(json_array_get(p, 0))) return prompt_ids(c, path, p);
    call_wrong(c, 400, "prompt",
               "%s: expected a string, an array of token ids, or an array of either", path);
    return call_at(c, "%s", path);
}

/* What is repeated of prompts is as long as the client wants, and so are its log probabilities. */
static int check_echo(struct call *c)
{
    uint64_t n_bytes = 0, n_tokens = 0;
    for (size_t i = 0; i < c->n_prompts; i++) {
        const json_t *given = c->ask.prompt;
        if (json_is_array(given) && !json_is_integer(json_array_get(given, 0)))
            given = json_array_get(given, i);
        n_bytes += json_string_length(given) * c->ask.n;
        n_tokens += c->prompts[i].n * c->ask.n;
    }
    if (c->ask.echo && n_bytes > limit_of(&c->server->limits, echo_bytes))
        return call_over(c, LIMIT_echo_bytes, "echo", n_bytes);
    n_tokens *= c->ask.n_top + 1;
    if (c->ask.echo && c->ask.logprobs && n_tokens > limit_of(&c->server->limits, logprob_entries))
        return call_over(c, LIMIT_logprob_entries, "logprobs", n_tokens);
    return 0;
}

static int take(struct call *c)
{
    c->ask.set.takes_none = true;
    if (fields_take(c)) return -1;
    const json_t *p = c->ask.prompt, *first = json_array_get(p, 0);
    bool many = json_is_array(p) && (json_is_string(first) || json_is_array(first));
    size_t n = many ? json_array_size(p) : 1;
    if (n > limit_of(&c->server->limits, prompts)) return call_over(c, LIMIT_prompts, "prompt", n);
    for (size_t i = 0; i < n; i++) {
        char path[40];
        snprintf(path, sizeof path, many ? "prompt[%zu]" : "prompt", i);
        if (take_prompt(c, path, many ? json_array_get(p, i) : p)) return -1;
    }
    if (!c->ask.set.max_tokens_set && !c->ask.set.r.max_tokens)
        c->ask.set.r.max_tokens = DEFAULT_TOKENS;
    c->ask.score = c->ask.echo && c->ask.logprobs;
    c->ask.silent = c->ask.set.r.max_tokens == 0; /* one is made, and not shown */
    if (c->ask.silent) c->ask.set.r.max_tokens = 1;
    return check_echo(c);
}

/* ---- log probabilities ---- */

static size_t n_characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* A token's text. Where its bytes are not UTF-8 it is spelled as OpenAI does, bytes:\xHH.., because
 * texts are keys of objects here and replaced bytes would make one of several. */
static json_t *piece_text(const struct served *m, int32_t id)
{
    static const char hex[] = "0123456789abcdef";
    size_t n;
    const char *p = served_piece(m, id, &n);
    json_t *j = json_stringn(p, n);
    struct words spelled = {0};
    if (j) return j;
    words_add(&spelled, "bytes:", strlen("bytes:"));
    for (size_t i = 0; i < n; i++) {
        unsigned byte = (unsigned char)p[i];
        words_add(&spelled, (const char[]){'\\', 'x', hex[byte / 16], hex[byte % 16]}, 4);
    }
    j = json_stringn(spelled.p, spelled.n);
    free(spelled.p);
    return j;
}

/* One more token; t->top_ids NULL: nothing is known about it, because it is the first. shown: its
 * characters are part of the text. */
static void list_token(struct lists *l, const struct served *m, const struct token *t, bool shown)
{
    size_t n;
    const char *p = served_piece(m, t->id, &n);
    json_t *top = t->top_ids ? json_object() : json_null();
    for (uint32_t i = 0; t->top_ids && i < t->n_top; i++) {
        json_t *key = piece_text(m, t->top_ids[i]);
        json_object_setn_new(top, json_string_value(key), json_string_length(key),
                             json_real((double)t->top_logprobs[i]));
        json_decref(key);
    }
    if (!l->tokens) {
        l->tokens = json_array();
        l->logprobs = json_array();
        l->tops = json_array();
        l->offsets = json_array();
        l->ids = json_array();
    }
    json_array_append_new(l->tokens, piece_text(m, t->id));
    json_array_append_new(l->logprobs, t->top_ids ? json_real((double)t->logprob) : json_null());
    json_array_append_new(l->tops, top);
    json_array_append_new(l->offsets, json_integer((json_int_t)l->offset));
    json_array_append_new(l->ids, json_integer(t->id));
    if (shown) l->offset += n_characters(p, n);
}

/* Empties the lists. */
static json_t *take_lists(struct lists *l)
{
    size_t offset = l->offset;
    if (!l->tokens) return json_null();
    json_t *j =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "tokens", l->tokens, "token_logprobs", l->logprobs,
                  "top_logprobs", l->tops, "text_offset", l->offsets, "token_ids", l->ids);
    *l = (struct lists){.offset = offset};
    return j;
}

/* ---- the answer ---- */

static json_t *skeleton(const struct call *c)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", c->name, "object", "text_completion", "created",
                     (json_int_t)c->created, "model", c->served->id);
}

/* What was said since the last time; takes it. */
static json_t *choice_json(struct choice *ch, const char *finish)
{
    struct said *said = ch->state;
    json_t *j = json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)ch->index, "text",
                          json_text(said->text.p ? said->text.p : "", said->text.n), "logprobs",
                          take_lists(&said->lists), "finish_reason", finish);
    said->text.n = 0;
    return j;
}

static void send(struct call *c, struct choice *ch, const char *finish)
{
    json_t *j = skeleton(c);
    json_object_set_new(j, "choices", json_pack("[o]", choice_json(ch, finish)));
    sse_send(c->conn, NULL, j);
}

/* The prompt, as a text was given or as its tokens read. */
static void echo(struct call *c, struct choice *ch)
{
    struct said *said = ch->state;
    const struct prompt *p = &c->prompts[ch->prompt];
    const json_t *given = c->ask.prompt;
    if (json_is_array(given) && !json_is_integer(json_array_get(given, 0)))
        given = json_array_get(given, ch->prompt);
    if (json_is_string(given))
        words_add(&said->text, json_string_value(given), json_string_length(given));
    for (size_t i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = served_piece(c->served, p->ids[i], &n);
        if (!json_is_string(given)) words_add(&said->text, piece, n);
        if (!c->scores) continue;
        const struct score *s = &c->scores[ch->prompt];
        struct token t = {.id = p->ids[i],
                          .logprob = s->logprobs[i],
                          .n_top = s->n_top,
                          .top_ids = i ? s->top_ids + i * s->n_top : NULL,
                          .top_logprobs = s->top_logprobs + i * s->n_top};
        bool shown = !json_is_string(given) || !served_is_hidden(c->served, t.id);
        list_token(&said->lists, c->served, &t, shown);
    }
}

static void begin(struct call *c)
{
    if (c->ask.stream) sse_begin(c->conn);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        c->choices[i].state = memory_zeroed(sizeof(struct said));
        if (c->ask.echo) echo(c, &c->choices[i]);
    }
}

static void progress(struct call *c, struct choice *ch, const struct progress_event *p)
{
    if (!c->ask.stream) return;
    json_t *j = skeleton(c);
    json_object_set_new(j, "choices", json_array());
    json_object_set_new(j, "fletch", progress_json(ch, p));
    sse_send(c->conn, NULL, j);
}

static void token(struct call *c, struct choice *ch, const struct token *t)
{
    struct said *said = ch->state;
    if (c->ask.silent) return;
    words_add(&said->text, t->text, t->n_text);
    if (c->ask.logprobs && t->id >= 0 && !c->ask.stream && !call_add_entries(c, t->n_top + 1))
        return;
    if (c->ask.logprobs && t->id >= 0)
        list_token(&said->lists, c->served, t, !served_is_hidden(c->served, t->id));
    if (c->ask.stream && (said->text.n || said->lists.tokens)) send(c, ch, NULL);
}

static void done(struct call *c, struct choice *ch)
{
    if (c->ask.silent) ch->result.n_generated = 0;
    if (c->ask.stream) send(c, ch, call_finish_reason(ch));
}

static void end(struct call *c)
{
    json_t *j = skeleton(c), *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices && !c->ask.stream; i++)
        json_array_append_new(choices,
                              choice_json(&c->choices[i], call_finish_reason(&c->choices[i])));
    json_object_set_new(j, "choices", choices);
    if (!c->ask.stream || c->ask.include_usage) json_object_set_new(j, "usage", call_usage(c));
    json_object_set_new(j, "fletch", call_timings(c));
    stream_end(c, j);
}

static void free_state(struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct said *said = c->choices[i].state;
        if (!said) continue;
        json_decref(take_lists(&said->lists));
        free(said->text.p);
        free(said);
    }
}

const struct api api_completions = {
    .label = "completions",
    .prefix = "cmpl-",
    .fields = tables,
    .take = take,
    .begin = begin,
    .progress = progress,
    .token = token,
    .done = done,
    .end = end,
    .broken = stream_broken,
    .free = free_state,
};
