/* What a backend has to pass on a model before it is trusted: P1 it chooses the reference's tokens,
 * P2 every op and every choice of experts agrees, P3 no value is NaN or infinite, P4 settings of an
 * answer mean the same, P6 a conversation equals a fresh run of its transcript. (P5, its speed
 * against what was recorded, is the application's.) */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/sample.h"
#include "engine/report.h"
#include "engine/session.h"
#include "engine/verify.h"
#include "serve/sampling.h"

enum {
    N_OPS = 512,    /* tokens that are compared op by op, unless told */
    N_HEATED = 128, /* at temperature 0.8 */
    N_ANSWER = 24,  /* of each setting */
    N_TURNS = 20,   /* of the conversation, each a question and an answer */
    MAX_QUESTION = 23,
    MAX_ANSWER = 13,
    MAX_TALK = N_TURNS * (MAX_QUESTION + MAX_ANSWER),
};

struct gates {
    struct fletch_engine *e, *other;
    const char *path;
    struct fletch_model_params params; /* P4 and P6: with the profile spelled out */
    struct fletch_verify how;
    json_t *list;
    bool failed;
};

__attribute__((format(printf, 5, 6))) static void
tell(struct gates *g, const char *gate, const char *what, bool passed, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    json_t *said = json_vsprintf(fmt, ap);
    va_end(ap);
    g->failed |= !passed;
    json_array_append_new(g->list, json_pack("{s:s, s:s, s:b, s:o}", "gate", gate, "what", what,
                                             "passed", passed, "said", said));
}

static long long count(const json_t *doc, const char *a, const char *b)
{
    const json_t *j = json_object_get(doc, a);
    return json_integer_value(b ? json_object_get(j, b) : j);
}

static void tell_tokens(struct gates *g, const char *what, const json_t *doc)
{
    long long n = count(doc, "tokens", "compared"), equal = count(doc, "tokens", "equal");
    long long close = count(doc, "tokens", "close");
    tell(g, "P1", what, n == equal + close, "%lld of %lld tokens equal, %lld close calls", equal, n,
         close);
}

static void tell_ops(struct gates *g, const json_t *doc)
{
    const json_t *first = json_object_get(doc, "first_difference");
    const char *op = json_string_value(json_object_get(first, "op"));
    tell(g, "P2", "ops and expert choices match the reference", !op,
         "%lld ops of %lld steps compared, %lld of %lld choices different; first difference: %s",
         count(doc, "n_ops", NULL), count(doc, "n_steps", NULL), count(doc, "routing", "different"),
         count(doc, "routing", "compared"), op ? op : "none");
    long long bad = count(doc, "bad_values", NULL);
    tell(g, "P3", "no NaN or infinity", bad == 0, "%lld NaN or infinite values in %lld steps", bad,
         count(doc, "n_steps", NULL));
}

/* P1 to P3: greedy and by op, then by tokens at a temperature. */
static int compare_backends(struct gates *g)
{
    struct verify_side side[2] = {{g->e->class, g->how.no_fuse}, {g->other->class, true}};
    struct fletch_verify heated = g->how;
    json_t *doc;
    heated.temperature = 0.8f;
    heated.n_tokens = MIN(g->how.n_tokens, (u32)N_HEATED);
    int rc = verify_run(&doc, g->path, &g->params, side, g->e->n_threads, &g->how, &g->e->err);
    if (rc) return rc;
    tell_tokens(g, "greedy tokens match the reference", doc);
    tell_ops(g, doc);
    json_decref(doc);
    rc = verify_run(&doc, g->path, &g->params, side, g->e->n_threads, &heated, &g->e->err);
    if (rc) return rc;
    tell_tokens(g, "tokens at temperature 0.8 match the reference", doc);
    json_decref(doc);
    return 0;
}

/* ---- P4: settings ---- */

struct setting {
    const char *name;
    struct fletch_generate how;
    bool text; /* needs a vocabulary */
};

#define DRAWN(...) \
    .sampling = {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1, .seed = 7, __VA_ARGS__}

