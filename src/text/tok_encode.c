/* Text to ids: special tokens part the text, each fragment between them is encoded on its own. */
#include "text/tok_internal.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "text/unicode.h"

struct encoder {
    const struct tok *t;
    struct tok_ids *ids;
    struct tok_merger merger;
    struct tok_norm_job norm;
    struct buf text;
    struct err *err;
};

void tok_ids_free(struct tok_ids *ids)
{
    free(ids->p);
    *ids = (struct tok_ids){0};
}

int tok_push(struct tok_ids *ids, i32 id, struct err *err)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        i32 *p = realloc(ids->p, cap * sizeof *p);
        if (!p) return err_nomem(err, "token ids");
        ids->p = p;
        ids->cap = cap;
    }
    ids->p[ids->n++] = id;
    return 0;
}

static int encode_spm(struct encoder *e, struct str s, bool first)
{
    int prefix = e->t->spec.add_space_prefix;
    bool spaced = s.p[0] == ' ' || str_starts(s, TOK_SPACE);
    e->text.n = 0;
    if (prefix == TOK_PREFIX_ALWAYS || (prefix == TOK_PREFIX_UNLESS_SPACE && !spaced) ||
        (prefix == TOK_PREFIX_FIRST && first && !spaced))
        buf_puts(&e->text, TOK_SPACE);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ')
            buf_puts(&e->text, TOK_SPACE);
        else
            buf_putc(&e->text, s.p[i]);
    }
    if (e->text.failed) return err_nomem(e->err, "text");
    return tok_merge(e->t, &e->merger, buf_str(&e->text), e->ids, e->err);
}

static int encode_piece(void *ctx, struct str piece)
{
    struct encoder *e = ctx;
    if (e->t->spec.kind == TOK_UNIGRAM) return tok_unigram(e->t, &e->merger, piece, e->ids, e->err);
    if (e->t->spec.ignore_merges && piece.n <= e->t->max_text) {
        e->text.n = 0;
        if (e->t->spec.kind == TOK_BPE)
            tok_map_bytes(&e->text, piece);
        else
            buf_put(&e->text, piece.p, piece.n);
        if (e->text.failed) return err_nomem(e->err, "text");
        i32 id = tok_find_mergeable(e->t, buf_str(&e->text));
        if (id >= 0) return tok_push(e->ids, id, e->err);
    }
    return tok_merge(e->t, &e->merger, piece, e->ids, e->err);
}

static int encode_rwkv(struct encoder *e, struct str s)
{
    const struct trie *words = &e->t->words;
    for (size_t at = 0, end; at < s.n; at = end) {
        i32 id = -1;
        u32 node = 0;
        end = at + 1;
        for (size_t i = at; i < s.n && (node = trie_step(words, node, s.p[i])); i++) {
            if (words->ids[node] < 0) continue;
            id = words->ids[node];
            end = i + 1;
        }
        if (id < 0)
            return err_set(e->err, FLETCH_E_ARG, "the vocabulary has no token for byte 0x%02x",
                           (u8)s.p[at]);
        int rc = tok_push(e->ids, id, e->err);
        if (rc) return rc;
    }
    return 0;
}

/* The longest token of a trie at `at` that may be one here: its length, or 0. */
static size_t special_at(const struct tok *t, const struct trie *trie, struct str text,
                         const u8 *from_user, bool parse, size_t at, i32 *id)
{
    size_t len = 0;
    u32 node = 0;
    for (size_t i = at; i < text.n && (node = trie_step(trie, node, text.p[i])); i++) {
        if (from_user && from_user[i]) parse = false;
        i32 found = trie->ids[node];
        if (found < 0 || (!parse && tok_type(t, found) != TOK_USER)) continue;
        *id = found;
        len = i + 1 - at;
    }
    return len;
}

/* The code point before or after a place; -1 at the ends and in invalid bytes. */
static i32 code_before(struct str s, size_t at)
{
    utf8proc_int32_t c;
    size_t n = 1;
    while (n < 4 && n < at && ((u8)s.p[at - n] & 0xc0) == 0x80) n++;
    if (at < n || utf8_check(s.p + at - n, n) != (int)n) return -1;
    utf8proc_iterate((const utf8proc_uint8_t *)s.p + at - n, (utf8proc_ssize_t)n, &c);
    return c;
}

static i32 code_after(struct str s, size_t at)
{
    utf8proc_int32_t c;
    if (at == s.n || utf8_check(s.p + at, s.n - at) <= 0) return -1;
    utf8proc_iterate((const utf8proc_uint8_t *)s.p + at, (utf8proc_ssize_t)(s.n - at), &c);
    return c;
}

