#include "turn.h"

#include <stdlib.h>
#include <string.h>

#include "app.h"

enum { NAME_MAX_CHARS = 64, TAIL_TOKENS = 8 };

/* What was asked for: a call's state. */
struct turns {
    struct tools_format format;
    json_t *tools; /* that may be called; NULL: none */
    struct tools_forced forced;
    bool thinking;         /* the prompt ends inside <think> */
    bool is_form;          /* the answer must follow a schema or a grammar */
    struct words appended; /* to what the template gave */
    json_t *original;
};

static struct turns *turns_of(struct call *c)
{
    if (!c->state) c->state = need(calloc(1, sizeof(struct turns)));
    return c->state;
}

/* ---- on a worker: other flavours ---- */

static int translate_field(struct call *c, json_t *chat, const struct turn_field *row,
                           const char *name, json_t *v)
{
    if (!row && call_field(c, name) != name)
        return call_wrong(c, 400, NULL, "unknown field %s; here it is %s", QUOTE(name),
                          call_field(c, name));
    if (row && row->take) return row->take(c, chat, v);
    if (row && !row->to) return 0;
    return json_object_set(chat, row ? row->to : name, v);
}

int turn_translate(struct call *c, const struct turn_field *rows, size_t n)
{
    json_t *chat = need(json_pack("{s:[]}", "messages")), *from = c->body, *v;
    const char *name;
    turns_of(c)->original = from;
    c->body = chat;
    c->fields = rows;
    c->n_fields = n;
    json_object_foreach(from, name, v)
    {
        const struct turn_field *row = NULL;
        for (size_t i = 0; i < n && !row; i++)
            if (strcmp(rows[i].name, name) == 0) row = &rows[i];
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
        const char *type = json_string_value(json_object_get(tool, "type"));
        const json_t *f = json_object_get(tool, "function"), *p = json_object_get(f, "parameters");
        if (!type || strcmp(type, "function") != 0 || !json_is_object(f))
            return call_wrong(c, 400, "tools", "tool %zu is not a function", i);
        if (!is_name(json_object_get(f, "name")))
            return call_wrong(
                c, 400, "tools",
                "the name of tool %zu is not made of 1 to %d letters, digits, _ and -", i,
                NAME_MAX_CHARS);
        if (p && !json_is_null(p) && !json_is_object(p))
            return call_wrong(c, 400, "tools", "the parameters of tool %zu are no JSON schema", i);
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

/* Of which tools one must be called: a new array, NULL when none must. */
static int take_choice(struct call *c, struct turns *t, json_t **must)
{
    const json_t *choice = c->ask.tool_choice;
    const char *word = json_string_value(choice);
    *must = NULL;
    if (!choice || (word && strcmp(word, "auto") == 0)) return 0;
    if (word && strcmp(word, "none") == 0) {
        t->tools = NULL;
        return 0;
    }
    if (!t->tools) return call_wrong(c, 400, "tool_choice", "tool_choice without tools");
    if (word && strcmp(word, "required") == 0) {
        *must = json_incref(t->tools);
        return 0;
    }
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!name)
        return call_wrong(c, 400, "tool_choice",
                          "tool_choice is none, auto, required or {\"type\": \"function\", "
                          "\"function\": {\"name\": ..}}");
    json_t *tool = tool_named(t->tools, name);
    if (!tool)
        return call_wrong(c, 400, "tool_choice", "there is no tool %s among the tools",
                          QUOTE(name));
    *must = need(json_pack("[O]", tool));
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
                                       JSON_REJECT_DUPLICATES, NULL);
        if (!json_string_length(text)) arguments = json_object();
        if (!json_is_object(arguments)) {
            json_decref(arguments);
            return call_wrong(c, 400, call_field(c, "messages"),
                              "the arguments of an earlier call are not a JSON object");
        }
        json_object_set_new(f, "arguments", arguments);
    }
    return 0;
}

static int open_messages(struct call *c)
{
    size_t i;
    json_t *m;
    json_array_foreach(c->ask.messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role && strcmp(role, "developer") == 0)
            json_object_set_new(m, "role", json_string("system"));
        if (open_arguments(c, json_object_get(m, "tool_calls"))) return -1;
    }
    return 0;
}

