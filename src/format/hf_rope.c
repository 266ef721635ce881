/* Rotary positions in config.json, in GGUF's words. */
#include "format/hf_cfg.h"

/* Versions of transformers differ in which of two places counts. */
static double original_ctx(struct cfg *c, const json_t *p, double absent)
{
    static const char key[] = "original_max_position_embeddings";
    double outer = opt_num(c, c->root, key, 0);
    double n = opt_num(c, p, key, outer > 0 ? outer : absent);
    if (outer > 0 && n != outer)
        source_refuse(c->s, "config.json: %s is %.9g, but %.9g in the rope parameters", key, outer,
                      n);
    return n;
}

/* Slow frequencies are divided by factor, fast ones kept, those between blended. GGUF stores the
 * divisors as a tensor, of n_all columns. */
static void rope_llama3(struct cfg *c, const json_t *p, double base, u32 n_rot, u32 n_all)
{
    double factor = need_num(c, p, "factor"), low = need_num(c, p, "low_freq_factor");
    double high = need_num(c, p, "high_freq_factor");
    double ctx = original_ctx(c, p, 0);
    if (!(c->h->arch &
          (HF_LLAMA | HF_MIXTRAL | HF_SMOLLM3 | HF_GRANITE | HF_EXAONE4 | HF_LLAMA4 | HF_STEP35)))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: rope type llama3 is not supported for %s",
             c->arch);
    if (!(factor > 0 && low > 0 && high > low && ctx > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid factors of rope type llama3");
    if (c->rc) return;
    u32 n = n_rot / 2;
    float *f = arena_alloc(&c->s->arena, n_all / 2, sizeof *f);
    if (!f) {
        c->rc = err_nomem(c->err, "rope_freqs");
        return;
    }
    for (u32 i = 0; i < n; i++) {
        double wave = 2 * M_PI * pow(base, 2.0 * i / n_rot);
        double smooth = (ctx / wave - low) / (high - low);
        f[i] = (float)(smooth > 1 ? 1 : smooth < 0 ? factor : 1 / ((1 - smooth) / factor + smooth));
    }
    for (u32 i = n; i < n_all / 2; i++) f[i] = 1;
    c->h->rope_freqs = f;
    c->h->n_rope_freqs = n_all / 2;
}

static double yarn_mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static void rope_yarn(struct cfg *c, const json_t *p, u32 n_ctx)
{
    double orig = original_ctx(c, p, n_ctx);
    double factor = opt_num(c, p, "factor", orig > 0 ? n_ctx / orig : 1);
    double plain = yarn_mscale(factor, 1), attn = plain, all = 0;
    bool latent = c->h->arch & (HF_GLM4_LITE | HF_DEEPSEEK | HF_MISTRAL4);
    if (get(c, p, "mscale") && get(c, p, "mscale_all_dim"))
        attn = yarn_mscale(factor, opt_num(c, p, "mscale", 1)) /
               yarn_mscale(factor, opt_num(c, p, "mscale_all_dim", 1));
    attn = opt_num(c, p, "attention_factor", attn);
    double fast = opt_num(c, p, "beta_fast", 32), slow = opt_num(c, p, "beta_slow", 1);
    bool exact = json_is_false(get(c, p, "truncate"));
    if (exact != (c->h->arch == HF_GPT_OSS) && !c->rc) /* for which GGUF has no key */
        c->rc = source_add_bool(c->s, "fletch.yarn_truncate", !exact, c->err);
    if (!(orig >= 1 && orig <= UINT32_MAX && factor > 0 && fast > 0 && slow > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid factors of rope type yarn");
    put_str(c, "rope.scaling.type", "yarn");
    put_f32(c, "rope.scaling.factor", factor);
    put_u32(c, "rope.scaling.original_context_length", c->rc ? 0 : (u32)orig);
    put_f32(c, "rope.scaling.yarn_beta_fast", fast);
    put_f32(c, "rope.scaling.yarn_beta_slow", slow);
    if (latent) { /* GGUF has the logarithm of the scale of attention then, and no factor of its own
                   */
        all = opt_num(c, p, "mscale_all_dim", 0);
        if (!(all > 0))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: rope type yarn without mscale_all_dim is not supported for %s",
                 c->arch);
        put_f32(c, "rope.scaling.yarn_log_multiplier", 0.1 * all);
        plain = 1;
    }
    /* GGUF's factor multiplies YaRN's own, Hugging Face's replaces it. */
    if (attn != plain) put_f32(c, "rope.scaling.attn_factor", attn / plain);
    bool grows = c->h->arch & (HF_MISTRAL3 | HF_MISTRAL4);
    double beta = grows ? opt_num(c, p, "llama_4_scaling_beta", 0) : 0;
    if (beta > 0) put_f32(c, "attention.temperature_scale", beta);
    if (beta > 0) put_u32(c, "attention.temperature_length", c->rc ? 1 : (u32)orig);
}

/* A list of n positive numbers, in the source's arena. */
static const float *need_factors(struct cfg *c, const json_t *p, const char *key, u32 n)
{
    const json_t *list = get(c, p, key);
    float *f = arena_alloc(&c->s->arena, n, sizeof *f);
    if (!f) {
        c->rc = c->rc ? c->rc : err_nomem(c->err, key);
        return NULL;
    }
    bool ok = json_array_size(list) == n;
    for (u32 i = 0; ok && i < n; i++) {
        double d = json_number_value(json_array_get(list, i));
        f[i] = (float)d;
        ok = d > 0 && d <= (double)FLT_MAX;
    }
    if (!ok)
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not a list of %u numbers greater than 0", key,
             n);
    return f;
}

/* Each pair has its own divisor, one in contexts that are longer than the original, and another in
 * those that are not. */
static void rope_long(struct cfg *c, const json_t *p, u32 n_rot, u32 n_ctx)
{
    double orig = original_ctx(c, p, c->h->arch == HF_PHI3 ? 4096 : n_ctx);
    double factor = opt_num(c, p, "factor", orig > 0 ? n_ctx / orig : 0);
    double attn = factor > 1 && orig > 1 ? sqrt(1 + log(factor) / log(orig)) : 1;
    attn = opt_num(c, p, "attention_factor", attn);
    if (!(c->h->arch & (HF_LLAMA | HF_PHI3 | HF_GRANITE)))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: rope type longrope is not supported for %s",
             c->arch);
    if (!(orig >= 1 && orig <= UINT32_MAX && factor > 0 && attn > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid factors of rope type longrope");
    c->h->n_rope_freqs = n_rot / 2;
    c->h->rope_short = need_factors(c, p, "short_factor", n_rot / 2);
    c->h->rope_long = need_factors(c, p, "long_factor", n_rot / 2);
    put_str(c, "rope.scaling.type", "longrope");
    put_u32(c, "rope.scaling.original_context_length", c->rc ? 0 : (u32)orig);
    put_f32(c, "rope.scaling.attn_factor", attn);
}

/* Only the first pairs of whole heads rotate: GGUF divides the frequencies of the others by a
 * number that leaves nothing of them. */
static void rope_part(struct cfg *c, const json_t *p, u32 n_rot)
{
    double part = opt_num(c, p, "partial_rotary_factor", 1), factor = opt_num(c, p, "factor", 1);
    u32 n = n_rot / 2, turning = part >= 0 && part <= 1 ? (u32)(part * n_rot / 2) : 0;
    float *f = arena_alloc(&c->s->arena, n, sizeof *f);
    if (!f) c->rc = c->rc ? c->rc : err_nomem(c->err, "rope_freqs");
    if (!(part > 0 && part <= 1 && factor > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid factors of rope type proportional");
    for (u32 i = 0; !c->rc && i < n; i++) f[i] = i < turning ? (float)factor : 1e30f;
    c->h->rope_freqs = f;
    c->h->n_rope_freqs = n;
}

static bool is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Transformers 5 writes rope_parameters, earlier versions rope_theta and rope_scaling. Where both
 * objects are there, all of them take rope_scaling; what only rope_parameters says, or says
 * differently, would be lost. */
static const json_t *rope_object(struct cfg *c)
{
    const json_t *old = get(c, c->root, "rope_scaling"), *v;
    const json_t *new = get(c, c->root, "rope_parameters");
    const char *key;
    if (!old || (json_is_object(old) && json_object_size(old) == 0)) return new ? new : old;
    json_object_foreach((json_t *)(uintptr_t) new, key, v)
    {
        const json_t *said = json_object_get(old, key);
        if (!said) said = json_object_get(c->root, key);
        bool is_type = strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
        bool matters = said || strcmp(key, "rope_theta") == 0;
        if (!is_type && matters && !json_is_null(v) && !is_same(said, v))
            source_refuse(c->s, "config.json: %s of rope_parameters contradicts rope_scaling",
                          QUOTE(str_of(key)));
    }
    return old;
}

/* Columns of a head of n that rotate. */
static u32 rotated(struct cfg *c, const json_t *p, u32 n)
{
    bool glm = c->h->arch & (HF_GLM4_MOE | HF_GLM4 | HF_BAILING2),
         minimax = c->h->arch == HF_MINIMAX_M2;
    /* rope_part says which pairs rotate; MLA has columns that do, and others */
    if (c->h->arch & (HF_GEMMA4 | HF_MISTRAL4)) return n;
    u32 said = minimax ? opt_u32(c, "rotary_dim", n, n) : n;
    double absent = glm ? 0.5 : c->h->arch & HF_DELTA ? 0.25 : (double)said / n;
    double part = opt_num(c, c->root, "partial_rotary_factor", absent);
    part = opt_num(c, p, "partial_rotary_factor", part);
    if (!(glm || minimax ||
          (c->h->arch & (HF_PHI3 | HF_SOLAR | HF_DELTA | HF_LAGUNA | HF_MIMO2 | HF_STEP35)))) {
        if (part != 1)
            FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: partial_rotary_factor is not supported");
        return n;
    }
    u32 n_rot = part > 0 && part <= 1 ? (u32)(n * part) : 0;
    if (n_rot < 2 || n_rot % 2 || (said != n && said != n_rot))
        FAIL(c, FLETCH_E_FORMAT,
             "config.json: partial_rotary_factor %.9g is not possible with heads of %u columns",
             part, n);
    return n_rot;
}

/* Gemma 3 and others have parameters for each kind of layer, those of layers with a window without
 * scaling; before transformers 5 only their base was apart. Gives those of the other layers. */
static const json_t *rope_kinds(struct cfg *c, const json_t *p, u32 n_head)
{
    const json_t *full = get(c, p, "full_attention"), *local = get(c, p, "sliding_attention");
    struct str type = get_str(c, local, "rope_type");
    double base = opt_num(c, c->root, "rope_local_base_freq", 10000);
    base = opt_num(c, local, "rope_theta", base);
    if (!(base > 0)) FAIL(c, FLETCH_E_FORMAT, "config.json: rope_theta must be greater than 0");
    if (type.p && !str_is(type, "default"))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: rope type %s of layers with a window is not supported", QUOTE(type));
    put_f32(c, "rope.freq_base_swa", base);
    double part = opt_num(c, local, "partial_rotary_factor", 1);
    if (c->h->arch == HF_LAGUNA)
        put_u32(c, "rope.dimension_count_swa", (u32)(n_head * MIN(part, 1)));
    else if ((part != opt_num(c, full, "partial_rotary_factor", 1) && c->h->arch == HF_MIMO2) ||
             (part != 1 && c->h->arch == HF_STEP35))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: this partial_rotary_factor of layers with a window is not supported");
    return full ? full : p;
}

void hf_put_rope(struct cfg *c, u32 n_rot, u32 n_ctx)
{
    const json_t *p = rope_object(c), *v;
    const char *key;
    bool kinds = c->h->arch & (HF_GEMMA3 | HF_GEMMA4 | HF_LAGUNA | HF_MIMO2 | HF_STEP35);
    bool gemma3 = c->h->arch & (HF_GEMMA3 | HF_GEMMA4);
    if (kinds) p = rope_kinds(c, p, n_rot);
    bool lfm2 = c->h->arch & (HF_LFM2 | HF_LFM2_MOE);
    if (p && !json_is_object(p))
        FAIL(c, FLETCH_E_FORMAT, "config.json: the rope parameters are not an object");
    json_object_foreach((json_t *)(uintptr_t)p, key, v)
    {
        if (json_is_object(v))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: rope parameters per kind of layer (%s) are not supported",
                 QUOTE(str_of(key)));
    }
    double base = opt_num(c, p, "rope_theta",
                          opt_num(c, c->root, "rope_theta",
                                  gemma3 || lfm2             ? 1e6
                                  : c->h->arch == HF_GPT_OSS ? 150000
                                                             : 10000));
    if (!(base > 0)) FAIL(c, FLETCH_E_FORMAT, "config.json: rope_theta must be greater than 0");
    u32 n_head = n_rot;
    bool step = c->h->arch == HF_STEP35; /* GGUF has the columns of layers with a window */
    n_rot = rotated(c, p, n_rot);
    if (step && n_rot != n_head / 2)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: partial_rotary_factor must be 0.5 in layers "
             "without a window");
    struct str type = get_str(c, p, "rope_type");
    if (!type.p) type = get_str(c, p, "type");
    double alpha = c->h->arch & (HF_HUNYUAN | HF_HUNYUAN_MOE) ? opt_num(c, p, "alpha", 0) : 0;
    bool by_alpha = type.p && str_is(type, "dynamic") && alpha > 0 && n_rot > 2;
    if (by_alpha) base *= pow(alpha, n_rot / (n_rot - 2.0)); /* and no more scaling than that */
    put_u32(c, "rope.dimension_count", step ? n_head : n_rot);
    put_f32(c, "rope.freq_base", base);
    if (by_alpha) return;
    if (!type.p && (get(c, p, "rope_type") || get(c, p, "type")))
        FAIL(c, FLETCH_E_FORMAT, "config.json: the rope type is not a string");
    if (!type.p || str_is(type, "default") || str_is(type, "none")) return;
    if ((c->h->wrapped || (c->h->arch & HF_DELTA)) && str_is(type, "mrope"))
        return; /* of text alone it is the plain one */
    /* Phi-3's class takes these names for it too */
    bool is_long = str_is(type, "longrope") ||
                   (c->h->arch == HF_PHI3 && (str_is(type, "su") || str_is(type, "yarn")));
    if (is_long) {
        rope_long(c, p, n_rot, n_ctx);
    } else if (str_is(type, "linear")) {
        put_str(c, "rope.scaling.type", "linear");
        put_f32(c, "rope.scaling.factor", need_num(c, p, "factor"));
    } else if (str_is(type, "proportional") && c->h->arch == HF_GEMMA4) {
        rope_part(c, p, n_rot);
    } else if (str_is(type, "yarn")) {
        rope_yarn(c, p, n_ctx);
    } else if (str_is(type, "llama3")) {
        rope_llama3(c, p, base, n_rot, step ? n_head : n_rot);
    } else {
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: rope type %s is not supported", QUOTE(type));
    }
}
