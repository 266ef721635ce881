/* What speculation gives on texts of three kinds, beside decoding without it in turns: a text that
 * is repeated with small edits, JSON of a schema, a fresh story; and a text whose tokens are never
 * those that were drafted, which shows what drafting may cost. The model does not say the first and
 * the last by itself: their steps are run with the tokens of a script, which decide what is
 * accepted. */
#include <stdlib.h>
#include <string.h>

#include "engine/bench.h"
#include "engine/report.h"

static const char story[] =
    "Mara kept the lighthouse at the end of the long grey pier. Every evening she climbed the "
    "ninety-one steps, wound the clockwork, and lit the lamp before the fishing boats turned for "
    "home. One night in October a thick fog came in from the sea, and the lamp was no brighter "
    "than a candle behind a curtain. Mara took the old brass bell from its shelf, carried it "
    "outside, and rang it until her arms were tired. Far out on the water the captain of the "
    "last boat heard three slow notes, turned the wheel to the left, and missed the rocks by "
    "the length of an oar. In the morning there was a basket of fish at her door, and beside it a "
    "note that said: we could not see you, but we knew that you were there.";

static const char schema[] =
    "{\"type\":\"array\",\"minItems\":4,\"maxItems\":4,\"items\":{\"type\":\"object\","
    "\"properties\":{\"identifier\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"
    "\"customer_name\":{\"type\":\"string\",\"maxLength\":6},"
    "\"delivery_status\":{\"enum\":[\"delivered\",\"in transit\",\"returned to sender\"]},"
    "\"is_express\":{\"type\":\"boolean\"}},"
    "\"required\":[\"identifier\",\"customer_name\",\"delivery_status\",\"is_express\"],"
    "\"additionalProperties\":false}}";

enum { EDIT_EVERY = 24, N_COPIES = 3, N_STORY = 256, N_ROUNDS = 5, MAX_SCRIPT = 2048 };

enum text_kind { TEXT_EDITED, TEXT_JSON, TEXT_STORY, TEXT_AGAINST, N_TEXTS };
static const char *const text_names[N_TEXTS] = {
    "a text repeated with small edits", "JSON of a schema", "a fresh story", "against its drafts"};

/* One way of running a text; the best of several rounds counts. */
struct side {
    struct fletch_session *s;
    struct spec *spec;
    double seconds;
    u32 n_tokens, n_drafted, n_accepted;
};

struct drafts {
    struct fletch_model *m;
    struct side off, on;
    i32 *script; /* [MAX_SCRIPT] */
    u32 n_script, n_first;
    i32 *tokens; /* [MAX_SCRIPT + SPEC_MAX] */
};

/* ---- scripts ---- */

/* Token n of the script, where `draft` was drafted (-1: nothing was). */
static i32 said(const struct drafts *d, enum text_kind kind, u32 n, i32 draft)
{
    i32 token = d->script[n];
    if (kind == TEXT_AGAINST) token = d->script[n % 5];
    return kind == TEXT_AGAINST && token == draft ? d->script[5] : token;
}

static void make_script(struct drafts *d, size_t n_story)
{
    i32 n_vocab = (i32)d->m->m->hp.n_vocab;
    d->n_first = (u32)n_story;
    d->n_script = (u32)n_story * N_COPIES;
    for (u32 i = d->n_first; i < d->n_script; i++) {
        i32 copied = d->script[i % d->n_first];
        bool edit = i % EDIT_EVERY == EDIT_EVERY / 2;
        d->script[i] = edit ? (copied + (i32)i) % n_vocab : copied;
    }
}

/* A step with the last of n tokens and those that were drafted after it. */
static int run_step(struct drafts *d, u32 n, u32 n_draft, struct err *err)
{
    struct step *s = d->m->step;
    step_reset(s);
    for (u32 i = n - 1; i < n + n_draft; i++)
        CHECK(step_add(s, (struct row){d->tokens[i], 0, i, ROW_D}, true));
    return step_queue_run(&d->m->queue, err);
}

