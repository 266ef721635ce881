/* Blocks of the IQ1, IQ2 and IQ3 types: eight or four columns at a time are an entry of a codebook,
 * with signs (or a shift, IQ1) beside it. Here they are taken apart into indices of small tables of
 * signed values and scales of 16 columns: value = (f·s)·table[n], both products exact.
 *
 * IQ2: magnitudes 8, 25, 43. IQ3_XXS: 4, 12, .. 52, 62; IQ3_S: 1, 3, .. 15. IQ1: eight times a
 * ternary value, plus or minus 1. */
#include <string.h>

#include "quant/bits.h"
#include "quant/codebooks.h"
#include "quant/split.h"
#include "quant/tables.h"

const i8 quant_iq2_values[16] = {-43, -25, -8, 8, 25, 43};
const i8 quant_iq1_values[16] = {-9, -7, -1, 1, 7, 9};
const i8 quant_iq21_values[16] = {-43, -25, -8, 8, 25, 43, 0, 0, -9, -7, -1, 1, 7, 9};
const i8 quant_iq3_xxs_values[16] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                     4,   12,  20,  28,  36,  44,  52,  62};
const i8 quant_iq3_s_values[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};

static u32 load32(const u8 *p)
{
    return bits_load16(p) | (u32)bits_load16(p + 2) << 16;
}

/* The signs of eight columns from seven bits: the eighth makes their number even. */
static u32 even_signs(u32 seven)
{
    u32 odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

/* Eight columns of IQ2: an entry and a bit for each sign. */
static void put_iq2(u8 *n, u32 entry, u32 signs)
{
    for (int i = 0; i < 8; i++) {
        u32 digit = entry >> 2 * i & 3;
        n[i] = (u8)(signs >> i & 1 ? 2 - digit : 3 + digit);
    }
}

/* Four columns of IQ3. */
static void put_iq3(u8 *n, u32 entry, u32 signs)
{
    for (int i = 0; i < 4; i++) {
        u32 digit = entry >> 3 * i & 7;
        n[i] = (u8)(signs >> i & 1 ? 7 - digit : 8 + digit);
    }
}

/* Eight columns of IQ1: 8·value - 1 where `below`, else 8·value + 1. Its table begins at 8 of
 * quant_iq21_values, and the low three bits are an index of quant_iq1_values. */
static void put_iq1(u8 *n, u32 entry, bool below)
{
    for (int i = 0; i < 8; i++) n[i] = (u8)(8 + 2 * (entry >> 2 * i & 3) + !below);
}

static void split_iq2_xxs(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b)) / 8;
    for (int j = 0; j < 8; j++) {
        const u8 *q = b + 2 + 8 * j;
        u32 rest = load32(q + 4);
        o->s[2 * j] = o->s[2 * j + 1] = (u8)(2 * (rest >> 28) + 1);
        for (int l = 0; l < 4; l++)
            put_iq2(o->n + 32 * j + 8 * l, codebook_iq2_xxs[q[l]], even_signs(rest >> 7 * l & 127));
    }
}

/* Scales of four bits for each 16 columns. */
static void split_nibble_scales(const u8 *scales, struct quant_split *o)
{
    for (int j = 0; j < 16; j++) o->s[j] = (u8)(2 * (scales[j / 2] >> 4 * (j % 2) & 15) + 1);
}

static void split_iq2_xs(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b)) / 8;
    split_nibble_scales(b + 66, o);
    for (int l = 0; l < 32; l++) {
        u32 q = bits_load16(b + 2 + 2 * l);
        put_iq2(o->n + 8 * l, codebook_iq2_xs[q & 511], even_signs(q >> 9));
    }
}

static void split_iq2_s(const u8 *b, struct quant_split *o)
{
    const u8 *qs = b + 2, *signs = b + 34, *qh = b + 66;
    o->f = half_to_float(bits_load16(b)) / 8;
    split_nibble_scales(b + 74, o);
    for (int l = 0; l < 32; l++) {
        u32 high = qh[l / 4] >> 2 * (l % 4) & 3;
        put_iq2(o->n + 8 * l, codebook_iq2_s[qs[l] | high << 8], signs[l]);
    }
}

