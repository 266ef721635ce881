/* Sixteen lanes of f32 or i32, the width that everything in this folder is laid out for. The
 * compiler's vector types carry + - * /; the rest is here, per instruction set, with results that
 * are equal in every bit on all of them. Included only by what is compiled
 * once for each. */
#ifndef FLETCH_LANES_H
#define FLETCH_LANES_H

#include <math.h>
#include <string.h>

#include "quant/quant.h"

#if defined __AVX2__
#include <immintrin.h>
#elif defined LANES_NEON
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float v16f __attribute__((vector_size(64)));
typedef i32 v16i __attribute__((vector_size(64)));
typedef u32 v16u __attribute__((vector_size(64)));
typedef float v8f __attribute__((vector_size(32)));
typedef float v4f __attribute__((vector_size(16)));

/* What one register holds of sixteen lanes: gcc keeps wider vectors in memory, where sums of loops
 * must not be. */
#if defined __AVX2__ && !defined __AVX512F__
typedef v8f lanes_part;
#elif defined LANES_NEON
typedef v4f lanes_part;
#else
typedef v16f lanes_part;
#endif
typedef i32 lanes_int_part __attribute__((vector_size(sizeof(lanes_part))));
typedef u8 lanes_byte_part __attribute__((vector_size(sizeof(lanes_part)))); /* of sixteen fours */
enum { LANES_PARTS = sizeof(v16f) / sizeof(lanes_part) };

/* The parts of sixteen lanes. */
INLINE void lanes_parts(lanes_part to[LANES_PARTS], v16f v)
{
    memcpy(to, &v, sizeof v);
}

INLINE v16f lanes_load(const float *p)
{
    v16f v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void lanes_store(float *p, v16f v)
{
    memcpy(p, &v, sizeof v);
}

INLINE v16f lanes_set(float x)
{
    return x - (v16f){0};
}

/* n < 16 floats, the other lanes zero. */
INLINE v16f lanes_load_part(const float *p, u32 n)
{
    v16f v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

#if defined __AVX512F__

INLINE v16f lanes_fma(v16f a, v16f b, v16f c)
{
    return (v16f)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return lanes_fma(a, b, c);
}

INLINE v16f lanes_half(const void *p)
{
    return (v16f)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE v16f lanes_bf16(const void *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return (v16f)_mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

INLINE v16f lanes_from_u8(const u8 *p)
{
    __m128i x;
    memcpy(&x, p, sizeof x);
    return (v16f)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(x));
}

INLINE v16f lanes_from_i8(const u8 *p)
{
    __m128i x;
    memcpy(&x, p, sizeof x);
    return (v16f)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
}

INLINE v16f lanes_from_int(v16i x)
{
    return (v16f)_mm512_cvtepi32_ps((__m512i)x);
}

INLINE v16f lanes_max(v16f a, v16f b)
{
    return (v16f)_mm512_max_ps((__m512)a, (__m512)b);
}

INLINE bool lanes_any(v16i x)
{
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
}

/* Rows to columns: two rounds inside the quarters of a vector, two among them. */
INLINE void lanes_transpose(v16f r[16])
{
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps((__m512)r[i], (__m512)r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps((__m512)r[i], (__m512)r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512d x = (__m512d)a[i + j], y = (__m512d)a[i + j + 2];
            b[i + 2 * j] = (__m512)_mm512_unpacklo_pd(x, y);
            b[i + 2 * j + 1] = (__m512)_mm512_unpackhi_pd(x, y);
        }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512 x = b[i + 8 * j], y = b[i + 8 * j + 4];
            a[i + 4 * j] = _mm512_shuffle_f32x4(x, y, 0x88);
            a[i + 4 * j + 8] = _mm512_shuffle_f32x4(x, y, 0xdd);
        }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            r[i + 4 * j] = (v16f)_mm512_shuffle_f32x4(a[i + 8 * j], a[i + 8 * j + 4], 0x88);
            r[i + 4 * j + 8] = (v16f)_mm512_shuffle_f32x4(a[i + 8 * j], a[i + 8 * j + 4], 0xdd);
        }
}

#elif defined __AVX2__ && defined __FMA__ && defined __F16C__

struct halves {
    __m256 lo, hi;
};

INLINE struct halves lanes_split(v16f v)
{
    struct halves h;
    memcpy(&h, &v, sizeof h);
    return h;
}

INLINE v16f lanes_join(__m256 lo, __m256 hi)
{
    struct halves h = {lo, hi};
    v16f v;
    memcpy(&v, &h, sizeof v);
    return v;
}

INLINE v16f lanes_fma(v16f a, v16f b, v16f c)
{
    struct halves x = lanes_split(a), y = lanes_split(b), z = lanes_split(c);
    return lanes_join(_mm256_fmadd_ps(x.lo, y.lo, z.lo), _mm256_fmadd_ps(x.hi, y.hi, z.hi));
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return (lanes_part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE v16f lanes_half(const void *p)
{
    __m128i lo, hi;
    memcpy(&lo, p, sizeof lo);
    memcpy(&hi, (const u8 *)p + 16, sizeof hi);
    return lanes_join(_mm256_cvtph_ps(lo), _mm256_cvtph_ps(hi));
}

INLINE v16f lanes_bf16(const void *p)
{
    __m128i x[2];
    memcpy(x, p, sizeof x);
    return lanes_join(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x[0]), 16)),
                      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x[1]), 16)));
}

