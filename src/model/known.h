/* What a file may say without anything here looking at it. A key or a tensor that nobody asked for
 * is either on the lists of known.c, with the values that change nothing, or is refused by name. */
#ifndef FLETCH_KNOWN_H
#define FLETCH_KNOWN_H

#include "model/hparams.h"

/* Call these after everything was read and bound; they add to s->refused. Where hp names no
 * architecture, only what is said about the vocabulary counts. */
void known_check_keys(const struct source *s, const struct hparams *hp);
void known_check_tensors(const struct source *s, const struct hparams *hp);

#endif
