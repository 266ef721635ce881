/* Layers of MLA and experts as one launch (native/mla_layers.cu). */
#include "gpu/emit_layers.h"

/* A layer's groups. */
enum { IN, QUERY, ATTEND, OUT, ROUTER, GATE, DOWN, GROUPS };

/* Their ops. */
struct parts {
    const struct op *norm, *q_a, *kv_a, *q_norm, *q_b, *k_b, *c_norm, *q_rope, *k_rope, *attention;
    const struct op *v_b, *ffn_norm, *router, *shared_glu, *shared_gate, *shared_up, *route;
    const struct op *glu, *gate, *up, *down, *combine, *shared_down, *residual;
    struct layer_sum out;
};

/* ---- is it such a layer ---- */

static void find_attention(const struct group *g, struct parts *p)
{
    p->norm = group_op(&g[IN], OP_NORM, 0);
    p->q_norm = group_op(&g[QUERY], OP_NORM, 0);
    p->q_a = group_maker(&g[IN], p->q_norm->in[0]);
    p->kv_a = group_op(&g[IN], OP_MATMUL, group_op(&g[IN], OP_MATMUL, 0) == p->q_a);
    p->q_b = group_op(&g[QUERY], OP_MATMUL, 0);
    p->k_b = group_op(&g[QUERY], OP_MATMUL_HEADS, 0);
    p->c_norm = g[ATTEND].role[MLA_NORM];
    p->q_rope = g[ATTEND].role[MLA_Q_ROPE];
    p->k_rope = g[ATTEND].role[MLA_K_ROPE];
    p->attention = g[ATTEND].role[MLA_ATTENTION];
    p->v_b = g[ATTEND].role[MLA_V_B];
}

static void find_experts(const struct group *g, struct parts *p)
{
    p->ffn_norm = g[ROUTER].role[ROUTER_NORM];
    p->router = g[ROUTER].role[ROUTER_MATMUL];
    p->shared_glu = group_op(&g[ROUTER], OP_GLU, 0);
    p->shared_gate = group_maker(&g[ROUTER], p->shared_glu->in[0]);
    p->shared_up = group_maker(&g[ROUTER], p->shared_glu->in[1]);
    p->route = group_op(&g[GATE], OP_ROUTE, 0);
    p->glu = group_op(&g[GATE], OP_GLU, 0);
    p->gate = group_maker(&g[GATE], p->glu->in[0]);
    p->up = group_maker(&g[GATE], p->glu->in[1]);
    p->down = g[DOWN].role[SUM_DOWN];
    p->combine = g[DOWN].role[SUM_COMBINE];
    p->shared_down = g[DOWN].role[SUM_ADDED];
    p->residual = g[DOWN].role[SUM_RESIDUAL];
}

/* Does b begin so many columns behind a? */
static bool is_behind(struct operand b, struct operand a, u32 n)
{
    return b.buf == a.buf && b.col == a.col + n;
}

/* Does each group read what others before it made, and the residual stream? */
static bool is_chain(const struct parts *p, const struct mla_store_args *store)
{
    struct operand kv = p->kv_a->out[0], middle = p->out.y;
    return is_behind(p->q_rope->in[0], p->q_b->out[0], p->k_b->p.heads.n_in) &&
           is_behind(p->c_norm->in[0], kv, 0) && is_behind(p->k_rope->in[0], kv, store->n) &&
           is_behind(p->attention->in[0], p->k_b->out[0], 0) &&
           operand_same(p->out.mul->in[0], p->v_b->out[0]) &&
           operand_same(p->out.added, p->norm->in[0]) && operand_same(p->ffn_norm->in[0], middle) &&
           operand_same(p->gate->in[0], p->ffn_norm->out[0]) &&
           operand_same(p->route->in[0], p->router->out[0]) &&
           operand_same(p->down->in[1], p->route->out[0]) &&
           operand_same(p->combine->in[1], p->route->out[1]) &&
           operand_same(p->down->in[0], p->glu->out[0]) &&
           operand_same(p->residual->in[0], middle) &&
           operand_same(p->shared_down->in[0], p->shared_glu->out[0]);
}

static bool is_rms(const struct op *norm)
{
    return norm->p.norm.kind == NORM_RMS && norm->w[0] != NO_WEIGHT && norm->w[1] == NO_WEIGHT &&
           norm->p.norm.group == norm->in[0].width;
}

