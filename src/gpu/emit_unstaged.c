/* Launches of kernels/unstaged.gpu, unstaged_rows.gpu and unstaged_sum.gpu. */
#include <stdio.h>

#include "gpu/emit.h"
#include "gpu/rules.h"

bool emit_is_unstaged(const struct emit *e, struct operand x)
{
    return e->kind.caps.unstaged && emit_n_rows(e, x) == 1;
}

/* Threads of a group, weight rows of a simdgroup and quads of them at once. */
static struct layout layout_of(struct emit *e, const struct product *m, enum encoding enc,
                               u32 n_out, u32 n_slices)
{
    struct site site = {
        .n_out = n_out, .n_in = m->n_in, .n_slices = n_slices, .normed = m->norm != NULL};
    snprintf(site.kernel, sizeof site.kernel, "k_unstaged_%s%s", m->m[0].glu ? "glu_" : "",
             encoding_info[enc].name);
    return emit_shape(e, m->m[0].glu ? SHAPE_UNSTAGED_GLU : SHAPE_UNSTAGED, enc, &site, 1, 0);
}

static void bind_input(struct emit *e, const struct product *m, bool int8)
{
    if (m->waiting) {
        emit_bind_waiting(e, m->waiting, false);
    } else if (int8 || m->norm) {
        u64 bytes = emit_waiting_bytes(e, m, int8);
        emit_scratch(e, 0, bytes, false);
        emit_scratch(e, bytes, int8 ? bytes / ACT_COLUMNS * sizeof(float) : 0, false);
    } else {
        emit_in(e, m->x);
        emit_in(e, no_operand);
    }
}

static struct unstaged_part part_of(const struct emit *e, const struct product *m, u32 i)
{
    const struct matrix *part = &m->m[i];
    struct unstaged_part p = {.first = UINT32_MAX,
                              .n_out = e->p->net->weights[part->w].n_out,
                              .f = part->act ? emit_act(part->act->p.act.kind) : COLUMNS_NONE,
                              .has_bias = part->bias != NO_WEIGHT};
    if (m->waiting && (!m->m[0].glu || !i)) {
        p.x = m->waiting->in[part->input].at;
        p.scale = m->waiting->in[part->input].scale;
    }
    return p;
}

void emit_unstaged(struct emit *e, const struct product *m)
{
    struct planes w = emit_planes(e, m->m[0].w);
    bool glu = m->m[0].glu, int8 = encoding_is_int8(w.enc), waits = int8 || m->norm;
    u32 n_out = 0, n_parts = glu ? 1 : m->n, n_slices = m->n_used ? m->n_used : m->n_slices;
    struct unstaged_args a = {.n_in = m->n_in,
                              .rows = emit_rows_of(e, m->x),
                              .q_row = w.q_row,
                              .s_row = w.s_row,
                              .x_slice = !waits            ? m->x_stride
                                         : m->n_slices > 1 ? m->n_in
                                                           : 0,
                              .y_slice = m->y_stride,
                              .glu = glu,
                              .adds = m->n_add,
                              .experts = m->n_used > 0};
    for (u32 i = 0; i < n_parts; i++) n_out += e->p->net->weights[m->m[i].w].n_out;
    struct layout l = layout_of(e, m, w.enc, n_out, n_slices);
    u32 outputs = l.v[LAYOUT_OUTPUTS], per = glu ? outputs / 2 : outputs;
    a.threads = l.v[LAYOUT_THREADS];
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        a.part[i] = (struct unstaged_part){.first = UINT32_MAX, .f = COLUMNS_NONE};
        if (i < m->n) a.part[i] = part_of(e, m, i);
        if (i >= n_parts) continue;
        a.part[i].first = a.n_simds;
        a.n_simds += (a.part[i].n_out + per - 1) / per;
    }
    char name[32];
    snprintf(name, sizeof name, "k_unstaged_%s_o%u_q%u", encoding_info[w.enc].name, outputs,
             MIN(l.v[LAYOUT_QUADS], UNSTAGED_QUADS / outputs));
    emit_launch(e, name, (a.n_simds * 32 + a.threads - 1) / a.threads, 1, a.threads);
    emit_depth(e, n_slices);
    emit_step(e, STEP_HEAD);
    bind_input(e, m, int8);
    for (u32 i = 0; i < 2; i++) emit_in(e, i < m->n_add ? m->add[i] : m->x);
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        const struct matrix *part = &m->m[i < m->n ? i : 0];
        emit_weight(e, part->w);
        emit_vector(e, part->bias, 0);
        emit_out(e, part->y);
    }
    emit_in(e, m->n_used ? m->ids : no_operand);
    emit_args(e, &a, sizeof a);
}

/* ---- inputs ---- */

u32 waiting_add(struct waiting *w, struct waiting_input in)
{
    for (u32 i = 0; i < w->n; i++)
        if (operand_same(w->in[i].x, in.x) && operand_same(w->in[i].x2, in.x2) &&
            w->in[i].m == in.m && w->in[i].int8 == in.int8)
            return i;
    if (w->n == WAITING_MAX) return UINT32_MAX;
    in.at = (u32)(w->bytes / 16);
    in.scale = (u32)w->n_scales;
    w->bytes += ROUND_UP((u64)in.x.width * (in.int8 ? 1 : sizeof(float)), 16);
    if (in.int8) w->n_scales += (in.x.width + ACT_COLUMNS - 1) / ACT_COLUMNS;
    w->in[w->n] = in;
    return w->n++;
}

