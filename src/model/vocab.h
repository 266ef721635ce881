/* The vocabulary that comes with a model: tokenizer.ggml.* metadata of a GGUF file, or the
 * tokenizer files of a Hugging Face directory. */
#ifndef FLETCH_VOCAB_H
#define FLETCH_VOCAB_H

#include "format/source.h"
#include "text/tok.h"

struct vocab {
    struct arena arena;
    struct tok_spec spec; /* kind TOK_NONE when the model has none */
    struct tok *tok;      /* NULL then */
};

/* The result does not depend on s any more. A model without a vocabulary is no error. */
int vocab_load(struct vocab **out, const struct source *s, struct err *err);
/* Adds the tokenizer.* metadata that make a GGUF file load as v. */
int vocab_to_source(const struct vocab *v, struct source *s, struct err *err);
void vocab_close(struct vocab *v);

/* The text form of RWKV's vocabulary: lines of id, Python literal, length in bytes. n_tokens (0:
 * as many as there are ids) sizes the vocabulary; ids without a line are unused. */
int vocab_read_rwkv(struct tok_spec *spec, struct arena *arena, struct str text, u32 n_tokens,
                    struct err *err);
/* Adds tokens of type unused until there are n, as GGUF converters do. */
int vocab_pad(struct tok_spec *spec, struct arena *arena, u32 n, struct err *err);

#endif
