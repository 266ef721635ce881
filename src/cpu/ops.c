/* The ops on the team: who does which rows, tiles or heads. What an output is never depends on who
 * computes it or on how many rows the step has. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "core/patterns.h"
#include "cpu/cpu_internal.h"

/* ---- rows ---- */

static void op_embed(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        pack_row(&run->x->packed[op->w[0]], hostmem_token(&run->x->host, run->handle, run->s, t),
                 at(run, op->out[0], t));
}

static void op_import_hidden(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->out[0].width, begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        memcpy(at(run, op->out[0], t), run->s->hidden + (size_t)t * n, n * sizeof(float));
}

void cpu_norm_row(const struct cpu_run *run, const struct op *op, const float *x, float *y)
{
    u32 n = op->in[0].width;
    u32 period = op->w[0] == NO_WEIGHT ? n : run->x->host.net->weights[op->w[0]].n_in;
    run->x->k->rows->norm(y, x, vector_of(run, op->w[0]), vector_of(run, op->w[1]), n, period,
                          op->p.norm.kind, op->p.norm.group, op->p.norm.eps);
}

static void op_norm(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, rows_of(run, op->in[0]), &begin, &end);
    for (u32 t = begin; t < end; t++)
        cpu_norm_row(run, op, at(run, op->in[0], t), at(run, op->out[0], t));
}

/* Columns [from, to) of one row of an op that looks at one column at a time. */
static void columns(const struct op *op, const float *a, const float *b, const float *w, float *y,
                    u32 from, u32 to)
{
    switch (op->kind) {
    case OP_ADD:
        for (u32 i = from; i < to; i++) y[i] = a[i] + b[i];
        break;
    case OP_MUL:
        if (op->p.mul.per_head)
            for (u32 i = from; i < to; i++)
                y[i] = a[i] * b[(size_t)(i / op->p.mul.group) * op->p.mul.stride];
        else if (op->p.mul.stride != op->p.mul.group)
            for (u32 i = from; i < to; i++)
                y[i] = a[i] *
                       b[(size_t)(i / op->p.mul.group) * op->p.mul.stride + i % op->p.mul.group];
        else
            for (u32 i = from; i < to; i++) y[i] = a[i] * b[i];
        break;
    case OP_K_CONTROL:
        for (u32 i = from; i < to; i++) y[i] = a[i] * (1.0f + (b[i] - 1.0f) * w[i]);
        break;
    default: break;
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
            run->x->k->rows->glu(y + from, a + from, b + from, to - from, op);
        else if (op->kind == OP_ACT)
            run->x->k->rows->act(y + from, a + from, to - from, op->p.act.kind);
        else if (op->kind == OP_LERP)
            run->x->k->rows->lerp(y + from, a + from, b + from,
                                  (op->n_in > 2 ? at(run, op->in[2], t) : w) + from, to - from);
        else
            columns(op, a, b, w, y, from, to);
    }
}

/* Head h of row t, from x to y. */
static void rope_head(const struct cpu_run *run, const struct op *op, u32 t, const float *x,
                      float *y)
{
    u32 half = op->p.rope.n_rot / 2;
    bool neox = op->p.rope.kind == ROPE_NEOX;
    size_t angles = step_rope_at(run->x->host.net, op->p.rope.table, run->s->limits.max_rows) +
                    (size_t)t * half;
    const float *cos = run->s->cos + angles, *sin = run->s->sin + angles;
    for (u32 i = 0; i < half; i++) {
        u32 ia = neox ? i : 2 * i, ib = neox ? i + half : 2 * i + 1;
        float a = x[ia], b = x[ib];
        y[ia] = a * cos[i] - b * sin[i];
        y[ib] = a * sin[i] + b * cos[i];
    }
    for (u32 i = 2 * half; i < op->p.rope.width; i++) y[i] = x[i];
}

static void op_rope(const struct cpu_run *run, const struct op *op)
{
    u32 H = op->p.rope.n_heads, begin, end;
    share(run, run->s->n_rows * H, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / H, h = item % H;
        rope_head(run, op, t, at(run, op->in[0], t) + (size_t)h * op->p.rope.in_stride,
                  at(run, op->out[0], t) + (size_t)h * op->p.rope.out_stride);
    }
}

