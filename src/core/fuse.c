/* Fusion, once, after recording: a table of patterns, each a run of consecutive ops that one fused
 * op replaces. A value that only the run uses disappears; everything else keeps its buffer, so a
 * fused and an unfused program can be compared buffer by buffer. A fused op has the weights of its
 * parts one behind the other, and the parts themselves for all that an executor wants to know. */
#include <stdlib.h>
#include <string.h>

#include "core/place.h"

enum { MAX_STEPS = 10 };

/* A run of ops. Letters name values: a letter stands for the same columns wherever it is. */
struct pattern {
    enum op_kind fused;
    const char *in, *out; /* of the fused op, as far as they occur; other values must vanish */
    struct {
        enum op_kind kind;
        const char *in, *out;
        char without; /* 0: must be there; a letter: what its output is without it; '-': nothing */
        u64 also;     /* features that its op may have beside those of `features` */
    } steps[MAX_STEPS];
};

/* What ops of all patterns may have (op.h). */
static const u64 features[OP_COUNT] = {
    [OP_NORM] = HAS_ANY_NORM,
    [OP_MATMUL] = HAS(OP) | HAS(BIAS),
    [OP_MATMUL_HEADS] = HAS(OP),
    [OP_MATMUL_EXPERTS] = HAS(OP),
    [OP_ADD] = HAS(OP),
    [OP_MUL] = HAS(OP) | HAS(WEIGHT),
    [OP_LERP] = HAS(OP) | HAS(WEIGHT),
    [OP_ACT] = HAS_ANY_ACT,
    [OP_GLU] = HAS(OP),
    [OP_ROPE] = HAS(OP) | HAS(NEOX) | HAS(PARTIAL),
    [OP_KV_STORE] = HAS(OP) | HAS(NO_VALUE),
    [OP_ATTENTION] = HAS(OP) | HAS(V_WIDTH),
    [OP_LATENT_ATTENTION] = HAS(OP),
    [OP_ROUTE] = HAS_ANY_ROUTE,
    [OP_COMBINE_EXPERTS] = HAS(OP),
    [OP_TOKEN_SHIFT] = HAS(OP),
    [OP_K_CONTROL] = HAS(OP),
    [OP_RECURRENCE] = HAS(OP),
    [OP_RK_BONUS] = HAS(OP),
};

static bool is_known(const struct op *op, u64 also)
{
    return !(op_features(op) & ~(features[op->kind] | also));
}

