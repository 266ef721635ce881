#include "serve/kv.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { NONE = UINT32_MAX };

int kv_open(struct kv_pool *p, u32 n_blocks, u32 block_tokens, struct err *err)
{
    *p = (struct kv_pool){.n_blocks = n_blocks, .block_tokens = block_tokens, .n_free = n_blocks};
    size_t n = (size_t)n_blocks + 1;
    p->free = calloc(n, sizeof *p->free);
    p->blocks = calloc(n, sizeof *p->blocks);
    p->tokens = calloc(n * block_tokens, sizeof *p->tokens);
    p->buckets = calloc(n, sizeof *p->buckets);
    if (!p->free || !p->blocks || !p->tokens || !p->buckets) {
        kv_close(p);
        return err_nomem(err, "the cache");
    }
    for (u32 i = 0; i < n_blocks; i++) p->free[i] = n_blocks - 1 - i;
    for (u32 i = 0; i <= n_blocks; i++) p->buckets[i] = NONE;
    p->blocks[n_blocks].next = p->blocks[n_blocks].prev = n_blocks;
    return 0;
}

void kv_close(struct kv_pool *p)
{
    free(p->free);
    free(p->blocks);
    free(p->tokens);
    free(p->buckets);
    *p = (struct kv_pool){0};
}

u32 kv_available(const struct kv_pool *p)
{
    return p->n_free + p->n_idle;
}

u64 kv_blocks_for(const struct kv_pool *p, u64 n_tokens)
{
    return (n_tokens + p->block_tokens - 1) / p->block_tokens;
}

/* ---- idle blocks, the one unused for longest first ---- */

static void idle_add(struct kv_pool *p, u32 b)
{
    struct kv_block *head = &p->blocks[p->n_blocks];
    p->blocks[b].next = p->n_blocks;
    p->blocks[b].prev = head->prev;
    p->blocks[head->prev].next = b;
    head->prev = b;
    p->n_idle++;
}

static void idle_remove(struct kv_pool *p, u32 b)
{
    p->blocks[p->blocks[b].prev].next = p->blocks[b].next;
    p->blocks[p->blocks[b].next].prev = p->blocks[b].prev;
    p->n_idle--;
}

/* ---- published blocks, by content ---- */

static i32 *tokens_of(const struct kv_pool *p, u32 b)
{
    return p->tokens + (size_t)b * p->block_tokens;
}

static size_t block_bytes(const struct kv_pool *p)
{
    return p->block_tokens * sizeof *p->tokens;
}

static u32 *bucket_of(const struct kv_pool *p, u64 parent, const i32 *tokens)
{
    return &p->buckets[XXH3_64bits_withSeed(tokens, block_bytes(p), parent) % p->n_blocks];
}

/* The hash is only an index: parent and tokens decide. Ids are never used twice, so a parent that
 * was forgotten takes those behind it along. */
static u32 find(const struct kv_pool *p, u64 parent, const i32 *tokens)
{
    u32 b = *bucket_of(p, parent, tokens);
    while (b != NONE &&
           (p->blocks[b].parent != parent || memcmp(tokens_of(p, b), tokens, block_bytes(p)) != 0))
        b = p->blocks[b].chain;
    return b;
}

static void unpublish(struct kv_pool *p, u32 b)
{
    u32 *at = bucket_of(p, p->blocks[b].parent, tokens_of(p, b));
    while (*at != b) at = &p->blocks[*at].chain;
    *at = p->blocks[b].chain;
    p->blocks[b].id = 0;
}

/* ---- tables ---- */

static void hold(struct kv_pool *p, u32 b)
{
    if (p->blocks[b].refs++ == 0) idle_remove(p, b);
}

static void let_go(struct kv_pool *p, u32 b)
{
    CHECK(p->blocks[b].refs > 0);
    if (--p->blocks[b].refs) return;
    if (p->blocks[b].id)
        idle_add(p, b);
    else
        p->free[p->n_free++] = b;
}

