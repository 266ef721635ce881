/* Tokens to a tree, by recursive descent with Jinja2's own precedences and quirks. What a template
 * asks for that we don't have (tags, filters, tests, argument forms) is refused here, by name. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_internal.h"

struct parser {
    struct tmpl_fault fault;
    struct tmpl *t;
    struct tmpl_lexer lx;
    struct tmpl_token tok;
    u32 n_nodes, nesting, n_loops; /* n_loops: around this point, in the same macro */
    bool in_macro;
};

/* Nodes of a list whose length is not known yet. */
struct kids {
    struct tmpl_node **p;
    u32 n, cap;
};

_Noreturn void tmpl_fail(struct tmpl_fault *f, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    f->code = err_set(f->err, code, "template line %u: %s", f->line, text);
    longjmp(f->out, 1);
}

void *tmpl_alloc(struct tmpl_fault *f, size_t n, size_t size)
{
    size_t bytes;
    if (!CK_MUL(n, size, &bytes) || bytes > SIZE_MAX - 16 || (bytes | 15) + 1 > f->n_left) {
        tmpl_fail(f, FLETCH_E_LIMIT, "more memory than a template may use");
    }
    f->n_left -= (bytes | 15) + 1;
    void *p = arena_alloc(f->arena, n, size);
    if (!p) tmpl_fail(f, FLETCH_E_NOMEM, "out of memory");
    return p;
}

_Noreturn static void parse_fail(struct parser *p, const char *expected)
{
    static const char *const names[] = {
        [T_EOF] = "the end of the template",
        [T_DATA] = "text",
        [T_VAR_BEGIN] = "'{{'",
        [T_VAR_END] = "'}}'",
        [T_BLOCK_BEGIN] = "'{%'",
        [T_BLOCK_END] = "'%}'",
    };
    p->fault.line = p->tok.line;
    const char *name = p->tok.kind < ARRAY_LEN(names) ? names[p->tok.kind] : NULL;
    tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "%s expected, found %s", expected,
              name ? name : QUOTE(p->tok.text));
}

_Noreturn static void parse_refuse(struct parser *p, const char *what, struct str name)
{
    p->fault.line = p->tok.line;
    tmpl_fail(&p->fault, FLETCH_E_UNSUPPORTED, "%s %s is not supported", what, QUOTE(name));
}

static void next(struct parser *p)
{
    p->tok = tmpl_lex(&p->lx);
}

static bool peek_is(const struct parser *p, enum tmpl_token_kind kind, const char *text)
{
    struct tmpl_lexer ahead = p->lx;
    struct tmpl_token t = tmpl_lex(&ahead);
    return t.kind == kind && str_is(t.text, text);
}

static bool at_op(const struct parser *p, const char *op)
{
    return p->tok.kind == T_OP && str_is(p->tok.text, op);
}

static bool at_name(const struct parser *p, const char *name)
{
    return p->tok.kind == T_NAME && str_is(p->tok.text, name);
}

static bool skip_op(struct parser *p, const char *op)
{
    if (!at_op(p, op)) return false;
    next(p);
    return true;
}

static bool skip_name(struct parser *p, const char *name)
{
    if (!at_name(p, name)) return false;
    next(p);
    return true;
}

static void expect_op(struct parser *p, const char *op)
{
    if (!skip_op(p, op)) parse_fail(p, QUOTE(str_of(op)));
}

static void expect_kind(struct parser *p, enum tmpl_token_kind kind, const char *what)
{
    if (p->tok.kind != kind) parse_fail(p, what);
    next(p);
}

/* Around everything that can contain itself. */
static void enter(struct parser *p)
{
    if (++p->nesting > TMPL_MAX_NESTING) {
        p->fault.line = p->tok.line;
        tmpl_fail(&p->fault, FLETCH_E_LIMIT, "nested deeper than %d", TMPL_MAX_NESTING);
    }
}

static void leave(struct parser *p)
{
    p->nesting--;
}

static struct tmpl_node *node_new(struct parser *p, enum tmpl_node_kind kind, u32 line, u32 n)
{
    if (++p->n_nodes > TMPL_MAX_NODES) {
        tmpl_fail(&p->fault, FLETCH_E_LIMIT, "more than %d parts", TMPL_MAX_NODES);
    }
    struct tmpl_node *node = tmpl_alloc(&p->fault, 1, sizeof *node);
    node->kind = kind;
    node->line = line;
    node->n = n;
    if (n) node->kid = tmpl_alloc(&p->fault, n, sizeof *node->kid);
    return node;
}

