/* A stand-in for Apple's header of the same name: matmul2d, for what kernels/tensor.h asks of it,
 * as loops. A cooperative tensor has its elements among the threads in an order of its own. */
#ifndef STANDIN_MPP
#define STANDIN_MPP

#include <metal_tensor>

namespace mpp
{
namespace tensor_ops
{
struct matmul2d_descriptor {
    int m, n, k;
    bool transpose_left, transpose_right, relaxed_precision;
    constexpr matmul2d_descriptor(int rows, int outs, int inner, bool left, bool right,
                                  bool relaxed)
        : m(rows), n(outs), k(inner), transpose_left(left), transpose_right(right),
          relaxed_precision(relaxed)
    {
    }
};

inline float value_of(device bfloat *p, int i)
{
    return __builtin_bit_cast(float, (unsigned)((device ushort *)p)[i] << 16);
}
inline float value_of(device half *p, int i)
{
    return emu::f16_to_f32(((device ushort *)p)[i]);
}

template <int M, int N, int THREADS> struct cooperative_tensor {
    enum { MINE = M * N / THREADS };
    float mine[MINE];
    static int element(int i) { return i * THREADS + (int)(THREADS - 1 - emu::cur->id.tid); }
    template <class TO> void store(TO &to)
    {
        if (to.extents.n[0] != N || to.extents.n[1] != M) emu::fail("a tile of another size");
        for (int i = 0; i < MINE; i++) to.p[element(i)] = mine[i];
    }
};

template <matmul2d_descriptor D, class SCOPE> struct matmul2d {
    enum { THREADS = SCOPE::simdgroups * 32 };
    static_assert(D.k == (int)metal::dynamic_extent && !D.transpose_left && D.transpose_right, "");
    template <class A, class B, class T>
    cooperative_tensor<D.m, D.n, THREADS> get_destination_cooperative_tensor()
    {
        return {};
    }
    template <class A, class B> void run(A &a, B &b, cooperative_tensor<D.m, D.n, THREADS> &c)
    {
        int n = a.extents.n[0];
        if (b.extents.n[0] != n || a.extents.n[1] != D.m || b.extents.n[1] != D.n)
            emu::fail("panels of other sizes");
        for (int i = 0; i < c.MINE; i++) {
            int e = c.element(i), row = e / D.n, out = e % D.n;
            c.mine[i] = 0;
            for (int k = 0; k < n; k++)
                c.mine[i] = __builtin_fmaf(value_of(a.p, row * n + k), value_of(b.p, out * n + k),
                                           c.mine[i]);
        }
    }
};
} // namespace tensor_ops
} // namespace mpp

#endif
