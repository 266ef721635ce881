#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>
#include <wchar.h>

static void grows_and_stays_terminated(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_true(str_eq(buf_str(&b), STR("")));
    for (int i = 0; i < 1000; i++) {
        buf_putc(&b, (char)i);
        assert_int_equal(b.p[b.n], 0);
    }
    assert_int_equal(b.n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal((u8)b.p[i], i % 256);
    buf_free(&b);
}

static void appends_in_order(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_puts(&b, "blk.");
    buf_printf(&b, "%d.%s", 12, "attn_q");
    buf_put(&b, "\0x", 2);
    buf_put(&b, NULL, 0);
    assert_false(b.failed);
    assert_true(str_eq(buf_str(&b), STR("blk.12.attn_q\0x")));
    buf_free(&b);
}

static void format_longer_than_the_buffer(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_printf(&b, "%0500d", 7);
    assert_int_equal(b.n, 500);
    assert_string_equal(b.p + 495, "00007");
    buf_free(&b);
}

static void limit_is_exact_and_sticky(void **state)
{
    (void)state;
    struct buf b = {.max = 4};
    buf_puts(&b, "abcd");
    assert_false(b.failed);
    buf_putc(&b, 'e');
    assert_true(b.failed);
    assert_string_equal(b.p, "abcd");

    buf_free(&b); /* what would still fit must not follow a hole */
    buf_puts(&b, "abc");
    buf_puts(&b, "de");
    buf_putc(&b, 'f');
    buf_printf(&b, "%s", "g");
    assert_true(b.failed);
    assert_string_equal(b.p, "abc");

    buf_free(&b); /* usable again, same limit */
    buf_printf(&b, "%d", 12345);
    assert_true(b.failed);
    assert_int_equal(b.n, 0);
    buf_free(&b);
    buf_puts(&b, "ok");
    assert_false(b.failed);
    buf_free(&b);
}

static void impossible_size_fails(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_puts(&b, "x");
    buf_put(&b, "y", SIZE_MAX);
    assert_true(b.failed);
    assert_string_equal(b.p, "x");
    buf_free(&b);
}

/* printf itself can refuse; a text with a hole in it must not pass for whole. */
static void format_failure_is_failure(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_printf(&b, "%lc", (wint_t)0x1F600); /* not in the C locale */
    assert_true(b.failed);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(appends_in_order),
        cmocka_unit_test(format_longer_than_the_buffer),
        cmocka_unit_test(limit_is_exact_and_sticky),
        cmocka_unit_test(impossible_size_fails),
        cmocka_unit_test(format_failure_is_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
