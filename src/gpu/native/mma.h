/* What kernels on matrix units share: halves that go from global to shared memory on their own,
 * products of 16 × 16 by 16 × 8 with sums in f32, and such of signed bytes, exact. */
#ifndef NATIVE_MMA_H
#define NATIVE_MMA_H

#include "gpu/simt.h"

/* Copies on their way, in groups of what was sent before each commit; wait: all but the last N. */
GPU_FN void mma_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> GPU_FN void mma_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four tiles of 8 × 8 halves from rows in shared memory, or from its columns. */
GPU_FN void mma_load(uint *r, uint at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
GPU_FN void mma_load_across(uint *r, uint at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* d += a·b */
#define MMA(type)                                                         \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "    \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
GPU_FN void mma_f16(float *d, const uint *a, uint b0, uint b1)
{
    MMA("f16");
}
GPU_FN void mma_bf16(float *d, const uint *a, uint b0, uint b1)
{
    MMA("bf16");
}
#undef MMA

/* d = c + a·b of signed bytes: 16 × 16 by 16 × 8, and 16 × 32 by 32 × 8. */
GPU_FN void mma_i8_16(int *d, const int *c, uint a0, uint a1, uint b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
GPU_FN void mma_i8_32(int *d, const int *c, const uint *a, uint b0, uint b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
}

#endif
