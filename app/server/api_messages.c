/* /v1/messages and /v1/messages/count_tokens, as Anthropic has them. A request becomes a chat in
 * OpenAI's form, which is what templates know; parts of the answer become content blocks. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "turn.h"

/* ---- requests ---- */

static json_t *text_of(const json_t *block, const char *type, const char *key)
{
    const char *its = json_word(json_object_get(block, "type"));
    json_t *text = json_object_get(block, key);
    return its && strcmp(its, type) == 0 && json_is_string(text) ? text : NULL;
}

/* A text, or the texts of an array of blocks one after the other; NULL: there is another block. */
static json_t *joined(const json_t *content)
{
    struct words all = {0};
    size_t i;
    json_t *block;
    bool good = json_is_array(content) || json_is_string(content);
    if (json_is_string(content))
        words_try_add(&all, json_string_value(content), json_string_length(content));
    json_array_foreach((json_t *)content, i, block)
    {
        const json_t *text = text_of(block, "text", "text");
        if (text) words_try_add(&all, json_string_value(text), json_string_length(text));
        good &= text != NULL;
    }
    json_t *j = good ? words_json(&all) : NULL;
    free(all.p);
    return j;
}

/* Claude Code's first block of the system prompt is about billing, and differs in every request: no
 * two of them would have a prefix in common. */
static json_t *without_billing(struct call *c, json_t *system)
{
    static const char begin[] = "x-anthropic-billing-header:";
    const json_t *first = text_of(json_array_get(system, 0), "text", "text");
    if (!first || strncmp(json_string_value(first), begin, sizeof begin - 1) != 0)
        return json_incref(system);
    json_t *rest = json_copy(system);
    json_array_remove(rest, 0);
    if (!atomic_exchange(&c->server->noted_billing, true))
        log_line(c->server,
                 "system blocks that begin with %s are removed from prompts, so that requests that "
                 "differ in them share their prefix",
                 begin);
    return rest;
}

static int take_system(struct call *c, json_t *chat, json_t *v)
{
    json_t *kept = without_billing(c, v), *text = joined(kept);
    bool is_empty = json_is_array(kept) && !json_array_size(kept) && json_array_size(v);
    json_decref(kept);
    if (is_empty) {
        json_decref(text);
        return 0;
    }
    if (!text)
        return call_wrong(c, 400, "system", "system must be a string or an array of text blocks");
    return json_array_insert_new(json_object_get(chat, "messages"), 0,
                                 json_pack("{s:s, s:o}", "role", "system", "content", text));
}

static int take_tool_use(struct call *c, const json_t *block, json_t *message)
{
    json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    json_t *calls = json_object_get(message, "tool_calls");
    if (!json_is_string(name) || !json_is_object(input))
        return call_wrong(c, 400, "messages", "a tool_use block must have name and input");
    if (!calls) json_object_set_new(message, "tool_calls", calls = json_array());
    return json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id",
                                                  json_object_get(block, "id"), "type", "function",
                                                  "function", "name", name, "arguments", input));
}

static int take_tool_result(struct call *c, const json_t *block, json_t *messages)
{
    const json_t *given = json_object_get(block, "content");
    json_t *content = given ? joined(given) : json_string("");
    if (!content) return call_wrong(c, 400, "messages", "a tool_result may contain only text");
    return json_array_append_new(
        messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                            json_object_get(block, "tool_use_id"), "content", content));
}

/* One block of a message. Texts gather in *said; the result of a tool is a message of its own. */
static int take_block(struct call *c, const json_t *block, json_t *messages, json_t *message,
                      struct words *said)
{
    const json_t *text = text_of(block, "text", "text");
    json_t *thought = text_of(block, "thinking", "thinking");
    if (text_of(block, "tool_use", "id")) return take_tool_use(c, block, message);
    if (text_of(block, "tool_result", "tool_use_id")) return take_tool_result(c, block, messages);
    if (thought) return json_object_set(message, "reasoning_content", thought);
    if (!text)
        return call_wrong(
            c, 400, "messages",
            "the type of a content block must be text, thinking, tool_use or tool_result");
    words_try_add(said, json_string_value(text), json_string_length(text));
    return 0;
}

