/* Programs that draft: a smaller model, which has a cache of its own, or the target's MTP block.
 * They draft in rounds, one token for every sequence in each: a step whose rows hold the last draft
 * token.
 *
 * The MTP block sees at position p the target's hidden state there and the token at p + 1, and
 * predicts the token at p + 2. Its cache is one more layer in the target's blocks. (The last entry
 * of a block that was found in the cache is that of another sequence, which followed it with
 * another token: that can make a draft worse, never an answer.) */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "serve/sampling.h"
#include "serve/speculate_internal.h"

static int open_program(struct spec *s, struct err *err)
{
    const struct exec_limits *l = &s->env.program.queue->step->limits;
    s->asked = calloc(l->max_out, sizeof *s->asked);
    s->ids = calloc(l->max_out, sizeof *s->ids);
    s->logprobs = calloc(l->max_out, sizeof *s->logprobs);
    s->gone = calloc(s->env.n_slots, sizeof *s->gone);
    s->chosen = calloc(s->env.n_slots, sizeof *s->chosen);
    if (!s->asked || !s->ids || !s->logprobs || !s->gone || !s->chosen)
        return err_nomem(err, "speculation");
    return step_queue_prepare_decode(s->env.program.queue, s->env.n_slots, err);
}

static int open_model(struct spec *s, struct err *err)
{
    struct step_queue *reader = s->env.program.reader;
    s->n_read = calloc(s->env.n_slots, sizeof *s->n_read);
    s->n_blocks = calloc(s->env.n_slots, sizeof *s->n_blocks);
    if (!s->n_read || !s->n_blocks) return err_nomem(err, "speculation");
    int rc = open_program(s, err);
    return rc ? rc : reading_open(&s->reading, reader ? reader : s->env.program.queue, err);
}

static int open_mtp(struct spec *s, struct err *err)
{
    u32 max_rows = s->env.program.queue->step->limits.max_rows;
    size_t n_hidden = (size_t)max_rows * s->env.target.queue->p->net->d_model;
    s->imported = calloc(n_hidden, sizeof *s->imported);
    bool ok = s->imported != NULL;
    for (u32 i = 0; i < (s->env.target.reader ? 2 : 1); i++) {
        struct spec_kept *k = &s->kept[i];
        k->rows = calloc(max_rows, sizeof *k->rows);
        k->hidden = calloc(n_hidden, sizeof *k->hidden);
        ok &= k->rows && k->hidden;
    }
    return ok ? open_program(s, err) : err_nomem(err, "speculation");
}

static void close_program(struct spec *s)
{
    for (u32 i = 0; s->n_read && s->n_blocks && i < s->env.n_slots; i++) spec_model_rewind(s, i, 0);
    free(s->asked);
    free(s->ids);
    free(s->logprobs);
    free(s->gone);
    free(s->chosen);
    for (u32 i = 0; i < ARRAY_LEN(s->kept); i++) {
        free(s->kept[i].rows);
        free(s->kept[i].hidden);
    }
    free(s->imported);
    free(s->n_read);
    free(s->n_blocks);
    reading_close(&s->reading);
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
    struct step *step = s->env.program.queue->step;
    bool wanted = q->n_draft < q->most && step->n_out < step->limits.max_out;
    CHECK(step_add(step, row, wanted));
    if (!wanted) return;
    u32 i = step->n_out - 1;
    sampling_fill(step, i, q->sampling, q->tokens, q->n + q->n_draft);
    drop_edits(step, &step->sample[i]);
    step->sample[i].ahead = s->program == DRAFTER_MTP;
    step->sample[i].n_logprobs = 1;
    s->asked[i] = q;
}

/* A guess, the last one when it is too bold. Rejection wants it then too: a guess that is there or
 * not depending on what it is would not be one drawn from q. */
static void add_guess(const struct spec *s, struct spec_seq *q, i32 id, float logprob)
{
    u32 kind = (u32)(num_exp(MIN(logprob, 0)) * (SPEC_KINDS - 1) + 0.5f);
    bool known = id >= 0 && (u32)id < s->env.target.queue->p->net->n_vocab,
         kept = spec_keep(q, s->program, kind);
    if (known && (kept || s->env.rejects)) q->tokens[q->n + q->n_draft++] = id;
    if (!known || !kept) q->most = q->n_draft;
}

