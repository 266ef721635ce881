#include "serve/snap.h"

#include <stdlib.h>
#include <string.h>

int snap_open(struct snap_pool *p, u32 n, u32 first_slot, struct err *err)
{
    *p = (struct snap_pool){n, first_slot, calloc((size_t)n + 1, sizeof *p->snaps), 0};
    return p->snaps ? 0 : err_nomem(err, "the snapshots");
}

void snap_close(struct snap_pool *p)
{
    for (u32 i = 0; p->snaps && i < p->n; i++) free(p->snaps[i].tokens);
    free(p->snaps);
    *p = (struct snap_pool){0};
}

/* Every SNAP_EVERY tokens, near marks, and near the end: before its last token, which is computed
 * in any case. All at round numbers, so that prompts that go on differently may agree on them. */
u32 snap_point(const struct snap_pool *p, u32 at, u32 n, const struct snap_marks *marks)
{
    if (!p->n || n < 2) return 0;
    u32 last = (n - 1) / SNAP_GRAIN * SNAP_GRAIN;
    u32 point = MIN(at / SNAP_EVERY * SNAP_EVERY + SNAP_EVERY, last);
    for (u32 i = 0; i < marks->n; i++) {
        u32 mark = marks->at[i] / SNAP_GRAIN * SNAP_GRAIN;
        if (mark > at) point = MIN(point, mark);
    }
    return point > at ? point : 0;
}

static bool begins_with(const struct snap *s, u64 salt, const i32 *tokens, u32 n)
{
    return s->tokens && s->salt == salt && s->n <= n &&
           memcmp(s->tokens, tokens, s->n * sizeof *tokens) == 0;
}

u32 snap_match(struct snap_pool *p, u64 salt, const i32 *tokens, u32 n, u32 *slot)
{
    struct snap *best = NULL;
    for (u32 i = 0; i < p->n; i++)
        if (n && begins_with(&p->snaps[i], salt, tokens, n - 1) &&
            (!best || p->snaps[i].n > best->n))
            best = &p->snaps[i];
    if (!best) return 0;
    best->used = ++p->clock;
    best->is_spare = false;
    *slot = p->first_slot + (u32)(best - p->snaps);
    return best->n;
}

/* Empty ones go first, then spare ones, then the one unused for longest. */
static bool goes_before(const struct snap *a, const struct snap *b)
{
    if (!a->tokens != !b->tokens) return !a->tokens;
    if (a->is_spare != b->is_spare) return a->is_spare;
    return a->used < b->used;
}

bool snap_put(struct snap_pool *p, u64 salt, const i32 *tokens, u32 n, bool is_spare, u32 *slot)
{
    struct snap *oldest = NULL;
    for (u32 i = 0; i < p->n; i++) {
        struct snap *s = &p->snaps[i];
        if (s->n == n && begins_with(s, salt, tokens, n)) return false;
        if (!oldest || goes_before(s, oldest)) oldest = s;
    }
    i32 *copy = oldest ? malloc(n * sizeof *copy) : NULL;
    if (!copy) return false;
    free(oldest->tokens);
    memcpy(copy, tokens, n * sizeof *copy);
    *oldest = (struct snap){copy, n, salt, ++p->clock, is_spare};
    *slot = p->first_slot + (u32)(oldest - p->snaps);
    return true;
}
