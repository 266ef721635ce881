#include "format/hf.h"

#include "format/hf_opened.h"

/* Metadata */

static void llama_keys(void **state)
{
    (void)state;
    struct source *s = must_open(LLAMA(",\"num_key_value_heads\":1,\"rope_theta\":500000.0"));
    assert_true(str_of_is(s, "general.architecture", "llama"));
    assert_true(str_of_is(s, "general.type", "model"));
    assert_true(str_of_is(s, "general.name", strrchr(dir.path, '/') + 1));
    assert_int_equal(u32_of(s, "llama.embedding_length"), 8);
    assert_int_equal(u32_of(s, "llama.block_count"), 1);
    assert_int_equal(u32_of(s, "llama.attention.head_count"), 2);
    assert_int_equal(u32_of(s, "llama.attention.head_count_kv"), 1);
    assert_int_equal(u32_of(s, "llama.attention.key_length"), 4);
    assert_int_equal(u32_of(s, "llama.attention.value_length"), 4);
    assert_int_equal(u32_of(s, "llama.rope.dimension_count"), 4);
    assert_int_equal(u32_of(s, "llama.feed_forward_length"), 6);
    assert_int_equal(u32_of(s, "llama.context_length"), 64);
    assert_int_equal(u32_of(s, "llama.vocab_size"), 5);
    NEAR(f32_of(s, "llama.attention.layer_norm_rms_epsilon"), 1e-5);
    NEAR(f32_of(s, "llama.rope.freq_base"), 500000);
    assert_null(source_kv(s, "llama.rope.scaling.type"));
    assert_null(source_tensor(s, "rope_freqs.weight"));
    source_close(s);
}

static void absent_and_null_take_the_defaults(void **state)
{
    (void)state;
    struct source *s =
        must_open(LLAMA(",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":null"));
    assert_int_equal(u32_of(s, "llama.attention.head_count_kv"), 2);
    assert_int_equal(u32_of(s, "llama.attention.key_length"), 4);
    NEAR(f32_of(s, "llama.rope.freq_base"), 10000);
    source_close(s);
}

static void architectures_get_their_gguf_names(void **state)
{
    (void)state;
    static const struct {
        const char *config, *arch;
    } cases[] = {
        {CONFIG("MistralForCausalLM", LLAMA_BODY, ",\"head_dim\":6,\"sliding_window\":4096"),
         "llama"},
        {CONFIG("Qwen2ForCausalLM", LLAMA_BODY, ",\"use_sliding_window\":false"), "qwen2"},
        {CONFIG("Qwen3ForCausalLM", LLAMA_BODY, ""), "qwen3"},
        {MOE(""), "qwen3moe"},
        {GLM(""), "deepseek2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct source *s = must_open(cases[i].config);
        assert_true(str_of_is(s, "general.architecture", cases[i].arch));
        source_close(s);
    }
}

static void qwen3moe_keys(void **state)
{
    (void)state;
    struct source *s = must_open(MOE(",\"norm_topk_prob\":true,\"mlp_only_layers\":[]"));
    assert_int_equal(u32_of(s, "qwen3moe.expert_count"), 3);
    assert_int_equal(u32_of(s, "qwen3moe.expert_used_count"), 2);
    assert_int_equal(u32_of(s, "qwen3moe.expert_feed_forward_length"), 4);
    assert_true(bool_of(s, "qwen3moe.expert_weights_norm"));
    source_close(s);
    s = must_open(MOE("")); /* transformers' default */
    assert_false(bool_of(s, "qwen3moe.expert_weights_norm"));
    source_close(s);
}

static void glm_keys(void **state)
{
    (void)state;
    struct source *s =
        must_open(GLM(",\"first_k_dense_replace\":1,\"routed_scaling_factor\":1.5,"
                      "\"topk_method\":\"noaux_tc\",\"num_nextn_predict_layers\":1,"
                      "\"rope_parameters\":{\"rope_theta\":1000000,\"rope_type\":\"default\"}"));
    static const struct {
        const char *key;
        u32 value;
    } ints[] = {
        {"block_count", 1},
        {"embedding_length", 8},
        {"feed_forward_length", 6},
        {"attention.head_count", 2},
        {"attention.head_count_kv", 1},
        {"attention.q_lora_rank", 6},
        {"attention.kv_lora_rank", 4},
        {"attention.key_length", 6},
        {"attention.value_length", 4},
        {"attention.key_length_mla", 5},
        {"attention.value_length_mla", 5},
        {"rope.dimension_count", 2},
        {"expert_count", 4},
        {"expert_used_count", 2},
        {"expert_group_count", 1},
        {"expert_group_used_count", 1},
        {"expert_shared_count", 1},
        {"expert_feed_forward_length", 7},
        {"expert_gating_func", 2},
        {"leading_dense_block_count", 1},
        {"vocab_size", 5},
        {"context_length", 64},
    };
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        char key[96];
        snprintf(key, sizeof key, "deepseek2.%s", ints[i].key);
        if (u32_of(s, key) != ints[i].value) fail_msg("%s is %u", key, u32_of(s, key));
    }
    NEAR(f32_of(s, "deepseek2.rope.freq_base"), 1e6);
    NEAR(f32_of(s, "deepseek2.attention.layer_norm_rms_epsilon"), 1e-5);
    NEAR(f32_of(s, "fletch.mla_norm_epsilon"), 1e-6);
    NEAR(f32_of(s, "deepseek2.expert_weights_scale"), 1.5);
    assert_true(bool_of(s, "deepseek2.expert_weights_norm"));
    assert_null(source_kv(s, "deepseek2.nextn_predict_layers")); /* no tensors of it */
    source_close(s);
    s = must_open(GLM(",\"mlp_layer_types\":[\"sparse\"]"));
    assert_int_equal(u32_of(s, "deepseek2.leading_dense_block_count"), 0);
    source_close(s);
}

static void refuses_what_it_would_compute_wrongly(void **state)
{
    (void)state;
    static const struct {
        const char *config, *text;
    } cases[] = {
        {CONFIG("GemmaForCausalLM", LLAMA_BODY, ""), "architecture 'GemmaForCausalLM'"},
        {"{" LLAMA_BODY "}", "missing architectures"},
        {"[]", "missing architectures"},
        {LLAMA(",\"quantization_config\":{\"quant_method\":\"fp8\"}"),
         "fp8 are supported only with"},
        {LLAMA(",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}"), "'e5m2'"},
        {LLAMA(",\"quantization_config\":{\"quant_method\":\"awq\"}"), "quantized with 'awq'"},
        {LLAMA(",\"quantization_config\":{}"), "quantized with an unnamed method"},
        {LLAMA(",\"hidden_act\":\"gelu\""), "hidden_act 'gelu'"},
        {LLAMA(",\"hidden_act\":3"), "hidden_act (not a string)"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"longrope\"}"), "short_factor is not a list of 2"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2],"
               "\"long_factor\":[1,0]}"),
         "long_factor is not a list of 2 numbers greater than 0"},
        {MOE(",\"rope_scaling\":{\"type\":\"longrope\"}"),
         "longrope is not supported for qwen3moe"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}"), "rope type 'dynamic'"},
        {LLAMA(",\"rope_scaling\":{\"type\":7}"), "rope type is not a string"},
        {LLAMA(",\"rope_scaling\":3"), "not an object"},
        {LLAMA(",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}"),
         "per kind of layer ('full_attention')"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"linear\"}"), "missing factor"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0}"), "invalid factors"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}"), "missing low_freq_factor"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
               "\"high_freq_factor\":4,\"original_max_position_embeddings\":8}"),
         "invalid factors"},
        {CONFIG("Qwen3ForCausalLM", LLAMA_BODY,
                ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                "\"high_freq_factor\":4,\"original_max_position_embeddings\":8}"),
         "llama3 is not supported for qwen3"},
        {LLAMA(",\"partial_rotary_factor\":0.5"), "partial_rotary_factor"},
        {LLAMA(",\"rope_theta\":0"), "rope_theta must be greater than 0"},
        {LLAMA(",\"rope_theta\":\"1\""), "rope_theta must be a number of at least 0"},
        {LLAMA(",\"head_dim\":3"), "head size 3 is odd"},
        {LLAMA(",\"head_dim\":0"), "head_dim is not an integer from 1"},
        {LLAMA(",\"tie_word_embeddings\":1"), "tie_word_embeddings is not a boolean"},
        {CONFIG("LlamaForCausalLM", "\"hidden_size\":8", ""), "missing max_position_embeddings"},
        {CONFIG("LlamaForCausalLM",
                "\"hidden_size\":8,\"max_position_embeddings\":9,\"num_hidden_layers\":513", ""),
         "num_hidden_layers is not an integer from 1 to 512"},
        {MOE(",\"decoder_sparse_step\":2"), "decoder_sparse_step"},
        {MOE(",\"mlp_only_layers\":[0]"), "mlp_only_layers"},
        {GLM(",\"topk_method\":\"greedy\""), "topk_method 'greedy'"},
        {GLM(",\"scoring_func\":\"softmax\""), "scoring_func 'softmax'"},
        {GLM(",\"rope_interleave\":false"), "rope_interleave false"},
        {GLM(",\"attention_bias\":true"), "attention_bias true"},
        {GLM(",\"mlp_layer_types\":[\"other\"]"), "mlp_layer_types"},
        {GLM(",\"mlp_layer_types\":[]"), "mlp_layer_types"},
        {RWKV(",\"attn\":{\"layers\":[0]}"), "attention layers in RWKV-7"},
        {RWKV(",\"hidden_ratio\":1e9"), "hidden_ratio"},
        {RWKV(""), "w_lora.lora.0.weight' is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) must_fail(cases[i].config, cases[i].text);
}

