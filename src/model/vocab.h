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
/* SentencePiece's normalizer_spec. */
struct vocab_spm_norm {
    struct str charsmap; /* empty: none */
    bool dummy_prefix, prefix_first_only, remove_extra_spaces, keep_spaces;
};
/* Sets spec->normalizer to what norm says. */
int vocab_spm_normalizer(struct tok_spec *spec, struct arena *arena,
                         const struct vocab_spm_norm *norm, struct err *err);
/* A SentencePiece model file, BPE or Unigram. prefix_first_only: a space goes before the whole text
 * only, not after every special token in it. */
int vocab_read_spm(struct tok_spec *spec, struct arena *arena, struct str file,
                   bool prefix_first_only, struct err *err);

/* Whether the class that tokenizer_config.json (may be NULL) names says how texts are cut. */
bool vocab_knows_class(const json_t *config);
/* vocab.json and the text of merges.txt, of such a class. */
int vocab_read_merges(struct tok_spec *spec, struct arena *arena, const json_t *vocab,
                      struct str merges, const struct tok_files *files, struct err *err);

/* Makes the vocabulary as large as the model: adds tokens of type unused until there are n, as GGUF
 * converters do, or drops added tokens from n on. */
int vocab_resize(struct tok_spec *spec, struct arena *arena, u32 n, struct err *err);

#endif
