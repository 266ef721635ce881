/* Binding: by name and shape, or an error that names the tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/bind.h"

static struct net *net;
static struct source *s;
static struct bind b;
static struct err err;
static const u8 bytes[4096];

static void add(const char *name, u32 type, u64 ne0, u64 ne1, u64 ne2)
{
    struct tensor t = {.name = str_of(name),
                       .type = (enum qtype)type,
                       .n_dims = 3,
                       .ne = {ne0, ne1, ne2, 1},
                       .data = bytes};
    assert_int_equal(source_add_tensor(s, &t, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    if (net_open(&net, &err) || source_new(&s, "bind", &err)) return -1;
    add("m.weight", QT_F32, 8, 6, 1);
    add("q8.weight", QT_Q8_0, 32, 6, 1);
    add("s.weight", QT_F16, 4, 6, 3);
    add("v.weight", QT_F32, 8, 1, 1);
    add("v.bias", QT_F16, 8, 1, 1);
    add("v8.weight", QT_Q8_0, 32, 1, 1);
    add("nv.weight", QT_NVFP4, 64, 2, 1);
    bind_init(&b, s, net, &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bind_free(&b);
    net_close(net);
    source_close(s);
    return 0;
}

static void assert_refused(u32 w, int code, const char *name)
{
    assert_true(w == NO_WEIGHT && net->failed);
    assert_int_equal(b.rc, code);
    if (!strstr(err.text, name)) fail_msg("\"%s\" does not name %s", err.text, name);
}

static void a_matrix_knows_its_bytes(void **state)
{
    (void)state;
    u32 id = bind_matrix(&b, 32, 6, "q%u", 8);
    const struct weight *w = &net->weights[id];
    assert_string_equal(w->name, "q8.weight");
    assert_true(w->type == QT_Q8_0 && w->n_in == 32 && w->n_out == 6 && w->n_slices == 1);
    assert_int_equal(w->row_bytes, 34);
    assert_int_equal(w->n_bytes, 6 * 34);
    assert_int_equal(b.bound[0].offset, 0);
    assert_null(w->data); /* bytes come later */
}

static void the_same_tensor_is_one_weight(void **state)
{
    (void)state;
    u32 w = bind_matrix(&b, 8, 6, "m");
    assert_int_equal(bind_matrix(&b, 8, 6, "m"), w);
    assert_int_equal(net->n_weights, 1);
}

static void rows_of_a_matrix_and_of_slices(void **state)
{
    (void)state;
    u32 top = bind_rows(&b, 8, 6, 0, 2, 1, "m"), low = bind_rows(&b, 8, 6, 2, 4, 1, "m");
    u32 half = bind_rows(&b, 4, 6, 3, 3, 3, "s");
    assert_true(top != low);
    assert_int_equal(b.bound[top].offset, 0);
    assert_int_equal(b.bound[low].offset, 2 * 8 * 4);
    assert_int_equal(net->weights[low].n_out, 4);
    assert_int_equal(b.bound[half].offset, 3 * 4 * 2);
    assert_int_equal(net->weights[half].row_bytes, 4 * 2);
    assert_int_equal(net->weights[half].slice_bytes, 6 * 4 * 2);
    assert_int_equal(net->weights[half].n_bytes, 3 * 3 * 4 * 2);
}

static void vectors_and_parts_of_them(void **state)
{
    (void)state;
    u32 v = bind_vector(&b, 8, "v"), bias = bind_vector(&b, 8, "v.bias");
    u32 part = bind_vector_part(&b, 8, 3, 5, "v.bias");
    assert_true(v != bias && part != bias && !b.rc);
    assert_int_equal(net->weights[v].n_in, 8);
    assert_int_equal(net->weights[part].n_in, 5);
    assert_int_equal(b.bound[part].offset, 3 * 2);
}

static void optional_ones_may_be_absent(void **state)
{
    (void)state;
    assert_true(bind_vector_opt(&b, 8, "nothing") == NO_WEIGHT);
    assert_true(bind_vector_part(&b, 8, 0, 4, "nothing.bias") == NO_WEIGHT);
    assert_true(!b.rc && !net->failed && !bind_has(&b, "nothing") && bind_has(&b, "v.bias"));
    assert_true(bind_vector_opt(&b, 8, "v") != NO_WEIGHT);
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    assert_refused(bind_matrix(&b, 8, 6, "blk.%u.attn_q", 7), FLETCH_E_FORMAT,
                   "'blk.7.attn_q.weight' is missing");
    err.text[0] = 0;
    assert_true(bind_matrix(&b, 8, 6, "m") == NO_WEIGHT); /* failure is sticky */
    assert_string_equal(err.text, "");
}

static void wrong_shapes_are_named(void **state)
{
    for (u32 i = 0; i < 9; i++) {
        u32 w = i == 0   ? bind_matrix(&b, 9, 6, "m")
                : i == 1 ? bind_matrix(&b, 8, 7, "m")
                : i == 2 ? bind_matrix(&b, 6, 8, "m") /* transposed */
                : i == 3 ? bind_slices(&b, 4, 6, 2, "s")
                : i == 4 ? bind_slices(&b, 4, 9, 2, "s") /* as many values */
                : i == 5 ? bind_slices(&b, 8, 2, 3, "m")
                : i == 6 ? bind_vector(&b, 7, "v")
                : i == 7 ? bind_vector_opt(&b, 9, "v.bias")
                         : bind_rows(&b, 8, 7, 0, 2, 1, "m");
        assert_refused(w, FLETCH_E_FORMAT,
                       i == 3 || i == 4 ? "'s.weight' is 4×6×3"
                       : i == 6         ? "'v.weight'"
                       : i == 7         ? "'v.bias'"
                                        : "'m.weight' is 8×6×1");
        teardown(state);
        setup(state);
    }
}

static void unreadable_types_are_named(void **state)
{
    (void)state;
    assert_refused(bind_matrix(&b, 64, 2, "nv"), FLETCH_E_UNSUPPORTED,
                   "'nv.weight' has type NVFP4");
}

static void quantised_vectors_are_refused(void **state)
{
    (void)state;
    assert_refused(bind_vector(&b, 32, "v8"), FLETCH_E_UNSUPPORTED,
                   "'v8.weight' has type Q8_0, but a vector must be F32");
}

static void a_constant_is_a_weight_of_no_file(void **state)
{
    (void)state;
    u32 w = bind_constant(&b, 5, 0.25f), again = bind_constant(&b, 5, 0.25f);
    u32 other = bind_constant(&b, 6, 0.25f);
    assert_int_equal(w, again);
    assert_true(other != w && !b.bound[w].tensor && net->weights[w].n_in == 5);
    const float *values = (const float *)(const void *)net->weights[w].data;
    for (u32 i = 0; i < 5; i++) assert_true(values[i] == 0.25f);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_matrix_knows_its_bytes),       TEST(the_same_tensor_is_one_weight),
        TEST(rows_of_a_matrix_and_of_slices), TEST(vectors_and_parts_of_them),
        TEST(optional_ones_may_be_absent),    TEST(a_missing_tensor_is_named),
        TEST(wrong_shapes_are_named),         TEST(unreadable_types_are_named),
        TEST(quantised_vectors_are_refused),  TEST(a_constant_is_a_weight_of_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
