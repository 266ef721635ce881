/* config.json in GGUF's words. A setting that changes the model's
 * arithmetic and has no GGUF key is refused by name; so is one that nobody looks at here and that
 * is not on the lists of hf_known.c. */
#include "format/hf_cfg.h"

/* The period of layers without a window, where no list says which these are; 0: all have one. */
static u32 full_every(struct cfg *c)
{
    if (c->h->arch & (HF_GEMMA2 | HF_GPT_OSS)) return 2;
    if (c->h->arch == HF_OLMO2) return 4;
    if (c->h->arch == HF_AFMOE) return opt_u32(c, "global_attn_every_n_layers", 512, 4);
    const json_t *v = get(c, c->root, "sliding_window_pattern");
    struct str text = {json_string_value(v), json_string_length(v)};
    u32 absent = c->h->arch & (HF_GEMMA3 | HF_GEMMA4)                                      ? 6
                 : c->h->arch & (HF_EXAONE4 | HF_EXAONE_MOE | HF_COHERE2 | HF_COHERE2_MOE) ? 4
                                                                                           : 0;
    if (!absent || !text.p) return absent ? opt_u32(c, "sliding_window_pattern", 512, absent) : 0;
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != (i + 1 < text.n ? 'L' : 'G'))
            FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: sliding_window_pattern %s is not supported",
                 QUOTE(text));
    return (u32)text.n;
}

/* Which layers attend to a window, by the rules of transformers' classes: Qwen's are switched on
 * and begin at a layer, Mistral's has a default, Llama's has none but a cache that forgets what
 * lies before one, SmolLM3's is of the layers that don't rotate. False: none. */
bool hf_list_windows(struct cfg *c, bool slides[512])
{
    u64 all = HF_LLAMA | HF_MIXTRAL | HF_PHI3 | HF_MISTRAL3;
    u64 listed = HF_GEMMA2 | HF_GEMMA3 | HF_GEMMA4 | HF_GPT_OSS | HF_OLMO2 | HF_EXAONE4 |
                 HF_COHERE2 | HF_COHERE2_MOE | HF_AFMOE | HF_LAGUNA | HF_MIMO2 | HF_EXAONE_MOE |
                 HF_MUSE | HF_STEP35;
    u64 switched = HF_QWEN2 | HF_QWEN3 | HF_SMOLLM3;
    const json_t *types = get(c, c->root, "layer_types");
    bool on = opt_bool(c, "use_sliding_window", c->h->arch & (all | listed)), any = false;
    u32 first = int_in(c, "max_window_layers", 0, UINT32_MAX, 28), every = full_every(c);
    bool by_type = types && (c->h->arch & (switched | listed));
    if (by_type && json_array_size(types) != c->h->n_layers && !c->rc)
        c->rc = err_set(c->err, FLETCH_E_FORMAT,
                        "config.json: layer_types has %zu entries, but num_hidden_layers is %u",
                        json_array_size(types), c->h->n_layers);
    for (u32 i = 0; i < 512; i++) {
        const json_t *v = json_array_get(types, i);
        struct str type = {json_string_value(v), json_string_length(v)};
        bool slide = type.p && str_is(type, "sliding_attention");
        if (type.p && str_is(type, "linear_attention") && (c->h->arch & HF_DELTA)) continue;
        if (v && !slide && !(type.p && str_is(type, "full_attention")))
            source_refuse(c->s, "config.json: layer_types contains %s",
                          type.p ? QUOTE(type) : "a value that is not a string");
        if (!by_type) slide = c->h->arch & switched ? i >= first : !every || (i + 1) % every;
        /* the class's last layer has none, whatever it is said to be */
        if (c->h->arch == HF_GEMMA4 && i + 1 == c->h->n_layers) slide = false;
        slides[i] = on && slide;
        any |= i < c->h->n_layers && slides[i];
    }
    return any;
}

