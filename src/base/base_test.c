#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void strings_compare_as_bytes(void **state)
{
    (void)state;
    assert_true(str_eq(STR("a\0b"), (struct str){"a\0b", 3}));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_false(str_eq(STR("a"), STR("ab")));
    assert_true(str_is(STR("abc"), "abc"));
    assert_false(str_is(STR("abc\0"), "abc"));
}

static void nothing_is_a_string_too(void **state)
{
    (void)state;
    struct str none = str_of(NULL);
    assert_int_equal(none.n, 0);
    assert_true(str_eq(none, STR("")));
    assert_true(str_starts(none, ""));
    assert_true(str_ends(none, ""));
    assert_false(str_starts(none, "a"));
    assert_false(str_ends(none, "a"));
}

static void prefix_and_suffix_stay_inside(void **state)
{
    (void)state;
    struct str s = {"model.gguf tail", 10};
    assert_true(str_starts(s, "model"));
    assert_true(str_ends(s, ".gguf"));
    assert_false(str_ends(s, "tail"));
    assert_false(str_starts(s, "model.gguf tail"));
    assert_true(str_ends(s, "model.gguf"));
    assert_false(str_ends(s, "a model.gguf"));
}

static void arithmetic_reports_overflow(void **state)
{
    (void)state;
    u64 a;
    u32 b;
    assert_true(CK_ADD(UINT64_MAX - 1, 1u, &a));
    assert_true(a == UINT64_MAX);
    assert_false(CK_ADD(UINT64_MAX, 1u, &a));
    assert_false(CK_MUL((u64)1 << 32, (u64)1 << 32, &a));
    assert_false(CK_MUL((u64)65536, (u64)65536, &b)); /* fits the operands, not the result */
    assert_false(CK_ADD(-1, 0, &b));
}

static void align_up_rounds_and_refuses(void **state)
{
    (void)state;
    static const struct {
        u64 n, align, want;
    } good[] = {{0, 32, 0},   {1, 32, 32}, {32, 32, 32},
                {33, 32, 64}, {7, 1, 7},   {UINT64_MAX - 31, 32, UINT64_MAX - 31}};
    u64 got;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(ck_align_up(good[i].n, good[i].align, &got));
        assert_true(got == good[i].want);
    }
    assert_false(ck_align_up(UINT64_MAX - 30, 32, &got));
}

static int status_of_check(bool holds)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        CHECK(holds);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check_aborts_only_when_broken(void **state)
{
    (void)state;
    assert_int_equal(status_of_check(true), 0);
    int status = status_of_check(false);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_compare_as_bytes),
        cmocka_unit_test(nothing_is_a_string_too),
        cmocka_unit_test(prefix_and_suffix_stay_inside),
        cmocka_unit_test(arithmetic_reports_overflow),
        cmocka_unit_test(align_up_rounds_and_refuses),
        cmocka_unit_test(check_aborts_only_when_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
