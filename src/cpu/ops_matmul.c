/* Matrix products on the team: activations are rounded row by row, then tiles of 16 outputs are
 * handed out. */
#include <string.h>

#include "cpu/cpu_internal.h"

static struct cpu_act act_of(const struct cpu_run *run, const float *x, size_t pitch, u32 n)
{
    struct cpu_act a = run->x->act;
    a.x = x;
    a.pitch = pitch;
    a.n = n;
    return a;
}

/* Rounds the rows that int8 weights will meet; ends with a barrier. */
static void round_rows(const struct cpu_run *run, const struct cpu_act *a, u32 n_rows, bool int8)
{
    u32 begin, end;
    share(run, n_rows, &begin, &end);
    for (u32 t = begin; int8 && t < end; t++) run->x->k->tiles->quantise(a, t);
    barrier(run);
}

/* One tile of w for all rows, bias added; y is where its first column goes. */
static void tile_rows(const struct cpu_run *run, const struct packed *w, const u8 *data, u32 tile,
                      const struct cpu_act *a, u32 row, u32 n_rows, const float *bias, float *y,
                      size_t pitch)
{
    enum { AT_ONCE = 64 };
    _Alignas(64) float out[AT_ONCE * TILE];
    u32 first = tile * TILE, n = MIN(TILE, w->n_out - first);
    for (u32 t = 0; t < n_rows; t += AT_ONCE) {
        u32 k = MIN(AT_ONCE, n_rows - t);
        run->x->k->tiles->tile(w, data + tile * w->tile_bytes, a, row + t, k, out);
        for (u32 r = 0; r < k; r++)
            for (u32 i = 0; i < n; i++)
                y[(t + r) * pitch + i] =
                    bias ? out[r * TILE + i] + bias[first + i] : out[r * TILE + i];
    }
}

void cpu_op_matmul(const struct cpu_run *run, const struct op *op, u32 i)
{
    const struct packed *w = &run->x->packed[op->w[0]];
    const float *bias = vector_of(run, op->w[1]);
    u32 n_rows = rows_of(run, op->in[0]), begin, end;
    struct cpu_act a =
        act_of(run, at(run, op->in[0], 0), pitch_of(run, op->in[0]), op->in[0].width);
    round_rows(run, &a, n_rows, encoding_is_int8(w->enc));
    while (take(run, i, w->n_tiles, piece_of(run, w->n_tiles), &begin, &end))
        for (u32 t = begin; t < end; t++)
            tile_rows(run, w, w->data, t, &a, 0, n_rows, bias, at(run, op->out[0], 0) + t * TILE,
                      pitch_of(run, op->out[0]));
}

void cpu_op_norm_matmul(const struct cpu_run *run, const struct op *op, u32 i)
{
    u32 n_rows = rows_of(run, op->in[0]), n = op->in[0].width, begin, end, n_tiles = 0;
    struct cpu_act a = act_of(run, run->x->normed, n, n);
    bool int8 = false;
    for (u32 j = 0; j < op->n_out; j++) {
        int8 |= encoding_is_int8(run->x->packed[op->w[2 + 2 * j]].enc);
        n_tiles += run->x->packed[op->w[2 + 2 * j]].n_tiles;
    }
    share(run, n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++) {
        cpu_norm_row(run, op, at(run, op->in[0], t), run->x->normed + (size_t)t * n);
        if (int8) run->x->k->tiles->quantise(&a, t);
    }
    barrier(run);
    while (take(run, i, n_tiles, piece_of(run, n_tiles), &begin, &end))
        for (u32 t = begin; t < end; t++) {
            u32 j = 0, tile = t;
            while (tile >= run->x->packed[op->w[2 + 2 * j]].n_tiles)
                tile -= run->x->packed[op->w[2 + 2 * j++]].n_tiles;
            const struct packed *w = &run->x->packed[op->w[2 + 2 * j]];
            tile_rows(run, w, w->data, tile, &a, 0, n_rows, vector_of(run, op->w[3 + 2 * j]),
                      at(run, op->out[j], 0) + tile * TILE, pitch_of(run, op->out[j]));
        }
}

