/* What the emitters take as one, beside patterns.h. */
#ifndef FLETCH_GPU_RULES_H
#define FLETCH_GPU_RULES_H

#include "core/patterns.h"
#include "gpu/emit.h"

enum { GPU_RULES = 15 };
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
