/* A chunk of cached positions for HT heads that share keys, by one group: a subgroup of its threads
 * takes each split and finds a maximum m, a sum l and an output o that is not yet divided; the
 * splits are joined in order. A row of one chunk is done then, else chunks are folded in order too.
 */
#ifndef KERNELS_SPLITS_H
#define KERNELS_SPLITS_H

#include "gpu/kernels/attention.h"
#include "gpu/kernels/halves.h"

/* Units of the rows p0, p0 + per, .. that this lane reads. */
template <int F32, int AT, class KV>
GPU_FN void attn_fetch(KV kv, TG(const uint) place, THR(uint4) raw, uint p0, uint per, uint n,
                       uint at, bool real)
{
    UNROLL
    for (int i = 0; i < AT; i++) {
        uint p = p0 + (uint)i * per;
        bool in = real && p < n;
        uint from = in ? place[p] + at : 0u;
        attn_load<F32>(kv, from, in, raw + i * (1 + F32));
    }
}

/* Scores of HT heads at n positions. A cached row is read by 1 << shift lanes, eight values each;
 * q holds a lane's eight of every head, raw the first rows. Long rows are read in stretches: all
 * but the last leave sums, to which all but the first add. */
template <int F32, int AT, int HT, class KV>
GPU_FN void attn_scores(KV kv, TG(const uint) place, THR(const float) q, THR(uint4) raw,
                        TG(float) score, uint n, uint n_units, uint shift, uint at, float scale,
                        float softcap, bool first, bool last, uint tid)
{
    uint unit = tid & ((1u << shift) - 1u), per = (uint)ATTN_SUB >> shift;
    for (uint p0 = tid >> shift, end = n + p0; p0 < end; p0 += per * (uint)AT) {
        if (p0 != tid >> shift) attn_fetch<F32, AT>(kv, place, raw, p0, per, n, at, unit < n_units);
        UNROLL
        for (int i = 0; i < AT; i++) {
            uint p = p0 + (uint)i * per;
            if ((uint)i * per >= (uint)SPLIT_TOKENS) break;
            float k[8];
            float sum[HT];
            attn_decode<F32>(raw + i * (1 + F32), k);
            UNROLL
            for (int h = 0; h < HT; h++) {
                sum[h] = 0.0f;
                UNROLL
                for (int j = 0; j < 8; j++) sum[h] = fmaf(q[h * 8 + j], k[j], sum[h]);
            }
            uint head;
            float all = halves_sum<HT>(sum, shift, unit, &head);
            bool mine = (unit & ((1u << shift) / (uint)HT - 1u)) == 0u;
            if (!mine || p >= n) continue;
            uint to = head * (uint)SPLIT_TOKENS + p;
            if (!first) all = all + score[to];
            score[to] = last ? attn_cap(all * scale, softcap) : all;
        }
        if (per * (uint)AT >= (uint)SPLIT_TOKENS) break; /* n is no more */
    }
}

/* Scores become exp(score - m); ml[h] = m, l. Heads are shared out among the subgroup's
 * simdgroups. */
template <int HT>
GPU_FN void attn_softmax(TG(float) score, TG(float2) ml, uint n, uint lane, uint simd)
{
    for (uint h = simd; h < (uint)HT; h += (uint)ATTN_SUB / 32u) {
        float v[SPLIT_TOKENS / 32], most = ATTN_NOTHING, sum = 0.0f;
        UNROLL
        for (int i = 0; i < SPLIT_TOKENS / 32; i++) {
            uint p = lane + 32u * (uint)i;
            v[i] = p < n ? score[h * (uint)SPLIT_TOKENS + p] : ATTN_NOTHING;
            most = fmaxf(most, v[i]);
        }
        float m = simd_max(most);
        UNROLL
        for (int i = 0; i < SPLIT_TOKENS / 32; i++) {
            uint p = lane + 32u * (uint)i;
            float e = p < n ? num_exp(v[i] - m) : 0.0f;
            if (p < n) score[h * (uint)SPLIT_TOKENS + p] = e;
            sum = sum + e;
        }
        float l = simd_sum(sum);
        if (lane == 0u) ml[h] = make_float2(m, l);
    }
}

/* acc[h][0..8) += Σ_p exp_p·v_p of the positions that this lane reads, then over all lanes of the
 * simdgroup that read the same columns. raw holds the first rows. */
