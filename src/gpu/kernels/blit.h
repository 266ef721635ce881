/* What k_blit's launch needs; see blit.gpu. */
#ifndef KERNELS_BLIT_H
#define KERNELS_BLIT_H

enum { BLIT_THREADS = 256, BLIT_GROUPS = 64 };

struct blit_args {
    unsigned n_words;
};

#endif
