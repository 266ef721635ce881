/* Matrix products over packed weights. Compiled once per instruction set, with -DISA=<its name> and
 * that set's flags. */
#include "cpu/kernels.h"

#include "cpu/decode.h"

/* act_quantise in lanes: adding 1.5·2^23 rounds to nearest even and leaves the integer in the low
 * bits. */
static void quantise(const struct cpu_act *a, u32 row, const float *x)
{
    typedef i8 v16b __attribute__((vector_size(16)));
    i8 *q = a->q + (size_t)row * a->n;
    float *scale = a->scale + (size_t)row * (a->n / BLOCK);
    i32 *sum = a->sum + (size_t)row * (a->n / 16);
    float *mins = a->mins + (size_t)row * (a->n / BLOCK * 3);
    for (u32 b = 0; b < a->n / BLOCK; b++) {
        v16f v[2] = {lanes_load(x + b * BLOCK), lanes_load(x + b * BLOCK + 16)};
        v16i size[2] = {(v16i)v[0] & 0x7fffffff, (v16i)v[1] & 0x7fffffff}, more = size[0] > size[1];
        /* In the order of their bits: unlike the maximum of floats this keeps NaN. */
        i32 bits = lanes_top_bits((size[0] & more) | (size[1] & ~more)),
            finite = -(bits < 0x7f800000);
        float top;
        memcpy(&top, &bits, sizeof top);
        if (top < 1e-30f) top = 0; /* as in act_quantise */
        float inverse = top > 0 ? 127.0f / top : 0;
        scale[b] = finite ? top / 127.0f : NAN;
        for (u32 h = 0; h < 2; h++) {
            v16i n = ((v16i)(v[h] * inverse + 12582912.0f) - 0x4b400000) & finite;
            v16b bytes = __builtin_convertvector(n, v16b);
            memcpy(q + b * BLOCK + 16 * h, &bytes, sizeof bytes);
            sum[2 * b + h] = lanes_total(n);
            mins[3 * b + 1 + h] = scale[b] * (float)sum[2 * b + h];
        }
        mins[3 * b] = scale[b] * (float)(sum[2 * b] + sum[2 * b + 1]);
    }
}

/* ---- exact int8 dots of 4 columns at a time ---- */

/* acc[row] += Σ_4 n·x of what group_of gives; small says that it is 0..127, else it is signed. */
INLINE lanes_int_part dot4(lanes_int_part acc, lanes_byte_part n, const i8 *x, bool small)
{
#if defined __AVX512VNNI__
    if (!small) n ^= 0x80; /* n + 128 */
    /* compilers spread the four in an instruction of its own */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(n), "m"(*(const i8(*)[4])x));
    return acc;
#elif defined __AVXVNNI__
    i32 four;
    memcpy(&four, x, sizeof four);
    if (!small) n ^= 0x80;
    return (lanes_int_part)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)n,
                                                   _mm256_set1_epi32(four));
#elif defined __AVX2__
    i32 four;
    memcpy(&four, x, sizeof four);
    __m256i a = (__m256i)n, b = _mm256_set1_epi32(four);
    if (!small) { /* |n|·(sign(n)·x) fits i16 pairs exactly */
        b = _mm256_sign_epi8(b, a);
        a = _mm256_abs_epi8(a);
    }
    __m256i pairs = _mm256_maddubs_epi16(a, b);
    return acc + (lanes_int_part)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined LANES_NEON
    (void)small;
    i32 four;
    memcpy(&four, x, sizeof four);
    int8x16_t xs = vreinterpretq_s8_s32(vdupq_n_s32(four)), w = (int8x16_t)n;
#if defined __ARM_FEATURE_DOTPROD
    return (lanes_int_part)vdotq_s32((int32x4_t)acc, w, xs);
#else
    int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(xs)), hi = vmull_high_s8(w, xs);
    return acc + (lanes_int_part)vpaddq_s32(vpaddlq_s16(lo), vpaddlq_s16(hi));
#endif
#else
    (void)small;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) acc[i] += (i8)n[4 * i + j] * x[j];
    return acc;
#endif
}

/* What acc starts from: quants are stored with a zero, and VNNI multiplies n + 128 by x. */
INLINE lanes_int_part dot_start(i32 sum, const struct shape f)
{
#if defined __AVX512VNNI__ || defined __AVXVNNI__
    return (f.small ? -f.bits.zero : -128) * sum - (lanes_int_part){0};
#else
    return -f.bits.zero * sum - (lanes_int_part){0};
#endif
}

/* ---- tiles ---- */

