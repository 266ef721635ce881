/* What the parts of the scheduler share: batch.c (requests come and go, steps are run),
 * batch_rows.c (who gets room and rows) and batch_deliver.c (what steps gave). */
#ifndef FLETCH_BATCH_INTERNAL_H
#define FLETCH_BATCH_INTERNAL_H

#include <pthread.h>

#include "serve/queue.h"
#include "serve/reading.h"

enum { MIN_BUDGET = 4 }; /* rows of prompts in steps of answers */

/* What a request that ended left behind, until the reading that writes there is done. */
struct remains {
    u32 slot, n_blocks;
};

/* A prefix that the folder of prefix files could not take at once. */
struct keep {
    u64 salt;
    i32 *tokens;
    u32 n;
};
enum { MAX_KEEPS = 32 };

struct batch {
    struct batch_env env;
    struct snap_pool snaps;
    bool reuses;
    u32 max_running, max_waiting;
    struct request **running; /* [max_running] in order of admission */
    u32 n_running;
    struct queue waiting;
    struct client *clients; /* [max_live] */
    u32 max_live;
    struct pending_step steps[2], *pending[2]; /* the older one first */
    u32 n_pending;
    struct reading reading;   /* of prompts, piece by piece */
    struct pending_step read; /* what it will give */
    struct remains *remains;  /* [max_running] */
    u32 n_remains;
    struct keep keeps[MAX_KEEPS]; /* the oldest first */
    u32 n_keeps;
    bool did_read;     /* prompts, behind the last step */
    bool guesser_read; /* what guesses had the last turn to read, while answers waited */
    float *logprobs;
    struct spec_seq *seqs; /* [max_running] */
    double warm_rows;      /* of REQUEST_WARM in a step */
    u64 n_admitted;
    double landed; /* when the last step did */
    double usual;  /* seconds of a step with answers only */
    double alone; /* the same of one that stood behind no piece of a prompt, with as many answers */
    u32 n_alone;  /* as this */
    double budget; /* rows of prompts in steps of answers */
    struct fletch_batch_stats stats;
    /* what other threads touch */
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct queue inbox;
    u64 *cancels; /* [cap_cancels] */
    u32 n_cancels, cap_cancels;
    bool woken; /* batch_wait has a reason to end besides those two */
    u32 n_live; /* requests that are not done */
    u64 last_id;
};

/* The block table of a slot. */
static inline u32 *batch_table(const struct batch *b, u32 slot)
{
    return b->env.queue->step->tables + (size_t)slot * b->env.queue->step->table_len;
}

/* Besides the last token, those that a recurrent model has to take in again after wrong guesses. */
static inline bool batch_answers(const struct request *r)
{
    return r->r.kind == REQUEST_GENERATE && r->n_fed >= r->n_prompt &&
           r->n_tokens - r->n_fed <= SPEC_MAX && !r->reads;
}

/* Guesses run on a copy of the recurrent state, which they may spoil. */
static inline bool batch_tries(const struct batch *b, const struct request *r)
{
    return r->n_draft && b->env.queue->p->net->n_states;
}

/* Others may be computed for; what is computed for later requests has to wait. */
static inline bool batch_is_warm(const struct request *r)
{
    return r->r.kind == REQUEST_WARM;
}

/* A snapshot there is neither at its end nor near a mark. */
static inline bool batch_is_spare(const struct request *r, u32 at)
{
    bool near = r->n_prompt - at <= SNAP_GRAIN;
    for (u32 i = 0; i < r->r.marks.n; i++) near |= r->r.marks.at[i] / SNAP_GRAIN * SNAP_GRAIN == at;
    return !near;
}

/* What the folder for later runs knows it by; whole pieces, and not its last token. */
static inline struct recall_seq batch_seq(const struct batch *b, struct request *r)
{
    const struct net *net = b->env.queue->p->net;
    return (struct recall_seq){
        r->r.cache_salt, r->tokens,         net->n_kv ? batch_table(b, r->slot) : NULL,
        &r->n_blocks,    net->n_states > 0, r->slot};
}

/* batch.c */
/* The end of a request, wherever it is. */
void batch_finish(struct batch *b, struct request *r, enum fletch_finish why,
                  const struct err *err);
/* A step of REQUEST_WARM took so long; how many rows the next one has. */
void batch_learn_warm(struct batch *b, const struct pending_step *p, double seconds);
/* It runs no more. What a reading at rest will still write for it must not become another's yet. */
void batch_leave_room(struct batch *b, struct request *r);

/* batch_rows.c */
/* Preempts REQUEST_WARM where anybody else is there. */
void batch_give_way(struct batch *b);
/* Starts the waiting requests that continue a sequence: they have their room already. */
void batch_resume(struct batch *b);
/* Room for the next token of everybody who runs. False: somebody would have to leave, which can't
 * be while a token is on its way to him or his prompt is being read. */
bool batch_grow(struct batch *b);
/* Drafts for those who answer. */
int batch_draft(struct batch *b, struct err *err);
/* There would be drafts, if all tokens were known. */
bool batch_would_draft(struct batch *b);
/* What guesses reads along, in so many seconds (spec_read). */
int batch_guesser_reads(struct batch *b, double seconds, bool *did, struct err *err);
/* The next rows of those who answer. */
void batch_fill_answers(struct batch *b, struct pending_step *p);
/* Rows of prompts, so many at most: of those who are at it, then of newcomers. */
void batch_fill_prompts(struct batch *b, struct pending_step *p, u32 most);

/* batch_keep.c */
/* Keeps what is behind n tokens of a prompt in the folder, now or later. */
void batch_keep(struct batch *b, struct request *r, u32 n);
/* Goes on with what is left of that, if the folder is free. */
void batch_keep_more(struct batch *b);
/* To its end, if nothing prevents it. */
void batch_keep_all(struct batch *b);

/* batch_deliver.c */
/* Says that so many tokens of a prompt are read. */
void batch_tell_reading(struct request *r, u32 n);
/* Tells what a step gave that has landed, and keeps what others may find. */
void batch_deliver(struct batch *b, struct pending_step *p);

#endif
