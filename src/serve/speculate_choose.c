/* How many guesses to make: as many as buy tokens faster than doing without. What steps of so many
 * rows and guesses cost is measured, and so is how often guesses of each kind come true. */
#include "serve/speculate_internal.h"

enum {
    TRY_EVERY = 64, /* choices: a step without guesses, and halfway one with a guess more */
    TRY_RARELY = 16 * TRY_EVERY,
    N_MEASURED = 2, /* steps of so many rows, before their time is relied on */
    SLOW_TO_LEARN = 16,
    SLOW_TO_FORGET = 128,
};

/* Before any guess was tried, and again some day after guesses were given up. */
static const float first_trust = 0.7f;

/* ---- what things cost ---- */

void spec_time_add(struct spec_time *t, double seconds)
{
    t->last[t->n++ % SPEC_TIMES] = seconds;
}

/* The least of the last few: whoever else runs on this machine makes some of them ten times as
 * long, and never one shorter. */
static double least(const struct spec_time *t)
{
    double best = t->n ? t->last[0] : 0;
    for (u32 i = 1; i < MIN(t->n, (u32)SPEC_TIMES); i++) best = MIN(best, t->last[i]);
    return best;
}

void spec_measure(struct spec *s, u32 n_rows, double seconds)
{
    if (n_rows <= SPEC_ROWS) spec_time_add(&s->steps[n_rows], seconds);
}

/* Seconds of a step of so many rows: between those of the nearest numbers that were measured. Where
 * only fewer were, a row costs what those did on average beyond the first; an eighth, if that is
 * all that is known. So more is tried until it is known not to pay. */
static double step_seconds(const struct spec *s, u32 n_rows)
{
    u32 below = n_rows, above = n_rows, first = 1;
    while (below && (below > SPEC_ROWS || s->steps[below].n < N_MEASURED)) below--;
    while (above <= SPEC_ROWS && s->steps[above].n < N_MEASURED) above++;
    if (!below) return above <= SPEC_ROWS ? least(&s->steps[above]) : 0;
    double t = least(&s->steps[below]);
    if (below == n_rows) return t;
    if (above <= SPEC_ROWS) {
        double more = least(&s->steps[above]) - t;
        return t + MAX(more, 0) * (n_rows - below) / (above - below);
    }
    while (s->steps[first].n < N_MEASURED) first++;
    double row = t / below / 8;
    if (first < below) row = (t - least(&s->steps[first])) / (below - first);
    return t + MAX(row, 0) * (n_rows - below);
}

/* ---- what comes true ---- */

static float rate_of(const struct spec_record *r, u32 kind)
{
    return r->rate[kind] > 0 ? r->rate[kind] : r->trust;
}

static void learn(float *rate, float was, float slow)
{
    *rate = MAX(0.01f, *rate + (was - *rate) / slow);
}

void spec_count(struct spec_record *r, u32 n_drafted, u32 n_accepted)
{
    u32 n_seen = MIN(n_drafted, n_accepted + 1); /* what follows a wrong one says nothing */
    for (u32 i = 0; i < n_seen; i++) {
        float was = i < n_accepted, *rate = &r->rate[r->kind[i]];
        *rate = rate_of(r, r->kind[i]);
        learn(rate, was, SLOW_TO_LEARN);
        learn(&r->trust, was, SLOW_TO_LEARN);
    }
    r->n_drafted += n_drafted;
    r->n_accepted += n_accepted;
}

/* ---- how many ---- */

/* What k guesses for each of n sequences cost in seconds, and give in tokens for each. */
static double seconds_of(const struct spec *s, u32 n, u32 k)
{
    u32 n_paid = k && s->env.is_mtp ? k - 1 : k; /* it reads along anyway: the first is free */
    return step_seconds(s, n * (k + 1)) + least(&s->guess) * n * n_paid;
}

static double tokens_of(u32 k, double rate)
{
    double tokens = 1, hit = 1;
    for (u32 i = 0; i < k; i++) tokens += hit *= rate;
    return tokens;
}

/* The number that pays best when guesses come true at this rate. */
static u32 best_number(const struct spec *s, u32 n, double rate)
{
    u32 best = 0;
    double best_speed = 0;
    for (u32 k = 0; k <= SPEC_MAX; k++) {
        double speed = tokens_of(k, rate) / seconds_of(s, n, k);
        if (speed > best_speed * 1.001) {
            best_speed = speed;
            best = k;
        }
    }
    return best;
}

void spec_choose(struct spec *s, struct spec_seq *q, u32 n_seqs, bool rarely)
{
    struct spec_record *r = q->record;
    u32 turn = s->n_choices++ % (rarely ? TRY_RARELY : TRY_EVERY);
    float surest = 0;
    q->keep = q->go_on = 0;
    if (r->trust == 0) r->trust = first_trust;
    if ((q->most = s->env.n_tokens) || s->n_choices <= N_MEASURED || turn == TRY_EVERY - 1) return;
    for (u32 i = 0; i < SPEC_KINDS; i++) surest = MAX(surest, rate_of(r, i));
    u32 usual = best_number(s, n_seqs, (double)r->trust);
    q->most = usual || !s->env.draft.queue ? best_number(s, n_seqs, (double)surest) : 0;
    if (!q->most) learn(&r->trust, first_trust, SLOW_TO_FORGET);
    if (turn == TRY_EVERY / 2 || (s->env.draft.queue && !s->guess.n)) {
        q->most = MIN(q->most + 1, (u32)SPEC_MAX);
        return;
    }
    if (!q->most) return;
    /* a guess must buy tokens faster than they come in the usual way */
    double speed = tokens_of(usual, (double)r->trust) * n_seqs / seconds_of(s, n_seqs, usual);
    double rows = step_seconds(s, n_seqs * (q->most + 1)) - step_seconds(s, n_seqs);
    double row = MAX(rows, 0) / (n_seqs * q->most);
    q->keep = (float)(speed * row);
    q->go_on = (float)(speed * (row + least(&s->guess)));
}

bool spec_keep(struct spec_seq *q, u32 kind)
{
    struct spec_record *r = q->record;
    float hit = rate_of(r, kind);
    r->kind[q->n_draft] = (u8)kind;
    for (u32 i = 0; i < q->n_draft; i++) hit *= rate_of(r, r->kind[i]);
    if (hit * r->trust < q->go_on) q->most = q->n_draft + 1;
    if (hit >= q->keep) return true;
    r->rate[kind] = rate_of(r, kind);
    learn(&r->rate[kind], first_trust, SLOW_TO_FORGET);
    return false;
}
