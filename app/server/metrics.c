/* Figures for Prometheus: what /metrics says. All of it is the loop's. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "base/os.h"
#include "http.h"
#include "server.h"

/* Names, kinds and words of the histograms and counters; docs/server.md lists them. */
#define HISTOGRAMS(X)                                                                        \
    X(ttft, "fletch_time_to_first_token_seconds", "Time from a request to its first token.") \
    X(inter_token, "fletch_inter_token_seconds", "Time between two tokens of an answer.")    \
    X(queue, "fletch_queue_seconds", "Time that requests spent in the queue.")               \
    X(prefill, "fletch_prefill_seconds", "Duration of the prefill of a prompt.")
#define COUNTERS(X)                                                                               \
    X(prompt, "fletch_prompt_tokens_total", "Prompt tokens.")                                     \
    X(cached, "fletch_cached_tokens_total", "Prompt tokens that were found in the prefix cache.") \
    X(generated, "fletch_generated_tokens_total", "Generated tokens.")

enum { N_BUCKETS = 16, N_PAIRS = 96 };
static const double bounds[N_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1,      2.5,   5,    10,    30,   60,  120};

struct histogram {
    uint64_t n[N_BUCKETS + 1];
    double sum;
};

/* A counter of a label's value; both words are constants of ours, so there are few. */
struct pair {
    const char *word;
    int status;
    uint64_t n;
};

struct metrics {
#define MEMBER(name, full, help) struct histogram name;
    HISTOGRAMS(MEMBER)
#undef MEMBER
#define MEMBER(name, full, help) uint64_t name;
    COUNTERS(MEMBER)
#undef MEMBER
    struct pair requests[N_PAIRS], rejections[N_PAIRS];
};

struct metrics *metrics_open(void)
{
    return memory_zeroed(sizeof(struct metrics));
}

void metrics_close(struct metrics *m)
{
    free(m);
}

static void observe(struct histogram *h, double seconds)
{
    size_t i = 0;
    while (i < N_BUCKETS && seconds > bounds[i]) i++;
    h->n[i]++;
    h->sum += seconds;
}

static void count(struct pair *pairs, const char *word, int status)
{
    for (size_t i = 0; i < N_PAIRS; i++) {
        if (!pairs[i].word) pairs[i] = (struct pair){word, status, 0};
        if (strcmp(pairs[i].word, word) != 0 || pairs[i].status != status) continue;
        pairs[i].n++;
        return;
    }
}

void metrics_request(struct metrics *m, const char *label, int status)
{
    count(m->requests, label, status);
}

void metrics_rejected(struct metrics *m, const char *code)
{
    count(m->rejections, code ? code : "invalid_request", 0);
}

void metrics_token(struct metrics *m, double since_last)
{
    if (since_last > 0) observe(&m->inter_token, since_last);
}

void metrics_prompt(struct metrics *m, uint64_t n)
{
    m->prompt += n;
}

void metrics_choice(struct metrics *m, const struct choice *ch)
{
    const struct fletch_result *r = &ch->result;
    m->prompt += r->n_read;
    m->cached += r->n_reused;
    m->generated += r->n_generated;
    observe(&m->queue, r->queue_seconds);
    if (r->first_token_seconds <= 0) return;
    observe(&m->ttft, r->first_token_seconds);
    observe(&m->prefill, r->first_token_seconds - r->queue_seconds);
}

/* ---- as text ---- */

