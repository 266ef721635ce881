/* Synthetic models: files of published models' exact shapes with random weights, so that speed can
 * be measured, and compared with other engines, without downloading anything. */
#ifndef FLETCH_SYNTH_H
#define FLETCH_SYNTH_H

#include "format/source.h"

/* The numbers of a published model. What an architecture doesn't have is 0. */
struct synth_shape {
    const char *name, *arch;
    const char *pre; /* pre-tokenizer of its vocabulary; NULL: RWKV's */
    u32 n_layers, d_model, n_ff, n_vocab, n_ctx;
    u32 n_heads, n_kv_heads, head; /* width of a head; RWKV: head only */
    float eps, rope_base;
    float rope_llama3; /* factor of Llama 3's rotary scaling */
    bool tied;
    u32 n_experts, n_experts_used, n_ff_expert, n_shared_experts, n_dense_layers;
    u32 q_lora, kv_lora, n_rot, head_mla;             /* head_mla: of keys and of values */
    u32 rank_decay, rank_iclr, rank_value, rank_gate; /* RWKV */
    /* Qwen3.5: every nth block attends, the others have a gated delta net: heads, key heads,
     * columns of each */
    u32 full_every, delta_heads, delta_keys, delta_width;
    u32 n_ff_shared; /* width of the shared experts, where it is their own */
    /* All but every nth block attend to a window; the others have such heads and key heads, where
     * they differ, and keys that are the values. */
    u32 window, window_every, head_full, kv_full;
    u32 yarn_ctx; /* the original context of yarn; 0: the rotation is not scaled */
    float yarn_factor, grow, logit_cap;
    /* LFM2, Granite 4 H: a letter for each block, * for attention; the others have a convolution or
     * Mamba-2, with the same heads, key heads and columns of a value, and keys of mamba_keys */
    const char *blocks;
    u32 mamba_keys;
    float scales[4]; /* Granite: of the embedding, the residuals, attention and the logits */
};

/* The table, ended by a row without a name. */
extern const struct synth_shape synth_shapes[];
/* By name, case-insensitive; NULL when unknown. */
const struct synth_shape *synth_find(const char *name);

/* Metadata and tensors (without bytes; matrices as f32) of the shape with its first n_layers
 * blocks, 0: all. */
int synth_declare(struct source **out, const struct synth_shape *shape, u32 n_layers,
                  struct err *err);
/* The same as a file of a storage type (as in convert_run) would have it; of all tensors only the
 * rotary factors have bytes. */
int synth_source(struct source **out, const struct synth_shape *shape, const char *type,
                 u32 n_layers, struct err *err);

/* How values are spread: evenly over center ± spread. */
struct synth_range {
    float center, spread;
};
struct synth_range synth_range(const struct tensor *t);

/* Blocks [first, first + n) of a tensor whose values depend on seed alone, not on how the work is
 * cut. Any readable type; quantised ones need center 0. */
void synth_fill(enum qtype type, u64 seed, struct synth_range range, u64 first, u64 n, u8 *dst);

struct synth_params {
    const struct synth_shape *shape;
    const char *type; /* as in convert_run */
    u32 n_layers;     /* 0: all */
    u64 seed;
    u32 n_threads;            /* as in pool_open */
    fletch_progress progress; /* may be NULL */
    void *ctx;
};
int synth_run(const char *out, const struct synth_params *params, struct err *err);

#endif
