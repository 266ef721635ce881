/* What kernels on matrix units share: halves that go from global to shared memory on their own, and
 * products of 16 × 16 by 16 × 8 with sums in f32. */
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
#define MMA(type)                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "    \
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

#endif
