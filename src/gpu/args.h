/* What host and kernels both know: the parts of a step in device memory, one argument struct per
 * kernel, launch geometry. The same text in C, CUDA, Metal and the emulator, so 4-byte fields only.
 *
 * The step. All that changes from one submission to the next is one stretch of device memory that
 * the list's first command copies there. Kernels get its parts as buffers of their own:
 *   HEAD      uint[16]      HEAD_... below
 *   ROWS      uint4[T]      token (or STEP_CHOSEN), slot, position, class
 *   PREV      int[T]        the row before this one of the same slot, -1: none
 *   NEXT      int[T]        the row after it, -1: none (its slot's last row of the step)
 *   OUT       uint[R]       rows whose logits are wanted
 *   ITEMS     uint[T + 1]   how many stretches of SPLIT_TOKENS positions the rows before this one
 *                           attend to; the last is their total
 *   TILES     uint2[T]      up to FLASH_TILE rows of class P of one sequence: the first, how many
 *   COS, SIN  float[T][n_rot / 2] of each rotary table, each at a multiple of 256 bytes
 *   TABLES    uint2[]       changed entries of the block tables: index, block (k_tables)
 *   SAMPLE    uint[R][SAMPLE_WORDS]   how each out row's token is chosen (struct sample_row)
 *   HIDDEN    float[T][d]   for programs that import it
 *   SAMPLE_EDITS   uint[][SAMPLE_EDIT_WORDS]   id, bias, count (struct sample_edit)
 *   MASKS     uint[R][n_vocab / 32 + 1]
 * T is the list's row count; only the first HEAD_N_ROWS rows are real, the others idle.
 *
 * What stays on the device from step to step:
 *   block tables  uint[n_slots][table_len]      the block of each stretch of block_tokens positions
 *   cache layer   half or float[blocks · block_tokens][k_width + v_width]    a row: key, then value
 *                 or, in blocks, four planes: quants and scales of keys, quants and scales of
 * values state layer   float[n_slots][width]
 *
 * Activations are float[row][pitch] from the operand's first column on. */
#ifndef FLETCH_ARGS_H
#define FLETCH_ARGS_H

enum {
    HEAD_N_ROWS,
    HEAD_N_OUT,
    HEAD_N_TABLES,
    HEAD_N_TILES,
    HEAD_N_D, /* rows of class D, which come first; all where classes don't differ */
    HEAD_WORDS = 16,
};

enum { SPLIT_TOKENS = 64 };

/* Words of a row of SAMPLE. */
enum {
    SAMPLE_TEMPERATURE, /* float */
    SAMPLE_TOP_K,
    SAMPLE_TOP_P,     /* float */
    SAMPLE_MIN_P,     /* float */
    SAMPLE_REPEAT,    /* float */
    SAMPLE_PRESENCE,  /* float */
    SAMPLE_FREQUENCY, /* float */
    SAMPLE_CHOICE,
    SAMPLE_SEED_LOW,
    SAMPLE_SEED_HIGH,
    SAMPLE_FIRST_EDIT,
    SAMPLE_N_EDITS,
    SAMPLE_N_LOGPROBS,
    SAMPLE_MASKED,
    SAMPLE_AHEAD,
    SAMPLE_WORDS = 16,
    SAMPLE_EDIT_WORDS = 3,
};

/* Threads of a group by kernel; the host launches with the same number. One-row products have
 * their own number in native/matvec_384.cu: as an argument of one kernel it cost 2 % of a token. */
#ifndef MATVEC_THREADS
#define MATVEC_THREADS 512
#endif
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

/* enum norm_kind, for kernels; NONE where a norm is optional */
enum { NORM_KIND_RMS, NORM_KIND_LAYER, NORM_KIND_L2, NORM_KIND_NONE };

/* Lanes' queues of units and `words` of scales (simt.h). Two groups with eight slots fit on an SM
 * of an H200, so that a launch's weights travel while the one before it runs; with two words, six.
 */
enum { QUEUE_BATCH = 2, QUEUE_THREADS = MATVEC_THREADS };
#define QUEUE_SLOTS(words) ((words) == 2 ? 6 : 8)
#define QUEUE_BYTES(words, threads) \
    ((unsigned)QUEUE_SLOTS(words) * (unsigned)(threads) * (16u + 4u * (unsigned)(words)))

/* Which count bounds the rows of an op: an index into HEAD. */
enum { ROWS_ALL = HEAD_N_ROWS, ROWS_OUT = HEAD_N_OUT, ROWS_D = HEAD_N_D };

