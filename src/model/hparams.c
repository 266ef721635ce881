#include "model/hparams.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"

enum { WIDEST = 1 << 26 }; /* no activation is wider; keeps every product within u32 */

struct reader {
    const struct source *s;
    const struct hparams *hp;
    struct err *err;
    int rc;       /* sticky */
    u32 n_blocks; /* entries that a per-layer array must have */
    u32 traits;   /* of the architecture */
};

enum need { OPTIONAL, REQUIRED };

static void missing(struct reader *r, const char *key)
{
    r->rc = err_set(r->err, FLETCH_E_FORMAT, "metadata key '%s' is missing", key);
}

/* "{arch}.suffix" */
static const char *full_key(const struct reader *r, const char *suffix, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", r->hp->arch, suffix);
    return buf;
}

/* Entry i of a number or an array, within bounds; false after an error. */
static bool get_entry(struct reader *r, const struct kv *kv, const char *key, u64 i, u32 lo, u32 hi,
                      u32 *out)
{
    i64 v;
    if (!kv_int(kv, i, &v)) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "metadata key '%s' is not an integer", key);
    } else if (v < (i64)lo || v > (i64)hi) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "metadata key '%s' is %lld, outside %u..%u", key,
                        (long long)v, lo, hi);
    } else {
        *out = (u32)v;
    }
    return !r->rc;
}

/* A number, or an array with an entry for each block; out: the largest of them. */
static void get_blocks(struct reader *r, const char *suffix, enum need need, u32 lo, u32 hi,
                       u32 *out, u32 blocks[HPARAMS_MAX_BLOCKS])
{
    char key[160];
    u32 most = 0;
    if (r->rc) return;
    const struct kv *kv = source_kv(r->s, full_key(r, suffix, key, sizeof key));
    if (!kv && need == REQUIRED) missing(r, key);
    if (kv && kv->type == KV_ARRAY && kv->n < MAX(r->n_blocks, 1)) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT,
                        "metadata key '%s' has %llu entries, fewer than there are blocks", key,
                        (unsigned long long)kv->n);
        return;
    }
    for (u32 i = 0; kv && !r->rc && i < r->n_blocks; i++) {
        if (!get_entry(r, kv, key, kv->type == KV_ARRAY ? i : 0, lo, hi, &blocks[i])) return;
        most = MAX(most, blocks[i]);
    }
    if (kv && !r->rc) *out = most;
    for (u32 i = 0; !kv && i < r->n_blocks; i++) blocks[i] = *out;
}

/* The same where the entries of an array must be equal. */
static void get_u32(struct reader *r, const char *suffix, enum need need, u32 lo, u32 hi, u32 *out)
{
    char key[160];
    u32 v = 0, first = 0;
    if (r->rc) return;
    const struct kv *kv = source_kv(r->s, full_key(r, suffix, key, sizeof key));
    if (!kv) {
        if (need == REQUIRED) missing(r, key);
        return;
    }
    if (kv->type == KV_ARRAY && kv->n < MAX(r->n_blocks, 1)) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT,
                        "metadata key '%s' has %llu entries, fewer than there are blocks", key,
                        (unsigned long long)kv->n);
        return;
    }
    for (u64 i = 0; i < kv->n; i++) {
        if (!get_entry(r, kv, key, i, lo, hi, &v)) return;
        if (i && v != first) {
            r->rc =
                err_set(r->err, FLETCH_E_UNSUPPORTED,
                        "metadata key '%s' differs between layers, which is not supported", key);
            return;
        }
        first = v;
    }
    *out = v;
}

static void get_f32(struct reader *r, const char *suffix, enum need need, float lo, float *out)
{
    char key[160];
    if (r->rc) return;
    float v = 0;
    int rc = source_get_f32(r->s, full_key(r, suffix, key, sizeof key), &v, r->err);
    if (rc < 0) {
        r->rc = rc;
    } else if (rc == SOURCE_ABSENT) {
        if (need == REQUIRED) missing(r, key);
    } else if (!isfinite(v) || v < lo) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "metadata key '%s' has the invalid value %g", key,
                        (double)v);
    } else {
        *out = v;
    }
}

/* What norms add to a mean square: published ones lie between 1e-12 and 1e-3. */
static void check_eps(struct reader *r, const char *key, float eps)
{
    if (!r->rc && !(eps > 0 && eps < 1))
        r->rc = err_set(r->err, FLETCH_E_FORMAT,
                        "metadata key '%s' is %g, but an epsilon must be between 0 and 1", key,
                        (double)eps);
}

/* A key that was read although this architecture can't honour any other value than 0 or `only`. */
static void refuse_unless(struct reader *r, const char *suffix, double value, double only)
{
    char key[160];
    if (r->rc || value == 0 || value == only) return;
    const struct kv *kv = source_kv(r->s, full_key(r, suffix, key, sizeof key));
    if (kv) source_refuse_kv(r->s, kv);
}

static void fail_if(struct reader *r, bool bad, const char *suffix, const char *what)
{
    char key[160];
    if (!r->rc && bad)
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "metadata key '%s' %s",
                        full_key(r, suffix, key, sizeof key), what);
}

/* What other engines name by the first block must be given where blocks differ. */
static bool heads_differ(const struct reader *r, const struct hparams *hp)
{
    for (u32 i = 1; i < r->n_blocks; i++)
        if (hp->block_heads[i] != hp->block_heads[0]) return true;
    return false;
}

