/* config.json of models whose blocks differ in kind: attention, a state, a feed-forward. */
#include "format/hf_cfg.h"

/* What a block of that name has; the names are those of several ages of transformers. */
static u8 parts_of(const struct cfg *c, struct str name, bool *known)
{
    static const struct {
        const char *name;
        u8 parts;
    } kinds[] = {{"full_attention", HF_ATTENTION},
                 {"attention", HF_ATTENTION},
                 {"conv", HF_STATE},
                 {"mamba", HF_STATE},
                 {"linear_attention", HF_STATE},
                 {"mlp", HF_FFN},
                 {"moe", HF_FFN | HF_EXPERTS}};
    bool one = c->h->arch == HF_NEMOTRON_H;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (name.p && str_is(name, kinds[i].name)) {
            *known = one || !(kinds[i].parts & HF_FFN);
            return kinds[i].parts | (one ? 0 : HF_FFN);
        }
    *known = false;
    return 0;
}

/* A block for each entry of the list. */
static void list_parts(struct cfg *c, const char *key, const json_t *list)
{
    struct hf *h = c->h;
    bool known = true;
    size_t n = json_array_size(list);
    if (h->n_layers && n != h->n_layers)
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s has %zu entries, but num_hidden_layers is %u",
             key, n, h->n_layers);
    if (n < 1 || n > ARRAY_LEN(h->parts))
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s does not list 1 to 512 blocks", key);
    for (u32 l = 0; !c->rc && l < n; l++) {
        const json_t *v = json_array_get(list, l);
        h->parts[l] =
            parts_of(c, (struct str){json_string_value(v), json_string_length(v)}, &known);
        if (!known)
            FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: %s contains %s, which is not supported",
                 key, json_is_string(v) ? QUOTE(str_of(json_string_value(v))) : "no string");
    }
    h->n_layers = c->rc ? 1 : (u32)n;
}

/* Nemotron's early files: a letter for each block. */
static void list_letters(struct cfg *c, struct str text)
{
    static const char letters[] = "M*-E";
    static const u8 parts[] = {HF_STATE, HF_ATTENTION, HF_FFN, HF_FFN | HF_EXPERTS};
    if (text.n < 1 || text.n > ARRAY_LEN(c->h->parts))
        FAIL(c, FLETCH_E_FORMAT, "config.json: hybrid_override_pattern has %zu letters", text.n);
    for (size_t l = 0; !c->rc && l < text.n; l++) {
        const char *at = memchr(letters, text.p[l], sizeof letters - 1);
        if (!at)
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: hybrid_override_pattern %s is not supported", QUOTE(text));
        else
            c->h->parts[l] = parts[at - letters];
    }
    c->h->n_layers = c->rc ? 1 : (u32)text.n;
}

static void read_parts(struct cfg *c)
{
    const json_t *types = get(c, c->root, "layer_types"),
                 *blocks = get(c, c->root, "layers_block_type");
    const json_t *full = get(c, c->root, "full_attn_idxs");
    struct str text = get_str(c, c->root, "hybrid_override_pattern");
    c->h->n_layers = 0;
    if (c->h->arch != HF_NEMOTRON_H) c->h->n_layers = need_u32(c, "num_hidden_layers", 512);
    if (types || blocks) {
        list_parts(c, types ? "layer_types" : "layers_block_type", types ? types : blocks);
    } else if (text.p && c->h->arch == HF_NEMOTRON_H) {
        list_letters(c, text);
    } else if (full && c->h->arch == HF_LFM2) {
        for (u32 l = 0; l < c->h->n_layers; l++) c->h->parts[l] = HF_STATE | HF_FFN;
        for (size_t i = 0; i < json_array_size(full); i++) {
            json_int_t l = json_integer_value(json_array_get(full, i));
            if (l >= 0 && l < c->h->n_layers) c->h->parts[l] = HF_ATTENTION | HF_FFN;
        }
    } else {
        FAIL(c, FLETCH_E_FORMAT, "config.json: missing layer_types");
    }
}

bool hf_lists(struct cfg *c, enum hf_part part)
{
    read_parts(c);
    for (u32 l = 0; l < c->h->n_layers; l++)
        if (c->h->parts[l] & part) return true;
    return false;
}

