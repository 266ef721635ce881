/* What k_self_test computes; see self_test.gpu and gpu/arithmetic.c. */
#ifndef KERNELS_SELF_TEST_H
#define KERNELS_SELF_TEST_H

enum self_test_op {
    SELF_TEST_MUL_ADD,    /* a·b + c, two roundings */
    SELF_TEST_ADD_ADD,    /* (a + b) + c */
    SELF_TEST_DIVIDE,     /* a / b */
    SELF_TEST_SQRT,       /* √a */
    SELF_TEST_FMA,        /* one rounding */
    SELF_TEST_IS_NAN,     /* a ≠ a */
    SELF_TEST_EXP,        /* of num_f32.h */
    SELF_TEST_LOG,        /* of num_f32.h */
    SELF_TEST_FROM_UINT,  /* the float nearest to a */
    SELF_TEST_FROM_U64,   /* to a + 2^32·b */
    SELF_TEST_TO_U64,     /* a, a float, as an integer, shifted right by b */
    SELF_TEST_DIVIDE_U64, /* (a + 2^32·b) / c */
    SELF_TEST_HIGH_U64,   /* the upper half of the product of a + 2^32·b and c + 2^32·c */
    SELF_TEST_TO_HALF,    /* the half nearest to a */
    SELF_TEST_FROM_HALF,  /* half a as a float */
    SELF_TEST_DOT,        /* c plus the dot of bytes a and b */
    SELF_TEST_DOT_LOW,    /* of a's low nibbles and bytes b */
    SELF_TEST_DOT_HIGH,
    SELF_TEST_MULTIPLY, /* a·b */
};

enum { SELF_TEST_THREADS = 64 }; /* a case each: at most that many */

struct self_test_args {
    unsigned n;
};

#endif
