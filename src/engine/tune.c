/* Finds how launches lie best on the device at hand (gpu/layout.h). The judge is a whole step: a
 * kernel's start overlaps the one before it, so what is best alone need not be best there, and
 * caches hold what they will hold. Site by site and axis by axis a layout replaces the one before
 * it when its slowest round is faster than the other's fastest, and only after what the site's
 * first and last op give has the same bits. */
#include "engine/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/bench.h"
#include "engine/report.h"

enum { DEFAULT_DEPTH = 256, DEFAULT_ROUNDS = 4, MAX_STEPS = 64 };

struct tuner {
    struct fletch_model *m;
    const struct fletch_tune *how;
    struct bench b;
    u32 batch, rounds, n_steps; /* n_steps: of a round */
    u8 *states;                 /* [batch] as they were before the step */
    u64 n_state;
    float *row;
    u32 n_tried, n_wrong; /* layouts; those with other bits */
    u64 done, total;      /* values to try, over all sites and batches */
    struct err *err;
};

/* ---- a step, again and again ---- */

/* A recurrent state goes on with every step. */
static int restore(struct tuner *t)
{
    int rc = 0;
    for (u32 i = 0; i < t->batch && t->n_state && !rc; i++)
        rc = step_queue_move(&t->m->queue, PART_STATE, i, NULL, t->states + i * t->n_state, t->err);
    return rc;
}

static int prepare(struct tuner *t, u32 depth)
{
    struct fletch_model *m = t->m;
    u32 seq = 0;
    int rc = bench_rewind(&t->b, t->batch, depth, t->err);
    t->n_state = m->m->net->n_states ? exec_part_bytes(m->m->net, &m->limits, PART_STATE) : 0;
    free(t->states);
    t->states = calloc(t->batch, t->n_state + 1);
    if (!t->states) return err_nomem(t->err, "the states");
    for (u32 i = 0; i < t->batch && t->n_state && !rc; i++)
        rc = step_queue_move(&m->queue, PART_STATE, i, t->states + i * t->n_state, NULL, t->err);
    if (!rc) rc = bench_fill_step(&t->b, &seq, t->batch, depth + 1, ROW_D, t->err);
    if (!rc) step_prepare(m->step);
    return rc;
}

/* As generation does it: the next one is queued while one runs. */
static int run(struct tuner *t, u32 n, double *seconds)
{
    struct step_queue *q = &t->m->queue;
    double began = base_now();
    int rc = 0;
    for (u32 i = 0; i <= n && !rc; i++) {
        struct pending_step *p = &t->b.steps[i % 2], *before = &t->b.steps[(i + 1) % 2];
        if (i < n) rc = step_queue_submit(q, p, i ? before : NULL, t->err);
        if (!rc && i) rc = step_queue_wait(q, before, t->err);
    }
    *seconds = (base_now() - began) / n;
    return rc;
}

/* A round: seconds of a step as the layouts are now. */
static int time_round(struct tuner *t, double *seconds)
{
    double unused;
    int rc = restore(t);
    gpu_forget_lists(t->m->x);
    if (!rc && t->n_steps > 1) rc = run(t, 2, &unused);
    return rc ? rc : run(t, t->n_steps, seconds);
}

/* Rounds of about 20 ms; what one step takes after recording says little, so they are timed again.
 */
static int choose_n_steps(struct tuner *t)
{
    double seconds = 0.02;
    int rc = 0;
    for (u32 i = 0; i < 3 && !rc; i++) {
        t->n_steps = (u32)fmin(fmax(0.02 / fmax(seconds, 1e-6), 1), MAX_STEPS);
        rc = time_round(t, &seconds);
    }
    return rc;
}

/* ---- what a site gives ---- */