/* LFM2 */

/* The class makes it from intermediate_size, unless it is told not to. */
static u32 lfm2_width(struct cfg *c)
{
    bool old = get(c, c->root, "block_ff_dim") != NULL;
    u32 n = need_u32(c, old ? "block_ff_dim" : "intermediate_size", 1 << 24);
    get(c, c->root, "intermediate_size");
    double by = opt_num(c, c->root, "block_ffn_dim_multiplier", 1);
    u32 of = opt_u32(c, "block_multiple_of", 1 << 20, 256);
    if (!opt_bool(c, "block_auto_adjust_ff_dim", true)) return n;
    n = (u32)(2 * (u64)n / 3);
    if (json_is_null(json_object_get(c->root, "block_ffn_dim_multiplier"))) return n;
    double wide = by * n;
    if (!(wide >= 1 && wide < 1 << 24)) {
        FAIL(c, FLETCH_E_FORMAT, "config.json: invalid block_ffn_dim_multiplier");
        return 1;
    }
    return ((u32)wide + of - 1) / of * of;
}

void hf_read_lfm2(struct cfg *c)
{
    struct hf *h = c->h;
    read_parts(c);
    only_bool(c, "conv_bias", false);
    if (h->arch == HF_LFM2) h->n_ff = lfm2_width(c);
    hf_read_dense(c);
    put_u32(c, "shortconv.l_cache", opt_u32(c, "conv_L_cache", 16, 3));
    if (h->arch == HF_LFM2) return;
    only_bool(c, "use_expert_bias", true);
    h->n_experts = need_u32(c, "num_experts", 1024);
    put_u32(c, "leading_dense_block_count", int_in(c, "num_dense_layers", 0, h->n_layers, 2));
    put_u32(c, "expert_count", h->n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", h->n_experts));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "moe_intermediate_size", 1 << 24));
    put_u32(c, "expert_gating_func", 2);
    put_bool(c, "expert_weights_norm", opt_bool(c, "norm_topk_prob", true));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 1));
}

/* Mamba-2 */

/* Steps may be limited; no published model does it, and GGUF has no key for it. */
static void check_steps(struct cfg *c)
{
    const json_t *limit = get(c, c->root, "time_step_limit");
    if (!limit) return;
    const json_t *most = json_array_get(limit, 1);
    if (json_number_value(json_array_get(limit, 0)) > 0 || json_is_number(most))
        source_refuse(c->s, "config.json: time_step_limit is not supported");
}

static void put_mamba(struct cfg *c, u32 n_heads, u32 head, u32 n_groups, u32 n_state, u32 n_taps)
{
    struct hf *h = c->h;
    check_steps(c);
    h->n_keys = n_groups;
    h->n_values = n_heads;
    h->key_dim = n_state;
    h->value_dim = head;
    if (n_heads % n_groups)
        FAIL(c, FLETCH_E_FORMAT,
             "config.json: the number of Mamba groups does not divide the number of Mamba heads");
    put_u32(c, "ssm.conv_kernel", n_taps);
    put_u32(c, "ssm.state_size", n_state);
    put_u32(c, "ssm.group_count", n_groups);
    put_u32(c, "ssm.time_step_rank", n_heads);
    put_u32(c, "ssm.inner_size", n_heads * head);
}

