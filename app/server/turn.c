#include "turn.h"

#include <stdlib.h>
#include <string.h>

#include "app.h"

enum { NAME_MAX_CHARS = 64, TAIL_TOKENS = 8, TOKENS_MAX = 48 };

/* What was asked for: a call's state. */
struct turns {
    struct tools_format format;
    json_t *tools; /* that may be called; NULL: none */
    char *grammar; /* of the whole answer; NULL: there is none */
    bool thinking; /* the prompt ends inside <think> */
    bool is_form;  /* the answer is what response_format or grammar asks for */
    bool noticed;  /* that an answer has what looks like a call and is none */
    json_t *original;
};

static struct turns *turns_of(struct call *c)
{
    if (!c->state) c->state = memory_zeroed(sizeof(struct turns));
    return c->state;
}

/* ---- on a worker: other flavours ---- */

static int translate_field(struct call *c, json_t *chat, const struct turn_field *row,
                           const char *name, json_t *v)
{
    if (!row && call_field(c, name) != name)
        return !call_ignore(c, name) ? 0
                                     : call_wrong(c, 400, name, "unknown field %s; use %s",
                                                  QUOTE(name), call_field(c, name));
    if (row && row->take) return row->take(c, chat, v);
    if (row && !row->to) return 0;
    return json_object_set(chat, row ? row->to : name, v);
}

int turn_translate(struct call *c)
{
    json_t *chat = json_pack("{s:[]}", "messages"), *from = c->body, *v;
    const char *name;
    turns_of(c)->original = from;
    c->body = chat;
    json_object_foreach(from, name, v)
    {
        const struct turn_field *row = NULL;
        for (size_t i = 0; i < c->api->n_rows && !row; i++)
            if (strcmp(c->api->rows[i].name, name) == 0) row = &c->api->rows[i];
        if (!json_is_null(v) && translate_field(c, chat, row, name, v)) return -1;
    }
    return 0;
}

const json_t *turn_original(const struct call *c)
{
    return ((const struct turns *)c->state)->original;
}

/* ---- on a worker: tools ---- */

static bool is_name(const json_t *v)
{
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    return n >= 1 && n <= NAME_MAX_CHARS && strspn(s, chars) == n;
}

static int check_tools(struct call *c)
{
    size_t i;
    json_t *tool;
    uint64_t most = limit_of(&c->server->limits, tools);
    if (json_array_size(c->ask.tools) > most)
        return call_over(c, LIMIT_tools, "tools", json_array_size(c->ask.tools));
    json_array_foreach(c->ask.tools, i, tool)
    {
        const char *type = json_word(json_object_get(tool, "type"));
        const json_t *f = json_object_get(tool, "function"), *p = json_object_get(f, "parameters");
        if (!type || strcmp(type, "function") != 0 || !json_is_object(f)) {
            call_wrong(c, 400, "tools", "the type of tool %zu must be function", i);
            return call_at(c, "tools[%zu]", i);
        }
        if (!is_name(json_object_get(f, "name"))) {
            call_wrong(c, 400, "tools",
                       "the name of tool %zu must consist of 1 to %d letters, digits, _ and -", i,
                       NAME_MAX_CHARS);
            return call_at(c, "tools[%zu].%sname", i, c->api->n_rows ? "" : "function.");
        }
        if (p && !json_is_null(p) && !json_is_object(p)) {
            call_wrong(c, 400, "tools", "the parameters of tool %s must be a JSON schema",
                       json_string_value(json_object_get(f, "name")));
            return call_at(c, "tools[%zu]", i);
        }
        if (json_is_null(p)) json_object_del(json_object_get(tool, "function"), "parameters");
    }
    return 0;
}

static json_t *tool_named(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)tools, i, tool)
    {
        const json_t *its = json_object_get(json_object_get(tool, "function"), "name");
        if (strcmp(json_string_value(its), name) == 0) return tool;
    }
    return NULL;
}

