/* The published shapes, and what a file of each declares: metadata, tensors, a made-up vocabulary
 * of the right size. Names and order are those of published files. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/synth.h"
#include "model/vocab.h"
#include "text/tok_internal.h" /* tok_map_bytes */

#define LLAMA(n, ctx, theta, tie) \
    .name = (n), .arch = "llama", .n_ctx = (ctx), .eps = 1e-5f, .rope_base = (theta), .tied = (tie)
#define QWEN(n, a, ctx, tie)                                                                   \
    .name = (n), .arch = (a), .pre = "qwen2", .n_ctx = (ctx), .n_vocab = 151936, .eps = 1e-6f, \
    .rope_base = 1e6f, .tied = (tie)
#define QWEN35(n, a, tie)                                                                        \
    .name = (n), .arch = (a), .pre = "qwen35", .n_ctx = 262144, .n_vocab = 248320, .eps = 1e-6f, \
    .rope_base = 1e7f, .n_rot = 64, .tied = (tie)
#define DELTA(heads, keys) \
    .full_every = 4, .delta_heads = (heads), .delta_keys = (keys), .delta_width = 128
#define MAMBA(heads, keys, width) \
    .delta_heads = (heads), .delta_keys = 1, .delta_width = (width), .mamba_keys = (keys)
#define RWKV(n) \
    .name = (n), .arch = "rwkv7", .n_ctx = 1 << 20, .n_vocab = 65536, .eps = 1e-5f, .head = 64
#define GEMMA(n, a, ctx)                                                                         \
    .name = (n), .arch = (a), .pre = "default", .n_ctx = (ctx), .n_vocab = 262144, .eps = 1e-6f, \
    .rope_base = 1e6f, .tied = true
#define WINDOW(n, every)    .window = (n), .window_every = (every)
#define SIZE(layers, d, ff) .n_layers = (layers), .d_model = (d), .n_ff = (ff)
#define HEADS(n, kv, width) .n_heads = (n), .n_kv_heads = (kv), .head = (width)
#define RANKS(decay, iclr, value, gate) \
    .rank_decay = (decay), .rank_iclr = (iclr), .rank_value = (value), .rank_gate = (gate)

