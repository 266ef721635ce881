/* One timeline of tokens: a sequence that its own scheduler runs alone, request by request.
 * session.c runs it, remember.c keeps it in files, recall.c what it shares with later runs. */
#ifndef FLETCH_SESSION_H
#define FLETCH_SESSION_H

#include "engine/engine.h"

/* What can follow the tokens. The last one is computed when that is asked for, or again. */
enum session_state {
    SESSION_EMPTY,   /* nothing: there are no tokens */
    SESSION_PARTIAL, /* nothing: they came from a file, or an append was broken off */
    SESSION_READY,   /* a token can be drawn */
    SESSION_LOGITS,  /* and what it is drawn from is in logits */
    SESSION_RUNNING, /* a call is at work; its callbacks cannot use the session */
    N_SESSION_STATES,
};

/* What the hidden states of tokens are joined to, as fletch_session_embed says. */
struct pool {
    enum pooling kind;
    u64 n;           /* hidden states that were added */
    size_t n_tokens; /* that the session held when the last one was */
    double *sum;     /* [n_embd]; NULL until the first */
};
/* The first of n rows that counts, and what one adds. */
u32 pool_first(const struct pool *p, u32 n_rows);
void pool_add(struct pool *p, const float *row, u32 width);

struct fletch_session {
    struct err err;
    struct fletch_model *model;
    enum session_state state; /* changed by session_set alone */
    struct batch *batch;      /* its requests, one at a time */
    struct batch_seq seq;
    u32 keep_at; /* where what was computed is kept for later runs; 0: nowhere */
    atomic_bool cancelled;
    float *logits; /* [n_vocab] */
    struct pool pool;
};

void session_set(struct fletch_session *s, enum session_state to);

/* At the beginning of a call: it is running, and *was something else until then. */
int session_begin(struct fletch_session *s, enum session_state *was);

/* Appends tokens and adds their hidden states to the pool. */
int session_append_pooled(struct fletch_session *s, const i32 *tokens, size_t n);

/* Computes its first n tokens. */
int session_prefill(struct fletch_session *s, u32 n);

/* Keeps the first n tokens of the prompt, which were computed last, in the folder for later runs.
 */
void session_keep(struct fletch_session *s, u32 n);

#endif
