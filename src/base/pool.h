/* A fixed team of threads for `for` loops whose turns don't touch each other. */
#ifndef FLETCH_POOL_H
#define FLETCH_POOL_H

#include "base/err.h"

struct pool;

/* n_threads counts the caller, so 1 starts no thread; 0 = one per core. */
int pool_open(struct pool **out, u32 n_threads, struct err *err);
void pool_close(struct pool *p);
u32 pool_threads(const struct pool *p);

/* Calls fn(ctx, begin, end) over disjoint ranges that cover 0..n, and returns when all are
 * done. p may be NULL (one call). Not reentrant: one caller at a time. */
void pool_run(struct pool *p, void (*fn)(void *ctx, u64 begin, u64 end), void *ctx, u64 n);

#endif
