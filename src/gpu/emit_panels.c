/* Products of prompts' rows as launches (args.h: panels). Rows are rounded to bf16, then every
 * matrix, both into scratch memory, then both are multiplied by matrix units, with what is added or
 * glu done on the way out. Decoding a matrix once for all rows of a step costs
 * bandwidth only; an H200 decodes 8 billion weights in 6 ms. */
#include <stdio.h>

#include "gpu/emit.h"

enum { MAX_WEIGHTS = 256 << 20 }; /* bytes of scratch for matrices of experts */

/* Where things lie in scratch memory. */
struct panels {
    u32 pitch, rows, w_rows; /* columns; rows of a slice of x and of w */
    u32 n_slices, at_once;   /* of weights, and those that there is room for */
    u64 places_n, x_n, w_n;  /* bytes */
};

bool emit_has_panels(const struct emit *e, struct operand x, u32 w)
{
    return e->kind.n_p && e->p->bufs[x.buf].rows == ROWS_T && emit_planes(e, w).enc != ENC_F32;
}

static u32 x_slices(const struct product *m)
{
    return !m->n_used ? m->n_slices : m->per_slot ? m->n_used : 1;
}

static struct panels panels_of(const struct emit *e, const struct product *m)
{
    const struct weight *w = &e->p->net->weights[m->m[0].w];
    struct panels p = {.pitch = ROUND_UP(m->n_in, PANEL_K),
                       .rows = ROUND_UP(e->kind.n_p, PANEL_M),
                       .n_slices = w->n_slices};
    for (u32 i = 0; i < m->n; i++)
        p.w_rows += ROUND_UP(e->p->net->weights[m->m[i].w].n_out, PANEL_ROUND);
    u64 slice = (u64)p.w_rows * p.pitch * 2;
    p.at_once = p.n_slices;
    if (m->n_used) {
        p.at_once = (u32)MIN(p.n_slices, MAX(1, MAX_WEIGHTS / slice));
        p.places_n = (p.n_slices + 1 + (u64)e->kind.n_p * m->n_used) * sizeof(u32);
        p.places_n = (p.places_n + 255) / 256 * 256;
    }
    p.x_n = (u64)p.rows * p.pitch * 2 * x_slices(m);
    p.w_n = slice * p.at_once + PANEL_N * (u64)p.pitch * 2; /* the last group reads beyond */
    return p;
}

static void bind_places(struct emit *e, const struct product *m, const struct panels *p, bool write)
{
    if (m->n_used)
        emit_scratch(e, 0, p->places_n, write);
    else
        emit_step(e, STEP_HEAD);
}

static void emit_panel_places(struct emit *e, const struct product *m, const struct panels *p)
{
    struct panel_places_args a = {
        .n_experts = p->n_slices, .n_used = m->n_used, .ids_pitch = emit_pitch(e, m->ids)};
    emit_launch(e, "k_panel_places", p->n_slices, 1, PANEL_THREADS);
    emit_step(e, STEP_HEAD);
    emit_in(e, m->ids);
    emit_scratch(e, 0, p->places_n, true);
    emit_args(e, &a, sizeof a);
}

static void emit_panel_rows(struct emit *e, const struct product *m, const struct panels *p)
{
    const struct op *norm = m->norm;
    struct panel_rows_args a = {.n = m->n_in,
                                .pitch = p->pitch,
                                .x_pitch = emit_pitch(e, m->x),
                                .stride = m->n_used ? m->n_in : m->x_stride,
                                .row_step = m->n_used ? x_slices(m) : 1,
                                .slice_step = m->n_used ? 1 : p->rows,
                                NORM_ARGS(norm)};
    emit_launch(e, "k_panel_rows", e->kind.n_p, x_slices(m), NORM_THREADS);
    emit_step(e, STEP_HEAD);
    emit_vector(e, norm ? norm->w[0] : NO_WEIGHT, 0);
    emit_vector(e, norm ? norm->w[1] : NO_WEIGHT, 0);
    emit_in(e, m->x);
    emit_scratch(e, p->places_n, p->x_n, true);
    emit_args(e, &a, sizeof a);
}

/* Slices [first, first + n) of matrix i, which begins at row `begin` of the panel. */
static void emit_panel_weights(struct emit *e, const struct product *m, const struct panels *p,
                               u32 i, u32 begin, u32 first, u32 n)
{
    struct planes w = emit_planes(e, m->m[i].w);
    char name[32];
    struct panel_weights_args a = {.n_in = m->n_in,
                                   .n_out = e->p->net->weights[m->m[i].w].n_out,
                                   .pitch = p->pitch,
                                   .q_row = w.q_row,
                                   .s_row = w.s_row,
                                   .first = first,
                                   .begin = m->m[0].glu ? 0 : begin,
                                   .slice = p->w_rows,
                                   .turn = m->m[0].glu ? i + 1 : 0,
                                   .experts = m->n_used > 0};
    snprintf(name, sizeof name, "k_panel_weights_%s", encoding_info[w.enc].name);
    emit_launch(e, name, 1, (a.n_out + PANEL_WEIGHT_ROWS - 1) / PANEL_WEIGHT_ROWS, PANEL_THREADS);
    emit_depth(e, n);
    emit_weight(e, m->m[i].w);
    bind_places(e, m, p, false);
    emit_scratch(e, p->places_n + p->x_n, p->w_n, true);
    emit_args(e, &a, sizeof a);
}

