/* What the parts of the template interpreter share: syntax tree, values, strings that remember
 * where each byte came from, and the way out on errors.
 *
 *   tmpl_lex.c      bytes -> tokens (delimiters, whitespace control)
 *   tmpl_parse.c    tokens -> tree: text and tags; unknown tags end here
 *   tmpl_expr.c     tokens -> tree: expressions
 *   tmpl_eval.c     tree + variables -> output; scopes, loops, macros
 *   tmpl_value.c    what operators mean: equality, order, members, slices, arithmetic
 *   tmpl_str.c      strings with provenance: building, characters, case, searching
 *   tmpl_print.c    values as text: str(), repr(), tojson
 *   tmpl_format.c   '%'-formatting and str.format
 *   tmpl_builtin.c  calling what is built in; tests and functions
 *   tmpl_filter.c   filters of texts and numbers
 *   tmpl_items.c    filters of sequences
 *   tmpl_method.c   methods of mappings, lists and loops
 *   tmpl_strmeth.c  methods of strings
 *
 * Errors leave by longjmp: every byte lives in one arena that its owner frees afterwards, so there
 * is nothing to undo on the way, and no caller can forget to look. */
#ifndef FLETCH_TMPL_INTERNAL_H
#define FLETCH_TMPL_INTERNAL_H

#include <setjmp.h>

#include "base/arena.h"
#include "base/strmap.h"
#include "text/tmpl.h"

enum {
    TMPL_MAX_SOURCE = 1 << 20,
    TMPL_MAX_NODES = 200000,
    TMPL_MAX_NESTING = 300, /* of brackets, blocks and prefix operators in the source */
    TMPL_MAX_ARGS = 32,
    TMPL_MAX_RANGE = 100000, /* as Jinja2's sandbox */
};