/* In order of preference: the first that matches at an op wins. */
static const struct pattern patterns[] = {
    {OP_NORM_QKV_ATTENTION,
     "x",
     "y",
     {{OP_NORM, "x", "h", 0, 0},
      {OP_MATMUL, "h", "q", 0, 0},
      {OP_MATMUL, "h", "k", 0, 0},
      {OP_MATMUL, "h", "v", 0, 0},
      {OP_NORM, "q", "a", 'q', 0},
      {OP_NORM, "k", "b", 'k', 0},
      {OP_ROPE, "a", "c", 0, 0},
      {OP_ROPE, "b", "d", 0, 0},
      {OP_KV_STORE, "dv", "", 0, 0},
      {OP_ATTENTION, "c", "y", 0, 0}}},
    {OP_NORM_QKV_STORE,
     "x",
     "c",
     {{OP_NORM, "x", "h", 0, 0},
      {OP_MATMUL, "h", "q", 0, 0},
      {OP_MATMUL, "h", "k", 0, 0},
      {OP_MATMUL, "h", "v", 0, 0},
      {OP_NORM, "q", "a", 'q', 0},
      {OP_NORM, "k", "b", 'k', 0},
      {OP_ROPE, "a", "c", 0, 0},
      {OP_ROPE, "b", "d", 0, 0},
      {OP_KV_STORE, "dv", "", 0, 0}}},
    {OP_NORM_GATE_UP_GLU,
     "x",
     "y",
     {{OP_NORM, "x", "h", 0, 0},
      {OP_MATMUL, "h", "g", 0, 0},
      {OP_MATMUL, "h", "u", 0, 0},
      {OP_GLU, "gu", "y", 0, 0}}},
    {OP_MLA_QUERY,
     "x",
     "qy",
     {{OP_NORM, "x", "h", 0, 0}, {OP_MATMUL, "h", "q", 0, 0}, {OP_MATMUL_HEADS, "q", "y", 0, 0}}},
    {OP_NORM_MATMUL,
     "x",
     "abc",
     {{OP_NORM, "x", "h", 0, 0},
      {OP_MATMUL, "h", "a", 0, 0},
      {OP_MATMUL, "h", "b", '-', 0},
      {OP_MATMUL, "h", "c", '-', 0}}},
    {OP_NORM_ROUTER,
     "x",
     "hzy",
     {{OP_NORM, "x", "h", 0, 0},
      {OP_MATMUL, "h", "z", 0, 0},
      {OP_MATMUL, "h", "g", '-', 0},
      {OP_MATMUL, "h", "u", '-', 0},
      {OP_GLU, "gu", "y", '-', 0}}},
    {OP_GATE_UP_GLU,
     "x",
     "y",
     {{OP_MATMUL, "x", "g", 0, 0}, {OP_MATMUL, "x", "u", 0, 0}, {OP_GLU, "gu", "y", 0, 0}}},
    {OP_MATMUL_ADD,
     "xrs",
     "z",
     {{OP_MATMUL, "x", "m", 0, 0}, {OP_ADD, "rm", "y", 0, 0}, {OP_ADD, "sy", "z", 'y', 0}}},
    {OP_MLA_ATTENTION,
     "qckb",
     "ay",
     {{OP_ROPE, "q", "a", 0, 0},
      {OP_NORM, "c", "n", 0, 0},
      {OP_ROPE, "k", "r", 0, 0},
      {OP_KV_STORE, "l", "", 0, 0},
      {OP_LATENT_ATTENTION, "b", "z", 0, 0},
      {OP_MATMUL_HEADS, "z", "y", 0, 0}}},
    {OP_MLA_STORE,
     "qck",
     "a",
     {{OP_ROPE, "q", "a", 0, 0},
      {OP_NORM, "c", "n", 0, 0},
      {OP_ROPE, "k", "r", 0, 0},
      {OP_KV_STORE, "l", "", 0, 0}}},
    {OP_ROPE_STORE,
     "qkv",
     "a",
     {{OP_ROPE, "q", "a", 0, 0}, {OP_ROPE, "k", "b", 0, 0}, {OP_KV_STORE, "bv", "", 0, 0}}},
    {OP_ROUTE_EXPERTS_GLU,
     "zx",
     "iwy",
     {{OP_ROUTE, "z", "iw", 0, 0},
      {OP_MATMUL_EXPERTS, "xi", "g", 0, 0},
      {OP_MATMUL_EXPERTS, "xi", "u", 0, 0},
      {OP_GLU, "gu", "y", 0, 0}}},
    {OP_EXPERTS_GLU,
     "xi",
     "y",
     {{OP_MATMUL_EXPERTS, "xi", "g", 0, 0},
      {OP_MATMUL_EXPERTS, "xi", "u", 0, 0},
      {OP_GLU, "gu", "y", 0, 0}}},
    {OP_EXPERTS_SUM_ADD,
     "xiwsr",
     "z",
     {{OP_MATMUL_EXPERTS, "xi", "d", 0, HAS(PER_SLOT)},
      {OP_COMBINE_EXPERTS, "dw", "y", 0, 0},
      {OP_MATMUL, "s", "m", 0, 0},
      {OP_ADD, "ym", "a", 0, 0},
      {OP_ADD, "ra", "z", 0, 0}}},
    {OP_EXPERTS_SUM,
     "xiwr",
     "z",
     {{OP_MATMUL_EXPERTS, "xi", "d", 0, HAS(PER_SLOT)},
      {OP_COMBINE_EXPERTS, "dw", "y", 0, 0},
      {OP_ADD, "ry", "z", 'y', 0}}},
    {OP_TIME_MIX,
     "rwkvafmg",
     "s",
     {{OP_LERP, "vfm", "u", 'v', 0},
      {OP_MUL, "k", "z", 0, 0},
      {OP_NORM, "z", "n", 0, 0},
      {OP_K_CONTROL, "ka", "c", 0, 0},
      {OP_RECURRENCE, "rwcuna", "y", 0, 0},
      {OP_NORM, "y", "o", 'y', 0},
      {OP_RK_BONUS, "orcu", "b", 0, 0},
      {OP_MUL, "bg", "s", 'b', 0}}},
};

/* What the letters of a pattern stand for so far. */
struct letters {
    char same_as['z' + 1]; /* 0: itself */
    bool known['z' + 1];
    struct operand value['z' + 1];
};

static bool same(struct operand a, struct operand b)
{
    return a.buf == b.buf && a.col == b.col && a.width == b.width;
}

/* Takes the operands for the letters; false if one stands for something else already. */
static bool unify(struct letters *l, const char *names, const struct operand *x, u32 n)
{
    if (strlen(names) != n) return false;
    for (u32 i = 0; i < n; i++) {
        int c = l->same_as[(int)names[i]] ? l->same_as[(int)names[i]] : names[i];
        if (l->known[c] && !same(l->value[c], x[i])) return false;
        l->known[c] = true;
        l->value[c] = x[i];
    }
    return true;
}

