/* fletch bench --mode serve: what users of one model see who come at the same time. The scheduler
 * runs inside this program; nothing but it is measured. Requests have a prompt whose first half all
 * share, and answers of a fixed length.
 *
 *   closed   so many clients, each of whom asks again as soon as it has its answer
 *   open     requests come at random, at 0.7 of the rate that the last closed case reached
 *   stall    answers while a long prompt is read beside them
 *   cancel   requests that are taken back at their first token, until they are told their end
 *
 * Tokens that come at once, because they were guessed, have one time between tokens: the wait for
 * all of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "table.h"

enum { EACH = 4, LONG_PROMPT = 8192, N_CANCELS = 16 };

/* Seconds, in the order they came. */
struct samples {
    double *p;
    size_t n;
};

struct serve {
    struct host host;
    struct fletch_batch *b;
    uint32_t n_prompt, n_answer;
    uint64_t random;
    struct samples first, gaps, cancels; /* to the first token, between tokens, to the end */
    size_t n_live, n_done, n_tokens, n_steps;
    bool failed;
    json_t *rows;
};

struct asked {
    struct serve *s;
    double sent, last, cancelled;
    size_t step; /* that gave the last token */
    uint64_t id;
    bool to_cancel, ignored; /* ignored: its own times don't count */
};

static void add_sample(struct samples *s, double v)
{
    s->p = need(realloc(s->p, (s->n + 1) * sizeof *s->p));
    s->p[s->n++] = v;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that the given share is below; sorts. */
static double quantile(struct samples *s, double share)
{
    if (!s->n) return 0;
    qsort(s->p, s->n, sizeof *s->p, by_value);
    size_t i = (size_t)(share * (double)s->n);
    return s->p[i < s->n ? i : s->n - 1];
}

static uint32_t draw(struct serve *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->random >> 33);
}

/* ---- requests ---- */

static int on_token(void *ctx, const struct fletch_token *t)
{
    struct asked *q = ctx;
    struct serve *s = q->s;
    double at = now();
    if (t->id < 0) return 0;
    if (q->to_cancel && !(q->cancelled > 0)) {
        q->cancelled = at;
        fletch_batch_cancel(s->b, q->id);
    }
    if (!q->ignored && (!(q->last > 0) || q->step != s->n_steps))
        add_sample(q->last > 0 ? &s->gaps : &s->first, at - (q->last > 0 ? q->last : q->sent));
    q->last = at;
    q->step = s->n_steps;
    s->n_tokens++;
    return 0;
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct asked *q = ctx;
    struct serve *s = q->s;
    s->n_live--;
    s->n_done++;
    if (q->cancelled > 0) add_sample(&s->cancels, now() - q->cancelled);
    if (r->finish == FLETCH_FINISH_FAILED) {
        say_error("a request failed: %s", r->error);
        s->failed = true;
    }
    free(q);
}

static void ask(struct serve *s, uint32_t n_prompt, uint32_t n_answer, struct asked like)
{
    uint32_t n_vocab = s->host.info.n_vocab;
    int32_t *tokens = need(malloc(n_prompt * sizeof *tokens));
    struct asked *q = need(malloc(sizeof *q));
    *q = like;
    q->s = s;
    q->sent = now();
    for (uint32_t i = 0; i < n_prompt; i++)
        tokens[i] = (int32_t)((i < s->n_prompt / 2 ? i * 7919 + 13 : draw(s)) % n_vocab);
    struct fletch_request r = {.tokens = tokens,
                               .n_tokens = n_prompt,
                               .max_tokens = n_answer,
                               .sampling = s->host.info.sampling,
                               .ignore_end = true,
                               .on_token = on_token,
                               .on_done = on_done,
                               .ctx = q};
    if (fletch_batch_submit(s->b, &r, &q->id)) {
        say_error("%s", fletch_batch_error(s->b));
        s->failed = true;
        free(q);
    } else {
        s->n_live++;
    }
    free(tokens);
}

/* ---- cases ---- */

static void run_step(struct serve *s, double wait_seconds)
{
    s->n_steps++;
    fletch_batch_step(s->b, wait_seconds);
}

static void begin(struct serve *s)
{
    s->first.n = s->gaps.n = s->cancels.n = s->n_done = s->n_tokens = 0;
}

static void finish(struct serve *s)
{
    while (s->n_live && !s->failed) run_step(s, 0);
}

