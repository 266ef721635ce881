/* Vocabularies: opening one, what its tokens say, which of them end generation. */
#include "text/tok_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

void tok_spec_init(struct tok_spec *spec)
{
    *spec = (struct tok_spec){.bos = -1,
                              .eos = -1,
                              .eot = -1,
                              .eom = -1,
                              .unk = -1,
                              .pad = -1,
                              .add_bos = -1,
                              .add_eos = -1,
                              .ignore_merges = -1,
                              .add_space_prefix = -1,
                              .strip_space = -1,
                              .fuse_unk = -1};
}

void tok_spec_gguf_ids(struct tok_spec *spec)
{
    if (spec->kind == TOK_SPM) {
        spec->bos = 1;
        spec->eos = 2;
        spec->unk = 0;
    } else if (spec->kind == TOK_UNIGRAM) {
        spec->eos = 1;
        spec->unk = 2;
        spec->pad = 0;
    } else if (spec->kind == TOK_BPE) {
        bool glm = str_is(spec->pre, "glm4") || str_is(spec->pre, "chatglm-bpe");
        spec->bos = glm ? -1 : 11;
        spec->eos = 11;
    }
}

/* The byte that a code point stands for in byte-level BPE, or -1. Printable Latin-1 stands for
 * itself; the other 68 bytes in order are U+0100 and up. */
static int byte_of_char(u32 cp)
{
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xff && cp != 0xad)) return (int)cp;
    if (cp < 0x100 || cp > 0x143) return -1;
    cp -= 0x100;
    return (int)(cp <= 0x20 ? cp : cp <= 0x42 ? cp + 0x7f - 0x21 : 0xad);
}

static u32 char_of_byte(u8 b)
{
    if (b <= 0x20) return 0x100 + b;
    if (b >= 0x7f && b <= 0xa0) return 0x121 + b - 0x7f;
    return b == 0xad ? 0x143 : b;
}

void tok_map_bytes(struct buf *out, struct str raw)
{
    for (size_t i = 0; i < raw.n; i++) {
        u32 cp = char_of_byte((u8)raw.p[i]);
        if (cp >= 0x80) buf_putc(out, (char)(0xc0 | cp >> 6));
        buf_putc(out, (char)(cp >= 0x80 ? 0x80 | (cp & 0x3f) : cp));
    }
}

/* The decoders below write the raw form of a stored text, never longer than it, and return its
 * length. */

/* Characters that stand for no byte are kept as they are. */
static size_t unmap_bytes(char *out, struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        int len = utf8_check(s.p + i, s.n - i), b = -1;
        if (len == 1) b = byte_of_char((u8)s.p[i]);
        if (len == 2) b = byte_of_char((u32)(s.p[i] & 0x1f) << 6 | (s.p[i + 1] & 0x3f));
        if (len < 1) len = 1;
        if (b >= 0)
            out[n++] = (char)b;
        else
            for (int k = 0; k < len; k++) out[n++] = s.p[i + (size_t)k];
        i += (size_t)len;
    }
    return n;
}

void tok_unmap_bytes(struct buf *out, struct str stored)
{
    size_t n = out->n;
    buf_put(out, stored.p, stored.n);
    if (!out->failed) out->n = n + unmap_bytes(out->p + n, stored);
}

static size_t unmap_spaces(char *out, struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        bool space = str_starts((struct str){s.p + i, s.n - i}, TOK_SPACE);
        out[n++] = space ? ' ' : s.p[i];
        i += space ? 3 : 1;
    }
    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Two digits at s[i], or -1. */
static int hex_byte(struct str s, size_t i)
{
    if (i + 2 > s.n || hex_digit(s.p[i]) < 0 || hex_digit(s.p[i + 1]) < 0) return -1;
    return hex_digit(s.p[i]) << 4 | hex_digit(s.p[i + 1]);
}

/* The body of a Python bytes literal. */
static size_t unescape(char *out, struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '\\' && i + 1 < s.n) {
            c = s.p[++i];
            int b = c == 'x' ? hex_byte(s, i + 1) : -1;
            if (b >= 0) i += 2;
            c = b >= 0 ? (char)b : c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
        }
        out[n++] = c;
    }
    return n;
}

