/* From file blocks to floats, exactly as the formats define it: (d * scale) first, then times
 * the quant, then minus (dmin * min), each step rounded to float. This is the truth that packed
 * layouts and kernels are tested against, so it is written for reading. */
#include "quant/quant.h"
#include "quant/tables.h"

#include <string.h>

const i8 quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
const i8 quant_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static u16 load16(const u8 *p)
{
    return (u16)(p[0] | p[1] << 8);
}

static float load_half(const u8 *p)
{
    return half_to_float(load16(p));
}

/* Quant i of a 32-element block: low nibbles first. */
static int nibble(const u8 *qs, int i)
{
    return qs[i % 16] >> (4 * (i / 16)) & 15;
}

/* The fifth bit of quant i, in place. */
static int fifth(const u8 *qh, int i)
{
    return (qh[i / 8] >> (i % 8) & 1) << 4;
}

static void decode_q8_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(i8)b[2 + i];
}

static void decode_q4_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(nibble(b + 2, i) - 8);
}

static void decode_q4_1(const u8 *b, float *y)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * (float)nibble(b + 4, i) + m;
}

static void decode_q5_0(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
}

static void decode_q5_1(const u8 *b, float *y)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(nibble(b + 8, i) | fifth(b + 4, i)) + m;
}

static void decode_iq4_nl(const u8 *b, float *y)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)quant_iq4_values[nibble(b + 2, i)];
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
    for (int i = 0; i < 32; i++) y[i] = d * (float)quant_mxfp4_values[nibble(b + 1, i)];
}

/* Two low bits and nibbles of a 256-element block: quants that lie 32 apart share a byte. */
static int low2(const u8 *qs, int i)
{
    return qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static int low4(const u8 *qs, int i)
{
    return qs[32 * (i / 64) + i % 32] >> (4 * (i % 64 / 32)) & 15;
}

static void decode_q2_k(const u8 *b, float *y)
{
    const u8 *scales = b, *qs = b + 16;
    float d = load_half(b + 80), dmin = load_half(b + 82);
    for (int j = 0; j < 16; j++) {
        float s = d * (float)(scales[j] & 15), m = dmin * (float)(scales[j] >> 4);
        for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = s * (float)low2(qs, i) - m;
    }
}

static void decode_q3_k(const u8 *b, float *y)
{
    const u8 *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = load_half(b + 108);
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        int high = scales[8 + j % 4] >> (2 * (j / 4)) & 3;
        float s = d * (float)((low | high << 4) - 32);
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            int set = hmask[i % 32] >> (i / 32) & 1;
            y[i] = s * (float)(low2(qs, i) - (set ? 0 : 4));
        }
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
        for (int i = 32 * j; i < 32 * j + 32; i++) y[i] = s * (float)low4(qs, i) - m;
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
            y[i] = s * (float)(low4(qs, i) | (qh[i % 32] >> j & 1) << 4) - m;
    }
}

static void decode_q6_k(const u8 *b, float *y)
{
    const u8 *ql = b, *qh = b + 128, *scales = b + 192;
    float d = load_half(b + 208);
    for (int j = 0; j < 16; j++) {
        float s = d * (float)(i8)scales[j];
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            int low = ql[64 * (i / 128) + i % 64] >> (4 * (i % 128 / 64)) & 15;
            y[i] = s * (float)((low | low2(qh, i) << 4) - 32);
        }
    }
}

static void decode_iq4_xs(const u8 *b, float *y)
{
    const u8 *scales_l = b + 4, *qs = b + 8;
    int scales_h = load16(b + 2);
    float d = load_half(b);
    for (int j = 0; j < 8; j++) {
        int low = scales_l[j / 2] >> (4 * (j % 2)) & 15, high = scales_h >> (2 * j) & 3;
        float s = d * (float)((low | high << 4) - 32);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = s * (float)quant_iq4_values[nibble(qs + 16 * j, i)];
    }
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
    *y = bf16_to_float(load16(b));
}

static void (*const decoders[QT_COUNT])(const u8 *b, float *y) = {
    [QT_F32] = decode_f32,     [QT_F16] = decode_f16,       [QT_BF16] = decode_bf16,
    [QT_Q8_0] = decode_q8_0,   [QT_Q4_0] = decode_q4_0,     [QT_Q4_1] = decode_q4_1,
    [QT_Q5_0] = decode_q5_0,   [QT_Q5_1] = decode_q5_1,     [QT_Q2_K] = decode_q2_k,
    [QT_Q3_K] = decode_q3_k,   [QT_Q4_K] = decode_q4_k,     [QT_Q5_K] = decode_q5_k,
    [QT_Q6_K] = decode_q6_k,   [QT_IQ4_NL] = decode_iq4_nl, [QT_IQ4_XS] = decode_iq4_xs,
    [QT_MXFP4] = decode_mxfp4,
};

void quant_decode(enum qtype type, const void *src, float *dst, u64 n)
{
    const struct quant_info *q = quant_info(type);
    CHECK(q && q->readable && n % q->blk == 0);
    const u8 *b = src;
    for (u64 i = 0; i < n; i += q->blk, b += q->bytes) decoders[type](b, dst + i);
}