static void read_heads(struct reader *r, struct hparams *hp)
{
    bool each = !(r->traits & (ARCH_MLA | ARCH_STATE));
    if (!each) get_u32(r, "attention.head_count", REQUIRED, 1, 4096, &hp->n_heads);
    if (each)
        get_blocks(r, "attention.head_count", REQUIRED, 1, 4096, &hp->n_heads, hp->block_heads);
    hp->n_kv_heads = hp->n_heads;
    if (r->traits & ARCH_KDA)
        get_blocks(r, "attention.head_count_kv", REQUIRED, 0, 1, &hp->n_kv_heads,
                   hp->block_kv_heads);
    else if (!each)
        get_u32(r, "attention.head_count_kv", OPTIONAL, 1, 4096, &hp->n_kv_heads);
    fail_if(r, hp->n_kv_heads == 0, "attention.head_count_kv", "is 0 in every block");
    if (!each || r->rc) return;
    memcpy(hp->block_kv_heads, hp->block_heads, sizeof hp->block_heads);
    u32 least = r->traits & (ARCH_SHORT_CONV | ARCH_MAMBA) ? 0 : 1; /* 0: no attention */
    if (source_kv(r->s, full_key(r, "attention.head_count_kv", (char[160]){0}, 160)))
        get_blocks(r, "attention.head_count_kv", REQUIRED, least, 4096, &hp->n_kv_heads,
                   hp->block_kv_heads);
    for (u32 i = 0; !r->rc && i < r->n_blocks; i++)
        fail_if(r, hp->block_kv_heads[i] && hp->block_heads[i] % hp->block_kv_heads[i] != 0,
                "attention.head_count_kv", "does not divide head_count");
}

static void read_attention(struct reader *r, struct hparams *hp)
{
    read_heads(r, hp);
    if (r->rc) return;
    fail_if(r, (r->traits & ARCH_MLA) && hp->n_heads % hp->n_kv_heads != 0,
            "attention.head_count_kv", "does not divide head_count");
    hp->head_k = hp->head_v = hp->d_model / hp->n_heads;
    bool differ = heads_differ(r, hp);
    get_u32(r, "attention.key_length", differ ? REQUIRED : OPTIONAL, 1, 1 << 16, &hp->head_k);
    get_u32(r, "attention.value_length", differ ? REQUIRED : OPTIONAL, 1, 1 << 16, &hp->head_v);
    fail_if(r, hp->head_k == 0, "embedding_length", "is smaller than head_count");
    fail_if(r, hp->head_k % 2 != 0 && !(r->traits & ARCH_MLA), "attention.key_length",
            "is odd, so a head cannot be rotated in pairs");
    fail_if(r, (u64)hp->n_heads * MAX(hp->head_k, hp->head_v) > WIDEST, "attention.head_count",
            "times the width of a head is too large");
}

/* Without asking for it: one that nothing reads is still refused. */
static bool has_tensor(const struct reader *r, const char *name)
{
    u32 i;
    return strmap_get(&r->s->tensor_index, str_of(name), &i);
}

static void read_rope(struct reader *r, struct hparams *hp)
{
    char key[160];
    /* Phi-3's converter leaves the type out */
    bool two_tables =
        has_tensor(r, "rope_factors_short.weight") && has_tensor(r, "rope_factors_long.weight");
    struct str type = str_of(two_tables ? "longrope" : "linear");
    hp->n_rot = hp->head_k;
    hp->rope_base = 10000;
    hp->rope_factor = hp->rope_attn_factor = 1;
    hp->rope_ctx = hp->n_ctx;
    hp->yarn_fast = 32;
    hp->yarn_slow = 1;
    get_u32(r, "rope.dimension_count", OPTIONAL, 2, 1 << 16, &hp->n_rot);
    get_f32(r, "rope.freq_base", OPTIONAL, 1e-6f, &hp->rope_base);
    get_f32(r, "rope.scale_linear", OPTIONAL, 0, &hp->rope_factor);
    get_f32(r, "rope.scaling.factor", OPTIONAL, 0, &hp->rope_factor);
    get_f32(r, "rope.scaling.attn_factor", OPTIONAL, 0, &hp->rope_attn_factor);
    get_u32(r, "rope.scaling.original_context_length", OPTIONAL, 1, 1 << 30, &hp->rope_ctx);
    get_f32(r, "rope.scaling.yarn_beta_fast", OPTIONAL, 1e-6f, &hp->yarn_fast);
    get_f32(r, "rope.scaling.yarn_beta_slow", OPTIONAL, 1e-6f, &hp->yarn_slow);
    bool rounded = !(r->traits & ARCH_YARN_EXACT);
    int said = source_get_bool(r->s, "fletch.yarn_truncate", &rounded, r->err);
    if (said < 0) r->rc = said;
    hp->yarn_exact = !rounded;
    if (r->traits & (ARCH_MLA | ARCH_GROWS))
        get_f32(r, "rope.scaling.yarn_log_multiplier", OPTIONAL, 0, &hp->yarn_log_mul);
    if (r->rc) return;
    if (hp->rope_factor == 0) hp->rope_factor = 1;
    int rc = source_get_str(r->s, full_key(r, "rope.scaling.type", key, sizeof key), &type, r->err);
    if (rc < 0) {
        r->rc = rc;
    } else if (str_is(type, "none")) {
        hp->rope_scaling = SCALING_NONE;
    } else if (str_is(type, "linear")) {
        hp->rope_scaling = SCALING_LINEAR;
    } else if (str_is(type, "yarn")) {
        hp->rope_scaling = SCALING_YARN;
    } else if (str_is(type, "longrope") && !(r->traits & ARCH_MLA)) {
        hp->rope_scaling = SCALING_LONGROPE;
        refuse_unless(r, "rope.scaling.factor", (double)hp->rope_factor, 1);
    } else {
        r->rc = err_set(r->err, FLETCH_E_UNSUPPORTED,
                        "metadata key '%s' is %s, which is not supported", key, QUOTE(type));
    }
    /* only these scale attention */
    if (hp->rope_scaling != SCALING_YARN && hp->rope_scaling != SCALING_LONGROPE)
        refuse_unless(r, "rope.scaling.attn_factor", (double)hp->rope_attn_factor, 1);
    fail_if(r, hp->n_rot % 2 != 0 || hp->n_rot > hp->head_k, "rope.dimension_count",
            "is odd or larger than a head");
}

