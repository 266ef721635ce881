/* What a file may say: every key that converters write for these models opens, and whatever would
 * change the answers is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/harness.h"
#include "../test/twin.h"
#include "model/known.h"

enum kind { U32, F32, BOOL, TEXT, U32S, F32S, BOOLS, TEXTS };

struct said {
    const char *key; /* without "ARCH." unless it has a name space of its own */
    enum kind kind;
    double value; /* of arrays: every element */
};

static bool has_namespace(const char *key)
{
    static const char *const spaces[] = {"general.",  "tokenizer.", "split.",
                                         "quantize.", "fletch.",    "mradermacher."};
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
        if (str_starts(str_of(key), spaces[i])) return true;
    return false;
}

static void add_array(struct source *s, const char *key, const struct said *v, struct err *err)
{
    u32 n = 3, u[3] = {(u32)v->value, (u32)v->value, (u32)v->value};
    float f[3] = {(float)v->value, (float)v->value, (float)v->value};
    u8 b[3] = {v->value != 0, v->value != 0, v->value != 0};
    struct str texts[3] = {STR("yes"), STR("no"), STR("maybe")};
    int rc = v->kind == U32S    ? source_add_array(s, key, KV_U32, n, u, sizeof u, err)
             : v->kind == F32S  ? source_add_array(s, key, KV_F32, n, f, sizeof f, err)
             : v->kind == BOOLS ? source_add_array(s, key, KV_BOOL, n, b, sizeof b, err)
                                : source_add_strs(s, key, n, texts, err);
    if (rc) fail_msg("%s", err->text);
}

/* The key is the source's from here on, in place of what the twin had. */
static void add_said(struct source *s, const char *key, const struct said *v)
{
    struct err err = {0};
    int rc = 0;
    switch (v->kind) {
    case U32: rc = source_add_u32(s, key, (u32)v->value, &err); break;
    case F32: rc = source_add_f32(s, key, (float)v->value, &err); break;
    case BOOL: rc = source_add_bool(s, key, v->value != 0, &err); break;
    case TEXT: rc = source_add_str(s, key, STR("text"), &err); break;
    default: add_array(s, key, v, &err);
    }
    if (rc) fail_msg("%s", err.text);
}

static const char *arch_of(const char *model)
{
    return strncmp(model, "llama", 5) == 0       ? "llama"
           : strcmp(model, "qwen3_moe") == 0     ? "qwen3moe"
           : strcmp(model, "glm4_moe_lite") == 0 ? "deepseek2"
           : strncmp(model, "arwkv7", 6) == 0    ? "arwkv7"
                                                 : model;
}

/* A golden model that says this too: 0, or the error. */
static int open_saying(const char *model, const struct said *v, bool ignore, struct err *err)
{
    struct twin t;
    struct model *m;
    char key[128];
    snprintf(key, sizeof key, "%s%s%s", has_namespace(v->key) ? "" : arch_of(model),
             has_namespace(v->key) ? "" : ".", v->key);
    twin_open(&t, model, key);
    add_said(t.to, key, v);
    t.to->ignore_unknown = ignore;
    int rc = model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, err);
    if (rc == 0) {
        if (ignore && m->source->refused->n != 1)
            fail_msg("%s: %u lines", key, m->source->refused->n);
        model_close(m);
    }
    twin_close(&t);
    return rc;
}

static void must_open(const char *model, const struct said *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err err = {0};
        if (open_saying(model, &v[i], false, &err))
            fail_msg("%s with %s %g: %s", model, v[i].key, v[i].value, err.text);
    }
}

static void must_refuse(const char *model, const struct said *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err err = {0};
        char value[32];
        int rc = open_saying(model, &v[i], false, &err);
        if (rc != FLETCH_E_UNSUPPORTED)
            fail_msg("%s with %s %g: %d %s", model, v[i].key, v[i].value, rc, err.text);
        snprintf(value, sizeof value, "%s' = ", v[i].key);
        if (!strstr(err.text, value)) fail_msg("%s: %s", v[i].key, err.text);
        if (!strstr(err.text, "--ignore-unknown")) fail_msg("%s: %s", v[i].key, err.text);
        if (open_saying(model, &v[i], true, &err)) fail_msg("%s: %s", v[i].key, err.text);
    }
}

