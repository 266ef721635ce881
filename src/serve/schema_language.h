/* Sets of strings, as terms of which the same one is made only once: patterns, all strings that are
 * in several sets, those that are not in one. A term is followed by its derivatives: what may come
 * after a character is a term again. So several conditions on one string become one automaton. */
#ifndef FLETCH_SCHEMA_LANGUAGE_H
#define FLETCH_SCHEMA_LANGUAGE_H

#include "serve/schema_internal.h"

enum { LANGUAGE_NOTHING, LANGUAGE_EMPTY, LANGUAGE_ALL }; /* no string; only ""; every string */

/* EXACT: all strings that match. NARROW: some of them, see regex_drop_controls. */
enum language_mode { LANGUAGE_EXACT, LANGUAGE_NARROW };

struct language;
/* NULL: out of memory, and c has the error. */
struct language *language_open(struct schemac *c);
void language_close(struct language *l);

/* Each gives a term, or LANGUAGE_NOTHING after an error. */
u32 language_pattern(struct language *l, struct str pattern, enum language_mode mode);
u32 language_text(struct language *l, struct str text);
u32 language_of_length(struct language *l, u32 lo, u32 hi);
u32 language_both(struct language *l, u32 a, u32 b);
u32 language_either(struct language *l, u32 a, u32 b);
u32 language_not(struct language *l, u32 a);

/* Is the text in it? False after an error, too. Terms that are made afterwards are not followed. */
bool language_has(struct language *l, u32 term, struct str text);
/* The rule pNAME, of its strings of lo to hi characters, spelled as JSON writes them; longer ones
 * are left out where counting them takes too many states. False: there are none, or an error. */
bool language_put(struct language *l, u32 term, u32 lo, u32 hi, u32 name);

/* What a schema's pattern and format ask of a string (schema_pattern.c). */
u32 schema_string_term(struct schemac *c, struct language *l, const json_t *s,
                       enum language_mode mode);

#endif