/* <0xHH>, or -1. */
static int byte_token(struct str s)
{
    return s.n == 6 && str_starts(s, "<0x") && s.p[5] == '>' ? hex_byte(s, 3) : -1;
}

static size_t tok_raw(const struct tok *t, i32 id, char *out)
{
    struct str s = t->spec.tokens[id];
    enum tok_type type = tok_type(t, id);
    if (type == TOK_NORMAL && t->spec.kind == TOK_BPE) return unmap_bytes(out, s);
    bool spaces = t->spec.kind == TOK_SPM || t->spec.kind == TOK_UNIGRAM;
    if (spaces && (type == TOK_NORMAL || type == TOK_USER)) return unmap_spaces(out, s);
    if (type == TOK_NORMAL && t->spec.kind == TOK_RWKV) return unescape(out, s);
    if (type == TOK_BYTE && byte_token(s) >= 0) {
        out[0] = (char)byte_token(s);
        return 1;
    }
    if (s.n) memcpy(out, s.p, s.n);
    return s.n;
}

static int open_pieces(struct tok *t, struct err *err)
{
    size_t total = 0;
    for (u32 i = 0; i < t->spec.n_tokens; i++)
        if (!CK_ADD(total, t->spec.tokens[i].n, &total)) return err_nomem(err, "the vocabulary");
    t->pieces = arena_alloc(&t->arena, t->spec.n_tokens, sizeof *t->pieces);
    char *raw = arena_alloc(&t->arena, total, 1);
    if (!t->pieces || !raw) return err_nomem(err, "the vocabulary");
    for (u32 i = 0; i < t->spec.n_tokens; i++) {
        t->pieces[i] = (struct str){raw, tok_raw(t, (i32)i, raw)};
        raw += t->pieces[i].n;
        strmap_add(&t->by_text, t->spec.tokens[i], i);
        t->max_text = MAX(t->max_text, t->spec.tokens[i].n);
    }
    return strmap_ok(&t->by_text) ? 0 : err_nomem(err, "the vocabulary");
}

static int add_word(struct trie *trie, u32 id, struct str s, struct err *err)
{
    if (!s.n) return 0;
    if (s.n > TOK_MAX_WORD)
        return err_set(err, FLETCH_E_LIMIT, "token %u has %zu bytes; at most %d are supported", id,
                       s.n, TOK_MAX_WORD);
    return trie_add(trie, s, (i32)id) ? 0 : err_nomem(err, "the vocabulary");
}

static bool tok_is_normalised(const struct tok *t, u32 id)
{
    return t->norm && t->spec.token_flags && t->spec.token_flags[id] & TOK_NORMALIZED;
}

static int add_normalised(struct tok *t, u32 id, struct err *err)
{
    struct tok_norm_job job = {.first = true};
    struct str s = t->spec.tokens[id];
    int rc = s.n ? tok_norm_run(t->norm, &job, s, &s, err) : 0;
    if (rc == 0) rc = add_word(&t->normalised, id, s, err);
    tok_norm_job_free(&job);
    return rc;
}

/* What is looked for at every place of a text: special tokens, symbols, and the whole vocabulary
 * of RWKV and Unigram. */
static int open_tries(struct tok *t, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < t->spec.n_tokens && rc == 0; i++) {
        enum tok_type type = tok_type(t, (i32)i);
        bool symbol = type == TOK_USER && i < t->spec.n_symbols;
        bool special = type == TOK_CONTROL || type == TOK_UNKNOWN || type == TOK_USER;
        if (symbol)
            rc = add_word(&t->symbols, i, t->spec.tokens[i], err);
        else if (type == TOK_USER && tok_is_normalised(t, i))
            rc = add_normalised(t, i, err);
        else if (special)
            rc = add_word(&t->specials, i, t->spec.tokens[i], err);
        if (rc == 0 && t->spec.kind == TOK_RWKV && type == TOK_NORMAL)
            rc = add_word(&t->words, i, t->pieces[i], err);
        if (rc == 0 && t->spec.kind == TOK_UNIGRAM && tok_mergeable(t, (i32)i))
            rc = add_word(&t->words, i, t->spec.tokens[i], err);
    }
    return rc;
}

