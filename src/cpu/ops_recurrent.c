/* What carries state from token to token. A head keeps its member for all rows of a step, so its
 * tokens come in order. */
#include <string.h>

#include "core/patterns.h"
#include "cpu/cpu_internal.h"

static float *state_of(const struct cpu_run *run, const struct op *op, u32 slot)
{
    return hostmem_state(&run->x->host, op->p.rec.state, slot);
}

/* The state is read before the barrier and written behind it. */
void cpu_op_token_shift(const struct cpu_run *run, const struct op *op)
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

enum { CONV_PIECE = 64 };

/* Columns from `col` on of row t and of those before it, the oldest first; before the first row of
 * the step those of the state. */
static void conv_rows(const struct cpu_run *run, const struct op *op, u32 t, u32 n_rows, u32 col,
                      const float *rows[CPU_MAX_TAPS])
{
    const float *state = state_of(run, op, run->s->rows[t].slot) + col;
    u32 back = n_rows, before = op->p.rec.n_taps - 1; /* state rows not yet used */
    for (i32 i = (i32)t; back && i >= 0; i = run->s->prev[i])
        rows[--back] = at(run, op->in[0], (u32)i) + col;
    while (back) rows[--back] = state + (size_t)--before * op->in[0].width;
}

/* Items are pieces of columns, each with all rows, so that no other member reads what is kept. */
void cpu_op_conv(const struct cpu_run *run, const struct op *op)
{
    const struct step *s = run->s;
    u32 n = op->in[0].width, K = op->p.rec.n_taps, begin, end;
    const float *w = vector_of(run, op->w[0]), *bias = vector_of(run, op->w[1]);
    const float *rows[CPU_MAX_TAPS];
    float turned[CPU_MAX_TAPS * CONV_PIECE]; /* [K][CONV_PIECE] of w */
    share(run, (n + CONV_PIECE - 1) / CONV_PIECE, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 col = item * CONV_PIECE, width = MIN(CONV_PIECE, n - col);
        for (u32 i = 0; i < width * K; i++)
            turned[i % K * CONV_PIECE + i / K] = w[(size_t)col * K + i];
        for (u32 t = 0; t < s->n_rows; t++) {
            conv_rows(run, op, t, K, col, rows);
            run->x->k->rows->conv(at(run, op->out[0], t) + col, rows, K, turned, CONV_PIECE,
                                  bias ? bias + col : NULL, width);
        }
        for (u32 t = 0; t < s->n_rows; t++) {
            if (s->last[s->rows[t].slot] != (i32)t) continue;
            float *state = state_of(run, op, s->rows[t].slot) + col;
            conv_rows(run, op, t, K - 1, col, rows);
            for (u32 k = 0; k + 1 < K; k++)
                memmove(state + (size_t)k * n, rows[k], width * sizeof *state);
        }
    }
}

/* Head h of row t. */
static void recur(const struct cpu_run *run, const struct op *op, u32 t, u32 h)
{
    u32 n = op->p.rec.head, m = op->p.rec.v_head, H = op->p.rec.n_heads, G = op->p.rec.n_key_heads;
    size_t key = (size_t)(op->p.rec.tiled ? h % G : h / (H / G)) * n, value = (size_t)h * m;
    bool head_decay = op->in[1].width == H;
    float *S = state_of(run, op, run->s->rows[t].slot) + value * n;
    float *y = at(run, op->out[0], t) + value;
    const float *in[6];
    for (u32 i = 0; i < op->n_in; i++) in[i] = at(run, op->in[i], t) + (i == 3 ? value : key);
    if (op->p.rec.kind == RECURRENCE_REMOVE && !head_decay && m == n) {
        run->x->k->rows->wkv7(S, y, in, n);
        return;
    }
    const struct cpu_recurrence x = {.r = in[0],
                                     .w = head_decay ? at(run, op->in[1], t) + h : in[1],
                                     .k = in[2],
                                     .v = in[3],
                                     .head_decay = head_decay,
                                     .delta = op->p.rec.kind == RECURRENCE_DELTA,
                                     .b = op->n_in == 5 ? at(run, op->in[4], t)[h] : 1,
                                     .n = n,
                                     .m = m};
    run->x->k->rows->recurrence(S, y, &x);
}

