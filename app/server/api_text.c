/* Text and tokens: /tokenize, /detokenize, /apply-template. Answered on a worker, whole. */
#include <stdlib.h>

#include "app.h"
#include "turn.h"

/* [1,2,..], or [] without a prompt. */
static void add_ids(struct reply *r, const struct prompt *p)
{
    reply_add_word(r, "[");
    for (size_t i = 0; i < p->n; i++) {
        if (i) reply_add_word(r, ",");
        reply_add_int(r, p->ids[i]);
    }
    reply_add_word(r, "]");
}

/* The first words of an answer, once nothing of the request is needed any more; NULL after saying
 * why not. */
static struct reply *begin(struct call *c, const char *words)
{
    json_decref(c->body);
    c->body = NULL;
    c->bytes = reply_open();
    if (!c->bytes)
        call_no_memory(c);
    else
        reply_add_word(c->bytes, words);
    return c->bytes;
}

static int end(struct call *c)
{
    reply_add_word(c->bytes, "}");
    return reply_close(c->bytes) ? 0 : call_no_memory(c);
}

static void add_tokens(struct call *c)
{
    add_ids(c->bytes, &c->prompts[0]);
    reply_add_word(c->bytes, ",\"n_tokens\":");
    reply_add_int(c->bytes, (int64_t)c->prompts[0].n);
}

/* A prompt that is too long for the model is none of these endpoints' concern. */
static int any_length(struct call *c, int rc)
{
    if (!rc || !c->n_prompts) return rc;
    c->problem = (struct problem){0};
    return 0;
}

/* ---- /tokenize: {content, add_special, parse_special, with_pieces} -> {tokens, n_tokens} ---- */

/* A token's bytes as a text, or as numbers where they are none. */
static void add_pieces(struct reply *r, const struct served *m, const struct prompt *p)
{
    reply_add_word(r, ",\"pieces\":[");
    for (size_t i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = served_piece(m, p->ids[i], &n);
        if (i) reply_add_word(r, ",");
        reply_add_piece(r, piece, n);
    }
    reply_add_word(r, "]");
}

static const struct field tokenize_fields[] = {
    {"content", field_any, FIELD_AT(ask.prompt), 0, 0},
    {"add_special", field_flag, FIELD_AT(ask.echo), 0, 0},
    {"parse_special", field_flag, FIELD_AT(ask.logprobs), 0, 0},
    {"with_pieces", field_flag, FIELD_AT(ask.stream), 0, 0},
};
static const struct field_table tokenize_table = FIELD_TABLE(tokenize_fields);
static const struct field_table *const tokenize_tables[] = {&tokenize_table, &fields_model, NULL};

static int take_tokenize(struct call *c)
{
    if (fields_take(c)) return -1;
    if (!json_is_string(c->ask.prompt))
        return call_wrong(c, 400, "content", "content must be a string");
    size_t n = json_string_length(c->ask.prompt);
    if (c->ask.stream && n > limit_of(&c->server->limits, pieces_bytes))
        return call_over(c, LIMIT_pieces_bytes, "with_pieces", n);
    unsigned flags = (c->ask.echo ? FLETCH_BOS : 0) | (c->ask.logprobs ? FLETCH_SPECIAL : 0);
    if (any_length(c, prompt_text(c, json_string_value(c->ask.prompt),
                                  json_string_length(c->ask.prompt), flags)))
        return -1;
    bool with_pieces = c->ask.stream;
    if (!begin(c, "{\"tokens\":")) return -1;
    add_tokens(c);
    if (with_pieces) add_pieces(c->bytes, c->served, &c->prompts[0]);
    return end(c);
}

/* ---- /detokenize: {tokens} -> {content} ---- */

static const struct field detokenize_fields[] = {
    {"tokens", field_array, FIELD_AT(ask.prompt), 0, 0}};
static const struct field_table detokenize_table = FIELD_TABLE(detokenize_fields);
static const struct field_table *const detokenize_tables[] = {&detokenize_table, &fields_model,
                                                              NULL};

static int take_detokenize(struct call *c)
{
    char *text;
    size_t n;
    if (fields_take(c)) return -1;
    if (!c->ask.prompt) return call_wrong(c, 400, "tokens", "tokens must be an array of token ids");
    if (any_length(c, prompt_ids(c, "tokens", c->ask.prompt))) return -1;
    pthread_mutex_lock(&c->served->text_lock);
    int rc = fletch_detokenize(c->served->model, c->prompts[0].ids, c->prompts[0].n, FLETCH_SPECIAL,
                               &text, &n);
    if (rc) call_wrong(c, 400, "tokens", "%s", fletch_model_error(c->served->model));
    pthread_mutex_unlock(&c->served->text_lock);
    if (rc) return -1;
    c->reply = json_pack("{s:o}", "content", json_text(text, n));
    json_t *whole = json_stringn(text, n);
    if (!whole) json_object_set_new(c->reply, "bytes", json_bytes(text, n));
    json_decref(whole);
    fletch_free(text);
    return 0;
}

/* ---- /apply-template: a chat's body -> {prompt, tokens, n_tokens} ---- */

static int take_apply_template(struct call *c)
{
    struct words text = {0};
    if (fields_take(c) || any_length(c, turn_take(c))) return -1;
    c->bytes = reply_open();
    if (!c->bytes) return call_no_memory(c);
    reply_add_word(c->bytes, "{\"tokens\":");
    add_tokens(c);
    fletch_free(c->prompts[0].ids); /* long ones and a long text need not be there at once */
    c->prompts[0] = (struct prompt){0};
    if (turn_prompt(c, &text)) return -1;
    reply_add_word(c->bytes, ",\"prompt\":");
    if (!text.failed) reply_add_text(c->bytes, text.p ? text.p : "", text.n);
    free(text.p);
    return text.failed ? call_no_memory(c) : end(c);
}

const struct api api_tokenize = {
    .label = "tokenize", .prefix = "", .fields = tokenize_tables, .take = take_tokenize};
const struct api api_detokenize = {
    .label = "detokenize", .prefix = "", .fields = detokenize_tables, .take = take_detokenize};
const struct api api_apply_template = {.label = "apply-template",
                                       .prefix = "",
                                       .fields = chat_tables,
                                       .take = take_apply_template,
                                       .free = turn_free};
