#include "engine/outlet.h"

#include <string.h>

static void hold(void *ctx, const char *p, size_t n)
{
    buf_put(&((struct outlet *)ctx)->held, p, n);
}

/* Bytes at the end of held that are the beginning of a stop text; or finds a whole one. */
static size_t must_wait(struct outlet *o, size_t *stop_at)
{
    size_t wait = 0;
    *stop_at = SIZE_MAX;
    for (size_t i = 0; i < o->n_stops; i++) {
        const char *stop = o->stops[i];
        size_t n = strlen(stop);
        if (n == 0 || !o->held.n) continue;
        const char *hit = memmem(o->held.p, o->held.n, stop, n);
        if (hit && (size_t)(hit - o->held.p) < *stop_at) {
            *stop_at = (size_t)(hit - o->held.p);
            o->stop = (u32)i;
        }
        for (size_t k = MIN(n - 1, o->held.n); k > wait; k--)
            if (memcmp(o->held.p + o->held.n - k, stop, k) == 0) wait = k;
    }
    return wait;
}

/* What went out last time makes room first. */
static void drop_out(struct outlet *o)
{
    if (!o->n_out) return;
    memmove(o->held.p, o->held.p + o->n_out, o->held.n - o->n_out);
    o->held.n -= o->n_out;
    o->n_out = 0;
}

static bool let_out(struct outlet *o, bool all, struct str *text)
{
    size_t stop_at, wait = must_wait(o, &stop_at);
    bool stopped = stop_at != SIZE_MAX;
    o->n_out = stopped ? stop_at : all ? o->held.n : o->held.n - wait;
    *text = (struct str){o->held.p ? o->held.p : "", o->n_out};
    return stopped;
}

bool outlet_feed(struct outlet *o, i32 token, struct str *text)
{
    drop_out(o);
    if (o->tok)
        tok_stream_feed(&o->stream, tok_piece(o->tok, token, o->show_control), false, hold, o);
    return let_out(o, false, text);
}

bool outlet_flush(struct outlet *o, struct str *text)
{
    drop_out(o);
    if (o->tok) tok_stream_flush(&o->stream, false, hold, o);
    return let_out(o, true, text);
}

void outlet_close(struct outlet *o)
{
    buf_free(&o->held);
}
