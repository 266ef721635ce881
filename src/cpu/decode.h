/* How kernels read packed tiles: what an encoding is made of, and the scales of a block. */
#ifndef FLETCH_DECODE_H
#define FLETCH_DECODE_H

#include "cpu/lanes.h"
#include "cpu/pack.h"

/* 64 stored quants: 16 rows of 4 columns. */
typedef u8 v64u __attribute__((vector_size(64)));

/* Sixteen entries for every 16 bytes of a vector. */
INLINE lanes_byte_part look_up(lanes_byte_part n, const i8 *table)
{
#if defined __AVX512BW__
    __m128i t;
    memcpy(&t, table, sizeof t);
    return (lanes_byte_part)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), (__m512i)n);
#elif defined __AVX2__
    __m128i t;
    memcpy(&t, table, sizeof t);
    return (lanes_byte_part)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)n);
#elif defined LANES_NEON
    return (lanes_byte_part)vqtbl1q_s8(vld1q_s8(table), (uint8x16_t)n);
#else
    for (int i = 0; i < 64; i++) n[i] = (u8)table[n[i]];
    return n;
#endif
}

/* What an encoding is made of, as constants that the compiler folds. */
struct shape {
    struct encoding_info bits;
    bool small; /* quants are stored unsigned and below 128 */
    bool by_16, has_min;
    const i8 *table;
};

INLINE struct shape shape_of(enum encoding enc)
{
    const struct encoding_info info = encoding_info[enc];
    return (struct shape){.bits = info,
                          .small = info.low < 8 && !info.table,
                          .by_16 = encoding_scales(enc).inner_cols == 16,
                          .has_min = encoding_scales(enc).has_min,
                          .table = info.table};
}

/* Group i of a plane of so many bits, moved to bit `to`. Sixteen bits are shifted at once: what
 * comes from a neighbour is beside the mask. */
INLINE lanes_byte_part bits_of(const u8 *plane, u32 i, u32 width, u32 to)
{
    typedef u16 pairs __attribute__((vector_size(sizeof(lanes_part))));
    u32 from = i * width % 8;
    lanes_byte_part v;
    memcpy(&v, plane + i * width / 8 * 64, sizeof v);
    if (width == 8) return v;
    pairs x = from > to ? (pairs)v >> (from - to) : (pairs)v << (to - from);
    return (lanes_byte_part)x & (u8)(((1 << width) - 1) << to);
}

/* Part p of group i of 4 columns of a block: what is stored, n + zero, or what a table has for it.
 */
INLINE lanes_byte_part group_part(const struct shape f, const u8 *quants, u32 i, u32 p)
{
    quants += p * sizeof(lanes_part);
    lanes_byte_part v = bits_of(quants, i, f.bits.low, 0);
    if (f.bits.high) v |= bits_of(quants + 64 * f.bits.low, i, f.bits.high, f.bits.low);
    return f.table ? look_up(v, f.table) : v;
}

/* The whole group. */
INLINE v64u group_of(const struct shape f, const u8 *quants, u32 i)
{
    v64u v;
    lanes_byte_part parts[LANES_PARTS];
    for (u32 p = 0; p < LANES_PARTS; p++) parts[p] = group_part(f, quants, i, p);
    memcpy(&v, parts, sizeof v);
    return v;
}

/* Block b of a tile: its quants, and scale and min of each half (equal unless by_16). */
struct scales {
    const u8 *quants;
    v16f s[2], m[2];
};

INLINE struct scales scales_of(enum encoding enc, const u8 *tile, u32 b)
{
    struct scales o;
    const u32 block = pack_block(enc);
    const enum scales_kind kind = encoding_info[enc].scales;
    const bool is_super = encoding_info[enc].cols == SUPER;
    const u8 *unit = is_super ? tile + (size_t)(b / 8) * pack_unit(enc) : tile;
    o.quants = unit + (size_t)(is_super ? b % 8 : b) * block;
    const u8 *s = o.quants + pack_quants(enc);
    if (kind == SCALES_FLOAT) {
        memcpy(&o.s[0], s, 64);
        o.s[1] = o.s[0];
        o.m[0] = o.m[1] = (v16f){0};
    } else if (!is_super) {
        o.s[0] = o.s[1] = lanes_half(s);
        o.m[0] = o.m[1] = kind == SCALES_HALF ? (v16f){0} : lanes_half(s + 32);
    } else {
        const bool is_float = kind == SCALES_FLOAT_BY_16;
        v16f d, e = {0};
        if (is_float)
            memcpy(&d, unit + 8 * block, sizeof d);
        else
            d = lanes_half(unit + 8 * block);
        if (scales_info[kind].has_min) e = -lanes_half(unit + 8 * block + 32);
        if (kind == SCALES_BY_16 || is_float) {
            o.s[0] = d * lanes_from_i8(s);
            o.s[1] = d * lanes_from_i8(s + 16);
            o.m[0] = o.m[1] = e;
        } else if (kind == SCALES_BY_16_MIN) {
            for (u32 h = 0; h < 2; h++) {
                typedef u8 v16b __attribute__((vector_size(16)));
                v16b both;
                memcpy(&both, s + 16 * h, sizeof both);
                v16b low = both & 15, high = both >> 4;
                o.s[h] = d * lanes_from_u8((const u8 *)&low);
                o.m[h] = e * lanes_from_u8((const u8 *)&high);
            }
        } else {
            o.s[0] = o.s[1] = d * lanes_from_u8(s);
            o.m[0] = o.m[1] = e * lanes_from_u8(s + 16);
        }
    }
    return o;
}

#endif
