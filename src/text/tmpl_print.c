/* Values as text: str() and repr() as Python prints them, and tojson as chat templates know it
 * (json.dumps with non-ASCII kept and no HTML escapes). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

static void print_repr(struct tmpl_sbuf *sb, struct tmpl_value v, bool user);

static void print_int(struct tmpl_sbuf *sb, i64 i, bool user)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    sbuf_puts(sb, text, user);
}

/* The fewest digits that read back as f, laid out by Python's rules: an exponent below 1e-4 and
 * from 1e16 on, else always a point. */
static void print_float(struct tmpl_sbuf *sb, double f, bool user, const char *const *names)
{
    char sci[40], out[64], *o = out;
    if (isnan(f) || isinf(f)) {
        sbuf_puts(sb, names[isnan(f) ? 0 : f > 0 ? 1 : 2], user);
        return;
    }
    for (int digits = 0; digits < 17; digits++) {
        snprintf(sci, sizeof sci, "%.*e", digits, f);
        if (strtod(sci, NULL) == f) break;
    }
    char *e = strchr(sci, 'e'), *d = sci + (sci[0] == '-');
    long ex = strtol(e + 1, NULL, 10);
    char digit[20];
    int n = 0;
    for (char *p = d; p < e; p++) {
        if (*p != '.') digit[n++] = *p;
    }
    while (n > 1 && digit[n - 1] == '0') n--;
    if (sci[0] == '-') *o++ = '-';
    if (ex < -4 || ex >= 16) {
        o += sprintf(o, "%c%s%.*s", digit[0], n > 1 ? "." : "", n - 1, digit + 1);
        o += sprintf(o, "e%c%02ld", ex < 0 ? '-' : '+', labs(ex));
    } else if (ex < 0) {
        o += sprintf(o, "0.%.*s%.*s", (int)(-ex - 1), "000", n, digit);
    } else {
        for (long i = 0; i <= ex; i++) *o++ = i < n ? digit[i] : '0';
        o += sprintf(o, ".%.*s", n > ex + 1 ? (int)(n - ex - 1) : 1,
                     n > ex + 1 ? digit + ex + 1 : "0");
    }
    sbuf_put(sb, out, (size_t)(o - out), user);
}

static const char *const python_floats[] = {"nan", "inf", "-inf"};
static const char *const json_floats[] = {"NaN", "Infinity", "-Infinity"};

