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
    MAX_ENDS = 1024, /* ids that end generation */
};

/* SentencePiece's pieces, merged in the order of a list: what others of that kind have in a key of
 * ours, is in the usual one here. */
#define GEMMA4 "gemma4"

static const struct {
    enum tok_kind kind;
    const char *name;
} kinds[] = {
    {TOK_NONE, "none"}, {TOK_NONE, "no_vocab"}, {TOK_SPM, "llama"}, {TOK_BPE, "gpt2"},
    {TOK_RWKV, "rwkv"}, {TOK_UNIGRAM, "t5"},    {TOK_SPM, GEMMA4},
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

enum { ANY_KIND = ~0u };

static const struct {
    const char *key;
    size_t field;   /* an i64 */
    unsigned kinds; /* bits: of enum tok_kind, where an id outside the vocabulary is refused */
} id_keys[] = {
    {"tokenizer.ggml.bos_token_id", FIELD(bos), ANY_KIND},
    {"tokenizer.ggml.eos_token_id", FIELD(eos), ANY_KIND},
    {"tokenizer.ggml.eot_token_id", FIELD(eot), ANY_KIND},
    {"tokenizer.ggml.eom_token_id", FIELD(eom), ANY_KIND},
    {"tokenizer.ggml.unknown_token_id", FIELD(unk), 1u << TOK_SPM | 1u << TOK_UNIGRAM},
    {"tokenizer.ggml.padding_token_id", FIELD(pad), 0}, /* only training pads */
};

static const struct {
    const char *key;
    size_t field; /* an int: 0, 1, or -1 unsaid */
} flag_keys[] = {
    {"tokenizer.ggml.add_bos_token", FIELD(add_bos)},
    {"tokenizer.ggml.add_eos_token", FIELD(add_eos)},
    {"tokenizer.fletch.ignore_merges", FIELD(ignore_merges)},
    {"tokenizer.fletch.strip_space", FIELD(strip_space)},
    {"tokenizer.fletch.fuse_unk", FIELD(fuse_unk)},
};

/* Steps as tokenizer.json has them; SentencePiece's are made of GGUF's own keys where they can be.
 */
#define NORMALIZER_KEY    "tokenizer.fletch.normalizer_steps"
#define PRE_TOKENIZER_KEY "tokenizer.fletch.pre_tokenizer_steps"
#define SYMBOLS_KEY       "tokenizer.fletch.n_symbols"
#define TOKEN_FLAGS_KEY   "tokenizer.fletch.token_flags"
#define BEFORE_KEY        "tokenizer.fletch.tokens_before"
#define AFTER_KEY         "tokenizer.fletch.tokens_after"

/* Ids that end generation, where there are more than the keys of single ids can name. */
#define ENDS_KEY "tokenizer.ggml.eos_token_ids"

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
    if (kv->type != KV_ARRAY || kv->n != n) return wrong(key, "must have one entry per token", err);
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
    if (!kv || (v->spec.kind != TOK_SPM && v->spec.kind != TOK_UNIGRAM)) return 0;
    if (kv->type != KV_ARRAY || kv->n != n) return wrong(key, "must have one entry per token", err);
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
    return err_set(err, FLETCH_E_UNSUPPORTED, "metadata key %s: unknown value %s", key,
                   QUOTE(name));
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

/* An array of small integers; *n stays 0 when the key is absent. */
static int load_ints(struct vocab *v, const struct source *s, const char *key, i64 max, u32 *n,
                     i32 **out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    if (!kv) return 0;
    if (kv->type != KV_ARRAY || kv->n > v->spec.n_tokens)
        return wrong(key, "must be an array of integers, one per token", err);
    i32 *p = arena_alloc(&v->arena, (size_t)kv->n, sizeof *p);
    if (!p) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < kv->n; i++) {
        i64 value;
        if (!kv_int(kv, i, &value) || value < 0 || value > max)
            return wrong(key, "contains a value out of range", err);
        p[i] = (i32)value;
    }
    *n = (u32)kv->n;
    *out = p;
    return 0;
}

