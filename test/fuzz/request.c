/* Any bytes as what a client sends: a head and what follows it, cut into chunks where the head says
 * so; and the body as that of each kind of request, up to where a batch would take it. */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void take(const struct api *api, struct server *s, const char *p, size_t n)
{
    struct call *c = calloc(1, sizeof *c);
    c->server = s;
    c->api = api;
    c->text = malloc(n + 1);
    memcpy(c->text, p, n);
    c->n_text = n;
    call_work(c);
    if (!c->problem.status && !c->n_prompts && !c->bytes) abort(); /* neither wrong nor right */
    call_free(c);
}

/* However a body is cut into pieces, the same comes out. */
static size_t feed(const char *p, size_t n, size_t step, char *out, enum http_chunk_result *last)
{
    struct http_chunks c = {0};
    size_t at = 0, n_out = 0;
    *last = CHUNK_MORE;
    while (at < n && *last != CHUNK_END && *last != CHUNK_BAD) {
        size_t taken, n_data, size = n - at < step ? n - at : step;
        *last = http_chunks_feed(&c, p + at, size, &taken, &n_data);
        if (taken > size || n_data > taken) abort();
        memcpy(out + n_out, p + at + taken - n_data, n_data);
        n_out += n_data;
        at += taken;
    }
    return n_out;
}

static void chunks(const char *p, size_t n)
{
    char *whole = malloc(n + 1), *bytewise = malloc(n + 1);
    enum http_chunk_result a, b;
    size_t n_whole = feed(p, n, n ? n : 1, whole, &a), n_bytewise = feed(p, n, 1, bytewise, &b);
    bool ended = a == CHUNK_END || a == CHUNK_BAD;
    if (n_whole != n_bytewise || memcmp(whole, bytewise, n_whole) != 0 || (ended && a != b))
        abort();
    free(whole);
    free(bytewise);
}

/* A server that does not run, with a small model. */
static struct server *open_server(void)
{
    static struct server s;
    static struct served m;
    struct fletch_engine *e;
    struct fletch_engine_params params = {.backend = "ref"};
    if (s.served) return &s;
    if (fletch_engine_open(&e, &params) ||
        fletch_model_open(&m.model, e, "zoo/tiny/llama.gguf", &(struct fletch_model_params){0}))
        abort();
    fletch_model_info(m.model, &m.info);
    m.info.has_state = true; /* marks are looked for, too */
    m.id = "m";
    m.state = HOSTED_READY;
    m.server = &s;
    pthread_mutex_init(&m.lock, NULL);
    pthread_mutex_init(&m.text_lock, NULL);
    s.served = &m;
    s.n_served = 1;
    for (size_t i = 0; i < N_LIMITS; i++) s.limits.v[i] = limit_table[i].value;
    return &s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct {
        const char *path;
        const struct api *api;
    } apis[] = {{"/v1/completions", &api_completions},
                {"/v1/chat/completions", &api_chat},
                {"/v1/responses", &api_responses},
                {"/v1/messages", &api_messages},
                {"/v1/messages/count_tokens", &api_count_tokens},
                {"/v1/embeddings", &api_embeddings},
                {"/v1/rerank", &api_rerank},
                {"/tokenize", &api_tokenize},
                {"/detokenize", &api_detokenize},
                {"/apply-template", &api_apply_template}};
    struct http_head head;
    const char *why;
    char *copy = malloc(n + 1);
    memcpy(copy, data, n);
    copy[n] = 0;
    size_t n_head = http_head_length(copy, n);
    if (n_head && http_head_parse(&head, copy, n_head, &why) == 0) {
        if (!http_head_find(&head, "host") && !head.old) abort();
        if (head.chunked) chunks(copy + n_head, n - n_head);
        for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
            if (strcmp(head.path, apis[i].path) == 0)
                take(apis[i].api, open_server(), copy + n_head, n - n_head);
    }
    free(copy);
    return 0;
}
