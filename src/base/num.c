#include "base/num.h"

#include <math.h>
#include <string.h>

static float as_float(u32 u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static u32 as_uint(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#define NUM_FN
#include "base/num_f32.h"

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
