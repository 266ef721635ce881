/* Two small structures under the tokenizers: a map from u64 to u64 (merge pairs, trie edges) and
 * a trie over bytes for longest matches (special tokens, RWKV). Keys come from files: the hash is
 * seeded, so that a file can't choose its collisions. */
#ifndef FLETCH_TOK_MAP_H
#define FLETCH_TOK_MAP_H

#include "base/base.h"

struct pairmap {
    struct pairmap_slot *slots;
    size_t cap, n;
    u64 seed;
};

#define PAIRMAP_NO_KEY UINT64_MAX /* can't be a key */

/* Keeps the first value of a key. False when out of memory. */
bool pairmap_add(struct pairmap *m, u64 key, u64 value);
bool pairmap_get(const struct pairmap *m, u64 key, u64 *value);
void pairmap_free(struct pairmap *m);

struct trie {
    struct pairmap edges; /* node << 8 | byte -> node */
    i32 *ids;             /* [cap] by node: the word that ends here, or -1 */
    u32 n, cap;
};

/* Keeps the first id of a word. False when out of memory. */
bool trie_add(struct trie *t, struct str word, i32 id);
/* The child of a node (the root is 0), or 0 when there is none. */
u32 trie_step(const struct trie *t, u32 node, char c);
void trie_free(struct trie *t);

#endif
