/* The fields of config.json that may go unread: those of transformers' base class, those of
 * training and bookkeeping, and for each architecture those whose value here changes nothing. Any
 * other field that is not off is refused by name. Fields that hf_config.c reads need no row. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"

enum {
    L = HF_LLAMA,
    Q2 = HF_QWEN2,
    QN = HF_QWEN3 | HF_QWEN3_MOE,
    QM = HF_QWEN3_MOE,
    G = HF_GLM4_LITE | HF_DEEPSEEK | HF_MISTRAL4,
    R = HF_RWKV7,
    MX = HF_MIXTRAL,
    GM = HF_GLM4_MOE | HF_SOLAR,
    SO = HF_SEED_OSS,
    S3 = HF_SMOLLM3,
    P3 = HF_PHI3,
    MM = HF_MINIMAX_M2,
    ER = HF_ERNIE | HF_ERNIE_MOE,
    GR = HF_GRANITE,
    HY = HF_HUNYUAN | HF_HUNYUAN_MOE,
    D = HF_DELTA,
    DM = HF_QWEN35_MOE | HF_QWEN3_NEXT,
    GE = HF_GEMMA2 | HF_GEMMA3,
    C2 = HF_COHERE2,
    F2 = HF_LFM2 | HF_LFM2_MOE,
    NH = HF_NEMOTRON_H,
    GH = HF_GRANITE_H | HF_GRANITE_HD,
    FH = HF_FALCON_H1,
    MAMBA = NH | GH | FH,
    ATTN = L | Q2 | QN | MX | GM | SO | S3 | P3 | MM | ER | GR | HY | D | GE | C2 | HF_GPT_OSS |
           HF_MISTRAL3 | HF_OLMO2 | HF_EXAONE4 | HF_GLM4 | HF_GEMMA4 | HF_COHERE2_MOE | HF_AFMOE |
           HF_LAGUNA | HF_MIMO2 | HF_LLAMA4 | HF_EXAONE_MOE | HF_MUSE | HF_STEP35 | F2 | MAMBA |
           HF_HY_V3 | HF_BAILING2,
    ALL = ATTN | G | R | HF_KIMI_LINEAR,
};

/* Whatever they say: how the model is named, trained, run, sampled from, or was written. */
static const char *const base[] = {
    /* what it is */
    "architectures",
    "model_type",
    "name_or_path",
    "auto_map",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "tokenizer_class",
    "is_llama_config",
    "base_model",
    "base_model_name_or_path",
    "model_name",
    "description",
    "author",
    "license",
    "license_name",
    "language",
    "library_name",
    "pipeline_tag",
    "tags",
    "datasets",
    "original_max_position_embeddings",
    "model_max_length",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "max_position_embeddings",
    /* how its library runs it */
    "use_cache",
    "return_dict",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "output_router_logits",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "chunk_size_feed_forward",
    "pruned_heads",
    "attn_implementation",
    "experts_implementation",
    "use_flash_attn",
    "use_flash_attention",
    "use_flash_attention_2",
    "flash_attention",
    "cache_implementation",
    "is_decoder",
    "pretraining_tp",
    "onnx_export",
    /* heads for other tasks */
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "tie_encoder_decoder",
    "prefix",
    "pad_token",
    "bos_token",
    "eos_token",
    "unk_token",
    /* special tokens: the tokenizer's files decide, and vocab.c reads eos_token_id */
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    /* generation, where generation_config.json does not say it */
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "max_length",
    "min_length",
    "max_new_tokens",
    "min_new_tokens",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "remove_invalid_values",
    "epsilon_cutoff",
    "eta_cutoff",
    "renormalize_logits",
    /* training */
    "initializer_range",
    "initializer_factor",
    "init_std",
    "gradient_checkpointing",
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "router_jitter_noise",
    "aux_loss_alpha",
    "aux_loss_coef",
    "z_loss_coef",
    "seq_aux",
    "ep_size",
    "use_cut_cross_entropy",
};

/* Parts of names that mark such a field too. */
static const char *const prefixes[] = {"_",       "unsloth", "axolotl", "transformers",
                                       "neftune", "fuse_"};

