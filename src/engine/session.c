/* Sessions: one timeline of tokens, fed in chunks, each chunk one step. */
#include <stdlib.h>
#include <string.h>

#include "core/sample.h"
#include "engine/constrain.h"
#include "engine/engine.h"
#include "engine/outlet.h"
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
    bool unread;   /* they are still in the executor, as its first out row */
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
    while (slot < m->n_sessions && m->slot_used[slot]) slot++;
    if (slot == m->n_sessions)
        return err_set(&m->err, FLETCH_E_LIMIT, "all %u sessions of this model are open",
                       m->n_sessions);
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

/* What a feed wants back besides the logits of the last row; all may be NULL. */
struct wants {
    float *all_logits;                      /* [n][n_vocab] */
    double *hidden_sum;                     /* [n_embd] */
    const struct fletch_sampling *sampling; /* the next token, instead of logits */
    struct constraint *constraint;          /* of that token */
    i32 *next;
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

static int read_logits(struct fletch_session *s, u32 row, u32 n, float *to, struct err *err)
{
    struct fletch_model *m = s->model;
    struct operand logits = {m->trunk->logits, 0, m->m->hp.n_vocab};
    return m->x->class->read(m->x, m->h_trunk, logits, row, n, to, err);
}

static int read_results(struct fletch_session *s, u32 n, const struct wants *wants)
{
    struct fletch_model *m = s->model;
    u32 n_out = m->step->n_out;
    int rc = 0;
    if (wants->all_logits) rc = read_logits(s, 0, n, wants->all_logits, &s->err);
    if (!rc && wants->next) {
        struct operand sampled = {m->trunk->sampled, 0, 1};
        rc = m->x->class->read(m->x, m->h_trunk, sampled, 0, 1, (float *)(void *)wants->next,
                               &s->err);
    } else if (!rc && n_out) {
        rc = read_logits(s, n_out - 1, 1, s->logits, &s->err);
    }
    if (!rc && wants->hidden_sum) rc = add_hidden(s, n, wants->hidden_sum);
    s->fresh = !rc && n_out && !wants->next;
    s->unread = !rc && wants->next;
    return rc;
}

/* One step with the next n tokens. */
static int feed_chunk(struct fletch_session *s, const i32 *tokens, u32 n, enum row_class cls,
                      bool last, const struct wants *wants)
{
    struct fletch_model *m = s->model;
    struct step *step = m->step;
    s->fresh = s->unread = false;
    step_reset(step);
    if (m->limits.n_blocks && !kv_cover(&m->kv, block_table(s), &s->n_blocks, (u64)s->n + n))
        return err_set(&s->err, FLETCH_E_CONTEXT, "no cache blocks are left");
    if (s->n == 0) CHECK(step_edit(step, EDIT_ZERO_STATE, s->slot, 0));
    memcpy(s->tokens + s->n, tokens, n * sizeof *tokens);
    for (u32 i = 0; i < n; i++) {
        bool want = wants->all_logits || (last && i + 1 == n);
        CHECK(step_add(step, (struct row){tokens[i], s->slot, s->n + i, cls}, want));
    }
    if (wants->next) sampling_fill(step, 0, wants->sampling, s->tokens, s->n + n);
    if (wants->next && wants->constraint) constraint_fill(wants->constraint, step, 0);
    step_prepare(step);
    int rc = m->x->class->submit(m->x, m->h_trunk, step, &s->err);
    if (!rc) rc = m->x->class->wait(m->x, &s->err);
    if (!rc) rc = read_results(s, n, wants);
    if (!rc) s->n += n;
    return rc;
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

/* From the logits that are here; mask: the tokens to choose from, NULL: all. */
static int sample(struct fletch_session *s, const struct fletch_sampling *sampling, const u32 *mask,
                  i32 *token)
{
    if (!s->fresh)
        return err_set(&s->err, FLETCH_E_ARG, "nothing to go on from: the prompt is %s",
                       s->n ? "not whole" : "empty");
    u32 n_vocab = s->model->m->hp.n_vocab;
    int rc = sampling_check(sampling, n_vocab, &s->err);
    if (rc) return rc;
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
    int rc = sample(s, sampling, NULL, &id);
    if (!rc) rc = sampling_result(id, s->n, &s->err);
    if (!rc) *token = id;
    return rc;
}

/* ---- generation ---- */

static bool tell(const struct fletch_generate *g, i32 token, struct str text)
{
    return g->on_text && g->on_text(g->ctx, token, text.p, text.n);
}

/* The first token of an answer; the step's masks are free to be used here. */
static int sample_first(struct fletch_session *s, const struct fletch_generate *g,
                        struct constraint *c, i32 *token)
{
    struct step *step = s->model->step;
    if (c) constraint_fill(c, step, 0);
    return sample(s, &g->sampling, c ? step->masks : NULL, token);
}

/* Draws, gives out and appends tokens until something ends it. The first token comes from logits
 * that are here; all others are drawn where they are computed. */
static int generate(struct fletch_session *s, const struct fletch_generate *g, struct outlet *o,
                    struct constraint *c, struct fletch_generated *result)
{
    const struct tok *tok = s->model->m->vocab->tok;
    struct str text;
    i32 token = -1;
    int rc = 0;
    result->finish = FLETCH_FINISH_LENGTH;
    while (!rc && (!g->max_tokens || result->n_tokens < g->max_tokens)) {
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
        bool stopped = outlet_feed(o, token, &text), asked = tell(g, token, text);
        if (stopped || asked) {
            result->finish = stopped ? FLETCH_FINISH_STOP : FLETCH_FINISH_ASKED;
            return 0;
        }
        i32 fed = token;
        rc = feed(s, &fed, 1, ROW_D,
                  (struct wants){.sampling = &g->sampling, .constraint = c, .next = &token});
        if (c && constraint_is_over(c)) {
            result->finish = FLETCH_FINISH_END;
            break;
        }
    }
    outlet_flush(o, &text);
    if (text.n) tell(g, -1, text);
    return rc;
}

int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *g,
                            struct fletch_generated *result)
{
    struct outlet o = {.tok = s->model->m->vocab->tok, .n_stops = g->n_stops, .stops = g->stops};
    struct constrained c;
    *result = (struct fletch_generated){0};
    int rc = constrain_begin(&c, s->model, g->grammar, g->json_schema, &s->err);
    if (!rc && c.place && g->ignore_end)
        rc =
            err_set(&s->err, FLETCH_E_ARG, "an answer that follows a grammar can't ignore its end");
    if (!rc) rc = generate(s, g, &o, c.place, result);
    constrain_end(&c, s->model);
    if (!rc && o.held.failed) rc = err_nomem(&s->err, "the text");
    outlet_close(&o);
    if (s->unread) {
        struct err err;
        s->fresh = read_logits(s, 0, 1, s->logits, &err) == 0;
        s->unread = false;
    }
    return rc;
}
