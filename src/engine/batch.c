/* Batches behind the public interface: the scheduler's tokens become text. */
#include "serve/batch.h"

#include <stdlib.h>
#include <string.h>

#include "engine/constrain.h"
#include "engine/engine.h"
#include "engine/outlet.h"

struct fletch_batch {
    struct fletch_model *model;
    struct batch *b;
    bool reads; /* by the model's reader */
};

/* The last failure of the calling thread, and the batch that it is about. Requests come from any
 * thread, and each must be able to read why its own was refused. */
static _Thread_local struct {
    const struct fletch_batch *batch;
    struct err err;
} failure;

static struct err *batch_error_of(const struct fletch_batch *b)
{
    if (failure.batch != b) {
        failure.batch = b;
        failure.err = (struct err){0};
    }
    return &failure.err;
}

/* What a request needs besides its tokens; lives from submit to its end. */
struct job {
    struct fletch_model *model;
    struct fletch_request r; /* the callbacks, and what ends it */
    struct outlet outlet;
    struct constrained constrained;
    bool ended, stopped;
    char *stops[]; /* [r.n_stops], then their texts */
};

int fletch_batch_open(struct fletch_batch **out, struct fletch_model *m,
                      const struct fletch_batch_params *params)
{
    if (out) *out = NULL;
    if (!m) return FLETCH_E_ARG;
    int rc = engine_need(&m->err, out, "the address for the batch");
    if (!rc) rc = engine_need_weights(m);
    if (rc) return rc;
    struct fletch_batch *b = *out = calloc(1, sizeof *b);
    if (!b) return err_nomem(&m->err, "the batch");
    b->model = m;
    failure.batch = NULL; /* may have been another at the same place */
    turns_take(&m->turns);
    struct batch_env env = {.queue = &m->queue,
                            .kv = &m->kv,
                            .slot_used = m->slot_used,
                            .n_slots = m->n_sessions,
                            .spec = m->spec,
                            .recall = m->recall};
    if (m->reader.step && !m->reader_used) env.reader = &m->reader; /* it serves one at a time */
    u32 n_rows = MIN(m->n_sessions, m->limits.max_out) * (m->spec ? 1 + SPEC_MAX : 1);
    rc = step_queue_prepare_decode(&m->queue, n_rows, &m->err);
    if (!rc) rc = batch_open(&b->b, &env, params, &m->err);
    b->reads = !rc && env.reader;
    m->reader_used |= b->reads;
    turns_give(&m->turns);
    if (rc) {
        free(b);
        *out = NULL;
    }
    return rc;
}

void fletch_batch_close(struct fletch_batch *b)
{
    if (!b) return;
    turns_take(&b->model->turns);
    batch_close(b->b);
    if (b->reads) b->model->reader_used = false;
    turns_give(&b->model->turns);
    free(b);
}

const char *fletch_batch_error(const struct fletch_batch *b)
{
    return b ? batch_error_of(b)->text : "no batch";
}

static void job_free(struct job *j)
{
    constrain_end(&j->constrained, j->model);
    outlet_close(&j->outlet);
    free(j);
}

/* ---- what the scheduler tells ---- */

static bool tell(struct job *j, i32 id, struct str text, const struct batch_logprobs *l)
{
    struct fletch_token t = {.id = id, .text = text.p, .n_text = text.n};
    if (l && l->n) {
        t.logprob = l->values[0];
        t.n_top = l->n - 1;
        t.top_ids = l->top_ids;
        t.top_logprobs = l->values + 1;
    }
    return j->r.on_token && j->r.on_token(j->r.ctx, &t);
}

static bool on_token(void *ctx, i32 id, const struct batch_logprobs *logprobs)
{
    struct job *j = ctx;
    struct str text;
    if (!j->r.ignore_end && j->outlet.tok && tok_is_eog(j->outlet.tok, id)) {
        j->ended = true;
        return true;
    }
    j->stopped = outlet_feed(&j->outlet, id, &text);
    bool asked = tell(j, id, text, logprobs);
    return j->stopped || asked;
}

static void on_reading(void *ctx, const struct fletch_reading *reading)
{
    struct job *j = ctx;
    j->r.on_reading(j->r.ctx, reading);
}

static void on_done(void *ctx, const struct fletch_result *from)
{
    struct job *j = ctx;
    struct fletch_result result = *from;
    struct str text;
    if (j->ended) {
        result.finish = FLETCH_FINISH_END;
        result.n_generated--; /* the end itself is nothing that was said */
    }
    if (j->stopped) {
        result.finish = FLETCH_FINISH_STOP;
        result.stop = j->outlet.stop;
    }
    if (!j->stopped && result.finish != FLETCH_FINISH_ASKED) {
        outlet_flush(&j->outlet, &text);
        if (text.n) tell(j, -1, text, NULL);
    }
    if (j->outlet.held.failed && result.finish != FLETCH_FINISH_FAILED) {
        result.finish = FLETCH_FINISH_FAILED;
        result.code = FLETCH_E_NOMEM;
        result.error = "out of memory for the text";
    }
    if (j->r.on_done) j->r.on_done(j->r.ctx, &result);
    job_free(j);
}