static const int32_t bias_tokens[] = {1, 5};
static const float bias_values[] = {-100, 3};
static const struct setting settings[] = {
    {"greedy", {.sampling = {.top_p = 1, .repeat_penalty = 1}}, false},
    {"temperature", {DRAWN(.choice = 0)}, false},
    {"choice", {DRAWN(.choice = 1)}, false},
    {"top_k", {DRAWN(.top_k = 5)}, false},
    {"top_p",
     {.sampling = {.temperature = 1, .top_p = 0.7f, .repeat_penalty = 1, .seed = 7}},
     false},
    {"min_p", {DRAWN(.min_p = 0.1f)}, false},
    {"repeat_penalty",
     {.sampling = {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1.3f, .penalty_window = 64}},
     false},
    {"presence_penalty", {DRAWN(.presence_penalty = 1, .penalty_window = 64)}, false},
    {"frequency_penalty", {DRAWN(.frequency_penalty = 1, .penalty_window = 8)}, false},
    {"logit_bias",
     {DRAWN(.n_bias = ARRAY_LEN(bias_tokens), .bias_tokens = bias_tokens,
            .bias_values = bias_values)},
     false},
    {"ignore_end", {DRAWN(.choice = 2), .ignore_end = true}, false},
    {"grammar", {DRAWN(.choice = 3), .grammar = "root ::= [a-z ]+ \".\""}, true},
    {"json_schema", {DRAWN(.choice = 4), .json_schema = "{\"type\": \"array\"}"}, true},
};

struct answer {
    u32 n;
    i32 tokens[N_ANSWER];
};

static int keep_token(void *ctx, int32_t token, const char *text, size_t n)
{
    struct answer *a = ctx;
    (void)text;
    (void)n;
    if (token >= 0 && a->n < N_ANSWER) a->tokens[a->n++] = token;
    return 0;
}

static int answer(struct answer *a, struct fletch_session *s, const struct gates *g,
                  struct fletch_generate how)
{
    struct fletch_generated done;
    a->n = 0;
    how.max_tokens = N_ANSWER;
    how.on_text = keep_token;
    how.ctx = a;
    fletch_session_reset(s);
    int rc = fletch_session_append(s, g->how.tokens, g->how.n_prompt, NULL);
    return rc ? rc : fletch_session_generate(s, &how, &done);
}

/* The token after a session's last one by its logits, whatever its backend draws. */
static int choose(const struct fletch_session *s, const float *logits,
                  const struct fletch_sampling *how, i32 *token, struct err *err)
{
    u32 n_vocab = s->model->m->hp.n_vocab;
    struct sample_edit *edits = calloc(SAMPLE_MAX_EDITS, sizeof *edits);
    struct sample_scratch scratch = {calloc(n_vocab, sizeof *scratch.z),
                                     calloc(n_vocab, sizeof *scratch.order)};
    int rc = edits && scratch.z && scratch.order ? 0 : err_nomem(err, "a row of logits");
    if (!rc) {
        struct sample_row row;
        sampling_row(how, s->seq.tokens, s->seq.n, &row, edits);
        const struct sample_in in = {
            .logits = logits, .n_vocab = n_vocab, .position = s->seq.n, .edits = edits};
        *token = sample_token(&row, &in, &scratch);
    }
    free(edits);
    free(scratch.z);
    free(scratch.order);
    return rc;
}

/* Where two answers part: whether the logits of both tokens nearly agree there, and the first
 * backend chose as its own logits say. */
static int is_close(bool *close, struct fletch_session *s[2], const struct gates *g,
                    const struct setting *how, const struct answer said[2])
{
    u32 n = 0;
    *close = false;
    while (n < said[0].n && n < said[1].n && said[0].tokens[n] == said[1].tokens[n]) n++;
    if (n == said[0].n || n == said[1].n) return 0;
    const float *z[2];
    for (int i = 0; i < 2; i++) {
        fletch_session_reset(s[i]);
        int rc = fletch_session_append(s[i], g->how.tokens, g->how.n_prompt, NULL);
        if (!rc && n) rc = fletch_session_append(s[i], said[i].tokens, n, NULL);
        if (rc) return err_set(&g->e->err, rc, "%s", fletch_session_error(s[i]));
        z[i] = fletch_session_logits(s[i]);
    }
    i32 choice;
    int rc = choose(s[0], z[0], &how->how.sampling, &choice, &g->e->err);
    if (rc) return rc;
    if (!how->text && choice != said[0].tokens[n]) return 0;
    *close = verify_is_close(s[1]->model->m->net, z[0], z[1], said[0].tokens[n], said[1].tokens[n]);
    return 0;
}

