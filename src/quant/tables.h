/* What the files of this folder share and nobody else needs. */
#ifndef FLETCH_QUANT_TABLES_H
#define FLETCH_QUANT_TABLES_H

#include "quant/quant.h"

extern const i8 quant_iq4_values[16];   /* IQ4_NL, IQ4_XS; ascending */
extern const i8 quant_mxfp4_values[16]; /* E2M1, doubled */
/* codebook.c: of IQ1 types, of IQ2 types, and of both, those of IQ1 from 8 on; of IQ3 types. */
extern const i8 quant_iq1_values[16], quant_iq2_values[16], quant_iq21_values[16];
extern const i8 quant_iq3_xxs_values[16], quant_iq3_s_values[16];

float quant_mxfp4_scale(u8 e); /* 2^(e-128): half of E8M0, for the doubled table */

/* Scale and min j of Q4_K and Q5_K: 2 x 8 values of six bits in 12 bytes. */
void quant_unpack_k4(const u8 *s, int j, int *scale, int *min);

/* Stores a block's scale and returns it as it will be read; *ok becomes false when it is too
 * large for a half. */
float quant_put_scale(u8 *p, float d, bool *ok);

/* One super-block each (encode_k.c). */
bool quant_encode_q2_k(const float *x, u8 *b);
bool quant_encode_q3_k(const float *x, u8 *b);
bool quant_encode_q4_k(const float *x, u8 *b);
bool quant_encode_q5_k(const float *x, u8 *b);
bool quant_encode_q6_k(const float *x, u8 *b);

/* codebook.c, one block of a type that has a codebook. The first returns the table that the quants
 * are indices of; NULL: the type has no codebook. */
struct quant_split;
const i8 *quant_split_codebook(enum qtype type, const u8 *b, struct quant_split *out);
void quant_decode_codebook(enum qtype type, const u8 *b, float *y);

#endif
