#include "text/tok_norm.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tok_charsmap.h"
#include "text/tok_internal.h"
#include "text/tok_regex.h"
#include "text/unicode.h"

enum { MAX_STEPS = 32 };

enum norm_op {
    NORM_FORM,
    NORM_LOWERCASE,
    NORM_STRIP_ACCENTS,
    NORM_STRIP,
    NORM_REPLACE,
    NORM_PREPEND,
    NORM_NMT,
    NORM_PRECOMPILED,
    NORM_SENTENCEPIECE,
};

struct norm_step {
    enum norm_op op;
    enum unicode_form form;
    struct tok_regex *re; /* NORM_REPLACE */
    struct str text;      /* NORM_REPLACE, NORM_PREPEND; in arena */
    struct tok_charsmap map;
    bool left, right; /* NORM_STRIP */
    /* SentencePiece's options. */
    bool dummy_prefix, prefix_first_only, remove_extra_spaces, escape_spaces;
};

struct tok_normalizer {
    u32 n;
    struct norm_step steps[MAX_STEPS];
    struct arena arena;
};

/* From JSON */

static int norm_add(struct tok_normalizer *norm, struct norm_step step, struct err *err)
{
    if (norm->n == MAX_STEPS) {
        tok_regex_close(step.re);
        return err_set(err, FLETCH_E_LIMIT, "more than %d normalizers", MAX_STEPS);
    }
    norm->steps[norm->n++] = step;
    return 0;
}

static int norm_keep(struct tok_normalizer *norm, struct str text, struct str *out, struct err *err)
{
    *out = (struct str){arena_copy(&norm->arena, text), text.n};
    return out->p ? 0 : err_nomem(err, "the normalizer");
}

static int norm_read_replace(struct tok_normalizer *norm, const json_t *v, struct err *err)
{
    const json_t *pattern = json_object_get(v, "pattern");
    struct str regex = tok_json_str(pattern, "Regex"), text = tok_json_str(pattern, "String");
    struct str content = tok_json_str(v, "content");
    struct norm_step step = {.op = NORM_REPLACE};
    struct buf b = {0};
    if ((!regex.p && !text.p) || !content.p)
        return err_set(err, FLETCH_E_FORMAT, "a Replace has no pattern or no content");
    int rc = norm_keep(norm, content, &step.text, err);
    if (text.p) tok_regex_quote(&b, text);
    if (b.failed) rc = err_nomem(err, "the normalizer");
    if (rc == 0) rc = tok_regex_open(&step.re, text.p ? buf_str(&b) : regex, err);
    buf_free(&b);
    return rc ? rc : norm_add(norm, step, err);
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

static int norm_read_charsmap(struct tok_normalizer *norm, const json_t *v,
                              struct tok_charsmap *out, struct err *err)
{
    struct str s = tok_json_str(v, "precompiled_charsmap");
    while (s.n && s.p[s.n - 1] == '=') s.n--;
    u8 *p = arena_alloc(&norm->arena, s.n, 1);
    size_t n = 0;
    u32 bits = 0, have = 0;
    if (!p) return err_nomem(err, "the normalizer");
    for (size_t i = 0; i < s.n; i++) {
        int digit = base64_digit(s.p[i]);
        if (digit < 0)
            return err_set(err, FLETCH_E_FORMAT, "the precompiled_charsmap is not base64");
        bits = bits << 6 | (u32)digit;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        p[n++] = (u8)(bits >> have);
    }
    return tok_charsmap_open(out, (struct str){(const char *)p, n}, err);
}

static int norm_read_mapped(struct tok_normalizer *norm, const json_t *v, enum norm_op op,
                            struct err *err)
{
    struct norm_step step = {
        .op = op,
        .dummy_prefix = tok_json_bool(v, "add_dummy_prefix", true),
        .prefix_first_only = tok_json_bool(v, "prefix_first_only", false),
        .remove_extra_spaces = tok_json_bool(v, "remove_extra_whitespaces", true),
        .escape_spaces = tok_json_bool(v, "escape_whitespaces", true),
    };
    int rc = norm_read_charsmap(norm, v, &step.map, err);
    return rc ? rc : norm_add(norm, step, err);
}

static int norm_read(struct tok_normalizer *norm, const json_t *v, struct err *err);

static int norm_read_sequence(struct tok_normalizer *norm, const json_t *v, struct err *err)
{
    const json_t *items = json_object_get(v, "normalizers");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(items) && rc == 0; i++)
        rc = norm_read(norm, json_array_get(items, i), err);
    return rc;
}