/* What tokenizer.json can say and GGUF has no keys for. */
static int load_steps(struct vocab *v, const struct source *s, struct err *err)
{
    struct tok_spec *spec = &v->spec;
    i32 *flags = NULL, *before = NULL, *after = NULL;
    u32 n_flags = 0;
    i64 last = (i64)spec->n_tokens - 1;
    int rc = load_text(v, s, NORMALIZER_KEY, &spec->normalizer, err);
    if (rc == 0) rc = load_text(v, s, PRE_TOKENIZER_KEY, &spec->pre_tokenizer, err);
    if (rc == 0) rc = MIN(source_get_u32(s, SYMBOLS_KEY, &spec->n_symbols, err), 0);
    if (rc == 0) rc = load_ints(v, s, BEFORE_KEY, last, &spec->n_before, &before, err);
    if (rc == 0) rc = load_ints(v, s, AFTER_KEY, last, &spec->n_after, &after, err);
    if (rc == 0) rc = load_ints(v, s, TOKEN_FLAGS_KEY, UINT8_MAX, &n_flags, &flags, err);
    if (rc) return rc;
    spec->before = before;
    spec->after = after;
    if (!n_flags) return 0;
    u8 *bytes = arena_alloc(&v->arena, spec->n_tokens, 1);
    if (!bytes) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < n_flags; i++) bytes[i] = (u8)flags[i];
    spec->token_flags = bytes;
    return 0;
}

static int load_ends(struct vocab *v, const struct source *s, struct err *err)
{
    i32 *ends = NULL;
    i64 last = (i64)v->spec.n_tokens - 1;
    int rc = load_ints(v, s, ENDS_KEY, last, &v->spec.n_ends, &ends, err);
    v->spec.ends = ends;
    return rc;
}

/* Other engines' Unigram files: SentencePiece's normalizer, from three keys. */
static int load_unigram(struct vocab *v, const struct source *s, struct err *err)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct kv *kv = source_kv(s, key);
    struct vocab_spm_norm norm = {.dummy_prefix = true, .remove_extra_spaces = true};
    if (v->spec.normalizer.p) return 0;
    if (kv && (kv->type != KV_ARRAY || kv_size(kv->elem) != 1 || kv->n > MAX_SMALL))
        return wrong(key, "is not an array of bytes", err);
    if (kv) norm.charsmap = (struct str){(const char *)kv->data, (size_t)kv->n};
    int rc = source_get_bool(s, "tokenizer.ggml.add_space_prefix", &norm.dummy_prefix, err);
    if (rc >= 0)
        rc = source_get_bool(s, "tokenizer.ggml.remove_extra_whitespaces",
                             &norm.remove_extra_spaces, err);
    if (rc < 0) return rc;
    v->spec.add_space_prefix = TOK_PREFIX_NEVER;
    v->spec.strip_space = norm.dummy_prefix;
    return vocab_spm_normalizer(&v->spec, &v->arena, &norm, err);
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
        bool unset = id == -1 || id == UINT32_MAX; /* how converters write "none" */
        bool known = id >= 0 && id < spec->n_tokens;
        if (!known && !unset && (id_keys[i].kinds >> spec->kind & 1))
            source_refuse(s, "metadata key '%s' = %lld (there are %u tokens)", id_keys[i].key,
                          (long long)id, spec->n_tokens);
        *id_field(spec, i) = known ? id : -1;
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
static const char *merges_key(const char *model)
{
    return strcmp(model, "llama") == 0 ? "tokenizer.fletch.merges" : "tokenizer.ggml.merges";
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
    bool gemma4 = str_is(model, GEMMA4);
    if (gemma4) spec->add_space_prefix = TOK_PREFIX_NEVER;
    rc = load_strs(v, s, "tokenizer.ggml.tokens", &spec->n_tokens, &spec->tokens, err);
    if (rc == SOURCE_ABSENT || (rc == 0 && spec->n_tokens == 0))
        return wrong("tokenizer.ggml.tokens", "is missing or empty", err);
    if (rc == 0) rc = load_types(v, s, err);
    if (rc == 0) rc = load_scores(v, s, err);
    if (rc == 0)
        rc = load_strs(v, s, merges_key(kinds[k].name), &spec->n_merges, &spec->merges, err);
    if (rc == SOURCE_ABSENT && (spec->kind == TOK_BPE || gemma4))
        return wrong(merges_key(kinds[k].name), "is missing, but it is needed to split text", err);
    rc = MIN(rc, 0);
    if (rc == 0) rc = load_text(v, s, "tokenizer.ggml.pre", &spec->pre, err);
    if (rc == 0) rc = load_text(v, s, "tokenizer.chat_template", &spec->chat_template, err);
    if (rc) return rc;
    tok_spec_gguf_ids(spec);
    rc = load_flags(v, s, err);
    if (rc == 0 && gemma4) spec->add_bos = 1; /* whatever the file says: others do so too */
    if (rc == 0) rc = load_ends(v, s, err);
    if (rc == 0) rc = load_steps(v, s, err);
    return rc || spec->kind != TOK_UNIGRAM ? rc : load_unigram(v, s, err);
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

static int read_text(struct vocab *v, const struct source *s, const char *name, size_t max,
                     struct str *out, struct err *err)
{
    char *path = arena_printf(&v->arena, "%s/%s", s->path, name), *text;
    size_t n;
    if (!path) return err_nomem(err, name);
    if (!file_exists(path)) return 0;
    int rc = file_read(&text, &n, path, max, err);
    if (rc) return rc;
    *out = (struct str){arena_copy(&v->arena, (struct str){text, n}), n};
    free(text);
    return out->p ? 0 : err_nomem(err, name);
}

/* The first three ids have keys of their own in GGUF; the list takes the others. */
static int add_end(struct vocab *v, const json_t *id_value, struct err *err)
{
    struct tok_spec *spec = &v->spec;
    json_int_t id = json_integer_value(id_value);
    i64 *named[] = {&spec->eos, &spec->eot, &spec->eom};
    if (json_is_integer(id_value) && id == -1) return 0; /* how some write "none" */
    if (!json_is_integer(id_value) || id < 0 || id >= spec->n_tokens)
        return err_set(err, FLETCH_E_FORMAT, "eos_token_id is not in the vocabulary");
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        if (*named[i] < 0) *named[i] = id;
        if (*named[i] == id) return 0;
    }
    for (u32 i = 0; i < spec->n_ends; i++)
        if (spec->ends[i] == id) return 0;
    if (spec->n_ends >= MAX_ENDS)
        return err_set(err, FLETCH_E_LIMIT, "eos_token_id lists more than %d ids", MAX_ENDS);
    i32 *ends = arena_alloc(&v->arena, spec->n_ends + 1, sizeof *ends);
    if (!ends) return err_nomem(err, "the vocabulary");
    if (spec->n_ends) memcpy(ends, spec->ends, spec->n_ends * sizeof *ends);
    ends[spec->n_ends++] = (i32)id;
    spec->ends = ends;
    return 0;
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
        if (!ids) ids = json_object_get(json_object_get(root, "text_config"), "eos_token_id");
        found = ids && !json_is_null(ids);
        if (found && !json_is_array(ids)) rc = add_end(v, ids, err);
        for (size_t k = 0; k < json_array_size(ids) && rc == 0; k++)
            rc = add_end(v, json_array_get(ids, k), err);
        if (rc && found) err_prefix(err, "%s", names[i]);
        json_decref(root);
    }
    return rc;
}

