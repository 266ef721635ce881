/* Matrix products in bf16, for rows of prompts: weights are decoded once for all rows of a step and
 * rounded to bf16, sums are f32 in the order of the TDPBF16PS or the VDPBF16PS instruction, which
 * plain fma repeats in every bit. Compiled once per instruction set, with -DISA=<its name> and that
 * set's flags. */
#include "cpu/kernels.h"

#include "cpu/bf16.h"
#include "cpu/decode.h"

/* ---- weights ---- */

/* Byte j of every row's four, as byte `to` of a word that is zero elsewhere. */
INLINE v16i byte_to(v64u group, u32 j, u32 to)
{
#if defined __AVX512BW__
    const v16u first = {0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12};
    const v16u from = (first + j) << 8 * to | (0x80808080 & ~(255u << 8 * to));
    return (v16i)_mm512_shuffle_epi8((__m512i)group, (__m512i)from);
#else
    return (v16i)(((v16u)group >> 8 * j & 255) << 8 * to);
#endif
}

/* Weight n·s + m of column j, where q holds n + zero: m then includes -zero·s. Bytes with a sign
 * are best taken at the top of a word, as n·2²⁴; s of I8 knows that. */
INLINE v16f weight_of(v64u q, u32 j, v16f s, v16f m, const struct shape f)
{
    v16i n = byte_to(q, j, f.small ? 0 : 3);
    v16f x = lanes_from_int(f.table ? n >> 24 : n);
    return f.has_min || f.bits.zero ? lanes_fma(x, s, m) : x * s;
}

INLINE void decode_quants(enum encoding enc, const u8 *tile, u32 b, u16 *dst)
{
    const struct shape f = shape_of(enc);
    const struct scales sc = scales_of(enc, tile, b);
    for (u32 i = 0; i < 8; i++) {
        v64u q = group_of(f, sc.quants, i);
        v16f s = f.bits.low == 8 ? sc.s[0] * 0x1p-24f : sc.s[i / 4], c[4];
        v16f m = f.bits.zero ? s * (float)-f.bits.zero : sc.m[i / 4];
        for (u32 j = 0; j < 4; j++) c[j] = weight_of(q, j, s, m, f);
        bf16_store_pairs(dst + i * 64, c[0], c[1]);
        bf16_store_pairs(dst + i * 64 + 32, c[2], c[3]);
    }
}

INLINE v16f float_column(enum encoding enc, const u8 *tile, u32 i)
{
    return enc == ENC_F16 ? lanes_half(tile + (size_t)i * 32) : lanes_bf16(tile + (size_t)i * 32);
}

INLINE void decode_floats(enum encoding enc, const u8 *tile, u32 n, u32 b, u16 *dst)
{
    u32 begin = b * BLOCK, end = MIN(n, begin + BLOCK);
    if (end - begin == BLOCK) {
#pragma GCC unroll 16
        for (u32 i = 0; i < BLOCK; i += 2)
            bf16_store_pairs(dst + i * TILE, float_column(enc, tile, begin + i),
                             float_column(enc, tile, begin + i + 1));
        return;
    }
    for (u32 i = begin; i < begin + BLOCK; i += 2)
        bf16_store_pairs(dst + (i - begin) * TILE, i < end ? float_column(enc, tile, i) : (v16f){0},
                         i + 1 < end ? float_column(enc, tile, i + 1) : (v16f){0});
}

/* Block b of the tile that will be wanted next. */
INLINE const u8 *next_block(const struct cpu_half *h, u32 b, u64 *bytes)
{
    *bytes = h->w->tile_bytes * BLOCK / h->w->n_in; /* of a block, or nearly so */
    return h->tile + h->to_next + b * *bytes;
}

INLINE void decode_as(enum encoding enc, const struct cpu_half *h, u32 b, u32 n_blocks, bool fetch,
                      u16 *dst)
{
    u64 bytes;
    for (u32 i = 0; i < n_blocks; i++) {
        const u8 *next = next_block(h, b + i, &bytes);
        for (u64 at = 0; fetch && at < bytes; at += 64) __builtin_prefetch(next + at);
        if (encoding_is_int8(enc))
            decode_quants(enc, h->tile, b + i, dst + (size_t)i * TILE_VALUES);
        else
            decode_floats(enc, h->tile, h->w->n_in, b + i, dst + (size_t)i * TILE_VALUES);
    }
}

static void decode(const struct cpu_half *h, u32 b, u32 n_blocks, bool fetch, u16 *dst)
{
    switch (h->w->enc) {
#define DECODE_CASE(id, ...) \
    case ENC_##id: decode_as(ENC_##id, h, b, n_blocks, fetch, dst); break;
        ENCODING_TABLE(DECODE_CASE)
#undef DECODE_CASE
    case ENC_COUNT: break;
    }
}