/* Fields as transformers' configuration classes (and fla's for RWKV-7) write them, with what
 * published models and the tools that train them add. */
#define BASE_FIELDS                                                                              \
    "\"model_type\":\"x\",\"_name_or_path\":\"a/b\",\"name_or_path\":\"a/b\","                   \
    "\"auto_map\":{\"AutoConfig\":\"c.C\"},\"transformers_version\":\"5.0.0\","                  \
    "\"torch_dtype\":\"bfloat16\",\"dtype\":\"bfloat16\",\"return_dict\":true,"                  \
    "\"output_hidden_states\":false,\"output_attentions\":false,\"use_cache\":true,"             \
    "\"chunk_size_feed_forward\":0,\"is_encoder_decoder\":false,\"is_decoder\":false,"           \
    "\"add_cross_attention\":false,\"cross_attention_hidden_size\":null,"                        \
    "\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\"},\"label2id\":{\"LABEL_0\":0},"           \
    "\"num_labels\":2,\"problem_type\":null,\"finetuning_task\":null,\"pruned_heads\":{},"       \
    "\"task_specific_params\":{\"a\":1},\"tokenizer_class\":\"T\",\"prefix\":null,"              \
    "\"tie_encoder_decoder\":false,\"torchscript\":false,\"use_bfloat16\":false,"                \
    "\"tf_legacy_loss\":false,\"bos_token_id\":1,\"eos_token_id\":[2,3],\"pad_token_id\":32000," \
    "\"sep_token_id\":null,\"decoder_start_token_id\":null,\"do_sample\":true,"                  \
    "\"temperature\":0.6,\"top_k\":50,\"top_p\":0.9,\"typical_p\":1.0,\"max_length\":4096,"      \
    "\"min_length\":0,\"num_beams\":1,\"num_beam_groups\":1,\"diversity_penalty\":0.0,"          \
    "\"repetition_penalty\":1.1,\"length_penalty\":1.0,\"early_stopping\":false,"                \
    "\"no_repeat_ngram_size\":0,\"encoder_no_repeat_ngram_size\":0,\"bad_words_ids\":null,"      \
    "\"num_return_sequences\":1,\"exponential_decay_length_penalty\":null,"                      \
    "\"forced_bos_token_id\":null,\"forced_eos_token_id\":null,\"remove_invalid_values\":false," \
    "\"suppress_tokens\":null,\"begin_suppress_tokens\":null,\"return_dict_in_generate\":false," \
    "\"output_scores\":false,\"initializer_range\":0.02,\"attention_dropout\":0.1,"              \
    "\"hidden_dropout\":0.1,\"resid_pdrop\":0.1,\"classifier_dropout\":0.1,"                     \
    "\"attn_implementation\":\"flash_attention_2\",\"_attn_implementation_autoset\":true,"       \
    "\"gradient_checkpointing\":true,\"unsloth_version\":\"2025.3\",\"unsloth_fixed\":true,"     \
    "\"transformers.js_config\":{\"kv_cache_dtype\":{}},\"quantization_config\":null,"           \
    "\"per_layer_config\":null,\"a_later_switch\":false,\"a_later_scale\":1.0,"                  \
    "\"a_later_list\":[]"
#define DENSE_FIELDS                                                                         \
    "\"base_model_name_or_path\":\"a/b\",\"license\":\"mit\",\"tags\":[\"t\"],"              \
    "\"layer_norm_eps\":1e-5,\"activation\":\"swiglu\",\"hidden_act\":\"silu\","             \
    "\"pretraining_tp\":1,\"attention_bias\":false,\"mlp_bias\":false,"                      \
    "\"num_key_value_heads\":2,\"head_dim\":4,\"rope_theta\":10000.0,\"rope_scaling\":null," \
    "\"rope_interleaved\":false,\"is_llama_config\":true,\"tie_word_embeddings\":false"
#define QWEN_FIELDS                                                                          \
    "\"hidden_act\":\"silu\",\"num_key_value_heads\":2,\"use_sliding_window\":false,"        \
    "\"sliding_window\":4096,\"max_window_layers\":28,\"layer_types\":[\"full_attention\"]," \
    "\"attention_bias\":false,\"use_mrope\":false,\"qkv_bias\":false,\"rope_parameters\":{"  \
    "\"rope_theta\":1000000.0,\"rope_type\":\"default\",\"factor\":1.0},"                    \
    "\"dual_chunk_attention_config\":{\"chunk_size\":262144}"
