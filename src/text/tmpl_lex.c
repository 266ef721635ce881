/* Template source to tokens: text between tags, and names, literals and operators inside them.
 * Whitespace control happens here, with trim_blocks and lstrip_blocks on as chat templates assume:
 * a line feed right after a block or comment goes, and so do blanks before one on its line. */
#include <string.h>

#include "text/tmpl_internal.h"

static bool lex_at(const struct tmpl_lexer *lx, size_t pos, const char *z)
{
    size_t n = strlen(z);
    return pos <= lx->src.n && lx->src.n - pos >= n && memcmp(lx->src.p + pos, z, n) == 0;
}

static void lex_move(struct tmpl_lexer *lx, size_t to)
{
    for (size_t i = lx->pos; i < to; i++) lx->line += lx->src.p[i] == '\n';
    if (to > lx->pos) lx->line_starting = lx->src.p[to - 1] == '\n';
    lx->pos = to;
}

static size_t lex_skip_space(const struct tmpl_lexer *lx, size_t pos)
{
    size_t n;
    while (pos < lx->src.n && tmpl_is_space(tmpl_char(lx->src, pos, &n))) pos += n;
    return pos;
}

/* The offset where trailing whitespace of s begins, looking back no further than `from`. */
static size_t lex_rstrip(struct str s, size_t from)
{
    size_t end = from, n;
    for (size_t i = from; i < s.n; i += n) {
        if (!tmpl_is_space(tmpl_char(s, i, &n))) end = i + n;
    }
    return end;
}

/* How much of the text before a tag stays. sign: the character after the tag's opening. */
static size_t lex_keep(const struct tmpl_lexer *lx, struct str text, char sign, bool is_block)
{
    if (sign == '-') return lex_rstrip(text, 0);
    if (sign == '+' || !is_block) return text.n;
    size_t line = text.n;
    while (line > 0 && text.p[line - 1] != '\n') line--;
    bool first_on_line = line > 0 || lx->line_starting;
    return first_on_line && lex_rstrip(text, line) == line ? line : text.n;
}

/* Where the tag's end at pos leads to, or 0 when there is none: "-X" eats all whitespace after it,
 * "X" of blocks and comments one line feed, "+X" nothing. */
static size_t lex_tag_end(const struct tmpl_lexer *lx, size_t pos, const char *close, bool is_block)
{
    if (lex_at(lx, pos, "-") && lex_at(lx, pos + 1, close)) return lex_skip_space(lx, pos + 3);
    if (is_block && lex_at(lx, pos, "+") && lex_at(lx, pos + 1, close)) return pos + 3;
    if (!lex_at(lx, pos, close)) return 0;
    return pos + 2 + (is_block && lex_at(lx, pos + 2, "\n"));
}

static char lex_sign(const struct tmpl_lexer *lx, size_t pos)
{
    return lex_at(lx, pos, "-") || lex_at(lx, pos, "+") ? lx->src.p[pos] : 0;
}

/* "{% raw %}" or "{% endraw %}" at pos: the offset of its closing, else 0. */
static size_t lex_raw_tag(const struct tmpl_lexer *lx, size_t pos, const char *name)
{
    if (!lex_at(lx, pos, "{%")) return 0;
    pos = lex_skip_space(lx, pos + 2 + (lex_sign(lx, pos + 2) != 0));
    if (!lex_at(lx, pos, name)) return 0;
    return lex_skip_space(lx, pos + strlen(name));
}

/* The text up to {% endraw %}; pos is after {% raw %}. */
static struct tmpl_token lex_raw(struct tmpl_lexer *lx)
{
    u32 line = lx->line;
    if (lx->pos == lx->src.n) return (struct tmpl_token){T_DATA, line, {"", 0}};
    for (size_t at = lx->pos; at < lx->src.n; at++) {
        size_t close = lex_raw_tag(lx, at, "endraw");
        size_t end = close ? lex_tag_end(lx, close, "%}", true) : 0;
        if (!end) continue;
        struct str text = {lx->src.p + lx->pos, at - lx->pos};
        text.n = lex_keep(lx, text, lex_sign(lx, at + 2), true);
        lex_move(lx, end);
        return (struct tmpl_token){T_DATA, line, text};
    }
    lx->fault->line = line;
    tmpl_fail(lx->fault, FLETCH_E_TEMPLATE, "{%% raw %%} is never closed");
}