static void put_window(struct cfg *c)
{
    bool slides[512], all = true;
    u8 pattern[512];
    const json_t *said = json_object_get(c->root, "sliding_window"); /* or null: none */
    u32 absent = (c->h->mistral || c->h->olmo3) && !said ? 4096 : 0;
    u32 n = json_is_null(said) ? 0 : int_in(c, "sliding_window", 0, 1 << 30, absent);
    get(c, c->root, "sliding_window");
    if (!hf_list_windows(c, slides) || !n) return;
    put_u32(c, "attention.sliding_window", n);
    for (u32 i = 0; i < c->h->n_layers; i++) {
        all &= slides[i];
        pattern[i] = slides[i];
    }
    if ((all && !full_every(c)) || c->rc) return;
    c->rc = source_add_array(c->s, key_of(c, "attention.sliding_window_pattern").text, KV_BOOL,
                             c->h->n_layers, pattern, c->h->n_layers, c->err);
}

/* Architectures */

static u32 put_common(struct cfg *c, u32 n_ctx)
{
    u32 dim = c->h->d_model = need_u32(c, "hidden_size", 1 << 20);
    const json_t *said = get(c, c->root, "num_hidden_layers"); /* or a list of blocks did */
    if (!c->h->parts[0] || (said && c->h->arch != HF_NEMOTRON_H))
        c->h->n_layers = need_u32(c, "num_hidden_layers", 512);
    put_u32(c, "context_length", n_ctx);
    put_u32(c, "embedding_length", dim);
    put_u32(c, "vocab_size", need_u32(c, "vocab_size", 1 << 30));
    return dim;
}

void hf_put_blocks(struct cfg *c, const char *suffix, u32 value, enum hf_part part)
{
    u8 le[4 * ARRAY_LEN(c->h->parts)] = {0};
    bool all = true;
    for (u32 l = 0; l < c->h->n_layers; l++) {
        bool has = !c->h->parts[l] || (c->h->parts[l] & part);
        all &= has;
        for (u32 k = 0; has && k < 4; k++) le[4 * l + k] = (u8)(value >> 8 * k);
    }
    if (all)
        put_u32(c, suffix, value);
    else if (!c->rc)
        c->rc = source_add_array(c->s, key_of(c, suffix).text, KV_I32, c->h->n_layers, le,
                                 4 * (u64)c->h->n_layers, c->err);
}

/* What the epsilon of the norms is called, here and in GGUF. */
static void put_eps(struct cfg *c)
{
    static const struct {
        u64 archs;
        const char *key;
    } names[] = {{HF_COHERE2 | HF_COHERE2_MOE, "layer_norm_eps"},
                 {HF_LFM2 | HF_LFM2_MOE, "norm_eps"},
                 {HF_NEMOTRON_H, "layer_norm_epsilon"}};
    const char *key = "rms_norm_eps";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].archs & c->h->arch) key = names[i].key;
    if (c->h->arch == HF_COHERE2_MOE && get(c, c->root, "rms_norm_eps")) key = "rms_norm_eps";
    bool layer = strcmp(key, "layer_norm_eps") == 0;
    put_f32(c, layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            need_num(c, c->root, key));
}

/* Where no block is dense, the width of such a block may be left out. */
static u32 read_width(struct cfg *c)
{
    bool said = get(c, c->root, "intermediate_size") != NULL;
    if (c->h->n_ff) return c->h->n_ff;
    if (c->h->arch == HF_LLAMA4) return need_u32(c, "intermediate_size_mlp", 1 << 24);
    if (c->h->arch == HF_COHERE2_MOE && get(c, c->root, "prefix_dense_intermediate_size"))
        return need_u32(c, "prefix_dense_intermediate_size", 1 << 24);
    return need_u32(c,
                    said || !(c->h->arch & (HF_SOLAR | HF_QWEN35_MOE)) ? "intermediate_size"
                                                                       : "moe_intermediate_size",
                    1 << 24);
}

