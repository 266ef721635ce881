/* Layers of RWKV-7 as one launch (native/rwkv7.cu). */
#include "gpu/emit_layers.h"

/* A layer's groups. */
enum { MIX, LOW, OUT, KEY, VALUE, GROUPS };

static bool take_part(const struct emit *e, const struct layer *l, const struct group *g,
                      struct operand y, enum encoding enc, u32 n, struct layers_part *to)
{
    const struct op *mul = group_maker(g, y), *act = NULL, *lerp;
    if (mul && mul->kind == OP_ACT) act = mul, mul = group_maker(g, act->in[0]);
    if (!mul || mul->kind != OP_MATMUL || mul->in[0].width != n || mul->w[1] != NO_WEIGHT ||
        emit_planes(e, mul->w[0]).enc != enc)
        return false;
    lerp = group_maker(g, mul->in[0]);
    *to = (struct layers_part){.enc = enc,
                               .n_out = mul->out[0].width,
                               .m = emit_lerp_unit(e, lerp) - l->base,
                               .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE};
    return layers_matrix(e, l, mul->w[0], &to->q, &to->s);
}

/* Of the product that makes x, perhaps with an act. */
static enum encoding enc_of(const struct emit *e, const struct group *g, struct operand x)
{
    const struct op *mul = group_maker(g, x);
    if (mul && mul->kind == OP_ACT) mul = group_maker(g, mul->in[0]);
    return mul && mul->kind == OP_MATMUL ? emit_planes(e, mul->w[0]).enc : ENC_COUNT;
}

/* An encoding that low-rank matrices have. */
static bool is_short(enum encoding enc)
{
    return enc == ENC_F16 || enc == ENC_F32;
}

/* r, k, v, the middles and what is made of them. */
static bool take_parts(const struct emit *e, const struct group *g, const struct mixer *m,
                       const struct layer *l, struct layers_args *a)
{
    static const enum mixer_input wide[] = {IN_R, IN_K, IN_V}, low[] = {IN_W, IN_A, IN_G, IN_M};
    u32 ranks = 0, units = 0;
    for (u32 i = 0; i < 3; i++)
        if (!take_part(e, l, &g[MIX], m->in[wide[i]], l->enc, a->n, &a->part[i]) ||
            a->part[i].n_out != a->n || a->part[i].f != COLUMNS_NONE)
            return false;
    for (u32 i = 0; i < LAYERS_LOW; i++) {
        const struct op *mul = group_maker(&g[LOW], m->in[low[i]]), *act = NULL;
        if (mul->kind == OP_ACT) act = mul, mul = group_maker(&g[LOW], act->in[0]);
        struct planes p = emit_planes(e, mul->w[0]);
        struct operand x = mul->in[0];
        enum encoding from = enc_of(e, &g[MIX], x);
        if (!is_short(p.enc) || x.width % 8 || p.q_row > (i == 2 ? 64 : 32) || !is_short(from) ||
            !take_part(e, l, &g[MIX], x, from, a->n, &a->part[3 + i]) ||
            e->places[mul->w[0]].chunk != l->chunk)
            return false;
        a->low[i] = (struct layers_low){
            .enc = p.enc,
            .n_in = x.width,
            .q = emit_unit(e, mul->w[0]) - l->base,
            .bias = mul->w[1] == NO_WEIGHT ? (u32)MIX_NOTHING : emit_unit(e, mul->w[1]) - l->base,
            .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE};
        ranks += x.width;
        units += p.q_row;
    }
    return ranks <= LAYERS_MAX_RANKS && units <= LAYERS_LOW_UNITS;
}

/* Groups for the time mix's parts: as few rows of r, k and v for a simdgroup as can be, one of a
 * middle, and if some are left half a one where its rows are twice as long. Gives how many at
 * least. */
static u32 deal_groups(struct layers_args *a, u32 units, u32 simds)
{
    u32 n[LAYERS_PARTS], least = 0, wide, at = 0;
    for (u32 i = 3; i < LAYERS_PARTS; i++) least += n[i] = (a->part[i].n_out + simds - 1) / simds;
    for (u32 rows = 1;; rows++) {
        wide = (a->n + simds * rows - 1) / (simds * rows);
        if (3 * wide + least <= units || wide == 1) break;
    }
    n[0] = n[1] = n[2] = wide;
    least += 3 * wide;
    u32 left = units > least ? units - least : 0;
    for (u32 i = 0; i < LAYERS_PARTS; i++) {
        u32 more = a->part[i].enc == ENC_F32 ? MIN(left, n[i]) : 0;
        a->part[i].first = at;
        at += n[i] + more;
        left -= more;
    }
    return least;
}

/* Can the launch do it? Then groups are dealt out too. */
static bool fits(const struct emit *e, struct layer *l)
{
    struct layers_args *a = &l->a.rwkv7;
    bool nibbles = encoding_has_nibbles(l->enc);
    u32 units = e->kind.caps.n_units, simds = LAYERS_SIMDS(nibbles);
    return a->n % 256 == 0 && a->n >= LAYERS_LEAST && a->n <= LAYERS_MAX(nibbles) &&
           a->n_between % 256 == 0 && a->n_between <= 4 * a->n && a->n_between >= units &&
           a->n_heads <= units && (a->n + units - 1) / units <= simds &&
           deal_groups(a, units, simds) <= units;
}

