/* What several ways of experts share: choosing among few, and sums. */
#ifndef KERNELS_EXPERTS_H
#define KERNELS_EXPERTS_H

#include "gpu/args.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

/* What orders a choice: NaN counts as the lowest score (core/hostmem.c). */
GPU_FN float route_score(float v)
{
    return v == v ? v : -INFINITY;
}

/* Keys of scores are in their order. NaN marks what may not be chosen any more: 0, below all. */
GPU_FN uint route_key(float v)
{
    uint u = as_uint(v + 0.0f); /* one zero */
    if (v != v) return 0u;
    return (u >> 31) != 0u ? ~u : u | 0x80000000u;
}

/* What a logit becomes; of a softmax before it is divided by the sum. One exp for both. */
GPU_FN float route_probability(float z, float most, bool softmax)
{
    float e = num_exp(softmax ? z - most : z >= 0.0f ? -z : z);
    return softmax ? e : (z >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* The experts of one row, by one simdgroup, among up to 64 without groups: u and v are the logits
 * of a lane's two (-inf: none), by and bv their biases. What comes behind it waits for all of it.
 * Lane j gets the j-th choice and its weight. */
GPU_FN uint route_few(float u, float v, float by, float bv, ARGS_IN(route_args) a, uint lane,
                      THR(float) weight)
{
    uint far = lane + 32u, mine = 0u;
    bool softmax = a.softmax != 0u, second = far < a.n_experts;
    float all = 0.0f;
    float most = softmax ? simd_max(fmaxf(u, v)) : 0.0f;
    float p = route_probability(u, most, softmax), q = route_probability(v, most, softmax);
    if (softmax) {
        float sum = simd_sum(p + q);
        p = p / sum, q = q / sum;
    }
    uint at_p = 0u, at_q = 0u;
    if (lane < a.n_experts) at_p = route_key(route_score(a.has_bias != 0u ? p + by : p));
    if (second) at_q = route_key(route_score(a.has_bias != 0u ? q + bv : q));
    for (uint j = 0u; j < a.n_used; j++) {
        uint top = simd_max(max(at_p, at_q)), id = ~0u;
        if (at_q == top) id = far;
        if (at_p == top) id = lane;
        id = min(~simd_max(~id), a.n_experts - 1u);
        float w = simd_broadcast(id < 32u ? p : q, (u16)(id % 32u));
        if (id == lane) at_p = 0u;
        if (id == far) at_q = 0u;
        all = all + w;
        if (lane == j) mine = id, *weight = w;
    }
    if (a.normalise != 0u) *weight = *weight / fmaxf(all, a.floor);
    *weight = *weight * a.scale;
    return mine;
}

/* The sum of an output's products: made has that of the matrix that is added, then those of the
 * choices in order, EXPERTS_SUM_OUTS of each; lane j knows the j-th weight. All lanes take part,
 * those that are `last` have an output. */
GPU_FN float experts_total(TG(const float) made, float weight, float plus, float rest,
                           ARGS_IN(experts_args) a, bool last, uint lane)
{
    float total = 0.0f;
    for (uint k = 0u; k < a.n_used; k++) {
        float w = simd_shuffle(weight, (u16)k);
        if (last) total = total + w * made[(k + 1u) * (uint)EXPERTS_SUM_OUTS + lane];
    }
    if (last && a.added_in > 0u) {
        float v = made[lane];
        if (a.added_bias != 0u) v += plus;
        total = total + v;
    }
    if (a.residual_pitch > 0u) total = rest + total;
    return total;
}

#endif
