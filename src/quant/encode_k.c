/* From floats to super-blocks of 256: a search for the best scale (and min) of each sub-block,
 * the sub-blocks' scales quantised in turn, and the quants redone with what was stored.
 * The searches run on four sub-blocks at once, one per lane: a lane's sums keep the order of
 * their elements, so the result is bit for bit that of a plain loop, at a third of the time. */
#include "quant/tables.h"

#include <math.h>
#include <string.h>

enum { LANES = 4 };
typedef float f4 __attribute__((vector_size(16)));
typedef i32 i4 __attribute__((vector_size(16)));

static f4 pick(i4 mask, f4 yes, f4 no)
{
    return (f4)((mask & (i4)yes) | (~mask & (i4)no));
}

static f4 all(float v)
{
    return (f4){v, v, v, v};
}

static f4 magnitude(f4 v)
{
    return (f4)((i4)v & 0x7fffffff);
}

/* NaN becomes lo. */
static f4 clamp(f4 v, float lo, float hi)
{
    v = pick(v > lo, v, all(lo));
    return pick(v < hi, v, all(hi));
}

/* Nearest integer, ties to even, limited to lo..hi: adding 1.5 * 2^23 leaves no fraction bits. */
static f4 nearest(f4 v, float lo, float hi)
{
    return (clamp(v, lo, hi) + 12582912.0f) - 12582912.0f;
}

static float nearest1(float v, float lo, float hi)
{
    return nearest(all(v), lo, hi)[0];
}

/* Lane l of out[i] is element i of sub-block l. */
static void gather(const float *x, int n, f4 *out)
{
    for (int i = 0; i < n; i++) out[i] = (f4){x[i], x[n + i], x[2 * n + i], x[3 * n + i]};
}

static void scatter(const f4 *v, int n, float *out)
{
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < n; i++) out[l * n + i] = v[i][l];
}

/* x ~ scale * l + min with l in 0..levels, min <= 0. */
struct fit {
    int n;         /* elements of a sub-block, at most 32 */
    float levels;  /* highest quant */
    float rmin;    /* the search starts at levels + rmin steps over the range */
    int n_steps;   /* and goes on by 0.1, this often */
    bool absolute; /* error measure: |e|, else e^2 */
};

static f4 fit_error(const struct fit *f, const f4 *x, const f4 *w, const f4 *q, f4 scale, f4 min)
{
    f4 sum = all(0);
    for (int i = 0; i < f->n; i++) {
        f4 e = scale * q[i] + min - x[i];
        sum += w[i] * (f->absolute ? magnitude(e) : e * e);
    }
    return sum;
}

/* q gets the quants; returns the scales, and -min in *neg_min. A flat sub-block divides by zero:
 * its quants are clamped from NaN to 0, its scale is 1/inf, and no trial has det > 0. */