void cpu_op_gate_up_glu(const struct cpu_run *run, const struct op *op, u32 i)
{
    enum { AT_ONCE = 64 };
    const struct packed *wg = &run->x->packed[op->w[0]], *wu = &run->x->packed[op->w[2]];
    u32 n_rows = rows_of(run, op->in[0]), begin, end;
    struct cpu_act a =
        act_of(run, at(run, op->in[0], 0), pitch_of(run, op->in[0]), op->in[0].width);
    float g[AT_ONCE * TILE], u[AT_ONCE * TILE];
    round_rows(run, &a, n_rows, encoding_is_int8(wg->enc) || encoding_is_int8(wu->enc));
    while (take(run, i, wg->n_tiles, piece_of(run, wg->n_tiles), &begin, &end))
        for (u32 tile = begin; tile < end; tile++)
            for (u32 t = 0; t < n_rows; t += AT_ONCE) {
                u32 k = MIN(AT_ONCE, n_rows - t), first = tile * TILE;
                u32 n = MIN(TILE, wg->n_out - first);
                tile_rows(run, wg, wg->data, tile, &a, t, k, vector_of(run, op->w[1]), g, TILE);
                tile_rows(run, wu, wu->data, tile, &a, t, k, vector_of(run, op->w[3]), u, TILE);
                for (u32 r = 0; r < k; r++)
                    run->x->k->rows->glu(at(run, op->out[0], t + r) + first, g + r * TILE,
                                         u + r * TILE, n);
            }
}

void cpu_op_matmul_heads(const struct cpu_run *run, const struct op *op, u32 i)
{
    const struct packed *w = &run->x->packed[op->w[0]];
    u32 n_rows = run->s->n_rows, H = op->p.heads.n_heads, n = op->p.heads.n_in, begin, end;
    /* every (row, head) is a row of activations of its own */
    struct cpu_act a = act_of(run, at(run, op->in[0], 0), pitch_of(run, op->in[0]), n);
    float *x = run->x->normed; /* heads of one row side by side: [rows][H][n] */
    share(run, n_rows * H, &begin, &end);
    for (u32 j = begin; j < end; j++)
        memcpy(x + (size_t)j * n,
               at(run, op->in[0], j / H) + (size_t)(j % H) * op->p.heads.in_stride, n * sizeof *x);
    a.x = x;
    a.pitch = n;
    for (u32 j = begin; encoding_is_int8(w->enc) && j < end; j++) run->x->k->tiles->quantise(&a, j);
    barrier(run);
    u32 n_items = H * w->n_tiles;
    while (take(run, i, n_items, piece_of(run, n_items), &begin, &end))
        for (u32 item = begin; item < end; item++) {
            u32 h = item / w->n_tiles, tile = item % w->n_tiles;
            for (u32 t = 0; t < n_rows; t++)
                tile_rows(run, w, w->data + h * w->slice_bytes, tile, &a, t * H + h, 1, NULL,
                          at(run, op->out[0], t) + (size_t)h * op->p.heads.out_stride + tile * TILE,
                          0);
        }
}

/* Items are (row, choice, tile); a row's input is shared by its choices or sliced among them. */
void cpu_op_matmul_experts(const struct cpu_run *run, const struct op *op, u32 i)
{
    const struct packed *w = &run->x->packed[op->w[0]];
    u32 k = op->p.experts.n_used, n = op->p.experts.n_in, begin, end;
    u32 per_row = op->p.experts.per_slot ? k : 1, n_in_rows = run->s->n_rows * per_row;
    struct cpu_act a = act_of(run, at(run, op->in[0], 0), n, n);
    if (per_row == 1) a.pitch = pitch_of(run, op->in[0]);
    round_rows(run, &a, n_in_rows, encoding_is_int8(w->enc));
    u32 n_items = run->s->n_rows * k * w->n_tiles;
    while (take(run, i, n_items, piece_of(run, n_items), &begin, &end))
        for (u32 item = begin; item < end; item++) {
            u32 pair = item / w->n_tiles, tile = item % w->n_tiles, t = pair / k, j = pair % k;
            i32 e;
            memcpy(&e, at(run, op->in[1], t) + j, sizeof e);
            tile_rows(run, w, w->data + (u64)(u32)e * w->slice_bytes, tile, &a,
                      per_row == 1 ? t : pair, 1, NULL,
                      at(run, op->out[0], t) + (size_t)j * op->p.experts.n_out + tile * TILE, 0);
        }
}
