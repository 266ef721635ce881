/* Cohere 2: attention and the feed-forward read the same norm, a layer norm without a bias; layers
 * without a window do not rotate. */
#include "model/arch/dense.h"

int arch_cohere2(struct build *b)
{
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NORM},
                                                 .parallel = true,
                                                 .ffn = dense_ffn});
}
