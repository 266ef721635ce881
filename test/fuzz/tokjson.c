/* tokenizer.json, and after a zero byte tokenizer_config.json: read, open, encode. */
#include <string.h>

#include "format/json.h"
#include "text/tok.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

/* The config's tokens once more, as if they lay beside another kind of vocabulary. */
static int beside(struct tok_spec *spec, struct arena *arena, const json_t *config, struct err *err)
{
    struct tok_files files = {
        .config = config, .special_map = config, .added = json_object_get(config, "added")};
    return files.added ? tok_spec_read_beside(spec, arena, &files, err) : 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    const u8 *zero = n ? memchr(data, 0, n) : NULL;
    struct str first = {(const char *)data, zero ? (size_t)(zero - data) : n};
    struct str second = {zero ? (const char *)zero + 1 : "", zero ? n - first.n - 1 : 0};
    json_t *tokenizer, *config;
    struct arena arena = {0};
    struct tok_spec spec;
    struct tok *t;
    struct tok_ids ids = {0};
    struct err err;
    if (json_parse(&tokenizer, first, "tokenizer.json", &err)) return 0;
    if (json_parse(&config, second, "tokenizer_config.json", &err)) config = NULL;
    if (tok_spec_from_json(&spec, &arena, tokenizer, config, (struct str){0}, &err) == 0 &&
        (!config || beside(&spec, &arena, config, &err) == 0) && tok_open(&t, &spec, &err) == 0) {
        tok_encode(t, STR("a ab<s>\xff\n▁ x</s> 12é İ  <user>the fi"), NULL,
                   TOK_ADD_BOS | TOK_SPECIAL, &ids, &err);
        struct buf out = {0};
        tok_decode(t, ids.p, ids.n, true, &out);
        buf_free(&out);
        tok_ids_free(&ids);
        tok_close(t);
    }
    json_decref(tokenizer);
    json_decref(config);
    arena_free(&arena);
    return 0;
}
