/* Fields of request bodies, by tables: what is there is checked, what is unknown is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

static void *place(struct call *c, const struct field *f)
{
    return (char *)c + f->at;
}

int field_count(struct call *c, const struct field *f, json_t *v)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || (double)n < f->min || (double)n > f->max)
        return call_wrong(c, 400, f->name, "%s must be an integer from %.0f to %.0f", f->name,
                          f->min, f->max);
    *(uint32_t *)place(c, f) = (uint32_t)n;
    return 0;
}

int field_top(struct call *c, const struct field *f, json_t *v)
{
    json_int_t n = json_integer_value(v);
    if (n > 0 && (uint64_t)n > limit_of(&c->server->limits, logprobs))
        return call_over(c, LIMIT_logprobs, f->name, (uint64_t)n);
    return field_count(c, f, v);
}

int field_flag(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s must be true or false", f->name);
    *(bool *)place(c, f) = json_is_true(v);
    return 0;
}

int field_array(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_array(v)) return call_wrong(c, 400, f->name, "%s must be an array", f->name);
    return field_any(c, f, v);
}

int field_object(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_object(v)) return call_wrong(c, 400, f->name, "%s must be an object", f->name);
    return field_any(c, f, v);
}

int field_any(struct call *c, const struct field *f, json_t *v)
{
    *(json_t **)place(c, f) = v;
    return 0;
}

int field_ignore(struct call *c, const struct field *f, json_t *v)
{
    (void)c;
    (void)f;
    (void)v;
    return 0;
}

/* What v counts as: see server.h; NAN for what never says that a field is not wanted. */
static double amount_of(const json_t *v)
{
    if (json_is_number(v)) return json_number_value(v);
    if (json_is_boolean(v)) return json_is_true(v);
    if (json_is_string(v)) return json_string_length(v) ? NAN : 0;
    return json_array_size(v) + json_object_size(v) ? NAN : 0;
}

int field_off(struct call *c, const struct field *f, json_t *v)
{
    double d = amount_of(v);
    if ((d >= f->min && d <= f->max) || !call_ignore(c, f->name)) return 0;
    if (json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s is supported only as %s", f->name,
                          json_is_true(v) ? "false" : "true");
    return call_wrong(c, 400, f->name, "%s is not supported; leave it out", f->name);
}

/* What is wrong, as the settings' table says it. */
static int setting_wrong(struct call *c, const char *param, const struct setting_error *e)
{
    if (e->no_memory) return call_no_memory(c);
    if (e->limit < N_LIMITS) return call_over(c, e->limit, param, e->is);
    call_wrong(c, 400, param, "%s", e->text);
    return *e->place ? call_at(c, "%s", e->place) : -1;
}

int field_setting(struct call *c, const struct field *f, json_t *v)
{
    struct setting_error e = {.limit = N_LIMITS};
    const struct setting_field *x = settings_find(f->name);
    const char *said = call_field(c, x->name);
    const json_t *twin = x->alias_of ? json_object_get(c->body, x->alias_of) : NULL;
    if (twin && !json_is_null(twin))
        return call_wrong(c, 400, said, "%s is another name for %s; give only one of them", said,
                          x->alias_of);
    return x->take(x, &c->ask.set, v, said, &e) ? setting_wrong(c, said, &e) : 0;
}

/* Programs come with names of models that others serve: a lone model answers to any name. */
static int take_model(struct call *c, const struct field *f, json_t *v)
{
    const char *id = json_word(v);
    const struct server *s = c->server;
    if (!id) return call_wrong(c, 400, f->name, "model must be a string without NUL");
    c->served = served_find(c->server, id);
    if (c->served) return 0;
    if (s->n_served == 1 && !s->params.strict_model) {
        c->served = &s->served[0];
        call_notice(c, "model %s is not available; %s answers instead", QUOTE(id), c->served->id);
        return 0;
    }
    call_wrong(c, 404, f->name,
               "model %s is not available on this server; GET /v1/models lists those that are",
               QUOTE(id));
    c->problem.code = "model_not_found";
    return -1;
}

static int take_n(struct call *c, const struct field *f, json_t *v)
{
    uint64_t most = limit_of(&c->server->limits, choices);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1)
        return call_wrong(c, 400, f->name, "n must be an integer of at least 1");
    if ((uint64_t)n > most) return call_over(c, LIMIT_choices, f->name, (uint64_t)n);
    c->ask.n = (uint32_t)n;
    return 0;
}

static int take_stream_options(struct call *c, const struct field *f, json_t *v)
{
    const char *name = NULL;
    json_t *flag;
    bool good = json_is_object(v);
    json_object_foreach(v, name, flag)
    {
        bool *to = strcmp(name, "include_usage") == 0      ? &c->ask.include_usage
                   : strcmp(name, "include_progress") == 0 ? &c->ask.include_progress
                                                           : NULL;
        if (!to && !call_ignore(c, name)) continue;
        good &= to && (json_is_boolean(flag) || json_is_null(flag));
        if (!good) break;
        *to = json_is_true(flag);
    }
    if (good) return 0;
    call_wrong(c, 400, f->name,
               "stream_options may contain include_usage and include_progress, each true or false");
    return name ? call_at(c, "%s.%s", f->name, name) : -1;
}

