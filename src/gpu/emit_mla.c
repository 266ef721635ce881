/* MLA between its products as launches: what becomes of queries and latents on their way into the
 * cache; for one row all the way through attention and v_b. */
#include <stdio.h>

#include "gpu/emit_layers.h"

/* ---- queries ---- */

/* A cluster for each head makes them. */
bool emit_mla_query_fits(const struct emit *e, const struct group *g)
{
    const struct op *norm = group_op(g, OP_NORM, 0), *mul = group_op(g, OP_MATMUL, 0);
    const struct op *heads = group_op(g, OP_MATMUL_HEADS, 0);
    const struct weight *w = e->p->net->weights;
    u32 n = norm->in[0].width, head = heads->p.heads.in_stride, k = heads->p.heads.n_in;
    return e->kind.caps.clusters && e->rows == 1 && !e->kind.n_p && e->p->net->profile.int8 &&
           encoding_of(w[mul->w[0]].type) == ENC_I8 && encoding_of(w[heads->w[0]].type) == ENC_I8 &&
           norm->w[1] == NO_WEIGHT && mul->w[1] == NO_WEIGHT && norm->p.norm.group == n &&
           n % 32 == 0 && k % 32 == 0 && norm->in[0].col % 4 == 0 && n <= QUERY_MAX_IN &&
           k <= head && head <= QUERY_MAX_HEAD &&
           head * heads->p.heads.n_heads == mul->out[0].width &&
           w[heads->w[0]].n_out <= QUERY_MAX_LATENT;
}

static void launch_query(struct emit *e, const struct group *g)
{
    const struct op *norm = group_op(g, OP_NORM, 0), *mul = group_op(g, OP_MATMUL, 0);
    const struct op *heads = group_op(g, OP_MATMUL_HEADS, 0);
    struct planes q = emit_planes(e, mul->w[0]), k = emit_planes(e, heads->w[0]);
    struct mla_query_args a = {.n_in = norm->in[0].width,
                               .norm = norm->p.norm.kind,
                               .has_w = norm->w[0] != NO_WEIGHT,
                               .eps = norm->p.norm.eps,
                               .n_q = heads->p.heads.in_stride,
                               .q_row = q.q_row,
                               .s_row = q.s_row,
                               .n_k = heads->p.heads.n_in,
                               .n_out = e->p->net->weights[heads->w[0]].n_out,
                               .k_q_row = k.q_row,
                               .k_s_row = k.s_row,
                               .y_stride = heads->p.heads.out_stride};
    emit_launch(e, "k_mla_query_i8", QUERY_CLUSTER, 1, MATVEC_THREADS);
    emit_depth(e, heads->p.heads.n_heads);
    emit_walk(e, 0, QUEUE_BYTES(emit_scale_words(ENC_I8), MATVEC_THREADS));
    emit_vector(e, norm->w[0], 0);
    emit_in(e, norm->in[0]);
    emit_weight(e, mul->w[0]);
    emit_out(e, mul->out[0]);
    emit_weight(e, heads->w[0]);
    emit_out(e, heads->out[0]);
    emit_args(e, &a, sizeof a);
}

int emit_mla_query(struct emit *e, const struct group *g)
{
    if (emit_mla_query_fits(e, g)) {
        launch_query(e, g);
    } else {
        emit_products(e, g);
        emit_op(e, group_op(g, OP_MATMUL_HEADS, 0));
    }
    return e->rc;
}

/* ---- latents and attention ---- */

/* The cached row is the norm's columns, then the rotated ones, and nothing else? */
static bool is_latent_row(const struct emit *e, const struct op *norm, const struct op *rope,
                          const struct op *store)
{
    u32 n = norm->in[0].width, rot = rope->p.rope.n_rot;
    struct operand row = store->in[0];
    return store->n_in == 1 && norm->p.norm.group == n && rope->p.rope.n_heads == 1 &&
           rope->p.rope.width == rot && norm->out[0].buf == row.buf &&
           rope->out[0].buf == row.buf && row.col == 0 && norm->out[0].col == 0 &&
           rope->out[0].col == n && row.width == n + rot &&
           (n | norm->in[0].col | emit_pitch(e, norm->in[0])) % 4 == 0;
}

