/* Hugging Face directories as sources: config.json to GGUF metadata, safetensors to tensors
 * under GGUF names, with the value transforms that GGUF's layout asks for. */
#ifndef FLETCH_HF_H
#define FLETCH_HF_H

#include "format/source.h"

int hf_read(struct source *s, struct err *err);
/* The names of the directory and its architecture, and the size of its vocabulary, where they are
 * said. */
int hf_read_text(struct source *s, struct err *err);
/* Makes the bytes of t by its recipe into dst (t->n_bytes). */
int hf_make(const struct source *s, const struct tensor *t, u8 *dst, struct err *err);
void hf_free(struct source *s);

#endif
