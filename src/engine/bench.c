/* Runs a model at chosen sizes and says how fast it was. Sequences are rewound rather than fed
 * again: a cache position that holds something of an earlier run is as good to read as another.
 * Cases take turns, one run each, so that what changes on the machine meets all of them. */
#include "engine/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "engine/report.h"

const char *const bench_mode_names[3] = {"prefill", "decode", "full"};

/* ---- sequences ---- */

int bench_open(struct bench *b, struct fletch_model *m, struct err *err)
{
    *b = (struct bench){.model = m};
    b->seqs = calloc(m->limits.n_slots, sizeof *b->seqs);
    int rc = b->seqs ? 0 : err_nomem(err, "the bench");
    for (u32 i = 0; !rc && i < ARRAY_LEN(b->steps); i++)
        rc = pending_step_open(&b->steps[i], &m->limits, err);
    return rc;
}

void bench_close(struct bench *b)
{
    free(b->seqs);
    for (u32 i = 0; i < ARRAY_LEN(b->steps); i++) pending_step_close(&b->steps[i]);
}

/* Any token will do, but not always the same: routed experts depend on it. */
static i32 next_token(struct bench *b)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (i32)((b->random >> 33) % b->model->m->hp.n_vocab);
}

int bench_fill_step(struct bench *b, u32 *seq, u32 n_seqs, u32 end, enum row_class cls,
                    struct err *err)
{
    struct fletch_model *m = b->model;
    struct step *step = m->step;
    step_reset(step);
    for (; *seq < n_seqs; ++*seq) {
        struct bench_seq *s = &b->seqs[*seq];
        u32 *table = step->tables + (size_t)*seq * step->table_len;
        u32 n = MIN(end - s->pos, m->limits.max_rows - step->n_rows);
        if (n && s->pos == 0) CHECK(step_edit(step, EDIT_ZERO_STATE, *seq, 0));
        if (m->limits.n_blocks && !kv_cover(&m->kv, table, &s->n_blocks, (u64)s->pos + n))
            return err_set(err, FLETCH_E_CONTEXT, "no cache blocks are left");
        for (u32 i = 0; i < n; i++, s->pos++)
            if (!step_add(step, (struct row){next_token(b), *seq, s->pos, cls}, s->pos + 1 == end))
                break; /* no room for its logits: the next step takes it */
        s->filled = MAX(s->filled, s->pos);
        if (s->pos < end) break;
    }
    return 0;
}

/* Waits for the tokens that a step chose, as a generation would. */
static int land(struct bench *b, struct pending_step *f, struct err *err)
{
    int rc = step_queue_wait(&b->model->queue, f, err);
    for (u32 i = 0; !rc && i < f->n_out; i++) {
        b->random += (u32)f->ids[i]; /* a use for it */
        if (f->ids[i] < 0)
            rc = err_set(err, FLETCH_E_INTERNAL, "the logits are not finite; try fletch verify");
    }
    return rc;
}

/* Takes the first n_seqs sequences to position end, in as few steps as there are. */
static int advance(struct bench *b, u32 n_seqs, u32 end, enum row_class cls, double *seconds,
                   struct err *err)
{
    int rc = 0;
    for (u32 seq = 0; seq < n_seqs && !rc;) {
        double began = base_now();
        rc = bench_fill_step(b, &seq, n_seqs, end, cls, err);
        if (!rc && b->model->step->n_rows == 0) break; /* they stand there already */
        if (!rc) rc = step_queue_submit(&b->model->queue, b->steps, NULL, err);
        if (!rc) rc = land(b, b->steps, err);
        *seconds += base_now() - began;
        b->n_steps++;
        bench_account(b, 1);
    }
    return rc;
}

int bench_rewind(struct bench *b, u32 n_seqs, u32 depth, struct err *err)
{
    double unused = 0;
    for (u32 i = 0; i < n_seqs; i++) b->seqs[i].pos = MIN(depth, b->seqs[i].filled);
    return advance(b, n_seqs, depth, ROW_P, &unused, err);
}

/* ---- what a step costs ---- */

