/* Layers of MLA and experts as one launch (native/mla_layers.cu). */
#include <string.h>

#include "gpu/emit_layers.h"

/* Launches of a layer. */
enum { IN, QUERY, ATTEND, OUT_HEADS, OUT, ROUTER, GATE, DOWN, LAUNCHES };

/* Their arguments. */
struct eight {
    struct matmul_args in, out;
    struct mla_query_args query;
    struct mla_args attend, heads;
    struct mix_args router;
    struct experts_args gate, down;
    const struct launch *l;
};

static bool read_eight(const struct launch *l, struct eight *f)
{
    static const char *const names[LAUNCHES] = {
        "k_matmul_i8", "k_mla_query_i8", "k_mla_mma",        "k_mla_out_i8",
        "k_matmul_i8", "k_mix_i8",       "k_experts_glu_i8", "k_experts_sum_few_i8"};
    for (u32 i = 0; i < LAUNCHES; i++)
        if (strncmp(l[i].kernel, names[i], strlen(names[i]))) return false;
    f->l = l;
    memcpy(&f->in, l[IN].args, sizeof f->in);
    memcpy(&f->query, l[QUERY].args, sizeof f->query);
    memcpy(&f->attend, l[ATTEND].args, sizeof f->attend);
    memcpy(&f->heads, l[OUT_HEADS].args, sizeof f->heads);
    memcpy(&f->out, l[OUT].args, sizeof f->out);
    memcpy(&f->router, l[ROUTER].args, sizeof f->router);
    memcpy(&f->gate, l[GATE].args, sizeof f->gate);
    memcpy(&f->down, l[DOWN].args, sizeof f->down);
    return true;
}

/* ---- is it such a layer ---- */

/* Does b begin so many floats behind a? */
static bool is_behind(const struct binding *b, const struct binding *a, u32 n)
{
    return a->space == SPACE_T && b->space == SPACE_T && b->offset == a->offset + n * sizeof(float);
}

/* Which of the first launch's matrices is kv_a: the other one, q_a, makes what queries read. */
static u32 kv_part(const struct eight *f)
{
    return is_behind(&f->l[QUERY].bufs[1], &f->l[IN].bufs[9], 0) ? 1 : 0;
}

/* Does each launch read what others before it made, and the residual stream? */
static bool is_chain(const struct eight *f)
{
    const struct launch *l = f->l;
    const struct binding *kv = &l[IN].bufs[9 + 4 * kv_part(f)], *middle = &l[OUT].bufs[9];
    const struct mix_part *p = f->router.part;
    return is_behind(&l[QUERY].bufs[1], &l[IN].bufs[9 + 4 * !kv_part(f)], 0) &&
           is_behind(&l[ATTEND].bufs[6], &l[QUERY].bufs[4], f->query.n_k) &&
           is_behind(&l[ATTEND].bufs[7], kv, 0) &&
           is_behind(&l[ATTEND].bufs[8], kv, f->attend.store.n) &&
           is_behind(&l[ATTEND].bufs[9], &l[QUERY].bufs[7], 0) &&
           is_behind(&l[OUT].bufs[3], &l[OUT_HEADS].bufs[5], 0) &&
           is_behind(&l[OUT].bufs[4], &l[IN].bufs[3], 0) && p[0].x == layers_float_at(middle) &&
           p[1].x == p[0].x && is_behind(&l[GATE].bufs[2], &l[ROUTER].bufs[5], 0) &&
           p[0].y == layers_float_at(&l[GATE].bufs[8]) &&
           is_behind(&l[DOWN].bufs[1], &l[GATE].bufs[1], 0) &&
           is_behind(&l[DOWN].bufs[2], &l[GATE].bufs[10], 0) &&
           is_behind(&l[DOWN].bufs[3], &l[GATE].bufs[7], 0) &&
           is_behind(&l[DOWN].bufs[4], middle, 0) && p[1].y == layers_float_at(&l[DOWN].bufs[7]);
}

