/* Where the time of a step goes: the program is submitted group by group and each is timed, unless
 * the executor can do that itself. That costs a wake-up per group, so a profile says nothing about
 * tokens per second. */
#include <stdlib.h>
#include <string.h>

#include "engine/bench.h"

struct timed {
    double seconds, bytes, flops;
};

static bool reads(const struct program *p, const struct group *g, const char *name)
{
    for (u32 k = 0; k < g->n_ops; k++)
        for (u32 i = 0; i < g->ops[k]->n_w; i++) {
            u32 w = g->ops[k]->w[i];
            if (w != NO_WEIGHT && strstr(p->net->weights[w].name, name)) return true;
        }
    return false;
}

/* What people call a group: its name and the first buffer it writes for others, with the shared
 * expert told from the rest by its weights. */
static void label_of(const struct program *p, const struct group *g, char *out, size_t n)
{
    struct operand x[OP_MAX_OUT];
    const char *what = group_outputs(p, g, x, OP_MAX_OUT) ? p->bufs[x[0].buf].name : "";
    bool shared = reads(p, g, "_shexp");
    snprintf(out, n, "%s%s%s%s", group_name(g), *what ? " " : "", what,
             shared ? " (shared expert)" : "");
}

/* Which part of a model a group belongs to. */
static const char *part_of(const struct program *p, const struct group *g)
{
    if ((!g->rule && g->ops[0]->kind == OP_ROUTE) || reads(p, g, "ffn_gate_inp")) return "router";
    if (reads(p, g, "_exps") || group_op(g, OP_COMBINE_EXPERTS, 0) ||
        group_op(g, OP_ADD_EXPERTS, 0))
        return "routed experts";
    if (reads(p, g, "_shexp")) return "shared expert";
    if (reads(p, g, "ffn") || reads(p, g, "channel_mix")) return "feed-forward";
    if (g->ops[0]->layer < 0) return "embedding and output";
    return "attention or time mixing";
}

/* Group i of the step took so long. */
static void account(struct bench *b, u32 i, double took, struct timed *ops, json_t *events,
                    double *clock)
{
    const struct program *p = b->model->trunk;
    const struct step *s = b->model->step;
    const struct group *g = &p->groups[i];
    u32 rows = group_rows(p, g) == ROWS_R ? s->n_out : s->n_rows;
    double positions = 0;
    if (rows == 0) return;
    for (u32 t = 0; t < s->n_rows; t++) positions += s->rows[t].pos + 1;
    double bytes = (double)group_bytes(p, g, rows);
    for (u32 k = 0; k < g->n_ops; k++) bytes += bench_memory_bytes(p->net, g->ops[k], s);
    ops[i].seconds += took;
    ops[i].bytes += bytes;
    ops[i].flops += group_flops(p->net, g) * rows + group_flops_per_position(g) * positions;
    if (events) {
        char label[96];
        label_of(p, g, label, sizeof label);
        json_array_append_new(events,
                              json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:{s:i, s:f}}", "name",
                                        label, "cat", group_name(g), "ph", "X", "ts", *clock * 1e6,
                                        "dur", took * 1e6, "pid", 1, "tid", 1, "args", "layer",
                                        g->ops[0]->layer, "bytes", bytes));
    }
    *clock += took;
}

/* Where the executor can time the parts of a step itself. */
static int run_timed(struct bench *b, struct timed *ops, json_t *events, double *clock,
                     struct err *err)
{
    struct fletch_model *m = b->model;
    double *us = calloc(m->trunk->n_groups, sizeof *us);
    if (!us) return err_nomem(err, "the profile");
    int rc = m->x->class->profile(m->x, m->queue.handle, m->step, us, err);
    for (u32 i = 0; i < m->trunk->n_groups && !rc; i++)
        account(b, i, us[i] * 1e-6, ops, events, clock);
    free(us);
    return rc;
}

static int run_ops(struct bench *b, struct timed *ops, json_t *events, double *clock,
                   struct err *err)
{
    struct fletch_model *m = b->model;
    struct step *s = m->step;
    int rc = 0;
    step_prepare(s);
    if (m->x->class->profile) return run_timed(b, ops, events, clock, err);
    for (u32 i = 0; i < m->trunk->n_groups && !rc; i++) {
        s->group_begin = i;
        s->group_end = i + 1;
        double began = base_now();
        rc = m->x->class->submit(m->x, m->queue.handle, s, err);
        if (!rc) rc = m->x->class->wait(m->x, err);
        account(b, i, base_now() - began, ops, events, clock);
    }
    return rc;
}

/* Takes the sequences to position end, n_steps counted. */
static int run_steps(struct bench *b, const struct bench_case *c, u32 end, struct timed *ops,
                     json_t *events, double *clock, u32 *n_steps, struct err *err)
{
    enum row_class cls = c->mode == BENCH_PREFILL ? ROW_P : ROW_D;
    int rc = 0;
    for (u32 seq = 0; seq < c->batch && !rc;) {
        rc = bench_fill_step(b, &seq, c->batch, end, cls, err);
        if (!rc) rc = run_ops(b, ops, events, clock, err);
        ++*n_steps;
    }
    return rc;
}