static int32_t find_control(void *ctx, const char *text)
{
    const struct served *m = ctx;
    size_t n, n_text = strlen(text);
    for (uint32_t id = 0; id < m->info.n_vocab; id++) {
        if (!served_is_hidden(m, (int32_t)id)) continue;
        const char *piece = served_piece(m, (int32_t)id, &n);
        if (n == n_text && memcmp(piece, text, n) == 0) return (int32_t)id;
    }
    return -1;
}

/* Of which tools one must be called: a new array, NULL when none must. */
static int take_choice(struct call *c, struct turns *t, json_t **must, bool *many)
{
    const json_t *choice = c->ask.tool_choice;
    const char *word = json_word(choice);
    *must = NULL;
    if (!choice || (word && strcmp(word, "auto") == 0)) return 0;
    if (word && strcmp(word, "none") == 0) {
        t->tools = NULL;
        return 0;
    }
    if (!t->tools) return call_wrong(c, 400, "tool_choice", "tool_choice requires tools");
    if (word && strcmp(word, "required") == 0) {
        *must = json_incref(t->tools);
        return 0;
    }
    const char *name = json_word(json_object_get(json_object_get(choice, "function"), "name"));
    if (!name)
        return call_wrong(c, 400, "tool_choice",
                          "tool_choice must be none, auto, required or {\"type\": \"function\", "
                          "\"function\": {\"name\": ..}}");
    json_t *tool = tool_named(t->tools, name);
    if (!tool)
        return call_wrong(c, 400, "tool_choice",
                          "tool_choice names %s, which is not one of the tools", QUOTE(name));
    *must = json_pack("[O]", tool);
    *many = false;
    return 0;
}

/* ---- on a worker: messages ---- */

/* OpenAI's clients send the arguments of earlier calls as text; templates want the object. */
static int open_arguments(struct call *c, const json_t *calls)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)calls, i, one)
    {
        json_t *f = json_object_get(one, "function"), *text = json_object_get(f, "arguments");
        if (!json_is_string(text)) continue;
        json_t *arguments = json_loadb(json_string_value(text), json_string_length(text),
                                       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!json_string_length(text)) arguments = json_object();
        if (!json_is_object(arguments)) {
            json_decref(arguments);
            return call_wrong(c, 400, call_field(c, "messages"),
                              "the arguments of an earlier tool call must be a JSON object");
        }
        json_object_set_new(f, "arguments", arguments);
    }
    return 0;
}

/* Templates know what was thought by three names; clients send the one that they were given. A
 * template with channels has room for either thoughts or content before a call. */
static int name_thoughts(struct call *c, const struct turns *t, json_t *m)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    const json_t *content = json_object_get(m, "content");
    json_t *text = NULL;
    bool taken = json_array_size(json_object_get(m, "tool_calls")) && json_string_length(content) &&
                 t->format.row->syntax == CHAT_CHANNELS;
    for (size_t i = 0; i < sizeof names / sizeof *names && !text; i++)
        if (json_is_string(json_object_get(m, names[i]))) text = json_object_get(m, names[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names && text && !taken; i++)
        if (!json_object_get(m, names[i]) && json_object_set(m, names[i], text))
            return call_no_memory(c);
    return 0;
}

static int open_messages(struct call *c, const struct turns *t)
{
    size_t i;
    json_t *m;
    json_array_foreach(c->ask.messages, i, m)
    {
        const char *role = json_word(json_object_get(m, "role"));
        if (role && strcmp(role, "developer") == 0)
            json_object_set_new(m, "role", json_string("system"));
        else if (role && strcmp(role, "assistant") == 0 && name_thoughts(c, t, m))
            return -1;
        if (open_arguments(c, json_object_get(m, "tool_calls"))) return -1;
    }
    return 0;
}

