/* The server as a whole: opens its parts, runs the loop, and ends them in order. */
#include <event2/event.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "app.h"
#include "http.h"
#include "served.h"

const struct limit_row limit_table[N_LIMITS] = {
#define LIMIT_ROW(name, value, status, what) {#name, what, value, status},
    LIMITS(LIMIT_ROW)
#undef LIMIT_ROW
};

enum { TICK_MS = 250 };

double server_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void server_stop(struct server *s, int code)
{
    s->code = code;
    event_base_loopbreak(s->base);
}

/* The first signal: those who have begun may finish. The second: nobody. */
static void on_signal(evutil_socket_t sig, short what, void *ctx)
{
    struct server *s = ctx;
    (void)sig;
    (void)what;
    if (s->draining) {
        server_stop(s, EXIT_OK);
        return;
    }
    if (s->n_calls)
        log_line(s, "shutting down: waiting up to %g s for %u request%s; Ctrl-C again stops now",
                 s->params.drain_seconds, s->n_calls, s->n_calls == 1 ? "" : "s");
    else
        log_line(s, "shutting down");
    s->draining = true;
    s->t_drain = server_now();
    http_stop_listening(s);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct server *s = ctx;
    (void)fd;
    (void)what;
    memory_restock();
    call_tick(s);
    served_tick(s);
    workers_heed(s);
    for (size_t i = 0; i < s->n_served; i++) reader_wake(&s->served[i]);
    http_tick(s);
    status_tick(s);
    if (!s->draining) return;
    double since = server_now() - s->t_drain;
    if (!http_count(s) || since > s->params.drain_seconds + 1)
        server_stop(s, EXIT_OK);
    else if (since > s->params.drain_seconds)
        call_cancel_all(s);
}

static uint64_t random_number(void)
{
    uint64_t n = 0;
    FILE *f = fopen("/dev/urandom", "rb");
    if (!f || fread(&n, sizeof n, 1, f) != 1) n = (uint64_t)(server_now() * 1e9);
    if (f) fclose(f);
    return n;
}

static int open_all(struct server *s)
{
    memory_open();
    s->base = need(event_base_new());
    s->metrics = metrics_open();
    int code = guard_open(&s->guard, &s->params);
    if (!code) code = mail_open(s);
    if (!code) code = workers_open(s);
    if (!code) code = http_listen(s);
    if (code) return code;
    s->n_served = s->params.n_models;
    s->served = need(calloc(s->n_served, sizeof *s->served));
    for (size_t i = 0; i < s->n_served; i++)
        served_declare(&s->served[i], s, s->params.ids[i], s->params.paths[i]);
    return s->params.on_demand ? EXIT_OK : served_load(&s->served[0]);
}

static void run(struct server *s)
{
    static const int signals[] = {SIGTERM, SIGINT};
    struct event *on[2], *tick = need(event_new(s->base, -1, EV_PERSIST, on_tick, s));
    struct timeval often = {.tv_usec = TICK_MS * 1000};
    for (size_t i = 0; i < 2; i++) {
        on[i] = need(evsignal_new(s->base, signals[i], on_signal, s));
        event_add(on[i], NULL);
    }
    event_add(tick, &often);
    signal(SIGPIPE, SIG_IGN);
    event_base_dispatch(s->base);
    for (size_t i = 0; i < 2; i++) event_free(on[i]);
    event_free(tick);
}

/* Long bodies and answers go back to the system as soon as they are freed. glibc would otherwise
 * learn from the first of them to keep the next. */
static void tune_malloc(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 131072);
    mallopt(M_TRIM_THRESHOLD, 131072);
#endif
}

int server_run(const struct server_params *params)
{
    struct server s = {.params = *params, .limits = params->limits, .t_start = server_now()};
    tune_malloc();
    s.boot = random_number();
    json_object_seed(0); /* before there are threads */
    s.code = open_all(&s);
    if (!s.code) {
        log_line(&s, "listening on %s://%s%s%s:%u", params->cert ? "https" : "http",
                 strchr(params->host, ':') ? "[" : "", params->host,
                 strchr(params->host, ':') ? "]" : "", (unsigned)http_port(&s));
        if (params->cache_is_default)
            log_line(&s,
                     "prefixes of prompts are saved in %s, so that they need not be computed again "
                     "after a restart; --cache-disk 0 turns this off, fletch cache clear deletes "
                     "them",
                     params->cache_dir);
        run(&s);
    }
    /* first those who make events, then what events are about */
    if (s.listener) http_close(&s);
    workers_close(&s);
    for (size_t i = 0; i < s.n_served; i++) served_stop(&s.served[i]);
    mail_close(&s);
    for (size_t i = 0; i < s.n_served; i++) served_close(&s.served[i]);
    free(s.served);
    guard_close(&s.guard);
    metrics_close(s.metrics);
    if (s.base) event_base_free(s.base);
    memory_close();
    return s.code;
}
