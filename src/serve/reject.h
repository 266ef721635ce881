/* Classical speculative sampling: a guess that was drawn from q is kept with probability p/q, and
 * otherwise replaced by a draw from what p has more than q. Either way the token is distributed as
 * p, but it is not the token that decoding without guesses would have drawn. */
#ifndef FLETCH_REJECT_H
#define FLETCH_REJECT_H

#include "base/base.h"

struct reject_key {
    u64 seed;
    u32 choice, position; /* of the token */
};

/* p, q: [n] probabilities of the model and of what guessed; q NULL: the guess was certain. */
i32 reject_judge(const float *p, const float *q, u32 n, i32 guess, struct reject_key key);

#endif
