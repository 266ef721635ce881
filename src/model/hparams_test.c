/* Bad numbers in a file: each gets an error that names its key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../test/twin.h"
#include "model/hparams.h"

enum kind { MISSING, U32, F32, TEXT, BOOL, ARRAY };

struct bad {
    const char *model, *key;
    enum kind kind;
    double value;
    const char *names; /* what the text must hold; NULL: the key */
};

/* The tokens of TEXT values; ARRAY: this many u32, all equal but the last. */
static void add_value(struct source *s, const struct bad *b)
{
    struct err err = {0};
    u32 n = (u32)b->value, array[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int rc = 0;
    switch (b->kind) {
    case MISSING: break;
    case U32: rc = source_add_u32(s, b->key, n, &err); break;
    case F32: rc = source_add_f32(s, b->key, (float)b->value, &err); break;
    case TEXT: rc = source_add_str(s, b->key, STR("dynamic"), &err); break;
    case BOOL: rc = source_add_bool(s, b->key, true, &err); break;
    case ARRAY:
        if (n) array[n - 1] = 2;
        rc = source_add_array(s, b->key, KV_U32, n, array, n * sizeof *array, &err);
        break;
    }
    assert_int_equal(rc, 0);
}

static void check_bad(const struct bad *b)
{
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, b->model, b->key);
    add_value(t.to, b);
    if (!hparams_read(&hp, t.to, &err)) fail_msg("%s: %g is taken", b->key, b->value);
    if (!strstr(err.text, b->names ? b->names : b->key))
        fail_msg("%s: %g gives \"%s\"", b->key, b->value, err.text);
    assert_null(strchr(err.text, '\n'));
    twin_close(&t);
}

static void check_all(const struct bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) check_bad(&cases[i]);
}