/* Drops the tokens that the model has no row for. Only added tokens may lie there, such as the
 * padding of a training run whose model was never resized: their text is cut like any other. */
static int drop_tokens(struct tok_spec *spec, u32 n, struct err *err)
{
    const i64 used[] = {spec->bos, spec->eos, spec->eot, spec->eom};
    bool fits = spec->types != NULL;
    for (u32 i = n; i < spec->n_tokens && fits; i++)
        fits = spec->types[i] == TOK_CONTROL || spec->types[i] == TOK_USER ||
               spec->types[i] == TOK_UNUSED;
    for (size_t i = 0; i < ARRAY_LEN(used); i++) fits &= used[i] < n;
    if (!fits)
        return err_set(err, FLETCH_E_FORMAT, "the tokenizer has %u tokens, but the model only %u",
                       spec->n_tokens, n);
    spec->n_tokens = n;
    return 0;
}

int vocab_resize(struct tok_spec *spec, struct arena *arena, u32 n, struct err *err)
{
    if (n == spec->n_tokens) return 0;
    if (n < spec->n_tokens) return drop_tokens(spec, n, err);
    struct str *tokens = arena_alloc(arena, n, sizeof *tokens);
    u8 *types = arena_alloc(arena, n, 1);
    float *scores = spec->scores ? arena_alloc(arena, n, sizeof *scores) : NULL;
    u8 *flags = spec->token_flags ? arena_alloc(arena, n, 1) : NULL;
    if (spec->token_flags && !flags) return err_nomem(err, "the vocabulary");
    if (flags) memcpy(flags, spec->token_flags, spec->n_tokens);
    spec->token_flags = flags;
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

/* A directory's tokenizer files. */
struct dir_files {
    json_t *tokenizer, *config, *added, *special_map;
    struct str chat;
};

static int read_dir_files(struct vocab *v, const struct source *s, struct dir_files *f,
                          struct err *err)
{
    int rc = read_json(v, s, "tokenizer.json", MAX_TOKENIZER, &f->tokenizer, err);
    if (rc == 0) rc = read_json(v, s, "tokenizer_config.json", MAX_SMALL, &f->config, err);
    if (rc == 0) rc = read_text(v, s, "chat_template.jinja", MAX_SMALL, &f->chat, err);
    if (rc || f->tokenizer) return rc;
    rc = read_json(v, s, "added_tokens.json", MAX_SMALL, &f->added, err);
    if (rc == 0) rc = read_json(v, s, "special_tokens_map.json", MAX_SMALL, &f->special_map, err);
    return rc;
}

static struct tok_files files_beside(const struct dir_files *f)
{
    return (struct tok_files){.config = f->config,
                              .added = f->added,
                              .special_map = f->special_map,
                              .chat_template = f->chat};
}

/* A SentencePiece model. Its spaces go before the text, and unless the config says that "legacy" is
 * false, after every special token. What stands around a text is the class's choice where the
 * config is silent: eos after it for T5, bos before it for Llama and its like. */
static int load_spm(struct vocab *v, const struct dir_files *f, struct str file, struct err *err)
{
    const json_t *legacy = json_object_get(f->config, "legacy");
    struct tok_files beside = files_beside(f);
    int rc = vocab_read_spm(&v->spec, &v->arena, file, json_is_false(legacy), err);
    if (rc) return err_prefix(err, "tokenizer.model");
    const char *class = json_string_value(json_object_get(f->config, "tokenizer_class"));
    v->spec.add_eos = class && str_starts(str_of(class), "T5");
    v->spec.add_bos = !v->spec.add_eos;
    return tok_spec_read_beside(&v->spec, &v->arena, &beside, err);
}

/* vocab.json and merges.txt, where both are there and the config names a class that is known; else
 * the spec stays without a kind. */
static int load_merges(struct vocab *v, const struct source *s, const struct dir_files *f,
                       struct err *err)
{
    struct tok_files beside = files_beside(f);
    struct str merges = {0};
    json_t *vocab = NULL;
    if (!vocab_knows_class(f->config)) return 0;
    int rc = read_text(v, s, "merges.txt", MAX_TOKENIZER, &merges, err);
    if (rc == 0 && merges.p) rc = read_json(v, s, "vocab.json", MAX_TOKENIZER, &vocab, err);
    if (rc == 0 && vocab) rc = vocab_read_merges(&v->spec, &v->arena, vocab, merges, &beside, err);
    json_decref(vocab);
    return rc;
}

/* Files that hold vocabularies in forms that are not read. */
static int refuse_other_files(struct vocab *v, const struct source *s, struct err *err)
{
    static const char *const names[] = {"tiktoken.model",
                                        "vocab.txt",
                                        "tekken.json",
                                        "vocab.json",
                                        "tokenizer.tiktoken",
                                        "spiece.model",
                                        "sentencepiece.bpe.model"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = arena_printf(&v->arena, "%s/%s", s->path, names[i]);
        if (!path) return err_nomem(err, names[i]);
        if (file_exists(path))
            return err_set(err, FLETCH_E_UNSUPPORTED,
                           "%s contains a vocabulary in %s, which is not supported; add a "
                           "tokenizer.json, as written by save_pretrained of transformers",
                           QUOTE(str_of(s->path)), names[i]);
    }
    return 0;
}

/* A directory that was opened for its text, and has none. */
static int refuse_empty(struct vocab *v, const struct source *s, struct err *err)
{
    char *path = arena_printf(&v->arena, "%s/config.json", s->path);
    if (!path) return err_nomem(err, "the vocabulary");
    if (!s->text_only || file_exists(path)) return 0; /* a model of ids alone */
    return err_set(err, FLETCH_E_FORMAT,
                   "there is neither a tokenizer.json nor a tokenizer.model, and no config.json; a "
                   "model is a .gguf file or a Hugging Face directory");
}

static int load_dir(struct vocab *v, const struct source *s, struct err *err)
{
    struct dir_files f = {0};
    struct str world = {0}, spm = {0};
    u32 n = 0;
    int rc = declared_size(v, s, &n, err);
    if (rc == 0) rc = read_dir_files(v, s, &f, err);
    if (rc == 0 && !f.tokenizer)
        rc = read_text(v, s, "rwkv_vocab_v20230424.txt", MAX_SMALL, &world, err);
    if (rc == 0 && !f.tokenizer && !world.p)
        rc = read_text(v, s, "tokenizer.model", MAX_TOKENIZER, &spm, err);
    if (rc == 0 && world.p)
        rc = load_world(v, world, f.config, f.chat, n, err);
    else if (rc == 0 && f.tokenizer)
        rc = tok_spec_from_json(&v->spec, &v->arena, f.tokenizer, f.config, f.chat, err);
    else if (rc == 0 && spm.p)
        rc = load_spm(v, &f, spm, err);
    else if (rc == 0)
        rc = load_merges(v, s, &f, err);
    if (rc == 0 && v->spec.kind == TOK_NONE) {
        rc = refuse_other_files(v, s, err);
        if (rc == 0) rc = refuse_empty(v, s, err);
    } else if (rc == 0 && !world.p) {
        if (n) rc = vocab_resize(&v->spec, &v->arena, n, err);
        if (rc == 0) rc = read_ends(v, s, err);
    }
    json_decref(f.config);
    json_decref(f.tokenizer);
    json_decref(f.added);
    json_decref(f.special_map);
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

static int put_steps(const struct tok_spec *spec, struct source *s, struct err *err)
{
    int rc = 0;
    if (spec->normalizer.p) rc = source_add_str(s, NORMALIZER_KEY, spec->normalizer, err);
    if (rc == 0 && spec->pre_tokenizer.p)
        rc = source_add_str(s, PRE_TOKENIZER_KEY, spec->pre_tokenizer, err);
    if (rc == 0 && spec->n_symbols) rc = source_add_u32(s, SYMBOLS_KEY, spec->n_symbols, err);
    if (rc == 0 && spec->token_flags)
        rc = source_add_array(s, TOKEN_FLAGS_KEY, KV_U8, spec->n_tokens, spec->token_flags,
                              spec->n_tokens, err);
    if (rc == 0 && spec->n_ends)
        rc = source_add_array(s, ENDS_KEY, KV_I32, spec->n_ends, spec->ends,
                              spec->n_ends * sizeof *spec->ends, err);
    if (rc == 0 && spec->n_before)
        rc = source_add_array(s, BEFORE_KEY, KV_I32, spec->n_before, spec->before,
                              spec->n_before * sizeof *spec->before, err);
    if (rc == 0 && spec->n_after)
        rc = source_add_array(s, AFTER_KEY, KV_I32, spec->n_after, spec->after,
                              spec->n_after * sizeof *spec->after, err);
    return rc;
}

int vocab_to_source(const struct vocab *v, struct source *s, struct err *err)
{
    struct tok_spec spec = v->spec;
    struct str arch = {0};
    size_t k = 0;
    bool gemma4 = spec.kind == TOK_SPM && spec.n_merges &&
                  source_get_str(s, "general.architecture", &arch, NULL) == 0 &&
                  str_is(arch, "gemma4");
    while (kinds[k].kind != spec.kind || (gemma4 && strcmp(kinds[k].name, GEMMA4) != 0)) k++;
    int rc = source_add_str(s, "tokenizer.ggml.model", str_of(kinds[k].name), err);
    if (rc || spec.kind == TOK_NONE) return rc;
    if (spec.pre.n) rc = source_add_str(s, "tokenizer.ggml.pre", spec.pre, err);
    if (rc == 0) rc = source_add_strs(s, "tokenizer.ggml.tokens", spec.n_tokens, spec.tokens, err);
    if (rc == 0) rc = put_types(&spec, s, err);
    if (rc == 0 && spec.scores)
        rc = source_add_array(s, "tokenizer.ggml.scores", KV_F32, spec.n_tokens, spec.scores,
                              spec.n_tokens * sizeof *spec.scores, err);
    if (rc == 0 && (spec.n_merges || spec.kind == TOK_BPE))
        rc = source_add_strs(s, merges_key(kinds[k].name), spec.n_merges, spec.merges, err);
    if (rc == 0) rc = put_ids(&spec, s, err);
    if (rc == 0) rc = put_flags(&spec, s, err);
    if (rc == 0) rc = put_steps(&spec, s, err);
    if (rc == 0 && spec.chat_template.p)
        rc = source_add_str(s, "tokenizer.chat_template", spec.chat_template, err);
    return rc;
}
