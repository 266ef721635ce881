#include "cpu/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

/* About 20 µs of pauses; then as many turns for whoever else wants this processor, which is how
 * members get along that are more than the processors. */
enum { SPINS = 4000, YIELDS = 64 };

/* A number that members wait on: spins, yields, then sleeps on the condition variable. */
struct gate {
    atomic_uint value;
    atomic_uint n_sleeping;
    pthread_mutex_t lock;
    pthread_cond_t cond;
};

struct team {
    u32 n, n_started;
    u32 spins; /* 0 when there are more members than cores */
    pthread_t *threads;
    struct gate start;   /* counts steps; its last value plus stop ends the team */
    struct gate barrier; /* counts barriers passed */
    atomic_uint arrived;
    bool stop;
    void (*walk)(void *, u32);
    void *ctx;
};

struct member {
    struct team *t;
    u32 index;
};

static void gate_init(struct gate *g)
{
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->cond, NULL);
}

static void gate_free(struct gate *g)
{
    pthread_cond_destroy(&g->cond);
    pthread_mutex_destroy(&g->lock);
}

static void pause_cpu(void)
{
#if defined __x86_64__
    _mm_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* Until value is no longer `old`. */
static void gate_wait(struct gate *g, unsigned old, u32 spins)
{
    for (u32 i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
        pause_cpu();
    }
    for (u32 i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
        sched_yield();
    }
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->n_sleeping, 1);
    while (atomic_load(&g->value) == old) pthread_cond_wait(&g->cond, &g->lock);
    atomic_fetch_sub(&g->n_sleeping, 1);
    pthread_mutex_unlock(&g->lock);
}

/* Adds one and wakes who sleeps. Sequentially consistent with n_sleeping: a sleeper either is
 * counted here or sees the new value. */
static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->n_sleeping) == 0) return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

void team_barrier(struct team *t)
{
    if (t->n == 1) return;
    unsigned now = atomic_load(&t->barrier.value);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == t->n) {
        atomic_store(&t->arrived, 0);
        gate_open(&t->barrier);
    } else {
        gate_wait(&t->barrier, now, t->spins);
    }
}

static void *member_main(void *arg)
{
    struct member m = *(struct member *)arg;
    unsigned seen = 0;
    free(arg);
    for (;;) {
        gate_wait(&m.t->start, seen++, m.t->spins);
        if (m.t->stop) return NULL;
        m.t->walk(m.t->ctx, m.index);
        team_barrier(m.t);
    }
}

#if defined __linux__

/* The first of the hardware threads that share cpu's core. */
static unsigned first_sibling(unsigned cpu)
{
    char path[96];
    unsigned first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%u", &first) != 1) first = cpu;
    if (f) fclose(f);
    return first;
}

/* Processors that this process may use; whole cores among them. */
static u32 count_processors(bool cores)
{
    cpu_set_t set;
    u32 n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    for (unsigned c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &set)) continue;
        unsigned first = cores ? first_sibling(c) : c;
        n += first == c || first >= CPU_SETSIZE || !CPU_ISSET(first, &set);
    }
    return n;
}

#else

static u32 count_processors(bool cores)
{
    (void)cores;
    return (u32)MAX(0, sysconf(_SC_NPROCESSORS_ONLN));
}

#endif

u32 team_default_size(void)
{
    return MAX(1, count_processors(true));
}

int team_open(struct team **out, u32 n, struct err *err)
{
    *out = NULL;
    struct team *t = calloc(1, sizeof *t);
    if (!t) return err_nomem(err, "threads");
    t->n = n;
    t->spins = count_processors(false) >= n ? SPINS : 0;
    gate_init(&t->start);
    gate_init(&t->barrier);
    t->threads = calloc(n, sizeof *t->threads);
    while (t->threads && t->n_started + 1 < n) {
        struct member *m = malloc(sizeof *m);
        if (!m) break;
        *m = (struct member){t, t->n_started + 1};
        if (pthread_create(&t->threads[t->n_started], NULL, member_main, m) != 0) {
            free(m);
            break;
        }
        t->n_started++;
    }
    if (t->n_started + 1 < n) {
        u32 got = t->n_started + 1;
        team_close(t);
        return err_set(err, FLETCH_E_NOMEM, "could start only %u of %u threads", got, n);
    }
    *out = t;
    return 0;
}

void team_close(struct team *t)
{
    if (!t) return;
    t->stop = true;
    gate_open(&t->start);
    for (u32 i = 0; i < t->n_started; i++) pthread_join(t->threads[i], NULL);
    gate_free(&t->start);
    gate_free(&t->barrier);
    free(t->threads);
    free(t);
}

u32 team_size(const struct team *t)
{
    return t->n;
}

void team_run(struct team *t, void (*walk)(void *ctx, u32 member), void *ctx)
{
    t->walk = walk;
    t->ctx = ctx;
    if (t->n > 1) gate_open(&t->start);
    walk(ctx, 0);
    team_barrier(t);
}
