/* Models behind the public interface: opened, planned, placed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/constrain.h"
#include "engine/report.h"
#include "engine/tune.h"
#include "format/gguf.h"
#include "serve/sampling.h"

/* An image has a name for messages in place of a path. */
static int model_source(struct source **out, const char *path, struct str image,
                        const struct fletch_model_params *params, struct err *err)
{
    if (!image.p && params && params->text_only) return source_open_text(out, path, err);
    if (!image.p) return source_open(out, path, err);
    int rc = source_new(out, path, err);
    if (rc) return rc;
    if ((rc = gguf_read_image(*out, (const u8 *)image.p, image.n, err))) {
        source_close(*out);
        *out = NULL;
    }
    return rc;
}

int engine_model(struct model **out, const char *path, struct profile profile,
                 const struct fletch_model_params *params, struct err *err)
{
    struct source *s;
    *out = NULL;
    int rc = source_open(&s, path, err);
    if (rc) return rc;
    s->ignore_unknown = params && params->ignore_unknown;
    rc = model_open(out, s, profile, err);
    return rc ? err_prefix(err, "%s", QUOTE(str_of(path))) : 0;
}

void fletch_model_close(struct fletch_model *m)
{
    if (!m) return;
    if (m->slot_used)
        for (u32 i = 0; i < m->n_sessions; i++) CHECK(!m->slot_used[i]); /* sessions first */
    store_close(m->recall.store);
    constrain_close(m->constrain);
    engine_speculation_close(m);
    step_close(m->reader_step);
    step_close(m->step);
    if (m->x) m->x->class->close(m->x);
    prog_close(m->trunk);
    kv_close(&m->kv);
    model_close(m->m);
    tmpl_close(m->chat);
    free(m->given_template);
    turns_close(&m->turns);
    free(m->slot_used);
    free(m);
}

static int read_real(float *to, const struct source *src, const char *key, struct err *err)
{
    return source_get_f32(src, key, to, err);
}

static int read_count(u32 *to, const struct source *src, const char *key, struct err *err)
{
    const struct kv *kv = source_kv(src, key);
    i64 n;
    if (!kv || !kv_int(kv, 0, &n) || n != -1) return source_get_u32(src, key, to, err);
    *to = 0; /* how some say "all tokens" */
    return 0;
}

/* Sampling settings that the model's authors recommend. */
static int read_sampling(struct fletch_sampling *s, const struct source *src, struct err *err)
{
    int rc = 0;
    *s = sampling_defaults();
#define SETTING_READ(kind, name, option, arg, min, max, off, metadata, ...) \
    if (rc >= 0 && *(metadata)) rc = read_##kind(&s->name, src, "general.sampling." metadata, err);
    FLETCH_SAMPLING_SETTINGS(SETTING_READ)
#undef SETTING_READ
    if (rc < 0) return rc;
    if (sampling_check(s, 0, err) == 0) return 0;
    err_prefix(err, "metadata general.sampling");
    return err->code = FLETCH_E_FORMAT;
}

/* A draft model is checked by itself, in what this one leaves. */
static int check_plan(struct fletch_model *m, const struct fletch_model_params *params,
                      struct err *err)
{
    const struct exec_class *class = m->engine->class;
    struct plan plan;
    plan_make(&plan, m->m, m->trunk, class, &m->limits, params ? params->max_memory : 0);
    int rc = engine_speculation_plan(&plan, m->m, class, &m->limits, params, err);
    if (rc) return rc;
    m->memory_bytes = plan.total;
    if (plan.fits) return 0;
    char hint[96] = "; use a smaller model or a smaller storage type";
    if (plan.largest_ctx)
        snprintf(hint, sizeof hint, "; a context of %u would fit (-c %u)", plan.largest_ctx,
                 plan.largest_ctx);
    return err_set(err, FLETCH_E_FIT,
                   "does not fit: a context of %u tokens requires %s, but only %s is available%s",
                   m->limits.max_pos, BYTES(plan.total), BYTES(plan.available), hint);
}

void engine_tell_length(const struct model *m, const struct fletch_model_params *params)
{
    char text[200];
    if (!params || !params->notice || params->n_ctx <= m->hp.n_ctx) return;
    snprintf(text, sizeof text,
             "warning: the context of %u tokens is longer than the %u tokens that the model was "
             "trained with; beyond that length, answers may get worse",
             params->n_ctx, m->hp.n_ctx);
    params->notice(params->notice_ctx, text);
}

void engine_tell_ignored(const struct model *m, const struct fletch_model_params *params)
{
    const struct source_refused *r = m->source->refused;
    char text[400];
    if (!params || !params->notice) return;
    if (m->source->left_out) params->notice(params->notice_ctx, m->source->left_out);
    for (u32 i = 0; i < r->n; i++) {
        snprintf(text, sizeof text, "ignored, at your own risk: %s", r->lines[i]);
        params->notice(params->notice_ctx, text);
    }
}

/* Steps of prompts that run beside those of answers. */
static int open_reader(struct fletch_model *m, struct err *err)
{
    int rc = step_open_beside(&m->reader_step, m->step, err);
    m->reader = (struct step_queue){.x = m->x, .p = m->trunk, .step = m->reader_step};
    return rc ? rc : m->x->class->load(m->x, m->trunk, &m->reader.handle, err);
}

