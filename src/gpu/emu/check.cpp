/* The checks of memory: threadgroup words read before they were written, words that two threads
 * touch, one of them writing, with nothing between that orders them, and bindings that overlap.
 * Words remember their last writer and reader; groups of a launch, and launches that may overlap,
 * are never ordered. */
#include <stdlib.h>

#include "gpu/emu/worker.h"

namespace emu
{
static bool clashes(const touch &before, const touch &now)
{
    if (before.when != now.when) return false;
    if (before.group != now.group) return true;
    if (before.epoch != now.epoch || before.tid == now.tid) return false;
    return before.simd != now.simd || before.simd_epoch == now.simd_epoch;
}

static void add(touch &t, const touch &now)
{
    bool same_time = t.when == now.when;
    bool same_epoch = same_time && t.epoch == now.epoch;
    bool same_step = same_epoch && t.simd_epoch == now.simd_epoch;
    touch sum = now;
    if (same_time && t.group != now.group) sum.group = MANY_GROUPS;
    if (same_epoch && t.simd != now.simd) sum.simd = MANY;
    if ((same_step || sum.simd == MANY) && t.tid != now.tid) sum.tid = MANY;
    t = sum;
}

bool word_touch(word *w, const touch *now, bool write, bool part, const touch **other)
{
    *other = 0;
    if (!part && clashes(w->wrote, *now))
        *other = &w->wrote;
    else if (!part && write && clashes(w->read, *now))
        *other = &w->read;
    if (*other) return false;
    add(write ? w->wrote : w->read, *now);
    return true;
}

static void look(word *w, const touch &now, bool write, bool part, const char *what, u64 at)
{
    const touch *other;
    if (word_touch(w, &now, write, part, &other)) return;
    const char *did = other == &w->wrote ? "write" : "read", *does = write ? "write" : "read";
    if (other->group != now.group)
        fail("race on %s byte %llu: %s after another group's %s", what, (unsigned long long)at,
             does, did);
    fail("race on %s byte %llu: %s after thread %d's %s, no barrier between", what,
         (unsigned long long)at, does, (i16)other->tid, did);
}

void tg_access(const void *at, u32 n, bool write)
{
    thread *t = cur;
    u32 begin = (u32)((const u8 *)at - t->w->tg);
    touch now = {t->w->check->group, 0, t->tg_epoch, t->simd_epoch, (u16)t->id.simd,
                 (u16)t->id.tid};
    for (u32 i = begin / 4; i <= (begin + n - 1) / 4; i++) {
        word *w = t->w->tg_words + i;
        if (!write && w->wrote.when != now.when)
            fail("read of threadgroup byte %u that no thread has written", i * 4);
        look(w, now, write, n < 4, "threadgroup", i * 4);
    }
}

/* Bindings may overlap where a thread's own load feeds its own store (simt.h): what is stored
 * through one binding and touched through another is one thread's, and loaded first. */
static void look_at_bindings(use *u, u64 at, bool write, u32 binding)
{
    const thread *t = cur;
    const checks *c = t->w->check;
    u64 me = (u64)c->group << 16 | (t->id.tid + 1);
    u32 bit = 1u << binding;
    if (u->launch != c->launch) *u = use{c->launch, 0, 0, me};
    if (u->who != me) u->who = MANY_THREADS;
    bool again = (u->wrote & ~bit) != 0;
    (write ? u->wrote : u->read) |= bit;
    u32 all = u->read | u->wrote;
    if (!u->wrote || (all & (all - 1)) == 0) return;
    if (u->who == MANY_THREADS)
        fail("buffer byte %llu is stored through one binding and another thread's through another",
             (unsigned long long)at);
    if (again)
        fail("buffer byte %llu: %s behind a store through another binding", (unsigned long long)at,
             write ? "a store" : "a load");
}

void dev_access(const emu_buffer *b, u64 at, u32 n, bool write, access_by by)
{
    thread *t = cur;
    checks *c = t->w->check;
    if (!by.early && !t->waited) fail("DEV access before dep_wait()");
    emu_shadow *s = b->shadow;
    if (!s) return;
    if (!write && s->sectors[at / 32] != c->launch) {
        s->sectors[at / 32] = c->launch;
        c->bytes_read += 32;
    }
    for (u64 i = at / 4; n >= 4 && i <= (at + n - 1) / 4; i++)
        look_at_bindings(s->uses + i, i * 4, write, by.binding);
    if (by.early || (!write && t->w->sees_groups)) return;
    touch now = {c->wave, c->group, t->dev_epoch, 0, (u16)t->id.simd, (u16)t->id.tid};
    for (u64 i = at / 4; i <= (at + n - 1) / 4; i++)
        look(s->words + i, now, write, n < 4, "buffer", i * 4);
}
} // namespace emu

struct emu_shadow *emu_shadow_new(u64 n)
{
    emu_shadow *s = (emu_shadow *)calloc(1, sizeof *s);
    if (!s) return 0;
    s->n_words = n / 4 + 1;
    s->n_sectors = n / 32 + 1;
    s->words = (emu::word *)calloc(s->n_words, sizeof *s->words);
    s->uses = (emu::use *)calloc(s->n_words, sizeof *s->uses);
    s->sectors = (u32 *)calloc(s->n_sectors, sizeof *s->sectors);
    if (s->words && s->uses && s->sectors) return s;
    emu_shadow_free(s);
    return 0;
}

void emu_shadow_free(struct emu_shadow *s)
{
    if (!s) return;
    free(s->words);
    free(s->uses);
    free(s->sectors);
    free(s);
}
