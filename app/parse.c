#include "parse.h"

#include <string.h>

enum { TAIL_TOKENS = 8 }; /* of a prompt, in which thinking may begin */

struct tools_format parse_format(const struct host *h)
{
    return tools_detect(h->info.chat_template, h->info.n_chat_template);
}

/* A control token is one token, and no text. */
static int32_t find_control(void *ctx, const char *marker)
{
    const struct host *h = ctx;
    int32_t *ids = NULL, found = -1;
    char *text = NULL;
    size_t n = 0, n_text = 0;
    if (fletch_tokenize(h->model, marker, strlen(marker), FLETCH_SPECIAL, &ids, &n) == 0 &&
        n == 1 && fletch_detokenize(h->model, ids, 1, 0, &text, &n_text) == 0 && !n_text)
        found = ids[0];
    fletch_free(ids);
    fletch_free(text);
    return found;
}

bool parse_needs_control(const struct host *h)
{
    return tools_has_control(parse_format(h), find_control, (void *)h);
}

struct tools *parse_open(const struct host *h, const int32_t *ids, size_t n,
                         const struct tools_params *p)
{
    struct tools_params own = *p;
    struct tools *t;
    char *tail = NULL;
    size_t n_tail = 0, from = n > TAIL_TOKENS ? n - TAIL_TOKENS : 0;
    own.format = parse_format(h);
    if (fletch_detokenize(h->model, ids + from, n - from, FLETCH_SPECIAL, &tail, &n_tail) == 0)
        own.thinking = tools_prompt_thinks(own.format.row, tail, n_tail);
    fletch_free(tail);
    if (tools_open(&t, &own)) need(NULL);
    return t;
}
