/* For tests that need text: a small llama with random weights and a real vocabulary, written as a
 * GGUF file. Nothing it says makes sense, but all of it is a function of the options. */
#ifndef FLETCH_TINY_MODEL_H
#define FLETCH_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

struct tiny_model {
    const char *vocab;         /* directory below test/golden/tok; NULL: qwen2 */
    const char *chat_template; /* NULL: ChatML; "": none */
    uint32_t n_ctx;            /* 0: 256 */
    uint64_t seed;
    bool plant_nan; /* one NaN and one infinity in blk.1.ffn_down.weight */
};

/* Path of a new file; tiny_model_remove deletes it and frees the path. Failures end the test. */
char *tiny_model_path(const struct tiny_model *options);
void tiny_model_remove(char *path);

#endif