/* Heads and key heads, which may differ between layers. */
static void put_heads(struct cfg *c)
{
    struct hf *h = c->h;
    u32 n = h->n_layers, local = h->n_heads; /* of layers with a window */
    if (h->arch == HF_STEP35)
        local = opt_u32(c, "num_sliding_attention_heads", 1 << 16, h->n_heads);
    if (local != h->n_heads)
        hf_put_by_layer(c, "attention.head_count", h->n_heads, local, n, 0);
    else if (!hf_put_each(c, "num_attention_heads_per_layer", "attention.head_count"))
        put_u32(c, "attention.head_count", h->n_heads);
    if (h->arch == HF_MIMO2) /* its class has twice as many where there is a window */
        hf_put_by_layer(c, "attention.head_count_kv", h->n_kv_heads, 2 * h->n_kv_heads, n, 0);
    else if (h->arch != HF_GEMMA4) /* which has them with its sizes */
        hf_put_blocks(c, "attention.head_count_kv", h->n_kv_heads, HF_ATTENTION);
}

void hf_read_dense(struct cfg *c)
{
    struct hf *h = c->h;
    u32 n_ctx = need_u32(c, "max_position_embeddings", UINT32_MAX);
    u32 dim = put_common(c, n_ctx);
    h->n_heads = need_u32(c, "num_attention_heads", 1 << 16);
    h->n_kv_heads = opt_u32(c, "num_key_value_heads", 1 << 16, h->n_heads);
    bool old = h->arch == HF_NEMOTRON_H && !get(c, c->root, "head_dim");
    u32 n_head = opt_u32(c, old ? "attention_head_dim" : "head_dim", 1 << 16,
                         h->arch & HF_DELTA ? 256 : MAX(dim / h->n_heads, 1u));
    if (n_head % 2) FAIL(c, FLETCH_E_FORMAT, "config.json: the head size %u is odd", n_head);
    bool gemma = h->arch & (HF_GEMMA2 | HF_GEMMA3 | HF_GEMMA4);
    only_str(c, "hidden_act", gemma ? "gelu_pytorch_tanh" : "silu");
    if (gemma) only_str(c, "hidden_activation", "gelu_pytorch_tanh");
    if (h->arch == HF_LLAMA4)
        hf_put_chunks(c);
    else if (!h->parts[0])
        put_window(c);
    put_u32(c, "block_count", h->n_layers + h->n_mtp);
    put_heads(c);
    if (h->arch == HF_GEMMA4)
        n_head = hf_put_gemma4_sizes(c, n_head, MIN(read_width(c), 1u << 23));
    else
        hf_put_blocks(c, "feed_forward_length", read_width(c), HF_FFN);
    put_u32(c, "attention.key_length", n_head);
    put_u32(c, "attention.value_length",
            h->arch == HF_MIMO2 ? need_u32(c, "v_head_dim", 1 << 16) : n_head);
    put_eps(c);
    if (h->arch != HF_NEMOTRON_H) hf_put_rope(c, n_head, n_ctx); /* it doesn't rotate */
}

void hf_put_experts(struct cfg *c, u32 n_experts, bool norm)
{
    c->h->n_experts = n_experts;
    put_u32(c, "expert_count", n_experts);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n_experts));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "moe_intermediate_size", 1 << 24));
    put_bool(c, "expert_weights_norm", norm);
}

void hf_put_counts(struct cfg *c, u32 n, u32 used, u32 n_ff, u32 n_shared)
{
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", used);
    put_u32(c, "expert_feed_forward_length", n_ff);
    put_u32(c, "expert_shared_count", n_shared);
    if (n_shared) put_u32(c, "expert_shared_feed_forward_length", n_ff * n_shared);
}

/* Dense blocks come first: either a count or a list that must begin with them. */
u32 hf_leading_dense(struct cfg *c, u32 absent)
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

