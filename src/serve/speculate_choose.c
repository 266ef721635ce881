/* How many tokens to draft: as many as buy tokens faster than doing without. What steps of so many
 * rows and draft tokens cost is measured, and so is how often those of each kind are accepted.
 *
 * Estimates can be wrong, and a text can be made to look like one that repeats itself. So each
 * sequence has an account, in seconds: an accepted token earns the time of a step without drafts,
 * rows and draft tokens cost what they were measured to take, and each step adds a hundredth of its
 * time. What an attempt would cost if nothing were accepted must be on the account. A sequence
 * begins with a loan of at most LOAN steps from a reserve that all sequences of a model share, and
 * gives back what it has left. So whatever the text is, speculation loses at most 1 % and the loan.
 */
#include <math.h>
#include <string.h>

#include "serve/speculate_internal.h"

enum {
    TRY_EVERY = 64, /* steps: one without drafts, so that what it takes stays known */
    N_MEASURED = 2, /* steps of so many rows, before their time is relied on */
    SLOW_TO_LEARN = 64,
    SLOW_TO_FORGET = 128,
};

/* Before any draft token was tried, and again some day after drafting was given up. */
static const float first_trust = 0.7f;

/* In steps without drafts: what a sequence may begin with, the most that is on its account, and
 * what each step adds to the account and to the reserve. */
static const double loan = 1.5, most_saved = 32, earned = 0.01, kept_back = 0.005;

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

/* Seconds of a step of each number of rows: between those of the nearest numbers that were measured
 * at least `enough` times. Where only fewer rows were measured, one more costs what those did on
 * average beyond the first; half of it all, if that is all that is known: so attempts grow as more
 * becomes known. A table, because many numbers are compared before each step. */
static void tabulate(const struct spec *s, u32 enough, double *to)
{
    u32 first = 0, below = 0;
    double row = 0;
    memset(to, 0, (SPEC_ROWS + 1) * sizeof *to);
    for (u32 n = 1; n <= SPEC_ROWS; n++) {
        if (s->steps[n].n < enough) continue;
        to[n] = least(&s->steps[n]);
        if (!first) first = n;
        double more = below ? MAX(to[n] - to[below], 0) / (n - below) : 0;
        for (u32 i = below + 1; i < n; i++) to[i] = below ? to[below] + more * (i - below) : to[n];
        row = n > first ? MAX((to[n] - to[first]) / (n - first), 0) : to[n] / n / 2;
        below = n;
    }
    for (u32 i = below + 1; below && i <= SPEC_ROWS; i++) to[i] = to[below] + row * (i - below);
}

static double seconds_by(const struct spec *s, u32 n_rows, u32 enough)
{
    const double *t = s->seconds[enough - 1];
    if (n_rows <= SPEC_ROWS) return t[n_rows];
    return t[SPEC_ROWS] + (n_rows - SPEC_ROWS) * (t[SPEC_ROWS] - t[SPEC_ROWS - 1]);
}

/* Of a step that was measured at least twice; never more than its rows take one by one. */
static double step_seconds(const struct spec *s, u32 n_rows)
{
    return MIN(seconds_by(s, n_rows, N_MEASURED), seconds_by(s, 1, N_MEASURED) * n_rows);
}

/* The same for what is put at stake: a time that was measured once counts too. */
static double careful_seconds(const struct spec *s, u32 n_rows)
{
    double known = step_seconds(s, n_rows), once = seconds_by(s, n_rows, 1);
    return MAX(known, MIN(once, seconds_by(s, 1, N_MEASURED) * n_rows));
}

void spec_measure(struct spec *s, struct spec_step step, double seconds)
{
    if (!s->n_measured++) s->reserve = loan * seconds;
    if (step.n_rows > SPEC_ROWS) return;
    spec_time_add(&s->steps[step.n_rows], seconds);
    for (u32 i = 0; i < N_MEASURED; i++) tabulate(s, i + 1, s->seconds[i]);
    double base = seconds_by(s, step.n_decode, 1);
    s->reserve = MIN(s->reserve + kept_back * base, 4 * loan * base);
}

/* ---- the account ---- */

/* The part of a step without drafts that one of n sequences has. */
static double part_of(const struct spec *s, u32 n_decode)
{
    return step_seconds(s, n_decode) / n_decode;
}

/* What there is to lose on attempts for r's sequence. Nothing, before a step without drafts was
 * measured. */
static double balance(struct spec *s, struct spec_record *r, u32 n_decode)
{
    double part = part_of(s, n_decode);
    if (!r->open && part > 0) {
        double take = MIN(s->reserve, loan * part);
        r->open = true;
        r->balance += take;
        s->reserve -= take;
    }
    return r->balance;
}

