/* How many threads take a step. A thread that has to wait for a processor, because other programs
 * keep them busy, makes all others wait at the next barrier, so fewer threads can be many times
 * faster (135M parameters beside six busy processes on two cores: 8.6 tokens/s with one thread, 0.6
 * with two). Fewer are tried only while threads do wait; a step has the same bits with any number.
 */
#ifndef FLETCH_PACE_H
#define FLETCH_PACE_H

#include "base/base.h"

/* Of steps that do the same work. Zeros are a valid start. */
struct pace {
    u32 n;          /* threads that steps get; 0: no step was taken yet */
    double mean_s;  /* duration of a step with n threads, the latest counting most */
    double idle;    /* share of the threads' time that passed at barriers, likewise */
    u32 n_steps;    /* with n threads, since n changed */
    u32 trial;      /* threads that are tried now; 0: no trial runs */
    u32 lower;      /* the last trial with fewer threads, since n changed */
    u32 n_tried;    /* steps of the trial, */
    double tried_s; /* and what they took */
    double rest_s;  /* time to pass before the next trial */
    bool upward;    /* the next trial is one with more threads, where both ways are open */
};

/* The number of threads that the next step gets, of n_all. */
u32 pace_choose(struct pace *p, u32 n_all);
/* A step with as many threads took so long; idle_s is how long its threads waited at barriers. */
void pace_note(struct pace *p, u32 n_all, double took_s, double idle_s);

#endif