/* k_copy: y[t] = x[t], or x[rows[t]] to gather */
struct copy_args {
    unsigned n, rows, gather, x_pitch, y_pitch; /* rows: ROWS_... */
};

/* k_edit: edits in order, of state slots or of cache blocks (enum edit_kind, for kernels). They run
 * in a list of their own before the step that asks for them. */
enum { EDIT_ZERO, EDIT_STATE, EDIT_BLOCK };
struct edit_args {
    unsigned blocks;
};

/* k_read: n units of 16 bytes */
enum { READ_THREADS = 256, READ_AHEAD = 8 };
struct read_args {
    unsigned n;
};

/* k_embed_<encoding> */
struct embed_args {
    unsigned n, y_pitch;
    unsigned q_row, s_row; /* of the planes: 16-byte units and bytes per row */
    unsigned ids_pitch;
};

/* k_norm: groups of `group` columns; w repeats every `period` */
struct norm_args {
    unsigned n, group, period, kind, rows; /* kind: NORM_KIND_...; rows: ROWS_... */
    unsigned has_w, has_b;
    unsigned x_pitch, y_pitch;
    unsigned threads; /* of a group: enough for 4 columns each, 256 at most */
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
    COLUMNS_NONE,
    COLUMNS_GELU,    /* of glu */
    COLUMNS_CLAMPED, /* of k_columns alone */
    COLUMNS_SILU,
    COLUMNS_EXP,
    COLUMNS_SOFTPLUS,
    COLUMNS_LIMITED, /* of k_columns alone */
};
struct columns_args {
    unsigned n, f, rows;
    unsigned a_pitch, b_pitch, c_pitch, y_pitch; /* 0 where the operand is one row for all */
    float alpha, limit;                          /* of COLUMNS_CLAMPED and COLUMNS_LIMITED */
};

/* k_rope */
struct rope_args {
    unsigned n_heads, width, n_rot, neox;
    unsigned in_stride, out_stride, x_pitch, y_pitch;
};

/* k_heads_<f16|f32>: norms of heads (NORM_KIND_NONE: none), rotation and the way into the cache */
enum { HEADS_THREADS = 256 };
struct heads_args {
    unsigned n_heads, n_kv_heads, width, v_width, n_rot, neox; /* widths of one head */
    unsigned q_norm, k_norm;
    unsigned q_pitch, k_pitch, v_pitch, y_pitch;
    unsigned block_tokens, table_len, threads;
    float q_eps, k_eps;
};

/* k_kv_store_<f16|f32> */
struct kv_store_args {
    unsigned k_width, v_width, k_pitch, v_pitch;
    unsigned block_tokens, table_len;
};

/* k_kv_store_blocks: KV types q8 and q4 (four: two columns to a byte). k_rotate: heads of n
 * columns, a power of two, before they are rounded to q4 and before they meet such keys. */
struct kv_store_blocks_args {
    unsigned k_width, v_width, k_pitch, v_pitch, k_four, v_four;
    unsigned block_tokens, table_len;
};
enum { ROTATE_THREADS = 128, ROTATE_MAX = 256 };
struct rotate_args {
    unsigned n, rows, x_pitch, y_pitch; /* rows: ROWS_... */
    float scale;
};

/* k_quantise: rows to int8 with a scale per 32 columns (quant/act.h), behind a norm if there is
 * one; slices of n columns every `stride`. k_norm_rows: only the norm. For native/matmul_mma.cu so
 * many rows are a tile and lie in pieces, [tile][slice][128 columns]: a piece is PIECE_COLUMNS
 * bytes of each row, 16 bytes of them in places that differ from row to row, then [4][tile] scales.
 */
enum { ACT_COLUMNS = 32, PIECE_COLUMNS = 128, QUANTISE_SHARE = 4096 };
#define PIECE_BYTES(tile) ((tile) * (PIECE_COLUMNS + PIECE_COLUMNS / ACT_COLUMNS * 4u))
struct quantise_args {
    unsigned n, rows, x_pitch, stride, n_slices;
    unsigned tile; /* 0: rows follow each other, scales are elsewhere */
    unsigned norm, has_w, has_b;
    float eps;
};

/* k_matmul_<encoding> and k_glu_<encoding> for one row, k_matmul_<encoding>_r<N> for N at a time:
 * y_i = x·W_iᵀ + b_i (y_0 = s + (r + y_0)) for up to three matrices of one encoding and input, or
 * silu(x·W_0ᵀ + b_0)·(x·W_1ᵀ + b_1). Slices (heads): group.z, x and y move by a stride. */
