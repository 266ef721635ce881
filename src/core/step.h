/* One step: what changes from one submission to the next. T rows over any number of sequences,
 * each row a token of a slot at a position; which rows want logits; where each slot's cache blocks
 * are; what to copy or clear first. Filled by the engine or the scheduler, read by executors. */
#ifndef FLETCH_STEP_H
#define FLETCH_STEP_H

#include "core/program.h"

enum row_class {
    ROW_P, /* a prompt token */
    ROW_D, /* a generated or drafted token */
};

struct row {
    i32 token;
    u32 slot; /* which sequence */
    u32 pos;
    enum row_class cls;
};

enum edit_kind {
    EDIT_ZERO_STATE, /* recurrent state of slot dst */
    EDIT_COPY_STATE, /* slot src to slot dst */
    EDIT_COPY_BLOCK, /* cache block src to block dst, every layer */
};

struct step_edit {
    enum edit_kind kind;
    u32 dst, src;
};

/* How much of everything an executor makes room for. */
struct exec_limits {
    u32 max_rows;     /* T */
    u32 max_out;      /* R */
    u32 n_slots;      /* sequences at once */
    u32 n_blocks;     /* cache blocks in the pool */
    u32 block_tokens; /* tokens per block */
    u32 max_pos;      /* longest sequence */
};

struct step {
    const struct net *net;
    struct exec_limits limits;
    u32 n_rows, n_out, n_edits;
    struct row *rows;        /* [max_rows] rows of one slot in ascending position */
    u32 *out_rows;           /* [max_out] rows whose logits are wanted, ascending */
    struct step_edit *edits; /* [max_rows + n_slots] carried out before the first op */
    u32 *tables;             /* [n_slots][table_len] block of each stretch of positions */
    u32 table_len;
    const float *hidden;  /* [T][d_model] for programs that import it */
    i32 *prev;            /* [max_rows] the row before this one of the same slot, -1: none */
    i32 *last;            /* [n_slots] scratch of step_prepare: last row seen of each slot */
    float *cos, *sin;     /* [max_rows][n_rot/2] */
    u32 op_begin, op_end; /* the ops to run; all of them unless verify steps through */
};

int step_open(struct step **out, const struct net *net, const struct exec_limits *limits,
              struct err *err);
void step_close(struct step *s);
void step_reset(struct step *s);
/* False when the step is full. */
bool step_add(struct step *s, struct row row, bool want_logits);
bool step_edit(struct step *s, enum edit_kind kind, u32 dst, u32 src);
/* Derives prev, cos and sin. Call once after the last row. */
void step_prepare(struct step *s);

#endif
