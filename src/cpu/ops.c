/* The ops on the team: who does which rows, tiles or heads. What an output is never depends on who
 * computes it or on how many rows the step has. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "cpu/cpu_internal.h"

static float *at(const struct cpu_run *run, struct operand o, u32 t)
{
    return hostmem_row(&run->x->host, run->handle, o, t);
}

static u32 rows_of(const struct cpu_run *run, struct operand o)
{
    return run->p->bufs[o.buf].rows == ROWS_T ? run->s->n_rows : run->s->n_out;
}

static size_t pitch_of(const struct cpu_run *run, struct operand o)
{
    return run->p->bufs[o.buf].width;
}

static const float *vector_of(const struct cpu_run *run, u32 w)
{
    return w == NO_WEIGHT ? NULL : run->x->vectors[w];
}

static void barrier(const struct cpu_run *run)
{
    team_barrier(run->x->team);
}

/* This member's part of n items, in one piece. */
static void share(const struct cpu_run *run, u32 n, u32 *begin, u32 *end)
{
    *begin = (u32)((u64)n * run->member / run->n_members);
    *end = (u32)((u64)n * (run->member + 1) / run->n_members);
}

/* The next pieces of n items from op i's counter; false when none are left. */
static bool take(const struct cpu_run *run, u32 i, u32 n, u32 piece, u32 *begin, u32 *end)
{
    u32 from =
        atomic_fetch_add_explicit(&run->x->next[run->handle][i], piece, memory_order_relaxed);
    if (from >= n) return false;
    *begin = from;
    *end = MIN(n, from + piece);
    return true;
}

/* Small enough to even out the members, large enough to stream. */
static u32 piece_of(const struct cpu_run *run, u32 n)
{
    return MAX(1, n / (run->n_members * 8));
}

/* ---- matrix products ---- */

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
    for (u32 t = begin; int8 && t < end; t++) run->x->k->quantise(a, t);
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
        run->x->k->tile(w, data + tile * w->tile_bytes, a, row + t, k, out);
        for (u32 r = 0; r < k; r++)
            for (u32 i = 0; i < n; i++)
                y[(t + r) * pitch + i] =
                    bias ? out[r * TILE + i] + bias[first + i] : out[r * TILE + i];
    }
}

static void op_matmul(const struct cpu_run *run, const struct op *op, u32 i)
{
    const struct packed *w = &run->x->packed[op->w[0]];
    const float *bias = vector_of(run, op->w[1]);
    u32 n_rows = rows_of(run, op->in[0]), begin, end;
    struct cpu_act a =
        act_of(run, at(run, op->in[0], 0), pitch_of(run, op->in[0]), op->in[0].width);
    round_rows(run, &a, n_rows, pack_is_int8(w->enc));
    while (take(run, i, w->n_tiles, piece_of(run, w->n_tiles), &begin, &end))
        for (u32 t = begin; t < end; t++)
            tile_rows(run, w, w->data, t, &a, 0, n_rows, bias, at(run, op->out[0], 0) + t * TILE,
                      pitch_of(run, op->out[0]));
}

static void norm_row(const struct cpu_run *run, const struct op *op, const float *x, float *y)
{
    u32 n = op->in[0].width;
    u32 period = op->w[0] == NO_WEIGHT ? n : run->x->host.net->weights[op->w[0]].n_in;
    run->x->k->norm(y, x, vector_of(run, op->w[0]), vector_of(run, op->w[1]), n, period,
                    op->p.norm.kind, op->p.norm.group, op->p.norm.eps);
}