INLINE v16f lanes_from_u8(const u8 *p)
{
    __m128i x;
    memcpy(&x, p, sizeof x);
    return lanes_join(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
                      _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))));
}

INLINE v16f lanes_from_i8(const u8 *p)
{
    __m128i x;
    memcpy(&x, p, sizeof x);
    return lanes_join(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))));
}

INLINE v16f lanes_from_int(v16i x)
{
    __m256i h[2];
    memcpy(h, &x, sizeof h);
    return lanes_join(_mm256_cvtepi32_ps(h[0]), _mm256_cvtepi32_ps(h[1]));
}

INLINE v16f lanes_max(v16f a, v16f b)
{
    struct halves x = lanes_split(a), y = lanes_split(b);
    return lanes_join(_mm256_max_ps(x.lo, y.lo), _mm256_max_ps(x.hi, y.hi));
}

#elif defined LANES_NEON

struct quarters {
    float32x4_t v[4];
};

INLINE struct quarters lanes_split(v16f v)
{
    struct quarters q;
    memcpy(&q, &v, sizeof q);
    return q;
}

INLINE v16f lanes_join(struct quarters q)
{
    v16f v;
    memcpy(&v, &q, sizeof v);
    return v;
}

INLINE v16f lanes_fma(v16f a, v16f b, v16f c)
{
    struct quarters x = lanes_split(a), y = lanes_split(b), z = lanes_split(c);
    for (int i = 0; i < 4; i++) z.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]);
    return lanes_join(z);
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return (lanes_part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

INLINE v16f lanes_half(const void *p)
{
    float16x4_t h[4];
    struct quarters q;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 4; i++) q.v[i] = vcvt_f32_f16(h[i]);
    return lanes_join(q);
}

INLINE v16f lanes_bf16(const void *p)
{
    uint16x4_t h[4];
    struct quarters q;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 4; i++) q.v[i] = vreinterpretq_f32_u32(vshll_n_u16(h[i], 16));
    return lanes_join(q);
}

INLINE v16f lanes_from_int(v16i x)
{
    int32x4_t n[4];
    struct quarters q;
    memcpy(n, &x, sizeof n);
    for (int i = 0; i < 4; i++) q.v[i] = vcvtq_f32_s32(n[i]);
    return lanes_join(q);
}

INLINE v16f lanes_from_u8(const u8 *p)
{
    uint8x16_t x = vld1q_u8(p);
    uint16x8_t lo = vmovl_u8(vget_low_u8(x)), hi = vmovl_high_u8(x);
    return lanes_join((struct quarters){
        {vcvtq_f32_u32(vmovl_u16(vget_low_u16(lo))), vcvtq_f32_u32(vmovl_high_u16(lo)),
         vcvtq_f32_u32(vmovl_u16(vget_low_u16(hi))), vcvtq_f32_u32(vmovl_high_u16(hi))}});
}

INLINE v16f lanes_from_i8(const u8 *p)
{
    int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t lo = vmovl_s8(vget_low_s8(x)), hi = vmovl_high_s8(x);
    return lanes_join((struct quarters){
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_high_s16(lo)),
         vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_high_s16(hi))}});
}

INLINE v16f lanes_max(v16f a, v16f b)
{
    struct quarters x = lanes_split(a), y = lanes_split(b);
    for (int i = 0; i < 4; i++) x.v[i] = vbslq_f32(vcgtq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]);
    return lanes_join(x);
}

#else

INLINE v16f lanes_fma(v16f a, v16f b, v16f c)
{
    for (int i = 0; i < 16; i++) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return lanes_fma(a, b, c);
}

INLINE v16f lanes_half(const void *p)
{
    u16 h[16];
    v16f v;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 16; i++) v[i] = half_to_float(h[i]);
    return v;
}

INLINE v16f lanes_bf16(const void *p)
{
    u16 h[16];
    v16f v;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 16; i++) v[i] = bf16_to_float(h[i]);
    return v;
}

INLINE v16f lanes_from_u8(const u8 *p)
{
    v16f v;
    for (int i = 0; i < 16; i++) v[i] = (float)p[i];
    return v;
}