/* Adds what group i of the step writes to a hash. */
static int digest_group(struct tuner *t, u32 i, u64 *sum)
{
    struct fletch_model *m = t->m;
    const struct group *g = &m->trunk->groups[i];
    struct operand out[2 * OP_MAX_OUT];
    u32 n_out = group_outputs(m->trunk, g, out, ARRAY_LEN(out));
    struct step *s = m->step;
    int rc = restore(t);
    s->group_end = i + 1;
    if (!rc) rc = step_queue_run(&m->queue, t->err);
    s->group_end = UINT32_MAX;
    for (u32 j = 0; j < n_out && !rc; j++) {
        struct operand o = out[j];
        u32 n = m->trunk->bufs[o.buf].rows == ROWS_T ? s->n_rows : s->n_out;
        for (u32 r = 0; r < n && !rc; r++) {
            rc = m->x->class->read(m->x, m->queue.handle, o, r, 1, t->row, t->err);
            for (u32 k = 0; k < o.width; k++)
                if (!op_writes(group_maker(g, o), k)) t->row[k] = 0;
            *sum = XXH3_64bits_withSeed(t->row, o.width * sizeof *t->row, *sum);
        }
    }
    return rc;
}

static int digest(struct tuner *t, const struct gpu_site *site, u64 *sum)
{
    *sum = 0;
    gpu_forget_lists(t->m->x);
    int rc = digest_group(t, site->first_group, sum);
    return rc || site->last_group == site->first_group ? rc
                                                       : digest_group(t, site->last_group, sum);
}

/* ---- the search ---- */

static int lay_out(struct tuner *t, const struct gpu_site *site, const struct layout *l)
{
    return layouts_set(gpu_layouts(t->m->x), &site->choice.site, l, t->err);
}

/* Do two layouts of a site come to the same launches? */
static int comes_to_same(struct tuner *t, const struct gpu_site *site, const struct layout *a,
                         const struct layout *b, bool *same)
{
    struct gpu_site found[2] = {{.n_launches = 0}};
    *same = true; /* what is in the kernel's name */
    for (enum layout_axis axis = LAYOUT_COLUMNS; axis < LAYOUT_AXES; axis++)
        *same &= a->v[axis] == b->v[axis];
    for (u32 i = 0; i < 2; i++) {
        struct gpu_site *now = NULL;
        u32 n;
        int rc = lay_out(t, site, i ? b : a);
        if (!rc) rc = gpu_sites(t->m->x, t->m->queue.handle, t->m->step, &now, &n, t->err);
        for (u32 j = 0; !rc && j < n; j++)
            if (site_is(&now[j].choice.site, &site->choice.site)) found[i] = now[j];
        free(now);
        if (rc) return rc;
    }
    *same = *same && found[0].threads == found[1].threads &&
            memcmp(found[0].groups, found[1].groups, sizeof found[0].groups) == 0;
    return 0;
}

/* Is it faster than the best one so far, beyond doubt? */
static int wins(struct tuner *t, const struct gpu_site *site, const struct layout *best,
                const struct layout *l, bool *won)
{
    double fastest = INFINITY, slowest = 0, seconds = 0;
    int rc = 0;
    for (u32 i = 0; i < t->rounds && !rc && slowest < fastest; i++) {
        rc = lay_out(t, site, best);
        if (!rc) rc = time_round(t, &seconds);
        fastest = fmin(fastest, seconds);
        if (!rc) rc = lay_out(t, site, l);
        if (!rc) rc = time_round(t, &seconds);
        slowest = fmax(slowest, seconds);
    }
    *won = slowest < fastest;
    return rc;
}

/* Takes the place of *best if it should. sum: what the usual layout gives. */
static int try_layout(struct tuner *t, const struct gpu_site *site, struct layout *best,
                      const struct layout *l, u64 sum)
{
    bool same, won = false;
    u64 found;
    int rc = comes_to_same(t, site, best, l, &same);
    if (!rc && !same) {
        t->n_tried++;
        rc = digest(t, site, &found);
        if (!rc && found != sum) t->n_wrong++;
        if (!rc && found == sum) rc = wins(t, site, best, l, &won);
    }
    if (won) *best = *l;
    return rc ? rc : lay_out(t, site, best);
}

static u32 n_values(const struct choice *c, enum layout_axis axis)
{
    u32 n = 0;
    for (u32 i = 0; layout_value(axis, i); i++) {
        struct layout l = c->usual;
        l.v[axis] = layout_value(axis, i);
        n += layout_possible(c, &l);
    }
    return n;
}

