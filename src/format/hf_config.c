/* config.json and generation_config.json in GGUF's words. A setting that changes the model's
 * arithmetic and has no GGUF key is refused by name; so is one that nobody looks at here and that
 * is not on the lists of hf_known.c. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"

/* The first failure sticks and everything after it does nothing, so that the mapping below
 * reads as a table. */
struct cfg {
    const json_t *root;  /* the text model's part of config.json */
    const json_t *outer; /* all of it */
    struct source *s;
    struct hf *h;
    const char *arch;     /* GGUF's name of it */
    struct strmap *asked; /* of the root, of the rope parameters: fields that were looked up */
    struct err *err;
    int rc;
};

#define FAIL(c, code, ...) ((c)->rc = (c)->rc ? (c)->rc : err_set((c)->err, code, __VA_ARGS__))

/* JSON null and absence mean the same. key is a literal. */
static const json_t *get(const struct cfg *c, const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    strmap_add(&c->asked[obj != c->root && obj != c->outer], str_of(key), 0);
    return json_is_null(v) ? NULL : v;
}

static struct str get_str(const struct cfg *c, const json_t *obj, const char *key)
{
    const json_t *v = get(c, obj, key);
    return (struct str){json_string_value(v), json_string_length(v)};
}

static u32 int_in(struct cfg *c, const char *key, u32 lo, u32 hi, u32 absent)
{
    const json_t *v = get(c, c->root, key);
    if (!v && absent >= lo) return absent;
    if (!v) FAIL(c, FLETCH_E_FORMAT, "config.json: missing %s", key);
    json_int_t i = json_integer_value(v);
    if (json_is_integer(v) && i >= (json_int_t)lo && i <= (json_int_t)hi) return (u32)i;
    FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not an integer from %u to %u", key, lo, hi);
    return lo;
}

static u32 need_u32(struct cfg *c, const char *key, u32 hi)
{
    return int_in(c, key, 1, hi, 0);
}

/* absent is at least 1 */
static u32 opt_u32(struct cfg *c, const char *key, u32 hi, u32 absent)
{
    return int_in(c, key, 1, hi, absent);
}

static double opt_num(struct cfg *c, const json_t *obj, const char *key, double absent)
{
    const json_t *v = get(c, obj, key);
    if (!v) return absent;
    double d = json_number_value(v);
    if (json_is_number(v) && d >= 0 && d <= (double)FLT_MAX) return d;
    FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be a number of at least 0", key);
    return absent;
}

static double need_num(struct cfg *c, const json_t *obj, const char *key)
{
    if (!get(c, obj, key)) FAIL(c, FLETCH_E_FORMAT, "config.json: missing %s", key);
    return opt_num(c, obj, key, 1);
}

static bool opt_bool(struct cfg *c, const char *key, bool absent)
{
    const json_t *v = get(c, c->root, key);
    if (!v) return absent;
    if (!json_is_boolean(v)) FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not a boolean", key);
    return json_is_true(v);
}

/* A setting of which we know one value only. */
static void only_str(struct cfg *c, const char *key, const char *known)
{
    struct str v = get_str(c, c->root, key);
    if (get(c, c->root, key) && (!v.p || !str_is(v, known)))
        source_refuse(c->s, "config.json: %s %s is not supported, only %s", key,
                      v.p ? QUOTE(v) : "(not a string)", known);
}

static void only_bool(struct cfg *c, const char *key, bool known)
{
    if (opt_bool(c, key, known) != known)
        source_refuse(c->s, "config.json: %s %s is not supported", key, known ? "false" : "true");
}

struct key_name {
    char text[96];
};

static struct key_name key_of(const struct cfg *c, const char *suffix)
{
    struct key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch, suffix);
    return k;
}

static void put_u32(struct cfg *c, const char *suffix, u32 v)
{
    if (!c->rc) c->rc = source_add_u32(c->s, key_of(c, suffix).text, v, c->err);
}

static void put_f32(struct cfg *c, const char *suffix, double v)
{
    if (!c->rc) c->rc = source_add_f32(c->s, key_of(c, suffix).text, (float)v, c->err);
}

static void put_bool(struct cfg *c, const char *suffix, bool v)
{
    if (!c->rc) c->rc = source_add_bool(c->s, key_of(c, suffix).text, v, c->err);
}

static void put_str(struct cfg *c, const char *suffix, const char *v)
{
    if (!c->rc) c->rc = source_add_str(c->s, key_of(c, suffix).text, str_of(v), c->err);
}

/* Rotary positions */

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
 * divisors as a tensor. */