static size_t code_size(i32 c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/* A special token with its flags at text[at, at + len): whether it counts, and what it takes of the
 * text around it, back to `start` at most. */
static bool special_span(const struct tok *t, struct str text, size_t start, i32 id, size_t *at,
                         size_t *end)
{
    u8 flags = t->spec.token_flags ? t->spec.token_flags[id] : 0;
    if (flags & TOK_SINGLE_WORD &&
        (unicode_is_word(code_before(text, *at)) || unicode_is_word(code_after(text, *end))))
        return false;
    for (i32 c; flags & TOK_LSTRIP && *at > start && unicode_is_white(c = code_before(text, *at));)
        *at -= code_size(c);
    for (i32 c; flags & TOK_RSTRIP && unicode_is_white(c = code_after(text, *end));)
        *end += code_size(c);
    return true;
}

/* Parts a text at the tokens of a trie; what lies between them goes to `rest`. */
static int encode_parts(struct encoder *e, const struct trie *trie, struct str text,
                        const u8 *from_user, bool parse, bool first,
                        int (*rest)(struct encoder *e, struct str s, bool first))
{
    size_t start = 0, at = 0;
    int rc = 0;
    while (at < text.n && rc == 0) {
        i32 id;
        size_t len = special_at(e->t, trie, text, from_user, parse, at, &id), end = at + len;
        size_t begin = at;
        if (!len || !special_span(e->t, text, start, id, &begin, &end)) {
            at++;
            continue;
        }
        rc = rest(e, (struct str){text.p + start, begin - start}, first && start == 0);
        if (rc == 0) rc = tok_push(e->ids, id, e->err);
        start = at = end;
    }
    if (rc) return rc;
    return rest(e, (struct str){text.p + start, at - start}, first && start == 0);
}

/* Normalised text without any special token. */
static int encode_plain(struct encoder *e, struct str s, bool first)
{
    const struct tok *t = e->t;
    if (!s.n) return 0;
    if (t->pre) return tok_pre_split(t->pre, s, first, encode_piece, e, e->err);
    return t->spec.kind == TOK_SPM ? encode_spm(e, s, first) : encode_rwkv(e, s);
}

static int encode_fragment(struct encoder *e, struct str s, bool first)
{
    const struct tok *t = e->t;
    if (t->norm && s.n) {
        e->norm.first = first;
        e->norm.symbols = t->spec.n_symbols ? &t->symbols : NULL;
        int rc = tok_norm_run(t->norm, &e->norm, s, &s, e->err);
        if (rc) return rc;
    }
    if (!t->normalised.n) return encode_plain(e, s, first);
    return encode_parts(e, &t->normalised, s, NULL, false, first, encode_plain);
}

/* The tokens around a text: a list, or one id. */
static int encode_around(struct encoder *e, u32 n, const i32 *list, i64 id)
{
    int rc = n ? 0 : tok_push(e->ids, (i32)id, e->err);
    for (u32 i = 0; i < n && rc == 0; i++) rc = tok_push(e->ids, list[i], e->err);
    return rc;
}

int tok_encode(const struct tok *t, struct str text, const u8 *from_user, unsigned flags,
               struct tok_ids *ids, struct err *err)
{
    struct encoder e = {.t = t, .ids = ids, .err = err};
    size_t n = ids->n;
    int rc = 0;
    if (t->spec.kind == TOK_NONE)
        return err_set(err, FLETCH_E_VOCAB, "the model has no vocabulary; give token ids");
    if (text.n > TOK_MAX_TEXT)
        return err_set(err, FLETCH_E_LIMIT,
                       "the text has %zu bytes; at most %d can be tokenized at once", text.n,
                       TOK_MAX_TEXT);
    if ((flags & TOK_ADD_BOS) && t->spec.add_bos)
        rc = encode_around(&e, t->spec.n_before, t->spec.before, t->spec.bos);
    if (rc == 0)
        rc = encode_parts(&e, &t->specials, text, from_user, flags & TOK_SPECIAL, true,
                          encode_fragment);
    if (rc == 0 && (flags & TOK_ADD_BOS) && t->spec.add_eos)
        rc = encode_around(&e, t->spec.n_after, t->spec.after, t->spec.eos);
    if (rc) ids->n = n;
    tok_merger_free(&e.merger);
    tok_norm_job_free(&e.norm);
    buf_free(&e.text);
    return rc;
}
