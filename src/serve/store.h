/* A folder of what prompts left behind, for later runs: pieces of the prefix cache, each a file
 * (statefile.h) with the tokens from the first on and the cache blocks of the last of them, or the
 * recurrent state behind all. A file counts only when its checksum, the model's key, the salt and
 * every token are right; any other is told of and removed. Files appear whole or not at all; the
 * ones unused for longest make room, also those of other models and servers, which may use the
 * folder at the same time. A thread of its own writes, one piece at a time; a long prefix is
 * several pieces. What comes while it is busy, or soon after a file that could not be written, has
 * to come again. */
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
    u64 piece_bytes;      /* of blocks, that wait in memory at a time; 0: 64 MiB */
    double retry_seconds; /* after a file that could not be written, at first; 0: 1 */
};

struct store;

/* The files of a folder, of all models: how many, and their bytes. Those that are removed are those
 * counted. A folder that is not there has none. */
int store_scan(const char *dir, bool remove, u64 *n, u64 *bytes, struct err *err);

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

/* What is to be kept of some tokens: those before n, a multiple of the grain. */
struct store_span {
    u32 first, n; /* store_begin: those of the next piece, behind what is kept already */
    bool whole;   /* in one piece, however long */
    bool is_left; /* the same: more of it may be kept later */
};

/* Begins to keep a piece: gives the place for its bytes. NULL: not now (is_left), or not needed. */
u8 *store_begin(struct store *s, u64 salt, const i32 *tokens, struct store_span *span);
/* Nothing is being written. */
bool store_is_free(struct store *s);
void store_wait(struct store *s); /* until it is so */
/* Has it written, once the bytes are there (rc 0), or drops it. */
void store_end(struct store *s, int rc);

#endif
