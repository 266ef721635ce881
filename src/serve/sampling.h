/* Sampling settings: what they are when nobody says anything, what is out of range, and how they
 * become what OP_SAMPLE takes (core/step.h). */
#ifndef FLETCH_SAMPLING_H
#define FLETCH_SAMPLING_H

#include "core/step.h"

/* The most likely token. */
struct fletch_sampling sampling_defaults(void);
/* One line that names the first setting out of range. n_vocab 0: not known yet. */
int sampling_check(const struct fletch_sampling *s, u32 n_vocab, struct err *err);

/* The next choice depends on the last tokens. */
bool sampling_looks_back(const struct fletch_sampling *s);

/* Checked settings as a row and its edits (at most SAMPLE_MAX_EDITS), whose number it returns.
 * history: the tokens so far, for the penalties. */
u32 sampling_row(const struct fletch_sampling *s, const i32 *history, size_t n_history,
                 struct sample_row *row, struct sample_edit *edits);
/* The same for out row i of a step. */
void sampling_fill(struct step *step, u32 i, const struct fletch_sampling *s, const i32 *history,
                   size_t n_history);

/* What to say when OP_SAMPLE gave no token (SAMPLE_BAD, SAMPLE_NONE); 0 when it did. */
int sampling_result(i32 token, u32 position, struct err *err);

#endif