/* Blocks that attend to a window: as the file lists them, or all but every nth. */
static void read_pattern(struct reader *r, u32 every, bool slides[HPARAMS_MAX_BLOCKS])
{
    char key[160];
    full_key(r, "attention.sliding_window_pattern", key, sizeof key);
    const struct kv *kv = source_kv(r->s, key);
    bool list = kv && kv->type == KV_ARRAY;
    if (list && kv->n < r->n_blocks) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT,
                        "metadata key '%s' has %llu entries, fewer than there are blocks", key,
                        (unsigned long long)kv->n);
        return;
    }
    if (kv && !list && !get_entry(r, kv, key, 0, 0, HPARAMS_MAX_BLOCKS, &every)) return;
    for (u32 i = 0; i < r->n_blocks; i++) {
        u32 one = !every || (i + !(r->traits & ARCH_FULL_FIRST)) % every != 0;
        if (list && kv->elem == KV_BOOL)
            one = kv->data[i] != 0;
        else if (list && !get_entry(r, kv, key, i, 0, 1, &one))
            return;
        slides[i] = one != 0;
    }
}

/* Of queries, with their position. */
static void read_growth(struct reader *r, struct hparams *hp)
{
    hp->rope_grow_every = hp->rope_ctx;
    get_f32(r, "attention.temperature_scale", OPTIONAL, 0, &hp->rope_grow);
    get_u32(r, "attention.temperature_length", OPTIONAL, 0, 1 << 30, &hp->rope_grow_every);
    if (r->rc || !(hp->rope_grow > 0)) return;
    hp->query_rope = ROPE_GROWING;
    fail_if(r, hp->rope_grow_every == 0, "attention.temperature_length", "is 0");
}

/* A list of limits by block, where the file has one. */
static void get_limits(struct reader *r, const char *suffix, float limits[HPARAMS_MAX_BLOCKS])
{
    char key[160];
    double x = 0;
    const struct kv *kv = source_kv(r->s, full_key(r, suffix, key, sizeof key));
    if (r->rc || !kv) return;
    fail_if(r, kv->type != KV_ARRAY || kv->n < r->n_blocks, suffix, "has not one entry per block");
    for (u32 i = 0; !r->rc && i < r->n_blocks; i++) {
        bool ok = kv_float(kv, i, &x) && x >= 0 && x <= (double)FLT_MAX;
        fail_if(r, !ok, suffix, "contains a value that is not a number of at least 0");
        if (!r->rc) limits[i] = (float)x;
    }
}

/* Llama 4. What no published file says are the numbers of the class. */
static void read_llama4(struct reader *r, struct hparams *hp)
{
    bool normed = hp->n_experts != 128; /* Maverick's are not */
    hp->expert_every = 1;
    get_u32(r, "interleave_moe_layer_step", OPTIONAL, 1, HPARAMS_MAX_BLOCKS, &hp->expert_every);
    if (r->rc) return;
    int rc = source_get_bool(r->s, "fletch.qk_norm", &normed, r->err);
    if (rc < 0) r->rc = rc;
    hp->qk_norm = normed;
    if (!hp->window) return;
    hp->rope_grow = 0.1f;
    hp->rope_grow_every = 8192;
    hp->rope_grow_from = 1;
    get_f32(r, "attention.temperature_scale", OPTIONAL, 0, &hp->rope_grow);
    get_u32(r, "attention.temperature_length", OPTIONAL, 1, 1 << 30, &hp->rope_grow_every);
    hp->still_grows = hp->rope_grow > 0;
    hp->n_still = hp->head_k;
}

/* Heads of layers with a window. */
static void read_local_heads(struct reader *r, struct hparams *hp, u32 *k, u32 *v)
{
    get_u32(r, "attention.key_length_swa", OPTIONAL, 2, 1 << 16, k);
    get_u32(r, "attention.value_length_swa", OPTIONAL, 1, 1 << 16, v);
    hp->n_rot_local = MIN(hp->n_rot_local, *k);
    get_u32(r, "rope.dimension_count_swa", OPTIONAL, 2, 1 << 16, &hp->n_rot_local);
    fail_if(r, *k % 2 != 0, "attention.key_length_swa",
            "is odd, so a head cannot be rotated in pairs");
    fail_if(r, hp->n_rot_local % 2 != 0 || hp->n_rot_local > *k, "rope.dimension_count_swa",
            "is odd or larger than a head");
    fail_if(r, (u64)hp->n_heads * MAX(*k, *v) > WIDEST, "attention.head_count",
            "times the width of a head is too large");
}

