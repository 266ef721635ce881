/* Layers that are alike, as one launch for one row: found by their groups, as many to a layer as
 * its family has. */
#include "gpu/emit_layers.h"

#include <string.h>

bool layers_vector(const struct emit *e, const struct layer *l, u32 id, u32 *at)
{
    *at = emit_unit(e, id) - l->base;
    return id != NO_WEIGHT && e->places[id].chunk == l->chunk;
}

bool layers_matrix(const struct emit *e, const struct layer *l, u32 id, u32 *q, u32 *s)
{
    *s = emit_scales_unit(e, id) - l->base;
    return layers_vector(e, l, id, q);
}

bool layers_sum(const struct group *g, struct layer_sum *out)
{
    const struct op *mul = group_op(g, OP_MATMUL, 0), *add = group_last(g);
    *out = (struct layer_sum){mul, add->in[add->in[0].buf == mul->out[0].buf], add->out[0]};
    return g->n_ops == 2 && mul->w[1] == NO_WEIGHT;
}

/* With places as they are, and counted from the layer's own weight and state: so layers that are
 * alike have the same arguments. */
static bool read_layer(const struct emit *e, const struct layer_family *f, u32 first, u32 end,
                       struct layer *out, struct layer *counted)
{
    const struct group *g = &e->p->groups[first];
    *out = (struct layer){0};
    if (first + f->n_groups > end) return false;
    for (u32 i = 0; i < f->n_groups; i++)
        if (g[i].rule != &gpu_rules[f->rules[i]]) return false;
    if (!f->read(e, g, out)) return false;
    *counted = (struct layer){.base = out->place, .memory_base = (u32)(out->memory / 16)};
    return f->read(e, g, counted);
}

/* The layers from group `first` on that are alike, each behind the one before it. */
static void find_run(const struct emit *e, const struct layer_family *f, u32 first, u32 end,
                     struct layer_run *r)
{
    struct layer at, next, like, counted;
    *r = (struct layer_run){0};
    if (!read_layer(e, f, first, end, &r->first, &like)) return;
    for (at = r->first, r->n = 1;
         read_layer(e, f, first + r->n * f->n_groups, end, &next, &counted); r->n++) {
        if (r->n == 1) {
            r->stride = next.place - at.place;
            r->memory_stride = (u32)((next.memory - at.memory) / 16);
        }
        if (next.x != at.y || next.place != at.place + r->stride ||
            next.memory != at.memory + 16ull * r->memory_stride || next.n_memory != at.n_memory ||
            next.chunk != at.chunk || next.enc != at.enc ||
            memcmp(&counted.a, &like.a, sizeof like.a))
            break;
        at = next;
        r->first.y = next.y;
    }
}

/* Does nobody outside read what they make, but the last one's output? */
static bool is_alone(const struct emit *e, u32 begin, u32 end)
{
    u32 out = group_last(&e->p->groups[end - 1])->out[0].buf;
    for (u32 i = 0; i < e->p->n_bufs; i++) {
        const struct buffer *b = &e->p->bufs[i];
        if (i != out && b->first >= begin && b->first < end && (b->kept || b->last >= end))
            return false;
    }
    return true;
}

u32 emit_layers(struct emit *e, u32 end)
{
    static const struct layer_family *const families[] = {&layers_rwkv7, &layers_mla};
    struct layer_run r;
    if (!e->kind.resident || e->kind.n_d != 1 || e->kind.n_p || !e->kind.caps.n_units || e->passed)
        return 0;
    for (u32 i = 0; i < ARRAY_LEN(families); i++) {
        find_run(e, families[i], e->of, end, &r);
        u32 n = r.n * families[i]->n_groups;
        if (r.n < 2 || !is_alone(e, e->of, e->of + n)) continue;
        families[i]->emit(e, &r);
        return n;
    }
    return 0;
}