static void kids_add(struct parser *p, struct kids *k, struct tmpl_node *node)
{
    if (k->n == k->cap) {
        u32 cap = k->cap ? k->cap * 2 : 4;
        struct tmpl_node **q = tmpl_alloc(&p->fault, cap, sizeof *q);
        if (k->n) memcpy(q, k->p, k->n * sizeof *q);
        k->p = q;
        k->cap = cap;
    }
    k->p[k->n++] = node;
}

static struct tmpl_node *node_of(struct parser *p, enum tmpl_node_kind kind, u32 line,
                                 struct kids k)
{
    struct tmpl_node *node = node_new(p, kind, line, 0);
    node->kid = k.p;
    node->n = k.n;
    return node;
}

static u32 intern(struct parser *p, struct str name)
{
    struct tmpl *t = p->t;
    u32 id;
    if (strmap_get(&t->name_ids, name, &id)) return id;
    id = t->n_names;
    if ((id & (id - 1)) == 0) { /* full at every power of two */
        struct str *names = tmpl_alloc(&p->fault, id ? (size_t)id * 2 : 1, sizeof *names);
        if (id) memcpy(names, t->names, id * sizeof *names);
        t->names = names;
    }
    t->names[t->n_names++] = name;
    if (!strmap_add(&t->name_ids, name, id)) tmpl_fail(&p->fault, FLETCH_E_NOMEM, "out of memory");
    return id;
}

static const struct tmpl_str *const_str(struct parser *p, struct str text)
{
    struct tmpl_str *s = tmpl_alloc(&p->fault, 1, sizeof *s);
    *s = (struct tmpl_str){.p = text.p, .n = text.n};
    return s;
}

static struct str expect_name(struct parser *p)
{
    struct str name = p->tok.text;
    expect_kind(p, T_NAME, "a name");
    return name;
}

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

/* One escape at s[i] (behind the backslash) to out; returns how many characters it took. An
 * unknown one stays as it is written, backslash and all. */
static size_t read_escape(struct parser *p, struct str s, size_t i, char *out, size_t *n_out)
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
static struct tmpl_node *parse_string(struct parser *p)
{
    struct tmpl_node *node = node_new(p, N_LIT, p->tok.line, 0);
    char *text = NULL;
    size_t n = 0, cap = 0;
    for (; p->tok.kind == T_STRING; next(p)) {
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
    node->v = (struct tmpl_value){V_STR, .s = const_str(p, (struct str){text, n})};
    return node;
}

static struct tmpl_node *parse_number(struct parser *p)
{
    struct tmpl_node *node = node_new(p, N_LIT, p->tok.line, 0);
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
        node->v = (struct tmpl_value){V_INT, .i = strtoll(digits, NULL, 10)};
        bool zeros = strspn(digits, "0") == n;
        if (errno || (digits[0] == '0' && !zeros)) parse_refuse(p, "the number", p->tok.text);
    } else {
        node->v = (struct tmpl_value){V_FLOAT, .f = strtod(digits, NULL)};
    }
    next(p);
    return node;
}

/* ---- expressions ---- */

static struct tmpl_node *parse_expr(struct parser *p);
static struct tmpl_node *parse_or(struct parser *p);
static struct tmpl_node *parse_unary(struct parser *p, bool with_filters);

enum tuple_mode { TUPLE_FULL, TUPLE_NO_COND, TUPLE_TARGET, TUPLE_PARENS };

static struct tmpl_node *parse_primary(struct parser *p);