static void read_qwen3_moe(struct cfg *c)
{
    bool local = get(c, c->root, "num_local_experts") != NULL;
    hf_read_dense(c);
    u32 n = need_u32(c, local ? "num_local_experts" : "num_experts", 1024);
    if (opt_u32(c, "num_experts", 1024, n) != n)
        FAIL(c, FLETCH_E_FORMAT, "config.json: num_experts and num_local_experts differ");
    if (json_array_size(get(c, c->root, "mlp_only_layers")) ||
        opt_u32(c, "decoder_sparse_step", UINT32_MAX, 1) != 1)
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: dense layers between the expert layers (mlp_only_layers, "
             "decoder_sparse_step) are not supported");
    hf_put_experts(c, n, opt_bool(c, "norm_topk_prob", false));
}

/* Which layers have a state; where no list says it, all but every nth. */
static void put_recurrent_layers(struct cfg *c)
{
    const json_t *types = get(c, c->root, "layer_types");
    u32 n = c->h->n_layers, every = opt_u32(c, "full_attention_interval", 512, 4);
    u8 flags[512 + 8] = {0}; /* and MTP blocks */
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
    hf_read_dense(c);
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
    hf_put_experts(c, n, opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "shared_expert_intermediate_size", 1 << 20));
}

static void read_mixtral(struct cfg *c)
{
    u32 n = need_u32(c, "num_local_experts", 1024);
    hf_read_dense(c);
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n));
}

/* Which layers rotate, where a list says it: all but every fourth, as in GGUF. */
static void read_smollm3(struct cfg *c)
{
    const json_t *rotate = get(c, c->root, "no_rope_layers"); /* 1: it rotates */
    u32 every = opt_u32(c, "no_rope_layer_interval", 512, 4);
    hf_read_dense(c);
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
    hf_read_dense(c);
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "intermediate_size", 1 << 24));
    put_u32(c, "expert_gating_func", 2);
}

void hf_read_granite(struct cfg *c)
{
    static const char *const names[4][2] = {{"embedding_multiplier", "embedding_scale"},
                                            {"residual_multiplier", "residual_scale"},
                                            {"attention_multiplier", "attention.scale"},
                                            {"logits_scaling", "logit_scale"}};
    hf_read_dense(c);
    for (u32 i = 0; i < 4; i++) {
        double scale = opt_num(c, c->root, names[i][0], 1);
        if (!(scale > 0))
            FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be greater than 0", names[i][0]);
        put_f32(c, names[i][1], scale);
    }
}

static void read_gemma(struct cfg *c)
{
    static const char *const caps[2] = {"attn_logit_softcapping", "final_logit_softcapping"};
    hf_read_dense(c);
    double width = need_num(c, c->root, "query_pre_attn_scalar");
    if (!(width > 0))
        FAIL(c, FLETCH_E_FORMAT, "config.json: query_pre_attn_scalar must be greater than 0");
    put_f32(c, "attention.scale", 1 / sqrt(width > 0 ? width : 1));
    for (u32 i = 0; i < 2; i++) {
        bool none = json_is_null(json_object_get(c->root, caps[i]));
        double cap = opt_num(c, c->root, caps[i], 0);
        if (none || cap > 0 || c->h->arch == HF_GEMMA2) put_f32(c, caps[i], none ? 0 : cap);
    }
}

static void read_cohere2(struct cfg *c)
{
    hf_read_dense(c);
    put_f32(c, "logit_scale", need_num(c, c->root, "logit_scale"));
}

