/* Speculation: the next tokens of a sequence are guessed cheaply, and the model checks all guesses
 * in one step, as rows behind the last known token. Guesses come from a smaller model, from the
 * model's own MTP block, or from earlier places in the text where the latest tokens stood too.
 *
 * Guesses are drawn with the noise that the model will draw with at that position, and a guess
 * counts only if the model then chooses the same token: so the tokens are those of decoding without
 * guesses, at any temperature. (Or they are judged as in reject.h.) How many to guess follows from
 * how often guesses were right and from what rows and guesses were measured to cost. */
#ifndef FLETCH_SPECULATE_H
#define FLETCH_SPECULATE_H

#include "core/step_queue.h"
#include "serve/kv.h"

enum {
    SPEC_MAX = 8,   /* guesses a step */
    SPEC_KINDS = 8, /* of guesses: how sure a program was, or how long the text agreed */
};

/* What runs steps. */
struct spec_model {
    struct step_queue *queue;
    struct kv_pool *kv;
    u32 first_spare;           /* of n_slots further slots, where it has recurrent state */
    struct step_queue *reader; /* where it reads prompts beside other steps; NULL: nowhere */
};

struct spec_env {
    struct spec_model target;
    struct spec_model draft; /* a smaller model, or the MTP block; all NULL: the text itself */
    bool is_mtp;             /* draft runs on the target's executor, step and blocks */
    bool rejects;            /* guesses are judged by rejection */
    u32 n_tokens;            /* to guess in a step, whether it pays or not; 0: as many as pay */
    u32 n_slots;             /* for sequences */
};

/* How the guesses for one sequence did. */
struct spec_record {
    float trust;            /* the share of guesses that came true lately; 0: none was made yet */
    float rate[SPEC_KINDS]; /* the same of each kind */
    u8 kind[SPEC_MAX];      /* of the guesses that are being tried */
    u32 n_drafted, n_accepted;
};

/* A sequence to guess for; lives during one call. */
struct spec_seq {
    u32 slot;
    i32 *tokens; /* guesses are put behind the n that are known */
    u32 n, most, n_draft;
    float keep, go_on; /* odds that all guesses are right, at which the last is worth its row and a
                          further one worth making */
    const struct fletch_sampling *sampling;
    struct spec_record *record;
};

struct spec;

int spec_open(struct spec **out, const struct spec_env *env, struct err *err);
void spec_close(struct spec *s);

/* How many guesses would pay for q, one of n_seqs sequences that answer at the same time: sets
 * most, keep and go_on. Now and then a number is tried that should not pay; rarely where a prompt
 * makes those who answer wait already. */
void spec_choose(struct spec *s, struct spec_seq *q, u32 n_seqs, bool rarely);
/* Guesses for the sequences that want some (most > 0) and whose tokens were read. Uses the target's
 * step and leaves it empty. */
int spec_draft(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err);
/* Reads what sequences have that is too long to be read while guessing: some of it, in so many
 * seconds if others wait for it (reading.h), else a step. *did: there was something to read. */
int spec_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
              struct err *err);
/* Makes ready what spec_read will do. */
int spec_prepare(struct spec *s, double seconds, struct err *err);
/* After every step of the target, in its queue or its reader, before anything else runs on its
 * executor. */
int spec_follow(struct spec *s, const struct step_queue *l, struct err *err);
/* The token behind out row i of the target's last step, which the step chose; guess: what was put
 * there as the nth guess of that sequence, -1: nothing. */
int spec_judge(struct spec *s, u32 i, u32 nth, i32 guess, i32 *token, struct err *err);
/* The sequence of a slot has only its first n tokens any more. */
void spec_rewind(struct spec *s, u32 slot, u32 n);

/* Where the recurrent state of a slot's sequence is. A trial of guesses runs on a copy at the other
 * side, which is the sequence's from then on if all guesses were right. */
u32 spec_slot(const struct spec *s, u32 slot, bool aside);
/* Cache blocks of a slot's sequence, for rows of its other side too. */
void spec_share_blocks(struct step *step, u32 other, u32 slot);

/* What came of a sequence's guesses. */
void spec_count(struct spec_record *r, u32 n_drafted, u32 n_accepted);
/* What a step cost, none of whose rows was of a prompt. */
void spec_measure(struct spec *s, u32 n_rows, double seconds);

#endif