static void split_iq3_xxs(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b)) / 4;
    for (int j = 0; j < 8; j++) {
        u32 rest = load32(b + 66 + 4 * j);
        o->s[2 * j] = o->s[2 * j + 1] = (u8)(2 * (rest >> 28) + 1);
        for (int l = 0; l < 8; l++) {
            u32 signs = even_signs(rest >> 7 * (l / 2) & 127) >> 4 * (l % 2);
            put_iq3(o->n + 32 * j + 4 * l, codebook_iq3_xxs[b[2 + 8 * j + l]], signs);
        }
    }
}

static void split_iq3_s(const u8 *b, struct quant_split *o)
{
    const u8 *qs = b + 2, *qh = b + 66, *signs = b + 74, *scales = b + 106;
    o->f = half_to_float(bits_load16(b));
    for (int j = 0; j < 16; j++) o->s[j] = (u8)(2 * (scales[j / 4] >> 4 * (j / 2 % 2) & 15) + 1);
    for (int l = 0; l < 64; l++) {
        u32 high = qh[l / 8] >> l % 8 & 1;
        put_iq3(o->n + 4 * l, codebook_iq3_s[qs[l] | high << 8], signs[l / 2] >> 4 * (l % 2));
    }
}

static void split_iq1_s(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b)) / 8;
    for (int j = 0; j < 8; j++) {
        u32 qh = bits_load16(b + 34 + 2 * j);
        o->s[2 * j] = o->s[2 * j + 1] = (u8)(2 * (qh >> 12 & 7) + 1);
        for (int l = 0; l < 4; l++) {
            u32 entry = b[2 + 4 * j + l] | (qh >> 3 * l & 7) << 8;
            put_iq1(o->n + 32 * j + 8 * l, codebook_iq1[entry], qh >> 15);
        }
    }
}

/* The half d lies in the four highest bits of four words, below them scales of three bits. */
static void split_iq1_m(const u8 *b, struct quant_split *o)
{
    const u8 *qh = b + 32, *scales = b + 48;
    u32 d = 0;
    for (int i = 0; i < 4; i++) d |= (u32)(bits_load16(scales + 2 * i) >> 12) << 4 * i;
    o->f = half_to_float((u16)d) / 8;
    for (int j = 0; j < 16; j++)
        o->s[j] = (u8)(2 * (bits_load16(scales + j / 4 * 2) >> 3 * (j % 4) & 7) + 1);
    for (int l = 0; l < 32; l++) {
        u32 high = qh[l / 2] >> 4 * (l % 2);
        put_iq1(o->n + 8 * l, codebook_iq1[b[l] | (high & 7) << 8], high >> 3 & 1);
    }
}

const i8 *quant_split_codebook(enum qtype type, const u8 *b, struct quant_split *o)
{
    switch (type) {
    case QT_IQ1_S: split_iq1_s(b, o); return quant_iq21_values;
    case QT_IQ1_M: split_iq1_m(b, o); return quant_iq21_values;
    case QT_IQ2_XXS: split_iq2_xxs(b, o); return quant_iq21_values;
    case QT_IQ2_XS: split_iq2_xs(b, o); return quant_iq21_values;
    case QT_IQ2_S: split_iq2_s(b, o); return quant_iq21_values;
    case QT_IQ3_XXS: split_iq3_xxs(b, o); return quant_iq3_xxs_values;
    case QT_IQ3_S: split_iq3_s(b, o); return quant_iq3_s_values;
    default: return NULL;
    }
}

void quant_decode_codebook(enum qtype type, const u8 *b, float *y)
{
    struct quant_split o;
    const i8 *values = quant_split_codebook(type, b, &o);
    for (int i = 0; i < 256; i++) y[i] = o.f * (float)o.s[i / 16] * (float)values[o.n[i]];
}