static void put(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct words *w, const char *fmt, ...)
{
    char line[400];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    words_add(w, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static void put_head(struct words *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_histogram(struct words *w, const char *name, const char *help,
                          const struct histogram *h)
{
    uint64_t n = 0;
    put_head(w, name, "histogram", help);
    for (size_t i = 0; i < N_BUCKETS; i++)
        put(w, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)(n += h->n[i]));
    n += h->n[N_BUCKETS];
    put(w, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, (unsigned long long)n,
        name, h->sum, name, (unsigned long long)n);
}

static void put_value(struct words *w, const char *name, const char *type, const char *help,
                      double v)
{
    put_head(w, name, type, help);
    put(w, "%s %.15g\n", name, v);
}

uint64_t metrics_resident_bytes(void)
{
    return os_resident_bytes();
}

static void put_model(struct words *w, const char *name, const struct served *m, double v)
{
    put(w, "%s{model=\"%s\"} %.15g\n", name, m->id, v);
}

/* A gauge or counter of every model. */
static void put_models(struct words *w, struct server *s, const char *name, const char *type,
                       const char *help, double (*value)(const struct served_figures *))
{
    put_head(w, name, type, help);
    for (size_t i = 0; i < s->n_served; i++) {
        struct served_figures f;
        served_figures(&s->served[i], &f);
        put_model(w, name, &s->served[i], value(&f));
    }
}

static void put_memory(struct words *w, struct server *s)
{
    static const char name[] = "fletch_device_memory_bytes";
    put_head(w, name, "gauge",
             "Planned memory of a model on its device: weights, cache and buffers.");
    for (size_t i = 0; i < s->n_served; i++)
        put_model(w, name, &s->served[i],
                  served_is_ready(&s->served[i]) ? (double)s->served[i].bytes : 0);
}

#define MODEL_VALUES(X)                                                                        \
    X(running, "fletch_running_requests", "gauge", "Running requests.", n_running)             \
    X(blocks, "fletch_kv_blocks", "gauge", "Cache blocks.", n_blocks)                          \
    X(free_blocks, "fletch_kv_blocks_free", "gauge", "Empty cache blocks.", n_free)            \
    X(idle_blocks, "fletch_kv_blocks_idle", "gauge", "Cache blocks kept for reuse.", n_idle)   \
    X(guessed, "fletch_draft_tokens_total", "counter", "Draft tokens.", n_drafted)             \
    X(right, "fletch_accepted_tokens_total", "counter", "Draft tokens that were accepted.",    \
      n_accepted)                                                                              \
    X(steps, "fletch_steps_total", "counter", "Steps that the model has run.", n_steps)        \
    X(ahead, "fletch_steps_ahead_total", "counter",                                            \
      "Steps that were submitted before the results of the previous step were read.", n_ahead) \
    X(preempted, "fletch_preemptions_total", "counter",                                        \
      "Number of times that a running request was preempted.", n_preemptions)                  \
    X(warmed, "fletch_warmed_tokens_total", "counter",                                         \
      "Tokens of answers that were computed as prompts while the device was idle.", n_warmed)  \
    X(evicted, "fletch_kv_evictions_total", "counter",                                         \
      "Cache blocks that were evicted to make room for others.", n_evicted)                    \
    X(unwritten, "fletch_cache_write_errors_total", "counter",                                 \
      "Prefix files that could not be written to the cache folder.", n_unwritten)

#define VALUE(id, name, type, help, member)                  \
    static double value_##id(const struct served_figures *f) \
    {                                                        \
        return (double)f->stats.member;                      \
    }
MODEL_VALUES(VALUE)
#undef VALUE

static double gpu_allocated(const struct served_figures *f)
{
    return (double)f->gpu_allocated;
}

static double gpu_recommended(const struct served_figures *f)
{
    return (double)f->gpu_recommended;
}

void metrics_reply(struct conn *c)
{
    struct server *s = conn_server(c);
    const struct metrics *m = s->metrics;
    struct words w = {0};
#define PUT(name, full, help) put_histogram(&w, full, help, &m->name);
    HISTOGRAMS(PUT)
#undef PUT
#define PUT(name, full, help) put_value(&w, full, "counter", help, (double)m->name);
    COUNTERS(PUT)
#undef PUT
    put_head(&w, "fletch_requests_total", "counter", "Requests by API and status.");
    for (size_t i = 0; i < N_PAIRS && m->requests[i].word; i++)
        put(&w, "fletch_requests_total{api=\"%s\",status=\"%d\"} %llu\n", m->requests[i].word,
            m->requests[i].status, (unsigned long long)m->requests[i].n);
    put_head(&w, "fletch_rejections_total", "counter", "Rejected requests by cause.");
    for (size_t i = 0; i < N_PAIRS && m->rejections[i].word; i++)
        put(&w, "fletch_rejections_total{cause=\"%s\"} %llu\n", m->rejections[i].word,
            (unsigned long long)m->rejections[i].n);
    put_value(&w, "fletch_queued_requests", "gauge", "Requests in the queue.", s->n_queued);
    put_value(&w, "fletch_connections", "gauge", "Open connections.", (double)http_count(s));
    put_value(&w, "fletch_uptime_seconds", "gauge", "Time since the server started.",
              server_now() - s->t_start);
    put_value(&w, "process_resident_memory_bytes", "gauge", "Resident memory of this process.",
              (double)metrics_resident_bytes());
    put_memory(&w, s);
    put_models(
        &w, s, "fletch_gpu_allocated_bytes", "gauge",
        "GPU memory that this process has allocated after the last step of a model (0 if unknown).",
        gpu_allocated);
    put_models(&w, s, "fletch_gpu_recommended_bytes", "gauge",
               "Maximum GPU memory that the system recommends (0 if unknown).", gpu_recommended);
#define PUT(id, name, type, help, member) put_models(&w, s, name, type, help, value_##id);
    MODEL_VALUES(PUT)
#undef PUT
    if (w.failed)
        http_no_memory(c);
    else
        http_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", w.p, w.n);
    free(w.p);
}
