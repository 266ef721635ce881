/* How tokens are chosen, from the command line: options over the model's own defaults. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const struct opt sampling_opts[] = {
    {0, "temp", OPT_REAL, "T", NULL, "temperature; 0 always takes the most likely token",
     OPT_FIELD(temp), 0, 100},
    {0, "top-k", OPT_COUNT, "K", NULL, "sample from the K most likely tokens; 0: from all",
     OPT_FIELD(top_k), 0, UINT32_MAX},
    {0, "top-p", OPT_REAL, "P", NULL,
     "sample from the most likely tokens whose probabilities add up to P", OPT_FIELD(top_p), 0, 1},
    {0, "min-p", OPT_REAL, "P", NULL, "exclude tokens less likely than P times the most likely one",
     OPT_FIELD(min_p), 0, 1},
    {0, "repeat-penalty", OPT_REAL, "X", NULL, "divide the logits of recent tokens by X",
     OPT_FIELD(repeat_penalty), 0.01, 100},
    {0, "presence-penalty", OPT_REAL, "X", NULL, "subtract X from the logits of recent tokens",
     OPT_FIELD(presence_penalty), -100, 100},
    {0, "frequency-penalty", OPT_REAL, "X", NULL,
     "subtract X from the logits of recent tokens for each time they occurred",
     OPT_FIELD(frequency_penalty), -100, 100},
    {0, "logit-bias", OPT_TEXTS, "ID=X", NULL, "add X to the logit of token ID; may be repeated",
     OPT_FIELD(logit_biases), 0, 0},
    {0, "seed", OPT_COUNT, "N", NULL,
     "random seed; the same seed gives the same text (default: random; batch: 0)", OPT_FIELD(seed),
     0, 0},
};
const struct opt_group opts_sampling = {"Sampling (the model sets the defaults)",
                                        OPT_TABLE(sampling_opts)};

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
            !parse_real(text + n + 1, &value) || value < -1e9 || value > 1e9)
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

static void override(float *to, const struct opt_real *from)
{
    if (from->set) *to = (float)from->v;
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

struct fletch_sampling sampling_over(const struct sampling *from,
                                     const struct fletch_sampling *defaults)
{
    const struct args *a = from->a;
    struct fletch_sampling s = *defaults;
    override(&s.temperature, &a->temp);
    override(&s.top_p, &a->top_p);
    override(&s.min_p, &a->min_p);
    override(&s.repeat_penalty, &a->repeat_penalty);
    override(&s.presence_penalty, &a->presence_penalty);
    override(&s.frequency_penalty, &a->frequency_penalty);
    if (a->top_k.set) s.top_k = (uint32_t)a->top_k.v;
    s.seed = a->seed.set ? a->seed.v : random_seed();
    s.n_bias = a->logit_biases.n;
    s.bias_tokens = from->bias_tokens;
    s.bias_values = from->bias_values;
    return s;
}
