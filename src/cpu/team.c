#include "cpu/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#include "base/os.h"

/* About 20 µs of pauses; then as many turns for whoever else wants this processor, which is how
 * members get along that are more than the processors. */
enum { SPINS = 4000, YIELDS = 64 };

enum { MEMBERS = 1 << 16, STOP = MEMBERS - 1 };

/* A number that members wait on: spins, yields, then sleeps on the condition variable. */
struct gate {
    atomic_uint_least64_t value;
    atomic_uint n_sleeping;
    pthread_mutex_t lock;
    pthread_cond_t cond;
};

struct team {
    u32 n, n_started;
    u32 n_running; /* members that take part in the run */
    u32 spins;     /* 0 when there are more members than cores */
    pthread_t *threads;
    struct gate start; /* counts runs, MEMBERS at a time, plus the members of the run (STOP: end) */
    struct gate barrier; /* counts barriers passed */
    atomic_uint arrived;
    atomic_uint_least64_t waited_ns; /* at the run's barriers, all members together */
    void (*walk)(void *, u32);
    void *ctx;
    pthread_t caller; /* of the last run */
    bool has_caller;
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

/* Until value is no longer `old`; true if it is so at once or while spinning. */
static bool gate_spin(struct gate *g, u64 old, u32 spins)
{
    for (u32 i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return true;
        pause_cpu();
    }
    return false;
}

/* Until value is no longer `old`, giving the processor to others. */
static void gate_wait(struct gate *g, u64 old)
{
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

/* Changes the value and wakes who sleeps. Sequentially consistent with n_sleeping: a sleeper either
 * is counted here or sees the new value. */
static void gate_open(struct gate *g, u64 value)
{
    atomic_store(&g->value, value);
    if (atomic_load(&g->n_sleeping) == 0) return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

void team_barrier(struct team *t)
{
    u32 n = t->n_running; /* read before arriving: the next run may have another */
    if (n == 1) return;
    u64 now = atomic_load(&t->barrier.value);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == n) {
        atomic_store(&t->arrived, 0);
        gate_open(&t->barrier, now + 1);
    } else if (!gate_spin(&t->barrier, now, t->spins)) {
        double began = base_now();
        gate_wait(&t->barrier, now);
        atomic_fetch_add(&t->waited_ns, (u64)((base_now() - began) * 1e9));
    }
}

static void *member_main(void *arg)
{
    struct member m = *(struct member *)arg;
    struct gate *start = &m.t->start;
    u64 seen = 0;
    free(arg);
    os_thread_is_urgent();
    for (;;) {
        if (!gate_spin(start, seen, m.t->spins)) gate_wait(start, seen);
        seen = atomic_load(&start->value); /* maybe of a later run than the one that woke it */
        if (seen % MEMBERS == STOP) return NULL;
        if (m.index >= seen % MEMBERS) continue;
        m.t->walk(m.t->ctx, m.index);
        team_barrier(m.t);
    }
}

u32 team_default_size(void)
{
    return os_cores();
}

int team_open(struct team **out, u32 n, struct err *err)
{
    *out = NULL;
    if (n >= STOP) return err_set(err, FLETCH_E_LIMIT, "more than %d threads", STOP - 1);
    struct team *t = calloc(1, sizeof *t);
    if (!t) return err_nomem(err, "threads");
    t->n = n;
    t->spins = os_threads() >= n ? SPINS : 0;
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

static u64 run_number(struct team *t)
{
    return atomic_load(&t->start.value) / MEMBERS + 1;
}

void team_close(struct team *t)
{
    if (!t) return;
    gate_open(&t->start, run_number(t) * MEMBERS + STOP);
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

double team_run(struct team *t, u32 n, void (*walk)(void *ctx, u32 member), void *ctx)
{
    if (!t->has_caller || !pthread_equal(t->caller, pthread_self())) os_thread_is_urgent();
    t->caller = pthread_self();
    t->has_caller = true;
    t->walk = walk;
    t->ctx = ctx;
    t->n_running = n;
    atomic_store(&t->waited_ns, 0);
    if (n > 1) gate_open(&t->start, run_number(t) * MEMBERS + n);
    walk(ctx, 0);
    team_barrier(t);
    return (double)atomic_load(&t->waited_ns) * 1e-9;
}