/* How deep a group reads ahead. Two groups on a unit hide each other's ends and beginnings (a tenth
 * of the time at 4096 columns); one that is alone must hide the memory's latency by itself. */
static u32 stages_of(u32 tiles)
{
    enum { UNITS = 132 }; /* of an H200 */
    u32 alone = (tiles + UNITS - 1) / UNITS, shared = 2 * ((tiles + 2 * UNITS - 1) / (2 * UNITS));
    return 11 * alone <= 10 * shared ? PANEL_MANY : PANEL_FEW;
}

static void launch_panels(struct emit *e, const struct product *m, const struct panels *p, u32 n)
{
    u32 gx = p->rows / PANEL_M, gy = (p->w_rows + PANEL_N - 1) / PANEL_N;
    char name[32];
    if (e->kind.caps.native) {
        u32 stages = m->n_used ? PANEL_FEW : stages_of(gx * gy * n);
        snprintf(name, sizeof name, "k_panels_mma_%u", stages);
        emit_launch(e, name, gx, gy, PANEL_THREADS);
        emit_walk(e, 0, PANEL_BYTES(stages));
    } else if (e->kind.caps.tensor && !m->n_used) {
        emit_launch(e, "k_panels_tensor", (e->kind.n_p + TENSOR_ROWS - 1) / TENSOR_ROWS,
                    (p->w_rows + TENSOR_OUTS - 1) / TENSOR_OUTS, TENSOR_THREADS);
    } else {
        emit_launch(e, "k_panels", (e->kind.n_p + PANEL_TILE - 1) / PANEL_TILE,
                    (p->w_rows + PANEL_TILE - 1) / PANEL_TILE, PANEL_TILE_THREADS);
    }
    emit_depth(e, n);
}

/* Slices [first, first + n). */
static void emit_panel_products(struct emit *e, const struct product *m, const struct panels *p,
                                u32 first, u32 n)
{
    struct panels_args a = {.pitch = p->pitch,
                            .x_slice = m->n_used ? 0 : p->rows,
                            .w_slice = p->w_rows,
                            .y_slice = m->y_stride,
                            .glu = m->m[0].glu != NULL,
                            .first = first,
                            .n_experts = p->n_slices,
                            .n_used = m->n_used,
                            .per_slot = m->per_slot};
    u32 begin = 0;
    for (u32 i = 0; i < m->n; i++) {
        a.part[i] = (struct panel_part){.begin = begin,
                                        .n_out = e->p->net->weights[m->m[i].w].n_out,
                                        .y_pitch = emit_pitch(e, m->m[i].y),
                                        .has_bias = m->m[i].bias != NO_WEIGHT};
        begin += ROUND_UP(a.part[i].n_out, PANEL_ROUND);
    }
    for (u32 i = 0; i < m->n_add; i++) a.add_pitch[i] = emit_pitch(e, m->add[i]);
    launch_panels(e, m, p, n);
    emit_step(e, STEP_HEAD);
    emit_scratch(e, p->places_n, p->x_n, false);
    emit_scratch(e, p->places_n + p->x_n, p->w_n, false);
    bind_places(e, m, p, false);
    for (u32 i = 0; i < 2; i++) emit_in(e, i < m->n_add ? m->add[i] : m->x);
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        emit_vector(e, i < m->n ? m->m[i].bias : NO_WEIGHT, 0);
        emit_out(e, m->m[i < m->n ? i : 0].y);
    }
    emit_args(e, &a, sizeof a);
}

int emit_panels(struct emit *e, const struct product *m)
{
    struct panels p = panels_of(e, m);
    if (m->n_used) emit_panel_places(e, m, &p);
    emit_panel_rows(e, m, &p);
    for (u32 first = 0; first < p.n_slices; first += p.at_once) {
        u32 n = MIN(p.at_once, p.n_slices - first), begin = 0;
        for (u32 i = 0; i < m->n; i++) {
            emit_panel_weights(e, m, &p, i, begin, first, n);
            begin += ROUND_UP(e->p->net->weights[m->m[i].w].n_out, PANEL_ROUND);
        }
        emit_panel_products(e, m, &p, first, n);
    }
    return e->rc;
}

bool emit_panels_are_all(struct emit *e, const struct product *m)
{
    for (u32 i = 0; i < m->n; i++)
        if (!emit_has_panels(e, m->x, m->m[i].w)) return false;
    emit_panels(e, m);
    if (!e->kind.n_d) return true;
    emit_only_d(e);
    return false;
}