static void lex_skip_comment(struct tmpl_lexer *lx)
{
    if (lx->pos == lx->src.n) return; /* Jinja2 lets a comment open with the last bytes */
    for (size_t at = lx->pos; at < lx->src.n; at++) {
        size_t end = lex_tag_end(lx, at, "#}", true);
        if (end) {
            lex_move(lx, end);
            return;
        }
    }
    lx->fault->line = lx->line;
    tmpl_fail(lx->fault, FLETCH_E_TEMPLATE, "comment is never closed");
}

/* Data up to the next tag; the tag's begin token follows. Empty data is possible. */
static struct tmpl_token lex_data(struct tmpl_lexer *lx)
{
    struct str src = lx->src;
    size_t at = lx->pos;
    while (at < src.n &&
           !(src.p[at] == '{' && at + 1 < src.n && strchr("%{#", src.p[at + 1]) && src.p[at + 1])) {
        at++;
    }
    struct tmpl_token t = {T_DATA, lx->line, {src.p + lx->pos, at - lx->pos}};
    if (at == src.n) {
        lex_move(lx, at);
        return t;
    }
    char what = src.p[at + 1], sign = lex_sign(lx, at + 2);
    t.text.n = lex_keep(lx, t.text, sign, what != '{');
    size_t raw = lex_raw_tag(lx, at, "raw");
    size_t raw_end = raw && !lex_at(lx, raw, "+") ? lex_tag_end(lx, raw, "%}", false) : 0;
    lex_move(lx, raw_end ? raw_end : at + 2 + (sign != 0));
    if (raw_end) {
        lx->inside = T_DATA;
    } else if (what == '#') {
        lex_skip_comment(lx);
    } else {
        lx->inside = what == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN;
        lx->pending = true;
        lx->n_open = 0;
    }
    return t;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static bool is_hex_digit(char c)
{
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/* Where 0b1, 0o7 or 0xf at s[i] ends, underscores allowed before each digit; i if there is none. */
static size_t lex_radix(struct str s, size_t i)
{
    size_t end = i, at = i + 2;
    char mark = i + 2 < s.n && s.p[i] == '0' ? (char)(s.p[i + 1] | 32) : 0,
         top = mark == 'b' ? '1' : '7';
    if (mark != 'b' && mark != 'o' && mark != 'x') return i;
    for (;; at++) {
        at += at < s.n && s.p[at] == '_';
        if (at >= s.n || !(mark == 'x' ? is_hex_digit(s.p[at]) : s.p[at] >= '0' && s.p[at] <= top))
            return end;
        end = at + 1;
    }
}

/* Digits, with single underscores between them. */
static size_t lex_digits(struct str s, size_t i)
{
    while (i < s.n && (is_digit(s.p[i]) || (s.p[i] == '_' && i + 1 < s.n && is_digit(s.p[i + 1]) &&
                                            i > 0 && is_digit(s.p[i - 1])))) {
        i++;
    }
    return i;
}

static struct tmpl_token lex_number(struct tmpl_lexer *lx)
{
    struct str s = lx->src;
    size_t start = lx->pos, end = lex_digits(s, start), frac = end;
    struct tmpl_token t = {T_INT, lx->line, {s.p + start, 0}};
    size_t radix_end = lex_radix(s, start);
    if (radix_end > start) {
        end = radix_end;
    } else if (!(start > 0 && s.p[start - 1] == '.')) { /* x.0.1 indexes twice */
        if (frac + 1 < s.n && s.p[frac] == '.' && is_digit(s.p[frac + 1])) {
            frac = lex_digits(s, frac + 1);
        }
        size_t e = frac;
        if (e < s.n && (s.p[e] | 32) == 'e') {
            e++;
            if (e < s.n && (s.p[e] == '+' || s.p[e] == '-')) e++;
            if (e < s.n && is_digit(s.p[e])) frac = lex_digits(s, e);
        }
        if (frac > end) {
            t.kind = T_FLOAT;
            end = frac;
        }
    }
    t.text.n = end - start;
    lex_move(lx, end);
    return t;
}

static struct tmpl_token lex_string(struct tmpl_lexer *lx)
{
    struct str s = lx->src;
    size_t start = lx->pos + 1, i = start;
    while (i < s.n && s.p[i] != s.p[lx->pos]) i += s.p[i] == '\\' ? 2 : 1;
    if (i >= s.n) {
        lx->fault->line = lx->line;
        tmpl_fail(lx->fault, FLETCH_E_TEMPLATE, "string is never closed");
    }
    struct tmpl_token t = {T_STRING, lx->line, {s.p + start, i - start}};
    lex_move(lx, i + 1);
    return t;
}

static struct tmpl_token lex_op(struct tmpl_lexer *lx)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    struct tmpl_token t = {T_OP, lx->line, {lx->src.p + lx->pos, 1}};
    for (size_t i = 0; i < ARRAY_LEN(two); i++) {
        if (lex_at(lx, lx->pos, two[i])) t.text.n = 2;
    }
    char c = t.text.p[0];
    if (t.text.n == 1 && (!strchr("+-/*%~[](){}><=.:|,;", c) || !c)) {
        lx->fault->line = lx->line;
        tmpl_fail(lx->fault, FLETCH_E_TEMPLATE, "unexpected character %s", QUOTE(t.text));
    }
    if (strchr("([{", c)) lx->n_open++;
    if (strchr(")]}", c) && lx->n_open) lx->n_open--;
    lex_move(lx, lx->pos + t.text.n);
    return t;
}

static struct tmpl_token lex_inside(struct tmpl_lexer *lx)
{
    lex_move(lx, lex_skip_space(lx, lx->pos));
    bool is_block = lx->inside == T_BLOCK_BEGIN;
    size_t end = lx->n_open ? 0 : lex_tag_end(lx, lx->pos, is_block ? "%}" : "}}", is_block);
    if (end) {
        struct tmpl_token t = {is_block ? T_BLOCK_END : T_VAR_END, lx->line, {"", 0}};
        lex_move(lx, end);
        lx->inside = T_EOF;
        return t;
    }
    if (lx->pos >= lx->src.n) return (struct tmpl_token){T_EOF, lx->line, {"", 0}};
    char c = lx->src.p[lx->pos];
    if (is_digit(c)) return lex_number(lx);
    if (c == '\'' || c == '"') return lex_string(lx);
    if (!is_word(c)) return lex_op(lx);
    size_t i = lx->pos;
    while (i < lx->src.n && is_word(lx->src.p[i])) i++;
    struct tmpl_token t = {T_NAME, lx->line, {lx->src.p + lx->pos, i - lx->pos}};
    lex_move(lx, i);
    return t;
}

struct tmpl_token tmpl_lex(struct tmpl_lexer *lx)
{
    for (;;) {
        if (lx->pending) {
            lx->pending = false;
            return (struct tmpl_token){lx->inside, lx->line, {"", 0}};
        }
        if (lx->inside == T_VAR_BEGIN || lx->inside == T_BLOCK_BEGIN) return lex_inside(lx);
        if (lx->inside == T_EOF && lx->pos >= lx->src.n) {
            return (struct tmpl_token){T_EOF, lx->line, {"", 0}};
        }
        bool raw = lx->inside == T_DATA;
        if (raw) lx->inside = T_EOF;
        struct tmpl_token t = raw ? lex_raw(lx) : lex_data(lx);
        if (t.text.n) return t;
    }
}
