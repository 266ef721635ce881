/* Products that don't read each other, as launches: one row's all at once, from the norm (and in
 * RWKV-7 the shift) before them on; their inputs first where groups stage nothing. */
#include <stdio.h>
#include <string.h>

#include "gpu/emit_layers.h"

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

/* Can k_mix do matrix i, or k_waiting_rows make its input, behind the norm and the shift if there
 * are any? */
static bool fits(const struct emit *e, const struct product *m, u32 i)
{
    const struct matrix *a = &m->m[i], *up = a->glu ? a + 1 : NULL;
    const struct op *lerp = a->lerp, *norm = m->norm;
    u32 n = e->p->net->weights[a->w].n_in, chunk = e->places[a->w].chunk;
    u32 room = is_float(enc_of(e, a->w)) ? MATMUL_MAX_NORM_F32 : MATMUL_MAX_IN;
    if ((n > room && !e->kind.caps.unstaged) ||
        (n | a->x.col | (lerp && !norm ? lerp->in[1].col : 0)) % 4)
        return false;
    if (!is_beside(e, a->bias, chunk) || (lerp && !is_beside(e, lerp->w[0], chunk))) return false;
    if (up && (a->bias != NO_WEIGHT || up->bias != NO_WEIGHT || e->places[up->w].chunk != chunk ||
               enc_of(e, up->w) != enc_of(e, a->w)))
        return false;
    if (m->shift && (!lerp || n != e->kept_width)) return false;
    return !norm || (norm->p.norm.group == n && norm->out[0].col % 4 == 0 &&
                     is_beside(e, norm->w[0], chunk) && is_beside(e, norm->w[1], chunk));
}

u32 emit_lerp_unit(const struct emit *e, const struct op *lerp)
{
    return emit_unit(e, lerp->w[0]) + lerp->p.lerp.row * emit_planes(e, lerp->w[0]).q_row;
}

static struct mix_part part_of(struct emit *e, const struct product *m, u32 i)
{
    const struct matrix *a = &m->m[i], *up = a->glu ? a + 1 : NULL;
    const struct op *lerp = a->lerp;
    struct planes p = emit_planes(e, a->w);
    return (struct mix_part){
        .enc = p.enc,
        .n_in = e->p->net->weights[a->w].n_in,
        .n_out = e->p->net->weights[a->w].n_out,
        .f = a->act ? emit_act(a->act->p.act.kind) : (u32)COLUMNS_NONE,
        .q = emit_unit(e, a->w),
        .s = emit_scales_unit(e, a->w),
        .s_row = p.s_row,
        .q2 = up ? emit_unit(e, up->w) : (u32)MIX_NOTHING,
        .s2 = up ? emit_scales_unit(e, up->w) : 0,
        .bias = emit_unit(e, a->bias),
        .m = lerp ? emit_lerp_unit(e, lerp) : (u32)MIX_NOTHING,
        .x = emit_touch(e, a->x, false),
        .x2 = lerp && !m->norm ? emit_touch(e, lerp->in[1], false) : 0,
        .y = emit_touch(e, a->y, true),
    };
}

/* Of weights for one output. */
static u32 output_bytes(const struct emit *e, const struct matrix *m)
{
    struct planes p = emit_planes(e, m->w);
    return (p.q_row * 16 + p.s_row) * (m->glu ? 2 : 1);
}

/* About equally many bytes for each simdgroup, but not more groups than `most` or parts: every
 * group makes its part's input anew. */
static void deal_groups(const struct emit *e, const struct product *m, const u32 *pick, u32 most,
                        struct mix_args *a)
{
    u32 least = UINT32_MAX, bytes = 0;
    for (u32 i = 0; i < a->n_parts; i++) least = MIN(least, output_bytes(e, &m->m[pick[i]]));
    do {
        bytes += least;
        a->n_groups = 0;
        for (u32 i = 0; i < a->n_parts; i++) {
            u32 rows = MAX(1, bytes / output_bytes(e, &m->m[pick[i]]));
            a->part[i].first = a->n_groups;
            a->n_groups += (a->part[i].n_out + MATVEC_SIMDS * rows - 1) / (MATVEC_SIMDS * rows);
        }
    } while (a->n_groups > MAX(most, a->n_parts));
}

/* Of a device that says nothing of itself; and groups for each where they don't walk. */
enum { USUAL_UNITS = 16, USUAL_GROUPS = 2 };

