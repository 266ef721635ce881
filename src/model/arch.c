#include "model/arch.h"

#include <string.h>

const struct arch arch_table[] = {
    {"llama", "Llama 2/3, Mistral, Mixtral, SmolLM2, TinyLlama", arch_llama, ARCH_MAY_EXPERTS},
    {"qwen2", "Qwen2, Qwen2.5", arch_qwen2, 0},
    {"qwen3", "Qwen3", arch_qwen3, 0},
    {"qwen3moe", "Qwen3 mixture of experts", arch_qwen3moe, ARCH_EXPERTS},
    {"qwen2vl", "the text models of Qwen2-VL and Qwen2.5-VL", arch_qwen2, 0},
    {"qwen3vl", "the text model of Qwen3-VL", arch_qwen3, 0},
    {"qwen3vlmoe", "the text model of Qwen3-VL, mixture of experts", arch_qwen3moe, ARCH_EXPERTS},
    {"glm4moe", "GLM-4.5, GLM-4.6, GLM-4.7 and their Air versions, Solar Open", arch_glm4moe,
     ARCH_EXPERTS | ARCH_SIGMOID | ARCH_SAYS_NORM | ARCH_MTP},
    {"seed_oss", "Seed-OSS", arch_seed_oss, 0},
    {"smollm3", "SmolLM3", arch_smollm3, 0},
    {"phi3", "Phi-3, Phi-4", arch_phi3, 0},
    {"minimax-m2", "MiniMax-M2", arch_minimax_m2, ARCH_EXPERTS | ARCH_SIGMOID},
    {"ernie4_5", "ERNIE 4.5", arch_ernie4_5, 0},
    {"ernie4_5-moe", "ERNIE 4.5 mixture of experts", arch_ernie4_5_moe, ARCH_EXPERTS | ARCH_GATED},
    {"granite", "Granite 3 and 4, dense", arch_granite, ARCH_SCALES},
    {"hunyuan-dense", "Hunyuan, dense", arch_hunyuan_dense, 0},
    {"hunyuan-moe", "Hunyuan-A13B", arch_hunyuan_moe, ARCH_EXPERTS | ARCH_GATED},
    {"deepseek2", "DeepSeek V2-Lite, V3 and R1, GLM-4.7-Flash", arch_deepseek2,
     ARCH_EXPERTS | ARCH_GATED | ARCH_SAYS_NORM | ARCH_MLA | ARCH_MTP},
    {"qwen35", "Qwen3.5 and Qwen3.6, dense", arch_qwen35, ARCH_DELTA | ARCH_MTP},
    {"qwen35moe", "Qwen3.5 and Qwen3.6, mixture of experts", arch_qwen35,
     ARCH_EXPERTS | ARCH_SHARED | ARCH_DELTA | ARCH_MTP},
    {"qwen3next", "Qwen3-Next", arch_qwen35, ARCH_EXPERTS | ARCH_SHARED | ARCH_DELTA | ARCH_MTP},
    {"rwkv7", "RWKV-7", arch_rwkv7, ARCH_STATE},
    {"arwkv7", "RWKV-7 mixer with Qwen2.5 feed-forward", arch_arwkv7, ARCH_STATE},
    {NULL, NULL, NULL, 0},
};

const struct arch *arch_find(const char *name)
{
    for (const struct arch *a = arch_table; a->name; a++)
        if (strcmp(a->name, name) == 0) return a;
    return NULL;
}
