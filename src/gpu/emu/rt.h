/* What an expanded kernel needs of the emulator while it runs: the thread it is, the meeting points
 * of threads, threadgroup memory, and the checks. */
#ifndef FLETCH_EMU_RT_H
#define FLETCH_EMU_RT_H

#include "gpu/emu/emu.h"

namespace emu
{
struct uint3 {
    u32 x, y, z;
};

struct ids {
    uint3 group, groups;
    u32 tid, lane, simd;
};

/* What lanes of a simdgroup do together. */
enum op {
    OP_BARRIER,
    OP_DEV_BARRIER,
    OP_SIMD_BARRIER,
    OP_SHUFFLE,
    OP_ANY,
    OP_SUM_F32,
    OP_SUM_U32,
    OP_MAX_F32,
    OP_MAX_U32,
    OP_MAX_I32
};

struct worker;

/* One GPU thread: a fiber of its worker. */
struct thread {
    void *sp;
    worker *w;
    ids id;
    u8 state;
    u8 op;
    bool waited; /* dep_wait was called */
    int line;
    u32 n_met;               /* meetings so far */
    u32 tg_used;             /* bytes of TG_ARRAYs so far */
    u32 tg_epoch, dev_epoch; /* barriers that ordered threadgroup and device memory, */
    u32 simd_epoch;          /* threadgroup memory within the simdgroup */
};

/* The thread that runs on this core; not volatile, since a fiber stays on its core. */
extern __thread thread *cur __attribute__((tls_model("initial-exec")));

void meet(enum op op, int line);              /* a barrier */
u32 meet_reduce(enum op op, u32 v, int line); /* one value for the simdgroup */
/* All lanes' values; they stay there until the next but one meeting. */
const u32 *meet_exchange(u32 v, int line);
void *tg_alloc(u32 n, u32 align);
[[noreturn]] void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The checks: of n bytes at `at`, which are inside the buffer. */
void tg_access(const void *at, u32 n, bool write);
void dev_access(const emu_buffer *b, u64 at, u32 n, bool write, bool early);
} // namespace emu

#endif
