/* Gathers a tok_spec from wherever the model keeps its vocabulary, and writes one as metadata.
 * Keys named tokenizer.fletch.* hold what tokenizer.json can say and GGUF can't; other engines
 * ignore them. */
#include "model/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"

enum {
    MAX_TOKENS = 1 << 24,
    MAX_TOKENIZER = 128 << 20, /* the largest published tokenizer.json is about 35 MB */
    MAX_SMALL = 4 << 20,
};

static const struct {
    enum tok_kind kind;
    const char *name;
} kinds[] = {
    {TOK_NONE, "none"}, {TOK_NONE, "no_vocab"}, {TOK_SPM, "llama"},
    {TOK_BPE, "gpt2"},  {TOK_RWKV, "rwkv"},
};

static const char *const norm_names[] = {
    [TOK_NORM_NONE] = "none", [TOK_NORM_NFC] = "nfc",   [TOK_NORM_NFD] = "nfd",
    [TOK_NORM_NFKC] = "nfkc", [TOK_NORM_NFKD] = "nfkd",
};

/* GGUF's add_space_prefix tells the first two apart. */
static const char *const prefix_names[] = {
    [TOK_PREFIX_NEVER] = "never",
    [TOK_PREFIX_ALWAYS] = "always",
    [TOK_PREFIX_UNLESS_SPACE] = "unless_space",
    [TOK_PREFIX_FIRST] = "first",
};

#define FIELD(name) offsetof(struct tok_spec, name)

static const struct {
    const char *key;
    size_t field; /* an i64 */
} id_keys[] = {
    {"tokenizer.ggml.bos_token_id", FIELD(bos)},
    {"tokenizer.ggml.eos_token_id", FIELD(eos)},
    {"tokenizer.ggml.eot_token_id", FIELD(eot)},
    {"tokenizer.ggml.eom_token_id", FIELD(eom)},
    {"tokenizer.ggml.unknown_token_id", FIELD(unk)},
    {"tokenizer.ggml.padding_token_id", FIELD(pad)},
};

static const struct {
    const char *key;
    size_t field; /* an int: 0, 1, or -1 unsaid */
} flag_keys[] = {
    {"tokenizer.ggml.add_bos_token", FIELD(add_bos)},
    {"tokenizer.ggml.add_eos_token", FIELD(add_eos)},
    {"tokenizer.fletch.ignore_merges", FIELD(ignore_merges)},
};

static i64 *id_field(struct tok_spec *spec, size_t i)
{
    return (i64 *)(void *)((char *)spec + id_keys[i].field);
}

static int *flag_field(struct tok_spec *spec, size_t i)
{
    return (int *)(void *)((char *)spec + flag_keys[i].field);
}

/* From GGUF metadata */

static int wrong(const char *key, const char *what, struct err *err)
{
    return err_set(err, FLETCH_E_FORMAT, "metadata key %s %s", key, what);
}

static int load_strs(struct vocab *v, const struct source *s, const char *key, u32 *n,
                     const struct str **out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    u64 at = 0;
    if (!kv) return SOURCE_ABSENT;
    if (kv->type != KV_ARRAY || kv->elem != KV_STR)
        return wrong(key, "is not an array of strings", err);
    if (kv->n > MAX_TOKENS) return wrong(key, "has more than 2^24 entries", err);
    struct kv copy = *kv;
    copy.data = (const u8 *)arena_copy(&v->arena,
                                       (struct str){(const char *)kv->data, (size_t)kv->n_bytes});
    struct str *strs = arena_alloc(&v->arena, (size_t)kv->n, sizeof *strs);
    if (!copy.data || !strs) return err_nomem(err, "the vocabulary");
    for (u64 i = 0; i < kv->n; i++)
        if (!kv_next_str(&copy, &at, &strs[i])) return wrong(key, "is damaged", err);
    *n = (u32)kv->n;
    *out = strs;
    return 0;
}

