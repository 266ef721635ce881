/* What families of layers that can be one launch tell emit_layers.c, and what they are read with.
 */
#ifndef FLETCH_EMIT_LAYERS_H
#define FLETCH_EMIT_LAYERS_H

#include "gpu/emit.h"
#include "gpu/rules.h"

/* One layer, read from its groups. */
struct layer {
    u32 x, y;  /* the residual stream before and behind it, in floats of the activations */
    u32 place; /* one of its weights', in 16 bytes of the chunk */
    u32 base, memory_base; /* what places of weights, and of states, are counted from in `a` */
    u64 memory;            /* bytes before its state, or cache, */
    u64 n_memory;          /* and of it */
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

enum { LAYER_MAX_GROUPS = 7 };
struct layer_family {
    enum gpu_rule rules[LAYER_MAX_GROUPS]; /* of a layer's groups */
    u32 n_groups;
    /* Are these groups a layer that the family's kernel can do? out has bases, and is all zeros. */
    bool (*read)(const struct emit *e, const struct group *g, struct layer *out);
    void (*emit)(struct emit *e, const struct layer_run *r); /* the launch */
};
extern const struct layer_family layers_rwkv7, layers_mla;

/* Where a weight lies in 16 bytes of the layer's chunk, and its second plane; false: in another
 * chunk, or there is none. */
bool layers_vector(const struct emit *e, const struct layer *l, u32 id, u32 *at);
bool layers_matrix(const struct emit *e, const struct layer *l, u32 id, u32 *q, u32 *s);
/* A product of one matrix without bias to which one value is added. */
struct layer_sum {
    const struct op *mul;
    struct operand added, y;
};
bool layers_sum(const struct group *g, struct layer_sum *out);

/* What a group for time mixing reads: r, w, k, v, a, first, m, g; missing ones are v. */
enum mixer_input { IN_R, IN_W, IN_K, IN_V, IN_A, IN_FIRST, IN_M, IN_G, IN_COUNT };
struct mixer {
    const struct op *lerp, *k_k, *l2, *k_a, *wkv, *norm, *bonus, *gate;
    struct operand in[IN_COUNT], out;
    u32 head;
    struct time_mix_args args;
};

/* Does one launch, or for attention one and another for v_b, do all of a group for one row? */
bool emit_mixes_fit(const struct emit *e, const struct group *g);
bool emit_low_mix_fits(const struct emit *e, const struct group *g, struct mixer *m);
bool emit_mla_query_fits(const struct emit *e, const struct group *g);
bool emit_mla_fits(const struct emit *e, const struct group *g);
bool emit_experts_glu_fits(const struct emit *e, const struct group *g);
bool emit_experts_sum_is_small(const struct emit *e, const struct group *g);
/* What their launches are told. */
struct mla_args emit_mla_args(const struct emit *e, const struct group *g);
struct route_args emit_route_args(const struct emit *e, const struct op *op);
u32 emit_lerp_unit(const struct emit *e, const struct op *lerp); /* its row's, in 16 bytes */

#endif