void emit_bind_waiting(struct emit *e, const struct waiting *w, bool write)
{
    emit_scratch(e, 0, w->bytes, write);
    emit_scratch(e, ROUND_UP(w->bytes, 256), w->n_scales * sizeof(float), write);
}

void emit_waiting_rows(struct emit *e, const struct waiting *w)
{
    const struct op *norm = w->norm;
    struct waiting_args a = {.rows = emit_rows_of(e, w->in[0].x),
                             .norm = norm ? norm->p.norm.kind : NORM_KIND_NONE,
                             .norm_w = norm ? emit_unit(e, norm->w[0]) : (u32)MIX_NOTHING,
                             .norm_b = norm ? emit_unit(e, norm->w[1]) : (u32)MIX_NOTHING,
                             .eps = norm ? norm->p.norm.eps : 0};
    u32 shares = 1;
    bool vectors = norm;
    for (u32 i = 0; i < w->n; i++) {
        vectors |= w->in[i].m != MIX_NOTHING;
        if (!norm) shares = MAX(shares, (w->in[i].x.width + QUANTISE_SHARE - 1) / QUANTISE_SHARE);
    }
    emit_launch(e, "k_waiting_rows", w->n, shares, NORM_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    if (vectors)
        emit_chunk(e, w->chunk);
    else
        emit_step(e, STEP_HEAD);
    emit_all(e, false);
    emit_shift(e, w->shift, norm);
    emit_bind_waiting(e, w, true);
    for (u32 i = 0; i < w->n; i++) {
        const struct waiting_input *in = &w->in[i];
        a.row[i] = (struct waiting_row){
            .n = in->x.width,
            .x = emit_touch(e, in->x, false),
            .x2 = in->m == MIX_NOTHING || norm ? 0 : emit_touch(e, in->x2, false),
            .m = in->m,
            .at = in->at,
            .scale = in->int8 ? in->scale : (u32)MIX_NOTHING,
        };
    }
    emit_args(e, &a, sizeof a);
}

/* ---- experts ---- */

static struct unstaged_plane plane_of(const struct emit *e, u32 id, const struct waiting_input *in)
{
    struct planes p = emit_planes(e, id);
    return (struct unstaged_plane){.n_in = e->p->net->weights[id].n_in,
                                   .q_row = p.q_row,
                                   .s_row = p.s_row,
                                   .x = in->int8 ? in->at : 0,
                                   .scale = in->int8 ? in->scale : 0};
}

void emit_unstaged_sum(struct emit *e, const struct group *g, const struct operand *residual)
{
    const struct op *down = g->role[SUM_DOWN], *added = g->role[SUM_ADDED];
    u32 n_in = down->p.experts.n_in, n_out = down->p.experts.n_out, n_used = down->p.experts.n_used;
    enum encoding enc = encoding_of(e->p->net->weights[down->w[0]].type);
    struct waiting_input in = {.x = down->in[0], .m = MIX_NOTHING, .int8 = encoding_is_int8(enc)};
    struct waiting w = {0};
    u32 of_x = waiting_add(&w, in), of_added = of_x;
    in.x = added ? added->in[0] : in.x;
    of_added = waiting_add(&w, in);
    if (in.int8) emit_waiting_rows(e, &w);
    struct unstaged_sum_args a = {.expert = plane_of(e, down->w[0], &w.in[of_x]),
                                  .n_out = n_out,
                                  .n_used = n_used,
                                  .rows = emit_rows_of(e, down->in[0]),
                                  .x_slice = n_in,
                                  .added_bias = added && added->w[1] != NO_WEIGHT,
                                  .adds = residual != NULL};
    if (added) a.added = plane_of(e, added->w[0], &w.in[of_added]);
    struct site site = {.n_out = n_out, .n_in = n_in, .n_slices = n_used};
    char name[sizeof site.kernel + 10];
    snprintf(site.kernel, sizeof site.kernel, "k_unstaged_sum_%s", encoding_info[enc].name);
    struct layout l = emit_shape(e, SHAPE_UNSTAGED_SUM, enc, &site, 1, 0);
    u32 per_group = l.v[LAYOUT_THREADS] / 32 * l.v[LAYOUT_OUTPUTS];
    a.threads = l.v[LAYOUT_THREADS];
    snprintf(name, sizeof name, "%s_o%u", site.kernel, l.v[LAYOUT_OUTPUTS]);
    emit_launch(e, name, (n_out + per_group - 1) / per_group, 1, a.threads);
    emit_step(e, STEP_HEAD);
    emit_in(e, down->in[1]);
    emit_in(e, g->role[SUM_COMBINE]->in[1]);
    if (in.int8) {
        emit_scratch(e, 0, w.bytes, false);
        emit_bind_waiting(e, &w, false);
    } else {
        emit_in(e, down->in[0]);
        emit_in(e, in.x);
        emit_step(e, STEP_HEAD);
    }
    emit_in(e, residual ? *residual : down->in[0]);
    emit_weight(e, down->w[0]);
    emit_weight(e, added ? added->w[0] : down->w[0]);
    emit_vector(e, added ? added->w[1] : NO_WEIGHT, 0);
    emit_out(e, group_last(g)->out[0]);
    emit_args(e, &a, sizeof a);
}