/* ---- activations ---- */

static void pack(u16 *group, u32 row, const float *x, u32 n)
{
    for (u32 i = 0; i < n; i += BLOCK) {
        u16 *dst = group + (size_t)i * TILE + row * BLOCK;
        float part[BLOCK] = {0};
        const float *src = x + i;
        if (n - i < BLOCK) src = memcpy(part, src, (n - i) * sizeof *part);
        v16f lo = lanes_load(src), hi = lanes_load(src + 16);
        bf16_store(dst, lo, hi);
    }
}

/* ---- products ---- */

#if defined __AMX_BF16__

enum { ROWS_AT_ONCE = 2 * TILE };

/* Where sums of 16 rows and 16 outputs are: in y, or in a copy where y is no rectangle. */
struct sums {
    float *p;
    size_t pitch; /* bytes */
    u32 n_rows;
    bool copied;
};

static struct sums sums_of(const struct cpu_panel *p, u32 row, const struct cpu_half *h,
                           float (*copy)[TILE])
{
    float *const *y = h->y + row;
    struct sums s = {.n_rows = MIN(TILE, p->n_rows - row)};
    s.copied = s.n_rows < TILE || h->n < TILE || !h->pitch;
    s.p = s.copied ? copy[0] : y[0] + h->col;
    s.pitch = s.copied ? sizeof *copy : h->pitch * sizeof(float);
    for (u32 r = 0; s.copied && p->block > 0 && r < s.n_rows; r++)
        memcpy(copy[r], y[r] + h->col, h->n * sizeof **y);
    return s;
}

static void sums_put(const struct sums *s, const struct cpu_half *h, u32 row)
{
    for (u32 r = 0; s->copied && r < s->n_rows; r++)
        memcpy(h->y[row + r] + h->col, s->p + r * TILE, h->n * sizeof *s->p);
}

/* Does `with` tile, row group, weight tile for each of the products that there are. */
#define EACH_PRODUCT(with)                  \
    do {                                    \
        with(0, 0, 0);                      \
        if (n_tiles > 1) with(1, 0, 1);     \
        if (n_groups > 1) {                 \
            with(2, 1, 0);                  \
            if (n_tiles > 1) with(3, 1, 1); \
        }                                   \
    } while (0)

/* One or two groups of 16 rows against one or two weight tiles. Tiles: 0 to 3 sums, 4 and 5
 * activations, 6 and 7 weights. */