template <int F32, int AT, int HT, class KV>
GPU_FN void attn_values(KV kv, TG(const uint) place, THR(uint4) raw, TG(const float) score,
                        THR(float) acc, uint n, uint n_units, uint shift, uint at, uint tid)
{
    uint unit = tid & ((1u << shift) - 1u), per = (uint)ATTN_SUB >> shift;
    bool real = unit < n_units;
    UNROLL
    for (int i = 0; i < HT * 8; i++) acc[i] = 0.0f;
    for (uint p0 = tid >> shift; real && p0 < n; p0 += per * (uint)AT) {
        if (p0 != tid >> shift) attn_fetch<F32, AT>(kv, place, raw, p0, per, n, at, real);
        UNROLL
        for (int i = 0; i < AT; i++) {
            uint p = p0 + (uint)i * per;
            if ((uint)i * per >= (uint)SPLIT_TOKENS) break;
            float v[8];
            attn_decode<F32>(raw + i * (1 + F32), v);
            UNROLL
            for (int h = 0; h < HT; h++) {
                float e = p < n ? score[(uint)h * (uint)SPLIT_TOKENS + p] : 0.0f;
                UNROLL
                for (int j = 0; j < 8; j++) acc[h * 8 + j] = fmaf(e, v[j], acc[h * 8 + j]);
            }
        }
        if (per * (uint)AT >= (uint)SPLIT_TOKENS) break;
    }
    for (u16 m = (u16)(1u << shift); m < 32; m = (u16)(m * 2)) {
        UNROLL
        for (int i = 0; i < HT * 8; i++) acc[i] = acc[i] + simd_shuffle_xor(acc[i], m);
    }
}

/* m and l of a chunk, and by[s] what the output of split s is multiplied with. */
template <int HT> GPU_FN float2 attn_chunk(TG(const float2) ml, uint h, THR(float) by)
{
    float m[ATTN_SUBS], l = 0.0f, top = ATTN_NOTHING;
    UNROLL
    for (int s = 0; s < ATTN_SUBS; s++) {
        float2 v = ml[(uint)(s * HT) + h];
        m[s] = v.x;
        top = fmaxf(top, m[s]);
    }
    UNROLL
    for (int s = 0; s < ATTN_SUBS; s++) {
        float2 v = ml[(uint)(s * HT) + h];
        by[s] = num_exp(m[s] - top);
        l = fmaf(v.y, by[s], l);
    }
    return make_float2(top, l);
}

/* Adds up the simdgroups' outputs in order and joins splits, `at_once` heads at a time. Thread i
 * has columns i, i + ATTN_PART, .. of all heads' outputs in o. */
template <int HT>
GPU_FN void attn_join(THR(const float) acc, TG(float) part, TG(const float2) ml, THR(float) o,
                      THR(float2) sums, uint v_units, uint shift, bool first, uint tid, uint lane,
                      uint simd)
{
    uint width = v_units * 8u, at_once = (uint)ATTN_PART / width;
    UNROLL
    for (int h = 0; h < HT; h++) {
        uint place = (uint)h % at_once * width;
        if (lane < 1u << shift && lane < v_units) {
            UNROLL
            for (int j = 0; j < 8; j++)
                part[simd * (uint)ATTN_PART + place + lane * 8u + (uint)j] = acc[h * 8 + j];
        }
        bool full = (uint)h % at_once == at_once - 1u || h == HT - 1;
        if (!full) continue;
        tg_barrier();
        uint head = (uint)h - (uint)h % at_once + tid / width, round = (uint)h / at_once;
        if (head <= (uint)h && tid < at_once * width) {
            float by[ATTN_SUBS], sum = 0.0f, fx = 0.0f, fy = 1.0f;
            float2 c = attn_chunk<HT>(ml, head, by);
            UNROLL
            for (int s = 0; s < ATTN_SUBS; s++) {
                float v = 0.0f;
                UNROLL
                for (int i = 0; i < ATTN_SUB / 32; i++)
                    v = v + part[(uint)(s * (ATTN_SUB / 32) + i) * (uint)ATTN_PART + tid];
                sum = fmaf(v, by[s], sum);
            }
            UNROLL
            for (int r = 0; r < HT; r++) {
                if ((uint)r != round) continue;
                float top = sums[r].x;
                float2 xy = attn_fold(&top, c.x, first);
                fx = xy.x, fy = xy.y;
                sums[r] = make_float2(top, fmaf(first ? 0.0f : sums[r].y, fx, c.y * fy));
                o[r] = first ? sum : fmaf(o[r], fx, sum * fy);
            }
        }
        tg_barrier();
    }
}

