/* '%'-formatting and str.format() as Python has them. Both turn a value into text by a description
 * of its own small language; numbers are laid out by the same function. A width is bounded by the
 * memory that a template may use, a precision by MAX_PRECISION. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

enum {
    MAX_PRECISION = 10000,
    MAX_FIELDS_IN_FIELDS = 2, /* {:{}} may hold a field, and that one no other */
};

/* What a conversion asks for: "%-+08.3f" or "{:*^+#08,.3f}". */
struct spec {
    i64 width, precision; /* precision -1: none given */
    struct tmpl_str fill;
    bool alternate, no_negative_zero;
    char align; /* '<', '>', '^', '='; 0: not given */
    char sign;  /* '+' or ' '; 0: only of negative numbers */
    char group; /* ',' or '_'; 0: none */
    char type;  /* 0: none given */
};

static const struct tmpl_str space = {.p = " ", .n = 1}, zero = {.p = "0", .n = 1};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number at s[*i], or -1 where there is none. */
static i64 read_count(struct tmpl_rt *rt, struct str s, size_t *i)
{
    i64 n = -1;
    for (; *i < s.n && is_digit(s.p[*i]); (*i)++) {
        n = MAX(n, 0) * 10 + (s.p[*i] - '0');
        if (n > INT32_MAX) tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "a width is too large");
    }
    return n;
}

/* ---- numbers ---- */

/* A number that is not laid out yet: "-", "0x", "1234", ".5e+10". */
struct number {
    bool negative;
    char prefix[3];
    const char *digits;
    size_t n_digits;
    const char *rest;
    u32 group_size; /* digits between separators */
};

/* Puts the digits with a separator before every group, and zeros before them up to `width`. */
static void put_grouped(struct tmpl_sbuf *sb, const struct number *x, char separator, i64 width)
{
    i64 size = x->group_size, n = (i64)x->n_digits, all = n;
    if (separator && n) {
        while (all + (all - 1) / size < width) all++;
        rt_spend(sb->rt, (u64)all / 4);
    } else {
        all = MAX(all, width);
    }
    if (!separator || !n) {
        sbuf_put_times(sb, &zero, (u64)(all - n));
        sbuf_put(sb, x->digits, x->n_digits, false);
        return;
    }
    for (i64 i = all; i > 0; i--) {
        sbuf_put(sb, i > n ? "0" : x->digits + (n - i), 1, false);
        if (i > 1 && (i - 1) % size == 0) sbuf_put(sb, &separator, 1, false);
    }
}

static void put_number(struct tmpl_sbuf *sb, const struct spec *f, const struct number *x)
{
    char before[8];
    int n_before = snprintf(before, sizeof before, "%s%s", x->negative ? "-" : (char[]){f->sign, 0},
                            x->prefix);
    struct tmpl_sbuf text = {.rt = sb->rt};
    bool inside = f->align == '=';
    i64 n_rest = (i64)strlen(x->rest), room = f->width - n_before - n_rest;
    bool by_zeros = inside && f->fill.n == 1 && f->fill.p[0] == '0';
    struct tmpl_sbuf digits = {.rt = sb->rt};
    put_grouped(&digits, x, f->group, by_zeros ? room : 0);
    sbuf_put(&text, before, (size_t)n_before, false);
    if (inside && !by_zeros && room > (i64)digits.n) {
        sbuf_put_times(&text, &f->fill, (u64)(room - (i64)digits.n));
    }
    sbuf_put(&text, digits.p, digits.n, false);
    sbuf_puts(&text, x->rest, false);
    char align = f->align && !inside ? f->align : '>';
    sbuf_put_str(sb, str_pad(sb->rt, sbuf_value(&text).s, f->width, &f->fill, align).s);
}

/* An integer in base 2, 8, 10 or 16, with at least `precision` digits. */
static void put_int(struct tmpl_sbuf *sb, const struct spec *f, i64 i)
{
    char text[72], *p = text + sizeof text;
    char type = f->type;
    u32 base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    u64 left = i < 0 ? 0 - (u64)i : (u64)i;
    do {
        *--p = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[left % base];
        left /= base;
    } while (left);
    struct number x = {.negative = i < 0,
                       .digits = p,
                       .n_digits = (size_t)(text + sizeof text - p),
                       .rest = "",
                       .group_size = base == 10 ? 3 : 4};
    if (f->alternate && base != 10) snprintf(x.prefix, sizeof x.prefix, "0%c", type);
    struct tmpl_sbuf longer = {.rt = sb->rt};
    if (f->precision > (i64)x.n_digits) {
        sbuf_put_times(&longer, &zero, (u64)(f->precision - (i64)x.n_digits));
        sbuf_put(&longer, x.digits, x.n_digits, false);
        x.digits = longer.p;
        x.n_digits = longer.n;
    }
    put_number(sb, f, &x);
}

