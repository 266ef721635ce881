/* The table of tensor types, and the 16-bit floats. The conversions work on bits, because a
 * compiler's half type is missing on some machines and rounds twice on others. */
#include "quant/quant.h"

#include <string.h>
#include <strings.h>

#define ACCESS_NAME false, false
#define ACCESS_READ true, false
#define ACCESS_BOTH true, true

static const struct quant_info infos[QT_COUNT] = {
#define QUANT_ROW(name, number, blk, bytes, access, enc) \
    [QT_##name] = {#name, blk, bytes, ACCESS_##access},
    QUANT_TABLE(QUANT_ROW)
#undef QUANT_ROW
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