static void sizes_outside_their_range(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"llama", "general.architecture", MISSING, 0, NULL},
        {"llama", "general.architecture", U32, 3, NULL},
        {"llama", "llama.context_length", MISSING, 0, NULL},
        {"llama", "llama.context_length", U32, 0, NULL},
        {"llama", "llama.block_count", MISSING, 0, NULL},
        {"llama", "llama.block_count", U32, 0, NULL},
        {"llama", "llama.block_count", U32, 513, NULL},
        {"llama", "llama.block_count", TEXT, 0, NULL},
        {"llama", "llama.block_count", F32, 3, NULL},
        {"llama", "llama.embedding_length", MISSING, 0, NULL},
        {"llama", "llama.embedding_length", U32, 0, NULL},
        {"llama", "llama.embedding_length", U32, (1 << 20) + 1, NULL},
        {"llama", "llama.feed_forward_length", MISSING, 0, NULL},
        {"llama", "llama.attention.layer_norm_rms_epsilon", MISSING, 0, NULL},
        {"llama", "llama.attention.layer_norm_rms_epsilon", F32, -1, NULL},
        {"llama", "llama.attention.layer_norm_rms_epsilon", F32, NAN, NULL},
        {"llama", "llama.attention.layer_norm_rms_epsilon", F32, INFINITY, NULL},
        {"llama", "llama.attention.layer_norm_rms_epsilon", TEXT, 0, NULL},
        {"llama", "llama.nextn_predict_layers", U32, 3, NULL},
        {"llama", "token_embd.weight", MISSING, 0, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void windows_and_caps_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"gpt_oss", "gpt-oss.attention.sliding_window", MISSING, 0, NULL},
        {"gpt_oss", "gpt-oss.attention.sliding_window", U32, 0, NULL},
        {"gemma3", "gemma3.attention.sliding_window", U32, 0, NULL},
        {"gemma3", "gemma3.attention.sliding_window_pattern", ARRAY, 2, NULL}, /* of 3 blocks */
        {"gemma3", "gemma3.attention.sliding_window_pattern", ARRAY, 3, NULL}, /* a 2 */
        {"gemma3", "gemma3.attention.sliding_window_pattern", TEXT, 0, NULL},
        {"gemma3", "gemma3.rope.freq_base_swa", F32, 0, NULL},
        {"gemma3", "gemma3.attention.scale", F32, NAN, NULL},
        {"gemma4", "gemma4.attention.sliding_window", U32, 0, NULL},
        {"gemma4", "gemma4.attention.key_length_swa", U32, 7, NULL},
        {"gemma4", "gemma4.rope.dimension_count_swa", U32, 34, NULL},
        {"gemma4", "gemma4.final_logit_softcapping", F32, -1, NULL},
        {"gemma4_e", "gemma4.attention.shared_kv_layers", U32, 5, NULL}, /* of 5 */
        {"gemma4_e", "gemma4.attention.shared_kv_layers", U32, 4, NULL}, /* one kind has none */
        {"gemma4_e", "gemma4.attention.shared_kv_layers", U32, 4000000000u, NULL},
        {"gemma4_e", "gemma4.embedding_length_per_layer_input", U32, 1 << 20, NULL},
        {"step35", "step35.swiglu_clamp_exp", U32, 1, NULL},
        {"step35", "step35.rope.dimension_count", U32, 6, NULL},
        {"mistral4", "mistral4.attention.temperature_length", U32, 0, NULL},
        {"mimo2", "mimo2.attention.value_scale", F32, NAN, NULL},
        {"llama4", "llama4.interleave_moe_layer_step", U32, 0, NULL},
        {"llama4", "llama4.attention.temperature_length", U32, 0, NULL},
        {"laguna", "laguna.expert_shared_feed_forward_length", MISSING, 0, NULL},
        {"gemma2", "gemma2.attn_logit_softcapping", MISSING, 0, NULL},
        {"gemma2", "gemma2.attn_logit_softcapping", F32, -1, NULL},
        {"gemma2", "gemma2.final_logit_softcapping", F32, NAN, NULL},
        {"cohere2", "cohere2.logit_scale", F32, 0, NULL},
        {"ministral3", "mistral3.attention.temperature_scale", F32, -1, NULL},
        {"ministral3", "mistral3.attention.temperature_length", U32, 0, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void heads_and_rotation_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"llama", "llama.attention.head_count", MISSING, 0, NULL},
        {"llama", "llama.attention.head_count", U32, 0, NULL},
        {"llama", "llama.attention.head_count", U32, 4097, NULL},
        {"llama", "llama.attention.head_count_kv", U32, 0, NULL},
        {"llama", "llama.attention.head_count_kv", U32, 4, NULL}, /* of 6 */
        {"llama", "llama.attention.key_length", U32, 0, NULL},
        {"llama", "llama.attention.value_length", U32, 0, NULL},
        {"llama", "llama.attention.key_length", U32, 1 << 17, NULL},
        {"llama", "llama.rope.dimension_count", U32, 3, NULL},
        {"llama", "llama.rope.dimension_count", U32, 1000, NULL},
        {"llama", "llama.rope.freq_base", F32, 0, NULL},
        {"llama", "llama.rope.freq_base", F32, -1, NULL},
        {"llama", "llama.rope.freq_base", F32, NAN, NULL},
        {"llama", "llama.rope.scale_linear", F32, -2, NULL},
        {"llama", "llama.rope.scaling.factor", F32, NAN, NULL},
        {"llama", "llama.rope.scaling.factor", F32, -2, NULL},
        {"llama", "llama.rope.scaling.attn_factor", F32, INFINITY, NULL},
        {"llama", "llama.rope.scaling.original_context_length", U32, 0, NULL},
        {"llama", "llama.rope.scaling.type", TEXT, 0, "dynamic"},
        {"llama", "llama.rope.scaling.type", U32, 1, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void experts_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"qwen3_moe", "qwen3moe.expert_count", MISSING, 0, NULL},
        {"qwen3_moe", "qwen3moe.expert_count", U32, 0, NULL},
        {"qwen3_moe", "qwen3moe.expert_count", U32, 1025, NULL},
        {"qwen3_moe", "qwen3moe.expert_used_count", MISSING, 0, NULL},
        {"qwen3_moe", "qwen3moe.expert_used_count", U32, 0, NULL},
        {"qwen3_moe", "qwen3moe.expert_used_count", U32, 9, NULL}, /* of 8 */
        {"qwen3_moe", "qwen3moe.expert_feed_forward_length", U32, 0, NULL},
        {"qwen3_moe", "qwen3moe.expert_group_count", U32, 3, NULL}, /* of 8 experts */
        {"qwen3_moe", "qwen3moe.expert_group_count", U32, 8, NULL}, /* one expert each */
        {"qwen3_moe", "qwen3moe.expert_group_used_count", U32, 2, NULL},
        {"qwen3_moe", "qwen3moe.expert_group_count", U32, 4, "expert_used_count"}, /* 3 of 2 */
        {"qwen3_moe", "qwen3moe.leading_dense_block_count", U32, 400, NULL},
        {"qwen3_moe", "qwen3moe.expert_gating_func", U32, 9, NULL},
        {"qwen3_moe", "qwen3moe.expert_weights_scale", F32, NAN, NULL},
        {"qwen3_moe", "qwen3moe.expert_weights_norm", U32, 1, NULL},
        {"qwen3_moe", "qwen3moe.expert_shared_count", U32, 65, NULL},
        {"mixtral", "llama.expert_count", U32, 1025, NULL},
        {"mixtral", "llama.expert_used_count", MISSING, 0, NULL},
        {"mixtral", "llama.expert_used_count", U32, 6, NULL}, /* of 5 */
        {"glm4_moe", "glm4moe.expert_count", MISSING, 0, NULL},
        {"glm4_moe", "glm4moe.leading_dense_block_count", U32, 5, NULL}, /* of 4 */
        {"glm4_moe", "glm4moe.nextn_predict_layers", U32, 4, NULL},      /* of 4 blocks */
        {"glm4_moe", "glm4moe.rope.dimension_count", U32, 18, NULL},     /* of 16 */
        {"minimax_m2", "minimax-m2.expert_count", MISSING, 0, NULL},
        {"minimax_m2", "minimax-m2.rope.dimension_count", U32, 0, NULL},
        {"granite", "granite.logit_scale", F32, NAN, NULL},
        {"granite", "granite.attention.scale", F32, -1, NULL},
        {"granite", "granite.residual_scale", TEXT, 0, NULL},
        {"deepseek_v3", "deepseek2.rope.scaling.yarn_beta_fast", F32, 0, NULL},
        {"deepseek_v3", "deepseek2.rope.scaling.yarn_log_multiplier", F32, -1, NULL},
        {"deepseek_v3", "deepseek2.expert_group_count", U32, 3, NULL}, /* of 8 experts */
        {"ernie4_5_moe", "ernie4_5-moe.expert_count", MISSING, 0, NULL},
        {"ernie4_5_moe", "ernie4_5-moe.leading_dense_block_count", U32, 4, NULL}, /* of 3 */
        {"hunyuan_moe", "hunyuan-moe.expert_used_count", U32, 7, NULL},           /* of 6 */
        {"phi3", "phi3.rope.dimension_count", U32, 10, NULL},                     /* of 8 */
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void latent_widths_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"glm4_moe_lite", "deepseek2.attention.kv_lora_rank", MISSING, 0, NULL},
        {"glm4_moe_lite", "deepseek2.attention.kv_lora_rank", U32, 0, NULL},
        {"glm4_moe_lite", "deepseek2.attention.key_length", U32, 64, NULL},
        {"glm4_moe_lite", "deepseek2.attention.value_length", U32, 64, NULL},
        {"glm4_moe_lite", "deepseek2.attention.key_length_mla", U32, 2, NULL},
        {"glm4_moe_lite", "deepseek2.attention.key_length_mla", U32, 0, NULL},
        {"glm4_moe_lite", "deepseek2.attention.q_lora_rank", U32, 1 << 20, NULL},
        {"glm4_moe_lite", "fletch.mla_norm_epsilon", F32, NAN, NULL},
        {"glm4_moe_lite", "fletch.mla_norm_epsilon", F32, -1, NULL},
        {"glm4_moe_lite", "deepseek2.nextn_predict_layers", U32, 4, NULL}, /* of 4 blocks */
        {"glm4_moe_lite", "deepseek2.nextn_predict_layers", U32, 9, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void recurrent_sizes_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"rwkv7", "rwkv7.wkv.head_size", MISSING, 0, NULL},
        {"rwkv7", "rwkv7.wkv.head_size", U32, 0, NULL},
        {"rwkv7", "rwkv7.wkv.head_size", U32, 7, NULL},
        {"rwkv7", "rwkv7.attention.layer_norm_epsilon", MISSING, 0, NULL},
        {"rwkv7", "rwkv7.attention.decay_lora_rank", MISSING, 0, NULL},
        {"rwkv7", "rwkv7.attention.iclr_lora_rank", U32, 0, NULL},
        {"rwkv7", "rwkv7.attention.value_residual_mix_lora_rank", U32, 0, NULL},
        {"rwkv7", "rwkv7.attention.gate_lora_rank", U32, 1 << 20, NULL},
        {"arwkv7-gate", "arwkv7.wkv.head_size", U32, 5, NULL},
        {"qwen3_5", "qwen35.ssm.conv_kernel", MISSING, 0, NULL},
        {"qwen3_5", "qwen35.ssm.conv_kernel", U32, 1, NULL},
        {"qwen3_5", "qwen35.ssm.conv_kernel", U32, 17, NULL},
        {"qwen3_5", "qwen35.ssm.state_size", U32, 0, NULL},
        {"qwen3_5", "qwen35.ssm.state_size", U32, 4097, NULL},
        {"qwen3_5", "qwen35.ssm.group_count", U32, 4, NULL},    /* of 6 heads */
        {"qwen3_5", "qwen35.ssm.time_step_rank", U32, 7, NULL}, /* of 96 columns */
        {"qwen3_5", "qwen35.ssm.time_step_rank", MISSING, 0, NULL},
        {"qwen3_5", "qwen35.ssm.inner_size", U32, 1 << 21, NULL},
        {"qwen3_5", "qwen35.full_attention_interval", U32, 0, NULL},
        {"qwen3_5", "qwen35.attention.recurrent_layers", U32, 2, NULL},
        {"qwen3_5", "qwen35.attention.recurrent_layers", ARRAY, 2, NULL}, /* of 5 blocks */
        {"qwen3_5", "qwen35.attention.value_length", U32, 8, NULL},
        {"qwen3_5_moe", "qwen35moe.expert_shared_feed_forward_length", MISSING, 0, NULL},
        {"lfm2", "lfm2.shortconv.l_cache", MISSING, 0, NULL},
        {"lfm2", "lfm2.shortconv.l_cache", U32, 1, NULL},
        {"lfm2", "lfm2.shortconv.l_cache", U32, 17, NULL},
        {"nemotron_h", "nemotron_h.ssm.state_size", U32, 0, NULL},
        {"nemotron_h", "nemotron_h.ssm.group_count", U32, 4, NULL},      /* of 6 heads */
        {"nemotron_h", "nemotron_h.ssm.time_step_rank", U32, 5, NULL},   /* of 72 columns */
        {"nemotron_h", "nemotron_h.feed_forward_length", U32, 52, NULL}, /* in all blocks */
        {"nemotron_h_moe", "nemotron_h_moe.moe_latent_size", U32, 1 << 21, NULL},
        {"falcon_h1", "falcon-h1.ssm.time_step_rank", MISSING, 0, NULL},
        {"kimi_linear", "kimi-linear.kda.head_dim", MISSING, 0, NULL},
        {"kimi_linear", "kimi-linear.kda.head_dim", U32, 4097, NULL},
        {"kimi_linear", "kimi-linear.attention.head_count_kv", U32, 0, NULL},
        {"kimi_linear", "kimi-linear.ssm.conv_kernel", U32, 17, NULL},
        {"arwkv7-gate", "arwkv7.attention.layer_norm_rms_epsilon", MISSING, 0, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void arrays_that_differ_or_end_early(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"llama", "llama.attention.key_length", ARRAY, 3, NULL}, /* 1, 1, 2 */
        {"llama", "llama.attention.head_count", ARRAY, 3, "head_count_kv' does not divide"},
        {"glm4_moe_lite", "deepseek2.attention.head_count", ARRAY, 4, "differs between layers"},
        {"llama", "llama.attention.head_count_kv", ARRAY, 1, NULL}, /* three blocks */
        {"llama", "llama.attention.head_count_kv", ARRAY, 0, NULL},
    };
    check_all(cases, ARRAY_LEN(cases));
}

