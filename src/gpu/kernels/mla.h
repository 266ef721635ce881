/* What both ways of MLA's rows into the cache share. */
#ifndef KERNELS_MLA_H
#define KERNELS_MLA_H

#include "gpu/args.h"
#include "gpu/kernels/heads.h"
#include "gpu/simt.h"

/* How native/latent_mma.cu cuts a row's tiles: so many are a group's, and stretches there are. */
GPU_FN uint latent_per(uint n_tiles)
{
    return (n_tiles + (uint)LATENT_CUTS - 1u) / (uint)LATENT_CUTS;
}
GPU_FN uint latent_stretches(uint n_tiles)
{
    uint each = latent_per(n_tiles) * (uint)LATENT_CLUSTER;
    return (n_tiles + each - 1u) / each;
}

/* n_rot columns, rotated, as values of as's type. */
template <class C, class To, class T>
GPU_FN void mla_rotate(DEV(const float) from, C cosine, C sine, To to, uint n_rot, uint neox, T as,
                       uint tid, uint n_threads)
{
    uint n_pairs = n_rot / 2u;
    ROLLED
    for (uint i = tid; i < n_pairs; i += n_threads) {
        uint ia = neox ? i : 2u * i, ib = neox ? i + n_pairs : 2u * i + 1u;
        float p = from[ia], q = from[ib], co = cosine[i], si = sine[i];
        to[ia] = heads_as(p * co - q * si, as);
        to[ib] = heads_as(p * si + q * co, as);
    }
}

#endif
