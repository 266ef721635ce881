/* Fusion, once, after recording: a table of patterns, each a run of consecutive ops that one fused
 * op replaces. A value that only the run uses disappears; everything else keeps its buffer, so a
 * fused and an unfused program can be compared buffer by buffer. */
#include <stdlib.h>
#include <string.h>

#include "core/place.h"

/* Is x written by op `at` and read by nobody outside ops at+1 .. at+n_readers? */
static bool used_only_by(const struct program *p, u32 at, u32 n_readers)
{
    const struct operand x = p->ops[at].out[0];
    if (p->bufs[x.buf].kept || x.col != 0 || x.width != p->bufs[x.buf].width) return false;
    return p->bufs[x.buf].first == at && p->bufs[x.buf].last <= at + n_readers;
}

static bool same(struct operand a, struct operand b)
{
    return a.buf == b.buf && a.col == b.col && a.width == b.width;
}

static bool is_plain_matmul(const struct program *p, u32 i)
{
    return i < p->n_ops && p->ops[i].kind == OP_MATMUL;
}

/* norm, matmul, [matmul, [matmul]]: all of the norm's readers, three at most. */
static u32 match_norm_matmul(const struct program *p, u32 at, struct op *out)
{
    const struct op *norm = &p->ops[at];
    u32 n = 0;
    if (norm->kind != OP_NORM) return 0;
    while (n < OP_MAX_OUT && is_plain_matmul(p, at + 1 + n) &&
           same(p->ops[at + 1 + n].in[0], norm->out[0]))
        n++;
    if (n == 0 || !used_only_by(p, at, n)) return 0;
    *out = *norm;
    out->kind = OP_NORM_MATMUL;
    out->n_out = n;
    for (u32 i = 0; i < n; i++) {
        const struct op *m = &p->ops[at + 1 + i];
        out->out[i] = m->out[0];
        out->w[out->n_w++] = m->w[0];
        out->w[out->n_w++] = m->w[1];
    }
    return n + 1;
}

static u32 match_gate_up_glu(const struct program *p, u32 at, struct op *out)
{
    if (!is_plain_matmul(p, at) || !is_plain_matmul(p, at + 1) || at + 2 >= p->n_ops) return 0;
    const struct op *gate = &p->ops[at], *up = gate + 1, *glu = gate + 2;
    if (glu->kind != OP_GLU || !same(gate->in[0], up->in[0]) || !same(glu->in[0], gate->out[0]) ||
        !same(glu->in[1], up->out[0]) || !used_only_by(p, at, 2) || !used_only_by(p, at + 1, 1))
        return 0;
    *out = *glu;
    out->kind = OP_GATE_UP_GLU;
    out->n_in = 1;
    out->in[0] = gate->in[0];
    out->n_w = 4;
    memcpy(out->w, (u32[]){gate->w[0], gate->w[1], up->w[0], up->w[1]}, 4 * sizeof(u32));
    return 3;
}

/* In order of preference: the first that matches at an op wins. */
static const struct pattern {
    enum op_kind fused;
    u32 (*match)(const struct program *p, u32 at, struct op *out); /* ops replaced, 0 = none */
} patterns[] = {
    {OP_GATE_UP_GLU, match_gate_up_glu},
    {OP_NORM_MATMUL, match_norm_matmul},
};

static u32 fuse_at(const struct program *p, u32 at, u64 mask, struct op *out)
{
    for (u32 i = 0; i < ARRAY_LEN(patterns); i++) {
        u32 n = mask >> patterns[i].fused & 1 ? patterns[i].match(p, at, out) : 0;
        if (n) return n;
    }
    *out = p->ops[at];
    return 1;
}

int prog_fuse(struct program **out, const struct program *p, u64 mask, struct err *err)
{
    int rc = prog_open(out, p->net, p->name, err);
    if (rc) return rc;
    struct program *f = *out;
    *f = *p;
    f->cap_ops = p->n_ops;
    f->cap_bufs = p->n_bufs;
    f->ops = calloc(p->n_ops, sizeof *f->ops);
    f->bufs = calloc(p->n_bufs, sizeof *f->bufs);
    if (!f->ops || !f->bufs) {
        prog_close(f);
        *out = NULL;
        return err_nomem(err, "the program");
    }
    memcpy(f->bufs, p->bufs, p->n_bufs * sizeof *f->bufs);
    f->n_ops = 0;
    for (u32 at = 0; at < p->n_ops;) {
        struct op *op = &f->ops[f->n_ops++];
        at += fuse_at(p, at, mask, op);
        op->origin = at - 1;
    }
    rc = prog_place(f, err);
    if (rc) {
        prog_close(f);
        *out = NULL;
    }
    return rc;
}