enum { MATMUL_MAX = 3, MATMUL_SIMDS = MATMUL_THREADS / 32, MATMUL_MAX_IN = 16384 };
enum { MATVEC_SIMDS = MATVEC_THREADS / 32 };
/* Columns of floats in threadgroup memory, and where a fused norm comes before them. */
enum { MATMUL_MAX_F32 = 8192, MATMUL_MAX_NORM_F32 = 6144 };
struct matmul_part {
    unsigned n_out, y_pitch, has_bias;
};
struct matmul_args {
    unsigned n_in, rows, x_pitch, x_stride, y_stride;
    unsigned q_row, s_row;       /* of the planes: 16-byte units and bytes per row */
    unsigned add_pitch[2];       /* of what is added to y_0 in the end; 0: nothing */
    unsigned norm, has_w, has_b; /* one row only: a norm of x first */
    float eps;
    struct matmul_part part[MATMUL_MAX];
    unsigned glu;     /* k_matmul_<encoding>_mma<N> only: y_0 = silu(y_0)·y_1 */
    unsigned threads; /* k_matmul_<encoding>_r<N> only: of a group */
};

/* k_unstaged_<encoding>_o<N>_q<U>: products of one row that is in device memory, rounded (or not,
 * for floats), for up to three matrices of one encoding, or of glu with the first two: then half of
 * the N weight rows of a simdgroup are each one's. Quads are 16 bytes of packed weights, of which a
 * lane has U of each weight row at once. Slices are heads, or the row's experts. */
enum { UNSTAGED_THREADS = 512, UNSTAGED_QUADS = 8 }; /* U · N at most */
struct unstaged_part {
    unsigned first;           /* simdgroup; all ones where there is no such part */
    unsigned n_out, x, scale; /* its input: 16-byte units behind x, floats behind scales */
    unsigned has_bias, f;     /* f: COLUMNS_... of the result, COLUMNS_NONE for none */
};
struct unstaged_args {
    unsigned n_in, rows, n_simds, threads; /* rows: ROWS_...; threads: of a group */
    unsigned q_row, s_row;                 /* of the planes: 16-byte units and bytes per row */
    unsigned x_slice, y_slice;             /* columns from slice to slice */
    unsigned glu, adds;                    /* adds: how many are added to y_0 */
    unsigned experts;                      /* slices are experts, chosen by ids */
    struct unstaged_part part[MATMUL_MAX];
};

/* k_unstaged_sum_<encoding>_o<N>: y = Σ_j weight_j·(x_j·W[id_j]ᵀ) of one row in order, plus
 * s·Vᵀ + b if added.n_in > 0, plus a residual. */
struct unstaged_plane {
    unsigned n_in, q_row, s_row; /* q_row: 16-byte units, s_row: bytes from row to row */
    unsigned x, scale;           /* its input: 16-byte units, floats behind scales */
};
struct unstaged_sum_args {
    struct unstaged_plane expert, added;
    unsigned n_out, n_used, rows, threads; /* rows: ROWS_...; threads: of a group */
    unsigned x_slice;                      /* columns from choice to choice */
    unsigned added_bias, adds;             /* adds: is there a residual? */
};

/* k_waiting_rows: inputs of one row's products, as k_unstaged reads them: x, or x + (x2 - x)·m,
 * rounded or as floats. With a norm, x is the norm of one row for all inputs, which is kept, and x2
 * what the state remembers of the row before. Places: m in 16 bytes of the buffer of weights, x and
 * x2 in floats of the activations, at in 16 bytes of what waits. */
enum { WAITING_MAX = 16 };
struct waiting_row {
    unsigned n, x, x2, m; /* columns; m: or MIX_NOTHING */
    unsigned at, scale;   /* scale: floats of the scales, or MIX_NOTHING where it is not rounded */
};
struct waiting_args {
    unsigned rows;                 /* ROWS_... */
    unsigned norm, norm_w, norm_b; /* NORM_KIND_...; places or MIX_NOTHING */
    float eps;
    struct waiting_row row[WAITING_MAX];
};

/* Products of prompts' rows (class P in profile bf16). Panels are matrices of bf16, their rows
 * padded with zeros to a multiple of PANEL_K columns: k_panel_rows makes them of activations,
 * behind a norm if there is one, k_panel_weights_<encoding> of weights; k_panels (on tensor
 * cores k_panels_mma_<stages>) multiplies them. Slices are heads, or experts, whose rows
 * are listed by k_panel_places: uint begin[n_experts + 1], then pairs row · n_used + choice. */
