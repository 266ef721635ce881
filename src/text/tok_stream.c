/* Streaming detokenisation: a piece may end inside a character, its rest comes with the next. */
#include "text/tok.h"

#include "text/unicode.h"

void tok_stream_feed(struct tok_stream *s, struct str piece, bool raw,
                     void (*sink)(void *ctx, const char *p, size_t n), void *ctx)
{
    for (size_t i = 0; i < piece.n;) {
        if (!s->n_tail) {
            size_t end = utf8_run(piece, i);
            if (end > i) sink(ctx, piece.p + i, end - i);
            i = end;
            if (i == piece.n) break;
        }
        s->tail[s->n_tail++] = piece.p[i++];
        int len = utf8_check(s->tail, s->n_tail);
        if (len == 0) continue;
        if (len > 0) {
            sink(ctx, s->tail, s->n_tail);
            s->n_tail = 0;
            continue;
        }
        /* The byte that broke a character may begin the next one. */
        if (s->n_tail > 1) {
            s->n_tail--;
            i--;
        }
        tok_stream_flush(s, raw, sink, ctx);
    }
}

void tok_stream_flush(struct tok_stream *s, bool raw,
                      void (*sink)(void *ctx, const char *p, size_t n), void *ctx)
{
    if (!s->n_tail) return;
    if (raw)
        sink(ctx, s->tail, s->n_tail);
    else
        sink(ctx, "\xef\xbf\xbd", 3);
    s->n_tail = 0;
}
