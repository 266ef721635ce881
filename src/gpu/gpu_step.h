/* A step as bytes: where its parts lie in the upload buffer and in device memory (args.h says what
 * they hold), and how a struct step is written there. */
#ifndef FLETCH_GPU_STEP_H
#define FLETCH_GPU_STEP_H

#include "core/step.h"

enum step_part {
    STEP_HEAD,
    STEP_ROWS,
    STEP_PREV,
    STEP_NEXT,
    STEP_OUT,
    STEP_ITEMS,
    STEP_COS,
    STEP_SIN,
    STEP_TABLES,
    STEP_EDITS,
    STEP_HIDDEN,
    STEP_PARTS
};

/* Offsets and sizes for T rows; every part begins at a multiple of 256. */
struct step_layout {
    u64 at[STEP_PARTS], n[STEP_PARTS], bytes;
};

void step_layout(struct step_layout *l, const struct net *net, const struct exec_limits *limits,
                 u32 rows, bool hidden);

#endif