enum {
    PANEL_K = 64,
    PANEL_M = 128, /* rows of a group */
    PANEL_N = 128, /* outputs of a group */
    PANEL_FEW = 3, /* stages: two groups fit on an SM of an H200, or one with many */
    PANEL_MANY = 6,
    PANEL_ROUND = 16, /* rows that a matrix's part of a panel is padded to */
    PANEL_THREADS = 256,
    PANEL_TILE = 64, /* of k_panels: rows and outputs of a group, */
    PANEL_STEP = 16, /* columns at a time: with rows of both panels 8 KiB */
    PANEL_TILE_THREADS = 128,
    PANEL_WEIGHT_LANES = 64, /* of k_panel_weights: threads of a row */
    PANEL_WEIGHT_ROWS = PANEL_THREADS / PANEL_WEIGHT_LANES,
};
#define PANEL_BYTES(stages) \
    ((unsigned)(stages) * (unsigned)(PANEL_M + PANEL_N) * (unsigned)PANEL_K * 2u)
struct panel_rows_args {
    unsigned n, pitch, x_pitch, stride; /* stride: columns from slice to slice of x */
    unsigned row_step, slice_step;      /* of the panel, in rows of it */
    unsigned norm, has_w, has_b;
    float eps;
};
struct panel_weights_args {
    unsigned n_in, n_out, pitch, q_row, s_row;
    unsigned first, begin, slice; /* rows: of all slices before these, and in the panel: before the
                                     matrix, and of a slice */
    unsigned turn;    /* 0: rows follow each other; 1, 2: first or second eight of every sixteen */
    unsigned experts; /* slices are experts: only those with rows */
};
struct panel_part {
    unsigned begin, n_out, y_pitch, has_bias; /* begin: row of the panel of weights */
};
struct panels_args {
    unsigned pitch, x_slice, w_slice, y_slice; /* slices in rows of the panels, in columns of y */
    unsigned glu;                              /* gate and up take turns */
    unsigned first, n_experts, n_used; /* experts: the first of this launch; n_used 0: none */
    unsigned per_slot;
    unsigned add_pitch[2];
    struct panel_part part[MATMUL_MAX];
};
/* k_panels_tensor, with panels_args; k_tensor_probe */
enum { TENSOR_ROWS = 64, TENSOR_OUTS = 32, TENSOR_THREADS = 128, TENSOR_PROBE = 64 };
struct tensor_probe_args {
    unsigned n; /* columns */
};
struct panel_places_args {
    unsigned n_experts, n_used, ids_pitch;
};

/* k_mla_store_<f16|f32>: rotation of the queries' heads; norm of the latent, rotation of the key
 * behind it, and both into the cache */
enum { MLA_THREADS = 256, MLA_HEADS = 8 }; /* heads of a group */
struct mla_store_args {
    unsigned n_heads, n_rot, neox, q_stride, y_stride; /* strides: from head to head */
    unsigned n, norm, has_w, has_b;                    /* n: columns of the latent */
    unsigned q_pitch, c_pitch, k_pitch, y_pitch;
    unsigned block_tokens, table_len;
    float eps;
};

/* k_mix_<encoding>: products of one row that don't read each other, each with an input of its own:
 * x, or x + (x2 - x)·m; y = act(W·input + bias), or with a second matrix glu of both. With a norm,
 * x is the norm of one row for all parts, which is kept, and x2 what the state remembers of the row
 * before. Places are counted from the start of the buffer of weights in 16 bytes and of the
 * activations in floats. */
enum { MIX_MAX = 8 };
enum { MIX_NOTHING = 0xffffffffu >> 1 };
struct mix_part {
    unsigned first;          /* group */
    unsigned enc;            /* UNIT_...: floats, or else the kernel's */
    unsigned n_in, n_out, f; /* f: COLUMNS_..., COLUMNS_NONE for no act */
    unsigned q, s, s_row;    /* s_row: bytes from row to row */
    unsigned q2, s2;         /* of a second matrix; or MIX_NOTHING */
    unsigned bias, m;        /* or MIX_NOTHING */
    unsigned x, x2, y;
};
struct mix_args {
    unsigned n_parts, n_groups;
    unsigned norm, norm_w, norm_b; /* NORM_KIND_...; places or MIX_NOTHING */
    float eps;
    struct mix_part part[MIX_MAX];
};

