/* Ten answers per format, most of them what published templates render for an assistant's calls:
 * test/chat/NAME.txt. Each is followed by "=> " and what it says, thinks and calls, and by "====".
 * However an answer is cut, it gives that, and no byte of it is lost. */
#include "chat/tools.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct record {
    char text[4096], wrote[4096];
    size_t n, n_wrote;
    int last; /* part, or -1 */
};

static void put(struct record *r, const char *p, size_t n)
{
    assert_true(r->n + n < sizeof r->text);
    memcpy(r->text + r->n, p, n);
    r->text[r->n += n] = 0;
}

static void close_last(struct record *r)
{
    if (r->last >= 0) put(r, ")", 1);
    r->last = -1;
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    static const char *const open[] = {"say(", "think(", "call("};
    struct record *r = ctx;
    assert_true(p->n > 0);
    if (p->part != TOOLS_CALL) {
        assert_true(r->n_wrote + p->n < sizeof r->wrote);
        memcpy(r->wrote + r->n_wrote, p->text, p->n);
        r->n_wrote += p->n;
    }
    if (p->part == TOOLS_MARKUP) return;
    if (r->last != (int)p->part || p->part == TOOLS_CALL) {
        close_last(r);
        put(r, open[p->part], strlen(open[p->part]));
        r->last = (int)p->part;
    }
    if (p->part != TOOLS_CALL) {
        put(r, p->text, p->n);
        return;
    }
    json_t *j = json_loadb(p->text, p->n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(15));
    put(r, p->name, strlen(p->name));
    put(r, " ", 1);
    put(r, text, strlen(text));
    free(text);
    json_decref(j);
}

static json_t *offered(void)
{
    return json_loads(
        "[{\"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\","
        " \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"},"
        " \"exact\": {\"type\": \"boolean\"}, \"tags\": {\"type\": \"array\"},"
        " \"where\": {\"type\": \"object\"}}}}}, {\"function\": {\"name\": \"now\"}},"
        " {\"function\": {\"name\": \"write\", \"parameters\": {\"type\": \"object\","
        " \"properties\": {\"path\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}}}}}]",
        0, NULL);
}

/* step 0: the answer is cut once, at `first`. */
static void feed(struct record *r, const struct tools_params *params, const char *text, size_t n,
                 size_t first, size_t step)
{
    struct tools_params p = *params;
    struct tools *t;
    *r = (struct record){.last = -1};
    p.on_piece = on_piece;
    p.ctx = r;
    assert_int_equal(tools_open(&t, &p), 0);
    assert_int_equal(tools_feed(t, text, first), 0);
    for (size_t i = first, k; i < n; i += k) {
        k = step && step < n - i ? step : n - i;
        assert_int_equal(tools_feed(t, text + i, k), 0);
    }
    tools_end(t);
    close_last(r);
    tools_close(t);
    assert_int_equal(r->n_wrote, n);
    assert_memory_equal(r->wrote, text, n);
}

static void check(const struct chat_format *row, const json_t *tools, const char *text,
                  const char *wanted)
{
    static struct record r;
    struct tools_params p = {.format = {.row = row, .thinks = true}, .tools = tools};
    size_t n = strlen(text);
    feed(&r, &p, text, n, 0, 0);
    if (strcmp(r.text, wanted) != 0)
        fail_msg("%s: %s\n  gives %s\n  not %s", row->name, text, r.text, wanted);
    for (size_t first = 0; first <= n; first++) {
        feed(&r, &p, text, n, first, 0);
        assert_string_equal(r.text, wanted);
        feed(&r, &p, text, n, first, 1 + first % 9);
        assert_string_equal(r.text, wanted);
    }
}

static char *read_file(const char *name)
{
    static char text[65536];
    char path[96];
    snprintf(path, sizeof path, "test/chat/%s.txt", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void every_format_has_ten_answers_that_are_read(void **state)
{
    json_t *tools = offered();
    (void)state;
    for (size_t i = 0; i < N_CHAT_FORMATS; i++) {
        int n_cases = 0;
        for (char *at = read_file(chat_formats[i].name), *end; *at; at = end + 6) {
            char *wanted = strstr(at, "\n=> ");
            end = strstr(at, "\n====\n");
            assert_true(wanted && end && wanted < end);
            *wanted = *end = 0;
            check(&chat_formats[i], tools, at, wanted + 4);
            n_cases += strstr(wanted + 4, "call(") != NULL;
        }
        if (n_cases < 10) fail_msg("%s: %d answers that call", chat_formats[i].name, n_cases);
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_has_ten_answers_that_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
