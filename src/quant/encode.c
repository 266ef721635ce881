/* From floats to file blocks: the plain types and the 32-element blocks. Quants are computed
 * with the unrounded scale, as other engines do, so that their files and ours are equal. Every
 * conversion to an integer is clamped first: weights may be NaN, infinite or subnormal. */
#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/tables.h"

static void store16(u8 *p, u16 v)
{
    p[0] = (u8)v;
    p[1] = (u8)(v >> 8);
}

static bool half_is_finite(u16 h)
{
    return (h & 0x7c00) != 0x7c00;
}

float quant_put_scale(u8 *p, float d, bool *ok)
{
    u16 h = half_from_float(d);
    store16(p, h);
    *ok &= half_is_finite(h);
    return half_to_float(h);
}

static bool encode_f32(const float *x, u8 *b)
{
    memcpy(b, x, sizeof *x);
    return true;
}

static bool encode_f16(const float *x, u8 *b)
{
    u16 h = half_from_float(*x);
    store16(b, h);
    return half_is_finite(h);
}

static bool encode_bf16(const float *x, u8 *b)
{
    u16 h = bf16_from_float(*x);
    store16(b, h);
    return (h & 0x7f80) != 0x7f80;
}

/* The element of largest magnitude, with its sign; the first of equals. */
static float largest(const float *x)
{
    float m = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(m)) m = x[i];
    return m;
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

static int truncate_to(float v, int max)
{
    return !(v > 0) ? 0 : v < (float)max ? (int)v : max;
}

/* Nearest, ties away from zero; limited to +-127. */
static i8 round_i8(float v)
{
    v = v > -127 ? v < 127 ? v : 127 : -127;
    int t = (int)v;
    float rest = v - (float)t; /* exact */
    return (i8)(t + (rest >= 0.5f) - (rest <= -0.5f));
}

static bool encode_q8_0(const float *x, u8 *b)
{
    bool ok = true;
    float d = fabsf(largest(x)) / 127, id = inverse(d);
    quant_put_scale(b, d, &ok);
    for (int i = 0; i < 32; i++) b[2 + i] = (u8)round_i8(x[i] * id);
    return ok;
}

/* Four low bits of 32 quants as nibbles, low ones first; the fifth bits as a bit set. */
static void pack_nibbles(const u8 *q, u8 *qs)
{
    for (int i = 0; i < 16; i++) qs[i] = (u8)((q[i] & 15) | q[i + 16] << 4);
}

static void pack_fifths(const u8 *q, u8 *qh)
{
    memset(qh, 0, 4);
    for (int i = 0; i < 32; i++) qh[i / 8] = (u8)(qh[i / 8] | (q[i] >> 4) << (i % 8));
}

/* Q4_0 and Q5_0: the largest element sits exactly on the lowest of 2 * half levels. */
static bool quantise_signed(const float *x, int half, u8 *q, u8 *scale)
{
    bool ok = true;
    float d = largest(x) / (float)-half, id = inverse(d);
    quant_put_scale(scale, d, &ok);
    for (int i = 0; i < 32; i++)
        q[i] = (u8)truncate_to(x[i] * id + ((float)half + 0.5f), 2 * half - 1);
    return ok;
}

/* Q4_1 and Q5_1: levels 0..max over the block's range. */
static bool quantise_range(const float *x, int max, u8 *q, u8 *scales)
{
    bool ok = true;
    float lo = x[0], hi = x[0];
    for (int i = 1; i < 32; i++) {
        lo = MIN(lo, x[i]);
        hi = MAX(hi, x[i]);
    }
    float d = (hi - lo) / (float)max, id = inverse(d);
    quant_put_scale(scales, d, &ok);
    quant_put_scale(scales + 2, lo, &ok);
    for (int i = 0; i < 32; i++) q[i] = (u8)truncate_to((x[i] - lo) * id + 0.5f, max);
    return ok;
}

static bool encode_q4_0(const float *x, u8 *b)
{
    u8 q[32];
    bool ok = quantise_signed(x, 8, q, b);
    pack_nibbles(q, b + 2);
    return ok;
}

static bool encode_q5_0(const float *x, u8 *b)
{
    u8 q[32];
    bool ok = quantise_signed(x, 16, q, b);
    pack_fifths(q, b + 2);
    pack_nibbles(q, b + 6);
    return ok;
}

