/* A model's session reads prompts for what a batch can't do (scores, embeddings): a piece at a time
 * between the steps of everybody else, one call at a time, the others stand in line. */
#include <stdio.h>

#include "server.h"

static uint32_t room_of(const struct fletch_batch_stats *stats)
{
    return stats->n_free + stats->n_idle;
}

/* Cache blocks that ran out come back when others end, if others have any: the prompt is begun
 * again when there are more than now. */
static bool may_help_to_wait(const struct served *m, struct reader *r)
{
    struct fletch_batch_stats stats;
    if (r->rc != FLETCH_E_CONTEXT) return false;
    fletch_batch_stats(m->batch, &stats);
    r->room = room_of(&stats);
    return r->room < stats.n_blocks;
}

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
    r->lacks_room = may_help_to_wait(m, r);
    if (r->lacks_room) r->at = 0;
}

static int status_of(int rc)
{
    if (rc == FLETCH_E_LIMIT) return 503;
    return rc == FLETCH_E_CONTEXT || rc == FLETCH_E_UNSUPPORTED ? 400 : 500;
}

static void on_piece(void *ctx)
{
    struct reader *r = ctx;
    struct call *c = r->call;
    struct served *m = c->served;
    double waited = server_now() - c->t_begin;
    bool late = waited > (double)limit_of(&c->server->limits, queue_seconds);
    r->rests = r->lacks_room && c->conn && !c->problem.status && !late;
    if (r->rests) return; /* reader_wake goes on */
    if (r->lacks_room && late) call_over(c, LIMIT_queue_seconds, NULL, (uint64_t)waited);
    if (r->at == c->prompts[r->prompt].n) {
        r->prompt++;
        r->at = 0;
    }
    if (r->rc && !r->lacks_room) call_wrong(c, status_of(r->rc), NULL, "%s", r->error);
    if (r->rc == FLETCH_E_NOMEM) call_no_memory(c);
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

void reader_wake(struct served *m)
{
    struct reader *r = m->readers;
    struct served_figures f;
    if (!r || !r->rests) return;
    served_figures(m, &f);
    if (served_runs(m) && room_of(&f.stats) <= r->room) {
        on_piece(r); /* which looks at the time, and whether anybody still waits */
        return;
    }
    r->rests = r->lacks_room = false;
    r->rc = 0;
    served_errand(m, read_piece, on_piece, r);
}

/* ---- answers ---- */

static void write_answer(void *ctx)
{
    struct reader *r = ctx;
    memory_begin();
    r->call->reply = r->reply(r);
    call_write_reply(r->call);
    if (memory_failed()) call_no_memory(r->call);
}

static void on_answer(void *ctx)
{
    call_ran(((struct reader *)ctx)->call);
}

void reader_answer(struct reader *r)
{
    struct call *c = r->call;
    if (r->prompt < c->n_prompts || c->problem.status) {
        call_ran(c);
        return;
    }
    for (size_t i = 0; i < c->n_prompts; i++) metrics_prompt(c->server->metrics, c->prompts[i].n);
    r->task = (struct task){.work = write_answer, .done = on_answer, .ctx = r};
    workers_give(c->server, &r->task);
}
