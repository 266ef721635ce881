/* What drafts the next tokens of a model, opened with it: see serve/speculate.h. */
#include "serve/speculate.h"

#include "engine/engine.h"

bool engine_speculates(const struct fletch_model_params *params)
{
    const struct fletch_speculation *how = params ? &params->speculation : NULL;
    return how && (how->automatic || how->draft || how->ngram || how->mtp);
}

/* ---- which drafters are wanted ---- */

static bool wants_forced(const struct fletch_speculation *how, const struct model *m)
{
    (void)m;
    return how->automatic || how->ngram;
}

static bool wants_ngram(const struct fletch_speculation *how, const struct model *m)
{
    (void)m;
    return how->automatic || how->ngram;
}

static bool wants_model(const struct fletch_speculation *how, const struct model *m)
{
    (void)m;
    return how->draft;
}

static bool wants_mtp(const struct fletch_speculation *how, const struct model *m)
{
    return how->mtp || (how->automatic && m->mtp && !how->draft);
}

static int open_draft(struct fletch_model *m, struct spec_env *env,
                      const struct fletch_model_params *params, struct err *err);
static int open_mtp(struct fletch_model *m, struct spec_env *env,
                    const struct fletch_model_params *params, struct err *err);

static const struct drafter_setup {
    bool (*wanted)(const struct fletch_speculation *how, const struct model *m);
    /* Opens what it drafts with; NULL: nothing. */
    int (*open)(struct fletch_model *m, struct spec_env *env,
                const struct fletch_model_params *params, struct err *err);
    const char *memory; /* what that is in a plan */
} setups[N_DRAFTERS] = {
    [DRAFTER_FORCED] = {wants_forced, NULL, NULL},
    [DRAFTER_NGRAM] = {wants_ngram, NULL, NULL},
    [DRAFTER_MODEL] = {wants_model, open_draft, "the draft model, with its cache"},
    [DRAFTER_MTP] = {wants_mtp, open_mtp, "the MTP block's buffers"},
};

bool engine_drafts(const struct model *m, const struct fletch_model_params *params,
                   enum drafter_kind d)
{
    return engine_speculates(params) && setups[d].wanted(&params->speculation, m);
}

const char *engine_drafts_with(const struct model *m, const struct fletch_model_params *params)
{
    const char *what = NULL;
    for (u32 d = 0; d < N_DRAFTERS; d++)
        if (engine_drafts(m, params, d) && setups[d].memory) what = setups[d].memory;
    return what;
}

int engine_speculation_check(const struct model *m, const struct fletch_speculation *how,
                             struct err *err)
{
    if (how->draft && how->mtp)
        return err_set(err, FLETCH_E_ARG, "a draft model and MTP cannot be combined");
    if (how->mtp && !m->mtp)
        return err_set(err, FLETCH_E_ARG, "the model has no MTP block to draft tokens with");
    return 0;
}

int engine_speculation_plan(struct plan *plan, const struct model *m,
                            const struct exec_class *class, const struct exec_limits *limits,
                            const struct fletch_model_params *params, struct err *err)
{
    if (!engine_speculates(params)) return 0;
    int rc = engine_speculation_check(m, &params->speculation, err);
    if (rc || !engine_drafts(m, params, DRAFTER_MTP)) return rc;
    return plan_add_mtp(plan, m, class, limits, params->no_fuse, err);
}

static bool same_tokens(const struct vocab *a, const struct vocab *b)
{
    if (a->spec.n_tokens != b->spec.n_tokens) return false;
    for (u32 i = 0; i < a->spec.n_tokens; i++)
        if (!str_eq(a->spec.tokens[i], b->spec.tokens[i])) return false;
    return true;
}

/* It has a slot for each of the model's, and a spare one where it is recurrent. */
struct fletch_model_params engine_draft_params(const struct fletch_model_params *params,
                                               const struct exec_limits *limits)
{
    u32 n_sessions = params->n_sessions ? params->n_sessions : 1;
    u64 pool = (u64)limits->n_blocks * limits->block_tokens;
    return (struct fletch_model_params){.n_ctx = limits->max_pos,
                                        .n_sessions = n_sessions,
                                        .kv_tokens = pool ? pool : params->kv_tokens,
                                        .n_snapshots = n_sessions,
                                        .act_type = params->act_type,
                                        .no_fuse = params->no_fuse,
                                        .max_memory = params->max_memory,
                                        .notice = params->notice,
                                        .notice_ctx = params->notice_ctx,
                                        .ignore_unknown = params->ignore_unknown};
}

static int open_draft(struct fletch_model *m, struct spec_env *env,
                      const struct fletch_model_params *params, struct err *err)
{
    struct fletch_model_params p = engine_draft_params(params, &m->limits);
    if (p.max_memory) p.max_memory -= m->memory_bytes;
    int rc = engine_open_beside(&m->draft, m, params->speculation.draft, &p);
    if (rc) {
        if (err != &m->engine->err) *err = m->engine->err;
        return err_prefix(err, "draft model");
    }
    if (!same_tokens(m->m->vocab, m->draft->m->vocab) ||
        (!m->m->vocab->tok && m->m->hp.n_vocab != m->draft->m->hp.n_vocab))
        return err_set(err, FLETCH_E_ARG,
                       "draft model %s has a different vocabulary from the model",
                       QUOTE(str_of(params->speculation.draft)));
    env->program = (struct spec_model){&m->draft->queue, &m->draft->kv, m->n_sessions, NULL};
    if (m->draft->reader.step) env->program.reader = &m->draft->reader;
    return 0;
}

static int open_mtp(struct fletch_model *m, struct spec_env *env,
                    const struct fletch_model_params *params, struct err *err)
{
    int rc = engine_program(&m->mtp, m->m->mtp, m->engine->class, params->no_fuse, err);
    m->mtp_queue = (struct step_queue){.x = m->x, .p = m->mtp, .step = m->step};
    if (!rc) rc = m->x->class->load(m->x, m->mtp, &m->mtp_queue.handle, err);
    env->program = env->target;
    env->program.queue = &m->mtp_queue;
    return rc;
}

int engine_speculation_open(struct fletch_model *m, const struct fletch_model_params *params,
                            struct err *err)
{
    if (!engine_speculates(params)) return 0;
    const struct fletch_speculation *how = &params->speculation;
    int rc = 0;
    struct spec_env env = {.rejects = how->rejection,
                           .n_tokens = MIN(how->n_tokens, (u32)SPEC_MAX),
                           .n_slots = m->n_sessions};
    env.target = (struct spec_model){&m->queue, &m->kv, m->limits.n_slots - m->n_sessions, NULL};
    if (m->reader.step) env.target.reader = &m->reader;
    for (u32 d = 0; !rc && d < N_DRAFTERS; d++) {
        env.uses[d] = engine_drafts(m->m, params, d);
        if (env.uses[d] && setups[d].open) rc = setups[d].open(m, &env, params, err);
    }
    return rc ? rc : spec_open(&m->spec, &env, err);
}

void engine_speculation_close(struct fletch_model *m)
{
    spec_close(m->spec);
    fletch_model_close(m->draft);
    prog_close(m->mtp);
}
