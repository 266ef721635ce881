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

/* Instead of a token: the one that out row i of the step before chose, in the same program. */
#define STEP_CHOSEN(i) (~(i32)(i))

struct row {
    i32 token; /* or STEP_CHOSEN */
    u32 slot;  /* which sequence */
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

/* How the token after an out row is chosen (OP_SAMPLE). All zero: the most likely one. */
struct sample_row {
    float temperature; /* 0: the most likely token; top_k, top_p, min_p count above 0 only */
    u32 top_k;         /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float repeat, presence, frequency; /* penalties of edits with a count */
    u32 choice;                        /* index among several answers to one prompt */
    u64 seed;
    u32 first_edit, n_edits; /* in step.sample_edits */
    u32 n_logprobs;          /* 0: none; n: of the chosen token and of the n - 1 likeliest */
    u32 ahead;               /* tokens between the row's and the chosen one (an MTP block's: 1) */
    bool masked;             /* only tokens whose bit is set in its row of step.masks */
};

/* Changes one logit; a row's edits name each id once. */
struct sample_edit {
    u32 id;
    float bias;
    u32 count; /* how often it occurred recently; above 0 the penalties are due */
};

enum {
    SAMPLE_BAD = -1,         /* instead of an id: a logit is not a number */
    SAMPLE_NONE = -2,        /* the mask allows none */
    SAMPLE_MAX_EDITS = 2048, /* per row */
};

/* How much of everything an executor makes room for. */
struct exec;
/* What a device can do, as its driver says: launches are chosen by nothing else. */
struct device_caps {
    u64 buffer;  /* that a buffer has better not exceed; 0: any size is as good */
    u32 n_units; /* multiprocessors or cores; 0: not known */
    /* Heads that share reads of the cache in a group of attention: more would not fit into the
     * registers of 512 threads. 0: any number. */
    u32 attn_heads;
    bool walks;    /* a few groups for each unit go round over the work: else one a piece */
    bool joins;    /* the last of a launch's groups can go on with what the others left (simt.h) */
    bool native;   /* the kernels of native/ are there */
    bool bulk;     /* and those of them that only Hopper can run */
    bool clusters; /* and groups may read each other's memory, 160 KB each */
    bool tensor;   /* prompts' products by the operations of kernels/tensor.gpu */
    /* Products of one row stage nothing in threadgroup memory: their inputs are made once, by a
     * launch of its own (kernels/unstaged.gpu, unstaged_rows.gpu). */
    bool unstaged;
};

/* What an executor's device has, as far as it decides how much memory is taken there. */
struct exec_device {
    bool known;    /* false: it could not be opened, or nobody looked */
    u64 available; /* bytes free */
    struct device_caps caps;
};

struct exec_limits {
    u32 max_rows;             /* T */
    u32 max_out;              /* R */
    u32 n_slots;              /* sequences at once */
    u32 n_blocks;             /* cache blocks in the pool */
    u32 block_tokens;         /* tokens per block */
    u32 max_pos;              /* longest sequence */
    u32 device;               /* which one, where an executor has several */
    struct exec_device found; /* what exec_class.look says of it */
    bool twice; /* the program is loaded twice: prompts have buffers of their own, and need not
                   be rows of the steps of answers */
    /* Of the same class, open for longer and never at work at the same time: threads may be shared,
     * so that none has to wake up when work changes from one to the other. NULL: none. */
    const struct exec *beside;
    /* File for the vendor's trace of all that is submitted; NULL: none. */
    const char *capture;
    /* Folder where an executor may keep what it compiled for its device; NULL: none. */
    const char *cache_dir;
    u32 keep_alive; /* seconds after the last step in which memory is kept ready for the device */
};

struct step {
    const struct net *net;
    struct exec_limits limits;
    u32 n_rows, n_out, n_edits;
    struct row *rows;        /* [max_rows] rows of one slot in ascending position */
    u32 *out_rows;           /* [max_out] rows whose logits are wanted, ascending */
    struct step_edit *edits; /* [max_rows + n_slots] carried out in order before the first op */
    u32 *tables;             /* [n_slots][table_len] block of each stretch of positions */
    u32 table_len;
    bool is_beside;                   /* tables and turns are another step's */
    struct sample_row *sample;        /* [max_out] */
    struct sample_edit *sample_edits; /* [max_out · SAMPLE_MAX_EDITS] */
    u32 n_sample_edits;
    u32 *masks;          /* [max_out][step_mask_words] allowed tokens, bit i % 32 of word i / 32 */
    const float *hidden; /* [T][d_model] for programs that import it */
    i32 *prev;           /* [max_rows] the row before this one of the same slot, -1: none */
    i32 *last;           /* [n_slots] scratch of step_prepare: last row seen of each slot */
    float *cos, *sin;    /* [max_rows][n_rot/2] of each rotary table, in order */
    double *turns[NET_ROPES];   /* cos and sin that those of any position follow from */
    u32 group_begin, group_end; /* the groups of ops to run: all, unless it is run piece by piece */
};

/* What decides how a step is run: its rows of either class, and the ops that are due. */
struct step_shape {
    u32 n_d, n_p, group_begin, group_end;
};

int step_open(struct step **out, const struct net *net, const struct exec_limits *limits,
              struct err *err);
/* For the same sequences: block tables are those of the other one, which is closed after it. */
int step_open_beside(struct step **out, const struct step *other, struct err *err);
void step_close(struct step *s);
void step_reset(struct step *s);
/* Where cos and sin of a rotary table begin in those of all, for a step of at most max_rows rows.
 */
static inline size_t step_rope_at(const struct net *net, u32 table, u32 max_rows)
{
    size_t n = 0;
    for (u32 i = 0; i < table; i++) n += net->rope[i].n_rot / 2;
    return n * max_rows;
}
/* Words of one row of masks. */
u32 step_mask_words(const struct net *net);
/* False when the step is full. A row that wants logits gets an all-zero sample row. */
bool step_add(struct step *s, struct row row, bool want_logits);
bool step_edit(struct step *s, enum edit_kind kind, u32 dst, u32 src);
/* Derives prev, cos and sin. Call once after the last row. */
void step_prepare(struct step *s);

#endif
