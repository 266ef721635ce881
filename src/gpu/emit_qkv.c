/* Attention's front end as launches: what becomes of queries, keys and values behind their
 * products. One row goes all the way through attention in one launch. */
#include <stdio.h>

#include "gpu/emit.h"
#include "gpu/rules.h"

/* The other ops, once the norm and the matmuls are done. */
static void emit_rest(struct emit *e, const struct group *g)
{
    for (u32 i = 0; i < g->n_ops; i++)
        if (g->ops[i] != g->role[QKV_NORM] && g->ops[i]->kind != OP_MATMUL) emit_op(e, g->ops[i]);
}

static bool has_plain_heads(const struct op *rope, const struct op *norm)
{
    u32 n = rope->p.rope.width;
    return rope->p.rope.in_stride == n && rope->p.rope.out_stride == n && n % 4 == 0 &&
           (!norm ||
            (norm->p.norm.group == n && norm->w[0] != NO_WEIGHT && norm->w[1] == NO_WEIGHT));
}

/* What the ops between the products and attention do, for kernels that do it all. */
struct heads {
    struct operand q, k, v;
    const struct op *q_norm, *k_norm, *q_rope, *store;
    struct heads_args args;
};

/* False: not with these kernels. */
static bool find_heads(const struct emit *e, const struct group *g, struct heads *out)
{
    const struct op *rq = g->role[QKV_Q_ROPE], *rk = g->role[QKV_K_ROPE];
    const struct op *nq = g->role[QKV_Q_NORM], *nk = g->role[QKV_K_NORM];
    const struct op *store = g->role[QKV_STORE];
    struct operand q = nq ? nq->in[0] : rq->in[0], k = nk ? nk->in[0] : rk->in[0];
    u32 width = rq->p.rope.width, n_kv = rk->p.rope.n_heads;
    struct operand v = store->in[1];
    if (emit_kv_in_blocks(e->p->net) || !has_plain_heads(rq, nq) || !has_plain_heads(rk, nk) ||
        rk->p.rope.width != width || rk->p.rope.n_rot != rq->p.rope.n_rot || v.width % n_kv ||
        (q.col | k.col | emit_pitch(e, q) | emit_pitch(e, k)) % 4)
        return false;
    *out = (struct heads){q, k, v, nq, nk, rq, store, {0}};
    out->args = (struct heads_args){
        .n_heads = rq->p.rope.n_heads,
        .n_kv_heads = n_kv,
        .width = width,
        .v_width = v.width / n_kv,
        .n_rot = rq->p.rope.n_rot,
        .neox = rq->p.rope.kind == ROPE_NEOX,
        .q_norm = nq ? nq->p.norm.kind : NORM_KIND_NONE,
        .k_norm = nk ? nk->p.norm.kind : NORM_KIND_NONE,
        .q_pitch = emit_pitch(e, q),
        .k_pitch = emit_pitch(e, k),
        .v_pitch = emit_pitch(e, v),
        .y_pitch = emit_pitch(e, rq->out[0]),
        .block_tokens = e->limits->block_tokens,
        .table_len = e->limits->max_pos / e->limits->block_tokens + 1,
        .threads = MIN((u32)HEADS_THREADS, (width / 4 + 31) / 32 * 32),
        .q_eps = nq ? nq->p.norm.eps : 0,
        .k_eps = nk ? nk->p.norm.eps : 0,
    };
    return true;
}

static void bind_heads(struct emit *e, const struct heads *h)
{
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_step(e, STEP_COS);
    emit_step(e, STEP_SIN);
    emit_vector(e, h->q_norm ? h->q_norm->w[0] : NO_WEIGHT, 0);
    emit_vector(e, h->k_norm ? h->k_norm->w[0] : NO_WEIGHT, 0);
    emit_in(e, h->q);
    emit_in(e, h->k);
    emit_in(e, h->v);
}

/* Norms of heads, rotations and the way into the cache as one launch. */
static void emit_heads(struct emit *e, const struct heads *h)
{
    bool f32 = e->p->net->profile.kv == CACHE_F32;
    emit_launch(e, f32 ? "k_heads_f32" : "k_heads_f16", e->rows,
                h->args.n_heads + 2 * h->args.n_kv_heads, h->args.threads);
    emit_step(e, STEP_HEAD);
    bind_heads(e, h);
    emit_out(e, h->q_rope->out[0]);
    emit_kv(e, h->store->p.attn.kv, true);
    emit_args(e, &h->args, sizeof h->args);
}

/* Can one launch take the only row through attention? */
static bool can_attend(const struct emit *e, const struct heads *h)
{
    const struct heads_args *a = &h->args;
    u32 width = MAX(a->width, a->v_width);
    return e->rows == 1 && !e->kind.n_p && e->p->net->profile.kv == CACHE_F16 &&
           width <= ATTEND_MAX_HEAD && (a->width | a->v_width) % 8 == 0 && a->n_heads <= TICKETS;
}

/* A lane has all its rows of a split in flight, so the number of them depends on the head's size;
 * so many heads that share keys are taken at once. */
static void emit_attend(struct emit *e, const struct op *attention, const struct heads *h)
{
    struct attend_args a = {h->args, emit_attention_args(e, attention), e->kind.caps.joins};
    u32 per = a.attn.n_heads / a.attn.n_kv_heads, at_once = emit_heads_at_once(e, attention);
    u32 longest = MAX(h->args.width, h->args.v_width) <= 64 ? 64 : 128;
    u32 chunks = e->limits->max_pos / (SPLIT_TOKENS * ATTN_SUBS) + 1;
    u64 items = (u64)chunks * a.attn.n_kv_heads * ((per + at_once - 1) / at_once);
    struct site site = {.n_out = a.attn.n_heads * h->args.v_width,
                        .n_in = h->args.width,
                        .n_slices = a.attn.n_kv_heads};
    snprintf(site.kernel, sizeof site.kernel, "k_attend_%u_h%u", longest, at_once);
    struct layout l = emit_shape(e, SHAPE_ATTEND, ENC_F16, &site, 1, 0);
    emit_launch(e, site.kernel, (u32)MIN(MAX(items, a.attn.n_heads * 2), ATTEND_GROUPS), 1,
                ATTN_THREADS);
    emit_walk_by(e, &l, 0);
    bind_heads(e, h);
    emit_kv(e, h->store->p.attn.kv, false);
    emit_kv(e, h->store->p.attn.kv, true);
    emit_attention_scratch(e, attention, true);
    emit_tickets(e);
    emit_out(e, attention->out[0]);
    emit_args(e, &a, sizeof a);
    if (!e->kind.caps.joins) emit_attention_merge(e, attention);
}

int emit_norm_qkv_attention(struct emit *e, const struct group *g)
{
    const struct op *attention = g->role[QKV_ATTENTION];
    struct heads h;
    emit_inside(e, g);
    emit_products(e, g);
    if (!find_heads(e, g, &h)) {
        emit_rest(e, g);
    } else if (can_attend(e, &h)) {
        emit_attend(e, attention, &h);
    } else {
        emit_heads(e, &h);
        emit_attention(e, attention);
    }
    return e->rc;
}
