/* Sources made by hand: what goes in comes out by the getters, and only under its own type. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "format/source.h"

static struct source *make(void)
{
    struct source *s;
    struct err err = {0};
    assert_int_equal(source_new(&s, "made", &err), 0);
    return s;
}

static void test_values_come_back(void **state)
{
    (void)state;
    struct source *s = make();
    struct err err = {0};
    u32 u = 7;
    float f;
    bool b;
    struct str str;
    char key[] = "k.u32"; /* keys and values are copied */
    assert_int_equal(source_add_u32(s, key, 4000000000u, &err), 0);
    key[0] = 'x';
    assert_int_equal(source_add_f32(s, "k.f32", -0.25f, &err), 0);
    assert_int_equal(source_add_bool(s, "k.bool", true, &err), 0);
    assert_int_equal(source_add_str(s, "k.str", STR("a\0b"), &err), 0);
    assert_int_equal(source_add_str(s, "k.none", (struct str){NULL, 0}, &err), 0);
    assert_int_equal(source_get_u32(s, "x.u32", &u, &err), SOURCE_ABSENT);
    assert_int_equal(u, 7);
    assert_int_equal(source_get_u32(s, "k.u32", &u, &err), 0);
    assert_true(u == 4000000000u);
    assert_int_equal(source_get_f32(s, "k.f32", &f, &err), 0);
    assert_true(f == -0.25f);
    assert_int_equal(source_get_bool(s, "k.bool", &b, &err), 0);
    assert_true(b);
    assert_int_equal(source_get_str(s, "k.str", &str, &err), 0);
    assert_true(str_eq(str, STR("a\0b")));
    assert_int_equal(source_get_str(s, "k.none", &str, &err), 0);
    assert_int_equal(str.n, 0);
    source_close(s);
}

static void test_arrays_come_back(void **state)
{
    (void)state;
    struct source *s = make();
    struct err err = {0};
    static const u8 packed[6] = {1, 0, 0xff, 0xff, 0, 0x80};
    struct str words[3] = {STR("one"), STR(""), STR("three")}, str;
    i64 v;
    u64 at = 0;
    assert_int_equal(source_add_array(s, "a", KV_I16, 3, packed, sizeof packed, &err), 0);
    assert_int_equal(source_add_strs(s, "w", 3, words, &err), 0);
    assert_int_equal(source_add_strs(s, "none", 0, NULL, &err), 0);
    const struct kv *kv = source_kv(s, "a");
    assert_true(kv->type == KV_ARRAY && kv->elem == KV_I16 && kv->n == 3);
    assert_true(kv_int(kv, 1, &v) && v == -1);
    assert_true(kv_int(kv, 2, &v) && v == -32768);
    assert_false(kv_int(kv, 3, &v));
    kv = source_kv(s, "w");
    for (int i = 0; i < 3; i++) assert_true(kv_next_str(kv, &at, &str) && str_eq(str, words[i]));
    assert_false(kv_next_str(kv, &at, &str));
    at = 0;
    assert_false(kv_next_str(source_kv(s, "none"), &at, &str));
    source_close(s);
}

static void test_wrong_types_are_errors_that_name_the_key(void **state)
{
    (void)state;
    struct source *s = make();
    struct err err = {0};
    static const u8 minus[4] = {0xff, 0xff, 0xff, 0xff}, big[8] = {0, 0, 0, 0, 1};
    double huge = 1e39, small = 0.5;
    float nan = NAN, f;
    u32 u;
    bool b;
    struct str str;
    struct kv kvs[] = {
        {STR("i32"), KV_I32, KV_I32, 1, minus, 4},
        {STR("u64"), KV_U64, KV_U64, 1, big, 8},
        {STR("u8"), KV_U8, KV_U8, 1, minus, 1},
        {STR("array"), KV_ARRAY, KV_U8, 1, minus, 1},
        {STR("huge"), KV_F64, KV_F64, 1, (const u8 *)&huge, 8},
        {STR("f64"), KV_F64, KV_F64, 1, (const u8 *)&small, 8},
        {STR("nan"), KV_F32, KV_F32, 1, (const u8 *)&nan, 4},
        {STR("bool"), KV_BOOL, KV_BOOL, 1, minus, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(kvs); i++)
        assert_int_equal(source_add_kv(s, &kvs[i], &err), 0);
    assert_int_equal(source_get_u32(s, "u8", &u, &err), 0);
    assert_int_equal(u, 255);
    assert_int_equal(source_get_f32(s, "f64", &f, &err), 0);
    assert_true(f == 0.5f);
    assert_int_equal(source_get_bool(s, "bool", &b, &err), 0);
    static const char *const not_u32[] = {"i32", "u64", "array", "f64", "bool"};
    for (size_t i = 0; i < ARRAY_LEN(not_u32); i++) {
        assert_int_equal(source_get_u32(s, not_u32[i], &u, &err), FLETCH_E_FORMAT);
        assert_non_null(strstr(err.text, not_u32[i]));
    }
    static const char *const not_f32[] = {"huge", "nan", "u8", "array"};
    for (size_t i = 0; i < ARRAY_LEN(not_f32); i++)
        assert_int_equal(source_get_f32(s, not_f32[i], &f, &err), FLETCH_E_FORMAT);
    assert_int_equal(source_get_bool(s, "u8", &b, &err), FLETCH_E_FORMAT);
    assert_int_equal(source_get_str(s, "u8", &str, &err), FLETCH_E_FORMAT);
    assert_int_equal(source_add_u32(s, "u8", 1, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "'u8' appears twice"));
    source_close(s);
}

static void test_strings_with_lying_lengths_end(void **state)
{
    (void)state;
    u8 packed[12] = {1, 0, 0, 0, 0, 0, 0, 0, 'a', 0xff, 0xff, 0xff};
    struct kv kv = {STR("k"), KV_ARRAY, KV_STR, 2, packed, sizeof packed};
    struct str str;
    u64 at = 0;
    assert_true(kv_next_str(&kv, &at, &str) && str_is(str, "a"));
    assert_false(kv_next_str(&kv, &at, &str));
    packed[0] = 5; /* four bytes are there */
    at = 0;
    assert_false(kv_next_str(&kv, &at, &str));
    memset(packed, 0xff, 8);
    assert_false(kv_next_str(&kv, &at, &str));
}

static void test_many_tensors_are_found(void **state)
{
    (void)state;
    struct source *s = make();
    struct err err = {0};
    static char names[SOURCE_MAX_ENTRIES + 1][12];
    for (u32 i = 0; i <= SOURCE_MAX_ENTRIES; i++) {
        snprintf(names[i], sizeof names[i], "t%u", i);
        struct tensor t = {
            .name = str_of(names[i]), .type = QT_Q8_0, .n_dims = 2, .ne = {32, i + 1}};
        int want = i < SOURCE_MAX_ENTRIES ? 0 : FLETCH_E_LIMIT;
        assert_int_equal(source_add_tensor(s, &t, &err), want);
    }
    assert_int_equal(source_tensor(s, "t65535")->n_bytes, 65536 * 34);
    assert_int_equal(source_tensor(s, "t77")->n_elems, 78 * 32);
    assert_null(source_tensor(s, "t65536"));
    source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_back),
        cmocka_unit_test(test_arrays_come_back),
        cmocka_unit_test(test_wrong_types_are_errors_that_name_the_key),
        cmocka_unit_test(test_strings_with_lying_lengths_end),
        cmocka_unit_test(test_many_tensors_are_found),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
