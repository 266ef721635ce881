/* Prints docs/ops.md from the op table in core/op.h (`make docs`), with a map from the kernels of
 * the reference implementations of RWKV-7 and GLM-4.7-Flash to ops. */
#include <stdio.h>
#include <string.h>

#include "core/op.h"

static const char intro[] =
    "# Ops\n"
    "\n"
    "This document is generated from `src/core/op.h` (`make docs`); do not edit it. A program is a "
    "list\n"
    "of the ops below; `fletch explain MODEL` prints the program of a model. `src/ref/ref_ops.c` "
    "defines\n"
    "what each op computes, and `src/ref/*_test.c` tests each op alone.\n"
    "\n"
    "## Conventions\n"
    "\n"
    "- An activation is a buffer of f32 values `[rows][width]`. The number of rows is T (all rows "
    "of the\n"
    "  step) or R (the rows whose logits are needed). An operand is a range of columns of a "
    "buffer:\n"
    "  `q[T][H·hd]` has H heads of hd columns.\n"
    "- t is a row, s(t) is its sequence slot, and p(t) is its position. Only `kv_store`, the "
    "attention\n"
    "  ops, `token_shift`, `conv` and `recurrence` depend on slots. Only `rope`, `kv_store` and "
    "the\n"
    "  attention ops depend on positions.\n"
    "- W is a weight `[out][in]` in its storage type, or `[n][out][in]` if it has slices. Operands "
    "with\n"
    "  (opt) can be absent.\n"
    "- A sum over \"in\" is rounded to f32 once. Every other operation rounds to f32, in the given "
    "order.\n"
    "  No op depends on the number of rows in a step, or on the other rows.\n"
    "- If the profile requires it, activations are rounded to 8 bits, with one scale per 32 "
    "values\n"
    "  (`src/quant/act.h`), before any matmul with block-quantized weights.\n"
    "- silu(z) = z·σ(z) and σ(z) = 1/(1 + exp(-z)), with fletch's own exp (`src/base/num.h`).\n"
    "- State and cache belong to the executor. A step can clear or copy them before its first "
    "op.\n";

struct mapping {
    const char *kernel, *ops;
};

static const struct mapping rwkv7[] = {
    {"`emb`, `blocks.0.ln0` / `pre_norm`", "embed, norm(layer)"},
    {"`ln1`, `ln2`, `ln_out` / `attn_norm`, `ffn_norm`, `norm` (`F.layer_norm`)", "norm(layer)"},
    {"`time_shift` (`ZeroPad2d`), `token_shift`, `x_prev` and its carrying over", "token_shift"},
    {"`x + xx * x_r` … `x_g`, `torch.addcmul`, `fused_addcmul_rwkv7`",
     "lerp with row 0 … 5 of time_mix_lerp_fused"},
    {"`receptance`, `key`, `value`, `output` / `r_proj`, `k_proj`, `v_proj`, `o_proj`", "matmul"},
    {"decay: `w0 + tanh(xw @ w1) @ w2` / `w_lora`", "matmul, act(tanh), matmul with bias w0"},
    {"`exp(-0.606531 * sigmoid(w))`, also as `-softplus(-w) - 0.5` inside kernels", "act(decay)"},
    {"in-context rate: `sigmoid(a0 + (xa @ a1) @ a2)` / `a_lora`",
     "matmul, matmul with bias a0, act(sigmoid)"},
    {"gate: `sigmoid(xg @ g1) @ g2` / `g_lora`", "matmul, act(sigmoid), matmul"},
    {"value residual: `v + (v_first - v) * sigmoid(v0 + (xv @ v1) @ v2)` / `v_lora`, `torch.lerp`",
     "matmul, matmul with bias v0, act(sigmoid), lerp"},
    {"`k * k_k`, then `F.normalize` per head / `l2_norm`", "mul, norm(l2) in groups of a head"},
    {"`k * (1 + (a-1) * k_a)`, `fused_k_rwkv7`", "k_control"},
    {"`wkv7`, `wkv7s`, `RWKV7_OP`, `RWKV7_ONE_OP`, `RWKV7_SEQ_OP`, `wind_backstepping` (forward)",
     "recurrence (takes kk and a; the kernels take -kk and kk·a)"},
    {"`chunk_rwkv7`, `fused_recurrent_rwkv7`, `fused_mul_recurrent_rwkv7`",
     "recurrence (one op for any number of rows)"},
    {"`ln_x` / `g_norm` (`F.group_norm`, eps 64e-5)", "norm(layer) in groups of a head"},
    {"`(r * k * r_k).sum * v`", "rk_bonus"},
    {"`(…) * g`; with the bonus before it `gate_output_correction`", "rk_bonus, mul"},
    {"channel mix `RWKV_x070_CMix_*`: shift, `x_k`, `key`, `relu(…) ** 2`, `value`",
     "token_shift, lerp, matmul, act(relu²), matmul"},
    {"residual additions", "add"},
    {"`head` / `lm_head`", "gather_rows, matmul"},
    {"arwkv7: `RMSNorm`, `Qwen2MLP`", "norm(rms), matmul, matmul, glu, matmul"},
};