/* The text of a finite float that is not negative. Type 0 with a precision is Python's own: like
 * 'g', but it keeps a digit after the point. */
static void print_digits(char *out, size_t size, const struct spec *f, double x)
{
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char form[8];
    snprintf(form, sizeof form, "%%%s.*%c", f->alternate ? "#" : "", f->type ? f->type : 'g');
    if (f->type) {
        snprintf(out, size, form, precision, x);
        return;
    }
    if (precision == 0) precision = 1;
    snprintf(out, size, "%.*e", precision - 1, x);
    char *e = strchr(out, 'e');
    long exponent = strtol(e + 1, NULL, 10);
    if (exponent >= -4 && exponent < precision - 1) {
        snprintf(out, size, form, precision, x);
        if (!strchr(out, '.')) strcat(out, ".0");
        return;
    }
    if (f->alternate || !memchr(out, '.', (size_t)(e - out))) return;
    char *end = e; /* zeros at the end of the digits go */
    while (end[-1] == '0') end--;
    if (end[-1] == '.') end--;
    memmove(end, e, strlen(e) + 1);
}

static void put_float(struct tmpl_sbuf *sb, const struct spec *given, double x)
{
    struct tmpl_rt *rt = sb->rt;
    struct spec f = *given;
    bool percent = f.type == '%', upper = f.type == 'E' || f.type == 'F' || f.type == 'G';
    if (f.precision > MAX_PRECISION) {
        tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "a precision is more than %d digits", MAX_PRECISION);
    }
    if (percent) {
        x *= 100;
        f.type = 'f';
    } else if (f.type == 'n') {
        f.type = 'g';
    }
    struct number num = {.negative = signbit(x) && !isnan(x), .rest = "", .group_size = 3};
    size_t size = 400 + (size_t)MAX(f.precision, 0);
    char *text = rt_alloc(rt, size, 1);
    rt_spend(rt, 1 + size / 16);
    if (!isfinite(x)) {
        snprintf(text, size, "%s", isnan(x) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    } else if (!f.type && f.precision < 0) {
        const struct tmpl_str *s = val_to_str(rt, val_float(fabs(x)));
        snprintf(text, size, "%.*s", (int)s->n, s->p);
    } else {
        print_digits(text, size, &f, fabs(x));
    }
    if (f.no_negative_zero && strspn(text, "0.") == strlen(text)) num.negative = false;
    if (percent) strcat(text, "%");
    num.digits = text;
    while (is_digit(text[num.n_digits])) num.n_digits++;
    num.rest = text + num.n_digits;
    put_number(sb, &f, &num);
}

/* ---- texts ---- */

static void put_text(struct tmpl_sbuf *sb, const struct spec *f, const struct tmpl_str *s)
{
    struct tmpl_rt *rt = sb->rt;
    if (f->precision >= 0) {
        rt_spend(rt, s->n / 64);
        s = str_slice(rt, s, 0, str_char_offset(str_bytes(s), (size_t)f->precision)).s;
    }
    sbuf_put_str(sb, str_pad(rt, s, f->width, &f->fill, f->align ? f->align : '<').s);
}

static void put_char(struct tmpl_sbuf *sb, const struct spec *f, i64 c)
{
    u8 utf8[4];
    struct tmpl_str s = {.p = (char *)utf8};
    if (c < 0 || c > 0x10ffff || !utf8proc_codepoint_valid((i32)c)) {
        RT_FAIL(sb->rt, "%lld is not a character", (long long)c);
    }
    s.n = (size_t)utf8proc_encode_char((i32)c, utf8);
    put_text(sb, f, &s);
}

/* ---- '%' ---- */

struct percent {
    struct tmpl_rt *rt;
    struct tmpl_value args;
    const struct tmpl_seq *several; /* args where it is a tuple */
    size_t next;
    bool safe;
};

