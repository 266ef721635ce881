#include "model/arch.h"

#include <string.h>

const struct arch arch_table[] = {
    {"llama", "Llama 2/3, Mistral, SmolLM2, TinyLlama", arch_llama},
    {"qwen2", "Qwen2, Qwen2.5", arch_qwen2},
    {"qwen3", "Qwen3", arch_qwen3},
    {"qwen3moe", "Qwen3 mixture of experts", arch_qwen3moe},
    {"deepseek2", "GLM-4.7-Flash", arch_deepseek2},
    {"rwkv7", "RWKV-7", arch_rwkv7},
    {"arwkv7", "RWKV-7 mixer with Qwen2.5 feed-forward", arch_arwkv7},
    {NULL, NULL, NULL},
};

const struct arch *arch_find(const char *name)
{
    for (const struct arch *a = arch_table; a->name; a++)
        if (strcmp(a->name, name) == 0) return a;
    return NULL;
}
