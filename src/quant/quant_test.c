/* Storage types: sizes, 16-bit floats, decoding against formulas written a second time, and the
 * encoders against golden blocks and against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quant/quant.h"
#include "quant/split.h"
#include "quant/tables.h"

static u32 next_random(u32 *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static u32 bits(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void test_info(void **state)
{
    (void)state;
    static const u8 removed[] = {4, 5, 31, 32, 33, 36, 37, 38};
    enum qtype type;
    u64 n;
    u32 n_readable = 0;
    for (size_t i = 0; i < sizeof removed; i++) assert_null(quant_info(removed[i]));
    assert_null(quant_info(43));
    assert_null(quant_info(UINT32_MAX));
    for (u32 i = 0; i < QT_COUNT; i++) {
        const struct quant_info *q = quant_info(i);
        if (!q) continue;
        n_readable += q->readable;
        assert_true(q->readable || !q->writable);
        assert_true(quant_by_name(str_of(q->name), &type) && (u32)type == i);
    }
    assert_int_equal(n_readable, 27);
    assert_true(quant_by_name(STR("q4_k"), &type) && type == QT_Q4_K);
    assert_false(quant_by_name(STR("q4_"), &type));
    assert_false(quant_by_name(STR("Q4_K_M"), &type));
    assert_true(quant_bytes(QT_Q6_K, 512, &n) && n == 420);
    assert_false(quant_bytes(QT_Q6_K, 255, &n));
    assert_false(quant_bytes(QT_F32, UINT64_MAX / 2, &n));
    assert_false(quant_bytes(4, 32, &n));
}

static double half_value(u32 h)
{
    double m = h & 0x3ff, e = (h >> 10) & 31;
    double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, (int)e - 25);
    return h & 0x8000 ? -v : v;
}

/* Every half, and on both sides of every midpoint between neighbours. */
static void test_half(void **state)
{
    (void)state;
    for (u32 h = 0; h < 0x7c00; h++) {
        float f = half_to_float((u16)h);
        assert_true((double)f == half_value(h));
        assert_int_equal(half_from_float(f), h);
        assert_int_equal(bits(half_to_float((u16)(h | 0x8000))), bits(f) | 0x80000000u);
        assert_int_equal(half_from_float(-f), h | 0x8000);
        double above = h == 0x7bff ? 65536 : half_value(h + 1);
        float mid = (float)((half_value(h) + above) / 2);
        assert_int_equal(half_from_float(mid), h + (h & 1));
        assert_int_equal(half_from_float(nextafterf(mid, 0)), h);
        assert_int_equal(half_from_float(-nextafterf(mid, INFINITY)), (h + 1) | 0x8000);
    }
    assert_int_equal(half_from_float(INFINITY), 0x7c00);
    assert_int_equal(half_from_float(-3e38f), 0xfc00);
    assert_int_equal(half_from_float(1e-40f), 0);
    assert_true(half_to_float(0x7c00) == INFINITY);
    for (u32 h = 0x7c01; h < 0x8000; h++) {
        float f = half_to_float((u16)h);
        assert_true(isnan(f) && (bits(f) & 0x400000));
        assert_true(half_from_float(f) > 0x7c00);
    }
    assert_true(half_from_float(NAN) > 0x7c00);
}

static void test_bf16(void **state)
{
    (void)state;
    for (u32 h = 0; h < 0x7f80; h++) {
        float f = bf16_to_float((u16)h), mid;
        u32 u = h << 16 | 0x8000;
        memcpy(&mid, &u, sizeof mid);
        assert_int_equal(bits(f), h << 16);
        assert_int_equal(bf16_from_float(f), h);
        assert_int_equal(bf16_from_float(mid), h + (h & 1));
        assert_int_equal(bf16_from_float(nextafterf(mid, 0)), h);
        assert_int_equal(bf16_from_float(-nextafterf(mid, INFINITY)), (h + 1) | 0x8000);
    }
    float quiet;
    u32 signalling = 0x7f800001;
    memcpy(&quiet, &signalling, sizeof quiet);
    assert_int_equal(bf16_from_float(quiet), 0x7fc0);
}