const struct synth_shape synth_shapes[] = {
    {LLAMA("SmolLM2-135M", 8192, 1e5f, true), SIZE(30, 576, 1536), HEADS(9, 3, 64), .pre = "smollm",
     .n_vocab = 49152},
    {QWEN("Qwen2.5-0.5B", "qwen2", 32768, true), SIZE(24, 896, 4864), HEADS(14, 2, 64)},
    {QWEN("Qwen3-0.6B", "qwen3", 40960, true), SIZE(28, 1024, 3072), HEADS(16, 8, 128)},
    {LLAMA("Llama-3.2-1B", 131072, 5e5f, true), SIZE(16, 2048, 8192), HEADS(32, 8, 64),
     .pre = "llama-bpe", .n_vocab = 128256, .rope_llama3 = 32},
    {LLAMA("Llama-3.1-8B", 131072, 5e5f, false), SIZE(32, 4096, 14336), HEADS(32, 8, 128),
     .pre = "llama-bpe", .n_vocab = 128256, .rope_llama3 = 8},
    {QWEN("Qwen3-30B-A3B", "qwen3moe", 40960, false), SIZE(48, 2048, 6144), HEADS(32, 4, 128),
     .n_experts = 128, .n_experts_used = 8, .n_ff_expert = 768},
    {.name = "GLM-4.7-Flash",
     .arch = "deepseek2",
     .pre = "glm4",
     .n_vocab = 154880,
     .n_ctx = 202752,
     .eps = 1e-5f,
     .rope_base = 1e6f,
     SIZE(47, 2048, 10240),
     HEADS(20, 1, 576),
     .n_experts = 64,
     .n_experts_used = 4,
     .n_ff_expert = 1536,
     .n_shared_experts = 1,
     .n_dense_layers = 1,
     .q_lora = 768,
     .kv_lora = 512,
     .n_rot = 64,
     .head_mla = 256},
    {QWEN35("Qwen3.5-0.8B", "qwen35", true), SIZE(24, 1024, 3584), HEADS(8, 2, 256), DELTA(16, 16)},
    {QWEN35("Qwen3.8-27B", "qwen35", false), SIZE(64, 5120, 17408), HEADS(24, 4, 256),
     DELTA(48, 16)},
    {.name = "LFM2-1.2B",
     .arch = "lfm2",
     .pre = "lfm2",
     .n_vocab = 65536,
     .n_ctx = 128000,
     .eps = 1e-5f,
     .rope_base = 1e6f,
     .tied = true,
     SIZE(16, 2048, 8192),
     HEADS(32, 8, 64),
     .blocks = "cc*cc*cc*c*c*c*c"},
    {.name = "Granite-4-H-Tiny",
     .arch = "granitehybrid",
     .pre = "dbrx",
     .n_vocab = 100352,
     .n_ctx = 131072,
     .eps = 1e-5f,
     .rope_base = 10000,
     .tied = true,
     SIZE(40, 1536, 512),
     HEADS(12, 4, 128),
     MAMBA(48, 128, 64),
     .n_experts = 64,
     .n_experts_used = 6,
     .n_ff_expert = 512,
     .n_ff_shared = 1024,
     .scales = {12, 0.22f, 0.0078125f, 6},
     .blocks = "mmmmm*mmmmmmmmm*mmmmmmmmm*mmmmmmmmm*mmmm"},
    {QWEN35("Qwen3.6-35B-A3B", "qwen35moe", false), SIZE(40, 2048, 0), HEADS(16, 2, 256),
     DELTA(32, 16), .n_experts = 256, .n_experts_used = 8, .n_ff_expert = 512, .n_ff_shared = 512},
    {.name = "gpt-oss-20B",
     .arch = "gpt-oss",
     .pre = "gpt-4o",
     .n_vocab = 201088,
     .n_ctx = 131072,
     .eps = 1e-5f,
     .rope_base = 150000,
     SIZE(24, 2880, 2880),
     HEADS(64, 8, 64),
     WINDOW(128, 2),
     .yarn_ctx = 4096,
     .yarn_factor = 32,
     .n_experts = 32,
     .n_experts_used = 4,
     .n_ff_expert = 2880},
    {GEMMA("Gemma-3-4B", "gemma3", 131072), SIZE(34, 2560, 10240), HEADS(8, 4, 256),
     WINDOW(1024, 6)},
    {GEMMA("Gemma-4-26B-A4B", "gemma4", 262144), SIZE(30, 2816, 2112), HEADS(16, 8, 256),
     WINDOW(1024, 6), .head_full = 512, .kv_full = 2, .n_experts = 128, .n_experts_used = 8,
     .n_ff_expert = 704, .logit_cap = 30},
    {.name = "Ministral-3-8B",
     .arch = "mistral3",
     .pre = "tekken",
     .n_vocab = 131072,
     .n_ctx = 262144,
     .eps = 1e-5f,
     .rope_base = 1e6f,
     SIZE(34, 4096, 14336),
     HEADS(32, 8, 128),
     .yarn_ctx = 16384,
     .yarn_factor = 16,
     .grow = 0.1f},
    {RWKV("RWKV-7-0.4B"), SIZE(24, 1024, 4096), RANKS(64, 64, 32, 128)},
    {RWKV("RWKV-7-1.5B"), SIZE(24, 2048, 8192), RANKS(96, 96, 64, 256)},
    {RWKV("RWKV-7-2.9B"), SIZE(32, 2560, 10240), RANKS(96, 96, 64, 320)},
    {0},
};

const struct synth_shape *synth_find(const char *name)
{
    for (const struct synth_shape *s = synth_shapes; s->name; s++)
        if (strcasecmp(s->name, name) == 0) return s;
    return NULL;
}

/* Declaring: failure is sticky, rc tells. */
struct declare {
    struct source *s;
    const struct synth_shape *shape;
    u32 n_layers;
    struct err *err;
    int rc;
};

