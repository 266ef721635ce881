/* What looks at one row or one head: norms, gates, recurrence. Compiled once per instruction set,
 * with -DISA=<its name> and that set's flags. */
#include "base/num.h"
#include "cpu/kernels.h"

#include "cpu/lanes.h"

/* Values of a row of n from column i on, zeros behind its end. */
INLINE v16f load_row(const float *p, u32 i, u32 n)
{
    return n - i >= 16 ? lanes_load(p + i) : lanes_load_first(p + i, n - i);
}

INLINE lanes_part load_part(const float *p, u32 i, u32 n)
{
    return n - i >= PART ? lanes_part_load(p + i) : lanes_part_load_first(p + i, n - i);
}

INLINE void store_part(float *p, u32 i, u32 n, lanes_part v)
{
    if (n - i >= PART)
        lanes_part_store(p + i, v);
    else
        memcpy(p + i, &v, (n - i) * sizeof *p);
}

typedef double v8d __attribute__((vector_size(64)));

/* Σ (x - mean) or Σ (x - mean)², in 16 lanes of f64: squares of large values don't fit f32. */
static double group_sum(const float *x, u32 n, float mean, bool squares)
{
    v8d sum[2] = {{0}};
    u32 i = 0;
    for (; i + 16 <= n; i += 16) {
        v16f v = lanes_load(x + i) - mean;
        v8f half[2];
        memcpy(half, &v, sizeof half);
        for (u32 j = 0; j < 2; j++) {
            v8d d = __builtin_convertvector(half[j], v8d);
            sum[j] += squares ? d * d : d;
        }
    }
    for (u32 j = 0; i < n; i++, j++) {
        double d = (double)(x[i] - mean);
        sum[j / 8][j % 8] += squares ? d * d : d;
    }
    sum[0] += sum[1];
    double s = 0;
    for (u32 j = 0; j < 8; j++) s += sum[0][j];
    return s;
}

static void norm(float *y, const float *x, const float *w, const float *b, u32 n, u32 period,
                 enum norm_kind kind, u32 group, float eps)
{
    for (u32 g = 0; g < n; g += group) {
        float mean = kind == NORM_LAYER ? (float)(group_sum(x + g, group, 0, false) / group) : 0;
        double sq = group_sum(x + g, group, mean, true);
        double s =
            kind == NORM_L2 ? 1 / fmax(sqrt(sq), (double)eps) : 1 / sqrt(sq / group + (double)eps);
        float scale = (float)s;
        for (u32 i = g; i < g + group; i++) y[i] = (x[i] - mean) * scale;
    }
    for (u32 i = 0; w && i < n; i += period)
        for (u32 j = 0; j < period; j++) y[i + j] *= w[j];
    for (u32 i = 0; b && i < n; i++) y[i] += b[i];
}

INLINE void glu_kind(float *y, const float *g, const float *u, u32 n, enum glu_kind kind,
                     float alpha, float limit)
{
    const lanes_part top = lanes_part_set(limit);
    for (u32 i = 0; i < n; i += PART) {
        lanes_part a = load_part(g, i, n), b = load_part(u, i, n), s = a;
        if (kind == GLU_GELU) s = (a + a * a * a * 0.044715f) * 1.59576912f;
        if (kind == GLU_CLAMPED) { /* what is no number stays none */
            a = -lanes_part_max(-top, -a);
            b = -lanes_part_max(-top, -lanes_part_max(-top, b)) + 1.0f;
            s = a * alpha;
        }
        if (kind == GLU_LIMITED) b = -lanes_part_max(-top, -lanes_part_max(-top, b));
        a = a * lanes_part_sigmoid(s);
        if (kind == GLU_LIMITED) a = -lanes_part_max(-top, -a);
        store_part(y, i, n, a * b);
    }
}

static void glu(float *y, const float *g, const float *u, u32 n, const struct op *op)
{
    switch (op->p.glu.kind) {
    case GLU_SILU: glu_kind(y, g, u, n, GLU_SILU, 0, 0); break;
    case GLU_GELU: glu_kind(y, g, u, n, GLU_GELU, 0, 0); break;
    case GLU_CLAMPED: glu_kind(y, g, u, n, GLU_CLAMPED, op->p.glu.alpha, op->p.glu.limit); break;
    case GLU_LIMITED: glu_kind(y, g, u, n, GLU_LIMITED, 0, op->p.glu.limit); break;
    }
}

