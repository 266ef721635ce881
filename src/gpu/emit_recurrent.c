/* RWKV-7's memory as launches. */
#include <stdio.h>

#include "gpu/emit.h"

void emit_chain(struct emit *e)
{
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_step(e, STEP_PREV);
    emit_step(e, STEP_NEXT);
}

int emit_token_shift(struct emit *e, const struct op *op)
{
    u32 n = op->in[0].width, gy = (n + SHIFT_THREADS - 1) / SHIFT_THREADS;
    struct shift_args a = {
        .n = n, .x_pitch = emit_pitch(e, op->in[0]), .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_token_shift", e->rows, gy, SHIFT_THREADS);
    emit_chain(e);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
    if (e->rows == 1) return e->rc; /* nobody else can be in the slot */
    emit_launch(e, "k_token_keep", e->rows, gy, SHIFT_THREADS);
    emit_chain(e);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    return emit_args(e, &a, sizeof a);
}

bool emit_has_wkv7(u32 head)
{
    return head == 16 || head == 32 || head == 64 || head == 128;
}

int emit_wkv7(struct emit *e, const struct op *op)
{
    u32 head = op->p.rec.head, p[6];
    char name[32];
    if (!emit_has_wkv7(head))
        return emit_lacks(e, op, "heads of other sizes than 16, 32, 64 and 128");
    for (u32 i = 0; i < 6; i++) p[i] = emit_pitch(e, op->in[i]);
    struct wkv7_args a = {.n_heads = op->in[0].width / head,
                          .r_pitch = p[0],
                          .w_pitch = p[1],
                          .k_pitch = p[2],
                          .v_pitch = p[3],
                          .kk_pitch = p[4],
                          .a_pitch = p[5],
                          .y_pitch = emit_pitch(e, op->out[0])};
    snprintf(name, sizeof name, "k_wkv7_%u", head);
    emit_launch(e, name, e->rows, a.n_heads, 4 * head);
    emit_chain(e);
    for (u32 i = 0; i < 6; i++) emit_in(e, op->in[i]);
    emit_state(e, op->p.rec.state, true);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

int emit_rk_bonus(struct emit *e, const struct op *op)
{
    enum { HEADS = BONUS_THREADS / 32 };
    struct bonus_args a = {.head = op->p.rec.head,
                           .n_heads = op->in[0].width / op->p.rec.head,
                           .y_pitch = emit_pitch(e, op->in[0]),
                           .r_pitch = emit_pitch(e, op->in[1]),
                           .k_pitch = emit_pitch(e, op->in[2]),
                           .v_pitch = emit_pitch(e, op->in[3]),
                           .out_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_rk_bonus", e->rows, (a.n_heads + HEADS - 1) / HEADS, BONUS_THREADS);
    emit_step(e, STEP_HEAD);
    emit_vector(e, op->w[0], 0);
    for (u32 i = 0; i < 4; i++) emit_in(e, op->in[i]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}
