/* A folder of what prompts left behind, for later runs: pieces of the prefix cache, each a file
 * (statefile.h) with the tokens from the first on and the cache blocks of the last of them, or the
 * recurrent state behind all. A file counts only when its checksum, the model's key, the salt and
 * every token are right; any other is told of and left alone. Files appear whole or not at all; the
 * ones unused for longest make room. A thread of its own writes, one piece at a time: what comes
 * while it is busy is not kept, nor what comes soon after a file that could not be written. */
#ifndef FLETCH_STORE_H
#define FLETCH_STORE_H

#include "serve/statefile.h"

struct store_env {
    const char *dir; /* made if it is not there; for its owner alone (file_make_private_dir) */
    u64 max_bytes;   /* of all files */
    u64 key;         /* of the model */
    u32 grain;       /* pieces end at multiples of so many tokens */
    u64 grain_bytes; /* of the cache blocks of each; 0: there are none */
    u64 state_bytes; /* of the recurrent state; with one, pieces begin at the first token. 0: none
                      */
    void (*notice)(void *ctx, const char *text); /* NULL: nobody listens; from any thread */
    void *notice_ctx;
    double retry_seconds; /* after a file that could not be written, at first; 0: 1 */
};

struct store;

int store_open(struct store **out, const struct store_env *env, struct err *err);
/* Files that could not be written so far. s may be NULL. */
u64 store_failures(struct store *s);
/* Ends when what it was given is written. */
void store_close(struct store *s);

/* What is behind tokens first..n of a prompt. */
struct stored {
    u32 first, n;
    const u8 *state;
    struct file_map map;
};

/* The piece to go on with behind the `have` tokens that are there: the next blocks, or the longest
 * state; n counts those that the piece may reach. False: there is none. */
bool store_find(struct store *s, u64 salt, const i32 *tokens, u32 n, u32 have, struct stored *out);
void stored_close(struct stored *p);

/* Begins to keep what is behind n tokens, a multiple of the grain: gives the place for its bytes,
 * and in *first where they begin, behind what is kept already. NULL: not now, or not needed. */
u8 *store_begin(struct store *s, u64 salt, const i32 *tokens, u32 n, u32 *first);
/* Has it written, once the bytes are there (rc 0), or drops it. */
void store_end(struct store *s, int rc);

#endif
