/* Launches of kernels/unstaged.gpu. */
#include <stdio.h>

#include "gpu/emit.h"

bool emit_is_unstaged(const struct emit *e, struct operand x)
{
    return e->kind.unstaged && emit_n_rows(e, x) == 1;
}

/* Threads of a group, weight rows of a simdgroup and quads of them at once. What is usual is what
 * others found best on Apple's GPUs: it was not measured. */
static struct layout layout_of(struct emit *e, const struct product *m, enum encoding enc,
                               u32 n_out)
{
    enum { THREADS = 128, MANY = 4096 }; /* outputs from which on there are groups enough */
    u32 outputs = m->glu || n_out >= MANY ? 4 : 2;
    struct choice c = {.site = {.n_out = n_out,
                                .n_in = m->n_in,
                                .n_slices = m->n_slices,
                                .normed = m->norm != NULL},
                       .usual = {{THREADS, 0, 0, outputs, outputs == 2 ? 2 : 1}},
                       .least = {{64, 0, 0, m->glu ? 2 : 1, 1}},
                       .most = {{UNSTAGED_THREADS, 0, 0, 8, 4}}};
    snprintf(c.site.kernel, sizeof c.site.kernel, "k_unstaged_%s%s", m->glu ? "glu_" : "",
             encoding_info[enc].name);
    return emit_layout(e, c);
}

void emit_unstaged(struct emit *e, const struct product *m, const u32 *pick, u32 n)
{
    const struct weight *weights = e->p->net->weights;
    struct planes w;
    u32 n_out = 0, n_parts = m->glu ? 1 : n;
    planes_plan(&w, &weights[m->w[pick[0]]]);
    bool int8 = encoding_is_int8(w.enc), waits = int8 || m->norm;
    struct unstaged_args a = {.n_in = m->n_in,
                              .rows = emit_rows_of(e, m->x),
                              .q_row = w.q_row,
                              .s_row = w.s_row,
                              .x_slice = waits ? m->n_in : m->x_stride,
                              .y_slice = m->y_stride,
                              .glu = m->glu,
                              .adds = m->n_add};
    for (u32 i = 0; i < n_parts; i++) n_out += weights[m->w[pick[i]]].n_out;
    struct layout l = layout_of(e, m, w.enc, n_out);
    u32 outputs = l.v[LAYOUT_OUTPUTS], per = m->glu ? outputs / 2 : outputs;
    a.threads = l.v[LAYOUT_THREADS];
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        a.part[i] = (struct unstaged_part){.first = UINT32_MAX, .f = COLUMNS_NONE};
        if (i >= n) continue;
        a.part[i].n_out = weights[m->w[pick[i]]].n_out;
        a.part[i].has_bias = m->bias[pick[i]] != NO_WEIGHT;
        if (i >= n_parts) continue;
        a.part[i].first = a.n_simds;
        a.n_simds += (a.part[i].n_out + per - 1) / per;
    }
    char name[32];
    snprintf(name, sizeof name, "k_unstaged_%s_o%u_q%u", encoding_info[w.enc].name, outputs,
             MIN(l.v[LAYOUT_QUADS], UNSTAGED_QUADS / outputs));
    emit_launch(e, name, (a.n_simds * 32 + a.threads - 1) / a.threads, 1, a.threads);
    emit_depth(e, m->n_slices);
    emit_step(e, STEP_HEAD);
    if (waits) {
        u64 bytes = emit_waiting_bytes(e, m, int8);
        emit_scratch(e, 0, bytes, false);
        emit_scratch(e, bytes, int8 ? bytes / ACT_COLUMNS * sizeof(float) : 0, false);
    } else {
        emit_in(e, m->x);
        emit_step(e, STEP_HEAD);
    }
    for (u32 i = 0; i < 2; i++) emit_in(e, i < m->n_add ? m->add[i] : m->x);
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        u32 j = pick[i < n ? i : 0];
        emit_weight(e, m->w[j]);
        emit_vector(e, m->bias[j], 0);
        emit_out(e, m->y[m->glu ? 0 : j]);
    }
    emit_args(e, &a, sizeof a);
}
