/* Turns: one thread at a time, in the order of asking, and again for the one that has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/turns.h"

enum { N_THREADS = 4, N_TURNS = 500 };

static struct turns turns;
static u32 n_in, most_in, n_done; /* what the turns guard */
static atomic_bool stop;
static atomic_uint n_loops;

static void *work(void *ctx)
{
    (void)ctx;
    for (u32 i = 0; i < N_TURNS; i++) {
        turns_take(&turns);
        turns_take(&turns);
        n_in++;
        most_in = MAX(most_in, n_in);
        turns_give(&turns);
        n_in--;
        n_done++;
        turns_give(&turns);
    }
    return NULL;
}

static void one_thread_has_it_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    turns_open(&turns);
    for (u32 i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (u32 i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(most_in, 1);
    assert_int_equal(n_done, N_THREADS * N_TURNS);
    turns_close(&turns);
}

static void *loop(void *ctx)
{
    (void)ctx;
    while (!atomic_load(&stop)) {
        turns_take(&turns);
        atomic_fetch_add(&n_loops, 1);
        turns_give(&turns);
    }
    return NULL;
}

/* While somebody has it, others ask; the loop asks again only after them. */
static void who_asked_first_is_next(void **state)
{
    (void)state;
    pthread_t looper;
    turns_open(&turns);
    turns_take(&turns);
    assert_int_equal(pthread_create(&looper, NULL, loop, NULL), 0);
    for (u32 i = 0; i < 200; i++) {
        for (u64 waiting = 0; waiting == 0; usleep(10)) { /* until the loop asks */
            pthread_mutex_lock(&turns.lock);
            waiting = turns.n_asked - turns.n_done - 1;
            pthread_mutex_unlock(&turns.lock);
        }
        u32 before = atomic_load(&n_loops);
        turns_give(&turns);
        turns_take(&turns);
        assert_true(atomic_load(&n_loops) > before);
    }
    atomic_store(&stop, true);
    turns_give(&turns);
    pthread_join(looper, NULL);
    turns_close(&turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_has_it_at_a_time),
        cmocka_unit_test(who_asked_first_is_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
