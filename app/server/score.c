/* Scores: how likely each token of a prompt was, given those before it (echo with logprobs; what
 * evaluation harnesses ask for). A batch gives logits of last tokens only, so the model's session
 * reads the prompt (reader.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

enum { PIECE = 64 }; /* rows that a step gives logits for */

struct scoring {
    struct reader r;
    float *logits; /* [PIECE][n_vocab] */
    size_t bad;    /* first position of a prompt that a value that is no number was computed for, */
    bool failed;   /* if there is one */
};

/* log Σ exp, in double: a sum of 10^5 terms. */
static double log_sum(const float *z, uint32_t n)
{
    double max = z[0];
    for (uint32_t i = 1; i < n; i++)
        if (z[i] > max) max = z[i];
    double sum = exp(z[0] - max);
    for (uint32_t i = 1; i < n; i++) sum += exp(z[i] - max);
    return max + log(sum);
}

/* The likeliest n ids, by insertion: n is at most 20. */
static void find_top(const float *z, uint32_t n_vocab, uint32_t n, int32_t *ids)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < n_vocab && n; i++) {
        if (have == n && z[i] <= z[ids[n - 1]]) continue;
        uint32_t at = have < n ? have++ : n - 1;
        for (; at && z[i] > z[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
}

/* What row z says about the token after it; false if not all of z are numbers. */
static bool score_token(struct score *s, size_t i, int32_t id, const float *z, uint32_t n_vocab)
{
    double total = log_sum(z, n_vocab);
    int32_t *ids = s->top_ids + i * s->n_top;
    s->logprobs[i] = (float)(z[id] - total);
    find_top(z, n_vocab, s->n_top, ids);
    for (uint32_t k = 0; k < s->n_top; k++)
        s->top_logprobs[i * s->n_top + k] = (float)(z[ids[k]] - total);
    return isfinite(total);
}

static int read_piece(struct served *m, struct reader *r, const int32_t *ids, size_t n)
{
    struct scoring *x = (struct scoring *)r;
    const struct prompt *p = &r->call->prompts[r->prompt];
    int rc =
        fletch_session_append(m->session, ids, n, &(struct fletch_append){.all_logits = x->logits});
    for (size_t i = 0; !rc && !x->failed && i < n && r->at + i + 1 < p->n; i++)
        if (!score_token(&r->call->scores[r->prompt], r->at + i + 1, ids[i + 1],
                         x->logits + i * m->info.n_vocab, m->info.n_vocab)) {
            x->failed = true;
            x->bad = r->at + i + 1;
        }
    return rc;
}

static void on_read(struct reader *r)
{
    struct call *c = r->call;
    const struct scoring *x = (struct scoring *)r;
    if (x->failed && !c->problem.status)
        call_wrong(c, 500, NULL,
                   "the model produced NaN or infinity at position %zu; run fletch inspect --check "
                   "to look for "
                   "bad weights",
                   x->bad);
    free(x->logits);
    free(r);
    call_scored(c);
}

/* Places for the scores of all prompts; false: not all of them. */
static bool allocate_scores(struct call *c)
{
    c->scores = calloc(c->n_prompts, sizeof *c->scores);
    bool got = c->scores;
    for (size_t i = 0; got && i < c->n_prompts; i++) {
        struct score *s = &c->scores[i];
        size_t n = c->prompts[i].n, n_top = c->ask.n_top;
        *s = (struct score){.n_top = c->ask.n_top,
                            .logprobs = calloc(n, sizeof(float)),
                            .top_ids = calloc(n * n_top + 1, sizeof(int32_t)),
                            .top_logprobs = calloc(n * n_top + 1, sizeof(float))};
        got = s->logprobs && s->top_ids && s->top_logprobs;
    }
    return got;
}

void score_begin(struct call *c)
{
    struct scoring *x = calloc(1, sizeof *x);
    float *logits = malloc(sizeof *logits * PIECE * c->served->info.n_vocab);
    if (!x || !logits || !allocate_scores(c)) {
        free(x);
        free(logits);
        call_no_memory(c);
        call_scored(c);
        return;
    }
    x->r = (struct reader){.call = c, .piece = PIECE, .read = read_piece, .done = on_read};
    x->logits = logits;
    reader_begin(&x->r);
}

void score_free(struct call *c)
{
    for (size_t i = 0; c->scores && i < c->n_prompts; i++) {
        free(c->scores[i].logprobs);
        free(c->scores[i].top_ids);
        free(c->scores[i].top_logprobs);
    }
    free(c->scores);
}
