#include "cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "base/os.h"
#include "cpu/cpu_internal.h"

static void free_scratch(struct cpu *x)
{
    free(x->act.x);
    free(x->act.q);
    free(x->act.scale);
    free(x->act.sum);
    free(x->act.mins);
    free(x->act.b);
    for (u32 i = 0; x->lists && i < team_size(x->team); i++) {
        free(x->lists[i].places);
        free(x->lists[i].batches);
        free(x->lists[i].up);
        free(x->lists[i].blas);
    }
}

static void cpu_close(struct exec *exec)
{
    struct cpu *x = (struct cpu *)exec;
    if (!x) return;
    const struct net *net = x->host.net;
    free_scratch(x);
    free(x->lists);
    if (!x->host.limits.beside) team_close(x->team);
    for (u32 i = 0; x->packed && i < net->n_weights; i++) free(x->packed[i].data);
    for (u32 i = 0; x->vectors && i < net->n_weights; i++) free(x->vectors[i]);
    for (u32 i = 0; i < ARRAY_LEN(x->next); i++) free(x->next[i]);
    hostmem_close(&x->host);
    free(x->attention);
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
    int rc = hostmem_open(&x->host, class, net, limits, err);
    x->k = kernels_find(class->isa);
    x->host.weigh = x->k->rows->weigh;
    x->has_blas = blas_start();
    x->act.one_stream = kernels_one_stream();
    x->n_processors = os_threads();
    x->packed = calloc(net->n_weights + 1, sizeof *x->packed);
    x->vectors = calloc(net->n_weights + 1, sizeof *x->vectors);
    if (!rc && (!x->packed || !x->vectors)) rc = err_nomem(err, "the executor");
    if (limits->beside)
        x->team = ((const struct cpu *)limits->beside)->team;
    else if (!rc)
        rc = team_open(&x->team, n_threads ? n_threads : team_default_size(), err);
    if (!rc) x->lists = calloc(team_size(x->team), sizeof *x->lists);
    if (!rc && !x->lists) rc = err_nomem(err, "the executor");
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
    return w->plain || (w->n_slices == 1 && w->n_out <= 6 && quant_info(w->type)->blk == 1);
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
    team_run(x->team, team_size(x->team), pack_share, &(struct packing){p, w, team_size(x->team)});
    return 0;
}

/* ---- programs ---- */

/* What products of a program need beside its buffers. */
struct scratch {
    u64 x, q, b;             /* values as they are, as int8, as bf16 */
    u64 n_places, n_batches; /* of each member, */
    u64 blas;                /* and values for a BLAS library */
};

/* Rows, parts of a row and slices of its weight: see cpu_op_product. */
static void add_needs(struct scratch *s, const struct program *p, const struct group *g, u32 n_rows,
                      u32 n_parts, u32 n_slices, u32 n)
{
    u64 places = (u64)n_rows * n_parts, batches = 2 * (u64)n_slices;
    bool as_is = group_op(g, OP_NORM, 0), experts = group_op(g, OP_MATMUL_EXPERTS, 0);
    for (u32 k = 0; k < g->n_ops; k++)
        for (u32 i = 0; i < g->ops[k]->n_w; i++) {
            u32 w = g->ops[k]->w[i];
            as_is |= w != NO_WEIGHT && quant_info(p->net->weights[w].type)->blk == 1;
        }
    s->n_places = MAX(s->n_places, places);
    s->n_batches = MAX(s->n_batches, batches);
    s->q = MAX(s->q, places * n);
    if (as_is) s->x = MAX(s->x, places * n);
    if (as_is && blas_name()) { /* it reads whole blocks of rows */
        s->x = MAX(s->x, (places + BLAS_ROWS - 1) * n);
        s->blas = MAX(s->blas, (u64)(n + BLAS_ROWS) * BLAS_TILES * TILE);
    }
    if (p->net->profile.bf16 && !(experts && p->net->profile.int8_experts))
        s->b = MAX(s->b, (places / TILE + MIN(places, batches)) * cpu_group_values(n));
}

/* Products that don't share an input may have one each. */
static void add_scratch(struct scratch *s, const struct program *p, u32 n_rows)
{
    for (u32 i = 0; i < p->n_groups; i++) {
        const struct group *g = &p->groups[i];
        const struct op *heads = group_op(g, OP_MATMUL_HEADS, 0);
        const struct op *experts = group_op(g, OP_MATMUL_EXPERTS, 0);
        u32 n = 0, width = 0;
        for (u32 k = 0; k < g->n_ops; k++) {
            if (g->ops[k]->kind != OP_MATMUL) continue;
            n++;
            width = MAX(width, g->ops[k]->in[0].width);
        }
        if (heads)
            add_needs(s, p, g, n_rows, heads->p.heads.n_heads, heads->p.heads.n_heads,
                      heads->p.heads.n_in);
        else if (experts)
            add_needs(s, p, g, n_rows, experts->p.experts.n_used,
                      p->net->weights[experts->w[0]].n_slices, experts->p.experts.n_in);
        else if (n)
            add_needs(s, p, g, n_rows, g->rule && g->rule->gathers ? n : 1,
                      g->rule && g->rule->gathers ? n : 1, width);
    }
}