static int norm_read(struct tok_normalizer *norm, const json_t *v, struct err *err)
{
    static const struct {
        const char *type;
        struct norm_step step;
    } plain[] = {
        {"NFC", {.op = NORM_FORM, .form = UNICODE_NFC}},
        {"NFD", {.op = NORM_FORM, .form = UNICODE_NFD}},
        {"NFKC", {.op = NORM_FORM, .form = UNICODE_NFKC}},
        {"NFKD", {.op = NORM_FORM, .form = UNICODE_NFKD}},
        {"Lowercase", {.op = NORM_LOWERCASE}},
        {"StripAccents", {.op = NORM_STRIP_ACCENTS}},
        {"Nmt", {.op = NORM_NMT}},
    };
    struct str type = tok_json_str(v, "type");
    struct norm_step step = {0};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (str_is(type, plain[i].type)) return norm_add(norm, plain[i].step, err);
    if (str_is(type, "Sequence")) return norm_read_sequence(norm, v, err);
    if (str_is(type, "Replace")) return norm_read_replace(norm, v, err);
    if (str_is(type, "Precompiled")) return norm_read_mapped(norm, v, NORM_PRECOMPILED, err);
    if (str_is(type, "SentencePiece")) return norm_read_mapped(norm, v, NORM_SENTENCEPIECE, err);
    if (str_is(type, "Strip")) {
        step.op = NORM_STRIP;
        step.left = tok_json_bool(v, "strip_left", true);
        step.right = tok_json_bool(v, "strip_right", true);
        return norm_add(norm, step, err);
    }
    if (str_is(type, "Prepend")) {
        step.op = NORM_PREPEND;
        int rc = norm_keep(norm, tok_json_str(v, "prepend"), &step.text, err);
        return rc ? rc : norm_add(norm, step, err);
    }
    return err_set(err, FLETCH_E_UNSUPPORTED, "normalizer %s is not supported",
                   type.p ? QUOTE(type) : "without a type");
}

int tok_norm_open(struct tok_normalizer **out, const json_t *v, struct err *err)
{
    struct tok_normalizer *norm = *out = calloc(1, sizeof *norm);
    if (!norm) return err_nomem(err, "the normalizer");
    int rc = !v || json_is_null(v) ? 0 : norm_read(norm, v, err);
    if (rc) {
        tok_norm_close(norm);
        *out = NULL;
    }
    return rc;
}

void tok_norm_close(struct tok_normalizer *norm)
{
    if (!norm) return;
    for (u32 i = 0; i < norm->n; i++) tok_regex_close(norm->steps[i].re);
    arena_free(&norm->arena);
    free(norm);
}

void tok_norm_job_free(struct tok_norm_job *job)
{
    buf_free(&job->a);
    buf_free(&job->b);
}

/* The steps: each appends what it makes of s to out. */

static void norm_put_code(struct buf *out, utf8proc_int32_t c)
{
    utf8proc_uint8_t bytes[4];
    buf_put(out, bytes, (size_t)utf8proc_encode_char(c, bytes));
}

static void norm_lowercase(struct buf *out, utf8proc_int32_t c)
{
    norm_put_code(out, c == 0x130 ? 'i' : utf8proc_tolower(c));
    if (c == 0x130) norm_put_code(out, 0x307); /* the one character that becomes two */
}

static void norm_strip_accents(struct buf *out, utf8proc_int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME) norm_put_code(out, c);
}