/* The last blocks read the cache of the last one before them that is of their kind. */
static void read_lenders(struct reader *r, struct hparams *hp)
{
    u32 shared = 0, lender[2] = {UINT32_MAX, UINT32_MAX};
    get_u32(r, "attention.shared_kv_layers", OPTIONAL, 0, HPARAMS_MAX_BLOCKS, &shared);
    get_u32(r, "embedding_length_per_layer_input", OPTIONAL, 0, 1 << 16, &hp->d_per_layer);
    fail_if(r, shared >= r->n_blocks, "attention.shared_kv_layers",
            "leaves no layer with a cache of its own");
    fail_if(r, (u64)hp->d_per_layer * r->n_blocks > WIDEST, "embedding_length_per_layer_input",
            "times block_count is too large");
    for (u32 i = 0; !r->rc && i < r->n_blocks; i++) {
        bool slides = hp->block_window[i] != 0;
        if (i < r->n_blocks - shared) {
            lender[slides] = i;
            continue;
        }
        u32 from = lender[slides];
        fail_if(r, from == UINT32_MAX, "attention.shared_kv_layers",
                "leaves no layer of one kind with a cache of its own");
        if (r->rc) return;
        fail_if(r, hp->block_kv_heads[from] != hp->block_kv_heads[i], "attention.head_count_kv",
                "differs between layers that share a cache");
        hp->block_cache[i] = (u16)from;
    }
}

/* Windows, and which table each block rotates by. */
static void read_kinds(struct reader *r, struct hparams *hp)
{
    bool slides[HPARAMS_MAX_BLOCKS] = {false}, must = r->traits & ARCH_WINDOW;
    hp->chunked = strcmp(hp->arch, "llama4") == 0;
    if (hp->chunked) hp->window = 8192;
    get_u32(r, "attention.sliding_window", must ? REQUIRED : OPTIONAL, must ? 1 : 0, 1 << 30,
            &hp->window);
    if (r->rc) return;
    if (r->traits & ARCH_GROWS) read_growth(r, hp);
    if (r->traits & ARCH_MLA) {
        if (hp->window < hp->n_ctx) refuse_unless(r, "attention.sliding_window", hp->window, 0);
        return;
    }
    if (hp->window) read_pattern(r, arch_find(hp->arch)->full_every, slides);
    hp->rope_base_local = hp->rope_base;
    hp->n_rot_local = hp->n_rot;
    if (strcmp(hp->arch, "step35") == 0) { /* dimension_count is that of layers with a window */
        hp->n_rot /= 2;
        fail_if(r, hp->n_rot % 2 != 0, "rope.dimension_count", "is not a multiple of 4");
    }
    if (r->traits & ARCH_ROPE_1E4) hp->rope_base_local = 10000;
    bool local = hp->window && (r->traits & ARCH_LOCAL_ROPE);
    if (local) get_f32(r, "rope.freq_base_swa", OPTIONAL, 1e-6f, &hp->rope_base_local);
    u32 local_k = hp->head_k, local_v = hp->head_v;
    if (r->traits & ARCH_LOCAL_HEAD) read_local_heads(r, hp, &local_k, &local_v);
    for (u32 i = 0; i < r->n_blocks; i++) {
        hp->block_head_k[i] = slides[i] ? local_k : hp->head_k;
        hp->block_head_v[i] = slides[i] ? local_v : hp->head_v;
        hp->block_cache[i] = (u16)i;
        hp->block_window[i] = slides[i] ? hp->window : 0;
        if (slides[i])
            hp->block_rope[i] = local ? ROPE_LOCAL : ROPE_MAIN;
        else
            hp->block_rope[i] = hp->window && (r->traits & ARCH_PLAIN_FULL) ? ROPE_OFF : ROPE_MAIN;
    }
    if (r->traits & ARCH_LENDS) read_lenders(r, hp);
}

/* Softcaps and scales of the embedding, attention and the logits, where a family has its own. */
static void read_caps(struct reader *r, struct hparams *hp)
{
    enum need need = r->traits & ARCH_CAPPED ? REQUIRED : OPTIONAL;
    if (r->traits & (ARCH_CAPPED | ARCH_MAY_CAP)) {
        get_f32(r, "attn_logit_softcapping", need, 0, &hp->score_cap);
        get_f32(r, "final_logit_softcapping", need, 0, &hp->logit_cap);
    }
    if (r->traits & ARCH_ROOT_EMBED) hp->embedding_scale = sqrtf((float)hp->d_model);
    /* Gemma's largest models scale by the width of the stream over the heads, and no key says so */
    u32 n = arch_find(hp->arch)->wide_layers;
    if (n && hp->n_layers == n)
        hp->attention_scale = 1 / sqrtf((float)hp->d_model / (float)hp->n_heads);
    if (n) get_f32(r, "attention.scale", OPTIONAL, 0, &hp->attention_scale);
    if (r->traits & ARCH_VALUE_SCALE)
        get_f32(r, "attention.value_scale", OPTIONAL, 0, &hp->value_scale);
    if (!(r->traits & ARCH_TIMES_LOGITS)) return;
    float scale = 1;
    get_f32(r, "logit_scale", OPTIONAL, 1e-30f, &scale);
    hp->logit_scale = 1 / scale;
}