static void tell(const struct fletch_model_params *params, const char *fmt, const char *why)
{
    char text[640];
    if (!params || !params->notice) return;
    snprintf(text, sizeof text, fmt, why);
    params->notice(params->notice_ctx, text);
}

/* Some converters write the name of a template that their engine has built in. As a template it
 * would render to that name, whatever the messages say. */
static int open_own_template(struct fletch_model *m, struct str own)
{
    if (own.n && !memchr(own.p, '{', own.n))
        return err_set(&m->chat_err, FLETCH_E_TEMPLATE,
                       "it contains only a name, %s; give the template itself", QUOTE(own));
    return tmpl_open(&m->chat, own, &m->chat_err);
}

/* The given chat template, or the file's own. One of the file's that can't be used is told of once:
 * everything but chats works without it. */
static int open_template(struct fletch_model *m, const struct fletch_model_params *params,
                         struct err *err)
{
    struct str own = m->m->vocab->spec.chat_template;
    const char *given = params ? params->chat_template : NULL;
    bool prefers_own = !given || (params->keep_own_template && own.p);
    if (prefers_own && !own.p) return 0;
    int rc = prefers_own ? open_own_template(m, own) : 0;
    if (rc == FLETCH_E_NOMEM) return err_nomem(err, "the chat template");
    if (rc)
        tell(params,
             given ? "the model's chat template cannot be used, so the given one is used: %s"
                   : "the model's chat template cannot be used, so chats will fail: %s",
             m->chat_err.text);
    if (!given || m->chat) return 0;
    m->given_template = strdup(given);
    if (!m->given_template) return err_nomem(err, "the chat template");
    rc = tmpl_open(&m->chat, str_of(given), err);
    if (!rc || rc == FLETCH_E_NOMEM) return rc;
    err_prefix(err, "the given chat template");
    return err->code = FLETCH_E_TEMPLATE; /* nothing is wrong with the model */
}

/* Nothing can run: no weights, no executor. */
static int open_text(struct fletch_model *m, struct source *s,
                     const struct fletch_model_params *params, struct err *err)
{
    s->ignore_unknown = params->ignore_unknown;
    int rc = model_open_text(&m->m, s, err);
    return rc ? rc : open_template(m, params, err);
}

int engine_need_weights(struct fletch_model *m)
{
    if (m->x) return 0;
    return err_set(&m->err, FLETCH_E_ARG,
                   "the model was opened with text_only, so it has no weights to run");
}

int engine_refuse_text_only(const struct fletch_model_params *params, struct err *err)
{
    if (!params || !params->text_only) return 0;
    return err_set(err, FLETCH_E_ARG,
                   "this needs the model's weights, but text_only does not load them");
}

/* A device that computes other bits is used by those only who asked for its backend. */
static int judge_device(const struct fletch_model *m, const struct fletch_model_params *params,
                        struct err *err)
{
    if (!m->x->warning[0]) return 0;
    if (!m->engine->asked)
        return err_set(err, FLETCH_E_BACKEND,
                       "%s; use --backend cpu, or --backend %s to use the GPU anyway",
                       m->x->warning, m->engine->class->name);
    tell(params, "warning: %s; answers may be wrong", m->x->warning);
    return 0;
}

static int open_parts(struct fletch_model *m, struct source *s,
                      const struct fletch_model_params *params, const struct exec *beside,
                      struct err *err)
{
    const struct exec_class *class = m->engine->class;
    struct profile profile;
    int rc = engine_profile(&profile, class, params, err);
    if (rc) {
        source_close(s);
        return rc;
    }
    s->ignore_unknown = params && params->ignore_unknown;
    if ((rc = model_open(&m->m, s, profile, err))) return rc;
    if ((rc = read_sampling(&m->sampling, m->m->source, err))) return rc;
    if (!beside && (rc = open_template(m, params, err))) return rc;
    if ((rc = engine_limits(&m->limits, m->m, class, params, err))) return rc;
    m->limits.device = m->engine->device;
    if (class->look) m->limits.found = class->look(class, m->limits.device);
    m->limits.capture = m->engine->capture;
    m->limits.cache_dir = m->engine->tune_dir;
    m->limits.keep_alive = m->engine->keep_alive;
    m->limits.beside = beside;
    if (beside) m->limits.twice = params->n_sessions > 1; /* it guesses while its reading rests */
    if ((rc = engine_program(&m->trunk, m->m->trunk, class, params && params->no_fuse, err)))
        return rc;
    if (!beside) engine_widen(&m->limits, m->m, m->trunk, class, params);
    if (!beside) engine_tell_length(m->m, params);
    engine_tell_ignored(m->m, params);
    if ((rc = check_plan(m, params, err))) return rc;
    m->n_sessions = params && params->n_sessions ? params->n_sessions : 1;
    m->slot_used = calloc(m->n_sessions, sizeof *m->slot_used);
    if (!m->slot_used) return err_nomem(err, "the sessions");
    if ((rc = constrain_open(&m->constrain, err))) return rc;
    if ((rc = kv_open(&m->kv, m->limits.n_blocks, m->limits.block_tokens, err))) return rc;
    if ((rc = step_open(&m->step, m->m->net, &m->limits, err))) return rc;
    if ((rc = class->open(&m->x, class, m->m->net, &m->limits, m->engine->n_threads, err)))
        return rc;
    if ((rc = judge_device(m, params, err))) return rc;
    engine_lay_out(m->engine, m->x, params);
    if ((rc = model_place(m->m, m->x, params ? params->progress : NULL,
                          params ? params->progress_ctx : NULL, err)))
        return rc;
    enum fletch_ahead ahead = params ? params->ahead : FLETCH_AHEAD_AUTO;
    m->queue = (struct step_queue){.x = m->x, .p = m->trunk, .step = m->step};
    m->queue.ahead = ahead == FLETCH_AHEAD_AUTO ? class->queues : ahead == FLETCH_AHEAD_ALWAYS;
    if ((rc = class->load(m->x, m->trunk, &m->queue.handle, err))) return rc;
    if (m->limits.twice && (rc = open_reader(m, err))) return rc;
    if ((rc = engine_speculation_open(m, params, err))) return rc;
    return engine_recall_open(m, params, err);
}

