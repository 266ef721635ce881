#ifndef FLETCH_PLACE_H
#define FLETCH_PLACE_H

#include "core/program.h"

/* Liveness, then a place for every buffer that is not inside a group. */
int prog_place(struct program *p, struct err *err);
/* Makes each op a group, in that order (NULL: as recorded), and places buffers. */
int prog_alone(struct program *p, const struct op *const *order, struct err *err);

#endif
