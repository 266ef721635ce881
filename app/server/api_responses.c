/* /v1/responses, as OpenAI has it, without a memory: every request brings its whole conversation.
 * A request becomes a chat completion's; parts of the answer become output items. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "turn.h"

/* ---- requests ---- */

static bool is_word(const json_t *v, const char *word)
{
    const char *its = json_word(v);
    return its && strcmp(its, word) == 0;
}

static bool is_type(const json_t *item, const char *type)
{
    return is_word(json_object_get(item, "type"), type);
}

static int add_message(json_t *chat, const char *role, json_t *content)
{
    return json_array_append_new(json_object_get(chat, "messages"),
                                 json_pack("{s:s, s:o}", "role", role, "content", content));
}

/* Parts of a message: input_text and output_text have a text each. */
static json_t *joined(const json_t *content)
{
    struct words all = {0};
    size_t i;
    json_t *part;
    bool good = json_is_array(content);
    if (json_is_string(content)) return json_incref((json_t *)content);
    json_array_foreach((json_t *)content, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        good &= json_is_string(text);
        words_try_add(&all, json_is_string(text) ? json_string_value(text) : "",
                      json_string_length(text));
    }
    json_t *j = good ? words_json(&all) : NULL;
    free(all.p);
    return j;
}

/* A call belongs to the message of the assistant before it, where there is one. */
static int add_call(struct call *c, json_t *chat, const json_t *item)
{
    json_t *messages = json_object_get(chat, "messages");
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_word(json_object_get(last, "role"));
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(item, "call_id"),
                             "type", "function", "function", "name", json_object_get(item, "name"),
                             "arguments", json_object_get(item, "arguments"));
    if (!call)
        return call_wrong(c, 400, "input", "a function_call must have call_id, name and arguments");
    if (!role || strcmp(role, "assistant") != 0) {
        add_message(chat, "assistant", json_string(""));
        last = json_array_get(messages, json_array_size(messages) - 1);
    }
    if (!json_object_get(last, "tool_calls")) json_object_set_new(last, "tool_calls", json_array());
    return json_array_append_new(json_object_get(last, "tool_calls"), call);
}

static int add_output(struct call *c, json_t *chat, const json_t *item)
{
    json_t *content = joined(json_object_get(item, "output"));
    json_t *m = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                          json_object_get(item, "call_id"), "content", content);
    if (m) return json_array_append_new(json_object_get(chat, "messages"), m);
    return call_wrong(c, 400, "input", "a function_call_output must have call_id and output");
}

static int take_item(struct call *c, json_t *chat, const json_t *item)
{
    const char *role = json_word(json_object_get(item, "role"));
    if (is_type(item, "function_call")) return add_call(c, chat, item);
    if (is_type(item, "function_call_output")) return add_output(c, chat, item);
    if (is_type(item, "reasoning")) return 0; /* templates drop that of earlier turns */
    if (!role || (json_object_get(item, "type") && !is_type(item, "message")))
        return call_wrong(c, 400, "input",
                          "an input item must be a message, function_call, function_call_output or "
                          "reasoning");
    json_t *content = joined(json_object_get(item, "content"));
    if (content) return add_message(chat, role, content);
    return call_wrong(c, 400, "input", "the content of a message may contain only text");
}

static int take_input(struct call *c, json_t *chat, json_t *v)
{
    size_t i;
    json_t *item;
    if (json_is_string(v)) return add_message(chat, "user", json_incref(v));
    if (!json_is_array(v))
        return call_wrong(c, 400, "input", "input must be a string or an array of items");
    json_array_foreach(v, i, item)
    {
        if (take_item(c, chat, item)) return -1;
    }
    return 0;
}

static int take_instructions(struct call *c, json_t *chat, json_t *v)
{
    if (!json_is_string(v))
        return call_wrong(c, 400, "instructions", "instructions must be a string");
    return json_array_insert_new(json_object_get(chat, "messages"), 0,
                                 json_pack("{s:s, s:O}", "role", "system", "content", v));
}

