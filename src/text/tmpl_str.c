/* Strings of the template interpreter: counted in characters like Python's, and carrying for each
 * byte whether it came from the user. Every operation that copies bytes copies their marks, so that
 * the tokenizer can tell a template's control tokens from a user's text that looks like one. */
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

/* ---- building ---- */

static void sbuf_room(struct tmpl_sbuf *sb, size_t n)
{
    size_t need, cap;
    if (!CK_ADD(sb->n, n, &need) || !CK_MUL(MAX(need, (size_t)32), (size_t)2, &cap)) {
        tmpl_fail(&sb->rt->fault, FLETCH_E_LIMIT, "text is too long");
    }
    if (need <= sb->cap) return;
    char *p = rt_alloc(sb->rt, cap, 1);
    if (sb->n) memcpy(p, sb->p, sb->n);
    if (sb->mask) {
        u8 *mask = rt_alloc(sb->rt, cap, 1);
        memcpy(mask, sb->mask, sb->n);
        sb->mask = mask;
    }
    sb->p = p;
    sb->cap = cap;
}

void sbuf_put(struct tmpl_sbuf *sb, const char *p, size_t n, bool user)
{
    if (!n) return;
    rt_spend(sb->rt, n / 64);
    sbuf_room(sb, n);
    if (!sb->n) sb->user = user;
    if (!sb->mask && user != sb->user) {
        sb->mask = rt_alloc(sb->rt, sb->cap, 1);
        memset(sb->mask, sb->user, sb->n);
    }
    memcpy(sb->p + sb->n, p, n);
    if (sb->mask) memset(sb->mask + sb->n, user, n);
    sb->n += n;
}

void sbuf_puts(struct tmpl_sbuf *sb, const char *z, bool user)
{
    sbuf_put(sb, z, strlen(z), user);
}

void sbuf_put_slice(struct tmpl_sbuf *sb, const struct tmpl_str *s, size_t from, size_t to)
{
    while (from < to) {
        bool user = str_user_at(s, from);
        size_t end = s->mask ? from + 1 : to;
        while (end < to && str_user_at(s, end) == user) end++;
        sbuf_put(sb, s->p + from, end - from, user);
        from = end;
    }
}

void sbuf_put_str(struct tmpl_sbuf *sb, const struct tmpl_str *s)
{
    sbuf_put_slice(sb, s, 0, s->n);
}

void sbuf_put_char(struct tmpl_sbuf *sb, i32 c, bool user)
{
    u8 utf8[4];
    sbuf_put(sb, (char *)utf8, (size_t)utf8proc_encode_char(c, utf8), user);
}

void sbuf_put_times(struct tmpl_sbuf *sb, const struct tmpl_str *s, u64 count)
{
    size_t n;
    if (!CK_MUL(s->n, (size_t)count, &n)) n = SIZE_MAX; /* sbuf_room refuses it */
    if (n) sbuf_room(sb, n);
    for (u64 i = 0; s->n && i < count; i++) {
        if (i % 8 == 0) rt_spend(sb->rt, 1);
        sbuf_put_str(sb, s);
    }
}

struct tmpl_value sbuf_value(const struct tmpl_sbuf *sb)
{
    return val_str(sb->rt, (struct tmpl_str){sb->p, sb->n, sb->mask, sb->user, sb->safe});
}

/* ---- characters ---- */

i32 tmpl_char(struct str s, size_t i, size_t *n)
{
    i32 c = (u8)s.p[i];
    *n = 1;
    if (c < 0x80) return c;
    utf8proc_ssize_t got =
        utf8proc_iterate((const u8 *)s.p + i, (utf8proc_ssize_t)MIN(s.n - i, (size_t)4), &c);
    if (got < 1) return -1;
    *n = (size_t)got;
    return c;
}

