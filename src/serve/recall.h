/* Prompts go on from what a folder keeps of them (store.h), and leave there what they computed:
 * between the store's files and an executor's blocks and states. */
#ifndef FLETCH_RECALL_H
#define FLETCH_RECALL_H

#include "core/step_queue.h"
#include "serve/kv.h"
#include "serve/store.h"

struct recall {
    struct store *store; /* NULL: nothing is kept */
    struct step_queue *queue;
    struct kv_pool *kv;
    u64 block_bytes, state_bytes;
    u32 grain; /* pieces end at multiples of so many tokens */
};

/* A sequence's place in the executor, and the salt that its prompt is kept under. */
struct recall_seq {
    u64 salt;
    const i32 *tokens;
    u32 *table, *n_blocks; /* of cache blocks; NULL: it has none */
    bool has_state;        /* recurrent, in this slot */
    u32 slot;
};

/* Brings back more than the `have` tokens that are there already, at most n: blocks become the
 * sequence's and are published. Gives how many are there then; `have` where a file can't be used.
 */
u32 recall_more(const struct recall *r, const struct recall_seq *q, u32 n, u32 have);
/* Keeps what is behind n tokens of a prompt, or a part of it. True: to be called again, once the
 * store is free. */
bool recall_keep(const struct recall *r, const struct recall_seq *q, u32 n, bool whole);

#endif
