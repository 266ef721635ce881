/* What hf_config.c and hf_rope.c read config.json with: fields are noted as asked for, values land
 * in the source under GGUF's keys. */
#ifndef FLETCH_HF_CFG_H
#define FLETCH_HF_CFG_H

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
static inline const json_t *get(const struct cfg *c, const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    strmap_add(&c->asked[obj != c->root && obj != c->outer], str_of(key), 0);
    return json_is_null(v) ? NULL : v;
}

static inline struct str get_str(const struct cfg *c, const json_t *obj, const char *key)
{
    const json_t *v = get(c, obj, key);
    return (struct str){json_string_value(v), json_string_length(v)};
}

/* What a class of transformers has for a field that published files leave out; 0: nothing. */
static inline double class_default(const struct cfg *c, const char *key)
{
    static const struct {
        u64 archs;
        const char *key;
        double value;
    } defaults[] = {
        {HF_GEMMA3, "num_attention_heads", 8},
        {HF_GEMMA3, "num_key_value_heads", 4},
        {HF_GEMMA2 | HF_GEMMA3, "head_dim", 256},
        {HF_GEMMA3, "vocab_size", 262208},
        {HF_GEMMA3, "max_position_embeddings", 131072},
        {HF_GEMMA2 | HF_GEMMA3, "rms_norm_eps", 1e-6},
        {HF_GEMMA2 | HF_GEMMA3, "query_pre_attn_scalar", 256},
        {HF_GEMMA2, "attn_logit_softcapping", 50},
        {HF_GEMMA2, "final_logit_softcapping", 30},
        {HF_GEMMA2 | HF_GEMMA3 | HF_EXAONE4 | HF_EXAONE_MOE | HF_COHERE2 | HF_COHERE2_MOE,
         "sliding_window", 4096},
        {HF_GEMMA4, "num_attention_heads", 8},
        {HF_GEMMA4, "num_key_value_heads", 4},
        {HF_GEMMA4, "head_dim", 256},
        {HF_GEMMA4, "vocab_size", 262144},
        {HF_GEMMA4, "max_position_embeddings", 131072},
        {HF_GEMMA4, "rms_norm_eps", 1e-6},
        {HF_GEMMA4, "sliding_window", 512},
        {HF_GPT_OSS, "sliding_window", 128},
        {HF_GPT_OSS, "head_dim", 64},
        {HF_COHERE2 | HF_COHERE2_MOE, "logit_scale", 0.0625},
        {HF_COHERE2 | HF_COHERE2_MOE, "layer_norm_eps", 1e-5},
        {HF_COHERE2_MOE | HF_AFMOE | HF_LAGUNA | HF_LLAMA4 | HF_STEP35, "head_dim", 128},
        {HF_MIMO2, "head_dim", 192},
        {HF_MUSE, "head_dim", 128},
        {HF_MUSE, "sliding_window", 2048},
        {HF_MUSE, "final_logit_softcapping", 20},
        {HF_MUSE, "qk_scale_factor", 3.87},
        {HF_MUSE, "output_multiplier", 0.19611613513818404},
        {HF_MUSE, "rms_norm_eps", 1e-5},
        {HF_MIMO2, "v_head_dim", 128},
        {HF_AFMOE, "sliding_window", 1024},
        {HF_LAGUNA, "sliding_window", 512},
        {HF_MIMO2, "sliding_window", 128},
        {HF_LFM2 | HF_LFM2_MOE, "norm_eps", 1e-5},
        {HF_LFM2 | HF_LFM2_MOE, "max_position_embeddings", 128000},
        {HF_NEMOTRON_H, "layer_norm_epsilon", 1e-5},
        {HF_NEMOTRON_H, "n_groups", 8},
        {HF_NEMOTRON_H, "ssm_state_size", 128},
    };
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
        if ((defaults[i].archs & c->h->arch) && strcmp(defaults[i].key, key) == 0)
            return defaults[i].value;
    return 0;
}

static inline u32 int_in(struct cfg *c, const char *key, u32 lo, u32 hi, u32 absent)
{
    const json_t *v = get(c, c->root, key);
    if (!v && class_default(c, key) > 0) return (u32)class_default(c, key);
    if (!v && absent >= lo) return absent;
    if (!v) FAIL(c, FLETCH_E_FORMAT, "config.json: missing %s", key);
    json_int_t i = json_integer_value(v);
    if (json_is_integer(v) && i >= (json_int_t)lo && i <= (json_int_t)hi) return (u32)i;
    FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not an integer from %u to %u", key, lo, hi);
    return lo;
}

static inline u32 need_u32(struct cfg *c, const char *key, u32 hi)
{
    return int_in(c, key, 1, hi, 0);
}

/* absent is at least 1 */
static inline u32 opt_u32(struct cfg *c, const char *key, u32 hi, u32 absent)
{
    return int_in(c, key, 1, hi, absent);
}

