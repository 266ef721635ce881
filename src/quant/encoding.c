#include "quant/encoding.h"

const struct encoding_info encoding_info[ENC_COUNT] = {
#define ENCODING_ROW(id, name, cols) {name, cols},
    ENCODING_TABLE(ENCODING_ROW)
#undef ENCODING_ROW
};

const i8 encoding_nl4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
const i8 encoding_mx4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

enum encoding encoding_of(enum qtype type)
{
    switch (type) {
    case QT_F16: return ENC_F16;
    case QT_BF16: return ENC_BF16;
    case QT_Q8_0:
    case QT_Q5_0: return ENC_I8;
    case QT_Q4_0:
    case QT_Q4_1: return ENC_U4;
    case QT_Q5_1: return ENC_U8;
    case QT_IQ4_NL:
    case QT_IQ4_XS: return ENC_NL4;
    case QT_MXFP4: return ENC_MX4;
    case QT_Q4_K: return ENC_K4;
    case QT_Q5_K: return ENC_K5;
    case QT_Q6_K:
    case QT_Q3_K: return ENC_K6;
    case QT_Q2_K: return ENC_K2;
    default: return ENC_F32;
    }
}

bool encoding_is_int8(enum encoding enc)
{
    return enc >= ENC_I8;
}

bool encoding_has_nibbles(enum encoding enc)
{
    return enc == ENC_U4 || enc == ENC_NL4 || enc == ENC_MX4 || enc == ENC_K4 || enc == ENC_K2;
}
