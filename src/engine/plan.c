/* Limits and memory: what a model will take before anything is taken. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"

#define CACHE_NAME(id, name, ...) "|" #name
_Static_assert(sizeof CACHE_TABLE(CACHE_NAME) == sizeof "|" FLETCH_KV_TYPES,
               "FLETCH_KV_TYPES lists the names of CACHE_TABLE");
#undef CACHE_NAME

static int parse_kv(enum cache_type *out, const char *name, struct err *err)
{
    for (u32 i = 0; i < CACHE_COUNT; i++)
        if (strcmp(name, cache_info[i].name) == 0) {
            *out = (enum cache_type)i;
            return 0;
        }
    return err_set(err, FLETCH_E_ARG, "KV type %s is not one of " FLETCH_KV_TYPES,
                   QUOTE(str_of(name)));
}

int engine_profile(struct profile *out, const struct exec_class *class,
                   const struct fletch_model_params *params, struct err *err)
{
    if (!class)
        return err_set(err, FLETCH_E_BACKEND,
                       "the engine could not be opened, so there is no backend");
    *out = (struct profile){.kv = class->kv,
                            .int8 = class->int8,
                            .bf16 = class->bf16,
                            .int8_experts = class->int8_experts};
    const char *kv = params ? params->kv_type : NULL, *act = params ? params->act_type : NULL;
    int rc = engine_refuse_text_only(params, err);
    if (!rc && kv) rc = parse_kv(&out->kv, kv, err);
    if (rc) return rc;
    if (act) {
        out->bf16 = strcmp(act, "bf16") == 0 ? BF16_EVERYWHERE : BF16_NOWHERE;
        out->int8 = out->bf16 || strcmp(act, "int8") == 0;
        if (!out->int8 && strcmp(act, "f32") != 0)
            return err_set(err, FLETCH_E_ARG, "activation type %s is not f32, int8 or bf16",
                           QUOTE(str_of(act)));
    }
    if (out->bf16 && !class->has_bf16)
        return err_set(err, FLETCH_E_BACKEND,
                       "backend '%s' does not round to bf16; the closest is --act-type int8",
                       class->name);
    return 0;
}

/* Without rounding a backend may still serve a model whose weights are all floats: what meets those
 * is never rounded to int8. */
static int check_act(const struct net *net, const struct exec_class *class, struct err *err)
{
    if (net->profile.int8 || class->has_f32_act) return 0;
    for (u32 i = 0; i < net->n_weights; i++) {
        const struct weight *w = &net->weights[i];
        const struct quant_info *info = quant_info(w->type);
        if (info->blk != 1)
            return err_set(err, FLETCH_E_BACKEND,
                           "backend '%s' rounds activations to int8 for block-quantized weights, "
                           "and tensor '%s' has type %s; use --backend ref, or a model whose "
                           "weights are all F32, F16 or BF16",
                           class->name, w->name, info->name);
    }
    return 0;
}

u32 engine_longest(const struct model *m)
{
    return MIN(m->hp.n_ctx, (u32)ENGINE_MAX_CTX);
}

int engine_limits(struct exec_limits *out, const struct model *m, const struct exec_class *class,
                  const struct fletch_model_params *params, struct err *err)
{
    static const struct fletch_model_params none;
    if (!params) params = &none;
    u32 n_ctx = params->n_ctx;
    int rc = exec_kv_check(m->net, err);
    if (!rc) rc = check_act(m->net, class, err);
    if (rc) return rc;
    /* without a cache a longer context costs next to nothing */
    if (!n_ctx) n_ctx = MIN(m->hp.n_ctx, m->net->n_kv ? (u32)ENGINE_DEFAULT_CTX : ENGINE_MAX_CTX);
    if (n_ctx > ENGINE_MAX_CTX)
        return err_set(err, FLETCH_E_ARG,
                       "the context of %u tokens is longer than the maximum of %u", n_ctx,
                       (u32)ENGINE_MAX_CTX);
    u32 n_sessions = params->n_sessions ? params->n_sessions : 1;
    if (n_sessions > 1024)
        return err_set(err, FLETCH_E_ARG, "more than 1024 sessions are not supported");
    u32 max_rows = params->max_rows;
    if (!max_rows)
        max_rows = class->chunk ? MIN(class->chunk, MAX(n_ctx, ENGINE_MAX_ROWS)) : ENGINE_MAX_ROWS;
    if (max_rows > class->max_rows)
        return err_set(err, FLETCH_E_ARG, "%u rows per step, but backend %s supports at most %u",
                       max_rows, class->name, class->max_rows);
    /* each in whole blocks; a pool that is smaller than that is shared */
    u64 per = ENGINE_BLOCK_TOKENS, each = (n_ctx + per - 1) / per, blocks = each * n_sessions;
    if (params->kv_tokens) blocks = MIN(blocks, (params->kv_tokens + per - 1) / per);
    if (!m->net->n_kv) blocks = 0;
    if (blocks > UINT32_MAX / per)
        return err_set(err, FLETCH_E_ARG, "%u sessions of %u tokens are too many", n_sessions,
                       n_ctx);
    u32 n_snapshots = m->net->n_states ? params->n_snapshots : 0;
    u32 n_trials = m->net->n_states && engine_speculates(params) ? n_sessions : 0;
    if (n_snapshots > 1024)
        return err_set(err, FLETCH_E_ARG, "more than 1024 snapshots are not supported");
    /* rows of prompts that are rounded otherwise than answers share no work with them */
    bool twice = n_sessions > 1 && m->net->profile.bf16;
    *out = (struct exec_limits){.max_rows = max_rows,
                                .max_out = MIN(max_rows, (u32)ENGINE_MAX_OUT),
                                .n_slots = n_sessions + n_snapshots + n_trials,
                                .n_blocks = (u32)blocks,
                                .block_tokens = ENGINE_BLOCK_TOKENS,
                                .max_pos = n_ctx,
                                .twice = twice};
    return 0;
}

