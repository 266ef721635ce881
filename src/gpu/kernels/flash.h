/* What attention of prompts' rows through matrix units is made of (flash.gpu, flash_latent.gpu):
 * queries and cached halves as floats in threadgroup memory, in blocks of 8 × 8 that follow each
 * other, and an online softmax. */
#ifndef KERNELS_FLASH_H
#define KERNELS_FLASH_H

#include "gpu/args.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

#define FLASH_NOTHING (-3.0e38f)

/* First unit of the cached row at position p of a slot. */
GPU_FN uint flash_place(DEV(const uint) tables, ARGS_IN(attention_args) a, uint slot, uint p)
{
    uint block = tables[slot * a.table_len + p / a.block_tokens];
    return (block * a.block_tokens + p % a.block_tokens) * a.row_units;
}

/* Eight columns of a row: the float4s of block `block` in its row `row`. */
GPU_FN void flash_put(TG(float4) tile, uint block, uint row, float4 low, float4 high)
{
    tile[block * 16u + row * 2u] = low;
    tile[block * 16u + row * 2u + 1u] = high;
}

/* The same of cached halves. */
GPU_FN void flash_put_halves(TG(float4) tile, uint block, uint row, uint4 u)
{
    float2 a = f16x2_to_f32(u.x), b = f16x2_to_f32(u.y), c = f16x2_to_f32(u.z),
           d = f16x2_to_f32(u.w);
    flash_put(tile, block, row, make_float4(a.x, a.y, b.x, b.y), make_float4(c.x, c.y, d.x, d.y));
}

/* A new largest score came: outputs so far times the factors in the diagonal of a matrix. Factors
 * of 1, the rule behind a few strides, need no product. */
GPU_FN mat8 flash_scale(mat8 factors, mat8 o)
{
    return mat_fma(factors, o, mat_zero());
}

/* An output: a zero has no sign, whose would depend on what other rows of the tile are scaled by.
 */
GPU_FN float flash_output(float o, float sum)
{
    return o / sum + 0.0f;
}

#endif
