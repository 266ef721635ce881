#include "settings.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int wrong(struct setting_error *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Always -1, so that a taker can end with it. */
static int wrong(struct setting_error *e, const char *fmt, ...)
{
    va_list args;
    e->limit = N_LIMITS;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return -1;
}

static int over(struct setting_error *e, const struct request_settings *s, enum limit limit,
                const char *said, uint64_t is)
{
    wrong(e, "%s: %llu %s; at most %llu are allowed", said, (unsigned long long)is,
          limit_table[limit].what, (unsigned long long)s->limits->v[limit]);
    e->limit = limit;
    e->is = is;
    return -1;
}

static int no_memory(struct setting_error *e)
{
    wrong(e, "not enough memory for this request");
    e->no_memory = true;
    return -1;
}

/* ---- numbers ---- */

static int take_number(const struct setting_field *f, struct request_settings *s, json_t *v,
                       const char *said, struct setting_error *e)
{
    const struct setting *x = f->setting;
    double d = json_number_value(v);
    bool good = x->kind == SETTING_real ? json_is_number(v) : json_is_integer(v);
    if (!good || !(d >= x->min && d <= x->max))
        return wrong(e, "%s must be %s from %.10g to %.10g", said,
                     x->kind == SETTING_real ? "a number" : "an integer", x->min, x->max);
    setting_put(x, &s->r.sampling, d);
    return 0;
}

static int take_ignore_end(const struct setting_field *f, struct request_settings *s, json_t *v,
                           const char *said, struct setting_error *e)
{
    (void)f;
    s->r.ignore_end = json_is_true(v);
    return json_is_boolean(v) ? 0 : wrong(e, "%s must be true or false", said);
}

static int take_seed(const struct setting_field *f, struct request_settings *s, json_t *v,
                     const char *said, struct setting_error *e)
{
    (void)f;
    s->r.sampling.seed = (uint64_t)json_integer_value(v);
    s->seed_set = true;
    return json_is_integer(v) ? 0 : wrong(e, "%s must be an integer", said);
}

static int take_max_tokens(const struct setting_field *f, struct request_settings *s, json_t *v,
                           const char *said, struct setting_error *e)
{
    json_int_t n = json_integer_value(v);
    (void)f;
    if (!json_is_integer(v) || n < -1 || (!n && !s->takes_none))
        return wrong(e, "%s must be an integer of at least %d, or -1 for no limit", said,
                     !s->takes_none);
    if (n > 0 && (uint64_t)n > s->limits->v[LIMIT_output_tokens])
        return over(e, s, LIMIT_output_tokens, said, (uint64_t)n);
    s->r.max_tokens = n < 0 ? UINT32_MAX : (uint32_t)n;
    s->max_tokens_set = true;
    return 0;
}

static int take_biases(const struct setting_field *f, struct request_settings *s, json_t *v,
                       const char *said, struct setting_error *e)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(v), i = 0;
    (void)f;
    if (!json_is_object(v)) return wrong(e, "%s must be an object", said);
    if (n > s->limits->v[LIMIT_biases]) return over(e, s, LIMIT_biases, said, n);
    s->bias_tokens = calloc(n + 1, sizeof *s->bias_tokens);
    s->bias_values = calloc(n + 1, sizeof *s->bias_values);
    if (!s->bias_tokens || !s->bias_values) return no_memory(e);
    json_object_foreach(v, key, value)
    {
        uint64_t id;
        double x = json_number_value(value);
        if (!parse_count(key, &id) || id > INT32_MAX || !json_is_number(value) ||
            fabs(x) > (double)FLETCH_MAX_LOGIT_BIAS)
            return wrong(e, "%s: entry %s must map a token id to a number from -%d to %d", said,
                         QUOTE(key), FLETCH_MAX_LOGIT_BIAS, FLETCH_MAX_LOGIT_BIAS);
        s->bias_tokens[i] = (int32_t)id;
        s->bias_values[i++] = (float)x;
    }
    s->r.sampling.n_bias = n;
    s->r.sampling.bias_tokens = s->bias_tokens;
    s->r.sampling.bias_values = s->bias_values;
    return 0;
}

/* ---- texts ---- */

static int take_stops(const struct setting_field *f, struct request_settings *s, json_t *v,
                      const char *said, struct setting_error *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    (void)f;
    if (n > s->limits->v[LIMIT_stops]) return over(e, s, LIMIT_stops, said, n);
    s->stops = calloc(n + 1, sizeof *s->stops);
    if (!s->stops) return no_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        s->stops[i] = json_word(one);
        if (!s->stops[i] || !*s->stops[i])
            return wrong(e, "%s must be one or more non-empty strings without NUL", said);
        if (json_string_length(one) > s->limits->v[LIMIT_stop_bytes])
            return over(e, s, LIMIT_stop_bytes, said, json_string_length(one));
    }
    s->r.stops = s->stops;
    s->r.n_stops = n;
    return 0;
}

/* ---- what the answer must be ---- */

static int set_form(struct request_settings *s, const char *said, size_t n, struct setting_error *e)
{
    if (s->form && strcmp(s->form, said) != 0)
        return wrong(e, "%s and %s cannot be combined", s->form, said);
    s->form = said;
    if (n > s->limits->v[LIMIT_schema_bytes]) return over(e, s, LIMIT_schema_bytes, said, n);
    return 0;
}

