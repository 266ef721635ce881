/* Cached rows in blocks of 32 columns with one scale (KV types q8 and q4). Quants and scales are
 * planes of their own, for keys and for values: a unit of eight columns is 8 bytes of q8 or 4 of q4
 * (two columns to a byte, the first one low), and four units share a scale. Once read they are
 * floats. */
#ifndef FLETCH_KERNELS_BLOCKS_H
#define FLETCH_KERNELS_BLOCKS_H

#include "gpu/kernels/attention.h"

struct cache_q8 {
    DEV(const uint2) q;
    DEV(const u16) s;
};
struct cache_q4 {
    DEV(const uint) q;
    DEV(const u16) s;
};

GPU_FN uint4 block_bytes(uint n, float d)
{
    return make_uint4(as_uint((float)(i8)(u8)n * d), as_uint((float)(i8)(u8)(n >> 8) * d),
                      as_uint((float)(i8)(u8)(n >> 16) * d), as_uint((float)(i8)(u8)(n >> 24) * d));
}

GPU_FN uint4 block_nibbles(uint n, float d)
{
    return make_uint4(as_uint((float)((int)(n & 15u) - 8) * d),
                      as_uint((float)((int)(n >> 4 & 15u) - 8) * d),
                      as_uint((float)((int)(n >> 8 & 15u) - 8) * d),
                      as_uint((float)((int)(n >> 12 & 15u) - 8) * d));
}

/* Unit `at` of a plane, as attn_load gives one of floats. */
template <int F32> GPU_FN void attn_load(cache_q8 c, uint at, bool real, THR(uint4) u)
{
    uint2 n = make_uint2(0u, 0u);
    float d = 0.0f;
    if (real) n = c.q[at], d = f16_to_f32((u16)c.s[at / 4u]);
    u[0] = block_bytes(n.x, d);
    u[F32] = block_bytes(n.y, d);
}

template <int F32> GPU_FN void attn_load(cache_q4 c, uint at, bool real, THR(uint4) u)
{
    uint n = 0u;
    float d = 0.0f;
    if (real) n = c.q[at], d = f16_to_f32((u16)c.s[at / 4u]);
    u[0] = block_nibbles(n, d);
    u[F32] = block_nibbles(n >> 16, d);
}

#endif
