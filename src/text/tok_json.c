/* Vocabularies from Hugging Face's tokenizer.json and tokenizer_config.json. What these describe
 * step by step (normaliser, pre-tokenizer, post-processor) is recognised as one of the kinds we
 * have; a step that we would do differently is refused by name. */
#include "text/tok_internal.h"

#include <stdio.h>
#include <string.h>

/* Ids may leave gaps (filled with [PADn]), but not so many that a few bytes of JSON cost
 * gigabytes. */
enum { MAX_GAPS = 1 << 16 };

struct reader {
    struct tok_spec *spec;
    struct arena *arena;
    const json_t *root, *model;
    struct str *tokens; /* [n_tokens]; p == NULL: no such id yet */
    u8 *types;
    struct strmap by_text;
    bool space_as_word; /* spaces become U+2581 */
    bool split_words;   /* and each one starts a piece that merges stay inside */
    bool byte_level;
    struct str regex[TOK_PRE_MAX];
    u32 n_regex;
    struct err *err;
};

static struct str json_str(const json_t *v)
{
    return json_is_string(v) ? (struct str){json_string_value(v), json_string_length(v)}
                             : (struct str){NULL, 0};
}

static struct str get_str(const json_t *o, const char *key)
{
    return json_str(json_object_get(o, key));
}

/* A boolean member, or def where it is absent or null. */
static bool get_bool(const json_t *o, const char *key, bool def)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : def;
}

static int bad(struct reader *r, const char *what)
{
    return err_set(r->err, FLETCH_E_FORMAT, "tokenizer.json: %s", what);
}

static int refuse(struct reader *r, const char *what, struct str name)
{
    return err_set(r->err, FLETCH_E_UNSUPPORTED, "tokenizer.json: %s %s is not supported", what,
                   QUOTE(name));
}

static int keep(struct reader *r, struct str s, struct str *out)
{
    char *p = arena_copy(r->arena, s);
    if (!p) return err_nomem(r->err, "the vocabulary");
    *out = (struct str){p, s.n};
    return 0;
}

/* Calls step with v, or with each member of v's list where v is a Sequence. null is no step. */
static int each_step(struct reader *r, const json_t *v, const char *what, const char *list,
                     int (*step)(struct reader *, const json_t *, struct str type))
{
    if (!v || json_is_null(v)) return 0;
    struct str type = get_str(v, "type");
    if (!type.p) return bad(r, "a step has no type");
    if (!str_is(type, "Sequence")) return step(r, v, type);
    const json_t *items = json_object_get(v, list);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        type = get_str(item, "type");
        if (!type.p || str_is(type, "Sequence"))
            return refuse(r, what, STR("Sequence in a Sequence"));
        int rc = step(r, item, type);
        if (rc) return rc;
    }
    return 0;
}

static int read_normaliser(struct reader *r, const json_t *v, struct str type)
{
    static const char *const forms[] = {
        [TOK_NORM_NFC] = "NFC",
        [TOK_NORM_NFD] = "NFD",
        [TOK_NORM_NFKC] = "NFKC",
        [TOK_NORM_NFKD] = "NFKD",
    };
    for (enum tok_norm i = TOK_NORM_NFC; i <= TOK_NORM_NFKD; i++) {
        if (!str_is(type, forms[i])) continue;
        if (r->spec->norm != TOK_NORM_NONE) return refuse(r, "a second normalizer", type);
        r->spec->norm = i;
        return 0;
    }
    if (str_is(type, "Prepend") && str_is(get_str(v, "prepend"), TOK_SPACE)) {
        r->spec->add_space_prefix = TOK_PREFIX_ALWAYS;
        return 0;
    }
    struct str from = get_str(json_object_get(v, "pattern"), "String");
    if (str_is(type, "Replace") && str_is(from, " ") && str_is(get_str(v, "content"), TOK_SPACE)) {
        r->space_as_word = true;
        return 0;
    }
    return refuse(r, "normalizer", type);
}

static int add_regex(struct reader *r, struct str regex)
{
    if (r->n_regex == TOK_PRE_MAX) return refuse(r, "a long list of pre_tokenizers with", regex);
    r->regex[r->n_regex++] = regex;
    return 0;
}

static int read_metaspace(struct reader *r, const json_t *v)
{
    struct str scheme = get_str(v, "prepend_scheme");
    bool always = scheme.p ? str_is(scheme, "always") : get_bool(v, "add_prefix_space", true);
    if (!str_is(get_str(v, "replacement"), TOK_SPACE))
        return refuse(r, "Metaspace replacement", get_str(v, "replacement"));
    if (scheme.p && !always && !str_is(scheme, "first") && !str_is(scheme, "never"))
        return refuse(r, "Metaspace prepend_scheme", scheme);
    r->space_as_word = true;
    r->split_words = get_bool(v, "split", true);
    r->spec->add_space_prefix = always                    ? TOK_PREFIX_UNLESS_SPACE
                                : str_is(scheme, "first") ? TOK_PREFIX_FIRST
                                                          : TOK_PREFIX_NEVER;
    return 0;
}

