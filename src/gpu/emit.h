/* How ops become launches. An emitter is one function per kind of op, or per rule
 * (rules.c), that appends launches to the list of one T: which kernel, how many groups, what is
 * bound where. Nothing here needs a device: memory is named by space and offset, so that plan and
 * explain count launches and scratch without one, and gpu.c puts real buffers in their place when
 * it records.
 *
 * A whole emitter, with its kernel (kernels/rows.gpu):
 *
 *   int emit_rope(struct emit *e, const struct op *op)
 *   {
 *       struct rope_args a = {.n_heads = op->p.rope.n_heads, …,
 *                             .x_pitch = emit_pitch(e, op->in[0]), .y_pitch = …};
 *       emit_launch(e, "k_rope", e->rows, a.n_heads, ROPE_THREADS);   // groups x, y; threads
 *       emit_step(e, STEP_HEAD);                                      // binding 0
 *       emit_step(e, STEP_COS);                                       // 1
 *       emit_step(e, STEP_SIN);                                       // 2
 *       emit_in(e, op->in[0]);                                        // 3
 *       emit_out(e, op->out[0]);                                      // 4
 *       return emit_args(e, &a, sizeof a);                            // 5, ends the launch
 *   }
 *
 *   KERNEL(k_rope, ROPE_THREADS)
 *   (DEV(const uint) head BUF(0), DEV(const float) cosine BUF(1), DEV(const float) sine BUF(2),
 *    DEV(const float) x BUF(3), DEV(float) y BUF(4), ARGS(rope_args) a BUF(5) GPU_IDS)
 *   {
 *       uint t = gpu_group.x, h = gpu_group.y;
 *       if (t >= head[HEAD_N_ROWS]) return;
 *       …
 *   }
 *
 * Bindings follow the order of the calls, arguments come last. What a launch reads and writes is
 * known from them, so emit.c finds by itself which launches must wait for earlier ones. An emitter
 * refuses what its kernels can't do with an error that names the op. */
#ifndef FLETCH_EMIT_H
#define FLETCH_EMIT_H

#include "core/exec.h"
#include "gpu/args.h"
#include "gpu/driver.h"
#include "gpu/gpu_pack.h"
#include "gpu/gpu_step.h"
#include "gpu/layout.h"

/* Attention without its later parts: their outputs are wrong, their time is what is asked for. */
enum gpu_ablation { ABLATION_NONE, ABLATION_SCORES, ABLATION_SOFTMAX };

enum space {
    SPACE_STEP,
    SPACE_TABLES,
    SPACE_T, /* activations with T rows */
    SPACE_R, /* and with R */
    SPACE_KV,
    SPACE_STATE,
    SPACE_WEIGHT,
    SPACE_CHUNK, /* a whole buffer of weights */
    SPACE_SCRATCH,
    SPACE_TICKETS, /* uint[TICKETS], 0 between launches */
    SPACE_PASSED,  /* what groups of a launch for layers pass to each other; only they write it */
    SPACE_COUNT
};

struct binding {
    enum space space;
    u32 weight, plane; /* SPACE_WEIGHT: what offset counts from */
    u64 offset, n;     /* bytes */
    bool write;
};

enum { EMIT_MAX_TOUCHED = 24 };

struct launch {
    char kernel[32];
    u32 of; /* index of its group of ops in the program */
    u32 groups[3], threads;
    u32 per_four; /* at most that many groups for four units of the device (0: any number) */
    u32 pieces;   /* and one for each unit while there are as many of these */
    u32 tg_bytes; /* struct gpu_command */
    struct choice choice; /* how else it may lie; a site without kernel: in no other way */
    u32 n_bufs, n_args;
    struct binding bufs[GPU_MAX_BUFS];
    u32 n_touched; /* what it reads and writes through a binding of all activations */
    struct binding touched[EMIT_MAX_TOUCHED];
    double work; /* struct gpu_command: its share of what its group does */
    u8 args[GPU_MAX_ARGS];
    bool after;
};

