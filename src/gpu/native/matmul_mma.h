/* Shared memory of k_matmul_<encoding>_mma<N> (matmul_mma.cu), for the host and for it. A group
 * multiplies tiles of MMA_M outputs and N rows, `units` of each weight's row at a time: all 32
 * whose sums matvec.gpu has in its lanes, or half of them. A stage is those with `words` of scales
 * for every `share` of them, pieces of the rows (args.h) that belong to them, `cols` columns for a
 * unit, and scales of weights as n_d floats; beside the stages lie sums and barriers. Weights' rows
 * are padded so that lanes want different banks. */
#ifndef NATIVE_MATMUL_MMA_H
#define NATIVE_MATMUL_MMA_H

#include "gpu/args.h"

enum {
    MMA_MAKERS = 256,   /* threads that multiply */
    MMA_BRINGERS = 128, /* threads of a team that brings what they multiply */
    MMA_TEAMS = 2,      /* which take turns with stages */
    MMA_THREADS = MMA_MAKERS + MMA_TEAMS * MMA_BRINGERS,
    MMA_M = 32,
    MMA_FEW = 16, /* N */
    MMA_MANY = 32,
    MMA_MOST = 64, /* in two phases, only for encodings of 16 columns a unit */
    MMA_BARRIERS = 128,
    MMA_SUMS = 8 /* of an output, once warps have added up their own */
};
#define MMA_UNITS(n)              ((n) == MMA_MOST ? 16u : 32u)
#define MMA_W_PITCH(n)            (MMA_UNITS(n) * 16u + 16u)
#define MMA_D_PITCH(n_d)          ((MMA_M + 2u) * (unsigned)(n_d))
#define MMA_WORDS_AT(n)           (MMA_M * MMA_W_PITCH(n))
#define MMA_X_AT(share, words, n) (MMA_WORDS_AT(n) + MMA_M * MMA_UNITS(n) / (share) * (words)*4u)
#define MMA_D_AT(cols, share, words, n) \
    (MMA_X_AT(share, words, n) + MMA_UNITS(n) * (cols) / PIECE_COLUMNS * PIECE_BYTES(n))
#define MMA_STAGE(cols, share, words, n_d, n) \
    (MMA_D_AT(cols, share, words, n) + MMA_UNITS(n) / (share)*MMA_D_PITCH(n_d) * 4u)
/* Sums of so many outputs at once, which is room for what threads keep of the first phase too. */
#define MMA_OUTS(n)       ((n) == MMA_MOST ? 32u : 16u)
#define MMA_SUMS_PITCH(n) (MMA_OUTS(n) + 2u)
#define MMA_BESIDE(n)     (MMA_SUMS * (n)*MMA_SUMS_PITCH(n) * 4u + MMA_BARRIERS)
/* As many stages as there is room for on an SM of an H200, up to eight, and bytes of it all. */
#define MMA_ROOM(cols, share, words, n_d, n) \
    ((227u * 1024u - MMA_BESIDE(n)) / MMA_STAGE(cols, share, words, n_d, n))
#define MMA_STAGES(cols, share, words, n_d, n) \
    (MMA_ROOM(cols, share, words, n_d, n) < 8u ? MMA_ROOM(cols, share, words, n_d, n) : 8u)
#define MMA_BYTES(cols, share, words, n_d, n) \
    (MMA_STAGES(cols, share, words, n_d, n) * MMA_STAGE(cols, share, words, n_d, n) + MMA_BESIDE(n))

#endif
