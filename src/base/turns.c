#include "base/turns.h"

void turns_open(struct turns *t)
{
    *t = (struct turns){0};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
}

void turns_close(struct turns *t)
{
    CHECK(!t->depth && t->n_asked == t->n_done);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

void turns_take(struct turns *t)
{
    pthread_mutex_lock(&t->lock);
    if (!t->depth || !pthread_equal(t->owner, pthread_self())) {
        u64 mine = t->n_asked++;
        while (mine != t->n_done) pthread_cond_wait(&t->changed, &t->lock);
        t->owner = pthread_self();
    }
    t->depth++;
    pthread_mutex_unlock(&t->lock);
}

void turns_give(struct turns *t)
{
    pthread_mutex_lock(&t->lock);
    CHECK(t->depth && pthread_equal(t->owner, pthread_self()));
    if (--t->depth == 0) {
        t->n_done++;
        if (t->n_asked != t->n_done) pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
}
