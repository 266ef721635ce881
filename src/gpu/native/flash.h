/* What attention of prompts' rows is made of: cached halves in shared memory, in rows whose
 * sixteenths of 256 bytes (or eighths of 128) are swizzled as panels' are, and products of 16 rows.
 */
#ifndef NATIVE_FLASH_H
#define NATIVE_FLASH_H

#include "gpu/args.h"
#include "gpu/kernels/flash.h"
#include "gpu/native/mma.h"
#include "gpu/simt.h"

GPU_FN uint flash_shared()
{
    extern __shared__ __align__(1024) u8 flash_memory[];
    return (uint)__cvta_generic_to_shared(flash_memory);
}

/* Where 16-byte unit u of a row lies. */
template <int UNITS> GPU_FN uint flash_at(uint row, uint u)
{
    return row * (uint)(UNITS * 16) + (u ^ row % 8u) * 16u;
}

/* A unit on its way from the cache, or zeros. */
GPU_FN void flash_send(uint to, const uint4 *from, bool real)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
}
/* Two values as halves; what is out of their range becomes the largest. */
GPU_FN uint flash_halves(float low, float high)
{
    uint u;
    low = low < -65504.0f ? -65504.0f : low > 65504.0f ? 65504.0f : low; /* NaN stays NaN */
    high = high < -65504.0f ? -65504.0f : high > 65504.0f ? 65504.0f : high;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
}
GPU_FN float flash_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Over the four lanes that share a row. */
GPU_FN float flash_row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
GPU_FN float flash_row_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

#endif
