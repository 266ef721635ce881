/* Every op, as op.h words it. Sums run in f64 over ascending indices and are rounded to f32 once,
 * so nothing here depends on the number of threads, the chunking of rows or the compiler. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "quant/act.h"
#include "ref/ref_internal.h"

/* Row t of an operand. */
static float *at(const struct ref_run *run, struct operand o, u32 t)
{
    return hostmem_row(&run->x->host, run->handle, o, t);
}

static u32 rows_of(const struct ref_run *run, struct operand o)
{
    return run->p->bufs[o.buf].rows == ROWS_T ? run->s->n_rows : run->s->n_out;
}

static const struct weight *weight_of(const struct ref_run *run, u32 id)
{
    return &run->x->host.net->weights[id];
}

/* Row `row` of a weight as floats, in scratch vector `which`; NULL for an absent weight. */
static const float *row_of(const struct ref_run *run, u32 id, u32 row, u32 which)
{
    if (id == NO_WEIGHT) return NULL;
    const struct weight *w = weight_of(run, id);
    quant_decode(w->type, w->data + row * w->row_bytes, run->x->vec[which], w->n_in);
    return run->x->vec[which];
}

static void op_embed(const struct ref_run *run, const struct op *op)
{
    const struct weight *w = weight_of(run, op->w[0]);
    for (u32 t = 0; t < run->s->n_rows; t++) {
        u64 token = hostmem_token(&run->x->host, run->handle, run->s, t);
        quant_decode(w->type, w->data + token * w->row_bytes, at(run, op->out[0], t), w->n_in);
    }
}

static void op_import_hidden(const struct ref_run *run, const struct op *op)
{
    u32 n = op->out[0].width;
    for (u32 t = 0; t < run->s->n_rows; t++)
        memcpy(at(run, op->out[0], t), run->s->hidden + (size_t)t * n, n * sizeof(float));
}

static void norm_group(const struct op *op, const float *x, float *y, u32 n)
{
    double sum = 0, sq = 0, mean = 0;
    if (op->p.norm.kind == NORM_LAYER) {
        for (u32 i = 0; i < n; i++) sum += (double)x[i];
        mean = sum / n;
    }
    for (u32 i = 0; i < n; i++) sq += ((double)x[i] - mean) * ((double)x[i] - mean);
    double scale = op->p.norm.kind == NORM_L2 ? 1.0 / fmax(sqrt(sq), (double)op->p.norm.eps)
                                              : 1.0 / sqrt(sq / n + (double)op->p.norm.eps);
    for (u32 i = 0; i < n; i++) y[i] = (float)(((double)x[i] - mean) * scale);
}

static void op_norm(const struct ref_run *run, const struct op *op)
{
    u32 n = op->in[0].width, g = op->p.norm.group;
    const float *w = row_of(run, op->w[0], 0, 0), *b = row_of(run, op->w[1], 0, 1);
    u32 period = w ? weight_of(run, op->w[0])->n_in : 1;
    for (u32 t = 0; t < rows_of(run, op->in[0]); t++) {
        const float *x = at(run, op->in[0], t);
        float *y = at(run, op->out[0], t);
        for (u32 i = 0; i < n; i += g) norm_group(op, x + i, y + i, g);
        for (u32 i = 0; i < n; i++) y[i] = y[i] * (w ? w[i % period] : 1.0f) + (b ? b[i] : 0.0f);
    }
}

/* y[t][o] = Σ_i x[t][i]·W[o][i] + bias[o] for rows x and y of given pitch; the one matrix product.
 */
struct matmul {
    const struct weight *w;
    u32 slice;
    const float *bias;
    const float *x;
    float *y;
    size_t x_pitch, y_pitch;
    u32 n_rows;
    const struct row *rows; /* of the step; NULL: of no class */
    const struct profile *profile;
};

/* The profile's rounding of both sides. Rows that give logits are few, and their last bits choose
 * tokens: never, so they come without a class. */
static bool is_bf16(const struct matmul *m, u32 t)
{
    return m->rows && m->rows[t].cls == ROW_P && profile_rounds_to_bf16(m->profile, m->w->type);
}

