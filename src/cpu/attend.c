/* Attention of some queries over 32 cached tokens, in f32 or on matrix units. Compiled once per
 * instruction set, with -DISA=<its name> and that set's flags.
 *
 * On matrix units, for rows of prompts, every number is the sum of two of bf16, 16 bits together:
 * (a + a')·(b + b') is three products of tiles, a'·b' is left out. */
#include "cpu/kernels.h"

#include "cpu/bf16.h"

/* Queries that share the loads of a block, and parts of a row of it that they meet at a time: sums
 * of all must fit into registers. */
#if defined __AVX512F__
enum { AT_ONCE = 8, STRIP_PARTS = 2 };
#elif defined __AVX2__
enum { AT_ONCE = 6, STRIP_PARTS = 2 };
#elif defined LANES_NEON
enum { AT_ONCE = 6, STRIP_PARTS = 4 };
#else
enum { AT_ONCE = 2, STRIP_PARTS = 2 };
#endif
enum { STRIP = STRIP_PARTS * PART };

INLINE u32 round_up_16(u32 n)
{
    return (n + 15) / 16 * 16;
}

/* A part of blocks of 32 with an f16 scale each, from column i on. */
INLINE lanes_part load_block(const u8 *p, enum qtype type, u32 i)
{
    typedef i8 bytes __attribute__((vector_size(PART)));
    const u8 *b = p + (size_t)(i / 32) * (type == QT_Q8_0 ? 34 : 18);
    u16 scale;
    bytes q;
    memcpy(&scale, b, sizeof scale);
    memcpy(&q, b + 2 + i % (type == QT_Q8_0 ? 32 : 16), sizeof q);
    if (type == QT_Q4_0) q = (i % 32 < 16 ? (q & 15) : (q >> 4 & 15)) - 8;
    lanes_int_part n = __builtin_convertvector(q, lanes_int_part);
    return __builtin_convertvector(n, lanes_part) * half_to_float(scale);
}

/* A part of n cached values from column i on, zeros behind them; whole says that there are none. */
INLINE lanes_part load_cached(const u8 *p, enum qtype type, u32 i, u32 n, bool whole)
{
    if (type == QT_Q8_0 || type == QT_Q4_0) return load_block(p, type, i);
    u32 size = type == QT_F16 ? 2 : 4;
    u8 last[sizeof(lanes_part)] = {0};
    const u8 *at = p + (size_t)i * size;
    if (!whole && n < i + PART) {
        if (n > i) memcpy(last, at, (size_t)(n - i) * size);
        at = last;
    }
    return type == QT_F16 ? lanes_part_half(at) : lanes_part_load(at);
}

/* The same of token t's key. */
INLINE lanes_part load_key(const struct cpu_kv *kv, u32 t, enum qtype type, u32 i, bool whole)
{
    u32 n_rope = kv->rope_width, n = kv->k_width - n_rope;
    if (!whole && i >= kv->k_width) return (lanes_part){0};
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

/* whole: every part is full and every token is there. */
INLINE void unpack_type(const struct cpu_kv *given, enum qtype type, enum qtype v_type, bool whole)
{
    const struct cpu_kv own = *given, *kv = &own; /* no store can change it */
    const u32 n = whole ? BLOCK : kv->n_tokens;
    const u32 kw = round_up_16(kv->k_width), vw = round_up_16(kv->v_width);
    for (u32 t = 0; t < BLOCK; t += PART)
        for (u32 i = 0; i < kw; i += PART) {
            lanes_part r[PART];
#pragma GCC unroll 16
            for (u32 j = 0; j < PART; j++)
                r[j] = t + j < n ? load_key(kv, t + j, type, i, whole) : (lanes_part){0};
            lanes_part_transpose(r);
#pragma GCC unroll 16
            for (u32 j = 0; j < PART; j++)
                lanes_part_store(kv->kt + (size_t)(i + j) * BLOCK + t, r[j]);
        }
    for (u32 t = 0; t < BLOCK; t++) {
        fetch_next(kv, t);
        for (u32 i = 0; i < vw; i += PART)
            lanes_part_store(
                kv->vf + (size_t)t * vw + i,
                t < n ? load_cached(kv->v + t * kv->stride, v_type, i, kv->v_width, whole)
                      : (lanes_part){0});
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

/* Sums of R queries over a strip of P parts. */
typedef lanes_part strip_sums[AT_ONCE][STRIP_PARTS];

/* sum[r] += Σ_i x_r[i]·row_i, each one chain of fma in ascending i. */
INLINE void add_rows(strip_sums sum, const float *const x[AT_ONCE], const float *row, size_t pitch,
                     u32 n, const u32 R, const u32 P)
{
    for (u32 i = 0; i < n; i++, row += pitch) {
        lanes_part b[STRIP_PARTS];
#pragma GCC unroll 4
        for (u32 p = 0; p < P; p++) b[p] = lanes_part_load(row + p * PART);
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++) {
            lanes_part a = lanes_part_set(x[r][i]);
#pragma GCC unroll 4
            for (u32 p = 0; p < P; p++) sum[r][p] = lanes_part_fma(a, b[p], sum[r][p]);
        }
    }
}

/* s[r][t] = scale·q_r·k_t. */
INLINE void score(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R, float scale,
                  float (*s)[BLOCK])
{
    const float *x[AT_ONCE];
    for (u32 r = 0; r < R; r++) x[r] = q[r].q;
    for (u32 t = 0; t < BLOCK; t += STRIP) {
        strip_sums sum;
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++)
#pragma GCC unroll 4
            for (u32 p = 0; p < STRIP_PARTS; p++) sum[r][p] = (lanes_part){0};
        add_rows(sum, x, kv->kt + t, BLOCK, kv->k_width, R, STRIP_PARTS);
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++)
#pragma GCC unroll 4
            for (u32 p = 0; p < STRIP_PARTS; p++)
                lanes_part_store(s[r] + t + p * PART, sum[r][p] * scale);
    }
}