static bool encode_q4_1(const float *x, u8 *b)
{
    u8 q[32];
    bool ok = quantise_range(x, 15, q, b);
    pack_nibbles(q, b + 4);
    return ok;
}

static bool encode_q5_1(const float *x, u8 *b)
{
    u8 q[32];
    bool ok = quantise_range(x, 31, q, b);
    pack_fifths(q, b + 4);
    pack_nibbles(q, b + 8);
    return ok;
}

/* Index of the nearest table value; v on a midpoint goes up. */
static u8 nearest_iq4(float v)
{
    static const float midpoints[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                        7,       19,     31.5f, 45.5f, 61,  79,     101};
    int k = 0;
    for (int i = 0; i < 15; i++) k += v >= midpoints[i];
    return (u8)k;
}

/* Weighted by x^2: the best d for the quants that id gives, by how much error it removes. */
static void try_iq4(const float *x, float id, float *d, float *best)
{
    float qx = 0, qq = 0;
    for (int i = 0; i < 32; i++) {
        float q = (float)quant_iq4_values[nearest_iq4(id * x[i])], w = x[i] * x[i];
        qx += w * q * x[i];
        qq += w * q * q;
    }
    if (qq > 0 && qx * qx > *best * qq) {
        *d = qx / qq;
        *best = *d * qx;
    }
}

static bool encode_iq4_nl(const float *x, u8 *b)
{
    u8 q[32];
    bool ok = true;
    float m = largest(x), first = (float)quant_iq4_values[0], d = 0, best = 0;
    if (fabsf(m) >= 1e-15f) {
        try_iq4(x, first / -m, &d, &best);
        for (int t = -7; t <= 7; t++) try_iq4(x, ((float)t + first) / m, &d, &best);
    }
    float id = inverse(d);
    quant_put_scale(b, d, &ok);
    for (int i = 0; i < 32; i++) q[i] = nearest_iq4(id * x[i]);
    pack_nibbles(q, b + 2);
    return ok;
}

static bool encode_mxfp4(const float *x, u8 *b)
{
    u8 q[32];
    float m = fabsf(largest(x));
    int e = m > 0 && isfinite(m) ? ilogbf(m) - 2 + 127 : 0;
    b[0] = (u8)MAX(e, 0);
    float d = quant_mxfp4_scale(b[0]);
    for (int i = 0; i < 32; i++) {
        float best = INFINITY;
        q[i] = 0;
        for (u8 k = 0; k < 16; k++) {
            float miss = fabsf((float)quant_mxfp4_values[k] * d - x[i]);
            if (miss < best) {
                best = miss;
                q[i] = k;
            }
        }
    }
    pack_nibbles(q, b + 1);
    return true;
}

static bool (*const encoders[QT_COUNT])(const float *x, u8 *b) = {
    [QT_F32] = encode_f32,         [QT_F16] = encode_f16,         [QT_BF16] = encode_bf16,
    [QT_Q8_0] = encode_q8_0,       [QT_Q4_0] = encode_q4_0,       [QT_Q4_1] = encode_q4_1,
    [QT_Q5_0] = encode_q5_0,       [QT_Q5_1] = encode_q5_1,       [QT_IQ4_NL] = encode_iq4_nl,
    [QT_MXFP4] = encode_mxfp4,     [QT_Q2_K] = quant_encode_q2_k, [QT_Q3_K] = quant_encode_q3_k,
    [QT_Q4_K] = quant_encode_q4_k, [QT_Q5_K] = quant_encode_q5_k, [QT_Q6_K] = quant_encode_q6_k,
};

bool quant_encode(enum qtype type, const float *src, void *dst, u64 n)
{
    const struct quant_info *q = quant_info(type);
    CHECK(q && q->writable && n % q->blk == 0);
    u8 *b = dst;
    bool ok = true;
    /* No half scale reaches 1e9, and the searches' cubes stay finite below it. */
    float limit = q->blk == 1 || type == QT_MXFP4 ? FLT_MAX : 1e9f;
    for (u64 i = 0; i < n; i++) ok &= fabsf(src[i]) <= limit;
    for (u64 i = 0; i < n; i += q->blk, b += q->bytes) ok &= encoders[type](src + i, b);
    return ok;
}
