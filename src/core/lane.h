/* The steps of one program on one executor, one after another. A step can be queued while the one
 * before it is still on its way; its rows may then name tokens that nobody has read yet
 * (STEP_CHOSEN), so that a device need not wait for the host between two tokens.
 *
 * A step on its way is a flight, which belongs to whoever queued it. Several may use one lane: who
 * runs a step without queueing makes all flights land first, and their owners find what they gave
 * when they ask for it. */
#ifndef FLETCH_LANE_H
#define FLETCH_LANE_H

#include "core/exec.h"

struct flight {
    i32 *ids; /* [max_out] the tokens that its out rows chose, once it has landed */
    u32 n_out;
    bool landed;
    int rc;
    struct err err;
};

struct lane {
    struct exec *x; /* all borrowed; the tables of step are everybody's */
    const struct program *p;
    u32 handle;
    struct step *step;
    bool ahead;            /* steps may be queued ahead */
    struct flight *air[2]; /* on their way, the older one first */
    u32 n_air;
    const struct flight *last; /* the last step of all; NULL: it was no flight */
    /* Called once, before the next step overwrites what the last one left; NULL: nobody asked. */
    void (*save)(void *ctx);
    void *save_ctx;
    u64 n_steps, n_ahead;    /* steps; those queued before the one before was read */
    double idle, idle_since; /* seconds between two steps with none on its way; since when */
};

int flight_open(struct flight *f, const struct exec_limits *limits, struct err *err);
void flight_close(struct flight *f);

/* Makes ready what the first step of that shape would have to make while somebody waits for it. */
int lane_prepare(struct lane *l, struct step_shape shape, struct err *err);
/* The same for whole steps of answers, of so many rows at most. */
int lane_prepare_answers(struct lane *l, u32 n_rows, struct err *err);
/* Runs the lane's step, as it was filled, behind all that was queued. Where only some of its ops
 * are due (op_begin, op_end), the rest may follow after steps of other lanes. */
int lane_run(struct lane *l, struct err *err);
/* Queues it as f. The step can be filled anew then. after: the flight whose tokens its rows name,
 * which must be the last one; NULL: they name none. */
int lane_queue(struct lane *l, struct flight *f, const struct flight *after, struct err *err);
/* Waits until f has landed and says how it went. */
int lane_land(struct lane *l, struct flight *f, struct err *err);
/* Waits for all that are on their way. */
void lane_settle(struct lane *l);

/* Rows of a buffer as the last step left it; none is on its way. */
int lane_read(const struct lane *l, struct operand what, u32 row, u32 n_rows, float *dst,
              struct err *err);
/* The tokens that its first n out rows chose. */
int lane_ids(const struct lane *l, u32 n, i32 *ids, struct err *err);
/* A part of what the executor keeps, behind all that was queued (exec_class.move). */
int lane_move(struct lane *l, enum exec_part part, u32 index, u8 *dst, const u8 *src,
              struct err *err);

#endif
