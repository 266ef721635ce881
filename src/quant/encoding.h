/* What executors pack storage types to. A file has one of many types, kernels exist for the dozen
 * encodings of encodings.h; every type maps exactly to one, and how an encoding lies in memory is
 * each executor's own affair. */
#ifndef FLETCH_ENCODING_H
#define FLETCH_ENCODING_H

#include "quant/encodings.h"
#include "quant/quant.h"
#include "quant/tables.h"

enum encoding {
#define ENCODING_ENUM(id, ...) ENC_##id,
    ENCODING_TABLE(ENCODING_ENUM)
#undef ENCODING_ENUM
        ENC_COUNT
};

enum scales_kind {
#define SCALES_ENUM(id, ...) SCALES_##id,
    SCALES_TABLE(SCALES_ENUM)
#undef SCALES_ENUM
};

struct scales_info {
    u8 outer, inner_cols, inner; /* bytes, columns, bytes: 0 where there are no inner scales */
    bool has_min;
};

struct encoding_info {
    const char *name;
    u32 cols;      /* that share the outermost scale */
    u32 low, high; /* a quant is n + zero: bits of its lower and its upper part */
    i32 zero;
    enum scales_kind scales;
    const i8 *table; /* of the values that quants stand for, or NULL */
    bool bulk;       /* do a GPU's lanes fetch the scales of 32 quads together? */
};

/* Both here, so that compilers know them wherever they know the encoding. */
static const struct scales_info scales_info[] = {
#define SCALES_ROW(id, ...) {__VA_ARGS__},
    SCALES_TABLE(SCALES_ROW)
#undef SCALES_ROW
};

#define ENCODING_TABLE_NONE    NULL
#define ENCODING_TABLE_NL4     quant_iq4_values
#define ENCODING_TABLE_MX4     quant_mxfp4_values
#define ENCODING_TABLE_IQ1     quant_iq1_values
#define ENCODING_TABLE_IQ2     quant_iq2_values
#define ENCODING_TABLE_IQ21    quant_iq21_values
#define ENCODING_TABLE_IQ3_XXS quant_iq3_xxs_values
#define ENCODING_TABLE_IQ3_S   quant_iq3_s_values
static const struct encoding_info encoding_info[ENC_COUNT] = {
#define ENCODING_ROW(id, name, cols, low, high, zero, scales, table, bulk, ...) \
    {#name, cols, low, high, zero, SCALES_##scales, ENCODING_TABLE_##table, bulk},
    ENCODING_TABLE(ENCODING_ROW)
#undef ENCODING_ROW
};

static inline struct scales_info encoding_scales(enum encoding enc)
{
    return scales_info[encoding_info[enc].scales];
}

/* Does it multiply int8 activations? */
static inline bool encoding_is_int8(enum encoding enc)
{
    return encoding_info[enc].scales != SCALES_NONE;
}

/* Are quants stored without a sign and in at most four bits? */
static inline bool encoding_has_nibbles(enum encoding enc)
{
    return encoding_info[enc].low <= 4 && !encoding_info[enc].high;
}

/* Words of four bytes or fewer that the scales of a GPU's quad are, and whether its two halves have
 * scales of their own (gpu/kernels/units.h). */
static inline u32 encoding_scale_words(enum encoding enc)
{
    return encoding_is_int8(enc) ? 1 + (encoding_scales(enc).inner > 0) : 0;
}
static inline bool encoding_has_halves(enum encoding enc)
{
    return encoding_has_nibbles(enc) && encoding_scales(enc).inner_cols == 16;
}

/* The one that kernels of all executors exist for, and the one with the fewest bits. */
enum encoding encoding_of(enum qtype type);
enum encoding encoding_narrowest(enum qtype type);

#endif
