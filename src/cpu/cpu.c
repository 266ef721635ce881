#include "cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "cpu/cpu_internal.h"

static void *alloc64(u64 n)
{
    u64 up;
    if (!ck_align_up(n ? n : 1, 64, &up)) return NULL;
    return aligned_alloc(64, up);
}

static u64 kv_row_bytes(const struct net *net, u32 layer)
{
    u64 n = 0;
    CHECK(quant_bytes(net->profile.kv, net->kv[layer].k_width + net->kv[layer].v_width, &n));
    return n;
}

static void cpu_close(struct exec *exec)
{
    struct cpu *x = (struct cpu *)exec;
    if (!x) return;
    team_close(x->team);
    for (u32 i = 0; x->packed && i < x->net->n_weights; i++) free(x->packed[i].data);
    for (u32 i = 0; x->vectors && i < x->net->n_weights; i++) free(x->vectors[i]);
    for (u32 i = 0; x->kv && i < x->net->n_kv; i++) free(x->kv[i]);
    for (u32 i = 0; x->state && i < x->net->n_states; i++) free(x->state[i]);
    for (u32 i = 0; i < x->n_programs; i++) {
        free(x->programs[i].mem[ROWS_T]);
        free(x->programs[i].mem[ROWS_R]);
        free(x->programs[i].next);
    }
    free(x->act.q);
    free(x->act.scale);
    free(x->act.sum);
    free(x->normed);
    free(x->packed);
    free(x->vectors);
    free(x->kv);
    free(x->state);
    free(x);
}

static int cpu_open(struct exec **out, const struct net *net, const struct exec_limits *limits,
                    u32 n_threads, struct err *err)
{
    *out = NULL;
    if (limits->block_tokens % BLOCK != 0)
        return err_set(err, FLETCH_E_ARG, "cache blocks of %u tokens are not a multiple of %d",
                       limits->block_tokens, BLOCK);
    struct cpu *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(err, "the executor");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    x->base.class = &cpu_exec;
    x->net = net;
    x->limits = *limits;
    x->k = kernels_find(NULL);
    x->packed = calloc(net->n_weights + 1, sizeof *x->packed);
    x->vectors = calloc(net->n_weights + 1, sizeof *x->vectors);
    x->kv = calloc(net->n_kv + 1, sizeof *x->kv);
    x->state = calloc(net->n_states + 1, sizeof *x->state);
    bool ok = x->packed && x->vectors && x->kv && x->state;
    u64 n_tokens = (u64)limits->n_blocks * limits->block_tokens;
    for (u32 i = 0; ok && i < net->n_kv; i++)
        ok = (x->kv[i] = calloc(n_tokens, kv_row_bytes(net, i))) != NULL;
    for (u32 i = 0; ok && i < net->n_states; i++)
        ok = (x->state[i] =
                  calloc((size_t)limits->n_slots * net->states[i].width, sizeof(float))) != NULL;
    int rc = ok ? 0 : err_nomem(err, "the cache");
    if (!rc) rc = team_open(&x->team, n_threads ? n_threads : (u32)MAX(1, cores), err);
    if (rc) {
        cpu_close(&x->base);
        return rc;
    }
    *out = &x->base;
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
    const struct weight *w = &x->net->weights[id];
    if (is_vector(w)) {
        x->vectors[id] = alloc64((u64)w->n_in * w->n_out * sizeof(float));
        if (!x->vectors[id]) return err_nomem(err, w->name);
        for (u32 r = 0; r < w->n_out; r++)
            quant_decode(w->type, w->data + r * w->row_bytes, x->vectors[id] + (size_t)r * w->n_in,
                         w->n_in);
    }
    struct packed *p = &x->packed[id];
    pack_plan(p, w);
    p->data = alloc64(p->slice_bytes * p->n_slices);
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
    if (op->kind == OP_ROUTE && op->p.route.n_experts > CPU_MAX_EXPERTS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d experts", CPU_MAX_EXPERTS);
    return 0;
}

/* The rounding buffers serve all programs: as large as the widest needs. */
static bool grow_act(struct cpu *x, u64 n)
{
    free(x->act.q);
    free(x->act.scale);
    free(x->act.sum);
    free(x->normed);
    x->act.q = alloc64(n);
    x->act.scale = alloc64(n / BLOCK * sizeof *x->act.scale);
    x->act.sum = alloc64(n / 16 * sizeof *x->act.sum);
    x->normed = alloc64(n * sizeof *x->normed);
    return x->act.q && x->act.scale && x->act.sum && x->normed;
}

static int cpu_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct cpu *x = (struct cpu *)exec;
    CHECK(x->n_programs < ARRAY_LEN(x->programs));
    for (u32 i = 0; i < p->n_ops; i++) {
        int rc = check_limits(&p->ops[i], err);
        if (rc) return rc;
    }
    struct cpu_program *prog = &x->programs[x->n_programs];
    *handle = x->n_programs++;
    prog->p = p;
    prog->mem[ROWS_T] = alloc64(p->n_cols[ROWS_T] * x->limits.max_rows * sizeof(float));
    prog->mem[ROWS_R] = alloc64(p->n_cols[ROWS_R] * x->limits.max_out * sizeof(float));
    prog->next = calloc(p->n_ops, sizeof *prog->next);
    u64 n = BLOCK;
    for (u32 i = 0; i < x->n_programs; i++)
        n = MAX(n, widest_rounded(x->programs[i].p, x->limits.max_rows));
    bool ok = grow_act(x, n);
    return ok && prog->mem[ROWS_T] && prog->mem[ROWS_R] && prog->next
               ? 0
               : err_nomem(err, "the activations");
}

