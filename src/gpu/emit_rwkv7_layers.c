/* Layers of RWKV-7 as one launch (native/rwkv7.cu). */
#include "gpu/emit_layers.h"

/* A layer's groups. */
enum { MIX, LOW, OUT, KEY, VALUE, GROUPS };

static bool take_part(const struct emit *e, const struct group *g, struct operand y,
                      enum encoding enc, u32 chunk, u32 n, struct layers_part *to)
{
    const struct op *mul = group_maker(g, y), *act = NULL, *lerp;
    if (mul && mul->kind == OP_ACT) act = mul, mul = group_maker(g, act->in[0]);
    if (!mul || mul->kind != OP_MATMUL || mul->in[0].width != n || mul->w[1] != NO_WEIGHT ||
        emit_planes(e, mul->w[0]).enc != enc)
        return false;
    lerp = group_maker(g, mul->in[0]);
    *to = (struct layers_part){.enc = enc,
                               .n_out = mul->out[0].width,
                               .m = emit_lerp_unit(e, lerp),
                               .f = act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE};
    return layers_matrix(e, mul->w[0], chunk, &to->q, &to->s);
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
        if (!take_part(e, &g[MIX], m->in[wide[i]], l->enc, l->chunk, a->n, &a->part[i]) ||
            a->part[i].n_out != a->n || a->part[i].f != COLUMNS_NONE)
            return false;
    for (u32 i = 0; i < LAYERS_LOW; i++) {
        const struct op *mul = group_maker(&g[LOW], m->in[low[i]]), *act = NULL;
        if (mul->kind == OP_ACT) act = mul, mul = group_maker(&g[LOW], act->in[0]);
        struct planes p = emit_planes(e, mul->w[0]);
        struct operand x = mul->in[0];
        enum encoding from = enc_of(e, &g[MIX], x);
        if (!is_short(p.enc) || x.width % 8 || p.q_row > (i == 2 ? 64 : 32) || !is_short(from) ||
            !take_part(e, &g[MIX], x, from, l->chunk, a->n, &a->part[3 + i]) ||
            e->places[mul->w[0]].chunk != l->chunk)
            return false;
        a->low[i] =
            (struct layers_low){p.enc, x.width, emit_unit(e, mul->w[0]), emit_unit(e, mul->w[1]),
                                act ? emit_act(act->p.act.kind) : (u32)COLUMNS_NONE};
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

/* The norm of a mix and where its shift keeps its state, in 16 bytes. */
static bool take_norm(const struct emit *e, const struct group *g, u32 chunk, float *eps, u32 *w,
                      u32 *b, u32 *shift)
{
    const struct op *norm = group_op(g, OP_NORM, 0);
    u64 n;
    *eps = norm->p.norm.eps;
    *shift =
        (u32)(emit_state_at(e->p->net, e->limits, group_op(g, OP_TOKEN_SHIFT, 0)->p.rec.state, &n) /
              16);
    return emit_mixes_fit(e, g) && norm->p.norm.kind == NORM_LAYER &&
           layers_vector(e, norm->w[0], chunk, w) && layers_vector(e, norm->w[1], chunk, b);
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
    u64 at = emit_state_at(e->p->net, e->limits, m.wkv->p.rec.state, &out->n_memory);
    *a = (struct layers_args){.n = sum.mul->in[0].width,
                              .n_between = value.mul->in[0].width,
                              .n_heads = m.args.n_heads,
                              .v_first = emit_place(e, m.in[IN_FIRST]),
                              .l2_eps = m.args.l2_eps,
                              .head_eps = m.args.norm_eps,
                              .state = (u32)(at / 16)};
    const u32 vectors[] = {m.k_k->w[0], m.k_a->w[0], m.bonus->w[0], m.norm->w[0], m.norm->w[1]};
    for (u32 i = 0; i < ARRAY_LEN(vectors); i++)
        if (!layers_vector(e, vectors[i], out->chunk, &a->vector[i])) return false;
    for (u32 i = 0; i < 2; i++)
        if (!take_norm(e, &g[i ? KEY : MIX], out->chunk, &a->eps[i], &a->norm_w[i], &a->norm_b[i],
                       &a->shift[i]))
            return false;
    struct operand x = group_op(&g[MIX], OP_NORM, 0)->in[0];
    struct operand middle = group_op(&g[KEY], OP_NORM, 0)->in[0];
    if ((out->enc != ENC_I8 && out->enc != ENC_K4) || !take_parts(e, g, &m, out, a) ||
        !take_part(e, &g[KEY], value.mul->in[0], out->enc, out->chunk, a->n, &key) ||
        key.f != COLUMNS_RELU2 || emit_planes(e, value.mul->w[0]).enc != out->enc ||
        !layers_matrix(e, sum.mul->w[0], out->chunk, &a->q[0], &a->s[0]) ||
        !layers_matrix(e, value.mul->w[0], out->chunk, &a->q[2], &a->s[2]))
        return false;
    a->m = key.m, a->q[1] = key.q, a->s[1] = key.s;
    out->place = a->q[0];
    out->memory = at;
    out->x = emit_place(e, x);
    out->y = emit_place(e, value.y);
    return !group_op(&g[MIX], OP_MATMUL, LAYERS_PARTS) && !group_op(&g[KEY], OP_MATMUL, 1) &&
           operand_same(sum.mul->in[0], m.out) && operand_same(sum.added, x) &&
           operand_same(sum.y, middle) && operand_same(value.added, middle) &&
           sum.y.width == a->n && value.y.width == a->n && fits(e, out);
}

static void advance(struct layer *l, u32 stride, u32 state_stride)
{
    struct layers_args *a = &l->a.rwkv7;
    u32 *weights[] = {&a->norm_w[0], &a->norm_w[1], &a->norm_b[0], &a->norm_b[1], &a->m};
    for (u32 i = 0; i < ARRAY_LEN(weights); i++) *weights[i] += stride;
    for (u32 i = 0; i < ARRAY_LEN(a->vector); i++) a->vector[i] += stride;
    for (u32 i = 0; i < LAYERS_PARTS; i++) {
        a->part[i].q += stride, a->part[i].m += stride;
        if (a->part[i].s) a->part[i].s += stride;
    }
    for (u32 i = 0; i < LAYERS_LOW; i++) {
        a->low[i].q += stride;
        if (a->low[i].bias != (u32)MIX_NOTHING) a->low[i].bias += stride;
    }
    for (u32 i = 0; i < 3; i++) a->q[i] += stride, a->s[i] += stride;
    a->shift[0] += state_stride, a->shift[1] += state_stride, a->state += state_stride;
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
    advance,
    emit_run};
