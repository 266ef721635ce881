/* Sessions: one timeline of tokens, fed in chunks, each chunk one step. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "core/sample.h"
#include "engine/engine.h"
#include "serve/sampling.h"

struct fletch_session {
    struct err err;
    struct fletch_model *model;
    u32 slot;
    i32 *tokens; /* [max_pos] all that was fed */
    u32 n;
    u32 n_blocks; /* held in step->tables[slot] */
    atomic_bool cancelled;
    float *logits; /* [n_vocab] after the last token */
    bool fresh;    /* they are: no append was broken off since */
    struct sample_scratch scratch;
    struct sample_edit *edits; /* [SAMPLE_MAX_EDITS] */
};

static u32 *block_table(const struct fletch_session *s)
{
    struct step *step = s->model->step;
    return step->tables + (size_t)s->slot * step->table_len;
}

void fletch_session_close(struct fletch_session *s)
{
    if (!s) return;
    fletch_session_reset(s);
    s->model->slot_used[s->slot] = false;
    free(s->tokens);
    free(s->logits);
    free(s->scratch.z);
    free(s->scratch.order);
    free(s->edits);
    free(s);
}

int fletch_session_open(struct fletch_session **out, struct fletch_model *m)
{
    u32 slot = 0, n_vocab = m->m->hp.n_vocab;
    *out = NULL;
    while (slot < m->limits.n_slots && m->slot_used[slot]) slot++;
    if (slot == m->limits.n_slots)
        return err_set(&m->err, FLETCH_E_LIMIT, "all %u sessions of this model are open",
                       m->limits.n_slots);
    struct fletch_session *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(&m->err, "the session");
    s->model = m;
    s->slot = slot;
    m->slot_used[slot] = true;
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
    return s->err.text;
}

uint32_t fletch_session_length(const struct fletch_session *s)
{
    return s->n;
}

void fletch_session_reset(struct fletch_session *s)
{
    kv_release(&s->model->kv, block_table(s), &s->n_blocks);
    s->n = 0;
    s->fresh = false;
    atomic_store(&s->cancelled, false);
}

void fletch_session_cancel(struct fletch_session *s)
{
    atomic_store(&s->cancelled, true);
}

const float *fletch_session_logits(const struct fletch_session *s)
{
    return s->fresh ? s->logits : NULL;
}

/* What a feed wants back besides the logits of the last row; both may be NULL. */
struct wants {
    float *all_logits;  /* [n][n_vocab] */
    double *hidden_sum; /* [n_embd] */
};

static int check_tokens(struct fletch_session *s, const i32 *tokens, size_t n)
{
    const struct fletch_model *m = s->model;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (u32)tokens[i] >= m->m->hp.n_vocab)
            return err_set(&s->err, FLETCH_E_ARG, "token %d is not one of the model's 0..%u",
                           (int)tokens[i], m->m->hp.n_vocab - 1);
    if (n > m->limits.max_pos - s->n)
        return err_set(&s->err, FLETCH_E_CONTEXT,
                       "%zu tokens do not fit: %u of the context of %u are taken; use -c for a "
                       "longer one",
                       n, s->n, m->limits.max_pos);
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
        rc = m->x->class->read(m->x, m->h_trunk, what, t, 1, row, &s->err);
        for (u32 i = 0; !rc && i < d; i++) sum[i] += (double)row[i];
    }
    free(row);
    return rc;
}

/* One step with the next n tokens. */
static int feed_chunk(struct fletch_session *s, const i32 *tokens, u32 n, enum row_class cls,
                      bool last, const struct wants *wants)
{
    struct fletch_model *m = s->model;
    struct step *step = m->step;
    u32 n_vocab = m->m->hp.n_vocab;
    s->fresh = false;
    step_reset(step);
    if (m->limits.n_blocks && !kv_cover(&m->kv, block_table(s), &s->n_blocks, (u64)s->n + n))
        return err_set(&s->err, FLETCH_E_CONTEXT, "no cache blocks are left");
    if (s->n == 0) CHECK(step_edit(step, EDIT_ZERO_STATE, s->slot, 0));
    for (u32 i = 0; i < n; i++) {
        bool want = wants->all_logits || (last && i + 1 == n);
        CHECK(step_add(step, (struct row){tokens[i], s->slot, s->n + i, cls}, want));
    }
    step_prepare(step);
    int rc = m->x->class->submit(m->x, m->h_trunk, step, &s->err);
    if (!rc) rc = m->x->class->wait(m->x, &s->err);
    struct operand logits = {m->trunk->logits, 0, n_vocab};
    if (!rc && wants->all_logits)
        rc = m->x->class->read(m->x, m->h_trunk, logits, 0, n, wants->all_logits, &s->err);
    if (!rc && step->n_out)
        rc = m->x->class->read(m->x, m->h_trunk, logits, step->n_out - 1, 1, s->logits, &s->err);
    if (!rc && wants->hidden_sum) rc = add_hidden(s, n, wants->hidden_sum);
    if (rc) return rc;
    memcpy(s->tokens + s->n, tokens, n * sizeof *tokens);
    s->n += n;
    s->fresh = step->n_out > 0;
    return 0;
}

