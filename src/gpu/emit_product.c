/* What groups of products are to kernels. */
#include "gpu/emit_layers.h"

static bool is_product(const struct op *op)
{
    return op->kind == OP_MATMUL || op->kind == OP_MATMUL_HEADS || op->kind == OP_MATMUL_EXPERTS;
}

static const struct op *maker_of(const struct group *g, struct operand x, enum op_kind kind)
{
    const struct op *op = group_maker(g, x);
    return op && op->kind == kind ? op : NULL;
}

static void add_matrix(struct product *m, const struct op *op, struct operand y)
{
    CHECK(m->n < MIX_MAX);
    m->m[m->n++] = (struct matrix){
        .w = op->w[0], .bias = op->kind == OP_MATMUL ? op->w[1] : NO_WEIGHT, .y = y};
}

/* One matrix, or the two of a glu, which come together. */
static void add_product(struct product *m, const struct group *g, const struct op *op)
{
    const struct op *act = group_reader(g, op->out[0], OP_ACT);
    const struct op *glu = group_reader(g, op->out[0], OP_GLU);
    if (glu && !operand_same(glu->in[0], op->out[0])) return; /* its gate brings it */
    add_matrix(m, op, (glu ? glu : act ? act : op)->out[0]);
    const struct op *lerp = maker_of(g, op->in[0], OP_LERP);
    m->m[m->n - 1].lerp = lerp;
    m->m[m->n - 1].x = m->norm ? m->x : lerp ? lerp->in[0] : op->in[0];
    m->m[m->n - 1].act = act;
    m->m[m->n - 1].glu = glu;
    if (glu) add_matrix(m, group_maker(g, glu->in[1]), glu->out[0]);
}

/* How slices lie. */
static void set_slices(struct product *m, const struct op *op)
{
    m->n_slices = 1;
    m->n_in = op->in[0].width;
    if (op->kind == OP_MATMUL_HEADS) {
        m->n_slices = op->p.heads.n_heads;
        m->n_in = op->p.heads.n_in;
        m->x_stride = op->p.heads.in_stride;
        m->y_stride = op->p.heads.out_stride;
    } else if (op->kind == OP_MATMUL_EXPERTS) {
        m->n_in = op->p.experts.n_in;
        m->n_used = op->p.experts.n_used;
        m->per_slot = op->p.experts.per_slot;
        m->ids = op->in[1];
    }
}

struct product product_of(const struct group *g, const struct op *like)
{
    for (u32 i = 0; i < g->n_ops && !like; i++)
        if (is_product(g->ops[i])) like = g->ops[i];
    const struct op *lerp = maker_of(g, like->in[0], OP_LERP), *add;
    struct operand x = lerp ? lerp->in[0] : like->in[0];
    struct product m = {
        .op = like, .norm = maker_of(g, x, OP_NORM), .shift = group_op(g, OP_TOKEN_SHIFT, 0)};
    m.x = m.norm ? m.norm->in[0] : x;
    set_slices(&m, like);
    for (u32 i = 0; i < g->n_ops; i++) {
        const struct op *op = g->ops[i];
        if (op->kind == like->kind &&
            ((g->rule && g->rule->gathers) || operand_same(op->in[0], like->in[0])))
            add_product(&m, g, op);
    }
    while (m.n == 1 && (add = group_reader(g, m.m[0].y, OP_ADD)) != NULL) {
        m.add[m.n_add++] = add->in[add->in[0].buf == m.m[0].y.buf];
        m.m[0].y = add->out[0];
    }
    return m;
}

void emit_shift(struct emit *e, const struct op *shift, const struct op *norm)
{
    if (shift) {
        emit_state(e, shift->p.rec.state, false);
        emit_kept(e, shift->p.rec.state, norm->in[0].width);
    } else {
        emit_in(e, no_operand);
        emit_out(e, norm ? norm->out[0] : no_operand);
    }
}

struct product product_alone(const struct op *op)
{
    return product_of(&(struct group){.n_ops = 1, .ops = &op}, op);
}

struct product product_part(const struct product *m, const u32 *from, u32 n)
{
    struct product part = *m;
    for (u32 i = 0; i < n; i++) part.m[i] = m->m[from[i]];
    part.n = n;
    return part;
}
