/* Models behind the public interface: opened, planned, placed. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/constrain.h"
#include "engine/tune.h"
#include "format/gguf.h"
#include "serve/sampling.h"

int engine_source(struct source **out, const char *path, const void *image, size_t n,
                  struct err *err)
{
    if (!image) return source_open(out, path, err);
    int rc = source_new(out, path, err);
    if (rc) return rc;
    if ((rc = gguf_read_image(*out, image, n, err))) {
        source_close(*out);
        *out = NULL;
    }
    return rc;
}

int engine_model(struct model **out, const char *path, struct profile profile, struct err *err)
{
    struct source *s;
    *out = NULL;
    int rc = source_open(&s, path, err);
    if (rc) return rc;
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
    free(m->slot_used);
    free(m);
}

/* Sampling settings that the model's authors recommend. */
static int read_sampling(struct fletch_sampling *s, const struct source *src, struct err *err)
{
    *s = sampling_defaults();
    int rc = source_get_f32(src, "general.sampling.temp", &s->temperature, err);
    if (rc >= 0) rc = source_get_u32(src, "general.sampling.top_k", &s->top_k, err);
    if (rc >= 0) rc = source_get_f32(src, "general.sampling.top_p", &s->top_p, err);
    if (rc >= 0) rc = source_get_f32(src, "general.sampling.min_p", &s->min_p, err);
    if (rc >= 0)
        rc = source_get_f32(src, "general.sampling.penalty_repeat", &s->repeat_penalty, err);
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
    if (engine_speculates(params)) {
        int rc = engine_speculation_check(m->m, &params->speculation, err);
        if (!rc && params->speculation.mtp)
            rc = plan_add_mtp(&plan, m->m, class, &m->limits, params->no_fuse, err);
        if (rc) return rc;
    }
    m->memory_bytes = plan.total;
    if (plan.fits) return 0;
    char hint[96] = "; even an empty context does not fit";
    if (plan.largest_ctx)
        snprintf(hint, sizeof hint, "; a context of %u would fit (-c %u)", plan.largest_ctx,
                 plan.largest_ctx);
    double mb = 1e-6;
    return err_set(err, FLETCH_E_FIT,
                   "does not fit: weights %.1f + cache for %u tokens %.1f + state %.1f + "
                   "activations %.1f + guessing %.1f = %.1f MB, but %.1f MB are available%s",
                   (double)plan.weights * mb, m->limits.max_pos, (double)plan.kv * mb,
                   (double)plan.state * mb, (double)plan.activations * mb,
                   (double)plan.guessing * mb, (double)plan.total * mb, (double)plan.available * mb,
                   hint);
}

/* Steps of prompts that run beside those of answers. */
static int open_reader(struct fletch_model *m, struct err *err)
{
    int rc = step_open_beside(&m->reader_step, m->step, err);
    m->reader = (struct lane){.x = m->x, .p = m->trunk, .step = m->reader_step};
    return rc ? rc : m->x->class->load(m->x, m->trunk, &m->reader.handle, err);
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
    if ((rc = model_open(&m->m, s, profile, err))) return rc;
    if ((rc = read_sampling(&m->sampling, m->m->source, err))) return rc;
    if ((rc = engine_limits(&m->limits, m->m, class, params, err))) return rc;
    m->limits.device = m->engine->device;
    m->limits.capture = m->engine->capture;
    m->limits.beside = beside;
    if (beside) m->limits.twice = params->n_sessions > 1; /* it guesses while its reading rests */
    if ((rc = engine_program(&m->trunk, m->m->trunk, class, params && params->no_fuse, err)))
        return rc;
    if ((rc = check_plan(m, params, err))) return rc;
    m->n_sessions = params && params->n_sessions ? params->n_sessions : 1;
    m->slot_used = calloc(m->n_sessions, sizeof *m->slot_used);
    if (!m->slot_used) return err_nomem(err, "the sessions");
    if ((rc = constrain_open(&m->constrain, err))) return rc;
    if ((rc = kv_open(&m->kv, m->limits.n_blocks, m->limits.block_tokens, err))) return rc;
    if ((rc = step_open(&m->step, m->m->net, &m->limits, err))) return rc;
    if ((rc = class->open(&m->x, m->m->net, &m->limits, m->engine->n_threads, err))) return rc;
    engine_lay_out(m->engine, m->x, params);
    if ((rc = model_place(m->m, m->x, params ? params->progress : NULL,
                          params ? params->progress_ctx : NULL, err)))
        return rc;
    enum fletch_ahead ahead = params ? params->ahead : FLETCH_AHEAD_AUTO;
    m->lane = (struct lane){.x = m->x, .p = m->trunk, .step = m->step};
    m->lane.ahead = ahead == FLETCH_AHEAD_AUTO ? class->queues : ahead == FLETCH_AHEAD_ALWAYS;
    if ((rc = class->load(m->x, m->trunk, &m->lane.handle, err))) return rc;
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
    int rc = engine_source(&s, path, image.p, image.n, &e->err);
    if (rc) return rc;
    struct fletch_model *m = calloc(1, sizeof *m);
    if (!m) {
        source_close(s);
        return err_nomem(&e->err, "the model");
    }
    m->engine = e;
    rc = open_parts(m, s, params, beside, &e->err);
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
    return open_source(out, e, path, (struct str){0}, params, NULL);
}

int engine_open_beside(struct fletch_model **out, const struct fletch_model *m, const char *path,
                       const struct fletch_model_params *params)
{
    return open_source(out, m->engine, path, (struct str){0}, params, m->x);
}

int fletch_model_open_image(struct fletch_model **out, struct fletch_engine *e, const void *image,
                            size_t n, const struct fletch_model_params *params)
{
    return open_source(out, e, "built-in model", (struct str){image, n}, params, NULL);
}

const char *fletch_model_error(const struct fletch_model *m)
{
    return m->err.text;
}

void fletch_model_info(const struct fletch_model *m, struct fletch_model_info *info)
{
    const struct hparams *hp = &m->m->hp;
    *info = (struct fletch_model_info){
        .arch = hp->arch,
        .name = hp->name,
        .n_ctx = m->limits.max_pos,
        .n_ctx_trained = hp->n_ctx,
        .n_vocab = hp->n_vocab,
        .n_embd = hp->d_model,
        .n_layers = hp->n_layers,
        .has_vocab = m->m->vocab->tok != NULL,
        .has_template = m->m->vocab->spec.chat_template.p != NULL,
        .chat_template = m->m->vocab->spec.chat_template.p,
        .n_chat_template = m->m->vocab->spec.chat_template.n,
        .weight_bytes = model_weight_bytes(m->m),
        .memory_bytes = m->memory_bytes + (m->draft ? m->draft->memory_bytes : 0),
        .sampling = m->sampling,
    };
}
