/* Weights as lanes see them: one 16-byte unit of the first plane and the scales that belong to it
 * (gpu_pack.h has the layouts). A unit of a quantised encoding becomes words of four signed bytes,
 * dotted exactly with int8 activations; one of floats becomes floats. */
#ifndef KERNELS_UNITS_H
#define KERNELS_UNITS_H

#include "gpu/simt.h"
#include "quant/encodings.h"

/* The encodings, by the numbers that the host gives them (quant/encoding.h), and what follows from
 * their rows. */
enum {
#define UNIT_ENUM(id, ...) UNIT_##id,
    ENCODINGS_WIDE(UNIT_ENUM)
#undef UNIT_ENUM
};
enum {
#define UNIT_SCALES_ENUM(id, ...) UNIT_SCALES_##id,
    SCALES_TABLE(UNIT_SCALES_ENUM)
#undef UNIT_SCALES_ENUM
};
enum {
    UNIT_TABLE_NONE,
    UNIT_TABLE_NL4,
    UNIT_TABLE_MX4,
    UNIT_TABLE_IQ3_XXS,
    UNIT_TABLE_IQ3_S,
    UNIT_TABLE_IQ21
};

template <int S> struct unit_scales_of;
#define UNIT_SCALES_ROW(id, outer, cols, bytes, min)                                \
    template <> struct unit_scales_of<UNIT_SCALES_##id> {                           \
        enum { OUTER = outer, INNER_COLUMNS = cols, INNER = bytes, HAS_MIN = min }; \
    };
SCALES_TABLE(UNIT_SCALES_ROW)

template <int E> struct unit_of;
#define UNIT_ROW_OF(id, name, cols, low, high, zero, scales, table, bulk) \
    template <> struct unit_of<UNIT_##id> {                               \
        enum {                                                            \
            OUTER_COLUMNS = cols,                                         \
            BITS = low,                                                   \
            IS_INT8 = UNIT_SCALES_##scales != UNIT_SCALES_NONE,           \
            HAS_NIBBLES = low <= 4 && high == 0,                          \
            KIND = UNIT_SCALES_##scales,                                  \
            TABLE = UNIT_TABLE_##table,                                   \
            BULK = bulk,                                                  \
        };                                                                \
        typedef unit_scales_of<KIND> scales_of;                           \
    };
ENCODINGS_WIDE(UNIT_ROW_OF)

#define UNIT_IS_INT8(E)     (unit_of<E>::IS_INT8 != 0)
#define UNIT_HAS_NIBBLES(E) (unit_of<E>::HAS_NIBBLES != 0)
#define UNIT_TABLE(E)       ((int)unit_of<E>::TABLE)
#define UNIT_KIND(E)        ((int)unit_of<E>::KIND)
#define UNIT_HAS_MIN(E)     (unit_of<E>::scales_of::HAS_MIN != 0)
#define UNIT_INNER(E)       ((int)unit_of<E>::scales_of::INNER_COLUMNS)
/* Have the two halves of a unit scales of their own? */
#define UNIT_HAS_HALVES(E) (UNIT_HAS_NIBBLES(E) && UNIT_INNER(E) == 16)
/* Is a minimum of 32 columns multiplied by the sum of their activations? */
#define UNIT_HAS_SUM(E) (UNIT_HAS_NIBBLES(E) && UNIT_HAS_MIN(E) && !UNIT_HAS_HALVES(E))
/* Columns of a unit, and words of four bytes that it becomes. */
#define UNIT_COLUMNS(E) \
    (UNIT_HAS_NIBBLES(E) ? 32 : UNIT_IS_INT8(E) ? 16 : 128 / (int)unit_of<E>::BITS)
#define UNIT_WORDS(E) (UNIT_HAS_NIBBLES(E) ? 8 : 4)

/* The tables of encodings, as bytes in the order of UNIT_TABLE_: values of IQ4_NL, of MXFP4
 * doubled, of IQ3_XXS, of IQ3_S, and of IQ2 followed by IQ1's. */
GPU_CONST(uint, units_tables, 20) = {
    0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, 0x03020100u, 0x0c080604u, 0xfdfeff00u,
    0xf4f8fafcu, 0xdcd4ccc2u, 0xfcf4ece4u, 0x1c140c04u, 0x3e342c24u, 0xf7f5f3f1u, 0xfffdfbf9u,
    0x07050301u, 0x0f0d0b09u, 0x08f8e7d5u, 0x00002b19u, 0x01fff9f7u, 0x00000907u};