static f4 fit_range(const struct fit *f, const f4 *x, const f4 *w, f4 *q, f4 *neg_min)
{
    f4 min = x[0], max = x[0], sum_w = all(0), sum_x = all(0);
    for (int i = 0; i < f->n; i++) {
        min = pick(x[i] < min, x[i], min);
        max = pick(x[i] > max, x[i], max);
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    min = pick(min > 0, all(0), min);
    f4 per_step = f->levels / (max - min), scale = 1 / per_step;
    for (int i = 0; i < f->n; i++) q[i] = nearest(per_step * (x[i] - min), 0, f->levels);
    f4 best = fit_error(f, x, w, q, scale, min);
    for (int t = 0; t <= f->n_steps; t++) {
        f4 try[32], sum_l = all(0), sum_l2 = all(0), sum_xl = all(0);
        per_step = (f->rmin + 0.1f * (float)t + f->levels) / (max - min);
        for (int i = 0; i < f->n; i++) {
            f4 l = nearest(per_step * (x[i] - min), 0, f->levels);
            try[i] = l;
            sum_l += w[i] * l;
            sum_l2 += w[i] * l * l;
            sum_xl += w[i] * l * x[i];
        }
        f4 det = sum_w * sum_l2 - sum_l * sum_l;
        f4 try_scale = (sum_w * sum_xl - sum_x * sum_l) / det;
        f4 try_min = (sum_l2 * sum_x - sum_l * sum_xl) / det;
        try_scale = pick(try_min > 0, sum_xl / sum_l2, try_scale);
        try_min = pick(try_min > 0, all(0), try_min);
        f4 error = fit_error(f, x, w, try, try_scale, try_min);
        i4 better = (det > 0) & (error < best);
        for (int i = 0; i < f->n; i++) q[i] = pick(better, try[i], q[i]);
        best = pick(better, error, best);
        scale = pick(better, try_scale, scale);
        min = pick(better, try_min, min);
    }
    *neg_min = -min;
    return scale;
}

/* Fits all sub-blocks of x; q, scales and mins in element order. */
static void fit_block(const struct fit *f, const float *x, float *q, float *scales, float *mins)
{
    for (int g = 0; g * LANES * f->n < 256; g++) {
        f4 xs[32], w[32], qs[32], min;
        gather(x + g * LANES * f->n, f->n, xs);
        f4 mean = all(0);
        if (!f->absolute) {
            for (int i = 0; i < f->n; i++) mean += xs[i] * xs[i];
            for (int l = 0; l < LANES; l++) mean[l] = sqrtf(mean[l] / (float)f->n);
        }
        for (int i = 0; i < f->n; i++) w[i] = mean + magnitude(xs[i]);
        f4 scale = fit_range(f, xs, w, qs, &min);
        scatter(qs, f->n, q + g * LANES * f->n);
        memcpy(scales + g * LANES, &scale, sizeof scale);
        memcpy(mins + g * LANES, &min, sizeof min);
    }
}

/* v -> integers 0..max and the step between them. */
static float quantise_scales(const float *v, int n, float max, u8 *out)
{
    float top = 0;
    for (int i = 0; i < n; i++) top = MAX(top, v[i]);
    float per_step = top > 0 ? max / top : 0;
    for (int i = 0; i < n; i++) out[i] = (u8)nearest1(per_step * v[i], 0, max);
    return top / max;
}

/* The quants again, with scale and min as they were stored. */
static void requantise(const float *x, int n, float scale, float min, float lo, float hi, float *q)
{
    if (scale == 0) return;
    for (int i = 0; i < n; i += LANES) {
        f4 v;
        memcpy(&v, x + i, sizeof v);
        v = nearest((v + min) / scale, lo, hi);
        memcpy(q + i, &v, sizeof v);
    }
}

static void pack_k4(const u8 *scales, const u8 *mins, u8 *s)
{
    for (int j = 0; j < 4; j++) {
        s[j] = (u8)(scales[j] | (scales[j + 4] >> 4) << 6);
        s[j + 4] = (u8)(mins[j] | (mins[j + 4] >> 4) << 6);
        s[j + 8] = (u8)((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
    }
}

/* Two low bits and nibbles of 256 quants: those that lie 32 apart share a byte. */
static void pack_low2(const u8 *q, u8 *qs)
{
    for (int i = 0; i < 64; i++) {
        const u8 *p = q + 128 * (i / 32) + i % 32;
        qs[i] = (u8)((p[0] & 3) | (p[32] & 3) << 2 | (p[64] & 3) << 4 | (p[96] & 3) << 6);
    }
}

static void pack_low4(const u8 *q, u8 *qs)
{
    for (int i = 0; i < 128; i++) {
        const u8 *p = q + 64 * (i / 32) + i % 32;
        qs[i] = (u8)((p[0] & 15) | (p[32] & 15) << 4);
    }
}

/* One bit of 256 quants, eight of which share a byte. */
static void pack_bit(const u8 *q, int bit, u8 *out)
{
    memset(out, 0, 32);
    for (int i = 0; i < 256; i++) out[i % 32] = (u8)(out[i % 32] | (q[i] >> bit & 1) << (i / 32));
}

/* Shifts quants to 0.. */
static void to_bytes(const float *q, float shift, u8 *out)
{
    for (int i = 0; i < 256; i++) out[i] = (u8)(q[i] + shift);
}

/* Q4_K and Q5_K up to the quants: head is d, dmin and the packed scales. */
static bool encode_k45(const struct fit *f, const float *x, u8 *head, u8 *quants)
{
    float q[256], scales[8], mins[8];
    u8 ls[8], lm[8];
    bool ok = true;
    fit_block(f, x, q, scales, mins);
    float d = quant_put_scale(head, quantise_scales(scales, 8, 63, ls), &ok);
    float dmin = quant_put_scale(head + 2, quantise_scales(mins, 8, 63, lm), &ok);
    pack_k4(ls, lm, head + 4);
    for (int j = 0; j < 8; j++)
        requantise(x + 32 * j, 32, d * (float)ls[j], dmin * (float)lm[j], 0, f->levels, q + 32 * j);
    to_bytes(q, 0, quants);
    return ok;
}

bool quant_encode_q4_k(const float *x, u8 *b)
{
    static const struct fit fit = {.n = 32, .levels = 15, .rmin = -1, .n_steps = 20};
    u8 q[256];
    bool ok = encode_k45(&fit, x, b, q);
    pack_low4(q, b + 16);
    return ok;
}

bool quant_encode_q5_k(const float *x, u8 *b)
{
    static const struct fit fit = {.n = 32, .levels = 31, .rmin = -0.5f, .n_steps = 15};
    u8 q[256];
    bool ok = encode_k45(&fit, x, b, q);
    pack_bit(q, 4, b + 16);
    pack_low4(q, b + 48);
    return ok;
}

bool quant_encode_q2_k(const float *x, u8 *b)
{
    static const struct fit fit = {
        .n = 16, .levels = 3, .rmin = -0.5f, .n_steps = 15, .absolute = true};
    float q[256], scales[16], mins[16];
    u8 ls[16], lm[16], bytes[256];
    bool ok = true;
    fit_block(&fit, x, q, scales, mins);
    float d = quant_put_scale(b + 80, quantise_scales(scales, 16, 15, ls), &ok);
    float dmin = quant_put_scale(b + 82, quantise_scales(mins, 16, 15, lm), &ok);
    for (int j = 0; j < 16; j++) {
        b[j] = (u8)(ls[j] | lm[j] << 4);
        requantise(x + 16 * j, 16, d * (float)ls[j], dmin * (float)lm[j], 0, 3, q + 16 * j);
    }
    to_bytes(q, 0, bytes);
    pack_low2(bytes, b + 16);
    return ok;
}

/* The value of largest magnitude, with its sign; the first of equals. */
static float largest(const float *v, int n)
{
    float m = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(v[i]) > fabsf(m)) m = v[i];
    return m;
}

static const float tiny = 1e-15f; /* sub-blocks below this are stored as zeros */

/* Q6_K: x ~ scale * q with q in -32..31, weights x^2; four sub-blocks of 16. */
static f4 fit_symmetric(const f4 *x, f4 *q)
{
    f4 m = all(0), scale = all(0), best = all(0);
    for (int i = 0; i < 16; i++) m = pick(magnitude(x[i]) > magnitude(m), x[i], m);
    i4 zero = magnitude(m) < tiny;
    for (int k = 0; k <= 18; k++) {
        int t = k == 0 ? 0 : k <= 9 ? k - 10 : k - 9; /* 0, -9..-1, 1..9 */
        f4 try[16], sum_xl = all(0), sum_l2 = all(0), per_step = -(32 + 0.1f * (float)t) / m;
        for (int i = 0; i < 16; i++) {
            f4 l = nearest(per_step * x[i], -32, 31), w = x[i] * x[i];
            try[i] = l;
            sum_xl += w * x[i] * l;
            sum_l2 += w * l * l;
        }
        i4 better = k == 0 ? ~zero : (sum_l2 > 0) & (sum_xl * sum_xl > best * sum_l2) & ~zero;
        for (int i = 0; i < 16; i++) q[i] = pick(better, try[i], k == 0 ? all(-32) : q[i]);
        scale = pick(better, pick(sum_l2 > 0, sum_xl / sum_l2, all(0)), scale);
        best = pick(better, scale * sum_xl, best);
    }
    return scale;
}

bool quant_encode_q6_k(const float *x, u8 *b)
{
    float q[256], scales[16];
    u8 bytes[256], *ql = b, *qh = b + 128, *sc = b + 192;
    bool ok = true;
    for (int g = 0; g < 4; g++) {
        f4 xs[16], qs[16];
        gather(x + 64 * g, 16, xs);
        f4 scale = fit_symmetric(xs, qs);
        scatter(qs, 16, q + 64 * g);
        memcpy(scales + LANES * g, &scale, sizeof scale);
    }
    float top = largest(scales, 16);
    memset(b, 0, 210);
    if (fabsf(top) < tiny) return ok;
    float d = quant_put_scale(b + 208, top / -128, &ok);
    for (int j = 0; j < 16; j++) {
        float s = nearest1(-128 / top * scales[j], -128, 127);
        sc[j] = (u8)(i8)s;
        requantise(x + 16 * j, 16, d * s, 0, -32, 31, q + 16 * j);
    }
    to_bytes(q, 32, bytes);
    for (int i = 0; i < 128; i++) {
        const u8 *p = bytes + 128 * (i / 64) + i % 64;
        ql[i] = (u8)((p[0] & 15) | (p[64] & 15) << 4);
    }
    for (int i = 0; i < 256; i++) bytes[i] >>= 4;
    pack_low2(bytes, qh);
    return ok;
}

/* Q3_K: x ~ scale * q with q in -4..3, weights x^2: moves single quants while that helps. */
static float fit_by_moves(const float *x, float *q)
{
    float m = largest(x, 16), sum_xl = 0, sum_l2 = 0;
    if (fabsf(m) < tiny) {
        for (int i = 0; i < 16; i++) q[i] = -4;
        return 0;
    }
    for (int i = 0; i < 16; i++) {
        float w = x[i] * x[i];
        q[i] = nearest1(-4 / m * x[i], -4, 3);
        sum_xl += w * x[i] * q[i];
        sum_l2 += w * q[i] * q[i];
    }
    bool moved = true;
    for (int pass = 0; pass < 5 && moved; pass++) {
        moved = false;
        for (int i = 0; i < 16; i++) {
            float w = x[i] * x[i];
            float xl = sum_xl - w * x[i] * q[i], l2 = sum_l2 - w * q[i] * q[i];
            if (!(xl > 0)) continue;
            float l = nearest1(x[i] * l2 / xl, -4, 3);
            if (l == q[i]) continue;
            xl += w * x[i] * l;
            l2 += w * l * l;
            if (l2 > 0 && xl * xl * sum_l2 > sum_xl * sum_xl * l2) {
                q[i] = l;
                sum_xl = xl;
                sum_l2 = l2;
                moved = true;
            }
        }
    }
    return sum_l2 > 0 ? sum_xl / sum_l2 : 0;
}

bool quant_encode_q3_k(const float *x, u8 *b)
{
    float q[256], scales[16];
    u8 bytes[256], *hmask = b, *qs = b + 32, *sc = b + 96;
    bool ok = true;
    for (int j = 0; j < 16; j++) scales[j] = fit_by_moves(x + 16 * j, q + 16 * j);
    float top = largest(scales, 16), per_step = top != 0 ? -32 / top : 0;
    float d = quant_put_scale(b + 108, top / -32, &ok);
    memset(sc, 0, 12);
    for (int j = 0; j < 16; j++) {
        float s = nearest1(per_step * scales[j], -32, 31);
        int l = top != 0 ? (int)s + 32 : 0;
        sc[j % 8] = (u8)(sc[j % 8] | (l & 15) << (4 * (j / 8)));
        sc[8 + j % 4] = (u8)(sc[8 + j % 4] | (l >> 4) << (2 * (j / 4)));
        requantise(x + 16 * j, 16, d * s, 0, -4, 3, q + 16 * j);
    }
    to_bytes(q, 4, bytes);
    pack_bit(bytes, 2, hmask);
    pack_low2(bytes, qs);
    return ok;
}