/* The formulas of the formats, element by element and by bit position: bit(p, k) is bit k of the
 * bytes at p. Shares nothing with decode.c. */
static int bit_field(const u8 *p, int at, int n)
{
    int v = 0;
    for (int k = 0; k < n; k++) v |= (p[(at + k) / 8] >> ((at + k) % 8) & 1) << k;
    return v;
}

static float half_at(const u8 *p)
{
    return half_to_float((u16)bit_field(p, 0, 16));
}

static float decode_one(enum qtype type, const u8 *b, int i)
{
    static const int iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
    static const float fp4[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    int nib = 8 * (i & 15) + 4 * (i >> 4 & 1);                    /* 32-element blocks */
    int pair = 8 * ((i >> 7) * 32 + (i & 31)) + 2 * (i >> 5 & 3); /* super-blocks, 2 bits */
    int quad = 8 * ((i >> 6) * 32 + (i & 31)) + 4 * (i >> 5 & 1); /* 4 bits */
    int one = 8 * (i & 31) + (i >> 5);                            /* 1 bit */
    float d = half_at(b), e = half_at(b + 2);
    int s, m, j;
    u32 u;
    switch (type) {
    case QT_F32:
        u = (u32)bit_field(b, 0, 16) | (u32)bit_field(b + 2, 0, 16) << 16;
        memcpy(&d, &u, sizeof d);
        return d;
    case QT_F16: return d;
    case QT_BF16: return bf16_to_float((u16)bit_field(b, 0, 16));
    case QT_Q8_0: return d * (float)(i8)b[2 + i];
    case QT_Q4_0: return d * (float)(bit_field(b + 2, nib, 4) - 8);
    case QT_Q4_1: return d * (float)bit_field(b + 4, nib, 4) + e;
    case QT_Q5_0: return d * (float)(bit_field(b + 6, nib, 4) + 16 * bit_field(b + 2, i, 1) - 16);
    case QT_Q5_1: return d * (float)(bit_field(b + 8, nib, 4) + 16 * bit_field(b + 4, i, 1)) + e;
    case QT_IQ4_NL: return d * (float)iq4[bit_field(b + 2, nib, 4)];
    case QT_MXFP4:
        s = bit_field(b + 1, nib, 4);
        d = (float)ldexp((double)fp4[s & 7], b[0] - 127);
        return s & 8 && s != 8 ? -d : d;
    case QT_Q2_K:
        d = half_at(b + 80), e = half_at(b + 82);
        s = bit_field(b + i / 16, 0, 4), m = bit_field(b + i / 16, 4, 4);
        return d * (float)s * (float)bit_field(b + 16, pair, 2) - e * (float)m;
    case QT_Q3_K:
        j = i / 16;
        s = bit_field(b + 96, 8 * (j % 8) + 4 * (j / 8), 4);
        s += 16 * bit_field(b + 104, 8 * (j % 4) + 2 * (j / 4), 2) - 32;
        m = bit_field(b + 32, pair, 2) + 4 * bit_field(b, one, 1) - 4;
        return half_at(b + 108) * (float)s * (float)m;
    case QT_Q4_K:
    case QT_Q5_K:
        j = i / 32;
        s = j < 4 ? bit_field(b + 4, 8 * j, 6)
                  : bit_field(b + 12, 8 * j - 32, 4) + 16 * bit_field(b + 4, 8 * j - 26, 2);
        m = j < 4 ? bit_field(b + 8, 8 * j, 6)
                  : bit_field(b + 12, 8 * j - 28, 4) + 16 * bit_field(b + 8, 8 * j - 26, 2);
        d = d * (float)s, e = e * (float)m;
        if (type == QT_Q4_K) return d * (float)bit_field(b + 16, quad, 4) - e;
        return d * (float)(bit_field(b + 48, quad, 4) + 16 * bit_field(b + 16, one, 1)) - e;
    case QT_Q6_K:
        s = (i8)b[192 + i / 16];
        m = bit_field(b + 64 * (i / 128), 8 * (i & 63) + 4 * (i >> 6 & 1), 4);
        m += 16 * bit_field(b + 128, pair, 2) - 32;
        return half_at(b + 208) * (float)s * (float)m;
    case QT_IQ4_XS:
        j = i / 32;
        s = bit_field(b + 4, 4 * j, 4) + 16 * bit_field(b + 2, 2 * j, 2) - 32;
        return d * (float)s * (float)iq4[bit_field(b + 8 + 16 * j, nib, 4)];
    case QT_TQ1_0:
        s = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        j = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        /* the first j digits are shifted out, in base 3, of a fraction of eight bits */
        for (m = b[s]; j > 0; j--) m = m * 3 % 256;
        return half_at(b + 52) * (float)(m * 3 / 256 - 1);
    case QT_TQ2_0: return half_at(b + 64) * (float)(bit_field(b, pair, 2) - 1);
    case QT_Q1_0: return bit_field(b + 2, i, 1) ? d : -d;
    case QT_Q2_0: return d * (float)(bit_field(b + 2, 2 * i, 2) - 1);
    default: fail_msg("no formula for type %d", (int)type); return 0;
    }
}

static void test_decode_random_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = 3 };
    u32 seed = 1;
    for (u32 t = 0; t < QT_COUNT; t++) {
        const struct quant_info *q = quant_info(t);
        struct quant_split split;
        u8 zeros[256] = {0};
        if (!q || !q->readable || quant_split_codebook((enum qtype)t, zeros, &split)) continue;
        for (int round = 0; round < 200; round++) {
            u8 src[1 + BLOCKS * 256]; /* read from an odd address */
            float dst[BLOCKS * 256];
            for (size_t i = 0; i < sizeof src; i++) src[i] = (u8)next_random(&seed);
            quant_decode((enum qtype)t, src + 1, dst, (u64)BLOCKS * q->blk);
            for (int i = 0; i < BLOCKS * q->blk; i++) {
                float want = decode_one((enum qtype)t, src + 1 + i / q->blk * q->bytes, i % q->blk);
                bool equal = bits(dst[i]) == bits(want) || (isnan(dst[i]) && isnan(want));
                if (!equal) fail_msg("%s element %d: %a, not %a", q->name, i, dst[i], want);
            }
        }
    }
}

