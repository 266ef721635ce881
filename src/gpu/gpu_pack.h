/* Weights as the kernels want them: two planes. The first holds quants (or floats) row after row,
 * each row a whole number of 16-byte units, so that a lane takes one unit with one load; the second
 * the scales that belong to the units. Every storage type maps exactly to one of the encodings of
 * quant/encoding.h:
 *
 *   encoding      a unit of the first plane              the second plane, per row
 *   F32           4 columns                              none
 *   F16, BF16     8 columns                              none
 *   I8            16 columns, signed                     [n/32] f16 d:          d·n
 *   U8            16 columns                             [n/32] f16 d, f16 m:   d·n + m
 *   U4            32 columns                             [n/32] f16 d, f16 m:   d·n + m
 *   NL4, MX4      32 columns                             [n/32] f32 d:          d·table[n]
 *   K4            32 columns                             [n/256] f16 d, f16 e, 8 × (u8 s, u8 m):
 *   K5            16 columns                                                    d·s·n - e·m
 *   K2            32 columns                             [n/256] f16 d, f16 e, 16 × (u8 s, u8 m)
 *   K6            16 columns, signed                     [n/256] f16 d, 16 × i8 s:   d·s·n
 *
 * 32 columns are nibbles two to a byte: byte i holds column i low and column 16 + i high.
 * Floats are padded to whole units with zeros. A matrix of up to six rows of a float type is kept
 * as F32, so that norms, biases and lerps can be read as plain vectors. */
#ifndef FLETCH_GPU_PACK_H
#define FLETCH_GPU_PACK_H

#include "core/program.h"
#include "quant/encoding.h"

struct planes {
    enum encoding enc;
    u32 q_row; /* 16-byte units per row */
    u32 s_row; /* bytes per row */
    u64 n_rows;
    u64 bytes[2]; /* of each plane, a multiple of 256 */
};

void planes_plan(struct planes *p, const struct weight *w);
u64 planes_bytes(const struct weight *w);
/* Where each weight lies: weights follow each other in buffers of at most `limit` bytes (a larger
 * weight has one of its own), so that kernels can find one from another. Returns how many buffers
 * there are; sizes ([n_weights]) may be NULL. */
struct weight_place {
    u32 chunk;
    u64 at; /* of the first plane; the second follows */
};
u32 planes_place(const struct net *net, u64 limit, struct weight_place *places, u64 *sizes);
/* That limit: 2 GiB, which every device allows, or as many units of 16 bytes as an argument of a
 * kernel can count, for devices whose launches walk over many layers; but no more than
 * device_caps.buffer where that is not 0. */
u64 planes_limit(bool large, u64 buffer);
/* Packs rows [begin, end), counted over all slices, to the start of q and of s. */
void planes_pack(const struct planes *p, const struct weight *w, u64 begin, u64 end, u8 *q, u8 *s);

#endif