static int tune_site(struct tuner *t, const struct gpu_site *site, struct layout *best)
{
    const struct choice *c = &site->choice;
    u64 sum;
    *best = c->usual;
    int rc = lay_out(t, site, best);
    if (!rc) rc = digest(t, site, &sum);
    for (enum layout_axis axis = 0; axis < LAYOUT_AXES; axis++)
        for (u32 i = 0; layout_value(axis, i) && !rc; i++) {
            struct layout l = *best;
            l.v[axis] = layout_value(axis, i);
            if (!layout_possible(c, &l)) continue;
            rc = try_layout(t, site, best, &l, sum);
            if (!rc) rc = err_progress(t->err, t->how->progress, t->how->ctx, ++t->done, t->total);
        }
    return rc;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Tokens per second with the usual layouts and with those found, in turns: the median of each. */
static int compare(struct tuner *t, double speeds[2])
{
    enum { TURNS = 5 };
    struct layouts found = *gpu_layouts(t->m->x);
    double seconds[2][TURNS];
    int rc = 0;
    for (u32 i = 0; i < TURNS * 2 && !rc; i++) {
        *gpu_layouts(t->m->x) = i % 2 ? found : (struct layouts){0};
        rc = time_round(t, &seconds[i % 2][i / 2]);
    }
    *gpu_layouts(t->m->x) = found;
    for (u32 i = 0; i < 2 && !rc; i++) {
        qsort(seconds[i], TURNS, sizeof(double), by_size);
        speeds[i] = t->batch / seconds[i][TURNS / 2];
    }
    return rc;
}

/* ---- reports ---- */

static json_t *layout_report(const struct layout *l)
{
    json_t *o = json_pack("{s:I}", "threads", (json_int_t)l->v[LAYOUT_THREADS]);
    if (l->v[LAYOUT_GROUPS])
        json_object_set_new(o, "groups_per_unit", json_real(l->v[LAYOUT_GROUPS] / 4.0));
    if (l->v[LAYOUT_COLUMNS])
        json_object_set_new(o, "columns", json_integer((json_int_t)l->v[LAYOUT_COLUMNS]));
    if (l->v[LAYOUT_OUTPUTS])
        json_object_set_new(o, "outputs", json_integer((json_int_t)l->v[LAYOUT_OUTPUTS]));
    if (l->v[LAYOUT_QUADS])
        json_object_set_new(o, "quads", json_integer((json_int_t)l->v[LAYOUT_QUADS]));
    return o;
}

static json_t *site_report(const struct gpu_site *s, const struct layout *best)
{
    const struct site *at = &s->choice.site;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:o, s:o}", "kernel", at->kernel, "rows",
                     (json_int_t)at->rows, "n_out", (json_int_t)at->n_out, "n_in",
                     (json_int_t)at->n_in, "slices", (json_int_t)at->n_slices, "normed",
                     at->normed != 0, "launches", (json_int_t)s->n_launches, "usual",
                     layout_report(&s->choice.usual), "best", layout_report(best));
}

/* ---- the whole ---- */

/* Keeps what was found better than usual, if all of it together is; and nothing that was kept
 * before for these sites. */
static int keep(struct layouts *kept, const struct gpu_site *sites, const struct layout *best,
                u32 n, bool better, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < n && !rc; i++) {
        bool usual = memcmp(&best[i], &sites[i].choice.usual, sizeof best[i]) == 0;
        if (better && !usual)
            rc = layouts_set(kept, &sites[i].choice.site, &best[i], err);
        else
            layouts_remove(kept, &sites[i].choice.site);
    }
    return rc;
}

/* Sites of a step of so many sequences, tuned one after the other. */
static int tune_batch(struct tuner *t, u32 depth, struct layouts *kept, json_t *list)
{
    struct gpu_site *sites = NULL;
    double speeds[2] = {0, 0};
    u32 n = 0;
    layouts_close(gpu_layouts(t->m->x));
    int rc = prepare(t, depth);
    if (!rc) rc = gpu_sites(t->m->x, t->m->queue.handle, t->m->step, &sites, &n, t->err);
    struct layout *best = calloc(n + 1, sizeof *best);
    json_t *reports = json_array();
    if (!rc && !best) rc = err_nomem(t->err, "the layouts");
    for (u32 i = 0; i < n && !rc; i++)
        for (enum layout_axis axis = 0; axis < LAYOUT_AXES; axis++)
            t->total += n_values(&sites[i].choice, axis);
    if (!rc) rc = choose_n_steps(t);
    for (u32 i = 0; i < n && !rc; i++) {
        rc = tune_site(t, &sites[i], &best[i]);
        json_array_append_new(reports, site_report(&sites[i], &best[i]));
    }
    if (!rc) rc = compare(t, speeds);
    bool better = speeds[1] > speeds[0];
    if (!rc) rc = keep(kept, sites, best, n, better, t->err);
    json_array_append_new(list,
                          json_pack("{s:I, s:f, s:f, s:b, s:o}", "batch", (json_int_t)t->batch,
                                    "usual_tokens_per_s", speeds[0], "tuned_tokens_per_s",
                                    speeds[1], "kept", better, "sites", reports));
    free(sites);
    free(best);
    return rc;
}