static void heads_and_widths_may_differ_between_blocks(void **state)
{
    (void)state;
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, "llama-blocks", "");
    assert_int_equal(hparams_read(&hp, t.to, &err), 0);
    assert_int_equal(hp.n_heads, 6);
    assert_int_equal(hp.n_kv_heads, 3);
    assert_int_equal(hp.n_ff, 56);
    assert_int_equal(hp.block_heads[1], 2);
    assert_int_equal(hp.block_kv_heads[1], 1);
    assert_int_equal(hp.block_ff[1], 24);
    twin_close(&t);
    twin_open(&t, "llama-blocks", "llama.attention.key_length"); /* of which block? */
    assert_int_equal(hparams_read(&hp, t.to, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "'llama.attention.key_length' is missing"));
    twin_close(&t);
}

static void an_array_of_equal_values_is_a_number(void **state)
{
    (void)state;
    static const u32 two[3] = {2, 2, 2};
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, "llama", "llama.attention.head_count_kv");
    assert_int_equal(
        source_add_array(t.to, "llama.attention.head_count_kv", KV_U32, 3, two, sizeof two, &err),
        0);
    assert_int_equal(hparams_read(&hp, t.to, &err), 0);
    assert_int_equal(hp.n_kv_heads, 2);
    twin_close(&t);
}

