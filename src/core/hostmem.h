/* What executors on the host's own processor have in common: buffers, cache blocks and recurrent
 * state in plain memory, and how a step's edits, reads and routing choices touch them. Such an
 * executor begins with a struct hostmem. */
#ifndef FLETCH_HOSTMEM_H
#define FLETCH_HOSTMEM_H

#include "core/exec.h"
#include "core/sample.h"

enum {
    HOSTMEM_MAX_PROGRAMS = 4,
    HOSTMEM_MAX_EXPERTS = 1024,
    HOSTMEM_LANES = 4,       /* rows sampled at the same time */
    HOSTMEM_MAX_HEAD = 2048, /* columns of a key that is rotated */
};

struct hostmem_program {
    const struct program *p;
    float *mem[2]; /* buffers with T and with R rows */
};

struct hostmem {
    struct exec base;
    const struct net *net;
    struct exec_limits limits;
    struct kv_row *rows;    /* [n_kv] */
    u8 **kv;                /* [n_kv] [n_blocks · block_tokens] rows */
    float **state;          /* [n_states] [n_slots][width] */
    float *sample_z;        /* [HOSTMEM_LANES][n_vocab] */
    u32 *sample_order;      /* the same */
    sample_weigh_fn *weigh; /* of an executor that has a faster one, or NULL */
    u32 n_programs;
    struct hostmem_program programs[HOSTMEM_MAX_PROGRAMS];
};

int hostmem_open(struct hostmem *h, const struct exec_class *class, const struct net *net,
                 const struct exec_limits *limits, struct err *err);
void hostmem_close(struct hostmem *h); /* what it holds, not h itself */
int hostmem_load(struct hostmem *h, const struct program *p, u32 *handle, struct err *err);
u64 hostmem_bytes(const struct program *p, const struct exec_limits *limits); /* of buffers */

/* Memory aligned to 64 bytes, not cleared; free it. */
void *hostmem_alloc(u64 n);

/* Carries out the edits of a step. */
void hostmem_edit(struct hostmem *h, const struct step *s);

/* The token of row t, which may be one that the step before chose. Before OP_SAMPLE only. */
u32 hostmem_token(const struct hostmem *h, u32 handle, const struct step *s, u32 t);

/* Row `row` of an operand. */
float *hostmem_row(const struct hostmem *h, u32 handle, struct operand o, u32 row);
/* A cached row: its key, with the value behind it. */
u8 *hostmem_kv_row(const struct hostmem *h, const struct step *s, u32 layer, u32 slot, u32 pos);
/* Where its part begins to hold column col (a multiple of 32 in blocks). */
const u8 *hostmem_kv_at(const struct kv_row *row, u32 part, const u8 *cached, u32 col);
/* Rounds n values to columns col and on of a part; where keys are rotated, n is a head. Overflow
 * becomes NaN (infinity in f16) and is noticed where logits are read. */
void hostmem_kv_put(const struct kv_row *row, u32 part, u8 *cached, u32 col, const float *x, u32 n);
/* OP_KV_STORE for row t. */
void hostmem_kv_store(const struct hostmem *h, u32 handle, const struct step *s,
                      const struct op *op, u32 t);
/* x times the Hadamard matrix of order n (a power of two) over √n, which is its own inverse. */
void hostmem_rotate(float *x, u32 n);
float *hostmem_state(const struct hostmem *h, u32 state, u32 slot);

/* The experts of one row, by OP_ROUTE's words. */
void hostmem_route(const struct op *op, const float *z, const float *bias, const float *scales,
                   i32 *ids, float *weights);

/* One member's share of OP_SAMPLE; all n_members may call it at the same time. */
void hostmem_sample(const struct hostmem *h, u32 handle, const struct step *s, const struct op *op,
                    u32 member, u32 n_members);

/* For the tables of such executors: submit is done when it returns. */
int hostmem_wait(struct exec *x, struct err *err);
int hostmem_read(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows, float *dst,
                 struct err *err);
int hostmem_write(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                  const float *src, struct err *err);
int hostmem_move(struct exec *x, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                 struct err *err);

#endif