static int tune(struct tuner *t, u32 depth, const struct fletch_counts *batches,
                const struct gpu_driver *d, json_t **doc)
{
    const struct fletch_engine *e = t->m->engine;
    struct gpu_info info;
    struct tuned kept;
    u32 widest = 1;
    for (u32 i = 0; i < t->m->trunk->n_bufs; i++) widest = MAX(widest, t->m->trunk->bufs[i].width);
    t->row = malloc(widest * sizeof *t->row);
    if (!t->row) return err_nomem(t->err, "the rows");
    gpu_device(t->m->x, &info);
    if (tuned_open(&kept, e, d, info.name, &(struct err){0})) kept.layouts = (struct layouts){0};
    if (!kept.path[0])
        return err_set(t->err, FLETCH_E_ARG,
                       "there is no folder for the result; set XDG_CACHE_HOME or HOME");
    json_t *list = json_array();
    int rc = bench_open(&t->b, t->m, t->err);
    for (size_t i = 0; i < batches->n && !rc; i++) {
        t->batch = batches->p[i];
        rc = tune_batch(t, depth, &kept.layouts, list);
    }
    if (!rc) rc = tuned_save(&kept, d, info.name, t->err);
    *doc = json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "backend", e->class->name,
                     "device", info.name, "file", report_text(str_of(kept.path)), "depth",
                     (json_int_t)depth, "tried", (json_int_t)t->n_tried, "wrong",
                     (json_int_t)t->n_wrong, "kept", (json_int_t)kept.layouts.n, "batches", list);
    layouts_close(&kept.layouts);
    return rc;
}

int fletch_tune(struct fletch_engine *e, const char *path, const struct fletch_model_params *given,
                const struct fletch_tune *how, char **json)
{
    static const u32 one = 1;
    static const struct fletch_tune usual = {0};
    if (!how) how = &usual;
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = engine_need_all(&e->err, how->batches.p, how->batches.n, "batches");
    if (!rc) rc = engine_refuse_text_only(given, &e->err);
    if (rc) return rc;
    struct fletch_counts batches = how->batches.n ? how->batches : (struct fletch_counts){&one, 1};
    struct fletch_model_params params = given ? *given : (struct fletch_model_params){0};
    struct tuner t = {
        .how = how, .rounds = how->n_rounds ? how->n_rounds : DEFAULT_ROUNDS, .err = &e->err};
    const struct gpu_driver *d = gpu_driver_of(e->class);
    u32 depth = how->depth ? how->depth : DEFAULT_DEPTH;
    json_t *doc = NULL;
    if (!d)
        return err_set(
            &e->err, FLETCH_E_BACKEND,
            "nothing to tune on backend %s: launch shapes exist only on GPUs (--backend)",
            e->class->name);
    params.n_sessions = 1;
    for (size_t i = 0; i < batches.n; i++) {
        if (!batches.p[i] || batches.p[i] > ENGINE_MAX_OUT)
            return err_set(&e->err, FLETCH_E_ARG, "a batch must have 1 to %d sequences",
                           ENGINE_MAX_OUT);
        params.n_sessions = MAX(params.n_sessions, batches.p[i]);
    }
    if (depth > ENGINE_MAX_CTX - 1)
        return err_set(&e->err, FLETCH_E_ARG, "the depth exceeds %u", ENGINE_MAX_CTX - 1);
    params.n_ctx = depth + 1;
    rc = fletch_model_open(&t.m, e, path, &params);
    if (!rc) rc = tune(&t, depth, &batches, d, &doc);
    bench_close(&t.b);
    fletch_model_close(t.m);
    free(t.states);
    free(t.row);
    if (rc) json_decref(doc);
    return rc ? rc : report_give(doc, json, &e->err);
}
