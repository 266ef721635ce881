/* Vocabularies from Hugging Face's tokenizer.json and tokenizer_config.json. What these describe
 * step by step (normaliser, pre-tokenizer, post-processor) is recognised as one of the kinds we
 * have; a step that we would do differently is refused by name. */
#include "text/tok_internal.h"

#include <stdio.h>
#include <string.h>

/* Ids may leave gaps (filled with [PADn]), but not so many that a few bytes of JSON cost
 * gigabytes. */
enum { MAX_GAPS = 1 << 16, MAX_AROUND = 16 };

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
    bool drops_gaps; /* text between matches would be dropped if there were any */
    struct str regex[TOK_PRE_MAX];
    u32 n_regex;
    bool byte_fallback;
    struct around {
        i32 *ids;
        u32 n;
    } before, after; /* the tokens that the post_processor puts around every text */
    struct err *err;
};

static struct str json_str(const json_t *v)
{
    return json_is_string(v) ? (struct str){json_string_value(v), json_string_length(v)}
                             : (struct str){NULL, 0};
}

struct str tok_json_str(const json_t *o, const char *key)
{
    return json_str(json_object_get(o, key));
}

bool tok_json_bool(const json_t *o, const char *key, bool def)
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

/* Whether a step is one that our kinds do by themselves. */
typedef bool recognise_step(struct reader *, const json_t *, struct str type);

/* Whether v is such a step, or a list of them. null is no step. */
static bool recognise(struct reader *r, const json_t *v, const char *list, recognise_step *step)
{
    if (!v || json_is_null(v)) return true;
    struct str type = tok_json_str(v, "type");
    if (!str_is(type, "Sequence")) return step(r, v, type);
    const json_t *items = json_object_get(v, list);
    bool known = true;
    for (size_t i = 0; i < json_array_size(items) && known; i++) {
        const json_t *item = json_array_get(items, i);
        known = step(r, item, tok_json_str(item, "type"));
    }
    return known;
}

static bool recognise_normalizer(struct reader *r, const json_t *v, struct str type)
{
    static const char *const forms[] = {
        [TOK_NORM_NFC] = "NFC",
        [TOK_NORM_NFD] = "NFD",
        [TOK_NORM_NFKC] = "NFKC",
        [TOK_NORM_NFKD] = "NFKD",
    };
    for (enum tok_norm i = TOK_NORM_NFC; i <= TOK_NORM_NFKD; i++) {
        if (!str_is(type, forms[i])) continue;
        if (r->spec->norm != TOK_NORM_NONE || r->space_as_word) return false;
        r->spec->norm = i;
        return true;
    }
    if (str_is(type, "Prepend") && str_is(tok_json_str(v, "prepend"), TOK_SPACE)) {
        bool first = r->spec->add_space_prefix == TOK_PREFIX_NEVER;
        r->spec->add_space_prefix = TOK_PREFIX_ALWAYS;
        return first;
    }
    struct str from = tok_json_str(json_object_get(v, "pattern"), "String");
    if (!str_is(type, "Replace") || !str_is(from, " ") ||
        !str_is(tok_json_str(v, "content"), TOK_SPACE))
        return false;
    r->space_as_word = true;
    return true;
}

static bool recognise_regex(struct reader *r, struct str regex)
{
    if (r->n_regex == TOK_PRE_MAX) return false;
    r->regex[r->n_regex++] = regex;
    return true;
}

static bool recognise_metaspace(struct reader *r, const json_t *v)
{
    struct str scheme = tok_json_str(v, "prepend_scheme");
    bool always = scheme.p ? str_is(scheme, "always") : tok_json_bool(v, "add_prefix_space", true);
    if (!str_is(tok_json_str(v, "replacement"), TOK_SPACE) || r->space_as_word || r->n_regex ||
        r->spec->add_space_prefix != TOK_PREFIX_NEVER)
        return false;
    if (scheme.p && !always && !str_is(scheme, "first") && !str_is(scheme, "never")) return false;
    r->space_as_word = true;
    r->split_words = tok_json_bool(v, "split", true);
    r->spec->add_space_prefix = always                    ? TOK_PREFIX_UNLESS_SPACE
                                : str_is(scheme, "first") ? TOK_PREFIX_FIRST
                                                          : TOK_PREFIX_NEVER;
    return true;
}

