/* Programs that guess: a smaller model, which reads along with all sequences in a cache of its own,
 * or the target's MTP block. Guesses are made in rounds, one for every sequence in each: a step
 * whose rows hold the last guess.
 *
 * The MTP block sees at position p the target's hidden state there and the token at p + 1, and
 * predicts the token at p + 2. Its cache is one more layer in the target's blocks. (The last entry
 * of a block that was found in the cache is that of another sequence, which followed it with
 * another token: that can make a guess worse, never an answer.) */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "serve/sampling.h"
#include "serve/speculate_internal.h"

/* Tokens that wait to be read until there are so many of them, while no guess is wanted. */
enum { READ_AT_ONCE = 32 };

int spec_draft_open(struct spec *s, struct err *err)
{
    const struct exec_limits *l = &s->env.draft.lane->step->limits;
    size_t n_hidden = (size_t)l->max_rows * s->env.target.lane->p->net->d_model;
    s->asked = calloc(l->max_out, sizeof *s->asked);
    s->ids = calloc(l->max_out, sizeof *s->ids);
    s->logprobs = calloc(l->max_out, sizeof *s->logprobs);
    bool ok = s->asked && s->ids && s->logprobs;
    if (s->env.is_mtp) {
        s->rows = calloc(l->max_rows, sizeof *s->rows);
        s->hidden = calloc(n_hidden, sizeof *s->hidden);
        s->imported = calloc(n_hidden, sizeof *s->imported);
        ok &= s->rows && s->hidden && s->imported;
    } else {
        s->n_read = calloc(s->env.n_slots, sizeof *s->n_read);
        s->n_blocks = calloc(s->env.n_slots, sizeof *s->n_blocks);
        ok &= s->n_read && s->n_blocks;
    }
    return ok ? 0 : err_nomem(err, "speculation");
}

void spec_draft_close(struct spec *s)
{
    for (u32 i = 0; s->n_read && s->n_blocks && i < s->env.n_slots; i++) spec_draft_rewind(s, i, 0);
    free(s->asked);
    free(s->ids);
    free(s->logprobs);
    free(s->rows);
    free(s->hidden);
    free(s->imported);
    free(s->n_read);
    free(s->n_blocks);
}

static u32 *table_of(const struct spec *s, u32 slot)
{
    struct step *step = s->env.draft.lane->step;
    return step->tables + (size_t)slot * step->table_len;
}

void spec_draft_rewind(struct spec *s, u32 slot, u32 n)
{
    if (s->n_read[slot] <= n) return;
    s->n_read[slot] = s->env.draft.lane->p->net->n_states ? 0 : n; /* states don't go back */
    if (!s->n_read[slot]) kv_release(s->env.draft.kv, table_of(s, slot), &s->n_blocks[slot]);
}

/* ---- rounds ---- */

/* Tokens that the smaller vocabulary of a draft model lacks; a row's edits ascend. */
static void drop_edits(struct step *step, struct sample_row *row)
{
    const struct sample_edit *edits = step->sample_edits + row->first_edit;
    while (row->n_edits && edits[row->n_edits - 1].id >= step->net->n_vocab) row->n_edits--;
}

/* A row behind which the next guess for a sequence will stand. */
static void ask(struct spec *s, struct spec_seq *q, struct row row)
{
    struct step *step = s->env.draft.lane->step;
    bool wanted = q->n_draft < q->most && step->n_out < step->limits.max_out;
    CHECK(step_add(step, row, wanted));
    if (!wanted) return;
    u32 i = step->n_out - 1;
    sampling_fill(step, i, q->sampling, q->tokens, q->n + q->n_draft);
    drop_edits(step, &step->sample[i]);
    step->sample[i].ahead = s->env.is_mtp;
    step->sample[i].n_logprobs = 1;
    s->asked[i] = q;
}

/* A guess, the last one when it is too bold. Rejection wants it then too: a guess that is there or
 * not depending on what it is would not be one drawn from q. */
static void add_guess(const struct spec *s, struct spec_seq *q, i32 id, float logprob)
{
    u32 kind = (u32)(num_exp(MIN(logprob, 0)) * (SPEC_KINDS - 1) + 0.5f);
    bool known = id >= 0 && (u32)id < s->env.target.lane->p->net->n_vocab,
         kept = spec_keep(q, kind);
    if (known && (kept || s->env.rejects)) q->tokens[q->n + q->n_draft++] = id;
    if (!known || !kept) q->most = q->n_draft;
}

/* Runs the step that was filled; false in *more: nobody asked. */
static int run_round(struct spec *s, bool *more, struct err *err)
{
    const struct spec_model *m = &s->env.draft;
    const struct operand logprobs = {m->lane->p->logprobs, 0, 1};
    u32 n = m->lane->step->n_out;
    *more = n > 0;
    s->n_guesses += n;
    if (!m->lane->step->n_rows) return 0;
    m->lane->step->hidden = s->imported;
    int rc = lane_run(m->lane, err);
    if (!rc) rc = lane_ids(m->lane, n, s->ids, err);
    if (!rc && n) rc = lane_read(m->lane, logprobs, 0, n, s->logprobs, err);
    for (u32 i = 0; !rc && i < n; i++) {
        struct spec_seq *q = s->asked[i];
        if (s->odds) rc = spec_odds(s, m, i, spec_odds_of(s, q->slot, q->n_draft), err);
        if (!rc) add_guess(s, q, s->ids[i], s->logprobs[i]);
    }
    return rc;
}

/* ---- a smaller model ---- */

