/* RWKV-7's time mixing between its wide matrices as launches: wkv7 with what is before and behind
 * it, for one row from the low-rank middles on. */
#include <stdio.h>

#include "gpu/emit_layers.h"

static void find_mixer(const struct emit *e, const struct group *g, struct mixer *m)
{
    *m = (struct mixer){.lerp = g->role[MIX_LERP],
                        .k_k = g->role[MIX_K_K],
                        .l2 = g->role[MIX_L2],
                        .k_a = g->role[MIX_K_CONTROL],
                        .wkv = g->role[MIX_WKV],
                        .norm = g->role[MIX_NORM],
                        .bonus = g->role[MIX_BONUS],
                        .gate = g->role[MIX_GATE],
                        .out = group_last(g)->out[0]};
    struct operand v = m->lerp ? m->lerp->in[0] : m->wkv->in[3];
    m->head = m->wkv->p.rec.head;
    m->in[IN_R] = m->wkv->in[0];
    m->in[IN_W] = m->wkv->in[1];
    m->in[IN_K] = m->k_k->in[0];
    m->in[IN_V] = v;
    m->in[IN_A] = m->wkv->in[5];
    m->in[IN_FIRST] = m->lerp ? m->lerp->in[1] : v;
    m->in[IN_M] = m->lerp ? m->lerp->in[2] : v;
    m->in[IN_G] = m->gate ? m->gate->in[1] : v;
    m->args = (struct time_mix_args){.n_heads = m->in[IN_R].width / m->head,
                                     .r_pitch = emit_pitch(e, m->in[IN_R]),
                                     .w_pitch = emit_pitch(e, m->in[IN_W]),
                                     .k_pitch = emit_pitch(e, m->in[IN_K]),
                                     .v_pitch = emit_pitch(e, v),
                                     .a_pitch = emit_pitch(e, m->in[IN_A]),
                                     .first_pitch = m->lerp ? emit_pitch(e, m->in[IN_FIRST]) : 0,
                                     .m_pitch = m->lerp ? emit_pitch(e, m->in[IN_M]) : 0,
                                     .g_pitch = m->gate ? emit_pitch(e, m->in[IN_G]) : 0,
                                     .y_pitch = emit_pitch(e, m->out),
                                     .has_norm = m->norm != NULL,
                                     .l2_eps = m->l2->p.norm.eps,
                                     .norm_eps = m->norm ? m->norm->p.norm.eps : 0};
}

/* Where the kernels' assumptions don't hold the ops run one by one. */
static bool is_usual(const struct emit *e, const struct mixer *m)
{
    const struct op *l2 = m->l2, *norm = m->norm;
    if (!emit_has_wkv7(m->head) || l2->p.norm.kind != NORM_L2 || l2->p.norm.group != m->head)
        return false;
    if (l2->w[0] != NO_WEIGHT || l2->w[1] != NO_WEIGHT) return false;
    if (!norm) return true;
    return norm->p.norm.kind == NORM_LAYER && norm->p.norm.group == m->head &&
           norm->w[0] != NO_WEIGHT && norm->w[1] != NO_WEIGHT &&
           e->p->net->weights[norm->w[0]].n_in == m->in[IN_R].width;
}

static void bind_vectors(struct emit *e, const struct mixer *m)
{
    emit_vector(e, m->k_k->w[0], 0);
    emit_vector(e, m->k_a->w[0], 0);
    emit_vector(e, m->norm ? m->norm->w[0] : NO_WEIGHT, 0);
    emit_vector(e, m->norm ? m->norm->w[1] : NO_WEIGHT, 0);
    emit_vector(e, m->bonus->w[0], 0);
}

static void emit_mixer(struct emit *e, const struct mixer *m)
{
    char name[32];
    snprintf(name, sizeof name, "k_time_mix_%u", m->head);
    emit_launch(e, name, e->rows, m->args.n_heads, 2 * m->head + 32 * MIX_HELPERS);
    emit_chain(e);
    for (u32 i = 0; i < IN_COUNT; i++) emit_in(e, m->in[i]);
    bind_vectors(e, m);
    emit_state(e, m->wkv->p.rec.state, true);
    emit_out(e, m->out);
    emit_args(e, &m->args, sizeof m->args);
}

/* ---- one row, with the products before it ---- */

