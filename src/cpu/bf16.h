/* Tiles of bf16 for matrix products, and the instructions TDPBF16PS, which multiplies two of them,
 * and VDPBF16PS, in lanes where there are none: equal in every bit. Included only by what is
 * compiled once for each instruction set.
 *
 * A tile holds 32 columns of 16 rows: [row][column] on the left side of a product,
 * [column/2][row][column%2] on the right. */
#ifndef FLETCH_CPU_BF16_H
#define FLETCH_CPU_BF16_H

#include "cpu/lanes.h"
#include "cpu/pack.h"

enum { TILE_VALUES = TILE * BLOCK }; /* 1 KiB */

/* 32 columns of a row of the left side, rounded to nearest even. */
INLINE void bf16_store(u16 *p, v16f lo, v16f hi)
{
#if defined __AVX512BF16__
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo));
#else
    v16i a = lanes_to_bf16(lo), b = lanes_to_bf16(hi);
    for (u32 j = 0; j < 16; j++) {
        p[j] = (u16)a[j];
        p[16 + j] = (u16)b[j];
    }
#endif
}

/* Two columns of the right side. */
INLINE void bf16_store_pairs(u16 *p, v16f even, v16f odd)
{
#if defined __AVX512BF16__
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, both));
#else
    v16i x = lanes_to_bf16(even) | lanes_to_bf16(odd) << 16;
    memcpy(p, &x, sizeof x);
#endif
}

/* sum += x·w over two columns as VDPBF16PS does it: the second, then the first. */
INLINE v16f bf16_add_pair(v16f sum, const u16 *x, v16i w)
{
#if defined __AVX512BF16__
    i32 pair;
    memcpy(&pair, x, sizeof pair);
    return (v16f)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)w);
#else
    sum = lanes_fma((v16f)(w & -65536), lanes_set(bf16_to_float(x[1])), sum);
    return lanes_fma((v16f)(w << 16), lanes_set(bf16_to_float(x[0])), sum);
#endif
}

#if defined __AMX_BF16__

/* All tiles are full. The compiler must see that the configuration is read: gcc 12's intrinsic lets
 * it drop the stores. */
INLINE void bf16_begin(void)
{
    const struct {
        u8 palette, start_row, reserved[14];
        u16 row_bytes[16];
        u8 rows[16];
    } full = {.palette = 1,
              .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
              .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(full));
}

INLINE void bf16_end(void)
{
    _tile_release();
}

#else

INLINE void bf16_begin(void) {}

INLINE void bf16_end(void) {}

/* sum += x·w over one block as TDPBF16PS does it: even and odd columns apart, then together. */
INLINE v16f bf16_add_block(v16f sum, const u16 *x, const u16 *w)
{
    v16f even = {0}, odd = {0};
    for (u32 i = 0; i < BLOCK; i += 2) {
        v16i pair;
        memcpy(&pair, w + (size_t)i * TILE, sizeof pair);
        even = lanes_fma((v16f)(pair << 16), lanes_set(bf16_to_float(x[i])), even);
        odd = lanes_fma((v16f)(pair & -65536), lanes_set(bf16_to_float(x[i + 1])), odd);
    }
    return sum + (even + odd);
}

#endif

#endif