static void norm_nmt(struct buf *out, utf8proc_int32_t c)
{
    static const utf8proc_int32_t spaces[] = {0x09,   0x0a,   0x0c,   0x0d,   0x1680,
                                              0x200b, 0x200c, 0x200d, 0x200e, 0x200f,
                                              0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd};
    if ((c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
        c == 0x8f || c == 0x9f)
        return;
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
        if (c == spaces[i]) c = ' ';
    norm_put_code(out, c);
}

static void norm_each(struct buf *out, struct str s,
                      void (*put)(struct buf *out, utf8proc_int32_t c))
{
    for (size_t i = 0; i < s.n;) {
        utf8proc_int32_t c;
        if (utf8_check(s.p + i, s.n - i) <= 0) {
            buf_putc(out, s.p[i++]);
            continue;
        }
        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s.p + i,
                                      (utf8proc_ssize_t)(s.n - i), &c);
        put(out, c);
    }
}

static void norm_strip(struct buf *out, struct str s, bool left, bool right)
{
    size_t begin = s.n, end = 0;
    for (size_t i = 0; i < s.n;) {
        utf8proc_int32_t c = 0;
        int len = utf8_check(s.p + i, s.n - i);
        if (len > 0) utf8proc_iterate((const utf8proc_uint8_t *)s.p + i, (utf8proc_ssize_t)len, &c);
        size_t next = i + (size_t)MAX(len, 1);
        if (len <= 0 || !unicode_is_white(c)) {
            begin = MIN(begin, i);
            end = next;
        }
        i = next;
    }
    if (!left) begin = 0;
    if (!right) end = s.n;
    if (begin < end) buf_put(out, s.p + begin, end - begin);
}

static int norm_replace(const struct norm_step *step, struct buf *out, struct str s,
                        struct err *err)
{
    void *match = tok_regex_match();
    int rc = match ? 0 : err_nomem(err, "text");
    for (size_t at = 0; at < s.n && rc == 0;) {
        size_t end = utf8_run(s, at), done = 0;
        struct str run = {s.p + at, end - at};
        struct tok_regex_iter it = {.re = step->re, .match = match, .text = run};
        while (run.n && (rc = tok_regex_next(&it, err)) > 0) {
            buf_put(out, run.p + done, it.begin - done);
            buf_put(out, step->text.p, step->text.n);
            done = it.end;
        }
        buf_put(out, run.p + done, run.n - done);
        if (end < s.n) buf_putc(out, s.p[end++]);
        at = end;
    }
    tok_regex_match_free(match);
    return rc;
}

/* The end of the grapheme that starts at `at` of a valid run. */
static size_t norm_grapheme_end(struct str s, size_t at)
{
    utf8proc_int32_t state = 0, before = -1, c;
    for (size_t i = at; i < s.n;) {
        size_t n = (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s.p + i,
                                            (utf8proc_ssize_t)(s.n - i), &c);
        if (before >= 0 && utf8proc_grapheme_break_stateful(before, c, &state)) return i;
        before = c;
        i += n;
    }
    return s.n;
}

/* As the tokenizers library does it: a short grapheme is looked up first, else its characters are;
 * the shortest word that begins there counts, whatever follows. */
static void norm_precompiled(const struct norm_step *step, struct buf *out, struct str s)
{
    for (size_t at = 0; at < s.n;) {
        if (utf8_check(s.p + at, s.n - at) <= 0) {
            buf_putc(out, s.p[at++]);
            continue;
        }
        struct str run = {s.p, utf8_run(s, at)}, to;
        size_t end = norm_grapheme_end(run, at);
        struct str grapheme = {s.p + at, end - at};
        if (grapheme.n < 6 && tok_charsmap_find(&step->map, grapheme, TOK_SHORTEST, &to)) {
            buf_put(out, to.p, to.n);
            at = end;
        }
        while (at < end) {
            struct str c = {s.p + at, (size_t)utf8_check(s.p + at, s.n - at)};
            bool found = tok_charsmap_find(&step->map, c, TOK_SHORTEST, &to) > 0;
            buf_put(out, found ? to.p : c.p, found ? to.n : c.n);
            at += c.n;
        }
    }
}

