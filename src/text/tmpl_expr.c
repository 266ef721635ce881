/* Expressions of a template to a tree, with Jinja2's own precedences and quirks. A filter or test
 * that we don't have becomes a node that is refused by name when it is reached. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_parse.h"

/* ---- literals ---- */

/* Reads n hexadecimal digits at s[i]. */
static bool read_hex(struct str s, size_t i, size_t n, u32 *out)
{
    *out = 0;
    if (i > s.n || s.n - i < n) return false;
    for (size_t k = i; k < i + n; k++) {
        char c = s.p[k];
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (u32)digit;
    }
    return true;
}

/* One escape at s[i] (after the backslash) to out; returns how many characters it took. An
 * unknown one stays as it is written, backslash and all. */
static size_t read_escape(struct tmpl_parser *p, struct str s, size_t i, char *out, size_t *n_out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.p[i];
    const char *simple = c ? strchr(from, c) : NULL;
    *n_out = 0;
    if (simple) {
        out[(*n_out)++] = to[simple - from];
        return 1;
    }
    if (c == '\n') return 1;
    u32 code = 0;
    size_t took;
    if (c >= '0' && c <= '7') {
        for (took = 0; took < 3 && i + took < s.n && s.p[i + took] >= '0' && s.p[i + took] <= '7';
             took++) {
            code = code * 8 + (u32)(s.p[i + took] - '0');
        }
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!read_hex(s, i + 1, n, &code)) code = UINT32_MAX;
        took = n + 1;
    } else if (c == 'N') {
        code = UINT32_MAX;
        took = 1;
    } else {
        out[(*n_out)++] = '\\';
        return 0;
    }
    if (code > 0x10ffff || !utf8proc_codepoint_valid((i32)code)) {
        struct str shown = {s.p + i - 1, MIN(took + 1, s.n - i + 1)};
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "bad escape %s in a string", QUOTE(shown));
    }
    *n_out = (size_t)utf8proc_encode_char((i32)code, (u8 *)out);
    return took;
}

/* A string literal, and those that follow it directly. */
static struct tmpl_node *parse_string(struct tmpl_parser *p)
{
    struct tmpl_node *node = parse_new_node(p, N_LIT, p->tok.line, 0);
    char *text = NULL;
    size_t n = 0, cap = 0;
    for (; p->tok.kind == T_STRING; parse_next(p)) {
        struct str s = p->tok.text;
        p->fault.line = p->tok.line;
        if (cap - n < s.n + 4) { /* no escape is longer than what it stands for */
            cap = MAX(cap * 2, n + s.n + 4);
            char *q = tmpl_alloc(&p->fault, cap, 1);
            if (n) memcpy(q, text, n);
            text = q;
        }
        for (size_t i = 0; i < s.n;) {
            if (s.p[i] != '\\' || i + 1 == s.n) {
                text[n++] = s.p[i++];
                continue;
            }
            size_t n_out;
            i += 1 + read_escape(p, s, i + 1, text + n, &n_out);
            n += n_out;
        }
    }
    node->v = (struct tmpl_value){V_STR, .s = parse_const_str(p, (struct str){text, n})};
    return node;
}

static struct tmpl_node *parse_number(struct tmpl_parser *p)
{
    struct tmpl_node *node = parse_new_node(p, N_LIT, p->tok.line, 0);
    char digits[512];
    size_t n = 0;
    p->fault.line = p->tok.line;
    if (p->tok.text.n >= sizeof digits) {
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "number is too long");
    }
    for (size_t i = 0; i < p->tok.text.n; i++) {
        if (p->tok.text.p[i] != '_') digits[n++] = p->tok.text.p[i];
    }
    digits[n] = 0;
    errno = 0;
    if (p->tok.kind == T_INT) {
        char mark = n > 1 ? (char)(digits[1] | 32) : 0; /* of 0b1, 0o7 and 0xf */
        int base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 10;
        node->v =
            (struct tmpl_value){V_INT, .i = strtoll(base == 10 ? digits : digits + 2, NULL, base)};
        bool zeros = strspn(digits, "0") == n;
        if (errno || (base == 10 && digits[0] == '0' && !zeros))
            parse_refuse(p, "the number", p->tok.text);
    } else {
        node->v = (struct tmpl_value){V_FLOAT, .f = strtod(digits, NULL)};
    }
    parse_next(p);
    return node;
}