/* The whole script; what comes after its first copy is timed. */
static int run_script(struct drafts *d, struct side *side, enum text_kind kind, struct err *err)
{
    struct fletch_model *m = d->m;
    struct spec_record record = {0};
    u32 n = 1, n_blocks = 0, most = MIN(m->limits.max_out, m->limits.max_rows) - 1;
    double began = base_now(), seconds;
    int rc = 0;
    *side = (struct side){.spec = side->spec, .s = side->s, .seconds = side->seconds};
    d->tokens[0] = d->script[0];
    if (m->m->net->n_kv && !kv_cover(&m->kv, m->step->tables, &n_blocks, d->n_script + SPEC_MAX))
        return err_set(err, FLETCH_E_LIMIT, "the context is too short for the text");
    for (u32 n_right; !rc && n + 1 < d->n_script; n += n_right + 1) {
        struct spec_seq q = {.tokens = d->tokens, .n = n, .record = &record};
        if (n < d->n_first) began = base_now();
        q.room = MIN(most, d->n_script - n - 1);
        if (side->spec) rc = spec_draft(side->spec, &q, 1, 1, err);
        double submitted = base_now();
        if (!rc) rc = run_step(d, n, q.n_draft, err);
        const struct spec_step step = {1, q.n_draft + 1};
        double took = base_now() - submitted;
        for (n_right = 0;; n_right++) {
            i32 draft = n_right < q.n_draft ? d->tokens[n + n_right] : -1;
            i32 next = said(d, kind, n + n_right, draft);
            d->tokens[n + n_right] = next;
            if (n_right == q.n_draft || next != draft) break;
        }
        if (side->spec) spec_measure(side->spec, step, took);
        if (side->spec) spec_count(side->spec, &record, step, step.n_rows, q.n_draft, n_right);
    }
    seconds = base_now() - began;
    side->n_tokens = n - d->n_first;
    side->n_drafted = record.n_drafted;
    side->n_accepted = record.n_accepted;
    side->seconds = side->seconds > 0 ? MIN(side->seconds, seconds) : seconds;
    if (side->spec) spec_end(side->spec, &record);
    kv_release(&m->kv, m->step->tables, &n_blocks);
    return rc;
}

/* ---- what the model says ---- */

static int run_model(struct drafts *d, struct side *side, enum text_kind kind, struct err *err)
{
    static const char prompt[] = "Once upon a time";
    i32 *ids = NULL;
    size_t n = 0;
    struct fletch_generated made = {0};
    struct fletch_generate g = {
        .max_tokens = N_STORY,
        .sampling = {.temperature = kind == TEXT_STORY ? 0.8f : 0, .top_p = 1, .repeat_penalty = 1},
        .ignore_end = kind == TEXT_STORY,
        .json_schema = kind == TEXT_JSON ? schema : NULL};
    int rc = fletch_tokenize(d->m, prompt, sizeof prompt - 1, 0, &ids, &n);
    if (rc) return err_set(err, rc, "%s", d->m->err.text);
    fletch_session_reset(side->s);
    rc = fletch_session_append(side->s, ids, n, NULL);
    fletch_free(ids);
    double began = base_now();
    if (!rc) rc = fletch_session_generate(side->s, &g, &made);
    if (rc) return err_set(err, rc, "%s", fletch_session_error(side->s));
    double seconds = base_now() - began;
    side->seconds = side->seconds > 0 ? MIN(side->seconds, seconds) : seconds;
    side->n_tokens = made.n_tokens;
    side->n_drafted = made.n_drafted;
    side->n_accepted = made.n_accepted;
    return 0;
}

static int run_once(struct drafts *d, struct side *side, enum text_kind kind, struct err *err)
{
    bool scripted = kind == TEXT_EDITED || kind == TEXT_AGAINST;
    return (scripted ? run_script : run_model)(d, side, kind, err);
}

