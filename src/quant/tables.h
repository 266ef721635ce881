/* What decode.c and encode.c share: value tables and the packing of six-bit scales. */
#ifndef FLETCH_QUANT_TABLES_H
#define FLETCH_QUANT_TABLES_H

#include "base/base.h"

extern const i8 quant_iq4_values[16];   /* IQ4_NL, IQ4_XS; ascending */
extern const i8 quant_mxfp4_values[16]; /* E2M1, doubled */

float quant_mxfp4_scale(u8 e); /* 2^(e-128): half of E8M0, for the doubled table */

/* Scale and min j of Q4_K and Q5_K: 2 x 8 values of six bits in 12 bytes. */
void quant_unpack_k4(const u8 *s, int j, int *scale, int *min);

#endif
