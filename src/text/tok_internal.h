/* What an open tokenizer is made of, shared by tok.c (open), tok_encode.c and tok_merge.c. */
#ifndef FLETCH_TOK_INTERNAL_H
#define FLETCH_TOK_INTERNAL_H

#include "base/strmap.h"
#include "text/tok.h"
#include "text/tok_map.h"
#include "text/tok_norm.h"
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
    struct trie
        normalised;        /* user-defined ones that are found in normalised text, as it has them */
    struct trie words;     /* RWKV: all normal tokens; Unigram: all that text may become */
    struct trie symbols;   /* user-defined pieces that are found in normalised text */
    struct pairmap merges; /* left id << 32 | right id -> priority << 32 | id */
    u32 *priorities;       /* [n_tokens] SPM by score: lower merges first; else NULL */
    size_t max_text;       /* longest stored text: longer ones need no look-up */
    i32 bytes[256];        /* the token that stands for one byte, or -1 */
    struct tok_normalizer *norm;     /* NULL: texts stay as they are */
    struct tok_pre *pre;             /* BPE, and where the spec has a pre_tokenizer; else NULL */
    double max_score, unknown_score; /* Unigram; max_score is at least 0 */
    u8 *eog;                         /* [n_tokens] */
};

/* May be the outcome of a merge: never a control token, whatever the text spells. */
bool tok_mergeable(const struct tok *t, i32 id);

/* The token with this stored text if merges may make it, or -1. */
i32 tok_find_mergeable(const struct tok *t, struct str text);

/* Byte-level BPE's stored form of bytes: one printable character each. */
void tok_map_bytes(struct buf *out, struct str raw);
void tok_unmap_bytes(struct buf *out, struct str stored);

/* Members of a JSON object. Not a string: p == NULL. */
struct str tok_json_str(const json_t *o, const char *key);
/* def where it is no boolean. */
bool tok_json_bool(const json_t *o, const char *key, bool def);

int tok_push(struct tok_ids *ids, i32 id, struct err *err);

/* Scratch memory for merging, reused from piece to piece. */
struct tok_merger {
    struct merge_sym *syms;
    struct merge_pair *heap;
    u16 *lens;      /* Unigram; [cap_lens] all zero between pieces */
    double *scores; /* Unigram */
    size_t cap_syms, cap_heap, cap_lens;
};
void tok_merger_free(struct tok_merger *m);

/* Appends the ids of one piece: characters (SPM, stored form) or bytes (BPE, raw), merged. */
int tok_merge(const struct tok *t, struct tok_merger *m, struct str piece, struct tok_ids *ids,
              struct err *err);
/* The same with windows of that many bytes, 4 or more. */
int tok_merge_windows(const struct tok *t, struct tok_merger *m, struct str piece, size_t window,
                      struct tok_ids *ids, struct err *err);

void tok_unigram_open(struct tok *t);
/* Appends the ids of the best way to cut a piece. */
int tok_unigram(const struct tok *t, struct tok_merger *m, struct str s, struct tok_ids *ids,
                struct err *err);
/* The same, with ids put out after that many bytes, as soon as all ways meet. */
int tok_unigram_windows(const struct tok *t, struct tok_merger *m, struct str s, size_t window,
                        struct tok_ids *ids, struct err *err);

/* Appends a token; where id is -1, the text goes byte by byte, or becomes the unknown token. ids
 * from `first` on are of the same piece. */
int tok_emit(const struct tok *t, struct str s, i32 id, struct tok_ids *ids, size_t first,
             struct err *err);

#endif
