/* A lock that threads get in the order in which they ask for it, so that one which takes it again
 * at once (a loop of steps) keeps nobody waiting for longer than one of its turns. The thread that
 * has it may take it again, and gives it back as often. */
#ifndef FLETCH_TURNS_H
#define FLETCH_TURNS_H

#include <pthread.h>

#include "base/base.h"

struct turns {
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    u64 n_asked, n_done; /* tickets given out; the one whose turn it is */
    pthread_t owner;     /* where depth is not 0 */
    u32 depth;
};

void turns_open(struct turns *t);
void turns_close(struct turns *t); /* nobody has it or waits for it */

void turns_take(struct turns *t);
void turns_give(struct turns *t);

#endif