static void read_gpt_oss(struct cfg *c)
{
    u32 n = need_u32(c, "num_local_experts", 1024);
    hf_read_dense(c);
    if (opt_num(c, c->root, "swiglu_limit", 7) != 7)
        FAIL(c, FLETCH_E_UNSUPPORTED, "config.json: only a swiglu_limit of 7 is supported");
    c->h->n_experts = n;
    put_u32(c, "expert_count", n);
    put_u32(c, "expert_used_count", need_u32(c, "num_experts_per_tok", n));
    put_u32(c, "expert_feed_forward_length", need_u32(c, "intermediate_size", 1 << 24));
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

static void read_ernie_moe(struct cfg *c)
{
    u32 n = need_u32(c, "moe_num_experts", 1024);
    hf_read_dense(c);
    u32 n_layers = c->h->n_layers, last = n_layers ? n_layers - 1 : 0;
    const json_t *end = get(c, c->root, "moe_layer_end_index");
    u32 interval = opt_u32(c, "moe_layer_interval", 1024, 1);
    if (interval != 1 || (end && json_integer_value(end) != -1 && json_integer_value(end) != last))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: dense layers between or after the expert layers (moe_layer_interval, "
             "moe_layer_end_index) are not supported");
    put_u32(c, "interleave_moe_layer_step", 1);
    put_u32(c, "leading_dense_block_count", int_in(c, "moe_layer_start_index", 0, n_layers, 1));
    hf_put_counts(c, n, need_u32(c, "moe_k", n), need_u32(c, "moe_intermediate_size", 1 << 20),
                  int_in(c, "moe_num_shared_experts", 0, 64, 2));
}

static void read_hunyuan_moe(struct cfg *c)
{
    u32 n = one_for_all(c, "num_experts", 1024);
    u32 n_ff = need_u32(c, "intermediate_size", 1 << 20);
    hf_read_dense(c);
    bool said = get(c, c->root, "moe_intermediate_size") != NULL;
    bool shared = get(c, c->root, "num_shared_expert") != NULL;
    if ((said && one_for_all(c, "moe_intermediate_size", 1 << 20) != n_ff) ||
        (shared && one_for_all(c, "num_shared_expert", 64) != 1))
        FAIL(c, FLETCH_E_UNSUPPORTED,
             "config.json: only one shared expert, as wide as a routed expert, is supported");
    hf_put_counts(c, n, one_for_all(c, "moe_topk", n), n_ff, 1);
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

/* What DeepSeek V3's routing has and others took over, Mistral 4 with softmax. */
static void put_sigmoid_experts(struct cfg *c, double scale)
{
    bool first = c->h->arch != HF_SOLAR && c->h->arch != HF_MISTRAL4;
    put_u32(c, "leading_dense_block_count", hf_leading_dense(c, first));
    hf_put_experts(c, need_u32(c, "n_routed_experts", 1024), opt_bool(c, "norm_topk_prob", true));
    put_u32(c, "expert_shared_count", need_u32(c, "n_shared_experts", 1024));
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, "routed_scaling_factor", scale));
    put_u32(c, "expert_gating_func", c->h->arch == HF_MISTRAL4 ? 1 : 2);
}

static void read_glm4_moe(struct cfg *c)
{
    struct hf *h = c->h;
    h->n_layers = need_u32(c, "num_hidden_layers", 512);
    h->n_mtp = count_mtp(c);
    only_str(c, "topk_method", "noaux_tc");
    only_str(c, "scoring_func", "sigmoid");
    hf_read_dense(c);
    if (h->n_mtp) put_u32(c, "nextn_predict_layers", h->n_mtp);
    put_sigmoid_experts(c, 1);
}

static void put_routed(struct cfg *c, u32 n_dense, bool norm, const char *scale, double absent)
{
    put_u32(c, "leading_dense_block_count", n_dense);
    hf_put_experts(c, need_u32(c, "num_experts", 1024), norm);
    put_u32(c, "expert_shared_count", opt_u32(c, "num_shared_experts", 64, 1));
    put_f32(c, "expert_weights_scale", opt_num(c, c->root, scale, absent));
    put_u32(c, "expert_gating_func", 2);
}

static void read_hy_v3(struct cfg *c)
{
    hf_read_dense(c);
    only_bool(c, "qk_norm", true);
    put_routed(c, hf_leading_dense(c, 1), opt_bool(c, "route_norm", true), "router_scaling_factor",
               2.826);
    put_u32(c, "expert_shared_feed_forward_length",
            need_u32(c, "moe_intermediate_size", 1 << 20) *
                opt_u32(c, "num_shared_experts", 64, 1));
}