/* "Removed" with "invert" keeps what matches, and drops nothing where a regex matches all text. */
static bool recognise_split(struct reader *r, const json_t *v)
{
    const json_t *pattern = json_object_get(v, "pattern");
    struct str regex = tok_json_str(pattern, "Regex"), text = tok_json_str(pattern, "String");
    struct str behavior = tok_json_str(v, "behavior");
    /* After the normalizer there are no spaces: nothing to split at. */
    if (str_is(text, " ") && r->space_as_word) return true;
    if (str_is(behavior, "Removed") && tok_json_bool(v, "invert", false))
        r->drops_gaps = true;
    else if (!str_is(behavior, "Isolated"))
        return false;
    return regex.p && recognise_regex(r, regex);
}

static bool recognise_pre_tokenizer(struct reader *r, const json_t *v, struct str type)
{
    if (str_is(type, "Metaspace")) return recognise_metaspace(r, v);
    if (str_is(type, "ByteLevel")) {
        bool first = !r->byte_level;
        r->byte_level = true;
        if (!first || tok_json_bool(v, "add_prefix_space", true)) return false;
        return !tok_json_bool(v, "use_regex", true) || recognise_regex(r, STR(TOK_PRE_GPT2));
    }
    if (str_is(type, "Digits"))
        return recognise_regex(r, tok_json_bool(v, "individual_digits", false)
                                      ? STR(TOK_PRE_DIGIT)
                                      : STR(TOK_PRE_DIGITS));
    if (str_is(type, "Punctuation") && str_is(tok_json_str(v, "behavior"), "Contiguous"))
        return recognise_regex(r, STR(TOK_PRE_PUNCTUATION));
    return str_is(type, "Split") && recognise_split(r, v);
}

