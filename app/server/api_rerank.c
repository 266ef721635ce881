/* /v1/rerank: how well each of several documents answers a query, by a reranker. Takes what Jina's
 * and Cohere's APIs take, and the `texts` of Text Embeddings Inference. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

enum { PIECE = 128 }; /* tokens between two steps */

/* What is computed for one call: its state. */
struct reranking {
    struct reader r;
    const char *query;
    size_t n_query;
    json_t *documents; /* of the body */
    bool is_tei;       /* they came as `texts` */
    bool with_texts;   /* the answer repeats the documents */
    uint32_t top_n;    /* 0: all */
    float *scores;     /* [n_prompts] */
};

/* ---- requests ---- */

static struct reranking *reranking_of(struct call *c)
{
    if (!c->state) c->state = memory_zeroed(sizeof(struct reranking));
    return c->state;
}

static int take_query(struct call *c, const struct field *f, json_t *v)
{
    struct reranking *x = reranking_of(c);
    if (!json_is_string(v)) return call_wrong(c, 400, f->name, "query must be a string");
    x->query = json_string_value(v);
    x->n_query = json_string_length(v);
    return 0;
}

/* A document is a string or, as in Cohere's API, an object with a text. */
static const json_t *text_of(const json_t *document)
{
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static int take_documents(struct call *c, const struct field *f, json_t *v)
{
    struct reranking *x = reranking_of(c);
    size_t i;
    json_t *one;
    if (x->documents) return call_wrong(c, 400, f->name, "give either documents or texts");
    if (!json_array_size(v))
        return call_wrong(c, 400, f->name, "%s must be an array with at least one text", f->name);
    if (json_array_size(v) > limit_of(&c->server->limits, prompts))
        return call_over(c, LIMIT_prompts, f->name, json_array_size(v));
    json_array_foreach(v, i, one)
    {
        if (json_is_string(text_of(one))) continue;
        call_wrong(c, 400, f->name, "%s[%zu] must be a string or an object with the field text",
                   f->name, i);
        return call_at(c, "%s[%zu]", f->name, i);
    }
    x->documents = v;
    x->is_tei = strcmp(f->name, "texts") == 0;
    return 0;
}

static int take_top_n(struct call *c, const struct field *f, json_t *v)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1)
        return call_wrong(c, 400, f->name, "top_n must be an integer of at least 1");
    reranking_of(c)->top_n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return 0;
}

static int take_with_texts(struct call *c, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return call_wrong(c, 400, f->name, "%s must be true or false", f->name);
    reranking_of(c)->with_texts = json_is_true(v);
    return 0;
}

static const struct field own[] = {{"query", take_query, 0, 0, 0},
                                   {"documents", take_documents, 0, 0, 0},
                                   {"texts", take_documents, 0, 0, 0},
                                   {"top_n", take_top_n, 0, 0, 0},
                                   {"return_documents", take_with_texts, 0, 0, 0},
                                   {"return_text", take_with_texts, 0, 0, 0}};
static const struct field_table own_table = FIELD_TABLE(own);
static const struct field_table *const tables[] = {&own_table, &fields_model, NULL};

static int take(struct call *c)
{
    if (fields_take(c)) return -1;
    struct reranking *x = reranking_of(c);
    size_t i;
    json_t *one;
    if (!x->query) return call_wrong(c, 400, "query", "query is missing");
    if (!x->documents) return call_wrong(c, 400, "documents", "documents is missing");
    json_array_foreach(x->documents, i, one)
    {
        const json_t *text = text_of(one);
        const struct fletch_pair pair = {x->query, x->n_query, json_string_value(text),
                                         json_string_length(text)};
        if (prompt_pair(c, &pair)) return -1;
    }
    return 0;
}

/* On the engine thread. */
static int read_piece(struct served *m, struct reader *r, const int32_t *ids, size_t n)
{
    struct reranking *x = (struct reranking *)r;
    return fletch_session_rank(m->session, ids, n, &x->scores[r->prompt]);
}

/* ---- on the loop ---- */

/* The documents' numbers, best first; equal scores in the order of the request. */
static size_t *sorted(const struct reranking *x, size_t n)
{
    size_t *order = memory_zeroed(n * sizeof *order);
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at && x->scores[order[at - 1]] < x->scores[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static json_t *result(const struct reranking *x, size_t i)
{
    json_t *j = json_pack("{s:I, s:f}", "index", (json_int_t)i,
                          x->is_tei ? "score" : "relevance_score", (double)x->scores[i]);
    const json_t *text = text_of(json_array_get(x->documents, i));
    if (x->with_texts && x->is_tei)
        json_object_set(j, "text", (json_t *)(uintptr_t)text);
    else if (x->with_texts)
        json_object_set_new(j, "document", json_pack("{s:O}", "text", text));
    return j;
}

static json_t *reply(const struct reader *r)
{
    const struct reranking *x = (const struct reranking *)r;
    const struct call *c = r->call;
    size_t n = c->n_prompts, *order = sorted(x, n);
    json_t *results = json_array();
    json_int_t n_tokens = 0;
    for (size_t i = 0; i < n; i++) n_tokens += (json_int_t)c->prompts[i].n;
    for (size_t i = 0; i < n && (!x->top_n || i < x->top_n); i++)
        json_array_append_new(results, result(x, order[i]));
    free(order);
    if (x->is_tei) return results;
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", c->served->id,
                     "results", results, "usage", "prompt_tokens", n_tokens, "total_tokens",
                     n_tokens);
}

static void run(struct call *c)
{
    struct reranking *x = reranking_of(c);
    x->r = (struct reader){
        .call = c, .piece = PIECE, .read = read_piece, .done = reader_answer, .reply = reply};
    x->scores = calloc(c->n_prompts, sizeof *x->scores);
    if (x->scores) {
        reader_begin(&x->r);
        return;
    }
    call_no_memory(c);
    call_ran(c);
}

static void free_state(struct call *c)
{
    struct reranking *x = c->state;
    if (!x) return;
    free(x->scores);
    free(x);
}

const struct api api_rerank = {
    .label = "rerank",
    .prefix = "rrnk_",
    .fields = tables,
    .take = take,
    .run = run,
    .free = free_state,
};
