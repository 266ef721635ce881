/* Which of the GPU's memory stays wired between steps: from macOS 15 on, in sets. A set that
 * changes is wired anew as a whole, so memory is spread over several, each at most a twentieth of
 * what the device recommends in all, or a single buffer that is larger. Before macOS 15 there are
 * none, and all of this does nothing. */
#ifndef FLETCH_METAL_RESIDENCY_H
#define FLETCH_METAL_RESIDENCY_H

#include "base/base.h"

#ifdef __OBJC__
typedef id metal_object;
#else
typedef struct objc_object *metal_object;
#endif

enum { RESIDENCY_SETS = 32 }; /* that a queue takes */

struct residency {
    metal_object device, queue; /* whoever opened it owns them; NULL: there are no sets */
    u64 most;                   /* bytes of a set */
    u32 n;
    struct resident_set {
        metal_object set;
        u64 bytes;
        bool changed; /* and not yet committed */
    } sets[RESIDENCY_SETS];
};

void residency_open(struct residency *r, metal_object device, metal_object queue);
/* Gives all memory back. Nothing that uses it may be on its way. */
void residency_close(struct residency *r);

/* A buffer of n bytes belongs to the set whose number is returned, and is wired when that is
 * committed. Removed, it is free when its last owner releases it. */
u32 residency_add(struct residency *r, metal_object buffer, u64 n);
void residency_remove(struct residency *r, u32 set, metal_object buffer, u64 n);
void residency_commit(struct residency *r);

#endif