/* One row per label, in the order of their first group. */
static json_t *by_label(const struct program *p, const struct timed *ops, double all, u32 n_steps)
{
    json_t *list = json_array(), *seen = json_object();
    for (u32 i = 0; i < p->n_groups; i++) {
        char label[96];
        label_of(p, &p->groups[i], label, sizeof label);
        if (json_object_get(seen, label)) continue;
        json_object_set_new(seen, label, json_true());
        struct timed sum = {0};
        u32 n = 0;
        for (u32 j = i; j < p->n_groups; j++) {
            char other[96];
            label_of(p, &p->groups[j], other, sizeof other);
            if (strcmp(label, other) != 0) continue;
            n++;
            sum.seconds += ops[j].seconds;
            sum.bytes += ops[j].bytes;
            sum.flops += ops[j].flops;
        }
        if (sum.seconds == 0) continue;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "op", label, "n", (json_int_t)n,
                            "us", sum.seconds / n_steps * 1e6, "share", sum.seconds / all, "bytes",
                            sum.bytes / n_steps, "gb_s", sum.bytes / sum.seconds * 1e-9, "gflop_s",
                            sum.flops / sum.seconds * 1e-9));
    }
    json_decref(seen);
    return list;
}

static json_t *by_part(const struct program *p, const struct timed *ops, double all, u32 n_steps)
{
    static const char *const parts[] = {
        "attention or time mixing", "feed-forward",  "router",
        "routed experts",           "shared expert", "embedding and output"};
    json_t *list = json_array();
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        struct timed sum = {0};
        for (u32 i = 0; i < p->n_groups; i++)
            if (strcmp(part_of(p, &p->groups[i]), parts[k]) == 0) {
                sum.seconds += ops[i].seconds;
                sum.bytes += ops[i].bytes;
            }
        if (sum.seconds > 0)
            json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:f}", "part", parts[k],
                                                  "us", sum.seconds / n_steps * 1e6, "share",
                                                  sum.seconds / all, "bytes", sum.bytes / n_steps,
                                                  "gb_s", sum.bytes / sum.seconds * 1e-9));
    }
    return list;
}

static json_t *by_layer(const struct program *p, const struct timed *ops, u32 n_steps)
{
    json_t *list = json_array();
    for (u32 i = 0; i < p->n_groups;) {
        int layer = p->groups[i].ops[0]->layer;
        struct timed sum = {0};
        for (; i < p->n_groups && p->groups[i].ops[0]->layer == layer; i++) {
            sum.seconds += ops[i].seconds;
            sum.bytes += ops[i].bytes;
        }
        json_array_append_new(
            list, json_pack("{s:i, s:f, s:f, s:f}", "layer", layer, "us",
                            sum.seconds / n_steps * 1e6, "bytes", sum.bytes / n_steps, "gb_s",
                            sum.seconds > 0 ? sum.bytes / sum.seconds * 1e-9 : 0.0));
    }
    return list;
}

int bench_profile(struct bench *b, const struct bench_case *c, u32 n_reps, json_t *profiles,
                  json_t *events, struct err *err)
{
    const struct program *p = b->model->trunk;
    struct timed *ops = calloc(p->n_groups, sizeof *ops);
    double all = 0, clock = 0;
    u32 n_steps = 0, one = c->mode == BENCH_PREFILL ? c->n_prompt : 1;
    int rc = ops ? bench_rewind(b, c->batch, c->depth, err) : err_nomem(err, "the profile");
    for (u32 rep = 0; rep <= n_reps && !rc; rep++) { /* the first warms up */
        rc = bench_rewind(b, c->batch, c->depth, err);
        if (rep == 1) {
            memset(ops, 0, p->n_groups * sizeof *ops);
            n_steps = 0;
        }
        if (!rc)
            rc = run_steps(b, c, c->depth + one, ops, rep == n_reps ? events : NULL, &clock,
                           &n_steps, err);
    }
    for (u32 i = 0; i < p->n_groups && !rc; i++) all += ops[i].seconds;
    if (!rc)
        json_array_append_new(
            profiles,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o}", "mode",
                      bench_mode_names[c->mode], "n_prompt", (json_int_t)c->n_prompt, "depth",
                      (json_int_t)c->depth, "batch", (json_int_t)c->batch, "rows_per_step",
                      (json_int_t)b->model->step->n_rows, "us_per_step", all / n_steps * 1e6, "ops",
                      by_label(p, ops, all, n_steps), "parts", by_part(p, ops, all, n_steps),
                      "layers", by_layer(p, ops, n_steps)));
    free(ops);
    return rc;
}
