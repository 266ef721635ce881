/* Packed weights: rows in tiles of 16, so that one vector holds one column of a tile, and columns
 * in blocks of 32, each with its scales. File types map exactly to a few encodings; kernels exist
 * per encoding only.
 *
 * Quants of a block are planes of 1, 2, 4 or 8 bits for each. A plane has 64 bytes for every bit,
 * byte [part][row][column % 4]; in a part, groups of 4 columns lie one above the other: group 0 in
 * the lowest bits of part 0. */
#ifndef FLETCH_PACK_H
#define FLETCH_PACK_H

#include "core/program.h"
#include "quant/encoding.h"

enum { TILE = 16, BLOCK = 32, SUPER = 256 };

/* A unit of an encoding (quant/encoding.h) holds the columns that share its outermost scale:
 *   F32 F16 BF16  [column][row]
 *   I8 I5         quants, 16 f16 d
 *   U4 U8         quants, 16 f16 d, 16 f16 m
 *   NL4 MX4       quants, 16 f32 d
 *   K4 K5         8 × (quants, 16 u8 s, 16 u8 m), 16 f16 d, 16 f16 e
 *   K6 K3         8 × (quants, 2 × 16 i8 s), 16 f16 d
 *   K2            8 × (quants, 2 × 16 u8 s + 16·m), 16 f16 d, 16 f16 e
 *   G1 G2 G3 G3S  8 × (quants, 2 × 16 i8 s), 16 f32 d */
struct packed {
    enum encoding enc;
    u32 n_in, n_out, n_slices;
    u32 n_tiles; /* of a slice; rows beyond n_out are zero */
    u64 tile_bytes, slice_bytes;
    u8 *data; /* aligned to 64 */
};

/* Bytes of a block's quants, of what follows them (scales of their own, or the inner ones; mins are
 * beside them), of a block, and of a unit. */
static inline u32 pack_quants(enum encoding enc)
{
    return 64 * (encoding_info[enc].low + encoding_info[enc].high);
}

static inline u32 pack_scales(enum encoding enc)
{
    struct scales_info s = encoding_scales(enc);
    if (encoding_info[enc].cols == BLOCK) return TILE * s.outer;
    /* K2 has a scale and its min in a byte */
    return TILE * (s.inner_cols == 16 ? 2 : s.inner);
}

static inline u32 pack_block(enum encoding enc)
{
    return pack_quants(enc) + pack_scales(enc);
}

static inline u32 pack_unit(enum encoding enc)
{
    u32 cols = encoding_info[enc].cols;
    if (cols == 1) return TILE * encoding_info[enc].low / 8;
    if (cols == BLOCK) return pack_block(enc);
    return 8 * pack_block(enc) + TILE * encoding_scales(enc).outer;
}

u64 pack_bytes(const struct weight *w);
/* Lays out p for w (data stays NULL). */
void pack_plan(struct packed *p, const struct weight *w);
/* Packs tiles [begin, end) over all slices. p->data is there. */
void pack_tiles(const struct packed *p, const struct weight *w, u64 begin, u64 end);
/* Row `row` of slice 0 as floats, from the packed form (embedding lookup). */
void pack_row(const struct packed *p, u32 row, float *dst);

#endif