/* ---- expressions ---- */

static struct tmpl_node *parse_or(struct tmpl_parser *p);
static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filters);

static struct tmpl_node *parse_primary(struct tmpl_parser *p);

/* One expression, or several with commas as a tuple. */
struct tmpl_node *parse_tuple(struct tmpl_parser *p, enum tuple_mode mode)
{
    u32 line = p->tok.line;
    struct parse_kids k = {0};
    bool is_tuple = false;
    for (;;) {
        bool at_end = p->tok.kind == T_VAR_END || p->tok.kind == T_BLOCK_END ||
                      parse_at_op(p, ")") || (mode == TUPLE_TARGET && parse_at_name(p, "in"));
        if (at_end) break;
        parse_add_kid(p, &k,
                      mode == TUPLE_TARGET    ? parse_primary(p)
                      : mode == TUPLE_NO_COND ? parse_or(p)
                                              : parse_expr(p));
        if (!parse_skip_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && k.n) return k.p[0];
    if (!is_tuple && mode != TUPLE_PARENS) parse_fail(p, "an expression");
    return parse_node_of(p, N_TUPLE, line, k);
}

/* Items up to the closing bracket; a mapping's come in pairs. */
static struct tmpl_node *parse_items(struct tmpl_parser *p, enum tmpl_node_kind kind,
                                     const char *close)
{
    u32 line = p->tok.line;
    struct parse_kids k = {0};
    parse_next(p);
    while (!parse_at_op(p, close)) {
        if (k.n) parse_expect_op(p, ",");
        if (parse_at_op(p, close)) break;
        parse_add_kid(p, &k, parse_expr(p));
        if (kind == N_DICT) {
            parse_expect_op(p, ":");
            parse_add_kid(p, &k, parse_expr(p));
        }
    }
    parse_next(p);
    return parse_node_of(p, kind, line, k);
}

static struct tmpl_node *parse_name(struct tmpl_parser *p)
{
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else", "elif"};
    static const char *const special[] = {"caller", "varargs", "kwargs"};
    struct str name = p->tok.text;
    struct tmpl_node *node = parse_new_node(p, N_LIT, p->tok.line, 0);
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        if (str_is(name, reserved[i])) parse_fail(p, "an expression");
    }
    for (u32 i = 0; i < ARRAY_LEN(special); i++) {
        if (str_is(name, special[i])) p->macro_uses |= 1u << i;
    }
    if (str_is(name, "true") || str_is(name, "True")) {
        node->v = val_bool(true);
    } else if (str_is(name, "false") || str_is(name, "False")) {
        node->v = val_bool(false);
    } else if (str_is(name, "none") || str_is(name, "None")) {
        node->v = val_none();
    } else {
        node->kind = N_NAME;
        node->id = parse_intern(p, name);
        node->name = parse_const_str(p, name);
    }
    parse_next(p);
    return node;
}

static struct tmpl_node *parse_primary(struct tmpl_parser *p)
{
    struct tmpl_node *node;
    parse_enter(p);
    if (p->tok.kind == T_NAME) {
        node = parse_name(p);
    } else if (p->tok.kind == T_STRING) {
        node = parse_string(p);
    } else if (p->tok.kind == T_INT || p->tok.kind == T_FLOAT) {
        node = parse_number(p);
    } else if (parse_skip_op(p, "(")) {
        node = parse_tuple(p, TUPLE_PARENS);
        parse_expect_op(p, ")");
    } else if (parse_at_op(p, "[")) {
        node = parse_items(p, N_LIST, "]");
    } else if (parse_at_op(p, "{")) {
        node = parse_items(p, N_DICT, "}");
    } else {
        parse_fail(p, "an expression");
    }
    parse_leave(p);
    return node;
}

