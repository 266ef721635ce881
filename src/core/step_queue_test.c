/* The life of a pending step. What step queues do with steps is tested with the scheduler
 * (serve/batch_test.c) and on executors (test/ahead_test.c). */
#include "core/step_queue.h"

#include "base/life_refused.h"

static void change(u32 from, u32 to)
{
    struct pending_step p = {.state = from};
    pending_step_set(&p, to);
}

static void test_a_pending_step_changes_as_listed_only(void **state)
{
    (void)state;
    static const u32 allowed[][2] = {
        {PENDING_NEW, PENDING_SUBMITTED},    {PENDING_SUBMITTED, PENDING_DONE},
        {PENDING_SUBMITTED, PENDING_FAILED}, {PENDING_DONE, PENDING_SUBMITTED},
        {PENDING_FAILED, PENDING_SUBMITTED},
    };
    life_check(N_PENDING_STATES, change, allowed, ARRAY_LEN(allowed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pending_step_changes_as_listed_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
