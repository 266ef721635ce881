/* The lists of keys and tensors that may go unread, for all architectures in one place. A row says
 * with which values a key changes nothing; with any other value it is refused, because the answers
 * would be wrong. Keys that hparams.c and vocab.c read need no row. */
#include "model/known.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LLAMA = 1,
    QWEN2 = 2,
    QWEN3 = 4,
    QWEN3MOE = 8,
    DEEPSEEK2 = 16,
    RWKV7 = 32,
    ARWKV7 = 64,
    GLM4MOE = 128,
    SEED_OSS = 256,
    SMOLLM3 = 512,
    PHI3 = 1024,
    MINIMAX_M2 = 2048,
    ERNIE = 4096,
    ERNIE_MOE = 8192,
    GRANITE = 16384,
    HUNYUAN = 32768,
    HUNYUAN_MOE = 65536,
    QWEN2VL = 131072,
    QWEN3VL = 262144,
    QWEN3VLMOE = 524288,
    QWEN35 = 1 << 20,
    QWEN35MOE = 1 << 21,
    QWEN3NEXT = 1 << 22,
    GPT_OSS = 1 << 23,
    GEMMA2 = 1 << 24,
    GEMMA3 = 1 << 25,
    MISTRAL3 = 1 << 26,
    OLMO2 = 1 << 27,
    EXAONE4 = 1 << 28,
    COHERE2 = 1 << 29,
    GLM4 = 1 << 30,
    LFM2 = 1ull << 40,
    LFM2MOE = 1ull << 41,
    NEMOTRON_H = 1ull << 42,
    NEMOTRON_H_MOE = 1ull << 43,
    GRANITE_H = 1ull << 44,
    FALCON_H1 = 1ull << 45,
    GEMMA4 = 1ull << 50,
    MISTRAL4 = 1ull << 51,
    COHERE2MOE = 1ull << 52,
    AFMOE = 1ull << 53,
    LAGUNA = 1ull << 54,
    MIMO2 = 1ull << 55,
    LLAMA4 = 1ull << 56,
    EXAONEMOE = 1ull << 57,
    MUSE = 1ull << 58,
    STEP35 = 1ull << 59,
    HY_V3 = 1ull << 46,
    BAILING2 = 1ull << 47,
    KIMI_LINEAR = 1ull << 48,
    VISION = QWEN2VL | QWEN3VL | QWEN3VLMOE | QWEN35 |
             QWEN35MOE, /* text models, whose tower is another file */
    DENSE = QWEN2VL | QWEN3VL | LLAMA | QWEN2 | QWEN3 | SEED_OSS | SMOLLM3 | PHI3 | ERNIE |
            GRANITE | HUNYUAN | QWEN35 | GEMMA2 | GEMMA3 | MISTRAL3 | OLMO2 | EXAONE4 | COHERE2 |
            GLM4 | LFM2 | NEMOTRON_H | GRANITE_H | FALCON_H1 | GEMMA4 | MUSE,
    MOE = QWEN3MOE | QWEN3VLMOE | DEEPSEEK2 | GLM4MOE | MINIMAX_M2 | ERNIE_MOE | HUNYUAN_MOE |
          QWEN35MOE | QWEN3NEXT | GPT_OSS | LFM2MOE | NEMOTRON_H_MOE | MISTRAL4 | COHERE2MOE |
          AFMOE | LAGUNA | MIMO2 | LLAMA4 | EXAONEMOE | STEP35 | HY_V3 | BAILING2 | KIMI_LINEAR,
    ATTENTION = DENSE | MOE,
    RWKV = RWKV7 | ARWKV7,
    ALL = ATTENTION | RWKV,
};

