#include "serve/batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "serve/batch_internal.h"
#include "serve/sampling.h"

enum {
    DEFAULT_WAITING = 1024,
    FIRST_BUDGET = 32,    /* rows of prompts in steps of answers, before anything was measured */
    SLOW_TO_LEARN = 1024, /* steps */
    LEAST_WARM = 16,      /* rows of a step of REQUEST_WARM */
};

/* Of a step of answers alone: what a piece of a prompt may take, less what the step takes longer
 * beside it; and what it may take in any case. */
#define READING_SHARE 0.6
#define LEAST_SHARE   0.2
/* Seconds of a step of REQUEST_WARM, which is what another request waits for at most. */
#define WARM_SECONDS 0.05

/* ---- opening ---- */

static int open_step(struct pending_step *p, struct step_queue *queue, struct err *err)
{
    int rc = pending_step_open(p, &queue->step->limits, err);
    p->batch.queue = queue;
    return rc;
}

int batch_open(struct batch **out, const struct batch_env *env,
               const struct fletch_batch_params *params, struct err *err)
{
    const struct exec_limits *l = &env->queue->step->limits;
    struct batch *b = *out = calloc(1, sizeof *b);
    if (!b) return err_nomem(err, "the batch");
    pthread_mutex_init(&b->lock, NULL);
    os_cond_init(&b->came);
    queue_init(&b->waiting);
    queue_init(&b->inbox);
    b->env = *env;
    b->max_running = MIN(MIN(env->n_slots, l->max_out), l->max_rows);
    b->max_waiting = params && params->max_waiting ? params->max_waiting : DEFAULT_WAITING;
    b->max_live = b->max_waiting + b->max_running;
    b->reuses = !(params && params->no_reuse);
    b->budget = FIRST_BUDGET;
    b->warm_rows = LEAST_WARM;
    b->running = calloc(b->max_running, sizeof *b->running);
    b->clients = calloc(b->max_live, sizeof *b->clients);
    b->seqs = calloc(b->max_running, sizeof *b->seqs);
    b->logprobs = calloc(1 + 2 * SAMPLE_MAX_TOP, sizeof *b->logprobs);
    b->remains = calloc(b->max_running, sizeof *b->remains);
    u32 n_trials = env->spec ? env->n_slots : 0; /* slots behind the snapshots */
    u32 n_snaps =
        b->reuses && env->queue->p->net->n_states ? l->n_slots - env->n_slots - n_trials : 0;
    int rc = snap_open(&b->snaps, n_snaps, env->n_slots, err);
    if (!rc) rc = reading_open(&b->reading, env->reader, err);
    for (u32 i = 0; !rc && i < ARRAY_LEN(b->steps); i++)
        rc = open_step(&b->steps[i], env->queue, err);
    if (!rc && env->reader) rc = open_step(&b->read, env->reader, err);
    if (!rc && (!b->running || !b->clients || !b->seqs || !b->logprobs || !b->remains))
        rc = err_nomem(err, "the batch");
    if (rc) {
        batch_close(b);
        *out = NULL;
    }
    return rc;
}

/* ---- requests come and go ---- */

static int check_request(const struct batch *b, const struct batch_request *r, struct err *err)
{
    const struct step *s = b->env.queue->step;
    u32 n_vocab = s->net->n_vocab, max_pos = s->limits.max_pos;
    if (!r->n_tokens) return err_set(err, FLETCH_E_ARG, "the prompt is empty");
    for (u32 i = 0; !r->seq && i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || (u32)r->tokens[i] >= n_vocab)
            return err_set(err, FLETCH_E_ARG,
                           "token id %d is outside the model's vocabulary (0 to %u)",
                           (int)r->tokens[i], n_vocab - 1);
    if (!r->seq && r->n_tokens >= max_pos)
        return err_set(err, FLETCH_E_CONTEXT,
                       "a prompt of %u tokens leaves no room for an answer in the context of %u",
                       r->n_tokens, max_pos);
    u64 most = MIN((u64)max_pos, (u64)r->n_tokens + (r->max_tokens ? r->max_tokens : max_pos));
    if (!r->seq && s->net->n_kv && kv_blocks_for(b->env.kv, most) > b->env.kv->n_blocks)
        return err_set(err, FLETCH_E_CONTEXT,
                       "prompt and answer take %llu tokens, more than the cache's %llu",
                       (unsigned long long)most,
                       (unsigned long long)b->env.kv->n_blocks * b->env.kv->block_tokens);
    if (r->n_logprobs > 1 + SAMPLE_MAX_TOP)
        return err_set(err, FLETCH_E_ARG, "logprobs are limited to %d tokens", SAMPLE_MAX_TOP);
    if (r->kind == REQUEST_WARM) return 0;
    return sampling_check(&r->sampling, n_vocab, err);
}

