/* Reports: JSON documents about files, plans, programs and this machine. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "engine/bench.h"
#include "engine/engine.h"
#include "engine/predict.h"
#include "engine/report.h"
#include "engine/tune.h"
#include "gpu/arithmetic.h"
#include "model/synth.h"
#include "text/tmpl.h"

int report_give(json_t *doc, char **json, struct err *err)
{
    *json =
        doc ? json_dumps(doc, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(doc);
    return *json ? 0 : err_nomem(err, "the report");
}

json_t *report_text(struct str s)
{
    json_t *v = json_stringn(s.n ? s.p : "", s.n);
    if (v) return v;
    /* not UTF-8: show it as bytes */
    return json_sprintf("%s", QUOTE(s));
}

/* ---- inspect ---- */

enum { SHOWN_ELEMENTS = 8 };

/* The number of fewest digits that is this f32: 1e-05, not 9.99999975e-06. */
static double short_f32(double d)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        double v = strtod(text, NULL);
        if ((float)v >= (float)d && (float)v <= (float)d) return v;
    }
    return d;
}

static json_t *kv_element(const struct kv *kv, u64 i, u64 *at)
{
    i64 n;
    double d;
    struct str s;
    if (kv->elem == KV_STR) return kv_next_str(kv, at, &s) ? report_text(s) : json_null();
    if (kv->elem == KV_BOOL) return json_boolean(kv->data[i] != 0);
    if (kv_int(kv, i, &n)) return json_integer(n);
    if (kv_float(kv, i, &d) && isfinite(d)) return json_real(kv->elem == KV_F32 ? short_f32(d) : d);
    return json_null();
}

static json_t *kv_report(const struct kv *kv)
{
    bool array = kv->type == KV_ARRAY;
    u64 at = 0;
    json_t *value = array ? json_array() : kv_element(kv, 0, &at);
    for (u64 i = 0; array && i < MIN(kv->n, (u64)SHOWN_ELEMENTS); i++)
        json_array_append_new(value, kv_element(kv, i, &at));
    char type[32];
    snprintf(type, sizeof type, "%s%s", kv_type_name(kv->elem), array ? "[]" : "");
    json_t *o = json_pack("{s:o, s:s}", "key", report_text(kv->key), "type", type);
    if (array) json_object_set_new(o, "n", json_integer((json_int_t)kv->n));
    json_object_set_new(o, "value", value);
    return o;
}

static const char *type_name(u32 type)
{
    const struct quant_info *info = quant_info(type);
    return info && info->name ? info->name : "?";
}

const char *report_main_type(const struct source *s)
{
    u64 bytes[QT_COUNT] = {0};
    u32 best = 0;
    for (u32 i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].type < QT_COUNT) bytes[s->tensors[i].type] += s->tensors[i].n_bytes;
    for (u32 type = 1; type < QT_COUNT; type++)
        if (bytes[type] > bytes[best]) best = type;
    return type_name(best);
}

static json_t *tensor_report(const struct tensor *t)
{
    json_t *shape = json_array();
    for (u32 i = 0; i < MAX(t->n_dims, 1); i++)
        json_array_append_new(shape, json_integer((json_int_t)t->ne[i]));
    return json_pack("{s:o, s:s, s:o, s:I}", "name", report_text(t->name), "type",
                     type_name(t->type), "shape", shape, "bytes", (json_int_t)t->n_bytes);
}

static json_t *types_report(const struct source *s)
{
    json_t *list = json_array();
    for (u32 type = 0; type < QT_COUNT; type++) {
        u64 n = 0, bytes = 0;
        for (u32 i = 0; i < s->n_tensors; i++) {
            if (s->tensors[i].type != type) continue;
            n++;
            bytes += s->tensors[i].n_bytes;
        }
        if (n)
            json_array_append_new(list,
                                  json_pack("{s:s, s:I, s:I}", "type", type_name(type), "tensors",
                                            (json_int_t)n, "bytes", (json_int_t)bytes));
    }
    return list;
}