/* From the residual stream to attention's output, added to it. */
static bool is_attention(const struct emit *e, const struct group *g, const struct parts *p,
                         const struct mla_args *a)
{
    const struct mla_store_args *s = &a->store;
    u32 k = s->n + s->n_rot, head = p->k_b->p.heads.in_stride;
    return is_rms(p->norm) && is_rms(p->q_norm) && is_rms(p->c_norm) && p->q_a->w[1] == NO_WEIGHT &&
           p->kv_a->w[1] == NO_WEIGHT && p->kv_a->out[0].width == k &&
           !group_op(&g[IN], OP_MATMUL, 2) && emit_mla_query_fits(e, &g[QUERY]) &&
           p->k_b->p.heads.n_out == s->n && p->k_b->p.heads.out_stride == k &&
           p->k_b->p.heads.n_heads == s->n_heads && emit_mla_fits(e, &g[ATTEND]) &&
           s->q_stride == head && s->y_stride == k && head == p->k_b->p.heads.n_in + s->n_rot &&
           a->attn.n_heads == s->n_heads && a->attn.n_kv_heads == 1 && a->attn.k_units * 8 == k &&
           a->attn.v_units * 8 == s->n && a->y_stride == a->n_out &&
           p->out.mul->in[0].width == s->n_heads * a->n_out &&
           p->out.y.width == p->norm->in[0].width;
}

/* The rest. */
static bool is_experts(const struct emit *e, const struct group *g, const struct parts *p)
{
    u32 n = p->norm->in[0].width;
    return emit_mixes_fit(e, &g[ROUTER]) && is_rms(p->ffn_norm) &&
           emit_planes(e, p->router->w[0]).enc == ENC_F32 && p->router->w[1] == NO_WEIGHT &&
           p->router->out[0].width == p->route->p.route.n_experts &&
           emit_experts_glu_fits(e, &g[GATE]) && p->gate->p.experts.n_in == n &&
           p->route->p.route.n_experts == e->p->net->weights[p->gate->w[0]].n_slices &&
           p->route->p.route.n_used == p->gate->p.experts.n_used && !p->gate->p.experts.per_slot &&
           p->down->p.experts.n_in == p->gate->p.experts.n_out && p->down->p.experts.per_slot &&
           p->down->p.experts.n_used == p->gate->p.experts.n_used &&
           p->down->p.experts.n_out == n &&
           e->p->net->weights[p->down->w[0]].n_slices == p->route->p.route.n_experts &&
           p->shared_down->w[1] == NO_WEIGHT && emit_experts_sum_is_small(e, &g[DOWN]);
}

/* ---- can the kernel do it ---- */

static u32 share(u32 n, u32 ways)
{
    return (n + ways - 1) / ways;
}

/* Do so many rows of quants and scales fit into a slot, wherever scales begin? */
static bool slot_holds(u32 rows, u32 n_in)
{
    enum { BEHIND = 128 };
    return rows * (n_in + n_in / 16) + BEHIND <= MLA_SLOT;
}

/* Groups for rows of q_a and kv_a, so that most rows of a group are as few as can be. Gives how
 * many those are. */
static u32 deal_groups(struct mla_layers_args *a, u32 n_kv, u32 units)
{
    u32 least = UINT32_MAX;
    for (u32 n = 1; n < units; n++) {
        u32 most = MAX(share(a->n_q, n), share(n_kv, units - n));
        if (most >= least) continue;
        least = most;
        a->q_groups = n;
    }
    return least;
}