/* "{arch}.suffix" */
static const char *full_key(const struct declare *d, const char *suffix, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", d->shape->arch, suffix);
    return buf;
}

static void put_u32(struct declare *d, const char *suffix, u32 v)
{
    char key[96];
    if (!d->rc) d->rc = source_add_u32(d->s, full_key(d, suffix, key, sizeof key), v, d->err);
}

static void put_f32(struct declare *d, const char *suffix, float v)
{
    char key[96];
    if (!d->rc) d->rc = source_add_f32(d->s, full_key(d, suffix, key, sizeof key), v, d->err);
}

static void put_text(struct declare *d, const char *key, const char *v)
{
    if (!d->rc) d->rc = source_add_str(d->s, key, str_of(v), d->err);
}

/* A tensor whose unused dimensions are 0. */
static void put(struct declare *d, const u64 ne[4], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put(struct declare *d, const u64 ne[4], const char *fmt, ...)
{
    char name[SOURCE_MAX_NAME + 1];
    va_list ap;
    if (d->rc) return;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    struct tensor t = {.type = QT_F32};
    for (u32 i = 0; i < 4; i++) {
        t.ne[i] = MAX(ne[i], 1);
        if (ne[i]) t.n_dims = i + 1;
    }
    t.name = (struct str){arena_copy(&d->s->arena, str_of(name)), strlen(name)};
    d->rc = t.name.p ? source_add_tensor(d->s, &t, d->err) : err_nomem(d->err, "the tensors");
}

#define DIMS(...)       ((const u64[4]){__VA_ARGS__})
#define PUT(dims, part) put(d, dims, "blk.%u." part, l)
/* A norm with weight and bias. */
#define PUT_LN(n, part) (PUT(DIMS(n), part ".weight"), PUT(DIMS(n), part ".bias"))

static bool is(const struct synth_shape *s, const char *arch)
{
    return strncmp(s->arch, arch, strlen(arch)) == 0;
}

/* A block without a window, of a model where others have one? */
static bool is_full(const struct synth_shape *s, u32 l)
{
    return s->window && (l + 1) % s->window_every == 0;
}

static u32 head_of(const struct synth_shape *s, u32 l)
{
    return s->head_full && is_full(s, l) ? s->head_full : s->head;
}

static u32 kv_heads_of(const struct synth_shape *s, u32 l)
{
    return s->kv_full && is_full(s, l) ? s->kv_full : s->n_kv_heads;
}

static void put_attention(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, head = head_of(s, l), q = s->n_heads * head, kv = kv_heads_of(s, l) * head;
    bool biases = is(s, "qwen2") || is(s, "gpt-oss");
    PUT(DIMS(n), "attn_norm.weight");
    PUT(DIMS(n, s->full_every ? 2 * q : q), "attn_q.weight"); /* and gates */
    PUT(DIMS(n, kv), "attn_k.weight");
    if (!s->kv_full || !is_full(s, l)) PUT(DIMS(n, kv), "attn_v.weight");
    if (biases) {
        PUT(DIMS(q), "attn_q.bias");
        PUT(DIMS(kv), "attn_k.bias");
        PUT(DIMS(kv), "attn_v.bias");
    }
    if (is(s, "qwen3") || is(s, "gemma") || (s->blocks && !s->mamba_keys)) {
        PUT(DIMS(head), "attn_q_norm.weight");
        PUT(DIMS(head), "attn_k_norm.weight");
    }
    PUT(DIMS(q, n), "attn_output.weight");
    if (is(s, "gemma")) PUT(DIMS(n), "post_attention_norm.weight");
    if (!is(s, "gpt-oss")) return;
    PUT(DIMS(n), "attn_output.bias");
    PUT(DIMS(s->n_heads), "attn_sinks.weight");
}

static void put_delta(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, keys = s->delta_keys * s->delta_width;
    u32 values = s->delta_heads * s->delta_width;
    PUT(DIMS(n), "attn_norm.weight");
    PUT(DIMS(n, 2 * keys + values), "attn_qkv.weight");
    PUT(DIMS(n, values), "attn_gate.weight");
    PUT(DIMS(4, 2 * keys + values), "ssm_conv1d.weight");
    PUT(DIMS(s->delta_heads), "ssm_dt.bias");
    PUT(DIMS(s->delta_heads), "ssm_a");
    PUT(DIMS(n, s->delta_heads), "ssm_beta.weight");
    PUT(DIMS(n, s->delta_heads), "ssm_alpha.weight");
    PUT(DIMS(s->delta_width), "ssm_norm.weight");
    PUT(DIMS(values, n), "ssm_out.weight");
}

static void put_conv(struct declare *d, u32 l)
{
    u32 n = d->shape->d_model;
    PUT(DIMS(n), "attn_norm.weight");
    PUT(DIMS(n, 3 * n), "shortconv.in_proj.weight");
    PUT(DIMS(3, n), "shortconv.conv.weight");
    PUT(DIMS(n, n), "shortconv.out_proj.weight");
}

static void put_mamba(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, heads = s->delta_heads, values = heads * s->delta_width;
    u32 width = values + 2 * s->delta_keys * s->mamba_keys;
    PUT(DIMS(n), "attn_norm.weight");
    PUT(DIMS(n, values + width + heads), "ssm_in.weight");
    PUT(DIMS(4, width), "ssm_conv1d.weight");
    PUT(DIMS(width), "ssm_conv1d.bias");
    PUT(DIMS(heads), "ssm_dt.bias");
    PUT(DIMS(1, heads), "ssm_a");
    PUT(DIMS(1, heads), "ssm_d");
    PUT(DIMS(values / s->delta_keys, s->delta_keys), "ssm_norm.weight");
    PUT(DIMS(values, n), "ssm_out.weight");
}

static void put_mla(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, nope = s->head_mla - s->n_rot, all = s->n_heads * s->head_mla;
    PUT(DIMS(n), "attn_norm.weight");
    PUT(DIMS(n, s->q_lora), "attn_q_a.weight");
    PUT(DIMS(s->q_lora), "attn_q_a_norm.weight");
    PUT(DIMS(s->q_lora, all), "attn_q_b.weight");
    PUT(DIMS(n, s->kv_lora + s->n_rot), "attn_kv_a_mqa.weight");
    PUT(DIMS(s->kv_lora), "attn_kv_a_norm.weight");
    PUT(DIMS(nope, s->kv_lora, s->n_heads), "attn_k_b.weight");
    PUT(DIMS(s->kv_lora, s->head_mla, s->n_heads), "attn_v_b.weight");
    PUT(DIMS(all, n), "attn_output.weight");
}

/* Gemma 4: what experts beside a dense feed-forward have. */
static void put_beside(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model;
    PUT(DIMS(n), "post_ffw_norm_1.weight");
    PUT(DIMS(n), "pre_ffw_norm_2.weight");
    PUT(DIMS(n), "post_ffw_norm_2.weight");
    PUT(DIMS(n), "ffn_gate_inp.scale");
    PUT(DIMS(s->n_experts), "ffn_down_exps.scale");
    PUT(DIMS(1), "layer_output_scale.weight");
}

static void put_ffn(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, ff = s->n_ff, e = s->n_experts, fe = s->n_ff_expert;
    if (s->full_every || is(s, "gpt-oss"))
        PUT(DIMS(n), "post_attention_norm.weight");
    else
        PUT(DIMS(n), "ffn_norm.weight");
    if (is(s, "gemma")) PUT(DIMS(n), "post_ffw_norm.weight");
    if (is(s, "gemma4")) put_beside(d, l);
    if (!e || l < s->n_dense_layers || is(s, "gemma4")) {
        PUT(DIMS(n, ff), "ffn_gate.weight");
        PUT(DIMS(n, ff), "ffn_up.weight");
        PUT(DIMS(ff, n), "ffn_down.weight");
        if (!is(s, "gemma4")) return;
    }
    PUT(DIMS(n, e), "ffn_gate_inp.weight");
    if (is(s, "gpt-oss")) {
        PUT(DIMS(e), "ffn_gate_inp.bias");
        PUT(DIMS(fe, e), "ffn_gate_exps.bias");
        PUT(DIMS(fe, e), "ffn_up_exps.bias");
        PUT(DIMS(n, e), "ffn_down_exps.bias");
    }
    if (s->kv_lora) PUT(DIMS(e), "exp_probs_b.bias");
    PUT(DIMS(n, fe, e), "ffn_gate_exps.weight");
    PUT(DIMS(n, fe, e), "ffn_up_exps.weight");
    PUT(DIMS(fe, n, e), "ffn_down_exps.weight");
    if (s->full_every) PUT(DIMS(n), "ffn_gate_inp_shexp.weight");
    if (!s->n_shared_experts && !s->n_ff_shared) return;
    fe = s->n_ff_shared ? s->n_ff_shared : fe * s->n_shared_experts;
    PUT(DIMS(n, fe), "ffn_gate_shexp.weight");
    PUT(DIMS(n, fe), "ffn_up_shexp.weight");
    PUT(DIMS(fe, n), "ffn_down_shexp.weight");
}

static void put_rwkv(struct declare *d, u32 l)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model, dw = s->rank_decay, da = s->rank_iclr, dg = s->rank_gate;
    u32 dv = l ? s->rank_value : da; /* block 0 has copies of a that nobody uses */
    PUT_LN(n, "attn_norm");
    PUT_LN(n, "attn_norm_2");
    PUT(DIMS(n, 1, 1, 6), "time_mix_lerp_fused.weight");
    PUT(DIMS(n), "time_mix_w0.weight");
    PUT(DIMS(n, dw), "time_mix_w1.weight");
    PUT(DIMS(dw, n), "time_mix_w2.weight");
    PUT(DIMS(n), "time_mix_a0.weight");
    PUT(DIMS(n, da), "time_mix_a1.weight");
    PUT(DIMS(da, n), "time_mix_a2.weight");
    PUT(DIMS(n), "time_mix_v0.weight");
    PUT(DIMS(n, dv), "time_mix_v1.weight");
    PUT(DIMS(dv, n), "time_mix_v2.weight");
    PUT(DIMS(n, dg), "time_mix_g1.weight");
    PUT(DIMS(dg, n), "time_mix_g2.weight");
    PUT(DIMS(n), "time_mix_k_k.weight");
    PUT(DIMS(n), "time_mix_k_a.weight");
    PUT(DIMS(n), "time_mix_r_k.weight");
    PUT(DIMS(n, n), "time_mix_receptance.weight");
    PUT(DIMS(n, n), "time_mix_key.weight");
    PUT(DIMS(n, n), "time_mix_value.weight");
    PUT(DIMS(n, n), "time_mix_output.weight");
    PUT_LN(n, "time_mix_ln");
    PUT(DIMS(n), "channel_mix_lerp_k.weight");
    PUT(DIMS(n, s->n_ff), "channel_mix_key.weight");
    PUT(DIMS(s->n_ff, n), "channel_mix_value.weight");
}

