#include "serve/speculate.h"

#include <stdlib.h>
#include <string.h>

#include "serve/reject.h"
#include "serve/speculate_internal.h"

static const struct drafter *const drafters[N_DRAFTERS] = {
    [DRAFTER_FORCED] = &drafter_forced,
    [DRAFTER_NGRAM] = &drafter_ngram,
    [DRAFTER_MODEL] = &drafter_model,
    [DRAFTER_MTP] = &drafter_mtp,
};

static int open_rejection(struct spec *s, struct err *err)
{
    size_t n = s->n_vocab;
    bool has_odds = s->program != N_DRAFTERS;
    s->p = calloc(n, sizeof *s->p);
    s->logits = calloc(n, sizeof *s->logits);
    s->scratch.z = calloc(n, sizeof *s->scratch.z);
    s->scratch.order = calloc(n, sizeof *s->scratch.order);
    if (has_odds) s->odds = calloc(s->env.n_slots * SPEC_MAX_PROGRAM * n, sizeof *s->odds);
    bool ok = s->p && s->logits && s->scratch.z && s->scratch.order && (!has_odds || s->odds);
    return ok ? 0 : err_nomem(err, "speculation");
}

int spec_open(struct spec **out, const struct spec_env *env, struct err *err)
{
    struct spec *s = *out = calloc(1, sizeof *s);
    int rc = 0;
    if (!s) return err_nomem(err, "speculation");
    s->env = *env;
    s->program = N_DRAFTERS;
    s->n_vocab = env->target.queue->p->net->n_vocab;
    for (u32 d = 0; d < N_DRAFTERS; d++) {
        if (!env->uses[d] || !drafters[d]->has_program) continue;
        CHECK(s->program == N_DRAFTERS);
        s->program = d;
        s->n_vocab = MAX(s->n_vocab, env->program.queue->p->net->n_vocab);
    }
    if (env->rejects) rc = open_rejection(s, err);
    if (!rc && s->program != N_DRAFTERS) rc = drafters[s->program]->open(s, err);
    if (rc) {
        spec_close(s);
        *out = NULL;
    }
    return rc;
}

void spec_close(struct spec *s)
{
    if (!s) return;
    if (s->program != N_DRAFTERS) drafters[s->program]->close(s);
    free(s->p);
    free(s->odds);
    free(s->logits);
    free(s->scratch.z);
    free(s->scratch.order);
    free(s);
}

u32 spec_slot(const struct spec *s, u32 slot, bool aside)
{
    return s && aside ? s->env.target.first_spare + slot : slot;
}

void spec_share_blocks(struct step *step, u32 other, u32 slot)
{
    size_t n = step->table_len;
    if (other != slot && step->net->n_kv)
        memcpy(step->tables + other * n, step->tables + slot * n, n * sizeof *step->tables);
}

/* ---- the drafters ---- */

/* The one with a program; NULL: it is not used. */
static const struct drafter *program_of(const struct spec *s)
{
    return s && s->program != N_DRAFTERS ? drafters[s->program] : NULL;
}

int spec_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < n; i++) seqs[i].n_draft = 0;
    for (u32 d = 0; !rc && d < N_DRAFTERS; d++)
        if (s->env.uses[d]) rc = drafters[d]->draft(s, seqs, n, n_decode, err);
    return rc;
}

bool spec_would_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode)
{
    for (u32 i = 0; i < n; i++) {
        seqs[i].n_draft = 0;
        for (u32 d = 0; d < N_DRAFTERS; d++)
            if (s->env.uses[d] && drafters[d]->would(s, &seqs[i], n_decode)) return true;
    }
    return false;
}

int spec_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
              struct err *err)
{
    const struct drafter *d = program_of(s);
    *did = false;
    return d ? d->read(s, seqs, n, seconds, did, err) : 0;
}

int spec_prepare(struct spec *s, double seconds, struct err *err)
{
    const struct drafter *d = program_of(s);
    return d && d->prepare ? d->prepare(s, seconds, err) : 0;
}

int spec_follow(struct spec *s, const struct step_queue *l, struct err *err)
{
    const struct drafter *d = program_of(s);
    return d && d->follow ? d->follow(s, l, err) : 0;
}

void spec_rewind(struct spec *s, u32 slot, u32 n)
{
    const struct drafter *d = program_of(s);
    if (!d) return;
    if (!n) s->gone[slot] = false;
    if (d->rewind) d->rewind(s, slot, n);
}

/* ---- judging ---- */

float *spec_odds_of(const struct spec *s, u32 slot, u32 nth)
{
    return s->odds + ((size_t)slot * SPEC_MAX_PROGRAM + nth) * s->n_vocab;
}

int spec_odds(struct spec *s, const struct spec_model *m, u32 i, float *p, struct err *err)
{
    const struct step *step = m->queue->step;
    const struct sample_row *row = &step->sample[i];
    u32 n_vocab = m->queue->p->net->n_vocab;
    const struct operand logits = {m->queue->p->logits, 0, n_vocab};
    struct sample_in in = {.logits = s->logits,
                           .n_vocab = n_vocab,
                           .edits = step->sample_edits + row->first_edit,
                           .mask = step->masks + (size_t)i * step_mask_words(step->net)};
    int rc = step_queue_read(m->queue, logits, i, 1, s->logits, err);
    if (!rc) sample_odds(row, &in, &s->scratch, p);
    return rc;
}

int spec_judge(struct spec *s, const struct spec_record *r, u32 i, u32 nth, i32 draft, i32 *token,
               struct err *err)
{
    const struct spec_model *m = &s->env.target;
    if (!s->env.rejects || *token < 0) return 0;
    const struct row *row = &m->queue->step->rows[m->queue->step->out_rows[i]];
    const struct sample_row *settings = &m->queue->step->sample[i];
    u32 n_vocab = m->queue->p->net->n_vocab, slot = row->slot;
    if (slot >= s->env.n_slots) slot -= m->first_spare;
    int rc = spec_odds(s, m, i, s->p, err);
    if (rc) return rc;
    bool drawn = drafters[r->kind[nth] / SPEC_KINDS]->has_program; /* else it was certain */
    const float *q = drawn ? spec_odds_of(s, slot, nth) : NULL;
    *token = reject_judge(s->p, q, n_vocab, draft,
                          (struct reject_key){settings->seed, settings->choice, row->pos + 1});
    return 0;
}