static void rope_llama3(struct cfg *c, const json_t *p, double base, u32 n_rot)
{
    double factor = need_num(c, p, "factor"), low = need_num(c, p, "low_freq_factor");
    double high = need_num(c, p, "high_freq_factor");
    double ctx = original_ctx(c, p, 0);
    if (!(c->h->arch & (HF_LLAMA | HF_MIXTRAL | HF_SMOLLM3 | HF_GRANITE)))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: rope type llama3 is not supported for %s",
             c->arch);
    if (!(factor > 0 && low > 0 && high > low && ctx > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid factors of rope type llama3");
    if (c->rc) return;
    u32 n = n_rot / 2;
    float *f = arena_alloc(&c->s->arena, n, sizeof *f);
    if (!f) {
        c->rc = err_nomem(c->err, "rope_freqs");
        return;
    }
    for (u32 i = 0; i < n; i++) {
        double wave = 2 * M_PI * pow(base, 2.0 * i / n_rot);
        double smooth = (ctx / wave - low) / (high - low);
        f[i] = (float)(smooth > 1 ? 1 : smooth < 0 ? factor : 1 / ((1 - smooth) / factor + smooth));
    }
    c->h->rope_freqs = f;
    c->h->n_rope_freqs = n;
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
    bool latent = c->h->arch & (HF_GLM4_LITE | HF_DEEPSEEK);
    if (get(c, p, "mscale") && get(c, p, "mscale_all_dim"))
        attn = yarn_mscale(factor, opt_num(c, p, "mscale", 1)) /
               yarn_mscale(factor, opt_num(c, p, "mscale_all_dim", 1));
    attn = opt_num(c, p, "attention_factor", attn);
    double fast = opt_num(c, p, "beta_fast", 32), slow = opt_num(c, p, "beta_slow", 1);
    if (json_is_false(json_object_get(p, "truncate")))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: rope type yarn with truncate false is not supported");
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
    bool glm = c->h->arch == HF_GLM4_MOE, minimax = c->h->arch == HF_MINIMAX_M2;
    u32 said = minimax ? opt_u32(c, "rotary_dim", n, n) : n;
    double absent = glm ? 0.5 : c->h->arch & HF_DELTA ? 0.25 : (double)said / n;
    double part = opt_num(c, c->root, "partial_rotary_factor", absent);
    part = opt_num(c, p, "partial_rotary_factor", part);
    if (!(glm || minimax || (c->h->arch & (HF_PHI3 | HF_SOLAR | HF_DELTA)))) {
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

static void rope(struct cfg *c, u32 n_rot, u32 n_ctx)
{
    const json_t *p = rope_object(c), *v;
    const char *key;
    if (p && !json_is_object(p))
        FAIL(c, FLETCH_E_FORMAT, "config.json: the rope parameters are not an object");
    json_object_foreach((json_t *)(uintptr_t)p, key, v)
    {
        if (json_is_object(v))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: rope parameters per kind of layer (%s) are not supported",
                 QUOTE(str_of(key)));
    }
    double base = opt_num(c, p, "rope_theta", opt_num(c, c->root, "rope_theta", 10000));
    if (!(base > 0)) FAIL(c, FLETCH_E_FORMAT, "config.json: rope_theta must be greater than 0");
    n_rot = rotated(c, p, n_rot);
    struct str type = get_str(c, p, "rope_type");
    if (!type.p) type = get_str(c, p, "type");
    double alpha = c->h->arch & (HF_HUNYUAN | HF_HUNYUAN_MOE) ? opt_num(c, p, "alpha", 0) : 0;
    bool by_alpha = type.p && str_is(type, "dynamic") && alpha > 0 && n_rot > 2;
    if (by_alpha) base *= pow(alpha, n_rot / (n_rot - 2.0)); /* and no more scaling than that */
    put_u32(c, "rope.dimension_count", n_rot);
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
    } else if (str_is(type, "yarn")) {
        rope_yarn(c, p, n_ctx);
    } else if (str_is(type, "llama3")) {
        rope_llama3(c, p, base, n_rot);
    } else {
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: rope type %s is not supported", QUOTE(type));
    }
}

/* Whether some layers attend to a window only, by the rules of transformers' classes: Qwen's are
 * switched on and begin at a layer, Mistral's has a default, Llama's has none but a cache that
 * forgets what lies behind one, SmolLM3's is of the layers that don't rotate. */
static bool has_window(struct cfg *c)
{
    u32 by_default = HF_LLAMA | HF_MIXTRAL | HF_PHI3;
    const json_t *types = get(c, c->root, "layer_types"), *v;
    bool by_layer = c->h->arch & (HF_QWEN2 | HF_QWEN3 | HF_SMOLLM3);
    bool on = opt_bool(c, "use_sliding_window", c->h->arch & by_default), slides = false;
    u32 first = int_in(c, "max_window_layers", 0, UINT32_MAX, 28);
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)types, i, v)
    {
        struct str type = {json_string_value(v), json_string_length(v)};
        bool slide = type.p && str_is(type, "sliding_attention");
        slides |= slide;
        if (type.p && str_is(type, "linear_attention") && (c->h->arch & HF_DELTA)) continue;
        if (!slide && !(type.p && str_is(type, "full_attention")))
            source_refuse(c->s, "config.json: layer_types contains %s",
                          type.p ? QUOTE(type) : "a value that is not a string");
    }
    if (on && by_layer) on = types ? slides : first < c->h->n_layers;
    return on;
}

