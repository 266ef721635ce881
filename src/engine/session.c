/* Sessions: one timeline of tokens, fed in chunks, each chunk one step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sample.h"
#include "engine/constrain.h"
#include "engine/outlet.h"
#include "engine/session.h"
#include "serve/sampling.h"

static u32 *block_table(const struct fletch_session *s)
{
    struct step *step = s->model->step;
    return step->tables + (size_t)s->slot * step->table_len;
}

void fletch_session_close(struct fletch_session *s)
{
    if (!s) return;
    fletch_session_reset(s);
    turns_take(&s->model->turns);
    s->model->slot_used[s->slot] = false;
    turns_give(&s->model->turns);
    free(s->tokens);
    free(s->logits);
    free(s->scratch.z);
    free(s->scratch.order);
    free(s->edits);
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

int fletch_session_open(struct fletch_session **out, struct fletch_model *m)
{
    if (out) *out = NULL;
    if (!m) return FLETCH_E_ARG;
    int rc = engine_need(&m->err, out, "the address for the session");
    if (!rc) rc = engine_need_weights(m);
    if (rc) return rc;
    u32 n_vocab = m->m->hp.n_vocab;
    struct fletch_session *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(&m->err, "the session");
    s->model = m;
    s->slot = take_slot(m);
    if (s->slot == m->n_sessions) {
        free(s);
        return FLETCH_E_LIMIT;
    }
    s->tokens = calloc(m->limits.max_pos, sizeof *s->tokens);
    s->logits = calloc(n_vocab, sizeof *s->logits);
    s->scratch.z = calloc(n_vocab, sizeof *s->scratch.z);
    s->scratch.order = calloc(n_vocab, sizeof *s->scratch.order);
    s->edits = calloc(SAMPLE_MAX_EDITS, sizeof *s->edits);
    if (!s->tokens || !s->logits || !s->scratch.z || !s->scratch.order || !s->edits) {
        fletch_session_close(s);
        return err_nomem(&m->err, "the session");
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
    return s ? s->n : 0;
}

void fletch_session_reset(struct fletch_session *s)
{
    if (!s) return;
    turns_take(&s->model->turns);
    kv_release(&s->model->kv, block_table(s), &s->n_blocks);
    spec_rewind(s->model->spec, s->slot, 0);
    turns_give(&s->model->turns);
    s->n = s->n_settled = s->keep_at = 0;
    s->aside = false;
    s->fresh = s->owed = false;
    atomic_store(&s->cancelled, false);
}

void fletch_session_cancel(struct fletch_session *s)
{
    if (s) atomic_store(&s->cancelled, true);
}

/* What a feed wants back besides the logits of the last row; all may be NULL. */
struct wants {
    float *all_logits;  /* [n][n_vocab] */
    double *hidden_sum; /* [n_embd] */
};

static int check_tokens(struct fletch_session *s, const i32 *tokens, size_t n)
{
    const struct fletch_model *m = s->model;
    int rc = engine_need_all(&s->err, tokens, n, "tokens");
    if (rc) return rc;
    if (n > m->limits.max_pos - s->n)
        return err_set(&s->err, FLETCH_E_CONTEXT,
                       "%zu tokens do not fit: %u of %u tokens of the context are in use; set a "
                       "longer context with -c",
                       n, s->n, m->limits.max_pos);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (u32)tokens[i] >= m->m->hp.n_vocab)
            return err_set(&s->err, FLETCH_E_ARG,
                           "token id %d is outside the model's vocabulary (0 to %u)",
                           (int)tokens[i], m->m->hp.n_vocab - 1);
    return 0;
}

static int add_hidden(struct fletch_session *s, u32 n_rows, double *sum)
{
    struct fletch_model *m = s->model;
    u32 d = m->m->hp.d_model;
    struct operand what = {m->trunk->hidden, 0, d};
    float *row = malloc(d * sizeof *row);
    int rc = row ? 0 : err_nomem(&s->err, "the hidden state");
    for (u32 t = 0; !rc && t < n_rows; t++) {
        rc = step_queue_read(&m->queue, what, t, 1, row, &s->err);
        for (u32 i = 0; !rc && i < d; i++) sum[i] += (double)row[i];
    }
    free(row);
    return rc;
}

