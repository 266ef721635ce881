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
    u64 arch; /* one of enum hf_arch */
    bool mistral;            /* of HF_LLAMA: the class has a default window */
    bool olmo3;              /* of HF_OLMO2: likewise */
    bool mxfp4;              /* experts are blocks and scales */
    bool tied;               /* lm_head is the embedding, whatever the files hold */
    u32 n_layers, n_mtp;     /* MTP blocks follow the ordinary ones */
    u32 n_heads, n_kv_heads; /* 0 where the architecture has none */
    u32 d_model, n_experts;
    u32 n_nope, n_value;     /* GLM: parts of a head in kv_b_proj */
    u32 n_keys, n_values;    /* HF_DELTA: key heads, and the value heads that they share */
    u32 key_dim, value_dim;  /* columns of each */
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
/* Adds every tensor; one that no rule knows is refused (source_refuse). */
int hf_add_tensors(struct source *s, struct hf *h, struct err *err);

#endif
