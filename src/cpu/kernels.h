/* The inner loops, one table per instruction set. tiles.c, panels.c, rows.c and attend.c are
 * written once and compiled for each. All tables give the same bits. */
#ifndef FLETCH_KERNELS_H
#define FLETCH_KERNELS_H

#include "core/sample.h"
#include "cpu/pack.h"

/* Rows of activations in the forms that products want them in. */
struct cpu_act {
    u32 n;        /* columns */
    float *x;     /* [rows][n] as they are */
    i8 *q;        /* [rows][n] rounded to int8, */
    float *scale; /* [rows][n/32] with their scales */
    i32 *sum;     /* [rows][n/16] of q */
    float
        *mins; /* [rows][n/32][3] what a min is multiplied by: scale·sum of the block, its halves */
    u16 *b;    /* rounded to bf16: see struct cpu_panel */
    bool one_stream; /* of weights is what a core reads fastest for a row alone, not two */
};

/* 32 cached tokens of one key head, and where they are unpacked to, once for all queries. */
struct cpu_kv {
    const u8 *k, *v; /* first token's key and value, */
    const u8 *rope;  /* and the last rope_width columns of its key (latent) */
    const u8 *next;  /* what will be unpacked later, to be fetched meanwhile */
    size_t next_bytes;
    size_t stride; /* bytes from token to token */
    u32 n_tokens;  /* the rest is zeros */
    u32 k_width, v_width, rope_width;
    enum qtype type, v_type; /* of keys and values: F32, F16, Q8_0, Q4_0; of rope never Q4_0 */
    float softcap;           /* of scores; 0: none */
    bool rotated;            /* keys are as they were rounded: with a Hadamard matrix */
    float *kt;               /* [k_width rounded up to 16][32] */
    float *vf;               /* [32][v_width rounded up to 16] */
    u16 *kb, *vb;            /* the same for matrix units, where prompts are attended to */
};

/* What a query has gathered from the tokens so far: floats [top, ..16 | Σ of weights in 16 lanes |
 * Σ of weighted values]. Weights are exp(score - top). */
enum { STATE_SUM = 16, STATE_VALUE = 32 };

struct cpu_query {
    const float *q; /* [k_width] */
    float *state;
    u32 first, n_tokens; /* of the 32 it sees those from first to n_tokens */
};

/* Neighbouring tiles of floats that many rows meet at once. */
enum { STRIP_TILES = 3 };

/* tiles.c */
struct tile_kernels {
    /* Row `row` of a: q, scale and sum from x. */
    void (*quantise)(const struct cpu_act *a, u32 row, const float *x);
    /* y[tile][r][0..16) = the 16 outputs of each of n_tiles neighbours for rows [row, row +
     * n_rows). */
    void (*tiles)(const struct packed *w, const u8 *first, u32 n_tiles, const struct cpu_act *a,
                  u32 row, u32 n_rows, float *y);
    /* The columns of a tile of floats, f32: dst [n_in][pitch]. */
    void (*floats)(const struct packed *w, const u8 *tile, float *dst, size_t pitch);
};

/* One or two tiles of weights against rows of bf16 activations, over a stretch of columns, in the
 * order of the TDPBF16PS instruction or of VDPBF16PS: sums start from the bias at block 0 and go on
 * from y behind it. Activations are groups of 16 rows,
 * [blocks of 32 columns][16][32], the last block filled up with zeros. */
enum { PANEL_BLOCKS = 32 }; /* decoded weights and activations stay in the second cache */

struct cpu_half {
    const struct packed *w;
    const u8 *tile;
    size_t to_next;    /* bytes to the tile that will be wanted next, fetched meanwhile */
    const float *bias; /* NULL: none */
    u32 n;             /* outputs */
    float *const *y;   /* [n_rows] outputs of each row begin at y[row] + col */
    size_t pitch;      /* from each to the next, or 0: they are no rectangle */
    size_t col;
};

struct cpu_panel {
    const u16 *x;        /* groups */
    size_t group_values; /* from group to group */
    u32 n_rows;
    u32 block, n_blocks; /* the stretch */
    bool by_pairs;       /* VDPBF16PS */
    u32 n_halves;
    struct cpu_half half[2];
};

/* panels.c */
struct panel_kernels {
    /* Rounds x to row `row` of a group. */
    void (*pack)(u16 *group, u32 row, const float *x, u32 n);
    void (*multiply)(const struct cpu_panel *p);
};