static void put_window(struct cfg *c)
{
    bool said = json_object_get(c->root, "sliding_window") != NULL; /* or null: none */
    u32 absent = c->h->mistral && !said ? 4096 : 0;
    u32 n = int_in(c, "sliding_window", 0, 1 << 30, absent);
    if (has_window(c) && n) put_u32(c, "attention.sliding_window", n);
}

/* Architectures */

static u32 put_common(struct cfg *c, u32 n_ctx)
{
    u32 dim = c->h->d_model = need_u32(c, "hidden_size", 1 << 20);
    c->h->n_layers = need_u32(c, "num_hidden_layers", 512);
    put_u32(c, "context_length", n_ctx);
    put_u32(c, "embedding_length", dim);
    put_u32(c, "vocab_size", need_u32(c, "vocab_size", 1 << 30));
    return dim;
}

static void read_dense(struct cfg *c)
{
    struct hf *h = c->h;
    u32 n_ctx = need_u32(c, "max_position_embeddings", UINT32_MAX);
    u32 dim = put_common(c, n_ctx);
    h->n_heads = need_u32(c, "num_attention_heads", 1 << 16);
    h->n_kv_heads = opt_u32(c, "num_key_value_heads", 1 << 16, h->n_heads);
    u32 n_head =
        opt_u32(c, "head_dim", 1 << 16, h->arch & HF_DELTA ? 256 : MAX(dim / h->n_heads, 1u));
    if (n_head % 2) FAIL(c, FLETCH_E_FORMAT, "config.json: the head size %u is odd", n_head);
    only_str(c, "hidden_act", "silu");
    put_window(c);
    put_u32(c, "block_count", h->n_layers + h->n_mtp);
    /* where no block is dense, the width of such a block may be left out */
    const char *width =
        get(c, c->root, "intermediate_size") || !(h->arch & (HF_SOLAR | HF_QWEN35_MOE))
            ? "intermediate_size"
            : "moe_intermediate_size";
    put_u32(c, "feed_forward_length", need_u32(c, width, 1 << 24));
    put_u32(c, "attention.head_count", h->n_heads);
    put_u32(c, "attention.head_count_kv", h->n_kv_heads);
    put_u32(c, "attention.key_length", n_head);
    put_u32(c, "attention.value_length", n_head);
    put_f32(c, "attention.layer_norm_rms_epsilon", need_num(c, c->root, "rms_norm_eps"));
    rope(c, n_head, n_ctx);
}

static void put_experts(struct cfg *c, u32 n_experts, bool norm)
{
    c->h->n_experts = n_experts;
    put_u32(c, "expert_count", n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n_experts));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "moe_intermediate_size", 1 << 24));
    put_bool(c, "expert_weights_norm", norm);
}

static void read_qwen3_moe(struct cfg *c)
{
    bool local = get(c, c->root, "num_local_experts") != NULL;
    read_dense(c);
    u32 n = need_u32(c, local ? "num_local_experts" : "num_experts", 1024);
    if (opt_u32(c, "num_experts", 1024, n) != n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: num_experts and num_local_experts differ");
    if (json_array_size(get(c, c->root, "mlp_only_layers")) ||
        opt_u32(c, "decoder_sparse_step", UINT32_MAX, 1) != 1)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: dense layers between the expert layers (mlp_only_layers, "
             "decoder_sparse_step) are not supported");
    put_experts(c, n, opt_bool(c, "norm_topk_prob", false));
}

/* Which layers have a state; where no list says it, all but every so many-th. */
static void put_recurrent_layers(struct cfg *c)
{
    const json_t *types = get(c, c->root, "layer_types");
    u32 n = c->h->n_layers, every = opt_u32(c, "full_attention_interval", 512, 4);
    u8 flags[512] = {0};
    if (types && json_array_size(types) != n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: layer_types does not have %u entries", n);
    for (u32 l = 0; l < n; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        flags[l] = types ? type && strcmp(type, "linear_attention") == 0 : (l + 1) % every != 0;
    }
    if (types)
        for (every = 1; every < n && flags[every - 1]; every++) {
        }
    bool regular = true;
    for (u32 l = 0; l < n; l++) regular &= flags[l] == ((l + 1) % every != 0);
    if (regular)
        put_u32(c, "full_attention_interval", every);
    else if (!c->rc) /* MTP blocks have none */
        c->rc = source_add_array(c->s, key_of(c, "attention.recurrent_layers").text, KV_BOOL,
                                 n + c->h->n_mtp, flags, n + c->h->n_mtp, c->err);
}

/* Which pairs turn with which of a picture's positions. Those of text are all the same, so fletch
 * does without, but other engines ask for it. */
static void put_sections(struct cfg *c)
{
    const json_t *p = get(c, c->root, "rope_parameters"),
                 *said = json_object_get(p, "mrope_section");
    static const u32 usual[3] = {11, 11, 10};
    u8 le[16] = {0};
    for (u32 i = 0; i < 3; i++) {
        json_int_t n = said ? json_integer_value(json_array_get(said, i)) : usual[i];
        if (n < 0 || n > 1 << 16)
            FAIL(c, FLETCH_E_FORMAT, "config.json: mrope_section is not a list of small integers");
        for (u32 k = 0; k < 4; k++) le[4 * i + k] = (u8)((u64)n >> 8 * k);
    }
    if (!c->rc)
        c->rc = source_add_array(c->s, key_of(c, "rope.dimension_sections").text, KV_I32, 4, le,
                                 sizeof le, c->err);
}

/* Qwen3-Next, Qwen3.5 */
static void read_delta(struct cfg *c)
{
    struct hf *h = c->h;
    for (u32 i = 0; i < h->n_tensors; i++)
        if (str_starts(h->names[i], "mtp.")) h->n_mtp = 1;
    only_bool(c, "attn_output_gate", true);
    only_bool(c, "mtp_use_dedicated_embeddings", false);
    read_dense(c);
    if (h->n_mtp) put_u32(c, "nextn_predict_layers", h->n_mtp);
    h->key_dim = opt_u32(c, "linear_key_head_dim", 1 << 12, 128);
    h->value_dim = opt_u32(c, "linear_value_head_dim", 1 << 12, 128);
    h->n_keys = opt_u32(c, "linear_num_key_heads", 1 << 12, 16);
    h->n_values = opt_u32(c, "linear_num_value_heads", 1 << 12, 32);
    if (h->n_values % h->n_keys)
        FAIL(c, FLETCH_E_FORMAT,
             "config.json: linear_num_key_heads does not divide linear_num_value_heads");
    put_u32(c, "ssm.conv_kernel", opt_u32(c, "linear_conv_kernel_dim", 16, 4));
    put_u32(c, "ssm.state_size", h->key_dim);
    put_u32(c, "ssm.group_count", h->n_keys);
    put_u32(c, "ssm.time_step_rank", h->n_values);
    put_u32(c, "ssm.inner_size", h->value_dim * h->n_values);
    put_recurrent_layers(c);
    if (h->arch != HF_QWEN3_NEXT) put_sections(c);
    if (h->arch == HF_QWEN35) return;
    if (json_array_size(get(c, c->root, "mlp_only_layers")) ||
        opt_u32(c, "decoder_sparse_step", UINT32_MAX, 1) != 1)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: dense layers between the expert layers (mlp_only_layers, "
             "decoder_sparse_step) are not supported");
    u32 n = need_u32(c, "num_experts", 1024);
    put_experts(c, n, opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "shared_expert_intermediate_size", 1 << 20));
}

static void read_mixtral(struct cfg *c)
{
    u32 n = need_u32(c, "num_local_experts", 1024);
    read_dense(c);
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n));
}