static int read_pre_tokenizer(struct reader *r, const json_t *v, struct str type)
{
    if (str_is(type, "Metaspace")) return read_metaspace(r, v);
    if (str_is(type, "ByteLevel")) {
        r->byte_level = true;
        if (get_bool(v, "add_prefix_space", true))
            return refuse(r, "ByteLevel with", STR("add_prefix_space"));
        return get_bool(v, "use_regex", true) ? add_regex(r, STR(TOK_PRE_GPT2)) : 0;
    }
    if (str_is(type, "Digits"))
        return add_regex(r, get_bool(v, "individual_digits", false) ? STR(TOK_PRE_DIGIT)
                                                                    : STR(TOK_PRE_DIGITS));
    if (str_is(type, "Punctuation") && str_is(get_str(v, "behavior"), "Contiguous"))
        return add_regex(r, STR(TOK_PRE_PUNCTUATION));
    if (str_is(type, "Split")) {
        struct str regex = get_str(json_object_get(v, "pattern"), "Regex");
        if (!regex.p || !str_is(get_str(v, "behavior"), "Isolated"))
            return refuse(r, "Split pre_tokenizer with", get_str(v, "behavior"));
        return add_regex(r, regex);
    }
    return refuse(r, "pre_tokenizer", type);
}

/* Which of our kinds the steps amount to. */
static int read_kind(struct reader *r)
{
    struct tok_spec *spec = r->spec;
    bool whole = get_bool(r->model, "ignore_merges", false);
    spec->add_space_prefix = TOK_PREFIX_NEVER;
    spec->ignore_merges = whole;
    int rc = each_step(r, json_object_get(r->root, "normalizer"), "normalizer", "normalizers",
                       read_normaliser);
    if (rc == 0)
        rc = each_step(r, json_object_get(r->root, "pre_tokenizer"), "pre_tokenizer",
                       "pretokenizers", read_pre_tokenizer);
    if (rc) return rc;
    if (r->byte_level && !r->space_as_word) {
        const struct tok_pre_def *def = tok_pre_recognise(r->regex, r->n_regex, whole);
        if (!def)
            return refuse(r, "pre_tokenizer pattern",
                          r->n_regex ? r->regex[r->n_regex - 1] : STR(""));
        spec->kind = TOK_BPE;
        spec->pre = tok_pre_name(def);
        return 0;
    }
    if (r->byte_level || !r->space_as_word || r->n_regex)
        return bad(r, "neither a byte-level vocabulary nor one with U+2581 for spaces");
    if (whole) return refuse(r, "with U+2581 for spaces,", STR("ignore_merges"));
    spec->kind = TOK_SPM;
    return 0;
}

static int put_token(struct reader *r, const json_t *id, struct str text, u8 type)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= r->spec->n_tokens)
        return err_set(r->err, FLETCH_E_FORMAT, "tokenizer.json: token %s has no usable id",
                       QUOTE(text));
    u32 i = (u32)json_integer_value(id);
    bool added = type == TOK_CONTROL || type == TOK_USER;
    if (r->tokens[i].p && !(added && str_eq(r->tokens[i], text)))
        return err_set(r->err, FLETCH_E_FORMAT, "tokenizer.json: id %u is both %s and %s", i,
                       QUOTE(r->tokens[i]), QUOTE(text));
    r->types[i] = type;
    if (r->tokens[i].p) return 0;
    int rc = keep(r, text, &r->tokens[i]);
    if (rc == 0 && !strmap_add(&r->by_text, r->tokens[i], i))
        rc = err_set(r->err, FLETCH_E_FORMAT, "tokenizer.json: token %s is there twice",
                     QUOTE(text));
    return rc;
}

static i64 max_id(const json_t *vocab, const json_t *added)
{
    i64 max = -1;
    for (void *it = json_object_iter((json_t *)vocab); it;
         it = json_object_iter_next((json_t *)vocab, it))
        max = MAX(max, json_integer_value(json_object_iter_value(it)));
    for (size_t i = 0; i < json_array_size(added); i++)
        max = MAX(max, json_integer_value(json_object_get(json_array_get(added, i), "id")));
    return max;
}

