/* How a group walks over the outputs of one row's products: each lane keeps units of the next ones
 * coming in a queue of its own (simt.h). */
#ifndef KERNELS_MATVEC_H
#define KERNELS_MATVEC_H

#include "gpu/args.h"
#include "gpu/kernels/dot.h"

/* Where a simdgroup is in its outputs: output, which of a pair's two rows, step of 32 units, slot
 * of the queue. */
struct matvec_at {
    uint out, second, step, slot;
};

/* To the next BATCH steps. True at the end of a weight's row. */
template <int SLOTS, int GLU, int BATCH> GPU_FN bool matvec_next(THR(matvec_at) c, uint n_steps)
{
    c->slot = c->slot + (uint)BATCH == (uint)SLOTS ? 0u : c->slot + (uint)BATCH;
    c->step += (uint)BATCH;
    if (c->step < n_steps) return false;
    c->step = 0u;
    if (GLU) c->second ^= 1u;
    if (!GLU || c->second == 0u) c->out += (uint)MATVEC_SIMDS;
    return true;
}

template <int E, int BATCH>
GPU_FN void matvec_send(CONST(uint4) q, CONST(u8) s, uint n_units, uint step, uint slot, uint lane)
{
    UNROLL
    for (int i = 0; i < BATCH; i++) {
        uint u = (step + (uint)i) * 32u + lane;
        if (u < n_units) unit_send<E>(q, s, u, slot + (uint)i);
    }
}

template <int E, int BATCH, class X>
GPU_FN float matvec_take(CONST(uint4) q, CONST(u8) s, uint n_units, uint step, uint slot, X x,
                         TG(const float) scales, uint n_in, uint lane, float sum)
{
    UNROLL
    for (int i = 0; i < BATCH; i++) {
        uint u = (step + (uint)i) * 32u + lane;
        if (u < n_units) {
            uint4 raw = queue_unit<UNIT_SCALES(E)>(slot + (uint)i, q + u);
            dot_unit<E, 1>(raw, unit_take<E>(s, u, slot + (uint)i), u, x, scales, 0u, n_in, &sum);
        }
    }
    return sum;
}

#endif