/* Where an error goes, and the memory that may be used until then. */
struct tmpl_fault {
    jmp_buf out;
    struct err *err;
    int code;
    u32 line;
    struct arena *arena;
    size_t n_left; /* bytes that may still be taken from arena */
};
_Noreturn void tmpl_fail(struct tmpl_fault *f, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *tmpl_alloc(struct tmpl_fault *f, size_t n, size_t size);

/* ---- values ---- */

/* Text with its provenance: mask[i] says whether byte i is the user's; mask NULL: all are `user`.
 * safe: it went through |safe or |escape, so that + and methods escape what is joined to it (what
 * Python calls Markup). */
struct tmpl_str {
    const char *p;
    size_t n;
    const u8 *mask;
    bool user, safe;
};

enum tmpl_kind {
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_SEQ,
    V_DICT,
    V_SPACE, /* namespace(): the only thing a template can change */
    V_LOOP,
    V_MACRO,
    V_FUNC,
    V_METHOD,
    V_CYCLER, /* cycler(): seq are its items, start the current one */
    V_JOINER, /* joiner(): seq is its separator, start 1 after the first call */
};

struct tmpl_value {
    enum tmpl_kind kind;
    union {
        bool b;
        i64 i;
        double f;
        const struct tmpl_str *s; /* V_STR; V_UNDEF: the name that was missing, or NULL */
        struct tmpl_seq *seq;     /* V_SEQ, V_CYCLER, V_JOINER */
        struct tmpl_dict *dict;   /* V_DICT, V_SPACE */
        struct tmpl_loop *loop;
        struct tmpl_macro *macro;
        const struct tmpl_builtin *func;
        struct tmpl_method *method;
    };
};

enum tmpl_seq_kind {
    SEQ_LIST,
    SEQ_TUPLE,
    SEQ_RANGE,
    SEQ_KEYS,
    SEQ_VALUES,
    SEQ_ITEMS,
    SEQ_ITER, /* what lazy filters give: read once, no length, no index */
};

struct tmpl_seq {
    enum tmpl_seq_kind kind;
    bool user;  /* made by the caller, not by the template */
    bool group; /* a pair of |groupby: its values are also called grouper and list */
    size_t n;
    struct tmpl_value *v;  /* [n] */
    i64 start, stop, step; /* SEQ_RANGE, as it prints */
};

struct tmpl_pair {
    struct tmpl_value key, value;
};

struct tmpl_dict {
    bool user;
    size_t n, cap;
    struct tmpl_pair *e; /* [n], in order of insertion */
};

struct tmpl_method {
    struct tmpl_value self;
    const struct tmpl_builtin *fn;
};

struct tmpl_macro {
    const struct tmpl_node *node;
    struct tmpl_frame *frame; /* where it was defined */
};

struct tmpl_loop {
    const struct tmpl_node *node;
    const struct tmpl_node *condition; /* NULL: every item passes */
    struct tmpl_frame *frame;          /* around the loop */
    u32 depth;                         /* of loops that called themselves, from 1 */
    const struct tmpl_seq *items;
    size_t next;        /* first item not looked at yet */
    i64 index0, length; /* length -1: not known yet */
    struct tmpl_value before, current, after;
    bool has_after;
    struct tmpl_seq *changed; /* arguments of the last loop.changed() */
};

/* Arguments of a call: n positional values, then n_kw named ones. */
struct tmpl_args {
    u32 n, n_kw;
    const struct tmpl_value *v; /* [n + n_kw] */
    const struct str *kw;       /* [n_kw] names */
};

struct tmpl_rt;
typedef struct tmpl_value tmpl_fn(struct tmpl_rt *rt, struct tmpl_value self,
                                  const struct tmpl_value *arg, const struct tmpl_args *all);

/* sig: names of the parameters in order, "?" after the optional ones ("old new count?"); NULL: the
 * function takes whatever comes, from `all`. fn NULL: it is refused by name when it is called, and
 * sig says what it is ("filter"; NULL: a method). */
struct tmpl_builtin {
    const char *name, *sig;
    tmpl_fn *fn;
};

/* ---- the tree ---- */

enum tmpl_node_kind {
    /* expressions; kids in brackets */
    N_LIT,      /* v */
    N_NAME,     /* id */
    N_ATTR,     /* [object] name */
    N_ITEM,     /* [object, index or N_SLICE] */
    N_SLICE,    /* [start, stop, step], each may be NULL */
    N_CALL,     /* [callee, n_pos arguments, named arguments kw, *args and **kwargs as op says] */
    N_FILTER,   /* [input, arguments as N_CALL] fn */
    N_TEST,     /* likewise */
    N_NOT,      /* [x] */
    N_SIGN,     /* [x] op '-' or '+' */
    N_BINARY,   /* [a, b] op */
    N_AND,      /* [a, b] */
    N_OR,       /* [a, b] */
    N_CONCAT,   /* [parts] */
    N_COMPARE,  /* [a, b, ...] ids: the operator before each kid but the first */
    N_COND,     /* [then, condition, else or NULL] */
    N_LIST,     /* [items] */
    N_TUPLE,    /* [items]; also a target */
    N_DICT,     /* [key, value, ...] */
    N_CAPTURED, /* the text of the set block whose filters these are */
    /* statements */
    N_BODY,     /* [statements] */
    N_DATA,     /* v */
    N_PRINT,    /* [x] */
    N_IF,       /* [condition, body, ..., else body when n is odd] */
    N_FOR,      /* [target, iterable, condition or NULL, body, else or NULL] */
    N_SET,      /* [target, x] */
    N_SETBLOCK, /* [target, body, filters or NULL] */
    N_NSREF,    /* target: id.name */
    N_MACRO,    /* [body, default or NULL for each of ids] id; op: tmpl_macro_use */
    N_CALLER,   /* [N_CALL, N_MACRO that it gets as caller] */
    N_FILTERED, /* [body, filters] */
    N_WITH,     /* [body, target, value, ...] */
    N_SCOPE,    /* [body] */
    N_BLOCK,    /* [body] that sees the names of the top level only */
    N_ESCAPED,  /* [whether to escape, body] */
    N_REFUSED,  /* v: the tag */
    N_BREAK,
    N_CONTINUE,
};

/* Which special names the text of a macro has: only such a macro takes what they stand for. */
enum tmpl_macro_use { USE_CALLER = 1, USE_VARARGS = 2, USE_KWARGS = 4 };
enum { MACRO_ANONYMOUS = 1 }; /* n_pos of a N_MACRO that a call block made */
enum tmpl_unpack { UNPACK_SEQ = 1, UNPACK_DICT = 2 };

enum tmpl_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum tmpl_cmp { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct tmpl_node {
    enum tmpl_node_kind kind;
    u32 line, n, n_pos, id, op;
    struct tmpl_node **kid; /* [n] */
    u32 *ids;
    struct str *kw;
    union {
        struct tmpl_value v;
        const struct tmpl_str *name;
        const struct tmpl_builtin *fn;
    };
};

struct tmpl {
    struct arena arena;
    struct strmap name_ids; /* identifier -> index into names */
    struct str *names;
    u32 n_names;
    struct tmpl_node *root;
};

/* ---- lexer ---- */

enum tmpl_token_kind {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING, /* text between the quotes, escapes not yet read */
    T_INT,
    T_FLOAT,
    T_OP,
};

struct tmpl_token {
    enum tmpl_token_kind kind;
    u32 line;
    struct str text;
};

/* Copy it to look ahead. */
struct tmpl_lexer {
    struct tmpl_fault *fault;
    struct str src;
    size_t pos;
    u32 line;
    enum tmpl_token_kind inside; /* T_EOF: in data; T_VAR_BEGIN or T_BLOCK_BEGIN: in a tag */
    bool pending;                /* the begin token of the tag is still to be given */
    bool line_starting;          /* the last token ended a line */
    u32 n_open;                  /* brackets; a tag can't end inside them */
};

struct tmpl_token tmpl_lex(struct tmpl_lexer *lx);

/* ---- strings (tmpl_str.c) ---- */

/* Text under construction, in the arena. */
struct tmpl_sbuf {
    struct tmpl_rt *rt;
    char *p;
    u8 *mask; /* NULL while all bytes so far are `user` */
    size_t n, cap;
    bool user, safe;
};
void sbuf_put(struct tmpl_sbuf *sb, const char *p, size_t n, bool user);
void sbuf_puts(struct tmpl_sbuf *sb, const char *z, bool user);
void sbuf_put_str(struct tmpl_sbuf *sb, const struct tmpl_str *s);
void sbuf_put_slice(struct tmpl_sbuf *sb, const struct tmpl_str *s, size_t from, size_t to);
void sbuf_put_char(struct tmpl_sbuf *sb, i32 c, bool user);
/* The string `count` times. */
void sbuf_put_times(struct tmpl_sbuf *sb, const struct tmpl_str *s, u64 count);
struct tmpl_value sbuf_value(const struct tmpl_sbuf *sb);

/* The character at s[i] and its length in bytes; a byte that is no UTF-8 is one character, -1. */
i32 tmpl_char(struct str s, size_t i, size_t *n);
bool tmpl_is_space(i32 c);
bool tmpl_is_line_end(i32 c);
struct str str_bytes(const struct tmpl_str *s);
bool str_user_at(const struct tmpl_str *s, size_t i);
size_t str_count_chars(struct str s);
size_t str_char_offset(struct str s, size_t index); /* s.n when there are not that many */
bool str_find(struct str s, struct str what, size_t from, size_t *at);
/* The last one that ends at or before `to`. */
bool str_rfind(struct str s, struct str what, size_t to, size_t *at);
struct tmpl_value str_slice(struct tmpl_rt *rt, const struct tmpl_str *s, size_t from, size_t to);
/* chars NULL: whitespace. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct tmpl_value str_strip(struct tmpl_rt *rt, const struct tmpl_str *s,
                            const struct tmpl_str *chars, int sides);
/* count < 0: all. */
struct tmpl_value str_replace(struct tmpl_rt *rt, const struct tmpl_str *s,
                              const struct tmpl_str *old, const struct tmpl_str *new, i64 count);
enum tmpl_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_CAPITALIZE,
    CASE_TITLE_METHOD,
    CASE_TITLE_FILTER,
    CASE_SWAP,
};
struct tmpl_value str_case(struct tmpl_rt *rt, const struct tmpl_str *s, enum tmpl_case how);
/* As Python: the lines without their ends, or with them. */
struct tmpl_seq *str_lines(struct tmpl_rt *rt, const struct tmpl_str *s, bool keep_ends);
/* With & < > ' " as HTML writes them; a safe string stays as it is. The result is safe. */
const struct tmpl_str *str_escape(struct tmpl_rt *rt, const struct tmpl_str *s);
/* The same bytes, safe or not. */
struct tmpl_value str_marked(struct tmpl_rt *rt, const struct tmpl_str *s, bool safe);
/* Up to `width` characters with `fill` at its sides: align '<', '>', '^', or 'c' for
 * str.center(). */
struct tmpl_value str_pad(struct tmpl_rt *rt, const struct tmpl_str *s, i64 width,
                          const struct tmpl_str *fill, char align);

/* ---- values (tmpl_value.c) ---- */

struct tmpl_value val_undef(const struct tmpl_str *name);
struct tmpl_value val_none(void);
struct tmpl_value val_bool(bool b);
struct tmpl_value val_int(i64 i);
struct tmpl_value val_float(double f);
struct tmpl_value val_str(struct tmpl_rt *rt, struct tmpl_str s);
struct tmpl_value val_seq(struct tmpl_seq *seq);

struct tmpl_seq *seq_new(struct tmpl_rt *rt, enum tmpl_seq_kind kind, size_t n);
struct tmpl_seq *seq_range(struct tmpl_rt *rt, i64 start, i64 stop, i64 step);
struct tmpl_dict *dict_new(struct tmpl_rt *rt, size_t cap);
void dict_set(struct tmpl_rt *rt, struct tmpl_dict *d, struct tmpl_value key,
              struct tmpl_value value);
struct tmpl_value *dict_get(struct tmpl_rt *rt, const struct tmpl_dict *d, struct tmpl_value key);
/* What items() gives. */
struct tmpl_seq *dict_pairs(struct tmpl_rt *rt, struct tmpl_value dict);
bool val_hashable(struct tmpl_value v);

const char *val_type(struct tmpl_value v);
bool val_truth(struct tmpl_value v);
bool val_number(struct tmpl_value v, double *f); /* bool counts, as in Python */
bool val_integer(struct tmpl_value v, i64 *i);
bool val_eq(struct tmpl_rt *rt, struct tmpl_value a, struct tmpl_value b);
bool val_less(struct tmpl_rt *rt, struct tmpl_value a, struct tmpl_value b);
bool val_compare(struct tmpl_rt *rt, enum tmpl_cmp op, struct tmpl_value a, struct tmpl_value b);
bool val_contains(struct tmpl_rt *rt, struct tmpl_value all, struct tmpl_value x);
bool val_iterable(struct tmpl_value v);
/* Everything the value yields; an iterator is empty afterwards. */
struct tmpl_seq *val_items(struct tmpl_rt *rt, struct tmpl_value v);
i64 val_length(struct tmpl_rt *rt, struct tmpl_value v);
struct tmpl_value val_attr(struct tmpl_rt *rt, struct tmpl_value v, const struct tmpl_str *name);
struct tmpl_value val_item(struct tmpl_rt *rt, struct tmpl_value v, struct tmpl_value index);
struct tmpl_value val_slice(struct tmpl_rt *rt, struct tmpl_value v, const struct tmpl_value *part);
struct tmpl_value val_binary(struct tmpl_rt *rt, enum tmpl_op op, struct tmpl_value a,
                             struct tmpl_value b);
struct tmpl_value val_sign(struct tmpl_rt *rt, u32 op, struct tmpl_value v);
struct tmpl_value val_from_json(struct tmpl_rt *rt, const json_t *j, bool user);
/* What Python's getattr() would find, or undefined; val_attr also looks for a key. */
struct tmpl_value val_own_attr(struct tmpl_rt *rt, struct tmpl_value v,
                               const struct tmpl_str *name);

/* ---- text of values (tmpl_print.c) ---- */

void print_str(struct tmpl_sbuf *sb, struct tmpl_value v);
const struct tmpl_str *val_to_str(struct tmpl_rt *rt, struct tmpl_value v);
/* Python's repr(), or (ascii) with everything else escaped. */
const struct tmpl_str *val_to_repr(struct tmpl_rt *rt, struct tmpl_value v, bool ascii);
bool tmpl_is_printable(i32 c); /* Python's str.isprintable(), for one character */
struct tmpl_json_style {
    bool ensure_ascii, sort_keys, pretty;
    const struct tmpl_str *indent, *item_sep, *key_sep;
};
void print_json(struct tmpl_sbuf *sb, struct tmpl_value v, const struct tmpl_json_style *style);

/* ---- formatting (tmpl_format.c) ---- */

struct tmpl_value format_percent(struct tmpl_rt *rt, const struct tmpl_str *form,
                                 struct tmpl_value args);
/* str.format(); names, where not NULL, is the mapping of format_map(). */
struct tmpl_value format_braces(struct tmpl_rt *rt, const struct tmpl_str *form,
                                const struct tmpl_args *all, const struct tmpl_dict *names);

/* ---- builtins ---- */

const struct tmpl_builtin *tmpl_find_filter(struct str name);
const struct tmpl_builtin *tmpl_find_test(struct str name);
const struct tmpl_builtin *tmpl_find_function(struct str name);
const struct tmpl_builtin *tmpl_find_method(struct tmpl_value self, struct str name);
const struct tmpl_builtin *tmpl_find_text_filter(struct str name);
const struct tmpl_builtin *tmpl_find_items_filter(struct str name);
const struct tmpl_builtin *tmpl_find_str_method(struct str name);
/* A filter or test called by another filter: its name is args->v[skip], its arguments follow. */
struct tmpl_value tmpl_call_named(struct tmpl_rt *rt, bool is_test, struct tmpl_value self,
                                  const struct tmpl_args *args, u32 skip);
struct tmpl_value tmpl_call_builtin(struct tmpl_rt *rt, const struct tmpl_builtin *fn,
                                    struct tmpl_value self, const struct tmpl_args *args);
const struct tmpl_builtin *tmpl_find_in(const struct tmpl_builtin *table, size_t n,
                                        struct str name);
struct tmpl_value tmpl_call_joiner(struct tmpl_rt *rt, struct tmpl_seq *joiner,
                                   const struct tmpl_args *args);
/* An optional parameter for which no argument came; an undefined value may well have come. */
bool arg_missing(struct tmpl_value v);
bool arg_absent(struct tmpl_value v); /* missing or none */
/* An argument that must be a string, or an integer (`otherwise` when it is missing). */
const struct tmpl_str *arg_str(struct tmpl_rt *rt, struct tmpl_value v);
i64 arg_int(struct tmpl_rt *rt, struct tmpl_value v, i64 otherwise);

/* ---- evaluation (tmpl_eval.c) ---- */

struct tmpl_rt {
    struct tmpl_fault fault;
    struct arena arena;
    const struct tmpl *t;
    u64 fuel;
    u32 depth; /* levels left */
    time_t now;
    struct tmpl_value *globals; /* [n_names] */
    struct tmpl_frame *frame;   /* NULL: top level */
    struct tmpl_sbuf *out;
    json_t *json; /* what from_json read: values borrow from it */
    struct tmpl_value captured;
};

#define RT_FAIL(rt, ...) tmpl_fail(&(rt)->fault, FLETCH_E_TEMPLATE, __VA_ARGS__)
void rt_spend(struct tmpl_rt *rt, u64 work);
/* Around every recursion whose depth the template or the caller decides. */
void rt_enter(struct tmpl_rt *rt);
void rt_leave(struct tmpl_rt *rt);
void *rt_alloc(struct tmpl_rt *rt, size_t n, size_t size);

bool loop_peek(struct tmpl_rt *rt, struct tmpl_loop *loop);
i64 loop_length(struct tmpl_rt *rt, struct tmpl_loop *loop);

#endif