/* Ling 2. Its class is published with the models, with defaults for what all of them say. */
static void read_bailing2(struct cfg *c)
{
    only_str(c, "score_function", "sigmoid");
    only_str(c, "scoring_func", "sigmoid");
    only_bool(c, "moe_router_enable_expert_bias", true);
    only_bool(c, "use_qk_norm", true);
    only_bool(c, "use_qkv_bias", false);
    hf_read_dense(c);
    put_routed(c, hf_leading_dense(c, 0), opt_bool(c, "norm_topk_prob", true),
               "routed_scaling_factor", 1);
    put_u32(c, "expert_group_count", opt_u32(c, "n_group", 1024, 1));
    put_u32(c, "expert_group_used_count", opt_u32(c, "topk_group", 1024, 1));
}

void hf_put_mla(struct cfg *c)
{
    struct hf *h = c->h;
    bool kimi = h->arch == HF_KIMI_LINEAR;
    u32 n_ctx = need_u32(c, kimi ? "model_max_length" : "max_position_embeddings", UINT32_MAX);
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
    hf_put_blocks(c, "attention.head_count_kv", 1, HF_ATTENTION);
    if (q_rank) put_u32(c, "attention.q_lora_rank", q_rank);
    put_u32(c, "attention.kv_lora_rank", kv_rank);
    put_u32(c, "attention.key_length", kv_rank + n_rot);
    if (!kimi) put_u32(c, "attention.value_length", kv_rank); /* as its converter does */
    put_u32(c, "attention.key_length_mla", h->n_nope + n_rot);
    put_u32(c, "attention.value_length_mla", h->n_value);
    put_f32(c, "attention.layer_norm_rms_epsilon", need_num(c, c->root, "rms_norm_eps"));
    /* Transformers builds q_a_norm and kv_a_norm with its class default, not rms_norm_eps. */
    if (!c->rc) c->rc = source_add_f32(c->s, "fletch.mla_norm_epsilon", 1e-6f, c->err);
    hf_put_rope(c, n_rot, n_ctx);
}

static void read_glm4_lite(struct cfg *c)
{
    only_str(c, "topk_method", "noaux_tc");
    only_str(c, "scoring_func", "sigmoid");
    hf_put_mla(c);
    put_sigmoid_experts(c, 1.8);
}

