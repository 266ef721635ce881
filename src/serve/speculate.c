#include "serve/speculate.h"

#include <stdlib.h>
#include <string.h>

#include "serve/reject.h"
#include "serve/speculate_internal.h"

enum {
    LOOKUP_MIN = 3, /* latest tokens that must have stood somewhere before */
    LOOKUP_MAX = 16,
};

int spec_open(struct spec **out, const struct spec_env *env, struct err *err)
{
    struct spec *s = *out = calloc(1, sizeof *s);
    if (!s) return err_nomem(err, "speculation");
    s->env = *env;
    size_t n_vocab = env->target.queue->p->net->n_vocab;
    if (env->draft.queue) n_vocab = MAX(n_vocab, env->draft.queue->p->net->n_vocab);
    s->n_vocab = n_vocab;
    int rc = env->draft.queue ? spec_draft_open(s, err) : 0;
    if (!rc && env->rejects) {
        s->p = calloc(n_vocab, sizeof *s->p);
        s->logits = calloc(n_vocab, sizeof *s->logits);
        s->scratch.z = calloc(n_vocab, sizeof *s->scratch.z);
        s->scratch.order = calloc(n_vocab, sizeof *s->scratch.order);
        if (env->draft.queue) s->odds = calloc(env->n_slots * SPEC_MAX * n_vocab, sizeof *s->odds);
        if (!s->p || !s->logits || !s->scratch.z || !s->scratch.order ||
            (env->draft.queue && !s->odds))
            rc = err_nomem(err, "speculation");
    }
    if (rc) {
        spec_close(s);
        *out = NULL;
    }
    return rc;
}

void spec_close(struct spec *s)
{
    if (!s) return;
    spec_draft_close(s);
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

void spec_rewind(struct spec *s, u32 slot, u32 n)
{
    if (s && s->n_read) spec_draft_rewind(s, slot, n);
}

/* ---- guesses from the text itself ---- */

/* What followed the latest tokens where most of them stood before, and there the last time. May
 * run on into its own guesses: a loop goes on as a loop. */
static void look_up(struct spec_seq *q)
{
    const i32 *last = q->tokens + q->n - 1;
    u32 best = 0, longest = LOOKUP_MIN - 1;
    for (u32 end = q->n - 1; end >= LOOKUP_MIN && longest < LOOKUP_MAX; end--) {
        const i32 *at = q->tokens + end - 1;
        u32 len = 0;
        while (len < LOOKUP_MAX && len < end && *(at - len) == *(last - len)) len++;
        if (len > longest) {
            longest = len;
            best = end;
        }
    }
    u32 kind = (longest - LOOKUP_MIN) / 2;
    while (best && q->n_draft < q->most && spec_keep(q, kind)) {
        q->tokens[q->n + q->n_draft] = q->tokens[best + q->n_draft];
        q->n_draft++;
    }
}

int spec_draft(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    for (u32 i = 0; i < n; i++) seqs[i].n_draft = 0;
    if (s->env.draft.queue) return spec_draft_run(s, seqs, n, err);
    for (u32 i = 0; i < n; i++)
        if (seqs[i].most && seqs[i].n > LOOKUP_MIN) look_up(&seqs[i]);
    return 0;
}

/* ---- judging ---- */

float *spec_odds_of(const struct spec *s, u32 slot, u32 nth)
{
    return s->odds + ((size_t)slot * SPEC_MAX + nth) * s->n_vocab;
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

int spec_judge(struct spec *s, u32 i, u32 nth, i32 guess, i32 *token, struct err *err)
{
    const struct spec_model *m = &s->env.target;
    if (!s->env.rejects || guess < 0 || *token < 0) return 0;
    const struct row *row = &m->queue->step->rows[m->queue->step->out_rows[i]];
    const struct sample_row *settings = &m->queue->step->sample[i];
    u32 n_vocab = m->queue->p->net->n_vocab, slot = row->slot;
    if (slot >= s->env.n_slots) slot -= m->first_spare;
    int rc = spec_odds(s, m, i, s->p, err);
    if (rc) return rc;
    const float *q = s->odds ? spec_odds_of(s, slot, nth) : NULL;
    *token = reject_judge(s->p, q, n_vocab, guess,
                          (struct reject_key){settings->seed, settings->choice, row->pos + 1});
    return 0;
}
