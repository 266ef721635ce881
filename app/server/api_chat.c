/* /v1/chat/completions, as OpenAI has it: whole or streamed. What goes beyond it (progress of the
 * prompt, timings) is in `fletch`. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

/* What one choice has said so far, for an answer that comes whole. */
struct said {
    struct words text;
    json_t *logprobs; /* array, where asked for */
    bool spoke;       /* the stream has told its role */
};

static struct said *said_of(struct choice *ch)
{
    if (!ch->state) ch->state = need(calloc(1, sizeof(struct said)));
    return ch->state;
}

static int take(struct call *c)
{
    static const struct field_table *const tables[] = {&fields_chat, &fields_common, NULL};
    if (fields_take(c, tables)) return -1;
    return prompt_chat(c);
}

/* ---- streamed ---- */

static json_t *chunk(const struct call *c)
{
    return need(json_pack("{s:s, s:s, s:I, s:s}", "id", c->name, "object", "chat.completion.chunk",
                          "created", (json_int_t)c->created, "model", c->served->id));
}

/* Takes delta and logprobs; finish may be NULL. */
static void send_delta(struct call *c, struct choice *ch, json_t *delta, json_t *logprobs,
                       const char *finish)
{
    struct said *said = said_of(ch);
    json_t *j = chunk(c);
    if (!said->spoke) json_object_set_new(delta, "role", json_string("assistant"));
    said->spoke = true;
    json_object_set_new(j, "choices",
                        json_pack("[{s:i, s:o, s:o?, s:s?}]", "index", (int)ch->index, "delta",
                                  delta, "logprobs", logprobs, "finish_reason", finish));
    if (c->ask.include_usage) json_object_set_new(j, "usage", json_null());
    sse_send(c->conn, NULL, j);
}

static void begin(struct call *c)
{
    if (c->ask.stream) sse_begin(c->conn);
}

static void progress(struct call *c, struct choice *ch, const struct progress_event *p)
{
    if (!c->ask.stream) return;
    json_t *j = chunk(c);
    json_object_set_new(j, "choices", json_array());
    json_object_set_new(j, "fletch", progress_json(ch, p));
    sse_send(c->conn, NULL, j);
}

static void token(struct call *c, struct choice *ch, const struct token *t)
{
    struct said *said = said_of(ch);
    json_t *entry =
        c->ask.logprobs && t->id >= 0 ? logprob_entry(c->served, t, c->ask.n_top) : NULL;
    if (!c->ask.stream) {
        words_add(&said->text, t->text, t->n_text);
        if (entry && !said->logprobs) said->logprobs = need(json_array());
        if (entry) json_array_append_new(said->logprobs, entry);
        return;
    }
    if (!t->n_text && !entry) return;
    json_t *logprobs = entry ? json_pack("{s:[o]}", "content", entry) : NULL;
    send_delta(c, ch, json_pack("{s:o}", "content", json_text(t->text, t->n_text)), logprobs, NULL);
}

static void done(struct call *c, struct choice *ch)
{
    if (c->ask.stream) send_delta(c, ch, json_object(), NULL, call_finish_reason(ch));
}

/* ---- whole ---- */

static json_t *whole_choice(struct call *c, struct choice *ch)
{
    struct said *said = said_of(ch);
    json_t *logprobs = NULL;
    if (c->ask.logprobs)
        logprobs = json_pack("{s:o}", "content",
                             said->logprobs ? json_incref(said->logprobs) : json_array());
    return need(json_pack("{s:i, s:{s:s, s:o}, s:o?, s:s}", "index", (int)ch->index, "message",
                          "role", "assistant", "content",
                          json_text(said->text.p ? said->text.p : "", said->text.n), "logprobs",
                          logprobs, "finish_reason", call_finish_reason(ch)));
}

static void end(struct call *c)
{
    json_t *j = chunk(c), *choices = need(json_array());
    for (uint32_t i = 0; i < c->n_choices && !c->ask.stream; i++)
        json_array_append_new(choices, whole_choice(c, &c->choices[i]));
    json_object_set_new(j, "choices", choices);
    if (!c->ask.stream || c->ask.include_usage) json_object_set_new(j, "usage", call_usage(c));
    json_object_set_new(j, "fletch", call_timings(c));
    if (!c->ask.stream) json_object_set_new(j, "object", json_string("chat.completion"));
    stream_end(c, j);
}

static void free_state(struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct said *said = c->choices[i].state;
        if (!said) continue;
        free(said->text.p);
        json_decref(said->logprobs);
        free(said);
    }
}

const struct api api_chat = {
    .label = "chat",
    .prefix = "chatcmpl-",
    .take = take,
    .begin = begin,
    .progress = progress,
    .token = token,
    .done = done,
    .end = end,
    .broken = stream_broken,
    .free = free_state,
};
