/* Layouts: what a launch may choose, tables of them, and that only a whole file of this build and
 * device is ever read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/layout.h"

static const struct layouts_for here = {"cuda", "NVIDIA H200", "123-456"};

static struct choice a_choice(void)
{
    return (struct choice){.site = {"k_glu_i8", 1, 4864, 896, 2, 1},
                           .usual = {{512, 8, 0}},
                           .least = {{256, 1, 0}},
                           .most = {{512, 12, 0}}};
}

static void a_layout_is_possible_on_every_axis_or_not_at_all(void **state)
{
    (void)state;
    struct choice c = a_choice();
    const struct {
        struct layout l;
        bool possible;
    } cases[] = {
        {{{512, 8, 0}}, true},  {{{256, 2, 0}}, true},   {{{384, 12, 0}}, true},
        {{{128, 8, 0}}, false}, {{{320, 8, 0}}, false},  {{{1024, 8, 0}}, false},
        {{{512, 0, 0}}, false}, {{{512, 16, 0}}, false}, {{{512, 8, 2}}, false},
    };
    for (u32 i = 0; i < ARRAY_LEN(cases); i++)
        if (layout_possible(&c, &cases[i].l) != cases[i].possible) fail_msg("case %u", i);
    c.usual.v[LAYOUT_GROUPS] = 0; /* what is usual always is */
    assert_true(layout_possible(&c, &(struct layout){{512, 0, 0}}));
}

static void fill(struct layouts *t, u32 n)
{
    struct site s = a_choice().site;
    for (u32 i = 0; i < n; i++) {
        s.n_out = i;
        assert_int_equal(layouts_set(t, &s, &(struct layout){{256, i, 0}}, NULL), 0);
    }
}

static void a_site_has_one_layout(void **state)
{
    (void)state;
    struct layouts t = {0};
    struct site s = a_choice().site;
    fill(&t, 40);
    s.n_out = 7;
    assert_int_equal(layouts_set(&t, &s, &(struct layout){{512, 1, 2}}, NULL), 0);
    assert_int_equal(t.n, 40);
    assert_int_equal(layouts_find(&t, &s)->v[LAYOUT_COLUMNS], 2);
    layouts_remove(&t, &s);
    layouts_remove(&t, &s);
    assert_null(layouts_find(&t, &s));
    assert_int_equal(t.n, 39);
    s.n_out = 8;
    s.rows = 2; /* not the same site */
    assert_null(layouts_find(&t, &s));
    assert_null(layouts_find(NULL, &s));
    layouts_close(&t);
}

static void there_is_an_end_to_them(void **state)
{
    (void)state;
    struct layouts t = {0};
    struct site s = {"k", 1, 1, 1, 1, 1};
    fill(&t, LAYOUTS_MAX);
    assert_int_equal(layouts_set(&t, &s, &(struct layout){{1, 1, 1}}, NULL), FLETCH_E_LIMIT);
    layouts_close(&t);
}

static void text_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct layouts t = {0}, back;
    struct buf text = {0};
    fill(&t, 3);
    layouts_write(&t, here, &text);
    assert_int_equal(layouts_read(&back, here, buf_str(&text), NULL), 0);
    assert_int_equal(back.n, 3);
    assert_memory_equal(back.p, t.p, 3 * sizeof *t.p);
    layouts_close(&back);
    layouts_close(&t);
    buf_free(&text);
}

static int read_text(const char *p, size_t n, struct layouts_for who)
{
    struct layouts t;
    struct err err = {0};
    int rc = layouts_read(&t, who, (struct str){p, n}, &err);
    if (rc) {
        assert_true(err.text[0] && !strchr(err.text, '\n'));
        assert_int_equal(t.n, 0);
    }
    layouts_close(&t);
    return rc;
}

static void other_builds_and_devices_are_told_apart(void **state)
{
    (void)state;
    struct layouts t = {0};
    struct buf text = {0};
    fill(&t, 2);
    layouts_write(&t, here, &text);
    const struct layouts_for others[] = {{"metal", here.device, here.kernels},
                                         {here.driver, "NVIDIA H2000", here.kernels},
                                         {here.driver, here.device, "123-457"}};
    for (u32 i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(read_text(text.p, text.n, others[i]), FLETCH_E_FIT);
    layouts_close(&t);
    buf_free(&text);
}

static void no_part_of_a_file_is_taken_for_the_whole(void **state)
{
    (void)state;
    struct layouts t = {0};
    struct buf text = {0};
    fill(&t, 3);
    layouts_write(&t, here, &text);
    for (size_t i = 0; i < text.n; i++) assert_true(read_text(text.p, i, here) < 0);
    buf_putc(&text, '\n');
    assert_int_equal(read_text(text.p, text.n, here), FLETCH_E_FORMAT);
    layouts_close(&t);
    buf_free(&text);
}

static void damaged_lines_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "k 1 2 3 4 5 6 7 8\nend 2\n",
        "k 1 2 3 4 5 6 7\nend 1\n",
        "k 1 2 3 4 5 6 7 8 9\nend 1\n",
        "k 1 2 3 4 5 6 7 x\nend 1\n",
        "k 1 2 3 4 5 6 7 \nend 1\n",
        "k  1 2 3 4 5 6 7 8\nend 1\n",
        "k 1 2 3 4 5 6 7 4294967296\nend 1\n",
        " 1 2 3 4 5 6 7 8\nend 1\n",
        "k\xff 1 2 3 4 5 6 7 8\nend 1\n",
        "k 1 2 3 4 5 6 7 -8\nend 1\n",
        "a_name_that_is_far_too_long_for_a_kernel 1 2 3 4 5 6 7 8\nend 1\n",
        "end 0\nk 1 2 3 4 5 6 7 8\n",
        "end\n",
        "endless\n",
        "end 0 0\n",
    };
    struct layouts none = {0};
    struct buf head = {0};
    layouts_write(&none, here, &head);
    size_t n = head.n - strlen("end 0\n");
    for (u32 i = 0; i < ARRAY_LEN(lines); i++) {
        struct buf text = {0};
        buf_put(&text, head.p, n);
        buf_puts(&text, lines[i]);
        if (read_text(text.p, text.n, here) != FLETCH_E_FORMAT) fail_msg("%s", lines[i]);
        buf_free(&text);
    }
    buf_free(&head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_is_possible_on_every_axis_or_not_at_all),
        cmocka_unit_test(a_site_has_one_layout),
        cmocka_unit_test(there_is_an_end_to_them),
        cmocka_unit_test(text_is_read_as_it_was_written),
        cmocka_unit_test(other_builds_and_devices_are_told_apart),
        cmocka_unit_test(no_part_of_a_file_is_taken_for_the_whole),
        cmocka_unit_test(damaged_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