/* What a list is for. Where the profile makes no difference between classes all rows are D. */
struct list_kind {
    u32 n_d, n_p; /* rows of class D, which come first, and of class P: at most */
    struct device_caps caps;
    bool resident;                 /* with kernels whose groups wait for each other */
    enum gpu_ablation ablation;    /* of attention over halves; bench only */
    const struct layouts *layouts; /* what was found to be better than what is usual; may be NULL */
};

struct emit {
    const struct program *p;
    const struct exec_limits *limits;
    struct list_kind kind;
    u32 rows;     /* T of the list, or only those of class D (emit_only_d) */
    u32 count;    /* how many of them there are: ROWS_... */
    u32 out_rows; /* R: min(T, max_out) */
    u32 of;       /* the group of ops being emitted */
    u64 scratch;  /* bytes needed so far, over all launches */
    u64 inner;    /* where the scratch of the op begins: behind values inside its group */
    u64 kept;     /* and of every group: behind rows that are kept until the end */
    u64 passed;   /* bytes of SPACE_PASSED */
    u32 n_kept;   /* so many, each of kept_width floats, for these states */
    u32 kept_width, *kept_for;
    struct weight_place *places;
    u64 *at; /* [n_bufs] places of values inside a group, in scratch */
    struct step_layout step;
    struct choice choice; /* of the next launch */
    u32 n, cap;
    struct launch *list;
    bool even;   /* all launches of a layer are for a group on every unit (emit_even) */
    u32 barrier; /* launches from here on may overlap */
    struct err *err;
    int rc; /* sticky */
};

/* The launches of p's groups [first, behind) for one kind of list; the caller frees e->list. */
int emit_groups_of(struct emit *e, const struct program *p, const struct exec_limits *limits,
                   struct list_kind kind, u32 first, u32 behind, struct err *err);
/* Of all of them. */
int emit_program(struct emit *e, const struct program *p, const struct exec_limits *limits,
                 struct list_kind kind, struct err *err);
/* Launches that follow are for rows of class D only, or for all again. */
void emit_only_d(struct emit *e);
void emit_for_all(struct emit *e);

/* One launch: begin it, bind in order, end it with its arguments. */
void emit_launch(struct emit *e, const char *kernel, u32 gx, u32 gy, u32 threads);
void emit_depth(struct emit *e, u32 gz);                /* of the grid, where it is not 1 */
void emit_groups(struct emit *e, u32 gx, u32 tg_bytes); /* once they are known */
/* Its groups walk over the work, a few for each unit of the device, with queues of n bytes. */
void emit_walk(struct emit *e, u32 per_unit, u32 tg_bytes);
u32 emit_per_four(const struct emit *e, u32 per_unit); /* as a layout says it */
/* shapes.c: how the next launch lies: as it was tuned for the sizes it has (site; its rows are
 * filled in), or as is usual for weights of so many bytes and so many rows at once. Then it walks
 * by that. */
enum launch_shape {
    SHAPE_MATVEC,
    SHAPE_MATVEC_NATIVE,
    SHAPE_ROWS,
    SHAPE_MIX,
    SHAPE_EXPERTS,
    SHAPE_ATTEND,
    SHAPE_UNSTAGED,
    SHAPE_UNSTAGED_GLU,
    SHAPE_UNSTAGED_SUM,
    SHAPE_COUNT
};
struct layout emit_shape(struct emit *e, enum launch_shape shape, enum encoding enc,
                         const struct site *site, u32 n_rows, u64 bytes);
void emit_walk_by(struct emit *e, const struct layout *l, u32 tg_bytes);
void emit_pieces(struct emit *e, u32 n); /* that the work can be dealt out in */
/* Groups of a launch of n that has one on every unit: then the next one's find a place on every
 * unit too, while this one runs. Without those that do nothing, launches of 132 groups lay two by
 * two on half of an H200's units, in turns. All launches of a layer must be like this, two of their
 * groups fit on a unit: RWKV-7's are. */
u32 emit_even(const struct emit *e, u32 n);
void emit_bind(struct emit *e, struct binding b); /* what the others are made of */
void emit_in(struct emit *e, struct operand o);
void emit_out(struct emit *e, struct operand o); /* also what is read and written */
void emit_step(struct emit *e, enum step_part part);
void emit_angles(struct emit *e, const struct op *rope); /* two bindings: cos, sin */
/* All activations with T rows, and a whole buffer of weights; for kernels that find things by
 * places in their arguments. What they touch there is said beside it, if it is not all. */