static const struct mapping glm[] = {
    {"`embed_tokens`", "embed"},
    {"`Glm4MoeLiteRMSNorm` (input, post-attention, final)", "norm(rms)"},
    {"`q_a_proj`, `q_a_layernorm`, `q_b_proj`", "matmul, norm(rms) with the inner epsilon, matmul"},
    {"`kv_a_proj_with_mqa`", "matmul to [latent | rope key]"},
    {"`kv_a_layernorm`", "norm(rms) of the latent columns, inner epsilon"},
    {"`Glm4MoeLiteRotaryEmbedding`", "none: cos and sin come with the step"},
    {"`apply_rotary_pos_emb_interleave`, `rotary_embedding`",
     "rope(norm) on the last columns of a head"},
    {"`kv_b_proj`, key half (`W_UK`, `w_kc`, a batched matmul in serving engines)",
     "matmul_heads on the query with attn_k_b (absorbed)"},
    {"`kv_b_proj`, value half (`W_UV`, `w_vc`)",
     "matmul_heads on the result with attn_v_b (absorbed)"},
    {"cache update; `concat_and_cache_mla`", "kv_store without value"},
    {"`eager_attention_forward`, `repeat_kv`, scaled-dot-product or flash attention; `flash_mla` "
     "decoding",
     "latent_attention, scale 1/√(nope + rope)"},
    {"`o_proj`", "matmul"},
    {"`Glm4MoeLiteMLP` (dense layers, shared experts); `silu_and_mul`",
     "matmul, matmul, glu, matmul"},
    {"`Glm4MoeLiteTopkRouter.forward` (`F.linear` in f32)", "matmul"},
    {"`route_tokens_to_experts` / `get_topk_indices`, `noaux_tc`, `e_score_correction_bias`, "
     "`biased_grouped_topk`, `moe_fused_gate`",
     "route(sigmoid) with bias, groups, normalised, scaled"},
    {"`Glm4MoeLiteExperts` / `NaiveMoe` (`gate_up_proj`, `down_proj`), `fused_moe`, grouped "
     "matmuls",
     "matmul_experts, matmul_experts, glu, matmul_experts, combine_experts"},
    {"`Glm4MoeLiteMoE`: routed + shared", "add"},
    {"residual additions", "add"},
    {"MTP / NextN: `embed_tokens`, `enorm`, `hnorm`, concatenation",
     "embed, import_hidden, norm(rms) into the two halves of one buffer"},
    {"`eh_proj`, one decoder layer, `shared_head.norm`, `shared_head.head`",
     "matmul, the layer's ops, norm(rms), gather_rows, matmul"},
    {"`lm_head` (`logits_to_keep`)", "gather_rows, matmul"},
};

static void print_ops(void)
{
    for (u32 i = 0; i < OP_COUNT; i++) {
        const struct op_info *op = &op_info[i];
        printf("\n### %s\n\n`%s`\n\n", op->name, op->io);
        if (op->weights[0]) printf("- weights: `%s`\n", op->weights);
        printf("- %s\n- rounding: %s\n", op->maths, op->rounding);
    }
}

static void print_map(const char *title, const struct mapping *map, size_t n)
{
    printf("\n### %s\n\n| name in the other implementation | ops |\n|---|---|\n", title);
    for (size_t i = 0; i < n; i++) printf("| %s | %s |\n", map[i].kernel, map[i].ops);
}

int main(void)
{
    printf("%s\n## Ops\n", intro);
    print_ops();
    printf(
        "\nExecutors can run several ops as one group, with the same bits (`src/core/group.h`).\n"
        "`fletch explain MODEL` shows the groups of a model.\n");
    printf("\n## Ops for the kernels of other implementations\n\n"
           "The tables list the functions of other implementations and the ops that correspond to "
           "them.\nThe names for RWKV-7 are from the RWKV-LM and rwkv packages, or from "
           "flash-linear-attention;\nthe names for GLM-4.7-Flash are from transformers "
           "(`glm4_moe_lite`), or from serving engines.\n");
    print_map("RWKV-7", rwkv7, ARRAY_LEN(rwkv7));
    print_map("GLM-4.7-Flash", glm, ARRAY_LEN(glm));
    return fflush(stdout) != 0;
}
