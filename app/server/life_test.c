#include "life.h"

#include "base/life_refused.h"

#define LIFE_TEST(name, N, ...)                                      \
    static void change_##name(u32 from, u32 to)                      \
    {                                                                \
        enum name##_state state = (enum name##_state)from;           \
        name##_change(&state, (enum name##_state)to);                \
    }                                                                \
    static void test_a_##name##_changes_as_listed_only(void **state) \
    {                                                                \
        static const u32 allowed[][2] = {__VA_ARGS__};               \
        (void)state;                                                 \
        life_check(N, change_##name, allowed, ARRAY_LEN(allowed));   \
    }

LIFE_TEST(request, N_REQUEST_STATES, {REQUEST_PARSING, REQUEST_NEEDS_MODEL},
          {REQUEST_PARSING, REQUEST_SCORING}, {REQUEST_PARSING, REQUEST_RUNNING},
          {REQUEST_PARSING, REQUEST_GENERATING}, {REQUEST_PARSING, REQUEST_DONE},
          {REQUEST_NEEDS_MODEL, REQUEST_PARSING}, {REQUEST_NEEDS_MODEL, REQUEST_DONE},
          {REQUEST_SCORING, REQUEST_RUNNING}, {REQUEST_SCORING, REQUEST_GENERATING},
          {REQUEST_SCORING, REQUEST_DONE}, {REQUEST_RUNNING, REQUEST_DONE},
          {REQUEST_GENERATING, REQUEST_ANSWERING}, {REQUEST_GENERATING, REQUEST_DONE},
          {REQUEST_ANSWERING, REQUEST_DONE})

LIFE_TEST(choice, N_CHOICE_STATES, {CHOICE_NEW, CHOICE_QUEUED}, {CHOICE_QUEUED, CHOICE_NO_ROOM},
          {CHOICE_QUEUED, CHOICE_RUNNING}, {CHOICE_NO_ROOM, CHOICE_QUEUED},
          {CHOICE_NO_ROOM, CHOICE_RUNNING}, {CHOICE_RUNNING, CHOICE_ENDED})

LIFE_TEST(hosted, N_HOSTED_STATES, {HOSTED_ABSENT, HOSTED_WANTED}, {HOSTED_ABSENT, HOSTED_NO_ROOM},
          {HOSTED_ABSENT, HOSTED_LOADING}, {HOSTED_WANTED, HOSTED_LOADING},
          {HOSTED_WANTED, HOSTED_ABSENT}, {HOSTED_NO_ROOM, HOSTED_WANTED},
          {HOSTED_NO_ROOM, HOSTED_ABSENT}, {HOSTED_LOADING, HOSTED_READY},
          {HOSTED_LOADING, HOSTED_STOPPING}, {HOSTED_LOADING, HOSTED_ABSENT},
          {HOSTED_READY, HOSTED_STOPPING}, {HOSTED_STOPPING, HOSTED_ABSENT})

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_changes_as_listed_only),
        cmocka_unit_test(test_a_choice_changes_as_listed_only),
        cmocka_unit_test(test_a_hosted_changes_as_listed_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
