/* config.json of families whose layers differ from each other in more than their windows, in GGUF's
 * words. */
#include "format/hf_cfg.h"

/* Llama 4: layers that rotate attend within chunks; GGUF has the period of the others. */
void hf_put_chunks(struct cfg *c)
{
    const json_t *turns = get(c, c->root, "no_rope_layers"); /* 1: it rotates */
    const json_t *types = get(c, c->root, "layer_types");
    u32 n = c->h->n_layers, every = opt_u32(c, "no_rope_layer_interval", 512, 4);
    bool listed = json_array_size(turns) > 0;
    if (listed) /* of a list, where the first 0 stands */
        for (every = 1; every <= n && json_integer_value(json_array_get(turns, every - 1));)
            every++;
    for (u32 l = 0; l < n && !c->rc; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        bool turn = (l + 1) % every != 0, known = !type;
        if (type) known = strcmp(type, turn ? "chunked_attention" : "full_attention") == 0;
        if (!known || (listed && !json_integer_value(json_array_get(turns, l)) == turn))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: no_rope_layers and layer_types must repeat one pattern");
    }
    put_u32(c, "attention.sliding_window", opt_u32(c, "attention_chunk_size", 1 << 30, 8192));
    put_u32(c, "attention.sliding_window_pattern", every);
    bool grows = opt_bool(c, "attn_temperature_tuning", true);
    double scale = opt_num(c, c->root, "attn_scale", 0.1);
    put_f32(c, "attention.temperature_scale", grows ? scale : 0);
    put_u32(c, "attention.temperature_length", opt_u32(c, "floor_scale", 1 << 30, 8192));
}

/* One number for each layer: full where the layer has no window, local where it has one; or `last`
 * from layer first_last on. */
void hf_put_by_layer(struct cfg *c, const char *suffix, u32 full, u32 local, u32 first_last,
                     u32 last)
{
    bool slides[512];
    u8 le[4 * 512];
    hf_list_windows(c, slides);
    for (u32 l = 0; l < MIN(c->h->n_layers, 512u); l++) {
        u32 n = l >= first_last ? last : slides[l] ? local : full;
        for (u32 k = 0; k < 4; k++) le[4 * l + k] = (u8)(n >> 8 * k);
    }
    if (!c->rc)
        c->rc = source_add_array(c->s, key_of(c, suffix).text, KV_U32, c->h->n_layers, le,
                                 4 * (u64)c->h->n_layers, c->err);
}

/* A list with a number for each layer; false: there is none. */
bool hf_put_each(struct cfg *c, const char *key, const char *suffix)
{
    const json_t *list = c->h->arch == HF_LAGUNA ? get(c, c->root, key) : NULL;
    u32 n = c->h->n_layers;
    u8 le[4 * 512];
    if (!list) return false;
    if (json_array_size(list) != n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s does not have %u entries", key, n);
    for (u32 l = 0; !c->rc && l < n; l++) {
        const json_t *v = json_array_get(list, l);
        json_int_t x = json_integer_value(v);
        if (!json_is_integer(v) || x < 1 || x > 1 << 16)
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s must list integers from 1 to 65536", key);
        for (u32 k = 0; k < 4; k++) le[4 * l + k] = (u8)((u64)x >> 8 * k);
    }
    if (!c->rc)
        c->rc = source_add_array(c->s, key_of(c, suffix).text, KV_U32, n, le, 4 * (u64)n, c->err);
    return true;
}

/* What layers without a window have instead: a field of its own, or (transformers 5.16) one of
 * those layers' own fields. */
static u32 global_field(struct cfg *c, const char *outer, const char *inner, u32 absent)
{
    const json_t *each = get(c, c->root, "per_layer_config"), *one;
    const char *layer;
    json_int_t n = 0;
    if (json_is_integer(get(c, c->root, outer))) return need_u32(c, outer, 1 << 16);
    json_object_foreach((json_t *)(uintptr_t)each, layer, one)
    {
        const json_t *v = json_object_get(one, inner);
        if (n && v && json_integer_value(v) != n)
            FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: per_layer_config has several values of %s",
                 inner);
        if (v) n = json_integer_value(v);
        if (v && (n < 1 || n > 1 << 16))
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not an integer from 1 to 65536", inner);
    }
    return c->rc || !n ? absent : (u32)n;
}

