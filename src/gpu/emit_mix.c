/* Products that don't read each other, as launches: one row's all at once, from the norm (and in
 * RWKV-7 the shift) before them on; their inputs first where groups stage nothing. */
#include <stdio.h>
#include <string.h>

#include "gpu/emit_layers.h"

enum { MIX_MAX_OPS = 64 };

/* The lerp that makes x; NULL: none of the group. */
static const struct op *lerp_of(const struct group *g, struct operand x)
{
    const struct op *op = group_maker(g, x);
    return op && op->kind == OP_LERP ? op : NULL;
}

static const struct op *act_of(const struct group *g, const struct op *mul)
{
    return group_reader(g, mul->out[0], OP_ACT);
}

/* The glu whose gate this product makes; NULL: none. */
static const struct op *glu_of(const struct group *g, const struct op *mul)
{
    const struct op *glu = group_reader(g, mul->out[0], OP_GLU);
    return glu && group_maker(g, glu->in[0]) == mul ? glu : NULL;
}

/* The product that its values are multiplied with. */
static const struct op *up_of(const struct group *g, const struct op *mul)
{
    return group_maker(g, glu_of(g, mul)->in[1]);
}

static bool is_up(const struct group *g, const struct op *mul)
{
    return group_reader(g, mul->out[0], OP_GLU) && !glu_of(g, mul);
}

/* A product that is not done together with another one. */
static bool is_first(const struct group *g, const struct op *op)
{
    return op->kind == OP_MATMUL && !is_up(g, op);
}

static bool is_float(enum encoding enc)
{
    return !encoding_is_int8(enc);
}

static enum encoding enc_of(const struct emit *e, u32 id)
{
    return emit_planes(e, id).enc;
}

/* Is this vector, or row of them, there as floats beside the matrices? NO_WEIGHT is. */
static bool is_beside(const struct emit *e, u32 id, u32 chunk)
{
    return id == NO_WEIGHT || (enc_of(e, id) == ENC_F32 && e->places[id].chunk == chunk);
}

/* Can k_mix do this product, or k_waiting_rows make its input, behind the norm and the shift if
 * there are any? */
static bool fits(const struct emit *e, const struct group *g, const struct op *mul)
{
    const struct op *lerp = lerp_of(g, mul->in[0]);
    const struct op *norm = group_op(g, OP_NORM, 0), *shift = group_op(g, OP_TOKEN_SHIFT, 0);
    u32 n = mul->in[0].width, chunk = e->places[mul->w[0]].chunk;
    u32 room = is_float(enc_of(e, mul->w[0])) ? MATMUL_MAX_NORM_F32 : MATMUL_MAX_IN;
    const struct operand x = norm ? norm->in[0] : lerp ? lerp->in[0] : mul->in[0];
    if ((n > room && !e->kind.caps.unstaged) ||
        (n | x.col | (lerp && !norm ? lerp->in[1].col : 0)) % 4)
        return false;
    if (!is_beside(e, mul->w[1], chunk) || (lerp && !is_beside(e, lerp->w[0], chunk))) return false;
    const struct op *up = glu_of(g, mul) ? up_of(g, mul) : NULL;
    if (up && (mul->w[1] != NO_WEIGHT || up->w[1] != NO_WEIGHT ||
               e->places[up->w[0]].chunk != chunk || enc_of(e, up->w[0]) != enc_of(e, mul->w[0])))
        return false;
    if (shift && (!lerp || n != e->kept_width)) return false;
    return !norm || (norm->p.norm.group == n && norm->out[0].col % 4 == 0 &&
                     is_beside(e, norm->w[0], chunk) && is_beside(e, norm->w[1], chunk));
}

u32 emit_lerp_unit(const struct emit *e, const struct op *lerp)
{
    return emit_unit(e, lerp->w[0]) + lerp->p.lerp.row * emit_planes(e, lerp->w[0]).q_row;
}

static struct mix_part part_of(struct emit *e, const struct group *g, const struct op *mul)
{
    const struct op *act = act_of(g, mul), *lerp = lerp_of(g, mul->in[0]);
    const struct op *norm = group_op(g, OP_NORM, 0), *glu = glu_of(g, mul);
    const struct op *last = glu ? glu : act ? act : mul;
    const struct weight *w = &e->p->net->weights[mul->w[0]];
    struct planes p = emit_planes(e, mul->w[0]);
    return (struct mix_part){
        .enc = p.enc,
        .n_in = w->n_in,
        .n_out = w->n_out,
        .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE,
        .q = emit_unit(e, mul->w[0]),
        .s = emit_scales_unit(e, mul->w[0]),
        .s_row = p.s_row,
        .q2 = glu ? emit_unit(e, up_of(g, mul)->w[0]) : (u32)MIX_NOTHING,
        .s2 = glu ? emit_scales_unit(e, up_of(g, mul)->w[0]) : 0,
        .bias = emit_unit(e, mul->w[1]),
        .m = lerp ? emit_lerp_unit(e, lerp) : (u32)MIX_NOTHING,
        .x = emit_touch(e,
                        norm   ? norm->in[0]
                        : lerp ? lerp->in[0]
                               : mul->in[0],
                        false),
        .x2 = lerp && !norm ? emit_touch(e, lerp->in[1], false) : 0,
        .y = emit_touch(e, last->out[0], true),
    };
}

