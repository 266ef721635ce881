#include "text/tok_map.h"

#include <stdlib.h>
#include <time.h>

struct pairmap_slot {
    u64 key, value;
};

static size_t pairmap_probe(const struct pairmap_slot *slots, size_t cap, u64 seed, u64 key)
{
    u64 h = (key ^ seed) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * (seed | 1);
    for (size_t i = (size_t)(h ^ h >> 29) & (cap - 1);; i = (i + 1) & (cap - 1))
        if (slots[i].key == key || slots[i].key == PAIRMAP_NO_KEY) return i;
}

static bool pairmap_grow(struct pairmap *m)
{
    size_t cap = m->cap ? m->cap * 2 : 64, bytes;
    struct pairmap_slot *slots = NULL;
    if (CK_MUL(cap, sizeof *slots, &bytes)) slots = malloc(bytes);
    if (!slots) return false;
    if (!m->cap) {
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        m->seed = ((u64)ts.tv_nsec << 32 ^ (u64)(uintptr_t)slots) * 0xd6e8feb86659fd93u;
    }
    for (size_t i = 0; i < cap; i++) slots[i].key = PAIRMAP_NO_KEY;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key != PAIRMAP_NO_KEY)
            slots[pairmap_probe(slots, cap, m->seed, m->slots[i].key)] = m->slots[i];
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return true;
}

bool pairmap_add(struct pairmap *m, u64 key, u64 value)
{
    CHECK(key != PAIRMAP_NO_KEY);
    if (m->n >= m->cap - m->cap / 3 && !pairmap_grow(m)) return false;
    struct pairmap_slot *s = &m->slots[pairmap_probe(m->slots, m->cap, m->seed, key)];
    if (s->key == PAIRMAP_NO_KEY) {
        *s = (struct pairmap_slot){key, value};
        m->n++;
    }
    return true;
}

bool pairmap_get(const struct pairmap *m, u64 key, u64 *value)
{
    if (!m->cap) return false;
    const struct pairmap_slot *s = &m->slots[pairmap_probe(m->slots, m->cap, m->seed, key)];
    if (s->key == PAIRMAP_NO_KEY) return false;
    *value = s->value;
    return true;
}

void pairmap_free(struct pairmap *m)
{
    free(m->slots);
    *m = (struct pairmap){0};
}

static u64 trie_key(u32 node, char c)
{
    return (u64)node << 8 | (u8)c;
}

static bool trie_new_node(struct trie *t)
{
    if (t->n == t->cap) {
        u32 cap = t->cap ? t->cap * 2 : 256;
        i32 *ids = cap > t->cap ? realloc(t->ids, cap * sizeof *ids) : NULL;
        if (!ids) return false;
        t->ids = ids;
        t->cap = cap;
    }
    t->ids[t->n++] = -1;
    return true;
}

bool trie_add(struct trie *t, struct str word, i32 id)
{
    u32 node = 0;
    if (!t->n && !trie_new_node(t)) return false;
    for (size_t i = 0; i < word.n; i++) {
        u32 next = trie_step(t, node, word.p[i]);
        if (!next) {
            next = t->n;
            if (!trie_new_node(t) || !pairmap_add(&t->edges, trie_key(node, word.p[i]), next))
                return false;
        }
        node = next;
    }
    if (t->ids[node] < 0) t->ids[node] = id;
    return true;
}

u32 trie_step(const struct trie *t, u32 node, char c)
{
    u64 next;
    return pairmap_get(&t->edges, trie_key(node, c), &next) ? (u32)next : 0;
}

void trie_free(struct trie *t)
{
    pairmap_free(&t->edges);
    free(t->ids);
    *t = (struct trie){0};
}
