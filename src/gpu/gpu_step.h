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
    STEP_TILES,
    STEP_COS,
    STEP_SIN,
    STEP_TABLES,
    STEP_SAMPLE,
    STEP_HIDDEN,
    STEP_SAMPLE_EDITS, /* from here on only sent when a row asks for it */
    STEP_MASKS,
    STEP_PARTS
};

/* Offsets and sizes for T rows; every part begins at a multiple of 256. */
struct step_layout {
    u32 rows, out_rows;
    u64 at[STEP_PARTS], n[STEP_PARTS];
    u64 bytes[2]; /* that are sent: always, and with edits of logits or masks */
};

/* Words of cos (or sin) of the rotary tables before this one, for T rows. */
u64 step_angles_at(const struct net *net, u32 table, u32 rows);
void step_layout(struct step_layout *l, const struct program *p, const struct exec_limits *limits,
                 u32 rows);

/* The order that rows have on the device: those of class D first, then those of class P, sequence
 * by sequence. Where the profile makes no difference between classes all count as D. */
struct step_order {
    u32 n, n_d;    /* rows, and those of class D */
    bool moved;    /* it is not the step's own */
    u32 *row, *at; /* [max_rows] of the step at each place, and the other way round */
};
int step_order_open(struct step_order *o, const struct exec_limits *limits, struct err *err);
void step_order_close(struct step_order *o);
void step_order(struct step_order *o, const struct step *s);

/* What block tables the device has, so that only changes are sent. */
struct step_tables {
    u32 *known; /* [n_slots][table_len] */
    u32 len;
    u64 n_bytes;
};

/* How many changes of the tables a step of so many rows has room for. */
u32 step_max_tables(u32 rows);

/* Writes s at dst. False when the tables have changed in more places than there is room for: then
 * nothing is marked as known, and the caller sends the tables as they are. *extra: whether the
 * parts behind STEP_HIDDEN are needed. */
bool step_write(const struct step_layout *l, const struct step *s, const struct step_order *order,
                struct step_tables *tables, u8 *dst, bool *extra);

#endif
