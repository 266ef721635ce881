/* The encodings that executors pack storage types to, as a table that C and the kernels of GPUs
 * share. What both derive from it follows from its columns: a new row needs no code of its own
 * unless its scales lie in a new way. */
#ifndef FLETCH_ENCODINGS_H
#define FLETCH_ENCODINGS_H

/*  X(ID, bytes of the outermost scales, columns of an inner scale, bytes of an inner scale, min?)
 *  Scales as the file gives them, for the columns that share the outermost ones. Without inner
 *  scales the second and third are 0. */
#define SCALES_TABLE(X)                                                         \
    X(NONE, 0, 0, 0, 0)                                                         \
    X(HALF, 2, 0, 0, 0)         /* f16 d */                                     \
    X(HALF_MIN, 4, 0, 0, 1)     /* f16 d, f16 m */                              \
    X(FLOAT, 4, 0, 0, 0)        /* f32 d */                                     \
    X(BY_32_MIN, 4, 32, 2, 1)   /* f16 d, f16 e, (u8 s, u8 m) per 32 columns */ \
    X(BY_16, 2, 16, 1, 0)       /* f16 d, i8 s per 16 columns */                \
    X(BY_16_MIN, 4, 16, 2, 1)   /* f16 d, f16 e, (u8 s, u8 m) per 16 columns */ \
    X(FLOAT_BY_16, 4, 16, 1, 0) /* f32 d, i8 s per 16 columns */

/*  X(ID, name, columns that share the outermost scale, low, high, zero, scales, table, bulk)
 *  A quant is stored as n + zero: its lowest bits, and those above where they lie apart. table: of
 *  the values that it stands for, or NONE. bulk: do a GPU's lanes fetch the scales of 32 quads
 *  together? Value of a weight, n its stored quant: */
#define ENCODINGS_FLOAT(X)                            \
    X(F32, f32, 1, 32, 0, 0, NONE, NONE, 0)   /* n */ \
    X(F16, f16, 1, 16, 0, 0, NONE, NONE, 0)   /* n */ \
    X(BF16, bf16, 1, 16, 0, 0, NONE, NONE, 0) /* n */
/* Those that multiply int8 activations. */
#define ENCODINGS_INT8(X)                                                                   \
    X(I8, i8, 32, 8, 0, 0, HALF, NONE, 1)            /* d·n, n signed */                   \
    X(U4, u4, 32, 4, 0, 0, HALF_MIN, NONE, 0)        /* d·n + m, n a nibble */             \
    X(U8, u8, 32, 4, 1, 0, HALF_MIN, NONE, 0)        /* d·n + m, n below 32 */             \
    X(NL4, nl4, 32, 4, 0, 0, FLOAT, NL4, 0)          /* d·T[n], T of IQ4_NL, n a nibble */ \
    X(MX4, mx4, 32, 4, 0, 0, FLOAT, MX4, 0)          /* d·M[n], M of MXFP4, n a nibble */  \
    X(K4, k4, 256, 4, 0, 0, BY_32_MIN, NONE, 1)      /* d·s·n - e·m, n a nibble */       \
    X(K5, k5, 256, 4, 1, 0, BY_32_MIN, NONE, 1)      /* d·s·n - e·m, n below 32 */       \
    X(K6, k6, 256, 4, 2, 32, BY_16, NONE, 0)         /* d·s·n, n signed, of 6 bits */     \
    X(K2, k2, 256, 2, 0, 0, BY_16_MIN, NONE, 0)      /* d·s·n - e·m, n below 4 */        \
    X(G3, g3, 256, 4, 0, 0, FLOAT_BY_16, IQ3_XXS, 0) /* d·s·T[n], T of IQ3_XXS */         \
    X(G3S, g3s, 256, 4, 0, 0, FLOAT_BY_16, IQ3_S, 0) /* d·s·T[n], T of IQ3_S */           \
    X(G21, g21, 256, 4, 0, 0, FLOAT_BY_16, IQ21, 0)  /* d·s·T[n], T of IQ2 and, at 8, of IQ1 */
/* Narrower ones, each with the one of the above that an executor may take instead. */
#define ENCODINGS_NARROW(X)                                                               \
    X(I5, i5, 32, 4, 1, 16, HALF, NONE, 0, I8)        /* as I8, n of 5 bits */            \
    X(K3, k3, 256, 2, 1, 4, BY_16, NONE, 0, K6)       /* as K6, n of 3 bits */            \
    X(G2, g2, 256, 2, 1, 0, FLOAT_BY_16, IQ2, 0, G21) /* as G21, n of 3 bits, T of IQ2 */ \
    X(G1, g1, 256, 2, 1, 0, FLOAT_BY_16, IQ1, 0, G21) /* as G21, n of 3 bits, T of IQ1 */

/* All that kernels of GPUs exist for, and all there are. */
#define ENCODINGS_WIDE(X) ENCODINGS_FLOAT(X) ENCODINGS_INT8(X)
#define ENCODING_TABLE(X) ENCODINGS_WIDE(X) ENCODINGS_NARROW(X)

#endif