static const struct {
    u64 bit;
    const char *name;
} arch_names[] = {
    {LLAMA, "llama"},
    {QWEN2, "qwen2"},
    {QWEN3, "qwen3"},
    {QWEN3MOE, "qwen3moe"},
    {DEEPSEEK2, "deepseek2"},
    {RWKV7, "rwkv7"},
    {ARWKV7, "arwkv7"},
    {GLM4MOE, "glm4moe"},
    {SEED_OSS, "seed_oss"},
    {SMOLLM3, "smollm3"},
    {PHI3, "phi3"},
    {MINIMAX_M2, "minimax-m2"},
    {ERNIE, "ernie4_5"},
    {ERNIE_MOE, "ernie4_5-moe"},
    {GRANITE, "granite"},
    {HUNYUAN, "hunyuan-dense"},
    {HUNYUAN_MOE, "hunyuan-moe"},
    {QWEN2VL, "qwen2vl"},
    {QWEN3VL, "qwen3vl"},
    {QWEN3VLMOE, "qwen3vlmoe"},
    {QWEN35, "qwen35"},
    {QWEN35MOE, "qwen35moe"},
    {QWEN3NEXT, "qwen3next"},
    {GPT_OSS, "gpt-oss"},
    {GEMMA2, "gemma2"},
    {GEMMA3, "gemma3"},
    {MISTRAL3, "mistral3"},
    {OLMO2, "olmo2"},
    {EXAONE4, "exaone4"},
    {COHERE2, "cohere2"},
    {GLM4, "glm4"},
    {LFM2, "lfm2"},
    {LFM2MOE, "lfm2moe"},
    {NEMOTRON_H, "nemotron_h"},
    {NEMOTRON_H_MOE, "nemotron_h_moe"},
    {GRANITE_H, "granitehybrid"},
    {FALCON_H1, "falcon-h1"},
    {GEMMA4, "gemma4"},
    {MISTRAL4, "mistral4"},
    {COHERE2MOE, "cohere2moe"},
    {AFMOE, "afmoe"},
    {LAGUNA, "laguna"},
    {MIMO2, "mimo2"},
    {LLAMA4, "llama4"},
    {EXAONEMOE, "exaone-moe"},
    {MUSE, "muse-glimmer"},
    {STEP35, "step35"},
    {HY_V3, "hy_v3"},
    {BAILING2, "bailingmoe2"},
    {KIMI_LINEAR, "kimi-linear"},
};

/* The values that change nothing. */
enum harmless {
    ANY,
    OFF,     /* 0, false, empty; of an array, every element */
    ONE,     /* 1 or off */
    TRUE,    /* true */
    EQUAL,   /* the row's value, or off */
    SCALE,   /* what attention scales by in any case, or off */
    YARN,    /* the row's value or off; any without yarn */
    EXTENDS, /* 1, -1 (unsaid) or off; any without yarn */
    SILU,    /* a name of SiLU */
    HEAD_K,  /* the width of a head's keys, or off */
    HEAD_V,  /* and of its values */
    WIDTH,   /* d_model, or off */
    ROTATED, /* the rotated part of a head, or off */
    BASE,    /* the base of the rotation, or off; any without a window */
    SHARED,  /* the width of all shared experts, or off */
};

