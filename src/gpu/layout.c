#include "gpu/layout.h"

#include <stdlib.h>
#include <string.h>

static const u32 values[LAYOUT_AXES][8] = {
    [LAYOUT_THREADS] = {64, 128, 256, 384, 512},
    [LAYOUT_GROUPS] = {2, 4, 6, 8, 12, 16},
    [LAYOUT_COLUMNS] = {2, 4, 8},
    [LAYOUT_OUTPUTS] = {1, 2, 4, 8},
    [LAYOUT_QUADS] = {1, 2, 4},
};

const char *layout_kernels(void)
{
    return GPU_FINGERPRINT;
}

u32 layout_value(enum layout_axis axis, u32 i)
{
    return i < ARRAY_LEN(values[axis]) ? values[axis][i] : 0;
}

static bool possible(const struct choice *c, enum layout_axis axis, u32 v)
{
    if (v == c->usual.v[axis]) return true;
    if (v < c->least.v[axis] || v > c->most.v[axis]) return false;
    for (u32 i = 0; layout_value(axis, i); i++)
        if (layout_value(axis, i) == v) return true;
    return false;
}

bool layout_possible(const struct choice *c, const struct layout *l)
{
    for (u32 i = 0; i < LAYOUT_AXES; i++)
        if (!possible(c, i, l->v[i])) return false;
    return true;
}

void layouts_close(struct layouts *t)
{
    free(t->p);
    *t = (struct layouts){0};
}

bool site_is(const struct site *a, const struct site *b)
{
    return strcmp(a->kernel, b->kernel) == 0 && a->rows == b->rows && a->n_out == b->n_out &&
           a->n_in == b->n_in && a->n_slices == b->n_slices && a->normed == b->normed;
}

static struct laid_out *find(const struct layouts *t, const struct site *site)
{
    for (u32 i = 0; t && i < t->n; i++)
        if (site_is(&t->p[i].site, site)) return &t->p[i];
    return NULL;
}

const struct layout *layouts_find(const struct layouts *t, const struct site *site)
{
    const struct laid_out *l = find(t, site);
    return l ? &l->layout : NULL;
}

int layouts_set(struct layouts *t, const struct site *site, const struct layout *layout,
                struct err *err)
{
    struct laid_out *l = find(t, site);
    if (!l && t->n == LAYOUTS_MAX)
        return err_set(err, FLETCH_E_LIMIT, "more than %d layouts", LAYOUTS_MAX);
    if (!l && t->n == t->cap) {
        u32 cap = t->cap ? 2 * t->cap : 16;
        struct laid_out *p = realloc(t->p, cap * sizeof *p);
        if (!p) return err_nomem(err, "the layouts");
        t->p = p;
        t->cap = cap;
    }
    if (!l) l = &t->p[t->n++];
    *l = (struct laid_out){*site, *layout};
    return 0;
}

void layouts_remove(struct layouts *t, const struct site *site)
{
    struct laid_out *l = find(t, site);
    if (l) *l = t->p[--t->n];
}
