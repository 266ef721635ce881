/* How tokens are chosen, from the command line: options over the model's own defaults. */
#include "app.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPT_real  OPT_REAL
#define OPT_count OPT_COUNT
#define SETTING_OPT(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {0, option, OPT_##kind, arg, NULL, help, OPT_FIELD(sampling.name), min, max},
static const struct opt sampling_opts[] = {
    FLETCH_SAMPLING_SETTINGS(SETTING_OPT){0, "logit-bias", OPT_TEXTS, "ID=X", NULL,
                                          "add X to the logit of token ID; may be repeated",
                                          OPT_FIELD(logit_biases), 0, 0},
    {0, "seed", OPT_COUNT, "N", NULL,
     "random seed; the same seed gives the same output (default: 0 for batch, otherwise random)",
     OPT_FIELD(seed), 0, 0},
};
const struct opt_group opts_sampling = {"Sampling (the model sets the defaults)",
                                        OPT_TABLE(sampling_opts)};

#define SETTING_ROW(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {#name, alias, option, help, SETTING_##kind, offsetof(struct fletch_sampling, name), min, max},
const struct setting setting_table[] = {FLETCH_SAMPLING_SETTINGS(SETTING_ROW)};
const size_t n_settings = sizeof setting_table / sizeof *setting_table;

double setting_get(const struct setting *x, const struct fletch_sampling *s)
{
    const void *at = (const char *)s + x->at;
    return x->kind == SETTING_real ? (double)*(const float *)at : *(const uint32_t *)at;
}

void setting_put(const struct setting *x, struct fletch_sampling *s, double v)
{
    void *at = (char *)s + x->at;
    if (x->kind == SETTING_real)
        *(float *)at = (float)v;
    else
        *(uint32_t *)at = (uint32_t)v;
}

static int parse_biases(struct sampling *s, const struct opt_texts *texts, const char *command)
{
    s->bias_tokens = need(calloc(texts->n + 1, sizeof *s->bias_tokens));
    s->bias_values = need(calloc(texts->n + 1, sizeof *s->bias_values));
    for (size_t i = 0; i < texts->n; i++) {
        const char *text = texts->p[i];
        char id[12];
        uint64_t token;
        double value;
        size_t n = strcspn(text, "=");
        snprintf(id, sizeof id, "%.*s", (int)(n < sizeof id ? n : sizeof id - 1), text);
        if (n >= sizeof id || !text[n] || !parse_count(id, &token) || token > INT32_MAX ||
            !parse_real(text + n + 1, &value) || fabs(value) > (double)FLETCH_MAX_LOGIT_BIAS)
            return opts_wrong(command, "--logit-bias takes ID=X, not %s", QUOTE(text));
        s->bias_tokens[i] = (int32_t)token;
        s->bias_values[i] = (float)value;
    }
    return EXIT_OK;
}

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    FILE *f = fopen("/dev/urandom", "rb");
    size_t n = f ? fread(&seed, sizeof seed, 1, f) : 0;
    if (f) fclose(f);
    /* 53 bits: the seed survives JSON readers that hold numbers as doubles. */
    return n == 1 ? seed >> 11 : (uint64_t)(now() * 1e9);
}

int sampling_open(struct sampling *s, const struct args *a, const char *command)
{
    s->a = a;
    return parse_biases(s, &a->logit_biases, command);
}

void sampling_close(struct sampling *s)
{
    free(s->bias_tokens);
    free(s->bias_values);
}

typedef float type_real;
typedef uint32_t type_count;

struct fletch_sampling sampling_over(const struct sampling *from,
                                     const struct fletch_sampling *defaults)
{
    const struct args *a = from->a;
    struct fletch_sampling s = *defaults;
#define SETTING_OVER(kind, name, ...) \
    if (a->sampling.name.set) s.name = (type_##kind)a->sampling.name.v;
    FLETCH_SAMPLING_SETTINGS(SETTING_OVER)
    s.seed = a->seed.set ? a->seed.v : random_seed();
    s.n_bias = a->logit_biases.n;
    s.bias_tokens = from->bias_tokens;
    s.bias_values = from->bias_values;
    return s;
}
