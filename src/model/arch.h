/* Architectures: each records its forward pass as a program. One file in arch/ and one row in the
 * table (arch.c) per architecture. */
#ifndef FLETCH_ARCH_H
#define FLETCH_ARCH_H

#include "model/bind.h"
#include "model/hparams.h"

/* What an architecture records with. */
struct build {
    const struct hparams *hp;
    struct bind bind;
    struct program *p;   /* the program being recorded: the trunk, then the MTP block */
    struct program *mtp; /* NULL unless hp->n_mtp > 0 */
    struct glu_spec glu; /* of the feed-forward; zero: SwiGLU */
    bool ungated;        /* instead, it is act of ffn_up alone */
    enum act_kind act;
    float post_eps;             /* of norms behind the halves of a block; 0: as the others' */
    u32 kv[HPARAMS_MAX_BLOCKS]; /* cache layers, by block */
    struct operand by_layer;    /* Gemma 4: what layers add of the token */
    struct err *err;
};

/* What its metadata has beyond a plain decoder's. */
enum arch_trait {
    ARCH_STATE = 1,        /* recurrent state instead of attention */
    ARCH_EXPERTS = 2,      /* mixture of experts: expert_count is required */
    ARCH_MAY_EXPERTS = 4,  /* with expert_count it is a mixture of experts, else dense */
    ARCH_SIGMOID = 8,      /* leading dense blocks, shared experts, sigmoid routing, groups */
    ARCH_SAYS_NORM = 16,   /* expert weights are normalised only where the file says so */
    ARCH_MLA = 32,         /* latent attention */
    ARCH_MTP = 64,         /* its MTP block can be recorded */
    ARCH_GATED = 128,      /* leading dense blocks, shared experts, routing as the file says */
    ARCH_SCALES = 256,     /* scales of the embedding, the residuals, attention and the logits */
    ARCH_DELTA = 1 << 16,  /* blocks of a gated delta net between those of attention */
    ARCH_SHARED = 1 << 17, /* shared experts have a width of their own */
    ARCH_WINDOW = 1 << 9,  /* attention.sliding_window is required */
    ARCH_LOCAL_ROPE = 1 << 10,   /* layers with a window rotate by a table of their own, */
    ARCH_ROPE_1E4 = 1 << 11,     /* whose base is 10000 where the file does not say it */
    ARCH_PLAIN_FULL = 1 << 12,   /* layers without a window do not rotate, if others have one */
    ARCH_GROWS = 1 << 13,        /* queries may grow with their position */
    ARCH_CAPPED = 1 << 14,       /* softcaps of scores and logits are required */
    ARCH_MAY_CAP = 1 << 15,      /* they are there where the file says so */
    ARCH_TIMES_LOGITS = 1 << 18, /* logits are multiplied by logit_scale */
    ARCH_YARN_EXACT = 1 << 19,   /* yarn's corners are not rounded to whole pairs */
    ARCH_ROOT_EMBED = 1 << 20,   /* the embedding is scaled by the root of its width */
    ARCH_LAYER_NORM = 1 << 21,   /* norms are layer norms */
    ARCH_LOCAL_HEAD = 1 << 22,   /* layers with a window have heads of a width of their own */
    ARCH_VALUE_SCALE = 1 << 24,  /* what attention gives may be scaled */
    ARCH_FULL_FIRST = 1 << 25,   /* layers without a window are the first of full_every */
    ARCH_COHERE_MOE = 1 << 30,   /* norms are RMS norms where the file has an epsilon of such;
                                    leading dense blocks rotate in any case */
    ARCH_LENDS = 1 << 23,        /* the last layers may read the caches of earlier ones, and layers
                                    may have embeddings */
    ARCH_SHORT_CONV = 1 << 29,   /* blocks without key heads are a short convolution */
    ARCH_MAMBA = 1 << 28,        /* it has numbers of Mamba-2; so are blocks without key heads */
    ARCH_KDA = 1 << 26,          /* latent attention that does not rotate; blocks without key heads
                                    are Kimi's delta attention */
    ARCH_ONE_PART = 1 << 27,     /* a block is attention, Mamba-2's or a feed-forward */
};

struct arch {
    const char *name;
    const char *models; /* for people: which published models it is */
    int (*record)(struct build *b);
    u32 traits;      /* of enum arch_trait */
    u32 full_every;  /* where the file does not list them: every nth layer has no window; 0: none */
    u32 wide_layers; /* Gemma: layers of the model that scales attention by its width over heads */
};

/* NULL when unknown. */
const struct arch *arch_find(const char *name);
/* The table, ended by a row without a name. */
extern const struct arch arch_table[];

int arch_llama(struct build *b);
int arch_qwen2(struct build *b);
int arch_qwen3(struct build *b);
int arch_qwen3moe(struct build *b);
int arch_glm4moe(struct build *b);
int arch_seed_oss(struct build *b);
int arch_smollm3(struct build *b);
int arch_phi3(struct build *b);
int arch_minimax_m2(struct build *b);
int arch_ernie4_5(struct build *b);
int arch_ernie4_5_moe(struct build *b);
int arch_granite(struct build *b);
int arch_hunyuan_dense(struct build *b);
int arch_hunyuan_moe(struct build *b);
int arch_deepseek2(struct build *b);
int arch_qwen35(struct build *b);
int arch_gpt_oss(struct build *b);
int arch_gemma2(struct build *b);
int arch_gemma3(struct build *b);
int arch_gemma4(struct build *b);
int arch_olmo2(struct build *b);
int arch_exaone4(struct build *b);
int arch_cohere2(struct build *b);
int arch_step35(struct build *b);
int arch_exaone_moe(struct build *b);
int arch_llama4(struct build *b);
int arch_cohere2_moe(struct build *b);
int arch_afmoe(struct build *b);
int arch_laguna(struct build *b);
int arch_mimo2(struct build *b);
int arch_muse_glimmer(struct build *b);
int arch_glm4(struct build *b);
int arch_hy_v3(struct build *b);
int arch_kimi_linear(struct build *b);
int arch_lfm2(struct build *b);
int arch_nemotron_h(struct build *b);
int arch_granite_hybrid(struct build *b);
int arch_falcon_h1(struct build *b);
int arch_rwkv7(struct build *b);
int arch_arwkv7(struct build *b);

#endif