static int keep_json(struct reader *r, const json_t *v, struct str *out)
{
    if (!v || json_is_null(v)) return 0;
    size_t n = json_dumpb(v, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    char *p = n ? arena_alloc(r->arena, n + 1, 1) : NULL;
    if (!p || json_dumpb(v, p, n, JSON_COMPACT | JSON_ENCODE_ANY) != n)
        return err_nomem(r->err, "the vocabulary");
    *out = (struct str){p, n};
    return 0;
}

static bool has_normalizer(const struct reader *r)
{
    const json_t *v = json_object_get(r->root, "normalizer");
    return v && !json_is_null(v);
}

/* Special tokens are found in the text as it came, whatever is said: only that knows which of its
 * bytes are the user's. */
static bool is_normalised(const json_t *added)
{
    return tok_json_bool(added, "normalized", false) && !tok_json_bool(added, "special", false);
}

/* Whether tokens are looked for in normalised text, which only explicit steps make before. */
static bool finds_normalised(const struct reader *r)
{
    const json_t *added = json_object_get(r->root, "added_tokens");
    bool any = false;
    for (size_t i = 0; i < json_array_size(added); i++)
        any |= is_normalised(json_array_get(added, i));
    return any && has_normalizer(r);
}

/* The steps go on as they are; whether all of them can be done is seen by opening them. */
static int keep_steps(struct reader *r, bool *byte_level)
{
    const json_t *norm_json = json_object_get(r->root, "normalizer");
    const json_t *pre_json = json_object_get(r->root, "pre_tokenizer");
    struct tok_normalizer *norm = NULL;
    struct tok_pre *pre = NULL;
    int rc = tok_norm_open(&norm, norm_json, r->err);
    if (rc == 0) rc = tok_pre_open_json(&pre, pre_json, r->err);
    if (rc)
        err_prefix(r->err, "tokenizer.json");
    else
        *byte_level = tok_pre_is_byte_level(pre);
    tok_norm_close(norm);
    tok_pre_close(pre);
    r->spec->norm = TOK_NORM_NONE;
    r->spec->add_space_prefix = TOK_PREFIX_NEVER;
    r->split_words = false;
    if (rc == 0) rc = keep_json(r, norm_json, &r->spec->normalizer);
    if (rc == 0) rc = keep_json(r, pre_json, &r->spec->pre_tokenizer);
    return rc;
}

/* Which of our kinds the steps amount to. */
static int read_kind(struct reader *r, bool unigram)
{
    struct tok_spec *spec = r->spec;
    bool whole = tok_json_bool(r->model, "ignore_merges", false), byte_level = false;
    const struct tok_pre_def *def = NULL;
    spec->add_space_prefix = TOK_PREFIX_NEVER;
    spec->ignore_merges = whole;
    bool known =
        recognise(r, json_object_get(r->root, "normalizer"), "normalizers", recognise_normalizer) &&
        recognise(r, json_object_get(r->root, "pre_tokenizer"), "pretokenizers",
                  recognise_pre_tokenizer);
    if (r->byte_level && (!r->drops_gaps || r->n_regex == 1))
        def = tok_pre_recognise(r->regex, r->n_regex, whole);
    if (known && def && !r->space_as_word && !unigram) {
        spec->kind = TOK_BPE;
        spec->pre = tok_pre_name(def);
        return 0;
    }
    if (known && !r->byte_level && r->space_as_word && !r->n_regex && !whole && !unigram &&
        !finds_normalised(r)) {
        spec->kind = TOK_SPM;
        return 0;
    }
    int rc = keep_steps(r, &byte_level);
    if (rc) return rc;
    if (unigram && byte_level) return bad(r, "a Unigram model with a ByteLevel pre_tokenizer");
    if (!unigram && !byte_level && !spec->normalizer.p && !spec->pre_tokenizer.p)
        return bad(r, "neither a byte-level vocabulary nor one with U+2581 for spaces");
    spec->kind = unigram ? TOK_UNIGRAM : byte_level ? TOK_BPE : TOK_SPM;
    /* A name that other engines refuse: none of theirs does these steps. */
    if (byte_level) spec->pre = STR("custom");
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
        rc =
            err_set(r->err, FLETCH_E_FORMAT, "tokenizer.json: token %s appears twice", QUOTE(text));
    return rc;
}

static i64 max_id(json_t *vocab, const json_t *added)
{
    i64 max = (i64)json_array_size(vocab) - 1;
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it))
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
    static const struct {
        const char *key;
        u8 flag;
    } flags[] = {{"lstrip", TOK_LSTRIP}, {"rstrip", TOK_RSTRIP}, {"single_word", TOK_SINGLE_WORD}};
    bool normalises = has_normalizer(r);
    u8 *token_flags = NULL;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++) {
        const json_t *a = json_array_get(added, i), *id = json_object_get(a, "id");
        struct str text = tok_json_str(a, "content");
        u8 set = 0;
        if (!text.n) return bad(r, "an added token has no content");
        rc = put_token(r, id, text, tok_json_bool(a, "special", false) ? TOK_CONTROL : TOK_USER);
        for (size_t k = 0; k < ARRAY_LEN(flags); k++)
            if (tok_json_bool(a, flags[k].key, false)) set |= flags[k].flag;
        if (normalises && is_normalised(a)) set |= TOK_NORMALIZED;
        if (rc || !set) continue;
        if (!token_flags) token_flags = arena_alloc(r->arena, r->spec->n_tokens, 1);
        if (!token_flags) return err_nomem(r->err, "the vocabulary");
        token_flags[json_integer_value(id)] = set;
    }
    r->spec->token_flags = token_flags;
    return rc;
}

static u8 vocab_type(struct reader *r, struct str text)
{
    bool byte = r->byte_fallback && text.n == 6 && str_starts(text, "<0x") && text.p[5] == '>';
    return byte ? TOK_BYTE : TOK_NORMAL;
}

/* Unigram's vocabulary is a list of [text, score]; the id is the place. */
static int read_scored(struct reader *r, const json_t *vocab)
{
    float *scores = arena_alloc(r->arena, r->spec->n_tokens, sizeof *scores);
    if (!scores) return err_nomem(r->err, "scores");
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *item = json_array_get(vocab, i), *score = json_array_get(item, 1);
        struct str text = json_str(json_array_get(item, 0));
        if (!text.p || !json_is_number(score))
            return bad(r, "an entry of model.vocab is not a text and its score");
        scores[i] = (float)json_number_value(score);
        json_t *id = json_integer((json_int_t)i);
        int rc = id ? put_token(r, id, text, vocab_type(r, text)) : err_nomem(r->err, "ids");
        json_decref(id);
        if (rc) return rc;
    }
    r->spec->scores = scores;
    return 0;
}

