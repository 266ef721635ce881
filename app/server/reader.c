/* A model's session reads prompts for what a batch can't do (scores, embeddings): a piece at a time
 * between the steps of everybody else, one call at a time, the others stand in line. */
#include <stdio.h>

#include "server.h"

/* On the engine thread: the next piece. */
static void read_piece(struct served *m, void *ctx)
{
    struct reader *r = ctx;
    const struct prompt *p = &r->call->prompts[r->prompt];
    size_t n = p->n - r->at < r->piece ? p->n - r->at : r->piece;
    if (!r->at) fletch_session_reset(m->session);
    r->rc = r->read(m, r, p->ids + r->at, n);
    if (r->rc) snprintf(r->error, sizeof r->error, "%s", fletch_session_error(m->session));
    r->at += n;
    if (r->rc || r->at == p->n) fletch_session_reset(m->session); /* others may want the room */
}

static void on_piece(void *ctx)
{
    struct reader *r = ctx;
    struct call *c = r->call;
    struct served *m = c->served;
    if (r->at == c->prompts[r->prompt].n) {
        r->prompt++;
        r->at = 0;
    }
    if (r->rc) call_wrong(c, r->rc == FLETCH_E_LIMIT ? 503 : 500, NULL, "%s", r->error);
    if (!c->problem.status && c->conn && r->prompt < c->n_prompts) {
        served_errand(m, read_piece, on_piece, r);
        return;
    }
    m->readers = r->next;
    if (m->readers) served_errand(m, read_piece, on_piece, m->readers);
    r->done(r);
}

void reader_begin(struct reader *r)
{
    struct served *m = r->call->served;
    struct reader **at = &m->readers;
    while (*at) at = &(*at)->next;
    *at = r;
    if (m->readers == r) served_errand(m, read_piece, on_piece, r);
}