/* Latent attention, and experts routed by softmax. */
static void read_mistral4(struct cfg *c)
{
    hf_put_mla(c);
    put_sigmoid_experts(c, 1);
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
    hf_put_mla(c);
    put_u32(c, "leading_dense_block_count", hf_leading_dense(c, 0));
    hf_put_experts(c, need_u32(c, "n_routed_experts", 1024), false);
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
    u64 arch;
    void (*read)(struct cfg *);
} archs[] = {
    {"LlamaForCausalLM", "llama", HF_LLAMA, hf_read_dense},
    {"MistralForCausalLM", "llama", HF_LLAMA, hf_read_dense},
    {"Qwen2ForCausalLM", "qwen2", HF_QWEN2, hf_read_dense},
    {"Qwen3ForCausalLM", "qwen3", HF_QWEN3, hf_read_dense},
    {"Qwen3MoeForCausalLM", "qwen3moe", HF_QWEN3_MOE, read_qwen3_moe},
    {"MixtralForCausalLM", "llama", HF_MIXTRAL, read_mixtral},
    {"Glm4MoeForCausalLM", "glm4moe", HF_GLM4_MOE, read_glm4_moe},
    {"SolarOpenForCausalLM", "glm4moe", HF_SOLAR, read_glm4_moe},
    {"Glm4MoeLiteForCausalLM", "deepseek2", HF_GLM4_LITE, read_glm4_lite},
    {"DeepseekV3ForCausalLM", "deepseek2", HF_DEEPSEEK, read_deepseek3},
    {"DeepseekV2ForCausalLM", "deepseek2", HF_DEEPSEEK, read_deepseek2},
    {"Ernie4_5ForCausalLM", "ernie4_5", HF_ERNIE, hf_read_dense},
    {"Ernie4_5_ForCausalLM", "ernie4_5", HF_ERNIE, hf_read_dense},
    {"Ernie4_5_MoeForCausalLM", "ernie4_5-moe", HF_ERNIE_MOE, read_ernie_moe},
    {"GraniteForCausalLM", "granite", HF_GRANITE, hf_read_granite},
    {"HunYuanDenseV1ForCausalLM", "hunyuan-dense", HF_HUNYUAN, hf_read_dense},
    {"HunYuanMoEV1ForCausalLM", "hunyuan-moe", HF_HUNYUAN_MOE, read_hunyuan_moe},
    {"SeedOssForCausalLM", "seed_oss", HF_SEED_OSS, hf_read_dense},
    {"SmolLM3ForCausalLM", "smollm3", HF_SMOLLM3, read_smollm3},
    {"Phi3ForCausalLM", "phi3", HF_PHI3, hf_read_dense},
    {"MiniMaxM2ForCausalLM", "minimax-m2", HF_MINIMAX_M2, read_minimax_m2},
    {"Qwen3NextForCausalLM", "qwen3next", HF_QWEN3_NEXT, read_delta},
    {"Qwen3_5ForCausalLM", "qwen35", HF_QWEN35, read_delta},
    {"Qwen3_5MoeForCausalLM", "qwen35moe", HF_QWEN35_MOE, read_delta},
    {"GptOssForCausalLM", "gpt-oss", HF_GPT_OSS, read_gpt_oss},
    {"Gemma2ForCausalLM", "gemma2", HF_GEMMA2, read_gemma},
    {"Gemma3ForCausalLM", "gemma3", HF_GEMMA3, read_gemma},
    {"Mistral4ForCausalLM", "mistral4", HF_MISTRAL4, read_mistral4},
    {"Cohere2MoeForCausalLM", "cohere2moe", HF_COHERE2_MOE, hf_read_cohere2_moe},
    {"Llama4ForCausalLM", "llama4", HF_LLAMA4, hf_read_llama4},
    {"ExaoneMoeForCausalLM", "exaone-moe", HF_EXAONE_MOE, hf_read_exaone_moe},
    {"MuseGlimmerForCausalLM", "muse-glimmer", HF_MUSE, hf_read_muse},
    {"Step3p5ForCausalLM", "step35", HF_STEP35, hf_read_step35},
    {"AfmoeForCausalLM", "afmoe", HF_AFMOE, hf_read_afmoe},
    {"LagunaForCausalLM", "laguna", HF_LAGUNA, hf_read_laguna},
    {"MiMoV2FlashForCausalLM", "mimo2", HF_MIMO2, hf_read_mimo2},
    {"Gemma4ForCausalLM", "gemma4", HF_GEMMA4, hf_read_gemma4},
    {"Ministral3ForCausalLM", "mistral3", HF_MISTRAL3, hf_read_dense},
    {"Olmo2ForCausalLM", "olmo2", HF_OLMO2, hf_read_dense},
    {"Olmo3ForCausalLM", "olmo2", HF_OLMO2, hf_read_dense},
    {"Exaone4ForCausalLM", "exaone4", HF_EXAONE4, hf_read_dense},
    {"Cohere2ForCausalLM", "cohere2", HF_COHERE2, read_cohere2},
    {"Glm4ForCausalLM", "glm4", HF_GLM4, hf_read_dense},
    {"HYV3ForCausalLM", "hy_v3", HF_HY_V3, read_hy_v3},
    {"BailingMoeV2ForCausalLM", "bailingmoe2", HF_BAILING2, read_bailing2},
    {"KimiLinearForCausalLM", "kimi-linear", HF_KIMI_LINEAR, hf_read_kimi_linear},
    {"Lfm2ForCausalLM", "lfm2", HF_LFM2, hf_read_lfm2},
    {"Lfm2MoeForCausalLM", "lfm2moe", HF_LFM2_MOE, hf_read_lfm2},
    {"NemotronHForCausalLM", "nemotron_h", HF_NEMOTRON_H, hf_read_nemotron},
    {"GraniteMoeHybridForCausalLM", "granitehybrid", HF_GRANITE_H, hf_read_granite_hybrid},
    {"FalconH1ForCausalLM", "falcon-h1", HF_FALCON_H1, hf_read_falcon_h1},
    {"RWKV7ForCausalLM", "rwkv7", HF_RWKV7, read_rwkv7},
    /* before their text model had a configuration of its own */
    {"Qwen2VLForConditionalGeneration", "qwen2", HF_QWEN2, hf_read_dense},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2", HF_QWEN2, hf_read_dense},
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
    {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"},
    {"mistral4", "Mistral4ForCausalLM"},
    {"muse_glimmer_text", "MuseGlimmerForCausalLM"},
    {"step3p5", "Step3p5ForCausalLM"},
    {"llama4_text", "Llama4ForCausalLM"},
    {"gemma4_text", "Gemma4ForCausalLM"},
    {"ministral3", "Ministral3ForCausalLM"},
    {"gpt_oss", "GptOssForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"lfm2", "Lfm2ForCausalLM"},
    {"lfm2_moe", "Lfm2MoeForCausalLM"},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
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

/* FP8 as DeepSeek V3 and MiniMax-M2 are published: a scale for each block of a matrix. What is left
 * out is that their library also rounds activations. */
static int read_fp8(const struct cfg *c, const json_t *q)
{
    const json_t *block = get(c, q, "weight_block_size");
    struct str format = get_str(c, q, "fmt");
    if (format.p && !str_is(format, "e4m3") && !str_is(format, "float8_e4m3fn"))
        return err_set(c->err, FLETCH_E_UNSUPPORTED,
                       "config.json: weights quantized with fp8 in format %s are not supported, "
                       "only e4m3",
                       QUOTE(format));
    for (u32 i = 0; i < 2; i++) {
        json_int_t n = json_integer_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || n < 1 || n > 1 << 20)
            return err_set(c->err, FLETCH_E_UNSUPPORTED,
                           "config.json: weights quantized with fp8 are supported only with "
                           "weight_block_size");
        c->h->fp8_block[i] = (u64)n;
    }
    c->h->fp8 = true;
    return 0;
}

/* MXFP4 is what gpt-oss was published in, and a storage type of GGUF. */
static int check_quantised(const struct cfg *c)
{
    const json_t *q = get(c, c->outer, "quantization_config");
    if (!q) q = get(c, c->outer, "compression_config");
    if (!q) return 0;
    struct str method = get_str(c, q, "quant_method");
    c->h->mxfp4 = method.p && str_is(method, "mxfp4");
    if (c->h->mxfp4) return 0;
    if (method.p && str_is(method, "fp8")) return read_fp8(c, q);
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
    int rc = check_quantised(c);
    if (!rc && c->root != c->outer) rc = find_text(c, &name);
    if (rc) return rc;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        if (!is_class(name, archs[i].hf)) continue;
        c->arch = archs[i].gguf;
        c->h->arch = archs[i].arch;
        c->h->mistral = is_class(name, "MistralForCausalLM");
        c->h->olmo3 = is_class(name, "Olmo3ForCausalLM");
        if (c->h->mxfp4 && c->h->arch != HF_GPT_OSS)
            return err_set(c->err, FLETCH_E_UNSUPPORTED,
                           "config.json: weights quantized with mxfp4 are supported for gpt-oss "
                           "only");
        c->h->tied =
            opt_bool(c, "tie_word_embeddings",
                     c->h->arch & (HF_GEMMA2 | HF_GEMMA3 | HF_GEMMA4 | HF_COHERE2 | HF_COHERE2_MOE |
                                   HF_LFM2 | HF_LFM2_MOE)); /* the class's default */
        if (c->h->arch & (HF_LFM2 | HF_LFM2_MOE))
            c->h->tied = opt_bool(c, "tie_embedding", c->h->tied);
        if (c->h->arch == HF_NEMOTRON_H && hf_lists(c, HF_EXPERTS)) c->arch = "nemotron_h_moe";
        if (c->h->arch == HF_GRANITE_H && !hf_lists(c, HF_STATE)) c->arch = "granite";
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
