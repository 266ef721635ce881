/* The log, on stderr: one line a request, for people or as JSON. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"
#include "server.h"

struct stamp {
    char text[32];
};

static struct stamp stamp(void)
{
    struct stamp s;
    struct tm tm;
    time_t t = time(NULL);
    gmtime_r(&t, &tm);
    strftime(s.text, sizeof s.text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return s;
}

static void write_json(json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fprintf(stderr, "%s\n", text ? text : "{\"message\":\"out of memory: the log line was lost\"}");
    free(text);
    json_decref(j);
}

void log_line(const struct server *s, const char *fmt, ...)
{
    char text[400];
    va_list args;
    if (s->params.quiet) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (s->params.log_json)
        write_json(json_pack("{s:s, s:o}", "time", stamp().text, "message",
                             json_text(text, strlen(text))));
    else
        fprintf(stderr, "%s %s\n", stamp().text, text);
}

/* Tokens and times of what a model did. */
struct work {
    uint64_t n_prompt, n_generated, n_reused;
    double queue, prefill, decode; /* ms, of the first choice */
    const char *reuse_end;         /* the same */
};

static struct work work_of(const struct call *c)
{
    struct work w = {0};
    for (uint32_t i = 0; i < c->n_choices; i++) {
        w.n_prompt += c->choices[i].result.n_read;
        w.n_generated += c->choices[i].result.n_generated;
        w.n_reused += c->choices[i].result.n_reused;
    }
    if (!c->n_choices) return w;
    const struct fletch_result *r = &c->choices[0].result;
    bool spoke = r->first_token_seconds > 0;
    w.reuse_end = r->reuse_end;
    w.queue = r->queue_seconds * 1e3;
    w.prefill = spoke ? (r->first_token_seconds - r->queue_seconds) * 1e3 : 0;
    w.decode = spoke ? (r->seconds - r->first_token_seconds) * 1e3 : 0;
    return w;
}

/* What the page and monitors ask every few seconds is of interest only when it fails. */
static bool is_polling(const struct access *a)
{
    static const char *const paths[] = {"/v1/status", "/metrics", "/health", "/livez", "/readyz"};
    size_t n = strcspn(a->path, "?");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (n == strlen(paths[i]) && memcmp(a->path, paths[i], n) == 0) return a->status < 400;
    return false;
}

void log_access(const struct server *s, const struct access *a)
{
    struct work w = {0};
    if (s->params.quiet || is_polling(a)) return;
    if (a->call) w = work_of(a->call);
    if (!s->params.log_json) {
        fprintf(
            stderr,
            "%s #%llu %s %s %s %s %d %.1f ms; %llu tokens in (%llu cached%s%s), %llu out; queue "
            "%.1f, prefill %.1f, decode %.1f ms\n",
            stamp().text, (unsigned long long)a->id, a->address, a->key, a->method, QUOTE(a->path),
            a->status, a->seconds * 1e3, (unsigned long long)w.n_prompt,
            (unsigned long long)w.n_reused, w.reuse_end ? ": " : "", w.reuse_end ? w.reuse_end : "",
            (unsigned long long)w.n_generated, w.queue, w.prefill, w.decode);
        return;
    }
    write_json(json_pack(
        "{s:s, s:I, s:s, s:s, s:s, s:o, s:i, s:f, s:I, s:I, s:I, s:s*, s:f, s:f, s:f}", "time",
        stamp().text, "id", (json_int_t)a->id, "address", a->address, "key", a->key, "method",
        a->method, "path", json_text(a->path, strlen(a->path)), "status", a->status, "ms",
        a->seconds * 1e3, "prompt_tokens", (json_int_t)w.n_prompt, "completion_tokens",
        (json_int_t)w.n_generated, "cached_tokens", (json_int_t)w.n_reused, "reuse_end",
        w.reuse_end, "queue_ms", w.queue, "prefill_ms", w.prefill, "decode_ms", w.decode));
}
