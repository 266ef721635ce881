/* Any text as an answer, in every format: however it is cut it gives the same, and no byte is lost.
 * What is neither content nor thinking nor a call's text is made of blanks and markers. The first
 * three bytes choose the format, what is asked, and the cuts. */
#include <string.h>

#include "base/buf.h"
#include "chat/tools.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

enum { THINKS = 1, THINKING = 2, NO_TOOLS = 4 };

static const char offered[] =
    "[{\"function\": {\"name\": \"get_weather\", \"parameters\": {\"properties\": {\"city\":"
    " {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}, \"exact\": {\"type\":"
    " \"boolean\"}, \"tags\": {\"anyOf\": [{\"type\": \"array\"}, {\"type\": \"null\"}]},"
    " \"where\": {\"$ref\": \"#/$defs/w\"}}, \"$defs\": {\"w\": {\"type\": \"object\"}}}}},"
    " {\"function\": {\"name\": \"now\"}},"
    " {\"function\": {\"name\": \"write\", \"parameters\": {\"properties\":"
    " {\"path\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}}}}},"
    " {\"function\": {\"name\": \"add\", \"parameters\": {\"properties\": {\"a\": {\"type\":"
    " \"integer\"}, \"s\": {\"type\": \"string\"}}}}}]";

struct record {
    const struct chat_format *row;
    struct buf text, wrote;
    int last;
};

/* Markup apart from calls. */
static void check_markup(const struct chat_format *row, const char *text, size_t n)
{
    const char *markers[CHAT_MAX_MARKERS];
    size_t n_markers = chat_markers(row, markers);
    while (n && !row->headers) {
        size_t taken = strchr(" \n\r\t", *text) ? 1 : 0;
        for (size_t i = 0; i < n_markers && !taken; i++)
            if (n >= strlen(markers[i]) && memcmp(text, markers[i], strlen(markers[i])) == 0)
                taken = strlen(markers[i]);
        CHECK(taken);
        text += taken;
        n -= taken;
    }
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    struct record *r = ctx;
    CHECK(p->n > 0);
    if (p->part == TOOLS_CALL) {
        json_t *j = json_loadb(p->text, p->n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        CHECK(json_is_object(j));
        json_decref(j);
        buf_printf(&r->text, "\1%u %s %s ", p->index, p->id, p->name);
    } else {
        buf_put(&r->wrote, p->text, p->n);
        if (p->part == TOOLS_MARKUP && r->last != TOOLS_CALL) check_markup(r->row, p->text, p->n);
        if (p->part != TOOLS_MARKUP && r->last != (int)p->part)
            buf_putc(&r->text, (char)(2 + (int)p->part));
    }
    if (p->part != TOOLS_MARKUP) buf_put(&r->text, p->text, p->n);
    if (p->part != TOOLS_MARKUP || r->last == TOOLS_CALL) r->last = (int)p->part;
}

static void answer(struct record *r, struct tools_params p, const char *text, size_t n, size_t step)
{
    struct tools *t;
    *r = (struct record){.row = p.format.row, .last = -1};
    p.on_piece = on_piece;
    p.ctx = r;
    CHECK(tools_open(&t, &p) == 0);
    for (size_t i = 0; i < n; i += step) CHECK(tools_feed(t, text + i, MIN(step, n - i)) == 0);
    tools_end(t);
    tools_close(t);
    CHECK(r->wrote.n == n && (!n || memcmp(r->wrote.p, text, n) == 0));
    buf_free(&r->wrote);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static json_t *tools;
    if (!tools) CHECK((tools = json_loads(offered, 0, NULL)));
    if (n < 3 || n > 4096) return 0;
    struct record one, two;
    struct tools_params p = {
        .format = {.row = &chat_formats[data[0] % N_CHAT_FORMATS], .thinks = data[1] & THINKS},
        .thinking = (data[1] & THINKS) && (data[1] & THINKING),
        .tools = data[1] & NO_TOOLS ? NULL : tools};
    answer(&one, p, (const char *)data + 3, n - 3, n);
    answer(&two, p, (const char *)data + 3, n - 3, 1u + data[2] % 32);
    CHECK(one.text.n == two.text.n);
    CHECK(!one.text.n || memcmp(one.text.p, two.text.p, one.text.n) == 0);
    buf_free(&one.text);
    buf_free(&two.text);
    return 0;
}