/* As many sums and dots as there are registers for: rows of a tile, and of a strip of floats. */
#if defined __AVX512F__
enum { ROWS_AT_ONCE = 8, STRIP_ROWS = 8, STRIP = STRIP_TILES };
#elif defined __AVX2__
enum { ROWS_AT_ONCE = 4, STRIP_ROWS = 6, STRIP = 1 };
#else
enum { ROWS_AT_ONCE = 4, STRIP_ROWS = 4, STRIP = 1 };
#endif

/* sum += scale·dx·dot, then min·dx·Σx: one fma each, in ascending blocks. */
INLINE lanes_part add_part(lanes_part sum, lanes_int_part dot, lanes_part s, lanes_part m, float dx,
                           const float *mins, u32 h, const struct shape f)
{
    sum = lanes_part_fma(__builtin_convertvector(dot, lanes_part), s * dx, sum);
    if (!f.has_min) return sum;
    return lanes_part_fma(m, mins[f.by_16 ? 1 + h : 0] - (lanes_part){0}, sum);
}

#if defined __ARM_FEATURE_MATMUL_INT8
/* As dot_groups for an even number of rows: two of them and two of the tile's make four sums of 8
 * columns in one instruction. */
INLINE void dot_pairs(lanes_int_part (*acc)[LANES_PARTS], const struct shape f, const u8 *quants,
                      const i8 *const *x, u32 g, u32 n, const u32 R)
{
    int32x4_t sum[ROWS_AT_ONCE / 2][8];
    for (u32 r = 0; r < R / 2; r++)
        for (u32 j = 0; j < 8; j++) sum[r][j] = vdupq_n_s32(0);
    for (u32 i = g; i < g + n; i += 2) {
        v64u q0 = group_of(f, quants, i), q1 = group_of(f, quants, i + 1);
        int32x4_t a[4], b[4];
        memcpy(a, &q0, sizeof a);
        memcpy(b, &q1, sizeof b);
        for (u32 r = 0; r < R / 2; r++) {
            int8x16_t xs = vcombine_s8(vld1_s8(x[2 * r] + 4 * i), vld1_s8(x[2 * r + 1] + 4 * i));
            for (u32 j = 0; j < 8; j++) {
                int32x4_t w =
                    j % 2 ? vzip2q_s32(a[j / 2], b[j / 2]) : vzip1q_s32(a[j / 2], b[j / 2]);
                sum[r][j] = vmmlaq_s32(sum[r][j], xs, vreinterpretq_s8_s32(w));
            }
        }
    }
    for (u32 r = 0; r < R / 2; r++)
        for (u32 j = 0; j < 4; j++) {
            int64x2_t lo = vreinterpretq_s64_s32(sum[r][2 * j]);
            int64x2_t hi = vreinterpretq_s64_s32(sum[r][2 * j + 1]);
            acc[2 * r][j] += (lanes_int_part)vuzp1q_s64(lo, hi);
            acc[2 * r + 1][j] += (lanes_int_part)vuzp2q_s64(lo, hi);
        }
}
#endif

/* Groups [g, g + n) of 4 columns of a block, for R rows. */
INLINE void dot_groups(lanes_int_part (*acc)[LANES_PARTS], const struct shape f, const u8 *quants,
                       const i8 *const *x, u32 g, u32 n, const u32 R)
{
#if defined __ARM_FEATURE_MATMUL_INT8
    if (R % 2 == 0) {
        dot_pairs(acc, f, quants, x, g, n, R);
        return;
    }
#endif
    for (u32 i = g; i < g + n; i++) {
        lanes_byte_part q[LANES_PARTS];
        for (u32 p = 0; p < LANES_PARTS; p++) q[p] = group_part(f, quants, i, p);
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++)
#pragma GCC unroll 4
            for (u32 p = 0; p < LANES_PARTS; p++)
                acc[r][p] = dot4(acc[r][p], q[p], x[r] + 4 * i, f.small);
    }
}

/* One row is a matter of reading memory. Two tiles at once are two streams, which most cores read
 * faster than one (struct cpu_act), and what comes next in a stream is asked for this far ahead;
 * behind the end of its tile a stream goes on two tiles later. */
INLINE void fetch_ahead(const struct packed *w, const struct cpu_act *a, const u8 *tile,
                        const u8 *at, u32 n, const u32 W)
{
    at += W > 1 && a->one_stream ? 4096 : 8192;
    if (at >= tile + w->tile_bytes) at += (W - 1) * w->tile_bytes;
    for (u32 i = 0; i < n; i += 64) __builtin_prefetch(at + i);
}

