/* The bytes of a vocabulary's tokens as a tree, laid out so that one pass over an array visits
 * every beginning that tokens share once. */
#ifndef FLETCH_TRIE_H
#define FLETCH_TRIE_H

#include "base/err.h"

enum { TRIE_MAX_BYTES = 256 }; /* of a token; longer ones are left out */

struct trie_node {
    u32 skip;  /* the next node that is not below this one */
    u32 first; /* in ids: tokens that end here are those up to the next node's first */
    u16 depth; /* 1 for a token's first byte */
    u8 byte;
};

struct trie {
    struct trie_node *nodes; /* [n_nodes + 1] depth first; the last one only ends things */
    u32 n_nodes;
    i32 *ids; /* by their bytes */
    u32 n_ids;
    const struct str *pieces; /* [n_tokens] borrowed; empty: not part of any text */
    u32 n_tokens;
    const i32 *ends; /* [n_ends] borrowed: tokens that end an answer */
    u32 n_ends;
};

int trie_open(struct trie **out, const struct str *pieces, u32 n_tokens, const i32 *ends,
              u32 n_ends, struct err *err);
void trie_close(struct trie *t);
/* The longest token that text begins with, of *n bytes; 0 in *n: there is none. */
i32 trie_longest(const struct trie *t, struct str text, u32 *n);

#endif
