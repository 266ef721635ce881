/* Prompts: text and chats become tokens, on a worker. A model's text functions are for one thread
 * at a time; a lock sees to it. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

struct grouped {
    char text[28];
};

/* A number with a comma after every three digits: 60,024. */
static struct grouped grouped(uint64_t n)
{
    struct grouped out = {""};
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = out.text;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    return out;
}

int prompt_check(struct call *c, size_t n)
{
    uint32_t n_ctx = c->served->info.n_ctx;
    if (!n) return call_wrong(c, 400, NULL, "the prompt is empty");
    if (n < n_ctx) return 0;
    call_wrong(c, 400, NULL,
               "The prompt is %s tokens long; this model's context holds %s, including the answer.",
               grouped(n).text, grouped(n_ctx).text);
    c->problem.code = "context_length_exceeded";
    return -1;
}

/* Lets the lock go, and says what the model said where it failed. */
static int said(struct call *c, int rc)
{
    char why[400];
    snprintf(why, sizeof why, "%s", rc ? fletch_model_error(c->served->model) : "");
    pthread_mutex_unlock(&c->served->text_lock);
    if (rc == FLETCH_E_NOMEM) return call_no_memory(c);
    return rc ? call_wrong(c, 400, NULL, "%s", why) : 0;
}

static int add(struct call *c, int32_t *ids, size_t n)
{
    call_add_prompt(c, ids, n);
    return prompt_check(c, n);
}

int prompt_text(struct call *c, const char *text, size_t n, unsigned flags)
{
    int32_t *ids;
    size_t n_ids;
    pthread_mutex_lock(&c->served->text_lock);
    int rc = fletch_tokenize(c->served->model, text, n, flags, &ids, &n_ids);
    return said(c, rc) ? -1 : add(c, ids, n_ids);
}

int prompt_pair(struct call *c, const struct fletch_pair *pair)
{
    int32_t *ids;
    size_t n_ids;
    pthread_mutex_lock(&c->served->text_lock);
    int rc = fletch_rank_tokenize(c->served->model, pair, &ids, &n_ids);
    return said(c, rc) ? -1 : add(c, ids, n_ids);
}

int prompt_ids(struct call *c, const char *path, const json_t *from)
{
    size_t n = json_array_size(from);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids) return call_no_memory(c);
    for (size_t i = 0; i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(from, i));
        if (!json_is_integer(json_array_get(from, i)) || id < 0 ||
            id >= (json_int_t)c->served->info.n_vocab) {
            free(ids);
            call_wrong(c, 400, path, "entry %zu of %s is not a token id of the model (0..%u)", i,
                       path, c->served->info.n_vocab - 1);
            return call_at(c, "%s[%zu]", path, i);
        }
        ids[i] = (int32_t)id;
    }
    return add(c, ids, n);
}

/* ---- chats ---- */

static int check_messages(struct call *c)
{
    const char *name = call_field(c, "messages");
    size_t i, n = json_array_size(c->ask.messages), n_tools = json_array_size(c->ask.tools);
    json_t *m;
    if (!n) return call_wrong(c, 400, name, "%s must contain at least one message", name);
    if (n > limit_of(&c->server->limits, messages)) return call_over(c, LIMIT_messages, name, n);
    if (n_tools > limit_of(&c->server->limits, tools))
        return call_over(c, LIMIT_tools, "tools", n_tools);
    json_array_foreach(c->ask.messages, i, m)
    {
        if (json_word(json_object_get(m, "role"))) continue;
        call_wrong(c, 400, name,
                   "message %zu must be an object with a role that is a string without NUL", i);
        return call_at(c, json_is_object(m) ? "%s[%zu].role" : "%s[%zu]", name, i);
    }
    return 0;
}