/* W neighbouring tiles for n ≤ R rows; the last of them stands in for those that are missing. */
INLINE void tile_int8(enum encoding enc, const struct packed *w, const u8 *tile, const u32 W,
                      const struct cpu_act *a, u32 row, u32 n, const u32 R, float *y)
{
    const struct shape f = shape_of(enc);
    const u32 halves = f.by_16 ? 2 : 1;
    lanes_part sum[ROWS_AT_ONCE][LANES_PARTS] = {0};
    size_t at[ROWS_AT_ONCE];
    for (u32 r = 0; r < R; r++) at[r] = (size_t)(row + MIN(r, n - 1)) * a->n;
    for (u32 b = 0; b < w->n_in / BLOCK; b++) {
        const i8 *x[ROWS_AT_ONCE];
        for (u32 r = 0; r < R; r++) x[r] = a->q + at[r] + b * BLOCK;
        for (u32 i = 0; i < W; i++) {
            const u8 *own = tile + i * w->tile_bytes;
            const struct scales sc = scales_of(enc, own, b);
            fetch_ahead(w, a, own, sc.quants, pack_block(enc), W);
            for (u32 h = 0; h < halves; h++) {
                lanes_int_part acc[ROWS_AT_ONCE][LANES_PARTS];
                lanes_part s[LANES_PARTS], m[LANES_PARTS];
                lanes_parts(s, sc.s[h]);
                lanes_parts(m, sc.m[h]);
#pragma GCC unroll 8
                for (u32 r = 0; r < R; r++) {
                    const i32 *s16 = a->sum + at[r] / 16 + 2 * b;
                    for (u32 p = 0; p < LANES_PARTS; p++)
                        acc[r][p] = dot_start(f.by_16 ? s16[h] : s16[0] + s16[1], f);
                }
                dot_groups(acc, f, sc.quants, x, h * 4, 8 / halves, R);
#pragma GCC unroll 8
                for (u32 r = 0; r < R; r++)
                    for (u32 p = 0; p < LANES_PARTS; p++)
                        sum[i * R + r][p] = add_part(sum[i * R + r][p], acc[r][p], s[p], m[p],
                                                     a->scale[at[r] / BLOCK + b],
                                                     a->mins + (at[r] / BLOCK + b) * 3, h, f);
            }
        }
    }
    memcpy(y, sum, (size_t)W * n * TILE * sizeof *y);
}

#if defined __AMX_INT8__

/* Sixteen rows at once on the matrix unit: the same exact dots, then the same fma per block and
 * row. Two blocks (or the halves of one) are in flight, so that one's dots are scaled while the
 * other's are made. Tiles: 0, 1 sums; 2, 3 activations; 4, 5 weights. */
enum { AMX_ROWS = 16 };

/* What ldtilecfg reads. */
struct amx_config {
    u8 palette, start_row, reserved[14];
    u16 row_bytes[16];
    u8 rows[16];
};

/* The compiler must see that cfg is read: gcc 12's intrinsic lets it drop the stores. cols: columns
 * of a product, 32 or 16. */
INLINE void amx_configure(u32 cols)
{
    const u16 x = (u16)cols;
    const u8 w = (u8)(cols / 4);
    const struct amx_config cfg = {
        .palette = 1, .row_bytes = {64, 64, x, x, 64, 64}, .rows = {16, 16, 16, 16, w, w}};
    __asm__ volatile("ldtilecfg %0" ::"m"(cfg));
}

/* The quants of a block as bytes: where they are, or unpacked into buf. */
INLINE const u8 *amx_quants(const struct shape f, const u8 *quants, u8 *buf)
{
    if (f.bits.low == 8) return quants;
    for (u32 i = 0; i < 8; i++) {
        v64u n = group_of(f, quants, i) - (u8)f.bits.zero;
        memcpy(buf + 64 * i, &n, 64);
    }
    return buf;
}

/* Scales the dots of part h of block b and adds them up. */
INLINE void amx_add(v16f *sum, const i32 (*dots)[TILE], const struct shape f,
                    const struct scales *sc, const struct cpu_act *a, u32 row, u32 b, u32 h)
{
    const float *dx = a->scale + (size_t)row * (a->n / BLOCK) + b;
    const float *mins = a->mins + ((size_t)row * (a->n / BLOCK) + b) * 3;
#pragma GCC unroll 16
    for (u32 r = 0; r < AMX_ROWS; r++) {
        v16i d;
        memcpy(&d, dots[r], sizeof d);
        sum[r] = add_part(sum[r], d, sc->s[h], sc->m[h], *dx, mins, h, f);
        dx += a->n / BLOCK;
        mins += a->n / BLOCK * 3;
    }
}

