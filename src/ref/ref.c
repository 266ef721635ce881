#include "ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "ref/ref_internal.h"

static u64 kv_row_bytes(const struct net *net, u32 layer)
{
    u64 n = 0;
    CHECK(quant_bytes(net->profile.kv, net->kv[layer].k_width + net->kv[layer].v_width, &n));
    return n;
}

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
    for (u32 i = 0; x->kv && i < x->net->n_kv; i++) free(x->kv[i]);
    for (u32 i = 0; x->state && i < x->net->n_states; i++) free(x->state[i]);
    for (u32 i = 0; i < x->n_programs; i++) {
        free(x->programs[i].mem[ROWS_T]);
        free(x->programs[i].mem[ROWS_R]);
        free(x->programs[i].scratch);
    }
    for (u32 i = 0; i < ARRAY_LEN(x->vec); i++) free(x->vec[i]);
    free(x->act);
    free(x->kv);
    free(x->state);
    pool_close(x->pool);
    free(x);
}

static int ref_open(struct exec **out, const struct net *net, const struct exec_limits *limits,
                    u32 n_threads, struct err *err)
{
    *out = NULL;
    struct ref *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(err, "the executor");
    x->base.class = &ref_exec;
    x->net = net;
    x->limits = *limits;
    u64 n_tokens = (u64)limits->n_blocks * limits->block_tokens;
    x->kv = calloc(net->n_kv + 1, sizeof *x->kv);
    x->state = calloc(net->n_states + 1, sizeof *x->state);
    bool ok = x->kv && x->state;
    for (u32 i = 0; ok && i < net->n_kv; i++)
        ok = (x->kv[i] = calloc(n_tokens, kv_row_bytes(net, i))) != NULL;
    for (u32 i = 0; ok && i < net->n_states; i++)
        ok = (x->state[i] =
                  calloc((size_t)limits->n_slots * net->states[i].width, sizeof(float))) != NULL;
    for (u32 i = 0; ok && i < ARRAY_LEN(x->vec); i++)
        ok = (x->vec[i] = calloc(widest_weight(net), sizeof(float))) != NULL;
    if (ok && net->profile.int8)
        ok =
            (x->act = calloc((size_t)limits->max_rows * widest_weight(net), sizeof(float))) != NULL;
    int rc = ok ? pool_open(&x->pool, n_threads, err) : err_nomem(err, "the cache");
    if (rc) {
        ref_close(&x->base);
        return rc;
    }
    *out = &x->base;
    return 0;
}

static int ref_weight(struct exec *exec, u32 id, struct err *err)
{
    const struct weight *w = &((struct ref *)exec)->net->weights[id];
    const struct quant_info *info = quant_info(w->type);
    if (!info || !info->readable)
        return err_set(err, FLETCH_E_UNSUPPORTED, "tensor '%s' has a type that can't be read",
                       w->name);
    return 0;
}

static int check_limits(const struct op *op, struct err *err)
{
    bool attends = op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
    if (attends && MAX(op->p.attn.k_width, op->p.attn.v_width) > REF_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT, "attention heads of more than %d values", REF_MAX_HEAD);
    if (op->kind == OP_WKV7 && op->p.rec.head > REF_MAX_HEAD)
        return err_set(err, FLETCH_E_LIMIT, "wkv heads of more than %d values", REF_MAX_HEAD);
    if (op->kind == OP_ROUTE && op->p.route.n_experts > REF_MAX_EXPERTS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d experts", REF_MAX_EXPERTS);
    return 0;
}

/* Columns that the widest fused op keeps to itself. */
static u64 scratch_cols(const struct program *p)
{
    u64 n = 0;
    for (u32 i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->ops[i];
        if (op->kind == OP_NORM_MATMUL) n = MAX(n, op->in[0].width);
        if (op->kind == OP_GATE_UP_GLU) n = MAX(n, 2 * (u64)op->out[0].width);
    }
    return n;
}

static int ref_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct ref *x = (struct ref *)exec;
    CHECK(x->n_programs < ARRAY_LEN(x->programs));
    for (u32 i = 0; i < p->n_ops; i++) {
        int rc = check_limits(&p->ops[i], err);
        if (rc) return rc;
    }
    struct ref_program *prog = &x->programs[x->n_programs];
    prog->p = p;
    prog->mem[ROWS_T] = calloc(p->n_cols[ROWS_T] * x->limits.max_rows + 1, sizeof(float));
    prog->mem[ROWS_R] = calloc(p->n_cols[ROWS_R] * x->limits.max_out + 1, sizeof(float));
    prog->scratch = calloc(scratch_cols(p) * x->limits.max_rows + 1, sizeof(float));
    *handle = x->n_programs++;
    return prog->mem[ROWS_T] && prog->mem[ROWS_R] && prog->scratch
               ? 0
               : err_nomem(err, "the activations");
}

