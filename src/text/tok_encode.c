/* Text to ids: special tokens part the text, each fragment between them is encoded on its own. */
#include "text/tok_internal.h"

#include <stdlib.h>

#include "text/unicode.h"

struct encoder {
    const struct tok *t;
    struct tok_ids *ids;
    struct tok_merger merger;
    struct buf norm, text;
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
    if (e->t->spec.ignore_merges && piece.n <= e->t->max_text) {
        e->text.n = 0;
        tok_map_bytes(&e->text, piece);
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

static int encode_fragment(struct encoder *e, struct str s, bool first)
{
    static const enum unicode_form forms[] = {
        [TOK_NORM_NFC] = UNICODE_NFC,
        [TOK_NORM_NFD] = UNICODE_NFD,
        [TOK_NORM_NFKC] = UNICODE_NFKC,
        [TOK_NORM_NFKD] = UNICODE_NFKD,
    };
    if (!s.n) return 0;
    if (e->t->spec.norm != TOK_NORM_NONE) {
        e->norm.n = 0;
        if (!unicode_normalise(&e->norm, s, forms[e->t->spec.norm]))
            return err_nomem(e->err, "normalised text");
        s = buf_str(&e->norm);
    }
    switch (e->t->spec.kind) {
    case TOK_SPM: return encode_spm(e, s, first);
    case TOK_BPE: return tok_pre_split(e->t->pre, s, encode_piece, e, e->err);
    default: return encode_rwkv(e, s);
    }
}

/* The longest special token at `at` that may be one here: its length, or 0. */
static size_t special_at(const struct tok *t, struct str text, const u8 *from_user, bool parse,
                         size_t at, i32 *id)
{
    size_t len = 0;
    u32 node = 0;
    for (size_t i = at; i < text.n && (node = trie_step(&t->specials, node, text.p[i])); i++) {
        if (from_user && from_user[i]) parse = false;
        i32 found = t->specials.ids[node];
        if (found < 0 || (!parse && tok_type(t, found) != TOK_USER)) continue;
        *id = found;
        len = i + 1 - at;
    }
    return len;
}

static int encode_parts(struct encoder *e, struct str text, const u8 *from_user, bool parse)
{
    size_t start = 0, at = 0;
    int rc = 0;
    while (at < text.n && rc == 0) {
        i32 id;
        size_t len = special_at(e->t, text, from_user, parse, at, &id);
        if (!len) {
            at++;
            continue;
        }
        rc = encode_fragment(e, (struct str){text.p + start, at - start}, start == 0);
        if (rc == 0) rc = tok_push(e->ids, id, e->err);
        start = at += len;
    }
    if (rc) return rc;
    return encode_fragment(e, (struct str){text.p + start, at - start}, start == 0);
}

int tok_encode(const struct tok *t, struct str text, const u8 *from_user, unsigned flags,
               struct tok_ids *ids, struct err *err)
{
    struct encoder e = {.t = t, .ids = ids, .err = err};
    size_t n = ids->n;
    int rc = 0;
    if (t->spec.kind == TOK_NONE)
        return err_set(err, FLETCH_E_VOCAB, "the model has no vocabulary: give token ids");
    if (text.n > TOK_MAX_TEXT)
        return err_set(err, FLETCH_E_LIMIT, "text of %zu bytes; at most %d at once", text.n,
                       TOK_MAX_TEXT);
    if ((flags & TOK_ADD_BOS) && t->spec.add_bos) rc = tok_push(ids, (i32)t->spec.bos, err);
    if (rc == 0) rc = encode_parts(&e, text, from_user, flags & TOK_SPECIAL);
    if (rc == 0 && (flags & TOK_ADD_BOS) && t->spec.add_eos)
        rc = tok_push(ids, (i32)t->spec.eos, err);
    if (rc) ids->n = n;
    tok_merger_free(&e.merger);
    buf_free(&e.norm);
    buf_free(&e.text);
    return rc;
}