u64 bench_placed_bytes(const struct exec_class *class, const struct program *p, const struct op *op,
                       u32 n_rows)
{
    u64 file = 0, placed = 0;
    for (u32 i = 0; i < op->n_w; i++) {
        if (op->w[i] == NO_WEIGHT) continue;
        const struct weight *w = &p->net->weights[op->w[i]];
        file += w->n_bytes;
        placed += class->weight_bytes ? class->weight_bytes(w) : w->n_bytes;
    }
    double part = file ? (double)prog_op_bytes(p, op, n_rows) / (double)file : 0;
    return (u64)(part * (double)placed);
}

static bool attends(const struct op *op)
{
    return op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
}

double bench_memory_bytes(const struct net *net, const struct op *op, const struct step *s)
{
    double sum = 0;
    if (op->kind == OP_RECURRENCE || op->kind == OP_TOKEN_SHIFT) {
        double width = net->states[op->p.rec.state].width;
        for (u32 t = 0; t < s->n_rows; t++)
            if (s->prev[t] < 0) sum += 2 * sizeof(float) * width;
    }
    if (!attends(op)) return sum;
    double row = (double)exec_kv_row(net, op->p.attn.kv).bytes;
    for (u32 t = 0; t < s->n_rows; t++) { /* the last row of a sequence sees what all see */
        bool last = t + 1 == s->n_rows || s->rows[t + 1].slot != s->rows[t].slot;
        if (last) sum += row * (s->rows[t].pos + 1);
    }
    return sum;
}

void bench_account(struct bench *b, double n_steps)
{
    const struct fletch_model *m = b->model;
    const struct program *p = m->trunk;
    const struct step *s = m->step;
    double positions = 0;
    for (u32 t = 0; t < s->n_rows; t++) positions += s->rows[t].pos + 1;
    for (u32 i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->ops[i];
        bool out = op->n_out && p->bufs[op->out[0].buf].rows == ROWS_R;
        u32 rows = out ? s->n_out : s->n_rows;
        if (rows == 0) continue;
        double memory = bench_memory_bytes(p->net, op, s);
        b->bytes += n_steps * ((double)prog_op_bytes(p, op, rows) + memory);
        b->placed += n_steps * ((double)bench_placed_bytes(m->engine->class, p, op, rows) + memory);
        b->flops += n_steps *
                    (prog_op_flops(p->net, op) * rows + prog_op_flops_per_position(op) * positions);
    }
}

/* ---- cases ---- */

struct series {
    double *p;
    size_t n, cap;
};

static int series_add(struct series *s, double v, struct err *err)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        double *p = realloc(s->p, cap * sizeof *p);
        if (!p) return err_nomem(err, "the bench");
        s->p = p;
        s->cap = cap;
    }
    s->p[s->n++] = v;
    return 0;
}

struct result {
    struct bench_case c;
    struct series seconds, first, latency; /* per run, per run, per generated token */
    double bytes, placed, flops;           /* of one run */
    double launches, waits;                /* per step, as the executor counted */
    u64 n_steps, n_ahead; /* of generations; queued before the one before was read */
    double idle;          /* seconds between them with nothing queued */
};

/* An executor that counts nothing does one wait a step. */
static struct exec_counters counters_of(const struct bench *b)
{
    struct exec_counters c = {.waits = b->n_steps};
    const struct exec *x = b->model->x;
    if (x->class->counters) x->class->counters(x, &c);
    return c;
}

/* The step in which all sequences of a case get to position end. */
static int queue_token(struct bench *b, const struct bench_case *c, u32 end, struct pending_step *f,
                       const struct pending_step *after, struct err *err)
{
    u32 seq = 0;
    int rc = bench_fill_step(b, &seq, c->batch, end, ROW_D, err);
    b->n_steps++;
    return rc ? rc : step_queue_submit(&b->model->queue, f, after, err);
}

/* Generates n tokens from position `at` on, as a batch does it: where steps may be queued ahead,
 * the next one is before the last one is read. A step's time is that from landing to landing; what
 * steps read and compute grows evenly, so the first and the last tell it. */
