/* What the emitters take as one, beside patterns.h. */
#ifndef FLETCH_GPU_RULES_H
#define FLETCH_GPU_RULES_H

#include "core/patterns.h"
#include "gpu/emit.h"

/* In order of preference, with their emitters. */
#define GPU_RULE_TABLE(X)                          \
    X(NORM_QKV_ATTENTION, emit_norm_qkv_attention) \
    X(NORM_GATE_UP_GLU, emit_gate_up_glu)          \
    X(MLA_QUERY, emit_mla_query)                   \
    X(MLA_ATTENTION, emit_mla_attention)           \
    X(SHIFT_MATMULS, emit_matmuls)                 \
    X(LOW_TIME_MIX, emit_time_mix)                 \
    X(NORM_ROUTER_GLU, emit_norm_router)           \
    X(NORM_MATMUL_ACT, emit_norm_matmul_act)       \
    X(NORM_MATMUL, emit_products)                  \
    X(NORM_ROUTER, emit_norm_router)               \
    X(GATE_UP_GLU, emit_gate_up_glu)               \
    X(ROUTE_EXPERTS_GLU, emit_experts_glu)         \
    X(EXPERTS_SUM_ADD, emit_experts_sum)           \
    X(EXPERTS_SUM, emit_experts_sum)               \
    X(MATMUL_ADD, emit_products)                   \
    X(MATMULS, emit_matmuls)
#define DECLARE_EMITTER(id, emitter) int emitter(struct emit *e, const struct group *g);
GPU_RULE_TABLE(DECLARE_EMITTER)
enum gpu_rule {
#define GPU_RULE_ENUM(id, emitter) RULE_##id,
    GPU_RULE_TABLE(GPU_RULE_ENUM)
#undef GPU_RULE_ENUM
        GPU_RULES
};
extern const struct rule gpu_rules[GPU_RULES];

/* Roles by name. */
enum {
    QKV_ATTENTION,
    QKV_STORE,
    QKV_Q_ROPE,
    QKV_K_ROPE,
    QKV_Q_NORM,
    QKV_K_NORM,
    QKV_Q,
    QKV_K,
    QKV_V,
    QKV_NORM
};
enum { MLA_ATTENTION, MLA_STORE, MLA_NORM, MLA_K_ROPE, MLA_Q_ROPE, MLA_V_B };
enum { ROUTER_NORM, ROUTER_MATMUL, ROUTER_READER };
enum { SUM_DOWN, SUM_COMBINE, SUM_ADD, SUM_ADDED, SUM_RESIDUAL };

#endif
