#include "base/strmap.h"

#include <stdlib.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct strmap_slot {
    struct str key; /* p == NULL: empty */
    u32 hash, value;
};

enum { CAP_FAILED = UINT32_MAX };

static u32 strmap_hash(const struct strmap *m, struct str key)
{
    return (u32)XXH3_64bits_withSeed(key.p, key.n, m->seed);
}

static struct strmap_slot *strmap_probe(struct strmap_slot *slots, u32 cap, u32 hash,
                                        struct str key)
{
    for (u32 i = hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
        struct strmap_slot *s = &slots[i];
        if (!s->key.p || (s->hash == hash && str_eq(s->key, key))) return s;
    }
}

static bool strmap_grow(struct strmap *m)
{
    u32 cap = m->cap ? m->cap * 2 : 64;
    struct strmap_slot *slots = cap > m->cap ? calloc(cap, sizeof *slots) : NULL;
    if (!slots) {
        strmap_free(m);
        m->n = CAP_FAILED;
        return false;
    }
    if (!m->cap) {
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        m->seed = (u64)ts.tv_nsec ^ (u64)(uintptr_t)slots;
    }
    for (u32 i = 0; i < m->cap; i++)
        if (m->slots[i].key.p)
            *strmap_probe(slots, cap, m->slots[i].hash, m->slots[i].key) = m->slots[i];
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return true;
}

bool strmap_add(struct strmap *m, struct str key, u32 value)
{
    if (m->n == CAP_FAILED) return false;
    if (m->n + 1 > m->cap - m->cap / 4 && !strmap_grow(m)) return false;
    if (!key.p) key.p = "";
    u32 hash = strmap_hash(m, key);
    struct strmap_slot *s = strmap_probe(m->slots, m->cap, hash, key);
    if (s->key.p) return false;
    *s = (struct strmap_slot){key, hash, value};
    m->n++;
    return true;
}

bool strmap_get(const struct strmap *m, struct str key, u32 *value)
{
    if (!m->cap) return false;
    if (!key.p) key.p = "";
    const struct strmap_slot *s = strmap_probe(m->slots, m->cap, strmap_hash(m, key), key);
    if (!s->key.p) return false;
    if (value) *value = s->value;
    return true;
}

bool strmap_ok(const struct strmap *m)
{
    return m->n != CAP_FAILED;
}

void strmap_free(struct strmap *m)
{
    free(m->slots);
    *m = (struct strmap){0};
}
