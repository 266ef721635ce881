/* Single kernels: a program is built of copies of one op, each with weights (or cache) of its own
 * so that together they don't fit into any cache, and runs on an executor. The first run's rows
 * are compared with the reference at the same profile; a kernel that is wrong gets no speed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bench.h"
#include "model/synth.h"

enum {
    MAX_COPIES = 64,
    CHECKED_ROWS = 4, /* at the beginning and at the end of a step */
    VARIED_ROWS = 64, /* rows that take turns as the input */
    BLOCK_TOKENS = 32,
};

struct shape {
    u32 n, m, t;                     /* columns in and out, rows */
    u32 heads, kv_heads, head, rope; /* rope: columns of a latent key after its value */
    u32 depth, experts, used;
    enum qtype type;
};

struct lab {
    struct shape s;
    struct net *net;
    struct program *p;
    struct operand x;    /* [t][width] random, the input of everything */
    u32 first, per_copy; /* ops before the copies; ops of one, unfused */
    u32 n_copies;
    bool whole;         /* rows depend on each other: all are compared */
    bool varied;        /* what is read depends on the input: other rows every time */
    struct operand out; /* of the last copy */
    float *hidden;      /* [depth + t][width] */
    u32 n_data;
    u8 *data[4 * MAX_COPIES]; /* weights */
};

/* ---- building ---- */

static u32 add_weight(struct lab *l, u32 n_in, u32 n_out, u32 n_slices, enum qtype type)
{
    const struct quant_info *q = quant_info(type);
    u64 row = (u64)n_in / q->blk * q->bytes, n = row * n_out * n_slices;
    struct weight w = {.name = "weight",
                       .type = type,
                       .n_in = n_in,
                       .n_out = n_out,
                       .n_slices = n_slices,
                       .row_bytes = row,
                       .slice_bytes = row * n_out,
                       .n_bytes = n};
    bool vector = n_out == 1;
    struct synth_range range = {vector ? 1 : 0, vector ? 0.1f : sqrtf(3 / (float)n_in)};
    CHECK(l->n_data < ARRAY_LEN(l->data));
    u8 *data = l->data[l->n_data] = malloc(n);
    l->net->failed |= !data;
    if (data) synth_fill(type, l->n_data + 1, range, 0, n / q->bytes, data);
    l->n_data++;
    w.data = data;
    return net_weight(l->net, &w);
}

static void begin_copies(struct lab *l, u64 bytes_each)
{
    u64 n = 2 * bench_llc_bytes() / MAX(bytes_each, 1) + 1;
    l->n_copies = (u32)MIN(n, (u64)MAX_COPIES);
}

static u64 matrix_bytes(const struct lab *l)
{
    u64 n = 0;
    quant_bytes(l->s.type, (u64)l->s.n * l->s.m, &n);
    return n;
}

static void build_matmul(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, matrix_bytes(l));
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out =
            prog_matmul(l->p, "y", l->x, add_weight(l, l->s.n, l->s.m, 1, l->s.type), NO_WEIGHT);
}

static struct operand rms(struct lab *l, struct operand x, u32 w)
{
    return prog_norm(l->p, "normed", x,
                     (struct norm_spec){.kind = NORM_RMS, .eps = 1e-5f, .w = w, .b = NO_WEIGHT});
}

static void build_norm_matmul(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, matrix_bytes(l));
    l->first = l->p->n_ops;
    u32 norm = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_matmul(l->p, "y", rms(l, l->x, norm),
                             add_weight(l, l->s.n, l->s.m, 1, l->s.type), NO_WEIGHT);
}

static void build_gate_up_glu(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, 2 * matrix_bytes(l));
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; i++) {
        u32 wg = add_weight(l, l->s.n, l->s.m, 1, l->s.type);
        u32 wu = add_weight(l, l->s.n, l->s.m, 1, l->s.type);
        struct operand g = prog_matmul(l->p, "gate", l->x, wg, NO_WEIGHT);
        struct operand u = prog_matmul(l->p, "up", l->x, wu, NO_WEIGHT);
        l->out = prog_glu(l->p, "y", g, u);
    }
}

static void build_norm(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    l->first = l->p->n_ops;
    l->n_copies = MAX_COPIES;
    u32 w = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; i++) l->out = rms(l, l->x, w);
}

