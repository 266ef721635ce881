/* Experts as launches: one for gate, up and glu of all that are chosen, one for down and the sum.
 */
#include <stdio.h>

#include "gpu/emit_layers.h"

static const char *route_unfit(const struct op *op)
{
    if (op->p.route.n_experts > ROUTE_MAX_EXPERTS) return "more than 1024 experts";
    if (op->p.route.n_used > ROUTE_MAX_USED) return "more than 32 experts at once";
    return op->p.route.n_groups > 32 ? "more than 32 groups of experts" : NULL;
}

struct route_args emit_route_args(const struct emit *e, const struct op *op)
{
    return (struct route_args){.softmax = op->p.route.kind == ROUTE_SOFTMAX,
                               .n_experts = op->p.route.n_experts,
                               .n_used = op->p.route.n_used,
                               .n_groups = op->p.route.n_groups,
                               .n_groups_used = op->p.route.n_groups_used,
                               .normalise = op->p.route.normalise,
                               .has_bias = op->w[0] != NO_WEIGHT,
                               .has_scales = op->w[1] != NO_WEIGHT,
                               .z_pitch = emit_pitch(e, op->in[0]),
                               .ids_pitch = emit_pitch(e, op->out[0]),
                               .weights_pitch = emit_pitch(e, op->out[1]),
                               .floor = op->p.route.floor,
                               .scale = op->p.route.scale};
}

int emit_route(struct emit *e, const struct op *op)
{
    if (route_unfit(op)) return emit_lacks(e, op, route_unfit(op));
    struct route_args a = emit_route_args(e, op);
    emit_launch(e, "k_route", e->rows, 1, 32);
    emit_step(e, STEP_HEAD);
    emit_vector(e, op->w[0], 0);
    emit_vector(e, op->w[1], 0);
    emit_in(e, op->in[0]);
    emit_out(e, op->out[0]);
    emit_out(e, op->out[1]);
    return emit_args(e, &a, sizeof a);
}