/* Counts values of a tensor that are not finite. */
static int scan_tensor(struct source *s, const struct tensor *t, u64 *nan, u64 *inf,
                       struct err *err)
{
    enum { CHUNK = 4096 };
    float x[CHUNK];
    const u8 *data;
    const struct quant_info *info = quant_info(t->type);
    int rc = source_data(s, t, &data, err);
    if (rc) return rc;
    for (u64 i = 0; i < t->n_elems; i += CHUNK) {
        u64 n = MIN((u64)CHUNK, t->n_elems - i);
        quant_decode(t->type, data + i / info->blk * info->bytes, x, n);
        for (u64 j = 0; j < n; j++) {
            *nan += isnan(x[j]) != 0;
            *inf += isinf(x[j]) != 0;
        }
    }
    source_drop(s, t);
    return 0;
}

static int check_report(struct source *s, json_t **out, struct err *err)
{
    json_t *bad = json_array();
    for (u32 i = 0; i < s->n_tensors; i++) {
        const struct tensor *t = &s->tensors[i];
        u64 nan = 0, inf = 0;
        int rc = scan_tensor(s, t, &nan, &inf, err);
        if (rc) {
            json_decref(bad);
            return rc;
        }
        if (nan || inf)
            json_array_append_new(bad, json_pack("{s:o, s:I, s:I}", "tensor", report_text(t->name),
                                                 "nan", (json_int_t)nan, "inf", (json_int_t)inf));
    }
    *out = json_pack("{s:b, s:I, s:o}", "ok", json_array_size(bad) == 0, "n_tensors",
                     (json_int_t)s->n_tensors, "bad", bad);
    return 0;
}

static json_t *inspect_report(const struct source *s)
{
    struct str arch = STR(""), name = STR("");
    u64 params = 0, bytes = 0;
    char format[32];
    json_t *kvs = json_array(), *tensors = json_array();
    source_get_str(s, "general.architecture", &arch, NULL);
    source_get_str(s, "general.name", &name, NULL);
    for (u32 i = 0; i < s->n_kvs; i++) json_array_append_new(kvs, kv_report(&s->kvs[i]));
    for (u32 i = 0; i < s->n_tensors; i++) {
        json_array_append_new(tensors, tensor_report(&s->tensors[i]));
        params += s->tensors[i].n_elems;
        bytes += s->tensors[i].n_bytes;
    }
    snprintf(format, sizeof format, "GGUF v%u", s->version);
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "path",
        report_text(str_of(s->path)), "format", s->is_dir ? "Hugging Face directory" : format,
        "arch", report_text(arch), "name", report_text(name), "type", report_main_type(s),
        "n_params", (json_int_t)params, "n_bytes", (json_int_t)bytes, "n_files",
        (json_int_t)s->n_files, "metadata", kvs, "tensors", tensors, "types", types_report(s));
}

/* The template by which it chats, null where there is none; what it makes use of. */
static json_t *template_report(const struct model *m)
{
    static const char *const thinking[] = {"enable_thinking", "thinking"};
    struct str text = m->vocab ? m->vocab->spec.chat_template : STR("");
    struct tmpl *t;
    bool thinks = false;
    if (!text.n || tmpl_open(&t, text, NULL)) return text.n ? json_object() : json_null();
    for (size_t i = 0; i < ARRAY_LEN(thinking); i++)
        thinks = thinks || tmpl_reads(t, str_of(thinking[i]));
    json_t *j = json_pack("{s:b, s:b}", "tools", tmpl_reads(t, STR("tools")), "thinking", thinks);
    tmpl_close(t);
    return j;
}

/* Facts of the model that opening it shows, and what would be refused: the lines, and the error
 * that it would fail with besides. */
static int add_opened(json_t *doc, const char *path, struct err *err)
{
    json_t *list = json_array();
    struct model *m;
    struct err why = {0};
    int rc = model_probe(&m, path, &why);
    if (rc == FLETCH_E_NOMEM) {
        *err = why;
        json_decref(list);
        return rc;
    }
    for (u32 i = 0; !rc && i < m->source->refused->n; i++)
        json_array_append_new(list, report_text(str_of(m->source->refused->lines[i])));
    if (rc) json_array_append_new(list, report_text(str_of(why.text)));
    if (!rc && m->source->left_out)
        json_object_set_new(doc, "left_out", report_text(str_of(m->source->left_out)));
    if (!rc) json_object_set_new(doc, "n_ctx", json_integer((json_int_t)m->hp.n_ctx));
    if (!rc) json_object_set_new(doc, "template", template_report(m));
    model_close(m);
    return json_object_set_new(doc, "refused", list) ? err_nomem(err, "the report") : 0;
}