static const struct known {
    u64 archs;
    const char *key; /* without "ARCH."; one that ends in '.' stands for all that begin so */
    enum harmless values;
    double value;
} keys[] = {
    /* about the model, not part of its arithmetic */
    {ALL, "tensor_data_layout", ANY, 0},
    {ALL, "decoder_start_token_id", ANY, 0},
    {ALL, "classifier.output_labels", ANY, 0},
    {ALL, "rope.scaling.finetuned", ANY, 0},
    {ALL, "deepstack_mapping", ANY, 0}, /* of n_deepstack_layers, which is refused itself */
    {ALL, "embedding_length_out", WIDTH, 0},

    /* scales, clamps and caps */
    {ALL, "logit_scale", ONE, 0},
    {ALL, "residual_scale", ONE, 0},
    {ALL, "embedding_scale", ONE, 0},
    {ALL, "attn_logit_softcapping", OFF, 0},
    {ALL, "final_logit_softcapping", OFF, 0},
    {ALL, "router_logit_softcapping", OFF, 0},
    {ALL, "swiglu_clamp_exp", OFF, 0},
    {ALL, "swiglu_clamp_shexp", OFF, 0},
    {ALL, "use_parallel_residual", OFF, 0},
    {(ATTENTION | ARWKV7) & ~(u64)(GEMMA2 | GEMMA3 | GEMMA4), "hidden_activation", SILU, 0},
    {GEMMA2 | GEMMA3 | GEMMA4, "hidden_activation", ANY, 0},

    /* attention */
    {ATTENTION, "attention.scale", SCALE, 0},
    {ATTENTION, "attention.causal", TRUE, 0},
    {ATTENTION, "attention.clamp_kqv", OFF, 0},
    {ATTENTION, "attention.max_alibi_bias", OFF, 0},
    {ATTENTION, "attention.output_scale", ONE, 0},
    {ATTENTION, "attention.value_scale", ONE, 0},
    {ATTENTION, "attention.temperature_length", OFF, 0},
    {ATTENTION, "attention.temperature_scale", OFF, 0},
    {ATTENTION, "attention.layer_norm_epsilon", ANY, 0}, /* their norms are RMS norms */
    {ATTENTION, "attention.group_norm_epsilon", ANY, 0},
    {ATTENTION, "attention.group_norm_groups", ANY, 0},
    {ATTENTION, "attention.sliding_window_pattern", ANY, 0}, /* of no window */
    {ATTENTION, "attention.head_dim", HEAD_K, 0},            /* beside key_length */
    {ATTENTION, "attention.key_length_swa", HEAD_K, 0},
    {ATTENTION, "attention.value_length_swa", HEAD_V, 0},
    {ATTENTION, "attention.rope_pattern", ONE, 0}, /* every layer rotates */
    {RWKV, "attention.causal", TRUE, 0},
    {RWKV, "attention.head_count", ANY, 0}, /* no attention: wkv.head_size decides */
    {RWKV, "attention.head_count_kv", ANY, 0},
    {RWKV, "attention.key_length", ANY, 0},
    {RWKV, "attention.value_length", ANY, 0},
    {RWKV, "attention.group_norm_epsilon", EQUAL, 64e-5},
    {RWKV7, "attention.layer_norm_rms_epsilon", ANY, 0},
    {ARWKV7, "attention.layer_norm_epsilon", ANY, 0},

    /* rotation */
    {VISION, "rope.dimension_sections", ANY, 0}, /* positions of text are the same in all */
    {VISION, "n_deepstack_layers", ANY, 0},
    {ATTENTION, "rope.dimension_sections", OFF, 0},
    {ATTENTION, "rope.dimension_count_swa", ROTATED, 0},
    {ATTENTION, "rope.freq_base_swa", BASE, 0},
    {ATTENTION, "rope.scaling.alpha", OFF, 0},
    {ATTENTION, "rope.scaling.yarn_ext_factor", EXTENDS, 0},
    {ATTENTION, "rope.scaling.yarn_attn_factor", YARN, 1},
    {ATTENTION, "rope.scaling.yarn_log_multiplier", YARN, 0},
    {RWKV, "rope.", ANY, 0}, /* nothing rotates */

    /* experts; without any, expert_count is off and the others say nothing */
    {DENSE | RWKV, "expert_count", OFF, 0},
    {DENSE | RWKV, "expert_used_count", ANY, 0},
    {DENSE | RWKV, "expert_shared_count", ANY, 0},
    {DENSE | RWKV, "expert_feed_forward_length", ANY, 0},
    {DENSE | RWKV, "expert_shared_feed_forward_length", ANY, 0},
    {DENSE | RWKV, "expert_group_count", ANY, 0},
    {DENSE | RWKV, "expert_group_used_count", ANY, 0},
    {DENSE | RWKV, "expert_weights_scale", ANY, 0},
    {DENSE | RWKV, "expert_weights_norm", ANY, 0},
    {DENSE | RWKV, "norm_top_k_prob", ANY, 0},
    {DENSE | RWKV, "expert_gating_func", ANY, 0},
    {DENSE | RWKV, "leading_dense_block_count", ANY, 0},
    {ALL, "expert_group_scale", ANY, 0}, /* of expert_chunk_feed_forward_length */
    {MOE, "expert_shared_feed_forward_length", SHARED, 0},
    {ALL, "moe_every_n_layers", ONE, 0},
    {ALL, "interleave_moe_layer_step", ONE, 0},

    /* recurrence */
    {ATTENTION, "token_shift_count", ANY, 0},
    {RWKV7, "token_shift_count", EQUAL, 2},
    {ARWKV7, "token_shift_count", EQUAL, 1},
    {ALL, "time_mix_extra_dim", ANY, 0}, /* RWKV-6's */
    {ALL, "time_decay_extra_dim", ANY, 0},
};

