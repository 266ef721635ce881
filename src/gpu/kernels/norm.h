/* The statistics of a norm over n columns of one row, by up to 256 threads of one group. Thread i
 * takes columns 4i .. 4i+3, then every 1024th, whatever the number of threads: so a row's norm is
 * the same to the bit wherever it is computed. A group may have more threads than take part. n is a
 * multiple of 4, x aligned to 16 bytes. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H

#include "gpu/args.h"
#include "gpu/simt.h"

/* The sum of v over the group; part has a word per simdgroup. */
GPU_FN float group_sum(float v, TG(float) part, uint lane, uint simd, uint n_simds)
{
    v = simd_sum(v);
    if (n_simds == 1u) return v;
    tg_barrier(); /* part may still be read from the last sum */
    if (lane == 0u && simd < n_simds) part[simd] = v;
    tg_barrier();
    float all[NORM_THREADS / 32], sum = 0.0f; /* all loads at once; adding 0 changes nothing */
    UNROLL
    for (int i = 0; i < NORM_THREADS / 32; i++) all[i] = (uint)i < n_simds ? part[i] : 0.0f;
    UNROLL
    for (int i = 0; i < NORM_THREADS / 32; i++) sum += all[i];
    return sum;
}

enum { NORM_AHEAD = 4 }; /* loads of a thread that travel at once */

/* A thread's next fours of x; `none` where there is nothing. */
template <class X>
GPU_FN void norm_fetch(X x, THR(float4) v, uint base, uint n, uint n_threads, float none)
{
    UNROLL
    for (int j = 0; j < NORM_AHEAD; j++) {
        uint i = base + (uint)j * n_threads;
        v[j] = make_float4(none, none, none, none);
        if (i < n / 4u) v[j] = x[i];
    }
}

/* Mean (0 unless kind is layer) and factor: a normed value is (x - mean)·factor. */
template <class X>
GPU_FN float2 norm_stats(X x, uint n, uint kind, float eps, TG(float) part, uint tid,
                         uint n_threads)
{
    float mean = 0.0f, sq = 0.0f;
    uint lane = tid % 32u, simd = tid / 32u, n_simds = n_threads / 32u;
    if (kind == NORM_KIND_LAYER) {
        float sum = 0.0f;
        for (uint base = tid; tid < n_threads && base < n / 4u;
             base += n_threads * (uint)NORM_AHEAD) {
            float4 v[NORM_AHEAD];
            norm_fetch(x, v, base, n, n_threads, 0.0f);
            UNROLL
            for (int j = 0; j < NORM_AHEAD; j++) sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
        }
        mean = group_sum(sum, part, lane, simd, n_simds) / (float)n;
    }
    for (uint base = tid; tid < n_threads && base < n / 4u; base += n_threads * (uint)NORM_AHEAD) {
        float4 v[NORM_AHEAD];
        norm_fetch(x, v, base, n, n_threads, mean);
        UNROLL
        for (int j = 0; j < NORM_AHEAD; j++) {
            float a = v[j].x - mean, b = v[j].y - mean, c = v[j].z - mean, d = v[j].w - mean;
            sq += fmaf(a, a, b * b) + fmaf(c, c, d * d);
        }
    }
    sq = group_sum(sq, part, lane, simd, n_simds);
    if (kind == NORM_KIND_L2) return make_float2(mean, 1.0f / fmaxf(sqrtf(sq), eps));
    return make_float2(mean, 1.0f / sqrtf(sq / (float)n + eps));
}

/* Four normed columns; w and b are read when they are there. */
template <class V>
GPU_FN float4 norm_apply(float4 x, float2 stats, V w, uint wi, bool has_w, V b, uint bi, bool has_b)
{
    float4 y = make_float4((x.x - stats.x) * stats.y, (x.y - stats.x) * stats.y,
                           (x.z - stats.x) * stats.y, (x.w - stats.x) * stats.y);
    if (has_w) {
        float4 v = w[wi];
        y = make_float4(y.x * v.x, y.y * v.y, y.z * v.z, y.w * v.w);
    }
    if (has_b) {
        float4 v = b[bi];
        y = make_float4(y.x + v.x, y.y + v.y, y.z + v.z, y.w + v.w);
    }
    return y;
}

#endif