static int take_grammar(const struct setting_field *f, struct request_settings *s, json_t *v,
                        const char *said, struct setting_error *e)
{
    (void)f;
    s->r.grammar = json_word(v);
    if (!s->r.grammar) return wrong(e, "%s must be a string without NUL", said);
    return set_form(s, said, json_string_length(v), e);
}

/* Takes the text over. */
static int set_schema(struct request_settings *s, const char *said, char *schema,
                      struct setting_error *e)
{
    if (!schema) return no_memory(e);
    free(s->schema);
    s->r.json_schema = s->schema = schema;
    return set_form(s, said, strlen(schema), e);
}

static int take_json_schema(const struct setting_field *f, struct request_settings *s, json_t *v,
                            const char *said, struct setting_error *e)
{
    const char *text = json_word(v);
    (void)f;
    if (!text && !json_is_object(v))
        return wrong(e, "%s must be an object or a string without NUL", said);
    return set_schema(s, said, text ? strdup(text) : json_dumps(v, JSON_COMPACT), e);
}

/* Whether an object inside the field has none but these members. */
static bool has_only(const struct request_settings *s, const char *path, const json_t *v,
                     const char *const *known, struct setting_error *e)
{
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)v, name, member)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], name) != 0) i++;
        if (known[i] || (s->ignore && !s->ignore(s->ignore_ctx, name))) continue;
        wrong(e, "unknown field %s in %s", QUOTE(name), path);
        snprintf(e->place, sizeof e->place, "%s.%s", path, name);
        return false;
    }
    return true;
}

static int take_format(const struct setting_field *f, struct request_settings *s, json_t *v,
                       const char *said, struct setting_error *e)
{
    static const char *const outer[] = {"type", "json_schema", NULL};
    static const char *const inner[] = {"name", "description", "schema", "strict", "type", NULL};
    const char *type = json_word(json_object_get(v, "type"));
    const json_t *form = json_object_get(v, "json_schema"),
                 *schema = json_object_get(form, "schema");
    bool own = strcmp(said, f->name) == 0; /* and not another flavour's, which was read */
    if (own && (!has_only(s, said, v, outer, e) ||
                !has_only(s, "response_format.json_schema", form, inner, e)))
        return -1;
    if (type && strcmp(type, "text") == 0) return 0;
    if (type && strcmp(type, "json_object") == 0)
        return set_schema(s, said, strdup("{\"type\": \"object\"}"), e);
    if (type && strcmp(type, "json_schema") == 0 && schema)
        return set_schema(s, said, json_dumps(schema, JSON_ENCODE_ANY | JSON_COMPACT), e);
    return wrong(e,
                 "%s must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or "
                 "{\"type\": \"json_schema\", \"json_schema\": {\"schema\": ..}}",
                 said);
}

/* ---- the table ---- */

#define SETTING_AT(kind, name, ...) SETTING_AT_##name,
enum { FLETCH_SAMPLING_SETTINGS(SETTING_AT) };
#define SETTING_ROW(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {#name, take_number, NULL, help, &setting_table[SETTING_AT_##name], NULL},     \
        {alias, take_number, NULL, "an alias of " #name, &setting_table[SETTING_AT_##name], #name},

const struct setting_field setting_fields[] = {
    {"max_tokens", take_max_tokens, "{\"type\": \"integer\"}", "maximum length of the answer", NULL,
     NULL},
    {"n_predict", take_max_tokens, "{\"type\": \"integer\"}", "an alias of max_tokens", NULL,
     "max_tokens"},
    {"seed", take_seed, "{\"type\": \"integer\"}",
     "random seed; the same seed gives the same answer", NULL, NULL},
    {"stop", take_stops,
     "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"items\": {\"type\": "
     "\"string\"}}]}",
     "the answer ends before the first of these strings that occurs", NULL, NULL},
    {"ignore_end", take_ignore_end, "{\"type\": \"boolean\"}",
     "keep generating even after the model ends its answer", NULL, NULL},
    {"ignore_eos", take_ignore_end, "{\"type\": \"boolean\"}", "an alias of ignore_end", NULL,
     "ignore_end"},
    {"logit_bias", take_biases, "{\"type\": \"object\"}",
     "token ids, each with a number that is added to its logit", NULL, NULL},
    {"response_format", take_format, "{\"$ref\": \"#/components/schemas/ResponseFormat\"}", NULL,
     NULL, NULL},
    {"json_schema", take_json_schema,
     "{\"anyOf\": [{\"type\": \"object\"}, {\"type\": \"string\"}]}",
     "a JSON schema that constrains the answer", NULL, NULL},
    {"grammar", take_grammar, "{\"type\": \"string\"}", "a GBNF grammar that constrains the answer",
     NULL, NULL},
    FLETCH_SAMPLING_SETTINGS(SETTING_ROW)};
const size_t n_setting_fields = sizeof setting_fields / sizeof *setting_fields;

const struct setting_field *settings_find(const char *name)
{
    for (size_t i = 0; i < n_setting_fields && *name; i++)
        if (strcmp(setting_fields[i].name, name) == 0) return &setting_fields[i];
    return NULL;
}

void settings_free(struct request_settings *s)
{
    free(s->stops);
    free(s->bias_tokens);
    free(s->bias_values);
    free(s->schema);
}