#define MOE_FIELDS                                                                           \
    QWEN_FIELDS ",\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"norm_topk_prob\":true," \
                "\"output_router_logits\":false,\"router_aux_loss_coef\":0.001,"             \
                "\"shared_expert_intermediate_size\":0,\"use_qk_norm\":true"
#define GLM_FIELDS                                                                              \
    "\"hidden_act\":\"silu\",\"num_key_value_heads\":2,\"head_dim\":2,\"qk_head_dim\":5,"       \
    "\"topk_method\":\"noaux_tc\",\"scoring_func\":\"sigmoid\",\"norm_topk_prob\":true,"        \
    "\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.8,\"first_k_dense_replace\":1," \
    "\"mlp_layer_types\":[\"dense\"],\"moe_layer_freq\":1,\"num_nextn_predict_layers\":1,"      \
    "\"partial_rotary_factor\":1.0,\"rope_scaling\":null,\"rope_theta\":1000000,"               \
    "\"rope_interleave\":true,\"attention_bias\":false,\"pretraining_tp\":1,\"ep_size\":1,"     \
    "\"num_local_experts\":4,\"tie_word_embeddings\":false"
#define RWKV_FIELDS                                                                          \
    "\"attn_mode\":\"chunk\",\"attn\":null,\"hidden_act\":\"sqrelu\",\"hidden_ratio\":4.0,"  \
    "\"num_heads\":2,\"decay_low_rank_dim\":5,\"gate_low_rank_dim\":5,\"a_low_rank_dim\":5," \
    "\"v_low_rank_dim\":5,\"max_position_embeddings\":2048,\"norm_first\":true,"             \
    "\"norm_bias\":true,\"fuse_norm\":true,\"fuse_cross_entropy\":true,"                     \
    "\"fuse_linear_cross_entropy\":false,\"use_l2warp\":true,\"value_dim\":[8,8],"           \
    "\"tie_word_embeddings\":false"

static void put_rwkv_block(int n);

static void what_configuration_classes_write_opens(void **state)
{
    (void)state;
    static const char *const configs[] = {
        LLAMA("," BASE_FIELDS "," DENSE_FIELDS),
        CONFIG("MistralForCausalLM", LLAMA_BODY,
               "," BASE_FIELDS "," DENSE_FIELDS ",\"sliding_window\":null"),
        CONFIG("Qwen2ForCausalLM", LLAMA_BODY, "," BASE_FIELDS "," QWEN_FIELDS),
        CONFIG("Qwen3ForCausalLM", LLAMA_BODY, "," BASE_FIELDS "," QWEN_FIELDS),
        MOE("," BASE_FIELDS "," MOE_FIELDS),
        MOE(",\"num_local_experts\":3"),
        GLM("," BASE_FIELDS "," GLM_FIELDS),
        RWKV("," BASE_FIELDS "," RWKV_FIELDS),
    };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct err err = {0};
        if (strstr(configs[i], "RWKV7")) {
            put_rwkv_block(0);
            put_rwkv_block(1);
        }
        struct source *s = must_open(configs[i]);
        if (source_refused_error(s, &err)) fail_msg("%zu: %s", i, err.text);
        source_close(s);
    }
}

static void fields_that_nobody_knows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *text;
    } cases[] = {
        {LLAMA(",\"a_later_switch\":true"), "'a_later_switch' = true"},
        {LLAMA(",\"a_later_count\":3"), "'a_later_count' = 3"},
        {LLAMA(",\"activation\":\"gelu\""), "'activation' = "},
        {LLAMA(",\"a_later_name\":\"x\""), "'a_later_name' = "},
        {LLAMA(",\"a_later_list\":[0,1]"), "'a_later_list' = [0,1]"},
        {LLAMA(",\"a_later_scale\":0.5"), "'a_later_scale' = 0.5"},
        {LLAMA(",\"attn_logit_softcapping\":50.0"), "attn_logit_softcapping"},
        {LLAMA(",\"logits_scaling\":8.0"), "logits_scaling"},
        {LLAMA(",\"residual_multiplier\":0.22"), "residual_multiplier"},
        {LLAMA(",\"is_causal\":false"), "'is_causal' = false"},
        {LLAMA(",\"use_qk_norm\":true"), "use_qk_norm"},
        {LLAMA(",\"is_encoder_decoder\":true"), "is_encoder_decoder"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[16,24,24]}"),
         "rope parameter 'mrope_section' = [16,24,24]"},
        {LLAMA(",\"bos_token_id\":5"), "bos_token_id = 5 (vocab_size is 5)"},
        {LLAMA(",\"eos_token_id\":[1,9]"), "eos_token_id = 9"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
               "\"rope_parameters\":{\"rope_theta\":5000}"),
         "'rope_theta' of rope_parameters contradicts rope_scaling"},
        {LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
               "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}"),
         "'factor' of rope_parameters contradicts rope_scaling"},
        {LLAMA(",\"original_max_position_embeddings\":32,\"rope_scaling\":{\"type\":\"yarn\","
               "\"factor\":4,\"original_max_position_embeddings\":16}"),
         "original_max_position_embeddings is 32, but 16 in the rope parameters"},
        {MOE(",\"num_local_experts\":2"), "num_experts and num_local_experts differ"},
        {LLAMA(",\"layer_types\":[\"linear_attention\"]"),
         "layer_types contains 'linear_attention'"},
        {CONFIG("Qwen3ForCausalLM", LLAMA_BODY, ",\"use_qk_norm\":false"), "use_qk_norm"},
        {MOE(",\"shared_expert_intermediate_size\":512"), "shared_expert_intermediate_size"},
        {MOE(",\"n_group\":2"), "n_group"},
        {GLM(",\"moe_layer_freq\":2"), "moe_layer_freq"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) must_fail(cases[i].config, cases[i].text);
    put_rwkv_block(0);
    put_rwkv_block(1);
    must_fail(RWKV(",\"value_dim\":[8,16]"), "'value_dim' = [8,16]");
    put_rwkv_block(0);
    put_rwkv_block(1);
    must_fail(RWKV(",\"hidden_act\":\"relu\""), "hidden_act 'relu'");
}

#define LAYERS_BODY                                                                 \
    "\"hidden_size\":8,\"num_hidden_layers\":5,\"num_attention_heads\":2,"          \
    "\"intermediate_size\":6,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64," \
    "\"vocab_size\":5"