/* From the residual stream to attention's output, added to it. */
static bool is_attention(const struct eight *f)
{
    const struct matmul_args *in = &f->in, *out = &f->out;
    const struct mla_query_args *q = &f->query;
    const struct mla_store_args *s = &f->attend.store;
    const struct attention_args *a = &f->attend.attn;
    u32 kv = kv_part(f), k = s->n + s->n_rot;
    return in->norm == NORM_KIND_RMS && in->has_w && !in->has_b && !in->part[0].has_bias &&
           !in->part[1].has_bias && !in->part[2].n_out && !in->add_pitch[0] && !in->add_pitch[1] &&
           in->part[kv].n_out == k && in->part[!kv].n_out == q->n_in && q->norm == NORM_KIND_RMS &&
           q->has_w && q->n_out == s->n && q->y_stride == k &&
           f->l[QUERY].groups[2] == s->n_heads && s->norm == NORM_KIND_RMS && s->has_w &&
           !s->has_b && s->q_stride == q->n_q && s->y_stride == k && q->n_q == q->n_k + s->n_rot &&
           a->n_heads == s->n_heads && a->n_kv_heads == 1 && a->k_units * 8 == k &&
           a->v_units * 8 == s->n && !memcmp(&f->attend, &f->heads, sizeof f->heads) &&
           f->heads.y_stride == f->heads.n_out && out->n_in == s->n_heads * f->heads.n_out &&
           out->norm == NORM_KIND_NONE && out->part[0].n_out == in->n_in &&
           !out->part[0].has_bias && !out->part[1].n_out && out->add_pitch[0] && !out->add_pitch[1];
}

