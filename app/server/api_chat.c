/* /v1/chat/completions, as OpenAI has it: whole or streamed. What goes beyond it (progress of the
 * prompt, timings) is in `fletch`. */
#include <string.h>

#include "app.h"
#include "turn.h"

static int take(struct call *c)
{
    return fields_take(c) ? -1 : turn_take(c);
}

/* ---- streamed ---- */

static json_t *chunk(const struct call *c)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", c->name, "object", "chat.completion.chunk",
                     "created", (json_int_t)c->created, "model", c->served->id);
}

/* Takes delta and logprobs; finish may be NULL. */
static void send_delta(struct call *c, struct choice *ch, json_t *delta, json_t *logprobs,
                       const char *finish)
{
    struct turn *t = turn_of(ch);
    json_t *j = chunk(c);
    if (!t->spoke) json_object_set_new(delta, "role", json_string("assistant"));
    t->spoke = true;
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

/* Log probabilities wait for the next delta: text may be held back, tokens are not. */
static json_t *waiting_logprobs(struct choice *ch)
{
    struct turn *t = turn_of(ch);
    json_t *list = t->logprobs;
    t->logprobs = NULL;
    return list ? json_pack("{s:o}", "content", list) : NULL;
}

static json_t *call_of(const struct turn_part *p)
{
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", p->id, "type", "function", "function",
                     "name", p->name, "arguments", turn_text(p));
}

static void open_part(struct call *c, struct choice *ch, const struct turn_part *p)
{
    if (p->kind != TOOLS_CALL) return;
    json_t *call =
        json_pack("{s:I, s:s, s:s, s:{s:s, s:s}}", "index", (json_int_t)p->call_index, "id", p->id,
                  "type", "function", "function", "name", p->name, "arguments", "");
    send_delta(c, ch, json_pack("{s:[o]}", "tool_calls", call), waiting_logprobs(ch), NULL);
}

static void more_part(struct call *c, struct choice *ch, const struct turn_part *p,
                      const char *text, size_t n)
{
    json_t *more = json_text(text, n), *delta;
    if (p->kind == TOOLS_CALL)
        delta = json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)p->call_index,
                          "function", "arguments", more);
    else
        delta =
            json_pack("{s:o}", p->kind == TOOLS_CONTENT ? "content" : "reasoning_content", more);
    send_delta(c, ch, delta, waiting_logprobs(ch), NULL);
}

static const struct turn_writer writer = {open_part, more_part, NULL};

static void token(struct call *c, struct choice *ch, const struct token *t)
{
    struct turn *turn = turn_of(ch);
    if (c->ask.logprobs && t->id >= 0) {
        if (!c->ask.stream && !call_add_entries(c, t->n_top + 1)) return;
        if (!turn->logprobs) turn->logprobs = json_array();
        json_array_append_new(turn->logprobs, logprob_entry(c->served, t, c->ask.n_top));
    }
    turn_token(c, ch, t, c->ask.stream ? &writer : NULL);
}

static const char *finish_reason(struct choice *ch)
{
    return turn_of(ch)->n_calls ? "tool_calls" : call_finish_reason(ch);
}

static void done(struct call *c, struct choice *ch)
{
    turn_done(c, ch, c->ask.stream ? &writer : NULL);
    if (c->ask.stream) send_delta(c, ch, json_object(), waiting_logprobs(ch), finish_reason(ch));
}

/* ---- whole ---- */

static json_t *message(struct choice *ch)
{
    struct turn *t = turn_of(ch);
    json_t *content = turn_joined(ch, TOOLS_CONTENT), *calls = json_array();
    json_t *reasoning = turn_joined(ch, TOOLS_REASONING);
    for (uint32_t i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == TOOLS_CALL) json_array_append_new(calls, call_of(&t->parts[i]));
    if (json_is_null(content) && !t->n_calls) content = json_string("");
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (!json_is_null(reasoning)) json_object_set(m, "reasoning_content", reasoning);
    if (t->n_calls) json_object_set(m, "tool_calls", calls);
    json_decref(reasoning);
    json_decref(calls);
    return m;
}

static json_t *whole_choice(struct call *c, struct choice *ch)
{
    json_t *logprobs = waiting_logprobs(ch);
    if (c->ask.logprobs && !logprobs) logprobs = json_pack("{s:[]}", "content");
    return json_pack("{s:i, s:o, s:o?, s:s}", "index", (int)ch->index, "message", message(ch),
                     "logprobs", logprobs, "finish_reason", finish_reason(ch));
}

static void end(struct call *c)
{
    json_t *j = chunk(c), *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices && !c->ask.stream; i++)
        json_array_append_new(choices, whole_choice(c, &c->choices[i]));
    json_object_set_new(j, "choices", choices);
    if (!c->ask.stream || c->ask.include_usage) json_object_set_new(j, "usage", call_usage(c));
    json_t *fletch = call_timings(c);
    if (turn_notice(c)) json_object_set_new(fletch, "notice", json_string(turn_notice(c)));
    json_object_set_new(j, "fletch", fletch);
    if (!c->ask.stream) json_object_set_new(j, "object", json_string("chat.completion"));
    stream_end(c, j);
}

const struct api api_chat = {
    .label = "chat",
    .prefix = "chatcmpl-",
    .fields = chat_tables,
    .take = take,
    .begin = begin,
    .progress = progress,
    .token = token,
    .done = done,
    .end = end,
    .broken = stream_broken,
    .free = turn_free,
};