static int take_tools(struct call *c, json_t *chat, json_t *v)
{
    size_t i;
    json_t *tool, *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    if (!json_is_array(v)) return call_wrong(c, 400, "tools", "tools must be an array");
    json_array_foreach(v, i, tool)
    {
        json_t *f = json_object();
        if (!is_type(tool, "function")) {
            json_decref(f);
            return call_wrong(c, 400, "tools", "the type of tool %zu must be function", i);
        }
        json_object_update(f, tool);
        json_object_del(f, "type");
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return 0;
}

static int take_tool_choice(struct call *c, json_t *chat, json_t *v)
{
    json_t *name = json_object_get(v, "name");
    if (is_word(v, "auto") || is_word(v, "none") || is_word(v, "required"))
        return json_object_set(chat, "tool_choice", v);
    if (!json_is_string(name))
        return call_wrong(c, 400, "tool_choice",
                          "tool_choice must be none, auto, required or {\"type\": \"function\", "
                          "\"name\": ..}");
    return json_object_set_new(
        chat, "tool_choice",
        json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
}

/* text.format is response_format, written flatly. */
static int take_text(struct call *c, json_t *chat, json_t *v)
{
    json_t *format = json_object_get(v, "format");
    if (!json_is_object(v)) return call_wrong(c, 400, "text", "text must be an object");
    if (!format) return 0;
    if (is_type(format, "text") || is_type(format, "json_object"))
        return json_object_set(chat, "response_format", format);
    if (!is_type(format, "json_schema") || !json_object_get(format, "schema"))
        return call_wrong(
            c, 400, "text",
            "text.format must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or "
            "{\"type\": \"json_schema\", \"schema\": ..}");
    return json_object_set_new(
        chat, "response_format",
        json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format));
}

static int take_previous(struct call *c, json_t *chat, json_t *v)
{
    (void)chat;
    (void)v;
    return call_wrong(c, 400, "previous_response_id",
                      "this server stores no responses; send the whole conversation as input");
}

static int take_truncation(struct call *c, json_t *chat, json_t *v)
{
    (void)chat;
    c->ask.truncates = is_word(v, "auto");
    if (c->ask.truncates || is_word(v, "disabled")) return 0;
    return call_wrong(c, 400, "truncation", "truncation must be auto or disabled");
}

/* {"effort": ..}, which is the template's; summaries have no effect. */
static int take_reasoning(struct call *c, json_t *chat, json_t *v)
{
    json_t *effort = json_object_get(v, "effort");
    if (!json_is_object(v)) return call_wrong(c, 400, "reasoning", "reasoning must be an object");
    if (!effort || json_is_null(effort)) return 0;
    return json_object_set(chat, "reasoning_effort", effort) ? call_no_memory(c) : 0;
}

static const struct turn_field rows[] = {
    {"input", "messages", take_input},
    {"instructions", NULL, take_instructions},
    {"max_output_tokens", "max_tokens", NULL},
    {"tools", NULL, take_tools},
    {"tool_choice", NULL, take_tool_choice},
    {"text", "response_format", take_text},
    {"truncation", NULL, take_truncation},
    {"previous_response_id", NULL, take_previous},
    {"reasoning", "reasoning_effort", take_reasoning},
    {"include", NULL, NULL},
    {"background", NULL, NULL},
    {"prompt_cache_retention", NULL, NULL},
    {"max_tool_calls", NULL, NULL},
    {"stream_options", NULL, NULL},
};

static int take(struct call *c)
{
    if (turn_translate(c) || fields_take(c)) return -1;
    if (!json_object_get(turn_original(c), "input"))
        return call_wrong(c, 400, "input", "input is missing");
    if (c->ask.n != 1)
        return call_wrong(c, 400, "n", "n must be 1: this endpoint returns one answer");
    return turn_take(c);
}

/* ---- answers ---- */

/* The text of a part; takes text. */
static json_t *content_part(const struct turn_part *p, json_t *text)
{
    if (p->kind == TOOLS_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations",
                     "logprobs");
}

static json_t *item_id(const struct call *c, const struct turn_part *p)
{
    static const char *const prefix[] = {"msg", "rs", "fc"};
    const char *number = strchr(c->name, '_');
    return json_sprintf("%s%s_%u", prefix[p->kind], number ? number : "", p->index);
}

static bool is_cut(const struct choice *ch)
{
    return ch->life == CHOICE_ENDED && strcmp(call_finish_reason(ch), "length") == 0;
}

/* An output item; empty: as it begins. Of an answer that was cut the last one is incomplete, but a
 * call is whole or none. */
static json_t *item(const struct call *c, const struct turn_part *p, bool empty)
{
    const struct turn *t = c->choices[0].state;
    bool cut = is_cut(&c->choices[0]) && p->index + 1 == t->n_parts && p->kind != TOOLS_CALL;
    const char *status = empty ? "in_progress" : cut ? "incomplete" : "completed";
    json_t *id = item_id(c, p), *text = empty ? json_string("") : turn_text(p);
    if (p->kind == TOOLS_CALL)
        return json_pack("{s:s, s:o, s:s, s:s, s:o, s:s}", "type", "function_call", "id", id,
                         "call_id", p->id, "name", p->name, "arguments", text, "status", status);
    json_t *content = json_array();
    if (empty)
        json_decref(text);
    else
        json_array_append_new(content, content_part(p, text));
    if (p->kind == TOOLS_REASONING)
        return json_pack("{s:s, s:o, s:[], s:o, s:s}", "type", "reasoning", "id", id, "summary",
                         "content", content, "status", status);
    return json_pack("{s:s, s:o, s:s, s:o, s:s}", "type", "message", "id", id, "role", "assistant",
                     "content", content, "status", status);
}

static json_t *usage(const struct call *c)
{
    const struct fletch_result *r = &c->choices[0].result;
    const struct turn *t = c->choices[0].state;
    json_int_t n_in = call_prompt_tokens(c, 0), n_out = r->n_generated;
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", n_in,
                     "input_tokens_details", "cached_tokens", (json_int_t)r->n_reused,
                     "output_tokens", n_out, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)t->n_reasoning, "total_tokens", n_in + n_out);
}

