/* One token of RWKV-7's memory for one head, with what is before and behind it. */
#ifndef KERNELS_WKV7_H
#define KERNELS_WKV7_H

#include "gpu/args.h"
#include "gpu/simt.h"

/* A row of the state belongs to four lanes; each has every fourth float4, from its own on. */
template <int N, class S> GPU_FN void wkv7_load(S state, THR(float) s)
{
    UNROLL
    for (int c = 0; c < N / 16; c++) {
        float4 f = state[4u * (uint)c];
        s[4 * c] = f.x, s[4 * c + 1] = f.y, s[4 * c + 2] = f.z, s[4 * c + 3] = f.w;
    }
}

template <int N> GPU_FN void wkv7_keep(DEV(float4) state, THR(const float) s)
{
    UNROLL
    for (int c = 0; c < N / 16; c++)
        state[4u * (uint)c] = make_float4(s[4 * c], s[4 * c + 1], s[4 * c + 2], s[4 * c + 3]);
}

/* One token for one row i of the state:
 * S = S·w + v_i·k - (S·kk)·kk·a; returns S·r. */
template <int N> GPU_FN float wkv7_token(TG(const float4) in, THR(float) s, float vi, uint q)
{
    enum { N4 = N / 4 };
    float sa = 0.0f, out = 0.0f;
    UNROLL
    for (int c = 0; c < N / 16; c++) {
        float4 kk = in[4u * (uint)N4 + q + 4u * (uint)c];
        sa = fmaf(s[4 * c], kk.x, sa);
        sa = fmaf(s[4 * c + 1], kk.y, sa);
        sa = fmaf(s[4 * c + 2], kk.z, sa);
        sa = fmaf(s[4 * c + 3], kk.w, sa);
    }
    sa = sa + simd_shuffle_xor(sa, 1);
    sa = sa + simd_shuffle_xor(sa, 2);
    UNROLL
    for (int c = 0; c < N / 16; c++) {
        uint at = q + 4u * (uint)c;
        float4 r = in[at], w = in[(uint)N4 + at], k = in[2u * (uint)N4 + at];
        float4 kk = in[4u * (uint)N4 + at], a = in[5u * (uint)N4 + at];
        s[4 * c] = fmaf(s[4 * c], w.x, fmaf(vi, k.x, -sa * (kk.x * a.x)));
        s[4 * c + 1] = fmaf(s[4 * c + 1], w.y, fmaf(vi, k.y, -sa * (kk.y * a.y)));
        s[4 * c + 2] = fmaf(s[4 * c + 2], w.z, fmaf(vi, k.z, -sa * (kk.z * a.z)));
        s[4 * c + 3] = fmaf(s[4 * c + 3], w.w, fmaf(vi, k.w, -sa * (kk.w * a.w)));
        out = fmaf(s[4 * c], r.x, out);
        out = fmaf(s[4 * c + 1], r.y, out);
        out = fmaf(s[4 * c + 2], r.z, out);
        out = fmaf(s[4 * c + 3], r.w, out);
    }
    out = out + simd_shuffle_xor(out, 1);
    return out + simd_shuffle_xor(out, 2);
}

/* The staging simdgroup holds a head's inputs of one row: x[MIX_...][p] is element lane + 32·p. */
enum { MIX_R, MIX_W, MIX_K, MIX_V, MIX_A, MIX_G, MIX_FIRST, MIX_M, MIX_INPUTS };
#define MIX_PER(N) ((N) < 32 ? 1 : (N) / 32)

/* The head's part of a vector, likewise; zeros if it is not there. */
template <int N> GPU_FN void mix_vector(CONST(float) w, THR(float) v, bool real, uint h, uint lane)
{
    UNROLL
    for (int p = 0; p < MIX_PER(N); p++) {
        v[p] = 0.0f;
        if (real) v[p] = w[h * (uint)N + min(lane + 32u * (uint)p, (uint)N - 1u)];
    }
}

/* v mixed with the first block's. */
template <int N> GPU_FN void mix_blend(THR(float) x)
{
    enum { P = MIX_PER(N) };
    UNROLL
    for (int p = 0; p < P; p++) {
        float f = x[MIX_V * P + p];
        x[MIX_V * P + p] = f + (x[MIX_FIRST * P + p] - f) * x[MIX_M * P + p];
    }
}

/* [r | w | k | v | kk | a] as wkv7_token wants them; returns Σ r·k·r_k. */
template <int N>
GPU_FN float mix_stage(THR(const float) x, THR(const float) k_k, THR(const float) k_a,
                       THR(const float) r_k, TG(float) in, float eps, uint lane)
{
    enum { P = MIX_PER(N) };
    float kk[P], k[P], sq = 0.0f, bonus = 0.0f;
    UNROLL
    for (int p = 0; p < P; p++) {
        uint i = lane + 32u * (uint)p;
        kk[p] = x[MIX_K * P + p] * k_k[p];
        k[p] = x[MIX_K * P + p] * (1.0f + (x[MIX_A * P + p] - 1.0f) * k_a[p]);
        if (i < (uint)N) sq = fmaf(kk[p], kk[p], sq);
        if (i < (uint)N) bonus = fmaf(x[MIX_R * P + p] * k[p], r_k[p], bonus);
    }
    float by = 1.0f / fmaxf(sqrtf(simd_sum(sq)), eps);
    bonus = simd_sum(bonus);
    UNROLL
    for (int p = 0; p < P; p++) {
        uint i = lane + 32u * (uint)p;
        if (i >= (uint)N) break;
        in[i] = x[MIX_R * P + p];
        in[(uint)N + i] = x[MIX_W * P + p];
        in[2u * (uint)N + i] = k[p];
        in[3u * (uint)N + i] = x[MIX_V * P + p];
        in[4u * (uint)N + i] = kk[p] * by;
        in[5u * (uint)N + i] = x[MIX_A * P + p];
    }
    return bonus;
}

/* The norm, the bonus and the gate of one row; out is S·r. */
template <int N>
GPU_FN void mix_tail(THR(const float) x, TG(const float) out, THR(const float) ln_w,
                     THR(const float) ln_b, float bonus, DEV(float) y, uint h, uint lane,
                     ARGS_IN(time_mix_args) args)
{
    enum { P = MIX_PER(N) };
    float v[P], sum = 0.0f, sq = 0.0f, mean = 0.0f, by = 1.0f;
    UNROLL
    for (int p = 0; p < P; p++) {
        uint i = lane + 32u * (uint)p;
        v[p] = i < (uint)N ? out[i] : 0.0f;
        sum = sum + v[p];
    }
    if (args.has_norm != 0u) {
        mean = simd_sum(sum) / (float)N;
        UNROLL
        for (int p = 0; p < P; p++)
            if (lane + 32u * (uint)p < (uint)N) sq = fmaf(v[p] - mean, v[p] - mean, sq);
        by = 1.0f / sqrtf(simd_sum(sq) / (float)N + args.norm_eps);
    }
    UNROLL
    for (int p = 0; p < P; p++) {
        uint i = lane + 32u * (uint)p, col = h * (uint)N + i;
        if (i >= (uint)N) break;
        if (args.has_norm != 0u) v[p] = (v[p] - mean) * by * ln_w[p] + ln_b[p];
        y[col] = fmaf(bonus, x[MIX_V * P + p], v[p]) * x[MIX_G * P + p];
    }
}

#endif
