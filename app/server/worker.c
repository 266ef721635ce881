/* Workers: threads that read bodies, render templates and tokenise, so that neither the loop nor
 * the engine waits for it. */
#include <stdlib.h>

#include "app.h"
#include "server.h"

struct workers {
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct call *head, **tail; /* linked by work_next */
    bool stop;
    uint32_t n;
    pthread_t threads[];
};

static void *work(void *ctx)
{
    struct workers *w = ctx;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->head && !w->stop) pthread_cond_wait(&w->came, &w->lock);
        struct call *c = w->head;
        if (!c) break;
        w->head = c->work_next;
        if (!w->head) w->tail = &w->head;
        pthread_mutex_unlock(&w->lock);
        call_work(c);
        struct server_event *e = need(calloc(1, sizeof *e));
        e->kind = EVENT_WORKED;
        e->call = c;
        mail_send(w->server, e);
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
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    for (; w->n < n; w->n++)
        if (pthread_create(&w->threads[w->n], NULL, work, w))
            return say_error("no thread can be made");
    return EXIT_OK;
}

void workers_give(struct server *s, struct call *c)
{
    struct workers *w = s->workers;
    pthread_mutex_lock(&w->lock);
    c->work_next = NULL;
    *w->tail = c;
    w->tail = &c->work_next;
    pthread_cond_signal(&w->came);
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