/* What it has not read of the sequences, as much as a step takes. */
static void read_along(struct spec *s, struct spec_seq *seqs, u32 n)
{
    const struct spec_model *m = &s->env.draft;
    struct step *step = m->lane->step;
    for (u32 i = 0; i < n; i++) {
        struct spec_seq *q = &seqs[i];
        u32 *n_read = &s->n_read[q->slot], left = q->n - *n_read;
        if (!q->most && left < READ_AT_ONCE) continue;
        u32 n_rows = MIN(left, step->limits.max_rows - step->n_rows);
        if (m->lane->p->net->n_kv &&
            !kv_cover(m->kv, table_of(s, q->slot), &s->n_blocks[q->slot], (u64)q->n + q->most)) {
            q->most = 0;
            continue;
        }
        if (m->lane->p->net->n_states && !*n_read)
            CHECK(step_edit(step, EDIT_ZERO_STATE, q->slot, 0));
        enum row_class cls = left > SPEC_MAX + 1 ? ROW_P : ROW_D;
        for (u32 j = 0; j < n_rows; j++, ++*n_read) {
            i32 token = MIN(q->tokens[*n_read], (i32)m->lane->p->net->n_vocab - 1);
            struct row row = {token, q->slot, *n_read, cls};
            if (*n_read + 1 == q->n)
                ask(s, q, row);
            else
                CHECK(step_add(step, row, false));
        }
    }
}

static int draft_by_model(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    const struct spec_model *m = &s->env.draft;
    bool recurrent = m->lane->p->net->n_states, more;
    step_reset(m->lane->step);
    read_along(s, seqs, n);
    int rc = run_round(s, &more, err);
    for (u32 round = 1; !rc && more && round < SPEC_MAX; round++) {
        step_reset(m->lane->step);
        for (u32 i = 0; i < n; i++) {
            struct spec_seq *q = &seqs[i];
            u32 slot = recurrent ? m->first_spare + q->slot : q->slot, pos = q->n + round - 1;
            if (q->n_draft != round || round >= q->most) continue;
            if (recurrent && round == 1)
                CHECK(step_edit(m->lane->step, EDIT_COPY_STATE, slot, q->slot));
            ask(s, q, (struct row){q->tokens[pos], slot, pos, ROW_D});
        }
        rc = run_round(s, &more, err);
    }
    return rc;
}

/* ---- the MTP block ---- */

int spec_follow(struct spec *s, struct err *err)
{
    if (!s || !s->env.is_mtp) return 0;
    const struct spec_model *m = &s->env.target;
    const struct operand hidden = {m->lane->p->hidden, 0, m->lane->p->net->d_model};
    s->n_rows = m->lane->step->n_rows;
    memcpy(s->rows, m->lane->step->rows, s->n_rows * sizeof *s->rows);
    return lane_read(m->lane, hidden, 0, s->n_rows, s->hidden, err);
}

static struct spec_seq *seq_of(struct spec_seq *seqs, u32 n, u32 slot)
{
    for (u32 i = 0; i < n; i++)
        if (seqs[i].slot == slot) return &seqs[i];
    return NULL;
}

/* Rows of the target's last step whose next token is known by now. */
static void read_hidden(struct spec *s, struct spec_seq *seqs, u32 n)
{
    struct step *step = s->env.draft.lane->step;
    size_t d = s->env.target.lane->p->net->d_model;
    for (u32 t = 0; t < s->n_rows; t++) {
        const struct row *r = &s->rows[t];
        struct spec_seq *q = seq_of(seqs, n, r->slot);
        if (!q || r->pos + 1 >= q->n) continue;
        memcpy(s->imported + step->n_rows * d, s->hidden + t * d, d * sizeof *s->hidden);
        struct row row = {q->tokens[r->pos + 1], r->slot, r->pos, r->cls};
        if (r->pos + 2 == q->n)
            ask(s, q, row);
        else
            CHECK(step_add(step, row, false));
    }
    s->n_rows = 0;
}

static int draft_by_mtp(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    const struct spec_model *m = &s->env.draft;
    const struct operand hidden = {m->lane->p->hidden, 0, m->lane->p->net->d_model};
    size_t d = hidden.width;
    bool more;
    step_reset(m->lane->step);
    read_hidden(s, seqs, n);
    int rc = run_round(s, &more, err);
    for (u32 round = 1; !rc && more && round < SPEC_MAX; round++) {
        u32 n_asked = m->lane->step->n_out, n_rows = 0;
        for (u32 i = 0; !rc && i < n_asked; i++) { /* its own hidden state goes on */
            if (s->asked[i]->n_draft != round || round >= s->asked[i]->most) continue;
            rc = lane_read(m->lane, hidden, m->lane->step->out_rows[i], 1, s->imported + n_rows * d,
                           err);
            s->asked[n_rows++] = s->asked[i];
        }
        step_reset(m->lane->step);
        for (u32 i = 0; i < n_rows; i++) {
            struct spec_seq *q = s->asked[i];
            ask(s, q, (struct row){q->tokens[q->n + round - 1], q->slot, q->n + round - 2, ROW_D});
        }
        if (!rc) rc = run_round(s, &more, err);
    }
    step_reset(m->lane->step);
    return rc;
}

int spec_draft_run(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    double began = base_now();
    u32 n_new = 0;
    s->n_guesses = 0;
    for (u32 i = 0; s->n_read && i < n; i++) n_new += seqs[i].n - s->n_read[seqs[i].slot];
    int rc = s->env.is_mtp ? draft_by_mtp(s, seqs, n, err) : draft_by_model(s, seqs, n, err);
    if (!rc && s->n_guesses && n_new <= n * (SPEC_MAX + 1))
        spec_time_add(&s->guess, (base_now() - began) / s->n_guesses);
    return rc;
}
