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

int field_real(struct call *c, const struct field *f, json_t *v)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= f->min && x <= f->max))
        return call_wrong(c, 400, f->name, "%s must be a number from %g to %g", f->name, f->min,
                          f->max);
    *(float *)place(c, f) = (float)x;
    return 0;
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

static int add_stop(struct call *c, const struct field *f, const json_t *v)
{
    size_t n = json_string_length(v);
    const char *s = json_word(v);
    if (!s || !n)
        return call_wrong(c, 400, f->name, "%s must be one or more non-empty strings without NUL",
                          f->name);
    if (n > limit_of(&c->server->limits, stop_bytes))
        return call_over(c, LIMIT_stop_bytes, f->name, n);
    c->ask.stops[c->ask.r.n_stops++] = s;
    return 0;
}

int field_stops(struct call *c, const struct field *f, json_t *v)
{
    uint64_t most = limit_of(&c->server->limits, stops);
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > most) return call_over(c, LIMIT_stops, f->name, n);
    c->ask.stops = memory_zeroed((n + 1) * sizeof *c->ask.stops);
    for (size_t i = 0; i < n; i++)
        if (add_stop(c, f, json_is_array(v) ? json_array_get(v, i) : v)) return -1;
    c->ask.r.stops = c->ask.stops;
    return 0;
}

int field_max_tokens(struct call *c, const struct field *f, json_t *v)
{
    uint64_t most = limit_of(&c->server->limits, output_tokens);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < (json_int_t)f->min)
        return call_wrong(c, 400, f->name, "%s must be an integer of at least %.0f", f->name,
                          f->min);
    if ((uint64_t)n > most) return call_over(c, LIMIT_output_tokens, f->name, (uint64_t)n);
    c->ask.r.max_tokens = (uint32_t)n;
    c->ask.max_tokens_set = true;
    return 0;
}

static int take_model(struct call *c, const struct field *f, json_t *v)
{
    const char *id = json_word(v);
    if (!id) return call_wrong(c, 400, f->name, "model must be a string without NUL");
    c->served = served_find(c->server, id);
    if (c->served) return 0;
    call_wrong(c, 404, f->name,
               "model %s is not available on this server; GET /v1/models lists those that are",
               QUOTE(id));
    c->problem.code = "model_not_found";
    return -1;
}

static int take_seed(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_integer(v)) return call_wrong(c, 400, f->name, "seed must be an integer");
    c->ask.r.sampling.seed = (uint64_t)json_integer_value(v);
    c->ask.seed_set = true;
    return 0;
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

static int take_biases(struct call *c, const struct field *f, json_t *v)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(v), i = 0;
    if (!json_is_object(v)) return call_wrong(c, 400, f->name, "logit_bias must be an object");
    if (n > limit_of(&c->server->limits, biases)) return call_over(c, LIMIT_biases, f->name, n);
    c->ask.bias_tokens = memory_zeroed((n + 1) * sizeof *c->ask.bias_tokens);
    c->ask.bias_values = memory_zeroed((n + 1) * sizeof *c->ask.bias_values);
    json_object_foreach(v, key, value)
    {
        uint64_t id;
        double x = json_number_value(value);
        if (!parse_count(key, &id) || id > INT32_MAX || !json_is_number(value) ||
            fabs(x) > FLETCH_MAX_LOGIT_BIAS)
            return call_wrong(c, 400, f->name,
                              "logit_bias: the entry for %s must be a token id with a number",
                              QUOTE(key));
        c->ask.bias_tokens[i] = (int32_t)id;
        c->ask.bias_values[i++] = (float)x;
    }
    c->ask.r.sampling.n_bias = n;
    c->ask.r.sampling.bias_tokens = c->ask.bias_tokens;
    c->ask.r.sampling.bias_values = c->ask.bias_values;
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
        good &= to && (json_is_boolean(flag) || json_is_null(flag));
        if (!good) break;
        *to = json_is_true(flag);
    }
    if (good) return 0;
    call_wrong(c, 400, f->name,
               "stream_options may contain include_usage and include_progress, each true or false");
    return name ? call_at(c, "%s.%s", f->name, name) : -1;
}

