#include "ref/ref.h"

#include <stdlib.h>

#include "ref/ref_internal.h"

static u32 widest_weight(const struct net *net)
{
    u32 n = 1;
    for (u32 i = 0; i < net->n_weights; i++)
        n = MAX(n, MAX(net->weights[i].n_in, net->weights[i].n_out));
    return n;
}

static void ref_close(struct exec *exec)
{
    struct ref *x = (struct ref *)exec;
    if (!x) return;
    hostmem_close(&x->host);
    for (u32 i = 0; i < ARRAY_LEN(x->vec); i++) free(x->vec[i]);
    free(x->act);
    pool_close(x->pool);
    free(x);
}

static int ref_open(struct exec **out, const struct exec_class *class, const struct net *net,
                    const struct exec_limits *limits, u32 n_threads, struct err *err)
{
    *out = NULL;
    struct ref *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(err, "the executor");
    int rc = hostmem_open(&x->host, class, net, limits, err);
    size_t wide = widest_weight(net);
    bool ok = true;
    for (u32 i = 0; i < ARRAY_LEN(x->vec); i++)
        ok &= (x->vec[i] = calloc(wide, sizeof(float))) != NULL;
    if (net->profile.int8 || net->profile.bf16)
        ok &= (x->act = calloc(limits->max_rows * wide, sizeof(float))) != NULL;
    if (!rc && !ok) rc = err_nomem(err, "the executor");
    if (!rc) rc = pool_open(&x->pool, n_threads, err);
    if (rc) {
        ref_close(&x->host.base);
        return rc;
    }
    *out = &x->host.base;
    return 0;
}

static int ref_weight(struct exec *exec, u32 id, struct err *err)
{
    const struct weight *w = &((struct ref *)exec)->host.net->weights[id];
    const struct quant_info *info = quant_info(w->type);
    if (!info || !info->readable)
        return err_set(err, FLETCH_E_UNSUPPORTED, "tensor '%s' has an unsupported type", w->name);
    return 0;
}

static int check_limits(const struct op *op, struct err *err)
{
    bool attends = op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
    if (attends && MAX(op->p.attn.k_width, op->p.attn.v_width) > REF_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT,
                       "attention heads of more than %d values are not supported", REF_MAX_HEAD);
    if (op->kind == OP_RECURRENCE && op->p.rec.head > REF_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT,
                       "recurrent heads of more than %d values are not supported", REF_MAX_HEAD);
    if (op->kind == OP_ROUTE && op->p.route.n_experts > HOSTMEM_MAX_EXPERTS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d experts are not supported",
                       HOSTMEM_MAX_EXPERTS);
    return 0;
}

static int ref_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct ref *x = (struct ref *)exec;
    int rc = exec_check(x->host.base.class, p, err);
    for (u32 i = 0; i < p->n_ops && !rc; i++) rc = check_limits(&p->ops[i], err);
    if (!rc) rc = hostmem_load(&x->host, p, handle, err);
    return rc;
}

static int ref_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    (void)err;
    struct ref *x = (struct ref *)exec;
    struct ref_run run = {x, x->host.programs[handle].p, handle, s};
    if (s->group_begin == 0) hostmem_edit(&x->host, s);
    for (u32 i = s->group_begin; i < run.p->n_groups && i < s->group_end; i++)
        ref_op(&run, run.p->groups[i].ops[0]);
    return 0;
}

static u64 ref_bytes(const struct exec_class *class, const struct program *p,
                     const struct exec_limits *limits)
{
    u64 rows = limits->max_rows;
    (void)class;
    u64 wide =
        (3 + (p->net->profile.int8 || p->net->profile.bf16 ? rows : 0)) * widest_weight(p->net);
    return hostmem_bytes(p, limits) + wide * sizeof(float);
}

/* What ref_ops.c defines. */
static const u64 kernels[OP_COUNT] = {
    [OP_EMBED] = HAS(OP),
    [OP_IMPORT_HIDDEN] = HAS(OP),
    [OP_NORM] = HAS_ANY_NORM,
    [OP_MATMUL] = HAS(OP) | HAS(BIAS),
    [OP_MATMUL_HEADS] = HAS(OP) | HAS(SHARED_INPUT),
    [OP_MATMUL_EXPERTS] = HAS(OP) | HAS(PER_SLOT),
    [OP_ADD] = HAS(OP) | HAS(WEIGHT),
    [OP_ADD_EXPERTS] = HAS(OP),
    [OP_MUL] = HAS(OP) | HAS(WEIGHT) | HAS(HEAD_FACTORS),
    [OP_LERP] = HAS(OP) | HAS(WEIGHT),
    [OP_ACT] = HAS_ANY_ACT,
    [OP_GLU] = HAS_ANY_GLU,
    [OP_ROPE] = HAS(OP) | HAS(NEOX) | HAS(PARTIAL) | HAS(ROPE_TABLE),
    [OP_KV_STORE] = HAS(OP) | HAS(NO_VALUE),
    [OP_ATTENTION] = HAS_ANY_ATTENTION,
    [OP_LATENT_ATTENTION] = HAS(OP),
    [OP_ROUTE] = HAS_ANY_ROUTE | HAS(EXPERT_SCALES),
    [OP_COMBINE_EXPERTS] = HAS(OP),
    [OP_TOKEN_SHIFT] = HAS(OP),
    [OP_K_CONTROL] = HAS(OP),
    [OP_CONV] = HAS(OP) | HAS(BIAS),
    [OP_RECURRENCE] = HAS_ANY_RECURRENCE,
    [OP_RK_BONUS] = HAS(OP),
    [OP_GATHER_ROWS] = HAS(OP),
    [OP_SAMPLE] = HAS(OP),
};

const struct exec_class ref_exec = {
    .name = "ref",
    .kernels = kernels,
    .kv = CACHE_F32,
    .has_f32_act = true,
    .has_bf16 = true,
    .has_bf16_floats = true,
    .int8_experts = true,
    .max_rows = REF_MAX_ROWS,
    .keeps_weights = true,
    .open = ref_open,
    .close = ref_close,
    .weight = ref_weight,
    .load = ref_load,
    .submit = ref_submit,
    .wait = hostmem_wait,
    .read = hostmem_read,
    .write = hostmem_write,
    .move = hostmem_move,
    .bytes = ref_bytes,
};