static int read_logits(struct fletch_session *s, u32 row, u32 n, float *to, struct err *err)
{
    struct fletch_model *m = s->model;
    struct operand logits = {m->trunk->logits, 0, m->m->hp.n_vocab};
    return step_queue_read(&m->queue, logits, row, n, to, err);
}

static int read_results(struct fletch_session *s, u32 n, const struct wants *wants)
{
    struct fletch_model *m = s->model;
    u32 n_out = m->step->n_out;
    int rc = 0;
    if (wants->all_logits) rc = read_logits(s, 0, n, wants->all_logits, &s->err);
    if (!rc && n_out) rc = read_logits(s, n_out - 1, 1, s->logits, &s->err);
    if (!rc && wants->hidden_sum) rc = add_hidden(s, n, wants->hidden_sum);
    s->fresh = !rc && n_out;
    return rc;
}

/* Guesses behind the first n tokens, at most most of them; what guesses reads along in any case. */
static int guess(struct fletch_session *s, u32 n, u32 most, const struct fletch_sampling *sampling,
                 u32 *n_draft)
{
    struct fletch_model *m = s->model;
    struct spec_seq q = {
        .slot = s->slot, .tokens = s->tokens, .n = n, .sampling = sampling, .record = &s->record};
    *n_draft = 0;
    if (!m->spec) return 0;
    if (most) spec_choose(m->spec, &q, 1, false);
    q.most = MIN(q.most, most);
    if (m->limits.n_blocks && !kv_cover(&m->kv, block_table(s), &s->n_blocks, (u64)n + q.most))
        q.most = 0;
    int rc = spec_catch_up(m->spec, &q, 1, &s->err);
    if (!rc) rc = spec_draft(m->spec, &q, 1, &s->err);
    *n_draft = q.n_draft;
    return rc;
}

int session_settle(struct fletch_session *s)
{
    struct fletch_model *m = s->model;
    int rc = 0;
    while (!rc && m->m->net->n_states && s->n_settled < s->n) {
        u32 slot = spec_slot(m->spec, s->slot, s->aside), at = s->n_settled;
        step_reset(m->step);
        while (at < s->n && step_add(m->step, (struct row){s->tokens[at], slot, at, ROW_D}, false))
            at++;
        rc = step_queue_run(&m->queue, &s->err);
        if (!rc) s->n_settled = at;
    }
    return rc;
}

/* One step with the next n tokens. */
static int feed_chunk(struct fletch_session *s, const i32 *tokens, u32 n, bool last,
                      const struct wants *wants)
{
    struct fletch_model *m = s->model;
    struct step *step = m->step;
    u32 slot = spec_slot(m->spec, s->slot, s->aside), none;
    s->fresh = s->unread = s->owed = false;
    if (m->limits.n_blocks && !kv_cover(&m->kv, block_table(s), &s->n_blocks, (u64)s->n + n))
        return err_set(&s->err, FLETCH_E_CONTEXT, "no cache blocks are left");
    memcpy(s->tokens + s->n, tokens, n * sizeof *tokens);
    int rc = session_settle(s);
    if (!rc) rc = guess(s, s->n + n, 0, NULL, &none);
    if (rc) return rc;
    step_reset(step);
    if (s->n == 0) CHECK(step_edit(step, EDIT_ZERO_STATE, slot, 0));
    for (u32 i = 0; i < n; i++) {
        bool want = wants->all_logits || (last && i + 1 == n);
        CHECK(step_add(step, (struct row){tokens[i], slot, s->n + i, ROW_P}, want));
    }
    rc = step_queue_run(&m->queue, &s->err);
    if (!rc) rc = read_results(s, n, wants);
    if (!rc) rc = spec_follow(m->spec, &m->queue, &s->err);
    if (!rc) s->n_settled = s->n += n;
    return rc;
}

static int feed(struct fletch_session *s, const i32 *tokens, size_t n, struct wants wants)
{
    u32 chunk = wants.all_logits ? s->model->limits.max_out : s->model->limits.max_rows;
    int rc = check_tokens(s, tokens, n);
    for (size_t i = 0; !rc && i < n;) {
        if (atomic_exchange(&s->cancelled, false))
            return err_set(&s->err, FLETCH_E_CANCELLED, "cancelled");
        u32 k = (u32)MIN((size_t)chunk, n - i);
        if (s->n < s->keep_at) k = MIN(k, s->keep_at - s->n);
        turns_take(&s->model->turns);
        rc = feed_chunk(s, tokens + i, k, i + k == n, &wants);
        if (!rc && s->n == s->keep_at) session_keep(s);
        turns_give(&s->model->turns);
        if (wants.all_logits) wants.all_logits += (size_t)k * s->model->m->hp.n_vocab;
        i += k;
    }
    return rc;
}