GPU_FN uint units_lookup(uint4 table, uint nibbles)
{
    uint r = 0u;
    UNROLL
    for (uint i = 0u; i < 32u; i += 8u) {
        uint n = nibbles >> i & 15u;
        uint w = n < 8u ? (n < 4u ? table.x : table.y) : (n < 12u ? table.z : table.w);
        r |= (w >> (n % 4u * 8u) & 255u) << i;
    }
    return r;
}

/* The words of a quantised unit: columns 0..3, 4..7, ... */
template <int E> GPU_FN void unit_words(uint4 raw, THR(uint) w)
{
    w[0] = raw.x, w[1] = raw.y, w[2] = raw.z, w[3] = raw.w;
    if (UNIT_HAS_NIBBLES(E)) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[4 + i] = w[i] >> 4 & 0x0f0f0f0fu;
            w[i] &= 0x0f0f0f0fu;
        }
    }
    if (UNIT_TABLE(E) != UNIT_TABLE_NONE) {
        enum { AT = UNIT_TABLE(E) > 0 ? 4 * (UNIT_TABLE(E) - 1) : 0 };
        uint4 t = make_uint4(units_tables[AT], units_tables[AT + 1], units_tables[AT + 2],
                             units_tables[AT + 3]);
        UNROLL
        for (int i = 0; i < 8; i++) w[i] = units_lookup(t, w[i]);
    }
}

/* The same as unit_dot wants them: where dots are floats, nibbles that are numbers stay in place.
 */
#ifdef SIMT_FLOAT_DOTS
#define UNIT_STAYS(E) (UNIT_HAS_NIBBLES(E) && UNIT_TABLE(E) == UNIT_TABLE_NONE)
#else
#define UNIT_STAYS(E) 0
#endif
template <int E> GPU_FN void unit_dot_words(uint4 raw, THR(uint) w)
{
    if (UNIT_STAYS(E)) {
        w[0] = raw.x, w[1] = raw.y, w[2] = raw.z, w[3] = raw.w;
        w[4] = raw.x, w[5] = raw.y, w[6] = raw.z, w[7] = raw.w;
    } else {
        unit_words<E>(raw, w);
    }
}
template <int E> GPU_FN dot_sum unit_dot4(THR(const uint) w, THR(const uint) xq, int i, dot_sum sum)
{
    if (!UNIT_STAYS(E)) return dot4_i8(w[i], xq[i], sum);
    return i < 4 ? dot4_low(w[i], xq[i], sum) : dot4_high(w[i], xq[i], sum);
}

/* The scales of unit u of a row are one or two words, the outer one and the inner ones: of how many
 * bytes, and where they begin. */
#define UNIT_SCALES(E)    (UNIT_IS_INT8(E) ? 1 + (UNIT_INNER(E) > 0) : 0)
#define UNIT_OUTER(E)     ((int)unit_of<E>::scales_of::OUTER)
#define UNIT_PER_OUTER(E) /* units */                       \
    ((int)unit_of<E>::OUTER_COLUMNS > UNIT_COLUMNS(E)       \
         ? (int)unit_of<E>::OUTER_COLUMNS / UNIT_COLUMNS(E) \
         : 1)
#define UNIT_INNER_SIZE(E) ((int)unit_of<E>::scales_of::INNER)
#define UNIT_OUTER_STEP(E)                                                                      \
    (UNIT_OUTER(E) + (UNIT_INNER(E) > 0                                                         \
                          ? (int)unit_of<E>::OUTER_COLUMNS / UNIT_INNER(E) * UNIT_INNER_SIZE(E) \
                          : 0))
#define UNIT_SCALE_BYTES(E, i) \
    ((i) == 0 ? UNIT_OUTER(E) : UNIT_INNER_SIZE(E) * (UNIT_HAS_HALVES(E) ? 2 : 1))
/* Those of 32 units that follow each other in so many bytes travel together; 0: each for itself.
 * And words of a lane's queue for them. */
#define UNIT_ROW(E)   ((int)unit_of<E>::BULK ? 32 / UNIT_PER_OUTER(E) * UNIT_OUTER_STEP(E) : 0)
#define UNIT_QUEUE(E) (UNIT_ROW(E) > 0 ? 1 : UNIT_SCALES(E))
template <int E, int I> GPU_FN uint unit_scale_at(uint u)
{
    enum { PER = UNIT_PER_OUTER(E), STEP = UNIT_OUTER_STEP(E), INNER = UNIT_INNER(E) };
    enum { SHARE = INNER > UNIT_COLUMNS(E) ? INNER / UNIT_COLUMNS(E) : 1 }; /* units of a scale */
    uint at = u / (uint)PER * (uint)STEP;
    if (I == 0) return at;
    return at + (uint)UNIT_OUTER(E) + u % (uint)PER / (uint)SHARE * (uint)UNIT_SCALE_BYTES(E, 1);
}