/* What SentencePiece makes of the beginning of s: its length, and the text in its place. */
static size_t norm_prefix(const struct norm_step *step, const struct trie *symbols, struct str s,
                          struct str *out)
{
    u32 node = 0;
    size_t n = 0;
    for (size_t i = 0; symbols && i < s.n && (node = trie_step(symbols, node, s.p[i])); i++)
        if (symbols->ids[node] >= 0) n = i + 1;
    if (n) {
        *out = (struct str){s.p, n};
        return n;
    }
    n = tok_charsmap_find(&step->map, s, TOK_LONGEST, out);
    if (n) return n;
    int len = utf8_check(s.p, s.n);
    *out = (struct str){s.p, len > 0 ? (size_t)len : 1};
    return out->n;
}

static void norm_sentencepiece(const struct norm_step *step, const struct tok_norm_job *job,
                               struct buf *out, struct str s)
{
    struct str space = step->escape_spaces ? STR(TOK_SPACE) : STR(" "), to;
    bool after_space = step->remove_extra_spaces;
    size_t at = 0, start = out->n;
    while (step->remove_extra_spaces && at < s.n) {
        size_t n = norm_prefix(step, job->symbols, (struct str){s.p + at, s.n - at}, &to);
        if (!str_is(to, " ")) break;
        at += n;
    }
    if (at == s.n) return;
    if (step->dummy_prefix && (job->first || !step->prefix_first_only))
        buf_put(out, space.p, space.n);
    while (at < s.n) {
        at += norm_prefix(step, job->symbols, (struct str){s.p + at, s.n - at}, &to);
        for (; after_space && to.n && *to.p == ' '; to.p++) to.n--;
        for (size_t i = 0; i < to.n; i++) {
            if (to.p[i] == ' ')
                buf_put(out, space.p, space.n);
            else
                buf_putc(out, to.p[i]);
        }
        if (to.n) after_space = to.p[to.n - 1] == ' ';
        if (!step->remove_extra_spaces) after_space = false;
    }
    while (step->remove_extra_spaces && out->n - start >= space.n &&
           !memcmp(out->p + out->n - space.n, space.p, space.n))
        out->n -= space.n;
}

static int norm_apply(const struct norm_step *step, const struct tok_norm_job *job, struct buf *out,
                      struct str s, struct err *err)
{
    int rc = 0;
    switch (step->op) {
    case NORM_FORM:
        if (!unicode_normalise(out, s, step->form)) rc = err_nomem(err, "normalised text");
        break;
    case NORM_LOWERCASE: norm_each(out, s, norm_lowercase); break;
    case NORM_STRIP_ACCENTS: norm_each(out, s, norm_strip_accents); break;
    case NORM_NMT: norm_each(out, s, norm_nmt); break;
    case NORM_STRIP: norm_strip(out, s, step->left, step->right); break;
    case NORM_REPLACE: rc = norm_replace(step, out, s, err); break;
    case NORM_PRECOMPILED: norm_precompiled(step, out, s); break;
    case NORM_SENTENCEPIECE: norm_sentencepiece(step, job, out, s); break;
    case NORM_PREPEND:
        buf_put(out, step->text.p, step->text.n);
        buf_put(out, s.p, s.n);
        break;
    }
    return rc == 0 && out->failed ? err_nomem(err, "normalised text") : rc;
}

int tok_norm_run(const struct tok_normalizer *norm, struct tok_norm_job *job, struct str text,
                 struct str *out, struct err *err)
{
    *out = text;
    for (u32 i = 0; i < norm->n && out->n; i++) {
        struct buf *to = i % 2 ? &job->b : &job->a;
        to->n = 0;
        to->max = TOK_MAX_TEXT;
        int rc = norm_apply(&norm->steps[i], job, to, *out, err);
        if (rc) return rc;
        *out = buf_str(to);
    }
    return 0;
}