static int feed(struct fletch_session *s, const i32 *tokens, size_t n, enum row_class cls,
                struct wants wants)
{
    u32 chunk = wants.all_logits ? s->model->limits.max_out : s->model->limits.max_rows;
    int rc = check_tokens(s, tokens, n);
    for (size_t i = 0; !rc && i < n;) {
        if (atomic_exchange(&s->cancelled, false))
            return err_set(&s->err, FLETCH_E_CANCELLED, "cancelled");
        u32 k = (u32)MIN((size_t)chunk, n - i);
        rc = feed_chunk(s, tokens + i, k, cls, i + k == n, &wants);
        if (wants.all_logits) wants.all_logits += (size_t)k * s->model->m->hp.n_vocab;
        i += k;
    }
    return rc;
}

int fletch_session_append(struct fletch_session *s, const int32_t *tokens, size_t n,
                          float *all_logits)
{
    return feed(s, tokens, n, ROW_P, (struct wants){.all_logits = all_logits});
}

int fletch_session_embed(struct fletch_session *s, const int32_t *tokens, size_t n, float *out)
{
    u32 d = s->model->m->hp.d_model;
    if (n == 0) return err_set(&s->err, FLETCH_E_ARG, "nothing to embed");
    double *sum = calloc(d, sizeof *sum);
    int rc = sum ? feed(s, tokens, n, ROW_P, (struct wants){.hidden_sum = sum})
                 : err_nomem(&s->err, "the embedding");
    for (u32 i = 0; !rc && i < d; i++) out[i] = (float)(sum[i] / (double)n);
    free(sum);
    return rc;
}

int fletch_session_sample(struct fletch_session *s, const struct fletch_sampling *sampling,
                          int32_t *token)
{
    if (!s->fresh)
        return err_set(&s->err, FLETCH_E_ARG, "nothing to go on from: the prompt is %s",
                       s->n ? "not whole" : "empty");
    u32 n_vocab = s->model->m->hp.n_vocab;
    int rc = sampling_check(sampling, n_vocab, &s->err);
    if (rc) return rc;
    struct sample_row row;
    sampling_row(sampling, s->tokens, s->n, &row, s->edits);
    const struct sample_in in = {
        .logits = s->logits, .n_vocab = n_vocab, .position = s->n, .edits = s->edits};
    i32 id = sample_token(&row, &in, &s->scratch);
    if ((rc = sampling_result(id, s->n, &s->err))) return rc;
    *token = id;
    return 0;
}

/* ---- generation ---- */

/* Text on its way out: what could be the beginning of a stop text waits. */
struct outlet {
    const struct fletch_generate *g;
    struct buf held;
    bool stopped; /* a stop text appeared */
    bool asked;   /* the callback said enough */
};

static void hold(void *ctx, const char *p, size_t n)
{
    buf_put(&((struct outlet *)ctx)->held, p, n);
}

/* Bytes at the end of held that are the beginning of a stop text; or finds a whole one. */
static size_t must_wait(struct outlet *o, size_t *stop_at)
{
    size_t wait = 0;
    *stop_at = SIZE_MAX;
    for (size_t i = 0; i < o->g->n_stops; i++) {
        const char *stop = o->g->stops[i];
        size_t n = strlen(stop);
        if (n == 0 || !o->held.n) continue;
        const char *hit = memmem(o->held.p, o->held.n, stop, n);
        if (hit) *stop_at = MIN(*stop_at, (size_t)(hit - o->held.p));
        for (size_t k = MIN(n - 1, o->held.n); k > wait; k--)
            if (memcmp(o->held.p + o->held.n - k, stop, k) == 0) wait = k;
    }
    return wait;
}

static void let_out(struct outlet *o, i32 token, bool all)
{
    size_t stop_at, wait = must_wait(o, &stop_at);
    size_t n = all ? o->held.n : o->held.n - wait;
    if (stop_at != SIZE_MAX) {
        n = stop_at;
        o->stopped = true;
    }
    if (o->g->on_text && o->g->on_text(o->g->ctx, token, o->held.p ? o->held.p : "", n))
        o->asked = true;
    if (n) {
        memmove(o->held.p, o->held.p + n, o->held.n - n);
        o->held.n -= n;
    }
}

/* Draws, gives out and appends tokens until something ends it. */
static int generate(struct fletch_session *s, struct outlet *o, struct fletch_generated *result)
{
    const struct fletch_generate *g = o->g;
    const struct tok *tok = s->model->m->vocab->tok;
    struct tok_stream stream = {0};
    int rc = 0;
    i32 token = -1;
    result->finish = FLETCH_FINISH_LENGTH;
    while (!rc && (!g->max_tokens || result->n_tokens < g->max_tokens)) {
        if (s->n == s->model->limits.max_pos) {
            result->finish = FLETCH_FINISH_CONTEXT;
            break;
        }
        if ((rc = fletch_session_sample(s, &g->sampling, &token))) break;
        if (!g->ignore_end && tok && tok_is_eog(tok, token)) {
            result->finish = FLETCH_FINISH_END;
            break;
        }
        result->n_tokens++;
        if (tok) tok_stream_feed(&stream, tok_piece(tok, token, false), false, hold, o);
        let_out(o, token, false);
        if (o->stopped || o->asked) {
            result->finish = o->stopped ? FLETCH_FINISH_STOP : FLETCH_FINISH_ASKED;
            return 0;
        }
        rc = feed(s, &token, 1, ROW_D, (struct wants){0});
    }
    if (tok) tok_stream_flush(&stream, false, hold, o);
    if (o->held.n) let_out(o, -1, true);
    return rc;
}

int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *g,
                            struct fletch_generated *result)
{
    struct outlet o = {.g = g};
    *result = (struct fletch_generated){0};
    int rc = generate(s, &o, result);
    if (!rc && o.held.failed) rc = err_nomem(&s->err, "the text");
    buf_free(&o.held);
    return rc;
}
