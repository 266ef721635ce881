/* From Hugging Face's tensors to GGUF's. A table says which name becomes which, and how its
 * values are laid out; a tensor that needs more than a new name gets a recipe, run by hf_make
 * when the bytes are asked for. A tensor that no rule takes is refused: a model that has it
 * would not be computed rightly without it. */
#include "format/hf.h"

#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"
#include "format/hf_recipe.h"

enum how {
    AS_IS, /* vectors become F32 */
    AS_F32,
    FLAT,   /* one dimension, F32 */
    ROPE_Q, /* llama: GGUF rotates neighbours, the checkpoint rotates halves */
    ROPE_K,
    STACK,     /* one tensor from every expert's; %u in the name is the expert */
    GATE_ROWS, /* [E][2f][d]: the first f rows of each expert */
    UP_ROWS,   /* and the others */
    TURNED,    /* [E][d][2f], [E][f][d]: each expert transposed; otherwise not taken */
    NOT_TURNED,
    EVEN, /* gpt-oss: of each expert's rows those of the gate, */
    ODD,  /* or of up, which lie in turns */
    WHOLE,
    MLA_K, /* kv_b_proj [heads][k rows, v rows][rank]: k, transposed per head */
    MLA_V,
    LERP,      /* %c in the name is each of r w k v a g; {C,1,1,6} */
    OUTPUT,    /* AS_IS, unless tied to the embedding */
    VALUE_MIX, /* AS_IS; block 0 has none, or dummies that are dropped */
    PLUS_ONE,  /* norms stored less 1; F32 */
    MINUS_EXP, /* of a number for each value head of a delta net; F32 */
    HEADS,     /* such numbers or rows as they are */
    HEADS_F32,
    VALUES,      /* rows of all value heads */
    MIXED,       /* rows of all keys of queries, of keys, then of all value heads */
    TAPS,        /* the same of a convolution; F32 */
    COLUMNS,     /* columns of all value heads */
    CONV,        /* [n][1][taps] without the middle one; F32 */
    CONV3,       /* with it, also where the checkpoint leaves it out */
    COLUMN,      /* a number for each head of Mamba as rows of one; F32 */
    COLUMN_EXP,  /* minus its exponential */
    BY_GROUP,    /* a vector as a row for each group of Mamba; F32 */
    SCALED,      /* AS_IS, times the multiplier that goes with the name */
    SCALED_ROWS, /* Mamba's, times one for each part of the rows */
    QKV_ROWS,    /* rows of q, k and v, without z, which key head by key head lie together */
    Z_ROWS,
    DROP,
};

struct rule {
    u64 archs;
    const char *hf, *gguf;
    enum how how;
};

enum {
    L = HF_LLAMA,
    Q2 = HF_QWEN2,
    QM = HF_QWEN3_MOE,
    G = HF_GLM4_LITE | HF_DEEPSEEK,
    R = HF_RWKV7,
    MX = HF_MIXTRAL,
    GM = HF_GLM4_MOE | HF_SOLAR,
    SO = HF_SEED_OSS,
    S3 = HF_SMOLLM3,
    P3 = HF_PHI3,
    MM = HF_MINIMAX_M2,
    ER = HF_ERNIE,
    EM = HF_ERNIE_MOE,
    GR = HF_GRANITE,
    HY = HF_HUNYUAN,
    HM = HF_HUNYUAN_MOE,
    N = HF_QWEN3_NEXT,
    D5 = HF_QWEN35 | HF_QWEN35_MOE,
    D = HF_DELTA,
    DM = N | HF_QWEN35_MOE,
    GO = HF_GPT_OSS,
    GE = HF_GEMMA2 | HF_GEMMA3, /* norms are stored minus one */
    M3 = HF_MISTRAL3,
    O2 = HF_OLMO2,
    E4 = HF_EXAONE4,
    C2 = HF_COHERE2,
    G4 = HF_GLM4,
    F2 = HF_LFM2 | HF_LFM2_MOE,
    FM = HF_LFM2_MOE,
    NH = HF_NEMOTRON_H,
    GH = HF_GRANITE_H | HF_GRANITE_HD,
    GX = HF_GRANITE_H,
    GD = HF_GRANITE_HD,
    FH = HF_FALCON_H1,
    HV = HF_HY_V3,
    BL = HF_BAILING2,
    KL = HF_KIMI_LINEAR,
    POST = O2 | E4, /* norms behind the halves of a block alone */
    HAS_BIAS = HF_LLAMA | HF_QWEN2 | SO | S3 | GM | ER | EM | GR | HY | HM | GO | G4 | C2 |
               GE,                                                          /* of q, k and v */
    FULL_BIAS = HF_LLAMA | SO | S3 | ER | EM | GR | HY | HM | GO | C2 | GE, /* of the others */
    QN = HF_QWEN3 | HF_QWEN3_MOE | GM | MM | HF_GEMMA3 | O2 | E4 | HV, /* with norms on q and k */
    DENSE = L | Q2 | HF_QWEN3 | SO | S3 | GM | ER | EM | GR | HY | HF_QWEN35 | GE | M3 | O2 | E4 |
            C2 | HV | BL,
    SPLIT = DENSE | DM | QM | MX | MM | HM | GO | G4 | F2 | GH, /* q, k and v are three tensors */
    ATTN = SPLIT | P3,
    MOE = QM | G | GM | MX | MM | EM | HM | DM | HV | BL,
    SIGMOID = G | GM | EM | HV | BL, /* with shared experts under these names */
    PERMUTED =
        L | MX | S3 | GR | M3 | GH, /* GGUF rotates neighbours, the checkpoint rotates halves */
    ALL = ATTN | G | R | NH | FH | KL,
};

static const struct rule model_rules[] = {
    {ATTN | G | KL, "model.embed_tokens.weight", "token_embd.weight", AS_IS},
    {R, "model.embeddings.weight", "token_embd.weight", AS_IS},
    {R, "model.layers.0.pre_norm.weight", "token_embd_norm.weight", AS_IS},
    {R, "model.layers.0.pre_norm.bias", "token_embd_norm.bias", AS_IS},
    {FH, "model.embed_tokens.weight", "token_embd.weight", SCALED},
    {BL, "model.word_embeddings.weight", "token_embd.weight", AS_IS},
    {NH, "model.embeddings.weight", "token_embd.weight", AS_IS},
    {NH, "model.embedding.weight", "token_embd.weight", AS_IS},
    {ALL & ~(u64)(D | F2 | NH | FH), "model.norm.weight", "output_norm.weight", AS_IS},
    {F2, "model.embedding_norm.weight", "token_embd_norm.weight", AS_IS},
    {NH, "model.norm_f.weight", "output_norm.weight", AS_IS},
    {FH, "model.final_layernorm.weight", "output_norm.weight", AS_IS},
    {D, "model.norm.weight", "output_norm.weight", PLUS_ONE},
    {R, "model.norm.bias", "output_norm.bias", AS_IS},
    {ALL, "lm_head.weight", "output.weight", OUTPUT},
    {ALL, "score.weight", "cls.output.weight", AS_IS},
};