static void build_rope(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.heads * l->s.head);
    l->first = l->p->n_ops;
    l->n_copies = MAX_COPIES;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_rope(l->p, "y", ROPE_NEOX, l->s.heads, l->x);
}

static struct operand add_route(struct lab *l, struct operand z, struct operand *weights)
{
    struct operand ids;
    prog_route(l->p, z,
               (struct route_spec){.kind = ROUTE_SOFTMAX,
                                   .n_used = l->s.used,
                                   .normalise = true,
                                   .floor = 6.1e-5f,
                                   .scale = 1,
                                   .bias = NO_WEIGHT},
               &ids, weights);
    return ids;
}

static void build_route(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.experts);
    l->first = l->p->n_ops;
    l->n_copies = MAX_COPIES;
    for (u32 i = 0; i < l->n_copies; i++) add_route(l, l->x, &l->out);
}

static void build_experts(struct lab *l)
{
    struct operand weights;
    l->varied = true;
    l->s.depth = VARIED_ROWS;
    l->x = prog_import_hidden(l->p, l->s.n + l->s.experts);
    struct operand ids = add_route(l, prog_cols(l->p, l->x, l->s.n, l->s.experts), &weights);
    begin_copies(l, matrix_bytes(l) * l->s.experts);
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_matmul_experts(l->p, "y", prog_cols(l->p, l->x, 0, l->s.n), ids,
                                     add_weight(l, l->s.n, l->s.m, l->s.experts, l->s.type), false);
}

static void build_attention(struct lab *l)
{
    u32 q = l->s.heads * l->s.head, kv = l->s.kv_heads * l->s.head;
    u32 value = l->net->profile.kv == QT_F16 ? 2 : 4;
    l->x = prog_import_hidden(l->p, q + 2 * kv);
    begin_copies(l, (u64)(l->s.depth + l->s.t) * 2 * kv * value);
    for (u32 i = 0; i < l->n_copies; i++)
        prog_kv_store(l->p, net_kv(l->net, kv, kv), prog_cols(l->p, l->x, q, kv),
                      prog_cols(l->p, l->x, q + kv, kv));
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_attention(l->p, "y", i, l->s.heads, l->s.kv_heads,
                                prog_cols(l->p, l->x, 0, q), 1 / sqrtf((float)l->s.head));
}

static void build_latent_attention(struct lab *l)
{
    u32 wide = l->s.head + l->s.rope, q = l->s.heads * wide;
    u32 value = l->net->profile.kv == QT_F16 ? 2 : 4;
    l->x = prog_import_hidden(l->p, q + wide);
    begin_copies(l, (u64)(l->s.depth + l->s.t) * wide * value);
    for (u32 i = 0; i < l->n_copies; i++)
        prog_kv_store(l->p, net_kv(l->net, wide, 0), prog_cols(l->p, l->x, q, wide),
                      (struct operand){.buf = NO_BUF});
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_latent_attention(l->p, "y", i, l->s.heads, l->s.head,
                                       prog_cols(l->p, l->x, 0, q), 1 / sqrtf((float)wide));
}

static void build_wkv7(struct lab *l)
{
    struct operand c[6];
    u32 n = l->s.n, head = l->s.head;
    l->x = prog_import_hidden(l->p, 6 * n);
    for (u32 i = 0; i < 6; i++) c[i] = prog_cols(l->p, l->x, i * n, n);
    c[1] = prog_act(l->p, "w", ACT_DECAY, c[1]);
    c[4] = prog_norm(
        l->p, "kk", c[4],
        (struct norm_spec){
            .kind = NORM_L2, .group = head, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT});
    c[5] = prog_act(l->p, "a", ACT_SIGMOID, c[5]);
    begin_copies(l, (u64)n * head * sizeof(float));
    l->first = l->p->n_ops;
    l->whole = true;
    for (u32 i = 0; i < l->n_copies; i++)
        l->out = prog_wkv7(l->p, "y", net_state(l->net, n * head), head, c[0], c[1], c[2], c[3],
                           c[4], c[5]);
}

