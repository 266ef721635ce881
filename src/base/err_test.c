#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

static void set_keeps_code_and_text(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(err_set(&err, FLETCH_E_FORMAT, "tensor %d", 7), FLETCH_E_FORMAT);
    assert_int_equal(err.code, FLETCH_E_FORMAT);
    assert_string_equal(err.text, "tensor 7");
    assert_int_equal(err_set(NULL, FLETCH_E_IO, "nobody listens"), FLETCH_E_IO);
    assert_int_equal(err_nomem(&err, "the vocabulary"), FLETCH_E_NOMEM);
    assert_string_equal(err.text, "out of memory for the vocabulary");
}

static void long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    struct err err;
    err_set(&err, FLETCH_E_IO, "%0600d", 1);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(err_prefix(&err, "%0300d", 2), FLETCH_E_IO);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void prefix_goes_in_front(void **state)
{
    (void)state;
    struct err err;
    err_set(&err, FLETCH_E_FORMAT, "no such key");
    assert_int_equal(err_prefix(&err, "%s", "a.gguf"), FLETCH_E_FORMAT);
    assert_string_equal(err.text, "a.gguf: no such key");
    assert_true(err_prefix(NULL, "a.gguf") < 0);
}

static void quotes_are_printable(void **state)
{
    (void)state;
    assert_string_equal(QUOTE(STR("token_embd.weight")), "'token_embd.weight'");
    assert_string_equal(QUOTE(STR("\x1b[2J\0\n\xff\x7f")), "'\\x1b[2J\\x00\\n\\xff\\x7f'");
    assert_string_equal(QUOTE(str_of(NULL)), "''");
}

/* Every length of every width of escape: the buffer ends with the quote, never after it. */
static void quotes_are_cut_to_fit(void **state)
{
    (void)state;
    char bytes[200];
    for (const char *c = "a\n\x01"; *c; c++) {
        memset(bytes, *c, sizeof bytes);
        for (size_t shift = 0; shift < 4; shift++) {
            memset(bytes, 'b', shift);
            struct err_quoted q = err_quote((struct str){bytes, sizeof bytes});
            size_t n = strlen(q.text);
            assert_in_range(n, 80, sizeof q.text - 1);
            assert_string_equal(q.text + n - 4, "...'");
        }
    }
    assert_null(strstr(err_quote((struct str){bytes, 20}).text, "..."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_keeps_code_and_text),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(prefix_goes_in_front),
        cmocka_unit_test(quotes_are_printable),
        cmocka_unit_test(quotes_are_cut_to_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