/* tokenizer.ggml.*: what names a token without changing how text is cut, and what would. */
static const struct known tokenizer_keys[] = {
    {ALL, "token_type_count", ANY, 0},   /* BERT's segments */
    {ALL, "add_sep_token", ANY, 0},      /* between the texts of a pair */
    {ALL, "seperator_token_id", ANY, 0}, /* sic */
    {ALL, "separator_token_id", ANY, 0},
    {ALL, "cls_token_id", ANY, 0},
    {ALL, "mask_token_id", ANY, 0},
    {ALL, "fim_pre_token_id", ANY, 0},
    {ALL, "fim_suf_token_id", ANY, 0},
    {ALL, "fim_mid_token_id", ANY, 0},
    {ALL, "fim_pad_token_id", ANY, 0},
    {ALL, "fim_rep_token_id", ANY, 0},
    {ALL, "fim_sep_token_id", ANY, 0},
    {ALL, "prefix_token_id", ANY, 0},
    {ALL, "suffix_token_id", ANY, 0},
    {ALL, "middle_token_id", ANY, 0},
    {ALL, "scores", ANY, 0}, /* of a vocabulary that merges by rank */
    {ALL, "merges", ANY, 0}, /* of one that merges by score */
    {ALL, "remove_extra_whitespaces", OFF, 0},
    {ALL, "precompiled_charsmap", OFF, 0},
    {ALL, "normalizer.lowercase", OFF, 0},
    {ALL, "normalizer.strip_accents", OFF, 0},
    {ALL, "suppress_tokens", OFF, 0},
};

/* ---- keys ---- */

static bool number(const struct kv *kv, u64 i, double *out)
{
    i64 n;
    if (kv->elem == KV_BOOL) {
        if (i >= kv->n) return false;
        *out = kv->data[i] != 0;
        return true;
    }
    if (!kv_int(kv, i, &n)) return kv_float(kv, i, out);
    *out = (double)n;
    return true;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* Every element is 0, or else allowed. */
static bool all_are(const struct kv *kv, double allowed)
{
    double x;
    u64 at = 0;
    struct str text;
    for (u64 i = 0; i < kv->n; i++) {
        if (kv->elem == KV_STR) {
            if (!kv_next_str(kv, &at, &text) || text.n) return false;
        } else if (!number(kv, i, &x) || (x != 0 && !near(x, allowed))) {
            return false;
        }
    }
    return true;
}

static bool has_word(struct str key, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= key.n; i++)
        if (memcmp(key.p + i, word, n) == 0) return true;
    return false;
}

/* An unknown setting that is off: zero, false, empty, or a scale of 1. */
static bool is_neutral(const struct kv *kv)
{
    bool scale = has_word(kv->key, "scale") || has_word(kv->key, "multiplier") ||
                 has_word(kv->key, "factor");
    return all_are(kv, scale && kv->elem != KV_BOOL ? 1 : 0);
}

static bool is_silu(const struct kv *kv)
{
    u64 at = 0;
    struct str name;
    return kv->type == KV_STR && kv_next_str(kv, &at, &name) &&
           (name.n == 0 || str_is(name, "silu") || str_is(name, "swish"));
}

static bool is_harmless(const struct known *k, const struct kv *kv, const struct hparams *hp)
{
    u32 head = hp->head_k_mla ? hp->head_k_mla : hp->head_k;
    switch (k->values) {
    case ANY: return true;
    case OFF: return all_are(kv, 0);
    case ONE: return all_are(kv, 1);
    case TRUE: return kv->type == KV_BOOL && kv->data[0];
    case EQUAL: return all_are(kv, k->value);
    case SCALE: return all_are(kv, 1 / sqrt((double)MAX(head, 1)));
    case YARN: return hp->rope_scaling != SCALING_YARN || all_are(kv, k->value);
    case EXTENDS: return hp->rope_scaling != SCALING_YARN || all_are(kv, 1) || all_are(kv, -1);
    case SILU: return is_silu(kv);
    case HEAD_K: return all_are(kv, hp->head_k);
    case HEAD_V: return all_are(kv, hp->head_v);
    case WIDTH: return all_are(kv, hp->d_model);
    case ROTATED: return all_are(kv, hp->n_rot);
    case BASE: return !hp->window || all_are(kv, (double)hp->rope_base);
    case SHARED: return all_are(kv, (double)hp->n_ff_expert * hp->n_shared_experts);
    }
    return false;
}

static const struct known *find(const struct known *rows, size_t n, u64 arch, struct str key)
{
    for (size_t i = 0; i < n; i++) {
        const char *k = rows[i].key;
        bool group = k[strlen(k) - 1] == '.';
        if ((rows[i].archs & arch) && (group ? str_starts(key, k) : str_is(key, k)))
            return &rows[i];
    }
    return NULL;
}

static u64 arch_bit(const char *name)
{
    for (u32 i = 0; i < ARRAY_LEN(arch_names); i++)
        if (strcmp(arch_names[i].name, name) == 0) return arch_names[i].bit;
    return 0;
}

/* The key without the prefix, or an empty string. */
static struct str after(struct str key, const char *prefix)
{
    size_t n = strlen(prefix);
    if (!str_starts(key, prefix)) return (struct str){0};
    return (struct str){key.p + n, key.n - n};
}

