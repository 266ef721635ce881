/* What looks at one row or one head: norms, gates, attention, recurrence. Compiled once per
 * instruction set, with -DISA=<its name> and that set's flags. */
#include "cpu/kernels.h"

#include "cpu/lanes.h"

/* Sixteen values from column i on; whole says that rows end with a full vector. */
INLINE v16f load_row(const float *p, u32 i, u32 n, bool whole)
{
    return whole || n - i >= 16 ? lanes_load(p + i) : lanes_load_part(p + i, n - i);
}

/* Σ f(x) in 16 lanes, the tail as a part-filled vector. */
static double group_sum(const float *x, u32 n, float mean, bool squares)
{
    v16f sum = {0};
    u32 i = 0;
    for (; i + 16 <= n; i += 16) {
        v16f v = lanes_load(x + i) - mean;
        sum = squares ? lanes_fma(v, v, sum) : sum + v;
    }
    for (u32 j = 0; i < n; i++, j++) {
        float v = x[i] - mean;
        sum[j] = squares ? fmaf(v, v, sum[j]) : sum[j] + v;
    }
    return (double)lanes_sum(sum);
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

static void glu(float *y, const float *g, const float *u, u32 n)
{
    for (u32 i = 0; i < n; i += 16) {
        v16f a = load_row(g, i, n, false), b = load_row(u, i, n, false);
        v16f r = a * lanes_sigmoid(a) * b;
        if (n - i >= 16)
            lanes_store(y + i, r);
        else
            memcpy(y + i, &r, (n - i) * sizeof *y);
    }
}

/* ---- attention ---- */

/* Sixteen cached values from column i on; whole says that rows end with a full vector. */
INLINE v16f load_cached(const u8 *p, enum qtype type, u32 i, u32 n, bool whole)
{
    u32 size = type == QT_F16 ? 2 : 4;
    u8 part[64] = {0};
    const u8 *at = p + (size_t)i * size;
    if (!whole && n - i < 16) {
        memcpy(part, at, (size_t)(n - i) * size);
        at = part;
    }
    if (type == QT_F16) return lanes_half(at);
    v16f v;
    memcpy(&v, at, sizeof v);
    return v;
}

INLINE float cached_dot(const float *q, const u8 *k, enum qtype type, u32 n, bool whole)
{
    v16f sum = {0};
    for (u32 i = 0; i < n; i += 16)
        sum = lanes_fma(load_row(q, i, n, whole), load_cached(k, type, i, n, whole), sum);
    return lanes_sum(sum);
}

INLINE void attend_block(struct cpu_head *h, const float *q, const struct cpu_block *b,
                         enum qtype type, bool whole)
{
    float score[BLOCK];
    v16f top = lanes_set(h->top);
    for (u32 t = 0; t < b->n_tokens; t++)
        score[t] = cached_dot(q, b->k + t * b->stride, type, b->k_width, whole) * b->scale;
    for (u32 t = b->n_tokens; t < BLOCK; t++) score[t] = -INFINITY;
    for (u32 t = 0; t < BLOCK; t += 16) top = lanes_max(top, lanes_load(score + t));
    float new_top = lanes_top(top);
    v16f sum = {0};
    for (u32 t = 0; t < BLOCK; t += 16) {
        v16f e = lanes_exp(lanes_load(score + t) - new_top);
        lanes_store(score + t, e);
        sum += e;
    }
    float keep = lanes_exp(lanes_set(h->top - new_top))[0];
    h->sum = fmaf(h->sum, keep, lanes_sum(sum));
    h->top = new_top;
    for (u32 i = 0; i < b->v_width; i += 16) {
        v16f acc = load_row(h->acc, i, b->v_width, whole) * keep;
        for (u32 t = 0; t < b->n_tokens; t++)
            acc = lanes_fma(lanes_set(score[t]),
                            load_cached(b->v + t * b->stride, type, i, b->v_width, whole), acc);
        memcpy(h->acc + i, &acc, (whole ? 16 : MIN(16, b->v_width - i)) * sizeof *h->acc);
    }
}

static void attend(struct cpu_head *h, const float *q, const struct cpu_block *b)
{
    bool whole = b->k_width % 16 == 0 && b->v_width % 16 == 0;
    if (b->type == QT_F16 && whole)
        attend_block(h, q, b, QT_F16, true);
    else if (b->type == QT_F16)
        attend_block(h, q, b, QT_F16, false);
    else
        attend_block(h, q, b, QT_F32, false);
}

/* ---- recurrence ---- */

/* Values in lanes: both sums run over keys, so nothing crosses lanes. */
INLINE void wkv7_lanes(float *S, float *y, const float *const in[6], u32 n, u32 i, u32 width)
{
    const float *r = in[0], *w = in[1], *k = in[2], *v = in[3], *kk = in[4], *a = in[5];
    v16f sa = {0}, out = {0}, value = lanes_load_part(v + i, width);
    for (u32 j = 0; j < n; j++)
        sa = lanes_fma(lanes_load_part(S + (size_t)j * n + i, width), lanes_set(-kk[j]), sa);
    for (u32 j = 0; j < n; j++) {
        float *row = S + (size_t)j * n + i;
        v16f s = lanes_load_part(row, width) * w[j];
        s = lanes_fma(value, lanes_set(k[j]), s);
        s = lanes_fma(sa, lanes_set(kk[j] * a[j]), s);
        out = lanes_fma(s, lanes_set(r[j]), out);
        memcpy(row, &s, width * sizeof *row);
    }
    memcpy(y + i, &out, width * sizeof *y);
}

static void wkv7(float *S, float *y, const float *const in[6], u32 n)
{
    u32 i = 0;
    for (; i + 16 <= n; i += 16) wkv7_lanes(S, y, in, n, i, 16);
    if (i < n) wkv7_lanes(S, y, in, n, i, n - i);
}

const struct row_kernels KERNEL_TABLE(cpu_rows) = {
    .norm = norm,
    .glu = glu,
    .attend = attend,
    .wkv7 = wkv7,
};