/* Gives the width of heads of layers without a window. */
u32 hf_put_gemma4_sizes(struct cfg *c, u32 n_head, u32 n_ff)
{
    u32 n = c->h->n_layers, shared = int_in(c, "num_kv_shared_layers", 0, 512, 0);
    u32 n_global = global_field(c, "global_head_dim", "head_dim", 512), kv = c->h->n_kv_heads;
    if (opt_bool(c, "attention_k_eq_v", false))
        kv = global_field(c, "num_global_key_value_heads", "num_key_value_heads", kv);
    if (n_global % 2) FAIL(c, FLETCH_E_FORMAT, "config.json: the head size %u is odd", n_global);
    if (shared >= n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: num_kv_shared_layers leaves no layer with a cache");
    if (c->rc) return n_head;
    if (kv == c->h->n_kv_heads)
        put_u32(c, "attention.head_count_kv", kv);
    else
        hf_put_by_layer(c, "attention.head_count_kv", kv, c->h->n_kv_heads, n, 0);
    if (shared && opt_bool(c, "use_double_wide_mlp", false))
        hf_put_by_layer(c, "feed_forward_length", n_ff, n_ff, n - shared, 2 * n_ff);
    else
        put_u32(c, "feed_forward_length", n_ff);
    put_u32(c, "attention.shared_kv_layers", shared);
    put_u32(c, "attention.key_length_swa", n_head);
    put_u32(c, "attention.value_length_swa", n_head);
    put_u32(c, "rope.dimension_count_swa", n_head);
    return n_global;
}

void hf_read_gemma4(struct cfg *c)
{
    static const char layers[] = "hidden_size_per_layer_input";
    bool none = json_is_null(json_object_get(c->root, layers));
    hf_read_dense(c);
    u32 d = int_in(c, layers, 0, 1 << 16, 256), n = opt_u32(c, "vocab_size", 1 << 30, 1);
    if (none) d = 0;
    put_u32(c, "embedding_length_per_layer_input", d);
    if (opt_u32(c, "vocab_size_per_layer_input", 1 << 30, n) != n && d)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: vocab_size_per_layer_input must be the same as vocab_size");
    only_str(c, "use_bidirectional_attention", "vision"); /* text attends to what is before it */
    double cap = opt_num(c, c->root, "final_logit_softcapping", 0);
    if (cap > 0) put_f32(c, "final_logit_softcapping", cap);
    if (!opt_bool(c, "enable_moe_block", false)) return;
    c->h->n_experts = need_u32(c, "num_experts", 1024);
    put_u32(c, "expert_count", c->h->n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "top_k_experts", c->h->n_experts));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "moe_intermediate_size", 1 << 20));
}

void hf_read_cohere2_moe(struct cfg *c)
{
    u32 n = need_u32(c, "num_experts", 1024), used = need_u32(c, "num_experts_per_tok", n);
    u32 n_ff = need_u32(c, "intermediate_size", 1 << 20);
    u32 n_shared = int_in(c, "num_shared_experts", 0, 64, 0);
    struct str by = get_str(c, c->root, "expert_selection_fn");
    bool sigmoid = by.p && str_is(by, "sigmoid");
    hf_read_dense(c);
    u32 n_dense = hf_leading_dense(c, 0);
    if (n_shared) only_str(c, "shared_expert_combination_strategy", "average");
    if (n_dense && opt_u32(c, "prefix_dense_sliding_window_pattern", 512, 1) != 1)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: prefix_dense_sliding_window_pattern must be 1 where there are dense "
             "layers");
    if (by.p && !sigmoid && !str_is(by, "softmax"))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: expert_selection_fn %s is not supported",
             QUOTE(by));
    put_u32(c, "leading_dense_block_count", n_dense);
    hf_put_counts(c, n, used, n_ff, n_shared);
    put_bool(c, "expert_weights_norm", !sigmoid || opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_gating_func", sigmoid ? 2 : 1);
    put_f32(c, "logit_scale", need_num(c, c->root, "logit_scale"));
}

void hf_read_afmoe(struct cfg *c)
{
    u32 n_shared = int_in(c, "num_shared_experts", 0, 64, 2);
    u32 n = need_u32(c, "num_experts", 1024), used = need_u32(c, "num_experts_per_tok", n);
    hf_read_dense(c);
    if (!opt_bool(c, "mup_enabled", false))
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: only models with mup_enabled are supported");
    only_str(c, "score_func", "sigmoid");
    only_bool(c, "route_norm", true);
    put_u32(c, "leading_dense_block_count", int_in(c, "num_dense_layers", 0, c->h->n_layers, 1));
    hf_put_counts(c, n, used, need_u32(c, "moe_intermediate_size", 1 << 20), n_shared);
    put_bool(c, "expert_weights_norm", true);
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "route_scale", 1));
    put_u32(c, "expert_gating_func", 2);
}

void hf_read_laguna(struct cfg *c)
{
    u32 n = need_u32(c, "num_experts", 1024);
    hf_read_dense(c);
    put_u32(c, "leading_dense_block_count", hf_leading_dense(c, 1));
    hf_put_experts(c, n, true);
    put_u32(c, "expert_shared_count", 1);
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "shared_expert_intermediate_size", 1 << 20));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "moe_routed_scaling_factor", 1));
    put_u32(c, "expert_gating_func", 2);
}

void hf_read_mimo2(struct cfg *c)
{
    u32 n = need_u32(c, "n_routed_experts", 1024);
    hf_read_dense(c);
    hf_put_experts(c, n, opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 1));
    put_u32(c, "expert_gating_func", 2);
    put_f32(c, "attention.value_scale", opt_num(c, c->root, "attention_value_scale", 1));
}

