#include "format/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* A file in a block of its own size, so that a sanitizer sees every byte read beyond it. */
struct image {
    u8 *p;
    size_t n;
};

static struct image image_of(u64 n_header, struct str header, size_t n_data)
{
    struct image m = {NULL, 8 + header.n + n_data};
    m.p = calloc(1, m.n);
    assert_non_null(m.p);
    for (int i = 0; i < 8; i++) m.p[i] = (u8)(n_header >> 8 * i);
    memcpy(m.p + 8, header.p, header.n);
    for (size_t i = 0; i < n_data; i++) m.p[8 + header.n + i] = (u8)i;
    return m;
}

static struct image image(const char *header, size_t n_data)
{
    return image_of(strlen(header), str_of(header), n_data);
}

static void reads_names_types_shapes_and_places(void **state)
{
    (void)state;
    struct st_file f;
    struct err err;
    struct image m = image("{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"c\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
                           20);
    assert_int_equal(st_parse(&f, m.p, m.n, &err), 0);
    assert_int_equal(f.n_tensors, 3);
    const struct st_tensor *a = st_find(&f, STR("a")), *b = st_find(&f, STR("b"));
    const struct st_tensor *c = st_find(&f, STR("c"));
    assert_true(a && b && c && !st_find(&f, STR("__metadata__")));
    assert_int_equal(a->type, QT_F32);
    assert_int_equal(a->n_dims, 0);
    assert_int_equal(a->n_elems, 1);
    assert_int_equal(a->data[0], 0);
    assert_int_equal(b->type, QT_F16);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->n_bytes, 12);
    assert_int_equal(b->data[0], 8);
    assert_int_equal(c->type, QT_BF16);
    assert_int_equal(c->data[0], 4);
    st_free(&f);
    free(m.p);
}

static void an_empty_header_is_an_empty_file(void **state)
{
    (void)state;
    struct st_file f;
    struct image m = image("{}", 0);
    assert_int_equal(st_parse(&f, m.p, m.n, NULL), 0);
    assert_int_equal(f.n_tensors, 0);
    assert_null(st_find(&f, STR("a")));
    st_free(&f);
    free(m.p);
}

#define T(dtype, shape, offsets) \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *text;
    } cases[] = {
        {"", "invalid JSON"},
        {"[]", "not a JSON object"},
        {"{\"t\":1}", "'t' is not described by an object"},
        {"{\"t\":{}}", "'t' has no dtype"},
        {"{\"\":{}}", "name that is empty"},
        {"{\"a\\u0001\":{}}", "not printable"},
        {"{\"t\":{},\"t\":{}}", "duplicate"},
        {T("\"F8_E5M2\"", "[4]", "[0,4]"), "'t' has type 'F8_E5M2'; only F32, F16, BF16 and"},
        {T("\"F8_E4M3\"", "[4]", "[0,8]"), "do not match its shape and dtype"},
        {T("\"I8\"", "[4]", "[0,4]"), "'I8'"},
        {T("\"f32\"", "[1]", "[0,4]"), "'f32'"},
        {T("\"F32\\u0000\"", "[1]", "[0,4]"), "'F32\\x00'"},
        {T("7", "[1]", "[0,4]"), "no dtype"},
        {T("\"F32\"", "4", "[0,4]"), "no shape"},
        {T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "more than 8 dimensions"},
        {T("\"F32\"", "[0]", "[0,0]"), "not a positive integer"},
        {T("\"F32\"", "[-1]", "[0,4]"), "not a positive integer"},
        {T("\"F32\"", "[1.0]", "[0,4]"), "not a positive integer"},
        {T("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "too many elements"},
        {T("\"F32\"", "[4294967296,1073741824]", "[0,0]"), "do not match"},
        {T("\"F32\"", "[99999999999999999999]", "[0,0]"), "not a positive integer"},
        {T("\"F32\"", "[1]", "4"), "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[0]"), "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[0,4,8]"), "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[-4,0]"), "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[4,0]"), "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[0.0,4]"), "no valid data_offsets"},
        {T("\"F32\"", "[3]", "[0,12]"), "beyond the end"},
        {T("\"F32\"", "[1]", "[8,12]"), "beyond the end"},
        {T("\"F32\"", "[1]", "[0,2]"), "do not match"},
        {T("\"F16\"", "[1]", "[0,4]"), "do not match"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[2,6]}}",
         "'b' overlaps"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}",
         "'b' overlaps"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct st_file f;
        struct err err = {0};
        struct image m = image(cases[i].header, 8);
        int rc = st_parse(&f, m.p, m.n, &err);
        if (rc == 0 || !strstr(err.text, cases[i].text))
            fail_msg("%s: %d '%s', not '%s'", cases[i].header, rc, err.text, cases[i].text);
        assert_null(f.tensors);
        free(m.p);
    }
}

static void refuses_header_lengths_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        u64 length;
        size_t cut; /* bytes of the file; 0 = all */
        const char *text;
    } cases[] = {
        {3, 0, "does not fit"},
        {UINT64_MAX, 0, "does not fit"},
        {UINT64_MAX - 7, 0, "does not fit"},
        {2, 7, "does not fit"},
        {2, 1, "does not fit"},
        {2, 9, "does not fit"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct st_file f;
        struct err err = {0};
        struct image m = image_of(cases[i].length, STR("{}"), 0);
        u8 *exact = malloc(cases[i].cut ? cases[i].cut : m.n);
        assert_non_null(exact);
        memcpy(exact, m.p, cases[i].cut ? cases[i].cut : m.n);
        assert_int_equal(st_parse(&f, exact, cases[i].cut ? cases[i].cut : m.n, &err),
                         FLETCH_E_FORMAT);
        assert_non_null(strstr(err.text, cases[i].text));
        free(exact);
        free(m.p);
    }
    assert_int_equal(st_parse(&(struct st_file){0}, NULL, 0, NULL), FLETCH_E_FORMAT);
}

static void refuses_a_header_over_the_limit(void **state)
{
    (void)state;
    size_t n = (32 << 20) + 1;
    struct st_file f;
    struct err err = {0};
    u8 *p = malloc(8 + n);
    assert_non_null(p);
    memset(p, ' ', 8 + n);
    for (int i = 0; i < 8; i++) p[i] = (u8)((u64)n >> 8 * i);
    assert_int_equal(st_parse(&f, p, 8 + n, &err), FLETCH_E_LIMIT);
    free(p);
}

static void refuses_every_cut(void **state)
{
    (void)state;
    struct image m = image(T("\"F32\"", "[2]", "[0,8]"), 8);
    for (size_t n = 0; n < m.n; n++) {
        struct st_file f;
        struct err err = {0};
        u8 *exact = malloc(n + 1);
        assert_non_null(exact);
        memcpy(exact, m.p, n);
        assert_true(st_parse(&f, exact, n, &err) < 0);
        assert_true(err.text[0] != 0);
        free(exact);
    }
    free(m.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_types_shapes_and_places),
        cmocka_unit_test(an_empty_header_is_an_empty_file),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_header_lengths_that_do_not_fit),
        cmocka_unit_test(refuses_a_header_over_the_limit),
        cmocka_unit_test(refuses_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
