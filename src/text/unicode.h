/* UTF-8 and Unicode normalisation. Text is bytes first: nothing here assumes that input is valid.
 */
#ifndef FLETCH_UNICODE_H
#define FLETCH_UNICODE_H

#include "base/buf.h"

/* What the bytes at p begin: the length (1 to 4) of a whole character, 0 when all n bytes are a
 * proper beginning of one, -1 when no character begins like this. Strict: no overlong forms,
 * no surrogates, nothing above U+10FFFF. n is at least 1. */
int utf8_check(const char *p, size_t n);

/* The end of the longest run of whole characters that starts at `at`; = at when there is none. */
size_t utf8_run(struct str s, size_t at);

/* White_Space; a letter, mark, digit or connector. c: a code point, or -1 for none. */
bool unicode_is_white(i32 c);
bool unicode_is_word(i32 c);

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };

/* Appends the normal form of s to out; invalid bytes pass as they are and part the text around
 * them. False when out of memory. */
bool unicode_normalise(struct buf *out, struct str s, enum unicode_form form);

#endif