/* Is the buffer of o used by nobody but ops [at, end)? Then it needs no place. */
static bool vanishes(const struct program *p, struct operand o, u32 at, u32 end)
{
    const struct buffer *b = &p->bufs[o.buf];
    return !b->kept && b->first >= at && b->last < end;
}

/* A fused op without inputs and outputs for ops [at, at + n) of p. */
static struct op fused_op(const struct program *p, enum op_kind kind, u32 at, u32 n)
{
    struct op out = p->ops[at];
    out.kind = kind;
    out.n_in = out.n_out = out.n_w = 0;
    out.n_parts = n;
    for (u32 i = at; i < at + n; i++)
        for (u32 j = 0; j < p->ops[i].n_w; j++) {
            CHECK(out.n_w < OP_MAX_W);
            out.w[out.n_w++] = p->ops[i].w[j];
        }
    return out;
}

static u32 list_known(const struct letters *l, const char *names, struct operand *x)
{
    u32 n = 0;
    for (; *names; names++) {
        int c = l->same_as[(int)*names] ? l->same_as[(int)*names] : *names;
        if (l->known[c]) x[n++] = l->value[c];
    }
    return n;
}

/* The number of ops replaced at `at`, 0 for none. */
static u32 match(const struct program *p, u32 at, const struct pattern *pat, struct op *out)
{
    struct letters l = {0};
    u32 n = 0;
    for (u32 i = 0; i < MAX_STEPS && pat->steps[i].in; i++) {
        const struct op *op = &p->ops[at + n];
        struct letters before = l;
        if (at + n < p->n_ops && op->kind == pat->steps[i].kind &&
            is_known(op, pat->steps[i].also) && unify(&l, pat->steps[i].in, op->in, op->n_in) &&
            unify(&l, pat->steps[i].out, op->out, op->n_out)) {
            n++;
            continue;
        }
        if (!pat->steps[i].without) return 0;
        l = before;
        if (pat->steps[i].without != '-')
            l.same_as[(int)pat->steps[i].out[0]] = pat->steps[i].without;
    }
    *out = fused_op(p, pat->fused, at, n);
    out->n_in = list_known(&l, pat->in, out->in);
    out->n_out = list_known(&l, pat->out, out->out);
    for (u32 i = at; i < at + n; i++) {
        bool kept = p->ops[i].n_out == 0;
        for (u32 j = 0; j < out->n_out; j++) kept |= same(p->ops[i].out[0], out->out[j]);
        if (!kept && !vanishes(p, p->ops[i].out[0], at, at + n)) return 0;
    }
    return n;
}

/* ---- OP_MATMULS and OP_SHIFT_MATMULS: as many as there are ---- */

/* Is x written by one of ops [at, i) that are of this kind? */
static bool written_by(const struct program *p, u32 at, u32 i, struct operand x, enum op_kind kind)
{
    for (u32 j = at; j < i; j++)
        if (p->ops[j].kind == kind && p->ops[j].out[0].buf == x.buf) return true;
    return false;
}

static bool joins(const struct program *p, u32 at, u32 i, u32 n_matmuls)
{
    const struct op *op = &p->ops[i];
    if (!is_known(op, 0)) return false;
    switch (op->kind) {
    case OP_LERP: return op->n_w == 1 && n_matmuls == 0 && i - at < 6;
    case OP_MATMUL:
        return n_matmuls < OP_MAX_OUT && !written_by(p, at, i, op->in[0], OP_MATMUL) &&
               !written_by(p, at, i, op->in[0], OP_ACT);
    case OP_ACT:
        return n_matmuls && p->ops[i - 1].kind == OP_MATMUL &&
               same(op->in[0], p->ops[i - 1].out[0]);
    default: return false;
    }
}

static void add_input(struct op *out, struct operand x)
{
    for (u32 i = 0; i < out->n_in; i++)
        if (same(out->in[i], x)) return;
    if (out->n_in < OP_MAX_IN) out->in[out->n_in] = x;
    out->n_in++;
}

/* The lerps, matmuls and acts of ops [begin, end) of the fused op that starts at `at`. */
static bool add_matmuls(const struct program *p, u32 at, u32 begin, u32 end, struct op *out)
{
    for (u32 i = begin; i < end; i++) {
        const struct op *op = &p->ops[i];
        bool acts = i + 1 < end && p->ops[i + 1].kind == OP_ACT;
        if (op->kind == OP_LERP || acts) {
            if (!vanishes(p, op->out[0], at, end)) return false;
        } else {
            out->out[out->n_out++] = op->out[0];
        }
        for (u32 j = 0; j < op->n_in; j++)
            if (!written_by(p, begin, i, op->in[j], OP_LERP) && op->kind != OP_ACT)
                add_input(out, op->in[j]);
    }
    return out->n_in <= OP_MAX_IN;
}

