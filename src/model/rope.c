#include "model/rope.h"

#include <math.h>
#include <stdlib.h>

/* Far above any model's (1), low enough that every position's angle can be reduced. */
static const double MAX_FREQ = 1024;

/* Yarn's share of the unscaled frequency for pair i: 1 for fast pairs, 0 for slow ones. */
static double yarn_ramp(const struct hparams *hp, u32 i)
{
    double n = hp->n_rot, base = (double)hp->rope_base;
    double turn = (double)hp->rope_ctx / (2 * 3.14159265358979323846);
    double lo = n * log(turn / (double)hp->yarn_fast) / (2 * log(base));
    double hi = n * log(turn / (double)hp->yarn_slow) / (2 * log(base));
    lo = fmax(hp->yarn_exact ? lo : floor(lo), 0);
    hi = hp->yarn_exact ? hi : ceil(hi);
    hi = fmin(hi, n - 1);
    double y = ((double)i - lo) / fmax(0.001, hi - lo);
    return 1 - fmin(1, fmax(0, y));
}

/* Divisors of the frequencies (of `most` the first half), all 1 where the file has no such tensor
 * and need not have it. */
static int read_factors(float *f, u32 half, u32 most, struct source *s, const char *name,
                        bool required, struct err *err)
{
    const struct tensor *t = source_tensor(s, name);
    const u8 *data;
    for (u32 i = 0; i < half; i++) f[i] = 1;
    if (!t && required) return err_set(err, FLETCH_E_FORMAT, "tensor '%s' is missing", name);
    if (!t) return 0;
    const struct quant_info *info = quant_info(t->type);
    if ((t->n_elems != half && t->n_elems != most) || !info || info->blk != 1 || !info->readable)
        return err_set(err, FLETCH_E_FORMAT, "tensor '%s' does not consist of %u floats", name,
                       half);
    int rc = source_data(s, t, &data, err);
    if (rc) return rc;
    quant_decode(t->type, data, f, half);
    for (u32 i = 0; i < half; i++)
        if (!(f[i] > 0) || !isfinite(f[i]))
            return err_set(err, FLETCH_E_FORMAT, "tensor '%s' contains invalid values", name);
    return 0;
}

/* The frequencies divided by the factors of that tensor. */
static int make_freq(double **out, struct net *net, const struct hparams *hp, struct source *s,
                     const char *factors, struct err *err)
{
    u32 half = hp->n_rot / 2;
    double factor = (double)hp->rope_factor, *freq;
    float *f = malloc(half * sizeof *f);
    *out = freq = arena_alloc(&net->arena, half, sizeof *freq);
    int rc = freq && f ? read_factors(f, half, MAX(half, hp->n_rot_local / 2), s, factors,
                                      hp->rope_scaling == SCALING_LONGROPE, err)
                       : err_nomem(err, "the rotary table");
    for (u32 i = 0; !rc && i < half; i++) {
        double theta = pow((double)hp->rope_base, -2.0 * i / hp->n_rot);
        if (hp->rope_scaling == SCALING_LINEAR) theta /= factor;
        if (hp->rope_scaling == SCALING_YARN) {
            double ramp = yarn_ramp(hp, i);
            theta *= (1 - ramp) / factor + ramp;
        }
        freq[i] = theta / (double)f[i];
        if (!(freq[i] <= MAX_FREQ))
            rc = err_set(err, FLETCH_E_FORMAT,
                         "rotary frequency %u is %g: rope.freq_base, rope.scaling.factor or %s "
                         "is wrong",
                         i, freq[i], factors);
    }
    free(f);
    return rc;
}

/* The table of layers with a window: plain, by a base of its own. */
static int fill_local(struct net *net, const struct hparams *hp, struct err *err)
{
    bool any = false;
    for (u32 i = 0; i < hp->n_layers; i++) any |= hp->block_rope[i] == ROPE_LOCAL;
    if (!any) return 0;
    u32 n = hp->n_rot_local;
    double *freq = arena_alloc(&net->arena, n / 2, sizeof *freq);
    if (!freq) return err_nomem(err, "the rotary table");
    for (u32 i = 0; i < n / 2; i++) freq[i] = pow((double)hp->rope_base_local, -2.0 * i / n);
    net->rope[ROPE_LOCAL] = (struct rope_table){.n_rot = n, .freq = freq, .mscale = 1};
    return 0;
}

static int fill_main(struct net *net, const struct hparams *hp, struct source *s, struct err *err)
{
    struct rope_table *r = &net->rope[ROPE_MAIN];
    bool two = hp->rope_scaling == SCALING_LONGROPE;
    r->n_rot = hp->n_rot;
    r->mscale = 1;
    if (hp->n_rot < 2) return 0;
    double grown = 0.1 * log((double)hp->rope_factor);
    if (hp->rope_scaling == SCALING_YARN && !(hp->kv_lora && hp->yarn_log_mul > 0))
        r->mscale = (1 + grown) / (1 + grown * (double)hp->yarn_log_mul);
    if (hp->rope_scaling == SCALING_YARN || two) r->mscale *= (double)hp->rope_attn_factor;
    r->n_short = hp->rope_ctx;
    int rc = make_freq(&r->freq, net, hp, s,
                       two ? "rope_factors_short.weight" : "rope_freqs.weight", err);
    if (rc || !two) return rc;
    return make_freq(&r->freq_long, net, hp, s, "rope_factors_long.weight", err);
}

int rope_fill(struct net *net, const struct hparams *hp, struct source *s, struct err *err)
{
    int rc = fill_main(net, hp, s, err);
    /* latent attention that does not rotate: by nothing */
    for (u32 i = 0; !rc && hp->no_rope && hp->kv_lora && i < hp->n_rot / 2; i++)
        net->rope[ROPE_MAIN].freq[i] = 0;
    if (!rc) rc = fill_local(net, hp, err);
    bool grows = hp->query_rope == ROPE_GROWING;
    if (rc || (!grows && !hp->still_grows)) return rc;
    struct rope_table *r = &net->rope[ROPE_GROWING];
    if (grows) *r = net->rope[ROPE_MAIN];
    r->grow = (double)hp->rope_grow;
    r->grow_every = hp->rope_grow_every;
    r->grow_from = hp->rope_grow_from;
    if (!hp->n_still) return 0;
    double *freq = arena_alloc(&net->arena, hp->n_still / 2, sizeof *freq);
    if (!freq) return err_nomem(err, "the rotary table");
    for (u32 i = 0; i < hp->n_still / 2; i++) freq[i] = 0;
    net->rope[ROPE_STILL] = (struct rope_table){.n_rot = hp->n_still,
                                                .freq = freq,
                                                .mscale = 1,
                                                .grow = r->grow,
                                                .grow_every = r->grow_every,
                                                .grow_from = r->grow_from};
    return 0;
}