int fletch_inspect(struct fletch_engine *e, const char *path, bool check, char **json)
{
    struct source *s;
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = source_open(&s, path, &e->err);
    if (rc) return rc;
    json_t *doc = inspect_report(s), *checked = NULL;
    if (check) rc = check_report(s, &checked, &e->err);
    source_close(s);
    if (!rc) rc = add_opened(doc, path, &e->err);
    if (rc) {
        json_decref(checked);
        json_decref(doc);
        return rc;
    }
    if (checked) json_object_set_new(doc, "check", checked);
    return report_give(doc, json, &e->err);
}

/* ---- plan and explain: a model that is opened but not placed ---- */

struct draft {
    struct model *m;
    struct program *p;
    struct exec_limits limits;
};

static void draft_close(struct draft *d)
{
    prog_close(d->p);
    model_close(d->m);
}

/* How the weights of a shape are stored that is given without a type. */
#define ASSUMED_TYPE "q8_0"

/* What is no file may be meant as a shape. */
static void tell_shapes(struct err *err)
{
    size_t n = strlen(err->text);
    for (const struct synth_shape *s = synth_shapes; s->name && n < sizeof err->text; s++) {
        const char *before = s == synth_shapes ? "; known shapes: " : ", ";
        n += (size_t)snprintf(err->text + n, sizeof err->text - n, "%s%s", before, s->name);
    }
}

/* A file, or SHAPE[:TYPE] of fletch synth: nothing here needs a model's bytes. */
static int draft_source(struct source **out, const char *path, struct err *err)
{
    char name[32];
    size_t n = strcspn(path, ":");
    snprintf(name, sizeof name, "%.*s", (int)MIN(n, sizeof name), path);
    const struct synth_shape *shape = access(path, F_OK) ? synth_find(name) : NULL;
    if (shape) return synth_source(out, shape, path[n] ? path + n + 1 : ASSUMED_TYPE, 0, err);
    int rc = source_open(out, path, err);
    if (rc && access(path, F_OK) && !strchr(path, '/')) tell_shapes(err);
    return rc;
}

/* found: what the device has; NULL: it is looked at. */
static int draft_open(struct draft *d, struct fletch_engine *e, const struct exec_class *class,
                      const char *path, const struct fletch_model_params *params,
                      const struct exec_device *found)
{
    struct profile profile;
    struct source *source;
    *d = (struct draft){0};
    int rc = engine_profile(&profile, class, params, &e->err);
    if (!rc) rc = draft_source(&source, path, &e->err);
    if (rc) return rc;
    source->ignore_unknown = params && params->ignore_unknown;
    rc = model_open(&d->m, source, profile, &e->err);
    if (rc) return err_prefix(&e->err, "%s", QUOTE(str_of(path)));
    rc = engine_limits(&d->limits, d->m, class, params, &e->err);
    d->limits.device = e->device;
    if (found)
        d->limits.found = *found;
    else if (class->look)
        d->limits.found = class->look(class, e->device);
    if (!rc) rc = engine_program(&d->p, d->m->trunk, class, params && params->no_fuse, &e->err);
    if (rc) {
        draft_close(d);
        return rc;
    }
    engine_widen(&d->limits, d->m, d->p, class, params);
    engine_tell_ignored(d->m, params);
    return 0;
}

/* Adds what guesses tokens, where params ask for that. */
static int plan_guessing(struct plan *plan, const struct draft *d, struct fletch_engine *e,
                         const struct exec_class *class, const struct fletch_model_params *params)
{
    int rc = engine_speculation_plan(plan, d->m, class, &d->limits, params, &e->err);
    if (!rc && engine_drafts(d->m, params, DRAFTER_MODEL)) {
        struct draft small;
        struct plan its;
        struct fletch_model_params its_params = engine_draft_params(params, &d->limits);
        rc = draft_open(&small, e, class, params->speculation.draft, &its_params, &d->limits.found);
        if (rc) return err_prefix(&e->err, "draft model");
        small.limits.twice = its_params.n_sessions > 1; /* as it will be opened */
        plan_make(&its, small.m, small.p, class, &small.limits, its_params.max_memory);
        plan_add_guessing(plan, d->m, &d->limits, its.total - its.kv, its.kv, its.per_token);
        draft_close(&small);
    }
    return rc;
}