enum harmless {
    ANY,
    TRUE,  /* true; false is wrong, absent is not here */
    EQUAL, /* a number, or a list of it */
    DIM,   /* hidden_size, or a list of it */
    SILU,  /* a name of SiLU, or of the gated unit made with it */
};

static const struct field {
    u64 archs;
    const char *name;
    enum harmless values;
    double value;
} fields[] = {
    {ALL, "is_causal", TRUE, 0},
    {ALL, "causal", TRUE, 0},
    {(ATTN | G) & ~(u64)(C2 | HF_COHERE2_MOE), "layer_norm_eps", ANY,
     0}, /* their norms are RMS norms */
    {ATTN | G, "layer_norm_epsilon", ANY, 0},
    {ATTN | G, "activation", SILU, 0}, /* beside hidden_act */
    {ATTN | G, "hidden_activation", SILU, 0},
    {ATTN | G, "activation_function", SILU, 0},
    {ATTN, "attention_bias", ANY, 0}, /* the tensors tell */
    {ATTN, "mlp_bias", ANY, 0},
    {ATTN, "qkv_bias", ANY, 0},
    {ATTN, "attention_out_bias", ANY, 0},
    {QN, "use_qk_norm", TRUE, 0},
    {P3, "full_attn_mod", EQUAL, 1},
    {D, "mamba_ssm_dtype", ANY, 0},         /* of its library's kernels */
    {D, "full_attention_interval", ANY, 0}, /* layer_types decides where both are there */
    {D, "mtp_num_hidden_layers", ANY, 0},   /* the tensors tell */
    {ER, "use_bias", ANY, 0},               /* the tensors tell */
    {HF_GEMMA4, "top_k_experts", ANY, 0},   /* of experts that are there or not */
    {HF_GEMMA4, "moe_intermediate_size", ANY, 0},
    {HF_GEMMA4, "num_global_key_value_heads", ANY, 0}, /* of keys that are values too */
    {HF_GEMMA4, "use_double_wide_mlp", ANY, 0},        /* of layers that share a cache */
    {GE, "sliding_window_pattern", ANY, 0}, /* layer_types decides where both are there */
    {HF_EXAONE4 | HF_EXAONE_MOE, "sliding_window_pattern", ANY, 0},
    {HF_EXAONE_MOE, "first_k_dense_replace", ANY, 0}, /* beside mlp_layer_types */
    {HF_EXAONE_MOE, "first_last_k_dense_replace", ANY, 0},
    {HF_EXAONE_MOE, "num_nextn_predict_layers", ANY, 0}, /* nothing else needs those blocks */
    {HF_GPT_OSS, "initial_context_length", ANY, 0},      /* beside the rope parameters */
    {HF_GPT_OSS, "experts_per_token", ANY, 0},           /* beside num_experts_per_tok */
    {HF_GPT_OSS, "quantization_config", ANY, 0},         /* was read */
    {HF_AFMOE, "load_balance_coeff", ANY, 0},            /* training */
    {HF_AFMOE, "use_grouped_mm", ANY, 0},
    {HF_AFMOE, "global_attn_every_n_layers", ANY, 0}, /* layer_types decides */
    {HF_AFMOE, "n_group", EQUAL, 1},
    {HF_AFMOE, "topk_group", EQUAL, 1},
    {HF_AFMOE, "num_expert_groups", EQUAL, 1},
    {HF_AFMOE, "num_limited_groups", EQUAL, 1},
    {HF_STEP35, "mtp_layer_types", ANY, 0}, /* nothing else needs those blocks */
    {HF_STEP35, "mtp_mlp_layer_types", ANY, 0},
    {HF_STEP35, "num_nextn_predict_layers", ANY, 0},
    {HF_STEP35, "per_layer_config", ANY, 0},       /* of num_sliding_attention_heads */
    {HF_LLAMA4, "no_rope_layer_interval", ANY, 0}, /* beside no_rope_layers */
    {HF_LLAMA4, "for_llm_compressor", ANY, 0},
    {HF_MIMO2, "mlp_layer_types", ANY, 0}, /* the tensors tell */
    {HF_LAGUNA, "gating", ANY, 0},         /* the tensors tell */
    {HF_LAGUNA, "gating_types", ANY, 0},
    {HF_COHERE2_MOE, "rope_theta", ANY, 0}, /* beside the rope parameters */
    {HF_COHERE2_MOE, "layer_norm_eps", ANY, 0},
    {HF_COHERE2_MOE, "rms_norm_eps", ANY, 0},
    {HF_COHERE2_MOE, "expert_selection_fn", ANY, 0},
    {HF_COHERE2_MOE, "shared_expert_combination_strategy", ANY, 0}, /* of shared experts */
    {HF_COHERE2_MOE, "prefix_dense_sliding_window_pattern", ANY, 0},
    {HF_COHERE2_MOE, "norm_topk_prob", ANY, 0},
    {HF_COHERE2_MOE, "prefix_dense_intermediate_size", ANY, 0},
    {C2 | HF_COHERE2_MOE, "sliding_window_pattern", ANY, 0},
    {C2, "layer_switch", ANY, 0},
    {C2, "order_of_interleaved_layers", ANY, 0},
    {C2, "position_embedding_type", ANY, 0}, /* its class has one */
    {C2, "rotary_pct", EQUAL, 1},
    {C2, "use_embedding_sharing", TRUE, 0},
    {C2, "use_gated_activation", TRUE, 0},
    {C2, "use_parallel_block", TRUE, 0},
    {ER, "moe_norm_min", ANY, 0}, /* of a sum of softmax's largest, which is never so small */
    {ER, "moe_use_aux_free", ANY, 0},
    {ER, "moe_capacity", ANY, 0}, /* training */
    {ER, "moe_gate", ANY, 0},
    {ER, "num_nextn_predict_layers", ANY, 0}, /* nothing else needs those blocks */
    {HY, "use_qk_norm", TRUE, 0},
    {HY, "eod_token_id", ANY, 0},
    {HY, "org_vocab_size", ANY, 0},
    {HF_HUNYUAN, "num_experts", EQUAL, 1},
    {P3, "interpolate_factor", EQUAL, 1},
    {GM, "use_qk_norm", ANY, 0},      /* the tensors tell */
    {MM, "attn_type_list", EQUAL, 1}, /* every layer attends in full */
    {MM, "use_mtp", ANY, 0}, /* blocks that the files don't hold; nothing else needs them */
    {MM, "num_mtp_modules", ANY, 0},
    {MM, "mtp_transformer_layers", ANY, 0},
    {Q2 | QN, "dual_chunk_attention_config", ANY, 0}, /* transformers' class does without */
    {HF_HY_V3, "enable_moe_fp32_combine", ANY, 0},    /* how its library adds */
    {HF_HY_V3, "enable_lm_head_fp32", ANY, 0},
    {HF_HY_V3, "enable_attention_fp32_softmax", ANY, 0},
    {HF_HY_V3, "expert_hidden_dim", ANY, 0},     /* beside moe_intermediate_size */
    {HF_HY_V3, "first_k_dense_replace", ANY, 0}, /* mlp_layer_types decides where both are there */
    {HF_HY_V3, "num_local_experts", ANY, 0},
    {HF_HY_V3, "moe_router_use_sigmoid", TRUE, 0},
    {HF_HY_V3, "moe_router_enable_expert_bias", TRUE, 0},
    {HF_HY_V3 | HF_BAILING2, "num_nextn_predict_layers", ANY, 0}, /* nothing else needs them */
    {HF_BAILING2, "rotary_dim", ANY, 0},                          /* beside partial_rotary_factor */
    {HF_BAILING2, "max_window_layers", ANY, 0},
    {HF_BAILING2, "moe_shared_expert_intermediate_size", ANY, 0}, /* the tensors tell */
    {HF_BAILING2, "moe_router_enable_routed_scaling", TRUE, 0},
    {HF_BAILING2, "moe_router_enable_shared_expert", TRUE, 0},
    {HF_BAILING2, "router_dtype", ANY, 0}, /* how its library adds */
    {HF_BAILING2, "topk_method", ANY, 0},
    {HF_BAILING2, "use_rmsnorm", TRUE, 0},
    {HF_BAILING2, "mtp_loss_scaling_factor", ANY, 0}, /* training */
    {HF_KIMI_LINEAR, "num_key_value_heads", ANY, 0},  /* keys and values come from one latent */
    {HF_KIMI_LINEAR, "head_dim", ANY, 0},
    {HF_KIMI_LINEAR, "moe_layer_freq", EQUAL, 1},
    {HF_KIMI_LINEAR, "use_grouped_topk", ANY, 0}, /* of one group, or its number of groups */
    {HF_KIMI_LINEAR, "num_nextn_predict_layers", ANY, 0}, /* nothing else needs them */
    {F2, "full_attn_idxs", ANY, 0}, /* layer_types decides where both are there */
    {F2, "conv_dim", DIM, 0},
    {F2, "conv_dim_out", DIM, 0},
    {F2, "block_dim", DIM, 0},
    {F2, "block_mlp_init_scale", ANY, 0}, /* training */
    {F2, "block_out_init_scale", ANY, 0},
    {F2, "block_norm_eps", ANY, 0}, /* beside norm_eps */
    {F2, "block_use_swiglu", TRUE, 0},
    {F2, "block_use_xavier_init", ANY, 0},
    {F2, "conv_use_xavier_init", ANY, 0},
    {F2, "num_heads", ANY, 0}, /* beside num_attention_heads */
    {F2, "theta", ANY, 0},     /* beside rope_theta */
    {F2, "use_pos_enc", TRUE, 0},
    {MAMBA, "time_step_min", ANY, 0}, /* how steps begin in training */
    {MAMBA, "time_step_max", ANY, 0},
    {MAMBA, "time_step_rank", ANY, 0},
    {MAMBA, "time_step_floor", ANY, 0},
    {MAMBA, "chunk_size", ANY, 0}, /* of prompts in its library */
    {MAMBA, "mamba_chunk_size", ANY, 0},
    {MAMBA, "mamba_conv_bias", ANY, 0}, /* the tensors tell */
    {MAMBA, "use_conv_bias", ANY, 0},
    {MAMBA, "num_logits_to_keep", ANY, 0},
    {MAMBA, "use_mamba_kernels", ANY, 0},
    {MAMBA, "mamba_ssm_cache_dtype", ANY, 0},
    {MAMBA, "expand", ANY, 0}, /* the heads tell */
    {MAMBA, "mamba_expand", ANY, 0},
    {NH, "hybrid_override_pattern", ANY, 0}, /* layers_block_type decides where both are there */
    {NH, "intermediate_size", ANY, 0},       /* of dense blocks, where there are none */
    {NH, "moe_intermediate_size", ANY, 0},
    {NH, "moe_shared_expert_intermediate_size", ANY, 0},
    {NH, "moe_shared_expert_overlap", ANY, 0},
    {NH, "n_routed_experts", ANY, 0},
    {NH, "n_shared_experts", ANY, 0},
    {NH, "num_experts_per_tok", ANY, 0},
    {NH, "n_group", ANY, 0},
    {NH, "topk_group", ANY, 0},
    {NH, "norm_topk_prob", ANY, 0},
    {NH, "routed_scaling_factor", ANY, 0},
    {NH, "moe_latent_size", ANY, 0},
    {NH, "num_nextn_predict_layers", ANY, 0}, /* nothing else needs those blocks */
    {NH, "mtp_layers_block_type", ANY, 0},
    {NH, "mtp_hybrid_override_pattern", ANY, 0},
    {NH, "rescale_prenorm_residual", ANY, 0}, /* training */
    {NH, "rope_theta", ANY, 0},               /* nothing rotates */
    {NH, "partial_rotary_factor", ANY, 0},
    {NH, "attention_head_dim", ANY, 0},     /* beside head_dim */
    {GH, "normalization_function", ANY, 0}, /* its class has one */
    {GH, "init_method", ANY, 0},
    {HF_GRANITE_HD, "num_experts_per_tok", ANY, 0},
    {HF_GRANITE_HD, "intermediate_size", ANY, 0},
    {HF_GRANITE_HD, "shared_intermediate_size", ANY, 0},
    {NH, "rms_norm_eps", ANY, 0}, /* beside layer_norm_epsilon */
    {NH, "norm_eps", ANY, 0},
    {HF_GRANITE_HD, "mamba_n_heads", ANY, 0}, /* of no block */
    {HF_GRANITE_HD, "mamba_n_groups", ANY, 0},
    {HF_GRANITE_HD, "mamba_d_state", ANY, 0},
    {HF_GRANITE_HD, "mamba_d_head", ANY, 0},
    {HF_GRANITE_HD, "mamba_d_conv", ANY, 0},
    {HF_GRANITE_HD, "time_step_limit", ANY, 0},
    {FH, "mlp_expansion_factor", ANY, 0}, /* intermediate_size says it */
    {FH, "mamba_use_mlp", TRUE, 0},
    {FH, "attn_layer_indices", ANY, 0}, /* null */
    /* of experts that are refused */
    {L | Q2 | HF_QWEN3 | SO | S3 | P3 | HF_ERNIE | GR | HF_HUNYUAN, "num_experts_per_tok", ANY, 0},
    {QM, "n_group", EQUAL, 1},
    {QM, "topk_group", EQUAL, 1},
    {G, "num_key_value_heads", ANY, 0},    /* keys and values come from one latent */
    {G, "head_dim", ANY, 0},               /* another name of qk_rope_head_dim */
    {G, "qk_head_dim", ANY, 0},            /* the sum of its parts */
    {G | GM, "num_local_experts", ANY, 0}, /* another name of n_routed_experts */
    {G | GM, "moe_layer_freq", EQUAL, 1},
    {G | GM, "first_k_dense_replace", ANY, 0}, /* mlp_layer_types decides where both are there */
    {R, "attn_mode", ANY, 0},                  /* which kernel its library takes */
    {R, "use_l2warp", ANY, 0},                 /* training */
    {R, "norm_bias", TRUE, 0},
    {R, "norm_eps", ANY, 0},           /* beside layer_norm_epsilon */
    {R, "head_size", ANY, 0},          /* beside head_dim */
    {R, "decay_low_rank_dim", ANY, 0}, /* the tensors tell */
    {R, "gate_low_rank_dim", ANY, 0},
    {R, "a_low_rank_dim", ANY, 0},
    {R, "v_low_rank_dim", ANY, 0},
    {R, "lora_rank_decay", ANY, 0},
    {R, "lora_rank_iclr", ANY, 0},
    {R, "lora_rank_value_residual_mix", ANY, 0},
    {R, "lora_rank_gate", ANY, 0},
    {R, "num_attention_heads", ANY, 0},
    {R, "num_key_value_heads", ANY, 0},
    {R, "value_dim", DIM, 0},
    {R, "key_dim", DIM, 0},
    {R, "attention_hidden_size", DIM, 0},
    {R, "wkv_version", EQUAL, 7},
};