/* k_keep: rows that the step's shifts must remember, to the states of the only row's slot; places
 * in 16 bytes. At the end of the step nobody reads the old ones any more. */
enum { KEEP_MAX = 96, KEEP_THREADS = 256 };
struct keep_args {
    unsigned n, pitch; /* of a row, and from row to row */
    unsigned place[KEEP_MAX];
};

/* k_attention_<kv type>_h<heads>, k_latent_<kv type>_h<heads>, k_attention_merge. A unit is eight
 * values of a head; a cached row of a head is read by 1 << shift lanes at once. */
enum {
    ATTN_SUBS = 4,  /* splits of a chunk, and subgroups of threads */
    ATTN_SUB = 128, /* threads of a subgroup */
    ATTN_THREADS = ATTN_SUBS * ATTN_SUB,
    ATTN_UNITS = 32,               /* of eight columns, that a simdgroup reads at once, */
    ATTN_STRETCH = 8 * ATTN_UNITS, /* and in columns */
    ATTN_MAX_HEAD = 512,
    ATTN_PART = ATTN_STRETCH, /* output columns that are joined at once */
    ATTN_FEW_ITEMS = 8,       /* splits up to which heads don't share reads of the cache */
    ATTN_MANY = 256,          /* pairs of row and shared head from which on rows are walked */
    MERGE_THREADS = 128,
    LATENT_THREADS = 256,
    LATENT_SIMDS = LATENT_THREADS / 32,
    LATENT_MAX_K = 576,
    LATENT_MAX_V = 2 * LATENT_THREADS,
    LATENT_P = 16,                  /* rows of a tile, where heads are taken one at a time */
    LATENT_TILE = LATENT_MAX_K * 2, /* 16-byte units of the cached rows in threadgroup memory */
};
struct attention_args {
    unsigned n_heads, n_kv_heads, k_units, v_units, k_shift, v_shift;
    unsigned row_units, v_at; /* 16-byte units: of a cached row, before its first value; in caches
                                 of blocks units of eight: of a row of keys, 0 */
    unsigned q_pitch, y_pitch, block_tokens, table_len;
    unsigned max_items;           /* that the scratch has room for */
    unsigned rows, count, stride; /* most rows; how many: ROWS_...; splits of an item */
    float scale;
    unsigned window, chunked, has_sinks; /* window: 0 for all; as OP_ATTENTION has them */
    float softcap;                       /* 0: none */
};

/* k_flash_<largest head>, k_flash_latent: rows of class P on matrix units, with attention_args */
enum {
    FLASH_THREADS = 256,
    FLASH_TILE = FLASH_THREADS / 32 * 16,
    FLASH_STRIDE = 64,     /* positions at a time */
    LATENT_TILE_ROWS = 64, /* heads of rows of a group of k_flash_latent */
    FLASH_LATENT_THREADS = 512,
};
/* the same without tensor cores: k_flash_mat_<largest head>, k_flash_mat_latent */
enum {
    FLASH_MAT_THREADS = 128,
    FLASH_MAT_ROWS = FLASH_MAT_THREADS / 4, /* of a group */
    FLASH_MAT_STRIDE = 32,
    LATENT_MAT_THREADS = 256,
    LATENT_MAT_ROWS = 16, /* heads of rows of a group */
    LATENT_MAT_STRIDE = 8,
};
#define FLASH_BYTES(head) (4u * (unsigned)FLASH_STRIDE * (head)*2u)
/* queries, two strides of the cache, exponentials */
#define FLASH_LATENT_BYTES                                                            \
    (((unsigned)LATENT_TILE_ROWS + 2u * (unsigned)FLASH_STRIDE) * LATENT_MAX_K * 2u + \
     (unsigned)LATENT_TILE_ROWS * (unsigned)FLASH_STRIDE * 2u)

/* k_mla_query_i8: one row. A head's queries have n_q columns, of which the first n_k go on to
 * n_out; outputs and steps of 32 units of a simdgroup: one slot of its queue for each. */
enum {
    QUERY_CLUSTER = 8, /* groups of a head */
    QUERY_OUTS = 2,
    QUERY_STEPS = 2,
    QUERY_LATENT_OUTS = 4,
    QUERY_MAX_IN = QUERY_STEPS * 512,
    QUERY_MAX_HEAD = QUERY_CLUSTER * QUERY_OUTS * MATVEC_SIMDS,
    QUERY_MAX_LATENT = QUERY_CLUSTER * QUERY_LATENT_OUTS * MATVEC_SIMDS,
};
struct mla_query_args {
    unsigned n_in, norm, has_w;
    float eps;
    unsigned n_q, q_row, s_row; /* of the planes: 16-byte units and bytes per row */
    unsigned n_k, n_out, k_q_row, k_s_row, y_stride;
};