static int take_message(struct call *c, const json_t *from, json_t *messages)
{
    const char *role = json_word(json_object_get(from, "role"));
    json_t *content = json_object_get(from, "content"), *block;
    struct words said = {0};
    size_t i;
    int rc = 0;
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return call_wrong(c, 400, "messages", "the role of a message must be user or assistant");
    json_t *message = json_pack("{s:s}", "role", role);
    if (json_is_string(content))
        words_try_add(&said, json_string_value(content), json_string_length(content));
    else if (!json_is_array(content))
        rc = call_wrong(c, 400, "messages", "a message must have content");
    json_array_foreach(content, i, block)
    {
        if (!rc) rc = take_block(c, block, messages, message, &said);
    }
    if (!rc && (said.n || json_object_size(message) > 1 || json_is_string(content))) {
        rc = json_object_set_new(message, "content", words_json(&said));
        if (rc) rc = call_no_memory(c);
        json_array_append(messages, message);
    }
    json_decref(message);
    free(said.p);
    return rc;
}

static int take_messages(struct call *c, json_t *chat, json_t *v)
{
    size_t i;
    json_t *m;
    if (!json_is_array(v)) return call_wrong(c, 400, "messages", "messages must be an array");
    json_array_foreach(v, i, m)
    {
        if (take_message(c, m, json_object_get(chat, "messages"))) return -1;
    }
    return 0;
}

static int take_tools(struct call *c, json_t *chat, json_t *v)
{
    size_t i;
    json_t *tool, *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    if (!json_is_array(v)) return call_wrong(c, 400, "tools", "tools must be an array");
    json_array_foreach(v, i, tool)
    {
        json_t *name = json_object_get(tool, "name"),
               *schema = json_object_get(tool, "input_schema");
        if (!name || !schema)
            return call_wrong(c, 400, "tools", "tool %zu must have name and input_schema", i);
        json_array_append_new(tools, json_pack("{s:s, s:{s:O, s:O*, s:O}}", "type", "function",
                                               "function", "name", name, "description",
                                               json_object_get(tool, "description"), "parameters",
                                               schema));
    }
    return 0;
}

/* auto, any, tool or none, in OpenAI's words. */
static int take_tool_choice(struct call *c, json_t *chat, json_t *v)
{
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const char *type = json_word(json_object_get(v, "type"));
    json_t *name = json_object_get(v, "name"), *choice = NULL;
    json_t *one = json_object_get(v, "disable_parallel_tool_use");
    if (one && !json_is_boolean(one))
        return call_wrong(c, 400, "tool_choice",
                          "tool_choice.disable_parallel_tool_use must be true or false");
    c->ask.one_tool_call = json_is_true(one);
    for (size_t i = 0; type && i < sizeof words / sizeof *words; i++)
        if (strcmp(type, words[i][0]) == 0) choice = json_string(words[i][1]);
    if (type && strcmp(type, "tool") == 0 && json_is_string(name))
        choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (choice) return json_object_set_new(chat, "tool_choice", choice);
    return call_wrong(c, 400, "tool_choice",
                      "the type of tool_choice must be auto, any, none, or tool with a name");
}

/* {"type": "enabled", "budget_tokens": ..}, adaptive or disabled: a setting of the template. */
static int take_thinking(struct call *c, json_t *chat, json_t *v)
{
    const char *type = json_word(json_object_get(v, "type"));
    (void)chat;
    if (type && strcmp(type, "disabled") == 0)
        c->ask.think = THINK_OFF;
    else if (type && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0))
        c->ask.think = THINK_ON;
    else {
        call_wrong(c, 400, "thinking", "thinking.type must be enabled, adaptive or disabled");
        return call_at(c, "thinking.type");
    }
    const json_t *budget = json_object_get(v, "budget_tokens");
    if (!budget || json_is_null(budget) || c->ask.think == THINK_OFF) return 0;
    return field_think_budget(c, "thinking.budget_tokens", budget);
}

/* {"format": {"type": "json_schema", "schema": ..}, "effort": ..}, of which the latter is the
 * template's. */