/* Then groups are dealt out too. */
static bool fits(struct mla_layers_args *a, u32 units)
{
    enum { MAX_Q = 1024, MAX_K = 512, MAX_BETWEEN = 2048, MAX_EXPERTS = 64, MAX_USED = 8 };
    enum { ROWS = 64, K_ROWS = 128 }; /* of a group */
    u32 heads = a->store.n_heads, latent = a->store.n, n_out = heads * a->n_v;
    u32 n_used = a->route.n_used, q_rows = share(heads * a->n_head, units);
    if (heads > units || !n_used || n_used > MIN(MAX_USED, units)) return false;
    u32 k_rows = share(latent, units / heads);
    return (a->n | a->n_q | latent | n_out | a->n_between | a->n_shared) % 256 == 0 && /* scales */
           a->n % 512 == 0 && a->n_head % 128 == 0 && a->n >= units && a->n <= MLA_MAX &&
           share(a->n, units) <= MLA_SIMDS && slot_holds(MLA_SIMDS, a->n) && a->n_q <= MAX_Q &&
           deal_groups(a, latent + a->store.n_rot, units) <= MLA_SIMDS && a->n_k % 32 == 0 &&
           a->n_k <= MAX_K && latent <= LATENT_MAX_V && a->n_v % MLA_BLOCK == 0 &&
           n_out / MLA_BLOCK <= units && slot_holds(MLA_BLOCK, latent) && n_out <= MLA_MAX_IN &&
           slot_holds(1, n_out) && q_rows <= ROWS && slot_holds(q_rows, a->n_q) &&
           k_rows <= K_ROWS && slot_holds(k_rows, a->n_k) &&
           a->route.n_experts <= MIN(MAX_EXPERTS, units) && a->route.n_groups <= 1 &&
           a->n_between % (2 * MLA_EXPERT) == 0 && a->n_between / MLA_EXPERT * n_used <= units &&
           share(heads * latent / 8, units) * 8 <= MLA_COLUMNS && a->n_between <= MAX_BETWEEN &&
           a->n_shared <= MAX_BETWEEN && share(a->n_shared, units) <= MLA_SIMDS &&
           n_used * a->n_between + a->n_shared <= MLA_MAX_IN;
}

/* ---- as arguments ---- */

static bool take_matrix(const struct emit *e, const struct layer *l, const struct op *op,
                        struct mla_matrix *to)
{
    return emit_planes(e, op->w[0]).enc == ENC_I8 && layers_matrix(e, l, op->w[0], &to->q, &to->s);
}

/* Where all its weights lie. */
static bool take_weights(const struct emit *e, const struct layer *l, const struct parts *p,
                         struct mla_layers_args *a)
{
    a->bias = (u32)MIX_NOTHING;
    return (p->route->w[0] == NO_WEIGHT || layers_vector(e, l, p->route->w[0], &a->bias)) &&
           layers_vector(e, l, p->norm->w[0], &a->norm[0]) &&
           layers_vector(e, l, p->ffn_norm->w[0], &a->norm[1]) &&
           layers_vector(e, l, p->q_norm->w[0], &a->q_norm) &&
           layers_vector(e, l, p->c_norm->w[0], &a->c_norm) &&
           layers_vector(e, l, p->router->w[0], &a->router) && take_matrix(e, l, p->q_a, &a->q_a) &&
           take_matrix(e, l, p->kv_a, &a->kv_a) && take_matrix(e, l, p->q_b, &a->q_b) &&
           take_matrix(e, l, p->k_b, &a->k_b) && take_matrix(e, l, p->v_b, &a->v_b) &&
           take_matrix(e, l, p->out.mul, &a->o) && take_matrix(e, l, p->gate, &a->gate) &&
           take_matrix(e, l, p->up, &a->up) && take_matrix(e, l, p->down, &a->down) &&
           take_matrix(e, l, p->shared_gate, &a->shared_gate) &&
           take_matrix(e, l, p->shared_up, &a->shared_up) &&
           take_matrix(e, l, p->shared_down, &a->shared_down);
}

static bool layer_of(const struct emit *e, const struct group *g, struct layer *out)
{
    struct parts p;
    struct kv_plane planes[KV_PLANES];
    struct mla_layers_args *a = &out->a.mla;
    find_attention(g, &p);
    find_experts(g, &p);
    if (!p.q_a || !p.kv_a || !layers_sum(&g[OUT], &p.out)) return false;
    struct mla_args attend = emit_mla_args(e, &g[ATTEND]);
    if (!is_attention(e, g, &p, &attend) || !is_experts(e, g, &p) || !is_chain(&p, &attend.store))
        return false;
    out->chunk = e->places[p.router->w[0]].chunk;
    out->x = emit_place(e, p.norm->in[0]);
    out->y = emit_place(e, p.residual->out[0]);
    emit_kv_planes(e->p->net, e->limits, p.attention->p.attn.kv, planes);
    out->memory = planes[0].at;
    out->n_memory = (u64)e->limits->n_blocks * e->limits->block_tokens * planes[0].row;
    *a = (struct mla_layers_args){.n = p.norm->in[0].width,
                                  .eps = {p.norm->p.norm.eps, p.ffn_norm->p.norm.eps},
                                  .q_eps = p.q_norm->p.norm.eps,
                                  .n_q = p.q_norm->in[0].width,
                                  .n_head = p.k_b->p.heads.in_stride,
                                  .n_k = p.k_b->p.heads.n_in,
                                  .n_v = attend.n_out,
                                  .n_between = p.gate->p.experts.n_out,
                                  .n_shared = p.shared_down->in[0].width,
                                  .route = emit_route_args(e, p.route),
                                  .store = attend.store,
                                  .attn = attend.attn};
    if (!take_weights(e, out, &p, a) || !fits(a, e->kind.caps.n_units)) return false;
    out->place = a->q_a.q;
    return true;
}

