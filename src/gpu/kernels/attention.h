/* What both kinds of attention share: reading cached rows, and folding splits. */
#ifndef FLETCH_KERNELS_ATTENTION_H
#define FLETCH_KERNELS_ATTENTION_H

#include "gpu/simt.h"
#include "gpu/args.h"
#include "gpu/num_f32.h"

#define ATTN_NOTHING -3.0e38f /* the maximum of no scores */

/* The first position that a row at pos sees. */
GPU_FN uint attn_first_seen(ARGS_IN(attention_args) a, uint pos)
{
    if (a.window == 0u || pos < a.window) return 0u;
    return a.chunked != 0u ? pos / a.window * a.window : pos + 1u - a.window;
}

/* Splits before the first chunk of which a row sees something, when it sees those from there on. */
GPU_FN uint attn_unseen(uint seen)
{
    return seen / (uint)(SPLIT_TOKENS * ATTN_SUBS) * (uint)ATTN_SUBS;
}

/* A score under the softcap. */
GPU_FN float attn_cap(float s, float softcap)
{
    return softcap > 0.0f ? softcap * num_tanh(s / softcap) : s;
}

/* Outputs' divisor once a sink has joined the scores, of which top is the largest. */
GPU_FN float attn_sink(float sum, float top, float sink)
{
    float above = sink - top;
    return sum + num_exp(above > 88.0f ? 88.0f : above); /* then nothing else weighs anything */
}

/* Does one group take a row's chunks one after another? So many rows keep all groups busy, and
 * finding a chunk's row costs more than the chunk. Latent attention (stride 1) has another way. */
GPU_FN bool attn_walks(ARGS_IN(attention_args) a, uint n_rows, uint n_items)
{
    return n_items > a.max_items || (a.stride > 1u && n_rows * a.n_kv_heads >= (uint)ATTN_MANY);
}

/* Eight cached values: one 16-byte unit of halves or two of floats, u[0] and u[1]. */
template <int F32> GPU_FN void attn_decode(THR(const uint4) u, THR(float) x)
{
    uint4 a = u[0];
    if (F32) {
        uint4 b = u[F32];
        x[0] = as_float(a.x), x[1] = as_float(a.y), x[2] = as_float(a.z), x[3] = as_float(a.w);
        x[4] = as_float(b.x), x[5] = as_float(b.y), x[6] = as_float(b.z), x[7] = as_float(b.w);
    } else {
        float2 p = f16x2_to_f32(a.x), q = f16x2_to_f32(a.y);
        float2 r = f16x2_to_f32(a.z), s = f16x2_to_f32(a.w);
        x[0] = p.x, x[1] = p.y, x[2] = q.x, x[3] = q.y;
        x[4] = r.x, x[5] = r.y, x[6] = s.x, x[7] = s.y;
    }
}

template <int F32> GPU_FN void attn_load(DEV(const uint4) kv, uint at, bool real, THR(uint4) u)
{
    UNROLL
    for (int i = 0; i <= F32; i++) u[i] = real ? kv[at + (uint)i] : make_uint4(0u, 0u, 0u, 0u);
}

/* The row that split `item` of the step belongs to. */
GPU_FN uint attn_row_of(DEV(const uint) items, uint n_rows, uint item)
{
    uint lo = 0u, hi = n_rows;
    while (hi - lo > 1u) {
        uint mid = (lo + hi) / 2u;
        if (items[mid] <= item)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The 16-byte unit where each of n positions from `pos` on has its cached row. */
GPU_FN void attn_places(DEV(const uint) table, TG(uint) place, uint pos, uint n, uint block_tokens,
                        uint row_units, uint tid, uint n_threads)
{
    for (uint p = tid; p < n; p += n_threads) {
        uint block = table[(pos + p) / block_tokens];
        place[p] = (block * block_tokens + (pos + p) % block_tokens) * row_units;
    }
}

/* How a split with maximum m joins what was folded before it, with maximum *top: o = o·x + o_s·y,
 * l likewise. */
GPU_FN float2 attn_fold(THR(float) top, float m, bool first)
{
    float both = first ? m : fmaxf(*top, m);
    float x = first ? 0.0f : num_exp(*top - both), y = num_exp(m - both);
    *top = both;
    return make_float2(x, y);
}

#endif
