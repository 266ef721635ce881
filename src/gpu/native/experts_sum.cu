/* Experts' down, the shared one's and their sum for one row, where a simdgroup's rows are few and
 * short enough to have slots of its queue for themselves: they are all sent at once, before the
 * wait for the experts that a guess names, and multiplied without anything in between. Walking over
 * them with a queue (k_experts_sum_<encoding>) issues three times the instructions, and they were
 * what a launch took time for. The bits are the same. */
#include "gpu/kernels/experts.h"
#include "gpu/kernels/matvec.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900

/* A simdgroup's rows: the matrix that is added is the 0th, then the choices; every EXPERTS_WAYS-th
 * from `way` on, of output `out`. */
struct sum_rows {
    CONST(uint4) q;
    CONST(u8) s;
    CONST(uint4) added_q;
    CONST(u8) added_s;
    uint out, way;
};

GPU_FN void sum_send(const sum_rows &r, const experts_args &a, uint choice, uint lane)
{
    ROLLED
    for (uint i = 0u; i < (uint)SUM_FEW_ROWS; i++) {
        uint k = r.way + i * (uint)EXPERTS_WAYS;
        uint id = simd_shuffle(choice, (u16)(max(k, 1u) - 1u)), row = id * a.n_out + r.out;
        bool added = k == 0u;
        CONST(uint4) q = added ? r.added_q + r.out * a.added_q_row : r.q + row * a.q_row;
        CONST(u8) s = added ? r.added_s + (u64)r.out * a.added_s_row : r.s + (u64)row * a.s_row;
        uint n_units = (added ? a.added_in : a.n_in) / (uint)UNIT_COLUMNS(UNIT_I8);
        UNROLL
        for (uint j = 0u; k <= a.n_used && j < (uint)SUM_FEW_STEPS; j++)
            matvec_send<UNIT_I8, 1>(q, s, n_units, added ? a.added_s_row : a.s_row, j,
                                    i * (uint)SUM_FEW_STEPS + j, lane);
        queue_commit();
    }
}

/* Row i, times its columns of the rounded input. */
template <int I>
GPU_FN void sum_take(const sum_rows &r, const experts_args &a, const uint4 *xs, const float *scales,
                     float *made, uint lane)
{
    uint k = r.way + (uint)(I * EXPERTS_WAYS), n_in = k == 0u ? a.added_in : a.n_in;
    uint column = k == 0u ? a.n_in * a.n_used : (k - 1u) * a.n_in;
    float sum = 0.0f;
    queue_wait<SUM_FEW_ROWS - 1 - I>();
    if (k > a.n_used) return;
    UNROLL
    for (uint j = 0u; j < (uint)SUM_FEW_STEPS; j++)
        sum = matvec_take<UNIT_I8, 1>(r.q, r.s, n_in / (uint)UNIT_COLUMNS(UNIT_I8), j,
                                      (uint)(I * SUM_FEW_STEPS) + j, xs + column / 16u,
                                      scales + column / 32u, n_in, lane, sum);
    sum = simd_sum(sum);
    if (lane == 0u) made[k * (uint)EXPERTS_SUM_OUTS + r.out % (uint)EXPERTS_SUM_OUTS] = sum;
}

/* group.x: EXPERTS_SUM_OUTS outputs */
extern "C" __global__ void __launch_bounds__(MATVEC_THREADS, 2)
    k_experts_sum_few_i8(CONST(uint) head, DEV(const int) ids, DEV(const float) weights,
                         DEV(const float4) x, DEV(const float) residual, CONST(uint4) q,
                         CONST(u8) s, DEV(const float4) added, CONST(uint4) added_q,
                         CONST(u8) added_s, CONST(float) added_b, DEV(float) y,
                         ARGS(experts_args) a)
{
    __shared__ uint4 xs[SUM_FEW_IN / 16];
    __shared__ float scales[SUM_FEW_IN / 32], made[(1 + ROUTE_MAX_USED) * EXPERTS_SUM_OUTS];
    uint lane = gpu_lane, simd = gpu_simd, tid = gpu_tid;
    uint base = blockIdx.x * (uint)EXPERTS_SUM_OUTS, guess = 0u, choice = 0u;
    sum_rows r = {q,
                  s,
                  added_q,
                  added_s,
                  base + simd % (uint)EXPERTS_SUM_OUTS,
                  simd / (uint)EXPERTS_SUM_OUTS};
    bool chooses = lane < a.n_used, last = simd == 0u && lane < (uint)EXPERTS_SUM_OUTS;
    float weight = 0.0f, rest = 0.0f, plus = 0.0f;
    float4 ahead[STAGE_AHEAD];
    dep_launch();
    if (chooses) guess = early_word(ids + lane);
    bool guessed = !simd_any(chooses && guess >= a.n_experts);
    if (guessed) sum_send(r, a, guess, lane);
    if (last && a.added_bias != 0u) plus = added_b[base + lane];
    bool real = head[a.rows] > 0u;
    dep_wait();
    if (!real) return;
    stage_load(x, a.n_in * a.n_used, added, a.added_in, ahead, 0u, tid, (uint)MATVEC_THREADS);
    if (chooses) {
        choice = (uint)ids[lane];
        weight = weights[lane];
    }
    if (last && a.residual_pitch > 0u) rest = residual[base + lane];
    if (!guessed || simd_any(chooses && choice != guess)) {
        queue_wait<0>();
        sum_send(r, a, choice, lane);
    }
    stage_loaded<UNIT_I8>(x, a.n_in * a.n_used, added, a.added_in, ahead, xs, scales, tid,
                          (uint)MATVEC_THREADS);
    sum_take<0>(r, a, xs, scales, made, lane);
    sum_take<1>(r, a, xs, scales, made, lane);
    sum_take<2>(r, a, xs, scales, made, lane);
    __syncthreads();
    if (simd > 0u) return;
    float total = experts_total(made, weight, plus, rest, a, last, lane);
    if (last) y[base + lane] = total;
}

#endif