/* OpenAI's newer name. */
static int take_max_completion_tokens(struct call *c, const struct field *f, json_t *v)
{
    struct setting_error e = {.limit = N_LIMITS};
    const struct setting_field *x = settings_find("max_tokens");
    return x->take(x, &c->ask.set, v, f->name, &e) ? setting_wrong(c, f->name, &e) : 0;
}

static int take_effort(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_string(v)) return call_wrong(c, 400, f->name, "%s must be a string", f->name);
    c->ask.effort = v;
    return 0;
}

int field_think_budget(struct call *c, const char *name, const json_t *v)
{
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || n > UINT32_MAX)
        return call_wrong(c, 400, name, "%s must be an integer of at least 0", name);
    c->ask.think_budget = 1 + (uint64_t)n;
    return 0;
}

static int take_think_budget(struct call *c, const struct field *f, json_t *v)
{
    return field_think_budget(c, f->name, v);
}

/* Whether an answer may call several tools. */
static int take_parallel(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s must be true or false", f->name);
    c->ask.one_tool_call = json_is_false(v);
    return 0;
}

/* Whether to think before the answer, as llama.cpp's and Qwen's clients say it. */
static int take_think(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s must be true or false", f->name);
    c->ask.think = json_is_true(v) ? THINK_ON : THINK_OFF;
    c->ask.think_field = "enable_thinking";
    return 0;
}

/* As vLLM has it: false goes with an answer that continues the last message, and only with it. */
static int take_generation_prompt(struct call *c, const struct field *f, json_t *v)
{
    bool continues = json_is_true(json_object_get(c->body, "continue_final_message"));
    if (json_is_boolean(v) && json_is_true(v) != continues) return 0;
    return call_wrong(c, 400, f->name,
                      "%s must be true, or false together with continue_final_message: true",
                      f->name);
}

/* What every endpoint knows and none heeds. */
#define UNHEEDED                                                                               \
    {"priority", field_ignore, 0, 0, 0}, {"user", field_ignore, 0, 0, 0},                      \
        {"metadata", field_ignore, 0, 0, 0}, {"store", field_ignore, 0, 0, 0},                 \
        {"service_tier", field_ignore, 0, 0, 0}, {"safety_identifier", field_ignore, 0, 0, 0}, \
        {"cache_prompt", field_ignore, 0, 0, 0}, {"cache_control", field_ignore, 0, 0, 0},     \
        {"keep_alive", field_ignore, 0, 0, 0},                                                 \
    {                                                                                          \
        "prompt_cache_key", field_ignore, 0, 0, 0                                              \
    }

static const struct field common[] = {
    {"model", take_model, 0, 0, 0},
    {"stream", field_flag, FIELD_AT(ask.stream), 0, 0},
    {"stream_options", take_stream_options, 0, 0, 0},
    {"n", take_n, 0, 0, 0},
    UNHEEDED,
};
const struct field_table fields_common = {common, sizeof common / sizeof *common, true};

static const struct field model_only[] = {{"model", take_model, 0, 0, 0}, UNHEEDED};
const struct field_table fields_model = FIELD_TABLE(model_only);

/* Samplers and outputs that others have: off they change nothing, and what shapes them neither. */
static const struct field others[] = {
    {"allowed_token_ids", field_off, 0, 0, 0},
    {"bad_words", field_off, 0, 0, 0},
    {"dry_allowed_length", field_ignore, 0, 0, 0},
    {"dry_base", field_ignore, 0, 0, 0},
    {"dry_multiplier", field_off, 0, 0, 0},
    {"dry_penalty_last_n", field_ignore, 0, 0, 0},
    {"dry_sequence_breakers", field_ignore, 0, 0, 0},
    {"dynatemp_exponent", field_ignore, 0, 0, 0},
    {"dynatemp_range", field_off, 0, 0, 0},
    {"early_stopping", field_off, 0, 0, 0},
    {"epsilon_cutoff", field_off, 0, 0, 0},
    {"eta_cutoff", field_off, 0, 0, 0},
    {"functions", field_off, 0, 0, 0},
    {"id_slot", field_ignore, 0, 0, 0},
    {"include_stop_str_in_output", field_off, 0, 0, 0},
    {"length_penalty", field_off, 0, 1, 1},
    {"min_keep", field_off, 0, 0, 1},
    {"min_tokens", field_off, 0, 0, 0},
    {"mirostat", field_off, 0, 0, 0},
    {"mirostat_eta", field_ignore, 0, 0, 0},
    {"mirostat_tau", field_ignore, 0, 0, 0},
    {"n_discard", field_ignore, 0, 0, 0},
    {"n_keep", field_ignore, 0, 0, 0},
    {"n_probs", field_off, 0, 0, 0},
    {"post_sampling_probs", field_off, 0, 0, 0},
    {"request_id", field_ignore, 0, 0, 0},
    {"return_token_ids", field_off, 0, 0, 0},
    {"return_tokens", field_off, 0, 0, 0},
    {"return_tokens_as_token_ids", field_off, 0, 0, 0},
    {"skip_special_tokens", field_off, 0, 1, 1},
    {"spaces_between_special_tokens", field_off, 0, 1, 1},
    {"stop_token_ids", field_off, 0, 0, 0},
    {"suffix", field_off, 0, 0, 0},
    {"tfs_z", field_off, 0, 1, 1},
    {"timings_per_token", field_off, 0, 0, 0},
    {"top_a", field_off, 0, 0, 0},
    {"top_n_sigma", field_off, 0, -1, 0},
    {"typical_p", field_off, 0, 1, 1},
    {"use_beam_search", field_off, 0, 0, 0},
    {"xtc_probability", field_off, 0, 0, 0},
    {"xtc_threshold", field_ignore, 0, 0, 0},
};
const struct field_table fields_others = FIELD_TABLE(others);