static bool has_experts(struct reader *r)
{
    u32 n = 0;
    if (r->traits & ARCH_MAY_EXPERTS) get_u32(r, "expert_count", OPTIONAL, 0, 1024, &n);
    return n > 0 || (r->traits & ARCH_EXPERTS);
}

static void read_experts(struct reader *r, struct hparams *hp)
{
    char key[160];
    get_u32(r, "expert_count", REQUIRED, 1, 1024, &hp->n_experts);
    get_u32(r, "expert_used_count", REQUIRED, 1, 1024, &hp->n_experts_used);
    if (r->rc) return;
    /* Mixtral's experts are as wide as its feed_forward_length; Qwen's are so together */
    hp->n_ff_expert = r->traits & ARCH_MAY_EXPERTS ? hp->n_ff : hp->n_ff / hp->n_experts_used;
    hp->n_expert_groups = hp->n_groups_used = 1;
    hp->expert_norm = !(r->traits & ARCH_SAYS_NORM);
    get_u32(r, "expert_feed_forward_length", OPTIONAL, 1, 1 << 20, &hp->n_ff_expert);
    get_u32(r, "expert_shared_count", OPTIONAL, 0, 64, &hp->n_shared_experts);
    enum need shared = r->traits & ARCH_MAY_EXPERTS ? OPTIONAL : REQUIRED;
    if (r->traits & ARCH_SHARED)
        get_u32(r, "expert_shared_feed_forward_length", shared, 1, 1 << 20, &hp->n_ff_shared);
    if (r->traits & ARCH_ONE_PART)
        get_u32(r, "moe_latent_size", OPTIONAL, 0, 1 << 20, &hp->n_latent);
    get_u32(r, "expert_group_count", OPTIONAL, 0, 1024, &hp->n_expert_groups);
    get_u32(r, "expert_group_used_count", OPTIONAL, 0, 1024, &hp->n_groups_used);
    get_u32(r, "leading_dense_block_count", OPTIONAL, 0, 512, &hp->n_dense_layers);
    get_u32(r, "expert_gating_func", OPTIONAL, 1, 4, &hp->expert_gating);
    get_f32(r, "expert_weights_scale", OPTIONAL, 0, &hp->expert_scale);
    if (r->rc) return;
    /* two converters' names of it */
    int rc = source_get_bool(r->s, full_key(r, "norm_top_k_prob", key, sizeof key),
                             &hp->expert_norm, r->err);
    if (rc >= 0)
        rc = source_get_bool(r->s, full_key(r, "expert_weights_norm", key, sizeof key),
                             &hp->expert_norm, r->err);
    if (rc < 0) r->rc = rc;
    if (hp->expert_scale == 0) hp->expert_scale = 1;
    hp->n_expert_groups = MAX(hp->n_expert_groups, 1);
    hp->n_groups_used = MAX(hp->n_groups_used, 1);
    fail_if(r, hp->n_ff_expert == 0, "expert_feed_forward_length", "is missing");
    fail_if(r, hp->n_experts_used > hp->n_experts, "expert_used_count",
            "is larger than expert_count");
    fail_if(r, hp->n_experts % hp->n_expert_groups != 0, "expert_group_count",
            "does not divide expert_count");
    fail_if(r, hp->n_expert_groups > 1 && hp->n_experts / hp->n_expert_groups < 2,
            "expert_group_count", "leaves fewer than two experts per group"); /* best two count */
    fail_if(r, hp->n_groups_used > hp->n_expert_groups, "expert_group_used_count",
            "is larger than expert_group_count");
    fail_if(r, hp->n_experts_used > hp->n_experts / hp->n_expert_groups * hp->n_groups_used,
            "expert_used_count", "is larger than the number of groups used");
    fail_if(r, (u64)hp->n_experts_used * MAX(hp->n_ff_expert, hp->d_model) > WIDEST,
            "expert_used_count", "times the width of an expert is too large");
    fail_if(r, hp->n_dense_layers > r->n_blocks, "leading_dense_block_count",
            "is larger than block_count");
    for (u32 i = 0; (r->traits & ARCH_COHERE_MOE) && !r->rc && i < hp->n_dense_layers; i++)
        hp->block_rope[i] = ROPE_MAIN;
    if (hp->expert_gating == 3) { /* softmax of the chosen alone: the same as normalising */
        hp->expert_gating = 1;
        hp->expert_norm = true;
    }
    if (r->traits & ARCH_SIGMOID) refuse_unless(r, "expert_gating_func", hp->expert_gating, 2);
    if (r->traits & ARCH_SIGMOID) return;
    if (r->traits & ARCH_GATED) { /* softmax or sigmoid */
        if (hp->expert_gating > 2) refuse_unless(r, "expert_gating_func", hp->expert_gating, 0);
        return;
    }
    /* softmax routing in every block, no shared experts */
    refuse_unless(r, "leading_dense_block_count", hp->n_dense_layers, 0);
    refuse_unless(r, "expert_shared_count", hp->n_shared_experts, 0);
    refuse_unless(r, "expert_gating_func", hp->expert_gating, 1);
    refuse_unless(r, "expert_group_count", hp->n_expert_groups, 1);
}

