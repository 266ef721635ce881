#include "engine/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/life.h"
#include "serve/sampling.h"

void session_set(struct fletch_session *s, enum session_state to)
{
    enum { REST = LIFE(SESSION_EMPTY) | LIFE(SESSION_RUNNING) };
    static const u32 next[N_SESSION_STATES] = {
        [SESSION_EMPTY] = REST,
        [SESSION_PARTIAL] = REST,
        [SESSION_READY] = REST,
        [SESSION_LOGITS] = REST,
        [SESSION_RUNNING] = LIFE(SESSION_EMPTY) | LIFE(SESSION_PARTIAL) | LIFE(SESSION_READY) |
                            LIFE(SESSION_LOGITS),
    };
    s->state = life_next(next, s->state, to);
}

int session_begin(struct fletch_session *s, enum session_state *was)
{
    *was = s->state; /* also when refused: some compilers can't tell that callers then end */
    if (s->state == SESSION_RUNNING)
        return err_set(&s->err, FLETCH_E_ARG,
                       "this session is busy: a callback cannot use the session that called it");
    session_set(s, SESSION_RUNNING);
    return 0;
}

static u32 *block_table(const struct fletch_session *s)
{
    struct step *step = s->model->step;
    return step->tables + (size_t)s->seq.slot * step->table_len;
}

/* ---- opening ---- */

void fletch_session_close(struct fletch_session *s)
{
    if (!s) return;
    struct fletch_model *m = s->model;
    fletch_session_reset(s);
    turns_take(&m->turns);
    batch_close(s->batch);
    m->slot_used[s->seq.slot] = false;
    turns_give(&m->turns);
    free(s->seq.tokens);
    free(s->seq.classes);
    free(s->pool.sum);
    free(s->logits);
    free(s);
}

/* A slot that nobody uses; n_sessions: there is none. */
static u32 take_slot(struct fletch_model *m)
{
    u32 slot = 0;
    turns_take(&m->turns);
    while (slot < m->n_sessions && m->slot_used[slot]) slot++;
    if (slot < m->n_sessions)
        m->slot_used[slot] = true;
    else
        err_set(&m->err, FLETCH_E_LIMIT, "all %u sessions of this model are open", m->n_sessions);
    turns_give(&m->turns);
    return slot;
}

static int open_batch(struct fletch_session *s)
{
    struct fletch_model *m = s->model;
    const struct batch_env env = {
        .queue = &m->queue, .kv = &m->kv, .slot_used = m->slot_used, .n_slots = 1, .spec = m->spec};
    turns_take(&m->turns);
    int rc = batch_open(&s->batch, &env,
                        &(struct fletch_batch_params){.max_waiting = 1, .no_reuse = true}, &m->err);
    turns_give(&m->turns);
    return rc;
}