static void matmul_columns(void *ctx, u64 begin, u64 end)
{
    const struct matmul *m = ctx;
    enum { CHUNK = 1024 }; /* a multiple of every block size */
    float row[CHUNK], rounded[CHUNK];
    double sum[REF_MAX_ROWS];
    const struct quant_info *info = quant_info(m->w->type);
    bool any_bf16 = false;
    for (u32 t = 0; t < m->n_rows; t++) any_bf16 |= is_bf16(m, t);
    for (u64 o = begin; o < end; o++) {
        const u8 *data = m->w->data + m->slice * m->w->slice_bytes + o * m->w->row_bytes;
        for (u32 t = 0; t < m->n_rows; t++) sum[t] = 0;
        for (u32 i = 0; i < m->w->n_in; i += CHUNK) {
            u32 n = MIN((u32)CHUNK, m->w->n_in - i);
            quant_decode(m->w->type, data + (u64)i / info->blk * info->bytes, row, n);
            if (any_bf16) act_round_bf16(row, rounded, n);
            for (u32 t = 0; t < m->n_rows; t++) {
                const float *x = m->x + t * m->x_pitch + i;
                const float *w = is_bf16(m, t) ? rounded : row;
                double s = sum[t];
                for (u32 j = 0; j < n; j++) s += (double)w[j] * (double)x[j];
                sum[t] = s;
            }
        }
        for (u32 t = 0; t < m->n_rows; t++)
            m->y[t * m->y_pitch + o] = (float)(sum[t] + (m->bias ? (double)m->bias[o] : 0));
    }
}

static void multiply(const struct ref_run *run, struct matmul *m)
{
    const struct profile *profile = m->profile = &run->x->host.net->profile;
    u32 n = m->w->n_in;
    for (u32 t = 0; (profile->int8 || profile->bf16) && t < m->n_rows; t++) {
        const float *x = m->x + t * m->x_pitch;
        float *rounded = run->x->act + (size_t)t * n;
        if (is_bf16(m, t))
            act_round_bf16(x, rounded, n);
        else if (profile->int8 && quant_info(m->w->type)->blk > 1)
            act_round(x, rounded, n);
        else
            memcpy(rounded, x, n * sizeof *x);
    }
    if (profile->int8 || profile->bf16) {
        m->x = run->x->act;
        m->x_pitch = n;
    }
    pool_run(run->x->pool, matmul_columns, m, m->w->n_out);
}

static size_t pitch_of(const struct ref_run *run, struct operand o)
{
    return run->p->bufs[o.buf].width;
}

static void op_matmul(const struct ref_run *run, const struct op *op)
{
    struct operand x = op->in[0];
    struct matmul m = {.w = weight_of(run, op->w[0]),
                       .bias = row_of(run, op->w[1], 0, 2),
                       .x = at(run, x, 0),
                       .y = at(run, op->out[0], 0),
                       .x_pitch = pitch_of(run, x),
                       .y_pitch = pitch_of(run, op->out[0]),
                       .n_rows = rows_of(run, x),
                       .rows = run->p->bufs[x.buf].rows == ROWS_T ? run->s->rows : NULL};
    multiply(run, &m);
}

static void op_matmul_heads(const struct ref_run *run, const struct op *op)
{
    for (u32 h = 0; h < op->p.heads.n_heads; h++) {
        struct matmul m = {.w = weight_of(run, op->w[0]),
                           .slice = h,
                           .x = at(run, op->in[0], 0) + (size_t)h * op->p.heads.in_stride,
                           .y = at(run, op->out[0], 0) + (size_t)h * op->p.heads.out_stride,
                           .x_pitch = pitch_of(run, op->in[0]),
                           .y_pitch = pitch_of(run, op->out[0]),
                           .n_rows = run->s->n_rows,
                           .rows = run->s->rows};
        multiply(run, &m);
    }
}

static void op_matmul_experts(const struct ref_run *run, const struct op *op)
{
    u32 k = op->p.experts.n_used;
    bool int8 = run->x->host.net->profile.int8_experts;
    for (u32 t = 0; t < run->s->n_rows; t++) {
        const i32 *ids = (const i32 *)(const void *)at(run, op->in[1], t);
        for (u32 j = 0; j < k; j++) {
            size_t skip = op->p.experts.per_slot ? (size_t)j * op->p.experts.n_in : 0;
            struct matmul m = {.w = weight_of(run, op->w[0]),
                               .slice = (u32)ids[j],
                               .x = at(run, op->in[0], t) + skip,
                               .y = at(run, op->out[0], t) + (size_t)j * op->p.experts.n_out,
                               .n_rows = 1,
                               .rows = int8 ? NULL : &run->s->rows[t]};
            multiply(run, &m);
        }
    }
}