static const struct kernel {
    const char *name;
    void (*build)(struct lab *l);
    struct shape s;
    double tolerance; /* largest difference over the largest value */
} kernels[] = {
    {"matvec", build_matmul, {.n = 2048, .m = 8192, .t = 1, .type = QT_Q8_0}, 1e-4},
    {"matmul", build_matmul, {.n = 2048, .m = 8192, .t = 512, .type = QT_Q8_0}, 1e-4},
    {"norm+matmul", build_norm_matmul, {.n = 2048, .m = 2048, .t = 1, .type = QT_Q8_0}, 2e-2},
    {"gate+up+glu", build_gate_up_glu, {.n = 2048, .m = 8192, .t = 1, .type = QT_Q8_0}, 1e-4},
    {"attention",
     build_attention,
     {.t = 1, .heads = 32, .kv_heads = 8, .head = 64, .depth = 2048},
     1e-3},
    {"latent_attention",
     build_latent_attention,
     {.t = 1, .heads = 20, .head = 512, .rope = 64, .depth = 2048},
     1e-3},
    {"norm", build_norm, {.n = 2048, .t = 1}, 1e-5},
    {"rope", build_rope, {.t = 1, .heads = 32, .head = 64, .depth = 100}, 1e-5},
    {"route", build_route, {.t = 1, .experts = 64, .used = 4}, 1e-5},
    {"experts",
     build_experts,
     {.n = 2048, .m = 1536, .t = 1, .experts = 64, .used = 4, .type = QT_Q4_K},
     1e-4},
    {"wkv7", build_wkv7, {.n = 1024, .t = 1, .head = 64}, 1e-4},
};

/* ---- shapes ---- */

static const struct {
    const char *key;
    size_t field;
    u32 max;
} shape_keys[] = {
    {"n", offsetof(struct shape, n), 1 << 17},
    {"m", offsetof(struct shape, m), 1 << 18},
    {"t", offsetof(struct shape, t), 4096},
    {"heads", offsetof(struct shape, heads), 1024},
    {"kv_heads", offsetof(struct shape, kv_heads), 1024},
    {"head", offsetof(struct shape, head), 2048},
    {"rope", offsetof(struct shape, rope), 2048},
    {"depth", offsetof(struct shape, depth), 1 << 18},
    {"experts", offsetof(struct shape, experts), 1024},
    {"used", offsetof(struct shape, used), 1024},
};

static u32 *shape_field(struct shape *s, size_t i)
{
    return (u32 *)(void *)((char *)s + shape_keys[i].field);
}

static int set_key(struct shape *s, const char *key, const char *value, struct err *err)
{
    if (strcmp(key, "type") == 0) {
        bool known = quant_by_name(str_of(value), &s->type) && quant_info(s->type)->readable;
        return known ? 0
                     : err_set(err, FLETCH_E_ARG, "shape: %s is not a storage type",
                               QUOTE(str_of(value)));
    }
    for (size_t i = 0; i < ARRAY_LEN(shape_keys); i++) {
        char *end;
        if (strcmp(key, shape_keys[i].key) != 0) continue;
        unsigned long v = strtoul(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || v > shape_keys[i].max)
            return err_set(err, FLETCH_E_ARG, "shape: %s is not a number of 0..%u for %s",
                           QUOTE(str_of(value)), shape_keys[i].max, key);
        *shape_field(s, i) = (u32)v;
        return 0;
    }
    return err_set(err, FLETCH_E_ARG,
                   "shape: unknown key %s (n, m, t, type, heads, kv_heads, head, rope, depth, "
                   "experts, used)",
                   QUOTE(str_of(key)));
}

/* "key=value,..." over the kernel's own shape; 0 where a kernel needs something is refused. */
static int parse_shape(struct shape *s, const struct kernel *k, const char *text, struct err *err)
{
    char copy[256], *save = NULL;
    int rc = 0;
    *s = k->s;
    if (text && strlen(text) >= sizeof copy)
        return err_set(err, FLETCH_E_ARG, "shape: more than %zu bytes", sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *w = strtok_r(copy, ",", &save); w && !rc; w = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(w, '=');
        if (!eq) return err_set(err, FLETCH_E_ARG, "shape: %s is not KEY=VALUE", QUOTE(str_of(w)));
        *eq = 0;
        rc = set_key(s, w, eq + 1, err);
    }
    for (size_t i = 0; i < ARRAY_LEN(shape_keys) && !rc; i++) {
        struct shape own = k->s;
        bool needed = *shape_field(&own, i) != 0, given = *shape_field(s, i) != 0;
        if (needed != given && strcmp(shape_keys[i].key, "depth") != 0)
            rc = err_set(err, FLETCH_E_ARG, "shape: %s %s %s", k->name, needed ? "needs" : "has no",
                         shape_keys[i].key);
    }
    if (rc) return rc;
    if (s->n % quant_info(s->type)->blk || (s->kv_heads && s->heads % s->kv_heads) ||
        (k->build == build_wkv7 && s->n % s->head) || s->used > s->experts || s->head % 2)
        return err_set(err, FLETCH_E_ARG, "shape: %s: sizes that don't divide each other", k->name);
    return 0;
}