static const char *const models[] = {"llama-untied", "qwen2",       "qwen3",        "qwen3_moe",
                                     "rwkv7",        "arwkv7-gate", "glm4_moe_lite"};

/* Of every model: what converters and quantisers add, whatever its value. */
static void bookkeeping_opens(void **state)
{
    (void)state;
    static const struct said all[] = {
        {"general.quantization_version", U32, 2},
        {"general.file_type", U32, 15},
        {"general.author", TEXT, 0},
        {"general.finetune", TEXT, 0},
        {"general.size_label", TEXT, 0},
        {"general.license", TEXT, 0},
        {"general.base_model.count", U32, 1},
        {"general.base_model.0.repo_url", TEXT, 0},
        {"general.tags", TEXTS, 0},
        {"general.languages", TEXTS, 0},
        {"general.source.huggingface.repository", TEXT, 0},
        {"general.sampling.xtc_probability", F32, 0.5},
        {"quantize.imatrix.file", TEXT, 0},
        {"quantize.imatrix.dataset", TEXT, 0},
        {"quantize.imatrix.entries_count", U32, 224},
        {"quantize.imatrix.chunks_count", U32, 125},
        {"mradermacher.quantize_version", TEXT, 0},
        {"mradermacher.quantized_at", TEXT, 0},
        {"tokenizer.huggingface.json", TEXT, 0},
        {"tokenizer.chat_template.rerank", TEXT, 0},
        {"tokenizer.chat_templates", TEXTS, 0},
        {"tokenizer.ggml.add_sep_token", BOOL, 1},
        {"tokenizer.ggml.seperator_token_id", U32, 3},
        {"tokenizer.ggml.cls_token_id", U32, 3},
        {"tokenizer.ggml.mask_token_id", U32, 3},
        {"tokenizer.ggml.fim_pre_token_id", U32, 3},
        {"tokenizer.ggml.fim_suf_token_id", U32, 3},
        {"tokenizer.ggml.fim_mid_token_id", U32, 3},
        {"tokenizer.ggml.fim_pad_token_id", U32, 3},
        {"tokenizer.ggml.fim_rep_token_id", U32, 3},
        {"tokenizer.ggml.fim_sep_token_id", U32, 3},
        {"tokenizer.ggml.prefix_token_id", U32, 3},
        {"tokenizer.ggml.suffix_token_id", U32, 3},
        {"tokenizer.ggml.middle_token_id", U32, 3},
        {"tokenizer.ggml.token_type_count", U32, 1},
        {"tokenizer.ggml.add_padding_token", BOOL, 0},
        {"tokenizer.ggml.remove_extra_whitespaces", BOOL, 0},
        {"tokenizer.ggml.normalizer.lowercase", BOOL, 0},
        {"tensor_data_layout", TEXT, 0},
        {"vocab_size", U32, 101},
        {"pooling_type", U32, 3}, /* generation goes on; embeddings refuse */
        {"classifier.output_labels", TEXTS, 0},
        {"attention.causal", BOOL, 1},
        {"rope.scaling.finetuned", BOOL, 0},
        {"expert_weights_scale", F32, 1},
        {"nextn_predict_layers", U32, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (strcmp(models[i], "glm4_moe_lite") == 0)
            must_open(models[i], all, ARRAY_LEN(all) - 1); /* it has an MTP block */
        else
            must_open(models[i], all, ARRAY_LEN(all));
    }
}

/* The keys that llama.cpp's converter has for attention models, with values that change nothing;
 * those that the twins have are not repeated. */
static void neutral_values_open(void **state)
{
    (void)state;
    static const struct said attention[] = {
        {"attention.scale", F32, 0},
        {"attention.clamp_kqv", F32, 0},
        {"attention.max_alibi_bias", F32, 0},
        {"attention.layer_norm_epsilon", F32, 1e-5},
        {"attention.sliding_window", U32, 0},
        {"attention.sliding_window", U32, 4096},
        {"attention.output_scale", F32, 1},
        {"attention.value_scale", F32, 0},
        {"attention.temperature_length", U32, 0},
        {"attention.temperature_scale", F32, 0},
        {"attention.shared_kv_layers", U32, 0},
        {"attention.indexer.head_count", U32, 0},
        {"attention.rope_pattern", U32S, 1},
        {"attn_logit_softcapping", F32, 0},
        {"final_logit_softcapping", F32, 0},
        {"router_logit_softcapping", F32, 0},
        {"logit_scale", F32, 1},
        {"logit_scale", F32, 0},
        {"residual_scale", F32, 1},
        {"embedding_scale", F32, 1},
        {"use_parallel_residual", BOOL, 0},
        {"swiglu_clamp_exp", F32S, 0},
        {"rope.dimension_sections", U32S, 0},
        {"rope.freq_base_swa", F32, 5000},
        {"rope.scaling.alpha", F32, 0},
        {"rope.scaling.factor", F32, 1},
        {"rope.scaling.attn_factor", F32, 1},
        {"rope.scaling.original_context_length", U32, 4096},
        {"rope.scaling.yarn_ext_factor", F32, -1},
        {"rope.scaling.yarn_attn_factor", F32, 2}, /* no yarn */
        {"rope.scaling.yarn_beta_fast", F32, 64},
        {"rope.scaling.yarn_beta_slow", F32, 2},
        {"rope.scaling.yarn_log_multiplier", F32, 0.1},
        {"token_shift_count", U32, 2},
        {"time_mix_extra_dim", U32, 0},
        {"decoder_start_token_id", U32, 1},
        {"ssm.inner_size", U32, 0},
        {"moe_every_n_layers", U32, 0},
        {"a_later_scale", F32, 1},
        {"a_later_switch", BOOL, 0},
        {"a_later_count", U32, 0},
        {"a_later_list", BOOLS, 0},
    };
    static const struct said dense[] = {
        {"expert_count", U32, 0},       {"expert_used_count", U32, 0},
        {"expert_used_count", U32, 2},  {"expert_shared_count", U32, 0},
        {"expert_group_count", U32, 0}, {"expert_weights_norm", BOOL, 0},
        {"expert_gating_func", U32, 0}, {"leading_dense_block_count", U32, 0},
        {"norm_top_k_prob", BOOL, 1},   {"attention.q_lora_rank", U32, 0},
    };
    static const struct said moe[] = {
        {"expert_shared_feed_forward_length", U32, 0},
        {"expert_group_count", U32, 1},
        {"expert_group_used_count", U32, 1},
        {"expert_chunk_feed_forward_length", U32, 0},
        {"expert_group_scale", F32, 0.05},
    };
    static const struct said rwkv[] = {
        {"attention.head_count", U32, 0},
        {"attention.head_count_kv", U32, 2},
        {"rescale_every_n_layers", U32, 0},
        {"rope.dimension_count", U32, 64},
        {"attention.group_norm_epsilon", F32, 64e-5},
    };
    static const char *const with_heads[] = {"llama-untied", "qwen2", "qwen3", "qwen3_moe",
                                             "glm4_moe_lite"};
    for (size_t i = 0; i < ARRAY_LEN(with_heads); i++)
        must_open(with_heads[i], attention, ARRAY_LEN(attention));
    for (size_t i = 0; i < 3; i++) must_open(with_heads[i], dense, ARRAY_LEN(dense));
    for (size_t i = 3; i < 5; i++) must_open(with_heads[i], moe, ARRAY_LEN(moe));
    must_open("rwkv7", rwkv, ARRAY_LEN(rwkv));
    must_open("arwkv7-gate", rwkv, ARRAY_LEN(rwkv));
    must_open("rwkv7", &(struct said){"token_shift_count", U32, 2}, 1);
    must_open("arwkv7-gate", &(struct said){"token_shift_count", U32, 1}, 1);
}

static void values_that_matter_are_refused(void **state)
{
    (void)state;
    static const struct said all[] = {
        {"attention.scale", F32, 0.5},
        {"attention.clamp_kqv", F32, 8},
        {"attention.max_alibi_bias", F32, 8},
        {"attention.causal", BOOL, 0},
        {"attention.head_dim", U32, 6},
        {"attention.key_length_swa", U32, 6},
        {"attention.indexer.top_k", U32, 2048},
        {"attn_logit_softcapping", F32, 50},
        {"final_logit_softcapping", F32, 30},
        {"logit_scale", F32, 0.0625},
        {"residual_scale", F32, 0.22},
        {"embedding_scale", F32, 12},
        {"use_parallel_residual", BOOL, 1},
        {"hidden_activation", TEXT, 0},
        {"rope.dimension_sections", U32S, 16},
        {"rope.scaling.alpha", F32, 2},
        {"rope.scaling.attn_factor", F32, 2}, /* no yarn */
        {"swiglu_clamp_exp", F32S, 7},
        {"embedding_length_out", U32, 7},
        {"vocab_size", U32, 100},
        {"nextn_later", U32, 3},
        {"a_later_scale", F32, 2},
        {"a_later_switch", BOOL, 1},
        {"a_later_list", U32S, 4},
        {"fletch.later", U32, 1},
        {"tokenizer.fletch.later", BOOL, 1},
        {"tokenizer.ggml.remove_extra_whitespaces", BOOL, 1},
        {"tokenizer.ggml.precompiled_charsmap", U32S, 1},
        {"tokenizer.ggml.normalizer.lowercase", BOOL, 1},
        {"tokenizer.ggml.suppress_tokens", U32S, 5},
        {"tokenizer.ggml.later", TEXT, 0},
    };
    static const struct said moe[] = {
        {"leading_dense_block_count", U32, 1},
        {"expert_shared_count", U32, 1},
        {"expert_gating_func", U32, 2},
        {"expert_shared_feed_forward_length", U32, 512},
    };
    must_refuse("llama-untied", all, ARRAY_LEN(all));
    must_refuse("qwen3_moe", moe, ARRAY_LEN(moe));
    must_refuse("rwkv7", &(struct said){"rescale_every_n_layers", U32, 6}, 1);
    must_refuse("rwkv7", &(struct said){"token_shift_count", U32, 1}, 1);
}

static void yarn_is_computed_with_its_usual_numbers(void **state)
{
    (void)state;
    static const struct said bad[] = {
        {"rope.scaling.yarn_attn_factor", F32, 2},
        {"rope.scaling.yarn_ext_factor", F32, 0.5},
        {"rope.scaling.yarn_log_multiplier", F32, 0.1},
    };
    static const struct said good[] = {
        {"rope.scaling.yarn_attn_factor", F32, 1}, {"rope.scaling.yarn_beta_fast", F32, 64},
        {"rope.scaling.yarn_beta_slow", F32, 2},   {"rope.scaling.yarn_ext_factor", F32, 1},
        {"rope.scaling.yarn_ext_factor", F32, -1}, {"rope.scaling.yarn_log_multiplier", F32, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad) + ARRAY_LEN(good); i++) {
        bool is_bad = i < ARRAY_LEN(bad);
        const struct said *v = is_bad ? &bad[i] : &good[i - ARRAY_LEN(bad)];
        struct twin t;
        struct model *m;
        struct err err = {0};
        char key[96];
        snprintf(key, sizeof key, "qwen2.%s", v->key);
        twin_open(&t, "qwen2", "");
        assert_int_equal(source_add_str(t.to, "qwen2.rope.scaling.type", STR("yarn"), &err), 0);
        assert_int_equal(source_add_f32(t.to, "qwen2.rope.scaling.factor", 4, &err), 0);
        add_said(t.to, key, v);
        int rc = model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err);
        if ((rc != 0) != is_bad || (rc && !strstr(err.text, v->key)))
            fail_msg("%s %g: %d %s", v->key, v->value, rc, err.text);
        if (!rc) model_close(m);
        twin_close(&t);
    }
}