static float act(enum act_kind kind, float x)
{
    switch (kind) {
    case ACT_TANH: return num_tanh(x);
    case ACT_SIGMOID: return num_sigmoid(x);
    case ACT_RELU2: return x < 0 ? 0 : x * x; /* NaN stays NaN */
    case ACT_DECAY: return num_exp(-0.606530660f * num_sigmoid(x));
    case ACT_SILU: return x * num_sigmoid(x);
    case ACT_EXP: return num_exp(x);
    case ACT_SOFTPLUS: return num_softplus(x);
    }
    return x;
}

static float glu(const struct op *op, float g, float u)
{
    float limit = op->p.glu.limit;
    switch (op->p.glu.kind) {
    case GLU_SILU: break;
    case GLU_GELU: return g * num_sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
    case GLU_CLAMPED:
        g = g > limit ? limit : g;
        u = u > limit ? limit : u < -limit ? -limit : u;
        return g * num_sigmoid(op->p.glu.alpha * g) * (u + 1.0f);
    case GLU_LIMITED:
        g = g * num_sigmoid(g);
        u = u > limit ? limit : u < -limit ? -limit : u;
        return (g > limit ? limit : g) * u;
    }
    return g * num_sigmoid(g) * u;
}

/* The column of b that column i of a is multiplied by. */
static u32 factor_of(const struct op *op, u32 i)
{
    u32 h = i / op->p.mul.group, col = op->p.mul.per_head ? 0 : i % op->p.mul.group;
    return h * op->p.mul.stride + col;
}

/* The ops that look at one column at a time. */
static void op_columns(const struct ref_run *run, const struct op *op)
{
    u32 n = op->out[0].width;
    const float *w =
        op->n_w ? row_of(run, op->w[0], op->kind == OP_LERP ? op->p.lerp.row : 0, 0) : NULL;
    for (u32 t = 0; t < rows_of(run, op->out[0]); t++) {
        const float *a = at(run, op->in[0], t);
        const float *b = op->n_in > 1 ? at(run, op->in[1], t) : w;
        const float *c = op->n_in > 2 ? at(run, op->in[2], t) : w;
        float *y = at(run, op->out[0], t);
        for (u32 i = 0; i < n; i++) {
            switch (op->kind) {
            case OP_ADD: y[i] = a[i] + b[i]; break;
            case OP_MUL: y[i] = a[i] * b[factor_of(op, i)]; break;
            case OP_LERP: y[i] = a[i] + (b[i] - a[i]) * c[i]; break;
            case OP_GLU: y[i] = glu(op, a[i], b[i]); break;
            case OP_K_CONTROL: y[i] = a[i] * (1.0f + (b[i] - 1.0f) * w[i]); break;
            default: y[i] = act(op->p.act.kind, a[i]); break;
            }
        }
    }
}