static int check_limits(const struct op *op, struct err *err)
{
    bool attends = op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
    if (attends && MAX(op->p.attn.k_width, op->p.attn.v_width) > CPU_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT,
                       "attention heads of more than %d values are not supported", CPU_MAX_HEAD);
    if (op->kind == OP_ROUTE && op->p.route.n_experts > HOSTMEM_MAX_EXPERTS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d experts are not supported",
                       HOSTMEM_MAX_EXPERTS);
    if (op->kind == OP_RECURRENCE && op->p.rec.head > CPU_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT,
                       "recurrent heads of more than %d values are not supported", CPU_MAX_HEAD);
    if (op->kind == OP_CONV && op->p.rec.n_taps > CPU_MAX_TAPS)
        return err_set(err, FLETCH_E_LIMIT, "convolutions over more than %d rows are not supported",
                       CPU_MAX_TAPS);
    if (op->kind == OP_MATMUL_HEADS && op->p.heads.n_heads > CPU_MAX_SLICES)
        return err_set(err, FLETCH_E_LIMIT, "more than %d heads are not supported", CPU_MAX_SLICES);
    return 0;
}

/* One scratch serves all programs: as large as the neediest wants it. */
static bool grow_scratch(struct cpu *x)
{
    struct scratch s = {0};
    for (u32 i = 0; i < x->host.n_programs; i++)
        add_scratch(&s, x->host.programs[i].p, x->host.limits.max_rows);
    free_scratch(x);
    x->act.x = hostmem_alloc(s.x * sizeof *x->act.x);
    x->act.q = hostmem_alloc(s.q);
    x->act.scale = hostmem_alloc(s.q / BLOCK * sizeof *x->act.scale);
    x->act.sum = hostmem_alloc(s.q / 16 * sizeof *x->act.sum);
    x->act.mins = hostmem_alloc(s.q / BLOCK * 3 * sizeof *x->act.mins);
    x->act.b = hostmem_alloc(s.b * sizeof *x->act.b);
    bool ok = x->act.x && x->act.q && x->act.scale && x->act.sum && x->act.mins && x->act.b;
    for (u32 i = 0; i < team_size(x->team); i++) {
        struct cpu_lists *l = &x->lists[i];
        l->places = hostmem_alloc(s.n_places * sizeof *l->places);
        l->batches = hostmem_alloc(s.n_batches * sizeof *l->batches);
        l->up = hostmem_alloc((u64)x->host.limits.max_rows * CPU_UP_TILES * TILE * sizeof *l->up);
        l->blas = hostmem_alloc(s.blas * sizeof *l->blas);
        ok &= l->places && l->batches && l->up && l->blas;
    }
    return ok;
}

static bool grow_attention(struct cpu *x)
{
    u64 n = 0;
    for (u32 i = 0; i < x->host.n_programs; i++)
        n = MAX(n, cpu_attention_bytes(x->host.programs[i].p, team_size(x->team)));
    free(x->attention);
    x->attention = hostmem_alloc(n);
    return x->attention;
}

static int cpu_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct cpu *x = (struct cpu *)exec;
    int rc = exec_check(x->host.base.class, p, err);
    for (u32 i = 0; i < p->n_ops && !rc; i++) rc = check_limits(&p->ops[i], err);
    if (!rc) rc = hostmem_load(&x->host, p, handle, err);
    if (rc) return rc;
    x->next[*handle] = calloc(p->n_groups, sizeof **x->next);
    return x->next[*handle] && grow_scratch(x) && grow_attention(x)
               ? 0
               : err_nomem(err, "the activations");
}

/* ---- steps ---- */

/* Subnormal operands cost five times as much and change nothing that matters. */
#if defined __x86_64__
enum { FLUSH_TO_ZERO = 0x8040 };

static u64 float_mode(void)
{
    return _mm_getcsr();
}

static void set_float_mode(u64 mode)
{
    _mm_setcsr((u32)mode);
}
#elif defined __aarch64__
enum { FLUSH_TO_ZERO = 1 << 24 };

