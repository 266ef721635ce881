/* Blocks taken apart into stored quants and scales, for executors that repack weights. The values
 * are those of quant_decode: v = scale·(n - zero) - min in the notation of each type. */
#ifndef FLETCH_SPLIT_H
#define FLETCH_SPLIT_H

#include "quant/quant.h"

struct quant_split {
    u8 n[256];       /* quants; signed (i8) for Q8_0, Q5_0, Q6_K and Q3_K; indices of a table */
    u16 d, e;        /* f16 bits: the block's scale, and its min (e = -8·d for Q4_0) */
    float f;         /* the scale of types with a table, times s of each sub-block */
    u8 s[16], m[16]; /* scales (i8 for Q6_K, Q3_K, types with a table) and mins of sub-blocks */
};

/* One block of a block type. */
void quant_split(enum qtype type, const u8 *block, struct quant_split *out);

#endif
