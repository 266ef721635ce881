/* Order of operations: bias, penalties, mask, temperature, top-k, top-p, min-p, draw. Sums of
 * probabilities are integers (weigh), so they don't depend on the order of adding either. */
#include "core/sample.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

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

static u32 noise_bits(u64 key, u32 token)
{
    return (u32)(mix(key + (u64)token * 0x9e3779b97f4a7c15u) >> 32);
}

static float noise(u32 bits)
{
    float u = ((float)bits + 0.5f) * 0x1p-32f; /* (0, 1]; small u are the fine end */
    /* e = -log(1 - u) is exponential; by its series where 1 - u would lose digits */
    float e = u < 0.01f ? u * (1 + u * (0.5f + u * (0.333333343f + u * 0.25f)))
                        : -num_log(fmaxf(1 - u, 0x1p-25f));
    return -num_log(e);
}

/* At least noise(bits), for a hundredth of its time: e ≥ u ≥ 2^-(zeros + 1). */
static float noise_at_most(u32 bits)
{
    return bits ? (float)(__builtin_clz(bits) + 1) * 0.6931473f : 23.0f;
}

float sample_gumbel(u64 seed, u32 choice, u32 position, u32 token)
{
    return noise(noise_bits(noise_key(seed, choice, position), token));
}

static u64 weigh(float z)
{
    return (u64)(num_exp(z) * 0x1p40f);
}

u64 sample_weigh(const float *z, u32 n, float top)
{
    u64 sum = 0;
    for (u32 i = 0; i < n; i++) sum += weigh(z[i] - top);
    return sum;
}

static u64 weigh_all(const struct sample_in *in, const float *z, float top)
{
    return (in->weigh ? in->weigh : sample_weigh)(z, in->n_vocab, top);
}

static u64 count(float z)
{
    (void)z;
    return 1;
}

/* The vocabulary is walked in lanes: one at a time would wait for the one before it. */
enum { LANES = 4, WIDE = 4 * LANES };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef i32 lanes_bits __attribute__((vector_size(4 * LANES)));

static lanes load(const float *z)
{
    lanes v;
    memcpy(&v, z, sizeof v);
    return v;
}

/* None is NaN or infinite. */
static bool all_finite(const float *z, u32 n)
{
    const i32 exponent = 0x7f800000;
    lanes_bits bad = {0};
    u32 i = 0, any = 0;
    for (; i + LANES <= n; i += LANES) bad |= ((lanes_bits)load(z + i) & exponent) == exponent;
    for (u32 k = 0; k < LANES; k++) any |= (u32)bad[k];
    for (; i < n; i++) any |= isfinite(z[i]) ? 0 : 1u;
    return !any;
}

static lanes larger(lanes a, lanes b)
{
    lanes_bits more = a > b;
    return (lanes)(((lanes_bits)a & more) | ((lanes_bits)b & ~more));
}