/* For templates that show no tools: they stand in the system message. */
static int describe_tools(struct call *c, const struct turns *t)
{
    char *text = tools_describe(t->tools);
    int failed;
    if (!text) return call_no_memory(c);
    json_t *first = json_array_get(c->ask.messages, 0);
    const char *role = json_word(json_object_get(first, "role"));
    const json_t *said = json_object_get(first, "content");
    if (role && strcmp(role, "system") == 0 && json_is_string(said)) {
        struct words whole = {0};
        words_try_add(&whole, json_string_value(said), json_string_length(said));
        words_try_add(&whole, "\n\n", 2);
        words_try_add(&whole, text, strlen(text));
        failed = json_object_set_new(first, "content", words_json(&whole));
        free(whole.p);
    } else
        failed = json_array_insert_new(c->ask.messages, 0,
                                       json_pack("{s:s, s:s}", "role", "system", "content", text));
    free(text);
    return failed ? call_no_memory(c) : 0;
}

/* ---- on a worker: prompts ---- */

/* Gives the template a variable that the client did not give. */
static int set_arg(struct call *c, const char *name, json_t *value)
{
    if (!c->ask.template_args) {
        c->ask.template_args = json_object();
        json_object_set_new(c->body, "chat_template_kwargs", c->ask.template_args); /* owns it */
    }
    bool given = json_object_get(c->ask.template_args, name) != NULL;
    int failed = given ? 0 : json_object_set(c->ask.template_args, name, value);
    json_decref(value);
    return failed ? call_no_memory(c) : 0;
}

static int no_variable(struct call *c, const char *param, const char *name)
{
    return call_wrong(
        c, 400, param,
        "this model's chat template has no variable %s, so setting it would have no effect",
        QUOTE(name));
}

/* What would change nothing is refused: variables that the template does not read. */
static int take_args(struct call *c, const struct turns *t)
{
    const char *name, *effort_field = call_field(c, "reasoning_effort");
    json_t *v;
    if (!c->served->info.has_template) return 0; /* which is what will be said */
    json_object_foreach(c->ask.template_args, name, v)
    {
        enum chat_variable found = chat_find_variable(c->served->model, name);
        if (found == VARIABLE_READ) continue;
        no_variable(c, "chat_template_kwargs", name);
        if (found == VARIABLE_OWN)
            call_wrong(c, 400, NULL,
                       "chat_template_kwargs cannot set %s; use the corresponding field of the "
                       "request instead",
                       name);
        return call_at(c, "chat_template_kwargs.%s", name);
    }
    if (c->ask.effort) {
        if (!fletch_chat_reads(c->served->model, "reasoning_effort"))
            return no_variable(c, effort_field, "reasoning_effort");
        if (set_arg(c, "reasoning_effort", json_copy((json_t *)c->ask.effort))) return -1;
    }
    if (c->ask.think_budget && fletch_chat_reads(c->served->model, "thinking_budget") &&
        set_arg(c, "thinking_budget", json_integer((json_int_t)c->ask.think_budget - 1)))
        return -1;
    name = chat_think_variable(c->served->model);
    if (c->ask.think && name) return set_arg(c, name, json_boolean(c->ask.think == THINK_ON));
    bool is_so = (c->ask.think == THINK_ON) == t->format.thinks;
    if (!c->ask.think || is_so) return 0;
    return no_variable(c, c->ask.think_field ? c->ask.think_field : "thinking", "enable_thinking");
}

/* The text of a prompt's last tokens; free. */
static struct words prompt_tail(const struct call *c)
{
    const struct prompt *p = &c->prompts[c->n_prompts - 1];
    struct words tail = {0};
    for (size_t i = p->n > TAIL_TOKENS ? p->n - TAIL_TOKENS : 0; i < p->n; i++) {
        size_t n;
        const char *piece = served_piece(c->served, p->ids[i], &n);
        words_add(&tail, piece, n);
    }
    words_add(&tail, "", 1);
    return tail;
}

/* ---- on a worker: the grammar of the answer ---- */

/* Any token of that text, a control token or not; -1: there is none. */
static int32_t find_token(const struct served *m, const char *text)
{
    size_t n, n_text = strlen(text);
    for (uint32_t id = 0; id < m->info.n_vocab; id++) {
        const char *piece = served_piece(m, (int32_t)id, &n);
        if (n == n_text && memcmp(piece, text, n) == 0) return (int32_t)id;
    }
    return -1;
}

