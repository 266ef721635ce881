/* Answers as JSON: whole, as events of a stream, and as words about what is wrong. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "http.h"
#include "server.h"

enum { RETRY_SECONDS = 2 };
/* Logprobs and milliseconds need no more digits; shorter events. */
static const size_t DUMP = JSON_COMPACT | JSON_REAL_PRECISION(9);

void sse_begin(struct conn *c)
{
    http_add_header(c, "Cache-Control", "no-store");
    http_add_header(c, "X-Accel-Buffering", "no");
    http_begin(c, 200, "text/event-stream");
}

void sse_send(struct conn *c, const char *event, json_t *j)
{
    char *text = need(json_dumps(j, DUMP)), *whole = NULL;
    json_decref(j);
    int n = event ? asprintf(&whole, "event: %s\ndata: %s\n\n", event, text)
                  : asprintf(&whole, "data: %s\n\n", text);
    need(n < 0 ? NULL : whole);
    http_write(c, whole, (size_t)n);
    free(whole);
    free(text);
}

void sse_end(struct conn *c, const char *last)
{
    char line[64];
    int n = snprintf(line, sizeof line, "data: %s\n\n", last ? last : "");
    if (last) http_write(c, line, (size_t)n);
    http_end(c);
}

void stream_end(struct call *c, json_t *j)
{
    if (!c->ask.stream) {
        json_reply(c->conn, 200, j);
        return;
    }
    if (c->ask.include_usage || c->ask.include_progress)
        sse_send(c->conn, NULL, j);
    else
        json_decref(j);
    sse_end(c->conn, "[DONE]");
}

void stream_broken(struct call *c)
{
    if (!c->ask.stream) {
        problem_reply(c->conn, &c->problem, c->api->problem);
        return;
    }
    sse_send(c->conn, NULL, problem_openai(&c->problem));
    sse_end(c->conn, NULL);
}

json_t *progress_json(const struct choice *ch, const struct progress_event *p)
{
    return need(json_pack("{s:i, s:I, s:I, s:I, s:s, s:I}", "index", (int)ch->index, "prompt_done",
                          (json_int_t)p->n_done, "prompt_total", (json_int_t)p->n_prompt, "cached",
                          (json_int_t)p->n_reused, "reuse_end", p->reuse_end, "queue_position",
                          (json_int_t)p->queue_position));
}

void json_reply(struct conn *c, int status, json_t *j)
{
    char *text = need(json_dumps(j, DUMP));
    json_decref(j);
    http_reply(c, status, "application/json", text, strlen(text));
    free(text);
}

json_t *problem_openai(const struct problem *p)
{
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message",
                     json_text(p->text, strlen(p->text)), "type", p->type, "param", p->param,
                     "code", p->code);
}

void problem_reply(struct conn *c, const struct problem *p,
                   json_t *(*words)(const struct problem *))
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", RETRY_SECONDS);
    if (p->status == 429 || p->status == 503) http_add_header(c, "Retry-After", seconds);
    if (p->status == 401) http_add_header(c, "WWW-Authenticate", "Bearer");
    json_reply(c, p->status, need(words ? words(p) : problem_openai(p)));
}

void problem_limit(struct problem *p, const struct limits *limits, enum limit l, const char *what)
{
    const struct limit_row *row = &limit_table[l];
    p->status = row->status;
    p->code = row->name;
    if (p->status == 429) p->type = "rate_limit_error";
    if (p->status == 503) p->type = "overloaded_error";
    snprintf(p->text, sizeof p->text, "%s: the limit %s (%s) is %llu", what, row->name, row->what,
             (unsigned long long)limits->v[l]);
}

void words_add(struct words *w, const char *p, size_t n)
{
    if (w->n + n + 1 > w->cap) w->p = need(realloc(w->p, w->cap = 2 * w->cap + n + 64));
    memcpy(w->p + w->n, p, n);
    w->n += n;
    w->p[w->n] = 0;
}

/* ---- log probabilities ---- */

static json_t *bytes_of(const char *s, size_t n)
{
    json_t *a = need(json_array());
    for (size_t i = 0; i < n; i++) json_array_append_new(a, json_integer((unsigned char)s[i]));
    return a;
}

static json_t *entry(const struct served *m, int32_t id, float logprob)
{
    size_t n;
    const char *text = served_piece(m, id, &n);
    return need(json_pack("{s:o, s:f, s:o, s:i}", "token", json_text(text, n), "logprob",
                          (double)logprob, "bytes", bytes_of(text, n), "id", (int)id));
}

json_t *logprob_entry(const struct served *m, const struct token *t, uint32_t n_top)
{
    json_t *e = entry(m, t->id, t->logprob), *top = need(json_array());
    for (uint32_t i = 0; i < t->n_top && i < n_top; i++)
        json_array_append_new(top, entry(m, t->top_ids[i], t->top_logprobs[i]));
    json_object_set_new(e, "top_logprobs", top);
    return e;
}
