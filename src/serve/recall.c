#include "serve/recall.h"

/* The state of a sequence: to `to`, or from `from` where that is NULL; the same of the blocks of
 * tokens first..n. What can't be moved is computed, as if it had never been kept. */
static int move_state(const struct recall *r, const struct recall_seq *q, u8 *to, const u8 *from)
{
    struct err err;
    return step_queue_move(r->queue, PART_STATE, q->slot, to, from, &err);
}

static int move_blocks(const struct recall *r, const struct recall_seq *q, u32 first, u32 n, u8 *to,
                       const u8 *from)
{
    struct err err;
    int rc = 0;
    if (!q->table) return 0;
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
    if (q->table && !kv_cover(r->kv, q->table, q->n_blocks, p->n)) return false;
    if (q->has_state) {
        if (move_state(r, q, NULL, from)) return false;
        from += r->state_bytes;
    }
    if (!q->table) return true;
    from += (have - p->first) / per * r->block_bytes;
    if (move_blocks(r, q, have, p->n, NULL, from)) return false;
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
        if (!taken || q->has_state) break;
    }
    return have;
}

bool recall_keep(const struct recall *r, const struct recall_seq *q, u32 n, bool whole)
{
    struct store_span span = {.n = n, .whole = whole};
    u8 *to = r->store ? store_begin(r->store, q->salt, q->tokens, &span) : NULL;
    if (!to) return span.is_left;
    int rc = q->has_state ? move_state(r, q, to, NULL) : 0;
    u64 skip = q->has_state ? r->state_bytes : 0;
    if (!rc) rc = move_blocks(r, q, span.first, span.n, to + skip, NULL);
    store_end(r->store, rc);
    return span.is_left;
}