/* Which layers rotate, where a list says it: all but every fourth, as in GGUF. */
static void read_smollm3(struct cfg *c)
{
    const json_t *rotate = get(c, c->root, "no_rope_layers"); /* 1: it rotates */
    u32 every = opt_u32(c, "no_rope_layer_interval", 512, 4);
    read_dense(c);
    bool fourth = rotate ? json_array_size(rotate) >= c->h->n_layers : every == 4;
    for (u32 l = 0; rotate && l < c->h->n_layers; l++)
        fourth &= json_integer_value(json_array_get(rotate, l)) == ((l + 1) % 4 != 0);
    if (!fourth)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: no_rope_layers is supported only for every fourth layer");
}

static void read_minimax_m2(struct cfg *c)
{
    u32 n = need_u32(c, "num_local_experts", 1024);
    only_str(c, "scoring_func", "sigmoid");
    only_str(c, "qk_norm_type", "per_layer");
    only_bool(c, "use_qk_norm", true);
    only_bool(c, "use_routing_bias", true);
    read_dense(c);
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "intermediate_size", 1 << 24));
    put_u32(c, "expert_gating_func", 2);
}

static void read_granite(struct cfg *c)
{
    static const char *const names[4][2] = {{"embedding_multiplier", "embedding_scale"},
                                            {"residual_multiplier", "residual_scale"},
                                            {"attention_multiplier", "attention.scale"},
                                            {"logits_scaling", "logit_scale"}};
    read_dense(c);
    for (u32 i = 0; i < 4; i++) {
        double scale = opt_num(c, c->root, names[i][0], 1);
        if (!(scale > 0))
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be greater than 0", names[i][0]);
        put_f32(c, names[i][1], scale);
    }
}

/* A number that may be a list with an entry for each layer, all alike. */
static u32 one_for_all(struct cfg *c, const char *key, u32 hi)
{
    const json_t *v = get(c, c->root, key), *e;
    size_t i;
    if (!json_is_array(v)) return need_u32(c, key, hi);
    json_int_t n = json_integer_value(json_array_get(v, 0));
    json_array_foreach((json_t *)(uintptr_t)v, i, e)
    {
        if (!json_is_integer(e) || json_integer_value(e) != n)
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: %s differs between layers, which is not supported", key);
    }
    if (n < 1 || n > (json_int_t)hi)
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be an integer from 1 to %u", key, hi);
    return c->rc ? 1 : (u32)n;
}

static void put_counts(struct cfg *c, u32 n, u32 used, u32 n_ff, u32 n_shared)
{
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", used);
    put_u32(c, "expert_feed_forward_length", n_ff);
    put_u32(c, "expert_shared_count", n_shared);
    if (n_shared) put_u32(c, "expert_shared_feed_forward_length", n_ff * n_shared);
}

