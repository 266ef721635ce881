/* RWKV-7's products that don't read each other, as launches: one row's all at once. */
#include <stdio.h>
#include <string.h>

#include "gpu/emit.h"

/* The lerp that makes x; NULL: none of the parts. */
static const struct op *lerp_of(const struct op *op, struct operand x)
{
    for (u32 i = 0; i < op->n_parts; i++)
        if (op->parts[i].kind == OP_LERP && op->parts[i].out[0].buf == x.buf) return &op->parts[i];
    return NULL;
}

static const struct op *act_of(const struct op *op, u32 i)
{
    return i + 1 < op->n_parts && op->parts[i + 1].kind == OP_ACT ? &op->parts[i + 1] : NULL;
}

/* Can k_mix do this product? */
static bool fits(const struct emit *e, const struct op *op, const struct op *mul)
{
    const struct op *lerp = lerp_of(op, mul->in[0]);
    struct planes w, v;
    planes_plan(&w, &e->p->net->weights[mul->w[0]]);
    u32 n = mul->in[0].width, chunk = e->places[mul->w[0]].chunk, room = MATMUL_MAX_IN;
    if (!encoding_is_int8(w.enc)) room = MATMUL_MAX_NORM_F32;
    const struct operand x = lerp ? lerp->in[0] : mul->in[0];
    if (n > room || (n | x.col | (lerp ? lerp->in[1].col : 0)) % 4) return false;
    if (mul->w[1] != NO_WEIGHT && e->places[mul->w[1]].chunk != chunk) return false;
    if (!lerp) return true;
    planes_plan(&v, &e->p->net->weights[lerp->w[0]]);
    return v.enc == ENC_F32 && e->places[lerp->w[0]].chunk == chunk;
}

static u32 unit_at(const struct emit *e, u32 id)
{
    return id == NO_WEIGHT ? (u32)MIX_NOTHING : (u32)(e->places[id].at / 16);
}

static struct mix_part part_of(struct emit *e, const struct op *op, u32 i)
{
    const struct op *mul = &op->parts[i], *act = act_of(op, i), *lerp = lerp_of(op, mul->in[0]);
    const struct weight *w = &e->p->net->weights[mul->w[0]];
    struct planes p, v = {0};
    planes_plan(&p, w);
    if (lerp) planes_plan(&v, &e->p->net->weights[lerp->w[0]]);
    return (struct mix_part){
        .n_in = w->n_in,
        .n_out = w->n_out,
        .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE,
        .q = unit_at(e, mul->w[0]),
        .s = (u32)(e->places[mul->w[0]].at + p.bytes[0]),
        .s_row = p.s_row,
        .bias = unit_at(e, mul->w[1]),
        .m = lerp ? unit_at(e, lerp->w[0]) + lerp->p.lerp.row * v.q_row : (u32)MIX_NOTHING,
        .x = emit_touch(e, lerp ? lerp->in[0] : mul->in[0], false),
        .x2 = lerp ? emit_touch(e, lerp->in[1], false) : 0,
        .y = emit_touch(e, act ? act->out[0] : mul->out[0], true),
    };
}

/* An output for each simdgroup, or two, three, .. so that there are not more groups than two for
 * each unit of a large device: every group makes its part's input anew. */
static void deal_groups(struct mix_args *a)
{
    enum { MAX_GROUPS = 264 };
    u32 per_group = 0;
    do {
        per_group += MATVEC_SIMDS;
        a->n_groups = 0;
        for (u32 i = 0; i < a->n_parts; i++) {
            a->part[i].first = a->n_groups;
            a->n_groups += (a->part[i].n_out + per_group - 1) / per_group;
        }
    } while (a->n_groups > MAX_GROUPS);
}

/* The products of this encoding and chunk as one launch. */
static void emit_mix(struct emit *e, const struct op *op, const u32 *pick, u32 n)
{
    struct mix_args a = {.n_parts = n};
    struct planes w;
    char name[32];
    u32 first = op->parts[pick[0]].w[0];
    planes_plan(&w, &e->p->net->weights[first]);
    snprintf(name, sizeof name, "k_mix_%s", encoding_info[w.enc].name);
    emit_launch(e, name, 1, 1, MATVEC_THREADS);
    emit_step(e, STEP_HEAD);
    emit_chunk(e, e->places[first].chunk);
    emit_all(e);
    for (u32 i = 0; i < n; i++) a.part[i] = part_of(e, op, pick[i]);
    deal_groups(&a);
    emit_groups(e, a.n_groups, (u32)QUEUE_BYTES(emit_scale_words(w.enc), MATVEC_THREADS));
    emit_args(e, &a, sizeof a);
}

int emit_matmuls(struct emit *e, const struct op *op)
{
    bool done[64] = {false};
    CHECK(op->n_parts <= ARRAY_LEN(done));
    for (u32 i = 0; i < op->n_parts; i++)
        if (op->parts[i].kind == OP_MATMUL &&
            (e->rows > 1 || e->kind.n_p || !fits(e, op, &op->parts[i])))
            return emit_parts(e, op);
    for (u32 i = 0; i < op->n_parts; i++) {
        u32 pick[MIX_MAX], n = 0;
        struct planes w, v;
        if (op->parts[i].kind != OP_MATMUL || done[i]) continue;
        planes_plan(&w, &e->p->net->weights[op->parts[i].w[0]]);
        u32 chunk = e->places[op->parts[i].w[0]].chunk;
        for (u32 j = i; j < op->n_parts && n < MIX_MAX; j++) {
            if (op->parts[j].kind != OP_MATMUL) continue;
            planes_plan(&v, &e->p->net->weights[op->parts[j].w[0]]);
            if (v.enc != w.enc || e->places[op->parts[j].w[0]].chunk != chunk) continue;
            pick[n++] = j;
            done[j] = true;
        }
        emit_mix(e, op, pick, n);
    }
    return e->rc;
}