INLINE v16f lanes_from_i8(const u8 *p)
{
    v16f v;
    for (int i = 0; i < 16; i++) v[i] = (float)(i8)p[i];
    return v;
}

INLINE v16f lanes_from_int(v16i x)
{
    v16f v;
    for (int i = 0; i < 16; i++) v[i] = (float)x[i];
    return v;
}

INLINE v16f lanes_max(v16f a, v16f b)
{
    for (int i = 0; i < 16; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

#endif

/* bf16 bits, rounded to nearest even; what is no number stays none. */
INLINE v16i lanes_to_bf16(v16f x)
{
    v16u u = (v16u)x, up = u + 0x7fff + (u >> 16 & 1), nan = (v16u)(x != x);
    return (v16i)(((up & ~nan) | ((u | 0x400000) & nan)) >> 16);
}

#if !defined __AVX512F__

INLINE bool lanes_any(v16i x)
{
    i32 any = 0;
    for (int i = 0; i < 16; i++) any |= x[i];
    return any != 0;
}

INLINE void lanes_transpose(v16f r[16])
{
    float x[16][16], y[16][16];
    memcpy(x, r, sizeof x);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) y[j][i] = x[i][j];
    memcpy(r, y, sizeof y);
}

#endif

/* All lanes into one, always in the same order: halves, quarters, eighths, pairs. */
INLINE float lanes_sum(v16f v)
{
    v8f x[2];
    v4f y[2];
    memcpy(x, &v, sizeof x);
    x[0] += x[1];
    memcpy(y, x, sizeof y);
    y[0] += y[1];
    float a = y[0][0] + y[0][2], b = y[0][1] + y[0][3];
    return a + b;
}

INLINE float lanes_top(v16f v)
{
#if defined __AVX512F__
    return _mm512_reduce_max_ps((__m512)v);
#else
    float x[16], top;
    memcpy(x, &v, sizeof x);
    top = x[0];
    for (int i = 1; i < 16; i++) top = x[i] > top ? x[i] : top;
    return top;
#endif
}

INLINE i32 lanes_total(v16i v)
{
#if defined __AVX512F__
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    i32 s = 0;
    for (int i = 0; i < 16; i++) s += v[i];
    return s;
#endif
}

/* base/num.c's exp in lanes, for x ≤ 88 (softmax, sigmoid): below -87.3 it is 0. */
INLINE v16f lanes_exp(v16f x)
{
    v16i low = x < -87.3365402f;
    v16f c = lanes_max(lanes_set(-87.3365402f), x); /* what is no number stays none */
    v16f n = lanes_fma(c, lanes_set(1.44269504f), lanes_set(12582912.0f));
    v16i e = (v16i)n - 0x4b400000;
    n -= 12582912.0f;
    v16f r = lanes_fma(n, lanes_set(-0.693145752f), c);
    r = lanes_fma(n, lanes_set(-1.42860677e-6f), r);
    v16f p = lanes_set(1.98412698e-4f);
    p = lanes_fma(p, r, lanes_set(1.38888889e-3f));
    p = lanes_fma(p, r, lanes_set(8.33333333e-3f));
    p = lanes_fma(p, r, lanes_set(4.16666667e-2f));
    p = lanes_fma(p, r, lanes_set(1.66666667e-1f));
    p = lanes_fma(p, r, lanes_set(0.5f));
    p = lanes_fma(p, r * r, r) + 1.0f;
    p = p * (v16f)((e + 127) << 23); /* one factor does, as e ≤ 127 */
    return (v16f)((v16i)p & ~low);
}

/* base/num.c's sigmoid: exp of -|x| only, so nothing overflows. */
INLINE v16f lanes_sigmoid(v16f x)
{
    v16i neg = x < 0;
    v16f a = (v16f)((v16i)x | (i32)0x80000000); /* -|x| */
    v16f e = lanes_exp(a), one = lanes_set(1.0f);
    return (v16f)(((v16i)e & neg) | ((v16i)one & ~neg)) / (1.0f + e);
}

/* base/num.c's tanh, both of its ways, and a choice. */
INLINE v16f lanes_tanh(v16f x)
{
    v16i sign = (v16i)x & (i32)0x80000000;
    v16f a = (v16f)((v16i)x & 0x7fffffff), z = x * x, p = lanes_set(2.18694885e-2f);
    p = lanes_fma(p, z, lanes_set(-5.39682540e-2f));
    p = lanes_fma(p, z, lanes_set(1.33333333e-1f));
    p = lanes_fma(p, z, lanes_set(-3.33333333e-1f));
    p = lanes_fma(p * z, x, x);
    v16f e = lanes_exp(a * -2.0f), t = (v16f)((v16i)((1.0f - e) / (1.0f + e)) | sign);
    v16i small = a < 0.25f;
    return (v16f)(((v16i)p & small) | ((v16i)t & ~small));
}

#endif