/* As another converter names expert_weights_norm and key_length. */
static void other_names_are_honoured(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct twin t;
        struct model *m;
        struct err err = {0};
        twin_open(&t, "qwen3_moe", "qwen3moe.expert_weights_norm");
        assert_int_equal(source_add_bool(t.to, "qwen3moe.norm_top_k_prob", on, &err), 0);
        if (model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err))
            fail_msg("%s", err.text);
        assert_int_equal(m->hp.expert_norm, on);
        model_close(m);
        twin_close(&t);
    }
    must_open("llama-untied", &(struct said){"attention.head_dim", U32, 8}, 1);
    must_open("qwen3", &(struct said){"attention.head_dim", U32, 14}, 1);
}

static void the_usual_scale_may_be_said(void **state)
{
    (void)state;
    static const char *const with_heads[] = {"llama-untied", "qwen3", "glm4_moe_lite"};
    static const double widths[] = {8, 14, 32}; /* of a head's keys */
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        const struct said v = {"attention.scale", F32, 1 / sqrt(widths[i])};
        must_open(with_heads[i], &v, 1);
        must_refuse(with_heads[i], &(struct said){"attention.scale", F32, v.value * 1.01}, 1);
    }
}

/* A tensor more: the error, or 0. */
static int open_with(const char *model, const char *without, const char *name, struct err *err)
{
    static const float ones[64] = {1};
    struct twin t;
    struct model *m;
    twin_open(&t, model, without);
    if (name[0]) twin_add(&t, name, QT_F32, 8, 1, 1, ones);
    int rc = model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, err);
    if (!rc) model_close(m);
    twin_close(&t);
    return rc;
}