/* One expression, or several with commas as a tuple. */
static struct tmpl_node *parse_tuple(struct parser *p, enum tuple_mode mode)
{
    u32 line = p->tok.line;
    struct kids k = {0};
    bool is_tuple = false;
    for (;;) {
        bool at_end = p->tok.kind == T_VAR_END || p->tok.kind == T_BLOCK_END || at_op(p, ")") ||
                      (mode == TUPLE_TARGET && at_name(p, "in"));
        if (at_end) break;
        kids_add(p, &k,
                 mode == TUPLE_TARGET    ? parse_primary(p)
                 : mode == TUPLE_NO_COND ? parse_or(p)
                                         : parse_expr(p));
        if (!skip_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && k.n) return k.p[0];
    if (!is_tuple && mode != TUPLE_PARENS) parse_fail(p, "an expression");
    return node_of(p, N_TUPLE, line, k);
}

/* Items up to the closing bracket; a mapping's come in pairs. */
static struct tmpl_node *parse_items(struct parser *p, enum tmpl_node_kind kind, const char *close)
{
    u32 line = p->tok.line;
    struct kids k = {0};
    next(p);
    while (!at_op(p, close)) {
        if (k.n) expect_op(p, ",");
        if (at_op(p, close)) break;
        kids_add(p, &k, parse_expr(p));
        if (kind == N_DICT) {
            expect_op(p, ":");
            kids_add(p, &k, parse_expr(p));
        }
    }
    next(p);
    return node_of(p, kind, line, k);
}

static struct tmpl_node *parse_name(struct parser *p)
{
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else", "elif"};
    static const char *const refused[] = {"caller", "varargs", "kwargs"};
    struct str name = p->tok.text;
    struct tmpl_node *node = node_new(p, N_LIT, p->tok.line, 0);
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        if (str_is(name, reserved[i])) parse_fail(p, "an expression");
    }
    for (size_t i = 0; p->in_macro && i < ARRAY_LEN(refused); i++) {
        if (str_is(name, refused[i])) parse_refuse(p, "in macros,", name);
    }
    if (str_is(name, "true") || str_is(name, "True")) {
        node->v = val_bool(true);
    } else if (str_is(name, "false") || str_is(name, "False")) {
        node->v = val_bool(false);
    } else if (str_is(name, "none") || str_is(name, "None")) {
        node->v = val_none();
    } else {
        node->kind = N_NAME;
        node->id = intern(p, name);
        node->name = const_str(p, name);
    }
    next(p);
    return node;
}

static struct tmpl_node *parse_primary(struct parser *p)
{
    struct tmpl_node *node;
    enter(p);
    if (p->tok.kind == T_NAME) {
        node = parse_name(p);
    } else if (p->tok.kind == T_STRING) {
        node = parse_string(p);
    } else if (p->tok.kind == T_INT || p->tok.kind == T_FLOAT) {
        node = parse_number(p);
    } else if (skip_op(p, "(")) {
        node = parse_tuple(p, TUPLE_PARENS);
        expect_op(p, ")");
    } else if (at_op(p, "[")) {
        node = parse_items(p, N_LIST, "]");
    } else if (at_op(p, "{")) {
        node = parse_items(p, N_DICT, "}");
    } else {
        parse_fail(p, "an expression");
    }
    leave(p);
    return node;
}

/* "(a, b, k=c)" behind callee; with a NULL callee the kids begin with a NULL. */
static struct tmpl_node *parse_call(struct parser *p, enum tmpl_node_kind kind,
                                    struct tmpl_node *callee)
{
    u32 line = p->tok.line, ids[TMPL_MAX_ARGS], n_kw = 0;
    struct kids k = {0};
    kids_add(p, &k, callee);
    if (skip_op(p, "(")) {
        while (!at_op(p, ")")) {
            if (k.n > 1) expect_op(p, ",");
            if (at_op(p, ")")) break;
            if (at_op(p, "*") || at_op(p, "**"))
                parse_refuse(p, "unpacking arguments with", p->tok.text);
            if (k.n > TMPL_MAX_ARGS) parse_refuse(p, "so many arguments: the one at", p->tok.text);
            if (p->tok.kind == T_NAME && peek_is(p, T_OP, "=")) {
                ids[n_kw] = intern(p, p->tok.text);
                for (u32 i = 0; i < n_kw; i++) {
                    if (ids[i] == ids[n_kw]) parse_fail(p, "a new argument name");
                }
                n_kw++;
                next(p);
                next(p);
            } else if (n_kw) {
                parse_fail(p, "a named argument");
            }
            kids_add(p, &k, parse_expr(p));
        }
        next(p);
    }
    struct tmpl_node *node = node_of(p, kind, line, k);
    node->n_pos = k.n - 1 - n_kw;
    if (n_kw) {
        node->ids = tmpl_alloc(&p->fault, n_kw, sizeof *ids);
        memcpy(node->ids, ids, n_kw * sizeof *ids);
    }
    return node;
}