static json_t *shape_report(const struct kernel *k, struct shape s)
{
    struct shape own = k->s;
    json_t *o = json_object();
    for (size_t i = 0; i < ARRAY_LEN(shape_keys); i++)
        if (*shape_field(&own, i))
            json_object_set_new(o, shape_keys[i].key,
                                json_integer((json_int_t)*shape_field(&s, i)));
    if (k->s.m) json_object_set_new(o, "type", json_string(quant_info(s.type)->name));
    return o;
}

/* ---- running ---- */

/* A program on an executor. */
struct bench_side {
    const struct exec_class *class;
    struct exec *x;
    struct step *step;
    u32 handle;
};

static void side_close(struct bench_side *side)
{
    if (side->x) side->class->close(side->x);
    step_close(side->step);
}

static int side_open(struct bench_side *side, const struct exec_class *class, const struct lab *l,
                     const struct program *p, u32 n_threads, struct err *err)
{
    u32 n = l->s.depth + l->s.t;
    struct exec_limits limits = {.max_rows = MIN(MAX(l->s.t, 64u), class->max_rows),
                                 .max_out = 1,
                                 .n_slots = 1,
                                 .n_blocks = l->net->n_kv ? n / BLOCK_TOKENS + 1 : 0,
                                 .block_tokens = BLOCK_TOKENS,
                                 .max_pos = n};
    *side = (struct bench_side){.class = class};
    if (l->s.t > class->max_rows)
        return err_set(err, FLETCH_E_ARG, "shape: t=%u, but backend %s takes at most %u rows",
                       l->s.t, class->name, class->max_rows);
    int rc = class->open(&side->x, l->net, &limits, n_threads, err);
    for (u32 i = 0; i < l->net->n_weights && !rc; i++) rc = class->weight(side->x, i, err);
    if (!rc) rc = class->load(side->x, p, &side->handle, err);
    if (!rc) rc = step_open(&side->step, l->net, &limits, err);
    for (u32 i = 0; !rc && i < limits.n_blocks; i++) side->step->tables[i] = i;
    return rc;
}

/* Ops [begin, end) for rows [row, row + n) of all that there are, depth included. */
static int side_run(struct bench_side *side, const struct lab *l, u32 row, u32 n, u32 begin,
                    u32 end, struct err *err)
{
    struct step *s = side->step;
    step_reset(s);
    if (row == 0) CHECK(step_edit(s, EDIT_ZERO_STATE, 0, 0));
    for (u32 i = 0; i < n; i++) CHECK(step_add(s, (struct row){0, 0, row + i, ROW_D}, false));
    step_prepare(s);
    s->hidden = l->hidden + (size_t)row * l->x.width;
    s->op_begin = begin;
    s->op_end = end;
    int rc = side->class->submit(side->x, side->handle, s, err);
    return rc ? rc : side->class->wait(side->x, err);
}

/* The cache up to the rows that are measured. */
static int side_fill(struct bench_side *side, const struct lab *l, struct err *err)
{
    int rc = 0;
    for (u32 at = 0; at < l->s.depth && !rc && l->net->n_kv;) {
        u32 n = MIN(l->s.depth - at, side->step->limits.max_rows);
        rc = side_run(side, l, at, n, 0, l->first, err);
        at += n;
    }
    return rc;
}

/* Runs rows [row, row + n) on the reference (the last copy only) and compares them with the same
 * rows of `got`, which starts at the first measured row. */