static void a_tensor_without_use_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tensor;
    } bad[] = {
        {"llama-untied", "blk.0.attn_sinks.weight"},
        {"llama-untied", "blk.0.attn_q_norm.weight"},
        {"llama-untied", "blk.1.post_attention_norm.weight"},
        {"llama-untied", "blk.0.attn_q.scale"},
        {"llama-untied", "blk.0.attn_norm.bias"},
        {"llama-untied", "blk.2.attn_norm.weight"}, /* of two blocks */
        {"llama-untied", "blk.99999.attn_norm.weight"},
        {"llama-untied", "blk.x.attn_norm.weight"},
        {"llama-untied", "rope_factors_long.weight"},
        {"qwen3", "cls.output.weight"},
        {"qwen3_moe", "blk.0.ffn_gate_shexp.weight"},
        {"rwkv7", "blk.0.time_mix_v3.weight"},
        {"glm4_moe_lite", "blk.1.attn_q.weight"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = {0};
        if (open_with(bad[i].model, "", bad[i].tensor, &err) != FLETCH_E_UNSUPPORTED)
            fail_msg("%s with %s: %s", bad[i].model, bad[i].tensor, err.text);
        if (!strstr(err.text, bad[i].tensor)) fail_msg("%s", err.text);
    }
}

/* The golden model under the name of another architecture, and what it says besides. */
static void check_renamed(const char *name, const char *arch, const char *as)
{
    struct twin t;
    struct model *m;
    struct err err = {0};
    char without[64], key[128];
    u32 n = (u32)strlen(arch), sections[4] = {2, 1, 1, 0};
    snprintf(without, sizeof without, "general.architecture|%s.*", arch);
    twin_open(&t, name, without);
    source_add_str(t.to, "general.architecture", str_of(as), &err);
    for (u32 i = 0; i < t.from->n_kvs; i++) {
        struct kv kv = t.from->kvs[i];
        if (kv.key.n <= n || memcmp(kv.key.p, arch, n) != 0 || kv.key.p[n] != '.') continue;
        snprintf(key, sizeof key, "%s%.*s", as, (int)(kv.key.n - n), kv.key.p + n);
        kv.key = str_of(arena_copy(&t.to->arena, str_of(key)));
        assert_int_equal(source_add_kv(t.to, &kv, &err), 0);
    }
    snprintf(key, sizeof key, "%s.rope.dimension_sections", as);
    source_add_array(t.to, key, KV_U32, 4, sections, sizeof sections, &err);
    snprintf(key, sizeof key, "%s.n_deepstack_layers", as);
    source_add_u32(t.to, key, 3, &err);
    if (model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err))
        fail_msg("%s: %s", as, err.text);
    model_close(m);
    twin_close(&t);
}