/* A byte token stands for its byte; where there is none, a token whose text is that byte. */
static void open_bytes(struct tok *t)
{
    for (int b = 0; b < 256; b++) t->bytes[b] = -1;
    for (u32 i = 0; i < t->spec.n_tokens; i++) {
        struct str s = t->pieces[i];
        enum tok_type type = tok_type(t, (i32)i);
        if (s.n != 1) continue;
        i32 *token = &t->bytes[(u8)s.p[0]];
        if (type == TOK_BYTE || (type == TOK_NORMAL && *token < 0)) *token = (i32)i;
    }
}

/* A merge whose parts or outcome are not in the vocabulary can't happen; it is left out. */
static int open_merges(struct tok *t, struct err *err)
{
    struct buf whole = {0};
    bool ok = true;
    for (u32 i = 0; i < t->spec.n_merges && ok; i++) {
        struct str m = t->spec.merges[i];
        const char *cut = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
        if (!cut || cut == m.p + m.n - 1) {
            buf_free(&whole);
            return err_set(err, FLETCH_E_FORMAT,
                           "merge %u is %s, not two tokens separated by a space", i, QUOTE(m));
        }
        struct str left = {m.p, (size_t)(cut - m.p)};
        struct str right = {cut + 1, m.n - left.n - 1};
        whole.n = 0;
        buf_put(&whole, left.p, left.n);
        buf_put(&whole, right.p, right.n);
        i32 a = tok_find(t, left), b = tok_find(t, right);
        i32 id = tok_find_mergeable(t, buf_str(&whole));
        if (a >= 0 && b >= 0 && id >= 0)
            ok = pairmap_add(&t->merges, (u64)a << 32 | (u32)b, (u64)i << 32 | (u32)id);
    }
    ok = ok && !whole.failed;
    buf_free(&whole);
    return ok ? 0 : err_nomem(err, "merges");
}

/* Scores as integers that sort the other way round, so that the heap's lowest comes first. */
static int open_scores(struct tok *t, struct err *err)
{
    t->priorities = arena_alloc(&t->arena, t->spec.n_tokens, sizeof *t->priorities);
    if (!t->priorities) return err_nomem(err, "scores");
    if (!t->spec.scores) return err_set(err, FLETCH_E_FORMAT, "the SPM vocabulary has no scores");
    for (u32 i = 0; i < t->spec.n_tokens; i++) {
        float score = t->spec.scores[i] + 0.0f; /* no negative zero */
        u32 bits;
        memcpy(&bits, &score, sizeof bits);
        bits = bits >> 31 ? bits : ~bits & 0x7fffffff;
        t->priorities[i] = score == score ? bits : UINT32_MAX;
    }
    return 0;
}

static void resolve_flag(int *flag, int def)
{
    if (*flag < 0) *flag = def;
}

static int parse_step(json_t **out, struct str text, const char *what, struct err *err)
{
    json_error_t e;
    *out = NULL;
    if (!text.p) return 0;
    *out = json_loadb(text.p, text.n, JSON_ALLOW_NUL, &e);
    return *out ? 0 : err_set(err, FLETCH_E_FORMAT, "the %s is not JSON", what);
}

static int open_norm(struct tok *t, struct err *err)
{
    static const char *const forms[] = {
        [TOK_NORM_NFC] = "NFC",
        [TOK_NORM_NFD] = "NFD",
        [TOK_NORM_NFKC] = "NFKC",
        [TOK_NORM_NFKD] = "NFKD",
    };
    json_t *v;
    if (t->spec.norm == TOK_NORM_NONE && !t->spec.normalizer.p) return 0;
    int rc = parse_step(&v, t->spec.normalizer, "normalizer", err);
    if (rc == 0 && !v) v = json_pack("{s:s}", "type", forms[t->spec.norm]);
    if (rc == 0) rc = v ? tok_norm_open(&t->norm, v, err) : err_nomem(err, "the normalizer");
    json_decref(v);
    return rc;
}