static int check_rows(struct bench_side *ref, const struct lab *l, u32 row, u32 n, const float *got,
                      double *worst, struct err *err)
{
    u32 last = l->p->n_ops - l->per_copy, width = l->out.width;
    float *want = malloc((size_t)n * width * sizeof *want);
    if (!want) return err_nomem(err, "the check");
    int rc = side_run(ref, l, l->s.depth + row, n, 0, l->first, err);
    if (!rc) rc = side_run(ref, l, l->s.depth + row, n, last, l->p->n_ops, err);
    if (!rc) rc = ref->class->read(ref->x, ref->handle, l->out, 0, n, want, err);
    double scale = 1e-30, d = 0;
    for (size_t i = 0; !rc && i < (size_t)n * width; i++)
        scale = fmax(scale, fabs((double)want[i]));
    for (size_t i = 0; !rc && i < (size_t)n * width; i++) {
        double e = fabs((double)got[(size_t)row * width + i] - (double)want[i]);
        d = isfinite(e) ? fmax(d, e) : INFINITY;
    }
    *worst = fmax(*worst, d / scale);
    free(want);
    return rc;
}

static int check(struct bench_side *side, struct bench_side *ref, const struct lab *l,
                 double *worst, struct err *err)
{
    u32 t = l->s.t, n = l->whole ? t : MIN(t, (u32)CHECKED_ROWS);
    float *got = malloc((size_t)t * l->out.width * sizeof *got);
    if (!got) return err_nomem(err, "the check");
    int rc = side_run(side, l, l->s.depth, t, 0, UINT32_MAX, err);
    if (!rc) rc = side->class->read(side->x, side->handle, l->out, 0, t, got, err);
    if (!rc) rc = check_rows(ref, l, 0, n, got, worst, err);
    if (!rc && n < t) rc = check_rows(ref, l, t - n, n, got, worst, err);
    free(got);
    return rc;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one copy, median and best of n_reps, each at least as long as a clock can tell. */
static int time_copies(struct bench_side *side, const struct lab *l, u32 n_reps, double out[2],
                       struct err *err)
{
    double *all = calloc(n_reps, sizeof *all);
    int rc = all ? 0 : err_nomem(err, "the samples");
    for (u32 i = 0, n_runs = 0; i < n_reps && !rc; i++) {
        double took = 0;
        u32 n = 0;
        while (!rc && took < 0.02) {
            u32 row = l->varied ? 7 * n_runs++ % l->s.depth : l->s.depth;
            if (l->varied) rc = side_run(side, l, row, l->s.t, 0, l->first, err);
            double began = bench_now();
            if (!rc) rc = side_run(side, l, row, l->s.t, l->first, UINT32_MAX, err);
            took += bench_now() - began;
            n++;
        }
        all[i] = took / n / l->n_copies;
    }
    if (!rc) {
        qsort(all, n_reps, sizeof *all, by_size);
        out[0] = all[n_reps / 2];
        out[1] = all[0];
    }
    free(all);
    return rc;
}

static void add_speed(json_t *o, const struct lab *l, const struct step *s, const double seconds[2],
                      const struct bench_machine *machine)
{
    double bytes = 0, flops = 0;
    for (u32 i = l->first; i < l->first + l->per_copy; i++) {
        const struct op *op = &l->p->ops[i];
        bytes += (double)prog_op_bytes(l->p, op, l->s.t) + bench_memory_bytes(l->net, op, s);
        flops += bench_op_flops(l->net, op) * l->s.t +
                 bench_op_flops_per_position(op) * l->s.t * (l->s.depth + (l->s.t + 1) * 0.5);
    }
    double gbs = bytes / seconds[0] * 1e-9, gflops = flops / seconds[0] * 1e-9;
    json_object_update_new(o,
                           json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "us", seconds[0] * 1e6,
                                     "us_best", seconds[1] * 1e6, "bytes", bytes, "gb_s", gbs,
                                     "bandwidth_share", gbs / machine->read_gbs, "gflop_s", gflops,
                                     "flop_share", gflops / machine->fma_gflops));
}

struct plan_of_kernels {
    const struct exec_class *class, *against;
    u32 n_threads, n_reps;
    const struct bench_machine *machine;
};