/* "(a, b, k=c, *d, **e)" after callee; with a NULL callee the kids begin with a NULL. */
static struct tmpl_node *parse_call(struct tmpl_parser *p, enum tmpl_node_kind kind,
                                    struct tmpl_node *callee)
{
    u32 line = p->tok.line, n_kw = 0;
    struct str kw[TMPL_MAX_ARGS];
    struct tmpl_node *unpacked[2] = {0}; /* of *d and **e */
    struct parse_kids k = {0};
    parse_add_kid(p, &k, callee);
    if (parse_skip_op(p, "(")) {
        while (!parse_at_op(p, ")")) {
            if (k.n > 1 || unpacked[0] || unpacked[1]) parse_expect_op(p, ",");
            if (parse_at_op(p, ")")) break;
            bool pairs = parse_at_op(p, "**");
            if (!unpacked[1] && (pairs || (!unpacked[0] && parse_at_op(p, "*")))) {
                parse_next(p);
                unpacked[pairs] = parse_expr(p);
                continue;
            }
            if (unpacked[1]) parse_fail(p, "')'");
            if (k.n > TMPL_MAX_ARGS) parse_refuse(p, "too many arguments: the one at", p->tok.text);
            if (p->tok.kind == T_NAME && parse_peek_is(p, T_OP, "=")) {
                for (u32 i = 0; i < n_kw; i++) {
                    if (str_eq(kw[i], p->tok.text)) parse_fail(p, "a new argument name");
                }
                kw[n_kw++] = p->tok.text;
                parse_next(p);
                parse_next(p);
            } else if (n_kw || unpacked[0]) {
                parse_fail(p, "a named argument");
            }
            parse_add_kid(p, &k, parse_expr(p));
        }
        parse_next(p);
    }
    u32 n_pos = k.n - 1 - n_kw;
    for (int i = 0; i < 2; i++) {
        if (unpacked[i]) parse_add_kid(p, &k, unpacked[i]);
    }
    struct tmpl_node *node = parse_node_of(p, kind, line, k);
    node->n_pos = n_pos;
    node->op = (unpacked[0] ? UNPACK_SEQ : 0) | (unpacked[1] ? UNPACK_DICT : 0);
    if (n_kw) {
        node->kw = tmpl_alloc(&p->fault, n_kw, sizeof *kw);
        memcpy(node->kw, kw, n_kw * sizeof *kw);
    }
    return node;
}

static struct tmpl_node *parse_subscript(struct tmpl_parser *p)
{
    struct tmpl_node *part[3] = {0};
    struct parse_kids several = {0};
    u32 line = p->tok.line, n = 0;
    bool slice = false;
    for (; n < 3; n++) {
        if (!parse_at_op(p, ":") && !parse_at_op(p, "]")) part[n] = parse_expr(p);
        if (!parse_skip_op(p, ":")) break;
        slice = true;
    }
    if (!slice && !part[0]) parse_fail(p, "an index");
    while (parse_skip_op(p, ",")) { /* x[a, b]: the key is a tuple */
        if (slice) parse_refuse(p, "indexing with", STR("several slices"));
        if (!several.n) parse_add_kid(p, &several, part[0]);
        parse_add_kid(p, &several, parse_expr(p));
    }
    parse_expect_op(p, "]");
    if (several.n) return parse_node_of(p, N_TUPLE, line, several);
    if (!slice) return part[0];
    struct tmpl_node *node = parse_new_node(p, N_SLICE, line, 3);
    memcpy(node->kid, part, sizeof part);
    return node;
}

/* ".name", "[index]" and calls. */
static struct tmpl_node *parse_postfix(struct tmpl_parser *p, struct tmpl_node *node)
{
    for (;;) {
        struct tmpl_node *of = node;
        u32 line = p->tok.line;
        if (parse_skip_op(p, ".")) {
            if (p->tok.kind == T_INT) {
                node = parse_new_node(p, N_ITEM, line, 2);
                node->kid[1] = parse_number(p);
            } else {
                node = parse_new_node(p, N_ATTR, line, 1);
                node->name = parse_const_str(p, parse_expect_name(p));
            }
            node->kid[0] = of;
        } else if (parse_skip_op(p, "[")) {
            node = parse_new_node(p, N_ITEM, line, 2);
            node->kid[0] = of;
            node->kid[1] = parse_subscript(p);
        } else if (parse_at_op(p, "(")) {
            node = parse_call(p, N_CALL, of);
        } else {
            return node;
        }
    }
}