/* Content may be a list of parts; templates of text models want a text. */
static int join_parts(struct call *c, json_t *message, size_t at)
{
    const char *name = call_field(c, "messages");
    json_t *parts = json_object_get(message, "content"), *part;
    char *text = NULL;
    size_t i, n = 0;
    if (!parts || json_is_null(parts) || json_is_string(parts)) return 0;
    if (!json_is_array(parts)) {
        call_wrong(c, 400, name, "the content of message %zu must be a string or an array of parts",
                   at);
        return call_at(c, "%s[%zu].content", name, at);
    }
    json_array_foreach(parts, i, part)
    {
        const char *type = json_word(json_object_get(part, "type"));
        const json_t *t = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(t)) {
            free(text);
            call_wrong(c, 400, name, "part %zu of the content of message %zu must be of type text",
                       i, at);
            return call_at(c, "%s[%zu].content[%zu]", name, at, i);
        }
        char *longer = realloc(text, n + json_string_length(t) + 1);
        if (!longer) {
            free(text);
            return call_no_memory(c);
        }
        text = longer;
        memcpy(text + n, json_string_value(t), json_string_length(t));
        n += json_string_length(t);
    }
    int failed = json_object_set_new(message, "content", json_stringn(text ? text : "", n));
    free(text);
    return failed ? call_no_memory(c) : 0;
}

struct rendered {
    char *messages, *tools, *args;
    struct fletch_chat chat;
};

static int prepare(struct call *c, struct rendered *r)
{
    size_t i;
    json_t *m;
    *r = (struct rendered){0};
    if (check_messages(c)) return -1;
    json_array_foreach(c->ask.messages, i, m)
    {
        if (join_parts(c, m, i)) return -1;
    }
    const char *choice = json_word(c->ask.tool_choice);
    bool no_tools = choice && strcmp(choice, "none") == 0;
    bool tools = json_array_size(c->ask.tools) && !no_tools;
    r->messages = json_dumps(c->ask.messages, 0);
    if (tools) r->tools = json_dumps(c->ask.tools, 0);
    if (c->ask.template_args) r->args = json_dumps(c->ask.template_args, 0);
    if (!r->messages || (tools && !r->tools) || (c->ask.template_args && !r->args))
        return call_no_memory(c);
    r->chat = (struct fletch_chat){.messages = r->messages,
                                   .tools = r->tools,
                                   .args = r->args,
                                   .no_generation_prompt = c->ask.continue_final,
                                   .continue_final = c->ask.continue_final};
    return 0;
}

static void release(struct rendered *r)
{
    free(r->messages);
    free(r->tools);
    free(r->args);
}

static int tokenize(struct call *c, const struct rendered *r, struct prompt *p)
{
    fletch_free(p->ids);
    *p = (struct prompt){0};
    pthread_mutex_lock(&c->served->text_lock);
    return said(c, fletch_chat_tokenize(c->served->model, &r->chat, &p->ids, &p->n));
}

/* ---- chats that are too long ---- */

/* Where a chat may be cut: its first message behind the system's, and every later question. */
struct cuts {
    size_t *at; /* [n] indices of messages */
    size_t n;
};

static bool is_by(const json_t *message, const char *role)
{
    return strcmp(json_word(json_object_get(message, "role")), role) == 0;
}

static struct cuts find_cuts(const json_t *messages)
{
    size_t n = json_array_size(messages), i = 0;
    struct cuts cuts = {memory_zeroed((n + 1) * sizeof *cuts.at), 0};
    while (i < n && is_by(json_array_get(messages, i), "system")) i++;
    for (cuts.at[cuts.n++] = i++; i < n; i++)
        if (is_by(json_array_get(messages, i), "user")) cuts.at[cuts.n++] = i;
    return cuts;
}

/* Leaves out what is before the cut, but for the system's. */
static int tokenize_from(struct call *c, struct rendered *r, const struct cuts *cuts, size_t cut,
                         struct prompt *p)
{
    json_t *kept = json_copy(c->ask.messages);
    if (!kept) return call_no_memory(c);
    c->ask.n_dropped = (uint32_t)(cuts->at[cut] - cuts->at[0]);
    for (size_t i = 0; i < c->ask.n_dropped; i++) json_array_remove(kept, cuts->at[0]);
    free(r->messages);
    r->chat.messages = r->messages = json_dumps(kept, 0);
    json_decref(kept);
    if (!r->messages) return call_no_memory(c);
    return tokenize(c, r, p);
}