/* One allocation: the request, its tokens unless they are a sequence's, its biases. */
static struct request *copy_request(const struct batch *b, const struct batch_request *from)
{
    u32 max_pos = b->env.queue->step->limits.max_pos, n = from->n_tokens;
    /* what can be found again, and one more, because a state is kept before the row behind it */
    if (from->kind == REQUEST_WARM) n = (n - 1) / SNAP_GRAIN * SNAP_GRAIN + 1;
    u32 room = from->max_tokens && from->max_tokens < max_pos - n ? n + from->max_tokens : max_pos;
    size_t n_bias = from->sampling.n_bias, n_own = from->seq ? 0 : room;
    struct request *r =
        calloc(1, sizeof *r + n_own * sizeof(i32) + n_bias * (sizeof(i32) + sizeof(float)));
    if (!r) return NULL;
    i32 *bias_tokens = (i32 *)(void *)(r + 1);
    float *bias_values = (float *)(void *)(bias_tokens + n_bias);
    r->r = *from;
    r->tokens = from->seq ? from->seq->tokens : (i32 *)(void *)(bias_values + n_bias);
    if (!from->seq) memcpy(r->tokens, from->tokens, n * sizeof(i32));
    if (n_bias) {
        memcpy(bias_tokens, from->sampling.bias_tokens, n_bias * sizeof(i32));
        memcpy(bias_values, from->sampling.bias_values, n_bias * sizeof(float));
    }
    r->r.sampling.bias_tokens = bias_tokens;
    r->r.sampling.bias_values = bias_values;
    r->r.tokens = NULL;
    r->n_prompt = r->n_tokens = n;
    r->room = room;
    r->t_submit = base_now();
    r->result =
        (struct fletch_result){.n_prompt = n, .error = "", .reuse_end = "the request has not run"};
    return r;
}

int batch_submit(struct batch *b, const struct batch_request *from, u64 *id, struct err *err)
{
    CHECK(!from->seq || !b->env.reader); /* what rests would write there after its end */
    int rc = check_request(b, from, err);
    if (rc) return rc;
    struct request *r = copy_request(b, from);
    if (!r) return err_nomem(err, "the request");
    pthread_mutex_lock(&b->lock);
    bool full = b->n_live >= b->max_live;
    if (!full) {
        b->n_live++;
        *id = r->id = r->result.id = ++b->last_id;
        queue_put(&b->inbox, r);
        pthread_cond_signal(&b->came);
    }
    pthread_mutex_unlock(&b->lock);
    if (!full) return 0;
    free(r);
    return err_set(err, FLETCH_E_LIMIT, "the queue is full with %u requests; try again later",
                   b->max_waiting);
}