static struct tmpl_node *parse_subscript(struct parser *p)
{
    struct tmpl_node *part[3] = {0};
    u32 line = p->tok.line, n = 0;
    bool slice = false;
    for (; n < 3; n++) {
        if (!at_op(p, ":") && !at_op(p, "]")) part[n] = parse_expr(p);
        if (!skip_op(p, ":")) break;
        slice = true;
    }
    if (!slice && !part[0]) parse_fail(p, "an index");
    if (at_op(p, ",")) parse_refuse(p, "indexing with", STR("several values"));
    expect_op(p, "]");
    if (!slice) return part[0];
    struct tmpl_node *node = node_new(p, N_SLICE, line, 3);
    memcpy(node->kid, part, sizeof part);
    return node;
}

/* ".name", "[index]" and calls. */
static struct tmpl_node *parse_postfix(struct parser *p, struct tmpl_node *node)
{
    for (;;) {
        struct tmpl_node *of = node;
        u32 line = p->tok.line;
        if (skip_op(p, ".")) {
            if (p->tok.kind == T_INT) {
                node = node_new(p, N_ITEM, line, 2);
                node->kid[1] = parse_number(p);
            } else {
                node = node_new(p, N_ATTR, line, 1);
                node->name = const_str(p, expect_name(p));
            }
            node->kid[0] = of;
        } else if (skip_op(p, "[")) {
            node = node_new(p, N_ITEM, line, 2);
            node->kid[0] = of;
            node->kid[1] = parse_subscript(p);
        } else if (at_op(p, "(")) {
            node = parse_call(p, N_CALL, of);
        } else {
            return node;
        }
    }
}

static struct tmpl_node *parse_filter(struct parser *p, struct tmpl_node *input)
{
    u32 line = p->tok.line;
    struct str name = p->tok.text;
    const struct tmpl_builtin *fn = p->tok.kind == T_NAME ? tmpl_find_filter(name) : NULL;
    if (!fn && p->tok.kind == T_NAME) parse_refuse(p, "filter", name);
    expect_name(p);
    struct tmpl_node *node = parse_call(p, N_FILTER, input);
    node->fn = fn;
    node->line = line;
    return node;
}

