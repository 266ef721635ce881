/* What the parts of speculation share: speculate.c (the table of drafters, judging),
 * speculate_choose.c (how many, and what they may cost), speculate_lookup.c (drafts from the text
 * and the grammar), speculate_draft.c (programs that draft) and speculate_read.c (what those
 * prefill). */
#ifndef FLETCH_SPECULATE_INTERNAL_H
#define FLETCH_SPECULATE_INTERNAL_H

#include "core/sample.h"
#include "serve/reading.h"
#include "serve/speculate.h"

enum {
    SPEC_TIMES = 5, /* that are remembered */
    SPEC_ROWS = 64 + SPEC_MAX,
    SPEC_LAG = 32, /* tokens that a smaller model may lack, to be computed with the first draft */
};

/* A drafter. Functions of what it does not do are NULL. */
struct drafter {
    const char *name;
    bool has_program; /* it drafts in steps of its own, and only where nobody before it did */
    int (*open)(struct spec *s, struct err *err);
    void (*close)(struct spec *s);
    /* Appends to the draft tokens that sequences have. */
    int (*draft)(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err);
    bool (*would)(struct spec *s, struct spec_seq *q, u32 n_decode); /* draft for q */
    int (*read)(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
                struct err *err);
    int (*prepare)(struct spec *s, double seconds, struct err *err);
    int (*follow)(struct spec *s, const struct step_queue *l, struct err *err);
    void (*rewind)(struct spec *s, u32 slot, u32 n);
};
extern const struct drafter drafter_forced, drafter_ngram, drafter_model, drafter_mtp;

/* Seconds that something took the last few times. */
struct spec_time {
    double last[SPEC_TIMES];
    u32 n; /* ever */
};
void spec_time_add(struct spec_time *t, double seconds);

/* Rows of a step of the target, until the MTP block computes them. */
struct spec_kept {
    struct row *rows; /* [max_rows] */
    u32 n;
    float *hidden; /* [max_rows][d] */
};

struct spec {
    struct spec_env env;
    enum drafter_kind program;             /* DRAFTER_MODEL, DRAFTER_MTP; N_DRAFTERS: neither */
    struct spec_time steps[SPEC_ROWS + 1]; /* of the target, by rows */
    double seconds[2][SPEC_ROWS + 1];      /* of such steps, measured once or twice at least */
    struct spec_time guess;                /* a draft token by the program, kept or not */
    struct spec_time along;   /* a row of a pass of the MTP block in which nothing was drafted */
    u32 n_guesses, n_new;     /* drafted in this call, kept or not; tokens computed for it */
    u32 n_measured, last_try; /* steps */
    double reserve;           /* seconds that sequences may lose from their start on */
    /* of programs */
    struct spec_seq **asked; /* [max_out] whose each out row of a round is */
    i32 *ids;                /* [max_out] */
    float *logprobs;         /* [max_out] */
    u32 *n_read, *n_blocks;  /* [n_slots] a smaller model's tokens and cache blocks */
    struct reading reading;  /* by it, of what its rows of drafts could not hold */
    bool *gone;              /* [n_slots] to follow this sequence does not pay (spec_charge) */
    u32 *chosen;             /* [n_slots] draft tokens, by sequence */
    /* MTP: of the target's last step, of its last one of prompts beside; and what goes in */
    struct spec_kept kept[2];
    float *imported; /* [max_rows][d] */
    /* by rejection only */
    float *p;                      /* [n_vocab] */
    size_t n_vocab;                /* the larger of both models' */
    float *odds;                   /* [n_slots][SPEC_MAX_PROGRAM][n_vocab] of draft tokens */
    float *logits;                 /* [n_vocab] */
    struct sample_scratch scratch; /* [n_vocab] */
};

/* speculate_choose.c */
/* How many tokens a program should draft for q, whose record may be new: sets most, keep, go_on. */
void spec_choose(struct spec *s, struct spec_seq *q, enum drafter_kind d, u32 n_decode);
/* There is something on the account of that record; else there is no need to look anything up. */
bool spec_can_try(struct spec *s, struct spec_record *r, u32 n_decode);
/* How many more of a kind are worth their rows, all after q's draft; counts as a try. */
u32 spec_worth(struct spec *s, struct spec_seq *q, enum drafter_kind d, u32 kind, u32 n_decode);
/* The share of draft tokens of this kind that is accepted. */
float spec_rate(const struct spec_record *r, enum drafter_kind d, u32 kind);
/* Is a draft token of this kind, the next for q, worth a row? Lowers q->most where no more should
 * follow. */
bool spec_keep(struct spec_seq *q, enum drafter_kind d, u32 kind);
/* A program took so many seconds for these sequences, of which it drafted for those with most > 0.
 * A sequence that has lost what it may lose is not followed any more. */
void spec_charge(struct spec *s, struct spec_seq *seqs, u32 n, double seconds);

/* speculate_draft.c */
/* Runs the step that was filled; false in *more: nobody asked. */
int spec_run_round(struct spec *s, bool *more, struct err *err);
/* Fills it with the rows that were kept and whose next token is known by now. */
void spec_take_kept(struct spec *s, struct spec_kept *k, struct spec_seq *seqs, u32 n);

/* speculate_read.c */
int spec_model_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
                    struct err *err);
int spec_model_prepare(struct spec *s, double seconds, struct err *err);
/* What a smaller model has of a slot's sequence is forgotten from its nth token on. */
void spec_model_rewind(struct spec *s, u32 slot, u32 n);
int spec_mtp_read(struct spec *s, struct spec_seq *seqs, u32 n, double seconds, bool *did,
                  struct err *err);
/* Room for n tokens of a sequence, and the state that its first one begins with, in that step. */
bool spec_make_room(struct spec *s, struct step *step, const struct spec_seq *q, u32 n);
/* Token i of a sequence as a smaller model takes it. */
struct row spec_row(const struct spec *s, const struct spec_seq *q, u32 i, enum row_class cls);

/* speculate.c */
/* What the nth draft token of a slot was drawn from. */
float *spec_odds_of(const struct spec *s, u32 slot, u32 nth);
/* The probabilities that out row i of a model's last step is drawn from. */
int spec_odds(struct spec *s, const struct spec_model *m, u32 i, float *p, struct err *err);

#endif
