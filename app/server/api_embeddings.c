/* /v1/embeddings: a text's final hidden states, pooled as the model's file says and scaled to
 * length
 * 1. The model's session reads the texts (reader.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server.h"

enum { PIECE = 128 }; /* tokens between two steps */

/* What is computed for one call: its state. */
struct embedding {
    struct reader r;
    float *vectors; /* [n_prompts][n_embd] */
    bool base64;
};

/* ---- requests ---- */

static struct embedding *embedding_of(struct call *c)
{
    if (!c->state) c->state = memory_zeroed(sizeof(struct embedding));
    return c->state;
}

static int take_one(struct call *c, const char *path, const json_t *v)
{
    if (json_is_string(v))
        return prompt_text(c, json_string_value(v), json_string_length(v), FLETCH_BOS);
    if (json_is_array(v)) return prompt_ids(c, path, v);
    call_wrong(c, 400, "input",
               "%s: expected a string, an array of token ids, or an array of either", path);
    return call_at(c, "%s", path);
}

static int take_input(struct call *c, const struct field *f, json_t *v)
{
    size_t i;
    json_t *one;
    bool many = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    if (!many) return take_one(c, f->name, v);
    if (json_array_size(v) > limit_of(&c->server->limits, prompts))
        return call_over(c, LIMIT_prompts, f->name, json_array_size(v));
    json_array_foreach(v, i, one)
    {
        char path[40];
        snprintf(path, sizeof path, "input[%zu]", i);
        if (take_one(c, path, one)) return -1;
    }
    return 0;
}

static int take_format(struct call *c, const struct field *f, json_t *v)
{
    const char *word = json_word(v);
    embedding_of(c)->base64 = word && strcmp(word, "base64") == 0;
    if (word && (strcmp(word, "float") == 0 || strcmp(word, "base64") == 0)) return 0;
    return call_wrong(c, 400, f->name, "encoding_format must be float or base64");
}

static int take_dimensions(struct call *c, const struct field *f, json_t *v)
{
    if (json_integer_value(v) == (json_int_t)c->served->info.n_embd) return 0;
    return call_wrong(c, 400, f->name, "this model's embeddings have %u dimensions",
                      c->served->info.n_embd);
}

static const struct field own[] = {{"input", take_input, 0, 0, 0},
                                   {"encoding_format", take_format, 0, 0, 0},
                                   {"dimensions", take_dimensions, 0, 0, 0}};
static const struct field_table own_table = FIELD_TABLE(own);
static const struct field_table *const tables[] = {&own_table, &fields_model, NULL};

static int take(struct call *c)
{
    if (fields_take(c)) return -1;
    return c->n_prompts ? 0 : call_wrong(c, 400, "input", "input is missing or empty");
}

/* On the engine thread. */
static int read_piece(struct served *m, struct reader *r, const int32_t *ids, size_t n)
{
    struct embedding *e = (struct embedding *)r;
    return fletch_session_embed(m->session, ids, n, e->vectors + r->prompt * m->info.n_embd);
}

/* ---- on the loop ---- */

static json_t *base64(const unsigned char *p, size_t n)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(n / 3 * 4 + 5), *at = text;
    if (!text) {
        memory_fail();
        return NULL;
    }
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++) *at++ = k <= left ? chars[bits >> (18 - 6 * k) & 63] : '=';
    }
    json_t *j = json_stringn(text, (size_t)(at - text));
    free(text);
    return j;
}

static json_t *vector(const struct embedding *e, size_t prompt)
{
    uint32_t n = e->r.call->served->info.n_embd;
    float *v = e->vectors + prompt * n;
    fletch_normalise(v, n);
    if (e->base64) return base64((const unsigned char *)v, n * sizeof *v);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)v[i]));
    return list;
}

static json_t *reply(const struct reader *r)
{
    const struct embedding *e = (const struct embedding *)r;
    const struct call *c = r->call;
    json_t *data = json_array();
    json_int_t n_tokens = 0;
    for (size_t i = 0; i < c->n_prompts; i++) {
        n_tokens += (json_int_t)c->prompts[i].n;
        json_array_append_new(data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                                              (json_int_t)i, "embedding", vector(e, i)));
    }
    return json_pack("{s:s, s:o, s:s, s:s, s:{s:I, s:I}}", "object", "list", "data", data, "model",
                     c->served->id, "pooling", c->served->info.pooling, "usage", "prompt_tokens",
                     n_tokens, "total_tokens", n_tokens);
}

static void run(struct call *c)
{
    struct embedding *e = embedding_of(c);
    uint32_t n = c->served->info.n_embd;
    e->r = (struct reader){
        .call = c, .piece = PIECE, .read = read_piece, .done = reader_answer, .reply = reply};
    e->vectors = calloc(c->n_prompts * n, sizeof *e->vectors);
    if (e->vectors) {
        reader_begin(&e->r);
        return;
    }
    call_no_memory(c);
    call_ran(c);
}

static void free_state(struct call *c)
{
    struct embedding *e = c->state;
    if (!e) return;
    free(e->vectors);
    free(e);
}

const struct api api_embeddings = {
    .label = "embeddings",
    .prefix = "embd_",
    .fields = tables,
    .take = take,
    .run = run,
    .free = free_state,
};