static void test_golden_small_blocks(void **state)
{
    (void)state;
    static const struct {
        enum qtype type;
        const char *hex;
    } golden[] = {
        {QT_Q8_0, "082481899199a1a9b1b9c0c8d0d8e0e8f0f8000810182028303840474f575f676f77"},
        {QT_Q4_0, "0034809191a2a2b3b3c4c4d5d5e6e6f7f7f8"},
        {QT_Q4_1, "223400c080809191a2a2b3b3c4c4d5d5e6e6f7f7"},
        {QT_Q5_0, "00300000ffff00112233445566778899aabbccddeeff"},
        {QT_Q5_1, "003000c00000ffff00112233445566778899aabbccddeeff"},
    };
    float x[32];
    for (int i = 0; i < 32; i++) x[i] = (float)(i - 16) / 8;
    for (size_t g = 0; g < ARRAY_LEN(golden); g++) {
        u8 b[64];
        char hex[129] = "";
        assert_true(quant_encode(golden[g].type, x, b, 32));
        for (int i = 0; i < quant_info(golden[g].type)->bytes; i++)
            snprintf(hex + 2 * i, 3, "%02x", b[i]);
        assert_string_equal(hex, golden[g].hex);
    }
}

static u32 crc32(const u8 *p, size_t n)
{
    u32 c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    }
    return ~c;
}

static void test_golden_super_blocks(void **state)
{
    (void)state;
    static const struct {
        enum qtype type;
        u32 crc;
    } golden[] = {{QT_Q2_K, 0xaa63cb98},
                  {QT_Q3_K, 0xf7a88803},
                  {QT_Q4_K, 0xf94eca2b},
                  {QT_Q5_K, 0xca67e91a},
                  {QT_Q6_K, 0xf9b0fe48}};
    float x[256];
    for (int i = 0; i < 256; i++) x[i] = (float)(37 * i % 101 - 50) / 16;
    for (size_t g = 0; g < ARRAY_LEN(golden); g++) {
        u8 b[256];
        assert_true(quant_encode(golden[g].type, x, b, 256));
        assert_int_equal(crc32(b, quant_info(golden[g].type)->bytes), golden[g].crc);
    }
}