static void put_tensors(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    u32 n = s->d_model;
    put(d, DIMS(n, s->n_vocab), "token_embd.weight");
    if (s->rank_decay) {
        put(d, DIMS(n), "token_embd_norm.weight");
        put(d, DIMS(n), "token_embd_norm.bias");
    }
    bool conv = s->blocks && !s->mamba_keys; /* LFM2's name of it */
    put(d, DIMS(n), conv ? "token_embd_norm.weight" : "output_norm.weight");
    if (s->rank_decay) put(d, DIMS(n), "output_norm.bias");
    if (!s->tied) put(d, DIMS(n, s->n_vocab), "output.weight");
    if (s->rope_llama3 > 0) put(d, DIMS(s->head / 2), "rope_freqs.weight");
    if (s->head_full) put(d, DIMS(s->head_full / 2), "rope_freqs.weight");
    for (u32 l = 0; l < d->n_layers && !d->rc; l++) {
        if (s->rank_decay) {
            put_rwkv(d, l);
            continue;
        }
        if (s->full_every && (l + 1) % s->full_every)
            put_delta(d, l);
        else if (s->blocks && s->blocks[l] != '*')
            (conv ? put_conv : put_mamba)(d, l);
        else if (s->kv_lora)
            put_mla(d, l);
        else
            put_attention(d, l);
        put_ffn(d, l);
    }
}