/* Behind "is". An argument may come without parentheses: "is equalto x". */
static struct tmpl_node *parse_test(struct parser *p, struct tmpl_node *input)
{
    u32 line = p->tok.line;
    bool negated = skip_name(p, "not");
    struct str name = p->tok.text;
    const struct tmpl_builtin *fn = p->tok.kind == T_NAME ? tmpl_find_test(name) : NULL;
    if (!fn && p->tok.kind == T_NAME) parse_refuse(p, "test", name);
    expect_name(p);
    bool bare =
        p->tok.kind == T_STRING || p->tok.kind == T_INT || p->tok.kind == T_FLOAT ||
        at_op(p, "[") || at_op(p, "{") ||
        (p->tok.kind == T_NAME && !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and"));
    struct tmpl_node *node;
    if (bare) {
        node = node_new(p, N_TEST, line, 2);
        node->kid[0] = input;
        node->kid[1] = parse_postfix(p, parse_primary(p));
        node->n_pos = 1;
    } else {
        node = parse_call(p, N_TEST, input);
    }
    node->fn = fn;
    if (!negated) return node;
    struct tmpl_node *not = node_new(p, N_NOT, line, 1);
    not ->kid[0] = node;
    return not ;
}

static struct tmpl_node *parse_unary(struct parser *p, bool with_filters)
{
    struct tmpl_node *node;
    enter(p);
    if (at_op(p, "-") || at_op(p, "+")) {
        node = node_new(p, N_SIGN, p->tok.line, 1);
        node->op = (u32)p->tok.text.p[0];
        next(p);
        node->kid[0] = parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filters) {
        if (skip_op(p, "|")) {
            node = parse_filter(p, node);
        } else if (skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (at_op(p, "(")) {
            node = parse_call(p, N_CALL, node);
        } else {
            break;
        }
    }
    leave(p);
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

static struct tmpl_node *parse_binary(struct parser *p, u32 level)
{
    if (level == 4) return parse_unary(p, true);
    u32 line = p->tok.line;
    struct tmpl_node *left = parse_binary(p, level + 1);
    if (level == 1) {
        struct kids k = {0};
        if (!at_op(p, "~")) return left;
        kids_add(p, &k, left);
        while (skip_op(p, "~")) kids_add(p, &k, parse_binary(p, 2));
        return node_of(p, N_CONCAT, line, k);
    }
    for (;;) {
        size_t i = 0;
        while (i < ARRAY_LEN(binary_ops) &&
               !(binary_ops[i].level == level && at_op(p, binary_ops[i].text))) {
            i++;
        }
        if (i == ARRAY_LEN(binary_ops)) return left;
        struct tmpl_node *node = node_new(p, N_BINARY, p->tok.line, 2);
        next(p);
        node->op = binary_ops[i].op;
        node->kid[0] = left;
        node->kid[1] = parse_binary(p, level + 1);
        left = node;
    }
}

static bool take_compare(struct parser *p, u32 *op)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (u32 i = 0; i < ARRAY_LEN(ops); i++) {
        if (skip_op(p, ops[i])) {
            *op = i;
            return true;
        }
    }
    *op = CMP_IN;
    if (at_name(p, "not") && peek_is(p, T_NAME, "in")) {
        *op = CMP_NOT_IN;
        next(p);
    }
    return skip_name(p, "in");
}

static struct tmpl_node *parse_compare(struct parser *p)
{
    u32 line = p->tok.line, op;
    struct tmpl_node *first = parse_binary(p, 0);
    struct kids k = {0};
    u32 *ops = NULL, cap = 0;
    while (take_compare(p, &op)) {
        if (!k.n) kids_add(p, &k, first);
        if (k.n > cap) {
            cap = k.n * 2;
            u32 *more = tmpl_alloc(&p->fault, cap, sizeof *more);
            if (ops) memcpy(more, ops, (k.n - 1) * sizeof *ops);
            ops = more;
        }
        ops[k.n - 1] = op;
        kids_add(p, &k, parse_binary(p, 0));
    }
    if (!k.n) return first;
    struct tmpl_node *node = node_of(p, N_COMPARE, line, k);
    node->ids = ops;
    return node;
}

static struct tmpl_node *parse_not(struct parser *p)
{
    if (!at_name(p, "not")) return parse_compare(p);
    struct tmpl_node *node = node_new(p, N_NOT, p->tok.line, 1);
    enter(p);
    next(p);
    node->kid[0] = parse_not(p);
    leave(p);
    return node;
}

static struct tmpl_node *parse_and(struct parser *p)
{
    struct tmpl_node *left = parse_not(p);
    while (at_name(p, "and")) {
        struct tmpl_node *node = node_new(p, N_AND, p->tok.line, 2);
        next(p);
        node->kid[0] = left;
        node->kid[1] = parse_not(p);
        left = node;
    }
    return left;
}

static struct tmpl_node *parse_or(struct parser *p)
{
    struct tmpl_node *left = parse_and(p);
    while (at_name(p, "or")) {
        struct tmpl_node *node = node_new(p, N_OR, p->tok.line, 2);
        next(p);
        node->kid[0] = left;
        node->kid[1] = parse_and(p);
        left = node;
    }
    return left;
}

static struct tmpl_node *parse_expr(struct parser *p)
{
    enter(p);
    struct tmpl_node *then = parse_or(p);
    while (at_name(p, "if")) {
        struct tmpl_node *node = node_new(p, N_COND, p->tok.line, 3);
        next(p);
        node->kid[0] = then;
        node->kid[1] = parse_or(p);
        if (skip_name(p, "else")) node->kid[2] = parse_expr(p);
        then = node;
    }
    leave(p);
    return then;
}

/* ---- statements ---- */

static struct tmpl_node *parse_body(struct parser *p, const char *const *ends);

static void check_target(struct parser *p, const struct tmpl_node *target)
{
    if (target->kind == N_TUPLE) {
        for (u32 i = 0; i < target->n; i++) check_target(p, target->kid[i]);
    } else if (target->kind != N_NAME) {
        p->fault.line = target->line;
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "can only assign to names");
    }
}

static struct tmpl_node *parse_target(struct parser *p)
{
    struct tmpl_node *target = parse_tuple(p, TUPLE_TARGET);
    check_target(p, target);
    return target;
}

/* The rest of the opening tag, and the statements up to one of ends (left as current token). */
static struct tmpl_node *parse_block(struct parser *p, const char *const *ends)
{
    skip_op(p, ":");
    expect_kind(p, T_BLOCK_END, "'%}'");
    return parse_body(p, ends);
}

static struct tmpl_node *parse_for(struct parser *p, struct tmpl_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    node->kid[0] = parse_target(p);
    if (!skip_name(p, "in")) parse_fail(p, "'in'");
    node->kid[1] = parse_tuple(p, TUPLE_NO_COND);
    if (skip_name(p, "if")) node->kid[2] = parse_expr(p);
    if (at_name(p, "recursive")) parse_refuse(p, "loop modifier", p->tok.text);
    p->n_loops++;
    node->kid[3] = parse_block(p, ends);
    p->n_loops--;
    if (skip_name(p, "else")) node->kid[4] = parse_block(p, last);
    next(p);
    return node;
}

static struct tmpl_node *parse_if(struct parser *p, u32 line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    struct kids k = {0};
    do {
        kids_add(p, &k, parse_tuple(p, TUPLE_NO_COND));
        kids_add(p, &k, parse_block(p, ends));
    } while (skip_name(p, "elif"));
    if (skip_name(p, "else")) kids_add(p, &k, parse_block(p, last));
    next(p);
    return node_of(p, N_IF, line, k);
}

static struct tmpl_node *parse_set(struct parser *p, u32 line)
{
    static const char *const ends[] = {"endset", NULL};
    struct tmpl_node *node, *target;
    if (peek_is(p, T_OP, ".")) {
        target = node_new(p, N_NSREF, p->tok.line, 0);
        target->id = intern(p, expect_name(p));
        next(p);
        target->name = const_str(p, expect_name(p));
    } else {
        target = parse_target(p);
    }
    if (skip_op(p, "=")) {
        node = node_new(p, N_SET, line, 2);
        node->kid[1] = parse_tuple(p, TUPLE_FULL);
    } else {
        node = node_new(p, N_SETBLOCK, line, 3);
        if (at_op(p, "|")) node->kid[2] = node_new(p, N_CAPTURED, line, 0);
        while (skip_op(p, "|")) node->kid[2] = parse_filter(p, node->kid[2]);
        node->kid[1] = parse_block(p, ends);
        next(p);
    }
    node->kid[0] = target;
    return node;
}

/* A body whose tag starts a function of its own: loops outside can't be left from in there. */
static struct tmpl_node *parse_closed_body(struct parser *p, const char *const *ends, bool macro)
{
    u32 n_loops = p->n_loops;
    bool in_macro = p->in_macro;
    p->n_loops = 0;
    p->in_macro = macro || in_macro;
    struct tmpl_node *body = parse_block(p, ends);
    p->n_loops = n_loops;
    p->in_macro = in_macro;
    next(p);
    return body;
}

static struct tmpl_node *parse_macro(struct parser *p, u32 line)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct kids k = {0};
    u32 ids[TMPL_MAX_ARGS], n = 0, name = intern(p, expect_name(p));
    bool defaults = false;
    kids_add(p, &k, NULL);
    expect_op(p, "(");
    while (!at_op(p, ")")) {
        if (n) expect_op(p, ",");
        if (n == TMPL_MAX_ARGS) parse_refuse(p, "so many parameters: the one at", p->tok.text);
        ids[n++] = intern(p, expect_name(p));
        bool has_default = skip_op(p, "=");
        if (defaults && !has_default) parse_fail(p, "a default value");
        defaults = has_default;
        kids_add(p, &k, has_default ? parse_expr(p) : NULL);
    }
    next(p);
    k.p[0] = parse_closed_body(p, ends, true);
    struct tmpl_node *node = node_of(p, N_MACRO, line, k);
    node->id = name;
    node->ids = tmpl_alloc(&p->fault, n ? n : 1, sizeof *ids);
    memcpy(node->ids, ids, n * sizeof *ids);
    return node;
}