static void lerp(float *y, const float *a, const float *b, const float *m, u32 n)
{
    for (u32 i = 0; i < n; i += PART) {
        lanes_part x = load_part(a, i, n), d = load_part(b, i, n) - x;
        store_part(y, i, n, x + d * load_part(m, i, n));
    }
}

static void combine(float *y, const float *x, const float *w, u32 n, size_t pitch, u32 k)
{
    for (u32 i = 0; i < n; i += PART) {
        lanes_part sum = {0};
        for (u32 j = 0; j < k; j++) sum += load_part(x + j * pitch, i, n) * w[j];
        store_part(y, i, n, sum);
    }
}

INLINE lanes_part act_part(enum act_kind kind, lanes_part x)
{
    switch (kind) {
    case ACT_TANH: return lanes_part_tanh(x);
    case ACT_SIGMOID: return lanes_part_sigmoid(x);
    case ACT_RELU2: x = lanes_part_max((lanes_part){0}, x); return x * x;
    case ACT_DECAY: return lanes_part_exp(lanes_part_sigmoid(x) * -0.606530660f);
    case ACT_SILU: return x * lanes_part_sigmoid(x);
    case ACT_EXP:
    case ACT_SOFTPLUS: break; /* of one number for each head: act */
    }
    return x;
}

INLINE void act_kind(float *y, const float *x, u32 n, enum act_kind kind)
{
    for (u32 i = 0; i < n; i += PART) store_part(y, i, n, act_part(kind, load_part(x, i, n)));
}

static void act(float *y, const float *x, u32 n, enum act_kind kind)
{
    switch (kind) {
    case ACT_TANH: act_kind(y, x, n, ACT_TANH); break;
    case ACT_SIGMOID: act_kind(y, x, n, ACT_SIGMOID); break;
    case ACT_RELU2: act_kind(y, x, n, ACT_RELU2); break;
    case ACT_DECAY: act_kind(y, x, n, ACT_DECAY); break;
    case ACT_SILU: act_kind(y, x, n, ACT_SILU); break;
    case ACT_EXP:
        for (u32 i = 0; i < n; i++) y[i] = num_exp(x[i]);
        break;
    case ACT_SOFTPLUS:
        for (u32 i = 0; i < n; i++) y[i] = num_softplus(x[i]);
        break;
    }
}

/* ---- recurrence ---- */

/* W parts of the values' columns from i on: both sums run over keys, so nothing crosses lanes, and
 * W sums are under way at a time. width: columns of the last part. */
INLINE void wkv7_parts(float *S, float *y, const float *const in[6], u32 n, u32 i, const u32 W,
                       const u32 width)
{
    const float *r = in[0], *w = in[1], *k = in[2], *v = in[3], *kk = in[4], *a = in[5];
    lanes_part sa[4], out[4], value[4];
#pragma GCC unroll 4
    for (u32 c = 0; c < W; c++) {
        sa[c] = out[c] = (lanes_part){0};
        value[c] = lanes_part_load_first(v + i + PART * c, width);
    }
    for (u32 j = 0; j < n; j++)
#pragma GCC unroll 4
        for (u32 c = 0; c < W; c++)
            sa[c] = lanes_part_fma(lanes_part_load_first(S + (size_t)j * n + i + PART * c, width),
                                   lanes_part_set(-kk[j]), sa[c]);
    for (u32 j = 0; j < n; j++)
#pragma GCC unroll 4
        for (u32 c = 0; c < W; c++) {
            float *row = S + (size_t)j * n + i + PART * c;
            lanes_part s = lanes_part_load_first(row, width) * w[j];
            s = lanes_part_fma(value[c], lanes_part_set(k[j]), s);
            s = lanes_part_fma(sa[c], lanes_part_set(kk[j] * a[j]), s);
            out[c] = lanes_part_fma(s, lanes_part_set(r[j]), out[c]);
            memcpy(row, &s, width * sizeof *row);
        }
#pragma GCC unroll 4
    for (u32 c = 0; c < W; c++) memcpy(y + i + PART * c, &out[c], width * sizeof *y);
}

static void wkv7(float *S, float *y, const float *const in[6], u32 n)
{
    u32 i = 0;
    for (; i + 4 * PART <= n; i += 4 * PART) wkv7_parts(S, y, in, n, i, 4, PART);
    for (; i + PART <= n; i += PART) wkv7_parts(S, y, in, n, i, 1, PART);
    if (i < n) wkv7_parts(S, y, in, n, i, 1, n - i);
}

