/* The scheduler: many requests on one model, one step at a time. It owns who waits, who runs, what
 * goes into the next step and who makes room when blocks run out; it knows tokens, not text.
 *
 * A request's tokens are a function of its prompt and settings alone: rows of its prompt are class
 * P and those of its answer class D whenever they are computed, also again after it gave its room
 * to others; blocks and states that it finds in the cache were computed from prompts too. */
#ifndef FLETCH_BATCH_H
#define FLETCH_BATCH_H

#include "core/step_queue.h"
#include "serve/automaton.h"
#include "serve/kv.h"
#include "serve/recall.h"
#include "serve/snap.h"
#include "serve/speculate.h"

/* What it runs on. All borrowed; the rest of the slots and blocks may be in use by others. */
struct batch_env {
    struct step_queue *queue;
    struct step_queue *reader; /* where prompts go through the model beside those of queue, on the
                            same executor (reading.h); NULL: they are rows of the same steps */
    struct kv_pool *kv;
    bool *slot_used;   /* [n_slots] */
    u32 n_slots;       /* for sequences; those behind them keep snapshots */
    struct spec *spec; /* NULL: nothing is guessed */
    struct recall recall;
};

struct batch_logprobs {
    u32 n; /* as asked for: the token's own first */
    const float *values;
    const i32 *top_ids; /* [n - 1] */
};

/* A sequence that outlives requests: each continues it and leaves it behind. Its slot and its
 * blocks are its own, and one request at a time uses it. */
struct batch_seq {
    u32 slot;
    i32 *tokens;  /* [max_pos + 1] */
    u8 *classes;  /* [max_pos + 1] enum row_class of each token, for when it is computed again */
    u32 n, n_fed; /* tokens; those that the cache or the recurrent state holds */
    u32 n_blocks; /* in the block table of its slot */
    bool aside;   /* where its recurrent state is (spec_slot) */
    struct spec_record record;
};

enum request_kind {
    REQUEST_GENERATE,
    REQUEST_PREFILL,        /* computes the first n_tokens of seq and draws nothing */
    REQUEST_PREFILL_LOGITS, /* the same; all rows have logits */
    /* Computes a prompt for later requests while there is nothing else to do, and draws nothing:
     * its whole blocks, or the state at their end. Any other request preempts it within a step. */
    REQUEST_WARM,
};

struct batch_request {
    const i32 *tokens; /* the prompt; borrowed during submit, as all pointers below */
    u32 n_tokens, max_tokens;
    struct batch_seq *seq; /* instead of tokens: what is continued, borrowed until on_done */
    enum request_kind kind;
    struct fletch_sampling sampling;
    struct constraint *constraint; /* NULL: any tokens; borrowed until on_done */
    u32 n_logprobs;
    u64 client;
    i32 priority;
    double timeout;
    u64 cache_salt;
    struct snap_marks marks;
    void (*on_reading)(void *ctx, const struct fletch_reading *reading); /* may be NULL */
    /* Of a prefill, after each step, whose rows can be read: how many there are. May be NULL. */
    int (*on_rows)(void *ctx, const struct step_queue *queue, u32 n, struct err *err);
    /* true: that was the last one, which seq is left without. */
    bool (*on_token)(void *ctx, i32 token, const struct batch_logprobs *logprobs);
    void (*on_done)(void *ctx, const struct fletch_result *result);
    void *ctx;
};

struct batch;

int batch_open(struct batch **out, const struct batch_env *env,
               const struct fletch_batch_params *params, struct err *err);
void batch_close(struct batch *b);
/* From any thread. */
int batch_submit(struct batch *b, const struct batch_request *r, u64 *id, struct err *err);
int batch_cancel(struct batch *b, u64 id, struct err *err);
void batch_wake(struct batch *b); /* ends batch_wait, or the next one */
/* Waits at most that many seconds for something to do. Other threads may use the step queue
 * meanwhile. */
void batch_wait(struct batch *b, double seconds);
/* From one thread; gives the number of requests that are not done. */
size_t batch_step(struct batch *b, double wait_seconds);
void batch_stats(const struct batch *b, struct fletch_batch_stats *stats);

/* Every request is in one place, every slot and block has the owners it should have; ends the
 * program otherwise. The tables of slots that others use are theirs. */
void batch_check(const struct batch *b);

#endif
