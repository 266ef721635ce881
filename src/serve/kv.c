#include "serve/kv.h"

#include <stdlib.h>

int kv_open(struct kv_pool *p, u32 n_blocks, u32 block_tokens, struct err *err)
{
    *p = (struct kv_pool){n_blocks, block_tokens, n_blocks, calloc(n_blocks + 1, sizeof *p->free)};
    if (!p->free) return err_nomem(err, "the cache");
    for (u32 i = 0; i < n_blocks; i++) p->free[i] = n_blocks - 1 - i;
    return 0;
}

void kv_close(struct kv_pool *p)
{
    free(p->free);
    *p = (struct kv_pool){0};
}

bool kv_cover(struct kv_pool *p, u32 *table, u32 *n_held, u64 n_tokens)
{
    u64 need = (n_tokens + p->block_tokens - 1) / p->block_tokens;
    if (need <= *n_held) return true;
    if (need - *n_held > p->n_free) return false;
    while (*n_held < need) table[(*n_held)++] = p->free[--p->n_free];
    return true;
}

void kv_release(struct kv_pool *p, const u32 *table, u32 *n_held)
{
    while (*n_held) {
        CHECK(p->n_free < p->n_blocks);
        p->free[p->n_free++] = table[--*n_held];
    }
}