/* For templates that show no tools: they stand in the system message. */
static void describe_tools(struct call *c, const struct turns *t)
{
    char *text = need(tools_describe(t->tools)), *whole = NULL;
    json_t *first = json_array_get(c->ask.messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    const char *said = json_string_value(json_object_get(first, "content"));
    if (role && strcmp(role, "system") == 0 && said) {
        if (asprintf(&whole, "%s\n\n%s", said, text) < 0) need(NULL);
        json_object_set_new(first, "content", json_string(whole));
    } else
        json_array_insert_new(c->ask.messages, 0,
                              json_pack("{s:s, s:s}", "role", "system", "content", text));
    free(text);
    free(whole);
}

/* ---- on a worker: prompts ---- */

/* An answer that must be JSON from its first character can't think before. */
static void no_thinking(struct call *c)
{
    if (!c->ask.template_args) {
        c->ask.template_args = need(json_object());
        json_object_set_new(c->body, "chat_template_kwargs", c->ask.template_args); /* owns it */
    }
    if (!json_object_get(c->ask.template_args, "enable_thinking"))
        json_object_set_new(c->ask.template_args, "enable_thinking", json_false());
}

static bool ends_thinking(const struct call *c)
{
    const struct prompt *p = &c->prompts[c->n_prompts - 1];
    struct words tail = {0};
    for (size_t i = p->n > TAIL_TOKENS ? p->n - TAIL_TOKENS : 0; i < p->n; i++) {
        size_t n;
        const char *piece = served_piece(c->served, p->ids[i], &n);
        words_add(&tail, piece, n);
    }
    bool thinks = tools_prompt_thinks(tail.p ? tail.p : "", tail.n);
    free(tail.p);
    return thinks;
}

/* The prompt goes on with the beginning of the answer. */
static int append(struct call *c, const char *text)
{
    struct prompt *p = &c->prompts[c->n_prompts - 1];
    int32_t *ids;
    size_t n;
    if (!*text) return 0;
    pthread_mutex_lock(&c->served->text_lock);
    int rc = fletch_tokenize(c->served->model, text, strlen(text), FLETCH_SPECIAL, &ids, &n);
    if (rc) call_wrong(c, 500, NULL, "%s", fletch_model_error(c->served->model));
    pthread_mutex_unlock(&c->served->text_lock);
    if (rc) return -1;
    p->ids = need(realloc(p->ids, (p->n + n) * sizeof *p->ids));
    memcpy(p->ids + p->n, ids, n * sizeof *ids);
    p->n += n;
    fletch_free(ids);
    words_add(&turns_of(c)->appended, text, strlen(text));
    return prompt_check(c, p->n);
}

/* The arguments of a call that must be made obey their schema, whatever else was asked for. */
static void set_schema(struct call *c, const struct turns *t)
{
    if (!t->forced.schema) return;
    free(c->ask.schema);
    c->ask.schema = need(json_dumps(t->forced.schema, JSON_COMPACT));
    c->ask.r.json_schema = c->ask.schema;
    c->ask.r.grammar = NULL;
}

static int take(struct call *c, struct turns *t, json_t **must)
{
    const struct fletch_model_info *info = &c->served->info;
    t->format = tools_detect(info->chat_template, info->n_chat_template);
    t->tools = json_array_size(c->ask.tools) ? c->ask.tools : NULL;
    if (check_tools(c) || take_choice(c, t, must) || open_messages(c)) return -1;
    if (*must && tools_force(&t->forced, t->format, *must)) need(NULL);
    set_schema(c, t);
    t->is_form = c->ask.r.json_schema || c->ask.r.grammar;
    if (t->is_form || *must) no_thinking(c);
    if (t->tools && !t->format.knows_tools) describe_tools(c, t);
    c->ask.tools = t->format.knows_tools ? t->tools : NULL;
    if (prompt_chat(c)) return -1;
    t->thinking = ends_thinking(c);
    if (t->thinking && (t->is_form || *must)) {
        t->thinking = false;
        if (append(c, "</think>\n\n")) return -1;
    }
    c->ask.r.show_control = t->tools && t->format.is_control;
    return t->forced.prefix ? append(c, t->forced.prefix) : 0;
}

int turn_take(struct call *c)
{
    struct turns *t = turns_of(c);
    json_t *must = NULL;
    int rc = take(c, t, &must);
    json_decref(must);
    return rc;
}

int turn_prompt(struct call *c, struct words *out)
{
    const struct turns *t = turns_of(c);
    char *text;
    size_t n;
    if (prompt_chat_text(c, &text, &n)) return -1;
    words_add(out, text, n);
    if (t->appended.n) words_add(out, t->appended.p, t->appended.n);
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
    if (!t->is_open || p->kind != piece->part || piece->part == TOOLS_CALL) {
        close_part(t);
        t->parts = need(realloc(t->parts, (t->n_parts + 1) * sizeof *t->parts));
        p = &t->parts[t->n_parts];
        *p = (struct turn_part){.kind = piece->part, .index = t->n_parts++};
        if (piece->part == TOOLS_CALL) {
            p->call_index = t->n_calls++;
            p->name = need(strdup(piece->name));
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
    if (!ch->state) ch->state = need(calloc(1, sizeof(struct turn)));
    return ch->state;
}

static void feed(struct turn *t, const char *text)
{
    if (tools_feed(t->parser, text, strlen(text))) need(NULL);
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
    if (asked->is_form && !asked->forced.prefix) p.tools = NULL; /* the form is the answer */
    if (tools_open(&t->parser, &p)) need(NULL);
    t->call = c;
    t->choice = ch;
    t->w = w;
    if (asked->forced.prefix) feed(t, asked->forced.prefix);
    return t;
}

void turn_token(struct call *c, struct choice *ch, const struct token *t,
                const struct turn_writer *w)
{
    struct turn *turn = begin(c, ch, w);
    if (tools_feed(turn->parser, t->text, t->n_text)) need(NULL);
    turn->n_reasoning += t->id >= 0 && turn->is_open && last_part(turn)->kind == TOOLS_REASONING;
}

void turn_done(struct call *c, struct choice *ch, const struct turn_writer *w)
{
    const struct turns *asked = c->state;
    struct turn *t = begin(c, ch, w);
    if (asked->forced.schema && ch->result.finish == FLETCH_FINISH_END)
        feed(t, asked->forced.suffix);
    tools_end(t->parser);
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
    tools_forced_free(&t->forced);
    free(t->appended.p);
    json_decref(t->original);
    free(t);
}

json_t *turn_text(const struct turn_part *p)
{
    return need(json_text(p->text.p, p->text.n));
}

json_t *turn_joined(struct choice *ch, enum tools_part kind)
{
    struct turn *t = turn_of(ch);
    struct words all = {0};
    for (uint32_t i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == kind) words_add(&all, t->parts[i].text.p, t->parts[i].text.n);
    json_t *j = all.n ? need(json_text(all.p, all.n)) : json_null();
    free(all.p);
    return j;
}