static struct tmpl_node *parse_statement(struct parser *p)
{
    static const char *const generation[] = {"endgeneration", NULL};
    struct tmpl_token tag = p->tok;
    p->fault.line = tag.line;
    if (tag.kind != T_NAME) parse_fail(p, "a tag name");
    bool is_break = str_is(tag.text, "break");
    if (is_break || str_is(tag.text, "continue")) {
        if (!p->n_loops)
            tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "%s outside a loop", QUOTE(tag.text));
        next(p);
        return node_new(p, is_break ? N_BREAK : N_CONTINUE, tag.line, 0);
    }
    if (skip_name(p, "if")) return parse_if(p, tag.line);
    if (skip_name(p, "for")) return parse_for(p, node_new(p, N_FOR, tag.line, 5));
    if (skip_name(p, "set")) return parse_set(p, tag.line);
    if (skip_name(p, "macro")) return parse_macro(p, tag.line);
    if (skip_name(p, "generation")) {
        struct tmpl_node *node = node_new(p, N_SCOPE, tag.line, 1);
        node->kid[0] = parse_closed_body(p, generation, false);
        return node;
    }
    if (str_starts(tag.text, "end") || str_is(tag.text, "else") || str_is(tag.text, "elif")) {
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "tag %s closes nothing here", QUOTE(tag.text));
    }
    parse_refuse(p, "tag", tag.text);
}

