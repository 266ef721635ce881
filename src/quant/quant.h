/* The truth about storage types: ids and sizes of every GGUF tensor type, and the exact scalar
 * conversion to and from float for the types that fletch reads and writes.
 * decode.c says what the bits mean, encode.c and encode_k.c how values are rounded to them; all
 * of it is compiled without floating-point contraction. */
#ifndef FLETCH_QUANT_H
#define FLETCH_QUANT_H

#include "base/base.h"

/* Values are the GGUF tensor type ids. */
enum qtype {
    QT_F32 = 0,
    QT_F16 = 1,
    QT_Q4_0 = 2,
    QT_Q4_1 = 3,
    QT_Q5_0 = 6,
    QT_Q5_1 = 7,
    QT_Q8_0 = 8,
    QT_Q2_K = 10,
    QT_Q3_K = 11,
    QT_Q4_K = 12,
    QT_Q5_K = 13,
    QT_Q6_K = 14,
    QT_IQ4_NL = 20,
    QT_IQ4_XS = 23,
    QT_BF16 = 30,
    QT_MXFP4 = 39,
    QT_COUNT = 43 /* one more than the largest id there is */
};

struct quant_info {
    const char *name; /* "Q4_K"; NULL for ids that were removed */
    u16 blk;          /* elements per block */
    u16 bytes;        /* bytes per block */
    bool readable;    /* quant_decode knows it */
    bool writable;    /* quant_encode knows it */
};

/* NULL when there is no such type. A type that is known but not readable has a name to refuse. */
const struct quant_info *quant_info(u32 type);

/* By name, case-insensitive ("q8_0"); false when unknown. */
bool quant_by_name(struct str name, enum qtype *out);

/* n elements (a multiple of blk, else false) in bytes; false on overflow. */
bool quant_bytes(u32 type, u64 n, u64 *out);

/* n is a multiple of the type's block. src and dst need no alignment beyond float's for floats. */
void quant_decode(enum qtype type, const void *src, float *dst, u64 n);
/* False when a value is NaN or infinite, or too large for the type: dst is then filled but not
 * to be used. Needs no memory and no state, so rows can be encoded by several threads. */
bool quant_encode(enum qtype type, const float *src, void *dst, u64 n);

float half_to_float(u16 h);
u16 half_from_float(float f); /* nearest even; overflow to infinity; NaN stays NaN */
float bf16_to_float(u16 h);
u16 bf16_from_float(float f);

#endif
