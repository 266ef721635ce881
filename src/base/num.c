#include "base/num.h"

#include <math.h>
#include <string.h>

static float from_bits(u32 u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static u32 to_bits(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* exp(x) = 2^n · exp(r), |r| ≤ ln2/2; the Taylor polynomial to r^7 is good to 2e-9 there. */
float num_exp(float x)
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
    i32 e = (i32)n;
    i32 half = e / 2; /* two factors, so that 2^128 is never formed */
    return p * from_bits((u32)(half + 127) << 23) * from_bits((u32)(e - half + 127) << 23);
}

/* log(x) = e·ln2 + log(m), m in [√½, √2); log(m) = 2·atanh(s), s = (m-1)/(m+1). */
float num_log(float x)
{
    if (x != x || x < 0) return NAN;
    if (x == 0) return -INFINITY;
    if (x == INFINITY) return x;
    i32 e = 0;
    if (x < 1.17549435e-38f) { /* subnormal */
        x *= 16777216.0f;
        e = -24;
    }
    u32 u = to_bits(x);
    u32 shifted = u - 0x3f3504f3u; /* √½ */
    e += (i32)shifted >> 23;
    float m = from_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
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

float num_sigmoid(float x)
{
    if (x >= 0) return 1.0f / (1.0f + num_exp(-x));
    float e = num_exp(x);
    return e / (1.0f + e);
}

float num_tanh(float x)
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
    return copysignf((1.0f - e) / (1.0f + e), x);
}

/* Reduction by π/2 in two parts (the fma makes the first exact, the second matters below 1e-16 of
 * n), then Taylor polynomials on |r| ≤ π/4. */
void num_sincos(double x, double *sin_x, double *cos_x)
{
    double n = rint(x * 0.63661977236758134308);
    double r = fma(n, -1.57079632679489655800e+00, x);
    double lo = n * 6.12323399573676603587e-17;
    r -= lo;
    double z = r * r;
    double s = -7.6471637318198164759e-13; /* -1/15! */
    s = fma(s, z, 1.6059043836821614599e-10);
    s = fma(s, z, -2.5052108385441718775e-8);
    s = fma(s, z, 2.7557319223985890653e-6);
    s = fma(s, z, -1.9841269841269841270e-4);
    s = fma(s, z, 8.3333333333333333333e-3);
    s = fma(s, z, -1.6666666666666666667e-1);
    s = fma(s * z, r, r);
    double c = 4.7794773323873852974e-14; /* 1/16! */
    c = fma(c, z, -1.1470745597729724714e-11);
    c = fma(c, z, 2.0876756987868098979e-9);
    c = fma(c, z, -2.7557319223985890653e-7);
    c = fma(c, z, 2.4801587301587301587e-5);
    c = fma(c, z, -1.3888888888888888889e-3);
    c = fma(c, z, 4.1666666666666666667e-2);
    c = fma(c, z * z, fma(-0.5, z, 1.0));
    switch ((i64)n & 3) {
    case 0: *sin_x = s, *cos_x = c; break;
    case 1: *sin_x = c, *cos_x = -s; break;
    case 2: *sin_x = -s, *cos_x = -c; break;
    default: *sin_x = -c, *cos_x = s; break;
    }
}