static int set_budget(struct call *c, const struct turns *t, struct tools_ask *ask,
                      char tokens[TOKENS_MAX])
{
    const struct chat_format *row = t->format.row;
    int32_t end = row->think_end ? find_token(c->served, row->think_end) : -1, begin = -1;
    bool begins = !t->thinking && !row->headers;
    if (begins && row->think) begin = find_token(c->served, row->think);
    if (!t->format.thinks || end < 0 || (begins && begin < 0))
        return call_wrong(c, 400, "thinking_budget", "thinking_budget cannot be used, because %s",
                          t->format.thinks
                              ? "no token of this model's vocabulary ends thinking"
                              : "this model's chat template does not support thinking");
    ask->budget = (uint32_t)(c->ask.think_budget - 1);
    int n = snprintf(tokens, TOKENS_MAX, "<[%d]>", end);
    if (begins) snprintf(tokens + n, TOKENS_MAX - (size_t)n, " <[%d]>", begin);
    ask->budget_tokens = tokens;
    return 0;
}

/* Of which kind the grammar must be; false: none is needed. */
static bool needs_grammar(const struct call *c, const struct turns *t, bool must,
                          enum tools_what *what)
{
    const struct fletch_request *r = &c->ask.set.r;
    bool strict = t->tools && c->ask.one_tool_call;
    size_t i;
    json_t *tool;
    json_array_foreach(t->tools, i, tool) strict |=
        json_is_true(json_object_get(json_object_get(tool, "function"), "strict"));
    *what = must             ? TOOLS_MUST
            : r->json_schema ? TOOLS_FORM
            : r->grammar     ? TOOLS_GRAMMAR
            : strict         ? TOOLS_MAY
                             : TOOLS_ANY;
    return must || strict || t->is_form || c->ask.think_budget;
}

/* Whether a prompt that does not end inside thinking lets the model begin it: not where the prompt
 * ends it, nor where turning it off would change nothing, because it is off already. */
static int find_thinking(struct call *c, const struct turns *t, bool *may_think)
{
    const char *end = t->format.row->think_end, *name = chat_think_variable(c->served->model);
    const json_t *given = name ? json_object_get(c->ask.template_args, name) : NULL;
    bool off = c->ask.think == THINK_OFF || (given && !json_is_true(given));
    *may_think = t->thinking;
    if (t->thinking || !t->format.thinks || off) return 0;
    struct words tail = prompt_tail(c);
    const char *at = tail.p ? strstr(tail.p, end) : NULL;
    bool ended = at && !at[strlen(end) + strspn(at + strlen(end), " \n")];
    free(tail.p);
    *may_think = !ended;
    if (ended || !name || given) return 0;
    if (set_arg(c, name, json_false()) || prompt_chat_again(c, &off)) return -1;
    json_object_del(c->ask.template_args, name);
    *may_think = !off;
    return 0;
}

/* One grammar over the whole answer, whatever was asked for: thinking first, if the prompt lets
 * the model think, then a form, calls, or content and calls. */
static int set_grammar(struct call *c, struct turns *t, const json_t *must, bool many)
{
    char why[300], tokens[TOKENS_MAX];
    struct tools_ask ask = {.format = t->format,
                            .tools = must ? must : t->tools,
                            .many = many,
                            .thinking = t->thinking,
                            .control = find_control,
                            .ctx = c->served};
    if (!needs_grammar(c, t, must != NULL, &ask.what)) return 0;
    if (find_thinking(c, t, &ask.format.thinks)) return -1;
    bool alone = !ask.format.thinks && !t->format.row->say && !c->ask.think_budget;
    if (t->is_form && alone) return 0; /* the form is the whole answer */
    if (c->ask.think_budget && set_budget(c, t, &ask, tokens)) return -1;
    ask.form = ask.what == TOOLS_FORM ? c->ask.set.r.json_schema : c->ask.set.r.grammar;
    t->grammar = tools_grammar(&ask, why, sizeof why);
    if (!t->grammar && !*why) return call_no_memory(c);
    if (!t->grammar) return call_wrong(c, 400, "tools", "%s", why);
    if (must || ask.what == TOOLS_MAY) c->ask.set.form = "tools";
    c->ask.set.r.grammar = t->grammar;
    c->ask.set.r.json_schema = NULL;
    return 0;
}