/* Blocks that differ in kind, in the spellings there are; what GGUF can't say is refused. */
static void kinds_of_blocks_are_listed(void **state)
{
    (void)state;
#define HYBRID(class, more)                                                                  \
    "{\"architectures\":[\"" class "\"],\"hidden_size\":8,\"num_attention_heads\":2,"        \
                                   "\"intermediate_size\":6,\"max_position_embeddings\":64," \
                                   "\"vocab_size\":5" more "}"
#define LFM2(more)     HYBRID("Lfm2ForCausalLM", ",\"num_hidden_layers\":2,\"norm_eps\":1e-5" more)
#define NEMOTRON(more) HYBRID("NemotronHForCausalLM", more)
    must_fail(LFM2(""), "missing layer_types");
    must_fail(LFM2(",\"layer_types\":[\"conv\"]"), "has 1 entries, but num_hidden_layers is 2");
    must_fail(LFM2(",\"layer_types\":[\"conv\",\"moe\"]"), "contains 'moe'");
    must_fail(LFM2(",\"layer_types\":[\"conv\",1]"), "contains no string");
    must_fail(LFM2(",\"layer_types\":[\"conv\",\"conv\"],\"conv_bias\":true"), "conv_bias");
    must_fail(NEMOTRON(""), "missing layer_types");
    must_fail(NEMOTRON(",\"hybrid_override_pattern\":\"\""), "has 0 letters");
    must_fail(NEMOTRON(",\"hybrid_override_pattern\":\"M?\""), "'M?' is not supported");
    must_fail(NEMOTRON(",\"hybrid_override_pattern\":\"M-E\""),
              "both expert blocks and dense blocks");
}