static void read_mla(struct reader *r, struct hparams *hp)
{
    get_u32(r, "attention.q_lora_rank", OPTIONAL, 0, 1 << 16, &hp->q_lora);
    get_u32(r, "attention.kv_lora_rank", REQUIRED, 1, 1 << 16, &hp->kv_lora);
    get_u32(r, "attention.key_length_mla", OPTIONAL, 1, 1 << 16, &hp->head_k_mla);
    get_u32(r, "attention.value_length_mla", OPTIONAL, 1, 1 << 16, &hp->head_v_mla);
    hp->eps_mla = hp->eps;
    if (r->rc) return;
    /* its converter leaves the width of a value out */
    if ((r->traits & ARCH_KDA) &&
        !source_kv(r->s, full_key(r, "attention.value_length", (char[160]){0}, 160)))
        hp->head_v = hp->kv_lora;
    int rc = source_get_f32(r->s, "fletch.mla_norm_epsilon", &hp->eps_mla, r->err);
    if (rc < 0) r->rc = rc;
    check_eps(r, "fletch.mla_norm_epsilon", hp->eps_mla);
    if (!hp->head_k_mla) return; /* legacy layout: refused by the architecture, by name */
    hp->n_still = hp->head_k_mla > hp->n_rot ? hp->head_k_mla - hp->n_rot : 0;
    fail_if(r, hp->query_rope == ROPE_GROWING && hp->n_still % 2 != 0, "attention.key_length_mla",
            "leaves an odd number of columns that do not rotate");
    fail_if(r, hp->head_k != hp->kv_lora + hp->n_rot, "attention.key_length",
            "is not kv_lora_rank + rope.dimension_count");
    fail_if(r, hp->head_v != hp->kv_lora, "attention.value_length", "is not kv_lora_rank");
    fail_if(r, hp->head_k_mla <= hp->n_rot, "attention.key_length_mla",
            "is not larger than rope.dimension_count");
    fail_if(r, (u64)hp->n_heads * MAX(hp->head_k_mla, hp->head_v_mla) > WIDEST,
            "attention.head_count", "times the width of a head is too large");
}

static void read_scales(struct reader *r, struct hparams *hp)
{
    get_f32(r, "embedding_scale", OPTIONAL, 0, &hp->embedding_scale);
    get_f32(r, "residual_scale", OPTIONAL, 0, &hp->residual_scale);
    get_f32(r, "attention.scale", OPTIONAL, 0, &hp->attention_scale);
    get_f32(r, "logit_scale", OPTIONAL, 0, &hp->logit_scale);
    if (r->rc) return;
    char key[160];
    bool rotates = true; /* Granite's converters say so with a key that means nothing elsewhere */
    int rc = source_get_bool(r->s, full_key(r, "rope.scaling.finetuned", key, sizeof key), &rotates,
                             r->err);
    if (rc < 0) r->rc = rc;
    hp->no_rope = !rotates;
}

/* Blocks with a state: listed, or all but every nth. MTP blocks have none. */
static void read_recurrent_blocks(struct reader *r, struct hparams *hp)
{
    char key[160];
    u32 every = 4, unused;
    const struct kv *kv =
        source_kv(r->s, full_key(r, "attention.recurrent_layers", key, sizeof key));
    get_u32(r, "full_attention_interval", OPTIONAL, 1, HPARAMS_MAX_BLOCKS, &every);
    if (r->rc) return;
    bool listed = kv && kv->type == KV_ARRAY && kv->elem == KV_BOOL && kv->n >= hp->n_layers;
    if (kv && !listed) {
        u32 flags[HPARAMS_MAX_BLOCKS];
        get_blocks(r, "attention.recurrent_layers", REQUIRED, 0, 1, &unused, flags);
        for (u32 i = 0; !r->rc && i < hp->n_layers; i++) hp->block_recurrent[i] = flags[i];
        return;
    }
    for (u32 i = 0; i < hp->n_layers; i++)
        hp->block_recurrent[i] = listed ? kv->data[i] != 0 : (i + 1) % every != 0;
}

/* Blocks with a state, where those of attention alone have key heads. */
static void read_headless_blocks(struct reader *r, struct hparams *hp)
{
    bool parts = r->traits & ARCH_ONE_PART;
    for (u32 i = 0; i < hp->n_layers; i++) {
        u32 n_ff = parts ? hp->block_ff[i] : 0;
        hp->block_recurrent[i] = !hp->block_kv_heads[i] && !n_ff;
        fail_if(r, parts && hp->block_kv_heads[i] && n_ff, "feed_forward_length",
                "has an entry for a block of attention");
    }
}

static void read_short_conv(struct reader *r, struct hparams *hp)
{
    get_u32(r, "shortconv.l_cache", REQUIRED, 2, 16, &hp->n_taps);
    read_headless_blocks(r, hp);
    fail_if(r, (u64)hp->d_model * hp->n_taps > WIDEST, "shortconv.l_cache",
            "makes the state too large");
}

