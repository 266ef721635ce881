/* The text of num.h's f32 functions, once for host and kernels: num.c includes it, and
 * gpu/num_f32.h in the kernels' dialect. Whoever does so has as_float, as_uint (bits), fmaf and
 * fabsf, and says in NUM_FN what kind of functions these are. */
#ifndef FLETCH_NUM_F32_H
#define FLETCH_NUM_F32_H

/* exp(x) = 2^n · exp(r), |r| ≤ ln2/2; the Taylor polynomial to r^7 is good to 2e-9 there. */
NUM_FN float num_exp(float x)
{
    if (x != x) return x;
    if (x > 88.7228394f) return INFINITY;
    if (x < -87.3365402f) return 0.0f;
    float n = fmaf(x, 1.44269504f, 12582912.0f) - 12582912.0f; /* nearest even */
    float r = fmaf(n, -0.693145752f, x);                       /* ln2, high part: 15 bits */
    r = fmaf(n, -1.42860677e-6f, r);
    float p = 1.98412698e-4f;
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r * r, r) + 1.0f;
    int e = (int)n;
    int low = e / 2; /* two factors, so that 2^128 is never formed */
    return p * as_float((unsigned)(low + 127) << 23) * as_float((unsigned)(e - low + 127) << 23);
}

/* log(x) = e·ln2 + log(m), m in [√½, √2); log(m) = 2·atanh(s), s = (m-1)/(m+1). Which x these are
 * is decided by their bits: GPUs take subnormal operands for zero. */
NUM_FN float num_log(float x)
{
    unsigned u = as_uint(x);
    int e = 0;
    if (u << 1 == 0u) return -INFINITY;
    if (u == 0x7f800000u) return x;
    if (u > 0x7f800000u) return NAN; /* or below 0 */
    if (u < 0x00800000u) {           /* subnormal: u units of 2^-149 */
        u = as_uint((float)u);
        e = -149;
    }
    unsigned shifted = u - 0x3f3504f3u; /* √½ */
    e += (int)shifted >> 23;
    float m = as_float((shifted & 0x007fffffu) + 0x3f3504f3u);
    float f = m - 1.0f;
    float s = f / (2.0f + f), z = s * s;
    float p = 0.0909090909f;
    p = fmaf(p, z, 0.1111111111f);
    p = fmaf(p, z, 0.1428571429f);
    p = fmaf(p, z, 0.2f);
    p = fmaf(p, z, 0.3333333333f) * z;
    float fe = (float)e;
    float h = 0.5f * f * f;
    /* log(1+f) = f - f²/2 + s·(f²/2 + 2z·(1/3 + z/5 + z²/7 ...)) */
    float r = fmaf(s, fmaf(2.0f, p, h), fe * 1.42860677e-6f);
    return fmaf(fe, 0.693145752f, f - (h - r));
}

NUM_FN float num_sigmoid(float x)
{
    float e = num_exp(x >= 0 ? -x : x);
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

NUM_FN float num_tanh(float x)
{
    float a = fabsf(x);
    if (a < 0.25f) { /* where the quotient below would cancel: the series to x^9 */
        float z = x * x, p = 2.18694885e-2f;
        p = fmaf(p, z, -5.39682540e-2f);
        p = fmaf(p, z, 1.33333333e-1f);
        p = fmaf(p, z, -3.33333333e-1f);
        return fmaf(p * z, x, x);
    }
    float e = num_exp(-2.0f * a);
    float t = (1.0f - e) / (1.0f + e);
    return x < 0 ? -t : t;
}

/* max(x, 0) + log(1 + e), e = exp(-|x|); where 1 + e was rounded, its logarithm is scaled by how
 * much of e is left. */
NUM_FN float num_softplus(float x)
{
    float e = num_exp(x >= 0 ? -x : x), w = 1.0f + e;
    float l = w > 1.0f ? num_log(w) * (e / (w - 1.0f)) : e;
    return x > 0 ? x + l : l;
}

#endif