static int load_types(struct vocab *v, const struct source *s, struct err *err)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct kv *kv = source_kv(s, key);
    u32 n = v->spec.n_tokens;
    if (!kv) return 0;
    if (kv->type != KV_ARRAY || kv->n < n) return wrong(key, "is shorter than the tokens", err);
    u8 *types = arena_alloc(&v->arena, n, 1);
    if (!types) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n; i++) {
        i64 t;
        if (!kv_int(kv, i, &t)) return wrong(key, "is not an array of integers", err);
        types[i] = (u8)(t >= TOK_NORMAL && t <= TOK_BYTE ? t : TOK_UNUSED);
    }
    v->spec.types = types;
    return 0;
}

static int load_scores(struct vocab *v, const struct source *s, struct err *err)
{
    const char *key = "tokenizer.ggml.scores";
    const struct kv *kv = source_kv(s, key);
    u32 n = v->spec.n_tokens;
    if (!kv || v->spec.kind != TOK_SPM) return 0;
    if (kv->type != KV_ARRAY || kv->n < n) return wrong(key, "is shorter than the tokens", err);
    float *scores = arena_alloc(&v->arena, n, sizeof *scores);
    if (!scores) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n; i++) {
        double d;
        if (!kv_float(kv, i, &d) || d != d) return wrong(key, "is not an array of numbers", err);
        scores[i] = (float)d;
    }
    v->spec.scores = scores;
    return 0;
}

/* A string from a small fixed set; *out stays when the key is absent. */
static int load_name(const struct source *s, const char *key, const char *const *names, u32 n,
                     u32 *out, struct err *err)
{
    struct str name;
    int rc = source_get_str(s, key, &name, err);
    if (rc) return MIN(rc, 0);
    for (u32 i = 0; i < n; i++)
        if (str_is(name, names[i])) {
            *out = i;
            return 0;
        }
    return err_set(err, FLETCH_E_UNSUPPORTED, "metadata key %s: %s is not known", key, QUOTE(name));
}

static int load_text(struct vocab *v, const struct source *s, const char *key, struct str *out,
                     struct err *err)
{
    struct str text;
    int rc = source_get_str(s, key, &text, err);
    if (rc) return MIN(rc, 0);
    *out = (struct str){arena_copy(&v->arena, text), text.n};
    return out->p ? 0 : err_nomem(err, key);
}

static int load_flags(struct vocab *v, const struct source *s, struct err *err)
{
    struct tok_spec *spec = &v->spec;
    u32 norm = spec->norm, prefix = UINT32_MAX;
    bool flag;
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(id_keys); i++) {
        const struct kv *kv = source_kv(s, id_keys[i].key);
        i64 id;
        if (!kv) continue;
        if (kv->type == KV_ARRAY || !kv_int(kv, 0, &id))
            return wrong(id_keys[i].key, "is not an integer", err);
        *id_field(spec, i) = id >= 0 && id < spec->n_tokens ? id : -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(flag_keys) && rc >= 0; i++) {
        rc = source_get_bool(s, flag_keys[i].key, &flag, err);
        if (rc == 0) *flag_field(spec, i) = flag;
    }
    if (rc >= 0) rc = source_get_bool(s, "tokenizer.ggml.add_space_prefix", &flag, err);
    if (rc == 0) spec->add_space_prefix = flag ? TOK_PREFIX_ALWAYS : TOK_PREFIX_NEVER;
    if (rc >= 0)
        rc = load_name(s, "tokenizer.fletch.space_prefix", prefix_names, ARRAY_LEN(prefix_names),
                       &prefix, err);
    if (rc == 0 && prefix != UINT32_MAX) spec->add_space_prefix = (int)prefix;
    if (rc == 0)
        rc = load_name(s, "tokenizer.fletch.normalizer", norm_names, ARRAY_LEN(norm_names), &norm,
                       err);
    spec->norm = (enum tok_norm)norm;
    return rc;
}

/* SPM files often carry merges that other engines ignore, so ours have a key of their own. */
static const char *merges_key(enum tok_kind kind)
{
    return kind == TOK_SPM ? "tokenizer.fletch.merges" : "tokenizer.ggml.merges";
}