/* What was asked for, as it was, or what counts as said where it was not. */
static void echo(const struct call *c, json_t *response)
{
    static const struct {
        const char *name, *otherwise;
    } echoed[] = {{"instructions", "null"},
                  {"max_output_tokens", "null"},
                  {"metadata", "{}"},
                  {"parallel_tool_calls", "true"},
                  {"previous_response_id", "null"},
                  {"reasoning", "null"},
                  {"text", "{\"format\": {\"type\": \"text\"}}"},
                  {"tool_choice", "\"auto\""},
                  {"tools", "[]"},
                  {"truncation", "\"disabled\""}};
    for (size_t i = 0; i < sizeof echoed / sizeof *echoed; i++) {
        json_t *said = json_object_get(turn_original(c), echoed[i].name);
        if (said && !json_is_null(said))
            json_object_set(response, echoed[i].name, said);
        else
            json_object_set_new(response, echoed[i].name,
                                json_loads(echoed[i].otherwise, JSON_DECODE_ANY, NULL));
    }
}

/* The response as it stands; status: in_progress, completed, incomplete or failed. */
static json_t *response(struct call *c, const char *status)
{
    struct turn *t = turn_of(&c->choices[0]);
    json_t *output = json_array(), *j;
    bool cut = strcmp(status, "incomplete") == 0;
    for (uint32_t i = 0; i < t->n_parts; i++)
        json_array_append_new(output, item(c, &t->parts[i], false));
    j = json_pack(
        "{s:s, s:s, s:I, s:s, s:n, s:o, s:s, s:o, s:f, s:f}", "id", c->name, "object", "response",
        "created_at", (json_int_t)c->created, "status", status, "error", "incomplete_details",
        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "model",
        c->served->id, "output", output, "temperature", (double)c->ask.set.r.sampling.temperature,
        "top_p", (double)c->ask.set.r.sampling.top_p);
    echo(c, j);
    json_object_set_new(j, "usage", c->choices[0].life == CHOICE_ENDED ? usage(c) : json_null());
    if (c->ask.truncates)
        json_object_set_new(j, "fletch",
                            json_pack("{s:I}", "dropped_messages", (json_int_t)c->ask.n_dropped));
    return j;
}

/* ---- events ---- */