void cpu_op_recurrence(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, op->p.rec.n_heads, &begin, &end);
    for (u32 h = begin; h < end; h++)
        for (u32 t = 0; t < run->s->n_rows; t++) recur(run, op, t, h);
}

void cpu_op_rk_bonus(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.rec.head, H = op->in[0].width / n, begin, end;
    const float *r_k = vector_of(run, op->w[0]);
    share(run, run->s->n_rows * H, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / H, h = item % H * n;
        const float *in[] = {at(run, op->in[1], t) + h, at(run, op->in[2], t) + h, r_k + h,
                             at(run, op->in[3], t) + h};
        run->x->k->rows->rk_bonus(at(run, op->out[0], t) + h, at(run, op->in[0], t) + h, in, n);
    }
}

/* ---- wkv7 with its head and tail ---- */

static void norm_head(const struct cpu_run *run, const struct op *op, float *x, u32 h, u32 n)
{
    const float *w = vector_of(run, op->w[0]), *b = vector_of(run, op->w[1]);
    run->x->k->rows->norm(x, x, w ? w + h : NULL, b ? b + h : NULL, n, n, op->p.norm.kind, n,
                          op->p.norm.eps);
}

/* Columns [h, h + n) of row t: what the ops do, one after the other. */
static void mix_head(const struct cpu_run *run, const struct group *g, u32 t, u32 h, u32 n)
{
    const struct op *lerp = g->role[MIX_LERP], *mul = g->role[MIX_K_K], *wkv = g->role[MIX_WKV];
    const struct op *control = g->role[MIX_K_CONTROL], *bonus = g->role[MIX_BONUS];
    const struct op *gate = g->role[MIX_GATE];
    float v_mixed[CPU_MAX_HEAD], kk[CPU_MAX_HEAD], kc[CPU_MAX_HEAD];
    const float *v = at(run, lerp ? lerp->in[0] : wkv->in[3], t) + h;
    const float *k = at(run, mul->in[0], t) + h, *a = at(run, control->in[1], t) + h;
    const float *r = at(run, wkv->in[0], t) + h, *w = at(run, wkv->in[1], t) + h;
    const float *k_k = vector_of(run, mul->w[0]) + h, *k_a = vector_of(run, control->w[0]) + h;
    float *y = at(run, group_last(g)->out[0], t) + h;
    if (lerp) {
        const float *first = at(run, lerp->in[1], t) + h, *by = at(run, lerp->in[2], t) + h;
        run->x->k->rows->lerp(v_mixed, v, first, by, n);
        v = v_mixed;
    }
    for (u32 i = 0; i < n; i++) kk[i] = k[i] * k_k[i];
    norm_head(run, g->role[MIX_L2], kk, 0, n);
    for (u32 i = 0; i < n; i++) kc[i] = k[i] * (1.0f + (a[i] - 1.0f) * k_a[i]);
    float *S = state_of(run, wkv, run->s->rows[t].slot) + (size_t)h * n;
    run->x->k->rows->wkv7(S, y, (const float *[]){r, w, kc, v, kk, a}, n);
    if (g->role[MIX_NORM]) norm_head(run, g->role[MIX_NORM], y, h, n);
    const float *r_k = vector_of(run, bonus->w[0]) + h;
    run->x->k->rows->rk_bonus(y, y, (const float *[]){r, kc, r_k, v}, n);
    const float *by_gate = gate ? at(run, gate->in[1], t) + h : NULL;
    for (u32 i = 0; by_gate && i < n; i++) y[i] = y[i] * by_gate[i];
}

void cpu_op_time_mix(const struct cpu_run *run, const struct group *g, u32 i)
{
    const struct op *wkv = g->role[MIX_WKV], *norm = g->role[MIX_NORM];
    u32 n = wkv->p.rec.head, H = wkv->out[0].width / n, begin, end;
    (void)i;
    CHECK(g->role[MIX_L2]->p.norm.group == n && (!norm || norm->p.norm.group == n));
    share(run, H, &begin, &end);
    for (u32 h = begin; h < end; h++)
        for (u32 t = 0; t < run->s->n_rows; t++) mix_head(run, g, t, h * n, n);
}