static void read_ernie_moe(struct cfg *c)
{
    u32 n = need_u32(c, "moe_num_experts", 1024);
    read_dense(c);
    u32 n_layers = c->h->n_layers, last = n_layers ? n_layers - 1 : 0;
    const json_t *end = get(c, c->root, "moe_layer_end_index");
    u32 interval = opt_u32(c, "moe_layer_interval", 1024, 1);
    if (interval != 1 || (end && json_integer_value(end) != -1 && json_integer_value(end) != last))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: dense layers between or after the expert layers (moe_layer_interval, "
             "moe_layer_end_index) are not supported");
    put_u32(c, "interleave_moe_layer_step", 1);
    put_u32(c, "leading_dense_block_count", int_in(c, "moe_layer_start_index", 0, n_layers, 1));
    put_counts(c, n, need_u32(c, "moe_k", n), need_u32(c, "moe_intermediate_size", 1 << 20),
               int_in(c, "moe_num_shared_experts", 0, 64, 2));
}

static void read_hunyuan_moe(struct cfg *c)
{
    u32 n = one_for_all(c, "num_experts", 1024);
    u32 n_ff = need_u32(c, "intermediate_size", 1 << 20);
    read_dense(c);
    bool said = get(c, c->root, "moe_intermediate_size") != NULL;
    bool shared = get(c, c->root, "num_shared_expert") != NULL;
    if ((said && one_for_all(c, "moe_intermediate_size", 1 << 20) != n_ff) ||
        (shared && one_for_all(c, "num_shared_expert", 64) != 1))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: only one shared expert, as wide as a routed expert, is supported");
    put_counts(c, n, one_for_all(c, "moe_topk", n), n_ff, 1);
}

/* Dense blocks come first: either a count or a list that must begin with them. */
static u32 leading_dense(struct cfg *c, u32 absent)
{
    const json_t *types = get(c, c->root, "mlp_layer_types");
    u32 n = int_in(c, "first_k_dense_replace", 0, c->h->n_layers, absent), i = 0;
    if (!types) return n;
    for (n = 0; i < c->h->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool dense = type && strcmp(type, "dense") == 0;
        if (dense && n == i)
            n++;
        else if (dense || !type || strcmp(type, "sparse") != 0)
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: mlp_layer_types must list dense layers first, then sparse ones");
    }
    return n;
}

static u32 count_mtp(struct cfg *c)
{
    char prefix[64];
    u32 n = int_in(c, "num_nextn_predict_layers", 0, 16, 0);
    snprintf(prefix, sizeof prefix, "model.layers.%u.", c->h->n_layers);
    for (u32 i = 0; i < c->h->n_tensors; i++)
        if (str_starts(c->h->names[i], prefix)) return n;
    return 0;
}

/* What DeepSeek V3's routing has and others took over. */
static void put_sigmoid_experts(struct cfg *c, double scale)
{
    put_u32(c, "leading_dense_block_count", leading_dense(c, c->h->arch != HF_SOLAR));
    put_experts(c, need_u32(c, "n_routed_experts", 1024), opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_shared_count", need_u32(c, "n_shared_experts", 1024));
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", scale));
    put_u32(c, "expert_gating_func", 2);
}

static void read_glm4_moe(struct cfg *c)
{
    struct hf *h = c->h;
    h->n_layers = need_u32(c, "num_hidden_layers", 512);
    h->n_mtp = count_mtp(c);
    only_str(c, "topk_method", "noaux_tc");
    only_str(c, "scoring_func", "sigmoid");
    read_dense(c);
    if (h->n_mtp) put_u32(c, "nextn_predict_layers", h->n_mtp);
    put_sigmoid_experts(c, 1);
}

/* Latent attention, and what goes before the experts. */
static void put_mla(struct cfg *c)
{
    struct hf *h = c->h;
    u32 n_ctx = need_u32(c, "max_position_embeddings", UINT32_MAX);
    u32 q_rank, kv_rank, n_rot;
    put_common(c, n_ctx);
    h->n_heads = need_u32(c, "num_attention_heads", 1 << 16);
    h->n_nope = need_u32(c, "qk_nope_head_dim", 1 << 16);
    h->n_value = need_u32(c, "v_head_dim", 1 << 16);
    n_rot = need_u32(c, "qk_rope_head_dim", 1 << 16);
    q_rank = int_in(c, "q_lora_rank", 0, 1 << 20, 0); /* null or 0: one matrix makes the query */
    kv_rank = need_u32(c, "kv_lora_rank", 1 << 20);
    only_str(c, "hidden_act", "silu");
    only_bool(c, "rope_interleave", true);
    only_bool(c, "attention_bias", false);
    h->n_mtp = count_mtp(c);
    put_u32(c, "block_count", h->n_layers + h->n_mtp);
    if (h->n_mtp) put_u32(c, "nextn_predict_layers", h->n_mtp);
    put_u32(c, "feed_forward_length", need_u32(c, "intermediate_size", 1 << 24));
    put_u32(c, "attention.head_count", h->n_heads);
    put_u32(c, "attention.head_count_kv", 1);
    if (q_rank) put_u32(c, "attention.q_lora_rank", q_rank);
    put_u32(c, "attention.kv_lora_rank", kv_rank);
    put_u32(c, "attention.key_length", kv_rank + n_rot);
    put_u32(c, "attention.value_length", kv_rank);
    put_u32(c, "attention.key_length_mla", h->n_nope + n_rot);
    put_u32(c, "attention.value_length_mla", h->n_value);
    put_f32(c, "attention.layer_norm_rms_epsilon", need_num(c, c->root, "rms_norm_eps"));
    /* Transformers builds q_a_norm and kv_a_norm with its class default, not rms_norm_eps. */
    if (!c->rc) c->rc = source_add_f32(c->s, "fletch.mla_norm_epsilon", 1e-6f, c->err);
    rope(c, n_rot, n_ctx);
}

static void read_glm4_lite(struct cfg *c)
{
    only_str(c, "topk_method", "noaux_tc");
    only_str(c, "scoring_func", "sigmoid");
    put_mla(c);
    put_sigmoid_experts(c, 1.8);
}

/* Kimi K2 too. Its class has defaults of its own for what all published models say. */
static void read_deepseek3(struct cfg *c)
{
    static const char *const said[] = {"n_group", "topk_group", "first_k_dense_replace",
                                       "routed_scaling_factor"};
    for (size_t i = 0; i < ARRAY_LEN(said); i++) (void)need_num(c, c->root, said[i]);
    read_glm4_lite(c);
}

static void read_deepseek2(struct cfg *c)
{
    only_str(c, "topk_method", "greedy");
    only_str(c, "scoring_func", "softmax");
    only_bool(c, "norm_topk_prob", false);
    put_mla(c);
    put_u32(c, "leading_dense_block_count", leading_dense(c, 0));
    put_experts(c, need_u32(c, "n_routed_experts", 1024), false);
    put_u32(c, "expert_shared_count", need_u32(c, "n_shared_experts", 64));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 1));
    put_u32(c, "expert_gating_func", 1);
}

