/* Launches of the kernels in kernels/rows.gpu. */
#include <math.h>
#include <stdio.h>

#include "gpu/emit.h"

static u32 groups_of(u32 n, u32 threads)
{
    return (n + threads - 1) / threads;
}

int emit_embed(struct emit *e, const struct op *op)
{
    struct planes w = emit_planes(e, op->w[0]);
    char name[32];
    const struct operand sampled = {e->p->sampled, 0, 1}; /* or NO_BUF: no row asks for it */
    struct embed_args a = {.n = op->out[0].width,
                           .y_pitch = emit_pitch(e, op->out[0]),
                           .q_row = w.q_row,
                           .s_row = w.s_row,
                           .ids_pitch = sampled.buf != NO_BUF ? emit_pitch(e, sampled) : 0};
    snprintf(name, sizeof name, "k_embed_%s", encoding_info[w.enc].name);
    emit_launch(e, name, e->rows, 1, EMBED_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_weight(e, op->w[0]);
    emit_out(e, op->out[0]);
    emit_in(e, sampled);
    return emit_args(e, &a, sizeof a);
}

int emit_copy(struct emit *e, const struct op *op)
{
    bool gather = op->kind == OP_GATHER_ROWS;
    u32 n = op->out[0].width;
    struct copy_args a = {.n = n,
                          .rows = emit_rows_of(e, op->out[0]),
                          .gather = gather,
                          .x_pitch = gather ? emit_pitch(e, op->in[0]) : n,
                          .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_copy", groups_of(n, COLUMNS_THREADS), emit_n_rows(e, op->out[0]),
                COLUMNS_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_OUT);
    if (gather)
        emit_in(e, op->in[0]);
    else
        emit_step(e, STEP_HIDDEN);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

int emit_norm(struct emit *e, const struct op *op)
{
    u32 n = op->in[0].width, group = op->p.norm.group;
    u32 xp = emit_pitch(e, op->in[0]), yp = emit_pitch(e, op->out[0]);
    if ((group | op->in[0].col | op->out[0].col | xp | yp) % 4)
        return emit_lacks(e, op, "columns that are not a multiple of 4");
    struct norm_args a = {
        .n = n,
        .group = group,
        .period = op->w[0] == NO_WEIGHT ? n : e->p->net->weights[op->w[0]].n_in,
        .kind = op->p.norm.kind,
        .rows = emit_rows_of(e, op->in[0]),
        .has_w = op->w[0] != NO_WEIGHT,
        .has_b = op->w[1] != NO_WEIGHT,
        .x_pitch = xp,
        .y_pitch = yp,
        .threads = MIN((u32)NORM_THREADS, groups_of(group / 4, 32) * 32),
        .eps = op->p.norm.eps,
    };
    emit_launch(e, "k_norm", emit_n_rows(e, op->in[0]), n / group, a.threads);
    emit_step(e, STEP_HEAD);
    emit_vector(e, op->w[0], 0);
    emit_vector(e, op->w[1], 0);
    emit_in(e, op->in[0]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

u32 emit_act(enum act_kind kind)
{
    static const u32 acts[] = {[ACT_TANH] = COLUMNS_TANH,        [ACT_SIGMOID] = COLUMNS_SIGMOID,
                               [ACT_RELU2] = COLUMNS_RELU2,      [ACT_DECAY] = COLUMNS_DECAY,
                               [ACT_SILU] = COLUMNS_SILU,        [ACT_EXP] = COLUMNS_EXP,
                               [ACT_SOFTPLUS] = COLUMNS_SOFTPLUS};
    return acts[kind];
}

static u32 function_of(const struct op *op)
{
    static const u32 glus[] = {[GLU_SILU] = COLUMNS_GLU,
                               [GLU_GELU] = COLUMNS_GELU,
                               [GLU_CLAMPED] = COLUMNS_CLAMPED,
                               [GLU_LIMITED] = COLUMNS_LIMITED};
    switch (op->kind) {
    case OP_ADD: return COLUMNS_ADD;
    case OP_MUL: return COLUMNS_MUL;
    case OP_LERP: return COLUMNS_LERP;
    case OP_GLU: return glus[op->p.glu.kind];
    case OP_K_CONTROL: return COLUMNS_K_CONTROL;
    default: return emit_act(op->p.act.kind);
    }
}

/* Inputs, then the weight row if there is one; what is missing is bound to the first input. */
int emit_columns(struct emit *e, const struct op *op)
{
    u32 n = op->out[0].width, pitch[3];
    u32 w = op->n_w ? op->w[0] : NO_WEIGHT;
    u32 at = w == NO_WEIGHT ? 3 : op->n_in; /* where the weight goes */
    for (u32 i = 0; i < 3; i++)
        pitch[i] = i == at ? 0 : emit_pitch(e, op->in[i < op->n_in ? i : 0]);
    struct columns_args a = {.n = n,
                             .f = function_of(op),
                             .rows = emit_rows_of(e, op->out[0]),
                             .a_pitch = pitch[0],
                             .b_pitch = pitch[1],
                             .c_pitch = pitch[2],
                             .y_pitch = emit_pitch(e, op->out[0])};
    if (op->kind == OP_GLU) a.alpha = op->p.glu.alpha, a.limit = op->p.glu.limit;
    emit_launch(e, "k_columns", groups_of(n, COLUMNS_THREADS), emit_n_rows(e, op->out[0]),
                COLUMNS_THREADS);
    emit_step(e, STEP_HEAD);
    for (u32 i = 0; i < 3; i++) {
        if (i == at)
            emit_vector(e, w, op->kind == OP_LERP ? op->p.lerp.row : 0);
        else
            emit_in(e, op->in[i < op->n_in ? i : 0]);
    }
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

int emit_rope(struct emit *e, const struct op *op)
{
    struct rope_args a = {.n_heads = op->p.rope.n_heads,
                          .width = op->p.rope.width,
                          .n_rot = op->p.rope.n_rot,
                          .neox = op->p.rope.kind == ROPE_NEOX,
                          .in_stride = op->p.rope.in_stride,
                          .out_stride = op->p.rope.out_stride,
                          .x_pitch = emit_pitch(e, op->in[0]),
                          .y_pitch = emit_pitch(e, op->out[0])};
    emit_launch(e, "k_rope", e->rows, a.n_heads, ROPE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_angles(e, op);
    emit_in(e, op->in[0]);
    emit_out(e, op->out[0]);
    return emit_args(e, &a, sizeof a);
}

u64 emit_rotated_bytes(const struct emit *e, struct operand x)
{
    return (u64)emit_room(e->limits, ROWS_T) * x.width * sizeof(float);
}

void emit_rotate(struct emit *e, struct operand x, u32 n, u64 offset)
{
    struct rotate_args a = {.n = n,
                            .rows = e->count,
                            .x_pitch = emit_pitch(e, x),
                            .y_pitch = x.width,
                            .scale = 1 / sqrtf((float)n)};
    emit_launch(e, "k_rotate", e->rows, x.width / n, ROTATE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_in(e, x);
    emit_scratch(e, offset, emit_rotated_bytes(e, x), true);
    emit_args(e, &a, sizeof a);
}

/* Keys and values, or the columns of a latent and rope's behind them. */
static int emit_kv_store_blocks(struct emit *e, const struct op *op)
{
    struct kv_row row = exec_kv_row(e->p->net, op->p.attn.kv);
    struct operand k = op->in[0], v = op->n_in > 1 ? op->in[1] : k;
    if (op->n_in == 1) v.col += row.part[0].width;
    if (row.rotated > ROTATE_MAX) return emit_lacks(e, op, "heads of more than 256 values");
    if (row.rotated) emit_rotate(e, k, row.rotated, 0);
    struct kv_store_blocks_args a = {.k_width = row.part[0].width,
                                     .v_width = row.part[1].width,
                                     .k_pitch = row.rotated ? k.width : emit_pitch(e, k),
                                     .v_pitch = emit_pitch(e, v),
                                     .k_four = row.part[0].type == QT_Q4_0,
                                     .v_four = row.part[1].type == QT_Q4_0,
                                     .block_tokens = e->limits->block_tokens,
                                     .table_len = e->limits->max_pos / e->limits->block_tokens + 1};
    emit_launch(e, "k_kv_store_blocks", e->rows, 1, KV_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    if (row.rotated)
        emit_scratch(e, 0, emit_rotated_bytes(e, k), false);
    else
        emit_in(e, k);
    v.width = row.part[1].width;
    emit_in(e, v);
    emit_kv(e, op->p.attn.kv, true);
    return emit_args(e, &a, sizeof a);
}

int emit_kv_store(struct emit *e, const struct op *op)
{
    bool has_v = op->n_in > 1;
    if (emit_kv_in_blocks(e->p->net)) return emit_kv_store_blocks(e, op);
    struct kv_store_args a = {.k_width = op->in[0].width,
                              .v_width = has_v ? op->in[1].width : 0,
                              .k_pitch = emit_pitch(e, op->in[0]),
                              .v_pitch = has_v ? emit_pitch(e, op->in[1]) : 0,
                              .block_tokens = e->limits->block_tokens,
                              .table_len = e->limits->max_pos / e->limits->block_tokens + 1};
    bool f32 = e->p->net->profile.kv == CACHE_F32;
    emit_launch(e, f32 ? "k_kv_store_f32" : "k_kv_store_f16", e->rows, 1, KV_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_in(e, op->in[0]);
    emit_in(e, op->in[has_v ? 1 : 0]);
    emit_kv(e, op->p.attn.kv, true);
    return emit_args(e, &a, sizeof a);
}