static int compare_settings(struct gates *g, struct fletch_session *s[2])
{
    u32 n = 0, n_equal = 0, n_close = 0;
    const char *worst = "none";
    struct fletch_model_info info;
    fletch_model_info(s[0]->model, &info);
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        struct answer said[2];
        bool close;
        if (settings[i].text && !info.has_vocab) continue;
        for (int k = 0; k < 2; k++) {
            int rc = answer(&said[k], s[k], g, settings[i].how);
            if (rc) return err_set(&g->e->err, rc, "%s", fletch_session_error(s[k]));
        }
        n++;
        if (said[0].n == said[1].n &&
            memcmp(said[0].tokens, said[1].tokens, said[0].n * sizeof(i32)) == 0) {
            n_equal++;
            continue;
        }
        int rc = is_close(&close, s, g, &settings[i], said);
        if (rc) return rc;
        n_close += close;
        if (!close) worst = settings[i].name;
    }
    tell(g, "P4", "every setting gives the same tokens", n == n_equal + n_close,
         "%u of %u answers equal, %u differ only at a close call; different: %s", n_equal, n,
         n_close, worst);
    return 0;
}

/* ---- P6: a conversation ---- */

struct talk {
    u32 n, turn_end[N_TURNS];
    i32 tokens[MAX_TALK];
    float *logits; /* [N_TURNS][n_vocab] after each turn */
};

static int keep_talk(void *ctx, int32_t token, const char *text, size_t n)
{
    struct talk *t = ctx;
    (void)text;
    (void)n;
    if (token >= 0) t->tokens[t->n++] = token;
    return 0;
}

static int hold_talk(struct talk *t, struct fletch_session *s, u32 n_vocab)
{
    u64 random = 3;
    for (u32 turn = 0; turn < N_TURNS; turn++) {
        u32 n = 1 + turn * 7 % MAX_QUESTION, first = t->n;
        for (u32 i = 0; i < n; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            t->tokens[t->n++] = (i32)((random >> 33) % n_vocab);
        }
        struct fletch_generated done;
        struct fletch_generate how = {
            .max_tokens = 1 + turn * 5 % MAX_ANSWER,
            .sampling = {.temperature = turn % 2 ? 0 : 1, .top_p = 1, .repeat_penalty = 1},
            .ignore_end = true,
            .on_text = keep_talk,
            .ctx = t,
        };
        int rc = fletch_session_append(s, t->tokens + first, n, NULL);
        if (!rc) rc = fletch_session_generate(s, &how, &done);
        if (rc) return rc;
        memcpy(t->logits + (size_t)turn * n_vocab, fletch_session_logits(s),
               n_vocab * sizeof(float));
        t->turn_end[turn] = t->n;
    }
    return 0;
}

/* The transcript from its beginning, looked at where turns ended. */
static int compare_talk(const struct talk *t, struct fletch_session *s, u32 n_vocab, u32 *n_equal)
{
    *n_equal = 0;
    fletch_session_reset(s);
    for (u32 turn = 0, from = 0; turn < N_TURNS; from = t->turn_end[turn++]) {
        int rc = fletch_session_append(s, t->tokens + from, t->turn_end[turn] - from, NULL);
        if (rc) return rc;
        *n_equal += memcmp(fletch_session_logits(s), t->logits + (size_t)turn * n_vocab,
                           n_vocab * sizeof(float)) == 0;
    }
    return 0;
}