/* As wkv7_parts, with m values for n keys. */
INLINE void recurrence_parts(float *S, float *y, const struct cpu_recurrence *x, u32 i, const u32 W,
                             const u32 width)
{
    lanes_part old[4], out[4], value[4];
#pragma GCC unroll 4
    for (u32 c = 0; c < W; c++) {
        old[c] = out[c] = (lanes_part){0};
        value[c] = lanes_part_load_first(x->v + i + PART * c, width);
    }
    for (u32 j = 0; x->delta && j < x->n; j++) {
        lanes_part wk = lanes_part_set(x->w[x->head_decay ? 0 : j] * x->k[j]);
#pragma GCC unroll 4
        for (u32 c = 0; c < W; c++)
            old[c] = lanes_part_fma(
                lanes_part_load_first(S + (size_t)j * x->m + i + PART * c, width), wk, old[c]);
    }
#pragma GCC unroll 4
    for (u32 c = 0; c < W; c++) value[c] = (value[c] - old[c]) * x->b;
    for (u32 j = 0; j < x->n; j++) {
        float w = x->w[x->head_decay ? 0 : j];
#pragma GCC unroll 4
        for (u32 c = 0; c < W; c++) {
            float *row = S + (size_t)j * x->m + i + PART * c;
            lanes_part s = lanes_part_load_first(row, width) * w;
            s = lanes_part_fma(value[c], lanes_part_set(x->k[j]), s);
            out[c] = lanes_part_fma(s, lanes_part_set(x->r[j]), out[c]);
            memcpy(row, &s, width * sizeof *row);
        }
    }
#pragma GCC unroll 4
    for (u32 c = 0; c < W; c++) memcpy(y + i + PART * c, &out[c], width * sizeof *y);
}

static void recurrence(float *S, float *y, const struct cpu_recurrence *x)
{
    u32 i = 0;
    for (; i + 4 * PART <= x->m; i += 4 * PART) recurrence_parts(S, y, x, i, 4, PART);
    for (; i + PART <= x->m; i += PART) recurrence_parts(S, y, x, i, 1, PART);
    if (i < x->m) recurrence_parts(S, y, x, i, 1, x->m - i);
}

static void conv(float *y, const float *const *x, u32 n_taps, const float *w, size_t pitch,
                 const float *bias, u32 n)
{
    for (u32 i = 0; i < n; i += PART) {
        lanes_part sum = bias ? load_part(bias, i, n) : (lanes_part){0};
        for (u32 k = 0; k < n_taps; k++)
            sum = lanes_part_fma(load_part(w + k * pitch, i, n), load_part(x[k], i, n), sum);
        store_part(y, i, n, sum);
    }
}

static void rk_bonus(float *out, const float *y, const float *const in[4], u32 n)
{
    const float *r = in[0], *k = in[1], *r_k = in[2], *v = in[3];
    v16f sum = {0};
    for (u32 i = 0; i < n; i += 16)
        sum = lanes_fma(load_row(r, i, n) * load_row(k, i, n), load_row(r_k, i, n), sum);
    v16f s = lanes_set(lanes_sum(sum));
    for (u32 i = 0; i < n; i += 16) {
        v16f x = lanes_fma(s, load_row(v, i, n), load_row(y, i, n));
        memcpy(out + i, &x, MIN(16, n - i) * sizeof *out);
    }
}

static u64 weigh_logits(const float *z, u32 n, float top)
{
    typedef i64 v16l __attribute__((vector_size(128)));
    v16l sum = {0};
    u64 total = 0;
    for (u32 i = 0; i + 16 <= n; i += 16)
        sum += __builtin_convertvector(lanes_exp(lanes_load(z + i) - top) * 0x1p40f, v16l);
    for (u32 i = 0; i < 16; i++) total += (u64)sum[i];
    return total + sample_weigh(z + n / 16 * 16, n % 16, top);
}

const struct row_kernels KERNEL_TABLE(cpu_rows) = {
    .norm = norm,
    .glu = glu,
    .act = act,
    .lerp = lerp,
    .combine = combine,
    .wkv7 = wkv7,
    .recurrence = recurrence,
    .conv = conv,
    .rk_bonus = rk_bonus,
    .weigh = weigh_logits,
};