static u32 take(struct kv_pool *p)
{
    if (!p->n_free) {
        u32 oldest = p->blocks[p->n_blocks].next;
        idle_remove(p, oldest);
        unpublish(p, oldest);
        p->free[p->n_free++] = oldest;
        p->n_evicted++;
    }
    u32 b = p->free[--p->n_free];
    p->blocks[b].refs = 1;
    return b;
}

bool kv_cover(struct kv_pool *p, u32 *table, u32 *n_held, u64 n_tokens)
{
    u64 need = kv_blocks_for(p, n_tokens);
    if (need <= *n_held) return true;
    if (need - *n_held > kv_available(p)) return false;
    while (*n_held < need) table[(*n_held)++] = take(p);
    return true;
}

void kv_release(struct kv_pool *p, const u32 *table, u32 *n_held)
{
    while (*n_held)
        let_go(p, table[--*n_held]); /* from the end: what others need least goes first */
}

/* What stands before a first block: no id has its highest bit set. */
static u64 root_of(u64 salt)
{
    return salt ? salt | 1ull << 63 : 0;
}

u32 kv_match(struct kv_pool *p, u64 salt, const i32 *tokens, u32 n, u32 *table, u32 *n_held)
{
    u64 parent = root_of(salt);
    CHECK(*n_held == 0);
    for (u32 at = 0; p->n_blocks && at + p->block_tokens < n; at += p->block_tokens) {
        u32 b = find(p, parent, tokens + at);
        if (b == NONE) break;
        hold(p, b);
        table[(*n_held)++] = b;
        parent = p->blocks[b].id;
    }
    return *n_held * p->block_tokens;
}

bool kv_goes_on(const struct kv_pool *p, u64 salt, const u32 *table, u32 n_held)
{
    u64 parent = n_held ? p->blocks[table[n_held - 1]].id : root_of(salt);
    for (u32 b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].id && p->blocks[b].parent == parent) return true;
    return false;
}

void kv_publish(struct kv_pool *p, u64 salt, u32 *table, u32 i, const i32 *tokens)
{
    u32 b = table[i];
    u64 parent = i ? p->blocks[table[i - 1]].id : root_of(salt);
    if (p->blocks[b].id || (i && !parent)) return; /* a match, or behind a block that is not out */
    u32 other = find(p, parent, tokens);
    if (other != NONE) {
        hold(p, other);
        let_go(p, b);
        table[i] = other;
        return;
    }
    u32 *bucket = bucket_of(p, parent, tokens);
    memcpy(tokens_of(p, b), tokens, block_bytes(p));
    p->blocks[b].id = ++p->last_id;
    p->blocks[b].parent = parent;
    p->blocks[b].chain = *bucket;
    *bucket = b;
}

void kv_forget(struct kv_pool *p)
{
    while (p->n_idle) {
        u32 b = p->blocks[p->n_blocks].next;
        idle_remove(p, b);
        unpublish(p, b);
        p->free[p->n_free++] = b;
    }
}

void kv_check(const struct kv_pool *p, const u32 *const *tables, const u32 *n_held, u32 n_tables)
{
    u32 *held = calloc((size_t)p->n_blocks + 1, sizeof *held), n_used = 0, n_idle = 0;
    CHECK(held);
    for (u32 t = 0; t < n_tables; t++)
        for (u32 i = 0; i < n_held[t]; i++) n_used += held[tables[t][i]]++ == 0;
    for (u32 i = 0; i < p->n_free; i++) {
        CHECK(held[p->free[i]] == 0 && !p->blocks[p->free[i]].id);
        held[p->free[i]] = UINT32_MAX; /* free twice? */
    }
    for (u32 b = 0; b < p->n_blocks; b++) {
        if (held[b] == UINT32_MAX) continue;
        CHECK(p->blocks[b].refs == held[b]);
        n_idle += held[b] == 0;
        if (p->blocks[b].id) CHECK(find(p, p->blocks[b].parent, tokens_of(p, b)) == b);
    }
    CHECK(n_idle == p->n_idle && p->n_free + n_idle + n_used == p->n_blocks);
    free(held);
}