static int load_gguf(struct vocab *v, const struct source *s, struct err *err)
{
    struct tok_spec *spec = &v->spec;
    struct str model;
    size_t k = 0;
    int rc = source_get_str(s, "tokenizer.ggml.model", &model, err);
    if (rc) return MIN(rc, 0);
    while (k < ARRAY_LEN(kinds) && !str_is(model, kinds[k].name)) k++;
    if (k == ARRAY_LEN(kinds))
        return err_set(err, FLETCH_E_UNSUPPORTED, "tokenizer model %s is not supported",
                       QUOTE(model));
    spec->kind = kinds[k].kind;
    if (spec->kind == TOK_NONE) return 0;
    rc = load_strs(v, s, "tokenizer.ggml.tokens", &spec->n_tokens, &spec->tokens, err);
    if (rc == SOURCE_ABSENT || (rc == 0 && spec->n_tokens == 0))
        return wrong("tokenizer.ggml.tokens", "is missing or empty", err);
    if (rc == 0) rc = load_types(v, s, err);
    if (rc == 0) rc = load_scores(v, s, err);
    if (rc == 0)
        rc = MIN(load_strs(v, s, merges_key(spec->kind), &spec->n_merges, &spec->merges, err), 0);
    if (rc == 0) rc = load_text(v, s, "tokenizer.ggml.pre", &spec->pre, err);
    if (rc == 0) rc = load_text(v, s, "tokenizer.chat_template", &spec->chat_template, err);
    if (rc) return rc;
    tok_spec_gguf_ids(spec);
    return load_flags(v, s, err);
}

/* From a Hugging Face directory */

/* Leaves *out alone when there is no such file. */
static int read_json(struct vocab *v, const struct source *s, const char *name, size_t max,
                     json_t **out, struct err *err)
{
    char *path = arena_printf(&v->arena, "%s/%s", s->path, name);
    if (!path) return err_nomem(err, name);
    return file_exists(path) ? json_read(out, path, max, err) : 0;
}

static int read_text(struct vocab *v, const struct source *s, const char *name, struct str *out,
                     struct err *err)
{
    char *path = arena_printf(&v->arena, "%s/%s", s->path, name), *text;
    size_t n;
    if (!path) return err_nomem(err, name);
    if (!file_exists(path)) return 0;
    int rc = file_read(&text, &n, path, MAX_SMALL, err);
    if (rc) return rc;
    *out = (struct str){arena_copy(&v->arena, (struct str){text, n}), n};
    free(text);
    return out->p ? 0 : err_nomem(err, name);
}

static int add_end(struct tok_spec *spec, const json_t *v, struct err *err)
{
    json_int_t id = json_integer_value(v);
    i64 *ends[] = {&spec->eos, &spec->eot, &spec->eom};
    if (!json_is_integer(v) || id < 0 || id >= spec->n_tokens)
        return err_set(err, FLETCH_E_FORMAT, "eos_token_id is not an id of the vocabulary");
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (*ends[i] < 0) *ends[i] = id;
        if (*ends[i] == id) return 0;
    }
    return err_set(err, FLETCH_E_UNSUPPORTED,
                   "eos_token_id lists more than three ids that end generation");
}

/* What ends generation: the tokenizer's eos, and all ids that generation_config.json (or else
 * config.json) lists. */
static int read_ends(struct vocab *v, const struct source *s, struct err *err)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    bool found = false;
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0 && !found; i++) {
        json_t *root = NULL;
        rc = read_json(v, s, names[i], MAX_SMALL, &root, err);
        const json_t *ids = json_object_get(root, "eos_token_id");
        found = ids && !json_is_null(ids);
        if (found && !json_is_array(ids)) rc = add_end(&v->spec, ids, err);
        for (size_t k = 0; k < json_array_size(ids) && rc == 0; k++)
            rc = add_end(&v->spec, json_array_get(ids, k), err);
        if (rc && found) err_prefix(err, "%s", names[i]);
        json_decref(root);
    }
    return rc;
}