int fletch_session_open(struct fletch_session **out, struct fletch_model *m)
{
    if (out) *out = NULL;
    if (!m) return FLETCH_E_ARG;
    int rc = engine_need(&m->err, out, "the address for the session");
    if (!rc) rc = engine_need_weights(m);
    if (rc) return rc;
    struct fletch_session *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(&m->err, "the session");
    s->model = m;
    s->seq.slot = take_slot(m);
    if (s->seq.slot == m->n_sessions) {
        free(s);
        return FLETCH_E_LIMIT;
    }
    size_t n = (size_t)m->limits.max_pos + 1; /* one that is drawn after a full context */
    s->seq.tokens = calloc(n, sizeof *s->seq.tokens);
    s->seq.classes = calloc(n, sizeof *s->seq.classes);
    s->logits = calloc(m->m->hp.n_vocab, sizeof *s->logits);
    rc = s->seq.tokens && s->seq.classes && s->logits ? open_batch(s)
                                                      : err_nomem(&m->err, "the session");
    if (rc) {
        fletch_session_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *fletch_session_error(const struct fletch_session *s)
{
    return s ? s->err.text : "no session";
}

uint32_t fletch_session_length(const struct fletch_session *s)
{
    return s ? s->seq.n : 0;
}

const int32_t *fletch_session_tokens(const struct fletch_session *s)
{
    return s ? s->seq.tokens : NULL;
}

void fletch_session_reset(struct fletch_session *s)
{
    if (!s) return;
    struct batch_seq *q = &s->seq;
    enum session_state was;
    if (session_begin(s, &was)) return;
    session_set(s, SESSION_EMPTY);
    turns_take(&s->model->turns);
    kv_release(&s->model->kv, block_table(s), &q->n_blocks);
    spec_rewind(s->model->spec, q->slot, 0);
    turns_give(&s->model->turns);
    q->n = q->n_fed = s->keep_at = 0;
    q->aside = false;
    s->pool.n = s->pool.n_tokens = 0;
    atomic_store(&s->cancelled, false);
}

void fletch_session_cancel(struct fletch_session *s)
{
    if (s) atomic_store(&s->cancelled, true);
}

/* ---- one request ---- */

/* Steps until the request is done. Others may use the model between two steps. */
static int run(struct fletch_session *s, u64 id)
{
    for (size_t n_live = 1; n_live;) {
        /* without memory for it: again after the next step */
        if (atomic_exchange(&s->cancelled, false) && batch_cancel(s->batch, id, &s->err))
            atomic_store(&s->cancelled, true);
        turns_take(&s->model->turns);
        n_live = batch_step(s->batch, 0);
        turns_give(&s->model->turns);
    }
    return 0;
}

/* What became of it: 0, or its error. */
static int outcome(struct fletch_session *s, const struct fletch_result *r)
{
    if (r->finish == FLETCH_FINISH_CANCELLED)
        return err_set(&s->err, FLETCH_E_CANCELLED, "cancelled");
    return r->finish == FLETCH_FINISH_FAILED ? err_set(&s->err, r->code, "%s", r->error) : 0;
}

/* A request of the scheduler's own, and what its rows give besides; all may be NULL. */
struct direct {
    struct fletch_session *s;
    float *all_logits; /* [n][n_vocab] */
    bool pools;        /* hidden states are added to the session's pool */
    i32 *token;
    const struct fletch_append *how; /* whose progress is told, of n tokens from `from` on */
    u32 from, n;
    int rc;
};

static int add_hidden(struct pool *p, const struct step_queue *queue, u32 n, struct err *err)
{
    u32 width = queue->p->net->d_model;
    struct operand what = {queue->p->hidden, 0, width};
    float *row = malloc(width * sizeof *row);
    int rc = row ? 0 : err_nomem(err, "the hidden state");
    for (u32 t = pool_first(p, n); !rc && t < n; t++) {
        rc = step_queue_read(queue, what, t, 1, row, err);
        if (!rc) pool_add(p, row, width);
    }
    free(row);
    return rc;
}

static int on_rows(void *ctx, const struct step_queue *queue, u32 n, struct err *err)
{
    struct direct *d = ctx;
    u32 n_vocab = queue->p->net->n_vocab, n_out = queue->step->n_out;
    struct operand logits = {queue->p->logits, 0, n_vocab};
    int rc = d->pools ? add_hidden(&d->s->pool, queue, n, err) : 0;
    if (!rc && n_out) rc = step_queue_read(queue, logits, n_out - 1, 1, d->s->logits, err);
    if (!rc && d->all_logits) rc = step_queue_read(queue, logits, 0, n, d->all_logits, err);
    if (d->all_logits) d->all_logits += (size_t)n * n_vocab;
    return rc;
}

static void on_reading(void *ctx, const struct fletch_reading *r)
{
    struct direct *d = ctx;
    if (!d->how || !d->how->progress || r->n_done <= d->from) return;
    u32 n = r->n_done - d->from + 1; /* the last token is computed when it is needed */
    if (d->how->progress(d->how->progress_ctx, MIN(n, d->n), d->n) && n < d->n)
        atomic_store(&d->s->cancelled, true);
}

static bool on_token(void *ctx, i32 token, const struct batch_logprobs *logprobs)
{
    (void)logprobs;
    *((struct direct *)ctx)->token = token;
    return true; /* it is not appended */
}

static void on_done(void *ctx, const struct fletch_result *result)
{
    struct direct *d = ctx;
    d->rc = outcome(d->s, result);
}

/* With the first n tokens. */
static int run_direct(struct direct *d, enum request_kind kind, u32 n,
                      const struct fletch_sampling *sampling)
{
    struct fletch_session *s = d->s;
    struct batch_request r = {.seq = &s->seq,
                              .n_tokens = n,
                              .max_tokens = 1,
                              .kind = kind,
                              .sampling = sampling ? *sampling : sampling_defaults(),
                              .on_reading = on_reading,
                              .on_token = on_token,
                              .on_done = on_done,
                              .ctx = d};
    u64 id;
    if (d->pools || kind == REQUEST_PREFILL_LOGITS) r.on_rows = on_rows;
    int rc = batch_submit(s->batch, &r, &id, &s->err);
    if (!rc) rc = run(s, id);
    return rc ? rc : d->rc;
}

static int prefill(struct direct *d, enum request_kind kind, u32 n)
{
    return d->s->seq.n_fed < n ? run_direct(d, kind, n, NULL) : 0;
}

int session_prefill(struct fletch_session *s, u32 n)
{
    return prefill(&(struct direct){.s = s}, REQUEST_PREFILL, n);
}

/* ---- appending ---- */

static int check_tokens(struct fletch_session *s, const i32 *tokens, size_t n)
{
    const struct fletch_model *m = s->model;
    int rc = engine_need_all(&s->err, tokens, n, "tokens");
    if (rc) return rc;
    if (n > m->limits.max_pos - s->seq.n)
        return err_set(&s->err, FLETCH_E_CONTEXT,
                       "%zu tokens do not fit: %u of %u tokens of the context are in use; set a "
                       "longer context with -c",
                       n, s->seq.n, m->limits.max_pos);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (u32)tokens[i] >= m->m->hp.n_vocab)
            return err_set(&s->err, FLETCH_E_ARG,
                           "token id %d is outside the model's vocabulary (0 to %u)",
                           (int)tokens[i], m->m->hp.n_vocab - 1);
    return 0;
}

/* All that was there and is new is computed, except the last token where nothing is read of it. */
static int compute(struct direct *d, u32 n_old)
{
    struct fletch_session *s = d->s;
    bool reads = d->all_logits || d->pools;
    u32 end = reads ? s->seq.n : s->seq.n - 1;
    int rc = reads && n_old ? session_prefill(s, n_old) : 0; /* reads new rows alone */
    if (!rc && !reads && s->seq.n_fed < s->keep_at && s->keep_at <= end) {
        rc = prefill(d, REQUEST_PREFILL, s->keep_at);
        if (!rc) session_keep(s, s->keep_at);
    }
    return rc ? rc : prefill(d, d->all_logits ? REQUEST_PREFILL_LOGITS : REQUEST_PREFILL, end);
}

/* Where an append was broken off, what was computed until then stays. */
static int append(struct direct *d, const i32 *tokens, size_t n)
{
    struct fletch_session *s = d->s;
    struct batch_seq *q = &s->seq;
    enum session_state was;
    int rc = session_begin(s, &was);
    if (rc) return rc;
    u32 n_old = q->n;
    if ((rc = check_tokens(s, tokens, n)) || !n) {
        session_set(s, was);
        return rc;
    }
    if (!d->pools) s->pool.n_tokens = SIZE_MAX; /* they are not in the pool: only a reset helps */
    memcpy(q->tokens + n_old, tokens, n * sizeof *tokens);
    memset(q->classes + n_old, ROW_P, n);
    d->from = n_old;
    d->n = (u32)n;
    q->n = n_old + d->n;
    rc = compute(d, n_old);
    if (rc) q->n = MAX(n_old, q->n_fed);
    bool drawable = !rc || q->n_fed < q->n;
    session_set(s, !q->n                  ? SESSION_EMPTY
                   : !drawable            ? SESSION_PARTIAL
                   : !rc && d->all_logits ? SESSION_LOGITS
                                          : SESSION_READY);
    return rc;
}

int fletch_session_append(struct fletch_session *s, const int32_t *tokens, size_t n,
                          const struct fletch_append *how)
{
    if (!s) return FLETCH_E_ARG;
    struct direct d = {.s = s, .how = how, .all_logits = how ? how->all_logits : NULL};
    return append(&d, tokens, n);
}

int session_append_pooled(struct fletch_session *s, const i32 *tokens, size_t n)
{
    return append(&(struct direct){.s = s, .pools = true}, tokens, n);
}

/* ---- what follows ---- */

/* The last token is one to compute, from which the next is drawn. A cache takes it again; a
 * recurrent state that has it cannot go back, and begins again. */
static int open_last(struct fletch_session *s, enum session_state was)
{
    struct batch_seq *q = &s->seq;
    if (was == SESSION_EMPTY || was == SESSION_PARTIAL)
        return err_set(&s->err, FLETCH_E_ARG, "nothing to continue: %s",
                       was == SESSION_PARTIAL ? "the prefill of the prompt is not complete"
                                              : "the prompt is empty");
    if (q->n_fed == q->n) q->n_fed = s->model->m->net->n_states ? 0 : q->n - 1;
    return 0;
}

const float *fletch_session_logits(struct fletch_session *s)
{
    enum session_state was;
    struct direct d = {.s = s};
    if (!s || session_begin(s, &was)) return NULL;
    if (was != SESSION_LOGITS) {
        int rc = open_last(s, was);
        if (!rc) rc = session_prefill(s, s->seq.n - 1);
        if (!rc) rc = prefill(&d, REQUEST_PREFILL_LOGITS, s->seq.n);
        if (!rc) was = SESSION_LOGITS;
    }
    session_set(s, was);
    return was == SESSION_LOGITS ? s->logits : NULL;
}

int fletch_session_sample(struct fletch_session *s, const struct fletch_sampling *sampling,
                          int32_t *token)
{
    enum session_state was;
    i32 id;
    struct direct d = {.s = s, .token = &id};
    if (!s) return FLETCH_E_ARG;
    if (!sampling) sampling = &s->model->sampling;
    int rc = engine_need(&s->err, token, "the address for the token");
    if (!rc) rc = engine_need_biases(&s->err, sampling);
    if (!rc) rc = session_begin(s, &was);
    if (rc) return rc;
    s->keep_at = 0; /* prefix files hold prompts only */
    rc = open_last(s, was);
    if (!rc) rc = run_direct(&d, REQUEST_GENERATE, s->seq.n, sampling);
    if (!rc) *token = id;
    session_set(s, was);
    return rc;
}

/* ---- generation ---- */

struct generation {
    struct fletch_session *s;
    const struct fletch_generate *g;
    struct fletch_generated *result;
    int rc;
};

/* Others may use the model while the caller looks at the text. */
static int tell(void *ctx, const struct fletch_token *t)
{
    const struct generation *x = ctx;
    if (!x->g->on_text) return 0;
    turns_give(&x->s->model->turns);
    int asked = x->g->on_text(x->g->ctx, t->id, t->text, t->n_text);
    turns_take(&x->s->model->turns);
    return asked;
}

static void end(void *ctx, const struct fletch_result *r)
{
    struct generation *x = ctx;
    *x->result = (struct fletch_generated){
        .n_tokens = r->n_generated, .n_drafted = r->n_drafted, .n_accepted = r->n_accepted};
    if (r->finish < FLETCH_FINISH_CANCELLED) x->result->finish = r->finish;
    x->rc = outcome(x->s, r);
}

static int generate(struct generation *x)
{
    const struct fletch_generate *g = x->g;
    struct fletch_session *s = x->s;
    struct fletch_request r = {.n_tokens = s->seq.n,
                               .tokens = s->seq.tokens,
                               .max_tokens = g->max_tokens,
                               .sampling = g->sampling,
                               .n_stops = g->n_stops,
                               .stops = g->stops,
                               .ignore_end = g->ignore_end,
                               .show_control = g->show_control,
                               .grammar = g->grammar,
                               .json_schema = g->json_schema,
                               .on_token = tell,
                               .on_done = end,
                               .ctx = x};
    u64 id;
    int rc = engine_submit(s->model, s->batch, &r, &s->seq, &id, &s->err);
    if (!rc) rc = run(s, id);
    return rc ? rc : x->rc;
}

int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *g,
                            struct fletch_generated *to)
{
    struct fletch_generated result = {0};
    enum session_state was;
    if (to) *to = result;
    if (!s) return FLETCH_E_ARG;
    const struct fletch_generate defaults = {.sampling = s->model->sampling};
    struct generation x = {.s = s, .g = g ? g : &defaults, .result = &result};
    int rc = session_begin(s, &was);
    if (rc) return rc;
    s->keep_at = 0; /* prefix files hold prompts only */
    rc = open_last(s, was);
    if (!rc && s->seq.n == s->model->limits.max_pos)
        result.finish = FLETCH_FINISH_CONTEXT;
    else if (!rc)
        rc = generate(&x);
    session_set(s, was == SESSION_LOGITS ? SESSION_READY : was);
    if (to) *to = result;
    return rc;
}
