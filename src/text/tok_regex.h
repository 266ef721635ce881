/* Regexes as the tokenizers library reads them (Oniguruma's, with Ruby's syntax), in PCRE2's words.
 * What the two would read differently, and this file can't put in other words, is refused. */
#ifndef FLETCH_TOK_REGEX_H
#define FLETCH_TOK_REGEX_H

#include "base/buf.h"
#include "base/err.h"

/* Unicode's White_Space as the body of a class. PCRE2's \s lacks U+0085. */
#define TOK_WHITE                                                                           \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"

/* Contractions fold the case of ASCII only, as engines that read GGUF do: 'ſ is not 's. */
#define TOK_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

/* Appends the regex in PCRE2's words. */
int tok_regex_translate(struct buf *out, struct str regex, struct err *err);

/* Appends a regex that matches text and nothing else. */
void tok_regex_quote(struct buf *out, struct str text);

struct tok_regex; /* compiled; constant once open */
int tok_regex_open(struct tok_regex **out, struct str regex, struct err *err);
void tok_regex_close(struct tok_regex *re);

/* All matches in a text, in order. */
struct tok_regex_iter {
    const struct tok_regex *re;
    void *match;     /* from tok_regex_match; may serve many iterators, one after the other */
    struct str text; /* valid UTF-8 */
    size_t at, begin, end;
    bool matched; /* begin and end are a match's */
};
void *tok_regex_match(void);
void tok_regex_match_free(void *match);
/* 1 and the next match in begin and end, 0 when there is none, or an error. A match may be empty,
 * but not where the one before it ended. */
int tok_regex_next(struct tok_regex_iter *it, struct err *err);

#endif
