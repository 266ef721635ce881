/* Tensors made of those of a Hugging Face directory, by their recipes. */
#include <math.h>
#include <string.h>

#include "format/hf.h"
#include "format/hf_recipe.h"

static float from_e4m3(u8 b)
{
    u32 most = b & 0x7f, bits = (most + (120 << 3)) << 20;
    float x;
    memcpy(&x, &bits, sizeof x);
    if (most < 8) x = (float)most / 512; /* without a leading one */
    if (most == 0x7f) x = NAN;
    return b & 0x80 ? -x : x;
}

/* n values from place at of t in FP8: each byte's times the scale of its block of rows and columns,
 * rounded once. */
static void read_fp8(const struct st_tensor *t, u64 at, u64 n, float *out)
{
    u64 cols = t->shape[t->n_dims - 1], rows = t->shape[t->n_dims - 2];
    u64 high = t->block[0], wide = t->block[1];
    u64 across = (cols + wide - 1) / wide, down = (rows + high - 1) / high;
    for (u64 i = 0, k; i < n; i += k) {
        u64 col = (at + i) % cols, row = (at + i) / cols;
        u64 block = (row / rows * down + row % rows / high) * across + col / wide;
        float scale;
        memcpy(&scale, t->scales->data + block * sizeof scale, sizeof scale);
        k = MIN(n - i, MIN(cols - col, wide - col % wide));
        for (u64 e = 0; e < k; e++) out[i + e] = from_e4m3(t->data[at + i + e]) * scale;
    }
}

/* n values from place at of t, whose bytes may lie anywhere. */
static void read_values(const struct st_tensor *t, u64 at, u64 n, float *out)
{
    size_t size = quant_info(t->type)->bytes;
    if (t->fp8) {
        read_fp8(t, at, n, out);
        return;
    }
    for (u64 i = 0, k; i < n; i += k) {
        float raw[256]; /* any type; float for its alignment */
        k = MIN(n - i, (u64)ARRAY_LEN(raw));
        memcpy(raw, t->data + (at + i) * size, (size_t)(k * size));
        quant_decode(t->type, raw, out + i, k);
    }
}

/* n elements from place at of t, as type; t's bytes may lie anywhere. */
static void convert(const struct st_tensor *t, u64 at, u64 n, enum qtype type, u8 *dst)
{
    u64 size = quant_info(t->type)->bytes, out = quant_info(type)->bytes;
    if (t->type == type && !t->fp8) {
        memcpy(dst, t->data + at * size, (size_t)(n * size));
        return;
    }
    for (u64 i = 0; i < n;) {
        float f[256];
        u64 k = MIN(n - i, (u64)ARRAY_LEN(f));
        read_values(t, at + i, k, f);
        quant_encode(type, f, dst + i * out, k);
        i += k;
    }
}

/* Columns first, first + every, .. of [n_rows][n_cols] before end. */
static void transpose(const struct st_tensor *t, u64 at, u64 n_rows, u64 n_cols, u64 first, u64 end,
                      u64 every, u8 *dst)
{
    size_t size = quant_info(t->type)->bytes;
    for (u64 c = first; c < end; c += every)
        for (u64 r = 0; r < n_rows; r++, dst += size) {
            float f;
            if (t->fp8) {
                read_values(t, at + r * n_cols + c, 1, &f);
                memcpy(dst, &f, sizeof f);
            } else {
                memcpy(dst, t->data + (at + r * n_cols + c) * size, size);
            }
        }
}

/* A row of n blocks: bytes of neighbours become halves of 16. */
static void make_mxfp4(const u8 *blocks, const u8 *scales, u64 n, u8 *dst)
{
    for (u64 b = 0; b < n; b++, blocks += 16, dst += 17) {
        dst[0] = scales[b];
        for (u32 i = 0; i < 16; i++) {
            u32 low = blocks[i / 2] >> i % 2 * 4 & 15, high = blocks[8 + i / 2] >> i % 2 * 4 & 15;
            dst[1 + i] = (u8)(low | high << 4);
        }
    }
}

/* Rows that lie in turns with others. */
static void make_every(const struct recipe *r, enum qtype type, u8 *dst)
{
    u64 size = quant_info(type)->bytes;
    for (u64 g = 0; g < r->n_groups; g++)
        for (u64 i = r->first; i < r->n_rows; i += r->every) {
            u64 row = (g * r->n_rows + i) * r->n_cols;
            if (r->kind == RECIPE_MXFP4)
                make_mxfp4(r->src[0]->data + row * 16, r->src[1]->data + row, r->n_cols, dst);
            else
                convert(r->src[0], row, r->n_cols, type, dst);
            dst += r->n_cols * size;
        }
}

