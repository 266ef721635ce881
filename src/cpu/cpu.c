#include "cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "cpu/cpu_internal.h"

static void cpu_close(struct exec *exec)
{
    struct cpu *x = (struct cpu *)exec;
    if (!x) return;
    const struct net *net = x->host.net;
    team_close(x->team);
    for (u32 i = 0; x->packed && i < net->n_weights; i++) free(x->packed[i].data);
    for (u32 i = 0; x->vectors && i < net->n_weights; i++) free(x->vectors[i]);
    for (u32 i = 0; i < ARRAY_LEN(x->next); i++) free(x->next[i]);
    hostmem_close(&x->host);
    free(x->act.q);
    free(x->act.scale);
    free(x->act.sum);
    free(x->normed);
    free(x->packed);
    free(x->vectors);
    free(x);
}

static int cpu_open(struct exec **out, const struct exec_class *class, const struct net *net,
                    const struct exec_limits *limits, u32 n_threads, struct err *err)
{
    *out = NULL;
    if (limits->block_tokens % BLOCK != 0)
        return err_set(err, FLETCH_E_ARG, "cache blocks of %u tokens are not a multiple of %d",
                       limits->block_tokens, BLOCK);
    struct cpu *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(err, "the executor");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = hostmem_open(&x->host, class, net, limits, err);
    x->k = kernels_find(class->isa);
    x->packed = calloc(net->n_weights + 1, sizeof *x->packed);
    x->vectors = calloc(net->n_weights + 1, sizeof *x->vectors);
    if (!rc && (!x->packed || !x->vectors)) rc = err_nomem(err, "the executor");
    if (!rc) rc = team_open(&x->team, n_threads ? n_threads : (u32)MAX(1, cores), err);
    if (rc) {
        cpu_close(&x->host.base);
        return rc;
    }
    *out = &x->host.base;
    return 0;
}

/* ---- weights ---- */

struct packing {
    const struct packed *p;
    const struct weight *w;
    u32 n_members;
};

static void pack_share(void *ctx, u32 member)
{
    const struct packing *job = ctx;
    u64 n = (u64)job->p->n_tiles * job->p->n_slices;
    pack_tiles(job->p, job->w, n * member / job->n_members, n * (member + 1) / job->n_members);
}

/* What recorders may use as a vector: norms, biases, lerps (a few rows). It is kept in both forms,
 * because a matrix of so few rows looks the same. */
static bool is_vector(const struct weight *w)
{
    return w->n_slices == 1 && w->n_out <= 6 && quant_info(w->type)->blk == 1;
}

static int cpu_weight(struct exec *exec, u32 id, struct err *err)
{
    struct cpu *x = (struct cpu *)exec;
    const struct weight *w = &x->host.net->weights[id];
    if (is_vector(w)) {
        x->vectors[id] = hostmem_alloc((u64)w->n_in * w->n_out * sizeof(float));
        if (!x->vectors[id]) return err_nomem(err, w->name);
        for (u32 r = 0; r < w->n_out; r++)
            quant_decode(w->type, w->data + r * w->row_bytes, x->vectors[id] + (size_t)r * w->n_in,
                         w->n_in);
    }
    struct packed *p = &x->packed[id];
    pack_plan(p, w);
    p->data = hostmem_alloc(p->slice_bytes * p->n_slices);
    if (!p->data) return err_nomem(err, w->name);
    team_run(x->team, pack_share, &(struct packing){p, w, team_size(x->team)});
    return 0;
}

/* ---- programs ---- */

/* Floats of input that an op's matrix product rounds, for n_rows rows. */
static u64 rounded(const struct op *op, u32 n_rows)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_NORM_MATMUL:
    case OP_GATE_UP_GLU: return (u64)n_rows * op->in[0].width;
    case OP_MATMUL_HEADS: return (u64)n_rows * op->p.heads.n_heads * op->p.heads.n_in;
    case OP_MATMUL_EXPERTS:
        return (u64)n_rows * op->p.experts.n_in *
               (op->p.experts.per_slot ? op->p.experts.n_used : 1);
    default: return 0;
    }
}

static u64 widest_rounded(const struct program *p, u32 n_rows)
{
    u64 n = BLOCK;
    for (u32 i = 0; i < p->n_ops; i++) n = MAX(n, rounded(&p->ops[i], n_rows));
    return n;
}

