/* Prefixes that the folder of prefix files takes later, because it was busy or takes them piece by
 * piece: from the prefix cache, as long as they are there. */
#include <stdlib.h>
#include <string.h>

#include "serve/batch_internal.h"

static void drop(struct batch *b, u32 i)
{
    free(b->keeps[i].tokens);
    b->n_keeps--;
    memmove(b->keeps + i, b->keeps + i + 1, (b->n_keeps - i) * sizeof *b->keeps);
}

/* Whether the first n tokens of both are the same. */
static bool are_equal(const struct keep *k, u64 salt, const i32 *tokens, u32 n)
{
    return k->salt == salt && memcmp(k->tokens, tokens, n * sizeof *tokens) == 0;
}

static void defer(struct batch *b, u64 salt, const i32 *tokens, u32 n)
{
    bool in_blocks = !b->env.queue->p->net->n_states; /* one that is longer has the others */
    for (u32 i = b->n_keeps; i-- > 0;) {
        const struct keep *k = &b->keeps[i];
        if (!are_equal(k, salt, tokens, MIN(k->n, n))) continue;
        if (k->n == n || (in_blocks && k->n > n)) return;
        if (in_blocks) drop(b, i);
    }
    i32 *copy = malloc(n * sizeof *copy);
    if (!copy) return;
    if (b->n_keeps == MAX_KEEPS) drop(b, 0);
    memcpy(copy, tokens, n * sizeof *copy);
    b->keeps[b->n_keeps++] = (struct keep){salt, copy, n};
}

void batch_keep(struct batch *b, struct request *r, u32 n)
{
    const struct recall_seq q = batch_seq(b, r);
    if (n && recall_keep(&b->env.recall, &q, n, false)) defer(b, r->r.cache_salt, r->tokens, n);
}

/* The first of them. True: it is not done. */
static bool keep_first(struct batch *b, u32 *table)
{
    const struct net *net = b->env.queue->p->net;
    struct keep *k = &b->keeps[0];
    u32 n_held = 0, n = k->n, slot = 0;
    struct recall_seq q = {k->salt, k->tokens,         net->n_kv ? table : NULL,
                           &n_held, net->n_states > 0, 0};
    if (net->n_kv) n = kv_match(b->env.kv, k->salt, k->tokens, k->n + 1, table, &n_held);
    if (net->n_states && (n < k->n || snap_match(&b->snaps, k->salt, k->tokens, n + 1, &slot) < n))
        n = 0; /* evicted */
    q.slot = slot;
    bool is_left = n && recall_keep(&b->env.recall, &q, n, false);
    kv_release(b->env.kv, table, &n_held);
    return is_left;
}

void batch_keep_more(struct batch *b)
{
    if (!b->n_keeps || b->n_pending || b->reading.at || !store_is_free(b->env.recall.store)) return;
    u32 *table = calloc(b->env.queue->step->table_len + 1, sizeof *table);
    struct keep first = b->keeps[0];
    if (!table || !keep_first(b, table)) {
        drop(b, 0);
    } else { /* others have their turn, too */
        memmove(b->keeps, b->keeps + 1, (b->n_keeps - 1) * sizeof *b->keeps);
        b->keeps[b->n_keeps - 1] = first;
    }
    free(table);
}

void batch_keep_all(struct batch *b)
{
    for (u32 n = b->n_keeps; n && b->n_keeps; n--) {
        u32 *table = calloc(b->env.queue->step->table_len + 1, sizeof *table);
        do store_wait(b->env.recall.store);
        while (table && keep_first(b, table) && !store_is_free(b->env.recall.store));
        free(table);
        drop(b, 0);
    }
}