int spec_run_round(struct spec *s, bool *more, struct err *err)
{
    const struct spec_model *m = &s->env.program;
    const struct operand logprobs = {m->queue->p->logprobs, 0, 1};
    u32 n = m->queue->step->n_out;
    *more = n > 0;
    s->n_guesses += n;
    if (!m->queue->step->n_rows) return 0;
    m->queue->step->hidden = s->imported;
    int rc = step_queue_run(m->queue, err);
    if (!rc) rc = step_queue_ids(m->queue, n, s->ids, err);
    if (!rc && n) rc = step_queue_read(m->queue, logprobs, 0, n, s->logprobs, err);
    for (u32 i = 0; !rc && i < n; i++) {
        struct spec_seq *q = s->asked[i];
        if (s->odds) rc = spec_odds(s, m, i, spec_odds_of(s, q->slot, q->n_draft), err);
        if (!rc) add_guess(s, q, s->ids[i], s->logprobs[i]);
    }
    return rc;
}

/* ---- a smaller model ---- */

/* What it lacks of the sequences that want guesses, where that is not much. */
static void read_along(struct spec *s, struct spec_seq *seqs, u32 n)
{
    struct step *step = s->env.program.queue->step;
    for (u32 i = 0; i < n; i++) {
        struct spec_seq *q = &seqs[i];
        u32 *n_read = &s->n_read[q->slot], left = q->n - *n_read;
        if (!q->most) continue;
        if (left > MIN(SPEC_LAG, step->limits.max_rows - step->n_rows) ||
            !spec_make_room(s, step, q, q->n + q->most)) {
            q->most = 0;
            continue;
        }
        enum row_class cls = left > SPEC_MAX_PROGRAM + 1 ? ROW_P : ROW_D;
        for (; *n_read + 1 < q->n; ++*n_read)
            CHECK(step_add(step, spec_row(s, q, *n_read, cls), false));
        ask(s, q, spec_row(s, q, (*n_read)++, cls));
    }
    s->n_new = step->n_rows;
}

static int draft_by_model(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    const struct spec_model *m = &s->env.program;
    bool recurrent = m->queue->p->net->n_states, more;
    step_reset(m->queue->step);
    read_along(s, seqs, n);
    int rc = spec_run_round(s, &more, err);
    for (u32 round = 1; !rc && more && round < SPEC_MAX_PROGRAM; round++) {
        step_reset(m->queue->step);
        for (u32 i = 0; i < n; i++) {
            struct spec_seq *q = &seqs[i];
            u32 slot = recurrent ? m->first_spare + q->slot : q->slot, pos = q->n + round - 1;
            if (q->n_draft != round || round >= q->most) continue;
            if (recurrent && round == 1)
                CHECK(step_edit(m->queue->step, EDIT_COPY_STATE, slot, q->slot));
            spec_share_blocks(m->queue->step, slot, q->slot);
            ask(s, q, (struct row){q->tokens[pos], slot, pos, ROW_D});
        }
        rc = spec_run_round(s, &more, err);
    }
    return rc;
}

/* ---- the MTP block ---- */

static int follow(struct spec *s, const struct step_queue *l, struct err *err)
{
    const struct operand hidden = {l->p->hidden, 0, l->p->net->d_model};
    struct spec_kept *k = &s->kept[l == s->env.target.reader];
    bool wanted = false;
    k->n = l->step->n_rows;
    memcpy(k->rows, l->step->rows, k->n * sizeof *k->rows);
    for (u32 i = 0; i < k->n; i++) { /* its cache is that of the sequence's own slot */
        if (k->rows[i].slot >= s->env.n_slots) k->rows[i].slot -= s->env.target.first_spare;
        wanted |= !s->gone[k->rows[i].slot];
    }
    if (!wanted) k->n = 0;
    return wanted ? step_queue_read(l, hidden, 0, k->n, k->hidden, err) : 0;
}

static struct spec_seq *seq_of(struct spec_seq *seqs, u32 n, u32 slot)
{
    for (u32 i = 0; i < n; i++)
        if (seqs[i].slot == slot) return &seqs[i];
    return NULL;
}

