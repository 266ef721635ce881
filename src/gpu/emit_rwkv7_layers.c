/* Layers of RWKV-7 as one launch (native/rwkv7.cu). */
#include <string.h>

#include "gpu/emit_layers.h"

enum { LAUNCHES = 5 }; /* of a layer: mix, low mix, matmul, mix, matmul */

/* The arguments and bindings of a layer's launches. */
struct five {
    struct mix_args mix, key;
    struct low_mix_args low;
    struct matmul_args out, value;
    const struct launch *l;
};

static bool read_five(const struct launch *l, enum encoding *enc, struct five *f)
{
    static const struct {
        const char *mix, *matmul;
        enum encoding enc;
    } known[] = {{"k_mix_i8", "k_matmul_i8", ENC_I8}, {"k_mix_k4", "k_matmul_k4", ENC_K4}};
    for (u32 i = 0; i < ARRAY_LEN(known); i++) {
        size_t n = strlen(known[i].matmul);
        if (strcmp(l[0].kernel, known[i].mix) || strcmp(l[1].kernel, "k_low_mix_64") ||
            strncmp(l[2].kernel, known[i].matmul, n) || strcmp(l[3].kernel, known[i].mix) ||
            strncmp(l[4].kernel, known[i].matmul, n))
            continue;
        f->l = l;
        memcpy(&f->mix, l[0].args, sizeof f->mix);
        memcpy(&f->low, l[1].args, sizeof f->low);
        memcpy(&f->out, l[2].args, sizeof f->out);
        memcpy(&f->key, l[3].args, sizeof f->key);
        memcpy(&f->value, l[4].args, sizeof f->value);
        *enc = known[i].enc;
        return true;
    }
    return false;
}

/* Is it a product of one matrix, added to one row, of the launch's kernel? */
static bool is_plain(const struct matmul_args *a)
{
    return a->norm == NORM_KIND_NONE && a->part[1].n_out == 0 && a->part[2].n_out == 0 &&
           !a->part[0].has_bias && a->add_pitch[0] && !a->add_pitch[1];
}

/* The part of the mix that makes what lies at `place`. */
static const struct mix_part *maker(const struct mix_args *a, u32 place)
{
    for (u32 i = 0; i < a->n_parts; i++)
        if (a->part[i].y == place) return &a->part[i];
    return NULL;
}

static bool take_part(struct layers_part *to, const struct mix_part *p, enum encoding enc, u32 n,
                      u32 n_out)
{
    if (!p || p->enc != enc || p->n_in != n || p->n_out != n_out || p->m == (u32)MIX_NOTHING ||
        p->bias != (u32)MIX_NOTHING || p->q2 != (u32)MIX_NOTHING)
        return false;
    *to = (struct layers_part){
        .enc = enc, .n_out = n_out, .q = p->q, .s = p->s, .m = p->m, .f = p->f};
    return true;
}

/* An encoding that low-rank matrices have. */
static bool is_short(u32 enc)
{
    return enc == ENC_F16 || enc == ENC_F32;
}

/* r, k, v, the middles and what is made of them. */
static bool take_parts(const struct five *f, enum encoding enc, struct layers_args *a)
{
    const u32 wide[] = {f->low.r, f->low.k, f->low.v};
    const u32 makes[] = {f->low.w, f->low.a, f->low.g, f->low.m};
    u32 ranks = 0, units = 0;
    if (f->mix.n_parts != LAYERS_PARTS || f->low.n_parts != LAYERS_LOW) return false;
    for (u32 i = 0; i < 3; i++)
        if (!take_part(&a->part[i], maker(&f->mix, wide[i]), enc, a->n, a->n) ||
            a->part[i].f != COLUMNS_NONE)
            return false;
    for (u32 i = 0; i < LAYERS_LOW; i++) {
        if (makes[i] >= LAYERS_LOW) return false;
        const struct low_part *p = &f->low.part[makes[i]];
        const struct mix_part *from = maker(&f->mix, p->x);
        if (!is_short(p->enc) || p->n_in % 8 || p->n_units > (i == 2 ? 64 : 32) || !from ||
            !is_short(from->enc) || !take_part(&a->part[3 + i], from, from->enc, a->n, p->n_in))
            return false;
        a->low[i] = (struct layers_low){p->enc, p->n_in, p->q, p->bias, p->f};
        ranks += p->n_in;
        units += p->n_units;
    }
    return ranks <= LAYERS_MAX_RANKS && units <= LAYERS_LOW_UNITS;
}