/* Around a text model's own: towers, and tokens that stand for what they make. */
static const char *const wrapper[] = {
    "text_config",
    "vision_config",
    "audio_config",
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "boi_token_id",
    "eoi_token_id",
    "boa_token_id",
    "eoa_token_id",
    "eoa_token_index",
    "vision_soft_tokens_per_image",
    "out_hidden_size",
    "projector_hidden_size",
    "projector_bias",
    "video_token_index",
    "audio_token_id",
    "audio_token_index",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "image_start_token_id",
    "image_end_token_id",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "image_seq_length",
    "image_grid_pinpoints",
    "vision_aspect_ratio",
    "spatial_merge_size",
    "downsample_ratio",
    "scale_factor",
    "projector_hidden_act",
    "projection_hidden_act",
    "multimodal_projector_bias",
    "use_image_newline_parameter",
    "tie_word_embeddings",
};

/* Of the rope parameters: those that a type does not use say nothing. */
static const char *const rope_fields[] = {
    "rope_theta",
    "rope_type",
    "type",
    "factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "partial_rotary_factor",
    "finetuned",
    "max_position_embeddings",
};

static bool is_in(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static bool has_scale_name(const char *name)
{
    return strstr(name, "scale") || strstr(name, "scaling") || strstr(name, "multiplier") ||
           strstr(name, "factor");
}

/* Off: null, false, 0, empty, a list of such, or a scale of 1. */
static bool is_neutral(const char *name, const json_t *v)
{
    const json_t *e;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)v, i, e)
    {
        if (json_is_array(e) || !is_neutral(name, e)) return false;
    }
    if (json_is_number(v))
        return json_number_value(v) == 0 || (has_scale_name(name) && json_number_value(v) == 1);
    return json_is_null(v) || json_is_false(v) || json_is_array(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool all_are(const json_t *v, double want)
{
    const json_t *e;
    size_t i;
    if (json_is_null(v)) return true;
    if (!json_is_array(v)) return json_is_number(v) && json_number_value(v) == want;
    json_array_foreach((json_t *)(uintptr_t)v, i, e)
    {
        if (!json_is_number(e) || json_number_value(e) != want) return false;
    }
    return true;
}

static bool is_silu(const char *name)
{
    return name &&
           (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0 || strcmp(name, "swiglu") == 0);
}

static bool may_stay(const struct hf *h, const json_t *config, const char *name, const json_t *v)
{
    double dim = json_number_value(json_object_get(config, "hidden_size"));
    if (is_in(base, ARRAY_LEN(base), name) || strstr(name, "dropout") || strstr(name, "_pdrop"))
        return true;
    if (h->wrapped && is_in(wrapper, ARRAY_LEN(wrapper), name)) return true;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (str_starts(str_of(name), prefixes[i])) return true;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const struct field *f = &fields[i];
        if (!(f->archs & h->arch) || strcmp(f->name, name) != 0) continue;
        switch (f->values) {
        case ANY: return true;
        case TRUE: return json_is_true(v) || json_is_null(v);
        case EQUAL: return all_are(v, f->value);
        case DIM: return all_are(v, dim);
        case SILU: return json_is_null(v) || is_silu(json_string_value(v));
        }
    }
    return is_neutral(name, v);
}