static json_t *part(const char *name, u64 bytes, const char *note)
{
    return json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes, "note", note);
}

static json_t *plan_report(const struct plan *plan, const struct draft *d,
                           const struct exec_class *class, const struct fletch_model_params *params,
                           const char *path)
{
    json_t *parts = json_array();
    json_array_append_new(
        parts, part("weights", plan->weights,
                    class->keeps_weights ? "mapped from the file" : "packed for the backend"));
    if (plan->kv) json_array_append_new(parts, part("kv cache", plan->kv, "for the whole context"));
    if (plan->state) json_array_append_new(parts, part("state", plan->state, "recurrent, f32"));
    json_array_append_new(
        parts, part("activations", plan->activations,
                    class->look ? "buffers, logits, recorded lists" : "buffers and logits"));
    if (plan->guessing)
        json_array_append_new(
            parts, part("speculation", plan->guessing, engine_drafts_with(d->m, params)));
    bool assumed = access(path, F_OK) && !strchr(path, ':');
    return json_pack(
        "{s:o, s:s, s:s, s:b, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:o, s:I}", "model",
        report_text(str_of(path)), "arch", d->m->hp.arch, "type", report_main_type(d->m->source),
        "type_assumed", assumed, "backend", class->name, "fits", plan->fits, "total",
        (json_int_t)plan->total, "available", (json_int_t)plan->available, "n_ctx",
        (json_int_t)d->limits.max_pos, "n_ctx_trained", (json_int_t)d->m->hp.n_ctx, "n_sessions",
        (json_int_t)d->limits.n_slots, "kv_type", cache_info[d->m->net->profile.kv].name,
        "max_rows", (json_int_t)d->limits.max_rows, "parts", parts, "largest_ctx",
        (json_int_t)plan->largest_ctx);
}

int fletch_plan(struct fletch_engine *e, const char *path, const struct fletch_model_params *params,
                char **json)
{
    struct draft d;
    struct plan plan;
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = draft_open(&d, e, e->class, path, params, NULL);
    if (rc) return rc;
    engine_tell_length(d.m, params);
    plan_make(&plan, d.m, d.p, e->class, &d.limits, params ? params->max_memory : 0);
    rc = plan_guessing(&plan, &d, e, e->class, params);
    json_t *doc = rc ? NULL : plan_report(&plan, &d, e->class, params, path);
    draft_close(&d);
    return rc ? rc : report_give(doc, json, &e->err);
}

static json_t *machine_report(const struct machine *m)
{
    return json_pack("{s:s, s:s, s:f, s:f, s:b}", "name", m->name, "what", m->what, "bandwidth_gbs",
                     m->gbs, "memory_gib", m->gib, "supported", m->link != LINK_NONE);
}

/* Adds what a token would take after contexts of several lengths. */
static int add_prediction(json_t *doc, const struct machine *m, const struct draft *d,
                          const struct exec_class *class, struct err *err)
{
    static const u32 depths[] = {16, 2048, 8192, 65536};
    json_t *list = json_array();
    struct token_cost c;
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(depths) && depths[i] <= d->limits.max_pos && !rc; i++) {
        if ((rc = predict_cost(&c, m, d->p, class, &d->limits, depths[i], err))) break;
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:f, s:f}", "depth", (json_int_t)depths[i], "bytes",
                            (json_int_t)(c.streamed + c.routed), "ms", 1e3 * predict_token(m, &c),
                            "tokens_per_s", 1 / predict_token(m, &c)));
        if (i == 0) json_object_set_new(doc, "launches", json_integer((json_int_t)c.n_launches));
    }
    json_object_set_new(doc, "predicted", list);
    return rc;
}