/* With room for the answer, of which a quarter of the context is enough. */
static bool is_roomy(const struct call *c, size_t n)
{
    uint32_t n_ctx = c->served->info.n_ctx, room = n_ctx / 4;
    if (c->ask.set.max_tokens_set && c->ask.set.r.max_tokens < room) room = c->ask.set.r.max_tokens;
    return n < n_ctx - room;
}

/* The last question always stays. Fewer messages are fewer tokens, so halving finds how many must
 * go in a few renderings, however many there are. */
static int shorten(struct call *c, struct rendered *r, struct prompt *p)
{
    struct cuts cuts = find_cuts(c->ask.messages);
    size_t low = 1, high = cuts.n - 1;
    int rc = 0;
    while (!rc && low < high) {
        size_t middle = low + (high - low) / 2;
        rc = tokenize_from(c, r, &cuts, middle, p);
        if (is_roomy(c, p->n))
            high = middle;
        else
            low = middle + 1;
    }
    if (!rc && cuts.n > 1) rc = tokenize_from(c, r, &cuts, high, p);
    free(cuts.at);
    return rc;
}

int prompt_chat(struct call *c)
{
    struct rendered r;
    struct prompt p = {0};
    int rc = prepare(c, &r);
    if (!rc) rc = tokenize(c, &r, &p);
    if (!rc && c->ask.truncates && !is_roomy(c, p.n)) rc = shorten(c, &r, &p);
    if (!rc)
        rc = add(c, p.ids, p.n);
    else
        fletch_free(p.ids);
    release(&r);
    return rc;
}

int prompt_chat_with(struct call *c, json_t *messages, struct prompt *p)
{
    json_t *own = c->ask.messages;
    struct rendered r;
    c->ask.messages = messages;
    int rc = prepare(c, &r);
    if (!rc) rc = tokenize(c, &r, p);
    release(&r);
    c->ask.messages = own;
    return rc;
}

/* Where this message of the user begins in the prompt: it and another have the rest in common. */
static uint32_t begin_of(struct call *c, size_t at)
{
    const struct prompt *own = &c->prompts[c->n_prompts - 1];
    json_t *messages = json_array();
    struct prompt p = {0};
    uint32_t n = 0;
    for (size_t i = 0; i < at; i++) json_array_append(messages, json_array_get(c->ask.messages, i));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "A"));
    if (!prompt_chat_with(c, messages, &p))
        while (n < p.n && n < own->n && p.ids[n] == own->ids[n]) n++;
    fletch_free(p.ids);
    json_decref(messages);
    return n;
}

void prompt_marks(struct call *c)
{
    const struct problem before = c->problem;
    size_t n = json_array_size(c->ask.messages), first = 0, last = n;
    if (!c->served->info.has_state || c->ask.n_dropped || c->ask.continue_final) return;
    while (first < n && !is_by(json_array_get(c->ask.messages, first), "user")) first++;
    while (last && !is_by(json_array_get(c->ask.messages, last - 1), "user")) last--;
    if (first == n) return;
    c->marks[c->n_marks++] = begin_of(c, first);
    if (last - 1 > first) c->marks[c->n_marks++] = begin_of(c, last - 1);
    c->problem = before; /* a template that refuses such a chat is no reason to refuse this one */
}

int prompt_chat_again(struct call *c, bool *same)
{
    const struct prompt *before = &c->prompts[c->n_prompts - 1];
    struct prompt p = {0};
    int rc = prompt_chat_with(c, c->ask.messages, &p);
    *same = !rc && p.n == before->n && memcmp(p.ids, before->ids, p.n * sizeof *p.ids) == 0;
    fletch_free(p.ids);
    return rc;
}

int prompt_chat_text(struct call *c, char **text, size_t *n)
{
    struct rendered r;
    *text = NULL;
    int rc = prepare(c, &r);
    json_decref(c->body);
    c->body = NULL;
    if (!rc) {
        pthread_mutex_lock(&c->served->text_lock);
        rc = fletch_chat_render(c->served->model, &r.chat, text, n);
        said(c, rc);
    }
    release(&r);
    return rc;
}