int vocab_pad(struct tok_spec *spec, struct arena *arena, u32 n, struct err *err)
{
    if (n == spec->n_tokens) return 0;
    if (n < spec->n_tokens)
        return err_set(err, FLETCH_E_FORMAT, "the tokenizer has %u tokens, the model only %u",
                       spec->n_tokens, n);
    struct str *tokens = arena_alloc(arena, n, sizeof *tokens);
    u8 *types = arena_alloc(arena, n, 1);
    float *scores = spec->scores ? arena_alloc(arena, n, sizeof *scores) : NULL;
    if (!tokens || !types || (spec->scores && !scores)) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n; i++) {
        bool old = i < spec->n_tokens;
        char *pad = old ? NULL : arena_printf(arena, "[PAD%u]", i);
        if (!old && !pad) return err_nomem(err, "the vocabulary");
        tokens[i] = old ? spec->tokens[i] : str_of(pad);
        types[i] = !old ? TOK_UNUSED : spec->types ? spec->types[i] : TOK_NORMAL;
        if (scores && old) scores[i] = spec->scores[i];
    }
    spec->tokens = tokens;
    spec->types = types;
    spec->scores = scores;
    spec->n_tokens = n;
    return 0;
}

static int declared_size(struct vocab *v, const struct source *s, u32 *n, struct err *err)
{
    struct str arch = {0};
    int rc = source_get_str(s, "general.architecture", &arch, err);
    char *key = arena_printf(&v->arena, "%.*s.vocab_size", (int)MIN(arch.n, 64u), arch.p);
    if (rc == 0) rc = key ? source_get_u32(s, key, n, err) : err_nomem(err, "the vocabulary");
    if (rc == 0 && *n > MAX_TOKENS)
        rc = err_set(err, FLETCH_E_LIMIT, "a vocabulary of %u tokens; the limit is 2^24", *n);
    return MIN(rc, 0);
}

static int load_world(struct vocab *v, struct str world, const json_t *config, struct str chat,
                      u32 n, struct err *err)
{
    const json_t *value = json_object_get(config, "chat_template");
    struct str text = {json_string_value(value), json_string_length(value)};
    if (text.p && !chat.p) {
        chat = (struct str){arena_copy(&v->arena, text), text.n};
        if (!chat.p) return err_nomem(err, "the chat template");
    }
    v->spec.chat_template = chat;
    return vocab_read_rwkv(&v->spec, &v->arena, world, n, err);
}

static int load_dir(struct vocab *v, const struct source *s, struct err *err)
{
    json_t *tokenizer = NULL, *config = NULL;
    struct str chat = {0}, world = {0};
    u32 n = 0;
    int rc = declared_size(v, s, &n, err);
    if (rc == 0) rc = read_json(v, s, "tokenizer.json", MAX_TOKENIZER, &tokenizer, err);
    if (rc == 0) rc = read_json(v, s, "tokenizer_config.json", MAX_SMALL, &config, err);
    if (rc == 0) rc = read_text(v, s, "chat_template.jinja", &chat, err);
    if (rc == 0 && !tokenizer) rc = read_text(v, s, "rwkv_vocab_v20230424.txt", &world, err);
    if (rc == 0 && tokenizer) {
        rc = tok_spec_from_json(&v->spec, &v->arena, tokenizer, config, chat, err);
        if (rc == 0 && n) rc = vocab_pad(&v->spec, &v->arena, n, err);
        if (rc == 0) rc = read_ends(v, s, err);
    } else if (rc == 0 && world.p) {
        rc = load_world(v, world, config, chat, n, err);
    }
    json_decref(config);
    json_decref(tokenizer);
    return rc;
}