void spec_end(struct spec *s, struct spec_record *r)
{
    if (!s || !r->open) return;
    s->reserve = MAX(s->reserve + r->balance, 0);
    r->open = false;
    r->balance = 0;
}

/* The most rows besides its first that a sequence can afford, each of n_decode having as many. */
static u32 affordable(struct spec *s, struct spec_record *r, u32 n_decode, double each)
{
    double has = balance(s, r, n_decode), base = step_seconds(s, n_decode);
    u32 k = 0;
    if (s->env.n_tokens) return SPEC_MAX;
    while (k < SPEC_MAX &&
           (careful_seconds(s, n_decode * (k + 2)) - base) / n_decode + each * (k + 1) <= has)
        k++;
    return base > 0 ? k : 0;
}

/* What is charged for: the first time of all may be that of a program that was never run before. */
static double settled(const struct spec_time *t)
{
    return t->n < N_MEASURED ? 0 : least(t);
}

void spec_charge(struct spec *s, struct spec_seq *seqs, u32 n, double seconds)
{
    if (s->n_guesses && s->n_new <= n * (SPEC_MAX_PROGRAM + 1))
        spec_time_add(&s->guess, seconds / s->n_guesses);
    else if (!s->n_guesses && s->n_new)
        spec_time_add(&s->along, seconds / s->n_new);
    for (u32 i = 0; i < n; i++) {
        struct spec_record *r = seqs[i].record;
        bool *gone = &s->gone[seqs[i].slot];
        if (!r->open || s->env.n_tokens) continue;
        if (seqs[i].most)
            r->balance -= settled(&s->guess) * MIN(seqs[i].n_draft + 1, seqs[i].most);
        else if (s->program == DRAFTER_MTP && !*gone)
            r->balance -= settled(&s->along);
        /* a smaller model can catch up later; hidden states that were not read are gone */
        *gone = r->balance < 0 || (s->program == DRAFTER_MTP && *gone);
    }
}

/* ---- what is accepted ---- */

float spec_rate(const struct spec_record *r, enum drafter_kind d, u32 kind)
{
    return r->rate[d][kind] > 0 ? r->rate[d][kind] : r->trust[d] > 0 ? r->trust[d] : first_trust;
}

static void learn(float *rate, float was, float slow)
{
    *rate = MAX(0.01f, *rate + (was - *rate) / slow);
}

static void count_kinds(struct spec_record *r, u32 n_drafted, u32 n_accepted)
{
    u32 n_seen = MIN(n_drafted, n_accepted + 1); /* what follows a wrong one says nothing */
    for (u32 i = 0; i < n_seen; i++) {
        u32 d = r->kind[i] / SPEC_KINDS, kind = r->kind[i] % SPEC_KINDS;
        float was = i < n_accepted, *rate = &r->rate[d][kind];
        *rate = spec_rate(r, d, kind);
        if (r->trust[d] == 0) r->trust[d] = first_trust;
        u16 *n = &r->n_seen[d][kind]; /* the first ones tell most */
        *n = MIN(*n + 1, SLOW_TO_LEARN);
        learn(rate, was, MAX(*n, SLOW_TO_LEARN / 8));
        learn(&r->trust[d], was, SLOW_TO_LEARN / 2);
    }
}

void spec_count(struct spec *s, struct spec_record *r, struct spec_step step, u32 n_rows,
                u32 n_drafted, u32 n_accepted)
{
    count_kinds(r, n_drafted, n_accepted);
    r->n_drafted += n_drafted;
    r->n_accepted += n_accepted;
    if (!r->open) return;
    double base = step_seconds(s, step.n_decode), part = base / step.n_decode;
    double more = MAX(careful_seconds(s, step.n_rows) - base, 0);
    if (step.n_rows > step.n_decode)
        r->balance -= more * (n_rows - 1) / (step.n_rows - step.n_decode);
    r->balance = MIN(r->balance + part * (n_accepted + earned), most_saved * part);
}

/* ---- how many ---- */

/* What k draft tokens for each of n sequences cost in seconds, if all are accepted with that
 * probability. A recurrent state that was spoiled takes the accepted ones again. */
static double seconds_of(const struct spec *s, enum drafter_kind d, u32 n, u32 k, double all)
{
    u32 n_paid = k && d == DRAFTER_MTP ? k - 1 : k; /* it follows anyway: the first is free */
    double each = d == s->program ? least(&s->guess) : 0;
    double t = step_seconds(s, n * (k + 1)) + each * n * n_paid;
    if (!k || !s->env.target.queue->p->net->n_states) return t;
    return t + (1 - all) * (step_seconds(s, n * (k / 2 + 2)) - step_seconds(s, n));
}

