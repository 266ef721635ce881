/* Several sums over lanes at once. */
#ifndef KERNELS_HALVES_H
#define KERNELS_HALVES_H

#include "gpu/simt.h"

/* N sums over 1 << shift lanes: as many times as they can be halved a lane gives half of them away,
 * which takes 5 shuffles instead of 16 for four sums and 16 lanes. The lane is left with one of
 * them, `which`, with the bits of simd_sum. */
template <int N> GPU_FN float halves_sum(THR(float) sum, uint shift, uint lane, THR(uint) which)
{
    u16 m = (u16)(1u << shift >> 1);
    *which = 0u;
    UNROLL
    for (int n = N / 2; n > 0; n /= 2) {
        bool high = (lane & m) != 0u;
        if (high) *which += (uint)n;
        UNROLL
        for (int i = 0; i < n; i++) {
            float keep = high ? sum[i + n] : sum[i], give = high ? sum[i] : sum[i + n];
            sum[i] = keep + simd_shuffle_xor(give, m);
        }
        m >>= 1;
    }
    for (; m > 0; m >>= 1) sum[0] = sum[0] + simd_shuffle_xor(sum[0], m);
    return sum[0];
}

#endif