/* k_latent_mma, k_mla_mma: rows of class D on matrix units, with attention_args or mla_args. A
 * stretch of a row's positions is a cluster's, which has tiles of LATENT_POS; there are as many
 * tiles to a group as make all fit into LATENT_CUTS. */
enum {
    LATENT_MMA_THREADS = 512,
    LATENT_CLUSTER = 8, /* groups */
    LATENT_CUTS = 44,   /* of a row: with three groups of heads one on each unit of an H200 */
    LATENT_STRETCHES = (LATENT_CUTS + LATENT_CLUSTER - 1) / LATENT_CLUSTER,
    LATENT_CLUSTERS = 11, /* for several rows: with three groups of heads two on each unit */
    LATENT_POS = 64,
    LATENT_HEADS = 8, /* of a group: with what coarse halves leave 16 rows of the matrix unit */
};
/* a tile, queries and exponentials as two halves each, scores of quarters of the columns */
#define LATENT_MMA_BYTES                                  \
    ((LATENT_POS + 2 * LATENT_HEADS) * LATENT_MAX_K * 2 + \
     LATENT_HEADS * (2 * LATENT_POS * 2 + 4 * (LATENT_POS + 8) * 4))

/* k_mla_<encoding of v_b>: one row, f16 cache; v_b has n_out outputs for each head */
struct mla_args {
    struct mla_store_args store;
    struct attention_args attn;
    unsigned n_out, q_row, s_row, y_stride;
};

/* k_attend_<longest head>_h<heads>: one row, f16 cache. Tickets: a counter for each head's groups.
 */
enum { ATTEND_MAX_HEAD = 128, ATTEND_GROUPS = 1024, TICKETS = 1024 };
struct attend_args {
    struct heads_args heads;
    struct attention_args attn;
    unsigned joins; /* device_caps.joins */
};

/* k_token_shift, k_token_keep */
enum { SHIFT_THREADS = 256 };
struct shift_args {
    unsigned n, x_pitch, y_pitch;
};

/* k_conv, k_conv_keep: the state of a slot is its last n_taps - 1 rows of n */
struct conv_args {
    unsigned n, n_taps, has_b, x_pitch, y_pitch;
};

/* k_recurrence_<columns of a key>: a group has RECURRENCE_VALUES rows of the state of one head */
enum { RECURRENCE_VALUES = 32, RECURRENCE_THREADS = 4 * RECURRENCE_VALUES };
struct recurrence_args {
    unsigned n_heads, n_key_heads, v_head;
    unsigned tiled, delta, head_decay, has_b;
    unsigned r_pitch, w_pitch, k_pitch, v_pitch, b_pitch, y_pitch;
};

/* k_mul_heads: y = a·b in heads of `group` columns of a, which begin every `stride` in b */
struct mul_heads_args {
    unsigned n, rows, group, stride, per_head;
    unsigned a_pitch, b_pitch, y_pitch; /* b_pitch: 0 where it is one row for all */
};

/* k_wkv7_<head size> */
struct wkv7_args {
    unsigned n_heads, r_pitch, w_pitch, k_pitch, v_pitch, kk_pitch, a_pitch, y_pitch;
};

/* k_time_mix_<head size>; pitches of 0: not there */
enum { MIX_HELPERS = 3 }; /* simdgroups beside those that hold the state */
struct time_mix_args {
    unsigned n_heads, r_pitch, w_pitch, k_pitch, v_pitch, a_pitch;
    unsigned first_pitch, m_pitch, g_pitch, y_pitch, has_norm;
    float l2_eps, norm_eps;
};

/* k_low_mix_<head size>, k_unstaged_low_<head size>: one row. A group makes its head's columns of
 * w, a, m and g from the products' inputs itself: matrices of floats, q in 16 bytes of the weights'
 * buffer, n_units of them a row, x and y in floats of the activations, `at` where x has its place
 * in threadgroup memory, in 16 bytes (the second kernel reads x where it is). */