/* Of weights for one output. */
static u32 output_bytes(const struct emit *e, const struct group *g, const struct op *mul)
{
    struct planes p = emit_planes(e, mul->w[0]);
    return (p.q_row * 16 + p.s_row) * (glu_of(g, mul) ? 2 : 1);
}

/* About equally many bytes for each simdgroup, but not more groups than `most` or parts: every
 * group makes its part's input anew. */
static void deal_groups(const struct emit *e, const struct group *g, const u32 *pick, u32 most,
                        struct mix_args *a)
{
    u32 least = UINT32_MAX, bytes = 0;
    for (u32 i = 0; i < a->n_parts; i++) least = MIN(least, output_bytes(e, g, g->ops[pick[i]]));
    do {
        bytes += least;
        a->n_groups = 0;
        for (u32 i = 0; i < a->n_parts; i++) {
            u32 rows = MAX(1, bytes / output_bytes(e, g, g->ops[pick[i]]));
            a->part[i].first = a->n_groups;
            a->n_groups += (a->part[i].n_out + MATVEC_SIMDS * rows - 1) / (MATVEC_SIMDS * rows);
        }
    } while (a->n_groups > MAX(most, a->n_parts));
}

/* Of a device that says nothing of itself; and groups for each where they don't walk. */
enum { USUAL_UNITS = 16, USUAL_GROUPS = 2 };

static struct layout layout_of(struct emit *e, const char *name, const struct group *g,
                               enum encoding enc, const u32 *pick, u32 n)
{
    const struct weight *w = e->p->net->weights;
    struct site site = {.n_in = w[g->ops[pick[0]]->w[0]].n_in,
                        .n_slices = n,
                        .normed = group_op(g, OP_NORM, 0) != NULL};
    for (u32 i = 0; i < n; i++) site.n_out += w[g->ops[pick[i]]->w[0]].n_out;
    snprintf(site.kernel, sizeof site.kernel, "%s", name);
    return emit_shape(e, SHAPE_MIX, enc, &site, 1, 0);
}

