#include "engine/predict.h"

#include <stdlib.h>

#include "engine/bench.h"

/* The one set of constants, fitted to what was measured on an H200 (predict_test.c has the rows).
 * Shares are of what a machine's published figures promise. */
static const double STREAMED = 0.92; /* of bandwidth: what reading alone was measured to reach */
static const double ROUTED = 0.5;    /* weights that can't be fetched before the router is done */
static const double PRODUCTS = 0.6;  /* of f32 operations */
static const double ATTENTION = 0.1;
static const double LATENTS = 0.7; /* where matrix units read them for several heads at once */
static const double OP = 0.3;      /* microseconds: what merging kernels does not save */

/* Microseconds from one kernel to the next and once for a step. The first row is fitted, the
 * others are assumed: what edges that let kernels overlap were seen to save, and what is told of
 * barriers and command buffers. */
static const struct {
    double launch, step;
} links[] = {
    [LINK_DEPENDENT] = {1.85, 0},
    [LINK_GRAPH] = {2.7, 0},
    [LINK_METAL] = {3.2, 150},
};

int predict_cost(struct token_cost *out, const struct machine *m, const struct program *p,
                 const struct exec_class *class, const struct exec_limits *limits, u32 depth,
                 struct err *err)
{
    u32 *by_group = calloc(p->n_groups + 1, sizeof *by_group);
    *out = (struct token_cost){.streamed = (double)exec_kv_bytes(p->net) * depth +
                                           2.0 * (double)exec_state_bytes(p->net)};
    u32 n_units = m->link == LINK_DEPENDENT ? m->n_units : 0;
    int rc = by_group
                 ? class->launches(class, p, limits, 1, n_units, by_group, &out->n_launches, err)
                 : err_nomem(err, "the prediction");
    free(by_group);
    out->n_ops = p->n_ops;
    for (u32 i = 0; i < p->n_ops && !rc; i++) {
        const struct op *op = &p->ops[i];
        *(op->kind == OP_MATMUL_EXPERTS ? &out->routed : &out->streamed) +=
            (double)bench_placed_bytes(class, p, op, 1);
        out->products += prog_op_flops(p->net, op);
        *(op->kind == OP_LATENT_ATTENTION ? &out->latents : &out->attention) +=
            prog_op_flops_per_position(op) * depth;
    }
    return rc;
}

double predict_token(const struct machine *m, const struct token_cost *c)
{
    double bytes = m->gbs * 1e9, flops = 2e9 * m->lanes * m->n_units * m->ghz;
    return (c->n_launches * links[m->link].launch + c->n_ops * OP + links[m->link].step) * 1e-6 +
           c->streamed / (STREAMED * bytes) + c->routed / (ROUTED * bytes) +
           c->products / (PRODUCTS * flops) + c->attention / (ATTENTION * flops) +
           c->latents / ((m->link == LINK_DEPENDENT ? LATENTS : ATTENTION) * flops);
}