/* Text, {{ }} and tags up to a tag named in ends (the current token then), or to the end of the
 * template when ends is NULL. */
static struct tmpl_node *parse_body(struct parser *p, const char *const *ends)
{
    struct kids k = {0};
    u32 line = p->tok.line;
    enter(p);
    while (p->tok.kind != T_EOF) {
        struct tmpl_token begin = p->tok;
        struct tmpl_node *node;
        next(p);
        if (begin.kind == T_DATA) {
            node = node_new(p, N_DATA, begin.line, 0);
            node->v = (struct tmpl_value){V_STR, .s = const_str(p, begin.text)};
        } else if (begin.kind == T_VAR_BEGIN) {
            node = node_new(p, N_PRINT, begin.line, 1);
            node->kid[0] = parse_tuple(p, TUPLE_FULL);
            expect_kind(p, T_VAR_END, "'}}'");
        } else {
            for (u32 i = 0; ends && ends[i]; i++) {
                if (!at_name(p, ends[i])) continue;
                leave(p);
                return node_of(p, N_BODY, line, k);
            }
            node = parse_statement(p);
            expect_kind(p, T_BLOCK_END, "'%}'");
        }
        kids_add(p, &k, node);
    }
    if (ends) {
        size_t n = 0;
        while (ends[n + 1]) n++;
        p->fault.line = line;
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "no '%s' for the tag before here", ends[n]);
    }
    leave(p);
    return node_of(p, N_BODY, line, k);
}

/* The source with \n as its only line end, and without the one it ends with. */
static struct str normalise(struct tmpl_fault *f, struct str source)
{
    char *text = tmpl_alloc(f, source.n + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        bool crlf = source.p[i] == '\r' && i + 1 < source.n && source.p[i + 1] == '\n';
        if (!crlf) text[n++] = source.p[i] == '\r' ? '\n' : source.p[i];
    }
    if (n && text[n - 1] == '\n') n--;
    return (struct str){text, n};
}

int tmpl_open(struct tmpl **out, struct str source, struct err *err)
{
    *out = NULL;
    if (source.n > TMPL_MAX_SOURCE) {
        return err_set(err, FLETCH_E_LIMIT, "template has %zu bytes; at most %d are read", source.n,
                       TMPL_MAX_SOURCE);
    }
    struct tmpl *t = calloc(1, sizeof *t);
    struct parser *p = calloc(1, sizeof *p);
    if (!t || !p) {
        free(t);
        free(p);
        return err_nomem(err, "a template");
    }
    p->t = t;
    p->fault =
        (struct tmpl_fault){.err = err, .line = 1, .arena = &t->arena, .n_left = (size_t)256 << 20};
    if (!setjmp(p->fault.out)) {
        p->lx = (struct tmpl_lexer){.fault = &p->fault, .line = 1, .line_starting = true};
        p->lx.src = normalise(&p->fault, source);
        next(p);
        t->root = parse_body(p, NULL);
        *out = t;
    } else {
        tmpl_close(t);
    }
    int code = p->fault.code;
    free(p);
    return code;
}

void tmpl_close(struct tmpl *t)
{
    if (!t) return;
    strmap_free(&t->name_ids);
    arena_free(&t->arena);
    free(t);
}
