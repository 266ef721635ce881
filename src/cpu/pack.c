#include "cpu/pack.h"

#include <string.h>

#include "quant/split.h"

void pack_plan(struct packed *p, const struct weight *w)
{
    enum encoding enc = encoding_narrowest(w->type);
    *p = (struct packed){.enc = enc,
                         .n_in = w->n_in,
                         .n_out = w->n_out,
                         .n_slices = w->n_slices,
                         .n_tiles = (w->n_out + TILE - 1) / TILE};
    p->tile_bytes = (u64)(w->n_in / encoding_info[enc].cols) * pack_unit(enc);
    p->slice_bytes = p->tile_bytes * p->n_tiles;
}

u64 pack_bytes(const struct weight *w)
{
    struct packed p;
    pack_plan(&p, w);
    return p.slice_bytes * p.n_slices;
}

/* ---- quants inside a block of 32 columns ---- */

static u32 get_bits(const u8 *plane, u32 row, u32 col, u32 width)
{
    u32 at = col / 4 * width;
    return plane[at / 8 * 64 + row * 4 + col % 4] >> at % 8 & ((1u << width) - 1);
}

static float get_quant(enum encoding enc, const u8 *quants, u32 row, u32 col)
{
    const struct encoding_info f = encoding_info[enc];
    u32 n = get_bits(quants, row, col, f.low);
    if (f.high) n |= get_bits(quants + 64 * f.low, row, col, f.high) << f.low;
    if (f.table) return (float)f.table[n];
    return f.low == 8 ? (float)(i8)n : (float)((i32)n - f.zero);
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

/* Bits [from, from + width) of a row's quants, four columns at once as a word. */
static inline void put_bits(u8 *plane, u32 row, const u32 *n, u32 from, u32 width)
{
    u32 part[8] = {0}, mask = ((1u << width) - 1) * 0x01010101;
    for (u32 i = 0; i < 8; i++) part[i * width / 8] |= (n[i] >> from & mask) << i * width % 8;
    for (u32 i = 0; i < width; i++) memcpy(plane + i * 64 + row * 4, &part[i], sizeof part[i]);
}

static void put_quants(enum encoding enc, u8 *quants, u32 row, const u8 *n)
{
    const struct encoding_info f = encoding_info[enc];
    u8 *high = quants + 64 * f.low, stored[BLOCK];
    u32 x[BLOCK / 4];
    for (u32 i = 0; i < BLOCK; i++) stored[i] = (u8)(n[i] + f.zero);
    memcpy(x, stored, sizeof x);
    switch (f.low) { /* constants, so that compilers unroll */
    case 8: put_bits(quants, row, x, 0, 8); break;
    case 4: put_bits(quants, row, x, 0, 4); break;
    default: put_bits(quants, row, x, 0, 2); break;
    }
    if (f.high == 2) put_bits(high, row, x, 4, 2);
    if (f.high == 1) put_bits(high, row, x, f.low, 1);
}

/* ---- one row of one unit ---- */

static void put_super(enum encoding enc, u8 *unit, u32 row, const struct quant_split *q)
{
    const struct scales_info f = encoding_scales(enc);
    u32 quants = pack_quants(enc), block = pack_block(enc);
    for (u32 j = 0; j < 8; j++) {
        u8 *b = unit + j * block, *s = b + quants;
        put_quants(enc, b, row, q->n + j * BLOCK);
        if (f.inner_cols == BLOCK) {
            s[row] = q->s[j];
            s[TILE + row] = q->m[j];
            continue;
        }
        for (u32 h = 0; h < 2; h++) {
            s[TILE * h + row] = q->s[2 * j + h];
            if (f.has_min) s[TILE * h + row] |= (u8)(q->m[2 * j + h] << 4);
        }
    }
    u8 *outer = unit + 8 * block;
    if (encoding_info[enc].scales == SCALES_FLOAT_BY_16) {
        memcpy(outer + 4 * row, &q->f, sizeof q->f);
        return;
    }
    put_half(outer, row, q->d);
    if (f.has_min) put_half(outer + 2 * TILE, row, q->e);
}

static void put_block(enum encoding enc, u8 *unit, u32 row, const struct quant_split *q)
{
    u8 *s = unit + pack_quants(enc);
    put_quants(enc, unit, row, q->n);
    if (encoding_info[enc].scales == SCALES_FLOAT) {
        memcpy(s + 4 * row, &q->f, sizeof q->f);
        return;
    }
    put_half(s, row, q->d);
    if (encoding_scales(enc).has_min) put_half(s + 2 * TILE, row, q->e);
}

/* A block of a file becomes one or more of the encoding's: IQ4_XS has eight scales over one, Q1_0
 * and Q2_0 share one among more columns. */
static void put_blocks(enum encoding enc, u8 *unit, u32 row, u32 n, const struct quant_split *q)
{
    for (u32 j = 0; j < n; j++, unit += pack_unit(enc)) {
        struct quant_split b = {.d = q->d, .e = q->e, .f = q->f * (float)(i8)q->s[j]};
        memcpy(b.n, q->n + j * BLOCK, BLOCK);
        put_block(enc, unit, row, &b);
    }
}

/* One block of one row, `at` columns from its beginning. */
static void put_row(enum encoding enc, enum qtype type, u8 *tile, u32 row, u32 at, const u8 *src)
{
    u8 *unit = tile + (u64)(at / encoding_info[enc].cols) * pack_unit(enc);
    struct quant_split q;
    quant_split(type, src, &q);
    if (encoding_info[enc].cols == SUPER)
        put_super(enc, unit, row, &q);
    else if (quant_info(type)->blk == BLOCK)
        put_block(enc, unit, row, &q);
    else
        put_blocks(enc, unit, row, quant_info(type)->blk / BLOCK, &q);
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
    const u8 *s = unit + pack_quants(enc);
    float n = get_quant(enc, unit, row, col), d;
    if (encoding_info[enc].scales == SCALES_FLOAT) {
        memcpy(&d, s + 4 * row, sizeof d);
        return d * n;
    }
    d = get_half(s, row);
    return encoding_scales(enc).has_min ? d * n + get_half(s + 2 * TILE, row) : d * n;
}

static float weight_of_super(enum encoding enc, const u8 *unit, u32 row, u32 col)
{
    const struct scales_info f = encoding_scales(enc);
    u32 block = pack_block(enc), half = col % BLOCK / 16;
    const u8 *b = unit + col / BLOCK * block, *s = b + pack_quants(enc), *tail = unit + 8 * block;
    float n = get_quant(enc, b, row, col % BLOCK), d = get_half(tail, row);
    if (encoding_info[enc].scales == SCALES_FLOAT_BY_16) memcpy(&d, tail + 4 * row, sizeof d);
    if (f.inner_cols == 16) s += TILE * half;
    if (!f.has_min) return d * (float)(i8)s[row] * n;
    float e = get_half(tail + 2 * TILE, row);
    if (f.inner_cols == 16) return d * (float)(s[row] & 15) * n - e * (float)(s[row] >> 4);
    return d * (float)s[row] * n - e * (float)s[TILE + row];
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
    u32 r = row % TILE, cols = encoding_info[p->enc].cols, bytes = pack_unit(p->enc);
    for (u32 i = 0; i < p->n_in; i++) {
        const u8 *unit = tile + (u64)(i / cols) * bytes;
        dst[i] = cols == 1       ? weight_of_float(p->enc, unit, r)
                 : cols == BLOCK ? weight_of_block(p->enc, unit, r, i % BLOCK)
                                 : weight_of_super(p->enc, unit, r, i % SUPER);
    }
}