INLINE void amx_block(const struct cpu_panel *p, const u16 (*w)[PANEL_BLOCKS * TILE_VALUES],
                      const float *start, u32 row, u32 n_groups, u32 n_tiles)
{
    _Alignas(64) float copy[2][2][TILE][TILE];
    struct sums s[2][2];
    const size_t group = p->group_values;
    const u16 *x = p->x + row / TILE * group + (size_t)p->block * TILE_VALUES;
#define SUMS_OF(t, g, c) s[g][c] = sums_of(p, row + g * TILE, &p->half[c], copy[g][c])
    EACH_PRODUCT(SUMS_OF);
#define SUMS_START(t, g, c) _tile_loadd(t, start + c * TILE, 0)
#define SUMS_LOAD(t, g, c)  _tile_loadd(t, s[g][c].p, s[g][c].pitch)
    if (p->block == 0)
        EACH_PRODUCT(SUMS_START);
    else
        EACH_PRODUCT(SUMS_LOAD);
    for (u32 b = 0; b < p->n_blocks * TILE_VALUES; b += TILE_VALUES) {
        _tile_loadd(4, x + b, 64);
        _tile_loadd(6, w[0] + b, 64);
        if (n_tiles > 1) _tile_loadd(7, w[1] + b, 64);
        if (n_groups > 1) _tile_loadd(5, x + group + b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (n_tiles > 1) _tile_dpbf16ps(1, 4, 7);
        if (n_groups > 1) _tile_dpbf16ps(2, 5, 6);
        if (n_groups > 1 && n_tiles > 1) _tile_dpbf16ps(3, 5, 7);
    }
#define SUMS_STORE(t, g, c) _tile_stored(t, s[g][c].p, s[g][c].pitch)
    EACH_PRODUCT(SUMS_STORE);
#define SUMS_PUT(t, g, c) sums_put(&s[g][c], &p->half[c], row + g * TILE)
    EACH_PRODUCT(SUMS_PUT);
}

static void block_of(const struct cpu_panel *p, const u16 (*w)[PANEL_BLOCKS * TILE_VALUES],
                     const float *start, u32 row)
{
    bool groups = p->n_rows - row > TILE, tiles = p->n_halves > 1;
    if (groups && tiles)
        amx_block(p, w, start, row, 2, 2);
    else if (tiles)
        amx_block(p, w, start, row, 1, 2);
    else if (groups)
        amx_block(p, w, start, row, 2, 1);
    else
        amx_block(p, w, start, row, 1, 1);
}

#else

enum { ROWS_AT_ONCE = 1 };

static void block_of(const struct cpu_panel *p, const u16 (*w)[PANEL_BLOCKS * TILE_VALUES],
                     const float *start, u32 row)
{
    const u16 *x =
        p->x + row / TILE * p->group_values + (size_t)p->block * TILE_VALUES + row % TILE * BLOCK;
    for (u32 c = 0; c < p->n_halves; c++) {
        u32 n = p->half[c].n;
        float *y = p->half[c].y[row] + p->half[c].col;
        v16f sum = lanes_load(start + c * TILE);
        if (p->block > 0) sum = n == TILE ? lanes_load(y) : lanes_load_first(y, n);
        for (u32 b = 0; b < p->n_blocks * TILE_VALUES; b += TILE_VALUES)
            sum = bf16_add_block(sum, x + b, w[c] + b);
        memcpy(y, &sum, n * sizeof *y);
    }
}

#endif

/* Eight rows of a group against W tiles, pair of columns by pair. Rows that don't exist are
 * computed from what lies there. Decoding alone reads faster than memory does, so each eight rows
 * fetch their share of what comes next. */
enum { PAIR_ROWS = 8 };

INLINE void fetch_share(const struct cpu_panel *p, u32 b, u32 row, const u32 W)
{
    for (u32 c = 0; c < W; c++) {
        u64 bytes, n = p->n_rows, end;
        const u8 *next = next_block(&p->half[c], p->block + b, &bytes);
        end = bytes * MIN(n, row + PAIR_ROWS) / n;
        for (u64 at = bytes * row / n & ~63ull; at < end; at += 64)
            __builtin_prefetch(next + at, 0, 2);
    }
}

INLINE void pair_rows(const struct cpu_panel *p, const u16 (*w)[PANEL_BLOCKS * TILE_VALUES],
                      const float *start, u32 row, const u32 W)
{
    const u16 *x =
        p->x + row / TILE * p->group_values + (size_t)p->block * TILE_VALUES + row % TILE * BLOCK;
    u32 n_rows = MIN(PAIR_ROWS, p->n_rows - row);
    v16f sum[2][PAIR_ROWS];
    for (u32 c = 0; c < W; c++)
        for (u32 r = 0; r < PAIR_ROWS; r++) {
            const struct cpu_half *h = &p->half[c];
            sum[c][r] = lanes_load(start + c * TILE);
            if (p->block > 0 && r < n_rows)
                sum[c][r] = lanes_load_first(h->y[row + r] + h->col, h->n);
        }
    for (u32 b = 0; b < p->n_blocks * TILE_VALUES; b += TILE_VALUES) {
        fetch_share(p, b / TILE_VALUES, row, W);
        for (u32 i = 0; i < BLOCK; i += 2) {
            v16i pairs[2];
#pragma GCC unroll 2
            for (u32 c = 0; c < W; c++) memcpy(&pairs[c], w[c] + b + i * TILE, sizeof pairs[c]);
#pragma GCC unroll 8
            for (u32 r = 0; r < PAIR_ROWS; r++)
#pragma GCC unroll 2
                for (u32 c = 0; c < W; c++)
                    sum[c][r] = bf16_add_pair(sum[c][r], x + b + r * BLOCK + i, pairs[c]);
        }
    }
    for (u32 c = 0; c < W; c++)
        for (u32 r = 0; r < n_rows; r++)
            memcpy(p->half[c].y[row + r] + p->half[c].col, &sum[c][r],
                   p->half[c].n * sizeof(float));
}

static void multiply(const struct cpu_panel *p)
{
    _Alignas(64) u16 w[2][PANEL_BLOCKS * TILE_VALUES];
    _Alignas(64) float start[2 * TILE] = {0};
    for (u32 c = 0; c < p->n_halves; c++) {
        const struct cpu_half *h = &p->half[c];
        decode(h, p->block, p->n_blocks, !p->by_pairs, w[c]);
        if (h->bias) memcpy(start + c * TILE, h->bias, h->n * sizeof *start);
    }
    for (u32 row = 0; p->by_pairs && row < p->n_rows; row += PAIR_ROWS)
        if (p->n_halves > 1)
            pair_rows(p, w, start, row, 2);
        else
            pair_rows(p, w, start, row, 1);
    if (p->by_pairs) return;
    bf16_begin();
    for (u32 row = 0; row < p->n_rows; row += ROWS_AT_ONCE) block_of(p, w, start, row);
    bf16_end();
}

const struct panel_kernels KERNEL_TABLE(cpu_panels) = {
    .pack = pack,
    .multiply = multiply,
};
