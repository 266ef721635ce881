/* Launches of kernels/recurrence.gpu: states of any shape, the convolution before them, products by
 * head. RWKV-7's own kernels are emit_recurrent.c's. */
#include <stdio.h>

#include "gpu/emit.h"

static u32 groups_of(u32 n, u32 threads)
{
    return (n + threads - 1) / threads;
}

int emit_mul(struct emit *e, const struct op *op)
{
    bool by_weight = op->w[0] != NO_WEIGHT;
    if (!(op_features(op) & HAS(HEAD_FACTORS))) return emit_columns(e, op);
    struct mul_heads_args a = {.n = op->out[0].width,
                               .rows = emit_rows_of(e, op->out[0]),
                               .group = op->p.mul.group,
                               .stride = op->p.mul.stride,
                               .per_head = op->p.mul.per_head,
                               .a_pitch = emit_pitch(e, op->in[0]),
                               .b_pitch = by_weight ? 0 : emit_pitch(e, op->in[1]),
                               .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_mul_heads", groups_of(a.n, COLUMNS_THREADS), emit_n_rows(e, op->out[0]),
                COLUMNS_THREADS);
    emit_step(e, STEP_HEAD);
    emit_in(e, op->in[0]);
    if (by_weight)
        emit_vector(e, op->w[0], 0);
    else
        emit_in(e, op->in[1]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

int emit_conv(struct emit *e, const struct op *op)
{
    u32 n = op->in[0].width, gy = groups_of(n, SHIFT_THREADS);
    struct conv_args a = {.n = n,
                          .n_taps = op->p.rec.n_taps,
                          .has_b = op->w[1] != NO_WEIGHT,
                          .x_pitch = emit_pitch(e, op->in[0]),
                          .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_conv", e->rows, gy, SHIFT_THREADS);
    emit_chain(e);
    emit_vector(e, op->w[0], 0);
    emit_vector(e, op->w[1], 0);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
    if (e->rows == 1) return e->rc; /* nobody else can be in the slot */
    emit_launch(e, "k_conv_keep", e->rows, gy, SHIFT_THREADS);
    emit_chain(e);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    return emit_args(e, &a, sizeof a);
}

int emit_recurrence(struct emit *e, const struct op *op)
{
    u32 n = op->p.rec.head;
    char name[32];
    if (op->p.rec.kind == RECURRENCE_REMOVE) return emit_wkv7(e, op);
    if (n != 16 && n != 32 && n != 64 && n != 128 && n != 256)
        return emit_lacks(e, op, "keys of other widths than 16, 32, 64, 128 and 256");
    bool has_b = op->n_in == 5;
    struct recurrence_args a = {.n_heads = op->p.rec.n_heads,
                                .n_key_heads = op->p.rec.n_key_heads,
                                .v_head = op->p.rec.v_head,
                                .tiled = op->p.rec.tiled,
                                .delta = op->p.rec.kind == RECURRENCE_DELTA,
                                .head_decay = op->in[1].width == op->p.rec.n_heads,
                                .has_b = has_b,
                                .r_pitch = emit_pitch(e, op->in[0]),
                                .w_pitch = emit_pitch(e, op->in[1]),
                                .k_pitch = emit_pitch(e, op->in[2]),
                                .v_pitch = emit_pitch(e, op->in[3]),
                                .b_pitch = has_b ? emit_pitch(e, op->in[4]) : 0,
                                .y_pitch = emit_pitch(e, op->out[0])};
    snprintf(name, sizeof name, "k_recurrence_%u", n);
    emit_launch(e, name, e->rows, a.n_heads, RECURRENCE_THREADS);
    emit_depth(e, groups_of(a.v_head, RECURRENCE_VALUES));
    emit_chain(e);
    for (u32 i = 0; i < 5; i++) emit_in(e, op->in[i < op->n_in ? i : 0]);
    emit_state(e, op->p.rec.state, true);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}
