/* Dots of a weight's row with rows of activations, unit by unit: what all matrix products share. */
#ifndef KERNELS_DOT_H
#define KERNELS_DOT_H

#include "gpu/args.h"
#include "gpu/kernels/units.h"

/* acc[r] += unit u of a weight's row · row r of int8 activations. APART: only row, as stage_put
 * leaves it for units of 32 columns: their second halves, and behind scales the sums of 32 columns,
 * are in places of their own. */
enum { DOT_APART = MATMUL_MAX_IN / 32 };
template <int E, int N, int APART, class XQ, class XS>
GPU_FN void dot_rounded(uint4 raw, uint2 bits, uint u, XQ xq, XS xs, uint pitch, THR(float) acc)
{
    uint w[8];
    float d[4];
    unit_dot_words<E>(raw, w);
    unit_scales<E>(bits, d);
    UNROLL
    for (int r = 0; r < N; r++) {
        uint x[8];
        uint at = (uint)r * (pitch / 16u) + u * (uint)(UNIT_COLUMNS(E) / 16);
        uint4 lo = xq[APART ? u : at];
        x[0] = lo.x, x[1] = lo.y, x[2] = lo.z, x[3] = lo.w;
        if (UNIT_HAS_NIBBLES(E)) {
            uint4 hi = xq[APART ? (uint)DOT_APART + u : at + 1u];
            x[4] = hi.x, x[5] = hi.y, x[6] = hi.z, x[7] = hi.w;
        }
        uint block = (uint)r * (pitch / 32u) + u * (uint)UNIT_COLUMNS(E) / 32u;
        if (APART && UNIT_HAS_SUM(E)) {
            float scale = xs[block], sum = xs[(uint)DOT_APART + block];
            acc[r] = fmaf(scale, unit_dot_summed<E>(w, d, x, sum), acc[r]);
        } else {
            float scale = xs[block];
            acc[r] = fmaf(scale, unit_dot<E>(w, d, x), acc[r]);
        }
    }
}

/* The same for floats; columns beyond n are not there. */
template <int E, int N, class X>
GPU_FN void dot_floats(uint4 raw, uint u, X x, uint pitch, uint n, THR(float) acc)
{
    float w[UNIT_COLUMNS(E)];
    unit_floats<E>(raw, w);
    uint col = u * (uint)UNIT_COLUMNS(E);
    UNROLL
    for (int r = 0; r < N; r++) {
        uint at = ((uint)r * pitch + col) / 4u;
        if (N == 1 && UNIT_COLUMNS(E) == 8 && col + 8u <= n) {
            /* Half of the lanes take the second four first: no two then want the same bank. */
            uint odd = u / 4u % 2u;
            uint4 a = x[at + odd], b = x[at + 1u - odd], lo = odd ? b : a, hi = odd ? a : b;
            acc[r] = fmaf(w[0], as_float(lo.x), acc[r]);
            acc[r] = fmaf(w[1], as_float(lo.y), acc[r]);
            acc[r] = fmaf(w[2], as_float(lo.z), acc[r]);
            acc[r] = fmaf(w[3], as_float(lo.w), acc[r]);
            acc[r] = fmaf(w[4 % UNIT_COLUMNS(E)], as_float(hi.x), acc[r]);
            acc[r] = fmaf(w[5 % UNIT_COLUMNS(E)], as_float(hi.y), acc[r]);
            acc[r] = fmaf(w[6 % UNIT_COLUMNS(E)], as_float(hi.z), acc[r]);
            acc[r] = fmaf(w[7 % UNIT_COLUMNS(E)], as_float(hi.w), acc[r]);
            continue;
        }
        UNROLL
        for (int i = 0; i < UNIT_COLUMNS(E); i += 4) {
            if (col + (uint)i >= n) break;
            uint4 v = x[at + (uint)i / 4u];
            acc[r] = fmaf(w[i], as_float(v.x), acc[r]);
            acc[r] = fmaf(w[i + 1], as_float(v.y), acc[r]);
            acc[r] = fmaf(w[i + 2], as_float(v.z), acc[r]);
            acc[r] = fmaf(w[i + 3], as_float(v.w), acc[r]);
        }
    }
}