static void put_experts(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    char key[96];
    put_u32(d, "expert_count", s->n_experts);
    put_u32(d, "expert_used_count", s->n_experts_used);
    put_u32(d, "expert_feed_forward_length", s->n_ff_expert);
    if (s->n_ff_shared) put_u32(d, "expert_shared_feed_forward_length", s->n_ff_shared);
    if (!s->kv_lora) return;
    put_u32(d, "expert_shared_count", s->n_shared_experts);
    put_u32(d, "expert_group_count", 1);
    put_u32(d, "expert_group_used_count", 1);
    put_u32(d, "expert_gating_func", 2); /* sigmoid */
    put_u32(d, "leading_dense_block_count", s->n_dense_layers);
    put_f32(d, "expert_weights_scale", 1.8f);
    if (!d->rc)
        d->rc = source_add_bool(d->s, full_key(d, "expert_weights_norm", key, sizeof key), true,
                                d->err);
}

static void put_state(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    static const i32 sections[4] = {11, 11, 10, 0};
    char key[96];
    put_u32(d, "full_attention_interval", s->full_every);
    put_u32(d, "ssm.conv_kernel", 4);
    put_u32(d, "ssm.state_size", s->delta_width);
    put_u32(d, "ssm.group_count", s->delta_keys);
    put_u32(d, "ssm.time_step_rank", s->delta_heads);
    put_u32(d, "ssm.inner_size", s->delta_heads * s->delta_width);
    if (!d->rc)
        d->rc = source_add_array(d->s, full_key(d, "rope.dimension_sections", key, sizeof key),
                                 KV_I32, 4, sections, sizeof sections, d->err);
}

