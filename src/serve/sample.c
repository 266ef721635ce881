/* Order of operations: bias, penalties, temperature, top-k, top-p, min-p, draw. */
#include "serve/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

struct fletch_sampling sample_defaults(void)
{
    return (struct fletch_sampling){.top_p = 1, .repeat_penalty = 1, .penalty_window = 64};
}

int sample_check(const struct fletch_sampling *s, struct err *err)
{
    const struct {
        const char *name;
        float v, lo, hi;
    } ranges[] = {
        {"temperature", s->temperature, 0, 100},
        {"top-p", s->top_p, 0, 1},
        {"min-p", s->min_p, 0, 1},
        {"repeat penalty", s->repeat_penalty, 0.01f, 100},
        {"presence penalty", s->presence_penalty, -100, 100},
        {"frequency penalty", s->frequency_penalty, -100, 100},
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (!(ranges[i].v >= ranges[i].lo && ranges[i].v <= ranges[i].hi))
            return err_set(err, FLETCH_E_ARG, "%s must be between %g and %g", ranges[i].name,
                           (double)ranges[i].lo, (double)ranges[i].hi);
    for (size_t i = 0; i < s->n_bias; i++)
        if (!isfinite(s->bias_values[i]))
            return err_set(err, FLETCH_E_ARG, "the logit bias of token %d is not a number",
                           (int)s->bias_tokens[i]);
    return 0;
}

static u64 mix(u64 x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What all tokens of one position share. */
static u64 noise_key(u64 seed, u32 choice, u32 position)
{
    u64 k = mix(seed + 0x9e3779b97f4a7c15u);
    return mix(k ^ ((u64)choice << 32 | position));
}

static float noise(u64 key, u32 token)
{
    u32 h = (u32)(mix(key + (u64)token * 0x9e3779b97f4a7c15u) >> 32);
    float u = ((float)h + 0.5f) * 0x1p-32f; /* (0, 1]; small u are the fine end */
    /* e = -log(1 - u) is exponential; by its series where 1 - u would lose digits */
    float e = u < 0.01f ? u * (1 + u * (0.5f + u * (0.333333343f + u * 0.25f)))
                        : -num_log(fmaxf(1 - u, 0x1p-25f));
    return -num_log(e);
}

float sample_gumbel(u64 seed, u32 choice, u32 position, u32 token)
{
    return noise(noise_key(seed, choice, position), token);
}

static int prepare(const struct fletch_sampling *s, const struct sample_context *c, struct err *err)
{
    for (u32 i = 0; i < c->n_vocab; i++) {
        if (!isfinite(c->logits[i]))
            return err_set(err, FLETCH_E_FORMAT,
                           "the model computed a value that is not a number (token %u at position "
                           "%u); `fletch inspect --check` looks for bad weights",
                           i, c->position);
        c->z[i] = c->logits[i];
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        if (s->bias_tokens[i] < 0 || (u32)s->bias_tokens[i] >= c->n_vocab)
            return err_set(err, FLETCH_E_ARG, "logit bias for token %d, but the model has %u",
                           (int)s->bias_tokens[i], c->n_vocab);
        c->z[s->bias_tokens[i]] += s->bias_values[i];
    }
    return 0;
}

/* Repetition is penalised once a token, frequency as often as it occurred. */
static void penalise(const struct fletch_sampling *s, const struct sample_context *c)
{
    if (s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0) return;
    size_t from = c->n_history > s->penalty_window ? c->n_history - s->penalty_window : 0;
    for (size_t i = from; i < c->n_history; i++) c->counts[c->history[i]]++;
    for (size_t i = from; i < c->n_history; i++) {
        i32 id = c->history[i];
        if (!c->counts[id]) continue;
        float *z = &c->z[id];
        *z = *z > 0 ? *z / s->repeat_penalty : *z * s->repeat_penalty;
        *z -= s->presence_penalty + s->frequency_penalty * (float)c->counts[id];
        c->counts[id] = 0;
    }
}

static u32 argmax(const float *z, u32 n)
{
    u32 b = 0;
    for (u32 i = 1; i < n; i++)
        if (z[i] > z[b]) b = i;
    return b;
}

/* Measured from the best token, which is 0 then, so that nothing overflows however small the
 * temperature; what is too far from it is -inf and never drawn. */
static void heat(const struct fletch_sampling *s, const struct sample_context *c)
{
    float top = c->z[argmax(c->z, c->n_vocab)];
    for (u32 i = 0; i < c->n_vocab; i++)
        c->z[i] = c->z[i] == top ? 0 : (c->z[i] - top) / s->temperature;
}

/* Moves the k best of order[0..n) to its front, best first: a heap whose root is the worst kept. */
static bool worse(const float *z, u32 a, u32 b)
{
    return z[a] < z[b] || (z[a] == z[b] && a > b);
}

static void sift(const float *z, u32 *heap, u32 n, u32 at)
{
    for (;;) {
        u32 kid = 2 * at + 1;
        if (kid >= n) return;
        if (kid + 1 < n && worse(z, heap[kid + 1], heap[kid])) kid++;
        if (!worse(z, heap[kid], heap[at])) return;
        u32 t = heap[at];
        heap[at] = heap[kid];
        heap[kid] = t;
        at = kid;
    }
}

static void select_best(const float *z, u32 *order, u32 n, u32 k)
{
    for (u32 i = k / 2; i-- > 0;) sift(z, order, k, i);
    for (u32 i = k; i < n; i++) {
        if (!worse(z, order[0], order[i])) continue;
        u32 t = order[0];
        order[0] = order[i];
        order[i] = t;
        sift(z, order, k, 0);
    }
    for (u32 m = k; m > 1; m--) { /* heap sort: the worst goes last */
        u32 t = order[0];
        order[0] = order[m - 1];
        order[m - 1] = t;
        sift(z, order, m - 1, 0);
    }
}

/* How many of the best tokens stay after top-k, top-p and min-p; they are order[0..n). */
static u32 restrict_choice(const struct fletch_sampling *s, const struct sample_context *c)
{
    u32 n = c->n_vocab;
    for (u32 i = 0; i < n; i++) c->order[i] = i;
    if (s->top_k && s->top_k < n) n = s->top_k;
    if (n < c->n_vocab || s->top_p < 1) select_best(c->z, c->order, c->n_vocab, n);
    if (s->top_p < 1) {
        double sum = 0, part = 0;
        for (u32 i = 0; i < n; i++) sum += (double)num_exp(c->z[c->order[i]]);
        u32 kept = 0;
        while (kept < n && (kept == 0 || part < (double)s->top_p * sum))
            part += (double)num_exp(c->z[c->order[kept++]]);
        n = kept;
    }
    if (s->min_p > 0) {
        float floor = num_log(s->min_p);
        u32 kept = 0;
        for (u32 i = 0; i < n; i++)
            if (c->z[c->order[i]] >= floor) c->order[kept++] = c->order[i];
        n = kept;
    }
    return n;
}

int sample_draw(const struct fletch_sampling *s, const struct sample_context *c, i32 *token,
                struct err *err)
{
    int rc = prepare(s, c, err);
    if (rc) return rc;
    penalise(s, c);
    if (s->temperature == 0) {
        *token = (i32)argmax(c->z, c->n_vocab);
        return 0;
    }
    heat(s, c);
    u32 n = restrict_choice(s, c), best = 0;
    u64 key = noise_key(s->seed, s->choice, c->position);
    float best_z = -INFINITY;
    for (u32 i = 0; i < n; i++) {
        u32 id = c->order[i];
        float z = c->z[id] + noise(key, id);
        if (z > best_z || (z == best_z && id < best)) {
            best_z = z;
            best = id;
        }
    }
    *token = (i32)best;
    return 0;
}
