/* What host and kernels both know: the parts of a step in device memory, one argument struct per
 * kernel, launch geometry. The same text in C, CUDA, Metal and the emulator, so 4-byte fields only.
 *
 * The step. All that changes from one submission to the next is one stretch of device memory that
 * the list's first command copies there. Kernels get its parts as buffers of their own:
 *   HEAD      uint[16]      HEAD_... below
 *   ROWS      uint4[T]      token, slot, position, class
 *   PREV      int[T]        the row before this one of the same slot, -1: none
 *   NEXT      int[T]        the row after it, -1: none (its slot's last row of the step)
 *   OUT       uint[R]       rows whose logits are wanted
 *   ITEMS     uint[T + 1]   how many stretches of SPLIT_TOKENS positions the rows before this one
 *                           attend to; the last is their total
 *   COS, SIN  float[T][n_rot / 2]
 *   TABLES    uint2[]       changed entries of the block tables: (index, block); k_tables runs
 * first HIDDEN    float[T][d]   for programs that import it T is the list's row count; only the
 * first HEAD_N_ROWS rows are real, the others idle.
 *
 * What stays on the device from step to step:
 *   block tables  uint[n_slots][table_len]      the block of each stretch of block_tokens positions
 *   cache layer   half or float[blocks · block_tokens][k_width + v_width]    a row: key, then value
 *   state layer   float[n_slots][width]
 *
 * Activations are float[row][pitch] from the operand's first column on. */
#ifndef FLETCH_ARGS_H
#define FLETCH_ARGS_H

enum {
    HEAD_N_ROWS,
    HEAD_N_OUT,
    HEAD_N_TABLES,
    HEAD_N_EDITS,
    HEAD_WORDS = 16,
};

enum { SPLIT_TOKENS = 256 };

/* Threads of a group by kernel; the host launches with the same number. */
enum {
    TABLES_THREADS = 256,
    EMBED_THREADS = 128,
    NORM_THREADS = 256,
    COLUMNS_THREADS = 256,
    ROPE_THREADS = 128,
    KV_THREADS = 128,
    MATMUL_THREADS = 256,
    EDIT_THREADS = 256,
};

/* Which count bounds the rows of an op: an index into HEAD. */
enum { ROWS_ALL = HEAD_N_ROWS, ROWS_OUT = HEAD_N_OUT };

/* k_copy, k_gather, k_import: y[t] = x[t], x[out[t]] or hidden[t] */
struct copy_args {
    unsigned n, x_pitch, y_pitch;
};

/* k_edit_state: zero or copy; k_edit_blocks: every layer of a run of equal ones */
struct edit_args {
    unsigned kind; /* that it carries out: enum edit_kind */
    unsigned n;    /* 4-byte words of one item (a slot's state, a layer's block) */
    unsigned n_layers, layer_words;
};

/* k_embed_<encoding> */
struct embed_args {
    unsigned n, y_pitch;
    unsigned q_row, s_row; /* of the planes: 16-byte units and bytes per row */
};

/* k_norm: groups of `group` columns; w repeats every `period` */
struct norm_args {
    unsigned n, group, period, kind, rows; /* kind: enum norm_kind; rows: ROWS_... */
    unsigned has_w, has_b;
    unsigned x_pitch, y_pitch;
    float eps;
};

/* k_columns: y = f(a, b, c) column by column */
enum {
    COLUMNS_ADD,
    COLUMNS_MUL,
    COLUMNS_LERP,
    COLUMNS_GLU,
    COLUMNS_K_CONTROL,
    COLUMNS_TANH,
    COLUMNS_SIGMOID,
    COLUMNS_RELU2,
    COLUMNS_DECAY,
};
struct columns_args {
    unsigned n, f, rows;
    unsigned a_pitch, b_pitch, c_pitch, y_pitch; /* 0 where the operand is one row for all */
};

/* k_rope */
struct rope_args {
    unsigned n_heads, width, n_rot, neox;
    unsigned in_stride, out_stride, x_pitch, y_pitch;
};

/* k_kv_store_<f16|f32> */
struct kv_store_args {
    unsigned k_width, v_width, k_pitch, v_pitch;
    unsigned block_tokens, table_len;
};

/* k_quantise: rows to int8 with a scale per 32 columns (quant/act.h), behind a norm if there is one
 * (kind NORM_NONE: none) */
enum { NORM_NONE = 3 };
struct quantise_args {
    unsigned n, rows, x_pitch;
    unsigned norm, has_w, has_b;
    float eps;
};

/* k_matmul_<encoding> for one row and k_matmul_<encoding>_r<N>: y_i = x·W_iᵀ + b_i (+ residual) for
 * up to three matrices of one encoding and input, or silu(x·W_0ᵀ)·(x·W_1ᵀ) */
enum { MATMUL_MAX = 3 };
struct matmul_part {
    unsigned n_out, y_pitch, has_bias;
};
struct matmul_args {
    unsigned n_in, rows, x_pitch;
    unsigned q_row, s_row;                 /* of the planes: 16-byte units and bytes per row */
    unsigned n_parts, glu, residual_pitch; /* residual_pitch 0: none */
    unsigned norm, has_w, has_b;           /* one row only: a norm of x first */
    float eps;
    struct matmul_part part[MATMUL_MAX];
    unsigned x_stride, y_stride; /* matmul_heads: columns from slice to slice */
};

#endif