/* After model.layers.N. and blk.N. */
static const struct rule block_rules[] = {
    {((ATTN | G) & ~(u64)(D | POST | F2)) | FH, "input_layernorm.weight", "attn_norm.weight",
     AS_IS},
    {F2, "operator_norm.weight", "attn_norm.weight", AS_IS},
    {F2, "ffn_norm.weight", "ffn_norm.weight", AS_IS},
    {F2, "self_attn.out_proj.weight", "attn_output.weight", AS_IS},
    {F2, "self_attn.q_layernorm.weight", "attn_q_norm.weight", AS_IS},
    {F2, "self_attn.k_layernorm.weight", "attn_k_norm.weight", AS_IS},
    {F2, "conv.in_proj.weight", "shortconv.in_proj.weight", AS_IS},
    {F2, "conv.out_proj.weight", "shortconv.out_proj.weight", AS_IS},
    {F2, "conv.conv.weight", "shortconv.conv.weight", CONV},
    {F2, "feed_forward.w1.weight", "ffn_gate.weight", AS_IS},
    {F2, "feed_forward.w2.weight", "ffn_down.weight", AS_IS},
    {F2, "feed_forward.w3.weight", "ffn_up.weight", AS_IS},
    {HV, "mlp.router.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {HV, "mlp.e_score_correction_bias", "exp_probs_b", AS_F32}, /* as its converter names it */
    {HV, "mlp.expert_bias", "exp_probs_b", AS_F32},
    {HV, "mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {HV, "mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {HV, "mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {BL, "attention.query_key_value.weight", "attn_qkv.weight", AS_IS},
    {BL, "attention.dense.weight", "attn_output.weight", AS_IS},
    {BL, "attention.query_layernorm.weight", "attn_q_norm.weight", AS_IS},
    {BL, "attention.key_layernorm.weight", "attn_k_norm.weight", AS_IS},
    {BL, "mlp.gate.expert_bias", "exp_probs_b.bias", AS_F32},
    {KL, "input_layernorm.weight", "attn_norm.weight", AS_IS},
    {KL, "post_attention_layernorm.weight", "ffn_norm.weight", AS_IS},
    {KL, "self_attn.k_proj.weight", "attn_k.weight", AS_IS},
    {KL, "self_attn.v_proj.weight", "attn_v.weight", AS_IS},
    {KL, "self_attn.q_conv1d.weight", "ssm_conv1d_q.weight", CONV3},
    {KL, "self_attn.k_conv1d.weight", "ssm_conv1d_k.weight", CONV3},
    {KL, "self_attn.v_conv1d.weight", "ssm_conv1d_v.weight", CONV3},
    {KL, "self_attn.A_log", "ssm_a", COLUMN_EXP},
    {KL, "self_attn.dt_bias", "ssm_dt.bias", FLAT},
    {KL, "self_attn.b_proj.weight", "ssm_beta.weight", AS_IS},
    {KL, "self_attn.f_a_proj.weight", "ssm_f_a.weight", AS_IS},
    {KL, "self_attn.f_b_proj.weight", "ssm_f_b.weight", AS_IS},
    {KL, "self_attn.g_a_proj.weight", "ssm_g_a.weight", AS_IS},
    {KL, "self_attn.g_b_proj.weight", "ssm_g_b.weight", AS_IS},
    {KL, "self_attn.o_norm.weight", "ssm_norm.weight", AS_IS},
    {KL, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {KL, "block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", AS_F32},
    {KL, "block_sparse_moe.experts.%u.w1.weight", "ffn_gate_exps.weight", STACK},
    {KL, "block_sparse_moe.experts.%u.w2.weight", "ffn_down_exps.weight", STACK},
    {KL, "block_sparse_moe.experts.%u.w3.weight", "ffn_up_exps.weight", STACK},
    {KL, "block_sparse_moe.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {KL, "block_sparse_moe.shared_experts.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {KL, "block_sparse_moe.shared_experts.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {FM, "feed_forward.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {FM, "feed_forward.expert_bias", "exp_probs_b.bias", AS_F32},
    {FM, "feed_forward.experts.%u.w1.weight", "ffn_gate_exps.weight", STACK},
    {FM, "feed_forward.experts.%u.w2.weight", "ffn_down_exps.weight", STACK},
    {FM, "feed_forward.experts.%u.w3.weight", "ffn_up_exps.weight", STACK},
    {NH, "norm.weight", "attn_norm.weight", AS_IS},
    {NH, "mixer.q_proj.weight", "attn_q.weight", AS_IS},
    {NH, "mixer.k_proj.weight", "attn_k.weight", AS_IS},
    {NH, "mixer.v_proj.weight", "attn_v.weight", AS_IS},
    {NH, "mixer.o_proj.weight", "attn_output.weight", AS_IS},
    {NH, "mixer.q_proj.bias", "attn_q.bias", AS_IS},
    {NH, "mixer.k_proj.bias", "attn_k.bias", AS_IS},
    {NH, "mixer.v_proj.bias", "attn_v.bias", AS_IS},
    {NH, "mixer.o_proj.bias", "attn_output.bias", AS_IS},
    {NH, "mixer.up_proj.weight", "ffn_up.weight", AS_IS},
    {NH, "mixer.down_proj.weight", "ffn_down.weight", AS_IS},
    {NH, "mixer.up_proj.bias", "ffn_up.bias", AS_IS},
    {NH, "mixer.down_proj.bias", "ffn_down.bias", AS_IS},
    {NH, "mixer.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {NH, "mixer.gate.e_score_correction_bias", "exp_probs_b.bias", AS_F32},
    {NH, "mixer.experts.%u.up_proj.weight", "ffn_up_exps.weight", STACK},
    {NH, "mixer.experts.%u.down_proj.weight", "ffn_down_exps.weight", STACK},
    {NH, "mixer.experts.up_proj", "ffn_up_exps.weight", AS_IS},
    {NH, "mixer.experts.down_proj", "ffn_down_exps.weight", AS_IS},
    {NH, "mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {NH, "mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {NH, "mixer.fc1_latent_proj.weight", "ffn_latent_down.weight", AS_IS},
    {NH, "mixer.fc2_latent_proj.weight", "ffn_latent_up.weight", AS_IS},
    {NH, "mixer.in_proj.weight", "ssm_in.weight", AS_IS},
    {NH, "mixer.conv1d.weight", "ssm_conv1d.weight", CONV},
    {NH, "mixer.conv1d.bias", "ssm_conv1d.bias", AS_IS},
    {NH, "mixer.A_log", "ssm_a", COLUMN_EXP},
    {NH, "mixer.D", "ssm_d", COLUMN},
    {NH, "mixer.dt_bias", "ssm_dt.bias", AS_F32},
    {NH, "mixer.norm.weight", "ssm_norm.weight", BY_GROUP},
    {NH, "mixer.out_proj.weight", "ssm_out.weight", AS_IS},
    {GH, "mamba.in_proj.weight", "ssm_in.weight", AS_IS},
    {FH, "mamba.in_proj.weight", "ssm_in.weight", SCALED_ROWS},
    {GH | FH, "mamba.conv1d.weight", "ssm_conv1d.weight", CONV},
    {GH | FH, "mamba.conv1d.bias", "ssm_conv1d.bias", AS_IS},
    {GH | FH, "mamba.A_log", "ssm_a", COLUMN_EXP},
    {GH | FH, "mamba.D", "ssm_d", COLUMN},
    {GH | FH, "mamba.dt_bias", "ssm_dt.bias", AS_F32},
    {GH | FH, "mamba.norm.weight", "ssm_norm.weight", BY_GROUP},
    {GH, "mamba.out_proj.weight", "ssm_out.weight", AS_IS},
    {FH, "mamba.out_proj.weight", "ssm_out.weight", SCALED},
    {FH, "self_attn.q_proj.weight", "attn_q.weight", SCALED},
    {FH, "self_attn.k_proj.weight", "attn_k.weight", SCALED},
    {FH, "self_attn.v_proj.weight", "attn_v.weight", SCALED},
    {FH, "self_attn.o_proj.weight", "attn_output.weight", SCALED},
    {FH, "pre_ff_layernorm.weight", "ffn_norm", AS_F32}, /* as its converter names it */
    {FH, "feed_forward.gate_proj.weight", "ffn_gate.weight", SCALED},
    {FH, "feed_forward.up_proj.weight", "ffn_up.weight", AS_IS},
    {FH, "feed_forward.down_proj.weight", "ffn_down.weight", SCALED},
    {GX, "block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", AS_F32},
    {GX, "block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", GATE_ROWS},
    {GX, "block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", UP_ROWS},
    {GX, "block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", AS_IS},
    {GX, "shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", GATE_ROWS},
    {GX, "shared_mlp.input_linear.weight", "ffn_up_shexp.weight", UP_ROWS},
    {GX, "shared_mlp.output_linear.weight", "ffn_down_shexp.weight", AS_IS},
    {GD, "shared_mlp.input_linear.weight", "ffn_gate.weight", GATE_ROWS},
    {GD, "shared_mlp.input_linear.weight", "ffn_up.weight", UP_ROWS},
    {GD, "shared_mlp.output_linear.weight", "ffn_down.weight", AS_IS},
    {D, "input_layernorm.weight", "attn_norm.weight", PLUS_ONE},
    {GO, "self_attn.sinks", "attn_sinks.weight", AS_F32},
    {SPLIT, "self_attn.q_proj.weight", "attn_q.weight", ROPE_Q},
    {HAS_BIAS, "self_attn.q_proj.bias", "attn_q.bias", ROPE_Q},
    {SPLIT, "self_attn.k_proj.weight", "attn_k.weight", ROPE_K},
    {HAS_BIAS, "self_attn.k_proj.bias", "attn_k.bias", ROPE_K},
    {SPLIT, "self_attn.v_proj.weight", "attn_v.weight", AS_IS},
    {HAS_BIAS, "self_attn.v_proj.bias", "attn_v.bias", AS_IS},
    {P3, "self_attn.qkv_proj.weight", "attn_qkv.weight", AS_IS},
    {QN, "self_attn.q_norm.weight", "attn_q_norm.weight", AS_IS},
    {QN, "self_attn.k_norm.weight", "attn_k_norm.weight", AS_IS},
    {HY | HM, "self_attn.query_layernorm.weight", "attn_q_norm.weight", AS_IS},
    {HY | HM, "self_attn.key_layernorm.weight", "attn_k_norm.weight", AS_IS},
    {G | KL, "self_attn.q_proj.weight", "attn_q.weight", AS_IS},
    {G, "self_attn.q_a_proj.weight", "attn_q_a.weight", AS_IS},
    {G, "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", AS_IS},
    {G, "self_attn.q_b_proj.weight", "attn_q_b.weight", AS_IS},
    {G | KL, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", AS_IS},
    {G | KL, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", AS_IS},
    {G | KL, "self_attn.kv_b_proj.weight", "attn_k_b.weight", MLA_K},
    {G | KL, "self_attn.kv_b_proj.weight", "attn_v_b.weight", MLA_V},
    {ATTN | G | KL, "self_attn.o_proj.weight", "attn_output.weight", AS_IS},
    {FULL_BIAS, "self_attn.o_proj.bias", "attn_output.bias", AS_IS},
    {ATTN | G, "self_attn.rotary_emb.inv_freq", NULL, DROP},
    {(ATTN | G) & ~(u64)(SO | GM | GO | GE | POST | D | F2), "post_attention_layernorm.weight",
     "ffn_norm.weight", AS_IS},
    {SO | GM | GO | GE | POST, "post_attention_layernorm.weight", "post_attention_norm.weight",
     AS_IS},
    {D, "post_attention_layernorm.weight", "post_attention_norm.weight", PLUS_ONE},
    {D, "self_attn.q_norm.weight", "attn_q_norm.weight", PLUS_ONE},
    {D, "self_attn.k_norm.weight", "attn_k_norm.weight", PLUS_ONE},
    {N, "linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", QKV_ROWS},
    {N, "linear_attn.in_proj_qkvz.weight", "attn_gate.weight", Z_ROWS},
    {N, "linear_attn.in_proj_ba.weight", "ssm_ba.weight", AS_IS},
    {D5, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", MIXED},
    {D5, "linear_attn.in_proj_z.weight", "attn_gate.weight", VALUES},
    {D5, "linear_attn.in_proj_b.weight", "ssm_beta.weight", HEADS},
    {D5, "linear_attn.in_proj_a.weight", "ssm_alpha.weight", HEADS},
    {D, "linear_attn.A_log", "ssm_a", MINUS_EXP},
    {D, "linear_attn.dt_bias", "ssm_dt.bias", HEADS_F32},
    {D, "linear_attn.conv1d.weight", "ssm_conv1d.weight", TAPS},
    {D, "linear_attn.norm.weight", "ssm_norm.weight", AS_IS},
    {D, "linear_attn.out_proj.weight", "ssm_out.weight", COLUMNS},
    {DM, "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {DM, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {DM, "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {DM, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", FLAT},
    {GE, "pre_feedforward_layernorm.weight", "ffn_norm.weight", AS_IS},
    {GE | POST, "post_feedforward_layernorm.weight", "post_ffw_norm.weight", AS_IS},
    {G4, "post_self_attn_layernorm.weight", "post_attention_norm.weight", AS_IS},
    {G4, "post_mlp_layernorm.weight", "post_ffw_norm.weight", AS_IS},
    {DENSE | G | KL, "mlp.gate_proj.weight", "ffn_gate.weight", AS_IS},
    {DENSE | G | KL, "mlp.up_proj.weight", "ffn_up.weight", AS_IS},
    {DENSE | G | KL, "mlp.down_proj.weight", "ffn_down.weight", AS_IS},
    {FULL_BIAS, "mlp.gate_proj.bias", "ffn_gate.bias", AS_IS},
    {FULL_BIAS, "mlp.up_proj.bias", "ffn_up.bias", AS_IS},
    {FULL_BIAS, "mlp.down_proj.bias", "ffn_down.bias", AS_IS},
    {P3 | G4, "mlp.gate_up_proj.weight", "ffn_up.weight", AS_IS},
    {P3 | G4, "mlp.down_proj.weight", "ffn_down.weight", AS_IS},
    {GO, "mlp.router.weight", "ffn_gate_inp.weight", AS_F32},
    {GO, "mlp.router.bias", "ffn_gate_inp.bias", AS_F32},
    {GO, "mlp.experts.gate_up_proj", "ffn_gate_exps.weight", EVEN},
    {GO, "mlp.experts.gate_up_proj", "ffn_up_exps.weight", ODD},
    {GO, "mlp.experts.down_proj", "ffn_down_exps.weight", WHOLE},
    {GO, "mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", EVEN},
    {GO, "mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", ODD},
    {GO, "mlp.experts.down_proj_bias", "ffn_down_exps.bias", AS_F32},
    {MX | MM, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {MM, "block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", AS_F32},
    {MX | MM, "block_sparse_moe.experts.%u.w1.weight", "ffn_gate_exps.weight", STACK},
    {MX | MM, "block_sparse_moe.experts.%u.w2.weight", "ffn_down_exps.weight", STACK},
    {MX | MM, "block_sparse_moe.experts.%u.w3.weight", "ffn_up_exps.weight", STACK},
    {MM, "mlp.e_score_correction_bias", "exp_probs_b.bias", AS_F32},
    {EM, "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", FLAT},
    {HM, "mlp.gate.wg.weight", "ffn_gate_inp.weight", AS_F32},
    {HM, "mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {HM, "mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {HM, "mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {MOE, "mlp.gate.weight", "ffn_gate_inp.weight", AS_F32},
    {SIGMOID, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", AS_F32},
    {MOE, "mlp.experts.%u.gate_proj.weight", "ffn_gate_exps.weight", STACK},
    {MOE, "mlp.experts.%u.up_proj.weight", "ffn_up_exps.weight", STACK},
    {MOE, "mlp.experts.%u.down_proj.weight", "ffn_down_exps.weight", STACK},
    {QM, "mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", TURNED},
    {QM, "mlp.experts.down_proj", "ffn_down_exps.weight", TURNED},
    {MOE, "mlp.experts.gate_up_proj", "ffn_gate_exps.weight", GATE_ROWS},
    {MOE, "mlp.experts.gate_up_proj", "ffn_up_exps.weight", UP_ROWS},
    {MOE, "mlp.experts.down_proj", "ffn_down_exps.weight", NOT_TURNED},
    {SIGMOID, "mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {SIGMOID, "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {SIGMOID, "mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {R, "attn_norm.weight", "attn_norm.weight", AS_IS},
    {R, "attn_norm.bias", "attn_norm.bias", AS_IS},
    {R, "attn.x_%c", "time_mix_lerp_fused.weight", LERP},
    {R, "attn.w_lora.lora.2.bias", "time_mix_w0.weight", AS_F32},
    {R, "attn.w_lora.lora.0.weight", "time_mix_w1.weight", AS_F32},
    {R, "attn.w_lora.lora.2.weight", "time_mix_w2.weight", AS_F32},
    {R, "attn.a_lora.lora.2.bias", "time_mix_a0.weight", AS_IS},
    {R, "attn.a_lora.lora.0.weight", "time_mix_a1.weight", AS_IS},
    {R, "attn.a_lora.lora.2.weight", "time_mix_a2.weight", AS_IS},
    {R, "attn.v_lora.lora.2.bias", "time_mix_v0.weight", VALUE_MIX},
    {R, "attn.v_lora.lora.0.weight", "time_mix_v1.weight", VALUE_MIX},
    {R, "attn.v_lora.lora.2.weight", "time_mix_v2.weight", VALUE_MIX},
    {R, "attn.g_lora.lora.0.weight", "time_mix_g1.weight", AS_IS},
    {R, "attn.g_lora.lora.2.weight", "time_mix_g2.weight", AS_IS},
    {R, "attn.k_k", "time_mix_k_k.weight", FLAT},
    {R, "attn.k_a", "time_mix_k_a.weight", FLAT},
    {R, "attn.r_k", "time_mix_r_k.weight", FLAT},
    {R, "attn.r_proj.weight", "time_mix_receptance.weight", AS_IS},
    {R, "attn.k_proj.weight", "time_mix_key.weight", AS_IS},
    {R, "attn.v_proj.weight", "time_mix_value.weight", AS_IS},
    {R, "attn.o_proj.weight", "time_mix_output.weight", AS_IS},
    {R, "attn.g_norm.weight", "time_mix_ln.weight", AS_IS},
    {R, "attn.g_norm.bias", "time_mix_ln.bias", AS_IS},
    {R, "ffn_norm.weight", "attn_norm_2.weight", AS_IS},
    {R, "ffn_norm.bias", "attn_norm_2.bias", AS_IS},
    {R, "ffn.x_k", "channel_mix_lerp_k.weight", FLAT},
    {R, "ffn.key.weight", "channel_mix_key.weight", AS_IS},
    {R, "ffn.value.weight", "channel_mix_value.weight", AS_IS},
};

/* What an MTP block has beside an ordinary block's tensors. */
static const struct rule mtp_rules[] = {
    {G | GM, "eh_proj.weight", "nextn.eh_proj.weight", AS_IS},
    {G | GM, "enorm.weight", "nextn.enorm.weight", AS_IS},
    {G | GM, "hnorm.weight", "nextn.hnorm.weight", AS_IS},
    {G | GM, "embed_tokens.weight", "nextn.embed_tokens.weight", AS_IS},
    {G | GM, "shared_head.head.weight", "nextn.shared_head_head.weight", AS_IS},
    {G | GM, "shared_head.norm.weight", "nextn.shared_head_norm.weight", AS_IS},
};

/* Of a delta net's MTP block, whose own layer lies in mtp.layers.0. */
static const struct rule mtp_apart_rules[] = {
    {D, "mtp.fc.weight", "nextn.eh_proj.weight", AS_IS},
    {D, "mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight", PLUS_ONE},
    {D, "mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight", PLUS_ONE},
    {D, "mtp.norm.weight", "nextn.shared_head_norm.weight", PLUS_ONE},
};

/* Where a rule is applied: the block, or none. */
struct place {
    struct source *s;
    struct hf *h;
    const char *hf_prefix, *gguf_prefix; /* "model.layers.3.", "blk.3." */
    u32 block;
    struct err *err;
};

static int wrong_shape(const struct place *at, const struct st_tensor *t, const char *want)
{
    return err_set(at->err, FLETCH_E_FORMAT, "tensor %s: its shape is not %s", QUOTE(t->name),
                   want);
}

/* The tensor of that name, marked as used, or NULL. */
static const struct st_tensor *take(const struct place *at, const char *name)
{
    char full[320];
    u32 i;
    snprintf(full, sizeof full, "%s%s", at->hf_prefix, name);
    if (!strmap_get(&at->h->index, str_of(full), &i)) return NULL;
    at->h->used[i] = true;
    return at->h->tensors[i];
}

/* Adds a tensor of n_dims given slowest first, with the recipe unless the bytes in the file
 * are what it would make. */
static int add(const struct place *at, const struct rule *rule, enum qtype type, u32 n_dims,
               const u64 *dims, const struct recipe *r)
{
    const struct st_tensor *t = r->src[0];
    struct tensor out = {.type = type, .n_dims = n_dims};
    char *name = arena_printf(&at->s->arena, "%s%s", at->gguf_prefix, rule->gguf);
    bool whole =
        r->kind == RECIPE_ROWS && r->n_src == 1 && r->n_take == r->n_rows && r->map == MAP_NONE;
    bool aligned = (uintptr_t)t->data % quant_info(type)->bytes == 0;
    if (!name) return err_nomem(at->err, "tensors");
    for (u32 i = 0; i < r->n_src; i++)
        if (r->src[i]->fp8 && !r->src[i]->scales)
            return err_set(at->err, FLETCH_E_UNSUPPORTED,
                           "safetensors: tensor %s has type \"F8_E4M3\", but config.json does not "
                           "describe its scales",
                           QUOTE(r->src[i]->name));
    for (u32 i = 0; i < r->n_src; i++)
        if (r->src[i]->bytes && r->kind != RECIPE_MXFP4)
            return err_set(at->err, FLETCH_E_UNSUPPORTED,
                           "safetensors: tensor %s has type \"U8\", which is not supported",
                           QUOTE(r->src[i]->name));
    if (n_dims > 4) return wrong_shape(at, t, "of at most 4 dimensions");
    for (u32 i = 0; i < n_dims; i++) out.ne[i] = dims[n_dims - 1 - i];
    out.name = str_of(name);
    if (whole && aligned && t->type == type && !t->fp8) {
        out.data = t->data;
    } else {
        struct recipe *copy = arena_alloc(&at->s->arena, 1, sizeof *copy);
        const struct st_tensor **src = arena_alloc(&at->s->arena, r->n_src, sizeof *src);
        if (!copy || !src) return err_nomem(at->err, "tensors");
        *copy = *r;
        memcpy(src, r->src, r->n_src * sizeof *src);
        copy->src = src;
        out.recipe = copy;
    }
    return source_add_tensor(at->s, &out, at->err);
}

static int add_plain(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    bool minus_one = (at->h->arch & GE) && strstr(rule->gguf, "norm.weight");
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = t->n_elems,
                       .n_take = 1,
                       .map = rule->how == PLUS_ONE || minus_one ? MAP_PLUS_ONE : MAP_NONE};
    bool flat = rule->how == FLAT || t->n_dims == 0;
    bool f32 = rule->how == AS_F32 || flat || t->n_dims == 1 || r.map != MAP_NONE;
    return add(at, rule, f32 ? QT_F32 : t->type, flat ? 1 : t->n_dims,
               flat ? &t->n_elems : t->shape, &r);
}

static int add_rope(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 n_heads = rule->how == ROPE_Q ? at->h->n_heads : at->h->n_kv_heads;
    if (!(at->h->arch & PERMUTED)) return add_plain(at, rule, t);
    if (t->n_dims == 0 || t->n_dims > 2 || t->shape[0] % (2 * n_heads))
        return wrong_shape(at, t, "[heads * head size, ...]");
    u64 n_rows = t->shape[0] / n_heads;
    struct recipe r = {.kind = RECIPE_PAIRS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_heads,
                       .n_rows = n_rows,
                       .n_cols = t->n_elems / t->shape[0],
                       .n_take = n_rows};
    return add(at, rule, t->n_dims == 1 ? QT_F32 : t->type, t->n_dims, t->shape, &r);
}

static int add_stack(const struct place *at, const struct rule *rule)
{
    const struct st_tensor *src[1024];
    u32 n = at->h->n_experts;
    if (!n) return 0;
    CHECK(n <= ARRAY_LEN(src));
    for (u32 e = 0; e < n; e++) {
        char name[128];
        snprintf(name, sizeof name, rule->hf, e);
        src[e] = take(at, name);
        if (!src[e] && e == 0) return 0;
        if (!src[e])
            return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing (%u experts)",
                           at->hf_prefix, name, n);
        if (src[e]->n_dims != 2 || memcmp(src[e]->shape, src[0]->shape, sizeof src[e]->shape) ||
            src[e]->type != src[0]->type)
            return wrong_shape(at, src[e], "a matrix with the shape and type of the other experts");
    }
    u64 dims[3] = {n, src[0]->shape[0], src[0]->shape[1]};
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = n,
                       .src = src,
                       .n_groups = 1,
                       .n_rows = dims[1],
                       .n_cols = dims[2],
                       .n_take = dims[1]};
    return add(at, rule, src[0]->type, 3, dims, &r);
}

static int add_half(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    bool one = t->n_dims == 2; /* no experts, or one that all tokens share */
    u64 rows = one ? t->shape[0] : t->shape[1], half = rows / 2;
    if ((!one && t->n_dims != 3) || rows % 2) return wrong_shape(at, t, "[experts, 2 * ff, width]");
    u64 dims[3] = {one ? 1 : t->shape[0], half, t->shape[one ? 1 : 2]};
    u64 first = rule->how == UP_ROWS ? half : 0;
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = dims[0],
                       .n_rows = 2 * half,
                       .n_cols = dims[2],
                       .first = first,
                       .n_take = half};
    return add(at, rule, t->type, one ? 2 : 3, one ? dims + 1 : dims, &r);
}

/* Whether the block's experts lie as [in][out], as Qwen3-VL's published files have them. */
static bool has_turned_experts(const struct place *at)
{
    const struct st_tensor *t = take(at, "mlp.experts.gate_up_proj");
    return (at->h->arch & QM) && t && t->n_dims == 3 && t->shape[1] == at->h->d_model &&
           t->shape[2] != at->h->d_model;
}

static int add_turned(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    if (t->n_dims != 3) return wrong_shape(at, t, "[experts, in, out]");
    u64 dims[3] = {t->shape[0], t->shape[2], t->shape[1]};
    struct recipe r = {.kind = RECIPE_TRANSPOSE,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = dims[0],
                       .n_rows = dims[2],
                       .n_cols = dims[1],
                       .n_take = dims[2]};
    return add(at, rule, t->type, 3, dims, &r);
}

/* gpt-oss: experts as [in][out], or as blocks and scales of [out][in/32]; the rows of a gate and
 * those of up lie in turns. */
static int add_turns(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 every = rule->how == WHOLE ? 1 : 2, first = rule->how == ODD;
    if (t->n_dims != 2 && t->n_dims != 3) return wrong_shape(at, t, "[experts, in, out]");
    u64 n_out = t->shape[t->n_dims - 1] / every, dims[3] = {t->shape[0], n_out, t->shape[1]};
    struct recipe r = {.src = &t,
                       .n_src = 1,
                       .n_groups = t->shape[0],
                       .first = first,
                       .n_take = n_out,
                       .every = every};
    if (t->n_dims == 2 && t->shape[1] % every == 0) { /* biases */
        r.n_rows = t->shape[1];
        r.n_cols = 1;
        return add(at, rule, QT_F32, 2, dims, &r);
    }
    if (t->n_dims != 3 || t->shape[2] % every) return wrong_shape(at, t, "[experts, in, out]");
    r.kind = RECIPE_TRANSPOSE;
    r.n_rows = t->shape[1];
    r.n_cols = t->shape[2];
    return add(at, rule, t->type, 3, dims, &r);
}

/* The same of blocks and scales; *found: whether the block has such tensors. */
static int add_blocks(const struct place *at, const struct rule *rule, bool *found)
{
    char name[2][96];
    snprintf(name[0], sizeof name[0], "%s_blocks", rule->hf);
    snprintf(name[1], sizeof name[1], "%s_scales", rule->hf);
    const struct st_tensor *src[2] = {take(at, name[0]), take(at, name[1])}, *t = src[0];
    *found = src[0] || src[1];
    if (!*found) return 0;
    u64 every = rule->how == WHOLE ? 1 : 2;
    if (!src[0] || !src[1])
        return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing", at->hf_prefix,
                       name[src[0] ? 1 : 0]);
    if (t->n_dims != 4 || t->shape[3] != 16 || t->shape[1] % every || !t->bytes || !src[1]->bytes ||
        src[1]->n_dims != 3 || memcmp(src[1]->shape, t->shape, 3 * sizeof *t->shape))
        return wrong_shape(at, t, "[experts, out, in / 32, 16] of bytes, with scales likewise");
    u64 dims[3] = {t->shape[0], t->shape[1] / every, t->shape[2] * 32};
    struct recipe r = {.kind = RECIPE_MXFP4,
                       .n_src = 2,
                       .src = src,
                       .n_groups = t->shape[0],
                       .n_rows = t->shape[1],
                       .n_cols = t->shape[2],
                       .first = rule->how == ODD,
                       .n_take = dims[1],
                       .every = every};
    return add(at, rule, QT_MXFP4, 3, dims, &r);
}

static int add_mla(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 n_heads = at->h->n_heads, n_k = at->h->n_nope, n_v = at->h->n_value, rank = t->shape[1];
    if (t->n_dims != 2 || t->shape[0] != n_heads * (n_k + n_v))
        return wrong_shape(at, t, "[heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]");
    struct recipe r = {.kind = RECIPE_TRANSPOSE,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_heads,
                       .n_rows = n_k + n_v,
                       .n_cols = rank,
                       .n_take = n_k};
    u64 k_dims[3] = {n_heads, rank, n_k}, v_dims[3] = {n_heads, n_v, rank};
    if (rule->how == MLA_K) return add(at, rule, t->type, 3, k_dims, &r);
    r.kind = RECIPE_ROWS;
    r.first = n_k;
    r.n_take = n_v;
    return add(at, rule, t->type, 3, v_dims, &r);
}

/* Values of a delta net, unit by unit: with Qwen3.5's in turns of the key heads. `first` values of
 * every group come before. */
static int add_heads(const struct place *at, const struct rule *rule, const struct st_tensor *t,
                     u64 n_groups, u64 first, u64 unit)
{
    u64 n = at->h->n_values, dims[2] = {t->shape[0], t->n_dims > 1 ? t->shape[1] : 1};
    bool f32 = t->n_dims == 1 || rule->how == TAPS || rule->how == MINUS_EXP;
    if (!unit || !n || (t->n_dims > 2 && rule->how != TAPS) ||
        t->n_elems != n_groups * (first + n * unit))
        return wrong_shape(at, t, "that of the delta net's heads");
    if (rule->how == TAPS) dims[1] = t->n_elems / t->shape[0]; /* [n][1][taps] */
    struct recipe r = {.kind = RECIPE_TURNS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_groups,
                       .n_rows = n,
                       .n_cols = unit,
                       .first = first,
                       .n_keys = at->h->arch & D5 ? at->h->n_keys : 1,
                       .map = rule->how == MINUS_EXP ? MAP_MINUS_EXP : MAP_NONE};
    return add(at, rule, f32 ? QT_F32 : t->type, t->n_dims == 1 ? 1 : 2, dims, &r);
}

static int add_delta(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 n = h->n_values, keys = 2 * (u64)h->n_keys * h->key_dim, rows = t->n_dims ? t->shape[0] : 0;
    if (!rows || t->n_elems % rows || t->n_elems == 0)
        return wrong_shape(at, t, "that of the delta net's heads");
    u64 cols = t->n_elems / rows;
    switch (rule->how) {
    case VALUES: return add_heads(at, rule, t, 1, 0, h->value_dim * cols);
    case MIXED:
    case TAPS: return add_heads(at, rule, t, 1, keys * cols, h->value_dim * cols);
    case COLUMNS: return add_heads(at, rule, t, rows, 0, cols / n);
    default: return add_heads(at, rule, t, 1, 0, cols);
    }
}

/* [key heads][q, k, their heads' v, their heads' z] */
static int add_qkvz(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 k = h->key_dim, v = (u64)h->n_values / h->n_keys * h->value_dim, all = 2 * k + 2 * v;
    if (t->n_dims != 2 || t->shape[0] != h->n_keys * all)
        return wrong_shape(at, t, "[key heads * (q, k, v and z), width]");
    bool z = rule->how == Z_ROWS;
    struct recipe r = {.kind = RECIPE_PARTS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = h->n_keys,
                       .n_rows = all,
                       .n_cols = t->shape[1],
                       .part = {{0, z ? 0 : k}, {k, z ? 0 : k}, {2 * k + (z ? v : 0), v}}};
    u64 dims[2] = {h->n_keys * (z ? v : 2 * k + v), t->shape[1]};
    return add(at, rule, t->type, 2, dims, &r);
}

/* A tensor of Mamba or of a convolution with its values in order, seen as [rows][cols]. */
static int add_shaped(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 n = t->n_dims ? t->shape[0] : 0, dims[2] = {n, 1};
    bool fits = t->n_dims == 1;
    if (rule->how == CONV || rule->how == CONV3) {
        fits = t->n_dims == 2 || (t->n_dims == 3 && t->shape[1] == 1);
        dims[1] = n ? t->n_elems / n : 0;
    } else if (rule->how == COLUMN_EXP) { /* Kimi's has four dimensions */
        fits = true;
        dims[0] = t->n_elems;
    } else if (rule->how == BY_GROUP) {
        dims[0] = h->n_keys;
        dims[1] = n / MAX(h->n_keys, 1u);
        fits &= h->n_keys && n % h->n_keys == 0;
    }
    if (!fits || dims[0] * dims[1] != t->n_elems || !t->n_elems)
        return wrong_shape(at, t, "that of Mamba's heads or of a convolution");
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = t->n_elems,
                       .n_take = 1,
                       .map = rule->how == COLUMN_EXP ? MAP_MINUS_EXP : MAP_NONE};
    u64 three[3] = {dims[0], 1, dims[1]};
    bool apart = rule->how == CONV3;
    return add(at, rule, QT_F32, apart ? 3 : 2, apart ? three : dims, &r);
}

/* Falcon-H1's multiplier of a matrix, by its name in GGUF. */
static float factor_of(const struct hf *h, const char *name)
{
    static const struct {
        const char *name;
        enum hf_factor factor;
    } all[] = {{"token_embd.weight", HF_FACTOR_EMBED}, {"output.weight", HF_FACTOR_HEAD},
               {"attn_q.weight", HF_FACTOR_QV},        {"attn_v.weight", HF_FACTOR_QV},
               {"attn_k.weight", HF_FACTOR_K},         {"attn_output.weight", HF_FACTOR_O},
               {"ffn_gate.weight", HF_FACTOR_GATE},    {"ffn_down.weight", HF_FACTOR_DOWN},
               {"ssm_out.weight", HF_FACTOR_MAMBA_OUT}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(name, all[i].name) == 0) return h->factor[all[i].factor];
    return 1;
}

/* The multipliers of a matrix, by the rows that they are for. */
static int add_scaled(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 values = (u64)h->n_values * h->value_dim, keys = (u64)h->n_keys * h->key_dim;
    u64 rows[5] = {values, values, keys, keys, h->n_values};
    if (t->n_dims != 2) return wrong_shape(at, t, "a matrix");
    if (rule->how == SCALED_ROWS && t->shape[0] != 2 * (values + keys) + h->n_values)
        return wrong_shape(at, t, "[z, x, B, C and dt, width]");
    struct recipe r = {.kind = RECIPE_SCALED,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = t->shape[0],
                       .n_cols = t->shape[1],
                       .n_take = t->shape[0]};
    bool none = true;
    for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
        bool whole = rule->how != SCALED_ROWS;
        r.scale_rows[i] = !whole ? rows[i] : i == 0 ? t->shape[0] : 0;
        r.scale[i] = whole ? factor_of(h, rule->gguf) : h->factor_mamba[i];
        none &= !r.scale_rows[i] || !(r.scale[i] < 1 || r.scale[i] > 1);
    }
    if (none) r.kind = RECIPE_ROWS;
    return add(at, rule, t->type, 2, t->shape, &r);
}

static int add_lerp(const struct place *at, const struct rule *rule)
{
    static const char order[] = "rwkvag";
    const struct st_tensor *src[sizeof order - 1];
    const struct st_tensor *one = take(at, "attn.x_x"); /* early checkpoints: [6][C] */
    if (one && one->n_elems % ARRAY_LEN(src) == 0) {
        u64 dims[4] = {ARRAY_LEN(src), 1, 1, one->n_elems / ARRAY_LEN(src)};
        struct recipe r = {.kind = RECIPE_ROWS,
                           .n_src = 1,
                           .src = &one,
                           .n_groups = 1,
                           .n_rows = 1,
                           .n_cols = one->n_elems,
                           .n_take = 1};
        return add(at, rule, QT_F32, 4, dims, &r);
    }
    for (u32 i = 0; i < ARRAY_LEN(src); i++) {
        char name[64];
        snprintf(name, sizeof name, rule->hf, order[i]);
        src[i] = take(at, name);
        if (!src[i])
            return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing", at->hf_prefix, name);
        if (src[i]->n_elems != src[0]->n_elems)
            return wrong_shape(at, src[i], "that of the other five");
    }
    u64 dims[4] = {ARRAY_LEN(src), 1, 1, src[0]->n_elems};
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = ARRAY_LEN(src),
                       .src = src,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = dims[3],
                       .n_take = 1};
    return add(at, rule, QT_F32, 4, dims, &r);
}

static int apply(const struct place *at, const struct rule *rule)
{
    if (rule->how == STACK) return add_stack(at, rule);
    if (rule->how == LERP) return add_lerp(at, rule);
    bool blocks = false;
    int rc = rule->how == EVEN || rule->how == ODD || rule->how == WHOLE
                 ? add_blocks(at, rule, &blocks)
                 : 0;
    if (blocks) return rc;
    const struct st_tensor *t = take(at, rule->hf);
    if (!t) return 0; /* whether it must be there is for whoever binds the model */
    switch (rule->how) {
    case ROPE_Q:
    case ROPE_K: return add_rope(at, rule, t);
    case GATE_ROWS:
    case UP_ROWS: return has_turned_experts(at) ? 0 : add_half(at, rule, t);
    case TURNED: return has_turned_experts(at) ? add_turned(at, rule, t) : 0;
    case EVEN:
    case ODD:
    case WHOLE: return add_turns(at, rule, t);
    case NOT_TURNED: return has_turned_experts(at) ? 0 : add_plain(at, rule, t);
    case MLA_K:
    case MLA_V: return add_mla(at, rule, t);
    case OUTPUT:
        if (at->h->tied) return 0;
        return at->h->arch & FH ? add_scaled(at, rule, t) : add_plain(at, rule, t);
    case CONV:
    case CONV3:
    case COLUMN:
    case COLUMN_EXP:
    case BY_GROUP: return add_shaped(at, rule, t);
    case SCALED:
    case SCALED_ROWS: return add_scaled(at, rule, t);
    case VALUE_MIX: return at->block == 0 ? 0 : add_plain(at, rule, t);
    case MINUS_EXP:
    case HEADS:
    case HEADS_F32:
    case VALUES:
    case MIXED:
    case TAPS:
    case COLUMNS: return add_delta(at, rule, t);
    case QKV_ROWS:
    case Z_ROWS: return add_qkvz(at, rule, t);
    case DROP: return 0;
    default: return add_plain(at, rule, t);
    }
}

static int apply_all(const struct place *at, const struct rule *rules, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (rules[i].archs & at->h->arch) rc = apply(at, &rules[i]);
    return rc;
}

static int add_rope_factors(struct source *s, const struct hf *h, struct err *err)
{
    const struct {
        const char *name;
        const float *values;
    } all[] = {{"rope_freqs.weight", h->rope_freqs},
               {"rope_factors_short.weight", h->rope_short},
               {"rope_factors_long.weight", h->rope_long}};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(all) && rc == 0; i++) {
        if (!all[i].values) continue;
        struct recipe *r = arena_alloc(&s->arena, 1, sizeof *r);
        if (!r) return err_nomem(err, "tensors");
        *r = (struct recipe){.kind = RECIPE_VALUES, .values = all[i].values};
        struct tensor t = {str_of(all[i].name), QT_F32, 1, {h->n_rope_freqs}, 0, 0, NULL, r};
        rc = source_add_tensor(s, &t, err);
    }
    return rc;
}

/* Buffers that the code which wrote them makes anew, and MTP blocks that config.json does not
 * announce: nothing else is computed from them. */
static bool is_spare(const struct hf *h, struct str name)
{
    static const char *const buffers[] = {".rotary_emb.inv_freq", ".attention.masked_bias",
                                          ".attention.bias"};
    char mtp[64];
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        if (str_ends(name, buffers[i])) return true;
    if ((h->arch & EM) && str_starts(name, "model.mtp_")) return true;
    if (h->arch & D) return false;
    if (!(h->arch & (G | GM | HV | BL)) || !str_starts(name, "model.layers.")) return false;
    const char *digits = name.p + strlen("model.layers.");
    size_t n = 0, most = name.n - strlen("model.layers.");
    u32 block = 0;
    for (; n < most && n < 6 && digits[n] >= '0' && digits[n] <= '9'; n++)
        block = block * 10 + (u32)(digits[n] - '0');
    if (n == 0 || n == most || digits[n] != '.' || block < h->n_layers) return false;
    snprintf(mtp, sizeof mtp, "model.layers.%u.eh_proj.weight", block);
    return hf_find(h, mtp) != NULL;
}

int hf_add_tensors(struct source *s, struct hf *h, struct err *err)
{
    struct place at = {s, h, "", "", 0, err};
    int rc = apply_all(&at, model_rules, ARRAY_LEN(model_rules));
    if (rc == 0) rc = add_rope_factors(s, h, err);
    for (u32 n = 0; n < h->n_layers + h->n_mtp && rc == 0; n++) {
        char hf_prefix[32], gguf_prefix[32];
        bool apart = n >= h->n_layers && (h->arch & D);
        snprintf(hf_prefix, sizeof hf_prefix, apart ? "mtp.layers.%u." : "model.layers.%u.",
                 apart ? n - h->n_layers : n);
        snprintf(gguf_prefix, sizeof gguf_prefix, "blk.%u.", n);
        at = (struct place){s, h, hf_prefix, gguf_prefix, n, err};
        rc = apply_all(&at, block_rules, ARRAY_LEN(block_rules));
        if (rc == 0 && n >= h->n_layers) rc = apply_all(&at, mtp_rules, ARRAY_LEN(mtp_rules));
        at.hf_prefix = "";
        if (rc == 0 && apart) rc = apply_all(&at, mtp_apart_rules, ARRAY_LEN(mtp_apart_rules));
    }
    for (u32 i = 0; i < h->n_tensors && rc == 0; i++)
        if (!h->used[i] && !is_spare(h, h->names[i]))
            source_refuse(
                s, "tensor %s does not belong to this architecture as described by config.json",
                QUOTE(h->tensors[i]->name));
    return rc;
}