INLINE void amx_tile(enum encoding enc, const struct packed *w, const u8 *tile,
                     const struct cpu_act *a, u32 row, float *y)
{
    const struct shape f = shape_of(enc);
    const u32 n_blocks = w->n_in / BLOCK;
    _Alignas(64) i32 dots[2][AMX_ROWS][TILE];
    _Alignas(64) u8 buf[2][512];
    v16f sum[AMX_ROWS];
    const i8 *x = a->q + (size_t)row * a->n;
    for (u32 r = 0; r < AMX_ROWS; r++) sum[r] = (v16f){0};
    for (u32 b = 0; b < n_blocks; b += f.by_16 ? 1 : 2) {
        u32 b1 = f.by_16 ? b : b + 1;
        bool both = b1 < n_blocks;
        const struct scales s0 = scales_of(enc, tile, b);
        const struct scales s1 = both && !f.by_16 ? scales_of(enc, tile, b1) : s0;
        const u8 *q0 = amx_quants(f, s0.quants, buf[0]);
        const u8 *q1 = f.by_16 ? q0 + 256 : amx_quants(f, s1.quants, buf[1]);
        _tile_zero(0);
        _tile_loadd(2, x + b * BLOCK, a->n);
        _tile_loadd(4, q0, 64);
        _tile_dpbssd(0, 2, 4);
        _tile_stored(0, dots[0], sizeof dots[0][0]);
        if (both) {
            _tile_zero(1);
            _tile_loadd(3, x + (f.by_16 ? b * BLOCK + 16 : b1 * BLOCK), a->n);
            _tile_loadd(5, q1, 64);
            _tile_dpbssd(1, 3, 5);
            _tile_stored(1, dots[1], sizeof dots[1][0]);
        }
        amx_add(sum, (const i32(*)[TILE])dots[0], f, &s0, a, row, b, 0);
        if (both) amx_add(sum, (const i32(*)[TILE])dots[1], f, &s1, a, row, b1, f.by_16 ? 1 : 0);
    }
    for (u32 r = 0; r < AMX_ROWS; r++) lanes_store(y + r * TILE, sum[r]);
}

#endif

/* Part p of a column of a tile. A whole one would go through memory where it is two registers. */
INLINE lanes_part float_part(enum encoding enc, const u8 *column, u32 p)
{
    const u8 *at = column + p * PART * (encoding_info[enc].low / 8);
    return enc == ENC_F32   ? lanes_part_load(at)
           : enc == ENC_F16 ? lanes_part_half(at)
                            : lanes_part_bf16(at);
}

/* W neighbouring tiles for n ≤ R rows; y[tile][row][16] has n_rows of them. */
INLINE void tile_float(enum encoding enc, const struct packed *w, const u8 *tile, const u32 W,
                       const struct cpu_act *a, u32 row, u32 n, const u32 R, float *y, u32 n_rows)
{
    const u32 bytes = encoding_info[enc].low / 8;
    lanes_part sum[STRIP_TILES * STRIP_ROWS][LANES_PARTS];
    const float *x[STRIP_ROWS];
#pragma GCC unroll 24
    for (u32 i = 0; i < W * R; i++)
        for (u32 p = 0; p < LANES_PARTS; p++) sum[i][p] = (lanes_part){0};
    for (u32 r = 0; r < R; r++) x[r] = a->x + (size_t)(row + MIN(r, n - 1)) * a->n;
    for (u32 c = 0; c < w->n_in; c++) {
        lanes_part v[STRIP_TILES][LANES_PARTS];
#pragma GCC unroll 4
        for (u32 i = 0; i < W; i++) {
            const u8 *own = tile + i * w->tile_bytes, *at = own + (size_t)c * TILE * bytes;
            if ((W == 1 || R == 1) && c % (4 / bytes) == 0) fetch_ahead(w, a, own, at, 64, W);
#pragma GCC unroll 4
            for (u32 p = 0; p < LANES_PARTS; p++) v[i][p] = float_part(enc, at, p);
        }
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++)
#pragma GCC unroll 4
            for (u32 i = 0; i < W; i++)
#pragma GCC unroll 4
                for (u32 p = 0; p < LANES_PARTS; p++)
                    sum[i * R + r][p] =
                        lanes_part_fma(v[i][p], x[r][c] - (lanes_part){0}, sum[i * R + r][p]);
    }
#pragma GCC unroll 4
    for (u32 i = 0; i < W; i++)