/* Products of one encoding, and of floats, and chunk as one launch. */
static void emit_mix(struct emit *e, const struct product *m, enum encoding enc, const u32 *pick,
                     u32 n)
{
    const struct weight *w = e->p->net->weights;
    const struct op *norm = m->norm;
    struct mix_args a = {.n_parts = n,
                         .norm = norm ? norm->p.norm.kind : NORM_KIND_NONE,
                         .norm_w = norm ? emit_unit(e, norm->w[0]) : (u32)MIX_NOTHING,
                         .norm_b = norm ? emit_unit(e, norm->w[1]) : (u32)MIX_NOTHING,
                         .eps = norm ? norm->p.norm.eps : 0};
    struct site site = {.n_in = w[m->m[pick[0]].w].n_in, .n_slices = n, .normed = norm != NULL};
    for (u32 i = 0; i < n; i++) site.n_out += w[m->m[pick[i]].w].n_out;
    snprintf(site.kernel, sizeof site.kernel, "k_mix_%s",
             is_float(enc) ? "floats" : encoding_info[enc].name);
    struct layout l = emit_shape(e, SHAPE_MIX, enc, &site, 1, 0);
    emit_launch(e, site.kernel, 1, 1, MATVEC_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_chunk(e, e->places[m->m[pick[0]].w].chunk);
    emit_all(e, false);
    emit_shift(e, m->shift, norm);
    for (u32 i = 0; i < n; i++) a.part[i] = part_of(e, m, pick[i]);
    u32 units = e->kind.caps.n_units ? e->kind.caps.n_units : USUAL_UNITS;
    u32 per_four = l.v[LAYOUT_GROUPS] ? l.v[LAYOUT_GROUPS] : 4 * USUAL_GROUPS;
    deal_groups(e, m, pick, units * per_four / 4, &a);
    u32 floats = QUEUE_BYTES(0, MATVEC_THREADS);
    emit_groups(e, emit_even(e, a.n_groups),
                MAX(QUEUE_BYTES(emit_scale_words(enc), MATVEC_THREADS), floats));
    emit_args(e, &a, sizeof a);
}

/* ---- devices that stage nothing ---- */

static bool plan_waiting(const struct emit *e, struct product *m, struct waiting *w)
{
    *w = (struct waiting){.norm = m->norm, .shift = m->shift, .chunk = UINT32_MAX};
    for (u32 i = 0; i < m->n; i++) {
        struct matrix *a = &m->m[i];
        const struct op *lerp = a->lerp;
        struct waiting_input in = {.x = a->x, .m = MIX_NOTHING, .int8 = !is_float(enc_of(e, a->w))};
        if (lerp) in.m = emit_lerp_unit(e, lerp);
        if (lerp) in.x2 = lerp->in[1];
        if (w->norm) in.x2 = a->x;
        u32 beside = e->places[a->w].chunk; /* where its vectors are */
        if ((lerp || w->norm) && w->chunk != UINT32_MAX && w->chunk != beside) return false;
        if (lerp || w->norm) w->chunk = beside;
        a->input = waiting_add(w, in);
        if (a->input == UINT32_MAX) return false;
        if (a->glu) i++;
    }
    return true;
}

/* The input of each product first, then products of one encoding and width together. */
static int emit_unstaged_mixes(struct emit *e, const struct group *g, struct product *m)
{
    bool done[MIX_MAX + 1] = {false};
    struct waiting w;
    if (!plan_waiting(e, m, &w)) return emit_each(e, g);
    emit_waiting_rows(e, &w);
    m->norm = NULL;
    m->x = w.in[0].x;
    for (u32 i = 0; i < m->n; i++) {
        const struct weight *weights = e->p->net->weights, *first = &weights[m->m[i].w];
        u32 pick[MATMUL_MAX] = {i, i + 1}, n = m->m[i].glu ? 2 : 0;
        if (done[i]) continue;
        for (u32 j = i; j < m->n && n < MATMUL_MAX && !m->m[i].glu; j++) {
            if (done[j] || m->m[j].glu || (j && m->m[j - 1].glu) ||
                weights[m->m[j].w].n_in != first->n_in ||
                enc_of(e, m->m[j].w) != enc_of(e, m->m[i].w))
                continue;
            pick[n++] = j;
            done[j] = true;
        }
        done[i + 1] |= m->m[i].glu != NULL;
        struct product part = product_part(m, pick, n);
        part.n_in = first->n_in;
        part.waiting = &w;
        emit_unstaged(e, &part);
    }
    return e->rc;
}

/* ---- one row or many ---- */

/* Can k_mix do it all? */
static bool all_fit(const struct emit *e, const struct product *m)
{
    if (e->rows > 1 || e->kind.n_p) return false;
    for (u32 i = 0; i < m->n; i += m->m[i].glu ? 2 : 1)
        if (!fits(e, m, i)) return false;
    return true;
}

bool emit_mixes_fit(const struct emit *e, const struct group *g)
{
    struct product m = product_of(g, NULL);
    return all_fit(e, &m);
}

static int emit_mixes(struct emit *e, const struct group *g, struct product *m)
{
    bool done[MIX_MAX] = {false};
    if (e->kind.caps.unstaged) return emit_unstaged_mixes(e, g, m);
    for (u32 i = 0; i < m->n; i += m->m[i].glu ? 2 : 1) {
        u32 pick[MIX_MAX], n = 0, chunk = e->places[m->m[i].w].chunk;
        if (done[i]) continue;
        enum encoding enc = enc_of(e, m->m[i].w);
        for (u32 j = i; j < m->n; j += m->m[j].glu ? 2 : 1) {
            enum encoding other = enc_of(e, m->m[j].w);
            if (done[j] || e->places[m->m[j].w].chunk != chunk) continue;
            if (is_float(enc)) enc = other;
            if (other != enc && !is_float(other)) continue;
            pick[n++] = j;
            done[j] = true;
        }
        emit_mix(e, m, enc, pick, n);
    }
    return e->rc;
}

int emit_matmuls(struct emit *e, const struct group *g)
{
    struct product m = product_of(g, NULL);
    return all_fit(e, &m) ? emit_mixes(e, g, &m) : emit_each(e, g);
}

int emit_norm_router(struct emit *e, const struct group *g)
{
    const struct op *glu = group_op(g, OP_GLU, 0);
    struct product m = product_of(g, NULL);
    if (all_fit(e, &m)) return emit_mixes(e, g, &m);
    emit_op(e, g->role[ROUTER_NORM]);
    emit_op(e, g->role[ROUTER_MATMUL]);
    if (!glu) return e->rc;
    m = product_part(&m, (const u32[]){m.m[0].glu ? 0 : 1, m.m[0].glu ? 1 : 2}, 2);
    m.x = m.norm->out[0]; /* which is there */
    m.norm = NULL;
    return emit_glu(e, g, m);
}