/* One token of one head of a recurrence that removes nothing: keys of n columns, values of m. */
struct cpu_recurrence {
    const float *r, *w, *k, *v; /* w: one number where head_decay */
    bool head_decay, delta;
    float b;
    u32 n, m;
};

/* rows.c */
struct row_kernels {
    void (*norm)(float *y, const float *x, const float *w, const float *b, u32 n, u32 period,
                 enum norm_kind kind, u32 group, float eps);
    void (*glu)(float *y, const float *g, const float *u, u32 n, const struct op *op); /* OP_GLU */
    void (*act)(float *y, const float *x, u32 n, enum act_kind kind);
    void (*lerp)(float *y, const float *a, const float *b, const float *m, u32 n);
    /* y[i] = Σ_j w[j]·x[j][i], x of a pitch, k rows of it. */
    void (*combine)(float *y, const float *x, const float *w, u32 n, size_t pitch, u32 k);
    sample_weigh_fn *weigh;
    /* One token of one head: S is [key][value]. in: r, w, k, v, kk, a. */
    void (*wkv7)(float *S, float *y, const float *const in[6], u32 n);
    void (*recurrence)(float *S, float *y, const struct cpu_recurrence *x); /* S is [key][value] */
    /* y_i = Σ_k w[k·pitch + i]·x[k][i] + bias_i over n columns. */
    void (*conv)(float *y, const float *const *x, u32 n_taps, const float *w, size_t pitch,
                 const float *bias, u32 n);
    /* out = y + (Σ r·k·r_k)·v of one head. in: r, k, r_k, v. */
    void (*rk_bonus)(float *out, const float *y, const float *const in[4], u32 n);
};

/* attend.c: unpack, let queries gather, add what they gathered elsewhere, and divide. */
struct attention_kernels {
    void (*unpack)(const struct cpu_kv *kv);
    void (*attend)(const struct cpu_kv *kv, const struct cpu_query *q, u32 n, float scale);
    /* On matrix units: q·scale is split to row `row` of a group of 16, what was unpacked to tiles;
     * n queries, whose states lie behind each other and up to a multiple of 16 of them. */
    void (*split_query)(u16 *group, u32 row, const float *q, u32 n, float scale);
    void (*split_cached)(const struct cpu_kv *kv);
    void (*attend_tiles)(const struct cpu_kv *kv, const struct cpu_query *q, const u16 *queries,
                         u32 n);
    void (*merge)(float *state, const float *other, u32 v_width);
    /* sink: one more score, of zeros; -INFINITY: none */
    void (*finish)(float *y, const float *state, u32 v_width, float sink);
};

struct cpu_kernels {
    const char *isa;
    const struct tile_kernels *tiles;
    const struct panel_kernels *panels;
    const struct row_kernels *rows;
    const struct attention_kernels *attention;
};

#if defined __x86_64__
#define CPU_ISAS(X) /* best first */ X(amx) X(avx512bf16) X(avx512) X(avxvnni) X(avx2) X(generic)
/* Only products of bf16 have another instruction there. */
#define cpu_tiles_avx512bf16     cpu_tiles_avx512
#define cpu_rows_avx512bf16      cpu_rows_avx512
#define cpu_attention_avx512bf16 cpu_attention_avx512
#elif defined __aarch64__
#define CPU_ISAS(X) X(i8mm) X(dotprod) X(neon) X(generic)
#else
#define CPU_ISAS(X) X(generic)
#endif
#define CPU_ISA_TABLES(isa)                             \
    extern const struct tile_kernels cpu_tiles_##isa;   \
    extern const struct panel_kernels cpu_panels_##isa; \
    extern const struct row_kernels cpu_rows_##isa;     \
    extern const struct attention_kernels cpu_attention_##isa;
CPU_ISAS(CPU_ISA_TABLES)

/* The name of a table in a file that is compiled for one instruction set. */
#ifndef ISA
#define ISA generic
#endif
#define KERNEL_TABLE(prefix)      KERNEL_JOIN(prefix, ISA)
#define KERNEL_JOIN(prefix, isa)  KERNEL_PASTE(prefix, isa)
#define KERNEL_PASTE(prefix, isa) prefix##_##isa

/* The table named, or the preferred one; NULL when it can't run here. */
const struct cpu_kernels *kernels_find(const char *isa);
/* Does a core of this processor read memory fastest as one stream? */
bool kernels_one_stream(void);
/* The name of the table that is preferred; NULL: the best that this machine can run. */
const char *kernels_preferred(void);

#endif
