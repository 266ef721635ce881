/* Text and tokens: /tokenize, /detokenize, /apply-template. Answered on a worker, whole. */
#include <stdlib.h>

#include "app.h"
#include "turn.h"

static json_t *ids_json(const struct prompt *p)
{
    json_t *a = need(json_array());
    for (size_t i = 0; i < p->n; i++) json_array_append_new(a, json_integer(p->ids[i]));
    return a;
}

/* A prompt that is too long for the model is none of these endpoints' concern. */
static int any_length(struct call *c, int rc)
{
    if (!rc || !c->n_prompts) return rc;
    c->problem = (struct problem){0};
    return 0;
}

/* ---- /tokenize: {content, add_special, parse_special, with_pieces} -> {tokens, n_tokens} ---- */

static int take_tokenize(struct call *c)
{
    static const struct field own[] = {
        {"content", field_any, FIELD_AT(ask.prompt), 0, 0},
        {"add_special", field_flag, FIELD_AT(ask.echo), 0, 0},
        {"parse_special", field_flag, FIELD_AT(ask.logprobs), 0, 0},
        {"with_pieces", field_flag, FIELD_AT(ask.stream), 0, 0},
    };
    static const struct field_table table = FIELD_TABLE(own);
    static const struct field_table *const tables[] = {&table, &fields_model, NULL};
    if (fields_take(c, tables)) return -1;
    if (!json_is_string(c->ask.prompt))
        return call_wrong(c, 400, "content", "content must be a text");
    unsigned flags = (c->ask.echo ? FLETCH_BOS : 0) | (c->ask.logprobs ? FLETCH_SPECIAL : 0);
    if (any_length(c, prompt_text(c, json_string_value(c->ask.prompt),
                                  json_string_length(c->ask.prompt), flags)))
        return -1;
    c->reply = need(json_pack("{s:o, s:I}", "tokens", ids_json(&c->prompts[0]), "n_tokens",
                              (json_int_t)c->prompts[0].n));
    if (!c->ask.stream) return 0;
    json_t *pieces = need(json_array());
    for (size_t i = 0; i < c->prompts[0].n; i++) {
        size_t n;
        const char *p = served_piece(c->served, c->prompts[0].ids[i], &n);
        json_array_append_new(pieces, json_text(p, n));
    }
    json_object_set_new(c->reply, "pieces", pieces);
    return 0;
}

/* ---- /detokenize: {tokens} -> {content} ---- */

static int take_detokenize(struct call *c)
{
    static const struct field own[] = {{"tokens", field_array, FIELD_AT(ask.prompt), 0, 0}};
    static const struct field_table table = FIELD_TABLE(own);
    static const struct field_table *const tables[] = {&table, &fields_model, NULL};
    char *text;
    size_t n;
    if (fields_take(c, tables)) return -1;
    if (!c->ask.prompt) return call_wrong(c, 400, "tokens", "tokens must be an array of ids");
    if (any_length(c, prompt_ids(c, c->ask.prompt))) return -1;
    pthread_mutex_lock(&c->served->text_lock);
    int rc = fletch_detokenize(c->served->model, c->prompts[0].ids, c->prompts[0].n, FLETCH_SPECIAL,
                               &text, &n);
    if (rc) call_wrong(c, 400, "tokens", "%s", fletch_model_error(c->served->model));
    pthread_mutex_unlock(&c->served->text_lock);
    if (rc) return -1;
    c->reply = need(json_pack("{s:o}", "content", json_text(text, n)));
    fletch_free(text);
    return 0;
}

/* ---- /apply-template: a chat's body -> {prompt, tokens, n_tokens} ---- */

static int take_apply_template(struct call *c)
{
    static const struct field_table *const tables[] = {&fields_chat, &fields_common, NULL};
    struct words text = {0};
    if (fields_take(c, tables) || any_length(c, turn_take(c)) || turn_prompt(c, &text)) return -1;
    c->reply = need(json_pack("{s:o, s:o, s:I}", "prompt", json_text(text.p, text.n), "tokens",
                              ids_json(&c->prompts[0]), "n_tokens", (json_int_t)c->prompts[0].n));
    free(text.p);
    return 0;
}

const struct api api_tokenize = {.label = "tokenize", .prefix = "", .take = take_tokenize};
const struct api api_detokenize = {.label = "detokenize", .prefix = "", .take = take_detokenize};
const struct api api_apply_template = {
    .label = "apply-template", .prefix = "", .take = take_apply_template, .free = turn_free};
