#include "base/strmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* So many that some pairs share all 32 bits of their hash. */
static void holds_many_keys_through_growth(void **state)
{
    (void)state;
    enum { N = 200000 };
    static char text[N][8];
    struct strmap m = {0};
    u32 v;
    for (u32 i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "k%u", i);
        assert_false(strmap_get(&m, str_of(text[i]), &v));
        assert_true(strmap_add(&m, str_of(text[i]), i * 3));
    }
    assert_true(strmap_ok(&m));
    assert_int_equal(m.n, N);
    for (u32 i = 0; i < N; i++) {
        assert_true(strmap_get(&m, str_of(text[i]), &v));
        assert_int_equal(v, i * 3);
    }
    strmap_free(&m);
}

static void first_value_of_a_key_stays(void **state)
{
    (void)state;
    struct strmap m = {0};
    u32 v = 0;
    assert_true(strmap_add(&m, STR("a"), 1));
    assert_false(strmap_add(&m, STR("a"), 2));
    assert_true(strmap_ok(&m));
    assert_int_equal(m.n, 1);
    assert_true(strmap_get(&m, STR("a"), &v));
    assert_int_equal(v, 1);
    strmap_free(&m);
}

static void keys_are_bytes(void **state)
{
    (void)state;
    static const struct str keys[] = {{"", 0}, {"\0", 1}, {"\0\0", 2}, {"a\0b", 3}, {"a\0c", 3}};
    struct strmap m = {0};
    u32 v = 9;
    for (u32 i = 0; i < ARRAY_LEN(keys); i++) assert_true(strmap_add(&m, keys[i], i));
    for (u32 i = 0; i < ARRAY_LEN(keys); i++) {
        assert_true(strmap_get(&m, keys[i], &v));
        assert_int_equal(v, i);
    }
    assert_false(strmap_add(&m, str_of(NULL), 7)); /* no bytes are the empty key */
    assert_true(strmap_get(&m, str_of(NULL), NULL));
    assert_false(strmap_get(&m, STR("a"), NULL));
    strmap_free(&m);

    assert_true(strmap_add(&m, str_of(NULL), 7));
    assert_true(strmap_get(&m, STR(""), &v));
    assert_int_equal(v, 7);
    strmap_free(&m);
}

static void an_empty_map_answers(void **state)
{
    (void)state;
    struct strmap m = {0};
    assert_false(strmap_get(&m, STR("a"), NULL));
    assert_true(strmap_ok(&m));
    strmap_free(&m);
    assert_true(strmap_add(&m, STR("a"), 1)); /* freed is empty, not closed */
    strmap_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_many_keys_through_growth),
        cmocka_unit_test(first_value_of_a_key_stays),
        cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(an_empty_map_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