/* What they give in tokens for each. */
static double tokens_of(u32 k, double rate)
{
    double tokens = 1, hit = 1;
    for (u32 i = 0; i < k; i++) tokens += hit *= rate;
    return tokens;
}

/* The number that pays best when draft tokens are accepted at this rate. */
static u32 best_number(const struct spec *s, enum drafter_kind d, u32 n, double rate)
{
    u32 best = 0, most = d == s->program ? SPEC_MAX_PROGRAM : SPEC_MAX;
    double best_speed = 0;
    double tokens = 0, all = 1; /* that k are accepted */
    for (u32 k = 0; k <= most && n * k <= SPEC_ROWS; k++, all *= rate) {
        tokens += all;
        double speed = tokens / seconds_of(s, d, n, k, all);
        if (speed > best_speed * 1.001) {
            best_speed = speed;
            best = k;
        }
    }
    return best;
}

/* A step without drafts is due. */
static bool is_plain(struct spec *s)
{
    return s->n_measured < N_MEASURED || s->n_measured % TRY_EVERY == TRY_EVERY - 1;
}

/* Now and then a token more than seems to pay is tried: what it was measured to cost may have been
 * disturbed, or be less by now. */
static bool one_more_is_due(struct spec *s)
{
    if (s->n_measured - s->last_try < TRY_EVERY / 2) return false;
    s->last_try = s->n_measured;
    return true;
}

void spec_choose(struct spec *s, struct spec_seq *q, enum drafter_kind d, u32 n_decode)
{
    struct spec_record *r = q->record;
    float surest = 0;
    q->keep = q->go_on = 0;
    q->most = MIN(q->room, MIN(s->env.n_tokens, (u32)SPEC_MAX_PROGRAM));
    if (s->env.n_tokens || is_plain(s)) return;
    if (r->trust[d] == 0) r->trust[d] = first_trust;
    for (u32 i = 0; i < SPEC_KINDS; i++) surest = MAX(surest, spec_rate(r, d, i));
    u32 usual = best_number(s, d, n_decode, (double)r->trust[d]);
    q->most = usual ? best_number(s, d, n_decode, (double)surest) : 0;
    if (!q->most) learn(&r->trust[d], first_trust, SLOW_TO_FORGET);
    if (!s->guess.n) q->most = 1;
    q->most = MIN(q->most + one_more_is_due(s), (u32)SPEC_MAX_PROGRAM);
    q->most = MIN(MIN(q->most, q->room), affordable(s, r, n_decode, least(&s->guess)));
    if (!q->most) return;
    /* a draft token must buy tokens faster than they come in the usual way */
    double speed = tokens_of(usual, (double)r->trust[d]) * n_decode /
                   seconds_of(s, d, n_decode, usual, pow((double)r->trust[d], usual));
    double rows = step_seconds(s, n_decode * (q->most + 1)) - step_seconds(s, n_decode);
    double row = MAX(rows, 0) / (n_decode * q->most);
    q->keep = (float)(speed * row);
    q->go_on = (float)(speed * (row + least(&s->guess)));
}

bool spec_can_try(struct spec *s, struct spec_record *r, u32 n_decode)
{
    return s->env.n_tokens || (!is_plain(s) && affordable(s, r, n_decode, 0));
}

u32 spec_worth(struct spec *s, struct spec_seq *q, enum drafter_kind d, u32 kind, u32 n_decode)
{
    struct spec_record *r = q->record;
    u32 left = q->room - q->n_draft;
    if (s->env.n_tokens) return MIN(left, s->env.n_tokens - MIN(q->n_draft, s->env.n_tokens));
    if (is_plain(s)) return 0;
    u32 can = affordable(s, r, n_decode, 0), most;
    r->rate[d][kind] = spec_rate(r, d, kind);
    most = best_number(s, d, n_decode, (double)r->rate[d][kind]);
    if (!most) learn(&r->rate[d][kind], first_trust, SLOW_TO_FORGET);
    most += one_more_is_due(s);
    return MIN(MIN(most, left), can - MIN(q->n_draft, can));
}

bool spec_keep(struct spec_seq *q, enum drafter_kind d, u32 kind)
{
    struct spec_record *r = q->record;
    float hit = spec_rate(r, d, kind);
    r->kind[q->n_draft] = (u8)(d * SPEC_KINDS + kind);
    for (u32 i = 0; i < q->n_draft; i++)
        hit *= spec_rate(r, r->kind[i] / SPEC_KINDS, r->kind[i] % SPEC_KINDS);
    if (hit * r->trust[d] < q->go_on) q->most = q->n_draft + 1;
    if (hit >= q->keep) return true;
    r->rate[d][kind] = spec_rate(r, d, kind);
    learn(&r->rate[d][kind], first_trust, SLOW_TO_FORGET);
    return false;
}