int fletch_session_append(struct fletch_session *s, const int32_t *tokens, size_t n,
                          float *all_logits)
{
    return s ? feed(s, tokens, n, (struct wants){.all_logits = all_logits}) : FLETCH_E_ARG;
}

int fletch_session_embed(struct fletch_session *s, const int32_t *tokens, size_t n, float *out)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    if (!s) return FLETCH_E_ARG;
    u32 d = s->model->m->hp.d_model;
    enum pooling pooling = s->model->m->hp.pooling;
    int rc = engine_need(&s->err, out, "the address for the embedding");
    if (rc) return rc;
    if (n == 0) return err_set(&s->err, FLETCH_E_ARG, "nothing to embed");
    const char *other = s->model->m->hp.pooling_other;
    if (*other)
        return err_set(&s->err, FLETCH_E_UNSUPPORTED,
                       "this model's embeddings require %s, which is not supported; fletch "
                       "computes the mean of all tokens",
                       other);
    if (pooling != POOLING_NONE && pooling != POOLING_MEAN)
        return err_set(&s->err, FLETCH_E_UNSUPPORTED,
                       "this model's embeddings require pooling_type %u (%s), which is not "
                       "supported; fletch computes the mean of all tokens",
                       pooling, names[pooling]);
    double *sum = calloc(d, sizeof *sum);
    rc = sum ? feed(s, tokens, n, (struct wants){.hidden_sum = sum})
             : err_nomem(&s->err, "the embedding");
    for (u32 i = 0; !rc && i < d; i++) {
        out[i] = (float)(sum[i] / (double)n);
        if (!isfinite(out[i])) rc = sampling_result(SAMPLE_BAD, s->n - 1, &s->err);
    }
    free(sum);
    return rc;
}

/* The logits after the last token, which are computed again where they are owed. */
static int have_logits(struct fletch_session *s)
{
    struct fletch_model *m = s->model;
    if (!s->owed) return 0;
    const struct row last = {s->tokens[s->n - 1], s->slot, s->n - 1, ROW_D};
    step_reset(m->step);
    CHECK(step_add(m->step, last, true));
    int rc = step_queue_run(&m->queue, &s->err);
    if (!rc) rc = read_logits(s, 0, 1, s->logits, &s->err);
    s->fresh = !rc;
    s->owed = rc;
    return rc;
}

const float *fletch_session_logits(struct fletch_session *s)
{
    if (!s) return NULL;
    turns_take(&s->model->turns);
    int rc = have_logits(s);
    turns_give(&s->model->turns);
    return !rc && s->fresh ? s->logits : NULL;
}

/* From the logits that are here; mask: the tokens to choose from, NULL: all. */
static int sample(struct fletch_session *s, const struct fletch_sampling *sampling, const u32 *mask,
                  i32 *token)
{
    int rc = have_logits(s);
    if (rc) return rc;
    if (!s->fresh)
        return err_set(&s->err, FLETCH_E_ARG, "nothing to continue: %s",
                       s->n ? "the prefill of the prompt is not complete" : "the prompt is empty");
    u32 n_vocab = s->model->m->hp.n_vocab;
    if ((rc = engine_need_biases(&s->err, sampling))) return rc;
    if ((rc = sampling_check(sampling, n_vocab, &s->err))) return rc;
    struct sample_row row;
    sampling_row(sampling, s->tokens, s->n, &row, s->edits);
    row.masked = mask != NULL;
    const struct sample_in in = {
        .logits = s->logits, .n_vocab = n_vocab, .position = s->n, .edits = s->edits, .mask = mask};
    *token = sample_token(&row, &in, &s->scratch);
    return 0;
}