/* What ggml's decoder (a build of August 2026) gives for 256 random blocks whose scale is 1. */
static void test_golden_codebook_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = 256 };
    static const struct {
        enum qtype type;
        int d; /* where the scale is; below 0: in the four highest bits of four words from -d on */
        u32 crc;
    } golden[] = {
        {QT_IQ1_S, 0, 0xfdde7e7c},  {QT_IQ1_M, -48, 0xef14b9e9}, {QT_IQ2_XXS, 0, 0xb6e79a5d},
        {QT_IQ2_XS, 0, 0xf5511f44}, {QT_IQ2_S, 0, 0x8c277d91},   {QT_IQ3_XXS, 0, 0xee8e66d7},
        {QT_IQ3_S, 0, 0xe848ae61},  {QT_TQ1_0, 52, 0x5133d81d},  {QT_TQ2_0, 64, 0x79d7a6f2},
        {QT_Q1_0, 0, 0xf5702616},   {QT_Q2_0, 0, 0x8116cd2f}};
    static float values[BLOCKS * 256];
    for (size_t g = 0; g < ARRAY_LEN(golden); g++) {
        const struct quant_info *q = quant_info(golden[g].type);
        u32 seed = 7;
        for (u64 i = 0; i < BLOCKS; i++) {
            u8 b[256];
            for (int j = 0; j < q->bytes; j++) b[j] = (u8)next_random(&seed);
            if (golden[g].d >= 0) {
                b[golden[g].d] = 0;
                b[golden[g].d + 1] = 0x3c;
            }
            for (int j = 0; j < 4 && golden[g].d < 0; j++) {
                u8 *high = &b[2 * j + 1 - golden[g].d];
                *high = (u8)((*high & 15) | (0x3c00 >> 4 * j & 15) << 4);
            }
            quant_decode(golden[g].type, b, values + i * q->blk, q->blk);
        }
        u32 crc = crc32((const u8 *)values, (size_t)BLOCKS * q->blk * sizeof *values);
        if (crc != golden[g].crc) fail_msg("%s: %08x", q->name, crc);
    }
}

/* The range fit as a plain loop over one sub-block, as the specification tells it. */
static float plain_nearest(float v, float lo, float hi)
{
    return v <= lo ? lo : v >= hi ? hi : nearbyintf(v);
}

static float plain_fit(int n, float levels, float rmin, int n_steps, bool absolute, const float *x,
                       const float *w, float *neg_min)
{
    float q[32], min = x[0], max = x[0], sum_w = 0, sum_x = 0, best = 0;
    for (int i = 0; i < n; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    min = fminf(min, 0);
    *neg_min = -min;
    if (max == min) return 0;
    float scale = 1 / (levels / (max - min));
    for (int t = -1; t <= n_steps; t++) {
        float steps = t < 0 ? levels : rmin + 0.1f * (float)t + levels;
        float sum_l = 0, sum_l2 = 0, sum_xl = 0, s = scale, m = min, error = 0;
        for (int i = 0; i < n; i++) {
            q[i] = plain_nearest(steps / (max - min) * (x[i] - min), 0, levels);
            sum_l += w[i] * q[i];
            sum_l2 += w[i] * q[i] * q[i];
            sum_xl += w[i] * q[i] * x[i];
        }
        float det = sum_w * sum_l2 - sum_l * sum_l;
        if (t >= 0) {
            if (!(det > 0)) continue;
            s = (sum_w * sum_xl - sum_x * sum_l) / det;
            m = (sum_l2 * sum_x - sum_l * sum_xl) / det;
            if (m > 0) {
                m = 0;
                s = sum_xl / sum_l2;
            }
        }
        for (int i = 0; i < n; i++) {
            float e = s * q[i] + m - x[i];
            error += w[i] * (absolute ? fabsf(e) : e * e);
        }
        if (t < 0 || error < best) {
            best = error;
            scale = s;
            min = m;
        }
    }
    *neg_min = -min;
    return scale;
}

/* Data with flat, zero, positive, negative and outlying sub-blocks. */
static void make_block(float *x, u32 *seed)
{
    for (int j = 0; j < 16; j++) {
        u32 kind = next_random(seed) % 8;
        float size = ldexpf(1, (int)(next_random(seed) % 12) - 8);
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            float r = (float)next_random(seed) / (1 << 23) - 1;
            x[i] = kind == 0   ? 0
                   : kind == 1 ? -size
                   : kind == 2 ? size * fabsf(r)
                   : kind == 3 ? -size * fabsf(r)
                               : size * r;
        }
        if (kind == 4) x[16 * j + 5] *= 20;
    }
}