void spec_take_kept(struct spec *s, struct spec_kept *k, struct spec_seq *seqs, u32 n)
{
    struct step *step = s->env.program.queue->step;
    size_t d = s->env.target.queue->p->net->d_model;
    step_reset(step);
    for (u32 t = 0; t < k->n; t++) {
        const struct row *r = &k->rows[t];
        struct spec_seq *q = seq_of(seqs, n, r->slot);
        if (!q || r->pos + 1 >= q->n || s->gone[q->slot]) continue;
        memcpy(s->imported + step->n_rows * d, k->hidden + t * d, d * sizeof *k->hidden);
        struct row row = {q->tokens[r->pos + 1], r->slot, r->pos, r->cls};
        if (r->pos + 2 == q->n)
            ask(s, q, row);
        else
            CHECK(step_add(step, row, false));
    }
    k->n = 0;
}

static int draft_by_mtp(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    const struct spec_model *m = &s->env.program;
    const struct operand hidden = {m->queue->p->hidden, 0, m->queue->p->net->d_model};
    size_t d = hidden.width;
    bool more;
    spec_take_kept(s, &s->kept[0], seqs, n);
    s->n_new = m->queue->step->n_rows;
    int rc = spec_run_round(s, &more, err);
    for (u32 round = 1; !rc && more && round < SPEC_MAX_PROGRAM; round++) {
        u32 n_asked = m->queue->step->n_out, n_rows = 0;
        for (u32 i = 0; !rc && i < n_asked; i++) { /* its own hidden state goes on */
            if (s->asked[i]->n_draft != round || round >= s->asked[i]->most) continue;
            rc = step_queue_read(m->queue, hidden, m->queue->step->out_rows[i], 1,
                                 s->imported + n_rows * d, err);
            s->asked[n_rows++] = s->asked[i];
        }
        step_reset(m->queue->step);
        for (u32 i = 0; i < n_rows; i++) {
            struct spec_seq *q = s->asked[i];
            ask(s, q, (struct row){q->tokens[q->n + round - 1], q->slot, q->n + round - 2, ROW_D});
        }
        if (!rc) rc = spec_run_round(s, &more, err);
    }
    step_reset(m->queue->step);
    return rc;
}

/* ---- the drafters ---- */

/* Those that other drafters have drafted for are only followed. */
static void choose_all(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode)
{
    for (u32 i = 0; i < n; i++) {
        seqs[i].most = 0;
        if (seqs[i].room && !seqs[i].n_draft && !s->gone[seqs[i].slot])
            spec_choose(s, &seqs[i], s->program, n_decode);
    }
}

static int draft_timed(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode,
                       int (*draft)(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err),
                       struct err *err)
{
    double began = base_now();
    u32 *most = s->chosen;
    choose_all(s, seqs, n, n_decode);
    for (u32 i = 0; i < n; i++) most[i] = seqs[i].most;
    s->n_guesses = s->n_new = 0;
    int rc = draft(s, seqs, n, err);
    for (u32 i = 0; i < n; i++) seqs[i].most = most[i];
    if (!rc) spec_charge(s, seqs, n, base_now() - began);
    return rc;
}

static int model_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err)
{
    return draft_timed(s, seqs, n, n_decode, draft_by_model, err);
}

static int mtp_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err)
{
    return draft_timed(s, seqs, n, n_decode, draft_by_mtp, err);
}

static bool model_would(struct spec *s, struct spec_seq *q, u32 n_decode)
{
    if (!q->room || s->gone[q->slot]) return false;
    spec_choose(s, q, DRAFTER_MODEL, n_decode);
    return q->most > 0;
}

static bool mtp_would(struct spec *s, struct spec_seq *q, u32 n_decode)
{
    (void)n_decode;
    return !s->gone[q->slot]; /* at least it takes the hidden states of every step */
}

const struct drafter drafter_model = {.name = "draft model",
                                      .has_program = true,
                                      .open = open_model,
                                      .close = close_program,
                                      .draft = model_draft,
                                      .would = model_would,
                                      .read = spec_model_read,
                                      .prepare = spec_model_prepare,
                                      .rewind = spec_model_rewind};
const struct drafter drafter_mtp = {.name = "MTP block",
                                    .has_program = true,
                                    .open = open_mtp,
                                    .close = close_program,
                                    .draft = mtp_draft,
                                    .would = mtp_would,
                                    .read = spec_mtp_read,
                                    .follow = follow};
