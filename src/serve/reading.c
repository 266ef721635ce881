#include "serve/reading.h"

#include <stdlib.h>

enum {
    LEAST_ROWS = 16, /* fewer are hardly faster: weights are decoded for them all the same */
    FIRST_SHARE = 8, /* of the rows that fit, before anything was measured */
};

int reading_open(struct reading *r, struct step_queue *queue, struct err *err)
{
    *r = (struct reading){.queue = queue};
    if (!queue) return 0;
    const struct program *p = queue->p;
    r->rows = queue->step->limits.max_rows / FIRST_SHARE;
    r->cuts = calloc(p->n_groups + 1, sizeof *r->cuts);
    if (!r->cuts) return err_nomem(err, "the batch");
    for (u32 i = 0; i < p->n_groups; i++) {
        int before = i ? p->groups[i - 1].ops[0]->layer : 0;
        if (i == 0 || (p->groups[i].ops[0]->layer != before && before >= 0))
            r->cuts[r->n_cuts++] = i;
    }
    return 0;
}

void reading_close(struct reading *r)
{
    free(r->cuts);
}

u32 reading_rows(const struct reading *r)
{
    u32 most = r->queue->step->limits.max_rows;
    return MIN(MAX((u32)r->rows, MIN(LEAST_ROWS, most)), most);
}

/* Layers of the next piece. Pieces of 2, 4, 8 … begin at multiples of that, so that a device meets
 * few that differ: each is recorded once. What follows the layers is a piece of its own. */
static u32 piece(const struct reading *r, double seconds)
{
    u32 n_layers = r->n_cuts - 1, n = 1;
    if (r->at >= n_layers) return r->n_cuts - r->at;
    while (r->layer > 0 && 2 * n * r->layer <= seconds && r->at % (2 * n) == 0) n *= 2;
    return MIN(n, n_layers - r->at);
}

/* A layer took r->layer with so many rows. */
static void learn(struct reading *r, u32 n_rows, double seconds)
{
    double fit = seconds / MAX(r->layer, 1e-9);
    if (fit < 1)
        r->rows = MAX(n_rows * MAX(fit, 0.5), (double)LEAST_ROWS);
    else if (n_rows >= (u32)r->rows) /* twice the rows take at most twice as long */
        r->rows = MIN(r->rows * MIN(fit, 2), r->queue->step->limits.max_rows);
}

void reading_stop(struct reading *r)
{
    r->at = r->ready = 0;
}

int reading_prepare(struct reading *r, double seconds, struct err *err)
{
    r->ready = r->at ? piece(r, seconds) : 1;
    u32 end = r->at + r->ready;
    struct step_shape shape = {.n_p = r->at ? r->queue->step->n_rows : reading_rows(r),
                               .group_begin = r->cuts[r->at],
                               .group_end = end < r->n_cuts ? r->cuts[end] : UINT32_MAX};
    return step_queue_prepare(r->queue, shape, err);
}

int reading_go_on(struct reading *r, double seconds, bool *done, struct err *err)
{
    struct step *s = r->queue->step;
    if (!r->at) r->layer = 0;
    u32 n = r->n_cuts - r->at;
    if (seconds > 0) n = r->ready ? r->ready : piece(r, seconds);
    r->ready = 0;
    bool is_layers = r->at + n < r->n_cuts;
    s->group_begin = r->cuts[r->at];
    s->group_end = is_layers ? r->cuts[r->at + n] : UINT32_MAX;
    double began = base_now();
    int rc = step_queue_run(r->queue, err);
    if (seconds > 0 && is_layers) {
        r->layer = MAX((base_now() - began) / n, 0.9 * r->layer); /* slow ones may come again */
        if (n == 1) learn(r, s->n_rows, seconds);
    }
    *done = rc || !is_layers;
    r->at = *done ? 0 : r->at + n;
    return rc;
}