static int read_tokens(struct reader *r)
{
    json_t *vocab = json_object_get(r->model, "vocab");
    const json_t *added = json_object_get(r->root, "added_tokens");
    bool list = r->spec->kind == TOK_UNIGRAM;
    i64 have = (i64)(list ? json_array_size(vocab) : json_object_size(vocab));
    if (!have) return bad(r, "no vocabulary in model.vocab");
    i64 n = max_id(vocab, added);
    have += (i64)json_array_size(added);
    if (n >= INT32_MAX || n >= have + MAX_GAPS)
        return err_set(r->err, FLETCH_E_LIMIT,
                       "tokenizer.json: id %lld is too large for a vocabulary of %lld tokens",
                       (long long)n, (long long)have);
    r->spec->n_tokens = (u32)(n + 1);
    r->tokens = arena_alloc(r->arena, r->spec->n_tokens, sizeof *r->tokens);
    r->types = arena_alloc(r->arena, r->spec->n_tokens, 1);
    if (!r->tokens || !r->types) return err_nomem(r->err, "the vocabulary");
    r->spec->tokens = r->tokens;
    r->spec->types = r->types;
    r->byte_fallback = r->spec->kind != TOK_BPE && tok_json_bool(r->model, "byte_fallback", false);
    int rc = list ? read_scored(r, vocab) : 0;
    for (void *it = json_object_iter(vocab); it && rc == 0; it = json_object_iter_next(vocab, it)) {
        struct str text = {json_object_iter_key(it), json_object_iter_key_len(it)};
        rc = put_token(r, json_object_iter_value(it), text, vocab_type(r, text));
    }
    if (rc == 0) rc = read_added(r, added);
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

static int read_bpe(struct reader *r)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (json_number_value(json_object_get(r->model, "dropout")) > 0)
        return refuse(r, "BPE with", STR("dropout"));
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++)
        if (tok_json_str(r->model, affixes[i]).n) return refuse(r, "BPE with", str_of(affixes[i]));
    int rc = read_kind(r, false);
    if (rc == 0) rc = read_tokens(r);
    if (rc == 0) rc = read_merges(r);
    if (rc == 0) r->spec->unk = find_token(r, tok_json_str(r->model, "unk_token"));
    r->spec->fuse_unk = tok_json_bool(r->model, "fuse_unk", false);
    return rc;
}

static int read_unigram(struct reader *r)
{
    const json_t *unk = json_object_get(r->model, "unk_id");
    int rc = read_kind(r, true);
    if (rc == 0) rc = read_tokens(r);
    if (rc) return rc;
    r->spec->unk = json_is_integer(unk) ? json_integer_value(unk) : -1;
    return r->spec->unk < r->spec->n_tokens ? 0 : bad(r, "unk_id is not in the vocabulary");
}

static int read_model(struct reader *r)
{
    struct str type = tok_json_str(r->model, "type");
    if (!r->model) return bad(r, "no model");
    bool unigram = str_is(type, "Unigram");
    if (type.p && !unigram && !str_is(type, "BPE")) return refuse(r, "model type", type);
    int rc = unigram ? read_unigram(r) : read_bpe(r);
    if (rc == 0 && r->spec->unk >= 0) r->types[r->spec->unk] = TOK_UNKNOWN;
    return rc;
}

/* What puts texts together again. Each kind of ours does one thing; a decoder that does another is
 * refused. */

static int read_decoder_step(struct reader *r, const json_t *v, bool *done)
{
    struct str type = tok_json_str(v, "type"), scheme = tok_json_str(v, "prepend_scheme");
    struct str from = tok_json_str(json_object_get(v, "pattern"), "String");
    bool spaces = r->spec->kind != TOK_BPE;
    if (str_is(type, "Fuse") || (spaces && str_is(type, "ByteFallback"))) return 0;
    if (!spaces && str_is(type, "ByteLevel")) {
        *done = true;
        return 0;
    }
    if (spaces && str_is(type, "Replace") && str_is(from, TOK_SPACE) &&
        str_is(tok_json_str(v, "content"), " ")) {
        *done = true;
        return 0;
    }
    if (spaces && str_is(type, "Metaspace") && str_is(tok_json_str(v, "replacement"), TOK_SPACE)) {
        r->spec->strip_space =
            scheme.p ? !str_is(scheme, "never") : tok_json_bool(v, "add_prefix_space", true);
        *done = true;
        return 0;
    }
    json_int_t start = json_integer_value(json_object_get(v, "start"));
    if (spaces && str_is(type, "Strip") && str_is(tok_json_str(v, "content"), " ") &&
        (start == 0 || start == 1) && !json_integer_value(json_object_get(v, "stop"))) {
        r->spec->strip_space = (int)start;
        return 0;
    }
    return refuse(r, "decoder", type);
}

