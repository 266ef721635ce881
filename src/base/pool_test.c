#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

enum { MAX_N = 1000 };

struct marks {
    u8 hit[MAX_N];
    pthread_mutex_t lock;
    u32 n_calls;
};

/* The marks are deliberately not locked: ranges that overlap are a race that TSan sees. */
static void mark(void *ctx, u64 begin, u64 end)
{
    struct marks *m = ctx;
    for (u64 i = begin; i < end; i++) m->hit[i]++;
    pthread_mutex_lock(&m->lock);
    m->n_calls++;
    pthread_mutex_unlock(&m->lock);
}

static void expect_all_once(struct pool *p, u64 n)
{
    struct marks m = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pool_run(p, mark, &m, n);
    for (u64 i = 0; i < MAX_N; i++) assert_int_equal(m.hit[i], i < n);
    assert_int_equal(m.n_calls, MIN(n, pool_threads(p)));
}

static void covers_every_index_once(void **state)
{
    (void)state;
    static const u32 teams[] = {1, 2, 3, 8};
    static const u64 sizes[] = {0, 1, 2, 3, 7, 8, 9, 100, MAX_N};
    for (size_t t = 0; t < ARRAY_LEN(teams); t++) {
        struct pool *p;
        struct err err;
        assert_int_equal(pool_open(&p, teams[t], &err), 0);
        assert_int_equal(pool_threads(p), teams[t]);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) expect_all_once(p, sizes[i]);
        pool_close(p);
    }
}

static void no_pool_is_a_team_of_one(void **state)
{
    (void)state;
    assert_int_equal(pool_threads(NULL), 1);
    expect_all_once(NULL, 10);
    pool_close(NULL);
}

static void zero_threads_means_one_per_core(void **state)
{
    (void)state;
    struct pool *p;
    struct err err;
    assert_int_equal(pool_open(&p, 0, &err), 0);
    assert_in_range(pool_threads(p), 1, 256);
    expect_all_once(p, MAX_N);
    pool_close(p);
}

static void next_turn(void *ctx, u64 begin, u64 end)
{
    u64 *turn = ctx;
    for (u64 i = begin; i < end; i++) turn[i]++;
}

/* Many short turns: a worker that wakes late must neither miss one nor run one twice. */
static void turns_follow_each_other(void **state)
{
    (void)state;
    enum { TURNS = 3000 };
    u64 turn[4] = {0};
    struct pool *p;
    struct err err;
    assert_int_equal(pool_open(&p, 4, &err), 0);
    for (u64 t = 1; t <= TURNS; t++) {
        pool_run(p, next_turn, turn, 4);
        for (int i = 0; i < 4; i++) assert_true(turn[i] == t);
    }
    pool_close(p);
}

static void note_thread(void *ctx, u64 begin, u64 end)
{
    pthread_t *who = ctx;
    for (u64 i = begin; i < end; i++) who[i] = pthread_self();
}

static void work_is_spread_over_threads(void **state)
{
    (void)state;
    pthread_t who[3];
    struct pool *p;
    struct err err;
    assert_int_equal(pool_open(&p, 3, &err), 0);
    pool_run(p, note_thread, who, 3);
    assert_true(pthread_equal(who[0], pthread_self()));
    assert_false(pthread_equal(who[1], who[0]));
    assert_false(pthread_equal(who[2], who[0]));
    assert_false(pthread_equal(who[1], who[2]));
    pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_every_index_once),
        cmocka_unit_test(no_pool_is_a_team_of_one),
        cmocka_unit_test(zero_threads_means_one_per_core),
        cmocka_unit_test(turns_follow_each_other),
        cmocka_unit_test(work_is_spread_over_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