/* RECIPE_TURNS, RECIPE_PARTS */
static void make_delta(const struct recipe *r, enum qtype type, u8 *dst)
{
    const struct st_tensor *t = r->src[0];
    u64 size = quant_info(type)->bytes, n = r->kind == RECIPE_TURNS ? r->n_rows / r->n_keys : 0;
    for (u64 g = 0; r->kind == RECIPE_TURNS && g < r->n_groups; g++) {
        u64 at = g * (r->first + r->n_rows * r->n_cols);
        convert(t, at, r->first, type, dst);
        dst += r->first * size;
        for (u64 i = 0; i < r->n_rows; i++, dst += r->n_cols * size)
            convert(t, at + r->first + (i % r->n_keys * n + i / r->n_keys) * r->n_cols, r->n_cols,
                    type, dst);
    }
    for (u32 p = 0; r->kind == RECIPE_PARTS && p < ARRAY_LEN(r->part); p++)
        for (u64 g = 0; g < r->n_groups; g++, dst += r->part[p][1] * r->n_cols * size)
            convert(t, (g * r->n_rows + r->part[p][0]) * r->n_cols, r->part[p][1] * r->n_cols, type,
                    dst);
}

/* Each value is multiplied in f32, then rounded to the tensor's type. */
static void make_scaled(const struct recipe *r, enum qtype type, u8 *dst)
{
    const struct st_tensor *t = r->src[0];
    u64 size = quant_info(t->type)->bytes, at = 0;
    for (u32 p = 0; p < ARRAY_LEN(r->scale); p++) {
        u64 end = at + r->scale_rows[p] * r->n_cols;
        while (at < end) {
            float f[256];
            u64 k = MIN(end - at, (u64)ARRAY_LEN(f));
            read_values(t, at, k, f);
            for (u64 i = 0; i < k; i++) f[i] *= r->scale[p];
            quant_encode(type, f, dst + at * size, k);
            at += k;
        }
    }
}

static void map_values(enum recipe_map map, float *x, u64 n)
{
    for (u64 i = 0; map == MAP_PLUS_ONE && i < n; i++) x[i] += 1;
    for (u64 i = 0; map == MAP_MINUS_EXP && i < n; i++) x[i] = (float)-exp((double)x[i]);
}

int hf_make(const struct source *s, const struct tensor *t, u8 *dst, struct err *err)
{
    const struct recipe *r = t->recipe;
    u64 size = quant_info(t->type)->bytes, half = r->n_rows / 2;
    (void)s;
    (void)err;
    CHECK(r->map == MAP_NONE || t->type == QT_F32);
    if (r->kind == RECIPE_VALUES) {
        memcpy(dst, r->values, (size_t)t->n_bytes);
        return 0;
    }
    if (r->kind == RECIPE_SCALED) {
        make_scaled(r, t->type, dst);
        return 0;
    }
    if (r->kind == RECIPE_TURNS || r->kind == RECIPE_PARTS) {
        make_delta(r, t->type, dst);
        map_values(r->map, (float *)(void *)dst, t->n_elems);
        return 0;
    }
    if (r->every && r->kind != RECIPE_TRANSPOSE) {
        make_every(r, t->type, dst);
        return 0;
    }
    u64 n_cols = r->n_cols, end = r->end ? r->end : r->n_cols;
    if (r->kind == RECIPE_TRANSPOSE && r->every)
        n_cols = r->end ? r->end - r->first : r->n_cols / r->every;
    if (r->every) { /* of all rows, every nth column */
        for (u64 g = 0; g < r->n_groups; g++, dst += r->n_rows * n_cols * size)
            transpose(r->src[0], g * r->n_rows * r->n_cols, r->n_rows, r->n_cols, r->first, end,
                      r->every, dst);
        return 0;
    }
    CHECK(r->n_src * r->n_groups * r->n_take * r->n_cols == t->n_elems);
    u8 *made = dst;
    for (u32 i = 0; i < r->n_src; i++)
        for (u64 g = 0; g < r->n_groups; g++, dst += r->n_take * r->n_cols * size) {
            u64 at = (g * r->n_rows + r->first) * r->n_cols;
            if (r->kind == RECIPE_ROWS)
                convert(r->src[i], at, r->n_take * r->n_cols, t->type, dst);
            else if (r->kind == RECIPE_TRANSPOSE)
                transpose(r->src[i], at, r->n_take, r->n_cols, 0, r->n_cols, 1, dst);
            for (u64 k = 0; r->kind == RECIPE_PAIRS && k < r->n_rows; k++)
                convert(r->src[i], at + (k % 2 * half + k / 2) * r->n_cols, r->n_cols, t->type,
                        dst + k * r->n_cols * size);
        }
    map_values(r->map, (float *)(void *)made, t->n_elems);
    return 0;
}
