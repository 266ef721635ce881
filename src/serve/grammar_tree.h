/* A grammar as it was written: what the parser makes and the compiler takes. */
#ifndef FLETCH_GRAMMAR_TREE_H
#define FLETCH_GRAMMAR_TREE_H

#include "base/arena.h"
#include "serve/grammar.h"

enum tree_kind {
    TREE_TEXT,     /* these bytes */
    TREE_CLASS,    /* one of these characters */
    TREE_BYTE,     /* any byte, those of control tokens included */
    TREE_RULE,     /* what that rule says */
    TREE_SEQUENCE, /* all parts in order; none: nothing */
    TREE_CHOICE,   /* one of the parts */
    TREE_REPEAT,   /* the one part, min to max times */
};

enum { TREE_NO_MAX = UINT32_MAX };

struct tree_range {
    u32 lo, hi; /* code points */
};

struct tree {
    enum tree_kind kind;
    struct tree *next;         /* among the parts of one node */
    struct tree *first, *last; /* parts */
    struct str text;
    struct tree_range *ranges; /* ascending, apart from each other, no surrogates */
    u32 n_ranges;
    u32 rule, min, max;
};

struct tree_rule {
    struct str name;
    struct tree *body; /* NULL: used but not said */
    u32 line;          /* where it was first met */
    bool pruned;       /* left out, not refused, when it can't end */
};

/* The machine of rules[0..n); root is one of them. */
int grammar_compile(struct grammar **out, const struct tree_rule *rules, u32 n, u32 root,
                    struct err *err);

#endif