/* Windows, and heads of blocks with and without one; yarn. */
static void put_kinds(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    u32 kv[256];
    char key[96];
    CHECK(d->n_layers <= ARRAY_LEN(kv));
    for (u32 l = 0; l < d->n_layers; l++) kv[l] = kv_heads_of(s, l);
    if (!s->kv_full) put_u32(d, "attention.head_count_kv", s->n_kv_heads);
    if (s->kv_full && !d->rc)
        d->rc = source_add_array(d->s, full_key(d, "attention.head_count_kv", key, sizeof key),
                                 KV_U32, d->n_layers, kv, d->n_layers * sizeof *kv, d->err);
    if (s->window) put_u32(d, "attention.sliding_window", s->window);
    if (s->window) put_u32(d, "attention.sliding_window_pattern", s->window_every);
    if (s->head_full) {
        put_u32(d, "attention.key_length_swa", s->head);
        put_u32(d, "attention.value_length_swa", s->head);
        put_u32(d, "rope.dimension_count_swa", s->head);
        put_u32(d, "attention.shared_kv_layers", 0);
        put_u32(d, "embedding_length_per_layer_input", 0);
    }
    if (s->logit_cap > 0) put_f32(d, "final_logit_softcapping", s->logit_cap);
    if (s->grow > 0) put_f32(d, "attention.temperature_scale", s->grow);
    if (!s->yarn_ctx) return;
    put_u32(d, "rope.scaling.original_context_length", s->yarn_ctx);
    put_f32(d, "rope.scaling.factor", s->yarn_factor);
    if (!d->rc)
        d->rc = source_add_str(d->s, full_key(d, "rope.scaling.type", key, sizeof key), STR("yarn"),
                               d->err);
}

