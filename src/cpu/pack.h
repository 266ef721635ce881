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
 *   K2            8 × (quants, 2 × 16 u8 s + 16·m), 16 f16 d, 16 f16 e */
struct packed {
    enum encoding enc;
    u32 n_in, n_out, n_slices;
    u32 n_tiles; /* of a slice; rows beyond n_out are zero */
    u64 tile_bytes, slice_bytes;
    u8 *data; /* aligned to 64 */
};

/* A quant is n + zero: its lowest bits in one plane, those above in another behind it. */
struct pack_bits {
    u32 low, high;
    i32 zero;
};

static inline struct pack_bits pack_bits(enum encoding enc)
{
    switch (enc) {
    case ENC_I8: return (struct pack_bits){8, 0, 0};
    case ENC_U8:
    case ENC_K5: return (struct pack_bits){4, 1, 0};
    case ENC_I5: return (struct pack_bits){4, 1, 16};
    case ENC_K6: return (struct pack_bits){4, 2, 32};
    case ENC_K3: return (struct pack_bits){2, 1, 4};
    case ENC_K2: return (struct pack_bits){2, 0, 0};
    default: return (struct pack_bits){4, 0, 0};
    }
}

/* Bytes of a block's quants, of a block with what follows them, and of a unit. */
static inline u32 pack_quants(enum encoding enc)
{
    return 64 * (pack_bits(enc).low + pack_bits(enc).high);
}

static inline u32 pack_block(enum encoding enc)
{
    bool wide = enc == ENC_U4 || enc == ENC_U8 || enc == ENC_NL4 || enc == ENC_MX4;
    return pack_quants(enc) + (wide ? 64 : 32);
}

static inline u32 pack_unit(enum encoding enc)
{
    if (enc == ENC_F32) return 64;
    if (enc == ENC_F16 || enc == ENC_BF16) return 32;
    if (encoding_info[enc].cols == BLOCK) return pack_block(enc);
    return 8 * pack_block(enc) + (enc == ENC_K6 || enc == ENC_K3 ? 32 : 64);
}

u64 pack_bytes(const struct weight *w);
/* Lays out p for w (data stays NULL). */
void pack_plan(struct packed *p, const struct weight *w);
/* Packs tiles [begin, end) over all slices. p->data is there. */
void pack_tiles(const struct packed *p, const struct weight *w, u64 begin, u64 end);
/* Row `row` of slice 0 as floats, from the packed form (embedding lookup). */
void pack_row(const struct packed *p, u32 row, float *dst);

#endif