static int read_decoder(struct reader *r)
{
    const json_t *v = json_object_get(r->root, "decoder");
    bool list = str_is(tok_json_str(v, "type"), "Sequence"), done = false;
    const json_t *items = json_object_get(v, "decoders");
    int rc = 0;
    if (!v || json_is_null(v)) return 0;
    r->spec->strip_space = 0;
    for (size_t i = 0; i < (list ? json_array_size(items) : 1) && rc == 0; i++)
        rc = read_decoder_step(r, list ? json_array_get(items, i) : v, &done);
    if (rc == 0 && !done)
        rc = refuse(r, "a decoder without",
                    r->spec->kind == TOK_BPE ? STR("ByteLevel") : STR("Replace of U+2581"));
    return rc;
}

static int add_around(struct reader *r, struct around *a, i64 id, struct str name)
{
    if (id < 0 || id >= r->spec->n_tokens || a->n == MAX_AROUND)
        return refuse(r, "post_processor: too many tokens, or an unknown one, in", name);
    if (!a->ids) a->ids = arena_alloc(r->arena, MAX_AROUND, sizeof *a->ids);
    if (!a->ids) return err_nomem(r->err, "the post_processor");
    a->ids[a->n++] = (i32)id;
    return 0;
}

/* A template may say a token's ids; else its name is its text. */
static int add_special(struct reader *r, struct around *a, const json_t *template, struct str name)
{
    const json_t *map = json_object_get(template, "special_tokens");
    const json_t *special = name.p ? json_object_getn(map, name.p, name.n) : NULL;
    const json_t *ids = json_object_get(special, "ids");
    int rc = 0;
    if (!json_array_size(ids)) return add_around(r, a, find_token(r, name), name);
    for (size_t i = 0; i < json_array_size(ids) && rc == 0; i++) {
        const json_t *id = json_array_get(ids, i);
        rc = add_around(r, a, json_is_integer(id) ? json_integer_value(id) : -1, name);
    }
    return rc;
}

static int read_template(struct reader *r, const json_t *v)
{
    const json_t *single = json_object_get(v, "single");
    bool text = false;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(single) && rc == 0; i++) {
        const json_t *item = json_array_get(single, i);
        if (!json_object_get(item, "Sequence")) {
            struct str name = tok_json_str(json_object_get(item, "SpecialToken"), "id");
            rc = add_special(r, text ? &r->after : &r->before, v, name);
        } else if (text) {
            return refuse(r, "TemplateProcessing with", STR("the text twice"));
        }
        text |= json_object_get(item, "Sequence") != NULL;
    }
    return rc == 0 && !text ? refuse(r, "TemplateProcessing without", STR("Sequence")) : rc;
}

/* RobertaProcessing and BertProcessing: [text, id] of what stands before and after. */
static int read_pair(struct reader *r, const json_t *v)
{
    const json_t *cls = json_object_get(v, "cls"), *sep = json_object_get(v, "sep");
    const json_t *first = json_array_get(cls, 1), *last = json_array_get(sep, 1);
    int rc = add_around(r, &r->before, json_is_integer(first) ? json_integer_value(first) : -1,
                        json_str(json_array_get(cls, 0)));
    if (rc == 0)
        rc = add_around(r, &r->after, json_is_integer(last) ? json_integer_value(last) : -1,
                        json_str(json_array_get(sep, 0)));
    return rc;
}

static int read_post_processor(struct reader *r, const json_t *v)
{
    struct str type = tok_json_str(v, "type");
    if (!v || json_is_null(v) || str_is(type, "ByteLevel")) return 0;
    if (str_is(type, "Sequence")) {
        const json_t *items = json_object_get(v, "processors");
        int rc = 0;
        for (size_t i = 0; i < json_array_size(items) && rc == 0; i++)
            rc = read_post_processor(r, json_array_get(items, i));
        return rc;
    }
    bool pair = str_is(type, "RobertaProcessing") || str_is(type, "BertProcessing");
    if (!pair && !str_is(type, "TemplateProcessing")) return refuse(r, "post_processor", type);
    if (r->before.n || r->after.n) return refuse(r, "a second post_processor", type);
    return pair ? read_pair(r, v) : read_template(r, v);
}