enum { LOW_MAX = 4, LOW_MAX_IN = 2048, LOW_THREADS = MATVEC_THREADS };
enum { LOW_SLOTS = 12, LOW_BYTES = LOW_SLOTS * LOW_THREADS * 16 }; /* of its queues */
struct low_part {
    unsigned enc, n_in, n_units, q, bias, f, x, at; /* bias: or MIX_NOTHING */
};
struct low_mix_args {
    struct time_mix_args mix; /* pitches only say whether something is there */
    unsigned r, k, v, first, y;
    unsigned n_parts, w, a, m, g; /* parts that make them */
    struct low_part part[LOW_MAX];
};

/* k_rwkv7_<i8|k4>: several layers for one row as one launch (native/rwkv7.cu), one group on every
 * unit. Weights of a layer lie `stride` behind those of the one before it, states `state_stride`;
 * places of both are in 16 bytes, of activations in floats. Its kernels have so many simdgroups for
 * outputs: one each of a layer's, whose rows are at most LAYERS_STEPS steps of 32 units. */
#define LAYERS_SIMDS(nibbles) ((nibbles) ? 20 : 16)
#define LAYERS_STEPS(nibbles) ((nibbles) ? 3 : 4)
#define LAYERS_MAX(nibbles)   ((nibbles) ? 2560 : 2048) /* columns; four times as many between */
enum {
    LAYERS_LEAST =
        2048,         /* columns: with 1,024 it is 2 % slower than launches of their own (H200) */
    LAYERS_PARTS = 7, /* r, k, v, middles of w, a, gate, mixture */
    LAYERS_LOW = 4,
    LAYERS_MAX_RANKS = 640,   /* columns of all middles */
    LAYERS_LOW_UNITS = 92,    /* 16 bytes of a row of all low-rank matrices behind them */
    LAYERS_HELPERS = 128,     /* threads that bring weights */
    LAYERS_BYTES = 227 << 10, /* of threadgroup memory */
    LAYERS_HEADER = 16,       /* pairs of the buffer of what groups pass, before the first */
};
struct layers_part {
    unsigned first, enc, n_out, q, s, m, f; /* first: group; enc: UNIT_... */
};
struct layers_low {
    unsigned enc, n_in, q, bias, f; /* enc: UNIT_F16 or UNIT_F32; bias: or MIX_NOTHING */
};
struct layers_args {
    unsigned n_layers, stride, state_stride, n, n_between, n_heads;
    unsigned x, y, v_first;
    float eps[2], l2_eps, head_eps;
    unsigned norm_w[2], norm_b[2], shift[2], state; /* of both halves of a layer */
    unsigned vector[5];                             /* k_k, k_a, r_k, weight and bias of the norm */
    struct layers_part part[LAYERS_PARTS];
    struct layers_low low[LAYERS_LOW];
    unsigned m, q[3], s[3]; /* output; key and value of the channel mix */
};

/* k_route; k_experts_glu chooses among few experts itself */
enum { ROUTE_MAX_EXPERTS = 1024, ROUTE_FEW_EXPERTS = 256, ROUTE_MAX_USED = 32 };
struct route_args {
    unsigned softmax, n_experts, n_used, n_groups, n_groups_used, normalise, has_bias;
    unsigned has_scales; /* of k_route alone */
    unsigned z_pitch, ids_pitch, weights_pitch;
    float floor, scale;
};

/* k_mla_layers_i8: several layers of MLA and experts for one row as one launch
 * (native/mla_layers.cu), one group on every unit. Weights of a layer lie `stride` behind those of
 * the one before it, its cache kv_stride; places of both are in 16 bytes, of activations in floats.
 * So many simdgroups make outputs, rows of weights go through slots of so many bytes. */