/* The low ranks are read off the tensors: configurations may leave them out. */
static void put_rank(struct cfg *c, const char *suffix, const char *name)
{
    const struct st_tensor *t = hf_find(c->h, name);
    if (!t || t->n_dims != 2 || t->shape[0] > 1 << 20)
        FAIL(c, FLETCH_E_FORMAT, "tensor %s is missing or not a matrix", QUOTE(str_of(name)));
    else
        put_u32(c, suffix, (u32)t->shape[0]);
}

static void read_rwkv7(struct cfg *c)
{
    u32 dim = put_common(c, 1 << 20); /* what converters write for "no limit" */
    bool by_size = !get(c, c->root, "head_dim") && get(c, c->root, "head_size");
    u32 n_heads = opt_u32(c, "num_heads", 1 << 16, MAX(dim / 64, 1u));
    u32 n_head = opt_u32(c, by_size ? "head_size" : "head_dim", 1 << 16, MAX(dim / n_heads, 1u));
    bool old_eps = get(c, c->root, "layer_norm_epsilon") != NULL;
    double eps = opt_num(c, c->root, old_eps ? "layer_norm_epsilon" : "norm_eps", 1e-5);
    double ratio = opt_num(c, c->root, "hidden_ratio", 4);
    only_str(c, "hidden_act", "sqrelu");
    only_bool(c, "norm_first", true);
    if (get(c, c->root, "attn"))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: attention layers in RWKV-7 are not supported");
    if (!(ratio > 0 && ratio <= 64))
        FAIL(c, FLETCH_E_FORMAT, "config.json: hidden_ratio must be between 0 and 64");
    u32 n_ff = c->rc ? 1 : ((u32)(dim * ratio) + 31) / 32 * 32;
    put_u32(c, "block_count", c->h->n_layers);
    put_u32(c, "feed_forward_length", opt_u32(c, "intermediate_size", 1 << 24, n_ff));
    put_u32(c, "attention.head_count", 0);
    put_u32(c, "wkv.head_size", n_head);
    put_f32(c, "attention.layer_norm_epsilon", eps);
    put_rank(c, "attention.decay_lora_rank", "model.layers.0.attn.w_lora.lora.0.weight");
    put_rank(c, "attention.iclr_lora_rank", "model.layers.0.attn.a_lora.lora.0.weight");
    /* Block 0 has no value residual; in a model of one block any rank is as good. */
    put_rank(c, "attention.value_residual_mix_lora_rank",
             c->h->n_layers > 1 ? "model.layers.1.attn.v_lora.lora.0.weight"
                                : "model.layers.0.attn.a_lora.lora.0.weight");
    put_rank(c, "attention.gate_lora_rank", "model.layers.0.attn.g_lora.lora.0.weight");
}

