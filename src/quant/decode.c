/* From file blocks to floats, exactly as the formats define it: (d * scale) first, then times
 * the quant, then minus (dmin * min), each step rounded to float. This is the truth that packed
 * layouts and kernels are tested against, so it is written for reading. */
#include "quant/quant.h"
#include "quant/bits.h"
#include "quant/tables.h"

#include <string.h>

const i8 quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
const i8 quant_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float load_half(const u8 *p)
{
    return half_to_float(bits_load16(p));
}

static void decode_q8_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(i8)b[2 + i];
}

static void decode_q4_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(bits_nibble(b + 2, i) - 8);
}

static void decode_q4_1(const u8 *b, float *y)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * (float)bits_nibble(b + 4, i) + m;
}

static void decode_q5_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)((bits_nibble(b + 6, i) | bits_fifth(b + 2, i)) - 16);
}

static void decode_q5_1(const u8 *b, float *y)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(bits_nibble(b + 8, i) | bits_fifth(b + 4, i)) + m;
}

static void decode_iq4_nl(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)quant_iq4_values[bits_nibble(b + 2, i)];
}

float quant_mxfp4_scale(u8 e)
{
    u32 u = e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23; /* 2^(e-128); the first two subnormal */
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void decode_mxfp4(const u8 *b, float *y)
{
    float d = quant_mxfp4_scale(b[0]);
    for (int i = 0; i < 32; i++) y[i] = d * (float)quant_mxfp4_values[bits_nibble(b + 1, i)];
}

static void decode_q2_k(const u8 *b, float *y)
{
    const u8 *scales = b, *qs = b + 16;
    float d = load_half(b + 80), dmin = load_half(b + 82);
    for (int j = 0; j < 16; j++) {
        float s = d * (float)(scales[j] & 15), m = dmin * (float)(scales[j] >> 4);
        for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = s * (float)bits_low2(qs, i) - m;
    }
}

static void decode_q3_k(const u8 *b, float *y)
{
    const u8 *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = load_half(b + 108);
    for (int j = 0; j < 16; j++) {
        float s = d * (float)bits_q3_k_scale(scales, j);
        for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = s * (float)bits_q3_k(hmask, qs, i);
    }
}

void quant_unpack_k4(const u8 *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

static void decode_q4_k(const u8 *b, float *y)
{
    const u8 *qs = b + 16;
    float d = load_half(b), dmin = load_half(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        quant_unpack_k4(b + 4, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        for (int i = 32 * j; i < 32 * j + 32; i++) y[i] = s * (float)bits_low4(qs, i) - m;
    }
}

static void decode_q5_k(const u8 *b, float *y)
{
    const u8 *qh = b + 16, *qs = b + 48;
    float d = load_half(b), dmin = load_half(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        quant_unpack_k4(b + 4, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        for (int i = 32 * j; i < 32 * j + 32; i++)
            y[i] = s * (float)(bits_low4(qs, i) | (qh[i % 32] >> j & 1) << 4) - m;
    }
}

static void decode_q6_k(const u8 *b, float *y)
{
    const u8 *ql = b, *qh = b + 128, *scales = b + 192;
    float d = load_half(b + 208);
    for (int j = 0; j < 16; j++) {
        float s = d * (float)(i8)scales[j];
        for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = s * (float)(bits_q6_k(ql, qh, i) - 32);
    }
}

static void decode_iq4_xs(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int j = 0; j < 8; j++) {
        float s = d * (float)bits_iq4_xs_scale(b, j);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = s * (float)quant_iq4_values[bits_nibble(b + 8 + 16 * j, i)];
    }
}

static void decode_tq1_0(const u8 *b, float *y)
{
    float d = load_half(b + 52);
    for (int i = 0; i < 256; i++) y[i] = d * (float)(bits_tq1_0(b, i) - 1);
}

static void decode_tq2_0(const u8 *b, float *y)
{
    float d = load_half(b + 64);
    for (int i = 0; i < 256; i++) y[i] = d * (float)(bits_low2(b, i) - 1);
}

static void decode_q1_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 128; i++) y[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

static void decode_q2_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 64; i++) y[i] = d * (float)((b[2 + i / 4] >> i % 4 * 2 & 3) - 1);
}

static void decode_f32(const u8 *b, float *y)
{
    memcpy(y, b, sizeof *y);
}

static void decode_f16(const u8 *b, float *y)
{
    *y = load_half(b);
}

static void decode_bf16(const u8 *b, float *y)
{
    *y = bf16_to_float(bits_load16(b));
}

static void (*const decoders[QT_COUNT])(const u8 *b, float *y) = {
    [QT_F32] = decode_f32,     [QT_F16] = decode_f16,       [QT_BF16] = decode_bf16,
    [QT_Q8_0] = decode_q8_0,   [QT_Q4_0] = decode_q4_0,     [QT_Q4_1] = decode_q4_1,
    [QT_Q5_0] = decode_q5_0,   [QT_Q5_1] = decode_q5_1,     [QT_Q2_K] = decode_q2_k,
    [QT_Q3_K] = decode_q3_k,   [QT_Q4_K] = decode_q4_k,     [QT_Q5_K] = decode_q5_k,
    [QT_Q6_K] = decode_q6_k,   [QT_IQ4_NL] = decode_iq4_nl, [QT_IQ4_XS] = decode_iq4_xs,
    [QT_MXFP4] = decode_mxfp4, [QT_TQ1_0] = decode_tq1_0,   [QT_TQ2_0] = decode_tq2_0,
    [QT_Q1_0] = decode_q1_0,   [QT_Q2_0] = decode_q2_0,
};

void quant_decode(enum qtype type, const void *src, float *dst, u64 n)
{
    const struct quant_info *q = quant_info(type);
    CHECK(q && q->readable && n % q->blk == 0);
    const u8 *b = src;
    for (u64 i = 0; i < n; i += q->blk, b += q->bytes)
        decoders[type] ? decoders[type](b, dst + i) : quant_decode_codebook(type, b, dst + i);
}