static int generate(struct bench *b, struct result *r, u32 at, u32 n, bool keep, double *seconds,
                    struct err *err)
{
    struct step_queue *l = &b->model->queue;
    u64 n_ahead = l->n_ahead;
    double idle = 0, last = base_now();
    int rc = 0;
    for (u32 i = 0; i <= n && !rc; i++) {
        struct pending_step *f = &b->steps[i % 2], *before = i ? &b->steps[(i + 1) % 2] : NULL;
        if (i < n && l->ahead) rc = queue_token(b, &r->c, at + i + 1, f, before, err);
        if (!rc && before) {
            rc = land(b, before, err);
            double now = base_now();
            if (!rc && keep) rc = series_add(&r->latency, now - last, err);
            *seconds += now - last;
            last = now;
        }
        if (!rc && i < n && !l->ahead) rc = queue_token(b, &r->c, at + i + 1, f, NULL, err);
        if (rc || i) continue;
        double began = base_now();
        bench_account(b, n / 2.0);
        idle = l->idle;
        if (!l->x->class->queues) last += base_now() - began;
    }
    if (!rc) bench_account(b, n / 2.0);
    if (!keep) return rc;
    r->n_steps += n - 1;
    r->n_ahead += l->n_ahead - n_ahead;
    r->idle += l->idle - idle;
    return rc;
}

/* The same where a token takes several steps. */
static int generate_in_parts(struct bench *b, struct result *r, u32 at, u32 n, bool keep,
                             double *seconds, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < n && !rc; i++) {
        double step = 0;
        rc = advance(b, r->c.batch, at + i + 1, ROW_D, &step, err);
        *seconds += step;
        if (!rc && keep) rc = series_add(&r->latency, step, err);
    }
    return rc;
}

static int run_once(struct bench *b, struct result *r, bool keep, struct err *err)
{
    const struct bench_case *c = &r->c;
    double seconds = 0;
    u32 end = c->depth + c->n_prompt, n_gen = keep ? c->n_gen : MIN(c->n_gen, 4u);
    int rc = bench_rewind(b, c->batch, c->depth, err);
    b->bytes = b->placed = b->flops = 0;
    b->n_steps = 0;
    struct exec_counters before = counters_of(b);
    if (!rc && c->n_prompt) rc = advance(b, c->batch, end, ROW_P, &seconds, err);
    if (!rc && c->n_prompt && keep) rc = series_add(&r->first, seconds, err);
    if (!rc && n_gen)
        rc = (c->batch <= b->model->limits.max_out ? generate : generate_in_parts)(
            b, r, end, n_gen, keep, &seconds, err);
    if (!keep || rc) return rc;
    r->bytes = b->bytes;
    r->placed = b->placed;
    r->flops = b->flops;
    struct exec_counters after = counters_of(b);
    r->launches = (double)(after.launches - before.launches) / (double)b->n_steps;
    r->waits = (double)(after.waits - before.waits) / (double)b->n_steps;
    return series_add(&r->seconds, seconds, err);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, by linear interpolation; q from 0 to 1. */
static double quantile(const struct series *s, double q)
{
    double at = q * (double)(s->n - 1);
    size_t i = (size_t)at;
    double next = s->p[MIN(i + 1, s->n - 1)];
    return s->p[i] + (at - (double)i) * (next - s->p[i]);
}

static json_t *latency_report(struct series *s)
{
    json_t *all = json_array();
    qsort(s->p, s->n, sizeof *s->p, by_size);
    for (u32 i = 0; i <= 100; i++)
        json_array_append_new(all, json_real(1e3 * quantile(s, i / 100.0)));
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "n", (json_int_t)s->n, "p50",
                     1e3 * quantile(s, 0.5), "p95", 1e3 * quantile(s, 0.95), "p99",
                     1e3 * quantile(s, 0.99), "max", 1e3 * s->p[s->n - 1], "percentiles", all);
}

