/* Any text as an answer, in every style: fed at once and in pieces it must give the same, and no
 * byte may be lost but blanks beside markers. The first two bytes choose style and cuts. */
#include <string.h>

#include "chat/tools.h"
#include "base/buf.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static const char offered[] =
    "[{\"function\": {\"name\": \"add\", \"parameters\": {\"properties\": {\"a\": {\"type\":"
    " \"integer\"}, \"s\": {\"type\": \"string\"}}}}}, {\"function\": {\"name\": \"now\"}}]";

struct record {
    struct buf text;
    int last;
};

static void on_piece(void *ctx, const struct tools_piece *p)
{
    struct record *r = ctx;
    CHECK(p->n > 0);
    if (p->part == TOOLS_CALL) {
        json_t *j = json_loadb(p->text, p->n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        CHECK(json_is_object(j));
        json_decref(j);
        buf_printf(&r->text, "\1%u %s %s ", p->index, p->id, p->name);
    } else if (r->last != (int)p->part)
        buf_putc(&r->text, (char)(2 + (int)p->part));
    buf_put(&r->text, p->text, p->n);
    r->last = (int)p->part;
}

static void answer(struct record *r, struct tools_params p, const char *text, size_t n, size_t step)
{
    struct tools *t;
    *r = (struct record){.last = -1};
    p.on_piece = on_piece;
    p.ctx = r;
    CHECK(tools_open(&t, &p) == 0);
    for (size_t i = 0; i < n; i += step) CHECK(tools_feed(t, text + i, MIN(step, n - i)) == 0);
    tools_end(t);
    if (!tools_n_calls(t) && !p.thinking && !p.format.thinks)
        CHECK(r->text.n == (n ? n + 1 : 0) && (!n || memcmp(r->text.p + 1, text, n) == 0));
    tools_close(t);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static json_t *tools;
    if (!tools) CHECK((tools = json_loads(offered, 0, NULL)));
    if (n < 2 || n > 4096) return 0;
    struct record one, two;
    struct tools_params p = {.format = {.style = data[0] & 3, .thinks = data[0] & 4},
                             .thinking = data[0] & 8,
                             .tools = data[0] & 16 ? NULL : tools};
    answer(&one, p, (const char *)data + 2, n - 2, n);
    answer(&two, p, (const char *)data + 2, n - 2, 1u + data[1] % 32);
    CHECK(one.text.n == two.text.n);
    CHECK(!one.text.n || memcmp(one.text.p, two.text.p, one.text.n) == 0);
    buf_free(&one.text);
    buf_free(&two.text);
    return 0;
}