static void read_kda(struct reader *r, struct hparams *hp)
{
    get_u32(r, "ssm.conv_kernel", REQUIRED, 2, 16, &hp->n_taps);
    get_u32(r, "kda.head_dim", REQUIRED, 1, 1 << 12, &hp->recur_head_k);
    read_headless_blocks(r, hp);
    hp->recur_head_v = hp->recur_head_k;
    hp->recur_heads = hp->recur_keys = hp->n_heads;
    hp->no_rope = true;
    fail_if(r, (u64)hp->n_heads * hp->recur_head_k * MAX(hp->recur_head_k, hp->n_taps) > WIDEST,
            "kda.head_dim", "makes the state too large");
}

/* Mamba-2 or, with its names for other numbers, a gated delta net. */
static void read_recurrence(struct reader *r, struct hparams *hp)
{
    u32 width = 0;
    bool delta = r->traits & ARCH_DELTA;
    get_u32(r, "ssm.conv_kernel", REQUIRED, 2, 16, &hp->n_taps);
    get_u32(r, "ssm.state_size", REQUIRED, 1, 1 << 12, &hp->recur_head_k);
    get_u32(r, "ssm.group_count", REQUIRED, 1, 1 << 12, &hp->recur_keys);
    get_u32(r, "ssm.time_step_rank", REQUIRED, 1, 1 << 12, &hp->recur_heads);
    get_u32(r, "ssm.inner_size", REQUIRED, 1, 1 << 20, &width);
    if (delta)
        read_recurrent_blocks(r, hp);
    else
        read_headless_blocks(r, hp);
    if (r->rc) return;
    hp->recur_head_v = width / hp->recur_heads;
    fail_if(r, width % hp->recur_heads != 0, "ssm.time_step_rank", "does not divide inner_size");
    fail_if(r, hp->recur_heads % hp->recur_keys != 0, "ssm.group_count",
            "does not divide time_step_rank");
    u64 keys = 2 * (u64)hp->recur_keys * hp->recur_head_k;
    fail_if(r, (u64)width * hp->recur_head_k > WIDEST || (keys + width) * hp->n_taps > WIDEST,
            "ssm.state_size", "makes the state too large");
    fail_if(r, delta && hp->head_k != hp->head_v, "attention.value_length",
            "is not key_length, so queries have no gates");
}

static void read_rwkv(struct reader *r, struct hparams *hp)
{
    get_u32(r, "wkv.head_size", REQUIRED, 1, 4096, &hp->wkv_head);
    get_u32(r, "attention.decay_lora_rank", REQUIRED, 1, 1 << 16, &hp->rank_decay);
    get_u32(r, "attention.iclr_lora_rank", REQUIRED, 1, 1 << 16, &hp->rank_iclr);
    get_u32(r, "attention.value_residual_mix_lora_rank", REQUIRED, 1, 1 << 16, &hp->rank_value);
    get_u32(r, "attention.gate_lora_rank", OPTIONAL, 0, 1 << 16, &hp->rank_gate);
    if (r->rc) return;
    fail_if(r, hp->d_model % hp->wkv_head != 0, "wkv.head_size",
            "does not divide embedding_length");
    fail_if(r, (u64)hp->d_model * hp->wkv_head > WIDEST, "wkv.head_size",
            "makes the state too large");
}

/* GGUF files that go with a model, or are made from one, and are none. */
static int check_kind(const struct source *s, struct err *err)
{
    static const struct {
        const char *kind, *what;
    } others[] = {
        {"mmproj", "a vision or audio projector (mmproj); use the model's own file, for text only"},
        {"clip", "a vision or audio projector (mmproj); use the model's own file, for text only"},
        {"adapter", "a LoRA adapter; merge it into its base model, then convert the merged model"},
        {"imatrix", "an importance matrix for quantizing models; use the model itself"},
        {"controlvector", "a control vector; use the model itself"},
    };
    struct str kind = {0}, arch = {0};
    int rc = source_get_str(s, "general.type", &kind, err);
    if (rc >= 0) rc = source_get_str(s, "general.architecture", &arch, err);
    for (size_t i = 0; rc >= 0 && i < ARRAY_LEN(others); i++)
        if (str_is(kind, others[i].kind) || str_is(arch, others[i].kind))
            return err_set(err, FLETCH_E_UNSUPPORTED, "this is not a model but %s", others[i].what);
    return rc < 0 ? rc : 0;
}

static void copy_printable(char *out, size_t cap, struct str s)
{
    for (size_t i = 0; i < s.n && i + 1 < cap; i++)
        out[i] = s.p[i] >= ' ' && s.p[i] < 0x7f ? s.p[i] : '?';
}

void hparams_read_names(struct hparams *hp, const struct source *s)
{
    struct str arch = {0}, name = {0};
    if (source_get_str(s, "general.architecture", &arch, NULL) == 0)
        copy_printable(hp->arch, sizeof hp->arch, arch);
    if (source_get_str(s, "general.name", &name, NULL) == 0)
        copy_printable(hp->name, sizeof hp->name, name);
}

