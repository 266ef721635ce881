/* Tokens to a tree, by recursive descent with Jinja2's own precedences and quirks. What a template
 * asks for that we don't have (tags, filters, tests, argument forms) is refused here, by name. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_parse.h"

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
        tmpl_fail(f, FLETCH_E_LIMIT, "the template uses too much memory");
    }
    f->n_left -= (bytes | 15) + 1;
    void *p = arena_alloc(f->arena, n, size);
    if (!p) tmpl_fail(f, FLETCH_E_NOMEM, "out of memory");
    return p;
}

_Noreturn void parse_fail(struct tmpl_parser *p, const char *expected)
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

_Noreturn void parse_refuse(struct tmpl_parser *p, const char *what, struct str name)
{
    p->fault.line = p->tok.line;
    tmpl_fail(&p->fault, FLETCH_E_UNSUPPORTED, "%s %s is not supported", what, QUOTE(name));
}

void parse_next(struct tmpl_parser *p)
{
    p->tok = tmpl_lex(&p->lx);
}

bool parse_peek_is(const struct tmpl_parser *p, enum tmpl_token_kind kind, const char *text)
{
    struct tmpl_lexer ahead = p->lx;
    struct tmpl_token t = tmpl_lex(&ahead);
    return t.kind == kind && str_is(t.text, text);
}

bool parse_at_op(const struct tmpl_parser *p, const char *op)
{
    return p->tok.kind == T_OP && str_is(p->tok.text, op);
}

bool parse_at_name(const struct tmpl_parser *p, const char *name)
{
    return p->tok.kind == T_NAME && str_is(p->tok.text, name);
}

bool parse_skip_op(struct tmpl_parser *p, const char *op)
{
    if (!parse_at_op(p, op)) return false;
    parse_next(p);
    return true;
}

bool parse_skip_name(struct tmpl_parser *p, const char *name)
{
    if (!parse_at_name(p, name)) return false;
    parse_next(p);
    return true;
}

void parse_expect_op(struct tmpl_parser *p, const char *op)
{
    if (!parse_skip_op(p, op)) parse_fail(p, QUOTE(str_of(op)));
}

void parse_expect_kind(struct tmpl_parser *p, enum tmpl_token_kind kind, const char *what)
{
    if (p->tok.kind != kind) parse_fail(p, what);
    parse_next(p);
}

/* Around everything that can contain itself. */
void parse_enter(struct tmpl_parser *p)
{
    if (++p->nesting > TMPL_MAX_NESTING) {
        p->fault.line = p->tok.line;
        tmpl_fail(&p->fault, FLETCH_E_LIMIT, "nested deeper than %d", TMPL_MAX_NESTING);
    }
}

void parse_leave(struct tmpl_parser *p)
{
    p->nesting--;
}

struct tmpl_node *parse_new_node(struct tmpl_parser *p, enum tmpl_node_kind kind, u32 line, u32 n)
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

void parse_add_kid(struct tmpl_parser *p, struct parse_kids *k, struct tmpl_node *node)
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

struct tmpl_node *parse_node_of(struct tmpl_parser *p, enum tmpl_node_kind kind, u32 line,
                                struct parse_kids k)
{
    struct tmpl_node *node = parse_new_node(p, kind, line, 0);
    node->kid = k.p;
    node->n = k.n;
    return node;
}

u32 parse_intern(struct tmpl_parser *p, struct str name)
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

const struct tmpl_str *parse_const_str(struct tmpl_parser *p, struct str text)
{
    struct tmpl_str *s = tmpl_alloc(&p->fault, 1, sizeof *s);
    *s = (struct tmpl_str){.p = text.p, .n = text.n};
    return s;
}

struct str parse_expect_name(struct tmpl_parser *p)
{
    struct str name = p->tok.text;
    parse_expect_kind(p, T_NAME, "a name");
    return name;
}

/* ---- statements ---- */

static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends);

static void check_target(struct tmpl_parser *p, const struct tmpl_node *target)
{
    if (target->kind == N_TUPLE) {
        for (u32 i = 0; i < target->n; i++) check_target(p, target->kid[i]);
    } else if (target->kind != N_NAME) {
        p->fault.line = target->line;
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "can only assign to names");
    }
}