static json_t *add_row(struct serve *s, const char *mode, uint32_t n, double seconds)
{
    json_t *row = need(json_pack(
        "{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "mode", mode, "clients", (int)n,
        "requests", (json_int_t)s->n_done, "tokens_per_second", (double)s->n_tokens / seconds,
        "first_p50", quantile(&s->first, 0.5), "first_p95", quantile(&s->first, 0.95), "gap_p50",
        quantile(&s->gaps, 0.5), "gap_p95", quantile(&s->gaps, 0.95), "gap_p99",
        quantile(&s->gaps, 0.99), "gap_max", quantile(&s->gaps, 1)));
    json_array_append_new(s->rows, row);
    return row;
}

static double run_closed(struct serve *s, uint32_t n)
{
    uint32_t n_sent = 0;
    begin(s);
    double began = now();
    while (!s->failed && (n_sent < n * EACH || s->n_live)) {
        while (!s->failed && s->n_live < n && n_sent < n * EACH) {
            ask(s, s->n_prompt, s->n_answer, (struct asked){0});
            n_sent++;
        }
        run_step(s, 0);
    }
    double seconds = now() - began;
    add_row(s, "closed", n, seconds);
    return (double)s->n_done / seconds;
}

/* Times between arrivals are exponential. */
static void run_open(struct serve *s, uint32_t n, double rate)
{
    uint32_t n_sent = 0;
    begin(s);
    double began = now(), next = began;
    while (!s->failed && (n_sent < n * EACH || s->n_live)) {
        while (!s->failed && n_sent < n * EACH && now() >= next) {
            ask(s, s->n_prompt, s->n_answer, (struct asked){0});
            n_sent++;
            next += -log(((double)draw(s) + 1) / 0x1p31) / rate;
        }
        run_step(s, 0.0005);
    }
    json_object_set_new(add_row(s, "open", n, now() - began), "requests_per_second",
                        json_real(rate));
}

/* Answers that are a quarter done, with n_long tokens of a prompt that comes then. */
static void answer_beside(struct serve *s, uint32_t n_answers, uint32_t n_long)
{
    begin(s);
    for (uint32_t i = 0; i < n_answers; i++)
        ask(s, s->n_prompt, 4 * s->n_answer, (struct asked){0});
    while (!s->failed && s->n_tokens < (size_t)n_answers * s->n_answer) run_step(s, 0);
    s->gaps.n = 0;
    if (n_long) ask(s, n_long, 1, (struct asked){.ignored = true});
    finish(s);
}

static void run_stall(struct serve *s, uint32_t n)
{
    uint32_t most = s->host.info.n_ctx - 2, n_long = most < LONG_PROMPT ? most : LONG_PROMPT;
    uint32_t n_answers = n > 1 ? n - 1 : 1;
    answer_beside(s, n_answers, 0); /* what is usual, with as many tokens behind them */
    double usual = quantile(&s->gaps, 0.5), usual_p95 = quantile(&s->gaps, 0.95), began = now();
    answer_beside(s, n_answers, n_long);
    json_t *row = add_row(s, "stall", n, now() - began);
    json_object_set_new(row, "long_prompt", json_integer(n_long));
    json_object_set_new(row, "usual_gap", json_real(usual));
    json_object_set_new(row, "usual_gap_p95", json_real(usual_p95));
}

static void run_cancel(struct serve *s, uint32_t n)
{
    begin(s);
    double began = now();
    for (uint32_t i = 0; i < N_CANCELS && !s->failed; i++) {
        ask(s, s->n_prompt, s->n_answer, (struct asked){.to_cancel = true});
        while (!s->failed && s->n_live >= n) run_step(s, 0);
    }
    finish(s);
    json_t *row = add_row(s, "cancel", n, now() - began);
    json_object_set_new(row, "cancel_p50", json_real(quantile(&s->cancels, 0.5)));
    json_object_set_new(row, "cancel_max", json_real(quantile(&s->cancels, 1)));
}

/* ---- what is said ---- */

const char *const bench_serve_times[] = {"first_p50",  "first_p95",  "gap_p50",   "gap_p95",
                                         "gap_p99",    "gap_max",    "usual_gap", "usual_gap_p95",
                                         "cancel_p50", "cancel_max", NULL};

static void put_ms(struct table *t, const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (v)
        table_put(t, "%.2f", json_number_value(v) * 1e3);
    else
        table_put(t, "%s", "");
}

