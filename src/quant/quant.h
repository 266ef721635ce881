/* The truth about storage types: ids and sizes of every GGUF tensor type, and the exact scalar
 * conversion to and from float for the types that fletch reads and writes.
 * decode.c says what the bits mean, encode.c and encode_k.c how values are rounded to them; all
 * of it is compiled without floating-point contraction. */
#ifndef FLETCH_QUANT_H
#define FLETCH_QUANT_H

#include "base/base.h"

/*  X(NAME, its number in GGUF, elements per block, bytes per block, access, encoding)
 *  access: NAME is known to be refused by name; READ can be decoded, BOTH encoded too. encoding:
 *  the one of encodings.h with the fewest bits that has all its values. */
#define QUANT_TABLE(X)                 \
    X(F32, 0, 1, 4, BOTH, F32)         \
    X(F16, 1, 1, 2, BOTH, F16)         \
    X(Q4_0, 2, 32, 18, BOTH, U4)       \
    X(Q4_1, 3, 32, 20, BOTH, U4)       \
    X(Q5_0, 6, 32, 22, BOTH, I5)       \
    X(Q5_1, 7, 32, 24, BOTH, U8)       \
    X(Q8_0, 8, 32, 34, BOTH, I8)       \
    X(Q8_1, 9, 32, 36, NAME, F32)      \
    X(Q2_K, 10, 256, 84, BOTH, K2)     \
    X(Q3_K, 11, 256, 110, BOTH, K3)    \
    X(Q4_K, 12, 256, 144, BOTH, K4)    \
    X(Q5_K, 13, 256, 176, BOTH, K5)    \
    X(Q6_K, 14, 256, 210, BOTH, K6)    \
    X(Q8_K, 15, 256, 292, NAME, F32)   \
    X(IQ2_XXS, 16, 256, 66, READ, G2)  \
    X(IQ2_XS, 17, 256, 74, READ, G2)   \
    X(IQ3_XXS, 18, 256, 98, READ, G3)  \
    X(IQ1_S, 19, 256, 50, READ, G1)    \
    X(IQ4_NL, 20, 32, 18, BOTH, NL4)   \
    X(IQ3_S, 21, 256, 110, READ, G3S)  \
    X(IQ2_S, 22, 256, 82, READ, G2)    \
    X(IQ4_XS, 23, 256, 136, READ, NL4) \
    X(I8, 24, 1, 1, NAME, F32)         \
    X(I16, 25, 1, 2, NAME, F32)        \
    X(I32, 26, 1, 4, NAME, F32)        \
    X(I64, 27, 1, 8, NAME, F32)        \
    X(F64, 28, 1, 8, NAME, F32)        \
    X(IQ1_M, 29, 256, 56, READ, G1)    \
    X(BF16, 30, 1, 2, BOTH, BF16)      \
    X(TQ1_0, 34, 256, 54, READ, K2)    \
    X(TQ2_0, 35, 256, 66, READ, K2)    \
    X(MXFP4, 39, 32, 17, BOTH, MX4)    \
    X(NVFP4, 40, 64, 36, NAME, F32)    \
    X(Q1_0, 41, 128, 18, READ, U4)     \
    X(Q2_0, 42, 64, 18, READ, U4)

enum qtype {
#define QUANT_ENUM(name, number, ...) QT_##name = number,
    QUANT_TABLE(QUANT_ENUM)
#undef QUANT_ENUM
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