/* By the file, or by the rules of transformers' classes. W: the layer has a window. */
static void layers_with_a_window_are_listed(void **state)
{
    (void)state;
    static const struct {
        const char *config, *key, *layers;
    } cases[] = {
        {CONFIG("Gemma2ForCausalLM", LAYERS_BODY, ""), "gemma2", "W.W.W"},
        {CONFIG("Gemma3ForCausalLM", LAYERS_BODY, ",\"sliding_window_pattern\":3"), "gemma3",
         "WW.WW"},
        {CONFIG("GptOssForCausalLM", LAYERS_BODY,
                ",\"num_local_experts\":4,\"num_experts_per_tok\":2,"
                "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
                "\"full_attention\",\"sliding_attention\"]"),
         "gpt-oss", ".W..W"},
        {CONFIG("Exaone4ForCausalLM", LAYERS_BODY, ",\"sliding_window_pattern\":\"LLG\""),
         "exaone4", "WW.WW"},
        {CONFIG("Cohere2ForCausalLM", LAYERS_BODY, ""), "cohere2", "WWW.W"},
        {CONFIG("Olmo3ForCausalLM", LAYERS_BODY, ""), "olmo2", "WWW.W"},
        {CONFIG("Qwen2ForCausalLM", LAYERS_BODY,
                ",\"sliding_window\":8,\"use_sliding_window\":true,\"max_window_layers\":3"),
         "qwen2", "...WW"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct source *s = must_open(cases[i].config);
        char key[64], got[6] = "";
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", cases[i].key);
        const struct kv *kv = source_kv(s, key);
        if (!kv || kv->n != 5 || kv->elem != KV_BOOL) fail_msg("no %s", key);
        for (u32 k = 0; k < 5; k++) got[k] = kv->data[k] ? 'W' : '.';
        assert_string_equal(got, cases[i].layers);
        source_close(s);
    }
    must_fail(CONFIG("Exaone4ForCausalLM", LAYERS_BODY, ",\"sliding_window_pattern\":\"LGL\""),
              "sliding_window_pattern 'LGL' is not supported");
    must_fail(CONFIG("Gemma2ForCausalLM", LAYERS_BODY, ",\"layer_types\":[\"sliding_attention\"]"),
              "layer_types has 1 entries, but num_hidden_layers is 5");
}

/* Shapes that no published file has: the values still fit what is made for them. */
static void odd_shapes_overrun_nothing(void **state)
{
    (void)state;
    struct err err = {0};
    const u8 *data;
    TESTDIR_TENSOR(&dir, "model.layers.0.input_layernorm.weight", QT_BF16, 0, 1, 8);
    struct source *s = must_open(CONFIG("Gemma2ForCausalLM", LAYERS_BODY, ""));
    const struct tensor *t = source_tensor(s, "blk.0.attn_norm.weight");
    assert_true(t && t->type == QT_F32 && t->n_bytes == 8 * sizeof(float));
    assert_int_equal(source_data(s, t, &data, &err), 0);
    for (u32 i = 0; i < 8; i++) {
        float x;
        memcpy(&x, data + i * sizeof x, sizeof x);
        assert_true(x > (float)i + 0.5f && x < (float)i + 1.5f); /* norms are stored less one */
    }
    source_close(s);
    testdir_tensor(&dir, "model.layers.0.mlp.experts.gate_up_proj_bias", QT_F32, 0, 0, NULL);
    must_fail(CONFIG("GptOssForCausalLM", LAYERS_BODY,
                     ",\"num_local_experts\":4,\"num_experts_per_tok\":2"),
              "gate_up_proj_bias': its shape is not");
}

/* Published files of Gemma 3 leave out what its class has as defaults. */
static void gemma3_needs_few_fields(void **state)
{
    (void)state;
    struct source *s =
        must_open("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{"
                  "\"model_type\":\"gemma3_text\",\"hidden_size\":8,\"num_hidden_layers\":1,"
                  "\"intermediate_size\":6,\"sliding_window\":1024,"
                  "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}}");
    assert_int_equal(u32_of(s, "gemma3.attention.head_count"), 8);
    assert_int_equal(u32_of(s, "gemma3.attention.head_count_kv"), 4);
    assert_int_equal(u32_of(s, "gemma3.attention.key_length"), 256);
    assert_int_equal(u32_of(s, "gemma3.context_length"), 131072);
    assert_int_equal(u32_of(s, "gemma3.vocab_size"), 262208);
    NEAR(f32_of(s, "gemma3.rope.freq_base"), 1e6f);
    NEAR(f32_of(s, "gemma3.rope.freq_base_swa"), 1e4f);
    NEAR(f32_of(s, "gemma3.rope.scaling.factor"), 8);
    NEAR(f32_of(s, "gemma3.attention.scale"), 1 / 16.0f);
    NEAR(f32_of(s, "gemma3.attention.layer_norm_rms_epsilon"), 1e-6f);
    source_close(s);
}

static void yarn_without_rounding_has_a_key_of_ours(void **state)
{
    (void)state;
    struct source *s =
        must_open(LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}"));
    assert_false(bool_of(s, "fletch.yarn_truncate"));
    source_close(s);
}

/* As transformers' classes decide whether there is one. */
static void windows_are_found(void **state)
{
    (void)state;
#define MISTRAL(extra) CONFIG("MistralForCausalLM", LLAMA_BODY, extra)
#define QWEN2(extra)   CONFIG("Qwen2ForCausalLM", LLAMA_BODY, extra)
    static const struct {
        const char *config;
        u32 window; /* 0: none */
    } cases[] = {
        {MISTRAL(",\"sliding_window\":32"), 32},
        {MISTRAL(",\"sliding_window\":null"), 0},
        {MISTRAL(""), 4096},
        {LLAMA(""), 0},
        {LLAMA(",\"sliding_window\":32"), 32},
        {LLAMA(",\"sliding_window\":32,\"use_sliding_window\":false"), 0},
        {QWEN2(",\"sliding_window\":32"), 0},
        {QWEN2(",\"sliding_window\":32,\"use_sliding_window\":true"), 0}, /* from layer 28 on */
        {QWEN2(",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":0"), 32},
        {QWEN2(",\"sliding_window\":32,\"use_sliding_window\":true,"
               "\"layer_types\":[\"sliding_attention\"]"),
         32},
        {QWEN2(",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":0,"
               "\"layer_types\":[\"full_attention\"]"),
         0},
        {MOE(",\"sliding_window\":32"), 0},
        {MOE(",\"sliding_window\":32,\"use_sliding_window\":true"), 32},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct source *s = must_open(cases[i].config);
        struct str arch;
        char key[64];
        u32 n = 0;
        assert_int_equal(source_get_str(s, "general.architecture", &arch, NULL), 0);
        snprintf(key, sizeof key, "%.*s.attention.sliding_window", (int)arch.n, arch.p);
        source_get_u32(s, key, &n, NULL);
        if (n != cases[i].window) fail_msg("%s: %u", cases[i].config, n);
        source_close(s);
    }
}

#define WRAPPED(type, extra)                                                                 \
    "{\"architectures\":[\"LlavaForConditionalGeneration\"],\"model_type\":\"llava\","       \
    "\"image_token_index\":4,\"vision_config\":{\"any\":1},\"text_config\":{\"model_type\":" \
    "\"" type "\"," LLAMA_BODY "}" extra "}"

static void a_text_model_is_found_in_its_wrapper(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"language_model.model.", "model.language_model.",
                                           "model.text_model.", "model."};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        char name[64];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        TESTDIR_TENSOR(&dir, name, QT_F32, 0, 5, 8);
        TESTDIR_TENSOR(&dir, i ? "lm_head.weight" : "language_model.lm_head.weight", QT_F32, 40, 5,
                       8);
        TESTDIR_TENSOR(&dir, i ? "model.vision_tower.a" : "vision_tower.a", QT_F32, 0, 2);
        TESTDIR_TENSOR(&dir, "multi_modal_projector.b", QT_F32, 0, 2);
        struct source *s = must_open(WRAPPED("mistral", ""));
        assert_true(str_of_is(s, "general.architecture", "llama"));
        assert_int_equal(s->refused->n, 0);
        assert_non_null(source_tensor(s, "token_embd.weight"));
        assert_non_null(source_tensor(s, "output.weight"));
        assert_int_equal(s->n_tensors, 2);
        assert_non_null(strstr(s->left_out, "skips 2 tensors"));
        source_close(s);
        s = must_open(WRAPPED("mistral", ",\"tie_word_embeddings\":true"));
        assert_null(source_tensor(s, "output.weight"));
        source_close(s);
        unlink(testdir_path(&dir, "model.safetensors"));
    }
    must_fail(WRAPPED("gemma3n_text", ""),
              "'LlavaForConditionalGeneration' has type 'gemma3n_text'");
    must_fail(WRAPPED("llama", ",\"logit_cap\":30"), "config.json: 'logit_cap' = 30");
    must_fail(WRAPPED("llama", ",\"quantization_config\":{\"quant_method\":\"awq\"}"), "'awq'");
    TESTDIR_TENSOR(&dir, "language_model.lora.weight", QT_F32, 0, 2);
    unlink(testdir_path(&dir, "model.safetensors"));
    must_fail(WRAPPED("llama", ""), "tensor 'language_model.lora.weight' does not belong");
}

static void spare_tensors_are_left_out(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.rotary_emb.inv_freq", QT_F32, 0, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.rotary_emb.inv_freq", QT_F32, 0, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.attention.masked_bias", QT_F32, 0, 1);
    TESTDIR_TENSOR(&dir, "model.layers.0.attention.bias", QT_F32, 0, 1);
    struct source *s = must_open(LLAMA(""));
    assert_int_equal(s->refused->n, 0);
    source_close(s);
    TESTDIR_TENSOR(&dir, "model.layers.1.eh_proj.weight", QT_F32, 0, 8, 16);
    TESTDIR_TENSOR(&dir, "model.layers.1.enorm.weight", QT_F32, 0, 8);
    s = must_open(GLM("")); /* an MTP block that is not announced */
    assert_int_equal(s->refused->n, 0);
    source_close(s);
    TESTDIR_TENSOR(&dir, "model.layers.1.enorm.weight", QT_F32, 0, 8);
    must_fail(GLM(""), "'model.layers.1.enorm.weight' does not belong");
}

static void generation_config_gives_sampling_defaults(void **state)
{
    (void)state;
    testdir_puts(&dir, "generation_config.json",
                 "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,"
                 "\"min_p\":0.05,\"repetition_penalty\":1.1,\"eos_token_id\":[1,2]}");
    struct source *s = must_open(LLAMA(""));
    NEAR(f32_of(s, "general.sampling.temp"), 0.6);
    NEAR(f32_of(s, "general.sampling.top_p"), 0.95);
    NEAR(f32_of(s, "general.sampling.min_p"), 0.05);
    NEAR(f32_of(s, "general.sampling.penalty_repeat"), 1.1);
    assert_int_equal(u32_of(s, "general.sampling.top_k"), 20);
    assert_int_equal(source_kv(s, "general.sampling.top_k")->type, KV_I32);
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"do_sample\":false,\"temperature\":0.6}");
    s = must_open(LLAMA(""));
    assert_true(f32_of(s, "general.sampling.temp") == 0);
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"bos_token_id\":1}");
    s = must_open(LLAMA(""));
    assert_null(source_kv(s, "general.sampling.temp"));
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"temperature\":\"hot\"}");
    must_fail(LLAMA(""), "temperature is not a number");
    testdir_puts(&dir, "generation_config.json", "{\"top_k\":-2}");
    must_fail(LLAMA(""), "top_k is not an integer");
    testdir_puts(&dir, "generation_config.json", "{\"top_k\":1.5}");
    must_fail(LLAMA(""), "top_k is not an integer");
    testdir_puts(&dir, "generation_config.json", "{\"top_k\":50.0}");
    s = must_open(LLAMA(""));
    assert_int_equal(u32_of(s, "general.sampling.top_k"), 50);
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"top_k\":-1}"); /* all tokens */
    s = must_open(LLAMA(""));
    i64 top_k = 0;
    assert_true(kv_int(source_kv(s, "general.sampling.top_k"), 0, &top_k) && top_k == -1);
    source_close(s);
}

/* Tensors */