int fletch_session_sample(struct fletch_session *s, const struct fletch_sampling *sampling,
                          int32_t *token)
{
    i32 id;
    if (!s) return FLETCH_E_ARG;
    int rc = engine_need(&s->err, token, "the address for the token");
    if (rc) return rc;
    turns_take(&s->model->turns);
    rc = sample(s, sampling ? sampling : &s->model->sampling, NULL, &id);
    turns_give(&s->model->turns);
    if (!rc) rc = sampling_result(id, s->n, &s->err);
    if (!rc) *token = id;
    return rc;
}

/* ---- generation ---- */

/* Tokens that a step gave: right guesses, which the session has been fed with already, and one that
 * it has not; and the steps that will give more. */
struct given {
    i32 *ids; /* of steps[older] */
    u32 n_right, at;
    struct constraint *constraint;
    struct pending_step steps[2];
    i32 chosen[2][SPEC_MAX + 1];
    u32 older, n_pending; /* steps on their way: the first one has the last token as its row */
    u32 n_draft;          /* guesses that it tries, */
    bool trial;           /* on a copy of the recurrent state */
    double queued;
};

/* Guesses behind a new token, as many as pay and fit. */
static int plan_decode(struct fletch_session *s, const struct fletch_generate *g, u32 n_left,
                       u32 *n_draft)
{
    struct fletch_model *m = s->model;
    u32 again = m->m->net->n_states ? s->n - s->n_settled : 0, n = s->n + 1;
    u32 most = MIN(m->limits.max_out, m->limits.max_rows - MIN(again, m->limits.max_rows));
    if (m->limits.n_blocks && !kv_cover(&m->kv, block_table(s), &s->n_blocks, n))
        return err_set(&s->err, FLETCH_E_CONTEXT, "no cache blocks are left");
    if (!most || again > SPEC_MAX) {
        int rc = session_settle(s);
        if (rc) return rc;
    }
    most = MIN(MIN(most ? most - 1 : 0, n_left - 1), m->limits.max_pos - n);
    return guess(s, n, again > SPEC_MAX / 2 ? 0 : most, &g->sampling, n_draft);
}

/* How many guesses were right, and where that leaves the session. */
static int judge(struct fletch_session *s, struct given *to)
{
    struct fletch_model *m = s->model;
    u32 n = s->n + 1, n_right = 0;
    int rc = 0;
    for (; !rc && n_right < to->n_draft; n_right++) {
        i32 expected = s->tokens[n + n_right], *token = &to->ids[n_right];
        rc = spec_judge(m->spec, n_right, n_right, expected, token, &s->err);
        if (*token != expected) break;
    }
    if (rc) return rc;
    if (to->n_draft) spec_count(&s->record, to->n_draft, n_right);
    s->n_before = s->n_settled;
    if (!to->trial || n_right == to->n_draft) s->n_settled = n + n_right;
    s->aside ^= to->trial && n_right == to->n_draft;
    to->n_right = n_right;
    to->at = 0;
    s->n_unread = n;
    s->unread = true;
    s->n = n;
    return 0;
}

static int queue_step(struct fletch_session *s, struct given *to)
{
    struct pending_step *older = &to->steps[to->older],
                        *f = to->n_pending ? &to->steps[!to->older] : older;
    to->queued = base_now();
    int rc = step_queue_submit(&s->model->queue, f, to->n_pending ? older : NULL, &s->err);
    if (!rc) to->n_pending++;
    return rc;
}

/* A step with the last token, and guesses behind it. */
static int launch(struct fletch_session *s, const struct fletch_generate *g, u32 n_left,
                  struct given *to)
{
    struct fletch_model *m = s->model;
    struct step *step = m->step;
    int rc = plan_decode(s, g, n_left, &to->n_draft);
    if (rc) return rc;
    const i32 *guesses = s->tokens + s->n + 1;
    if (to->constraint) to->n_draft = constraint_worth(to->constraint, guesses, to->n_draft);
    to->trial = to->n_draft && m->m->net->n_states;
    u32 home = spec_slot(m->spec, s->slot, s->aside), n = s->n + 1;
    u32 place = spec_slot(m->spec, s->slot, s->aside ^ to->trial);
    step_reset(step);
    if (to->trial) CHECK(step_edit(step, EDIT_COPY_STATE, place, home));
    for (u32 at = m->m->net->n_states ? s->n_settled : s->n; at < n + to->n_draft; at++) {
        bool asks = at + 1 >= n;
        CHECK(step_add(step, (struct row){s->tokens[at], place, at, ROW_D}, asks));
        if (asks) sampling_fill(step, step->n_out - 1, &g->sampling, s->tokens, at + 1);
    }
    if (to->constraint) constraint_fill(to->constraint, step, 0, guesses, to->n_draft);
    return queue_step(s, to);
}

