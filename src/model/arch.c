#include "model/arch.h"

#include <string.h>

const struct arch arch_table[] = {
    {"llama", "Llama 2/3, Mistral, Mixtral, SmolLM2, TinyLlama", arch_llama, ARCH_MAY_EXPERTS, 0,
     0},
    {"qwen2", "Qwen2, Qwen2.5", arch_qwen2, 0, 0, 0},
    {"qwen3", "Qwen3", arch_qwen3, 0, 0, 0},
    {"qwen3moe", "Qwen3 mixture of experts", arch_qwen3moe, ARCH_EXPERTS, 0, 0},
    {"qwen2vl", "the text models of Qwen2-VL and Qwen2.5-VL", arch_qwen2, 0, 0, 0},
    {"qwen3vl", "the text model of Qwen3-VL", arch_qwen3, 0, 0, 0},
    {"qwen3vlmoe", "the text model of Qwen3-VL, mixture of experts", arch_qwen3moe, ARCH_EXPERTS, 0,
     0},
    {"glm4moe", "GLM-4.5, GLM-4.6, GLM-4.7 and their Air versions, Solar Open", arch_glm4moe,
     ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SAYS_NORM | ARCH_MTP, 0, 0},
    {"seed_oss", "Seed-OSS", arch_seed_oss, 0, 0, 0},
    {"smollm3", "SmolLM3", arch_smollm3, 0, 0, 0},
    {"phi3", "Phi-3, Phi-4", arch_phi3, 0, 0, 0},
    {"minimax-m2", "MiniMax-M2", arch_minimax_m2, ARCH_EXPERTS | ARCH_SIGMOID, 0, 0},
    {"ernie4_5", "ERNIE 4.5", arch_ernie4_5, 0, 0, 0},
    {"ernie4_5-moe", "ERNIE 4.5 mixture of experts", arch_ernie4_5_moe, ARCH_EXPERTS | ARCH_GATED,
     0, 0},
    {"granite", "Granite 3 and 4, dense", arch_granite, ARCH_SCALES, 0, 0},
    {"hunyuan-dense", "Hunyuan, dense", arch_hunyuan_dense, 0, 0, 0},
    {"hunyuan-moe", "Hunyuan-A13B", arch_hunyuan_moe, ARCH_EXPERTS | ARCH_GATED, 0, 0},
    {"deepseek2", "DeepSeek V2-Lite, V3 and R1, Kimi K2, GLM-4.7-Flash", arch_deepseek2,
     ARCH_EXPERTS | ARCH_GATED | ARCH_SAYS_NORM | ARCH_MLA | ARCH_MTP, 0, 0},
    {"qwen35", "Qwen3.5 and Qwen3.6, dense", arch_qwen35, ARCH_DELTA | ARCH_MTP, 0, 0},
    {"qwen35moe", "Qwen3.5 and Qwen3.6, mixture of experts", arch_qwen35,
     ARCH_EXPERTS | ARCH_SHARED | ARCH_DELTA | ARCH_MTP, 0, 0},
    {"qwen3next", "Qwen3-Next", arch_qwen35, ARCH_EXPERTS | ARCH_SHARED | ARCH_DELTA | ARCH_MTP, 0,
     0},
    {"gpt-oss", "gpt-oss", arch_gpt_oss, ARCH_EXPERTS | ARCH_WINDOW | ARCH_YARN_EXACT, 2, 0},
    {"gemma2", "Gemma 2", arch_gemma2, ARCH_WINDOW | ARCH_CAPPED | ARCH_ROOT_EMBED, 2, 46},
    {"gemma3", "Gemma 3, text", arch_gemma3,
     ARCH_WINDOW | ARCH_LOCAL_ROPE | ARCH_ROPE_1E4 | ARCH_MAY_CAP | ARCH_ROOT_EMBED, 6, 62},
    {"mistral3", "Mistral Small 3, Ministral 3, Devstral", arch_llama, ARCH_GROWS, 0, 0},
    {"olmo2", "OLMo 2 and 3", arch_olmo2, ARCH_LOCAL_ROPE, 4, 0},
    {"exaone4", "EXAONE 4", arch_exaone4, ARCH_PLAIN_FULL, 4, 0},
    {"cohere2", "Command R7B and A, Aya Expanse", arch_cohere2,
     ARCH_WINDOW | ARCH_PLAIN_FULL | ARCH_LAYER_NORM | ARCH_TIMES_LOGITS, 4, 0},
    {"glm4", "GLM-4 0414, dense", arch_glm4, 0, 0, 0},
    {"hy_v3", "Hy3", arch_hy_v3, ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SHARED | ARCH_SAYS_NORM, 0, 0},
    {"bailingmoe2", "Ling 2 and Ring 2", arch_hy_v3, ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SAYS_NORM,
     0, 0},
    {"kimi-linear", "Kimi Linear", arch_kimi_linear,
     ARCH_EXPERTS | ARCH_GATED | ARCH_MLA | ARCH_KDA, 0, 0},
    {"lfm2", "LFM2 and LFM2.5, dense", arch_lfm2, ARCH_SHORT_CONV, 0, 0},
    {"lfm2moe", "LFM2 mixture of experts", arch_lfm2, ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SHORT_CONV,
     0, 0},
    {"nemotron_h", "Nemotron-H, Nemotron Nano 2", arch_nemotron_h, ARCH_MAMBA | ARCH_ONE_PART, 0,
     0},
    {"nemotron_h_moe", "Nemotron 3 Nano and Super", arch_nemotron_h,
     ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SHARED | ARCH_SAYS_NORM | ARCH_MAMBA | ARCH_ONE_PART, 0, 0},
    {"granitehybrid", "Granite 4 H", arch_granite_hybrid,
     ARCH_MAY_EXPERTS | ARCH_SHARED | ARCH_SCALES | ARCH_MAMBA, 0, 0},
    {"falcon-h1", "Falcon-H1", arch_falcon_h1, ARCH_MAMBA, 0, 0},
    {"rwkv7", "RWKV-7", arch_rwkv7, ARCH_STATE, 0, 0},
    {"arwkv7", "RWKV-7 mixer with Qwen2.5 feed-forward", arch_arwkv7, ARCH_STATE, 0, 0},
    {NULL, NULL, NULL, 0, 0, 0},
};

const struct arch *arch_find(const char *name)
{
    for (const struct arch *a = arch_table; a->name; a++)
        if (strcmp(a->name, name) == 0) return a;
    return NULL;
}
