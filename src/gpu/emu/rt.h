/* What an expanded kernel needs of the emulator while it runs: the thread it is, the meeting points
 * of threads, threadgroup memory, and the checks. */
#ifndef FLETCH_EMU_RT_H
#define FLETCH_EMU_RT_H

#include <string.h>

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
    OP_MULTIPLY,
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
    void *sp; /* none: it has not begun */
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
#ifdef __ELF__ /* a load instead of a call */
extern __thread thread *cur __attribute__((tls_model("initial-exec")));
#else
extern __thread thread *cur;
#endif

void meet(enum op op, int line);              /* a barrier */
u32 meet_reduce(enum op op, u32 v, int line); /* one value for the simdgroup */
/* All lanes' values; they stay there until the next but one meeting. */
const u32 *meet_exchange(u32 v, int line);
/* c = a·b + c of 8 × 8, of which each lane brings two neighbours: row by row, lane by lane. */
void meet_multiply(const float *a, const float *b, float *c, int line);
/* Fails unless all lanes bring the same place, and rows of 8 that don't overlap. */
void meet_at(const void *p, u64 pitch, int line);
void *tg_alloc(u32 n, u32 align);
/* Fails unless these bytes are the group's, or in one of the launch's buffers. */
void must_hold(const void *p, u32 n, bool group);
void see_groups(); /* from here on the group may read what others of the launch wrote */
[[noreturn]] void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

template <class To, class From> static inline To bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To t;
    memcpy(&t, &v, sizeof t);
    return t;
}

/* Halves as the devices convert them: exactly, and to the nearest even. */
static inline float f16_to_f32(u16 h)
{
    u32 sign = (h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return bits<float>(sign | 0x7f800000u | m << 13);
    if (e) return bits<float>(sign | (e + 112) << 23 | m << 13);
    return bits<float>(sign | bits<u32>((float)m * (1.0f / 16777216.0f)));
}

static inline u16 f32_to_f16(float f)
{
    u32 u = bits<u32>(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (u16)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (u16)(sign | 0x7c00u); /* 65520 and more */
    if (a < 0x38800000u) /* below 2^-14 a unit is 2^-24, which is that of 0.5f */
        return (u16)(sign | (bits<u32>(bits<float>(a) + 0.5f) - 0x3f000000u));
    a += 0xfffu + (a >> 13 & 1u);
    return (u16)(sign | (a - 0x38000000u) >> 13);
}

/* The binding that device memory is reached through; early: as CONST. */
struct access_by {
    u32 binding;
    bool early;
};

/* The checks: of n bytes at `at`, which are inside the buffer. */
void tg_access(const void *at, u32 n, bool write);
void dev_access(const emu_buffer *b, u64 at, u32 n, bool write, access_by by);
} // namespace emu

#endif
