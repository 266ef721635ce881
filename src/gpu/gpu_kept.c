#include "gpu/gpu_kept.h"

#include <stdlib.h>
#include <string.h>

enum { EDIT_GROUPS = 64 };

/* A buffer ends where the next one begins. */
static int alloc_bufs(struct kept *k, const struct gpu_driver *d, struct gpu *g, u64 n_bytes,
                      struct err *err)
{
    int rc = 0;
    for (u32 i = k->n_stretches; i-- > 0;) {
        struct kept_buf *b = &k->bufs[k->stretches[i].buf];
        b->begin = k->stretches[i].at;
        b->first = i;
    }
    for (u32 i = 0; i < k->n_bufs && !rc; i++) {
        u64 end = i + 1 < k->n_bufs ? k->bufs[i + 1].begin : n_bytes;
        rc = d->alloc(g, &k->bufs[i].buf, end - k->bufs[i].begin, GPU_DEVICE, err);
    }
    return rc;
}

/* Each stretch in its buffer: first unit and units of an item, in 16 bytes. */
static int write_layers(const struct kept *k, const struct gpu_driver *d, struct gpu *g,
                        u64 n_items, struct err *err)
{
    u32 *layers = calloc(2 * (size_t)k->n_stretches + 1, sizeof *layers);
    int rc = layers ? 0 : err_nomem(err, "the executor");
    for (u32 i = 0; i < k->n_stretches && !rc; i++) {
        const struct stretch *s = &k->stretches[i];
        u64 at = kept_ref(k, s->at).offset;
        if (s->item % 16 || at / 16 > UINT32_MAX || s->item * n_items > UINT32_MAX * 2ull)
            rc = err_set(err, FLETCH_E_LIMIT,
                         "a layer of the %s is too large for kernels to address",
                         k->blocks ? "cache" : "state");
        layers[2 * i] = (u32)(at / 16);
        layers[2 * i + 1] = (u32)(s->item / 16);
    }
    if (!rc && k->n_stretches) rc = d->write(g, k->layers, 0, layers, k->n_stretches * 8ull, err);
    free(layers);
    return rc;
}

int kept_open(struct kept *k, const struct gpu_driver *d, struct gpu *g, const struct net *net,
              const struct exec_limits *limits, bool blocks, struct err *err)
{
    u32 n = gpu_stretches(net, limits, blocks, NULL, &k->n_bufs);
    k->blocks = blocks;
    k->n_stretches = n;
    k->stretches = calloc(n + 1, sizeof *k->stretches);
    k->bufs = calloc(k->n_bufs, sizeof *k->bufs);
    if (!k->stretches || !k->bufs) return err_nomem(err, "the executor");
    gpu_stretches(net, limits, blocks, k->stretches, &k->n_bufs);
    int rc = alloc_bufs(k, d, g, gpu_kept_bytes(net, limits, blocks), err);
    if (!rc) rc = d->alloc(g, &k->layers, gpu_layers_bytes(n), GPU_DEVICE, err);
    return rc ? rc : write_layers(k, d, g, blocks ? limits->n_blocks : limits->n_slots, err);
}

void kept_close(struct kept *k, const struct gpu_driver *d, struct gpu *g)
{
    for (u32 i = 0; k->bufs && i < k->n_bufs; i++)
        if (k->bufs[i].buf) d->free(g, k->bufs[i].buf);
    if (k->layers) d->free(g, k->layers);
    free(k->stretches);
    free(k->bufs);
    *k = (struct kept){0};
}

struct gpu_ref kept_ref(const struct kept *k, u64 at)
{
    u32 i = k->n_bufs - 1;
    while (i > 0 && k->bufs[i].begin > at) i--;
    return (struct gpu_ref){k->bufs[i].buf, at - k->bufs[i].begin};
}

u32 kept_edits(const struct kept *k, struct gpu_buf *edits, u32 kernel, struct gpu_command *c)
{
    struct edit_args a = {.blocks = k->blocks};
    for (u32 i = 0; i < k->n_bufs && k->n_stretches; i++) {
        u32 first = k->bufs[i].first;
        u32 end = i + 1 < k->n_bufs ? k->bufs[i + 1].first : k->n_stretches;
        c[i] = (struct gpu_command){
            .kind = GPU_LAUNCH,
            .after = i == 0, /* each writes its own buffer */
            .kernel = kernel,
            .groups = {EDIT_GROUPS, end - first, 1},
            .threads = EDIT_THREADS,
            .n_bufs = 3,
            .bufs = {{edits, 0}, {k->layers, first * 8ull}, {k->bufs[i].buf, 0}},
            .n_args = sizeof a};
        memcpy(c[i].args, &a, sizeof a);
    }
    return k->n_stretches ? k->n_bufs : 0;
}

int kept_move(const struct kept *k, const struct gpu_driver *d, struct gpu *g, u32 index, u8 *dst,
              const u8 *src, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; !rc && i < k->n_stretches; i++) {
        u64 n = k->stretches[i].item;
        struct gpu_ref at = kept_ref(k, k->stretches[i].at + index * n);
        rc = dst ? d->read(g, at.buf, at.offset, dst, n, err)
                 : d->write(g, at.buf, at.offset, src, n, err);
        if (dst)
            dst += n;
        else
            src += n;
    }
    return rc;
}