/* A key of another name space (general, split, what quantised the file and who) changes nothing. */
static bool may_stay(const struct kv *kv, const struct hparams *hp, u64 arch)
{
    char own[sizeof hp->arch + 1];
    const struct known *k;
    snprintf(own, sizeof own, "%s.", hp->arch);
    struct str suffix = after(kv->key, own), tokens = after(kv->key, "tokenizer.ggml.");
    if (suffix.n)
        k = find(keys, ARRAY_LEN(keys), arch, suffix);
    else if (tokens.n)
        k = find(tokenizer_keys, ARRAY_LEN(tokenizer_keys), arch, tokens);
    else if (str_starts(kv->key, "fletch.") || str_starts(kv->key, "tokenizer.fletch."))
        k = NULL; /* of a later version of ours */
    else
        return true;
    return k ? is_harmless(k, kv, hp) : is_neutral(kv);
}

void known_check_keys(const struct source *s, const struct hparams *hp)
{
    u64 arch = *hp->arch ? arch_bit(hp->arch) : UINT64_MAX;
    for (u32 i = 0; i < s->n_kvs; i++)
        if (!s->kv_asked[i] && !may_stay(&s->kvs[i], hp, arch)) source_refuse_kv(s, &s->kvs[i]);
}

/* ---- tensors ---- */

/* In every block; `also` of the same block must be there too, where the row has one. */
static const struct spare {
    u64 archs;
    const char *name, *also;
} spares[] = {
    {ATTENTION, "attn_rot_embd.weight", NULL}, /* the rotation's own frequencies */
    {GEMMA4, "attn_k.weight", NULL},           /* of layers that read the cache of another */
    {GEMMA4, "attn_v.weight", NULL},
    {GEMMA4, "attn_k_norm.weight", NULL},
    {DEEPSEEK2 | MISTRAL4 | KIMI_LINEAR, "attn_kv_b.weight",
     "attn_k_b.weight"}, /* the same, not split */
};

enum { MAX_BLOCKS = 1024 };

/* The block a name belongs to and the rest of it; false for a tensor of no block. */
static bool split_name(struct str name, u32 *block, struct str *rest)
{
    struct str s = after(name, "blk.");
    u32 n = 0;
    size_t i = 0;
    for (; i < s.n && i < 6 && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        n = n * 10 + (u32)(s.p[i] - '0');
    if (i == 0 || i == s.n || s.p[i] != '.') return false;
    *block = n;
    *rest = (struct str){s.p + i + 1, s.n - i - 1};
    return true;
}

static bool is_spare(const struct source *s, u64 arch, u32 block, struct str rest)
{
    /* block 0 mixes no values: converters fill these for other engines */
    if ((arch & RWKV) && block == 0 &&
        (str_is(rest, "time_mix_v0.weight") || str_is(rest, "time_mix_v1.weight") ||
         str_is(rest, "time_mix_v2.weight")))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(spares); i++) {
        char also[64];
        u32 n;
        if (!(spares[i].archs & arch) || !str_is(rest, spares[i].name)) continue;
        if (!spares[i].also) return true;
        snprintf(also, sizeof also, "blk.%u.%s", block, spares[i].also);
        return strmap_get(&s->tensor_index, str_of(also), &n);
    }
    return false;
}

void known_check_tensors(const struct source *s, const struct hparams *hp)
{
    u64 arch = arch_bit(hp->arch);
    u32 block;
    struct str rest;
    bool predicts[MAX_BLOCKS] = {false}; /* an MTP block: the others' results don't need it */
    for (u32 i = 0; i < s->n_tensors; i++)
        if (split_name(s->tensors[i].name, &block, &rest) && block >= hp->n_layers &&
            block < MAX_BLOCKS && str_starts(rest, "nextn."))
            predicts[block] = true;
    for (u32 i = 0; i < s->n_tensors; i++) {
        struct str name = s->tensors[i].name;
        if (s->tensor_asked[i]) continue;
        if (!split_name(name, &block, &rest)) {
            source_refuse(s, "tensor %s", QUOTE(name));
        } else if (block >= hp->n_layers) {
            if (block >= MAX_BLOCKS || !predicts[block])
                source_refuse(s, "tensor %s (%s.block_count ends before it)", QUOTE(name),
                              hp->arch);
        } else if (!is_spare(s, arch, block, rest)) {
            source_refuse(s, "tensor %s", QUOTE(name));
        }
    }
}
