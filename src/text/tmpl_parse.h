/* What the two halves of the template parser share: its state, the token it stands at, and new
 * nodes. tmpl_parse.c reads tags and text, tmpl_expr.c the expressions in them. */
#ifndef FLETCH_TMPL_PARSE_H
#define FLETCH_TMPL_PARSE_H

#include "text/tmpl_internal.h"

struct tmpl_parser {
    struct tmpl_fault fault;
    struct tmpl *t;
    struct tmpl_lexer lx;
    struct tmpl_token tok;
    u32 n_nodes, nesting, n_loops; /* n_loops: around this point, in the same macro */
    u32 macro_uses;                /* enum tmpl_macro_use: what the text around this point names */
};

/* Nodes of a list whose length is not known yet. */
struct parse_kids {
    struct tmpl_node **p;
    u32 n, cap;
};

_Noreturn void parse_fail(struct tmpl_parser *p, const char *expected);
_Noreturn void parse_refuse(struct tmpl_parser *p, const char *what, struct str name);
void parse_next(struct tmpl_parser *p);
bool parse_peek_is(const struct tmpl_parser *p, enum tmpl_token_kind kind, const char *text);
bool parse_at_op(const struct tmpl_parser *p, const char *op);
bool parse_at_name(const struct tmpl_parser *p, const char *name);
/* Whether the token was that; if so, the next one is current. */
bool parse_skip_op(struct tmpl_parser *p, const char *op);
bool parse_skip_name(struct tmpl_parser *p, const char *name);
void parse_expect_op(struct tmpl_parser *p, const char *op);
void parse_expect_kind(struct tmpl_parser *p, enum tmpl_token_kind kind, const char *what);
struct str parse_expect_name(struct tmpl_parser *p);
/* Around everything that can contain itself. */
void parse_enter(struct tmpl_parser *p);
void parse_leave(struct tmpl_parser *p);

struct tmpl_node *parse_new_node(struct tmpl_parser *p, enum tmpl_node_kind kind, u32 line, u32 n);
void parse_add_kid(struct tmpl_parser *p, struct parse_kids *k, struct tmpl_node *node);
struct tmpl_node *parse_node_of(struct tmpl_parser *p, enum tmpl_node_kind kind, u32 line,
                                struct parse_kids k);
u32 parse_intern(struct tmpl_parser *p, struct str name);
const struct tmpl_str *parse_const_str(struct tmpl_parser *p, struct str text);

/* tmpl_expr.c */
enum tuple_mode { TUPLE_FULL, TUPLE_NO_COND, TUPLE_TARGET, TUPLE_PARENS };
/* One expression, or several with commas as a tuple. */
struct tmpl_node *parse_tuple(struct tmpl_parser *p, enum tuple_mode mode);
struct tmpl_node *parse_expr(struct tmpl_parser *p);
/* "name(arguments)" after "|". */
struct tmpl_node *parse_filter(struct tmpl_parser *p, struct tmpl_node *input);

#endif