static void check_scales(enum qtype type, const float *x)
{
    bool two = type == QT_Q2_K;
    int n = two ? 16 : 32, count = 256 / n;
    float scales[16], mins[16], top[2] = {0, 0}, max = two ? 15 : 63;
    for (int j = 0; j < count; j++) {
        float w[32], mean = 0;
        for (int i = 0; i < n; i++) mean += x[n * j + i] * x[n * j + i];
        for (int i = 0; i < n; i++) w[i] = (two ? 0 : sqrtf(mean / 32)) + fabsf(x[n * j + i]);
        scales[j] = type == QT_Q4_K ? plain_fit(32, 15, -1, 20, false, x + n * j, w, &mins[j])
                    : two           ? plain_fit(16, 3, -0.5f, 15, true, x + n * j, w, &mins[j])
                                    : plain_fit(32, 31, -0.5f, 15, false, x + n * j, w, &mins[j]);
        top[0] = fmaxf(top[0], scales[j]);
        top[1] = fmaxf(top[1], mins[j]);
    }
    u8 b[256];
    assert_true(quant_encode(type, x, b, 256));
    assert_int_equal(bit_field(b + (two ? 80 : 0), 0, 16), half_from_float(top[0] / max));
    assert_int_equal(bit_field(b + (two ? 82 : 2), 0, 16), half_from_float(top[1] / max));
    for (int j = 0; j < count; j++) {
        float s = top[0] > 0 ? plain_nearest(max / top[0] * scales[j], 0, max) : 0;
        float m = top[1] > 0 ? plain_nearest(max / top[1] * mins[j], 0, max) : 0;
        int bs, bm;
        if (two) {
            bs = b[j] & 15, bm = b[j] >> 4;
        } else if (j < 4) {
            bs = b[4 + j] & 63, bm = b[8 + j] & 63;
        } else {
            bs = (b[8 + j] & 15) + (b[j] >> 6) * 16, bm = (b[8 + j] >> 4) + (b[4 + j] >> 6) * 16;
        }
        assert_int_equal(bs, (int)s);
        assert_int_equal(bm, (int)m);
    }
}

static void test_range_fit_equals_plain_loop(void **state)
{
    (void)state;
    u32 seed = 7;
    for (int round = 0; round < 150; round++) {
        float x[256];
        make_block(x, &seed);
        check_scales(QT_Q2_K, x);
        check_scales(QT_Q4_K, x);
        check_scales(QT_Q5_K, x);
    }
}

