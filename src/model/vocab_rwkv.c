/* RWKV's vocabulary as its authors publish it: one line per token, "id literal length", where
 * the literal is a Python str or bytes and the length counts bytes. */
#include <stdio.h>
#include <string.h>

#include "model/vocab.h"

enum {
    MAX_ID = (1 << 24) - 1,
    MAX_LINE = 1024, /* tokens have at most 128 bytes, each escape four characters */
    DOUBLE_NEWLINE = 261,
};

static int bad_line(struct err *err, u32 line, const char *what)
{
    return err_set(err, FLETCH_E_FORMAT, "rwkv_vocab_v20230424.txt:%u: %s", line, what);
}

static int hex_digits(struct str s, size_t at, u32 n, u32 *out)
{
    *out = 0;
    for (u32 i = 0; i < n; i++) {
        if (at + i >= s.n) return -1;
        char c = s.p[at + i];
        u32 d = c >= '0' && c <= '9'   ? (u32)(c - '0')
                : c >= 'a' && c <= 'f' ? (u32)(c - 'a') + 10
                : c >= 'A' && c <= 'F' ? (u32)(c - 'A') + 10
                                       : 16;
        if (d == 16) return -1;
        *out = *out << 4 | d;
    }
    return 0;
}

static void put_utf8(struct buf *b, u32 c)
{
    u32 n = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const u8 lead[] = {0, 0xc0, 0xe0, 0xf0};
    buf_putc(b, (char)(lead[n] | c >> 6 * n));
    while (n--) buf_putc(b, (char)(0x80 | (c >> 6 * n & 0x3f)));
}

/* The bytes a literal stands for; false when it is none. */
static bool read_literal(struct str lit, struct buf *out)
{
    bool bytes = lit.n && lit.p[0] == 'b';
    size_t i = bytes;
    if (lit.n < i + 2 || (lit.p[i] != '\'' && lit.p[i] != '"') || lit.p[lit.n - 1] != lit.p[i])
        return false;
    lit.n--;
    for (i++; i < lit.n; i++) {
        static const char from[] = "tnr\\'\"", to[] = "\t\n\r\\'\"";
        u32 c, n_hex;
        if (lit.p[i] != '\\') {
            buf_putc(out, lit.p[i]);
            continue;
        }
        if (++i == lit.n) return false;
        const char *plain = lit.p[i] ? strchr(from, lit.p[i]) : NULL;
        n_hex = lit.p[i] == 'x' ? 2 : bytes ? 0 : lit.p[i] == 'u' ? 4 : lit.p[i] == 'U' ? 8 : 0;
        if (plain) {
            buf_putc(out, to[plain - from]);
        } else if (n_hex && hex_digits(lit, i + 1, n_hex, &c) == 0 && c < 0x110000) {
            if (bytes)
                buf_putc(out, (char)c);
            else
                put_utf8(out, c);
            i += n_hex;
        } else {
            return false;
        }
    }
    return true;
}