static void op_rope(const struct ref_run *run, const struct op *op)
{
    u32 half = op->p.rope.n_rot / 2;
    bool neox = op->p.rope.kind == ROPE_NEOX;
    for (u32 t = 0; t < run->s->n_rows; t++) {
        size_t angles = step_rope_at(run->x->host.net, op->p.rope.table, run->s->limits.max_rows) +
                        (size_t)t * half;
        const float *cos = run->s->cos + angles, *sin = run->s->sin + angles;
        for (u32 h = 0; h < op->p.rope.n_heads; h++) {
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
}

/* ---- the cache ---- */

static void op_kv_store(const struct ref_run *run, const struct op *op)
{
    for (u32 t = 0; t < run->s->n_rows; t++)
        hostmem_kv_store(&run->x->host, run->handle, run->s, op, t);
}

struct attention {
    const struct ref_run *run;
    const struct op *op;
    const float *sinks; /* NULL: none */
};

/* n cached values of a part from column col on. */
static void load_cached(const struct attention *a, const u8 *row, u32 part, u32 col, float *dst,
                        u32 n)
{
    const struct kv_row *l = &a->run->x->host.rows[a->op->p.attn.kv];
    quant_decode(l->part[part].type, hostmem_kv_at(l, part, row, col), dst, n);
}

static const u8 *cached_row(const struct attention *a, const struct row *r, u32 pos)
{
    return hostmem_kv_row(&a->run->x->host, a->run->s, a->op->p.attn.kv, r->slot, pos);
}

static float score(const struct attention *a, const float *q, const u8 *row, u32 g)
{
    u32 n = a->op->p.attn.k_width;
    float k[REF_MAX_HEAD];
    double sum = 0;
    if (a->op->kind == OP_LATENT_ATTENTION) {
        u32 c = a->op->p.attn.v_width;
        load_cached(a, row, 0, 0, k, c);
        load_cached(a, row, 1, 0, k + c, n - c);
    } else {
        load_cached(a, row, 0, g * n, k, n);
        if (a->run->x->host.rows[a->op->p.attn.kv].rotated) hostmem_rotate(k, n);
    }
    for (u32 i = 0; i < n; i++) sum += (double)q[i] * (double)k[i];
    float s = (float)(sum * (double)a->op->p.attn.scale), cap = a->op->p.attn.softcap;
    return cap > 0 ? cap * num_tanh(s / cap) : s;
}

/* Items are (row, head) pairs. Two passes over the cache: the maximum, then exp, sum and values. */
static void attend(void *ctx, u64 begin, u64 end)
{
    const struct attention *a = ctx;
    const struct op *op = a->op;
    u32 n_heads = op->p.attn.n_heads, per_group = n_heads / op->p.attn.n_kv_heads;
    u32 kw = op->p.attn.k_width, vw = op->p.attn.v_width;
    float v[REF_MAX_HEAD];
    double acc[REF_MAX_HEAD];
    for (u64 item = begin; item < end; item++) {
        u32 t = (u32)(item / n_heads), h = (u32)(item % n_heads), g = h / per_group;
        const struct row *r = &a->run->s->rows[t];
        const float *q = at(a->run, op->in[0], t) + (size_t)h * kw;
        float *y = at(a->run, op->out[0], t) + (size_t)h * vw;
        bool latent = op->kind == OP_LATENT_ATTENTION;
        u32 first = op_first_seen(op, r->pos);
        float top = a->sinks ? a->sinks[h] : -INFINITY;
        for (u32 j = first; j <= r->pos; j++) top = fmaxf(top, score(a, q, cached_row(a, r, j), g));
        double sum = a->sinks ? (double)num_exp(a->sinks[h] - top) : 0;
        for (u32 i = 0; i < vw; i++) acc[i] = 0;
        for (u32 j = first; j <= r->pos; j++) {
            const u8 *row = cached_row(a, r, j);
            double e = (double)num_exp(score(a, q, row, g) - top);
            sum += e;
            load_cached(a, row, latent ? 0 : 1, latent ? 0 : g * vw, v, vw);
            for (u32 i = 0; i < vw; i++) acc[i] += e * (double)v[i];
        }
        for (u32 i = 0; i < vw; i++) y[i] = (float)(acc[i] / sum);
    }
}

static void op_attention(const struct ref_run *run, const struct op *op)
{
    struct attention a = {run, op, op->n_w ? row_of(run, op->w[0], 0, 0) : NULL};
    pool_run(run->x->pool, attend, &a, (u64)run->s->n_rows * op->p.attn.n_heads);
}

/* ---- experts ---- */

static void op_route(const struct ref_run *run, const struct op *op)
{
    const float *bias = row_of(run, op->w[0], 0, 0), *scales = row_of(run, op->w[1], 0, 1);
    for (u32 t = 0; t < run->s->n_rows; t++)
        hostmem_route(op, at(run, op->in[0], t), bias, scales,
                      (i32 *)(void *)at(run, op->out[0], t), at(run, op->out[1], t));
}

static void op_add_experts(const struct ref_run *run, const struct op *op)
{
    u32 n = op->p.experts.n_out, k = op->p.experts.n_used;
    for (u32 t = 0; t < run->s->n_rows; t++) {
        const i32 *ids = (const i32 *)(const void *)at(run, op->in[1], t);
        for (u32 j = 0; j < k; j++) {
            const float *x = at(run, op->in[0], t) + (size_t)j * n;
            const float *bias = row_of(run, op->w[0], (u32)ids[j], 0);
            float *y = at(run, op->out[0], t) + (size_t)j * n;
            for (u32 i = 0; i < n; i++) y[i] = x[i] + bias[i];
        }
    }
}

static void op_combine_experts(const struct ref_run *run, const struct op *op)
{
    u32 n = op->p.experts.n_out, k = op->p.experts.n_used;
    for (u32 t = 0; t < run->s->n_rows; t++) {
        const float *x = at(run, op->in[0], t), *w = at(run, op->in[1], t);
        float *y = at(run, op->out[0], t);
        for (u32 i = 0; i < n; i++) {
            float sum = 0;
            for (u32 j = 0; j < k; j++) sum += w[j] * x[(size_t)j * n + i];
            y[i] = sum;
        }
    }
}

/* ---- recurrence ---- */

static float *state_of(const struct ref_run *run, const struct op *op, u32 slot)
{
    return hostmem_state(&run->x->host, op->p.rec.state, slot);
}

static void op_token_shift(const struct ref_run *run, const struct op *op)
{
    size_t bytes = op->in[0].width * sizeof(float);
    const struct step *s = run->s;
    for (u32 t = 0; t < s->n_rows; t++)
        memcpy(at(run, op->out[0], t),
               s->prev[t] < 0 ? state_of(run, op, s->rows[t].slot)
                              : at(run, op->in[0], (u32)s->prev[t]),
               bytes);
    for (u32 t = 0; t < s->n_rows; t++)
        memcpy(state_of(run, op, s->rows[t].slot), at(run, op->in[0], t), bytes);
}

/* Row x_t, or the one `back` rows before it; before the first row of the step those of the state,
 * the latest last. */
static const float *conv_row(const struct ref_run *run, const struct op *op, u32 t, u32 back)
{
    const float *state = state_of(run, op, run->s->rows[t].slot);
    i32 i = (i32)t;
    for (; back && i >= 0; back--) i = run->s->prev[i];
    if (i >= 0) return at(run, op->in[0], (u32)i);
    return state + (size_t)(op->p.rec.n_taps - 2 - back) * op->in[0].width;
}

static void op_conv(const struct ref_run *run, const struct op *op)
{
    u32 n = op->in[0].width, K = op->p.rec.n_taps;
    const float *w = row_of(run, op->w[0], 0, 0), *bias = row_of(run, op->w[1], 0, 2);
    for (u32 t = 0; t < run->s->n_rows; t++) {
        float *y = at(run, op->out[0], t);
        for (u32 i = 0; i < n; i++) {
            double sum = 0;
            for (u32 k = 0; k < K; k++)
                sum += (double)w[(size_t)i * K + k] * (double)conv_row(run, op, t, K - 1 - k)[i];
            y[i] = (float)(sum + (bias ? (double)bias[i] : 0));
        }
    }
    for (u32 t = 0; t < run->s->n_rows; t++) {
        if (run->s->last[run->s->rows[t].slot] != (i32)t) continue;
        float *state = state_of(run, op, run->s->rows[t].slot);
        for (u32 k = 0; k + 1 < K; k++)
            memmove(state + (size_t)k * n, conv_row(run, op, t, K - 2 - k), n * sizeof *state);
    }
}

struct recurrence {
    const float *r, *w, *k, *v, *kk, *a; /* of one head */
    bool head_decay;                     /* w has one value */
    double b;
};

/* One row i of the state: the value that goes in with k, and for `remove` what goes out with kk. */
static float recur_row(enum recurrence_kind kind, u32 n, float *row, const struct recurrence *x,
                       u32 i)
{
    double s = 0, out = 0, v = (double)x->v[i];
    for (u32 j = 0; kind == RECURRENCE_REMOVE && j < n; j++) s -= (double)row[j] * (double)x->kk[j];
    for (u32 j = 0; kind == RECURRENCE_DELTA && j < n; j++)
        v -= (double)row[j] * (double)x->w[x->head_decay ? 0 : j] * (double)x->k[j];
    for (u32 j = 0; j < n; j++) {
        double gone = kind == RECURRENCE_REMOVE ? s * (double)x->kk[j] * (double)x->a[j] : 0;
        double w = (double)x->w[x->head_decay ? 0 : j];
        row[j] = (float)((double)row[j] * w + x->b * v * (double)x->k[j] + gone);
        out += (double)row[j] * (double)x->r[j];
    }
    return (float)out;
}

static void op_recurrence(const struct ref_run *run, const struct op *op)
{
    u32 n = op->p.rec.head, m = op->p.rec.v_head, H = op->p.rec.n_heads, G = op->p.rec.n_key_heads;
    bool removes = op->p.rec.kind == RECURRENCE_REMOVE, head_decay = op->in[1].width == H;
    for (u32 t = 0; t < run->s->n_rows; t++) {
        float *S = state_of(run, op, run->s->rows[t].slot), *y = at(run, op->out[0], t);
        for (u32 h = 0; h < H; h++) {
            size_t key = (size_t)(op->p.rec.tiled ? h % G : h / (H / G)) * n;
            struct recurrence x = {.r = at(run, op->in[0], t) + key,
                                   .w = at(run, op->in[1], t) + (head_decay ? h : key),
                                   .k = at(run, op->in[2], t) + key,
                                   .v = at(run, op->in[3], t) + (size_t)h * m,
                                   .head_decay = head_decay,
                                   .b = 1};
            if (removes) {
                x.kk = at(run, op->in[4], t) + key;
                x.a = at(run, op->in[5], t) + key;
            } else if (op->n_in == 5) {
                x.b = (double)at(run, op->in[4], t)[h];
            }
            for (u32 i = 0; i < m; i++)
                y[(size_t)h * m + i] =
                    recur_row(op->p.rec.kind, n, S + ((size_t)h * m + i) * n, &x, i);
        }
    }
}

static void op_rk_bonus(const struct ref_run *run, const struct op *op)
{
    u32 n = op->p.rec.head;
    const float *r_k = row_of(run, op->w[0], 0, 0);
    for (u32 t = 0; t < run->s->n_rows; t++) {
        const float *y = at(run, op->in[0], t), *r = at(run, op->in[1], t);
        const float *k = at(run, op->in[2], t), *v = at(run, op->in[3], t);
        float *out = at(run, op->out[0], t);
        for (u32 h = 0; h < op->in[0].width; h += n) {
            double sum = 0;
            for (u32 j = h; j < h + n; j++) sum += (double)r[j] * (double)k[j] * (double)r_k[j];
            for (u32 i = h; i < h + n; i++) out[i] = (float)((double)y[i] + sum * (double)v[i]);
        }
    }
}

static void op_gather_rows(const struct ref_run *run, const struct op *op)
{
    for (u32 i = 0; i < run->s->n_out; i++)
        memcpy(at(run, op->out[0], i), at(run, op->in[0], run->s->out_rows[i]),
               op->in[0].width * sizeof(float));
}

void ref_op(const struct ref_run *run, const struct op *op)
{
    switch (op->kind) {
    case OP_EMBED: op_embed(run, op); break;
    case OP_IMPORT_HIDDEN: op_import_hidden(run, op); break;
    case OP_NORM: op_norm(run, op); break;
    case OP_MATMUL: op_matmul(run, op); break;
    case OP_MATMUL_HEADS: op_matmul_heads(run, op); break;
    case OP_MATMUL_EXPERTS: op_matmul_experts(run, op); break;
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_GLU:
    case OP_K_CONTROL:
    case OP_ACT: op_columns(run, op); break;
    case OP_ROPE: op_rope(run, op); break;
    case OP_KV_STORE: op_kv_store(run, op); break;
    case OP_ATTENTION:
    case OP_LATENT_ATTENTION: op_attention(run, op); break;
    case OP_ROUTE: op_route(run, op); break;
    case OP_ADD_EXPERTS: op_add_experts(run, op); break;
    case OP_COMBINE_EXPERTS: op_combine_experts(run, op); break;
    case OP_TOKEN_SHIFT: op_token_shift(run, op); break;
    case OP_CONV: op_conv(run, op); break;
    case OP_RECURRENCE: op_recurrence(run, op); break;
    case OP_RK_BONUS: op_rk_bonus(run, op); break;
    case OP_GATHER_ROWS: op_gather_rows(run, op); break;
    case OP_SAMPLE: hostmem_sample(&run->x->host, run->handle, run->s, op, 0, 1); break;
    default: base_check_failed("an op that its class lists", __FILE__, __LINE__);
    }
}
