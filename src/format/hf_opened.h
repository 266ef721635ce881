/* For tests: a directory with a given config.json, opened, and what is in it. */
#ifndef FLETCH_HF_OPENED_H
#define FLETCH_HF_OPENED_H

#include "format/hf_testdir.h"

#include <math.h>

#include "format/source.h"

/* Small configurations; a test appends ,"key":value for what it is about. */
#define LLAMA_BODY                                                                  \
    "\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"          \
    "\"intermediate_size\":6,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64," \
    "\"vocab_size\":5"
#define CONFIG(arch, body, extra) "{\"architectures\":[\"" arch "\"]," body extra "}"
#define LLAMA(extra)              CONFIG("LlamaForCausalLM", LLAMA_BODY, extra)
#define MOE_BODY \
    LLAMA_BODY ",\"num_experts\":3,\"num_experts_per_tok\":2,\"moe_intermediate_size\":4"
#define MOE(extra) CONFIG("Qwen3MoeForCausalLM", MOE_BODY, extra)
#define GLM_BODY                                                                 \
    LLAMA_BODY ",\"q_lora_rank\":6,\"kv_lora_rank\":4,\"qk_nope_head_dim\":3,"   \
               "\"qk_rope_head_dim\":2,\"v_head_dim\":5,\"n_routed_experts\":4," \
               "\"n_shared_experts\":1,\"num_experts_per_tok\":2,\"moe_intermediate_size\":7"
#define GLM(extra) CONFIG("Glm4MoeLiteForCausalLM", GLM_BODY, extra)
#define RWKV_BODY                                                                 \
    "\"hidden_size\":8,\"num_hidden_layers\":2,\"head_dim\":4,\"norm_eps\":1e-5," \
    "\"vocab_size\":5,\"intermediate_size\":null"
#define RWKV(extra) CONFIG("RWKV7ForCausalLM", RWKV_BODY, extra)

static inline int open_dir(struct source **s, const char *config, struct err *err)
{
    testdir_puts(&dir, "config.json", config);
    if (!file_exists(testdir_path(&dir, "model.safetensors.index.json")))
        testdir_tensors(&dir, "model.safetensors", false);
    *err = (struct err){0};
    return source_open(s, dir.path, err);
}

static inline struct source *must_open(const char *config)
{
    struct source *s;
    struct err err;
    if (open_dir(&s, config, &err)) fail_msg("%s", err.text);
    return s;
}

/* The source does not open, or a model of it would not. */
static inline void must_fail(const char *config, const char *text)
{
    struct source *s;
    struct err err;
    int rc = open_dir(&s, config, &err);
    if (rc == 0) {
        rc = source_refused_error(s, &err);
        source_close(s);
    }
    if (rc == 0 || !strstr(err.text, text)) fail_msg("%d '%s', not '%s'", rc, err.text, text);
}

static inline u32 u32_of(const struct source *s, const char *key)
{
    u32 v;
    if (source_get_u32(s, key, &v, NULL)) fail_msg("no integer %s", key);
    return v;
}

static inline float f32_of(const struct source *s, const char *key)
{
    float v;
    if (source_get_f32(s, key, &v, NULL)) fail_msg("no float %s", key);
    return v;
}

static inline bool bool_of(const struct source *s, const char *key)
{
    bool v;
    if (source_get_bool(s, key, &v, NULL)) fail_msg("no bool %s", key);
    return v;
}

static inline bool str_of_is(const struct source *s, const char *key, const char *want)
{
    struct str v;
    return source_get_str(s, key, &v, NULL) == 0 && str_is(v, want);
}

#define NEAR(a, b) assert_true(fabs((double)(a) - (double)(b)) <= 1e-6 * fabs((double)(b)))

/* Checks type, shape and every value of a tensor. */
static inline void check_tensor(struct source *s, const char *name, enum qtype type, u32 n_dims,
                                const u64 *ne, const float *want)
{
    const struct tensor *t = source_tensor(s, name);
    const u8 *data;
    struct err err;
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->n_dims, n_dims);
    for (u32 i = 0; i < n_dims; i++) assert_int_equal(t->ne[i], ne[i]);
    assert_int_equal(source_data(s, t, &data, &err), 0);
    assert_int_equal((size_t)data % quant_info(type)->bytes, 0);
    for (u64 i = 0; i < t->n_elems; i++) {
        float f;
        quant_decode(type, data + i * quant_info(type)->bytes, &f, 1);
        if (f != want[i])
            fail_msg("%s[%d] is %g, not %g", name, (int)i, (double)f, (double)want[i]);
    }
}

#define DIMS(...)                                          \
    ARRAY_LEN(((const u64[]){__VA_ARGS__})), (const u64[]) \
    {                                                      \
        __VA_ARGS__                                        \
    }
#define VALUES(...) ((const float[]){__VA_ARGS__})

#endif