static void carry_out(struct ref *x, const struct step_edit *e)
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

static int ref_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    (void)err;
    struct ref *x = (struct ref *)exec;
    const struct ref_program *prog = &x->programs[handle];
    struct ref_run run = {x, prog->p, prog, s};
    if (s->op_begin == 0)
        for (u32 i = 0; i < s->n_edits; i++) carry_out(x, &s->edits[i]);
    for (u32 i = s->op_begin; i < prog->p->n_ops && i < s->op_end; i++)
        ref_op(&run, &prog->p->ops[i]);
    return 0;
}

static int ref_wait(struct exec *exec, struct err *err)
{
    (void)exec;
    (void)err;
    return 0;
}

/* Row `row` of a buffer; all rows up to row + n_rows are there. */
static float *rows_at(const struct ref *x, u32 handle, struct operand what, u32 row, u32 n_rows)
{
    const struct ref_program *prog = &x->programs[handle];
    const struct buffer *b = &prog->p->bufs[what.buf];
    u32 room = b->rows == ROWS_T ? x->limits.max_rows : x->limits.max_out;
    CHECK(row + n_rows <= room);
    return prog->mem[b->rows] + b->place * room + (size_t)row * b->width + what.col;
}

static int ref_read(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                    float *dst, struct err *err)
{
    (void)err;
    const struct ref *x = (const struct ref *)exec;
    size_t pitch = x->programs[handle].p->bufs[what.buf].width;
    const float *from = rows_at(x, handle, what, row, n_rows);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(dst + (size_t)i * what.width, from + i * pitch, what.width * sizeof *dst);
    return 0;
}

static int ref_write(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                     const float *src, struct err *err)
{
    (void)err;
    const struct ref *x = (const struct ref *)exec;
    size_t pitch = x->programs[handle].p->bufs[what.buf].width;
    float *to = rows_at(x, handle, what, row, n_rows);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(to + i * pitch, src + (size_t)i * what.width, what.width * sizeof *src);
    return 0;
}

static u64 ref_bytes(const struct program *p, const struct exec_limits *limits)
{
    return ((p->n_cols[ROWS_T] + scratch_cols(p)) * limits->max_rows +
            p->n_cols[ROWS_R] * limits->max_out +
            (3 + (p->net->profile.int8 ? (u64)limits->max_rows : 0)) * widest_weight(p->net)) *
           sizeof(float);
}

const struct exec_class ref_exec = {
    .name = "ref",
    .fused = 1ull << OP_NORM_MATMUL | 1ull << OP_GATE_UP_GLU,
    .kv = QT_F32,
    .has_f32_act = true,
    .max_rows = REF_MAX_ROWS,
    .keeps_weights = true,
    .open = ref_open,
    .close = ref_close,
    .weight = ref_weight,
    .load = ref_load,
    .submit = ref_submit,
    .wait = ref_wait,
    .read = ref_read,
    .write = ref_write,
    .bytes = ref_bytes,
};
