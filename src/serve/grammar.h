/* Grammars: the texts that an answer may be. Read from a GBNF-style text, compiled to a small
 * machine over bytes that calls rules like subroutines. It owns syntax, limits and the checks that
 * make every beginning it accepts one that can be finished; walking it is automaton.h's. */
#ifndef FLETCH_GRAMMAR_H
#define FLETCH_GRAMMAR_H

#include "base/err.h"

enum {
    GRAMMAR_MAX_TEXT = 1 << 20,   /* bytes */
    GRAMMAR_MAX_RULES = 4096,     /* those made for groups and characters included */
    GRAMMAR_MAX_INSTRS = 1 << 16, /* of the machine */
    GRAMMAR_MAX_REPEAT = 10000,   /* in {m,n} */
    GRAMMAR_MAX_NESTING = 64,     /* of parentheses */
    GRAMMAR_MAX_DEPTH = 256,      /* rules inside rules while a text is matched */
};

enum grammar_op {
    GRAMMAR_RETURN, /* only instruction 0 */
    GRAMMAR_BYTES,  /* takes one byte of set arg, goes to next */
    GRAMMAR_SPLIT,  /* goes to next or arg */
    GRAMMAR_CALL,   /* runs rule arg, goes to next */
};

struct grammar_instr {
    enum grammar_op op;
    u32 next, arg;
};

struct grammar_set {
    u32 bits[8]; /* of 256 bytes */
};

struct grammar {
    struct grammar_instr *instrs;
    u32 n_instrs;
    u32 *need;  /* [n_instrs] how deep calls must go at least from there to a return */
    u32 *entry; /* [n_rules] */
    u32 n_rules, root;
    struct grammar_set *sets;
    u32 n_sets;
    u8 class_of[256]; /* bytes that no set tells apart are one class */
    u8 of_class[256]; /* one byte of each */
    u32 n_classes;
};

int grammar_parse(struct grammar **out, struct str text, struct err *err);
void grammar_close(struct grammar *g);
bool grammar_set_has(const struct grammar_set *s, u8 byte);

#endif
