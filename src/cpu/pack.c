#include "cpu/pack.h"

#include <string.h>

#include "quant/split.h"

/* Of a unit: one tile of rows, encoding_info.cols columns. */
static const u32 unit_bytes[ENC_COUNT] = {
    [ENC_F32] = 64,  [ENC_F16] = 32,  [ENC_BF16] = 32, [ENC_I8] = 544,
    [ENC_U4] = 320,  [ENC_U8] = 576,  [ENC_NL4] = 320, [ENC_MX4] = 320,
    [ENC_K4] = 2368, [ENC_K5] = 4416, [ENC_K6] = 4384, [ENC_K2] = 2624,
};

void pack_plan(struct packed *p, const struct weight *w)
{
    enum encoding enc = encoding_of(w->type);
    *p = (struct packed){.enc = enc,
                         .n_in = w->n_in,
                         .n_out = w->n_out,
                         .n_slices = w->n_slices,
                         .n_tiles = (w->n_out + TILE - 1) / TILE};
    p->tile_bytes = (u64)(w->n_in / encoding_info[enc].cols) * unit_bytes[enc];
    p->slice_bytes = p->tile_bytes * p->n_tiles;
}

u64 pack_bytes(const struct weight *w)
{
    struct packed p;
    pack_plan(&p, w);
    return p.slice_bytes * p.n_slices;
}

/* ---- quants inside a block of 32 columns ---- */

static u8 get_byte(const u8 *quants, u32 row, u32 col)
{
    return quants[col / 4 * 64 + row * 4 + col % 4];
}

static u8 get_nibble(const u8 *quants, u32 row, u32 col)
{
    return quants[col / 8 * 64 + row * 4 + col % 4] >> (col / 4 % 2 * 4) & 15;
}

static void put_half(u8 *p, u32 row, u16 h)
{
    memcpy(p + 2 * row, &h, sizeof h);
}

static float get_half(const u8 *p, u32 row)
{
    u16 h;
    memcpy(&h, p + 2 * row, sizeof h);
    return half_to_float(h);
}

/* Four columns at once, as a word. */
static void put_quants(enum encoding enc, u8 *quants, u32 row, const u8 *n)
{
    u32 x[BLOCK / 4];
    memcpy(x, n, sizeof x);
    if (encoding_has_nibbles(enc))
        for (u32 i = 0; i < BLOCK / 4; i += 2) x[i / 2] = x[i] | x[i + 1] << 4;
    for (u32 i = 0; i < BLOCK / (encoding_has_nibbles(enc) ? 8 : 4); i++)
        memcpy(quants + i * 64 + row * 4, &x[i], sizeof x[i]);
}

/* ---- one row of one unit ---- */

static u32 sub_bytes(enum encoding enc)
{
    return encoding_has_nibbles(enc) ? 256 : 512;
}

/* What follows the quants in each of the 8 blocks of a K encoding, in rows of 16 bytes. */
static u32 k_scale_rows(enum encoding enc)
{
    return enc == ENC_K2 ? 4 : 2;
}

static void put_super(enum encoding enc, u8 *unit, u32 row, const struct quant_split *q)
{
    u32 quants = sub_bytes(enc), block = quants + 16 * k_scale_rows(enc);
    for (u32 j = 0; j < 8; j++) {
        u8 *b = unit + j * block, *s = b + quants;
        put_quants(enc, b, row, q->n + j * BLOCK);
        if (enc == ENC_K4 || enc == ENC_K5) {
            s[row] = q->s[j];
            s[16 + row] = q->m[j];
        } else {
            s[row] = q->s[2 * j];
            s[16 + row] = q->s[2 * j + 1];
        }
        if (enc == ENC_K2) {
            s[32 + row] = q->m[2 * j];
            s[48 + row] = q->m[2 * j + 1];
        }
    }
    put_half(unit + 8 * block, row, q->d);
    if (enc != ENC_K6) put_half(unit + 8 * block + 32, row, q->e);
}

static void put_block(enum encoding enc, u8 *unit, u32 row, const struct quant_split *q)
{
    u8 *s = unit + sub_bytes(enc);
    put_quants(enc, unit, row, q->n);
    if (enc == ENC_NL4 || enc == ENC_MX4) {
        memcpy(s + 4 * row, &q->f, sizeof q->f);
        return;
    }
    put_half(s, row, q->d);
    if (enc != ENC_I8) put_half(s + 32, row, q->e);
}

/* IQ4_XS has eight scales over one: each of its blocks becomes one of the encoding's. */
static void put_iq4_xs(u8 *unit, u32 row, const struct quant_split *q)
{
    for (u32 j = 0; j < 8; j++) {
        struct quant_split b = {.f = q->f * (float)(i8)q->s[j]};
        memcpy(b.n, q->n + j * BLOCK, BLOCK);
        put_block(ENC_NL4, unit + j * unit_bytes[ENC_NL4], row, &b);
    }
}