bool tmpl_is_printable(i32 c)
{
    if (c == ' ') return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

static void print_quoted(struct tmpl_sbuf *sb, const struct tmpl_str *s, bool user)
{
    if (s->safe) sbuf_puts(sb, "Markup(", user);
    struct str all = str_bytes(s);
    size_t n;
    char quote = memchr(all.p, '\'', all.n) && !memchr(all.p, '"', all.n) ? '"' : '\'';
    rt_spend(sb->rt, all.n / 16);
    sbuf_put(sb, &quote, 1, user);
    for (size_t i = 0; i < all.n; i += n) {
        i32 c = tmpl_char(all, i, &n);
        bool mark = str_user_at(s, i);
        char esc[16] = "";
        if (c == quote || c == '\\') {
            snprintf(esc, sizeof esc, "\\%c", (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            snprintf(esc, sizeof esc, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        } else if (c < 0) {
            snprintf(esc, sizeof esc, "\\x%02x", (unsigned)(u8)all.p[i]);
        } else if (!tmpl_is_printable(c)) {
            const char *form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
            snprintf(esc, sizeof esc, form, (unsigned)c);
        }
        if (esc[0]) {
            sbuf_puts(sb, esc, mark);
        } else {
            sbuf_put_slice(sb, s, i, i + n);
        }
    }
    sbuf_put(sb, &quote, 1, user);
    if (s->safe) sbuf_puts(sb, ")", user);
}

static void print_seq(struct tmpl_sbuf *sb, const struct tmpl_seq *seq)
{
    static const char *const open[] = {"[",           "(", NULL, "dict_keys([", "dict_values([",
                                       "dict_items(["};
    static const char *const close[] = {"]", ")", NULL, "])", "])", "])"};
    if (seq->kind == SEQ_ITER) {
        RT_FAIL(sb->rt, "a lazy sequence has no text; apply |list or |join first");
    }
    if (seq->kind == SEQ_RANGE) {
        i64 part[] = {seq->start, seq->stop, seq->step};
        for (int i = 0; i < (seq->step == 1 ? 2 : 3); i++) {
            sbuf_puts(sb, i ? ", " : "range(", false);
            print_int(sb, part[i], false);
        }
        sbuf_puts(sb, ")", false);
        return;
    }
    sbuf_puts(sb, open[seq->kind], seq->user);
    for (size_t i = 0; i < seq->n; i++) {
        if (i) sbuf_puts(sb, ", ", seq->user);
        print_repr(sb, seq->v[i], seq->user);
    }
    if (seq->kind == SEQ_TUPLE && seq->n == 1) sbuf_puts(sb, ",", seq->user);
    sbuf_puts(sb, close[seq->kind], seq->user);
}

static void print_dict(struct tmpl_sbuf *sb, const struct tmpl_dict *d)
{
    sbuf_puts(sb, "{", d->user);
    for (size_t i = 0; i < d->n; i++) {
        if (i) sbuf_puts(sb, ", ", d->user);
        print_repr(sb, d->e[i].key, d->user);
        sbuf_puts(sb, ": ", d->user);
        print_repr(sb, d->e[i].value, d->user);
    }
    sbuf_puts(sb, "}", d->user);
}

static void print_loop(struct tmpl_sbuf *sb, struct tmpl_loop *loop)
{
    sbuf_puts(sb, "<LoopContext ", false);
    print_int(sb, loop->index0 + 1, false);
    sbuf_puts(sb, "/", false);
    print_int(sb, loop_length(sb->rt, loop), false);
    sbuf_puts(sb, ">", false);
}

static void print_macro(struct tmpl_sbuf *sb, const struct tmpl_macro *m)
{
    struct str name = sb->rt->t->names[m->node->id];
    struct tmpl_str s = {.p = name.p, .n = name.n};
    sbuf_puts(sb, "<Macro ", false);
    if (m->node->n_pos == MACRO_ANONYMOUS) {
        sbuf_puts(sb, "anonymous", false);
    } else {
        print_quoted(sb, &s, false);
    }
    sbuf_puts(sb, ">", false);
}

/* user: whether the container around v is the user's; its punctuation and numbers then are too. */
static void print_repr(struct tmpl_sbuf *sb, struct tmpl_value v, bool user)
{
    rt_spend(sb->rt, 1);
    rt_enter(sb->rt);
    switch (v.kind) {
    case V_UNDEF: sbuf_puts(sb, "Undefined", user); break;
    case V_NONE: sbuf_puts(sb, "None", user); break;
    case V_BOOL: sbuf_puts(sb, v.b ? "True" : "False", user); break;
    case V_INT: print_int(sb, v.i, user); break;
    case V_FLOAT: print_float(sb, v.f, user, python_floats); break;
    case V_STR: print_quoted(sb, v.s, user); break;
    case V_SEQ: print_seq(sb, v.seq); break;
    case V_DICT: print_dict(sb, v.dict); break;
    case V_SPACE:
        sbuf_puts(sb, "<Namespace ", false);
        print_dict(sb, v.dict);
        sbuf_puts(sb, ">", false);
        break;
    case V_LOOP: print_loop(sb, v.loop); break;
    case V_MACRO: print_macro(sb, v.macro); break;
    default: RT_FAIL(sb->rt, "a %s has no text; is a call missing its ()?", val_type(v));
    }
    rt_leave(sb->rt);
}

void print_str(struct tmpl_sbuf *sb, struct tmpl_value v)
{
    if (v.kind == V_STR) {
        sbuf_put_str(sb, v.s);
    } else if (v.kind != V_UNDEF) {
        print_repr(sb, v, false);
    }
}

const struct tmpl_str *val_to_str(struct tmpl_rt *rt, struct tmpl_value v)
{
    if (v.kind == V_STR) return v.s;
    struct tmpl_sbuf sb = {.rt = rt};
    print_str(&sb, v);
    return sbuf_value(&sb).s;
}

const struct tmpl_str *val_to_repr(struct tmpl_rt *rt, struct tmpl_value v, bool ascii)
{
    struct tmpl_sbuf sb = {.rt = rt}, plain = {.rt = rt};
    print_repr(&sb, v, false);
    const struct tmpl_str *s = sbuf_value(&sb).s;
    if (!ascii) return s;
    size_t n;
    rt_spend(rt, s->n / 16);
    for (size_t i = 0; i < s->n; i += n) {
        i32 c = tmpl_char(str_bytes(s), i, &n);
        char esc[16];
        const char *form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
        if (c >= 0 && c < 0x80) {
            sbuf_put_slice(&plain, s, i, i + 1);
        } else {
            snprintf(esc, sizeof esc, form, (unsigned)c);
            sbuf_puts(&plain, esc, str_user_at(s, i));
        }
    }
    return sbuf_value(&plain).s;
}

/* ---- JSON ---- */

static void json_quoted(struct tmpl_sbuf *sb, const struct tmpl_str *s, bool user, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    struct str all = str_bytes(s);
    size_t n;
    rt_spend(sb->rt, all.n / 16);
    sbuf_puts(sb, "\"", user);
    for (size_t i = 0; i < all.n; i += n) {
        i32 c = tmpl_char(all, i, &n);
        bool mark = str_user_at(s, i);
        const char *simple = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
        char esc[16] = "";
        if (simple) {
            snprintf(esc, sizeof esc, "\\%c", to[simple - from]);
        } else if ((c >= 0 && c < 0x20) || (ascii && c >= 0x80 && c < 0x10000)) {
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)c);
        } else if (ascii && c >= 0x10000) {
            unsigned x = (unsigned)c - 0x10000;
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xd800 | x >> 10, 0xdc00 | (x & 0x3ff));
        } else if (ascii && c < 0) {
            snprintf(esc, sizeof esc, "\\ufffd");
        }
        if (esc[0]) {
            sbuf_puts(sb, esc, mark);
        } else {
            sbuf_put_slice(sb, s, i, i + n);
        }
    }
    sbuf_puts(sb, "\"", user);
}

struct json_out {
    struct tmpl_sbuf *sb;
    const struct tmpl_json_style *style;
    u32 level;
};

static void json_value(struct json_out *o, struct tmpl_value v, bool user);

/* What stands before an item, or before the closing bracket. */
static void json_break(struct json_out *o, bool separate, bool user)
{
    const struct tmpl_json_style *style = o->style;
    if (separate) sbuf_put(o->sb, style->item_sep->p, style->item_sep->n, user);
    if (!style->pretty) return;
    sbuf_puts(o->sb, "\n", user);
    for (u32 i = 0; i < o->level; i++) sbuf_put(o->sb, style->indent->p, style->indent->n, user);
}

static void json_seq(struct json_out *o, const struct tmpl_seq *seq)
{
    sbuf_puts(o->sb, "[", seq->user);
    o->level++;
    for (size_t i = 0; i < seq->n; i++) {
        json_break(o, i > 0, seq->user);
        json_value(o, seq->v[i], seq->user);
    }
    o->level--;
    if (seq->n) json_break(o, false, seq->user);
    sbuf_puts(o->sb, "]", seq->user);
}

static void json_key(struct json_out *o, struct tmpl_value key, bool user)
{
    if (key.kind == V_STR) {
        json_quoted(o->sb, key.s, user, o->style->ensure_ascii);
    } else if (key.kind == V_INT || key.kind == V_FLOAT || key.kind == V_BOOL ||
               key.kind == V_NONE) {
        sbuf_puts(o->sb, "\"", user);
        json_value(o, key, user);
        sbuf_puts(o->sb, "\"", user);
    } else {
        RT_FAIL(o->sb->rt, "tojson: a %s cannot be a key", val_type(key));
    }
}

static void json_dict(struct json_out *o, const struct tmpl_dict *d)
{
    struct tmpl_rt *rt = o->sb->rt;
    struct tmpl_pair *e = d->e;
    if (o->style->sort_keys && d->n) {
        e = rt_alloc(rt, d->n, sizeof *e);
        for (size_t i = 0; i < d->n; i++) {
            size_t k = i;
            for (; k > 0 && val_less(rt, d->e[i].key, e[k - 1].key); k--) e[k] = e[k - 1];
            e[k] = d->e[i];
        }
    }
    sbuf_puts(o->sb, "{", d->user);
    o->level++;
    for (size_t i = 0; i < d->n; i++) {
        json_break(o, i > 0, d->user);
        json_key(o, e[i].key, d->user);
        sbuf_put(o->sb, o->style->key_sep->p, o->style->key_sep->n, d->user);
        json_value(o, e[i].value, d->user);
    }
    o->level--;
    if (d->n) json_break(o, false, d->user);
    sbuf_puts(o->sb, "}", d->user);
}

static void json_value(struct json_out *o, struct tmpl_value v, bool user)
{
    struct tmpl_rt *rt = o->sb->rt;
    rt_spend(rt, 1);
    rt_enter(rt);
    switch (v.kind) {
    case V_NONE: sbuf_puts(o->sb, "null", user); break;
    case V_BOOL: sbuf_puts(o->sb, v.b ? "true" : "false", user); break;
    case V_INT: print_int(o->sb, v.i, user); break;
    case V_FLOAT: print_float(o->sb, v.f, user, json_floats); break;
    case V_STR: json_quoted(o->sb, v.s, user, o->style->ensure_ascii); break;
    case V_DICT: json_dict(o, v.dict); break;
    case V_SEQ:
        if (v.seq->kind == SEQ_LIST || v.seq->kind == SEQ_TUPLE) {
            json_seq(o, v.seq);
            break;
        }
        /* fallthrough */
    default: RT_FAIL(rt, "tojson: %s has no JSON form", val_type(v));
    }
    rt_leave(rt);
}

void print_json(struct tmpl_sbuf *sb, struct tmpl_value v, const struct tmpl_json_style *style)
{
    struct json_out o = {sb, style, 0};
    json_value(&o, v, false);
}