int vocab_load(struct vocab **out, const struct source *s, struct err *err)
{
    struct vocab *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return err_nomem(err, "the vocabulary");
    tok_spec_init(&v->spec);
    int rc = s->is_dir ? load_dir(v, s, err) : load_gguf(v, s, err);
    if (rc == 0 && v->spec.kind != TOK_NONE) rc = tok_open(&v->tok, &v->spec, err);
    if (rc) {
        vocab_close(v);
        return rc;
    }
    *out = v;
    return 0;
}

void vocab_close(struct vocab *v)
{
    if (!v) return;
    tok_close(v->tok);
    arena_free(&v->arena);
    free(v);
}

/* To GGUF metadata */

static int put_types(const struct tok_spec *spec, struct source *s, struct err *err)
{
    if (!spec->types) return 0;
    u32 n = spec->n_tokens;
    i32 *types = malloc(n * sizeof *types);
    if (!types) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n; i++) types[i] = spec->types[i];
    int rc =
        source_add_array(s, "tokenizer.ggml.token_type", KV_I32, n, types, n * sizeof *types, err);
    free(types);
    return rc;
}

/* An id that is unset here but not by default is written as one that no vocabulary has. */
static int put_ids(struct tok_spec *spec, struct source *s, struct err *err)
{
    struct tok_spec unsaid = *spec;
    int rc = 0;
    tok_spec_gguf_ids(&unsaid);
    for (size_t i = 0; i < ARRAY_LEN(id_keys) && rc == 0; i++) {
        i64 id = *id_field(spec, i);
        bool set = id >= 0 && id < spec->n_tokens;
        if (set || *id_field(&unsaid, i) >= 0)
            rc = source_add_u32(s, id_keys[i].key, set ? (u32)id : UINT32_MAX, err);
    }
    return rc;
}

static int put_flags(struct tok_spec *spec, struct source *s, struct err *err)
{
    int rc = 0, prefix = spec->add_space_prefix;
    for (size_t i = 0; i < ARRAY_LEN(flag_keys) && rc == 0; i++) {
        int flag = *flag_field(spec, i);
        if (flag >= 0) rc = source_add_bool(s, flag_keys[i].key, flag, err);
    }
    if (rc == 0 && prefix >= 0)
        rc = source_add_bool(s, "tokenizer.ggml.add_space_prefix", prefix != TOK_PREFIX_NEVER, err);
    if (rc == 0 && prefix > TOK_PREFIX_ALWAYS)
        rc = source_add_str(s, "tokenizer.fletch.space_prefix", str_of(prefix_names[prefix]), err);
    if (rc == 0 && spec->norm != TOK_NORM_NONE)
        rc = source_add_str(s, "tokenizer.fletch.normalizer", str_of(norm_names[spec->norm]), err);
    return rc;
}

int vocab_to_source(const struct vocab *v, struct source *s, struct err *err)
{
    struct tok_spec spec = v->spec;
    size_t k = 0;
    while (kinds[k].kind != spec.kind) k++;
    int rc = source_add_str(s, "tokenizer.ggml.model", str_of(kinds[k].name), err);
    if (rc || spec.kind == TOK_NONE) return rc;
    if (spec.pre.n) rc = source_add_str(s, "tokenizer.ggml.pre", spec.pre, err);
    if (rc == 0) rc = source_add_strs(s, "tokenizer.ggml.tokens", spec.n_tokens, spec.tokens, err);
    if (rc == 0) rc = put_types(&spec, s, err);
    if (rc == 0 && spec.scores)
        rc = source_add_array(s, "tokenizer.ggml.scores", KV_F32, spec.n_tokens, spec.scores,
                              spec.n_tokens * sizeof *spec.scores, err);
    if (rc == 0 && spec.n_merges)
        rc = source_add_strs(s, merges_key(spec.kind), spec.n_merges, spec.merges, err);
    if (rc == 0) rc = put_ids(&spec, s, err);
    if (rc == 0) rc = put_flags(&spec, s, err);
    if (rc == 0 && spec.chat_template.p)
        rc = source_add_str(s, "tokenizer.chat_template", spec.chat_template, err);
    return rc;
}
