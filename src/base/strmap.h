/* From byte strings to u32. Open addressing over xxHash with a seed per map, so that a hostile
 * file can't choose its collisions. Keys are borrowed and must outlive the map. */
#ifndef FLETCH_STRMAP_H
#define FLETCH_STRMAP_H

#include "base/base.h"

struct strmap {
    struct strmap_slot *slots;
    u32 cap, n;
    u64 seed;
};

/* True when added; false when the key was there (its value stays) or memory ran out (ask
 * strmap_ok once at the end). */
bool strmap_add(struct strmap *m, struct str key, u32 value);
bool strmap_get(const struct strmap *m, struct str key, u32 *value);
bool strmap_ok(const struct strmap *m);
void strmap_free(struct strmap *m);

#endif