template <int BYTES> GPU_FN uint unit_word(CONST(u8) s)
{
    CONST(u16) s16 = (CONST(u16))s;
    CONST(uint) s32 = (CONST(uint))s;
    if (BYTES == 4) return s32[0];
    if (BYTES == 2) return s16[0];
    return s[0];
}

/* They as they are stored. */
template <int E> GPU_FN uint2 unit_scale_bits(CONST(u8) s, uint u)
{
    uint x = 0u, y = 0u;
    if (UNIT_SCALES(E) > 0) x = unit_word<UNIT_SCALE_BYTES(E, 0)>(s + unit_scale_at<E, 0>(u));
    if (UNIT_SCALES(E) > 1) y = unit_word<UNIT_SCALE_BYTES(E, 1)>(s + unit_scale_at<E, 1>(u));
    return make_uint2(x, y);
}

/* The same by way of a lane's queue (simt.h). */
template <int E> GPU_FN void unit_send(CONST(uint4) q, CONST(u8) s, uint u, uint slot)
{
    enum { WORDS = UNIT_QUEUE(E) };
    queue_send_unit<WORDS>(slot, q + u);
    if (UNIT_ROW(E) > 0) return; /* matvec.h: those of a batch together */
    if (WORDS > 0) queue_send_word<WORDS>(slot, 0u, s + unit_scale_at<E, 0>(u));
    if (WORDS > 1) queue_send_word<WORDS>(slot, 1u, s + unit_scale_at<E, 1>(u));
}
template <int E> GPU_FN uint2 unit_take(CONST(u8) s, uint u, uint slot)
{
    enum { WORDS = UNIT_SCALES(E) }; /* UNIT_QUEUE is the same here */
    uint x = 0u, y = 0u;
    if (WORDS > 0)
        x = queue_word<WORDS, UNIT_SCALE_BYTES(E, 0)>(slot, 0u, s + unit_scale_at<E, 0>(u));
    if (WORDS > 1)
        y = queue_word<WORDS, UNIT_SCALE_BYTES(E, 1)>(slot, 1u, s + unit_scale_at<E, 1>(u));
    return make_uint2(x, y);
}

/* value = d[0]·n + d[1]; the last 16 columns of two halves: d[2]·n + d[3] */
template <int E> GPU_FN void unit_scales(uint2 bits, THR(float) d)
{
    d[1] = d[2] = d[3] = 0.0f;
    if (UNIT_KIND(E) == UNIT_SCALES_HALF) {
        d[0] = f16_to_f32((u16)bits.x);
    } else if (UNIT_KIND(E) == UNIT_SCALES_HALF_MIN) {
        float2 v = f16x2_to_f32(bits.x);
        d[0] = v.x, d[1] = v.y;
    } else if (UNIT_KIND(E) == UNIT_SCALES_FLOAT) {
        d[0] = as_float(bits.x);
    } else if (UNIT_KIND(E) == UNIT_SCALES_BY_16) {
        d[0] = f16_to_f32((u16)bits.x) * (float)(i8)bits.y;
    } else if (UNIT_KIND(E) == UNIT_SCALES_FLOAT_BY_16) {
        d[0] = as_float(bits.x) * (float)(i8)bits.y;
        d[2] = as_float(bits.x) * (float)(i8)(bits.y >> 8);
    } else {
        float2 v = f16x2_to_f32(bits.x);
        d[0] = v.x * (float)(bits.y & 255u), d[1] = -(v.y * (float)(bits.y >> 8 & 255u));
        if (UNIT_HAS_HALVES(E))
            d[2] = v.x * (float)(bits.y >> 16 & 255u), d[3] = -(v.y * (float)(bits.y >> 24));
    }
}

/* A dot of integers that begins at the bits of 1.5·2²³ ends as a float that is larger by that. */
#define UNIT_WHOLE 12582912.0f
#ifdef SIMT_FLOAT_DOTS
#define UNIT_MAGIC      0.0f
#define unit_float(dot) (dot)
#else
#define UNIT_MAGIC 0x4b400000
GPU_FN float unit_float(int dot)
{
    return as_float((uint)dot) - UNIT_WHOLE;
}
#endif