/* All that the step after the one on its way needs is known, but for its token, and it may turn out
 * not to be wanted: a recurrent state could not go back. */
static bool can_go_ahead(struct fletch_session *s, const struct fletch_generate *g, u32 n_left,
                         const struct given *to)
{
    struct fletch_model *m = s->model;
    return m->queue.ahead && m->queue.last == &to->steps[to->older] && to->n_pending == 1 &&
           !m->spec && !to->constraint && !sampling_looks_back(&g->sampling) &&
           !m->m->net->n_states && n_left > 1 && s->n + 1 < m->limits.max_pos &&
           kv_cover(&m->kv, block_table(s), &s->n_blocks, (u64)s->n + 2);
}

static int launch_ahead(struct fletch_session *s, const struct fletch_generate *g, struct given *to)
{
    struct step *step = s->model->step;
    step_reset(step);
    CHECK(step_add(step, (struct row){STEP_CHOSEN(0), s->slot, s->n + 1, ROW_D}, true));
    sampling_fill(step, 0, &g->sampling, s->tokens, 0);
    return queue_step(s, to);
}

/* Lands the step with a new token, which may be on its way already, after the next was queued. */
static int decode(struct fletch_session *s, const struct fletch_generate *g, u32 n_left, i32 token,
                  struct given *to)
{
    struct fletch_model *m = s->model;
    struct pending_step *f = &to->steps[to->older];
    if (atomic_exchange(&s->cancelled, false))
        return err_set(&s->err, FLETCH_E_CANCELLED, "cancelled");
    s->fresh = s->unread = s->owed = false;
    s->tokens[s->n] = token;
    int rc = to->n_pending ? 0 : launch(s, g, n_left, to);
    if (!rc && can_go_ahead(s, g, n_left, to)) rc = launch_ahead(s, g, to);
    if (!rc) rc = step_queue_wait(&m->queue, f, &s->err);
    if (rc) return rc;
    to->ids = f->ids;
    to->n_pending--;
    to->older ^= to->n_pending; /* the other one, if it is on its way */
    rc = judge(s, to);
    if (!rc && !to->n_pending &&
        m->queue.last != f) { /* another's step has run since it was queued */
        s->owed = true;
        s->unread = false;
    }
    if (!rc) rc = spec_follow(m->spec, &m->queue, &s->err);
    if (!rc && m->spec) spec_measure(m->spec, m->step->n_rows, base_now() - to->queued);
    return rc;
}

/* Somebody's step is about to overwrite them. */
static void save_logits(void *ctx)
{
    struct fletch_session *s = ctx;
    struct err err;
    if (s->unread) s->fresh = read_logits(s, s->n - s->n_unread, 1, s->logits, &err) == 0;
    s->unread = false;
}

/* Others may use the model while the caller looks at the text; not between guesses that were right,
 * because their rows of logits would be lost. */
static bool tell(struct fletch_session *s, const struct fletch_generate *g,
                 const struct given *given, i32 token, struct str text)
{
    struct fletch_model *m = s->model;
    if (!g->on_text) return false;
    if (given->at < given->n_right) return g->on_text(g->ctx, token, text.p, text.n);
    if (s->unread && !given->n_pending) {
        m->queue.save = save_logits;
        m->queue.save_ctx = s;
    }
    turns_give(&m->turns);
    bool asked = g->on_text(g->ctx, token, text.p, text.n);
    turns_take(&m->turns);
    if (m->queue.save_ctx == s) m->queue.save = NULL;
    return asked;
}

/* The first token of an answer; the step's masks are free to be used here. */
static int sample_first(struct fletch_session *s, const struct fletch_generate *g,
                        struct constraint *c, i32 *token)
{
    struct step *step = s->model->step;
    if (c) constraint_fill(c, step, 0, NULL, 0);
    return sample(s, &g->sampling, c ? step->masks : NULL, token);
}