static int fill_gaps(struct reader *r)
{
    for (u32 i = 0; i < r->spec->n_tokens; i++) {
        if (r->tokens[i].p) continue;
        char *p = arena_printf(r->arena, "[PAD%u]", i);
        if (!p) return err_nomem(r->err, "the vocabulary");
        r->tokens[i] = str_of(p);
        r->types[i] = TOK_UNUSED;
    }
    return 0;
}

static int read_added(struct reader *r, const json_t *added)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    int rc = 0;
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++) {
        const json_t *a = json_array_get(added, i);
        struct str text = get_str(a, "content");
        if (!text.n) return bad(r, "an added token has no content");
        for (size_t k = 0; k < ARRAY_LEN(flags); k++)
            if (get_bool(a, flags[k], false)) return refuse(r, flags[k], text);
        rc = put_token(r, json_object_get(a, "id"), text,
                       get_bool(a, "special", false) ? TOK_CONTROL : TOK_USER);
    }
    return rc;
}

static int read_tokens(struct reader *r)
{
    json_t *vocab = json_object_get(r->model, "vocab");
    const json_t *added = json_object_get(r->root, "added_tokens");
    if (!json_object_size(vocab)) return bad(r, "no vocabulary in model.vocab");
    i64 n = max_id(vocab, added);
    i64 have = (i64)(json_object_size(vocab) + json_array_size(added));
    if (n >= INT32_MAX || n >= have + MAX_GAPS)
        return err_set(r->err, FLETCH_E_LIMIT, "tokenizer.json: id %lld with only %lld tokens",
                       (long long)n, (long long)have);
    r->spec->n_tokens = (u32)(n + 1);
    r->tokens = arena_alloc(r->arena, r->spec->n_tokens, sizeof *r->tokens);
    r->types = arena_alloc(r->arena, r->spec->n_tokens, 1);
    if (!r->tokens || !r->types) return err_nomem(r->err, "the vocabulary");
    r->spec->tokens = r->tokens;
    r->spec->types = r->types;
    bool bytes = r->spec->kind == TOK_SPM && get_bool(r->model, "byte_fallback", false);
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        struct str text = {json_object_iter_key(it), json_object_iter_key_len(it)};
        bool byte = bytes && text.n == 6 && str_starts(text, "<0x") && text.p[5] == '>';
        int rc = put_token(r, json_object_iter_value(it), text, byte ? TOK_BYTE : TOK_NORMAL);
        if (rc) return rc;
    }
    int rc = read_added(r, added);
    return rc ? rc : fill_gaps(r);
}

static i64 find_token(const struct reader *r, struct str text)
{
    u32 id;
    return text.p && strmap_get(&r->by_text, text, &id) ? (i64)id : -1;
}

/* "a b" or ["a", "b"], stored as "a b" with its parts in left and right. */
static int read_merge(struct reader *r, const json_t *v, struct str *out, struct str *left,
                      struct str *right)
{
    struct str s = json_str(v), a = json_str(json_array_get(v, 0)),
               b = json_str(json_array_get(v, 1));
    const char *cut = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    if (cut) {
        a = (struct str){s.p, (size_t)(cut - s.p)};
        b = (struct str){cut + 1, s.n - a.n - 1};
    }
    if (!a.n || !b.n || json_array_size(v) > 2 || memchr(a.p, ' ', a.n))
        return bad(r, "a merge is not two tokens without spaces");
    char *p = arena_alloc(r->arena, 1, a.n + b.n + 2);
    if (!p) return err_nomem(r->err, "merges");
    memcpy(p, a.p, a.n);
    p[a.n] = ' ';
    memcpy(p + a.n + 1, b.p, b.n);
    *out = (struct str){p, a.n + b.n + 1};
    *left = (struct str){p, a.n};
    *right = (struct str){p + a.n + 1, b.n};
    return 0;
}

/* Where pieces begin at each U+2581, nothing merges across one. */
static bool crosses_words(struct str whole)
{
    return whole.n > 1 && memmem(whole.p + 1, whole.n - 1, TOK_SPACE, 3);
}

