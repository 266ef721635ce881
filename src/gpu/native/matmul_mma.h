/* Shared memory of k_matmul_<encoding>_mma<N> (matmul_mma.cu), for the host and for it. A group
 * multiplies tiles of MMA_M outputs and N rows. A stage is 32 units of MMA_M weights' rows with
 * `words` of scales for every `share` of them, and the columns of N rows that belong to them (cols
 * for a unit) with their scales; beside the stages lie scales of weights as n_d floats, twice, and
 * sums. Rows are padded so that lanes want different banks. */
#ifndef NATIVE_MATMUL_MMA_H
#define NATIVE_MATMUL_MMA_H

enum {
    MMA_THREADS = 256,
    MMA_M = 32,
    MMA_FEW = 16, /* N */
    MMA_MANY = 32,
    MMA_W_PITCH = 32 * 16 + 16,
    MMA_SUMS_PITCH = 18
};
#define MMA_X_PITCH(cols)       (32u * (unsigned)(cols) + 16u)
#define MMA_SCALES_PITCH(n)     ((unsigned)(n) + 4u)
#define MMA_D_PITCH(n_d)        ((MMA_M + 2u) * (unsigned)(n_d))
#define MMA_X_AT                ((unsigned)(MMA_M * MMA_W_PITCH))
#define MMA_SCALES_AT(cols, n)  (MMA_X_AT + (unsigned)(n)*MMA_X_PITCH(cols))
#define MMA_WORDS_AT(cols, n)   (MMA_SCALES_AT(cols, n) + (cols)*MMA_SCALES_PITCH(n) * 4u)
#define MMA_D_BYTES(share, n_d) (32u / (share)*MMA_D_PITCH(n_d) * 4u)
#define MMA_SUMS_BYTES(n)       (MMA_THREADS / 32u * (n)*MMA_SUMS_PITCH * 4u)
#define MMA_STAGE(cols, share, words, n) \
    (MMA_WORDS_AT(cols, n) + MMA_M * 32u / (share) * (words)*4u)
#define MMA_BESIDE(share, n_d, n) (2u * MMA_D_BYTES(share, n_d) + MMA_SUMS_BYTES(n))

/* Groups on an SM of an H200, as many stages as there is room for, and bytes of it all. */
#define MMA_GROUPS(cols, share, n) ((cols) == 16 && (share) == 2 && (n) == MMA_FEW ? 2 : 1)
#define MMA_STAGES(cols, share, words, n_d, n)                                 \
    ((226u * 1024u / MMA_GROUPS(cols, share, n) - MMA_BESIDE(share, n_d, n)) / \
     MMA_STAGE(cols, share, words, n))
#define MMA_BYTES(cols, share, words, n_d, n)                                    \
    (MMA_STAGES(cols, share, words, n_d, n) * MMA_STAGE(cols, share, words, n) + \
     MMA_BESIDE(share, n_d, n))

#endif