/* A classifier's head makes a model a reranker, whose score is one of its labels. */
static void put_classifier(struct cfg *c)
{
    enum { RANK = 4, MAX_LABELS = 64 };
    struct str labels[MAX_LABELS];
    const json_t *names = get(c, c->outer, "id2label");
    size_t n = json_object_size(names);
    if (!hf_find(c->h, "score.weight")) return;
    put_u32(c, "pooling_type", RANK);
    if (n > MAX_LABELS) n = 0;
    for (size_t i = 0; i < n; i++) {
        char key[8];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *name = json_object_get(names, key);
        if (!json_is_string(name)) return;
        labels[i] = (struct str){json_string_value(name), json_string_length(name)};
    }
    if (n && !c->rc)
        c->rc =
            source_add_strs(c->s, key_of(c, "classifier.output_labels").text, n, labels, c->err);
}

static const struct {
    const char *hf, *gguf;
    enum hf_arch arch;
    void (*read)(struct cfg *);
} archs[] = {
    {"LlamaForCausalLM", "llama", HF_LLAMA, read_dense},
    {"MistralForCausalLM", "llama", HF_LLAMA, read_dense},
    {"Qwen2ForCausalLM", "qwen2", HF_QWEN2, read_dense},
    {"Qwen3ForCausalLM", "qwen3", HF_QWEN3, read_dense},
    {"Qwen3MoeForCausalLM", "qwen3moe", HF_QWEN3_MOE, read_qwen3_moe},
    {"MixtralForCausalLM", "llama", HF_MIXTRAL, read_mixtral},
    {"Glm4MoeForCausalLM", "glm4moe", HF_GLM4_MOE, read_glm4_moe},
    {"SolarOpenForCausalLM", "glm4moe", HF_SOLAR, read_glm4_moe},
    {"Glm4MoeLiteForCausalLM", "deepseek2", HF_GLM4_LITE, read_glm4_lite},
    {"DeepseekV3ForCausalLM", "deepseek2", HF_DEEPSEEK, read_deepseek3},
    {"DeepseekV2ForCausalLM", "deepseek2", HF_DEEPSEEK, read_deepseek2},
    {"Ernie4_5ForCausalLM", "ernie4_5", HF_ERNIE, read_dense},
    {"Ernie4_5_ForCausalLM", "ernie4_5", HF_ERNIE, read_dense},
    {"Ernie4_5_MoeForCausalLM", "ernie4_5-moe", HF_ERNIE_MOE, read_ernie_moe},
    {"GraniteForCausalLM", "granite", HF_GRANITE, read_granite},
    {"HunYuanDenseV1ForCausalLM", "hunyuan-dense", HF_HUNYUAN, read_dense},
    {"HunYuanMoEV1ForCausalLM", "hunyuan-moe", HF_HUNYUAN_MOE, read_hunyuan_moe},
    {"SeedOssForCausalLM", "seed_oss", HF_SEED_OSS, read_dense},
    {"SmolLM3ForCausalLM", "smollm3", HF_SMOLLM3, read_smollm3},
    {"Phi3ForCausalLM", "phi3", HF_PHI3, read_dense},
    {"MiniMaxM2ForCausalLM", "minimax-m2", HF_MINIMAX_M2, read_minimax_m2},
    {"Qwen3NextForCausalLM", "qwen3next", HF_QWEN3_NEXT, read_delta},
    {"Qwen3_5ForCausalLM", "qwen35", HF_QWEN35, read_delta},
    {"Qwen3_5MoeForCausalLM", "qwen35moe", HF_QWEN35_MOE, read_delta},
    {"RWKV7ForCausalLM", "rwkv7", HF_RWKV7, read_rwkv7},
    /* before their text model had a configuration of its own */
    {"Qwen2VLForConditionalGeneration", "qwen2", HF_QWEN2, read_dense},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2", HF_QWEN2, read_dense},
};

/* Text models by the type that text_config says. */
static const char *const text_types[][2] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen2_vl_text", "Qwen2ForCausalLM"},
    {"qwen2_5_vl_text", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3_vl_text", "Qwen3ForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"qwen3_vl_moe_text", "Qwen3MoeForCausalLM"},
    {"qwen3_next", "Qwen3NextForCausalLM"},
    {"qwen3_5_text", "Qwen3_5ForCausalLM"},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
};

/* Classes around the same model with another head, or without one. */
static bool is_class(struct str name, const char *causal)
{
    static const char *const suffixes[] = {"ForCausalLM", "ForSequenceClassification", "Model"};
    size_t n = strlen(causal) - strlen(suffixes[0]);
    if (str_is(name, causal)) return true;
    if (!str_ends(str_of(causal), suffixes[0]) || name.n < n || memcmp(name.p, causal, n) != 0)
        return false;
    for (size_t i = 1; i < ARRAY_LEN(suffixes); i++)
        if (str_is((struct str){name.p + n, name.n - n}, suffixes[i])) return true;
    return false;
}

