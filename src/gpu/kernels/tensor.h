/* The word of the dialect for tensor operations (simt.h): products of tiles that a whole group
 * holds, by Metal's own operations where the text is compiled for them, and by loops everywhere
 * else. */
#ifndef KERNELS_TENSOR_H
#define KERNELS_TENSOR_H

#include "gpu/args.h"
#include "gpu/simt.h"

enum { TENSOR_BF16, TENSOR_F16 };

#ifdef SIMT_TENSOR

template <int T> struct tensor_of {
    typedef bfloat element;
};
template <> struct tensor_of<TENSOR_F16> {
    typedef half element;
};

/* sums[TENSOR_ROWS][TENSOR_OUTS] = x·wᵀ; rows of both have n elements and follow each other. Those
 * beyond n_rows and n_outs must be there, and have sums that mean nothing. All threads of a group
 * of TENSOR_THREADS take part; ends with a barrier. The device chooses the order of each sum and
 * which lane has which element: the tile is stored by the operation itself. */
template <int T>
GPU_FN void tensor_tile(DEV(const uint4) x, DEV(const uint4) w, uint n, uint n_rows, uint n_outs,
                        TG(float) sums, uint tid)
{
    typedef typename tensor_of<T>::element element;
    typedef tensor<device element, dextents<int, 2>, tensor_inline> panel;
    typedef tensor<threadgroup float, dextents<int, 2>, tensor_inline> tile;
    constexpr auto shape = mpp::tensor_ops::matmul2d_descriptor(
        TENSOR_ROWS, TENSOR_OUTS, static_cast<int>(dynamic_extent), false, true, false);
    mpp::tensor_ops::matmul2d<shape, execution_simdgroups<TENSOR_THREADS / 32>> product;
    panel a((device element *)x, dextents<int, 2>((int)n, (int)TENSOR_ROWS));
    panel b((device element *)w, dextents<int, 2>((int)n, (int)TENSOR_OUTS));
    auto c = product.template get_destination_cooperative_tensor<panel, panel, float>();
    product.run(a, b, c);
    tile to(sums, dextents<int, 2>((int)TENSOR_OUTS, (int)TENSOR_ROWS));
    c.store(to);
    tg_barrier();
}

#else

GPU_FN float tensor_value(uint word, uint high, int kind)
{
    u16 bits = (u16)(high != 0u ? word >> 16 : word);
    return kind == TENSOR_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

template <int T>
GPU_FN void tensor_tile(DEV(const uint4) x, DEV(const uint4) w, uint n, uint n_rows, uint n_outs,
                        TG(float) sums, uint tid)
{
    for (uint i = tid; i < (uint)(TENSOR_ROWS * TENSOR_OUTS); i += (uint)TENSOR_THREADS) {
        uint row = i / (uint)TENSOR_OUTS, out = i % (uint)TENSOR_OUTS;
        float sum = 0.0f;
        if (row >= n_rows || out >= n_outs) continue;
        for (uint k = 0u; k < n / 8u; k++) {
            uint4 u = x[row * (n / 8u) + k], v = w[out * (n / 8u) + k];
            uint us[4], vs[4];
            us[0] = u.x, us[1] = u.y, us[2] = u.z, us[3] = u.w;
            vs[0] = v.x, vs[1] = v.y, vs[2] = v.z, vs[3] = v.w;
            for (uint j = 0u; j < 8u; j++)
                sum = fmaf(tensor_value(us[j / 2u], j % 2u, T), tensor_value(vs[j / 2u], j % 2u, T),
                           sum);
        }
        sums[i] = sum;
    }
    tg_barrier();
}

#endif
#endif
