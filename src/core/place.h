#ifndef FLETCH_PLACE_H
#define FLETCH_PLACE_H

#include "core/program.h"

/* Liveness, then a place for every buffer that an op still uses. Called again after fusing. */
int prog_place(struct program *p, struct err *err);

#endif