static void send(struct call *c, const char *type, json_t *event)
{
    struct turn *t = turn_of(&c->choices[0]);
    json_object_set_new(event, "type", json_string(type));
    json_object_set_new(event, "sequence_number", json_integer(t->n_events++));
    sse_send(c->conn, type, event);
}

static void send_response(struct call *c, const char *type, const char *status)
{
    send(c, type, json_pack("{s:o}", "response", response(c, status)));
}

/* {item_id, output_index} and, but for calls, content_index. */
static json_t *place(const struct call *c, const struct turn_part *p)
{
    json_t *j =
        json_pack("{s:o, s:I}", "item_id", item_id(c, p), "output_index", (json_int_t)p->index);
    if (p->kind != TOOLS_CALL) json_object_set_new(j, "content_index", json_integer(0));
    return j;
}

static void send_part(struct call *c, const char *type, const struct turn_part *p, const char *key,
                      json_t *value)
{
    json_t *event = place(c, p);
    json_object_set_new(event, key, value);
    if (p->kind == TOOLS_CONTENT && strcmp(key, "part") != 0)
        json_object_set_new(event, "logprobs", json_array());
    send(c, type, event);
}

static void send_item(struct call *c, const char *type, const struct turn_part *p, bool empty)
{
    send(c, type,
         json_pack("{s:I, s:o}", "output_index", (json_int_t)p->index, "item", item(c, p, empty)));
}

static const struct {
    const char *delta, *done, *key;
} names[] = {
    [TOOLS_CONTENT] = {"response.output_text.delta", "response.output_text.done", "text"},
    [TOOLS_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    [TOOLS_CALL] = {"response.function_call_arguments.delta",
                    "response.function_call_arguments.done", "arguments"},
};

static void open_item(struct call *c, struct choice *ch, const struct turn_part *p)
{
    (void)ch;
    send_item(c, "response.output_item.added", p, true);
    if (p->kind != TOOLS_CALL)
        send_part(c, "response.content_part.added", p, "part", content_part(p, json_string("")));
}

static void more_item(struct call *c, struct choice *ch, const struct turn_part *p,
                      const char *text, size_t n)
{
    (void)ch;
    send_part(c, names[p->kind].delta, p, "delta", json_text(text, n));
}

static void close_item(struct call *c, struct choice *ch, const struct turn_part *p)
{
    (void)ch;
    send_part(c, names[p->kind].done, p, names[p->kind].key, turn_text(p));
    if (p->kind != TOOLS_CALL)
        send_part(c, "response.content_part.done", p, "part", content_part(p, turn_text(p)));
    send_item(c, "response.output_item.done", p, false);
}

static const struct turn_writer writer = {open_item, more_item, close_item};

static void begin(struct call *c)
{
    if (!c->ask.stream) return;
    sse_begin(c->conn);
    send_response(c, "response.created", "in_progress");
    send_response(c, "response.in_progress", "in_progress");
}

static void token(struct call *c, struct choice *ch, const struct token *t)
{
    turn_token(c, ch, t, c->ask.stream ? &writer : NULL);
}

static void done(struct call *c, struct choice *ch)
{
    turn_done(c, ch, c->ask.stream ? &writer : NULL);
}

static void end(struct call *c)
{
    bool cut = is_cut(&c->choices[0]);
    const char *status = cut ? "incomplete" : "completed";
    if (!c->ask.stream) {
        json_reply(c->conn, 200, response(c, status));
        return;
    }
    send_response(c, cut ? "response.incomplete" : "response.completed", status);
    sse_end(c->conn, NULL);
}

static void broken(struct call *c)
{
    if (!c->ask.stream) {
        problem_reply(c->conn, &c->problem, NULL);
        return;
    }
    json_t *failed = response(c, "failed");
    json_object_set_new(failed, "error",
                        json_pack("{s:s, s:o}", "code", "server_error", "message",
                                  json_text(c->problem.text, strlen(c->problem.text))));
    send(c, "response.failed", json_pack("{s:o}", "response", failed));
    sse_end(c->conn, NULL);
}

const struct api api_responses = {
    .label = "responses",
    .prefix = "resp_",
    .fields = chat_tables,
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .take = take,
    .begin = begin,
    .token = token,
    .done = done,
    .end = end,
    .broken = broken,
    .free = turn_free,
};