static void plain_tensors_are_mapped_under_new_names(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.embed_tokens.weight", QT_BF16, 0, 2, 3);
    TESTDIR_TENSOR(&dir, "lm_head.weight", QT_F16, 10, 2, 3);
    TESTDIR_TENSOR(&dir, "model.norm.weight", QT_F32, 20, 3);
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.down_proj.weight", QT_F32, 30, 1, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.rotary_emb.inv_freq", QT_F32, 0, 2);
    struct source *s = must_open(LLAMA(""));
    assert_int_equal(s->n_tensors, 4);
    check_tensor(s, "token_embd.weight", QT_BF16, DIMS(3, 2), VALUES(0, 1, 2, 3, 4, 5));
    check_tensor(s, "output.weight", QT_F16, DIMS(3, 2), VALUES(10, 11, 12, 13, 14, 15));
    check_tensor(s, "output_norm.weight", QT_F32, DIMS(3), VALUES(20, 21, 22));
    check_tensor(s, "blk.0.ffn_down.weight", QT_F32, DIMS(2, 1), VALUES(30, 31));
    assert_null(source_tensor(s, "token_embd.weight")->recipe);
    assert_null(source_tensor(s, "output_norm.weight")->recipe);
    source_close(s);
}

static void unaligned_files_give_aligned_tensors(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.embed_tokens.weight", QT_F32, 7, 2, 2);
    testdir_tensors(&dir, "model.safetensors", true);
    testdir_puts(&dir, "config.json", LLAMA(""));
    struct source *s;
    assert_int_equal(source_open(&s, dir.path, NULL), 0);
    check_tensor(s, "token_embd.weight", QT_F32, DIMS(2, 2), VALUES(7, 8, 9, 10));
    source_close(s);
}

static void vectors_and_routers_become_f32(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.norm.weight", QT_BF16, 1, 300);
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.gate.weight", QT_F16, 5, 3, 2);
    struct source *s = must_open(MOE(""));
    float want[300];
    for (int i = 0; i < 300; i++) want[i] = bf16_to_float(bf16_from_float((float)(1 + i)));
    check_tensor(s, "output_norm.weight", QT_F32, DIMS(300), want);
    check_tensor(s, "blk.0.ffn_gate_inp.weight", QT_F32, DIMS(2, 3), VALUES(5, 6, 7, 8, 9, 10));
    source_close(s);
}

/* Two heads of 4: rows 0 1 2 3 of a head become 0 2 1 3. */
static void llama_rows_of_q_and_k_are_paired(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.weight", QT_BF16, 0, 8, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.bias", QT_F32, 0, 8);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.k_proj.weight", QT_F32, 50, 6, 1);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.v_proj.weight", QT_F32, 50, 6, 1);
    struct source *s = must_open(LLAMA(",\"num_key_value_heads\":1"));
    check_tensor(s, "blk.0.attn_q.weight", QT_BF16, DIMS(2, 8),
                 VALUES(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    check_tensor(s, "blk.0.attn_q.bias", QT_F32, DIMS(8), VALUES(0, 2, 1, 3, 4, 6, 5, 7));
    check_tensor(s, "blk.0.attn_k.weight", QT_F32, DIMS(1, 6), VALUES(50, 53, 51, 54, 52, 55));
    check_tensor(s, "blk.0.attn_v.weight", QT_F32, DIMS(1, 6), VALUES(50, 51, 52, 53, 54, 55));
    source_close(s);
}

static void other_architectures_keep_the_rows(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.weight", QT_F32, 0, 8, 1);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.bias", QT_F32, 0, 8);
    struct source *s = must_open(CONFIG("Qwen2ForCausalLM", LLAMA_BODY, ""));
    check_tensor(s, "blk.0.attn_q.weight", QT_F32, DIMS(1, 8), VALUES(0, 1, 2, 3, 4, 5, 6, 7));
    check_tensor(s, "blk.0.attn_q.bias", QT_F32, DIMS(8), VALUES(0, 1, 2, 3, 4, 5, 6, 7));
    source_close(s);
}

static void experts_are_stacked(void **state)
{
    (void)state;
    for (int e = 2; e >= 0; e--) {
        static const char *const parts[] = {"gate", "up", "down"};
        for (int p = 0; p < 3; p++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.%s_proj.weight", e,
                     parts[p]);
            TESTDIR_TENSOR(&dir, name, QT_BF16, (float)(100 * p + 10 * e), 2, 1);
        }
    }
    struct source *s = must_open(MOE(""));
    assert_int_equal(s->n_tensors, 3);
    check_tensor(s, "blk.0.ffn_gate_exps.weight", QT_BF16, DIMS(1, 2, 3),
                 VALUES(0, 1, 10, 11, 20, 21));
    check_tensor(s, "blk.0.ffn_up_exps.weight", QT_BF16, DIMS(1, 2, 3),
                 VALUES(100, 101, 110, 111, 120, 121));
    check_tensor(s, "blk.0.ffn_down_exps.weight", QT_BF16, DIMS(1, 2, 3),
                 VALUES(200, 201, 210, 211, 220, 221));
    source_close(s);
}

/* [E=3][2f=4][d=2] counting up: expert e starts at 8e, its gate rows are the first two. */
static void fused_experts_are_split(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.gate_up_proj", QT_F32, 0, 3, 4, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.down_proj", QT_F32, 0, 3, 2, 1);
    struct source *s = must_open(MOE(""));
    check_tensor(s, "blk.0.ffn_gate_exps.weight", QT_F32, DIMS(2, 2, 3),
                 VALUES(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19));
    check_tensor(s, "blk.0.ffn_up_exps.weight", QT_F32, DIMS(2, 2, 3),
                 VALUES(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23));
    check_tensor(s, "blk.0.ffn_down_exps.weight", QT_F32, DIMS(1, 2, 3), VALUES(0, 1, 2, 3, 4, 5));
    source_close(s);
}

/* Heads 2, k rows 3, v rows 5, rank 4: element [h][row][l] is 32h + 4 row + l. */
static void kv_b_is_split_and_its_k_part_transposed(void **state)
{
    (void)state;
    float k[2 * 4 * 3], v[2 * 5 * 4];
    for (int h = 0, i = 0; h < 2; h++)
        for (int l = 0; l < 4; l++)
            for (int n = 0; n < 3; n++) k[i++] = (float)(32 * h + 4 * n + l);
    for (int h = 0, i = 0; h < 2; h++)
        for (int n = 0; n < 20; n++) v[i++] = (float)(32 * h + 12 + n);
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.kv_b_proj.weight", QT_BF16, 0, 16, 4);
    struct source *s = must_open(GLM(""));
    assert_int_equal(s->n_tensors, 2);
    check_tensor(s, "blk.0.attn_k_b.weight", QT_BF16, DIMS(3, 4, 2), k);
    check_tensor(s, "blk.0.attn_v_b.weight", QT_BF16, DIMS(4, 5, 2), v);
    source_close(s);
}

static void mtp_blocks_count_when_they_are_there(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.layers.1.eh_proj.weight", QT_F32, 0, 2, 4);
    TESTDIR_TENSOR(&dir, "model.layers.1.input_layernorm.weight", QT_F32, 5, 2);
    TESTDIR_TENSOR(&dir, "model.layers.1.shared_head.norm.weight", QT_F32, 7, 2);
    struct source *s = must_open(GLM(",\"num_nextn_predict_layers\":1"));
    assert_int_equal(u32_of(s, "deepseek2.block_count"), 2);
    assert_int_equal(u32_of(s, "deepseek2.nextn_predict_layers"), 1);
    check_tensor(s, "blk.1.nextn.eh_proj.weight", QT_F32, DIMS(4, 2),
                 VALUES(0, 1, 2, 3, 4, 5, 6, 7));
    check_tensor(s, "blk.1.attn_norm.weight", QT_F32, DIMS(2), VALUES(5, 6));
    check_tensor(s, "blk.1.nextn.shared_head_norm.weight", QT_F32, DIMS(2), VALUES(7, 8));
    source_close(s);
}

