#include "core/step_queue.h"

#include <stdlib.h>

#include "base/life.h"

void pending_step_set(struct pending_step *p, enum pending_state to)
{
    static const u32 next[N_PENDING_STATES] = {
        [PENDING_NEW] = LIFE(PENDING_SUBMITTED),
        [PENDING_SUBMITTED] = LIFE(PENDING_DONE) | LIFE(PENDING_FAILED),
        [PENDING_DONE] = LIFE(PENDING_SUBMITTED),
        [PENDING_FAILED] = LIFE(PENDING_SUBMITTED),
    };
    p->state = life_next(next, p->state, to);
}

int pending_step_open(struct pending_step *p, const struct exec_limits *limits, struct err *err)
{
    *p = (struct pending_step){.ids = calloc(limits->max_out, sizeof *p->ids)};
    p->batch.owners = calloc(limits->max_out, sizeof(struct request *));
    return p->ids && p->batch.owners ? 0 : err_nomem(err, "the steps");
}

void pending_step_close(struct pending_step *p)
{
    free(p->ids);
    free(p->batch.owners);
}

int step_queue_read(const struct step_queue *q, struct operand what, u32 row, u32 n_rows,
                    float *dst, struct err *err)
{
    return q->x->class->read(q->x, q->handle, what, row, n_rows, dst, err);
}

int step_queue_ids(const struct step_queue *q, u32 n, i32 *ids, struct err *err)
{
    const struct operand sampled = {q->p->sampled, 0, 1};
    return n ? step_queue_read(q, sampled, 0, n, (float *)(void *)ids, err) : 0;
}

static int start(struct step_queue *q, const struct pending_step *as, struct err *err)
{
    q->last = as;
    if (q->step->group_begin == 0) step_prepare(q->step);
    double began = base_now();
    int rc = q->x->class->submit(q->x, q->handle, q->step, err);
    if (rc) return rc;
    if (q->x->class->queues) began = base_now(); /* a device has it now */
    if (q->n_steps++ && !q->n_pending) q->idle += began - q->idle_since;
    return 0;
}

static int await(struct step_queue *q, struct err *err)
{
    int rc = q->x->class->wait(q->x, err);
    q->idle_since = base_now();
    return rc;
}

static void wait_oldest(struct step_queue *q)
{
    struct pending_step *p = q->pending[0];
    int rc = await(q, &p->err);
    if (!rc) rc = step_queue_ids(q, p->n_out, p->ids, &p->err);
    pending_step_set(p, rc ? PENDING_FAILED : PENDING_DONE);
    q->pending[0] = q->pending[1];
    q->n_pending--;
}

void step_queue_wait_all(struct step_queue *q)
{
    while (q->n_pending) wait_oldest(q);
}

int step_queue_prepare(struct step_queue *q, struct step_shape shape, struct err *err)
{
    return q->x->class->prepare ? q->x->class->prepare(q->x, q->handle, shape, err) : 0;
}

int step_queue_prepare_decode(struct step_queue *q, u32 n_rows, struct err *err)
{
    int rc = 0;
    n_rows = MIN(n_rows, q->step->limits.max_rows);
    for (u32 n = 1; !rc && n / 2 < n_rows; n *= 2)
        rc = step_queue_prepare(q, (struct step_shape){MIN(n, n_rows), 0, 0, UINT32_MAX}, err);
    return rc;
}

int step_queue_run(struct step_queue *q, struct err *err)
{
    step_queue_wait_all(q);
    int rc = start(q, NULL, err);
    return rc ? rc : await(q, err);
}

int step_queue_submit(struct step_queue *q, struct pending_step *p,
                      const struct pending_step *after, struct err *err)
{
    CHECK(q->n_pending < ARRAY_LEN(q->pending) && (!after || after == q->last));
    if (!after) step_queue_wait_all(q);
    int rc = start(q, p, err);
    if (rc) return rc;
    pending_step_set(p, PENDING_SUBMITTED);
    p->n_out = q->step->n_out;
    q->pending[q->n_pending++] = p;
    q->n_ahead += after != NULL;
    if (!q->x->class->queues)
        step_queue_wait_all(q); /* it is done already, and the next would hide it */
    return 0;
}

int step_queue_wait(struct step_queue *q, struct pending_step *p, struct err *err)
{
    while (p->state == PENDING_SUBMITTED) wait_oldest(q);
    if (p->state != PENDING_FAILED) return 0;
    *err = p->err;
    return err->code;
}

int step_queue_move(struct step_queue *q, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                    struct err *err)
{
    step_queue_wait_all(q);
    return q->x->class->move(q->x, part, index, dst, src, err);
}
