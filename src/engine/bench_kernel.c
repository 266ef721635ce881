/* Single kernels: a program is built of copies of one op, each with weights (or cache) of its own
 * so that together they don't fit into any cache, and runs on an executor. The first run's rows
 * are compared with the reference at the same profile; a kernel that is wrong gets no speed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bench_lab.h"
#include "gpu/gpu.h"
#include "model/synth.h"

enum {
    CHECKED_ROWS = 4, /* at the beginning and at the end of a step */
    BLOCK_TOKENS = 32,
};

/* ---- shapes ---- */

static const struct {
    const char *key;
    size_t field;
    u32 max;
} shape_keys[] = {
    {"n", offsetof(struct lab_shape, n), 1 << 17},
    {"m", offsetof(struct lab_shape, m), 1 << 18},
    {"t", offsetof(struct lab_shape, t), 4096},
    {"heads", offsetof(struct lab_shape, heads), 1024},
    {"kv_heads", offsetof(struct lab_shape, kv_heads), 1024},
    {"head", offsetof(struct lab_shape, head), 2048},
    {"rope", offsetof(struct lab_shape, rope), 2048},
    {"depth", offsetof(struct lab_shape, depth), 1 << 18},
    {"experts", offsetof(struct lab_shape, experts), 1024},
    {"used", offsetof(struct lab_shape, used), 1024},
};

static u32 *shape_field(struct lab_shape *s, size_t i)
{
    return (u32 *)(void *)((char *)s + shape_keys[i].field);
}

static int set_key(struct lab_shape *s, const char *key, const char *value, struct err *err)
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
            return err_set(err, FLETCH_E_ARG,
                           "shape: %s is not a number from 0 to %u, as %s must be",
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
static int parse_shape(struct lab_shape *s, const struct lab_kernel *k, const char *text,
                       struct err *err)
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
        struct lab_shape own = k->s;
        bool needed = *shape_field(&own, i) != 0, given = *shape_field(s, i) != 0;
        if (needed != given && strcmp(shape_keys[i].key, "depth") != 0)
            rc = err_set(err, FLETCH_E_ARG, "shape: %s %s %s", k->name, needed ? "needs" : "has no",
                         shape_keys[i].key);
    }
    if (rc) return rc;
    if (s->n % quant_info(s->type)->blk || (s->kv_heads && s->heads % s->kv_heads) ||
        (s->n && s->head && !s->heads && s->n % s->head) || s->used > s->experts || s->head % 2)
        return err_set(err, FLETCH_E_ARG, "shape: the sizes given for %s are inconsistent",
                       k->name);
    return 0;
}

static json_t *shape_report(const struct lab_kernel *k, struct lab_shape s)
{
    struct lab_shape own = k->s;
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
    u32 handle, first; /* first: groups before the copies */
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
                                 .max_out = l->samples ? MIN(l->s.t, (u32)ENGINE_MAX_OUT) : 1,
                                 .n_slots = 1,
                                 .n_blocks = l->net->n_kv ? n / BLOCK_TOKENS + 1 : 0,
                                 .block_tokens = BLOCK_TOKENS,
                                 .max_pos = n};
    *side = (struct bench_side){.class = class};
    while (p->groups[side->first].ops[0] < &p->ops[l->first]) side->first++;
    if (l->s.t > class->max_rows)
        return err_set(err, FLETCH_E_ARG, "shape: t=%u, but backend %s takes at most %u rows",
                       l->s.t, class->name, class->max_rows);
    int rc = class->open(&side->x, class, l->net, &limits, n_threads, err);
    for (u32 i = 0; i < l->net->n_weights && !rc; i++) rc = class->weight(side->x, i, err);
    if (!rc) rc = class->load(side->x, p, &side->handle, err);
    if (!rc) rc = step_open(&side->step, l->net, &limits, err);
    for (u32 i = 0; !rc && i < limits.n_blocks; i++) side->step->tables[i] = i;
    return rc;
}

/* Groups [begin, end) for rows [row, row + n) of all that there are, depth included. */
static int side_run(struct bench_side *side, const struct lab *l, u32 row, u32 n, u32 begin,
                    u32 end, struct err *err)
{
    struct step *s = side->step;
    enum row_class cls = l->s.t > 1 ? ROW_P : ROW_D;
    step_reset(s);
    if (row == 0) CHECK(step_edit(s, EDIT_ZERO_STATE, 0, 0));
    for (u32 i = 0; i < n; i++) {
        CHECK(step_add(s, (struct row){0, 0, row + i, cls}, l->samples));
        if (l->samples)
            s->sample[i] =
                (struct sample_row){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1};
    }
    step_prepare(s);
    s->hidden = l->hidden + (size_t)row * l->x.width;
    s->group_begin = begin;
    s->group_end = end;
    int rc = side->class->submit(side->x, side->handle, s, err);
    return rc ? rc : side->class->wait(side->x, err);
}