/* Key heads by block, and what the blocks without them have. */
static void put_blocks(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    static const char *const scales[4] = {"embedding_scale", "residual_scale", "attention.scale",
                                          "logit_scale"};
    u8 le[4 * 64] = {0};
    char key[96];
    CHECK(d->n_layers <= sizeof le / 4 && s->n_kv_heads < 256);
    for (u32 l = 0; l < d->n_layers; l++)
        if (s->blocks[l] == '*') le[4 * l] = (u8)s->n_kv_heads;
    if (!d->rc)
        d->rc = source_add_array(d->s, full_key(d, "attention.head_count_kv", key, sizeof key),
                                 KV_I32, d->n_layers, le, 4 * (u64)d->n_layers, d->err);
    if (!s->mamba_keys) {
        put_u32(d, "shortconv.l_cache", 3);
        return;
    }
    put_u32(d, "ssm.conv_kernel", 4);
    put_u32(d, "ssm.state_size", s->mamba_keys);
    put_u32(d, "ssm.group_count", s->delta_keys);
    put_u32(d, "ssm.time_step_rank", s->delta_heads);
    put_u32(d, "ssm.inner_size", s->delta_heads * s->delta_width);
    for (u32 i = 0; i < 4; i++) put_f32(d, scales[i], s->scales[i]);
    if (!d->rc)
        d->rc = source_add_bool(d->s, full_key(d, "rope.scaling.finetuned", key, sizeof key), false,
                                d->err);
}

static void put_numbers(struct declare *d)
{
    const struct synth_shape *s = d->shape;
    bool rwkv = s->rank_decay != 0;
    put_u32(d, "context_length", s->n_ctx);
    put_u32(d, "embedding_length", s->d_model);
    put_u32(d, "block_count", d->n_layers);
    if (s->n_ff) put_u32(d, "feed_forward_length", s->n_ff);
    put_u32(d, "vocab_size", s->n_vocab);
    put_u32(d, "attention.head_count", s->n_heads);
    put_f32(d, rwkv ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", s->eps);
    if (rwkv) {
        put_u32(d, "wkv.head_size", s->head);
        put_u32(d, "attention.decay_lora_rank", s->rank_decay);
        put_u32(d, "attention.iclr_lora_rank", s->rank_iclr);
        put_u32(d, "attention.value_residual_mix_lora_rank", s->rank_value);
        put_u32(d, "attention.gate_lora_rank", s->rank_gate);
        put_u32(d, "token_shift_count", 2);
        return;
    }
    u32 head = s->head_full ? s->head_full : s->head;
    if (s->blocks)
        put_blocks(d);
    else
        put_kinds(d);
    put_u32(d, "attention.key_length", head);
    put_u32(d, "attention.value_length", s->kv_lora ? s->kv_lora : head);
    put_u32(d, "rope.dimension_count", s->n_rot ? s->n_rot : head);
    put_f32(d, "rope.freq_base", s->rope_base);
    if (s->kv_lora) {
        put_u32(d, "attention.q_lora_rank", s->q_lora);
        put_u32(d, "attention.kv_lora_rank", s->kv_lora);
        put_u32(d, "attention.key_length_mla", s->head_mla);
        put_u32(d, "attention.value_length_mla", s->head_mla);
    }
    if (s->n_experts) put_experts(d);
    if (s->full_every) put_state(d);
}

/* Every byte, made-up words, and one control token that ends texts. */
static int make_tokens(struct vocab *v, const struct synth_shape *shape, struct err *err)
{
    struct tok_spec *spec = &v->spec;
    bool rwkv = !shape->pre;
    u32 n = shape->n_vocab, end = rwkv ? 0 : n - 1, first = rwkv ? 1 : 0;
    struct str *tokens = arena_alloc(&v->arena, n, sizeof *tokens);
    u8 *types = arena_alloc(&v->arena, n, 1);
    char *text = arena_alloc(&v->arena, n, 16), *at = text;
    if (!tokens || !types || !text) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n; i++, at += 16) {
        char byte = (char)(i - first);
        struct buf mapped = {0};
        if (i == end) {
            snprintf(at, 16, "<|end|>");
        } else if (i - first >= 256) {
            snprintf(at, 16, "w%x", i);
        } else if (rwkv) {
            snprintf(at, 16, "\\x%02x", i - first);
        } else {
            tok_map_bytes(&mapped, (struct str){&byte, 1});
            if (mapped.failed) return err_nomem(err, "the vocabulary");
            snprintf(at, 16, "%s", mapped.p);
            buf_free(&mapped);
        }
        tokens[i] = str_of(at);
        types[i] = i == end ? TOK_CONTROL : TOK_NORMAL;
    }
    spec->tokens = tokens;
    spec->types = types;
    spec->n_tokens = n;
    spec->bos = spec->eos = end;
    return 0;
}