/* Draws, gives out and appends tokens until something ends it. The first token comes from logits
 * that are here; all others are drawn where they are computed. */
static int generate(struct fletch_session *s, const struct fletch_generate *g, struct outlet *o,
                    struct given *given, struct fletch_generated *result)
{
    const struct tok *tok = s->model->m->vocab->tok;
    struct constraint *c = given->constraint;
    u32 most = g->max_tokens ? g->max_tokens : UINT32_MAX;
    struct str text;
    i32 token = -1;
    int rc = 0;
    result->finish = FLETCH_FINISH_LENGTH;
    while (!rc && result->n_tokens < most) {
        if (s->n == s->model->limits.max_pos) {
            result->finish = FLETCH_FINISH_CONTEXT;
            break;
        }
        if (!result->n_tokens) rc = sample_first(s, g, c, &token);
        if (!rc && c && token != SAMPLE_BAD && !constraint_advance(c, token))
            rc = constraint_error(c, &s->err);
        if (!rc) rc = sampling_result(token, s->n, &s->err);
        if (rc) break;
        if (!g->ignore_end && tok && tok_is_eog(tok, token)) {
            result->finish = FLETCH_FINISH_END;
            break;
        }
        result->n_tokens++;
        bool stopped = outlet_feed(o, token, &text), asked = tell(s, g, given, token, text);
        if (stopped || asked) {
            result->finish = stopped ? FLETCH_FINISH_STOP : FLETCH_FINISH_ASKED;
            return 0;
        }
        if (given->at < given->n_right) /* it was guessed, and is in the session */
            s->n++, given->at++;
        else
            rc = decode(s, g, most - result->n_tokens + 1, token, given);
        token = given->ids[given->at];
        if (c && constraint_is_over(c)) {
            result->finish = FLETCH_FINISH_END;
            break;
        }
    }
    outlet_flush(o, &text);
    if (text.n) tell(s, g, given, -1, text);
    return rc;
}

/* Guesses that were right but not wanted any more are not part of the session, nor is a token whose
 * step is on its way; the logits after those that are become its own. */
static void leave(struct fletch_session *s, const struct given *given)
{
    if (given->n_pending) {
        step_queue_wait_all(&s->model->queue);
        s->owed = s->unread;
        s->unread = false;
    }
    if (s->n_settled > s->n) {
        s->aside = !s->aside;
        s->n_settled = s->n_before;
    }
    spec_rewind(s->model->spec, s->slot, s->n);
    save_logits(s);
}

/* g, or the defaults where it is NULL; checked as far as its pointers go. */
static int read_generate(struct fletch_session *s, const struct fletch_generate *g,
                         struct fletch_generate *out)
{
    *out = g ? *g : (struct fletch_generate){.sampling = s->model->sampling};
    return engine_need_stops(&s->err, out->stops, out->n_stops);
}

int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *from,
                            struct fletch_generated *to)
{
    struct fletch_generated result = {0};
    struct fletch_generate how, *g = &how;
    struct constrained c;
    if (to) *to = result;
    if (!s) return FLETCH_E_ARG;
    int rc = read_generate(s, from, g);
    if (!rc) rc = constrain_begin(&c, s->model, g->grammar, g->json_schema, &s->err);
    if (rc) return rc;
    struct outlet o = {.tok = s->model->m->vocab->tok, .n_stops = g->n_stops, .stops = g->stops};
    struct spec_record before = s->record;
    if (c.place && g->ignore_end)
        rc = err_set(&s->err, FLETCH_E_ARG,
                     "ignore_end cannot be combined with a grammar or JSON schema");
    struct given given = {.constraint = c.place, .ids = given.chosen[0]};
    for (u32 i = 0; i < ARRAY_LEN(given.steps); i++)
        given.steps[i] = (struct pending_step){.ids = given.chosen[i]};
    turns_take(&s->model->turns);
    if (!rc) rc = generate(s, g, &o, &given, &result);
    constrain_end(&c, s->model);
    leave(s, &given);
    turns_give(&s->model->turns);
    if (!rc && o.held.failed) rc = err_nomem(&s->err, "the text");
    outlet_close(&o);
    result.n_guessed = s->record.n_guessed - before.n_guessed;
    result.n_right = s->record.n_right - before.n_right;
    if (to) *to = result;
    return rc;
}