/* GGUF keeps the inside of the bytes literal that Python's repr would print. */
static struct str escape(struct arena *arena, struct str s)
{
    bool both = memchr(s.p, '\'', s.n) && memchr(s.p, '"', s.n);
    struct buf b = {0};
    for (size_t i = 0; i < s.n; i++) {
        u8 c = (u8)s.p[i];
        if (c == '\t' || c == '\n' || c == '\r')
            buf_printf(&b, "\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : 'r');
        else if (c == '\\' || (c == '\'' && both))
            buf_printf(&b, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            buf_printf(&b, "\\x%02x", c);
        else
            buf_putc(&b, (char)c);
    }
    struct str copy = {b.failed ? NULL : arena_copy(arena, buf_str(&b)), b.n};
    buf_free(&b);
    return copy;
}

static bool read_number(struct str s, u32 *out)
{
    *out = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9' || *out > MAX_ID / 10) return false;
        *out = *out * 10 + (u32)(s.p[i] - '0');
    }
    return s.n > 0;
}

/* One line into its id and stored text (in arena). */
static int read_line(struct str line, u32 no, struct arena *arena, u32 *id, struct str *token,
                     struct err *err)
{
    const char *first = memchr(line.p, ' ', line.n), *last = first;
    u32 n_bytes;
    for (const char *p = first; p && p < line.p + line.n; p++)
        if (*p == ' ') last = p;
    if (line.n > MAX_LINE || first == last)
        return bad_line(err, no, "expected an id, a literal and a length");
    struct str lit = {first + 1, (size_t)(last - first) - 1};
    struct str length = {last + 1, (size_t)(line.p + line.n - last) - 1};
    if (!read_number((struct str){line.p, (size_t)(first - line.p)}, id) || *id == 0)
        return bad_line(err, no, "the id is not an integer of at least 1");
    struct buf b = {0};
    int rc = 0;
    if (!read_literal(lit, &b) || b.n == 0)
        rc = bad_line(err, no, "not a Python literal");
    else if (!read_number(length, &n_bytes) || n_bytes != b.n)
        rc = bad_line(err, no, "the length differs from that of the literal");
    else if (*token = escape(arena, buf_str(&b)), !token->p)
        rc = err_nomem(err, "the vocabulary");
    buf_free(&b);
    return rc;
}

static bool next_line(struct str *text, struct str *line)
{
    if (text->n == 0) return false;
    const char *end = memchr(text->p, '\n', text->n);
    *line = (struct str){text->p, end ? (size_t)(end - text->p) : text->n};
    size_t used = line->n + (end != NULL);
    *text = (struct str){text->p + used, text->n - used};
    if (line->n && line->p[line->n - 1] == '\r') line->n--;
    return true;
}

int vocab_read_rwkv(struct tok_spec *spec, struct arena *arena, struct str text, u32 n_tokens,
                    struct err *err)
{
    struct str rest = text, line, token;
    u32 id = 0, n_ids = 0, no = 0;
    for (; next_line(&rest, &line); n_ids = MAX(n_ids, id + 1)) {
        const char *space = memchr(line.p, ' ', line.n);
        no++;
        if (!space || !read_number((struct str){line.p, (size_t)(space - line.p)}, &id))
            return bad_line(err, no, "expected an id, a literal and a length");
    }
    if (n_tokens == 0) n_tokens = n_ids;
    if (n_ids == 0 || n_ids > n_tokens)
        return err_set(err, FLETCH_E_FORMAT,
                       "rwkv_vocab_v20230424.txt has %u ids, but the model %u", n_ids, n_tokens);
    struct str *tokens = arena_alloc(arena, n_tokens, sizeof *tokens);
    u8 *types = arena_alloc(arena, n_tokens, 1);
    if (!tokens || !types) return err_nomem(err, "the vocabulary");
    for (no = 1, rest = text; next_line(&rest, &line); no++) {
        int rc = read_line(line, no, arena, &id, &token, err);
        if (rc) return rc;
        if (tokens[id].p) return bad_line(err, no, "the id appears twice");
        tokens[id] = token;
        types[id] = TOK_NORMAL;
    }
    tokens[0] = STR("<s>");
    types[0] = TOK_CONTROL;
    for (u32 i = 1; i < n_tokens; i++) {
        if (tokens[i].p) continue;
        char *pad = arena_printf(arena, "[PAD%u]", i);
        if (!pad) return err_nomem(err, "the vocabulary");
        tokens[i] = str_of(pad);
        types[i] = TOK_UNUSED;
    }
    spec->kind = TOK_RWKV;
    spec->n_tokens = n_tokens;
    spec->tokens = tokens;
    spec->types = types;
    spec->bos = spec->eos = 0;
    if (n_tokens > DOUBLE_NEWLINE && str_is(tokens[DOUBLE_NEWLINE], "\\n\\n"))
        spec->eot = DOUBLE_NEWLINE;
    return 0;
}