static const struct field chat[] = {
    {"messages", field_array, FIELD_AT(ask.messages), 0, 0},
    {"max_completion_tokens", take_max_completion_tokens, 0, 0, 0},
    {"logprobs", field_flag, FIELD_AT(ask.logprobs), 0, 0},
    {"top_logprobs", field_top, FIELD_AT(ask.n_top), 0, 20},
    {"tools", field_array, FIELD_AT(ask.tools), 0, 0},
    {"tool_choice", field_any, FIELD_AT(ask.tool_choice), 0, 0},
    {"parallel_tool_calls", take_parallel, 0, 0, 0},
    {"chat_template_kwargs", field_object, FIELD_AT(ask.template_args), 0, 0},
    {"continue_final_message", field_flag, FIELD_AT(ask.continue_final), 0, 0},
    {"reasoning_effort", take_effort, 0, 0, 0},
    {"enable_thinking", take_think, 0, 0, 0},
    {"add_generation_prompt", take_generation_prompt, 0, 0, 0},
    {"thinking_budget", take_think_budget, 0, 0, 0},
    {"modalities", field_ignore, 0, 0, 0},
    {"verbosity", field_ignore, 0, 0, 0},
};
const struct field_table fields_chat = FIELD_TABLE(chat);
const struct field_table *const chat_tables[] = {&fields_chat, &fields_common, &fields_others,
                                                 NULL};

static const struct field *find(const struct field_table *const *tables, const char *name)
{
    bool has_settings = false;
    static const struct field setting = {NULL, field_setting, 0, 0, 0};
    for (; *tables; tables++) {
        has_settings |= (*tables)->has_settings;
        for (size_t i = 0; i < (*tables)->n; i++)
            if (strcmp((*tables)->fields[i].name, name) == 0) return &(*tables)->fields[i];
    }
    return has_settings && settings_find(name) ? &setting : NULL;
}

static int ignore(void *ctx, const char *name)
{
    return call_ignore(ctx, name);
}

int fields_take_model(struct call *c)
{
    json_t *model = json_object_get(c->body, "model");
    static const struct field f = {"model", take_model, 0, 0, 0};
    if (model && !json_is_null(model)) {
        if (take_model(c, &f, model)) return -1;
    } else if (!(c->served = served_find(c->server, NULL)))
        return call_wrong(c, 400, "model",
                          "missing model; GET /v1/models lists the models of this server");
    if (served_hold(c->served)) c->held = c->served;
    return c->held || c->served->on_demand
               ? 0
               : call_wrong(c, 503, NULL, "model %s is still loading", c->served->id);
}

/* Settings that are not said are the model's. */
static void take_defaults(struct call *c)
{
    const struct server_params *p = &c->server->params;
    c->ask.n = 1;
    c->ask.set.limits = &c->server->limits;
    c->ask.set.ignore = ignore;
    c->ask.set.ignore_ctx = c;
    c->ask.set.r.sampling = c->served->info.sampling;
    c->ask.set.r.sampling.seed =
        p->has_seed ? p->seed : (c->server->boot ^ (c->id * 0x9e3779b97f4a7c15u)) >> 11;
    c->ask.set.r.max_tokens = p->max_tokens;
}

int fields_take(struct call *c)
{
    const char *name;
    json_t *v;
    take_defaults(c);
    json_object_foreach(c->body, name, v)
    {
        const struct field *f = find(c->api->fields, name);
        if (f && f->take == take_model) continue; /* it came first */
        if (!f && call_unknown(c, name)) return -1;
        if (!f) continue;
        struct field said = *f;
        said.name = f->take == field_setting ? name : call_field(c, f->name);
        if (!json_is_null(v) && f->take(c, &said, v)) return -1;
    }
    if (c->ask.n_top && !c->ask.logprobs)
        return call_wrong(c, 400, "top_logprobs", "top_logprobs requires logprobs: true");
    return 0;
}
