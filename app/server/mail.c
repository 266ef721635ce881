/* What other threads tell the loop: a queue under a lock, and a pipe that wakes the loop. libevent
 * needs no threads of its own that way. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "server.h"

enum { MAIL_MOST = 1 << 16 }; /* events that wait, before whoever makes more is told to end */

struct mail {
    struct event *wake;
    int pipe[2];
    pthread_mutex_t lock;
    struct server_event *head, **tail;
    size_t n;
};

bool mail_send(struct server *s, struct server_event *e)
{
    struct mail *m = s->mail;
    pthread_mutex_lock(&m->lock);
    bool refused = m->n >= MAIL_MOST && e->kind < EVENT_DONE;
    bool first = !m->n;
    if (!refused) {
        e->next = NULL;
        *m->tail = e;
        m->tail = &e->next;
        m->n++;
    }
    pthread_mutex_unlock(&m->lock);
    if (refused) free(e);
    /* a full pipe has woken it already */
    if (first && write(m->pipe[1], "", 1) < 0) return !refused;
    return !refused;
}

static void on_mail(evutil_socket_t fd, short what, void *ctx)
{
    struct server *s = ctx;
    struct mail *m = s->mail;
    char bytes[64];
    (void)what;
    while (read(fd, bytes, sizeof bytes) == sizeof bytes) continue;
    pthread_mutex_lock(&m->lock);
    struct server_event *e = m->head;
    m->head = NULL;
    m->tail = &m->head;
    m->n = 0;
    pthread_mutex_unlock(&m->lock);
    while (e) {
        struct server_event *next = e->next;
        if (e->kind == EVENT_RUN)
            e->run(e->ctx);
        else
            call_on_event(e);
        free(e);
        e = next;
    }
}

void mail_run(struct server *s, void (*run)(void *ctx), void *ctx)
{
    struct server_event *e = memory_zeroed(sizeof *e);
    e->kind = EVENT_RUN;
    e->run = run;
    e->ctx = ctx;
    mail_send(s, e);
}

int mail_open(struct server *s)
{
    struct mail *m = s->mail = need(calloc(1, sizeof *m));
    m->tail = &m->head;
    pthread_mutex_init(&m->lock, NULL);
    if (pipe(m->pipe)) return say_error("cannot create a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(m->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(m->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    m->wake = need(event_new(s->base, m->pipe[0], EV_READ | EV_PERSIST, on_mail, s));
    event_add(m->wake, NULL);
    return EXIT_OK;
}

void mail_close(struct server *s)
{
    struct mail *m = s->mail;
    if (!m) return;
    if (m->wake) {
        while (m->head) on_mail(m->pipe[0], 0, s); /* what is under way belongs to somebody */
        event_free(m->wake);
        close(m->pipe[0]);
        close(m->pipe[1]);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
    s->mail = NULL;
}
