/* One op at a time on the reference executor: a net and a program made by hand, inputs and weights
 * given as numbers. Failures end the test through cmocka.
 *
 *     struct operand x = lab_in(8);                  columns of the rows that the step brings
 *     struct operand y = prog_act(lab.p, "y", ACT_TANH, x);
 *     lab_row(0, 0), lab_row(0, 1);                  two rows: slot 0 at positions 0 and 1
 *     lab_at(x, 1)[3] = 0.5f;
 *     lab_run(y, y);
 *     lab_out(y, 1)[3]                               is tanh(0.5) */
#ifndef FLETCH_LAB_H
#define FLETCH_LAB_H

#include "core/exec.h"

enum { LAB_ROWS = 8, LAB_COLS = 8192, LAB_SLOTS = 3, LAB_BLOCK = 4 };

struct lab {
    struct net *net;
    struct program *p;
    struct exec *x;
    struct step *s;
    struct operand all; /* the imported rows */
    u32 used, handle;
    float *in, *out;
    u32 seed;
};
extern struct lab lab; /* of the test that runs now */

int lab_setup(void **state);
int lab_teardown(void **state);

/* Uniform in [-1, 1), the same in every run. */
float lab_random(void);

struct operand lab_in(u32 width);
float *lab_at(struct operand x, u32 row);
/* Every input column of n rows. */
void lab_fill(u32 n);

/* Values are encoded as type; *back (may be NULL) gets what they decode to, until teardown. */
u32 lab_weight(enum qtype type, u32 n_in, u32 n_out, u32 n_slices, const float *values,
               const float **back);
u32 lab_random_weight(enum qtype type, u32 n_in, u32 n_out, u32 n_slices, const float **back);
u32 lab_vector(u32 n, const float *values);

void lab_row(u32 slot, u32 pos);
/* Runs the step's rows, after opening the executor on first use: a and b are what to keep. */
void lab_run(struct operand a, struct operand b);
/* A row of a kept value after lab_run. Good until the next call but three. */
const float *lab_out(struct operand y, u32 row);

/* |got - want| ≤ 1e-6 of max(1, |want|). */
void lab_close_to(float got, double want);

#endif
