/* Workers: threads that read bodies, render templates, tokenise and write long answers, so that
 * neither the loop nor the engine waits for it. Heavy tasks, which may take much memory, run one at
 * a time, and not while clients leave too much of earlier answers lying. */
#include <stdlib.h>

#include "app.h"
#include "server.h"

/* How long a heavy task waits for clients to take the answers of others. */
static const double PATIENCE_SECONDS = 2;

struct workers {
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct task *head, **tail;
    bool stop;
    bool may_heavy;     /* the loop allows the next heavy task to begin */
    bool heavy;         /* one has begun; the loop clears it after its `done` */
    double t_heavy_end; /* when the last one ended; the loop's */
    uint32_t n;
    pthread_t threads[];
};

/* The first task that may begin, out of the queue, or NULL. */
static struct task *take_task(struct workers *w)
{
    for (struct task **at = &w->head; *at; at = &(*at)->next) {
        struct task *t = *at;
        if (t->heavy && (w->heavy || !w->may_heavy) && !w->stop) continue;
        *at = t->next;
        if (!t->next) w->tail = at;
        if (t->heavy) w->heavy = true;
        return t;
    }
    return NULL;
}

static void on_done(void *ctx)
{
    struct task *t = ctx;
    struct server *s = t->server;
    bool heavy = t->heavy;
    t->done(t->ctx); /* which may free it */
    struct workers *w = s->workers;
    if (!heavy || !w) return;
    pthread_mutex_lock(&w->lock);
    w->heavy = w->may_heavy = false;
    pthread_mutex_unlock(&w->lock);
    w->t_heavy_end = server_now();
    workers_heed(s);
}

static void *work(void *ctx)
{
    struct workers *w = ctx;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct task *t = NULL;
        while (!(t = take_task(w)) && !(w->stop && !w->head)) pthread_cond_wait(&w->came, &w->lock);
        if (!t) break;
        pthread_mutex_unlock(&w->lock);
        t->work(t->ctx);
        mail_run(w->server, on_done, t);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_open(struct server *s)
{
    uint32_t n = s->params.n_workers;
    struct workers *w = s->workers = need(calloc(1, sizeof *w + n * sizeof *w->threads));
    w->server = s;
    w->tail = &w->head;
    w->may_heavy = true;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    for (; w->n < n; w->n++)
        if (pthread_create(&w->threads[w->n], NULL, work, w))
            return say_error("cannot start a thread");
    return EXIT_OK;
}

void workers_give(struct server *s, struct task *t)
{
    struct workers *w = s->workers;
    t->server = s;
    t->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->tail = t;
    w->tail = &t->next;
    pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->lock);
    if (t->heavy) workers_heed(s);
}

bool workers_take_back(struct server *s, struct task *t)
{
    struct workers *w = s->workers;
    bool found = false;
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    for (struct task **at = &w->head; *at && !found; at = found ? at : &(*at)->next) {
        found = *at == t;
        if (!found) continue;
        *at = t->next;
        if (!t->next) w->tail = at;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

void workers_heed(struct server *s)
{
    struct workers *w = s->workers;
    if (!w) return;
    bool idle = s->unsent_bytes <= limit_of(&s->limits, backlog_bytes);
    bool waited = server_now() - w->t_heavy_end > PATIENCE_SECONDS &&
                  s->unsent_bytes <= limit_of(&s->limits, all_reply_bytes) / 2;
    if (!idle && !waited) return;
    pthread_mutex_lock(&w->lock);
    if (!w->heavy && !w->may_heavy) pthread_cond_broadcast(&w->came);
    w->may_heavy = true;
    pthread_mutex_unlock(&w->lock);
}

void workers_close(struct server *s)
{
    struct workers *w = s->workers;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->came);
    pthread_mutex_unlock(&w->lock);
    while (w->n) pthread_join(w->threads[--w->n], NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->came);
    free(w);
    s->workers = NULL;
}