static void op_norm_matmul(const struct cpu_run *run, const struct op *op, u32 i)
{
    u32 n_rows = rows_of(run, op->in[0]), n = op->in[0].width, begin, end, n_tiles = 0;
    struct cpu_act a = act_of(run, run->x->normed, n, n);
    bool int8 = false;
    for (u32 j = 0; j < op->n_out; j++) {
        int8 |= pack_is_int8(run->x->packed[op->w[2 + 2 * j]].enc);
        n_tiles += run->x->packed[op->w[2 + 2 * j]].n_tiles;
    }
    share(run, n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++) {
        norm_row(run, op, at(run, op->in[0], t), run->x->normed + (size_t)t * n);
        if (int8) run->x->k->quantise(&a, t);
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

static void op_gate_up_glu(const struct cpu_run *run, const struct op *op, u32 i)
{
    enum { AT_ONCE = 64 };
    const struct packed *wg = &run->x->packed[op->w[0]], *wu = &run->x->packed[op->w[2]];
    u32 n_rows = rows_of(run, op->in[0]), begin, end;
    struct cpu_act a =
        act_of(run, at(run, op->in[0], 0), pitch_of(run, op->in[0]), op->in[0].width);
    float g[AT_ONCE * TILE], u[AT_ONCE * TILE];
    round_rows(run, &a, n_rows, pack_is_int8(wg->enc) || pack_is_int8(wu->enc));
    while (take(run, i, wg->n_tiles, piece_of(run, wg->n_tiles), &begin, &end))
        for (u32 tile = begin; tile < end; tile++)
            for (u32 t = 0; t < n_rows; t += AT_ONCE) {
                u32 k = MIN(AT_ONCE, n_rows - t), first = tile * TILE;
                u32 n = MIN(TILE, wg->n_out - first);
                tile_rows(run, wg, wg->data, tile, &a, t, k, vector_of(run, op->w[1]), g, TILE);
                tile_rows(run, wu, wu->data, tile, &a, t, k, vector_of(run, op->w[3]), u, TILE);
                for (u32 r = 0; r < k; r++)
                    run->x->k->glu(at(run, op->out[0], t + r) + first, g + r * TILE, u + r * TILE,
                                   n);
            }
}

static void op_matmul_heads(const struct cpu_run *run, const struct op *op, u32 i)
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
    for (u32 j = begin; pack_is_int8(w->enc) && j < end; j++) run->x->k->quantise(&a, j);
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
static void op_matmul_experts(const struct cpu_run *run, const struct op *op, u32 i)
{
    const struct packed *w = &run->x->packed[op->w[0]];
    u32 k = op->p.experts.n_used, n = op->p.experts.n_in, begin, end;
    u32 per_row = op->p.experts.per_slot ? k : 1, n_in_rows = run->s->n_rows * per_row;
    struct cpu_act a = act_of(run, at(run, op->in[0], 0), n, n);
    if (per_row == 1) a.pitch = pitch_of(run, op->in[0]);
    round_rows(run, &a, n_in_rows, pack_is_int8(w->enc));
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

/* ---- rows ---- */

static void op_embed(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        pack_row(&run->x->packed[op->w[0]], (u32)run->s->rows[t].token, at(run, op->out[0], t));
}

static void op_import_hidden(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->out[0].width, begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        memcpy(at(run, op->out[0], t), run->s->hidden + (size_t)t * n, n * sizeof(float));
}

static void op_norm(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, rows_of(run, op->in[0]), &begin, &end);
    for (u32 t = begin; t < end; t++)
        norm_row(run, op, at(run, op->in[0], t), at(run, op->out[0], t));
}

static float act(enum act_kind kind, float x)
{
    switch (kind) {
    case ACT_TANH: return num_tanh(x);
    case ACT_SIGMOID: return num_sigmoid(x);
    case ACT_RELU2: return x > 0 ? x * x : 0;
    case ACT_DECAY: return num_exp(-0.606530660f * num_sigmoid(x));
    }
    return x;
}

/* Columns [from, to) of one row of an op that looks at one column at a time. */
static void columns(const struct op *op, const float *a, const float *b, const float *c,
                    const float *w, float *y, u32 from, u32 to)
{
    switch (op->kind) {
    case OP_ADD:
        for (u32 i = from; i < to; i++) y[i] = a[i] + b[i];
        break;
    case OP_MUL:
        for (u32 i = from; i < to; i++) y[i] = a[i] * b[i];
        break;
    case OP_LERP:
        for (u32 i = from; i < to; i++) y[i] = a[i] + (b[i] - a[i]) * c[i];
        break;
    case OP_K_CONTROL:
        for (u32 i = from; i < to; i++) y[i] = a[i] * (1.0f + (b[i] - 1.0f) * w[i]);
        break;
    default:
        for (u32 i = from; i < to; i++) y[i] = act(op->p.act.kind, a[i]);
        break;
    }
}

/* Items are (row, piece of 64 columns). */
static void op_columns(const struct cpu_run *run, const struct op *op)
{
    enum { PIECE = 64 };
    u32 n = op->out[0].width, pieces = (n + PIECE - 1) / PIECE, begin, end;
    const float *w = op->n_w ? vector_of(run, op->w[0]) : NULL;
    if (w && op->kind == OP_LERP) w += (size_t)op->p.lerp.row * n;
    share(run, rows_of(run, op->out[0]) * pieces, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / pieces, from = item % pieces * PIECE, to = MIN(n, from + PIECE);
        const float *a = at(run, op->in[0], t), *b = op->n_in > 1 ? at(run, op->in[1], t) : w;
        float *y = at(run, op->out[0], t);
        if (op->kind == OP_GLU)
            run->x->k->glu(y + from, a + from, b + from, to - from);
        else
            columns(op, a, b, op->n_in > 2 ? at(run, op->in[2], t) : w, w, y, from, to);
    }
}

static void op_rope(const struct cpu_run *run, const struct op *op)
{
    u32 half = op->p.rope.n_rot / 2, H = op->p.rope.n_heads, begin, end;
    bool neox = op->p.rope.kind == ROPE_NEOX;
    share(run, run->s->n_rows * H, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / H, h = item % H;
        const float *cos = run->s->cos + (size_t)t * half, *sin = run->s->sin + (size_t)t * half;
        const float *x = at(run, op->in[0], t) + (size_t)h * op->p.rope.in_stride;
        float *y = at(run, op->out[0], t) + (size_t)h * op->p.rope.out_stride;
        for (u32 i = 0; i < half; i++) {
            u32 ia = neox ? i : 2 * i, ib = neox ? i + half : 2 * i + 1;
            float a = x[ia], b = x[ib];
            y[ia] = a * cos[i] - b * sin[i];
            y[ib] = a * sin[i] + b * cos[i];
        }
        for (u32 i = 2 * half; i < op->p.rope.width; i++) y[i] = x[i];
    }
}

/* ---- the cache ---- */

static void op_kv_store(const struct cpu_run *run, const struct op *op)
{
    const struct hostmem *h = &run->x->host;
    u32 layer = op->p.attn.kv, width = op->in[0].width, begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++) {
        const struct row *r = &run->s->rows[t];
        u8 *row = hostmem_kv_row(h, run->s, layer, r->slot, r->pos);
        hostmem_kv_put(h, at(run, op->in[0], t), row, width);
        if (op->n_in > 1)
            hostmem_kv_put(h, at(run, op->in[1], t), row + hostmem_kv_bytes(h, width),
                           op->in[1].width);
    }
}

/* One row's heads [h0, h0 + n) that share a key head, block by block of the cache. */
static void attend_group(const struct cpu_run *run, const struct op *op, u32 t, u32 g, u32 h0,
                         u32 n)
{
    const struct row *r = &run->s->rows[t];
    const struct kv_layer *l = &run->x->host.net->kv[op->p.attn.kv];
    u32 kw = op->p.attn.k_width, vw = op->p.attn.v_width;
    size_t size = hostmem_kv_bytes(&run->x->host, 1);
    bool latent = op->kind == OP_LATENT_ATTENTION;
    for (u32 h = h0; h < h0 + n; h++) {
        struct cpu_head head = {-INFINITY, 0, at(run, op->out[0], t) + (size_t)h * vw};
        memset(head.acc, 0, vw * sizeof *head.acc);
        for (u32 pos = 0; pos <= r->pos; pos += BLOCK) {
            u8 *row = hostmem_kv_row(&run->x->host, run->s, op->p.attn.kv, r->slot, pos);
            struct cpu_block b = {.k = row + (size_t)g * kw * size,
                                  .v = latent ? row
                                              : row + ((size_t)l->k_width + (size_t)g * vw) * size,
                                  .stride = (l->k_width + l->v_width) * size,
                                  .n_tokens = MIN((u32)BLOCK, r->pos + 1 - pos),
                                  .k_width = kw,
                                  .v_width = vw,
                                  .type = run->x->host.net->profile.kv,
                                  .scale = op->p.attn.scale};
            run->x->k->attend(&head, at(run, op->in[0], t) + (size_t)h * kw, &b);
        }
        for (u32 i = 0; i < vw; i++) head.acc[i] /= head.sum;
    }
}

static void op_attention(const struct cpu_run *run, const struct op *op, u32 i)
{
    u32 groups = op->p.attn.n_kv_heads, per = op->p.attn.n_heads / groups, begin, end;
    if (groups == 1) { /* nothing shared to keep together: spread the heads */
        groups = op->p.attn.n_heads;
        per = 1;
    }
    u32 n = run->s->n_rows * groups;
    while (take(run, i, n, 1, &begin, &end))
        for (u32 item = begin; item < end; item++) {
            u32 t = item / groups, g = item % groups;
            attend_group(run, op, t, op->p.attn.n_kv_heads == 1 ? 0 : g, g * per, per);
        }
}

/* ---- experts ---- */

static void op_route(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        hostmem_route(op, at(run, op->in[0], t), vector_of(run, op->w[0]),
                      (i32 *)(void *)at(run, op->out[0], t), at(run, op->out[1], t));
}

static void op_combine_experts(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.experts.n_out, k = op->p.experts.n_used, begin, end;
    share(run, run->s->n_rows * n, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / n, i = item % n;
        const float *x = at(run, op->in[0], t), *w = at(run, op->in[1], t);
        float sum = 0;
        for (u32 j = 0; j < k; j++) sum += w[j] * x[(size_t)j * n + i];
        at(run, op->out[0], t)[i] = sum;
    }
}

/* ---- recurrence ---- */

static float *state_of(const struct cpu_run *run, const struct op *op, u32 slot)
{
    return hostmem_state(&run->x->host, op->p.rec.state, slot);
}

/* The state is read before the barrier and written behind it. */
static void op_token_shift(const struct cpu_run *run, const struct op *op)
{
    const struct step *s = run->s;
    size_t bytes = op->in[0].width * sizeof(float);
    u32 begin, end;
    share(run, s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        memcpy(at(run, op->out[0], t),
               s->prev[t] < 0 ? state_of(run, op, s->rows[t].slot)
                              : at(run, op->in[0], (u32)s->prev[t]),
               bytes);
    barrier(run);
    for (u32 t = begin; t < end; t++)
        if (s->last[s->rows[t].slot] == (i32)t)
            memcpy(state_of(run, op, s->rows[t].slot), at(run, op->in[0], t), bytes);
}

/* A head keeps its member for all rows, so its tokens come in order. */
static void op_wkv7(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.rec.head, H = op->in[0].width / n, begin, end;
    share(run, H, &begin, &end);
    for (u32 h = begin; h < end; h++)
        for (u32 t = 0; t < run->s->n_rows; t++) {
            const float *in[6];
            for (u32 i = 0; i < 6; i++) in[i] = at(run, op->in[i], t) + (size_t)h * n;
            float *S = state_of(run, op, run->s->rows[t].slot) + (size_t)h * n * n;
            run->x->k->wkv7(S, at(run, op->out[0], t) + (size_t)h * n, in, n);
        }
}

static void op_rk_bonus(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.rec.head, H = op->in[0].width / n, begin, end;
    const float *r_k = vector_of(run, op->w[0]);
    share(run, run->s->n_rows * H, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / H, h = item % H * n;
        const float *y = at(run, op->in[0], t), *r = at(run, op->in[1], t);
        const float *k = at(run, op->in[2], t), *v = at(run, op->in[3], t);
        float *out = at(run, op->out[0], t), sum = 0;
        for (u32 j = h; j < h + n; j++) sum = fmaf(r[j] * k[j], r_k[j], sum);
        for (u32 i = h; i < h + n; i++) out[i] = fmaf(sum, v[i], y[i]);
    }
}

static void op_gather_rows(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_out, &begin, &end);
    for (u32 i = begin; i < end; i++)
        memcpy(at(run, op->out[0], i), at(run, op->in[0], run->s->out_rows[i]),
               op->in[0].width * sizeof(float));
}

void cpu_op(const struct cpu_run *run, u32 i)
{
    const struct op *op = &run->p->ops[i];
    switch (op->kind) {
    case OP_EMBED: op_embed(run, op); break;
    case OP_IMPORT_HIDDEN: op_import_hidden(run, op); break;
    case OP_NORM: op_norm(run, op); break;
    case OP_MATMUL: op_matmul(run, op, i); break;
    case OP_MATMUL_HEADS: op_matmul_heads(run, op, i); break;
    case OP_MATMUL_EXPERTS: op_matmul_experts(run, op, i); break;
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_GLU:
    case OP_K_CONTROL:
    case OP_ACT: op_columns(run, op); break;
    case OP_ROPE: op_rope(run, op); break;
    case OP_KV_STORE: op_kv_store(run, op); break;
    case OP_ATTENTION:
    case OP_LATENT_ATTENTION: op_attention(run, op, i); break;
    case OP_ROUTE: op_route(run, op); break;
    case OP_COMBINE_EXPERTS: op_combine_experts(run, op); break;
    case OP_TOKEN_SHIFT: op_token_shift(run, op); break;
    case OP_WKV7: op_wkv7(run, op); break;
    case OP_RK_BONUS: op_rk_bonus(run, op); break;
    case OP_GATHER_ROWS: op_gather_rows(run, op); break;
    case OP_NORM_MATMUL: op_norm_matmul(run, op, i); break;
    case OP_GATE_UP_GLU: op_gate_up_glu(run, op, i); break;
    case OP_COUNT: CHECK(op->kind < OP_COUNT); break;
    }
}
