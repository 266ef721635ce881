/* Requests as the scheduler sees them, and whose turn it is. Of those who wait, the highest
 * priority comes first, then the client that has had least computed for it, then the oldest. Time
 * spent waiting raises a priority, so that nobody waits for ever. */
#ifndef FLETCH_QUEUE_H
#define FLETCH_QUEUE_H

#include "serve/batch.h"

enum { QUEUE_AGE = 256 }; /* steps of waiting that count as one of priority */

struct client {
    u64 key, rows; /* rows computed for it, from where others stood when it came */
    u32 n_live;    /* its requests that are not done; 0: this entry is unused */
};

struct request {
    struct request *next; /* in a queue */
    u64 id;
    struct batch_request r; /* tokens and biases point to copies, right behind this */
    struct client *client;
    i32 *tokens; /* [room] the prompt, then the answer */
    u32 n_prompt, n_tokens, room;
    u32 slot, n_fed, n_blocks; /* while it runs: tokens computed, blocks held */
    u32 n_published;           /* blocks that are findable */
    bool kept;                 /* in the folder for later runs */
    u32 n_told;                /* tokens of the prompt that on_reading knows of */
    u32 snap_at;               /* a snapshot is due when n_fed is there; 0: none */
    u32 n_draft;               /* draft tokens after the others that the next step tries */
    u32 n_rows;                /* that it has in the step that was filled last */
    u32 n_settled;             /* tokens computed before the step that was filled last */
    bool reads;                /* that step is one of prompts, which is not done */
    u32 n_due, out;            /* tokens on their way to it; out row of the last one that asks */
    bool aside;                /* its recurrent state is in the other slot (spec_slot) */
    struct spec_record record; /* of its guesses */
    u64 order;                 /* of admission; 0: it waits */
    u64 waits_since;           /* step */
    struct fletch_result result;
    double t_submit;
};

struct queue {
    struct request *head, **tail;
    u32 n;
};

void queue_init(struct queue *q);
void queue_put(struct queue *q, struct request *r);
void queue_remove(struct queue *q, struct request *r);
/* Whose turn it is at this step; NULL: nobody waits. */
struct request *queue_next(const struct queue *q, u64 step);

/* The client of that key, made if need be. [n] entries, one for every request there can be. */
struct client *client_find(struct client *clients, u32 n, u64 key);

#endif
