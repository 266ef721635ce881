/* A worker: one core's threadgroup and all that belongs to it. Shared by the scheduler (rt.cpp) and
 * the checks (check.cpp). */
#ifndef FLETCH_EMU_WORKER_H
#define FLETCH_EMU_WORKER_H

#include "gpu/emu/rt.h"

namespace emu
{
/* Who touched a word of memory last, and between which barriers. */
struct touch {
    u32 when;       /* device memory: checks.wave; threadgroup memory: checks.group; 0: never */
    u32 group;      /* checks.group, MANY_GROUPS if several */
    u32 epoch;      /* barriers before it that order this kind of memory, and barriers */
    u32 simd_epoch; /* of its simdgroup only */
    u16 simd, tid;  /* MANY if several */
};
enum : u16 { MANY = 0xffffu };
enum : u32 { MANY_GROUPS = 0xffffffffu };

/* Through which bindings of a launch (bits) a word was loaded and stored, and by whom. */
struct use {
    u32 launch, read, wrote;
    u64 who; /* MANY_THREADS if several */
};
enum : u64 { MANY_THREADS = 0 };

struct word {
    touch wrote, read;
};

/* What checked launches share. They run on one worker. */
struct checks {
    u32 wave;   /* counts launches that are ordered behind all before them */
    u32 launch; /* counts launches */
    u32 group;  /* counts groups */
    u64 bytes_read, tg_bytes;
};

/* Operands and result of a product that a simdgroup does together. */
struct product {
    float a[8][8], b[8][8], c[8][8];
};

struct worker {
    thread threads[EMU_MAX_THREADS];
    char *stacks;
    void *scheduler_sp;
    const emu_launch *launch;
    checks *check;
    bool failed;
    bool sees_groups; /* the group's reads are ordered behind the writes of the others */
    u32 turn, order;  /* the lane that runs is turn ^ order of its simdgroup */
    thread *simd;     /* that simdgroup's first */
    u32 values[2][EMU_MAX_THREADS]; /* what lanes brought to a meeting, in turns */
    void (*multiply)(product *);    /* as this processor does it best */
    product products[2][EMU_MAX_THREADS / EMU_SIMD];
    u32 results[EMU_MAX_THREADS / EMU_SIMD];
    alignas(64) u8 tg[EMU_MAX_TG];
    word tg_words[EMU_MAX_TG / 4];
    char error[400];
};

/* Notes a touch; a part of a word is noted only, since others may own the rest of it. False when
 * nothing orders it behind an earlier one that it conflicts with, which is then *other, a write or
 * not. */
bool word_touch(word *w, const touch *now, bool write, bool part, const touch **other);
} // namespace emu

struct emu_shadow {
    u64 n_words, n_sectors;
    emu::word *words;
    emu::use *uses; /* of the same words */
    u32 *sectors;   /* the launch that read it last */
};

#endif