static struct tmpl_value percent_next(struct percent *p)
{
    size_t n = p->several ? p->several->n : 1;
    if (p->next >= n) RT_FAIL(p->rt, "%% has too few arguments");
    return p->several ? p->several->v[p->next++] : (p->next++, p->args);
}

/* Where "*" stands for the next argument. */
static i64 percent_count(struct percent *p, struct str s, size_t *i)
{
    i64 n;
    if (*i >= s.n || s.p[*i] != '*') return read_count(p->rt, s, i);
    (*i)++;
    if (!val_integer(percent_next(p), &n)) RT_FAIL(p->rt, "* of a %% needs an integer");
    if (n > INT32_MAX || n < -INT32_MAX)
        tmpl_fail(&p->rt->fault, FLETCH_E_LIMIT, "a width is too large");
    return n;
}

/* Reads flags, width and precision at s[*i], up to the type. */
static struct spec percent_spec(struct percent *p, struct str s, size_t *i)
{
    struct spec f = {.precision = -1, .fill = space, .align = '>'};
    bool zeros = false, left = false;
    for (; *i < s.n && s.p[*i] && strchr("-+ #0", s.p[*i]); (*i)++) {
        char c = s.p[*i];
        left = left || c == '-';
        zeros = zeros || c == '0';
        if (c == '+' || (c == ' ' && !f.sign)) f.sign = c;
        f.alternate = f.alternate || c == '#';
    }
    f.width = percent_count(p, s, i);
    if (f.width < -1) {
        left = true;
        f.width = -f.width;
    }
    if (*i < s.n && s.p[*i] == '.') {
        (*i)++;
        f.precision = percent_count(p, s, i);
        if (f.precision < 0) f.precision = 0;
    }
    if (*i < s.n && (s.p[*i] == 'h' || s.p[*i] == 'l' || s.p[*i] == 'L')) (*i)++;
    if (*i >= s.n) RT_FAIL(p->rt, "a %% at the end of a format has no type");
    f.type = s.p[*i];
    if (zeros && !left && f.type && strchr("diuoxXeEfFgG", f.type)) {
        f.align = '=';
        f.fill = zero;
    }
    if (left) f.align = '<';
    return f;
}

static void percent_number(struct percent *p, struct tmpl_sbuf *sb, struct spec *f,
                           struct tmpl_value v)
{
    i64 i;
    double x;
    bool whole = val_integer(v, &i), number = val_number(v, &x);
    if (strchr("eEfFgG", f->type)) {
        if (v.kind == V_STR || !number) RT_FAIL(p->rt, "%%%c needs a number", f->type);
        put_float(sb, f, x);
        return;
    }
    bool decimal = strchr("diu", f->type) != NULL;
    if (!whole && number && decimal) { /* a float loses what is after its point */
        if (!(x > -0x1p63 && x < 0x1p63)) RT_FAIL(p->rt, "integer overflow in %%%c", f->type);
        i = (i64)x;
        whole = true;
    }
    if (!whole) RT_FAIL(p->rt, "%%%c needs an integer, not a %s", f->type, val_type(v));
    put_int(sb, f, i);
}

static void percent_convert(struct percent *p, struct tmpl_sbuf *sb, struct spec *f,
                            struct tmpl_value v)
{
    i64 c;
    size_t n;
    const struct tmpl_str *s;
    switch (f->type) {
    case 's':
    case 'r':
    case 'a':
        s = f->type == 's' ? val_to_str(p->rt, v) : val_to_repr(p->rt, v, f->type == 'a');
        put_text(sb, f, p->safe ? str_escape(p->rt, s) : s);
        break;
    case 'c':
        f->precision = -1;
        if (v.kind == V_STR && str_count_chars(str_bytes(v.s)) == 1) {
            c = tmpl_char(str_bytes(v.s), 0, &n);
        } else if (!val_integer(v, &c)) {
            RT_FAIL(p->rt, "%%c needs an integer or one character");
        }
        put_char(sb, f, c);
        break;
    default:
        if (!f->type || !strchr("diuoxXeEfFgG", f->type)) {
            RT_FAIL(p->rt, "%% has the unknown type %s", QUOTE(((struct str){&f->type, 1})));
        }
        percent_number(p, sb, f, v);
    }
}

