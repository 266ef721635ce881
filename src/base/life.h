/* A life is one enum that one function changes. Its table has, for each state, the states that may
 * follow it; any other change is a broken invariant. */
#ifndef FLETCH_LIFE_H
#define FLETCH_LIFE_H

#include "base/base.h"

#define LIFE(state) (1u << (state))

/* next: [number of states] sets of LIFE() */
static inline u32 life_next(const u32 *next, u32 from, u32 to)
{
    CHECK(next[from] & LIFE(to));
    return to;
}

#endif