u64 plan_available(void)
{
    u64 n = os_memory_available();
    if (!n) n = os_memory_bytes();
    return n ? n : UINT64_MAX;
}

static u64 kv_bytes(const struct model *m, u64 n_tokens)
{
    return exec_kv_bytes(m->net) * n_tokens;
}

static u64 weight_bytes(const struct model *m, const struct exec_class *class)
{
    u64 sum = 0;
    if (!class->weight_bytes) return model_weight_bytes(m);
    for (u32 i = 0; i < m->net->n_weights; i++) sum += class->weight_bytes(&m->net->weights[i]);
    return sum;
}

/* What follows from the parts; caches: bytes of them that a shorter context saves. */
static void settle(struct plan *plan, const struct model *m, const struct exec_limits *limits,
                   u64 caches)
{
    plan->total = plan->weights + plan->kv + plan->state + plan->activations + plan->guessing;
    plan->fits = plan->total <= plan->available;
    plan->largest_ctx = 0;
    u64 rest = plan->total - caches;
    if (rest > plan->available) return;
    u64 most = plan->per_token ? (plan->available - rest) / plan->per_token : m->hp.n_ctx;
    most = MIN(most / limits->block_tokens * limits->block_tokens, m->hp.n_ctx);
    plan->largest_ctx = (u32)most;
}

void plan_make(struct plan *plan, const struct model *m, const struct program *p,
               const struct exec_class *class, const struct exec_limits *limits, u64 max_memory)
{
    *plan = (struct plan){
        .weights = weight_bytes(m, class),
        .kv = kv_bytes(m, (u64)limits->n_blocks * limits->block_tokens),
        .state = exec_state_bytes(m->net) * limits->n_slots,
        .activations = class->bytes(class, p, limits) * (limits->twice ? 2 : 1) +
                       (class->open_bytes ? class->open_bytes(class, m->net, limits) : 0) +
                       (u64)limits->n_slots * m->hp.n_vocab * sizeof(float),
        .available = max_memory    ? max_memory
                     : class->look ? limits->found.available
                                   : plan_available(),
    };
    plan->per_token = kv_bytes(m, 1) * limits->n_slots;
    settle(plan, m, limits, plan->kv);
}

void engine_widen(struct exec_limits *limits, const struct model *m, const struct program *p,
                  const struct exec_class *class, const struct fletch_model_params *params)
{
    struct plan plan;
    u32 longest = engine_longest(m), per = limits->block_tokens;
    u64 max_memory = params ? params->max_memory : 0, pool = (u64)limits->n_blocks * per;
    if ((params && params->n_ctx) || !m->net->n_kv || longest <= limits->max_pos) return;
    plan_make(&plan, m, p, class, limits, max_memory);
    if (!plan.fits) return;
    bool fixed = params && params->kv_tokens;
    u64 most = pool + (fixed ? 0 : (plan.available - plan.total) / 2 / kv_bytes(m, 1));
    struct exec_limits wide = *limits;
    wide.max_pos = most < longest ? (u32)(most / per * per) : longest;
    if (wide.max_pos <= limits->max_pos) return;
    wide.n_blocks = MAX(limits->n_blocks, (wide.max_pos + per - 1) / per);
    plan_make(&plan, m, p, class, &wide, max_memory);
    if (plan.fits) *limits = wide;
}

void plan_add_guessing(struct plan *plan, const struct model *m, const struct exec_limits *limits,
                       u64 fixed, u64 kv, u64 per_token)
{
    plan->guessing = fixed + kv;
    plan->per_token += per_token;
    settle(plan, m, limits, plan->kv + kv);
}

int engine_program(struct program **out, const struct program *p, const struct exec_class *class,
                   bool no_fuse, struct err *err)
{
    int rc = exec_check(class, p, err);
    return rc ? rc : prog_group(out, p, class->rules, no_fuse ? 0 : class->n_rules, err);
}

int plan_add_mtp(struct plan *plan, const struct model *m, const struct exec_class *class,
                 const struct exec_limits *limits, bool no_fuse, struct err *err)
{
    struct program *p;
    int rc = engine_program(&p, m->mtp, class, no_fuse, err);
    if (rc) return rc;
    plan_add_guessing(plan, m, limits, class->bytes(class, p, limits), 0, 0);
    prog_close(p);
    return 0;
}