/* From a file or an image; beside: see exec_limits. */
static int open_source(struct fletch_model **out, struct fletch_engine *e, const char *path,
                       struct str image, const struct fletch_model_params *params,
                       const struct exec *beside)
{
    struct source *s;
    *out = NULL;
    int rc = model_source(&s, path, image, params, &e->err);
    if (rc) return rc;
    struct fletch_model *m = calloc(1, sizeof *m);
    if (!m) {
        source_close(s);
        return err_nomem(&e->err, "the model");
    }
    m->engine = e;
    turns_open(&m->turns);
    rc = params && params->text_only ? open_text(m, s, params, &e->err)
                                     : open_parts(m, s, params, beside, &e->err);
    if (rc) {
        fletch_model_close(m);
        return err_prefix(&e->err, "%s", QUOTE(str_of(path)));
    }
    *out = m;
    return 0;
}

int fletch_model_open(struct fletch_model **out, struct fletch_engine *e, const char *path,
                      const struct fletch_model_params *params)
{
    if (out) *out = NULL;
    if (!e || !e->class) return FLETCH_E_ARG; /* its text says why it did not open */
    int rc = engine_need(&e->err, out, "the address for the model");
    if (!rc) rc = engine_need(&e->err, path, "the path of the model");
    return rc ? rc : open_source(out, e, path, (struct str){0}, params, NULL);
}

int engine_open_beside(struct fletch_model **out, const struct fletch_model *m, const char *path,
                       const struct fletch_model_params *params)
{
    return open_source(out, m->engine, path, (struct str){0}, params, m->x);
}

int fletch_model_open_image(struct fletch_model **out, struct fletch_engine *e, const void *image,
                            size_t n, const struct fletch_model_params *params)
{
    if (out) *out = NULL;
    if (!e || !e->class) return FLETCH_E_ARG; /* its text says why it did not open */
    int rc = engine_need(&e->err, out, "the address for the model");
    if (!rc) rc = engine_need(&e->err, image, "the image of the model");
    if (rc) return rc;
    return open_source(out, e, "built-in model", (struct str){image, n}, params, NULL);
}

const char *fletch_model_error(const struct fletch_model *m)
{
    return m ? m->err.text : "no model";
}

bool fletch_model_gpu_memory(const struct fletch_model *m, uint64_t *allocated,
                             uint64_t *recommended)
{
    u64 a = 0, r = 0;
    bool known = m && m->x && m->x->class->memory && m->x->class->memory(m->x, &a, &r);
    if (allocated) *allocated = a;
    if (recommended) *recommended = r;
    return known;
}

void fletch_model_info(const struct fletch_model *m, struct fletch_model_info *info)
{
    if (!info) return;
    if (!m) {
        *info = (struct fletch_model_info){.arch = "", .name = "", .type = "", .pooling = ""};
        return;
    }
    const struct hparams *hp = &m->m->hp;
    struct str chat =
        m->given_template ? str_of(m->given_template) : m->m->vocab->spec.chat_template;
    *info = (struct fletch_model_info){
        .arch = hp->arch,
        .name = hp->name,
        .type = report_main_type(m->m->source),
        .n_ctx = m->limits.max_pos,
        .n_ctx_trained = hp->n_ctx,
        .n_vocab = hp->n_vocab,
        .n_embd = hp->d_model,
        .n_layers = hp->n_layers,
        .has_vocab = m->m->vocab->tok != NULL,
        .has_template = m->chat != NULL,
        .has_state = m->m->net && m->m->net->n_states > 0,
        .chat_template = chat.p,
        .n_chat_template = chat.n,
        .weight_bytes = model_weight_bytes(m->m),
        .memory_bytes = m->memory_bytes + (m->draft ? m->draft->memory_bytes : 0),
        .pooling = engine_pooling(m->m),
        .sampling = m->sampling,
    };
}
