/* What the parts of the Hugging Face reader share: hf.c opens the files, hf_wrapped.c finds the
 * text model in one that also sees or hears, hf_config.c says what the model is, hf_tensors.c gives
 * its tensors GGUF names and shapes. */
#ifndef FLETCH_HF_MODEL_H
#define FLETCH_HF_MODEL_H

#include <jansson.h>

#include "format/safetensors.h"
#include "format/source.h"

/* Bits of u64, so that a rule about tensors can name several. */
enum hf_arch {
    HF_LLAMA = 1,
    HF_QWEN2 = 2,
    HF_QWEN3 = 4,
    HF_QWEN3_MOE = 8,
    HF_GLM4_LITE = 16,
    HF_RWKV7 = 32,
    HF_MIXTRAL = 64,
    HF_GLM4_MOE = 128,
    HF_SEED_OSS = 256,
    HF_SMOLLM3 = 512,
    HF_PHI3 = 1024,
    HF_MINIMAX_M2 = 2048,
    HF_ERNIE = 4096,
    HF_ERNIE_MOE = 8192,
    HF_GRANITE = 16384,
    HF_HUNYUAN = 32768,
    HF_HUNYUAN_MOE = 65536,
    HF_DEEPSEEK = 131072, /* V2 and V3 */
    HF_SOLAR = 262144,
    HF_QWEN35 = 1 << 20,
    HF_QWEN35_MOE = 1 << 21,
    HF_QWEN3_NEXT = 1 << 22,
    HF_DELTA = HF_QWEN35 | HF_QWEN35_MOE | HF_QWEN3_NEXT, /* with a gated delta net */
    HF_GPT_OSS = 1 << 23,
    HF_GEMMA2 = 1 << 24,
    HF_GEMMA3 = 1 << 25,
    HF_MISTRAL3 = 1 << 26,
    HF_OLMO2 = 1 << 27, /* and 3 */
    HF_EXAONE4 = 1 << 28,
    HF_COHERE2 = 1 << 29,
    HF_GLM4 = 1 << 30,
    HF_LFM2 = 1ull << 40,
    HF_LFM2_MOE = 1ull << 41,
    HF_NEMOTRON_H = 1ull << 42,
    HF_GRANITE_H = 1ull << 43,
    HF_GRANITE_HD = 1ull << 44, /* the same class without experts */
    HF_FALCON_H1 = 1ull << 45,
    HF_GEMMA4 = 1ull << 50,
    HF_MISTRAL4 = 1ull << 51,
    HF_COHERE2_MOE = 1ull << 52,
    HF_AFMOE = 1ull << 53,
    HF_LAGUNA = 1ull << 54,
    HF_MIMO2 = 1ull << 55,
    HF_LLAMA4 = 1ull << 56,
    HF_EXAONE_MOE = 1ull << 57,
    HF_MUSE = 1ull << 58,
    HF_STEP35 = 1ull << 59,
    HF_HY_V3 = 1ull << 46,
    HF_BAILING2 = 1ull << 47,
    HF_KIMI_LINEAR = 1ull << 48,
};

/* What a block has. */
enum hf_part { HF_ATTENTION = 1, HF_STATE = 2, HF_FFN = 4, HF_EXPERTS = 8 };

/* Multipliers that GGUF has as parts of matrices. */
enum hf_factor {
    HF_FACTOR_NONE,
    HF_FACTOR_EMBED,
    HF_FACTOR_HEAD,
    HF_FACTOR_QV,
    HF_FACTOR_K,
    HF_FACTOR_O,
    HF_FACTOR_GATE,
    HF_FACTOR_DOWN,
    HF_FACTOR_MAMBA_OUT,
    HF_FACTOR_COUNT
};

struct hf {
    u32 n_files;
    struct st_file *files;
    u32 n_tensors;
    const struct st_tensor **tensors; /* of all files */
    struct str *names;                /* [n_tensors] as if the text model stood alone */
    bool *used;                       /* [n_tensors] some rule took it */
    struct strmap index;              /* name to place in tensors */
    bool wrapped;                     /* the text model of one that sees or hears */

    /* What hf_config.c found out and hf_tensors.c needs. */
    u64 arch;                /* one of enum hf_arch */
    bool mistral;            /* of HF_LLAMA: the class has a default window */
    bool olmo3;              /* of HF_OLMO2: likewise */
    bool mxfp4;              /* experts are blocks and scales */
    bool fp8;                /* matrices are F8_E4M3 with a scale for each block, */
    u64 fp8_block[2];        /* of these many rows and columns */
    bool tied;               /* lm_head is the embedding, whatever the files hold */
    u32 n_layers, n_mtp;     /* MTP blocks follow the ordinary ones */
    u32 n_heads, n_kv_heads; /* 0 where the architecture has none */
    u32 d_model, n_experts;
    u32 head; /* HF_MUSE: columns of a head, whose queries are scaled by q_scale */
    float q_scale;
    const float *head_norms[2]; /* of q and k; in the source's arena */
    u32 n_nope, n_value;        /* GLM: parts of a head in kv_b_proj */
    u8 parts[512];              /* of enum hf_part, by block; all 0: attention and a feed-forward */
    u32 n_ff;                   /* width of the feed-forward, where config.json says it elsewhere */
    u32 n_keys, n_values;       /* with states: key heads, and the value heads that they share */
    u32 key_dim, value_dim;     /* columns of each */
    float factor[HF_FACTOR_COUNT]; /* 0: none */
    float factor_mamba[5];         /* Falcon-H1: of z, x, B, C and dt */
    u32 n_rope_freqs;        /* pairs that rotate, where these are set; in the source's arena */
    const float *rope_freqs; /* llama3 scaling: divisors of the frequencies */
    const float *rope_short, *rope_long; /* longrope: the same for short and long contexts */
};

/* Whether config.json describes a text model inside another one. */
bool hf_is_wrapped(const json_t *config);
/* Fills the index; tensors of towers are marked as used and s->left_out tells of them. */
int hf_index_tensors(struct source *s, struct hf *h, struct err *err);
const struct st_tensor *hf_find(const struct hf *h, const char *name);
/* Adds the metadata that config (config.json) implies to s and fills the second half of h. */
int hf_read_config(struct source *s, struct hf *h, const json_t *config, struct err *err);
/* Refuses (source_refuse) the fields of config.json that were not asked for and matter; asked: of
 * the root, of the rope parameters. */
int hf_check_fields(const struct source *s, const struct hf *h, const json_t *config,
                    const struct strmap asked[2], struct err *err);
/* The same of the fields around a text model's own. */
int hf_check_outer(const struct source *s, const struct hf *h, const json_t *config);
/* Adds how sentence-transformers makes embeddings of the model, where modules.json or
 * 1_Pooling/config.json say that: pooling_type, or the name of what GGUF has no number for. */
int hf_read_pooling(struct source *s, struct err *err);
/* Adds the sampling defaults of generation_config.json. */
int hf_read_sampling(struct source *s, const json_t *config, struct err *err);
/* Finds the scales of every tensor in FP8. */
int hf_pair_scales(struct hf *h, struct err *err);
/* Adds every tensor; one that no rule knows is refused (source_refuse). */
int hf_add_tensors(struct source *s, struct hf *h, struct err *err);

#endif
