/* Hyper-parameters: the numbers of a model, read from a source's metadata and checked, so that
 * everything after may divide by them and multiply them. */
#ifndef FLETCH_HPARAMS_H
#define FLETCH_HPARAMS_H

#include "format/source.h"

enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE };

enum { HPARAMS_MAX_BLOCKS = 512 };

/* The net's rotary tables, by what rotates. */
enum {
    ROPE_MAIN,
    ROPE_LOCAL,   /* layers with a window, where they have a table of their own */
    ROPE_GROWING, /* as ROPE_MAIN for queries, which grow with their position */
    ROPE_STILL,   /* of n_still columns that do not turn, but grow */
    ROPE_OFF = UINT8_MAX
};

/* How the hidden states of a text become one vector; GGUF's numbers. */
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK };

struct hparams {
    char arch[32];
    char name[96]; /* general.name, printable; "" when absent */
    u32 n_ctx;     /* context_length it was trained for */
    enum pooling pooling;
    char pooling_other[64]; /* what makes embeddings and has no number in GGUF; "" otherwise */
    u32 d_model;            /* d */
    u32 n_layers;           /* blocks of the trunk, without MTP blocks */
    u32 n_mtp;              /* MTP blocks after them */
    u32 n_vocab;            /* rows of the embedding */
    u32 n_ff;               /* width of a dense feed-forward */
    u32 n_heads, n_kv_heads;
    /* the same three by block; above, their largest values */
    u32 block_ff[HPARAMS_MAX_BLOCKS];
    u32 block_heads[HPARAMS_MAX_BLOCKS], block_kv_heads[HPARAMS_MAX_BLOCKS];
    bool chunked;                         /* windows are chunks */
    bool qk_norm;                         /* Llama 4: heads are normed */
    u32 expert_every;                     /* Llama 4: every such block has experts */
    u32 window;                           /* tokens, the own one included; 0: no block has one */
    u32 block_window[HPARAMS_MAX_BLOCKS]; /* that attention of the block sees; 0: all */
    u32 block_head_k[HPARAMS_MAX_BLOCKS], block_head_v[HPARAMS_MAX_BLOCKS];
    u16 block_cache[HPARAMS_MAX_BLOCKS];   /* block whose keys and values attention reads */
    u32 d_per_layer;                       /* width of a layer's own embedding; 0: none */
    u8 block_rope[HPARAMS_MAX_BLOCKS];     /* table that its keys and queries are rotated by */
    u8 query_rope;                         /* ROPE_GROWING, or ROPE_MAIN: as keys are */
    float block_limit[HPARAMS_MAX_BLOCKS]; /* Step 3.5: of units of experts; 0: none */
    float block_limit_shared[HPARAMS_MAX_BLOCKS]; /* and of shared experts and dense blocks */
    float value_scale;                            /* of what attention gives; 0: none */
    float score_cap;                              /* softcap of attention's scores; 0: none */
    u32 head_k, head_v; /* per head (of layers without a window, where they
                           differ); MLA: of the latent form */
    float eps;          /* of the norms */
    bool layer_norm;    /* they are layer norms, not RMS norms */

    u32 n_rot;
    float rope_base, rope_factor, rope_attn_factor;
    enum rope_scaling rope_scaling;
    u32 rope_ctx;               /* original context of yarn and longrope */
    float yarn_fast, yarn_slow; /* turns within it above which a pair is kept, below which scaled */
    bool yarn_exact;            /* where pairs begin to be scaled is not rounded to a whole pair */
    float rope_base_local;      /* of ROPE_LOCAL, which is not scaled */
    u32 n_rot_local;
    float rope_grow; /* of ROPE_GROWING: see struct rope_table */
    u32 rope_grow_every, rope_grow_from, n_still;
    bool still_grows;   /* queries of blocks that do not rotate grow, and no others */
    float yarn_log_mul; /* MLA: attention is scaled by (1 + yarn_log_mul·log factor)²; mistral3:
                           angles are divided by 1 + 0.1·yarn_log_mul·log factor; 0: not said */

    bool no_rope; /* Granite, Kimi Linear: no layer rotates */
    float embedding_scale, residual_scale, attention_scale, logit_scale; /* 0: none */
    float logit_cap; /* softcap of the logits; 0: none */

    u32 n_experts, n_experts_used, n_ff_expert, n_shared_experts;
    u32 n_ff_shared; /* width of all shared experts */
    u32 n_expert_groups, n_groups_used, n_dense_layers;
    float expert_scale;
    bool expert_norm;
    u32 expert_gating; /* 1 softmax, 2 sigmoid, 0 not said */

    u32 q_lora, kv_lora;        /* MLA ranks */
    u32 head_k_mla, head_v_mla; /* head widths of the expanded form */
    float eps_mla;              /* of MLA's inner norms */

    u32 n_latent;                             /* Nemotron: width of what experts read; 0: d_model */
    bool block_recurrent[HPARAMS_MAX_BLOCKS]; /* blocks that have a state */
    u32 n_taps;                               /* rows that their convolution sees */
    u32 recur_heads, recur_keys;              /* heads of their state, key heads they share */
    u32 recur_head_k, recur_head_v;           /* columns of a key and of a value */

    u32 wkv_head;                                     /* RWKV head size */
    u32 rank_decay, rank_iclr, rank_value, rank_gate; /* low-rank adapters; gate may be 0 */
};

/* The names alone, of any architecture: for a vocabulary without a model. */
void hparams_read_names(struct hparams *hp, const struct source *s);
int hparams_read(struct hparams *hp, const struct source *s, struct err *err);

#endif