static void refuse(const struct source *s, const char *where, const char *name, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct err_quoted key = err_quote(str_of(name));
    struct err_quoted value = err_quote(str_of(text ? text : "?"));
    size_t n = strlen(value.text);
    /* a JSON string has quotes of its own */
    source_refuse(s, "config.json: %s%s = %.*s", where, key.text, (int)(n - 2), value.text + 1);
    free(text);
}

/* Ids that no row of the embedding belongs to. Padding is for training: its id often lies beyond
 * the vocabulary of a model that was never resized for it. */
static void check_ids(const struct source *s, const json_t *config)
{
    static const char *const ids[] = {"bos_token_id", "eos_token_id"};
    json_int_t n = json_integer_value(json_object_get(config, "vocab_size"));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        const json_t *v = json_object_get(config, ids[i]), *list = json_array_get(v, 0);
        size_t k = 0;
        for (const json_t *id = list ? list : v; id; id = json_array_get(v, ++k)) {
            json_int_t x = json_integer_value(id);
            if (json_is_integer(id) && x != -1 && (x < 0 || x >= n))
                source_refuse(s, "config.json: %s = %lld (vocab_size is %lld)", ids[i],
                              (long long)x, (long long)n);
        }
    }
}

int hf_check_outer(const struct source *s, const struct hf *h, const json_t *config)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)config, name, v)
    {
        bool quantised = strcmp(name, "quantization_config") == 0; /* was read, or refused */
        if (!quantised && !may_stay(h, config, name, v)) refuse(s, "", name, v);
    }
    return 0;
}