/* Items are the heads of q and of k; k's are rotated on their way to the cache. */
static void op_rope_store(const struct cpu_run *run, const struct group *g, u32 i)
{
    const struct hostmem *host = &run->x->host;
    const struct op *q = g->role[STORE_Q_ROPE], *k = g->role[STORE_K_ROPE];
    const struct op *store = g->role[STORE_STORE];
    (void)i;
    const struct kv_row *l = &host->rows[store->p.attn.kv];
    u32 H = q->p.rope.n_heads, K = k->p.rope.n_heads, begin, end;
    u32 kw = k->p.rope.width, vw = store->in[1].width / K;
    share(run, run->s->n_rows * (H + K), &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / (H + K), h = item % (H + K);
        const struct row *r = &run->s->rows[t];
        if (h < H) {
            rope_head(run, q, t, at(run, q->in[0], t) + (size_t)h * q->p.rope.in_stride,
                      at(run, q->out[0], t) + (size_t)h * q->p.rope.out_stride);
            continue;
        }
        float turned[CPU_MAX_HEAD];
        h -= H;
        u8 *row = hostmem_kv_row(host, run->s, store->p.attn.kv, r->slot, r->pos);
        rope_head(run, k, t, at(run, k->in[0], t) + (size_t)h * k->p.rope.in_stride, turned);
        hostmem_kv_put(l, 0, row, h * kw, turned, kw);
        hostmem_kv_put(l, 1, row, h * vw, at(run, store->in[1], t) + (size_t)h * vw, vw);
    }
}

/* ---- experts ---- */

static void op_route(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++)
        hostmem_route(op, at(run, op->in[0], t), vector_of(run, op->w[0]), vector_of(run, op->w[1]),
                      (i32 *)(void *)at(run, op->out[0], t), at(run, op->out[1], t));
}

/* Items are (row, choice). */
static void op_add_experts(const struct cpu_run *run, const struct op *op)
{
    u32 n = op->p.experts.n_out, k = op->p.experts.n_used, begin, end;
    share(run, run->s->n_rows * k, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / k, j = item % k;
        u32 e = (u32)((const i32 *)(const void *)at(run, op->in[1], t))[j];
        const float *x = at(run, op->in[0], t) + (size_t)j * n;
        const float *bias = vector_of(run, op->w[0]) + (size_t)e * n;
        float *y = at(run, op->out[0], t) + (size_t)j * n;
        for (u32 i = 0; i < n; i++) y[i] = x[i] + bias[i];
    }
}

/* Items are (row, piece of 64 columns). */
static void op_combine_experts(const struct cpu_run *run, const struct op *op)
{
    enum { PIECE = 64 };
    u32 n = op->p.experts.n_out, pieces = (n + PIECE - 1) / PIECE, begin, end;
    share(run, run->s->n_rows * pieces, &begin, &end);
    for (u32 item = begin; item < end; item++) {
        u32 t = item / pieces, from = item % pieces * PIECE;
        run->x->k->rows->combine(at(run, op->out[0], t) + from, at(run, op->in[0], t) + from,
                                 at(run, op->in[1], t), MIN(PIECE, n - from), n,
                                 op->p.experts.n_used);
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

/* ---- groups ---- */

const struct rule cpu_rules[CPU_RULES] = {
#define RULE_PATTERN(id, function) PATTERN_##id,
    CPU_RULE_TABLE(RULE_PATTERN)
#undef RULE_PATTERN
};
static void (*const functions[CPU_RULES])(const struct cpu_run *, const struct group *, u32) = {
#define RULE_FUNCTION(id, function) function,
    CPU_RULE_TABLE(RULE_FUNCTION)
#undef RULE_FUNCTION
};

void cpu_group(const struct cpu_run *run, u32 i)
{
    const struct group *g = &run->p->groups[i];
    const struct op *op = g->ops[0];
    if (g->rule) {
        functions[g->rule - cpu_rules](run, g, i);
        return;
    }
    switch (op->kind) {
    case OP_EMBED: op_embed(run, op); break;
    case OP_IMPORT_HIDDEN: op_import_hidden(run, op); break;
    case OP_NORM: op_norm(run, op); break;
    case OP_MATMUL:
    case OP_MATMUL_HEADS:
    case OP_MATMUL_EXPERTS: cpu_op_product(run, g, i); break;
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_GLU:
    case OP_K_CONTROL:
    case OP_ACT: op_columns(run, op); break;
    case OP_ROPE: op_rope(run, op); break;
    case OP_KV_STORE: cpu_op_kv_store(run, op); break;
    case OP_ATTENTION:
    case OP_LATENT_ATTENTION: cpu_op_attention(run, op, i); break;
    case OP_ROUTE: op_route(run, op); break;
    case OP_ADD_EXPERTS: op_add_experts(run, op); break;
    case OP_COMBINE_EXPERTS: op_combine_experts(run, op); break;
    case OP_TOKEN_SHIFT: cpu_op_token_shift(run, op); break;
    case OP_CONV: cpu_op_conv(run, op); break;
    case OP_RECURRENCE: cpu_op_recurrence(run, op); break;
    case OP_RK_BONUS: cpu_op_rk_bonus(run, op); break;
    case OP_GATHER_ROWS: op_gather_rows(run, op); break;
    case OP_SAMPLE:
        hostmem_sample(&run->x->host, run->handle, run->s, op, run->member, run->n_members);
        break;
    default: base_check_failed("an op that its class lists", __FILE__, __LINE__);
    }
}