int emit_add_experts(struct emit *e, const struct op *op)
{
    u32 n = op->p.experts.n_out;
    struct add_experts_args a = {.n = n,
                                 .n_used = op->p.experts.n_used,
                                 .x_pitch = emit_pitch(e, op->in[0]),
                                 .ids_pitch = emit_pitch(e, op->in[1]),
                                 .y_pitch = emit_pitch(e, op->out[0]),
                                 .b_pitch = emit_planes(e, op->w[0]).q_row * 4};
    emit_launch(e, "k_add_experts", (n + COMBINE_THREADS - 1) / COMBINE_THREADS, e->rows * a.n_used,
                COMBINE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_vector(e, op->w[0], 0);
    emit_in(e, op->in[0]);
    emit_in(e, op->in[1]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

int emit_combine_experts(struct emit *e, const struct op *op)
{
    u32 n = op->p.experts.n_out;
    struct combine_args a = {.n = n,
                             .n_used = op->p.experts.n_used,
                             .x_pitch = emit_pitch(e, op->in[0]),
                             .weights_pitch = emit_pitch(e, op->in[1]),
                             .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_combine_experts", e->rows, (n + COMBINE_THREADS - 1) / COMBINE_THREADS,
                COMBINE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_in(e, op->in[0]);
    emit_in(e, op->in[1]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

/* What all products by experts have in common; m is the matmul_experts. */
static struct experts_args args_of(const struct emit *e, const struct op *m, struct operand y)
{
    struct planes w = emit_planes(e, m->w[0]);
    return (struct experts_args){.n_in = m->p.experts.n_in,
                                 .n_out = m->p.experts.n_out,
                                 .n_experts = e->p->net->weights[m->w[0]].n_slices,
                                 .n_used = m->p.experts.n_used,
                                 .x_pitch = emit_pitch(e, m->in[0]),
                                 .x_slice = m->p.experts.per_slot ? m->p.experts.n_in : 0,
                                 .y_pitch = emit_pitch(e, y),
                                 .ids_pitch = emit_pitch(e, m->in[1]),
                                 .q_row = w.q_row,
                                 .s_row = w.s_row,
                                 .rows = e->count};
}

/* Its form for one row on devices that stage nothing. */
static void emit_one_row(struct emit *e, struct product m, u32 n_out)
{
    m.n_slices = m.per_slot ? m.n_used : 1;
    m.x_stride = m.per_slot ? m.n_in : 0;
    m.y_stride = n_out;
    emit_product_rows(e, &m);
    emit_for_all(e);
}

static const char *encoding_name(const struct emit *e, u32 w)
{
    return encoding_info[encoding_of(e->p->net->weights[w].type)].name;
}

/* m stages n_in columns, where it stages any. */
static bool unfit(const struct emit *e, const struct op *m, u32 n_in)
{
    return (m->in[0].col | emit_pitch(e, m->in[0]) | m->p.experts.n_in) % 4 ||
           (n_in > MATMUL_MAX_IN && !emit_is_unstaged(e, m->in[0]));
}

static const char too_odd[] = "columns that are not a multiple of 4, or more than 16384";

int emit_matmul_experts(struct emit *e, const struct op *op)
{
    if (unfit(e, op, op->p.experts.n_in)) return emit_lacks(e, op, too_odd);
    struct product m = product_alone(op);
    if (emit_panels_are_all(e, &m)) return e->rc;
    if (emit_is_unstaged(e, op->in[0])) {
        emit_one_row(e, m, op->p.experts.n_out);
        return e->rc;
    }
    struct experts_args a = args_of(e, op, op->out[0]);
    char name[32];
    snprintf(name, sizeof name, "k_experts_%s", encoding_name(e, op->w[0]));
    emit_launch(e, name, (a.n_out + MATMUL_SIMDS - 1) / MATMUL_SIMDS, e->rows * a.n_used,
                MATMUL_THREADS);
    emit_step(e, STEP_HEAD);
    emit_in(e, op->in[1]);
    emit_in(e, op->in[0]);
    emit_weight(e, op->w[0]);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
    emit_for_all(e);
    return e->rc;
}

/* A launch whose groups walk over n_out outputs of each of `slices`, so many at once, with queues.
 */
static void walk(struct emit *e, const char *kind, u32 w, u32 n_out, u32 at_once, u32 slices)
{
    struct planes p = emit_planes(e, w);
    struct site site = {.n_out = n_out, .n_in = e->p->net->weights[w].n_in, .n_slices = slices};
    snprintf(site.kernel, sizeof site.kernel, "k_experts%s_%s", kind, encoding_info[p.enc].name);
    struct layout l = emit_shape(e, SHAPE_EXPERTS, p.enc, &site, 1, 0);
    emit_launch(e, site.kernel, (n_out + at_once - 1) / at_once, 1, MATVEC_THREADS);
    emit_depth(e, slices);
    emit_walk_by(e, &l, QUEUE_BYTES(emit_scale_words(p.enc), MATVEC_THREADS));
    emit_step(e, STEP_HEAD);
}

/* One encoding, and experts that the launch can choose where it has to. */
bool emit_experts_glu_fits(const struct emit *e, const struct group *g)
{
    const struct op *route = group_op(g, OP_ROUTE, 0), *glu = group_op(g, OP_GLU, 0);
    const struct op *gate = group_maker(g, glu->in[0]), *up = group_maker(g, glu->in[1]);
    const struct weight *w = e->p->net->weights;
    return !unfit(e, gate, gate->p.experts.n_in) &&
           encoding_of(w[gate->w[0]].type) == encoding_of(w[up->w[0]].type) &&
           (!route || (!route_unfit(route) && (route->p.route.n_experts <= ROUTE_FEW_EXPERTS ||
                                               emit_is_unstaged(e, gate->in[0]))));
}

int emit_experts_glu(struct emit *e, const struct group *g)
{
    const struct op *route = group_op(g, OP_ROUTE, 0), *glu = group_op(g, OP_GLU, 0);
    const struct op *gate = group_maker(g, glu->in[0]), *up = group_maker(g, glu->in[1]);
    if (unfit(e, gate, gate->p.experts.n_in)) return emit_lacks(e, gate, too_odd);
    if (!emit_experts_glu_fits(e, g)) return emit_each(e, g);
    struct product m = product_of(g, gate);
    if (emit_has_panels(e, gate->in[0], gate->w[0])) {
        if (route) emit_route(e, route);
        emit_panels(e, &m);
        if (!e->kind.n_d) return e->rc;
        route = NULL;
        emit_only_d(e);
    }
    if (emit_is_unstaged(e, gate->in[0])) {
        if (route) emit_route(e, route);
        emit_one_row(e, m, gate->p.experts.n_out);
        return e->rc;
    }
    struct experts_args a = args_of(e, gate, glu->out[0]);
    if (route) {
        a.routes = 1;
        a.route = emit_route_args(e, route);
        a.weights_pitch = a.route.weights_pitch;
    }
    walk(e, "_glu", gate->w[0], a.n_out, MATVEC_SIMDS, e->rows * a.n_used);
    if (route)
        emit_out(e, gate->in[1]);
    else
        emit_in(e, gate->in[1]);
    emit_in(e, gate->in[0]);
    emit_weight(e, gate->w[0]);
    emit_weight(e, up->w[0]);
    emit_out(e, glu->out[0]);
    emit_in(e, route ? route->in[0] : gate->in[0]);
    emit_vector(e, route ? route->w[0] : NO_WEIGHT, 0);
    if (route)
        emit_out(e, route->out[1]);
    else
        emit_in(e, gate->in[0]);
    emit_args(e, &a, sizeof a);
    emit_for_all(e);
    return e->rc;
}

static void emit_sum_of_panels(struct emit *e, const struct group *g)
{
    const struct op *down = g->role[SUM_DOWN], *combine = g->role[SUM_COMBINE];
    struct product m = product_alone(down);
    emit_inside(e, g);
    emit_panels(e, &m);
    emit_op(e, combine);
    if (g->role[SUM_ADDED]) {
        m = product_of(g, g->role[SUM_ADDED]);
        emit_product(e, &m);
    } else if (group_last(g) != combine) {
        emit_op(e, group_last(g));
    }
    e->inner = e->kept; /* rows of class D need none of it */
}

/* Can the matmul be added by the kernel that sums? */
static bool added_fits(const struct emit *e, const struct op *down, const struct op *added)
{
    const struct weight *w = e->p->net->weights;
    u32 columns = down->p.experts.n_in * down->p.experts.n_used;
    if (!added) return true;
    return encoding_of(w[down->w[0]].type) == encoding_of(w[added->w[0]].type) &&
           (added->in[0].col | emit_pitch(e, added->in[0]) | added->in[0].width) % 4 == 0 &&
           (emit_is_unstaged(e, down->in[0]) ||
            (columns % 32 == 0 && columns + added->in[0].width <= MATMUL_MAX_IN));
}

/* Can one of the launches for sums do it? */
static bool sum_fits(const struct emit *e, const struct group *g)
{
    const struct op *down = g->role[SUM_DOWN];
    return !unfit(e, down, down->p.experts.n_in * down->p.experts.n_used) &&
           added_fits(e, down, g->role[SUM_ADDED]);
}

/* Do a simdgroup's rows have slots for themselves, as native/experts_sum.cu wants it? */
bool emit_experts_sum_is_small(const struct emit *e, const struct group *g)
{
    enum { STEP = 32 * 16 };
    const struct op *down = g->role[SUM_DOWN], *added = g->role[SUM_ADDED];
    u32 n_in = down->p.experts.n_in, n_used = down->p.experts.n_used;
    u32 added_in = added ? added->in[0].width : 0;
    return sum_fits(e, g) && e->kind.caps.clusters && e->rows == 1 && !e->kind.n_p &&
           added_in > 0 && encoding_of(e->p->net->weights[down->w[0]].type) == ENC_I8 &&
           (n_in | added_in) % 32 == 0 && MAX(n_in, added_in) <= SUM_FEW_STEPS * STEP &&
           n_in * n_used + added_in <= SUM_FEW_IN && n_used < SUM_FEW_ROWS * EXPERTS_WAYS &&
           down->p.experts.n_out % EXPERTS_SUM_OUTS == 0;
}

int emit_experts_sum(struct emit *e, const struct group *g)
{
    const struct op *down = g->role[SUM_DOWN], *added = g->role[SUM_ADDED], *last = group_last(g);
    const struct operand *residual = last->kind == OP_ADD ? &last->in[0] : NULL;
    struct operand weights = g->role[SUM_COMBINE]->in[1];
    if (!sum_fits(e, g)) return emit_each(e, g);
    if (emit_has_panels(e, down->in[0], down->w[0])) { /* then rows of class D are written again */
        emit_sum_of_panels(e, g);
        if (!e->kind.n_d) return e->rc;
        emit_only_d(e);
    }
    if (emit_is_unstaged(e, down->in[0])) {
        emit_unstaged_sum(e, g, residual);
        emit_for_all(e);
        return e->rc;
    }
    struct experts_args a = args_of(e, down, last->out[0]);
    a.weights_pitch = emit_pitch(e, weights);
    a.residual_pitch = residual ? emit_pitch(e, *residual) : 0;
    if (added) {
        struct planes w = emit_planes(e, added->w[0]);
        a.added_in = added->in[0].width;
        a.added_pitch = emit_pitch(e, added->in[0]);
        a.added_bias = added->w[1] != NO_WEIGHT;
        a.added_q_row = w.q_row;
        a.added_s_row = w.s_row;
    }
    if (emit_experts_sum_is_small(e, g)) {
        emit_launch(e, "k_experts_sum_few_i8", a.n_out / EXPERTS_SUM_OUTS, 1, MATVEC_THREADS);
        emit_walk(e, 0, SUM_FEW_BYTES);
        emit_step(e, STEP_HEAD);
    } else {
        walk(e, "_sum", down->w[0], a.n_out, EXPERTS_SUM_OUTS, e->rows);
    }
    emit_in(e, down->in[1]);
    emit_in(e, weights);
    emit_in(e, down->in[0]);
    emit_in(e, residual ? *residual : down->in[0]);
    emit_weight(e, down->w[0]);
    emit_in(e, added ? added->in[0] : down->in[0]);
    emit_weight(e, added ? added->w[0] : down->w[0]);
    emit_vector(e, added ? added->w[1] : NO_WEIGHT, 0);
    emit_out(e, last->out[0]);
    emit_args(e, &a, sizeof a);
    emit_for_all(e);
    return e->rc;
}