int fletch_plan_for(struct fletch_engine *e, const char *path,
                    const struct fletch_model_params *params, const char *machine, char **json)
{
    struct draft d;
    struct plan plan;
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = engine_need(&e->err, machine, "the machine's name");
    if (rc) return rc;
    const struct machine *m = machine_find(machine, &e->err);
    if (!m) return e->err.code;
    const struct exec_class *class = gpu_class(m->backend);
    const struct exec_device found = machine_device(m);
    rc = draft_open(&d, e, class, path, params, &found);
    if (rc) return rc;
    engine_tell_length(d.m, params);
    u64 max_memory = params ? params->max_memory : 0;
    plan_make(&plan, d.m, d.p, class, &d.limits, max_memory ? max_memory : machine_memory(m));
    rc = plan_guessing(&plan, &d, e, class, params);
    json_t *doc = rc ? NULL : plan_report(&plan, &d, class, params, path);
    if (!rc) json_object_set_new(doc, "machine", machine_report(m));
    if (!rc && plan.fits && m->link != LINK_NONE) rc = add_prediction(doc, m, &d, class, &e->err);
    draft_close(&d);
    if (!rc) return report_give(doc, json, &e->err);
    json_decref(doc);
    return rc;
}

static json_t *operand_text(const struct program *p, struct operand o)
{
    const struct buffer *b = &p->bufs[o.buf];
    char cols[48] = "";
    if (o.col || o.width != b->width)
        snprintf(cols, sizeof cols, "[%u..%u)", o.col, o.col + o.width);
    return json_sprintf("%s[%s][%u]%s", b->name, b->rows == ROWS_T ? "T" : "R", b->width, cols);
}

static json_t *weight_text(const struct weight *w)
{
    if (w->n_slices > 1)
        return json_sprintf("%s %s %ux%ux%u", w->name, type_name(w->type), w->n_in, w->n_out,
                            w->n_slices);
    return json_sprintf("%s %s %ux%u", w->name, type_name(w->type), w->n_in, w->n_out);
}

static json_t *operands_text(const struct program *p, const struct operand *x, u32 n)
{
    json_t *list = json_array();
    for (u32 i = 0; i < n; i++) json_array_append_new(list, operand_text(p, x[i]));
    return list;
}

static json_t *group_report(const struct program *p, u32 i)
{
    enum { MAX = 32 };
    const struct group *g = &p->groups[i];
    struct operand in[MAX], out[MAX];
    u32 n_in = group_inputs(p, g, in, MAX), n_out = group_outputs(p, g, out, MAX);
    json_t *ops = json_array(), *weights = json_array();
    for (u32 k = 0; k < g->n_ops; k++) {
        const struct op *op = g->ops[k];
        json_array_append_new(ops, json_string(op_info[op->kind].name));
        for (u32 j = 0; j < op->n_w; j++)
            if (op->w[j] != NO_WEIGHT)
                json_array_append_new(weights, weight_text(&p->net->weights[op->w[j]]));
    }
    return json_pack("{s:I, s:i, s:s, s:o, s:o, s:o, s:o, s:I}", "i", (json_int_t)i, "layer",
                     g->ops[0]->layer, "name", group_name(g), "ops", ops, "out",
                     operands_text(p, out, n_out), "in", operands_text(p, in, n_in), "weights",
                     weights, "bytes", (json_int_t)group_bytes(p, g, 1));
}

/* How many kernels a step of one row is, for each group and in all. */
static int add_launches(json_t *report, const struct program *p, const struct exec_class *class,
                        const struct exec_limits *limits, struct err *err)
{
    u32 total, *by_group = calloc(p->n_groups + 1, sizeof *by_group);
    int rc = by_group ? class->launches(class, p, limits, 1, 0, by_group, &total, err)
                      : err_nomem(err, "the report");
    for (u32 i = 0; i < p->n_groups && !rc; i++)
        json_object_set_new(json_array_get(json_object_get(report, "groups"), i), "launches",
                            json_integer((json_int_t)by_group[i]));
    if (!rc) json_object_set_new(report, "launches", json_integer((json_int_t)total));
    free(by_group);
    return rc;
}

