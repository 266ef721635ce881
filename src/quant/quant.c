/* The table of tensor types, and the 16-bit floats. The conversions work on bits, because a
 * compiler's half type is missing on some machines and rounds twice on others. */
#include "quant/quant.h"

#include <string.h>
#include <strings.h>

#define READ  true, false
#define BOTH  true, true
#define KNOWN false, false

static const struct quant_info infos[QT_COUNT] = {
    [QT_F32] = {"F32", 1, 4, BOTH},
    [QT_F16] = {"F16", 1, 2, BOTH},
    [QT_Q4_0] = {"Q4_0", 32, 18, BOTH},
    [QT_Q4_1] = {"Q4_1", 32, 20, BOTH},
    [QT_Q5_0] = {"Q5_0", 32, 22, BOTH},
    [QT_Q5_1] = {"Q5_1", 32, 24, BOTH},
    [QT_Q8_0] = {"Q8_0", 32, 34, BOTH},
    [9] = {"Q8_1", 32, 36, KNOWN},
    [QT_Q2_K] = {"Q2_K", 256, 84, BOTH},
    [QT_Q3_K] = {"Q3_K", 256, 110, BOTH},
    [QT_Q4_K] = {"Q4_K", 256, 144, BOTH},
    [QT_Q5_K] = {"Q5_K", 256, 176, BOTH},
    [QT_Q6_K] = {"Q6_K", 256, 210, BOTH},
    [15] = {"Q8_K", 256, 292, KNOWN},
    [16] = {"IQ2_XXS", 256, 66, KNOWN},
    [17] = {"IQ2_XS", 256, 74, KNOWN},
    [18] = {"IQ3_XXS", 256, 98, KNOWN},
    [19] = {"IQ1_S", 256, 50, KNOWN},
    [QT_IQ4_NL] = {"IQ4_NL", 32, 18, BOTH},
    [21] = {"IQ3_S", 256, 110, KNOWN},
    [22] = {"IQ2_S", 256, 82, KNOWN},
    [QT_IQ4_XS] = {"IQ4_XS", 256, 136, READ},
    [24] = {"I8", 1, 1, KNOWN},
    [25] = {"I16", 1, 2, KNOWN},
    [26] = {"I32", 1, 4, KNOWN},
    [27] = {"I64", 1, 8, KNOWN},
    [28] = {"F64", 1, 8, KNOWN},
    [29] = {"IQ1_M", 256, 56, KNOWN},
    [QT_BF16] = {"BF16", 1, 2, BOTH},
    [34] = {"TQ1_0", 256, 54, KNOWN},
    [35] = {"TQ2_0", 256, 66, KNOWN},
    [QT_MXFP4] = {"MXFP4", 32, 17, BOTH},
    [40] = {"NVFP4", 64, 36, KNOWN},
    [41] = {"Q1_0", 128, 18, KNOWN},
    [42] = {"Q2_0", 64, 18, KNOWN},
};

const struct quant_info *quant_info(u32 type)
{
    return type < QT_COUNT && infos[type].name ? &infos[type] : NULL;
}

bool quant_by_name(struct str name, enum qtype *out)
{
    for (u32 i = 0; i < QT_COUNT; i++) {
        const char *z = infos[i].name;
        if (z && strlen(z) == name.n && strncasecmp(z, name.p, name.n) == 0) {
            *out = (enum qtype)i;
            return true;
        }
    }
    return false;
}

bool quant_bytes(u32 type, u64 n, u64 *out)
{
    const struct quant_info *q = quant_info(type);
    return q && n % q->blk == 0 && CK_MUL(n / q->blk, (u64)q->bytes, out);
}

static u32 bits_of(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(u32 u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float half_to_float(u16 h)
{
    u32 sign = (u32)(h & 0x8000) << 16, exp = (h >> 10) & 31, mant = h & 0x3ff;
    if (exp == 31) return float_of(sign | 0x7f800000 | (mant ? 0x400000 | mant << 13 : 0));
    if (exp != 0) return float_of(sign | (exp + 112) << 23 | mant << 13);
    float tiny = (float)mant * 0x1p-24f; /* exact, and normal in float */
    return float_of(sign | bits_of(tiny));
}

u16 half_from_float(float f)
{
    u32 u = bits_of(f), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (u16)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x47800000) return (u16)(sign | 0x7c00);
    if (u < 0x33000000) return (u16)sign; /* below 2^-25, half of the smallest */
    if (u < 0x38800000) {                 /* subnormal: units of 2^-24 */
        u32 mant = (u & 0x7fffff) | 0x800000, shift = 126 - (u >> 23);
        return (u16)(sign | (mant + (1u << (shift - 1)) - 1 + (mant >> shift & 1)) >> shift);
    }
    return (u16)(sign | (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
}

float bf16_to_float(u16 h)
{
    return float_of((u32)h << 16);
}

u16 bf16_from_float(float f)
{
    u32 u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (u16)(u >> 16 | 64);
    return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
