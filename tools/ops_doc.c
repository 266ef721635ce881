/* Prints docs/ops.md from the op table in core/op.h (`make docs`), with a map from the kernels of
 * the reference implementations of RWKV-7 and GLM-4.7-Flash to ops. */
#include <stdio.h>
#include <string.h>

#include "core/op.h"

static const char intro[] =
    "# Ops\n"
    "\n"
    "Made from `src/core/op.h` by `make docs`; don't edit. A program (`fletch explain MODEL`) is a "
    "list of\n"
    "these; `src/ref/ref_ops.c` defines what each computes, `src/ref/*_test.c` tests each alone.\n"
    "\n"
    "## Conventions\n"
    "\n"
    "- An activation is f32 `[rows][width]`. Rows are T (all rows of the step) or R (those whose "
    "logits are\n"
    "  wanted). An operand is a range of columns of a buffer: `q[T][H·hd]` is H heads of hd "
    "columns.\n"
    "- t is a row, s(t) its sequence slot, p(t) its position. Only `kv_store`, the attentions, "
    "`token_shift`\n"
    "  and `wkv7` look at slots; only `rope`, `kv_store` and the attentions at positions.\n"
    "- W is a weight `[out][in]` in its file type, `[n][out][in]` when it has slices. (opt) may be "
    "absent.\n"
    "- Sums run over all of \"in\" and are rounded to f32 once. Every other operation rounds to "
    "f32, in the\n"
    "  order given; no op depends on how many rows a step has or on what else is in it.\n"
    "- Where the profile says so, activations that meet block-quantised weights are rounded to 8 "
    "bits per 32\n"
    "  (`src/quant/act.h`) before a matmul of any kind.\n"
    "- silu(z) = z·σ(z), σ(z) = 1/(1 + exp(-z)); exp is ours (`src/base/num.h`).\n"
    "- State and cache belong to the executor; a step may zero or copy them before its first op.\n";

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
     "wkv7 (takes kk and a; the kernels take -kk and kk·a)"},
    {"`chunk_rwkv7`, `fused_recurrent_rwkv7`, `fused_mul_recurrent_rwkv7`",
     "wkv7 (one op for any number of rows)"},
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
    printf("\n### %s\n\n| in the reference code | op |\n|---|---|\n", title);
    for (size_t i = 0; i < n; i++) printf("| %s | %s |\n", map[i].kernel, map[i].ops);
}

int main(void)
{
    printf("%s\n## Ops\n", intro);
    print_ops();
    printf("\nExecutors run several of these as one (a group), with the same bits: "
           "`src/core/group.h`.\n`fletch explain MODEL` shows the groups of a model.\n");
    printf(
        "\n## Where the kernels of reference implementations went\n\n"
        "Names as in their code: RWKV-7 in the RWKV-LM and rwkv packages / in "
        "flash-linear-attention,\n"
        "GLM-4.7-Flash in transformers (`glm4_moe_lite`) and, for kernels, in serving engines.\n");
    print_map("RWKV-7", rwkv7, ARRAY_LEN(rwkv7));
    print_map("GLM-4.7-Flash", glm, ARRAY_LEN(glm));
    return fflush(stdout) != 0;
}
