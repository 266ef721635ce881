#include "serve/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fletch_sampling sampling_defaults(void)
{
#define SETTING_OFF(kind, name, option, arg, min, max, off, ...) .name = (off),
    return (struct fletch_sampling){FLETCH_SAMPLING_SETTINGS(SETTING_OFF)};
#undef SETTING_OFF
}

bool sampling_looks_back(const struct fletch_sampling *s)
{
    return s->no_repeat_ngram || s->repeat_penalty != 1 || s->presence_penalty != 0 ||
           s->frequency_penalty != 0;
}

static int check_edits(const struct fletch_sampling *s, u32 n_vocab, struct err *err)
{
    u32 window = sampling_looks_back(s) ? s->penalty_window : 0;
    if (s->no_repeat_ngram) window *= 2;
    if (s->n_bias > SAMPLE_MAX_EDITS || window > SAMPLE_MAX_EDITS - s->n_bias)
        return err_set(
            err, FLETCH_E_ARG,
            "%zu logit biases and a penalty window of %u tokens together exceed the limit of %d",
            s->n_bias, window, SAMPLE_MAX_EDITS);
    for (size_t i = 0; i < s->n_bias; i++) {
        if (!(fabsf(s->bias_values[i]) <= (float)FLETCH_MAX_LOGIT_BIAS))
            return err_set(err, FLETCH_E_ARG,
                           "the logit bias of token %d is not a number from -%d to %d",
                           (int)s->bias_tokens[i], FLETCH_MAX_LOGIT_BIAS, FLETCH_MAX_LOGIT_BIAS);
        if (n_vocab && (s->bias_tokens[i] < 0 || (u32)s->bias_tokens[i] >= n_vocab))
            return err_set(err, FLETCH_E_ARG,
                           "logit bias for token %d, but the model has only %u tokens",
                           (int)s->bias_tokens[i], n_vocab);
    }
    return 0;
}

int sampling_check(const struct fletch_sampling *s, u32 n_vocab, struct err *err)
{
    const struct {
        const char *name;
        float v, lo, hi;
    } ranges[] = {
#define SETTING_RANGE(kind, name, option, arg, min, max, ...) \
    {#name, (float)s->name, (float)(min), (float)(max)},
        FLETCH_SAMPLING_SETTINGS(SETTING_RANGE)
#undef SETTING_RANGE
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (!(ranges[i].v >= ranges[i].lo && ranges[i].v <= ranges[i].hi))
            return err_set(err, FLETCH_E_ARG, "%s must be between %.10g and %.10g", ranges[i].name,
                           (double)ranges[i].lo, (double)ranges[i].hi);
    return check_edits(s, n_vocab, err);
}

static int by_id(const void *a, const void *b)
{
    const struct sample_edit *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->bias < y->bias ? -1 : x->bias > y->bias; /* so that they always add up the same */
}

static u32 merge(struct sample_edit *edits, u32 n)
{
    u32 kept = 0;
    qsort(edits, n, sizeof *edits, by_id);
    for (u32 i = 0; i < n; i++) {
        if (kept && edits[kept - 1].id == edits[i].id) {
            edits[kept - 1].bias += edits[i].bias;
            edits[kept - 1].count += edits[i].count;
        } else {
            edits[kept++] = edits[i];
        }
    }
    return kept;
}

/* Forbids the tokens that followed the last ones where these stood before. */
static u32 ban_repeats(const struct fletch_sampling *s, const i32 *tokens, size_t n,
                       struct sample_edit *edits)
{
    const float least = -FLETCH_MAX_LOGIT_BIAS;
    u32 n_bans = 0, k = s->no_repeat_ngram - 1;
    for (size_t i = k; i < n; i++)
        if (memcmp(tokens + i - k, tokens + n - k, k * sizeof *tokens) == 0)
            edits[n_bans++] = (struct sample_edit){(u32)tokens[i], least, 0};
    return n_bans;
}

u32 sampling_row(const struct fletch_sampling *s, const i32 *history, size_t n_history,
                 struct sample_row *row, struct sample_edit *edits)
{
    u32 n = 0;
    *row = (struct sample_row){.temperature = s->temperature,
                               .top_k = s->top_k,
                               .top_p = s->top_p,
                               .min_p = s->min_p,
                               .repeat = s->repeat_penalty,
                               .presence = s->presence_penalty,
                               .frequency = s->frequency_penalty,
                               .choice = s->choice,
                               .seed = s->seed};
    for (size_t i = 0; i < s->n_bias; i++)
        edits[n++] = (struct sample_edit){(u32)s->bias_tokens[i], s->bias_values[i], 0};
    size_t window = sampling_looks_back(s) ? MIN(n_history, (size_t)s->penalty_window) : 0;
    for (size_t i = n_history - window; i < n_history; i++)
        edits[n++] = (struct sample_edit){(u32)history[i], 0, 1};
    if (s->no_repeat_ngram) n += ban_repeats(s, history + n_history - window, window, edits + n);
    return row->n_edits = n ? merge(edits, n) : 0;
}

void sampling_fill(struct step *step, u32 i, const struct fletch_sampling *s, const i32 *history,
                   size_t n_history)
{
    u32 first = step->n_sample_edits;
    step->n_sample_edits +=
        sampling_row(s, history, n_history, &step->sample[i], step->sample_edits + first);
    step->sample[i].first_edit = first;
}

int sampling_result(i32 token, u32 position, struct err *err)
{
    if (token == SAMPLE_BAD)
        return err_set(
            err, FLETCH_E_FORMAT,
            "the model produced NaN or infinity at position %u; run fletch inspect --check to look "
            "for bad weights",
            position);
    if (token == SAMPLE_NONE)
        return err_set(err, FLETCH_E_ARG, "the grammar allows no token at position %u", position);
    return 0;
}