/* What the answer must be; takes the text of the schema. */
static int set_schema(struct call *c, const struct field *f, char *schema)
{
    if (!schema) return call_no_memory(c);
    size_t n = strlen(schema);
    free(c->ask.schema);
    c->ask.schema = schema;
    c->ask.r.json_schema = schema;
    c->ask.form = f->name;
    if (c->ask.r.grammar)
        return call_wrong(c, 400, f->name, "grammar and %s cannot be combined", f->name);
    if (n > limit_of(&c->server->limits, schema_bytes))
        return call_over(c, LIMIT_schema_bytes, f->name, n);
    return 0;
}

/* A member of an object inside a field that is none of these. */
static int check_members(struct call *c, const char *path, const json_t *v,
                         const char *const *known)
{
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)v, name, member)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], name) != 0) i++;
        if (known[i]) continue;
        call_wrong(c, 400, path, "unknown field %s in %s", QUOTE(name), path);
        return call_at(c, "%s.%s", path, name);
    }
    return 0;
}

static int check_format(struct call *c, const struct field *f, const json_t *v)
{
    static const char *const outer[] = {"type", "json_schema", NULL};
    static const char *const inner[] = {"name", "description", "schema", "strict", "type", NULL};
    if (strcmp(f->name, "response_format") != 0) return 0; /* another flavour's, which was read */
    if (check_members(c, f->name, v, outer)) return -1;
    return check_members(c, "response_format.json_schema", json_object_get(v, "json_schema"),
                         inner);
}

static int take_response_format(struct call *c, const struct field *f, json_t *v)
{
    const char *type = json_word(json_object_get(v, "type"));
    const json_t *schema = json_object_get(json_object_get(v, "json_schema"), "schema");
    if (check_format(c, f, v)) return -1;
    if (type && strcmp(type, "text") == 0) return 0;
    if (type && strcmp(type, "json_object") == 0)
        return set_schema(c, f, strdup("{\"type\": \"object\"}"));
    if (type && strcmp(type, "json_schema") == 0 && schema)
        return set_schema(c, f, json_dumps(schema, JSON_ENCODE_ANY | JSON_COMPACT));
    return call_wrong(
        c, 400, f->name,
        "response_format must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or "
        "{\"type\": \"json_schema\", \"json_schema\": {\"schema\": ..}}");
}

static int take_grammar(struct call *c, const struct field *f, json_t *v)
{
    const char *text = json_word(v);
    size_t n = json_string_length(v);
    if (!text) return call_wrong(c, 400, f->name, "grammar must be a string without NUL");
    if (n > limit_of(&c->server->limits, schema_bytes))
        return call_over(c, LIMIT_schema_bytes, f->name, n);
    if (c->ask.r.json_schema)
        return call_wrong(c, 400, f->name, "grammar and %s cannot be combined",
                          call_field(c, "response_format"));
    c->ask.r.grammar = text;
    c->ask.form = f->name;
    return 0;
}

static int take_effort(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_string(v)) return call_wrong(c, 400, f->name, "%s must be a string", f->name);
    c->ask.effort = v;
    return 0;
}

/* Whether an answer that must call tools may call several. */
static int take_parallel(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s must be true or false", f->name);
    c->ask.one_tool_call = json_is_false(v);
    return 0;
}