static struct tmpl_node *parse_target(struct tmpl_parser *p)
{
    struct tmpl_node *target = parse_tuple(p, TUPLE_TARGET);
    check_target(p, target);
    return target;
}

/* The rest of the opening tag, and the statements up to one of ends (left as current token). */
static struct tmpl_node *parse_block(struct tmpl_parser *p, const char *const *ends)
{
    parse_skip_op(p, ":");
    parse_expect_kind(p, T_BLOCK_END, "'%}'");
    return parse_body(p, ends);
}

static struct tmpl_node *parse_for(struct tmpl_parser *p, struct tmpl_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    node->kid[0] = parse_target(p);
    if (!parse_skip_name(p, "in")) parse_fail(p, "'in'");
    node->kid[1] = parse_tuple(p, TUPLE_NO_COND);
    if (parse_skip_name(p, "if")) node->kid[2] = parse_expr(p);
    node->op = parse_skip_name(p, "recursive");
    p->n_loops++;
    node->kid[3] = parse_block(p, ends);
    p->n_loops--;
    if (parse_skip_name(p, "else")) node->kid[4] = parse_block(p, last);
    parse_next(p);
    return node;
}

static struct tmpl_node *parse_if(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    struct parse_kids k = {0};
    do {
        parse_add_kid(p, &k, parse_tuple(p, TUPLE_NO_COND));
        parse_add_kid(p, &k, parse_block(p, ends));
    } while (parse_skip_name(p, "elif"));
    if (parse_skip_name(p, "else")) parse_add_kid(p, &k, parse_block(p, last));
    parse_next(p);
    return parse_node_of(p, N_IF, line, k);
}

static struct tmpl_node *parse_set(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endset", NULL};
    struct tmpl_node *node, *target;
    if (parse_peek_is(p, T_OP, ".")) {
        target = parse_new_node(p, N_NSREF, p->tok.line, 0);
        target->id = parse_intern(p, parse_expect_name(p));
        parse_next(p);
        target->name = parse_const_str(p, parse_expect_name(p));
    } else {
        target = parse_target(p);
    }
    if (parse_skip_op(p, "=")) {
        node = parse_new_node(p, N_SET, line, 2);
        node->kid[1] = parse_tuple(p, TUPLE_FULL);
    } else {
        node = parse_new_node(p, N_SETBLOCK, line, 3);
        if (parse_at_op(p, "|")) node->kid[2] = parse_new_node(p, N_CAPTURED, line, 0);
        while (parse_skip_op(p, "|")) node->kid[2] = parse_filter(p, node->kid[2]);
        node->kid[1] = parse_block(p, ends);
        parse_next(p);
    }
    node->kid[0] = target;
    return node;
}

/* A body whose tag starts a function of its own: loops outside can't be left from in there. */
static struct tmpl_node *parse_closed_body(struct tmpl_parser *p, const char *const *ends)
{
    u32 n_loops = p->n_loops;
    p->n_loops = 0;
    struct tmpl_node *body = parse_block(p, ends);
    p->n_loops = n_loops;
    parse_next(p);
    return body;
}

/* "(a, b=1)": a macro that has its parameters, but no body yet. */
static struct tmpl_node *parse_signature(struct tmpl_parser *p, u32 line, struct str name)
{
    struct parse_kids k = {0};
    u32 ids[TMPL_MAX_ARGS], n = 0;
    bool defaults = false;
    parse_add_kid(p, &k, NULL);
    parse_expect_op(p, "(");
    while (!parse_at_op(p, ")")) {
        if (n) parse_expect_op(p, ",");
        if (n == TMPL_MAX_ARGS) parse_refuse(p, "so many parameters: the one at", p->tok.text);
        ids[n++] = parse_intern(p, parse_expect_name(p));
        bool has_default = parse_skip_op(p, "=");
        if (defaults && !has_default) parse_fail(p, "a default value");
        defaults = has_default;
        parse_add_kid(p, &k, has_default ? parse_expr(p) : NULL);
    }
    parse_next(p);
    struct tmpl_node *node = parse_node_of(p, N_MACRO, line, k);
    node->id = parse_intern(p, name);
    node->ids = tmpl_alloc(&p->fault, n ? n : 1, sizeof *ids);
    memcpy(node->ids, ids, n * sizeof *ids);
    return node;
}