static struct mla_store_args store_args(const struct emit *e, const struct group *g)
{
    const struct op *rq = g->role[MLA_Q_ROPE], *rk = g->role[MLA_K_ROPE];
    const struct op *norm = group_op(g, OP_NORM, 0);
    return (struct mla_store_args){.n_heads = rq->p.rope.n_heads,
                                   .n_rot = rq->p.rope.n_rot,
                                   .neox = rq->p.rope.kind == ROPE_NEOX,
                                   .q_stride = rq->p.rope.in_stride,
                                   .y_stride = rq->p.rope.out_stride,
                                   .n = norm->in[0].width,
                                   .norm = norm->p.norm.kind,
                                   .has_w = norm->w[0] != NO_WEIGHT,
                                   .has_b = norm->w[1] != NO_WEIGHT,
                                   .q_pitch = emit_pitch(e, rq->in[0]),
                                   .c_pitch = emit_pitch(e, norm->in[0]),
                                   .k_pitch = emit_pitch(e, rk->in[0]),
                                   .y_pitch = emit_pitch(e, rq->out[0]),
                                   .block_tokens = e->limits->block_tokens,
                                   .table_len = e->limits->max_pos / e->limits->block_tokens + 1,
                                   .eps = norm->p.norm.eps};
}

/* Do the kernels' assumptions hold? */
static bool is_usual(const struct emit *e, const struct group *g)
{
    const struct op *rq = g->role[MLA_Q_ROPE];
    return is_latent_row(e, group_op(g, OP_NORM, 0), g->role[MLA_K_ROPE], g->role[MLA_STORE]) &&
           rq->p.rope.width == rq->p.rope.n_rot && !emit_kv_in_blocks(e->p->net);
}

static void bind_store(struct emit *e, const struct group *g)
{
    const struct op *norm = group_op(g, OP_NORM, 0);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_step(e, STEP_COS);
    emit_step(e, STEP_SIN);
    emit_vector(e, norm->w[0], 0);
    emit_vector(e, norm->w[1], 0);
    emit_in(e, g->role[MLA_Q_ROPE]->in[0]);
    emit_in(e, norm->in[0]);
    emit_in(e, g->role[MLA_K_ROPE]->in[0]);
}

static void emit_mla_store(struct emit *e, const struct group *g)
{
    struct mla_store_args a = store_args(e, g);
    bool f32 = e->p->net->profile.kv == CACHE_F32;
    emit_launch(e, f32 ? "k_mla_store_f32" : "k_mla_store_f16", e->rows,
                1 + (a.n_heads + MLA_HEADS - 1) / MLA_HEADS, MLA_THREADS);
    emit_step(e, STEP_HEAD);
    bind_store(e, g);
    emit_out(e, g->role[MLA_Q_ROPE]->out[0]);
    emit_kv(e, g->role[MLA_STORE]->p.attn.kv, true);
    emit_args(e, &a, sizeof a);
}

/* ---- one row, through attention ---- */

