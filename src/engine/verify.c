#include "engine/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sample.h"
#include "engine/report.h"

/* Does x come from a norm, or from attention, that is inside the group? */
static bool comes_from(const struct group *g, struct operand x, bool attention)
{
    const struct op *op = group_maker(g, x);
    if (!op) return false;
    if (attention ? op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION
                  : op->kind == OP_NORM)
        return true;
    for (u32 i = 0; i < op->n_in; i++)
        if (comes_from(g, op->in[i], attention)) return true;
    return false;
}

/* What an op may differ by: moves and lookups not at all. */
static double tolerance_of_op(const struct group *g, const struct op *op, const struct net *net)
{
    switch (op->kind) {
    case OP_EMBED:
    case OP_IMPORT_HIDDEN:
    case OP_GATHER_ROWS: return 0;
    case OP_MATMUL:
    case OP_MATMUL_HEADS:
    case OP_MATMUL_EXPERTS: /* the last bit of what it reads may round an activation otherwise */
        if (comes_from(g, op->in[0], true)) return 3e-3;
        return net->profile.int8 && comes_from(g, op->in[0], false) ? 3e-3 : 1e-4;
    case OP_ATTENTION: /* a group that stores rounds its own keys, the last bit may go otherwise */
    case OP_LATENT_ATTENTION: return net->profile.kv == CACHE_F32 ? 1e-4 : 1e-3;
    default: return 1e-4;
    }
}

/* Largest |a - b| over the largest |b| of the compared rows, by group. Every group starts from the
 * same inputs on both sides, so only the rounding of its ops counts. */
static double tolerance_of(const struct group *g, const struct net *net)
{
    double most = 0;
    for (u32 i = 0; i < g->n_ops; i++) most = fmax(most, tolerance_of_op(g, g->ops[i], net));
    return most;
}

/* Of the largest logit: rounding of activations to int8 adds up over layers. */
bool verify_is_close(const struct net *net, const float *a, const float *b, i32 s, i32 t)
{
    double top = 1e-30, share = net->profile.int8 ? 0.05 : 0.005;
    for (u32 i = 0; i < net->n_vocab; i++) top = fmax(top, fabs((double)b[i]));
    double apart = fmax(fabs((double)a[s] - (double)b[s]), fabs((double)a[t] - (double)b[t]));
    return apart < share * top;
}

/* One of the two: its own model, so that each may repack weights as it likes. */
struct side {
    const struct exec_class *class;
    struct model *m;
    struct program *p;
    struct exec *x;
    u32 handle, next; /* next: the group to run */
    struct step *s;
    float *rows; /* what was read last */
};

/* Of all groups of one name. */
enum { MAX_TALLIES = OP_COUNT + 64 };
struct tally {
    const char *name;
    double limit, worst;
    u64 n;
};

struct verify {
    struct side a, b;
    struct exec_limits limits;
    struct err *err;
    struct tally tallies[MAX_TALLIES];
    u32 n_tallies;
    u64 n_compared, n_bad, n_routes, n_routes_different;
    u32 n_steps, n_tokens, n_tokens_equal, n_tokens_close;
    json_t *first; /* difference */
    struct sample_scratch scratch;
};

static void side_close(struct side *s)
{
    if (s->x) s->class->close(s->x);
    step_close(s->s);
    prog_close(s->p);
    model_close(s->m);
    free(s->rows);
}

static u32 widest_buffer(const struct program *p)
{
    u32 n = 1;
    for (u32 i = 0; i < p->n_bufs; i++) n = MAX(n, p->bufs[i].width);
    return n;
}

static int side_open(struct side *s, struct verify *v, const struct verify_side *choice,
                     const char *path, const struct fletch_model_params *params,
                     struct profile profile, u32 n_threads)
{
    s->class = choice->class;
    int rc = engine_model(&s->m, path, profile, params, v->err);
    if (!rc && !v->limits.max_rows) {
        rc = engine_limits(&v->limits, s->m, s->class, params, v->err);
        if (!rc) engine_tell_ignored(s->m, params);
    }
    if (!rc && s == &v->a)
        rc = engine_program(&s->p, s->m->trunk, s->class, choice->no_fuse, v->err);
    else if (!rc) /* op by op, in the same order */
        rc = prog_split(&s->p, s->m->trunk, v->a.p, v->err);
    if (!rc) rc = step_open(&s->s, s->m->net, &v->limits, v->err);
    if (!rc) rc = s->class->open(&s->x, s->class, s->m->net, &v->limits, n_threads, v->err);
    if (!rc) rc = model_place(s->m, s->x, NULL, NULL, v->err);
    if (!rc) rc = s->class->load(s->x, s->p, &s->handle, v->err);
    if (rc) return rc;
    s->rows = calloc((size_t)widest_buffer(s->p) * v->limits.max_rows, sizeof *s->rows);
    for (u32 i = 0; i < v->limits.n_blocks && i < s->s->table_len; i++) s->s->tables[i] = i;
    return s->rows ? 0 : err_nomem(v->err, "verify");
}