/* One block of one row, `at` columns from its beginning. */
static void put_row(enum encoding enc, enum qtype type, u8 *tile, u32 row, u32 at, const u8 *src)
{
    u8 *unit = tile + (u64)(at / encoding_info[enc].cols) * unit_bytes[enc];
    struct quant_split q;
    quant_split(type, src, &q);
    if (type == QT_IQ4_XS)
        put_iq4_xs(unit, row, &q);
    else if (encoding_info[enc].cols == SUPER)
        put_super(enc, unit, row, &q);
    else
        put_block(enc, unit, row, &q);
}

/* Columns [at, at + n) of one row of floats. */
static void put_floats(u32 size, u8 *tile, u32 row, u32 at, u32 n, const u8 *src)
{
    for (u32 i = at; i < at + n; i++, src += size)
        if (size == 2)
            memcpy(tile + (u64)i * TILE * 2 + row * 2, src, 2);
        else
            memcpy(tile + (u64)i * TILE * 4 + row * 4, src, 4);
}

/* All rows of a few columns before the next columns: what is written stays in the cache. */
static void pack_tile(const struct packed *p, const struct weight *w, u8 *tile, const u8 *src,
                      u32 n_rows)
{
    const struct quant_info *info = quant_info(w->type);
    bool blocks = encoding_is_int8(p->enc);
    u32 cols = blocks ? info->blk : BLOCK;
    if (n_rows < TILE) memset(tile, 0, p->tile_bytes);
    for (u32 at = 0; at < p->n_in; at += cols)
        for (u32 r = 0; r < n_rows; r++) {
            const u8 *row = src + r * w->row_bytes + (u64)at / info->blk * info->bytes;
            if (blocks)
                put_row(p->enc, w->type, tile, r, at, row);
            else
                put_floats(info->bytes, tile, r, at, MIN(cols, p->n_in - at), row);
        }
}

void pack_tiles(const struct packed *p, const struct weight *w, u64 begin, u64 end)
{
    for (u64 t = begin; t < end; t++) {
        u64 slice = t / p->n_tiles, first = t % p->n_tiles * TILE;
        pack_tile(p, w, p->data + t * p->tile_bytes,
                  w->data + slice * w->slice_bytes + first * w->row_bytes,
                  (u32)MIN(TILE, p->n_out - first));
    }
}

/* ---- back to floats, for the embedding ---- */

static float weight_of_block(enum encoding enc, const u8 *unit, u32 row, u32 col)
{
    const u8 *s = unit + sub_bytes(enc);
    u8 n = (encoding_has_nibbles(enc) ? get_nibble : get_byte)(unit, row, col);
    float d;
    if (enc == ENC_NL4 || enc == ENC_MX4) {
        memcpy(&d, s + 4 * row, sizeof d);
        return d * (float)(enc == ENC_NL4 ? encoding_nl4 : encoding_mx4)[n];
    }
    d = get_half(s, row);
    return enc == ENC_I8 ? d * (float)(i8)n : d * (float)n + get_half(s + 32, row);
}

static float weight_of_super(enum encoding enc, const u8 *unit, u32 row, u32 col)
{
    u32 quants = sub_bytes(enc), block = quants + 16 * k_scale_rows(enc), j = col / BLOCK;
    const u8 *b = unit + j * block, *s = b + quants, *tail = unit + 8 * block;
    u8 n = (encoding_has_nibbles(enc) ? get_nibble : get_byte)(b, row, col % BLOCK);
    u32 half = col % BLOCK / 16;
    float d = get_half(tail, row);
    if (enc == ENC_K6) return d * (float)(i8)s[16 * half + row] * (float)(i8)n;
    float e = get_half(tail + 32, row);
    if (enc == ENC_K2)
        return d * (float)s[16 * half + row] * (float)n - e * (float)s[32 + 16 * half + row];
    return d * (float)s[row] * (float)n - e * (float)s[16 + row];
}

static float weight_of_float(enum encoding enc, const u8 *unit, u32 row)
{
    float f;
    u16 h;
    if (enc == ENC_F32) {
        memcpy(&f, unit + 4 * row, sizeof f);
        return f;
    }
    memcpy(&h, unit + 2 * row, sizeof h);
    return enc == ENC_F16 ? half_to_float(h) : bf16_to_float(h);
}

void pack_row(const struct packed *p, u32 row, float *dst)
{
    const u8 *tile = p->data + (u64)(row / TILE) * p->tile_bytes;
    u32 r = row % TILE, cols = encoding_info[p->enc].cols, bytes = unit_bytes[p->enc];
    for (u32 i = 0; i < p->n_in; i++) {
        const u8 *unit = tile + (u64)(i / cols) * bytes;
        dst[i] = cols == 1       ? weight_of_float(p->enc, unit, r)
                 : cols == BLOCK ? weight_of_block(p->enc, unit, r, i % BLOCK)
                                 : weight_of_super(p->enc, unit, r, i % SUPER);
    }
}