static void narrower_than_its_heads(void **state)
{
    (void)state;
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, "llama-gguf", "llama.*_length");
    assert_int_equal(source_add_u32(t.to, "llama.context_length", 64, &err), 0);
    assert_int_equal(source_add_u32(t.to, "llama.embedding_length", 5, &err), 0); /* 6 heads */
    assert_int_equal(source_add_u32(t.to, "llama.feed_forward_length", 5, &err), 0);
    assert_int_equal(hparams_read(&hp, t.to, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "embedding_length' is smaller"));
    twin_close(&t);
}

static void good_ones_come_through(void **state)
{
    (void)state;
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, "glm4_moe_lite", "");
    assert_int_equal(hparams_read(&hp, t.to, &err), 0);
    assert_string_equal(hp.arch, "deepseek2");
    assert_int_equal(hp.n_layers, 3);
    assert_int_equal(hp.n_mtp, 1);
    assert_int_equal(hp.n_vocab, 101);
    assert_int_equal(hp.d_model, 36);
    assert_int_equal(hp.n_experts, 8);
    assert_int_equal(hp.n_experts_used, 2);
    assert_int_equal(hp.head_k, hp.kv_lora + hp.n_rot);
    assert_true(hp.eps == 1e-5f && hp.eps_mla == 1e-6f && hp.expert_norm);
    twin_close(&t);
}

