/* Layers that are alike, as one launch: found among the launches of one row, as many to a layer as
 * its family has, and put in their place. All that it needs stands in their arguments. */
#include "gpu/emit_layers.h"

#include <string.h>

u32 layers_float_at(const struct binding *b)
{
    return b->space == SPACE_T ? (u32)(b->offset / sizeof(float)) : (u32)MIX_NOTHING;
}

bool layers_weight_at(const struct emit *e, const struct binding *b, u32 chunk, u32 *at)
{
    struct planes p;
    if (b->space != SPACE_WEIGHT || e->places[b->weight].chunk != chunk) return false;
    planes_plan(&p, &e->p->net->weights[b->weight]);
    *at = (u32)((e->places[b->weight].at + (b->plane ? p.bytes[0] : 0) + b->offset) / 16);
    return true;
}

static bool read_layer(const struct emit *e, const struct layer_family *f, u32 first,
                       struct layer *out)
{
    memset(out, 0, sizeof *out);
    return first + f->n_launches <= e->n && f->read(e, &e->list[first], out);
}

/* Is b the layer behind a? */
static bool follows(const struct layer_family *f, const struct layer_run *r, const struct layer *a,
                    const struct layer *b)
{
    struct layer want = *a;
    f->advance(&want, r->stride, r->memory_stride);
    return b->x == a->y && b->place == a->place + r->stride &&
           b->memory == a->memory + 16ull * r->memory_stride && b->n_memory == a->n_memory &&
           b->chunk == a->chunk && b->enc == a->enc && !memcmp(&want.a, &b->a, sizeof want.a);
}

/* The layers from launch `first` on that are alike. */
static void find_run(const struct emit *e, const struct layer_family *f, u32 first,
                     struct layer_run *r)
{
    struct layer at, next;
    *r = (struct layer_run){0};
    if (!read_layer(e, f, first, &r->first)) return;
    for (at = r->first, r->n = 1; read_layer(e, f, first + r->n * f->n_launches, &next); r->n++) {
        if (r->n == 1) {
            r->stride = next.place - at.place;
            r->memory_stride = (u32)((next.memory - at.memory) / 16);
        }
        if (!follows(f, r, &at, &next)) break;
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

/* Puts the last launch in the place of [begin, end). Whatever is behind them waits for it: others
 * than the last of them may have used the memory that it writes. */
static void put_last(struct emit *e, u32 begin, u32 end)
{
    e->list[begin] = e->list[e->n - 1];
    e->list[begin].after = true;
    memmove(&e->list[begin + 1], &e->list[end], (e->n - 1 - end) * sizeof *e->list);
    e->n -= end - begin;
    if (begin + 1 < e->n) e->list[begin + 1].after = true;
    e->barrier = MIN(e->barrier, e->n);
}

static void merge(struct emit *e, const struct layer_family *f)
{
    struct layer_run r = {0};
    u32 first = 0, of = e->of;
    for (; first < e->n; first++) {
        find_run(e, f, first, &r);
        if (r.n > 1) break;
    }
    u32 end = first + r.n * f->n_launches;
    if (first == e->n || !is_alone(e, e->list[first].of, e->list[end - 1].of + 1)) return;
    e->of = e->list[first].of;
    bool merged = f->merge(e, &r, first);
    e->of = of;
    if (merged && !e->rc) put_last(e, first, end);
}

void emit_layers(struct emit *e)
{
    if (e->rc || !e->kind.resident || e->kind.n_d != 1 || e->kind.n_p || !e->kind.n_units) return;
    merge(e, &layers_rwkv7);
    merge(e, &layers_mla);
}