/* Places of the pairs that groups pass to each other; each kind's begin at a block (walk.h,
 * pass_place). Gives how many there are. */
static u64 place_passed(struct mla_layers_args *a, u32 max_pos, u32 units)
{
    enum { PASS_BLOCK = 128 };
    u32 heads = a->store.n_heads, latent = a->store.n, n_out = heads * a->n_v;
    u32 chosen = a->route.n_used * a->n_between;
    u32 items = share(heads, LATENT_HEADS) * MIN(LATENT_CUTS, max_pos / LATENT_POS + 1);
    const u32 n[MLA_PASS_COUNT] = {[MLA_PASS_IN] = a->n,
                                   [MLA_PASS_MIDDLE] = a->n,
                                   [MLA_PASS_QKV] = a->n_q + latent + a->store.n_rot,
                                   [MLA_PASS_QUERY] = heads * a->n_head,
                                   [MLA_PASS_LATENT] = heads * latent,
                                   [MLA_PASS_SUMS] = items * LATENT_HEADS * 2,
                                   [MLA_PASS_PARTS] = items * LATENT_HEADS * latent,
                                   [MLA_PASS_JOINED] = heads * latent,
                                   [MLA_PASS_WORDS] = n_out / 4,
                                   [MLA_PASS_SCALES] = n_out / 32,
                                   [MLA_PASS_ROUTER] = a->route.n_experts,
                                   [MLA_PASS_SHARED] = a->n_shared,
                                   [MLA_PASS_GLU] = chosen / 4,
                                   [MLA_PASS_BY] = chosen / 32,
                                   [MLA_PASS_HALF] = units};
    u32 at = LAYERS_HEADER;
    for (u32 i = 0; i < MLA_PASS_COUNT; i++) {
        a->pass[i] = at;
        at += ROUND_UP(n[i], PASS_BLOCK);
    }
    return at;
}

static void emit_run(struct emit *e, const struct layer_run *r)
{
    const struct layer *l = &r->first;
    struct mla_layers_args a = l->a.mla;
    a.n_layers = r->n, a.stride = r->stride, a.kv_stride = r->memory_stride;
    a.x = l->x, a.y = l->y;
    e->passed = place_passed(&a, e->limits->max_pos, e->kind.caps.n_units) * sizeof(u64);
    emit_launch(e, "k_mla_layers_i8", e->kind.caps.n_units, 1, MLA_SIMDS * 32 + LAYERS_HELPERS);
    emit_groups(e, e->kind.caps.n_units, LAYERS_BYTES);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_step(e, STEP_COS);
    emit_step(e, STEP_SIN);
    emit_chunk(e, l->chunk);
    emit_all(e, true);
    emit_bind(e, (struct binding){.space = SPACE_KV,
                                  .offset = l->memory,
                                  .n = (r->n - 1) * 16ull * r->memory_stride + l->n_memory,
                                  .write = true});
    emit_passed(e);
    emit_args(e, &a, sizeof a);
}

const struct layer_family layers_mla = {{RULE_NORM_MATMUL, RULE_MLA_QUERY, RULE_MLA_ATTENTION,
                                         RULE_MATMUL_ADD, RULE_NORM_ROUTER_GLU,
                                         RULE_ROUTE_EXPERTS_GLU, RULE_EXPERTS_SUM_ADD},
                                        GROUPS,
                                        layer_of,
                                        emit_run};
