/* Speculation: drafters propose the next tokens of a sequence cheaply, and the model checks all of
 * them in one step, as rows after the last known token.
 *
 * Draft tokens are drawn with the noise that the model will draw with at that position, and one is
 * accepted only if the model then chooses the same token: so the tokens are those of decoding
 * without drafts, at any temperature. (Or they are judged as in reject.h.) How many to propose
 * follows from how often they were accepted and from what rows and drafts were measured to cost;
 * what drafting may lose is bounded by an account (speculate_choose.c). */
#ifndef FLETCH_SPECULATE_H
#define FLETCH_SPECULATE_H

#include "core/step_queue.h"
#include "serve/kv.h"

struct constraint;

/* In the order in which they are asked: the table of them is in speculate.c. */
enum drafter_kind {
    DRAFTER_FORCED, /* bytes that are the only ones that the grammar allows */
    DRAFTER_NGRAM,  /* what followed the latest tokens earlier in the context */
    DRAFTER_MODEL,  /* a smaller model */
    DRAFTER_MTP,    /* the model's own MTP block */
    N_DRAFTERS,
};

enum {
    SPEC_MAX = 64,        /* draft tokens in a step */
    SPEC_MAX_PROGRAM = 8, /* of those that a program drafts */
    SPEC_KINDS = 8,       /* of draft tokens: how sure a program was, or how long a match was */
};

/* What runs steps. */
struct spec_model {
    struct step_queue *queue;
    struct kv_pool *kv;
    u32 first_spare;           /* of n_slots further slots, where it has recurrent state */
    struct step_queue *reader; /* where it prefills beside other steps; NULL: nowhere */
};

struct spec_env {
    struct spec_model target;
    struct spec_model program; /* of DRAFTER_MODEL or DRAFTER_MTP, if one of them is used */
    bool uses[N_DRAFTERS];
    bool rejects; /* draft tokens are judged by rejection */
    u32 n_tokens; /* to draft in a step, whether it pays or not; 0: as many as pay */
    u32 n_slots;  /* for sequences */
};

/* How the draft tokens of one sequence did. */
struct spec_record {
    float trust[N_DRAFTERS];            /* the share accepted lately; 0: none was drafted yet */
    float rate[N_DRAFTERS][SPEC_KINDS]; /* the same of each kind */
    u16 n_seen[N_DRAFTERS][SPEC_KINDS]; /* draft tokens that rate is of, the latest */
    u8 kind[SPEC_MAX];                  /* of the current draft: drafter · SPEC_KINDS + kind */
    double balance; /* seconds that drafting saved, less those that it cost; see open */
    bool open;      /* it has its part of the reserve (spec_end gives it back) */
    u32 copy;       /* how far back the text is that was matched last; 0: none */
    u32 n_drafted, n_accepted;
};

/* A sequence to draft for; lives during one call. */
struct spec_seq {
    u32 slot;
    i32 *tokens; /* draft tokens are put after the n that are known */
    u32 n, room, n_draft;
    const struct fletch_sampling *sampling;
    struct constraint *constraint; /* NULL: none */
    struct spec_record *record;
    /* the drafter's that is asked */
    u32 most;          /* draft tokens in all */
    float keep, go_on; /* probability that all are accepted, at which the last is worth its row and
                          a further one worth drafting */
};

struct spec;

int spec_open(struct spec **out, const struct spec_env *env, struct err *err);
void spec_close(struct spec *s);

/* Drafts for sequences whose tokens were computed and that have room for drafts; n_decode of them
 * decode. Uses the target's step and leaves it empty. */
int spec_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err);
/* Would it draft for one of these? If not, steps may be submitted ahead. */
bool spec_would_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode);
/* Prefills what sequences have that is too long to be computed while drafting: some of it, in so
 * many seconds if others wait for it (reading.h), else a step. *did: there was something. */
int spec_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
              struct err *err);
/* Makes ready what spec_read will do. */
int spec_prepare(struct spec *s, double seconds, struct err *err);
/* After every step of the target, in its queue or its reader, before anything else runs on its
 * executor. */
int spec_follow(struct spec *s, const struct step_queue *l, struct err *err);
/* The token after out row i of the target's last step, which the step chose; draft: the nth draft
 * token of that sequence, which was put there. */
int spec_judge(struct spec *s, const struct spec_record *r, u32 i, u32 nth, i32 draft, i32 *token,
               struct err *err);
/* The sequence of a slot has only its first n tokens any more. */
void spec_rewind(struct spec *s, u32 slot, u32 n);

/* Where the recurrent state of a slot's sequence is. A trial of drafts runs on a copy at the other
 * side, which is the sequence's from then on if all were accepted. */
u32 spec_slot(const struct spec *s, u32 slot, bool aside);
/* Cache blocks of a slot's sequence, for rows of its other side too. */
void spec_share_blocks(struct step *step, u32 other, u32 slot);

/* A step of the target with rows of n_decode sequences, n_rows in all, and no others. */
struct spec_step {
    u32 n_decode, n_rows;
};
/* What such a step cost. */
void spec_measure(struct spec *s, struct spec_step step, double seconds);
/* What a sequence got from it, with n_rows rows of its own. */
void spec_count(struct spec *s, struct spec_record *r, struct spec_step step, u32 n_rows,
                u32 n_drafted, u32 n_accepted);
/* The sequence of that record is at its end. */
void spec_end(struct spec *s, struct spec_record *r);

#endif