/* The body of a macro comes after its parameters; in a call block the call stands between. */
static void parse_macro_body(struct tmpl_parser *p, struct tmpl_node *macro,
                             const char *const *ends)
{
    u32 outside = p->macro_uses;
    p->macro_uses = 0;
    macro->kid[0] = parse_closed_body(p, ends);
    macro->op = p->macro_uses;
    p->macro_uses |= outside;
}

static struct tmpl_node *parse_macro_tag(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct tmpl_node *node = parse_signature(p, line, parse_expect_name(p));
    parse_macro_body(p, node, ends);
    return node;
}

static struct tmpl_node *parse_call_tag(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endcall", NULL};
    struct tmpl_node *node = parse_new_node(p, N_CALLER, line, 2);
    struct tmpl_node *caller = NULL;
    if (parse_at_op(p, "(")) caller = parse_signature(p, line, STR("caller"));
    node->kid[0] = parse_expr(p);
    if (node->kid[0]->kind != N_CALL) parse_fail(p, "the call of a macro");
    if (!caller) { /* a macro without parameters */
        caller = parse_new_node(p, N_MACRO, line, 1);
        caller->id = parse_intern(p, STR("caller"));
    }
    caller->n_pos = MACRO_ANONYMOUS;
    node->kid[1] = caller;
    parse_macro_body(p, caller, ends);
    return node;
}

static struct tmpl_node *parse_with(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endwith", NULL};
    struct parse_kids k = {0};
    parse_add_kid(p, &k, NULL);
    while (p->tok.kind != T_BLOCK_END && !parse_at_op(p, ":")) {
        if (k.n > 1) parse_expect_op(p, ",");
        parse_add_kid(p, &k, parse_target(p));
        parse_expect_op(p, "=");
        parse_add_kid(p, &k, parse_expr(p));
    }
    k.p[0] = parse_block(p, ends);
    parse_next(p);
    return parse_node_of(p, N_WITH, line, k);
}

static struct tmpl_node *parse_filter_tag(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct tmpl_node *node = parse_new_node(p, N_FILTERED, line, 2);
    node->kid[1] = parse_filter(p, parse_new_node(p, N_CAPTURED, line, 0));
    while (parse_skip_op(p, "|")) node->kid[1] = parse_filter(p, node->kid[1]);
    node->kid[0] = parse_block(p, ends);
    parse_next(p);
    return node;
}

/* Nothing inherits from a chat template, so a block is its own text. */
static struct tmpl_node *parse_block_tag(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endblock", NULL};
    struct tmpl_node *node = parse_new_node(p, N_BLOCK, line, 1);
    struct str name = parse_expect_name(p);
    bool scoped = parse_skip_name(p, "scoped");
    if (scoped) node->kind = N_SCOPE;
    if (parse_at_name(p, "required")) parse_refuse(p, "the block modifier", p->tok.text);
    node->kid[0] = parse_closed_body(p, ends);
    if (p->tok.kind == T_NAME && str_eq(p->tok.text, name)) parse_next(p);
    return node;
}

static struct tmpl_node *parse_autoescape(struct tmpl_parser *p, u32 line)
{
    static const char *const ends[] = {"endautoescape", NULL};
    struct tmpl_node *node = parse_new_node(p, N_ESCAPED, line, 2);
    node->kid[0] = parse_expr(p);
    node->kid[1] = parse_block(p, ends);
    parse_next(p);
    return node;
}

/* Tags that need other templates: an error when they are reached, as in Jinja2 without a loader. */
static struct tmpl_node *parse_other_template(struct tmpl_parser *p, struct tmpl_token tag)
{
    struct tmpl_node *node = parse_new_node(p, N_REFUSED, tag.line, 0);
    node->v = (struct tmpl_value){V_STR, .s = parse_const_str(p, tag.text)};
    while (p->tok.kind != T_BLOCK_END && p->tok.kind != T_EOF) parse_next(p);
    return node;
}

