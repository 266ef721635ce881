/* Rounding of activations that meet block-quantised weights, for profiles that ask for it: blocks
 * of 32, q = nearest even of x·(127/max|x|), scale = max|x|/127. The scale of a block that holds
 * NaN or an infinity is NaN, so that it is noticed where logits are read. */
#ifndef FLETCH_ACT_H
#define FLETCH_ACT_H

#include "base/base.h"

enum { ACT_BLOCK = 32 };

/* n is a multiple of 32; scale has n/32 entries. */
void act_quantise(const float *x, i8 *q, float *scale, u32 n);
/* The values that q and scale stand for. */
void act_round(const float *x, float *y, u32 n);

/* Another rounding: every value to bf16, nearest even. */
void act_round_bf16(const float *x, float *y, u32 n);

#endif