/* Products of one encoding, and of floats, and chunk as one launch. */
static void emit_mix(struct emit *e, const struct group *g, enum encoding enc, const u32 *pick,
                     u32 n)
{
    const struct op *norm = group_op(g, OP_NORM, 0), *shift = group_op(g, OP_TOKEN_SHIFT, 0);
    struct mix_args a = {.n_parts = n,
                         .norm = norm ? norm->p.norm.kind : NORM_KIND_NONE,
                         .norm_w = norm ? emit_unit(e, norm->w[0]) : (u32)MIX_NOTHING,
                         .norm_b = norm ? emit_unit(e, norm->w[1]) : (u32)MIX_NOTHING,
                         .eps = norm ? norm->p.norm.eps : 0};
    char name[32];
    snprintf(name, sizeof name, "k_mix_%s", is_float(enc) ? "floats" : encoding_info[enc].name);
    struct layout l = layout_of(e, name, g, enc, pick, n);
    emit_launch(e, name, 1, 1, MATVEC_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_chunk(e, e->places[g->ops[pick[0]]->w[0]].chunk);
    emit_all(e, false);
    if (shift) {
        emit_state(e, shift->p.rec.state, false);
        emit_kept(e, shift->p.rec.state, norm->in[0].width);
    } else {
        emit_step(e, STEP_HEAD);
        if (norm)
            emit_out(e, norm->out[0]);
        else
            emit_step(e, STEP_HEAD);
    }
    for (u32 i = 0; i < n; i++) a.part[i] = part_of(e, g, g->ops[pick[i]]);
    u32 units = e->kind.caps.n_units ? e->kind.caps.n_units : USUAL_UNITS;
    u32 per_four = l.v[LAYOUT_GROUPS] ? l.v[LAYOUT_GROUPS] : 4 * USUAL_GROUPS;
    deal_groups(e, g, pick, units * per_four / 4, &a);
    u32 floats = QUEUE_BYTES(0, MATVEC_THREADS);
    emit_groups(e, emit_even(e, a.n_groups),
                MAX(QUEUE_BYTES(emit_scale_words(enc), MATVEC_THREADS), floats));
    emit_args(e, &a, sizeof a);
}

/* ---- devices that stage nothing ---- */

static bool plan_waiting(const struct emit *e, const struct group *g, struct waiting *w,
                         u32 input[MIX_MAX_OPS])
{
    *w = (struct waiting){.norm = group_op(g, OP_NORM, 0),
                          .shift = group_op(g, OP_TOKEN_SHIFT, 0),
                          .chunk = UINT32_MAX};
    for (u32 i = 0; i < g->n_ops; i++) {
        const struct op *mul = g->ops[i], *lerp;
        if (!is_first(g, mul)) continue;
        lerp = lerp_of(g, mul->in[0]);
        struct waiting_input in = {
            .x = mul->in[0], .m = MIX_NOTHING, .int8 = !is_float(enc_of(e, mul->w[0]))};
        if (lerp) {
            in.m = emit_lerp_unit(e, lerp);
            in.x = lerp->in[0];
            in.x2 = lerp->in[1];
        }
        if (w->norm) in.x = in.x2 = w->norm->in[0];
        u32 beside = e->places[mul->w[0]].chunk; /* where its vectors are */
        if ((lerp || w->norm) && w->chunk != UINT32_MAX && w->chunk != beside) return false;
        if (lerp || w->norm) w->chunk = beside;
        input[i] = waiting_add(w, in);
        if (input[i] == UINT32_MAX) return false;
    }
    return true;
}

/* The input of each product first, then products of one encoding and width together. */
static int emit_unstaged_mixes(struct emit *e, const struct group *g)
{
    u32 input[MIX_MAX_OPS];
    bool done[MIX_MAX_OPS] = {false};
    struct waiting w;
    if (!plan_waiting(e, g, &w, input)) return emit_each(e, g);
    emit_waiting_rows(e, &w);
    for (u32 i = 0; i < g->n_ops; i++) {
        static const u32 pick[MATMUL_MAX] = {0, 1, 2};
        const struct op *first = g->ops[i], *glu;
        if (!is_first(g, first) || done[i]) continue;
        glu = glu_of(g, first);
        struct product m = {.op = first,
                            .x = w.in[0].x,
                            .n_slices = 1,
                            .n_in = first->in[0].width,
                            .glu = glu != NULL,
                            .waiting = &w};
        for (u32 j = i; j < g->n_ops && m.n < (glu ? 1 : MATMUL_MAX); j++) {
            const struct op *mul = g->ops[j], *act;
            if (!is_first(g, mul) || done[j] || (j > i && glu_of(g, mul)) ||
                mul->in[0].width != m.n_in || enc_of(e, mul->w[0]) != enc_of(e, first->w[0]))
                continue;
            act = act_of(g, mul);
            done[j] = true;
            m.w[m.n] = mul->w[0];
            m.bias[m.n] = mul->w[1];
            m.input[m.n] = input[j];
            m.f[m.n] = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE;
            m.y[m.n++] = (glu ? glu : act ? act : mul)->out[0];
        }
        if (glu) {
            m.w[1] = up_of(g, first)->w[0];
            m.bias[1] = up_of(g, first)->w[1];
            m.n = 2;
        }
        emit_unstaged(e, &m, pick, m.n);
    }
    return e->rc;
}

bool emit_mixes_fit(const struct emit *e, const struct group *g)
{
    if (e->rows > 1 || e->kind.n_p) return false;
    for (u32 i = 0; i < g->n_ops; i++)
        if (g->ops[i]->kind == OP_MATMUL && !fits(e, g, g->ops[i])) return false;
    return true;
}

static int emit_mixes(struct emit *e, const struct group *g)
{
    bool done[MIX_MAX_OPS] = {false};
    CHECK(g->n_ops <= MIX_MAX_OPS);
    if (e->kind.caps.unstaged) return emit_unstaged_mixes(e, g);
    for (u32 i = 0; i < g->n_ops; i++) {
        u32 pick[MIX_MAX], n = 0, chunk;
        if (!is_first(g, g->ops[i]) || done[i]) continue;
        enum encoding enc = enc_of(e, g->ops[i]->w[0]);
        chunk = e->places[g->ops[i]->w[0]].chunk;
        for (u32 j = i; j < g->n_ops && n < MIX_MAX; j++) {
            if (!is_first(g, g->ops[j]) || done[j]) continue;
            enum encoding other = enc_of(e, g->ops[j]->w[0]);
            if (e->places[g->ops[j]->w[0]].chunk != chunk) continue;
            if (is_float(enc)) enc = other;
            if (other != enc && !is_float(other)) continue;
            pick[n++] = j;
            done[j] = true;
        }
        emit_mix(e, g, enc, pick, n);
    }
    return e->rc;
}

int emit_matmuls(struct emit *e, const struct group *g)
{
    return emit_mixes_fit(e, g) ? emit_mixes(e, g) : emit_each(e, g);
}

int emit_norm_router(struct emit *e, const struct group *g)
{
    const struct op *glu = group_op(g, OP_GLU, 0);
    if (emit_mixes_fit(e, g)) return emit_mixes(e, g);
    emit_op(e, g->role[ROUTER_NORM]);
    emit_op(e, g->role[ROUTER_MATMUL]);
    return glu ? emit_glu(e, g, NULL, glu) : e->rc;
}