/* One token is bos or eos, unless that is said to be another one. */
static void finish_around(struct reader *r)
{
    struct tok_spec *spec = r->spec;
    spec->add_bos = r->before.n > 0;
    spec->add_eos = r->after.n > 0;
    if (r->before.n == 1 && spec->bos < 0) spec->bos = r->before.ids[0];
    if (r->after.n == 1 && spec->eos < 0) spec->eos = r->after.ids[0];
    if (r->before.n > 1 || (r->before.n && r->before.ids[0] != spec->bos)) {
        spec->before = r->before.ids;
        spec->n_before = r->before.n;
    }
    if (r->after.n > 1 || (r->after.n && r->after.ids[0] != spec->eos)) {
        spec->after = r->after.ids;
        spec->n_after = r->after.n;
    }
}

/* A special token of the config: "text" or {"content": "text"}. Names no token: unset. */
static void read_special(const struct reader *r, const json_t *config, const char *key, i64 *out)
{
    const json_t *v = json_object_get(config, key);
    i64 id = find_token(r, json_is_object(v) ? tok_json_str(v, "content") : json_str(v));
    if (id >= 0) *out = id;
}

static struct str config_template(const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        if (str_is(tok_json_str(item, "name"), "default")) return tok_json_str(item, "template");
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
    if (rc == 0) rc = read_decoder(&r);
    if (rc == 0) rc = read_post_processor(&r, json_object_get(tokenizer, "post_processor"));
    if (rc == 0) rc = read_config(&r, config, chat_template);
    if (rc == 0) finish_around(&r);
    /* What the kind does anyway need not be said. */
    if (spec->strip_space == (spec->kind == TOK_SPM && spec->add_space_prefix != TOK_PREFIX_NEVER))
        spec->strip_space = -1;
    if (spec->fuse_unk == (spec->kind != TOK_BPE)) spec->fuse_unk = -1;
    strmap_free(&r.by_text);
    return rc;
}

/* Beside a vocabulary without a tokenizer.json */

/* {"content", "special", "lstrip", …} or a text, at this id. */
static int put_added(struct reader *r, i64 id, const json_t *v, bool special)
{
    struct tok_spec *spec = r->spec;
    struct str text = json_is_string(v) ? json_str(v) : tok_json_str(v, "content");
    if (id < 0 || id >= spec->n_tokens || !text.n)
        return err_set(r->err, FLETCH_E_FORMAT, "added token %s has no usable id or no text",
                       QUOTE(text));
    /* A placeholder among the pieces may get its text here. */
    if (!str_eq(r->tokens[id], text)) {
        int rc = keep(r, text, &r->tokens[id]);
        if (rc) return rc;
    }
    u8 flags = (u8)((tok_json_bool(v, "lstrip", false) ? TOK_LSTRIP : 0) |
                    (tok_json_bool(v, "rstrip", false) ? TOK_RSTRIP : 0) |
                    (tok_json_bool(v, "single_word", false) ? TOK_SINGLE_WORD : 0));
    ((u8 *)(uintptr_t)spec->token_flags)[id] = flags;
    if (id == spec->unk) return 0;
    if (special || tok_json_bool(v, "special", false))
        r->types[id] = TOK_CONTROL;
    else if (r->types[id] != TOK_CONTROL)
        r->types[id] = TOK_USER;
    return 0;
}

/* Room for the added tokens: ids beyond the vocabulary may leave gaps, but no large ones. */
static int grow_tokens(struct reader *r, i64 max, size_t n_added)
{
    struct tok_spec *spec = r->spec;
    u32 old = spec->n_tokens;
    if (max >= (i64)old + (i64)n_added + MAX_GAPS || max >= INT32_MAX)
        return err_set(
            r->err, FLETCH_E_LIMIT,
            "an added token has id %lld, which is too large for a vocabulary of %u tokens",
            (long long)max, old);
    spec->n_tokens = MAX(old, (u32)(max + 1));
    r->tokens = arena_alloc(r->arena, spec->n_tokens, sizeof *r->tokens);
    r->types = arena_alloc(r->arena, spec->n_tokens, 1);
    u8 *flags = arena_alloc(r->arena, spec->n_tokens, 1);
    float *scores = spec->scores ? arena_alloc(r->arena, spec->n_tokens, sizeof *scores) : NULL;
    if (!r->tokens || !r->types || !flags || (spec->scores && !scores))
        return err_nomem(r->err, "the vocabulary");
    memcpy(r->tokens, spec->tokens, old * sizeof *r->tokens);
    memset(r->types, TOK_NORMAL, old);
    if (spec->types) memcpy(r->types, spec->types, old);
    if (scores) memcpy(scores, spec->scores, old * sizeof *scores);
    spec->tokens = r->tokens;
    spec->types = r->types;
    spec->token_flags = flags;
    spec->scores = scores;
    return 0;
}