struct tmpl_value format_percent(struct tmpl_rt *rt, const struct tmpl_str *form,
                                 struct tmpl_value args)
{
    struct tmpl_sbuf sb = {.rt = rt, .safe = form->safe};
    struct percent p = {.rt = rt, .args = args, .safe = form->safe};
    struct str s = str_bytes(form);
    size_t start = 0, at;
    if (args.kind == V_SEQ && args.seq->kind == SEQ_TUPLE) p.several = args.seq;
    /* What Python can look things up in may be left over. */
    bool may_rest =
        args.kind == V_DICT || args.kind == V_UNDEF ||
        (args.kind == V_SEQ && (args.seq->kind == SEQ_LIST || args.seq->kind == SEQ_RANGE));
    while (str_find(s, STR("%"), start, &at)) {
        struct tmpl_value v = val_none();
        bool keyed = false;
        sbuf_put_slice(&sb, form, start, at);
        rt_spend(rt, 1);
        size_t i = at + 1;
        if (i < s.n && s.p[i] == '(') {
            size_t from = ++i, open = 1;
            for (; i < s.n && open; i++) open += s.p[i] == '(' ? 1 : s.p[i] == ')' ? (size_t)-1 : 0;
            if (open) RT_FAIL(rt, "a %%( is never closed");
            if (args.kind != V_DICT) RT_FAIL(rt, "%%(name) needs a mapping");
            struct tmpl_value key = str_slice(rt, form, from, i - 1),
                              *found = dict_get(rt, args.dict, key);
            if (!found) RT_FAIL(rt, "%%: there is no %s", QUOTE(str_bytes(key.s)));
            v = *found;
            keyed = true;
        }
        struct spec f = percent_spec(&p, s, &i);
        if (f.type == '%') {
            sbuf_put_slice(&sb, form, i, i + 1);
        } else {
            percent_convert(&p, &sb, &f, keyed ? v : percent_next(&p));
        }
        start = i + 1;
    }
    sbuf_put_slice(&sb, form, start, s.n);
    if (!may_rest && p.next < (p.several ? p.several->n : 1)) {
        RT_FAIL(rt, "%% has too many arguments");
    }
    return sbuf_value(&sb);
}

/* ---- str.format ---- */

struct braces {
    struct tmpl_rt *rt;
    const struct tmpl_args *all;
    const struct tmpl_dict *names; /* format_map's */
    i64 next;                      /* of "{}"; -1 after a "{0}" */
    bool safe;
};

static struct tmpl_value braces_first(struct braces *b, struct str name)
{
    struct tmpl_rt *rt = b->rt;
    i64 index = 0;
    size_t i = 0;
    if (name.n && is_digit(name.p[0])) {
        index = read_count(rt, name, &i);
        if (b->next > 0) RT_FAIL(rt, "format: {} and {0} in one string");
        b->next = -1;
    } else if (!name.n) {
        if (b->next < 0) RT_FAIL(rt, "format: {0} and {} in one string");
        index = b->next++;
    }
    if (i == name.n) {
        if (b->names || index >= b->all->n)
            RT_FAIL(rt, "format: there is no argument %lld", (long long)index);
        return b->all->v[index];
    }
    if (b->names) {
        struct tmpl_value key = val_str(rt, (struct tmpl_str){.p = name.p, .n = name.n}),
                          *found = dict_get(rt, b->names, key);
        if (found) return *found;
    }
    for (u32 k = 0; !b->names && k < b->all->n_kw; k++) {
        if (str_eq(b->all->kw[k], name)) return b->all->v[b->all->n + k];
    }
    RT_FAIL(rt, "format: there is no argument %s", QUOTE(name));
}