static int take(struct call *c, struct turns *t, json_t **must)
{
    const struct fletch_model_info *info = &c->served->info;
    t->format = tools_detect(info->chat_template, info->n_chat_template);
    t->tools = json_array_size(c->ask.tools) ? c->ask.tools : NULL;
    bool many = !c->ask.one_tool_call;
    if (check_tools(c) || take_choice(c, t, must, &many) || open_messages(c, t)) return -1;
    t->is_form = !*must && (c->ask.set.r.json_schema || c->ask.set.r.grammar);
    if (take_args(c, t)) return -1;
    if (t->tools && !t->format.knows_tools && describe_tools(c, t)) return -1;
    c->ask.tools = t->format.knows_tools ? t->tools : NULL;
    if (prompt_chat(c)) return -1;
    struct words tail = prompt_tail(c);
    t->thinking = tail.p && tools_prompt_thinks(t->format.row, tail.p, tail.n - 1);
    free(tail.p);
    if (set_grammar(c, t, *must, many)) return -1;
    c->ask.set.r.show_control =
        (t->tools || t->format.thinks) && tools_has_control(t->format, find_control, c->served);
    return 0;
}

int turn_take(struct call *c)
{
    struct turns *t = turns_of(c);
    json_t *must = NULL;
    int rc = take(c, t, &must);
    if (!rc) prompt_marks(c);
    json_decref(must);
    return rc;
}

int turn_prompt(struct call *c, struct words *out)
{
    char *text;
    size_t n;
    if (prompt_chat_text(c, &text, &n)) return -1;
    words_try_add(out, text, n);
    fletch_free(text);
    return 0;
}

/* ---- on the loop: parts ---- */

static struct turn_part *last_part(struct turn *t)
{
    return t->n_parts ? &t->parts[t->n_parts - 1] : NULL;
}

static void close_part(struct turn *t)
{
    if (t->is_open && t->w && t->w->close) t->w->close(t->call, t->choice, last_part(t));
    t->is_open = false;
}

static void on_piece(void *ctx, const struct tools_piece *piece)
{
    struct turn *t = ctx;
    struct turn_part *p = last_part(t);
    if (piece->part == TOOLS_MARKUP) return;
    if (!t->is_open || p->kind != piece->part || piece->part == TOOLS_CALL) {
        close_part(t);
        struct turn_part *longer = realloc(t->parts, (t->n_parts + 1) * sizeof *t->parts);
        if (!longer) {
            memory_fail();
            return;
        }
        t->parts = longer;
        p = &t->parts[t->n_parts];
        *p = (struct turn_part){.kind = piece->part, .index = t->n_parts++};
        if (piece->part == TOOLS_CALL) {
            p->call_index = t->n_calls++;
            p->name = memory_copy(piece->name);
            snprintf(p->id, sizeof p->id, "%s", piece->id);
        }
        t->is_open = true;
        if (t->w && t->w->open) t->w->open(t->call, t->choice, p);
    }
    words_add(&p->text, piece->text, piece->n);
    if (t->w && t->w->more) t->w->more(t->call, t->choice, p, piece->text, piece->n);
}

struct turn *turn_of(struct choice *ch)
{
    if (!ch->state) ch->state = memory_zeroed(sizeof(struct turn));
    return ch->state;
}

