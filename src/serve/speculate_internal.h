/* What the parts of speculation share: speculate.c (lookups, judging), speculate_choose.c (how
 * many), speculate_draft.c (programs that guess) and speculate_read.c (what they read along). */
#ifndef FLETCH_SPECULATE_INTERNAL_H
#define FLETCH_SPECULATE_INTERNAL_H

#include "core/sample.h"
#include "serve/reading.h"
#include "serve/speculate.h"

enum {
    SPEC_TIMES = 5, /* that are remembered */
    SPEC_ROWS = 64 + SPEC_MAX,
    SPEC_LAG = 32, /* tokens that a smaller model may lack, to be read with the first guess */
};

/* Seconds that something took the last few times. */
struct spec_time {
    double last[SPEC_TIMES];
    u32 n; /* ever */
};
void spec_time_add(struct spec_time *t, double seconds);

/* Rows of a step of the target, until the MTP block reads them. */
struct spec_kept {
    struct row *rows; /* [max_rows] */
    u32 n;
    float *hidden; /* [max_rows][d] */
};

struct spec {
    struct spec_env env;
    struct spec_time steps[SPEC_ROWS + 1]; /* of the target, by rows */
    struct spec_time guess;                /* for one sequence, kept or not */
    u32 n_guesses, n_new;                  /* made in this call, kept or not; tokens read for it */
    u32 n_choices;
    /* programs that guess */
    struct spec_seq **asked; /* [max_out] whose each out row of a round is */
    i32 *ids;                /* [max_out] */
    float *logprobs;         /* [max_out] */
    u32 *n_read, *n_blocks;  /* [n_slots] a smaller model's tokens and cache blocks */
    struct reading reading;  /* by it, of what its rows of guesses could not hold */
    /* MTP: of the target's last step, of its last one of prompts beside; and what goes in */
    struct spec_kept kept[2];
    float *imported; /* [max_rows][d] */
    /* by rejection only */
    float *p;                      /* [n_vocab] */
    size_t n_vocab;                /* the larger of both models' */
    float *odds;                   /* [n_slots][SPEC_MAX][n_vocab] that guesses were drawn from */
    float *logits;                 /* [n_vocab] */
    struct sample_scratch scratch; /* [n_vocab] */
};

int spec_draft_open(struct spec *s, struct err *err);
void spec_draft_close(struct spec *s);
/* spec_draft by a program. */
int spec_draft_run(struct spec *s, struct spec_seq *seqs, u32 n, struct err *err);
/* Runs the step that was filled; false in *more: nobody asked. */
int spec_run_round(struct spec *s, bool *more, struct err *err);
/* Fills it with the rows that were kept and whose next token is known by now. */
void spec_take_kept(struct spec *s, struct spec_kept *k, struct spec_seq *seqs, u32 n);

/* What a smaller model has read of a slot's sequence is forgotten behind its first n tokens. */
void spec_draft_rewind(struct spec *s, u32 slot, u32 n);
/* Room for n tokens of a sequence, and the state that its first one begins with, in that step. */
bool spec_make_room(struct spec *s, struct step *step, const struct spec_seq *q, u32 n);
/* Token i of a sequence as a smaller model reads it. */
struct row spec_row(const struct spec *s, const struct spec_seq *q, u32 i, enum row_class cls);

/* Is a guess of this kind, the next for q, worth a row? Lowers q->most where no more should follow.
 */
bool spec_keep(struct spec_seq *q, u32 kind);

/* What the nth guess of a slot was drawn from. */
float *spec_odds_of(const struct spec *s, u32 slot, u32 nth);
/* The probabilities that out row i of a model's last step is drawn from. */
int spec_odds(struct spec *s, const struct spec_model *m, u32 i, float *p, struct err *err);

#endif
