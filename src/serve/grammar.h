/* Grammars: the texts that an answer may be. Read from a GBNF-style text, compiled to a small
 * machine over bytes that calls rules like subroutines. It owns syntax, limits and the checks that
 * make every beginning it accepts one that can be finished; walking it is automaton.h's. */
#ifndef FLETCH_GRAMMAR_H
#define FLETCH_GRAMMAR_H

#include "base/err.h"

enum {
    GRAMMAR_MAX_TEXT = 1 << 20,   /* bytes */
    GRAMMAR_MAX_RULES = 1 << 15,  /* those made for groups and characters included */
    GRAMMAR_MAX_INSTRS = 1 << 18, /* of the machine */
    GRAMMAR_MAX_REPEAT = 10000,   /* in {m,n} */
    GRAMMAR_MAX_NESTING = 64,     /* of parentheses */
    GRAMMAR_MAX_DEPTH = 256,      /* rules inside rules while a text is matched */
    GRAMMAR_MAX_TOKENS = 64,      /* different control tokens */
    GRAMMAR_MAX_TOKEN_ID = (1 << 24) - 1,
};

/* A control token is matched as four bytes that no text has: the first is in no UTF-8. */
enum { GRAMMAR_TOKEN_MARK = 0xff, GRAMMAR_TOKEN_BYTES = 4 };
static inline void grammar_token_bytes(u8 to[GRAMMAR_TOKEN_BYTES], u32 id)
{
    to[0] = GRAMMAR_TOKEN_MARK;
    to[1] = (u8)(id >> 16);
    to[2] = (u8)(id >> 8);
    to[3] = (u8)id;
}

/* Instead of a depth: there is no way to a return. */
#define GRAMMAR_NO_WAY UINT32_MAX

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
    u32 *need;  /* [n_instrs] how deep calls must go at least from there to a return, or
                    GRAMMAR_NO_WAY */
    u32 *entry; /* [n_rules] */
    u32 n_rules, root;
    struct grammar_set *sets;
    u32 n_sets;
    u8 class_of[256]; /* bytes that no set tells apart are one class */
    u8 of_class[256]; /* one byte of each */
    u32 n_classes;
    u32 tokens[GRAMMAR_MAX_TOKENS]; /* ids of the control tokens in it */
    u32 n_tokens;
    /* After `budget` tokens, counted from budget_begin or from the first (-1), only budget_end may
     * come where the grammar allows it, until it came. budget_end -1: there is no such limit. */
    u32 budget;
    i32 budget_begin, budget_end;
};

int grammar_parse(struct grammar **out, struct str text, struct err *err);
/* For grammars that are made, not written: [] is a class of no characters, and what can't end is
 * left out instead of refused, unless it is the root. */
int grammar_parse_pruned(struct grammar **out, struct str text, struct err *err);
void grammar_close(struct grammar *g);
bool grammar_set_has(const struct grammar_set *s, u8 byte);

#endif