/* Root mean square error over that of the data, uniform in -1..1: near the step / sqrt(12). */
static void test_round_trip_error(void **state)
{
    (void)state;
    static const struct {
        enum qtype type;
        double worst;
    } bound[] = {
        {QT_F32, 0},      {QT_F16, 3e-4},   {QT_BF16, 2.5e-3}, {QT_Q8_0, 0.0045}, {QT_Q4_0, 0.07},
        {QT_Q4_1, 0.066}, {QT_Q5_0, 0.035}, {QT_Q5_1, 0.032},  {QT_Q2_K, 0.31},   {QT_Q3_K, 0.16},
        {QT_Q4_K, 0.066}, {QT_Q5_K, 0.033}, {QT_Q6_K, 0.019},  {QT_IQ4_NL, 0.09}, {QT_MXFP4, 0.15},
    };
    enum { N = 1 << 14 };
    static float x[N], y[N];
    static u8 b[N * 4];
    u32 seed = 3, n_writable = 0;
    for (u32 t = 0; t < QT_COUNT; t++) n_writable += quant_info(t) && quant_info(t)->writable;
    assert_int_equal(n_writable, ARRAY_LEN(bound));
    for (int i = 0; i < N; i++) x[i] = (float)next_random(&seed) / (1 << 23) - 1;
    for (size_t k = 0; k < ARRAY_LEN(bound); k++) {
        double error = 0, power = 0;
        assert_true(quant_encode(bound[k].type, x, b, N));
        quant_decode(bound[k].type, b, y, N);
        for (int i = 0; i < N; i++) {
            error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            power += (double)x[i] * (double)x[i];
        }
        double rms = sqrt(error / power);
        if (rms > bound[k].worst)
            fail_msg("%s: %g, not at most %g", quant_info(bound[k].type)->name, rms,
                     bound[k].worst);
    }
}

static void test_values_on_the_grid_survive(void **state)
{
    (void)state;
    static const i8 iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
    float x[32], y[32];
    u8 b[64];
    for (int i = 0; i < 32; i++) x[i] = (float)iq4[i % 16] * 0.125f;
    assert_true(quant_encode(QT_IQ4_NL, x, b, 32));
    quant_decode(QT_IQ4_NL, b, y, 32);
    assert_memory_equal(x, y, sizeof x);
    for (int i = 0; i < 32; i++) x[i] = (float)(int[]){0, 1, 2, 3, 4, 6, 8, -12}[i % 8] * 0.25f;
    assert_true(quant_encode(QT_MXFP4, x, b, 32));
    quant_decode(QT_MXFP4, b, y, 32);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(b[0], 126); /* largest 3: 2^1, minus 2 for the top of E2M1, plus 127 */
}

static void test_zeros_stay_zeros(void **state)
{
    (void)state;
    float x[256] = {0}, y[256];
    u8 b[1024];
    for (u32 t = 0; t < QT_COUNT; t++) {
        if (!quant_info(t) || !quant_info(t)->writable) continue;
        memset(b, 0xff, sizeof b);
        assert_true(quant_encode((enum qtype)t, x, b, 256));
        quant_decode((enum qtype)t, b, y, 256);
        for (int i = 0; i < 256; i++) assert_true(y[i] == 0);
    }
}

static void test_unstorable_values_are_reported(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, 3e8f};
    static const float tiny[] = {1e-45f, -1e-45f, 1e-40f, 1e-30f};
    u8 b[1024];
    for (u32 t = 0; t < QT_COUNT; t++) {
        if (!quant_info(t) || !quant_info(t)->writable) continue;
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            float x[256] = {[3] = 0.5f, [40] = bad[k], [200] = -1};
            bool holds = k >= 3 && (t == QT_F32 || t == QT_BF16 || t == QT_MXFP4);
            if (quant_encode((enum qtype)t, x, b, 256) != holds)
                fail_msg("%s with %g", quant_info(t)->name, (double)bad[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(tiny); k++) {
            float x[256] = {[0] = tiny[k], [100] = -tiny[k] * 3}, y[256];
            assert_true(quant_encode((enum qtype)t, x, b, 256));
            quant_decode((enum qtype)t, b, y, 256);
            for (int i = 0; i < 256; i++) assert_true(fabsf(y[i]) <= 1e-7f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_decode_random_blocks),
        cmocka_unit_test(test_golden_small_blocks),
        cmocka_unit_test(test_golden_super_blocks),
        cmocka_unit_test(test_golden_codebook_blocks),
        cmocka_unit_test(test_range_fit_equals_plain_loop),
        cmocka_unit_test(test_round_trip_error),
        cmocka_unit_test(test_values_on_the_grid_survive),
        cmocka_unit_test(test_zeros_stay_zeros),
        cmocka_unit_test(test_unstorable_values_are_reported),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
