/* How a group walks over the outputs of one row's products: each lane keeps units of the next ones
 * coming in a queue of its own (simt.h). */
#ifndef KERNELS_MATVEC_H
#define KERNELS_MATVEC_H

#include "gpu/args.h"
#include "gpu/kernels/dot.h"

/* Four columns of the row as the dots want them, in threadgroup memory. All lanes take part. APART
 * (dot.h): lanes that follow each other then don't want the same banks. */
template <int E, int APART = 0>
GPU_FN void stage_put(float4 v, TG(uint4) xs, TG(float) scales, uint i, bool real)
{
    TG(uint) words = (TG(uint))xs;
    if (UNIT_IS_INT8(E)) {
        float scale;
        uint word = act_word(v, &scale);
        uint at = APART ? i / 8u * 4u + i % 4u + (i & 4u) * (uint)DOT_APART : i;
        if (real) words[at] = word;
        if (APART && UNIT_HAS_SUM(E)) {
            dot_sum sum = dot4_i8(0x01010101u, word, (dot_sum)0);
            UNROLL
            for (u16 m = 4; m > 0; m >>= 1) sum += simd_shuffle_xor(sum, m);
            if (real && i % 8u == 0u) scales[(uint)DOT_APART + i / 8u] = (float)sum;
        }
        if (real && i % 8u == 0u) scales[i / 8u] = scale;
    } else if (real) {
        xs[i] = make_uint4(as_uint(v.x), as_uint(v.y), as_uint(v.z), as_uint(v.w));
    }
}

/* Where a simdgroup is in its outputs: output, which of a pair's two rows, step of 32 units, slot
 * of the queue. */
struct matvec_at {
    uint out, second, step, slot;
};

/* Steps that are sent and taken together. A batch may run over the end of a row: one form of the
 * code with a test was measured to cost less than two without. */
enum { MATVEC_BATCH = 2 };

/* Where share i of n things begins, of n_shares: the first ones have one more. */
GPU_FN uint share_begin(uint n, uint i, uint n_shares)
{
    uint each = n / n_shares;
    return each * i + min(i, n - each * n_shares);
}

/* To the next batch. True at the end of a weight's row. */
template <int SLOTS, int GLU, int BATCH = MATVEC_BATCH>
GPU_FN bool matvec_next(THR(matvec_at) c, uint n_steps)
{
    c->slot = c->slot + (uint)BATCH == (uint)SLOTS ? 0u : c->slot + (uint)BATCH;
    c->step += (uint)BATCH;
    if (c->step < n_steps) return false;
    c->step = 0u;
    if (GLU) c->second ^= 1u;
    if (!GLU || c->second == 0u) c->out += (uint)MATVEC_SIMDS;
    return true;
}

/* A batch of units of a weight's row whose scales are s_row bytes from s on. */
template <int E, int BATCH = MATVEC_BATCH>
GPU_FN void matvec_send(CONST(uint4) q, CONST(u8) s, uint n_units, uint s_row, uint step, uint slot,
                        uint lane)
{
    uint u = step * 32u + lane;
    UNROLL
    for (int i = 0; i < BATCH; i++)
        if (u + 32u * (uint)i < n_units) unit_send<E>(q, s, u + 32u * (uint)i, slot + (uint)i);
    enum { ROW = UNIT_ROW(E) };
    if (ROW > 0) queue_send_row<BATCH * ROW>(slot, s + step * (uint)ROW, s_row - step * (uint)ROW);
}

/* Asks for a batch that the queue has no room for yet. */
template <int E>
GPU_FN void matvec_touch(CONST(uint4) q, CONST(u8) s, uint n_units, uint step, uint lane)
{
    UNROLL
    for (uint i = 0u; i < (uint)MATVEC_BATCH; i++) {
        uint u = (step + i) * 32u + lane;
        if (u < n_units) {
            touch(q + u);
        }
        if (UNIT_ROW(E) > 0 && lane == 0u && u < n_units) {
            touch(s + (step + i) * (uint)UNIT_ROW(E));
        }
    }
}

/* The scales of unit i of a batch, whose own begin at s. */
template <int E> GPU_FN uint2 matvec_scales(CONST(u8) s, uint i, uint slot)
{
    uint x = queue_row<UNIT_SCALE_BYTES(E, 0)>(slot, unit_scale_at<E, 0>(i), s), y = 0u;
    if (UNIT_SCALES(E) > 1) y = queue_row<UNIT_SCALE_BYTES(E, 1)>(slot, unit_scale_at<E, 1>(i), s);
    return make_uint2(x, y);
}

template <int E, int APART, class X>
GPU_FN float matvec_unit(CONST(uint4) q, CONST(u8) s, uint u, uint slot, uint i, X x,
                         TG(const float) scales, uint n_in, uint lane, float sum)
{
    uint4 raw = queue_unit<UNIT_QUEUE(E)>(slot + i, q + u);
    uint2 bits =
        UNIT_ROW(E) > 0 ? matvec_scales<E>(s, i * 32u + lane, slot) : unit_take<E>(s, u, slot + i);
    dot_unit<E, 1, APART>(raw, bits, u, x, scales, 0u, n_in, &sum);
    return sum;
}

template <int E, int BATCH = MATVEC_BATCH, int APART = 0, class X>
GPU_FN float matvec_take(CONST(uint4) q, CONST(u8) s, uint n_units, uint step, uint slot, X x,
                         TG(const float) scales, uint n_in, uint lane, float sum)
{
    uint u = step * 32u + lane;
    CONST(u8) from = s + step * (uint)UNIT_ROW(E);
    UNROLL
    for (int i = 0; i < BATCH; i++)
        if (u + 32u * (uint)i < n_units)
            sum = matvec_unit<E, APART>(q, from, u + 32u * (uint)i, slot, (uint)i, x, scales, n_in,
                                        lane, sum);
    return sum;
}

#endif
