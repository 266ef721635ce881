#include "quant/encoding.h"

enum encoding encoding_narrowest(enum qtype type)
{
    switch (type) {
#define QUANT_CASE(id, number, blk, bytes, access, enc) \
    case QT_##id: return ENC_##enc;
        QUANT_TABLE(QUANT_CASE)
#undef QUANT_CASE
    case QT_COUNT: break;
    }
    return ENC_F32;
}

enum encoding encoding_of(enum qtype type)
{
    enum encoding enc = encoding_narrowest(type);
    switch (enc) {
#define ENCODING_WIDER(id, name, cols, low, high, zero, scales, table, bulk, wide) \
    case ENC_##id: return ENC_##wide;
        ENCODINGS_NARROW(ENCODING_WIDER)
#undef ENCODING_WIDER
    default: return enc;
    }
}
