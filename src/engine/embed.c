/* What the final hidden states of a session's tokens give: an embedding, or a reranker's score. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/session.h"
#include "model/rank.h"
#include "serve/sampling.h"

static const char *const names[] = {
    [POOLING_NONE] = "mean", /* what there is for models that say nothing */
    [POOLING_MEAN] = "mean", [POOLING_CLS] = "cls",
    [POOLING_LAST] = "last", [POOLING_RANK] = "rank",
};

const char *engine_pooling(const struct model *m)
{
    return *m->hp.pooling_other ? "unsupported" : m->rank ? "rank" : names[m->hp.pooling];
}

/* ---- pooling ---- */

static bool is_mean(enum pooling kind)
{
    return kind == POOLING_NONE || kind == POOLING_MEAN;
}

u32 pool_first(const struct pool *p, u32 n_rows)
{
    return p->kind == POOLING_LAST || p->kind == POOLING_RANK ? n_rows - 1 : 0;
}

void pool_add(struct pool *p, const float *row, u32 width)
{
    bool kept = p->kind == POOLING_CLS && p->n; /* the first token's */
    bool adds = is_mean(p->kind) && p->n;
    for (u32 i = 0; i < width && !kept; i++) p->sum[i] = (adds ? p->sum[i] : 0) + (double)row[i];
    p->n++;
}

/* Appends tokens and adds their hidden states to the session's pool, then gives what it holds. */
static int append_pooled(struct fletch_session *s, const i32 *tokens, size_t n, enum pooling kind,
                         float *out)
{
    const u32 width = s->model->m->hp.d_model;
    struct pool *p = &s->pool;
    if (!n) return err_set(&s->err, FLETCH_E_ARG, "nothing to embed");
    if (!fletch_session_length(s)) p->n = p->n_tokens = 0;
    if (fletch_session_length(s) != p->n_tokens || (p->n && p->kind != kind))
        return err_set(
            &s->err, FLETCH_E_ARG,
            "the session holds tokens that are not part of the embedding; reset it first");
    if (!p->sum && !(p->sum = calloc(width, sizeof *p->sum)))
        return err_nomem(&s->err, "the embedding");
    p->kind = kind;
    int rc = session_append_pooled(s, tokens, n);
    if (rc) {
        p->n_tokens = SIZE_MAX; /* only a reset helps */
        return rc;
    }
    p->n_tokens = fletch_session_length(s);
    double by = is_mean(kind) ? (double)p->n : 1;
    for (u32 i = 0; !rc && i < width; i++) {
        out[i] = (float)(p->sum[i] / by);
        if (!isfinite(out[i])) rc = sampling_result(SAMPLE_BAD, (u32)p->n_tokens - 1, &s->err);
    }
    return rc;
}

/* ---- embeddings ---- */

int fletch_session_embed(struct fletch_session *s, const int32_t *tokens, size_t n, float *out)
{
    if (!s) return FLETCH_E_ARG;
    const struct model *m = s->model->m;
    int rc = engine_need(&s->err, out, "the address for the embedding");
    if (rc) return rc;
    if (*m->hp.pooling_other)
        return err_set(&s->err, FLETCH_E_UNSUPPORTED,
                       "this model's embeddings require %s, which is not supported",
                       m->hp.pooling_other);
    if (m->hp.pooling == POOLING_RANK)
        return err_set(&s->err, FLETCH_E_UNSUPPORTED,
                       "this model is a reranker, which has no embeddings; use fletch rerank or "
                       "/v1/rerank");
    return append_pooled(s, tokens, n, m->hp.pooling, out);
}

void fletch_normalise(float *v, uint32_t n)
{
    double sum = 0;
    if (!v) return;
    for (u32 i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    double length = sqrt(sum);
    for (u32 i = 0; i < n && length > 0; i++) v[i] = (float)((double)v[i] / length);
}

/* ---- reranking ---- */

static int need_rank(const struct model *m, struct err *err)
{
    if (m->rank) return 0;
    return err_set(err, FLETCH_E_UNSUPPORTED,
                   "this model is not a reranker: its file does not set pooling_type to rank, and "
                   "its name does not identify it as a Qwen3-Reranker");
}

int fletch_session_rank(struct fletch_session *s, const int32_t *tokens, size_t n, float *score)
{
    if (!s) return FLETCH_E_ARG;
    const struct model *m = s->model->m;
    int rc = engine_need(&s->err, score, "the address for the score");
    if (!rc) rc = need_rank(m, &s->err);
    if (rc) return rc;
    float *hidden = calloc(m->hp.d_model, sizeof *hidden);
    rc = hidden ? append_pooled(s, tokens, n, POOLING_RANK, hidden)
                : err_nomem(&s->err, "the score");
    if (!rc) *score = rank_score(m->rank, hidden);
    free(hidden);
    return rc;
}

/* A prompt, and for each of its bytes whether a client wrote it. */
struct pair_text {
    struct buf text, from_user;
};

static void put_part(struct pair_text *t, struct str part, bool from_user)
{
    buf_put(&t->text, part.p, part.n);
    for (size_t i = 0; i < part.n; i++) buf_put(&t->from_user, from_user ? "\1" : "\0", 1);
}

int fletch_rank_tokenize(struct fletch_model *m, const struct fletch_pair *pair, int32_t **ids,
                         size_t *n_ids)
{
    struct pair_text t = {{0}, {0}};
    struct tok_ids got = {0};
    if (ids) *ids = NULL;
    if (n_ids) *n_ids = 0;
    if (!m) return FLETCH_E_ARG;
    int rc = engine_need(&m->err, ids, "the address for the result");
    if (!rc) rc = engine_need(&m->err, n_ids, "the address for the length of the result");
    if (!rc) rc = engine_need(&m->err, pair, "the query and the document");
    if (!rc) rc = engine_need_all(&m->err, pair->query, pair->n_query, "the query");
    if (!rc) rc = engine_need_all(&m->err, pair->document, pair->n_document, "the document");
    if (!rc) rc = need_rank(m->m, &m->err);
    if (!rc && !m->m->vocab->tok)
        rc =
            err_set(&m->err, FLETCH_E_VOCAB, "the model has no vocabulary, so it cannot read text");
    if (rc) return rc;
    const struct rank *r = m->m->rank;
    struct str query = {pair->query, pair->n_query}, document = {pair->document, pair->n_document};
    put_part(&t, r->part[0], false);
    put_part(&t, r->document_first ? document : query, true);
    put_part(&t, r->part[1], false);
    put_part(&t, r->document_first ? query : document, true);
    put_part(&t, r->part[2], false);
    if (t.text.failed || t.from_user.failed)
        rc = err_nomem(&m->err, "the prompt");
    else
        rc = tok_encode(m->m->vocab->tok, (struct str){t.text.p, t.text.n},
                        (const u8 *)t.from_user.p, TOK_SPECIAL | TOK_ADD_BOS, &got, &m->err);
    buf_free(&t.text);
    buf_free(&t.from_user);
    if (rc) {
        tok_ids_free(&got);
        return rc;
    }
    *ids = got.p;
    *n_ids = got.n;
    return 0;
}
