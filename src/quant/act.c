#include "quant/act.h"

#include <math.h>

#include "quant/quant.h"

static float block_scale(const float *x, float *inverse)
{
    float top = 0;
    bool finite = true;
    for (u32 i = 0; i < ACT_BLOCK; i++) {
        top = fmaxf(top, fabsf(x[i]));
        finite &= (bool)isfinite(x[i]);
    }
    *inverse = 0;
    if (!finite) return NAN;
    if (top < 1e-30f) top = 0; /* as good as nothing, and 127/top must stay finite */
    *inverse = top > 0 ? 127.0f / top : 0;
    return top / 127.0f;
}

void act_quantise(const float *x, i8 *q, float *scale, u32 n)
{
    for (u32 i = 0; i < n; i += ACT_BLOCK) {
        float inverse, s = scale[i / ACT_BLOCK] = block_scale(x + i, &inverse);
        for (u32 j = i; j < i + ACT_BLOCK; j++) q[j] = isnan(s) ? 0 : (i8)lrintf(x[j] * inverse);
    }
}

void act_round(const float *x, float *y, u32 n)
{
    for (u32 i = 0; i < n; i += ACT_BLOCK) {
        float inverse, scale = block_scale(x + i, &inverse);
        for (u32 j = i; j < i + ACT_BLOCK; j++) y[j] = rintf(x[j] * inverse) * scale;
    }
}

void act_round_bf16(const float *x, float *y, u32 n)
{
    for (u32 i = 0; i < n; i++) y[i] = bf16_to_float(bf16_from_float(x[i]));
}