static u64 float_mode(void)
{
    u64 mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void set_float_mode(u64 mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
}
#else
enum { FLUSH_TO_ZERO = 0 };

static u64 float_mode(void)
{
    return 0;
}

static void set_float_mode(u64 mode)
{
    (void)mode;
}
#endif

struct walk {
    struct cpu *x;
    u32 handle;
    const struct step *s;
    u32 n_members;
};

static void walk(void *ctx, u32 member)
{
    const struct walk *w = ctx;
    const struct program *p = w->x->host.programs[w->handle].p;
    struct cpu_run run = {w->x, p, w->handle, w->s, member, w->n_members};
    set_float_mode(float_mode() | FLUSH_TO_ZERO);
    for (u32 i = w->s->group_begin; i < p->n_groups && i < w->s->group_end; i++) {
        cpu_group(&run, i);
        team_barrier(w->x->team);
    }
}

/* Of the steps that do the same as s; NULL for a step that runs only some of the groups. */
static struct pace *pace_of(struct cpu *x, u32 handle, const struct step *s)
{
    if (s->group_begin > 0 || s->group_end < x->host.programs[handle].p->n_groups) return NULL;
    u32 size = 0;
    while (s->n_rows >> (size + 1) > 0 && size + 1 < CPU_PACES) size++;
    return &x->paces[handle][size];
}

static int cpu_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    (void)err;
    struct cpu *x = (struct cpu *)exec;
    if (s->group_begin == 0) hostmem_edit(&x->host, s);
    memset((void *)x->next[handle], 0, x->host.programs[handle].p->n_groups * sizeof **x->next);
    u64 mode = float_mode();
    struct pace *pace = pace_of(x, handle, s);
    u32 n_all = MIN(team_size(x->team), x->n_processors),
        n = pace ? pace_choose(pace, n_all) : n_all;
    double began = base_now();
    double waited = team_run(x->team, n, walk, &(struct walk){x, handle, s, n});
    if (pace) pace_note(pace, n_all, base_now() - began, waited);
    set_float_mode(mode); /* the caller's thread is a member too */
    return 0;
}

static u64 cpu_bytes(const struct exec_class *class, const struct program *p,
                     const struct exec_limits *limits)
{
    struct scratch s = {0};
    (void)class;
    add_scratch(&s, p, limits->max_rows);
    return hostmem_bytes(p, limits) + s.x * sizeof(float) + s.q +
           4 * (s.q / BLOCK) * sizeof(float) + s.q / 16 * sizeof(i32) + s.b * sizeof(u16) +
           s.blas * sizeof(float) * team_default_size() +
           cpu_attention_bytes(p, team_default_size());
}

/* ---- classes, one per instruction set ---- */

/* What the functions of cpu_group do. */
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

/* Only a matrix unit makes bf16 the faster way for what int8 can do; and the more rows meet a
 * decoded weight, the less decoding it counts. */
enum {
    CPU_CHUNK_BF16 = 256,
    CPU_BF16_amx = BF16_EVERYWHERE,
    CPU_BF16_avx512bf16 = BF16_FLOATS,
    CPU_BF16_avx512 = BF16_NOWHERE,
    CPU_BF16_avxvnni = BF16_NOWHERE,
    CPU_BF16_avx2 = BF16_NOWHERE,
    CPU_BF16_i8mm = BF16_NOWHERE,
    CPU_BF16_dotprod = BF16_NOWHERE,
    CPU_BF16_neon = BF16_NOWHERE,
    CPU_BF16_generic = BF16_NOWHERE,
};

static const struct exec_class classes[] = {
#define CLASS_OF(set)                                                      \
    {.name = "cpu",                                                        \
     .isa = #set,                                                          \
     .rules = cpu_rules,                                                   \
     .n_rules = CPU_RULES,                                                 \
     .kernels = kernels,                                                   \
     .kv = CACHE_F16,                                                      \
     .int8 = true,                                                         \
     .bf16 = (enum bf16_use)CPU_BF16_##set,                                \
     .has_bf16 = true,                                                     \
     .has_bf16_floats = true,                                              \
     .int8_experts = true,                                                 \
     .max_rows = CPU_MAX_ROWS,                                             \
     .chunk = (int)CPU_BF16_##set == BF16_EVERYWHERE ? CPU_CHUNK_BF16 : 0, \
     .open = cpu_open,                                                     \
     .close = cpu_close,                                                   \
     .weight = cpu_weight,                                                 \
     .load = cpu_load,                                                     \
     .submit = cpu_submit,                                                 \
     .wait = hostmem_wait,                                                 \
     .read = hostmem_read,                                                 \
     .write = hostmem_write,                                               \
     .move = hostmem_move,                                                 \
     .weight_bytes = pack_bytes,                                           \
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