static int run_group(struct side *s, struct err *err)
{
    s->s->group_begin = s->next;
    s->s->group_end = ++s->next;
    int rc = s->class->submit(s->x, s->handle, s->s, err);
    return rc ? rc : s->class->wait(s->x, err);
}

static u32 rows_of(const struct side *s, struct operand o)
{
    return s->p->bufs[o.buf].rows == ROWS_T ? s->s->n_rows : s->s->n_out;
}

/* JSON has no NaN. */
static json_t *number(float f)
{
    return isfinite(f) ? json_real((double)f) : json_sprintf("%f", (double)f);
}

static void note_difference(struct verify *v, const struct group *g, struct operand o, u64 at)
{
    if (v->first) return;
    v->first =
        json_pack("{s:I, s:s, s:s, s:i, s:I, s:I, s:o, s:o}", "step", (json_int_t)v->n_steps, "op",
                  group_name(g), "name", v->a.p->bufs[o.buf].name, "layer", g->ops[0]->layer, "row",
                  (json_int_t)(at / o.width), "column", (json_int_t)(at % o.width), "a",
                  number(v->a.rows[at]), "b", number(v->b.rows[at]));
}

static void compare_ids(struct verify *v, const struct group *g, const struct op *op,
                        struct operand o, u64 n)
{
    const i32 *a = (const i32 *)(const void *)v->a.rows, *b = (const i32 *)(const void *)v->b.rows;
    for (u64 i = 0; i < n; i++) {
        v->n_routes += op->kind != OP_SAMPLE;
        if (a[i] == b[i]) continue;
        v->n_routes_different += op->kind != OP_SAMPLE;
        note_difference(v, g, o, i);
    }
}

static struct tally *tally_of(struct verify *v, const struct group *g)
{
    u32 i = 0;
    while (i < v->n_tallies && strcmp(v->tallies[i].name, group_name(g)) != 0) i++;
    CHECK(i < MAX_TALLIES);
    v->n_tallies = MAX(v->n_tallies, i + 1);
    v->tallies[i].name = group_name(g);
    v->tallies[i].limit = fmax(v->tallies[i].limit, tolerance_of(g, v->b.m->net));
    return &v->tallies[i];
}

static void compare_rows(struct verify *v, const struct group *g, const struct op *op,
                         struct operand o, u64 n)
{
    double scale = 0, limit = tolerance_of(g, v->b.m->net);
    struct tally *t = tally_of(v, g);
    for (u64 i = 0; i < n; i++)
        if (op_writes(op, (u32)(i % o.width)) && isfinite(v->b.rows[i]))
            scale = fmax(scale, fabs((double)v->b.rows[i]));
    for (u64 i = 0; i < n; i++) {
        if (!op_writes(op, (u32)(i % o.width))) continue;
        double a = (double)v->a.rows[i], b = (double)v->b.rows[i];
        if (!isfinite(a) || !isfinite(b)) v->n_bad++;
        double d = a == b ? 0 : fabs(a - b) / fmax(scale, 1e-30);
        if (isnan(d)) d = INFINITY;
        if (d > limit) note_difference(v, g, o, i);
        t->worst = fmax(t->worst, d);
        t->n++;
    }
}

/* Compares what an op of the group wrote, as far as it is read later: the rest is gone. */
static int compare(struct verify *v, const struct group *g, const struct op *op)
{
    u32 n_out = op->kind == OP_SAMPLE ? 1 : op->n_out; /* logprobs were not asked for */
    for (u32 j = 0; j < n_out; j++) {
        struct operand o = op->out[j];
        const struct buffer *buf = &v->a.p->bufs[o.buf];
        u32 n = rows_of(&v->a, o);
        if (n == 0 || (g->rule && (buf->inside || buf->last < v->a.next))) continue;
        int rc = v->a.class->read(v->a.x, v->a.handle, o, 0, n, v->a.rows, v->err);
        if (!rc) rc = v->b.class->read(v->b.x, v->b.handle, o, 0, n, v->b.rows, v->err);
        if (rc) return rc;
        if (v->a.p->bufs[o.buf].is_int)
            compare_ids(v, g, op, o, (u64)n * o.width);
        else
            compare_rows(v, g, op, o, (u64)n * o.width);
        v->n_compared++;
        /* from here on both have the same again, so that one difference is not told twice */
        rc = v->a.class->write(v->a.x, v->a.handle, o, 0, n, v->b.rows, v->err);
        if (rc) return rc;
    }
    return 0;
}

