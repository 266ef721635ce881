/* The pool of cache blocks: which are free, and the growing table of each sequence. What a block
 * holds is the executor's business. */
#ifndef FLETCH_KV_H
#define FLETCH_KV_H

#include "base/err.h"

struct kv_pool {
    u32 n_blocks, block_tokens;
    u32 n_free;
    u32 *free; /* [n_blocks] the first n_free are free; handed out from the end */
};

int kv_open(struct kv_pool *p, u32 n_blocks, u32 block_tokens, struct err *err);
void kv_close(struct kv_pool *p);

/* Makes table (which holds *n_held blocks) cover n_tokens. All or nothing: false when there are
 * not enough free blocks. */
bool kv_cover(struct kv_pool *p, u32 *table, u32 *n_held, u64 n_tokens);
/* Gives back all blocks of a table. */
void kv_release(struct kv_pool *p, const u32 *table, u32 *n_held);

#endif