/* Does each launch read what the one before it made, and the residual stream? */
static bool is_chain(const struct five *f, const struct layer *l)
{
    u32 middle = layers_float_at(&f->l[2].bufs[9]);
    return layers_float_at(&f->l[2].bufs[3]) == f->low.y &&
           layers_float_at(&f->l[2].bufs[4]) == l->x && f->key.part[0].x == middle &&
           layers_float_at(&f->l[4].bufs[4]) == middle &&
           layers_float_at(&f->l[4].bufs[3]) == f->key.part[0].y;
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
    u32 units = e->kind.n_units, simds = LAYERS_SIMDS(nibbles);
    return a->n % 256 == 0 && a->n >= LAYERS_LEAST && a->n <= LAYERS_MAX(nibbles) &&
           a->n_between % 256 == 0 && a->n_between <= 4 * a->n && a->n_between >= units &&
           a->n_heads <= units && (a->n + units - 1) / units <= simds &&
           deal_groups(a, units, simds) <= units;
}

/* Are these five launches a layer? */
static bool layer_of(const struct emit *e, const struct launch *l, struct layer *out)
{
    struct five f;
    struct layers_args *a = &out->a.rwkv7;
    if (!read_five(l, &out->enc, &f) || !is_plain(&f.out) || !is_plain(&f.value)) return false;
    out->chunk = l[0].bufs[2].weight;
    out->x = f.mix.part[0].x;
    out->y = layers_float_at(&l[4].bufs[9]);
    out->memory = l[1].bufs[9].offset;
    *a = (struct layers_args){
        .n = f.out.n_in,
        .n_between = f.value.n_in,
        .n_heads = f.low.mix.n_heads,
        .v_first = f.low.first,
        .eps = {f.mix.eps, f.key.eps},
        .l2_eps = f.low.mix.l2_eps,
        .head_eps = f.low.mix.norm_eps,
        .norm_w = {f.mix.norm_w, f.key.norm_w},
        .norm_b = {f.mix.norm_b, f.key.norm_b},
        .shift = {(u32)(l[0].bufs[4].offset / 16), (u32)(l[3].bufs[4].offset / 16)},
        .state = (u32)(l[1].bufs[9].offset / 16)};
    static const u32 vectors[] = {4, 5, 8, 6, 7}; /* among the low mix's bindings */
    for (u32 i = 0; i < ARRAY_LEN(vectors); i++)
        if (!layers_weight_at(e, &l[1].bufs[vectors[i]], out->chunk, &a->vector[i])) return false;
    struct layers_part key;
    if (!take_parts(&f, out->enc, a) || f.key.n_parts != 1 || !is_chain(&f, out) ||
        !take_part(&key, &f.key.part[0], out->enc, a->n, a->n_between))
        return false;
    const struct binding *weights[] = {&l[2].bufs[6], &l[4].bufs[6]};
    for (u32 i = 0; i < 2; i++)
        if (!layers_weight_at(e, weights[i], out->chunk, &a->q[2 * i]) ||
            !layers_weight_at(e, weights[i] + 1, out->chunk, &a->s[2 * i]))
            return false;
    a->m = key.m, a->q[1] = key.q, a->s[1] = key.s;
    out->place = a->q[0];
    for (u32 i = 0; i < 2; i++)
        if (a->norm_w[i] == (u32)MIX_NOTHING || a->norm_b[i] == (u32)MIX_NOTHING) return false;
    return f.mix.norm == NORM_KIND_LAYER && f.key.norm == NORM_KIND_LAYER &&
           key.f == COLUMNS_RELU2 && f.low.mix.m_pitch && f.low.mix.g_pitch && f.low.mix.has_norm &&
           f.out.part[0].n_out == a->n && f.value.part[0].n_out == a->n &&
           l[1].bufs[2].weight == out->chunk && l[3].bufs[2].weight == out->chunk && fits(e, out);
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

/* States of these must be kept last: then k_keep does not keep them. */
static bool merge(struct emit *e, const struct layer_run *r, u32 first)
{
    const struct binding *kept = &e->list[first].bufs[5];
    if (e->n_kept < 2 * r->n ||
        e->list[first + r->n * LAUNCHES - 2].bufs[5].offset + kept->n != e->n_kept * kept->n)
        return false;
    const struct layer *l = &r->first;
    struct layers_args a = l->a.rwkv7;
    bool nibbles = encoding_has_nibbles(l->enc);
    u32 units = e->kind.n_units, simds = LAYERS_SIMDS(nibbles);
    a.n_layers = r->n, a.stride = r->stride, a.state_stride = r->memory_stride;
    a.x = l->x, a.y = l->y;
    e->n_kept -= 2 * r->n;
    e->passed =
        (LAYERS_HEADER + 6u * a.n + LAYERS_MAX_RANKS) * sizeof(u64) + a.n_between * sizeof(float);
    emit_launch(e, nibbles ? "k_rwkv7_k4" : "k_rwkv7_i8", units, 1, simds * 32 + LAYERS_HELPERS);
    emit_groups(e, units, LAYERS_BYTES);
    emit_step(e, STEP_ROWS);
    emit_chunk(e, l->chunk);
    emit_all(e);
    emit_states(e);
    emit_passed(e);
    emit_args(e, &a, sizeof a);
    return true;
}

const struct layer_family layers_rwkv7 = {LAUNCHES, layer_of, advance, merge};