/* One step on both sides, group by group; side b runs the same ops one by one. */
static int lockstep(struct verify *v)
{
    struct side *a = &v->a, *b = &v->b;
    int rc = 0;
    a->next = b->next = 0;
    while (!rc && a->next < a->p->n_groups) {
        const struct group *g = &a->p->groups[a->next];
        rc = run_group(a, v->err);
        for (u32 i = 0; i < g->n_ops && !rc; i++) rc = run_group(b, v->err);
        for (u32 i = 0; i < g->n_ops && !rc; i++) rc = compare(v, g, g->ops[i]);
    }
    v->n_steps++;
    return rc;
}

/* The whole step on both sides, each from its own values. */
static int run_freely(struct verify *v)
{
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++) {
        struct side *s = i ? &v->b : &v->a;
        rc = s->class->submit(s->x, s->handle, s->s, v->err);
        if (!rc) rc = s->class->wait(s->x, v->err);
    }
    return rc;
}

static int chosen_token(struct side *s, i32 *token, struct err *err)
{
    struct operand o = {s->p->sampled, 0, 1};
    return s->class->read(s->x, s->handle, o, s->s->n_out - 1, 1, (float *)(void *)token, err);
}

/* Both sides have the same noise, so they choose differently only where their logits of the two
 * tokens differ. No close call where side a's logits don't explain its token: its sampler is wrong
 * then. */
static int count_close(struct verify *v, i32 token, i32 other)
{
    struct side *side[] = {&v->a, &v->b};
    u32 n = v->b.m->hp.n_vocab;
    if (token < 0 || other < 0) return 0; /* no number to choose by */
    for (size_t i = 0; i < ARRAY_LEN(side); i++) {
        struct side *s = side[i];
        struct operand o = {s->p->logits, 0, n};
        int rc = s->class->read(s->x, s->handle, o, s->s->n_out - 1, 1, s->rows, v->err);
        if (rc) return rc;
    }
    const struct step *s = v->a.s;
    struct sample_in in = {
        .logits = v->a.rows, .n_vocab = n, .position = s->rows[s->n_rows - 1].pos + 1};
    if (sample_token(&s->sample[0], &in, &v->scratch) != other) return 0;
    v->n_tokens_close += verify_is_close(v->b.m->net, v->a.rows, v->b.rows, token, other);
    return 0;
}

static void fill_step(struct side *s, const i32 *tokens, u32 n, u32 pos, enum row_class cls,
                      const struct fletch_verify *how)
{
    step_reset(s->s);
    if (pos == 0) step_edit(s->s, EDIT_ZERO_STATE, 0, 0);
    for (u32 j = 0; j < n; j++)
        step_add(s->s, (struct row){tokens[j], 0, pos + j, cls}, j + 1 == n);
    s->s->sample[0] =
        (struct sample_row){.temperature = how->temperature, .top_p = 1, .seed = how->seed};
    step_prepare(s->s);
}

/* The tokens that both sides chose. */
static int compare_tokens(struct verify *v, i32 *token)
{
    i32 other;
    int rc = chosen_token(&v->b, token, v->err);
    if (!rc) rc = chosen_token(&v->a, &other, v->err);
    if (rc) return rc;
    v->n_tokens++;
    if (*token == other) {
        v->n_tokens_equal++;
        return 0;
    }
    return count_close(v, *token, other);
}

/* The prompt and the tokens that side b chooses: freely, comparing tokens, or in lockstep,
 * comparing every op. */
static int run_steps(struct verify *v, const struct fletch_verify *how, bool freely)
{
    i32 token = how->tokens[0];
    int rc = 0;
    for (u32 i = 0, pos = 0; !rc && i <= how->n_tokens; i++) {
        u32 n = i ? 1 : (u32)how->n_prompt;
        const i32 fed = MAX(token, 0); /* a model that gives no numbers is told of at the end */
        fill_step(&v->a, i ? &fed : how->tokens, n, pos, i ? ROW_D : ROW_P, how);
        fill_step(&v->b, i ? &fed : how->tokens, n, pos, i ? ROW_D : ROW_P, how);
        pos += n;
        rc = freely ? run_freely(v) : lockstep(v);
        if (!rc) rc = freely ? compare_tokens(v, &token) : chosen_token(&v->b, &token, v->err);
    }
    return rc;
}