/* Python's str.isspace(). */
bool tmpl_is_space(i32 c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* What ends a line for Python's str.splitlines(). */
bool tmpl_is_line_end(i32 c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

struct str str_bytes(const struct tmpl_str *s)
{
    return (struct str){s->p ? s->p : "", s->n};
}

bool str_user_at(const struct tmpl_str *s, size_t i)
{
    return s->mask ? s->mask[i] : s->user;
}

size_t str_count_chars(struct str s)
{
    size_t count = 0, n;
    for (size_t i = 0; i < s.n; i += n, count++) tmpl_char(s, i, &n);
    return count;
}

size_t str_char_offset(struct str s, size_t index)
{
    size_t i = 0, n;
    for (; i < s.n && index; i += n, index--) tmpl_char(s, i, &n);
    return i;
}

bool str_find(struct str s, struct str what, size_t from, size_t *at)
{
    if (from > s.n) return false;
    const char *p = what.n ? memmem(s.p + from, s.n - from, what.p, what.n) : s.p + from;
    if (p) *at = (size_t)(p - s.p);
    return p != NULL;
}

bool str_rfind(struct str s, struct str what, size_t to, size_t *at)
{
    if (to > s.n) to = s.n;
    if (what.n > to) return false;
    for (*at = to - what.n;; (*at)--) {
        if (memcmp(s.p + *at, what.p, what.n) == 0) return true;
        if (!*at) return false;
    }
}

struct tmpl_value str_marked(struct tmpl_rt *rt, const struct tmpl_str *s, bool safe)
{
    struct tmpl_str copy = *s;
    copy.safe = safe;
    return val_str(rt, copy);
}

const struct tmpl_str *str_escape(struct tmpl_rt *rt, const struct tmpl_str *s)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct tmpl_sbuf sb = {.rt = rt, .safe = true};
    size_t start = 0;
    if (s->safe) return s;
    rt_spend(rt, s->n / 16);
    for (size_t i = 0; i < s->n; i++) {
        const char *which = s->p[i] ? strchr(from, s->p[i]) : NULL;
        if (!which) continue;
        sbuf_put_slice(&sb, s, start, i);
        sbuf_puts(&sb, to[which - from], str_user_at(s, i));
        start = i + 1;
    }
    sbuf_put_slice(&sb, s, start, s->n);
    return sbuf_value(&sb).s;
}

struct tmpl_value str_pad(struct tmpl_rt *rt, const struct tmpl_str *s, i64 width,
                          const struct tmpl_str *fill, char align)
{
    struct tmpl_sbuf sb = {.rt = rt, .safe = s->safe};
    rt_spend(rt, s->n / 64);
    i64 n = (i64)str_count_chars(str_bytes(s)), pad = width > n ? width - n : 0;
    i64 left = align == '<' ? 0 : align == '>' ? pad : pad / 2;
    if (align == 'c') left += pad & width & 1; /* str.center() differs from the format there */
    sbuf_put_times(&sb, fill, (u64)left);
    sbuf_put_str(&sb, s);
    sbuf_put_times(&sb, fill, (u64)(pad - left));
    return sbuf_value(&sb);
}

struct tmpl_value str_slice(struct tmpl_rt *rt, const struct tmpl_str *s, size_t from, size_t to)
{
    struct tmpl_str part = *s;
    part.n = to > from ? to - from : 0;
    if (part.p) part.p += from;
    if (part.mask) part.mask += from;
    return val_str(rt, part);
}

static bool in_set(struct tmpl_rt *rt, i32 c, struct str ch, const struct tmpl_str *set)
{
    size_t at;
    if (!set) return tmpl_is_space(c);
    rt_spend(rt, 1 + set->n / 64);
    return str_find(str_bytes(set), ch, 0, &at);
}

struct tmpl_value str_strip(struct tmpl_rt *rt, const struct tmpl_str *s,
                            const struct tmpl_str *chars, int sides)
{
    struct str all = str_bytes(s);
    size_t from = 0, to = all.n, n;
    rt_spend(rt, all.n / 64);
    while ((sides & STRIP_LEFT) && from < all.n) {
        i32 c = tmpl_char(all, from, &n);
        if (!in_set(rt, c, (struct str){all.p + from, n}, chars)) break;
        from += n;
    }
    while ((sides & STRIP_RIGHT) && to > from) {
        size_t i = to - 1;
        while (i > from && to - i < 4 && ((u8)all.p[i] & 0xc0) == 0x80) i--;
        i32 c = tmpl_char(all, i, &n);
        if (i + n != to) { /* stray continuation bytes */
            i = to - 1;
            c = -1;
        }
        if (!in_set(rt, c, (struct str){all.p + i, to - i}, chars)) break;
        to = i;
    }
    return str_slice(rt, s, from, to);
}

struct tmpl_value str_replace(struct tmpl_rt *rt, const struct tmpl_str *s,
                              const struct tmpl_str *old, const struct tmpl_str *new, i64 count)
{
    struct tmpl_sbuf sb = {.rt = rt, .safe = s->safe};
    struct str all = str_bytes(s);
    size_t from = 0, at, n;
    rt_spend(rt, 1 + all.n / 64);
    for (; count && str_find(all, str_bytes(old), from, &at); count -= count > 0) {
        sbuf_put_slice(&sb, s, from, at);
        sbuf_put_str(&sb, new);
        rt_spend(rt, 1);
        from = at + old->n;
        if (old->n) continue;
        if (from == all.n) break;
        tmpl_char(all, from, &n); /* an empty `old` is found before every character */
        sbuf_put_slice(&sb, s, from, from + n);
        from += n;
    }
    sbuf_put_slice(&sb, s, from, all.n);
    return sbuf_value(&sb);
}

/* ---- case ---- */

static bool is_cased(i32 c)
{
    utf8proc_category_t k = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* What word boundaries ignore when they look for a final sigma (Unicode's Case_Ignorable). */
static bool is_case_ignorable(i32 c)
{
    utf8proc_category_t k = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xb7 || c == 0x387 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
           c == 0x2027;
}

/* Whether the capital sigma at s[i] ends a word: a letter before it, none after it. */
static bool is_final_sigma(struct tmpl_rt *rt, struct str s, size_t i, i32 cased_before)
{
    size_t n;
    if (!cased_before) return false;
    for (i += 2; i < s.n; i += n) {
        i32 c = tmpl_char(s, i, &n);
        rt_spend(rt, 1);
        if (!is_case_ignorable(c)) return !is_cased(c);
    }
    return true;
}

/* Upper case with the characters that become several (ss for sharp s, ligatures): utf8proc has
 * these as case foldings only, whose upper case they are. Sharp s (U+DF) titles as Ss. */
static void put_upper(struct tmpl_sbuf *sb, i32 c, bool user, bool title)
{
    i32 folded[8];
    int boundary = 0;
    utf8proc_ssize_t n = 1;
    if (c >= 0x80 && utf8proc_category(c) != UTF8PROC_CATEGORY_LU) {
        n = utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    }
    bool single = n < 2 || n > 8 || (title && c != 0xdf && utf8proc_totitle(c) != c);
    if (single) {
        sbuf_put_char(sb, title ? utf8proc_totitle(c) : utf8proc_toupper(c), user);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        sbuf_put_char(sb, title && i ? folded[i] : utf8proc_toupper(folded[i]), user);
    }
}

static void put_lower(struct tmpl_sbuf *sb, i32 c, bool user)
{
    sbuf_put_char(sb, c == 0x130 ? 'i' : utf8proc_tolower(c), user);
    if (c == 0x130) sbuf_put_char(sb, 0x307, user); /* i with a dot above keeps its dot */
}

static bool is_title_separator(i32 c)
{
    return tmpl_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

struct tmpl_value str_case(struct tmpl_rt *rt, const struct tmpl_str *s, enum tmpl_case how)
{
    struct tmpl_sbuf sb = {.rt = rt, .safe = s->safe};
    struct str all = str_bytes(s);
    size_t n;
    bool start = true, cased_before = false;
    rt_spend(rt, 1 + all.n / 8);
    for (size_t i = 0; i < all.n; i += n) {
        i32 c = tmpl_char(all, i, &n);
        bool user = str_user_at(s, i);
        if (c < 0) {
            sbuf_put_slice(&sb, s, i, i + n);
        } else if (how == CASE_SWAP && utf8proc_category(c) == UTF8PROC_CATEGORY_LL) {
            put_upper(&sb, c, user, false);
        } else if (how == CASE_SWAP && utf8proc_category(c) != UTF8PROC_CATEGORY_LU) {
            sbuf_put_char(&sb, c, user);
        } else if (how == CASE_UPPER || (start && how == CASE_TITLE_FILTER)) {
            put_upper(&sb, c, user, false);
        } else if (start && how != CASE_LOWER && how != CASE_SWAP) {
            put_upper(&sb, c, user, true);
        } else if (c == 0x3a3 && is_final_sigma(rt, all, i, cased_before)) {
            sbuf_put_char(&sb, 0x3c2, user);
        } else {
            put_lower(&sb, c, user);
        }
        if (!is_case_ignorable(c)) cased_before = is_cased(c);
        start = how == CASE_TITLE_FILTER   ? is_title_separator(c)
                : how == CASE_TITLE_METHOD ? !is_cased(c)
                                           : false;
    }
    return sbuf_value(&sb);
}

struct tmpl_seq *str_lines(struct tmpl_rt *rt, const struct tmpl_str *s, bool keep_ends)
{
    struct str all = str_bytes(s);
    size_t count = 0, n, start = 0, k = 0;
    rt_spend(rt, 1 + all.n / 16);
    for (size_t i = 0; i < all.n; i += n) count += tmpl_is_line_end(tmpl_char(all, i, &n));
    struct tmpl_seq *lines = seq_new(rt, SEQ_LIST, count + 1);
    for (size_t i = 0; i < all.n;) {
        i32 c = tmpl_char(all, i, &n);
        size_t end = i;
        i += n;
        if (!tmpl_is_line_end(c)) continue;
        if (c == '\r' && i < all.n && all.p[i] == '\n') i++;
        lines->v[k++] = str_slice(rt, s, start, keep_ends ? i : end);
        start = i;
    }
    if (start < all.n) lines->v[k++] = str_slice(rt, s, start, all.n);
    lines->n = k;
    return lines;
}
