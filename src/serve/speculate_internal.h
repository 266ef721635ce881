/* What the parts of speculation share: speculate.c (lookups, judging), speculate_choose.c (how
 * many) and speculate_draft.c (programs that guess). */
#ifndef FLETCH_SPECULATE_INTERNAL_H
#define FLETCH_SPECULATE_INTERNAL_H

#include "core/sample.h"
#include "serve/speculate.h"

enum {
    SPEC_TIMES = 5, /* that are remembered */
    SPEC_ROWS = 64 + SPEC_MAX,
};

/* Seconds that something took the last few times. */
struct spec_time {
    double last[SPEC_TIMES];
    u32 n; /* ever */
};
void spec_time_add(struct spec_time *t, double seconds);

struct spec {
    struct spec_env env;
    struct spec_time steps[SPEC_ROWS + 1]; /* of the target, by rows */
    struct spec_time guess;                /* for one sequence, kept or not */
    u32 n_guesses;                         /* made in this call, kept or not */
    u32 n_choices;
    /* programs that guess */
    struct spec_seq **asked; /* [max_out] whose each out row of a round is */
    i32 *ids;                /* [max_out] */
    float *logprobs;         /* [max_out] */
    u32 *n_read, *n_blocks;  /* [n_slots] a smaller model's tokens and cache blocks */
    /* MTP: the rows of the target's last step, and what goes in */
    struct row *rows; /* [max_rows] */
    u32 n_rows;
    float *hidden, *imported; /* [max_rows][d] */
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
void spec_draft_rewind(struct spec *s, u32 slot, u32 n);

/* Is a guess of this kind, the next for q, worth a row? Lowers q->most where no more should follow.
 */
bool spec_keep(struct spec_seq *q, u32 kind);

/* What the nth guess of a slot was drawn from. */
float *spec_odds_of(const struct spec *s, u32 slot, u32 nth);
/* The probabilities that out row i of a model's last step is drawn from. */
int spec_odds(struct spec *s, const struct spec_model *m, u32 i, float *p, struct err *err);

#endif
