#include "serve/recall.h"

/* The bytes of tokens first..n of a sequence: to `to`, or from `from` where that is NULL. What
 * can't be moved is computed, as if it had never been kept. */
static int move(const struct recall *r, const struct recall_seq *q, u32 first, u32 n, u8 *to,
                const u8 *from)
{
    struct err err;
    int rc = 0;
    if (!q->table) return step_queue_move(r->queue, PART_STATE, q->slot, to, from, &err);
    for (u32 b = first / r->kv->block_tokens; !rc && b < n / r->kv->block_tokens; b++) {
        rc = step_queue_move(r->queue, PART_BLOCK, q->table[b], to, from, &err);
        if (to)
            to += r->block_bytes;
        else
            from += r->block_bytes;
    }
    return rc;
}

static bool take_piece(const struct recall *r, const struct recall_seq *q, const struct stored *p,
                       u32 have)
{
    const u8 *from = p->state;
    u32 per = r->kv->block_tokens;
    if (!q->table) return move(r, q, 0, p->n, NULL, from) == 0;
    from += (have - p->first) / per * r->block_bytes;
    if (!kv_cover(r->kv, q->table, q->n_blocks, p->n) || move(r, q, have, p->n, NULL, from))
        return false;
    for (u32 b = have / per; b < p->n / per; b++)
        kv_publish(r->kv, q->salt, q->table, b, q->tokens + (size_t)b * per);
    return true;
}

u32 recall_more(const struct recall *r, const struct recall_seq *q, u32 n, u32 have)
{
    struct stored piece;
    while (r->store && store_find(r->store, q->salt, q->tokens, n, have, &piece)) {
        bool taken = take_piece(r, q, &piece, have);
        if (taken) have = piece.n;
        stored_close(&piece);
        if (!taken || !q->table) break;
    }
    return have;
}

void recall_keep(const struct recall *r, const struct recall_seq *q, u32 n)
{
    u32 first;
    u8 *to = r->store ? store_begin(r->store, q->salt, q->tokens, n, &first) : NULL;
    if (to) store_end(r->store, move(r, q, first, n, to, NULL));
}
