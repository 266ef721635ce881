/* What looks at one row or one head: norms, gates, attention, recurrence. Compiled once per
 * instruction set, with -DISA=<its name> and that set's flags. */
#include "cpu/kernels.h"

#include "cpu/lanes.h"

/* Sixteen values from column i on; whole says that rows end with a full vector. */
INLINE v16f load_row(const float *p, u32 i, u32 n, bool whole)
{
    return whole || n - i >= 16 ? lanes_load(p + i) : lanes_load_part(p + i, n - i);
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

static void lerp(float *y, const float *a, const float *b, const float *m, u32 n)
{
    for (u32 i = 0; i < n; i += 16) {
        v16f x = load_row(a, i, n, false), d = load_row(b, i, n, false) - x;
        v16f r = x + d * load_row(m, i, n, false);
        memcpy(y + i, &r, MIN(16, n - i) * sizeof *y);
    }
}

static void combine(float *y, const float *x, const float *w, u32 n, size_t pitch, u32 k)
{
    for (u32 i = 0; i < n; i += 16) {
        v16f sum = {0};
        for (u32 j = 0; j < k; j++) sum += load_row(x + j * pitch, i, n, false) * w[j];
        memcpy(y + i, &sum, MIN(16, n - i) * sizeof *y);
    }
}

INLINE v16f act_lanes(enum act_kind kind, v16f x)
{
    switch (kind) {
    case ACT_TANH: return lanes_tanh(x);
    case ACT_SIGMOID: return lanes_sigmoid(x);
    case ACT_RELU2: x = lanes_max(x, (v16f){0}); return x * x;
    case ACT_DECAY: return lanes_exp(lanes_sigmoid(x) * -0.606530660f);
    }
    return x;
}

INLINE void act_kind(float *y, const float *x, u32 n, enum act_kind kind)
{
    for (u32 i = 0; i < n; i += 16) {
        v16f r = act_lanes(kind, load_row(x, i, n, false));
        memcpy(y + i, &r, MIN(16, n - i) * sizeof *y);
    }
}

static void act(float *y, const float *x, u32 n, enum act_kind kind)
{
    switch (kind) {
    case ACT_TANH: act_kind(y, x, n, ACT_TANH); break;
    case ACT_SIGMOID: act_kind(y, x, n, ACT_SIGMOID); break;
    case ACT_RELU2: act_kind(y, x, n, ACT_RELU2); break;
    case ACT_DECAY: act_kind(y, x, n, ACT_DECAY); break;
    }
}

/* ---- attention ---- */

/* Queries that share the loads of a block: two vectors of sums each must fit into registers. */
#if defined __AVX512F__
enum { AT_ONCE = 8 };
#else
enum { AT_ONCE = 2 };
#endif

INLINE u32 round_up_16(u32 n)
{
    return (n + 15) / 16 * 16;
}

/* Sixteen values of blocks of 32 with an f16 scale each; i is a multiple of 16. */
INLINE v16f load_block(const u8 *p, enum qtype type, u32 i)
{
    typedef i8 v16i8 __attribute__((vector_size(16)));
    const u8 *b = p + (size_t)(i / 32) * (type == QT_Q8_0 ? 34 : 18);
    u16 scale;
    v16i8 q;
    memcpy(&scale, b, sizeof scale);
    memcpy(&q, b + 2 + (type == QT_Q8_0 ? i % 32 : 0), sizeof q);
    if (type == QT_Q4_0) q = (i % 32 ? (q >> 4 & 15) : (q & 15)) - 8;
    return __builtin_convertvector(q, v16f) * half_to_float(scale);
}

/* Sixteen cached values from column i on; whole says that rows end with a full vector. */
INLINE v16f load_cached(const u8 *p, enum qtype type, u32 i, u32 n, bool whole)
{
    if (type == QT_Q8_0 || type == QT_Q4_0) return load_block(p, type, i);
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

/* The same of token t's key. */
INLINE v16f load_key(const struct cpu_kv *kv, u32 t, enum qtype type, u32 i, bool whole)
{
    u32 n_rope = kv->rope_width, n = kv->k_width - n_rope;
    if (i < n) return load_cached(kv->k + t * kv->stride, type, i, n, whole);
    if (type == QT_Q4_0) type = QT_Q8_0;
    return load_cached(kv->rope + t * kv->stride, type, i - n, n_rope, whole);
}

/* Keys times the Hadamard matrix of their width over its root: hostmem_rotate for 32 at once. */
static void rotate_keys(float *kt, u32 n)
{
    for (u32 half = 1; half < n; half *= 2)
        for (u32 i = 0; i < n; i++) {
            if (i & half) continue;
            float *a = kt + (size_t)i * BLOCK, *b = a + (size_t)half * BLOCK;
            for (u32 t = 0; t < BLOCK; t += 16) {
                v16f x = lanes_load(a + t), y = lanes_load(b + t);
                lanes_store(a + t, x + y);
                lanes_store(b + t, x - y);
            }
        }
    float scale = 1 / sqrtf((float)n);
    for (size_t i = 0; i < (size_t)n * BLOCK; i += 16)
        lanes_store(kt + i, lanes_load(kt + i) * scale);
}

/* A piece of what comes next, in order of addresses: then the second cache's own prefetcher joins
 * in, which has more requests under way than a core's loads can have. */
INLINE void fetch_next(const struct cpu_kv *kv, u32 t)
{
    size_t begin = kv->next_bytes * t / BLOCK, end = kv->next_bytes * (t + 1) / BLOCK;
    for (size_t i = begin & ~(size_t)63; i < end; i += 64) __builtin_prefetch(kv->next + i, 0, 2);
}

/* whole: every vector is full and every token is there. */
INLINE void unpack_type(const struct cpu_kv *kv, enum qtype type, enum qtype v_type, bool whole)
{
    const u32 n = whole ? BLOCK : kv->n_tokens, vw = round_up_16(kv->v_width);
    for (u32 t = 0; t < BLOCK; t += 16)
        for (u32 i = 0; i < kv->k_width; i += 16) {
            v16f r[16];
#pragma GCC unroll 16
            for (u32 j = 0; j < 16; j++)
                r[j] = t + j < n ? load_key(kv, t + j, type, i, whole) : (v16f){0};
            lanes_transpose(r);
#pragma GCC unroll 16
            for (u32 j = 0; j < 16; j++) lanes_store(kv->kt + (size_t)(i + j) * BLOCK + t, r[j]);
        }
    for (u32 t = 0; t < BLOCK; t++) {
        fetch_next(kv, t);
        for (u32 i = 0; i < kv->v_width; i += 16)
            lanes_store(kv->vf + (size_t)t * vw + i,
                        t < n ? load_cached(kv->v + t * kv->stride, v_type, i, kv->v_width, whole)
                              : (v16f){0});
    }
}

static void unpack(const struct cpu_kv *kv)
{
    bool whole = kv->n_tokens == BLOCK && kv->k_width % 16 == 0 && kv->v_width % 16 == 0 &&
                 kv->rope_width % 16 == 0;
    if (kv->type == QT_F16 && whole)
        unpack_type(kv, QT_F16, QT_F16, true);
    else if (kv->type == QT_F16)
        unpack_type(kv, QT_F16, QT_F16, false);
    else if (kv->type == QT_F32)
        unpack_type(kv, QT_F32, QT_F32, false);
    else if (kv->type == QT_Q4_0)
        unpack_type(kv, QT_Q4_0, QT_Q4_0, false);
    else if (kv->v_type == QT_Q4_0)
        unpack_type(kv, QT_Q8_0, QT_Q4_0, false);
    else
        unpack_type(kv, QT_Q8_0, QT_Q8_0, false);
    if (kv->rotated) rotate_keys(kv->kt, kv->k_width);
}

/* s[r][t] = scale·q_r·k_t, each one chain of fma in ascending columns. */
INLINE void score(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R, float scale,
                  float (*s)[BLOCK])
{
    v16f lo[AT_ONCE], hi[AT_ONCE];
    for (u32 r = 0; r < R; r++) lo[r] = hi[r] = (v16f){0};
    for (u32 i = 0; i < kv->k_width; i++) {
        v16f k0 = lanes_load(kv->kt + (size_t)i * BLOCK);
        v16f k1 = lanes_load(kv->kt + (size_t)i * BLOCK + 16);
        for (u32 r = 0; r < R; r++) {
            v16f x = lanes_set(q[r].q[i]);
            lo[r] = lanes_fma(x, k0, lo[r]);
            hi[r] = lanes_fma(x, k1, hi[r]);
        }
    }
    for (u32 r = 0; r < R; r++) {
        lanes_store(s[r], lo[r] * scale);
        lanes_store(s[r] + 16, hi[r] * scale);
    }
}

/* Scores to weights. The top moves only when a score is well above it: e⁸ is far from overflow, and
 * what was gathered seldom needs to be scaled. */
INLINE void weigh(const struct cpu_query *q, float *s, u32 v_width)
{
    const v16i lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const v16i none = (v16i)lanes_set(-INFINITY);
    v16i in0 = lane < (i32)q->n_tokens, in1 = lane + 16 < (i32)q->n_tokens;
    v16f s0 = (v16f)(((v16i)lanes_load(s) & in0) | (none & ~in0));
    v16f s1 = (v16f)(((v16i)lanes_load(s + 16) & in1) | (none & ~in1));
    float top = q->state[0];
    if (lanes_any(s0 > top + 8) || lanes_any(s1 > top + 8)) {
        float new_top = lanes_top(lanes_max(s0, s1));
        v16f keep = lanes_exp(lanes_set(top - new_top));
        for (u32 i = 0; i < 16 + v_width; i += 16)
            lanes_store(q->state + STATE_SUM + i, lanes_load(q->state + STATE_SUM + i) * keep);
        q->state[0] = top = new_top;
    }
    s0 = lanes_exp(s0 - top);
    s1 = lanes_exp(s1 - top);
    lanes_store(s, s0);
    lanes_store(s + 16, s1);
    lanes_store(q->state + STATE_SUM, lanes_load(q->state + STATE_SUM) + s0 + s1);
}

/* Adds weighted values of W vectors from column i on. */
INLINE void gather(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R, u32 i,
                   const u32 W, float (*s)[BLOCK])
{
    const size_t pitch = round_up_16(kv->v_width);
    v16f acc[AT_ONCE][2];
    for (u32 r = 0; r < R; r++)
        for (u32 w = 0; w < W; w++) acc[r][w] = lanes_load(q[r].state + STATE_VALUE + i + 16 * w);
    for (u32 t = 0; t < kv->n_tokens; t++) {
        v16f v[2];
        for (u32 w = 0; w < W; w++) v[w] = lanes_load(kv->vf + t * pitch + i + 16 * w);
        for (u32 r = 0; r < R; r++)
            for (u32 w = 0; w < W; w++) acc[r][w] = lanes_fma(lanes_set(s[r][t]), v[w], acc[r][w]);
    }
    for (u32 r = 0; r < R; r++)
        for (u32 w = 0; w < W; w++) lanes_store(q[r].state + STATE_VALUE + i + 16 * w, acc[r][w]);
}

INLINE void attend_rows(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R,
                        float scale)
{
    _Alignas(64) float s[AT_ONCE][BLOCK];
    const u32 vw = round_up_16(kv->v_width);
    u32 i = 0;
    score(kv, q, R, scale, s);
    for (u32 r = 0; r < R; r++) weigh(&q[r], s[r], vw);
    for (; i + 32 <= vw; i += 32) gather(kv, q, R, i, 2, s);
    if (i < vw) gather(kv, q, R, i, 1, s);
}

static void attend(const struct cpu_kv *kv, const struct cpu_query *q, u32 n, float scale)
{
    for (; n >= AT_ONCE; n -= AT_ONCE, q += AT_ONCE) attend_rows(kv, q, AT_ONCE, scale);
    switch (n) {
#if defined __AVX512F__
    case 7: attend_rows(kv, q, 7, scale); break;
    case 6: attend_rows(kv, q, 6, scale); break;
    case 5: attend_rows(kv, q, 5, scale); break;
    case 4: attend_rows(kv, q, 4, scale); break;
    case 3: attend_rows(kv, q, 3, scale); break;
    case 2: attend_rows(kv, q, 2, scale); break;
#endif
    case 1: attend_rows(kv, q, 1, scale); break;
    default: break;
    }
}

static void merge(float *state, const float *other, u32 v_width)
{
    if (!(other[0] > -INFINITY)) return; /* it saw nothing */
    float top = other[0] > state[0] ? other[0] : state[0];
    v16f a = lanes_exp(lanes_set(state[0] - top)), b = lanes_exp(lanes_set(other[0] - top));
    state[0] = top;
    for (u32 i = STATE_SUM; i < STATE_VALUE + v_width; i += 16)
        lanes_store(state + i, lanes_fma(lanes_load(state + i), a, lanes_load(other + i) * b));
}

static void finish(float *y, const float *state, u32 v_width)
{
    float sum = lanes_sum(lanes_load(state + STATE_SUM));
    for (u32 i = 0; i < v_width; i += 16) {
        v16f v = lanes_load(state + STATE_VALUE + i) / sum;
        memcpy(y + i, &v, MIN(16, v_width - i) * sizeof *y);
    }
}

/* ---- recurrence ---- */

/* Columns [i, i + 16·W) of the values, in lanes: both sums run over keys, so nothing crosses lanes,
 * and W sums are under way at a time. width: columns of the last vector. */
INLINE void wkv7_lanes(float *S, float *y, const float *const in[6], u32 n, u32 i, const u32 W,
                       const u32 width)
{
    const float *r = in[0], *w = in[1], *k = in[2], *v = in[3], *kk = in[4], *a = in[5];
    v16f sa[4], out[4], value[4];
    for (u32 c = 0; c < W; c++) {
        sa[c] = out[c] = (v16f){0};
        value[c] = lanes_load_part(v + i + 16 * c, width);
    }
    for (u32 j = 0; j < n; j++)
        for (u32 c = 0; c < W; c++)
            sa[c] = lanes_fma(lanes_load_part(S + (size_t)j * n + i + 16 * c, width),
                              lanes_set(-kk[j]), sa[c]);
    for (u32 j = 0; j < n; j++)
        for (u32 c = 0; c < W; c++) {
            float *row = S + (size_t)j * n + i + 16 * c;
            v16f s = lanes_load_part(row, width) * w[j];
            s = lanes_fma(value[c], lanes_set(k[j]), s);
            s = lanes_fma(sa[c], lanes_set(kk[j] * a[j]), s);
            out[c] = lanes_fma(s, lanes_set(r[j]), out[c]);
            memcpy(row, &s, width * sizeof *row);
        }
    for (u32 c = 0; c < W; c++) memcpy(y + i + 16 * c, &out[c], width * sizeof *y);
}

static void wkv7(float *S, float *y, const float *const in[6], u32 n)
{
    u32 i = 0;
    for (; i + 64 <= n; i += 64) wkv7_lanes(S, y, in, n, i, 4, 16);
    for (; i + 16 <= n; i += 16) wkv7_lanes(S, y, in, n, i, 1, 16);
    if (i < n) wkv7_lanes(S, y, in, n, i, 1, n - i);
}

static void rk_bonus(float *out, const float *y, const float *const in[4], u32 n)
{
    const float *r = in[0], *k = in[1], *r_k = in[2], *v = in[3];
    v16f sum = {0};
    for (u32 i = 0; i < n; i += 16)
        sum = lanes_fma(load_row(r, i, n, false) * load_row(k, i, n, false),
                        load_row(r_k, i, n, false), sum);
    v16f s = lanes_set(lanes_sum(sum));
    for (u32 i = 0; i < n; i += 16) {
        v16f x = lanes_fma(s, load_row(v, i, n, false), load_row(y, i, n, false));
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
    .unpack = unpack,
    .attend = attend,
    .merge = merge,
    .finish = finish,
    .wkv7 = wkv7,
    .rk_bonus = rk_bonus,
    .weigh = weigh_logits,
};