static int run_form(const struct plan_of_kernels *plan, const struct kernel *k, const struct lab *l,
                    const struct program *p, const char *form, json_t *list, struct err *err)
{
    struct bench_side side = {0}, ref = {0};
    double worst = 0, seconds[2] = {0};
    int rc = side_open(&side, plan->class, l, p, plan->n_threads, err);
    if (!rc) rc = side_open(&ref, plan->against, l, l->p, 1, err);
    if (!rc) rc = side_fill(&side, l, err);
    if (!rc) rc = side_fill(&ref, l, err);
    if (!rc) rc = check(&side, &ref, l, &worst, err);
    bool ok = worst <= k->tolerance;
    if (!rc && ok) rc = time_copies(&side, l, plan->n_reps, seconds, err);
    if (!rc) {
        json_t *o = json_pack("{s:s, s:s, s:o, s:b, s:f, s:f}", "kernel", k->name, "form", form,
                              "shape", shape_report(k, l->s), "ok", ok, "difference",
                              isfinite(worst) ? worst : 1e30, "tolerance", k->tolerance);
        if (ok) add_speed(o, l, side.step, seconds, plan->machine);
        json_array_append_new(list, o);
    }
    side_close(&side);
    side_close(&ref);
    return rc;
}

static int fill_hidden(struct lab *l, struct err *err)
{
    size_t n = (size_t)(l->s.depth + l->s.t) * l->x.width;
    l->hidden = malloc(n * sizeof *l->hidden);
    if (!l->hidden) return err_nomem(err, "the input");
    synth_fill(QT_F32, 7, (struct synth_range){0, 1}, 0, n, (u8 *)l->hidden);
    return 0;
}

static int lab_open(struct lab *l, const struct kernel *k, const struct exec_class *class,
                    struct err *err)
{
    int rc = net_open(&l->net, err);
    if (rc) return rc;
    l->net->profile = (struct profile){.kv = class->kv, .int8 = class->int8};
    if (k->build == build_rope) {
        l->net->rope = (struct rope_table){
            l->s.head, arena_alloc(&l->net->arena, l->s.head / 2, sizeof(double)), 1};
        if (!l->net->rope.freq) return err_nomem(err, "the rotary table");
        for (u32 i = 0; i < l->s.head / 2; i++)
            l->net->rope.freq[i] = pow(10000, -2.0 * i / l->s.head);
    }
    if ((rc = prog_open(&l->p, l->net, k->name, err))) return rc;
    k->build(l);
    l->per_copy = (l->p->n_ops - l->first) / MAX(l->n_copies, 1);
    l->net->d_model = l->x.width;
    if ((rc = prog_finish(l->p, l->out, l->x, err))) return rc;
    return fill_hidden(l, err);
}

static void lab_close(struct lab *l)
{
    prog_close(l->p);
    net_close(l->net);
    for (u32 i = 0; i < l->n_data; i++) free(l->data[i]);
    free(l->hidden);
}

static int run_kernel(const struct plan_of_kernels *plan, const struct kernel *k, const char *shape,
                      json_t *list, struct err *err)
{
    struct lab l = {0};
    struct program *fused = NULL;
    int rc = parse_shape(&l.s, k, shape, err);
    if (!rc) rc = lab_open(&l, k, plan->class, err);
    if (!rc) rc = prog_fuse(&fused, l.p, plan->class->fused, err);
    if (!rc) rc = run_form(plan, k, &l, l.p, "unfused", list, err);
    if (!rc && fused->n_ops < l.p->n_ops) rc = run_form(plan, k, &l, fused, "fused", list, err);
    prog_close(fused);
    lab_close(&l);
    return rc;
}

int bench_kernel_run(json_t **out, const struct exec_class *class, const struct exec_class *against,
                     u32 n_threads, const char *name, const char *shape, u32 n_reps,
                     const struct bench_machine *machine, struct err *err)
{
    struct plan_of_kernels plan = {class, against, n_threads, n_reps, machine};
    bool all = strcmp(name, "all") == 0, found = false;
    json_t *list = json_array();
    int rc = 0;
    *out = NULL;
    if (all && shape) rc = err_set(err, FLETCH_E_ARG, "a shape belongs to one kernel, not to all");
    for (size_t i = 0; i < ARRAY_LEN(kernels) && !rc; i++) {
        if (!all && strcmp(name, kernels[i].name) != 0) continue;
        found = true;
        rc = run_kernel(&plan, &kernels[i], shape, list, err);
    }
    if (!rc && !found)
        rc = err_set(err, FLETCH_E_ARG,
                     "unknown kernel %s (matvec, matmul, norm+matmul, gate+up+glu, attention, "
                     "latent_attention, norm, rope, route, experts, wkv7 or all)",
                     QUOTE(str_of(name)));
    if (rc)
        json_decref(list);
    else
        *out = list;
    return rc;
}
