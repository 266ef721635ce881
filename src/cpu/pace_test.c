/* The number of threads follows the machine: all of them where it is quiet, fewer where they wait
 * for processors, and all again soon after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/pace.h"

/* A made-up machine: what a step takes with n threads, and which share of it they wait. */
struct machine {
    double took[9], idle[9];
};

static const struct machine quiet = {{0, 8, 4, 2.7, 2, 1.6, 1.4, 1.2, 1}, {0}};
static const struct machine crowded = {{0, 1, 14, 20, 30, 30, 30, 30, 30},
                                       {0, 0, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7}};
/* Four of eight processors are taken. */
static const struct machine half = {{0, 8, 4, 2.7, 2, 5, 5, 5, 5},
                                    {0, 0, 0, 0, 0.1, 0.4, 0.5, 0.5, 0.5}};

/* Seconds that n steps take; *most becomes the largest number of threads that one had. */
static double run(struct pace *p, const struct machine *m, u32 n_all, u32 n)
{
    double sum = 0;
    for (u32 i = 0; i < n; i++) {
        u32 k = pace_choose(p, n_all);
        assert_in_range(k, 1, n_all);
        pace_note(p, n_all, m->took[k], m->idle[k] * m->took[k] * k);
        sum += m->took[k];
    }
    return sum;
}

static void a_quiet_machine_gives_all_threads_always(void **state)
{
    (void)state;
    for (u32 n_all = 1; n_all <= 8; n_all++) {
        struct pace p = {0};
        assert_true(run(&p, &quiet, n_all, 1000) < 1000.0001 * quiet.took[n_all]);
    }
}

static void fewer_threads_where_they_wait_for_processors(void **state)
{
    (void)state;
    for (u32 n_all = 2; n_all <= 8; n_all++) {
        struct pace p = {0};
        run(&p, &crowded, n_all, 30);
        assert_true(run(&p, &crowded, n_all, 1000) < 1.15 * 1000 * crowded.took[1]);
    }
    struct pace p = {0};
    run(&p, &half, 8, 20);
    assert_true(run(&p, &half, 8, 1000) < 1.15 * 1000 * half.took[4]);
}

static void all_threads_again_when_others_have_gone(void **state)
{
    (void)state;
    struct pace p = {0};
    run(&p, &crowded, 8, 1000);
    double soon = run(&p, &quiet, 8, 200);
    assert_true(soon < 1000);
    assert_true(run(&p, &quiet, 8, 200) < 201 * quiet.took[8]);
    assert_int_equal(pace_choose(&p, 8), 8);
}

/* Waiting that fewer threads do not cure, such as one long task among short ones. */
static void fewer_threads_are_left_again_where_they_do_not_pay(void **state)
{
    (void)state;
    static const struct machine uneven = {{0, 2, 1}, {0, 0, 0.4}};
    struct pace p = {0};
    assert_true(run(&p, &uneven, 2, 1000) < 1.08 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_gives_all_threads_always),
        cmocka_unit_test(fewer_threads_where_they_wait_for_processors),
        cmocka_unit_test(all_threads_again_when_others_have_gone),
        cmocka_unit_test(fewer_threads_are_left_again_where_they_do_not_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
