/* Snapshots of recurrent state: what a published cache block is to attention. A slot that no
 * sequence uses keeps the state behind some tokens; prompts that begin with them go on from there.
 * The copying itself is done by edits of a step. */
#ifndef FLETCH_SNAP_H
#define FLETCH_SNAP_H

#include "base/err.h"
#include "fletch.h"

enum { SNAP_EVERY = 1024, SNAP_GRAIN = 32 };

struct snap {
    i32 *tokens; /* NULL: empty */
    u32 n;
    u64 salt;
    u64 used;      /* when */
    bool is_spare; /* of a place like any other, where no prompt went on yet: it goes first */
};

struct snap_pool {
    u32 n, first_slot;
    struct snap *snaps; /* [n]: slots first_slot and on */
    u64 clock;
};

int snap_open(struct snap_pool *p, u32 n, u32 first_slot, struct err *err);
void snap_close(struct snap_pool *p);

/* Places in a prompt where others are likely to go on in another way. */
struct snap_marks {
    u32 n, at[FLETCH_MARKS];
};
/* Where in a prompt of n tokens to stop next for a snapshot, behind `at`; 0: nowhere. */
u32 snap_point(const struct snap_pool *p, u32 at, u32 n, const struct snap_marks *marks);
/* The most tokens, fewer than n, that a snapshot of this salt has; its slot. 0: none. */
u32 snap_match(struct snap_pool *p, u64 salt, const i32 *tokens, u32 n, u32 *slot);
/* The slot to copy the state behind these tokens to; false when it is there already, or when there
 * is no memory to remember it. */
bool snap_put(struct snap_pool *p, u64 salt, const i32 *tokens, u32 n, bool is_spare, u32 *slot);

#endif
