/* What families of layers that can be one launch tell emit_layers.c. */
#ifndef FLETCH_EMIT_LAYERS_H
#define FLETCH_EMIT_LAYERS_H

#include "gpu/emit.h"

/* One layer, read from its launches. */
struct layer {
    u32 x, y;     /* the residual stream before and behind it, in floats of the activations */
    u32 place;    /* one of its weights', in 16 bytes of the chunk */
    u64 memory;   /* bytes before its state, or cache, */
    u64 n_memory; /* and of it */
    u32 chunk;
    enum encoding enc;
    union { /* the launch's arguments, without what stands above and how many there are */
        struct layers_args rwkv7;
        struct mla_layers_args mla;
    } a;
};

/* Several that are alike. */
struct layer_run {
    struct layer first; /* y: the last one's */
    u32 n, stride;      /* strides from one to the next, in 16 bytes: of weights, */
    u32 memory_stride;  /* of states or caches */
};

struct layer_family {
    u32 n_launches; /* of a layer */
    /* Are these launches a layer that the family's kernel can do? out is all zeros. */
    bool (*read)(const struct emit *e, const struct launch *l, struct layer *out);
    /* What is at places that differ from layer to layer: to those of the next. */
    void (*advance)(struct layer *l, u32 stride, u32 memory_stride);
    /* May these, whose launches begin at `first`, be one launch? Then it emits that. */
    bool (*merge)(struct emit *e, const struct layer_run *r, u32 first);
};
extern const struct layer_family layers_rwkv7, layers_mla;

/* Where a binding of activations begins, in floats, or MIX_NOTHING. */
u32 layers_float_at(const struct binding *b);
/* And one of a weight, in 16 bytes of its chunk; false: it lies in another one. */
bool layers_weight_at(const struct emit *e, const struct binding *b, u32 chunk, u32 *at);

#endif
