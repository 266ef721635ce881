#include "talk.h"

#include <stdlib.h>
#include <string.h>

int talk_open(struct talk *t, struct host *host, const struct args *a, const char *command)
{
    t->a = a;
    t->host = host;
    t->messages = need(json_array());
    t->think = a->think ? 1 : a->no_think ? 0 : -1;
    int code = sampling_open(&t->sampling, a, command);
    if (code) return code;
    t->g.sampling = sampling_over(&t->sampling, &host->info.sampling);
    t->g.max_tokens = (uint32_t)a->n_tokens.v;
    t->g.stops = a->stops.p;
    t->g.n_stops = a->stops.n;
    if (a->system) talk_set_system(t, a->system);
    return EXIT_OK;
}

void talk_model_changed(struct talk *t)
{
    t->held.n = t->first = 0;
    t->last = (struct talk_stats){0};
    t->g.sampling = sampling_over(&t->sampling, &t->host->info.sampling);
    if (!chat_think_variable(t->host->model)) t->think = -1;
}

void talk_close(struct talk *t)
{
    json_decref(t->messages);
    sampling_close(&t->sampling);
    free(t->held.p);
    tools_close(t->parser);
    free(t->said.p);
    free(t->thought.p);
}

/* ---- messages ---- */

static const char *role_at(const struct talk *t, size_t i)
{
    const char *role = json_word(json_object_get(json_array_get(t->messages, i), "role"));
    return role ? role : "";
}

static bool has_role(const struct talk *t, size_t i, const char *role)
{
    return i < json_array_size(t->messages) && strcmp(role_at(t, i), role) == 0;
}

/* Where the messages behind the system's begin. */
static size_t body(const struct talk *t)
{
    return has_role(t, 0, "system") ? 1 : 0;
}

static json_t *message(const char *role, const char *text, size_t n)
{
    return need(json_pack("{s:s, s:o}", "role", role, "content", json_text(text, n)));
}

const json_t *talk_system(const struct talk *t)
{
    return body(t) ? json_object_get(json_array_get(t->messages, 0), "content") : NULL;
}

void talk_set_system(struct talk *t, const char *text)
{
    if (body(t)) json_array_remove(t->messages, 0);
    if (*text) json_array_insert_new(t->messages, 0, message("system", text, strlen(text)));
}

void talk_say(struct talk *t, const char *text, size_t n)
{
    json_array_append_new(t->messages, message("user", text, n));
}

void talk_clear(struct talk *t)
{
    while (json_array_size(t->messages) > body(t))
        json_array_remove(t->messages, json_array_size(t->messages) - 1);
    t->first = 0;
}

bool talk_forget_answer(struct talk *t)
{
    size_t n = json_array_size(t->messages);
    if (!n || !has_role(t, n - 1, "assistant")) return false;
    json_array_remove(t->messages, n - 1);
    return true;
}

json_t *talk_forget_question(struct talk *t)
{
    talk_forget_answer(t);
    size_t n = json_array_size(t->messages);
    if (!n || !has_role(t, n - 1, "user")) return NULL;
    json_t *text = json_incref(json_object_get(json_array_get(t->messages, n - 1), "content"));
    json_array_remove(t->messages, n - 1);
    if (t->first > json_array_size(t->messages) - body(t)) t->first = 0;
    return text;
}

/* ---- the prompt ---- */

/* The messages that the model still sees. */
static json_t *visible(const struct talk *t)
{
    json_t *part = need(json_array());
    for (size_t i = 0; i < json_array_size(t->messages); i++)
        if (i < body(t) || i >= body(t) + t->first)
            json_array_append(part, json_array_get(t->messages, i));
    return part;
}

struct prompt {
    int32_t *ids; /* the library's */
    size_t n;
};

static int render(struct talk *t, struct prompt *p)
{
    struct args a = *t->a;
    const char **texts = need(calloc(a.template_args.n + 1, sizeof *texts));
    struct chat chat;
    for (size_t i = 0; i < a.template_args.n; i++) texts[i] = a.template_args.p[i];
    a.template_args.p = texts;
    char think[32];
    if (t->think >= 0) {
        snprintf(think, sizeof think, "%s=%s", chat_think_variable(t->host->model),
                 t->think ? "true" : "false");
        texts[a.template_args.n++] = think;
    }
    json_t *messages = visible(t);
    int code = chat_open(&chat, messages, NULL, &a, "chat");
    if (!code) {
        int rc = fletch_chat_tokenize(t->host->model, &chat.c, &p->ids, &p->n);
        if (rc) code = say_failure(rc, fletch_model_error(t->host->model));
    }
    chat_close(&chat);
    json_decref(messages);
    free(texts);
    return code;
}

/* Hides the oldest question with all that followed it up to the next one. False: only one is left.
 */
static bool hide_oldest(struct talk *t)
{
    size_t n = json_array_size(t->messages), i = body(t) + t->first + 1;
    while (i < n && !has_role(t, i, "user")) i++;
    if (i >= n) return false;
    t->first = i - body(t);
    return true;
}

/* Room that is kept for an answer. */
static size_t answer_room(const struct talk *t)
{
    size_t room = t->host->info.n_ctx / 4;
    return t->g.max_tokens && t->g.max_tokens < room ? t->g.max_tokens : room;
}