static int check_limits(const struct op *op, struct err *err)
{
    bool attends = op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
    if (attends && MAX(op->p.attn.k_width, op->p.attn.v_width) > CPU_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT, "attention heads of more than %d values", CPU_MAX_HEAD);
    if (op->kind == OP_ROUTE && op->p.route.n_experts > HOSTMEM_MAX_EXPERTS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d experts", HOSTMEM_MAX_EXPERTS);
    return 0;
}

/* The rounding buffers serve all programs: as large as the widest needs. */
static bool grow_act(struct cpu *x, u64 n)
{
    free(x->act.q);
    free(x->act.scale);
    free(x->act.sum);
    free(x->normed);
    x->act.q = hostmem_alloc(n);
    x->act.scale = hostmem_alloc(n / BLOCK * sizeof *x->act.scale);
    x->act.sum = hostmem_alloc(n / 16 * sizeof *x->act.sum);
    x->normed = hostmem_alloc(n * sizeof *x->normed);
    return x->act.q && x->act.scale && x->act.sum && x->normed;
}

static int cpu_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct cpu *x = (struct cpu *)exec;
    for (u32 i = 0; i < p->n_ops; i++) {
        int rc = check_limits(&p->ops[i], err);
        if (rc) return rc;
    }
    int rc = hostmem_load(&x->host, p, handle, err);
    if (rc) return rc;
    u64 n = BLOCK;
    for (u32 i = 0; i < x->host.n_programs; i++)
        n = MAX(n, widest_rounded(x->host.programs[i].p, x->host.limits.max_rows));
    x->next[*handle] = calloc(p->n_ops, sizeof **x->next);
    return x->next[*handle] && grow_act(x, n) ? 0 : err_nomem(err, "the activations");
}

/* ---- steps ---- */

/* Subnormal operands cost five times as much and change nothing that matters. */
static void flush_to_zero(void)
{
#if defined __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined __aarch64__
    u64 fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | 1u << 24));
#endif
}

struct walk {
    struct cpu *x;
    u32 handle;
    const struct step *s;
};

static void walk(void *ctx, u32 member)
{
    const struct walk *w = ctx;
    const struct program *p = w->x->host.programs[w->handle].p;
    struct cpu_run run = {w->x, p, w->handle, w->s, member, team_size(w->x->team)};
    flush_to_zero();
    for (u32 i = w->s->op_begin; i < p->n_ops && i < w->s->op_end; i++) {
        cpu_op(&run, i);
        team_barrier(w->x->team);
    }
}

static int cpu_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    (void)err;
    struct cpu *x = (struct cpu *)exec;
    if (s->op_begin == 0) hostmem_edit(&x->host, s);
    memset((void *)x->next[handle], 0, x->host.programs[handle].p->n_ops * sizeof **x->next);
#if defined __x86_64__
    u32 csr = _mm_getcsr();
#endif
    team_run(x->team, walk, &(struct walk){x, handle, s});
#if defined __x86_64__
    _mm_setcsr(csr); /* the caller's thread is a member too */
#endif
    return 0;
}

static u64 cpu_bytes(const struct program *p, const struct exec_limits *limits)
{
    u64 n = widest_rounded(p, limits->max_rows);
    return hostmem_bytes(p, limits) + n * sizeof(float) + n + n / BLOCK * 4 + n / 16 * 4;
}

/* ---- classes, one per instruction set ---- */

#define OPEN_WITH(set)                                                                      \
    static int open_##set(struct exec **out, const struct net *net,                         \
                          const struct exec_limits *limits, u32 n_threads, struct err *err) \
    {                                                                                       \
        return cpu_open(out, cpu_class(#set), net, limits, n_threads, err);                 \
    }
CPU_ISAS(OPEN_WITH)
#undef OPEN_WITH

static const struct exec_class classes[] = {
#define CLASS_OF(set)                                          \
    {.name = "cpu",                                            \
     .isa = #set,                                              \
     .fused = 1ull << OP_NORM_MATMUL | 1ull << OP_GATE_UP_GLU, \
     .kv = QT_F16,                                             \
     .int8 = true,                                             \
     .max_rows = CPU_MAX_ROWS,                                 \
     .open = open_##set,                                       \
     .close = cpu_close,                                       \
     .weight = cpu_weight,                                     \
     .load = cpu_load,                                         \
     .submit = cpu_submit,                                     \
     .wait = hostmem_wait,                                     \
     .read = hostmem_read,                                     \
     .write = hostmem_write,                                   \
     .weight_bytes = pack_bytes,                               \
     .bytes = cpu_bytes},
    CPU_ISAS(CLASS_OF)
#undef CLASS_OF
};

const struct exec_class *cpu_class(const char *isa)
{
    const struct cpu_kernels *k = kernels_find(isa);
    for (size_t i = 0; k && i < ARRAY_LEN(classes); i++)
        if (strcmp(classes[i].isa, k->isa) == 0) return &classes[i];
    return NULL;
}