static int run_text(struct drafts *d, enum text_kind kind, json_t *rows, struct err *err)
{
    int rc = 0;
    d->on.seconds = d->off.seconds = 0;
    for (u32 i = 0; !rc && i <= N_ROUNDS; i++) { /* the first warms up */
        rc = run_once(d, &d->off, kind, err);
        if (!rc) rc = run_once(d, &d->on, kind, err);
        if (!i) d->on.seconds = d->off.seconds = 0;
    }
    if (rc) return rc;
    double off = d->off.n_tokens / d->off.seconds, on = d->on.n_tokens / d->on.seconds;
    json_array_append_new(
        rows, json_pack("{s:s, s:i, s:f, s:f, s:f, s:i, s:i}", "text", text_names[kind], "n_tokens",
                        (int)d->on.n_tokens, "off", off, "on", on, "ratio", on / off, "n_drafted",
                        (int)d->on.n_drafted, "n_accepted", (int)d->on.n_accepted));
    return 0;
}

/* ---- opening ---- */

/* A session of each kind: what drafts for one is not there while the other is opened. */
static int open_sides(struct drafts *d)
{
    struct fletch_model *m = d->m;
    struct spec *spec = m->spec;
    m->spec = NULL;
    int rc = fletch_session_open(&d->off.s, m);
    m->spec = spec;
    return rc ? rc : fletch_session_open(&d->on.s, m);
}

static int measure(struct drafts *d, json_t *rows, struct err *err)
{
    size_t n = 0;
    d->script = calloc(MAX_SCRIPT, sizeof *d->script);
    d->tokens = calloc(MAX_SCRIPT + SPEC_MAX, sizeof *d->tokens);
    if (!d->script || !d->tokens) return err_nomem(err, "the text");
    i32 *ids = NULL;
    int rc = fletch_tokenize(d->m, story, sizeof story - 1, 0, &ids, &n);
    if (rc) return err_set(err, rc, "%s", d->m->err.text);
    n = MIN(n, (size_t)MAX_SCRIPT / N_COPIES);
    memcpy(d->script, ids, n * sizeof *ids);
    fletch_free(ids);
    make_script(d, n);
    d->on.spec = d->m->spec;
    /* a state would have to go back for a script */
    bool has_states = d->m->m->net->n_states;
    for (u32 i = 0; !rc && i < N_TEXTS; i += N_TEXTS - 1)
        if (!has_states) rc = run_text(d, i, rows, err);
    if (!rc && (rc = open_sides(d))) rc = err_set(err, rc, "%s", d->m->err.text);
    if (!rc) rc = run_text(d, TEXT_JSON, rows, err);
    return rc ? rc : run_text(d, TEXT_STORY, rows, err);
}

int fletch_bench_drafts(struct fletch_engine *e, const char *path,
                        const struct fletch_model_params *params, const struct fletch_bench *bench,
                        char **json)
{
    struct drafts d = {0};
    json_t *rows = json_array();
    struct fletch_model_params p = params ? *params : (struct fletch_model_params){0};
    int rc = engine_need_report(e, path ? path : bench ? bench->image : NULL, json);
    if (!rc) rc = engine_refuse_text_only(params, &e->err);
    p.n_ctx = MAX_SCRIPT;
    p.n_sessions = 2;
    if (!engine_speculates(&p)) p.speculation.automatic = true;
    if (!rc)
        rc = path ? fletch_model_open(&d.m, e, path, &p)
                  : fletch_model_open_image(&d.m, e, bench->image, bench->n_image, &p);
    if (!rc) rc = measure(&d, rows, &e->err);
    fletch_session_close(d.on.s);
    fletch_session_close(d.off.s);
    fletch_model_close(d.m);
    free(d.script);
    free(d.tokens);
    if (rc) {
        json_decref(rows);
        return rc;
    }
    return report_give(json_pack("{s:s, s:s, s:o}", "version", fletch_version(), "backend",
                                 e->class->name, "drafts", rows),
                       json, &e->err);
}