/* "name.attribute[index]" */
static struct tmpl_value braces_field(struct braces *b, struct str path)
{
    struct tmpl_rt *rt = b->rt;
    size_t i = 0;
    while (i < path.n && path.p[i] != '.' && path.p[i] != '[') i++;
    struct tmpl_value v = braces_first(b, (struct str){path.p, i});
    while (i < path.n) {
        bool attribute = path.p[i] == '.';
        if (!attribute && path.p[i] != '[') RT_FAIL(rt, "format: '.' or '[' expected after ']'");
        size_t from = ++i, k = 0;
        while (i < path.n && (attribute ? path.p[i] != '.' && path.p[i] != '[' : path.p[i] != ']'))
            i++;
        struct str name = {path.p + from, i - from};
        if (!name.n || (!attribute && i == path.n)) RT_FAIL(rt, "format: a field lacks a name");
        struct tmpl_value text = val_str(rt, (struct tmpl_str){.p = name.p, .n = name.n});
        i64 index = attribute || !is_digit(name.p[0]) ? -1 : read_count(rt, name, &k);
        rt_spend(rt, 1);
        v = attribute ? val_attr(rt, v, text.s)
                      : val_item(rt, v, k == name.n ? val_int(index) : text);
        i += !attribute;
    }
    return v;
}

/* "[[fill]align][sign][z][#][0][width][,][.precision][type]" */
static struct spec braces_spec(struct tmpl_rt *rt, const struct tmpl_str *text, bool is_text)
{
    struct spec f = {.precision = -1, .fill = space};
    struct str s = str_bytes(text);
    size_t i = 0, n = 0;
    bool filled = false;
    if (s.n) tmpl_char(s, 0, &n);
    if (n && n < s.n && strchr("<>=^", s.p[n]) && s.p[n]) {
        f.fill = *str_slice(rt, text, 0, n).s;
        filled = true;
        i = n;
    }
    if (i < s.n && s.p[i] && strchr("<>=^", s.p[i])) f.align = s.p[i++];
    if (i < s.n && s.p[i] && strchr("+- ", s.p[i])) f.sign = s.p[i++];
    if (i < s.n && s.p[i] == 'z') f.no_negative_zero = ++i;
    if (i < s.n && s.p[i] == '#') f.alternate = ++i;
    if (!filled && i < s.n && s.p[i] == '0') {
        f.fill = zero;
        if (!f.align && !is_text) f.align = '=';
        i++;
    }
    f.width = read_count(rt, s, &i);
    if (i < s.n && (s.p[i] == ',' || s.p[i] == '_')) f.group = s.p[i++];
    if (i < s.n && s.p[i] == '.') {
        i++;
        f.precision = read_count(rt, s, &i);
        if (f.precision < 0) RT_FAIL(rt, "format: a '.' without a precision");
    }
    if (i < s.n) f.type = s.p[i++];
    if (i < s.n) RT_FAIL(rt, "format: invalid format %s", QUOTE(s));
    bool groups = f.group == '_' ? strchr("bdoxXeEfFgG%", f.type) != NULL
                                 : strchr("deEfFgG%", f.type) != NULL;
    if (f.group && f.type && !groups)
        RT_FAIL(rt, "format: '%c' cannot be combined with '%c'", f.group, f.type);
    return f;
}

static void braces_value(struct braces *b, struct tmpl_sbuf *sb, struct tmpl_value v,
                         const struct tmpl_str *spec)
{
    struct tmpl_rt *rt = b->rt;
    i64 i;
    double x;
    bool whole = val_integer(v, &i), number = val_number(v, &x), signless;
    if (!spec->n) {
        sbuf_put_str(sb, val_to_str(rt, v));
        return;
    }
    if (v.kind != V_STR && !number) RT_FAIL(rt, "format: a %s takes no format", val_type(v));
    struct spec f = braces_spec(rt, spec, v.kind == V_STR);
    signless = f.sign || f.alternate || f.no_negative_zero || f.group;
    char sign = f.sign;
    if (sign == '-') f.sign = 0;
    if (v.kind == V_STR) {
        if ((f.type && f.type != 's') || signless || f.align == '=')
            RT_FAIL(rt, "format: %s is not a format for strings", QUOTE(str_bytes(spec)));
        put_text(sb, &f, v.s);
    } else if (f.type && strchr(whole ? "eEfFgG%" : "eEfFgG%n", f.type)) {
        put_float(sb, &f, x);
    } else if (!whole && !f.type) {
        put_float(sb, &f, x);
    } else {
        bool known = whole && (!f.type || strchr("bcdoxXn", f.type));
        if (!known || f.precision >= 0 || f.no_negative_zero ||
            (f.type == 'c' && (sign || f.alternate || f.group))) {
            RT_FAIL(rt, "format: %s is not a format for this number", QUOTE(str_bytes(spec)));
        }
        if (!f.align) f.align = f.type == 'c' ? '<' : '>';
        if (f.type == 'c' && f.align == '=') f.align = '<';
        if (f.type == 'c') {
            put_char(sb, &f, i);
        } else {
            put_int(sb, &f, i);
        }
    }
}

