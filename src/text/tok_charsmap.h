/* SentencePiece's precompiled map of characters: a double-array trie (darts) over UTF-8, and the
 * texts that its words are replaced by. It comes from files: every step is checked. */
#ifndef FLETCH_TOK_CHARSMAP_H
#define FLETCH_TOK_CHARSMAP_H

#include "base/err.h"

struct tok_charsmap {
    const u8 *units; /* [n_units] u32, little-endian, unaligned */
    u32 n_units;
    struct str texts; /* each ends with a NUL */
};

/* Borrows blob. */
int tok_charsmap_open(struct tok_charsmap *m, struct str blob, struct err *err);

enum tok_match { TOK_SHORTEST, TOK_LONGEST };
/* The shortest or longest word of the map that s begins with: its length, or 0; out: its
 * replacement. */
size_t tok_charsmap_find(const struct tok_charsmap *m, struct str s, enum tok_match which,
                         struct str *out);

#endif