void hf_read_nemotron(struct cfg *c)
{
    struct hf *h = c->h;
    bool experts = hf_lists(c, HF_EXPERTS);
    only_str(c, "mlp_hidden_act", "relu2");
    only_str(c, "mamba_hidden_act", "silu");
    only_bool(c, "use_bias", false);
    for (u32 l = 0; l < h->n_layers; l++)
        if (experts && h->parts[l] == HF_FFN)
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: a model with both expert blocks and dense blocks is not supported");
    if (experts) h->n_ff = need_u32(c, "moe_intermediate_size", 1 << 24);
    hf_read_dense(c);
    put_mamba(c, need_u32(c, "mamba_num_heads", 1 << 12), need_u32(c, "mamba_head_dim", 1 << 12),
              need_u32(c, "n_groups", 1 << 12), need_u32(c, "ssm_state_size", 1 << 12),
              opt_u32(c, "conv_kernel", 16, 4));
    /* of a norm in MTP blocks, without which other engines don't load the file */
    put_f32(c, "attention.layer_norm_epsilon", need_num(c, c->root, "layer_norm_epsilon"));
    if (!experts) return;
    h->n_experts = need_u32(c, "n_routed_experts", 1024);
    put_u32(c, "expert_count", h->n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", h->n_experts));
    put_u32(c, "expert_feed_forward_length", h->n_ff);
    put_u32(c, "expert_shared_count", opt_u32(c, "n_shared_experts", 64, 1));
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "moe_shared_expert_intermediate_size", 1 << 20));
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 1));
    put_bool(c, "expert_weights_norm", opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_gating_func", 2);
    if (get(c, c->root, "moe_latent_size"))
        put_u32(c, "moe_latent_size", need_u32(c, "moe_latent_size", 1 << 20));
}

/* Blocks are counted from 1 there. */
void hf_read_kimi_linear(struct cfg *c)
{
    struct hf *h = c->h;
    const json_t *linear = get(c, c->root, "linear_attn_config");
    const json_t *full = json_object_get(linear, "full_attn_layers");
    u32 n_layers = h->n_layers = need_u32(c, "num_hidden_layers", 512);
    for (u32 l = 0; l < n_layers; l++) h->parts[l] = HF_STATE | HF_FFN;
    for (size_t i = 0; i < json_array_size(full); i++) {
        json_int_t l = json_integer_value(json_array_get(full, i));
        if (l >= 1 && l <= n_layers) h->parts[l - 1] = HF_ATTENTION | HF_FFN;
    }
    json_int_t heads = json_integer_value(json_object_get(linear, "num_heads")),
               width = json_integer_value(json_object_get(linear, "head_dim")),
               taps = json_integer_value(json_object_get(linear, "short_conv_kernel_size"));
    u32 n_heads = need_u32(c, "num_attention_heads", 1 << 12);
    only_bool(c, "mla_use_nope", true);
    only_str(c, "moe_router_activation_func", "sigmoid");
    if (heads != n_heads || width < 1 || width > 1 << 12 || taps < 2 || taps > 16)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: linear_attn_config needs num_attention_heads heads, a head_dim and a "
             "short_conv_kernel_size");
    hf_put_mla(c);
    put_u32(c, "ssm.conv_kernel", c->rc ? 4 : (u32)taps);
    put_u32(c, "kda.head_dim", c->rc ? 1 : (u32)width);
    h->n_experts = need_u32(c, "num_experts", 1024);
    put_u32(c, "leading_dense_block_count", int_in(c, "first_k_dense_replace", 0, n_layers, 0));
    put_u32(c, "expert_count", h->n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_token", h->n_experts));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "moe_intermediate_size", 1 << 24));
    put_u32(c, "expert_shared_count", opt_u32(c, "num_shared_experts", 64, 1));
    put_u32(c, "expert_group_count", opt_u32(c, "num_expert_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 1));
    put_bool(c, "expert_weights_norm", opt_bool(c, "moe_renormalize", true));
    put_u32(c, "expert_gating_func", 2);
}

/* A width that may be said as "auto": what the heads share evenly. */
static u32 head_width(struct cfg *c, u32 inner, u32 n_heads)
{
    struct str text = get_str(c, c->root, "mamba_d_head");
    bool autom = !get(c, c->root, "mamba_d_head") || (text.p && str_is(text, "auto"));
    u32 head = autom ? inner / n_heads : need_u32(c, "mamba_d_head", 1 << 12);
    if ((u64)head * n_heads != inner)
        FAIL(c, FLETCH_E_FORMAT, "config.json: mamba_d_head times mamba_n_heads is not %u", inner);
    return head;
}

static void put_prefixed_mamba(struct cfg *c, u32 inner)
{
    u32 n = need_u32(c, "mamba_n_heads", 1 << 12);
    only_bool(c, "mamba_proj_bias", false);
    put_mamba(c, n, head_width(c, inner, n), opt_u32(c, "mamba_n_groups", 1 << 12, 1),
              need_u32(c, "mamba_d_state", 1 << 12), opt_u32(c, "mamba_d_conv", 16, 4));
}

void hf_read_granite_hybrid(struct cfg *c)
{
    struct hf *h = c->h;
    struct str place = get_str(c, c->root, "position_embedding_type");
    read_parts(c);
    u32 n_experts = int_in(c, "num_local_experts", 0, 1024, 8);
    bool rope = place.p && str_is(place, "rope");
    if (place.p && !rope && !str_is(place, "nope"))
        source_refuse(c->s, "config.json: position_embedding_type %s is not supported",
                      QUOTE(place));
    if (n_experts && strcmp(c->arch, "granite") == 0)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: experts without blocks of Mamba are not supported");
    if (!n_experts) h->arch = HF_GRANITE_HD;
    if (!n_experts) h->n_ff = need_u32(c, "shared_intermediate_size", 1 << 24);
    hf_read_granite(c);
    put_bool(c, "rope.scaling.finetuned", rope);
    if (strcmp(c->arch, "granite") == 0) return;
    put_prefixed_mamba(c, opt_u32(c, "mamba_expand", 16, 2) * h->d_model);
    if (h->n_keys > 1) /* its class norms all groups at once, unlike others' */
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: mamba_n_groups other than 1 is not supported");
    if (!n_experts) return;
    h->n_experts = n_experts;
    put_u32(c, "expert_count", n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n_experts));
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "shared_intermediate_size", 1 << 20));
}

