/* Packed weights: rows in tiles of 16, so that one vector holds one column of a tile, and columns
 * in blocks of 32, each with its scales. File types map exactly to a few encodings; kernels exist
 * per encoding only.
 *
 * Quants of a block are groups of 4 columns: byte [column / 4][row][column % 4], 512 bytes; with
 * two to a byte, 256 bytes: groups 2j in the low and 2j + 1 in the high nibbles of part j. */
#ifndef FLETCH_PACK_H
#define FLETCH_PACK_H

#include "core/program.h"
#include "quant/encoding.h"

enum { TILE = 16, BLOCK = 32, SUPER = 256 };

/* A unit of an encoding (quant/encoding.h) holds the columns that share its outermost scale:
 *   F32 F16 BF16  [column][row]
 *   I8            quants, 16 f16 d
 *   U4 U8         quants, 16 f16 d, 16 f16 m
 *   NL4 MX4       nibbles, 16 f32 d
 *   K4 K5         8 × (quants, 16 u8 s, 16 u8 m), 16 f16 d, 16 f16 e
 *   K6            8 × (quants, 2 × 16 i8 s), 16 f16 d
 *   K2            8 × (nibbles, 2 × 16 u8 s, 2 × 16 u8 m), 16 f16 d, 16 f16 e */
struct packed {
    enum encoding enc;
    u32 n_in, n_out, n_slices;
    u32 n_tiles; /* of a slice; rows beyond n_out are zero */
    u64 tile_bytes, slice_bytes;
    u8 *data; /* aligned to 64 */
};

u64 pack_bytes(const struct weight *w);
/* Lays out p for w (data stays NULL). */
void pack_plan(struct packed *p, const struct weight *w);
/* Packs tiles [begin, end) over all slices. p->data is there. */
void pack_tiles(const struct packed *p, const struct weight *w, u64 begin, u64 end);
/* Row `row` of slice 0 as floats, from the packed form (embedding lookup). */
void pack_row(const struct packed *p, u32 row, float *dst);

#endif
