/* Dots of one row in device memory with several weight rows of a simdgroup. Lane l takes quads l,
 * l + 32, .. of a weight row in ascending order, then the lanes are summed: the bits of matvec.gpu.
 */
#ifndef KERNELS_UNSTAGED_H
#define KERNELS_UNSTAGED_H

#include "gpu/kernels/dot.h"
#include "gpu/kernels/halves.h"
#include "gpu/simt.h"

/* acc[r] += quad u of weight row r · the same columns of the row. */
template <int E, int N>
GPU_FN void unstaged_dots(THR(const uint4) raw, THR(const uint2) bits, uint u, DEV(const uint4) x,
                          DEV(const float) scales, uint n, THR(float) acc)
{
    if (UNIT_IS_INT8(E)) {
        uint in[8];
        uint at = u * (uint)(UNIT_COLUMNS(E) / 16);
        uint4 lo = x[at];
        in[0] = lo.x, in[1] = lo.y, in[2] = lo.z, in[3] = lo.w;
        if (UNIT_HAS_NIBBLES(E)) {
            uint4 hi = x[at + 1u];
            in[4] = hi.x, in[5] = hi.y, in[6] = hi.z, in[7] = hi.w;
        }
        float scale = scales[u * (uint)UNIT_COLUMNS(E) / 32u];
        UNROLL
        for (int r = 0; r < N; r++) {
            uint w[8];
            float d[4];
            unit_dot_words<E>(raw[r], w);
            unit_scales<E>(bits[r], d);
            acc[r] = fmaf(scale, unit_dot<E>(w, d, in), acc[r]);
        }
    }
    UNROLL
    for (int i = 0; i < (UNIT_IS_INT8(E) ? 0 : UNIT_COLUMNS(E)); i += 4) {
        uint col = u * (uint)UNIT_COLUMNS(E) + (uint)i;
        if (col >= n) break;
        uint4 v = x[col / 4u];
        UNROLL
        for (int r = 0; r < N; r++) {
            float w[8];
            unit_floats<E>(raw[r], w);
            acc[r] = fmaf(w[i], as_float(v.x), acc[r]);
            acc[r] = fmaf(w[i + 1], as_float(v.y), acc[r]);
            acc[r] = fmaf(w[i + 2], as_float(v.z), acc[r]);
            acc[r] = fmaf(w[i + 3], as_float(v.w), acc[r]);
        }
    }
}

/* The sums of N weight rows, each on the lanes that halves_sum leaves it to; rows i and those from
 * `split` on begin at qa and qb, `left` of them exist. */
template <int E, int N, int U>
GPU_FN float unstaged_rows(CONST(uint4) qa, CONST(u8) sa, CONST(uint4) qb, CONST(u8) sb, uint split,
                           uint left, DEV(const uint4) x, DEV(const float) scales, uint n_in,
                           uint q_row, uint s_row, uint lane, THR(uint) which)
{
    uint n_units = (n_in + (uint)UNIT_COLUMNS(E) - 1u) / (uint)UNIT_COLUMNS(E);
    float acc[N];
    UNROLL
    for (int r = 0; r < N; r++) acc[r] = 0.0f;
    for (uint first = lane; first < n_units; first += 32u * (uint)U) {
        uint4 raw[U * N];
        uint2 bits[U * N];
        UNROLL
        for (int i = 0; i < U * N; i++) {
            uint u = first + (uint)(i / N) * 32u, r = (uint)(i % N);
            bool second = r >= split;
            r = min(second ? r - split : r, left - 1u); /* what is missing is read, not written */
            CONST(uint4) q = (second ? qb : qa) + r * q_row;
            CONST(u8) s = (second ? sb : sa) + (u64)r * s_row;
            raw[i] = make_uint4(0u, 0u, 0u, 0u);
            bits[i] = make_uint2(0u, 0u);
            if (u < n_units) raw[i] = q[u];
            if (u < n_units) bits[i] = unit_scale_bits<E>(s, u);
        }
        UNROLL
        for (int i = 0; i < U; i++) {
            uint u = first + (uint)i * 32u;
            if (u < n_units)
                unstaged_dots<E, N>(raw + i * N, bits + i * N, u, x, scales, n_in, acc);
        }
    }
    return halves_sum<N>((THR(float))acc, 5u, lane, which);
}

#endif