static struct turn *begin(struct call *c, struct choice *ch, const struct turn_writer *w)
{
    const struct turns *asked = c->state;
    struct turn *t = turn_of(ch);
    if (t->parser) return t;
    struct tools_params p = {.format = asked->format,
                             .tools = asked->tools,
                             .thinking = asked->thinking,
                             .seed = c->server->boot ^ (c->id << 16) ^ ch->index,
                             .on_piece = on_piece,
                             .ctx = t};
    if (asked->is_form) p.tools = NULL; /* the form is the answer */
    if (tools_open(&t->parser, &p)) memory_fail();
    t->call = c;
    t->choice = ch;
    t->w = w;
    return t;
}

void turn_token(struct call *c, struct choice *ch, const struct token *t,
                const struct turn_writer *w)
{
    struct turn *turn = begin(c, ch, w);
    if (!turn->parser || tools_feed(turn->parser, t->text, t->n_text)) memory_fail();
    turn->n_reasoning += t->id >= 0 && turn->is_open && last_part(turn)->kind == TOOLS_REASONING;
}

/* Said in the log, and to a client to whom no part of the answer was sent. */
static void notice_malformed(struct call *c, struct turns *asked)
{
    if (asked->noticed) return;
    asked->noticed = true;
    log_line(c->server, "#%llu: %s", (unsigned long long)c->id, turn_notice(c));
    call_notice(c, "%s", turn_notice(c));
}

const char *turn_notice(const struct call *c)
{
    const struct turns *asked = c->state;
    return asked && asked->noticed ? "the model wrote a tool call that cannot be parsed; the text "
                                     "of the call is part of the content"
                                   : NULL;
}

void turn_done(struct call *c, struct choice *ch, const struct turn_writer *w)
{
    struct turn *t = begin(c, ch, w);
    if (t->parser) tools_end(t->parser);
    if (t->parser && tools_n_malformed(t->parser)) notice_malformed(c, c->state);
    close_part(t);
}

static void free_turn(struct turn *t)
{
    if (!t) return;
    tools_close(t->parser);
    for (uint32_t i = 0; i < t->n_parts; i++) {
        free(t->parts[i].text.p);
        free(t->parts[i].name);
    }
    free(t->parts);
    json_decref(t->logprobs);
    free(t);
}

void turn_free(struct call *c)
{
    struct turns *t = c->state;
    for (uint32_t i = 0; i < c->n_choices; i++) free_turn(c->choices[i].state);
    if (!t) return;
    free(t->grammar);
    json_decref(t->original);
    free(t);
}

bool turn_has(struct choice *ch, enum tools_part kind)
{
    const struct turn *t = turn_of(ch);
    uint32_t i = 0;
    while (i < t->n_parts && t->parts[i].kind != kind) i++;
    return i < t->n_parts;
}

json_t *turn_next(struct call *c, const char *text, bool thinking)
{
    struct choice *ch = &c->choices[0];
    const struct turn *t = turn_of(ch);
    json_t *all = json_copy(c->ask.messages), *calls = json_array();
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content",
                  turn_has(ch, TOOLS_CONTENT) ? turn_joined(ch, TOOLS_CONTENT) : json_string(""));
    if (thinking) json_object_set_new(m, "reasoning_content", turn_joined(ch, TOOLS_REASONING));
    json_array_append(all, m);
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const struct turn_part *p = &t->parts[i];
        if (p->kind != TOOLS_CALL) continue;
        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", p->id, "type", "function",
                                        "function", "name", p->name, "arguments", turn_text(p)));
        json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id",
                                             p->id, "content", text));
    }
    if (t->n_calls)
        json_object_set(m, "tool_calls", calls);
    else
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "user", "content", text));
    bool failed = name_thoughts(c, c->state, m) || open_arguments(c, calls) || memory_failed();
    json_decref(m);
    json_decref(calls);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

json_t *turn_text(const struct turn_part *p)
{
    return json_text(p->text.p, p->text.n);
}

json_t *turn_joined(struct choice *ch, enum tools_part kind)
{
    struct turn *t = turn_of(ch);
    struct words all = {0};
    for (uint32_t i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == kind) words_add(&all, t->parts[i].text.p, t->parts[i].text.n);
    json_t *j = all.n ? json_text(all.p, all.n) : json_null();
    free(all.p);
    return j;
}
