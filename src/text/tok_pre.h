/* Pre-tokenizers: how byte-level BPE cuts text into the pieces that merges stay inside. One table
 * of regex lists, by the names GGUF files use; tokenizer.json is recognised by the same lists. */
#ifndef FLETCH_TOK_PRE_H
#define FLETCH_TOK_PRE_H

#include "base/err.h"

enum { TOK_PRE_MAX = 6 }; /* regexes in a list */

#define TOK_PRE_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define TOK_PRE_DIGIT       "\\p{N}"
#define TOK_PRE_DIGITS      "\\p{N}+"
#define TOK_PRE_PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]+"

struct tok_pre_def {
    const char *names;                  /* separated by spaces, ours first */
    const char *regex[TOK_PRE_MAX + 1]; /* applied one after the other; NULL ends */
    bool bos_and_whole; /* GGUF files with this name mean add_bos and ignore_merges unsaid */
};

/* NULL when unknown. */
const struct tok_pre_def *tok_pre_find(struct str name);
/* By the list; of several names that share it, one with this ignore_merges if there is one. */
const struct tok_pre_def *tok_pre_recognise(const struct str *regex, u32 n, bool ignore_merges);
/* The first of a definition's names. */
struct str tok_pre_name(const struct tok_pre_def *def);

struct tok_pre; /* a compiled list; constant once open */
int tok_pre_open(struct tok_pre **out, const struct tok_pre_def *def, struct err *err);
void tok_pre_close(struct tok_pre *pre);

/* Calls sink with the pieces of text in order; together they are the text. Invalid bytes part the
 * text and are pieces of their own. Stops at the first non-zero return of sink, and returns it. */
int tok_pre_split(const struct tok_pre *pre, struct str text,
                  int (*sink)(void *ctx, struct str piece), void *ctx, struct err *err);

#endif
