/* What programs that draft prefill. A smaller model has to compute every sequence itself, in steps
 * that rest between layers where decode waits for them (reading.h). The MTP block computes rows of
 * prompts that the target has prefilled so: one layer, which takes what a slice of that did. */
#include "serve/speculate_internal.h"

static u32 *table_of(const struct spec *s, u32 slot)
{
    struct step *step = s->env.program.queue->step;
    return step->tables + (size_t)slot * step->table_len;
}

static bool has_state(const struct spec *s)
{
    return s->env.program.queue->p->net->n_states;
}

bool spec_make_room(struct spec *s, struct step *step, const struct spec_seq *q, u32 n)
{
    const struct spec_model *m = &s->env.program;
    if (m->queue->p->net->n_kv && !kv_cover(m->kv, table_of(s, q->slot), &s->n_blocks[q->slot], n))
        return false;
    if (has_state(s) && !s->n_read[q->slot]) CHECK(step_edit(step, EDIT_ZERO_STATE, q->slot, 0));
    return true;
}

struct row spec_row(const struct spec *s, const struct spec_seq *q, u32 i, enum row_class cls)
{
    i32 last = (i32)s->env.program.queue->p->net->n_vocab - 1;
    return (struct row){MIN(q->tokens[i], last), q->slot, i, cls};
}

/* ---- a smaller model ---- */

/* What it lacks of sequences, where that is too much to be read with a guess: all but the last
 * token, behind which the guess will stand. */
static void fill(struct spec *s, struct step *step, const struct spec_seq *seqs, u32 n, u32 most)
{
    step_reset(step);
    for (u32 i = 0; i < n; i++) {
        const struct spec_seq *q = &seqs[i];
        u32 at = s->n_read[q->slot], end = MIN(q->n - 1, at + most - step->n_rows);
        if (s->gone[q->slot] || q->n - at <= SPEC_LAG || at == end ||
            !spec_make_room(s, step, q, q->n))
            continue;
        for (; at < end; at++) CHECK(step_add(step, spec_row(s, q, at, ROW_P), false));
    }
}

/* A step of its has been run. */
static void take_in(struct spec *s, const struct step *step)
{
    for (u32 t = 0; t < step->n_rows; t++) s->n_read[step->rows[t].slot] = step->rows[t].pos + 1;
}

/* A step at rest is given up, if it is one for that slot. What it left of the others' is written
 * over when they are read again; states are not. */
static void give_up(struct spec *s, u32 slot)
{
    if (!s->reading.at) return;
    const struct step *step = s->reading.queue->step;
    u32 t = 0;
    while (t < step->n_rows && step->rows[t].slot != slot) t++;
    if (t == step->n_rows) return;
    reading_stop(&s->reading);
    for (t = 0; has_state(s) && t < step->n_rows; t++) s->n_read[step->rows[t].slot] = 0;
}

void spec_model_rewind(struct spec *s, u32 slot, u32 n)
{
    give_up(s, slot);
    if (s->n_read[slot] > n) s->n_read[slot] = has_state(s) ? 0 : n; /* states don't go back */
    if (!s->n_read[slot]) kv_release(s->env.program.kv, table_of(s, slot), &s->n_blocks[slot]);
}

/* ---- beside answers ---- */

int spec_model_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
                    struct err *err)
{
    struct step *step = s->reading.queue->step;
    bool done;
    if (!s->env.program.reader) seconds = 0; /* a draft would not leave it as it rests */
    if (!s->reading.at)
        fill(s, step, seqs, n, seconds > 0 ? reading_rows(&s->reading) : step->limits.max_rows);
    *did = step->n_rows;
    if (!*did) return 0;
    int rc = reading_go_on(&s->reading, seconds, &done, err);
    if (!rc && done) take_in(s, step);
    return rc;
}

int spec_model_prepare(struct spec *s, double seconds, struct err *err)
{
    return s->env.program.reader ? reading_prepare(&s->reading, seconds, err) : 0;
}

int spec_mtp_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
                  struct err *err)
{
    (void)seconds;
    bool more;
    *did = s->kept[1].n;
    if (!*did) return 0;
    spec_take_kept(s, &s->kept[1], seqs, n);
    return spec_run_round(s, &more, err);
}
