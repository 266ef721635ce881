#include "quant/split.h"

#include <string.h>

#include "quant/bits.h"
#include "quant/tables.h"

/* n[i] = the bits of q[i] above shift, n quants of one strip. Plain loops over whole strips, so
 * that compilers make vectors of them. */
static inline void take_bits(u8 *restrict n, const u8 *restrict q, int count, int shift, int mask)
{
    for (int i = 0; i < count; i++) n[i] = (u8)(q[i] >> shift & mask);
}

/* n[i] += the bits of q[i] above shift, times scale. */
static inline void add_bits(u8 *restrict n, const u8 *restrict q, int count, int shift, int mask,
                            int scale)
{
    for (int i = 0; i < count; i++) n[i] = (u8)(n[i] + (q[i] >> shift & mask) * scale);
}

static inline void add_all(u8 *n, int count, int x)
{
    for (int i = 0; i < count; i++) n[i] = (u8)(n[i] + x);
}

static void split_32(enum qtype type, const u8 *b, struct quant_split *o)
{
    static const u8 nibbles_at[QT_COUNT] = {[QT_Q4_0] = 2, [QT_Q4_1] = 4,  [QT_Q5_0] = 6,
                                            [QT_Q5_1] = 8, [QT_MXFP4] = 1, [QT_IQ4_NL] = 2};
    o->d = bits_load16(b);
    o->e = type == QT_Q4_1 || type == QT_Q5_1 ? bits_load16(b + 2) : 0;
    if (type == QT_Q4_0) o->e = half_from_float(-8 * half_to_float(o->d));
    o->f = type == QT_MXFP4 ? quant_mxfp4_scale(b[0]) : half_to_float(o->d);
    o->s[0] = 1;
    if (type == QT_Q8_0) {
        memcpy(o->n, b + 2, 32);
        return;
    }
    take_bits(o->n, b + nibbles_at[type], 16, 0, 15);
    take_bits(o->n + 16, b + nibbles_at[type], 16, 4, 15);
    if (type == QT_Q5_0 || type == QT_Q5_1)
        for (int i = 0; i < 32; i++)
            o->n[i] = (u8)(o->n[i] | bits_fifth(b + (type == QT_Q5_0 ? 2 : 4), i));
    if (type == QT_Q5_0) add_all(o->n, 32, -16);
}

static void split_q4_k(const u8 *b, bool fifth, struct quant_split *o)
{
    const u8 *qh = b + 16, *qs = fifth ? b + 48 : b + 16;
    o->d = bits_load16(b);
    o->e = bits_load16(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        quant_unpack_k4(b + 4, j, &scale, &min);
        o->s[j] = (u8)scale;
        o->m[j] = (u8)min;
        take_bits(o->n + 32 * j, qs + 32 * (j / 2), 32, 4 * (j % 2), 15);
        if (fifth) add_bits(o->n + 32 * j, qh, 32, j, 1, 16);
    }
}

static void split_q2_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 80);
    o->e = bits_load16(b + 82);
    take_bits(o->s, b, 16, 0, 15);
    take_bits(o->m, b, 16, 4, 15);
    for (int j = 0; j < 8; j++) take_bits(o->n + 32 * j, b + 16 + 32 * (j / 4), 32, 2 * (j % 4), 3);
}

static void split_q3_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 108);
    for (int j = 0; j < 16; j++) o->s[j] = (u8)bits_q3_k_scale(b + 96, j);
    for (int j = 0; j < 8; j++) {
        take_bits(o->n + 32 * j, b + 32 + 32 * (j / 4), 32, 2 * (j % 4), 3);
        add_bits(o->n + 32 * j, b, 32, j, 1, 4);
    }
    add_all(o->n, 256, -4);
}

static void split_q6_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 208);
    memcpy(o->s, b + 192, 16);
    for (int j = 0; j < 8; j++) {
        take_bits(o->n + 32 * j, b + 64 * (j / 4) + 32 * (j % 2), 32, 4 * (j % 4 / 2), 15);
        add_bits(o->n + 32 * j, b + 128 + 32 * (j / 4), 32, 2 * (j % 4), 3, 16);
    }
    add_all(o->n, 256, -32);
}

static void split_iq4_xs(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b));
    for (int j = 0; j < 8; j++) {
        o->s[j] = (u8)bits_iq4_xs_scale(b, j);
        take_bits(o->n + 32 * j, b + 8 + 16 * j, 16, 0, 15);
        take_bits(o->n + 32 * j + 16, b + 8 + 16 * j, 16, 4, 15);
    }
}

/* Ternary types as K2 has them: 1·d·n - 1·d. */
static void split_ternary(enum qtype type, const u8 *b, struct quant_split *o)
{
    o->d = o->e = bits_load16(b + (type == QT_TQ1_0 ? 52 : 64));
    memset(o->s, 1, sizeof o->s);
    memset(o->m, 1, sizeof o->m);
    for (int i = 0; i < 256; i++)
        o->n[i] = (u8)(type == QT_TQ1_0 ? bits_tq1_0(b, i) : bits_low2(b, i));
}

/* d·n - d, n of one bit standing for 0 and 2, or of two bits. */
static void split_q1_0_q2_0(enum qtype type, const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b);
    o->e = o->d ^ 0x8000;
    if (type == QT_Q1_0)
        for (int i = 0; i < 128; i++) o->n[i] = (u8)((b[2 + i / 8] >> i % 8 & 1) * 2);
    else
        for (int i = 0; i < 64; i++) o->n[i] = b[2 + i / 4] >> i % 4 * 2 & 3;
}

void quant_split(enum qtype type, const u8 *block, struct quant_split *out)
{
    switch (type) {
    case QT_Q2_K: split_q2_k(block, out); break;
    case QT_Q3_K: split_q3_k(block, out); break;
    case QT_Q4_K: split_q4_k(block, false, out); break;
    case QT_Q5_K: split_q4_k(block, true, out); break;
    case QT_Q6_K: split_q6_k(block, out); break;
    case QT_IQ4_XS: split_iq4_xs(block, out); break;
    case QT_TQ1_0:
    case QT_TQ2_0: split_ternary(type, block, out); break;
    case QT_Q1_0:
    case QT_Q2_0: split_q1_0_q2_0(type, block, out); break;
    default:
        if (!quant_split_codebook(type, block, out)) split_32(type, block, out);
    }
}