int hf_check_fields(const struct source *s, const struct hf *h, const json_t *config,
                    const struct strmap asked[2], struct err *err)
{
    json_t *rope = json_object_get(config, "rope_parameters"), *v;
    const char *name;
    u32 i;
    if (!strmap_ok(&asked[0]) || !strmap_ok(&asked[1])) return err_nomem(err, "config.json");
    json_object_foreach((json_t *)(uintptr_t)config, name, v)
    {
        if (!strmap_get(&asked[0], str_of(name), &i) && !may_stay(h, config, name, v))
            refuse(s, "", name, v);
    }
    if (json_object_size(json_object_get(config, "rope_scaling")))
        rope = json_object_get(config, "rope_scaling");
    json_object_foreach(rope, name, v)
    {
        /* positions of pictures: those of text are the same in all sections */
        bool sections =
            ((h->wrapped && (h->arch & (Q2 | QN))) || (h->arch & D)) &&
            (strcmp(name, "mrope_section") == 0 || strcmp(name, "mrope_interleaved") == 0);
        if (!sections && !strmap_get(&asked[1], str_of(name), &i) &&
            !is_in(rope_fields, ARRAY_LEN(rope_fields), name) && !is_neutral(name, v))
            refuse(s, "rope parameter ", name, v);
    }
    check_ids(s, config);
    return 0;
}