#pragma GCC unroll 8
        for (u32 r = 0; r < R; r++)
            for (u32 p = 0; r < n && p < LANES_PARTS; p++)
                memcpy(y + (i * n_rows + r) * TILE + p * TILE / LANES_PARTS, &sum[i * R + r][p],
                       sizeof(lanes_part));
}

/* More rows than a tile takes read weights from the second cache. What bounds a tile alone is loads
 * then, one for every fma; a strip needs half as many. */
INLINE void strip_of(enum encoding enc, const struct packed *w, const u8 *tile,
                     const struct cpu_act *a, u32 row, u32 n_rows, float *y)
{
    for (u32 r = 0; r < n_rows; r += STRIP_ROWS)
        tile_float(enc, w, tile, STRIP, a, row + r, MIN(n_rows - r, STRIP_ROWS), STRIP_ROWS,
                   y + r * TILE, n_rows);
}

INLINE void tile_rows(enum encoding enc, const struct packed *w, const u8 *tile, const u32 W,
                      const struct cpu_act *a, u32 row, u32 n, const u32 R, float *y)
{
    if (encoding_is_int8(enc))
        tile_int8(enc, w, tile, W, a, row, n, R, y);
    else
        tile_float(enc, w, tile, W, a, row, n, R, y, n);
}

INLINE void tile_of(enum encoding enc, const struct packed *w, const u8 *tile,
                    const struct cpu_act *a, u32 row, u32 n_rows, float *y)
{
    u32 r = 0;
#if defined __AMX_INT8__
    if (encoding_is_int8(enc) && n_rows >= AMX_ROWS) {
        amx_configure(shape_of(enc).by_16 ? 16 : BLOCK);
        for (; r + AMX_ROWS <= n_rows; r += AMX_ROWS)
            amx_tile(enc, w, tile, a, row + r, y + r * TILE);
        _tile_release();
    }
#endif
    for (u32 n; r < n_rows; r += n) {
        n = MIN(n_rows - r, ROWS_AT_ONCE);
        if (n > 6)
            tile_rows(enc, w, tile, 1, a, row + r, n, ROWS_AT_ONCE, y + r * TILE);
        else if (n > 4)
            tile_rows(enc, w, tile, 1, a, row + r, n, MIN(6, ROWS_AT_ONCE), y + r * TILE);
        else if (n > 1)
            tile_rows(enc, w, tile, 1, a, row + r, n, 4, y + r * TILE);
        else
            tile_rows(enc, w, tile, 1, a, row + r, 1, 1, y + r * TILE);
    }
}

INLINE void tiles_of(enum encoding enc, const struct packed *w, const u8 *tile, u32 n_tiles,
                     const struct cpu_act *a, u32 row, u32 n_rows, float *y)
{
    u32 t = 0;
    /* of floats a tile alone would wait for its sums */
    bool pairs = n_rows == 1 && !(a->one_stream && encoding_is_int8(enc));
    for (; pairs && t + 2 <= n_tiles; t += 2)
        tile_rows(enc, w, tile + t * w->tile_bytes, 2, a, row, 1, 1, y + t * TILE);
    for (; !encoding_is_int8(enc) && n_rows > ROWS_AT_ONCE && t + STRIP <= n_tiles; t += STRIP)
        strip_of(enc, w, tile + t * w->tile_bytes, a, row, n_rows, y + t * n_rows * TILE);
    for (; t < n_tiles; t++)
        tile_of(enc, w, tile + t * w->tile_bytes, a, row, n_rows, y + t * n_rows * TILE);
}

static void tiles(const struct packed *w, const u8 *first, u32 n_tiles, const struct cpu_act *a,
                  u32 row, u32 n_rows, float *y)
{
    switch (w->enc) {
#define TILE_CASE(id, ...) \
    case ENC_##id: tiles_of(ENC_##id, w, first, n_tiles, a, row, n_rows, y); break;
        ENCODING_TABLE(TILE_CASE)
#undef TILE_CASE
    case ENC_COUNT: break;
    }
}

static void floats(const struct packed *w, const u8 *tile, float *dst, size_t pitch)
{
    const u32 bytes = pack_unit(w->enc);
    for (u32 c = 0; c < w->n_in; c++, tile += bytes, dst += pitch) {
        for (u32 p = 0; p < LANES_PARTS; p++)
            lanes_part_store(dst + p * PART, float_part(w->enc, tile, p));
    }
}

const struct tile_kernels KERNEL_TABLE(cpu_tiles) = {
    .quantise = quantise,
    .tiles = tiles,
    .floats = floats,
};