void emit_all(struct emit *e, bool write);
void emit_chunk(struct emit *e, u32 chunk);
u32 emit_place(const struct emit *e, struct operand o); /* in floats */
u32 emit_touch(struct emit *e, struct operand o, bool write);
struct planes emit_planes(const struct emit *e, u32 id); /* of a weight */
u32 emit_unit(const struct emit *e, u32 id); /* a weight's in its chunk, in 16 bytes; MIX_NOTHING */
u32 emit_scales_unit(const struct emit *e, u32 id); /* its second plane's */
void emit_tables(struct emit *e, bool write);
void emit_weight(struct emit *e, u32 id); /* two bindings: quants, scales (see gpu_pack.h) */
/* Row `row` of a vector weight as f32; NO_WEIGHT binds something harmless. */
void emit_vector(struct emit *e, u32 id, u32 row);
void emit_tickets(struct emit *e);
void emit_kv(struct emit *e, u32 layer, bool write); /* all its planes, one binding each */
void emit_state(struct emit *e, u32 layer, bool write);
/* All that lie in one buffer, which begins at `begin`; read and written. */
void emit_states(struct emit *e, u64 begin);
void emit_passed(struct emit *e);
/* A row of n floats that becomes the only row's state of that layer behind the last op; a group may
 * ask for its own again. */
void emit_kept(struct emit *e, u32 layer, u32 n);
/* Bytes [offset, offset + n) of the scratch memory that all launches of the step share: what a
 * group leaves there is gone with the next one. offset is a multiple of 256. */
void emit_scratch(struct emit *e, u64 offset, u64 n, bool write);
int emit_args(struct emit *e, const void *args, u32 n);

u32 emit_pitch(const struct emit *e, struct operand o);
/* ROWS_ALL or ROWS_OUT, and how many there are room for. */
u32 emit_rows_of(const struct emit *e, struct operand o);
u32 emit_n_rows(const struct emit *e, struct operand o);
int emit_op(struct emit *e, const struct op *op);
/* rules.c: by the emitter of its rule, if it has one. That may call emit_inside, and then emit some
 * of the ops one by one: values inside the group lie in scratch memory from there on. */
int emit_group(struct emit *e, const struct group *g);
void emit_inside(struct emit *e, const struct group *g);
int emit_each(struct emit *e, const struct group *g); /* all of them */
/* A cache layer is one plane of rows, or quants and scales of keys and of values in planes of their
 * own. Gives how many there are. */
enum { KV_PLANES = 4 };
struct kv_plane {
    u64 at, row; /* bytes: among all layers, and of one token */
};
u32 emit_kv_planes(const struct net *net, const struct exec_limits *limits, u32 layer,
                   struct kv_plane planes[KV_PLANES]);
/* Are there several? And the type's name in kernels. */
bool emit_kv_in_blocks(const struct net *net);
/* Where a state layer lies among the others, and its bytes. */
u64 emit_state_at(const struct net *net, const struct exec_limits *limits, u32 layer, u64 *n);
/* The cache and the states lie in buffers of at most limits->found.caps.buffer bytes, each with
 * whole stretches (gpu_memory.h): where the one begins that holds the n bytes at `at`, when the one
 * before them is in the buffer that begins at `begin`; and the one that holds a state layer. */
u64 emit_buffer_begin(const struct exec_limits *limits, u64 begin, u64 at, u64 n);
u64 emit_state_buffer(const struct net *net, const struct exec_limits *limits, u32 layer);
/* Rows that the operand's buffer has room for: more than T, so that kernels may take eight at once.
 */
u32 emit_room(const struct exec_limits *limits, enum rows rows);
/* Sets the error: the executor lacks this op, or this form of it. */
int emit_lacks(struct emit *e, const struct op *op, const char *what);

/* The emitters of ops, with the features that their kernels know; they look at shapes themselves.
 */