static struct tmpl_node *parse_statement(struct tmpl_parser *p)
{
    static const char *const generation[] = {"endgeneration", NULL};
    static const char *const loading[] = {"include", "import", "from", "extends"};
    struct tmpl_token tag = p->tok;
    p->fault.line = tag.line;
    if (tag.kind != T_NAME) parse_fail(p, "a tag name");
    bool is_break = str_is(tag.text, "break");
    if (is_break || str_is(tag.text, "continue")) {
        if (!p->n_loops)
            tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "%s outside a loop", QUOTE(tag.text));
        parse_next(p);
        return parse_new_node(p, is_break ? N_BREAK : N_CONTINUE, tag.line, 0);
    }
    if (parse_skip_name(p, "if")) return parse_if(p, tag.line);
    if (parse_skip_name(p, "for")) return parse_for(p, parse_new_node(p, N_FOR, tag.line, 5));
    if (parse_skip_name(p, "set")) return parse_set(p, tag.line);
    if (parse_skip_name(p, "macro")) return parse_macro_tag(p, tag.line);
    if (parse_skip_name(p, "call")) return parse_call_tag(p, tag.line);
    if (parse_skip_name(p, "with")) return parse_with(p, tag.line);
    if (parse_skip_name(p, "filter")) return parse_filter_tag(p, tag.line);
    if (parse_skip_name(p, "block")) return parse_block_tag(p, tag.line);
    if (parse_skip_name(p, "autoescape")) return parse_autoescape(p, tag.line);
    for (size_t i = 0; i < ARRAY_LEN(loading); i++) {
        if (parse_skip_name(p, loading[i])) return parse_other_template(p, tag);
    }
    if (parse_skip_name(p, "generation")) {
        struct tmpl_node *node = parse_new_node(p, N_SCOPE, tag.line, 1);
        node->kid[0] = parse_closed_body(p, generation);
        return node;
    }
    if (str_starts(tag.text, "end") || str_is(tag.text, "else") || str_is(tag.text, "elif")) {
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "tag %s does not close anything here",
                  QUOTE(tag.text));
    }
    parse_refuse(p, "tag", tag.text);
}

/* Text, {{ }} and tags up to a tag named in ends (the current token then), or to the end of the
 * template when ends is NULL. */
static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends)
{
    struct parse_kids k = {0};
    u32 line = p->tok.line;
    parse_enter(p);
    while (p->tok.kind != T_EOF) {
        struct tmpl_token begin = p->tok;
        struct tmpl_node *node;
        parse_next(p);
        if (begin.kind == T_DATA) {
            node = parse_new_node(p, N_DATA, begin.line, 0);
            node->v = (struct tmpl_value){V_STR, .s = parse_const_str(p, begin.text)};
        } else if (begin.kind == T_VAR_BEGIN) {
            node = parse_new_node(p, N_PRINT, begin.line, 1);
            node->kid[0] = parse_tuple(p, TUPLE_FULL);
            parse_expect_kind(p, T_VAR_END, "'}}'");
        } else {
            for (u32 i = 0; ends && ends[i]; i++) {
                if (!parse_at_name(p, ends[i])) continue;
                parse_leave(p);
                return parse_node_of(p, N_BODY, line, k);
            }
            node = parse_statement(p);
            parse_expect_kind(p, T_BLOCK_END, "'%}'");
        }
        parse_add_kid(p, &k, node);
    }
    if (ends) {
        size_t n = 0;
        while (ends[n + 1]) n++;
        p->fault.line = line;
        tmpl_fail(&p->fault, FLETCH_E_TEMPLATE, "missing '%s' for an earlier tag", ends[n]);
    }
    parse_leave(p);
    return parse_node_of(p, N_BODY, line, k);
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
        return err_set(err, FLETCH_E_LIMIT, "the template has %zu bytes; at most %d are supported",
                       source.n, TMPL_MAX_SOURCE);
    }
    struct tmpl *t = calloc(1, sizeof *t);
    struct tmpl_parser *p = calloc(1, sizeof *p);
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
        parse_next(p);
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