/* As files of Phi-3 have it. */
static void two_tables_of_factors_are_longrope(void **state)
{
    (void)state;
    struct twin t;
    struct hparams hp;
    struct err err = {0};
    twin_open(&t, "phi3_long", "phi3.rope.scaling.type");
    assert_int_equal(hparams_read(&hp, t.to, &err), 0);
    assert_int_equal(hp.rope_scaling, SCALING_LONGROPE);
    assert_int_equal(hp.rope_ctx, 48);
    assert_true(hp.rope_attn_factor > 1);
    twin_close(&t);
    twin_open(&t, "phi3_long", "phi3.rope.scaling.type|rope_factors_short.weight");
    assert_int_equal(hparams_read(&hp, t.to, &err), 0);
    assert_int_equal(hp.rope_scaling, SCALING_LINEAR); /* and the other is refused as a tensor */
    twin_close(&t);
}

/* Files that go with models say what they are by their type, or by the architecture "clip". */
static void companions_of_models_are_named(void **state)
{
    (void)state;
    const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"general.type", "mmproj", "projector"},
        {"general.architecture", "clip", "projector"},
        {"general.type", "adapter", "LoRA adapter"},
        {"general.type", "imatrix", "importance matrix"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct twin t;
        struct hparams hp;
        struct err err = {0};
        twin_open(&t, "llama-gguf", cases[i].key);
        assert_int_equal(source_add_str(t.to, cases[i].key, str_of(cases[i].value), &err), 0);
        assert_int_equal(hparams_read(&hp, t.to, &err), FLETCH_E_UNSUPPORTED);
        if (!strstr(err.text, cases[i].part)) fail_msg("%s: %s", cases[i].value, err.text);
        twin_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(companions_of_models_are_named),
        cmocka_unit_test(sizes_outside_their_range),
        cmocka_unit_test(windows_and_caps_that_cannot_be),
        cmocka_unit_test(heads_and_rotation_that_cannot_be),
        cmocka_unit_test(experts_that_cannot_be),
        cmocka_unit_test(latent_widths_that_cannot_be),
        cmocka_unit_test(recurrent_sizes_that_cannot_be),
        cmocka_unit_test(arrays_that_differ_or_end_early),
        cmocka_unit_test(heads_and_widths_may_differ_between_blocks),
        cmocka_unit_test(an_array_of_equal_values_is_a_number),
        cmocka_unit_test(narrower_than_its_heads),
        cmocka_unit_test(good_ones_come_through),
        cmocka_unit_test(two_tables_of_factors_are_longrope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