static int take_output_config(struct call *c, json_t *chat, json_t *v)
{
    json_t *format = json_object_get(v, "format"), *effort = json_object_get(v, "effort");
    if (!json_is_object(v))
        return call_wrong(c, 400, "output_config", "output_config must be an object");
    if (effort && json_object_set(chat, "reasoning_effort", effort)) return call_no_memory(c);
    if (!format) return 0;
    const char *type = json_word(json_object_get(format, "type"));
    if (!type || strcmp(type, "json_schema") != 0 || !json_object_get(format, "schema"))
        return call_wrong(
            c, 400, "output_config",
            "output_config.format must be {\"type\": \"json_schema\", \"schema\": ..}");
    return json_object_set_new(
        chat, "response_format",
        json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format));
}

/* The assistant's last message is the beginning of the answer. Blanks at its end belong to the
 * model's next token, which it could no longer write. */
static int take_beginning(struct call *c)
{
    const json_t *messages = json_object_get(c->body, "messages");
    size_t n = json_array_size(messages);
    const json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    const char *role = json_word(json_object_get(last, "role"));
    const json_t *content = json_object_get(last, "content");
    size_t n_text = json_string_length(content);
    if (!role || strcmp(role, "assistant") != 0) return 0;
    if (json_object_get(last, "tool_calls"))
        return call_wrong(c, 400, "messages",
                          "the last message calls a tool, but its result is missing");
    if (!n_text || strchr(" \t\r\n", json_string_value(content)[n_text - 1]))
        return call_wrong(
            c, 400, "messages",
            "the last message is the assistant's, so the answer continues it; its content must "
            "not be empty or end in whitespace");
    return json_object_set_new(c->body, "continue_final_message", json_true()) ? call_no_memory(c)
                                                                               : 0;
}

static const struct turn_field rows[] = {
    {"system", NULL, take_system},     {"messages", NULL, take_messages},
    {"tools", NULL, take_tools},       {"tool_choice", NULL, take_tool_choice},
    {"thinking", NULL, take_thinking}, {"output_config", "response_format", take_output_config},
    {"stop_sequences", "stop", NULL},
};

static int take_any(struct call *c)
{
    if (turn_translate(c) || take_beginning(c) || fields_take(c)) return -1;
    if (c->ask.n != 1)
        return call_wrong(c, 400, "n", "n must be 1: this endpoint returns one answer");
    return turn_take(c);
}

static int take(struct call *c)
{
    if (take_any(c)) return -1;
    return c->ask.set.max_tokens_set ? 0
                                     : call_wrong(c, 400, "max_tokens", "max_tokens is missing");
}

static int take_count(struct call *c)
{
    if (take_any(c)) return -1;
    c->reply = json_pack("{s:I}", "input_tokens", (json_int_t)c->prompts[0].n);
    return 0;
}

/* ---- answers ---- */

static const char *stop_reason(struct choice *ch)
{
    if (turn_of(ch)->n_calls) return "tool_use";
    if (ch->result.finish == FLETCH_FINISH_STOP) return "stop_sequence";
    return ch->result.finish == FLETCH_FINISH_END ? "end_turn" : "max_tokens";
}

static json_t *stop_sequence(const struct call *c, const struct choice *ch)
{
    bool stopped = ch->life == CHOICE_ENDED && ch->result.finish == FLETCH_FINISH_STOP;
    return stopped ? json_string(c->ask.set.stops[ch->result.stop]) : json_null();
}

/* The prompt's tokens are counted as Anthropic does: those found in the cache apart. */
static json_t *usage(const struct call *c)
{
    const struct fletch_result *r = &c->choices[0].result;
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", call_prompt_tokens(c, 0) - r->n_reused,
                     "output_tokens", (json_int_t)r->n_generated, "cache_read_input_tokens",
                     (json_int_t)r->n_reused, "cache_creation_input_tokens", (json_int_t)0);
}

static json_t *message(struct call *c, json_t *content, const char *reason, json_t *sequence)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:o, s:o}", "id", c->name, "type", "message",
                     "role", "assistant", "model", c->served->id, "content", content, "stop_reason",
                     reason, "stop_sequence", sequence, "usage", usage(c));
}