static json_t *result_report(struct result *r, const struct bench_machine *m, u32 n_ops)
{
    const struct bench_case *c = &r->c;
    double tokens = (double)(c->n_prompt + c->n_gen) * c->batch;
    json_t *samples = json_array();
    for (size_t i = 0; i < r->seconds.n; i++)
        json_array_append_new(samples, json_real(tokens / r->seconds.p[i]));
    qsort(r->seconds.p, r->seconds.n, sizeof(double), by_size);
    double s = quantile(&r->seconds, 0.5), gbs = r->bytes / s * 1e-9, gflops = r->flops / s * 1e-9;
    json_t *o = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "mode", bench_mode_names[c->mode],
        "n_prompt", (json_int_t)c->n_prompt, "n_gen", (json_int_t)c->n_gen, "depth",
        (json_int_t)c->depth, "batch", (json_int_t)c->batch, "tokens_per_s", tokens / s, "best",
        tokens / r->seconds.p[0], "worst", tokens / r->seconds.p[r->seconds.n - 1], "spread",
        (quantile(&r->seconds, 0.75) - quantile(&r->seconds, 0.25)) / s, "samples", samples);
    json_object_update_new(o,
                           json_pack("{s:f, s:f, s:f, s:f, s:f}", "active_bytes", r->bytes / tokens,
                                     "placed_bytes", r->placed / tokens, "gb_s", gbs,
                                     "flop_per_token", r->flops / tokens, "gflop_s", gflops));
    if (r->launches > 0)
        bench_add_gpu_share(o, m, gbs);
    else
        bench_add_shares(o, m, gbs, gflops);
    if (r->first.n) {
        qsort(r->first.p, r->first.n, sizeof(double), by_size);
        json_object_set_new(o, "first_token_ms", json_real(1e3 * quantile(&r->first, 0.5)));
    }
    if (r->latency.n) {
        json_object_set_new(o, "latency_ms", latency_report(&r->latency));
        json_object_set_new(o, "ops_per_step", json_integer((json_int_t)n_ops));
        json_object_set_new(o, "waits_per_token", json_real(r->waits / c->batch));
    }
    if (r->n_steps) {
        double n = (double)r->n_steps;
        json_object_set_new(o, "ahead_share", json_real((double)r->n_ahead / n));
        json_object_set_new(o, "gap_us", json_real(1e6 * r->idle / n));
    }
    if (r->launches > 0) json_object_set_new(o, "launches_per_step", json_real(r->launches));
    return o;
}

/* ---- the whole ---- */

struct run {
    struct fletch_engine *e;
    const struct fletch_bench *params;
    struct bench b;
    struct result *results;
    u32 n_results;
    u32 n_ctx, n_seqs; /* that the cases need */
    double load_s;
    u64 peak_rss;
};

static int add_case(struct run *r, struct bench_case c, struct err *err)
{
    u64 end = (u64)c.depth + c.n_prompt + c.n_gen;
    if (end > ENGINE_MAX_CTX)
        return err_set(err, FLETCH_E_ARG, "depth %u, prompt %u and answer %u exceed %u tokens",
                       c.depth, c.n_prompt, c.n_gen, (u32)ENGINE_MAX_CTX);
    if (c.batch == 0 || c.batch > 1024)
        return err_set(err, FLETCH_E_ARG, "a batch must have 1 to 1024 sequences");
    if (end == c.depth) return 0; /* no tokens: that mode is left out */
    struct result *p = realloc(r->results, (r->n_results + 1) * sizeof *p);
    if (!p) return err_nomem(err, "the cases");
    r->results = p;
    p[r->n_results++] = (struct result){.c = c};
    r->n_ctx = MAX(r->n_ctx, (u32)end);
    r->n_seqs = MAX(r->n_seqs, c.batch);
    return 0;
}

static int add_mode(struct run *r, enum bench_mode mode, struct fletch_counts prompts,
                    struct fletch_counts gens, struct fletch_counts depths, struct err *err)
{
    static const u32 one = 1;
    struct fletch_counts batches = r->params->batches;
    int rc = 0;
    if (r->params->modes && !(r->params->modes >> mode & 1)) return 0;
    if (!batches.n) batches = (struct fletch_counts){&one, 1};
    for (size_t b = 0; b < batches.n; b++)
        for (size_t d = 0; d < depths.n; d++)
            for (size_t p = 0; p < prompts.n; p++)
                for (size_t g = 0; g < gens.n && !rc; g++)
                    rc = add_case(r,
                                  (struct bench_case){mode, prompts.p[p], gens.p[g], depths.p[d],
                                                      batches.p[b]},
                                  err);
    return rc;
}

static int add_cases(struct run *r, struct err *err)
{
    static const u32 some_prompts[] = {128, 512}, some_gens[] = {64}, shallow[] = {256},
                     zero[] = {0};
    const struct fletch_bench *p = r->params;
    struct fletch_counts none = {zero, 1}, prompts = p->prompts, gens = p->gens;
    if (!prompts.n) prompts = (struct fletch_counts){some_prompts, ARRAY_LEN(some_prompts)};
    if (!gens.n) gens = (struct fletch_counts){some_gens, ARRAY_LEN(some_gens)};
    int rc = add_mode(r, BENCH_PREFILL, prompts, none, p->depths.n ? p->depths : none, err);
    if (!rc)
        rc = add_mode(r, BENCH_DECODE, none, gens,
                      p->depths.n ? p->depths : (struct fletch_counts){shallow, 1}, err);
    if (!rc) rc = add_mode(r, BENCH_FULL, prompts, gens, none, err);
    if (!rc && !r->n_results)
        rc = err_set(err, FLETCH_E_ARG,
                     "nothing to measure: both the prompt and the answer have 0 tokens");
    return rc;
}