/* The rest. */
static bool is_experts(const struct eight *f)
{
    const struct mix_part *router = &f->router.part[0], *shared = &f->router.part[1];
    const struct experts_args *gate = &f->gate, *down = &f->down;
    u32 n = f->in.n_in;
    for (u32 i = 0; i < 2; i++)
        if (f->router.part[i].n_in != n || f->router.part[i].m != (u32)MIX_NOTHING ||
            f->router.part[i].bias != (u32)MIX_NOTHING || f->router.part[i].f != COLUMNS_NONE)
            return false;
    return f->router.n_parts == 2 && f->router.norm == NORM_KIND_RMS &&
           f->router.norm_w != (u32)MIX_NOTHING && f->router.norm_b == (u32)MIX_NOTHING &&
           router->enc == ENC_F32 && router->q2 == (u32)MIX_NOTHING &&
           router->n_out == gate->n_experts && shared->enc == ENC_I8 &&
           shared->q2 != (u32)MIX_NOTHING && shared->n_out == down->added_in && gate->routes &&
           gate->route.n_experts == gate->n_experts && gate->route.n_used == gate->n_used &&
           gate->n_in == n && !gate->x_slice && down->n_in == gate->n_out &&
           down->x_slice == down->n_in && down->n_experts == gate->n_experts &&
           down->n_used == gate->n_used && down->n_out == n && !down->added_bias &&
           down->residual_pitch;
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

static bool take_matrix(const struct emit *e, const struct binding *b, u32 chunk,
                        struct mla_matrix *to)
{
    return layers_weight_at(e, &b[0], chunk, &to->q) && layers_weight_at(e, &b[1], chunk, &to->s);
}

/* Where all its weights lie. */
static bool take_weights(const struct emit *e, const struct eight *f, u32 chunk,
                         struct mla_layers_args *a)
{
    const struct launch *l = f->l;
    const struct mix_part *shared = &f->router.part[1];
    u32 kv = kv_part(f);
    a->norm[1] = f->router.norm_w;
    a->router = f->router.part[0].q;
    a->shared_gate = (struct mla_matrix){shared->q, shared->s};
    a->shared_up = (struct mla_matrix){shared->q2, shared->s2};
    a->bias = (u32)MIX_NOTHING;
    if (f->gate.route.has_bias && !layers_weight_at(e, &l[GATE].bufs[9], chunk, &a->bias))
        return false;
    return layers_weight_at(e, &l[IN].bufs[1], chunk, &a->norm[0]) &&
           layers_weight_at(e, &l[QUERY].bufs[0], chunk, &a->q_norm) &&
           layers_weight_at(e, &l[ATTEND].bufs[4], chunk, &a->c_norm) &&
           take_matrix(e, &l[IN].bufs[6 + 4 * !kv], chunk, &a->q_a) &&
           take_matrix(e, &l[IN].bufs[6 + 4 * kv], chunk, &a->kv_a) &&
           take_matrix(e, &l[QUERY].bufs[2], chunk, &a->q_b) &&
           take_matrix(e, &l[QUERY].bufs[5], chunk, &a->k_b) &&
           take_matrix(e, &l[OUT_HEADS].bufs[3], chunk, &a->v_b) &&
           take_matrix(e, &l[OUT].bufs[6], chunk, &a->o) &&
           take_matrix(e, &l[GATE].bufs[3], chunk, &a->gate) &&
           take_matrix(e, &l[GATE].bufs[5], chunk, &a->up) &&
           take_matrix(e, &l[DOWN].bufs[5], chunk, &a->down) &&
           take_matrix(e, &l[DOWN].bufs[8], chunk, &a->shared_down);
}

static bool layer_of(const struct emit *e, const struct launch *l, struct layer *out)
{
    struct eight f;
    struct mla_layers_args *a = &out->a.mla;
    if (!read_eight(l, &f) || !is_attention(&f) || !is_experts(&f) || !is_chain(&f)) return false;
    out->chunk = l[ROUTER].bufs[2].weight;
    out->x = layers_float_at(&l[IN].bufs[3]);
    out->y = layers_float_at(&l[DOWN].bufs[11]);
    out->memory = l[ATTEND].bufs[12].offset;
    out->n_memory = l[ATTEND].bufs[12].n;
    *a = (struct mla_layers_args){.n = f.in.n_in,
                                  .eps = {f.in.eps, f.router.eps},
                                  .q_eps = f.query.eps,
                                  .n_q = f.query.n_in,
                                  .n_head = f.query.n_q,
                                  .n_k = f.query.n_k,
                                  .n_v = f.heads.n_out,
                                  .n_between = f.gate.n_out,
                                  .n_shared = f.down.added_in,
                                  .route = f.gate.route,
                                  .store = f.attend.store,
                                  .attn = f.attend.attn};
    if (!take_weights(e, &f, out->chunk, a) || !fits(a, e->kind.n_units)) return false;
    out->place = a->q_a.q;
    return true;
}

static void advance(struct layer *l, u32 stride, u32 kv_stride)
{
    struct mla_layers_args *a = &l->a.mla;
    u32 *vectors[] = {&a->norm[0], &a->norm[1], &a->q_norm, &a->c_norm, &a->router};
    struct mla_matrix *matrices[] = {&a->q_a,  &a->kv_a,        &a->q_b,       &a->k_b,
                                     &a->v_b,  &a->o,           &a->gate,      &a->up,
                                     &a->down, &a->shared_gate, &a->shared_up, &a->shared_down};
    (void)kv_stride; /* the launch's binding says where caches begin */
    for (u32 i = 0; i < ARRAY_LEN(vectors); i++) *vectors[i] += stride;
    for (u32 i = 0; i < ARRAY_LEN(matrices); i++)
        matrices[i]->q += stride, matrices[i]->s += stride;
    if (a->bias != (u32)MIX_NOTHING) a->bias += stride;
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

static bool merge(struct emit *e, const struct layer_run *r, u32 first)
{
    const struct layer *l = &r->first;
    struct mla_layers_args a = l->a.mla;
    (void)first;
    a.n_layers = r->n, a.stride = r->stride, a.kv_stride = r->memory_stride;
    a.x = l->x, a.y = l->y;
    e->passed = place_passed(&a, e->limits->max_pos, e->kind.n_units) * sizeof(u64);
    emit_launch(e, "k_mla_layers_i8", e->kind.n_units, 1, MLA_SIMDS * 32 + LAYERS_HELPERS);
    emit_groups(e, e->kind.n_units, LAYERS_BYTES);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_step(e, STEP_COS);
    emit_step(e, STEP_SIN);
    emit_chunk(e, l->chunk);
    emit_all(e);
    emit_bind(e, (struct binding){.space = SPACE_KV,
                                  .offset = l->memory,
                                  .n = (r->n - 1) * 16ull * r->memory_stride + l->n_memory,
                                  .write = true});
    emit_passed(e);
    emit_args(e, &a, sizeof a);
    return true;
}

const struct layer_family layers_mla = {LAUNCHES, layer_of, advance, merge};