/* The class of the text model that config.json wraps. */
static int find_text(struct cfg *c, struct str *name)
{
    struct str outer = *name, type = get_str(c, c->root, "model_type");
    for (size_t i = 0; type.p && i < ARRAY_LEN(text_types); i++) {
        if (!str_is(type, text_types[i][0])) continue;
        *name = str_of(text_types[i][1]);
        return 0;
    }
    return err_set(c->err, FLETCH_E_UNSUPPORTED,
                   "config.json: the text model of %s has type %s, which is not supported",
                   QUOTE(outer), type.p ? QUOTE(type) : "(unnamed)");
}

static int refuse_quantised(const struct cfg *c)
{
    const json_t *q = get(c, c->outer, "quantization_config");
    if (!q) q = get(c, c->outer, "compression_config");
    if (!q) return 0;
    struct str method = get_str(c, q, "quant_method");
    return err_set(c->err, FLETCH_E_UNSUPPORTED,
                   "config.json: weights quantized with %s are not supported; use the original "
                   "checkpoint or a GGUF file",
                   method.p ? QUOTE(method) : "an unnamed method");
}

static int read_config(struct cfg *c)
{
    const json_t *first = json_array_get(get(c, c->outer, "architectures"), 0);
    struct str name = {json_string_value(first), json_string_length(first)};
    if (!name.p) return err_set(c->err, FLETCH_E_FORMAT, "config.json: missing architectures");
    int rc = refuse_quantised(c);
    if (!rc && c->root != c->outer) rc = find_text(c, &name);
    if (rc) return rc;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        if (!is_class(name, archs[i].hf)) continue;
        c->arch = archs[i].gguf;
        c->h->arch = archs[i].arch;
        c->h->mistral = is_class(name, "MistralForCausalLM");
        c->h->tied = opt_bool(c, "tie_word_embeddings", false);
        if (json_is_boolean(json_object_get(c->outer, "tie_word_embeddings")))
            c->h->tied = json_is_true(json_object_get(c->outer, "tie_word_embeddings"));
        if (!c->rc) c->rc = source_add_str(c->s, "general.architecture", str_of(c->arch), c->err);
        if (!c->rc) c->rc = source_add_str(c->s, "general.type", STR("model"), c->err);
        if (!c->rc) archs[i].read(c);
        if (!c->rc) put_classifier(c);
        if (!c->rc) c->rc = hf_check_fields(c->s, c->h, c->root, c->asked, c->err);
        if (!c->rc && c->root != c->outer) c->rc = hf_check_outer(c->s, c->h, c->outer);
        return c->rc;
    }
    return err_set(c->err, FLETCH_E_UNSUPPORTED, "config.json: architecture %s is not supported",
                   QUOTE(name));
}

int hf_read_config(struct source *s, struct hf *h, const json_t *config, struct err *err)
{
    struct strmap asked[2] = {{0}};
    const json_t *text = json_object_get(config, "text_config");
    struct cfg c = {.root = json_is_object(text) ? text : config,
                    .outer = config,
                    .s = s,
                    .h = h,
                    .asked = asked,
                    .err = err};
    int rc = read_config(&c);
    strmap_free(&asked[0]);
    strmap_free(&asked[1]);
    return rc;
}

int hf_read_sampling(struct source *s, const json_t *config, struct err *err)
{
    enum { KIND_real, KIND_count };
    static const struct {
        const char *name, *alias, *key, *metadata;
        int kind;
    } floats[] = {
#define SETTING_HF(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {#name, alias, "general.sampling." metadata, metadata, KIND_##kind},
        FLETCH_SAMPLING_SETTINGS(SETTING_HF)
#undef SETTING_HF
    };
    bool greedy = json_is_false(json_object_get(config, "do_sample"));
    int rc = greedy ? source_add_f32(s, "general.sampling.temp", 0, err) : 0;
    for (size_t i = 0; i < ARRAY_LEN(floats) && rc == 0; i++) {
        bool is_temp = strcmp(floats[i].metadata, "temp") == 0;
        if (!*floats[i].metadata || floats[i].kind != KIND_real || (greedy && is_temp)) continue;
        const char *name = *floats[i].alias ? floats[i].alias : floats[i].name;
        const json_t *v = json_object_get(config, name);
        double d = json_number_value(v);
        if (!v || json_is_null(v)) continue;
        if (!json_is_number(v) || !(d >= 0 && d <= (double)FLT_MAX))
            return err_set(err, FLETCH_E_FORMAT, "generation_config.json: %s is not a number",
                           name);
        rc = source_add_f32(s, floats[i].key, (float)d, err);
    }
    const json_t *k = json_object_get(config, "top_k");
    if (rc || !k || json_is_null(k)) return rc;
    double top_k = json_number_value(k);
    if (!json_is_number(k) || !(top_k >= -1 && top_k <= INT32_MAX) || top_k != floor(top_k))
        return err_set(err, FLETCH_E_FORMAT,
                       "generation_config.json: top_k is not an integer of at least 0");
    u8 *le = arena_alloc(&s->arena, 4, 1);
    if (!le) return err_nomem(err, "metadata");
    for (int i = 0; i < 4; i++) le[i] = (u8)((u32)(i32)top_k >> 8 * i);
    struct kv kv = {STR("general.sampling.top_k"), KV_I32, KV_I32, 1, le, 4};
    return source_add_kv(s, &kv, err);
}
