#include "gpu/rules.h"

/* From the norm through attention; the heads of q and k may be normed. */
#define PATTERN_NORM_QKV_ATTENTION                                                                 \
    PATTERN("norm+qkv+rope+kv_store+attention", "y", [QKV_ATTENTION] = ROLE(ATTENTION, "ct", "y"), \
            [QKV_STORE] = ROLE(KV_STORE, "dv", "t"), [QKV_Q_ROPE] = ROLE(ROPE, "a", "c"),          \
            [QKV_K_ROPE] = ROLE(ROPE, "b", "d"), [QKV_Q_NORM] = ROLE_HEAD_NORM("q", "a", 'q'),     \
            [QKV_K_NORM] = ROLE_HEAD_NORM("k", "b", 'k'), [QKV_Q] = ROLE(MATMUL, "h", "q"),        \
            [QKV_K] = ROLE(MATMUL, "h", "k"), [QKV_V] = ROLE(MATMUL, "h", "v"),                    \
            [QKV_NORM] = ROLE(NORM, "x", "h"))

#define PATTERN_MLA_QUERY                                                                   \
    PATTERN("norm+matmul+matmul_heads", "qy", ROLE(NORM, "x", "h"), ROLE(MATMUL, "h", "q"), \
            ROLE(MATMUL_HEADS, "q", "y"))

/* The cached row is the normed latent and the rotated key; queries bring columns of their own. */
#define PATTERN_MLA_ATTENTION                                                          \
    PATTERN("rope+norm+rope+kv_store+latent_attention+matmul_heads",                   \
            "By", [MLA_ATTENTION] = ROLE(LATENT_ATTENTION, "Bt", "z"),                 \
            [MLA_STORE] = ROLE(KV_STORE, "L", "t"), [MLA_NORM] = ROLE(NORM, "c", "L"), \
            [MLA_K_ROPE] = ROLE(ROPE, "k", "L"), [MLA_Q_ROPE] = ROLE(ROPE, "q", "B"),  \
            [MLA_V_B] = ROLE(MATMUL_HEADS, "z", "y"))

#define PATTERN_SHIFT_MATMULS                                                              \
    {                                                                                      \
        .name = "norm+token_shift+lerp+matmul+act", .out = "", .gathers = true, .roles = { \
            ROLE(NORM, "x", "h"),                                                          \
            ROLE(TOKEN_SHIFT, "ht", "pt")                                                  \
        }                                                                                  \
    }

/* Each of w, a, m and g may be a product, with an act or not. */
#define PATTERN_LOW_TIME_MIX                                                                \
    PATTERN("matmul+act+wkv7+head+tail", "s", ROLES_TIME_MIX, ROLE_OPT(ACT, "W", "w", 'W'), \
            ROLE_OPT(MATMUL, "d", "W", '-'), ROLE_OPT(ACT, "A", "a", 'A'),                  \
            ROLE_OPT(MATMUL, "e", "A", '-'), ROLE_OPT(ACT, "M", "m", 'M'),                  \
            ROLE_OPT(MATMUL, "h", "M", '-'), ROLE_OPT(ACT, "G", "g", 'G'),                  \
            ROLE_OPT(MATMUL, "i", "G", '-'))

/* The matmul that a route reads, and others of the same norm may be left out. */
#define ROLES_ROUTER                                                                \
    [ROUTER_NORM] = ROLE(NORM, "x", "h"), [ROUTER_MATMUL] = ROLE(MATMUL, "h", "z"), \
    [ROUTER_READER] = {OP_ROUTE, "z", "iw", '!', UINT64_MAX}

#define PATTERN_NORM_ROUTER_GLU                                                     \
    PATTERN("norm+router+gate+up+glu", "hzy", ROLES_ROUTER, ROLE(MATMUL, "h", "g"), \
            ROLE(GLU, "gu", "y"), ROLE(MATMUL, "h", "u"))

#define PATTERN_NORM_ROUTER PATTERN("norm+router", "hz", ROLES_ROUTER)

#define PATTERN_ROUTE_EXPERTS_GLU                                       \
    PATTERN("route+experts gate+up+glu", "iwy", ROLE(ROUTE, "z", "iw"), \
            ROLE(MATMUL_EXPERTS, "xi", "g"), ROLE(GLU, "gu", "y"),      \
            ROLE(MATMUL_EXPERTS, "xi", "u"))

#define PATTERN_EXPERTS_SUM_ADD                                                                 \
    PATTERN("experts down+combine+matmul+add",                                                  \
            "z", [SUM_DOWN] = {OP_MATMUL_EXPERTS, "xi", "d", 0, HAS(PER_SLOT)},                 \
            [SUM_COMBINE] = ROLE(COMBINE_EXPERTS, "dw", "y"), [SUM_ADD] = ROLE(ADD, "ym", "a"), \
            [SUM_ADDED] = ROLE(MATMUL, "s", "m"), [SUM_RESIDUAL] = ROLE(ADD, "ra", "z"))

#define PATTERN_EXPERTS_SUM                                                     \
    PATTERN("experts down+combine",                                             \
            "z", [SUM_DOWN] = {OP_MATMUL_EXPERTS, "xi", "d", 0, HAS(PER_SLOT)}, \
            [SUM_COMBINE] = ROLE(COMBINE_EXPERTS, "dw", "y"),                   \
            [SUM_ADD] = ROLE_OPT(ADD, "ry", "z", 'y'))

int emit_norm_matmul_act(struct emit *e, const struct group *g)
{
    struct product m = product_of(g, NULL);
    emit_inside(e, g);
    m.m[0].y = group_last(g)->in[0];
    m.m[0].act = NULL;
    emit_product(e, &m);
    return emit_op(e, group_last(g));
}

const struct rule gpu_rules[GPU_RULES] = {
#define RULE_PATTERN(id, emitter) PATTERN_##id,
    GPU_RULE_TABLE(RULE_PATTERN)
#undef RULE_PATTERN
};
static int (*const emitters[GPU_RULES])(struct emit *, const struct group *) = {
#define RULE_EMITTER(id, emitter) emitter,
    GPU_RULE_TABLE(RULE_EMITTER)
#undef RULE_EMITTER
};

int emit_group(struct emit *e, const struct group *g)
{
    e->inner = e->kept;
    if (!g->rule) return emit_op(e, g->ops[0]);
    int rc = emitters[g->rule - gpu_rules](e, g);
    if (rc && !e->rc) e->rc = rc;
    return e->rc;
}