static int run_both_ways(struct verify *v, const struct fletch_verify *how)
{
    if (how->n_prompt > v->limits.max_rows ||
        how->n_prompt + (u64)how->n_tokens > v->limits.max_pos)
        return err_set(
            v->err, FLETCH_E_ARG,
            "verify accepts a prompt of at most %u tokens and at most %u tokens in total",
            v->limits.max_rows, v->limits.max_pos);
    for (size_t i = 0; i < how->n_prompt; i++)
        if (how->tokens[i] < 0 || (u32)how->tokens[i] >= v->a.m->hp.n_vocab)
            return err_set(v->err, FLETCH_E_ARG,
                           "token id %d is outside the model's vocabulary (0 to %u)",
                           (int)how->tokens[i], v->a.m->hp.n_vocab - 1);
    int rc = run_steps(v, how, true);
    return rc ? rc : run_steps(v, how, false);
}

static json_t *make_report(const struct verify *v, const struct verify_side side[2])
{
    json_t *limits = json_array();
    for (u32 i = 0; i < v->n_tallies; i++) {
        const struct tally *t = &v->tallies[i];
        json_array_append_new(
            limits, json_pack("{s:s, s:f, s:f, s:I}", "op", t->name, "limit", t->limit, "worst",
                              isfinite(t->worst) ? t->worst : 1e300, "n", (json_int_t)t->n));
    }
    bool equal = !v->first && !v->n_bad && v->n_tokens == v->n_tokens_equal + v->n_tokens_close;
    return json_pack("{s:b, s:s, s:s, s:I, s:I, s:o, s:O?, s:{s:I, s:I}, s:I, s:{s:I, s:I, s:I}}",
                     "equal", equal, "backend", side[0].class->name, "against", side[1].class->name,
                     "n_steps", (json_int_t)v->n_steps, "n_ops", (json_int_t)v->n_compared,
                     "tolerances", limits, "first_difference", v->first, "routing", "compared",
                     (json_int_t)v->n_routes, "different", (json_int_t)v->n_routes_different,
                     "bad_values", (json_int_t)v->n_bad, "tokens", "compared",
                     (json_int_t)v->n_tokens, "equal", (json_int_t)v->n_tokens_equal, "close",
                     (json_int_t)v->n_tokens_close);
}

int verify_run(json_t **out, const char *path, const struct fletch_model_params *params,
               const struct verify_side side[2], u32 n_threads, const struct fletch_verify *how,
               struct err *err)
{
    struct verify *v = calloc(1, sizeof *v);
    struct profile profile;
    *out = NULL;
    if (!v) return err_nomem(err, "verify");
    v->err = err;
    int rc = engine_profile(&profile, side[0].class, params, err);
    profile.int8_experts &= side[1].class->int8_experts;
    if (profile.bf16 == BF16_FLOATS && !side[1].class->has_bf16_floats) profile.bf16 = BF16_NOWHERE;
    if (!rc && how->n_prompt == 0) rc = err_set(err, FLETCH_E_ARG, "verify needs a prompt");
    if (!rc) rc = side_open(&v->a, v, &side[0], path, params, profile, n_threads);
    if (!rc) rc = side_open(&v->b, v, &side[1], path, params, profile, n_threads);
    if (!rc) {
        size_t n = v->b.m->hp.n_vocab;
        v->scratch = (struct sample_scratch){calloc(n, sizeof(float)), calloc(n, sizeof(u32))};
        if (!v->scratch.z || !v->scratch.order) rc = err_nomem(err, "verify");
    }
    if (!rc) rc = run_both_ways(v, how);
    if (!rc) *out = make_report(v, side);
    json_decref(v->first);
    side_close(&v->a);
    side_close(&v->b);
    free(v->scratch.z);
    free(v->scratch.order);
    free(v);
    return rc;
}

int fletch_verify(struct fletch_engine *e, const char *path,
                  const struct fletch_model_params *params, const struct fletch_verify *f,
                  char **json)
{
    json_t *doc;
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = engine_need(&e->err, f, "the parameters");
    if (!rc) rc = engine_need_all(&e->err, f->tokens, f->n_prompt, "tokens");
    if (rc) return rc;
    struct verify_side side[2] = {{.no_fuse = f->no_fuse}, {.no_fuse = true}};
    side[0].class = f->backend ? backend_find(f->backend, NULL, &e->err) : e->class;
    if (!side[0].class) return e->err.code;
    side[1].class = backend_find(f->against ? f->against : "ref", NULL, &e->err);
    if (!side[1].class) return e->err.code;
    struct fletch_verify how = *f;
    if (!how.n_tokens) how.n_tokens = 16;
    rc = verify_run(&doc, path, params, side, e->n_threads, &how, &e->err);
    return rc ? rc : report_give(doc, json, &e->err);
}