/* The same as unit_dot, where Σ xq is known. */
template <int E>
GPU_FN float unit_dot_summed(THR(const uint) w, THR(const float) d, THR(const uint) xq, float sum)
{
    dot_sum a = UNIT_MAGIC, b = 0;
    UNROLL
    for (int i = 0; i < 4; i++) {
        a = unit_dot4<E>(w, xq, i, a);
        b = unit_dot4<E>(w, xq, 4 + i, b);
    }
    return fmaf(d[0], unit_float(a + b), d[1] * sum);
}

/* Σ over the columns of a unit of weight·x, x = scale·xq, with xq the unit's words of activations.
 */
template <int E> GPU_FN float unit_dot(THR(const uint) w, THR(const float) d, THR(const uint) xq)
{
    dot_sum a = 0, b = 0, sa = 0, sb = 0;
    UNROLL
    for (int i = 0; i < 4; i++) {
        a = unit_dot4<E>(w, xq, i, a);
        if (UNIT_HAS_MIN(E)) sa = dot4_i8(0x01010101u, xq[i], sa);
    }
    if (UNIT_HAS_NIBBLES(E)) {
        UNROLL
        for (int i = 4; i < UNIT_WORDS(E); i++) {
            b = unit_dot4<E>(w, xq, i, b);
            if (UNIT_HAS_MIN(E)) sb = dot4_i8(0x01010101u, xq[i], sb);
        }
    }
    if (UNIT_HAS_HALVES(E))
        return fmaf(d[0], (float)a, fmaf(d[1], (float)sa, fmaf(d[2], (float)b, d[3] * (float)sb)));
    if (UNIT_HAS_MIN(E)) return fmaf(d[0], (float)(a + b), d[1] * (float)(sa + sb));
    return d[0] * (float)(a + b);
}

/* The values of a unit of floats. */
template <int E> GPU_FN void unit_floats(uint4 raw, THR(float) f)
{
    if (E == UNIT_F32) {
        f[0] = as_float(raw.x), f[1] = as_float(raw.y);
        f[2] = as_float(raw.z), f[3] = as_float(raw.w);
    } else {
        uint w[4];
        w[0] = raw.x, w[1] = raw.y, w[2] = raw.z, w[3] = raw.w;
        UNROLL
        for (int i = 0; i < 4; i++) {
            float2 v = E == UNIT_F16 ? f16x2_to_f32(w[i]) : bf16x2_to_f32(w[i]);
            f[2 * i] = v.x, f[2 * i + 1] = v.y;
        }
    }
}

/* All values of a unit, exactly as the file means them. */
template <int E> GPU_FN void unit_values(uint4 raw, uint2 bits, THR(float) f)
{
    if (!UNIT_IS_INT8(E)) {
        unit_floats<E>(raw, f);
        return;
    }
    uint w[8];
    float d[4];
    unit_words<E>(raw, w);
    unit_scales<E>(bits, d);
    UNROLL
    for (int i = 0; i < UNIT_COLUMNS(E); i++) {
        float n = (float)(i8)(w[i / 4] >> (i % 4 * 8));
        f[i] = UNIT_HAS_HALVES(E) && i >= 16 ? d[2] * n + d[3] : d[0] * n + d[1];
    }
}

/* Rounds four columns to a word of int8. The eight lanes around share a block of 32 columns and its
 * scale (quant/act.h). All lanes of the simdgroup take part. */
GPU_FN uint act_word(float4 x, THR(float) scale)
{
    /* Sizes in the order of their bits: unlike fmaxf this keeps NaN. */
    uint most = max(max(as_uint(fabsf(x.x)), as_uint(fabsf(x.y))),
                    max(as_uint(fabsf(x.z)), as_uint(fabsf(x.w))));
    UNROLL
    for (u16 m = 4; m > 0; m >>= 1) most = max(most, simd_shuffle_xor(most, m));
    float top = as_float(most);
    if (top < 1e-30f) top = 0.0f;
    float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    /* top / 127 in every bit (all mantissas were tried), in a fifth of the instructions; NaN where
     * top is infinite. */
    float near = top * (1.0f / 127.0f);
    *scale = fmaf(fmaf(-near, 127.0f, top), 1.0f / 127.0f, near);
    /* The low byte of such a float is that of the nearest integer. */
    uint a = as_uint(x.x * inverse + UNIT_WHOLE), b = as_uint(x.y * inverse + UNIT_WHOLE);
    uint c = as_uint(x.z * inverse + UNIT_WHOLE), d = as_uint(x.w * inverse + UNIT_WHOLE);
    return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24;
}

#endif