/* Activations come as 16-byte units too: sixteen rounded ones, or four floats. */
template <int E, int N, int APART = 0, class X, class XS>
GPU_FN void dot_unit(uint4 raw, uint2 bits, uint u, X x, XS scales, uint pitch, uint n,
                     THR(float) acc)
{
    if (UNIT_IS_INT8(E))
        dot_rounded<E, N, APART>(raw, bits, u, x, scales, pitch, acc);
    else
        dot_floats<E, N>(raw, u, x, pitch, n, acc);
}

/* Units in flight per lane and weight row. */
enum { MATMUL_DEEP = 4 };

template <int E>
GPU_FN void load_units(CONST(uint4) q, CONST(u8) s, uint first, uint n_units, uint lane,
                       THR(uint4) raw, THR(uint2) bits)
{
    UNROLL
    for (int i = 0; i < MATMUL_DEEP; i++) {
        uint u = first + (uint)i * 32u + lane;
        bool real = u < n_units;
        raw[i] = make_uint4(0u, 0u, 0u, 0u);
        bits[i] = make_uint2(0u, 0u);
        if (real) raw[i] = q[u];
        if (real) bits[i] = unit_scale_bits<E>(s, u);
    }
}

/* Σ over a weight's row, on all lanes. The first units are already there. */
template <int E, class X, class XS>
GPU_FN float dot_row(CONST(uint4) q, CONST(u8) s, uint n_units, uint n, X x, XS scales, uint lane,
                     THR(uint4) raw, THR(uint2) bits)
{
    float acc = 0.0f;
    for (uint first = 0u; first < n_units; first += 32u * (uint)MATMUL_DEEP) {
        if (first > 0u) load_units<E>(q, s, first, n_units, lane, raw, bits);
        UNROLL
        for (int i = 0; i < MATMUL_DEEP; i++) {
            uint u = first + (uint)i * 32u + lane;
            if (u < n_units) dot_unit<E, 1>(raw[i], bits[i], u, x, scales, 0u, n, &acc);
        }
    }
    return simd_sum(acc);
}

/* n columns of x, then n2 of x2, as dot_row wants them for encoding E, rounded ones in threadgroup
 * memory; n is a multiple of 32 if there are others. A thread's first fours, from `base` on: */
enum { STAGE_AHEAD = 4 }; /* loads that travel at once */
GPU_FN void stage_load(DEV(const float4) x, uint n, DEV(const float4) x2, uint n2, THR(float4) v,
                       uint base, uint tid, uint n_threads)
{
    uint first = n / 4u, all = first + n2 / 4u;
    UNROLL
    for (int j = 0; j < STAGE_AHEAD; j++) {
        uint i = base + (uint)j * n_threads + tid;
        v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (i < all) v[j] = i < first ? x[i] : x2[i - first];
    }
}

/* They and the others, once they are there. Ends with a barrier. */
template <int E>
GPU_FN void stage_loaded(DEV(const float4) x, uint n, DEV(const float4) x2, uint n2, THR(float4) v,
                         TG(uint4) xs, TG(float) scales, uint tid, uint n_threads)
{
    TG(uint) words = (TG(uint))xs;
    uint all = n / 4u + n2 / 4u;
    for (uint base = 0u; UNIT_IS_INT8(E) && base < all; base += (uint)STAGE_AHEAD * n_threads) {
        if (base > 0u) stage_load(x, n, x2, n2, v, base, tid, n_threads);
        UNROLL
        for (int j = 0; j < STAGE_AHEAD; j++) {
            uint i = base + (uint)j * n_threads + tid;
            if (base + (uint)j * n_threads >= all) break;
            float scale;
            uint word = act_word(v[j], &scale);
            if (i < all) words[i] = word;
            if (i < all && i % 8u == 0u) scales[i / 8u] = scale;
        }
    }
    tg_barrier();
}

template <int E>
GPU_FN void stage_rounded(DEV(const float4) x, uint n, DEV(const float4) x2, uint n2, TG(uint4) xs,
                          TG(float) scales, uint tid, uint n_threads)
{
    float4 v[STAGE_AHEAD];
    if (UNIT_IS_INT8(E)) stage_load(x, n, x2, n2, v, 0u, tid, n_threads);
    stage_loaded<E>(x, n, x2, n2, v, xs, scales, tid, n_threads);
}

#endif