static i64 key_id(const char *key)
{
    i64 id = 0;
    if (!*key) return -1;
    for (; *key; key++) {
        if (*key < '0' || *key > '9' || id > INT32_MAX) return -1;
        id = id * 10 + (*key - '0');
    }
    return id;
}

/* decoder: {"id": {"content", …}}; added: {"text": id}. */
static int add_tokens(struct reader *r, json_t *decoder, json_t *added)
{
    size_t n = json_object_size(decoder) + json_object_size(added);
    i64 max = max_id(added, NULL);
    int rc = 0;
    for (void *it = json_object_iter(decoder); it; it = json_object_iter_next(decoder, it))
        max = MAX(max, key_id(json_object_iter_key(it)));
    rc = grow_tokens(r, max, n);
    for (void *it = json_object_iter(added); it && rc == 0; it = json_object_iter_next(added, it)) {
        const json_t *id = json_object_iter_value(it);
        json_t *text = json_stringn(json_object_iter_key(it), json_object_iter_key_len(it));
        rc = text ? put_added(r, json_is_integer(id) ? json_integer_value(id) : -1, text, false)
                  : err_nomem(r->err, "an added token");
        json_decref(text);
    }
    for (void *it = json_object_iter(decoder); it && rc == 0;
         it = json_object_iter_next(decoder, it))
        rc = put_added(r, key_id(json_object_iter_key(it)), json_object_iter_value(it), false);
    return rc ? rc : fill_gaps(r);
}

/* Tokens that the files name as special are that. */
static void mark_special(struct reader *r, const json_t *names)
{
    static const char *const keys[] = {"bos_token", "eos_token", "pad_token",
                                       "cls_token", "sep_token", "mask_token"};
    const json_t *more = json_object_get(names, "additional_special_tokens");
    for (size_t i = 0; i < ARRAY_LEN(keys) + json_array_size(more); i++) {
        const json_t *v = i < ARRAY_LEN(keys) ? json_object_get(names, keys[i])
                                              : json_array_get(more, i - ARRAY_LEN(keys));
        i64 id = find_token(r, json_is_object(v) ? tok_json_str(v, "content") : json_str(v));
        if (id >= 0 && id != r->spec->unk) r->types[id] = TOK_CONTROL;
    }
}

int tok_spec_read_beside(struct tok_spec *spec, struct arena *arena, const struct tok_files *f,
                         struct err *err)
{
    struct reader r = {.spec = spec, .arena = arena, .err = err};
    i64 add_bos = spec->add_bos, add_eos = spec->add_eos;
    int rc = add_tokens(&r, json_object_get(f->config, "added_tokens_decoder"), f->added);
    for (u32 i = 0; i < spec->n_tokens && rc == 0; i++)
        if (!strmap_add(&r.by_text, r.tokens[i], i) && !strmap_ok(&r.by_text))
            rc = err_nomem(err, "the vocabulary");
    if (rc == 0) {
        mark_special(&r, f->special_map);
        mark_special(&r, f->config);
        rc = read_config(&r, f->special_map, (struct str){0});
    }
    if (rc == 0) rc = read_config(&r, f->config, f->chat_template);
    bool any = false;
    for (u32 i = 0; i < spec->n_tokens && rc == 0; i++) any |= spec->token_flags[i] != 0;
    if (!any) spec->token_flags = NULL;
    spec->add_bos = tok_json_bool(f->config, "add_bos_token", add_bos > 0);
    spec->add_eos = tok_json_bool(f->config, "add_eos_token", add_eos > 0);
    strmap_free(&r.by_text);
    return rc;
}
