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
typedef u32 lanes_uint_part __attribute__((vector_size(sizeof(lanes_part))));
typedef u8 lanes_byte_part __attribute__((vector_size(sizeof(lanes_part)))); /* of sixteen fours */
enum { LANES_PARTS = sizeof(v16f) / sizeof(lanes_part), PART = 16 / LANES_PARTS };

/* The parts of sixteen lanes, and back. */
INLINE void lanes_parts(lanes_part to[LANES_PARTS], v16f v)
{
    memcpy(to, &v, sizeof v);
}

INLINE v16f lanes_whole(const lanes_part from[LANES_PARTS])
{
    v16f v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE lanes_part lanes_part_load(const void *p)
{
    lanes_part v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void lanes_part_store(float *p, lanes_part v)
{
    memcpy(p, &v, sizeof v);
}

INLINE lanes_part lanes_part_set(float x)
{
    return x - (lanes_part){0};
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

/* The first n, the other lanes zero. */
INLINE v16f lanes_load_first(const float *p, u32 n)
{
    v16f v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

INLINE lanes_part lanes_part_load_first(const float *p, u32 n)
{
    lanes_part v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

#if defined __AVX512F__

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return (lanes_part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

INLINE lanes_part lanes_part_half(const void *p)
{
    return (lanes_part)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE lanes_part lanes_part_bf16(const void *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return (lanes_part)_mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
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

INLINE lanes_part lanes_part_max(lanes_part a, lanes_part b)
{
    return (lanes_part)_mm512_max_ps((__m512)a, (__m512)b);
}

INLINE bool lanes_part_any(lanes_int_part x)
{
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
}

/* Rows to columns: two rounds inside the quarters of a vector, two among them. */
INLINE void lanes_part_transpose(lanes_part r[PART])
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

INLINE v16f lanes_join(__m256 lo, __m256 hi)
{
    return lanes_whole((const lanes_part[]){(lanes_part)lo, (lanes_part)hi});
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return (lanes_part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE lanes_part lanes_part_half(const void *p)
{
    return (lanes_part)_mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE lanes_part lanes_part_bf16(const void *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return (lanes_part)_mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
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

INLINE lanes_part lanes_part_max(lanes_part a, lanes_part b)
{
    return (lanes_part)_mm256_max_ps((__m256)a, (__m256)b);
}

INLINE bool lanes_part_any(lanes_int_part x)
{
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
}

/* Rows to columns: neighbours, pairs, halves. */
INLINE void lanes_part_transpose(lanes_part r[PART])
{
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0x44);
            b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0xee);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        r[i] = (lanes_part)_mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = (lanes_part)_mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

#elif defined LANES_NEON

struct quarters {
    float32x4_t v[4];
};

INLINE v16f lanes_join(struct quarters q)
{
    v16f v;
    memcpy(&v, &q, sizeof v);
    return v;
}

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    return (lanes_part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

INLINE lanes_part lanes_part_half(const void *p)
{
    float16x4_t h;
    memcpy(&h, p, sizeof h);
    return (lanes_part)vcvt_f32_f16(h);
}

INLINE lanes_part lanes_part_bf16(const void *p)
{
    uint16x4_t h;
    memcpy(&h, p, sizeof h);
    return (lanes_part)vreinterpretq_f32_u32(vshll_n_u16(h, 16));
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

INLINE lanes_part lanes_part_max(lanes_part a, lanes_part b)
{
    return (lanes_part)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a,
                                 (float32x4_t)b);
}

INLINE bool lanes_part_any(lanes_int_part x)
{
    return vmaxvq_u32((uint32x4_t)x) != 0;
}

INLINE void lanes_part_transpose(lanes_part r[PART])
{
    float32x4x2_t a = vtrnq_f32((float32x4_t)r[0], (float32x4_t)r[1]);
    float32x4x2_t b = vtrnq_f32((float32x4_t)r[2], (float32x4_t)r[3]);
    for (int i = 0; i < 2; i++) {
        float64x2_t x = vreinterpretq_f64_f32(a.val[i]), y = vreinterpretq_f64_f32(b.val[i]);
        r[i] = (lanes_part)vtrn1q_f64(x, y);
        r[i + 2] = (lanes_part)vtrn2q_f64(x, y);
    }
}

#else

INLINE lanes_part lanes_part_fma(lanes_part a, lanes_part b, lanes_part c)
{
    for (int i = 0; i < 16; i++) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

INLINE lanes_part lanes_part_half(const void *p)
{
    u16 h[16];
    v16f v;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 16; i++) v[i] = half_to_float(h[i]);
    return v;
}

INLINE lanes_part lanes_part_bf16(const void *p)
{
    u16 h[16];
    lanes_part v;
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

INLINE lanes_part lanes_part_max(lanes_part a, lanes_part b)
{
    for (int i = 0; i < 16; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

INLINE bool lanes_part_any(lanes_int_part x)
{
    i32 any = 0;
    for (int i = 0; i < 16; i++) any |= x[i];
    return any != 0;
}

INLINE void lanes_part_transpose(lanes_part r[PART])
{
    float x[16][16], y[16][16];
    memcpy(x, r, sizeof x);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) y[j][i] = x[i][j];
    memcpy(r, y, sizeof y);
}

#endif

INLINE v16f lanes_half(const void *p)
{
    lanes_part x[LANES_PARTS];
    for (u32 i = 0; i < LANES_PARTS; i++) x[i] = lanes_part_half((const u16 *)p + i * PART);
    return lanes_whole(x);
}

INLINE v16f lanes_bf16(const void *p)
{
    lanes_part x[LANES_PARTS];
    for (u32 i = 0; i < LANES_PARTS; i++) x[i] = lanes_part_bf16((const u16 *)p + i * PART);
    return lanes_whole(x);
}

/* bf16 bits, rounded to nearest even; what is no number stays none. */
INLINE v16i lanes_to_bf16(v16f x)
{
    v16u u = (v16u)x, up = u + 0x7fff + (u >> 16 & 1), nan = (v16u)(x != x);
    return (v16i)(((up & ~nan) | ((u | 0x400000) & nan)) >> 16);
}

INLINE v16f lanes_fma(v16f a, v16f b, v16f c)
{
    lanes_part x[LANES_PARTS], y[LANES_PARTS], z[LANES_PARTS];
    lanes_parts(x, a);
    lanes_parts(y, b);
    lanes_parts(z, c);
    for (u32 i = 0; i < LANES_PARTS; i++) z[i] = lanes_part_fma(x[i], y[i], z[i]);
    return lanes_whole(z);
}

INLINE v16f lanes_max(v16f a, v16f b)
{
    lanes_part x[LANES_PARTS], y[LANES_PARTS];
    lanes_parts(x, a);
    lanes_parts(y, b);
    for (u32 i = 0; i < LANES_PARTS; i++) x[i] = lanes_part_max(x[i], y[i]);
    return lanes_whole(x);
}

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

/* The same of integers. */
INLINE i32 lanes_top_bits(v16i v)
{
#if defined __AVX512F__
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    i32 top = v[0];
    for (int i = 1; i < 16; i++) top = v[i] > top ? v[i] : top;
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
INLINE lanes_part lanes_part_exp(lanes_part x)
{
    const lanes_part lowest = lanes_part_set(-87.3365402f), shift = lanes_part_set(12582912.0f);
    lanes_int_part low = x < lowest;
    lanes_part c = lanes_part_max(lowest, x); /* what is no number stays none */
    lanes_part n = lanes_part_fma(c, lanes_part_set(1.44269504f), shift);
    lanes_uint_part e = (lanes_uint_part)n - 0x4b400000; /* anything at all where x is NaN */
    n -= shift;
    lanes_part r = lanes_part_fma(n, lanes_part_set(-0.693145752f), c);
    r = lanes_part_fma(n, lanes_part_set(-1.42860677e-6f), r);
    lanes_part p = lanes_part_set(1.98412698e-4f);
    p = lanes_part_fma(p, r, lanes_part_set(1.38888889e-3f));
    p = lanes_part_fma(p, r, lanes_part_set(8.33333333e-3f));
    p = lanes_part_fma(p, r, lanes_part_set(4.16666667e-2f));
    p = lanes_part_fma(p, r, lanes_part_set(1.66666667e-1f));
    p = lanes_part_fma(p, r, lanes_part_set(0.5f));
    p = lanes_part_fma(p, r * r, r) + 1.0f;
    p = p * (lanes_part)((e + 127) << 23); /* one factor does, as e ≤ 127 */
    return (lanes_part)((lanes_int_part)p & ~low);
}

INLINE v16f lanes_exp(v16f x)
{
    lanes_part p[LANES_PARTS];
    lanes_parts(p, x);
    for (u32 i = 0; i < LANES_PARTS; i++) p[i] = lanes_part_exp(p[i]);
    return lanes_whole(p);
}

/* base/num.c's sigmoid: exp of -|x| only, so nothing overflows. */
INLINE lanes_part lanes_part_sigmoid(lanes_part x)
{
    lanes_int_part neg = x < 0;
    lanes_part a = (lanes_part)((lanes_int_part)x | (i32)0x80000000); /* -|x| */
    lanes_part e = lanes_part_exp(a), one = lanes_part_set(1.0f);
    return (lanes_part)(((lanes_int_part)e & neg) | ((lanes_int_part)one & ~neg)) / (1.0f + e);
}

/* base/num.c's tanh, both of its ways, and a choice. */
INLINE lanes_part lanes_part_tanh(lanes_part x)
{
    lanes_int_part sign = (lanes_int_part)x & (i32)0x80000000;
    lanes_part a = (lanes_part)((lanes_int_part)x & 0x7fffffff), z = x * x;
    lanes_part p = lanes_part_set(2.18694885e-2f);
    p = lanes_part_fma(p, z, lanes_part_set(-5.39682540e-2f));
    p = lanes_part_fma(p, z, lanes_part_set(1.33333333e-1f));
    p = lanes_part_fma(p, z, lanes_part_set(-3.33333333e-1f));
    p = lanes_part_fma(p * z, x, x);
    lanes_part e = lanes_part_exp(a * -2.0f);
    lanes_part t = (lanes_part)((lanes_int_part)((1.0f - e) / (1.0f + e)) | sign);
    lanes_int_part small = a < 0.25f;
    return (lanes_part)(((lanes_int_part)p & small) | ((lanes_int_part)t & ~small));
}

#endif