static int read_merges(struct reader *r)
{
    const json_t *list = json_object_get(r->model, "merges");
    size_t n = json_array_size(list);
    struct str *merges = arena_alloc(r->arena, n, sizeof *merges);
    float *scores = arena_alloc(r->arena, r->spec->n_tokens, sizeof *scores);
    if (!merges || !scores) return err_nomem(r->err, "merges");
    if (!json_is_array(list) || n > INT32_MAX) return bad(r, "no merges in model.merges");
    struct buf whole = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct str m, left, right;
        rc = read_merge(r, json_array_get(list, i), &m, &left, &right);
        if (rc) break;
        whole.n = 0;
        buf_put(&whole, left.p, left.n);
        buf_put(&whole, right.p, right.n);
        i64 id = find_token(r, buf_str(&whole));
        if (whole.failed)
            rc = err_nomem(r->err, "merges");
        else if (id < 0 || find_token(r, left) < 0 || find_token(r, right) < 0)
            rc = err_set(r->err, FLETCH_E_FORMAT,
                         "tokenizer.json: merge %s is not in the vocabulary", QUOTE(m));
        else if (!r->split_words || !crosses_words(buf_str(&whole))) {
            /* Engines that merge by score take the best rank there is. */
            if (scores[id] == 0) scores[id] = -1.0f - (float)r->spec->n_merges;
            merges[r->spec->n_merges++] = m;
        }
    }
    buf_free(&whole);
    for (u32 i = 0; i < r->spec->n_tokens; i++)
        if (scores[i] == 0 && r->types[i] == TOK_NORMAL) scores[i] = -1.0f - (float)n;
    r->spec->merges = merges;
    if (r->spec->kind == TOK_SPM) r->spec->scores = scores;
    return rc;
}

static int read_model(struct reader *r)
{
    struct str type = get_str(r->model, "type");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (!r->model) return bad(r, "no model");
    if (type.p && !str_is(type, "BPE")) return refuse(r, "model type", type);
    if (json_number_value(json_object_get(r->model, "dropout")) > 0)
        return refuse(r, "BPE with", STR("dropout"));
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++)
        if (get_str(r->model, affixes[i]).n) return refuse(r, "BPE with", str_of(affixes[i]));
    int rc = read_kind(r);
    if (rc == 0) rc = read_tokens(r);
    if (rc == 0) rc = read_merges(r);
    if (rc) return rc;
    r->spec->unk = find_token(r, get_str(r->model, "unk_token"));
    if (r->spec->unk >= 0) r->types[r->spec->unk] = TOK_UNKNOWN;
    return 0;
}

/* The tokens that a template puts before and after the text: at most one each. */
static int read_post_processor(struct reader *r, const json_t *v, struct str type)
{
    if (str_is(type, "ByteLevel")) return 0;
    if (!str_is(type, "TemplateProcessing")) return refuse(r, "post_processor", type);
    const json_t *single = json_object_get(v, "single");
    i64 *id = &r->spec->bos;
    int *add = &r->spec->add_bos;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        if (json_object_get(item, "Sequence")) {
            id = &r->spec->eos;
            add = &r->spec->add_eos;
            continue;
        }
        struct str text = get_str(json_object_get(item, "SpecialToken"), "id");
        if (*add == 1 || find_token(r, text) < 0)
            return refuse(r, "post_processor: more than one token, or an unknown one, in", text);
        *id = find_token(r, text);
        *add = 1;
    }
    return 0;
}

/* A special token of the config: "text" or {"content": "text"}. Names no token: unset. */
static void read_special(const struct reader *r, const json_t *config, const char *key, i64 *out)
{
    const json_t *v = json_object_get(config, key);
    i64 id = find_token(r, json_is_object(v) ? get_str(v, "content") : json_str(v));
    if (id >= 0) *out = id;
}

static void read_flag(const json_t *config, const char *key, int *out)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_boolean(v)) *out = json_is_true(v);
}

static struct str config_template(const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        if (str_is(get_str(item, "name"), "default")) return get_str(item, "template");
    }
    return json_str(v);
}

static int read_config(struct reader *r, const json_t *config, struct str chat_template)
{
    struct tok_spec *spec = r->spec;
    read_special(r, config, "bos_token", &spec->bos);
    read_special(r, config, "eos_token", &spec->eos);
    read_special(r, config, "unk_token", &spec->unk);
    read_special(r, config, "pad_token", &spec->pad);
    read_flag(config, "add_bos_token", &spec->add_bos);
    read_flag(config, "add_eos_token", &spec->add_eos);
    if (!chat_template.p) chat_template = config_template(config);
    return chat_template.p ? keep(r, chat_template, &spec->chat_template) : 0;
}

int tok_spec_from_json(struct tok_spec *spec, struct arena *arena, const json_t *tokenizer,
                       const json_t *config, struct str chat_template, struct err *err)
{
    struct reader r = {.spec = spec,
                       .arena = arena,
                       .root = tokenizer,
                       .model = json_object_get(tokenizer, "model"),
                       .err = err};
    tok_spec_init(spec);
    int rc = read_model(&r);
    spec->add_bos = spec->add_eos = 0;
    if (rc == 0)
        rc = each_step(&r, json_object_get(tokenizer, "post_processor"), "post_processor",
                       "processors", read_post_processor);
    if (rc == 0) rc = read_config(&r, config, chat_template);
    strmap_free(&r.by_text);
    return rc;
}