bool emit_mla_fits(const struct emit *e, const struct group *g)
{
    const struct op *attention = g->role[MLA_ATTENTION];
    const struct op *rope = g->role[MLA_Q_ROPE], *heads = group_op(g, OP_MATMUL_HEADS, 0);
    const struct op *norm = group_op(g, OP_NORM, 0);
    enum { MOST_ROTATED = 64 }; /* that latent_mma.cu has room for */
    enum encoding enc = encoding_of(e->p->net->weights[heads->w[0]].type);
    u32 k = attention->p.attn.k_width, v = attention->p.attn.v_width;
    return e->rows == 1 && !e->kind.n_p && e->kind.caps.joins &&
           e->p->net->profile.kv == CACHE_F16 && (enc == ENC_I8 || enc == ENC_F16) &&
           is_usual(e, g) && v % 32 == 0 && k % 8 == 0 && k <= LATENT_MAX_K && v <= LATENT_MAX_V &&
           v + rope->p.rope.n_rot == k && attention->p.attn.n_heads == rope->p.rope.n_heads &&
           attention->p.attn.n_heads <= TICKETS && heads->p.heads.in_stride == v &&
           heads->p.heads.n_in == v && attention->in[0].col % 4 == 0 &&
           rope->out[0].buf == attention->in[0].buf &&
           rope->out[0].col == attention->in[0].col + v && rope->p.rope.out_stride == k &&
           (!e->kind.caps.clusters || (norm->p.norm.kind == NORM_RMS && norm->w[1] == NO_WEIGHT &&
                                       rope->p.rope.n_rot <= MOST_ROTATED));
}

/* v_b as the kernels want it, behind name. */
static void launch_heads(struct emit *e, const char *kind, u32 groups, enum encoding enc,
                         u32 n_heads)
{
    char name[32];
    snprintf(name, sizeof name, "k_mla%s_%s", kind, encoding_info[enc].name);
    emit_launch(e, name, groups, 1, MATVEC_THREADS);
    emit_depth(e, n_heads);
    emit_walk(e, 2, QUEUE_BYTES(emit_scale_words(enc), MATVEC_THREADS));
}

struct mla_args emit_mla_args(const struct emit *e, const struct group *g)
{
    const struct op *heads = g->role[MLA_V_B];
    struct planes p = emit_planes(e, heads->w[0]);
    return (struct mla_args){.store = store_args(e, g),
                             .attn = emit_attention_args(e, g->role[MLA_ATTENTION]),
                             .n_out = e->p->net->weights[heads->w[0]].n_out,
                             .q_row = p.q_row,
                             .s_row = p.s_row,
                             .y_stride = heads->p.heads.out_stride};
}

static void emit_mla(struct emit *e, const struct group *g)
{
    enum { GROUPS = 12, OUT_GROUPS = 8 }; /* of a head: so many that they fill a large device */
    const struct op *attention = g->role[MLA_ATTENTION];
    const struct op *heads = group_op(g, OP_MATMUL_HEADS, 0);
    u32 kv = attention->p.attn.kv, w = heads->w[0];
    enum encoding enc = emit_planes(e, w).enc;
    struct mla_args a = emit_mla_args(e, g);
    if (e->kind.caps.clusters)
        emit_clusters(e, "k_mla_mma", attention, LATENT_STRETCHES);
    else
        launch_heads(e, "", GROUPS, enc, a.attn.n_heads);
    bind_store(e, g);
    emit_in(e, attention->in[0]);
    emit_out(e, g->role[MLA_Q_ROPE]->out[0]);
    emit_kv(e, kv, false);
    emit_kv(e, kv, true);
    emit_attention_scratch(e, attention, true);
    if (e->kind.caps.clusters) {
        emit_args(e, &a, sizeof a);
        launch_heads(e, "_out", OUT_GROUPS, enc, a.attn.n_heads);
        emit_step(e, STEP_ROWS);
        emit_attention_scratch(e, attention, false);
    } else {
        emit_tickets(e);
    }
    emit_weight(e, w);
    emit_out(e, heads->out[0]);
    emit_args(e, &a, sizeof a);
}

int emit_mla_attention(struct emit *e, const struct group *g)
{
    emit_inside(e, g);
    if (emit_mla_fits(e, g)) {
        emit_mla(e, g);
        return e->rc;
    }
    if (is_usual(e, g))
        emit_mla_store(e, g);
    else
        for (u32 i = 0; i < g->n_ops; i++)
            if (g->ops[i] != g->role[MLA_ATTENTION] && g->ops[i] != g->role[MLA_V_B])
                emit_op(e, g->ops[i]);
    emit_op(e, g->role[MLA_ATTENTION]);
    return emit_op(e, g->role[MLA_V_B]);
}
