/* Answers as JSON: whole, as events of a stream, and as words about what is wrong. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "http.h"
#include "server.h"

enum { RETRY_SECONDS = 2 };
/* Values that the loop writes itself: about a millisecond. */
enum { LIGHT_VALUES = 2000, LIGHT_BYTES = 65536, BYTES_OF_VALUE = LIGHT_BYTES / LIGHT_VALUES };

void sse_begin(struct conn *c)
{
    http_add_header(c, "Cache-Control", "no-store");
    http_add_header(c, "X-Accel-Buffering", "no");
    http_begin(c, 200, "text/event-stream");
}

void sse_send(struct conn *c, const char *event, json_t *j)
{
    char *text = json_dumps(j, REPLY_DUMP), *whole = NULL;
    json_decref(j);
    if (!text) memory_fail();
    if (memory_failed()) { /* it may lack a part; its request ends */
        free(text);
        return;
    }
    int n = event ? asprintf(&whole, "event: %s\ndata: %s\n\n", event, text)
                  : asprintf(&whole, "data: %s\n\n", text);
    if (n >= 0)
        http_write(c, whole, (size_t)n);
    else
        memory_fail();
    if (n >= 0) free(whole);
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
    return json_pack("{s:i, s:I, s:I, s:I, s:s, s:I}", "index", (int)ch->index, "prompt_done",
                     (json_int_t)p->n_done, "prompt_total", (json_int_t)p->n_prompt, "cached",
                     (json_int_t)p->n_reused, "reuse_end", p->reuse_end, "queue_position",
                     (json_int_t)p->queue_position);
}

/* ---- whole answers ---- */

/* What is left of a budget of bytes after j, roughly; it ends soon where there is nothing left. */
static int64_t weigh(const json_t *j, int64_t left)
{
    const char *key;
    json_t *v;
    size_t i;
    left -= BYTES_OF_VALUE + (int64_t)json_string_length(j);
    json_array_foreach((json_t *)j, i, v)
    {
        if (left < 0) break;
        left = weigh(v, left);
    }
    json_object_foreach((json_t *)j, key, v)
    {
        if (left < 0) break;
        left = weigh(v, left - (int64_t)strlen(key));
    }
    return left;
}

/* An answer that a worker writes. */
struct written {
    struct task task;
    struct conn *conn; /* NULL: the client has gone */
    int status;
    bool owned; /* somebody else logs the request */
    json_t *j;
    struct reply *bytes;
};

static void write_reply(void *ctx)
{
    struct written *w = ctx;
    memory_begin();
    w->bytes = reply_open();
    if (w->bytes) reply_add_json(w->bytes, w->j);
    json_decref(w->j);
    if (!memory_failed()) return;
    reply_free(w->bytes); /* it may lack a part */
    w->bytes = NULL;
}

static void on_written_reply(void *ctx)
{
    struct written *w = ctx;
    if (w->conn && !w->owned) http_on_gone(w->conn, NULL, NULL);
    if (w->conn && reply_close(w->bytes))
        http_reply_bytes(w->conn, w->status, "application/json", w->bytes);
    else if (w->conn)
        http_no_memory(w->conn);
    reply_free(w->bytes);
    free(w);
}

static void on_reader_gone(void *ctx)
{
    ((struct written *)ctx)->conn = NULL;
}

/* Instead of an answer that memory did not suffice for; that may have been these words. */
static void no_memory(struct conn *c, int status)
{
    static const char words[] =
        "{\"error\":{\"message\":\"not enough memory for this request\","
        "\"type\":\"overloaded_error\",\"param\":null,\"code\":\"memory\"}}";
    if (status == 503)
        http_reply(c, status, "application/json", words, sizeof words - 1);
    else
        http_no_memory(c);
}

void json_reply(struct conn *c, int status, json_t *j)
{
    if (!j) memory_fail();
    if (memory_failed()) {
        json_decref(j);
        no_memory(c, status);
        return;
    }
    if (weigh(j, LIGHT_BYTES) < 0) {
        struct written *w = memory_zeroed(sizeof *w);
        w->task = (struct task){.work = write_reply, .done = on_written_reply, .ctx = w};
        w->conn = c;
        w->status = status;
        w->owned = http_has_owner(c);
        w->j = j;
        http_on_gone(c, on_reader_gone, w);
        workers_give(conn_server(c), &w->task);
        return;
    }
    char *text = json_dumps(j, REPLY_DUMP);
    json_decref(j);
    if (!text || memory_failed()) { /* a text may lack a part */
        free(text);
        no_memory(c, status);
        return;
    }
    http_reply(c, status, "application/json", text, strlen(text));
    free(text);
}

json_t *problem_openai(const struct problem *p)
{
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                     json_text(p->text, strlen(p->text)), "type", p->type, "param",
                     p->param ? json_text(p->param, strlen(p->param)) : json_null(), "code",
                     p->code);
}

void problem_reply(struct conn *c, const struct problem *p,
                   json_t *(*words)(const struct problem *))
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", RETRY_SECONDS);
    if (p->status == 429 || p->status == 503) http_add_header(c, "Retry-After", seconds);
    if (p->status == 401) http_add_header(c, "WWW-Authenticate", "Bearer");
    memory_begin(); /* what is wrong may be that there was none */
    json_reply(c, p->status, words ? words(p) : problem_openai(p));
}

void problem_limit(struct problem *p, const struct limits *limits, enum limit l, const char *what)
{
    const struct limit_row *row = &limit_table[l];
    p->status = row->status;
    p->code = row->name;
    if (p->status == 429) p->type = "rate_limit_error";
    if (p->status == 503) p->type = "overloaded_error";
    snprintf(p->text, sizeof p->text, "%s exceeds the limit %s=%llu (%s)", what, row->name,
             (unsigned long long)limits->v[l], row->what);
}

void words_try_add(struct words *w, const char *p, size_t n)
{
    if (w->failed) return;
    if (w->n + n + 1 > w->cap) {
        size_t cap = 2 * w->cap + n + 64;
        char *longer = realloc(w->p, cap);
        if (!longer) {
            free(w->p);
            *w = (struct words){.failed = true};
            return;
        }
        w->p = longer;
        w->cap = cap;
    }
    memcpy(w->p + w->n, p, n);
    w->n += n;
    w->p[w->n] = 0;
}

void words_add(struct words *w, const char *p, size_t n)
{
    words_try_add(w, p, n);
    if (w->failed) memory_fail();
}

json_t *words_json(const struct words *w)
{
    return w->failed ? NULL : json_stringn(w->p ? w->p : "", w->n);
}

/* ---- log probabilities ---- */

static json_t *entry(const struct served *m, int32_t id, float logprob)
{
    size_t n;
    const char *text = served_piece(m, id, &n);
    return json_pack("{s:o, s:f, s:o, s:i}", "token", json_text(text, n), "logprob",
                     (double)logprob, "bytes", json_bytes(text, n), "id", (int)id);
}

json_t *logprob_entry(const struct served *m, const struct token *t, uint32_t n_top)
{
    json_t *e = entry(m, t->id, t->logprob), *top = json_array();
    for (uint32_t i = 0; i < t->n_top && i < n_top; i++)
        json_array_append_new(top, entry(m, t->top_ids[i], t->top_logprobs[i]));
    json_object_set_new(e, "top_logprobs", top);
    return e;
}
