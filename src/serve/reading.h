/* A step of prompts that goes through the model piece by piece, some layers at a time, so that
 * those who answer at the same time never wait for the whole of it. Between two pieces it rests:
 * its values stay in the buffers of a step queue of its own, while steps of others run.
 *
 * What a layer takes is measured. A piece has as many layers as fit into the time that it is given,
 * and a step as many rows as let one layer fit. */
#ifndef FLETCH_READING_H
#define FLETCH_READING_H

#include "core/step_queue.h"

struct reading {
    struct step_queue
        *queue; /* borrowed; NULL: there is none, and prompts are read in steps of answers */
    u32 *cuts;  /* [n_cuts] ops that pieces begin with: of the layers, of what follows them */
    u32 n_cuts;
    u32 at;       /* the cut to go on with; 0: nothing rests */
    u32 ready;    /* layers of the next piece, which were made ready; 0: none */
    double layer; /* seconds that a layer took last, of this step; 0: not known */
    double rows;  /* that a step may have */
};

int reading_open(struct reading *r, struct step_queue *queue, struct err *err);
void reading_close(struct reading *r);

/* How many rows the next step may have, where somebody else waits for each piece. */
u32 reading_rows(const struct reading *r);
/* Makes ready what the next piece will be, given so many seconds, while others are at work. */
int reading_prepare(struct reading *r, double seconds, struct err *err);
/* What rests is given up. */
void reading_stop(struct reading *r);
/* Runs the next piece of the queue's step, which was filled before the first one: what can be done
 * in so many seconds, one layer at least. seconds 0: all the rest. *done: that was the last one. */
int reading_go_on(struct reading *r, double seconds, bool *done, struct err *err);

#endif
