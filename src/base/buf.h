/* A growing byte string with an upper limit. Failure is sticky: append freely, ask once. */
#ifndef FLETCH_BUF_H
#define FLETCH_BUF_H

#include "base/base.h"

struct buf {
    char *p;  /* always NUL-terminated once something was appended */
    size_t n; /* bytes, without the NUL */
    size_t cap;
    size_t max;  /* 0 = no limit */
    bool failed; /* out of memory, or over max */
};

void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *z);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct str buf_str(const struct buf *b);
void buf_free(struct buf *b); /* leaves an empty, usable buf */

#endif
