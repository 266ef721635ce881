/* A head of queries or keys on its way from the product: its norm, its rotation. */
#ifndef KERNELS_HEADS_H
#define KERNELS_HEADS_H

#include "gpu/args.h"
#include "gpu/kernels/norm.h"
#include "gpu/simt.h"

/* As a value of the second argument's type. */
GPU_FN u16 heads_as(float v, u16)
{
    return f32_to_f16(v);
}
GPU_FN float heads_as(float v, float)
{
    return v;
}

GPU_FN float heads_normed(float x, float2 stats, CONST(float) w, uint i, bool normed)
{
    return normed ? (x - stats.x) * stats.y * w[i] : x;
}

/* One head of a queries' or keys' row to `to`, perhaps normed, its first n_rot columns rotated; by
 * a.threads threads. */
template <class T, class C, class To>
GPU_FN void heads_rotate(DEV(const float) from, CONST(float) w, C cosine, C sine, To to, uint norm,
                         float eps, ARGS_IN(heads_args) a, TG(float) part, uint tid)
{
    uint n_pairs = a.n_rot / 2u;
    bool normed = norm != (uint)NORM_KIND_NONE;
    float2 stats = make_float2(0.0f, 1.0f);
    if (normed)
        stats = norm_stats((DEV(const float4))from, a.width, norm, eps, part, tid, a.threads);
    for (uint i = tid; i < n_pairs; i += a.threads) {
        uint ia = a.neox ? i : 2u * i, ib = a.neox ? i + n_pairs : 2u * i + 1u;
        float p = heads_normed(from[ia], stats, w, ia, normed);
        float q = heads_normed(from[ib], stats, w, ib, normed);
        float co = cosine[i], si = sine[i];
        to[ia] = heads_as(p * co - q * si, (T)0);
        to[ib] = heads_as(p * si + q * co, (T)0);
    }
    for (uint i = a.n_rot + tid; i < a.width; i += a.threads)
        to[i] = heads_as(heads_normed(from[i], stats, w, i, normed), (T)0);
}

#endif