/* ---- requests ---- */

static struct job *job_new(struct fletch_model *m, const struct fletch_request *r)
{
    size_t bytes = 0, at;
    for (size_t i = 0; i < r->n_stops; i++) bytes += strlen(r->stops[i]) + 1;
    struct job *j = calloc(1, sizeof *j + r->n_stops * sizeof *j->stops + bytes);
    if (!j) return NULL;
    j->model = m;
    j->r = *r;
    char *texts = (char *)(j->stops + r->n_stops);
    for (size_t i = 0; i < r->n_stops; i++, texts += at) {
        at = strlen(r->stops[i]) + 1;
        j->stops[i] = memcpy(texts, r->stops[i], at);
    }
    j->outlet = (struct outlet){.tok = m->m->vocab->tok,
                                .n_stops = r->n_stops,
                                .show_control = r->show_control,
                                .stops = (const char *const *)j->stops};
    return j;
}

static int check_pointers(const struct fletch_request *r, struct err *err)
{
    int rc = engine_need(err, r, "the request");
    if (!rc) rc = engine_need_all(err, r->tokens, r->n_tokens, "tokens");
    if (!rc) rc = engine_need_all(err, r->marks, r->n_marks, "marks");
    if (!rc) rc = engine_need_stops(err, r->stops, r->n_stops);
    return rc ? rc : engine_need_biases(err, &r->sampling);
}

int engine_submit(struct fletch_model *m, struct batch *b, const struct fletch_request *r,
                  struct batch_seq *seq, u64 *id, struct err *err)
{
    int rc = check_pointers(r, err);
    if (rc) return rc;
    struct job *j = job_new(m, r);
    if (!j) return err_nomem(err, "the request");
    rc = constrain_begin(&j->constrained, m, r->grammar, r->json_schema, err);
    if (!rc && j->constrained.place && r->ignore_end)
        rc = err_set(err, FLETCH_E_ARG,
                     "ignore_end cannot be combined with a grammar or JSON schema");
    struct batch_request request = {.tokens = r->tokens,
                                    .n_tokens = (u32)MIN(r->n_tokens, (size_t)UINT32_MAX),
                                    .seq = seq,
                                    .kind = r->warm ? REQUEST_WARM : REQUEST_GENERATE,
                                    .max_tokens = r->warm ? 1 : r->max_tokens,
                                    .sampling = r->sampling,
                                    .constraint = j->constrained.place,
                                    .n_logprobs = r->n_logprobs,
                                    .client = r->client,
                                    .priority = r->priority,
                                    .timeout = r->timeout,
                                    .cache_salt = r->cache_salt,
                                    .on_reading = r->on_reading ? on_reading : NULL,
                                    .on_token = on_token,
                                    .on_done = on_done,
                                    .ctx = j};
    for (size_t i = 0; i < MIN(r->n_marks, (size_t)FLETCH_MARKS); i++)
        request.marks.at[request.marks.n++] = r->marks[i];
    if (!rc) rc = batch_submit(b, &request, id, err);
    if (rc) job_free(j);
    return rc;
}

int fletch_batch_submit(struct fletch_batch *b, const struct fletch_request *r, uint64_t *id)
{
    struct err err = {0};
    u64 unused;
    if (!b) return FLETCH_E_ARG;
    int rc = engine_submit(b->model, b->b, r, NULL, id ? id : &unused, &err);
    if (rc) *batch_error_of(b) = err;
    return rc;
}

int fletch_batch_cancel(struct fletch_batch *b, uint64_t id)
{
    return b ? batch_cancel(b->b, id, batch_error_of(b)) : FLETCH_E_ARG;
}

void fletch_batch_wake(struct fletch_batch *b)
{
    if (b) batch_wake(b->b);
}

size_t fletch_batch_step(struct fletch_batch *b, double wait_seconds)
{
    if (!b) return 0;
    batch_wait(b->b, wait_seconds);
    turns_take(&b->model->turns);
    size_t n_live = batch_step(b->b, 0);
    turns_give(&b->model->turns);
    return n_live;
}

void fletch_batch_stats(const struct fletch_batch *b, struct fletch_batch_stats *stats)
{
    if (!stats) return;
    *stats = (struct fletch_batch_stats){0};
    if (!b) return;
    turns_take(&b->model->turns);
    batch_stats(b->b, stats);
    turns_give(&b->model->turns);
}

void engine_batch_check(const struct fletch_batch *b)
{
    batch_check(b->b);
}