/* Memory beside the program's buffers, while a chunk of a prompt is read: that of its groups in
 * turn.
 */
static int add_scratch(json_t *report, const struct program *p, const struct exec_class *class,
                       const struct exec_limits *limits, struct err *err)
{
    u64 most = 0, *by_group = calloc(p->n_groups + 1, sizeof *by_group);
    int rc =
        by_group ? class->scratch(class, p, limits, by_group, err) : err_nomem(err, "the report");
    for (u32 i = 0; i < p->n_groups && !rc; i++) {
        json_object_set_new(json_array_get(json_object_get(report, "groups"), i), "scratch_bytes",
                            json_integer((json_int_t)by_group[i]));
        most = MAX(most, by_group[i]);
    }
    if (!rc) json_object_set_new(report, "chunk", json_integer((json_int_t)limits->max_rows));
    if (!rc) json_object_set_new(report, "scratch_bytes", json_integer((json_int_t)most));
    free(by_group);
    return rc;
}

static int program_report(json_t *programs, const struct program *p, const struct exec_class *class,
                          const struct exec_limits *limits, struct err *err)
{
    json_t *groups = json_array();
    u64 bytes = 0, cols = p->n_cols[ROWS_T];
    for (u32 i = 0; i < p->n_groups; i++) {
        json_array_append_new(groups, group_report(p, i));
        bytes += group_bytes(p, &p->groups[i], 1);
    }
    json_t *report = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name", p->name, "n_ops",
        (json_int_t)p->n_ops, "n_groups", (json_int_t)p->n_groups, "cols_per_row", (json_int_t)cols,
        "bytes_per_row", (json_int_t)(cols * sizeof(float)), "weight_bytes", (json_int_t)bytes,
        "kv_bytes_per_token", (json_int_t)exec_kv_bytes(p->net), "state_bytes",
        (json_int_t)exec_state_bytes(p->net), "groups", groups);
    json_array_append_new(programs, report);
    int rc = class->launches ? add_launches(report, p, class, limits, err) : 0;
    return !rc && class->scratch ? add_scratch(report, p, class, limits, err) : rc;
}

int fletch_explain(struct fletch_engine *e, const char *path,
                   const struct fletch_model_params *params, char **json)
{
    struct draft d;
    struct program *mtp = NULL;
    int rc = engine_need_report(e, path, json);
    /* launches are counted for any device */
    if (!rc) rc = draft_open(&d, e, e->class, path, params, &(struct exec_device){0});
    if (rc) return rc;
    json_t *programs = json_array();
    rc = program_report(programs, d.p, e->class, &d.limits, &e->err);
    if (!rc && d.m->mtp)
        rc = engine_program(&mtp, d.m->mtp, e->class, params && params->no_fuse, &e->err);
    if (!rc && mtp) rc = program_report(programs, mtp, e->class, &d.limits, &e->err);
    json_t *doc =
        json_pack("{s:o, s:s, s:s, s:I, s:s, s:o}", "model", report_text(str_of(path)), "arch",
                  d.m->hp.arch, "backend", e->class->name, "n_ctx", (json_int_t)d.limits.max_pos,
                  "kv_type", cache_info[d.m->net->profile.kv].name, "programs", programs);
    prog_close(mtp);
    draft_close(&d);
    if (rc) {
        json_decref(doc);
        return rc;
    }
    return report_give(doc, json, &e->err);
}

/* ---- doctor ---- */

static json_t *cpu_report(void)
{
    char model[128];
    json_t *features = json_array();
    static const char *const wanted[] = {"avx2",        "fma",         "avx_vnni", "avx512f",
                                         "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
                                         "asimddp",     "i8mm"};
#define ISA_NAME(set) #set,
    static const char *const names[] = {CPU_ISAS(ISA_NAME)};
#undef ISA_NAME
    os_processor_name(model, sizeof model);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (os_processor_has(wanted[i])) json_array_append_new(features, json_string(wanted[i]));
    json_t *isas = json_array();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (cpu_class(names[i])) json_array_append_new(isas, json_string(names[i]));
    return json_pack("{s:s, s:I, s:I, s:o, s:s, s:o, s:s?, s:b}", "model",
                     *model ? model : "unknown", "cores", (json_int_t)os_cores(), "threads",
                     (json_int_t)os_threads(), "features", features, "isa", cpu_class(NULL)->isa,
                     "isas", isas, "blas", blas_name(), "blas_used", blas_start());
}

