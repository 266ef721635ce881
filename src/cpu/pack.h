/* Packed weights: rows in tiles of 16, so that one vector holds one column of a tile, and columns
 * in blocks of 32, each with its scales. File types map exactly to a few encodings; kernels exist
 * per encoding only.
 *
 * Quants of a block are groups of 4 columns: byte [column / 4][row][column % 4], 512 bytes; with
 * two to a byte, 256 bytes: groups 2j in the low and 2j + 1 in the high nibbles of part j. */
#ifndef FLETCH_PACK_H
#define FLETCH_PACK_H

#include "core/program.h"

enum { TILE = 16, BLOCK = 32, SUPER = 256 };

/*  X(ID, name, columns per unit, bytes per unit of a tile)
 *  value of a weight, n its stored quant: */
#define ENCODING_TABLE(X)                                                                        \
    X(F32, 1, 64)    /* n: [column][row] f32 */                                                  \
    X(F16, 1, 32)    /* likewise f16 */                                                          \
    X(BF16, 1, 32)   /* likewise bf16 */                                                         \
    X(I8, 32, 544)   /* d·n, n signed: quants, 16 f16 d */                                      \
    X(U4, 32, 320)   /* d·n + m: nibbles, 16 f16 d, 16 f16 m */                                 \
    X(U8, 32, 576)   /* d·n + m: quants, 16 f16 d, 16 f16 m */                                  \
    X(NL4, 32, 320)  /* d·T[n], T of IQ4_NL: nibbles, 16 f32 d */                               \
    X(MX4, 32, 320)  /* d·M[n], M of MXFP4: nibbles, 16 f32 d */                                \
    X(K4, 256, 2368) /* d·s·n - e·m: 8 × (nibbles, 16 u8 s, 16 u8 m), 16 f16 d, 16 f16 e */  \
    X(K5, 256, 4416) /* likewise with quants of a byte */                                        \
    X(K6, 256, 4384) /* d·s·n, both signed, s per 16: 8 × (quants, 2 × 16 i8 s), 16 f16 d */ \
    X(K2, 256, 2624) /* d·s·n - e·m per 16: 8 × (nibbles, 2 × 16 u8 s, 2 × 16 u8 m), d, e */

enum encoding {
#define ENCODING_ENUM(id, cols, bytes) ENC_##id,
    ENCODING_TABLE(ENCODING_ENUM)
#undef ENCODING_ENUM
        ENC_COUNT
};

struct packed {
    enum encoding enc;
    u32 n_in, n_out, n_slices;
    u32 n_tiles; /* of a slice; rows beyond n_out are zero */
    u64 tile_bytes, slice_bytes;
    u8 *data; /* aligned to 64 */
};

/* The encoding of a storage type. */
enum encoding pack_encoding(enum qtype type);
/* Does it multiply int8 activations? */
bool pack_is_int8(enum encoding enc);
u64 pack_bytes(const struct weight *w);
/* Lays out p for w (data stays NULL). */
void pack_plan(struct packed *p, const struct weight *w);
/* Packs tiles [begin, end) over all slices. p->data is there. */
void pack_tiles(const struct packed *p, const struct weight *w, u64 begin, u64 end);
/* Row `row` of slice 0 as floats, from the packed form (embedding lookup). */
void pack_row(const struct packed *p, u32 row, float *dst);

#endif