/* The end of a run of lerps, matmuls and acts; `begin` if it is none. */
static u32 end_of_matmuls(const struct program *p, u32 begin)
{
    u32 i = begin, n_matmuls = 0;
    for (; i < p->n_ops && joins(p, begin, i, n_matmuls); i++)
        n_matmuls += p->ops[i].kind == OP_MATMUL;
    return n_matmuls && i - begin > 1 ? i : begin;
}

static u32 match_matmuls(const struct program *p, u32 at, struct op *out)
{
    u32 end = end_of_matmuls(p, at);
    if (end == at) return 0;
    *out = fused_op(p, OP_MATMULS, at, end - at);
    return add_matmuls(p, at, at, end, out) ? end - at : 0;
}

/* The norm and the shift are read by the lerps alone. */
static u32 match_shift_matmuls(const struct program *p, u32 at, struct op *out)
{
    const struct op *norm = &p->ops[at], *shift = norm + 1;
    if (at + 2 >= p->n_ops || norm->kind != OP_NORM || shift->kind != OP_TOKEN_SHIFT ||
        !is_known(norm, 0) || !is_known(shift, 0) || !same(shift->in[0], norm->out[0]))
        return 0;
    u32 end = end_of_matmuls(p, at + 2);
    if (end == at + 2 || !vanishes(p, norm->out[0], at, end) ||
        !vanishes(p, shift->out[0], at, end))
        return 0;
    *out = fused_op(p, OP_SHIFT_MATMULS, at, end - at);
    if (!add_matmuls(p, at, at + 2, end, out)) return 0;
    /* in place of the two that vanish */
    if (out->n_in != 2 || !same(out->in[0], norm->out[0]) || !same(out->in[1], shift->out[0]))
        return 0;
    out->in[0] = norm->in[0];
    out->n_in = 1;
    return end - at;
}

/* Products that only time mixing reads, and time mixing. */
static u32 match_low_time_mix(const struct program *p, u32 at, struct op *out)
{
    u32 begin = end_of_matmuls(p, at), n = 0;
    struct op mix;
    if (begin == at || p->ops[at].kind != OP_MATMUL) return 0;
    for (u32 i = 0; i < ARRAY_LEN(patterns) && !n; i++)
        if (patterns[i].fused == OP_TIME_MIX) n = match(p, begin, &patterns[i], &mix);
    if (!n) return 0;
    *out = fused_op(p, OP_LOW_TIME_MIX, at, begin + n - at);
    if (!add_matmuls(p, at, at, begin, out)) return 0;
    for (u32 i = 0; i < out->n_out; i++)
        if (!vanishes(p, out->out[i], at, begin + n)) return 0;
    for (u32 i = 0; i < mix.n_in; i++)
        if (!written_by(p, at, begin, mix.in[i], OP_MATMUL) &&
            !written_by(p, at, begin, mix.in[i], OP_ACT))
            add_input(out, mix.in[i]);
    out->out[0] = mix.out[0];
    out->n_out = 1;
    return out->n_in <= OP_MAX_IN ? begin + n - at : 0;
}

/* ---- programs ---- */

static u32 fuse_at(const struct program *p, u32 at, u64 mask, struct op *out)
{
    for (u32 i = 0; i < ARRAY_LEN(patterns); i++) {
        u32 n = mask >> patterns[i].fused & 1 ? match(p, at, &patterns[i], out) : 0;
        if (n) return n;
    }
    u32 n = mask >> OP_SHIFT_MATMULS & 1 ? match_shift_matmuls(p, at, out) : 0;
    if (!n && mask >> OP_LOW_TIME_MIX & 1) n = match_low_time_mix(p, at, out);
    if (!n && mask >> OP_MATMULS & 1) n = match_matmuls(p, at, out);
    if (n) return n;
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
    f->recorded = calloc(p->n_ops, sizeof *f->recorded);
    f->bufs = calloc(p->n_bufs, sizeof *f->bufs);
    if (!f->ops || !f->recorded || !f->bufs) {
        prog_close(f);
        *out = NULL;
        return err_nomem(err, "the program");
    }
    memcpy(f->recorded, p->ops, p->n_ops * sizeof *f->recorded);
    memcpy(f->bufs, p->bufs, p->n_bufs * sizeof *f->bufs);
    f->n_ops = 0;
    for (u32 at = 0; at < p->n_ops;) {
        struct op *op = &f->ops[f->n_ops++];
        u32 n = fuse_at(p, at, mask, op);
        if (n > 1) op->parts = &f->recorded[at];
        at += n;
        op->origin = at - 1;
    }
    rc = prog_place(f, err);
    if (rc) {
        prog_close(f);
        *out = NULL;
    }
    return rc;
}