static int read_arch(struct hparams *hp, const struct source *s, struct err *err)
{
    struct str arch = {0}, name = {0};
    int rc = check_kind(s, err);
    if (rc) return rc;
    rc = source_get_str(s, "general.architecture", &arch, err);
    if (rc < 0) return rc;
    if (rc == SOURCE_ABSENT)
        return err_set(err, FLETCH_E_FORMAT, "metadata key 'general.architecture' is missing");
    if (arch.n >= sizeof hp->arch || memchr(arch.p, 0, arch.n))
        return err_set(err, FLETCH_E_UNSUPPORTED, "architecture %s is not supported", QUOTE(arch));
    memcpy(hp->arch, arch.p, arch.n);
    if (!arch_find(hp->arch))
        return err_set(
            err, FLETCH_E_UNSUPPORTED,
            "architecture %s is not supported; fletch doctor lists the supported architectures",
            QUOTE(arch));
    if (source_get_str(s, "general.name", &name, NULL) == 0)
        copy_printable(hp->name, sizeof hp->name, name);
    return 0;
}

static void read_vocab_size(struct reader *r, struct hparams *hp)
{
    const struct tensor *t = source_tensor(r->s, "token_embd.weight");
    if (r->rc) return;
    if (!t) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "tensor 'token_embd.weight' is missing");
        return;
    }
    if (t->ne[1] < 1 || t->ne[1] > (1 << 24)) {
        r->rc = err_set(r->err, FLETCH_E_FORMAT, "tensor 'token_embd.weight' has %llu rows",
                        (unsigned long long)t->ne[1]);
        return;
    }
    hp->n_vocab = (u32)t->ne[1];
    u32 said = hp->n_vocab;
    get_u32(r, "vocab_size", OPTIONAL, 1, UINT32_MAX, &said);
    if (!r->rc && said != hp->n_vocab)
        source_refuse(r->s, "metadata key '%s.vocab_size' = %u (token_embd.weight has %u rows)",
                      hp->arch, said, hp->n_vocab);
}

int hparams_read(struct hparams *hp, const struct source *s, struct err *err)
{
    memset(hp, 0, sizeof *hp);
    int rc = read_arch(hp, s, err);
    if (rc) return rc;
    struct reader r = {s, hp, err, 0, 0, arch_find(hp->arch)->traits};
    char key[160];
    u32 pooling = POOLING_NONE;
    bool rwkv = str_is(str_of(hp->arch), "rwkv7");
    get_u32(&r, "context_length", REQUIRED, 1, 1 << 30, &hp->n_ctx);
    get_u32(&r, "embedding_length", REQUIRED, 1, 1 << 20, &hp->d_model);
    get_u32(&r, "block_count", REQUIRED, 1, HPARAMS_MAX_BLOCKS, &r.n_blocks);
    get_u32(&r, "nextn_predict_layers", OPTIONAL, 0, 8, &hp->n_mtp);
    /* without dense blocks there may be no width of one */
    enum need need_ff = r.traits & ARCH_SHARED && r.traits & ARCH_EXPERTS ? OPTIONAL : REQUIRED;
    get_blocks(&r, "feed_forward_length", need_ff, 0, 1 << 22, &hp->n_ff, hp->block_ff);
    hp->layer_norm = r.traits & ARCH_LAYER_NORM;
    if ((r.traits & ARCH_COHERE_MOE) &&
        source_kv(s, full_key(&r, "attention.layer_norm_rms_epsilon", key, sizeof key)))
        hp->layer_norm = false;
    const char *eps = rwkv || hp->layer_norm ? "attention.layer_norm_epsilon"
                                             : "attention.layer_norm_rms_epsilon";
    get_f32(&r, eps, REQUIRED, -FLT_MAX, &hp->eps);
    check_eps(&r, full_key(&r, eps, key, sizeof key), hp->eps);
    get_u32(&r, "pooling_type", OPTIONAL, 0, POOLING_RANK, &pooling);
    hp->pooling = (enum pooling)pooling;
    struct str other = {0};
    if (source_get_str(s, "fletch.embedding_module", &other, NULL) == 0)
        copy_printable(hp->pooling_other, sizeof hp->pooling_other, other);
    read_vocab_size(&r, hp);
    if (r.rc) return r.rc;
    fail_if(&r, hp->n_mtp >= r.n_blocks, "nextn_predict_layers", "leaves no blocks");
    if (r.rc) return r.rc;
    hp->n_layers = r.n_blocks - hp->n_mtp;
    if (!(r.traits & ARCH_MTP)) hp->n_mtp = 0; /* nothing records it */
    if (r.traits & ARCH_STATE) {
        read_rwkv(&r, hp);
        return r.rc;
    }
    read_attention(&r, hp);
    read_rope(&r, hp);
    read_kinds(&r, hp);
    if (has_experts(&r)) read_experts(&r, hp);
    if (hp->chunked) read_llama4(&r, hp);
    if (strcmp(hp->arch, "step35") == 0) {
        get_limits(&r, "swiglu_clamp_exp", hp->block_limit);
        get_limits(&r, "swiglu_clamp_shexp", hp->block_limit_shared);
    }
    if (r.traits & ARCH_MLA) read_mla(&r, hp);
    if (r.traits & ARCH_SCALES) read_scales(&r, hp);
    if (r.traits & ARCH_SHORT_CONV) read_short_conv(&r, hp);
    if (r.traits & ARCH_KDA) read_kda(&r, hp);
    if (r.traits & (ARCH_DELTA | ARCH_MAMBA)) read_recurrence(&r, hp);
    read_caps(&r, hp);
    return r.rc;
}
