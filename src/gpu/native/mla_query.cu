/* The queries of latent attention of one row in one launch: norm, the product that makes all heads'
 * queries, and by heads the one that takes them to where latents are. A head is a cluster's: each
 * group makes a share of its queries, gives it to all others, and then makes a share of its
 * outputs. All weights travel before the wait. The bits are those of k_matmul_<encoding>. */
#include "gpu/kernels/matvec.h"
#include "gpu/kernels/norm.h"
#include "gpu/native/cluster.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900

/* Outputs of a simdgroup, every MATVEC_SIMDS-th of [begin, end), and their units' steps: each of
 * both has a slot of the queue from `slot` on. */
struct query_rows {
    CONST(uint4) q;
    CONST(u8) s;
    uint begin, end, n_in, q_row, s_row, slot;
};

template <int OUTS, int STEPS> GPU_FN void query_send(const query_rows &r, uint lane, uint simd)
{
    UNROLL
    for (uint i = 0u; i < (uint)OUTS; i++) {
        uint out = r.begin + i * (uint)MATVEC_SIMDS + simd;
        UNROLL
        for (uint j = 0u; out < r.end && j < (uint)STEPS; j++)
            matvec_send<UNIT_I8, 1>(r.q + out * r.q_row, r.s + (u64)out * r.s_row,
                                    r.n_in / (uint)UNIT_COLUMNS(UNIT_I8), r.s_row, j,
                                    r.slot + i * (uint)STEPS + j, lane);
    }
    queue_commit();
}

template <int STEPS>
GPU_FN float query_dot(const query_rows &r, uint i, TG(const uint4) xs, TG(const float) scales,
                       uint lane, uint simd)
{
    uint out = r.begin + i * (uint)MATVEC_SIMDS + simd;
    float sum = 0.0f;
    UNROLL
    for (uint j = 0u; j < (uint)STEPS; j++)
        sum = matvec_take<UNIT_I8, 1>(r.q + out * r.q_row, r.s + (u64)out * r.s_row,
                                      r.n_in / (uint)UNIT_COLUMNS(UNIT_I8), j,
                                      r.slot + i * (uint)STEPS + j, xs, scales, r.n_in, lane, sum);
    return simd_sum(sum);
}

/* group.x: of a cluster, group.z: head */
extern "C" __global__ void __cluster_dims__(QUERY_CLUSTER, 1, 1)
    __launch_bounds__(MATVEC_THREADS, 2)
        k_mla_query_i8(CONST(float4) w, DEV(const float4) x, CONST(uint4) qq, CONST(u8) qs,
                       DEV(float) q, CONST(uint4) kq, CONST(u8) ks, DEV(float) y,
                       ARGS(mla_query_args) a)
{
    __shared__ uint4 xs[QUERY_MAX_IN / 16];
    __shared__ float scales[QUERY_MAX_IN / 32], part[NORM_THREADS / 32];
    __shared__ float4 mine[QUERY_MAX_HEAD / 4]; /* the head's queries */
    uint lane = gpu_lane, simd = gpu_simd, tid = gpu_tid, rank = blockIdx.x, h = blockIdx.z;
    query_rows one = {qq + h * a.n_q * a.q_row,
                      qs + (u64)(h * a.n_q) * a.s_row,
                      a.n_q * rank / (uint)QUERY_CLUSTER,
                      a.n_q * (rank + 1u) / (uint)QUERY_CLUSTER,
                      a.n_in,
                      a.q_row,
                      a.s_row,
                      0u};
    query_rows two = {kq + h * a.n_out * a.k_q_row,
                      ks + (u64)(h * a.n_out) * a.k_s_row,
                      a.n_out * rank / (uint)QUERY_CLUSTER,
                      a.n_out * (rank + 1u) / (uint)QUERY_CLUSTER,
                      a.n_k,
                      a.k_q_row,
                      a.k_s_row,
                      (uint)(QUERY_OUTS * QUERY_STEPS)};
    float4 by = make_float4(0.0f, 0.0f, 0.0f, 0.0f), v = by;
    bool real = tid < a.n_in / 4u;
    dep_launch();
    cluster_arrive();
    query_send<QUERY_OUTS, QUERY_STEPS>(one, lane, simd);
    query_send<QUERY_LATENT_OUTS, 1>(two, lane, simd);
    if (real && a.has_w != 0u) by = w[tid];
    dep_wait();
    if (real) v = x[tid];
    float2 stats = norm_stats(x, a.n_in, a.norm, a.eps, part, tid, (uint)NORM_THREADS);
    v = norm_apply(v, stats, &by, 0u, a.has_w != 0u, &by, 0u, false);
    if (simd * 128u < a.n_in) stage_put<UNIT_I8>(v, xs, scales, tid, real);
    queue_wait<1>();
    cluster_wait(); /* all have begun */
    __syncthreads();
    UNROLL
    for (uint i = 0u; i < (uint)QUERY_OUTS; i++) {
        uint out = one.begin + i * (uint)MATVEC_SIMDS + simd;
        if (out >= one.end) break;
        float z = query_dot<QUERY_STEPS>(one, i, xs, scales, lane, simd);
        if (lane < (uint)QUERY_CLUSTER) cluster_put((float *)mine + out, lane, z);
        if (lane == 0u) q[h * a.n_q + out] = z;
    }
    cluster_arrive();
    cluster_wait();
    real = tid < a.n_k / 4u;
    if (real) v = mine[tid];
    if (simd * 128u < a.n_k) stage_put<UNIT_I8>(v, xs, scales, tid, real);
    queue_wait<0>();
    __syncthreads();
    UNROLL
    for (uint i = 0u; i < (uint)QUERY_LATENT_OUTS; i++) {
        uint out = two.begin + i * (uint)MATVEC_SIMDS + simd;
        if (out >= two.end) break;
        float z = query_dot<1>(two, i, xs, scales, lane, simd);
        if (lane == 0u) y[h * a.y_stride + out] = z;
    }
}

#endif
