/* What kernels that walk over whole layers share (rwkv7.cu, mla_layers.cu): values that groups pass
 * to each other, and products of a row in shared memory with rows of weights there. */
#ifndef NATIVE_WALK_H
#define NATIVE_WALK_H

#include "gpu/kernels/norm.h"
#include "gpu/kernels/units.h"
#include "gpu/native/bulk.h"
#include "gpu/native/meet.h"

#if HAS_BULK

GPU_FN uint shared_at(const void *p)
{
    return (uint)__cvta_generic_to_shared(p);
}
GPU_FN uint shared_word(uint at)
{
    uint v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
GPU_FN uint shared_half(uint at)
{
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}

/* Constant ones, asked for here: the compiler would do that where they are used. */
GPU_FN float4 early_four(CONST(float4) p)
{
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}
GPU_FN float early_one(CONST(float) p)
{
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}

/* ---- what groups pass: words with a tag, which is another one in every layer ---- */

GPU_FN void pass_word(DEV(u64) to, uint v, uint tag)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"((u64)tag << 32 | (u64)v)
                 : "memory");
}
GPU_FN void pass_put(DEV(u64) to, float v, uint tag)
{
    pass_word(to, as_uint(v), tag);
}
/* Two that follow each other, from an even place on. */
GPU_FN void pass_put_two(DEV(u64) to, float v, float w, uint tag)
{
    u64 high = (u64)tag << 32;
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to),
                 "l"(high | (u64)as_uint(v)), "l"(high | (u64)as_uint(w))
                 : "memory");
}
/* True when it is there. */
GPU_FN bool pass_one(DEV(const u64) from, uint tag, THR(float) v)
{
    u64 a;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(from) : "memory");
    *v = as_float((uint)a);
    return (uint)(a >> 32) == tag;
}
GPU_FN bool pass_two(DEV(const u64) from, uint tag, THR(float) v)
{
    u64 a, b;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(a), "=l"(b)
                 : "l"(from)
                 : "memory");
    v[0] = as_float((uint)a), v[1] = as_float((uint)b);
    return (uint)(a >> 32) == tag && (uint)(b >> 32) == tag;
}
/* Where value c of a row is among those that are read by fours: of 128, the first two of each four,
 * then the others, so that lanes that follow each other ask for what does. */
GPU_FN uint pass_place(uint c)
{
    return (c & ~127u) | (c & 2u) << 5 | (c >> 2 & 31u) << 1 | (c & 1u);
}
/* N times four of them, from the i-th four on and `apart` fours apart, of n (the last again where
 * there are no more), as long as it takes; asks again only for those that were not there: what so
 * many ask for again and again keeps others waiting. */
template <int N>
GPU_FN void pass_fours(DEV(const u64) from, uint i, uint apart, uint n, uint tag, THR(float4) to)
{
    bool there[N] = {};
    for (bool all = false; !all;) {
        all = true;
        UNROLL
        for (int j = 0; j < N; j++) {
            float v[4];
            DEV(const u64) at = from + pass_place(min(i + (uint)j * apart, n - 1u) * 4u);
            if (there[j]) continue;
            there[j] = pass_two(at, tag, v) & pass_two(at + 64, tag, v + 2);
            to[j] = make_float4(v[0], v[1], v[2], v[3]);
            all &= there[j];
        }
    }
    __syncwarp();
}

/* ---- products ---- */

/* N steps of the row in a lane's registers. */
template <int E, int N> struct columns {
    uint words[N][UNIT_WORDS(E)];
    float scale[N], sum[N];
};
/* From unit `first` on. APART: how far second halves of nibbles' units, and sums, are from the
 * others. */
template <int E, int N, int APART>
GPU_FN void columns_load(columns<E, N> &x, const uint4 *xs, const float *scales, uint first,
                         uint n_units, uint lane)
{
    UNROLL
    for (int i = 0; i < N; i++) {
        uint u = first + lane + 32u * (uint)i;
        u = u < n_units ? u : 0u;
        uint4 v[2];
        v[0] = xs[u];
        if (UNIT_HAS_NIBBLES(E)) v[1] = xs[(uint)APART + u];
        UNROLL
        for (int j = 0; j < UNIT_WORDS(E) / 4; j++) {
            x.words[i][4 * j] = v[j].x, x.words[i][4 * j + 1] = v[j].y;
            x.words[i][4 * j + 2] = v[j].z, x.words[i][4 * j + 3] = v[j].w;
        }
        x.scale[i] = scales[u * (uint)UNIT_COLUMNS(E) / 32u];
        x.sum[i] = UNIT_HAS_SUM(E) ? scales[(uint)APART + u] : 0.0f;
    }
}

/* Four columns of the row as dots want them (matvec.h). All lanes take part. */
template <int E, int APART>
GPU_FN void columns_put(uint4 *xs, float *scales, float4 v, uint i, bool real)
{
    float scale;
    uint word = act_word(v, &scale);
    uint at = UNIT_HAS_NIBBLES(E) ? i / 8u * 4u + i % 4u + (i & 4u) * (uint)APART : i;
    if (real) ((uint *)xs)[at] = word;
    if (UNIT_HAS_SUM(E)) {
        int sum = dot4_i8(0x01010101u, word, 0);
        UNROLL
        for (u16 k = 4; k > 0; k >>= 1) sum += simd_shuffle_xor(sum, k);
        if (real && i % 8u == 0u) scales[(uint)APART + i / 8u] = (float)sum;
    }
    if (real && i % 8u == 0u) scales[i / 8u] = scale;
}

/* Where a lane's scales are in a row's. */
template <int E> GPU_FN uint lane_scales(uint lane)
{
    return unit_scale_at<E, 0>(lane);
}
/* N steps of a weight's row, whose units of the lane begin at q and scales at s; what is behind n
 * units does not count. */
template <int E, int N>
GPU_FN float dot_steps(uint q, uint s, uint n, const columns<E, N> &x, uint lane, float sum)
{
    uint4 raw[N];
    uint2 bits[N];
    UNROLL
    for (int i = 0; i < N; i++) {
        uint at = s + (uint)(i * UNIT_ROW(E));
        raw[i] = tg_kept_at(q + 512u * (uint)i);
        bits[i] = E == UNIT_K4 ? make_uint2(shared_word(at), shared_half(at + 4u + lane % 8u * 2u))
                               : make_uint2(shared_half(at), 0u);
    }
    UNROLL
    for (int i = 0; i < N; i++) {
        uint w[8];
        float d[4];
        unit_words<E>(raw[i], w);
        unit_scales<E>(bits[i], d);
        float dot = UNIT_HAS_SUM(E) ? unit_dot_summed<E>(w, d, x.words[i], x.sum[i])
                                    : unit_dot<E>(w, d, x.words[i]);
        if (lane + 32u * (uint)i < n) sum = fmaf(x.scale[i], dot, sum);
    }
    return sum;
}

/* Of a norm's sums, as norm.h adds them. */
GPU_FN float sum_eight(const float *v)
{
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < NORM_THREADS / 32; i++) sum += v[i];
    return sum;
}

#endif
#endif