/* The first of the largest. */
static u32 argmax(const float *z, u32 n)
{
    u32 i = 0, best = 0;
    if (n >= WIDE) {
        lanes top[4];
        for (u32 k = 0; k < 4; k++) top[k] = load(z + k * LANES);
        for (i = WIDE; i + WIDE <= n; i += WIDE)
            for (u32 k = 0; k < 4; k++) top[k] = larger(load(z + i + k * LANES), top[k]);
        top[0] = larger(larger(top[0], top[1]), larger(top[2], top[3]));
        float most = top[0][0];
        for (u32 k = 1; k < LANES; k++) most = MAX(most, top[0][k]);
        while (z[best] != most) best++;
    }
    for (; i < n; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* Logits with bias, penalties and mask; false when one is not a number. */
static bool adjust(const struct sample_row *row, const struct sample_in *in, float *z)
{
    if (!all_finite(in->logits, in->n_vocab)) return false;
    memcpy(z, in->logits, in->n_vocab * sizeof *z);
    for (u32 i = 0; i < row->n_edits; i++) {
        const struct sample_edit *e = &in->edits[i];
        float *v = &z[e->id];
        *v += e->bias;
        if (!e->count) continue;
        *v = *v > 0 ? *v / row->repeat : *v * row->repeat;
        *v -= row->presence + row->frequency * (float)e->count;
    }
    for (u32 i = 0; row->masked && i < in->n_vocab; i++)
        if (!(in->mask[i / 32] >> i % 32 & 1)) z[i] = -INFINITY;
    return true;
}

/* Measured from the best token, which is 0 then, so that nothing overflows however small the
 * temperature; what is too far from it is -inf and never drawn. */
static void heat(float temperature, float top, float *z, u32 n)
{
    for (u32 i = 0; i < n; i++) z[i] = z[i] == top ? 0 : (z[i] - top) / temperature;
}

static bool better(const float *z, u32 a, u32 b)
{
    return z[a] > z[b] || (z[a] == z[b] && a < b);
}

static void swap(u32 *a, u32 *b)
{
    u32 t = *a;
    *a = *b;
    *b = t;
}

/* How many of the best of order[0..n) it takes until their weights reach target; they are moved to
 * its front. Quickselect, without caring which side has how many. */
static u32 take_best(const float *z, u32 *order, u32 n, u64 target, u64 (*weight)(float))
{
    u32 lo = 0, hi = n;
    u64 have = 0; /* weight of order[0..lo), which are better than all others: below target */
    while (lo < hi) {
        u32 at = lo + (u32)(mix((u64)lo << 32 | hi) % (hi - lo)), m = lo;
        swap(&order[at], &order[hi - 1]);
        u64 w = have;
        for (u32 i = lo; i + 1 < hi; i++) {
            if (!better(z, order[i], order[hi - 1])) continue;
            w += weight(z[order[i]]);
            swap(&order[i], &order[m++]);
        }
        swap(&order[m], &order[hi - 1]);
        u64 with = w + weight(z[order[m]]);
        if (w >= target) {
            hi = m;
        } else if (with >= target) {
            return m + 1;
        } else {
            have = with;
            lo = m + 1;
        }
    }
    return hi;
}

/* p/2^24 of sum, without rounding differently anywhere; at least 1. */
static u64 share_of(u64 sum, float p)
{
    u64 p24 = (u64)(p * 0x1p24f);
    u64 part = (sum >> 24) * p24 + ((sum & 0xffffff) * p24 >> 24);
    return MAX(part, 1);
}

/* How many tokens stay after top-k, top-p and min-p; they are order[0..n). */
static u32 restrict_choice(const struct sample_row *row, const struct sample_in *in, const float *z,
                           u32 *order)
{
    u32 n = in->n_vocab;
    for (u32 i = 0; i < n; i++) order[i] = i;
    if (row->top_k && row->top_k < n) n = take_best(z, order, n, row->top_k, count);
    if (row->top_p < 1) {
        u64 sum = n == in->n_vocab ? weigh_all(in, z, 0) : 0;
        for (u32 i = 0; n < in->n_vocab && i < n; i++) sum += weigh(z[order[i]]);
        n = take_best(z, order, n, share_of(sum, row->top_p), weigh);
    }
    if (row->min_p > 0) {
        float floor = num_log(row->min_p);
        u32 kept = 0;
        for (u32 i = 0; i < n; i++)
            if (z[order[i]] >= floor) order[kept++] = order[i];
        n = kept;
    }
    return n;
}

static u32 draw(const float *z, const u32 *order, u32 n, u64 key)
{
    u32 best = UINT32_MAX;
    float best_z = -INFINITY;
    for (u32 i = 0; i < n; i++) {
        u32 id = order[i], bits = noise_bits(key, id);
        if (z[id] + noise_at_most(bits) < best_z) continue;
        float y = z[id] + noise(bits);
        if (y > best_z || (y == best_z && id < best)) {
            best_z = y;
            best = id;
        }
    }
    return best;
}

i32 sample_token(const struct sample_row *row, const struct sample_in *in,
                 const struct sample_scratch *x)
{
    u32 n = in->n_vocab;
    if (!adjust(row, in, x->z)) return SAMPLE_BAD;
    u32 first = argmax(x->z, n);
    if (x->z[first] == -INFINITY) return SAMPLE_NONE;
    if (row->temperature == 0) return (i32)first;
    heat(row->temperature, x->z[first], x->z, n);
    n = restrict_choice(row, in, x->z, x->order);
    return (i32)draw(x->z, x->order, n, noise_key(row->seed, row->choice, in->position));
}

void sample_odds(const struct sample_row *row, const struct sample_in *in,
                 const struct sample_scratch *x, float *p)
{
    u32 n = in->n_vocab;
    double sum = 0;
    for (u32 i = 0; i < n; i++) p[i] = 0;
    if (!adjust(row, in, x->z)) return;
    u32 first = argmax(x->z, n);
    if (x->z[first] == -INFINITY) return;
    if (row->temperature == 0) {
        p[first] = 1;
        return;
    }
    heat(row->temperature, x->z[first], x->z, n);
    n = restrict_choice(row, in, x->z, x->order);
    for (u32 i = 0; i < n; i++) sum += (double)num_exp(x->z[x->order[i]]);
    for (u32 i = 0; i < n; i++) p[x->order[i]] = (float)((double)num_exp(x->z[x->order[i]]) / sum);
}

void sample_logprobs(const struct sample_in *in, i32 token, u32 n_top, float *logprobs,
                     i32 *top_ids)
{
    const float *z = in->logits;
    float top = z[argmax(z, in->n_vocab)];
    u32 n = 0;
    for (u32 i = 0; n_top && i < in->n_vocab; i++) {
        if (n == n_top && !better(z, i, (u32)top_ids[n - 1])) continue;
        u32 at = n < n_top ? n++ : n - 1;
        for (; at > 0 && better(z, i, (u32)top_ids[at - 1]); at--) top_ids[at] = top_ids[at - 1];
        top_ids[at] = (i32)i;
    }
    float lse = top + num_log((float)weigh_all(in, z, top) * 0x1p-40f);
    logprobs[0] = z[token] - lse;
    for (u32 i = 0; i < n; i++) logprobs[1 + i] = z[top_ids[i]] - lse;
}
