#include "cpu/pace.h"

enum {
    FIRST_STEPS = 2, /* with a new number of threads, before a trial */
    TRIAL_STEPS = 3,
    REST = 16, /* a trial is followed by REST times the time that it lost without one */
};
static const double CROWDED = 0.15; /* share of idle time above which fewer threads are tried */
static const double BETTER = 0.9;   /* of the mean: a trial below it has paid */
static const double HOPELESS = 1.5; /* of the mean: a trial ends with a step above it */

u32 pace_choose(struct pace *p, u32 n_all)
{
    if (p->n == 0 || p->n > n_all) *p = (struct pace){.n = n_all};
    return p->trial ? p->trial : p->n;
}

static void start_trial(struct pace *p, u32 n_all)
{
    bool down = p->n > 1 && p->idle > CROWDED, up = p->n < n_all;
    if (!down && !up) return;
    if (down && up) down = !p->upward;
    p->upward = down;
    if (!down)
        p->trial = MIN(n_all, 2 * p->n);
    else /* half as many may wait as long: then half of that */
        p->trial = p->lower = (p->lower > 1 ? p->lower : p->n) / 2;
    p->n_tried = 0;
    p->tried_s = 0;
}

static void end_trial(struct pace *p)
{
    double mean = p->tried_s / p->n_tried;
    if (mean < BETTER * p->mean_s)
        *p = (struct pace){.n = p->trial, .mean_s = mean, .upward = p->trial > p->n};
    else
        p->rest_s = (double)REST * MAX(0, p->tried_s - p->n_tried * p->mean_s);
    p->trial = 0;
}

void pace_note(struct pace *p, u32 n_all, double took_s, double idle_s)
{
    if (p->trial) {
        p->n_tried++;
        p->tried_s += took_s;
        if (p->n_tried == TRIAL_STEPS || took_s > HOPELESS * p->mean_s) end_trial(p);
        return;
    }
    p->n_steps++;
    double weight = 1.0 / MIN(8, p->n_steps);
    p->mean_s += weight * (took_s - p->mean_s);
    p->idle += weight * (idle_s / (took_s * p->n + 1e-9) - p->idle);
    p->rest_s -= took_s;
    if (p->n_steps >= FIRST_STEPS && p->rest_s <= 0) start_trial(p, n_all);
}
