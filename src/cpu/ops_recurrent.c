/* What carries state from token to token. A head keeps its member for all rows of a step, so its
 * tokens come in order. */
#include <string.h>

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

void cpu_op_wkv7(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.rec.head, H = op->in[0].width / n, begin, end;
    share(run, H, &begin, &end);
    for (u32 h = begin; h < end; h++)
        for (u32 t = 0; t < run->s->n_rows; t++) {
            const float *in[6];
            for (u32 i = 0; i < 6; i++) in[i] = at(run, op->in[i], t) + (size_t)h * n;
            float *S = state_of(run, op, run->s->rows[t].slot) + (size_t)h * n * n;
            run->x->k->rows->wkv7(S, at(run, op->out[0], t) + (size_t)h * n, in, n);
        }
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

struct time_mix {
    const struct op *lerp, *mul, *l2, *control, *wkv, *norm, *bonus, *gate; /* may be NULL */
};

static void norm_head(const struct cpu_run *run, const struct op *op, float *x, u32 h, u32 n)
{
    const float *w = vector_of(run, op->w[0]), *b = vector_of(run, op->w[1]);
    run->x->k->rows->norm(x, x, w ? w + h : NULL, b ? b + h : NULL, n, n, op->p.norm.kind, n,
                          op->p.norm.eps);
}

/* Columns [h, h + n) of row t: what the parts do, one after the other. */
static void mix_head(const struct cpu_run *run, const struct op *op, const struct time_mix *m,
                     u32 t, u32 h, u32 n)
{
    float v_mixed[CPU_MAX_HEAD], kk[CPU_MAX_HEAD], kc[CPU_MAX_HEAD];
    const float *v = at(run, m->lerp ? m->lerp->in[0] : m->wkv->in[3], t) + h;
    const float *k = at(run, m->mul->in[0], t) + h, *a = at(run, m->control->in[1], t) + h;
    const float *r = at(run, m->wkv->in[0], t) + h, *w = at(run, m->wkv->in[1], t) + h;
    const float *k_k = vector_of(run, m->mul->w[0]) + h,
                *k_a = vector_of(run, m->control->w[0]) + h;
    float *y = at(run, op->out[0], t) + h;
    if (m->lerp) {
        const float *first = at(run, m->lerp->in[1], t) + h, *by = at(run, m->lerp->in[2], t) + h;
        run->x->k->rows->lerp(v_mixed, v, first, by, n);
        v = v_mixed;
    }
    for (u32 i = 0; i < n; i++) kk[i] = k[i] * k_k[i];
    norm_head(run, m->l2, kk, 0, n);
    for (u32 i = 0; i < n; i++) kc[i] = k[i] * (1.0f + (a[i] - 1.0f) * k_a[i]);
    float *S = state_of(run, m->wkv, run->s->rows[t].slot) + (size_t)h * n;
    run->x->k->rows->wkv7(S, y, (const float *[]){r, w, kc, v, kk, a}, n);
    if (m->norm) norm_head(run, m->norm, y, h, n);
    const float *r_k = vector_of(run, m->bonus->w[0]) + h;
    run->x->k->rows->rk_bonus(y, y, (const float *[]){r, kc, r_k, v}, n);
    const float *g = m->gate ? at(run, m->gate->in[1], t) + h : NULL;
    for (u32 i = 0; g && i < n; i++) y[i] = y[i] * g[i];
}

void cpu_op_time_mix(const struct cpu_run *run, const struct op *op)
{
    const struct time_mix m = {.lerp = op_part(op, OP_LERP, 0),
                               .mul = op_part(op, OP_MUL, 0),
                               .l2 = op_part(op, OP_NORM, 0),
                               .control = op_part(op, OP_K_CONTROL, 0),
                               .wkv = op_part(op, OP_WKV7, 0),
                               .norm = op_part(op, OP_NORM, 1),
                               .bonus = op_part(op, OP_RK_BONUS, 0),
                               .gate = op_part(op, OP_MUL, 1)};
    u32 n = m.wkv->p.rec.head, H = op->out[0].width / n, begin, end;
    CHECK(m.l2->p.norm.group == n && (!m.norm || m.norm->p.norm.group == n));
    share(run, H, &begin, &end);
    for (u32 h = begin; h < end; h++)
        for (u32 t = 0; t < run->s->n_rows; t++) mix_head(run, op, &m, t, h * n, n);
}