static void text_models_of_vision_models_open(void **state)
{
    (void)state;
    check_renamed("qwen2", "qwen2", "qwen2vl");
    check_renamed("qwen3", "qwen3", "qwen3vl");
    check_renamed("qwen3_moe", "qwen3moe", "qwen3vlmoe");
}

static void spare_tensors_open(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tensor;
    } good[] = {
        {"llama-untied", "blk.0.attn_rot_embd.weight"},
        {"glm4_moe_lite", "blk.0.attn_kv_b.weight"},  /* beside its split halves */
        {"llama-untied", "blk.2.nextn.enorm.weight"}, /* an MTP block that nobody announced */
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct err err = {0};
        if (open_with(good[i].model, "", good[i].tensor, &err)) fail_msg("%s", err.text);
    }
}

static void a_shorter_trunk_is_refused(void **state)
{
    (void)state;
    static const struct said two = {"block_count", U32, 1};
    struct err err = {0};
    assert_int_equal(open_saying("llama-untied", &two, false, &err), FLETCH_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.text, "'blk.1.attn_norm.weight' (llama.block_count ends before it)"));
    assert_non_null(strstr(err.text, " more"));
}

static void a_missing_part_is_blamed_on_what_is_not_supported(void **state)
{
    (void)state;
    struct twin t;
    struct model *m;
    struct err err = {0};
    twin_open(&t, "qwen2", "blk.*.ffn_gate.weight"); /* as a mixture of experts lacks it */
    assert_int_equal(source_add_u32(t.to, "qwen2.expert_count", 8, &err), 0);
    assert_int_not_equal(model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err), 0);
    assert_non_null(strstr(err.text, "qwen2.expert_count"));
    twin_close(&t);
}

