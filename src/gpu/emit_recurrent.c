/* RWKV-7's memory as launches. */
#include <stdio.h>

#include "gpu/emit.h"

static void bind_chain(struct emit *e)
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
    bind_chain(e);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
    if (e->rows == 1) return e->rc; /* nobody else can be in the slot */
    emit_launch(e, "k_token_keep", e->rows, gy, SHIFT_THREADS);
    bind_chain(e);
    emit_in(e, op->in[0]);
    emit_state(e, op->p.rec.state, true);
    return emit_args(e, &a, sizeof a);
}

static bool has_head(u32 head)
{
    return head == 16 || head == 32 || head == 64 || head == 128;
}

int emit_wkv7(struct emit *e, const struct op *op)
{
    u32 head = op->p.rec.head, p[6];
    char name[32];
    if (!has_head(head)) return emit_lacks(e, op, "heads of other sizes than 16, 32, 64 and 128");
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
    bind_chain(e);
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

/* Where the fused kernel's assumptions don't hold the parts run one by one. */
static bool is_usual(const struct emit *e, const struct op *l2, const struct op *norm, u32 head,
                     u32 n)
{
    if (!has_head(head) || l2->p.norm.kind != NORM_L2 || l2->p.norm.group != head) return false;
    if (l2->w[0] != NO_WEIGHT || l2->w[1] != NO_WEIGHT) return false;
    if (!norm) return true;
    return norm->p.norm.kind == NORM_LAYER && norm->p.norm.group == head &&
           norm->w[0] != NO_WEIGHT && norm->w[1] != NO_WEIGHT &&
           e->p->net->weights[norm->w[0]].n_in == n;
}

int emit_time_mix(struct emit *e, const struct op *op)
{
    const struct op *lerp = op_part(op, OP_LERP, 0), *wkv = op_part(op, OP_WKV7, 0);
    const struct op *l2 = op_part(op, OP_NORM, 0), *norm = op_part(op, OP_NORM, 1);
    const struct op *bonus = op_part(op, OP_RK_BONUS, 0), *gate = op_part(op, OP_MUL, 1);
    const struct op *k_k = op_part(op, OP_MUL, 0), *k_a = op_part(op, OP_K_CONTROL, 0);
    u32 head = wkv->p.rec.head, n = wkv->in[0].width;
    if (!is_usual(e, l2, norm, head, n)) return emit_parts(e, op);
    struct operand v = lerp ? lerp->in[0] : wkv->in[3], a = wkv->in[5];
    struct operand in[8] = {wkv->in[0],
                            wkv->in[1],
                            k_k->in[0],
                            v,
                            a,
                            lerp ? lerp->in[1] : v,
                            lerp ? lerp->in[2] : v,
                            gate ? gate->in[1] : v};
    struct time_mix_args args = {.n_heads = n / head,
                                 .r_pitch = emit_pitch(e, in[0]),
                                 .w_pitch = emit_pitch(e, in[1]),
                                 .k_pitch = emit_pitch(e, in[2]),
                                 .v_pitch = emit_pitch(e, v),
                                 .a_pitch = emit_pitch(e, a),
                                 .first_pitch = lerp ? emit_pitch(e, in[5]) : 0,
                                 .m_pitch = lerp ? emit_pitch(e, in[6]) : 0,
                                 .g_pitch = gate ? emit_pitch(e, in[7]) : 0,
                                 .y_pitch = emit_pitch(e, op->out[0]),
                                 .has_norm = norm != NULL,
                                 .l2_eps = l2->p.norm.eps,
                                 .norm_eps = norm ? norm->p.norm.eps : 0};
    char name[32];
    snprintf(name, sizeof name, "k_time_mix_%u", head);
    emit_launch(e, name, e->rows, args.n_heads, 2 * head + 32 * MIX_HELPERS);
    bind_chain(e);
    for (u32 i = 0; i < ARRAY_LEN(in); i++) emit_in(e, in[i]);
    emit_vector(e, k_k->w[0], 0);
    emit_vector(e, k_a->w[0], 0);
    emit_vector(e, norm ? norm->w[0] : NO_WEIGHT, 0);
    emit_vector(e, norm ? norm->w[1] : NO_WEIGHT, 0);
    emit_vector(e, bonus->w[0], 0);
    emit_state(e, wkv->p.rec.state, true);
    emit_out(e, op->out[0]);
    return emit_args(e, &args, sizeof args);
}
