/* The pool of cache blocks: which are free, who shares which, and the growing table of each
 * sequence. What a block holds is the executor's business.
 *
 * A block that is full of prompt tokens can be published. It then stays findable by its tokens and
 * those before it, while sequences use it and after that until the room is needed (the one unused
 * for longest goes first). Published blocks are never written again, so any number of tables may
 * hold one. */
#ifndef FLETCH_KV_H
#define FLETCH_KV_H

#include "base/err.h"

struct kv_block {
    u32 refs;       /* tables that hold it */
    u32 next, prev; /* in the list of idle blocks: published, but in no table */
    u32 chain;      /* next in its bucket */
    u64 id, parent; /* of this publication and of the block before it; 0: not published, none */
};

struct kv_pool {
    u32 n_blocks, block_tokens;
    u32 n_free, n_idle;
    u32 *free;               /* [n_blocks] the first n_free are free; handed out from the end */
    struct kv_block *blocks; /* [n_blocks], then the head of the list of idle ones */
    i32 *tokens;             /* [n_blocks][block_tokens] of published blocks */
    u32 *buckets;            /* [n_blocks] by hash of parent and tokens */
    u64 last_id;
    u64 n_evicted;
};

int kv_open(struct kv_pool *p, u32 n_blocks, u32 block_tokens, struct err *err);
void kv_close(struct kv_pool *p);

/* Blocks that a table could still get. */
u32 kv_available(const struct kv_pool *p);
/* Blocks that n_tokens need. */
u64 kv_blocks_for(const struct kv_pool *p, u64 n_tokens);

/* Makes table (which holds *n_held blocks) cover n_tokens. All or nothing: false when there are
 * not enough blocks. */
bool kv_cover(struct kv_pool *p, u32 *table, u32 *n_held, u64 n_tokens);
/* Gives back all blocks of a table. */
void kv_release(struct kv_pool *p, const u32 *table, u32 *n_held);

/* Puts published blocks that hold the beginning of tokens into an empty table; gives the number of
 * tokens they hold, always less than n. Only blocks that were published with the same salt (63
 * bits) are found. */
u32 kv_match(struct kv_pool *p, u64 salt, const i32 *tokens, u32 n, u32 *table, u32 *n_held);
/* Whether other tokens were published behind the blocks of such a table. */
bool kv_goes_on(const struct kv_pool *p, u64 salt, const u32 *table, u32 n_held);
/* Publishes block i of a table, full of the given tokens, after the blocks before it. Where an
 * equal one was published before, the table gets that and its own goes back to the pool. */
void kv_publish(struct kv_pool *p, u64 salt, u32 *table, u32 i, const i32 *tokens);
/* Forgets all idle blocks. */
void kv_forget(struct kv_pool *p);

/* Every block is free, idle, or held as often as the tables say; ends the program otherwise. */
void kv_check(const struct kv_pool *p, const u32 *const *tables, const u32 *n_held, u32 n_tables);

#endif
