/* A regular expression as it was written: what schema_read_regex makes of a pattern, and what
 * becomes a grammar (schema_pattern.c) or a language (schema_language.c). */
#ifndef FLETCH_SCHEMA_REGEX_H
#define FLETCH_SCHEMA_REGEX_H

#include "base/arena.h"
#include "serve/schema_internal.h"

enum { REGEX_LAST_CHAR = 0x10ffff, REGEX_NO_MAX = UINT32_MAX };

enum regex_kind {
    REGEX_CLASS,    /* one of these characters */
    REGEX_SEQUENCE, /* all parts in order; none: nothing */
    REGEX_CHOICE,   /* one of the parts, all of them sequences */
    REGEX_REPEAT,   /* the one part, min to max times */
    REGEX_LOOK,     /* what follows must (not) begin with the one part */
    REGEX_BEGIN,    /* ^ */
    REGEX_END,      /* $ */
};

struct regex_range {
    u32 lo, hi; /* code points */
};

struct regex {
    enum regex_kind kind;
    struct regex *next;         /* among the parts of one node */
    struct regex *first, *last; /* parts */
    struct regex_range *ranges; /* ascending, apart from each other */
    u32 n_ranges;
    u32 controls; /* below 0x20, as bits, that a class named; others may be in it as "all but" */
    u32 min, max;
    bool negated; /* of a look-ahead */
    bool partial; /* of a class: other characters should be in it, too */
};

/* ECMA-262 in unicode mode, less what is refused by name; NULL after an error. */
struct regex *schema_read_regex(struct schemac *c, struct arena *arena, struct str pattern);
/* The ranges of a class less the control characters that it did not name: nobody means those by
 * "anything but", and what is generated may be less than what matches. Gives their number; `to`
 * has room for n_ranges + 16 more. */
u32 regex_drop_controls(const struct regex *x, struct regex_range *to);
/* Are there ^, $ or look-aheads in it? */
bool regex_looks_around(const struct regex *x);

#endif
