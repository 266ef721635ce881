#include "serve/speculate.h"

#include <stdlib.h>
#include <time.h>

#include "serve/reject.h"
#include "serve/speculate_internal.h"

enum {
    LOOKUP_MIN = 3, /* latest tokens that must have stood somewhere before */
    LOOKUP_MAX = 16,
    PLAIN_EVERY = 64,
};

/* Before any guess was tried. */
static const float first_trust = 0.8f;

int spec_open(struct spec **out, const struct spec_env *env, struct err *err)
{
    struct spec *s = *out = calloc(1, sizeof *s);
    if (!s) return err_nomem(err, "speculation");
    s->env = *env;
    size_t n_vocab = env->target.p->net->n_vocab;
    if (env->draft.x) n_vocab = MAX(n_vocab, env->draft.p->net->n_vocab);
    s->n_vocab = n_vocab;
    int rc = env->draft.x ? spec_draft_open(s, err) : 0;
    if (!rc && env->rejects) {
        s->p = calloc(n_vocab, sizeof *s->p);
        s->logits = calloc(n_vocab, sizeof *s->logits);
        s->scratch.z = calloc(n_vocab, sizeof *s->scratch.z);
        s->scratch.order = calloc(n_vocab, sizeof *s->scratch.order);
        if (env->draft.x) s->odds = calloc(env->n_slots * SPEC_MAX * n_vocab, sizeof *s->odds);
        if (!s->p || !s->logits || !s->scratch.z || !s->scratch.order || (env->draft.x && !s->odds))
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

double spec_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

u32 spec_slot(const struct spec *s, u32 slot, bool aside)
{
    return s && aside ? s->env.target.first_spare + slot : slot;
}

void spec_rewind(struct spec *s, u32 slot, u32 n)
{
    if (s && s->n_read) spec_draft_rewind(s, slot, n);
}

/* ---- how many ---- */

/* A time, when others like it usually are so long: not more than twice that, because whoever else
 * runs on this machine makes some of them ten times as long. */
static double sober(double seconds, double usual)
{
    return usual > 0 ? MIN(seconds, 2 * usual) : seconds;
}

void spec_learn_guess(struct spec *s, double seconds)
{
    seconds = sober(seconds, s->guess_seconds);
    s->guess_seconds += (seconds - s->guess_seconds) / (s->guess_seconds > 0 ? 16 : 1);
}

void spec_measure(struct spec *s, struct spec_cost c)
{
    const double keep = 0.98, r = c.n_rows;
    double usual = s->steps.n > 4 ? s->steps.t / s->steps.n : 0;
    c.seconds = sober(c.seconds, s->steps.n > 4 ? s->steps.all / s->steps.n : 0);
    c.step_seconds = sober(c.step_seconds, usual);
    s->steps.n = s->steps.n * keep + 1;
    s->steps.r = s->steps.r * keep + r;
    s->steps.rr = s->steps.rr * keep + r * r;
    s->steps.t = s->steps.t * keep + c.step_seconds;
    s->steps.rt = s->steps.rt * keep + r * c.step_seconds;
    s->steps.tokens = s->steps.tokens * keep + c.n_tokens;
    s->steps.all = s->steps.all * keep + c.seconds;
}

/* Seconds of a step, as first + rows · more: least squares, but a row never costs less than nothing
 * nor more than its share of the whole. */
static void step_cost(const struct spec *s, double *first, double *more)
{
    double n = s->steps.n, r = s->steps.r / n, t = s->steps.t / n;
    double var = s->steps.rr / n - r * r, cov = s->steps.rt / n - r * t;
    *more = var > 0.1 ? cov / var : t / r / 8;
    *more = MAX(0, MIN(*more, t / r));
    *first = t - r * *more;
}

/* One more guess pays when its odds buy tokens faster than they come now. */
void spec_choose(struct spec *s, struct spec_seq *q, u32 n_seqs)
{
    struct spec_record *r = q->record;
    double first, more, best_speed = 0, tokens = 1, hit = 1;
    q->least = 0;
    if (r->trust == 0) r->trust = first_trust;
    if ((q->most = s->env.n_tokens)) return;
    /* steps without guesses, now and then, show what they cost */
    if (s->steps.n < 1.5 || ++s->n_choices % PLAIN_EVERY == 0) return;
    step_cost(s, &first, &more);
    q->least = (float)((more + s->guess_seconds) * s->steps.tokens / s->steps.all);
    for (u32 k = 0; k <= SPEC_MAX; k++) {
        u32 n_paid = k && s->env.is_mtp ? k - 1 : k; /* it reads along anyway: the first is free */
        double speed = tokens / (first / n_seqs + more * (k + 1) + s->guess_seconds * n_paid);
        if (speed > best_speed * 1.001) {
            best_speed = speed;
            q->most = k;
        }
        tokens += hit *= (double)r->trust;
    }
    if (!q->most) r->trust += (first_trust - r->trust) / 128; /* it is tried again some day */
}

void spec_count(struct spec_record *r, u32 n_guessed, u32 n_right)
{
    u32 n_seen = MIN(n_guessed, n_right + 1); /* what follows a wrong one says nothing */
    for (u32 i = 0; i < n_seen; i++) {
        float was = i < n_right;
        r->trust += (was - r->trust * r->odds[i]) * r->odds[i] / 16;
    }
    r->trust = MAX(0.01f, MIN(r->trust, 1.0f));
    r->n_guessed += n_guessed;
    r->n_right += n_right;
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
    if (!best) return;
    for (; q->n_draft < q->most; q->n_draft++) {
        q->tokens[q->n + q->n_draft] = q->tokens[best + q->n_draft];
        q->record->odds[q->n_draft] = 1;
    }
}

int spec_draft(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err)
{
    for (u32 i = 0; i < n; i++) seqs[i].n_draft = 0;
    if (s->env.draft.x) return spec_draft_run(s, seqs, n, err);
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
    const struct step *step = m->step;
    const struct sample_row *row = &step->sample[i];
    u32 n_vocab = m->p->net->n_vocab;
    const struct operand logits = {m->p->logits, 0, n_vocab};
    struct sample_in in = {.logits = s->logits,
                           .n_vocab = n_vocab,
                           .edits = step->sample_edits + row->first_edit,
                           .mask = step->masks + (size_t)i * step_mask_words(step->net)};
    int rc = m->x->class->read(m->x, m->handle, logits, i, 1, s->logits, err);
    if (!rc) sample_odds(row, &in, &s->scratch, p);
    return rc;
}

int spec_judge(struct spec *s, u32 i, u32 nth, i32 guess, i32 *token, struct err *err)
{
    const struct spec_model *m = &s->env.target;
    if (!s->env.rejects || guess < 0 || *token < 0) return 0;
    const struct row *row = &m->step->rows[m->step->out_rows[i]];
    const struct sample_row *settings = &m->step->sample[i];
    u32 n_vocab = m->p->net->n_vocab, slot = row->slot;
    if (slot >= s->env.n_slots) slot -= m->first_spare;
    int rc = spec_odds(s, m, i, s->p, err);
    if (rc) return rc;
    const float *q = s->odds ? spec_odds_of(s, slot, nth) : NULL;
    *token = reject_judge(s->p, q, n_vocab, guess,
                          (struct reject_key){settings->seed, settings->choice, row->pos + 1});
    return 0;
}