/* The cache up to the rows that are measured. */
static int side_fill(struct bench_side *side, const struct lab *l, struct err *err)
{
    int rc = 0;
    for (u32 at = 0; at < l->s.depth && !rc && l->net->n_kv;) {
        u32 n = MIN(l->s.depth - at, side->step->limits.max_rows);
        rc = side_run(side, l, at, n, 0, side->first, err);
        at += n;
    }
    return rc;
}

static double value_of(const struct lab *l, float x)
{
    i32 id;
    memcpy(&id, &x, sizeof id);
    return l->p->bufs[l->out.buf].is_int ? id : (double)x;
}

/* Runs rows [row, row + n) on the reference (the last copy only) and compares them with the same
 * rows of `got`, which starts at the first measured row. */
static int check_rows(struct bench_side *ref, const struct lab *l, u32 row, u32 n, const float *got,
                      double *worst, struct err *err)
{
    u32 last = l->p->n_ops - l->per_copy, width = l->out.width;
    float *want = malloc((size_t)n * width * sizeof *want);
    if (!want) return err_nomem(err, "the check");
    int rc = side_run(ref, l, l->s.depth + row, n, 0, ref->first, err);
    if (!rc) rc = side_run(ref, l, l->s.depth + row, n, last, l->p->n_ops, err);
    if (!rc) rc = ref->class->read(ref->x, ref->handle, l->out, 0, n, want, err);
    double scale = 1e-30, d = 0;
    for (size_t i = 0; !rc && i < (size_t)n * width; i++)
        scale = fmax(scale, fabs(value_of(l, want[i])));
    for (size_t i = 0; !rc && i < (size_t)n * width; i++) {
        double e = fabs(value_of(l, got[(size_t)row * width + i]) - value_of(l, want[i]));
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
    /* the last rows see all that are before them */
    if (!rc && l->net->n_kv) rc = side_run(ref, l, l->s.depth, t, 0, ref->first, err);
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

/* Seconds of one copy, over a time that a clock can tell. */
static int time_copies(struct bench_side *side, const struct lab *l, u32 *n_runs, double *out,
                       struct err *err)
{
    double took = 0;
    u32 n = 0;
    int rc = 0;
    while (!rc && took < 0.02) {
        u32 row = l->varied ? 7 * (*n_runs)++ % l->s.depth : l->s.depth;
        if (l->varied) rc = side_run(side, l, row, l->s.t, 0, side->first, err);
        double began = base_now();
        if (!rc) rc = side_run(side, l, row, l->s.t, side->first, UINT32_MAX, err);
        took += base_now() - began;
        n++;
    }
    *out = took / n / l->n_copies;
    return rc;
}

/* seconds: of n_reps runs, which are sorted here. */
static void add_speed(json_t *o, const struct lab *l, const struct step *s, double *seconds,
                      u32 n_reps, const struct bench_machine *machine, bool gpu)
{
    double bytes = 0, flops = 0;
    qsort(seconds, n_reps, sizeof *seconds, by_size);
    double mid = seconds[n_reps / 2];
    for (u32 i = l->first; i < l->first + l->per_copy; i++) {
        const struct op *op = &l->p->ops[i];
        bytes += (double)prog_op_bytes(l->p, op, l->s.t) + bench_memory_bytes(l->net, op, s);
        flops += prog_op_flops(l->net, op) * l->s.t +
                 prog_op_flops_per_position(op) * l->s.t * (l->s.depth + (l->s.t + 1) * 0.5);
    }
    if (l->samples) bytes += sizeof(float) * (double)l->s.n * l->s.t; /* nothing but logits */
    double gbs = bytes / mid * 1e-9, gflops = flops / mid * 1e-9;
    json_object_update_new(o, json_pack("{s:f, s:f, s:f, s:f, s:f}", "us", mid * 1e6, "us_best",
                                        seconds[0] * 1e6, "bytes", bytes, "gb_s", gbs, "gflop_s",
                                        gflops));
    if (gpu)
        bench_add_gpu_share(o, machine, gbs);
    else
        bench_add_shares(o, machine, gbs, gflops);
}

struct plan_of_kernels {
    const struct exec_class *class, *against;
    u32 n_threads, n_reps;
    const struct bench_machine *machine;
};

/* A kernel op by op or as one group, on the executor that is measured. */
struct form {
    const char *name;
    struct bench_side side;
    double worst;    /* difference from the reference */
    double *seconds; /* [n_reps] */
};

static int open_form(struct form *f, const struct plan_of_kernels *plan, const struct lab *l,
                     const struct program *p, struct bench_side *ref, struct err *err)
{
    int rc = side_open(&f->side, plan->class, l, p, plan->n_threads, err);
    if (!rc) rc = side_fill(&f->side, l, err);
    if (!rc) rc = check(&f->side, ref, l, &f->worst, err);
    f->seconds = calloc(plan->n_reps, sizeof *f->seconds);
    return rc || f->seconds ? rc : err_nomem(err, "the samples");
}

/* Forms that are right take turns. */
static int run_forms(const struct plan_of_kernels *plan, const struct lab_kernel *k,
                     const struct lab *l, const struct program *fused, json_t *list,
                     struct err *err)
{
    struct form forms[3] = {{.name = "unfused"}, {.name = "fused"}};
    struct bench_side ref = {0};
    u32 n = fused->n_groups < l->p->n_ops ? 2 : 1, n_runs = 0;
    bool ablates = gpu_driver_of(plan->class) && strcmp(k->name, "attention") == 0;
    if (ablates) {
        forms[1].name = "scores only";
        forms[2].name = "with softmax";
        n = 3;
    }
    int rc = side_open(&ref, plan->against, l, l->p, 1, err);
    if (!rc) rc = side_fill(&ref, l, err);
    for (u32 i = 0; i < n && !rc; i++)
        rc = open_form(&forms[i], plan, l, i && !ablates ? fused : l->p, &ref, err);
    for (u32 i = 1; i < n && !rc && ablates; i++) gpu_ablate(forms[i].side.x, i == 2);
    for (u32 rep = 0; rep < plan->n_reps && !rc; rep++)
        for (u32 i = 0; i < n && !rc; i++)
            if (forms[i].worst <= k->tolerance)
                rc = time_copies(&forms[i].side, l, &n_runs, &forms[i].seconds[rep], err);
    for (u32 i = 0; i < n; i++) {
        const struct form *f = &forms[i];
        bool ok = f->worst <= k->tolerance;
        if (!rc) {
            json_t *o = json_pack("{s:s, s:s, s:o, s:b, s:f, s:f}", "kernel", k->name, "form",
                                  f->name, "shape", shape_report(k, l->s), "ok", ok, "difference",
                                  isfinite(f->worst) ? f->worst : 1e30, "tolerance", k->tolerance);
            if (ok)
                add_speed(o, l, f->side.step, f->seconds, plan->n_reps, plan->machine,
                          plan->class->counters != NULL);
            json_array_append_new(list, o);
        }
        side_close(&forms[i].side);
        free(f->seconds);
    }
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

static int lab_open(struct lab *l, const struct lab_kernel *k, const struct exec_class *class,
                    struct err *err)
{
    int rc = net_open(&l->net, err);
    if (rc) return rc;
    if ((rc = engine_profile(&l->net->profile, class, NULL, err))) return rc;
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

static const struct rule *find_rule(const struct exec_class *class, const char *name)
{
    for (u32 i = 0; name && i < class->n_rules; i++)
        if (strcmp(class->rules[i].name, name) == 0) return &class->rules[i];
    return NULL;
}

static int run_kernel(const struct plan_of_kernels *plan, const struct lab_kernel *k,
                      const char *shape, json_t *list, struct err *err)
{
    struct lab l = {0};
    struct program *fused = NULL;
    int rc = parse_shape(&l.s, k, shape, err);
    if (!rc) rc = lab_open(&l, k, plan->class, err);
    const struct rule *rule = find_rule(plan->class, k->rule);
    if (!rc) rc = prog_group(&fused, l.p, rule, rule != NULL, err);
    if (!rc) rc = run_forms(plan, k, &l, fused, list, err);
    prog_close(fused);
    lab_close(&l);
    return rc;
}

/* A kernel in the shape that was asked for; attention without one in three contexts. */
static int run_shapes(const struct plan_of_kernels *plan, const struct lab_kernel *k,
                      const char *shape, bool all, json_t *list, struct err *err)
{
    static const char *const contexts[] = {"depth=256", "depth=2048", "depth=8192"};
    int rc = 0;
    if (shape || all || strcmp(k->name, "attention") != 0)
        return run_kernel(plan, k, shape, list, err);
    for (size_t i = 0; i < ARRAY_LEN(contexts) && !rc; i++)
        rc = run_kernel(plan, k, contexts[i], list, err);
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
    if (all && shape) rc = err_set(err, FLETCH_E_ARG, "--shape requires a single kernel, not all");
    for (const struct lab_kernel *k = lab_kernels; k->name && !rc; k++) {
        if (!all && strcmp(name, k->name) != 0) continue;
        found = true;
        rc = run_shapes(&plan, k, shape, all, list, err);
    }
    if (!rc && !found)
        rc = err_set(err, FLETCH_E_ARG,
                     "unknown kernel %s; fletch bench --kernel all lists and runs all kernels",
                     QUOTE(str_of(name)));
    if (rc)
        json_decref(list);
    else
        *out = list;
    return rc;
}
