/* Pre-tokenizers: how byte-level BPE cuts text into the pieces that merges stay inside. One table
 * of regex lists, by the names GGUF files use; tokenizer.json is recognised by the same lists. */
#ifndef FLETCH_TOK_PRE_H
#define FLETCH_TOK_PRE_H

#include <jansson.h>

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

enum { TOK_PRE_STEPS = 32 };

/* What becomes of a match in a Split: a piece of its own, nothing, one piece with the matches
 * beside it, or a part of the piece before or after it. */
enum tok_behavior {
    TOK_ISOLATED,
    TOK_REMOVED,
    TOK_CONTIGUOUS,
    TOK_WITH_PREVIOUS,
    TOK_WITH_NEXT,
};
/* False when there is no behavior of that name. */
bool tok_behavior_read(struct str name, enum tok_behavior *out);

struct tok_pre; /* steps, compiled; constant once open */
int tok_pre_open(struct tok_pre **out, const struct tok_pre_def *def, struct err *err);
/* v: a pre_tokenizer as tokenizer.json has it; null or NULL: one that leaves texts whole. */
int tok_pre_open_json(struct tok_pre **out, const json_t *v, struct err *err);
void tok_pre_close(struct tok_pre *pre);
/* It has a ByteLevel: pieces are bytes to be merged, not characters. */
bool tok_pre_is_byte_level(const struct tok_pre *pre);

/* Calls sink with the pieces of text in order; those of a named list together are the text. first:
 * nothing stands before the text. Invalid bytes part the text and are pieces of their own. Stops at
 * the first non-zero return of sink, and returns it. */
int tok_pre_split(const struct tok_pre *pre, struct str text, bool first,
                  int (*sink)(void *ctx, struct str piece), void *ctx, struct err *err);

#endif