int batch_cancel(struct batch *b, u64 id, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    if (b->n_cancels == b->cap_cancels) {
        u32 cap = b->cap_cancels * 2 + 16;
        u64 *more = realloc(b->cancels, cap * sizeof *more);
        if (more) {
            b->cancels = more;
            b->cap_cancels = cap;
        } else {
            rc = err_nomem(err, "the cancellation");
        }
    }
    if (!rc) b->cancels[b->n_cancels++] = id;
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

void batch_wake(struct batch *b)
{
    pthread_mutex_lock(&b->lock);
    b->woken = true;
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
}

/* Gives back slot and blocks; full blocks of the prompt stay findable. */
static void give_room(struct batch *b, u32 slot, u32 *n_blocks)
{
    kv_release(b->env.kv, batch_table(b, slot), n_blocks);
    spec_rewind(b->env.spec, slot, 0);
    b->env.slot_used[slot] = false;
}

/* The sequence that a request continued goes on from where it ends now. Draft tokens that were
 * accepted but are not wanted any more are not in it. A recurrent state that has them is left for
 * the one before that trial. */
static void leave_seq(struct batch *b, const struct request *r, enum fletch_finish why)
{
    struct batch_seq *q = r->r.seq;
    if (r->r.kind == REQUEST_GENERATE) {
        memset(q->classes + r->n_prompt, ROW_D, r->n_tokens - r->n_prompt);
        q->n = r->n_tokens - (why == FLETCH_FINISH_ASKED);
    }
    bool undo = b->env.queue->p->net->n_states && r->n_fed > q->n;
    q->n_fed = undo ? r->n_settled : MIN(r->n_fed, q->n);
    q->aside = r->aside ^ undo;
    q->n_blocks = r->n_blocks;
    q->record = r->record;
    bool broken_off = r->r.kind != REQUEST_GENERATE && q->n_fed < r->n_prompt;
    spec_rewind(b->env.spec, q->slot, broken_off ? q->n_fed : q->n);
}

void batch_leave_room(struct batch *b, struct request *r)
{
    u32 i = 0;
    if (r->reads)
        b->remains[b->n_remains++] = (struct remains){r->slot, r->n_blocks};
    else if (!r->r.seq)
        give_room(b, r->slot, &r->n_blocks);
    while (b->running[i] != r) i++;
    b->n_running--;
    memmove(b->running + i, b->running + i + 1, (b->n_running - i) * sizeof *b->running);
    r->n_fed = r->n_published = r->snap_at = r->n_draft = r->n_due = r->n_blocks = 0;
    r->aside = r->reads = false;
    r->order = 0;
}

/* What comes for it is nobody's. Its rows may write where others stand by then, but before them. */
static void forget(struct batch *b, const struct request *r)
{
    for (u32 i = 0; i < b->n_pending; i++)
        for (u32 j = 0; j < b->pending[i]->n_out; j++)
            if (b->pending[i]->batch.owners[j] == r) b->pending[i]->batch.owners[j] = NULL;
    for (u32 j = 0; r->reads && j < b->read.n_out; j++)
        if (b->read.batch.owners[j] == r) b->read.batch.owners[j] = NULL;
}

/* The reading is over: its rows are in the executor, or never will be. */
static void end_reading(struct batch *b)
{
    reading_stop(&b->reading);
    for (u32 i = 0; i < b->n_running; i++) b->running[i]->reads = false;
    while (b->n_remains) {
        struct remains *left = &b->remains[--b->n_remains];
        give_room(b, left->slot, &left->n_blocks);
    }
}

/* Nobody is interested in what is on its way. */
static void drop(struct batch *b)
{
    if (b->n_pending) step_queue_wait_all(b->env.queue);
    b->n_pending = 0;
    end_reading(b);
}

void batch_finish(struct batch *b, struct request *r, enum fletch_finish why, const struct err *err)
{
    forget(b, r);
    if (!r->r.seq) spec_end(b->env.spec, &r->record);
    if (r->order && r->r.seq) leave_seq(b, r, why);
    if (r->order)
        batch_leave_room(b, r);
    else
        queue_remove(&b->waiting, r);
    r->client->n_live--;
    r->result.finish = why;
    r->result.code = why == FLETCH_FINISH_FAILED ? err->code : 0;
    r->result.error = why == FLETCH_FINISH_FAILED ? err->text : "";
    r->result.n_generated = r->n_tokens - r->n_prompt;
    bool whole = why <= FLETCH_FINISH_ASKED || r->result.n_generated;
    r->result.n_read = whole ? r->n_prompt : MIN(r->n_told, r->n_prompt);
    r->result.n_drafted = r->record.n_drafted;
    r->result.n_accepted = r->record.n_accepted;
    r->result.seconds = base_now() - r->t_submit;
    b->stats.n_done++;
    b->stats.n_failed += why == FLETCH_FINISH_FAILED;
    pthread_mutex_lock(&b->lock);
    b->n_live--;
    pthread_mutex_unlock(&b->lock);
    r->r.on_done(r->r.ctx, &r->result);
    free(r);
}

static struct request *find(const struct batch *b, u64 id)
{
    for (u32 i = 0; i < b->n_running; i++)
        if (b->running[i]->id == id) return b->running[i];
    struct request *r = b->waiting.head;
    while (r && r->id != id) r = r->next;
    return r;
}

static void take_in(struct batch *b, struct request *r)
{
    queue_remove(&b->inbox, r);
    r->client = client_find(b->clients, b->max_live, r->r.client);
    r->client->n_live++;
    r->waits_since = b->stats.n_steps;
    queue_put(&b->waiting, r);
}

/* What came from other threads since the last step, requests before what cancels them. Callbacks
 * may submit and cancel, so none is called with the lock held. */
static void take_mail(struct batch *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->inbox.head || b->n_cancels) {
        if (b->inbox.head) {
            take_in(b, b->inbox.head);
            continue;
        }
        struct request *r = find(b, b->cancels[--b->n_cancels]);
        if (!r) continue;
        pthread_mutex_unlock(&b->lock);
        batch_finish(b, r, FLETCH_FINISH_CANCELLED, NULL);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

static struct request *overdue(const struct batch *b, double t)
{
    for (u32 i = 0; i < b->n_running; i++)
        if (b->running[i]->r.timeout > 0 && t - b->running[i]->t_submit > b->running[i]->r.timeout)
            return b->running[i];
    for (struct request *r = b->waiting.head; r; r = r->next)
        if (r->r.timeout > 0 && t - r->t_submit > r->r.timeout) return r;
    return NULL;
}

void batch_close(struct batch *b)
{
    if (!b) return;
    if (b->clients) take_mail(b);
    while (b->n_running) batch_finish(b, b->running[0], FLETCH_FINISH_CANCELLED, NULL);
    while (b->waiting.head) batch_finish(b, b->waiting.head, FLETCH_FINISH_CANCELLED, NULL);
    drop(b);
    batch_keep_all(b);
    if (b->reuses) kv_forget(b->env.kv);
    snap_close(&b->snaps);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->came);
    free(b->running);
    free(b->clients);
    for (u32 i = 0; i < ARRAY_LEN(b->steps); i++) pending_step_close(&b->steps[i]);
    pending_step_close(&b->read);
    reading_close(&b->reading);
    free(b->remains);
    free(b->seqs);
    free(b->logprobs);
    free(b->cancels);
    free(b);
}

/* ---- running it ---- */

/* What the host does with a token before the next step can be filled. */
static bool needs_token(const struct request *r)
{
    return r->r.constraint || r->r.n_logprobs || sampling_looks_back(&r->r.sampling);
}

static bool has_answers(const struct batch *b)
{
    for (u32 i = 0; i < b->n_running; i++)
        if (batch_answers(b->running[i])) return true;
    return false;
}

/* There are prompts to read, and room for them as far as one can tell. */
static bool wants_reading(const struct batch *b)
{
    for (u32 i = 0; i < b->n_running; i++)
        if (!batch_answers(b->running[i])) return true;
    const struct request *next = queue_next(&b->waiting, b->stats.n_steps);
    if (!next || (batch_is_warm(next) && b->n_running)) return false;
    return b->n_running + b->n_remains < b->max_running;
}

/* All that the next step needs is known before the one on its way has landed. */
static bool can_go_ahead(struct batch *b)
{
    const struct step_queue *l = b->env.queue;
    bool keeps_states = b->env.recall.store && l->p->net->n_states; /* right behind their step */
    if (!l->ahead || keeps_states || b->n_pending != 1 || l->last != b->pending[0]) return false;
    if (b->env.reader && wants_reading(b)) return false; /* its turn is right behind that one */
    for (u32 i = 0; i < b->n_running; i++) {
        const struct request *r = b->running[i];
        if (r->r.on_rows || r->n_draft || batch_is_warm(r) || (r->n_due && needs_token(r)))
            return false;
        if (r->r.seq && l->p->net->n_states) return false; /* its state could not go back */
    }
    return !batch_would_draft(b) && batch_grow(b);
}

/* Rows of prompts that a step takes besides its answers. */
static u32 prompt_rows(const struct batch *b, const struct pending_step *p)
{
    u32 most = p->batch.queue->step->limits.max_rows - p->batch.n_decode;
    if (!p->batch.n_decode) return most;
    return b->guesser_read ? 0 : MIN(most, (u32)b->budget);
}

/* Steps are slower where pieces of a prompt are read between them, because of caches, and those who
 * answer must not wait longer for that. Answers grow longer meanwhile: hence not never. */
static void learn_alone(struct batch *b, u32 n_answers, double seconds)
{
    double slow = b->did_read ? SLOW_TO_LEARN : 8;
    b->alone = n_answers == b->n_alone ? b->alone + (seconds - b->alone) / slow : seconds;
    b->n_alone = n_answers;
}

/* Prompts may make a step at most twice as long as those who answer are used to. But where weights
 * are decoded for rows of prompts, a few rows take almost as long as many: less than a sixteenth of
 * a whole step would make prompts slow and answers hardly faster. */
static void learn(struct batch *b, const struct pending_step *p, double seconds)
{
    u32 max_rows = b->env.queue->step->limits.max_rows, least = MIN_BUDGET;
    if (b->env.queue->p->net->profile.bf16) least = MAX(least, max_rows / 16);
    if (!p->batch.n_decode) return;
    if (!p->batch.n_prefill) {
        b->usual = b->usual > 0 ? b->usual + (seconds - b->usual) / 8 : seconds;
        learn_alone(b, p->batch.n_decode, seconds);
        return;
    }
    if (b->usual <= 0) return;
    if (seconds > 2 * b->usual)
        b->budget = MAX((double)least, b->budget * 0.7);
    else if (seconds < 1.7 * b->usual && p->batch.n_prefill >= (u32)b->budget)
        b->budget = MIN((double)max_rows, b->budget * 1.1 + 1);
}

void batch_learn_warm(struct batch *b, const struct pending_step *p, double seconds)
{
    bool alone = b->n_running == 1 && batch_is_warm(b->running[0]) && !p->batch.n_decode;
    u32 n = p->batch.n_prefill, most = b->env.queue->step->limits.max_rows;
    if (!alone || !n) return;
    double fit = n * WARM_SECONDS / MAX(seconds, 1e-6);
    if (fit < b->warm_rows || n >= (u32)b->warm_rows) b->warm_rows = MIN(fit, 2 * b->warm_rows);
    b->warm_rows = MAX(MIN(b->warm_rows, (double)most), MIN((double)LEAST_WARM, (double)most));
}

static void count_step(struct batch *b, const struct pending_step *p)
{
    b->stats.n_steps++;
    b->stats.n_answer_rows += p->batch.n_decode;
    b->stats.n_prompt_rows += p->batch.n_prefill;
    b->stats.n_mixed += p->batch.n_decode && p->batch.n_prefill;
}

/* ---- prompts beside answers ---- */

/* Fills a step of prompts for the reader, where one is due. */
static bool begin_reading(struct batch *b)
{
    struct step *s = b->read.batch.queue->step;
    if (!wants_reading(b)) return false;
    step_reset(s);
    batch_fill_prompts(b, &b->read,
                       has_answers(b) ? reading_rows(&b->reading) : s->limits.max_rows);
    b->read.n_out = s->n_out;
    if (s->n_rows) count_step(b, &b->read);
    return s->n_rows > 0;
}

/* The next piece of the reading, in so many seconds; 0: to its end, whoever waits. */
static int read_on(struct batch *b, double seconds, struct err *err)
{
    bool done;
    double began = base_now();
    b->stats.n_mixed += has_answers(b);
    int rc = reading_go_on(&b->reading, seconds, &done, err);
    if (rc || !done) return rc;
    batch_learn_warm(b, &b->read, base_now() - began);
    rc = step_queue_ids(b->read.batch.queue, b->read.n_out, b->read.ids, err);
    if (!rc) rc = spec_follow(b->env.spec, b->read.batch.queue, err);
    if (rc) return rc;
    b->guesser_read = false; /* its rows are next */
    end_reading(b);
    batch_deliver(b, &b->read);
    return 0;
}

/* What a piece of a reading may take. */
static double share(const struct batch *b)
{
    double least = MIN(b->usual, b->alone), left = (1 + READING_SHARE) * b->alone - b->usual;
    return MAX(MIN(MAX(left, LEAST_SHARE * least), READING_SHARE * least), 1e-9);
}

/* While a step is on its way: what will be read behind it is made ready. */
static int prepare_reading(struct batch *b, struct err *err)
{
    if (!b->env.reader || !(b->reading.at || wants_reading(b))) return 0;
    int rc = reading_prepare(&b->reading, share(b), err);
    return rc ? rc : spec_prepare(b->env.spec, share(b), err);
}

/* Between two steps prompts are read, such that a token of those who answer takes at most twice as
 * long: by the model and by what guesses tokens, in turns. False in *did: there are none. */
static int read_prompts(struct batch *b, bool *did, struct err *err)
{
    bool beside = has_answers(b);
    double seconds = beside ? share(b) : 0;
    int rc = 0;
    *did = false;
    if (!b->guesser_read || !wants_reading(b)) rc = batch_guesser_reads(b, seconds, did, err);
    b->guesser_read = *did && beside;
    if (rc || b->guesser_read || !b->env.reader) return rc;
    if (!b->reading.at && !begin_reading(b)) return 0;
    *did = true;
    return read_on(b, seconds, err);
}

/* ---- steps ---- */

/* Fills the next step and queues it, if there is anything to do. */
static int launch(struct batch *b, struct err *err)
{
    struct step_queue *l = b->env.queue;
    struct pending_step *before = b->n_pending ? b->pending[0] : NULL;
    struct pending_step *p = before == b->steps ? b->steps + 1 : b->steps;
    int rc = 0;
    p->batch.began = base_now();
    step_reset(l->step);
    batch_resume(b);
    if (!before && !batch_grow(b) && !(rc = read_on(b, 0, err))) CHECK(batch_grow(b));
    if (!rc && !before) rc = batch_draft(b, err);
    step_reset(l->step);
    if (!rc) batch_fill_answers(b, p);
    if (!rc && !b->env.reader) batch_fill_prompts(b, p, prompt_rows(b, p));
    if (rc || !l->step->n_rows) return rc;
    p->batch.n_rows = l->step->n_rows;
    p->batch.submitted = base_now();
    rc = step_queue_submit(l, p, before, err);
    if (!rc) b->pending[b->n_pending++] = p;
    b->stats.n_ahead += before != NULL;
    count_step(b, p);
    return rc;
}

void batch_wait(struct batch *b, double seconds)
{
    if (b->n_keeps) seconds = MIN(seconds, 0.01);
    if (b->n_running || b->waiting.head || seconds <= 0) return;
    double until = base_now() + MIN(seconds, 1e6);
    pthread_mutex_lock(&b->lock);
    while (!b->inbox.head && !b->n_cancels && !b->woken)
        if (!os_cond_wait(&b->came, &b->lock, until)) break;
    b->woken = false;
    pthread_mutex_unlock(&b->lock);
}

/* Sequences that a step decodes: those with out rows, where it has no others. */
static u32 n_decoded(const struct batch *b, const struct pending_step *p)
{
    u32 n = 0;
    if (!b->env.spec || !p->batch.n_decode) return 0;
    for (u32 i = 0; i < p->n_out; i++)
        n += !i || !p->batch.owners[i] || p->batch.owners[i] != p->batch.owners[i - 1];
    return n;
}

/* Waits for the older of the steps on their way, and hands out what it gave. */
static int land(struct batch *b, struct err *err)
{
    struct pending_step *p = b->pending[0];
    int rc = step_queue_wait(b->env.queue, p, err);
    double landed_before = b->landed, now = base_now(),
           began = MAX(p->batch.began, b->landed); /* not before the one before it */
    b->landed = now;
    b->pending[0] = b->pending[--b->n_pending];
    if (!rc) rc = spec_follow(b->env.spec, b->env.queue, err);
    if (rc) return rc;
    learn(b, p, now - began);
    p->batch.n_seqs = n_decoded(b, p);
    if (b->env.spec && p->batch.n_seqs && !p->batch.n_prefill)
        spec_measure(b->env.spec, (struct spec_step){p->batch.n_seqs, p->batch.n_decode},
                     now - MAX(p->batch.submitted, landed_before));
    batch_learn_warm(b, p, now - began);
    batch_deliver(b, p);
    return 0;
}

size_t batch_step(struct batch *b, double wait_seconds)
{
    struct request *late;
    struct err err = {0};
    batch_wait(b, wait_seconds);
    take_mail(b);
    double now = base_now();
    while ((late = overdue(b, now))) batch_finish(b, late, FLETCH_FINISH_TIMEOUT, NULL);
    batch_give_way(b);
    int rc = b->n_pending ? 0 : launch(b, &err);
    if (!rc && can_go_ahead(b)) rc = launch(b, &err);
    bool stands = !b->n_pending, read = false;
    if (!rc && b->n_pending) rc = prepare_reading(b, &err);
    if (!rc && b->n_pending) rc = land(b, &err);
    if (!rc && !b->n_pending) rc = read_prompts(b, &read, &err);
    b->did_read = read;
    if (!rc && stands && !read && b->waiting.head) { /* nobody runs, and still there is no room */
        err_set(&err, FLETCH_E_LIMIT, "open sessions use the cache blocks that this request needs");
        batch_finish(b, queue_next(&b->waiting, b->stats.n_steps), FLETCH_FINISH_FAILED, &err);
    }
    if (rc || (!b->n_running && !b->waiting.head)) drop(b);
    if (!rc) batch_keep_more(b);
    /* what lies in the executor's memory now is anybody's guess */
    while (rc && b->n_running) {
        b->running[0]->n_fed = 0;
        batch_finish(b, b->running[0], FLETCH_FINISH_FAILED, &err);
    }
    pthread_mutex_lock(&b->lock);
    size_t n_live = b->n_live;
    pthread_mutex_unlock(&b->lock);
    return n_live;
}

void batch_stats(const struct batch *b, struct fletch_batch_stats *stats)
{
    *stats = b->stats;
    stats->n_warming = 0;
    for (u32 i = 0; i < b->n_running; i++) stats->n_warming += batch_is_warm(b->running[i]);
    stats->n_running = b->n_running - stats->n_warming;
    stats->n_waiting = b->waiting.n;
    stats->n_blocks = b->env.kv->n_blocks;
    stats->n_free = b->env.kv->n_free;
    stats->n_idle = b->env.kv->n_idle;
    stats->n_evicted = b->env.kv->n_evicted;
    stats->n_unwritten = store_failures(b->env.recall.store);
    stats->prompt_budget = b->env.reader ? reading_rows(&b->reading) : (u32)b->budget;
}

void batch_check(const struct batch *b)
{
    u32 n_live = b->inbox.n, n = 0;
    for (u32 i = 0; i < b->n_running; i++) {
        const struct request *r = b->running[i];
        CHECK(r->order && r->n_due <= b->n_pending + r->reads);
        CHECK(r->n_fed < r->n_tokens + r->n_due + (r->r.kind != REQUEST_GENERATE));
        CHECK(!r->reads || b->reading.at);
        CHECK(r->n_tokens + r->n_due <= r->room);
        CHECK(b->env.slot_used[r->slot] && (!i || b->running[i - 1]->order < r->order));
        for (u32 j = 0; j < i; j++) CHECK(b->running[j]->slot != r->slot);
        if (b->env.queue->p->net->n_kv) CHECK(r->n_blocks >= kv_blocks_for(b->env.kv, r->n_fed));
        n_live++;
    }
    for (const struct request *r = b->waiting.head; r; r = r->next, n++)
        CHECK(!r->order && !r->n_blocks && !r->n_fed && n < b->waiting.n);
    CHECK(n == b->waiting.n && n_live + n == b->n_live);
    u32 of_clients = 0;
    for (u32 i = 0; i < b->max_live; i++) of_clients += b->clients[i].n_live;
    CHECK(of_clients == b->n_running + b->waiting.n);
    u32 n_all = b->n_running + b->n_remains;
    const u32 **tables = calloc(n_all + 1, sizeof *tables);
    u32 *n_held = calloc(n_all + 1, sizeof *n_held);
    CHECK(tables && n_held && (!b->n_remains || b->reading.at));
    for (u32 i = 0; i < n_all; i++) {
        struct remains of = i < b->n_running
                                ? (struct remains){b->running[i]->slot, b->running[i]->n_blocks}
                                : b->remains[i - b->n_running];
        CHECK(b->env.slot_used[of.slot]);
        tables[i] = batch_table(b, of.slot);
        n_held[i] = of.n_blocks;
    }
    kv_check(b->env.kv, tables, n_held, n_all);
    free(tables);
    free(n_held);
}
