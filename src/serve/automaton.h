/* Following a grammar: which tokens may come next, and where one leads. States (sets of places in
 * the grammar, each with the calls it is inside of) are found as they are needed and remembered,
 * with the tokens they allow; when there are too many the old ones are forgotten. One automaton
 * serves any number of answers, on one thread at a time. */
#ifndef FLETCH_AUTOMATON_H
#define FLETCH_AUTOMATON_H

#include "core/step.h"
#include "serve/grammar.h"
#include "serve/trie.h"

enum { CONSTRAINT_BACK = 64 }; /* tokens that one can go back over */

struct automaton;

/* Takes the grammar over, in any case; the trie is borrowed. */
int automaton_open(struct automaton **out, struct grammar *g, const struct trie *trie,
                   struct err *err);
void automaton_close(struct automaton *a);

struct automaton_stats {
    u64 n_masks, n_hits; /* masks asked for; those that were remembered */
    u64 n_states, n_flushes;
};
void automaton_stats(const struct automaton *a, struct automaton_stats *stats);

/* One answer's way through the grammar. Opening it may happen on any thread. */
struct constraint;
int constraint_open(struct constraint **out, struct automaton *a, struct err *err);
void constraint_close(struct constraint *c);

/* Tokens that may follow, [n_tokens / 32 + 1] words; ends of the answer among them exactly when the
 * grammar can end here. Valid until the next call on the automaton. NULL: it gave up, and
 * constraint_error says why. */
const u32 *constraint_mask(struct constraint *c);
/* The same, into out row i of a step, and into the n rows behind it what may follow each guess; no
 * token is allowed when it gave up. */
void constraint_fill(struct constraint *c, struct step *step, u32 i, const i32 *guesses, u32 n);
/* How many of n guesses to try: those up to the first that is forbidden. That one stays: its mask
 * makes it wrong, and rejection must see it to be fair. */
u32 constraint_worth(struct constraint *c, const i32 *guesses, u32 n);
/* Tokens of the bytes that are the only ones that the grammar allows next, each as long as can be;
 * at most n of them. Other tokens may spell the same. */
u32 constraint_forced(struct constraint *c, i32 *tokens, u32 n);
/* Goes on over a token; false: the grammar forbids it, and nothing changed. Ends change nothing. */
bool constraint_advance(struct constraint *c, i32 token);
/* Takes back the last n advances, of at most CONSTRAINT_BACK. */
void constraint_back(struct constraint *c, u32 n);
/* The text is whole and nothing may follow. */
bool constraint_is_over(struct constraint *c);
/* The text may end here. */
bool constraint_may_end(struct constraint *c);
/* Text instead of a token, for tests: goes on over as many bytes as the grammar allows. */
size_t constraint_feed(struct constraint *c, struct str text);
int constraint_error(const struct constraint *c, struct err *err);

#endif
