/* Patterns that several executors have functions for, as members of struct rule (group.h), and the
 * places of their roles where a function asks for them by name. */
#ifndef FLETCH_PATTERNS_H
#define FLETCH_PATTERNS_H

#include "core/group.h"

#define ROLE(kind, in, out)      \
    {                            \
        OP_##kind, in, out, 0, 0 \
    }
#define ROLE_OPT(kind, in, out, without) \
    {                                    \
        OP_##kind, in, out, without, 0   \
    }

/* The statistics are those of heads. */
#define ROLE_HEAD_NORM(in, out, without)       \
    {                                          \
        OP_NORM, in, out, without, HAS(GROUPS) \
    }
#define PATTERN(what, leaves, ...)                            \
    {                                                         \
        .name = what, .out = leaves, .roles = { __VA_ARGS__ } \
    }

#define PATTERN_NORM_MATMUL                                                     \
    PATTERN("norm+matmul", "abc", ROLE(NORM, "x", "h"), ROLE(MATMUL, "h", "a"), \
            ROLE_OPT(MATMUL, "h", "b", '-'), ROLE_OPT(MATMUL, "h", "c", '-'))

/* A feed-forward network without gate. */
#define PATTERN_NORM_MATMUL_ACT                                                   \
    PATTERN("norm+matmul+act", "y", ROLE(NORM, "x", "h"), ROLE(MATMUL, "h", "a"), \
            ROLE(ACT, "a", "y"))

#define PATTERN_GATE_UP_GLU                                                   \
    PATTERN("gate+up+glu", "y", ROLE(MATMUL, "x", "g"), ROLE(GLU, "gu", "y"), \
            ROLE(MATMUL, "x", "u"))

#define PATTERN_NORM_GATE_UP_GLU                                                   \
    PATTERN("norm+gate+up+glu", "y", ROLE(NORM, "x", "h"), ROLE(MATMUL, "h", "g"), \
            ROLE(GLU, "gu", "y"), ROLE(MATMUL, "h", "u"))

#define PATTERN_MATMUL_ADD                                                   \
    PATTERN("matmul+add", "z", ROLE(MATMUL, "x", "m"), ROLE(ADD, "rm", "y"), \
            ROLE_OPT(ADD, "sy", "z", 'y'))

#define PATTERN_EXPERTS_GLU                                                                    \
    PATTERN("experts gate+up+glu", "y", ROLE(MATMUL_EXPERTS, "xi", "g"), ROLE(GLU, "gu", "y"), \
            ROLE(MATMUL_EXPERTS, "xi", "u"))

/* The queries are those of the attention that reads this cache. */
enum { STORE_STORE, STORE_K_ROPE, STORE_READER, STORE_Q_ROPE };
#define PATTERN_ROPE_STORE                                                                         \
    PATTERN("rope+kv_store",                                                                       \
            "a", [STORE_STORE] = ROLE(KV_STORE, "bv", "t"), [STORE_K_ROPE] = ROLE(ROPE, "k", "b"), \
            [STORE_READER] = {OP_ATTENTION, "at", "y", '!', UINT64_MAX},                           \
            [STORE_Q_ROPE] = ROLE(ROPE, "q", "a"))

#define PATTERN_MATMULS                                       \
    {                                                         \
        .name = "lerp+matmul+act", .out = "", .gathers = true \
    }

/* The recurrence of RWKV-7 and what it reads: v lerped to that of the first layer, kk = l2 norm of
 * k ⊙ k_k, k_control; then a norm, rk_bonus and a gate. */
enum { MIX_WKV, MIX_K_CONTROL, MIX_L2, MIX_K_K, MIX_LERP, MIX_NORM, MIX_BONUS, MIX_GATE };
#define ROLES_TIME_MIX                                                                           \
    [MIX_WKV] = ROLE(RECURRENCE, "rwcunat", "yt"), [MIX_K_CONTROL] = ROLE(K_CONTROL, "ka", "c"), \
    [MIX_L2] = ROLE_HEAD_NORM("z", "n", 0), [MIX_K_K] = ROLE(MUL, "k", "z"),                     \
    [MIX_LERP] = ROLE_OPT(LERP, "vfm", "u", 'v'), [MIX_NORM] = ROLE_HEAD_NORM("y", "o", 'y'),    \
    [MIX_BONUS] = ROLE(RK_BONUS, "orcu", "b"), [MIX_GATE] = ROLE_OPT(MUL, "bg", "s", 'b')
#define PATTERN_TIME_MIX PATTERN("wkv7+head+tail", "s", ROLES_TIME_MIX)

#endif
