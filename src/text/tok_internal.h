/* What an open tokenizer is made of, shared by tok.c (open), tok_encode.c and tok_merge.c. */
#ifndef FLETCH_TOK_INTERNAL_H
#define FLETCH_TOK_INTERNAL_H

#include "base/strmap.h"
#include "text/tok.h"
#include "text/tok_map.h"
#include "text/tok_pre.h"

#define TOK_SPACE "\xe2\x96\x81" /* U+2581, SPM's space */

enum {
    TOK_MAX_TEXT = 1 << 30, /* bytes to encode at once */
    TOK_MAX_WORD = 1024,    /* bytes of a token that is searched for at every place of a text */
};

struct tok {
    struct tok_spec spec; /* ids and flags resolved: no "default" left */
    struct arena arena;
    struct str *pieces;    /* [n_tokens] raw bytes, control tokens too */
    struct strmap by_text; /* stored text -> id, the first of equals */
    struct trie specials;  /* control, unknown, user-defined */
    struct trie words;     /* RWKV: all normal tokens */
    struct pairmap merges; /* left id << 32 | right id -> priority << 32 | id */
    u32 *priorities;       /* [n_tokens] SPM by score: lower merges first; else NULL */
    size_t max_text;       /* longest stored text: longer ones need no look-up */
    i32 bytes[256];        /* the token that stands for one byte, or -1 */
    struct tok_pre *pre;   /* BPE */
    u8 *eog;               /* [n_tokens] */
};

/* May be the outcome of a merge: never a control token, whatever the text spells. */
bool tok_mergeable(const struct tok *t, i32 id);

/* The token with this stored text if merges may make it, or -1. */
i32 tok_find_mergeable(const struct tok *t, struct str text);

/* Byte-level BPE's stored form of bytes: one printable character each. */
void tok_map_bytes(struct buf *out, struct str raw);

int tok_push(struct tok_ids *ids, i32 id, struct err *err);

/* Scratch memory for merging, reused from piece to piece. */
struct tok_merger {
    struct merge_sym *syms;
    struct merge_pair *heap;
    size_t cap_syms, cap_heap;
};
void tok_merger_free(struct tok_merger *m);

/* Appends the ids of one piece: characters (SPM, stored form) or bytes (BPE, raw), merged. */
int tok_merge(const struct tok *t, struct tok_merger *m, struct str piece, struct tok_ids *ids,
              struct err *err);

#endif