static void print_table(const json_t *doc)
{
    static const char *const heads[] = {"first p50", "p95",   "token p50", "p95",        "p99",
                                        "max",       "usual", "p95",       "cancel p50", "max"};
    struct table t = {.columns = "lrrrrrrrrrrrrr"};
    const json_t *row;
    size_t i;
    table_put(&t, "mode");
    table_put(&t, "clients");
    table_put(&t, "requests");
    table_put(&t, "tokens/s");
    for (i = 0; bench_serve_times[i]; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(doc, "serve"), i, row)
    {
        table_put(&t, "%s", json_string_value(json_object_get(row, "mode")));
        table_put(&t, "%.0f", get_real(row, "clients"));
        table_put(&t, "%.0f", get_real(row, "requests"));
        table_put(&t, "%.1f", get_real(row, "tokens_per_second"));
        for (size_t j = 0; bench_serve_times[j]; j++) put_ms(&t, row, bench_serve_times[j]);
    }
    table_print(&t, stdout);
    printf(
        "\n  times in ms; %.0f %% of the prompt tokens were cached, %.0f %% of the steps submitted "
        "ahead",
        100 * get_real(doc, "reused"), 100 * get_real(doc, "ahead_share"));
    if (get_real(doc, "guessed") > 0)
        printf(", %.0f of %.0f draft tokens accepted", get_real(doc, "right"),
               get_real(doc, "guessed"));
    printf("\n");
}

/* The name of this machine's processor; "" where it is not known. */
static json_t *processor(struct fletch_engine *e)
{
    char *text = NULL;
    json_t *doc = fletch_doctor(e, &text) ? NULL : json_loads(text, 0, NULL);
    const char *name = get_text(json_object_get(doc, "cpu"), "model");
    json_t *j = need(json_text(name, strlen(name)));
    json_decref(doc);
    fletch_free(text);
    return j;
}

static json_t *document(struct serve *s)
{
    struct fletch_batch_stats stats;
    char date[32] = "";
    time_t t = time(NULL);
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    fletch_batch_stats(s->b, &stats);
    return need(json_pack(
        "{s:s, s:o, s:s, s:s, s:i, s:i, s:f, s:f, s:I, s:I, s:O}", "date", date, "processor",
        processor(s->host.engine), "model", s->host.info.name, "backend",
        fletch_engine_backend(s->host.engine), "prompt", (int)s->n_prompt, "answer",
        (int)s->n_answer, "reused",
        stats.n_prompt ? (double)stats.n_reused / (double)stats.n_prompt : 0, "ahead_share",
        stats.n_steps ? (double)stats.n_ahead / (double)stats.n_steps : 0, "guessed",
        (json_int_t)stats.n_drafted, "right", (json_int_t)stats.n_accepted, "serve", s->rows));
}

static int run_cases(struct serve *s, const struct ids *clients)
{
    double rate = 0;
    uint32_t n = 1;
    int rc = fletch_batch_open(&s->b, s->host.model, NULL);
    if (rc) return say_failure(rc, fletch_model_error(s->host.model));
    ask(s, s->n_prompt, 4, (struct asked){0}); /* warms up */
    finish(s);
    for (size_t i = 0; i < clients->n && !s->failed; i++) {
        n = (uint32_t)clients->p[i];
        rate = run_closed(s, n);
    }
    if (!s->failed) run_open(s, n, 0.7 * rate);
    if (!s->failed) run_stall(s, n);
    if (!s->failed) run_cancel(s, n);
    return s->failed ? EXIT_FAIL : EXIT_OK;
}

int bench_serve(struct host *h, const struct args *from, uint32_t n_prompt, uint32_t n_answer,
                const struct ids *clients, json_t **doc)
{
    struct args a = *from;
    struct serve s = {.random = 1, .rows = need(json_array())};
    s.n_prompt = n_prompt;
    s.n_answer = n_answer;
    uint64_t most = 1;
    for (size_t i = 0; i < clients->n; i++)
        if ((uint64_t)clients->p[i] > most) most = (uint64_t)clients->p[i];
    a.parallel = (struct opt_count){true, most};
    s.host.engine = h->engine;
    int code = host_open_model(&s.host, a.operands.n ? a.operands.p[0] : NULL, &a);
    if (!code && n_prompt + 4 * n_answer > s.host.info.n_ctx)
        code = say_error(
            "prompts of %u and answers of %u tokens do not fit in the context of %u tokens",
            n_prompt, 4 * n_answer, s.host.info.n_ctx);
    if (!code) code = run_cases(&s, clients);
    if (!code) {
        *doc = document(&s);
        if (!from->json) print_table(*doc);
    }
    fletch_batch_close(s.b);
    json_decref(s.rows);
    free(s.first.p);
    free(s.gaps.p);
    free(s.cancels.p);
    s.host.engine = NULL;
    host_close(&s.host);
    return code;
}
