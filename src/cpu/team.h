/* The thread team: woken once per step, it walks the op list together with a barrier behind every
 * op. Waiting spins for a moment, yields and then sleeps, because others may share the cores. */
#ifndef FLETCH_TEAM_H
#define FLETCH_TEAM_H

#include "base/err.h"

struct team;

/* The cores that this process may use (its affinity), without their further hardware threads. */
u32 team_default_size(void);

/* n counts the caller. */
int team_open(struct team **out, u32 n, struct err *err);
void team_close(struct team *t);
u32 team_size(const struct team *t);

/* Runs walk(ctx, i) on every member i and returns when all have returned. */
void team_run(struct team *t, void (*walk)(void *ctx, u32 member), void *ctx);
/* Inside walk: nobody goes on before all have come here. */
void team_barrier(struct team *t);

#endif
