/* The team: everyone walks, nobody passes a barrier early, with fewer and with more members than
 * processors, and when a member comes so late that the others sleep. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/team.h"

enum { MOST = 7, ROUNDS = 30 };

struct walk {
    struct team *t;
    u32 done[MOST]; /* rounds that each member has finished: plain, barriers order them */
    u32 n_wrong[MOST];
    u32 n;     /* members that take part */
    bool late; /* member 1 sleeps now and then */
};

static void walk(void *ctx, u32 member)
{
    struct walk *w = ctx;
    for (u32 i = 1; i <= ROUNDS; i++) {
        if (w->late && member == 1 && i % 10 == 0) usleep(2000);
        w->done[member]++;
        team_barrier(w->t);
        for (u32 m = 0; m < w->n; m++) w->n_wrong[member] += w->done[m] % ROUNDS != i % ROUNDS;
        team_barrier(w->t);
    }
}

static void nobody_passes_a_barrier_early(void **state)
{
    (void)state;
    for (u32 n = 1; n <= MOST; n++)
        for (int late = 0; late < 2; late++) {
            struct walk w = {.n = n, .late = late && n > 1};
            assert_int_equal(team_open(&w.t, n, NULL), 0);
            assert_int_equal(team_size(w.t), n);
            for (u32 run = 0; run < 3; run++) team_run(w.t, n, walk, &w);
            for (u32 m = 0; m < n; m++) {
                assert_int_equal(w.done[m], 3 * ROUNDS);
                assert_int_equal(w.n_wrong[m], 0);
            }
            team_close(w.t);
        }
}

struct visits {
    struct team *t;
    atomic_uint of[MOST];
};

static void visit(void *ctx, u32 member)
{
    struct visits *v = ctx;
    atomic_fetch_add(&v->of[member], 1);
    team_barrier(v->t);
    if (member == MOST - 1)
        usleep(1); /* it may be late for the next run, which may be without it */
}

static void a_run_may_have_fewer_members_than_the_team(void **state)
{
    (void)state;
    struct visits v = {0};
    u32 want[MOST] = {0};
    assert_int_equal(team_open(&v.t, MOST, NULL), 0);
    for (u32 run = 0; run < ROUNDS; run++) {
        u32 n = 1 + run * 5 % MOST;
        team_run(v.t, n, visit, &v);
        for (u32 m = 0; m < MOST; m++) assert_int_equal(atomic_load(&v.of[m]), want[m] += m < n);
    }
    team_close(v.t);
    assert_true(team_open(&v.t, 1 << 16, NULL) < 0);
}

static void nap(void *ctx, u32 member)
{
    struct team *t = ctx;
    if (member == 0) usleep(50000);
    team_barrier(t);
}

static void waiting_at_barriers_is_told(void **state)
{
    (void)state;
    struct team *t;
    assert_int_equal(team_open(&t, 2, NULL), 0);
    assert_true(team_run(t, 2, nap, t) > 0.02); /* the other one, as soon as it ran */
    assert_true(team_run(t, 1, nap, t) < 0.001);
    team_close(t);
}

static void default_size_follows_affinity(void **state)
{
    (void)state;
    assert_true(team_default_size() >= 1);
#if defined __linux__
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (unsigned c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &before)) CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(team_default_size(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(team_default_size() <= (u32)CPU_COUNT(&before));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_passes_a_barrier_early),
        cmocka_unit_test(a_run_may_have_fewer_members_than_the_team),
        cmocka_unit_test(waiting_at_barriers_is_told),
        cmocka_unit_test(default_size_follows_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