static u32 count_ropes(bool says, bool rotates)
{
    struct twin t;
    struct model *m;
    struct err err = {0};
    u32 n = 0;
    twin_open(&t, "granite", "");
    if (says)
        assert_int_equal(source_add_bool(t.to, "granite.rope.scaling.finetuned", rotates, &err), 0);
    if (model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err))
        fail_msg("%s", err.text);
    for (u32 i = 0; i < m->trunk->n_ops; i++) n += m->trunk->ops[i].kind == OP_ROPE;
    model_close(m);
    twin_close(&t);
    return n;
}

static void granite_may_not_rotate(void **state)
{
    (void)state;
    assert_int_equal(count_ropes(false, false), 4); /* q and k of two layers */
    assert_int_equal(count_ropes(true, true), 4);
    assert_int_equal(count_ropes(true, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bookkeeping_opens),
        cmocka_unit_test(neutral_values_open),
        cmocka_unit_test(values_that_matter_are_refused),
        cmocka_unit_test(yarn_is_computed_with_its_usual_numbers),
        cmocka_unit_test(other_names_are_honoured),
        cmocka_unit_test(the_usual_scale_may_be_said),
        cmocka_unit_test(a_tensor_without_use_is_refused),
        cmocka_unit_test(text_models_of_vision_models_open),
        cmocka_unit_test(spare_tensors_open),
        cmocka_unit_test(a_shorter_trunk_is_refused),
        cmocka_unit_test(a_missing_part_is_blamed_on_what_is_not_supported),
        cmocka_unit_test(granite_may_not_rotate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
