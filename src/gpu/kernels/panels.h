/* How products of panels end, whatever multiplied them. */
#ifndef KERNELS_PANELS_H
#define KERNELS_PANELS_H

#include "gpu/args.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

/* What a group's sums go to: biases, what is added, outputs. */
struct panel_ends {
    CONST(float) b0;
    CONST(float) b1;
    CONST(float) b2;
    DEV(const float) add0;
    DEV(const float) add1;
    DEV(float) y0;
    DEV(float) y1;
    DEV(float) y2;
};

/* Sums of n_rows rows and OUTS outputs, to row `first` on or to where their pairs say, and of
 * outputs n0 on. */
template <int OUTS>
GPU_FN void panel_out(TG(const float) sums, DEV(const uint) pairs, panel_ends e,
                      ARGS_IN(panels_args) a, uint first, uint n_rows, uint n0, uint y_at, uint tid)
{
    uint wide = a.glu != 0u ? (uint)OUTS / 2u : (uint)OUTS, c = tid % wide;
    uint which = 0u, n = a.glu != 0u ? n0 / 2u + c : n0 + c;
    if (a.glu == 0u && a.part[1].n_out > 0u && n >= a.part[1].begin) which = 1u;
    if (a.glu == 0u && a.part[2].n_out > 0u && n >= a.part[2].begin) which = 2u;
    if (a.glu == 0u) n -= a.part[which].begin;
    if (n >= a.part[which].n_out) return;
    DEV(float) y = e.y0;
    CONST(float) bias = e.b0;
    if (which == 1u) y = e.y1, bias = e.b1;
    if (which == 2u) y = e.y2, bias = e.b2;
    for (uint m = tid / wide; m < n_rows; m += (uint)PANEL_TILE_THREADS / wide) {
        uint t = first + m, at = m * (uint)OUTS + (a.glu != 0u ? c / 8u * 16u + c % 8u : c);
        if (a.n_used > 0u) {
            uint pair = pairs[m];
            t = first + pair / a.n_used;
            y_at = pair % a.n_used * a.part[0].n_out;
        }
        float v = sums[at];
        if (a.part[which].has_bias != 0u) v += bias[n];
        if (a.glu != 0u) {
            float up = sums[at + 8u];
            if (a.part[1].has_bias != 0u) up += e.b1[n];
            v = v * num_sigmoid(v) * up;
        }
        if (a.add_pitch[0]) v = e.add0[t * a.add_pitch[0] + n] + v;
        if (a.add_pitch[1]) v = e.add1[t * a.add_pitch[1] + n] + v;
        y[t * a.part[which].y_pitch + y_at + n] = v;
    }
}

#endif
