#include "core/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { TURN = 256 }; /* positions between two of the far table of angles */

u32 step_mask_words(const struct net *net)
{
    return net->n_vocab / 32 + 1;
}

/* cos and sin of positions below TURN, then of its multiples, [2][half] each. */
static double *make_turns(const struct rope_table *rope, u32 max_pos)
{
    size_t half = rope->n_rot / 2, n = TURN + max_pos / TURN + 1;
    double *turns = calloc(n * 2 * half + 1, sizeof *turns), *at = turns;
    const double *freq = rope_freq(rope, max_pos);
    for (size_t i = 0; turns && i < n; i++, at += 2 * half) {
        double pos = (double)(i < TURN ? i : (i - TURN) * TURN);
        for (size_t j = 0; j < half; j++) num_sincos(pos * freq[j], &at[half + j], &at[j]);
    }
    return turns;
}

/* beside: whose tables and angles are its own too; NULL: it has some for itself. */
static int open_with(struct step **out, const struct net *net, const struct exec_limits *limits,
                     const struct step *beside, struct err *err)
{
    struct step *s = *out = calloc(1, sizeof *s);
    if (!s) return err_nomem(err, "a step");
    size_t rows = limits->max_rows, angles = step_rope_at(net, NET_ROPES, limits->max_rows);
    bool turns = true;
    s->net = net;
    s->limits = *limits;
    s->table_len = limits->max_pos / limits->block_tokens + 1;
    s->rows = calloc(rows, sizeof *s->rows);
    s->out_rows = calloc(limits->max_out, sizeof *s->out_rows);
    s->edits = calloc(rows + limits->n_slots, sizeof *s->edits);
    s->is_beside = beside != NULL;
    s->tables =
        beside ? beside->tables : calloc((size_t)limits->n_slots * s->table_len, sizeof *s->tables);
    s->prev = calloc(rows, sizeof *s->prev);
    s->last = calloc(limits->n_slots, sizeof *s->last);
    s->cos = calloc(angles + 1, sizeof *s->cos);
    s->sin = calloc(angles + 1, sizeof *s->sin);
    for (u32 i = 0; i < NET_ROPES; i++) {
        s->turns[i] = beside ? beside->turns[i] : make_turns(&net->rope[i], limits->max_pos);
        turns &= s->turns[i] != NULL;
    }
    s->sample = calloc(limits->max_out, sizeof *s->sample);
    s->sample_edits = calloc((size_t)limits->max_out * SAMPLE_MAX_EDITS, sizeof *s->sample_edits);
    s->masks = calloc((size_t)limits->max_out * step_mask_words(net), sizeof *s->masks);
    if (!s->rows || !s->out_rows || !s->edits || !s->tables || !s->prev || !s->last || !s->cos ||
        !s->sin || !turns || !s->sample || !s->sample_edits || !s->masks) {
        step_close(s);
        *out = NULL;
        return err_nomem(err, "a step");
    }
    step_reset(s);
    return 0;
}

int step_open(struct step **out, const struct net *net, const struct exec_limits *limits,
              struct err *err)
{
    return open_with(out, net, limits, NULL, err);
}

int step_open_beside(struct step **out, const struct step *other, struct err *err)
{
    return open_with(out, other->net, &other->limits, other, err);
}

void step_close(struct step *s)
{
    if (!s) return;
    free(s->rows);
    free(s->out_rows);
    free(s->edits);
    if (!s->is_beside) free(s->tables);
    for (u32 i = 0; i < NET_ROPES && !s->is_beside; i++) free(s->turns[i]);
    free(s->prev);
    free(s->last);
    free(s->cos);
    free(s->sin);
    free(s->sample);
    free(s->sample_edits);
    free(s->masks);
    free(s);
}

void step_reset(struct step *s)
{
    s->n_rows = s->n_out = s->n_edits = s->n_sample_edits = 0;
    s->hidden = NULL;
    s->group_begin = 0;
    s->group_end = UINT32_MAX;
}

bool step_add(struct step *s, struct row row, bool want_logits)
{
    CHECK(row.slot < s->limits.n_slots && row.pos < s->limits.max_pos);
    if (s->n_rows == s->limits.max_rows || (want_logits && s->n_out == s->limits.max_out))
        return false;
    if (want_logits) {
        s->sample[s->n_out] = (struct sample_row){0};
        s->out_rows[s->n_out++] = s->n_rows;
    }
    s->rows[s->n_rows++] = row;
    return true;
}

bool step_edit(struct step *s, enum edit_kind kind, u32 dst, u32 src)
{
    if (s->n_edits == s->limits.max_rows + s->limits.n_slots) return false;
    s->edits[s->n_edits++] = (struct step_edit){kind, dst, src};
    return true;
}

/* By the sums of angles: a cosine for each position and pair took longer than the GPU's work. */
static void fill_angles(const struct rope_table *r, const double *turns, u32 pos, float *cosine,
                        float *sine)
{
    size_t half = r->n_rot / 2;
    const double *near = turns + pos % TURN * 2 * half;
    const double *far = turns + (TURN + pos / TURN) * 2 * half;
    double scale = r->mscale;
    if (r->grow != 0)
        scale *= 1 + r->grow * log1p((double)(((u64)pos + r->grow_from) / r->grow_every));
    for (size_t i = 0; i < half; i++) {
        double c = near[i], sn = near[half + i], far_c = far[i], far_s = far[half + i];
        cosine[i] = (float)((far_c * c - far_s * sn) * scale);
        sine[i] = (float)((far_s * c + far_c * sn) * scale);
    }
}

void step_prepare(struct step *s)
{
    const struct rope_table *rope = s->net->rope;
    for (u32 i = 0; i < s->limits.n_slots; i++) s->last[i] = -1;
    for (u32 t = 0; t < s->n_rows; t++) {
        const struct row *r = &s->rows[t];
        s->prev[t] = s->last[r->slot];
        s->last[r->slot] = (i32)t;
        CHECK(s->prev[t] < 0 || s->rows[s->prev[t]].pos + 1 == r->pos);
        for (u32 i = 0; i < NET_ROPES; i++) {
            if (!rope[i].n_rot) continue;
            size_t at = step_rope_at(s->net, i, s->limits.max_rows) + t * (rope[i].n_rot / 2);
            fill_angles(&rope[i], s->turns[i], r->pos, s->cos + at, s->sin + at);
        }
    }
}
