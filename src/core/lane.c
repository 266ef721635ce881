#include "core/lane.h"

#include <stdlib.h>

int flight_open(struct flight *f, const struct exec_limits *limits, struct err *err)
{
    *f = (struct flight){.ids = calloc(limits->max_out, sizeof *f->ids), .landed = true};
    return f->ids ? 0 : err_nomem(err, "the steps");
}

void flight_close(struct flight *f)
{
    free(f->ids);
}

int lane_read(const struct lane *l, struct operand what, u32 row, u32 n_rows, float *dst,
              struct err *err)
{
    return l->x->class->read(l->x, l->handle, what, row, n_rows, dst, err);
}

int lane_ids(const struct lane *l, u32 n, i32 *ids, struct err *err)
{
    const struct operand sampled = {l->p->sampled, 0, 1};
    return n ? lane_read(l, sampled, 0, n, (float *)(void *)ids, err) : 0;
}

static int start(struct lane *l, const struct flight *as, struct err *err)
{
    void (*save)(void *ctx) = l->save;
    l->save = NULL;
    if (save) save(l->save_ctx);
    l->last = as;
    if (l->step->op_begin == 0) step_prepare(l->step);
    double began = base_now();
    int rc = l->x->class->submit(l->x, l->handle, l->step, err);
    if (rc) return rc;
    if (l->x->class->queues) began = base_now(); /* a device has it now */
    if (l->n_steps++ && !l->n_air) l->idle += began - l->idle_since;
    return 0;
}

static int await(struct lane *l, struct err *err)
{
    int rc = l->x->class->wait(l->x, err);
    l->idle_since = base_now();
    return rc;
}

static void land_oldest(struct lane *l)
{
    struct flight *f = l->air[0];
    f->rc = await(l, &f->err);
    if (!f->rc) f->rc = lane_ids(l, f->n_out, f->ids, &f->err);
    f->landed = true;
    l->air[0] = l->air[1];
    l->n_air--;
}

void lane_settle(struct lane *l)
{
    while (l->n_air) land_oldest(l);
}

int lane_prepare(struct lane *l, struct step_shape shape, struct err *err)
{
    return l->x->class->prepare ? l->x->class->prepare(l->x, l->handle, shape, err) : 0;
}

int lane_prepare_answers(struct lane *l, u32 n_rows, struct err *err)
{
    int rc = 0;
    n_rows = MIN(n_rows, l->step->limits.max_rows);
    for (u32 n = 1; !rc && n / 2 < n_rows; n *= 2)
        rc = lane_prepare(l, (struct step_shape){MIN(n, n_rows), 0, 0, UINT32_MAX}, err);
    return rc;
}

int lane_run(struct lane *l, struct err *err)
{
    lane_settle(l);
    int rc = start(l, NULL, err);
    return rc ? rc : await(l, err);
}

int lane_queue(struct lane *l, struct flight *f, const struct flight *after, struct err *err)
{
    CHECK(f->landed && l->n_air < ARRAY_LEN(l->air) && (!after || after == l->last));
    if (!after) lane_settle(l);
    int rc = start(l, f, err);
    if (rc) return rc;
    f->n_out = l->step->n_out;
    f->landed = false;
    l->air[l->n_air++] = f;
    l->n_ahead += after != NULL;
    if (!l->x->class->queues) lane_settle(l); /* it is done already, and the next would hide it */
    return 0;
}

int lane_land(struct lane *l, struct flight *f, struct err *err)
{
    while (!f->landed) land_oldest(l);
    if (f->rc) *err = f->err;
    return f->rc;
}

int lane_move(struct lane *l, enum exec_part part, u32 index, u8 *dst, const u8 *src,
              struct err *err)
{
    lane_settle(l);
    return l->x->class->move(l->x, part, index, dst, src, err);
}
