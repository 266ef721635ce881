/* What executors pack storage types to. A file has one of sixteen types, kernels exist for a dozen
 * encodings; every type maps exactly to one, and how an encoding lies in memory is each executor's
 * own affair. */
#ifndef FLETCH_ENCODING_H
#define FLETCH_ENCODING_H

#include "quant/quant.h"

/*  X(ID, name, columns that share the outermost scale)
 *  value of a weight, n its stored quant: */
#define ENCODING_TABLE(X)                                                       \
    X(F32, "f32", 1)   /* n */                                                  \
    X(F16, "f16", 1)   /* n */                                                  \
    X(BF16, "bf16", 1) /* n */                                                  \
    X(I8, "i8", 32)    /* d·n, n signed */                                     \
    X(U4, "u4", 32)    /* d·n + m, n a nibble */                               \
    X(U8, "u8", 32)    /* d·n + m, n below 32 */                               \
    X(NL4, "nl4", 32)  /* d·T[n], T of IQ4_NL, n a nibble */                   \
    X(MX4, "mx4", 32)  /* d·M[n], M of MXFP4, n a nibble */                    \
    X(K4, "k4", 256)   /* d·s·n - e·m, s and m per 32, n a nibble */         \
    X(K5, "k5", 256)   /* d·s·n - e·m, s and m per 32, n below 32 */         \
    X(K6, "k6", 256)   /* d·s·n, both signed, s per 16, n of 6 bits */        \
    X(K2, "k2", 256)   /* d·s·n - e·m, s and m per 16, n below 4 */          \
    X(I5, "i5", 32)    /* as I8, n of 5 bits: an executor may take I8 for it */ \
    X(K3, "k3", 256)   /* as K6, n of 3 bits: likewise */

enum encoding {
#define ENCODING_ENUM(id, name, cols) ENC_##id,
    ENCODING_TABLE(ENCODING_ENUM)
#undef ENCODING_ENUM
        ENC_COUNT
};

struct encoding_info {
    const char *name;
    u32 cols; /* that share the outermost scale */
};
extern const struct encoding_info encoding_info[ENC_COUNT];

enum encoding encoding_of(enum qtype type);
bool encoding_is_int8(enum encoding enc); /* does it multiply int8 activations? */
bool encoding_has_nibbles(enum encoding enc);

extern const i8 encoding_nl4[16], encoding_mx4[16]; /* T and M */

#endif