/* A filter or test that nobody knows is an error only when it is reached: templates have them in
 * branches that are not taken. */
static const struct tmpl_builtin *known_or_refused(struct tmpl_parser *p,
                                                   const struct tmpl_builtin *fn, struct str name,
                                                   const char *what)
{
    if (fn) return fn;
    char *text = tmpl_alloc(&p->fault, name.n + 1, 1);
    struct tmpl_builtin *unknown = tmpl_alloc(&p->fault, 1, sizeof *unknown);
    memcpy(text, name.p, name.n);
    *unknown = (struct tmpl_builtin){text, what, NULL};
    return unknown;
}

struct tmpl_node *parse_filter(struct tmpl_parser *p, struct tmpl_node *input)
{
    u32 line = p->tok.line;
    struct str name = p->tok.text;
    parse_expect_name(p);
    const struct tmpl_builtin *fn = known_or_refused(p, tmpl_find_filter(name), name, "filter");
    struct tmpl_node *node = parse_call(p, N_FILTER, input);
    node->fn = fn;
    node->line = line;
    return node;
}

/* After "is". An argument may come without parentheses: "is equalto x". */
static struct tmpl_node *parse_test(struct tmpl_parser *p, struct tmpl_node *input)
{
    u32 line = p->tok.line;
    bool negated = parse_skip_name(p, "not");
    struct str name = p->tok.text;
    parse_expect_name(p);
    const struct tmpl_builtin *fn = known_or_refused(p, tmpl_find_test(name), name, "test");
    bool bare = p->tok.kind == T_STRING || p->tok.kind == T_INT || p->tok.kind == T_FLOAT ||
                parse_at_op(p, "[") || parse_at_op(p, "{") ||
                (p->tok.kind == T_NAME && !parse_at_name(p, "else") && !parse_at_name(p, "or") &&
                 !parse_at_name(p, "and"));
    struct tmpl_node *node;
    if (bare) {
        node = parse_new_node(p, N_TEST, line, 2);
        node->kid[0] = input;
        node->kid[1] = parse_postfix(p, parse_primary(p));
        node->n_pos = 1;
    } else {
        node = parse_call(p, N_TEST, input);
    }
    node->fn = fn;
    if (!negated) return node;
    struct tmpl_node *not = parse_new_node(p, N_NOT, line, 1);
    not ->kid[0] = node;
    return not ;
}