/* A list of n multipliers. */
static void read_factors(struct cfg *c, const char *key, u32 n, float *out)
{
    const json_t *list = get(c, c->root, key);
    for (u32 i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        out[i] = list ? (float)json_number_value(v) : 1;
        if (list && (!json_is_number(v) || !(out[i] > 0) || !isfinite(out[i])))
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not a list of %u factors greater than 0",
                 key, n);
    }
}

static float read_factor(struct cfg *c, const char *key)
{
    double v = opt_num(c, c->root, key, 1);
    if (!(v > 0)) FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be greater than 0", key);
    return (float)v;
}

void hf_read_falcon_h1(struct cfg *c)
{
    struct hf *h = c->h;
    float mlp[2], in = read_factor(c, "attention_in_multiplier");
    read_factors(c, "mlp_multipliers", 2, mlp);
    read_factors(c, "ssm_multipliers", 5, h->factor_mamba);
    float ssm_in = read_factor(c, "ssm_in_multiplier");
    for (u32 i = 0; i < 5; i++) h->factor_mamba[i] *= ssm_in;
    h->factor[HF_FACTOR_GATE] = mlp[0];
    h->factor[HF_FACTOR_DOWN] = mlp[1];
    h->factor[HF_FACTOR_QV] = in;
    h->factor[HF_FACTOR_K] = in * read_factor(c, "key_multiplier");
    h->factor[HF_FACTOR_O] = read_factor(c, "attention_out_multiplier");
    h->factor[HF_FACTOR_MAMBA_OUT] = read_factor(c, "ssm_out_multiplier");
    h->factor[HF_FACTOR_EMBED] = read_factor(c, "embedding_multiplier");
    h->factor[HF_FACTOR_HEAD] = read_factor(c, "lm_head_multiplier");
    /* of one tensor there can be one */
    if (h->tied && (h->factor[HF_FACTOR_EMBED] < h->factor[HF_FACTOR_HEAD] ||
                    h->factor[HF_FACTOR_EMBED] > h->factor[HF_FACTOR_HEAD]))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: tied embeddings are supported only if lm_head_multiplier equals "
             "embedding_multiplier");
    only_bool(c, "projectors_bias", false);
    bool gated_norm = opt_bool(c, "mamba_rms_norm", false);
    if (gated_norm) only_bool(c, "mamba_norm_before_gate", false);
    get(c, c->root, "mamba_norm_before_gate");
    hf_read_dense(c);
    u32 inner = opt_u32(c, "mamba_expand", 16, 2) * h->d_model;
    put_prefixed_mamba(c, opt_u32(c, "mamba_d_ssm", 1 << 20, inner));
}