static int open_model(struct run *r, const char *path, const struct fletch_model_params *given,
                      struct err *err)
{
    struct fletch_model_params params = given ? *given : (struct fletch_model_params){0};
    params.n_ctx = r->n_ctx;
    params.n_sessions = r->n_seqs;
    double began = base_now();
    int rc = path ? fletch_model_open(&r->b.model, r->e, path, &params)
                  : fletch_model_open_image(&r->b.model, r->e, r->params->image, r->params->n_image,
                                            &params);
    r->load_s = base_now() - began;
    return rc ? rc : bench_open(&r->b, r->b.model, err);
}

static int tell(const struct run *r, u64 done, u64 total, struct err *err)
{
    return err_progress(err, r->params->progress, r->params->ctx, done, total);
}

static int run_cases(struct run *r, u32 n_reps, struct err *err)
{
    int rc = 0;
    u64 done = 0, total = (u64)(n_reps + 1) * r->n_results;
    for (u32 rep = 0; rep <= n_reps && !rc; rep++) /* the first warms up */
        for (u32 i = 0; i < r->n_results && !rc; i++) {
            rc = run_once(&r->b, &r->results[i], rep > 0, err);
            if (!rc) rc = tell(r, ++done, total, err);
        }
    r->peak_rss = os_peak_resident_bytes();
    return rc;
}

