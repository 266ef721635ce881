#include "gpu/gpu_pack.h"

#include <string.h>

#include "gpu/args.h"
#include "quant/split.h"

/* Bytes of the second plane for each group of columns that share the outermost scale. */
static u32 scale_bytes(enum encoding enc)
{
    struct scales_info s = encoding_scales(enc);
    return s.outer + (s.inner ? encoding_info[enc].cols / s.inner_cols * s.inner : 0);
}

static bool is_vector(const struct weight *w)
{
    return w->plain || (w->n_slices == 1 && w->n_out <= 6 && quant_info(w->type)->blk == 1);
}

static u64 row_bytes(enum encoding enc, u64 n)
{
    if (!encoding_is_int8(enc)) return n * encoding_info[enc].low / 8;
    return encoding_has_nibbles(enc) ? n / 2 : n;
}

void planes_plan(struct planes *p, const struct weight *w)
{
    enum encoding enc = is_vector(w) ? ENC_F32 : encoding_of(w->type);
    *p = (struct planes){.enc = enc, .n_rows = (u64)w->n_out * w->n_slices};
    p->q_row = (u32)(ROUND_UP(row_bytes(enc, w->n_in), 16) / 16);
    p->s_row = w->n_in / encoding_info[enc].cols * scale_bytes(enc);
    if (enc == ENC_I8) p->s_row = (p->s_row + 3) / 4 * 4; /* lanes fetch them as words */
    p->bytes[0] = ROUND_UP(p->n_rows * p->q_row * 16, 256);
    p->bytes[1] = ROUND_UP(p->n_rows * p->s_row, 256);
}

u64 planes_bytes(const struct weight *w)
{
    struct planes p;
    planes_plan(&p, w);
    return p.bytes[0] + p.bytes[1];
}

u64 planes_limit(bool large, u64 buffer)
{
    u64 most = large ? 16ull * MIX_NOTHING : 1ull << 31;
    return buffer ? MIN(most, buffer) : most;
}

u32 planes_place(const struct net *net, u64 limit, struct weight_place *places, u64 *sizes)
{
    u64 at = 0;
    u32 n_chunks = 0;
    for (u32 i = 0; i < net->n_weights; i++) {
        u64 n = planes_bytes(&net->weights[i]);
        if (!n_chunks || at + n > limit) {
            n_chunks++;
            at = 0;
        }
        places[i] = (struct weight_place){n_chunks - 1, at};
        at += n;
        if (sizes) sizes[n_chunks - 1] = at;
    }
    return n_chunks;
}

/* ---- one row ---- */

static u8 *put_half(u8 *s, u16 h)
{
    memcpy(s, &h, sizeof h);
    return s + sizeof h;
}

/* 32 quants. */
static u8 *put_quants(enum encoding enc, u8 *q, const u8 *n)
{
    if (!encoding_has_nibbles(enc)) {
        memcpy(q, n, 32);
        return q + 32;
    }
    for (u32 i = 0; i < 16; i++) q[i] = (u8)(n[i] | n[16 + i] << 4);
    return q + 16;
}

/* The scales of one split block. */
static u8 *put_scales(enum encoding enc, enum qtype type, u8 *s, const struct quant_split *q)
{
    const struct scales_info f = encoding_scales(enc);
    const u32 n = f.inner ? encoding_info[enc].cols / f.inner_cols : 0;
    /* several where a block of the file has the columns of several of the encoding */
    for (u32 i = 0; i < quant_info(type)->blk; i += encoding_info[enc].cols) {
        if (f.outer == sizeof q->f && !f.has_min) {
            float d = n ? q->f : q->f * (float)(i8)q->s[i / 32];
            memcpy(s, &d, sizeof d);
            s += sizeof d;
            continue;
        }
        s = put_half(s, q->d);
        if (f.has_min) s = put_half(s, q->e);
    }
    for (u32 j = 0; j < n; j++) {
        *s++ = q->s[j];
        if (f.has_min) *s++ = q->m[j];
    }
    return s;
}

static void pack_row(const struct planes *p, const struct weight *w, const u8 *src, u8 *q, u8 *s)
{
    const struct quant_info *info = quant_info(w->type);
    if (!encoding_is_int8(p->enc)) {
        u64 n = row_bytes(p->enc, w->n_in);
        if (p->enc == ENC_F32)
            quant_decode(w->type, src, (float *)(void *)q, w->n_in);
        else
            memcpy(q, src, n);
        memset(q + n, 0, p->q_row * 16ull - n);
        return;
    }
    struct quant_split b;
    for (u32 i = 0; i < w->n_in; i += info->blk, src += info->bytes) {
        if (w->type == QT_Q8_0) { /* most files: as it is */
            memcpy(s, src, 2);
            memcpy(q, src + 2, 32);
            s += 2;
            q += 32;
            continue;
        }
        quant_split(w->type, src, &b);
        s = put_scales(p->enc, w->type, s, &b);
        for (u32 j = 0; j < info->blk; j += 32) q = put_quants(p->enc, q, b.n + j);
    }
}

void planes_pack(const struct planes *p, const struct weight *w, u64 begin, u64 end, u8 *q, u8 *s)
{
    for (u64 r = begin; r < end; r++) {
        const u8 *src = w->data + r / w->n_out * w->slice_bytes + r % w->n_out * w->row_bytes;
        pack_row(p, w, src, q + (r - begin) * p->q_row * 16, s + (r - begin) * p->s_row);
    }
}
