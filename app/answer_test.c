/* What a terminal gets of an answer, in whatever pieces it comes. */
#include "answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What is shown of a text that comes in pieces of n bytes. */
static char *shown(const char *text, size_t piece, unsigned width, bool styled)
{
    static char out[4096];
    struct answer_view v;
    FILE *f = tmpfile();
    assert_non_null(f);
    answer_begin(&v, f);
    v.width = width;
    v.styled = styled;
    for (size_t i = 0, n = strlen(text); i < n; i += piece)
        answer_put(&v, text + i, n - i < piece ? n - i : piece);
    answer_end(&v);
    rewind(f);
    out[fread(out, 1, sizeof out - 1, f)] = 0;
    fclose(f);
    return out;
}

/* Whatever the pieces. */
static void check(const char *text, unsigned width, bool styled, const char *want)
{
    for (size_t piece = 1; piece < 9; piece++)
        assert_string_equal(shown(text, piece, width, styled), want);
}

static void words_wrap_whole(void **state)
{
    (void)state;
    check("one two three four five six", 20, false, "one two three four\nfive six");
    check("one two\n\n  three four five", 20, false, "one two\n\n  three four five");
    check("exactly twenty chars, not more", 20, false, "exactly twenty\nchars, not more");
    check("12345678901234567890 2", 20, false, "12345678901234567890\n2");
    check("a longer line that is never broken here", 0, false,
          "a longer line that is never broken here");
}

static void lists_hang(void **state)
{
    (void)state;
    check("- one two three four five\n- six", 20, true,
          "\xe2\x80\xa2 one two three four\n  five\n\xe2\x80\xa2 six");
    check("10. one two three four five", 20, true, "10. one two three\n    four five");
    check("  * a", 20, true, "  \xe2\x80\xa2 a");
    check("-1 is a number, 3.14 too", 80, true, "-1 is a number, 3.14 too");
    check("3.14 is one", 80, true, "3.14 is one");
}

static void bold_code_and_headings_are_shown(void **state)
{
    (void)state;
    check("a **b c** d", 80, true, "a \033[1mb c\033[22m d");
    check("run `x ** y` now", 80, true, "run \033[36mx ** y\033[39m now");
    check("# Title\ntext", 80, true, "\033[1mTitle\033[22m\ntext");
    check("2 ** 3 * 4", 80, true, "2 ** 3 * 4");
    check("**never closed\nnext", 80, true, "\033[1mnever closed\033[22m\nnext");
    check("a **b** `c` # d", 80, false, "a **b** `c` # d");
}

static void blocks_of_code_stay_as_they_are(void **state)
{
    (void)state;
    check("x\n```c\n  int **p; /* a line that is longer than that */\n- y\n```\nz **b**", 20, true,
          "x\n\033[36m  int **p; /* a line that is longer than that */\n- y\n\033[39m"
          "z \033[1mb\033[22m");
}

static void control_bytes_are_shown(void **state)
{
    (void)state;
    check("a\033[2Jb\r\xc2\x9b", 80, true, "a\\x1b[2Jb\\x0d\\xc2\\x9b");
    check("\xff", 80, true, "\xef\xbf\xbd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_wrap_whole),
        cmocka_unit_test(lists_hang),
        cmocka_unit_test(bold_code_and_headings_are_shown),
        cmocka_unit_test(blocks_of_code_stay_as_they_are),
        cmocka_unit_test(control_bytes_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
