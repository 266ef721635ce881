/* One timeline of tokens; session.c runs it, remember.c keeps it in files. */
#ifndef FLETCH_SESSION_H
#define FLETCH_SESSION_H

#include "core/sample.h"
#include "engine/engine.h"

struct fletch_session {
    struct err err;
    struct fletch_model *model;
    u32 slot;
    i32 *tokens; /* [max_pos] all that was fed; guesses behind it */
    u32 n;
    u32 n_blocks;  /* held in step->tables[slot] */
    u32 n_settled; /* tokens in the recurrent state: fewer than n after wrong guesses */
    u32 n_before;  /* in the one that the last trial did not touch */
    bool aside;    /* where that is: see spec_slot */
    u32 keep_at;   /* where what was read is kept for later runs; 0: nowhere */
    struct spec_record record;
    atomic_bool cancelled;
    float *logits; /* [n_vocab] after the last token */
    bool fresh;    /* they are: no append was broken off since */
    bool unread;   /* they are still in the executor: of this many tokens and more, row by row */
    u32 n_unread;
    bool owed; /* they are nowhere, a step too many ran since: the last token gives them again */
    struct sample_scratch scratch;
    struct sample_edit *edits; /* [SAMPLE_MAX_EDITS] */
};

/* Takes the tokens that wrong guesses undid into the recurrent state again. */
int session_settle(struct fletch_session *s);

/* Keeps the prompt that was read so far in the folder for later runs. */
void session_keep(struct fletch_session *s);

#endif