static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filters)
{
    struct tmpl_node *node;
    parse_enter(p);
    if (parse_at_op(p, "-") || parse_at_op(p, "+")) {
        node = parse_new_node(p, N_SIGN, p->tok.line, 1);
        node->op = (u32)p->tok.text.p[0];
        parse_next(p);
        node->kid[0] = parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filters) {
        if (parse_skip_op(p, "|")) {
            node = parse_filter(p, node);
        } else if (parse_skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (parse_at_op(p, "(")) {
            node = parse_call(p, N_CALL, node);
        } else {
            break;
        }
    }
    parse_leave(p);
    return node;
}

/* Binary operators by level, loosest first; all associate to the left, even the power. Level 1
 * is '~', which joins any number of parts. */
static const struct {
    const char *text;
    u32 level;
    enum tmpl_op op;
} binary_ops[] = {
    {"+", 0, OP_ADD},       {"-", 0, OP_SUB}, {"*", 2, OP_MUL},  {"/", 2, OP_DIV},
    {"//", 2, OP_FLOORDIV}, {"%", 2, OP_MOD}, {"**", 3, OP_POW},
};

static struct tmpl_node *parse_binary(struct tmpl_parser *p, u32 level)
{
    if (level == 4) return parse_unary(p, true);
    u32 line = p->tok.line;
    struct tmpl_node *left = parse_binary(p, level + 1);
    if (level == 1) {
        struct parse_kids k = {0};
        if (!parse_at_op(p, "~")) return left;
        parse_add_kid(p, &k, left);
        while (parse_skip_op(p, "~")) parse_add_kid(p, &k, parse_binary(p, 2));
        return parse_node_of(p, N_CONCAT, line, k);
    }
    for (;;) {
        size_t i = 0;
        while (i < ARRAY_LEN(binary_ops) &&
               !(binary_ops[i].level == level && parse_at_op(p, binary_ops[i].text))) {
            i++;
        }
        if (i == ARRAY_LEN(binary_ops)) return left;
        struct tmpl_node *node = parse_new_node(p, N_BINARY, p->tok.line, 2);
        parse_next(p);
        node->op = binary_ops[i].op;
        node->kid[0] = left;
        node->kid[1] = parse_binary(p, level + 1);
        left = node;
    }
}

static bool take_compare(struct tmpl_parser *p, u32 *op)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (u32 i = 0; i < ARRAY_LEN(ops); i++) {
        if (parse_skip_op(p, ops[i])) {
            *op = i;
            return true;
        }
    }
    *op = CMP_IN;
    if (parse_at_name(p, "not") && parse_peek_is(p, T_NAME, "in")) {
        *op = CMP_NOT_IN;
        parse_next(p);
    }
    return parse_skip_name(p, "in");
}

static struct tmpl_node *parse_compare(struct tmpl_parser *p)
{
    u32 line = p->tok.line, op;
    struct tmpl_node *first = parse_binary(p, 0);
    struct parse_kids k = {0};
    u32 *ops = NULL, cap = 0;
    while (take_compare(p, &op)) {
        if (!k.n) parse_add_kid(p, &k, first);
        if (k.n > cap) {
            cap = k.n * 2;
            u32 *more = tmpl_alloc(&p->fault, cap, sizeof *more);
            if (ops) memcpy(more, ops, (k.n - 1) * sizeof *ops);
            ops = more;
        }
        ops[k.n - 1] = op;
        parse_add_kid(p, &k, parse_binary(p, 0));
    }
    if (!k.n) return first;
    struct tmpl_node *node = parse_node_of(p, N_COMPARE, line, k);
    node->ids = ops;
    return node;
}

static struct tmpl_node *parse_not(struct tmpl_parser *p)
{
    if (!parse_at_name(p, "not")) return parse_compare(p);
    struct tmpl_node *node = parse_new_node(p, N_NOT, p->tok.line, 1);
    parse_enter(p);
    parse_next(p);
    node->kid[0] = parse_not(p);
    parse_leave(p);
    return node;
}

static struct tmpl_node *parse_and(struct tmpl_parser *p)
{
    struct tmpl_node *left = parse_not(p);
    while (parse_at_name(p, "and")) {
        struct tmpl_node *node = parse_new_node(p, N_AND, p->tok.line, 2);
        parse_next(p);
        node->kid[0] = left;
        node->kid[1] = parse_not(p);
        left = node;
    }
    return left;
}

static struct tmpl_node *parse_or(struct tmpl_parser *p)
{
    struct tmpl_node *left = parse_and(p);
    while (parse_at_name(p, "or")) {
        struct tmpl_node *node = parse_new_node(p, N_OR, p->tok.line, 2);
        parse_next(p);
        node->kid[0] = left;
        node->kid[1] = parse_and(p);
        left = node;
    }
    return left;
}

struct tmpl_node *parse_expr(struct tmpl_parser *p)
{
    parse_enter(p);
    struct tmpl_node *then = parse_or(p);
    while (parse_at_name(p, "if")) {
        struct tmpl_node *node = parse_new_node(p, N_COND, p->tok.line, 3);
        parse_next(p);
        node->kid[0] = then;
        node->kid[1] = parse_or(p);
        if (parse_skip_name(p, "else")) node->kid[2] = parse_expr(p);
        then = node;
    }
    parse_leave(p);
    return then;
}
