#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

/* Blocks of every small size and some large ones: aligned, zeroed, and none over another. */
static void blocks_are_apart(void **state)
{
    (void)state;
    enum { N = 400 };
    struct arena a = {0};
    u8 *block[N];
    size_t size[N];
    for (size_t i = 0; i < N; i++) {
        size[i] = i % 50 == 49 ? 40000 + i : i;
        block[i] = arena_alloc(&a, size[i], 1);
        assert_non_null(block[i]);
        assert_int_equal((uintptr_t)block[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(block[i][k], 0);
        memset(block[i], (int)(i % 255) + 1, size[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(block[i][k], (int)(i % 255) + 1);
    arena_free(&a);
    assert_null(a.head);
}

static void empty_blocks_differ(void **state)
{
    (void)state;
    struct arena a = {0};
    void *p = arena_alloc(&a, 0, 8), *q = arena_alloc(&a, 0, 8);
    assert_non_null(p);
    assert_ptr_not_equal(p, q);
    arena_free(&a);
}

static void overflow_is_refused(void **state)
{
    (void)state;
    struct arena a = {0};
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX, 1));
    assert_null(arena_alloc(&a, SIZE_MAX - 20, 1));
    assert_non_null(arena_alloc(&a, 1, 1));
    arena_free(&a);
}

static void copies_are_terminated(void **state)
{
    (void)state;
    struct arena a = {0};
    char *p = arena_copy(&a, (struct str){"a\0bcd", 3});
    assert_memory_equal(p, "a\0b", 4);
    assert_string_equal(arena_copy(&a, str_of(NULL)), "");
    assert_string_equal(arena_printf(&a, "blk.%d.%s", 3, "ffn_up"), "blk.3.ffn_up");
    arena_free(&a);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_apart),
        cmocka_unit_test(empty_blocks_differ),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(copies_are_terminated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
