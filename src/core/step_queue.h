/* The ordered steps of one program on one executor. A step can be submitted while the one before it
 * is still pending; its rows may then name tokens that nobody has read yet (STEP_CHOSEN), so that a
 * device need not wait for the host between two tokens.
 *
 * A pending step was submitted and not yet waited for. Several may share one queue:
 * step_queue_run first waits for all pending steps; their results stay in the pending_step until
 * its owner reads them. */
#ifndef FLETCH_STEP_QUEUE_H
#define FLETCH_STEP_QUEUE_H

#include "core/exec.h"

enum pending_state {
    PENDING_NEW,       /* never submitted */
    PENDING_SUBMITTED, /* and not waited for */
    PENDING_DONE,      /* ids are the tokens that its out rows chose */
    PENDING_FAILED,    /* err says why */
    N_PENDING_STATES,
};

struct request;

struct pending_step {
    enum pending_state state; /* changed by pending_step_set alone */
    i32 *ids;                 /* [max_out] */
    u32 n_out;
    struct err err;
    struct { /* the scheduler's (serve/batch.h) */
        struct step_queue *queue;
        struct request **owners; /* [max_out] whose each out row is; NULL: the request is gone */
        u32 n_rows, n_decode, n_prefill;
        u32 n_seqs;              /* that decode */
        double began, submitted; /* when its filling began, and when it was filled */
    } batch;
};

struct step_queue {
    struct exec *x; /* all borrowed; the tables of step are everybody's */
    const struct program *p;
    u32 handle;
    struct step *step;
    bool ahead;                      /* steps may be submitted while one is pending */
    struct pending_step *pending[2]; /* the older one first */
    u32 n_pending;
    const struct pending_step *last; /* the last step of all; NULL: it was run at once */
    u64 n_steps, n_ahead;            /* steps; those submitted before the one before was read */
    double idle, idle_since;         /* seconds between two steps with none pending; since when */
};

int pending_step_open(struct pending_step *p, const struct exec_limits *limits, struct err *err);
void pending_step_close(struct pending_step *p);
void pending_step_set(struct pending_step *p, enum pending_state to);

/* Makes ready what the first step of that shape would have to make while somebody waits for it. */
int step_queue_prepare(struct step_queue *q, struct step_shape shape, struct err *err);
/* The same for whole steps of at most n_rows decode rows. */
int step_queue_prepare_decode(struct step_queue *q, u32 n_rows, struct err *err);
/* Runs the queue's step, as it was filled, after all that was submitted. Where only some of its ops
 * are due (group_begin, group_end), the rest may follow after steps of other queues. */
int step_queue_run(struct step_queue *q, struct err *err);
/* Submits it as p. The step can be filled anew then. after: the pending step whose tokens its rows
 * name, which must be the last one; NULL: they name none. */
int step_queue_submit(struct step_queue *q, struct pending_step *p,
                      const struct pending_step *after, struct err *err);
/* Waits until p is done and says how it went. */
int step_queue_wait(struct step_queue *q, struct pending_step *p, struct err *err);
/* Waits for all pending steps. */
void step_queue_wait_all(struct step_queue *q);

/* Rows of a buffer as the last step left it; none is pending. */
int step_queue_read(const struct step_queue *q, struct operand what, u32 row, u32 n_rows,
                    float *dst, struct err *err);
/* The tokens that its first n out rows chose. */
int step_queue_ids(const struct step_queue *q, u32 n, i32 *ids, struct err *err);
/* A part of what the executor keeps, after all that was submitted (exec_class.move). */
int step_queue_move(struct step_queue *q, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                    struct err *err);

#endif