static int open_pre(struct tok *t, const struct tok_pre_def **def, struct err *err)
{
    struct tok_spec *s = &t->spec;
    json_t *v;
    if (s->normalizer.p || s->pre_tokenizer.p || s->kind == TOK_UNIGRAM) {
        int rc = parse_step(&v, s->pre_tokenizer, "pre_tokenizer", err);
        if (rc == 0) rc = tok_pre_open_json(&t->pre, v, err);
        json_decref(v);
        return rc;
    }
    if (s->kind != TOK_BPE) return 0;
    if (!s->pre.n) s->pre = STR("default");
    *def = tok_pre_find(s->pre);
    if (!*def) return err_set(err, FLETCH_E_UNSUPPORTED, "unknown pre-tokenizer %s", QUOTE(s->pre));
    return tok_pre_open(&t->pre, *def, err);
}

static int open_spec(struct tok *t, struct err *err)
{
    struct tok_spec *s = &t->spec;
    const struct tok_pre_def *def = NULL;
    int rc = open_norm(t, err);
    if (rc == 0) rc = open_pre(t, &def, err);
    if (rc) return rc;
    for (u32 i = 0; i < s->n_before + s->n_after; i++) {
        i32 id = i < s->n_before ? s->before[i] : s->after[i - s->n_before];
        if (id < 0 || (u32)id >= s->n_tokens)
            return err_set(
                err, FLETCH_E_FORMAT,
                "the id %d, which is added to every text, is outside the vocabulary of %u tokens",
                id, s->n_tokens);
    }
    s->n_symbols = MIN(s->n_symbols, s->n_tokens);
    i64 *ids[] = {&s->bos, &s->eos, &s->eot, &s->eom, &s->unk, &s->pad};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (*ids[i] < 0 || *ids[i] >= s->n_tokens) *ids[i] = -1;
    resolve_flag(&s->add_bos, s->kind == TOK_SPM || (def && def->bos_and_whole));
    resolve_flag(&s->add_eos, s->kind == TOK_UNIGRAM);
    resolve_flag(&s->ignore_merges, def && def->bos_and_whole);
    resolve_flag(&s->add_space_prefix, s->kind == TOK_SPM ? TOK_PREFIX_ALWAYS : TOK_PREFIX_NEVER);
    resolve_flag(&s->strip_space, s->kind == TOK_SPM && s->add_space_prefix != TOK_PREFIX_NEVER);
    resolve_flag(&s->fuse_unk, s->kind != TOK_BPE);
    if (s->bos < 0 && !s->n_before) s->add_bos = 0;
    if (s->eos < 0 && !s->n_after) s->add_eos = 0;
    return 0;
}

/* Texts that end generation wherever a vocabulary has them; the first of N_TURN_ENDS found is the
 * end of a turn where the file doesn't name it. */
enum { N_TURN_ENDS = 11 };
/* clang-format off */
static const char *const ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<turn|>",
    "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "<|eom_id|>", "[EOS]",
    "<end_of_utterance>", "<eos>", "<|tool_response>", "[e~[",
    "<|fim_pad|>", "<|fim_repo|>", "<|repo_name|>", "<|file_sep|>",
};
/* clang-format on */

static int open_eog(struct tok *t, struct err *err)
{
    struct tok_spec *s = &t->spec;
    t->eog = arena_alloc(&t->arena, s->n_tokens, 1);
    if (!t->eog) return err_nomem(err, "the vocabulary");
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        i32 id = tok_find(t, str_of(ends[i]));
        if (id < 0) continue;
        t->eog[id] = 1;
        if (s->eot < 0 && i < N_TURN_ENDS) s->eot = id;
    }
    if (s->eom < 0) s->eom = tok_find(t, STR("<|eom_id|>"));
    i64 ids[] = {s->eos, s->eot, s->eom};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i] >= 0) t->eog[ids[i]] = 1;
    for (u32 i = 0; i < s->n_ends; i++)
        if (s->ends[i] >= 0 && (u32)s->ends[i] < s->n_tokens) t->eog[s->ends[i]] = 1;
    /* With these two, <|end|> only parts the messages of one turn. */
    i32 end = tok_find(t, STR("<|end|>"));
    if (tok_find(t, STR("<|return|>")) >= 0 && tok_find(t, STR("<|call|>")) >= 0 && end >= 0)
        t->eog[end] = end == s->eos;
    return 0;
}