void hf_read_llama4(struct cfg *c)
{
    u32 n = need_u32(c, "num_local_experts", 1024), every = 1, n_layers;
    const json_t *moe = get(c, c->root, "moe_layers");
    hf_read_dense(c);
    n_layers = c->h->n_layers;
    every = opt_u32(c, "interleave_moe_layer_step", 512, 1);
    for (u32 i = 0; moe && !c->rc && i < n_layers / every; i++)
        if (json_array_size(moe) != n_layers / every ||
            json_integer_value(json_array_get(moe, i)) != (json_int_t)((i + 1) * every - 1))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: moe_layers does not follow interleave_moe_layer_step");
    put_u32(c, "interleave_moe_layer_step", every);
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", opt_u32(c, "num_experts_per_tok", n, 1));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "intermediate_size", 1 << 20));
    bool normed = opt_bool(c, "use_qk_norm", true);
    if (normed != (n != 128) && !c->rc) /* for which GGUF has no key */
        c->rc = source_add_bool(c->s, "fletch.qk_norm", normed, c->err);
}

void hf_read_exaone_moe(struct cfg *c)
{
    u32 n = need_u32(c, "num_experts", 1024), used = need_u32(c, "num_experts_per_tok", n);
    hf_read_dense(c);
    put_u32(c, "leading_dense_block_count", hf_leading_dense(c, 1));
    hf_put_counts(c, n, used, need_u32(c, "moe_intermediate_size", 1 << 20),
                  int_in(c, "num_shared_experts", 0, 64, 1));
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_bool(c, "expert_weights_norm", opt_bool(c, "norm_topk_prob", true));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", 2.5));
    put_u32(c, "expert_gating_func", 2);
}

void hf_read_muse(struct cfg *c)
{
    const json_t *types = get(c, c->root, "layer_types");
    const json_t *bases = get(c, c->root, "layer_rope_theta"); /* 0: it does not rotate */
    const json_t *p = get(c, c->root, "rope_parameters");
    double base = json_number_value(json_object_get(p, "rope_theta"));
    hf_read_dense(c);
    if (!types) FAIL(c, FLETCH_E_FORMAT, "config.json: missing layer_types");
    for (u32 l = 0; bases && !c->rc && l < c->h->n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        double own = json_number_value(json_array_get(bases, l));
        bool slides = type && strcmp(type, "sliding_attention") == 0;
        if (own != (slides ? base : 0))
            FAIL(c, FLETCH_E_UNSUPPORTED,
                 "config.json: layer_rope_theta must be rope_theta in layers with a window, and 0 "
                 "in others");
    }
    if (opt_num(c, c->root, "post_norm_eps", 1e-8) != 1e-8)
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: only a post_norm_eps of 1e-8 is supported");
    c->h->head = need_u32(c, "head_dim", 1 << 16);
    c->h->q_scale = (float)need_num(c, c->root, "qk_scale_factor");
    put_f32(c, "logit_scale", need_num(c, c->root, "output_multiplier"));
    put_f32(c, "final_logit_softcapping", need_num(c, c->root, "final_logit_softcapping"));
}

/* Limits by layer; null and 0: none. */
static void put_limits(struct cfg *c, const char *key, const char *suffix)
{
    const json_t *list = get(c, c->root, key);
    u32 n = c->h->n_layers;
    float limits[512];
    if (!list || c->rc) return;
    if (json_array_size(list) < n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: %s has fewer than %u entries", key, n);
    for (u32 l = 0; l < n && !c->rc; l++) {
        const json_t *v = json_array_get(list, l);
        double x = json_number_value(v);
        if (!(json_is_number(v) || json_is_null(v)) || !(x >= 0 && x <= (double)FLT_MAX))
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s must list numbers of at least 0", key);
        limits[l] = (float)x;
    }
    if (!c->rc)
        c->rc = source_add_array(c->s, key_of(c, suffix).text, KV_F32, n, limits,
                                 n * sizeof *limits, c->err);
}

void hf_read_step35(struct cfg *c)
{
    u32 n = need_u32(c, "n_routed_experts", 1024);
    hf_read_dense(c);
    u32 head = need_u32(c, "head_dim", 1 << 16);
    if (opt_num(c, c->root, "query_pre_attn_scalar", head) != head)
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: query_pre_attn_scalar must be head_dim");
    put_u32(c, "leading_dense_block_count", hf_leading_dense(c, 3));
    hf_put_experts(c, n, true);
    put_u32(c, "expert_shared_count", 1);
    put_u32(c, "expert_shared_feed_forward_length", need_u32(c, "share_expert_dim", 1 << 20));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "moe_router_scaling_factor", 1));
    put_u32(c, "expert_gating_func", 2);
    put_limits(c, "swiglu_limits", "swiglu_clamp_exp");
    put_limits(c, "swiglu_limits_shared", "swiglu_clamp_shexp");
}
