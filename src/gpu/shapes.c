/* How launches lie over a device where it was not tuned (layout.h): by what the device can do and
 * by size. The first row that fits counts. Measured on an H200; those of launches that stage
 * nothing are what others found best on Apple's GPUs, and were not measured. */
#include "gpu/emit.h"

enum { EVEN = 1, UNEVEN = 2, I8 = 4, NIBBLES = 8 };
enum { FEW_THREADS = 384, LARGE = 5 << 20, SMALL = 16 << 20, LOGITS = 32768 };

/* What a launch may choose from. */
static const struct {
    struct layout least, most;
} ranges[SHAPE_COUNT] = {
    [SHAPE_MATVEC] = {{{MATVEC_THREADS, 1}}, {{MATVEC_THREADS, 16}}},
    [SHAPE_MATVEC_NATIVE] = {{{FEW_THREADS, 1}}, {{MATVEC_THREADS, 16}}},
    [SHAPE_ROWS] = {{{64, 0, 2}}, {{MATMUL_THREADS, 0, 8}}},
    [SHAPE_MIX] = {{{MATVEC_THREADS, 1}}, {{MATVEC_THREADS, 16}}},
    [SHAPE_EXPERTS] = {{{MATVEC_THREADS, 1}}, {{MATVEC_THREADS, 16}}},
    [SHAPE_ATTEND] = {{{ATTN_THREADS, 1}}, {{ATTN_THREADS, 16}}},
    [SHAPE_UNSTAGED] = {{{64, 0, 0, 1, 1}}, {{UNSTAGED_THREADS, 0, 0, 8, 4}}},
    [SHAPE_UNSTAGED_GLU] = {{{64, 0, 0, 2, 1}}, {{UNSTAGED_THREADS, 0, 0, 8, 4}}},
    [SHAPE_UNSTAGED_SUM] = {{{64, 0, 0, 2, 0}}, {{UNSTAGED_THREADS, 0, 0, 4, 0}}},
};

static const struct shape_row {
    enum launch_shape shape;
    u32 when;                                 /* all of these */
    u32 over_rows, over_out, over_in;         /* and more than so many, */
    u32 over_slices, over_bytes, below_bytes; /* 0: any number */
    struct layout usual;                      /* LAYOUT_GROUPS: for each unit */
} rows[] = {
    /* Two groups per unit pay from LARGE bytes on, or for slices, but not where all launches are
     * even (emit_even), save logits. Logits of wide models, and outputs whose rows are longer than
     * a queue, where they are few, are faster in smaller groups. */
    {SHAPE_MATVEC_NATIVE, I8 | UNEVEN, 0, LOGITS, 2047, 0, 0, 0, {{FEW_THREADS, 4}}},
    {SHAPE_MATVEC_NATIVE, NIBBLES, 0, LOGITS, 2047, 0, 0, 0, {{FEW_THREADS, 2}}},
    {SHAPE_MATVEC_NATIVE, 0, 0, 0, 4096, 2, LARGE, SMALL, {{FEW_THREADS, 2}}},
    {SHAPE_MATVEC_NATIVE, EVEN, 0, 0, 4096, 0, LARGE, SMALL, {{FEW_THREADS, 1}}},
    {SHAPE_MATVEC_NATIVE, 0, 0, 0, 4096, 0, LARGE, SMALL, {{FEW_THREADS, 2}}},
    {SHAPE_MATVEC, 0, 0, 0, 0, 2, 0, 0, {{MATVEC_THREADS, 2}}},
    {SHAPE_MATVEC, UNEVEN, 0, 0, 0, 0, LARGE, 0, {{MATVEC_THREADS, 2}}},
    {SHAPE_MATVEC, 0, 0, LOGITS, 0, 0, LARGE, 0, {{MATVEC_THREADS, 2}}},
    {SHAPE_MATVEC, 0, 0, 0, 0, 0, 0, 0, {{MATVEC_THREADS, 1}}},
    {SHAPE_ROWS, 0, 7, 0, 0, 0, 0, 0, {{MATMUL_THREADS, 0, 8}}},
    {SHAPE_ROWS, 0, 3, 0, 0, 0, 0, 0, {{MATMUL_THREADS, 0, 4}}},
    {SHAPE_ROWS, 0, 0, 0, 0, 0, 0, 0, {{MATMUL_THREADS, 0, 2}}},
    {SHAPE_MIX, EVEN, 0, 0, 0, 0, 0, 0, {{MATVEC_THREADS, 1}}},
    {SHAPE_MIX, 0, 0, 0, 0, 0, 0, 0, {{MATVEC_THREADS, 2}}},
    {SHAPE_EXPERTS, 0, 0, 0, 0, 0, 0, 0, {{MATVEC_THREADS, 2}}},
    {SHAPE_ATTEND, 0, 0, 0, 0, 0, 0, 0, {{ATTN_THREADS, 1}}},
    {SHAPE_UNSTAGED, 0, 0, 4095, 0, 0, 0, 0, {{128, 0, 0, 4, 1}}}, /* there are groups enough */
    {SHAPE_UNSTAGED, 0, 0, 0, 0, 0, 0, 0, {{128, 0, 0, 2, 2}}},
    {SHAPE_UNSTAGED_GLU, 0, 0, 0, 0, 0, 0, 0, {{128, 0, 0, 4, 1}}},
    {SHAPE_UNSTAGED_SUM, 0, 0, 0, 0, 0, 0, 0, {{128, 0, 0, 2, 0}}},
};

static bool row_fits(const struct shape_row *r, enum launch_shape shape, u32 is,
                     const struct site *s, u32 n_rows, u64 bytes)
{
    bool of = r->shape == shape || (r->shape == SHAPE_MATVEC && shape == SHAPE_MATVEC_NATIVE);
    return of && !(r->when & ~is) && (!r->over_rows || n_rows > r->over_rows) &&
           (!r->over_out || s->n_out > r->over_out) && (!r->over_in || s->n_in > r->over_in) &&
           (!r->over_slices || s->n_slices > r->over_slices) &&
           (!r->over_bytes || bytes > r->over_bytes) && (!r->below_bytes || bytes < r->below_bytes);
}

struct layout emit_shape(struct emit *e, enum launch_shape shape, enum encoding enc,
                         const struct site *site, u32 n_rows, u64 bytes)
{
    struct choice *c = &e->choice;
    u32 is = (e->even ? EVEN : UNEVEN) | (enc == ENC_I8 ? I8 : 0) |
             (encoding_has_nibbles(enc) ? NIBBLES : 0);
    const struct shape_row *r = rows;
    while (!row_fits(r, shape, is, site, n_rows, bytes)) r++;
    *c = (struct choice){*site, r->usual, ranges[shape].least, ranges[shape].most};
    c->site.rows = e->rows;
    c->usual.v[LAYOUT_GROUPS] = emit_per_four(e, r->usual.v[LAYOUT_GROUPS]);
    if (!e->kind.caps.n_units) c->most.v[LAYOUT_GROUPS] = 0; /* nothing to count them by */
    const struct layout *tuned = layouts_find(e->kind.layouts, &c->site);
    return tuned && layout_possible(c, tuned) ? *tuned : c->usual;
}