#define GPU_OP_TABLE(X)                                                      \
    X(EMBED, emit_embed, HAS(OP))                                            \
    X(IMPORT_HIDDEN, emit_copy, HAS(OP))                                     \
    X(NORM, emit_norm, HAS_ANY_NORM)                                         \
    X(MATMUL, emit_product_op, HAS(OP) | HAS(BIAS))                          \
    X(MATMUL_HEADS, emit_product_op, HAS(OP) | HAS(SHARED_INPUT))            \
    X(ADD, emit_columns, HAS(OP) | HAS(WEIGHT))                              \
    X(MUL, emit_mul, HAS(OP) | HAS(WEIGHT) | HAS(HEAD_FACTORS))              \
    X(LERP, emit_columns, HAS(OP) | HAS(WEIGHT))                             \
    X(ACT, emit_columns, HAS_ANY_ACT)                                        \
    X(GLU, emit_columns, HAS_ANY_GLU)                                        \
    X(K_CONTROL, emit_columns, HAS(OP))                                      \
    X(ROPE, emit_rope, HAS(OP) | HAS(NEOX) | HAS(PARTIAL) | HAS(ROPE_TABLE)) \
    X(KV_STORE, emit_kv_store, HAS(OP) | HAS(NO_VALUE))                      \
    X(ATTENTION, emit_attention, HAS_ANY_ATTENTION)                          \
    X(LATENT_ATTENTION, emit_attention, HAS(OP))                             \
    X(ROUTE, emit_route, HAS_ANY_ROUTE | HAS(EXPERT_SCALES))                 \
    X(MATMUL_EXPERTS, emit_matmul_experts, HAS(OP) | HAS(PER_SLOT))          \
    X(ADD_EXPERTS, emit_add_experts, HAS(OP))                                \
    X(COMBINE_EXPERTS, emit_combine_experts, HAS(OP))                        \
    X(TOKEN_SHIFT, emit_token_shift, HAS(OP))                                \
    X(CONV, emit_conv, HAS(OP) | HAS(BIAS))                                  \
    X(RECURRENCE, emit_recurrence, HAS_ANY_RECURRENCE)                       \
    X(RK_BONUS, emit_rk_bonus, HAS(OP))                                      \
    X(GATHER_ROWS, emit_copy, HAS(OP))                                       \
    X(SAMPLE, emit_sample, HAS(OP))
#define DECLARE_OP_EMITTER(id, emitter, has) int emitter(struct emit *e, const struct op *op);
GPU_OP_TABLE(DECLARE_OP_EMITTER)
extern const u64 emit_features[OP_COUNT];

/* A norm's fields in arguments of kernels that norm their input. */
#define NORM_ARGS(x)                                                                         \
    .norm = (x) ? (x)->p.norm.kind : NORM_KIND_NONE, .has_w = (x) && (x)->w[0] != NO_WEIGHT, \
    .has_b = (x) && (x)->w[1] != NO_WEIGHT, .eps = (x) ? (x)->p.norm.eps : 0
/* Binds something harmless. */
static const struct operand no_operand = {NO_BUF, 0, 0};

/* emit_rows.c: */
u32 emit_act(enum act_kind kind); /* as COLUMNS_... */
/* Heads of n columns of x, turned into scratch memory at `offset`, rows close together. */
void emit_rotate(struct emit *e, struct operand x, u32 n, u64 offset);
u64 emit_rotated_bytes(const struct emit *e, struct operand x);
/* Inputs of one row's products that wait in scratch memory, each made once (k_waiting_rows): x, or
 * x + (x2 - x)·m; with a norm, x is what is normed and x2 what the shift's state remembers. */
struct waiting_input {
    struct operand x, x2;
    u32 m;         /* place in the buffer of weights, or MIX_NOTHING */
    bool int8;     /* rounded; else floats */
    u32 at, scale; /* where it waits: 16-byte units, floats of the scales */
};
struct waiting {
    const struct op *norm, *shift; /* NULL: none */
    u32 chunk;                     /* of the norm's vectors and m */
    u32 n;
    struct waiting_input in[WAITING_MAX];
    u64 bytes, n_scales; /* of all inputs */
};
/* Products of one kind, over rows, heads or experts, with what is before and after them. All rules
 * for products, and products by themselves, are told to kernels by this. */
