/* Where the bits of a quant are inside a file block; shared by decode.c and split.c. */
#ifndef FLETCH_BITS_H
#define FLETCH_BITS_H

#include "base/base.h"

static inline u16 bits_load16(const u8 *p)
{
    return (u16)(p[0] | p[1] << 8);
}

/* Quant i of a 32-element block: low nibbles first. */
static inline int bits_nibble(const u8 *qs, int i)
{
    return qs[i % 16] >> (4 * (i / 16)) & 15;
}

/* The fifth bit of quant i of a 32-element block, in place. */
static inline int bits_fifth(const u8 *qh, int i)
{
    return (qh[i / 8] >> (i % 8) & 1) << 4;
}

/* Two low bits and nibbles of a 256-element block: quants that lie 32 apart share a byte. */
static inline int bits_low2(const u8 *qs, int i)
{
    return qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static inline int bits_low4(const u8 *qs, int i)
{
    return qs[32 * (i / 64) + i % 32] >> (4 * (i % 64 / 32)) & 15;
}

/* Quant i (0..63) of Q6_K, quant i (-4..3) and scale j (-32..31) of Q3_K. */
static inline int bits_q6_k(const u8 *ql, const u8 *qh, int i)
{
    return (ql[64 * (i / 128) + i % 64] >> (4 * (i % 128 / 64)) & 15) | bits_low2(qh, i) << 4;
}

static inline int bits_q3_k(const u8 *hmask, const u8 *qs, int i)
{
    return bits_low2(qs, i) - (hmask[i % 32] >> (i / 32) & 1 ? 0 : 4);
}

static inline int bits_q3_k_scale(const u8 *scales, int j)
{
    int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
    return (low | (scales[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}

/* Scale j (-32..31) of IQ4_XS. */
static inline int bits_iq4_xs_scale(const u8 *b, int j)
{
    int low = b[4 + j / 2] >> (4 * (j % 2)) & 15;
    return (low | (bits_load16(b + 2) >> (2 * j) & 3) << 4) - 32;
}

/* Ternary digit i (0..2) of TQ1_0: bytes of five digits, the highest first, as fractions of 256; of
 * 32 bytes for 160 columns, 16 for 80 and 4 for the last 16, of which only four digits are used. */
static inline int bits_tq1_0(const u8 *b, int i)
{
    static const u8 power[5] = {1, 3, 9, 27, 81};
    int begin = i < 160 ? 0 : i < 240 ? 160 : 240, width = i < 160 ? 32 : i < 240 ? 16 : 4;
    int at = (i < 160 ? 0 : i < 240 ? 32 : 48) + (i - begin) % width;
    return (u8)(b[at] * power[(i - begin) / width]) * 3 >> 8;
}

#endif