/* When it was measured: 2026-11-19T02:00:00Z. */
static json_t *date_report(void)
{
    char text[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

static json_t *head_report(const struct run *r, const char *path)
{
    const struct fletch_model *m = r->b.model;
    struct plan plan;
    struct fletch_model_info info;
    fletch_model_info(m, &info);
    plan_make(&plan, m->m, m->trunk, r->e->class, &m->limits, 0);
    return json_pack(
        "{s:s, s:o, s:{s:o, s:s, s:s, s:I, s:I, s:I}, s:s, s:s, s:I, s:I, s:I, s:s, s:f, s:I, "
        "s:I}",
        "version", fletch_version(), "date", date_report(), "model", "path",
        report_text(str_of(path ? path : "built-in")), "name", info.name, "arch", info.arch,
        "weight_bytes", (json_int_t)info.weight_bytes, "n_layers", (json_int_t)info.n_layers,
        "n_vocab", (json_int_t)info.n_vocab, "backend", r->e->class->name, "backend_why",
        fletch_engine_backend(r->e), "n_ctx", (json_int_t)m->limits.max_pos, "n_sessions",
        (json_int_t)m->limits.n_slots, "chunk", (json_int_t)m->limits.max_rows, "kv_type",
        cache_info[m->m->net->profile.kv].name, "load_s", r->load_s, "plan_bytes",
        (json_int_t)plan.total, "peak_rss", (json_int_t)r->peak_rss);
}

/* What the model's products are made of, and how much of it a step reads. */
static struct bench_use use_of(const struct fletch_model *m)
{
    const struct profile *p = &m->m->net->profile;
    struct bench_use use = {.isa = m->engine->class->isa, .bytes = model_weight_bytes(m->m)};
    for (u32 i = 0; i < m->m->net->n_weights; i++)
        if (quant_info(m->m->net->weights[i].type)->blk != 1 && p->int8) use.numbers = BENCH_INT8;
    if (p->bf16) use.numbers = BENCH_BF16;
    return use;
}

static int measure(struct run *r, const char *path, json_t **out, struct err *err)
{
    u32 n_reps = r->params->n_reps ? r->params->n_reps : 7;
    struct bench_machine machine;
    int rc = run_cases(r, n_reps, err);
    const struct bench_use use = use_of(r->b.model);
    if (!rc) rc = bench_measure_machine(&machine, r->e->n_threads, &use, err);
    if (!rc) rc = bench_measure_gpu(&machine, r->e->class, r->e->device, err);
    if (rc) return rc;
    json_t *results = json_array();
    for (u32 i = 0; i < r->n_results; i++)
        json_array_append_new(results,
                              result_report(&r->results[i], &machine, r->b.model->trunk->n_groups));
    *out = head_report(r, path);
    json_object_set_new(*out, "reps", json_integer((json_int_t)n_reps));
    json_object_set_new(*out, "machine", bench_machine_report(&machine));
    json_object_set_new(*out, "results", results);
    return 0;
}

static int profile(struct run *r, const char *path, json_t **out, struct err *err)
{
    u32 n_reps = r->params->n_reps ? r->params->n_reps : 7;
    json_t *profiles = json_array(), *events = json_array();
    int rc = 0;
    for (u32 i = 0; i < r->n_results && !rc; i++) {
        if (r->results[i].c.mode != BENCH_FULL) /* its parts are profiled already */
            rc = bench_profile(&r->b, &r->results[i].c, n_reps, profiles, events, err);
        if (!rc) rc = tell(r, i + 1, r->n_results, err);
    }
    *out = head_report(r, path);
    json_object_del(*out, "peak_rss");
    json_object_set_new(*out, "profiles", profiles);
    json_object_set_new(*out, "traceEvents", events);
    return rc;
}

int fletch_bench(struct fletch_engine *e, const char *path,
                 const struct fletch_model_params *params, const struct fletch_bench *bench,
                 char **json)
{
    static const struct fletch_bench all = {0};
    if (!bench) bench = &all;
    struct run r = {.e = e, .params = bench};
    json_t *doc = NULL;
    int rc = engine_need_report(e, path ? path : bench->image, json);
    if (!rc) rc = engine_need_all(&e->err, bench->prompts.p, bench->prompts.n, "prompts");
    if (!rc) rc = engine_need_all(&e->err, bench->gens.p, bench->gens.n, "gens");
    if (!rc) rc = engine_need_all(&e->err, bench->depths.p, bench->depths.n, "depths");
    if (!rc) rc = engine_need_all(&e->err, bench->batches.p, bench->batches.n, "batches");
    if (!rc) rc = engine_refuse_text_only(params, &e->err);
    if (rc) return rc;
    rc = add_cases(&r, &e->err);
    if (!rc) rc = open_model(&r, path, params, &e->err);
    if (!rc)
        rc = bench->profile ? profile(&r, path, &doc, &e->err) : measure(&r, path, &doc, &e->err);
    bench_close(&r.b);
    fletch_model_close(r.b.model);
    for (u32 i = 0; i < r.n_results; i++) {
        free(r.results[i].seconds.p);
        free(r.results[i].first.p);
        free(r.results[i].latency.p);
    }
    free(r.results);
    if (rc) json_decref(doc);
    return rc ? rc : report_give(doc, json, &e->err);
}

int fletch_bench_kernel(struct fletch_engine *e, const struct fletch_bench_kernel *k, char **json)
{
    struct bench_machine machine;
    json_t *kernels;
    int rc = engine_need_report(e, "", json);
    if (!rc) rc = engine_need(&e->err, k, "the parameters");
    if (!rc) rc = engine_need(&e->err, k->name, "the kernel's name");
    const struct exec_class *class = rc ? NULL : e->class;
    const struct bench_use use = {.isa = rc ? NULL : class->isa,
                                  .numbers = rc                               ? BENCH_F32
                                             : class->bf16 == BF16_EVERYWHERE ? BENCH_BF16
                                             : class->int8                    ? BENCH_INT8
                                                                              : BENCH_F32};
    if (!rc) rc = bench_measure_machine(&machine, e->n_threads, &use, &e->err);
    if (!rc) rc = bench_measure_gpu(&machine, class, e->device, &e->err);
    const struct exec_class *ref = rc ? NULL : backend_find("ref", NULL, &e->err);
    if (!rc)
        rc = bench_kernel_run(&kernels, class, ref, e->n_threads, k->name, k->shape,
                              k->n_reps ? k->n_reps : 7, &machine, &e->err);
    if (rc) return rc;
    return report_give(json_pack("{s:s, s:o, s:s, s:o, s:o}", "version", fletch_version(), "date",
                                 date_report(), "backend", class->name, "machine",
                                 bench_machine_report(&machine), "kernels", kernels),
                       json, &e->err);
}