#define SETTING_FIELD(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {#name, field_##kind, FIELD_AT(ask.r.sampling.name), min, max},                  \
        {alias, field_##kind, FIELD_AT(ask.r.sampling.name), min, max},
/* What every endpoint knows and none heeds. */
#define UNHEEDED                                                                               \
    {"priority", field_ignore, 0, 0, 0}, {"user", field_ignore, 0, 0, 0},                      \
        {"metadata", field_ignore, 0, 0, 0}, {"store", field_ignore, 0, 0, 0},                 \
        {"service_tier", field_ignore, 0, 0, 0}, {"safety_identifier", field_ignore, 0, 0, 0}, \
    {                                                                                          \
        "prompt_cache_key", field_ignore, 0, 0, 0                                              \
    }

static const struct field common[] = {{"model", take_model, 0, 0, 0},
                                      {"stream", field_flag, FIELD_AT(ask.stream), 0, 0},
                                      {"stream_options", take_stream_options, 0, 0, 0},
                                      {"ignore_end", field_flag, FIELD_AT(ask.r.ignore_end), 0, 0},
                                      {"seed", take_seed, 0, 0, 0},
                                      {"n", take_n, 0, 0, 0},
                                      {"stop", field_stops, 0, 0, 0},
                                      {"max_tokens", field_max_tokens, 0, 0, 0},
                                      {"logit_bias", take_biases, 0, 0, 0},
                                      {"response_format", take_response_format, 0, 0, 0},
                                      {"grammar", take_grammar, 0, 0, 0},
                                      UNHEEDED,
                                      FLETCH_SAMPLING_SETTINGS(SETTING_FIELD)};
const struct field_table fields_common = FIELD_TABLE(common);

static const struct field model_only[] = {{"model", take_model, 0, 0, 0}, UNHEEDED};
const struct field_table fields_model = FIELD_TABLE(model_only);

static const struct field chat[] = {
    {"messages", field_array, FIELD_AT(ask.messages), 0, 0},
    {"max_tokens", field_max_tokens, 0, 1, 0},
    {"max_completion_tokens", field_max_tokens, 0, 1, 0},
    {"logprobs", field_flag, FIELD_AT(ask.logprobs), 0, 0},
    {"top_logprobs", field_top, FIELD_AT(ask.n_top), 0, 20},
    {"tools", field_array, FIELD_AT(ask.tools), 0, 0},
    {"tool_choice", field_any, FIELD_AT(ask.tool_choice), 0, 0},
    {"parallel_tool_calls", take_parallel, 0, 0, 0},
    {"chat_template_kwargs", field_object, FIELD_AT(ask.template_args), 0, 0},
    {"continue_final_message", field_flag, FIELD_AT(ask.continue_final), 0, 0},
    {"reasoning_effort", take_effort, 0, 0, 0},
    {"modalities", field_ignore, 0, 0, 0},
    {"verbosity", field_ignore, 0, 0, 0},
};
const struct field_table fields_chat = FIELD_TABLE(chat);

static const struct field *find(const struct field_table *const *tables, const char *name)
{
    for (; *tables; tables++)
        for (size_t i = 0; i < (*tables)->n; i++)
            if (*name && strcmp((*tables)->fields[i].name, name) == 0) return &(*tables)->fields[i];
    return NULL;
}

/* Settings that are not said are the model's, so the model comes first. */
static int take_defaults(struct call *c)
{
    json_t *model = json_object_get(c->body, "model");
    static const struct field f = {"model", take_model, 0, 0, 0};
    if (model && !json_is_null(model)) {
        if (take_model(c, &f, model)) return -1;
    } else if (!(c->served = served_find(c->server, NULL)))
        return call_wrong(c, 400, "model",
                          "missing model; GET /v1/models lists the models of this server");
    c->holds = served_hold(c->served);
    c->waits = !c->holds && c->served->on_demand;
    if (!c->holds) return call_wrong(c, 503, NULL, "model %s is still loading", c->served->id);
    free(c->text); /* nobody will read it again */
    c->text = NULL;
    c->ask.n = 1;
    c->ask.r.sampling = c->served->info.sampling;
    c->ask.r.sampling.seed = (c->server->boot ^ (c->id * 0x9e3779b97f4a7c15u)) >> 11;
    return 0;
}

int fields_take(struct call *c, const struct field_table *const *tables)
{
    const char *name;
    json_t *v;
    if (take_defaults(c)) return -1;
    json_object_foreach(c->body, name, v)
    {
        const struct field *f = find(tables, name);
        if (!f) return call_unknown(c, name);
        struct field said = *f;
        said.name = call_field(c, f->name);
        if (!json_is_null(v) && f->take(c, &said, v)) return -1;
    }
    if (c->ask.n_top && !c->ask.logprobs)
        return call_wrong(c, 400, "top_logprobs", "top_logprobs requires logprobs: true");
    return 0;
}
