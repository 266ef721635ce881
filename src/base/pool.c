#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/os.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    pthread_t *threads;
    u32 n_threads; /* with the caller */
    u32 n_started; /* workers that exist */
    u32 n_left;    /* workers still in this turn */
    u64 turn;      /* counts pool_run calls */
    bool stop;
    void (*fn)(void *, u64, u64);
    void *ctx;
    u64 n;
};

struct worker_arg {
    struct pool *p;
    u32 index;
};

static void run_share(struct pool *p, u32 index)
{
    u64 begin = p->n / p->n_threads * index + MIN((u64)index, p->n % p->n_threads);
    u64 end = begin + p->n / p->n_threads + (index < p->n % p->n_threads);
    if (begin < end) p->fn(p->ctx, begin, end);
}

static void *worker(void *arg)
{
    struct worker_arg a = *(struct worker_arg *)arg;
    struct pool *p = a.p;
    u64 seen = 0;
    free(arg);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->turn == seen && !p->stop) pthread_cond_wait(&p->start, &p->lock);
        if (p->stop) break;
        seen = p->turn;
        pthread_mutex_unlock(&p->lock);
        run_share(p, a.index);
        pthread_mutex_lock(&p->lock);
        if (--p->n_left == 0) pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pool_open(struct pool **out, u32 n_threads, struct err *err)
{
    *out = NULL;
    if (n_threads == 0) n_threads = MIN(os_threads(), 256);
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return err_nomem(err, "threads");
    p->threads = calloc(n_threads, sizeof *p->threads);
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (u32 i = 1; i < n_threads && p->threads; i++) {
        struct worker_arg *a = malloc(sizeof *a);
        if (!a) break;
        *a = (struct worker_arg){p, i};
        if (pthread_create(&p->threads[i], NULL, worker, a) != 0) {
            free(a);
            break;
        }
        p->n_started++;
    }
    if (p->n_started + 1 < n_threads) {
        u32 got = p->n_started + 1;
        pool_close(p);
        return err_set(err, FLETCH_E_NOMEM, "could start only %u of %u threads", got, n_threads);
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (u32 i = 1; i <= p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p);
}

u32 pool_threads(const struct pool *p)
{
    return p ? p->n_threads : 1;
}

void pool_run(struct pool *p, void (*fn)(void *ctx, u64 begin, u64 end), void *ctx, u64 n)
{
    if (n == 0) return;
    if (!p || p->n_threads == 1) {
        fn(ctx, 0, n);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->ctx = ctx;
    p->n = n;
    p->n_left = p->n_started;
    p->turn++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    run_share(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->n_left) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
