/* Choosing a token. A draw is the argmax of logit/temperature plus Gumbel noise that is a pure
 * function of (seed, choice, position, token id): no hidden state, so it depends neither on the
 * batch nor on the backend nor on the order of anything. */
#ifndef FLETCH_SAMPLE_H
#define FLETCH_SAMPLE_H

#include "base/err.h"

/* What every setting is when nobody says anything: the most likely token. */
struct fletch_sampling sample_defaults(void);
/* One line that names the first setting out of range. */
int sample_check(const struct fletch_sampling *s, struct err *err);

struct sample_context {
    const float *logits; /* [n_vocab] */
    u32 n_vocab;
    const i32 *history; /* tokens so far, for the penalties */
    size_t n_history;
    u32 position; /* that the new token will have */
    float *z;     /* [n_vocab] scratch */
    u32 *order;   /* [n_vocab] scratch */
    u32 *counts;  /* [n_vocab] scratch, zero on entry and on return */
};

int sample_draw(const struct fletch_sampling *s, const struct sample_context *c, i32 *token,
                struct err *err);

/* The noise of one token: -log(-log(u)). */
float sample_gumbel(u64 seed, u32 choice, u32 position, u32 token);

#endif