struct matrix {
    u32 w, bias;
    const struct op *lerp, *act; /* that makes its input, and of its result; NULL: none */
    const struct op *glu;        /* of its result and that of the next one, which has the same y */
    struct operand x, y;         /* x: before the norm and the lerp */
    u32 input;                   /* of product.waiting */
};
struct product {
    const struct op *op;           /* the first, for messages */
    const struct op *norm, *shift; /* of x first; NULL: none */
    struct operand x;
    u32 n;
    struct matrix m[MIX_MAX];
    u32 n_add; /* values that are added to the first result */
    struct operand add[2];
    u32 n_slices, n_in, x_stride, y_stride; /* slices (heads) of n_in columns each */
    u32 n_used;                             /* slices are experts, these choices among them */
    bool per_slot;
    struct operand ids;
    u32 tile;                      /* rows of one on matrix units */
    const struct waiting *waiting; /* matrices have inputs of their own; may be NULL */
};
/* emit_product.c: the products of g that have the kind and, if the rule doesn't gather, the input
 * of `like` (NULL: the first one). */
struct product product_of(const struct group *g, const struct op *like);
struct product product_alone(const struct op *op);
/* Two bindings: what a shift before products remembers, and what it will; or the norm's result. */
void emit_shift(struct emit *e, const struct op *shift, const struct op *norm);
/* The matrices of m that are from[0 .. n). */
struct product product_part(const struct product *m, const u32 *from, u32 n);
/* emit_panels.c: products of rows of class P.
 * Does profile bf16 apply to rows of this list: are they of a step, the matrix not F32? */
bool emit_has_panels(const struct emit *e, struct operand x, u32 w);
int emit_panels(struct emit *e, const struct product *m);
/* Does them, where all of m's matrices are such; false: there are rows of class D too, which
 * launches that follow are for until emit_for_all. */
bool emit_panels_are_all(struct emit *e, const struct product *m);
/* emit_matmul.c: */
u32 emit_scale_words(enum encoding enc); /* of a unit's scales in a lane's queue, as units.h */
int emit_product(struct emit *e, const struct product *m);
int emit_glu(struct emit *e, const struct group *g, struct product m);
/* The same behind rows of class P, which have kernels of their own. */
int emit_product_rows(struct emit *e, const struct product *m);
u64 emit_waiting_bytes(const struct emit *e, const struct product *m, bool int8);
/* emit_unstaged.c: does a product of x have one row, on a device that stages none? And the launch
 * of m, all of one encoding, whose input lies in the product's scratch memory where it is rounded
 * or normed. */
bool emit_is_unstaged(const struct emit *e, struct operand x);
void emit_unstaged(struct emit *e, const struct product *m);
/* Adds an input, or finds it: its number. UINT32_MAX: there is no room. */
u32 waiting_add(struct waiting *w, struct waiting_input in);
void emit_waiting_rows(struct emit *e, const struct waiting *w);
void emit_bind_waiting(struct emit *e, const struct waiting *w, bool write); /* rows, scales */
/* The sum of one row's experts, and what the group adds to it; residual may be NULL. */
void emit_unstaged_sum(struct emit *e, const struct group *g, const struct operand *residual);
/* emit_attention.c: */
/* How many heads that share a cached row a group takes at once; kernels exist for these. */
u32 emit_heads_at_once(const struct emit *e, const struct op *op);
struct attention_args emit_attention_args(const struct emit *e, const struct op *op);
/* Outputs of chunks, then their sums. */
void emit_attention_scratch(struct emit *e, const struct op *op, bool write);
void emit_attention_merge(struct emit *e, const struct op *op);
/* latent_mma.cu: so many clusters of groups for all heads. */
void emit_clusters(struct emit *e, const char *kernel, const struct op *op, u32 clusters);
/* emit_recurrent.c: */
int emit_wkv7(struct emit *e, const struct op *op);
bool emit_has_wkv7(u32 head);    /* kernels for heads of that size */
void emit_chain(struct emit *e); /* HEAD, ROWS, PREV, NEXT */
/* emit_layers.c: layers from group e->of on that are alike become one launch, where there is one
 * for them. Gives the number of their groups; 0: the next group has launches of its own. */
u32 emit_layers(struct emit *e, u32 end);

#endif