/* Can k_low_mix or k_unstaged_low do these products: matrices and biases of floats in one chunk? */
static bool fits(const struct emit *e, const struct group *g)
{
    const struct op *first = group_op(g, OP_MATMUL, 0), *mul;
    u32 n_in = 0, n = 0;
    if (e->rows > 1 || e->kind.n_p || !first) return false;
    u32 chunk = e->places[first->w[0]].chunk;
    for (; (mul = group_op(g, OP_MATMUL, n)) != NULL; n++) {
        if (encoding_is_int8(emit_planes(e, mul->w[0]).enc) ||
            (mul->in[0].width | mul->in[0].col) % 4 || e->places[mul->w[0]].chunk != chunk)
            return false;
        n_in += mul->in[0].width;
        if (mul->w[1] == NO_WEIGHT) continue;
        if (emit_planes(e, mul->w[1]).enc != ENC_F32 || e->places[mul->w[1]].chunk != chunk)
            return false;
    }
    return n <= LOW_MAX && n_in <= LOW_MAX_IN;
}

/* The part that makes x; LOW_MAX: none. */
static u32 maker_of(const struct operand *made, u32 n, struct operand x)
{
    for (u32 i = 0; i < n; i++)
        if (made[i].buf == x.buf) return i;
    return LOW_MAX;
}

static void emit_low_mix(struct emit *e, const struct group *g, const struct mixer *m)
{
    struct low_mix_args a = {.mix = m->args};
    struct operand made[LOW_MAX];
    u32 at = 0;
    char name[32];
    snprintf(name, sizeof name, "%s_%u", e->kind.caps.unstaged ? "k_unstaged_low" : "k_low_mix",
             m->head);
    emit_launch(e, name, emit_even(e, m->args.n_heads), 1, LOW_THREADS);
    emit_walk(e, 0, LOW_BYTES);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_chunk(e, e->places[group_op(g, OP_MATMUL, 0)->w[0]].chunk);
    emit_all(e, false);
    bind_vectors(e, m);
    emit_state(e, m->wkv->p.rec.state, false);
    emit_state(e, m->wkv->p.rec.state, true);
    for (const struct op *mul; (mul = group_op(g, OP_MATMUL, a.n_parts)) != NULL;) {
        const struct op *act = group_reader(g, mul->out[0], OP_ACT);
        struct planes p = emit_planes(e, mul->w[0]);
        made[a.n_parts] = act ? act->out[0] : mul->out[0];
        a.part[a.n_parts++] = (struct low_part){
            .enc = p.enc,
            .n_in = mul->in[0].width,
            .n_units = p.q_row,
            .q = emit_unit(e, mul->w[0]),
            .bias = emit_unit(e, mul->w[1]),
            .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE,
            .x = emit_touch(e, mul->in[0], false),
            .at = at,
        };
        at += mul->in[0].width / 4;
    }
    a.r = emit_touch(e, m->in[IN_R], false);
    a.k = emit_touch(e, m->in[IN_K], false);
    a.v = emit_touch(e, m->in[IN_V], false);
    a.first = emit_touch(e, m->in[IN_FIRST], false);
    a.y = emit_touch(e, m->out, true);
    a.w = maker_of(made, a.n_parts, m->in[IN_W]);
    a.a = maker_of(made, a.n_parts, m->in[IN_A]);
    a.m = maker_of(made, a.n_parts, m->in[IN_M]);
    a.g = maker_of(made, a.n_parts, m->in[IN_G]);
    emit_args(e, &a, sizeof a);
}

/* Does the launch know all four? What is not there needs no maker. */
static bool makes_all(const struct group *g, const struct mixer *m)
{
    return group_maker(g, m->in[IN_W]) && group_maker(g, m->in[IN_A]) &&
           (!m->lerp || group_maker(g, m->in[IN_M])) && (!m->gate || group_maker(g, m->in[IN_G]));
}

bool emit_low_mix_fits(const struct emit *e, const struct group *g, struct mixer *m)
{
    find_mixer(e, g, m);
    return is_usual(e, m) && fits(e, g) && makes_all(g, m);
}

int emit_time_mix(struct emit *e, const struct group *g)
{
    struct mixer m;
    if (emit_low_mix_fits(e, g, &m)) {
        emit_low_mix(e, g, &m);
        return e->rc;
    }
    if (!is_usual(e, &m)) return emit_each(e, g);
    emit_inside(e, g);
    for (u32 i = 0; i < g->n_ops; i++)
        if (g->ops[i]->kind == OP_MATMUL || g->ops[i]->kind == OP_ACT) emit_op(e, g->ops[i]);
    emit_mixer(e, &m);
    return e->rc;
}