static inline double opt_num(struct cfg *c, const json_t *obj, const char *key, double absent)
{
    const json_t *v = get(c, obj, key);
    if (!v && obj == c->root && class_default(c, key) > 0) return class_default(c, key);
    if (!v) return absent;
    double d = json_number_value(v);
    if (json_is_number(v) && d >= 0 && d <= (double)FLT_MAX) return d;
    FAIL(c, FLETCH_E_FORMAT, "config.json: %s must be a number of at least 0", key);
    return absent;
}

static inline double need_num(struct cfg *c, const json_t *obj, const char *key)
{
    bool known = obj == c->root && class_default(c, key) > 0;
    if (!get(c, obj, key) && !known) FAIL(c, FLETCH_E_FORMAT, "config.json: missing %s", key);
    return opt_num(c, obj, key, 1);
}

static inline bool opt_bool(struct cfg *c, const char *key, bool absent)
{
    const json_t *v = get(c, c->root, key);
    if (!v) return absent;
    if (!json_is_boolean(v)) FAIL(c, FLETCH_E_FORMAT, "config.json: %s is not a boolean", key);
    return json_is_true(v);
}

/* A setting of which we know one value only. */
static inline void only_str(struct cfg *c, const char *key, const char *known)
{
    struct str v = get_str(c, c->root, key);
    if (get(c, c->root, key) && (!v.p || !str_is(v, known)))
        source_refuse(c->s, "config.json: %s %s is not supported, only %s", key,
                      v.p ? QUOTE(v) : "(not a string)", known);
}

static inline void only_bool(struct cfg *c, const char *key, bool known)
{
    if (opt_bool(c, key, known) != known)
        source_refuse(c->s, "config.json: %s %s is not supported", key, known ? "false" : "true");
}

struct key_name {
    char text[96];
};

static inline struct key_name key_of(const struct cfg *c, const char *suffix)
{
    struct key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch, suffix);
    return k;
}

static inline void put_u32(struct cfg *c, const char *suffix, u32 v)
{
    if (!c->rc) c->rc = source_add_u32(c->s, key_of(c, suffix).text, v, c->err);
}

static inline void put_f32(struct cfg *c, const char *suffix, double v)
{
    if (!c->rc) c->rc = source_add_f32(c->s, key_of(c, suffix).text, (float)v, c->err);
}

static inline void put_bool(struct cfg *c, const char *suffix, bool v)
{
    if (!c->rc) c->rc = source_add_bool(c->s, key_of(c, suffix).text, v, c->err);
}

static inline void put_str(struct cfg *c, const char *suffix, const char *v)
{
    if (!c->rc) c->rc = source_add_str(c->s, key_of(c, suffix).text, str_of(v), c->err);
}

/* hf_config.c: a decoder's common numbers; which layers attend to a window (false: none); counts
 * and widths of experts; dense blocks before those with experts. */
bool hf_list_windows(struct cfg *c, bool slides[512]);
void hf_put_experts(struct cfg *c, u32 n_experts, bool norm);
void hf_put_counts(struct cfg *c, u32 n, u32 used, u32 n_ff, u32 n_shared);
u32 hf_leading_dense(struct cfg *c, u32 absent);

/* hf_families.c */
void hf_put_chunks(struct cfg *c);
void hf_put_by_layer(struct cfg *c, const char *suffix, u32 full, u32 local, u32 first_last,
                     u32 last);
bool hf_put_each(struct cfg *c, const char *key, const char *suffix);
u32 hf_put_gemma4_sizes(struct cfg *c, u32 n_head, u32 n_ff);
void hf_read_gemma4(struct cfg *c);
void hf_read_cohere2_moe(struct cfg *c);
void hf_read_afmoe(struct cfg *c);
void hf_read_laguna(struct cfg *c);
void hf_read_mimo2(struct cfg *c);
void hf_read_llama4(struct cfg *c);
void hf_read_muse(struct cfg *c);
void hf_read_step35(struct cfg *c);
void hf_read_exaone_moe(struct cfg *c);

/* Every block has the part that value belongs to, or those without it get 0. */
void hf_put_blocks(struct cfg *c, const char *suffix, u32 value, enum hf_part part);
/* A decoder of attention and a feed-forward; Granite's scales too. */
void hf_read_dense(struct cfg *c);
void hf_read_granite(struct cfg *c);
/* Latent attention, and what goes before the experts. */
void hf_put_mla(struct cfg *c);
/* hf_hybrid.c */
void hf_read_lfm2(struct cfg *c);
void hf_read_nemotron(struct cfg *c);
void hf_read_kimi_linear(struct cfg *c);
void hf_read_granite_hybrid(struct cfg *c);
void hf_read_falcon_h1(struct cfg *c);
/* Whether a block has that part: architectures without it have the same class. */
bool hf_lists(struct cfg *c, enum hf_part part);

/* hf_rope.c: the rotation of heads of n_rot columns, or of the part of them that rotates. */
void hf_put_rope(struct cfg *c, u32 n_rot, u32 n_ctx);

#endif
