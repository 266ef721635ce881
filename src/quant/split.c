#include "quant/split.h"

#include "quant/bits.h"
#include "quant/tables.h"

static void split_32(enum qtype type, const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b);
    o->e = type == QT_Q4_1 || type == QT_Q5_1 ? bits_load16(b + 2) : 0;
    if (type == QT_Q4_0) o->e = half_from_float(-8 * half_to_float(o->d));
    o->f = type == QT_MXFP4 ? quant_mxfp4_scale(b[0]) : half_to_float(o->d);
    for (int i = 0; i < 32; i++) {
        switch (type) {
        case QT_Q8_0: o->n[i] = b[2 + i]; break;
        case QT_Q4_1: o->n[i] = (u8)bits_nibble(b + 4, i); break;
        case QT_Q5_0: o->n[i] = (u8)((bits_nibble(b + 6, i) | bits_fifth(b + 2, i)) - 16); break;
        case QT_Q5_1: o->n[i] = (u8)(bits_nibble(b + 8, i) | bits_fifth(b + 4, i)); break;
        case QT_MXFP4: o->n[i] = (u8)bits_nibble(b + 1, i); break;
        default: o->n[i] = (u8)bits_nibble(b + 2, i); break; /* Q4_0, IQ4_NL */
        }
    }
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
    }
    for (int i = 0; i < 256; i++)
        o->n[i] = (u8)(bits_low4(qs, i) | (fifth ? (qh[i % 32] >> (i / 32) & 1) << 4 : 0));
}

static void split_q2_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 80);
    o->e = bits_load16(b + 82);
    for (int j = 0; j < 16; j++) {
        o->s[j] = b[j] & 15;
        o->m[j] = b[j] >> 4;
    }
    for (int i = 0; i < 256; i++) o->n[i] = (u8)bits_low2(b + 16, i);
}

static void split_q3_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 108);
    for (int j = 0; j < 16; j++) o->s[j] = (u8)bits_q3_k_scale(b + 96, j);
    for (int i = 0; i < 256; i++) o->n[i] = (u8)bits_q3_k(b, b + 32, i);
}

static void split_q6_k(const u8 *b, struct quant_split *o)
{
    o->d = bits_load16(b + 208);
    for (int j = 0; j < 16; j++) o->s[j] = b[192 + j];
    for (int i = 0; i < 256; i++) o->n[i] = (u8)(bits_q6_k(b, b + 128, i) - 32);
}

static void split_iq4_xs(const u8 *b, struct quant_split *o)
{
    o->f = half_to_float(bits_load16(b));
    for (int j = 0; j < 8; j++) o->s[j] = (u8)bits_iq4_xs_scale(b, j);
    for (int i = 0; i < 256; i++) o->n[i] = (u8)bits_nibble(b + 8 + 16 * (i / 32), i % 32);
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
    default: split_32(type, block, out); break;
    }
}