static void put_rwkv_block(int n)
{
    static const char order[] = "gavkwr"; /* not the order of the stack */
    static const char *const ranks[] = {"w", "a", "v", "g"};
    char name[96];
    for (int i = 0; order[i]; i++) {
        snprintf(name, sizeof name, "model.layers.%d.attn.x_%c", n, order[i]);
        TESTDIR_TENSOR(&dir, name, QT_BF16, (float)(10 * i), 1, 1, 2);
    }
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        if (n == 0 && i == 2) continue;
        snprintf(name, sizeof name, "model.layers.%d.attn.%s_lora.lora.0.weight", n, ranks[i]);
        TESTDIR_TENSOR(&dir, name, QT_BF16, (float)(10 * i), i + 1, 2);
        snprintf(name, sizeof name, "model.layers.%d.attn.%s_lora.lora.2.weight", n, ranks[i]);
        TESTDIR_TENSOR(&dir, name, QT_BF16, (float)(10 * i), 2, i + 1);
        snprintf(name, sizeof name, "model.layers.%d.attn.%s_lora.lora.2.bias", n, ranks[i]);
        if (i < 3) TESTDIR_TENSOR(&dir, name, QT_BF16, (float)(10 * i), 2);
    }
    snprintf(name, sizeof name, "model.layers.%d.attn.r_k", n);
    TESTDIR_TENSOR(&dir, name, QT_BF16, 60, 2, 3);
    snprintf(name, sizeof name, "model.layers.%d.ffn.x_k", n);
    TESTDIR_TENSOR(&dir, name, QT_BF16, 70, 1, 1, 2);
}

static void rwkv7_keys_and_tensors(void **state)
{
    (void)state;
    put_rwkv_block(0);
    put_rwkv_block(1);
    TESTDIR_TENSOR(&dir, "model.layers.0.pre_norm.bias", QT_BF16, 3, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.attn.v_lora.lora.2.bias", QT_F32, 3, 2); /* dummy */
    struct source *s = must_open(RWKV(""));
    assert_true(str_of_is(s, "general.architecture", "rwkv7"));
    assert_int_equal(u32_of(s, "rwkv7.context_length"), 1048576);
    assert_int_equal(u32_of(s, "rwkv7.block_count"), 2);
    assert_int_equal(u32_of(s, "rwkv7.feed_forward_length"), 32);
    assert_int_equal(u32_of(s, "rwkv7.attention.head_count"), 0);
    assert_int_equal(u32_of(s, "rwkv7.wkv.head_size"), 4);
    assert_int_equal(u32_of(s, "rwkv7.attention.decay_lora_rank"), 1);
    assert_int_equal(u32_of(s, "rwkv7.attention.iclr_lora_rank"), 2);
    assert_int_equal(u32_of(s, "rwkv7.attention.value_residual_mix_lora_rank"), 3);
    assert_int_equal(u32_of(s, "rwkv7.attention.gate_lora_rank"), 4);
    NEAR(f32_of(s, "rwkv7.attention.layer_norm_epsilon"), 1e-5);
    check_tensor(s, "blk.0.time_mix_lerp_fused.weight", QT_F32, DIMS(2, 1, 1, 6),
                 VALUES(50, 51, 40, 41, 30, 31, 20, 21, 10, 11, 0, 1));
    check_tensor(s, "blk.1.time_mix_w1.weight", QT_F32, DIMS(2, 1), VALUES(0, 1));
    check_tensor(s, "blk.1.time_mix_a1.weight", QT_BF16, DIMS(2, 2), VALUES(10, 11, 12, 13));
    check_tensor(s, "blk.1.time_mix_v2.weight", QT_BF16, DIMS(3, 2),
                 VALUES(20, 21, 22, 23, 24, 25));
    check_tensor(s, "blk.1.time_mix_v0.weight", QT_F32, DIMS(2), VALUES(20, 21));
    check_tensor(s, "blk.0.time_mix_r_k.weight", QT_F32, DIMS(6), VALUES(60, 61, 62, 63, 64, 65));
    check_tensor(s, "blk.0.channel_mix_lerp_k.weight", QT_F32, DIMS(2), VALUES(70, 71));
    check_tensor(s, "token_embd_norm.bias", QT_F32, DIMS(2), VALUES(3, 4));
    assert_null(source_tensor(s, "blk.0.time_mix_v0.weight"));
    source_close(s);
}

static void rwkv7_lerps_may_come_in_one(void **state)
{
    (void)state;
    static const char *const ranks[] = {"w", "a", "g"};
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.attn.%s_lora.lora.0.weight", ranks[i]);
        TESTDIR_TENSOR(&dir, name, QT_F32, 0, 1, 2);
    }
    TESTDIR_TENSOR(&dir, "model.layers.0.attn.x_x", QT_BF16, 0, 6, 2);
    struct source *s = must_open(CONFIG("RWKV7ForCausalLM",
                                        "\"hidden_size\":20,\"num_hidden_layers\":1,"
                                        "\"num_heads\":5,\"vocab_size\":5,\"hidden_ratio\":4.0",
                                        ""));
    assert_int_equal(u32_of(s, "rwkv7.wkv.head_size"), 4);
    assert_int_equal(u32_of(s, "rwkv7.feed_forward_length"), 96); /* 80 in whole 32s */
    check_tensor(s, "blk.0.time_mix_lerp_fused.weight", QT_F32, DIMS(2, 1, 1, 6),
                 VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    source_close(s);
}

static void a_tied_output_is_left_out(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.embed_tokens.weight", QT_F32, 0, 2, 2);
    TESTDIR_TENSOR(&dir, "lm_head.weight", QT_F32, 0, 2, 2);
    struct source *s = must_open(LLAMA(",\"tie_word_embeddings\":true"));
    assert_non_null(source_tensor(s, "token_embd.weight"));
    assert_null(source_tensor(s, "output.weight"));
    source_close(s);
}

static void refuses_tensors_that_do_not_belong(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.sinks", QT_F32, 0, 2);
    must_fail(LLAMA(""), "'model.layers.0.self_attn.sinks' does not belong");
    TESTDIR_TENSOR(&dir, "model.layers.1.input_layernorm.weight", QT_F32, 0, 2);
    must_fail(LLAMA(""), "'model.layers.1.input_layernorm.weight' does not belong");
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_norm.weight", QT_F32, 0, 2);
    must_fail(LLAMA(""), "q_norm.weight' does not belong");
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.weight", QT_F32, 0, 7, 2);
    must_fail(LLAMA(""), "q_proj.weight': its shape is not");
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.kv_b_proj.weight", QT_F32, 0, 15, 4);
    must_fail(GLM(""), "kv_b_proj.weight': its shape is not");
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.gate_up_proj", QT_F32, 0, 3, 3, 2);
    must_fail(MOE(""), "gate_up_proj': its shape is not");
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.0.up_proj.weight", QT_F32, 0, 2, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.1.up_proj.weight", QT_F32, 0, 2, 2);
    must_fail(MOE(""), "experts.2.up_proj.weight is missing");
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.0.up_proj.weight", QT_F32, 0, 2, 2);
    TESTDIR_TENSOR(&dir, "model.layers.0.mlp.experts.1.up_proj.weight", QT_F32, 0, 2, 3);
    must_fail(MOE(""), "experts.1.up_proj.weight': its shape is not");
    TESTDIR_TENSOR(&dir, "model.embed_tokens.weight", QT_F32, 0, 1, 1, 1, 1, 2);
    must_fail(LLAMA(""), "at most 4 dimensions");
    put_rwkv_block(0);
    must_fail(RWKV(""), "layers.1.attn.v_lora.lora.0.weight' is missing");
}

