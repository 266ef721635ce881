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

/* Runs walk(ctx, i) on the first n members and returns when all have returned: how many seconds
 * they spent waiting at barriers, those too short to give up the processor for left out. */
double team_run(struct team *t, u32 n, void (*walk)(void *ctx, u32 member), void *ctx);
/* Inside walk: no member of the run goes on before all have come here. */
void team_barrier(struct team *t);

#endif