/* Scores to weights. The top moves only when a score is well above it: e⁸ is far from overflow, and
 * what was gathered seldom needs to be scaled. */
INLINE void weigh(const struct cpu_query *q, lanes_part s[2 * LANES_PARTS], u32 v_width,
                  float softcap)
{
    static const i32 lane[BLOCK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    const lanes_int_part none = (lanes_int_part)lanes_part_set(-INFINITY);
    lanes_int_part above = {0};
    float top = q->state[0];
    for (u32 p = 0; softcap > 0 && p < 2 * LANES_PARTS; p++)
        s[p] = lanes_part_tanh(s[p] / softcap) * softcap;
#pragma GCC unroll 8
    for (u32 p = 0; p < 2 * LANES_PARTS; p++) {
        lanes_int_part t;
        memcpy(&t, lane + p * PART, sizeof t);
        lanes_int_part in = (t < (i32)q->n_tokens) & (t >= (i32)q->first);
        s[p] = (lanes_part)(((lanes_int_part)s[p] & in) | (none & ~in));
        above |= s[p] > top + 8;
    }
    if (lanes_part_any(above)) {
        float new_top = lanes_top(lanes_max(lanes_whole(s), lanes_whole(s + LANES_PARTS)));
        v16f keep = lanes_exp(lanes_set(top - new_top));
        for (u32 i = 0; i < 16 + v_width; i += 16)
            lanes_store(q->state + STATE_SUM + i, lanes_load(q->state + STATE_SUM + i) * keep);
        q->state[0] = top = new_top;
    }
#pragma GCC unroll 8
    for (u32 p = 0; p < 2 * LANES_PARTS; p++) s[p] = lanes_part_exp(s[p] - top);
#pragma GCC unroll 4
    for (u32 p = 0; p < LANES_PARTS; p++) {
        float *sum = q->state + STATE_SUM + p * PART;
        lanes_part_store(sum, lanes_part_load(sum) + s[p] + s[LANES_PARTS + p]);
    }
}

/* Adds weighted values of P parts from column i on. */
INLINE void gather(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R, u32 i,
                   const u32 P, float (*s)[BLOCK])
{
    const float *x[AT_ONCE];
    strip_sums sum;
#pragma GCC unroll 8
    for (u32 r = 0; r < R; r++) {
        x[r] = s[r];
#pragma GCC unroll 4
        for (u32 p = 0; p < P; p++)
            sum[r][p] = lanes_part_load(q[r].state + STATE_VALUE + i + p * PART);
    }
    add_rows(sum, x, kv->vf + i, round_up_16(kv->v_width), kv->n_tokens, R, P);
#pragma GCC unroll 8
    for (u32 r = 0; r < R; r++)
#pragma GCC unroll 4
        for (u32 p = 0; p < P; p++)
            lanes_part_store(q[r].state + STATE_VALUE + i + p * PART, sum[r][p]);
}

INLINE void attend_rows(const struct cpu_kv *kv, const struct cpu_query *q, const u32 R,
                        float scale)
{
    _Alignas(64) float s[AT_ONCE][BLOCK];
    const u32 vw = round_up_16(kv->v_width);
    u32 i = 0;
    score(kv, q, R, scale, s);
    for (u32 r = 0; r < R; r++) {
        lanes_part w[2 * LANES_PARTS];
        if (q[r].first >= q[r].n_tokens) {
            memset(s[r], 0, sizeof s[r]);
            continue;
        }
#pragma GCC unroll 8
        for (u32 p = 0; p < 2 * LANES_PARTS; p++) w[p] = lanes_part_load(s[r] + p * PART);
        weigh(&q[r], w, vw, kv->softcap);
#pragma GCC unroll 8
        for (u32 p = 0; p < 2 * LANES_PARTS; p++) lanes_part_store(s[r] + p * PART, w[p]);
    }
    for (; i + STRIP <= vw; i += STRIP) gather(kv, q, R, i, STRIP_PARTS, s);
    if (i < vw) gather(kv, q, R, i, LANES_PARTS, s);
}

static void attend(const struct cpu_kv *kv, const struct cpu_query *q, u32 n, float scale)
{
    for (; n >= AT_ONCE; n -= AT_ONCE, q += AT_ONCE) attend_rows(kv, q, AT_ONCE, scale);
    switch (n) {
#if defined __AVX512F__
    case 7: attend_rows(kv, q, 7, scale); break;
    case 6: attend_rows(kv, q, 6, scale); break;
#endif
#if defined __AVX2__ || defined LANES_NEON
    case 5: attend_rows(kv, q, 5, scale); break;
    case 4: attend_rows(kv, q, 4, scale); break;
    case 3: attend_rows(kv, q, 3, scale); break;
    case 2: attend_rows(kv, q, 2, scale); break;
#endif
    case 1: attend_rows(kv, q, 1, scale); break;
    default: break;
    }
}

/* ---- on matrix units ---- */

/* Rounds x to bf16, and says what that took away. */
INLINE v16f rest_of(v16f *x)
{
    v16f rounded = (v16f)(((v16u)*x + 0x8000) & 0xffff0000), rest = *x - rounded;
    *x = rounded;
    return rest;
}

/* 32 columns of a row, and in the tile behind it what they have beyond bf16. */
INLINE void store_both(u16 *p, v16f lo, v16f hi)
{
    v16f lo_rest = rest_of(&lo), hi_rest = rest_of(&hi);
    bf16_store(p, lo, hi);
    bf16_store(p + TILE_VALUES, lo_rest, hi_rest);
}

INLINE void store_pairs_of_both(u16 *p, v16f even, v16f odd)
{
    v16f even_rest = rest_of(&even), odd_rest = rest_of(&odd);
    bf16_store_pairs(p, even, odd);
    bf16_store_pairs(p + TILE_VALUES, even_rest, odd_rest);
}

static void split_query(u16 *group, u32 row, const float *q, u32 n, float scale)
{
    for (u32 i = 0; i < n; i += BLOCK) {
        float part[BLOCK] = {0};
        memcpy(part, q + i, MIN((u32)BLOCK, n - i) * sizeof *part);
        store_both(group + (size_t)i * 2 * TILE + row * BLOCK, lanes_load(part) * scale,
                   lanes_load(part + 16) * scale);
    }
}

/* Keys: [16 tokens][block of 32 columns]; values: [16 columns], each two tiles. */
static void split_cached(const struct cpu_kv *kv)
{
    const u32 kw = round_up_16(kv->k_width), vw = round_up_16(kv->v_width);
    u16 *p = kv->kb;
    for (u32 t = 0; t < BLOCK; t += 16)
        for (u32 b = 0; b < kw; b += BLOCK, p += 2 * TILE_VALUES)
            for (u32 i = 0; i < BLOCK; i += 2) {
                const float *k = kv->kt + (size_t)(b + i) * BLOCK + t;
                bool in = b + i < kw;
                store_pairs_of_both(p + i * TILE, in ? lanes_load(k) : (v16f){0},
                                    in ? lanes_load(k + BLOCK) : (v16f){0});
            }
    p = kv->vb;
    for (u32 i = 0; i < vw; i += 16, p += 2 * TILE_VALUES)
        for (u32 t = 0; t < BLOCK; t += 2) {
            const float *v = kv->vf + (size_t)t * vw + i;
            store_pairs_of_both(p + t * TILE, lanes_load(v), lanes_load(v + vw));
        }
}

/* y[row][16·tile..] = or += a·bᵀ over n_blocks blocks of 32 columns, of one or two groups of 16
 * rows of a and one or two tiles of 16 rows of b. */
struct cpu_product {
    float *y;
    size_t pitch;
    const u16 *a, *b;
    size_t a_group, b_tile; /* from each to the next */
    u32 n_blocks;
    bool add;
};

#if defined __AMX_BF16__

/* Tiles: 0 to 3 sums, 4 and 5 of a, 6 and 7 of b. */
INLINE void multiply(const struct cpu_product *p, const u32 n_groups, const u32 n_tiles)
{
    const size_t pitch = p->pitch * sizeof *p->y;
    const u16 *a = p->a, *b = p->b, *a1 = a + p->a_group, *b1 = b + p->b_tile;
    float *y = p->y, *y1 = y + TILE * p->pitch;
    if (p->add) {
        _tile_loadd(0, y, pitch);
        if (n_tiles > 1) _tile_loadd(1, y + TILE, pitch);
        if (n_groups > 1) _tile_loadd(2, y1, pitch);
        if (n_groups > 1 && n_tiles > 1) _tile_loadd(3, y1 + TILE, pitch);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
#define PRODUCTS()                                    \
    do {                                              \
        _tile_dpbf16ps(0, 4, 6);                      \
        if (n_tiles > 1) _tile_dpbf16ps(1, 4, 7);     \
        if (n_groups > 1) {                           \
            _tile_dpbf16ps(2, 5, 6);                  \
            if (n_tiles > 1) _tile_dpbf16ps(3, 5, 7); \
        }                                             \
    } while (0)
    for (size_t i = 0, rest = TILE_VALUES; i < p->n_blocks * 2 * TILE_VALUES;
         i += 2 * TILE_VALUES, rest += 2 * TILE_VALUES) {
        _tile_loadd(4, a + rest, 64);
        _tile_loadd(6, b + i, 64);
        if (n_tiles > 1) _tile_loadd(7, b1 + i, 64);
        if (n_groups > 1) _tile_loadd(5, a1 + rest, 64);
        PRODUCTS();
        _tile_loadd(4, a + i, 64);
        if (n_groups > 1) _tile_loadd(5, a1 + i, 64);
        PRODUCTS();
        _tile_loadd(6, b + rest, 64);
        if (n_tiles > 1) _tile_loadd(7, b1 + rest, 64);
        PRODUCTS();
    }
#undef PRODUCTS
    _tile_stored(0, y, pitch);
    if (n_tiles > 1) _tile_stored(1, y + TILE, pitch);
    if (n_groups > 1) _tile_stored(2, y1, pitch);
    if (n_groups > 1 && n_tiles > 1) _tile_stored(3, y1 + TILE, pitch);
}

#else

INLINE void multiply(const struct cpu_product *p, const u32 n_groups, const u32 n_tiles)
{
    for (u32 r = 0; r < n_groups * TILE; r++)
        for (u32 c = 0; c < n_tiles; c++) {
            const u16 *a = p->a + r / TILE * p->a_group + r % TILE * BLOCK,
                      *b = p->b + c * p->b_tile;
            float *y = p->y + r * p->pitch + c * TILE;
            v16f sum = p->add ? lanes_load(y) : (v16f){0};
            for (size_t i = 0, rest = TILE_VALUES; i < p->n_blocks * 2 * TILE_VALUES;
                 i += 2 * TILE_VALUES, rest += 2 * TILE_VALUES) {
                sum = bf16_add_block(sum, a + rest, b + i);
                sum = bf16_add_block(sum, a + i, b + i);
                sum = bf16_add_block(sum, a + i, b + rest);
            }
            lanes_store(y, sum);
        }
}

#endif

/* One or two groups of 16 queries on their way through a block. */
struct cpu_pair {
    _Alignas(64) float s[2 * TILE][BLOCK];
    _Alignas(64) u16 w[2][2 * TILE_VALUES];
};

static void score_pair(const struct cpu_kv *kv, const u16 *queries, u32 n, struct cpu_pair *pair)
{
    const u32 n_blocks = (kv->k_width + BLOCK - 1) / BLOCK;
    const size_t key = (size_t)n_blocks * 2 * TILE_VALUES;
    const struct cpu_product p = {pair->s[0], BLOCK, queries, kv->kb, key, key, n_blocks, false};
    if (n > TILE)
        multiply(&p, 2, 2);
    else
        multiply(&p, 1, 2);
}

/* n of the queries are there; to the others all weigh nothing. */
static void weigh_pair(const struct cpu_query *q, u32 n, u32 v_width, float softcap,
                       struct cpu_pair *pair)
{
    for (u32 r = 0; r < (n > TILE ? 2 * TILE : TILE); r++) {
        lanes_part x[2 * LANES_PARTS] = {{0}};
        if (r < n && q[r].first < q[r].n_tokens) {
            for (u32 p = 0; p < 2 * LANES_PARTS; p++) x[p] = lanes_part_load(pair->s[r] + p * PART);
            weigh(&q[r], x, v_width, softcap);
        }
        store_both(pair->w[r / TILE] + r % TILE * BLOCK, lanes_whole(x),
                   lanes_whole(x + LANES_PARTS));
    }
}

INLINE void gather_groups(const struct cpu_kv *kv, float *values, u32 v_width,
                          const struct cpu_pair *pair, const u32 n_groups)
{
    struct cpu_product p = {.y = values,
                            .pitch = STATE_VALUE + v_width,
                            .a = pair->w[0],
                            .b = kv->vb,
                            .a_group = 2 * TILE_VALUES,
                            .b_tile = 2 * TILE_VALUES,
                            .n_blocks = 1,
                            .add = true};
    for (; p.y + TILE < values + v_width; p.y += 2 * TILE, p.b += 2 * p.b_tile)
        multiply(&p, n_groups, 2);
    if (v_width % BLOCK) multiply(&p, n_groups, 1);
}

/* The next pair is scored before weights of this one are used: what was just stored is slow to load
 * as a tile. */
static void attend_tiles(const struct cpu_kv *kv, const struct cpu_query *q, const u16 *queries,
                         u32 n)
{
    struct cpu_pair pairs[2], *pair = pairs, *next = pairs + 1;
    const u32 vw = round_up_16(kv->v_width);
    const size_t step = 2 * (size_t)(2 * TILE) * ((kv->k_width + BLOCK - 1) / BLOCK * BLOCK);
    bf16_begin();
    score_pair(kv, queries, n, pair);
    for (u32 i = 0; i < n; i += 2 * TILE, q += 2 * TILE) {
        u32 left = n - i;
        weigh_pair(q, left, vw, kv->softcap, pair);
        if (left > 2 * TILE) score_pair(kv, queries += step, left - 2 * TILE, next);
        if (left > TILE)
            gather_groups(kv, q->state + STATE_VALUE, vw, pair, 2);
        else
            gather_groups(kv, q->state + STATE_VALUE, vw, pair, 1);
        struct cpu_pair *other = pair;
        pair = next;
        next = other;
    }
    bf16_end();
}

/* ---- sums of queries ---- */

static void merge(float *state, const float *other, u32 v_width)
{
    if (!(other[0] > -INFINITY)) return; /* it saw nothing */
    float top = other[0] > state[0] ? other[0] : state[0];
    v16f a = lanes_exp(lanes_set(state[0] - top)), b = lanes_exp(lanes_set(other[0] - top));
    state[0] = top;
    for (u32 i = STATE_SUM; i < STATE_VALUE + v_width; i += 16)
        lanes_store(state + i, lanes_fma(lanes_load(state + i), a, lanes_load(other + i) * b));
}

static void finish(float *y, const float *state, u32 v_width, float sink)
{
    float sum = lanes_sum(lanes_load(state + STATE_SUM)), above = sink - state[0];
    above = above > 88 ? 88 : above; /* then nothing else weighs anything */
    sum += lanes_exp(lanes_set(above))[0];
    for (u32 i = 0; i < v_width; i += 16) {
        v16f v = lanes_load(state + STATE_VALUE + i) / sum;
        if (v_width - i >= 16)
            lanes_store(y + i, v);
        else
            memcpy(y + i, &v, (v_width - i) * sizeof *y);
    }
}

const struct attention_kernels KERNEL_TABLE(cpu_attention) = {
    .unpack = unpack,
    .attend = attend,
    .split_query = split_query,
    .split_cached = split_cached,
    .attend_tiles = attend_tiles,
    .merge = merge,
    .finish = finish,
};