/* ---- steps ---- */

static void carry_out(struct cpu *x, const struct step_edit *e)
{
    if (e->kind == EDIT_COPY_BLOCK) {
        for (u32 i = 0; i < x->net->n_kv; i++) {
            u64 n = kv_row_bytes(x->net, i) * x->limits.block_tokens;
            memcpy(x->kv[i] + e->dst * n, x->kv[i] + e->src * n, n);
        }
        return;
    }
    for (u32 i = 0; i < x->net->n_states; i++) {
        size_t n = x->net->states[i].width;
        float *dst = x->state[i] + e->dst * n;
        if (e->kind == EDIT_COPY_STATE)
            memcpy(dst, x->state[i] + e->src * n, n * sizeof(float));
        else
            memset(dst, 0, n * sizeof(float));
    }
}

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
    struct cpu_program *prog;
    const struct step *s;
};

static void walk(void *ctx, u32 member)
{
    const struct walk *w = ctx;
    struct cpu_run run = {w->x, w->prog->p, w->prog, w->s, member, team_size(w->x->team)};
    flush_to_zero();
    for (u32 i = w->s->op_begin; i < run.p->n_ops && i < w->s->op_end; i++) {
        cpu_op(&run, i);
        team_barrier(w->x->team);
    }
}

static int cpu_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    (void)err;
    struct cpu *x = (struct cpu *)exec;
    struct cpu_program *prog = &x->programs[handle];
    if (s->op_begin == 0)
        for (u32 i = 0; i < s->n_edits; i++) carry_out(x, &s->edits[i]);
    memset((void *)prog->next, 0, prog->p->n_ops * sizeof *prog->next);
#if defined __x86_64__
    u32 csr = _mm_getcsr();
#endif
    team_run(x->team, walk, &(struct walk){x, prog, s});
#if defined __x86_64__
    _mm_setcsr(csr); /* the caller's thread is a member too */
#endif
    return 0;
}

static int cpu_wait(struct exec *exec, struct err *err)
{
    (void)exec;
    (void)err;
    return 0;
}

/* Row `row` of a buffer; all rows up to row + n_rows are there. */
static float *rows_at(const struct cpu *x, u32 handle, struct operand what, u32 row, u32 n_rows)
{
    const struct cpu_program *prog = &x->programs[handle];
    const struct buffer *b = &prog->p->bufs[what.buf];
    u32 room = b->rows == ROWS_T ? x->limits.max_rows : x->limits.max_out;
    CHECK(row + n_rows <= room);
    return prog->mem[b->rows] + b->place * room + (size_t)row * b->width + what.col;
}

static int cpu_read(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                    float *dst, struct err *err)
{
    (void)err;
    const struct cpu *x = (const struct cpu *)exec;
    size_t pitch = x->programs[handle].p->bufs[what.buf].width;
    const float *from = rows_at(x, handle, what, row, n_rows);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(dst + (size_t)i * what.width, from + i * pitch, what.width * sizeof *dst);
    return 0;
}

static int cpu_write(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                     const float *src, struct err *err)
{
    (void)err;
    const struct cpu *x = (const struct cpu *)exec;
    size_t pitch = x->programs[handle].p->bufs[what.buf].width;
    float *to = rows_at(x, handle, what, row, n_rows);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(to + i * pitch, src + (size_t)i * what.width, what.width * sizeof *src);
    return 0;
}

static u64 cpu_bytes(const struct program *p, const struct exec_limits *limits)
{
    u64 n = widest_rounded(p, limits->max_rows);
    return (p->n_cols[ROWS_T] * limits->max_rows + p->n_cols[ROWS_R] * limits->max_out + n) *
               sizeof(float) +
           n + n / BLOCK * 4 + n / 16 * 4;
}

const struct exec_class cpu_exec = {
    .name = "cpu",
    .fused = 1ull << OP_NORM_MATMUL | 1ull << OP_GATE_UP_GLU,
    .kv = QT_F16,
    .int8 = true,
    .max_rows = CPU_MAX_ROWS,
    .keeps_weights = false,
    .open = cpu_open,
    .close = cpu_close,
    .weight = cpu_weight,
    .load = cpu_load,
    .submit = cpu_submit,
    .wait = cpu_wait,
    .read = cpu_read,
    .write = cpu_write,
    .weight_bytes = pack_bytes,
    .bytes = cpu_bytes,
};
