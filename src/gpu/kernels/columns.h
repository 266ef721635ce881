/* What is done to columns one by one. */
#ifndef KERNELS_COLUMNS_H
#define KERNELS_COLUMNS_H

#include "gpu/args.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

GPU_FN float columns_of(uint f, float a, float b, float c)
{
    float s = 0.0f;
    if (f == COLUMNS_GLU || f == COLUMNS_SIGMOID || f == COLUMNS_DECAY || f == COLUMNS_SILU)
        s = num_sigmoid(a);
    if (f == COLUMNS_GELU) s = num_sigmoid(1.59576912f * (a + 0.044715f * a * a * a));
    switch (f) {
    case COLUMNS_ADD: return a + b;
    case COLUMNS_MUL: return a * b;
    case COLUMNS_LERP: return a + (b - a) * c;
    case COLUMNS_GLU:
    case COLUMNS_GELU: return a * s * b;
    case COLUMNS_K_CONTROL: return a * (1.0f + (b - 1.0f) * c);
    case COLUMNS_TANH: return num_tanh(a);
    case COLUMNS_SIGMOID: return s;
    case COLUMNS_RELU2: return a < 0.0f ? 0.0f : a * a;
    case COLUMNS_DECAY: return num_exp(-0.606530660f * s);
    case COLUMNS_SILU: return a * s;
    case COLUMNS_EXP: return num_exp(a);
    case COLUMNS_SOFTPLUS: return num_softplus(a);
    default: return a;
    }
}

/* glu of kind clamped; what is no number stays none. */
GPU_FN float columns_clamped(float g, float u, float alpha, float limit)
{
    g = g > limit ? limit : g;
    u = u > limit ? limit : (u < -limit ? -limit : u);
    return g * num_sigmoid(alpha * g) * (u + 1.0f);
}

/* The same of kind limited. */
GPU_FN float columns_limited(float g, float u, float limit)
{
    g = g * num_sigmoid(g);
    u = u > limit ? limit : (u < -limit ? -limit : u);
    return (g > limit ? limit : g) * u;
}

#endif