/* The prompt, with as many of the latest messages as fit. */
static int fit(struct talk *t, struct prompt *p)
{
    size_t n_ctx = t->host->info.n_ctx;
    for (;;) {
        int code = render(t, p);
        if (code || p->n + answer_room(t) <= n_ctx) return code;
        if (!hide_oldest(t)) break;
        fletch_free(p->ids);
        p->ids = NULL;
    }
    if (p->n < n_ctx) return EXIT_OK;
    return say_error(
        "with this message the prompt is %zu tokens long, but the context holds %zu; -c N "
        "sets a longer one",
        p->n, n_ctx);
}

long talk_count(struct talk *t)
{
    struct prompt p = {0};
    int code = render(t, &p);
    fletch_free(p.ids);
    return code ? -1 : (long)p.n;
}

/* ---- the answer ---- */

/* Leaves in the session what the prompt begins with: all that it holds, or what --cache-dir has. */
static size_t reuse(struct talk *t, const struct prompt *p)
{
    size_t n = fletch_session_length(t->host->session);
    if (n && n < p->n && n == t->held.n && memcmp(t->held.p, p->ids, n * sizeof *p->ids) == 0)
        return n;
    fletch_session_reset(t->host->session);
    t->held.n = 0;
    n = fletch_session_recall(t->host->session, p->ids, p->n);
    for (size_t i = 0; i < n; i++) ids_add(&t->held, p->ids[i]);
    return n;
}

static int read_prompt(struct talk *t, const struct prompt *p, size_t from)
{
    struct progress progress;
    progress_begin(&progress, "prefill", t->a);
    int rc = fletch_session_append(
        t->host->session, p->ids + from, p->n - from,
        &(struct fletch_append){.progress = progress_report, .progress_ctx = &progress});
    progress_end(&progress);
    for (size_t i = from; i < fletch_session_length(t->host->session); i++)
        ids_add(&t->held, p->ids[i]);
    return interrupted ? 0 : rc;
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    struct talk *t = ctx;
    struct text *to = p->part == TOOLS_REASONING ? &t->thought : &t->said;
    if (p->part == TOOLS_MARKUP) return;
    to->p = need(realloc(to->p, to->n + p->n + 1));
    memcpy(to->p + to->n, p->text, p->n);
    to->n += p->n;
    t->on_text(t->ctx, p->part, p->text, p->n);
}

static int on_text(void *ctx, int32_t token, const char *text, size_t n)
{
    struct talk *t = ctx;
    if (token >= 0) ids_add(&t->held, token);
    if (tools_feed(t->parser, text, n)) need(NULL);
    return interrupted || ferror(stdout);
}

static int respond(struct talk *t, const struct prompt *p)
{
    struct talk_stats *s = &t->last;
    double begin = now();
    *s = (struct talk_stats){.n_prompt = p->n, .n_reused = reuse(t, p), .n_hidden = t->first};
    s->made.finish = FLETCH_FINISH_ASKED;
    t->said.n = t->thought.n = 0;
    int rc = read_prompt(t, p, s->n_reused);
    s->n_read = t->held.n;
    double middle = now();
    if (!rc && !interrupted) {
        tools_close(t->parser);
        t->parser = parse_open(t->host, p->ids, p->n,
                               &(struct tools_params){.on_piece = on_piece, .ctx = t});
        t->g.show_control = parse_needs_control(t->host);
        t->g.on_text = on_text;
        t->g.ctx = t;
        rc = fletch_session_generate(t->host->session, &t->g, &s->made);
        tools_end(t->parser);
    }
    /* The token at which it was stopped is not in the session. */
    size_t n = fletch_session_length(t->host->session);
    if (t->held.n > n) t->held.n = n;
    s->prompt_seconds = middle - begin;
    s->answer_seconds = now() - middle;
    return rc;
}

static json_t *answer_message(const struct talk *t)
{
    json_t *m = message("assistant", t->said.p ? t->said.p : "", t->said.n);
    if (t->thought.n)
        json_object_set_new(m, "reasoning_content", need(json_text(t->thought.p, t->thought.n)));
    return m;
}

int talk_answer(struct talk *t)
{
    struct prompt p = {0};
    size_t first = t->first;
    int code = fit(t, &p), rc = code ? 0 : respond(t, &p);
    fletch_free(p.ids);
    if (rc) code = say_failure(rc, fletch_session_error(t->host->session));
    if (code)
        t->first = first;
    else
        json_array_append_new(t->messages, answer_message(t));
    return code;
}

/* ---- files ---- */

static void write_messages(FILE *out, const json_t *doc)
{
    json_dumpf(doc, out, JSON_INDENT(2));
}

int talk_save(const struct talk *t, const char *path)
{
    json_t *j = need(json_pack("{s:O}", "messages", t->messages));
    int code = save_file(path, write_messages, j);
    json_decref(j);
    return code;
}

static bool is_message(const json_t *m)
{
    const char *role = json_word(json_object_get(m, "role"));
    return role && json_is_string(json_object_get(m, "content"));
}

int talk_load(struct talk *t, const char *path)
{
    struct text text;
    json_error_t error;
    int code = read_text(&text, path);
    if (code) return code;
    json_t *j = json_loadb(text.p, text.n, JSON_ALLOW_NUL, &error);
    free(text.p);
    if (!j) return say_error("%s: %s (line %d)", QUOTE(path), error.text, error.line);
    json_t *messages = json_is_array(j) ? j : json_object_get(j, "messages");
    bool good = json_is_array(messages);
    for (size_t i = 0; good && i < json_array_size(messages); i++)
        good = is_message(json_array_get(messages, i));
    if (good) {
        json_incref(messages);
        json_decref(t->messages);
        t->messages = messages;
        t->first = 0;
    }
    json_decref(j);
    return good ? EXIT_OK
                : say_error("%s: expected {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}",
                            QUOTE(path));
}
