/* What both ways of experts' sums share. */
#ifndef KERNELS_EXPERTS_H
#define KERNELS_EXPERTS_H

#include "gpu/args.h"
#include "gpu/simt.h"

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