/* Sinks join the sums of finished rows, which are dealt out to threads as in attn_join. */
template <int HT>
GPU_FN void attn_add_sinks(THR(float2) sums, CONST(float) sinks, uint head, uint n_heads,
                           uint width, uint tid)
{
    uint at_once = (uint)ATTN_PART / width;
    UNROLL
    for (int r = 0; r < HT; r++) {
        uint h = (uint)r * at_once + tid / width;
        if (tid >= at_once * width || h >= n_heads) continue;
        sums[r] = make_float2(sums[r].x, attn_sink(sums[r].y, sums[r].x, sinks[head + h]));
    }
}

/* What one item leaves: a chunk for the merge, or a finished row; of columns [from, from + width)
 * of heads of `all_width`. */
template <int HT>
GPU_FN void attn_put(THR(const float) o, THR(const float2) sums, DEV(float) parts, DEV(float2) all,
                     DEV(float) y, uint head, uint n_heads, uint item, uint row_at, uint width,
                     uint from, uint all_width, bool done, uint tid)
{
    uint at_once = (uint)ATTN_PART / width;
    UNROLL
    for (int r = 0; r < HT; r++) {
        uint h = (uint)r * at_once + tid / width, col = tid % width;
        if (tid >= at_once * width || h >= n_heads) continue;
        uint at = item + head + h;
        if (!done && from + col == 0u) all[at] = sums[r];
        if (done)
            y[row_at + (head + h) * all_width + from + col] = o[r] / sums[r].y;
        else
            parts[at * all_width + from + col] = o[r];
    }
}

/* Column `col` of one head's output, folded from n items; the first has its sum at `at` and its
 * output at at·v_width, the others follow every `stride`. A lane looks at one item of 32 and finds
 * how it joins those before it; the outputs then follow in order. Not yet divided: *all is
 * the maximum and the sum. */
GPU_FN float attn_merge_parts(DEV(const float) parts, DEV(const float2) sums, uint at, uint stride,
                              uint n, uint v_width, uint col, uint lane, THR(float2) all)
{
    enum { AHEAD = 8 };
    float top = 0.0f, l = 0.0f, o = 0.0f;
    for (uint s0 = 0u; s0 < n; s0 += 32u) {
        uint s = s0 + lane;
        float2 ml = make_float2(ATTN_NOTHING, 0.0f);
        if (s < n) ml = sums[at + s * stride];
        float most = ml.x; /* of this item and those before it */
        for (uint d = 1u; d < 32u; d *= 2u) {
            float other = simd_shuffle(most, (u16)(lane - min(d, lane)));
            most = fmaxf(most, other);
        }
        float before = simd_shuffle(most, (u16)(lane - min(1u, lane)));
        if (s0 > 0u) before = lane == 0u ? top : fmaxf(top, before);
        float2 xy = attn_fold(&before, ml.x, s == 0u);
        top = simd_shuffle(before, 31);
        for (uint j0 = 0u; j0 < min(32u, n - s0); j0 += (uint)AHEAD) {
            float p[AHEAD];
            UNROLL
            for (int i = 0; i < AHEAD; i++) {
                uint j = s0 + j0 + (uint)i;
                p[i] = j < n && col < v_width ? parts[(at + j * stride) * v_width + col] : 0.0f;
            }
            UNROLL
            for (int i = 0; i < AHEAD; i++) {
                u16 j = (u16)(j0 + (uint)i);
                float x = simd_shuffle(xy.x, j), e = simd_shuffle(xy.y, j);
                float w = simd_shuffle(ml.y, j);
                if (s0 + (uint)j >= n) continue;
                l = fmaf(l, x, w * e);
                o = fmaf(o, x, p[i] * e);
            }
        }
    }
    *all = make_float2(top, l);
    return o;
}

GPU_FN float attn_merge(DEV(const float) parts, DEV(const float2) sums, uint at, uint stride,
                        uint n, uint v_width, uint col, uint lane)
{
    float2 all = make_float2(0.0f, 0.0f);
    float o = attn_merge_parts(parts, sums, at, stride, n, v_width, col, lane, &all);
    return o / all.y;
}

#endif