static const struct tmpl_str *braces_text(struct braces *b, const struct tmpl_str *form, int depth);

/* The field at form[*i], after its "{"; *i comes after its "}". */
static void braces_replace(struct braces *b, struct tmpl_sbuf *sb, const struct tmpl_str *form,
                           size_t *i, int depth)
{
    struct tmpl_rt *rt = b->rt;
    struct str s = str_bytes(form);
    size_t from = *i, at = from, open = 0;
    for (bool in_index = false; at < s.n && (in_index || !memchr("!:}", s.p[at], 3)); at++) {
        if (s.p[at] == '{') RT_FAIL(rt, "format: unexpected '{' in the name of a field");
        in_index = s.p[at] == '[' || (in_index && s.p[at] != ']');
    }
    struct str path = {s.p + from, at - from};
    char convert = 0;
    if (at + 1 < s.n && s.p[at] == '!') {
        convert = s.p[at + 1];
        at += 2;
        if (at < s.n && s.p[at] != ':' && s.p[at] != '}')
            RT_FAIL(rt, "format: ':' or '}' expected after '!%c'", convert >= ' ' ? convert : '?');
    }
    size_t spec_from = at < s.n && s.p[at] == ':' ? at + 1 : at;
    for (at = spec_from; at < s.n && (open || s.p[at] != '}'); at++) {
        open += s.p[at] == '{' ? 1 : s.p[at] == '}' ? (size_t)-1 : 0;
    }
    if (at >= s.n) RT_FAIL(rt, "format: a '{' is never closed");
    *i = at + 1;
    struct tmpl_value v = braces_field(b, path);
    if (convert == 's') {
        v = (struct tmpl_value){V_STR, .s = str_marked(rt, val_to_str(rt, v), false).s};
    } else if (convert == 'r' || convert == 'a') {
        v = (struct tmpl_value){V_STR, .s = val_to_repr(rt, v, convert == 'a')};
    } else if (convert) {
        RT_FAIL(rt, "format: '!' must be followed by r, s or a");
    }
    const struct tmpl_str *spec = str_slice(rt, form, spec_from, at).s;
    spec = braces_text(b, spec, depth - 1);
    struct tmpl_sbuf text = {.rt = rt, .safe = b->safe && v.kind == V_STR && v.s->safe};
    if (text.safe && spec->n) RT_FAIL(rt, "format: a safe string takes no format");
    braces_value(b, &text, v, spec);
    const struct tmpl_str *out = sbuf_value(&text).s;
    sbuf_put_str(sb, b->safe ? str_escape(rt, out) : out);
}

static const struct tmpl_str *braces_text(struct braces *b, const struct tmpl_str *form, int depth)
{
    struct tmpl_sbuf sb = {.rt = b->rt, .safe = form->safe};
    struct str s = str_bytes(form);
    size_t start = 0;
    if (depth < 0) RT_FAIL(b->rt, "format: fields are nested too deeply");
    rt_spend(b->rt, 1 + s.n / 16);
    for (size_t i = 0; i < s.n;) {
        char c = s.p[i];
        if (c != '{' && c != '}') {
            i++;
            continue;
        }
        bool twice = i + 1 < s.n && s.p[i + 1] == c;
        if (!twice && c == '}') RT_FAIL(b->rt, "format: '}' without '{'");
        sbuf_put_slice(&sb, form, start, i + twice);
        i += 1 + twice;
        if (!twice) braces_replace(b, &sb, form, &i, depth);
        start = i;
    }
    sbuf_put_slice(&sb, form, start, s.n);
    return sbuf_value(&sb).s;
}

struct tmpl_value format_braces(struct tmpl_rt *rt, const struct tmpl_str *form,
                                const struct tmpl_args *all, const struct tmpl_dict *names)
{
    struct braces b = {.rt = rt, .all = all, .names = names, .safe = form->safe};
    const struct tmpl_str *text = braces_text(&b, form, MAX_FIELDS_IN_FIELDS);
    return (struct tmpl_value){V_STR, .s = text};
}
