/* Normalizers: what happens to a text before it is cut into pieces, step by step, as
 * tokenizer.json's "normalizer" describes it. One type is ours: SentencePiece, which does what a
 * tokenizer.model's normalizer_spec says. */
#ifndef FLETCH_TOK_NORM_H
#define FLETCH_TOK_NORM_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/tok_map.h"

struct tok_normalizer; /* steps, compiled; constant once open */
/* v: a normalizer as tokenizer.json has it; null or NULL: one that changes nothing. */
int tok_norm_open(struct tok_normalizer **out, const json_t *v, struct err *err);
void tok_norm_close(struct tok_normalizer *norm);

/* What normalisation needs beside the text. */
struct tok_norm_job {
    bool first; /* nothing stands before the text */
    const struct trie
        *symbols;    /* SentencePiece's user-defined pieces, never changed; may be NULL */
    struct buf a, b; /* scratch memory; the result is in one of them, or is the text */
};
void tok_norm_job_free(struct tok_norm_job *job);
/* Invalid bytes pass as they are. */
int tok_norm_run(const struct tok_normalizer *norm, struct tok_norm_job *job, struct str text,
                 struct str *out, struct err *err);

#endif