/* Files */

static void shards_are_found_by_the_index(void **state)
{
    (void)state;
    TESTDIR_TENSOR(&dir, "model.embed_tokens.weight", QT_F32, 0, 1, 2);
    testdir_tensors(&dir, "model-00001-of-00002.safetensors", false);
    TESTDIR_TENSOR(&dir, "lm_head.weight", QT_F32, 5, 1, 2);
    TESTDIR_TENSOR(&dir, "model.norm.weight", QT_F32, 7, 2);
    testdir_tensors(&dir, "model-00002-of-00002.safetensors", false);
    testdir_puts(&dir, "model.safetensors.index.json",
                 "{\"weight_map\":{"
                 "\"lm_head.weight\":\"model-00002-of-00002.safetensors\","
                 "\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\","
                 "\"model.norm.weight\":\"model-00002-of-00002.safetensors\"}}");
    struct source *s = must_open(LLAMA(""));
    assert_int_equal(s->n_files, 2);
    check_tensor(s, "token_embd.weight", QT_F32, DIMS(2, 1), VALUES(0, 1));
    check_tensor(s, "output.weight", QT_F32, DIMS(2, 1), VALUES(5, 6));
    check_tensor(s, "output_norm.weight", QT_F32, DIMS(2), VALUES(7, 8));
    source_close(s);
}

static void refuses_bad_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *index, *text;
    } cases[] = {
        {"{}", "missing weight_map"},
        {"{\"weight_map\":[]}", "missing weight_map"},
        {"{\"weight_map\":{\"t\":7}}", "an entry is not the name"},
        {"{\"weight_map\":{\"t\":\"../a.safetensors\"}}", "'../a.safetensors' is not the name"},
        {"{\"weight_map\":{\"t\":\"/a.safetensors\"}}", "is not the name"},
        {"{\"weight_map\":{\"t\":\"x/a.safetensors\"}}", "is not the name"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\\u0000.safetensors\"}}", "is not the name"},
        {"{\"weight_map\":{\"t\":\"config.json\"}}", "is not the name"},
        {"{\"weight_map\":{\"t\":\"\"}}", "is not the name"},
        {"{\"weight_map\":{\"t\":\"none.safetensors\"}}", "cannot open"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\"}}", "tensor 't' is not in 'a.safetensors'"},
        {"{\"weight_map\":{\"lm_head.weight\":\"a.safetensors\","
         "\"model.norm.weight\":\"b.safetensors\"}}",
         "'lm_head.weight' appears in two files"},
        {"{\"weight_map\":{\"t\":\"bad.safetensors\"}}", "'bad.safetensors': safetensors: "},
    };
    TESTDIR_TENSOR(&dir, "lm_head.weight", QT_F32, 0, 1, 2);
    testdir_tensors(&dir, "a.safetensors", false);
    TESTDIR_TENSOR(&dir, "lm_head.weight", QT_F32, 0, 1, 2);
    TESTDIR_TENSOR(&dir, "model.norm.weight", QT_F32, 0, 2);
    testdir_tensors(&dir, "b.safetensors", false);
    testdir_puts(&dir, "bad.safetensors", "short");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        testdir_puts(&dir, "model.safetensors.index.json", cases[i].index);
        must_fail(LLAMA(""), cases[i].text);
    }
}

static void says_what_a_directory_lacks(void **state)
{
    (void)state;
    struct source *s;
    struct err err;
    assert_int_equal(source_open(&s, dir.path, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "no config.json"));
    testdir_puts(&dir, "config.json", LLAMA(""));
    assert_int_equal(source_open(&s, dir.path, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "contains neither model.safetensors nor"));
    testdir_puts(&dir, "config.json", "{");
    assert_int_equal(source_open(&s, dir.path, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "invalid JSON"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TESTDIR_TEST(llama_keys),
        TESTDIR_TEST(absent_and_null_take_the_defaults),
        TESTDIR_TEST(architectures_get_their_gguf_names),
        TESTDIR_TEST(qwen3moe_keys),
        TESTDIR_TEST(glm_keys),
        TESTDIR_TEST(refuses_what_it_would_compute_wrongly),
        TESTDIR_TEST(what_configuration_classes_write_opens),
        TESTDIR_TEST(fields_that_nobody_knows_are_refused),
        TESTDIR_TEST(kinds_of_blocks_are_listed),
        TESTDIR_TEST(layers_with_a_window_are_listed),
        TESTDIR_TEST(odd_shapes_overrun_nothing),
        TESTDIR_TEST(gemma3_needs_few_fields),
        TESTDIR_TEST(yarn_without_rounding_has_a_key_of_ours),
        TESTDIR_TEST(windows_are_found),
        TESTDIR_TEST(a_text_model_is_found_in_its_wrapper),
        TESTDIR_TEST(spare_tensors_are_left_out),
        TESTDIR_TEST(generation_config_gives_sampling_defaults),
        TESTDIR_TEST(plain_tensors_are_mapped_under_new_names),
        TESTDIR_TEST(unaligned_files_give_aligned_tensors),
        TESTDIR_TEST(vectors_and_routers_become_f32),
        TESTDIR_TEST(llama_rows_of_q_and_k_are_paired),
        TESTDIR_TEST(other_architectures_keep_the_rows),
        TESTDIR_TEST(experts_are_stacked),
        TESTDIR_TEST(fused_experts_are_split),
        TESTDIR_TEST(kv_b_is_split_and_its_k_part_transposed),
        TESTDIR_TEST(mtp_blocks_count_when_they_are_there),
        TESTDIR_TEST(rwkv7_keys_and_tensors),
        TESTDIR_TEST(rwkv7_lerps_may_come_in_one),
        TESTDIR_TEST(a_tied_output_is_left_out),
        TESTDIR_TEST(refuses_tensors_that_do_not_belong),
        TESTDIR_TEST(shards_are_found_by_the_index),
        TESTDIR_TEST(refuses_bad_indexes),
        TESTDIR_TEST(says_what_a_directory_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