static int put_vocab(struct declare *d, struct vocab *v)
{
    static const struct str merge = STR("w o"); /* other engines want the list to be there */
    struct tok_spec *spec = &v->spec;
    tok_spec_init(spec);
    spec->kind = d->shape->pre ? TOK_BPE : TOK_RWKV;
    spec->add_bos = spec->add_eos = 0;
    if (d->shape->pre) {
        spec->pre = str_of(d->shape->pre);
        spec->merges = &merge;
        spec->n_merges = 1;
    }
    int rc = make_tokens(v, d->shape, d->err);
    return rc ? rc : vocab_to_source(v, d->s, d->err);
}

int synth_declare(struct source **out, const struct synth_shape *shape, u32 n_layers,
                  struct err *err)
{
    struct declare d = {.shape = shape, .err = err};
    struct vocab v = {0};
    char name[64];
    *out = NULL;
    if (n_layers > shape->n_layers)
        return err_set(err, FLETCH_E_ARG, "%s has only %u layers, fewer than --layers %u",
                       shape->name, shape->n_layers, n_layers);
    d.n_layers = n_layers ? n_layers : shape->n_layers;
    d.rc = source_new(&d.s, shape->name, err);
    snprintf(name, sizeof name, "%s (synthetic)", shape->name);
    put_text(&d, "general.architecture", shape->arch);
    put_text(&d, "general.type", "model");
    put_text(&d, "general.name", name);
    put_numbers(&d);
    if (!d.rc) d.rc = put_vocab(&d, &v);
    arena_free(&v.arena);
    put_tensors(&d);
    if (d.rc)
        source_close(d.s);
    else
        *out = d.s;
    return d.rc;
}

struct synth_range synth_range(const struct tensor *t)
{
    static const struct {
        const char *end;
        struct synth_range range;
    } known[] = {
        {"norm.weight", {1, 0.1f}},
        {"attn_norm_2.weight", {1, 0.1f}},
        {"time_mix_ln.weight", {1, 0.1f}},
        {"lerp_fused.weight", {0.5f, 0.5f}},
        {"lerp_k.weight", {0.5f, 0.5f}},
        {"time_mix_w0.weight", {-3, 2.5f}},
        {"time_mix_a0.weight", {0, 0.5f}},
        {"time_mix_v0.weight", {0, 0.5f}},
        {"time_mix_k_k.weight", {0.8f, .1f}},
        {"time_mix_k_a.weight", {1, 0.1f}},
        {"time_mix_r_k.weight", {0, 0.1f}},
        {"exp_probs_b.bias", {0, 0.1f}},
        {"post_ffw_norm_1.weight", {1, 0.1f}},
        {"pre_ffw_norm_2.weight", {1, 0.1f}},
        {"post_ffw_norm_2.weight", {1, 0.1f}},
        {"ffn_gate_inp.scale", {1, 0.1f}},
        {"ffn_down_exps.scale", {1, 0.1f}},
        {"layer_output_scale.weight", {0.9f, 0.05f}},
        {"attn_sinks.weight", {0, 1}},
        {"ssm_a", {-0.5f, 0.4f}},
        {"ssm_d", {1, 0.1f}},
        {".bias", {0, 0.02f}},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_ends(t->name, known[i].end)) return known[i].range;
    return (struct synth_range){0, sqrtf(3 / (float)t->ne[0])}; /* standard deviation 1/sqrt(n) */
}
