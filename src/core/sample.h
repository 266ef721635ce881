/* Choosing a token from one row of logits: what OP_SAMPLE computes, shared by the executors on the
 * host and by whoever holds logits. A draw is the argmax of the heated logits plus Gumbel noise
 * that is a pure function of (seed, choice, position, token id): no hidden state, so it depends
 * neither on the batch nor on the backend nor on the order of anything. */
#ifndef FLETCH_CORE_SAMPLE_H
#define FLETCH_CORE_SAMPLE_H

#include "core/step.h"

/* Σ exp(z - top), each in whole units of 2^-40, of n values z ≤ top: 2^18 of them add up without
 * rounding or overflow, so whoever adds in another order gets the same. */
typedef u64 sample_weigh_fn(const float *z, u32 n, float top);
sample_weigh_fn sample_weigh;

struct sample_in {
    const float *logits; /* [n_vocab] */
    u32 n_vocab;
    u32 position;                    /* that the new token will have */
    const struct sample_edit *edits; /* [row.n_edits] */
    const u32 *mask;                 /* [step_mask_words] when row.masked */
    sample_weigh_fn *weigh;          /* a faster sample_weigh, or NULL */
};

struct sample_scratch {
    float *z;   /* [n_vocab] */
    u32 *order; /* [n_vocab] */
};

/* An id, SAMPLE_BAD or SAMPLE_NONE. */
i32 sample_token(const struct sample_row *row, const struct sample_in *in,
                 const struct sample_scratch *x);
/* The probabilities it draws by; all 0 where it would give no id. */
void sample_odds(const struct sample_row *row, const struct sample_in *in,
                 const struct sample_scratch *x, float *p);
/* Natural logarithms of softmax(logits): of `token`, then of the n_top likeliest with their ids. */
void sample_logprobs(const struct sample_in *in, i32 token, u32 n_top, float *logprobs,
                     i32 *top_ids);

/* The noise of one token: -log(-log(u)). */
float sample_gumbel(u64 seed, u32 choice, u32 position, u32 token);

#endif