static int talk_twice(struct gates *g, struct fletch_model *m, struct talk *t)
{
    struct fletch_session *s;
    u32 n_vocab = m->m->hp.n_vocab, n_equal = 0;
    t->logits = calloc((size_t)N_TURNS * n_vocab, sizeof *t->logits);
    if (!t->logits) return err_nomem(&g->e->err, "a talk");
    int rc = fletch_session_open(&s, m);
    if (rc) return err_set(&g->e->err, rc, "%s", fletch_model_error(m));
    rc = hold_talk(t, s, n_vocab);
    if (!rc) rc = compare_talk(t, s, n_vocab, &n_equal);
    if (rc) err_set(&g->e->err, rc, "%s", fletch_session_error(s));
    fletch_session_close(s);
    if (!rc)
        tell(g, "P6", "twenty turns match a fresh run", n_equal == N_TURNS,
             "%u of %d turns bit-identical", n_equal, N_TURNS);
    return rc;
}

static int run_talk(struct gates *g)
{
    struct fletch_model_params params = g->params;
    struct fletch_model *m;
    struct talk *t = calloc(1, sizeof *t);
    if (!t) return err_nomem(&g->e->err, "a talk");
    params.n_ctx = MAX_TALK;
    int rc = fletch_model_open(&m, g->e, g->path, &params);
    if (!rc) {
        rc = talk_twice(g, m, t);
        fletch_model_close(m);
    }
    free(t->logits);
    free(t);
    return rc;
}

/* ---- all of them ---- */

/* The backend's own profile, by name, so that the other runs at the same; without bf16, so that a
 * token is the same whether it was read or generated. */
static int spell_profile(struct gates *g)
{
    struct profile p;
    int rc = engine_profile(&p, g->e->class, &g->params, &g->e->err);
    if (rc) return rc;
    g->params.kv_type = cache_info[p.kv].name;
    g->params.act_type = p.int8 ? "int8" : "f32";
    return 0;
}

static int run_settings(struct gates *g)
{
    struct fletch_model *m[2] = {NULL, NULL};
    struct fletch_session *s[2] = {NULL, NULL};
    struct fletch_engine *e[2] = {g->e, g->other};
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++) {
        rc = fletch_model_open(&m[i], e[i], g->path, &g->params);
        if (rc && i) err_set(&g->e->err, rc, "%s", fletch_engine_error(g->other));
        if (!rc && (rc = fletch_session_open(&s[i], m[i])))
            err_set(&g->e->err, rc, "%s", fletch_model_error(m[i]));
    }
    if (!rc) rc = compare_settings(g, s);
    for (int i = 0; i < 2; i++) {
        if (s[i]) fletch_session_close(s[i]);
        fletch_model_close(m[i]);
    }
    return rc;
}

int fletch_gates(struct fletch_engine *e, const char *path,
                 const struct fletch_model_params *params, const struct fletch_verify *v,
                 char **json)
{
    int rc = engine_need_report(e, path, json);
    if (!rc) rc = engine_need(&e->err, v, "the parameters");
    if (!rc) rc = engine_need_all(&e->err, v->tokens, v->n_prompt, "tokens");
    if (rc) return rc;
    struct gates g = {.e = e, .path = path, .how = *v, .list = json_array()};
    if (params) g.params = *params;
    if (!g.how.n_tokens) g.how.n_tokens = N_OPS;
    const char *against = v->against ? v->against : "ref";
    rc = fletch_engine_open(
        &g.other, &(struct fletch_engine_params){.backend = against, .n_threads = e->n_threads});
    if (rc && g.other) err_set(&e->err, rc, "%s", fletch_engine_error(g.other));
    if (!rc) rc = compare_backends(&g);
    if (!rc) rc = spell_profile(&g);
    if (!rc) rc = run_settings(&g);
    if (!rc) rc = run_talk(&g);
    if (g.other) fletch_engine_close(g.other);
    if (rc) {
        json_decref(g.list);
        return rc;
    }
    json_t *doc = json_pack("{s:b, s:s, s:s, s:o}", "passed", !g.failed, "backend", e->class->name,
                            "against", against, "gates", g.list);
    return report_give(doc, json, &e->err);
}