/* Takes the text; a call's is its arguments. */
static json_t *block(const struct turn_part *p, json_t *text)
{
    if (p->kind == TOOLS_CONTENT) return json_pack("{s:s, s:o}", "type", "text", "text", text);
    if (p->kind == TOOLS_REASONING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", text, "signature", "");
    json_t *input =
        json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
    json_decref(text);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", p->id, "name", p->name,
                     "input", input ? input : json_object());
}

static void send(struct call *c, const char *type, json_t *event)
{
    json_object_set_new(event, "type", json_string(type));
    sse_send(c->conn, type, event);
}

static void open_block(struct call *c, struct choice *ch, const struct turn_part *p)
{
    (void)ch;
    json_t *b = block(p, json_string(""));
    send(c, "content_block_start",
         json_pack("{s:I, s:o}", "index", (json_int_t)p->index, "content_block", b));
}

static void more_block(struct call *c, struct choice *ch, const struct turn_part *p,
                       const char *text, size_t n)
{
    static const char *const delta[][2] = {[TOOLS_CONTENT] = {"text_delta", "text"},
                                           [TOOLS_REASONING] = {"thinking_delta", "thinking"},
                                           [TOOLS_CALL] = {"input_json_delta", "partial_json"}};
    (void)ch;
    send(c, "content_block_delta",
         json_pack("{s:I, s:{s:s, s:o}}", "index", (json_int_t)p->index, "delta", "type",
                   delta[p->kind][0], delta[p->kind][1], json_text(text, n)));
}

static void close_block(struct call *c, struct choice *ch, const struct turn_part *p)
{
    (void)ch;
    send(c, "content_block_stop", json_pack("{s:I}", "index", (json_int_t)p->index));
}

static const struct turn_writer writer = {open_block, more_block, close_block};

static void begin(struct call *c)
{
    if (!c->ask.stream) return;
    sse_begin(c->conn);
    send(c, "message_start",
         json_pack("{s:o}", "message", message(c, json_array(), NULL, json_null())));
}

static void token(struct call *c, struct choice *ch, const struct token *t)
{
    turn_token(c, ch, t, c->ask.stream ? &writer : NULL);
}

static void done(struct call *c, struct choice *ch)
{
    turn_done(c, ch, c->ask.stream ? &writer : NULL);
    if (!c->ask.stream) return;
    send(c, "message_delta",
         json_pack("{s:{s:s, s:o}, s:o}", "delta", "stop_reason", stop_reason(ch), "stop_sequence",
                   stop_sequence(c, ch), "usage", usage(c)));
    send(c, "message_stop", json_object());
}

static void end(struct call *c)
{
    struct choice *ch = &c->choices[0];
    struct turn *t = turn_of(ch);
    if (c->ask.stream) {
        sse_end(c->conn, NULL);
        return;
    }
    json_t *content = json_array();
    for (uint32_t i = 0; i < t->n_parts; i++)
        json_array_append_new(content, block(&t->parts[i], turn_text(&t->parts[i])));
    json_reply(c->conn, 200, message(c, content, stop_reason(ch), stop_sequence(c, ch)));
}

static json_t *problem(const struct problem *p)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {500, "api_error"},
                 {503, "overloaded_error"}};
    const char *type = "invalid_request_error";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == p->status) type = types[i].type;
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                     json_text(p->text, strlen(p->text)));
}

static void broken(struct call *c)
{
    if (!c->ask.stream) {
        problem_reply(c->conn, &c->problem, problem);
        return;
    }
    sse_send(c->conn, "error", problem(&c->problem));
    sse_end(c->conn, NULL);
}

const struct api api_messages = {
    .label = "messages",
    .prefix = "msg_",
    .fields = chat_tables,
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .take = take,
    .begin = begin,
    .token = token,
    .done = done,
    .end = end,
    .free = turn_free,
    .broken = broken,
    .problem = problem,
};

const struct api api_count_tokens = {
    .label = "count_tokens",
    .prefix = "count_",
    .fields = chat_tables,
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .take = take_count,
    .free = turn_free,
    .problem = problem,
};
