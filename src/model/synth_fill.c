/* Random blocks: quants are random bits as they come, scales are chosen so that weights have the
 * asked-for spread. No float is rounded to a block, so a file is made about as fast as it can be
 * written. */
#include <math.h>
#include <string.h>

#include "model/synth.h"

/* The i-th of a stream of 64 random bits: a counter and a mixer (splitmix64), so that any thread
 * can start anywhere. */
static u64 bits_at(u64 seed, u64 i)
{
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { WORDS = 34 }; /* the largest block, 210 bytes, and eight for its scales */

static void put_half(u8 *p, float f)
{
    u16 h = half_from_float(f);
    memcpy(p, &h, sizeof h);
}

/* Eight pairs of six bits in the layout of Q4_K and Q5_K. scale = min, at least 32. */
static void put_k4_scales(u8 *s, const u8 *random)
{
    for (int j = 0; j < 4; j++) {
        u8 low = (u8)(32 | (random[j] & 31)), high = (u8)(32 | (random[j + 4] & 31));
        s[j] = s[j + 4] = (u8)(low | (high >> 4) << 6);
        s[j + 8] = (u8)((high & 15) | (high & 15) << 4);
    }
}

/* Types whose other bits may be anything: where the scale is, and the root mean square of random
 * blocks whose scale is 1. */
static const struct scaled {
    enum qtype type;
    u32 d_at;
    float rms;
} scaled[] = {{QT_IQ1_S, 0, 7.18f},   {QT_IQ2_XXS, 0, 53.2f},  {QT_IQ2_XS, 0, 55.5f},
              {QT_IQ2_S, 0, 55.9f},   {QT_IQ3_XXS, 0, 140.2f}, {QT_IQ3_S, 0, 140.7f},
              {QT_TQ1_0, 52, 0.818f}, {QT_TQ2_0, 64, 0.707f},  {QT_Q1_0, 0, 1},
              {QT_Q2_0, 0, 0.707f}};

/* IQ1_M's scale lies in the four highest bits of four words. */
static void put_iq1_m_scale(u8 *words, float d)
{
    u16 h = half_from_float(d);
    for (int i = 0; i < 4; i++)
        words[2 * i + 1] = (u8)((words[2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
}

/* Quants of two bits that are 3 become 1, which stands for zero: as many are below it as above. */
static void balance_pairs(u8 *b, u32 n)
{
    for (u32 i = 0; i < n; i++) b[i] &= (u8) ~(b[i] << 1 & 0xaa);
}

/* b holds random bytes; r eight more. std: of the weights. Even quants over n steps have a
 * standard deviation of sqrt((n² - 1) / 12) steps. */
static void tame_block(enum qtype type, float std, const u8 *r, u8 *b)
{
    const float std2 = 1.118f, std3 = 2.35f, std4 = 4.61f, std5 = 9.23f, std6 = 18.47f,
                std8 = 73.3f;
    /* root mean squares: of the scales below, and of the values in tables */
    const float k2_scale = 8.8f, k4_scale = 48.3f, q6_scale = 66.1f, iq4 = 67.4f, mxfp4 = 5.85f;
    const struct scaled *s = scaled;
    switch (type) {
    case QT_Q8_0:
        put_half(b, std / std8);
        for (int i = 2; i < 34; i++) b[i] = b[i] == 0x80 ? 0x81 : b[i]; /* no encoder writes -128 */
        break;
    case QT_Q4_0: put_half(b, std / std4); break;
    case QT_Q4_1:
        put_half(b, std / std4);
        put_half(b + 2, -7.5f * std / std4);
        break;
    case QT_Q5_0: put_half(b, std / std5); break;
    case QT_Q5_1:
        put_half(b, std / std5);
        put_half(b + 2, -15.5f * std / std5);
        break;
    case QT_IQ4_NL: put_half(b, std / iq4); break;
    case QT_IQ4_XS: put_half(b, std / (iq4 * std6)); break; /* scales of six bits */
    case QT_MXFP4: b[0] = (u8)(128 + (int)lroundf(log2f(std / mxfp4))); break;
    case QT_Q2_K:
        for (int j = 0; j < 16; j++) b[j] = (u8)((b[j] & 15) | (b[j] & 15) << 4); /* min = scale */
        put_half(b + 80, std / (std2 * k2_scale));
        put_half(b + 82, 1.5f * std / (std2 * k2_scale));
        break;
    case QT_Q3_K: put_half(b + 108, std / (std3 * std6)); break;
    case QT_Q4_K:
        put_half(b, std / (std4 * k4_scale));
        put_half(b + 2, 7.5f * std / (std4 * k4_scale));
        put_k4_scales(b + 4, r);
        break;
    case QT_Q5_K:
        put_half(b, std / (std5 * k4_scale));
        put_half(b + 2, 15.5f * std / (std5 * k4_scale));
        put_k4_scales(b + 4, r);
        break;
    case QT_Q6_K:
        for (int j = 0; j < 16; j++) b[192 + j] = (u8)(32 + (b[192 + j] & 63));
        put_half(b + 208, std / (std6 * q6_scale));
        break;
    case QT_IQ1_M: put_iq1_m_scale(b + 48, std / 7.25f); break;
    default:
        if (type == QT_TQ2_0) balance_pairs(b, 64);
        if (type == QT_Q2_0) balance_pairs(b + 2, 16);
        while (s->type != type) CHECK(++s < scaled + ARRAY_LEN(scaled));
        put_half(b + s->d_at, std / s->rms);
    }
}

static void fill_blocks(enum qtype type, u64 seed, float std, u64 first, u64 n, u8 *dst)
{
    const u32 bytes = quant_info(type)->bytes;
    for (u64 i = 0; i < n; i++) {
        u64 r[WORDS];
        u32 n_words = bytes / 8 + 2;
        for (u32 j = 0; j < n_words; j++) r[j] = bits_at(seed, (first + i) * WORDS + j);
        memcpy(dst + i * bytes, r, bytes);
        tame_block(type, std, (const u8 *)&r[n_words - 1], dst + i * bytes);
    }
}

/* A half of a normal float of its range, cut off; smaller ones become 0. half_from_float rounds
 * and knows every case, at a fifth of the speed. */
static u16 cut_half(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    u32 sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    return (u16)(sign | (mag < 113u << 23 ? 0 : (mag - (112u << 23)) >> 13));
}

static u16 cut_bf16(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return (u16)(u >> 16);
}

static void fill_floats(enum qtype type, u64 seed, struct synth_range range, u64 first, u64 n,
                        u8 *dst)
{
    const float step = range.spread / 32768;
    for (u64 i = 0; i < n;) { /* four values from each word of random bits */
        u64 k = (first + i) % 4, r = bits_at(seed, (first + i) / 4) >> 16 * k;
        for (; k < 4 && i < n; k++, i++, r >>= 16) {
            float f = range.center + step * (float)(i16)r;
            u16 h = type == QT_F16 ? cut_half(f) : cut_bf16(f);
            if (type == QT_F32)
                memcpy(dst + 4 * i, &f, 4);
            else
                memcpy(dst + 2 * i, &h, 2);
        }
    }
}

void synth_fill(enum qtype type, u64 seed, struct synth_range range, u64 first, u64 n, u8 *dst)
{
    if (quant_info(type)->blk == 1)
        fill_floats(type, seed, range, first, n, dst);
    else
        fill_blocks(type, seed, range.spread / sqrtf(3), first, n, dst);
}
