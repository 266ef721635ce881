/* Seed-OSS: Qwen2 whose second norm has another name in GGUF. */
#include "model/arch/dense.h"

int arch_seed_oss(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX},
                                                 .ffn_norm = "post_attention_norm",
                                                 .ffn = dense_ffn});
}