enum {
    MLA_SIMDS = 16,
    MLA_SLOTS = 3,
    MLA_SLOT = 34944,  /* 16 rows of 2048 columns with their scales, and 128 */
    MLA_MAX = 2048,    /* columns of the residual stream */
    MLA_MAX_IN = 8192, /* of any product */
    MLA_BLOCK = 64,    /* outputs of v_b that a group makes */
    MLA_EXPERT = 48,   /* of an expert's gate and up */
    MLA_COLUMNS = MLA_SIMDS * 4 / LATENT_STRETCHES * 8, /* of all heads that it joins */
};
/* What groups pass to each other, in pairs of a word and a tag. */
enum {
    MLA_PASS_IN,     /* n: the residual stream */
    MLA_PASS_MIDDLE, /* n: behind attention */
    MLA_PASS_QKV,    /* n_q, then the latent and its key */
    MLA_PASS_QUERY,  /* [head][n_head] */
    MLA_PASS_LATENT, /* [head][latent] queries there */
    MLA_PASS_SUMS,   /* [item][LATENT_HEADS][2] maximum and sum; an item of attention is a group of
                        heads at a group of tiles */
    MLA_PASS_PARTS,  /* [item][LATENT_HEADS][latent] its outputs */
    MLA_PASS_JOINED, /* [head][latent] where there are many */
    MLA_PASS_WORDS,  /* [head][n_v / 4] behind v_b, rounded, */
    MLA_PASS_SCALES, /* [head][n_v / 32] */
    MLA_PASS_ROUTER, /* an expert each */
    MLA_PASS_SHARED, /* n_shared: behind glu */
    MLA_PASS_GLU,    /* [choice][n_between / 4] rounded, */
    MLA_PASS_BY,     /* [choice][n_between / 32] their scales */
    MLA_PASS_HALF,   /* a group each: the largest of half a block */
    MLA_PASS_COUNT
};
struct mla_matrix {
    unsigned q, s;
};
struct mla_layers_args {
    unsigned n_layers, stride, kv_stride;
    unsigned n, x, y;                 /* the residual stream: columns, where it begins and ends */
    unsigned norm[2], q_norm, c_norm; /* before attention, before experts; of q_a, of the latent */
    float eps[2], q_eps;
    unsigned n_q;                  /* outputs of q_a, */
    unsigned q_groups;             /* which so many groups make; the others make kv_a's */
    unsigned n_head;               /* of q_b for a head, */
    unsigned n_k;                  /* of which so many go to k_b */
    unsigned n_v;                  /* outputs of v_b for a head */
    unsigned n_between;            /* of an expert's gate, */
    unsigned n_shared;             /* of the shared one's */
    unsigned pass[MLA_PASS_COUNT]; /* places of what groups pass, in pairs */
    struct mla_matrix q_a, kv_a, q_b, k_b, v_b, o, gate, up, down, shared_gate, shared_up,
        shared_down;
    unsigned router, bias; /* bias: or MIX_NOTHING */
    struct route_args route;
    struct mla_store_args store;
    struct attention_args attn;
};

/* k_rk_bonus */
enum { BONUS_THREADS = 128 };
struct bonus_args {
    unsigned head, n_heads, y_pitch, r_pitch, k_pitch, v_pitch, out_pitch;
};

/* k_experts_<encoding>, k_experts_glu_<encoding>, k_experts_sum_<encoding>; of the last, so many
 * simdgroups share an output's rows */
enum { EXPERTS_WAYS = 2, EXPERTS_SUM_OUTS = MATVEC_SIMDS / EXPERTS_WAYS };
enum { EXPERTS_GLU_ROWS = 4 * MATVEC_SIMDS }; /* of the second: rows until outputs are made */
/* k_experts_sum_few_i8: rows of a simdgroup, steps of 32 units of a row, columns in all */
enum { SUM_FEW_ROWS = 3, SUM_FEW_STEPS = 3, SUM_FEW_IN = 8192 };
#define SUM_FEW_BYTES (SUM_FEW_ROWS * SUM_FEW_STEPS * MATVEC_THREADS * 20u)
struct experts_args {
    unsigned n_in, n_out, n_experts, n_used;
    unsigned x_pitch, x_slice, y_pitch, ids_pitch; /* x_slice: per choice */
    unsigned weights_pitch, residual_pitch;
    unsigned q_row, s_row; /* of the planes: 16-byte units and bytes per row */
    unsigned rows;         /* ROWS_... */
    /* k_experts_sum: columns of a product by one matrix that is added, 0: none; its planes */
    unsigned added_in, added_pitch, added_bias, added_q_row, added_s_row;
    unsigned routes; /* k_experts_glu: the experts are chosen first */
    struct route_args route;
};

/* k_add_experts: n columns for each choice; b_pitch: from bias to bias */
struct add_experts_args {
    unsigned n, n_used, x_pitch, ids_pitch, y_pitch, b_pitch;
};

/* k_combine_experts */
enum { COMBINE_THREADS = 256 };
struct combine_args {
    unsigned n, n_used, x_pitch, weights_pitch, y_pitch;
};

/* k_sample_parts, k_sample */
enum { SAMPLE_THREADS = 512, SAMPLE_MAX_PARTS = 64 };
struct sample_args {
    unsigned n_vocab, n_parts, mask_words;
    unsigned logits_pitch, ids_pitch, logprobs_pitch, top_pitch;
};

#endif