/* Where a state lies, in 16 bytes. */
static u32 state_at(const struct emit *e, const struct layer *l, const struct op *op)
{
    u64 n;
    return (u32)(emit_state_at(e->p->net, e->limits, op->p.rec.state, &n) / 16) - l->memory_base;
}

/* The norm of half i of a layer, and its shift. */
static bool take_norm(const struct emit *e, const struct group *g, const struct layer *l, u32 i,
                      struct layers_args *a)
{
    const struct op *norm = group_op(g, OP_NORM, 0);
    a->eps[i] = norm->p.norm.eps;
    a->shift[i] = state_at(e, l, group_op(g, OP_TOKEN_SHIFT, 0));
    return emit_mixes_fit(e, g) && norm->p.norm.kind == NORM_LAYER &&
           layers_vector(e, l, norm->w[0], &a->norm_w[i]) &&
           layers_vector(e, l, norm->w[1], &a->norm_b[i]);
}

static bool layer_of(const struct emit *e, const struct group *g, struct layer *out)
{
    struct layers_args *a = &out->a.rwkv7;
    struct layers_part key;
    struct layer_sum sum, value;
    struct mixer m;
    if (!emit_low_mix_fits(e, &g[LOW], &m) || m.head != 64 || !m.norm || !m.lerp || !m.gate ||
        !layers_sum(&g[OUT], &sum) || !layers_sum(&g[VALUE], &value))
        return false;
    out->enc = emit_planes(e, sum.mul->w[0]).enc;
    out->chunk = e->places[sum.mul->w[0]].chunk;
    out->memory = emit_state_at(e->p->net, e->limits, m.wkv->p.rec.state, &out->n_memory);
    *a = (struct layers_args){.n = sum.mul->in[0].width,
                              .n_between = value.mul->in[0].width,
                              .n_heads = m.args.n_heads,
                              .v_first = emit_place(e, m.in[IN_FIRST]),
                              .l2_eps = m.args.l2_eps,
                              .head_eps = m.args.norm_eps,
                              .state = state_at(e, out, m.wkv)};
    const u32 vectors[] = {m.k_k->w[0], m.k_a->w[0], m.bonus->w[0], m.norm->w[0], m.norm->w[1]};
    for (u32 i = 0; i < ARRAY_LEN(vectors); i++)
        if (!layers_vector(e, out, vectors[i], &a->vector[i])) return false;
    for (u32 i = 0; i < 2; i++)
        if (!take_norm(e, &g[i ? KEY : MIX], out, i, a)) return false;
    struct operand x = group_op(&g[MIX], OP_NORM, 0)->in[0];
    struct operand middle = group_op(&g[KEY], OP_NORM, 0)->in[0];
    if ((out->enc != ENC_I8 && out->enc != ENC_K4) || !take_parts(e, g, &m, out, a) ||
        !take_part(e, out, &g[KEY], value.mul->in[0], out->enc, a->n, &key) ||
        key.f != COLUMNS_RELU2 || emit_planes(e, value.mul->w[0]).enc != out->enc ||
        !layers_matrix(e, out, sum.mul->w[0], &a->q[0], &a->s[0]) ||
        !layers_matrix(e, out, value.mul->w[0], &a->q[2], &a->s[2]))
        return false;
    a->m = key.m, a->q[1] = key.q, a->s[1] = key.s;
    out->place = a->q[0];
    out->x = emit_place(e, x);
    out->y = emit_place(e, value.y);
    return !group_op(&g[MIX], OP_MATMUL, LAYERS_PARTS) && !group_op(&g[KEY], OP_MATMUL, 1) &&
           operand_same(sum.mul->in[0], m.out) && operand_same(sum.added, x) &&
           operand_same(sum.y, middle) && operand_same(value.added, middle) &&
           sum.y.width == a->n && value.y.width == a->n && fits(e, out);
}

static void emit_run(struct emit *e, const struct layer_run *r)
{
    const struct layer *l = &r->first;
    struct layers_args a = l->a.rwkv7;
    bool nibbles = encoding_has_nibbles(l->enc);
    u32 units = e->kind.caps.n_units, simds = LAYERS_SIMDS(nibbles);
    a.n_layers = r->n, a.stride = r->stride, a.state_stride = r->memory_stride;
    a.x = l->x, a.y = l->y;
    e->passed =
        (LAYERS_HEADER + 6u * a.n + LAYERS_MAX_RANKS) * sizeof(u64) + a.n_between * sizeof(float);
    emit_launch(e, nibbles ? "k_rwkv7_k4" : "k_rwkv7_i8", units, 1, simds * 32 + LAYERS_HELPERS);
    emit_groups(e, units, LAYERS_BYTES);
    emit_step(e, STEP_ROWS);
    emit_chunk(e, l->chunk);
    emit_all(e, true);
    emit_states(e, 0);
    emit_passed(e);
    emit_args(e, &a, sizeof a);
}

const struct layer_family layers_rwkv7 = {
    {RULE_SHIFT_MATMULS, RULE_LOW_TIME_MIX, RULE_MATMUL_ADD, RULE_SHIFT_MATMULS, RULE_MATMUL_ADD},
    GROUPS,
    layer_of,
    emit_run};