/* One core's reading tells whether more of them can make decode faster. */
static json_t *memory_report(struct fletch_engine *e)
{
    char pages[32];
    struct err err = {0};
    os_huge_pages(pages, sizeof pages);
    static const char *const pressures[] = {[OS_PRESSURE_UNKNOWN] = "unknown",
                                            [OS_PRESSURE_NORMAL] = "normal",
                                            [OS_PRESSURE_WARNING] = "warning",
                                            [OS_PRESSURE_HIGH] = "high"};
    return json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:f, s:f}", "total", (json_int_t)os_memory_bytes(), "available",
        (json_int_t)plan_available(), "pressure", pressures[os_memory_pressure()], "huge_pages",
        pages, "nodes", (json_int_t)os_memory_nodes(), "read_gb_s",
        bench_read_quickly(e->n_threads, &err), "core_read_gb_s", bench_read_quickly(1, &err));
}

/* Has its device been tuned? JSON null where there is none. */
static json_t *tuned_report(const struct fletch_engine *e, const struct backend_state *b)
{
    const struct gpu_driver *d = b->find ? NULL : gpu_driver_of(gpu_class(b->name));
    struct gpu_info info;
    struct tuned t;
    struct err err;
    if (!d || !gpu_look(d, e->device, &info)) return json_null();
    int rc = tuned_open(&t, e, d, info.name, &err);
    json_t *o = json_pack("{s:s, s:I, s:o}", "device", info.name, "layouts",
                          (json_int_t)t.layouts.n, "file", report_text(str_of(t.path)));
    if (rc) json_object_set_new(o, "wrong", report_text(str_of(err.text)));
    layouts_close(&t.layouts);
    return o;
}

/* Does a GPU compute as our kernels need it (gpu/arithmetic.h)? JSON null where there is none. */
static json_t *arithmetic_report(const struct fletch_engine *e, const struct backend_state *b)
{
    const struct gpu_driver *d = b->find ? NULL : gpu_driver_of(gpu_class(b->name));
    struct gpu *g;
    struct err err = {0};
    bool flushes = false;
    if (!d || gpu_absent(b->name) || d->open(&g, e->device, &err)) return json_null();
    struct gpu_info info;
    int rc = gpu_check_arithmetic(d, g, &flushes, &err);
    d->info(g, &info);
    d->close(g);
    if (rc) return json_pack("{s:b, s:o}", "right", 0, "wrong", report_text(str_of(err.text)));
    return json_pack("{s:b, s:b, s:b}", "right", 1, "flushes_subnormals", flushes, "tensor",
                     info.caps.tensor);
}

int fletch_doctor(struct fletch_engine *e, char **json)
{
    size_t n;
    const struct backend_state *state = backend_list(&n);
    int rc = engine_need_report(e, "", json);
    if (rc) return rc;
    json_t *backends = json_array(), *archs = json_array(), *types = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *absent = backend_absent(&state[i]);
        json_array_append_new(backends,
                              json_pack("{s:s, s:b, s:s, s:o, s:o}", "name", state[i].name, "works",
                                        !absent, "why", absent ? absent : state[i].what, "tuned",
                                        tuned_report(e, &state[i]), "arithmetic",
                                        arithmetic_report(e, &state[i])));
    }
    for (const struct arch *a = arch_table; a->name; a++)
        json_array_append_new(archs, json_pack("{s:s, s:s}", "name", a->name, "models", a->models));
    for (u32 t = 0; t < QT_COUNT; t++) {
        const struct quant_info *info = quant_info(t);
        if (info && info->readable) json_array_append_new(types, json_string(info->name));
    }
    char advice[1024];
    os_advice(advice, sizeof advice);
    json_t *doc = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s}", "version", fletch_version(),
                            "cpu", cpu_report(), "memory", memory_report(e), "backends", backends,
                            "architectures", archs, "types", types, "advice", advice);
    return report_give(doc, json, &e->err);
}