int tok_open(struct tok **out, const struct tok_spec *spec, struct err *err)
{
    struct tok *t = *out = calloc(1, sizeof *t);
    if (!t) return err_nomem(err, "the vocabulary");
    t->spec = *spec;
    int rc = 0;
    if (spec->n_tokens > INT32_MAX || (spec->kind != TOK_NONE && !spec->n_tokens))
        rc = err_set(err, FLETCH_E_FORMAT, "the vocabulary has %u tokens; 1 to %d are supported",
                     spec->n_tokens, INT32_MAX);
    if (rc == 0) rc = open_spec(t, err);
    if (rc == 0 && spec->kind != TOK_NONE) {
        rc = open_pieces(t, err);
        if (rc == 0) rc = open_tries(t, err);
        if (rc == 0) open_bytes(t);
        if (rc == 0) rc = open_merges(t, err);
        if (rc == 0 && spec->kind == TOK_SPM && !spec->n_merges) rc = open_scores(t, err);
        if (rc == 0 && spec->kind == TOK_UNIGRAM && !spec->scores)
            rc = err_set(err, FLETCH_E_FORMAT, "the Unigram vocabulary has no scores");
        if (rc == 0 && spec->kind == TOK_UNIGRAM) tok_unigram_open(t);
    }
    if (rc == 0) rc = open_eog(t, err);
    if (rc) {
        tok_close(t);
        *out = NULL;
    }
    return rc;
}

void tok_close(struct tok *t)
{
    if (!t) return;
    tok_pre_close(t->pre);
    tok_norm_close(t->norm);
    strmap_free(&t->by_text);
    trie_free(&t->specials);
    trie_free(&t->normalised);
    trie_free(&t->words);
    trie_free(&t->symbols);
    pairmap_free(&t->merges);
    arena_free(&t->arena);
    free(t);
}

enum tok_type tok_type(const struct tok *t, i32 id)
{
    u8 type = t->spec.types ? t->spec.types[id] : TOK_NORMAL;
    return type >= TOK_NORMAL && type <= TOK_BYTE ? (enum tok_type)type : TOK_UNUSED;
}

bool tok_mergeable(const struct tok *t, i32 id)
{
    enum tok_type type = tok_type(t, id);
    return type == TOK_NORMAL || type == TOK_USER;
}

i32 tok_find(const struct tok *t, struct str text)
{
    u32 id;
    return strmap_get(&t->by_text, text, &id) ? (i32)id : -1;
}

i32 tok_find_mergeable(const struct tok *t, struct str text)
{
    i32 id = text.n <= t->max_text ? tok_find(t, text) : -1;
    return id >= 0 && tok_mergeable(t, id) ? id : -1;
}

static bool tok_has(const struct tok *t, i64 id)
{
    return id >= 0 && id < t->spec.n_tokens && t->spec.kind != TOK_NONE;
}

struct str tok_piece(const struct tok *t, i32 id, bool render_special)
{
    if (!tok_has(t, id)) return STR("");
    enum tok_type type = tok_type(t, id);
    bool hidden = type == TOK_CONTROL || type == TOK_UNKNOWN;
    if (type == TOK_UNUSED || (hidden && !render_special)) return STR("");
    return t->pieces[id];
}

void tok_decode(const struct tok *t, const i32 *ids, size_t n, bool render_special, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        struct str s = tok_piece(t, ids[i], render_special);
        bool drop = i == 0 && t->spec.strip_space && str_starts(s, " ");
        buf_put(out, s.p + drop, s.n - drop);
    }
}

struct str tok_text(const struct tok *t, i64 id)
{
    return tok_has(t, id) ? t->spec.tokens[id] : STR("");
}

u32 tok_size(const struct tok *t)
{
    return t->spec.n_tokens;
}

bool tok_is_eog(const struct tok *t, i32 id)
{
    return id >= 0 && (u32)id < t->spec.n_tokens && t->eog[id];
}

i64 tok_bos(const struct tok *t)
{
    return t->spec.bos;
}

i64 tok_eos(const struct tok *t)
{
    return t->spec.eos;
}

i64 tok_eot(const struct tok *t)
{
    return t->spec.eot;
}

bool tok_adds_bos(const struct tok *t)
{
    return t->spec.add_bos;
}
